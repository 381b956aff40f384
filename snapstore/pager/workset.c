/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages a restore touches first: recorded once, by the first fork of a template; read ahead by the next one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pagemap.h"
#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

struct pg_workset {
	struct pg_workset *next; /* the newest first */
	char snapshot[PG_UUID_LEN + 1];
	uint32_t n;
	uint32_t pages[];
};

#define STEP_PAGES 32768u /* of page tables looked at in one go: 128 MiB, well below 1 ms */

static void touched(struct pg_template *t, uint32_t page)
{
	if (t->ntouched < PG_WORKSET_MAX)
		t->touched[t->ntouched++] = page;
}

void pg_workset_touch(struct pg_machine *m, uint32_t page)
{
	if (m->records && m->t->touch == PG_RECORDING)
		touched(m->t, page);
}

static int on_mapped(void *arg, uint32_t first, uint32_t n, struct err *e)
{
	const struct pg_machine *m = arg;

	(void)e;
	for (uint32_t i = m->record_at + first; i < m->record_at + first + n; i++)
		if (!bit_get(m->t->zero, i))
			touched(m->t, i);
	return 0;
}

/* What was resident faulted natively and unseen: the recorder's page tables tell of it, though not in which order. */
static void look_at_tables(void *arg)
{
	struct pg_machine *m = arg;
	struct pg_template *t = m->t;
	uint32_t n = t->pages - m->record_at < STEP_PAGES ? t->pages - m->record_at : STEP_PAGES;
	int r = pagemap_mapped(m->pagemap, m->base + (uint64_t)m->record_at * SNAP_PAGE_BYTES,
			       (uint64_t)n * SNAP_PAGE_BYTES, m->p->params.scan, on_mapped, m, NULL);

	m->record_timer = 0;
	m->record_at += n;
	if (r == 0 && m->record_at < t->pages &&
	    loop_timer(m->p->loop, now_ns(), look_at_tables, m, &m->record_timer) == 0)
		return;
	pg_workset_detached(m);
}

/* A machine that was here before goes on with memory that it knows: not what a restore does. */
void pg_workset_attached(struct pg_machine *m, bool again)
{
	struct pg_template *t = m->t;

	if (!t || again || t->touch != PG_UNTOUCHED || m->uffd < 0)
		return;
	t->touched = malloc(PG_WORKSET_MAX * sizeof(*t->touched));
	if (!t->touched ||
	    loop_timer(m->p->loop, now_ns() + m->p->params.workset_ns, look_at_tables, m, &m->record_timer) < 0)
		return;
	t->touch = PG_RECORDING;
	m->records = true;
}

/* It has ended early, or recorded enough. */
void pg_workset_detached(struct pg_machine *m)
{
	loop_del(m->p->loop, &m->record_timer);
	if (!m->records)
		return;
	m->records = false;
	m->t->touch = PG_RECORDED;
}

int pg_workset_list(struct pg_template *t, int *ret_fd, struct err *e)
{
	AUTO_FD fd = -1;
	AUTO_FREE uint64_t *seen = NULL;
	AUTO_FREE uint32_t *pages = NULL;
	uint32_t n = 0;
	int r;

	if (t->touch != PG_RECORDED)
		return err_set(e, -EAGAIN, "snapshot %s: its working set is not known yet", t->snapshot);
	seen = calloc(bits_words(t->pages), 8);
	pages = malloc(PG_WORKSET_MAX * sizeof(*pages));
	if (!seen || !pages)
		return err_set(e, -ENOMEM, "working set: no memory");
	for (uint32_t i = 0; i < t->ntouched; i++) {
		if (bit_get(seen, t->touched[i]))
			continue;
		bit_set(seen, t->touched[i]);
		pages[n++] = t->touched[i];
	}
	fd = memfd_create("crucible-workset", MFD_CLOEXEC);
	r = fd < 0 ? -errno : fd_write_all(fd, pages, n * sizeof(*pages));
	if (r < 0)
		return err_set(e, r, "working set: %s", err_name(r));
	*ret_fd = take_fd(&fd);
	return 0;
}

void pg_workset_forget(struct pager *p, const char *snapshot)
{
	for (struct pg_workset **at = &p->worksets; *at; at = &(*at)->next) {
		struct pg_workset *w = *at;

		if (strcmp(w->snapshot, snapshot) != 0)
			continue;
		*at = w->next;
		p->nworksets--;
		free(w);
		return;
	}
}

/* The list is a file of the store: untrusted, as far as its numbers go. Those outside of the template are skipped by
 * pg_ahead(). */
int pg_workset_set(struct pager *p, const char *snapshot, int fd, struct err *e)
{
	struct pg_workset *w;
	struct stat st;
	ssize_t got;

	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size % (off_t)sizeof(uint32_t) ||
	    st.st_size > (off_t)(PG_WORKSET_MAX * sizeof(uint32_t)))
		return err_set(e, -EINVAL, "working set of %s: not a list of pages", snapshot);
	w = malloc(sizeof(*w) + (size_t)st.st_size);
	if (!w)
		return err_set(e, -ENOMEM, "working set: no memory");
	got = pread(fd, w->pages, (size_t)st.st_size, 0);
	if (got != st.st_size) {
		free(w);
		return err_set(e, -EIO, "working set of %s: it cannot be read whole", snapshot);
	}
	snprintf(w->snapshot, sizeof(w->snapshot), "%s", snapshot);
	w->n = (uint32_t)((size_t)got / sizeof(uint32_t));
	pg_workset_forget(p, snapshot);
	if (p->nworksets == PG_WORKSETS_MAX) { /* the oldest goes */
		struct pg_workset *last = p->worksets;

		while (last->next)
			last = last->next;
		pg_workset_forget(p, last->snapshot);
	}
	w->next = p->worksets;
	p->worksets = w;
	p->nworksets++;
	return 0;
}

const uint32_t *pg_workset_get(struct pager *p, const char *snapshot, uint32_t *ret_n)
{
	for (struct pg_workset *w = p->worksets; w; w = w->next) {
		if (strcmp(w->snapshot, snapshot) != 0)
			continue;
		*ret_n = w->n;
		return w->pages;
	}
	return NULL;
}

void pg_workset_fini(struct pager *p)
{
	while (p->worksets)
		pg_workset_forget(p, p->worksets->snapshot);
}
