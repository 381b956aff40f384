/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A connection has two sides, the guest's and the far one. One was accepted, the other is dialed; once both are open it
 * makes no difference which: two pumps move the bytes, and each event on either side is a turn of both. After a turn,
 * every side is asked for exactly what a pump waits for: EPOLLIN while it may be read, EPOLLOUT while the other side's
 * bytes are stuck before it, and neither while the pump that reads it is stuck. That is the whole back-pressure. Urgent
 * bytes are passed on in their place, as bytes like others.
 *
 *	RELAY_HELLO ---hello, decide---> RELAY_DIAL ---connected---> RELAY_OPEN ---both ends told---> closed
 *	(out, TLS)			  ^  ^			       |
 *	RELAY_WAIT ---a socket came-------+  +---(out: decide)	       +---error, idle, forbidden, port gone---> reset
 *	(in)
 *
 * Whatever ends a connection earlier than that resets both sides. Errors and hang-ups are always told by epoll, asked
 * for or not. An error ends the connection. A hang-up without one means that both directions of a socket have ended,
 * ours by shutdown(): it would be told for as long as the other side still takes bytes, so such a side leaves the loop
 * when nothing is wanted from it.
 *
 * Every function that may end a connection frees it: its callers do not look at it afterwards.
 */
#include "netpolicy/relay_priv.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "netpolicy/reserve.h"

/* Bytes that wait in a socket to be sent. The kernel sends them on as the target takes them, without us; with 128 KiB
 * it waited for our next turn too often, and a guest had 0.85 of a bridge's throughput, not all of it. */
#define UNSENT_BYTES (512 * 1024)
/* The kernel lets buffers grow, to megabytes each where the bytes come fast. Only for so many connections of a sandbox
 * at once; those that are opened beyond that have small ones, so that a guest that stops reading all of them does not
 * fill the host's memory. */
#define WIDE_CONNECTIONS 16u
#define NARROW_BYTES	 (64 * 1024) /* the kernel takes that twice, for its own needs; what waits is in it */

static struct relay_side *accepted(struct relay_conn *c)
{
	return c->out ? &c->guest : &c->far;
}

static struct relay_side *dialed(struct relay_conn *c)
{
	return c->out ? &c->far : &c->guest;
}

/* -- its end ----------------------------------------------------------------------------------------------------- */

static void side_close(struct relay_conn *c, struct relay_side *s, bool reset)
{
	loop_del(c->r->loop, &s->src);
	if (reset)
		relay_reset_fd(&s->fd);
	else
		fd_close(&s->fd);
}

static void conn_unlink(struct relay_conn *c)
{
	struct relay *r = c->r;

	*(c->prev ? &c->prev->next : &r->conns) = c->next;
	*(c->next ? &c->next->prev : &r->last) = c->prev;
	if (--r->stat.open == 0)
		pipes_close(&r->pipes);
}

static void finish(struct relay_conn *c, const char *verdict, const char *reason)
{
	struct relay *r = c->r;
	bool whole = c->from_guest.done && c->to_guest.done;
	const struct relay_event ev = {
		.direction = c->out ? "out" : "in",
		.name = c->name,
		.addr = c->addr,
		.port = c->port,
		.verdict = verdict,
		.reason = reason,
		.bytes_out = c->from_guest.bytes,
		.bytes_in = c->to_guest.bytes,
		.duration_ns = now_ns() - c->began_ns,
	};

	side_close(c, &c->guest, !whole);
	side_close(c, &c->far, !whole);
	loop_del(r->loop, &c->timer);
	pump_fini(&c->from_guest);
	pump_fini(&c->to_guest);
	conn_unlink(c);
	r->ops.on_event(r->arg, &ev);
	free(c);
}

void relay_conn_end(struct relay_conn *c, const char *reason)
{
	if (c->state == RELAY_OPEN) {
		finish(c, "ended", reason);
	} else {
		c->r->stat.failed++;
		finish(c, "failed", reason);
	}
}

void relay_conn_refuse(struct relay_conn *c, const char *reason)
{
	c->r->stat.refused++;
	finish(c, "refused", reason);
}

/* -- what is waited for -------------------------------------------------------------------------------------------- */

static void on_guest(void *arg, uint32_t events);
static void on_far(void *arg, uint32_t events);

/* 0, or -errno as loop_add(). */
static int side_watch(struct relay_conn *c, struct relay_side *s, uint32_t events)
{
	if (s->hung && events == 0) {
		loop_del(c->r->loop, &s->src);
		return 0;
	}
	if (s->src && s->events == events)
		return 0;
	s->events = events;
	if (s->src)
		return loop_mod(c->r->loop, s->src, events);
	return loop_add(c->r->loop, s->fd, events, s == &c->guest ? on_guest : on_far, c, &s->src);
}

