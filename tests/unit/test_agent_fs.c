/* SPDX-License-Identifier: Apache-2.0 */
/* File operations, driven through the real agent; its root is the test's own directory. */
#include "test_agent_harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"

static struct host *host;

static const char *at(const char *name)
{
	static char path[4][256];
	static int n;
	char *p = path[n++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", host->root, name);
	return p;
}

static int setup(void **state)
{
	int r = agent_setup(state);

	host = *state;
	return r;
}

static void make_file(const char *name, const char *text)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

/* One request whose answer is only a code (or of which only that counts). */
static int code_of(uint8_t op, const char *fmt, ...)
{
	struct buf b;
	va_list ap;

	buf_init(&b, AG_PAYLOAD_MAX);
	va_start(ap, fmt);
	for (; *fmt; fmt++) {
		if (*fmt == 's')
			wire_put_str(&b, va_arg(ap, const char *));
		else if (*fmt == 'u')
			wire_put_u32(&b, va_arg(ap, uint32_t));
		else if (*fmt == 'U')
			wire_put_u64(&b, va_arg(ap, uint64_t));
		else
			wire_put_u8(&b, (uint8_t)va_arg(ap, int));
	}
	va_end(ap);
	return fs_call(host, op, &b)->code;
}

static struct ag_attr attr_in(struct fsrep *rep, size_t skip)
{
	struct ag_attr a;
	struct wire_rd r;

	assert_int_equal(rep->code, 0);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	if (skip)
		wire_raw(&r, skip);
	ag_attr_get(&r, &a);
	assert_int_equal(wire_done(&r), 0);
	return a;
}

static struct ag_attr getattr(const char *path)
{
	struct buf b;

	put_args(&b, "s", path);
	return attr_in(fs_call(host, AG_FS_GETATTR, &b), 0);
}

static uint32_t open_file(uint8_t op, const char *path, uint32_t flags, uint32_t mode)
{
	struct fsrep *rep;
	struct wire_rd r;
	struct buf b;

	if (op == AG_FS_CREATE)
		put_args(&b, "suu", path, flags, mode);
	else
		put_args(&b, "su", path, flags);
	rep = fs_call(host, op, &b);
	attr_in(rep, 4);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	return wire_u32(&r);
}

/* -- names -------------------------------------------------------------------------- */

static void getattr_tells_what_stat_tells(void **state)
{
	struct ag_attr a;
	struct stat st;

	(void)state;
	make_file("f", "hello");
	assert_int_equal(stat(at("f"), &st), 0);
	a = getattr("f");
	assert_int_equal(a.mode, st.st_mode);
	assert_int_equal(a.nlink, 1);
	assert_int_equal(a.uid, st.st_uid);
	assert_int_equal(a.size, 5);
	assert_int_equal(a.blocks512, st.st_blocks);
	assert_int_equal(a.ino, st.st_ino);
	assert_int_equal(a.mtime_ns, (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec);
	assert_true(S_ISDIR(getattr("").mode));
	assert_int_equal(code_of(AG_FS_GETATTR, "s", "absent"), -ENOENT);
	assert_int_equal(code_of(AG_FS_GETATTR, "s", "f/below"), -ENOTDIR);
}

static void odd_paths_are_refused(void **state)
{
	static const char *const odd[] = { "/f", "f/", "a//b", ".", "..", "a/../b", "a/.", "../etc/passwd" };
	char longer[300], deep[AG_PATH_MAX + 10];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(odd); i++)
		assert_int_equal(code_of(AG_FS_GETATTR, "s", odd[i]), -EINVAL);
	memset(longer, 'n', sizeof(longer));
	longer[AG_NAME_MAX] = '\0';
	assert_int_equal(code_of(AG_FS_GETATTR, "s", longer), -ENOENT);
	longer[AG_NAME_MAX] = 'n';
	longer[AG_NAME_MAX + 1] = '\0';
	assert_int_equal(code_of(AG_FS_GETATTR, "s", longer), -ENAMETOOLONG);
	assert_int_equal(code_of(AG_FS_MKDIR, "su", longer, 0755u), -ENAMETOOLONG);
	for (size_t i = 0; i < sizeof(deep) - 1; i++)
		deep[i] = i % 2 ? '/' : 'd';
	deep[AG_PATH_MAX + 2] = '\0';
	assert_int_equal(code_of(AG_FS_GETATTR, "s", deep), -EINVAL);
}

static void requests_that_cannot_be_decoded(void **state)
{
	(void)state;
	assert_int_equal(code_of(AG_FS_GETATTR, ""), -EINVAL);
	assert_int_equal(code_of(AG_FS_GETATTR, "sb", "f", 1), -EINVAL); /* something behind it */
	assert_int_equal(code_of(AG_FS_GETATTR, "u", 99u), -EINVAL);	 /* a length beyond the end */
	assert_int_equal(code_of(AG_FS_RENAME, "s", "a"), -EINVAL);
	assert_int_equal(code_of(AG_FS_RENAME, "ssu", "a", "b", 4u), -EINVAL);
	assert_int_equal(code_of(AG_FS_IMPORT, ""), -ENOSYS);
}

/* A link on the way is never followed, wherever it leads. */
static void links_on_the_way_ELOOP(void **state)
{
	(void)state;
	mkdir(at("d"), 0755);
	make_file("d/f", "x");
	assert_int_equal(symlink("d", at("l")), 0);
	assert_int_equal(symlink("/etc", at("out")), 0);
	assert_int_equal(code_of(AG_FS_GETATTR, "s", "l/f"), -ELOOP);
	assert_int_equal(code_of(AG_FS_GETATTR, "s", "out/passwd"), -ELOOP);
	assert_int_equal(code_of(AG_FS_UNLINK, "s", "l/f"), -ELOOP);
	assert_int_equal(code_of(AG_FS_READDIR, "sUu", "out", (uint64_t)0, 60000u), -ENOTDIR);
	assert_int_equal(code_of(AG_FS_OPEN, "su", "out", (uint32_t)O_RDONLY), -EPERM);
	assert_true(S_ISLNK(getattr("out").mode));
	assert_int_equal(code_of(AG_FS_UNLINK, "s", "out"), 0);
}

static void mkdir_rmdir_unlink(void **state)
{
	(void)state;
	assert_int_equal(code_of(AG_FS_MKDIR, "su", "d", 01777u), 0);
	assert_int_equal(getattr("d").mode, S_IFDIR | 01777);
	assert_int_equal(code_of(AG_FS_MKDIR, "su", "d", 0755u), -EEXIST);
	assert_int_equal(code_of(AG_FS_MKDIR, "su", "", 0755u), -EEXIST);
	make_file("d/f", "x");
	assert_int_equal(code_of(AG_FS_RMDIR, "s", "d"), -ENOTEMPTY);
	assert_int_equal(code_of(AG_FS_UNLINK, "s", "d"), -EISDIR);
	assert_int_equal(code_of(AG_FS_RMDIR, "s", "d/f"), -ENOTDIR);
	assert_int_equal(code_of(AG_FS_UNLINK, "s", "d/f"), 0);
	assert_int_equal(code_of(AG_FS_UNLINK, "s", "d/f"), -ENOENT);
	assert_int_equal(code_of(AG_FS_RMDIR, "s", "d"), 0);
	assert_int_equal(code_of(AG_FS_RMDIR, "s", ""), -EBUSY);
}

static void rename_and_its_flags(void **state)
{
	(void)state;
	make_file("a", "a");
	make_file("b", "bb");
	assert_int_equal(code_of(AG_FS_RENAME, "ssu", "a", "b", (uint32_t)RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(code_of(AG_FS_RENAME, "ssu", "a", "b", (uint32_t)RENAME_EXCHANGE), 0);
	assert_int_equal(getattr("a").size, 2);
	assert_int_equal(code_of(AG_FS_RENAME, "ssu", "a", "b", 0u), 0);
	assert_int_equal(getattr("b").size, 2);
	assert_int_equal(code_of(AG_FS_RENAME, "ssu", "a", "b", 0u), -ENOENT);
	mkdir(at("d"), 0755);
	assert_int_equal(code_of(AG_FS_RENAME, "ssu", "b", "d/c", 0u), 0);
	assert_int_equal(code_of(AG_FS_RENAME, "ssu", "d", "d/e", 0u), -EINVAL);
	assert_int_equal(code_of(AG_FS_RENAME, "ssu", "", "x", 0u), -EBUSY);
}

static void hard_links(void **state)
{
	(void)state;
	make_file("a", "x");
	assert_int_equal(code_of(AG_FS_LINK, "ss", "a", "b"), 0);
	assert_int_equal(getattr("b").nlink, 2);
	assert_int_equal(getattr("b").ino, getattr("a").ino);
	assert_int_equal(code_of(AG_FS_LINK, "ss", "a", "b"), -EEXIST);
	mkdir(at("d"), 0755);
	assert_int_equal(code_of(AG_FS_LINK, "ss", "d", "e"), -EPERM);
}

static void setattr_by_path(void **state)
{
	struct ag_attr a;

	(void)state;
	make_file("f", "hello");
	assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "f", AG_SET_MODE | AG_SET_SIZE | AG_SET_MTIME, 04711u, 0u,
				 0u, (uint64_t)3, (uint64_t)0, (uint64_t)1234567890123456789u, 0u),
			 0);
	a = getattr("f");
	assert_int_equal(a.mode, S_IFREG | 04711);
	assert_int_equal(a.size, 3);
	assert_int_equal(a.mtime_ns, 1234567890123456789u);
	/* Before 1970: two's complement, and back. */
	assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "f", AG_SET_MTIME | AG_SET_ATIME_NOW, 0u, 0u, 0u,
				 (uint64_t)0, (uint64_t)0, (uint64_t)-1500000000ll, 0u),
			 0);
	a = getattr("f");
	assert_int_equal(a.mtime_ns, (uint64_t)-1500000000ll);
	assert_true(a.atime_ns > 1500000000000000000u);
	mkdir(at("d"), 0755);
	assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "d", AG_SET_SIZE, 0u, 0u, 0u, (uint64_t)0, (uint64_t)0,
				 (uint64_t)0, 0u),
			 -EISDIR);
	assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "f", 1u << 30, 0u, 0u, 0u, (uint64_t)0, (uint64_t)0,
				 (uint64_t)0, 0u),
			 -EINVAL);
	/* A link itself: owner and times, no mode, and never its target. */
	assert_int_equal(symlink("f", at("l")), 0);
	assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "l", AG_SET_MODE, 0777u, 0u, 0u, (uint64_t)0, (uint64_t)0,
				 (uint64_t)0, 0u),
			 -EOPNOTSUPP);
	assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "l", AG_SET_MTIME, 0u, 0u, 0u, (uint64_t)0, (uint64_t)0,
				 (uint64_t)5000000000u, 0u),
			 0);
	assert_int_equal(getattr("l").mtime_ns, 5000000000u);
	assert_int_equal(getattr("f").mode, S_IFREG | 04711);
	if (geteuid() == 0) {
		assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "f", AG_SET_UID | AG_SET_GID, 0u, 11u, 22u,
					 (uint64_t)0, (uint64_t)0, (uint64_t)0, 0u),
				 0);
		a = getattr("f");
		assert_int_equal(a.uid, 11);
		assert_int_equal(a.gid, 22);
	}
}

