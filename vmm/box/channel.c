/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Input. Each port has one buffer of IN_CAP bytes, so a whole frame always fits. What was read is cut into frames in
 * place; an incomplete one at the end moves to the front. Nothing of a frame is looked at before ag_frame_parse() has
 * accepted it.
 *
 * Output. A frame goes straight from the caller's memory to the socket when nothing waits; the rest of it, and all that
 * follows, waits in the port's buffer. The buffer is bounded: a guest that does not read its port is the caller's to
 * handle. Streams are pulled (on_room), not pushed, so what waits is one piece of one stream and a few small frames.
 *
 * Hold. While the agent is to be quiet, what is sent goes into a second buffer of its port, and gets its number in the
 * sequence when it leaves: THAW, which comes later, goes out before. A HELLO drops it: it was meant for an epoch that
 * is over. What is behind a HELLO on bulk is not read before the answer on control was: the agent may print at once,
 * and the two ports are read in any order.
 *
 * Callbacks may free the channel: `busy` counts our frames on the stack; channel_free() closes at once and frees memory
 * later.
 */
#include "vmm/box/channel.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/fd.h"

#define IN_CAP	      (2 * (AG_HEADER_LEN + AG_PAYLOAD_MAX))
#define READS_A_ROUND 4 /* then the other sources have their turn */

struct port {
	struct channel *channel;
	enum channel_port which;
	int fd;
	loop_id src;
	uint32_t events;

	uint8_t *in; /* IN_CAP bytes */
	size_t in_len;
	bool in_epoch; /* the agent's frames of this epoch have begun */
	uint32_t seq_in;

	struct buf out;
	size_t out_at;	 /* bytes of out already sent */
	struct buf held; /* whole frames, without their number */
	uint32_t seq_out;
};

struct channel {
	struct loop *loop;
	struct channel_ops ops;
	void *arg;
	struct port ports[CHANNEL_PORT_COUNT];
	bool want_room; /* on_room is owed */
	bool hello_sent;
	bool hold;
	bool want_drained; /* on_drained is owed */
	bool gone;
	unsigned int busy;
	bool freed;
};

static const char *const port_name[] = { [CHANNEL_CONTROL] = "control", [CHANNEL_BULK] = "bulk" };
static_assert(ARRAY_LEN(port_name) == CHANNEL_PORT_COUNT, "a port without a name");

const char *channel_port_name(enum channel_port p)
{
	return p < CHANNEL_PORT_COUNT ? port_name[p] : "?";
}

static void release(struct channel *c)
{
	if (c->busy > 0 || !c->freed)
		return;
	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++) {
		free(c->ports[i].in);
		buf_fini(&c->ports[i].out);
		buf_fini(&c->ports[i].held);
	}
	free(c);
}

static void shut(struct channel *c)
{
	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++) {
		loop_del(c->loop, &c->ports[i].src);
		fd_close(&c->ports[i].fd);
	}
	c->gone = true;
}

static void fail(struct channel *c, enum channel_port port, int reason)
{
	if (c->gone)
		return;
	shut(c);
	c->ops.on_gone(c->arg, port, reason);
}

static size_t waiting(const struct port *p)
{
	return p->out.len - p->out_at;
}

/* -- output ------------------------------------------------------------------------------------ */

static void watch(struct port *p)
{
	const struct channel *c = p->channel;
	bool answered = p->which == CHANNEL_CONTROL || !c->hello_sent || c->ports[CHANNEL_CONTROL].in_epoch;
	uint32_t events = (answered ? EPOLLIN : 0) | (waiting(p) > 0 ? EPOLLOUT : 0);

	if (p->events != events && loop_mod(p->channel->loop, p->src, events) == 0)
		p->events = events;
}

