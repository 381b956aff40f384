/* SPDX-License-Identifier: Apache-2.0 */
/* Output on disk and its bounds, and the console's log. */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "vmm/box/console.h"
#include "vmm/box/spool.h"

#define KIB 1024u

static char dir[200];
static int dirfd_ = -1;
static uint64_t removed[64];
static size_t nremoved;

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "%s/test_box_spool.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dirfd_ >= 0);
	nremoved = 0;
	return mkdirat(dirfd_, "exec", 0700);
}

static int tear_down(void **state)
{
	char text[256];

	(void)state;
	fd_close(&dirfd_);
	umount2(dir, MNT_DETACH); /* of a test that failed half way */
	snprintf(text, sizeof(text), "rm -rf %s", dir);
	return system(text);
}

static void on_removed(void *arg, uint64_t n)
{
	(void)arg;
	assert_true(nremoved < ARRAY_LEN(removed));
	removed[nremoved++] = n;
}

static struct spool *make(uint64_t max, uint32_t keep)
{
	struct spool *s;
	struct err e = { 0 };

	assert_int_equal(spool_new(dirfd_, max, keep, on_removed, NULL, &s, &e), 0);
	return s;
}

static void folder(uint64_t n)
{
	char path[40];

	snprintf(path, sizeof(path), "exec/%" PRIu64, n);
	assert_int_equal(mkdirat(dirfd_, path, 0700), 0);
}

static void file(uint64_t n, const char *name, size_t len)
{
	AUTO_FREE char *data = calloc(1, len + 1);
	char path[64];

	snprintf(path, sizeof(path), "exec/%" PRIu64 "/%s", n, name);
	assert_int_equal(fd_replace(dirfd_, path, data, len, 0600, false), 0);
}

static long size(uint64_t n, const char *name)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "exec/%" PRIu64 "/%s", n, name);
	return fstatat(dirfd_, path, &st, 0) < 0 ? -1 : (long)st.st_size;
}

static struct spool_cmd begin(struct spool *s, uint64_t n, uint64_t max)
{
	struct spool_cmd c = SPOOL_CMD_INIT;

	folder(n);
	c.n = n;
	assert_int_equal(spool_open(s, &c, max), 0);
	return c;
}

static void print(struct spool *s, struct spool_cmd *c, enum spool_which which, size_t len)
{
	AUTO_FREE char *data = malloc(len);

	memset(data, 'x', len);
	assert_int_equal(spool_write(s, c, which, data, len), 0);
}

static void test_cap_of_one_file_is_exact(void **state)
{
	struct spool *s = make(1000 * KIB, 100);
	struct spool_cmd c = begin(s, 1, 10);

	(void)state;
	assert_int_equal(size(1, "stdout"), 0);
	assert_int_equal(size(1, "stderr"), 0);
	print(s, &c, SPOOL_STDOUT, 10);
	assert_false(c.files[SPOOL_STDOUT].truncated);
	print(s, &c, SPOOL_STDERR, 7);
	print(s, &c, SPOOL_STDERR, 7);
	print(s, &c, SPOOL_STDERR, 7);
	print(s, &c, SPOOL_STDOUT, 1);
	assert_int_equal(size(1, "stdout"), 10);
	assert_int_equal(size(1, "stderr"), 10);
	assert_true(c.files[SPOOL_STDOUT].truncated);
	assert_true(c.files[SPOOL_STDERR].truncated);
	assert_int_equal(c.files[SPOOL_STDOUT].bytes, 11);
	assert_int_equal(c.files[SPOOL_STDERR].bytes, 21);
	c.other = 70;
	assert_int_equal(spool_record(s, &c, "{\"a\":1}", 7), 0);
	assert_int_equal(size(1, "result.json"), 7);
	assert_int_equal(size(1, "result.json.new"), -1);
	assert_int_equal(spool_record(s, &c, "", 0), -ENOENT);
	spool_finish(s, &c);
	assert_int_equal(spool_bytes(s), 20 + 70 + 7);
	spool_free(s);
}

