/* SPDX-License-Identifier: Apache-2.0 */
/* `.wait`: blocking, ESTALE once, O_NONBLOCK, poll, a thousand readers. Interrupts: test_cfs_session.c. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include "fusewire.h"

static char buf[262144];

static uint64_t node_of(struct fw *w, const char *path)
{
	struct fuse_entry_out e;

	assert_int_equal(fw_walk(w, path, &e), 0);
	return e.nodeid;
}

static void nothing_to_wait_for_ENOENT(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_walk(w, "run/a/.wait", &e), -ENOENT);
	assert_int_equal(fw_walk(w, "run/a/wait", &e), 0); /* the link is there */
}

static void at_once_when_nothing_runs(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	fake_end_at_once(w->reg, true);
	fw_put(w, "run/a/cmd", "true");
	assert_true(fw_cat(w, "run/a/.wait", buf, sizeof(buf)) > 0); /* and with true sizes */
	assert_non_null(strstr(buf, "\"exec\":1,"));
	assert_true(fw_cat(w, "run/a/exec/1/.wait", buf, sizeof(buf)) > 0);
}

/* The kernel's part of an open(2) that is told ESTALE: look-up again, twice (the cached name is checked first), and
 * open. */
static void open_again(struct fw *w, const char *path, const char *content)
{
	struct fuse_entry_out checked, e;
	struct fuse_open_out o;

	assert_int_equal(fw_walk(w, path, &checked), 0);
	fw_forget(w, checked.nodeid, 1);
	assert_int_equal(fw_walk(w, path, &e), 0);
	assert_true(e.attr.size > 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), 0);
	assert_true(o.open_flags & FOPEN_KEEP_CACHE);
	memset(buf, 0, 300);
	assert_int_equal(fw_read(w, e.nodeid, o.fh, O_RDONLY, 0, buf, 300), e.attr.size);
	assert_non_null(strstr(buf, content));
	fw_release(w, e.nodeid, o.fh);
}

static void blocks_until_the_end_then_ESTALE_once(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	uint64_t node, open;
	struct fuse_open_out o;

	fw_put(w, "run/a/cmd", "make");
	node = node_of(w, "run/a/.wait");
	open = fw_start_open(w, node, O_RDONLY);
	fw_run(w);
	fake_print(s, 1, 1, "progress\n"); /* woken, and not for this */
	fw_run(w);
	assert_false(fw_answered(w, open));
	fake_end(s, 1, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, open, NULL), -ESTALE);
	open_again(w, "run/a/.wait", "\"exec\":1,");
	/* Who opens the very node again (by /proc/self/fd, where no name is looked up) gets it without the page cache.
	 */
	assert_int_equal(fw_open(w, node, O_RDONLY, &o), 0);
	assert_true(o.open_flags & FOPEN_DIRECT_IO);
	assert_true(fw_read(w, node, o.fh, O_RDONLY, 0, buf, 300) > 0);
}

/* Told ESTALE when command 1 ended, and command 2 runs by the time the name is looked up again: command 1's record, at
 * once. */
static void never_twice_in_a_row(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out e;
	uint64_t node, open, other;

	fw_put(w, "run/a/cmd", "one");
	node = node_of(w, "run/a/.wait");
	open = fw_start_open(w, node, O_RDONLY);
	fw_run(w);
	fake_end(s, 1, 0);
	w->pid = 99; /* somebody else's next command, before the retry */
	fw_put(w, "run/a/cmd", "two");
	fw_run(w);
	assert_int_equal(fw_take(w, open, NULL), -ESTALE);
	/* That other thread is not served the old record. */
	assert_int_equal(fw_walk(w, "run/a/.wait", &e), 0);
	assert_int_equal(e.attr.size, 0);
	other = fw_start_open(w, e.nodeid, O_RDONLY);
	fw_run(w);
	assert_false(fw_answered(w, other));
	w->pid = 4711;
	open_again(w, "run/a/.wait", "\"exec\":1,");
	/* The promise was for that one open: now the thread waits for the second like anybody. */
	assert_int_equal(fw_walk(w, "run/a/.wait", &e), 0);
	assert_int_equal(e.attr.size, 0);
	fake_end(s, 2, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, other, NULL), -ESTALE);
}

static void ended_between_lookup_and_open(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_open_out o;
	uint64_t node;

	fw_put(w, "run/a/cmd", "make");
	node = node_of(w, "run/a/.wait");
	fake_end(s, 1, 3);
	assert_int_equal(fw_open(w, node, O_RDONLY, &o), -ESTALE);
	open_again(w, "run/a/.wait", "\"exit_code\":3,");
}

static void waits_for_the_latest(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	uint64_t one, two;

	fw_put(w, "run/a/cmd", "one");
	fw_put(w, "run/a/cmd", "two");
	one = fw_start_open(w, node_of(w, "run/a/exec/1/.wait"), O_RDONLY);
	two = fw_start_open(w, node_of(w, "run/a/.wait"), O_RDONLY);
	fw_run(w);
	fake_end(s, 1, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, one, NULL), -ESTALE);
	assert_false(fw_answered(w, two));
	open_again(w, "run/a/exec/1/.wait", "\"exec\":1,");
	fake_end(s, 2, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, two, NULL), -ESTALE);
	open_again(w, "run/a/.wait", "\"exec\":2,");
}

