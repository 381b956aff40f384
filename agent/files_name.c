/* SPDX-License-Identifier: Apache-2.0 */
/* File operations on names: attributes, links, directories. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "agent/files_priv.h"
#include "agent/paths.h"
#include "base/fd.h"

int fs_op_getattr(struct files *f, struct wire_rd *r, struct buf *out)
{
	AUTO_PATH p;
	int e;

	path_get(r, &p);
	e = path_at(f, r, &p);
	return e < 0 ? e : put_attr_at(&p, out);
}

static struct timespec ns_time(uint64_t ns)
{
	int64_t sec = (int64_t)ns / 1000000000, rest = (int64_t)ns % 1000000000;

	if (rest < 0) {
		sec--;
		rest += 1000000000;
	}
	return (struct timespec){ .tv_sec = sec, .tv_nsec = rest };
}

struct setattr {
	uint32_t valid, mode, uid, gid, handle;
	uint64_t size, atime_ns, mtime_ns;
};

#define SET_ALL                                                                                                 \
	(AG_SET_MODE | AG_SET_UID | AG_SET_GID | AG_SET_SIZE | AG_SET_ATIME | AG_SET_MTIME | AG_SET_ATIME_NOW | \
	 AG_SET_MTIME_NOW)

static struct timespec set_time(uint32_t valid, uint32_t now, uint32_t given, uint64_t ns)
{
	if (valid & now)
		return (struct timespec){ .tv_nsec = UTIME_NOW };
	if (valid & given)
		return ns_time(ns);
	return (struct timespec){ .tv_nsec = UTIME_OMIT };
}

static bool set_any_time(uint32_t valid)
{
	return valid & (AG_SET_ATIME | AG_SET_MTIME | AG_SET_ATIME_NOW | AG_SET_MTIME_NOW);
}

/* In this order: truncation and change of owner clear set-id bits, which a mode may set again; times come last. */
static int setattr_fd(int fd, const struct setattr *s)
{
	const struct timespec ts[2] = {
		set_time(s->valid, AG_SET_ATIME_NOW, AG_SET_ATIME, s->atime_ns),
		set_time(s->valid, AG_SET_MTIME_NOW, AG_SET_MTIME, s->mtime_ns),
	};

	if (s->valid & AG_SET_SIZE && ftruncate(fd, (off_t)s->size) < 0)
		return -errno;
	if (s->valid & (AG_SET_UID | AG_SET_GID) &&
	    fchown(fd, s->valid & AG_SET_UID ? s->uid : (uid_t)-1, s->valid & AG_SET_GID ? s->gid : (gid_t)-1) < 0)
		return -errno;
	if (s->valid & AG_SET_MODE && fchmod(fd, s->mode & 07777) < 0)
		return -errno;
	if (set_any_time(s->valid) && futimens(fd, ts) < 0)
		return -errno;
	return 0;
}

