/* SPDX-License-Identifier: Apache-2.0 */
/* Disks against arrays of bytes: random writes, zeros, forks, joins, removals and restarts without warning. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "snapstore/disk/disk_priv.h"
#include "tests/unit/disk_dir.h"
#include "tests/unit/fake_snap.h"

/* Without those that are there for the next freeze. */
static unsigned layer_files(const struct disks *d, const struct disk_dir *dir)
{
	return disk_dir_files(dir, "layers") - 2 * d->nspare_layers;
}

#define SEEDS	  200u
#define STEPS	  80u
#define MACHINES  3u
#define SNAPSHOTS 5u
/* What is between the two areas is zeros, in the base, too; chunks meet inside the second. */
#define CHUNK	  ((uint64_t)CHUNK_BLOCKS * DISK_BLOCK_BYTES)
#define LOW_END	  (96u << 10)
#define HIGH	  (CHUNK - (64u << 10))
#define BYTES	  (CHUNK + (48u << 10) + 1000)
#define SHOWN	  (LOW_END + BYTES - HIGH)
#define BASE_END  (70u * 1024 + 100)
#define PIECE_MAX 20000u

struct image {
	bool there;
	uint8_t bytes[SHOWN];
};

struct world {
	struct disk_dir dir;
	int base;
	struct disks *d;
	unsigned seed;
	struct image machine[MACHINES], snapshot[SNAPSHOTS];
	struct disk *open[MACHINES];
};

static unsigned pick(struct world *w, unsigned n)
{
	return (unsigned)rand_r(&w->seed) % n;
}

static const char *name(char kind, unsigned i)
{
	static char text[2][8];
	char *t = text[kind == 'm'];

	snprintf(t, sizeof(text[0]), "%c%u", kind, i);
	return t;
}

/* A range within one area: its offset on the disk, and in an image. */
static void pick_range(struct world *w, uint64_t *off, uint64_t *at, uint32_t *len)
{
	bool low = pick(w, 2);
	uint64_t room = low ? LOW_END : BYTES - HIGH;

	*len = 1 + pick(w, pick(w, 2) ? PIECE_MAX : 300);
	*at = pick(w, (unsigned)(room - *len + 1));
	if (pick(w, 2)) { /* whole blocks */
		*at = *at / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
		*len = (*len / DISK_BLOCK_BYTES + 1) * DISK_BLOCK_BYTES;
		if (*at + *len > room)
			*len = (uint32_t)(room - *at);
	}
	*off = low ? *at : HIGH + *at;
	*at = low ? *at : LOW_END + *at;
}

static void check_all(struct disk *k, const struct image *m)
{
	static uint8_t got[SHOWN];
	struct err e = { 0 };

	assert_int_equal(disk_read(k, got, 0, LOW_END, &e), 0);
	assert_int_equal(disk_read(k, got + LOW_END, HIGH, (uint32_t)(BYTES - HIGH), &e), 0);
	assert_memory_equal(got, m->bytes, SHOWN);
	assert_int_equal(disk_read(k, got, CHUNK / 2, 4096, &e), 0);
	for (unsigned i = 0; i < 4096; i++)
		assert_int_equal(got[i], 0);
}

static void open_all(struct world *w)
{
	struct err e = { 0 };

	assert_int_equal(disks_open(w->dir.fd, NULL, &w->d, &e), 0);
	for (unsigned i = 0; i < MACHINES; i++)
		if (w->machine[i].there)
			assert_int_equal(disk_open(w->d, name('m', i), &w->open[i], &e), 0);
}

static void do_write(struct world *w, unsigned i)
{
	static uint8_t data[PIECE_MAX + 2 * DISK_BLOCK_BYTES];
	uint64_t off, at;
	uint32_t len;

	pick_range(w, &off, &at, &len);
	for (uint32_t b = 0; b < len; b++)
		data[b] = (uint8_t)rand_r(&w->seed);
	assert_int_equal(disk_write(w->open[i], data, off, len, NULL), 0);
	memcpy(w->machine[i].bytes + at, data, len);
}

static void do_zero(struct world *w, unsigned i)
{
	uint64_t off, at;
	uint32_t len;

	pick_range(w, &off, &at, &len);
	if (pick(w, 4) == 0) { /* all from one area into the other */
		uint64_t from = pick(w, LOW_END), to = pick(w, (unsigned)(BYTES - HIGH));

		assert_int_equal(disk_zero(w->open[i], from, HIGH + to - from, pick(w, 2), NULL), 0);
		memset(w->machine[i].bytes + from, 0, LOW_END + to - from);
		return;
	}
	assert_int_equal(disk_zero(w->open[i], off, len, pick(w, 2), NULL), 0);
	memset(w->machine[i].bytes + at, 0, len);
}

static void do_read(struct world *w, unsigned i)
{
	static uint8_t got[PIECE_MAX + 2 * DISK_BLOCK_BYTES];
	uint64_t off, at;
	uint32_t len;

	pick_range(w, &off, &at, &len);
	assert_int_equal(disk_read(w->open[i], got, off, len, NULL), 0);
	assert_memory_equal(got, w->machine[i].bytes + at, len);
}

static void do_freeze(struct world *w, unsigned i)
{
	unsigned s = pick(w, SNAPSHOTS);
	int r = disk_freeze(w->d, name('m', i), name('s', s), NULL);

	assert_int_equal(r, w->snapshot[s].there ? -EEXIST : 0);
	if (r < 0)
		return;
	w->snapshot[s] = w->machine[i];
}

static void do_remove(struct world *w)
{
	unsigned s = pick(w, SNAPSHOTS);

	assert_int_equal(disk_remove(w->d, name('s', s), NULL), 0);
	w->snapshot[s].there = false;
}