static void nonblocking_EAGAIN_then_poll(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	const int flags = O_RDONLY | O_NONBLOCK;
	struct fuse_open_out o;
	struct fuse_attr at;
	uint32_t events = 99;
	uint64_t node;

	fw_put(w, "run/a/cmd", "make");
	node = node_of(w, "run/a/.wait");
	assert_int_equal(fw_open(w, node, flags, &o), 0);
	assert_true(o.open_flags & FOPEN_DIRECT_IO);
	assert_int_equal(fw_read(w, node, o.fh, flags, 0, buf, 300), -EAGAIN);
	assert_int_equal(fw_poll(w, node, o.fh, 5, true, &events), 0);
	assert_int_equal(events, 0);
	assert_int_equal(w->npolls, 0);
	fake_print(s, 1, 1, "x");
	fw_run(w);
	assert_int_equal(w->npolls, 0);				       /* not ready: not told */
	assert_int_equal(fw_poll(w, node, o.fh, 5, true, &events), 0); /* asked again: one handle is kept */
	fake_end(s, 1, 0);
	fw_run(w);
	assert_int_equal(w->npolls, 1);
	assert_int_equal(w->polls[0], 5);
	assert_int_equal(fw_poll(w, node, o.fh, 5, false, &events), 0);
	assert_int_equal(events, POLLIN);
	assert_true(fw_read(w, node, o.fh, flags, 0, buf, 300) > 0);
	assert_int_equal(fw_getattr(w, node, &at), 0);
	assert_int_equal(fw_read(w, node, o.fh, flags, at.size, buf, 300), 0);
	assert_true(at.size > 0);
	fw_release(w, node, o.fh);
	assert_int_equal(w->npolls, 1);
}

static void a_removed_sandbox_wakes_ENOENT(void **state)
{
	struct fw *w = *state;
	uint64_t a, b, node;
	struct fuse_open_out o;
	uint32_t events;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "make");
	a = fw_start_open(w, node_of(w, "run/a/.wait"), O_RDONLY);
	b = fw_start_open(w, node_of(w, "run/a/exec/1/.wait"), O_RDONLY);
	node = node_of(w, "run/a/.wait");
	assert_int_equal(fw_open(w, node, O_RDONLY | O_NONBLOCK, &o), 0);
	assert_int_equal(fw_poll(w, node, o.fh, 7, true, &events), 0);
	fw_rmdir(w, "run/a");
	fw_run(w);
	assert_int_equal(fw_take(w, a, NULL), -ENOENT);
	assert_int_equal(fw_take(w, b, NULL), -ENOENT);
	assert_int_equal(w->npolls, 1);
	assert_int_equal(fw_poll(w, node, o.fh, 7, false, &events), 0);
	assert_true(events & POLLERR);
}

static void a_command_that_is_no_longer_kept_ENOENT(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out e;
	uint64_t open;

	fw_put(w, "run/a/cmd", "one");
	open = fw_start_open(w, node_of(w, "run/a/exec/1/.wait"), O_RDONLY);
	fw_run(w);
	fake_forget(s, 1);
	fw_run(w);
	assert_int_equal(fw_take(w, open, NULL), -ENOENT);
	assert_int_equal(fw_walk(w, "run/a/exec/1", &e), -ENOENT);
}

/* That it is quick is for the benchmark to say; here: all are kept, each is answered, the rest goes on. (The socket
 * holds some hundred answers at once, so most are interrupted first.) */
static void a_thousand_readers(void **state)
{
	static uint64_t open[1000];
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	fw_put(w, "run/a/cmd", "make");
	for (size_t i = 0; i < 1000; i++) {
		w->pid = (pid_t)(10000 + i);
		open[i] = fw_start_open(w, node_of(w, "run/a/.wait"), O_RDONLY);
		fw_run(w);
	}
	assert_int_equal(cfs_session_parked(w->cs), 1000);
	assert_int_equal(fw_list(w, "run/a", buf, sizeof(buf)), 0);
	for (size_t i = 0; i < 1000; i++) {
		if (i % 10)
			fw_interrupt(w, open[i]);
	}
	assert_int_equal(cfs_session_parked(w->cs), 100);
	fake_end(s, 1, 0);
	fw_run(w);
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(fw_take(w, open[i], NULL), i % 10 ? -EINTR : -ESTALE);
	fw_put(w, "run/a/cmd", "next");
	for (size_t i = 0; i < 1000; i += 10) {
		w->pid = (pid_t)(10000 + i);
		open_again(w, "run/a/.wait", "\"exec\":1,");
	}
	assert_int_equal(cfs_session_open(w->cs), 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(nothing_to_wait_for_ENOENT),
		TEST(at_once_when_nothing_runs),
		TEST(blocks_until_the_end_then_ESTALE_once),
		TEST(never_twice_in_a_row),
		TEST(ended_between_lookup_and_open),
		TEST(waits_for_the_latest),
		TEST(nonblocking_EAGAIN_then_poll),
		TEST(a_removed_sandbox_wakes_ENOENT),
		TEST(a_command_that_is_no_longer_kept_ENOENT),
		TEST(a_thousand_readers),
	};

	return cmocka_run_group_tests_name("cfs_wait", tests, NULL, NULL);
}
