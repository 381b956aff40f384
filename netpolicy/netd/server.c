/* SPDX-License-Identifier: Apache-2.0 */
/* The socket, its one client, its requests, the end. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "netpolicy/netd/netd_priv.h"

#define LISTEN_REST_NS 100000000ull

/* -- to the daemon ----------------------------------------------------------------------------------------------- */

static void orphan(struct netd *n);

static void reply(struct netd *n, uint32_t id, int code, const char *words, const struct buf *out)
{
	struct buf b;
	int r;

	if (!id || !n->conn)
		return;
	buf_init(&b, MSG_MAX);
	r = wire_put_u32(&b, (uint32_t)code);
	if (r == 0)
		r = wire_put_str(&b, code < 0 ? words : "");
	if (r == 0 && code == 0 && out->len > 0)
		r = buf_add(&b, out->data, out->len);
	if (r == 0)
		r = msgconn_send(n->conn, NETD_REPLY, id, b.data, b.len, NULL, 0);
	buf_fini(&b);
	/* A client that does not take its answers, or that we cannot answer: it has to come and ask again. */
	if (r < 0) {
		n->conn = msgconn_free(n->conn);
		orphan(n);
	}
}

int netd_tell(struct netd *n, uint16_t type, const struct buf *b)
{
	if (!n->conn)
		return -EPIPE;
	if (type == NETD_LOG && msgconn_queued(n->conn) > NETD_QUEUE_MAX / 2) /* the rest is for what must arrive */
		return -ENOBUFS;
	return msgconn_send(n->conn, type, 0, b->data, b->len, NULL, 0);
}

/* -- requests ---------------------------------------------------------------------------------------------------- */

static struct netd_sandbox **find(struct netd *n, const char *uuid)
{
	struct netd_sandbox **at = &n->sandboxes;

	while (*at && strcmp((*at)->uuid, uuid) != 0)
		at = &(*at)->next;
	return at;
}

static void close_sandbox(struct netd *n, struct netd_sandbox **at)
{
	struct netd_sandbox *s = *at;
	struct netd_stat st;

	netd_sandbox_stat(s, &st);
	st.relay.open = 0;
	netd_stat_add(&n->gone, &st);
	*at = s->next;
	n->nsandboxes--;
	netd_bygone_add(&n->bygone, s->uuid, s->names);
	s->names = NULL;
	netd_sandbox_free(s);
}

static int on_config(struct netd *n, const struct netd_request *q)
{
	netd_reach_open(&n->reach, q->opened, q->nopened);
	resolver_set_upstreams(n->resolver, q->up, q->nup);
	for (struct netd_sandbox *s = n->sandboxes; s; s = s->next)
		netd_sandbox_recheck(s);
	return 0;
}

static int put_ports(const struct netd_sandbox *s, struct buf *out)
{
	int r = wire_put_u8(out, s->ports_known);

	if (r == 0)
		r = wire_put_u32(out, (uint32_t)s->nports);
	for (size_t i = 0; i < s->nports && r == 0; i++) {
		char text[NET_ADDR_TEXT + 32];

		r = net_port_text(&s->ports[i], text, sizeof(text));
		if (r == 0)
			r = wire_put_str(out, text);
	}
	return r;
}

/* Too little memory for it: it asks again, as it would without. */
static void inherit_names(struct netd *n, struct netd_sandbox *s, const char *origin)
{
	struct netd_sandbox *from = *find(n, origin);
	const struct names *names = from ? from->names : netd_bygone_find(&n->bygone, origin);

	if (names)
		(void)names_copy(s->names, names, now_ns());
}

static int on_open(struct netd *n, const struct netd_request *q, struct msg *m, struct buf *out, struct err *e)
{
	struct netd_sandbox **at = find(n, q->uuid);
	int fds[TOPOLOGY_FD_COUNT], r = 0;
	size_t next = 0;

	if (!q->mask)
		return *at ? put_ports(*at, out) : err_set(e, -ENOENT, "there is no such sandbox");
	if (!*at) {
		if (n->nsandboxes == NETD_SANDBOXES_MAX)
			return err_set(e, -EMFILE, "%u sandboxes have a network, there cannot be more",
				       NETD_SANDBOXES_MAX);
		r = netd_sandbox_new(n, q->uuid, at, e);
		if (r < 0)
			return r;
		n->nsandboxes++;
		inherit_names(n, *at, q->origin);
	}
	for (int i = 0; i < TOPOLOGY_FD_COUNT; i++)
		fds[i] = q->mask & (1u << i) ? take_fd(&m->fds[next++]) : -1;
	r = netd_sandbox_open(*at, fds, e);
	if (r < 0)
		close_sandbox(n, at);
	return r;
}

static int on_list(const struct netd *n, struct buf *out)
{
	int r = wire_put_u32(out, (uint32_t)n->nsandboxes);

	for (const struct netd_sandbox *s = n->sandboxes; s && r == 0; s = s->next)
		r = wire_put_str(out, s->uuid);
	return r;
}

static int on_stat(struct netd *n, const struct netd_request *q, struct buf *out, struct err *e)
{
	struct netd_stat sum = { 0 }, one;
	int r = 0;

	if (*q->uuid) {
		struct netd_sandbox *s = *find(n, q->uuid);

		if (!s)
			return err_set(e, -ENOENT, "there is no such sandbox");
		netd_sandbox_stat(s, &sum);
	} else {
		sum = n->gone;
		for (const struct netd_sandbox *s = n->sandboxes; s; s = s->next) {
			netd_sandbox_stat(s, &one);
			netd_stat_add(&sum, &one);
		}
	}
	const uint64_t values[] = { sum.relay.bytes_out, sum.relay.bytes_in, sum.relay.opened, sum.relay.refused,
				    sum.relay.failed,	 sum.questions,	     sum.denied };

	for (size_t i = 0; i < ARRAY_LEN(values) && r == 0; i++)
		r = wire_put_u64(out, values[i]);
	return r < 0 ? r : wire_put_u32(out, sum.relay.open);
}

