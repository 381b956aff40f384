/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: as they are, and with their digest made right. What is taken is written again and taken again. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapstore/snap_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void try(const void *text, size_t len)
{
	struct snap_manifest m, again;
	struct err e = { 0 };
	struct buf out;
	int r = snap_manifest_parse(text, len, &m, &e);

	if (r < 0) {
		assert((r == -EBADMSG || r == -ENOMEM) && *e.msg);
		return;
	}
	assert(snap_uuid_ok(m.uuid) && m.meta);
	buf_init(&out, 1 << 20);
	if (manifest_text(&m, &out, &e) == 0 && out.len <= SNAP_MANIFEST_MAX) {
		assert(snap_manifest_parse(out.data, out.len, &again, &e) == 0);
		assert(strcmp(again.uuid, m.uuid) == 0 && again.memory_pages == m.memory_pages &&
		       snap_digest_equal(&again.memory, &m.memory));
		snap_manifest_fini(&again);
	}
	buf_fini(&out);
	snap_manifest_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static struct hasher h;
	char hex[DIGEST_HEX];
	struct snap_digest sum;
	struct buf b;

	try(data, len);
	if (!h.md && hasher_init(&h, NULL) < 0)
		return 0;
	assert(hasher_sum(&h, data, len, &sum) == 0);
	buf_init(&b, 1 << 20);
	if (buf_add(&b, data, len) == 0 && buf_addf(&b, ",\"sum\":\"%s\"}\n", digest_hex(&sum, hex)) == 0)
		try(b.data, b.len);
	buf_fini(&b);
	return 0;
}
