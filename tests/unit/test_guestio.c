/* SPDX-License-Identifier: Apache-2.0 */
/* Open files of a guest, request by request: handles, pieces, what ends them. */
#include "guestwire.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

#define BIG (128u * 1024) /* three pieces */

static char pattern[BIG], buf[BIG];

static void fill(void)
{
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (char)(i * 7 + i / 251);
	memset(buf, 0, sizeof(buf));
}

/* Made, and opened for reading and writing. */
static uint64_t make(const char *name, int flags, uint64_t *ret_fh)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;

	assert_int_equal(fw_create(gw, gw_node(""), name, flags | O_CREAT, 0640, &e, &o), 0);
	*ret_fh = o.fh;
	return e.nodeid;
}

static size_t guest_size(const char *name)
{
	struct stat st;

	assert_int_equal(stat(gw_path(name), &st), 0);
	return (size_t)st.st_size;
}

static void test_a_file_is_made_written_and_read(void **state)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;
	struct stat st;

	(void)state;
	assert_int_equal(fw_create(gw, gw_node(""), "f", O_CREAT | O_EXCL | O_RDWR, 04640, &e, &o), 0);
	assert_int_equal(e.attr.mode, S_IFREG | 04640);
	assert_int_equal(fw_write(gw, e.nodeid, o.fh, O_RDWR, 3, "abc", 3), 3);
	assert_int_equal(fw_read(gw, e.nodeid, o.fh, O_RDWR, 0, buf, 100), 6);
	assert_memory_equal(buf, "\0\0\0abc", 6);
	assert_int_equal(fw_read(gw, e.nodeid, o.fh, O_RDWR, 100, buf, 100), 0);
	fw_release(gw, e.nodeid, o.fh);
	fw_run(gw);
	assert_int_equal(fake_guest_open(g), 0);
	assert_int_equal(stat(gw_path("f"), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 04640);
	assert_int_equal(fw_create(gw, gw_node(""), "f", O_CREAT | O_EXCL | O_RDWR, 0640, &e, &o), -EEXIST);
	assert_int_equal(fw_open(gw, gw_node("f"), O_WRONLY | O_TRUNC, &o), 0);
	assert_int_equal(guest_size("f"), 0);
	fw_release(gw, e.nodeid, o.fh);
}

static void test_pieces_travel_together(void **state)
{
	uint64_t n, fh;

	(void)state;
	fill();
	n = make("f", O_RDWR, &fh);
	g->most_in_flight = 0;
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, 5, pattern, BIG), BIG);
	assert_int_equal(g->most_in_flight, 3);
	assert_int_equal(guest_size("f"), BIG + 5);
	g->most_in_flight = 0;
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, 5, buf, BIG), BIG);
	assert_int_equal(g->most_in_flight, 3);
	assert_memory_equal(buf, pattern, BIG);
	/* The end of the file, in each piece. */
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, BIG - 10, buf, BIG), 15);
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, 65536, buf, BIG), BIG + 5 - 65536);
	assert_memory_equal(buf, pattern + 65536 - 5, BIG + 5 - 65536);
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, BIG + 5, buf, BIG), 0);
	fw_release(gw, n, fh);
}

static void test_appended_bytes_keep_their_order(void **state)
{
	unsigned flags;
	uint64_t n, fh;

	(void)state;
	fill();
	gw_put("f", "head");
	n = gw_node("f");
	fh = gw_open(n, O_WRONLY | O_APPEND, &flags);
	assert_true(flags & FOPEN_DIRECT_IO);
	g->most_in_flight = 0;
	/* The kernel's idea of the end is old: the guest has appended meanwhile. */
	gw_put("f", "head+");
	assert_int_equal(fw_write(gw, n, fh, O_WRONLY | O_APPEND, 4, pattern, BIG), BIG);
	assert_int_equal(g->most_in_flight, 1);
	assert_int_equal(guest_size("f"), BIG + 5);
	fw_release(gw, n, fh);
	fh = gw_open(n, O_RDONLY, &flags);
	assert_false(flags & FOPEN_DIRECT_IO); /* mmap */
	assert_false(flags & FOPEN_KEEP_CACHE);
	assert_int_equal(fw_read(gw, n, fh, O_RDONLY, 5, buf, BIG), BIG);
	assert_memory_equal(buf, pattern, BIG);
	fw_release(gw, n, fh);
}

