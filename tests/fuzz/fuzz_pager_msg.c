/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the daemon to the pager. First byte: the type; second: how many descriptors came with it. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "snapstore/pager/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_ranges(const struct pg_request *q)
{
	uint64_t end = 0;

	assert(q->nranges <= PAGER_RANGES_MAX);
	for (uint32_t i = 0; i < q->nranges; i++) {
		assert(q->ranges[i].bytes > 0 && q->ranges[i].offset >= end);
		assert(q->ranges[i].offset % PG_PAGE == 0 && q->ranges[i].bytes % PG_PAGE == 0);
		end = q->ranges[i].offset + q->ranges[i].bytes;
		assert(end <= q->bytes);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct pg_request q;
	struct err e = { 0 };
	int r;

	if (len < 2)
		return 0;
	r = pg_request_parse(data[0], data + 2, len - 2, data[1], &q, &e);
	if (r < 0) {
		assert((r == -EBADMSG || r == -EINVAL) && *e.msg);
		return 0;
	}
	assert(q.type > PAGER_REPLY && q.type < PAGER_LOST);
	assert(!*q.machine || pg_uuid_ok(q.machine));
	assert(!*q.snapshot || pg_uuid_ok(q.snapshot));
	assert(!*q.parent || pg_uuid_ok(q.parent));
	assert(!strchr(q.id, '/') && !strchr(q.name, '/') && *q.id != '.' && *q.name != '.');
	check_ranges(&q);
	return 0;
}
