/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/place.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/loop.h"
#include "cruciblefs/sandbox.h"

#define STAMPS_MAX \
	65536u /* then the times are forgotten (hidden names are not): a sandbox whose every command was looked at */

struct stamp {
	uint64_t ino; /* 0: free */
	uint64_t hash, mtime_ns;
	bool hidden;
};

struct cfs_place *place_new(struct sandbox *sbx)
{
	struct cfs_place *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->refs = 1;
	p->sbx = sbx ? sandbox_ref(sbx) : NULL;
	return p;
}

struct cfs_place *place_ref(struct cfs_place *p)
{
	p->refs++;
	return p;
}

struct cfs_place *place_unref(struct cfs_place *p)
{
	if (!p || --p->refs)
		return NULL;
	assert(!p->scratch && !p->nscratch); /* each holds a reference */
	sandbox_unref(p->sbx);
	free(p->stamps);
	free(p);
	return NULL;
}

/* The slot of @ino, or the free one where it belongs. The table is never full. */
static struct stamp *slot_of(struct stamp *stamps, size_t cap, uint64_t ino)
{
	size_t i = (size_t)ino & (cap - 1);

	while (stamps[i].ino && stamps[i].ino != ino)
		i = (i + 1) & (cap - 1);
	return &stamps[i];
}

/* Into a table of @cap slots; @all: else only what must not be forgotten. */
static int rebuild(struct cfs_place *p, size_t cap, bool all)
{
	struct stamp *stamps = calloc(cap, sizeof(*stamps));
	size_t n = 0;

	if (!stamps)
		return -ENOMEM;
	for (size_t i = 0; i < p->stamps_cap; i++) {
		const struct stamp *s = &p->stamps[i];

		if (!s->ino || !(all || s->hidden))
			continue;
		*slot_of(stamps, cap, s->ino) = *s;
		n++;
	}
	free(p->stamps);
	p->stamps = stamps;
	p->stamps_cap = cap;
	p->nstamps = n;
	return 0;
}

/* The stamp of @ino, made when absent. NULL: no memory. */
static struct stamp *stamp_get(struct cfs_place *p, uint64_t ino)
{
	struct stamp *s;
	int r = 0;

	if (!p->stamps_cap)
		r = rebuild(p, 64, true);
	else if (p->nstamps >= STAMPS_MAX)
		r = rebuild(p, p->stamps_cap, false);
	if (!r && p->nstamps >= p->stamps_cap / 4 * 3)
		r = rebuild(p, p->stamps_cap * 2, true);
	if (r < 0)
		return NULL;
	s = slot_of(p->stamps, p->stamps_cap, ino);
	if (!s->ino) {
		s->ino = ino;
		p->nstamps++;
	}
	return s;
}

uint64_t place_mtime(struct cfs_place *p, uint64_t ino, uint64_t hash, uint64_t changed_ns)
{
	struct stamp *s = stamp_get(p, ino);

	if (!s)
		return changed_ns;
	if (!s->mtime_ns)
		s->mtime_ns = changed_ns;
	else if (s->hash != hash)
		s->mtime_ns = changed_ns > s->mtime_ns ? changed_ns : wall_ns();
	s->hash = hash;
	return s->mtime_ns;
}

bool place_hidden(const struct cfs_place *p, uint64_t ino)
{
	return p->stamps_cap && slot_of(p->stamps, p->stamps_cap, ino)->hidden;
}

int place_hide(struct cfs_place *p, uint64_t ino, bool hidden)
{
	struct stamp *s = stamp_get(p, ino);

	if (!s)
		return -ENOMEM;
	if (s->hidden != hidden)
		p->serial++;
	s->hidden = hidden;
	return 0;
}

/* FNV-1a, eight bytes at a time and the rest one by one: it only tells a change. */
uint64_t place_hash(const void *data, size_t len)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325u ^ len;

	for (; len >= 8; len -= 8, p += 8) {
		uint64_t w;

		__builtin_memcpy(&w, p, 8);
		h = (h ^ w) * 0x100000001b3u;
		h ^= h >> 29;
	}
	for (; len; len--, p++)
		h = (h ^ *p) * 0x100000001b3u;
	return h;
}
