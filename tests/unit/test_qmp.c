/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's client against a monitor that is this file: the other end of a socket, written and read by hand. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/json.h"
#include "vmm/qmp.h"

#define GREETING "{\"QMP\": {\"version\": {}, \"capabilities\": [\"oob\"]}}\r\n"

/* -- the parser -------------------------------------------------------------------------------- */

static int count_object(void *arg, struct json_object *o)
{
	assert_true(json_object_is_type(o, json_type_object));
	++*(int *)arg;
	return 0;
}

static int feed(const char *text, size_t piece)
{
	struct qmp_parser p;
	int n = 0, r = 0;

	qmp_parser_init(&p);
	for (size_t at = 0, len = strlen(text); r == 0 && at < len; at += piece)
		r = qmp_parser_feed(&p, text + at, len - at < piece ? len - at : piece, count_object, &n);
	qmp_parser_fini(&p);
	return r < 0 ? r : n;
}

static void test_parser_takes_any_cut(void **state)
{
	static const char text[] = "  {\"a\": \"}{\\\"\\u00e4ä\"}\r\n{\"b\": [1, 2, {}]} \n\r\n\n{\"c\":null}\n{\"d\"";

	(void)state;
	for (size_t piece = 1; piece <= sizeof(text); piece++)
		assert_int_equal(feed(text, piece), 3);
}

static void test_parser_ebadmsg(void **state)
{
	static const char *const bad[] = { "[1]\n",	   "1\n",	   "\"a\"\n", "{\"a\":}\n",	    "{a:1}\n",
					   "{} {}\n",	   "{\"a\":1,}\n", "\x01\n",  "{\"a\":\"\xff\"}\n", " \n",
					   "{\"a\":\n1}\n" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(feed(bad[i], 100), -EBADMSG);
		assert_int_equal(feed(bad[i], 1), -EBADMSG);
	}
}

static void test_parser_object_too_large(void **state)
{
	size_t len = QMP_OBJECT_MAX + 2;
	char *text = malloc(len);
	struct qmp_parser p;
	int n = 0;

	(void)state;
	memset(text, 'x', len);
	memcpy(text, "{\"a\":\"", 6);
	qmp_parser_init(&p);
	assert_int_equal(qmp_parser_feed(&p, text, QMP_OBJECT_MAX, count_object, &n), 0);
	assert_int_equal(qmp_parser_feed(&p, text, 1, count_object, &n), -EBADMSG);
	qmp_parser_fini(&p);
	/* In one piece too; and exactly that long it is taken. */
	text[len - 1] = '\n';
	qmp_parser_init(&p);
	assert_int_equal(qmp_parser_feed(&p, text, len, count_object, &n), -EBADMSG);
	qmp_parser_fini(&p);
	memcpy(text + QMP_OBJECT_MAX - 2, "\"}\n", 3);
	qmp_parser_init(&p);
	assert_int_equal(qmp_parser_feed(&p, text, QMP_OBJECT_MAX + 1, count_object, &n), 0);
	for (size_t at = 0; at < QMP_OBJECT_MAX + 1; at += 100000)
		assert_int_equal(qmp_parser_feed(&p, text + at,
						 QMP_OBJECT_MAX + 1 - at < 100000 ? QMP_OBJECT_MAX + 1 - at : 100000,
						 count_object, &n),
				 0);
	assert_int_equal(n, 2);
	qmp_parser_fini(&p);
	free(text);
}

/* -- a connection ------------------------------------------------------------------------------ */

struct fix {
	struct loop *loop;
	struct qmp *qmp;
	int far;	/* the monitor's end; non-blocking */
	char in[65536]; /* what the client sent, until taken */
	size_t in_len;
	int fd; /* the last descriptor that came, -1 */

	int ready, gone, done, code;
	bool free_in_event, free_in_done, free_in_gone;
	char events[256], words[320], ret[256];
};