static ssize_t send_some(struct port *p, const struct iovec *iov, size_t n)
{
	const struct msghdr m = { .msg_iov = (struct iovec *)iov, .msg_iovlen = n };
	ssize_t sent;

	do {
		sent = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	return sent;
}

/* Send what waits. A socket that fails here is found by the reader, which then sees what was sent before the end. */
static void flush(struct port *p)
{
	while (waiting(p) > 0) {
		const struct iovec iov = { .iov_base = p->out.data + p->out_at, .iov_len = waiting(p) };
		ssize_t n = send_some(p, &iov, 1);

		if (n < 0)
			break;
		p->out_at += (size_t)n;
	}
	if (waiting(p) == 0) {
		buf_reset(&p->out);
		p->out_at = 0;
	}
	watch(p);
}

/* Either the whole frame is taken, sent or queued, or nothing of it. */
static int send_frame(struct port *p, const uint8_t *head, const void *data, size_t len)
{
	const struct iovec iov[] = { { (void *)head, AG_HEADER_LEN }, { (void *)data, len } };
	size_t sent = 0;
	ssize_t n;
	int r;

	/* Room for all of it first: a frame that is half out can not be taken back. */
	if (p->out_at > p->out.len / 2) {
		buf_drop(&p->out, p->out_at);
		p->out_at = 0;
	}
	r = buf_reserve(&p->out, AG_HEADER_LEN + len, NULL);
	if (r < 0)
		return r == -EFBIG ? -ENOBUFS : r;
	if (waiting(p) == 0) {
		n = send_some(p, iov, len > 0 ? 2 : 1);
		sent = n > 0 ? (size_t)n : 0;
	}
	if (sent == AG_HEADER_LEN + len) {
		buf_reset(&p->out);
		p->out_at = 0;
		return 0;
	}
	if (sent < AG_HEADER_LEN) {
		buf_add(&p->out, head + sent, AG_HEADER_LEN - sent);
		sent = AG_HEADER_LEN;
	}
	buf_add(&p->out, (const uint8_t *)data + (sent - AG_HEADER_LEN), len - (sent - AG_HEADER_LEN));
	watch(p);
	return 0;
}

/* All or nothing, as above. */
static int hold_frame(struct port *p, const uint8_t *head, const void *data, size_t len)
{
	int r = buf_reserve(&p->held, AG_HEADER_LEN + len, NULL);

	if (r < 0)
		return r == -EFBIG ? -ENOBUFS : r;
	buf_add(&p->held, head, AG_HEADER_LEN);
	return buf_add(&p->held, data, len);
}

int channel_send(struct channel *c, enum channel_port port, uint8_t type, uint8_t flags, uint32_t stream,
		 const void *data, size_t len)
{
	struct port *p = &c->ports[port];
	uint8_t head[AG_HEADER_LEN];
	int r;

	assert(len <= AG_PAYLOAD_MAX);
	if (c->gone)
		return -EPIPE;
	if (c->hold && type != AG_FREEZE && type != AG_THAW && type != AG_HELLO) {
		ag_frame_header(head, type, flags, stream, 0, (uint32_t)len);
		return hold_frame(p, head, data, len);
	}
	ag_frame_header(head, type, flags, stream, p->seq_out, (uint32_t)len);
	r = send_frame(p, head, data, len);
	if (r < 0)
		return r;
	p->seq_out++;
	if (port == CHANNEL_BULK && !channel_has_room(c))
		c->want_room = true;
	return 0;
}

int channel_hello(struct channel *c, const char *json, size_t len)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(c->ports); i++) {
		c->ports[i].seq_out = 0;
		c->ports[i].in_epoch = false;
		buf_reset(&c->ports[i].held);
		r = channel_send(c, (enum channel_port)i, AG_HELLO, 0, 0, json, len);
	}
	c->hello_sent = true;
	c->hold = c->want_drained = false;
	if (!c->gone)
		watch(&c->ports[CHANNEL_BULK]);
	return r;
}

bool channel_drained(const struct channel *c)
{
	return waiting(&c->ports[CHANNEL_CONTROL]) == 0 && waiting(&c->ports[CHANNEL_BULK]) == 0;
}

void channel_hold(struct channel *c)
{
	c->hold = true;
	c->want_drained = !channel_drained(c);
}

/* What was held leaves in its order. */
static int release_port(struct port *p)
{
	size_t at = 0;
	int r = 0;

	while (at < p->held.len) {
		struct ag_frame f;
		long n = ag_frame_parse(p->held.data + at, p->held.len - at, &f);

		assert(n > 0); /* our own */
		r = channel_send(p->channel, p->which, f.type, f.flags, f.stream, f.payload, f.len);
		if (r < 0)
			break;
		at += (size_t)n;
	}
	buf_reset(&p->held);
	return r;
}

int channel_release(struct channel *c)
{
	int r = 0;

	c->hold = c->want_drained = false;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(c->ports); i++)
		r = release_port(&c->ports[i]);
	return r;
}

