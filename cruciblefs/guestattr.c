/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of the guest's files: what is shown, what is set, where links lead. */
#include "cruciblefs/guestfs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <string.h>

/* -- what is shown ---------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t h = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

/* st_ino. Two names of one file must show the same number, so that cp -a, tar and rsync keep hard links: the guest's
 * number goes in, and nothing of the path. A directory has one name, and the guest has several file systems where we
 * have one: with the guest's number alone /sys and /sys/fs/cgroup would be the same directory, which find(1) calls a
 * loop. */
uint64_t gstat_ino(const struct gnode *dir, const char *name, uint32_t type, uint64_t ino)
{
	uint64_t h = mix(dir->fs->salt, ino);

	if (type == S_IFDIR)
		h = mix(h, gnode_path_hash(dir, name));
	return h > 1 ? h : 2;
}

void gstat_node(const struct gnode *n, const struct gattr *a, struct stat *ret)
{
	struct cfs_who owner = sandbox_owner(n->fs->s);

	*ret = (struct stat){
		.st_ino = gstat_ino(n->parent, n->name, a->type, a->ino),
		.st_mode = (a->type ? a->type : S_IFREG) | a->mode,
		.st_nlink = a->nlink,
		.st_uid = owner.uid,
		.st_gid = owner.gid,
		.st_size = (off_t)a->size,
		.st_blksize = 4096,
		.st_blocks = (blkcnt_t)a->blocks512,
		.st_atim = a->atime,
		.st_mtim = a->mtime,
		.st_ctim = a->ctime,
	};
}

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
}

void gstat_root(const struct guestfs *fs, struct stat *ret)
{
	struct cfs_who owner = sandbox_owner(fs->s);
	struct timespec made = timespec_of(sandbox_created_ns(fs->s));

	*ret = (struct stat){
		.st_ino = fs->salt,
		.st_mode = S_IFDIR | 0700,
		.st_nlink = 1, /* "how many is not known": find(1) then looks into every entry */
		.st_uid = owner.uid,
		.st_gid = owner.gid,
		.st_blksize = 4096,
		.st_atim = made,
		.st_mtim = made,
		.st_ctim = made,
	};
}

/* -- getattr ---------------------------------------------------------------------------------- */

struct attr_op {
	struct gop op;
	struct gnode *n;
	uint32_t handle; /* ask by this one; 0: by path */
	struct gattr a;
	size_t link_len;
	unsigned answers; /* still to come */
	/* of setattr: */
	uint32_t valid, mode, uid, gid;
	uint64_t size;
	struct timespec atime, mtime;
};

enum { CALL_ATTR, CALL_LINK };

static void answer_attr(struct attr_op *o)
{
	struct stat st;

	/* Something else stands at the path by now: let the kernel walk it again. */
	if (o->a.type != o->n->type) {
		gop_fail(&o->op, -ESTALE);
		return;
	}
	/* The length of a link is that of the text we give. */
	if (o->n->type == S_IFLNK)
		o->a.size = o->link_len;
	gstat_node(o->n, &o->a, &st);
	cfs_reply_attr(o->op.r, &st, 0);
}

static int send_getattr(struct gop *op)
{
	struct attr_op *o = (struct attr_op *)op;
	struct buf *b = gop_msg(op);
	int r;

	o->answers = 1;
	if (o->handle) {
		r = wire_put_u32(b, o->handle);
		return r < 0 ? r : gop_call(op, CALL_ATTR, AG_FS_FGETATTR);
	}
	r = gmsg_path(b, o->n, NULL);
	if (r == 0)
		r = gop_call(op, CALL_ATTR, AG_FS_GETATTR);
	if (r == 0 && o->n->type == S_IFLNK) { /* the same message */
		o->answers++;
		r = gop_call(op, CALL_LINK, AG_FS_READLINK);
	}
	return r;
}