/* What is for a sandbox that has to be there. */
static int on_sandbox(struct netd *n, const struct netd_request *q, struct msg *m, struct err *e)
{
	struct netd_sandbox **at = find(n, q->uuid), *s = *at;

	if (!s && q->type == NETD_CLOSE)
		return 0;
	if (!s)
		return err_set(e, -ENOENT, "there is no such sandbox");
	if (q->type == NETD_ALLOW)
		return netd_sandbox_allow(s, q->list, q->list_len, e);
	if (q->type == NETD_PORTS)
		return netd_sandbox_ports(s, q, m, e);
	if (q->type == NETD_CLOSE) {
		close_sandbox(n, at);
		return 0;
	}
	relay_sockets(s->relay, m->fds, m->nfds);
	m->nfds = 0; /* taken */
	return 0;
}

static int answer(struct netd *n, const struct netd_request *q, struct msg *m, struct buf *out, struct err *e)
{
	switch ((enum netd_type)q->type) {
	case NETD_CONFIG:
		return on_config(n, q);
	case NETD_OPEN:
		return on_open(n, q, m, out, e);
	case NETD_LIST:
		return on_list(n, out);
	case NETD_STAT:
		return on_stat(n, q, out, e);
	case NETD_QUIT:
		return 0;
	default:
		return on_sandbox(n, q, m, e);
	}
}

static void end(struct netd *n)
{
	loop_fn *fn = n->on_end;

	n->on_end = NULL;
	if (fn)
		fn(n->arg);
}

static void on_msg(void *arg, struct msg *m)
{
	struct netd *n = arg;
	struct netd_request q;
	struct err e = { 0 };
	struct buf out;
	int r = netd_request_parse(m, &q, &e);

	buf_init(&out, MSG_MAX - 1024);
	if (r == 0)
		r = answer(n, &q, m, &out, &e);
	if (r < 0 && !*e.msg)
		err_set(&e, r, "%s", err_name(r));
	reply(n, m->id, r, e.msg, &out);
	buf_fini(&out);
	if (r == 0 && q.type == NETD_QUIT)
		end(n);
}

/* -- the client -------------------------------------------------------------------------------------------------- */

static void on_orphan(void *arg)
{
	struct netd *n = arg;

	n->orphan_id = 0;
	if (!n->conn)
		end(n);
}

/* Nobody is there: how long the end is away counts from now. */
static void orphan(struct netd *n)
{
	loop_del(n->loop, &n->orphan_id);
	loop_timer(n->loop, now_ns() + n->p.orphan_ns, on_orphan, n, &n->orphan_id);
}

static void on_gone(void *arg, int reason)
{
	struct netd *n = arg;

	(void)reason;
	n->conn = msgconn_free(n->conn);
	orphan(n);
}

static void on_rested(void *arg)
{
	struct netd *n = arg;

	n->rest_id = 0;
	loop_mod(n->loop, n->listen_id, EPOLLIN);
}

static void on_listen(void *arg, uint32_t events)
{
	static const struct msgconn_ops ops = { on_msg, on_gone };
	struct netd *n = arg;
	struct ucred peer;
	socklen_t len = sizeof(peer);
	AUTO_FD fd = accept4(n->p.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0) {
		/* For want of something it would be told again and again: it rests. */
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED &&
		    loop_timer(n->loop, now_ns() + LISTEN_REST_NS, on_rested, n, &n->rest_id) == 0)
			loop_mod(n->loop, n->listen_id, 0);
		return;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != n->p.daemon_uid)
		return;
	n->conn = msgconn_free(n->conn);
	if (msgconn_new(n->loop, take_fd(&fd), NETD_QUEUE_MAX, &ops, n, &n->conn) < 0) {
		n->conn = NULL;
		orphan(n);
	} else {
		loop_del(n->loop, &n->orphan_id);
	}
}

int netd_new(struct loop *l, const struct netd_params *p, loop_fn *on_end, void *arg, struct netd **ret, struct err *e)
{
	struct netd *n = calloc(1, sizeof(*n));
	int r;

	if (!n) {
		int fd = p->listen_fd;

		fd_close(&fd);
		return err_set(e, -ENOMEM, "netd: no memory");
	}
	*n = (struct netd){ .loop = l, .p = *p, .on_end = on_end, .arg = arg };
	r = netd_reach_init(&n->reach, e);
	if (r < 0) {
		netd_free(n);
		return r;
	}
	r = fd_set_nonblock(n->p.listen_fd, true);
	if (r == 0)
		r = resolver_new(l, NULL, 0, &n->resolver);
	if (r == 0)
		r = loop_add(l, n->p.listen_fd, EPOLLIN, on_listen, n, &n->listen_id);
	if (r < 0) {
		netd_free(n);
		return err_set(e, r, "netd: %s", err_name(r));
	}
	orphan(n);
	*ret = n;
	return 0;
}

struct netd *netd_free(struct netd *n)
{
	if (!n)
		return NULL;
	n->on_end = NULL;
	while (n->sandboxes)
		close_sandbox(n, &n->sandboxes);
	netd_bygone_fini(&n->bygone);
	resolver_free(n->resolver);
	netd_reach_fini(&n->reach);
	n->conn = msgconn_free(n->conn);
	loop_del(n->loop, &n->orphan_id);
	loop_del(n->loop, &n->listen_id);
	loop_del(n->loop, &n->rest_id);
	fd_close(&n->p.listen_fd);
	free(n);
	return NULL;
}
