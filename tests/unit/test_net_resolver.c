/* SPDX-License-Identifier: Apache-2.0 */
/* What guests are told: names and types that are passed on, filtered, denied; and the limits. */
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

#define TXT	    16u
#define SVCB	    64u
#define HTTPS	    65u
#define NSEC_PER_S  1000000000ull
#define FLAG_BYTE   2 /* of a header: QR and opcode */
#define COUNT_BYTES 4
#define OPT_BYTES   11

static struct rig_reply reply;

static void expect_told(const struct rig *g, const char *verdict, const char *name, const char *type)
{
	assert_string_equal(g->verdict, verdict);
	assert_string_equal(g->name, name);
	assert_string_equal(g->type, type);
}

static void expect_nothing_sent(const struct rig *g)
{
	assert_int_equal(g->up[0].nudp + g->up[0].ntcp + g->up[1].nudp + g->up[1].ntcp, 0);
}

/* -- passed on --------------------------------------------------------------------------------------------------- */

static void test_addresses_are_passed_on(void **state)
{
	struct rig *g = *state;
	char text[NET_ADDR_TEXT];

	rig_asked(g, "eXamPle.COM", DNS_A, &reply);
	assert_int_equal(reply.rcode, DNS_NOERROR);
	assert_false(reply.tc || reply.edns);
	assert_string_equal(reply.question, "eXamPle.COM. A");
	assert_int_equal(reply.nanswers, 1);
	assert_string_equal(reply.answers[0], "eXamPle.COM. 300 IN A 93.184.215.14");
	expect_told(g, "answered", "example.com", "A");
	assert_string_equal(g->reason, "");
	assert_int_equal(g->naddrs, 1);
	assert_string_equal(net_addr_text(&g->addrs[0], text), "93.184.215.14");
	assert_int_equal(g->nremembered, 1);
	assert_string_equal(g->remembered_name, "example.com");
	assert_int_equal(g->remembered_ttl_s, 300);
	assert_true(g->told_before_answer);
	rig_asked(g, "example.com", DNS_AAAA, &reply);
	assert_string_equal(reply.answers[0], "example.com. 300 IN AAAA 2606:2800::1");
	expect_told(g, "answered", "example.com", "AAAA");
	assert_string_equal(net_addr_text(&g->remembered, text), "2606:2800::1");
}

/* What leaves the host is made anew: lower case, our id, our options. */
static void test_question_is_made_anew(void **state)
{
	struct rig *g = *state;
	uint8_t want[512];
	size_t len;

	rig_asked(g, "eXamPle.COM", DNS_A, &reply);
	len = rig_question(want, g->up[0].ids[0], "example.com", DNS_A, DNS_UDP_MAX);
	assert_int_equal(g->up[0].last_len, len);
	assert_memory_equal(g->up[0].last, want, len);
}

static void say_chain(struct rig_up *u, const uint8_t *q, size_t len, bool tcp, const char *addr)
{
	uint8_t out[1024];
	size_t n = rig_answer(out, q, len, 0, 5);

	n += rig_record(out + n, "CDN.example.net", 5, 20, "edge.example.org");
	n += rig_record(out + n, "stranger.example", DNS_A, 60, "93.184.215.99");
	n += rig_record(out + n, NULL, 5, 600, "cdn.EXAMPLE.net");
	n += rig_record(out + n, "edge.example.org", DNS_A, 60, addr);
	n += rig_record(out + n, "edge.example.org", DNS_AAAA, 60, "2606:2800::1");
	rig_up_send(u, out, n, tcp);
}

static void say_chain_public(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	say_chain(u, q, len, tcp, "93.184.215.14");
}

static void say_chain_private(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	say_chain(u, q, len, tcp, "10.1.2.3");
}

static void test_chain_is_followed(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_chain_public;
	rig_asked(g, "www.example.com", DNS_A, &reply);
	assert_int_equal(reply.nanswers, 3);
	assert_string_equal(reply.answers[0], "www.example.com. 600 IN CNAME cdn.EXAMPLE.net.");
	assert_string_equal(reply.answers[1], "cdn.EXAMPLE.net. 20 IN CNAME edge.example.org.");
	assert_string_equal(reply.answers[2], "edge.example.org. 60 IN A 93.184.215.14");
	assert_string_equal(g->remembered_name, "www.example.com");
	assert_int_equal(g->remembered_ttl_s, 20);
	assert_int_equal(g->nremembered, 1);
}

