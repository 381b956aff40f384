/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Two neighbours of a stack become one, so that a stack has an end to its depth. Whose bytes may change depends on who
 * else holds them: a layer of this stack alone takes the other's blocks in (the upper its lower's that it lacks, or the
 * lower all of its upper's); two that others hold are both copied into a new one. The cheapest pair is taken.
 *
 * Taking in changes nothing that the stack shows, at no instant: the blocks that come are covered by, or cover, the
 * same bytes. The result has a new number all the same, by hard links, for a number means the same bytes for ever.
 * A pair of which one counts against the limit and one does not is left alone, and so is the top, which is open.
 *
 * It is done in steps of about a MiB, and everybody's blocks are read and written in between: by the writes of the
 * machine whose stack is full (disk.c), and by whoever is about to need the room (disk_make_room()). While one is under
 * way stack->join says so, and the stack's layers stay as they are: what would change them finishes it first. Who else
 * holds them may change: nobody can come to hold a layer that is this stack's alone. One that is given up half-way
 * leaves blocks behind that are covered by, or cover, the same bytes, as above. */
#include "snapstore/disk/disk_priv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define JOIN_BLOCKS_MAX 262144u /* 1 GiB: more would be a pause that somebody notices */
#define STEP_BLOCKS	64u
#define STEP_WORDS	8u   /* of the maps, looked at at once: 1 MiB at most */
#define STEP_LOOKS	256u /* and so often in one step, if there is nothing to copy */

unsigned join_step_blocks = STEP_WORDS * WORD_BLOCKS;

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
		      uint64_t *copied, struct err *e)
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
		*copied += (unsigned)__builtin_popcountll(f[i] & take);
		r = pour_word(from, to, block + (uint64_t)i * WORD_BLOCKS, f[i] & take, buf, e);
		if (r < 0)
			return r;
		t[i] = (t[i] & ~(take | take << 1)) | (f[i] & (take | take << 1));
	}
	if (memcmp(old, t, n * sizeof(*t)) == 0)
		return 0;
	return layer_map_write(to, block, t, n, e);
}

/* Is there anything in the chunk from block @at on? */
static int chunk_any(const struct layer *l, uint64_t at, bool *ret, struct err *e)
{
	uint64_t words[CHUNK_WORDS], any = 0;
	int r = layer_map_read(l, at, words, CHUNK_WORDS, e);

	for (unsigned i = 0; r == 0 && i < CHUNK_WORDS; i++)
		any |= words[i];
	*ret = any != 0;
	return r;
}

