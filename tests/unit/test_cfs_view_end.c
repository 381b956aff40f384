/* SPDX-License-Identifier: Apache-2.0 */
/* What a view's end ends: every request on every kind of node, open descriptors, what waits, what was being written. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "fuseall.h"

static char buf[65536];

enum { BY_EXPIRY, BY_REMOVAL, ENDS };

static struct view *v;

static void begin(struct fw *w)
{
	v = view_ref(fake_view(w->reg, "v", "{}"));
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a"), 0);
}

static void end_view(struct fw *w, int how)
{
	if (how == BY_EXPIRY)
		fake_view_expire(v);
	else
		assert_int_equal(registry_remove_view(w->reg, v, &(struct cfs_who){ 0 }, NULL), 0);
	fw_run(w);
}

static int teardown(void **state)
{
	v = view_unref(v);
	return fw_teardown(state);
}

static struct sandbox *box(struct fw *w)
{
	return registry_find(w->reg, v, "a");
}

/* A node of the view, and a handle of it. */
static void open_at(struct fw *w, const char *path, int flags, uint64_t *ret_node, uint64_t *ret_fh)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;
	char full[80];

	snprintf(full, sizeof(full), "views/v/tree/%s", path);
	assert_int_equal(fw_walk(w, full, &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, flags, &o), 0);
	*ret_node = e.nodeid;
	*ret_fh = o.fh;
}

/* -- every request ------------------------------------------------------------------------------------ */

static void opendir_at(struct fw *w, const char *path, uint64_t *ret_node, uint64_t *ret_fh)
{
	struct fuse_open_in in = { 0 };
	const struct fw_answer *a;
	struct fuse_entry_out e;
	char full[80];

	snprintf(full, sizeof(full), "views/v/tree%s%s", *path ? "/" : "", path);
	assert_int_equal(fw_walk(w, full, &e), 0);
	assert_int_equal(fw_call(w, FUSE_OPENDIR, e.nodeid, &in, sizeof(in), NULL, 0, &a), 0);
	*ret_node = e.nodeid;
	*ret_fh = ((const struct fuse_open_out *)(const void *)a->data)->fh;
}

/* run/a there. */
static int rename_into(struct fw *w, uint64_t dir)
{
	struct fuse_rename2_in in = { .newdir = dir };
	struct fuse_entry_out e;

	assert_int_equal(fw_walk(w, "run", &e), 0);
	return fw_call(w, FUSE_RENAME2, e.nodeid, &in, sizeof(in), "a\0a", 4, NULL);
}

static void every_request(struct fw *w, int how)
{
	static const char *const dirs[] = { "", "run", "run/a", "run/a/exec", "snapshots", "defaults", "logs" };
	static const struct {
		const char *path;
		int flags;
	} files[] = { { "version", O_RDONLY },		{ "policy.json", O_RDONLY },
		      { "events.jsonl", O_RDONLY },	{ "run/a/status", O_RDONLY },
		      { "run/a/stdout", O_RDONLY },	{ "run/a/ctl", O_RDWR },
		      { "run/a/env", O_RDWR },		{ "run/a/cmd", O_RDWR },
		      { "run/a/import", O_WRONLY },	{ "run/a/lease", O_RDONLY },
		      { "run/a/snapshot", O_RDWR },	{ "run/a/scratch", O_RDWR },
		      { "run/a/exec/s/stdin", O_RDWR }, { "run/a/.wait", O_RDONLY | O_NONBLOCK } };
	enum { NDIRS = sizeof(dirs) / sizeof(*dirs), NFILES = sizeof(files) / sizeof(*files) };
	uint64_t dir[NDIRS], dir_fh[NDIRS], file[NFILES], fh[NFILES];
	struct fuse_read_in in = { .size = 100 };

	begin(w);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/cmd", "sleep 9"), 0);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/scratch", "x"), 0);
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a/exec/s"), 0);
	for (size_t i = 0; i < NDIRS; i++)
		opendir_at(w, dirs[i], &dir[i], &dir_fh[i]);
	for (size_t i = 0; i < NFILES; i++)
		open_at(w, files[i].path, files[i].flags, &file[i], &fh[i]);
	in.fh = dir_fh[0];
	assert_int_equal(fw_call(w, FUSE_READDIR, dir[0], &in, sizeof(in), NULL, 0, NULL), 0);
	end_view(w, how);
	for (size_t i = 0; i < NDIRS; i++)
		fw_each_request(w, dir[i], dir_fh[i], file[i], fh[i], -ESTALE, -ESTALE);
	for (size_t i = NDIRS; i < NFILES; i++)
		fw_each_request(w, dir[0], dir_fh[0], file[i], fh[i], -ESTALE, -ESTALE);
	assert_int_equal(cfs_session_parked(w->cs), 0);
	/* Closing and forgetting are as ever. */
	for (size_t i = 0; i < NDIRS; i++) {
		struct fuse_release_in rel = { .fh = dir_fh[i] };

		assert_int_equal(fw_call(w, FUSE_RELEASEDIR, dir[i], &rel, sizeof(rel), NULL, 0, NULL), 0);
		if (i != 1)
			fw_forget(w, dir[i], 1000);
	}
	for (size_t i = 0; i < NFILES; i++) {
		fw_release(w, file[i], fh[i]);
		fw_forget(w, file[i], 1000);
	}
	assert_int_equal(cfs_session_open(w->cs), 0);
	assert_int_equal(fake_uploads(w->reg), 0);
	/* The whole tree goes on, and nothing gets in from there. */
	assert_int_equal(fw_mkdir(w, "run/a"), 0);
	assert_int_equal(rename_into(w, dir[1]), -ESTALE);
}

