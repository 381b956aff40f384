/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Every message of a guest, over UDP or TCP, comes through resolver_question(): read (resolver_msg.c), counted against
 * the client's rate, decided by name and type, and answered at once, or kept as a `struct asked` until resolver_up.c
 * has an answer. What goes upstream is made anew from name and type, in lower case: nothing else of a guest's message
 * leaves the host. What comes back is a chain of names and addresses, of which the refused addresses are taken out.
 *
 * A guest that asks again before its answer has come has the same question under way: it is not sent twice.
 *
 * The rate limit saves up time: COST_NS for each question, at most BURST_NS. */
#include "netpolicy/resolver_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

#define COST_NS	    (1000000000ull / RESOLVER_QPS)
#define BURST_NS    (2ull * RESOLVER_QPS * COST_NS)
#define TRY_NS	    2000000000ull
#define IDLE_NS	    10000000000ull
#define NAME_LOCAL  "localhost"
#define REASON_TEXT 320

struct asked { /* a question that is under way */
	struct resolver_client *c;
	struct asked *next;
	struct dns_question q;
	struct reply_to to;
	struct up_query *up;
};

/* -- what is said ------------------------------------------------------------------------------------------------ */

static void tell(struct resolver_client *c, const struct dns_question *q, const char *verdict, const char *reason,
		 const struct net_addr *addrs, size_t naddrs)
{
	char type[DNS_TYPE_TEXT];
	struct resolver_event ev = {
		.name = q->text,
		.type = q->name.len > 0 ? dns_type_text(q->type, type) : "?",
		.verdict = verdict,
		.reason = reason,
		.addrs = addrs,
		.naddrs = naddrs,
	};

	if (c->ops->on_event)
		c->ops->on_event(c->arg, &ev);
}