static void test_chain_to_private_is_filtered(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_chain_private;
	rig_asked(g, "www.example.com", DNS_A, &reply);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
	assert_int_equal(reply.nanswers, 0);
	expect_told(g, "filtered", "www.example.com", "A");
	assert_string_equal(g->reason, "private");
	assert_int_equal(g->nremembered + g->naddrs, 0);
}

static void say_loop(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[1024];
	size_t n = rig_answer(out, q, len, 0, 2);

	n += rig_record(out + n, NULL, 5, 20, "b.example.com");
	n += rig_record(out + n, "b.example.com", 5, 20, "a.example.com");
	rig_up_send(u, out, n, tcp);
}

static void test_chain_without_end(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_loop;
	rig_ask(g, 1, "a.example.com", DNS_A, DNS_UDP_MAX);
	rig_take(g, &reply);
	assert_int_equal(reply.rcode, DNS_NOERROR);
	assert_int_equal(reply.nanswers, DNS_CHAIN_MAX);
}

static const char *say_addr; /* of say_one() */

static void say_one(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[1024];
	size_t n = rig_answer(out, q, len, 0, 1);

	n += rig_record(out + n, NULL, strchr(say_addr, ':') ? DNS_AAAA : DNS_A, 1, say_addr);
	rig_up_send(u, out, n, tcp);
}

static void test_rebinding(void **state)
{
	static const char *const private[] = {
		"127.0.0.1", "0.0.0.0", "10.0.0.1",	   "169.254.169.254",	   "192.168.1.1",    "::1",
		"fe80::1",   "fd00::1", "::ffff:10.0.0.1", "::ffff:93.184.215.14", "64:ff9b::a00:1", "::",
		"ff02::1"
	};
	struct rig *g = *state;

	g->up[0].respond = say_one;
	say_addr = "93.184.215.14";
	rig_asked(g, "rebind.example", DNS_A, &reply);
	assert_int_equal(reply.nanswers, 1);
	g->nremembered = 0;
	for (size_t i = 0; i < ARRAY_LEN(private); i++) {
		say_addr = private[i];
		rig_asked(g, "rebind.example", strchr(say_addr, ':') ? DNS_AAAA : DNS_A, &reply);
		assert_int_equal(reply.rcode, DNS_NXDOMAIN);
		assert_int_equal(reply.nanswers, 0);
		assert_string_equal(g->verdict, "filtered");
		assert_true(g->reason[0]);
	}
	assert_int_equal(g->nremembered, 0);
}

static void say_mixed(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[1024];
	size_t n = rig_answer(out, q, len, 0, 3);

	n += rig_record(out + n, NULL, DNS_A, 60, "192.168.1.1");
	n += rig_record(out + n, NULL, DNS_A, 60, "93.184.215.14");
	n += rig_record(out + n, NULL, DNS_A, 0x80000001, "127.0.0.1");
	rig_up_send(u, out, n, tcp);
}

static void test_mixed_answer_keeps_public(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_mixed;
	rig_asked(g, "mixed.example", DNS_A, &reply);
	assert_int_equal(reply.nanswers, 1);
	assert_string_equal(reply.answers[0], "mixed.example. 60 IN A 93.184.215.14");
	assert_string_equal(g->verdict, "answered");
	assert_string_equal(g->reason, "2 refused: loopback");
	assert_int_equal(g->naddrs, 1);
}

static void say_no_such(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[512];

	rig_up_send(u, out, rig_answer(out, q, len, DNS_NXDOMAIN, 0), tcp);
}

static void say_no_address(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint8_t out[512];

	rig_up_send(u, out, rig_answer(out, q, len, 0, 0), tcp);
}

static void test_negative_answers(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = say_no_such;
	rig_asked(g, "none.example", DNS_A, &reply);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
	assert_string_equal(g->verdict, "answered");
	g->up[0].respond = say_no_address;
	rig_asked(g, "none.example", DNS_AAAA, &reply);
	assert_int_equal(reply.rcode, DNS_NOERROR);
	assert_int_equal(reply.nanswers, 0);
	assert_string_equal(g->verdict, "answered");
	assert_int_equal(g->up[0].nudp, 2);
}

/* -- not sent ---------------------------------------------------------------------------------------------------- */