/* The text of the link @n, from the agent's answer. The depth is that of its directory (guestlink.h). */
static int take_link(const struct gnode *n, struct wire_rd *r, char text[GLINK_MAX + 1], size_t *ret_len)
{
	struct glink l;
	int code = greply_readlink(r, &l);

	/* Renamed to another depth, or removed, while we asked. */
	if (code == 0 && gnode_dead(n))
		code = -ESTALE;
	return code < 0 ? code : glink_text(&l, n->depth - 1, n->name, text, ret_len);
}

static void getattr_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct attr_op *o = (struct attr_op *)op;
	char text[GLINK_MAX + 1];

	/* The guest's file server was replaced and knows no handle: the path may still do. */
	if (code == -ESTALE && o->handle && !gnode_dead(o->n)) {
		o->handle = 0;
		code = send_getattr(op);
		if (code < 0)
			gop_fail(op, code);
		return;
	}
	if (code == 0)
		code = i == CALL_LINK ? take_link(o->n, r, text, &o->link_len) : greply_attr(r, &o->a);
	if (code == -EINVAL && i == CALL_LINK)
		code = -ESTALE; /* no link any more */
	if (code < 0)
		gop_fail(op, code);
	else if (--o->answers == 0)
		answer_attr(o);
}

static void answer_root(struct cfs_req *r, const struct guestfs *fs)
{
	struct stat st;

	gstat_root(fs, &st);
	cfs_reply_attr(r, &st, 0);
}

/* An open file is asked by its handle: fstat(2) comes here without one, and for a file that was removed or replaced
 * since nothing else is right. When the path shows another file, LOOKUP has given that one a node of its own. */
void guest_getattr(struct cfs_req *r, struct cfs_node *cn, struct cfs_handle *h)
{
	struct gnode *n = gnode_of(cn);
	struct gfile *f = gfile_any(n);
	struct attr_op *o;

	(void)h;
	if (!n->parent) {
		answer_root(r, n->fs);
		return;
	}
	o = gop_new(r, n->fs, sizeof(*o), send_getattr, getattr_done);
	if (!o)
		return;
	o->n = n;
	o->handle = f ? f->handle : 0;
	gop_start(&o->op);
}

/* -- setattr ---------------------------------------------------------------------------------- */

static int send_setattr(struct gop *op)
{
	struct attr_op *o = (struct attr_op *)op;
	struct buf *b = gop_msg(op);
	int r = o->handle ? wire_put_str(b, "") : gmsg_path(b, o->n, NULL);

	if (r == 0)
		r = wire_put_u32(b, o->valid);
	if (r == 0)
		r = wire_put_u32(b, o->mode);
	if (r == 0)
		r = wire_put_u32(b, o->uid);
	if (r == 0)
		r = wire_put_u32(b, o->gid);
	if (r == 0)
		r = wire_put_u64(b, o->size);
	if (r == 0)
		r = wire_put_u64(b, gtime_to_wire(&o->atime));
	if (r == 0)
		r = wire_put_u64(b, gtime_to_wire(&o->mtime));
	if (r == 0)
		r = wire_put_u32(b, o->handle);
	return r < 0 ? r : gop_call(op, CALL_ATTR, AG_FS_SETATTR);
}

static void setattr_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct attr_op *o = (struct attr_op *)op;

	(void)i;
	if (code == 0)
		code = greply_attr(r, &o->a);
	if (code < 0) {
		gop_fail(op, code);
		return;
	}
	if (!o->n->parent) {
		answer_root(op->r, op->fs);
		return;
	}
	o->link_len = o->a.size; /* not asked for: nobody sees it, the timeout is 0 */
	answer_attr(o);
}

static uint32_t valid_to_wire(int valid)
{
	uint32_t v = 0;

	v |= valid & FUSE_SET_ATTR_MODE ? AG_SET_MODE : 0;
	v |= valid & FUSE_SET_ATTR_UID ? AG_SET_UID : 0;
	v |= valid & FUSE_SET_ATTR_GID ? AG_SET_GID : 0;
	v |= valid & FUSE_SET_ATTR_SIZE ? AG_SET_SIZE : 0;
	v |= valid & FUSE_SET_ATTR_ATIME ? AG_SET_ATIME : 0;
	v |= valid & FUSE_SET_ATTR_MTIME ? AG_SET_MTIME : 0;
	v |= valid & FUSE_SET_ATTR_ATIME_NOW ? AG_SET_ATIME | AG_SET_ATIME_NOW : 0;
	v |= valid & FUSE_SET_ATTR_MTIME_NOW ? AG_SET_MTIME | AG_SET_MTIME_NOW : 0;
	return v;
}

