/* SPDX-License-Identifier: Apache-2.0 */
/* Files whose one write makes something and waits for it (jobfile.c), and what snapshots/ and store/ show. */
#include <errno.h>
#include "fusewire.h"

static char buf[65536];

static void cat_is(struct fw *w, const char *path, const char *text)
{
	assert_int_equal(fw_cat(w, path, buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

/* Send a write into @path and leave it. */
static uint64_t start(struct fw *w, const char *path, int flags, const char *text, struct fuse_entry_out *e,
		      struct fuse_open_out *o)
{
	uint64_t unique;

	assert_int_equal(fw_walk(w, path, e), 0);
	assert_int_equal(fw_open(w, e->nodeid, O_WRONLY | O_TRUNC | flags, o), 0);
	unique = fw_start_write(w, e->nodeid, o->fh, O_WRONLY | flags, 0, text, strlen(text));
	fw_run(w);
	return unique;
}

static void a_write_waits_for_the_end(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	uint64_t unique;

	fake_sandbox(w->reg, "a", 0);
	fake_jobs_wait(w->reg, true);
	unique = start(w, "run/a/snapshot", 0, " s1 \n", &e, &o);
	assert_false(fw_answered(w, unique));
	assert_int_equal(fake_jobs(w->reg), 1);
	fake_jobs_end(w->reg, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, unique, NULL), 0);
	assert_int_equal(fake_jobs(w->reg), 0);
	fw_release(w, e.nodeid, o.fh);
	cat_is(w, "run/a/snapshot", "s1\n");
	/* And what it ends with. */
	unique = start(w, "snapshots/s1/fork", 0, "b", &e, &o);
	assert_false(fw_answered(w, unique));
	fake_jobs_end(w->reg, -ETIMEDOUT);
	fw_run(w);
	assert_int_equal(fw_take(w, unique, NULL), -ETIMEDOUT);
	fw_release(w, e.nodeid, o.fh);
}

static void interrupted_it_goes_on_EINTR(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	uint64_t unique;

	fake_sandbox(w->reg, "a", 0);
	fake_jobs_wait(w->reg, true);
	unique = start(w, "run/a/snapshot", 0, "s1", &e, &o);
	fw_interrupt(w, unique);
	fw_run(w);
	assert_int_equal(fw_take(w, unique, NULL), -EINTR);
	assert_int_equal(fake_jobs(w->reg), 1); /* the worker's */
	fake_jobs_end(w->reg, 0);
	assert_int_equal(fake_jobs(w->reg), 0);
	fw_release(w, e.nodeid, o.fh);
}

static void nonblock_does_not_wait(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	uint64_t unique;

	fake_sandbox(w->reg, "a", 0);
	fake_jobs_wait(w->reg, true);
	unique = start(w, "run/a/snapshot", O_NONBLOCK, "s1", &e, &o);
	assert_int_equal(fw_take(w, unique, NULL), 0);
	fake_jobs_end(w->reg, -EIO);
	fw_release(w, e.nodeid, o.fh);
}

static void orders_that_are_refused(void **state)
{
	struct fw *w = *state;
	static char many[40000];

	fake_snapshot(w->reg, "s", fake_sandbox(w->reg, "a", 0), 0);
	assert_int_equal(fw_put(w, "run/a/snapshot", "../x"), -EINVAL);
	assert_true(fw_cat(w, "run/a/error", buf, sizeof(buf)) > 0);
	assert_int_equal(fw_put(w, "run/a/snapshot", "s"), -EEXIST);
	assert_int_equal(fw_put_bytes(w, "run/a/snapshot", O_WRONLY, "a\0b", 3), -EINVAL);
	assert_int_equal(fw_put(w, "run/a/snapshot", " \n"), 0); /* nothing */
	memset(many, 'x', sizeof(many));
	assert_int_equal(fw_put_bytes(w, "snapshots/s/fork", O_WRONLY, many, sizeof(many)), -EFBIG);
	assert_true(fw_cat(w, "snapshots/s/error", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "at most"));
	assert_int_equal(fw_put(w, "run/a/x", "s2"), 0);
	assert_int_equal(fw_rename(w, "run/a/x", "run/a/snapshot", 0), -EBUSY);
	assert_int_equal(fake_jobs(w->reg), 0);
}

static void what_a_snapshot_shows(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct snapshot *p = fake_snapshot(w->reg, "s", s, 0);
	struct fuse_entry_out e;

	fake_inherits(s, 7);
	cat_is(w, "run/a/inherited/7.out", "since\n");
	assert_int_equal(fw_walk(w, "run/a/inherited/8.out", &e), -ENOENT);
	cat_is(w, "snapshots/s/status", "ready\n");
	cat_is(w, "snapshots/s/parent", "profile:base\n");
	assert_int_equal(fw_walk(w, "snapshots/s/diff.json", &e), -ENOENT);
	assert_int_equal(fw_put(w, "snapshots/s/diff", "1"), 0);
	cat_is(w, "snapshots/s/diff", "done\n");
	cat_is(w, "snapshots/s/diff.json", "{\"changed\":[]}\n");
	fake_snapshot_status(p, SNAPSHOT_STORING);
	assert_int_equal(fw_put(w, "snapshots/s/verify", "1"), -EBUSY);
	cat_is(w, "snapshots/s/error", "snapshot s: not stored yet\n");
	fake_snapshot_status(p, SNAPSHOT_READY);
	assert_int_equal(fw_put(w, "snapshots/s/verify", "1"), 0);
	cat_is(w, "snapshots/s/verify", "{\"damaged\":0}\n");
	assert_int_equal(fw_put(w, "snapshots/s/fork", "--disk-only"), 0);
	cat_is(w, "snapshots/s/fork", "1 disk-only\n");
	assert_int_equal(fw_readlink(w, "snapshots/s/forks/1", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "../../../run/1");
	assert_int_equal(fw_readlink(w, "run/a/snapshots/s", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "../../../snapshots/s");
	assert_int_equal(fw_put(w, "store/gc", "1"), 0);
	cat_is(w, "store/gc", "{\"gc\":\"done\"}\n");
	cat_is(w, "store/verify", "");
	assert_int_equal(fw_rmdir(w, "snapshots/s"), 0);
	assert_int_equal(fw_walk(w, "snapshots/s", &e), -ENOENT);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_write_waits_for_the_end), TEST(interrupted_it_goes_on_EINTR), TEST(nonblock_does_not_wait),
		TEST(orders_that_are_refused),	 TEST(what_a_snapshot_shows),
	};

	return cmocka_run_group_tests_name("cfs_snapshot", tests, NULL, NULL);
}
