/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "snapstore/disk/nbd_proto.h"

static void test_greeting(void **state)
{
	uint8_t out[NBD_GREETING_BYTES];

	(void)state;
	assert_int_equal(nbd_greeting_put(out), sizeof(out));
	assert_memory_equal(out, "NBDMAGICIHAVEOPT\0\3", sizeof(out));
}

static void test_client_flags(void **state)
{
	bool no_zeroes = false;

	(void)state;
	assert_int_equal(nbd_client_parse((const uint8_t *)"\0\0\0\3", &no_zeroes), 0);
	assert_true(no_zeroes);
	assert_int_equal(nbd_client_parse((const uint8_t *)"\0\0\0\1", &no_zeroes), 0);
	assert_false(no_zeroes);
	assert_int_equal(nbd_client_parse((const uint8_t *)"\0\0\0\2", &no_zeroes), -EBADMSG);
	assert_int_equal(nbd_client_parse((const uint8_t *)"\0\0\0\7", &no_zeroes), -EBADMSG);
}

static void test_option_head(void **state)
{
	struct nbd_option_head o;

	(void)state;
	assert_int_equal(nbd_option_head_parse((const uint8_t *)"IHAVEOPT\0\0\0\7\0\0\1\2", &o), 0);
	assert_int_equal(o.option, NBD_OPT_GO);
	assert_int_equal(o.bytes, 0x102);
	assert_int_equal(nbd_option_head_parse((const uint8_t *)"IHAVEOPX\0\0\0\7\0\0\1\2", &o), -EBADMSG);
}