bool channel_has_room(const struct channel *c)
{
	return !c->gone && !c->hold && waiting(&c->ports[CHANNEL_BULK]) < CHANNEL_ROOM;
}

/* -- input ------------------------------------------------------------------------------------- */

/* Does this frame belong to what the host is to hear? See the header. 0 no, 1 yes, -EBADMSG out of order. */
static int in_order(struct port *p, const struct ag_frame *f)
{
	struct channel *c = p->channel;

	if (!p->in_epoch) {
		bool first = p->which == CHANNEL_CONTROL ? f->type == AG_HELLO && c->hello_sent
							 : f->seq == 0 && c->ports[CHANNEL_CONTROL].in_epoch;

		if (!first)
			return p->which == CHANNEL_CONTROL && (f->type == AG_STAGE || f->type == AG_BYE);
		p->in_epoch = true;
		p->seq_in = 0;
		watch(&c->ports[CHANNEL_BULK]);
	}
	if (f->seq != p->seq_in)
		return -EBADMSG;
	p->seq_in++;
	return 1;
}

static void take_frames(struct port *p)
{
	struct channel *c = p->channel;
	size_t at = 0;
	int r = 0;

	while (!c->gone) {
		struct ag_frame f;
		long n = ag_frame_parse(p->in + at, p->in_len - at, &f);

		if (n == 0)
			break;
		if (n < 0) {
			fail(c, p->which, -EBADMSG);
			return;
		}
		at += (size_t)n;
		r = in_order(p, &f);
		if (r > 0)
			r = c->ops.on_frame(c->arg, p->which, &f);
		if (r < 0) {
			fail(c, p->which, r);
			return;
		}
	}
	p->in_len -= at;
	memmove(p->in, p->in + at, p->in_len);
}

static void read_port(struct port *p)
{
	struct channel *c = p->channel;

	for (int i = 0; i < READS_A_ROUND && !c->gone; i++) {
		size_t room = IN_CAP - p->in_len;
		ssize_t n = recv(p->fd, p->in + p->in_len, room, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			fail(c, p->which, n == 0 ? -ECONNRESET : -errno);
			return;
		}
		p->in_len += (size_t)n;
		take_frames(p);
		if ((size_t)n < room)
			return;
	}
}

static void on_port(void *arg, uint32_t events)
{
	struct port *p = arg;
	struct channel *c = p->channel;

	c->busy++;
	if (events & EPOLLOUT)
		flush(p);
	if (events & ~(uint32_t)EPOLLOUT)
		read_port(p);
	if (c->want_drained && !c->gone && channel_drained(c)) {
		c->want_drained = false;
		c->ops.on_drained(c->arg);
	}
	if (c->want_room && channel_has_room(c)) {
		c->want_room = false;
		c->ops.on_room(c->arg);
	}
	c->busy--;
	release(c);
}

/* -- life -------------------------------------------------------------------------------------- */

int channel_new(struct loop *l, int control_fd, int bulk_fd, const struct channel_ops *ops, void *arg,
		struct channel **ret)
{
	const int fds[] = { [CHANNEL_CONTROL] = control_fd, [CHANNEL_BULK] = bulk_fd };
	struct channel *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c) {
		fd_close(&control_fd);
		fd_close(&bulk_fd);
		return -ENOMEM;
	}
	c->loop = l;
	c->ops = *ops;
	c->arg = arg;
	for (size_t i = 0; i < ARRAY_LEN(c->ports); i++) {
		struct port *p = &c->ports[i];

		*p = (struct port){ .channel = c, .which = (enum channel_port)i, .fd = fds[i], .events = EPOLLIN };
		buf_init(&p->out, CHANNEL_QUEUE_MAX);
		buf_init(&p->held, CHANNEL_QUEUE_MAX);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(c->ports); i++) {
		struct port *p = &c->ports[i];

		p->in = malloc(IN_CAP);
		r = p->in ? loop_add(l, p->fd, EPOLLIN, on_port, p, &p->src) : -ENOMEM;
	}
	if (r < 0) {
		channel_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct channel *channel_free(struct channel *c)
{
	if (!c || c->freed)
		return NULL;
	shut(c);
	c->freed = true;
	release(c);
	return NULL;
}
