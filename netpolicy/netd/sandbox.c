/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * One sandbox: what its guest asks goes to the resolver, what it dials to the relay, and both ask here what is allowed.
 * A connection is judged by names: the resolver remembers which allowed names led to the address. On a TLS port the
 * name of the hello must be one of them; without one of them, only a rule for ranges can allow it. That an address is
 * none that nobody may reach is looked at first and each time: answers, rules and the host's addresses may change. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "netpolicy/netd/netd_priv.h"

#define DNS_PORT 53

/* -- what is allowed --------------------------------------------------------------------------------------------- */

struct search {
	const struct net_policy *policy;
	uint16_t port;
	const char *wanted; /* NULL: any */
	bool resolved;	    /* @wanted, or a name at all, led to the address */
	bool found;
	char *name;
};

static bool on_name(void *arg, const char *name)
{
	struct search *q = arg;

	if (q->wanted && strcmp(name, q->wanted) != 0)
		return false;
	q->resolved = true;
	if (!net_policy_allows_name(q->policy, name, q->port))
		return false;
	q->found = true;
	snprintf(q->name, NET_NAME_MAX + 1, "%s", name);
	return true;
}

static int decide(void *arg, const struct net_addr *a, uint16_t port, const char *tls, char *name, struct err *e)
{
	struct netd_sandbox *s = arg;
	struct search q = { .policy = s->policy, .port = port, .wanted = tls, .name = name };
	const char *why = netd_reach_refused(&s->netd->reach, a);
	bool before = *name && net_policy_allows_name(s->policy, name, port);

	if (why)
		return err_set(e, -EPERM, "%s", why);
	if (before) /* open by a name that is allowed still: how old its answer is does not matter any more */
		return 0;
	*name = '\0';
	names_find(s->names, a, now_ns(), on_name, &q);
	if (q.found || net_policy_allows_addr(s->policy, a, port))
		return 0;
	if (!tls && q.resolved)
		return err_set(e, -EPERM, "the names of this address are not allowed with port %u", port);
	if (!tls)
		return err_set(e, -EPERM, "no allowed name led to this address");
	if (!net_policy_allows_name(s->policy, tls, port))
		return err_set(e, -EPERM, "the hello names %s, which is not allowed with port %u", tls, port);
	return err_set(e, -EPERM, "the hello names %s, which did not lead to this address", tls);
}

static bool allows(void *arg, const char *name)
{
	return net_policy_resolves(((struct netd_sandbox *)arg)->policy, name);
}

static const char *refused(void *arg, const struct net_addr *a)
{
	return netd_reach_refused(&((struct netd_sandbox *)arg)->netd->reach, a);
}

static void on_address(void *arg, const char *name, const struct net_addr *a, uint32_t ttl_s)
{
	names_add(((struct netd_sandbox *)arg)->names, name, a, ttl_s, now_ns()); /* no memory: refused when dialed */
}

/* -- what happens ------------------------------------------------------------------------------------------------ */

static void on_question(void *arg, const struct resolver_event *ev)
{
	struct netd_sandbox *s = arg;

	s->before.questions++;
	s->before.denied += strcmp(ev->verdict, "denied") == 0;
	netd_log_question(&s->log, ev);
}

static void on_dns(void *arg, int fd)
{
	resolver_client_tcp(((struct netd_sandbox *)arg)->dns, fd);
}

static void on_connection(void *arg, const struct relay_event *ev)
{
	netd_log_connection(&((struct netd_sandbox *)arg)->log, ev);
}

static void need_sockets(void *arg)
{
	struct netd_sandbox *s = arg;
	struct buf b;
	int r;

	buf_init(&b, NETD_UUID_MAX + 8);
	r = wire_put_str(&b, s->uuid);
	if (r == 0)
		r = netd_tell(s->netd, NETD_NEED_SOCKETS, &b);
	buf_fini(&b);
	/* A daemon that comes back sends some by itself; what could not be said to one that is there is said again. */
	if (r < 0 && r != -EPIPE)
		relay_sockets(s->relay, NULL, 0);
}

