/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/name.h"

static void test_names(void **state)
{
	static const char *const good[] = { "a", "0", "A.b_c-9", "a..", "x-" };
	static const char *const bad[] = { "", ".", "..", "-a", "_a", "a/b", "a b", "a\n", "\xc3\xa4", "a\x7f", "a:b" };
	char name[NAME_LEN_MAX + 2];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_int_equal(name_check(good[i]), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(name_check(bad[i]), -EINVAL);
	memset(name, 'a', sizeof(name));
	name[NAME_LEN_MAX + 1] = '\0';
	assert_int_equal(name_check(name), -ENAMETOOLONG);
	name[NAME_LEN_MAX] = '\0';
	assert_int_equal(name_check(name), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
