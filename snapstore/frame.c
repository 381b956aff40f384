/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <lz4.h>
#include <string.h>
#include "snapstore/frame.h"

static const uint8_t magic[4] = { 'C', 'F', 'R', 'M' };

static void put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

int frame_encode(struct hasher *h, void *state, const void *raw, uint32_t unit, uint32_t count,
		 const struct snap_digest *digests, uint8_t *out, size_t *ret_len)
{
	uint8_t *payload = out + FRAME_HEAD + count * sizeof(*digests);
	uint32_t raw_len = unit * count, stored;
	struct snap_digest sum;
	int n, r;

	/* Room for one byte less: what does not get smaller is not worth decoding. */
	n = LZ4_compress_fast_extState(state, raw, (char *)payload, (int)raw_len, (int)raw_len - 1, 1);
	stored = n > 0 ? (uint32_t)n : raw_len;
	if (n <= 0)
		memcpy(payload, raw, raw_len);
	memcpy(out + 32, magic, sizeof(magic));
	out[36] = n > 0;
	out[37] = (uint8_t)count;
	out[38] = out[39] = 0;
	put32(out + 40, unit);
	put32(out + 44, stored);
	memcpy(out + FRAME_HEAD, digests, count * sizeof(*digests));
	*ret_len = (size_t)(payload - out) + stored;
	r = hasher_sum(h, out + 32, *ret_len - 32, &sum);
	if (r == 0)
		memcpy(out, sum.bytes, sizeof(sum.bytes));
	return r;
}

int frame_open(struct hasher *h, const void *data, size_t len, struct frame *ret, struct err *e)
{
	const uint8_t *p = data;
	struct snap_digest sum;
	struct frame f;
	uint64_t raw;

	if (len < FRAME_HEAD || len > FRAME_MAX || memcmp(p + 32, magic, sizeof(magic)) != 0)
		return err_set(e, -EBADMSG, "not a frame");
	if (hasher_sum(h, p + 32, len - 32, &sum) < 0)
		return err_set(e, -EIO, "SHA-256 of a frame failed");
	if (memcmp(sum.bytes, p, sizeof(sum.bytes)) != 0)
		return err_set(e, -EBADMSG, "the digest of the frame differs");
	f = (struct frame){ .unit = get32(p + 40), .count = p[37], .stored = get32(p + 44), .lz4 = p[36] == 1 };
	raw = (uint64_t)f.unit * f.count;
	if (p[36] > 1 || p[38] || p[39] || f.count < 1 || f.count > SNAP_WINDOW_PAGES || raw < 1 ||
	    raw > FRAME_RAW_MAX || (uint64_t)FRAME_HEAD + f.count * 32u + f.stored != len ||
	    (!f.lz4 && f.stored != raw))
		return err_set(e, -EBADMSG, "the head of the frame is wrong");
	f.digests = (const struct snap_digest *)(p + FRAME_HEAD);
	f.payload = p + FRAME_HEAD + f.count * 32u;
	*ret = f;
	return 0;
}

int frame_unpack(const struct frame *f, void *raw, struct err *e)
{
	int want = (int)(f->unit * f->count);

	if (!f->lz4)
		memcpy(raw, f->payload, f->stored);
	else if (LZ4_decompress_safe((const char *)f->payload, raw, (int)f->stored, want) != want)
		return err_set(e, -EBADMSG, "the frame does not decode");
	return 0;
}