/* A machine goes, and is a fork of a snapshot from now on. */
static void do_fork(struct world *w, unsigned i)
{
	unsigned s = pick(w, SNAPSHOTS);
	struct disk_origin o = { .base_fd = -1 };
	struct err e = { 0 };

	if (!w->snapshot[s].there)
		return;
	w->open[i] = disk_close(w->open[i]);
	assert_int_equal(disk_remove(w->d, name('m', i), &e), 0);
	snprintf(o.snapshot, sizeof(o.snapshot), "%s", name('s', s));
	assert_int_equal(disk_create(w->d, name('m', i), BYTES, 0, &o, &e), 0);
	assert_int_equal(disk_open(w->d, name('m', i), &w->open[i], &e), 0);
	w->machine[i] = w->snapshot[s];
}

static void do_join(struct world *w, unsigned i)
{
	struct stack *k = stack_find(w->d, name('m', i));
	unsigned n = k->nlayers;
	struct err e = { 0 };
	int r;

	if (n < 4) /* at least one pair below the top of which both count, or none */
		return;
	r = stack_join(w->d, k, &e);
	assert_true(r == 0 || r == -EMLINK);
	assert_int_equal(k->nlayers, r == 0 ? n - 1 : n);
}

/* A join that is under way while other things happen; of a snapshot's stack, too. */
static void do_join_step(struct world *w, unsigned i)
{
	struct stack *k = stack_find(w->d, pick(w, 3) ? name('m', i) : name('s', pick(w, SNAPSHOTS)));
	struct err e = { 0 };
	unsigned n;
	int r;

	if (!k || k->nlayers < 4)
		return;
	n = k->nlayers;
	r = stack_join_step(w->d, k, &e);
	assert_true(r == 1 || r == 0 || r == -EMLINK);
	assert_int_equal(k->nlayers, r == 0 ? n - 1 : n);
	assert_int_equal(k->join != NULL, r == 1);
}

static void do_restart(struct world *w)
{
	for (unsigned i = 0; i < MACHINES; i++)
		w->open[i] = NULL;
	w->d = disks_close(w->d);
	open_all(w);
}

static void step(struct world *w)
{
	unsigned i = pick(w, MACHINES), what = pick(w, 26);

	if (what < 7)
		do_write(w, i);
	else if (what < 10)
		do_zero(w, i);
	else if (what < 13)
		do_read(w, i);
	else if (what < 15)
		do_freeze(w, i);
	else if (what < 16)
		do_remove(w);
	else if (what < 17)
		do_fork(w, i);
	else if (what < 19)
		do_join(w, i);
	else if (what < 25)
		do_join_step(w, i);
	else
		do_restart(w);
}

static void check_end(struct world *w)
{
	struct err e = { 0 };

	for (unsigned i = 0; i < MACHINES; i++) {
		uint64_t own, again;
		unsigned layers;

		check_all(w->open[i], &w->machine[i]);
		assert_int_equal(disk_stat(w->d, name('m', i), &own, &layers, &e), 0);
		for (unsigned l = 0; l < layers; l++) /* the running count against a new one */
			stack_find(w->d, name('m', i))->layers[l]->counted = false;
		assert_int_equal(disk_stat(w->d, name('m', i), &again, &layers, &e), 0);
		assert_int_equal(own, again);
		w->open[i] = disk_close(w->open[i]);
	}
	for (unsigned s = 0; s < SNAPSHOTS; s++) {
		struct disk *k;

		if (!w->snapshot[s].there)
			continue;
		assert_int_equal(disk_open(w->d, name('s', s), &k, &e), 0);
		check_all(k, &w->snapshot[s]);
		assert_int_equal(disk_write(k, "x", 0, 1, &e), -EROFS);
		disk_close(k);
		assert_int_equal(disk_remove(w->d, name('s', s), &e), 0);
	}
	for (unsigned i = 0; i < MACHINES; i++)
		assert_int_equal(disk_remove(w->d, name('m', i), &e), 0);
	assert_int_equal(layer_files(w->d, &w->dir), 0);
	assert_int_equal(disk_dir_files(&w->dir, "stacks"), 0);
}

static void run(struct world *w, unsigned seed)
{
	struct disk_origin o = { .base = "img" };
	struct err e = { 0 };

	memset(w, 0, sizeof(*w));
	w->seed = seed * 7919 + 1;
	disk_dir_make(&w->dir);
	o.base_fd = w->base = disk_dir_base(&w->dir, "img", BASE_END);
	assert_int_equal(disks_open(w->dir.fd, NULL, &w->d, &e), 0);
	for (unsigned i = 0; i < MACHINES; i++) {
		struct image *m = &w->machine[i];

		assert_int_equal(disk_create(w->d, name('m', i), BYTES, 0, &o, &e), 0);
		assert_int_equal(disk_open(w->d, name('m', i), &w->open[i], &e), 0);
		m->there = true;
		for (unsigned b = 0; b < BASE_END; b++)
			m->bytes[b] = disk_dir_byte(b);
	}
	for (unsigned i = 0; i < STEPS; i++)
		step(w);
	check_end(w);
	disks_close(w->d);
	fd_close(&w->base);
	disk_dir_end(&w->dir);
}

static void test_model(void **state)
{
	static struct world w;

	(void)state;
	for (unsigned seed = 0; seed < SEEDS; seed++) {
		print_message("seed %u\n", seed);
		run(&w, seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

	join_step_blocks = 1; /* so that small layers need several */

	return cmocka_run_group_tests(tests, NULL, NULL);
}