static void test_handle_operations(void **state)
{
	struct fuse_fsync_in fs = { 0 };
	struct fuse_fallocate_in fa = { .length = 5000 };
	struct fuse_lseek_in ls = { .whence = SEEK_HOLE };
	const struct fw_answer *a;
	struct fuse_attr at;
	uint64_t n, fh;

	(void)state;
	n = make("f", O_RDWR, &fh);
	fs.fh = fa.fh = ls.fh = fh;
	assert_int_equal(fw_call(gw, FUSE_FALLOCATE, n, &fa, sizeof(fa), NULL, 0, NULL), 0);
	assert_int_equal(guest_size("f"), 5000);
	assert_int_equal(fw_call(gw, FUSE_FSYNC, n, &fs, sizeof(fs), NULL, 0, NULL), 0);
	assert_int_equal(fw_call(gw, FUSE_LSEEK, n, &ls, sizeof(ls), NULL, 0, &a), 0);
	assert_int_equal(((const struct fuse_lseek_out *)(const void *)a->data)->offset, 5000);
	ls.offset = 5000;
	assert_int_equal(fw_call(gw, FUSE_LSEEK, n, &ls, sizeof(ls), NULL, 0, &a), -ENXIO);
	assert_int_equal(fw_setattr(gw, n, FATTR_SIZE | FATTR_FH, fh, 7, 0, 0), 0);
	assert_int_equal(guest_size("f"), 7);
	/* Removed: all of it goes on. */
	assert_int_equal(fw_unlink(gw, "fs/f"), 0);
	assert_int_equal(fw_setattr(gw, n, FATTR_SIZE | FATTR_FH, fh, 3, 0, 0), 0);
	assert_int_equal(fw_setattr(gw, n, FATTR_MODE, 0, 0, S_IFREG | 0600, 0), 0);
	assert_int_equal(fw_getattr(gw, n, &at), 0);
	assert_int_equal(at.size, 3);
	assert_int_equal(at.mode, S_IFREG | 0600);
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, 0, "new", 3), 3);
	fw_release(gw, n, fh);
}

static void test_ESTALE_a_handle_of_another_epoch(void **state)
{
	struct fuse_fsync_in fs = { 0 };
	struct fuse_attr a;
	uint64_t n, fh;
	unsigned before;

	(void)state;
	n = make("f", O_RDWR, &fh);
	fs.fh = fh;
	fake_guest_restart(g);
	before = g->calls[AG_FS_READ] + g->calls[AG_FS_WRITE] + g->calls[AG_FS_FSYNC] + g->calls[AG_FS_RELEASE];
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, 0, buf, 10), -ESTALE);
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, 0, "x", 1), -ESTALE);
	assert_int_equal(fw_call(gw, FUSE_FSYNC, n, &fs, sizeof(fs), NULL, 0, NULL), -ESTALE);
	assert_int_equal(fw_setattr(gw, n, FATTR_SIZE | FATTR_FH, fh, 3, 0, 0), -ESTALE);
	assert_int_equal(fw_getattr(gw, n, &a), 0); /* by its path */
	fw_release(gw, n, fh);
	assert_int_equal(g->calls[AG_FS_READ] + g->calls[AG_FS_WRITE] + g->calls[AG_FS_FSYNC] + g->calls[AG_FS_RELEASE],
			 before);
}

/* The guest's file server died, and only it: the epoch is the same. */
static void test_ESTALE_a_handle_the_guest_does_not_know(void **state)
{
	struct fuse_attr a;
	uint64_t n, fh;

	(void)state;
	gw_put("f", "12345");
	n = gw_node("f");
	fh = gw_open(n, O_RDWR, NULL);
	fake_guest_restart(g);
	g->epoch--;
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, 0, buf, 10), -ESTALE);
	assert_int_equal(fw_getattr(gw, n, &a), 0);
	assert_int_equal(a.size, 5);
	fw_release(gw, n, fh);
}

/* Replaced between look-up and open: once ESTALE when the old one is in use, then right. */
static void test_ESTALE_once_replaced_before_open(void **state)
{
	uint64_t n, first, old, fh;
	struct fuse_open_out o;

	(void)state;
	gw_put("f", "old");
	n = first = gw_node("f");
	old = gw_open(n, O_RDONLY, NULL);
	gw_put("g", "newer");
	assert_int_equal(rename(gw_path("g"), gw_path("f")), 0);
	assert_int_equal(fw_open(gw, n, O_RDONLY, &o), -ESTALE);
	assert_int_equal(fw_read(gw, n, old, O_RDONLY, 0, buf, 10), 3);
	/* The kernel looks it up again; meanwhile it is replaced once more: never twice in a row. */
	n = gw_node("f");
	gw_put("g", "newest");
	assert_int_equal(rename(gw_path("g"), gw_path("f")), 0);
	fh = gw_open(n, O_RDONLY, NULL);
	assert_int_equal(fw_read(gw, n, fh, O_RDONLY, 0, buf, 10), 6);
	fw_release(gw, n, fh);
	fw_release(gw, first, old);
	fw_run(gw);
	assert_int_equal(fake_guest_open(g), 0);
}

