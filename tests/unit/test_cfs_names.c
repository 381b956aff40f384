/* SPDX-License-Identifier: Apache-2.0 */
/* Rules 5 and 6: making, removing, hiding, renaming; scratch files. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "fusewire.h"

static char buf[2 * 1024 * 1024];

static void cat_is(struct fw *w, const char *path, const char *text)
{
	assert_int_equal(fw_cat(w, path, buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

static bool exists(struct fw *w, const char *path)
{
	struct fuse_entry_out e;
	int r = fw_walk(w, path, &e);

	assert_true(r == 0 || r == -ENOENT);
	return !r;
}

/* -- sandboxes ---------------------------------------------------------------------------------- */

static void mkdir_makes_EINVAL_ENAMETOOLONG_EEXIST(void **state)
{
	struct fw *w = *state;
	char name[80] = "run/";

	w->uid = 42;
	assert_int_equal(fw_mkdir(w, "run/a.B_c-9"), 0);
	assert_int_equal(sandbox_owner(registry_find(w->reg, NULL, "a.B_c-9")).uid, 42);
	cat_is(w, "run/a.B_c-9/status", "configured\n");
	assert_int_equal(fw_mkdir(w, "run/a.B_c-9"), -EEXIST);
	assert_int_equal(fw_mkdir(w, "run/-a"), -EINVAL);
	assert_int_equal(fw_mkdir(w, "run/.a"), -EINVAL);
	assert_int_equal(fw_mkdir(w, "run/a b"), -EINVAL);
	memset(name + 4, 'n', 64);
	assert_int_equal(fw_mkdir(w, name), -ENAMETOOLONG);
	name[4 + 63] = '\0';
	assert_int_equal(fw_mkdir(w, name), 0);
	assert_int_equal(registry_count(w->reg), 2);
}

static void only_run_makes_anything_EPERM(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_mkdir(w, "x"), -EPERM);
	assert_int_equal(fw_mkdir(w, "defaults/x"), -EPERM);
	assert_int_equal(fw_mkdir(w, "profiles/x"), -EPERM);
	assert_int_equal(fw_mkdir(w, "run/a/x"), -EPERM);
	assert_int_equal(fw_mkdir(w, "run/a/limits/x"), -EPERM);
	assert_int_equal(fw_mkdir(w, "run"), -EEXIST);
	assert_int_equal(fw_put(w, "x", "text"), -EPERM);
	assert_int_equal(fw_put(w, "run/x", "text"), -EPERM);
	assert_int_equal(fw_put(w, "defaults/x", "text"), -EPERM);
	assert_int_equal(fw_put(w, "run/a/exec/x", "text"), -EPERM);
	assert_int_equal(fw_mknod(w, "run/a/fifo", S_IFIFO | 0600), -EPERM);
	assert_int_equal(fw_symlink(w, "run/a/link", "/etc"), -EPERM);
	assert_int_equal(fw_unlink(w, "version"), -EPERM);
	assert_int_equal(fw_unlink(w, "defaults/pids"), -EPERM);
	assert_int_equal(fw_unlink(w, "logs/00000000-0000-4000-8000-000000000001.jsonl"), -EPERM);
	assert_int_equal(fw_rmdir(w, "defaults"), -EPERM);
	assert_int_equal(fw_rmdir(w, "run"), -EPERM);
	assert_int_equal(fw_rmdir(w, "profiles/base"), -EPERM);
	assert_int_equal(fw_rename(w, "version", "version2", 0), -EPERM);
	assert_int_equal(fw_rename(w, "profiles/base", "profiles/mine", 0), -EPERM);
}

static void rmdir_destroys_although_not_empty(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "sleep 9");
	fw_put(w, "run/a/scratch", "x");
	assert_int_equal(fw_rmdir(w, "run/a"), 0);
	assert_false(exists(w, "run/a"));
	assert_int_equal(fw_rmdir(w, "run/a"), -ENOENT);
	assert_int_equal(fw_mkdir(w, "run/a"), 0); /* the name again: fresh */
	assert_false(exists(w, "run/a/scratch"));
	assert_false(exists(w, "run/a/result.json"));
}

