/* SPDX-License-Identifier: Apache-2.0 */
/* v2's files are tested on a folder that looks like a v2 tree, for machines (such as the first ones this ran on) whose
 * controllers are all on v1; the real hierarchies, whichever they are, as root. */
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cgroup_priv.h"
#include "base/fd.h"
#include "base/loop.h"
#include "base/proc.h"

/* -- a tree of plain files ----------------------------------------------------------------------- */

static char dir[64];

static void put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", dir, path);
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static const char *get(const char *path)
{
	static char text[4096];
	char full[256];
	size_t n;
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", dir, path);
	f = fopen(full, "r");
	if (!f)
		return "(absent)";
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

static void make(const char *path)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", dir, path);
	assert_int_equal(mkdir(full, 0755), 0);
}

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/crucible-test cg-XXXXXX"); /* with a space: mountinfo says \040 */
	assert_non_null(mkdtemp(dir));
	make("v2");
	put("v2/cgroup.controllers", "cpuset cpu io memory pids\n");
	put("v2/cgroup.subtree_control", "");
	make("memory");
	make("cpu,cpuacct");
	make("freezer");
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct cgroup_root *find(const char *which, unsigned int flags, const char *self)
{
	struct cgroup_root *c = calloc(1, sizeof(*c));
	char info[2048], mount[128], *to = mount;
	struct err e = { 0 };
	size_t n = 0;

	for (const char *p = dir; *p; p++)
		to += sprintf(to, *p == ' ' ? "\\040" : "%c", *p);
	n += (size_t)sprintf(info + n, "24 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n");
	if (strstr(which, "v1")) {
		n += (size_t)sprintf(info + n,
				     "31 24 0:28 / %s/memory rw shared:2 master:3 - cgroup cgroup rw,memory\n", mount);
		n += (size_t)sprintf(info + n, "32 24 0:29 / %s/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
				     mount);
		n += (size_t)sprintf(info + n, "33 24 0:30 / %s/freezer rw - cgroup cgroup rw,freezer\n", mount);
		n += (size_t)sprintf(info + n, "34 24 0:31 / %s/absent rw - cgroup cgroup rw,pids\n", mount);
	}
	if (strstr(which, "v2"))
		n += (size_t)sprintf(info + n, "35 24 0:32 / %s/v2 rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n", mount);
	sprintf(info + n, "garbage line\n - \n36 24\n");
	assert_int_equal(cgroup_find(c, "x", flags, info, self, &e), 0);
	return c;
}

static void test_find_v2(void **state)
{
	struct cgroup_root *c = find("v1 v2", 0, "0::/\n");

	(void)state;
	/* v2 has them all: v1 is not looked at. */
	assert_int_equal(c->ntrees, 1);
	assert_true(c->trees[0].v2);
	assert_string_equal(c->trees[0].base, "crucible-x");
	for (int i = 0; i < CGROUP_FREEZER; i++)
		assert_ptr_equal(cgroup_tree_of(c, (enum cgroup_ctl)i), &c->trees[0]);
	assert_null(cgroup_tree_of(c, CGROUP_FREEZER));
	cgroup_root_free(c);
}

static void test_find_hybrid(void **state)
{
	struct cgroup_root *c;

	(void)state;
	put("v2/cgroup.controllers", "pids hugetlb\n");
	c = find("v1 v2", 0, "0::/\n");
	assert_int_equal(c->ntrees, 3); /* v2, memory, cpu,cpuacct */
	assert_true(cgroup_tree_of(c, CGROUP_PIDS)->v2);
	assert_false(cgroup_tree_of(c, CGROUP_MEMORY)->v2);
	assert_false(cgroup_tree_of(c, CGROUP_CPU)->v2);
	assert_null(cgroup_tree_of(c, CGROUP_IO));
	assert_null(cgroup_tree_of(c, CGROUP_FREEZER));
	cgroup_root_free(c);
	c = find("v1 v2", CGROUP_V1_ONLY, "0::/\n");
	assert_int_equal(c->ntrees, 3); /* memory, cpu,cpuacct, freezer */
	assert_ptr_equal(cgroup_tree_of(c, CGROUP_CPU), cgroup_tree_of(c, CGROUP_CPUACCT));
	assert_non_null(cgroup_tree_of(c, CGROUP_FREEZER));
	assert_null(cgroup_tree_of(c, CGROUP_PIDS)); /* its mount point cannot be opened */
	cgroup_root_free(c);
	c = find("", 0, "");
	assert_int_equal(c->ntrees, 0);
	cgroup_root_free(c);
}

