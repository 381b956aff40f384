/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU as an engine: the calls over its monitor, against a fake and against the real one. Its command line:
 * test_machine.c. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/proc.h"
#include "vmm/engine.h"

/* -- the calls --------------------------------------------------------------------------------- */

#define NO_ANNOUNCEMENTS "{\"announce-rounds\":0}"

struct fix {
	struct loop *loop;
	struct engine *engine;
	int far;
	char events[512]; /* numbers and words of what came */
	int up, gone, done, code;
	char words[320];
	bool free_in_event;
};

static void on_event(void *arg, enum engine_event ev, const char *detail)
{
	struct fix *f = arg;

	snprintf(f->events + strlen(f->events), sizeof(f->events) - strlen(f->events), "%d:%s;", ev, detail);
	f->up += ev == ENGINE_EV_UP;
	f->gone += ev == ENGINE_EV_GONE;
	if (f->free_in_event)
		f->engine = engine_qemu.free(f->engine);
}

static void on_done(void *arg, int code, const struct err *e)
{
	struct fix *f = arg;

	f->done++;
	f->code = code;
	snprintf(f->words, sizeof(f->words), "%s", e ? e->msg : "");
}

static void until(struct fix *f, const int *n, int want)
{
	uint64_t end = now_ns() + 20000000000ull;

	while (*n < want && now_ns() < end)
		assert_int_equal(loop_once(f->loop, 50), 0);
	assert_true(*n >= want);
}

static void connect_to(struct fix *f, int fd, bool is_generic)
{
	static const struct engine_events events = { .on_event = on_event };
	struct err e = { 0 };

	assert_int_equal(engine_qemu.connect(f->loop, fd, is_generic, &events, f, &f->engine, &e), 0);
}

static struct fix *fake_of(bool is_generic)
{
	struct fix *f = calloc(1, sizeof(*f));
	int pair[2];

	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	f->far = pair[1];
	connect_to(f, pair[0], is_generic);
	return f;
}

static struct fix *fake(void)
{
	return fake_of(false);
}

static void say(struct fix *f, const char *text)
{
	assert_int_equal(send(f->far, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The next command's name, and its id for the answer. */
static unsigned long long hear(struct fix *f, const char *want)
{
	char text[4096];
	uint64_t end = now_ns() + 5000000000ull;
	ssize_t n = -1;

	while (n < 0 && now_ns() < end) {
		loop_once(f->loop, 1);
		n = recv(f->far, text, sizeof(text) - 1, MSG_DONTWAIT);
	}
	assert_true(n > 0);
	text[n] = '\0';
	if (!strstr(text, want))
		fail_msg("%s, not %s", text, want);
	return strtoull(strstr(text, "\"id\":") + 5, NULL, 10);
}

static void answer(struct fix *f, unsigned long long id, const char *what)
{
	char text[256];

	snprintf(text, sizeof(text), "{%s,\"id\":%llu}\n", what, id);
	say(f, text);
}

static struct fix *fake_up_of(bool is_generic)
{
	struct fix *f = fake_of(is_generic);

	say(f, "{\"QMP\":{}}\n");
	answer(f, hear(f, "qmp_capabilities"), "\"return\":{}");
	until(f, &f->up, 1);
	f->events[0] = '\0';
	return f;
}

static struct fix *fake_up(void)
{
	return fake_up_of(false);
}

static void over(struct fix *f)
{
	f->engine = engine_qemu.free(f->engine);
	assert_null(engine_qemu.free(NULL));
	fd_close(&f->far);
	loop_free(f->loop);
	free(f);
}

static void test_states(void **state)
{
	struct fix *f = fake();

	(void)state;
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), -EBUSY); /* connecting */
	say(f, "{\"QMP\":{}}\n");
	answer(f, hear(f, "qmp_capabilities"), "\"return\":{}");
	until(f, &f->up, 1);
	assert_int_equal(engine_qemu.resume(f->engine, 1000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.save(f->engine, 0, 1000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), 0);
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), -EBUSY); /* one at a time */
	say(f, "{\"event\":\"STOP\"}\n");
	answer(f, hear(f, "\"stop\""), "\"return\":{}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, 0);
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), -EBUSY); /* it is */
	assert_int_equal(engine_qemu.resume(f->engine, 1000, on_done, f), 0);
	say(f, "{\"event\":\"RESUME\"}\n");
	answer(f, hear(f, "\"cont\""), "\"return\":{}");
	until(f, &f->done, 2);
	assert_int_equal(engine_qemu.quit(f->engine), 0);
	hear(f, "\"quit\"");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), -EPIPE);
	assert_int_equal(engine_qemu.quit(f->engine), -EPIPE);
	over(f);
}