/* -- links -------------------------------------------------------------------------- */

static void assert_link(const char *path, const char *target, const char *resolved, int state)
{
	char got_target[AG_PATH_MAX + 1], got_resolved[AG_PATH_MAX + 1];
	struct fsrep *rep;
	struct wire_rd r;
	struct buf b;

	put_args(&b, "s", path);
	rep = fs_call(host, AG_FS_READLINK, &b);
	assert_int_equal(rep->code, 0);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	wire_str(&r, got_target, sizeof(got_target));
	wire_str(&r, got_resolved, sizeof(got_resolved));
	assert_int_equal(wire_u8(&r), state);
	assert_int_equal(wire_done(&r), 0);
	assert_string_equal(got_target, target);
	if (state != 2)
		assert_string_equal(got_resolved, resolved);
}

static void readlink_resolves_inside_the_root(void **state)
{
	static const struct {
		const char *path, *target, *resolved;
		int state;
	} links[] = {
		{ "bin", "usr/bin", "usr/bin", 0 },
		{ "usr/bin/vi", "/etc/alternatives/vi", "usr/bin/vim", 0 },
		{ "etc/alternatives/vi", "/usr/bin/vim", "usr/bin/vim", 0 },
		{ "through", "bin/../bin/./vim", "usr/bin/vim", 0 },
		{ "up", "../../../../usr", "usr", 0 },
		{ "usr/up", "../..", "", 0 },
		{ "root", "/", "", 0 },
		{ "dangling", "no/such/../thing", "no/thing", 1 },
		{ "usr/dangling2", "../etc/none", "etc/none", 1 },
		{ "chain", "dangling", "no/thing", 1 },
		{ "into-file", "usr/bin/vim/x", "usr/bin/vim/x", 1 },
		{ "loop1", "loop2", "", 2 },
		{ "loop2", "loop1", "", 2 },
		{ "self", "self/x", "", 2 },
		{ "slashes", "//usr///bin//", "usr/bin", 0 },
	};

	(void)state;
	mkdir(at("usr"), 0755);
	mkdir(at("usr/bin"), 0755);
	mkdir(at("etc"), 0755);
	mkdir(at("etc/alternatives"), 0755);
	make_file("usr/bin/vim", "x");
	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		struct buf b;

		put_args(&b, "ss", links[i].path, links[i].target);
		assert_true(S_ISLNK(attr_in(fs_call(host, AG_FS_SYMLINK, &b), 0).mode));
	}
	for (size_t i = 0; i < ARRAY_LEN(links); i++)
		assert_link(links[i].path, links[i].target, links[i].resolved, links[i].state);
	assert_int_equal(code_of(AG_FS_READLINK, "s", "usr"), -EINVAL);
	assert_int_equal(code_of(AG_FS_READLINK, "s", "absent"), -ENOENT);
	assert_int_equal(code_of(AG_FS_SYMLINK, "ss", "bin", "x"), -EEXIST);
}