static void rename_a_sandbox(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	fake_sandbox(w->reg, "b", 0);
	fw_put(w, "run/a/scratch", "x");
	assert_int_equal(fw_rename(w, "run/a", "run/final", RENAME_NOREPLACE), 0);
	cat_is(w, "run/final/uuid", "00000000-0000-4000-8000-000000000001\n");
	cat_is(w, "run/final/scratch", "x");
	assert_false(exists(w, "run/a"));
	assert_int_equal(fw_rename(w, "run/final", "run/b", 0), -EEXIST);
	assert_int_equal(fw_rename(w, "run/final", "run/.x", 0), -EINVAL);
	assert_int_equal(fw_rename(w, "run/final", "run/b", RENAME_EXCHANGE), -EINVAL);
	assert_int_equal(fw_rename(w, "run/nothing", "run/c", 0), -ENOENT);
	assert_int_equal(fw_rename(w, "run/final", "run/b/final", 0), -EPERM); /* mv must not copy it instead */
}

/* -- hiding ---------------------------------------------------------------------------------------- */

static void unlink_hides_until_created_again(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_unlink(w, "run/a/env"), 0);
	assert_false(exists(w, "run/a/env"));
	assert_int_equal(fw_unlink(w, "run/a/env"), -ENOENT);
	assert_int_equal(fw_list(w, "run/a", buf, sizeof(buf)), 0);
	assert_null(strstr(buf, " env "));
	assert_int_equal(fw_put(w, "run/a/env", "A=1\n"), 0); /* created: the control file, not a scratch file */
	cat_is(w, "run/a/env", "A=1\n");
	assert_int_equal(fw_unlink(w, "run/a/env"), 0);
	assert_int_equal(fw_mknod(w, "run/a/env", S_IFREG | 0600), 0);
	cat_is(w, "run/a/env", "A=1\n");
	/* A command written into a hidden cmd runs. */
	assert_int_equal(fw_unlink(w, "run/a/cmd"), 0);
	assert_int_equal(fw_put(w, "run/a/cmd", "true"), 0);
	assert_true(exists(w, "run/a/exec/1"));
	/* What is only read comes back too, and is not written. */
	assert_int_equal(fw_unlink(w, "run/a/status"), 0);
	assert_int_equal(fw_put(w, "run/a/status", "x"), -EPERM);
	cat_is(w, "run/a/status", "ready\n");
	assert_int_equal(fw_unlink(w, "run/a/wait"), 0);
	assert_int_equal(fw_symlink(w, "run/a/wait", "/etc"), -EPERM);
	assert_int_equal(fw_symlink(w, "run/a/wait", ".wait"), 0);
	assert_true(exists(w, "run/a/wait"));
	assert_int_equal(fw_symlink(w, "run/a/wait", ".wait"), -EEXIST);
	assert_int_equal(fw_unlink(w, "run/a/.wait"), -EPERM);
	assert_int_equal(fw_rmdir(w, "run/a/.fs"), -EPERM);
	assert_int_equal(fw_unlink(w, "run/a/exec"), -EISDIR);
	assert_int_equal(fw_rmdir(w, "run/a/env"), -ENOTDIR);
}

/* What the guest's life brings must not be made by a shell in the meantime. */
static void result_json_cannot_be_made_EPERM(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "sleep 9");
	assert_int_equal(fw_put(w, "run/a/result.json", "{}"), -EPERM);
	assert_false(exists(w, "run/a/result.json"));
	assert_int_equal(fw_unlink(w, "run/a/result.json"), -ENOENT);
}