static const char *late(const struct relay_conn *c)
{
	switch (c->state) {
	case RELAY_HELLO:
		return "no TLS hello came in time";
	case RELAY_WAIT:
		return "no socket could be made in the sandbox's network in time";
	case RELAY_DIAL:
		return "connect: no answer";
	case RELAY_OPEN:
		break;
	}
	return "idle for too long";
}

static void on_timer(void *arg)
{
	struct relay_conn *c = arg;
	uint64_t until = c->moved_ns + c->r->idle_ns;

	c->timer = 0;
	if (c->state == RELAY_HELLO)
		relay_conn_refuse(c, late(c));
	else if (c->state != RELAY_OPEN || until <= now_ns())
		relay_conn_end(c, late(c));
	else if (loop_timer(c->r->loop, until, on_timer, c, &c->timer) < 0)
		relay_conn_end(c, "no memory");
}

static int conn_time(struct relay_conn *c, uint64_t ns)
{
	loop_del(c->r->loop, &c->timer);
	return loop_timer(c->r->loop, now_ns() + ns, on_timer, c, &c->timer);
}

/* -- open ---------------------------------------------------------------------------------------------------------- */

/* Of a side: @in reads it, @out writes it. */
static uint32_t wants(const struct pump *in, const struct pump *out)
{
	return (!in->eof && !in->stuck ? EPOLLIN | EPOLLPRI : 0u) | (out->stuck ? EPOLLOUT : 0u);
}

static struct pump *reads(struct relay_conn *c, const struct relay_side *s)
{
	return s == &c->guest ? &c->from_guest : &c->to_guest;
}

static struct relay_side *other(struct relay_conn *c, const struct relay_side *s)
{
	return s == &c->guest ? &c->far : &c->guest;
}

static int move(struct relay_conn *c, const struct relay_side *from)
{
	struct relay *r = c->r;
	struct pump *p = reads(c, from);
	uint64_t before = p->bytes;
	int rc = pump_turn(p, &r->pipes, from->fd, other(c, from)->fd);

	*(from == &c->guest ? &r->stat.bytes_out : &r->stat.bytes_in) += p->bytes - before;
	if (p->bytes > before)
		c->moved_ns = now_ns();
	return rc;
}

static int side_error(const struct relay_side *s)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? -errno : -error;
}

/* After @events on @s, which is read first: what came before a reset is passed on before it. Reading ends in the
 * error then; only where nothing is read it must be asked for. */
static void turn(struct relay_conn *c, struct relay_side *s, uint32_t events)
{
	struct relay_side *o = other(c, s);
	int rc;

	/* splice() does not get past an urgent byte, and it would be told for ever that there is something to read. */
	if (events & EPOLLPRI)
		reads(c, s)->copy = true;
	rc = move(c, s);
	if (rc == 0 && (events & (EPOLLERR | EPOLLHUP)) && (reads(c, s)->stuck || reads(c, s)->eof))
		rc = side_error(s);
	if (rc == 0)
		rc = move(c, o);
	if (rc == 0 && c->from_guest.done && c->to_guest.done) {
		relay_conn_end(c, "");
		return;
	}
	if (rc == 0)
		rc = side_watch(c, s, wants(reads(c, s), reads(c, o)));
	if (rc == 0)
		rc = side_watch(c, o, wants(reads(c, o), reads(c, s)));
	if (rc < 0)
		relay_conn_end(c, strerror(-rc));
}

static void set(int fd, int level, int option, int value)
{
	/* Without it things are slower, or larger, or urgent bytes are lost: no reason to end a connection. */
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

static void opened(struct relay_conn *c)
{
	const int fds[] = { c->guest.fd, c->far.fd };

	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		set(fds[i], IPPROTO_TCP, TCP_NODELAY, 1);
		set(fds[i], IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_BYTES);
		if (c->r->stat.open > WIDE_CONNECTIONS) {
			set(fds[i], SOL_SOCKET, SO_RCVBUF, NARROW_BYTES);
			set(fds[i], SOL_SOCKET, SO_SNDBUF, NARROW_BYTES);
		}
	}
	c->state = RELAY_OPEN;
	c->r->stat.opened++;
	c->moved_ns = now_ns();
	if (conn_time(c, c->r->idle_ns) < 0)
		relay_conn_end(c, "no memory");
	else
		turn(c, &c->guest, 0);
}

/* -- dial ---------------------------------------------------------------------------------------------------------- */

void relay_conn_dial(struct relay_conn *c, int fd)
{
	struct relay_side *s = dialed(c);
	struct sockaddr_storage to;
	struct net_addr guest;
	socklen_t len;
	int rc;

	s->fd = fd;
	set(fd, SOL_SOCKET, SO_OOBINLINE, 1);
	c->state = RELAY_DIAL;
	if (c->out) {
		len = net_addr_to_sockaddr(&c->addr, c->port, &to);
	} else {
		(void)net_addr_parse(NET_GUEST_ADDR, &guest);
		len = net_addr_to_sockaddr(&guest, c->at.guest_port, &to);
	}
	rc = connect(fd, (const struct sockaddr *)&to, len) < 0 && errno != EINPROGRESS ? -errno : 0;
	if (rc == 0)
		rc = side_watch(c, s, EPOLLOUT);
	if (rc == 0)
		rc = conn_time(c, c->r->dial_ns);
	if (rc < 0)
		relay_conn_end(c, strerror(-rc));
}

