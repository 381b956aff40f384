/* SPDX-License-Identifier: Apache-2.0 */
#include "fuseall.h"

#include <sys/stat.h>

struct request {
	uint32_t opcode;
	const void *body;
	size_t len;
	const char *names; /* with its NULs */
	size_t names_len;
};

static void all_say(struct fw *w, uint64_t node, const struct request *list, size_t n, int want, int want_of_flush)
{
	for (size_t i = 0; i < n; i++) {
		const struct request *r = &list[i];
		int code = fw_call(w, r->opcode, node, r->body, r->len, r->names, r->names_len, NULL);

		if (code != (r->opcode == FUSE_FLUSH ? want_of_flush : want))
			fail_msg("opcode %u: %d", r->opcode, code);
	}
}

void fw_each_request(struct fw *w, uint64_t dir, uint64_t dir_fh, uint64_t file, uint64_t fh, int want,
		     int want_of_flush)
{
	const struct fuse_getattr_in getattr = { 0 }, fgetattr = { .getattr_flags = FUSE_GETATTR_FH, .fh = fh };
	const struct fuse_setattr_in setattr = { .valid = FATTR_MODE },
				     fsetattr = { .valid = FATTR_FH | FATTR_SIZE, .fh = fh };
	const struct fuse_mknod_in mknod_in = { .mode = S_IFREG | 0600 };
	const struct fuse_mkdir_in mkdir_in = { .mode = 0700 };
	const struct fuse_rename2_in rename_in = { .newdir = dir };
	const struct fuse_link_in link_in = { .oldnodeid = file };
	const struct fuse_open_in open_in = { .flags = O_RDONLY };
	const struct fuse_open_in nonblock_in = { .flags = O_RDONLY | O_NONBLOCK };
	const struct fuse_create_in create_in = { .flags = O_RDWR | O_CREAT, .mode = S_IFREG | 0600 };
	const struct fuse_read_in read_in = { .fh = fh, .size = 100 }, list_in = { .fh = dir_fh, .size = 4096 };
	const struct fuse_write_in write_in = { .fh = fh, .size = 4 };
	const struct fuse_flush_in flush_in = { .fh = fh };
	const struct fuse_fsync_in fsync_in = { .fh = fh }, fsyncdir_in = { .fh = dir_fh };
	const struct fuse_poll_in poll_in = { .fh = fh, .kh = 1, .flags = FUSE_POLL_SCHEDULE_NOTIFY };
	const struct fuse_fallocate_in fallocate_in = { .fh = fh, .length = 1 };
	const struct fuse_lseek_in lseek_in = { .fh = fh, .whence = SEEK_DATA };
	const struct fuse_getxattr_in xattr_in = { .size = 100 };
	const char setxattr_in[8] = { 1 }; /* FUSE_COMPAT_SETXATTR_IN_SIZE: one byte of value */
	const struct request of_dir[] = {
		{ FUSE_LOOKUP, "run", 4, NULL, 0 },
		{ FUSE_GETATTR, &getattr, sizeof(getattr), NULL, 0 },
		{ FUSE_SETATTR, &setattr, sizeof(setattr), NULL, 0 },
		{ FUSE_MKNOD, &mknod_in, sizeof(mknod_in), "n", 2 },
		{ FUSE_MKDIR, &mkdir_in, sizeof(mkdir_in), "n", 2 },
		{ FUSE_SYMLINK, "n\0t", 4, NULL, 0 },
		{ FUSE_UNLINK, "env", 4, NULL, 0 },
		{ FUSE_RMDIR, "a", 2, NULL, 0 },
		{ FUSE_RENAME2, &rename_in, sizeof(rename_in), "a\0b", 4 },
		{ FUSE_LINK, &link_in, sizeof(link_in), "n", 2 },
		{ FUSE_OPENDIR, &open_in, sizeof(open_in), NULL, 0 },
		{ FUSE_READDIR, &list_in, sizeof(list_in), NULL, 0 },
		{ FUSE_READDIRPLUS, &list_in, sizeof(list_in), NULL, 0 },
		{ FUSE_FSYNCDIR, &fsyncdir_in, sizeof(fsyncdir_in), NULL, 0 },
		{ FUSE_STATFS, NULL, 0, NULL, 0 },
		{ FUSE_SETXATTR, setxattr_in, 8, "user.a\0x", 8 },
		{ FUSE_GETXATTR, &xattr_in, sizeof(xattr_in), "user.a", 7 },
		{ FUSE_LISTXATTR, &xattr_in, sizeof(xattr_in), NULL, 0 },
		{ FUSE_REMOVEXATTR, "user.a", 7, NULL, 0 },
		{ FUSE_CREATE, &create_in, sizeof(create_in), "n", 2 },
	};
	const struct request of_file[] = {
		{ FUSE_GETATTR, &getattr, sizeof(getattr), NULL, 0 },
		{ FUSE_GETATTR, &fgetattr, sizeof(fgetattr), NULL, 0 },
		{ FUSE_SETATTR, &fsetattr, sizeof(fsetattr), NULL, 0 },
		{ FUSE_READLINK, NULL, 0, NULL, 0 },
		{ FUSE_OPEN, &open_in, sizeof(open_in), NULL, 0 },
		{ FUSE_OPEN, &nonblock_in, sizeof(nonblock_in), NULL, 0 },
		{ FUSE_READ, &read_in, sizeof(read_in), NULL, 0 },
		{ FUSE_WRITE, &write_in, sizeof(write_in), "kill", 4 },
		{ FUSE_FLUSH, &flush_in, sizeof(flush_in), NULL, 0 },
		{ FUSE_FSYNC, &fsync_in, sizeof(fsync_in), NULL, 0 },
		{ FUSE_POLL, &poll_in, sizeof(poll_in), NULL, 0 },
		{ FUSE_FALLOCATE, &fallocate_in, sizeof(fallocate_in), NULL, 0 },
		{ FUSE_LSEEK, &lseek_in, sizeof(lseek_in), NULL, 0 },
	};

	all_say(w, dir, of_dir, sizeof(of_dir) / sizeof(*of_dir), want, want_of_flush);
	all_say(w, file, of_file, sizeof(of_file) / sizeof(*of_file), want, want_of_flush);
}
