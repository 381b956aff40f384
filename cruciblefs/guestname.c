/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the guest's directories: looking up, making, removing, renaming. What the guest has done is put into the
 * table of nodes at the moment of the answer, so that the table and the kernel's tree change together (guestpath.h). */
#include "cruciblefs/guestfs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct name_op {
	struct gop op;
	struct gnode *dir, *dir2, *source; /* held by the request */
	uint32_t mode, flags;		   /* flags: of rename */
	uint32_t type;			   /* what the guest is to have made */
	char name[AG_NAME_MAX + 1], name2[AG_NAME_MAX + 1];
	char target[]; /* of a symbolic link */
};

static struct name_op *name_op_sized(struct cfs_req *r, struct cfs_node *dir, const char *name, size_t extra,
				     gop_send_fn *send, gop_done_fn *done)
{
	struct gnode *d = gnode_of(dir);
	struct name_op *o = gop_new(r, d->fs, sizeof(*o) + extra, send, done);

	if (!o)
		return NULL;
	o->dir = d;
	strncpy(o->name, name, AG_NAME_MAX); /* zeroed memory; the session has checked the length */
	return o;
}

static struct name_op *name_op(struct cfs_req *r, struct cfs_node *dir, const char *name, gop_send_fn *send,
			       gop_done_fn *done)
{
	return name_op_sized(r, dir, name, 0, send, done);
}

/* Start a message with the path of the name. */
static int begin(struct name_op *o, struct buf **ret)
{
	*ret = gop_msg(&o->op);
	return gmsg_path(*ret, o->dir, o->name);
}

/* The guest has @a there: tell the kernel. */
static void answer_entry(struct name_op *o, const struct gattr *a)
{
	struct guestfs *fs = o->op.fs;
	struct gnode *n;
	struct stat st;
	int r = gnode_take(&fs->table, o->dir, o->name, a, &guest_ops, &n);

	if (r < 0) {
		gop_fail(&o->op, r);
		return;
	}
	gstat_node(n, a, &st);
	cfs_reply_entry(o->op.r, &n->node, &st, 0, 0);
	cfs_node_unref(&n->node);
}

/* -- lookup ----------------------------------------------------------------------------------- */

static int send_lookup(struct gop *op)
{
	struct buf *b;
	int r = begin((struct name_op *)op, &b);

	return r < 0 ? r : gop_call(op, 0, AG_FS_GETATTR);
}

static void lookup_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct name_op *o = (struct name_op *)op;
	struct gattr a;

	(void)i;
	if (code == 0)
		code = greply_attr(r, &a);
	if (code == 0) {
		answer_entry(o, &a);
		return;
	}
	if (code == -ENOENT)
		gnode_gone(&op->fs->table, o->dir, o->name);
	gop_fail(op, code);
}

void guest_lookup(struct cfs_req *r, struct cfs_node *dir, const char *name)
{
	struct name_op *o = name_op(r, dir, name, send_lookup, lookup_done);

	if (o)
		gop_start(&o->op);
}

/* -- making ----------------------------------------------------------------------------------- */

static void made_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct name_op *o = (struct name_op *)op;
	struct gattr a;

	(void)i;
	if (code == 0)
		code = greply_attr(r, &a);
	if (code == 0 && a.type != o->type)
		code = -EIO;
	if (code < 0)
		gop_fail(op, code);
	else
		answer_entry(o, &a);
}

static int send_mkdir(struct gop *op)
{
	struct name_op *o = (struct name_op *)op;
	struct buf *b;
	int r = begin(o, &b);

	if (r == 0)
		r = wire_put_u32(b, o->mode);
	return r < 0 ? r : gop_call(op, 0, AG_FS_MKDIR);
}

void guest_mkdir(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode)
{
	struct name_op *o = name_op(r, dir, name, send_mkdir, made_done);

	if (!o)
		return;
	o->mode = mode & 07777;
	o->type = S_IFDIR;
	gop_start(&o->op);
}

static int send_symlink(struct gop *op)
{
	struct name_op *o = (struct name_op *)op;
	struct buf *b;
	int r = begin(o, &b);

	if (r == 0)
		r = wire_put_str(b, o->target);
	return r < 0 ? r : gop_call(op, 0, AG_FS_SYMLINK);
}

void guest_symlink(struct cfs_req *r, struct cfs_node *dir, const char *name, const char *target)
{
	size_t len = strlen(target);
	struct name_op *o;

	if (len > GLINK_MAX) {
		cfs_reply_err(r, -ENAMETOOLONG);
		return;
	}
	o = name_op_sized(r, dir, name, len + 1, send_symlink, made_done);
	if (!o)
		return;
	memcpy(o->target, target, len + 1);
	o->type = S_IFLNK;
	gop_start(&o->op);
}

