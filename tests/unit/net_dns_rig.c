/* SPDX-License-Identifier: Apache-2.0 */
#include <ldns/ldns.h>
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

#define WAIT_NS 60000000000ull /* never reached unless something is wrong */

/* -- messages ---------------------------------------------------------------------------------------------------- */

static size_t put16(uint8_t *out, uint16_t v)
{
	out[0] = (uint8_t)(v >> 8);
	out[1] = (uint8_t)v;
	return 2;
}

size_t rig_put_name(uint8_t *out, const char *name)
{
	size_t n = 0;

	while (*name) {
		size_t label = strcspn(name, ".");

		if (label > 0) {
			out[n++] = (uint8_t)label;
			memcpy(out + n, name, label);
			n += label;
		}
		name += label + (name[label] == '.');
	}
	out[n++] = 0;
	return n;
}

size_t rig_question(uint8_t *out, uint16_t id, const char *name, uint16_t type, unsigned edns)
{
	size_t n = 0;

	n += put16(out, id);
	n += put16(out + n, 0x0100);
	n += put16(out + n, 1);
	n += put16(out + n, 0);
	n += put16(out + n, 0);
	n += put16(out + n, edns ? 1 : 0);
	n += rig_put_name(out + n, name);
	n += put16(out + n, type);
	n += put16(out + n, 1);
	if (edns) {
		out[n++] = 0;
		n += put16(out + n, 41);
		n += put16(out + n, (uint16_t)edns);
		memset(out + n, 0, 6); /* extended code, version, flags, no options */
		n += 6;
	}
	return n;
}

static size_t question_end(const uint8_t *q, size_t len)
{
	size_t at = 12;

	while (at < len && q[at])
		at += q[at] + 1u;
	return at + 5;
}

size_t rig_answer(uint8_t *out, const uint8_t *q, size_t len, uint16_t flags, uint16_t nanswers)
{
	size_t end = question_end(q, len);

	memcpy(out, q, end);
	put16(out + 2, 0x8180 | flags);
	put16(out + 6, nanswers);
	put16(out + 8, 0);
	put16(out + 10, 0);
	return end;
}

size_t rig_record(uint8_t *out, const char *owner, uint16_t type, uint32_t ttl_s, const char *data)
{
	size_t n = owner ? rig_put_name(out, owner) : put16(out, 0xc00c), len;

	n += put16(out + n, type);
	n += put16(out + n, 1);
	n += put16(out + n, (uint16_t)(ttl_s >> 16));
	n += put16(out + n, (uint16_t)ttl_s);
	if (type == DNS_A || type == DNS_AAAA) {
		len = type == DNS_A ? 4 : 16;
		assert_int_equal(inet_pton(type == DNS_A ? AF_INET : AF_INET6, data, out + n + 2), 1);
	} else {
		len = rig_put_name(out + n + 2, data);
	}
	put16(out + n, (uint16_t)len);
	return n + 2 + len;
}

/* By libldns, all of it. */
void rig_read(const uint8_t *data, size_t len, struct rig_reply *ret)
{
	ldns_pkt *p;
	ldns_rr *q;
	char *text;

	memset(ret, 0, sizeof(*ret));
	ret->len = len;
	assert_int_equal(ldns_wire2pkt(&p, data, len), LDNS_STATUS_OK);
	assert_true(ldns_pkt_qr(p));
	ret->id = ldns_pkt_id(p);
	ret->tc = ldns_pkt_tc(p);
	ret->edns = ldns_pkt_edns(p);
	ret->rcode = (int)ldns_pkt_get_rcode(p) | ldns_pkt_edns_extended_rcode(p) << 4;
	q = ldns_rr_list_rr(ldns_pkt_question(p), 0);
	if (q) {
		char *type = ldns_rr_type2str(ldns_rr_get_type(q));

		text = ldns_rdf2str(ldns_rr_owner(q));
		snprintf(ret->question, sizeof(ret->question), "%s %s", text, type);
		free(type);
		free(text);
	}
	ret->nanswers = ldns_rr_list_rr_count(ldns_pkt_answer(p));
	assert_true(ret->nanswers <= RIG_ANSWERS);
	for (size_t i = 0; i < ret->nanswers; i++) {
		char *at;

		text = ldns_rr2str(ldns_rr_list_rr(ldns_pkt_answer(p), i));
		text[strcspn(text, "\n")] = '\0';
		while ((at = strchr(text, '\t')))
			*at = ' ';
		snprintf(ret->answers[i], sizeof(ret->answers[i]), "%s", text);
		free(text);
	}
	ldns_pkt_free(p);
}

