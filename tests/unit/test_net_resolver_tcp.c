/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that do not fit into a datagram, and guests' TCP connections. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "net_dns_rig.h"

#define MANY	 100u /* addresses: 1600 bytes and more */
#define SHORT_NS 20000000ull

static struct rig_reply reply;
static unsigned naddrs; /* of say_many() */

static void say_many(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	static uint8_t out[RIG_MESSAGE];
	size_t n = rig_answer(out, q, len, tcp ? 0 : 0x200, tcp ? (uint16_t)naddrs : 0);
	char text[NET_ADDR_TEXT];

	for (unsigned i = 0; tcp && i < naddrs; i++) {
		snprintf(text, sizeof(text), "93.184.%u.%u", i / 200, i % 200 + 1);
		n += rig_record(out + n, NULL, DNS_A, 60, text);
	}
	rig_up_send(u, out, n, tcp);
}

static void asked_with(struct rig *g, unsigned n, unsigned edns)
{
	naddrs = n;
	g->up[0].respond = say_many;
	g->nremembered = 0;
	rig_ask(g, 1, "example.com", DNS_A, edns);
	rig_take(g, &reply);
	assert_int_equal(reply.rcode, DNS_NOERROR);
}

/* Header and question are 29 bytes, an address is 16, the OPT record 11. */
static void test_answers_that_do_not_fit(void **state)
{
	static const struct {
		unsigned edns, fits;
	} cases[] = { { 0, 30 }, { 100, 29 }, { 512, 29 }, { 1000, 60 }, { 1232, 74 }, { 4096, 74 }, { 65535, 74 } };
	struct rig *g = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		asked_with(g, cases[i].fits, cases[i].edns);
		assert_false(reply.tc);
		assert_int_equal(reply.nanswers, cases[i].fits);
		assert_int_equal(g->nremembered, cases[i].fits);
		asked_with(g, cases[i].fits + 1, cases[i].edns);
		assert_true(reply.tc);
		assert_int_equal(reply.edns, cases[i].edns > 0);
		assert_int_equal(reply.nanswers, 0);
		assert_string_equal(reply.question, "example.com. A");
		assert_int_equal(g->nremembered + g->naddrs, 0);
		assert_string_equal(g->verdict, "answered");
	}
}

static size_t frame(uint8_t *out, uint16_t id, const char *name)
{
	size_t len = rig_question(out + 2, id, name, DNS_A, 0);

	out[0] = (uint8_t)(len >> 8);
	out[1] = (uint8_t)len;
	return len + 2;
}

static void say(int fd, const void *data, size_t len)
{
	assert_int_equal(send(fd, data, len, MSG_NOSIGNAL), len);
}

static void test_tcp_answer_is_whole(void **state)
{
	struct rig *g = *state;
	AUTO_FD fd = rig_connect(g);
	uint8_t q[512];

	naddrs = MANY;
	g->up[0].respond = say_many;
	say(fd, q, frame(q, 7, "Example.com"));
	assert_true(rig_tcp_take(g, fd, &reply));
	assert_int_equal(reply.id, 7);
	assert_false(reply.tc);
	assert_int_equal(reply.nanswers, MANY);
	assert_string_equal(reply.question, "Example.com. A");
	assert_int_equal(g->nremembered, MANY);
	/* There is an end to it. */
	naddrs = DNS_ADDRS_MAX + 1;
	say(fd, q, frame(q, 8, "example.com"));
	assert_true(rig_tcp_take(g, fd, &reply));
	assert_int_equal(reply.nanswers, DNS_ADDRS_MAX);
}

static void test_tcp_in_single_bytes(void **state)
{
	struct rig *g = *state;
	AUTO_FD fd = rig_connect(g);
	uint8_t q[512];

	for (uint16_t id = 1; id <= 2; id++) {
		size_t len = frame(q, id, "example.com");

		for (size_t i = 0; i < len; i++) {
			say(fd, q + i, 1);
			loop_once(g->loop, 0);
		}
		assert_true(rig_tcp_take(g, fd, &reply));
		assert_int_equal(reply.id, id);
		assert_int_equal(reply.nanswers, 1);
	}
}

