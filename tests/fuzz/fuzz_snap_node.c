/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of maps and heads of blobs: what is taken is packed again to the same bytes. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "snapstore/blob.h"
#include "snapstore/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static uint8_t out[NODE_BYTES_MAX], head[BLOB_HEAD_MAX];
	static struct node n;
	static struct blob b;
	uint8_t *own = malloc(len ? len : 1);

	if (!own)
		return 0;
	memcpy(own, data, len);
	if (node_parse(own, len, &n, NULL) == 0) {
		assert(n.n >= 1 && n.n <= SNAP_NODE_ENTRIES && n.level < NODE_LEVELS);
		assert(node_pack(&n, out) == len && memcmp(out, own, len) == 0);
	}
	if (blob_parse(own, len, &b, NULL) == 0) {
		assert(b.len <= SNAP_BLOB_MAX && b.n <= BLOB_PIECES_MAX);
		assert(blob_pack(&b, head) == len && memcmp(head, own, len) == 0);
	}
	free(own);
	return 0;
}
