/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_snap.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define MAPS 8

const struct snap_digest snap_zero;
const struct snap_digest snap_absent = { .bytes = { [0 ... 31] = 0xff } };

struct snap_map {
	struct snap *s;
	uint64_t entries;
	uint8_t **pages; /* NULL: absent; `zero`: zeros */
};

struct snap {
	struct snap_map maps[MAPS];
	unsigned n, reads, open;
	uint64_t damaged;
};

struct snap_reader {
	struct snap *s;
	snap_read_fn *fn;
	void *arg;
	int code;
};

static uint8_t zero[SNAP_PAGE_BYTES];

bool snap_digest_equal(const struct snap_digest *a, const struct snap_digest *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

struct snap *fake_snap_new(void)
{
	struct snap *s = calloc(1, sizeof(*s));

	assert(s);
	s->damaged = UINT64_MAX;
	return s;
}

struct snap *fake_snap_free(struct snap *s)
{
	for (unsigned m = 0; s && m < s->n; m++) {
		for (uint64_t i = 0; i < s->maps[m].entries; i++)
			if (s->maps[m].pages[i] != zero)
				free(s->maps[m].pages[i]);
		free(s->maps[m].pages);
	}
	free(s);
	return NULL;
}

struct snap_digest fake_snap_map(struct snap *s, uint64_t entries)
{
	struct snap_digest root = { .bytes = { 0x5a } };

	assert(s->n < MAPS);
	root.bytes[1] = (uint8_t)s->n;
	s->maps[s->n] = (struct snap_map){ .s = s, .entries = entries, .pages = calloc(entries, sizeof(uint8_t *)) };
	assert(s->maps[s->n].pages);
	s->n++;
	return root;
}

void fake_snap_put(struct snap *s, const struct snap_digest *root, uint64_t index, const void *page)
{
	struct snap_map *m = &s->maps[root->bytes[1]];
	uint8_t *copy = page ? malloc(SNAP_PAGE_BYTES) : zero;

	assert(index < m->entries && copy && !m->pages[index]);
	if (page)
		memcpy(copy, page, SNAP_PAGE_BYTES);
	m->pages[index] = copy;
}

void fake_snap_damage(struct snap *s, uint64_t index)
{
	s->damaged = index;
}

unsigned fake_snap_reads(const struct snap *s)
{
	return s->reads;
}

unsigned fake_snap_maps_open(const struct snap *s)
{
	return s->open;
}

int snap_map_open(struct snap *s, const struct snap_digest *root, uint64_t entries, struct snap_map **ret,
		  struct err *e)
{
	if (root->bytes[0] != 0x5a || root->bytes[1] >= s->n || s->maps[root->bytes[1]].entries != entries)
		return err_set(e, -EBADMSG, "map: no such node");
	s->open++;
	*ret = &s->maps[root->bytes[1]];
	return 0;
}

struct snap_map *snap_map_close(struct snap_map *m)
{
	if (m)
		m->s->open--;
	return NULL;
}

int snap_reader_new(struct snap *s, unsigned depth, bool use_uring, struct snap_reader **ret, bool *ret_uring,
		    struct err *e)
{
	struct snap_reader *r = calloc(1, sizeof(*r));

	(void)e;
	assert(r && depth > 0 && !use_uring);
	r->s = s;
	*ret = r;
	*ret_uring = false;
	return 0;
}

struct snap_reader *snap_reader_free(struct snap_reader *r)
{
	free(r);
	return NULL;
}

int snap_read(struct snap_reader *r, struct snap_map *m, uint64_t index, unsigned n, void *pages, uint32_t *ret_absent,
	      snap_read_fn *fn, void *arg, struct err *e)
{
	if (r->fn)
		return err_set(e, -EBUSY, "reads are under way");
	assert(n > 0 && n <= SNAP_WINDOW_PAGES && index + n <= m->entries);
	*ret_absent = 0;
	r->code = 0;
	r->s->reads++;
	for (unsigned i = 0; i < n; i++) {
		const uint8_t *page = m->pages[index + i];

		if (page)
			memcpy((uint8_t *)pages + (size_t)i * SNAP_PAGE_BYTES, page, SNAP_PAGE_BYTES);
		else
			*ret_absent |= 1u << i;
		if (index + i == r->s->damaged)
			r->code = -EBADMSG;
	}
	r->fn = fn;
	r->arg = arg;
	return 0;
}

void snap_reader_poll(struct snap_reader *r)
{
	snap_read_fn *fn = r->fn;
	struct err e = { 0 };

	r->fn = NULL;
	if (r->code < 0)
		err_set(&e, r->code, "frame: its digest differs");
	if (fn)
		fn(r->arg, r->code, &e);
}
