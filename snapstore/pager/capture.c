/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A machine is paused; its own pages (scan.c) are read from its memory by a thread into a locked buffer and pwritten
 * into the new template, in runs. Pages of zeros are not written where the parent shows zeros too (there they are no
 * news), and elsewhere they become holes that are known to be zeros. The thread has bits of its own; the loop takes
 * them over when it is done, so that nobody sees half a capture. On any failure the template is punched empty, and the
 * machine goes on as before.
 *
 * What the job reads of others: the parent's zero bits, which do not change (core.h, 3), and descriptors that stay open
 * while
 * @capturing. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

#define BOUNCE_BYTES (256u * 1024) /* stays in the second level cache */

struct capture {
	struct pool_job job;
	struct pg_machine *m;
	struct pg_template *t;
	int fd, mem, pagemap; /* borrowed */
	uint64_t base, bytes;
	bool scan;
	const uint64_t *parent_zero; /* NULL: all zeros */
	uint64_t *own, *written;
	uint8_t *bounce;
	struct pg_capture_result result;
	int code;
	struct err e;
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

static int read_mem(struct capture *c, uint32_t first, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(c->mem, c->bounce + done, len - done,
				  (off_t)(c->base + (uint64_t)first * SNAP_PAGE_BYTES + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_set(&c->e, n < 0 ? -errno : -ESRCH, "memory of the machine at page %u: %s", first,
				       n < 0 ? err_name(-errno) : "it is gone");
		done += (size_t)n;
	}
	return 0;
}

/* @n pages in the buffer, of @first: runs that are not zeros are written. */
static int write_pages(struct capture *c, uint32_t first, uint32_t n)
{
	uint32_t at = 0;

	while (at < n) {
		uint32_t run = 0;
		int r;

		while (at + run < n && !is_zero(c->bounce + (size_t)(at + run) * SNAP_PAGE_BYTES))
			run++;
		if (!run) {
			if (c->parent_zero && !bit_get(c->parent_zero, first + at)) {
				bit_set(c->own, first + at);
				c->result.pages++;
			}
			at++;
			continue;
		}
		r = fd_pwrite_all(c->fd, c->bounce + (size_t)at * SNAP_PAGE_BYTES, (size_t)run * SNAP_PAGE_BYTES,
				  (uint64_t)(first + at) * SNAP_PAGE_BYTES);
		if (r < 0)
			return err_set(&c->e, r, "template: write: %s", err_name(r));
		bits_fill(c->own, first + at, run);
		bits_fill(c->written, first + at, run);
		c->result.pages += run;
		at += run;
	}
	return 0;
}

static int on_run(void *arg, uint32_t first, uint32_t n, struct err *e)
{
	struct capture *c = arg;
	int r = 0;

	(void)e; /* the same as the job's */
	while (n && r == 0) {
		uint32_t k = n < BOUNCE_BYTES / SNAP_PAGE_BYTES ? n : BOUNCE_BYTES / SNAP_PAGE_BYTES;

		r = read_mem(c, first, (size_t)k * SNAP_PAGE_BYTES);
		if (r == 0)
			r = write_pages(c, first, k);
		first += k;
		n -= k;
	}
	return r;
}

static void capture_run(struct pool_job *job)
{
	struct capture *c = (struct capture *)job;
	uint64_t start = now_ns();

	c->code = pg_scan_own(c->pagemap, c->base, c->bytes, c->scan, on_run, c, &c->e);
	c->result.ns = now_ns() - start;
}

static void capture_free(struct capture *c)
{
	if (c->bounce)
		munmap(c->bounce, BOUNCE_BYTES);
	free(c->own);
	free(c->written);
	free(c);
}

/* The bits of the job become the template's; the caller says when it is PG_CAPTURED. What the parent shows as zeros and
 * nobody wrote stays zeros. */
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

static void capture_done(struct pool_job *job)
{
	struct capture *c = (struct capture *)job;
	struct pg_template *t = c->t;
	struct pager *p = t->p;

	p->ncaptures--;
	c->m->capturing = false;
	if (c->m->detached) {
		pg_machine_free(c->m);
		if (c->code == 0)
			c->code = err_set(&c->e, -ESRCH, "the machine was let go meanwhile");
	}
	if (c->code == 0) {
		take_over(c);
	} else {
		pg_template_empty(t);
		t->state = PG_BEGUN;
	}
	c->fn(c->arg, &c->result, c->code, c->e.msg);
	pg_template_unref(t);
	capture_free(c);
	pg_evict_check(p);
}

int pg_capture(struct pg_machine *m, struct pg_template *t, pg_capture_fn *fn, void *arg, struct err *e)
{
	struct pager *p = t->p;
	struct capture *c;
	int r;

	if (p->ncaptures >= PG_CAPTURE_MAX || m->capturing)
		return err_set(e, -EBUSY, "machine %s: captures are under way", m->id);
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, -ENOMEM, "capture: no memory");
	c->job = (struct pool_job){ .run = capture_run, .done = capture_done };
	c->m = m;
	c->t = t;
	c->fd = t->fd;
	c->mem = m->mem;
	c->pagemap = m->pagemap;
	c->base = m->base;
	c->bytes = m->bytes;
	c->scan = p->params.scan;
	c->parent_zero = t->parent ? t->parent->zero : NULL;
	c->fn = fn;
	c->arg = arg;
	c->own = calloc(bits_words(t->pages), 8);
	c->written = calloc(bits_words(t->pages), 8);
	c->bounce = mmap(NULL, BOUNCE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (c->bounce == MAP_FAILED)
		c->bounce = NULL;
	if (!c->own || !c->written || !c->bounce) {
		capture_free(c);
		return err_set(e, -ENOMEM, "capture: no memory");
	}
	if (mlock(c->bounce, BOUNCE_BYTES) < 0)
		pg_degraded(p, "buffers are not locked in memory");
	r = pool_submit(p->pool, &c->job);
	if (r < 0) {
		capture_free(c);
		return err_set(e, r, "capture: %s", err_name(r));
	}
	t->refs++;
	t->state = PG_FILLING;
	m->capturing = true;
	p->ncaptures++;
	return 0;
}