static void test_oldest_make_room(void **state)
{
	struct spool *s = make(100, 100);
	struct spool_cmd c;

	(void)state;
	for (uint64_t n = 1; n <= 4; n++) {
		c = begin(s, n, 1000);
		print(s, &c, SPOOL_STDOUT, 25);
		spool_finish(s, &c);
	}
	assert_int_equal(nremoved, 0);
	assert_int_equal(spool_bytes(s), 100);
	c = begin(s, 5, 1000);
	print(s, &c, SPOOL_STDOUT, 1);
	assert_int_equal(nremoved, 1);
	assert_int_equal(removed[0], 1);
	assert_int_equal(size(1, "stdout"), -1);
	assert_int_equal(faccessat(dirfd_, "exec/1", F_OK, 0), -1);
	print(s, &c, SPOOL_STDOUT, 99); /* all the others */
	assert_int_equal(nremoved, 4);
	assert_false(c.files[SPOOL_STDOUT].truncated);
	print(s, &c, SPOOL_STDERR, 1); /* nothing left to remove */
	assert_true(c.files[SPOOL_STDERR].truncated);
	assert_int_equal(spool_bytes(s), 100);
	spool_finish(s, &c);
	assert_int_equal(size(5, "stdout"), 100);
	spool_free(s);
}

static void test_newest_are_kept(void **state)
{
	struct spool *s = make(1000 * KIB, 3);

	(void)state;
	for (uint64_t n = 1; n <= 10; n++) {
		struct spool_cmd c = begin(s, n, 1000);

		spool_finish(s, &c);
	}
	assert_int_equal(nremoved, 7);
	assert_int_equal(removed[6], 7);
	assert_int_equal(size(8, "stdout"), 0);
	spool_free(s);
}

static void test_what_an_earlier_box_left(void **state)
{
	struct spool *s;
	struct spool_cmd c = SPOOL_CMD_INIT;

	(void)state;
	for (uint64_t n = 9; n <= 11; n++) {
		folder(n);
		file(n, "cmd", 10);
		file(n, "stdout", 30);
		file(n, "result.json", 10);
	}
	folder(12); /* not begun yet */
	file(12, "cmd", 1000);
	assert_int_equal(mkdirat(dirfd_, "exec/name", 0700), 0);
	s = make(150, 100);
	assert_int_equal(spool_bytes(s), 150);
	assert_int_equal(spool_last(s), 11);
	c.n = 12;
	assert_int_equal(spool_open(s, &c, 1000), 0);
	print(s, &c, SPOOL_STDOUT, 1);
	assert_int_equal(nremoved, 1);
	assert_int_equal(removed[0], 9); /* by number, not by name */
	spool_finish(s, &c);
	spool_free(s);
}

static void test_enoent_no_folder(void **state)
{
	struct spool *s = make(1000, 100);
	struct spool_cmd c = SPOOL_CMD_INIT;

	(void)state;
	c.n = 5;
	assert_int_equal(spool_open(s, &c, 1000), -ENOENT);
	assert_int_equal(c.record_fd, -1);
	spool_free(s);
}

static void test_no_link_is_followed(void **state)
{
	struct spool *s = make(1000, 100);
	struct spool_cmd c = SPOOL_CMD_INIT;

	(void)state;
	folder(1);
	c.n = 1;
	assert_int_equal(symlinkat("/tmp/crucible-must-not-be", dirfd_, "exec/1/stdout"), 0);
	assert_int_equal(spool_open(s, &c, 1000), -ELOOP);
	spool_free(s);
}

static void test_enospc_then_cut(void **state)
{
	struct spool *s;
	struct spool_cmd c;
	AUTO_FREE char *data = malloc(256 * KIB);
	int r;

	(void)state;
	if (mount("none", dir, "tmpfs", 0, "size=64k") < 0) {
		print_message("no mount here: %s\n", strerror(errno));
		if (getenv("CRUCIBLE_MUST_RUN") && strcmp(getenv("CRUCIBLE_MUST_RUN"), "1") == 0)
			fail_msg("not allowed to skip");
		skip();
	}
	close(dirfd_);
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(dirfd_, "exec", 0700), 0);
	s = make(1000 * KIB, 100);
	c = begin(s, 1, 1000 * KIB);
	memset(data, 'x', 256 * KIB);
	r = spool_write(s, &c, SPOOL_STDOUT, data, 256 * KIB);
	assert_int_equal(r, -ENOSPC);
	assert_true(c.files[SPOOL_STDOUT].truncated);
	assert_int_equal(c.files[SPOOL_STDOUT].bytes, 256 * KIB);
	assert_true(c.files[SPOOL_STDOUT].kept <= 64 * KIB);
	assert_int_equal(size(1, "stdout"), (long)c.files[SPOOL_STDOUT].kept);
	/* What comes later is counted and not kept: the file holds the first part. */
	assert_int_equal(spool_write(s, &c, SPOOL_STDOUT, data, 10), 0);
	assert_int_equal(c.files[SPOOL_STDOUT].bytes, 256 * KIB + 10);
	spool_cut(s, &c);
	assert_int_equal(size(1, "stdout"), 0);
	assert_int_equal(spool_bytes(s), 0);
	assert_int_equal(fd_replace(dirfd_, "exec/1/result.json", data, 1000, 0600, false), 0);
	spool_finish(s, &c);
	spool_free(s);
	fd_close(&dirfd_);
	assert_int_equal(umount2(dir, MNT_DETACH), 0);
}

