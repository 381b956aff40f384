/* SPDX-License-Identifier: Apache-2.0 */
/* What the pager answers, taken apart. It reads what guests wrote into memory and disks, so it is not believed: every
 * length and range is checked here, and the number of descriptors that came along. */
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cruciblefs/domain/pagerlink.h"

#define PAGE_BYTES 4096u

static int parse_ranges(struct wire_rd *r, uint64_t bytes, struct pager_reply *ret)
{
	uint64_t end = 0, most = bytes ? bytes : PAGER_MEMORY_MAX;
	uint32_t n = wire_u32(r);

	if (r->bad || n > PAGER_RANGES_MAX)
		return -EBADMSG;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t offset = wire_u64(r), len = wire_u64(r);

		if (r->bad || offset % PAGE_BYTES || len % PAGE_BYTES || len < PAGER_RANGE_MIN || offset < end ||
		    offset > most || len > most - offset)
			return -EBADMSG;
		ret->ranges[i] = (struct pager_range){ offset, len };
		end = offset + len;
	}
	ret->nranges = n;
	return 0;
}

static int parse_json(struct wire_rd *r, struct pager_reply *ret)
{
	size_t len;
	const char *text = wire_bytes(r, MSG_MAX, &len);

	if (r->bad || json_parse(text, len, &ret->json, NULL) < 0 || !json_object_is_type(ret->json, json_type_object))
		return -EBADMSG;
	return 0;
}

/* A count of entries that take @least bytes each, no more than are there. */
static uint32_t count(struct wire_rd *r, size_t least)
{
	uint32_t n = wire_u32(r);

	if (n > PAGER_LIST_MAX || n > wire_left(r) / least)
		r->bad = true;
	return r->bad ? 0 : n;
}

static int parse_list(struct wire_rd *r, struct pager_reply *ret)
{
	uint32_t n = count(r, 8);

	ret->machines = n ? calloc(n, sizeof(*ret->machines)) : NULL;
	if (n && !ret->machines)
		return -ENOMEM;
	for (; ret->nmachines < n && !r->bad; ret->nmachines++) {
		struct pager_machine *m = &ret->machines[ret->nmachines];

		wire_str(r, m->machine, sizeof(m->machine));
		wire_str(r, m->snapshot, sizeof(m->snapshot));
	}
	n = count(r, 5);
	ret->held = n ? calloc(n, sizeof(*ret->held)) : NULL;
	if (n && !ret->held)
		return -ENOMEM;
	for (; ret->nheld < n && !r->bad; ret->nheld++) {
		struct pager_held *h = &ret->held[ret->nheld];
		uint8_t stored;

		wire_str(r, h->snapshot, sizeof(h->snapshot));
		stored = wire_u8(r);
		r->bad |= stored > 1;
		h->stored = stored;
	}
	return r->bad ? -EBADMSG : 0;
}

static bool whole_memory(uint64_t bytes)
{
	return bytes > 0 && bytes <= PAGER_MEMORY_MAX && bytes % PAGE_BYTES == 0;
}

int pager_reply_parse(enum pager_type type, uint64_t bytes, struct wire_rd *r, struct msg *m, struct pager_reply *ret)
{
	size_t want_fds = 0;
	int k = 0;

	*ret = (struct pager_reply){ .words = "", .fds = m->fds };
	switch (type) {
	case PAGER_TEMPLATE:
		k = parse_ranges(r, bytes, ret);
		want_fds = 1;
		break;
	case PAGER_CAPTURE_BEGIN:
	case PAGER_WORKSET:
		want_fds = 1;
		break;
	case PAGER_CAPTURE:
		ret->pages = wire_u64(r);
		ret->ns = wire_u64(r);
		k = parse_ranges(r, bytes, ret);
		want_fds = 1;
		break;
	case PAGER_CAPTURED:
		ret->bytes = wire_u64(r);
		k = whole_memory(ret->bytes) ? parse_ranges(r, ret->bytes, ret) : -EBADMSG;
		want_fds = 2;
		break;
	case PAGER_DISK_FILES:
		ret->layers = wire_u32(r);
		if (ret->layers > PAGER_LAYERS_MAX)
			k = -EBADMSG;
		else
			want_fds = 2 * (size_t)ret->layers;
		break;
	case PAGER_DISK_STAT:
		ret->bytes = wire_u64(r);
		ret->layers = wire_u32(r);
		break;
	case PAGER_STAT:
		k = parse_json(r, ret);
		break;
	case PAGER_LIST:
		k = parse_list(r, ret);
		break;
	default:
		break;
	}
	if (k == 0 && (wire_done(r) < 0 || m->nfds != want_fds))
		k = -EBADMSG;
	if (k == 0)
		ret->nfds = m->nfds;
	return k;
}

void pager_reply_fini(struct pager_reply *r)
{
	json_put(&r->json);
	free(r->machines);
	free(r->held);
	r->machines = NULL;
	r->held = NULL;
}
