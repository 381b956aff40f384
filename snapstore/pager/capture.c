/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A machine is paused; its own pages (base/pagemap.h) are read from its memory by threads into locked buffers and
 * pwritten into the new template, in runs. Pages of zeros are not written where the parent shows zeros too (there they
 * are no news), and elsewhere they become holes that are known to be zeros. The threads have bits of their own; the
 * loop takes them over when it is done, so that nobody sees half a capture. On any failure the template is punched
 * empty, and the machine goes on as before.
 *
 * The memory is cut into chunks; each of the parts takes the next one until none is left, so that a core that is free
 * helps (the machine's own is, it is paused). A part whose thread has not begun when another has found nothing left is
 * called off, so that a core that is not free holds nobody up. A chunk's bits are words of their own.
 *
 * What the parts read of others: the parent's zero bits, which do not change (core.h, 3), and descriptors that stay
 * open while @capturing. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pagemap.h"
#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

#define BOUNCE_BYTES (256u * 1024) /* stays in the second level cache */
#define CHUNK_PAGES  1024u	   /* a multiple of 64 */
#define PARTS	     2u

enum part_state { PART_WAITS, PART_RUNS, PART_OFF };

struct part {
	struct pool_job job;
	struct capture *c;
	atomic_int state; /* enum part_state */
	uint8_t *bounce;
	uint32_t chunk; /* first page of the one under way */
	uint64_t pages, end_ns;
	int code;
	struct err e;
};

struct capture {
	struct pg_machine *m;
	struct pg_template *t;
	int fd, mem, pagemap; /* borrowed */
	uint64_t base;
	uint32_t npages;
	bool scan;
	const uint64_t *parent_zero; /* NULL: all zeros */
	uint64_t *own, *written;
	atomic_uint next;   /* page where the next chunk begins */
	atomic_bool failed; /* one part did: the others need not go on */
	uint64_t start_ns;
	struct part parts[PARTS];
	unsigned left;	 /* parts whose jobs are not done: they hold this struct */
	unsigned active; /* of them, those that are not called off */
	bool over;	 /* told */
	pg_capture_fn *fn;
	void *arg;
};

static bool is_zero(const uint8_t *page)
{
	const uint64_t *w = (const uint64_t *)(const void *)page;

	for (size_t i = 0; i < SNAP_PAGE_BYTES / 8; i += 8)
		if (w[i] | w[i + 1] | w[i + 2] | w[i + 3] | w[i + 4] | w[i + 5] | w[i + 6] | w[i + 7])
			return false;
	return true;
}

static int read_mem(struct part *p, uint32_t first, size_t len)
{
	off_t at = (off_t)(p->c->base + (uint64_t)first * SNAP_PAGE_BYTES);
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(p->c->mem, p->bounce + done, len - done, at + (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(&p->e, n < 0 ? -errno : -ESRCH, "memory of the machine at page %u: %s", first,
				       n < 0 ? err_name(-errno) : "it is gone");
		done += (size_t)n;
	}
	return 0;
}

/* @n pages in the buffer, of @first: runs that are not zeros are written. */
static int write_pages(struct part *p, uint32_t first, uint32_t n)
{
	struct capture *c = p->c;
	uint32_t at = 0;

	while (at < n) {
		uint32_t run = 0;
		int r;

		while (at + run < n && !is_zero(p->bounce + (size_t)(at + run) * SNAP_PAGE_BYTES))
			run++;
		if (!run) {
			if (c->parent_zero && !bit_get(c->parent_zero, first + at)) {
				bit_set(c->own, first + at);
				p->pages++;
			}
			at++;
			continue;
		}
		r = fd_pwrite_all(c->fd, p->bounce + (size_t)at * SNAP_PAGE_BYTES, (size_t)run * SNAP_PAGE_BYTES,
				  (uint64_t)(first + at) * SNAP_PAGE_BYTES);
		if (r < 0)
			return err_set(&p->e, r, "template: write: %s", err_name(r));
		bits_fill(c->own, first + at, run);
		bits_fill(c->written, first + at, run);
		p->pages += run;
		at += run;
	}
	return 0;
}

static int on_run(void *arg, uint32_t first, uint32_t n, struct err *e)
{
	struct part *p = arg;
	int r = 0;

	(void)e; /* the same as the part's */
	first += p->chunk;
	while (n && r == 0) {
		uint32_t k = n < BOUNCE_BYTES / SNAP_PAGE_BYTES ? n : BOUNCE_BYTES / SNAP_PAGE_BYTES;

		r = read_mem(p, first, (size_t)k * SNAP_PAGE_BYTES);
		if (r == 0)
			r = write_pages(p, first, k);
		first += k;
		n -= k;
	}
	return r;
}

static void part_run(struct pool_job *job)
{
	struct part *p = (struct part *)job;
	struct capture *c = p->c;
	int waits = PART_WAITS;

	if (!atomic_compare_exchange_strong(&p->state, &waits, PART_RUNS))
		return;
	while (p->code == 0 && !atomic_load(&c->failed)) {
		uint32_t n;

		p->chunk = atomic_fetch_add(&c->next, CHUNK_PAGES);
		if (p->chunk >= c->npages)
			break;
		n = c->npages - p->chunk < CHUNK_PAGES ? c->npages - p->chunk : CHUNK_PAGES;
		p->code = pagemap_own(c->pagemap, c->base + (uint64_t)p->chunk * SNAP_PAGE_BYTES,
				      (uint64_t)n * SNAP_PAGE_BYTES, c->scan, on_run, p, &p->e);
	}
	if (p->code < 0)
		atomic_store(&c->failed, true);
	p->end_ns = now_ns();
}

static void capture_free(struct capture *c)
{
	for (unsigned i = 0; i < PARTS; i++)
		if (c->parts[i].bounce)
			munmap(c->parts[i].bounce, BOUNCE_BYTES);
	free(c->own);
	free(c->written);
	free(c);
}

/* The bits of the parts become the template's; the caller says when it is PG_CAPTURED. What the parent shows as zeros
 * and nobody wrote stays zeros. */
static void take_over(struct capture *c)
{
	struct pg_template *t = c->t;

	for (size_t w = 0; w < bits_words(t->pages); w++) {
		t->own[w] = c->own[w];
		t->resident[w] = c->written[w];
		t->zero[w] = ((c->parent_zero ? c->parent_zero[w] : ~UINT64_C(0)) | c->own[w]) & ~c->written[w];
	}
	t->nown = bits_count(t->own, t->pages);
	t->nresident = bits_count(t->resident, t->pages);
	t->p->resident_pages += t->nresident;
}

/* All parts are done. */
static void finish(struct capture *c, int code, struct err *e)
{
	struct pg_capture_result res = { 0 };
	struct pg_template *t = c->t;
	struct pager *p = t->p;

	p->ncaptures--;
	c->m->capturing = false;
	if (c->m->detached) {
		pg_machine_free(c->m);
		if (code == 0)
			code = err_set(e, -ESRCH, "the machine was let go meanwhile");
	}
	if (code == 0) {
		take_over(c);
	} else {
		pg_template_empty(t);
		t->state = PG_BEGUN;
	}
	for (unsigned i = 0; i < PARTS; i++) {
		res.pages += c->parts[i].pages;
		if (c->parts[i].end_ns > c->start_ns + res.ns)
			res.ns = c->parts[i].end_ns - c->start_ns;
	}
	c->over = true;
	c->fn(c->arg, &res, code, e->msg);
	pg_template_unref(t);
	pg_evict_check(p);
}

/* One part is done, so no chunk is left (or it failed). */
static void call_off(struct capture *c)
{
	for (unsigned i = 0; i < PARTS; i++) {
		int waits = PART_WAITS;

		if (atomic_compare_exchange_strong(&c->parts[i].state, &waits, PART_OFF))
			c->active--;
	}
}

static void part_done(struct pool_job *job)
{
	struct part *p = (struct part *)job;
	struct capture *c = p->c;
	struct err e = { 0 };

	c->left--;
	if (atomic_load(&p->state) == PART_RUNS) {
		c->active--;
		call_off(c);
	}
	if (!c->over && !c->active) {
		for (unsigned i = 0; i < PARTS && !e.code; i++)
			if (c->parts[i].code < 0)
				err_set(&e, c->parts[i].code, "%s", c->parts[i].e.msg);
		finish(c, e.code, &e);
	}
	if (!c->left)
		capture_free(c);
}

/* A locked buffer: a pwrite that faults on its source would show half a page. */
static int bounce_new(struct pager *p, uint8_t **ret)
{
	uint8_t *b =
		mmap(NULL, BOUNCE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (b == MAP_FAILED)
		return -ENOMEM;
	if (mlock(b, BOUNCE_BYTES) < 0)
		pg_degraded(p, "buffers are not locked in memory");
	*ret = b;
	return 0;
}

static struct capture *capture_new(struct pg_machine *m, struct pg_template *t, pg_capture_fn *fn, void *arg)
{
	struct capture *c = calloc(1, sizeof(*c));
	int r = 0;

	if (!c)
		return NULL;
	c->m = m;
	c->t = t;
	c->fd = t->fd;
	c->mem = m->mem;
	c->pagemap = m->pagemap;
	c->base = m->base;
	c->npages = t->pages;
	c->scan = t->p->params.scan;
	c->parent_zero = t->parent ? t->parent->zero : NULL;
	c->fn = fn;
	c->arg = arg;
	c->own = calloc(bits_words(t->pages), 8);
	c->written = calloc(bits_words(t->pages), 8);
	for (unsigned i = 0; i < PARTS && r == 0; i++) {
		c->parts[i].job = (struct pool_job){ .run = part_run, .done = part_done };
		c->parts[i].c = c;
		r = bounce_new(t->p, &c->parts[i].bounce);
	}
	if (c->own && c->written && r == 0)
		return c;
	capture_free(c);
	return NULL;
}

int pg_capture(struct pg_machine *m, struct pg_template *t, pg_capture_fn *fn, void *arg, struct err *e)
{
	struct pager *p = t->p;
	struct capture *c;

	if (p->ncaptures >= PG_CAPTURE_MAX || m->capturing)
		return err_set(e, -EBUSY, "machine %s: captures are under way", m->id);
	c = capture_new(m, t, fn, arg);
	if (!c)
		return err_set(e, -ENOMEM, "capture: no memory");
	c->start_ns = now_ns();
	while (c->left < PARTS && pool_submit(p->pool, &c->parts[c->left].job) == 0)
		c->left++;
	c->active = c->left;
	for (unsigned i = c->left; i < PARTS; i++)
		atomic_store(&c->parts[i].state, PART_OFF);
	if (!c->left) {
		capture_free(c);
		return err_set(e, -EBUSY, "capture: too much is under way");
	}
	t->refs++;
	t->state = PG_FILLING;
	m->capturing = true;
	p->ncaptures++;
	return 0;
}
