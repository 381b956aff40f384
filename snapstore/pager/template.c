/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: memfds, their bits, and who holds them. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

#define TEMPLATE_NAME  "crucible-template-" /* and the snapshot: what a memfd is called once, it is for life */
#define TEMPLATE_SEALS (F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

struct pg_template *pg_template_find(struct pager *p, const char *snapshot)
{
	for (struct pg_template *t = p->templates; t; t = t->next)
		if (!strcmp(t->snapshot, snapshot))
			return t;
	return NULL;
}

static void template_free(struct pg_template *t)
{
	if (!t)
		return;
	t->p->resident_pages -= t->nresident;
	if (t->fd >= 0)
		pg_close_later(t->p, take_fd(&t->fd));
	if (t->map)
		t->map = snap_map_close(t->map);
	free(t->resident);
	free(t->own);
	free(t->zero);
	free(t->single);
	free(t->touched);
	free(t);
}

/* Bits and names; no memfd yet, in no table yet. */
static int template_bare(struct pager *p, const char *snapshot, uint64_t bytes, struct pg_template **ret, struct err *e)
{
	struct pg_template *t;

	if (pg_template_find(p, snapshot))
		return err_set(e, -EEXIST, "template %s is here already", snapshot);
	if (p->ntemplates >= PG_TEMPLATES_MAX)
		return err_set(e, -ENOSPC, "template %s: there are %u already", snapshot, p->ntemplates);
	t = calloc(1, sizeof(*t));
	if (!t)
		return err_set(e, -ENOMEM, "template %s: no memory", snapshot);
	t->p = p;
	t->fd = -1;
	t->bytes = bytes;
	t->pages = t->evict_at = t->stray_at = (uint32_t)(bytes / SNAP_PAGE_BYTES);
	t->used_ns = now_ns();
	snprintf(t->snapshot, sizeof(t->snapshot), "%s", snapshot);
	t->resident = calloc(bits_words(t->pages), 8);
	t->own = calloc(bits_words(t->pages), 8);
	t->zero = calloc(bits_words(t->pages), 8);
	t->single = calloc(bits_words(t->pages / PG_WINDOW + 1), 8);
	if (!t->resident || !t->own || !t->zero || !t->single) {
		template_free(t);
		return err_set(e, -ENOMEM, "template %s: no memory", snapshot);
	}
	*ret = t;
	return 0;
}

static void template_link(struct pg_template *t, struct pg_template *parent, bool hold)
{
	t->parent = parent;
	t->holds_parent = parent && hold;
	if (t->holds_parent)
		parent->refs++;
	t->next = t->p->templates;
	t->p->templates = t;
	t->p->ntemplates++;
}

int pg_template_new(struct pager *p, const char *snapshot, uint64_t bytes, struct pg_template *parent, bool hold,
		    struct pg_template **ret, struct err *e)
{
	struct pg_template *t = NULL;
	char name[sizeof(TEMPLATE_NAME) + PG_UUID_LEN];
	int r = template_bare(p, snapshot, bytes, &t, e);

	if (!t)
		return r;
	snprintf(name, sizeof(name), TEMPLATE_NAME "%s", snapshot);
	t->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	/* The mode first: nobody has a descriptor yet, and afterwards nobody but us may open it again. */
	if (t->fd < 0 || fchmod(t->fd, 0400) < 0 || ftruncate(t->fd, (off_t)bytes) < 0 ||
	    fcntl(t->fd, F_ADD_SEALS, TEMPLATE_SEALS) < 0) {
		r = err_set(e, -errno, "template %s: memfd: %s", snapshot, err_name(-errno));
		template_free(t);
		return r;
	}
	template_link(t, parent, hold);
	*ret = t;
	return 0;
}

static int reopen(struct pager *p, int fd, int flags)
{
	char name[16];
	int r;

	snprintf(name, sizeof(name), "%d", fd);
	r = openat(p->params.procfd, name, flags | O_CLOEXEC);
	return r < 0 ? -errno : r;
}

int pg_template_reopen(struct pg_template *t, int *ret_fd, struct err *e)
{
	int r = reopen(t->p, t->fd, O_RDONLY);

	if (r < 0)
		return err_set(e, r, "template %s: open for reading: %s", t->snapshot, err_name(r));
	*ret_fd = r;
	return 0;
}

/* Pages of zeros are never written; one that is there is an engine's doing, by a mapping without userfaultfd
 * (README.md). Others must not get to see it. */
