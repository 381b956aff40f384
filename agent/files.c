/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of the file operations: arguments, attributes, handles, and the list. A handle is generation << 16 | slot +
 * 1, so 0 is none. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/files_priv.h"
#include "agent/paths.h"
#include "base/fd.h"

void path_close(struct path *p)
{
	fd_close(&p->dir);
}

void path_get(struct wire_rd *r, struct path *p)
{
	p->dir = -1;
	wire_str(r, p->text, sizeof(p->text));
}

/* The last argument was read: was that all? Then find the parent. */
int path_at(struct files *f, struct wire_rd *r, struct path *p)
{
	if (wire_done(r) < 0)
		return -EINVAL;
	p->dir = path_parent(f->root_fd, p->text, &p->name);
	return p->dir < 0 ? p->dir : 0;
}

/* -- attributes --------------------------------------------------------------------- */

static uint64_t time_ns(const struct timespec *ts)
{
	return (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec; /* before 1970: two's complement */
}

int put_stat(struct buf *out, const struct stat *st)
{
	struct ag_attr a = {
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.rdev = (uint32_t)st->st_rdev,
		.size = (uint64_t)st->st_size,
		.blocks512 = (uint64_t)st->st_blocks,
		.ino = st->st_ino,
		.atime_ns = time_ns(&st->st_atim),
		.mtime_ns = time_ns(&st->st_mtim),
		.ctime_ns = time_ns(&st->st_ctim),
	};

	return ag_attr_put(out, &a);
}

int stat_at(const struct path *p, struct stat *ret)
{
	return fstatat(p->dir, p->name, ret, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 ? -errno : 0;
}

int put_attr_at(const struct path *p, struct buf *out)
{
	struct stat st;
	int r = stat_at(p, &st);

	return r < 0 ? r : put_stat(out, &st);
}

int put_attr_of(int fd, struct buf *out)
{
	struct stat st;

	return fstat(fd, &st) < 0 ? -errno : put_stat(out, &st);
}

/* -- handles ------------------------------------------------------------------------ */

int handle_put(struct files *f, int *fd, uint32_t *ret)
{
	for (uint32_t n = 0; n < FILES_HANDLES_MAX; n++) {
		uint32_t i = (f->next + n) % FILES_HANDLES_MAX;

		if (f->fds[i] >= 0)
			continue;
		f->fds[i] = take_fd(fd);
		f->next = i + 1;
		*ret = (uint32_t)f->generation << 16 | (i + 1);
		return 0;
	}
	return -ENFILE;
}

int *handle_slot(struct files *f, uint32_t handle)
{
	uint32_t i = (handle & 0xffff) - 1;

	if (handle >> 16 != f->generation || i >= FILES_HANDLES_MAX || f->fds[i] < 0)
		return NULL;
	return &f->fds[i];
}

int handle_fd(struct files *f, uint32_t handle)
{
	const int *slot = handle_slot(f, handle);

	return slot ? *slot : -ESTALE;
}

/* Read a handle that is the last argument. */
int handle_at(struct files *f, struct wire_rd *r, uint32_t handle)
{
	return wire_done(r) < 0 ? -EINVAL : handle_fd(f, handle);
}

/* -- the list ----------------------------------------------------------------------- */

static fs_op *const ops[] = {
	[AG_FS_GETATTR] = fs_op_getattr,
	[AG_FS_FGETATTR] = fs_op_fgetattr,
	[AG_FS_SETATTR] = fs_op_setattr,
	[AG_FS_READLINK] = fs_op_readlink,
	[AG_FS_READDIR] = fs_op_readdir,
	[AG_FS_MKDIR] = fs_op_mkdir,
	[AG_FS_UNLINK] = fs_op_unlink,
	[AG_FS_RMDIR] = fs_op_rmdir,
	[AG_FS_SYMLINK] = fs_op_symlink,
	[AG_FS_RENAME] = fs_op_rename,
	[AG_FS_LINK] = fs_op_link,
	[AG_FS_OPEN] = fs_op_open,
	[AG_FS_CREATE] = fs_op_create,
	[AG_FS_READ] = fs_op_read,
	[AG_FS_WRITE] = fs_op_write,
	[AG_FS_RELEASE] = fs_op_release,
	[AG_FS_FSYNC] = fs_op_fsync,
	[AG_FS_STATFS] = fs_op_statfs,
	[AG_FS_FALLOCATE] = fs_op_fallocate,
	[AG_FS_GETXATTR] = fs_op_getxattr,
	[AG_FS_SETXATTR] = fs_op_setxattr,
	[AG_FS_LISTXATTR] = fs_op_listxattr,
	[AG_FS_REMOVEXATTR] = fs_op_removexattr,
	[AG_FS_IMPORT] = NULL, /* runs as an exec */
};
static_assert(ARRAY_LEN(ops) == AG_FS_OP_COUNT, "an operation without a function");

void files_handle(struct files *f, uint8_t op, const void *payload, size_t len, struct buf *out)
{
	struct wire_rd r;
	int e = -ENOSYS;

	out->len = 0;
	if (wire_put_u32(out, 0) < 0)
		return; /* an empty answer: no memory for four bytes */
	wire_rd_init(&r, payload, len);
	if (op < AG_FS_OP_COUNT && ops[op])
		e = ops[op](f, &r, out);
	if (e >= 0)
		return;
	out->len = 0;
	wire_put_u32(out, (uint32_t)e);
}

int files_new(int root_fd, int proc_fd, uint16_t generation, struct files **ret)
{
	struct files *f = malloc(sizeof(*f));

	if (!f)
		return -ENOMEM;
	*f = (struct files){ .root_fd = root_fd, .proc_fd = proc_fd, .generation = generation };
	for (size_t i = 0; i < ARRAY_LEN(f->fds); i++)
		f->fds[i] = -1;
	*ret = f;
	return 0;
}

void files_reset(struct files *f, uint16_t generation)
{
	for (size_t i = 0; i < ARRAY_LEN(f->fds); i++)
		fd_close(&f->fds[i]);
	f->generation = generation;
}

struct files *files_free(struct files *f)
{
	if (f)
		files_reset(f, 0);
	free(f);
	return NULL;
}