static void test_events(void **state)
{
	struct fix *f = fake_up();
	char want[512];

	(void)state;
	say(f, "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-shutdown\"}}\n"
	       "{\"event\":\"SHUTDOWN\",\"data\":{\"reason\":\"odd\\u0007one\"}}\n{\"event\":\"SHUTDOWN\"}\n"
	       "{\"event\":\"GUEST_PANICKED\",\"data\":{}}\n{\"event\":\"VSERPORT_CHANGE\",\"data\":{}}\n"
	       "{\"event\":\"BLOCK_IO_ERROR\",\"data\":{\"nospace\":true}}\n"
	       "{\"event\":\"BLOCK_IO_ERROR\",\"data\":{\"operation\":\"read\",\"reason\":\"bad\\nsector\"}}\n");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	snprintf(
		want, sizeof(want),
		"%d:the guest powered off;%d:odd?one;%d:;%d:the guest's kernel panicked;"
		"%d:the host's disk is full: the machine is paused; make room and resume it;%d:the disk failed on a read: bad?sector;"
		"%d:its monitor closed;",
		ENGINE_EV_SHUTDOWN, ENGINE_EV_SHUTDOWN, ENGINE_EV_SHUTDOWN, ENGINE_EV_PANICKED, ENGINE_EV_IO_ERROR,
		ENGINE_EV_IO_ERROR, ENGINE_EV_GONE);
	assert_string_equal(f->events, want);
	over(f);
}

static void test_etimedout_is_stuck(void **state)
{
	struct fix *f = fake_up();

	(void)state;
	assert_int_equal(engine_qemu.pause(f->engine, 10, on_done, f), 0);
	until(f, &f->done, 1);
	assert_int_equal(f->code, -ETIMEDOUT);
	assert_int_equal(f->events[0] - '0', ENGINE_EV_STUCK);
	/* It may be asked again. */
	assert_int_equal(engine_qemu.pause(f->engine, 1000, on_done, f), 0);
	over(f);
}

static void pause_fake(struct fix *f)
{
	int done = f->done;

	assert_int_equal(engine_qemu.pause(f->engine, 5000, on_done, f), 0);
	say(f, "{\"event\":\"STOP\"}\n");
	answer(f, hear(f, "stop"), "\"return\":{}");
	until(f, &f->done, done + 1);
}

static void test_save_step_by_step(void **state)
{
	struct fix *f = fake_up();
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void)state;
	pause_fake(f);
	assert_int_equal(engine_qemu.save(f->engine, fd, 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "fd:state"), "\"return\":{}");
	answer(f, hear(f, "query-migrate"), "\"return\":{\"status\":\"active\"}");
	answer(f, hear(f, "query-migrate"), "\"return\":{\"status\":\"completed\"}");
	until(f, &f->done, 2);
	assert_int_equal(f->code, 0);
	/* Refused at a step, and failed at the end. */
	assert_int_equal(engine_qemu.save(f->engine, fd, 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"error\":{\"desc\":\"no such capability\"}");
	until(f, &f->done, 3);
	assert_int_equal(f->code, -EIO);
	assert_non_null(strstr(f->words, "no such capability"));
	assert_int_equal(engine_qemu.save(f->engine, fd, 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "fd:state"), "\"return\":{}");
	answer(f, hear(f, "query-migrate"), "\"return\":{\"status\":\"failed\",\"error-desc\":\"broken pipe\"}");
	until(f, &f->done, 4);
	assert_non_null(strstr(f->words, "broken pipe"));
	close(fd);
	over(f);
}

