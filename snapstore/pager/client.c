/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's connection: who may speak, answers, and what is said unasked. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "snapstore/pager/core.h"

#define QUEUE_MAX (4u * 1024 * 1024) /* bytes of answers that the daemon has not read */

static void tell_lost(struct pg_machine *m)
{
	struct pager *p = m->p;
	struct buf b;

	if (!p->client || m->lost_told)
		return;
	buf_init(&b, MSG_MAX);
	if (wire_put_str(&b, m->id) == 0 && wire_put_u32(&b, (uint32_t)m->lost) == 0 &&
	    wire_put_str(&b, m->lost_words) == 0)
		m->lost_told = msgconn_send(p->client, PAGER_LOST, 0, b.data, b.len, NULL, 0) == 0;
	buf_fini(&b);
}

void pg_client_lost(struct pg_machine *m)
{
	tell_lost(m); /* or when the next daemon comes */
}

void pg_reply(const struct pg_call *c, int code, const char *words, const struct buf *payload, const int *fds,
	      size_t nfds)
{
	struct pager *p = c->p;
	struct buf b;
	int r;

	if (!c->id || !p->client || c->round != p->client_round)
		return;
	buf_init(&b, MSG_MAX);
	r = wire_put_u32(&b, (uint32_t)code);
	if (r == 0)
		r = wire_put_str(&b, words ? words : "");
	if (r == 0 && payload && code == 0)
		r = buf_add(&b, payload->data, payload->len);
	if (r == 0)
		r = msgconn_send(p->client, PAGER_REPLY, c->id, b.data, b.len, fds, code == 0 ? nfds : 0);
	buf_fini(&b);
	if (r < 0 && r != -EPIPE) /* it would wait for ever for this one: let it come again */
		shutdown(msgconn_fd(p->client), SHUT_RDWR);
}

void pg_reply_err(const struct pg_call *c, const struct err *e)
{
	pg_reply(c, e->code ? e->code : -EIO, e->msg, NULL, NULL, 0);
}

static void on_msg(void *arg, struct msg *m)
{
	struct pager *p = arg;
	struct pg_call c = { .p = p, .round = p->client_round, .id = m->id };
	struct pg_request q;
	struct err e = { 0 };

	if (pg_request_parse(m->type, m->data, m->len, m->nfds, &q, &e) < 0)
		pg_reply_err(&c, &e);
	else
		pg_request(&c, &q, m);
}

static void client_drop(struct pager *p)
{
	p->client = msgconn_free(p->client);
	p->client_round++;
}

static void on_gone(void *arg, int reason)
{
	struct pager *p = arg;

	(void)reason;
	client_drop(p);
	pg_orphan(p);
}

static const struct msgconn_ops ops = { .on_msg = on_msg, .on_gone = on_gone };

static void on_accept(void *arg, uint32_t events)
{
	struct pager *p = arg;
	AUTO_FD fd = accept4(p->params.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct ucred who;
	socklen_t len = sizeof(who);

	(void)events;
	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 || who.uid != p->params.daemon_uid)
		return;
	client_drop(p);
	if (msgconn_new(p->loop, take_fd(&fd), QUEUE_MAX, &ops, p, &p->client) < 0) {
		p->client = NULL;
		return;
	}
	for (struct pg_machine *m = p->machines; m; m = m->next) {
		m->lost_told = false; /* the former one may not have read it */
		if (m->lost)
			tell_lost(m);
	}
}

static void on_orphan_timer(void *arg)
{
	struct pager *p = arg;

	p->orphan_timer = 0;
	pg_orphan(p);
}

/* Without a daemon: those machines that ended are let go; without any, and long enough, so are we. */
void pg_orphan(struct pager *p)
{
	uint64_t now = now_ns();

	if (p->client || p->params.listen_fd < 0) {
		p->orphan_since_ns = 0;
		return;
	}
	for (struct pg_machine *m = p->machines, *next; m; m = next) {
		next = m->next;
		if (!pg_machine_lives(m))
			pg_machine_detach(m);
	}
	if (!p->orphan_since_ns || p->machines)
		p->orphan_since_ns = now;
	if (now - p->orphan_since_ns >= p->params.orphan_ns) {
		p->quit = true;
		loop_stop(p->loop);
		return;
	}
	if (!p->orphan_timer)
		loop_timer(p->loop, now + p->params.orphan_ns / 4 + 1, on_orphan_timer, p, &p->orphan_timer);
}

int pg_client_listen(struct pager *p, struct err *e)
{
	int r = fd_set_nonblock(p->params.listen_fd, true);

	if (r == 0)
		r = loop_add(p->loop, p->params.listen_fd, EPOLLIN, on_accept, p, &p->listen_watch);
	if (r < 0)
		return err_set(e, r, "the daemon's socket: %s", err_name(r));
	pg_orphan(p);
	return 0;
}

void pg_client_fini(struct pager *p)
{
	client_drop(p);
	loop_del(p->loop, &p->listen_watch);
	fd_close(&p->params.listen_fd);
}