/* -- what the resolver asks -------------------------------------------------------------------------------------- */

static bool allows(void *arg, const char *name)
{
	const struct rig *g = arg;

	return g->allowed && (!g->allowed[0] || !strcmp(g->allowed, name));
}

static const char *refused(void *arg, const struct net_addr *a)
{
	static const struct net_reach nothing = { 0 };

	(void)arg;
	return net_addr_refused(a, &nothing);
}

static void on_address(void *arg, const char *name, const struct net_addr *a, uint32_t ttl_s)
{
	struct rig *g = arg;

	g->told_before_answer &= rig_silent(g);
	g->nremembered++;
	g->remembered = *a;
	g->remembered_ttl_s = ttl_s;
	snprintf(g->remembered_name, sizeof(g->remembered_name), "%s", name);
}

static void on_event(void *arg, const struct resolver_event *ev)
{
	struct rig *g = arg;

	g->nevents++;
	snprintf(g->name, sizeof(g->name), "%s", ev->name);
	snprintf(g->type, sizeof(g->type), "%s", ev->type);
	snprintf(g->verdict, sizeof(g->verdict), "%s", ev->verdict);
	snprintf(g->reason, sizeof(g->reason), "%s", ev->reason);
	g->naddrs = ev->naddrs;
	assert_true(ev->naddrs <= RIG_ANSWERS);
	for (size_t i = 0; i < ev->naddrs; i++)
		g->addrs[i] = ev->addrs[i];
}

static const struct resolver_ops ops = {
	.allows = allows,
	.refused = refused,
	.on_address = on_address,
	.on_event = on_event,
};

/* -- servers ----------------------------------------------------------------------------------------------------- */

static void note(struct rig_up *u, const uint8_t *q, size_t len)
{
	assert_true(len <= sizeof(u->last));
	memcpy(u->last, q, len);
	u->last_len = len;
}

static void on_udp(void *arg, uint32_t events)
{
	struct rig_up *u = arg;
	uint8_t q[512];
	socklen_t plen = sizeof(u->peer);
	ssize_t n = recvfrom(u->udp, q, sizeof(q), MSG_DONTWAIT, (struct sockaddr *)&u->peer, &plen);

	(void)events;
	if (n < 12)
		return;
	if (u->nudp < ARRAY_LEN(u->ports)) {
		u->ports[u->nudp] = ntohs(((struct sockaddr_in *)&u->peer)->sin_port);
		u->ids[u->nudp] = (uint16_t)(q[0] << 8 | q[1]);
	}
	u->nudp++;
	note(u, q, (size_t)n);
	if (u->respond)
		u->respond(u, q, (size_t)n, false);
}

static void conn_end(struct rig_up *u)
{
	loop_del(u->rig->loop, &u->conn_src);
	fd_close(&u->conn);
	u->in_len = 0;
}

static void on_conn(void *arg, uint32_t events)
{
	struct rig_up *u = arg;
	ssize_t n = recv(u->conn, u->in + u->in_len, sizeof(u->in) - u->in_len, MSG_DONTWAIT);
	size_t len;

	(void)events;
	if (n <= 0) {
		conn_end(u);
		return;
	}
	u->in_len += (size_t)n;
	len = u->in_len < 2 ? 0 : (size_t)u->in[0] << 8 | u->in[1];
	if (u->in_len < 2 || u->in_len < 2 + len)
		return;
	assert_int_equal(u->in_len, 2 + len);
	u->in_len = 0;
	u->ntcp++;
	note(u, u->in + 2, len);
	if (u->respond)
		u->respond(u, u->in + 2, len, true);
}