static void readlink_of_a_chain_longer_than_40(void **state)
{
	char name[16], target[16];

	(void)state;
	make_file("l0", "x");
	for (int i = 1; i <= 45; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		snprintf(target, sizeof(target), "l%d", i - 1);
		assert_int_equal(symlink(target, at(name)), 0);
	}
	assert_link("l40", "l39", "l0", 0);
	assert_link("l41", "l40", "", 2);
}

/* -- directories -------------------------------------------------------------------- */

/* Read a directory as a host would; returns the number of entries and checks that each comes once. */
static int read_dir(const char *path, uint32_t max, int *ret_requests)
{
	char *seen = calloc(1, 100000);
	uint64_t cookie = 0;
	int n = 0, requests = 0;
	uint8_t end = 0;

	assert_non_null(seen);
	while (!end) {
		struct fsrep *rep;
		struct wire_rd r;
		struct buf b;

		put_args(&b, "sUu", path, cookie, max);
		rep = fs_call(host, AG_FS_READDIR, &b);
		assert_int_equal(rep->code, 0);
		assert_true(rep->data.len + 4 <= max);
		requests++;
		wire_rd_init(&r, rep->data.data, rep->data.len);
		end = wire_u8(&r);
		while (wire_left(&r) > 0) {
			char name[AG_NAME_MAX + 1];
			struct ag_attr a;
			int number;

			cookie = wire_u64(&r);
			wire_str(&r, name, sizeof(name));
			ag_attr_get(&r, &a);
			assert_false(r.bad);
			n++;
			if (sscanf(name, "entry-%d", &number) == 1) {
				assert_int_equal(a.size, number);
				assert_int_equal(seen[number]++, 0);
			}
		}
	}
	free(seen);
	if (ret_requests)
		*ret_requests = requests;
	return n;
}

