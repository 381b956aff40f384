/* SPDX-License-Identifier: Apache-2.0 */
/* A bit a page: arrays of 64-bit words, lowest bit first (as bytes: little-endian, so a file of them is the bits of
 * pager.h). Thread: the owner's. */
#ifndef CRUCIBLE_PAGER_BITS_H
#define CRUCIBLE_PAGER_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t bits_words(uint32_t n)
{
	return ((size_t)n + 63) / 64;
}

static inline bool bit_get(const uint64_t *b, uint32_t i)
{
	return b[i / 64] >> (i % 64) & 1;
}

static inline void bit_set(uint64_t *b, uint32_t i)
{
	b[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline void bit_clear(uint64_t *b, uint32_t i)
{
	b[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

/* The first bit from @i on, below @n, that is @want; @n when there is none. */
uint32_t bits_find(const uint64_t *b, uint32_t i, uint32_t n, bool want);
uint32_t bits_count(const uint64_t *b, uint32_t n);
void bits_fill(uint64_t *b, uint32_t from, uint32_t n); /* set n bits */

#endif
