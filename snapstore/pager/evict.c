/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that goes back: pages that the store, or a parent, has too. In steps, so that no fault waits long behind a
 * punch. */
#include <fcntl.h>
#include <string.h>

#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

#define STEP_PAGES 2048u /* 8 MiB: about 1 ms */

/* Pages of a template that must stay: captured, and in no store yet. */
static bool must_stay(const struct pg_template *t, uint32_t page)
{
	return t->state != PG_STORED && bit_get(t->own, page);
}

static bool evictable(const struct pg_template *t)
{
	return (t->state == PG_STORED || t->state == PG_CAPTURED) && !t->whole;
}

static void punch(struct pg_template *t, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		bit_clear(t->resident, i);
	t->nresident -= n;
	t->p->resident_pages -= n;
	fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first * SNAP_PAGE_BYTES,
		  (off_t)n * SNAP_PAGE_BYTES);
}

/* Go on where the last step ended; children that are not stored hold @t, their holes show its pages: from the store,
 * then. */
static void step(struct pg_template *t)
{
	uint32_t left = STEP_PAGES;

	while (left) {
		uint32_t first = bits_find(t->resident, t->evict_at, t->pages, true), n = 0;

		t->evict_at = first;
		if (first == t->pages)
			return;
		if (must_stay(t, first)) {
			t->evict_at++;
			left--;
			continue;
		}
		while (n < left && first + n < t->pages && bit_get(t->resident, first + n) && !must_stay(t, first + n))
			n++;
		punch(t, first, n);
		t->evict_at = first + n;
		left -= n;
	}
}

static void run(void *arg)
{
	struct pager *p = arg;

	p->evict_defer = 0;
	for (struct pg_template *t = p->templates; t; t = t->next) {
		if (t->evict_at == t->pages)
			continue;
		if (evictable(t))
			step(t);
		else
			t->evict_at = t->pages;
		if (t->evict_at != t->pages) {
			loop_defer(p->loop, run, p, &p->evict_defer);
			return;
		}
	}
	pg_evict_check(p);
}

void pg_evict(struct pg_template *t)
{
	t->evict_at = 0;
	if (!t->p->evict_defer)
		loop_defer(t->p->loop, run, t->p, &t->p->evict_defer);
}

/* Something to gain: pages that may go. */
static bool gains(const struct pg_template *t)
{
	uint32_t stay = t->state == PG_STORED ? 0 : t->nown; /* own ones that are zeros count too: an estimate */

	return t->evict_at == t->pages && t->nresident > stay;
}

struct pg_template *pg_evict_least(struct pager *p, bool live)
{
	struct pg_template *least = NULL;

	for (struct pg_template *t = p->templates; t; t = t->next) {
		if (!evictable(t) || !gains(t) || (!live && t->nmachines))
			continue;
		if (!least || (!t->nmachines && least->nmachines) ||
		    (!t->nmachines == !least->nmachines && t->used_ns < least->used_ns))
			least = t;
	}
	return least;
}

void pg_evict_check(struct pager *p)
{
	struct pg_template *t;

	if (p->evict_defer || p->resident_pages * SNAP_PAGE_BYTES <= p->budget_bytes)
		return;
	t = pg_evict_least(p, false);
	if (t)
		pg_evict(t);
}
