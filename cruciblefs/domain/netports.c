/* SPDX-License-Identifier: Apache-2.0 */
/* net/ports. The daemon binds at the write, so that a port that is taken is the write's errno; crucible-netd gets
 * copies of the sockets while the sandbox's network is open. They are kept while the sandbox is down. One that is given
 * back stops listening at once, whoever still has a copy of it (shutdown), so that it can be bound again by the next
 * write. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/fd.h"
#include "cruciblefs/domain/view_priv.h"

#define BACKLOG 128

static void give_back(struct net_held *h)
{
	if (h->fd >= 0)
		shutdown(h->fd, SHUT_RDWR);
	fd_close(&h->fd);
}

void net_ports_free(struct sandbox *s)
{
	for (size_t i = 0; i < s->net.nports; i++)
		give_back(&s->net.ports[i]);
	free(s->net.ports);
	s->net.ports = NULL;
	s->net.nports = 0;
}

void net_ports_forget_netd(struct sandbox *s)
{
	for (size_t i = 0; i < s->net.nports; i++)
		s->net.ports[i].with_netd = s->net.ports[i].sent = false;
}

void net_ports_netd_has(struct sandbox *s, const char *text)
{
	struct net_port ports[NET_PORTS_MAX];
	size_t n = 0;

	if (net_ports_parse(text, strlen(text), ports, &n, NULL) < 0 || n != 1)
		return;
	for (size_t i = 0; i < s->net.nports; i++)
		s->net.ports[i].with_netd |= net_port_same_place(&s->net.ports[i].port, &ports[0]);
}

/* Whose it is, if it is a sandbox's of the same owner: for words. */
static const char *holder(const struct sandbox *s, const struct net_port *p)
{
	for (const struct sandbox *o = s->reg->first; o; o = o->next) {
		for (size_t i = 0;
		     o != s && o->owner.uid == s->owner.uid && o->owner.view == s->owner.view && i < o->net.nports;
		     i++) {
			if (o->net.ports[i].port.host_port == p->host_port)
				return o->name;
		}
	}
	return NULL;
}

/* Its present list has the port with another address (0.0.0.0 and 127.0.0.1): that is held until the new list is. */
static bool held_by_itself(const struct sandbox *s, const struct net_port *p)
{
	for (size_t i = 0; i < s->net.nports; i++) {
		const struct net_port *o = &s->net.ports[i].port;

		if (o->host_port == p->host_port && o->host.family == p->host.family && !net_port_same_place(o, p))
			return true;
	}
	return false;
}

static int refused(const struct sandbox *s, const struct net_port *p, int code, struct err *e)
{
	const char *by = code == -EADDRINUSE ? holder(s, p) : NULL;
	char addr[NET_ADDR_TEXT];

	net_addr_text(&p->host, addr);
	switch (code) {
	case -EADDRINUSE:
		if (!by && held_by_itself(s, p))
			return err_set(e, code,
				       "%s port %u of this host is taken, maybe by the present list, which has that "
				       "port with another address: empty it first (echo '#' > net/ports)",
				       addr, p->host_port);
		return err_set(e, code, "%s port %u of this host is taken%s%s; choose another", addr, p->host_port,
			       by ? " by sandbox " : "", by ? by : "");
	case -EACCES:
		return err_set(e, code, "port %u: this daemon may not bind ports below 1024; choose a higher one",
			       p->host_port);
	case -EADDRNOTAVAIL:
		return err_set(e, code, "%s is no address of this host", addr);
	default:
		return err_set(e, code, "%s port %u: %s", addr, p->host_port, strerror(-code));
	}
}

