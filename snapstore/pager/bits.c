/* SPDX-License-Identifier: Apache-2.0 */
#include "snapstore/pager/bits.h"

uint32_t bits_find(const uint64_t *b, uint32_t i, uint32_t n, bool want)
{
	while (i < n) {
		uint64_t word = (want ? b[i / 64] : ~b[i / 64]) >> (i % 64);

		if (word) {
			uint64_t at = (uint64_t)i + (unsigned)__builtin_ctzll(word);

			return at < n ? (uint32_t)at : n;
		}
		if (n - i <= 64 - i % 64)
			break;
		i += 64 - i % 64;
	}
	return n;
}

uint32_t bits_count(const uint64_t *b, uint32_t n)
{
	uint32_t count = 0;

	for (size_t w = 0; w < n / 64; w++)
		count += (uint32_t)__builtin_popcountll(b[w]);
	if (n % 64)
		count += (uint32_t)__builtin_popcountll(b[n / 64] & ((UINT64_C(1) << (n % 64)) - 1));
	return count;
}

void bits_fill(uint64_t *b, uint32_t from, uint32_t n)
{
	while (n) {
		uint32_t bit = from % 64, k = 64 - bit < n ? 64 - bit : n;

		b[from / 64] |= (k == 64 ? ~UINT64_C(0) : (UINT64_C(1) << k) - 1) << bit;
		from += k;
		n -= k;
	}
}