bool relay_conn_decide(struct relay_conn *c)
{
	struct relay *r = c->r;
	char name[NET_NAME_MAX + 1];
	struct err e = { 0 };

	memcpy(name, c->name, sizeof(name));
	if (r->ops.decide(r->arg, &c->addr, c->port, c->has_tls ? c->tls : NULL, name, &e) == 0) {
		memcpy(c->name, name, sizeof(c->name));
		return true;
	}
	if (c->state == RELAY_OPEN)
		relay_conn_end(c, e.msg);
	else
		relay_conn_refuse(c, e.msg);
	return false;
}

void relay_conn_dial_out(struct relay_conn *c)
{
	AUTO_FD fd = -1;
	int rc;

	if (!relay_conn_decide(c))
		return;
	/* Its bytes wait in the socket from here on. */
	rc = side_watch(c, &c->guest, 0);
	if (rc == 0) {
		fd = socket(c->addr.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
		rc = fd < 0 ? -errno : reserve_has(fd) ? -EMFILE : 0;
	}
	if (rc == 0)
		relay_conn_dial(c, take_fd(&fd));
	else
		relay_conn_end(c, strerror(-rc));
}

/* -- events -------------------------------------------------------------------------------------------------------- */

/* While it is not open. */
static void on_early(struct relay_conn *c, struct relay_side *s, uint32_t events)
{
	int rc = events & (EPOLLERR | EPOLLHUP) ? side_error(s) : 0;

	if (rc < 0)
		relay_conn_end(c, strerror(-rc));
	else if (c->state == RELAY_HELLO)
		relay_hello(c);
	else if (c->state == RELAY_DIAL && s == dialed(c))
		opened(c);
	else
		(void)side_watch(c, s, 0);
}

static void on_side(struct relay_conn *c, struct relay_side *s, uint32_t events)
{
	s->hung = (events & EPOLLHUP) != 0;
	if (c->state == RELAY_OPEN)
		turn(c, s, events);
	else
		on_early(c, s, events);
}

static void on_guest(void *arg, uint32_t events)
{
	struct relay_conn *c = arg;

	on_side(c, &c->guest, events);
}

static void on_far(void *arg, uint32_t events)
{
	struct relay_conn *c = arg;

	on_side(c, &c->far, events);
}

/* -- its beginning ------------------------------------------------------------------------------------------------- */

/* Takes @fd. NULL without memory. */
static struct relay_conn *conn_new(struct relay *r, bool out, int fd, const struct net_addr *a, uint16_t port)
{
	struct relay_conn *c = calloc(1, sizeof(*c));

	if (!c) {
		relay_reset_fd(&fd);
		return NULL;
	}
	c->r = r;
	c->out = out;
	c->addr = *a;
	c->port = port;
	c->guest.fd = c->far.fd = -1;
	accepted(c)->fd = fd;
	set(fd, SOL_SOCKET, SO_OOBINLINE, 1);
	pump_init(&c->from_guest, SNIFF_MAX);
	pump_init(&c->to_guest, 0);
	c->from_guest.copy = c->to_guest.copy = r->copy;
	c->began_ns = now_ns();
	c->prev = r->last;
	*(r->last ? &r->last->next : &r->conns) = c;
	r->last = c;
	r->stat.open++;
	return c;
}

void relay_conn_out(struct relay *r, int fd, const struct net_addr *a, uint16_t port)
{
	struct relay_conn *c = conn_new(r, true, fd, a, port);
	int rc;

	if (!c)
		return;
	if (!relay_tls_port(port)) {
		relay_conn_dial_out(c);
		return;
	}
	c->state = RELAY_HELLO;
	rc = side_watch(c, &c->guest, EPOLLIN);
	if (rc == 0)
		rc = conn_time(c, r->hello_ns);
	if (rc < 0)
		relay_conn_end(c, strerror(-rc));
}

void relay_conn_in(struct relay *r, int fd, const struct net_addr *from, const struct net_port *at)
{
	struct relay_conn *c = conn_new(r, false, fd, from, at->host_port);
	int rc;

	if (!c)
		return;
	c->at = *at;
	c->state = RELAY_WAIT;
	rc = side_watch(c, &c->far, 0);
	if (rc == 0)
		rc = conn_time(c, r->dial_ns);
	if (rc < 0) {
		relay_conn_end(c, strerror(-rc));
		return;
	}
	if (r->nsockets > 0)
		relay_conn_dial(c, r->sockets[--r->nsockets]);
	relay_ask(r); /* may serve @c already */
}
