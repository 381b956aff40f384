/* SPDX-License-Identifier: Apache-2.0 */
/* Frames, attributes and signal names: what box and agent share. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* */
#include <cmocka.h>

#include "agent/proto.h"
#include "base/wire.h"

static size_t make(uint8_t *out, uint8_t type, uint8_t flags, uint32_t len)
{
	ag_frame_header(out, type, flags, 0x01020304, 0x05060708, len);
	memset(out + AG_HEADER_LEN, 'p', len);
	return AG_HEADER_LEN + len;
}

static void header_bytes(void **state)
{
	static const uint8_t want[AG_HEADER_LEN] = { 0x10, 0x32, 0, 0, AG_DATA, 0x81, 0, 0, 4, 3, 2, 1, 8, 7, 6, 5 };
	uint8_t got[AG_HEADER_LEN];

	(void)state;
	ag_frame_header(got, AG_DATA, 0x81, 0x01020304, 0x05060708, 0x3210);
	assert_memory_equal(got, want, sizeof(want));
}

static void round_trip(void **state)
{
	static uint8_t raw[AG_HEADER_LEN + AG_PAYLOAD_MAX];
	struct ag_frame f;
	size_t len = make(raw, AG_DATA, AG_STDERR | AG_EOF, AG_PAYLOAD_MAX);

	(void)state;
	assert_int_equal(ag_frame_parse(raw, len, &f), len);
	assert_int_equal(f.type, AG_DATA);
	assert_int_equal(f.flags, AG_STDERR | AG_EOF);
	assert_int_equal(f.stream, 0x01020304);
	assert_int_equal(f.seq, 0x05060708);
	assert_int_equal(f.len, AG_PAYLOAD_MAX);
	assert_ptr_equal(f.payload, raw + AG_HEADER_LEN);
}

static void every_cut_asks_for_more(void **state)
{
	uint8_t raw[AG_HEADER_LEN + 40];
	struct ag_frame f;
	size_t len = make(raw, AG_EXEC, 0, 40);

	(void)state;
	for (size_t n = 0; n < len; n++)
		assert_int_equal(ag_frame_parse(raw, n, &f), 0);
	assert_int_equal(ag_frame_parse(raw, len, &f), len);
}

static void frames_that_are_none_EBADMSG(void **state)
{
	static const struct {
		uint8_t type, flags;
		uint32_t len;
	} bad[] = {
		{ 0, 0, 0 },
		{ AG_TYPE_COUNT, 0, 0 },
		{ 255, 0, 0 },
		{ AG_DATA, 0, AG_PAYLOAD_MAX + 1 },
		{ AG_DATA, 0, UINT32_MAX },
		{ AG_DATA, AG_STDOUT, 0 }, /* empty, and no end */
		{ AG_DATA, AG_WHICH_COUNT, 1 },
		{ AG_DATA, 0x10, 1 },
		{ AG_CREDIT, AG_STDOUT, 3 },
		{ AG_CREDIT, AG_STDOUT, 5 },
		{ AG_CREDIT, AG_EOF, 4 },
		{ AG_FS_REQ, 0, 4 },
		{ AG_FS_REQ, AG_FS_OP_COUNT, 4 },
		{ AG_FS_REP, AG_FS_READ, 3 },
		{ AG_PING, 0, 65 },
		{ AG_PING, 1, 1 },
		{ AG_HELLO, 0, 1 },
		{ AG_EXEC, AG_EOF, 10 },
		{ AG_EXEC, 0, 0 },
		{ AG_SIGNAL, 0, 3 },
		{ AG_KILL, 0, 1 },
		{ AG_RESIZE, 0, 2 },
		{ AG_SHUTDOWN, 0, 1 },
		{ AG_FREEZE, 0, 0 },
		{ AG_FREEZE, 0, 5 },
		{ AG_FREEZE, 1, 4 },
		{ AG_FROZEN, 0, 3 },
		{ AG_FROZEN, 0, 5 },
		{ AG_THAW, 0, 4 },
		{ AG_TRIM, 0, 1 },
		{ AG_SPARE, 0, 1 },
		{ AG_SPARE_IS, 0, 11 },
		{ AG_SPARE_IS, 0, 13 },
	};
	uint8_t raw[AG_HEADER_LEN];
	struct ag_frame f;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ag_frame_header(raw, bad[i].type, bad[i].flags, 1, 1, bad[i].len);
		assert_int_equal(ag_frame_parse(raw, sizeof(raw), &f),
				 -EBADMSG); /* at once, not when the payload is there */
	}
	for (int i = 6; i < 8; i++) {
		ag_frame_header(raw, AG_KILL, 0, 1, 1, 0);
		raw[i] = 1;
		assert_int_equal(ag_frame_parse(raw, sizeof(raw), &f), -EBADMSG);
	}
}

