/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot create, ls, inspect, diff, verify, rm; fork; store stat, verify, gc; lineage: against a tree of plain files.
 * Where a daemon would act on a write, a thread does. */
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
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/files.h"
#include "tools/crucible/command.h"
#include "tools/crucible/lineage.h"
#include "tools/crucible/snapshot.h"
#include "tools/crucible/watch.h"

static char dir[64];
static int root;

static void make_sandbox(const char *name, const char *info)
{
	char path[128];

	snprintf(path, sizeof(path), "run/%s", name);
	mkdirat(root, path, 0755);
	snprintf(path, sizeof(path), "run/%s/status", name);
	put_file(root, path, "ready\n");
	snprintf(path, sizeof(path), "run/%s/snapshot", name);
	put_file(root, path, "");
	snprintf(path, sizeof(path), "run/%s/ctl", name);
	put_file(root, path, "");
	snprintf(path, sizeof(path), "run/%s/error", name);
	put_file(root, path, "\n");
	snprintf(path, sizeof(path), "run/%s/info.json", name);
	if (info)
		put_file(root, path, info);
}

static void make_snapshot(const char *name, const char *info)
{
	static const char *const files[] = { "fork", "verify", "diff" };
	char path[128];

	snprintf(path, sizeof(path), "snapshots/%s", name);
	mkdirat(root, path, 0755);
	snprintf(path, sizeof(path), "snapshots/%s/forks", name);
	mkdirat(root, path, 0755);
	snprintf(path, sizeof(path), "snapshots/%s/status", name);
	put_file(root, path, "ready\n");
	snprintf(path, sizeof(path), "snapshots/%s/error", name);
	put_file(root, path, "\n");
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof(path), "snapshots/%s/%s", name, files[i]);
		put_file(root, path, "");
	}
	snprintf(path, sizeof(path), "snapshots/%s/info.json", name);
	if (info)
		put_file(root, path, info);
}