static void test_go(void **state)
{
	uint8_t big[4 + 300 + 2] = { 0, 0, 1, 44 };
	struct nbd_option_go go;
	static const struct {
		const char *bytes;
		size_t len;
		int code;
	} rows[] = {
		{ "\0\0\0\3abc\0\0", 9, 0 },
		{ "\0\0\0\3abc\0\1\0\3", 11, 0 },
		{ "\0\0\0\0\0\0", 6, 0 },
		{ "\0\0\0\3abc\0\1\0", 10, -EINVAL },
		{ "\0\0\0\3abc\0\0\0", 10, -EINVAL },
		{ "\0\0\0\3abc\0", 8, -EINVAL },
		{ "\0\0\0\4abc\0\0", 9, -EINVAL },
		{ "\xff\xff\xff\xff\0\0", 6, -EINVAL },
		{ "\0\0\0\3a\0c\0\0", 9, -EINVAL },
		{ "\0\0\0\0\0", 5, -EINVAL },
		{ "", 0, -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(nbd_option_go_parse((const uint8_t *)rows[i].bytes, rows[i].len, &go), rows[i].code);
	assert_int_equal(nbd_option_go_parse((const uint8_t *)rows[0].bytes, 9, &go), 0);
	assert_string_equal(go.name, "abc");
	memset(big + 4, 'n', 300);
	assert_int_equal(nbd_option_go_parse(big, sizeof(big), &go), -ENAMETOOLONG);
	assert_int_equal(nbd_option_name_parse((const uint8_t *)"", 0, &go), 0);
	assert_string_equal(go.name, "");
}

static void test_request(void **state)
{
	static const uint8_t bytes[NBD_REQUEST_BYTES] = { 0x25, 0x60, 0x95, 0x13, 0,   1,   0, 1, 'c', 'o',
							  'o',	'k',  'i',  'e',  '!', '!', 0, 0, 0,   1,
							  0,	0,    2,    0,	  0,   0,   3, 0 };
	uint8_t wrong[NBD_REQUEST_BYTES];
	struct nbd_request q;

	(void)state;
	assert_int_equal(nbd_request_parse(bytes, &q), 0);
	assert_int_equal(q.flags, NBD_CMD_FUA);
	assert_int_equal(q.command, NBD_CMD_WRITE);
	assert_int_equal(q.offset, 0x100000200);
	assert_int_equal(q.bytes, 0x300);
	memcpy(wrong, bytes, sizeof(wrong));
	wrong[3]++;
	assert_int_equal(nbd_request_parse(wrong, &q), -EBADMSG);
}

static void test_request_check(void **state)
{
	static const struct {
		struct nbd_request q;
		bool read_only;
		enum nbd_error error;
	} rows[] = {
		{ { .command = NBD_CMD_READ, .offset = 90, .bytes = 10 }, false, NBD_OK },
		{ { .command = NBD_CMD_READ, .offset = 91, .bytes = 10 }, false, NBD_EINVAL },
		{ { .command = NBD_CMD_READ, .offset = UINT64_MAX, .bytes = 10 }, false, NBD_EINVAL },
		{ { .command = NBD_CMD_WRITE, .offset = 0, .bytes = 101 }, false, NBD_EINVAL },
		{ { .command = NBD_CMD_WRITE, .bytes = 1, .flags = NBD_CMD_FUA }, false, NBD_OK },
		{ { .command = NBD_CMD_WRITE, .bytes = 1, .flags = NBD_CMD_NO_HOLE }, false, NBD_EINVAL },
		{ { .command = NBD_CMD_WRITE, .bytes = 1 }, true, NBD_EPERM },
		{ { .command = NBD_CMD_TRIM, .bytes = 100 }, false, NBD_OK },
		{ { .command = NBD_CMD_TRIM, .bytes = 100 }, true, NBD_EPERM },
		{ { .command = NBD_CMD_WRITE_ZEROES, .bytes = 1, .flags = NBD_CMD_NO_HOLE }, false, NBD_OK },
		{ { .command = NBD_CMD_WRITE_ZEROES, .bytes = 1, .flags = 16 }, false, NBD_EINVAL },
		{ { .command = NBD_CMD_FLUSH }, false, NBD_OK },
		{ { .command = NBD_CMD_FLUSH, .bytes = 1 }, false, NBD_EINVAL },
		{ { .command = 5 }, false, NBD_EINVAL },
		{ { .command = 7 }, false, NBD_EINVAL },
		{ { .command = 0xffff }, false, NBD_EINVAL },
	};
	struct nbd_request large = { .command = NBD_CMD_READ, .bytes = NBD_REQUEST_MAX + 1 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(nbd_request_check(&rows[i].q, 100, rows[i].read_only), rows[i].error);
	assert_int_equal(nbd_request_check(&large, 1ull << 40, false), NBD_EINVAL);
	large.bytes--;
	assert_int_equal(nbd_request_check(&large, 1ull << 40, false), NBD_OK);
}

static void test_errors(void **state)
{
	(void)state;
	assert_int_equal(nbd_error_of(0), NBD_OK);
	assert_int_equal(nbd_error_of(-ENOSPC), NBD_ENOSPC);
	assert_int_equal(nbd_error_of(-EDQUOT), NBD_EPERM);
	assert_int_equal(nbd_error_of(-EROFS), NBD_EPERM);
	assert_int_equal(nbd_error_of(-EINVAL), NBD_EINVAL);
	assert_int_equal(nbd_error_of(-ENOMEM), NBD_ENOMEM);
	assert_int_equal(nbd_error_of(-EBADMSG), NBD_EIO);
	assert_int_equal(nbd_error_of(-EIO), NBD_EIO);
}

static void test_answers(void **state)
{
	static const uint8_t head[NBD_ANSWER_BYTES] = { 0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9, 0, 0,
							0, 7, 0,    0,	  0, 3,	   0,	 0,    0, 12 };
	uint8_t out[256];

	(void)state;
	assert_int_equal(nbd_infos_put(out, NBD_OPT_GO, 0x1234, 5), 66);
	assert_memory_equal(out, head, sizeof(head));
	assert_memory_equal(out + 20, "\0\0\0\0\0\0\0\0\x12\x34\0\5", 12);
	assert_memory_equal(out + 52, "\0\3\0\0\0\1\0\0\x10\0\2\0\0\0", 14);
	assert_int_equal(nbd_export_put(out, 0x1234, 5, true), 10);
	assert_int_equal(nbd_export_put(out, 0x1234, 5, false), 134);
	assert_memory_equal(out, "\0\0\0\0\0\0\x12\x34\0\5\0", 11);
	assert_int_equal(nbd_reply_put(out, 0x0102030405060708, NBD_EIO), 16);
	assert_memory_equal(out, "\x67\x44\x66\x98\0\0\0\5\1\2\3\4\5\6\7\10", 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_greeting),    cmocka_unit_test(test_client_flags),
		cmocka_unit_test(test_option_head), cmocka_unit_test(test_go),
		cmocka_unit_test(test_request),	    cmocka_unit_test(test_request_check),
		cmocka_unit_test(test_errors),	    cmocka_unit_test(test_answers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
