/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's files and policies: all of them need `files`, at each request; and the end of the view that they are seen
 * through. */
#include "guestwire.h"

#include <errno.h>
#include <stdlib.h>

#include "fuseall.h"

static struct view *v;

static struct registry *reg(void)
{
	return (struct registry *)g;
}

/* A directory and a file in it, open both. */
struct things {
	uint64_t dir, dir_fh, file, fh;
};

static void open_things(struct things *t)
{
	struct fuse_open_in in = { 0 };
	const struct fw_answer *a;

	gw_put("f", "12345");
	t->dir = gw_node("");
	t->file = gw_node("f");
	t->fh = gw_open(t->file, O_RDWR, NULL);
	assert_int_equal(fw_call(gw, FUSE_OPENDIR, t->dir, &in, sizeof(in), NULL, 0, &a), 0);
	t->dir_fh = ((const struct fuse_open_out *)(const void *)a->data)->fh;
}

static void close_things(const struct things *t)
{
	struct fuse_release_in rel = { .fh = t->dir_fh };

	assert_int_equal(fw_call(gw, FUSE_RELEASEDIR, t->dir, &rel, sizeof(rel), NULL, 0, NULL), 0);
	fw_release(gw, t->file, t->fh);
	fw_run(gw);
	assert_int_equal(fake_guest_open(g), 0); /* given back in the guest, too */
}

static int view_setup(void **state)
{
	int r = gw_setup(state);

	v = view_ref(fake_view_new(reg(), g->loop, "v", "{}"));
	g->owner.view = v;
	return r;
}

static int view_teardown(void **state)
{
	int r = gw_teardown(state);

	v = view_unref(v);
	assert_int_equal(fake_views_alive(), 0);
	return r;
}

static unsigned all_calls(void)
{
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(g->calls) / sizeof(*g->calls); i++)
		n += g->calls[i];
	return n;
}

static void every_request_needs_files_EPERM(void **state)
{
	struct things t;
	unsigned asked;
	char text[16];

	(void)state;
	open_things(&t);
	asked = all_calls();
	fake_policy_uid(reg(), 1000, "{\"operations\":[\"create\",\"exec\",\"read\",\"delete\"]}");
	fw_each_request(gw, t.dir, t.dir_fh, t.file, t.fh, -EPERM, 0);
	assert_int_equal(all_calls(), asked); /* the guest heard nothing of it */
	assert_non_null(strstr(g->error, "files"));
	fake_policy_uid(reg(), 1000, "{\"operations\":[\"files\"]}");
	assert_int_equal(fw_read(gw, t.file, t.fh, O_RDWR, 0, text, sizeof(text)), 5);
	close_things(&t);
}

static void the_view_of_the_sandbox_counts_EPERM(void **state)
{
	static const char no_files[] = "{\"operations\":[\"read\"]}";
	struct things t;

	(void)state;
	open_things(&t);
	assert_int_equal(view_policy_store(v, no_files, sizeof(no_files) - 1, &(struct cfs_who){ 0 }, NULL), 0);
	fw_each_request(gw, t.dir, t.dir_fh, t.file, t.fh, -EPERM, 0);
	close_things(&t);
}

static void nothing_is_cached(void **state)
{
	unsigned flags;
	uint64_t node, fh;

	(void)state;
	gw_put("f", "12345");
	node = gw_node("f");
	fh = gw_open(node, O_RDONLY, &flags);
	assert_int_equal(flags & (FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE), FOPEN_DIRECT_IO);
	fw_release(gw, node, fh);
}

static void after_the_end_every_request_is_ESTALE(void **state)
{
	struct things t;
	unsigned asked;

	(void)state;
	open_things(&t);
	asked = all_calls();
	fake_view_expire(v);
	fw_run(gw);
	fw_each_request(gw, t.dir, t.dir_fh, t.file, t.fh, -ESTALE, -ESTALE);
	assert_int_equal(all_calls(), asked);
	close_things(&t);
}

static void what_waits_for_the_guest_ends_ESTALE(void **state)
{
	struct things t;
	uint64_t read, lookup, open;

	(void)state;
	open_things(&t);
	gw_put("h", "");
	g->hung = true;
	read = fw_start_read(gw, t.file, t.fh, O_RDWR, 0, 5);
	lookup = fw_send(gw, FUSE_LOOKUP, t.dir, "h", 2, NULL, 0);
	open = fw_start_open(gw, t.file, O_RDONLY);
	fw_run(gw);
	assert_int_equal(cfs_session_parked(gw->cs), 3);
	fake_view_expire(v);
	fw_run(gw);
	assert_int_equal(fw_take(gw, read, NULL), -ESTALE);
	assert_int_equal(fw_take(gw, lookup, NULL), -ESTALE);
	assert_int_equal(fw_take(gw, open, NULL), -ESTALE);
	assert_int_equal(cfs_session_parked(gw->cs), 0);
	fake_guest_go_on(g);
	fw_run(gw);
	close_things(&t); /* also what the late OPEN left in the guest */
}

/* The view's end stops the machine. Those that waited for it are told of the view. */
static void a_guest_that_ends_with_its_view_ESTALE(void **state)
{
	struct things t;
	uint64_t read;

	(void)state;
	open_things(&t);
	g->hung = true;
	read = fw_start_read(gw, t.file, t.fh, O_RDWR, 0, 5);
	fw_run(gw);
	fake_view_expire(v);
	fake_guest_fail(g, -ENOTCONN, false);
	fw_run(gw);
	assert_int_equal(fw_take(gw, read, NULL), -ESTALE);
	fake_guest_go_on(g);
	fw_run(gw);
	close_things(&t);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, gw_setup, gw_teardown)
#define VIEW(f) cmocka_unit_test_setup_teardown(f, view_setup, view_teardown)
	const struct CMUnitTest tests[] = {
		TEST(every_request_needs_files_EPERM),
		VIEW(the_view_of_the_sandbox_counts_EPERM),
		VIEW(nothing_is_cached),
		VIEW(after_the_end_every_request_is_ESTALE),
		VIEW(what_waits_for_the_guest_ends_ESTALE),
		VIEW(a_guest_that_ends_with_its_view_ESTALE),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