/* Twenty at once, some of them answered without upstream and so before the others. */
static void test_tcp_pipelined(void **state)
{
	struct rig *g = *state;
	AUTO_FD fd = rig_connect(g);
	static uint8_t q[8192];
	unsigned seen = 0;
	size_t n = 0;

	for (uint16_t id = 0; id < 20; id++)
		n += frame(q + n, id, id % 3 ? "example.com" : "localhost");
	say(fd, q, n);
	for (int i = 0; i < 20; i++) {
		assert_true(rig_tcp_take(g, fd, &reply));
		assert_int_equal(reply.rcode, reply.id % 3 ? DNS_NOERROR : DNS_NXDOMAIN);
		assert_int_equal(reply.nanswers, reply.id % 3 ? 1 : 0);
		seen |= 1u << reply.id;
	}
	assert_int_equal(seen, (1u << 20) - 1);
	assert_int_equal(g->c->nasked, 0);
}

static void test_tcp_half_closed(void **state)
{
	struct rig *g = *state;
	AUTO_FD fd = rig_connect(g);
	uint8_t q[512];

	say(fd, q, frame(q, 7, "example.com"));
	assert_int_equal(shutdown(fd, SHUT_WR), 0);
	assert_true(rig_tcp_take(g, fd, &reply));
	assert_int_equal(reply.nanswers, 1);
	assert_false(rig_tcp_take(g, fd, &reply));
	assert_int_equal(g->c->nconns, 0);
}

static void test_tcp_malformed(void **state)
{
	struct rig *g = *state;
	static uint8_t q[RIG_MESSAGE + 2];
	int fd = rig_connect(g);

	/* A message of no bytes ends the connection. */
	say(fd, "\0\0", 2);
	assert_false(rig_tcp_take(g, fd, &reply));
	close(fd);
	/* A long one, and what is no question, do not. */
	fd = rig_connect(g);
	memset(q, 0, sizeof(q));
	q[0] = q[1] = 0xff;
	say(fd, q, 2 + 65535);
	assert_true(rig_tcp_take(g, fd, &reply));
	assert_int_equal(reply.rcode, DNS_FORMERR);
	say(fd, "\0\x01x", 3);
	say(fd, q, frame(q, 7, "example.com"));
	assert_true(rig_tcp_take(g, fd, &reply));
	assert_int_equal(reply.id, 7);
	close(fd);
}

static bool one_left(struct rig *g)
{
	return g->c->nconns == RESOLVER_TCP - 1;
}

static void test_tcp_connections_are_limited(void **state)
{
	struct rig *g = *state;
	int fds[RESOLVER_TCP], more;
	uint8_t q[512];

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = rig_connect(g);
	more = rig_connect(g);
	assert_false(rig_tcp_take(g, more, &reply));
	close(more);
	close(fds[0]);
	rig_until(g, one_left);
	fds[0] = rig_connect(g);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		say(fds[i], q, frame(q, (uint16_t)i, "example.com"));
		assert_true(rig_tcp_take(g, fds[i], &reply));
		assert_int_equal(reply.id, i);
		close(fds[i]);
	}
}

static void test_tcp_silence_ends(void **state)
{
	struct rig *g = *state;
	int fd;

	g->r->idle_ns = SHORT_NS;
	fd = rig_connect(g);
	say(fd, "\0", 1); /* half of a prefix */
	assert_false(rig_tcp_take(g, fd, &reply));
	assert_int_equal(g->c->nconns, 0);
	close(fd);
}

static struct rig_up *waiting;
static bool late;

static void say_later(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	(void)q;
	(void)len;
	(void)tcp;
	waiting = u;
}

static bool has_waiting(struct rig *g)
{
	(void)g;
	return waiting;
}

static void on_late(void *arg)
{
	(void)arg;
	late = true;
}

