/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/wire.h"

static void put_all(struct buf *b)
{
	buf_init(b, 1024);
	assert_int_equal(wire_put_u8(b, 0x12), 0);
	assert_int_equal(wire_put_u16(b, 0x3456), 0);
	assert_int_equal(wire_put_u32(b, 0x789abcde), 0);
	assert_int_equal(wire_put_u64(b, UINT64_C(0xf102030405060708)), 0);
	assert_int_equal(wire_put_bytes(b, "a\0b", 3), 0);
	assert_int_equal(wire_put_str(b, "text"), 0);
	assert_int_equal(wire_put_str(b, ""), 0);
}

static void test_round_trip(void **state)
{
	const char *p;
	char text[8];
	struct wire_rd r;
	struct buf b;
	size_t len;

	(void)state;
	put_all(&b);
	assert_memory_equal(b.data, "\x12\x56\x34\xde\xbc\x9a\x78\x08\x07\x06\x05\x04\x03\x02\xf1\x03\0\0\0a\0b", 22);
	wire_rd_init(&r, b.data, b.len);
	assert_int_equal(wire_u8(&r), 0x12);
	assert_int_equal(wire_u16(&r), 0x3456);
	assert_int_equal(wire_u32(&r), 0x789abcde);
	assert_true(wire_u64(&r) == UINT64_C(0xf102030405060708));
	p = wire_bytes(&r, 3, &len);
	assert_int_equal(len, 3);
	assert_memory_equal(p, "a\0b", 3);
	assert_int_equal(wire_done(&r), -EBADMSG); /* something is left */
	wire_str(&r, text, 5);
	assert_string_equal(text, "text");
	wire_str(&r, text, 1);
	assert_string_equal(text, "");
	assert_int_equal(wire_left(&r), 0);
	assert_int_equal(wire_done(&r), 0);
	buf_fini(&b);
}

/* Whatever is cut off, the end says so, and until then there are zeros. */
static void test_cut_anywhere_ebadmsg(void **state)
{
	struct wire_rd r;
	struct buf b;
	char text[8];
	size_t len;

	(void)state;
	put_all(&b);
	for (size_t n = 0; n < b.len; n++) {
		wire_rd_init(&r, b.data, n);
		wire_u8(&r);
		wire_u16(&r);
		wire_u32(&r);
		wire_u64(&r);
		wire_bytes(&r, 100, &len);
		wire_str(&r, text, sizeof(text));
		wire_str(&r, text, sizeof(text));
		assert_int_equal(wire_done(&r), -EBADMSG);
		assert_string_equal(text, "");
	}
	buf_fini(&b);
}

static void test_bad_stays_bad(void **state)
{
	struct wire_rd r;
	size_t len = 7;

	(void)state;
	wire_rd_init(&r, "\x01\x02", 2);
	assert_int_equal(wire_u32(&r), 0);
	assert_true(r.bad);
	assert_int_equal(wire_u8(&r), 0);
	assert_null(wire_raw(&r, 1));
	assert_null(wire_bytes(&r, 10, &len));
	assert_int_equal(len, 0);
	assert_int_equal(wire_left(&r), 0);
	assert_int_equal(wire_done(&r), -EBADMSG);
	wire_rd_init(&r, NULL, 0);
	assert_int_equal(wire_done(&r), 0);
	assert_null(wire_raw(&r, 0));
	assert_int_equal(wire_done(&r), 0);
	assert_int_equal(wire_u8(&r), 0);
	assert_int_equal(wire_done(&r), -EBADMSG);
}

static void test_lengths_checked(void **state)
{
	char text[4] = "???";
	struct wire_rd r;
	size_t len;

	(void)state;
	wire_rd_init(&r,
		     "\xff\xff\xff\xff"
		     "abc",
		     7);
	assert_null(wire_bytes(&r, SIZE_MAX, &len)); /* longer than the message */
	assert_true(r.bad);
	wire_rd_init(&r,
		     "\x03\0\0\0"
		     "abc",
		     7);
	assert_null(wire_bytes(&r, 2, &len)); /* longer than the caller wants */
	assert_true(r.bad);
	wire_rd_init(&r,
		     "\x04\0\0\0"
		     "abcd",
		     8);
	wire_str(&r, text, sizeof(text)); /* no room for the NUL */
	assert_true(r.bad);
	assert_string_equal(text, "");
	wire_rd_init(&r,
		     "\x03\0\0\0"
		     "a\0c",
		     7);
	wire_str(&r, text, sizeof(text)); /* a NUL inside */
	assert_true(r.bad);
	assert_string_equal(text, "");
	wire_rd_init(&r, "\0\0\0\0", 4);
	wire_str(&r, text, 0); /* not even an empty one fits */
	assert_true(r.bad);
}

static void test_put_efbig_both_or_nothing(void **state)
{
	struct buf b;

	(void)state;
	buf_init(&b, 6);
	assert_int_equal(wire_put_str(&b, "abc"), -EFBIG);
	assert_int_equal(b.len, 0);
	assert_int_equal(wire_put_str(&b, "ab"), 0);
	assert_int_equal(wire_put_u8(&b, 1), -EFBIG);
	assert_int_equal(b.len, 6);
	buf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_cut_anywhere_ebadmsg),
		cmocka_unit_test(test_bad_stays_bad),
		cmocka_unit_test(test_lengths_checked),
		cmocka_unit_test(test_put_efbig_both_or_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
