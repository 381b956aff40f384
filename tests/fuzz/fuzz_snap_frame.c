/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of packs. Their digest is made right first, or nothing would get beyond it. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapstore/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct hasher h;
	static uint8_t raw[FRAME_RAW_MAX];
	struct err e = { 0 };
	struct snap_digest sum;
	struct frame f;
	uint8_t *own;
	int r;

	if (len < 33 || len > FRAME_MAX || (!h.md && hasher_init(&h, NULL) < 0))
		return 0;
	own = malloc(len); /* exactly as long: what reads beyond is seen */
	if (!own)
		return 0;
	memcpy(own, data, len);
	assert(hasher_sum(&h, own + 32, len - 32, &sum) == 0);
	memcpy(own, sum.bytes, 32);
	r = frame_open(&h, own, len, &f, &e);
	assert(r == 0 || (r == -EBADMSG && *e.msg));
	if (r == 0) {
		assert((uint64_t)f.unit * f.count <= FRAME_RAW_MAX && f.count <= 16);
		assert(f.payload + f.stored == own + len);
		r = frame_unpack(&f, raw, &e);
		assert(r == 0 || r == -EBADMSG);
	}
	free(own);
	return 0;
}
