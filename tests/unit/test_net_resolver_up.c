/* SPDX-License-Identifier: Apache-2.0 */
/* The upstream side: servers that are silent, fail, cut, lie, and others that answer in their place. */
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

#define SHORT_NS 30000000ull

static struct rig_reply reply;

static void say_rcode(struct rig_up *u, const uint8_t *q, size_t len, bool tcp, uint16_t rcode)
{
	uint8_t out[512];

	rig_up_send(u, out, rig_answer(out, q, len, rcode, 0), tcp);
}

static void say_servfail(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	say_rcode(u, q, len, tcp, DNS_SERVFAIL);
}

static void say_refused(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	say_rcode(u, q, len, tcp, DNS_REFUSED);
}

static void expect_answered(const struct rig *g)
{
	assert_int_equal(reply.rcode, DNS_NOERROR);
	assert_int_equal(reply.nanswers, 1);
	assert_non_null(strstr(reply.answers[0], "93.184.215.14"));
	assert_string_equal(g->verdict, "answered");
}

static void expect_failed(const struct rig *g, const char *why)
{
	assert_int_equal(reply.rcode, DNS_SERVFAIL);
	assert_string_equal(g->verdict, "failed");
	assert_non_null(strstr(g->reason, why));
	assert_int_equal(g->nremembered, 0);
}

/* -- silence and failure ----------------------------------------------------------------------------------------- */

static void test_silence_is_servfail(void **state)
{
	struct rig *g = *state;

	g->r->try_ns = SHORT_NS;
	g->up[0].respond = g->up[1].respond = NULL;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_failed(g, "127.0.0.1: no answer");
	assert_int_equal(g->up[0].nudp, 2);
	assert_int_equal(g->up[1].nudp, 1);
	/* A fresh port and id each time; one collision of two is possible, all equal are not. */
	assert_false(g->up[0].ports[0] == g->up[0].ports[1] && g->up[0].ports[0] == g->up[1].ports[0]);
	assert_false(g->up[0].ids[0] == g->up[0].ids[1] && g->up[0].ids[0] == g->up[1].ids[0]);
}

static void test_ids_and_ports_are_random(void **state)
{
	struct rig *g = *state;
	size_t steps = 0, ports = 0;

	for (size_t i = 0; i < ARRAY_LEN(g->up[0].ids); i++)
		rig_asked(g, "example.com", DNS_A, &reply);
	assert_int_equal(g->up[0].nudp, ARRAY_LEN(g->up[0].ids));
	for (size_t i = 1; i < ARRAY_LEN(g->up[0].ids); i++) {
		uint16_t id = (uint16_t)(g->up[0].ids[i] - g->up[0].ids[i - 1]);

		steps += id <= 1 || id == 0x1234;
		ports += g->up[0].ports[i] == g->up[0].ports[i - 1];
	}
	assert_true(steps < 3 && ports < 3);
}

static void test_second_server_answers(void **state)
{
	struct rig *g = *state;

	g->r->try_ns = SHORT_NS;
	g->up[0].respond = NULL;
	rig_asked(g, "example.com", DNS_A, &reply);
	if (reply.rcode == DNS_SERVFAIL)
		skip(); /* a machine that stood still for three tries */
	expect_answered(g);
	assert_true(g->up[0].nudp > 0);
	/* From now on it is asked first. */
	g->r->try_ns *= 1000;
	g->up[0].nudp = g->up[1].nudp = 0;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_answered(g);
	assert_int_equal(g->up[0].nudp, 0);
	assert_int_equal(g->up[1].nudp, 1);
}

static void test_failing_server_is_left(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_servfail;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_answered(g);
	g->r->first = 0;
	g->up[0].respond = say_refused;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_answered(g);
	g->up[1].respond = say_servfail;
	g->nremembered = 0;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_failed(g, "it failed to find out");
}

/* Nobody listens: the host says so at once. */
static void test_closed_port(void **state)
{
	struct rig *g = *state;

	loop_del(g->loop, &g->up[0].udp_src);
	fd_close(&g->up[0].udp);
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_answered(g);
	assert_int_equal(g->up[1].nudp, 1);
	loop_del(g->loop, &g->up[1].udp_src);
	fd_close(&g->up[1].udp);
	g->nremembered = 0;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_failed(g, "Connection refused");
}

static void test_no_server(void **state)
{
	struct rig *g = *state;

	resolver_set_upstreams(g->r, NULL, 0);
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_failed(g, "no upstream server is known");
}

static void say_formerr_to_edns(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	if (q[11])
		say_rcode(u, q, len, tcp, DNS_FORMERR);
	else
		rig_say_public(u, q, len, tcp);
}

static void test_server_without_edns(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = g->up[1].respond = say_formerr_to_edns;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_answered(g);
	assert_int_equal(g->up[0].nudp + g->up[1].nudp, 2);
}

static bool first_has_it(struct rig *g)
{
	return g->up[0].nudp == 1;
}

