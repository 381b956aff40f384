/* SPDX-License-Identifier: Apache-2.0 */
/* Objects by their digest: pages, nodes, blobs. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "snapstore/blob.h"
#include "snapstore/snap_priv.h"

#define SCANS 3 /* for one that is not found: gc may move it while we look */

int snap_find(struct snap *s, const struct snap_digest *d, struct where *ret, struct err *e)
{
	char hex[DIGEST_HEX];
	int r = packs_find_any(&s->packs, d, ret, e);

	/* Its time stamp may be too coarse to show the last change, so the folder itself is read. The writer made all
	 * that there is. */
	for (int i = 0; r == -ENOENT && !s->write && i < SCANS; i++) {
		r = packs_scan(s, e);
		if (r < 0)
			return r;
		r = packs_find(&s->packs, d, ret, e);
	}
	if (r == -ENOENT)
		return err_set(e, -EBADMSG, "%.16s is in no pack%s%s", digest_hex(d, hex), s->packs.bad[0] ? "; " : "",
			       s->packs.bad);
	return r;
}

int snap_frame_load(struct snap *s, struct pack *pack, uint32_t frame, const struct place *place, struct err *e)
{
	size_t done = 0;
	struct frame f;
	int r;

	if (s->last.pack == pack && s->last.frame == frame)
		return 0;
	s->last.pack = pack_unref(s->last.pack);
	while (done < place->bytes) {
		ssize_t n = pread(pack->fd, s->last.bytes + done, place->bytes - done, (off_t)(place->off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, -EIO, "pack %016" PRIx64 ": reading at %" PRIu64 ": %s", pack->id, place->off,
				       err_name(-errno));
		if (n == 0)
			return err_set(e, -EBADMSG, "pack %016" PRIx64 ": it is cut", pack->id);
		done += (size_t)n;
	}
	s->bytes_read += done;
	r = frame_open(&s->hash, s->last.bytes, place->bytes, &f, e);
	if (r == 0)
		r = frame_unpack(&f, s->last.raw, e);
	if (r < 0) {
		err_wrap(e, "pack %016" PRIx64 " at %" PRIu64, pack->id, place->off);
		return r;
	}
	s->last.f = f;
	s->last.pack = pack_ref(pack);
	s->last.frame = frame;
	return 0;
}

/* The object of @w, which must be @d. */
static int load(struct snap *s, const struct snap_digest *d, const struct where *w, bool checked, const uint8_t **ret,
		uint32_t *ret_len, struct err *e)
{
	const struct frame *f = &s->last.f;
	char hex[DIGEST_HEX];
	struct snap_digest sum;
	const uint8_t *data;
	int r = snap_frame_load(s, w->pack, w->frame, &w->place, e);

	if (r < 0)
		return r;
	if (w->slot >= f->count || !snap_digest_equal(&f->digests[w->slot], d))
		return err_set(e, -EBADMSG, "pack %016" PRIx64 ": its index says that %.16s is where it is not",
			       w->pack->id, digest_hex(d, hex));
	data = s->last.raw + (size_t)w->slot * f->unit;
	if (checked && hasher_sum(&s->hash, data, f->unit, &sum) < 0)
		return err_set(e, -EIO, "SHA-256 of an object failed");
	if (checked && !snap_digest_equal(&sum, d))
		return err_set(e, -EBADMSG, "pack %016" PRIx64 ": what it has as %.16s is something else", w->pack->id,
			       digest_hex(d, hex));
	*ret = data;
	*ret_len = f->unit;
	return 0;
}

int snap_object(struct snap *s, const struct snap_digest *d, bool checked, const uint8_t **ret, uint32_t *ret_len,
		struct err *e)
{
	struct where w;
	int r = snap_find(s, d, &w, e);

	return r < 0 ? r : load(s, d, &w, checked, ret, ret_len, e);
}

int snap_page_read(struct snap *s, const struct snap_digest *d, void *page, struct err *e)
{
	char hex[DIGEST_HEX];
	const uint8_t *data;
	uint32_t len;
	int r;

	if (snap_digest_equal(d, &snap_absent))
		return err_set(e, -EINVAL, "there is no page there");
	if (snap_digest_equal(d, &snap_zero)) {
		memset(page, 0, SNAP_PAGE_BYTES);
		return 0;
	}
	r = snap_object(s, d, true, &data, &len, e);
	if (r < 0)
		return r;
	if (len != SNAP_PAGE_BYTES)
		return err_set(e, -EBADMSG, "%.16s is no page", digest_hex(d, hex));
	memcpy(page, data, SNAP_PAGE_BYTES);
	return 0;
}

/* -- blobs -------------------------------------------------------------------------------------------------------- */

int snap_blob_put(struct snap_batch *b, const void *data, size_t len, struct snap_digest *ret, struct err *e)
{
	uint8_t head[BLOB_HEAD_MAX];
	struct blob blob = { .len = len, .n = blob_pieces(len) };
	int r;

	if (len > SNAP_BLOB_MAX)
		return err_set(e, -EFBIG, "a blob of %zu bytes is longer than %u", len, SNAP_BLOB_MAX);
	for (uint32_t i = 0; i < blob.n; i++) {
		size_t off = (size_t)i * BLOB_PIECE, n = len - off < BLOB_PIECE ? len - off : BLOB_PIECE;

		r = batch_object(b, (const uint8_t *)data + off, n, &blob.pieces[i], NULL, e);
		if (r < 0)
			return r;
	}
	return batch_object(b, head, blob_pack(&blob, head), ret, NULL, e);
}

int snap_blob_read(struct snap *s, const struct snap_digest *d, struct buf *out, struct err *e)
{
	char hex[DIGEST_HEX];
	const uint8_t *data = NULL;
	struct blob blob = { 0 };
	uint32_t len = 0;
	int r = snap_object(s, d, true, &data, &len, e);

	if (r == 0)
		r = blob_parse(data, len, &blob, e);
	for (uint32_t i = 0; r == 0 && i < blob.n; i++) {
		uint64_t left = blob.len - (uint64_t)i * BLOB_PIECE;

		r = snap_object(s, &blob.pieces[i], true, &data, &len, e);
		if (r == 0 && len != (left < BLOB_PIECE ? left : BLOB_PIECE))
			r = err_set(e, -EBADMSG, "piece %u has %u bytes", i, len);
		if (r == 0 && (r = buf_add(out, data, len)) < 0)
			err_set(e, r, "no memory");
	}
	if (r < 0)
		err_wrap(e, "blob %.16s", digest_hex(d, hex));
	return r;
}