static void on_datagram(void *arg, int fd, const struct sockaddr_storage *from, const struct sockaddr_storage *to,
			const void *data, size_t len)
{
	struct netd_sandbox *s = arg;
	struct net_addr a;
	uint16_t port;

	if (net_addr_from_sockaddr((const struct sockaddr *)to, sizeof(*to), &a, &port) < 0)
		return;
	if (port == DNS_PORT)
		resolver_client_udp(s->dns, fd, from, to, data, len);
	else
		netd_log_datagram(&s->log, &a, port, "no UDP but DNS");
}

static const struct relay_ops relay_ops = {
	.decide = decide,
	.on_dns = on_dns,
	.on_event = on_connection,
	.need_sockets = need_sockets,
};
static const struct resolver_ops resolver_ops = {
	.allows = allows,
	.refused = refused,
	.on_address = on_address,
	.on_event = on_question,
};

/* -- opening and closing ------------------------------------------------------------------------------------------ */

void netd_stat_add(struct netd_stat *sum, const struct netd_stat *s)
{
	sum->relay.bytes_out += s->relay.bytes_out;
	sum->relay.bytes_in += s->relay.bytes_in;
	sum->relay.opened += s->relay.opened;
	sum->relay.refused += s->relay.refused;
	sum->relay.failed += s->relay.failed;
	sum->relay.open += s->relay.open;
	sum->questions += s->questions;
	sum->denied += s->denied;
}

void netd_sandbox_stat(const struct netd_sandbox *s, struct netd_stat *ret)
{
	struct netd_stat now = { 0 };

	*ret = s->before;
	if (!s->relay)
		return;
	relay_stat(s->relay, &now.relay);
	netd_stat_add(ret, &now);
}

/* All sockets. What asks for an answer goes before what it would be sent by. */
static void shut(struct netd_sandbox *s)
{
	struct netd_stat sum;

	netd_sandbox_stat(s, &sum);
	sum.relay.open = 0;
	s->before = sum;
	s->relay = relay_free(s->relay);
	s->dns = resolver_client_free(s->dns);
	for (size_t i = 0; i < ARRAY_LEN(s->udp); i++)
		s->udp[i] = netd_udp_free(s->udp[i]);
	for (size_t i = 0; i < ARRAY_LEN(s->unserved); i++)
		fd_close(&s->unserved[i]);
	s->ports_known = false;
	s->nports = 0;
}

static bool is_socket(int fd, int domain, int type)
{
	int have_domain = 0, have_type = 0, listens = 0;
	socklen_t len = sizeof(int);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &have_domain, &len) == 0 && have_domain == domain &&
	       getsockopt(fd, SOL_SOCKET, SO_TYPE, &have_type, &len) == 0 && have_type == type &&
	       (type != SOCK_STREAM || (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens));
}

static bool are_right(const int fds[TOPOLOGY_FD_COUNT])
{
	for (int i = 0; i < TOPOLOGY_FD_COUNT; i++) {
		bool four = i == TOPOLOGY_TCP4 || i == TOPOLOGY_UDP4, tcp = i == TOPOLOGY_TCP4 || i == TOPOLOGY_TCP6;

		if (fds[i] >= 0 && !is_socket(fds[i], four ? AF_INET : AF_INET6, tcp ? SOCK_STREAM : SOCK_DGRAM))
			return false;
	}
	return true;
}

static int open_all(struct netd_sandbox *s, int fds[TOPOLOGY_FD_COUNT])
{
	struct net_policy *none;
	int r;

	for (int i = 0; i < TOPOLOGY_FD_COUNT; i++) {
		r = fds[i] < 0 ? 0 : fd_set_nonblock(fds[i], true);
		if (r < 0)
			return r;
	}
	r = net_policy_parse("", 0, NULL, &none, NULL);
	if (r < 0)
		return r;
	net_policy_unref(s->policy);
	s->policy = none;
	r = resolver_client_new(s->netd->resolver, &resolver_ops, s, &s->dns);
	if (r == 0)
		r = relay_new(s->netd->loop, &relay_ops, s, -1, -1, &s->relay);
	if (r == 0)
		for (int i = 0; i < TOPOLOGY_FD_COUNT; i++)
			s->unserved[i] = take_fd(&fds[i]);
	return r;
}

