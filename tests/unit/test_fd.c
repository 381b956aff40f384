/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"

static char dir[64];
static int dirfd_ = -1;

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/crucible-test-fd-XXXXXX");
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd_ < 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	fd_close(&dirfd_);
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static unsigned int names_in_dir(void)
{
	DIR *d = opendir(dir);
	unsigned int n = 0;
	const struct dirent *e;

	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void test_close_keeps_errno(void **state)
{
	int fd = dup(2), taken;

	(void)state;
	errno = EXDEV;
	fd_close(&fd);
	assert_int_equal(fd, -1);
	fd_close(&fd);
	assert_int_equal(errno, EXDEV);
	fd = dup(2);
	taken = take_fd(&fd);
	assert_int_equal(fd, -1);
	assert_true(taken >= 0);
	close(taken);
}

static void *read_slowly(void *arg)
{
	char c[4096];
	size_t *total = arg, n;
	int fd = (int)total[1];

	while ((n = (size_t)read(fd, c, sizeof(c))) > 0)
		total[0] += n;
	return NULL;
}

/* More than a pipe holds: many short writes. */
static void test_write_all_and_read_all(void **state)
{
	static char big[1 << 20];
	size_t total[2] = { 0 };
	pthread_t t;
	char text[4];
	int p[2];

	(void)state;
	assert_int_equal(pipe(p), 0);
	total[1] = (size_t)p[0];
	assert_int_equal(pthread_create(&t, NULL, read_slowly, total), 0);
	assert_int_equal(fd_write_all(p[1], big, sizeof(big)), 0);
	close(p[1]);
	pthread_join(t, NULL);
	assert_int_equal(total[0], sizeof(big));
	close(p[0]);
	assert_int_equal(fd_write_all(-1, "x", 1), -EBADF);

	assert_int_equal(pipe(p), 0);
	assert_int_equal(fd_write_all(p[1], "abcdef", 6), 0);
	close(p[1]);
	assert_int_equal(fd_read_all(p[0], text, 4), 0);
	assert_memory_equal(text, "abcd", 4);
	assert_int_equal(fd_read_all(p[0], text, 4), -ENODATA);
	close(p[0]);
}

static void test_pwrite_all(void **state)
{
	AUTO_FD fd = openat(dirfd_, "f", O_RDWR | O_CREAT, 0600);
	char text[4] = "";

	(void)state;
	assert_int_equal(fd_pwrite_all(fd, "xyz", 3, 5), 0);
	assert_int_equal(pread(fd, text, 3, 5), 3);
	assert_string_equal(text, "xyz");
	assert_int_equal(fd_pwrite_all(fd, "x", 1, UINT64_MAX), -EFBIG);
	assert_int_equal(fd_pwrite_all(fd, "x", 1, INT64_MAX), -EFBIG);
}

static void test_flags(void **state)
{
	AUTO_FD fd = dup(2);

	(void)state;
	assert_int_equal(fd_set_cloexec(fd, true), 0);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fd_set_cloexec(fd, false), 0);
	assert_false(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(fd_set_nonblock(-1, true), -EBADF);
	assert_int_equal(fd_set_cloexec(-1, true), -EBADF);
}

static void test_slurp(void **state)
{
	char *text = NULL;
	size_t len = 99;

	(void)state;
	assert_int_equal(fd_replace(dirfd_, "f", "a\0bc", 4, 0644, false), 0);
	assert_int_equal(fd_slurp(dirfd_, "f", 4, &text, &len), 0);
	assert_int_equal(len, 4);
	assert_memory_equal(text, "a\0bc", 5); /* with the NUL behind it */
	free(text);
	text = NULL;
	assert_int_equal(fd_slurp(dirfd_, "f", 3, &text, &len), -EFBIG);
	assert_int_equal(fd_slurp(dirfd_, "none", 3, &text, &len), -ENOENT);
	assert_int_equal(fd_slurp(dirfd_, ".", 3, &text, &len), -EINVAL);
	assert_int_equal(symlinkat("f", dirfd_, "link"), 0);
	assert_int_equal(fd_slurp(dirfd_, "link", 100, &text, &len), -ELOOP);
	assert_int_equal(mkfifoat(dirfd_, "fifo", 0600), 0);
	assert_int_equal(fd_slurp(dirfd_, "fifo", 100, &text, &len), -EINVAL); /* and does not hang */
	assert_null(text);
	/* A size of 0 says nothing about files of proc. */
	assert_int_equal(fd_slurp(AT_FDCWD, "/proc/self/status", 1 << 20, &text, &len), 0);
	assert_true(len > 100 && strlen(text) == len);
	free(text);
	text = NULL;
	assert_int_equal(fd_slurp(AT_FDCWD, "/proc/self/status", 50, &text, &len), -EFBIG);
	assert_int_equal(fd_replace(dirfd_, "f", "", 0, 0644, false), 0);
	assert_int_equal(fd_slurp(dirfd_, "f", 0, &text, NULL), 0);
	assert_string_equal(text, "");
	free(text);
}

static void test_slurp_sizes_around_the_buffer(void **state)
{
	static char big[5000];

	(void)state;
	memset(big, 'x', sizeof(big));
	for (size_t n = 1000; n < 5000; n += 1 + (n % 1024 > 2 && n % 1024 < 1000) * 400) {
		char *text;
		size_t len;

		assert_int_equal(fd_replace(dirfd_, "f", big, n, 0644, false), 0);
		assert_int_equal(fd_slurp(dirfd_, "f", n, &text, &len), 0);
		assert_int_equal(len, n);
		assert_int_equal(text[n], 0);
		free(text);
		assert_int_equal(fd_slurp(dirfd_, "f", n - 1, &text, &len), -EFBIG);
	}
}

static void test_replace(void **state)
{
	struct stat st;
	char *text;

	(void)state;
	umask(077);
	assert_int_equal(fd_replace(dirfd_, "f", "one", 3, 0640, true), 0);
	umask(022);
	assert_int_equal(fstatat(dirfd_, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0640); /* whatever the umask */
	assert_int_equal(fd_replace(dirfd_, "f", "two", 3, 0600, true), 0);
	assert_int_equal(fd_slurp(dirfd_, "f", 10, &text, NULL), 0);
	assert_string_equal(text, "two");
	free(text);
	assert_int_equal(mkdirat(dirfd_, "sub", 0755), 0);
	assert_int_equal(fd_replace(dirfd_, "sub/g", "three", 5, 0600, true), 0);
	assert_int_equal(faccessat(dirfd_, "sub/g", F_OK, 0), 0);
	assert_int_equal(names_in_dir(), 2); /* nothing beside them */
}

static void test_replace_errors_leave_nothing(void **state)
{
	char *text;

	(void)state;
	assert_int_equal(fd_replace(dirfd_, "none/f", "x", 1, 0600, false), -ENOENT);
	assert_int_equal(fd_replace(dirfd_, "none/f", "x", 1, 0600, true), -ENOENT);
	assert_int_equal(mkdirat(dirfd_, "folder", 0755), 0);
	assert_int_equal(fd_replace(dirfd_, "folder", "x", 1, 0600, false), -EISDIR);
	assert_int_equal(names_in_dir(), 1);
	assert_int_equal(fd_replace(dirfd_, "f", "old", 3, 0600, false), 0);
	assert_int_equal(fd_replace(dirfd_, "f", (const void *)16, 3, 0600, false), -EFAULT);
	assert_int_equal(fd_slurp(dirfd_, "f", 10, &text, NULL), 0);
	assert_string_equal(text, "old");
	free(text);
	assert_int_equal(names_in_dir(), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_close_keeps_errno),
		cmocka_unit_test(test_write_all_and_read_all),
		cmocka_unit_test_setup_teardown(test_pwrite_all, setup, teardown),
		cmocka_unit_test(test_flags),
		cmocka_unit_test_setup_teardown(test_slurp, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slurp_sizes_around_the_buffer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replace, setup, teardown),
		cmocka_unit_test_setup_teardown(test_replace_errors_leave_nothing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