static int enter(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test-crucible-snapshot.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	root = open(dir, O_RDONLY | O_DIRECTORY);
	mkdirat(root, "run", 0755);
	mkdirat(root, "snapshots", 0755);
	mkdirat(root, "store", 0755);
	put_file(root, "events.jsonl", "");
	make_sandbox(
		"a",
		"{\"id\":\"a\",\"uuid\":\"ua\",\"from\":\"profile:tiny\",\"parent\":\"s\",\"parent_uuid\":\"us\"}");
	make_snapshot("s", "{\"id\":\"s\",\"uuid\":\"us\",\"source\":\"a\",\"parent\":\"profile:tiny\",\"forks\":2,"
			   "\"created\":\"2020-01-01T00:00:00.000Z\",\"sizes\":{\"unique_bytes\":2097152}}");
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

/* -- running a command as main.c does --------------------------------------------------------------------------- */

struct result {
	int r;
	char *out; /* malloc'd */
	struct err err;
};

static void run_words(struct result *res, int n, char **words)
{
	struct cli c = { .mount = { .fd = root, .path = dir } };
	int used, saved, fd = openat(root, "stdout", O_RDWR | O_CREAT | O_TRUNC, 0600);

	*res = (struct result){ 0 };
	assert_true(fd >= 0);
	args_init(&c.args);
	c.cmd = command_find(n, words, &used);
	assert_non_null(c.cmd);
	res->r = args_parse(&c.args, c.cmd->opts, n - used, words + used, false, NULL, &c.err);
	assert_int_equal(res->r, 0);
	assert_in_range(c.args.nwords, c.cmd->min, c.cmd->max);
	c.json = c.args.text[OPT_OUTPUT] && !strcmp(c.args.text[OPT_OUTPUT], "json");
	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	dup2(fd, STDOUT_FILENO);
	res->r = c.cmd->run(&c);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(fd);
	args_fini(&c.args);
	res->err = c.err;
	assert_int_equal(fd_slurp(root, "stdout", 1 << 20, &res->out, NULL), 0);
}
#define RUN(res, ...) \
	run_words(res, (int)ARRAY_LEN(((const char *[]){ __VA_ARGS__ })), (char **)(const char *[]){ __VA_ARGS__ })

static void assert_prints(struct result *res, const char *expected)
{
	if (res->r != 0)
		fail_msg("%d: %s", res->r, res->err.msg);
	assert_string_equal(res->out, expected);
	free(res->out);
}

static void assert_refused(struct result *res, int code, const char *part)
{
	assert_string_equal(res->out, "");
	assert_int_equal(res->r, code);
	if (!strstr(res->err.msg, part))
		fail_msg("\"%s\" lacks \"%s\"", res->err.msg, part);
	free(res->out);
}

/* -- a daemon's part: a control file is a full FIFO, so that the write into it waits until what it reads as stands
 * there */

struct act {
	const char *file;
	const char *then[3];	  /* what it reads as, one after another, the first when the write returns; NULL ends */
	const char *other, *text; /* a file put before the last of them, or NULL */
};

struct stage {
	const struct act *act;
	int fifo, notify;
	pthread_t thread;
};

static void replace(const char *path, const char *text)
{
	if (fd_replace(root, path, text, strlen(text), 0644, false) < 0)
		abort();
}

static void *act(void *arg)
{
	struct stage *st = arg;
	const struct act *x = st->act;
	char event[512], got[4096 + 16];
	int events = openat(root, "events.jsonl", O_WRONLY | O_APPEND);

	if (read(st->notify, event, sizeof(event)) <= 0) /* it has been opened */
		abort();
	for (size_t i = 0; i < ARRAY_LEN(x->then) && x->then[i]; i++) {
		bool last = i + 1 == ARRAY_LEN(x->then) || !x->then[i + 1];

		if (last && x->other)
			replace(x->other, x->text);
		replace(x->file, x->then[i]);
		if (write(events, "{}\n", 3) != 3)
			abort();
		/* Now the write may return: it was "start". */
		if (i == 0 && (fd_read_all(st->fifo, got, 4096 + 6) < 0 || memcmp(got + 4096, "start\n", 6) != 0))
			abort();
		usleep(2000);
	}
	close(events);
	return NULL;
}

static void begin(struct stage *st, const struct act *x)
{
	static const char fill[4096];
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, x->file);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	*st = (struct stage){ .act = x, .fifo = open(path, O_RDWR), .notify = inotify_init1(IN_CLOEXEC) };
	assert_true(st->fifo >= 0 && st->notify >= 0);
	assert_int_equal(fcntl(st->fifo, F_SETPIPE_SZ, 4096), 4096);
	assert_int_equal(write(st->fifo, fill, sizeof(fill)), sizeof(fill));
	assert_true(inotify_add_watch(st->notify, path, IN_OPEN) >= 0);
	assert_int_equal(pthread_create(&st->thread, NULL, act, st), 0);
}

static void end(struct stage *st)
{
	pthread_join(st->thread, NULL);
	close(st->fifo);
	close(st->notify);
}

/* -- snapshots ----------------------------------------------------------------------------------------------------- */

static void test_names(void **state)
{
	char longest[SNAPSHOT_ID_MAX + 2];

	(void)state;
	memset(longest, 'a', sizeof(longest) - 1);
	longest[SNAPSHOT_ID_MAX + 1] = '\0';
	assert_int_equal(snapshot_id_check(longest, NULL), -ENAMETOOLONG);
	longest[SNAPSHOT_ID_MAX] = '\0';
	assert_int_equal(snapshot_id_check(longest, NULL), 0);
	assert_int_equal(snapshot_id_check("", NULL), -EINVAL);
	assert_int_equal(snapshot_id_check("../s", NULL), -EINVAL);
}

static void test_opening(void **state)
{
	struct snapshot s;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(snapshot_open(root, "s", &s, &e), 0);
	assert_string_equal(s.id, "s");
	snapshot_close(&s);
	assert_int_equal(s.dir, -1);
	assert_int_equal(snapshot_open(root, "none", &s, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "no snapshot \"none\""));
	assert_int_equal(snapshot_open(root, "a/b", &s, &e), -EINVAL);
	put_file(root, "snapshots/file", "");
	assert_int_equal(snapshot_open(root, "file", &s, &e), -ENOENT);
	assert_int_equal(symlinkat("s", root, "snapshots/link"), 0);
	assert_int_equal(snapshot_open(root, "link", &s, &e), -ENOENT);
}