static void test_other_types_are_empty(void **state)
{
	static const uint16_t types[] = { HTTPS, SVCB, TXT, 1234, 255, 252 };
	static const char *const names[] = { "HTTPS", "SVCB", "TXT", "TYPE1234", "ANY", "AXFR" };
	struct rig *g = *state;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		rig_asked(g, "example.com", types[i], &reply);
		assert_int_equal(reply.rcode, DNS_NOERROR);
		assert_int_equal(reply.nanswers, 0);
		expect_told(g, "answered", "example.com", names[i]);
	}
	expect_nothing_sent(g);
}

static void test_denied_names_are_never_sent(void **state)
{
	static const char *const names[] = { "example.org",	 "www.example.com", "com",	   "xample.com",
					     "example.com.evil", "localhost",	    "a.localhost", "" };
	static const uint16_t types[] = { DNS_A, DNS_AAAA, HTTPS, TXT, DNS_PTR };
	struct rig *g = *state;

	g->allowed = "example.com";
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		for (size_t t = 0; t < ARRAY_LEN(types); t++) {
			rig_asked(g, names[i], types[t], &reply);
			assert_int_equal(reply.rcode, DNS_NXDOMAIN);
			assert_string_equal(g->verdict, "denied");
			assert_string_equal(g->name, names[i][0] ? names[i] : ".");
			assert_true(g->reason[0]);
		}
	}
	/* Denied even where everything is allowed. */
	g->allowed = "";
	rig_asked(g, "localhost", DNS_A, &reply);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
	rig_asked(g, "LocalHost", DNS_AAAA, &reply);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
	rig_asked(g, "1.2.0.192.in-addr.arpa", DNS_PTR, &reply);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
	expect_nothing_sent(g);
	g->allowed = NULL;
	rig_asked(g, "example.com", DNS_A, &reply);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
	expect_nothing_sent(g);
}

static void test_odd_bytes_are_denied(void **state)
{
	static const uint8_t odd[] = { '.', '\0', ' ', '\\', 0xff, '\n', '*', '/', '"' };
	struct rig *g = *state;
	uint8_t q[512];
	size_t len;

	for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
		len = rig_question(q, 7, "exaXple.com", DNS_A, 0);
		*(uint8_t *)memchr(q, 'X', len) = odd[i];
		rig_send(g, q, len);
		rig_take(g, &reply);
		assert_int_equal(reply.rcode, DNS_NXDOMAIN);
		expect_told(g, "denied", "exa?ple.com", "A");
	}
	expect_nothing_sent(g);
}

static void test_name_lengths(void **state)
{
	char label[64], name[300];
	struct rig *g = *state;
	uint8_t q[512];
	size_t len;

	memset(label, 'a', 63);
	label[63] = '\0';
	snprintf(name, sizeof(name), "%s.%s.%s.%.61s", label, label, label, label);
	rig_asked(g, name, DNS_A, &reply);
	assert_int_equal(reply.rcode, DNS_NOERROR);
	assert_string_equal(g->name, name);
	assert_int_equal(strlen(g->name), NET_NAME_MAX);
	snprintf(name, sizeof(name), "%s.%s.%s.%.62s", label, label, label, label);
	len = rig_question(q, 7, name, DNS_A, 0);
	rig_send(g, q, len);
	rig_take(g, &reply);
	assert_int_equal(reply.rcode, DNS_FORMERR);
	assert_string_equal(g->verdict, "malformed");
}

static void test_policy_that_changes_meanwhile(void **state)
{
	struct rig *g = *state;

	rig_ask(g, 1, "example.com", DNS_A, 0);
	g->allowed = NULL;
	rig_take(g, &reply);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
	assert_string_equal(g->verdict, "denied");
	assert_int_equal(g->nremembered, 0);
}

/* -- malformed --------------------------------------------------------------------------------------------------- */

static void expect_rcode(struct rig *g, const uint8_t *q, size_t len, int rcode)
{
	size_t before = g->nevents;

	rig_send(g, q, len);
	rig_take(g, &reply);
	assert_int_equal(reply.rcode, rcode);
	assert_int_equal(reply.nanswers, 0);
	assert_int_equal(reply.id, 7);
	assert_string_equal(g->verdict, "malformed");
	assert_int_equal(g->nevents, before + 1);
}