static void readdir_of_3000_entries_with_cookies(void **state)
{
	char name[32];
	int requests;

	(void)state;
	mkdir(at("d"), 0755);
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "d/entry-%d", i);
		make_file(name, "");
		assert_int_equal(truncate(at(name), i), 0);
	}
	assert_int_equal(read_dir("d", 65536, &requests), 3000);
	assert_true(requests > 3);
	assert_int_equal(read_dir("d", 4096, &requests), 3000);
	assert_true(requests > 60);
	mkdir(at("empty"), 0755);
	assert_int_equal(read_dir("empty", 4096, &requests), 0);
	assert_int_equal(requests, 1);
	assert_int_equal(code_of(AG_FS_READDIR, "sUu", "d", (uint64_t)0, 20u), -EINVAL); /* not even one fits */
	assert_int_equal(code_of(AG_FS_READDIR, "sUu", "d/entry-1", (uint64_t)0, 4096u), -ENOTDIR);
}

/* -- content ------------------------------------------------------------------------ */

static void write_then_read(void **state)
{
	static uint8_t data[AG_FS_IO_MAX];
	uint32_t h = open_file(AG_FS_CREATE, "f", O_RDWR, 0640);
	struct fsrep *rep;
	struct wire_rd r;
	struct buf b;
	size_t len;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 31 >> 3);
	for (int i = 0; i < 10; i++) {
		put_args(&b, "uUB", h, (uint64_t)i * sizeof(data), data, sizeof(data));
		rep = fs_call(host, AG_FS_WRITE, &b);
		assert_int_equal(rep->code, 0);
		wire_rd_init(&r, rep->data.data, rep->data.len);
		assert_int_equal(wire_u32(&r), sizeof(data));
	}
	put_args(&b, "uUu", h, (uint64_t)5 * sizeof(data), AG_FS_IO_MAX);
	rep = fs_call(host, AG_FS_READ, &b);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	assert_memory_equal(wire_bytes(&r, AG_FS_IO_MAX, &len), data, sizeof(data));
	assert_int_equal(len, sizeof(data));
	put_args(&b, "uUu", h, (uint64_t)10 * sizeof(data) - 7, 100u);
	rep = fs_call(host, AG_FS_READ, &b);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	wire_bytes(&r, AG_FS_IO_MAX, &len);
	assert_int_equal(len, 7);
	put_args(&b, "u", h);
	assert_int_equal(attr_in(fs_call(host, AG_FS_FGETATTR, &b), 0).mode, S_IFREG | 0640);
	assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "", AG_SET_SIZE, 0u, 0u, 0u, (uint64_t)11, (uint64_t)0,
				 (uint64_t)0, h),
			 0);
	assert_int_equal(getattr("f").size, 11);
	assert_int_equal(code_of(AG_FS_FSYNC, "ub", h, 0), 0);
	assert_int_equal(code_of(AG_FS_FSYNC, "ub", h, 1), 0);
	assert_int_equal(code_of(AG_FS_FALLOCATE, "uuUU", h, 0u, (uint64_t)0, (uint64_t)4096), 0);
	assert_int_equal(getattr("f").size, 4096);
	assert_int_equal(code_of(AG_FS_READ, "uUu", h, (uint64_t)0, AG_FS_IO_MAX + 1), -EINVAL);
	assert_int_equal(code_of(AG_FS_RELEASE, "u", h), 0);
	assert_int_equal(code_of(AG_FS_RELEASE, "u", h), -ESTALE);
	assert_int_equal(code_of(AG_FS_READ, "uUu", h, (uint64_t)0, 1u), -ESTALE);
	assert_int_equal(code_of(AG_FS_READ, "uUu", 0u, (uint64_t)0, 1u), -ESTALE);
}