static void test_upstreams_change_meanwhile(void **state)
{
	struct rig *g = *state;
	struct resolver_upstream second = g->r->up[1];

	g->up[0].respond = NULL;
	rig_ask(g, 1, "example.com", DNS_A, 0);
	rig_until(g, first_has_it);
	resolver_set_upstreams(g->r, &second, 1);
	rig_asked(g, "new.example.com", DNS_A, &reply);
	assert_string_equal(reply.question, "new.example.com. A");
	expect_answered(g);
	assert_int_equal(g->up[1].nudp, 1);
	/* The old question goes on at the old one. */
	rig_say_public(&g->up[0], g->up[0].last, g->up[0].last_len, false);
	rig_take(g, &reply);
	assert_int_equal(reply.id, 1);
	expect_answered(g);
	assert_int_equal(g->r->first, 0);
}

/* -- lies -------------------------------------------------------------------------------------------------------- */

static void lie(uint8_t *out, size_t *ret_len, const uint8_t *q, size_t len)
{
	*ret_len = rig_answer(out, q, len, 0, 1);
	*ret_len += rig_record(out + *ret_len, NULL, DNS_A, 60, "93.184.215.66");
}

/* What does not answer the question is passed over, and the true answer still counts. */
static void say_lies_first(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[512], other[512];
	size_t n;
	int stranger;

	lie(out, &n, q, len);
	out[1] ^= 1; /* the id */
	rig_up_send(u, out, n, tcp);
	lie(out, &n, q, len);
	out[14] ^= 1; /* the name */
	rig_up_send(u, out, n, tcp);
	lie(out, &n, other, rig_question(other, (uint16_t)(q[0] << 8 | q[1]), "example.com", DNS_AAAA, 0));
	rig_up_send(u, out, n, tcp);
	lie(out, &n, other, rig_question(other, (uint16_t)(q[0] << 8 | q[1]), "example.co", DNS_A, 0));
	rig_up_send(u, out, n, tcp);
	lie(out, &n, q, len);
	out[2] = 0; /* no answer at all */
	rig_up_send(u, out, n, tcp);
	lie(out, &n, q, len);
	out[5] = 2; /* two questions */
	rig_up_send(u, out, n, tcp);
	rig_up_send(u, out, 11, tcp);
	rig_up_send(u, out, 0, tcp);
	/* The right message from the wrong port. */
	lie(out, &n, q, len);
	stranger = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(sendto(stranger, out, n, 0, (struct sockaddr *)&u->peer, sizeof(struct sockaddr_in)), n);
	close(stranger);
	rig_say_public(u, q, len, tcp);
}

static void test_lies_are_passed_over(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_lies_first;
	for (int i = 0; i < 3; i++) {
		rig_asked(g, "example.com", DNS_A, &reply);
		expect_answered(g);
	}
	assert_int_equal(g->up[0].nudp, 3);
	assert_int_equal(g->up[1].nudp, 0);
}

static size_t broken_at;

static void say_broken(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[512];
	size_t n;

	lie(out, &n, q, len);
	rig_up_send(u, out, n - broken_at, tcp);
}

static void test_broken_answer_is_left(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_broken;
	for (broken_at = 1; broken_at < 16; broken_at++) {
		g->r->first = 0;
		rig_asked(g, "example.com", DNS_A, &reply);
		expect_answered(g);
		assert_int_equal(g->up[1].nudp, broken_at);
	}
}

static void say_too_many_records(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	static uint8_t out[RIG_MESSAGE];
	uint16_t count = DNS_RECORDS_MAX + 1;
	size_t n = rig_answer(out, q, len, tcp ? 0 : 0x200, tcp ? count : 0);

	for (unsigned i = 0; tcp && i < count; i++)
		n += rig_record(out + n, NULL, DNS_A, 60, "93.184.215.14");
	rig_up_send(u, out, n, tcp);
}

static void test_too_many_records(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = g->up[1].respond = say_too_many_records;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_failed(g, "the answer cannot be read");
	assert_int_equal(g->up[0].ntcp + g->up[1].ntcp, 3);
}

/* -- TCP --------------------------------------------------------------------------------------------------------- */

static void say_cut(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[512];

	if (tcp)
		rig_say_public(u, q, len, tcp);
	else /* the count says more than there is */
		rig_up_send(u, out, rig_answer(out, q, len, 0x200, 9), tcp);
}

static void test_cut_answer_is_asked_over_tcp(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_cut;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_answered(g);
	assert_int_equal(g->up[0].nudp, 1);
	assert_int_equal(g->up[0].ntcp, 1);
	assert_int_equal(g->up[1].nudp, 0);
}

static void say_cut_always(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[512];

	rig_up_send(u, out, rig_answer(out, q, len, 0x200, 0), tcp);
}

static void say_wrong_over_tcp(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[512];
	size_t n = rig_answer(out, q, len, 0x200, 0);

	out[1] ^= tcp;
	rig_up_send(u, out, n, tcp);
}

