/* SPDX-License-Identifier: Apache-2.0 */
/* The texts and messages between daemon and box. */
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
#include "base/wire.h"
#include "vmm/box/message.h"
#include "vmm/box/state.h"

static void test_config_round_trip(void **state)
{
	struct box_config a = { .uuid = "u",
				.name = "n",
				.engine = "qemu",
				.accel = "kvm",
				.network = "none",
				.unenforced = "io,pids",
				.boot_timeout_s = 1,
				.exec_timeout_s = 2,
				.output_mib = 3,
				.spool_mib = 4,
				.memory_mib = 5,
				.cpu_percent = 6,
				.pids = 7,
				.root_mib = 4294967295u,
				.restore = true,
				.parent = "s-1",
				.machine_id = "0123456789abcdef0123456789abcdef",
				.env = (char *)"A=1\nB=ä\n" },
			  b;
	struct err e = { 0 };
	struct buf text;

	(void)state;
	buf_init(&text, 65536);
	assert_int_equal(box_config_format(&a, &text), 0);
	assert_int_equal(box_config_parse(text.data, text.len, &b, &e), 0);
	assert_string_equal(b.uuid, "u");
	assert_string_equal(b.unenforced, "io,pids");
	assert_int_equal(b.boot_timeout_s, 1);
	assert_int_equal(b.exec_timeout_s, 2);
	assert_int_equal(b.output_mib, 3);
	assert_int_equal(b.spool_mib, 4);
	assert_int_equal(b.memory_mib, 5);
	assert_int_equal(b.cpu_percent, 6);
	assert_int_equal(b.pids, 7);
	assert_int_equal(b.root_mib, 4294967295u);
	assert_string_equal(b.env, a.env);
	assert_true(b.restore);
	assert_string_equal(b.parent, "s-1");
	assert_string_equal(b.machine_id, a.machine_id);
	box_config_fini(&b);
	box_config_fini(&b);
	buf_fini(&text);
}

static void test_config_einval(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"uuid\":\"u\"}",
		"{\"uuid\":1,\"name\":\"n\"}",
		"{\"uuid\":\"u\",\"name\":\"n\",\"pids\":-1}",
		"{\"uuid\":\"u\",\"name\":\"n\",\"pids\":4294967296}",
		"{\"uuid\":\"u\",\"name\":\"n\",\"env\":1}",
		"{\"uuid\":\"u\",\"name\":\"n\",\"restore\":1}",
		"{\"uuid\":\"u\",\"name\":\"n\",\"restore\":true}",
		"{\"uuid\":\"u\",\"name\":\"n\",\"restore\":true,\"parent\":\"p\",\"machine_id\":\"0123\"}",
		"{\"uuid\":\"u\",\"name\":\"n\",\"restore\":true,\"machine_id\":\"0123456789abcdef0123456789abcdef\"}",
		"{\"uuid\":\"u\",\"name\":\"n\",\"accel\":\"a very long word\"}",
	};
	struct box_config c;
	struct err e = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(box_config_parse(bad[i], strlen(bad[i]), &c, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "box configuration: accel"));
}

static void test_hello_round_trip(void **state)
{
	uint64_t open[] = { 3, 7, 9007199254740993ull };
	struct box_hello a = { .uuid = "u",
			       .state = BOX_PAUSED,
			       .last_exec = 9,
			       .open = open,
			       .nopen = 3,
			       .guest = "{\"version\":1}",
			       .pooled = true },
			 b;
	struct err e = { 0 };
	struct buf text;

	(void)state;
	buf_init(&text, 65536);
	assert_int_equal(box_hello_format(&a, &text), 0);
	assert_int_equal(box_hello_parse(text.data, text.len, &b, &e), 0);
	assert_string_equal(b.uuid, "u");
	assert_int_equal(b.state, BOX_PAUSED);
	assert_int_equal(b.last_exec, 9);
	assert_int_equal(b.nopen, 3);
	assert_memory_equal(b.open, open, sizeof(open));
	assert_string_equal(b.guest, "{\"version\":1}");
	assert_true(b.pooled);
	box_hello_fini(&b);
	buf_fini(&text);
	for (int s = 0; s < BOX_STATE_COUNT; s++) {
		char json[64];

		snprintf(json, sizeof(json), "{\"state\":\"%s\"}", box_state_name((enum box_state)s));
		assert_int_equal(box_hello_parse(json, strlen(json), &b, &e), 0);
		assert_int_equal(b.state, s);
	}
}

