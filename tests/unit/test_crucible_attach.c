/* SPDX-License-Identifier: Apache-2.0 */
/* Being a command's standard streams: against a slot of plain files, with a thread as the guest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "tools/crucible/attach.h"

static char dir[64];
static struct slot slot;

static void put_file(const char *path, const char *text)
{
	int fd = openat(slot.dir, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0)
		abort();
	close(fd);
}

static void append(const char *path, const void *data, size_t len)
{
	int fd = openat(slot.dir, path, O_WRONLY | O_APPEND);

	if (fd < 0 || fd_write_all(fd, data, len) < 0)
		abort();
	close(fd);
}

static void end_with(const char *record)
{
	if (fd_replace(slot.dir, "result.json", record, strlen(record), 0644, false) < 0)
		abort();
}

static int enter(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test-crucible-attach.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	slot = (struct slot){ .exec = -1, .name = "s" };
	slot.dir = open(dir, O_RDONLY | O_DIRECTORY);
	slot.sbx = slot.dir;
	put_file("stdout", "");
	put_file("stderr", "");
	put_file("stdin", "");
	put_file("ctl", "");
	put_file("status", "running\n");
	return 0;
}

static int leave(void **state)
{
	char command[128];

	(void)state;
	close(slot.dir);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* Run with pipes for our standard output and error; what came through is in @out. */
struct result {
	int r, signal;
	struct record record;
	struct err err;
	char out[256], error[256];
};

static void run(struct result *res, int in, enum attach_signals signals)
{
	int out[2], error[2];
	struct attach a = { .in = in, .signals = signals };
	ssize_t n;

	*res = (struct result){ 0 };
	assert_int_equal(pipe(out), 0);
	assert_int_equal(pipe(error), 0);
	a.out = out[1];
	a.err = error[1];
	res->r = attach_run(&slot, &a, &res->record, &res->signal, &res->err);
	close(out[1]);
	close(error[1]);
	n = read(out[0], res->out, sizeof(res->out) - 1);
	assert_true(n >= 0);
	n = read(error[0], res->error, sizeof(res->error) - 1);
	assert_true(n >= 0);
	close(out[0]);
	close(error[0]);
}

static void assert_ctl(const char *expected)
{
	char *text;

	assert_int_equal(fd_slurp(slot.dir, "ctl", 4096, &text, NULL), 0);
	assert_string_equal(text, expected);
	free(text);
}

static void test_a_command_that_has_ended(void **state)
{
	struct result res;

	(void)state;
	put_file("stdout", "out\n");
	put_file("stderr", "err\n");
	end_with("{\"exit_code\":3}");
	run(&res, -1, ATTACH_KILL);
	assert_int_equal(res.r, 0);
	assert_int_equal(res.signal, 0);
	assert_int_equal(res.record.exit_code, 3);
	assert_string_equal(res.record.text, "{\"exit_code\":3}");
	assert_string_equal(res.out, "out\n");
	assert_string_equal(res.error, "err\n");
	assert_ctl("");
	record_fini(&res.record);
}

static void *print_slowly(void *arg)
{
	(void)arg;
	usleep(30000);
	append("stdout", "one ", 4);
	usleep(30000);
	append("stderr", "two", 3);
	append("stdout", "three", 5);
	end_with("{\"exit_code\":0}");
	return NULL;
}

static void test_output_that_comes_while_it_runs(void **state)
{
	struct result res;
	pthread_t guest;

	(void)state;
	assert_int_equal(pthread_create(&guest, NULL, print_slowly, NULL), 0);
	run(&res, -1, ATTACH_KILL);
	pthread_join(guest, NULL);
	assert_int_equal(res.r, 0);
	assert_string_equal(res.out, "one three");
	assert_string_equal(res.error, "two");
	record_fini(&res.record);
}

/* More than a pipe holds, with the end told before it was read. */
static void *read_slowly(void *arg)
{
	int fd = *(int *)arg;
	static char piece[30000];
	size_t sum = 0;
	ssize_t n;

	while ((n = read(fd, piece, sizeof(piece))) > 0) {
		for (ssize_t i = 0; i < n; i++, sum++) {
			if (piece[i] != (char)('a' + sum % 26))
				return NULL;
		}
		usleep(200);
	}
	return (void *)sum;
}

static void test_much_output_arrives_whole(void **state)
{
	const size_t len = 3 * 1024 * 1024 + 17;
	char *text = malloc(len);
	struct record rec;
	struct err e = { 0 };
	struct attach a = { .err = -1, .in = -1 };
	pthread_t reader;
	int fds[2], signo;
	void *got;

	(void)state;
	for (size_t i = 0; i < len; i++)
		text[i] = (char)('a' + i % 26);
	append("stdout", text, len);
	free(text);
	end_with("{\"exit_code\":0}");
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pthread_create(&reader, NULL, read_slowly, &fds[0]), 0);
	a.out = fds[1];
	assert_int_equal(attach_run(&slot, &a, &rec, &signo, &e), 0);
	close(fds[1]);
	pthread_join(reader, &got);
	assert_int_equal((size_t)got, len);
	close(fds[0]);
	record_fini(&rec);
}

static void *end_after_input(void *arg)
{
	struct stat st = { 0 };
	char *ctl = NULL;

	(void)arg;
	for (int i = 0; i < 500 && (!ctl || !strstr(ctl, "eof")); i++) {
		usleep(10000);
		free(ctl);
		if (fd_slurp(slot.dir, "ctl", 4096, &ctl, NULL) < 0 || fstatat(slot.dir, "stdin", &st, 0) < 0)
			abort();
	}
	free(ctl);
	end_with(st.st_size == 11 ? "{\"exit_code\":0}" : "{\"exit_code\":9}");
	return NULL;
}

