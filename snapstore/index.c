/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "snapstore/index.h"

#define HEAD   32u
#define FANOUT 1024u

static const char magic[8] = { 'C', 'R', 'U', 'C', 'I', 'D', 'X', '1' };

static uint64_t index_bytes(uint64_t nobjects, uint64_t nframes)
{
	uint64_t places = (nobjects * 4 + 7) & ~7ull; /* what follows is aligned */

	return HEAD + FANOUT + nobjects * 32 + places + nframes * sizeof(struct index_frame) + 32;
}

int index_open(const void *data, size_t len, struct index *ret, struct err *e)
{
	const uint8_t *p = data;
	uint32_t head[4], last = 0;
	struct index x;
	uint64_t bytes;

	if (len < HEAD || memcmp(p, magic, sizeof(magic)) != 0)
		return err_set(e, -EBADMSG, "not an index of this version");
	memcpy(head, p + 8, sizeof(head));
	memcpy(&bytes, p + 24, sizeof(bytes));
	x = (struct index){ .nobjects = le32toh(head[0]),
			    .nframes = le32toh(head[1]),
			    .npages = le32toh(head[2]),
			    .pack_bytes = le64toh(bytes) };
	if (x.nobjects > INDEX_OBJECTS_MAX || x.nframes > INDEX_FRAMES_MAX || x.npages > x.nobjects ||
	    len != index_bytes(x.nobjects, x.nframes))
		return err_set(e, -EBADMSG, "the index has another size than its head says");
	p += HEAD;
	x.fanout = (const void *)p;
	p += FANOUT;
	x.digests = (const void *)p;
	p += x.nobjects * 32ull;
	x.places = (const void *)p;
	p += (x.nobjects * 4ull + 7) & ~7ull;
	x.frames = (const void *)p;
	for (unsigned i = 0; i < 256; i++) {
		uint32_t n = le32toh(x.fanout[i]);

		if (n < last || n > x.nobjects)
			return err_set(e, -EBADMSG, "the fan-out of the index is wrong");
		last = n;
	}
	if (last != x.nobjects)
		return err_set(e, -EBADMSG, "the fan-out of the index is wrong");
	*ret = x;
	return 0;
}

int index_check(struct hasher *h, const void *data, size_t len, struct err *e)
{
	struct snap_digest sum;

	if (len < 32)
		return err_set(e, -EBADMSG, "the index is cut");
	if (hasher_sum(h, data, len - 32, &sum) < 0)
		return err_set(e, -EIO, "SHA-256 of an index failed");
	if (memcmp(sum.bytes, (const uint8_t *)data + len - 32, 32) != 0)
		return err_set(e, -EBADMSG, "the digest of the index differs");
	return 0;
}

bool index_find(const struct index *x, const struct snap_digest *d, uint32_t *ret_pos)
{
	uint32_t low = d->bytes[0] ? le32toh(x->fanout[d->bytes[0] - 1]) : 0;
	uint32_t high = le32toh(x->fanout[d->bytes[0]]);

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		int c = memcmp(d->bytes, x->digests[mid].bytes, sizeof(d->bytes));

		if (c == 0) {
			*ret_pos = mid;
			return true;
		}
		if (c < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return false;
}

int index_frame(const struct index *x, uint32_t frame, struct place *ret, struct err *e)
{
	struct place p;

	if (frame >= x->nframes)
		return err_set(e, -EBADMSG, "the index names a frame that it does not have");
	p.off = le64toh(x->frames[frame].off);
	p.bytes = le32toh(x->frames[frame].bytes);
	p.unit = le32toh(x->frames[frame].shape) >> 5;
	p.count = le32toh(x->frames[frame].shape) & 31;
	if (p.bytes < FRAME_HEAD || p.bytes > FRAME_MAX || p.off > x->pack_bytes || p.bytes > x->pack_bytes - p.off)
		return err_set(e, -EBADMSG, "the index names a frame outside of its pack");
	*ret = p;
	return 0;
}

int index_place(const struct index *x, uint32_t pos, uint32_t *ret_frame, uint32_t *ret_slot, struct err *e)
{
	uint32_t place;

	if (pos >= x->nobjects)
		return err_set(e, -EBADMSG, "the index has no such object");
	place = le32toh(x->places[pos]);
	if (place / 16 >= x->nframes)
		return err_set(e, -EBADMSG, "the index names a frame that it does not have");
	*ret_frame = place / 16;
	*ret_slot = place % 16;
	return 0;
}

static int by_digest(const void *a, const void *b)
{
	const struct index_entry *x = a, *y = b;
	int c = memcmp(x->digest.bytes, y->digest.bytes, sizeof(x->digest.bytes));

	if (c)
		return c;
	return x->place < y->place ? -1 : x->place > y->place;
}

/* The last of equal ones stays. Returns how many are left. */
static uint32_t sort_once(struct index_entry *entries, uint32_t n)
{
	uint32_t kept = 0;

	if (n)
		qsort(entries, n, sizeof(*entries), by_digest);
	for (uint32_t i = 0; i < n; i++) {
		if (i + 1 < n && snap_digest_equal(&entries[i].digest, &entries[i + 1].digest))
			continue;
		entries[kept++] = entries[i];
	}
	return kept;
}

int index_build(struct hasher *h, struct index_entry *entries, uint32_t n, const struct place *frames, uint32_t nframes,
		uint64_t pack_bytes, uint8_t **ret, size_t *ret_len)
{
	uint32_t fanout[256] = { 0 }, head[4] = { 0 }, total = 0;
	AUTO_FREE uint8_t *data = NULL;
	struct snap_digest sum;
	uint8_t *p;
	size_t len;
	int r;

	n = sort_once(entries, n);
	len = (size_t)index_bytes(n, nframes);
	data = calloc(1, len);
	if (!data)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		fanout[entries[i].digest.bytes[0]]++;
		head[2] += frames[entries[i].place / 16].unit == SNAP_PAGE_BYTES;
	}
	head[0] = htole32(n);
	head[1] = htole32(nframes);
	head[2] = htole32(head[2]);
	memcpy(data, magic, sizeof(magic));
	memcpy(data + 8, head, sizeof(head));
	pack_bytes = htole64(pack_bytes);
	memcpy(data + 24, &pack_bytes, sizeof(pack_bytes));
	for (unsigned i = 0; i < 256; i++) {
		total += fanout[i];
		fanout[i] = htole32(total);
	}
	p = data + HEAD;
	memcpy(p, fanout, sizeof(fanout));
	p += FANOUT;
	for (uint32_t i = 0; i < n; i++, p += 32)
		memcpy(p, entries[i].digest.bytes, 32);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t place = htole32(entries[i].place);

		memcpy(p + 4ull * i, &place, sizeof(place));
	}
	p += (n * 4ull + 7) & ~7ull;
	for (uint32_t i = 0; i < nframes; i++, p += sizeof(struct index_frame)) {
		struct index_frame f = { htole64(frames[i].off), htole32(frames[i].bytes),
					 htole32(frames[i].unit << 5 | frames[i].count) };

		memcpy(p, &f, sizeof(f));
	}
	r = hasher_sum(h, data, len - 32, &sum);
	if (r < 0)
		return r;
	memcpy(p, sum.bytes, 32);
	*ret = data;
	data = NULL;
	*ret_len = len;
	return 0;
}
