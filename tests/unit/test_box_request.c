/* SPDX-License-Identifier: Apache-2.0 */
/* What may stand in `cmd`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "vmm/box/box.h"

static struct box_request good(const char *text)
{
	struct box_request r = { 0 };
	struct err e = { 0 };
	int code = box_request_parse(text, strlen(text), &r, &e);

	if (code < 0)
		fail_msg("%s: %s", text, e.msg);
	return r;
}

static void bad(const char *text, const char *words)
{
	struct box_request r;
	struct err e = { 0 };

	if (box_request_parse(text, strlen(text), &r, &e) != -EINVAL)
		fail_msg("%s: was taken", text);
	if (!strstr(e.msg, words))
		fail_msg("%s: \"%s\" does not hold \"%s\"", text, e.msg, words);
}

static void script_is(const char *text, const char *want)
{
	struct box_request r = good(text);

	assert_true(r.script);
	assert_null(r.argv);
	assert_int_equal(r.text_len, strlen(want));
	assert_string_equal(r.text, want);
	box_request_fini(&r);
}

static void test_text_is_a_script(void **state)
{
	(void)state;
	script_is("echo hi", "echo hi");
	script_is("\n  echo hi\n\n", "\n  echo hi\n\n");
	script_is("#!/usr/bin/python3 -u\nprint(1)\n", "#!/usr/bin/python3 -u\nprint(1)\n");
	script_is("[ -e / ] && echo yes", "[ -e / ] && echo yes");
}

static void test_byte_order_mark_and_crlf(void **state)
{
	(void)state;
	script_is("\xef\xbb\xbf"
		  "echo hi\n",
		  "echo hi\n");
	script_is("#!/bin/sh\r\necho hi\r\n", "#!/bin/sh\necho hi\n");
	script_is("echo a\r\necho b", "echo a\necho b");
	/* Not every line: then it is meant. */
	script_is("echo a\r\necho b\n", "echo a\r\necho b\n");
	script_is("printf 'a\rb'", "printf 'a\rb'");
	script_is("\r\n\r\nx\r\r\n", "\n\nx\r\n");
}

static void test_einval_blank(void **state)
{
	(void)state;
	bad("", "blank");
	bad(" \t\r\n\v\f ", "blank");
	bad("\xef\xbb\xbf \n", "blank");
	bad("{\"script\":\" \\n\"}", "script: blank");
}

static void test_einval_nul(void **state)
{
	struct box_request r;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(box_request_parse("echo\0hi", 7, &r, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "NUL"));
	bad("{\"argv\":[\"a\\u0000b\"]}", "argv[0]");
	bad("{\"script\":\"a\\u0000b\"}", "script");
	bad("{\"argv\":[\"a\"],\"cwd\":\"/a\\u0000b\"}", "cwd");
	bad("{\"argv\":[\"a\"],\"env\":{\"A\":\"\\u0000\"}}", "env: A");
}

static void test_einval_too_long(void **state)
{
	char *text = malloc(BOX_CMD_MAX + 1);
	struct box_request r;
	struct err e = { 0 };

	(void)state;
	memset(text, 'x', BOX_CMD_MAX + 1);
	assert_int_equal(box_request_parse(text, BOX_CMD_MAX + 1, &r, &e), -EINVAL);
	assert_int_equal(box_request_parse(text, BOX_CMD_MAX, &r, &e), 0);
	assert_int_equal(r.text_len, BOX_CMD_MAX);
	box_request_fini(&r);
	free(text);
}

static void test_einval_too_many_values(void **state)
{
	AUTO_FREE char *text = malloc(BOX_CMD_MAX);
	size_t len = (size_t)sprintf(text, "{\"argv\":[\"a,b\\\",\"");

	(void)state;
	while (len + 5 < BOX_CMD_MAX)
		len += (size_t)sprintf(text + len, ",\"\"");
	sprintf(text + len, "]}");
	bad(text, "too many values");
}

static void test_request_whole(void **state)
{
	struct box_request r = good(
		" \n{\"argv\":[\"/bin/echo\",\"a b\",\"\"],\"env\":{\"A\":\"1\",\"B\":\"\"},\"cwd\":\"/tmp\",\"user\":\"me:us\","
		"\"timeout_s\":1.5,\"stdin\":\"x\\u0000y\",\"tty\":{\"rows\":30,\"cols\":100},\"output_mib\":3}");

	(void)state;
	assert_false(r.script);
	assert_string_equal(r.argv[0], "/bin/echo");
	assert_string_equal(r.argv[1], "a b");
	assert_string_equal(r.argv[2], "");
	assert_null(r.argv[3]);
	assert_string_equal(r.env[0], "A=1");
	assert_string_equal(r.env[1], "B=");
	assert_null(r.env[2]);
	assert_string_equal(r.cwd, "/tmp");
	assert_string_equal(r.user, "me:us");
	assert_int_equal(r.timeout_ns, 1500000000);
	assert_true(r.has_stdin);
	assert_int_equal(r.stdin_len, 3);
	assert_memory_equal(r.stdin_text, "x\0y", 3);
	assert_true(r.tty);
	assert_int_equal(r.rows, 30);
	assert_int_equal(r.cols, 100);
	assert_int_equal(r.output_mib, 3);
	box_request_fini(&r);
	box_request_fini(&r); /* twice is fine */
}

