/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Input. A port reads into one fixed buffer and takes whole frames from its front. A frame that is out of order or
 * malformed ends the epoch: nothing that follows on that port can be trusted to begin at a frame's start, so bytes are
 * skipped until something that is a HELLO to the last bit stands there.
 *
 * Output. A port has one queue of bytes. Whoever sends appends; a deferred call at the end of the loop's round writes.
 * The queue of bulk has three bounds: command output stops above BULK_HIGH and goes on below BULK_LOW; answers to file
 * requests and credit are bounded by what the host may ask for (AG_FS_INFLIGHT_MAX, AG_WINDOW); OUT_MAX is the sum of
 * it all and is never met by a host that keeps to the protocol. On control, input is not read while more than
 * CONTROL_HIGH waits, so a flood of pings costs nothing.
 *
 * A quiet connection (see proto.h, FREEZE) still takes frames from its parts, at the end of the queue, as bytes held
 * back: they have their numbers and wait. In the parent of a snapshot they go out afterwards, in a fork a reset drops
 * them.
 *
 * At a reset the queue is cleared but for the rest of a frame of which a part has been written: the host's parser must
 * stay in step.
 *
 * A virtio port whose host end is closed polls as hung up for ever. It is then taken out of the loop and looked at
 * by a timer, 10 ms at first, 200 ms in the end.
 */
#include "agent/conn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"

#define IN_CAP	       (2u * (AG_HEADER_LEN + AG_PAYLOAD_MAX))
#define READ_A_ROUND   (128u * 1024) /* a port's bytes per event; then the others have their turn */
#define CONTROL_HIGH   (64u * 1024)
#define BULK_HIGH      (256u * 1024)
#define BULK_LOW       (128u * 1024)
#define OUT_MAX	       (8u * 1024 * 1024)
#define OUT_KEEP       (1024u * 1024) /* memory that an empty queue keeps */
#define RETRY_FIRST_MS 10u
#define RETRY_LAST_MS  200u

enum port_state { PORT_AWAIT, PORT_PENDING, PORT_UP };

struct port {
	struct conn *conn;
	enum conn_port which;
	int fd;
	bool is_socket;
	loop_id src;	 /* 0 while hung up */
	uint32_t events; /* what the loop watches */
	loop_id retry;	 /* looks whether the host is back */
	uint32_t retry_ms;

	enum port_state state;
	bool held;	  /* the frame at the front waits for conn_retry() */
	loop_id offer;	  /* deferred: it is offered again */
	struct buf hello; /* PENDING: the payload of the HELLO */
	uint32_t seq_in;  /* of the next frame */
	uint8_t *in;	  /* IN_CAP bytes */
	size_t in_len;

	uint32_t seq_out;
	struct buf out;
	size_t out_head;  /* bytes of out.data already written */
	size_t out_frame; /* where the frame begins that out_head stands in */
	size_t held_back; /* bytes at the end of out that are not to be written while the connection is quiet */
};

struct conn {
	struct loop *loop;
	struct conn_ops ops;
	void *arg;
	struct port ports[CONN_PORT_COUNT];
	loop_id flush; /* deferred */
	bool starved;  /* somebody waits for on_room() */
	bool resetting;
	bool quiet;
};

static void port_hung_up(struct port *p);
static void conn_kick(struct conn *c);

static size_t port_queued(const struct port *p)
{
	return p->out.len - p->out_head;
}

/* What may be written. */
static size_t port_ready(const struct port *p)
{
	return port_queued(p) - p->held_back;
}

static void port_watch(struct port *p)
{
	uint32_t events = port_ready(p) ? EPOLLOUT : 0;

	if (!p->held && (p->which != CONN_CONTROL || port_queued(p) < CONTROL_HIGH))
		events |= EPOLLIN;
	if (p->src && events != p->events && loop_mod(p->conn->loop, p->src, events) == 0)
		p->events = events;
}

/* -- output ------------------------------------------------------------------------- */