static void test_create_writes_the_name(void **state)
{
	struct result res;
	char *name, *newline;

	(void)state;
	RUN(&res, "snapshot", "create", "a", "s");
	assert_prints(&res, "s\n");
	assert_file(root, "run/a/snapshot", "s\n");
	RUN(&res, "snapshot", "create", "a", "s", "--wait", "-o", "json");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "\"id\":\"s\""));
	free(res.out);
	/* Without a name one is made up. */
	RUN(&res, "snapshot", "create", "a");
	assert_int_equal(res.r, 0);
	assert_int_equal(fd_slurp(root, "run/a/snapshot", 256, &name, NULL), 0);
	assert_string_equal(res.out, name);
	newline = strchr(name, '\n');
	assert_non_null(newline);
	*newline = '\0';
	assert_int_equal(snapshot_id_check(name, NULL), 0);
	free(name);
	free(res.out);
}

static void test_create_is_refused(void **state)
{
	struct result res;

	(void)state;
	RUN(&res, "snapshot", "create", "none", "s");
	assert_refused(&res, -ENOENT, "no sandbox \"none\"");
	RUN(&res, "snapshot", "create", "a", "a b");
	assert_refused(&res, -EINVAL, "is no name");
	unlinkat(root, "run/a/snapshot", 0);
	RUN(&res, "snapshot", "create", "a", "s2");
	assert_refused(&res, -ENOENT, "snapshot");
}

static void *become_ready(void *arg)
{
	const char *status = arg;
	int events = openat(root, "events.jsonl", O_WRONLY | O_APPEND);

	usleep(20000);
	fd_replace(root, "snapshots/s/status", status, strlen(status), 0644, false);
	if (write(events, "{}\n", 3) != 3)
		abort();
	close(events);
	return NULL;
}

static void test_waiting_until_it_is_stored(void **state)
{
	struct snapshot s;
	struct err e = { 0 };
	pthread_t t;

	(void)state;
	assert_int_equal(snapshot_open(root, "s", &s, &e), 0);
	put_file(root, "snapshots/s/status", "storing\n");
	assert_int_equal(pthread_create(&t, NULL, become_ready, (void *)"ready\n"), 0);
	assert_int_equal(snapshot_await_ready(root, &s, &e), 0);
	pthread_join(t, NULL);
	put_file(root, "snapshots/s/status", "storing\n");
	put_file(root, "snapshots/s/error", "snapshot s: storing: no space\n");
	assert_int_equal(pthread_create(&t, NULL, become_ready, (void *)"damaged\n"), 0);
	assert_int_equal(snapshot_await_ready(root, &s, &e), -EBADMSG);
	assert_string_equal(e.msg, "snapshot s: storing: no space");
	pthread_join(t, NULL);
	unlinkat(root, "snapshots/s/status", 0);
	assert_int_equal(snapshot_await_ready(root, &s, &e), -ENOENT);
	snapshot_close(&s);
}

/* @arg: the other side of the terminal. */
static void *become_ready_once_drawn(void *arg)
{
	char drawn[512] = "";

	for (size_t n = 0; !strstr(drawn, "25% storing s");) {
		ssize_t more = read(*(int *)arg, drawn + n, sizeof(drawn) - 1 - n);

		if (more <= 0)
			abort();
		n += (size_t)more;
	}
	return become_ready((void *)"ready\n");
}

/* On a terminal it shows how far the store is. */
static void test_await_on_a_terminal(void **state)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), terminal, saved = dup(STDERR_FILENO);
	struct snapshot s;
	struct err e = { 0 };
	pthread_t t;

	(void)state;
	assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
	assert_true(terminal >= 0);
	assert_int_equal(snapshot_open(root, "s", &s, &e), 0);
	put_file(root, "snapshots/s/status", "storing\n");
	put_file(root, "snapshots/s/info.json", "{\"id\":\"s\",\"progress\":{\"done\":1,\"total\":4}}");
	assert_int_equal(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
	assert_int_equal(pthread_create(&t, NULL, become_ready_once_drawn, &master), 0);
	assert_int_equal(snapshot_await_ready(root, &s, &e), 0);
	pthread_join(t, NULL);
	assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	snapshot_close(&s);
	close(saved);
	close(terminal);
	close(master);
}

