/* SPDX-License-Identifier: Apache-2.0 */
/* File operations on content: open files and extended attributes. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/files_priv.h"
#include "base/fd.h"

#define XATTR_NAME_CAP	256u
#define XATTR_VALUE_MAX (60u * 1024)

/* Looked at before it is opened: opening a device or a FIFO can do something. */
static int check_regular(const struct path *p)
{
	struct stat st;
	int r = stat_at(p, &st);

	if (r < 0)
		return r;
	return S_ISREG(st.st_mode) ? 0 : -EPERM;
}

static int open_handle(struct files *f, const struct path *p, int flags, mode_t mode, struct buf *out)
{
	AUTO_FD fd = openat(p->dir, p->name, flags | OPEN_ALWAYS, mode);
	uint32_t handle;
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EPERM; /* it was exchanged meanwhile */
	r = handle_put(f, &fd, &handle);
	if (r == 0)
		r = wire_put_u32(out, handle);
	return r < 0 ? r : put_stat(out, &st);
}

/* What else a host's open(2) may carry means nothing here and is let pass; what changes how data is written is not. */
#define OPEN_TAKEN (O_ACCMODE | O_TRUNC | O_APPEND)
#define OPEN_IGNORED                                                                               \
	(O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOATIME | O_ASYNC | \
	 0100000 /* O_LARGEFILE */)

int fs_op_open(struct files *f, struct wire_rd *r, struct buf *out)
{
	AUTO_PATH p;
	uint32_t flags;
	int e;

	path_get(r, &p);
	flags = wire_u32(r);
	if (flags & ~(uint32_t)(OPEN_TAKEN | OPEN_IGNORED) || (flags & O_ACCMODE) == O_ACCMODE)
		return -EINVAL;
	e = path_at(f, r, &p);
	if (e == 0)
		e = check_regular(&p);
	return e < 0 ? e : open_handle(f, &p, (int)flags & OPEN_TAKEN, 0, out);
}

int fs_op_create(struct files *f, struct wire_rd *r, struct buf *out)
{
	AUTO_PATH p;
	uint32_t flags, mode;
	int e;

	path_get(r, &p);
	flags = wire_u32(r);
	mode = wire_u32(r);
	if (flags & ~(uint32_t)(OPEN_TAKEN | OPEN_IGNORED) || (flags & O_ACCMODE) == O_ACCMODE)
		return -EINVAL;
	e = path_at(f, r, &p);
	if (e < 0)
		return e;
	e = check_regular(&p);
	if (e == 0 && flags & O_EXCL)
		return -EEXIST;
	if (e < 0 && e != -ENOENT)
		return flags & O_EXCL ? -EEXIST : e;
	return open_handle(f, &p, O_CREAT | ((int)flags & (OPEN_TAKEN | O_EXCL)), mode & 07777, out);
}

int fs_op_fgetattr(struct files *f, struct wire_rd *r, struct buf *out)
{
	int fd = handle_at(f, r, wire_u32(r));

	return fd < 0 ? fd : put_attr_of(fd, out);
}

int fs_op_read(struct files *f, struct wire_rd *r, struct buf *out)
{
	uint32_t handle = wire_u32(r), n;
	uint64_t off = wire_u64(r);
	uint8_t *at;
	ssize_t got;
	int fd;

	n = wire_u32(r);
	fd = handle_at(f, r, handle);
	if (fd < 0)
		return fd;
	if (n > AG_FS_IO_MAX || off > INT64_MAX)
		return -EINVAL;
	if (buf_reserve(out, 4 + n, &at) < 0)
		return -ENOMEM;
	do {
		got = pread(fd, at + 4, n, (off_t)off);
	} while (got < 0 && errno == EINTR);
	if (got < 0 && errno == EAGAIN)
		got = 0; /* a file of proc that would wait for news (kmsg): nothing there now */
	if (got < 0)
		return -errno;
	wire_put_u32(out, (uint32_t)got); /* cannot fail: reserved */
	out->len += (size_t)got;
	return 0;
}

int fs_op_write(struct files *f, struct wire_rd *r, struct buf *out)
{
	uint32_t handle = wire_u32(r);
	uint64_t off = wire_u64(r);
	size_t len, done = 0;
	const char *data;
	int fd;

	data = wire_bytes(r, AG_FS_IO_MAX, &len);
	fd = handle_at(f, r, handle);
	if (fd < 0)
		return fd;
	if (off > INT64_MAX - AG_FS_IO_MAX)
		return -EFBIG;
	while (done < len) {
		ssize_t n = pwrite(fd, data + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && done == 0)
			return -errno;
		if (n <= 0)
			break; /* a short count now, the error with the next request */
		done += (size_t)n;
	}
	return wire_put_u32(out, (uint32_t)done);
}