static void test_hello_einval(void **state)
{
	static const char *const bad[] = { "1",
					   "{\"state\":\"odd\"}",
					   "{\"state\":\"ready\",\"open\":{}}",
					   "{\"state\":\"ready\",\"open\":[0]}",
					   "{\"state\":\"ready\",\"open\":[\"1\"]}",
					   "{\"state\":\"ready\",\"last_exec\":-1}",
					   "{\"state\":\"ready\",\"pooled\":\"yes\"}",
					   "{}" };
	struct box_hello h;
	struct err e = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(box_hello_parse(bad[i], strlen(bad[i]), &h, &e), -EINVAL);
}

/* -- messages ---------------------------------------------------------------------------------- */

static int parse(enum box_type type, const void *data, size_t len, struct box_msg *m)
{
	struct err e = { 0 };

	return box_msg_parse((uint16_t)type, data, len, m, &e);
}

static void test_messages(void **state)
{
	struct box_msg m;
	struct buf b;

	(void)state;
	buf_init(&b, 65536);
	wire_put_u64(&b, 77);
	wire_put_u8(&b, BOX_EXEC_BESIDE | BOX_EXEC_LIVE_STDIN);
	wire_put_u32(&b, 1000);
	wire_put_u64(&b, 123456789);
	assert_int_equal(parse(BOX_EXEC, b.data, b.len, &m), 0);
	assert_int_equal(m.exec.n, 77);
	assert_int_equal(m.exec.flags, 3);
	assert_int_equal(m.exec.uid, 1000);
	assert_int_equal(m.exec.accepted_wall_ns, 123456789);
	assert_int_equal(m.exec.timeout_max_s, 0);
	/* Cut anywhere, or with something behind it, it is none; also with the most that it may take. */
	for (int limited = 0; limited < 2; limited++) {
		if (limited) {
			b.data[8] |= BOX_EXEC_TIMEOUT_MAX;
			b.len--;
			wire_put_u32(&b, 30);
			assert_int_equal(parse(BOX_EXEC, b.data, b.len, &m), 0);
			assert_int_equal(m.exec.timeout_max_s, 30);
		}
		for (size_t len = 0; len < b.len; len++)
			assert_int_equal(parse(BOX_EXEC, b.data, len, &m), -EBADMSG);
		wire_put_u8(&b, 0);
		assert_int_equal(parse(BOX_EXEC, b.data, b.len, &m), -EBADMSG);
	}

	b.len = 0;
	wire_put_u64(&b, 5);
	wire_put_u8(&b, 1);
	buf_add(&b, "data", 4);
	assert_int_equal(parse(BOX_STDIN, b.data, b.len, &m), 0);
	assert_true(m.in.eof);
	assert_int_equal(m.in.len, 4);
	assert_memory_equal(m.in.data, "data", 4);

	b.len = 0;
	wire_put_u8(&b, 1);
	buf_add(&b, "path", 4);
	assert_int_equal(parse(BOX_FS, b.data, b.len, &m), 0);
	assert_int_equal(m.fs.op, 1);
	assert_int_equal(m.fs.len, 4);

	assert_int_equal(parse(BOX_SET, "{\"name\":\"b\",\"env\":\"\"}", 21, &m), 0);
	assert_string_equal(m.set.name, "b");
	assert_string_equal(m.set.env, "");
	box_msg_fini(&m);
	buf_fini(&b);
}

