/* SPDX-License-Identifier: Apache-2.0 */
/* Rule 8: a command is what was written between open and the last close; and the lease, which is about closing too. */
#include <errno.h>
#include <stdlib.h>
#include "fusewire.h"

static char buf[16 * 1024 * 1024];

struct file {
	uint64_t node, fh;
};

static struct file open_file(struct fw *w, const char *path, int flags)
{
	struct fuse_entry_out e = { 0 };
	struct fuse_open_out o = { 0 };

	assert_int_equal(fw_walk(w, path, &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, flags, &o), 0);
	return (struct file){ e.nodeid, o.fh };
}

static long put(struct fw *w, struct file *f, uint64_t off, const char *text)
{
	return fw_write(w, f->node, f->fh, O_WRONLY, off, text, strlen(text));
}

static void command_is(struct fw *w, const char *text)
{
	assert_int_equal(fw_cat(w, "run/a/cmd", buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

static void the_last_close_commits(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct file f;

	f = open_file(w, "run/a/cmd", O_WRONLY | O_TRUNC);
	assert_int_equal(put(w, &f, 0, "echo a\n"), 7);
	assert_int_equal(fw_flush(w, f.node, f.fh), 0); /* a child that inherited it has ended */
	assert_int_equal(put(w, &f, 7, "echo b\n"), 7);
	assert_int_equal(fw_flush(w, f.node, f.fh), 0);
	assert_int_equal(sandbox_latest_exec(s), 0);
	fw_release(w, f.node, f.fh);
	assert_int_equal(sandbox_latest_exec(s), 1);
	command_is(w, "echo a\necho b\n");
}

static void offsets_mean_nothing(void **state)
{
	struct fw *w = *state;
	struct file f;

	fake_sandbox(w->reg, "a", 0);
	f = open_file(w, "run/a/cmd", O_WRONLY | O_APPEND);
	put(w, &f, 0, "one ");
	put(w, &f, 0, "two ");
	put(w, &f, 1ull << 30, "three");
	fw_release(w, f.node, f.fh);
	command_is(w, "one two three");
}

static void two_writers_never_mix(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct file f, g;

	f = open_file(w, "run/a/cmd", O_WRONLY);
	g = open_file(w, "run/a/cmd", O_WRONLY);
	put(w, &f, 0, "f1 ");
	put(w, &g, 0, "g1 ");
	put(w, &f, 3, "f2");
	put(w, &g, 3, "g2");
	fw_release(w, g.node, g.fh);
	command_is(w, "g1 g2");
	fw_release(w, f.node, f.fh);
	command_is(w, "f1 f2");
	assert_int_equal(sandbox_latest_exec(s), 2);
	assert_int_equal(fake_uploads(w->reg), 0);
}

static void nothing_written_is_no_command(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct file f;

	f = open_file(w, "run/a/cmd", O_WRONLY | O_TRUNC);
	fw_release(w, f.node, f.fh);
	f = open_file(w, "run/a/cmd", O_RDONLY);
	assert_int_equal(fw_write(w, f.node, f.fh, O_RDONLY, 0, "x", 1), -EBADF);
	fw_release(w, f.node, f.fh);
	assert_int_equal(sandbox_latest_exec(s), 0);
}

static void NUL_is_EINVAL_at_write(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct file f;

	assert_int_equal(fw_put_bytes(w, "run/a/cmd", O_WRONLY, "a\0b", 3), -EINVAL);
	f = open_file(w, "run/a/cmd", O_WRONLY);
	assert_int_equal(put(w, &f, 0, "rm -r tmp"), 9);
	assert_int_equal(fw_write(w, f.node, f.fh, O_WRONLY, 9, "\0", 1), -EINVAL);
	fw_release(w, f.node, f.fh);
	assert_int_equal(sandbox_latest_exec(s), 0); /* half a command does not run */
}

static void too_long_EFBIG(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	static char piece[65536];
	struct file f;

	memset(piece, '#', sizeof(piece));
	f = open_file(w, "run/a/cmd", O_WRONLY);
	for (unsigned i = 0; i < 128; i++)
		assert_int_equal(fw_write(w, f.node, f.fh, O_WRONLY, i * 65536, piece, 65536), 65536);
	assert_int_equal(fw_write(w, f.node, f.fh, O_WRONLY, 8 << 20, "x", 1), -EFBIG);
	fw_release(w, f.node, f.fh);
	assert_int_equal(sandbox_latest_exec(s), 0);
	/* 8 MiB to the byte is fine, and reads back. */
	f = open_file(w, "run/a/cmd", O_WRONLY);
	for (unsigned i = 0; i < 128; i++)
		assert_int_equal(fw_write(w, f.node, f.fh, O_WRONLY, i * 65536, piece, 65536), 65536);
	fw_release(w, f.node, f.fh);
	assert_int_equal(sandbox_latest_exec(s), 1);
	assert_int_equal(fw_cat(w, "run/a/cmd", buf, sizeof(buf)), 8 << 20);
}

static void a_full_queue_EBUSY(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	fake_queue_full(s, true);
	assert_int_equal(fw_put(w, "run/a/cmd", "true"), -EBUSY);
	assert_int_equal(sandbox_latest_exec(s), 0);
}

/* `true`, then bad JSON, then cat wait: the second one's record. */
static void a_wrong_command_has_a_record(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	fake_end_at_once(w->reg, true);
	assert_int_equal(fw_put(w, "run/a/cmd", "true"), 0);
	assert_true(fw_cat(w, "run/a/.wait", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "\"exec\":1,"));
	assert_int_equal(fw_put(w, "run/a/cmd", "{bad"), 0);
	assert_true(fw_cat(w, "run/a/.wait", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "\"exec\":2,"));
	assert_non_null(strstr(buf, "\"exit_code\":-1,"));
	assert_non_null(strstr(buf, "bad JSON"));
}

/* RELEASE and what the closer asks next arrive together: the new command's state, always. */
static void who_reads_after_the_close_sees_it(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	for (uint64_t i = 1; i <= 50; i++) {
		struct fuse_release_in rel = { 0 };
		struct fuse_entry_out a;
		uint64_t look;
		struct file f;

		assert_int_equal(fw_walk(w, "run/a", &a), 0);
		f = open_file(w, "run/a/cmd", O_WRONLY);
		put(w, &f, 0, "true");
		rel.fh = f.fh;
		fw_send(w, FUSE_RELEASE, f.node, &rel, sizeof(rel), NULL, 0);
		look = fw_send(w, FUSE_LOOKUP, a.nodeid, "result.json", 12, NULL, 0);
		fw_run(w);
		assert_int_equal(fw_take(w, look, NULL), -ENOENT); /* not the old record */
		fake_end(s, i, 0);
		assert_true(fw_cat(w, "run/a/result.json", buf, sizeof(buf)) > 0);
		assert_int_equal(strtoull(strstr(buf, ":") + 1, NULL, 10), i);
	}
}

static void truncation_to_nothing_begins_anew(void **state)
{
	struct fw *w = *state;
	struct file f;

	fake_sandbox(w->reg, "a", 0);
	f = open_file(w, "run/a/cmd", O_WRONLY);
	put(w, &f, 0, "wrong");
	assert_int_equal(fw_setattr(w, f.node, FATTR_SIZE | FATTR_FH, f.fh, 0, 0, 0), 0);
	put(w, &f, 0, "right");
	assert_int_equal(fw_setattr(w, f.node, FATTR_SIZE | FATTR_FH, f.fh, 5, 0, 0), 0); /* its own length: rsync */
	assert_int_equal(fw_setattr(w, f.node, FATTR_SIZE | FATTR_FH, f.fh, 4, 0, 0), -EINVAL);
	fw_release(w, f.node, f.fh);
	command_is(w, "right");
	assert_int_equal(fake_uploads(w->reg), 0);
}

static void standard_input_is_for_the_next_command(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	assert_int_equal(fw_put_bytes(w, "run/a/stdin", O_WRONLY, "a\0b", 3), 0); /* bytes, not text */
	assert_int_equal(fw_put(w, "run/a/stdin", "newer"), 0);
	assert_string_equal(fake_stdin(s), "newer");
	assert_int_equal(fw_cat(w, "run/a/stdin", buf, sizeof(buf)), 0);
	assert_string_equal(fake_stdin(s), "newer"); /* reading took nothing away */
	assert_int_equal(sandbox_latest_exec(s), 0);
	assert_int_equal(fw_put(w, "run/a/import", "tar"), 0);
	assert_int_equal(sandbox_latest_exec(s), 1);
}

static void a_removed_sandbox_ESTALE(void **state)
{
	struct fw *w = *state;
	struct file f;

	fake_sandbox(w->reg, "a", 0);
	f = open_file(w, "run/a/cmd", O_WRONLY);
	put(w, &f, 0, "true");
	fw_rmdir(w, "run/a");
	assert_int_equal(put(w, &f, 4, "x"), -ESTALE);
	fw_release(w, f.node, f.fh);
	assert_int_equal(fake_uploads(w->reg), 0);
}

/* -- lease -------------------------------------------------------------------------------------------- */

static void the_last_holder_ends_the_sandbox(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out e;
	struct file f, g, h;

	f = open_file(w, "run/a/lease", O_WRONLY);
	g = open_file(w, "run/a/lease", O_RDWR);
	h = open_file(w, "run/a/lease", O_RDONLY); /* grep -r: no holder */
	assert_int_equal(fake_leases(s), 2);
	assert_int_equal(put(w, &f, 0, "x"), -EPERM);
	fw_flush(w, f.node, f.fh);
	fw_flush(w, f.node, f.fh); /* its children end */
	fw_release(w, h.node, h.fh);
	fw_release(w, f.node, f.fh); /* killed: no flush needed */
	assert_int_equal(fw_walk(w, "run/a", &e), 0);
	fw_release(w, g.node, g.fh);
	assert_int_equal(fw_walk(w, "run/a", &e), -ENOENT);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(the_last_close_commits),
		TEST(offsets_mean_nothing),
		TEST(two_writers_never_mix),
		TEST(nothing_written_is_no_command),
		TEST(NUL_is_EINVAL_at_write),
		TEST(too_long_EFBIG),
		TEST(a_full_queue_EBUSY),
		TEST(a_wrong_command_has_a_record),
		TEST(who_reads_after_the_close_sees_it),
		TEST(truncation_to_nothing_begins_anew),
		TEST(standard_input_is_for_the_next_command),
		TEST(a_removed_sandbox_ESTALE),
		TEST(the_last_holder_ends_the_sandbox),
	};

	return cmocka_run_group_tests_name("cfs_cmd", tests, NULL, NULL);
}