static void on_ready(void *arg)
{
	((struct fix *)arg)->ready++;
}

static void on_event(void *arg, const char *name, struct json_object *data)
{
	struct fix *f = arg;

	snprintf(f->events + strlen(f->events), sizeof(f->events) - strlen(f->events), "%s%s;", name, data ? "+" : "");
	if (f->free_in_event)
		f->qmp = qmp_free(f->qmp);
}

static void on_gone(void *arg, int reason)
{
	struct fix *f = arg;

	f->gone = reason;
	if (f->free_in_gone)
		f->qmp = qmp_free(f->qmp);
}

static void on_done(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct fix *f = arg;

	f->done++;
	f->code = code;
	snprintf(f->words, sizeof(f->words), "%s", e->msg);
	snprintf(f->ret, sizeof(f->ret), "%s", ret ? json_line(ret) : "");
	if (f->free_in_done)
		f->qmp = qmp_free(f->qmp);
}

static void say(struct fix *f, const char *text)
{
	assert_int_equal(send(f->far, text, strlen(text), 0), (ssize_t)strlen(text));
}

static void hear(struct fix *f)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { f->in + f->in_len, sizeof(f->in) - 1 - f->in_len };
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
	};
	ssize_t n = recvmsg(f->far, &m, MSG_CMSG_CLOEXEC);

	if (n <= 0)
		return;
	f->in_len += (size_t)n;
	f->in[f->in_len] = '\0';
	if (CMSG_FIRSTHDR(&m)) {
		fd_close(&f->fd);
		memcpy(&f->fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	}
}

/* Run the loop until @n counts at least @want; fails after five seconds. */
static void until(struct fix *f, const int *n, int want)
{
	uint64_t end = now_ns() + 5000000000ull;

	while (*n < want && now_ns() < end)
		assert_int_equal(loop_once(f->loop, 50), 0);
	assert_true(*n >= want);
}

/* Run the loop until the client has sent a text that holds @what. Returns the id of the last command in it. */
static unsigned long long until_heard(struct fix *f, const char *what)
{
	uint64_t end = now_ns() + 5000000000ull;
	unsigned long long id = 0;
	const char *p;

	while (!strstr(f->in, what) && now_ns() < end) {
		hear(f);
		assert_int_equal(loop_once(f->loop, 1), 0);
	}
	assert_non_null(strstr(f->in, what));
	for (p = f->in; (p = strstr(p, "\"id\":")); p += 5)
		id = strtoull(p + 5, NULL, 10);
	f->in_len = 0;
	f->in[0] = '\0';
	return id;
}

static void answer(struct fix *f, unsigned long long id, const char *what)
{
	char text[256];

	snprintf(text, sizeof(text), "{%s, \"id\": %llu}\r\n", what, id);
	say(f, text);
}

static struct fix *connected(void)
{
	static const struct qmp_ops ops = { .on_ready = on_ready, .on_event = on_event, .on_gone = on_gone };
	struct fix *f = calloc(1, sizeof(*f));
	int pair[2];

	f->fd = -1;
	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	f->far = pair[1];
	assert_int_equal(fd_set_nonblock(f->far, true), 0);
	assert_int_equal(qmp_new(f->loop, pair[0], &ops, f, &f->qmp), 0);
	return f;
}

static struct fix *ready(void)
{
	struct fix *f = connected();

	say(f, GREETING);
	answer(f, until_heard(f, "qmp_capabilities"), "\"return\": {}");
	until(f, &f->ready, 1);
	return f;
}

static void over(struct fix *f)
{
	qmp_free(f->qmp);
	fd_close(&f->far);
	fd_close(&f->fd);
	loop_free(f->loop);
	free(f);
}