static uint32_t out_u32(const struct port *p, size_t at)
{
	const uint8_t *b = p->out.data + at;

	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Header and payload of the frame that begins there. */
static uint32_t frame_len_at(const struct port *p, size_t at)
{
	return AG_HEADER_LEN + out_u32(p, at);
}

static void out_compact(struct port *p)
{
	if (p->out_head == p->out.len) {
		p->out.len = p->out_head = p->out_frame = 0;
		if (p->out.cap > OUT_KEEP)
			buf_fini(&p->out);
	} else if (p->out_frame > p->out.len / 2) {
		buf_drop(&p->out, p->out_frame);
		p->out_head -= p->out_frame;
		p->out_frame = 0;
	}
}

/* Drop what waits, but for the rest of a frame that is half out. What is sent next takes the first dropped one's
 * number. */
static void out_cut(struct port *p)
{
	size_t keep = p->out_head;

	if (p->out_head > p->out_frame)
		keep = p->out_frame + frame_len_at(p, p->out_frame);
	if (keep < p->out.len)
		p->seq_out = out_u32(p, keep + 12);
	p->out.len = keep;
	p->held_back = 0;
	out_compact(p);
}

/* Write until the port is full. -EAGAIN when something is left. */
static int port_write(struct port *p)
{
	while (port_ready(p) > 0) {
		ssize_t n = p->is_socket ? send(p->fd, p->out.data + p->out_head, port_ready(p), MSG_NOSIGNAL)
					 : write(p->fd, p->out.data + p->out_head, port_ready(p));

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return errno == EAGAIN ? -EAGAIN : -EIO;
		}
		p->out_head += (size_t)n;
		while (p->out_frame < p->out_head && p->out_frame + frame_len_at(p, p->out_frame) <= p->out_head)
			p->out_frame += frame_len_at(p, p->out_frame);
	}
	return 0;
}

static void port_flush(struct port *p)
{
	struct conn *c = p->conn;

	if (!p->src || port_ready(p) == 0)
		return;
	if (port_write(p) == -EIO) {
		port_hung_up(p);
		return;
	}
	out_compact(p);
	port_watch(p);
	if (p->which == CONN_BULK && c->starved && !c->quiet && port_queued(p) < BULK_LOW) {
		c->starved = false;
		c->ops.on_room(c->arg);
	}
}

static void on_flush(void *arg)
{
	struct conn *c = arg;

	c->flush = 0;
	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++)
		port_flush(&c->ports[i]);
}

static void conn_kick(struct conn *c)
{
	/* Without memory for the deferred call the next event of the port writes. */
	if (!c->flush)
		loop_defer(c->loop, on_flush, c, &c->flush);
}

static void port_reset(struct port *p)
{
	p->state = PORT_AWAIT;
	if (p->held)
		conn_retry(p->conn, p->which);
	buf_reset(&p->hello);
	out_cut(p);
}

/* The end of an epoch, if there is one. */
static void conn_reset(struct conn *c)
{
	bool up = conn_is_up(c);

	if (c->resetting)
		return;
	c->resetting = true;
	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++)
		port_reset(&c->ports[i]);
	if (up)
		c->ops.on_reset(c->arg);
	if (c->starved && !c->quiet) {
		c->starved = false;
		c->ops.on_room(c->arg);
	}
	c->resetting = false;
	conn_kick(c);
}

int conn_reserve(struct conn *c, size_t cap, uint8_t **ret)
{
	struct port *p = &c->ports[CONN_BULK];
	uint8_t *at;

	if (buf_reserve(&p->out, AG_HEADER_LEN + cap, &at) < 0)
		return -ENOBUFS;
	*ret = at + AG_HEADER_LEN;
	return 0;
}

static void port_commit(struct port *p, uint8_t type, uint8_t flags, uint32_t stream, size_t len)
{
	ag_frame_header(p->out.data + p->out.len, type, flags, stream, p->seq_out++, (uint32_t)len);
	p->out.len += AG_HEADER_LEN + len;
	if (p->conn->quiet && type != AG_BYE && type != AG_HELLO)
		p->held_back += AG_HEADER_LEN + len;
	conn_kick(p->conn);
}

void conn_commit(struct conn *c, uint8_t type, uint8_t flags, uint32_t stream, size_t len)
{
	port_commit(&c->ports[CONN_BULK], type, flags, stream, len);
}

int conn_send(struct conn *c, enum conn_port port, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
	      size_t len)
{
	struct port *p = &c->ports[port];
	uint8_t *at;

	if (len > AG_PAYLOAD_MAX || buf_reserve(&p->out, AG_HEADER_LEN + len, &at) < 0) {
		conn_reset(c);
		return -ENOBUFS;
	}
	if (len)
		memcpy(at + AG_HEADER_LEN, data, len);
	port_commit(p, type, flags, stream, len);
	if (port == CONN_CONTROL)
		port_watch(p);
	return 0;
}

int conn_hello(struct conn *c, const void *json, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++)
		c->ports[i].seq_out = 0;
	return conn_send(c, CONN_CONTROL, AG_HELLO, 0, 0, json, len);
}

bool conn_has_room(struct conn *c)
{
	if (!c->quiet && port_queued(&c->ports[CONN_BULK]) < BULK_HIGH)
		return true;
	c->starved = true;
	return false;
}

bool conn_is_up(const struct conn *c)
{
	return c->ports[CONN_CONTROL].state == PORT_UP && c->ports[CONN_BULK].state == PORT_UP;
}

