/* SPDX-License-Identifier: Apache-2.0 */
/* What is there, under which name, mode and owner; that listing and reading change nothing. fw_list() itself checks
 * types and numbers of what it lists against a look-up of each name. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "fusewire.h"

static char buf[262144];

static void expect(struct fw *w, const char *path, const char *names)
{
	assert_int_equal(fw_list(w, path, buf, sizeof(buf)), 0);
	assert_string_equal(buf, names);
}

#define SANDBOX	  "cmd console.log ctl env error exec from fs import info.json inherited lease limits log.jsonl net "
#define SANDBOX_2 "snapshot snapshots status stderr stdin stdout usage.json uuid wait "

/* TREE.md, sentence by sentence. What later versions bring must not be there, not even empty. */
static void the_tree_is_as_specified(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;

	fake_end_at_once(w->reg, true);
	expect(w, "",
	       ". .. README.md defaults events.jsonl health.json logs metrics policy.json profiles run snapshots store "
	       "version views ");
	expect(w, "defaults",
	       ". .. cpu_percent disk_mib exec_timeout_s from io_mbps memory_mib output_mib pids spool_mib timeout_s vcpus ");
	expect(w, "profiles", ". .. base python ");
	expect(w, "profiles/base", ". .. info.json ");
	expect(w, "run", ". .. ");
	assert_int_equal(fw_mkdir(w, "run/a"), 0);
	expect(w, "run", ". .. a ");
	expect(w, "run/a", ". .. " SANDBOX SANDBOX_2);
	expect(w, "run/a/limits",
	       ". .. cpu_percent disk_mib exec_timeout_s io_mbps memory_mib output_mib pids spool_mib timeout_s vcpus ");
	expect(w, "run/a/exec", ". .. ");
	assert_int_equal(fw_put(w, "run/a/cmd", "true"), 0);
	expect(w, "run/a", ". .. " SANDBOX "result.json " SANDBOX_2);
	expect(w, "run/a/exec", ". .. 1 latest ");
	expect(w, "run/a/exec/1", ". .. cmd result.json status stderr stdout wait ");
	assert_int_equal(fw_mkdir(w, "run/a/exec/web"), 0);
	expect(w, "run/a/exec", ". .. 1 latest web ");
	expect(w, "run/a/exec/web", ". .. cmd ctl status stderr stdin stdout wait ");
	expect(w, "logs", ". .. 00000000-0000-4000-8000-000000000001.jsonl by-name ");
	expect(w, "logs/by-name", ". .. a ");
	expect(w, "run/a/net", ". .. allow log.jsonl ports ");
	expect(w, "run/a/snapshots", ". .. ");
	expect(w, "snapshots", ". .. ");
	expect(w, "store", ". .. gc stat.json verify ");
	assert_int_equal(fw_put(w, "run/a/snapshot", "s"), 0);
	expect(w, "run/a/snapshots", ". .. s ");
	expect(w, "snapshots", ". .. s ");
	expect(w, "snapshots/s", ". .. diff error fork forks info.json parent status uuid verify ");
	expect(w, "snapshots/s/forks", ". .. ");
	assert_int_equal(fw_walk(w, "images", &e), -ENOENT);
}

static void check_mode(struct fw *w, const char *path, mode_t mode, uid_t uid)
{
	struct fuse_entry_out e;

	if (fw_walk(w, path, &e) < 0)
		fail_msg("%s is absent", path);
	if (e.attr.mode != mode || e.attr.uid != uid || e.attr.nlink != 1)
		fail_msg("%s: mode 0%o uid %u nlink %u", path, e.attr.mode, e.attr.uid, e.attr.nlink);
}