static void test_delegation(void **state)
{
	struct cgroup_root *c;
	char path[128];

	(void)state;
	make("v2/system.slice");
	make("v2/system.slice/crucible.service");
	make("v2/system.slice/crucible.service/daemon");
	put("v2/system.slice/crucible.service/cgroup.controllers", "memory pids\n");
	/* Not given to us: a login session, say. */
	c = find("v2", 0, "4:memory:/x\n0::/system.slice/crucible.service\n");
	assert_string_equal(c->trees[0].base, "crucible-x");
	assert_false(c->trees[0].delegated);
	cgroup_root_free(c);
	snprintf(path, sizeof(path), "%s/v2/system.slice/crucible.service", dir);
	if (setxattr(path, "user.delegate", "1", 1, 0) < 0) {
		print_message("no user xattrs in /tmp: the rest is not tested\n");
		return;
	}
	c = find("v2", 0, "4:memory:/x\n0::/system.slice/crucible.service\n");
	assert_string_equal(c->trees[0].base, "system.slice/crucible.service");
	assert_true(c->trees[0].delegated);
	assert_non_null(cgroup_tree_of(c, CGROUP_MEMORY));
	assert_null(cgroup_tree_of(c, CGROUP_CPU)); /* was not given along */
	cgroup_root_remove(c);
	assert_int_equal(access(path, F_OK), 0);
	cgroup_root_free(c);
	/* Already in the leaf. */
	c = find("v2", 0, "0::/system.slice/crucible.service/daemon\n");
	assert_string_equal(c->trees[0].base, "system.slice/crucible.service");
	cgroup_root_free(c);
	c = find("v2", 0, "0::/../outside\n");
	assert_string_equal(c->trees[0].base, "crucible-x");
	cgroup_root_free(c);
}

static void test_limits_v2_files(void **state)
{
	static const char *const files[] = { "memory.max", "memory.swap.max", "memory.oom.group",
					     "cpu.max",	   "pids.max",	      "io.max" };
	const struct cgroup_limits l = { .memory_bytes = 1 << 20,
					 .cpu_percent = 250,
					 .pids = 9,
					 .io_bytes_per_s = 5000,
					 .io_dev = makedev(9999, 0) };
	struct cgroup_root *c = find("v2", 0, "0::/\n");
	struct buf unenforced;
	char path[128];

	(void)state;
	buf_init(&unenforced, 64);
	make("v2/crucible-x");
	make("v2/crucible-x/u");
	make("v2/crucible-x/u/engine");
	put("v2/crucible-x/cgroup.subtree_control", "");
	put("v2/crucible-x/u/cgroup.subtree_control", "");
	/* The folders are there, the files of no controller: nothing can be applied, and that is said. */
	assert_int_equal(cgroup_make(c, "u/engine", NULL), 0);
	assert_int_equal(cgroup_limit(c, "u/engine", &l, &unenforced), 0);
	assert_string_equal(buf_str(&unenforced), "memory,cpu,pids,io");
	/* The last one written; each was written alone. */
	assert_non_null(strstr(get("v2/cgroup.subtree_control"), "+io"));
	assert_non_null(strstr(get("v2/crucible-x/u/cgroup.subtree_control"), "+io"));
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof(path), "v2/crucible-x/u/engine/%s", files[i]);
		put(path, "max and more than we write into it\n");
	}
	buf_reset(&unenforced);
	assert_int_equal(cgroup_limit(c, "u/engine", &l, &unenforced), 0);
	assert_string_equal(buf_str(&unenforced), "");
	assert_string_equal(get("v2/crucible-x/u/engine/memory.max"), "1048576");
	assert_string_equal(get("v2/crucible-x/u/engine/memory.swap.max"), "1048576");
	assert_string_equal(get("v2/crucible-x/u/engine/memory.oom.group"), "1");
	assert_string_equal(get("v2/crucible-x/u/engine/cpu.max"), "250000 100000");
	assert_string_equal(get("v2/crucible-x/u/engine/pids.max"), "9");
	assert_string_equal(get("v2/crucible-x/u/engine/io.max"), "9999:0 rbps=5000 wbps=5000");
	/* No disk: a tmpfs has no bandwidth to limit. */
	assert_int_equal(cgroup_limit(c, "u/engine", &(struct cgroup_limits){ .io_bytes_per_s = 1 }, &unenforced), 0);
	assert_string_equal(buf_str(&unenforced), "io");
	buf_fini(&unenforced);
	cgroup_root_free(c);
}