static void attr_round_trip(void **state)
{
	const struct ag_attr a = { 0100644, 2, 1000, 1001, 0x0801, 1ull << 40, 8, 77, 1, UINT64_MAX, 3 };
	struct ag_attr b;
	struct wire_rd r;
	struct buf out;

	(void)state;
	buf_init(&out, AG_ATTR_LEN);
	assert_int_equal(ag_attr_put(&out, &a), 0);
	assert_int_equal(out.len, AG_ATTR_LEN);
	assert_int_equal(ag_attr_put(&out, &a), -EFBIG);
	assert_int_equal(out.len, AG_ATTR_LEN);
	wire_rd_init(&r, out.data, out.len);
	ag_attr_get(&r, &b);
	assert_int_equal(wire_done(&r), 0);
	assert_int_equal(b.mode, a.mode);
	assert_int_equal(b.nlink, a.nlink);
	assert_int_equal(b.uid, a.uid);
	assert_int_equal(b.gid, a.gid);
	assert_int_equal(b.rdev, a.rdev);
	assert_int_equal(b.size, a.size);
	assert_int_equal(b.blocks512, a.blocks512);
	assert_int_equal(b.ino, a.ino);
	assert_int_equal(b.atime_ns, a.atime_ns);
	assert_int_equal(b.mtime_ns, a.mtime_ns);
	assert_int_equal(b.ctime_ns, a.ctime_ns);
	wire_rd_init(&r, out.data, out.len - 1);
	ag_attr_get(&r, &b);
	assert_true(r.bad);
	buf_fini(&out);
}

static void signal_names_round_trip(void **state)
{
	char tmp[16];

	(void)state;
	for (int i = 1; i <= 64; i++)
		assert_int_equal(ag_signal_number(ag_signal_name(i, tmp)), i);
	assert_string_equal(ag_signal_name(SIGKILL, tmp), "SIGKILL");
	assert_string_equal(ag_signal_name(SIGSEGV, tmp), "SIGSEGV");
	assert_string_equal(ag_signal_name(SIGSYS, tmp), "SIGSYS");
	assert_string_equal(ag_signal_name(34, tmp), "SIG34");
	assert_int_equal(ag_signal_number("KILL"), SIGKILL);
	assert_int_equal(ag_signal_number("9"), SIGKILL);
	assert_int_equal(ag_signal_number("sigwinch"), SIGWINCH);
}

static void unknown_signals_EINVAL(void **state)
{
	static const char *const bad[] = { "", "SIG", "0", "65", "-1", "SIGNOPE", "9x", "999", "SIG 9", "KILL " };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(ag_signal_number(bad[i]), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_bytes),
		cmocka_unit_test(round_trip),
		cmocka_unit_test(every_cut_asks_for_more),
		cmocka_unit_test(frames_that_are_none_EBADMSG),
		cmocka_unit_test(attr_round_trip),
		cmocka_unit_test(signal_names_round_trip),
		cmocka_unit_test(unknown_signals_EINVAL),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
