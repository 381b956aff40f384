/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the guest's files.
 *
 * The page cache is on (a shared mmap needs it) and is dropped at every open, so what a new descriptor reads is what
 * the guest has now; for descriptors that stay open the kernel compares size and mtime before each read. O_APPEND is
 * the exception: the guest's kernel puts the bytes at the end, wherever the host believes that to be, so such
 * descriptors pass the page cache by. */
#include "cruciblefs/guestfs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* -- open files ------------------------------------------------------------------------------- */

int gfile_check(const struct gfile *f)
{
	struct guestfs *fs = f->n->fs;

	return sandbox_gone(fs->s) || (f->kind == GFILE_FILE && f->epoch != sandbox_fs_epoch(fs->s)) ? -ESTALE : 0;
}

struct gfile *gfile_any(const struct gnode *n)
{
	struct gfile *f = n->files;

	while (f && gfile_check(f) < 0)
		f = f->next;
	return f;
}

void gfile_release_handle(struct guestfs *fs, uint32_t handle)
{
	struct cfs_who owner = sandbox_owner(fs->s);
	struct buf b;

	/* Nobody waits for the answer; what cannot be sent now belongs to a guest that is gone. */
	buf_init(&b, sizeof(handle));
	if (wire_put_u32(&b, handle) == 0)
		sandbox_fs(fs->s, AG_FS_RELEASE, b.data, b.len, &owner, NULL, NULL, NULL);
	buf_fini(&b);
}

static void link_file(struct gfile *f, struct gnode *n)
{
	f->n = n;
	f->next = n->files;
	if (n->files)
		n->files->prev = f;
	n->files = f;
	n->fs->nopen++;
}

static void unlink_file(struct gfile *f)
{
	*(f->prev ? &f->prev->next : &f->n->files) = f->next;
	if (f->next)
		f->next->prev = f->prev;
	f->n->fs->nopen--;
}

void guest_release(struct cfs_handle *h)
{
	struct gfile *f = gfile_of(h);

	if (f->kind == GFILE_DIR) {
		gdir_release(f);
		return;
	}
	if (f->kind == GFILE_FILE) {
		unlink_file(f);
		if (gfile_check(f) == 0)
			gfile_release_handle(f->n->fs, f->handle);
	}
	free(f);
}

static unsigned reply_flags(const struct gfile *f)
{
	return f->kind == GFILE_EMPTY || f->append ? CFS_OPEN_DIRECT : 0;
}

/* Make the open file of @n that has @handle in the guest. On failure the handle is given back. */
static int new_file(struct cfs_req *r, struct gnode *n, uint32_t handle, int flags, struct gfile **ret)
{
	struct gfile *f = calloc(1, sizeof(*f));
	int code = f ? cfs_handle_open(r, &f->h, &n->node, flags) : -ENOMEM;

	if (code < 0) {
		free(f);
		gfile_release_handle(n->fs, handle);
		return code;
	}
	f->kind = GFILE_FILE;
	f->append = flags & O_APPEND;
	f->handle = handle;
	f->epoch = sandbox_fs_epoch(n->fs->s);
	link_file(f, n);
	*ret = f;
	return 0;
}

/* -- open ------------------------------------------------------------------------------------- */

struct open_op {
	struct gop op;
	struct gnode *n; /* of create: the directory */
	int flags;
	mode_t mode;
	char name[AG_NAME_MAX + 1];
};

static uint32_t wire_flags(const struct open_op *o)
{
	return (uint32_t)o->flags & (O_ACCMODE | O_TRUNC | O_APPEND | O_CREAT | O_EXCL);
}

static int send_open(struct gop *op)
{
	struct open_op *o = (struct open_op *)op;
	struct buf *b = gop_msg(op);
	int r = gmsg_path(b, o->n, NULL);

	if (r == 0)
		r = wire_put_u32(b, wire_flags(o) & ~(uint32_t)(O_CREAT | O_EXCL));
	return r < 0 ? r : gop_call(op, 0, AG_FS_OPEN);
}