/* The target is named once, how far it is asked until it is there; a pause goes by beside it. */
static void test_balloon(void **state)
{
	struct fix *f = fake();

	(void)state;
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 1000, on_done, f), -EBUSY); /* connecting */
	say(f, "{\"QMP\":{}}\n");
	answer(f, hear(f, "qmp_capabilities"), "\"return\":{}");
	until(f, &f->up, 1);
	assert_int_equal(engine_qemu.balloon(f->engine, 0, 1000, on_done, f), -EINVAL);
	assert_int_equal(engine_qemu.balloon(f->engine, 4097, 1000, on_done, f), -EINVAL); /* it would never be there */
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 1000, NULL, f), -EINVAL);
	assert_int_equal(engine_qemu.balloon(f->engine, 268435456, 60000, on_done, f), 0);
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 1000, on_done, f), -EBUSY);
	answer(f, hear(f, "\"arguments\":{\"value\":268435456}"), "\"return\":{}");
	answer(f, hear(f, "query-balloon"), "\"return\":{\"actual\":536870912}");
	answer(f, hear(f, "query-balloon"), "\"return\":{\"actual\":300000000}");
	pause_fake(f);
	assert_int_equal(f->done, 1);
	answer(f, hear(f, "query-balloon"), "\"return\":{\"actual\":268435456}");
	until(f, &f->done, 2);
	assert_int_equal(f->code, 0);
	over(f);
}

static void test_balloon_that_fails(void **state)
{
	static const char *const answers[] = { "\"return\":{}", "\"return\":{\"actual\":-1}", "\"return\":7",
					       "\"error\":{\"desc\":\"no balloon\"}" };
	struct fix *f = fake_up();

	(void)state;
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 5000, on_done, f), 0);
	answer(f, hear(f, "\"balloon\""), "\"error\":{\"desc\":\"not now\"}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, -EIO);
	assert_non_null(strstr(f->words, "not now"));
	for (int i = 0; i < (int)ARRAY_LEN(answers); i++) {
		assert_int_equal(engine_qemu.balloon(f->engine, 4096, 5000, on_done, f), 0);
		answer(f, hear(f, "\"balloon\""), "\"return\":{}");
		answer(f, hear(f, "query-balloon"), answers[i]);
		until(f, &f->done, i + 2);
		assert_int_equal(f->code, -EIO);
	}
	/* A guest that does not come there is no monitor that is stuck. */
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 1, on_done, f), 0);
	until(f, &f->done, 6);
	assert_int_equal(f->code, -ETIMEDOUT);
	assert_null(strstr(f->events, "stuck"));
	hear(f, "\"balloon\"");
	/* Nor does it wait for one that does not move at all. */
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 3600000, on_done, f), 0);
	answer(f, hear(f, "\"balloon\""), "\"return\":{}");
	while (f->done < 7) {
		char text[256];
		ssize_t n;

		loop_once(f->loop, 10);
		n = recv(f->far, text, sizeof(text) - 1, MSG_DONTWAIT);
		text[n > 0 ? n : 0] = '\0';
		if (strstr(text, "\"id\":"))
			answer(f, strtoull(strstr(text, "\"id\":") + 5, NULL, 10), "\"return\":{\"actual\":8192}");
	}
	assert_int_equal(f->code, -ETIMEDOUT);
	assert_non_null(strstr(f->words, "does not move"));
	over(f);
}

static void test_balloon_of_one_that_goes(void **state)
{
	struct fix *f = fake_up();

	(void)state;
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 60000, on_done, f), 0);
	answer(f, hear(f, "\"balloon\""), "\"return\":{}");
	answer(f, hear(f, "query-balloon"), "\"return\":{\"actual\":8192}");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	until(f, &f->done, 1);
	assert_int_equal(f->code, -EPIPE);
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 1000, on_done, f), -EPIPE);
	over(f);
	/* Freed in the middle: nobody is called. */
	f = fake_up();
	assert_int_equal(engine_qemu.balloon(f->engine, 4096, 60000, on_done, f), 0);
	answer(f, hear(f, "\"balloon\""), "\"return\":{}");
	over(f);
}

static void test_gone_in_mid_save(void **state)
{
	struct fix *f = fake_up();

	(void)state;
	pause_fake(f);
	assert_int_equal(engine_qemu.save(f->engine, 0, 5000, on_done, f), 0);
	hear(f, "x-ignore-shared");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	assert_int_equal(f->done, 2);
	assert_int_equal(f->code, -EPIPE);
	over(f);
}

/* Between two questions no command is under way: the call ends all the same, and once. */
static void test_gone_between_two_questions(void **state)
{
	struct fix *f = fake_up();

	(void)state;
	pause_fake(f);
	assert_int_equal(engine_qemu.save(f->engine, 0, 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "fd:state"), "\"return\":{}");
	answer(f, hear(f, "query-migrate"), "\"return\":{\"status\":\"active\"}");
	fd_close(&f->far);
	until(f, &f->gone, 1);
	assert_int_equal(f->done, 2);
	assert_int_equal(f->code, -EPIPE);
	over(f);
}