static void test_negotiation_comes_first(void **state)
{
	struct fix *f = connected();
	unsigned long long id;

	(void)state;
	/* Asked for before the greeting: kept back, then sent. */
	assert_int_equal(qmp_call(f->qmp, "stop", NULL, -1, 5000, on_done, f), 0);
	loop_once(f->loop, 0);
	hear(f);
	assert_int_equal(f->in_len, 0);
	say(f, GREETING);
	id = until_heard(f, "qmp_capabilities");
	assert_int_equal(f->in_len, 0);
	answer(f, id, "\"return\": {}");
	until(f, &f->ready, 1);
	answer(f, until_heard(f, "\"execute\":\"stop\""), "\"return\": {\"x\": 1}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, 0);
	assert_string_equal(f->ret, "{\"x\":1}");
	over(f);
}

static void test_answers_are_matched_by_id(void **state)
{
	struct fix *f = ready();
	struct fix other = { 0 };
	unsigned long long id;

	(void)state;
	assert_int_equal(qmp_call(f->qmp, "first", "{\"a\":1}", -1, 5000, on_done, f), 0);
	assert_int_equal(qmp_call(f->qmp, "second", NULL, -1, 5000, on_done, &other), 0);
	id = until_heard(f, "second");
	answer(f, id, "\"return\": 2");
	until(f, &other.done, 1);
	assert_int_equal(f->done, 0);
	answer(f, id - 1, "\"error\": {\"class\": \"GenericError\", \"desc\": \"no such thing\"}");
	until(f, &f->done, 1);
	assert_int_equal(f->code, -EIO);
	assert_string_equal(f->words, "the engine refused: no such thing");
	over(f);
}

static void test_events(void **state)
{
	struct fix *f = ready();
	int heard = 0;

	(void)state;
	say(f,
	    "{\"event\": \"STOP\", \"timestamp\": {}}\r\n{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": true}}\r\n");
	for (uint64_t end = now_ns() + 5000000000ull; now_ns() < end && !heard;
	     heard = strstr(f->events, "SHUTDOWN") != NULL)
		loop_once(f->loop, 50);
	assert_string_equal(f->events, "STOP;SHUTDOWN+;");
	over(f);
}

static void test_descriptor_goes_with_its_command(void **state)
{
	struct fix *f = ready();
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct stat a, b;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(qmp_call(f->qmp, "getfd", "{\"fdname\":\"x\"}", fd, 5000, on_done, f), 0);
	assert_int_equal(fstat(fd, &a), 0);
	close(fd); /* borrowed for the call only */
	answer(f, until_heard(f, "getfd"), "\"return\": {}");
	until(f, &f->done, 1);
	assert_true(f->fd >= 0);
	assert_int_equal(fstat(f->fd, &b), 0);
	assert_int_equal(a.st_rdev, b.st_rdev);
	over(f);
}

static void test_etimedout_and_the_late_answer(void **state)
{
	struct fix *f = ready();
	unsigned long long id;

	(void)state;
	assert_int_equal(qmp_call(f->qmp, "slow", NULL, -1, 10, on_done, f), 0);
	id = until_heard(f, "slow");
	until(f, &f->done, 1);
	assert_int_equal(f->code, -ETIMEDOUT);
	/* It is swallowed: neither a second end of the call nor a breach of the protocol. */
	answer(f, id, "\"return\": {}");
	assert_int_equal(qmp_call(f->qmp, "next", NULL, -1, 5000, on_done, f), 0);
	answer(f, until_heard(f, "next"), "\"return\": {}");
	until(f, &f->done, 2);
	assert_int_equal(f->code, 0);
	assert_int_equal(f->gone, 0);
	over(f);
}

static void expect_gone(struct fix *f, int reason)
{
	uint64_t end = now_ns() + 5000000000ull;

	while (!f->gone && now_ns() < end)
		loop_once(f->loop, 50);
	assert_int_equal(f->gone, reason);
}