static void open_flags(void **state)
{
	struct buf b;
	uint32_t h;

	(void)state;
	make_file("f", "hello");
	h = open_file(AG_FS_OPEN, "f", O_WRONLY | O_APPEND, 0);
	put_args(&b, "uUB", h, (uint64_t)0, " you", (size_t)4);
	assert_int_equal(fs_call(host, AG_FS_WRITE, &b)->code, 0);
	assert_int_equal(getattr("f").size, 9);
	assert_int_equal(code_of(AG_FS_READ, "uUu", h, (uint64_t)0, 1u), -EBADF);
	open_file(AG_FS_OPEN, "f", O_RDWR | O_TRUNC, 0);
	assert_int_equal(getattr("f").size, 0);
	assert_int_equal(code_of(AG_FS_CREATE, "suu", "f", (uint32_t)(O_RDWR | O_EXCL), 0644u), -EEXIST);
	open_file(AG_FS_CREATE, "f", O_RDWR, 0600); /* exists: opened, mode as it was */
	assert_int_equal(getattr("f").mode & 07777, 0644);
	assert_int_equal(code_of(AG_FS_OPEN, "su", "f", (uint32_t)O_DIRECT), -EINVAL);
	assert_int_equal(code_of(AG_FS_OPEN, "su", "f", (uint32_t)O_ACCMODE), -EINVAL);
	assert_int_equal(code_of(AG_FS_OPEN, "su", "absent", (uint32_t)O_RDONLY), -ENOENT);
}