static void put_memory(struct buf *b, uint64_t bytes, uint32_t n, const struct preload_range *ranges, uint32_t have)
{
	b->len = 0;
	wire_put_u64(b, bytes);
	wire_put_u32(b, n);
	for (uint32_t i = 0; i < have; i++) {
		wire_put_u64(b, ranges[i].offset);
		wire_put_u64(b, ranges[i].bytes);
	}
	wire_put_str(b, "snap");
}

static void test_memory(void **state)
{
	static const struct {
		const char *what;
		uint64_t bytes;
		uint32_t n, have;
		struct preload_range ranges[2];
		int code;
	} cases[] = {
		{ "no template", 0, 0, 0, { { 0, 0 } }, 0 },
		{ "no zeros", 1 << 20, 0, 0, { { 0, 0 } }, 0 },
		{ "all zeros, in two", 1 << 20, 2, 2, { { 0, 4096 }, { 4096, (1 << 20) - 4096 } }, 0 },
		{ "a range of nothing", 0, 1, 1, { { 0, 4096 } }, -EBADMSG },
		{ "no whole page", 4097, 0, 0, { { 0, 0 } }, -EBADMSG },
		{ "more than there is", UINT64_MAX - 4095, 0, 0, { { 0, 0 } }, -EBADMSG },
		{ "an odd offset", 1 << 20, 1, 1, { { 1, 4096 } }, -EBADMSG },
		{ "an odd length", 1 << 20, 1, 1, { { 0, 4095 } }, -EBADMSG },
		{ "empty", 1 << 20, 1, 1, { { 4096, 0 } }, -EBADMSG },
		{ "beyond the end", 1 << 20, 1, 1, { { 4096, 1 << 20 } }, -EBADMSG },
		{ "an overflow", 1 << 20, 1, 1, { { 4096, UINT64_MAX - 4095 } }, -EBADMSG },
		{ "behind the end", 1 << 20, 1, 1, { { 1 << 20, 4096 } }, -EBADMSG },
		{ "overlapping", 1 << 20, 2, 2, { { 0, 8192 }, { 4096, 4096 } }, -EBADMSG },
		{ "out of order", 1 << 20, 2, 2, { { 8192, 4096 }, { 0, 4096 } }, -EBADMSG },
		{ "fewer than told", 1 << 20, 2, 1, { { 0, 4096 } }, -EBADMSG },
		{ "more than told", 1 << 20, 0, 1, { { 0, 4096 } }, -EBADMSG },
		{ "too many", 1 << 20, PRELOAD_RANGES_MAX + 1, 2, { { 0, 4096 } }, -EBADMSG },
	};
	struct box_msg m;
	struct buf b;

	(void)state;
	buf_init(&b, 65536);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		put_memory(&b, cases[i].bytes, cases[i].n, cases[i].ranges, cases[i].have);
		if (parse(BOX_MEMORY, b.data, b.len, &m) != cases[i].code)
			fail_msg("%s", cases[i].what);
	}
	put_memory(&b, 1 << 20, 2, cases[2].ranges, 2);
	assert_int_equal(parse(BOX_MEMORY, b.data, b.len, &m), 0);
	assert_int_equal(m.memory.bytes, 1 << 20);
	assert_int_equal(m.memory.ranges[1].offset, 4096);
	assert_string_equal(m.memory.snapshot, "snap");
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(parse(BOX_MEMORY, b.data, len, &m), -EBADMSG);
	buf_fini(&b);
}