static void test_stat_v2_files(void **state)
{
	struct cgroup_root *c = find("v2", 0, "0::/\n");
	struct cgroup_stat s;

	(void)state;
	assert_int_equal(cgroup_stat(c, "u/engine", &s), -ENOENT);
	make("v2/crucible-x");
	make("v2/crucible-x/u");
	make("v2/crucible-x/u/engine");
	assert_int_equal(cgroup_stat(c, "u/engine", &s), 0); /* says nothing: zeros */
	assert_int_equal(s.memory_bytes + s.tasks + s.cpu_usec, 0);
	put("v2/crucible-x/u/engine/cgroup.threads", "10\n11\n12\n");
	put("v2/crucible-x/u/engine/memory.current", "4096\n");
	put("v2/crucible-x/u/engine/memory.events", "low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n");
	put("v2/crucible-x/u/engine/cpu.stat", "usage_usec 123\nuser_usec 100\n");
	put("v2/crucible-x/u/engine/io.stat",
	    "8:0 rbytes=100 wbytes=20 rios=1 wios=1\n8:16 rbytes=1 wbytes=2 rios=0 wios=0\n");
	assert_int_equal(cgroup_stat(c, "u/engine", &s), 0);
	assert_int_equal(s.tasks, 3);
	assert_int_equal(s.memory_bytes, 4096);
	assert_int_equal(s.memory_peak_bytes, 4096); /* an older kernel without memory.peak */
	assert_int_equal(s.oom_kills, 1);
	assert_int_equal(s.cpu_usec, 123);
	assert_int_equal(s.io_read_bytes, 101);
	assert_int_equal(s.io_write_bytes, 22);
	put("v2/crucible-x/u/engine/memory.peak", "8192\n");
	assert_int_equal(cgroup_stat(c, "u/engine", &s), 0);
	assert_int_equal(s.memory_peak_bytes, 8192);
	cgroup_root_free(c);
}

static void test_bad_names_einval(void **state)
{
	static const char *const bad[] = { "", "a/b", "a b", "\xc3\xa9",
					   "12345678901234567890123456789012345678901234567890123456789012345" };
	struct cgroup_root *c = NULL;
	struct err e = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(cgroup_root_new(bad[i], 0, &c, &e), -EINVAL);
	assert_null(cgroup_root_free(NULL));
}

/* -- the real ones -------------------------------------------------------------------------------- */

struct real {
	struct cgroup_root *c;
	unsigned int flags;
	char name[32];
};