/* By which handle to set: the caller's own, or any when there is no path. */
static int pick_handle(const struct gnode *n, struct cfs_handle *h, uint32_t *ret)
{
	struct gfile *f = h ? gfile_of(h) : NULL;
	int r = 0;

	*ret = 0;
	if (f && f->kind == GFILE_FILE)
		r = gfile_check(f);
	else
		f = gnode_dead(n) ? gfile_any(n) : NULL;
	if (r == 0 && f)
		*ret = f->handle;
	return r;
}

void guest_setattr(struct cfs_req *r, struct cfs_node *cn, struct cfs_handle *h, const struct stat *st, int valid)
{
	struct gnode *n = gnode_of(cn);
	struct cfs_who owner = sandbox_owner(n->fs->s);
	uint32_t v = valid_to_wire(valid);
	struct attr_op *o;
	int code = 0;

	if (!n->parent) { /* guestfs.h: the root's mode is the mount's, not the guest's */
		v &= ~AG_SET_MODE;
		if (!v) {
			answer_root(r, n->fs);
			return;
		}
	}
	if ((v & AG_SET_SIZE) && n->type != S_IFREG)
		code = n->type == S_IFDIR ? -EISDIR : -EPERM;
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	o = gop_new(r, n->fs, sizeof(*o), send_setattr, setattr_done);
	if (!o)
		return;
	code = pick_handle(n, h, &o->handle);
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	o->n = n;
	o->valid = v;
	o->mode = st->st_mode & 07777;
	o->uid = st->st_uid == owner.uid ? 0 : st->st_uid;
	o->gid = st->st_gid == owner.gid ? 0 : st->st_gid;
	o->size = (uint64_t)st->st_size;
	o->atime = st->st_atim;
	o->mtime = st->st_mtim;
	gop_start(&o->op);
}

/* -- readlink --------------------------------------------------------------------------------- */

static int send_readlink(struct gop *op)
{
	struct attr_op *o = (struct attr_op *)op;
	int r = gmsg_path(gop_msg(op), o->n, NULL);

	return r < 0 ? r : gop_call(op, CALL_LINK, AG_FS_READLINK);
}

static void readlink_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct attr_op *o = (struct attr_op *)op;
	char text[GLINK_MAX + 1];
	size_t len;

	(void)i;
	if (code == -EINVAL)
		code = -ESTALE; /* no link any more */
	if (code == 0)
		code = take_link(o->n, r, text, &len);
	if (code < 0)
		gop_fail(op, code);
	else
		cfs_reply_readlink(op->r, text);
}

void guest_readlink(struct cfs_req *r, struct cfs_node *cn)
{
	struct gnode *n = gnode_of(cn);
	struct attr_op *o;

	if (n->type != S_IFLNK) {
		cfs_reply_err(r, -EINVAL);
		return;
	}
	o = gop_new(r, n->fs, sizeof(*o), send_readlink, readlink_done);
	if (!o)
		return;
	o->n = n;
	gop_start(&o->op);
}

/* -- statfs ----------------------------------------------------------------------------------- */

static int send_statfs(struct gop *op)
{
	gop_msg(op);
	return gop_call(op, 0, AG_FS_STATFS);
}

static void statfs_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct statvfs v;

	(void)i;
	if (code == 0)
		code = greply_statfs(r, &v);
	if (code < 0)
		gop_fail(op, code);
	else
		cfs_reply_statfs(op->r, &v);
}

void guest_statfs(struct cfs_req *r, struct cfs_node *n)
{
	struct gop *op = gop_new(r, gnode_of(n)->fs, sizeof(*op), send_statfs, statfs_done);

	if (op)
		gop_start(op);
}
