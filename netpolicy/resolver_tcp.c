/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A guest's connection holds what came in and is not yet a whole message, and what has to go out. Messages are taken in
 * any number and answered when their answers are there, not in their order (RFC 7766). While too much waits to go out
 * nothing is read. A guest that has said all it wanted (a half-closed connection) still gets its answers.
 *
 * Only on_conn() and on_timer() end a connection, and the client that owns it: what is called from below resolver.c
 * only adds bytes. */
#include "netpolicy/resolver_priv.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/fd.h"
#include "netpolicy/reserve.h"

#define PREFIX	    2u /* the length before each message */
#define CHUNK_BYTES 4096u
#define OUT_HIGH    (64u * 1024u)
#define OUT_MAX	    (512u * 1024u)

struct guest_conn {
	struct resolver_client *c;
	struct guest_conn *next;
	int fd;
	loop_id src, timer;
	uint32_t watched; /* the events that `src` waits for */
	struct buf in, out;
	size_t pending;	  /* questions under way */
	uint64_t last_ns; /* of the last byte in either direction */
	bool eof;	  /* the guest sends nothing more */
	bool broken;	  /* an answer was lost: end */
};

void guest_conn_end(struct guest_conn *g)
{
	struct guest_conn **at = &g->c->conns;

	resolver_forget_conn(g->c, g);
	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	g->c->nconns--;
	loop_del(g->c->r->loop, &g->src);
	loop_del(g->c->r->loop, &g->timer);
	fd_close(&g->fd);
	buf_fini(&g->in);
	buf_fini(&g->out);
	free(g);
}

static void watch(struct guest_conn *g)
{
	uint32_t events = (!g->eof && g->out.len < OUT_HIGH ? EPOLLIN : 0u) |
			  (g->out.len > 0 || g->broken ? EPOLLOUT : 0u);

	if (events != g->watched && loop_mod(g->c->r->loop, g->src, events) == 0)
		g->watched = events;
}

void guest_conn_pending(struct guest_conn *g, int by)
{
	g->pending += (size_t)by;
	g->last_ns = now_ns();
}

void guest_conn_send(struct guest_conn *g, const uint8_t *data, size_t len)
{
	uint8_t *to;

	if (buf_reserve(&g->out, PREFIX + len, &to) < 0) {
		g->broken = true;
	} else {
		uint8_t prefix[PREFIX] = { (uint8_t)(len >> 8), (uint8_t)len };

		buf_add(&g->out, prefix, sizeof(prefix));
		buf_add(&g->out, data, len);
	}
	watch(g);
}

/* The whole messages that have come. */
static int take_messages(struct guest_conn *g)
{
	const struct reply_to to = { .conn = g, .fd = -1 };
	size_t at = 0;

	while (g->in.len - at >= PREFIX) {
		size_t len = (size_t)g->in.data[at] << 8 | g->in.data[at + 1];

		if (len == 0)
			return -EBADMSG;
		if (g->in.len - at - PREFIX < len)
			break;
		resolver_question(g->c, &to, g->in.data + at + PREFIX, len);
		at += PREFIX + len;
	}
	buf_drop(&g->in, at);
	return 0;
}

static int read_some(struct guest_conn *g)
{
	uint8_t chunk[CHUNK_BYTES];
	ssize_t n = recv(g->fd, chunk, sizeof(chunk), 0);
	int r;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	g->last_ns = now_ns();
	if (n == 0) {
		g->eof = true;
		return 0;
	}
	r = buf_add(&g->in, chunk, (size_t)n);
	return r < 0 ? r : take_messages(g);
}

static int write_some(struct guest_conn *g)
{
	ssize_t n = send(g->fd, g->out.data, g->out.len, MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	g->last_ns = now_ns();
	buf_drop(&g->out, (size_t)n);
	return 0;
}

static void on_conn(void *arg, uint32_t events)
{
	struct guest_conn *g = arg;
	int r = 0;

	if (events & (EPOLLERR | EPOLLHUP)) {
		guest_conn_end(g);
		return;
	}
	if (g->out.len > 0 && (events & EPOLLOUT))
		r = write_some(g);
	if (r == 0 && (events & EPOLLIN))
		r = read_some(g);
	if (r < 0 || g->broken || (g->eof && g->pending == 0 && g->out.len == 0))
		guest_conn_end(g);
	else
		watch(g);
}

static void on_timer(void *arg)
{
	struct guest_conn *g = arg;
	uint64_t now = now_ns(), idle = g->c->r->idle_ns;

	if (g->pending > 0)
		g->last_ns = now;
	if (now - g->last_ns >= idle || loop_timer(g->c->r->loop, g->last_ns + idle, on_timer, g, &g->timer) < 0)
		guest_conn_end(g);
}

void guest_conn_new(struct resolver_client *c, int taken)
{
	AUTO_FD fd = taken;
	struct guest_conn *g;

	if (c->nconns >= RESOLVER_TCP || reserve_has(fd) || fd_set_nonblock(fd, true) < 0)
		return;
	g = calloc(1, sizeof(*g));
	if (!g)
		return;
	g->c = c;
	g->last_ns = now_ns();
	g->watched = EPOLLIN;
	buf_init(&g->in, PREFIX + DNS_MESSAGE_MAX + CHUNK_BYTES);
	buf_init(&g->out, OUT_MAX);
	if (loop_add(c->r->loop, fd, g->watched, on_conn, g, &g->src) < 0 ||
	    loop_timer(c->r->loop, g->last_ns + c->r->idle_ns, on_timer, g, &g->timer) < 0) {
		loop_del(c->r->loop, &g->src);
		free(g);
		return;
	}
	g->fd = take_fd(&fd);
	g->next = c->conns;
	c->conns = g;
	c->nconns++;
}
