/* SPDX-License-Identifier: Apache-2.0 */
/* The relay: what is accepted, counted, asked about again. */
#include "netpolicy/relay_priv.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "netpolicy/reserve.h"

#define ACCEPTS_MAX 16 /* in one event */
#define SECOND_NS   1000000000ull
#define DNS_PORT    53

void relay_reset_fd(int *fd)
{
	const struct linger now = { .l_onoff = 1, .l_linger = 0 };

	if (*fd < 0)
		return;
	(void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	fd_close(fd);
}

/* -- listening ----------------------------------------------------------------------------------------------------- */

static void on_rested(void *arg)
{
	struct relay_listener *l = arg;

	l->again = 0;
	(void)loop_mod(l->r->loop, l->src, EPOLLIN);
}

static void rest(struct relay_listener *l)
{
	loop_del(l->r->loop, &l->again);
	if (loop_timer(l->r->loop, now_ns() + l->r->rest_ns, on_rested, l, &l->again) == 0)
		(void)loop_mod(l->r->loop, l->src, 0);
}

/* Errors of the connection that was to be accepted, not of the listener: accept(2) passes them on. */
static bool of_one(int e)
{
	switch (e) {
	case EAGAIN:
	case EINTR:
	case ECONNABORTED:
	case EPERM:
	case EPROTO:
	case ENOPROTOOPT:
	case ENETDOWN:
	case ENETUNREACH:
	case EHOSTDOWN:
	case EHOSTUNREACH:
	case ENONET:
	case EOPNOTSUPP:
		return true;
	default:
		return false;
	}
}

static bool may_open(struct relay *r)
{
	uint64_t now = now_ns();

	r->saved_ns += now - r->refilled_ns;
	r->refilled_ns = now;
	if (r->saved_ns > RELAY_BURST * r->cost_ns)
		r->saved_ns = RELAY_BURST * r->cost_ns;
	return r->saved_ns >= r->cost_ns;
}

static void on_listener(void *arg, uint32_t events)
{
	struct relay_listener *l = arg;

	(void)events;
	for (int i = 0; i < ACCEPTS_MAX; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		int fd;

		if (l->paced && !may_open(l->r)) {
			rest(l);
			return;
		}
		fd = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			/* It was shut down by whoever else has it, for good: its hang-up would be told for ever. */
			if (errno == EINVAL)
				loop_del(l->r->loop, &l->src);
			else if (!of_one(errno))
				rest(l);
			return;
		}
		if (l->paced)
			l->r->saved_ns -= l->r->cost_ns;
		l->take(l, fd, &peer, len);
	}
}

void relay_listener_init(struct relay_listener *l, struct relay *r, int fd)
{
	l->r = r;
	l->fd = fd;
}

int relay_listener_start(struct relay_listener *l)
{
	int r = fd_set_nonblock(l->fd, true);

	return r < 0 ? r : loop_add(l->r->loop, l->fd, EPOLLIN, on_listener, l, &l->src);
}

void relay_listener_fini(struct relay_listener *l)
{
	loop_del(l->r->loop, &l->src);
	loop_del(l->r->loop, &l->again);
	fd_close(&l->fd);
}

/* -- outward ------------------------------------------------------------------------------------------------------- */

void relay_refuse(struct relay *r, const char *direction, const struct net_addr *a, uint16_t port, int fd,
		  const char *reason)
{
	const struct relay_event ev = {
		.direction = direction,
		.name = "",
		.addr = *a,
		.port = port,
		.verdict = "refused",
		.reason = reason,
	};

	relay_reset_fd(&fd);
	r->stat.refused++;
	r->ops.on_event(r->arg, &ev);
}

bool relay_full(const struct relay *r, int fd, const char **ret_why)
{
	if (r->stat.open >= RELAY_CONNECTIONS_MAX)
		*ret_why = "too many connections";
	else if (reserve_has(fd))
		*ret_why = "too many connections of all sandboxes";
	else
		return false;
	return true;
}

/* TPROXY leaves the address that was dialed as the socket's own. */
static void take_out(struct relay_listener *l, int fd, const struct sockaddr_storage *peer, socklen_t peer_len)
{
	struct relay *r = l->r;
	struct sockaddr_storage dialed;
	socklen_t len = sizeof(dialed);
	const char *why;
	struct net_addr a;
	uint16_t port;

	(void)peer;
	(void)peer_len;
	if (getsockname(fd, (struct sockaddr *)&dialed, &len) < 0 ||
	    net_addr_from_sockaddr((const struct sockaddr *)&dialed, len, &a, &port) < 0)
		relay_reset_fd(&fd);
	else if (port == DNS_PORT)
		r->ops.on_dns(r->arg, fd);
	else if (relay_full(r, fd, &why))
		relay_refuse(r, "out", &a, port, fd, why);
	else
		relay_conn_out(r, fd, &a, port);
}

void relay_recheck(struct relay *r)
{
	struct relay_conn *next;

	for (struct relay_conn *c = r->conns; c; c = next) {
		next = c->next;
		if (c->out && c->state != RELAY_HELLO)
			(void)relay_conn_decide(c);
	}
}

void relay_stat(const struct relay *r, struct relay_stat *ret)
{
	*ret = r->stat;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

int relay_listen(struct relay *r, int tcp4, int tcp6)
{
	int rc = 0;

	relay_listener_init(&r->tcp[0], r, tcp4);
	relay_listener_init(&r->tcp[1], r, tcp6);
	for (size_t i = 0; rc == 0 && i < ARRAY_LEN(r->tcp); i++) {
		r->tcp[i].take = take_out;
		r->tcp[i].paced = true;
		if (r->tcp[i].fd >= 0)
			rc = relay_listener_start(&r->tcp[i]);
	}
	return rc;
}

int relay_new(struct loop *l, const struct relay_ops *ops, void *arg, int tcp4, int tcp6, struct relay **ret)
{
	struct relay *r = calloc(1, sizeof(*r));
	int rc;

	if (!r) {
		fd_close(&tcp4);
		fd_close(&tcp6);
		return -ENOMEM;
	}
	r->loop = l;
	r->ops = *ops;
	r->arg = arg;
	r->hello_ns = 10 * SECOND_NS;
	r->dial_ns = RELAY_DIAL_S * SECOND_NS;
	r->idle_ns = RELAY_IDLE_S * SECOND_NS;
	r->rest_ns = SECOND_NS / 10;
	r->cost_ns = SECOND_NS / RELAY_A_SECOND;
	r->saved_ns = RELAY_BURST * r->cost_ns;
	r->refilled_ns = now_ns();
	rc = relay_listen(r, tcp4, tcp6);
	if (rc < 0) {
		relay_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

struct relay *relay_free(struct relay *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(r->tcp); i++)
		relay_listener_fini(&r->tcp[i]);
	relay_in_close(r);
	while (r->conns)
		relay_conn_end(r->conns, "the network stops");
	pipes_close(&r->pipes);
	free(r->ports);
	free(r);
	return NULL;
}