static void test_ls(void **state)
{
	struct result res;

	(void)state;
	make_snapshot("other", NULL); /* somebody else's: a name and a status */
	RUN(&res, "snapshot", "ls");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "ID     STATUS  SOURCE  PARENT        FORKS  UNIQUE  OWNER  AGE\n"));
	assert_non_null(strstr(res.out, "\ns      ready   a       profile:tiny  2      2.0M    "));
	assert_non_null(strstr(res.out, "\nother  ready   -       -             -      -       "));
	free(res.out);
	RUN(&res, "snapshot", "ls", "-o", "json");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "{\"id\":\"other\",\"status\":\"ready\"}"));
	assert_non_null(strstr(res.out, "\"uuid\":\"us\""));
	free(res.out);
}

static void test_inspect(void **state)
{
	struct result res;

	(void)state;
	put_file(root, "snapshots/s/verify", "{\"status\":\"ok\",\"pages\":7}\n");
	assert_int_equal(symlinkat("../../../run/b", root, "snapshots/s/forks/b"), 0);
	RUN(&res, "snapshot", "inspect", "s", "-o", "json");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "\"status\":\"ready\""));
	assert_non_null(strstr(res.out, "\"fork_names\":[\"b\"]"));
	assert_non_null(strstr(res.out, "\"verify\":{\"status\":\"ok\",\"pages\":7}"));
	free(res.out);
	RUN(&res, "snapshot", "inspect", "s");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "sizes.unique_bytes           2097152\n"));
	free(res.out);
	RUN(&res, "snapshot", "inspect", "none");
	assert_refused(&res, -ENOENT, "no snapshot");
	unlinkat(root, "snapshots/s/info.json", 0);
	RUN(&res, "snapshot", "inspect", "s");
	assert_refused(&res, -ENOENT, "snapshot \"s\": info.json");
	/* A sandbox: the same, with what it has besides. */
	assert_int_equal(mkdirat(root, "run/a/limits", 0755), 0);
	put_file(root, "run/a/status", "ready\n");
	put_file(root, "run/a/error", "\n");
	put_file(root, "run/a/limits/vcpus", "2\n");
	put_file(root, "run/a/limits/timeout_s", "none\n");
	put_file(root, "run/a/usage.json", "{\"cpu_ms\":5}\n");
	RUN(&res, "sandbox", "inspect", "a", "-o", "json");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "\"parent\":\"s\""));
	assert_non_null(strstr(res.out, "\"status\":\"ready\",\"error\":\"\""));
	assert_non_null(strstr(res.out, "\"vcpus\":2"));
	assert_non_null(strstr(res.out, "\"timeout_s\":\"none\""));
	assert_non_null(strstr(res.out, "\"usage\":{\"cpu_ms\":5}"));
	free(res.out);
	unlinkat(root, "run/a/usage.json", 0);
	RUN(&res, "sandbox", "inspect", "a");
	assert_int_equal(res.r, 0);
	assert_null(strstr(res.out, "usage"));
	assert_non_null(strstr(res.out, "limits.vcpus"));
	free(res.out);
	unlinkat(root, "run/a/status", 0);
	RUN(&res, "sandbox", "inspect", "a");
	assert_refused(&res, -ENOENT, "sandbox \"a\": ");
}

static void test_diff_that_is_there(void **state)
{
	struct result res;

	(void)state;
	put_file(root, "snapshots/s/diff.json",
		 "{\"parent\":\"profile:tiny\",\"added\":[\"/a\\nM /etc/passwd\",\"/b\"],"
		 "\"changed\":[\"/c\"],\"deleted\":[\"/d\\u001b[2J\"],\"truncated\":false}");
	RUN(&res, "snapshot", "diff", "s");
	assert_prints(&res, "A /a?M /etc/passwd\nA /b\nM /c\nD /d?[2J\n");
	assert_file(root, "snapshots/s/diff", ""); /* not asked for again */
	RUN(&res, "snapshot", "diff", "s", "-o", "json");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "\"/a\\nM /etc/passwd\""));
	free(res.out);
	put_file(root, "snapshots/s/diff.json", "{\"added\":3}");
	RUN(&res, "snapshot", "diff", "s");
	assert_refused(&res, -EINVAL, "added");
}

static void test_diff_is_made(void **state)
{
	static const struct act done = { .file = "snapshots/s/diff",
					 .then = { "running\n", "done\n" },
					 .other = "snapshots/s/diff.json",
					 .text = "{\"added\":[\"/x\"]}" };
	static const struct act failed = { .file = "snapshots/s/diff",
					   .then = { "running\n", "failed\n" },
					   .other = "snapshots/s/error",
					   .text = "snapshot s: diff: its parent is gone\n" };
	struct result res;
	struct stage st;

	(void)state;
	begin(&st, &done);
	RUN(&res, "snapshot", "diff", "s");
	end(&st);
	assert_prints(&res, "A /x\n");
	unlinkat(root, "snapshots/s/diff.json", 0);
	begin(&st, &failed);
	RUN(&res, "snapshot", "diff", "s");
	end(&st);
	assert_refused(&res, -EIO, "its parent is gone");
}

