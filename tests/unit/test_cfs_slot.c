/* SPDX-License-Identifier: Apache-2.0 */
/* exec/NAME/: slots, their live standard input above all. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include "fusewire.h"

static char buf[262144];

static struct sandbox *with_slot(struct fw *w)
{
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	assert_int_equal(fw_mkdir(w, "run/a/exec/web"), 0);
	return s;
}

static void open_stdin(struct fw *w, int flags, uint64_t *ret_node, uint64_t *ret_fh)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;

	assert_int_equal(fw_walk(w, "run/a/exec/web/stdin", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, flags, &o), 0);
	*ret_node = e.nodeid;
	*ret_fh = o.fh;
}

static void names_EINVAL_EEXIST(void **state)
{
	struct fw *w = *state;

	with_slot(w);
	assert_int_equal(fw_mkdir(w, "run/a/exec/web"), -EEXIST);
	assert_int_equal(fw_mkdir(w, "run/a/exec/7"), -EINVAL);
	assert_int_equal(fw_mkdir(w, "run/a/exec/.x"), -EINVAL);
	assert_int_equal(fw_mkdir(w, "run/a/exec/latest"), -EEXIST);
	assert_int_equal(fw_mkdir(w, "run/a/exec/web/x"), -EPERM);
	assert_int_equal(fw_rmdir(w, "run/a/exec/web"), 0);
	assert_int_equal(fw_rmdir(w, "run/a/exec/web"), -ENOENT);
	assert_int_equal(fw_mkdir(w, "run/a/exec/web"), 0);
}

static void runs_beside_the_queue(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = with_slot(w);
	struct fuse_entry_out e;
	uint64_t open;

	assert_int_equal(fw_cat(w, "run/a/exec/web/status", buf, sizeof(buf)), 5);
	assert_string_equal(buf, "idle\n");
	assert_int_equal(fw_walk(w, "run/a/exec/web/.wait", &e), -ENOENT);
	assert_int_equal(fw_put(w, "run/a/exec/web/cmd", "serve"), 0);
	assert_int_equal(sandbox_latest_exec(s), 0); /* the queue's latest is none still */
	assert_int_equal(slot_latest_exec(s, "web"), 1);
	assert_int_equal(fw_cat(w, "run/a/exec/web/cmd", buf, sizeof(buf)), 5);
	fake_print(s, 1, 1, "listening\n");
	assert_int_equal(fw_cat(w, "run/a/exec/web/stdout", buf, sizeof(buf)), 10);
	assert_int_equal(fw_cat(w, "run/a/exec/1/stdout", buf, sizeof(buf)), 10); /* it has a number like any */
	assert_int_equal(fw_walk(w, "run/a/exec/web/result.json", &e), -ENOENT);
	assert_int_equal(fw_walk(w, "run/a/exec/web/.wait", &e), 0);
	open = fw_start_open(w, e.nodeid, O_RDONLY);
	fw_run(w);
	fake_end(s, 1, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, open, NULL), -ESTALE);
	assert_true(fw_cat(w, "run/a/exec/web/.wait", buf, sizeof(buf)) > 0);
	assert_true(fw_cat(w, "run/a/exec/web/result.json", buf, sizeof(buf)) > 0);
}

static void ctl_takes_its_own_verbs(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = with_slot(w);

	assert_int_equal(fw_put(w, "run/a/exec/web/ctl", "resize 24 80\nsignal HUP\neof\n"), 0);
	assert_string_equal(fake_ctl(s), "resize 24 80|signal HUP|eof|");
	assert_int_equal(fw_put(w, "run/a/exec/web/ctl", "pause\n"), -EINVAL);
	assert_true(fw_cat(w, "run/a/exec/web/ctl", buf, sizeof(buf)) > 0);
	assert_int_equal(fw_put(w, "run/a/exec/web/new", "kill\n"), 0);
	assert_int_equal(fw_rename(w, "run/a/exec/web/new", "run/a/exec/web/ctl", 0), 0);
	assert_string_equal(fake_ctl(s), "resize 24 80|signal HUP|eof|kill|");
}

static void a_write_waits_for_room(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = with_slot(w);
	uint64_t n, fh, wr;
	const struct fw_answer *a;
	size_t len;

	fw_put(w, "run/a/exec/web/cmd", "cat");
	open_stdin(w, O_WRONLY, &n, &fh);
	fake_room(s, "web", 4);
	assert_int_equal(fw_write(w, n, fh, O_WRONLY, 0, "abc", 3), 3);
	wr = fw_start_write(w, n, fh, O_WRONLY, 3, "defghij", 7);
	fw_run(w);
	assert_false(fw_answered(w, wr));
	fake_room(s, "web", 3);
	fw_run(w);
	assert_false(fw_answered(w, wr));
	fake_room(s, "web", 100);
	fw_run(w);
	assert_int_equal(fw_take(w, wr, &a), 0);
	assert_int_equal(((const struct fuse_write_out *)(const void *)a->data)->size, 7); /* all of it, as on a pipe */
	assert_string_equal(fake_livein(s, "web", &len), "abcdefghij");
	fw_release(w, n, fh);
}