/* rm -rf: lists, unlinks, removes directories from the leaves up. */
static void remove_tree(struct fw *w, const char *path)
{
	char *names, *save = NULL;

	assert_int_equal(fw_list(w, path, buf, sizeof(buf)), 0);
	names = strdup(buf);
	assert_non_null(names);
	for (char *n = strtok_r(names, " ", &save); n; n = strtok_r(NULL, " ", &save)) {
		struct fuse_entry_out e;
		char child[256];

		if (!strcmp(n, ".") || !strcmp(n, ".."))
			continue;
		snprintf(child, sizeof(child), "%s/%s", path, n);
		assert_int_equal(fw_walk(w, child, &e), 0);
		if (S_ISDIR(e.attr.mode))
			remove_tree(w, child);
		else
			assert_int_equal(fw_unlink(w, child), 0);
	}
	free(names);
	assert_int_equal(fw_list(w, path, buf, sizeof(buf)), 0);
	assert_string_equal(buf, ". .. ");
	assert_int_equal(fw_rmdir(w, path), 0);
}

static void rm_rf(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = sandbox_ref(fake_sandbox(w->reg, "a", 0));

	fake_end_at_once(w->reg, true);
	for (int i = 0; i < 5; i++)
		fw_put(w, "run/a/cmd", "true");
	fw_mkdir(w, "run/a/exec/web");
	fw_put(w, "run/a/scratch", "x");
	fw_put(w, "run/a/limits/scratch", "x");
	remove_tree(w, "run/a");
	assert_false(exists(w, "run/a"));
	assert_true(sandbox_gone(s));
	assert_int_equal(sandbox_latest_exec(s), 5);
	sandbox_unref(s);
}

static void hidden_directories_come_back(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/cmd", "true");
	assert_int_equal(fw_rmdir(w, "run/a/limits"), 0);
	assert_false(exists(w, "run/a/limits"));
	assert_int_equal(fw_mkdir(w, "run/a/limits"), 0);
	cat_is(w, "run/a/limits/pids", "11\n");
	assert_int_equal(fw_mkdir(w, "run/a/limits"), -EEXIST);
	assert_int_equal(fw_rmdir(w, "run/a/exec/1"), 0);
	assert_false(exists(w, "run/a/exec/1"));
	assert_int_equal(fw_list(w, "run/a/exec", buf, sizeof(buf)), 0);
	assert_string_equal(buf, ". .. latest ");
	assert_true(exists(w, "run/a/cmd"));
}

/* -- scratch files ------------------------------------------------------------------------------------ */

static void scratch_files(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	struct fuse_attr at;

	fake_sandbox(w->reg, "a", 0);
	w->uid = 3;
	assert_int_equal(fw_walk(w, "run/a", &e), 0);
	assert_int_equal(fw_create(w, e.nodeid, ".cmd.Xq81~", O_RDWR | O_CREAT | O_EXCL, 0666, &e, &o), 0);
	assert_int_equal(e.attr.mode, S_IFREG | 0644); /* the umask is 022 */
	assert_int_equal(e.attr.uid, 3);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_RDWR, 5, "world", 5), 5);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_RDWR, 0, "hello", 5), 5);
	assert_int_equal(fw_getattr(w, e.nodeid, &at), 0);
	assert_int_equal(at.size, 10);
	cat_is(w, "run/a/.cmd.Xq81~", "helloworld");
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_SIZE, 0, 4, 0, 0), 0);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_SIZE, 0, 6, 0, 0), 0);
	assert_int_equal(fw_read(w, e.nodeid, o.fh, O_RDWR, 0, buf, 100), 6);
	assert_memory_equal(buf, "hell\0\0", 6);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_MODE, 0, 0, 0600, 0), 0);
	assert_int_equal(fw_rename(w, "run/a/.cmd.Xq81~", "run/a/other", 0), 0);
	assert_int_equal(fw_rename(w, "run/a/other", "run/a/other", 0), 0);
	assert_int_equal(fw_list(w, "run/a", buf, sizeof(buf)), 0);
	assert_non_null(strstr(buf, " other "));
	assert_int_equal(fw_put(w, "run/a/third", "3"), 0);
	assert_int_equal(fw_rename(w, "run/a/third", "run/a/other", RENAME_NOREPLACE), -EEXIST);
	assert_int_equal(fw_rename(w, "run/a/third", "run/a/other", 0), 0);
	cat_is(w, "run/a/other", "3");
	/* The replaced one is still what the open descriptor is of. */
	assert_int_equal(fw_read(w, e.nodeid, o.fh, O_RDWR, 0, buf, 100), 6);
	assert_int_equal(fw_getattr(w, e.nodeid, &at), 0);
	assert_int_equal(at.nlink, 0);
	fw_release(w, e.nodeid, o.fh);
	assert_int_equal(fw_unlink(w, "run/a/other"), 0);
	assert_false(exists(w, "run/a/other"));
	assert_int_equal(fw_put(w, "run/a/limits/s", "in a directory of it"), 0);
	assert_false(exists(w, "run/a/s"));
	assert_int_equal(fw_rename(w, "run/a/limits/s", "run/a/s", 0), -EXDEV); /* mv copies */
}

