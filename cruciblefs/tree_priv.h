/* SPDX-License-Identifier: Apache-2.0 */
/* What tree.c shares with dir.c and wait.c. */
#ifndef CRUCIBLE_TREE_PRIV_H
#define CRUCIBLE_TREE_PRIV_H

#include <fuse_lowlevel.h>
#include "cruciblefs/promise.h"
#include "cruciblefs/table.h"

#define PLACE_SLOTS 256u
#define NODE_SLOTS  4096u
/* Seconds for which the kernel may remember of a CFS_LASTING directory its name, and its attributes, of which only the
 * time ever changes (a change made through the mount is seen at once all the same). It saves four requests of each path
 * into run/. */
#define LASTING_NAME_S 86400.0
#define LASTING_ATTR_S 1.0

struct tree_place;
struct cfs_tree {
	struct cfs_session *cs;
	uint64_t started_ns;
	struct cfs_tnode root;
	struct cfs_node_ops root_ops;
	struct cfs_place *outside;		/* of what is in no sandbox */
	struct tree_place *places[PLACE_SLOTS]; /* by sandbox */
	struct tree_place *gone;		/* whose sandbox is gone: drop_gone() */
	loop_id gone_id;
	struct cfs_tnode *nodes[NODE_SLOTS]; /* current ones, by inode number */
	struct promises promises;
};

extern const struct cfs_entry cfs_root_entry; /* root.c */

const struct cfs_entry *cfs_entry_of(const struct cfs_table *t, const char *name);
/* The file @e of the directory @dir; bind() was not called. */
void cfs_about_entry(const struct cfs_about *dir, const struct cfs_entry *e, const struct cfs_who *who,
		     struct cfs_about *ret);

#endif
