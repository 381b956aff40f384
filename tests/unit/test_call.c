/* SPDX-License-Identifier: Apache-2.0 */
/* Calls over a connection. The test is both ends: the owner of the calls on a loop, the peer on the bare socket. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/call.h"
#include "base/fd.h"

#define REPLY 1
#define ASK   2

struct owner {
	struct loop *loop;
	struct msgconn *conn;
	struct calls calls;
	bool gone;
	int peer; /* the other end */
	uint8_t in[4096];
	struct msg m;
	/* the last answer */
	unsigned n;
	int code, fd;
	char words[CALLS_WORDS_MAX];
	uint32_t value; /* the payload */
	bool payload_ok;
};

static void on_msg(void *arg, struct msg *m)
{
	struct owner *o = arg;

	if (m->type == REPLY)
		calls_reply(&o->calls, m);
}

static void on_gone(void *arg, int reason)
{
	struct owner *o = arg;

	(void)reason;
	o->gone = true;
	calls_end(&o->calls, -EPIPE, "it is gone");
}

static int setup(void **state)
{
	static const struct msgconn_ops ops = { on_msg, on_gone };
	struct owner *o = calloc(1, sizeof(*o));
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(loop_new(&o->loop), 0);
	assert_int_equal(msgconn_new(o->loop, pair[0], 1u << 20, &ops, o, &o->conn), 0);
	calls_init(&o->calls, "the peer");
	o->peer = pair[1];
	o->fd = -1;
	*state = o;
	return 0;
}

static int teardown(void **state)
{
	struct owner *o = *state;

	o->conn = msgconn_free(o->conn);
	calls_drop(&o->calls);
	o->loop = loop_free(o->loop);
	fd_close(&o->peer);
	fd_close(&o->fd);
	free(o);
	return 0;
}

static void on_answer(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct owner *o = arg;

	o->n++;
	o->code = code;
	snprintf(o->words, sizeof(o->words), "%s", words);
	o->value = wire_u32(r);
	o->payload_ok = wire_done(r) == 0;
	if (m->nfds) {
		fd_close(&o->fd);
		o->fd = take_fd(&m->fds[0]);
	}
}

static int ask(struct owner *o, call_fn *fn, uint32_t *ret_id)
{
	return calls_send(&o->calls, o->conn, ASK, "q", 1, NULL, 0, fn, o, ret_id);
}

/* The peer takes a request, and answers the one with @id. */
static void take(struct owner *o)
{
	assert_int_equal(msg_recv(o->peer, o->in, sizeof(o->in), &o->m), 0);
	assert_int_equal(o->m.type, ASK);
}

static void reply(struct owner *o, uint32_t id, int code, const char *words, const int *fds, size_t nfds)
{
	struct buf b;

	buf_init(&b, 8192);
	wire_put_u32(&b, (uint32_t)code);
	wire_put_str(&b, words);
	wire_put_u32(&b, id * 10);
	assert_int_equal(msg_send(o->peer, REPLY, id, b.data, b.len, fds, nfds), 0);
	buf_fini(&b);
}

static void spin(struct owner *o)
{
	for (int i = 0; i < 5; i++)
		assert_int_equal(loop_once(o->loop, 0), 0);
}

/* In any order, each to its own. */
static void test_matched_by_id(void **state)
{
	struct owner *o = *state;
	uint32_t a, b, c;

	assert_int_equal(ask(o, on_answer, &a), 0);
	assert_int_equal(ask(o, on_answer, &b), 0);
	assert_int_equal(ask(o, on_answer, &c), 0);
	assert_true(a && a != b && b != c);
	reply(o, b, 0, "", &o->peer, 1);
	spin(o);
	assert_true(o->n == 1 && o->code == 0 && o->value == b * 10 && o->payload_ok && o->fd >= 0);
	reply(o, b, 0, "", NULL, 0); /* nobody asks any more */
	reply(o, 77, 0, "", NULL, 0);
	reply(o, 0, 0, "", NULL, 0);
	reply(o, c, -ENOSPC, "no room", NULL, 0);
	spin(o);
	assert_true(o->n == 2 && o->code == -ENOSPC && o->value == c * 10);
	assert_string_equal(o->words, "no room");
	reply(o, a, 0, "", NULL, 0);
	spin(o);
	assert_true(o->n == 3 && o->value == a * 10);
	assert_int_equal(o->calls.n, 0);
	/* The list's end is where it was. */
	assert_int_equal(ask(o, on_answer, &a), 0);
	reply(o, a, 0, "", NULL, 0);
	spin(o);
	assert_int_equal(o->n, 4);
}