static int send_link(struct gop *op)
{
	struct name_op *o = (struct name_op *)op;
	struct buf *b = gop_msg(op);
	int r = gmsg_path(b, o->source, NULL);

	if (r == 0)
		r = gmsg_path(b, o->dir, o->name);
	return r < 0 ? r : gop_call(op, 0, AG_FS_LINK);
}

/* The new name gets a node of its own, as every path does. */
void guest_link(struct cfs_req *r, struct cfs_node *n, struct cfs_node *dir, const char *name)
{
	struct name_op *o;

	if (gnode_of(n)->fs != gnode_of(dir)->fs) {
		cfs_reply_err(r, -EXDEV);
		return;
	}
	o = name_op(r, dir, name, send_link, made_done);
	if (!o)
		return;
	o->source = gnode_of(n);
	o->type = o->source->type;
	gop_start(&o->op);
}

/* mknod(2) of a regular file: created, and its handle given back at once. */
static int send_mknod(struct gop *op)
{
	struct name_op *o = (struct name_op *)op;
	struct buf *b;
	int r = begin(o, &b);

	if (r == 0)
		r = wire_put_u32(b, O_WRONLY | O_CREAT | O_EXCL);
	if (r == 0)
		r = wire_put_u32(b, o->mode);
	return r < 0 ? r : gop_call(op, 0, AG_FS_CREATE);
}

static void mknod_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct gattr a;
	uint32_t handle;

	(void)i;
	if (code == 0)
		code = greply_open(r, &handle, &a);
	if (code != 0) {
		gop_fail(op, code);
		return;
	}
	gfile_release_handle(op->fs, handle);
	answer_entry((struct name_op *)op, &a);
}

void guest_mknod(struct cfs_req *r, struct cfs_node *dir, const char *name, mode_t mode, dev_t rdev)
{
	struct name_op *o;

	(void)rdev;
	if (!S_ISREG(mode)) { /* it would show as something else than was asked for */
		cfs_reply_err(r, -EPERM);
		return;
	}
	o = name_op(r, dir, name, send_mknod, mknod_done);
	if (!o)
		return;
	o->mode = mode & 07777;
	gop_start(&o->op);
}

/* -- removing --------------------------------------------------------------------------------- */

static int send_unlink(struct gop *op)
{
	struct buf *b;
	int r = begin((struct name_op *)op, &b);

	return r < 0 ? r : gop_call(op, 0, AG_FS_UNLINK);
}

static int send_rmdir(struct gop *op)
{
	struct buf *b;
	int r = begin((struct name_op *)op, &b);

	return r < 0 ? r : gop_call(op, 0, AG_FS_RMDIR);
}

static void removed_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct name_op *o = (struct name_op *)op;

	(void)i;
	if (code == 0)
		code = greply_empty(r);
	if (code == 0 || code == -ENOENT)
		gnode_gone(&op->fs->table, o->dir, o->name);
	cfs_reply_err(op->r, code);
}

void guest_unlink(struct cfs_req *r, struct cfs_node *dir, const char *name)
{
	struct name_op *o = name_op(r, dir, name, send_unlink, removed_done);

	if (o)
		gop_start(&o->op);
}

void guest_rmdir(struct cfs_req *r, struct cfs_node *dir, const char *name)
{
	struct name_op *o = name_op(r, dir, name, send_rmdir, removed_done);

	if (o)
		gop_start(&o->op);
}

/* -- renaming --------------------------------------------------------------------------------- */

static int send_rename(struct gop *op)
{
	struct name_op *o = (struct name_op *)op;
	struct buf *b;
	/* Again at each sending: what was allowed before another rename need not be now. */
	int r = gnode_rename_check(&op->fs->table, o->dir, o->name, o->dir2, o->name2, o->flags);

	if (r == 0)
		r = begin(o, &b);
	if (r == 0)
		r = gmsg_path(b, o->dir2, o->name2);
	if (r == 0)
		r = wire_put_u32(b, o->flags);
	return r < 0 ? r : gop_call(op, 0, AG_FS_RENAME);
}

static void rename_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct name_op *o = (struct name_op *)op;

	(void)i;
	if (code == 0)
		code = greply_empty(r);
	if (code == 0)
		gnode_renamed(&op->fs->table, o->dir, o->name, o->dir2, o->name2, o->flags);
	cfs_reply_err(op->r, code);
}

void guest_rename(struct cfs_req *r, struct cfs_node *dir, const char *name, struct cfs_node *newdir,
		  const char *newname, unsigned flags)
{
	struct name_op *o;

	if (gnode_of(dir)->fs != gnode_of(newdir)->fs) {
		cfs_reply_err(r, -EXDEV);
		return;
	}
	o = name_op(r, dir, name, send_rename, rename_done);
	if (!o)
		return;
	o->dir2 = gnode_of(newdir);
	strncpy(o->name2, newname, AG_NAME_MAX);
	o->flags = flags;
	gop_start(&o->op);
}