/* Rule 11: others see name and status, and nothing else. */
static void owners_and_modes(void **state)
{
	static const char *const files[] = { "cmd",   "stdin",	"ctl",	       "env",	    "from",
					     "lease", "import", "limits/pids", "net/allow", "net/ports" };
	static const char *const records[] = { "stdout",      "stderr",	    "error", "info.json",    "log.jsonl",
					       "console.log", "usage.json", "uuid",  "net/log.jsonl" };
	struct fw *w = *state;
	char path[64];

	w->uid = 1000;
	assert_int_equal(fw_mkdir(w, "run/a"), 0);
	w->uid = 0;
	check_mode(w, "", S_IFDIR | 0755, 0);
	check_mode(w, "run", S_IFDIR | 01777, 0);
	check_mode(w, "run/a", S_IFDIR | 0755, 1000);
	check_mode(w, "run/a/status", S_IFREG | 0444, 1000);
	check_mode(w, "run/a/exec", S_IFDIR | 0700, 1000);
	check_mode(w, "run/a/limits", S_IFDIR | 0700, 1000);
	check_mode(w, "run/a/net", S_IFDIR | 0700, 1000);
	check_mode(w, "run/a/.fs", S_IFDIR | 0700, 1000);
	check_mode(w, "run/a/fs", S_IFLNK | 0777, 1000);
	check_mode(w, "run/a/wait", S_IFLNK | 0777, 1000);
	check_mode(w, "defaults/pids", S_IFREG | 0644, 0);
	check_mode(w, "logs/00000000-0000-4000-8000-000000000001.jsonl", S_IFREG | 0400, 1000);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		snprintf(path, sizeof(path), "run/a/%s", files[i]);
		check_mode(w, path, S_IFREG | 0600, 1000);
	}
	for (size_t i = 0; i < sizeof(records) / sizeof(*records); i++) {
		snprintf(path, sizeof(path), "run/a/%s", records[i]);
		check_mode(w, path, S_IFREG | 0400, 1000);
	}
}

