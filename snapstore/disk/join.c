/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Two neighbours of a stack become one, so that a stack has an end to its depth. Whose bytes may change depends on who
 * else holds them: a layer of this stack alone takes the other's blocks in (the upper its lower's that it lacks, or the
 * lower all of its upper's); two that others hold are both copied into a new one. The cheapest pair is taken.
 *
 * Taking in changes nothing that the stack shows, at no instant: the blocks that come are covered by, or cover, the
 * same bytes. The result has a new number all the same, by hard links, for a number means the same bytes for ever.
 * A pair of which one counts against the limit and one does not is left alone, and so is the top, which is open. */
#include "snapstore/disk/disk_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define JOIN_BLOCKS_MAX 262144u /* 1 GiB: more would be a pause that somebody notices */
#define STEP_BLOCKS	64u

static int copy_blocks(const struct layer *from, struct layer *to, uint64_t block, unsigned n, uint8_t *buf,
		       struct err *e)
{
	while (n > 0) {
		unsigned some = n < STEP_BLOCKS ? n : STEP_BLOCKS;
		ssize_t want = (ssize_t)some * DISK_BLOCK_BYTES;
		int r;

		if (pread(from->data, buf, (size_t)want, (off_t)(block * DISK_BLOCK_BYTES)) != want)
			return err_set(e, -EIO, "disk: join: read of layer %llu", (unsigned long long)from->id);
		r = fd_pwrite_all(to->data, buf, (size_t)want, block * DISK_BLOCK_BYTES);
		if (r < 0)
			return err_set(e, r, "disk: join: write: %s", strerror(-r));
		block += some;
		n -= some;
	}
	return 0;
}

/* One word of the maps: @take are the blocks (their low bits) that come over, as data where @data has them. */
static int pour_word(const struct layer *from, struct layer *to, uint64_t block, uint64_t data, uint8_t *buf,
		     struct err *e)
{
	for (unsigned i = 0; i < WORD_BLOCKS;) {
		unsigned run = 0;
		int r;

		while (i + run < WORD_BLOCKS && (data >> (2 * (i + run)) & 1))
			run++;
		r = run ? copy_blocks(from, to, block + i, run, buf, e) : 0;
		if (r < 0)
			return r;
		i += run + 1;
	}
	return 0;
}

static int pour_words(const struct layer *from, struct layer *to, uint64_t block, unsigned n, bool over, uint8_t *buf,
		      struct err *e)
{
	uint64_t f[CHUNK_WORDS], t[CHUNK_WORDS], old[CHUNK_WORDS];
	uint64_t any = 0;
	int r = layer_map_read(from, block, f, n, e);

	for (unsigned i = 0; r == 0 && i < n; i++)
		any |= f[i];
	if (r < 0 || !any)
		return r;
	r = layer_map_read(to, block, t, n, e);
	if (r < 0)
		return r;
	memcpy(old, t, sizeof(old));
	for (unsigned i = 0; i < n; i++) {
		uint64_t take = (f[i] | f[i] >> 1) & WORD_LOW;

		if (!over)
			take &= ~(t[i] | t[i] >> 1);
		r = pour_word(from, to, block + (uint64_t)i * WORD_BLOCKS, f[i] & take, buf, e);
		if (r < 0)
			return r;
		t[i] = (t[i] & ~(take | take << 1)) | (f[i] & (take | take << 1));
	}
	if (memcmp(old, t, n * sizeof(*t)) == 0)
		return 0;
	return layer_map_write(to, block, t, n, e);
}

