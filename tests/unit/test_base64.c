/* SPDX-License-Identifier: Apache-2.0 */
/* base64: the examples of RFC 4648, round trips of every length, and what is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "base/base64.h"
#include "base/fd.h"

static void test_examples_of_the_rfc(void **state)
{
	static const char *const pairs[][2] = { { "", "" },
						{ "f", "Zg==" },
						{ "fo", "Zm8=" },
						{ "foo", "Zm9v" },
						{ "foob", "Zm9vYg==" },
						{ "fooba", "Zm9vYmE=" },
						{ "foobar", "Zm9vYmFy" } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		size_t len = strlen(pairs[i][1]), n = 99;
		uint8_t back[16];
		struct buf out;

		buf_init(&out, 64);
		assert_int_equal(base64_add(&out, pairs[i][0], strlen(pairs[i][0])), 0);
		assert_string_equal(buf_str(&out), pairs[i][1]);
		assert_int_equal(base64_check(pairs[i][1], len, &n), 0);
		assert_int_equal(n, strlen(pairs[i][0]));
		assert_int_equal(base64_decode(pairs[i][1], len, back), n);
		assert_memory_equal(back, pairs[i][0], n);
		buf_fini(&out);
	}
}

static void test_round_trip_in_pieces(void **state)
{
	uint8_t bytes[257], back[sizeof(bytes) + 3];

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 37);
	for (size_t len = 0; len <= sizeof(bytes); len++) {
		struct buf out;
		size_t n, got = 0;

		buf_init(&out, 1024);
		assert_int_equal(buf_adds(&out, "x"), 0);
		assert_int_equal(base64_add(&out, bytes, len), 0);
		assert_int_equal(base64_check((char *)out.data + 1, out.len - 1, &n), 0);
		assert_int_equal(n, len);
		for (size_t at = 1; at < out.len; at += 8)
			got += base64_decode((char *)out.data + at, out.len - at < 8 ? out.len - at : 8, back + got);
		assert_int_equal(got, len);
		assert_memory_equal(back, bytes, len);
		buf_fini(&out);
	}
}

static void test_no_base64_is_EINVAL(void **state)
{
	static const char *const wrong[] = { "A",    "AB",	 "ABC",	 "A===", "====", "A=BC",
					     "AB=C", "AB==CDEF", "AB-_", "AB C", "ABC\n" };
	size_t n;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(base64_check(wrong[i], strlen(wrong[i]), &n), -EINVAL);
	assert_int_equal(base64_check("AB\0D", 4, &n), -EINVAL);
}

static void test_no_room_is_EFBIG(void **state)
{
	struct buf out;

	(void)state;
	buf_init(&out, 7);
	assert_int_equal(base64_add(&out, "abcd", 4), -EFBIG);
	assert_int_equal(out.len, 0);
	assert_int_equal(base64_add(&out, "abc", 3), 0);
	buf_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples_of_the_rfc),
		cmocka_unit_test(test_round_trip_in_pieces),
		cmocka_unit_test(test_no_base64_is_EINVAL),
		cmocka_unit_test(test_no_room_is_EFBIG),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
