/* SPDX-License-Identifier: Apache-2.0 */
/* Rule 2: sizes are true, texts are frozen, mtime moves only with content. (fw_cat checks LOOKUP, GETATTR and read
 * against each other.) */
#include <errno.h>
#include <poll.h>
#include "fusewire.h"

static char buf[262144];

static void cat_is(struct fw *w, const char *path, const char *text)
{
	assert_int_equal(fw_cat(w, path, buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

static void a_changed_text_has_a_node_of_its_own(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out old, fresh;
	struct fuse_open_out o;
	struct fuse_attr at;

	assert_int_equal(fw_walk(w, "run/a/status", &old), 0);
	assert_int_equal(fw_open(w, old.nodeid, O_RDONLY, &o), 0);
	assert_true(o.open_flags & FOPEN_KEEP_CACHE);
	assert_false(o.open_flags & FOPEN_DIRECT_IO);
	fake_status(s, SBX_CONFIGURED);
	assert_int_equal(fw_walk(w, "run/a/status", &fresh), 0);
	assert_int_not_equal(old.nodeid, fresh.nodeid);
	assert_int_equal(old.attr.ino, fresh.attr.ino);
	assert_int_equal(fresh.attr.size, strlen("configured\n"));
	/* The open one is as it was, for fstat and read. */
	assert_int_equal(fw_getattr(w, old.nodeid, &at), 0);
	assert_int_equal(at.size, strlen("ready\n"));
	assert_int_equal(at.mtime, old.attr.mtime);
	assert_int_equal(at.mtimensec, old.attr.mtimensec);
	assert_int_equal(fw_read(w, old.nodeid, o.fh, O_RDONLY, 0, buf, 100), 6);
	assert_memory_equal(buf, "ready\n", 6);
	assert_int_equal(fw_read(w, old.nodeid, o.fh, O_RDONLY, 3, buf, 100), 3);
	assert_int_equal(fw_read(w, old.nodeid, o.fh, O_RDONLY, 6, buf, 100), 0);
	assert_int_equal(fw_read(w, old.nodeid, o.fh, O_RDONLY, 1ull << 40, buf, 100), 0);
}

static void an_unchanged_text_keeps_node_and_time(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out one, two;

	assert_int_equal(fw_walk(w, "run/a/status", &one), 0);
	fake_status(s, SBX_READY); /* the sandbox's own time moves */
	assert_int_equal(fw_walk(w, "run/a/status", &two), 0);
	assert_int_equal(one.nodeid, two.nodeid);
	fw_forget(w, one.nodeid, 2); /* and over a node's death */
	fake_status(s, SBX_READY);
	assert_int_equal(fw_walk(w, "run/a/status", &two), 0);
	assert_int_equal(one.attr.mtime, two.attr.mtime);
	assert_int_equal(one.attr.mtimensec, two.attr.mtimensec);
	fake_status(s, SBX_PAUSED);
	assert_int_equal(fw_walk(w, "run/a/status", &two), 0);
	assert_true(two.attr.mtime > one.attr.mtime || two.attr.mtimensec > one.attr.mtimensec);
}

/* Two writers of one control file must not share a node: the second would wait for the first, unkillable. */
static void a_control_file_has_a_node_for_each_lookup(void **state)
{
	struct fw *w = *state;
	static const char *const paths[] = { "run/a/ctl", "run/a/cmd", "run/a/env", "run/a/limits/pids",
					     "run/a/stdin" };

	fake_sandbox(w->reg, "a", 0);
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		struct fuse_entry_out one, two;

		assert_int_equal(fw_walk(w, paths[i], &one), 0);
		assert_int_equal(fw_walk(w, paths[i], &two), 0);
		assert_int_not_equal(one.nodeid, two.nodeid);
		assert_int_equal(one.attr.ino, two.attr.ino);
	}
}

/* Nothing is remembered that can change: a removed sandbox vanishes at once, a name used again is fresh. */
static void timeouts(void **state)
{
	static const char *const paths[] = { "version",	  "health.json", "run/a",	"run/a/status",
					     "run/a/cmd", "run/a/wait",	 "run/a/stdout" };
	struct fw *w = *state;
	struct fuse_entry_out e;

	fake_sandbox(w->reg, "a", 0);
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		assert_int_equal(fw_walk(w, paths[i], &e), 0);
		assert_int_equal(e.entry_valid, 0);
		assert_int_equal(e.entry_valid_nsec, 0);
	}
	assert_int_equal(fw_walk(w, "run/a/stdout", &e), 0);
	assert_int_equal(e.attr_valid, 0);
	assert_int_equal(e.attr_valid_nsec, 0);
	assert_int_equal(fw_walk(w, "run", &e), 0); /* is there as long as the mount */
	assert_true(e.entry_valid > 0);
}

static void texts(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct err e = { 0 };

	cat_is(w, "version", CRUCIBLE_VERSION "\n");
	cat_is(w, "run/a/status", "ready\n");
	cat_is(w, "run/a/error", "");
	err_set(&e, -EINVAL, "sandbox a: words");
	sandbox_fail(s, &(struct cfs_who){ .uid = 0, .gid = 0 }, &e);
	cat_is(w, "run/a/error", "sandbox a: words\n");
	cat_is(w, "run/a/uuid", "00000000-0000-4000-8000-000000000001\n");
	cat_is(w, "run/a/ctl", sandbox_ctl_verbs);
	cat_is(w, "run/a/from", "profile:base\n");
	cat_is(w, "run/a/limits/memory_mib", "3\n");
	cat_is(w, "run/a/cmd", "");
	cat_is(w, "profiles/python/info.json", "{\"name\":\"python\"}\n");
	assert_true(fw_cat(w, "README.md", buf, sizeof(buf)) > 1000);
	assert_true(fw_cat(w, "health.json", buf, sizeof(buf)) > 10);
}

static void what_shows_each_reader_its_own(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out mine;
	struct fuse_open_out o;

	w->uid = 5;
	cat_is(w, "policy.json", "{\"uid\":5}\n");
	assert_int_equal(fw_walk(w, "policy.json", &mine), 0);
	assert_int_equal(fw_open(w, mine.nodeid, O_RDONLY, &o), 0);
	w->uid = 66;
	cat_is(w, "policy.json", "{\"uid\":66}\n");
	cat_is(w, "metrics", "sandboxes{uid=\"66\"} 0\n");
	assert_true(fw_read(w, mine.nodeid, o.fh, O_RDONLY, 0, buf, 100) > 0);
	assert_memory_equal(buf, "{\"uid\":5}", 9);
}

static void records_cannot_be_written_EPERM(void **state)
{
	static const char *const paths[] = { "version",		"run/a/status", "run/a/stdout",
					     "run/a/info.json", "run/a/.wait",	"run/a/uuid" };
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;

	fake_end_at_once(w->reg, true);
	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "true");
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		assert_int_equal(fw_walk(w, paths[i], &e), 0);
		assert_int_equal(fw_open(w, e.nodeid, O_WRONLY, &o), -EPERM);
		assert_int_equal(fw_open(w, e.nodeid, O_RDWR, &o), -EPERM);
		assert_int_equal(fw_setattr(w, e.nodeid, FATTR_SIZE, 0, 0, 0, 0), -EPERM);
		assert_int_equal(fw_setattr(w, e.nodeid, FATTR_MODE, 0, 0, 0777, 0), -EPERM);
		assert_int_equal(fw_setattr(w, e.nodeid, FATTR_UID, 0, 0, 0, 99), -EPERM);
		assert_int_equal(fw_setattr(w, e.nodeid, FATTR_MTIME, 0, 0, 0, 0), 0);
	}
	assert_int_equal(fw_walk(w, "run/a", &e), 0);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_MODE, 0, 0, 0700, 0), -EPERM);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_MODE, 0, 0, 0755, 0), 0);
}