static void test_verify(void **state)
{
	static const struct act ok = { .file = "snapshots/s/verify",
				       .then = { "{\"status\":\"running\",\"done\":1,\"total\":2}\n",
						 "{\"status\":\"ok\",\"pages\":12}\n" } };
	static const struct act bad = { .file = "snapshots/s/verify",
					.then = { "", "{\"status\":\"running\"}\n",
						  "{\"status\":\"damaged\",\"pages\":12,\"damaged\":1,"
						  "\"first\":\"pack 7: digest differs\"}\n" } };
	struct result res;
	struct stage st;

	(void)state;
	begin(&st, &ok);
	RUN(&res, "snapshot", "verify", "s");
	end(&st);
	assert_prints(&res, "s: ok, 12 pages\n");
	begin(&st, &bad);
	RUN(&res, "snapshot", "verify", "s");
	end(&st);
	assert_refused(&res, -EBADMSG, "1 of 12 pages: pack 7: digest differs");
	unlinkat(root, "snapshots/s/verify", 0);
	RUN(&res, "snapshot", "verify", "s");
	assert_refused(&res, -ENOENT, "verify");
}

static void test_an_outcome_without_a_status_is_none(void **state)
{
	static const struct act odd = { .file = "snapshots/s/verify", .then = { "{\"pages\":12}\n" } };
	struct result res;
	struct stage st;

	(void)state;
	begin(&st, &odd);
	RUN(&res, "snapshot", "verify", "s");
	end(&st);
	assert_refused(&res, -EIO, "tells no status");
}

static void test_rm(void **state)
{
	struct result res;

	(void)state;
	mkdirat(root, "snapshots/empty", 0755); /* a plain directory must be empty; the tree's need not */
	RUN(&res, "snapshot", "rm", "empty", "-o", "json");
	assert_prints(&res, "[\"empty\"]\n");
	assert_int_equal(faccessat(root, "snapshots/empty", F_OK, 0), -1);
	RUN(&res, "snapshot", "rm", "empty");
	assert_refused(&res, -ENOENT, "no snapshot \"empty\"");
	RUN(&res, "snapshot", "rm", "--force", "empty");
	assert_prints(&res, "");
	RUN(&res, "snapshot", "rm", "../run");
	assert_refused(&res, -EINVAL, "is no name");
	mkdirat(root, "snapshots/last", 0755);
	RUN(&res, "snapshot", "rm", "none", "last"); /* the others are done */
	assert_refused(&res, -ENOENT, "none");
	assert_int_equal(faccessat(root, "snapshots/last", F_OK, 0), -1);
}

/* -- forks --------------------------------------------------------------------------------------------------------- */

static void test_forks_take_the_next_free_numbers(void **state)
{
	struct result res;

	(void)state;
	RUN(&res, "fork", "s");
	assert_prints(&res, "s-1\n");
	assert_file(root, "snapshots/s/fork", "s-1\n");
	make_sandbox("s-1", NULL);
	make_sandbox("s-3", NULL);
	make_sandbox("s-02", NULL);
	make_sandbox("s-999999999999999999999", NULL);
	make_sandbox("s-x", NULL);
	make_sandbox("s-9x", NULL);
	make_sandbox("t-7", NULL);
	put_file(root, "snapshots/s/fork", "");
	RUN(&res, "fork", "s", "--count", "3");
	assert_prints(&res, "s-2\ns-4\ns-5\n");
	assert_file(root, "snapshots/s/fork", "s-2\ns-4\ns-5\n");
}

static void test_forks_by_name(void **state)
{
	struct result res;

	(void)state;
	make_sandbox("b", "{\"id\":\"b\"}");
	make_sandbox("c", "{\"id\":\"c\"}");
	RUN(&res, "fork", "s", "--name", "b", "--name", "c", "-o", "json");
	assert_prints(&res, "[{\"id\":\"b\"},{\"id\":\"c\"}]\n");
	assert_file(root, "snapshots/s/fork", "b\nc\n");
}

