/* SPDX-License-Identifier: Apache-2.0 */
/* libfuse's table: each function has the nodes and the handle of its request found (begin.c) and calls the node's own
 * function; what a node has no function for is answered as node.h promises. ENOSYS is never answered: the kernel would
 * stop asking for every other node. */
#include "cruciblefs/session_priv.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>

static void end(struct cfs_req *r, bool has_function, int code)
{
	if (!has_function)
		cfs_reply_err(r, code);
	req_leave(r);
}

/* -- names -------------------------------------------------------------------------------------- */

static void ll_lookup(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct cfs_req *r = req_begin_name(fr, parent, name, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->lookup)
		r->node->ops->lookup(r, r->node, name);
	end(r, r->node->ops->lookup, -ENOENT);
}

static void ll_forget(fuse_req_t fr, fuse_ino_t ino, uint64_t nlookup)
{
	node_forget(fuse_req_userdata(fr), ino, nlookup);
	fuse_reply_none(fr);
}

static void ll_forget_multi(fuse_req_t fr, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		node_forget(fuse_req_userdata(fr), forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(fr);
}

static void ll_mknod(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct cfs_req *r = req_begin_name(fr, parent, name, CFS_ACCESS_NAMES);

	if (!r)
		return;
	if (r->node->ops->mknod)
		r->node->ops->mknod(r, r->node, name, mode, rdev);
	end(r, r->node->ops->mknod, -EPERM);
}

static void ll_mkdir(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct cfs_req *r = req_begin_name(fr, parent, name, CFS_ACCESS_NAMES);

	if (!r)
		return;
	if (r->node->ops->mkdir)
		r->node->ops->mkdir(r, r->node, name, mode);
	end(r, r->node->ops->mkdir, -EPERM);
}

static void ll_symlink(fuse_req_t fr, const char *target, fuse_ino_t parent, const char *name)
{
	struct cfs_req *r = req_begin_name(fr, parent, name, CFS_ACCESS_NAMES);

	if (!r)
		return;
	if (r->node->ops->symlink)
		r->node->ops->symlink(r, r->node, name, target);
	end(r, r->node->ops->symlink, -EPERM);
}

static void ll_unlink(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct cfs_req *r = req_begin_name(fr, parent, name, CFS_ACCESS_NAMES);

	if (!r)
		return;
	if (r->node->ops->unlink)
		r->node->ops->unlink(r, r->node, name);
	end(r, r->node->ops->unlink, -EPERM);
}

static void ll_rmdir(fuse_req_t fr, fuse_ino_t parent, const char *name)
{
	struct cfs_req *r = req_begin_name(fr, parent, name, CFS_ACCESS_NAMES);

	if (!r)
		return;
	if (r->node->ops->rmdir)
		r->node->ops->rmdir(r, r->node, name);
	end(r, r->node->ops->rmdir, -EPERM);
}

static void ll_rename(fuse_req_t fr, fuse_ino_t parent, const char *name, fuse_ino_t newparent, const char *newname,
		      unsigned flags)
{
	struct cfs_req *r = req_begin_two(fr, parent, name, newparent, newname);

	if (!r)
		return;
	if (r->node->ops->rename)
		r->node->ops->rename(r, r->node, name, r->node2, newname, flags);
	end(r, r->node->ops->rename, -EPERM);
}

static void ll_link(fuse_req_t fr, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	struct cfs_req *r = req_begin_two(fr, newparent, newname, ino, NULL);

	if (!r)
		return;
	if (r->node->ops->link)
		r->node->ops->link(r, r->node2, r->node, newname);
	end(r, r->node->ops->link, -EPERM);
}

/* -- attributes --------------------------------------------------------------------------------- */

static void ll_getattr(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct cfs_req *r = fi ? req_begin_open(fr, ino, fi->fh, CFS_ACCESS_LOOK) : req_begin(fr, ino, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->getattr)
		r->node->ops->getattr(r, r->node, r->h);
	end(r, r->node->ops->getattr, -EIO);
}

static void ll_setattr(fuse_req_t fr, fuse_ino_t ino, struct stat *st, int valid, struct fuse_file_info *fi)
{
	unsigned access = valid & FUSE_SET_ATTR_SIZE ? CFS_ACCESS_WRITE : CFS_ACCESS_LOOK;
	struct cfs_req *r = fi ? req_begin_open(fr, ino, fi->fh, access) : req_begin(fr, ino, access);

	if (!r)
		return;
	if (r->node->ops->setattr)
		r->node->ops->setattr(r, r->node, r->h, st, valid);
	end(r, r->node->ops->setattr, -EPERM);
}

static void ll_readlink(fuse_req_t fr, fuse_ino_t ino)
{
	struct cfs_req *r = req_begin(fr, ino, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->readlink)
		r->node->ops->readlink(r, r->node);
	end(r, r->node->ops->readlink, -EINVAL);
}

static void ll_statfs(fuse_req_t fr, fuse_ino_t ino)
{
	static const struct statvfs none = { .f_bsize = 4096, .f_frsize = 4096, .f_namemax = REQ_NAME_MAX };
	struct cfs_req *r = req_begin(fr, ino, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->statfs)
		r->node->ops->statfs(r, r->node);
	else
		cfs_reply_statfs(r, &none);
	req_leave(r);
}

static void ll_setxattr(fuse_req_t fr, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
	struct cfs_req *r = req_begin(fr, ino, CFS_ACCESS_WRITE);

	if (!r)
		return;
	if (r->node->ops->setxattr)
		r->node->ops->setxattr(r, r->node, name, value, size, flags);
	end(r, r->node->ops->setxattr, -EOPNOTSUPP);
}

static void ll_getxattr(fuse_req_t fr, fuse_ino_t ino, const char *name, size_t size)
{
	struct cfs_req *r = req_begin(fr, ino, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->getxattr)
		r->node->ops->getxattr(r, r->node, name, size);
	end(r, r->node->ops->getxattr, -EOPNOTSUPP);
}

static void ll_listxattr(fuse_req_t fr, fuse_ino_t ino, size_t size)
{
	struct cfs_req *r = req_begin(fr, ino, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->listxattr)
		r->node->ops->listxattr(r, r->node, size);
	else
		cfs_reply_xattr(r, "", 0, size);
	req_leave(r);
}

static void ll_removexattr(fuse_req_t fr, fuse_ino_t ino, const char *name)
{
	struct cfs_req *r = req_begin(fr, ino, CFS_ACCESS_WRITE);

	if (!r)
		return;
	if (r->node->ops->removexattr)
		r->node->ops->removexattr(r, r->node, name);
	end(r, r->node->ops->removexattr, -EOPNOTSUPP);
}

/* -- open files ---------------------------------------------------------------------------------- */

/* What an open asks for. O_TRUNC changes, whatever it is opened for. */
static unsigned access_of(int flags)
{
	unsigned access = (flags & O_ACCMODE) == O_WRONLY ? 0 : CFS_ACCESS_READ;

	return (flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC) ? access : access | CFS_ACCESS_WRITE;
}

static void ll_open(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin(fr, ino, access_of(fi->flags));

	if (!r)
		return;
	if (r->node->ops->open)
		r->node->ops->open(r, r->node, fi->flags);
	end(r, r->node->ops->open, -EPERM);
}

static void ll_create(fuse_req_t fr, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_name(fr, parent, name, CFS_ACCESS_NAMES);

	if (!r)
		return;
	if (r->node->ops->create)
		r->node->ops->create(r, r->node, name, mode, fi->flags);
	end(r, r->node->ops->create, -EPERM);
}

static void ll_read(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_open(fr, ino, fi->fh, CFS_ACCESS_READ);

	if (!r)
		return;
	r->h->flags = fi->flags;
	if (off < 0)
		cfs_reply_err(r, -EINVAL);
	else if (r->node->ops->read)
		r->node->ops->read(r, r->node, r->h, size, (uint64_t)off);
	end(r, r->node->ops->read, -EBADF);
}

static void ll_write(fuse_req_t fr, fuse_ino_t ino, const char *data, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_open(fr, ino, fi->fh, CFS_ACCESS_WRITE);

	if (!r)
		return;
	/* A write-back of a mapping comes with a handle of the kernel's choice, whose flags are not the writer's. */
	if (!fi->writepage)
		r->h->flags = fi->flags;
	if (off < 0)
		cfs_reply_err(r, -EINVAL);
	else if (r->node->ops->write)
		r->node->ops->write(r, r->node, r->h, data, size, (uint64_t)off);
	end(r, r->node->ops->write, -EBADF);
}

static void ll_flush(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_open(fr, ino, fi->fh, 0);

	if (!r)
		return;
	if (r->node->ops->flush)
		r->node->ops->flush(r, r->node, r->h);
	end(r, r->node->ops->flush, 0);
}

static void ll_release(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_release(fr, ino, fi->fh);

	if (!r)
		return;
	cfs_handle_close(r->cs, r->h); /* released when the pin of this request goes, in req_leave() */
	end(r, false, 0);
}

static void ll_fsync(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_open(fr, ino, fi->fh, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->fsync)
		r->node->ops->fsync(r, r->node, r->h, datasync);
	end(r, r->node->ops->fsync, 0);
}

static void ll_fallocate(fuse_req_t fr, fuse_ino_t ino, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_open(fr, ino, fi->fh, CFS_ACCESS_WRITE);

	if (!r)
		return;
	if (off < 0 || len <= 0)
		cfs_reply_err(r, -EINVAL);
	else if (r->node->ops->fallocate)
		r->node->ops->fallocate(r, r->node, r->h, mode, (uint64_t)off, (uint64_t)len);
	end(r, r->node->ops->fallocate, -EOPNOTSUPP);
}

static void ll_lseek(fuse_req_t fr, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_open(fr, ino, fi->fh, CFS_ACCESS_READ);

	if (!r)
		return;
	if (off < 0)
		cfs_reply_err(r, -ENXIO);
	else if (r->node->ops->lseek)
		r->node->ops->lseek(r, r->node, r->h, (uint64_t)off, whence);
	end(r, r->node->ops->lseek, -EINVAL);
}

static void ll_poll(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi, struct fuse_pollhandle *ph)
{
	struct cfs_req *r = req_begin_open(fr, ino, fi->fh, CFS_ACCESS_LOOK);

	if (!r) {
		if (ph)
			fuse_pollhandle_destroy(ph);
		return;
	}
	poll_request(r, r->h, ph);
	req_leave(r);
}

/* -- directories ---------------------------------------------------------------------------------- */

static void ll_opendir(fuse_req_t fr, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin(fr, ino, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->opendir)
		r->node->ops->opendir(r, r->node, fi->flags);
	end(r, r->node->ops->opendir, -ENOTDIR);
}

static void list(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, uint64_t fh, bool plus)
{
	struct cfs_req *r = req_begin_open(fr, ino, fh, CFS_ACCESS_LOOK);
	const struct cfs_node_ops *ops;

	if (!r)
		return;
	ops = r->node->ops;
	r->plus = plus;
	if (off < 0)
		cfs_reply_err(r, -EINVAL);
	else if (plus && ops->readdirplus)
		ops->readdirplus(r, r->node, r->h, size, (uint64_t)off);
	else if (ops->readdir)
		ops->readdir(r, r->node, r->h, size, (uint64_t)off);
	end(r, ops->readdir, -ENOTDIR);
}

static void ll_readdir(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(fr, ino, size, off, fi->fh, false);
}

static void ll_readdirplus(fuse_req_t fr, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	list(fr, ino, size, off, fi->fh, true);
}

static void ll_fsyncdir(fuse_req_t fr, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct cfs_req *r = req_begin_open(fr, ino, fi->fh, CFS_ACCESS_LOOK);

	if (!r)
		return;
	if (r->node->ops->fsyncdir)
		r->node->ops->fsyncdir(r, r->node, r->h, datasync);
	end(r, r->node->ops->fsyncdir, 0);
}

/* -- the connection ------------------------------------------------------------------------------- */

static void ll_init(void *userdata, struct fuse_conn_info *conn)
{
	struct cfs_session *cs = userdata;

	/* RELEASE is a background request: with the default of 12 a hung guest's reads would hold other people's
	 * commands back. */
	conn->max_background = 65535;
	conn->congestion_threshold = 65535;
	/* A read then waits in its reader instead of in the background. */
	conn->want &= ~(unsigned)FUSE_CAP_ASYNC_READ;
	conn->time_gran = 1;
	cs->parallel_dirops = conn->capable & FUSE_CAP_PARALLEL_DIROPS;
	cs->init_answer = true;
}

const struct fuse_lowlevel_ops cfs_lowlevel_ops = {
	.init = ll_init,
	.lookup = ll_lookup,
	.forget = ll_forget,
	.forget_multi = ll_forget_multi,
	.getattr = ll_getattr,
	.setattr = ll_setattr,
	.readlink = ll_readlink,
	.mknod = ll_mknod,
	.mkdir = ll_mkdir,
	.unlink = ll_unlink,
	.rmdir = ll_rmdir,
	.symlink = ll_symlink,
	.rename = ll_rename,
	.link = ll_link,
	.open = ll_open,
	.create = ll_create,
	.read = ll_read,
	.write = ll_write,
	.flush = ll_flush,
	.release = ll_release,
	.fsync = ll_fsync,
	.opendir = ll_opendir,
	.readdir = ll_readdir,
	.readdirplus = ll_readdirplus,
	.releasedir = ll_release,
	.fsyncdir = ll_fsyncdir,
	.statfs = ll_statfs,
	.setxattr = ll_setxattr,
	.getxattr = ll_getxattr,
	.listxattr = ll_listxattr,
	.removexattr = ll_removexattr,
	.poll = ll_poll,
	.fallocate = ll_fallocate,
	.lseek = ll_lseek,
};
