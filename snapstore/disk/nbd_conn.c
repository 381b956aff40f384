/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A connection does one thing at a time. What came in and is not done lies in `in`; what is to go out is `out`, and
 * behind it, of a read, bytes that are still on the disk: [read_at, read_at + read_left). Nothing more is taken in
 * while something has to go out. So a connection holds 16 KiB, whatever it is asked for, and a client that does not
 * read stops only itself: what its socket did not take is read once more from the disk (from the page cache) when it
 * does. No other request can change those bytes in between: an export has one connection.
 *
 * A write goes to the disk as it comes in, in whole blocks as far as they are there; the rest of one waits in `in`.
 *
 * Each event may spend WORK_MAX; then the others have their turn. `more` says that there is work without a new byte
 * from the client; waiting for a writable socket brings us back to it. */
#include "snapstore/disk/disk_priv.h"
#include "snapstore/disk/nbd_priv.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/fd.h"

#define WORK_MAX     (1 << 20)	 /* bytes moved */
#define WORK_REQUEST 4096	 /* what one request counts at least */
#define ZERO_STEP    (16u << 20) /* what disk_zero() is asked for at once */
#define ZERO_RATE    128	 /* so many zeroed or discarded bytes count as one */
#define HANDSHAKE_NS 10000000000ull

static bool has_output(const struct nbd_conn *c)
{
	return c->out_sent < c->out_len || c->read_left > 0;
}

/* -- going out --------------------------------------------------------------------------------------------------- */

static void put_reply(struct nbd_conn *c, enum nbd_error error)
{
	c->out_sent = 0;
	c->out_len = nbd_reply_put(c->out, c->q.cookie, error);
}

/* The next bytes of a read into n->out. An error is told while nothing is out; later only the end of the connection
 * can tell it. */
static int read_piece(struct nbd_conn *c, uint32_t *ret)
{
	uint32_t n = c->read_left < NBD_PIECE_BYTES ? c->read_left : NBD_PIECE_BYTES;
	int r = n ? disk_read(c->ex->disk, c->n->out, c->read_at, n, NULL) : 0;

	*ret = n;
	if (r == 0)
		return 0;
	if (c->out_sent == 0 && c->read_at == c->q.offset) {
		c->read_left = 0;
		*ret = 0;
		put_reply(c, nbd_error_of(r));
		return 0;
	}
	c->ex->bad = true;
	c->ex->bad_off = c->read_at;
	c->ex->bad_bytes = n;
	return r;
}

/* Send until nothing is left, the socket is full, or the turn is over. */
static int flush(struct nbd_conn *c)
{
	while (has_output(c) && c->work > 0) {
		struct iovec v[2];
		struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
		size_t head;
		uint32_t body;
		ssize_t n;
		int r = read_piece(c, &body);

		if (r < 0)
			return r;
		head = c->out_len - c->out_sent;
		v[0] = (struct iovec){ .iov_base = c->out + c->out_sent, .iov_len = head };
		v[1] = (struct iovec){ .iov_base = c->n->out, .iov_len = body };
		n = sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		c->work -= (int)n;
		if ((size_t)n < head) {
			c->out_sent += (size_t)n;
			continue;
		}
		c->out_sent = c->out_len;
		c->read_at += (size_t)n - head;
		c->read_left -= (uint32_t)((size_t)n - head);
	}
	return c->last && !has_output(c) ? -ECONNRESET : 0;
}

/* -- requests ---------------------------------------------------------------------------------------------------- */

/* @len bytes of the write's data, of which as much is written as makes whole blocks, or the end. Returns that. */
static size_t write_some(struct nbd_conn *c, const uint8_t *data, size_t len)
{
	size_t n = len < c->write_left ? len : c->write_left;
	int r;

	if (n < c->write_left) {
		size_t part = (size_t)((c->write_at + n) % DISK_BLOCK_BYTES);

		n = part < n ? n - part : 0;
	}
	if (n == 0)
		return 0;
	if (c->write_error == NBD_OK) {
		r = disk_write(c->ex->disk, data, c->write_at, (uint32_t)n, NULL);
		c->write_error = nbd_error_of(r);
	}
	c->work -= (int)n;
	c->write_at += n;
	c->write_left -= (uint32_t)n;
	return n;
}

