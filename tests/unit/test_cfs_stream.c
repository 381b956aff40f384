/* SPDX-License-Identifier: Apache-2.0 */
/* Rule 3: streams grow, stat tells what is held now, poll(2) wakes, a read at the end gives 0 bytes. */
#include <errno.h>
#include <poll.h>
#include <sys/stat.h>
#include "fusewire.h"

static char buf[262144];

static uint64_t open_stream(struct fw *w, const char *path, uint64_t *ret_fh)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;

	assert_int_equal(fw_walk(w, path, &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), 0);
	assert_true(o.open_flags & FOPEN_DIRECT_IO);
	assert_false(o.open_flags & FOPEN_NONSEEKABLE); /* tail -n, less */
	*ret_fh = o.fh;
	return e.nodeid;
}

static uint64_t size_of(struct fw *w, uint64_t node)
{
	struct fuse_attr at;

	assert_int_equal(fw_getattr(w, node, &at), 0);
	return at.size;
}

static void output_grows(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_attr before, after;
	struct fuse_entry_out e;
	uint64_t node, fh;

	fw_put(w, "run/a/cmd", "make");
	node = open_stream(w, "run/a/stdout", &fh);
	assert_int_equal(size_of(w, node), 0);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 0, buf, 100), 0);
	assert_int_equal(fw_getattr(w, node, &before), 0);
	fake_print(s, 1, 1, "hello ");
	assert_int_equal(size_of(w, node), 6);
	assert_int_equal(fw_getattr(w, node, &after), 0);
	assert_true(after.mtime > before.mtime || after.mtimensec > before.mtimensec);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 0, buf, 100), 6);
	fake_print(s, 1, 1, "world");
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 6, buf, 100), 5);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 3, buf, 4), 4); /* seekable */
	assert_memory_equal(buf, "lo w", 4);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 11, buf, 100), 0);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 1ull << 50, buf, 100), 0);
	assert_int_equal(fw_walk(w, "run/a/stdout", &e), 0); /* tail -F */
	assert_int_equal(e.nodeid, node);
	assert_int_equal(e.attr.size, 11);
	assert_int_equal(fw_walk(w, "run/a/stderr", &e), 0);
	assert_int_equal(e.attr.size, 0);
	fw_release(w, node, fh);
}

static void an_open_stream_stays_with_its_command(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out first, second;
	uint64_t node, fh;

	fw_put(w, "run/a/cmd", "one");
	fake_print(s, 1, 1, "first");
	node = open_stream(w, "run/a/stdout", &fh);
	assert_int_equal(fw_walk(w, "run/a/stdout", &first), 0);
	fw_put(w, "run/a/cmd", "two");
	fake_print(s, 2, 1, "second one");
	assert_int_equal(fw_walk(w, "run/a/stdout", &second), 0);
	assert_int_not_equal(first.nodeid, second.nodeid);
	assert_int_equal(first.attr.ino, second.attr.ino);
	assert_int_equal(second.attr.size, 10);
	assert_int_equal(size_of(w, node), 5);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 0, buf, 100), 5);
	assert_int_equal(fw_cat(w, "run/a/exec/1/stdout", buf, sizeof(buf)), 5);
	assert_int_equal(fw_cat(w, "run/a/stdout", buf, sizeof(buf)), 10);
	fw_release(w, node, fh);
}

static void empty_before_the_first_command(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_cat(w, "run/a/stdout", buf, sizeof(buf)), 0);
	assert_int_equal(fw_cat(w, "run/a/stderr", buf, sizeof(buf)), 0);
	assert_true(fw_cat(w, "run/a/console.log", buf, sizeof(buf)) >= 0);
	assert_true(fw_cat(w, "run/a/log.jsonl", buf, sizeof(buf)) > 0);
}