static void after_its_time_every_request_is_ESTALE(void **state)
{
	every_request(*state, BY_EXPIRY);
}

static void after_its_removal_every_request_is_ESTALE(void **state)
{
	every_request(*state, BY_REMOVAL);
}

/* -- what waits ------------------------------------------------------------------------------------------- */

static void what_waits(struct fw *w, int how)
{
	uint64_t node, fh, job, live, nb, nb_fh, job_fh, live_fh;
	uint64_t opening, reading, forking, feeding, full;
	struct fuse_entry_out e;

	begin(w);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/cmd", "sleep 9"), 0);
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a/exec/s"), 0);
	assert_int_equal(fw_walk(w, "views/v/tree/run/a/.wait", &e), 0);
	opening = fw_start_open(w, e.nodeid, O_RDONLY);
	open_at(w, "run/a/.wait", O_RDONLY | O_NONBLOCK, &nb, &nb_fh);
	reading = fw_start_read(w, nb, nb_fh, O_RDONLY, 0, 100);
	fake_jobs_wait(w->reg, true);
	open_at(w, "run/a/snapshot", O_WRONLY, &job, &job_fh);
	forking = fw_start_write(w, job, job_fh, O_WRONLY, 0, "s", 1);
	open_at(w, "run/a/exec/s/stdin", O_WRONLY, &live, &live_fh);
	feeding = fw_start_write(w, live, live_fh, O_WRONLY, 0, "abc", 3); /* there is no room */
	/* Of what was taken in part, the part is told. */
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a/exec/t"), 0);
	fake_room(box(w), "t", 2);
	open_at(w, "run/a/exec/t/stdin", O_WRONLY, &node, &fh);
	full = fw_start_write(w, node, fh, O_WRONLY, 0, "abc", 3);
	fw_run(w);
	assert_int_equal(cfs_session_parked(w->cs), 5);
	end_view(w, how);
	assert_int_equal(cfs_session_parked(w->cs), 0);
	assert_int_equal(fw_take(w, opening, NULL), -ESTALE);
	assert_int_equal(fw_take(w, reading, NULL), -ESTALE);
	assert_int_equal(fw_take(w, forking, NULL), -ESTALE);
	assert_int_equal(fw_take(w, feeding, NULL), -ESTALE);
	assert_int_equal(fw_take(w, full, NULL), 0);
	fake_jobs_end(w->reg, 0);
	assert_int_equal(fake_jobs(w->reg), 0);
}

static void what_waits_ends_with_its_time_ESTALE(void **state)
{
	what_waits(*state, BY_EXPIRY);
}

static void what_waits_ends_with_its_removal_ESTALE(void **state)
{
	what_waits(*state, BY_REMOVAL);
}

/* A change of the view is not its end. */
static void what_waits_goes_on_under_another_policy(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	uint64_t opening;

	begin(w);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/cmd", "sleep 9"), 0);
	assert_int_equal(fw_walk(w, "views/v/tree/run/a/.wait", &e), 0);
	opening = fw_start_open(w, e.nodeid, O_RDONLY);
	fw_run(w);
	assert_int_equal(fw_put(w, "views/v/policy", "{\"max_fork\":3}"), 0);
	assert_int_equal(fw_put(w, "views/v/ttl", "60"), 0);
	fw_run(w);
	assert_false(fw_answered(w, opening));
	fake_end(box(w), 1, 0);
	fw_run(w);
	assert_true(fw_answered(w, opening));
}

/* Its machines are stopped at the same time, and what that tells waiters is not what they get. */
static void a_waiter_is_told_of_the_end_whatever_wakes_it_ESTALE(void **state)
{
	struct fw *w = *state;
	uint64_t node, fh, reading;

	begin(w);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/cmd", "sleep 9"), 0);
	open_at(w, "run/a/.wait", O_RDONLY | O_NONBLOCK, &node, &fh);
	reading = fw_start_read(w, node, fh, O_RDONLY, 0, 100);
	fw_run(w);
	fake_end(box(w), 1, 0); /* is queued before the view's wake */
	end_view(w, BY_EXPIRY);
	assert_int_equal(fw_take(w, reading, NULL), -ESTALE);
	fw_release(w, node, fh);
}