static void say_nothing_over_tcp(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	static const uint8_t empty[2];
	uint8_t out[512];

	if (tcp)
		assert_int_equal(send(u->conn, empty, sizeof(empty), MSG_NOSIGNAL), sizeof(empty));
	else
		rig_up_send(u, out, rig_answer(out, q, len, 0x200, 0), tcp);
}

static void say_half_over_tcp(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[512];

	if (tcp) {
		assert_int_equal(send(u->conn, "\x00\x40half", 6, MSG_NOSIGNAL), 6);
		loop_del(u->rig->loop, &u->conn_src);
		fd_close(&u->conn);
	} else {
		rig_up_send(u, out, rig_answer(out, q, len, 0x200, 0), tcp);
	}
}

static void test_tcp_that_fails(void **state)
{
	static const struct {
		void (*respond)(struct rig_up *u, const uint8_t *q, size_t len, bool tcp);
		const char *why;
	} cases[] = {
		{ say_cut_always, "the answer was cut" },
		{ say_wrong_over_tcp, "it answers something else" },
		{ say_nothing_over_tcp, "Bad message" },
		{ say_half_over_tcp, "Connection reset" },
	};
	struct rig *g = *state;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		g->up[0].respond = g->up[1].respond = cases[i].respond;
		rig_asked(g, "example.com", DNS_A, &reply);
		expect_failed(g, cases[i].why);
		assert_int_equal(g->up[0].ntcp + g->up[1].ntcp, 3 * (i + 1));
	}
	/* Nobody listens there: the other server's turn. */
	g->up[0].respond = say_cut_always;
	g->up[1].respond = rig_say_public;
	loop_del(g->loop, &g->up[0].tcp_src);
	fd_close(&g->up[0].tcp);
	g->r->first = 0;
	rig_asked(g, "example.com", DNS_A, &reply);
	expect_answered(g);
}

static bool tcp_has_it(struct rig *g)
{
	return g->up[0].ntcp == 1;
}

static void say_cut_then_silent(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	if (!tcp)
		say_cut_always(u, q, len, tcp);
}

static void test_client_goes_meanwhile(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_cut_then_silent;
	rig_ask(g, 1, "a.example.com", DNS_A, 0);
	rig_until(g, tcp_has_it);
	rig_ask(g, 2, "b.example.com", DNS_A, 0); /* not even begun */
	g->c = resolver_client_free(g->c);
	for (int i = 0; i < 10; i++)
		loop_once(g->loop, 0);
	assert_true(rig_silent(g));
	assert_int_equal(g->nevents, 0);
}

/* -- resolv.conf ------------------------------------------------------------------------------------------------- */

static void test_resolv_conf(void **state)
{
	static const char text[] = "# nameserver 192.0.2.1\n"
				   "search example.com\n"
				   "nameserver 192.0.2.2\n"
				   " nameserver 192.0.2.3\n"
				   "nameserver\t2001:db8::1#5353  \r\n"
				   "nameserver192.0.2.4\n"
				   "nameserver\n"
				   "nameserver \n"
				   "nameserver example.com\n"
				   "nameserver fe80::1%eth0\n"
				   "nameserver 192.0.2.5#\nnameserver 192.0.2.5#0\nnameserver 192.0.2.5#65536\n"
				   "nameserver 192.0.2.5#-1\nnameserver 192.0.2.5#5x\n"
				   "nameserver 1111111111111111111111111111111111111111111111111111111111111111111111\n"
				   "nameserver 192.0.2.6";
	struct resolver_upstream out[4];
	char a[NET_ADDR_TEXT];

	(void)state;
	assert_int_equal(resolver_parse_resolv_conf(text, out, ARRAY_LEN(out)), 3);
	assert_string_equal(net_addr_text(&out[0].addr, a), "192.0.2.2");
	assert_int_equal(out[0].port, 53);
	assert_string_equal(net_addr_text(&out[1].addr, a), "2001:db8::1");
	assert_int_equal(out[1].port, 5353);
	assert_string_equal(net_addr_text(&out[2].addr, a), "192.0.2.6");
	assert_int_equal(resolver_parse_resolv_conf(text, out, 2), 2);
	assert_int_equal(resolver_parse_resolv_conf(text, out, 0), 0);
	assert_int_equal(resolver_parse_resolv_conf("", out, 4), 0);
	assert_int_equal(resolver_parse_resolv_conf("\n\n\nnameserver", out, 4), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_silence_is_servfail),
		TEST(test_ids_and_ports_are_random),
		TEST(test_second_server_answers),
		TEST(test_failing_server_is_left),
		TEST(test_closed_port),
		TEST(test_no_server),
		TEST(test_server_without_edns),
		TEST(test_upstreams_change_meanwhile),
		TEST(test_lies_are_passed_over),
		TEST(test_broken_answer_is_left),
		TEST(test_too_many_records),
		TEST(test_cut_answer_is_asked_over_tcp),
		TEST(test_tcp_that_fails),
		TEST(test_client_goes_meanwhile),
		cmocka_unit_test(test_resolv_conf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