static void test_malformed(void **state)
{
	struct rig *g = *state;
	static uint8_t q[DNS_QUESTION_MAX + 1];
	size_t len = rig_question(q, 7, "example.com", DNS_A, 0);

	for (size_t cut = 12; cut < len; cut++)
		expect_rcode(g, q, cut, DNS_FORMERR);
	for (uint8_t opcode = 1; opcode < 16; opcode++) {
		q[FLAG_BYTE] = (uint8_t)(opcode << 3);
		expect_rcode(g, q, len, DNS_NOTIMP);
		g->c->refilled_ns -= NSEC_PER_S;
	}
	q[FLAG_BYTE] = 0;
	/* each count, none and too many */
	for (int i = 0; i < 4; i++) {
		q[COUNT_BYTES + 2 * i + 1] = i == 0 ? 0 : i == 3 ? 2 : 1;
		expect_rcode(g, q, len, DNS_FORMERR);
		q[COUNT_BYTES + 2 * i] = 0xff;
		expect_rcode(g, q, len, DNS_FORMERR);
		q[COUNT_BYTES + 2 * i] = 0;
		q[COUNT_BYTES + 2 * i + 1] = i == 0;
	}
	q[len - 1] = 3; /* class CH */
	expect_rcode(g, q, len, DNS_NOTIMP);
	assert_string_equal(reply.question, "example.com. A");
	q[len - 1] = 1;
	q[12] = 0xc0; /* a pointer to itself, to the header, beyond the end; a label of 64 */
	q[13] = 12;
	expect_rcode(g, q, len, DNS_FORMERR);
	q[13] = 0;
	expect_rcode(g, q, len, DNS_FORMERR);
	q[13] = 200;
	expect_rcode(g, q, len, DNS_FORMERR);
	q[12] = 0x40;
	expect_rcode(g, q, len, DNS_FORMERR);
	len = rig_question(q, 7, "example.com", DNS_A, 0);
	memset(q + len, 0, sizeof(q) - len);
	expect_rcode(g, q, sizeof(q), DNS_FORMERR);
	expect_nothing_sent(g);
}

static void test_not_questions_are_not_answered(void **state)
{
	struct rig *g = *state;
	uint8_t q[512];
	size_t len = rig_question(q, 7, "example.com", DNS_A, 0);

	for (size_t cut = 0; cut < 12; cut++)
		rig_send(g, q, cut);
	q[FLAG_BYTE] |= 0x80; /* an answer */
	rig_send(g, q, len);
	assert_true(rig_silent(g));
	assert_int_equal(g->nevents, 13);
	assert_string_equal(g->verdict, "malformed");
	expect_nothing_sent(g);
}

static void test_edns(void **state)
{
	struct rig *g = *state;
	uint8_t q[512];
	size_t len;

	rig_ask(g, 7, "example.com", DNS_A, 4096);
	rig_take(g, &reply);
	assert_true(reply.edns);
	assert_int_equal(reply.nanswers, 1);
	len = rig_question(q, 7, "example.com", DNS_A, 4096);
	q[len - 5] = 1; /* the version */
	expect_rcode(g, q, len, DNS_BADVERS);
	assert_true(reply.edns);
	/* two OPT records */
	len = rig_question(q, 7, "example.com", DNS_A, 4096);
	memcpy(q + len, q + len - OPT_BYTES, OPT_BYTES);
	q[11] = 2;
	expect_rcode(g, q, len + OPT_BYTES, DNS_FORMERR);
	/* an OPT record that ends early */
	len = rig_question(q, 7, "example.com", DNS_A, 4096);
	expect_rcode(g, q, len - 1, DNS_FORMERR);
	q[len - 1] = 4;
	expect_rcode(g, q, len, DNS_FORMERR);
}

/* -- limits ------------------------------------------------------------------------------------------------------ */

static void test_rate(void **state)
{
	struct rig *g = *state;
	unsigned given = 0;

	g->allowed = NULL;
	g->c->tokens_ns = 0;
	g->c->refilled_ns = now_ns() - NSEC_PER_S * 3600; /* an hour saves up a burst, no more */
	do {
		rig_asked(g, "example.com", DNS_A, &reply);
		given += reply.rcode == DNS_NXDOMAIN;
	} while (reply.rcode != DNS_REFUSED && given < 100000);
	assert_true(given >= 2 * RESOLVER_QPS && given < 100000);
	expect_told(g, "limited", "example.com", "A");
	g->c->refilled_ns -= NSEC_PER_S; /* a second later */
	rig_asked(g, "example.com", DNS_A, &reply);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
	assert_true(g->c->tokens_ns >= NSEC_PER_S - NSEC_PER_S / RESOLVER_QPS && g->c->tokens_ns <= 2 * NSEC_PER_S);
}

