/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the daemon, as plain structs: everything is checked here, once. Thread: any. */
#ifndef CRUCIBLE_PAGER_MESSAGE_H
#define CRUCIBLE_PAGER_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "snapstore/pager/pager.h"

#define PG_UUID_LEN  36
#define PG_NAME_MAX  63	 /* ids of disks, names of exports */
#define PG_BASE_MAX  159 /* a base image's name */
#define PG_PAGE	     UINT64_C(4096)
#define PG_BYTES_MAX (UINT64_C(64) << 30) /* of a template, and of a disk */

struct pg_range {
	uint64_t offset, bytes;
};

struct pg_request {
	uint16_t type;
	char machine[PG_UUID_LEN + 1];
	char snapshot[PG_UUID_LEN + 1]; /* "" where pager.h allows it */
	char parent[PG_UUID_LEN + 1];	/* "": none */
	char id[PG_NAME_MAX + 1];	/* of a disk */
	char name[PG_BASE_MAX + 1];	/* of an export, of a base image */
	uint64_t bytes, base, limit;
	uint32_t uid;
	bool stored, whole;
	uint32_t nranges;
	struct pg_range ranges[PAGER_RANGES_MAX]; /* page-aligned, in order, apart, inside @bytes */
};

/* -EBADMSG: malformed, or the wrong number of descriptors. -EINVAL: well formed and not allowed. */
int pg_request_parse(uint16_t type, const void *data, size_t len, size_t nfds, struct pg_request *ret, struct err *e);

bool pg_uuid_ok(const char *s); /* 36 characters, hexadecimal and dashes where they belong */
int pg_ranges_put(struct buf *b, const struct pg_range *r, uint32_t n);

#endif
