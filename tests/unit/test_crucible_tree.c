/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the mount, its small files, sandboxes as directories, and waiting: against a tree of plain files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "tests/unit/files.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/mount.h"
#include "tools/crucible/permits.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/setup.h"
#include "tools/crucible/tree.h"

static char dir[64]; /* the fake mount; every test has its own */
static int root;

static int enter(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test-crucible-tree.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	root = open(dir, O_RDONLY | O_DIRECTORY);
	mkdirat(root, "run", 0755);
	mkdirat(root, "run/a", 0755);
	mkdirat(root, "run/a/limits", 0755);
	put_file(root, "version", "0.1.0\n");
	put_file(root, "run/a/status", "ready\n");
	put_file(root, "run/a/error", "\n");
	put_file(root, "run/a/log.jsonl", "");
	put_file(root, "run/a/from", "");
	put_file(root, "run/a/env", "");
	put_file(root, "run/a/limits/vcpus", "");
	put_file(root, "run/a/limits/memory_mib", "");
	put_file(root, "run/a/limits/disk_mib", "");
	put_file(root, "run/a/limits/timeout_s", "");
	return 0;
}

static int leave(void **state)
{
	char command[128];

	(void)state;
	close(root);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* -- the mount -------------------------------------------------------------------------------------------------- */

static void test_where_the_mount_is_looked_for(void **state)
{
	(void)state;
	unsetenv("CRUCIBLE_MOUNT");
	assert_string_equal(mount_path(NULL), "/crucible");
	assert_string_equal(mount_path("/flag"), "/flag");
	setenv("CRUCIBLE_MOUNT", "/env", 1);
	assert_string_equal(mount_path(NULL), "/env");
	assert_string_equal(mount_path("/flag"), "/flag");
	setenv("CRUCIBLE_MOUNT", "", 1);
	assert_string_equal(mount_path(NULL), "/crucible");
	unsetenv("CRUCIBLE_MOUNT");
}

static void test_a_mount_opens(void **state)
{
	struct mount m;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(mount_open(dir, &m, &e), 0);
	assert_true(m.fd >= 0);
	assert_string_equal(m.version, "0.1.0");
	assert_string_equal(m.path, dir);
	mount_close(&m);
	assert_int_equal(m.fd, -1);
}

static void assert_no_mount(const char *path, int code, const char *part)
{
	struct mount m;
	struct err e = { 0 };

	assert_int_equal(mount_open(path, &m, &e), code);
	if (!strstr(e.msg, part) || !strstr(e.msg, path))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, part);
}

static void test_what_is_no_mount(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/nowhere", dir);
	assert_no_mount(path, -ENOENT, "crucible daemon --mount");
	snprintf(path, sizeof(path), "%s/version", dir);
	assert_no_mount(path, -ENOTDIR, "");
	assert_no_mount("/proc", -EMEDIUMTYPE, "no crucible mount");
	unlinkat(root, "version", 0);
	assert_no_mount(dir, -EMEDIUMTYPE, "crucible daemon --mount");
	put_file(root, "version", " \n");
	assert_no_mount(dir, -EMEDIUMTYPE, "crucible daemon --mount");
	put_file(root, "version", "0.1.0\n");
	renameat(root, "run", root, "walk");
	assert_no_mount(dir, -EMEDIUMTYPE, "crucible daemon --mount");
}

/* A client starts the server in a directory of its own. */
static void test_setup_names_the_mount_from_the_root_on(void **state)
{
	AUTO_JSON *args = NULL, *plain = NULL;
	AUTO_FD here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char want[128];
	struct err e = { 0 };

	(void)state;
	snprintf(want, sizeof(want), "[\"mcp\",\"serve\",\"--mount\",\"%s/run\"]", dir);
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(setup_args("run", &args, &e), 0);
	assert_string_equal(json_object_to_json_string_ext(args, JSON_C_TO_STRING_NOSLASHESCAPE), want);
	assert_int_equal(setup_args("nowhere", &plain, &e), -ENOENT);
	assert_int_equal(setup_args(MOUNT_DEFAULT, &plain, &e), 0);
	assert_string_equal(json_object_to_json_string_ext(plain, 0), "[\"mcp\",\"serve\"]");
	assert_int_equal(fchdir(here), 0);
}

/* -- small files --------------------------------------------------------------------------------------------------- */

