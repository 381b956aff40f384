/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose answer comes later, and what waits for a template to be opened. */
#include <stdlib.h>

#include "base/fd.h"
#include "snapstore/pager/request_priv.h"

struct pg_pending *pg_pending_new(const struct pg_call *c, const struct pg_request *q, struct pg_template *t)
{
	struct pg_pending *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->call = *c;
	w->q = *q;
	w->t = t;
	buf_init(&w->reply, MSG_MAX);
	for (size_t i = 0; i < ARRAY_LEN(w->fds); i++)
		w->fds[i] = -1;
	if (t)
		t->refs++;
	return w;
}

void pg_pending_free(struct pg_pending *w)
{
	for (size_t i = 0; i < ARRAY_LEN(w->fds); i++)
		fd_close(&w->fds[i]);
	pg_template_unref(w->t);
	buf_fini(&w->reply);
	free(w);
}

int pg_no_memory(struct err *e)
{
	return err_set(e, -ENOMEM, "pager: no memory");
}

int pg_reply_template(const struct pg_call *c, struct pg_template *t, struct buf *b, int fd2, struct err *e)
{
	struct pg_range ranges[PAGER_RANGES_MAX];
	AUTO_FD fd = -1;
	int r = pg_template_reopen(t, &fd, e);

	if (r < 0)
		return r;
	if (pg_ranges_put(b, ranges, pg_zero_ranges(t, ranges)) < 0)
		return pg_no_memory(e);
	pg_reply(c, 0, NULL, b, (int[]){ fd, fd2 }, fd2 < 0 ? 1 : 2);
	return 0;
}

int pg_find(struct pager *p, const char *snapshot, struct pg_template **ret, struct err *e)
{
	*ret = pg_template_find(p, snapshot);
	return *ret ? 0 : err_set(e, -ENOENT, "template %s is not here", snapshot);
}

int pg_ready(const struct pg_template *t, uint64_t bytes, struct err *e)
{
	if (t->state != PG_CAPTURED && t->state != PG_STORED)
		return err_set(e, -EBUSY, "template %s is being made", t->snapshot);
	if (t->bytes != bytes)
		return err_set(e, -EINVAL, "template %s has %llu bytes, not %llu", t->snapshot,
			       (unsigned long long)t->bytes, (unsigned long long)bytes);
	return 0;
}

/* -- templates that are being looked through ---------------------------------------------------------------- */

/* What waits for a template to be looked through. */
struct pg_wait {
	struct pg_wait *next;
	struct pg_template *t;
	pg_done_fn *fn;
	void *arg;
};

void pg_looked(void *arg, int code, const char *words)
{
	struct pg_template *t = arg;
	struct pager *p = t->p;
	struct pg_wait **at = &p->waits;

	if (code < 0)
		t->forgotten = true; /* gone when the last one here has let go */
	while (*at) {
		struct pg_wait *w = *at;

		if (w->t != t) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->fn(w->arg, code, words);
		free(w);
	}
}

int pg_wait_for(struct pg_template *t, pg_done_fn *fn, void *arg, struct err *e)
{
	struct pg_wait *w = calloc(1, sizeof(*w)), **at = &t->p->waits;

	if (!w)
		return pg_no_memory(e);
	*w = (struct pg_wait){ .t = t, .fn = fn, .arg = arg };
	while (*at)
		at = &(*at)->next;
	*at = w;
	return 0;
}

int pg_open_stored(struct pager *p, const char *snapshot, uint64_t bytes, struct pg_template **ret, struct err *e)
{
	struct pg_template *t;
	int r = pg_template_new(p, snapshot, bytes, NULL, false, &t, e);

	if (r < 0)
		return r;
	t->state = PG_OPENING;
	t->refs++; /* a look that cannot begin ends in here, and would take it along */
	r = pg_look(t, pg_looked, t, e);
	if (r < 0)
		t->forgotten = true;
	else if (t->forgotten)
		r = err_set(e, -EBUSY, "template %s: too much is under way", snapshot);
	if (r == 0)
		*ret = t;
	pg_template_unref(t);
	return r;
}

void pg_request_fini(struct pager *p)
{
	while (p->waits) {
		struct pg_wait *w = p->waits;

		p->waits = w->next;
		w->fn(w->arg, -ECANCELED, "the pager ends");
		free(w);
	}
}