static void test_request_little(void **state)
{
	struct box_request r = good("{\"script\":\"#!/bin/sh\\r\\necho \\u00e4\\r\\n\"}");

	(void)state;
	assert_true(r.script);
	assert_string_equal(r.text, "#!/bin/sh\necho ä\n");
	assert_false(r.has_stdin);
	assert_int_equal(r.timeout_ns, 0);
	box_request_fini(&r);
	r = good("{\"argv\":[\"a\"],\"tty\":{},\"timeout_s\":1e-12,\"stdin\":\"\"}");
	assert_true(r.tty);
	assert_int_equal(r.rows, 24);
	assert_int_equal(r.cols, 80);
	assert_int_equal(r.timeout_ns, 1); /* more than 0 is not the default */
	assert_true(r.has_stdin);
	assert_int_equal(r.stdin_len, 0);
	box_request_fini(&r);
}

static void test_einval_requests(void **state)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		{ "{", "must be a JSON request" },
		{ "{ echo a; echo b; }", "begins with '{'" },
		{ "{\"argv\":[\"a\"]} x", "column 16" },
		{ "{}", "either argv or script" },
		{ "{\"argv\":[\"a\"],\"script\":\"b\"}", "either argv or script" },
		{ "{\"argv\":[]}", "argv" },
		{ "{\"argv\":\"ls\"}", "argv" },
		{ "{\"argv\":[1]}", "argv[0]" },
		{ "{\"argv\":[\"a\",null]}", "argv[1]" },
		{ "{\"argv\":[\"\"]}", "argv[0]: empty" },
		{ "{\"script\":1}", "script" },
		{ "{\"argv\":[\"a\"],\"wat\":1}", "wat: unknown key" },
		{ "{\"argv\":[\"a\"],\"env\":[]}", "env" },
		{ "{\"argv\":[\"a\"],\"env\":{\"A\":1}}", "env: A" },
		{ "{\"argv\":[\"a\"],\"env\":{\"\":\"x\"}}", "no name of a variable" },
		{ "{\"argv\":[\"a\"],\"env\":{\"A=B\":\"x\"}}", "no name of a variable" },
		{ "{\"argv\":[\"a\"],\"cwd\":\"tmp\"}", "cwd: must be an absolute path" },
		{ "{\"argv\":[\"a\"],\"cwd\":\"\"}", "cwd: empty" },
		{ "{\"argv\":[\"a\"],\"cwd\":1}", "cwd" },
		{ "{\"argv\":[\"a\"],\"user\":\"\"}", "user: empty" },
		{ "{\"argv\":[\"a\"],\"timeout_s\":0}", "timeout_s" },
		{ "{\"argv\":[\"a\"],\"timeout_s\":-1}", "timeout_s" },
		{ "{\"argv\":[\"a\"],\"timeout_s\":1e300}", "timeout_s" },
		{ "{\"argv\":[\"a\"],\"timeout_s\":\"1\"}", "timeout_s: must be a number" },
		{ "{\"argv\":[\"a\"],\"stdin\":1}", "stdin" },
		{ "{\"argv\":[\"a\"],\"tty\":true}", "tty" },
		{ "{\"argv\":[\"a\"],\"tty\":{\"rows\":0}}", "rows" },
		{ "{\"argv\":[\"a\"],\"tty\":{\"rows\":70000}}", "rows" },
		{ "{\"argv\":[\"a\"],\"tty\":{\"x\":1}}", "tty: x: unknown key" },
		{ "{\"argv\":[\"a\"],\"output_mib\":0}", "output_mib" },
		{ "{\"argv\":[\"a\"],\"output_mib\":1.5}", "output_mib" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		bad(cases[i].text, cases[i].words);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text_is_a_script), cmocka_unit_test(test_byte_order_mark_and_crlf),
		cmocka_unit_test(test_einval_blank),	 cmocka_unit_test(test_einval_nul),
		cmocka_unit_test(test_einval_too_long),	 cmocka_unit_test(test_einval_too_many_values),
		cmocka_unit_test(test_request_whole),	 cmocka_unit_test(test_request_little),
		cmocka_unit_test(test_einval_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