/* From the address that the guest asked. What the socket does not take is lost, as datagrams are. */
static void send_udp(const struct reply_to *to, const uint8_t *data, size_t len)
{
	union {
		char space[CMSG_SPACE(sizeof(struct in6_pktinfo))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	bool four = to->to.ss_family == AF_INET;
	size_t info = four ? sizeof(struct in_pktinfo) : sizeof(struct in6_pktinfo);
	struct msghdr m = {
		.msg_name = (void *)&to->from,
		.msg_namelen = to->from.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = CMSG_SPACE(info),
	};
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = four ? IPPROTO_IP : IPPROTO_IPV6;
	h->cmsg_type = four ? IP_PKTINFO : IPV6_PKTINFO;
	h->cmsg_len = CMSG_LEN(info);
	if (four) {
		struct in_pktinfo i4 = { .ipi_spec_dst = ((const struct sockaddr_in *)&to->to)->sin_addr };

		memcpy(CMSG_DATA(h), &i4, sizeof(i4));
	} else {
		const struct sockaddr_in6 *self = (const struct sockaddr_in6 *)&to->to;
		struct in6_pktinfo i6 = { .ipi6_addr = self->sin6_addr, .ipi6_ifindex = self->sin6_scope_id };

		memcpy(CMSG_DATA(h), &i6, sizeof(i6));
	}
	sendmsg(to->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_reply(const struct reply_to *to, const uint8_t *data, size_t len)
{
	if (to->conn)
		guest_conn_send(to->conn, data, len);
	else
		send_udp(to, data, len);
}

static size_t reply_max(const struct dns_question *q, const struct reply_to *to)
{
	return to->conn ? DNS_MESSAGE_MAX : q->udp_max;
}

/* An answer without records. Without memory the guest gets none, as if it had been lost. */
static void answer(struct resolver_client *c, const struct dns_question *q, const struct reply_to *to, int rcode,
		   const char *verdict, const char *reason)
{
	AUTO_FREE uint8_t *wire = NULL;
	size_t len;
	bool truncated;

	if (dns_reply_build(q, rcode, NULL, reply_max(q, to), &wire, &len, &truncated) == 0)
		send_reply(to, wire, len);
	tell(c, q, verdict, reason, NULL, 0);
}

/* -- what upstream said ------------------------------------------------------------------------------------------ */

/* Takes out of @a what this client may not reach; returns why the last one was, or NULL. */
static const char *take_out_refused(struct resolver_client *c, struct dns_answer *a)
{
	const char *why = NULL;
	size_t kept = 0;

	for (size_t i = 0; i < a->naddrs; i++) {
		const struct dns_found *f = &a->addrs[i];
		const char *no = f->mapped ? "IPv4-mapped" : c->ops->refused(c->arg, &f->addr);

		if (no)
			why = no;
		else
			a->addrs[kept++] = *f;
	}
	a->naddrs = kept;
	return why;
}

static void give_addresses(struct resolver_client *c, const struct dns_question *q, const struct reply_to *to,
			   const struct dns_answer *a, const char *reason)
{
	AUTO_FREE uint8_t *wire = NULL;
	struct net_addr given[DNS_ADDRS_MAX];
	uint32_t chain_ttl_s = UINT32_MAX;
	size_t len;
	bool truncated;

	if (dns_reply_build(q, DNS_NOERROR, a, reply_max(q, to), &wire, &len, &truncated) < 0) {
		answer(c, q, to, DNS_SERVFAIL, "failed", "no memory");
		return;
	}
	if (truncated) {
		send_reply(to, wire, len);
		tell(c, q, "answered", "too large for UDP: to be asked again over TCP", NULL, 0);
		return;
	}
	for (size_t i = 0; i < a->nchain; i++)
		chain_ttl_s = a->chain[i].ttl_s < chain_ttl_s ? a->chain[i].ttl_s : chain_ttl_s;
	for (size_t i = 0; i < a->naddrs; i++) {
		const struct dns_found *f = &a->addrs[i];

		given[i] = f->addr;
		c->ops->on_address(c->arg, q->text, &f->addr, f->ttl_s < chain_ttl_s ? f->ttl_s : chain_ttl_s);
	}
	send_reply(to, wire, len);
	tell(c, q, "answered", reason, given, a->naddrs);
}

static void give(struct resolver_client *c, const struct dns_question *q, const struct reply_to *to,
		 const struct dns_answer *from_up)
{
	struct dns_answer a = *from_up;
	const char *why = take_out_refused(c, &a);
	size_t refused = from_up->naddrs - a.naddrs;
	char reason[REASON_TEXT] = "";

	if (!c->ops->allows(c->arg, q->text)) {
		answer(c, q, to, DNS_NXDOMAIN, "denied", "no longer allowed");
	} else if (a.rcode == DNS_NXDOMAIN) {
		answer(c, q, to, DNS_NXDOMAIN, "answered", "there is no such name");
	} else if (refused > 0 && a.naddrs == 0) {
		answer(c, q, to, DNS_NXDOMAIN, "filtered", why);
	} else {
		if (refused > 0)
			snprintf(reason, sizeof(reason), "%zu refused: %s", refused, why);
		else if (a.naddrs == 0)
			snprintf(reason, sizeof(reason), "it has no such address");
		give_addresses(c, q, to, &a, reason);
	}
}

/* -- under way --------------------------------------------------------------------------------------------------- */

static void asked_unlink(struct asked *k)
{
	struct asked **at = &k->c->asked;

	while (*at != k)
		at = &(*at)->next;
	*at = k->next;
	k->c->nasked--;
	if (k->to.conn)
		guest_conn_pending(k->to.conn, -1);
}

static void asked_cancel(struct asked *k)
{
	asked_unlink(k);
	up_cancel(k->up);
	free(k);
}

void resolver_forget_conn(struct resolver_client *c, const struct guest_conn *conn)
{
	for (struct asked *k = c->asked, *next; k; k = next) {
		next = k->next;
		if (k->to.conn == conn)
			asked_cancel(k);
	}
}

static void on_upstream(void *arg, const struct dns_answer *a, const struct err *e)
{
	struct asked *k = arg;

	asked_unlink(k);
	if (a)
		give(k->c, &k->q, &k->to, a);
	else
		answer(k->c, &k->q, &k->to, DNS_SERVFAIL, "failed", e->msg);
	free(k);
}

static bool same_end(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	struct net_addr aa, ba;
	uint16_t ap, bp;

	return net_addr_from_sockaddr((const struct sockaddr *)a, sizeof(*a), &aa, &ap) == 0 &&
	       net_addr_from_sockaddr((const struct sockaddr *)b, sizeof(*b), &ba, &bp) == 0 && ap == bp &&
	       net_addr_equal(&aa, &ba);
}

static bool is_under_way(const struct resolver_client *c, const struct dns_question *q, const struct reply_to *to)
{
	for (const struct asked *k = c->asked; k; k = k->next) {
		if (!to->conn && !k->to.conn && k->q.id == q->id && k->q.type == q->type &&
		    k->q.name.len == q->name.len && memcmp(k->q.name.bytes, q->name.bytes, q->name.len) == 0 &&
		    same_end(&k->to.from, &to->from) && same_end(&k->to.to, &to->to))
			return true;
	}
	return false;
}

static void ask_upstream(struct resolver_client *c, const struct dns_question *q, const struct reply_to *to)
{
	struct asked *k;

	if (is_under_way(c, q, to))
		return;
	if (c->nasked >= RESOLVER_PENDING) {
		answer(c, q, to, DNS_REFUSED, "limited", "too many questions under way");
		return;
	}
	k = calloc(1, sizeof(*k));
	if (k) {
		k->c = c;
		k->q = *q;
		k->to = *to;
	}
	if (!k || up_ask(c->r, &k->q, on_upstream, k, &k->up) < 0) {
		free(k);
		answer(c, q, to, DNS_SERVFAIL, "failed", "no memory");
		return;
	}
	k->next = c->asked;
	c->asked = k;
	c->nasked++;
	if (to->conn)
		guest_conn_pending(to->conn, 1);
}

/* -- decisions --------------------------------------------------------------------------------------------------- */

static bool take_token(struct resolver_client *c)
{
	uint64_t now = now_ns();

	c->tokens_ns += now - c->refilled_ns;
	c->refilled_ns = now;
	if (c->tokens_ns > BURST_NS)
		c->tokens_ns = BURST_NS;
	if (c->tokens_ns < COST_NS)
		return false;
	c->tokens_ns -= COST_NS;
	return true;
}

static bool is_localhost(const char *name)
{
	size_t len = strlen(name), local = strlen(NAME_LOCAL);

	return len >= local && strcmp(name + len - local, NAME_LOCAL) == 0 &&
	       (len == local || name[len - local - 1] == '.');
}

static const char *why_denied(const struct resolver_client *c, const struct dns_question *q)
{
	if (!q->plain)
		return "not a name of letters, digits, - and _";
	if (is_localhost(q->text))
		return "localhost is not asked for";
	if (q->type == DNS_PTR)
		return "no names of addresses";
	return c->ops->allows(c->arg, q->text) ? NULL : "not allowed";
}

void resolver_question(struct resolver_client *c, const struct reply_to *to, const uint8_t *data, size_t len)
{
	struct dns_question q;
	const char *why = "";
	int rcode, r = dns_question_parse(data, len, &q, &rcode, &why);

	if (r == -ENOMEM)
		return; /* as if it had been lost */
	if (r == -ENOMSG)
		tell(c, &q, "malformed", "not a question", NULL, 0);
	else if (!take_token(c))
		answer(c, &q, to, DNS_REFUSED, "limited", "too many questions");
	else if (r < 0)
		answer(c, &q, to, rcode, "malformed", why);
	else if ((why = why_denied(c, &q)))
		answer(c, &q, to, DNS_NXDOMAIN, "denied", why);
	else if (q.type != DNS_A && q.type != DNS_AAAA)
		answer(c, &q, to, DNS_NOERROR, "answered", "empty: only A and AAAA are passed on");
	else
		ask_upstream(c, &q, to);
}

/* -- clients ----------------------------------------------------------------------------------------------------- */

int resolver_new(struct loop *l, const struct resolver_upstream *up, size_t n, struct resolver **ret)
{
	struct resolver *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->loop = l;
	r->try_ns = TRY_NS;
	r->idle_ns = IDLE_NS;
	resolver_set_upstreams(r, up, n);
	*ret = r;
	return 0;
}

void resolver_set_upstreams(struct resolver *r, const struct resolver_upstream *up, size_t n)
{
	r->nup = n < RESOLVER_UPSTREAMS_MAX ? n : RESOLVER_UPSTREAMS_MAX;
	r->first = 0;
	r->up_set++;
	memset(r->up, 0, sizeof(r->up));
	for (size_t i = 0; i < r->nup; i++)
		r->up[i] = up[i];
}

struct resolver *resolver_free(struct resolver *r)
{
	free(r);
	return NULL;
}

int resolver_client_new(struct resolver *r, const struct resolver_ops *ops, void *arg, struct resolver_client **ret)
{
	struct resolver_client *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->r = r;
	c->ops = ops;
	c->arg = arg;
	c->tokens_ns = BURST_NS;
	c->refilled_ns = now_ns();
	*ret = c;
	return 0;
}

struct resolver_client *resolver_client_free(struct resolver_client *c)
{
	if (!c)
		return NULL;
	while (c->conns)
		guest_conn_end(c->conns);
	while (c->asked)
		asked_cancel(c->asked);
	free(c);
	return NULL;
}

void resolver_client_udp(struct resolver_client *c, int fd, const struct sockaddr_storage *from,
			 const struct sockaddr_storage *to, const void *data, size_t len)
{
	const struct reply_to reply = { .fd = fd, .from = *from, .to = *to };

	resolver_question(c, &reply, data, len);
}

void resolver_client_tcp(struct resolver_client *c, int fd)
{
	guest_conn_new(c, fd);
}
