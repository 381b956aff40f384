/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the guest's files that the kernel knows: by path, that is by (directory, name). How this works:
 *
 * Invariants
 *  1. At most one *attached* node stands for a (directory, name); only attached nodes are ever found by name.
 *  2. A detached node (removed, replaced, or renamed away in a way that its kind does not survive) is never
 *     attached again. Its open handles go on; what needs its path, or the path of anything below it, is -ESTALE.
 *  3. The depth of a directory's node never changes, and wherever the kernel has its dentry is at that depth. This
 *     is what guestlink.h builds on. It is had so:
 *       - the kernel puts a dentry at (directory, name) when a look-up there yields the node, and by 1 and 2 no
 *         other place yields it. The guest's inode numbers are never used to find a node: they would make the
 *         kernel move ("splice") the dentry of a directory that the guest has moved, with everybody below it;
 *       - the kernel moves dentries when we answer a rename with 0. gnode_rename_check() allows another depth only
 *         for what neither the table nor, perhaps, the kernel takes for a directory ("ghosts": a detached
 *         directory may live on in the kernel under its old name until the next walk);
 *       - we change the table at the same moments: a rename whose caller was interrupted changes neither.
 *  4. A symbolic link that is renamed to another depth is detached: a walk that found it before the rename may read
 *     it after, and would take a text with the `..` of the new depth from the old place. It gets -ESTALE and is
 *     walked again.
 *
 * The guest's inode number serves to *split*: when the path of a file shows another number than before, or that of
 * anything another type, it is another file and gets a fresh node, so that descriptors and cached pages of the old one
 * are never mixed with the new one. A lying guest can only make more nodes, and their number is bounded. (Directories
 * keep their node: they have no pages, and the numbers of some guest file systems, /proc among them, do not last.)
 *
 * Renaming a directory moves one node: paths are built from the parents when they are needed.
 *
 * Thread: the loop's. Blocks: no. */
#ifndef CRUCIBLE_GUESTPATH_H
#define CRUCIBLE_GUESTPATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "agent/proto.h"
#include "cruciblefs/guestreply.h"
#include "cruciblefs/node.h"

struct guestfs;
struct gfile;

struct gnode {
	struct cfs_node node;
	struct guestfs *fs;
	struct gnode *parent; /* a reference; NULL: the root. A detached node keeps its last one */
	struct gnode *chain;  /* of the table's bucket, while attached */
	char *name;	      /* in the parent; "" of the root */
	uint64_t hash;	      /* of (parent, name) */
	uint64_t ino;	      /* the guest's, as last told */
	uint32_t type;	      /* struct gattr: S_IFREG, S_IFDIR, S_IFLNK or 0 */
	unsigned depth;	      /* of the root 0, of what is in it 1 … */
	unsigned ghosts;      /* detached directories that were in this one and that still live */
	bool attached;
	struct gfile *files; /* open in the guest (guestio.c) */
};

#define GTABLE_NODES_MAX 65536u /* of one sandbox; beyond: -ENFILE */

struct gtable {
	struct gnode **bucket;
	size_t nbuckets;  /* a power of two */
	size_t nnodes;	  /* attached and detached, without the root */
	uint64_t seed;	  /* names are the guest's choice: it shall not be able to fill one bucket */
	uint64_t renames; /* grows with each rename: paths sent before it may be stale */
};

int gtable_init(struct gtable *t);  /* -ENOMEM */
void gtable_fini(struct gtable *t); /* after the last node */

/* Make @n (zeroed, its node initialised by the caller) the root. */
void gnode_init_root(struct gnode *n, struct guestfs *fs);

/* The attached node of (@dir, @name), borrowed, or NULL. */
struct gnode *gnode_find(struct gtable *t, const struct gnode *dir, const char *name);
/* The guest has @a at (@dir, @name): its node, kept or fresh. *ret carries a reference of the caller's.
 * Errors: -ENOMEM; -ENFILE too many nodes; -ENOENT @dir itself is gone meanwhile. */
int gnode_take(struct gtable *t, struct gnode *dir, const char *name, const struct gattr *a,
	       const struct cfs_node_ops *ops, struct gnode **ret);
/* The guest has nothing at (@dir, @name): detach what was there. */
void gnode_gone(struct gtable *t, const struct gnode *dir, const char *name);
/* ops->free: both counts are 0. */
void gnode_free(struct gtable *t, struct gnode *n);

/* Has it lost its path: is it, or anything above it, detached? */
bool gnode_dead(const struct gnode *n);
/* The path from the guest's root of @n, or of @name in it (NULL: of @n itself), as the agent wants it.
 * Errors: -ESTALE dead; -ENAMETOOLONG longer than AG_PATH_MAX. */
int gnode_path(const struct gnode *n, const char *name, char out[AG_PATH_MAX + 1], size_t *ret_len);
/* A number that tells the paths of @name in @dir apart; the same after a restart. */
uint64_t gnode_path_hash(const struct gnode *dir, const char *name);

/* May the kernel's rename be tried? @flags: RENAME_NOREPLACE, RENAME_EXCHANGE. Errors: -EXDEV another depth and a
 * directory (or perhaps one); -EINVAL flags, or into itself; -ESTALE the source is not known. */
int gnode_rename_check(struct gtable *t, const struct gnode *dir, const char *name, const struct gnode *newdir,
		       const char *newname, unsigned flags);
/* The guest has done it. Never fails: a node that cannot follow is detached. */
void gnode_renamed(struct gtable *t, struct gnode *dir, const char *name, struct gnode *newdir, const char *newname,
		   unsigned flags);

#endif