static void test_a_generic_one_step_by_step(void **state)
{
	struct fix *f = fake_up_of(true);
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_int_equal(engine_qemu.pause(f->engine, 5000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.resume(f->engine, 5000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.save(f->engine, fd, 5000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.load(f->engine, fd, 5000, on_done, f), -EBUSY); /* no disk yet */
	assert_int_equal(engine_qemu.assign_disk(f->engine, "a\",\"b", 5000, on_done, f), -EINVAL);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "", 5000, on_done, f), -EINVAL);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m-2", 5000, on_done, f), 0);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m-3", 5000, on_done, f), -EBUSY);
	answer(f,
	       hear(f, "\"execute\":\"blockdev-add\",\"id\":2,\"arguments\":{\"driver\":\"nbd\",\"node-name\":\"nbd0\","
		       "\"server\":{\"type\":\"unix\",\"path\":\"/run/blocks/nbd.sock\"},\"export\":\"m-2\","
		       "\"reconnect-delay\":30,\"discard\":\"unmap\"}}"),
	       "\"return\":{}");
	answer(f,
	       hear(f, "\"execute\":\"blockdev-reopen\",\"id\":3,\"arguments\":{\"options\":[{\"driver\":\"raw\","
		       "\"node-name\":\"disk0\",\"file\":\"nbd0\",\"discard\":\"unmap\",\"detect-zeroes\":\"off\"}]}}"),
	       "\"return\":{}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, 0);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m-3", 5000, on_done, f), -EBUSY); /* it has one */

	assert_int_equal(engine_qemu.load(f->engine, fd, 5000, on_done, f), 0);
	assert_int_equal(engine_qemu.load(f->engine, fd, 5000, on_done, f), -EBUSY);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, NO_ANNOUNCEMENTS), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "\"migrate-incoming\",\"id\":7,\"arguments\":{\"uri\":\"fd:state\"}"), "\"return\":{}");
	answer(f, hear(f, "query-status"), "\"return\":{\"status\":\"inmigrate\",\"running\":false}");
	answer(f, hear(f, "query-status"), "\"return\":{\"status\":\"paused\",\"running\":false}");
	until(f, &f->done, 2);
	assert_int_equal(f->code, 0);
	assert_int_equal(engine_qemu.load(f->engine, fd, 5000, on_done, f), -EBUSY);
	assert_int_equal(engine_qemu.resume(f->engine, 5000, on_done, f), 0); /* paused, like any other */
	say(f, "{\"event\":\"RESUME\"}\n");
	answer(f, hear(f, "\"cont\""), "\"return\":{}");
	until(f, &f->done, 3);
	pause_fake(f);
	close(fd);
	over(f);
}

static void test_a_generic_one_refused(void **state)
{
	struct fix *f = fake_up_of(true);
	int pair[2];

	(void)state;
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m", 5000, on_done, f), 0);
	answer(f, hear(f, "blockdev-add"), "\"error\":{\"desc\":\"no such export\"}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, -EIO);
	assert_non_null(strstr(f->words, "no such export"));
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m", 5000, on_done, f), 0);
	answer(f, hear(f, "blockdev-add"), "\"return\":{}");
	answer(f, hear(f, "blockdev-reopen"), "\"return\":{}");
	until(f, &f->done, 2);
	assert_int_equal(engine_qemu.load(f->engine, -1, 5000, on_done, f), -EBADF);
	/* A state that was saved from a machine that no one can go on with. */
	assert_int_equal(pipe(pair), 0);
	assert_int_equal(engine_qemu.load(f->engine, pair[0], 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, NO_ANNOUNCEMENTS), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "migrate-incoming"), "\"return\":{}");
	answer(f, hear(f, "query-status"), "\"return\":{\"status\":\"internal-error\",\"running\":false}");
	until(f, &f->done, 3);
	assert_int_equal(f->code, -EIO);
	assert_non_null(strstr(f->words, "internal-error"));
	/* An answer without a status; and an engine that goes. */
	assert_int_equal(engine_qemu.load(f->engine, pair[0], 5000, on_done, f), 0);
	answer(f, hear(f, "x-ignore-shared"), "\"return\":{}");
	answer(f, hear(f, NO_ANNOUNCEMENTS), "\"return\":{}");
	answer(f, hear(f, "getfd"), "\"return\":{}");
	answer(f, hear(f, "migrate-incoming"), "\"return\":{}");
	answer(f, hear(f, "query-status"), "\"return\":{}");
	until(f, &f->done, 4);
	assert_int_equal(f->code, -EIO);
	assert_int_equal(engine_qemu.load(f->engine, pair[0], 5000, on_done, f), 0);
	fd_close(&f->far);
	until(f, &f->gone, 1);
	assert_int_equal(f->done, 5);
	assert_int_equal(f->code, -EPIPE);
	assert_int_equal(engine_qemu.load(f->engine, pair[0], 5000, on_done, f), -EPIPE);
	assert_int_equal(engine_qemu.assign_disk(f->engine, "m", 5000, on_done, f), -EPIPE);
	close(pair[0]);
	close(pair[1]);
	over(f);
}

