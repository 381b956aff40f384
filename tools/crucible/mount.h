/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the mount. Everything else the command does goes through its descriptor. */
#ifndef CRUCIBLE_TOOLS_MOUNT_H
#define CRUCIBLE_TOOLS_MOUNT_H

#include <stdbool.h>

#include "base/err.h"
#include "tools/crucible/bind.h"

#define MOUNT_DEFAULT "/crucible"

struct mount {
	int fd;		  /* of its root, O_PATH; -1: not open */
	const char *path; /* as given; borrowed from the flag or the environment */
	char version[64]; /* of the daemon, from the file `version` */
};

/* Where the mount is looked for: @flag, else CRUCIBLE_MOUNT, else /crucible. */
const char *mount_path(const char *flag);

/* Open it and make sure that a daemon answers. Blocks: no longer than the daemon. Errors, with words that say how to
 * start the daemon: -ENOENT nothing there, -ENOTDIR, -EACCES, -ENOTCONN its daemon is gone, -EMEDIUMTYPE a directory,
 * but no mount of ours. */
int mount_open(const char *flag, struct mount *ret, struct err *e);
/* Is @path the mount of a view? Known without its daemon; as bind_find(). */
bool mount_is_view(const char *path, struct bind *ret);
void mount_close(struct mount *m);

#endif