static void poll_tells_growth_and_the_end(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	uint64_t node, fh;
	uint32_t events;

	fw_put(w, "run/a/cmd", "make");
	node = open_stream(w, "run/a/stdout", &fh);
	assert_int_equal(fw_poll(w, node, fh, 3, true, &events), 0);
	assert_int_equal(events, 0);
	fake_print(s, 1, 2, "an error"); /* of the other stream */
	fw_run(w);
	assert_int_equal(w->npolls, 0);
	fake_print(s, 1, 1, "out");
	fw_run(w);
	assert_int_equal(w->npolls, 1);
	assert_int_equal(fw_poll(w, node, fh, 3, true, &events), 0);
	assert_int_equal(events, POLLIN);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 0, buf, 100), 3);
	assert_int_equal(fw_poll(w, node, fh, 3, true, &events), 0);
	assert_int_equal(events, 0);						/* all was read */
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 1 << 30, buf, 100), 0); /* far behind the end */
	fake_print(s, 1, 1, "put");
	fw_run(w);
	assert_int_equal(w->npolls, 2);
	assert_int_equal(fw_poll(w, node, fh, 3, true, &events), 0);
	assert_int_equal(events, POLLIN);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 3, buf, 100), 3);
	assert_int_equal(fw_poll(w, node, fh, 3, true, &events), 0);
	assert_int_equal(events, 0);
	fake_end(s, 1, 0);
	fw_run(w);
	assert_int_equal(w->npolls, 3);
	assert_int_equal(fw_poll(w, node, fh, 3, false, &events), 0);
	assert_int_equal(events, POLLIN); /* a read gives the end now */
	fw_release(w, node, fh);
	fake_print(s, 1, 1, "late");
	fw_run(w);
	assert_int_equal(w->npolls, 3);
}

static void events_show_each_reader_what_it_may_see(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out root, mine;
	uint64_t node, fh;
	uint32_t events;

	fake_event_of(w->reg, 5, "{\"n\":1}");
	fake_event_of(w->reg, 6, "{\"n\":22}");
	assert_int_equal(fw_cat(w, "events.jsonl", buf, sizeof(buf)), 8 + 9);
	assert_int_equal(fw_walk(w, "events.jsonl", &root), 0);
	assert_int_equal(root.attr.size, 8 + 9);
	w->uid = 5;
	assert_int_equal(fw_walk(w, "events.jsonl", &mine), 0);
	assert_int_equal(mine.attr.size, 8);
	assert_int_not_equal(mine.nodeid, root.nodeid);
	assert_int_equal(fw_cat(w, "events.jsonl", buf, sizeof(buf)), 8);
	node = open_stream(w, "events.jsonl", &fh);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 0, buf, 100), 8);
	assert_int_equal(fw_poll(w, node, fh, 3, true, &events), 0);
	assert_int_equal(events, 0);
	fake_event_of(w->reg, 6, "{\"n\":3}");
	fw_run(w);
	assert_int_equal(w->npolls, 0);
	fake_event_of(w->reg, 5, "{\"n\":4}");
	fw_run(w);
	assert_int_equal(w->npolls, 1);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 8, buf, 100), 8);
	fw_release(w, node, fh);
	w->uid = 7;
	assert_int_equal(fw_cat(w, "events.jsonl", buf, sizeof(buf)), 0);
}

static void a_log_outlives_its_sandbox(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;

	fake_sandbox(w->reg, "a", 5);
	assert_int_equal(fw_rmdir(w, "run/a"), 0);
	w->uid = 5;
	assert_true(fw_cat(w, "logs/00000000-0000-4000-8000-000000000001.jsonl", buf, sizeof(buf)) > 0);
	w->uid = 6; /* the kernel refuses by the mode; so does the domain */
	assert_int_equal(fw_walk(w, "logs/00000000-0000-4000-8000-000000000001.jsonl", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), -EACCES);
	assert_int_equal(fw_walk(w, "logs/00000000-0000-4000-8000-000000000002.jsonl", &e), -ENOENT);
	assert_int_equal(fw_walk(w, "logs/.jsonl", &e), -ENOENT);
	assert_int_equal(fw_walk(w, "logs/00000000-0000-4000-8000-000000000001", &e), -ENOENT);
}

static void a_removed_sandbox_ENOENT(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out e;
	struct fuse_open_out o;
	uint64_t node, fh;
	uint32_t events;

	fw_put(w, "run/a/cmd", "make");
	fake_print(s, 1, 1, "out");
	node = open_stream(w, "run/a/stdout", &fh);
	assert_int_equal(fw_walk(w, "run/a/stderr", &e), 0);
	assert_int_equal(fw_poll(w, node, fh, 3, true, &events), 0);
	assert_int_equal(fw_rmdir(w, "run/a"), 0);
	fw_run(w);
	assert_int_equal(w->npolls, 1);					  /* tail is not left waiting */
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 0, buf, 100), 3); /* what was there */
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), -ENOENT);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(output_grows),
		TEST(an_open_stream_stays_with_its_command),
		TEST(empty_before_the_first_command),
		TEST(poll_tells_growth_and_the_end),
		TEST(events_show_each_reader_what_it_may_see),
		TEST(a_log_outlives_its_sandbox),
		TEST(a_removed_sandbox_ENOENT),
	};

	return cmocka_run_group_tests_name("cfs_stream", tests, NULL, NULL);
}
