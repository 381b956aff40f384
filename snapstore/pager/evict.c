/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Memory that goes back: pages that the store, or a parent, has too; and strays, which are in a template but by no bit.
 * In steps, so that no fault waits long behind a punch.
 *
 * A stray is an engine's doing: it has read a hole by a mapping without userfaultfd, and the kernel put a page of zeros
 * there, which all machines of the template would take for the right one. What cannot be prevented (README.md) is
 * undone when a machine goes, and before another one is attached: the memfd's blocks tell at once whether there are
 * strays, and the punch takes them out of mappings, too, so that who had not read them yet faults. A machine without
 * userfaultfd makes strays by nature, of the holes that are zeros, and makes them again. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "snapstore/pager/bits.h"
#include "snapstore/pager/request_priv.h"

#define STEP_PAGES 2048u /* 8 MiB: about 1 ms */
#define STEP_LOOKS 256u	 /* ranges of data that one step looks at */

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

/* -- strays ------------------------------------------------------------------------------------------------- */

/* Punch at most @max pages of [@first, @end), all of them data, that no bit tells of. Returns the page after the last
 * one looked at; *@ret_n: how many went. */
static uint32_t punch_strays(struct pg_template *t, uint32_t first, uint32_t end, uint32_t max, uint32_t *ret_n)
{
	*ret_n = 0;
	while (first < end && *ret_n < max) {
		uint32_t from = bits_find(t->resident, first, end, false), to;

		if (from == end)
			return end;
		to = bits_find(t->resident, from, end, true);
		if (to - from > max - *ret_n)
			to = from + (max - *ret_n);
		fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from * SNAP_PAGE_BYTES,
			  (off_t)(to - from) * SNAP_PAGE_BYTES);
		*ret_n += to - from;
		first = to;
	}
	return first;
}

/* @t may be gone afterwards. */
static void stray_step(struct pg_template *t)
{
	uint32_t left = STEP_PAGES, n;

	for (uint32_t looks = 0; left && looks < STEP_LOOKS && t->stray_at < t->pages; looks++) {
		off_t data = lseek(t->fd, (off_t)t->stray_at * SNAP_PAGE_BYTES, SEEK_DATA);
		off_t hole = data < 0 ? -1 : lseek(t->fd, data, SEEK_HOLE);

		if (hole < 0) { /* ENXIO: no more data */
			t->stray_at = t->pages;
			break;
		}
		t->stray_at = punch_strays(t, (uint32_t)(data / SNAP_PAGE_BYTES),
					   (uint32_t)((hole + SNAP_PAGE_BYTES - 1) / SNAP_PAGE_BYTES), left, &n);
		left -= n;
		t->strays += n;
	}
	if (t->stray_at == t->pages)
		pg_looked(t, 0, "");
}

/* While a capture is under way its thread writes pages whose bits are set afterwards: nobody maps those yet. */
static bool has_strays(const struct pg_template *t)
{
	struct stat st;

	return (t->state == PG_STORED || t->state == PG_CAPTURED) && fstat(t->fd, &st) == 0 &&
	       (uint64_t)st.st_blocks * 512 > (uint64_t)t->nresident * SNAP_PAGE_BYTES;
}

/* -- the steps ---------------------------------------------------------------------------------------------- */

static void kick(struct pager *p);

static void run(void *arg)
{
	struct pager *p = arg;

	p->evict_defer = 0;
	for (struct pg_template *t = p->templates; t; t = t->next) {
		if (t->stray_at != t->pages) {
			stray_step(t);
			kick(p);
			return;
		}
		if (t->evict_at == t->pages)
			continue;
		if (evictable(t))
			step(t);
		else
			t->evict_at = t->pages;
		if (t->evict_at != t->pages) {
			kick(p);
			return;
		}
	}
	pg_evict_check(p);
}

static void kick(struct pager *p)
{
	if (!p->evict_defer)
		loop_defer(p->loop, run, p, &p->evict_defer);
}

void pg_evict(struct pg_template *t)
{
	t->evict_at = 0;
	kick(t->p);
}

bool pg_evict_strays(struct pg_template *t)
{
	if (!has_strays(t))
		return false;
	t->stray_at = 0; /* from the beginning, also when it is at it */
	kick(t->p);
	return true;
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
