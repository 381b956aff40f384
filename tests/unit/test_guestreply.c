/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's answers: what an honest agent says comes through, everything else is cut to size or refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "agent/proto.h"
#include "base/fd.h"
#include "cruciblefs/guestreply.h"

static struct buf msg;
static struct wire_rd rd;

static int set_up(void **state)
{
	(void)state;
	buf_init(&msg, AG_PAYLOAD_MAX);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	buf_fini(&msg);
	return 0;
}

static struct wire_rd *said(void)
{
	wire_rd_init(&rd, msg.data, msg.len);
	return &rd;
}

static void put_attr(const struct ag_attr *a)
{
	assert_int_equal(ag_attr_put(&msg, a), 0);
}

static void put_text(const char *s)
{
	assert_int_equal(wire_put_str(&msg, s), 0);
}

static void test_attributes(void **state)
{
	struct ag_attr a = { .mode = S_IFREG | 04755,
			     .nlink = 2,
			     .uid = 33,
			     .size = 5,
			     .blocks512 = 8,
			     .ino = 77,
			     .mtime_ns = 1500000000123456789u };
	struct gattr g;

	(void)state;
	put_attr(&a);
	assert_int_equal(greply_attr(said(), &g), 0);
	assert_int_equal(g.type, S_IFREG);
	assert_int_equal(g.mode, 04755);
	assert_int_equal(g.nlink, 2);
	assert_int_equal(g.ino, 77);
	assert_int_equal(g.size, 5);
	assert_int_equal(g.blocks512, 8);
	assert_int_equal(g.mtime.tv_sec, 1500000000);
	assert_int_equal(g.mtime.tv_nsec, 123456789);
}

static void test_special_files_are_empty(void **state)
{
	static const uint32_t types[] = { S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, 0, 0xf000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct ag_attr a = { .mode = types[i] | 0640, .size = 99, .blocks512 = 7 };
		struct gattr g;

		msg.len = 0;
		put_attr(&a);
		assert_int_equal(greply_attr(said(), &g), 0);
		assert_int_equal(g.type, 0);
		assert_int_equal(g.mode, 0640);
		assert_int_equal(g.size, 0);
		assert_int_equal(g.blocks512, 0);
	}
}

static void test_insane_numbers_are_cut(void **state)
{
	struct ag_attr a = { .mode = S_IFREG, .size = UINT64_MAX, .blocks512 = UINT64_MAX };
	struct gattr g;

	(void)state;
	a.mode = 0xabcd0000u | S_IFREG | 0644;
	put_attr(&a);
	assert_int_equal(greply_attr(said(), &g), 0);
	assert_int_equal(g.type, S_IFREG);
	assert_int_equal(g.mode, 0644);
	assert_true(g.size == INT64_MAX);
	assert_true(g.blocks512 == INT64_MAX / 512);
}

static void test_times_before_1970(void **state)
{
	struct timespec old = { .tv_sec = -2, .tv_nsec = 250000000 }, far = { .tv_sec = INT64_MAX / 2 };
	struct ag_attr a = { .mode = S_IFREG, .mtime_ns = gtime_to_wire(&old), .atime_ns = (uint64_t)-1 };
	struct gattr g;

	(void)state;
	put_attr(&a);
	assert_int_equal(greply_attr(said(), &g), 0);
	assert_int_equal(g.mtime.tv_sec, -2);
	assert_int_equal(g.mtime.tv_nsec, 250000000);
	assert_int_equal(g.atime.tv_sec, -1);
	assert_int_equal(g.atime.tv_nsec, 999999999);
	assert_true(gtime_to_wire(&far) == INT64_MAX);
	far.tv_sec = -far.tv_sec;
	assert_true(gtime_to_wire(&far) == (uint64_t)INT64_MIN);
}