static int real_setup(void **state, unsigned int flags)
{
	static struct real r;
	struct err e = { 0 };

	r.flags = flags;
	snprintf(r.name, sizeof(r.name), "test-cg-%d", (int)getpid());
	if (cgroup_root_new(r.name, flags, &r.c, &e) < 0)
		fail_msg("%s", e.msg);
	*state = &r;
	return 0;
}

static int setup_best(void **state)
{
	return real_setup(state, 0);
}

static int setup_v1(void **state)
{
	return real_setup(state, CGROUP_V1_ONLY);
}

/* No folder of ours is left anywhere. */
static int real_teardown(void **state)
{
	struct real *r = *state;
	int left = 0;

	cgroup_root_remove(r->c);
	for (size_t i = 0; i < r->c->ntrees; i++)
		if (!r->c->trees[i].delegated)
			left += faccessat(r->c->trees[i].root_fd, r->c->trees[i].base, F_OK, 0) == 0;
	r->c = cgroup_root_free(r->c);
	return left;
}

static int join(void *arg, struct err *e)
{
	return cgroup_entry_join(arg, e);
}

/* A shell that has a child, both in the group. */
static pid_t start(struct real *r, const char *path, const char *script)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)script, NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct cgroup_entry entry = { .born_fd = -1 };
	struct err e = { 0 };
	pid_t pid;

	if (cgroup_make(r->c, path, &e) < 0 || cgroup_entry_open(r->c, path, &entry, &e) < 0)
		fail_msg("%s", e.msg);
	spec.name = "sh";
	spec.path = "/bin/sh";
	spec.argv = argv;
	spec.setup = join;
	spec.arg = &entry;
	spec.cgroup_fd = entry.born_fd;
	if (proc_spawn(&spec, &pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	cgroup_entry_close(&entry);
	return pid;
}

static void kill_and_remove(struct real *r, const char *path)
{
	uint64_t end = now_ns() + UINT64_C(20000000000);
	struct err e = { 0 };
	int rc;

	while ((rc = cgroup_kill(r->c, path, &e)) == 1 || cgroup_remove(r->c, path, &e) == -EBUSY) {
		assert_true(now_ns() < end);
		usleep(1000);
	}
	if (rc < 0)
		fail_msg("%s", e.msg);
}

static int collect(void *arg, const char *name)
{
	unsigned int *n = arg;

	*n += !strcmp(name, "aaaa");
	return 0;
}

static void test_real_life(void **state)
{
	struct real *r = *state;
	uint64_t end = now_ns() + UINT64_C(20000000000);
	struct cgroup_stat s = { 0 };
	unsigned int n = 0;
	struct err e = { 0 };
	pid_t pid, pids[8];
	size_t npids;
	int status;

	if (r->c->ntrees == 0)
		skip();
	assert_int_equal(cgroup_kill(r->c, "aaaa", &e), 0); /* none: fine */
	assert_int_equal(cgroup_remove(r->c, "aaaa", &e), 0);
	assert_int_equal(cgroup_stat(r->c, "aaaa/box", &s), -ENOENT);
	assert_int_equal(cgroup_pids(r->c, "aaaa/box", pids, ARRAY_LEN(pids), &npids), -ENOENT);
	assert_int_equal(cgroup_list(r->c, collect, &n), 0);
	assert_int_equal(n, 0);
	pid = start(r, "aaaa/box", "trap '' TERM; sleep 1000 & sleep 1000 & wait");
	while (s.tasks < 3) {
		assert_true(now_ns() < end);
		assert_int_equal(cgroup_stat(r->c, "aaaa/box", &s), 0);
	}
	assert_true(s.cpu_usec > 0 || !cgroup_tree_of(r->c, CGROUP_CPUACCT));
	assert_true(s.memory_bytes > 0 || !cgroup_tree_of(r->c, CGROUP_MEMORY));
	assert_int_equal(cgroup_pids(r->c, "aaaa/box", pids, ARRAY_LEN(pids), &npids), 0);
	assert_int_equal(npids, 3);
	assert_true(pids[0] == pid || pids[1] == pid || pids[2] == pid);
	assert_int_equal(cgroup_pids(r->c, "aaaa/box", pids, 2, &npids), 0);
	assert_int_equal(npids, 2);
	assert_int_equal(cgroup_list(r->c, collect, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(cgroup_remove(r->c, "aaaa", &e), -EBUSY);
	kill_and_remove(r, "aaaa");
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(cgroup_stat(r->c, "aaaa/box", &s), -ENOENT);
}

/* What the words do not name as unenforced is enforced: a fork too many fails. */
static void test_real_pids_limit(void **state)
{
	const struct cgroup_limits l = { .pids = 3 };
	struct real *r = *state;
	struct buf words;
	int status;
	pid_t pid;

	buf_init(&words, 64);
	assert_int_equal(cgroup_make(r->c, "bbbb/box", NULL), 0);
	assert_int_equal(cgroup_limit(r->c, "bbbb/box", &l, &words), 0);
	if (words.len > 0) {
		kill_and_remove(r, "bbbb");
		buf_fini(&words);
		skip();
	}
	pid = start(r, "bbbb/box", "sleep 1000 & sleep 1000 & sleep 1000 & exit 0");
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	kill_and_remove(r, "bbbb");
	buf_fini(&words);
}

static void test_real_memory_limit(void **state)
{
	const struct cgroup_limits l = { .memory_bytes = 16 << 20 };
	struct real *r = *state;
	struct cgroup_stat s;
	struct buf words;
	int status;
	pid_t pid;

	buf_init(&words, 64);
	assert_int_equal(cgroup_make(r->c, "cccc/box", NULL), 0);
	assert_int_equal(cgroup_limit(r->c, "cccc/box", &l, &words), 0);
	if (words.len > 0) {
		kill_and_remove(r, "cccc");
		buf_fini(&words);
		skip();
	}
	/* Grows until it is met. */
	pid = start(r, "cccc/box", "a=0123456789abcdef; while :; do a=$a$a; done");
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(cgroup_stat(r->c, "cccc/box", &s), 0);
	assert_true(s.oom_kills >= 1);
	assert_true(s.memory_peak_bytes <= l.memory_bytes);
	kill_and_remove(r, "cccc");
	buf_fini(&words);
}

int main(void)
{
	const struct CMUnitTest plain[] = {
		cmocka_unit_test_setup_teardown(test_find_v2, setup, teardown),
		cmocka_unit_test_setup_teardown(test_find_hybrid, setup, teardown),
		cmocka_unit_test_setup_teardown(test_delegation, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limits_v2_files, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stat_v2_files, setup, teardown),
		cmocka_unit_test(test_bad_names_einval),
	};
	const struct CMUnitTest best[] = {
		cmocka_unit_test_setup_teardown(test_real_life, setup_best, real_teardown),
		cmocka_unit_test_setup_teardown(test_real_pids_limit, setup_best, real_teardown),
		cmocka_unit_test_setup_teardown(test_real_memory_limit, setup_best, real_teardown),
	};
	const struct CMUnitTest v1[] = {
		cmocka_unit_test_setup_teardown(test_real_life, setup_v1, real_teardown),
		cmocka_unit_test_setup_teardown(test_real_pids_limit, setup_v1, real_teardown),
		cmocka_unit_test_setup_teardown(test_real_memory_limit, setup_v1, real_teardown),
	};
	const char *must = getenv("CRUCIBLE_MUST_RUN");
	int failed = cmocka_run_group_tests_name("cgroup files", plain, NULL, NULL);

	if (geteuid() != 0) {
		fprintf(stderr, "SKIP: the real hierarchies need root\n");
		return failed || (must && *must == '1') ? 1 : 77;
	}
	failed += cmocka_run_group_tests_name("cgroups as they are", best, NULL, NULL);
	return failed + cmocka_run_group_tests_name("cgroups, v1 only", v1, NULL, NULL);
}