static void test_forks_are_refused(void **state)
{
	struct result res;

	(void)state;
	RUN(&res, "fork", "s", "--count", "0");
	assert_refused(&res, -EINVAL, "from 1 to 256");
	RUN(&res, "fork", "s", "--count", "257");
	assert_refused(&res, -EINVAL, "from 1 to 256");
	RUN(&res, "fork", "s", "--count", "2", "--name", "x");
	assert_refused(&res, -EINVAL, "leave --count out");
	RUN(&res, "fork", "s", "--name", "a b");
	assert_refused(&res, -EINVAL, "is no name");
	RUN(&res, "fork", "none");
	assert_refused(&res, -ENOENT, "no snapshot \"none\"");
	assert_file(root, "snapshots/s/fork", "");
	unlinkat(root, "snapshots/s/fork", 0);
	mkdirat(root, "snapshots/s/fork", 0755); /* EISDIR stands for any refusal */
	RUN(&res, "fork", "s");
	assert_refused(&res, -EISDIR, "fork");
}

static void test_a_fork_of_the_disk_alone(void **state)
{
	struct result res;

	(void)state;
	RUN(&res, "fork", "s", "--disk-only", "--name", "x", "--name", "y");
	assert_prints(&res, "x\ny\n");
	assert_file(root, "snapshots/s/fork", "--disk-only\nx\ny\n");
}

/* -- lineage ------------------------------------------------------------------------------------------------------- */

static void test_tree(void **state)
{
	struct result res;

	(void)state;
	make_snapshot("s", "{\"uuid\":\"us\",\"parent\":\"profile:tiny\",\"sizes\":{\"unique_bytes\":2097152}}");
	make_snapshot("t", "{\"uuid\":\"ut\",\"parent\":\"s\",\"parent_uuid\":\"us\"}");
	make_snapshot("late", "{\"uuid\":\"ul\",\"parent\":\"t\",\"parent_uuid\":\"gone\"}"); /* an older "t" */
	make_sandbox("t-1", "{\"uuid\":\"u1\",\"from\":\"snapshot:t\",\"parent\":\"\"}");
	make_sandbox("fresh", "{\"uuid\":\"uf\",\"from\":\"profile:python\"}");
	make_sandbox("others", NULL);
	RUN(&res, "snapshot", "ls", "--tree");
	assert_prints(&res, "NAME          KIND      STATUS  UNIQUE  AGE\n"
			    "others        sandbox   ready   -       -\n"
			    "t             removed   -       -       -\n"
			    "└─ late       snapshot  ready   -       -\n"
			    "tiny          profile   -       -       -\n"
			    "└─ s          snapshot  ready   2.0M    -\n"
			    "   ├─ t       snapshot  ready   -       -\n"
			    "   │  └─ t-1  sandbox   ready   -       -\n"
			    "   └─ a       sandbox   ready   -       -\n"
			    "python        profile   -       -       -\n"
			    "└─ fresh      sandbox   ready   -       -\n");
	RUN(&res, "snapshot", "ls", "--tree", "-o", "json");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "{\"name\":\"t\",\"kind\":\"snapshot\",\"status\":\"ready\",\"uuid\":\"ut\","
					"\"children\":[{\"name\":\"t-1\",\"kind\":\"sandbox\""));
	free(res.out);
}

/* What cannot be must not hang. */
static void test_a_loop_in_the_lineage_is_cut(void **state)
{
	struct lineage l;
	struct err e = { 0 };
	struct json_object *o;
	size_t roots = 0;

	(void)state;
	make_snapshot("x", "{\"uuid\":\"ux\",\"parent\":\"y\",\"parent_uuid\":\"uy\"}");
	make_snapshot("y", "{\"uuid\":\"uy\",\"parent\":\"x\",\"parent_uuid\":\"ux\"}");
	make_snapshot("z", "{\"uuid\":\"uz\",\"parent\":\"z\",\"parent_uuid\":\"uz\"}");
	assert_int_equal(lineage_read(root, &l, &e), 0);
	o = lineage_json(&l);
	assert_non_null(o);
	json_object_put(o);
	for (size_t i = 0; i < l.n; i++)
		roots += l.nodes[i].parent == LINEAGE_NONE;
	assert_int_equal(roots, 3); /* tiny, x or y, z */
	lineage_fini(&l);
	assert_int_equal(renameat(root, "snapshots", root, "away"), 0);
	assert_int_equal(lineage_read(root, &l, &e), -ENOENT);
	lineage_fini(&l);
	assert_non_null(strstr(e.msg, "snapshots"));
}

