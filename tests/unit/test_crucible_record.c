/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as the tree takes them, records as it gives them, and our exit code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/fd.h"
#include "tools/crucible/record.h"
#include "tools/crucible/request.h"

static void test_exit_codes(void **state)
{
	static const struct {
		const char *text;
		int code;
		const char *words; /* a part; "" for none */
	} cases[] = {
		{ "{\"exit_code\":0}", 0, "" },
		{ "{\"exit_code\":3}", 3, "" },
		{ "{\"exit_code\":255}", 255, "" },
		{ "{\"exit_code\":-1,\"signal\":\"SIGKILL\"}", 137, "" },
		{ "{\"exit_code\":-1,\"signal\":\"SIGSEGV\"}", 139, "" },
		{ "{\"exit_code\":-1,\"signal\":\"SIG35\"}", 128 + 35, "" },
		{ "{\"exit_code\":-1,\"signal\":\"SIGKILL\",\"timed_out\":true}", 124, "time was up" },
		{ "{\"exit_code\":0,\"timed_out\":true}", 124, "time was up" },
		{ "{\"exit_code\":-1,\"signal\":\"SIGKILL\",\"oom_killed\":true}", 137, "out of memory" },
		{ "{\"exit_code\":1,\"oom_killed\":true}", 1, "out of memory" },
		{ "{\"exit_code\":-1,\"error\":\"the guest was lost\"}", 1, "the guest was lost" },
		{ "{\"exit_code\":-1,\"signal\":\"\",\"cancelled\":true}", 1, "cancelled" },
		{ "{\"exit_code\":-1}", 1, "without an exit code" },
		{ "{\"exit_code\":-1,\"signal\":\"NONSENSE\"}", 1, "without an exit code" },
		{ "{\"exit_code\":-1,\"error\":\"a\\u001b[31m\\nb\"}", 1, "a?[31m?b" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct record r;
		struct err e = { 0 };
		const char *words;

		assert_int_equal(record_parse(cases[i].text, strlen(cases[i].text), &r, &e), 0);
		if (record_exit_code(&r, &words) != cases[i].code || !strstr(words, cases[i].words) ||
		    !*words != !*cases[i].words)
			fail_msg("%s: %d, \"%s\"", cases[i].text, record_exit_code(&r, &words), words);
		record_fini(&r);
	}
}

/* A guest must not be able to make a success of something that is no record. */
static void test_what_is_no_record_is_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"{}",
		"[]",
		"{\"exit_code\":\"0\"}",
		"{\"exit_code\":0.5}",
		"{\"exit_code\":256}",
		"{\"exit_code\":-2}",
		"{\"exit_code\":4294967296}",
		"{\"exit_code\":0,\"signal\":9}",
		"{\"exit_code\":0,\"timed_out\":\"no\"}",
		"{\"exit_code\":0",
		"{\"exit_code\":0}{}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct record r;
		struct err e = { 0 };

		if (record_parse(texts[i], strlen(texts[i]), &r, &e) != -EINVAL ||
		    strncmp(e.msg, "result.json: ", 13) != 0)
			fail_msg("\"%s\" passed, or \"%s\"", texts[i], e.msg);
	}
}

static void assert_request(const struct request *q, const char *expected)
{
	struct err e = { 0 };
	struct buf out;

	buf_init(&out, 1 << 20);
	if (request_format(q, &out, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(buf_str(&out), expected);
	buf_fini(&out);
}

static void test_requests(void **state)
{
	static const char *const argv[] = { "sh", "-c", "echo \"a\" > /tmp/\xc3\xbc", NULL };
	static const char *const env[] = { "A=b=c", "EMPTY=", "LINES=a\nb" };
	const struct args_texts texts = { .v = (const char **)env, .n = 3 };

	(void)state;
	assert_request(&(struct request){ .argv = argv },
		       "{\"argv\":[\"sh\",\"-c\",\"echo \\\"a\\\" > /tmp/\xc3\xbc\"]}\n");
	assert_request(&(struct request){ .argv = argv, .term = "dumb" },
		       "{\"argv\":[\"sh\",\"-c\",\"echo \\\"a\\\" > /tmp/\xc3\xbc\"],\"env\":{\"TERM\":\"dumb\"}}\n");
	assert_request(
		&(struct request){ .argv = argv,
				   .env = &texts,
				   .cwd = "/x",
				   .user = "u",
				   .timeout_ms = 1500,
				   .tty = true,
				   .rows = 24,
				   .cols = 80,
				   .output_mib = 7,
				   .no_stdin = true },
		"{\"argv\":[\"sh\",\"-c\",\"echo \\\"a\\\" > /tmp/\xc3\xbc\"],"
		"\"env\":{\"A\":\"b=c\",\"EMPTY\":\"\",\"LINES\":\"a\\nb\"},\"cwd\":\"/x\",\"user\":\"u\",\"timeout_s\":1.500,"
		"\"stdin\":\"\",\"output_mib\":7,\"tty\":{\"rows\":24,\"cols\":80}}\n");
}

static void assert_refused(const struct request *q, const char *part)
{
	struct err e = { 0 };
	struct buf out;

	buf_init(&out, 1 << 20);
	assert_int_equal(request_format(q, &out, &e), -EINVAL);
	if (!strstr(e.msg, part))
		fail_msg("\"%s\"", e.msg);
	assert_int_equal(out.len, 0);
	buf_fini(&out);
}

static void test_requests_that_would_be_something_else(void **state)
{
	static const char *const good[] = { "true", NULL }, *const bad[] = { "cat", "\xff", NULL },
				 *const none[] = { NULL };
	static const char *const no_equals[] = { "A" }, *const no_name[] = { "=b" }, *const bad_value[] = { "A=\xff" },
				 *const bad_name[] = { "\xff=a" };

	(void)state;
	assert_refused(&(struct request){ .argv = none }, "empty");
	assert_refused(&(struct request){ .argv = bad }, "argument 1");
	assert_refused(&(struct request){ .argv = good, .cwd = "/\xff" }, "cwd");
	assert_refused(&(struct request){ .argv = good, .env = &(struct args_texts){ (const char **)no_equals, 1 } },
		       "\"A\"");
	assert_refused(&(struct request){ .argv = good, .env = &(struct args_texts){ (const char **)no_name, 1 } },
		       "KEY=VALUE");
	assert_refused(&(struct request){ .argv = good, .env = &(struct args_texts){ (const char **)bad_value, 1 } },
		       "UTF-8");
	assert_refused(&(struct request){ .argv = good, .env = &(struct args_texts){ (const char **)bad_name, 1 } },
		       "UTF-8");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit_codes),
		cmocka_unit_test(test_what_is_no_record_is_refused),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_requests_that_would_be_something_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