static int truncate_at(const struct path *p, uint64_t size)
{
	AUTO_FD fd = -1;
	struct stat st;
	int r = stat_at(p, &st);

	if (r < 0)
		return r;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EPERM;
	fd = openat(p->dir, p->name, O_WRONLY | OPEN_ALWAYS);
	if (fd < 0)
		return -errno;
	return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

/* Linux 6.1 has no chmod that does not follow links: through an O_PATH descriptor and proc, as libc does. */
static int chmod_at(struct files *f, const struct path *p, mode_t mode)
{
	AUTO_FD fd = openat(p->dir, p->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	char magic[32];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		return -EOPNOTSUPP;
	snprintf(magic, sizeof(magic), "self/fd/%d", fd);
	return fchmodat(f->proc_fd, magic, mode & 07777, 0) < 0 ? -errno : 0;
}

static int setattr_path(struct files *f, const struct path *p, const struct setattr *s)
{
	const struct timespec ts[2] = {
		set_time(s->valid, AG_SET_ATIME_NOW, AG_SET_ATIME, s->atime_ns),
		set_time(s->valid, AG_SET_MTIME_NOW, AG_SET_MTIME, s->mtime_ns),
	};
	int r = 0;

	if (s->valid & AG_SET_SIZE)
		r = truncate_at(p, s->size);
	if (r == 0 && s->valid & (AG_SET_UID | AG_SET_GID) &&
	    fchownat(p->dir, p->name, s->valid & AG_SET_UID ? s->uid : (uid_t)-1,
		     s->valid & AG_SET_GID ? s->gid : (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r == 0 && s->valid & AG_SET_MODE)
		r = chmod_at(f, p, s->mode);
	if (r == 0 && set_any_time(s->valid) && utimensat(p->dir, p->name, ts, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	return r;
}

int fs_op_setattr(struct files *f, struct wire_rd *r, struct buf *out)
{
	struct setattr s;
	AUTO_PATH p;
	int e, fd;

	path_get(r, &p);
	s.valid = wire_u32(r);
	s.mode = wire_u32(r);
	s.uid = wire_u32(r);
	s.gid = wire_u32(r);
	s.size = wire_u64(r);
	s.atime_ns = wire_u64(r);
	s.mtime_ns = wire_u64(r);
	s.handle = wire_u32(r);
	if (wire_done(r) < 0 || s.valid & ~SET_ALL || s.size > INT64_MAX)
		return -EINVAL;
	if (s.handle) {
		fd = handle_fd(f, s.handle);
		e = fd < 0 ? fd : setattr_fd(fd, &s);
		return e < 0 ? e : put_attr_of(fd, out);
	}
	e = path_at(f, r, &p);
	if (e == 0)
		e = setattr_path(f, &p, &s);
	return e < 0 ? e : put_attr_at(&p, out);
}

int fs_op_readlink(struct files *f, struct wire_rd *r, struct buf *out)
{
	char target[AG_PATH_MAX + 1], resolved[AG_PATH_MAX + 1];
	enum link_state state;
	AUTO_PATH p;
	ssize_t n;
	int e;

	path_get(r, &p);
	e = path_at(f, r, &p);
	if (e < 0)
		return e;
	n = readlinkat(p.dir, p.name, target, sizeof(target));
	if (n < 0)
		return -errno;
	if ((size_t)n == sizeof(target))
		return -ENAMETOOLONG;
	target[n] = '\0';
	e = link_resolve(f->root_fd, p.text, target, resolved, &state);
	if (e < 0)
		return e;
	e = wire_put_bytes(out, target, (size_t)n);
	if (e == 0)
		e = wire_put_str(out, resolved);
	return e < 0 ? e : wire_put_u8(out, (uint8_t)state);
}

int fs_op_mkdir(struct files *f, struct wire_rd *r, struct buf *out)
{
	AUTO_PATH p;
	uint32_t mode;
	int e;

	path_get(r, &p);
	mode = wire_u32(r);
	e = path_at(f, r, &p);
	if (e < 0)
		return e;
	return mkdirat(p.dir, p.name, mode & 07777) < 0 ? -errno : put_attr_at(&p, out);
}

static int remove_at(struct files *f, struct wire_rd *r, int flags)
{
	AUTO_PATH p;
	int e;

	path_get(r, &p);
	e = path_at(f, r, &p);
	if (e < 0)
		return e;
	if (p.text[0] == '\0')
		return -EBUSY; /* the root; its name "." is ours, not the caller's */
	return unlinkat(p.dir, p.name, flags) < 0 ? -errno : 0;
}

int fs_op_unlink(struct files *f, struct wire_rd *r, struct buf *out)
{
	(void)out;
	return remove_at(f, r, 0);
}

int fs_op_rmdir(struct files *f, struct wire_rd *r, struct buf *out)
{
	(void)out;
	return remove_at(f, r, AT_REMOVEDIR);
}

int fs_op_symlink(struct files *f, struct wire_rd *r, struct buf *out)
{
	char target[AG_PATH_MAX + 1];
	AUTO_PATH p;
	int e;

	path_get(r, &p);
	wire_str(r, target, sizeof(target));
	e = path_at(f, r, &p);
	if (e < 0)
		return e;
	return symlinkat(target, p.dir, p.name) < 0 ? -errno : put_attr_at(&p, out);
}

int fs_op_rename(struct files *f, struct wire_rd *r, struct buf *out)
{
	AUTO_PATH from;
	AUTO_PATH to;
	uint32_t flags;
	int e;

	(void)out;
	path_get(r, &from);
	path_get(r, &to);
	flags = wire_u32(r);
	if (flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	e = path_at(f, r, &from);
	if (e == 0)
		e = path_at(f, r, &to);
	if (e < 0)
		return e;
	return renameat2(from.dir, from.name, to.dir, to.name, flags) < 0 ? -errno : 0;
}

int fs_op_link(struct files *f, struct wire_rd *r, struct buf *out)
{
	AUTO_PATH from;
	AUTO_PATH to;
	int e;

	path_get(r, &from);
	path_get(r, &to);
	e = path_at(f, r, &from);
	if (e == 0)
		e = path_at(f, r, &to);
	if (e < 0)
		return e;
	return linkat(from.dir, from.name, to.dir, to.name, 0) < 0 ? -errno : put_attr_at(&to, out);
}

/* -- directories -------------------------------------------------------------------- */

struct kernel_dirent {
	uint64_t ino;
	int64_t next;
	uint16_t len;
	uint8_t type;
	char name[];
};

/* 1 added (or vanished meanwhile), 0 no room. */
static int put_dirent(int dir, const struct kernel_dirent *de, uint32_t max, struct buf *out)
{
	size_t len = strlen(de->name), before = out->len;
	struct stat st;

	if (strcmp(de->name, ".") == 0 || strcmp(de->name, "..") == 0)
		return 1;
	if (fstatat(dir, de->name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return 1;
	if (out->len + 12 + len + AG_ATTR_LEN > max)
		return 0;
	if (wire_put_u64(out, (uint64_t)de->next) < 0 || wire_put_bytes(out, de->name, len) < 0 ||
	    put_stat(out, &st) < 0) {
		out->len = before;
		return 0;
	}
	return 1;
}

/* The entries from the directory's place on. Returns 1 at the end, 0 when @max is reached, -errno. */
static int put_dirents(int dir, uint32_t max, struct buf *out)
{
	union {
		struct kernel_dirent align;
		uint8_t bytes[32 * 1024];
	} raw;
	size_t before = out->len;
	long n;

	while ((n = syscall(SYS_getdents64, dir, raw.bytes, sizeof(raw.bytes))) > 0) {
		for (long at = 0; at < n;) {
			const struct kernel_dirent *de = (const void *)(raw.bytes + at);

			if (!put_dirent(dir, de, max, out))
				return out->len > before ? 0
							 : -EINVAL; /* @max holds not even one: never an endless loop */
			at += de->len;
		}
	}
	return n < 0 ? -errno : 1;
}

int fs_op_readdir(struct files *f, struct wire_rd *r, struct buf *out)
{
	AUTO_FD dir = -1;
	AUTO_PATH p;
	uint64_t cookie;
	uint32_t max;
	size_t end_at;
	int e;

	path_get(r, &p);
	cookie = wire_u64(r);
	max = wire_u32(r);
	e = path_at(f, r, &p);
	if (e < 0)
		return e;
	if (cookie > INT64_MAX)
		return -EINVAL;
	if (max > AG_PAYLOAD_MAX)
		max = AG_PAYLOAD_MAX;
	dir = openat(p.dir, p.name, O_RDONLY | O_DIRECTORY | OPEN_ALWAYS);
	if (dir < 0)
		return -errno;
	if (cookie && lseek(dir, (off_t)cookie, SEEK_SET) < 0)
		return -errno;
	end_at = out->len;
	e = wire_put_u8(out, 0);
	if (e == 0)
		e = put_dirents(dir, max, out);
	if (e < 0)
		return e;
	out->data[end_at] = (uint8_t)e;
	return 0;
}

int fs_op_statfs(struct files *f, struct wire_rd *r, struct buf *out)
{
	const uint64_t *v;
	struct statfs s;
	int e = 0;

	if (wire_done(r) < 0)
		return -EINVAL;
	if (fstatfs(f->root_fd, &s) < 0)
		return -errno;
	v = (const uint64_t[]){ (uint64_t)s.f_bsize, s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree };
	for (size_t i = 0; i < 6 && e == 0; i++)
		e = wire_put_u64(out, v[i]);
	return e < 0 ? e : wire_put_u32(out, (uint32_t)s.f_namelen);
}