static void test_EIO_too_short_and_too_long(void **state)
{
	struct ag_attr a = { .mode = S_IFREG };
	struct gattr g;
	size_t len;

	(void)state;
	put_attr(&a);
	len = msg.len;
	for (size_t n = 0; n < len; n++) {
		wire_rd_init(&rd, msg.data, n);
		assert_int_equal(greply_attr(&rd, &g), -EIO);
	}
	wire_put_u8(&msg, 0);
	assert_int_equal(greply_attr(said(), &g), -EIO);
	assert_int_equal(greply_empty(said()), -EIO);
	msg.len = 0;
	assert_int_equal(greply_empty(said()), 0);
}

static void test_EIO_open(void **state)
{
	struct ag_attr file = { .mode = S_IFREG }, fifo = { .mode = S_IFIFO };
	uint32_t handle = 0;
	struct gattr g;

	(void)state;
	wire_put_u32(&msg, 5);
	put_attr(&file);
	assert_int_equal(greply_open(said(), &handle, &g), 0);
	assert_int_equal(handle, 5);
	msg.len = 0;
	wire_put_u32(&msg, 0); /* would mean "by path" in SETATTR */
	put_attr(&file);
	assert_int_equal(greply_open(said(), &handle, &g), -EIO);
	msg.len = 0;
	wire_put_u32(&msg, 5);
	put_attr(&fifo);
	assert_int_equal(greply_open(said(), &handle, &g), -EIO);
}

static void test_EIO_more_than_was_asked_for(void **state)
{
	const uint8_t *data;
	size_t len;

	(void)state;
	put_text("12345");
	assert_int_equal(greply_read(said(), 5, &data, &len), 0);
	assert_int_equal(len, 5);
	assert_memory_equal(data, "12345", 5);
	assert_int_equal(greply_read(said(), 4, &data, &len), -EIO);
	msg.len = 0;
	wire_put_u32(&msg, 5);
	assert_int_equal(greply_write(said(), 5, &len), 0);
	assert_int_equal(len, 5);
	assert_int_equal(greply_write(said(), 4, &len), -EIO);
}

static void test_codes_that_are_orders_to_the_kernel(void **state)
{
	(void)state;
	assert_int_equal(greply_code(0), 0);
	assert_int_equal(greply_code(-ENOENT), -ENOENT);
	assert_int_equal(greply_code(-EHWPOISON), -EHWPOISON);
	assert_int_equal(greply_code(-ENOSYS), -EOPNOTSUPP);
	assert_int_equal(greply_code(-ELOOP), -ESTALE);
	assert_int_equal(greply_code(1), -EIO);
	assert_int_equal(greply_code(-134), -EIO);
	assert_int_equal(greply_code(-512), -EIO); /* ERESTARTSYS */
	assert_int_equal(greply_code(INT32_MIN), -EIO);
}

static void put_entry(const char *name, size_t len, uint64_t cookie)
{
	struct ag_attr a = { .mode = S_IFREG | 0600, .ino = cookie };

	wire_put_u64(&msg, cookie);
	wire_put_bytes(&msg, name, len);
	put_attr(&a);
}

static void test_bad_names_are_marked(void **state)
{
	static const struct {
		const char *name;
		size_t len;
		bool ok;
	} t[] = {
		{ "good", 4, true }, { "", 0, false },	   { ".", 1, false },
		{ "..", 2, false },  { "...", 3, true },   { "a/b", 3, false },
		{ "/", 1, false },   { "a\0b", 3, false }, { "\n\x80\xff", 3, true },
	};
	char longest[AG_NAME_MAX + 1];
	struct gdirent d;
	bool end = false;

	(void)state;
	memset(longest, 'x', sizeof(longest));
	wire_put_u8(&msg, 1);
	for (size_t i = 0; i < ARRAY_LEN(t); i++)
		put_entry(t[i].name, t[i].len, i);
	put_entry(longest, AG_NAME_MAX, 100);
	put_entry(longest, AG_NAME_MAX + 1, 101);
	assert_int_equal(greply_dir_begin(said(), &end), 0);
	assert_true(end);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		assert_int_equal(greply_dir_next(&rd, &d), 1);
		assert_int_equal(d.ok, t[i].ok);
		assert_int_equal(d.cookie, i);
	}
	assert_int_equal(greply_dir_next(&rd, &d), 1);
	assert_true(d.ok);
	assert_int_equal(greply_dir_next(&rd, &d), 1);
	assert_false(d.ok);
	assert_int_equal(greply_dir_next(&rd, &d), 0);
}