static void on_listen(void *arg, uint32_t events)
{
	struct rig_up *u = arg;

	(void)events;
	conn_end(u);
	u->conn = accept4(u->tcp, NULL, NULL, SOCK_CLOEXEC);
	assert_true(u->conn >= 0);
	assert_int_equal(loop_add(u->rig->loop, u->conn, EPOLLIN, on_conn, u, &u->conn_src), 0);
}

void rig_up_send(struct rig_up *u, const uint8_t *data, size_t len, bool tcp)
{
	uint8_t prefix[2] = { (uint8_t)(len >> 8), (uint8_t)len };

	if (!tcp) {
		assert_int_equal(sendto(u->udp, data, len, 0, (struct sockaddr *)&u->peer, sizeof(struct sockaddr_in)),
				 len);
		return;
	}
	assert_int_equal(send(u->conn, prefix, sizeof(prefix), MSG_NOSIGNAL), sizeof(prefix));
	assert_int_equal(send(u->conn, data, len, MSG_NOSIGNAL), len);
}

void rig_say_public(struct rig_up *u, const uint8_t *q, size_t len, bool tcp)
{
	uint16_t type = (uint16_t)(q[question_end(q, len) - 4] << 8 | q[question_end(q, len) - 3]);
	uint8_t out[512];
	size_t n = rig_answer(out, q, len, 0, 1);

	n += rig_record(out + n, NULL, type, 300, type == DNS_A ? "93.184.215.14" : "2606:2800::1");
	rig_up_send(u, out, n, tcp);
}

/* -- set-up ------------------------------------------------------------------------------------------------------ */

static int socket_at(int type, uint16_t port, struct sockaddr_storage *ret)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	AUTO_FD fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -1;
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, &a, sizeof(a));
	return take_fd(&fd);
}

/* UDP and TCP at the same port. */
static void up_init(struct rig *g, struct rig_up *u)
{
	struct sockaddr_storage at = { 0 };

	u->rig = g;
	u->conn = u->tcp = -1;
	for (int i = 0; u->tcp < 0; i++) {
		assert_true(i < 100);
		u->udp = socket_at(SOCK_DGRAM, 0, &at);
		assert_true(u->udp >= 0);
		u->port = ntohs(((struct sockaddr_in *)&at)->sin_port);
		u->tcp = socket_at(SOCK_STREAM, u->port, &at);
		if (u->tcp < 0)
			fd_close(&u->udp);
	}
	assert_int_equal(listen(u->tcp, 8), 0);
	assert_int_equal(loop_add(g->loop, u->udp, EPOLLIN, on_udp, u, &u->udp_src), 0);
	assert_int_equal(loop_add(g->loop, u->tcp, EPOLLIN, on_listen, u, &u->tcp_src), 0);
	u->respond = rig_say_public;
}

void rig_init(struct rig *g, size_t nup)
{
	struct resolver_upstream up[RIG_UPS] = { 0 };

	memset(g, 0, sizeof(*g));
	g->allowed = "";
	g->told_before_answer = true;
	assert_int_equal(loop_new(&g->loop), 0);
	for (size_t i = 0; i < RIG_UPS; i++) {
		up_init(g, &g->up[i]);
		assert_int_equal(net_addr_parse("127.0.0.1", &up[i].addr), 0);
		up[i].port = g->up[i].port;
	}
	g->guest = socket_at(SOCK_DGRAM, 0, &g->guest_addr);
	g->host = socket_at(SOCK_DGRAM, 0, &g->host_addr);
	assert_true(g->guest >= 0 && g->host >= 0);
	assert_int_equal(resolver_new(g->loop, up, nup, &g->r), 0);
	g->r->try_ns = WAIT_NS; /* a slow machine changes nothing; those that want it set less */
	assert_int_equal(resolver_client_new(g->r, &ops, g, &g->c), 0);
}