int fs_op_release(struct files *f, struct wire_rd *r, struct buf *out)
{
	uint32_t handle = wire_u32(r);
	int *slot;

	(void)out;
	if (wire_done(r) < 0)
		return -EINVAL;
	slot = handle_slot(f, handle);
	if (!slot)
		return -ESTALE;
	fd_close(slot);
	return 0;
}

int fs_op_fsync(struct files *f, struct wire_rd *r, struct buf *out)
{
	uint32_t handle = wire_u32(r);
	uint8_t datasync = wire_u8(r);
	int fd = handle_at(f, r, handle);

	(void)out;
	if (fd < 0)
		return fd;
	return (datasync ? fdatasync(fd) : fsync(fd)) < 0 ? -errno : 0;
}

int fs_op_fallocate(struct files *f, struct wire_rd *r, struct buf *out)
{
	uint32_t handle = wire_u32(r), mode = wire_u32(r);
	uint64_t off = wire_u64(r), len = wire_u64(r);
	int fd = handle_at(f, r, handle);

	(void)out;
	if (fd < 0)
		return fd;
	if (off > INT64_MAX || len > INT64_MAX)
		return -EINVAL;
	return fallocate(fd, (int)mode, (off_t)off, (off_t)len) < 0 ? -errno : 0;
}

/* -- extended attributes ------------------------------------------------------------ */

static bool is_user_xattr(const char *name)
{
	return strncmp(name, "user.", 5) == 0 && name[5];
}

/* Only regular files and directories can have user.* attributes: for the rest, links among them, *@ret_fd is -1. */
static int open_for_xattr(const struct path *p, int *ret_fd)
{
	struct stat st;
	int r = stat_at(p, &st);

	*ret_fd = -1;
	if (r < 0)
		return r;
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		return 0;
	*ret_fd = openat(p->dir, p->name, O_RDONLY | OPEN_ALWAYS);
	return *ret_fd < 0 ? -errno : 0;
}

/* The arguments "path, name", which two operations end with. */
static int xattr_at(struct files *f, struct wire_rd *r, struct path *p, const char *name, int *ret_fd)
{
	int e = path_at(f, r, p);

	if (e == 0 && !is_user_xattr(name))
		e = -ENOTSUP;
	return e < 0 ? e : open_for_xattr(p, ret_fd);
}

int fs_op_getxattr(struct files *f, struct wire_rd *r, struct buf *out)
{
	char name[XATTR_NAME_CAP], value[XATTR_VALUE_MAX];
	AUTO_FD fd = -1;
	AUTO_PATH p;
	ssize_t n;
	int e;

	path_get(r, &p);
	wire_str(r, name, sizeof(name));
	e = xattr_at(f, r, &p, name, &fd);
	if (e < 0)
		return e;
	if (fd < 0)
		return -ENODATA;
	n = fgetxattr(fd, name, value, sizeof(value));
	return n < 0 ? -errno : wire_put_bytes(out, value, (size_t)n);
}

int fs_op_setxattr(struct files *f, struct wire_rd *r, struct buf *out)
{
	char name[XATTR_NAME_CAP];
	AUTO_FD fd = -1;
	AUTO_PATH p;
	const char *value;
	uint32_t flags;
	size_t len;
	int e;

	(void)out;
	path_get(r, &p);
	wire_str(r, name, sizeof(name));
	value = wire_bytes(r, XATTR_VALUE_MAX, &len);
	flags = wire_u32(r);
	e = xattr_at(f, r, &p, name, &fd);
	if (e < 0)
		return e;
	if (fd < 0)
		return -EPERM;
	return fsetxattr(fd, name, value, len, (int)flags) < 0 ? -errno : 0;
}

int fs_op_listxattr(struct files *f, struct wire_rd *r, struct buf *out)
{
	char names[XATTR_VALUE_MAX];
	size_t kept = 0, len;
	AUTO_FD fd = -1;
	AUTO_PATH p;
	ssize_t n = 0;
	int e;

	path_get(r, &p);
	e = path_at(f, r, &p);
	if (e == 0)
		e = open_for_xattr(&p, &fd);
	if (e < 0)
		return e;
	if (fd >= 0)
		n = flistxattr(fd, names, sizeof(names));
	if (n < 0 && errno != ENOTSUP)
		return -errno;
	for (char *name = names; name < names + n; name += len) {
		len = strlen(name) + 1;
		if (!is_user_xattr(name))
			continue;
		memmove(names + kept, name, len);
		kept += len;
	}
	return wire_put_bytes(out, names, kept);
}

int fs_op_removexattr(struct files *f, struct wire_rd *r, struct buf *out)
{
	char name[XATTR_NAME_CAP];
	AUTO_FD fd = -1;
	AUTO_PATH p;
	int e;

	(void)out;
	path_get(r, &p);
	wire_str(r, name, sizeof(name));
	e = xattr_at(f, r, &p, name, &fd);
	if (e < 0)
		return e;
	if (fd < 0)
		return -ENODATA;
	return fremovexattr(fd, name) < 0 ? -errno : 0;
}
