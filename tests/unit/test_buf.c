/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"

static void test_empty(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 10);
	assert_null(b.data);
	assert_string_equal(buf_str(&b), "");
	assert_int_equal(b.len, 0);
	buf_drop(&b, 5);
	buf_reset(&b);
	buf_fini(&b);
	buf_fini(&b);
	buf_init(&b, 0);
	assert_string_equal(buf_str(&b), "");
	assert_int_equal(buf_add(&b, "", 0), 0);
	assert_int_equal(buf_add(&b, "x", 1), -EFBIG);
	buf_fini(&b);
}

static void test_efbig_leaves_it_as_before(void **state)
{
	struct buf b;
	uint8_t *p;

	(void)state;
	buf_init(&b, 10);
	assert_int_equal(buf_adds(&b, "12345"), 0);
	assert_int_equal(buf_adds(&b, "678901"), -EFBIG);
	assert_int_equal(buf_addf(&b, "%d", 678901), -EFBIG);
	assert_int_equal(buf_reserve(&b, SIZE_MAX, &p), -EFBIG);
	assert_string_equal(buf_str(&b), "12345");
	assert_int_equal(buf_addf(&b, "%s", "67890"), 0); /* full to the last byte, and still a NUL behind it */
	assert_int_equal(b.len, 10);
	assert_string_equal(buf_str(&b), "1234567890");
	assert_int_equal(buf_adds(&b, ""), 0);
	assert_int_equal(buf_adds(&b, "x"), -EFBIG);
	buf_fini(&b);
}

static void test_grows_and_drops(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 1u << 20);
	for (int i = 0; i < 10000; i++)
		assert_int_equal(buf_addf(&b, "%05d", i), 0);
	assert_int_equal(b.len, 50000);
	buf_drop(&b, 5 * 9990);
	assert_int_equal(b.len, 50);
	assert_string_equal(buf_str(&b) + 45, "09999");
	buf_drop(&b, 1000);
	assert_int_equal(b.len, 0);
	buf_reset(&b);
	assert_null(b.data); /* that much memory is not kept */
	assert_int_equal(buf_adds(&b, "again"), 0);
	buf_reset(&b);
	assert_non_null(b.data); /* this is */
	assert_int_equal(b.len, 0);
	buf_fini(&b);
}

static void test_reserve_does_not_move_len(void **state)
{
	struct buf b;
	uint8_t *p;

	(void)state;
	buf_init(&b, 100);
	assert_int_equal(buf_adds(&b, "ab"), 0);
	assert_int_equal(buf_reserve(&b, 98, &p), 0);
	assert_int_equal(b.len, 2);
	p[0] = 'c';
	p[1] = 'd';
	b.len += 2;
	assert_string_equal(buf_str(&b), "abcd");
	buf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_efbig_leaves_it_as_before),
		cmocka_unit_test(test_grows_and_drops),
		cmocka_unit_test(test_reserve_does_not_move_len),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