static void an_interrupted_write_EINTR_or_short(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = with_slot(w);
	const struct fw_answer *a;
	uint64_t n, fh, wr;
	size_t len;

	fw_put(w, "run/a/exec/web/cmd", "cat");
	open_stdin(w, O_WRONLY, &n, &fh);
	wr = fw_start_write(w, n, fh, O_WRONLY, 0, "abc", 3);
	fw_run(w);
	fw_interrupt(w, wr);
	assert_int_equal(fw_take(w, wr, NULL), -EINTR);
	fake_room(s, "web", 2);
	wr = fw_start_write(w, n, fh, O_WRONLY, 0, "abc", 3);
	fw_run(w);
	fw_interrupt(w, wr);
	assert_int_equal(fw_take(w, wr, &a), 0);
	assert_int_equal(((const struct fuse_write_out *)(const void *)a->data)->size, 2);
	assert_string_equal(fake_livein(s, "web", &len), "ab");
}

/* For whom O_NONBLOCK does not reach: whole or not at all, at once. */
static void the_unlisted_stdin_EAGAIN_EMSGSIZE_EPIPE(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = with_slot(w);
	static char data[160 * 1024];
	struct fuse_entry_out e;
	struct fuse_open_out o;
	size_t len;

	fw_put(w, "run/a/exec/web/cmd", "cat");
	assert_int_equal(fw_walk(w, "run/a/exec/web/.stdin", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY, &o), 0);
	fake_room(s, "web", 4);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 0, "abcde", 5), -EAGAIN);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 0, "abcd", 4), 4);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 4, "e", 1), -EAGAIN);
	fake_room(s, "web", 1 << 20);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 4, "e", 1), 1);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 5, data, sizeof(data)), -EMSGSIZE);
	assert_string_equal(fake_livein(s, "web", &len), "abcde");
	fake_end(s, 1, 0);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 5, "x", 1), -EPIPE);
	fw_release(w, e.nodeid, o.fh);
}

static void a_large_waiting_write_is_cut(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = with_slot(w);
	static char data[160 * 1024];
	const struct fw_answer *a;
	uint64_t n, fh, wr;

	open_stdin(w, O_WRONLY, &n, &fh);
	wr = fw_start_write(w, n, fh, O_WRONLY, 0, data, sizeof(data));
	fw_run(w);
	fake_room(s, "web", 1 << 20);
	fw_run(w);
	assert_int_equal(fw_take(w, wr, &a), 0);
	assert_int_equal(((const struct fuse_write_out *)(const void *)a->data)->size, 128 * 1024);
}

static void nonblocking_EAGAIN_then_poll(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = with_slot(w);
	const int flags = O_WRONLY | O_NONBLOCK;
	uint64_t n, fh;
	uint32_t events;

	fw_put(w, "run/a/exec/web/cmd", "cat");
	open_stdin(w, flags, &n, &fh);
	assert_int_equal(fw_write(w, n, fh, flags, 0, "abc", 3), -EAGAIN);
	assert_int_equal(fw_poll(w, n, fh, 9, true, &events), 0);
	assert_int_equal(events & POLLOUT, 0);
	fake_room(s, "web", 2);
	fw_run(w);
	assert_int_equal(w->npolls, 1);
	assert_int_equal(fw_poll(w, n, fh, 9, false, &events), 0);
	assert_true(events & POLLOUT);
	assert_int_equal(fw_write(w, n, fh, flags, 0, "abc", 3), 2);
}

static void an_ended_command_EPIPE(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = with_slot(w);
	uint64_t n, fh, wr;

	fw_put(w, "run/a/exec/web/cmd", "cat");
	open_stdin(w, O_WRONLY, &n, &fh);
	wr = fw_start_write(w, n, fh, O_WRONLY, 0, "abc", 3);
	fw_run(w);
	fake_end(s, 1, 0);
	fw_run(w);
	assert_int_equal(fw_take(w, wr, NULL), -EPIPE);
	assert_int_equal(fw_write(w, n, fh, O_WRONLY, 0, "abc", 3), -EPIPE);
}

static void a_removed_slot_ENOENT_and_sandbox_ESTALE(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	uint64_t n, fh, a, b;

	with_slot(w);
	fw_put(w, "run/a/exec/web/cmd", "cat");
	open_stdin(w, O_WRONLY, &n, &fh);
	a = fw_start_write(w, n, fh, O_WRONLY, 0, "abc", 3);
	fw_run(w);
	assert_int_equal(fw_rmdir(w, "run/a/exec/web"), 0);
	fw_run(w);
	assert_int_equal(fw_take(w, a, NULL), -ENOENT);
	assert_int_equal(fw_walk(w, "run/a/exec/web/cmd", &e), -ENOENT);
	fw_mkdir(w, "run/a/exec/web");
	open_stdin(w, O_WRONLY, &n, &fh);
	b = fw_start_write(w, n, fh, O_WRONLY, 0, "abc", 3);
	fw_run(w);
	fw_rmdir(w, "run/a");
	fw_run(w);
	assert_int_equal(fw_take(w, b, NULL), -ESTALE);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(names_EINVAL_EEXIST),
		TEST(runs_beside_the_queue),
		TEST(ctl_takes_its_own_verbs),
		TEST(a_write_waits_for_room),
		TEST(an_interrupted_write_EINTR_or_short),
		TEST(a_large_waiting_write_is_cut),
		TEST(the_unlisted_stdin_EAGAIN_EMSGSIZE_EPIPE),
		TEST(nonblocking_EAGAIN_then_poll),
		TEST(an_ended_command_EPIPE),
		TEST(a_removed_slot_ENOENT_and_sandbox_ESTALE),
	};

	return cmocka_run_group_tests_name("cfs_slot", tests, NULL, NULL);
}