/* Neither opened nor waited for. */
static void special_files_EPERM(void **state)
{
	(void)state;
	assert_int_equal(mkfifo(at("fifo"), 0644), 0);
	mkdir(at("d"), 0755);
	assert_int_equal(symlink("/etc/passwd", at("l")), 0);
	assert_int_equal(code_of(AG_FS_OPEN, "su", "fifo", (uint32_t)O_RDONLY), -EPERM);
	assert_int_equal(code_of(AG_FS_OPEN, "su", "d", (uint32_t)O_RDONLY), -EPERM);
	assert_int_equal(code_of(AG_FS_OPEN, "su", "l", (uint32_t)O_RDONLY), -EPERM);
	assert_int_equal(code_of(AG_FS_CREATE, "suu", "l", (uint32_t)O_RDWR, 0644u), -EPERM);
	assert_true(S_ISFIFO(getattr("fifo").mode));
	assert_int_equal(code_of(AG_FS_SETATTR, "suuuuUUUu", "fifo", AG_SET_SIZE, 0u, 0u, 0u, (uint64_t)0, (uint64_t)0,
				 (uint64_t)0, 0u),
			 -EPERM);
}

static void handles_are_bounded_ENFILE(void **state)
{
	uint32_t first = 0;
	int code = 0, n;

	(void)state;
	make_file("f", "x");
	for (n = 0; n < 2000 && code == 0; n++) {
		struct fsrep *rep;
		struct buf b;

		put_args(&b, "su", "f", (uint32_t)O_RDONLY);
		rep = fs_call(host, AG_FS_OPEN, &b);
		code = rep->code;
		if (n == 0)
			memcpy(&first, rep->data.data, 4);
	}
	assert_int_equal(code, -ENFILE);
	assert_int_equal(n, 1025);
	assert_int_equal(code_of(AG_FS_RELEASE, "u", first), 0);
	open_file(AG_FS_OPEN, "f", O_RDONLY, 0);
}

static void statfs_of_the_root(void **state)
{
	struct fsrep *rep;
	struct wire_rd r;
	struct buf b;

	(void)state;
	put_args(&b, "");
	rep = fs_call(host, AG_FS_STATFS, &b);
	assert_int_equal(rep->code, 0);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	assert_true(wire_u64(&r) > 0);
	assert_true(wire_u64(&r) > 0);
	wire_raw(&r, 32);
	assert_int_equal(wire_u32(&r), 255);
	assert_int_equal(wire_done(&r), 0);
}

