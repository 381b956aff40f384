/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest sends instead of a ClientHello: whatever was said of a beginning holds for the whole. */
#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "netpolicy/policy.h"
#include "netpolicy/sniff.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char name[NET_NAME_MAX + 1], first[NET_NAME_MAX + 1], again[NET_NAME_MAX + 1];
	enum sniff_result whole = sniff_client_hello(data, len, name);
	size_t step = len / 64 + 1;

	assert(whole != SNIFF_MORE || len < SNIFF_MAX);
	if (whole == SNIFF_NAME)
		assert(net_name_normal(name, strlen(name), again) && strcmp(name, again) == 0);
	for (size_t n = 0; n <= len; n += step) {
		uint8_t *own = malloc(n ? n : 1); /* exactly as long: what reads beyond is seen */
		enum sniff_result r;

		if (!own)
			return 0;
		memcpy(own, data, n);
		r = sniff_client_hello(own, n, first);
		free(own);
		if (r == SNIFF_MORE)
			continue;
		/* The bound on what a caller holds may come before what the rest would have said. */
		assert(r == whole || (r == SNIFF_TOO_LARGE && n >= SNIFF_MAX) ||
		       (whole == SNIFF_TOO_LARGE && len >= SNIFF_MAX));
		assert(r != SNIFF_NAME || strcmp(first, name) == 0);
		break;
	}
	return 0;
}