int layer_pour(const struct layer *from, struct layer *to, uint64_t bytes, bool over, struct err *e)
{
	uint64_t blocks = (bytes + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES;
	AUTO_FREE uint8_t *buf = malloc((size_t)STEP_BLOCKS * DISK_BLOCK_BYTES);
	int r = 0;

	if (!buf)
		return err_set(e, -ENOMEM, "disk: join: no memory");
	to->counted = false;
	to->synced = false;
	for (uint64_t at = 0; r == 0 && at < blocks; at += CHUNK_BLOCKS) {
		uint64_t left = (blocks - at + WORD_BLOCKS - 1) / WORD_BLOCKS;

		r = pour_words(from, to, at, left < CHUNK_WORDS ? (unsigned)left : CHUNK_WORDS, over, buf, e);
	}
	return r;
}

enum way {
	INTO_UPPER,
	INTO_LOWER,
	INTO_NEW,
};

struct plan {
	unsigned lower; /* its place in the stack */
	enum way way;
	uint64_t blocks; /* to be copied, at most */
};

static struct plan plan_pair(const struct stack *k, unsigned i)
{
	const struct layer *lo = k->layers[i], *up = k->layers[i + 1];
	struct plan p = { .lower = i, .way = INTO_NEW, .blocks = lo->used + up->used };

	if (up->refs == 1 && lo->used < p.blocks) {
		p.way = INTO_UPPER;
		p.blocks = lo->used;
	}
	if (lo->refs == 1 && up->used < p.blocks) {
		p.way = INTO_LOWER;
		p.blocks = up->used;
	}
	return p;
}

static int plan_stack(struct disks *d, const struct stack *k, struct plan *ret, struct err *e)
{
	struct plan best = { .blocks = UINT64_MAX };
	unsigned end = k->frozen ? k->nlayers : k->nlayers - (k->own > 0);

	for (unsigned i = 0; i < end; i++) {
		int r = layer_open(d, k->layers[i], e);

		if (r < 0)
			return r;
		r = layer_count(k->layers[i], e);
		layer_close(k->layers[i]);
		if (r < 0)
			return r;
	}
	for (unsigned i = 0; i + 1 < end; i++) {
		struct plan p = plan_pair(k, i);

		if (i + 1 != k->nlayers - k->own && p.blocks < best.blocks)
			best = p;
	}
	if (best.blocks > JOIN_BLOCKS_MAX)
		return err_set(e, -EMLINK, "disk %s: too deep, and too large to join its layers", k->id);
	*ret = best;
	return 0;
}

/* The layer that stands for the two: one ref, open. Both are open. */
static int make(struct disks *d, const struct stack *k, const struct plan *p, struct layer **ret, struct err *e)
{
	struct layer *lo = k->layers[p->lower], *up = k->layers[p->lower + 1], *to = NULL;
	int r;

	if (p->way == INTO_NEW) {
		r = layer_create(d, k->bytes, &to, e);
		if (r == 0)
			r = layer_pour(lo, to, k->bytes, true, e);
		if (r == 0)
			r = layer_pour(up, to, k->bytes, true, e);
	} else {
		r = layer_alias(d, p->way == INTO_UPPER ? up : lo, &to, e);
		if (r == 0 && p->way == INTO_UPPER)
			r = layer_pour(lo, to, k->bytes, false, e);
		else if (r == 0)
			r = layer_pour(up, to, k->bytes, true, e);
		/* Two names of the same files: whatever came over is in the old one, too. */
		if (p->way == INTO_UPPER)
			up->counted = up->synced = false;
		else
			lo->counted = lo->synced = false;
	}
	if (r == 0)
		r = layer_count(to, e);
	if (r < 0 && to) {
		layer_close(to);
		layer_put(d, to);
	}
	if (r == 0)
		*ret = to;
	return r;
}

int stack_join(struct disks *d, struct stack *k, struct err *e)
{
	struct layer *lo, *up, *to = NULL;
	struct stack old;
	struct plan p = { 0 };
	int r = plan_stack(d, k, &p, e);

	if (r < 0)
		return r;
	lo = k->layers[p.lower];
	up = k->layers[p.lower + 1];
	r = layer_open(d, lo, e);
	if (r < 0)
		return r;
	r = layer_open(d, up, e);
	if (r == 0) {
		r = make(d, k, &p, &to, e);
		layer_close(up);
	}
	layer_close(lo);
	if (r < 0)
		return r;
	old = *k;
	k->layers[p.lower] = to;
	memmove(&k->layers[p.lower + 1], &k->layers[p.lower + 2], (k->nlayers - p.lower - 2) * sizeof(struct layer *));
	k->nlayers--;
	if (p.lower >= old.nlayers - old.own)
		k->own--;
	/* A stack that is just being made has no record yet, and gets none from here. */
	r = stack_find(d, k->id) == k ? stack_write(d, k, false, e) : 0;
	if (r == 0 && k->disk) {
		disk_restack(k->disk, true);
		layer_close(lo);
		layer_close(up);
	} else {
		layer_close(to);
	}
	if (r < 0) {
		*k = old;
		layer_put(d, to);
		return r;
	}
	layer_put(d, lo);
	layer_put(d, up);
	return 0;
}