static void test_words(void **state)
{
	char word[8];

	(void)state;
	put_file(root, "w", "  ready \nmore\n");
	assert_int_equal(tree_word(root, "w", word, sizeof(word)), 0);
	assert_string_equal(word, "ready");
	put_file(root, "w", "a\x1b[m");
	assert_int_equal(tree_word(root, "w", word, sizeof(word)), 0);
	assert_string_equal(word, "a?[m");
	put_file(root, "w", "");
	assert_int_equal(tree_word(root, "w", word, sizeof(word)), 0);
	assert_string_equal(word, "");
	put_file(root, "w", "12345678");
	assert_int_equal(tree_word(root, "w", word, sizeof(word)), -ENOBUFS);
	assert_int_equal(tree_word(root, "none", word, sizeof(word)), -ENOENT);
}

static void test_json(void **state)
{
	AUTO_JSON *o = NULL;
	struct err e = { 0 };

	(void)state;
	put_file(root, "j", "{\"a\":1}\n");
	assert_int_equal(tree_json(root, "j", &o, &e), 0);
	assert_string_equal(json_line(o), "{\"a\":1}");
	put_file(root, "j", "[1]");
	assert_int_equal(tree_json(root, "j", &o, &e), -EINVAL);
	put_file(root, "j", "{");
	assert_int_equal(tree_json(root, "j", &o, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "j: JSON"));
	assert_int_equal(tree_json(root, "none", &o, &e), -ENOENT);
}

/* A daemon refuses in write(2) and leaves words; /dev/full stands in for it. */
static void test_words_of_a_refusal(void **state)
{
	struct err e = { 0 };
	int a = openat(root, "run/a", O_PATH | O_DIRECTORY);

	(void)state;
	put_file(root, "run/a/error", "sandbox a: ctl: no room \x1b[31m\n");
	assert_int_equal(tree_explain(a, -ENOSPC, &e, "ctl"), -ENOSPC);
	assert_string_equal(e.msg, "sandbox a: ctl: no room ?[31m");
	/* What the kernel says by itself is not explained by an older failure. */
	assert_int_equal(tree_explain(a, -EACCES, &e, "%s", "ctl"), -EACCES);
	assert_string_equal(e.msg, "ctl: Permission denied");
	assert_int_equal(tree_explain(a, -ENOENT, &e, "ctl"), -ENOENT);
	assert_string_equal(e.msg, "ctl: No such file or directory");
	put_file(root, "run/a/error", "\n");
	assert_int_equal(tree_explain(a, -EBUSY, &e, "ctl"), -EBUSY);
	assert_string_equal(e.msg, "ctl: Device or resource busy");
	assert_int_equal(tree_explain(a, -ESTALE, &e, "ctl"), -ESTALE);
	assert_non_null(strstr(e.msg, "removed"));
	assert_int_equal(tree_set(a, "none", "x", &e), -ENOENT);
	assert_int_equal(tree_put(a, "none", "x\n", 2, &e), -ENOENT);
	assert_string_equal(e.msg, "none: No such file or directory");
	assert_int_equal(tree_put(a, "from", "profile:a\n", 10, &e), 0);
	assert_file(root, "run/a/from", "profile:a\n");
	assert_int_equal(tree_set(a, "from", "profile:tiny", &e), 0);
	assert_file(root, "run/a/from", "profile:tiny\n");
	/* Nothing is ever made by writing. */
	assert_int_equal(faccessat(a, "none", F_OK, 0), -1);
	close(a);
}

static int collect(void *arg, int parent, const char *name)
{
	(void)parent;
	strcat(strcat(arg, name), " ");
	return strcmp(name, "stop") ? 0 : 7;
}

static void test_lists_are_sorted(void **state)
{
	char names[64] = "";

	(void)state;
	mkdirat(root, "l", 0755);
	mkdirat(root, "l/b", 0755);
	mkdirat(root, "l/a", 0755);
	mkdirat(root, "l/.hidden", 0755);
	assert_int_equal(tree_list(root, "l", collect, names), 0);
	assert_string_equal(names, "a b ");
	mkdirat(root, "l/stop", 0755);
	mkdirat(root, "l/z", 0755);
	*names = '\0';
	assert_int_equal(tree_list(root, "l", collect, names), 7);
	assert_string_equal(names, "a b stop ");
	assert_int_equal(tree_list(root, "none", collect, names), -ENOENT);
}

