/* SPDX-License-Identifier: Apache-2.0 */
/* The store against a model that a child could check: arrays of numbers, one a page. Batches over random parents,
 * removal, gc, verify and reopening in any order; a reader that was there from the start sees all of it. Each seed is
 * one life. */
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "snap_rig.h"

#define SEEDS	  200u
#define STEPS	  14u
#define SNAPSHOTS 6u

struct model {
	bool there;
	unsigned uuid;
	uint64_t n;
	struct snap_digest root;
	uint64_t pages[1300]; /* seeds */
};

struct life {
	uint64_t random;
	struct snap_rig rig;
	struct snap *reader;
	struct model snaps[SNAPSHOTS];
	unsigned next_uuid;
};

static unsigned below(struct life *l, unsigned n)
{
	return (unsigned)(rig_random(&l->random) % n);
}

static void store(struct life *l)
{
	static const uint64_t sizes[] = { 1, 15, 100, 512, 513, 1300 };
	static uint64_t put[1300];
	struct model *to = &l->snaps[below(l, SNAPSHOTS)], *base = &l->snaps[below(l, SNAPSHOTS)], was = *base;
	unsigned many = 1 + below(l, 60);

	if (to->there) {
		char uuid[SNAP_UUID_LEN + 1];

		rig_uuid(to->uuid, uuid);
		OK(snap_manifest_remove(l->rig.s, uuid, &rig_err));
	}
	to->there = true;
	to->uuid = ++l->next_uuid;
	to->n = was.there ? was.n : sizes[below(l, ARRAY_LEN(sizes))];
	for (uint64_t i = 0; i < to->n; i++) {
		to->pages[i] = was.there ? was.pages[i] : 0;
		put[i] = UINT64_MAX;
	}
	for (unsigned k = 0; k < many; k++) {
		uint64_t at = below(l, (unsigned)to->n), run = 1 + below(l, 20);

		for (uint64_t i = at; i < to->n && i < at + run; i++)
			to->pages[i] = put[i] = below(l, 4) ? 1 + below(l, 300) : 0;
	}
	to->root = rig_store(&l->rig, to->uuid, was.there ? &was.root : NULL, put, to->n, NULL);
}

static void check(struct life *l, struct snap *s)
{
	uint8_t want[SNAP_PAGE_BYTES], got[SNAP_PAGE_BYTES];
	struct snap_map *m = NULL;
	struct snap_digest d;

	for (unsigned k = 0; k < SNAPSHOTS; k++) {
		const struct model *t = &l->snaps[k];

		if (!t->there)
			continue;
		OK(snap_map_open(s, &t->root, t->n, &m, &rig_err));
		for (uint64_t i = 0; i < t->n; i++) {
			rig_page(t->pages[i], want);
			OK(snap_map_get(m, i, &d, &rig_err));
			OK(snap_page_read(s, &d, got, &rig_err));
			assert_memory_equal(want, got, sizeof(want));
		}
		m = snap_map_close(m);
	}
}

static void verify(struct life *l)
{
	struct snap_report rep;

	OK(snap_verify(l->rig.s, NULL, NULL, NULL, &rep, &rig_err));
	if (rep.damaged)
		fail_msg("%lu damaged: %s", (unsigned long)rep.damaged, rep.first);
}

static void step(struct life *l)
{
	struct snap_gc gc;
	unsigned k;

	switch (below(l, 8)) {
	case 0:
		OK(snap_gc(l->rig.s, NULL, NULL, &gc, &rig_err));
		assert_true(gc.packs_after <= gc.packs_before);
		break;
	case 1:
		snap_rig_reopen(&l->rig);
		break;
	case 2:
		k = below(l, SNAPSHOTS);
		if (l->snaps[k].there) {
			char uuid[SNAP_UUID_LEN + 1];

			rig_uuid(l->snaps[k].uuid, uuid);
			OK(snap_manifest_remove(l->rig.s, uuid, &rig_err));
			l->snaps[k].there = false;
		}
		break;
	case 3:
		check(l, l->reader);
		break;
	default:
		store(l);
	}
}

static void live(uint64_t seed)
{
	static struct life l;
	struct snap_gc gc;

	l = (struct life){ .random = seed };
	snap_rig_new(&l.rig);
	l.reader = snap_rig_reader(&l.rig);
	for (unsigned i = 0; i < STEPS; i++)
		step(&l);
	verify(&l);
	check(&l, l.rig.s);
	check(&l, l.reader);
	OK(snap_gc(l.rig.s, NULL, NULL, &gc, &rig_err));
	check(&l, l.reader);
	verify(&l);
	/* Twice in a row there is nothing left to give back. */
	OK(snap_gc(l.rig.s, NULL, NULL, &gc, &rig_err));
	assert_int_equal(gc.bytes_before, gc.bytes_after);
	snap_close(l.reader);
	snap_rig_free(&l.rig);
}

static void test_lives(void **state)
{
	const char *only = getenv("SNAP_SEED");

	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		if (only && strtoull(only, NULL, 10) != seed)
			continue;
		rig_note = seed;
		live(seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