/* The limit is the sandbox's: of one that was removed, an open file must not hold a text, nor get another one. */
static void scratch_files_of_a_removed_sandbox_ESTALE(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_walk(w, "run/a", &e), 0);
	assert_int_equal(fw_create(w, e.nodeid, "held", O_RDWR | O_CREAT, 0644, &e, &o), 0);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_RDWR, 0, "text", 4), 4);
	assert_int_equal(fw_rmdir(w, "run/a"), 0);
	fw_run(w);
	assert_int_equal(fw_read(w, e.nodeid, o.fh, O_RDWR, 0, buf, 100), 0);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_RDWR, 0, "again", 5), -ESTALE);
	fw_release(w, e.nodeid, o.fh);
}

static void scratch_limits_EDQUOT(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	static char piece[131072];
	char name[32];

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_walk(w, "run/a", &e), 0);
	assert_int_equal(fw_create(w, e.nodeid, "big", O_WRONLY | O_CREAT, 0600, &e, &o), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, (uint64_t)i * 131072, piece, 131072), 131072);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 8 * 131072, "x", 1), -EDQUOT);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, ~0ull >> 1, "x", 1), -EDQUOT);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_SIZE, 0, ~0ull >> 2, 0, 0), -EDQUOT);
	assert_int_equal(fw_put(w, "run/a/limits/more", "x"), -EDQUOT); /* together */
	assert_int_equal(fw_unlink(w, "run/a/big"), 0);
	assert_int_equal(fw_put(w, "run/a/more", "x"), -EDQUOT); /* open still */
	fw_release(w, e.nodeid, o.fh);
	fw_forget(w, e.nodeid, 99);
	assert_int_equal(fw_put(w, "run/a/more", "x"), 0);
	for (int i = 0; i < 254; i++) {
		snprintf(name, sizeof(name), "run/a/s%d", i);
		assert_int_equal(fw_mknod(w, name, S_IFREG | 0600), 0);
	}
	assert_int_equal(fw_put(w, "run/a/one-too-many", "x"), -EDQUOT);
	assert_true(fw_cat(w, "run/a/error", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "scratch"));
	fake_sandbox(w->reg, "b", 0);
	assert_int_equal(fw_put(w, "run/b/mine", "x"), 0);
}

/* -- rename over a control file ------------------------------------------------------------------------- */

