/* SPDX-License-Identifier: Apache-2.0 */
/* Read ahead: the windows of a list, or of all of a template, in steps between the faults. */
#include <stdlib.h>
#include <string.h>

#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

#define STEP_WINDOWS 16u /* looked at in one go: copies from ancestors take about 20 us each */

struct pg_ahead {
	struct pg_ahead *next;
	struct pg_template *t;
	uint32_t *windows; /* first pages */
	uint32_t nwindows, at;
	uint32_t waits; /* reads under way */
	bool strict;
	struct err e; /* the first failure, when strict */
	pg_done_fn *fn;
	void *arg;
};

static void fail(struct pg_ahead *a, int code, const char *words)
{
	if (!a->strict || a->e.code)
		return;
	err_set(&a->e, code, "%s", words);
	a->at = a->nwindows;
}

/* One window, once more put to the end of what is left when it has to wait. false: no room now. */
static bool step(struct pg_ahead *a)
{
	struct err e = { 0 };
	int r = pg_fill_ahead(a->t, a->windows[a->at], a, &e);

	if (r == PG_AHEAD_LATER)
		return false;
	a->at++;
	if (r == PG_AHEAD_WAITS)
		a->waits++;
	else if (r < 0)
		fail(a, r, e.msg);
	return true;
}

static void finish(struct pg_ahead *a)
{
	struct pg_ahead **at = &a->t->p->aheads;

	while (*at != a)
		at = &(*at)->next;
	*at = a->next;
	a->fn(a->arg, a->e.code, a->e.msg);
	a->t->whole--;
	pg_template_unref(a->t);
	free(a->windows);
	free(a);
}

static void run(void *arg)
{
	struct pager *p = arg;
	unsigned left = STEP_WINDOWS;
	bool more = false;

	p->ahead_defer = 0;
	for (struct pg_ahead *a = p->aheads, *next; a; a = next) {
		bool room = true;

		next = a->next;
		while (left && a->at < a->nwindows && (room = step(a)))
			left--;
		if (a->at < a->nwindows)
			/* Without a read of its own under way nobody may call again: other slots do, when they are
			 * free. */
			more = more || room;
		else if (!a->waits)
			finish(a);
	}
	if (more)
		loop_defer(p->loop, run, p, &p->ahead_defer);
}

void pg_ahead_go_on(struct pager *p)
{
	if (p->aheads && !p->ahead_defer)
		loop_defer(p->loop, run, p, &p->ahead_defer);
}

void pg_ahead_filled(struct pg_ahead *a, uint32_t page, int code, const char *words)
{
	a->waits--;
	if (code < 0)
		fail(a, code, words);
	else if (!a->e.code)
		a->windows[--a->at] = page; /* look again: one read may not have covered it */
	pg_ahead_go_on(a->t->p);
}

int pg_ahead(struct pg_template *t, const uint32_t *pages, uint32_t n, bool strict, pg_done_fn *fn, void *arg)
{
	uint32_t nwindows = (t->pages + PG_WINDOW - 1) / PG_WINDOW;
	struct pg_ahead *a = calloc(1, sizeof(*a));
	uint64_t *seen = calloc(bits_words(nwindows), 8);

	if (a)
		a->windows = malloc(((size_t)(pages ? n : nwindows) + 1) * sizeof(*a->windows));
	if (!a || !seen || !a->windows) {
		if (a)
			free(a->windows);
		free(a);
		free(seen);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < (pages ? n : nwindows); i++) {
		uint32_t w = pages ? pages[i] / PG_WINDOW : i;

		if (w >= nwindows || bit_get(seen, w))
			continue;
		bit_set(seen, w);
		a->windows[a->nwindows++] = w * PG_WINDOW;
	}
	free(seen);
	a->t = t;
	t->refs++;
	t->whole++; /* what was read ahead is not thrown away before anybody came */
	a->strict = strict;
	a->fn = fn;
	a->arg = arg;
	a->next = t->p->aheads;
	t->p->aheads = a;
	pg_ahead_go_on(t->p);
	return 0;
}

void pg_ahead_fini(struct pager *p)
{
	while (p->aheads) {
		struct pg_ahead *a = p->aheads;

		a->e.code = -ECANCELED;
		finish(a);
	}
}