void conn_quiet(struct conn *c, bool on)
{
	c->quiet = on;
	if (on)
		return;
	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++)
		c->ports[i].held_back = 0;
	if (c->starved) {
		c->starved = false;
		c->ops.on_room(c->arg);
	}
	conn_kick(c);
}

/* -- input -------------------------------------------------------------------------- */

static void port_hello(struct port *p, const struct ag_frame *f)
{
	struct conn *c = p->conn;
	struct port *other = &c->ports[p->which == CONN_CONTROL ? CONN_BULK : CONN_CONTROL];

	if (p->state == PORT_UP)
		conn_reset(c);
	p->hello.len = 0;
	p->state = PORT_AWAIT;
	if (buf_add(&p->hello, f->payload, f->len) < 0)
		return; /* no memory: the host asks again, or gives up */
	p->state = PORT_PENDING;
	p->seq_in = 1;
	if (other->state != PORT_PENDING || other->hello.len != p->hello.len ||
	    memcmp(other->hello.data, p->hello.data, p->hello.len) != 0)
		return;
	p->state = other->state = PORT_UP;
	buf_reset(&other->hello);
	if (c->ops.on_hello(c->arg, p->hello.data, p->hello.len) < 0)
		p->state = other->state = PORT_AWAIT;
	buf_reset(&p->hello);
}

static void port_malformed(struct port *p, const char *what)
{
	char words[96];

	conn_reset(p->conn);
	snprintf(words, sizeof(words), "{\"error\":\"malformed frame on %s: %s\"}",
		 p->which == CONN_CONTROL ? "control" : "bulk", what);
	conn_send(p->conn, CONN_CONTROL, AG_BYE, 0, 0, words, strlen(words));
}

static bool is_hello(const struct ag_frame *f)
{
	return f->type == AG_HELLO && f->stream == 0 && f->seq == 0 && f->payload[0] == '{';
}

/* PORT_AWAIT: is there, or may there still come, a HELLO at the front? 1 yes and whole, 0 wait for more, -1 skip a
 * byte. */
static int await_hello(const uint8_t *data, size_t len, struct ag_frame *ret, size_t *ret_len)
{
	static const uint8_t zeros[8];
	long n;

	if (len < AG_HEADER_LEN)
		return 0;
	if (data[4] != AG_HELLO || memcmp(data + 8, zeros, 8) != 0)
		return -1;
	n = ag_frame_parse(data, len, ret);
	if (n < 0)
		return -1;
	if (n == 0)
		return len > AG_HEADER_LEN && data[AG_HEADER_LEN] != '{' ? -1 : 0;
	*ret_len = (size_t)n;
	return is_hello(ret) ? 1 : -1;
}

/* Take one frame from the front. Returns the bytes done with, 0 when more are needed. */
static size_t port_take(struct port *p, const uint8_t *data, size_t len)
{
	struct conn *c = p->conn;
	struct ag_frame f;
	size_t hello_len;
	long n;
	int r;

	if (p->state == PORT_AWAIT) {
		int found = await_hello(data, len, &f, &hello_len);

		if (found <= 0)
			return found < 0 ? 1 : 0;
		port_hello(p, &f);
		return hello_len;
	}
	n = ag_frame_parse(data, len, &f);
	if (n == 0)
		return 0;
	if (n < 0) {
		port_malformed(p, "length, type or flags");
		return 1;
	}
	if (is_hello(&f)) {
		port_hello(p, &f);
		return (size_t)n;
	}
	if (p->state == PORT_PENDING)
		return (size_t)n; /* of the older epoch, or from a host that does not wait for our answer */
	if (f.seq != p->seq_in) {
		port_malformed(p, "sequence");
		return (size_t)n;
	}
	p->seq_in++;
	r = c->ops.on_frame(c->arg, p->which, &f);
	if (r == -EAGAIN && p->state == PORT_UP) {
		p->seq_in--;
		p->held = true;
		return 0;
	}
	if (r < 0)
		port_malformed(p, "not allowed here");
	return (size_t)n;
}

static void port_parse(struct port *p)
{
	size_t at = 0, n;

	while (!p->held && (n = port_take(p, p->in + at, p->in_len - at)) > 0)
		at += n;
	p->in_len -= at;
	if (at > 0)
		memmove(p->in, p->in + at, p->in_len);
}

static void on_retry_frame(void *arg)
{
	struct port *p = arg;

	p->offer = 0;
	p->held = false;
	port_parse(p);
	port_watch(p);
}

void conn_retry(struct conn *c, enum conn_port port)
{
	struct port *p = &c->ports[port];

	if (p->held && !p->offer)
		loop_defer(c->loop, on_retry_frame, p, &p->offer);
}

