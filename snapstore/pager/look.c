/* SPDX-License-Identifier: Apache-2.0 */
/* Templates of stored snapshots: their maps, looked through once for zeros. By a thread, with a handle of its own, as
 * nodes may have to come from the disk; afterwards they are in the page cache, for the loop that reads them again. */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

struct pg_look {
	struct pool_job job;
	struct pg_look *next;
	struct pg_template *t;
	struct snap **snap; /* the pager's, ours while we run */
	int rootfd;
	const char *store;
	char snapshot[PG_UUID_LEN + 1];
	uint32_t pages;
	uint64_t *zero;
	struct snap_digest root;
	int code;
	struct err e;
	pg_done_fn *fn;
	void *arg;
};

/* The root of the memory of @snapshot, of @pages. */
static int find_root(struct snap *s, const char *snapshot, uint32_t pages, struct snap_digest *ret, struct err *e)
{
	struct snap_manifest m;
	int r = snap_manifest_read(s, snapshot, &m, e);

	if (r < 0)
		return r;
	if (m.memory_pages != pages)
		r = err_set(e, m.memory_pages ? -EINVAL : -ENOENT, "snapshot %s: it has %llu pages of memory, not %u",
			    snapshot, (unsigned long long)m.memory_pages, pages);
	else
		*ret = m.memory;
	snap_manifest_fini(&m);
	return r;
}

static int find_zeros(struct pg_look *k)
{
	struct snap_map *map;
	int r = snap_map_open(*k->snap, &k->root, k->pages, &map, &k->e);

	if (r < 0)
		return r;
	for (uint32_t at = 0; at < k->pages && r == 0;) {
		uint64_t run = 0;

		r = snap_map_run(map, at, &snap_zero, &run, &k->e);
		if (run > k->pages - at)
			run = k->pages - at;
		bits_fill(k->zero, at, (uint32_t)run);
		at += run ? (uint32_t)run : 1;
	}
	snap_map_close(map);
	return r;
}

static void look_run(struct pool_job *job)
{
	struct pg_look *k = (struct pg_look *)job;
	int r = *k->snap ? 0 : snap_open(k->rootfd, k->store, SNAP_READ, k->snap, &k->e);

	if (r == 0)
		r = find_root(*k->snap, k->snapshot, k->pages, &k->root, &k->e);
	if (r == 0)
		r = find_zeros(k);
	k->code = r;
}

static void next(struct pager *p);

static void look_done(struct pool_job *job)
{
	struct pg_look *k = (struct pg_look *)job;
	struct pg_template *t = k->t;
	struct pager *p = t->p;

	p->looks = k->next;
	if (k->code == 0) {
		memcpy(t->zero, k->zero, bits_words(t->pages) * 8);
		/* An adopted one may hold pages of zeros: they are served as what they are. */
		for (size_t w = 0; w < bits_words(t->pages); w++)
			t->zero[w] &= ~t->resident[w];
		t->root = k->root;
		t->state = PG_STORED;
	}
	k->fn(k->arg, k->code, k->e.msg);
	pg_template_unref(t);
	free(k->zero);
	free(k);
	next(p);
}

static void next(struct pager *p)
{
	struct pg_look *k = p->looks;

	if (!k || (p->pool && pool_submit(p->pool, &k->job) == 0))
		return;
	k->code = err_set(&k->e, p->pool ? -EBUSY : -ECANCELED, "too much is under way, or all is ending");
	look_done(&k->job);
}

int pg_look(struct pg_template *t, pg_done_fn *fn, void *arg, struct err *e)
{
	struct pager *p = t->p;
	struct pg_look *k = calloc(1, sizeof(*k)), **at = &p->looks;

	if (k)
		k->zero = calloc(bits_words(t->pages), 8);
	if (!k || !k->zero) {
		free(k);
		return err_set(e, -ENOMEM, "template %s: no memory", t->snapshot);
	}
	k->job = (struct pool_job){ .run = look_run, .done = look_done };
	k->t = t;
	k->snap = &p->look;
	k->rootfd = p->params.rootfd;
	k->store = p->params.store;
	memcpy(k->snapshot, t->snapshot, sizeof(k->snapshot));
	k->pages = t->pages;
	k->fn = fn;
	k->arg = arg;
	t->refs++;
	while (*at)
		at = &(*at)->next;
	*at = k;
	if (p->looks == k)
		next(p);
	return 0;
}

void pg_look_fini(struct pager *p)
{
	/* Jobs were finished by pool_free(); what had not been submitted was by their `done`. */
	p->look = p->look ? snap_close(p->look) : NULL;
}

int pg_map(struct pg_template *s, struct err *e)
{
	int r = pg_store(s->p, e);

	if (r == 0 && !s->map)
		r = snap_map_open(s->p->snap, &s->root, s->pages, &s->map, e);
	return r;
}

int pg_look_stored(struct pg_template *t, struct err *e)
{
	int r = pg_store(t->p, e);

	if (r == 0)
		r = find_root(t->p->snap, t->snapshot, t->pages, &t->root, e);
	if (r == 0)
		pg_template_stored(t);
	return r;
}
