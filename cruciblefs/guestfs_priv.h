/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of guestfs share: guestfs.c (roots), guestcall.c (requests that wait for the guest), guestattr.c
 * (attributes, links), guestname.c (names in directories), guestdir.c (readdir), guestopen.c and guestio.c (files),
 * guestxattr.c. The pure parts have headers of their own. */
#ifndef CRUCIBLE_GUESTFS_PRIV_H
#define CRUCIBLE_GUESTFS_PRIV_H

#include "cruciblefs/guestfs.h"
#include "cruciblefs/guestpath.h"
#include "cruciblefs/guestreply.h"

#define GFS_CALLS_MAX 960u		  /* outstanding calls of one sandbox; more: -EBUSY */
#define GFS_BYTES_MAX (32u * 1024 * 1024) /* held by them; more: -EBUSY */
#define GFS_OPEN_MAX  1024u		  /* files open in one guest, as many as its agent takes; more: -ENFILE */

struct guestfs {	      /* one guest; lives as long as its root node */
	struct guestfs *next; /* of all, see guestfs_root() */
	struct cfs_session *session;
	struct sandbox *s; /* a reference */
	struct gnode root;
	struct gtable table;
	uint64_t salt;		      /* of st_ino */
	struct buf msg;		      /* the request being built */
	uint64_t silent_until_ns;     /* guestcall.c: after a call that timed out; 0: it answers */
	uint64_t unanswered_since_ns; /* the first call sent since the last answer; 0: none */
	unsigned ncalls, nopen;
	size_t nbytes;
};

static inline struct gnode *gnode_of(struct cfs_node *n)
{
	return cfs_container(n, struct gnode, node);
}

extern const struct cfs_node_ops guest_ops;

/* What users see: of @a at the place of @n; of the root, without asking the guest. */
void gstat_node(const struct gnode *n, const struct gattr *a, struct stat *ret);
void gstat_root(const struct guestfs *fs, struct stat *ret);
/* st_ino alone, of @name in @dir. */
uint64_t gstat_ino(const struct gnode *dir, const char *name, uint32_t type, uint64_t ino);

/* -- guestcall.c: a request that waits for the guest ---------------------------------------------------------- */

#define GOP_CALLS_MAX 18u /* 1 MiB, the most that the kernel reads or writes at once, in pieces of AG_FS_IO_MAX */

struct gop;
/* The answer of call @i. Not called again for it; answers the request, or waits for the other calls. */
typedef void gop_done_fn(struct gop *op, unsigned i, int code, struct wire_rd *r);
typedef int gop_send_fn(struct gop *op); /* 0 or -errno */

struct gcall {
	struct gop *op;
	struct fs_call *call; /* NULL: none outstanding */
	size_t bytes;
};

/* First member of what an operation needs until it is answered; memory of the request (cfs_req_data). The request holds
 * its nodes and its handle, so they outlive this. */
struct gop {
	struct cfs_req *r;
	struct guestfs *fs;
	gop_send_fn *send; /* makes the calls; again when a rename has overtaken them */
	gop_done_fn *done;
	void (*interrupted)(struct gop *op); /* may answer (a short count); may be NULL */
	uint64_t renames;		     /* the table's, when the calls were sent */
	bool retried;
	struct gcall call[GOP_CALLS_MAX];
};

/* An operation of @size bytes, zeroed but for the struct gop. NULL: no memory; the request has been answered. */
void *gop_new(struct cfs_req *r, struct guestfs *fs, size_t size, gop_send_fn *send, gop_done_fn *done);
/* When the operation's own fields are set: park the request and send. Answers on failure. */
void gop_start(struct gop *op);

/* The message to fill; then gop_call(). Valid until the next gop_msg(). */
struct buf *gop_msg(struct gop *op);
int gop_call(struct gop *op, unsigned i, uint8_t ag_op); /* 0, -EBUSY, -ENOTCONN … of sandbox_fs(), -ENOMEM */