/* -- sandboxes ------------------------------------------------------------------------------------------------------
 */

static void test_ids(void **state)
{
	static const char *const good[] = { "a", "A-1_b.c", "0", "sbx-00ff" };
	static const char *const bad[] = { "", ".", "..", "-a", "_a", ".a", "a/b", "a b", "a\n", "\xc3\xbc" };
	char longest[70];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		assert_int_equal(sbx_id_check(good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(sbx_id_check(bad[i], NULL), -EINVAL);
	memset(longest, 'a', sizeof(longest));
	longest[63] = '\0';
	assert_int_equal(sbx_id_check(longest, NULL), 0);
	longest[63] = 'a';
	longest[64] = '\0';
	assert_int_equal(sbx_id_check(longest, NULL), -ENAMETOOLONG);
}

static void test_fresh_names_are_names_and_differ(void **state)
{
	char a[SBX_ID_MAX + 1], b[SBX_ID_MAX + 1];

	(void)state;
	sbx_fresh_name("run-", a);
	sbx_fresh_name("run-", b);
	assert_int_equal(sbx_id_check(a, NULL), 0);
	assert_int_equal(strlen(a), 12);
	assert_string_not_equal(a, b);
}

static void test_opening_a_sandbox(void **state)
{
	struct sbx s;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(sbx_open(root, "a", &s, &e), 0);
	assert_string_equal(s.id, "a");
	sbx_close(&s);
	assert_int_equal(sbx_open(root, "b", &s, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "no sandbox \"b\""));
	assert_int_equal(sbx_open(root, "../version", &s, &e), -EINVAL);
	put_file(root, "run/file", "");
	assert_int_equal(sbx_open(root, "file", &s, &e), -ENOENT);
	assert_int_equal(symlinkat("a", root, "run/link"), 0);
	assert_int_equal(sbx_open(root, "link", &s, &e), -ENOENT);
}

static void test_setting_up(void **state)
{
	static const enum opt_id opts[] = { OPT_PROFILE, OPT_FROM,     OPT_VCPUS, OPT_MEMORY,
					    OPT_DISK,	 OPT_LIFETIME, OPT_ENV,	  OPT_END };
	const char *words[] = { "--profile",  "tiny",		"--vcpus=2", "--memory=1G",
				"--disk=64M", "--timeout=1.5s", "-eA=b c",   "-eD=" };
	struct args a;
	struct sbx s;
	struct err e = { 0 };

	(void)state;
	args_init(&a);
	assert_int_equal(args_parse(&a, opts, ARRAY_LEN(words), (char **)words, false, NULL, &e), 0);
	assert_int_equal(sbx_open(root, "a", &s, &e), 0);
	assert_int_equal(sbx_set_up(&s, &a, &e), 0);
	assert_int_equal(sbx_set_env(&s, &a.texts[OPT_ENV], &e), 0);
	assert_file(root, "run/a/from", "profile:tiny\n");
	assert_file(root, "run/a/limits/vcpus", "2\n");
	assert_file(root, "run/a/limits/memory_mib", "1024\n");
	assert_file(root, "run/a/limits/disk_mib", "64\n");
	assert_file(root, "run/a/limits/timeout_s", "2\n");
	assert_file(root, "run/a/env", "A=b c\nD=\n");
	a.text[OPT_FROM] = "profile:x";
	a.given[OPT_FROM] = true;
	assert_int_equal(sbx_set_up(&s, &a, &e), -EINVAL);
	a.texts[OPT_ENV].v[0] = "A=b\nc";
	assert_int_equal(sbx_set_env(&s, &a.texts[OPT_ENV], &e), -EINVAL);
	assert_non_null(strstr(e.msg, "of A holds a newline"));
	a.texts[OPT_ENV].v[0] = "=b";
	assert_int_equal(sbx_set_env(&s, &a.texts[OPT_ENV], &e), -EINVAL);
	args_fini(&a);
	sbx_close(&s);
}

static void test_making_and_removing(void **state)
{
	struct sbx s;
	struct err e = { 0 };
	char path[80];

	(void)state;
	assert_int_equal(sbx_make(root, "fresh", NULL, false, &s, &e), 0);
	assert_int_equal(faccessat(root, "run/fresh", F_OK, 0), 0);
	assert_int_equal(sbx_remove(&s, &e), 0);
	assert_int_equal(sbx_remove(&s, &e), 0); /* gone is what was wanted */
	sbx_close(&s);
	assert_int_equal(sbx_remove_id(root, "fresh", &e), -ENOENT);
	assert_int_equal(sbx_make(root, "a", NULL, false, &s, &e), -EEXIST);
	assert_non_null(strstr(e.msg, "already"));
	assert_int_equal(sbx_make(root, NULL, "run-", false, &s, &e), 0);
	snprintf(path, sizeof(path), "run/%s", s.id);
	assert_int_equal(faccessat(root, path, F_OK, 0), 0);
	sbx_close(&s);
	/* A plain directory has no `lease`: nothing may be left behind. */
	assert_int_equal(sbx_make(root, "leased", NULL, true, &s, &e), -ENOENT);
	assert_int_equal(faccessat(root, "run/leased", F_OK, 0), -1);
}

/* -- waiting ------------------------------------------------------------------------------------------------------- */

static uint64_t cpu_ns(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u;
}

/* A plain file is "ready" for ever: the rounds must become slow, and cost nothing. */
static void test_waiting_for_a_file_that_cannot_tell(void **state)
{
	uint64_t end_ns = now_ns() + 500000000u, cpu = cpu_ns();
	struct follow f = { 0 };
	unsigned rounds = 0;
	int fd = openat(root, "version", O_RDONLY);

	(void)state;
	assert_false(follow_tells(fd));
	while (now_ns() < end_ns) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		assert_int_equal(follow_wait(&f, &p, 1, 1, false), 0);
		rounds++;
	}
	assert_in_range(rounds, 3, 30);
	assert_true(cpu_ns() - cpu < 100000000u);
	close(fd);
}

/* What is not of the tree wakes also while the tree's files are left out. */
static void test_waiting_is_ended_by_others(void **state)
{
	struct follow f = { .idle = 10, .was_ready = true };
	int fd = openat(root, "version", O_RDONLY), pipe_fds[2];

	(void)state;
	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(write(pipe_fds[1], "x", 1), 1);
	struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = pipe_fds[0], .events = POLLIN } };
	assert_int_equal(follow_wait(&f, p, 1, 2, false), 0);
	assert_int_equal(p[0].revents, 0);
	assert_int_equal(p[1].revents, POLLIN);
	/* Something moved: the tree is asked again. */
	assert_int_equal(follow_wait(&f, p, 1, 2, true), 0);
	assert_int_equal(p[0].revents, POLLIN);
	close(fd);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

