/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Header, little-endian: u16 type, u16 number of descriptors, u32 id, u32 payload length. The last two repeat what the
 * kernel says; a difference means another program at the other end, or a cut message.
 *
 * A connection is alive, then dead, then freed. Sending finds out first when a peer is gone, but what the peer sent
 * before it went still lies in our socket: so a failed send only stops sending, and the reader goes on until it sees
 * the end and tells on_gone(). A callback may free the connection that it is called for: `busy` counts the frames on
 * the stack that still use it, and the last of them frees.
 */
#include "base/msg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"

#define HEAD_LEN      12
#define READS_A_ROUND 16 /* then the others of the loop have their turn */

static void put_le(uint8_t *p, uint32_t v, int n)
{
	for (int i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_le(const uint8_t *p, int n)
{
	uint32_t v = 0;

	for (int i = 0; i < n; i++)
		v |= (uint32_t)p[i] << (8 * i);
	return v;
}

union fd_space {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(MSG_FDS_MAX * sizeof(int))];
};

static void put_fds(struct msghdr *mh, union fd_space *space, const int *fds, size_t nfds)
{
	struct cmsghdr *c;

	if (nfds == 0)
		return;
	memset(space, 0, sizeof(*space));
	mh->msg_control = space->bytes;
	mh->msg_controllen = CMSG_SPACE(nfds * sizeof(int));
	c = CMSG_FIRSTHDR(mh);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
	memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
}

int msg_send(int fd, uint16_t type, uint32_t id, const void *data, size_t len, const int *fds, size_t nfds)
{
	uint8_t head[HEAD_LEN];
	struct iovec iov[2] = { { head, sizeof(head) }, { (void *)data, len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = len ? 2 : 1 };
	union fd_space space;
	ssize_t n;

	if (len > MSG_MAX || nfds > MSG_FDS_MAX)
		return -EMSGSIZE;
	put_le(head, type, 2);
	put_le(head + 2, (uint32_t)nfds, 2);
	put_le(head + 4, id, 4);
	put_le(head + 8, (uint32_t)len, 4);
	put_fds(&mh, &space, fds, nfds);
	do {
		n = sendmsg(fd, &mh, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0; /* a datagram goes whole or not at all */
}

void msg_close_fds(struct msg *m)
{
	for (size_t i = 0; i < m->nfds; i++)
		fd_close(&m->fds[i]);
	m->nfds = 0;
}

/* Take every descriptor that came along; more than fit were never ours (MSG_CTRUNC). */
static void get_fds(struct msghdr *mh, struct msg *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (m->nfds < MSG_FDS_MAX)
				m->fds[m->nfds++] = fd;
			else
				close(fd);
		}
	}
}

int msg_recv(int fd, void *buf, size_t cap, struct msg *m)
{
	uint8_t head[HEAD_LEN];
	struct iovec iov[2] = { { head, sizeof(head) }, { buf, cap } };
	union fd_space space;
	struct msghdr mh = {
		.msg_iov = iov, .msg_iovlen = 2, .msg_control = space.bytes, .msg_controllen = sizeof(space)
	};
	bool reset = false;
	ssize_t n;
	int r;

	*m = (struct msg){ .data = buf };
	for (;;) {
		n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC);
		if (n >= 0)
			break;
		/* A peer that went away with unread messages of ours makes one ECONNRESET; its own still follow. */
		if (errno == ECONNRESET && !reset)
			reset = true;
		else if (errno != EINTR)
			return -errno;
	}
	if (n == 0)
		return -ECONNRESET;
	get_fds(&mh, m);
	r = 0;
	if ((mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == MSG_TRUNC)
		r = -EMSGSIZE;
	else if ((mh.msg_flags & MSG_CTRUNC) || n < HEAD_LEN || get_le(head + 8, 4) != (uint32_t)n - HEAD_LEN ||
		 get_le(head + 2, 2) != m->nfds)
		r = -EBADMSG;
	if (r < 0) {
		msg_close_fds(m);
		return r;
	}
	m->type = (uint16_t)get_le(head, 2);
	m->id = get_le(head + 4, 4);
	m->len = (size_t)n - HEAD_LEN;
	return 0;
}

/* -- connections on a loop -------------------------------------------------------------------- */

struct queued {
	struct queued *next;
	uint16_t type;
	uint32_t id;
	size_t len, nfds;
	int fds[MSG_FDS_MAX]; /* duplicates, ours */
	uint8_t data[];
};

struct msgconn {
	struct loop *loop;
	int fd;
	loop_id src; /* 0 once the reader is done */
	struct msgconn_ops ops;
	void *arg;

	bool no_send;  /* the peer cannot receive any more: msgconn_send() is -EPIPE */
	bool gone;     /* on_gone() was called */
	bool freed;    /* by its owner, inside of a callback */
	unsigned busy; /* our own frames on the stack */

	struct queued *head, **tail;
	size_t queued_bytes, queue_max;

	uint8_t rx[MSG_MAX]; /* untouched pages of it cost nothing */
};

static struct queued *queued_free(struct queued *q)
{
	for (size_t i = 0; q && i < q->nfds; i++)
		fd_close(&q->fds[i]);
	free(q);
	return NULL;
}

static void queue_clear(struct msgconn *c)
{
	while (c->head) {
		struct queued *q = c->head;

		c->head = q->next;
		queued_free(q);
	}
	c->tail = &c->head;
	c->queued_bytes = 0;
}

static void conn_release(struct msgconn *c)
{
	if (c->busy == 0 && c->freed)
		free(c);
}

struct msgconn *msgconn_free(struct msgconn *c)
{
	if (!c)
		return NULL;
	loop_del(c->loop, &c->src);
	fd_close(&c->fd);
	queue_clear(c);
	c->freed = true;
	conn_release(c);
	return NULL;
}

/* The end: called from our own loop callbacks only, with c->busy held. */
static void conn_gone(struct msgconn *c, int reason)
{
	if (c->gone || c->freed)
		return;
	c->gone = c->no_send = true;
	loop_del(c->loop, &c->src);
	queue_clear(c);
	if (c->ops.on_gone)
		c->ops.on_gone(c->arg, reason);
}

static void conn_read(struct msgconn *c)
{
	struct msg m;

	for (int i = 0; i < READS_A_ROUND && !c->gone && !c->freed; i++) {
		int r = msg_recv(c->fd, c->rx, sizeof(c->rx), &m);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			conn_gone(c, r);
			return;
		}
		c->ops.on_msg(c->arg, &m);
		msg_close_fds(&m);
	}
}

/* Send what waits. An error other than "full" has lost a message in the middle of the stream: that is the end. */
static void conn_flush(struct msgconn *c)
{
	while (c->head) {
		struct queued *q = c->head;
		int r = msg_send(c->fd, q->type, q->id, q->data, q->len, q->fds, q->nfds);

		if (r == -EAGAIN)
			return;
		if (r == -EPIPE || r == -ECONNRESET) {
			c->no_send = true;
			queue_clear(c);
			break;
		}
		if (r < 0) {
			conn_gone(c, r);
			return;
		}
		c->head = q->next;
		if (!c->head)
			c->tail = &c->head;
		c->queued_bytes -= HEAD_LEN + q->len;
		queued_free(q);
	}
	loop_mod(c->loop, c->src, EPOLLIN);
}

static void on_conn(void *arg, uint32_t events)
{
	struct msgconn *c = arg;

	c->busy++;
	if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP) && c->head)
		conn_flush(c);
	/* Also on an error or a hang-up: reading finds the reason, after what was sent before. */
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		conn_read(c);
	c->busy--;
	conn_release(c);
}