static void open_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct open_op *o = (struct open_op *)op;
	struct gattr a;
	struct gfile *f;
	uint32_t handle;

	(void)i;
	if (code == 0)
		code = greply_open(r, &handle, &a);
	/* Another file stands there than LOOKUP told of. While the old one is open here, the two must not share pages:
	 * ESTALE makes the kernel look the path up again, which gives the new one its own node. Without open files the
	 * node may as well become the new file's, and so this never happens twice in a row. */
	if (code == 0 && a.ino != o->n->ino && o->n->files) {
		gfile_release_handle(op->fs, handle);
		code = -ESTALE;
	}
	if (code == 0) {
		o->n->ino = a.ino;
		code = new_file(op->r, o->n, handle, o->flags, &f);
	}
	if (code != 0)
		gop_fail(op, code);
	else
		cfs_reply_open(op->r, &f->h, reply_flags(f));
}

/* A FIFO, a socket, a device: an empty file that nobody may write to. The guest is not asked. */
static void open_empty(struct cfs_req *r, struct gnode *n, int flags)
{
	struct gfile *f = NULL;
	int code = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) ? -EPERM : 0;

	if (code == 0) {
		f = calloc(1, sizeof(*f));
		code = f ? cfs_handle_open(r, &f->h, &n->node, flags) : -ENOMEM;
	}
	if (code < 0) {
		free(f);
		cfs_reply_err(r, code);
		return;
	}
	f->kind = GFILE_EMPTY;
	f->n = n;
	cfs_reply_open(r, &f->h, reply_flags(f));
}

static struct open_op *open_op(struct cfs_req *r, struct gnode *n, int flags, gop_send_fn *send, gop_done_fn *done)
{
	struct open_op *o;

	if (n->fs->nopen >= GFS_OPEN_MAX) {
		cfs_reply_err(r, -ENFILE);
		return NULL;
	}
	o = gop_new(r, n->fs, sizeof(*o), send, done);
	if (!o)
		return NULL;
	o->n = n;
	o->flags = flags;
	return o;
}

void guest_open(struct cfs_req *r, struct cfs_node *cn, int flags)
{
	struct gnode *n = gnode_of(cn);
	struct open_op *o;

	if (n->type != S_IFREG) {
		open_empty(r, n, flags);
		return;
	}
	o = open_op(r, n, flags, send_open, open_done);
	if (o)
		gop_start(&o->op);
}

/* -- create ----------------------------------------------------------------------------------- */

static int send_create(struct gop *op)
{
	struct open_op *o = (struct open_op *)op;
	struct buf *b = gop_msg(op);
	int r = gmsg_path(b, o->n, o->name);

	if (r == 0)
		r = wire_put_u32(b, wire_flags(o));
	if (r == 0)
		r = wire_put_u32(b, o->mode);
	return r < 0 ? r : gop_call(op, 0, AG_FS_CREATE);
}

static void create_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct open_op *o = (struct open_op *)op;
	struct gnode *n = NULL;
	struct gattr a;
	struct gfile *f;
	struct stat st;
	uint32_t handle;

	(void)i;
	if (code == 0)
		code = greply_open(r, &handle, &a);
	if (code != 0) {
		gop_fail(op, code);
		return;
	}
	code = gnode_take(&op->fs->table, o->n, o->name, &a, &guest_ops, &n);
	if (code < 0)
		gfile_release_handle(op->fs, handle);
	else
		code = new_file(op->r, n, handle, o->flags, &f);
	if (code < 0) {
		gop_fail(op, code);
	} else {
		gstat_node(n, &a, &st);
		cfs_reply_create(op->r, &n->node, &st, 0, 0, &f->h, reply_flags(f));
	}
	if (n)
		cfs_node_unref(&n->node);
}

void guest_create(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode, int flags)
{
	struct open_op *o = open_op(r, gnode_of(dir), flags, send_create, create_done);

	if (!o)
		return;
	o->mode = mode & 07777;
	strncpy(o->name, name, AG_NAME_MAX);
	gop_start(&o->op);
}