static int bind_one(const struct net_port *p, int *ret_fd)
{
	struct sockaddr_storage a;
	socklen_t len = net_addr_to_sockaddr(&p->host, p->host_port, &a);
	AUTO_FD fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	/* Of an address with connections that are about to end; one that listens is refused all the same. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0)
		return -errno;
	if (a.ss_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&a, len) < 0 || listen(fd, BACKLOG) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

int net_ports_bind(struct sandbox *s, struct err *e)
{
	int first = 0;

	for (size_t i = 0; i < s->net.nports; i++) {
		struct net_held *h = &s->net.ports[i];
		int k = h->fd >= 0 || h->with_netd ? 0 : bind_one(&h->port, &h->fd);

		if (k < 0 && !first)
			first = refused(s, &h->port, k, e);
	}
	if (first)
		err_wrap(e, "sandbox %s: net/ports", s->name);
	return first;
}

/* -- texts --------------------------------------------------------------------------------------------------------- */

int net_ports_text(const struct sandbox *s, struct buf *out)
{
	char text[96];
	int k = 0;

	for (size_t i = 0; !k && i < s->net.nports; i++) {
		k = net_port_text(&s->net.ports[i].port, text, sizeof(text));
		if (k >= 0)
			k = buf_addf(out, "%s\n", text);
	}
	return k;
}

static int parse(const char *text, size_t len, struct net_held **ret, size_t *ret_n, struct err *e)
{
	struct net_port ports[NET_PORTS_MAX];
	struct net_held *held = NULL;
	size_t n = 0;
	int k = net_ports_parse(text, len, ports, &n, e);

	if (k < 0)
		return k;
	if (n) {
		held = calloc(n, sizeof(*held));
		if (!held)
			return err_set(e, -ENOMEM, "no memory");
	}
	for (size_t i = 0; i < n; i++)
		held[i] = (struct net_held){ .port = ports[i], .fd = -1 };
	*ret = held;
	*ret_n = n;
	return 0;
}

int net_ports_from_text(struct sandbox *s, const char *text, struct err *e)
{
	return parse(text, strlen(text), &s->net.ports, &s->net.nports, e);
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

int sandbox_net_ports_show(struct sandbox *s, struct buf *out)
{
	return net_ports_text(s, out);
}

/* What is in both lists keeps its socket; -1 in @next then stands for "in the other one". */
static int bind_new(struct sandbox *s, struct net_held *next, size_t n, struct err *e)
{
	struct sandbox_net *old = &s->net;
	int k = 0;

	for (size_t i = 0; i < n && !k; i++) {
		bool kept = false;

		for (size_t j = 0; j < old->nports; j++)
			kept |= net_port_same_place(&old->ports[j].port, &next[i].port) &&
				(old->ports[j].fd >= 0 || old->ports[j].with_netd);
		k = kept ? 0 : bind_one(&next[i].port, &next[i].fd);
		if (k < 0)
			refused(s, &next[i].port, k, e);
	}
	return k;
}

/* The old ones' sockets go over, or back. */
static void replace(struct net_held *old, size_t nold, struct net_held *next, size_t n)
{
	for (size_t j = 0; j < nold; j++) {
		for (size_t i = 0; i < n; i++) {
			if (next[i].fd >= 0 || next[i].with_netd || !net_port_same_place(&old[j].port, &next[i].port))
				continue;
			next[i].fd = take_fd(&old[j].fd);
			next[i].with_netd = old[j].with_netd; /* to netd a socket is its address and port here */
		}
		give_back(&old[j]);
	}
	free(old);
}

int sandbox_net_ports_store(struct sandbox *s, const char *text, size_t len, const struct cfs_who *who, struct err *e)
{
	struct net_held *next = NULL, *old = s->net.ports;
	size_t n = 0, nold = s->net.nports;
	int k = sandbox_permits(s, who, POLICY_NETWORK, "net/ports", e);

	if (k < 0) {
		sandbox_fail(s, who, e);
		return k;
	}
	k = parse(text, len, &next, &n, e);
	if (!k && n)
		k = permit_any_net(s, who, e);
	if (!k)
		k = bind_new(s, next, n, e);
	if (k < 0)
		err_wrap(e, "sandbox %s: net/ports", s->name);
	if (!k) {
		s->net.ports = next;
		s->net.nports = n;
		k = sandbox_save(s, e);
	}
	if (k < 0) {
		s->net.ports = old;
		s->net.nports = nold;
		for (size_t i = 0; i < n; i++)
			give_back(&next[i]);
		free(next);
		sandbox_fail(s, who, e);
		return k;
	}
	replace(old, nold, next, n);
	net_log_change(s, who, "net/ports", n);
	sandbox_changed(s);
	net_changed(s);
	return 0;
}
