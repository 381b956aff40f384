/* SPDX-License-Identifier: Apache-2.0 */
/* ADOPT: templates of a former pager, handed over by the daemon. */
#include <unistd.h>

#include "base/fd.h"
#include "snapstore/pager/bits.h"
#include "snapstore/pager/request_priv.h"

/* Bits of captured pages, as a file of a former pager's. */
static int read_own(struct pg_template *t, int fd, struct err *e)
{
	size_t len = ((size_t)t->pages + 7) / 8;
	ssize_t n = pread(fd, t->own, len, 0);

	if (n < 0 || (size_t)n != len)
		return err_set(e, n < 0 ? -errno : -EBADMSG, "template %s: its bits cannot be read", t->snapshot);
	t->nown = bits_count(t->own, t->pages);
	for (size_t w = 0; w < bits_words(t->pages); w++)
		t->zero[w] = ((t->parent ? t->parent->zero[w] : ~UINT64_C(0)) | t->own[w]) & ~t->resident[w];
	return 0;
}

/* The parent, if there is to be one, is ready. */
static void adopt_parent_there(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg; /* its template: the parent, or NULL */
	struct pg_template *t;
	struct err e = { 0 };

	if (code < 0)
		err_set(&e, code, "%s", words);
	else if (w->t)
		code = pg_ready(w->t, w->q.bytes, &e);
	if (code == 0)
		code = pg_template_adopt(w->call.p, w->fds[0], w->q.snapshot, w->q.bytes, w->t, true, &t, &e);
	if (code == 0) {
		code = read_own(t, w->fds[1], &e);
		t->state = PG_CAPTURED;
		t->forgotten = code < 0;
		pg_template_gone(t);
	}
	if (code < 0)
		pg_reply_err(&w->call, &e);
	else
		pg_reply(&w->call, 0, NULL, NULL, NULL, 0);
	pg_pending_free(w);
}

static int adopt_captured(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e)
{
	struct pg_template *parent = *q->parent ? pg_template_find(c->p, q->parent) : NULL;
	struct pg_pending *w;
	int r = 0;

	if (*q->parent && !parent) /* adopted later, or only in the store: its holes come from there */
		r = pg_open_stored(c->p, q->parent, q->bytes, &parent, e);
	if (r < 0)
		return r;
	w = pg_pending_new(c, q, parent);
	if (!w)
		return pg_no_memory(e);
	w->fds[0] = take_fd(&m->fds[0]);
	w->fds[1] = take_fd(&m->fds[1]);
	if (!parent || parent->state != PG_OPENING) {
		adopt_parent_there(w, 0, "");
		return 0;
	}
	r = pg_wait_for(parent, adopt_parent_there, w, e);
	if (r < 0)
		pg_pending_free(w);
	return r;
}

static void adopted_stored(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg;

	pg_reply(&w->call, code, words, NULL, NULL, 0);
	pg_pending_free(w);
}

int pg_do_adopt(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e)
{
	struct pg_template *t;
	struct pg_pending *w;
	int r;

	if (!q->stored)
		return adopt_captured(c, q, m, e);
	r = pg_template_adopt(c->p, m->fds[0], q->snapshot, q->bytes, NULL, false, &t, e);
	if (r < 0)
		return r;
	t->state = PG_OPENING;
	w = pg_pending_new(c, q, t);
	r = w ? pg_wait_for(t, adopted_stored, w, e) : pg_no_memory(e);
	if (r < 0) {
		t->forgotten = true;
		if (w)
			pg_pending_free(w); /* takes it along */
		else
			pg_template_gone(t);
		return r;
	}
	r = pg_look(t, pg_looked, t, e);
	if (r < 0)
		pg_looked(t, r, e->msg); /* answers */
	return 0;
}