static bool all_arrived(struct rig *g)
{
	return g->up[0].nudp >= RESOLVER_PENDING;
}

static void test_pending(void **state)
{
	struct rig *g = *state;

	g->up[0].respond = NULL;
	for (unsigned i = 0; i < RESOLVER_PENDING; i++)
		rig_ask(g, (uint16_t)i, "example.com", DNS_A, 0);
	assert_true(rig_silent(g));
	rig_asked(g, "example.com", DNS_A, &reply);
	assert_int_equal(reply.rcode, DNS_REFUSED);
	expect_told(g, "limited", "example.com", "A");
	/* what needs no upstream still works */
	rig_asked(g, "example.com", HTTPS, &reply);
	assert_int_equal(reply.rcode, DNS_NOERROR);
	rig_until(g, all_arrived);
	assert_int_equal(g->c->nasked, RESOLVER_PENDING);
	/* the client goes with all of them under way */
	g->c = resolver_client_free(g->c);
	assert_true(rig_silent(g));
}

static void test_duplicates_are_one(void **state)
{
	struct rig *g = *state;

	for (int i = 0; i < 5; i++)
		rig_ask(g, 1, "example.com", DNS_A, 0);
	rig_ask(g, 1, "example.com", DNS_AAAA, 0);
	rig_ask(g, 2, "example.com", DNS_A, 0);
	rig_ask(g, 1, "www.example.com", DNS_A, 0);
	assert_int_equal(g->c->nasked, 4);
	for (int i = 0; i < 4; i++)
		rig_take(g, &reply);
	assert_true(rig_silent(g));
	assert_int_equal(g->c->nasked, 0);
	assert_int_equal(g->up[0].nudp, 4);
	assert_int_equal(g->nevents, 4);
	/* answered: the same question is a new one */
	rig_ask(g, 1, "example.com", DNS_A, 0);
	rig_take(g, &reply);
	assert_int_equal(g->up[0].nudp, 5);
}

/* The answer comes from the address that was asked, over IPv6, too. */
static void test_source_address(void **state)
{
	struct rig *g = *state;
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_storage from = { 0 }, to = { 0 };
	socklen_t len = sizeof(at);
	struct sockaddr_in got = { 0 };
	socklen_t got_len = sizeof(got);
	uint8_t q[512], in[512];

	g->allowed = NULL;
	((struct sockaddr_in *)&g->host_addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK + 76);
	fd_close(&g->host);
	g->host = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); /* at any address */
	rig_ask(g, 1, "example.com", DNS_A, 0);
	assert_true(recvfrom(g->guest, in, sizeof(in), 0, (struct sockaddr *)&got, &got_len) > 0);
	assert_int_equal(got.sin_addr.s_addr, htonl(INADDR_LOOPBACK + 76));

	AUTO_FD guest = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	AUTO_FD host = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (guest < 0 || host < 0 || bind(guest, (struct sockaddr *)&at, sizeof(at)) < 0)
		skip(); /* a host without IPv6 */
	assert_int_equal(getsockname(guest, (struct sockaddr *)&at, &len), 0);
	memcpy(&from, &at, sizeof(at));
	memcpy(&to, &at, sizeof(at));
	resolver_client_udp(g->c, host, &from, &to, q, rig_question(q, 9, "example.com", DNS_A, 0));
	assert_true(recv(guest, in, sizeof(in), 0) > 0);
	rig_read(in, 29, &reply);
	assert_int_equal(reply.id, 9);
	assert_int_equal(reply.rcode, DNS_NXDOMAIN);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_addresses_are_passed_on),
		TEST(test_question_is_made_anew),
		TEST(test_chain_is_followed),
		TEST(test_chain_to_private_is_filtered),
		TEST(test_chain_without_end),
		TEST(test_rebinding),
		TEST(test_mixed_answer_keeps_public),
		TEST(test_negative_answers),
		TEST(test_other_types_are_empty),
		TEST(test_denied_names_are_never_sent),
		TEST(test_odd_bytes_are_denied),
		TEST(test_name_lengths),
		TEST(test_policy_that_changes_meanwhile),
		TEST(test_malformed),
		TEST(test_not_questions_are_not_answered),
		TEST(test_edns),
		TEST(test_rate),
		TEST(test_pending),
		TEST(test_duplicates_are_one),
		TEST(test_source_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
