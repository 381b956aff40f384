/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a guest: their names on the command line, and opening them without ever leaving the guest. Thread: any. */
#ifndef CRUCIBLE_TOOLS_GUESTPATH_H
#define CRUCIBLE_TOOLS_GUESTPATH_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "base/err.h"
#include "tools/crucible/sbx.h"

/* One of the two words of `cp`. */
struct cp_operand {
	bool guest;
	char id[SBX_ID_MAX + 1]; /* of a guest's */
	char path[PATH_MAX];	 /* guest: from its root, without a slash in front, "" is the root; local: as given */
	bool slash;		 /* ended in '/': must be a directory */
};

/* "ID:/path" is a guest's, everything else is local; so is a word with a '/' before its ':' ("./a:b"). Errors: -EINVAL
 * with words (a guest's path that is not absolute, or has ".."), -ENAMETOOLONG. */
int cp_operand_parse(const char *word, struct cp_operand *ret, struct err *e);
/* The last component; "" for a root, ".", "..". Borrowed from @path. Trailing slashes are cut off in place. */
const char *cp_base_name(char *path);
/* Append "/name" (or "name" to ""). -ENAMETOOLONG. */
int cp_path_add(char path[PATH_MAX], const char *name);

/* Open @path below the guest's root @fs (a descriptor of run/<id>/fs). The kernel refuses to leave it, whatever links
 * the guest puts in the way. Blocks: bounded by the tree (5 s). Returns the descriptor or -errno of openat2. */
int guest_open(int fs, const char *path, int flags, mode_t mode);
int guest_stat(int fs, const char *path, struct stat *ret); /* follows links, inside; 0 or -errno */

#endif