static void test_input_and_its_end(void **state)
{
	struct result res;
	pthread_t guest;
	int fds[2];

	(void)state;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(fd_write_all(fds[1], "hello guest", 11), 0);
	close(fds[1]);
	assert_int_equal(pthread_create(&guest, NULL, end_after_input, NULL), 0);
	run(&res, fds[0], ATTACH_KILL);
	pthread_join(guest, NULL);
	assert_int_equal(res.record.exit_code, 0);
	assert_ctl("eof\n");
	record_fini(&res.record);
	close(fds[0]);
}

/* Somebody removes the sandbox while its command runs: the slot's files are not there any more. */
static void *remove_later(void *arg)
{
	(void)arg;
	usleep(30000);
	unlinkat(slot.dir, "status", 0);
	return NULL;
}

static void test_a_sandbox_that_is_removed(void **state)
{
	struct result res;
	pthread_t other;

	(void)state;
	assert_int_equal(pthread_create(&other, NULL, remove_later, NULL), 0);
	run(&res, -1, ATTACH_KILL);
	pthread_join(other, NULL);
	assert_int_equal(res.r, -ENOENT);
	assert_non_null(strstr(res.err.msg, "removed"));
	assert_null(res.record.text);
}

static void test_a_record_that_is_none(void **state)
{
	struct result res;

	(void)state;
	end_with("{}");
	run(&res, -1, ATTACH_KILL);
	assert_int_equal(res.r, -EINVAL);
	assert_int_equal(res.record.exit_code, -1);
}

/* A thread that has nothing blocked would take the process's signals, and die of them. */
static void block_all(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
}

static void *interrupt(void *arg)
{
	const int *times = arg;
	struct stat st = { 0 };

	usleep(50000);
	kill(getpid(), SIGINT);
	/* Two that are pending together are one: wait for the answer to the first. */
	while (*times == 2 && st.st_size == 0 && fstatat(slot.dir, "ctl", &st, 0) == 0)
		usleep(10000);
	if (*times == 2)
		kill(getpid(), SIGINT);
	return NULL;
}

static void test_an_interrupt_kills(void **state)
{
	int once = 1;
	struct result res;
	pthread_t other;
	sigset_t old;

	(void)state;
	block_all(&old);
	assert_int_equal(pthread_create(&other, NULL, interrupt, &once), 0);
	run(&res, -1, ATTACH_KILL);
	pthread_join(other, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	assert_int_equal(res.r, 0);
	assert_int_equal(res.signal, SIGINT);
	assert_ctl("kill\n");
	record_fini(&res.record);
}

static void test_a_first_interrupt_is_passed_on(void **state)
{
	int twice = 2;
	struct result res;
	pthread_t other;
	sigset_t old;

	(void)state;
	block_all(&old);
	assert_int_equal(pthread_create(&other, NULL, interrupt, &twice), 0);
	run(&res, -1, ATTACH_FORWARD);
	pthread_join(other, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	assert_int_equal(res.signal, SIGINT);
	/* A plain file is overwritten from its beginning: the second word stands over the first. */
	assert_ctl("kill\nl SIGINT\n");
	record_fini(&res.record);
}

static void test_a_reader_that_has_gone(void **state)
{
	struct attach a = { .err = -1, .in = -1 };
	struct record rec;
	struct err e = { 0 };
	int fds[2], signo;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	put_file("stdout", "nobody reads this");
	assert_int_equal(pipe(fds), 0);
	close(fds[0]);
	a.out = fds[1];
	assert_int_equal(attach_run(&slot, &a, &rec, &signo, &e), -EPIPE);
	assert_ctl("kill\n");
	record_fini(&rec);
	close(fds[1]);
}

/* Nobody reads and the pipe is full: a signal gets through all the same. */
static void test_an_interrupt_with_a_full_pipe(void **state)
{
	static char filler[256 * 1024];
	struct attach a = { .err = -1, .in = -1, .signals = ATTACH_KILL };
	struct record rec;
	struct err e = { 0 };
	int fds[2], signo, once = 1;
	pthread_t other;
	sigset_t old;

	(void)state;
	append("stdout", filler, sizeof(filler));
	assert_int_equal(pipe(fds), 0);
	a.out = fds[1];
	block_all(&old);
	assert_int_equal(pthread_create(&other, NULL, interrupt, &once), 0);
	assert_int_equal(attach_run(&slot, &a, &rec, &signo, &e), 0);
	assert_int_equal(signo, SIGINT);
	pthread_join(other, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	record_fini(&rec);
	close(fds[0]);
	close(fds[1]);
}

#define WITH_SLOT(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_SLOT(test_a_command_that_has_ended),  WITH_SLOT(test_output_that_comes_while_it_runs),
		WITH_SLOT(test_much_output_arrives_whole), WITH_SLOT(test_input_and_its_end),
		WITH_SLOT(test_a_sandbox_that_is_removed), WITH_SLOT(test_a_record_that_is_none),
		WITH_SLOT(test_an_interrupt_kills),	   WITH_SLOT(test_a_first_interrupt_is_passed_on),
		WITH_SLOT(test_a_reader_that_has_gone),	   WITH_SLOT(test_an_interrupt_with_a_full_pipe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