static void test_nobody_listens(void **state)
{
	struct owner *o = *state;
	uint32_t id;

	assert_int_equal(calls_send(&o->calls, o->conn, ASK, NULL, 0, NULL, 0, NULL, NULL, &id), 0);
	take(o);
	assert_int_equal(o->m.id, id);
	reply(o, id, 0, "", &o->peer, 1);
	spin(o);
	assert_int_equal(o->calls.n, 0);
}

static void test_reply_ebadmsg(void **state)
{
	struct owner *o = *state;
	static const uint8_t positive[] = { 1, 0, 0, 0, 0, 0, 0, 0 }, beyond[] = { 0, 0, 0, 128, 0, 0, 0, 0 },
			     cut[] = { 0, 0, 0, 0, 5, 0, 0, 0, 'a' }, nul[] = { 0, 0, 0, 0, 1, 0, 0, 0, 0 };
	static const struct {
		const uint8_t *data;
		size_t len;
	} bad[] = { { NULL, 0 }, { positive, 8 }, { beyond, 8 }, { cut, 9 }, { nul, 9 }, { cut, 3 } };
	char big[CALLS_WORDS_MAX + 1];
	uint32_t id;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(ask(o, on_answer, &id), 0);
		assert_int_equal(msg_send(o->peer, REPLY, id, bad[i].data, bad[i].len, NULL, 0), 0);
		spin(o);
		assert_int_equal(o->n, i + 1);
		assert_int_equal(o->code, -EBADMSG);
		assert_string_equal(o->words, "the peer: malformed reply");
		assert_false(o->payload_ok); /* empty */
	}
	/* Words that just fit, and one more. */
	memset(big, 'w', sizeof(big));
	big[CALLS_WORDS_MAX] = '\0';
	assert_int_equal(ask(o, on_answer, &id), 0);
	reply(o, id, 0, big, NULL, 0);
	spin(o);
	assert_int_equal(o->code, -EBADMSG);
	big[CALLS_WORDS_MAX - 1] = '\0';
	assert_int_equal(ask(o, on_answer, &id), 0);
	reply(o, id, -EIO, big, NULL, 0);
	spin(o);
	assert_int_equal(o->code, -EIO);
	assert_string_equal(o->words, big);
}

/* The end answers all with the same, in order, and what is asked meanwhile fails at once. */
static void test_end_epipe(void **state)
{
	struct owner *o = *state;

	for (int i = 0; i < 3; i++)
		assert_int_equal(ask(o, on_answer, NULL), 0);
	fd_close(&o->peer);
	spin(o);
	assert_true(o->gone);
	assert_int_equal(o->n, 3);
	assert_int_equal(o->code, -EPIPE);
	assert_string_equal(o->words, "it is gone");
	assert_int_equal(ask(o, on_answer, NULL), -EPIPE);
	assert_int_equal(o->calls.n, 0);
}

static void test_too_many_enobufs(void **state)
{
	struct owner *o = *state;
	unsigned sent = 0;
	uint32_t id;
	int r;

	while ((r = ask(o, on_answer, &id)) == 0) {
		sent++;
		take(o); /* the socket is never full: it is the number that ends it */
	}
	assert_int_equal(r, -ENOBUFS);
	assert_int_equal(sent, CALLS_MAX);
	reply(o, id, 0, "", NULL, 0);
	spin(o);
	assert_int_equal(ask(o, on_answer, NULL), 0);
	calls_drop(&o->calls);
	assert_int_equal(o->n, 1);
}

static void test_message_too_long_emsgsize(void **state)
{
	struct owner *o = *state;
	static uint8_t big[MSG_MAX + 1];

	assert_int_equal(calls_send(&o->calls, o->conn, ASK, big, sizeof(big), NULL, 0, on_answer, o, NULL), -EMSGSIZE);
	assert_int_equal(o->calls.n, 0);
}

