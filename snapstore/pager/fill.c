/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A fault, or a read ahead, asks for one page; what is filled is its window: 16 pages, aligned in the template, cut at
 * its end. The page itself goes first and its threads are woken at once, the rest of the window after it.
 *
 *   resident        another one was faster: wake
 *   zero            the machine gets the shared zero page; the template stays a hole
 *   an ancestor's   copied here and now (its page cache), with all of the window that ancestors have
 *   the store's     one read of the window into a slot's locked buffer; faults on it meanwhile wait with it
 *   nobody's        the machine is lost
 *
 * Pages become visible by pwrite of whole pages out of memory that is locked: the kernel shows a page when it is
 * complete. A store through a shared mapping, or a copy that could itself fault, would show zeros first.
 * A window that cannot be read whole is from then on read page by page, so that one bad page costs its machines only.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

enum where { HERE, ZERO, ANCESTOR, STORE, NOWHERE };

/* Where @page of @t is to be had (core.h tells the rules), and from whom. */
static enum where pg_source(struct pg_template *t, uint32_t page, struct pg_template **ret)
{
	struct pg_template *stored = NULL;

	if (bit_get(t->resident, page))
		return HERE;
	if (bit_get(t->zero, page))
		return ZERO;
	for (struct pg_template *s = t; s; s = s->parent) {
		if (bit_get(s->resident, page)) {
			*ret = s;
			return ANCESTOR;
		}
		if (!stored && s->state == PG_STORED)
			stored = s;
		if (bit_get(s->own, page))
			break;
	}
	*ret = stored;
	return stored ? STORE : NOWHERE;
}

/* -- slots -------------------------------------------------------------------------------------------------- */

#define SLAB_BYTES ((PG_DEPTH + 1) * (size_t)PG_WINDOW_BYTES)

int pg_fill_init(struct pager *p, struct err *e)
{
	p->slab = mmap(NULL, SLAB_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p->slab == MAP_FAILED) {
		p->slab = NULL;
		return err_set(e, -errno, "buffers: %s", err_name(-errno));
	}
	if (mlock(p->slab, SLAB_BYTES) < 0)
		pg_degraded(p, "buffers are not locked in memory");
	for (unsigned i = 0; i < PG_DEPTH; i++) {
		p->fills[i].p = p;
		p->fills[i].buf = p->slab + (size_t)(i + 1) * PG_WINDOW_BYTES;
	}
	return 0;
}

void pg_fill_fini(struct pager *p)
{
	if (p->slab)
		munmap(p->slab, SLAB_BYTES);
	p->slab = NULL;
}

bool pg_fill_room(const struct pager *p)
{
	return p->nfills < PG_DEPTH;
}

static struct pg_fill *under_way(struct pager *p, const struct pg_template *t, uint32_t page)
{
	for (unsigned i = 0; i < PG_DEPTH; i++) {
		struct pg_fill *f = &p->fills[i];

		if (f->t == t && page >= f->first && page - f->first < f->n)
			return f;
	}
	return NULL;
}

static void add_waiter(struct pg_fill *f, struct pg_machine *m)
{
	for (unsigned i = 0; i < f->nwaiters; i++)
		if (f->waiters[i] == m)
			return;
	if (f->nwaiters == PG_WAITERS)
		f->wake_all = true;
	else
		f->waiters[f->nwaiters++] = m;
}

void pg_fill_forget_machine(struct pg_machine *m)
{
	for (unsigned i = 0; i < PG_DEPTH; i++) {
		struct pg_fill *f = &m->p->fills[i];

		for (unsigned w = 0; f->t && w < f->nwaiters; w++)
			if (f->waiters[w] == m)
				f->waiters[w--] = f->waiters[--f->nwaiters];
	}
}

static void wake_waiters(struct pg_fill *f, uint32_t first, uint32_t n)
{
	if (!f->wake_all) {
		for (unsigned i = 0; i < f->nwaiters; i++)
			pg_wake(f->waiters[i], first, n);
		return;
	}
	for (struct pg_machine *m = f->p->machines; m; m = m->next)
		if (m->t == f->t)
			pg_wake(m, first, n);
}

static void lose_waiters(struct pg_fill *f, int code, const char *words)
{
	if (!f->wake_all) {
		while (f->nwaiters)
			pg_machine_lost(f->waiters[--f->nwaiters], code, words);
		return;
	}
	for (struct pg_machine *m = f->p->machines; m; m = m->next)
		if (m->t == f->t)
			pg_machine_lost(m, code, words); /* it may be innocent, and would fault there too */
}