static void test_late_handles_are_given_back(void **state)
{
	struct fuse_create_in in = { .flags = O_CREAT | O_RDWR, .mode = S_IFREG | 0600 };
	uint64_t n, root, u, v;

	(void)state;
	gw_put("f", "");
	root = gw_node("");
	n = gw_node("f");
	g->hung = true;
	u = fw_start_open(gw, n, O_RDONLY);
	v = fw_send(gw, FUSE_CREATE, root, &in, sizeof(in), "new", 4);
	fw_run(gw);
	fw_interrupt(gw, u);
	fw_interrupt(gw, v);
	fw_wait(gw, 100);
	assert_int_equal(fw_take(gw, u, NULL), -EINTR);
	assert_int_equal(fw_take(gw, v, NULL), -EINTR);
	fake_guest_go_on(g);
	fw_run(gw);
	assert_int_equal(g->late_releases, 2);
	assert_int_equal(fake_guest_open(g), 0);
	assert_int_equal(cfs_session_open(gw->cs), 0);
}

static void test_a_paused_guest_gets_the_release_later(void **state)
{
	uint64_t n, fh;

	(void)state;
	n = make("f", O_RDWR, &fh);
	g->status = SBX_PAUSED;
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, 0, buf, 10), -EBUSY);
	fw_release(gw, n, fh);
	assert_int_equal(fake_guest_open(g), 1);
	fake_guest_go_on(g);
	fw_run(gw);
	assert_int_equal(fake_guest_open(g), 0);
}

static void test_ENFILE_too_many_open(void **state)
{
	static uint64_t fh[1024];
	struct fuse_open_out o;
	uint64_t n;

	(void)state;
	gw_put("f", "");
	n = gw_node("f");
	for (size_t i = 0; i < ARRAY_LEN(fh); i++)
		fh[i] = gw_open(n, O_RDONLY, NULL);
	assert_int_equal(fw_open(gw, n, O_RDONLY, &o), -ENFILE);
	for (size_t i = 0; i < ARRAY_LEN(fh); i++)
		fw_release(gw, n, fh[i]);
	fh[0] = gw_open(n, O_RDONLY, NULL);
	fw_release(gw, n, fh[0]);
}

/* -- lies and errors ------------------------------------------------------------------------------------------ */

struct disk { /* a guest whose disk takes so many pieces, then says this */
	unsigned good;
	int code;
	unsigned short_by; /* of the last good piece */
	uint8_t op;
};

static void full(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer)
{
	struct disk *d = arg;

	(void)payload;
	(void)len;
	if (op != d->op)
		return;
	if (d->good == 0) {
		gw_say(answer, d->code);
	} else if (--d->good == 0 && d->short_by) {
		gw_say(answer, 0);
		wire_put_u32(answer, AG_FS_IO_MAX - d->short_by);
	}
}

static void test_ENOSPC_tells_what_was_written_first(void **state)
{
	struct disk d = { .good = 1, .code = -ENOSPC, .op = AG_FS_WRITE };
	uint64_t n, fh;

	(void)state;
	fill();
	n = make("f", O_RDWR, &fh);
	g->twist = full;
	g->twist_arg = &d;
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, 0, pattern, BIG), AG_FS_IO_MAX);
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, AG_FS_IO_MAX, pattern, BIG), -ENOSPC);
	d = (struct disk){ .good = 2, .code = -ENOSPC, .short_by = 100, .op = AG_FS_WRITE };
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, 0, pattern, BIG), 2 * AG_FS_IO_MAX - 100);
	d = (struct disk){ .good = 1, .short_by = 100, .op = AG_FS_WRITE }; /* the pieces behind do not count */
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, 0, pattern, BIG), AG_FS_IO_MAX - 100);
	fw_release(gw, n, fh);
	d = (struct disk){ .good = 1, .code = -ENOSPC, .op = AG_FS_WRITE };
	fh = gw_open(n, O_WRONLY | O_APPEND, NULL);
	assert_int_equal(fw_write(gw, n, fh, O_WRONLY | O_APPEND, 0, pattern, BIG), AG_FS_IO_MAX);
	assert_int_equal(fw_write(gw, n, fh, O_WRONLY | O_APPEND, 0, pattern, BIG), -ENOSPC);
	fw_release(gw, n, fh);
}

static void test_EIO_a_read_that_fails_is_not_the_end_of_the_file(void **state)
{
	struct disk d = { .good = 2, .code = -EIO, .op = AG_FS_READ };
	uint64_t n, fh;

	(void)state;
	fill();
	n = make("f", O_RDWR, &fh);
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, 0, pattern, BIG), BIG);
	g->twist = full;
	g->twist_arg = &d;
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, 0, buf, BIG), -EIO);
	fw_release(gw, n, fh);
}

static void more(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer)
{
	(void)arg;
	(void)payload;
	(void)len;
	gw_say(answer, 0);
	if (op == AG_FS_READ)
		wire_put_bytes(answer, pattern, 11);
	else if (op == AG_FS_WRITE)
		wire_put_u32(answer, 11);
}

