/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/idtable.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct idtable_slot {
	void *p;       /* NULL: free */
	uint32_t gen;  /* never 0 */
	uint32_t next; /* free: index + 1 of the next free slot, 0 at the end */
};

static struct idtable_slot *slot_of(const struct idtable *t, uint64_t id)
{
	uint32_t index = (uint32_t)id;
	struct idtable_slot *s;

	if (index >= t->nslots)
		return NULL;
	s = &t->slots[index];
	return s->p && s->gen == id >> 32 ? s : NULL;
}

static int grow(struct idtable *t)
{
	uint32_t n = t->nslots ? t->nslots * 2 : 64;
	struct idtable_slot *slots = realloc(t->slots, n * sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (uint32_t i = n; i-- > t->nslots;) {
		slots[i] = (struct idtable_slot){ .gen = 1, .next = t->free_head };
		t->free_head = i + 1;
	}
	t->slots = slots;
	t->nslots = n;
	return 0;
}

int idtable_add(struct idtable *t, void *p, uint32_t max, uint64_t *ret_id)
{
	struct idtable_slot *s;
	uint32_t index;
	int r;

	assert(p);
	if (t->count >= max)
		return -ENFILE;
	if (!t->free_head) {
		r = grow(t);
		if (r < 0)
			return r;
	}
	index = t->free_head - 1;
	s = &t->slots[index];
	t->free_head = s->next;
	s->p = p;
	t->count++;
	*ret_id = (uint64_t)s->gen << 32 | index; /* gen >= 1: at least 2^32 */
	return 0;
}

void *idtable_find(const struct idtable *t, uint64_t id)
{
	struct idtable_slot *s = slot_of(t, id);

	return s ? s->p : NULL;
}

void idtable_del(struct idtable *t, uint64_t id)
{
	struct idtable_slot *s = slot_of(t, id);

	if (!s)
		return;
	s->p = NULL;
	if (++s->gen == 0)
		s->gen = 1;
	s->next = t->free_head;
	t->free_head = (uint32_t)id + 1;
	t->count--;
}

void *idtable_each(const struct idtable *t, uint32_t *at)
{
	while (*at < t->nslots) {
		struct idtable_slot *s = &t->slots[(*at)++];

		if (s->p)
			return s->p;
	}
	return NULL;
}

void idtable_fini(struct idtable *t)
{
	free(t->slots);
	*t = (struct idtable){ 0 };
}