static int step_write(struct nbd_conn *c)
{
	size_t n = write_some(c, c->in, c->in_len);

	nbd_conn_drop_input(c, n);
	if (c->write_left == 0) {
		c->writing = false;
		put_reply(c, c->write_error);
		return 1;
	}
	return n > 0;
}

static void start_zero(struct nbd_conn *c)
{
	uint64_t end = c->q.offset + c->q.bytes;

	c->zeroing = true;
	c->zero_at = c->q.offset;
	/* Whole blocks inside the range: a discard is a hint, and what it does not cover stays. */
	if (c->q.command == NBD_CMD_TRIM) {
		c->zero_at = (c->zero_at + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
		if (end != disk_bytes(c->ex->disk))
			end = end / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
	}
	c->zero_left = c->zero_at < end ? end - c->zero_at : 0;
}

/* A piece of it: gigabytes at once would be a time in which nobody else is served. */
static int step_zero(struct nbd_conn *c)
{
	bool punch = c->q.command == NBD_CMD_TRIM || !(c->q.flags & NBD_CMD_NO_HOLE);
	uint64_t room = ZERO_STEP - c->zero_at % ZERO_STEP, n = c->zero_left < room ? c->zero_left : room;
	int r = disk_zero(c->ex->disk, c->zero_at, n, punch, NULL);

	c->work -= (int)(n / ZERO_RATE);
	c->zero_at += n;
	c->zero_left -= n;
	if (r < 0 || c->zero_left == 0) {
		c->zeroing = false;
		put_reply(c, nbd_error_of(r));
	}
	return 1;
}

static void start_read(struct nbd_conn *c)
{
	struct nbd_export *x = c->ex;
	uint64_t end = c->q.offset + c->q.bytes, bad_end = x->bad_off + x->bad_bytes;

	if (x->bad && x->bad_off < end && c->q.offset < bad_end) {
		int r = disk_read(x->disk, c->n->out, x->bad_off, x->bad_bytes, NULL);

		if (r < 0) {
			put_reply(c, nbd_error_of(r));
			return;
		}
		x->bad = false;
	}
	put_reply(c, NBD_OK);
	c->read_at = c->q.offset;
	c->read_left = c->q.bytes;
}

static int start_request(struct nbd_conn *c)
{
	const struct nbd_request *q = &c->q;
	struct disk *k = c->ex->disk;
	enum nbd_error error;

	if (q->command == NBD_CMD_DISC)
		return -ECONNRESET;
	if (q->command == NBD_CMD_WRITE && q->bytes > NBD_REQUEST_MAX)
		return -EBADMSG; /* it was told; gigabytes are not swallowed to say so again */
	error = nbd_request_check(q, disk_bytes(k), k->stack->frozen);
	if (q->command == NBD_CMD_WRITE) {
		c->writing = true;
		c->write_at = q->offset;
		c->write_left = q->bytes;
		c->write_error = error;
		return 0;
	}
	if (error == NBD_OK && q->command == NBD_CMD_READ) {
		start_read(c);
		return 0;
	}
	if (error == NBD_OK && (q->command == NBD_CMD_TRIM || q->command == NBD_CMD_WRITE_ZEROES)) {
		start_zero(c);
		return 0;
	}
	put_reply(c, error); /* a flush has nothing to do: see disk.h */
	return 0;
}

static int step_request(struct nbd_conn *c)
{
	int r;

	if (c->in_len < NBD_REQUEST_BYTES)
		return 0;
	r = nbd_request_parse(c->in, &c->q);
	if (r < 0)
		return r;
	nbd_conn_drop_input(c, NBD_REQUEST_BYTES);
	c->work -= WORK_REQUEST;
	r = start_request(c);
	return r < 0 ? r : 1;
}

/* 1 when it did something, 0 when it needs more bytes, or -errno, which ends the connection. */
static int step(struct nbd_conn *c)
{
	switch (c->state) {
	case CONN_CLIENT:
		return nbd_hello_step_client(c);
	case CONN_OPTIONS:
		return nbd_hello_step_option(c);
	default:
		if (c->zeroing)
			return step_zero(c);
		return c->writing ? step_write(c) : step_request(c);
	}
}

/* -- events ------------------------------------------------------------------------------------------------------ */

/* Do what `in` has, as long as what comes of it goes out. */
static int work_on(struct nbd_conn *c)
{
	int r = flush(c);

	while (r == 0 && !has_output(c) && c->work > 0) {
		int did = step(c);

		if (did <= 0)
			return did;
		r = flush(c);
	}
	c->more = r == 0 && !has_output(c);
	return r;
}

/* A write's data past `in`, straight to the disk. */
static int take_payload(struct nbd_conn *c)
{
	uint8_t *buf = c->n->in;
	size_t room = c->write_left < NBD_SCRATCH ? c->write_left : NBD_SCRATCH, len = c->in_len, done;
	ssize_t n;

	memcpy(buf, c->in, len); /* less than a block, and part of write_left: step_write() took all else */
	n = recv(c->fd, buf + len, room - len, MSG_DONTWAIT);
	if (n <= 0)
		return n == 0 ? -ECONNRESET : -errno;
	len += (size_t)n;
	done = write_some(c, buf, len);
	c->in_len = len - done;
	memcpy(c->in, buf + done, c->in_len);
	return 0;
}

static int take(struct nbd_conn *c)
{
	ssize_t n;

	if (c->writing && c->write_left > c->in_len)
		return take_payload(c);
	n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, MSG_DONTWAIT);
	if (n <= 0)
		return n == 0 ? -ECONNRESET : -errno;
	c->in_len += (size_t)n;
	return 0;
}