static void test_EIO_more_than_was_asked_for(void **state)
{
	uint64_t n, fh;

	(void)state;
	n = make("f", O_RDWR, &fh);
	g->twist = more;
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, 0, buf, 10), -EIO);
	assert_int_equal(fw_read(gw, n, fh, O_RDWR, 0, buf, 11), 11);
	assert_int_equal(fw_write(gw, n, fh, O_RDWR, 0, buf, 10), -EIO);
	g->twist = NULL;
	fw_release(gw, n, fh);
}

static void zero_handle(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer)
{
	(void)arg;
	(void)payload;
	(void)len;
	if (op != AG_FS_OPEN && op != AG_FS_CREATE)
		return;
	gw_say(answer, 0);
	wire_put_u32(answer, 0);
	gw_say_attr(answer, S_IFREG, 1, 0);
}

static void test_EIO_a_handle_of_0(void **state)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;

	(void)state;
	gw_put("f", "");
	g->twist = zero_handle;
	assert_int_equal(fw_open(gw, gw_node("f"), O_RDONLY, &o), -EIO);
	assert_int_equal(fw_create(gw, gw_node(""), "h", O_CREAT | O_RDWR, 0600, &e, &o), -EIO);
	fake_guest_restart(g); /* its own handles are its own loss */
}

/* -- interrupts, and the end -------------------------------------------------------------------------------- */

static void hang_after_one(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer)
{
	(void)arg;
	(void)payload;
	(void)len;
	(void)answer;
	if (op == AG_FS_WRITE)
		g->hung = true;
}

static void test_an_interrupted_write_tells_what_was_written(void **state)
{
	const struct fw_answer *a;
	uint64_t n, fh, u;

	(void)state;
	fill();
	n = make("f", O_RDWR, &fh);
	g->twist = hang_after_one;
	u = fw_start_write(gw, n, fh, O_RDWR, 0, pattern, BIG);
	fw_run(gw);
	assert_false(fw_answered(gw, u));
	fw_interrupt(gw, u);
	fw_wait(gw, 100);
	assert_int_equal(fw_take(gw, u, &a), 0);
	assert_int_equal(((const struct fuse_write_out *)(const void *)a->data)->size, AG_FS_IO_MAX);
	u = fw_start_write(gw, n, fh, O_RDWR, 0, pattern, 10);
	fw_run(gw);
	fw_interrupt(gw, u);
	fw_wait(gw, 100);
	assert_int_equal(fw_take(gw, u, NULL), -EINTR);
	g->twist = NULL;
	fake_guest_go_on(g);
	fw_release(gw, n, fh);
}

static void test_the_session_ends_with_everything_under_way(void **state)
{
	struct fuse_open_in od = { 0 };
	uint64_t n, fh, dir, root = gw_node("");

	(void)state;
	fill();
	n = make("f", O_RDWR, &fh);
	dir = fw_send(gw, FUSE_OPENDIR, root, &od, sizeof(od), NULL, 0);
	fw_run(gw);
	assert_int_equal(fw_take(gw, dir, NULL), 0);
	g->hung = true;
	fw_send(gw, FUSE_LOOKUP, root, "x", 2, NULL, 0);
	fw_start_open(gw, n, O_RDONLY);
	fw_start_read(gw, n, fh, O_RDWR, 0, BIG);
	fw_start_write(gw, n, fh, O_RDWR, 0, pattern, BIG);
	fw_send(gw, FUSE_GETATTR, n, &(struct fuse_getattr_in){ 0 }, sizeof(struct fuse_getattr_in), NULL, 0);
	fw_run(gw);
	assert_int_equal(cfs_session_parked(gw->cs), 5);
	/* gw_teardown: nothing is left, in the daemon or in the guest. */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, gw_setup, gw_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_file_is_made_written_and_read),
		TEST(test_pieces_travel_together),
		TEST(test_appended_bytes_keep_their_order),
		TEST(test_handle_operations),
		TEST(test_ESTALE_a_handle_of_another_epoch),
		TEST(test_ESTALE_a_handle_the_guest_does_not_know),
		TEST(test_ESTALE_once_replaced_before_open),
		TEST(test_late_handles_are_given_back),
		TEST(test_a_paused_guest_gets_the_release_later),
		TEST(test_ENFILE_too_many_open),
		TEST(test_ENOSPC_tells_what_was_written_first),
		TEST(test_EIO_a_read_that_fails_is_not_the_end_of_the_file),
		TEST(test_EIO_more_than_was_asked_for),
		TEST(test_EIO_a_handle_of_0),
		TEST(test_an_interrupted_write_tells_what_was_written),
		TEST(test_the_session_ends_with_everything_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