static void links_lead_to_unlisted_names(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_readlink(w, "run/a/fs", buf, sizeof(buf)), 0);
	assert_string_equal(buf, ".fs");
	assert_int_equal(fw_readlink(w, "run/a/wait", buf, sizeof(buf)), 0);
	assert_string_equal(buf, ".wait");
	assert_int_equal(fw_walk(w, "run/a/exec/latest", &e), -ENOENT);
	fw_put(w, "run/a/cmd", "true");
	assert_int_equal(fw_readlink(w, "run/a/exec/latest", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "1");
	assert_int_equal(fw_readlink(w, "run/a/exec/1/wait", buf, sizeof(buf)), 0);
	assert_string_equal(buf, ".wait");
	assert_int_equal(fw_walk(w, "run/a/exec/01", &e), -ENOENT);
	assert_int_equal(fw_walk(w, "run/a/exec/0", &e), -ENOENT);
	assert_int_equal(fw_walk(w, "run/a/exec/2", &e), -ENOENT);
	assert_int_equal(fw_readlink(w, "logs/by-name/a", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "../00000000-0000-4000-8000-000000000001.jsonl");
}

/* The newest of a name, and only what the caller may read. */
static void by_name_is_the_callers(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;

	fake_sandbox(w->reg, "a", 1);
	assert_int_equal(fw_rmdir(w, "run/a"), 0);
	fake_sandbox(w->reg, "a", 2);
	w->uid = 1;
	assert_int_equal(fw_readlink(w, "logs/by-name/a", buf, sizeof(buf)), 0);
	assert_non_null(strstr(buf, "0001.jsonl"));
	w->uid = 2;
	assert_int_equal(fw_readlink(w, "logs/by-name/a", buf, sizeof(buf)), 0);
	assert_non_null(strstr(buf, "0002.jsonl"));
	w->uid = 3;
	assert_int_equal(fw_walk(w, "logs/by-name/a", &e), -ENOENT);
	expect(w, "logs/by-name", ". .. ");
	w->uid = 0;
	assert_int_equal(fw_readlink(w, "logs/by-name/a", buf, sizeof(buf)), 0);
	assert_non_null(strstr(buf, "0002.jsonl"));
}

/* What find, grep -r, tar and cp -r do: list, look up, and read whatever is a regular file. */
static void read_all(struct fw *w, const char *path, unsigned *files)
{
	char *names, *save = NULL;

	assert_int_equal(fw_list(w, path, buf, sizeof(buf)), 0);
	names = strdup(buf);
	assert_non_null(names);
	for (char *n = strtok_r(names, " ", &save); n; n = strtok_r(NULL, " ", &save)) {
		struct fuse_entry_out e;
		char child[512];

		if (!strcmp(n, ".") || !strcmp(n, ".."))
			continue;
		snprintf(child, sizeof(child), "%s%s%s", path, *path ? "/" : "", n);
		assert_int_equal(fw_walk(w, child, &e), 0);
		if (S_ISDIR(e.attr.mode)) {
			read_all(w, child, files);
		} else if (S_ISREG(e.attr.mode)) {
			assert_true(fw_cat(w, child, buf, sizeof(buf)) >= 0);
			++*files;
		}
	}
	free(names);
}

static void reading_is_harmless(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct cfs_who who = { .uid = 0, .gid = 0 };
	struct sandbox *fresh;
	unsigned files = 0;

	assert_int_equal(registry_create(w->reg, "b", &who, &fresh, NULL), 0);
	fw_mkdir(w, "run/a/exec/web");
	fw_put(w, "run/a/stdin", "input");
	fw_put(w, "run/a/cmd", "sleep 9\n"); /* runs while all is read */
	fw_put(w, "run/a/stdin", "more");
	read_all(w, "", &files);
	assert_true(files > 60);
	assert_int_equal(sandbox_latest_exec(s), 1);
	assert_int_equal(sandbox_status(fresh), SBX_CONFIGURED);
	assert_string_equal(fake_stdin(s), "more");
	assert_int_equal(fake_leases(s), 0);
	assert_false(sandbox_gone(s)); /* the lease was opened and closed: for reading */
	assert_string_equal(fake_ctl(s), "");
	assert_int_equal(registry_count(w->reg), 2);
	assert_int_equal(cfs_session_parked(w->cs), 0);
	assert_int_equal(cfs_session_open(w->cs), 0);
}

/* rm -rf of busybox: deletes while it reads. */
static void a_listing_stands_while_names_go(void **state)
{
	struct fw *w = *state;
	struct fuse_read_in in = { .size = 256 };
	struct fuse_open_in open_in = { 0 };
	struct fuse_entry_out run;
	const struct fw_answer *a;
	unsigned seen = 0;
	char name[16];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "s%03d", i);
		fake_sandbox(w->reg, name, 0);
	}
	assert_int_equal(fw_walk(w, "run", &run), 0);
	assert_int_equal(fw_call(w, FUSE_OPENDIR, run.nodeid, &open_in, sizeof(open_in), NULL, 0, &a), 0);
	in.fh = ((const struct fuse_open_out *)(const void *)a->data)->fh;
	for (;;) {
		char page[256];
		size_t len;

		assert_int_equal(fw_call(w, FUSE_READDIR, run.nodeid, &in, sizeof(in), NULL, 0, &a), 0);
		len = a->len;
		if (!len)
			break;
		memcpy(page, a->data, len);
		for (size_t at = 0; at < len;) {
			const struct fuse_dirent *d = (const void *)(page + at);

			if (d->name[0] == 's') {
				snprintf(name, sizeof(name), "run/%.*s", (int)d->namelen, d->name);
				assert_int_equal(fw_rmdir(w, name), 0);
				seen++;
			}
			in.offset = d->off;
			at += FUSE_DIRENT_SIZE(d);
		}
	}
	assert_int_equal(seen, 100);
	in.offset = 0; /* rewinddir looks again */
	assert_int_equal(fw_call(w, FUSE_READDIR, run.nodeid, &in, sizeof(in), NULL, 0, &a), 0);
	assert_int_equal(a->len, 2 * 32);
	in.offset = 1ull << 40; /* seekdir to nowhere */
	assert_int_equal(fw_call(w, FUSE_READDIR, run.nodeid, &in, sizeof(in), NULL, 0, &a), 0);
	assert_int_equal(a->len, 0);
}