static bool is_late(struct rig *g)
{
	(void)g;
	return late;
}

/* A connection that waits for upstream is not silent. */
static void test_tcp_waits_for_upstream(void **state)
{
	struct rig *g = *state;
	loop_id timer;
	uint8_t q[512];
	int fd;

	waiting = NULL;
	late = false;
	g->r->idle_ns = SHORT_NS;
	g->up[0].respond = say_later;
	fd = rig_connect(g);
	say(fd, q, frame(q, 7, "example.com"));
	rig_until(g, has_waiting);
	/* Three times as long; the loop runs timers in their order. */
	assert_int_equal(loop_timer(g->loop, now_ns() + 3 * SHORT_NS, on_late, NULL, &timer), 0);
	rig_until(g, is_late);
	assert_int_equal(g->c->nconns, 1);
	rig_say_public(waiting, waiting->last, waiting->last_len, false);
	assert_true(rig_tcp_take(g, fd, &reply));
	assert_int_equal(reply.nanswers, 1);
	assert_false(rig_tcp_take(g, fd, &reply));
	close(fd);
}

static bool nobody_left(struct rig *g)
{
	return g->c->nconns == 0;
}

/* The guest closes while its question is under way: it is forgotten, the others are not. */
static void test_tcp_closed_meanwhile(void **state)
{
	struct rig *g = *state;
	int fd = rig_connect(g);
	struct linger now = { .l_onoff = 1 };
	uint8_t q[512];

	waiting = NULL;
	g->up[0].respond = say_later;
	say(fd, q, frame(q, 7, "example.com"));
	rig_until(g, has_waiting);
	rig_ask(g, 8, "other.example.com", DNS_A, 0);
	assert_int_equal(g->c->nasked, 2);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
	close(fd);
	rig_until(g, nobody_left);
	assert_int_equal(g->c->nasked, 1);
	assert_int_equal(g->nevents, 0);
	/* And all of it goes with the client. */
	fd = rig_connect(g);
	say(fd, q, frame(q, 7, "example.com"));
	for (int i = 0; i < 100 && g->c->nasked < 2; i++)
		loop_once(g->loop, 10);
	assert_int_equal(g->c->nasked, 2);
	g->c = resolver_client_free(g->c);
	assert_false(rig_tcp_take(g, fd, &reply));
	close(fd);
}

/* A guest that asks without reading: answers wait up to a limit, then nothing more is read. */
static void test_tcp_guest_that_does_not_read(void **state)
{
	struct rig *g = *state;
	AUTO_FD fd = rig_connect(g);
	static uint8_t q[8192];
	size_t n = 0, sent = 0, stuck = 0;
	int small = 4096;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	g->allowed = NULL;
	while (n + 300 < sizeof(q))
		n += frame(q + n, (uint16_t)n, "example.com");
	while (stuck < 50 && sent < 256u << 20) {
		ssize_t r = send(fd, q + sent % n, n - sent % n, MSG_DONTWAIT | MSG_NOSIGNAL);

		stuck = r < 0 ? stuck + 1 : 0;
		sent += r > 0 ? (size_t)r : 0;
		for (int i = 0; i < 4; i++)
			loop_once(g->loop, 0);
	}
	assert_true(stuck > 0 && sent < 256u << 20);
	assert_int_equal(g->c->nconns, 1);
	/* It reads again, and everything is there. */
	for (int i = 0; i < 200; i++)
		assert_true(rig_tcp_take(g, fd, &reply));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_answers_that_do_not_fit),
		TEST(test_tcp_answer_is_whole),
		TEST(test_tcp_in_single_bytes),
		TEST(test_tcp_pipelined),
		TEST(test_tcp_half_closed),
		TEST(test_tcp_malformed),
		TEST(test_tcp_connections_are_limited),
		TEST(test_tcp_silence_ends),
		TEST(test_tcp_waits_for_upstream),
		TEST(test_tcp_closed_meanwhile),
		TEST(test_tcp_guest_that_does_not_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
