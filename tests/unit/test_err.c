/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

static void test_set_returns_code_and_keeps_errno(void **state)
{
	struct err e = { 0 };

	(void)state;
	errno = EXDEV;
	assert_int_equal(err_set(&e, -ENOENT, "snapshot %s: open", "s1"), -ENOENT);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(e.code, -ENOENT);
	assert_string_equal(e.msg, "snapshot s1: open");
	assert_int_equal(err_set(NULL, -EIO, "nobody listens"), -EIO);
}

static void test_control_characters_replaced(void **state)
{
	struct err e = { 0 };

	(void)state;
	err_set(&e, -EINVAL, "a\nb\tc\x7f\x1b[31m");
	assert_string_equal(e.msg, "a?b?c??[31m");
}

static void test_long_text_cut_between_characters(void **state)
{
	char text[1024] = "";
	struct err e = { 0 };
	size_t n;

	(void)state;
	/* Three bytes a character: wherever the limit falls, none is halved. */
	for (int pad = 0; pad < 3; pad++) {
		memset(text, 'x', (size_t)pad);
		for (size_t i = 0; i < 200; i++)
			memcpy(text + pad + 3 * i, "\xe2\x82\xac", 4);
		err_set(&e, -EFBIG, "%s", text);
		n = strlen(e.msg);
		assert_true(n < sizeof(e.msg) && n >= sizeof(e.msg) - 4);
		assert_int_equal((n - (size_t)pad) % 3, 0);
		assert_int_equal(strncmp(e.msg, text, n), 0);
	}
	memset(text, 'y', 319);
	text[319] = '\0'; /* fits exactly */
	err_set(&e, -EFBIG, "%s", text);
	assert_string_equal(e.msg, text);
}

static void test_arguments_may_be_the_old_words(void **state)
{
	struct err e = { 0 };

	(void)state;
	err_set(&e, -EIO, "inner");
	err_set(&e, -EPERM, "outer: %s", e.msg);
	assert_string_equal(e.msg, "outer: inner");
}

static void test_wrap(void **state)
{
	struct err e = { 0 };

	(void)state;
	err_set(&e, -ENOSPC, "write: full");
	errno = EXDEV;
	assert_int_equal(err_wrap(&e, "snapshot %d", 7), -ENOSPC);
	assert_int_equal(errno, EXDEV);
	assert_string_equal(e.msg, "snapshot 7: write: full");
	assert_int_equal(err_wrap(NULL, "x"), -EIO);
	e = (struct err){ 0 };
	assert_int_equal(err_wrap(&e, "x"), -EIO);
	for (int i = 0; i < 100; i++)
		err_wrap(&e, "level %d", i);
	assert_true(strlen(e.msg) < sizeof(e.msg));
	assert_int_equal(strncmp(e.msg, "level 99: level 98: ", 20), 0);
}

static void test_name_never_null(void **state)
{
	(void)state;
	for (int code = 0; code < 4096; code++)
		assert_true(err_name(-code) && err_name(-code)[0]);
	assert_string_equal(err_name(-EDQUOT), "a limit or the policy says no more");
	assert_string_equal(err_name(0), "ok");
	assert_non_null(err_name(12345));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set_returns_code_and_keeps_errno),
		cmocka_unit_test(test_control_characters_replaced),
		cmocka_unit_test(test_long_text_cut_between_characters),
		cmocka_unit_test(test_arguments_may_be_the_old_words),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_name_never_null),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