int msgconn_new(struct loop *l, int fd, size_t queue_max, const struct msgconn_ops *ops, void *arg,
		struct msgconn **ret)
{
	struct msgconn *c = malloc(sizeof(*c)); /* not calloc: rx stays untouched */
	int r;

	if (!c) {
		fd_close(&fd);
		return -ENOMEM;
	}
	memset(c, 0, offsetof(struct msgconn, rx));
	c->loop = l;
	c->fd = fd;
	c->ops = *ops;
	c->arg = arg;
	c->tail = &c->head;
	c->queue_max = queue_max;
	r = fd_set_nonblock(fd, true);
	if (r == 0)
		r = loop_add(l, fd, EPOLLIN, on_conn, c, &c->src);
	if (r < 0) {
		msgconn_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

static int conn_queue(struct msgconn *c, uint16_t type, uint32_t id, const void *data, size_t len, const int *fds,
		      size_t nfds)
{
	struct queued *q;

	if (HEAD_LEN + len > c->queue_max || c->queued_bytes > c->queue_max - HEAD_LEN - len)
		return -ENOBUFS;
	q = malloc(sizeof(*q) + len);
	if (!q)
		return -ENOMEM;
	*q = (struct queued){ .type = type, .id = id, .len = len };
	if (len)
		memcpy(q->data, data, len);
	for (size_t i = 0; i < nfds; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (fd < 0) {
			queued_free(q);
			return -ENOBUFS; /* out of descriptors: no room to let it wait */
		}
		q->fds[q->nfds++] = fd;
	}
	if (!c->head) {
		int r = loop_mod(c->loop, c->src, EPOLLIN | EPOLLOUT);

		if (r < 0) {
			queued_free(q);
			return -ENOMEM;
		}
	}
	*c->tail = q;
	c->tail = &q->next;
	c->queued_bytes += HEAD_LEN + len;
	return 0;
}

int msgconn_send(struct msgconn *c, uint16_t type, uint32_t id, const void *data, size_t len, const int *fds,
		 size_t nfds)
{
	int r;

	if (c->no_send || c->freed)
		return -EPIPE;
	if (len > MSG_MAX || nfds > MSG_FDS_MAX)
		return -EMSGSIZE;
	if (!c->head) {
		r = msg_send(c->fd, type, id, data, len, fds, nfds);
		if (r == -EPIPE || r == -ECONNRESET) {
			c->no_send = true; /* on_gone() follows when the reader has reached the end */
			return -EPIPE;
		}
		if (r != -EAGAIN)
			return r == -ETOOMANYREFS ? -ENOBUFS : r;
	}
	return conn_queue(c, type, id, data, len, fds, nfds);
}

size_t msgconn_queued(const struct msgconn *c)
{
	return c->queued_bytes;
}

int msgconn_fd(const struct msgconn *c)
{
	return c->fd;
}
