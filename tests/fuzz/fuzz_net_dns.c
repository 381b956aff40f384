/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches libldns. The first byte says from where: a guest's datagram, an upstream's answer, a guest's stream. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "netpolicy/resolver_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

enum { FROM_GUEST, FROM_UPSTREAM, FROM_STREAM, FROM_COUNT };
#define UP_ID	     0x0707 /* of the question that an upstream answers, which is for example.com */
#define UP_NAME	     "\7example\3com"
#define STREAM_MAX   100000
#define STREAM_TURNS 2000

static void check_text(const struct dns_question *q)
{
	size_t len = strlen(q->text);

	assert(len > 0 && len <= NET_NAME_MAX);
	assert(q->plain || q->name.len == 0 || strchr(q->text, '?') || !strcmp(q->text, "."));
	assert(!q->plain || strspn(q->text, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == len);
}

/* An answer without records can be read back by the other side of the same code. */
static void check_reply(const struct dns_question *q, int rcode)
{
	struct dns_answer a;
	uint8_t *wire;
	size_t wire_len;
	bool truncated;

	assert(dns_reply_build(q, rcode, NULL, q->udp_max, &wire, &wire_len, &truncated) == 0);
	assert(wire_len <= q->udp_max && !truncated);
	if (q->name.len > 0 && q->class == 1 && q->opcode == 0)
		assert(dns_answer_parse(wire, wire_len, q->id, q, &a) == 0 && a.rcode == (rcode & 15) && a.naddrs == 0);
	free(wire);
}

static void from_guest(const uint8_t *data, size_t len)
{
	struct dns_question q, again;
	const char *why = NULL;
	int rcode = 0, r = dns_question_parse(data, len, &q, &rcode, &why);
	uint8_t *wire;
	size_t wire_len;

	check_text(&q);
	if (r == -ENOMSG)
		return;
	assert(r == 0 || (r == -EBADMSG && why && rcode > 0));
	assert(q.udp_max >= DNS_UDP_PLAIN && q.udp_max <= DNS_UDP_MAX);
	check_reply(&q, r == 0 ? DNS_NXDOMAIN : rcode);
	if (r < 0)
		return;
	/* What is sent upstream reads as the same question. */
	assert(dns_query_build(1, &q, true, &wire, &wire_len) == 0);
	assert(dns_question_parse(wire, wire_len, &again, &rcode, &why) == 0);
	assert(again.type == q.type && !strcmp(again.text, q.text) && again.edns);
	free(wire);
}

static void from_upstream(const uint8_t *data, size_t len)
{
	static const uint16_t types[] = { DNS_A, DNS_AAAA };

	for (size_t i = 0; i < 2; i++) {
		struct dns_question q = { .id = 1, .type = types[i], .class = 1, .udp_max = DNS_UDP_MAX };
		struct dns_answer a;
		uint8_t *wire;
		size_t wire_len;
		bool truncated;

		q.name.len = sizeof(UP_NAME);
		memcpy(q.name.bytes, UP_NAME, sizeof(UP_NAME));
		if (dns_answer_parse(data, len, UP_ID, &q, &a) < 0)
			continue;
		assert(a.nchain <= DNS_CHAIN_MAX && a.naddrs <= DNS_ADDRS_MAX);
		for (size_t k = 0; k < a.naddrs; k++) /* what remains when those were refused */
			a.naddrs -= a.addrs[k].mapped || a.addrs[k].addr.family != (i ? AF_INET6 : AF_INET);
		assert(dns_reply_build(&q, DNS_NOERROR, &a, DNS_MESSAGE_MAX, &wire, &wire_len, &truncated) == 0);
		assert(wire_len <= DNS_MESSAGE_MAX && !truncated);
		free(wire);
		assert(dns_reply_build(&q, DNS_NOERROR, &a, q.udp_max, &wire, &wire_len, &truncated) == 0);
		assert(wire_len <= q.udp_max);
		free(wire);
	}
}

static bool allows(void *arg, const char *name)
{
	(void)arg;
	return strlen(name) % 2;
}

static const char *refused(void *arg, const struct net_addr *a)
{
	(void)arg;
	(void)a;
	return "all";
}

static void on_event(void *arg, const struct resolver_event *ev)
{
	(void)arg;
	assert(strlen(ev->name) <= NET_NAME_MAX && ev->type[0] && ev->verdict[0] && ev->naddrs == 0);
}

/* No upstream is known: every question ends. */
static void from_stream(const uint8_t *data, size_t len)
{
	static const struct resolver_ops ops = { .allows = allows, .refused = refused, .on_event = on_event };
	struct resolver_client *c;
	struct resolver *r;
	struct loop *l;
	uint8_t sink[4096];
	int pair[2];
	size_t at = 0;

	if (len > STREAM_MAX || loop_new(&l) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	if (resolver_new(l, NULL, 0, &r) < 0 || resolver_client_new(r, &ops, NULL, &c) < 0)
		abort();
	resolver_client_tcp(c, pair[0]);
	for (int i = 0; i < STREAM_TURNS && c->nconns > 0; i++) {
		ssize_t n = send(pair[1], data + at, len - at, MSG_DONTWAIT | MSG_NOSIGNAL);

		at += n > 0 ? (size_t)n : 0;
		if (at == len)
			shutdown(pair[1], SHUT_WR);
		loop_once(l, 0);
		while (recv(pair[1], sink, sizeof(sink), MSG_DONTWAIT) > 0)
			;
	}
	assert(c->nconns == 0 && c->nasked == 0);
	close(pair[1]);
	resolver_client_free(c);
	resolver_free(r);
	loop_free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static void (*const from[FROM_COUNT])(const uint8_t *, size_t) = { from_guest, from_upstream, from_stream };

	if (len > 0)
		from[data[0] % FROM_COUNT](data + 1, len - 1);
	return 0;
}