struct lines {
	char got[256];
	const char *last; /* ends the reading */
};

static int on_line(void *arg, char *line, size_t len)
{
	struct lines *l = arg;

	assert_int_equal(strlen(line), len);
	strcat(strcat(l->got, line), "|");
	return l->last && !strcmp(line, l->last) ? 5 : 0;
}

static void test_lines(void **state)
{
	struct lines l = { 0 };
	int fd;

	(void)state;
	put_file(root, "lines", "one\n\nthree\nhalf");
	fd = openat(root, "lines", O_RDONLY);
	assert_int_equal(follow_lines(fd, false, on_line, &l), 0);
	assert_string_equal(l.got, "one||three|");
	close(fd);
	fd = openat(root, "lines", O_RDONLY);
	l = (struct lines){ .last = "one" };
	assert_int_equal(follow_lines(fd, true, on_line, &l), 5);
	assert_string_equal(l.got, "one|");
	close(fd);
	fd = openat(root, "run", O_RDONLY);
	assert_int_equal(follow_lines(fd, false, on_line, &l), -EISDIR);
	close(fd);
}

static void *append_later(void *arg)
{
	int fd = openat(root, "lines", O_WRONLY | O_APPEND);

	(void)arg;
	for (const char *p = "ha\nlf\nend\n"; *p; p++) {
		usleep(5000);
		if (write(fd, p, 1) != 1)
			break;
	}
	close(fd);
	return NULL;
}

static void test_lines_that_grow(void **state)
{
	struct lines l = { .last = "end" };
	pthread_t thread;
	int fd;

	(void)state;
	put_file(root, "lines", "one\n");
	fd = openat(root, "lines", O_RDONLY);
	assert_int_equal(pthread_create(&thread, NULL, append_later, NULL), 0);
	assert_int_equal(follow_lines(fd, true, on_line, &l), 5);
	assert_string_equal(l.got, "one|ha|lf|end|");
	pthread_join(thread, NULL);
	close(fd);
}