static void fill_release(struct pg_fill *f)
{
	struct pager *p = f->p;
	struct pg_template *t = f->t, *source = f->source;

	f->t = f->source = NULL;
	f->ahead = NULL;
	f->nwaiters = 0;
	f->wake_all = false;
	p->nfills--;
	pg_template_unref(source);
	pg_template_unref(t);
	pg_fault_unstall(p);
	pg_ahead_go_on(p);
}

/* -- from the store ----------------------------------------------------------------------------------------- */

/* Put the pages of [first, first+n) that still belong to this fill: not here yet, and nobody nearer has them. */
static int put_read(struct pg_fill *f, uint32_t first, uint32_t n)
{
	uint32_t end = first + n;

	while (first < end) {
		struct pg_template *s = NULL;
		uint32_t run = 0;
		int r;

		while (first + run < end && pg_source(f->t, first + run, &s) == STORE && s == f->source)
			run++;
		if (!run) {
			first++;
			continue;
		}
		r = pg_page_put(f->t, first, run, f->buf + (size_t)(first - f->first) * SNAP_PAGE_BYTES);
		if (r < 0)
			return r;
		f->t->from_store += run;
		first += run;
	}
	return 0;
}

static void on_read(void *arg, int code, const struct err *e)
{
	struct pg_fill *f = arg;
	struct pg_ahead *a = f->ahead;
	struct pg_template *t = f->t;
	uint32_t page = f->page;
	struct err words = { 0 };

	if (code == 0 && f->absent) {
		code = err_set(&words, -EBADMSG, "snapshot %s: page %u is not in the map", f->source->snapshot,
			       f->first + (uint32_t)__builtin_ctz(f->absent));
	} else if (code < 0) {
		err_set(&words, code, "snapshot %s: page %u: %s", f->source->snapshot, f->page,
			e && *e->msg ? e->msg : err_name(code));
	}
	if (code == 0) {
		code = put_read(f, f->page, 1);
		if (code == 0) {
			wake_waiters(f, f->page, 1);
			code = put_read(f, f->first, f->n);
		}
		if (code < 0)
			err_set(&words, code, "template %s: write: %s", t->snapshot, err_name(code));
	}
	if (code < 0 && f->n > 1) {
		bit_set(t->single, f->first / PG_WINDOW);
		wake_waiters(f, f->first, f->n); /* they fault again, each page for itself */
	} else if (code < 0) {
		lose_waiters(f, code, words.msg);
	} else {
		wake_waiters(f, f->first, f->n);
	}
	fill_release(f);
	if (a)
		pg_ahead_filled(a, page, code, words.msg);
}

/* Ask the store for the window of @page (or the page alone). NULL: @e says why not. */
static struct pg_fill *read_window(struct pg_template *t, struct pg_template *source, uint32_t page, struct err *e)
{
	struct pager *p = t->p;
	struct pg_fill *f = NULL;
	int r = pg_map(source, e);

	if (r < 0)
		return NULL;
	for (unsigned i = 0; i < PG_DEPTH && !f; i++)
		if (!p->fills[i].t)
			f = &p->fills[i];
	if (!f) {
		err_set(e, -EBUSY, "no slot is free");
		return NULL;
	}
	f->page = f->first = page;
	f->n = 1;
	if (!bit_get(t->single, page / PG_WINDOW)) {
		f->first = page - page % PG_WINDOW;
		f->n = t->pages - f->first < PG_WINDOW ? t->pages - f->first : PG_WINDOW;
	}
	f->absent = 0;
	r = snap_read(p->reader, source->map, f->first, f->n, f->buf, &f->absent, on_read, f, e);
	if (r < 0 && r != -EBUSY && f->n > 1) {
		/* A node, say: it may be good for this page. */
		bit_set(t->single, page / PG_WINDOW);
		f->first = page;
		f->n = 1;
		r = snap_read(p->reader, source->map, page, 1, f->buf, &f->absent, on_read, f, e);
	}
	if (r < 0) {
		err_wrap(e, "snapshot %s: page %u", source->snapshot, page);
		return NULL;
	}
	pg_reader_kick(p);
	f->t = t;
	f->source = source;
	t->refs++;
	source->refs++;
	p->nfills++;
	return f;
}

/* -- from ancestors ----------------------------------------------------------------------------------------- */

static int copy_run(struct pg_template *t, struct pg_template *from, uint32_t page, uint32_t n)
{
	size_t len = (size_t)n * SNAP_PAGE_BYTES;
	ssize_t got = pread(from->fd, t->p->slab, len, (off_t)page * SNAP_PAGE_BYTES);

	if (got < 0 || (size_t)got != len)
		return got < 0 ? -errno : -EIO;
	t->from_parent += n;
	return pg_page_put(t, page, n, t->p->slab);
}