/* What a guest has sent until then waits in the sockets: it is not refused for a list that is on its way. */
static int serve(struct netd_sandbox *s)
{
	static const enum topology_fd udp[] = { TOPOLOGY_UDP4, TOPOLOGY_UDP6 };
	int *fds = s->unserved;
	int r = 0;

	if (fds[TOPOLOGY_TCP4] >= 0 || fds[TOPOLOGY_TCP6] >= 0)
		r = relay_listen(s->relay, take_fd(&fds[TOPOLOGY_TCP4]), take_fd(&fds[TOPOLOGY_TCP6]));
	for (size_t i = 0; i < ARRAY_LEN(udp) && r == 0; i++)
		if (fds[udp[i]] >= 0)
			r = netd_udp_new(s->netd->loop, take_fd(&fds[udp[i]]), on_datagram, s, &s->udp[i]);
	return r;
}

int netd_sandbox_open(struct netd_sandbox *s, int fds[TOPOLOGY_FD_COUNT], struct err *e)
{
	int r = 0;

	shut(s);
	if (!are_right(fds))
		r = err_set(e, -EBADMSG, "other sockets than the message says");
	if (r == 0)
		r = open_all(s, fds);
	if (r < 0)
		shut(s);
	for (int i = 0; i < TOPOLOGY_FD_COUNT; i++)
		fd_close(&fds[i]);
	return r < 0 && r != -EBADMSG ? err_set(e, r, "sockets of the sandbox: %s", err_name(r)) : r;
}

int netd_sandbox_new(struct netd *n, const char *uuid, struct netd_sandbox **ret, struct err *e)
{
	struct netd_sandbox *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, -ENOMEM, "sandbox: no memory");
	s->netd = n;
	for (size_t i = 0; i < ARRAY_LEN(s->unserved); i++)
		s->unserved[i] = -1;
	snprintf(s->uuid, sizeof(s->uuid), "%s", uuid);
	netd_log_init(&s->log, n, s->uuid);
	r = names_new(&s->names);
	if (r < 0) {
		netd_sandbox_free(s);
		return err_set(e, r, "sandbox: no memory");
	}
	*ret = s;
	return 0;
}

struct netd_sandbox *netd_sandbox_free(struct netd_sandbox *s)
{
	if (!s)
		return NULL;
	shut(s);
	names_free(s->names);
	net_policy_unref(s->policy);
	netd_log_fini(&s->log);
	free(s);
	return NULL;
}

/* -- changes ------------------------------------------------------------------------------------------------------ */

void netd_sandbox_recheck(struct netd_sandbox *s)
{
	if (s->relay)
		relay_recheck(s->relay);
}

int netd_sandbox_allow(struct netd_sandbox *s, const char *list, size_t len, struct err *e)
{
	const struct net_reach *all = &s->netd->reach.reach;
	/* The host's own are refused when they are dialed: they come and go. */
	struct net_reach opened = { .opened = all->opened, .nopened = all->nopened };
	struct net_policy *p;
	int r = net_policy_parse(list, len, &opened, &p, e);

	if (r < 0)
		return r;
	net_policy_unref(s->policy);
	s->policy = p;
	netd_sandbox_recheck(s);
	r = s->relay ? serve(s) : 0;
	return r < 0 ? err_set(e, r, "sockets of the sandbox: %s", err_name(r)) : 0;
}

int netd_sandbox_ports(struct netd_sandbox *s, const struct netd_request *q, struct msg *m, struct err *e)
{
	int fds[NET_PORTS_MAX], r;
	size_t next = 0;

	for (size_t i = 0; i < q->nports; i++) {
		int family = q->ports[i].host.family;

		fds[i] = q->has_fd[i] ? m->fds[next++] : -1;
		if (fds[i] >= 0 && !is_socket(fds[i], family, SOCK_STREAM))
			return err_set(e, -EBADMSG, "other sockets than the message says");
	}
	m->nfds = 0; /* taken */
	r = relay_set_ports(s->relay, q->ports, fds, q->nports, e);
	if (r < 0)
		return r;
	memcpy(s->ports, q->ports, q->nports * sizeof(q->ports[0]));
	s->nports = q->nports;
	s->ports_known = true;
	return 0;
}
