/* SPDX-License-Identifier: Apache-2.0 */
/* CAPTURE_BEGIN, CAPTURE, CAPTURED, STORED, FORGET: the life of what was captured. */
#include "base/fd.h"
#include "base/wire.h"
#include "snapstore/pager/request_priv.h"

/* Captured pages stay until they are stored: they alone must not pass the budget. The first one always may. */
static int check_budget(struct pager *p, struct err *e)
{
	uint64_t bytes = 0;

	for (struct pg_template *t = p->templates; t; t = t->next)
		if (t->state != PG_STORED)
			bytes += (uint64_t)t->nown * SNAP_PAGE_BYTES;
	if (bytes && bytes >= p->budget_bytes)
		return err_set(e, -ENOMEM, "host memory: %llu MiB of snapshots are not in the store yet",
			       (unsigned long long)(bytes >> 20));
	return 0;
}

int pg_do_capture_begin(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *parent = NULL, *t = NULL;
	struct buf none = { 0 };
	AUTO_FD fd = -1;
	int r = check_budget(c->p, e);

	if (r == 0 && *q->parent)
		r = pg_find(c->p, q->parent, &parent, e);
	if (r == 0 && parent)
		r = pg_ready(parent, q->bytes, e);
	if (r == 0)
		r = pg_template_new(c->p, q->snapshot, q->bytes, parent, true, &t, e);
	if (!t)
		return r;
	t->state = PG_BEGUN;
	r = pg_template_reopen(t, &fd, e);
	if (r < 0) {
		t->forgotten = true;
		pg_template_gone(t);
		return r;
	}
	pg_reply(c, 0, NULL, &none, &fd, 1);
	return 0;
}

static void capture_failed(struct pg_pending *w, int code, const char *words)
{
	pg_template_empty(w->t);
	w->t->state = PG_BEGUN;
	pg_reply(&w->call, code, words, NULL, NULL, 0);
	pg_pending_free(w);
}

static void capture_frozen(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg;
	struct err e = { 0 };

	if (code < 0) {
		err_set(&e, code, "disk: %s", words);
		capture_failed(w, code, e.msg);
		return;
	}
	/* From here on it is there, whether the answer arrives or not: CAPTURED tells of it. */
	w->t->state = PG_CAPTURED;
	w->t->pinned = w->whole;
	w->t->whole += w->whole;
	pg_reply(&w->call, 0, NULL, &w->reply, w->fds, 1);
	pg_pending_free(w);
}

/* The memory is there. The disk is last: what is frozen stays so, and nothing may fail behind it. */
static void capture_filled(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg;
	struct pager *p = w->call.p;
	struct pg_range ranges[PAGER_RANGES_MAX];
	struct err e = { 0 };

	err_set(&e, code, "what it has not written: %s", words);
	if (code == 0)
		code = pg_bits_memfd(w->t, &w->fds[0], &e);
	if (code == 0 &&
	    (wire_put_u64(&w->reply, w->captured.pages) < 0 || wire_put_u64(&w->reply, w->captured.ns) < 0 ||
	     pg_ranges_put(&w->reply, ranges, pg_zero_ranges(w->t, ranges)) < 0))
		code = pg_no_memory(&e);
	if (code < 0) {
		capture_failed(w, code, e.msg);
		return;
	}
	code = p->disks ? pg_disks_freeze(p->disks, w->q.id, w->q.snapshot, capture_frozen, w) : -ENOSYS;
	if (code == -ENOSYS)
		capture_frozen(w, 0, "");
	else if (code < 0)
		capture_frozen(w, code, err_name(code));
}

static void capture_copied(void *arg, const struct pg_capture_result *res, int code, const char *words)
{
	struct pg_pending *w = arg;

	if (code < 0) {
		pg_reply(&w->call, code, words, NULL, NULL, 0);
		pg_pending_free(w);
		return;
	}
	w->captured = *res;
	if (!w->whole)
		capture_filled(w, 0, "");
	else if (pg_ahead(w->t, NULL, 0, true, capture_filled, w) < 0)
		capture_filled(w, -ENOMEM, "no memory");
}

int pg_do_capture(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_machine *m = pg_machine_find(c->p, q->machine);
	struct pg_template *t;
	struct pg_pending *w;
	int r = pg_find(c->p, q->snapshot, &t, e);

	if (!t)
		return r;
	if (!m)
		return err_set(e, -ENOENT, "machine %s is not attached", q->machine);
	if (t->state != PG_BEGUN)
		return err_set(e, -EEXIST, "template %s was captured already", q->snapshot);
	if (m->t != t->parent || m->bytes != t->bytes)
		return err_set(e, -EINVAL, "template %s does not grow out of the memory of machine %s", q->snapshot,
			       q->machine);
	w = pg_pending_new(c, q, t);
	if (!w)
		return pg_no_memory(e);
	w->whole = m->t && m->uffd < 0;
	r = pg_capture(m, t, capture_copied, w, e);
	if (r < 0)
		pg_pending_free(w);
	return r;
}

int pg_do_captured(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t;
	AUTO_FD bits = -1;
	struct buf b;
	int r = pg_find(c->p, q->snapshot, &t, e);

	if (r == 0 && t->state != PG_CAPTURED)
		r = err_set(e, -ENOENT, "template %s is not one that waits for the store", q->snapshot);
	if (r == 0)
		r = pg_bits_memfd(t, &bits, e);
	if (r < 0)
		return r;
	buf_init(&b, MSG_MAX);
	r = wire_put_u64(&b, t->bytes) < 0 ? pg_no_memory(e) : pg_reply_template(c, t, &b, bits, e);
	buf_fini(&b);
	return r;
}

int pg_do_stored(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t = pg_template_find(c->p, q->snapshot);
	int r = t && t->state == PG_CAPTURED ? pg_look_stored(t, e) : 0;

	if (r < 0)
		return r;
	if (t)
		pg_template_unpin(t);
	if (c->p->disks)
		pg_disks_stored(c->p->disks, q->snapshot);
	pg_reply(c, 0, NULL, NULL, NULL, 0);
	pg_evict_check(c->p);
	return 0;
}

static void forgotten_filled(void *arg, int code, const char *words)
{
	struct pg_pending *w = arg;

	(void)code; /* what could not be read is lost when somebody touches it */
	(void)words;
	pg_reply(&w->call, 0, NULL, NULL, NULL, 0);
	pg_pending_free(w);
}

/* Its machines, and snapshots that grow out of it, go on, although the store may throw its pages away once this is
 * answered: all of it is read before, and stays. */
static bool keep_whole(const struct pg_call *c, const struct pg_request *q, struct pg_template *t)
{
	struct pg_pending *w = t->refs && t->state == PG_STORED ? pg_pending_new(c, q, t) : NULL;

	if (!w)
		return false;
	t->whole++; /* until it goes */
	if (pg_ahead(t, NULL, 0, false, forgotten_filled, w) == 0)
		return true;
	pg_pending_free(w);
	return false;
}

int pg_do_forget(const struct pg_call *c, const struct pg_request *q)
{
	struct pg_template *t = pg_template_find(c->p, q->snapshot);
	bool later = t && !t->forgotten && keep_whole(c, q, t);

	pg_workset_forget(c->p, q->snapshot);
	if (c->p->disks)
		pg_disks_forget(c->p->disks, q->snapshot);
	if (t) {
		t->forgotten = true;
		pg_template_gone(t);
	}
	if (!later)
		pg_reply(c, 0, NULL, NULL, NULL, 0);
	return 0;
}