static void test_epipe_ends_every_call(void **state)
{
	struct fix *f = ready();

	(void)state;
	assert_int_equal(qmp_call(f->qmp, "one", NULL, -1, 5000, on_done, f), 0);
	assert_int_equal(qmp_call(f->qmp, "two", NULL, -1, 5000, on_done, f), 0);
	fd_close(&f->far);
	expect_gone(f, -ECONNRESET);
	assert_int_equal(f->done, 2);
	assert_int_equal(f->code, -EPIPE);
	assert_int_equal(qmp_call(f->qmp, "three", NULL, -1, 5000, on_done, f), -EPIPE);
	over(f);
}

static void test_nonsense_ends_it(void **state)
{
	static const char *const bad[] = {
		"hello\r\n",
		"{\"return\": {}}\r\n",
		"{\"return\": {}, \"id\": 99}\r\n",
		"{\"return\": {}, \"id\": \"1\"}\r\n",
		"{\"event\": 1}\r\n",
		"{\"event\": \"X\", \"data\": 1}\r\n",
		"{\"x\": 1}\r\n",
		"{}\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct fix *f = ready();

		say(f, bad[i]);
		expect_gone(f, -EBADMSG);
		over(f);
	}
	/* Something else than a greeting. */
	{
		struct fix *f = connected();

		say(f, "{\"event\": \"STOP\"}\r\n");
		expect_gone(f, -EBADMSG);
		over(f);
	}
}

static void test_ebusy_too_many_calls(void **state)
{
	struct fix *f = ready();

	(void)state;
	for (unsigned int i = 0; i < QMP_CALLS_MAX; i++)
		assert_int_equal(qmp_call(f->qmp, "x", NULL, -1, 5000, on_done, f), 0);
	assert_int_equal(qmp_call(f->qmp, "x", NULL, -1, 5000, on_done, f), -EBUSY);
	over(f);
}

static void test_free_inside_of_callbacks(void **state)
{
	struct fix *f = ready();
	unsigned long long id;

	(void)state;
	f->free_in_event = true;
	say(f, "{\"event\": \"A\"}\r\n{\"event\": \"B\"}\r\n");
	for (uint64_t end = now_ns() + 5000000000ull; now_ns() < end && f->qmp;)
		loop_once(f->loop, 50);
	loop_once(f->loop, 0);
	assert_string_equal(f->events, "A;");
	over(f);

	f = ready();
	f->free_in_done = true;
	assert_int_equal(qmp_call(f->qmp, "a", NULL, -1, 5000, on_done, f), 0);
	assert_int_equal(qmp_call(f->qmp, "b", NULL, -1, 5000, on_done, f), 0);
	id = until_heard(f, "\"b\"");
	answer(f, id, "\"return\": {}");
	until(f, &f->done, 1);
	loop_once(f->loop, 0);
	assert_int_equal(f->done, 1);
	over(f);

	f = ready();
	f->free_in_gone = f->free_in_done = true;
	assert_int_equal(qmp_call(f->qmp, "a", NULL, -1, 5000, on_done, f), 0);
	fd_close(&f->far);
	until(f, &f->done, 1);
	assert_null(f->qmp);
	over(f);

	f = ready();
	f->free_in_done = true;
	assert_int_equal(qmp_call(f->qmp, "late", NULL, -1, 1, on_done, f), 0);
	until(f, &f->done, 1);
	assert_int_equal(f->code, -ETIMEDOUT);
	over(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parser_takes_any_cut),
		cmocka_unit_test(test_parser_ebadmsg),
		cmocka_unit_test(test_parser_object_too_large),
		cmocka_unit_test(test_negotiation_comes_first),
		cmocka_unit_test(test_answers_are_matched_by_id),
		cmocka_unit_test(test_events),
		cmocka_unit_test(test_descriptor_goes_with_its_command),
		cmocka_unit_test(test_etimedout_and_the_late_answer),
		cmocka_unit_test(test_epipe_ends_every_call),
		cmocka_unit_test(test_nonsense_ends_it),
		cmocka_unit_test(test_ebusy_too_many_calls),
		cmocka_unit_test(test_free_inside_of_callbacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