/* A directory of the tables answers readdirplus with names alone: nothing is rendered and no lookup counted. */
static void readdirplus_tells_names_alone(void **state)
{
	struct fw *w = *state;
	struct fuse_read_in in = { .size = 8192 };
	struct fuse_open_in open_in = { 0 };
	const struct fw_answer *a;
	size_t before = cfs_node_count(w->cs), n = 0;

	assert_int_equal(fw_call(w, FUSE_OPENDIR, FUSE_ROOT_ID, &open_in, sizeof(open_in), NULL, 0, &a), 0);
	in.fh = ((const struct fuse_open_out *)(const void *)a->data)->fh;
	assert_int_equal(fw_call(w, FUSE_READDIRPLUS, FUSE_ROOT_ID, &in, sizeof(in), NULL, 0, &a), 0);
	for (size_t at = 0; at < a->len; n++) {
		const struct fuse_direntplus *d = (const void *)(a->data + at);

		assert_int_equal(d->entry_out.nodeid, 0);
		at += FUSE_DIRENTPLUS_SIZE(d);
	}
	assert_int_equal(n, 15);
	assert_int_equal(cfs_node_count(w->cs), before);
}

/* mtime of a directory moves when its names do, and at no other time. */
static uint64_t mtime(struct fw *w, const char *path)
{
	struct fuse_entry_out e;

	assert_int_equal(fw_walk(w, path, &e), 0);
	return e.attr.mtime * 1000000000u + e.attr.mtimensec;
}

static void directory_times(void **state)
{
	struct fw *w = *state;
	uint64_t run, a, again;

	fake_end_at_once(w->reg, true);
	run = mtime(w, "run");
	assert_int_equal(mtime(w, "run"), run);
	fw_mkdir(w, "run/a");
	again = mtime(w, "run");
	assert_true(again > run);
	a = mtime(w, "run/a");
	fake_status(registry_find(w->reg, NULL, "a"), SBX_PAUSED);
	assert_int_equal(mtime(w, "run/a"), a);
	fw_put(w, "run/a/cmd", "true"); /* result.json comes */
	assert_true(mtime(w, "run/a") > a);
	a = mtime(w, "run/a");
	fw_put(w, "run/a/scratch", "x");
	assert_true(mtime(w, "run/a") > a);
	assert_int_equal(mtime(w, "run"), again);
	fw_rmdir(w, "run/a");
	assert_true(mtime(w, "run") > again);
}

static void a_directory_keeps_its_node(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out a, b;

	fake_sandbox(w->reg, "a", 5);
	assert_int_equal(fw_walk(w, "run/a", &a), 0);
	w->uid = 6; /* whoever asks: else each would throw the other's working directory out of the cache */
	assert_int_equal(fw_walk(w, "run/a", &b), 0);
	assert_int_equal(a.nodeid, b.nodeid);
	assert_int_equal(fw_rename(w, "run/a", "run/b", 0), 0);
	assert_int_equal(fw_walk(w, "run/b", &b), 0);
	assert_int_equal(a.nodeid, b.nodeid);
	assert_int_equal(a.attr.ino, b.attr.ino);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(the_tree_is_as_specified),	     TEST(owners_and_modes),	TEST(links_lead_to_unlisted_names),
		TEST(by_name_is_the_callers),	     TEST(reading_is_harmless), TEST(a_listing_stands_while_names_go),
		TEST(readdirplus_tells_names_alone), TEST(directory_times),	TEST(a_directory_keeps_its_node),
	};

	return cmocka_run_group_tests_name("cfs_listing", tests, NULL, NULL);
}