void rig_fini(struct rig *g)
{
	g->c = resolver_client_free(g->c);
	g->r = resolver_free(g->r);
	for (size_t i = 0; i < RIG_UPS; i++) {
		struct rig_up *u = &g->up[i];

		conn_end(u);
		loop_del(g->loop, &u->udp_src);
		loop_del(g->loop, &u->tcp_src);
		fd_close(&u->udp);
		fd_close(&u->tcp);
	}
	fd_close(&g->guest);
	fd_close(&g->host);
	loop_free(g->loop);
}

int rig_setup(void **state)
{
	struct rig *g = malloc(sizeof(*g));

	assert_non_null(g);
	rig_init(g, RIG_UPS);
	*state = g;
	return 0;
}

int rig_teardown(void **state)
{
	rig_fini(*state);
	free(*state);
	return 0;
}

/* -- the guest --------------------------------------------------------------------------------------------------- */

void rig_send(struct rig *g, const uint8_t *data, size_t len)
{
	uint8_t *exact = malloc(len ? len : 1); /* for the sanitizer */

	assert_non_null(exact);
	memcpy(exact, data, len);
	resolver_client_udp(g->c, g->host, &g->guest_addr, &g->host_addr, exact, len);
	free(exact);
}

void rig_ask(struct rig *g, uint16_t id, const char *name, uint16_t type, unsigned edns)
{
	uint8_t q[512];

	rig_send(g, q, rig_question(q, id, name, type, edns));
}

bool rig_silent(struct rig *g)
{
	uint8_t byte;

	return recv(g->guest, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

void rig_until(struct rig *g, bool (*done)(struct rig *g))
{
	uint64_t end = now_ns() + WAIT_NS;

	while (!done(g)) {
		assert_true(now_ns() < end);
		assert_int_equal(loop_once(g->loop, 10), 0);
	}
}

static bool has_datagram(struct rig *g)
{
	return !rig_silent(g);
}

void rig_take(struct rig *g, struct rig_reply *ret)
{
	struct sockaddr_in from = { 0 };
	socklen_t flen = sizeof(from);
	uint8_t data[RIG_MESSAGE];
	ssize_t n;

	rig_until(g, has_datagram);
	n = recvfrom(g->guest, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&from, &flen);
	assert_true(n > 0);
	assert_int_equal(from.sin_addr.s_addr, ((struct sockaddr_in *)&g->host_addr)->sin_addr.s_addr);
	rig_read(data, (size_t)n, ret);
}

void rig_asked(struct rig *g, const char *name, uint16_t type, struct rig_reply *ret)
{
	rig_ask(g, 0x1234, name, type, 0);
	rig_take(g, ret);
	assert_int_equal(ret->id, 0x1234);
}

int rig_connect(struct rig *g)
{
	struct sockaddr_storage at;
	int listening = socket_at(SOCK_STREAM, 0, &at), guest, host;

	assert_true(listening >= 0);
	assert_int_equal(listen(listening, 1), 0);
	guest = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(guest, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
	host = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	assert_true(host >= 0);
	fd_close(&listening);
	resolver_client_tcp(g->c, host);
	return guest;
}

static bool read_exactly(struct rig *g, int fd, uint8_t *to, size_t len)
{
	uint64_t end = now_ns() + WAIT_NS;

	for (size_t at = 0; at < len;) {
		ssize_t n = recv(fd, to + at, len - at, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN))
			return false;
		if (n > 0) {
			at += (size_t)n;
			continue;
		}
		assert_true(now_ns() < end);
		assert_int_equal(loop_once(g->loop, 10), 0);
	}
	return true;
}

bool rig_tcp_take(struct rig *g, int fd, struct rig_reply *ret)
{
	uint8_t prefix[2], data[RIG_MESSAGE];
	size_t len;

	if (!read_exactly(g, fd, prefix, sizeof(prefix)))
		return false;
	len = (size_t)prefix[0] << 8 | prefix[1];
	if (!read_exactly(g, fd, data, len))
		return false;
	rig_read(data, len, ret);
	return true;
}