static void renaming_over_writes(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	fw_put(w, "run/a/env", "OLD=1\n");
	assert_int_equal(fw_put(w, "run/a/sedX", "A=1\nB=2"), 0);
	assert_int_equal(fw_rename(w, "run/a/sedX", "run/a/env", 0), 0);
	cat_is(w, "run/a/env", "A=1\nB=2\n");
	assert_false(exists(w, "run/a/sedX"));
	assert_int_equal(fw_put(w, "run/a/new", "echo hi\n"), 0);
	assert_int_equal(fw_rename(w, "run/a/new", "run/a/cmd", 0), 0);
	assert_int_equal(sandbox_latest_exec(s), 1);
	cat_is(w, "run/a/cmd", "echo hi\n");
	assert_int_equal(fw_put(w, "run/a/limits/.pids.1", "99\n"), 0);
	assert_int_equal(fw_rename(w, "run/a/limits/.pids.1", "run/a/limits/pids", 0), 0);
	cat_is(w, "run/a/limits/pids", "99\n");
	/* An empty one empties a list. */
	assert_int_equal(fw_mknod(w, "run/a/empty", S_IFREG | 0600), 0);
	assert_int_equal(fw_rename(w, "run/a/empty", "run/a/env", 0), 0);
	cat_is(w, "run/a/env", "");
	/* install: unlinks, creates, writes. */
	fw_unlink(w, "run/a/env");
	fw_put(w, "run/a/tmp", "C=3\n");
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/env", RENAME_NOREPLACE), 0);
	cat_is(w, "run/a/env", "C=3\n");
}

static void what_the_write_says_rename_says(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	fw_put(w, "run/a/tmp", "nonsense\n");
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/env", 0), -EINVAL);
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/ctl", 0), -EINVAL);
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/status", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/result.json", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/.wait", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/fs", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/exec", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/lease", 0), -EPERM);
	fake_queue_full(s, true);
	assert_int_equal(fw_rename(w, "run/a/tmp", "run/a/cmd", 0), -EBUSY);
	cat_is(w, "run/a/tmp", "nonsense\n"); /* still there */
	assert_string_equal(fake_ctl(s), "");
}

/* An editor's backup: the file is moved aside and made anew. */
static void moving_a_control_file_aside(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/env", "A=1\n");
	assert_int_equal(fw_rename(w, "run/a/env", "run/a/env~", 0), 0);
	assert_false(exists(w, "run/a/env"));
	cat_is(w, "run/a/env~", "A=1\n");
	assert_int_equal(fw_put(w, "run/a/env", "A=2\n"), 0);
	cat_is(w, "run/a/env", "A=2\n");
	assert_int_equal(fw_unlink(w, "run/a/env~"), 0);
	assert_int_equal(fw_rename(w, "run/a/env", "run/a/from", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/status", "run/a/s", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/exec", "run/a/e", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/env", "run/a/net", 0), -EPERM);
	assert_int_equal(fw_rename(w, "run/a/env", "run/a/snapshot", 0), -EPERM); /* as onto any that is there */
	cat_is(w, "run/a/env", "A=2\n");
}

static void directory_operations_never_wait(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	fake_status(registry_find(w->reg, NULL, "a"), SBX_STARTING);
	fw_put(w, "run/a/cmd", "sleep 9");
	fw_mkdir(w, "run/a/exec/web");
	fw_rename(w, "run/a", "run/b", 0);
	exists(w, "run/b/.fs"); /* a look-up: asks no guest */
	fw_unlink(w, "run/b/env");
	fw_rmdir(w, "run/b/exec/web");
	fw_rmdir(w, "run/b");
	assert_int_equal(cfs_session_parked(w->cs), 0); /* and fusewire saw each answered at once */
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(mkdir_makes_EINVAL_ENAMETOOLONG_EEXIST),
		TEST(only_run_makes_anything_EPERM),
		TEST(rmdir_destroys_although_not_empty),
		TEST(rename_a_sandbox),
		TEST(unlink_hides_until_created_again),
		TEST(result_json_cannot_be_made_EPERM),
		TEST(rm_rf),
		TEST(hidden_directories_come_back),
		TEST(scratch_files),
		TEST(scratch_files_of_a_removed_sandbox_ESTALE),
		TEST(scratch_limits_EDQUOT),
		TEST(renaming_over_writes),
		TEST(what_the_write_says_rename_says),
		TEST(moving_a_control_file_aside),
		TEST(directory_operations_never_wait),
	};

	return cmocka_run_group_tests_name("cfs_names", tests, NULL, NULL);
}