static void test_EIO_cut_directories(void **state)
{
	struct gdirent d;
	bool end;

	(void)state;
	assert_int_equal(greply_dir_begin(said(), &end), -EIO);
	wire_put_u8(&msg, 2);
	assert_int_equal(greply_dir_begin(said(), &end), -EIO);
	msg.len = 0;
	wire_put_u8(&msg, 0);
	put_entry("a", 1, 1);
	for (size_t n = 2; n < msg.len; n++) {
		wire_rd_init(&rd, msg.data, n);
		assert_int_equal(greply_dir_begin(&rd, &end), 0);
		assert_int_equal(greply_dir_next(&rd, &d), -EIO);
	}
}

static void test_statfs_is_sane(void **state)
{
	struct statvfs v;

	(void)state;
	for (int i = 0; i < 6; i++)
		wire_put_u64(&msg, UINT64_MAX - (uint64_t)i);
	wire_put_u32(&msg, UINT32_MAX);
	assert_int_equal(greply_statfs(said(), &v), 0);
	assert_int_equal(v.f_bsize, 4096);
	assert_true(v.f_blocks <= INT64_MAX / 4096 && v.f_bfree <= v.f_blocks && v.f_bavail <= v.f_bfree);
	assert_true(v.f_ffree <= v.f_files);
	assert_int_equal(v.f_namemax, 255);
	msg.len--;
	assert_int_equal(greply_statfs(said(), &v), -EIO);
}

static void test_only_user_attributes_are_listed(void **state)
{
	static const char names[] = "security.selinux\0user.a\0\0user.\0user.bb\0trusted.x";
	struct buf out;

	(void)state;
	buf_init(&out, AG_PAYLOAD_MAX);
	wire_put_bytes(&msg, names, sizeof(names));
	assert_int_equal(greply_xattr_list(said(), &out), 0);
	assert_int_equal(out.len, 15);
	assert_memory_equal(out.data, "user.a\0user.bb", 15);
	msg.len = 0;
	wire_put_bytes(&msg, "user.a", 6); /* no NUL */
	assert_int_equal(greply_xattr_list(said(), &out), -EIO);
	assert_int_equal(out.len, 15);
	buf_fini(&out);
}

static void test_EIO_links(void **state)
{
	struct glink l;

	(void)state;
	put_text("/a");
	put_text("a");
	wire_put_u8(&msg, 1);
	assert_int_equal(greply_readlink(said(), &l), 0);
	assert_int_equal(l.state, GLINK_DANGLING);
	assert_int_equal(l.target_len, 2);
	msg.data[msg.len - 1] = 3;
	assert_int_equal(greply_readlink(said(), &l), -EIO);
	msg.len--;
	assert_int_equal(greply_readlink(said(), &l), -EIO);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_attributes),
		TEST(test_special_files_are_empty),
		TEST(test_insane_numbers_are_cut),
		TEST(test_times_before_1970),
		TEST(test_EIO_too_short_and_too_long),
		TEST(test_EIO_open),
		TEST(test_EIO_more_than_was_asked_for),
		TEST(test_codes_that_are_orders_to_the_kernel),
		TEST(test_bad_names_are_marked),
		TEST(test_EIO_cut_directories),
		TEST(test_statfs_is_sane),
		TEST(test_only_user_attributes_are_listed),
		TEST(test_EIO_links),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