/* -- the console ------------------------------------------------------------------------------- */

struct fix {
	struct loop *loop;
	struct console *console;
	int far;
};

static struct fix console(uint64_t keep)
{
	struct fix f;
	struct err e = { 0 };
	int fds[2];

	assert_int_equal(loop_new(&f.loop), 0);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	f.far = fds[1];
	assert_int_equal(console_new(f.loop, fds[0], dirfd_, keep, &f.console, &e), 0);
	return f;
}

static void say(struct fix *f, const char *text, size_t len)
{
	for (size_t at = 0; at < len;) {
		size_t n = len - at < 4096 ? len - at : 4096;

		assert_int_equal(write(f->far, text + at, n), (ssize_t)n);
		at += n;
		assert_int_equal(loop_once(f->loop, 5000), 0);
	}
}

static void end(struct fix *f)
{
	console_free(f->console);
	fd_close(&f->far);
	loop_free(f->loop);
}

static void test_console_tail(void **state)
{
	static const char printed[] = "\r\n\033[31mfirst\033[0m line\r\n\r\n\tsec\001ond\xff\n\n";
	struct fix f = console(1000);
	char words[64], little[8];

	(void)state;
	console_tail(f.console, words, sizeof(words));
	assert_string_equal(words, "");
	say(&f, printed, sizeof(printed) - 1);
	console_tail(f.console, words, sizeof(words));
	assert_string_equal(words, "first line | second");
	console_tail(f.console, little, sizeof(little)); /* the end of it */
	assert_string_equal(little, " second");
	end(&f);
}

static void test_console_log_is_bounded(void **state)
{
	struct fix f = console(8192);
	AUTO_FREE char *line = malloc(1000), *text = NULL;
	struct stat st;
	uint64_t most = 0;
	size_t len;

	(void)state;
	for (int i = 0; i < 200; i++) {
		memset(line, 'a' + i % 26, 1000);
		snprintf(line, 1000, "%06d", i);
		say(&f, line, 1000);
		assert_int_equal(fstatat(dirfd_, "console.log", &st, 0), 0);
		if ((uint64_t)st.st_size > most)
			most = (uint64_t)st.st_size;
	}
	assert_true(most >= 2 * 8192 && most < 2 * 8192 + 1000);
	assert_int_equal(fd_slurp(dirfd_, "console.log", 1 << 20, &text, &len), 0);
	assert_true(len >= 8192);
	assert_non_null(memmem(text, len, "000199", 6));
	assert_null(memmem(text, len, "000100", 6));
	assert_int_equal(faccessat(dirfd_, "console.log.new", F_OK, 0), -1);
	end(&f);
	/* The next boot adds to it. */
	f = console(8192);
	say(&f, "again", 5);
	free(text);
	assert_int_equal(fd_slurp(dirfd_, "console.log", 1 << 20, &text, &len), 0);
	assert_memory_equal(text + len - 5, "again", 5);
	end(&f);
}

static void test_console_end_of_file(void **state)
{
	struct fix f = console(1000);

	(void)state;
	say(&f, "last", 4);
	fd_close(&f.far);
	assert_int_equal(loop_once(f.loop, 5000), 0);
	/* No longer watched: a round finds nothing to do. */
	assert_int_equal(loop_once(f.loop, 0), 0);
	console_drain(f.console);
	console_drain(NULL);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_cap_of_one_file_is_exact, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_oldest_make_room, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_newest_are_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_what_an_earlier_box_left, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_enoent_no_folder, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_link_is_followed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_enospc_then_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_console_tail, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_console_log_is_bounded, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_console_end_of_file, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