/* -- callbacks that do things ------------------------------------------------------------------------ */

static void ask_again(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct owner *o = arg;

	on_answer(arg, code, words, r, m);
	if (o->n < 3)
		ask(o, ask_again, NULL);
}

static void test_asks_in_callback(void **state)
{
	struct owner *o = *state;

	assert_int_equal(ask(o, ask_again, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		take(o);
		reply(o, o->m.id, 0, "", NULL, 0);
		spin(o);
		assert_int_equal(o->n, i + 1);
	}
	/* While all are ended: the connection still takes what the callback sends, so it is answered as well. */
	o->n = 1;
	assert_int_equal(ask(o, ask_again, NULL), 0);
	assert_true(calls_end(&o->calls, -ECANCELED, "enough"));
	assert_int_equal(o->n, 3);
	assert_int_equal(o->code, -ECANCELED);
	assert_int_equal(o->calls.n, 0);
}

/* A structure of its own, so that a use after it was freed is seen by the sanitizer. */
static struct calls *heap;

static void drop(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	on_answer(arg, code, words, r, m);
	calls_drop(heap);
	free(heap);
	heap = NULL;
}

static void end_inside(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	on_answer(arg, code, words, r, m);
	assert_false(calls_end(heap, -EIO, "inner"));
}

static void test_freed_in_callback(void **state)
{
	struct owner *o = *state;
	call_fn *const orders[][3] = {
		{ drop, on_answer, on_answer },	 { on_answer, drop, on_answer },  { on_answer, on_answer, drop },
		{ end_inside, on_answer, drop }, { end_inside, drop, on_answer },
	};
	static const unsigned answered[] = { 1, 2, 3, 3, 2 };
	uint32_t id;

	for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
		heap = malloc(sizeof(*heap));
		calls_init(heap, "the heap");
		o->n = 0;
		for (size_t j = 0; j < 3; j++)
			assert_int_equal(calls_send(heap, o->conn, ASK, "q", 1, NULL, 0, orders[i][j], o, NULL), 0);
		assert_false(calls_end(heap, -EPIPE, "gone"));
		assert_null(heap);
		assert_int_equal(o->n, answered[i]);
	}
	/* And in the answer to a call. */
	heap = malloc(sizeof(*heap));
	calls_init(heap, "the heap");
	assert_int_equal(calls_send(heap, o->conn, ASK, "q", 1, NULL, 0, drop, o, &id), 0);
	assert_int_equal(calls_send(heap, o->conn, ASK, "q", 1, NULL, 0, on_answer, o, NULL), 0);
	o->n = 0;
	calls_reply(heap,
		    &(struct msg){ .type = REPLY, .id = id, .data = (const uint8_t *)"\0\0\0\0\0\0\0\0", .len = 8 });
	assert_null(heap);
	assert_int_equal(o->n, 1);
}

static void only_drop(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct owner *o = arg;

	on_answer(arg, code, words, r, m);
	calls_drop(&o->calls);
}

/* Dropped, and used again. */
static void test_dropped_in_callback(void **state)
{
	struct owner *o = *state;

	assert_int_equal(ask(o, only_drop, NULL), 0);
	assert_int_equal(ask(o, on_answer, NULL), 0);
	assert_false(calls_end(&o->calls, -EIO, "first"));
	assert_int_equal(o->n, 1);
	calls_drop(&o->calls);
	assert_int_equal(ask(o, on_answer, NULL), 0);
	assert_true(calls_end(&o->calls, -EPIPE, "second"));
	assert_int_equal(o->n, 2);
	assert_string_equal(o->words, "second");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_matched_by_id, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_listens, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reply_ebadmsg, setup, teardown),
		cmocka_unit_test_setup_teardown(test_end_epipe, setup, teardown),
		cmocka_unit_test_setup_teardown(test_too_many_enobufs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_message_too_long_emsgsize, setup, teardown),
		cmocka_unit_test_setup_teardown(test_asks_in_callback, setup, teardown),
		cmocka_unit_test_setup_teardown(test_freed_in_callback, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dropped_in_callback, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