/* -- the store ----------------------------------------------------------------------------------------------------- */

static void test_store_stat(void **state)
{
	struct result res;

	(void)state;
	RUN(&res, "store", "stat");
	assert_refused(&res, -ENOENT, "stat.json");
	put_file(root, "store/stat.json", "{}\n");
	RUN(&res, "store", "stat");
	assert_refused(&res, -ETIMEDOUT, "does not answer");
	put_file(root, "store/stat.json",
		 "{\"snapshots\":3,\"packs\":2,\"pages\":100,\"bytes_packs\":2097152,\"bytes_index\":512,"
		 "\"bytes_logical\":1073741824}\n");
	RUN(&res, "store", "stat");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "in pack files                2.0M\n"));
	assert_non_null(strstr(res.out, "snapshots                    3\n"));
	free(res.out);
	RUN(&res, "store", "stat", "-o", "json");
	assert_int_equal(res.r, 0);
	assert_non_null(strstr(res.out, "\"bytes_packs\":2097152"));
	free(res.out);
}

static void test_store_verify_and_gc(void **state)
{
	static const struct act verify = {
		.file = "store/verify", .then = { "{\"status\":\"running\"}\n", "{\"status\":\"ok\",\"pages\":3}\n" }
	};
	static const struct act damaged = {
		.file = "store/verify",
		.then = { "{\"status\":\"damaged\",\"pages\":3,\"damaged\":2,\"first\":\"x\"}\n" }
	};
	static const struct act gc = { .file = "store/gc",
				       .then = { "{\"status\":\"running\",\"done\":5,\"total\":10}\n",
						 "{\"status\":\"ok\",\"bytes_before\":2048,\"bytes_after\":1024,"
						 "\"pages_dropped\":4}\n" } };
	static const struct act full = { .file = "store/gc",
					 .then = { "{\"status\":\"failed\",\"error\":\"no space\"}\n" } };
	struct result res;
	struct stage st;

	(void)state;
	put_file(root, "store/verify", "");
	begin(&st, &verify);
	RUN(&res, "store", "verify");
	end(&st);
	assert_prints(&res, "ok, 3 pages\n");
	begin(&st, &damaged);
	RUN(&res, "store", "verify");
	end(&st);
	assert_refused(&res, -EBADMSG, "2 of 3 pages: x");
	begin(&st, &gc);
	RUN(&res, "store", "gc");
	end(&st);
	assert_prints(&res, "2.0K before, 1.0K now, 4 pages dropped\n");
	begin(&st, &full);
	RUN(&res, "store", "gc");
	end(&st);
	assert_refused(&res, -EIO, "no space");
	renameat(root, "store", root, "shop");
	RUN(&res, "store", "gc");
	assert_refused(&res, -ENOENT, "store");
}

/* A tree without events still gets there, by looking. */
static void test_watching_without_events(void **state)
{
	struct watch w;
	struct err e = { 0 };

	(void)state;
	unlinkat(root, "events.jsonl", 0);
	watch_begin(root, &w);
	assert_int_equal(w.events, -1);
	assert_int_equal(watch_wait(&w, &e), 0);
	watch_end(&w);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, enter, leave)
	const struct CMUnitTest tests[] = {
		TEST(test_names),
		TEST(test_opening),
		TEST(test_create_writes_the_name),
		TEST(test_create_is_refused),
		TEST(test_waiting_until_it_is_stored),
		TEST(test_ls),
		TEST(test_await_on_a_terminal),
		TEST(test_inspect),
		TEST(test_diff_that_is_there),
		TEST(test_diff_is_made),
		TEST(test_verify),
		TEST(test_an_outcome_without_a_status_is_none),
		TEST(test_rm),
		TEST(test_forks_take_the_next_free_numbers),
		TEST(test_forks_by_name),
		TEST(test_forks_are_refused),
		TEST(test_a_fork_of_the_disk_alone),
		TEST(test_tree),
		TEST(test_a_loop_in_the_lineage_is_cut),
		TEST(test_store_stat),
		TEST(test_store_verify_and_gc),
		TEST(test_watching_without_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
