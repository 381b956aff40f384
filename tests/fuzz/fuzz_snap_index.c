/* SPDX-License-Identifier: Apache-2.0 */
/* Indexes of packs: whatever is in them, looking something up stays inside. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapstore/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void look(const struct index *x, const struct snap_digest *d)
{
	struct place p;
	uint32_t pos, frame, slot;

	if (!index_find(x, d, &pos))
		return;
	assert(pos < x->nobjects);
	if (index_place(x, pos, &frame, &slot, NULL) == 0 && index_frame(x, frame, &p, NULL) == 0)
		assert(slot < 16 && p.bytes <= FRAME_MAX && p.off + p.bytes <= x->pack_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct snap_digest d = { { 0 } };
	struct err e = { 0 };
	struct index x;
	uint8_t *own = malloc(len ? len : 1);

	if (!own)
		return 0;
	memcpy(own, data, len);
	if (index_open(own, len, &x, &e) == 0) {
		for (uint32_t i = 0; i < x.nobjects; i++)
			look(&x, &x.digests[i]);
		for (unsigned i = 0; i < 256; i++) {
			d.bytes[0] = (uint8_t)i;
			look(&x, &d);
		}
	} else {
		assert(*e.msg);
	}
	free(own);
	return 0;
}
