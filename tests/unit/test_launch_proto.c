/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's messages: each writer with its parser, and what the parser must refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cruciblefs/launch/launch_priv.h"

#define UUID_A "0f0e0d0c-0b0a-4908-8706-050403020100"

static struct launch_spawn spawn_of(enum launch_kind kind, uint32_t slot, const char *uuid, const char *what)
{
	struct launch_spawn s = {
		.kind = (uint8_t)kind, .slot = slot, .nofile = 256, .argc = 2, .argv = { "probe", what }
	};

	memcpy(s.uuid, uuid, sizeof(s.uuid));
	return s;
}

static void test_spawn_round_trip(void **state)
{
	struct launch_spawn s = spawn_of(LAUNCH_ENGINE, 12, UUID_A, "-m"), back;
	char store[LAUNCH_ARGS_BYTES_MAX];
	struct buf b;

	(void)state;
	s.kvm = true;
	s.memory_bytes = UINT64_MAX;
	s.cpu_percent = 250;
	s.pids = 77;
	s.io_bytes_per_s = 1u << 30;
	s.ram_bytes = 512ull << 20;
	s.memory_fd = 7;
	s.net_fd = 8;
	s.argv[s.argc++] = "";
	buf_init(&b, MSG_MAX);
	assert_int_equal(launch_spawn_encode(&s, &b), 0);
	assert_int_equal(launch_spawn_decode(b.data, b.len, &back, store, sizeof(store)), 0);
	assert_int_equal(back.kind, s.kind);
	assert_int_equal(back.slot, s.slot);
	assert_string_equal(back.uuid, s.uuid);
	assert_true(back.kvm);
	assert_true(back.memory_bytes == s.memory_bytes && back.io_bytes_per_s == s.io_bytes_per_s);
	assert_int_equal(back.cpu_percent, 250);
	assert_int_equal(back.pids, 77);
	assert_int_equal(back.nofile, 256);
	assert_true(back.ram_bytes == 512ull << 20);
	assert_int_equal(back.memory_fd, 7);
	assert_int_equal(back.net_fd, 8);
	assert_int_equal(back.argc, 3);
	assert_string_equal(back.argv[0], "probe");
	assert_string_equal(back.argv[1], "-m");
	assert_string_equal(back.argv[2], "");
	/* Cut anywhere, or with a byte too many, it is refused. */
	for (size_t n = 0; n < b.len; n++)
		assert_int_equal(launch_spawn_decode(b.data, n, &back, store, sizeof(store)), -EBADMSG);
	assert_int_equal(buf_add(&b, "x", 1), 0);
	assert_int_equal(launch_spawn_decode(b.data, b.len, &back, store, sizeof(store)), -EBADMSG);
	buf_fini(&b);
}

static int decode_changed(const struct launch_spawn *s, char *store, size_t cap)
{
	struct launch_spawn back;
	struct buf b;
	int r;

	buf_init(&b, 1u << 20);
	assert_int_equal(launch_spawn_encode(s, &b), 0);
	r = launch_spawn_decode(b.data, b.len, &back, store, cap);
	buf_fini(&b);
	return r;
}

static void test_spawn_bounds_ebadmsg(void **state)
{
	char store[LAUNCH_ARGS_BYTES_MAX], *big = malloc(LAUNCH_ARGS_BYTES_MAX + 1);
	struct launch_spawn s = spawn_of(LAUNCH_BOX, 0, UUID_A, "x");
	struct buf b;

	(void)state;
	s.kind = LAUNCH_KIND_COUNT;
	assert_int_equal(decode_changed(&s, store, sizeof(store)), -EBADMSG);
	s = spawn_of(LAUNCH_BOX, LAUNCH_SLOTS_MAX, UUID_A, "x");
	assert_int_equal(decode_changed(&s, store, sizeof(store)), -EBADMSG);
	s = spawn_of(LAUNCH_BOX, 0, "../../../../../../../../../../../etc", "x");
	assert_int_equal(decode_changed(&s, store, sizeof(store)), -EBADMSG);
	s = spawn_of(LAUNCH_BOX, 0, UUID_A, "x");
	s.argc = 0;
	assert_int_equal(decode_changed(&s, store, sizeof(store)), -EBADMSG);
	/* All arguments together, with their NULs, fit exactly, or one byte too many. */
	memset(big, 'a', LAUNCH_ARGS_BYTES_MAX);
	big[LAUNCH_ARGS_BYTES_MAX - sizeof("probe") - 1] = '\0';
	s = spawn_of(LAUNCH_BOX, 0, UUID_A, big);
	assert_int_equal(decode_changed(&s, store, sizeof(store)), 0);
	memset(big, 'a', LAUNCH_ARGS_BYTES_MAX);
	big[LAUNCH_ARGS_BYTES_MAX - sizeof("probe")] = '\0';
	assert_int_equal(decode_changed(&s, store, sizeof(store)), -EBADMSG);
	s.argc = LAUNCH_ARGS_MAX + 1;
	buf_init(&b, 1024);
	assert_int_equal(launch_spawn_encode(&s, &b), -EFBIG);
	assert_int_equal(b.len, 0);
	buf_fini(&b);
	free(big);
}

static void test_uuids(void **state)
{
	(void)state;
	assert_true(launch_uuid_ok(LAUNCH_UUID_PAGER) && launch_uuid_ok(LAUNCH_UUID_STORE) && launch_uuid_ok(UUID_A));
	assert_true(launch_uuid_is_ours(LAUNCH_UUID_PAGER) && launch_uuid_is_ours(LAUNCH_UUID_STORE));
	assert_true(launch_uuid_ok(LAUNCH_UUID_NETD) && launch_uuid_is_ours(LAUNCH_UUID_NETD));
	assert_false(launch_uuid_is_ours(UUID_A));
	/* Behind the last slot's, and not its neighbour's. */
	assert_true(LAUNCH_UID_PAGER > 2 + 2 * (LAUNCH_SLOTS_MAX - 1) && LAUNCH_UID_STORE != LAUNCH_UID_PAGER);
	assert_true(LAUNCH_UID_NETD > LAUNCH_UID_STORE);
}

static void test_stat_round_trip(void **state)
{
	struct launch_stat s = { 1, 2, 3, 4, 5, 6, UINT64_MAX }, back;
	struct wire_rd r;
	struct buf b;

	(void)state;
	buf_init(&b, 256);
	assert_int_equal(launch_stat_encode(&s, &b), 0);
	wire_rd_init(&r, b.data, b.len);
	assert_int_equal(launch_stat_decode(&r, &back), 0);
	assert_int_equal(back.tasks, 1);
	assert_true(back.io_write_bytes == UINT64_MAX);
	wire_rd_init(&r, b.data, b.len - 1);
	assert_int_equal(launch_stat_decode(&r, &back), -EBADMSG);
	buf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spawn_round_trip),
		cmocka_unit_test(test_spawn_bounds_ebadmsg),
		cmocka_unit_test(test_uuids),
		cmocka_unit_test(test_stat_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
