/* SPDX-License-Identifier: Apache-2.0 */
/* Where a block is read from, as one byte: looked up in all layers once for 16 MiB at a time, so that the depth of a
 * stack costs nothing after the first touch. A freeze changes no byte of it: layers are numbered from the bottom. */
#include "snapstore/disk/disk_priv.h"

#include <stdlib.h>
#include <string.h>

/* Blocks of @word (a layer's map) that nobody above had become @src's. Returns which are still open. */
static uint64_t settle(uint8_t *at, uint64_t word, uint64_t open, uint8_t src)
{
	uint64_t data = word & WORD_LOW & open, zero = (word >> 1) & WORD_LOW & open;

	if (data == WORD_LOW) {
		memset(at, src, WORD_BLOCKS);
		return 0;
	}
	for (uint64_t m = data; m; m &= m - 1)
		at[__builtin_ctzll(m) / 2] = src;
	for (uint64_t m = zero; m; m &= m - 1)
		at[__builtin_ctzll(m) / 2] = SRC_ZERO;
	return open & ~(data | zero);
}

static int fill(const struct disk *k, uint64_t first, struct chunk *c, struct err *e)
{
	uint64_t open[CHUNK_WORDS], words[CHUNK_WORDS], left = WORD_LOW;

	memset(c->src, k->store ? SRC_STORE : SRC_BASE, sizeof(c->src));
	for (unsigned w = 0; w < CHUNK_WORDS; w++)
		open[w] = WORD_LOW;
	memset(c->top, 0, sizeof(c->top));
	for (unsigned i = k->stack->nlayers; i > 0 && left; i--) {
		bool top = i == k->stack->nlayers;
		uint64_t *map = top ? c->top : words;
		int r = layer_map_read(k->stack->layers[i - 1], first, map, CHUNK_WORDS, e);

		if (r < 0)
			return r;
		left = 0;
		for (unsigned w = 0; w < CHUNK_WORDS; w++) {
			if (open[w] && map[w])
				open[w] = settle(c->src + (size_t)w * WORD_BLOCKS, map[w], open[w], (uint8_t)i);
			left |= open[w];
		}
	}
	c->epoch = k->epoch;
	return 0;
}

int index_chunk(struct disk *k, uint64_t block, struct chunk **ret, struct err *e)
{
	struct chunk **at = &k->chunks[block / CHUNK_BLOCKS], *c = *at;
	int r;

	if (!c) {
		c = malloc(sizeof(*c));
		if (!c)
			return err_set(e, -ENOMEM, "disk %s: no memory", k->stack->id);
		r = fill(k, block / CHUNK_BLOCKS * CHUNK_BLOCKS, c, e);
		if (r < 0) {
			free(c);
			return r;
		}
		*at = c;
	}
	if (c->epoch != k->epoch) { /* frozen since: the top is another, and was empty */
		memset(c->top, 0, sizeof(c->top));
		c->epoch = k->epoch;
	}
	*ret = c;
	return 0;
}

void index_drop(struct disk *k)
{
	for (size_t i = 0; i < k->nchunks; i++) {
		free(k->chunks[i]);
		k->chunks[i] = NULL;
	}
}
