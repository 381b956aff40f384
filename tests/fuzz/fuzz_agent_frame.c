/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of frames, as both sides parse it, and the JSON of those that carry some. The parser must say the same
 * however the stream is cut. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "agent/identity.h"
#include "agent/proto.h"
#include "agent/request.h"
#include "base/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void take_json(const struct ag_frame *f)
{
	struct exec_req q;
	struct hello h;
	struct err e = { 0 };

	if (f->type == AG_EXEC && exec_req_parse(f->payload, f->len, &q, &e) == 0) {
		assert(q.script == (q.argv == NULL));
		exec_req_fini(&q);
	}
	if (f->type == AG_HELLO && hello_parse(f->payload, f->len, &h, &e) == 0) {
		assert(h.entropy_len <= ENTROPY_BYTES && strlen(h.hostname) <= HOSTNAME_MAX);
		assert(strlen(h.parent) <= PARENT_MAX);
		assert(!h.clone || (h.entropy_len == ENTROPY_BYTES && h.wall_ns > 0 && strlen(h.fork) == 36 &&
				    strlen(h.machine_id) == 32));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	size_t at = 0;

	while (at < len) {
		struct ag_frame f = { 0 }, again = { 0 };
		uint8_t head[AG_HEADER_LEN];
		long n = ag_frame_parse(data + at, len - at, &f);

		if (n <= 0)
			break;
		assert((size_t)n <= len - at && (size_t)n == AG_HEADER_LEN + f.len && f.len <= AG_PAYLOAD_MAX);
		/* Exactly its bytes are enough, one fewer are not, and what is written again is what was read. */
		assert(ag_frame_parse(data + at, (size_t)n, &again) == n && again.payload == f.payload);
		assert(ag_frame_parse(data + at, (size_t)n - 1, &again) == 0);
		ag_frame_header(head, f.type, f.flags, f.stream, f.seq, f.len);
		assert(memcmp(head, data + at, sizeof(head)) == 0);
		take_json(&f);
		at += (size_t)n;
	}
	return 0;
}