static void pollers_are_woken(void **state)
{
	static const char *const paths[] = { "run/a/stdout", "run/a/.wait", "events.jsonl", "run/a/exec/s/stdin" };
	struct fw *w = *state;
	uint64_t node[4], fh[4];
	uint32_t events;

	begin(w);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/cmd", "sleep 9"), 0);
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a/exec/s"), 0);
	for (size_t i = 0; i < 4; i++) {
		open_at(w, paths[i], O_RDWR * (i == 3) | O_NONBLOCK, &node[i], &fh[i]);
		assert_int_equal(fw_poll(w, node[i], fh[i], 100 + i, true, &events), 0);
		assert_false(events & POLLERR);
	}
	fw_run(w);
	assert_int_equal(w->npolls, 0);
	assert_int_equal(fw_put(w, "views/v/ttl", "60"), 0); /* nothing for them */
	assert_int_equal(w->npolls, 0);
	end_view(w, BY_EXPIRY);
	assert_int_equal(w->npolls, 4);
	assert_int_equal(fw_poll(w, node[0], fh[0], 1, true, &events), -ESTALE); /* the kernel says POLLERR */
	for (size_t i = 0; i < 4; i++)
		fw_release(w, node[i], fh[i]);
}

/* -- what was being written ----------------------------------------------------------------------------- */

static void an_upload_is_dropped(void **state)
{
	static const char *const paths[] = { "run/a/cmd", "run/a/stdin", "run/a/import" };
	struct fw *w = *state;
	uint64_t node[3], fh[3];
	struct sandbox *s;

	begin(w);
	s = sandbox_ref(box(w));
	for (size_t i = 0; i < 3; i++) {
		open_at(w, paths[i], O_WRONLY, &node[i], &fh[i]);
		assert_int_equal(fw_write(w, node[i], fh[i], O_WRONLY, 0, "rm -rf /", 8), 8);
	}
	end_view(w, BY_EXPIRY);
	for (size_t i = 0; i < 3; i++)
		fw_release(w, node[i], fh[i]);
	assert_int_equal(fake_uploads(w->reg), 0);
	assert_int_equal(sandbox_latest_exec(s), 0);
	assert_string_equal(fake_stdin(s), "");
	sandbox_unref(s);
}

/* Half a line of a list: the close would have completed it. */
static void half_a_line_is_dropped(void **state)
{
	struct fw *w = *state;
	struct sandbox *s;
	uint64_t node, fh;

	begin(w);
	s = sandbox_ref(box(w));
	open_at(w, "run/a/env", O_WRONLY, &node, &fh);
	assert_int_equal(fw_write(w, node, fh, O_WRONLY, 0, "A=1\nB", 5), 5);
	assert_string_equal(sandbox_error(s), "");
	end_view(w, BY_EXPIRY);
	fw_release(w, node, fh);
	assert_string_equal(sandbox_error(s), ""); /* "B" was not tried */
	sandbox_unref(s);
}

/* Whoever held it has gone, view or not. */
static void a_lease_ends_what_it_held(void **state)
{
	struct fw *w = *state;
	uint64_t node, fh;

	begin(w);
	open_at(w, "run/a/lease", O_WRONLY, &node, &fh);
	end_view(w, BY_EXPIRY);
	assert_non_null(box(w));
	fw_release(w, node, fh);
	assert_null(box(w));
}

/* A view that has ended can be given time again: then its descriptors and nodes are good again. */
static void more_time_revives(void **state)
{
	struct fw *w = *state;
	struct fuse_attr at;
	uint64_t node, fh;

	begin(w);
	open_at(w, "version", O_RDONLY, &node, &fh);
	end_view(w, BY_EXPIRY);
	assert_int_equal(fw_read(w, node, fh, O_RDONLY, 0, buf, 100), -ESTALE);
	assert_int_equal(fw_cat(w, "views/v/status", buf, sizeof(buf)), 8);
	assert_string_equal(buf, "expired\n");
	/* ls -l, find and grep -r over the mount do not stumble over what has ended. */
	assert_int_equal(fw_list(w, "views/v", buf, sizeof(buf)), 0);
	assert_string_equal(buf, ". .. error info.json policy status ttl uuid ");
	assert_int_equal(fw_put(w, "views/v/ttl", "60"), 0);
	assert_true(fw_read(w, node, fh, O_RDONLY, 0, buf, 100) > 0);
	assert_int_equal(fw_getattr(w, node, &at), 0);
	fw_release(w, node, fh);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fw_setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(after_its_time_every_request_is_ESTALE),
		TEST(after_its_removal_every_request_is_ESTALE),
		TEST(what_waits_ends_with_its_time_ESTALE),
		TEST(what_waits_ends_with_its_removal_ESTALE),
		TEST(what_waits_goes_on_under_another_policy),
		TEST(a_waiter_is_told_of_the_end_whatever_wakes_it_ESTALE),
		TEST(pollers_are_woken),
		TEST(an_upload_is_dropped),
		TEST(half_a_line_is_dropped),
		TEST(a_lease_ends_what_it_held),
		TEST(more_time_revives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