static int drop_zeros(struct pg_template *t, struct err *e)
{
	static const uint8_t zeros[SNAP_PAGE_BYTES];
	uint8_t *p = mmap(NULL, t->bytes, PROT_READ, MAP_SHARED, t->fd, 0);
	int r = 0;

	if (p == MAP_FAILED)
		return err_set(e, -errno, "template %s: map: %s", t->snapshot, err_name(-errno));
	for (uint32_t i = bits_find(t->resident, 0, t->pages, true); i < t->pages && r == 0;
	     i = bits_find(t->resident, i + 1, t->pages, true)) {
		off_t at = (off_t)i * SNAP_PAGE_BYTES;

		if (memcmp(p + at, zeros, sizeof(zeros)) != 0)
			continue;
		bit_clear(t->resident, i);
		if (fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, SNAP_PAGE_BYTES) < 0)
			r = err_set(e, -errno, "template %s: punch: %s", t->snapshot, err_name(-errno));
	}
	munmap(p, t->bytes);
	return r;
}

/* What a killed pager had written: pages are whole, as pwrite leaves no half of one that is locked in memory. */
static int find_data(struct pg_template *t, struct err *e)
{
	off_t at = 0;
	int r;

	for (;;) {
		off_t data = lseek(t->fd, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			break;
		hole = data < 0 ? -1 : lseek(t->fd, data, SEEK_HOLE);
		if (hole < 0)
			return err_set(e, -errno, "template %s: seek: %s", t->snapshot, err_name(-errno));
		bits_fill(t->resident, (uint32_t)(data / SNAP_PAGE_BYTES),
			  (uint32_t)((hole + SNAP_PAGE_BYTES - 1) / SNAP_PAGE_BYTES - data / SNAP_PAGE_BYTES));
		at = hole;
	}
	r = drop_zeros(t, e);
	t->nresident = bits_count(t->resident, t->pages);
	t->p->resident_pages += t->nresident;
	return r;
}

/* A box that was taken over could hand over another snapshot's, for all machines of this one to read. */
static bool is_template_of(struct pager *p, int fd, const char *snapshot)
{
	char name[16], to[PATH_MAX], want[sizeof(TEMPLATE_NAME) + PG_UUID_LEN + 32];
	ssize_t n;

	snprintf(name, sizeof(name), "%d", fd);
	snprintf(want, sizeof(want), "/memfd:" TEMPLATE_NAME "%s (deleted)", snapshot);
	n = readlinkat(p->params.procfd, name, to, sizeof(to));
	return n > 0 && (size_t)n == strlen(want) && !memcmp(to, want, (size_t)n);
}

int pg_template_adopt(struct pager *p, int fd, const char *snapshot, uint64_t bytes, struct pg_template *parent,
		      bool hold, struct pg_template **ret, struct err *e)
{
	struct pg_template *t = NULL;
	struct stat st;
	int r, seals = fcntl(fd, F_GET_SEALS);

	/* An engine may have slipped another file in: only a pager's uid makes such a one. */
	if (seals < 0 || (seals & TEMPLATE_SEALS) != TEMPLATE_SEALS || fstat(fd, &st) < 0 || st.st_uid != geteuid() ||
	    (uint64_t)st.st_size != bytes || (st.st_mode & 0777) != 0400 || !is_template_of(p, fd, snapshot))
		return err_set(e, -EPERM, "template %s: the descriptor is not of this template", snapshot);
	r = template_bare(p, snapshot, bytes, &t, e);
	if (!t)
		return r;
	/* Ours, but nobody may write into it by its mode, we neither: for this instant we may. */
	t->fd = -1;
	if (fchmod(fd, 0600) == 0) {
		t->fd = reopen(p, fd, O_RDWR);
		if (fchmod(fd, 0400) < 0)
			r = -errno;
	} else {
		r = -errno;
	}
	if (r == 0 && t->fd < 0)
		r = t->fd;
	if (r < 0)
		err_set(e, r, "template %s: open for writing: %s", snapshot, err_name(r));
	else
		r = find_data(t, e);
	if (r < 0) {
		template_free(t);
		return r;
	}
	template_link(t, parent, hold);
	*ret = t;
	return 0;
}

int pg_bits_memfd(struct pg_template *t, int *ret_fd, struct err *e)
{
	AUTO_FD fd = memfd_create("crucible-bits", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : fd_write_all(fd, t->own, ((size_t)t->pages + 7) / 8);

	if (r < 0)
		return err_set(e, r, "template %s: bits: %s", t->snapshot, err_name(r));
	*ret_fd = take_fd(&fd);
	return 0;
}

int pg_page_put(struct pg_template *t, uint32_t page, uint32_t n, const void *pages)
{
	int r = fd_pwrite_all(t->fd, pages, (size_t)n * SNAP_PAGE_BYTES, (uint64_t)page * SNAP_PAGE_BYTES);

	if (r < 0)
		return r;
	for (uint32_t i = page; i < page + n; i++) {
		if (bit_get(t->resident, i))
			continue;
		bit_set(t->resident, i);
		t->nresident++;
		t->p->resident_pages++;
	}
	pg_evict_check(t->p);
	return 0;
}

void pg_template_unpin(struct pg_template *t)
{
	t->whole -= t->pinned;
	t->pinned = false;
}

void pg_template_empty(struct pg_template *t)
{
	t->p->resident_pages -= t->nresident;
	t->nresident = t->nown = 0;
	memset(t->resident, 0, bits_words(t->pages) * 8);
	memset(t->own, 0, bits_words(t->pages) * 8);
	memset(t->zero, 0, bits_words(t->pages) * 8);
	fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)t->bytes);
}