static void xattrs_of_the_user_only(void **state)
{
	struct fsrep *rep;
	struct wire_rd r;
	struct buf b;
	size_t len;

	(void)state;
	make_file("f", "x");
	assert_int_equal(symlink("f", at("l")), 0);
	if (setxattr(at("f"), "user.probe", "1", 1, 0) < 0)
		skip_because("/tmp has no user xattrs");
	put_args(&b, "ssBu", "f", "user.mime", "text\0x", (size_t)6, 0u);
	assert_int_equal(fs_call(host, AG_FS_SETXATTR, &b)->code, 0);
	put_args(&b, "ssBu", "f", "user.mime", "y", (size_t)1, (uint32_t)XATTR_CREATE);
	assert_int_equal(fs_call(host, AG_FS_SETXATTR, &b)->code, -EEXIST);
	put_args(&b, "ss", "f", "user.mime");
	rep = fs_call(host, AG_FS_GETXATTR, &b);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	assert_memory_equal(wire_bytes(&r, 100, &len), "text\0x", 6);
	assert_int_equal(len, 6);
	put_args(&b, "s", "f");
	rep = fs_call(host, AG_FS_LISTXATTR, &b);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	wire_bytes(&r, 100, &len);
	assert_int_equal(len, strlen("user.mime") + strlen("user.probe") + 2);
	assert_int_equal(code_of(AG_FS_REMOVEXATTR, "ss", "f", "user.mime"), 0);
	assert_int_equal(code_of(AG_FS_REMOVEXATTR, "ss", "f", "user.mime"), -ENODATA);
	assert_int_equal(code_of(AG_FS_GETXATTR, "ss", "f", "user.absent"), -ENODATA);
	assert_int_equal(code_of(AG_FS_GETXATTR, "ss", "f", "security.capability"), -ENOTSUP);
	put_args(&b, "ssBu", "f", "trusted.x", "y", (size_t)1, 0u);
	assert_int_equal(fs_call(host, AG_FS_SETXATTR, &b)->code, -ENOTSUP);
	assert_int_equal(code_of(AG_FS_GETXATTR, "ss", "l", "user.probe"), -ENODATA); /* not its target's */
	assert_int_equal(code_of(AG_FS_LISTXATTR, "s", "l"), 0);
}

/* -- the server --------------------------------------------------------------------- */

static void many_requests_at_once(void **state)
{
	uint32_t ids[AG_FS_INFLIGHT_MAX];

	(void)state;
	make_file("f", "x");
	for (int round = 0; round < 10; round++) {
		for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
			struct buf b;

			put_args(&b, "s", i % 2 ? "f" : "absent");
			ids[i] = fs_send(host, AG_FS_GETATTR, &b);
		}
		for (size_t i = 0; i < ARRAY_LEN(ids); i++)
			assert_int_equal(fs_wait(host, ids[i])->code, i % 2 ? 0 : -ENOENT);
	}
}

static pid_t server_pid(void)
{
	char path[64], text[512] = "";
	pid_t found = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", host->pid, host->pid);
	f = fopen(path, "re");
	if (!f)
		skip_because("this kernel has no /proc/PID/task/TID/children");
	if (fgets(text, sizeof(text), f))
		found = atoi(text);
	fclose(f);
	return found;
}

static void a_killed_server_is_replaced(void **state)
{
	uint32_t ids[8];
	pid_t first, second;
	uint32_t h;

	(void)state;
	make_file("f", "x");
	h = open_file(AG_FS_OPEN, "f", O_RDONLY, 0);
	first = server_pid();
	assert_true(first > 0);
	assert_int_equal(kill(first, SIGSTOP), 0);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		struct buf b;

		put_args(&b, "s", "f");
		ids[i] = fs_send(host, AG_FS_GETATTR, &b);
	}
	assert_int_equal(kill(first, SIGKILL), 0);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		assert_int_equal(fs_wait(host, ids[i])->code, 0); /* asked again: reading changes nothing */
	assert_int_equal(code_of(AG_FS_READ, "uUu", h, (uint64_t)0, 1u), -ESTALE);
	second = server_pid();
	assert_true(second > 0 && second != first);
	h = open_file(AG_FS_OPEN, "f", O_RDONLY, 0);
	assert_int_equal(code_of(AG_FS_READ, "uUu", h, (uint64_t)0, 1u), 0);
}