static void test_free_inside_of_an_event(void **state)
{
	struct fix *f = fake_up();
	uint64_t end = now_ns() + 5000000000ull;

	(void)state;
	f->free_in_event = true;
	say(f, "{\"event\":\"STOP\"}\n{\"event\":\"RESUME\"}\n");
	while (f->engine && now_ns() < end)
		loop_once(f->loop, 50);
	assert_null(f->engine);
	assert_int_equal(loop_once(f->loop, 0), 0);
	over(f);
}

/* -- the real one (see test_engine.c for whole machines) ---------------------------------------- */

static void skip_because(const char *why)
{
	const char *must = getenv("CRUCIBLE_MUST_RUN");

	if (must && strcmp(must, "1") == 0)
		fail_msg("may not be skipped: %s", why);
	fprintf(stderr, "skipped: %s\n", why);
	skip();
}

static void test_real_pause_save_quit(void **state)
{
	static char *argv[] = { (char *)"qemu-system-x86_64",
				(char *)"-M",
				(char *)"none",
				(char *)"-nodefaults",
				(char *)"-display",
				(char *)"none",
				(char *)"-chardev",
				(char *)"socket,id=m,fd=3",
				(char *)"-mon",
				(char *)"chardev=m,mode=control",
				NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct engine_info info;
	struct err e = { 0 };
	struct fix *f;
	char path[200];
	int pair[2], fd, status;
	pid_t pid;

	(void)state;
	if (engine_qemu.probe(NULL, &info, &e) < 0)
		skip_because(e.msg);
	f = calloc(1, sizeof(*f));
	f->far = -1;
	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	spec.name = "qemu";
	spec.path = info.path;
	spec.argv = argv;
	spec.stdio[2] = 2;
	spec.fds = &pair[1];
	spec.nfds = 1;
	if (proc_spawn(&spec, &pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	close(pair[1]);
	connect_to(f, pair[0], false);
	until(f, &f->up, 1);
	assert_int_equal(engine_qemu.pause(f->engine, 10000, on_done, f), 0);
	until(f, &f->done, 1);
	assert_int_equal(f->code, 0);
	snprintf(path, sizeof(path), "%s/test_qemu.state.%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
		 (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(engine_qemu.save(f->engine, fd, 10000, on_done, f), 0);
	until(f, &f->done, 2);
	if (f->code < 0)
		fail_msg("%s", f->words);
	assert_true(lseek(fd, 0, SEEK_END) > 4);
	assert_int_equal(pread(fd, path, 4, 0), 4);
	assert_memory_equal(path, "QEVM", 4);
	assert_int_equal(engine_qemu.quit(f->engine), 0);
	until(f, &f->gone, 1);
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(fd);
	over(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_etimedout_is_stuck),
		cmocka_unit_test(test_save_step_by_step),
		cmocka_unit_test(test_balloon),
		cmocka_unit_test(test_balloon_that_fails),
		cmocka_unit_test(test_balloon_of_one_that_goes),
		cmocka_unit_test(test_gone_in_mid_save),
		cmocka_unit_test(test_gone_between_two_questions),
		cmocka_unit_test(test_a_generic_one_step_by_step),
		cmocka_unit_test(test_a_generic_one_refused),
		cmocka_unit_test(test_free_inside_of_an_event),
		cmocka_unit_test(test_real_pause_save_quit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
