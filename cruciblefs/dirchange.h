/* SPDX-License-Identifier: Apache-2.0 */
/* Node functions of directories that make, remove and rename names (dir.c has the rest). None ever waits: the kernel
 * holds the directory's lock meanwhile. */
#ifndef CRUCIBLE_DIRCHANGE_H
#define CRUCIBLE_DIRCHANGE_H

#include "cruciblefs/table.h"

void dir_mknod(struct cfs_req *r, struct cfs_node *node, const char *name, mode_t mode, dev_t rdev);
void dir_mkdir(struct cfs_req *r, struct cfs_node *node, const char *name, mode_t mode);
void dir_symlink(struct cfs_req *r, struct cfs_node *node, const char *name, const char *target);
void dir_unlink(struct cfs_req *r, struct cfs_node *node, const char *name);
void dir_rmdir(struct cfs_req *r, struct cfs_node *node, const char *name);
void dir_rename(struct cfs_req *r, struct cfs_node *node, const char *name, struct cfs_node *newnode,
		const char *newname, unsigned flags);
void dir_create(struct cfs_req *r, struct cfs_node *node, const char *name, mode_t mode, int flags);

/* dir.c: answer with the node of @a, a child of @dir. */
void cfs_dir_reply_child(struct cfs_req *r, struct cfs_tnode *dir, const struct cfs_about *a);

#endif
