/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes: what the kernel knows by a node id, and what each kind of node does with a request.
 *
 * A node is embedded in the struct of whoever implements it (a table's file, a scratch file, a file of the guest) and
 *has an ops table: one function for each FUSE operation. session.c finds the node (and the handle) of a request and
 *calls the function; the function replies, or parks the request, through session.h. So the table-driven files and the
 *guest's files below `.fs` (guestfs.c) are the same thing to the session.
 *
 * Life of a node:
 *   cfs_node_init()   gets an id. lookups = 0, refs = 1: the caller's.
 *   cfs_reply_entry() and its like (session.h) add one lookup: the kernel knows the node now.
 *   FORGET            takes lookups away.
 *   cfs_node_ref/unref  the implementer's own references (open handles hold one each, a child may hold its parent).
 *   lookups and refs both 0: unused. It may be found and referenced again (by a table of the implementer's) until the
 *loop's next round or the end of the batch of requests; then its id dies and ops->free() is called. An id is a table
 *index and a generation: an id of something that is gone is never taken for something else (ESTALE). Id 1 is the
 *root's.
 *
 * A node belongs to the view through which it was found (view.h), or to the whole tree. Once the view has ended every
 * request on its nodes is ESTALE but FORGET and RELEASE (begin.c), those that wait too. So that the kernel's caches
 * cannot answer in our place, what is seen through a view has no page cache, and nothing of it may be remembered
 * (request.c).
 *
 * Thread: the loop's, for everything here. */
#ifndef CRUCIBLE_NODE_H
#define CRUCIBLE_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

struct view;
struct waitq;
struct cfs_session;
struct cfs_req;	   /* session.h */
struct cfs_handle; /* session.h */
struct cfs_node;

#define cfs_container(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* What a request wants of a node. */
#define CFS_ACCESS_LOOK	 1u /* names, attributes, listing, readiness */
#define CFS_ACCESS_READ	 2u
#define CFS_ACCESS_WRITE 4u
#define CFS_ACCESS_NAMES 8u /* make, remove or rename something in the directory */

/* What a node does. Any pointer may be NULL; then the session answers:
 *   lookup ENOENT (ENOTDIR on what is no directory), the operations that change a directory EPERM, open EPERM, opendir
 * ENOTDIR, readlink EINVAL, setattr EPERM, read and write EBADF, setxattr removexattr EOPNOTSUPP, getxattr EOPNOTSUPP,
 *   listxattr an empty list, fallocate EOPNOTSUPP, lseek EINVAL, flush and fsync and fsyncdir 0, statfs zeros (namemax
 * 255), poll POLLIN|POLLOUT. Never ENOSYS: the kernel would stop asking for every other node too.
 *
 * @r is answered exactly once: inside the function, or later after cfs_park(). Strings and buffers (@name, @data …)
 * die when the function returns: copy what is needed later. A function never blocks. Permissions were checked by the
 * kernel (default_permissions) against what getattr says. Names are never "", "." or "..", hold no '/', and have at
 * most 255 bytes (the session checks that). Nodes and handles given as arguments live at least until the function
 * returns; a parked request holds its nodes and its handle until it is answered. */
struct cfs_node_ops {
	/* Does a policy forbid the request's caller @access (CFS_ACCESS_…)? 0 or -errno, which is then the answer.
	 * Asked before any function but release and flush, so also under open descriptors. NULL: nothing is forbidden.
	 */
	int (*may)(struct cfs_req *r, struct cfs_node *n, unsigned access);

	/* Both counts have become 0, or the session ends (the root's comes last): free the struct around @n. Called
	 * from the loop, never inside another function of this table. */
	void (*free)(struct cfs_node *n);

	void (*lookup)(struct cfs_req *r, struct cfs_node *dir, const char *name); /* cfs_reply_entry */
	void (*getattr)(struct cfs_req *r, struct cfs_node *n,
			struct cfs_handle *h); /* h: NULL nearly always; cfs_reply_attr */
	/* @valid: FUSE_SET_ATTR_* bits; @h NULL when by path. cfs_reply_attr */
	void (*setattr)(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, const struct stat *st, int valid);
	void (*readlink)(struct cfs_req *r, struct cfs_node *n); /* cfs_reply_readlink */

	void (*mknod)(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode,
		      dev_t rdev);							       /* cfs_reply_entry */
	void (*mkdir)(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode); /* cfs_reply_entry */
	void (*symlink)(struct cfs_req *r, struct cfs_node *dir, const char *name,
			const char *target); /* cfs_reply_entry */
	void (*link)(struct cfs_req *r, struct cfs_node *n, struct cfs_node *dir,
		     const char *name);						   /* same ops on both, else EXDEV */
	void (*unlink)(struct cfs_req *r, struct cfs_node *dir, const char *name); /* cfs_reply_err(0) */
	void (*rmdir)(struct cfs_req *r, struct cfs_node *dir, const char *name);
	void (*rename)(struct cfs_req *r, struct cfs_node *dir, const char *name, struct cfs_node *newdir,
		       const char *newname,
		       unsigned flags); /* same ops on both directories, else the session says EXDEV */

	/* Open: make a handle (cfs_handle_open), cfs_reply_open. @flags: open(2)'s; O_TRUNC comes here (no setattr
	 * follows). */
	void (*open)(struct cfs_req *r, struct cfs_node *n, int flags);
	void (*create)(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode,
		       int flags); /* cfs_reply_create */
	void (*read)(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, size_t size,
		     uint64_t off); /* cfs_reply_buf */
	void (*write)(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, const void *data, size_t size,
		      uint64_t off);
	void (*flush)(struct cfs_req *r, struct cfs_node *n,
		      struct cfs_handle *h); /* a close(2) of one of the descriptors; not interruptible */
	void (*fsync)(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, bool datasync);
	void (*fallocate)(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, int mode, uint64_t off,
			  uint64_t len);
	void (*lseek)(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, uint64_t off,
		      int whence); /* SEEK_DATA, SEEK_HOLE */
	/* The last close, of files and directories, also of an open whose caller has gone before it was answered: let
	 * go of what the handle holds and free the struct around it. No request: nobody waits for an answer. */
	void (*release)(struct cfs_handle *h);

	/* What is ready now (POLLIN …), and the queue that is woken when that may change. Both or none. */
	unsigned (*poll)(struct cfs_handle *h);
	struct waitq *(*poll_queue)(struct cfs_handle *h);

	void (*opendir)(struct cfs_req *r, struct cfs_node *dir, int flags);
	/* Fill a struct cfs_dirbuf, cfs_dirbuf_reply. @off: 0, or the @next_off of an entry told before. */
	void (*readdir)(struct cfs_req *r, struct cfs_node *dir, struct cfs_handle *h, size_t size, uint64_t off);
	void (*readdirplus)(struct cfs_req *r, struct cfs_node *dir, struct cfs_handle *h, size_t size,
			    uint64_t off); /* NULL: readdir */
	void (*fsyncdir)(struct cfs_req *r, struct cfs_node *dir, struct cfs_handle *h, bool datasync);

	void (*statfs)(struct cfs_req *r, struct cfs_node *n);
	void (*setxattr)(struct cfs_req *r, struct cfs_node *n, const char *name, const void *value, size_t size,
			 int flags);
	void (*getxattr)(struct cfs_req *r, struct cfs_node *n, const char *name, size_t size); /* cfs_reply_xattr */
	void (*listxattr)(struct cfs_req *r, struct cfs_node *n, size_t size);			/* cfs_reply_xattr */
	void (*removexattr)(struct cfs_req *r, struct cfs_node *n, const char *name);
};

struct cfs_node {
	const struct cfs_node_ops *ops;
	struct cfs_session *session;
	uint64_t id;	   /* what the kernel calls it */
	struct view *view; /* through which it is seen, a reference; NULL: the whole tree */
	uint64_t lookups;  /* times the kernel was told and has not forgotten */
	unsigned refs;	   /* ours */
	uid_t uid;	   /* node.c: whom it is counted for while lookups > 0 */
	bool listed;	   /* node.c: among the unused */
	struct cfs_node *next_unused;
};

/* Give @n an id; lookups 0, refs 1. It takes a reference of @view (NULL: the whole tree), which goes after ops->free().
 * Errors: -ENOMEM, -ENFILE (too many nodes); @n is then as before. */
int cfs_node_init(struct cfs_session *cs, struct cfs_node *n, const struct cfs_node_ops *ops, struct view *view);
struct cfs_node *cfs_node_ref(struct cfs_node *n);
struct cfs_node *cfs_node_unref(struct cfs_node *n); /* NULL is fine; returns NULL; may call ops->free */
/* The node of @id, borrowed; NULL when there is none (any more). */
struct cfs_node *cfs_node_find(struct cfs_session *cs, uint64_t id);
size_t cfs_node_count(struct cfs_session *cs); /* for tests and metrics */

/* An inode number for st_ino that stays the same over lookups and restarts: a 64-bit hash of the texts, never 0 or 1.
 * The texts end with NULL. */
#define cfs_ino(...) cfs_ino_of((const char *const[]){ __VA_ARGS__ })
uint64_t cfs_ino_of(const char *const texts[]);

#endif
