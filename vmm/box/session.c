/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/box/session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"

/* The answers of as many file operations as may be in flight, and some: a daemon that is slow, not one that sleeps. */
#define QUEUE_MAX (6u * 1024 * 1024)

struct session {
	struct loop *loop;
	const struct box_tuning *t;
	struct session_ops ops;
	void *arg;
	struct msgconn *conn; /* NULL: no daemon */
	loop_id retry;
	uint64_t orphan_at;
};

static void on_msg(void *arg, struct msg *m)
{
	struct session *s = arg;

	s->ops.on_msg(s->arg, m);
}

static void on_retry(void *arg);

static void retry_later(struct session *s)
{
	/* No memory for a timer: the sandbox would live on unseen. Better to end it. */
	if (loop_timer(s->loop, now_ns() + s->t->reconnect_ms * 1000000ull, on_retry, s, &s->retry) < 0)
		s->ops.on_orphan(s->arg);
}

static void drop(struct session *s)
{
	s->conn = msgconn_free(s->conn);
	s->orphan_at = now_ns() + s->t->orphan_ms * 1000000ull;
	retry_later(s);
	s->ops.on_away(s->arg);
}

static void on_gone(void *arg, int reason)
{
	(void)reason;
	drop(arg);
}

static int attach(struct session *s, int fd)
{
	static const struct msgconn_ops ops = { .on_msg = on_msg, .on_gone = on_gone };

	return msgconn_new(s->loop, fd, QUEUE_MAX, &ops, s, &s->conn);
}

static int connect_daemon(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	AUTO_FD fd = -1;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -errno;
	return take_fd(&fd);
}

static void on_retry(void *arg)
{
	struct session *s = arg;
	int fd;

	s->retry = 0;
	fd = connect_daemon(s->t->daemon_socket);
	if (fd >= 0 && attach(s, fd) == 0)
		s->ops.on_back(s->arg);
	else if (now_ns() >= s->orphan_at)
		s->ops.on_orphan(s->arg);
	else
		retry_later(s);
}

int session_new(struct loop *l, int fd, const struct box_tuning *t, const struct session_ops *ops, void *arg,
		struct session **ret)
{
	struct session *s = calloc(1, sizeof(*s));
	int r;

	if (!s) {
		fd_close(&fd);
		return -ENOMEM;
	}
	*s = (struct session){ .loop = l, .t = t, .ops = *ops, .arg = arg };
	r = attach(s, fd);
	if (r < 0) {
		free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct session *session_free(struct session *s)
{
	if (!s)
		return NULL;
	loop_del(s->loop, &s->retry);
	s->conn = msgconn_free(s->conn);
	free(s);
	return NULL;
}

void session_send(struct session *s, enum box_type type, uint32_t id, const void *data, size_t len)
{
	session_send_fds(s, type, id, data, len, NULL, 0);
}

void session_send_fds(struct session *s, enum box_type type, uint32_t id, const void *data, size_t len, const int *fds,
		      size_t nfds)
{
	int r;

	if (!s->conn)
		return;
	r = msgconn_send(s->conn, (uint16_t)type, id, data, len, fds, nfds);
	/* -EPIPE: on_gone() follows. Anything else is a message lost, which the daemon's picture does not survive. */
	if (r < 0 && r != -EPIPE)
		drop(s);
}

void session_hint(struct session *s, enum box_type type, const void *data, size_t len)
{
	if (s->conn && session_idle(s))
		msgconn_send(s->conn, (uint16_t)type, 0, data, len, NULL, 0);
}

bool session_idle(const struct session *s)
{
	return !s->conn || msgconn_queued(s->conn) == 0;
}