static void on_io(void *arg, uint32_t events)
{
	struct nbd_conn *c = arg;
	int r;

	c->work = WORK_MAX;
	c->more = false;
	r = work_on(c);
	if (r == 0 && !has_output(c) && !c->more && (events & ~(uint32_t)EPOLLOUT)) {
		r = take(c);
		if (r == -EAGAIN || r == -EINTR)
			r = 0;
		else if (r == 0)
			r = work_on(c);
	} else if (r == 0 && (events & (EPOLLHUP | EPOLLERR))) {
		r = -ECONNRESET; /* nobody will read what there is to say */
	}
	if (r == 0)
		r = loop_mod(c->n->loop, c->src, has_output(c) || c->more ? EPOLLOUT : EPOLLIN);
	if (r < 0)
		nbd_conn_end(c);
}

static void on_late(void *arg)
{
	struct nbd_conn *c = arg;

	c->timer = 0;
	nbd_conn_end(c);
}

int nbd_conn_new(struct nbd *n, int fd, uid_t uid)
{
	struct nbd_conn *c = malloc(sizeof(*c));
	int r = c ? 0 : -ENOMEM;

	if (c) {
		memset(c, 0, offsetof(struct nbd_conn, in));
		c->n = n;
		c->fd = fd;
		c->uid = uid;
		c->next = n->conns;
		c->out_len = nbd_greeting_put(c->out);
		r = loop_add(n->loop, fd, EPOLLOUT, on_io, c, &c->src);
	}
	if (r == 0) {
		r = loop_timer(n->loop, now_ns() + HANDSHAKE_NS, on_late, c, &c->timer);
		if (r < 0)
			loop_del(n->loop, &c->src);
	}
	if (r < 0) {
		fd_close(&fd);
		free(c);
		return r;
	}
	if (n->conns)
		n->conns->prev = c;
	n->conns = c;
	n->nconns++;
	n->nwaiting++;
	return 0;
}

struct nbd_conn *nbd_conn_end(struct nbd_conn *c)
{
	struct nbd *n;

	if (!c)
		return NULL;
	n = c->n;
	nbd_conn_leave_waiting(c);
	loop_del(n->loop, &c->src);
	fd_close(&c->fd);
	if (c->ex && c->ex->conn == c)
		c->ex->conn = NULL;
	if (c->prev)
		c->prev->next = c->next;
	else
		n->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	n->nconns--;
	free(c);
	return NULL;
}

unsigned nbd_conn_busy(const struct nbd_conn *c)
{
	int unread = 0;

	if (ioctl(c->fd, FIONREAD, &unread) < 0)
		unread = 0;
	return (c->writing || c->zeroing ? 1 : 0) + (has_output(c) ? 1 : 0) + (!c->writing && c->in_len > 0 ? 1 : 0) +
	       (unread > 0 ? 1 : 0);
}

unsigned nbd_conn_waiting_of(const struct nbd *n, uid_t uid)
{
	unsigned count = 0;

	for (const struct nbd_conn *c = n->conns; c; c = c->next)
		count += c->uid == uid && c->state != CONN_READY;
	return count;
}
