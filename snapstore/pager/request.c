/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's requests about memory: one function each, here and in request_*.c. What takes time goes on in ahead.c,
 * look.c or capture.c and answers from there, by a struct pg_pending (request_wait.c). */
#include "base/fd.h"
#include "snapstore/pager/request_priv.h"

static int do_workset(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t;
	AUTO_FD fd = -1;
	int r = pg_find(c->p, q->snapshot, &t, e);

	if (r == 0)
		r = pg_workset_list(t, &fd, e);
	if (r == 0)
		pg_reply(c, 0, NULL, NULL, &fd, 1);
	return r;
}

static int do_evict(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t = NULL;
	int r = 0;

	if (*q->snapshot)
		r = pg_find(c->p, q->snapshot, &t, e);
	else
		t = pg_evict_least(c->p, true);
	if (r < 0)
		return r;
	if (t)
		pg_evict(t);
	pg_reply(c, 0, NULL, NULL, NULL, 0);
	return 0;
}

static int do_text(const struct pg_call *c, int (*text)(struct pager *p, struct buf *out), struct err *e)
{
	struct buf b;
	int r;

	buf_init(&b, MSG_MAX - 1024);
	r = text(c->p, &b);
	if (r == 0)
		pg_reply(c, 0, NULL, &b, NULL, 0);
	else
		err_set(e, r == -EFBIG ? -E2BIG : r, "more than a message holds");
	buf_fini(&b);
	return r;
}

void pg_request(const struct pg_call *c, struct pg_request *q, struct msg *m)
{
	struct err e = { 0 };
	int r = 0;

	switch (q->type) {
	case PAGER_TEMPLATE:
		r = pg_do_template(c, q, &e);
		break;
	case PAGER_ATTACH:
		r = pg_do_attach(c, q, m, &e);
		break;
	case PAGER_DETACH:
		r = pg_do_detach(c, q);
		break;
	case PAGER_CAPTURE_BEGIN:
		r = pg_do_capture_begin(c, q, &e);
		break;
	case PAGER_CAPTURE:
		r = pg_do_capture(c, q, &e);
		break;
	case PAGER_CAPTURED:
		r = pg_do_captured(c, q, &e);
		break;
	case PAGER_ADOPT:
		r = pg_do_adopt(c, q, m, &e);
		break;
	case PAGER_STORED:
		r = pg_do_stored(c, q, &e);
		break;
	case PAGER_FORGET:
		r = pg_do_forget(c, q);
		break;
	case PAGER_WORKSET:
		r = do_workset(c, q, &e);
		break;
	case PAGER_WORKSET_SET:
		r = pg_workset_set(c->p, q->snapshot, m->fds[0], &e);
		if (r == 0)
			pg_reply(c, 0, NULL, NULL, NULL, 0);
		break;
	case PAGER_STAT:
		r = do_text(c, pg_stat_text, &e);
		break;
	case PAGER_LIST:
		r = do_text(c, pg_list, &e);
		break;
	case PAGER_EVICT:
		r = do_evict(c, q, &e);
		break;
	case PAGER_CONFIG:
		c->p->budget_bytes = q->bytes;
		pg_reply(c, 0, NULL, NULL, NULL, 0);
		pg_evict_check(c->p);
		break;
	case PAGER_QUIT:
		pg_reply(c, 0, NULL, NULL, NULL, 0);
		c->p->quit = true;
		loop_stop(c->p->loop);
		break;
	default: /* the parser lets through what is left: disks */
		if (c->p->disks)
			pg_disks_ask(c->p->disks, c, q, m->nfds ? take_fd(&m->fds[0]) : -1);
		else
			r = err_set(&e, -ENOSYS, "no disks are served here");
	}
	if (r < 0)
		pg_reply_err(c, &e);
}