/* A stopped server hangs as one on a dead mount does: five seconds, then another one. Commands do not notice. */
static void a_hung_server_is_replaced_ETIMEDOUT(void **state)
{
	uint32_t first, second;
	struct cmd *c;
	struct buf b;

	(void)state;
	make_file("f", "x");
	getattr("f");
	assert_int_equal(kill(server_pid(), SIGSTOP), 0);
	put_args(&b, "su", "new", 0755u);
	first = fs_send(host, AG_FS_MKDIR, &b);
	put_args(&b, "s", "f");
	second = fs_send(host, AG_FS_GETATTR, &b);
	c = sh(host, "echo commands run");
	assert_string_equal(cmd_out(c), "commands run\n");
	assert_int_equal(fs_wait(host, first)->code, -ETIMEDOUT);
	assert_int_equal(fs_wait(host, second)->code, 0);
}

static void a_new_epoch_closes_handles(void **state)
{
	uint32_t h;

	(void)state;
	make_file("f", "x");
	h = open_file(AG_FS_OPEN, "f", O_RDONLY, 0);
	host_hello(host, 2);
	assert_int_equal(code_of(AG_FS_READ, "uUu", h, (uint64_t)0, 1u), -ESTALE);
	open_file(AG_FS_OPEN, "f", O_RDONLY, 0);
}

static bool said_bye(struct host *h, void *arg)
{
	(void)arg;
	return h->bye.len > 0;
}

static void too_many_requests_end_the_epoch(void **state)
{
	(void)state;
	getattr("");
	assert_int_equal(kill(server_pid(), SIGSTOP), 0);
	for (unsigned i = 0; i <= AG_FS_INFLIGHT_MAX; i++) {
		struct buf b;

		put_args(&b, "s", "");
		fs_send(host, AG_FS_GETATTR, &b);
	}
	host_until(host, said_bye, NULL);
	host_hello(host, 2);
	assert_true(S_ISDIR(getattr("").mode));
}

#define WITH_AGENT(t) cmocka_unit_test_setup_teardown(t, setup, agent_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_AGENT(getattr_tells_what_stat_tells),
		WITH_AGENT(odd_paths_are_refused),
		WITH_AGENT(requests_that_cannot_be_decoded),
		WITH_AGENT(links_on_the_way_ELOOP),
		WITH_AGENT(mkdir_rmdir_unlink),
		WITH_AGENT(rename_and_its_flags),
		WITH_AGENT(hard_links),
		WITH_AGENT(setattr_by_path),
		WITH_AGENT(readlink_resolves_inside_the_root),
		WITH_AGENT(readlink_of_a_chain_longer_than_40),
		WITH_AGENT(readdir_of_3000_entries_with_cookies),
		WITH_AGENT(write_then_read),
		WITH_AGENT(open_flags),
		WITH_AGENT(special_files_EPERM),
		WITH_AGENT(handles_are_bounded_ENFILE),
		WITH_AGENT(statfs_of_the_root),
		WITH_AGENT(xattrs_of_the_user_only),
		WITH_AGENT(many_requests_at_once),
		WITH_AGENT(a_killed_server_is_replaced),
		WITH_AGENT(a_hung_server_is_replaced_ETIMEDOUT),
		WITH_AGENT(a_new_epoch_closes_handles),
		WITH_AGENT(too_many_requests_end_the_epoch),
	};

	return tests_end(cmocka_run_group_tests(tests, NULL, NULL));
}
