/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/guestreply.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/xattr.h>
#include "agent/proto.h"

#define ERRNO_LAST 133 /* EHWPOISON: the end of Linux's table */
#define NS_PER_S   1000000000

int greply_code(int code)
{
	if (code == 0)
		return 0;
	if (code > 0 || code < -ERRNO_LAST)
		return -EIO;
	switch (-code) {
	case ENOSYS:
		return -EOPNOTSUPP;
	case ELOOP:
		return -ESTALE;
	default:
		return code;
	}
}

static struct timespec time_from_wire(uint64_t ns)
{
	int64_t v = (int64_t)ns;
	int64_t s = v / NS_PER_S, n = v % NS_PER_S;

	if (n < 0) {
		n += NS_PER_S;
		s--;
	}
	return (struct timespec){ .tv_sec = s, .tv_nsec = n };
}

uint64_t gtime_to_wire(const struct timespec *ts)
{
	int64_t v;

	if (__builtin_mul_overflow((int64_t)ts->tv_sec, NS_PER_S, &v) || __builtin_add_overflow(v, ts->tv_nsec, &v))
		return ts->tv_sec < 0 ? (uint64_t)INT64_MIN : (uint64_t)INT64_MAX;
	return (uint64_t)v;
}

static void take_attr(struct wire_rd *r, struct gattr *ret)
{
	struct ag_attr a;

	ag_attr_get(r, &a);
	*ret = (struct gattr){
		.mode = a.mode & 07777,
		.nlink = a.nlink,
		.ino = a.ino,
		.size = a.size > INT64_MAX ? INT64_MAX : a.size,
		.blocks512 = a.blocks512 > INT64_MAX / 512 ? INT64_MAX / 512 : a.blocks512,
		.atime = time_from_wire(a.atime_ns),
		.mtime = time_from_wire(a.mtime_ns),
		.ctime = time_from_wire(a.ctime_ns),
	};
	switch (a.mode & S_IFMT) {
	case S_IFREG:
	case S_IFDIR:
	case S_IFLNK:
		ret->type = a.mode & S_IFMT;
		break;
	default:
		ret->size = 0;
		ret->blocks512 = 0;
	}
}

static int done(const struct wire_rd *r)
{
	return wire_done(r) < 0 ? -EIO : 0;
}

int greply_attr(struct wire_rd *r, struct gattr *ret)
{
	struct gattr a;

	take_attr(r, &a);
	if (done(r) < 0)
		return -EIO;
	*ret = a;
	return 0;
}

int greply_open(struct wire_rd *r, uint32_t *ret_handle, struct gattr *ret)
{
	uint32_t handle = wire_u32(r);
	struct gattr a;

	take_attr(r, &a);
	/* Only regular files are opened in the guest; 0 means "by path" in SETATTR. */
	if (done(r) < 0 || handle == 0 || a.type != S_IFREG)
		return -EIO;
	*ret_handle = handle;
	*ret = a;
	return 0;
}

int greply_readlink(struct wire_rd *r, struct glink *ret)
{
	struct glink l;

	l.target = wire_bytes(r, GLINK_MAX, &l.target_len);
	l.resolved = wire_bytes(r, GLINK_MAX, &l.resolved_len);
	l.state = wire_u8(r);
	if (done(r) < 0 || l.state >= GLINK_STATE_COUNT)
		return -EIO;
	*ret = l;
	return 0;
}

int greply_read(struct wire_rd *r, size_t asked, const uint8_t **ret_data, size_t *ret_len)
{
	size_t len;
	const char *p = wire_bytes(r, asked, &len);

	if (done(r) < 0)
		return -EIO;
	*ret_data = (const uint8_t *)p;
	*ret_len = len;
	return 0;
}

int greply_write(struct wire_rd *r, size_t asked, size_t *ret_written)
{
	uint32_t n = wire_u32(r);

	if (done(r) < 0 || n > asked)
		return -EIO;
	*ret_written = n;
	return 0;
}

int greply_empty(struct wire_rd *r)
{
	return done(r);
}

int greply_statfs(struct wire_rd *r, struct statvfs *ret)
{
	struct statvfs v = { 0 };
	uint64_t bsize = wire_u64(r);

	v.f_blocks = wire_u64(r);
	v.f_bfree = wire_u64(r);
	v.f_bavail = wire_u64(r);
	v.f_files = wire_u64(r);
	v.f_ffree = wire_u64(r);
	v.f_namemax = wire_u32(r);
	if (done(r) < 0)
		return -EIO;
	/* Numbers that multiply without overflow in whoever reads them. */
	if (bsize < 512 || bsize > 1024 * 1024 || (bsize & (bsize - 1)))
		bsize = 4096;
	v.f_bsize = v.f_frsize = bsize;
	if (v.f_blocks > INT64_MAX / bsize)
		v.f_blocks = INT64_MAX / bsize;
	if (v.f_bfree > v.f_blocks)
		v.f_bfree = v.f_blocks;
	if (v.f_bavail > v.f_bfree)
		v.f_bavail = v.f_bfree;
	if (v.f_files > INT64_MAX)
		v.f_files = INT64_MAX;
	if (v.f_ffree > v.f_files)
		v.f_ffree = v.f_files;
	v.f_favail = v.f_ffree;
	if (v.f_namemax == 0 || v.f_namemax > AG_NAME_MAX)
		v.f_namemax = AG_NAME_MAX;
	*ret = v;
	return 0;
}

int greply_xattr(struct wire_rd *r, const uint8_t **ret_data, size_t *ret_len)
{
	return greply_read(r, AG_PAYLOAD_MAX, ret_data, ret_len);
}

int greply_xattr_list(struct wire_rd *r, struct buf *out)
{
	static const char prefix[] = "user.";
	const size_t prefix_len = sizeof(prefix) - 1;
	const uint8_t *data;
	size_t len, before = out->len;
	int ret = greply_xattr(r, &data, &len);

	while (ret == 0 && len) {
		const uint8_t *nul = memchr(data, '\0', len);
		size_t n = nul ? (size_t)(nul - data) : 0;

		if (!nul) {
			ret = -EIO;
			break;
		}
		if (n > prefix_len && n <= XATTR_NAME_MAX && memcmp(data, prefix, prefix_len) == 0)
			ret = buf_add(out, data, n + 1);
		data += n + 1;
		len -= n + 1;
	}
	if (ret < 0)
		out->len = before;
	return ret == -EFBIG ? -EIO : ret;
}

int greply_dir_begin(struct wire_rd *r, bool *ret_end)
{
	uint8_t end = wire_u8(r);

	if (r->bad || end > 1)
		return -EIO;
	*ret_end = end;
	return 0;
}

int greply_dir_next(struct wire_rd *r, struct gdirent *ret)
{
	struct gdirent d = { 0 };

	if (!r->bad && wire_left(r) == 0)
		return 0;
	d.cookie = wire_u64(r);
	/* A name that is too long is bad, not malformed: dropped alone. */
	d.name = wire_bytes(r, AG_PATH_MAX, &d.name_len);
	take_attr(r, &d.attr);
	if (r->bad)
		return -EIO;
	d.ok = gname_entry(d.name, d.name_len);
	*ret = d;
	return 1;
}