void pg_template_drop_parent(struct pg_template *t)
{
	struct pg_template *parent = t->parent;

	if (!t->holds_parent)
		return;
	t->holds_parent = false;
	if (t->state != PG_STORED)
		t->parent = NULL;
	pg_template_unref(parent);
}

void pg_template_gone(struct pg_template *t)
{
	struct pager *p = t->p;
	struct pg_template **at = &p->templates;

	if (t->refs || !t->forgotten)
		return;
	while (*at != t)
		at = &(*at)->next;
	*at = t->next;
	p->ntemplates--;
	for (struct pg_template *c = p->templates; c; c = c->next)
		if (c->parent == t)
			c->parent = NULL; /* stored ones: the others would hold it */
	pg_template_drop_parent(t);
	template_free(t);
}

void pg_template_unref(struct pg_template *t)
{
	if (!t)
		return;
	t->refs--;
	t->used_ns = now_ns();
	pg_template_gone(t);
}

void pg_template_stored(struct pg_template *t)
{
	if (t->state != PG_CAPTURED)
		return;
	t->state = PG_STORED;
	pg_template_drop_parent(t);
}

/* -- ranges of zeros ---------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	const struct pg_range *x = a, *y = b;

	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_offset(const void *a, const void *b)
{
	const struct pg_range *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

uint32_t pg_zero_ranges(const struct pg_template *t, struct pg_range out[PAGER_RANGES_MAX])
{
	/* Twice as many are kept, sorted, and halved when they are full: the smaller half can only be dropped. */
	struct pg_range best[2 * PAGER_RANGES_MAX];
	uint32_t n = 0, at = 0;

	for (;;) {
		uint32_t first = bits_find(t->zero, at, t->pages, true);

		if (first == t->pages)
			break;
		at = bits_find(t->zero, first, t->pages, false);
		if (at - first < PAGER_RANGE_MIN / SNAP_PAGE_BYTES)
			continue;
		if (n == ARRAY_LEN(best)) {
			qsort(best, n, sizeof(*best), by_size);
			n = PAGER_RANGES_MAX;
		}
		best[n++] = (struct pg_range){ (uint64_t)first * SNAP_PAGE_BYTES,
					       (uint64_t)(at - first) * SNAP_PAGE_BYTES };
	}
	qsort(best, n, sizeof(*best), by_size);
	if (n > PAGER_RANGES_MAX)
		n = PAGER_RANGES_MAX;
	qsort(best, n, sizeof(*best), by_offset);
	memcpy(out, best, n * sizeof(*best));
	return n;
}

/* -- closing ------------------------------------------------------------------------------------------------ */

struct closing {
	struct pool_job job;
	int fd;
};

static void close_run(struct pool_job *job)
{
	fd_close(&((struct closing *)job)->fd);
}

static void close_done(struct pool_job *job)
{
	free(job);
}

void pg_close_later(struct pager *p, int fd)
{
	struct closing *c = p->pool ? malloc(sizeof(*c)) : NULL;

	if (c) {
		*c = (struct closing){ .job = { .run = close_run, .done = close_done }, .fd = fd };
		if (pool_submit(p->pool, &c->job) == 0)
			return;
		free(c);
	}
	fd_close(&fd);
}