static void test_awaiting_a_status(void **state)
{
	struct sbx s;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(sbx_open(root, "a", &s, &e), 0);
	assert_int_equal(sbx_await(&s, "ready", 1000, &e), 0);
	assert_int_equal(sbx_await(&s, "stopped", 50, &e), -ETIMEDOUT);
	assert_non_null(strstr(e.msg, "still ready"));
	put_file(root, "run/a/status", "failed\n");
	put_file(root, "run/a/error", "sandbox a: no kernel\n");
	assert_int_equal(sbx_await(&s, "stopped", 1000, &e), -EIO);
	assert_string_equal(e.msg, "sandbox a: no kernel");
	unlinkat(root, "run/a/status", 0);
	assert_int_equal(sbx_await(&s, "stopped", 1000, &e), -ENOENT);
	sbx_close(&s);
}

/* A journal is put aside when it is long, and begun anew. */
static void *begin_anew(void *arg)
{
	int fd = openat(root, "lines", O_WRONLY);

	(void)arg;
	usleep(50000);
	if (ftruncate(fd, 2) < 0)
		abort();
	close(fd);
	return NULL;
}

static void test_lines_of_a_file_that_is_replaced(void **state)
{
	struct lines l = { .last = "never" };
	pthread_t thread;
	int fd;

	(void)state;
	put_file(root, "lines", "one\ntwo\n");
	fd = openat(root, "lines", O_RDONLY);
	assert_int_equal(pthread_create(&thread, NULL, begin_anew, NULL), 0);
	assert_int_equal(follow_lines(fd, true, on_line, &l), FOLLOW_REPLACED);
	assert_string_equal(l.got, "one|two|");
	pthread_join(thread, NULL);
	close(fd);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, enter, leave)

static int count_one(void *arg, int parent, const char *name)
{
	(void)parent;
	(void)name;
	++*(int *)arg;
	return 0;
}

/* Whoever may make sandboxes and not remove them would be left with each one of `crucible run`. */
static void test_no_lease_without_the_right_to_remove_EPERM(void **state)
{
	struct err e = { 0 };
	struct sbx s;
	int n = 0;

	(void)state;
	put_file(root, "policy.json", "{\"operations\":[\"create\",\"exec\",\"read\"]}\n");
	assert_int_equal(sbx_make(root, NULL, "run-", true, &s, &e), -EPERM);
	assert_non_null(strstr(e.msg, "does not permit \"delete\""));
	assert_int_equal(tree_list(root, "run", count_one, &n), 0);
	assert_int_equal(n, 1); /* of enter() */
	put_file(root, "policy.json", "{\"operations\":[\"create\",\"delete\"]}\n");
	assert_int_equal(sbx_make(root, NULL, "run-", true, &s, &e), -ENOENT); /* a plain directory has no lease */
	assert_false(permits_explain(root, POLICY_DELETE, "x", &e));
	assert_true(permits_explain(root, POLICY_READ, "x", &e));
	assert_non_null(strstr(e.msg, "x: the policy"));
	put_file(root, "policy.json", "garbage");
	assert_false(permits_explain(root, POLICY_READ, "x", &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_where_the_mount_is_looked_for),
		IN_TREE(test_a_mount_opens),
		IN_TREE(test_what_is_no_mount),
		IN_TREE(test_setup_names_the_mount_from_the_root_on),
		IN_TREE(test_words),
		IN_TREE(test_json),
		IN_TREE(test_words_of_a_refusal),
		IN_TREE(test_lists_are_sorted),
		cmocka_unit_test(test_ids),
		cmocka_unit_test(test_fresh_names_are_names_and_differ),
		IN_TREE(test_opening_a_sandbox),
		IN_TREE(test_setting_up),
		IN_TREE(test_making_and_removing),
		IN_TREE(test_waiting_for_a_file_that_cannot_tell),
		IN_TREE(test_waiting_is_ended_by_others),
		IN_TREE(test_lines),
		IN_TREE(test_lines_that_grow),
		IN_TREE(test_lines_of_a_file_that_is_replaced),
		IN_TREE(test_awaiting_a_status),
		cmocka_unit_test_setup_teardown(test_no_lease_without_the_right_to_remove_EPERM, enter, leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
