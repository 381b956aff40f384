/* SPDX-License-Identifier: Apache-2.0 */
/* The relay, inward: published ports, and the sockets to dial with, which others make in the sandbox's namespace. */
#include "netpolicy/relay_priv.h"

#include <stdlib.h>

#include "base/fd.h"

/* -- sockets ------------------------------------------------------------------------------------------------------- */

void relay_ask(struct relay *r)
{
	if (r->asked || r->nsockets >= RELAY_SOCKETS / 4)
		return;
	r->asked = true;
	r->ops.need_sockets(r->arg);
}

/* Those that wait get theirs, the oldest first. None came: there will be none soon, and they are told so. */
static void serve_waiting(struct relay *r, bool came)
{
	struct relay_conn *next;

	for (struct relay_conn *c = r->conns; c; c = next) {
		next = c->next;
		if (c->state != RELAY_WAIT)
			continue;
		if (r->nsockets > 0) {
			relay_conn_dial(c, r->sockets[--r->nsockets]);
		} else if (came) {
			relay_ask(r);
			return;
		} else {
			relay_conn_end(c, "no socket could be made in the sandbox's network");
		}
	}
}

void relay_sockets(struct relay *r, const int *fds, size_t n)
{
	r->asked = false;
	for (size_t i = 0; i < n; i++) {
		int fd = fds[i];

		if (r->nsockets < RELAY_SOCKETS && fd_set_nonblock(fd, true) == 0)
			r->sockets[r->nsockets++] = fd;
		else
			fd_close(&fd);
	}
	serve_waiting(r, n > 0);
}

/* -- ports --------------------------------------------------------------------------------------------------------- */

static void take_in(struct relay_listener *l, int fd, const struct sockaddr_storage *peer, socklen_t len)
{
	const struct relay_port *p = (const struct relay_port *)l;
	struct relay *r = l->r;
	struct net_addr from;
	const char *why;

	if (net_addr_from_sockaddr((const struct sockaddr *)peer, len, &from, NULL) < 0)
		relay_reset_fd(&fd);
	else if (relay_full(r, fd, &why))
		relay_refuse(r, "in", &from, p->at.host_port, fd, why);
	else
		relay_conn_in(r, fd, &from, &p->at);
}

static struct relay_port *port_free(struct relay_port *p)
{
	if (!p)
		return NULL;
	relay_listener_fini(&p->listener);
	free(p);
	return NULL;
}

static struct relay_port *find(struct relay *r, const struct net_port *at)
{
	for (size_t i = 0; i < r->nports; i++)
		if (!r->ports[i]->kept && net_port_same_place(&r->ports[i]->at, at))
			return r->ports[i];
	return NULL;
}

/* A port's new place in the list: the one that is there, or one with the socket *@fd, which it takes. */
static int port_for(struct relay *r, const struct net_port *at, int *fd, struct relay_port **ret, struct err *e)
{
	struct relay_port *p;
	char text[96];
	int rc;

	net_port_text(at, text, sizeof(text));
	if (*fd < 0) {
		p = find(r, at);
		if (!p)
			return err_set(e, -ENOENT, "port %s: nothing listens there yet", text);
		p->kept = true;
		*ret = p;
		return 0;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, -ENOMEM, "port %s: no memory", text);
	p->at = *at;
	relay_listener_init(&p->listener, r, take_fd(fd));
	p->listener.take = take_in;
	rc = relay_listener_start(&p->listener);
	if (rc < 0) {
		port_free(p);
		return err_set(e, rc, "port %s: listen", text);
	}
	*ret = p;
	return 0;
}

/* Connections of ports that are not named any more end; one that leads elsewhere in the guest is another port. */
static void end_unnamed(struct relay *r)
{
	struct relay_conn *next;

	for (struct relay_conn *c = r->conns; c; c = next) {
		bool named = c->out;

		next = c->next;
		for (size_t i = 0; !named && i < r->nports; i++)
			named = net_port_same_place(&r->ports[i]->at, &c->at) &&
				r->ports[i]->at.guest_port == c->at.guest_port;
		if (!named)
			relay_conn_end(c, "the port is closed");
	}
}

static void unkeep(struct relay_port **ports, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ports[i]->kept = false;
}

static void replace(struct relay *r, struct relay_port **list, const struct net_port *ports, size_t n)
{
	struct relay_port **old = r->ports;
	size_t nold = r->nports;

	for (size_t i = 0; i < nold; i++)
		if (!old[i]->kept)
			port_free(old[i]);
	free(old);
	unkeep(list, n);
	for (size_t i = 0; i < n; i++)
		list[i]->at = ports[i];
	r->ports = list;
	r->nports = n;
}

int relay_set_ports(struct relay *r, const struct net_port *ports, const int *fds, size_t n, struct err *e)
{
	/* One more, so that an empty list is one, too. */
	struct relay_port **list = calloc(n + 1, sizeof(struct relay_port *));
	int rc = list ? 0 : -ENOMEM;

	if (rc < 0)
		err_set(e, rc, "ports: no memory");
	for (size_t i = 0; i < n; i++) {
		int fd = fds[i];

		if (rc == 0)
			rc = port_for(r, &ports[i], &fd, &list[i], e);
		fd_close(&fd);
	}
	if (rc < 0) {
		for (size_t i = 0; list && i < n; i++)
			if (list[i] && !list[i]->kept)
				port_free(list[i]);
		unkeep(r->ports, r->nports);
		free(list);
		return rc;
	}
	replace(r, list, ports, n);
	end_unnamed(r);
	if (n > 0)
		relay_ask(r);
	return 0;
}

void relay_in_close(struct relay *r)
{
	for (size_t i = 0; i < r->nports; i++)
		port_free(r->ports[i]);
	r->nports = 0;
	while (r->nsockets > 0)
		fd_close(&r->sockets[--r->nsockets]);
}