/* A virtio port gives one buffer, a page, at a time: read on until it is empty. */
static void port_read(struct port *p)
{
	size_t total = 0;

	while (total < READ_A_ROUND && p->src && !p->held) {
		ssize_t n = read(p->fd, p->in + p->in_len, IN_CAP - p->in_len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n <= 0) {
			port_parse(p);
			port_hung_up(p);
			return;
		}
		p->in_len += (size_t)n;
		total += (size_t)n;
		if (IN_CAP - p->in_len < AG_PAYLOAD_MAX)
			port_parse(p); /* unless held, less than a frame is left then */
	}
	port_parse(p);
	port_watch(p);
}

static void on_port(void *arg, uint32_t events)
{
	struct port *p = arg;

	if (events & EPOLLOUT)
		port_flush(p);
	if (events & EPOLLIN)
		port_read(p);
	else if (events & (EPOLLHUP | EPOLLERR))
		port_hung_up(p);
}

/* -- a host that goes and comes ----------------------------------------------------- */

static void port_retry_later(struct port *p);

static int port_attach(struct port *p)
{
	p->events = EPOLLIN;
	p->retry_ms = RETRY_FIRST_MS;
	return loop_add(p->conn->loop, p->fd, EPOLLIN, on_port, p, &p->src);
}

static void on_retry(void *arg)
{
	struct port *p = arg;
	struct pollfd pfd = { .fd = p->fd, .events = POLLIN };

	p->retry = 0;
	if (poll(&pfd, 1, 0) < 0 || (pfd.revents & (POLLHUP | POLLERR)) || port_attach(p) < 0)
		port_retry_later(p);
	else
		port_watch(p);
}

static void port_retry_later(struct port *p)
{
	loop_timer(p->conn->loop, now_ns() + p->retry_ms * 1000000ull, on_retry, p, &p->retry);
	p->retry_ms = p->retry_ms * 2 < RETRY_LAST_MS ? p->retry_ms * 2 : RETRY_LAST_MS;
}

static void port_hung_up(struct port *p)
{
	if (!p->src)
		return;
	loop_del(p->conn->loop, &p->src);
	if (p->is_socket)
		p->conn->ops.on_gone(p->conn->arg);
	else
		port_retry_later(p);
}

/* -- life --------------------------------------------------------------------------- */

static int port_init(struct port *p, struct conn *c, enum conn_port which, int fd)
{
	int type, r;
	socklen_t len = sizeof(type);

	p->conn = c;
	p->which = which;
	p->fd = fd;
	p->is_socket = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
	buf_init(&p->out, OUT_MAX);
	buf_init(&p->hello, AG_PAYLOAD_MAX);
	p->in = malloc(IN_CAP);
	if (!p->in)
		return -ENOMEM;
	r = fd_set_nonblock(fd, true);
	if (r == 0)
		r = fd_set_cloexec(fd, true);
	if (r == 0)
		r = port_attach(p);
	return r;
}

int conn_new(struct loop *l, int control_fd, int bulk_fd, const struct conn_ops *ops, void *arg, struct conn **ret)
{
	struct conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c) {
		fd_close(&control_fd);
		fd_close(&bulk_fd);
		return -ENOMEM;
	}
	c->loop = l;
	c->ops = *ops;
	c->arg = arg;
	c->ports[CONN_CONTROL].fd = control_fd;
	c->ports[CONN_BULK].fd = bulk_fd;
	r = port_init(&c->ports[CONN_CONTROL], c, CONN_CONTROL, control_fd);
	if (r == 0)
		r = port_init(&c->ports[CONN_BULK], c, CONN_BULK, bulk_fd);
	if (r < 0) {
		conn_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct conn *conn_free(struct conn *c)
{
	if (!c)
		return NULL;
	loop_del(c->loop, &c->flush);
	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++) {
		struct port *p = &c->ports[i];

		loop_del(c->loop, &p->src);
		loop_del(c->loop, &p->retry);
		loop_del(c->loop, &p->offer);
		fd_close(&p->fd);
		buf_fini(&p->out);
		buf_fini(&p->hello);
		free(p->in);
	}
	free(c);
	return NULL;
}

void conn_flush_blocking(struct conn *c, int ms)
{
	uint64_t end = now_ns() + (uint64_t)ms * 1000000u;

	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++) {
		struct port *p = &c->ports[i];

		while (p->src && port_write(p) == -EAGAIN) {
			struct pollfd pfd = { .fd = p->fd, .events = POLLOUT };
			uint64_t now = now_ns();

			if (now >= end || poll(&pfd, 1, (int)((end - now) / 1000000) + 1) < 0)
				break;
		}
		out_compact(p);
	}
}
