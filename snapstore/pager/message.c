/* SPDX-License-Identifier: Apache-2.0 */
#include "snapstore/pager/message.h"

#include <string.h>

#include "base/fd.h"
#include "base/wire.h"

bool pg_uuid_ok(const char *s)
{
	for (int i = 0; i < PG_UUID_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;

		if (dash ? s[i] != '-' : !((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f')))
			return false;
	}
	return !s[PG_UUID_LEN];
}

/* Ids become file names below /disks, and names of exports: no separator, no dot in front. */
static bool name_ok(const char *s)
{
	if (!*s || *s == '.')
		return false;
	for (; *s; s++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *s))
			return false;
	return true;
}

static void get_uuid(struct wire_rd *r, char out[PG_UUID_LEN + 1], bool empty_ok)
{
	wire_str(r, out, PG_UUID_LEN + 1);
	if (!pg_uuid_ok(out) && !(empty_ok && !*out))
		r->bad = true;
}

static void get_name(struct wire_rd *r, char *out, size_t cap)
{
	wire_str(r, out, cap);
	if (!name_ok(out))
		r->bad = true;
}

static void get_ranges(struct wire_rd *r, struct pg_request *q)
{
	uint64_t end = 0;

	q->nranges = wire_u32(r);
	if (q->nranges > PAGER_RANGES_MAX)
		r->bad = true;
	for (uint32_t i = 0; i < q->nranges && !r->bad; i++) {
		struct pg_range *g = &q->ranges[i];

		g->offset = wire_u64(r);
		g->bytes = wire_u64(r);
		if (g->offset % PG_PAGE || g->bytes % PG_PAGE || !g->bytes || g->offset < end || g->offset > q->bytes ||
		    g->bytes > q->bytes - g->offset)
			r->bad = true;
		end = g->offset + g->bytes;
	}
}

/* How many descriptors each request carries. */
static const struct {
	uint8_t min, max;
} fds_of[PAGER_TYPE_COUNT] = {
	[PAGER_ATTACH] = { 2, 3 },
	[PAGER_ADOPT] = { 1, 2 },
	[PAGER_WORKSET_SET] = { 1, 1 },
	[PAGER_DISK_CREATE] = { 0, 1 },
};

static void parse(struct wire_rd *r, struct pg_request *q)
{
	switch (q->type) {
	case PAGER_TEMPLATE:
		get_uuid(r, q->snapshot, false);
		q->bytes = wire_u64(r);
		q->whole = wire_u8(r) != 0;
		break;
	case PAGER_ATTACH:
		get_uuid(r, q->machine, false);
		get_uuid(r, q->snapshot, true);
		q->base = wire_u64(r);
		q->bytes = wire_u64(r);
		get_ranges(r, q);
		break;
	case PAGER_DETACH:
		get_uuid(r, q->machine, false);
		break;
	case PAGER_CAPTURE_BEGIN:
		get_uuid(r, q->snapshot, false);
		q->bytes = wire_u64(r);
		get_uuid(r, q->parent, true);
		break;
	case PAGER_CAPTURE:
		get_uuid(r, q->machine, false);
		get_uuid(r, q->snapshot, false);
		wire_str(r, q->id, sizeof(q->id));
		if (q->id[0] && !name_ok(q->id))
			r->bad = true;
		break;
	case PAGER_ADOPT:
		get_uuid(r, q->snapshot, false);
		q->bytes = wire_u64(r);
		get_uuid(r, q->parent, true);
		q->stored = wire_u8(r) != 0;
		break;
	case PAGER_CAPTURED:
	case PAGER_STORED:
	case PAGER_FORGET:
	case PAGER_WORKSET:
	case PAGER_WORKSET_SET:
		get_uuid(r, q->snapshot, false);
		break;
	case PAGER_EVICT:
		get_uuid(r, q->snapshot, true);
		break;
	case PAGER_DISK_CREATE:
		get_name(r, q->id, sizeof(q->id));
		q->bytes = wire_u64(r);
		q->limit = wire_u64(r);
		get_uuid(r, q->snapshot, true);
		get_name(r, q->name, sizeof(q->name));
		break;
	case PAGER_DISK_EXPORT:
		get_name(r, q->name, PG_NAME_MAX + 1);
		get_name(r, q->id, sizeof(q->id));
		q->uid = wire_u32(r);
		break;
	case PAGER_DISK_UNEXPORT:
		get_name(r, q->name, PG_NAME_MAX + 1);
		break;
	case PAGER_DISK_REMOVE:
	case PAGER_DISK_SYNC:
	case PAGER_DISK_STAT:
		get_name(r, q->id, sizeof(q->id));
		break;
	case PAGER_DISK_FILES:
		get_uuid(r, q->snapshot, false);
		get_uuid(r, q->parent, true);
		break;
	case PAGER_CONFIG:
		q->bytes = wire_u64(r);
		break;
	case PAGER_STAT:
	case PAGER_LIST:
	case PAGER_QUIT:
		break;
	default:
		r->bad = true;
	}
}

static bool bytes_ok(const struct pg_request *q)
{
	switch (q->type) {
	case PAGER_TEMPLATE:
	case PAGER_ATTACH:
	case PAGER_CAPTURE_BEGIN:
	case PAGER_ADOPT:
	case PAGER_DISK_CREATE:
		return q->bytes && q->bytes % PG_PAGE == 0 && q->bytes <= PG_BYTES_MAX;
	default:
		return true;
	}
}

int pg_request_parse(uint16_t type, const void *data, size_t len, size_t nfds, struct pg_request *ret, struct err *e)
{
	struct wire_rd r;

	memset(ret, 0, sizeof(*ret));
	ret->type = type;
	wire_rd_init(&r, data, len);
	parse(&r, ret);
	if (wire_done(&r) < 0)
		return err_set(e, -EBADMSG, "request %u of %zu bytes is malformed", type, len);
	if (nfds < fds_of[type].min || nfds > fds_of[type].max)
		return err_set(e, -EBADMSG, "request %u with %zu descriptors", type, nfds);
	if (!bytes_ok(ret))
		return err_set(e, -EINVAL, "request %u: not a size: %llu", type, (unsigned long long)ret->bytes);
	if (type == PAGER_ATTACH && (ret->base % PG_PAGE || ret->base > UINT64_MAX - ret->bytes))
		return err_set(e, -EINVAL, "attach: not an address: %llx", (unsigned long long)ret->base);
	if (type == PAGER_ATTACH && !*ret->snapshot && nfds != 2)
		return err_set(e, -EINVAL, "attach: a userfaultfd, and no template");
	if (type == PAGER_ADOPT && nfds != (ret->stored ? 1u : 2u))
		return err_set(e, -EINVAL, "adopt: bits are for what is not stored, only");
	return 0;
}

int pg_ranges_put(struct buf *b, const struct pg_range *r, uint32_t n)
{
	int x = wire_put_u32(b, n);

	for (uint32_t i = 0; i < n && x == 0; i++) {
		x = wire_put_u64(b, r[i].offset);
		if (x == 0)
			x = wire_put_u64(b, r[i].bytes);
	}
	return x;
}