/* Before a good answer while calls may be outstanding: they are not wanted. */
void gop_drop_calls(struct gop *op);
void gop_fail(struct gop *op, int code); /* drops the calls and answers */

/* Add the path of @n (or of @name in it) to a message. Errors: of gnode_path(), -ENOMEM. */
int gmsg_path(struct buf *b, const struct gnode *n, const char *name);

/* -- guestname.c --------------------------------------------------------------------------------------------- */
void guest_lookup(struct cfs_req *r, struct cfs_node *dir, const char *name);
void guest_mknod(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode, dev_t rdev);
void guest_mkdir(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode);
void guest_symlink(struct cfs_req *r, struct cfs_node *dir, const char *name, const char *target);
void guest_link(struct cfs_req *r, struct cfs_node *n, struct cfs_node *dir, const char *name);
void guest_unlink(struct cfs_req *r, struct cfs_node *dir, const char *name);
void guest_rmdir(struct cfs_req *r, struct cfs_node *dir, const char *name);
void guest_rename(struct cfs_req *r, struct cfs_node *dir, const char *name, struct cfs_node *newdir,
		  const char *newname, unsigned flags);

/* -- guestattr.c --------------------------------------------------------------------------------------------- */
void guest_getattr(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h);
void guest_setattr(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, const struct stat *st, int valid);
void guest_readlink(struct cfs_req *r, struct cfs_node *n);
void guest_statfs(struct cfs_req *r, struct cfs_node *n);

/* -- guestopen.c, guestio.c ----------------------------------------------------------------------------------- */

/* An open file, or an open directory (guestdir.c): what the session's handle is embedded in. */
enum gfile_kind { GFILE_FILE, GFILE_EMPTY /* a FIFO, socket or device, or nonsense */, GFILE_DIR };
struct gfile {
	struct cfs_handle h;
	enum gfile_kind kind;
	struct gnode *n; /* as h.node */
	/* GFILE_FILE: */
	struct gfile *prev, *next; /* of the node */
	uint32_t handle;	   /* in the guest */
	uint64_t epoch;		   /* of which this handle is */
	bool append;		   /* opened with O_APPEND */
};

static inline struct gfile *gfile_of(struct cfs_handle *h)
{
	return cfs_container(h, struct gfile, h);
}

/* An open file of @n that the guest still knows, or NULL. */
struct gfile *gfile_any(const struct gnode *n);
/* May @f be used? -ESTALE when the guest it was opened in is gone. */
int gfile_check(const struct gfile *f);
/* A handle of the guest that nobody will use. */
void gfile_release_handle(struct guestfs *fs, uint32_t handle);

void guest_open(struct cfs_req *r, struct cfs_node *n, int flags);
void guest_create(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode, int flags);
void guest_release(struct cfs_handle *h);
void guest_read(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, size_t size, uint64_t off);
void guest_write(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, const void *data, size_t size,
		 uint64_t off);
void guest_fsync(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, bool datasync);
void guest_fallocate(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, int mode, uint64_t off, uint64_t len);
void guest_lseek(struct cfs_req *r, struct cfs_node *n, struct cfs_handle *h, uint64_t off, int whence);

/* -- guestdir.c ----------------------------------------------------------------------------------------------- */
void guest_opendir(struct cfs_req *r, struct cfs_node *dir, int flags);
void guest_readdir(struct cfs_req *r, struct cfs_node *dir, struct cfs_handle *h, size_t size, uint64_t off);
void gdir_release(struct gfile *f); /* frees it */

/* -- guestxattr.c ---------------------------------------------------------------------------------------------- */
void guest_setxattr(struct cfs_req *r, struct cfs_node *n, const char *name, const void *value, size_t size, int flags);
void guest_getxattr(struct cfs_req *r, struct cfs_node *n, const char *name, size_t size);
void guest_listxattr(struct cfs_req *r, struct cfs_node *n, size_t size);
void guest_removexattr(struct cfs_req *r, struct cfs_node *n, const char *name);

#endif
