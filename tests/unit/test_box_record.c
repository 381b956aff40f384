/* SPDX-License-Identifier: Apache-2.0 */
/* result.json, byte by byte: its members, their order and their texts are an interface. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/json.h"
#include "vmm/box/box.h"

static char dir[200];
static int dirfd_;

static void put(const char *path, const void *data, size_t len)
{
	AUTO_FD fd = openat(dirfd_, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len), 0);
}

static int set_up(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "%s/test_box_record.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(dirfd_ >= 0);
	assert_int_equal(mkdirat(dirfd_, "exec", 0700), 0);
	assert_int_equal(mkdirat(dirfd_, "exec/1", 0700), 0);
	return 0;
}

static int tear_down(void **state)
{
	static const char *const files[] = { "exec/1/stdout", "exec/1/stderr", "exec/1/result.json" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		unlinkat(dirfd_, files[i], 0);
	unlinkat(dirfd_, "exec/1", AT_REMOVEDIR);
	unlinkat(dirfd_, "exec", AT_REMOVEDIR);
	close(dirfd_);
	return rmdir(dir);
}

/* The record's text; caller frees. */
static char *write_and_read(const struct box_record *r)
{
	struct err e = { 0 };
	char *text;

	if (box_record_write(dirfd_, r, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(fd_slurp(dirfd_, "exec/1/result.json", 1 << 20, &text, NULL), 0);
	return text;
}

static struct box_record plain(void)
{
	static char *argv[] = { (char *)"/bin/sh", (char *)"/run/x", NULL };

	return (struct box_record){ .n = 1,
				    .sandbox = "a",
				    .argv = argv,
				    .signal = "",
				    .error = "",
				    .engine = "qemu",
				    .accel = "tcg",
				    .network = "none",
				    .unenforced = "" };
}

static void test_golden(void **state)
{
	struct box_record r = plain();
	char *text;

	(void)state;
	put("exec/1/stdout", "1024\n", 5);
	put("exec/1/stderr", "", 0);
	r.started_wall_ns = 1769860800123456789ull;
	r.duration_ns = 247999999;
	r.queued_ns = 3500000;
	r.stdout_bytes = 5;
	r.unenforced = "io,pids of the host";
	r.usage_json = "{\"cpu_user_ms\":180,\"cpu_sys_ms\":40,\"peak_memory_bytes\":35389440,\"page_faults_major\":2,"
		       "\"context_switches_involuntary\":14,\"io_read_bytes\":1,\"io_write_bytes\":9007199254740993}";
	text = write_and_read(&r);
	assert_string_equal(
		text,
		"{\"exec\":1,\"sandbox\":\"a\",\"argv\":[\"/bin/sh\",\"/run/x\"],\"exit_code\":0,\"signal\":\"\",\"timed_out\":false,"
		"\"oom_killed\":false,\"cancelled\":false,\"error\":\"\",\"started_at\":\"2026-01-31T12:00:00.123Z\",\"duration_ms\":247,"
		"\"queued_ms\":3,\"stdout\":\"1024\\n\",\"stderr\":\"\",\"stdout_bytes\":5,\"stderr_bytes\":0,\"stdout_truncated\":false,"
		"\"stderr_truncated\":false,\"usage\":{\"cpu_user_ms\":180,\"cpu_sys_ms\":40,\"peak_memory_bytes\":35389440,"
		"\"page_faults_major\":2,\"context_switches_involuntary\":14,\"io_read_bytes\":1,\"io_write_bytes\":9007199254740993},"
		"\"isolation\":{\"engine\":\"qemu\",\"accel\":\"tcg\",\"network\":\"none\",\"unenforced\":[\"io\",\"pids of the host\"]}}\n");
	free(text);
}

static void test_golden_never_begun(void **state)
{
	struct box_record r = plain();
	char *text;

	(void)state;
	r.argv = NULL;
	r.exit_code = -1;
	r.cancelled = true;
	r.error = "a \"quoted\" word";
	text = write_and_read(&r);
	assert_string_equal(
		text,
		"{\"exec\":1,\"sandbox\":\"a\",\"argv\":[],\"exit_code\":-1,\"signal\":\"\",\"timed_out\":false,"
		"\"oom_killed\":false,\"cancelled\":true,\"error\":\"a \\\"quoted\\\" word\",\"started_at\":\"\",\"duration_ms\":0,"
		"\"queued_ms\":0,\"stdout\":\"\",\"stderr\":\"\",\"stdout_bytes\":0,\"stderr_bytes\":0,\"stdout_truncated\":false,"
		"\"stderr_truncated\":false,\"usage\":{\"cpu_user_ms\":0,\"cpu_sys_ms\":0,\"peak_memory_bytes\":0,"
		"\"page_faults_major\":0,\"context_switches_involuntary\":0,\"io_read_bytes\":0,\"io_write_bytes\":0},"
		"\"isolation\":{\"engine\":\"qemu\",\"accel\":\"tcg\",\"network\":\"none\",\"unenforced\":[]}}\n");
	free(text);
}

/* The texts of a record; *ret_o owns them. */
static const char *member(const char *text, const char *key, struct json_object **ret_o)
{
	const char *v = NULL;

	assert_int_equal(json_parse(text, strlen(text), ret_o, NULL), 0);
	assert_int_equal(json_get_str(*ret_o, key, &v, NULL), 0);
	assert_non_null(v);
	return v;
}

static void test_invalid_utf8_is_replaced(void **state)
{
	struct box_record r = plain();
	AUTO_JSON *o = NULL;
	AUTO_FREE char *text = NULL;

	(void)state;
	put("exec/1/stdout", "a\xff\xc3\x28\0z", 6);
	r.stdout_bytes = 6;
	text = write_and_read(&r);
	assert_string_equal(member(text, "stdout", &o), "a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbdz");
}

static void test_text_is_cut_at_a_character(void **state)
{
	/* Each time the 64 KiB end inside of the character, and once right behind it. */
	static const char *const chars[] = { "ä", "€", "😀" };
	char *data = malloc(BOX_RECORD_TEXT_MAX + 8);

	(void)state;
	for (size_t c = 0; c < ARRAY_LEN(chars); c++)
		for (size_t inside = 1; inside <= strlen(chars[c]); inside++) {
			struct box_record r = plain();
			size_t at = BOX_RECORD_TEXT_MAX - inside, n = strlen(chars[c]);
			AUTO_JSON *o = NULL;
			AUTO_FREE char *text = NULL;
			const char *v;

			memset(data, 'x', BOX_RECORD_TEXT_MAX + 8);
			memcpy(data + at, chars[c], n);
			put("exec/1/stdout", data, BOX_RECORD_TEXT_MAX + 8);
			r.stdout_bytes = BOX_RECORD_TEXT_MAX + 8;
			text = write_and_read(&r);
			v = member(text, "stdout", &o);
			assert_int_equal(strlen(v), inside == n ? BOX_RECORD_TEXT_MAX : at);
			assert_null(strstr(v, "\xef\xbf\xbd"));
		}
	free(data);
}

static void test_exactly_64_kib(void **state)
{
	char *data = malloc(BOX_RECORD_TEXT_MAX);
	struct box_record r = plain();
	AUTO_JSON *o = NULL;
	AUTO_FREE char *text = NULL;

	(void)state;
	memset(data, 'y', BOX_RECORD_TEXT_MAX);
	/* Half a character at the very end of what was printed: printed so, shown so. */
	data[BOX_RECORD_TEXT_MAX - 1] = (char)0xc3;
	put("exec/1/stdout", data, BOX_RECORD_TEXT_MAX);
	r.stdout_bytes = BOX_RECORD_TEXT_MAX;
	text = write_and_read(&r);
	assert_int_equal(strlen(member(text, "stdout", &o)), BOX_RECORD_TEXT_MAX - 1 + 3);
	free(data);
}

static void test_hostile_usage(void **state)
{
	static const char *const cases[] = { "",
					     "[]",
					     "{",
					     "\"x\"",
					     "{\"cpu_user_ms\":-5,\"cpu_sys_ms\":\"1\",\"x\":{\"y\":1}}",
					     "{\"cpu_user_ms\":18446744073709551615}" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct box_record r = plain();
		AUTO_FREE char *text = NULL;

		r.usage_json = cases[i];
		text = write_and_read(&r);
		assert_non_null(strstr(text, "\"usage\":{\"cpu_user_ms\":0,\"cpu_sys_ms\":0,\"peak"));
		assert_null(strstr(text, "\"y\""));
	}
}

static void test_endless_argv_is_cut(void **state)
{
	AUTO_FREE char *big = calloc(1, BOX_RECORD_TEXT_MAX + 1), *text = NULL;
	char *argv[] = { (char *)"a", big, (char *)"b", NULL };
	struct box_record r = plain();

	(void)state;
	memset(big, 'x', BOX_RECORD_TEXT_MAX);
	r.argv = argv;
	text = write_and_read(&r);
	assert_non_null(strstr(text, "\"argv\":[\"a\",\"…\"],"));
}

static void test_enoent_no_folder(void **state)
{
	struct box_record r = plain();
	struct err e = { 0 };

	(void)state;
	r.n = 2;
	assert_int_equal(box_record_write(dirfd_, &r, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "command 2"));
}

static void test_replaces_in_one_step(void **state)
{
	struct box_record r = plain();
	struct stat st;

	(void)state;
	free(write_and_read(&r));
	r.error = "again";
	free(write_and_read(&r));
	assert_int_equal(fstatat(dirfd_, "exec/1/result.json", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0640);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_golden, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_golden_never_begun, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_invalid_utf8_is_replaced, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_text_is_cut_at_a_character, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_exactly_64_kib, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_hostile_usage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_endless_argv_is_cut, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_enoent_no_folder, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_replaces_in_one_step, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