static void test_load_and_freeze(void **state)
{
	static const char *const names[] = { "", "a b", "a\"b", "a\\b", "a\nb", "\xc3\xa4" };
	char longest[BOX_EXPORT_MAX + 1];
	struct box_msg m;
	struct buf b;

	(void)state;
	buf_init(&b, 65536);
	wire_put_u8(&b, 1);
	wire_put_str(&b, "0123-4567");
	assert_int_equal(parse(BOX_LOAD, b.data, b.len, &m), 0);
	assert_true(m.load.hold);
	assert_string_equal(m.load.export_name, "0123-4567");
	assert_int_equal(m.load.hold, BOX_HOLD_WARM);
	b.data[0] = BOX_HOLD_COUNT;
	assert_int_equal(parse(BOX_LOAD, b.data, b.len, &m), -EBADMSG);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		b.len = 1;
		b.data[0] = 0;
		wire_put_str(&b, names[i]);
		assert_int_equal(parse(BOX_LOAD, b.data, b.len, &m), -EBADMSG);
	}
	memset(longest, 'x', BOX_EXPORT_MAX);
	longest[BOX_EXPORT_MAX] = '\0';
	b.len = 1;
	wire_put_str(&b, longest);
	assert_int_equal(parse(BOX_LOAD, b.data, b.len, &m), -EBADMSG);
	assert_int_equal(parse(BOX_FREEZE, "\x10\x27\0\0", 4, &m), 0);
	assert_int_equal(m.freeze.ms, 10000);
	assert_int_equal(parse(BOX_FREEZE, "\x11\x27\0\0", 4, &m), -EBADMSG);
	assert_int_equal(parse(BOX_FREEZE, "\0\0\0\0", 4, &m), -EBADMSG);
	assert_int_equal(parse(BOX_THAW, "", 0, &m), 0);
	assert_int_equal(parse(BOX_TRIM, "", 0, &m), 0);
	assert_int_equal(parse(BOX_MEMORY_AGAIN, "", 0, &m), 0);
	assert_int_equal(parse(BOX_TRIM, "x", 1, &m), -EBADMSG);
	assert_int_equal(parse(BOX_RECLAIM, "\0\0\0\x20\0\0\0\0", 8, &m), 0);
	assert_int_equal(m.reclaim.bytes, 512u << 20);
	assert_int_equal(parse(BOX_RECLAIM, "\0\0\0\0\0\0\0\0", 8, &m), -EBADMSG);
	assert_int_equal(parse(BOX_RECLAIM, "\1\0\0\x20\0\0\0\0", 8, &m), -EBADMSG);
	assert_int_equal(parse(BOX_RECLAIM, "\0\0\0\0\0\0\0\x20", 8, &m), -EBADMSG);
	assert_int_equal(parse(BOX_RECLAIM, "\0\0\0\x20", 4, &m), -EBADMSG);
	buf_fini(&b);
}

static void test_messages_refused(void **state)
{
	static const struct {
		enum box_type type;
		const char *data;
		size_t len;
	} bad[] = {
		{ BOX_EXEC, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 21 },		/* number 0 */
		{ BOX_EXEC, "\1\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\0\0\0\0\0", 21 },	/* unknown flag */
		{ BOX_EXEC, "\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0", 21 },		/* no maximum */
		{ BOX_EXEC, "\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 25 }, /* one of 0 */
		{ BOX_EXEC, "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0", 21 },		/* live without beside */
		{ BOX_STDIN, "\1\0\0\0\0\0\0\0\2", 9 },					/* eof is a bool */
		{ BOX_CTL, "\0\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\0", 17 },			/* unknown verb */
		{ BOX_VM, "\5\0\0\0\0", 5 },
		{ BOX_FS, "\0", 1 },
		{ BOX_FS, "\x7f", 1 },
		{ BOX_FS, "", 0 },
		{ BOX_REPLY, "", 0 },
		{ BOX_TYPE_COUNT, "", 0 },
		{ (enum box_type)0, "", 0 },
	};
	struct box_msg m;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(parse(bad[i].type, bad[i].data, bad[i].len, &m), -EBADMSG);
	assert_int_equal(parse(BOX_SET, "{\"x\":1}", 7, &m), -EINVAL);
	assert_int_equal(parse(BOX_SET, "{\"name\":\"\"}", 11, &m), -EINVAL);
	assert_int_equal(parse(BOX_START, "{}", 2, &m), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config_round_trip), cmocka_unit_test(test_config_einval),
		cmocka_unit_test(test_hello_round_trip),  cmocka_unit_test(test_hello_einval),
		cmocka_unit_test(test_messages),	  cmocka_unit_test(test_memory),
		cmocka_unit_test(test_load_and_freeze),	  cmocka_unit_test(test_messages_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