/* All of the window of @page that ancestors have. */
static int copy_window(struct pg_template *t, uint32_t page)
{
	uint32_t at = page - page % PG_WINDOW;
	uint32_t end = t->pages - at < PG_WINDOW ? t->pages : at + PG_WINDOW;

	while (at < end) {
		struct pg_template *from = NULL, *s = NULL;
		uint32_t run = 0;
		int r;

		while (at + run < end && pg_source(t, at + run, &s) == ANCESTOR && (!run || s == from)) {
			from = s;
			run++;
		}
		if (!run) {
			at++;
			continue;
		}
		r = copy_run(t, from, at, run);
		if (r < 0)
			return r;
		at += run;
	}
	return 0;
}

/* -- the two who ask ---------------------------------------------------------------------------------------- */

static uint32_t window_of(const struct pg_template *t, uint32_t page, uint32_t *ret_first)
{
	*ret_first = page - page % PG_WINDOW;
	return t->pages - *ret_first < PG_WINDOW ? t->pages - *ret_first : PG_WINDOW;
}

static void give_zeros(struct pg_machine *m, uint32_t page)
{
	struct pg_template *t = m->t;
	uint32_t first, end = page + 1;
	uint32_t n = window_of(t, page, &first);
	int r;

	while (end < first + n && bit_get(t->zero, end) && !bit_get(t->resident, end))
		end++;
	for (uint32_t i = 0; i < m->nranges; i++) { /* what is anonymous there is not registered */
		uint32_t at = (uint32_t)(m->ranges[i].offset / SNAP_PAGE_BYTES);

		if (at > page && at < end)
			end = at;
	}
	r = pg_zero(m, page, end - page);
	if (r < 0) {
		/* A kernel that will not: zeros in the template do too. */
		memset(t->p->slab, 0, SNAP_PAGE_BYTES);
		r = pg_page_put(t, page, 1, t->p->slab);
		if (r < 0)
			pg_machine_lost(m, r, "a page of zeros could not be written");
		else
			pg_wake(m, page, 1);
	}
}

void pg_fill_fault(struct pg_machine *m, uint32_t page)
{
	struct pg_template *t = m->t, *s = NULL;
	struct pg_fill *f;
	struct err e = { 0 };
	uint32_t first, n = window_of(t, page, &first);
	int r;

	switch (pg_source(t, page, &s)) {
	case HERE:
		pg_wake(m, page, 1);
		return;
	case ZERO:
		give_zeros(m, page);
		return;
	case ANCESTOR:
		r = copy_run(t, s, page, 1);
		if (r == 0) {
			pg_wake(m, page, 1);
			copy_window(t, page); /* what fails here faults for itself */
			pg_wake(m, first, n);
		} else {
			err_set(&e, r, "template %s: page %u: copy: %s", t->snapshot, page, err_name(r));
			pg_machine_lost(m, r, e.msg);
		}
		return;
	case STORE:
		f = under_way(t->p, t, page);
		if (!f)
			f = read_window(t, s, page, &e);
		if (f)
			add_waiter(f, m);
		else
			pg_machine_lost(m, e.code ? e.code : -EIO, e.msg);
		return;
	case NOWHERE:
		err_set(&e, -EBADMSG, "snapshot %s: nobody has page %u", t->snapshot, page);
		pg_machine_lost(m, -EBADMSG, e.msg);
	}
}

int pg_fill_ahead(struct pg_template *t, uint32_t page, struct pg_ahead *a, struct err *e)
{
	uint32_t first, n = window_of(t, page, &first);
	int r = copy_window(t, page);

	if (r < 0)
		return err_set(e, r, "template %s: copy: %s", t->snapshot, err_name(r));
	for (uint32_t i = first; i < first + n; i++) {
		struct pg_template *s = NULL;
		enum where w = pg_source(t, i, &s);
		struct pg_fill *f;

		if (w == NOWHERE)
			return err_set(e, -EBADMSG, "snapshot %s: nobody has page %u", t->snapshot, i);
		if (w != STORE)
			continue;
		f = under_way(t->p, t, i);
		if (!f && t->p->nfills >= PG_DEPTH_AHEAD)
			return PG_AHEAD_LATER;
		if (!f)
			f = read_window(t, s, i, e);
		if (!f)
			return e->code;
		if (f->ahead && f->ahead != a)
			return PG_AHEAD_LATER;
		f->ahead = a;
		return PG_AHEAD_WAITS;
	}
	return PG_AHEAD_DONE;
}
