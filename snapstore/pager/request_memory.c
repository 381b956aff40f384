/* SPDX-License-Identifier: Apache-2.0 */
/* TEMPLATE, ATTACH, DETACH: memory for machines to go on with. */
#include "base/fd.h"
#include "snapstore/pager/request_priv.h"

/* -- TEMPLATE ----------------------------------------------------------------------------------------------- */

static void template_filled(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg;
	struct err e = { 0 };
	struct buf b;

	buf_init(&b, MSG_MAX);
	if (code < 0)
		pg_reply(&w->call, code, words, NULL, NULL, 0);
	else if (pg_reply_template(&w->call, w->t, &b, -1, &e) < 0)
		pg_reply_err(&w->call, &e);
	buf_fini(&b);
	pg_pending_free(w);
}

static void template_there(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg;
	uint32_t n = 0;
	bool whole = w->q.whole;
	const uint32_t *pages = code < 0 || whole ? NULL : pg_workset_get(w->call.p, w->t->snapshot, &n);
	struct err e = { 0 };

	if (code == 0 && pg_ready(w->t, w->q.bytes, &e) < 0)
		template_filled(w, e.code, e.msg);
	else if (code < 0 || !(whole || pages))
		template_filled(w, code, words);
	else if (pg_ahead(w->t, pages, n, whole, template_filled, w) < 0)
		template_filled(w, whole ? -ENOMEM : 0, "reading it: no memory");
}

int pg_do_template(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t = pg_template_find(c->p, q->snapshot);
	struct pg_pending *w;
	int r = 0;

	if (t && t->forgotten)
		return err_set(e, -ENOENT, "template %s was let go", q->snapshot);
	if (!t)
		r = pg_open_stored(c->p, q->snapshot, q->bytes, &t, e);
	if (r < 0)
		return r;
	t->used_ns = now_ns();
	w = pg_pending_new(c, q, t);
	if (!w)
		return pg_no_memory(e);
	if (t->state != PG_OPENING) {
		template_there(w, 0, "");
		return 0;
	}
	r = pg_wait_for(t, template_there, w, e);
	if (r < 0)
		pg_pending_free(w);
	return r;
}

/* -- ATTACH ------------------------------------------------------------------------------------------------- */

static void attach_filled(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg;
	struct err e = { 0 };

	if (code == 0)
		code = pg_machine_attach(w->call.p, &w->q, w->t, -1, take_fd(&w->fds[0]), take_fd(&w->fds[1]), &e);
	else
		err_set(&e, code, "%s", words);
	if (code < 0) {
		w->t->whole--;
		pg_reply_err(&w->call, &e);
	} else {
		pg_reply(&w->call, 0, NULL, NULL, NULL, 0);
	}
	pg_pending_free(w);
}

/* Without userfaultfd a hole reads as zeros: nothing runs on it before it is full. */
static int attach_whole(const struct pg_call *c, const struct pg_request *q, struct pg_template *t, struct msg *m,
			struct err *e)
{
	struct pg_pending *w = pg_pending_new(c, q, t);

	if (!w)
		return pg_no_memory(e);
	w->fds[0] = take_fd(&m->fds[0]);
	w->fds[1] = take_fd(&m->fds[1]);
	t->whole++;
	if (pg_ahead(t, NULL, 0, true, attach_filled, w) < 0) {
		t->whole--;
		pg_pending_free(w);
		return pg_no_memory(e);
	}
	return 0;
}

static int attach(const struct pg_call *c, const struct pg_request *q, struct pg_template *t, struct msg *m,
		  struct err *e)
{
	bool uffd = m->nfds == 3;
	int r;

	if (t) {
		r = pg_ready(t, q->bytes, e);
		if (r < 0)
			return r;
		if (!uffd)
			return attach_whole(c, q, t, m, e);
	}
	r = pg_machine_attach(c->p, q, t, uffd ? take_fd(&m->fds[0]) : -1, take_fd(&m->fds[uffd]),
			      take_fd(&m->fds[uffd + 1]), e);
	if (r == 0)
		pg_reply(c, 0, NULL, NULL, NULL, 0);
	return r;
}

/* Its template was adopted a moment ago, and is known now, or cannot be; or had strays, and is clean now. */
static void attach_opened(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg;
	struct msg m = { 0 };
	struct err e = { 0 };

	if (code < 0)
		err_set(&e, code, "%s", words);
	for (size_t i = 0; i < ARRAY_LEN(w->fds); i++) {
		if (w->fds[i] >= 0)
			m.fds[m.nfds++] = take_fd(&w->fds[i]);
	}
	if (code < 0 || attach(&w->call, &w->q, w->t, &m, &e) < 0)
		pg_reply_err(&w->call, &e);
	msg_close_fds(&m);
	pg_pending_free(w);
}

static int attach_later(const struct pg_call *c, const struct pg_request *q, struct pg_template *t, struct msg *m,
			struct err *e)
{
	struct pg_pending *w = pg_pending_new(c, q, t);
	int r;

	if (!w)
		return pg_no_memory(e);
	r = pg_wait_for(t, attach_opened, w, e);
	if (r < 0) {
		pg_pending_free(w);
		return r;
	}
	for (size_t i = 0; i < m->nfds; i++)
		w->fds[i] = take_fd(&m->fds[i]);
	return 0;
}

int pg_do_attach(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e)
{
	struct pg_template *t = NULL;
	int r = *q->snapshot ? pg_find(c->p, q->snapshot, &t, e) : 0;

	if (r < 0)
		return r;
	/* Once: an engine that makes more of them meanwhile does not keep others from being attached. */
	if (t && (t->state == PG_OPENING || pg_evict_strays(t)))
		return attach_later(c, q, t, m, e);
	return attach(c, q, t, m, e);
}

int pg_do_detach(const struct pg_call *c, const struct pg_request *q)
{
	struct pg_machine *m = pg_machine_find(c->p, q->machine);

	if (m)
		pg_machine_detach(m);
	pg_reply(c, 0, NULL, NULL, NULL, 0);
	pg_evict_check(c->p);
	return 0;
}