/* From block *@at on, about @most blocks of them. 1: there is more. */
static int pour_some(const struct layer *from, struct layer *to, uint64_t bytes, bool over, uint64_t most, uint8_t *buf,
		     uint64_t *at, struct err *e)
{
	uint64_t blocks = (bytes + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES, copied = 0;

	to->counted = false;
	to->synced = false;
	for (unsigned looks = 0; *at < blocks; looks++) {
		uint64_t left = (blocks - *at + WORD_BLOCKS - 1) / WORD_BLOCKS;
		bool any = true;
		int r = 0;

		if (copied >= most || (looks >= STEP_LOOKS && most < UINT64_MAX))
			return 1;
		if (*at % CHUNK_BLOCKS == 0)
			r = chunk_any(from, *at, &any, e);
		if (r == 0 && any)
			r = pour_words(from, to, *at, left < STEP_WORDS ? (unsigned)left : STEP_WORDS, over, buf,
				       &copied, e);
		if (r < 0)
			return r;
		*at += any ? STEP_WORDS * WORD_BLOCKS : CHUNK_BLOCKS;
	}
	return 0;
}

int layer_pour(const struct layer *from, struct layer *to, uint64_t bytes, bool over, struct err *e)
{
	AUTO_FREE uint8_t *buf = malloc((size_t)STEP_BLOCKS * DISK_BLOCK_BYTES);
	uint64_t at = 0;

	if (!buf)
		return err_set(e, -ENOMEM, "disk: join: no memory");
	return pour_some(from, to, bytes, over, UINT64_MAX, buf, &at, e);
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

struct join {
	struct plan p;
	struct layer *lo, *up; /* open */
	struct layer *to;      /* stands for the two: one ref, open */
	unsigned pass;	       /* INTO_NEW: the lower, then the upper */
	uint64_t at;	       /* block where it goes on */
	uint8_t buf[STEP_BLOCKS * DISK_BLOCK_BYTES];
};

/* It is over, or given up: @k is as before. */
void join_drop(struct disks *d, struct stack *k)
{
	struct join *j = k->join;

	if (!j)
		return;
	k->join = NULL;
	layer_close(j->lo);
	layer_close(j->up);
	if (j->to) {
		layer_close(j->to);
		layer_put(d, j->to);
	}
	free(j);
}

static int begin(struct disks *d, struct stack *k, struct err *e)
{
	struct plan p = { 0 };
	struct join *j;
	int r = plan_stack(d, k, &p, e);

	if (r < 0)
		return r;
	j = malloc(sizeof(*j));
	if (!j)
		return err_set(e, -ENOMEM, "disk: join: no memory");
	j->p = p;
	j->lo = k->layers[p.lower];
	j->up = k->layers[p.lower + 1];
	j->to = NULL;
	j->pass = 0;
	j->at = 0;
	r = layer_open(d, j->lo, e);
	if (r < 0) {
		free(j);
		return r;
	}
	r = layer_open(d, j->up, e);
	if (r < 0) {
		layer_close(j->lo);
		free(j);
		return r;
	}
	k->join = j;
	if (p.way == INTO_NEW)
		r = layer_create(d, k->bytes, &j->to, e);
	else
		r = layer_alias(d, p.way == INTO_UPPER ? j->up : j->lo, &j->to, e);
	return r;
}

/* 1: there is more. */
static int pour_on(struct stack *k, struct join *j, struct err *e)
{
	bool lower = j->p.way == INTO_UPPER || (j->p.way == INTO_NEW && j->pass == 0);
	int r = pour_some(lower ? j->lo : j->up, j->to, k->bytes, j->p.way != INTO_UPPER, join_step_blocks, j->buf,
			  &j->at, e);

	/* Two names of the same files: whatever came over is in the old one, too. */
	if (j->p.way == INTO_UPPER)
		j->up->counted = j->up->synced = false;
	else if (j->p.way == INTO_LOWER)
		j->lo->counted = j->lo->synced = false;
	if (r == 0 && j->p.way == INTO_NEW && j->pass == 0) {
		j->pass = 1;
		j->at = 0;
		return 1;
	}
	return r;
}

static int finish(struct disks *d, struct stack *k, struct join *j, struct err *e)
{
	struct stack old = *k;
	unsigned lower = j->p.lower;
	int r = layer_count(j->to, e);

	if (r < 0)
		return r;
	k->layers[lower] = j->to;
	memmove(&k->layers[lower + 1], &k->layers[lower + 2], (k->nlayers - lower - 2) * sizeof(struct layer *));
	k->nlayers--;
	if (lower >= old.nlayers - old.own)
		k->own--;
	/* A stack that is just being made has no record yet, and gets none from here. */
	r = stack_find(d, k->id) == k ? stack_write(d, k, false, e) : 0;
	if (r < 0) {
		*k = old;
		return r;
	}
	if (k->disk) {
		disk_restack(k->disk, true);
		layer_close(j->lo); /* the disk's; it has @to instead */
		layer_close(j->up);
	} else {
		layer_close(j->to);
	}
	j->to = NULL;
	join_drop(d, k);
	layer_put(d, old.layers[lower]);
	layer_put(d, old.layers[lower + 1]);
	return 0;
}

int stack_join_step(struct disks *d, struct stack *k, struct err *e)
{
	int r = k->join ? 0 : begin(d, k, e);

	if (r == 0) {
		assert(k->join);
		r = pour_on(k, k->join, e);
	}
	if (r == 0)
		r = finish(d, k, k->join, e);
	if (r < 0)
		join_drop(d, k);
	return r;
}

int stack_join(struct disks *d, struct stack *k, struct err *e)
{
	int r;

	do {
		r = stack_join_step(d, k, e);
	} while (r > 0);
	return r;
}