/* Texts outlive what they are of under an open descriptor; names do not. */
static void a_removed_sandbox_ENOENT(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out dir, status, e;
	struct fuse_open_out o;
	struct fuse_attr at;

	sandbox_ref(s);
	assert_int_equal(fw_walk(w, "run/a", &dir), 0);
	assert_int_equal(fw_walk(w, "run/a/status", &status), 0);
	assert_int_equal(fw_open(w, status.nodeid, O_RDONLY, &o), 0);
	assert_int_equal(fw_rmdir(w, "run/a"), 0);
	assert_int_equal(fw_walk(w, "run/a", &e), -ENOENT);
	assert_int_equal(fw_lookup(w, dir.nodeid, "status", &e), -ENOENT);
	assert_int_equal(fw_getattr(w, dir.nodeid, &at), 0);
	assert_int_equal(at.nlink, 0);
	assert_int_equal(fw_read(w, status.nodeid, o.fh, O_RDONLY, 0, buf, 100), 6);
	fake_sandbox(w->reg, "a", 0); /* the name again: another object */
	assert_int_equal(fw_walk(w, "run/a", &e), 0);
	assert_int_not_equal(e.nodeid, dir.nodeid);
	assert_int_not_equal(e.attr.ino, dir.attr.ino);
	assert_int_equal(fw_lookup(w, dir.nodeid, "status", &e), -ENOENT);
	/* All that is left of the old one are the nodes that the kernel knows; then nothing. */
	fw_release(w, status.nodeid, o.fh);
	fw_forget(w, status.nodeid, 9);
	fw_forget(w, dir.nodeid, 9);
	assert_int_equal(fake_refs(s), 1);
	sandbox_unref(s);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_changed_text_has_a_node_of_its_own),
		TEST(an_unchanged_text_keeps_node_and_time),
		TEST(a_control_file_has_a_node_for_each_lookup),
		TEST(timeouts),
		TEST(texts),
		TEST(what_shows_each_reader_its_own),
		TEST(records_cannot_be_written_EPERM),
		TEST(a_removed_sandbox_ENOENT),
	};

	return cmocka_run_group_tests_name("cfs_text", tests, NULL, NULL);
}
