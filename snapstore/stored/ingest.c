/* SPDX-License-Identifier: Apache-2.0 */
/* One snapshot into the store.
 *
 * How this works. Memory: bits say which pages were captured; in groups of 64, what lies between the first and the last
 * captured page of a group is read at once (a hole in between costs nothing), and the captured ones are put. The others
 * are the base's. Disk: for each block the newest layer that has it counts; runs of blocks of one layer are read at
 * once. Bits of 16384 blocks are held at a time, so that memory does not grow with the disk. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "snapstore/digest.h"
#include "snapstore/stored/stored_priv.h"

#define GROUP	   64u	 /* pages that are looked at together */
#define BITS_BYTES 4096u /* of the bits of memory held at a time: 32768 pages */
#define MAP_BYTES  4096u /* of each layer's map: 16384 blocks, two bits each */
#define MAP_BLOCKS (MAP_BYTES * 4)

struct work {
	struct request *q;
	struct snap_edit *edit;
	uint64_t before, total; /* pages and blocks: of the maps that are done, of all */
	uint8_t pages[GROUP * SNAP_PAGE_BYTES];
	uint8_t bits[BITS_BYTES];
	uint8_t maps[STORED_LAYERS_MAX][MAP_BYTES];
};

/* At most @len bytes at @off; what lies behind the end is zeros. */
static int read_padded(int fd, void *buf, size_t len, uint64_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (uint8_t *)buf + done, len - done, (off_t)(off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	memset((uint8_t *)buf + done, 0, len - done);
	return 0;
}

/* A map is done up to @entry. */
static int advance(struct work *w, uint64_t entry, struct err *e)
{
	uint64_t done = w->before + entry;

	if (!request_progress(w->q, done < w->total ? done : w->total, w->total))
		return err_set(e, -ECANCELED, "canceled");
	return 0;
}

/* -- memory ------------------------------------------------------------------------------------------------- */

static int memory_group(struct work *w, uint64_t first, uint64_t bits, struct err *e)
{
	unsigned from = (unsigned)__builtin_ctzll(bits), to = GROUP - (unsigned)__builtin_clzll(bits);
	int r = read_padded(w->q->in.memory, w->pages, (size_t)(to - from) * SNAP_PAGE_BYTES,
			    (first + from) * SNAP_PAGE_BYTES);

	if (r < 0)
		return err_set(e, r, "reading the template: %s", err_name(r));
	for (unsigned i = from; r == 0 && i < to; i++)
		if (bits >> i & 1)
			r = snap_edit_put(w->edit, first + i, w->pages + (size_t)(i - from) * SNAP_PAGE_BYTES, e);
	return r;
}

/* The 64 bits from @at on, least significant first. */
static uint64_t bits_at(const uint8_t *at)
{
	struct wire_rd rd;

	wire_rd_init(&rd, at, 8);
	return wire_u64(&rd);
}

static int covers(int fd, uint64_t bytes, const char *what, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_set(e, -errno, "%s: %s", what, err_name(-errno));
	if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
		return err_set(e, -EINVAL, "%s: shorter than the memory", what);
	return 0;
}

static int put_memory(struct work *w, struct err *e)
{
	uint64_t pages = w->q->in.memory_pages;
	int r = covers(w->q->in.memory, pages * SNAP_PAGE_BYTES, "the template", e);

	if (r == 0)
		r = covers(w->q->in.bits, (pages + 7) / 8, "the bits of captured pages", e);
	for (uint64_t i = 0; r == 0 && i < pages; i += GROUP) {
		size_t at = (size_t)(i / 8 % BITS_BYTES);
		uint64_t bits;

		if (at == 0 && (r = read_padded(w->q->in.bits, w->bits, BITS_BYTES, i / 8)) < 0)
			return err_set(e, r, "reading which pages were captured: %s", err_name(r));
		bits = bits_at(w->bits + at);
		if (pages - i < GROUP)
			bits &= (1ull << (pages - i)) - 1;
		if (bits)
			r = memory_group(w, i, bits, e);
		if (r == 0 && (bits || at == 0))
			r = advance(w, i + GROUP, e);
	}
	return r;
}

/* -- disk --------------------------------------------------------------------------------------------------- */

static unsigned kind_at(const uint8_t *map, unsigned block)
{
	return map[block / 4] >> (block % 4 * 2) & 3;
}

/* The layer whose block @block (of the held maps) counts, and its kind; 0: none has it. */
static unsigned kind_of(const struct work *w, unsigned block, unsigned *ret_layer)
{
	for (unsigned k = w->q->in.nlayers; k-- > 0;) {
		unsigned kind = kind_at(w->maps[k], block);

		if (kind) {
			*ret_layer = k;
			return kind;
		}
	}
	return 0;
}

static int put_run(struct work *w, unsigned layer, uint64_t first, unsigned n, struct err *e)
{
	int r = read_padded(w->q->in.data[layer], w->pages, (size_t)n * SNAP_PAGE_BYTES, first * SNAP_PAGE_BYTES);

	if (r < 0)
		return err_set(e, r, "reading a layer of the disk: %s", err_name(r));
	for (unsigned i = 0; r == 0 && i < n; i++)
		r = snap_edit_put(w->edit, first + i, w->pages + (size_t)i * SNAP_PAGE_BYTES, e);
	return r;
}

static bool nothing_here(const struct work *w, unsigned block)
{
	static const uint8_t none[GROUP / 4];

	for (unsigned k = 0; k < w->q->in.nlayers; k++)
		if (memcmp(w->maps[k] + block / 4, none, sizeof(none)) != 0)
			return false;
	return true;
}

static int disk_group(struct work *w, uint64_t first, unsigned at, unsigned n, struct err *e)
{
	unsigned i = 0, layer = 0, other = 0, run;
	int r = 0;

	while (r == 0 && i < n) {
		switch (kind_of(w, at + i, &layer)) {
		case 0:
			i++;
			break;
		case 1:
			for (run = 1; i + run < n && kind_of(w, at + i + run, &other) == 1 && other == layer; run++)
				;
			r = put_run(w, layer, first + i, run, e);
			i += run;
			break;
		case 2:
			r = snap_edit_mark(w->edit, first + i, &snap_zero, e);
			i++;
			break;
		default:
			return err_set(e, -EINVAL, "the map of a layer of the disk is none");
		}
	}
	return r;
}

static int put_disk(struct work *w, struct err *e)
{
	const struct ingest *in = &w->q->in;
	uint64_t blocks = in->disk_blocks;
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < blocks; i += GROUP) {
		unsigned at = (unsigned)(i % MAP_BLOCKS);

		for (unsigned k = 0; at == 0 && k < in->nlayers; k++) {
			r = read_padded(in->map[k], w->maps[k], MAP_BYTES, i / 4);
			if (r < 0)
				return err_set(e, r, "reading the map of a layer of the disk: %s", err_name(r));
		}
		if (!nothing_here(w, at))
			r = disk_group(w, i, at, blocks - i < GROUP ? (unsigned)(blocks - i) : GROUP, e);
		else if (at)
			continue;
		if (r == 0)
			r = advance(w, i + GROUP, e);
	}
	return r;
}

/* -- the whole ---------------------------------------------------------------------------------------------- */

static int put_state(struct snap_batch *b, const struct ingest *in, struct snap_manifest *m, struct err *e)
{
	AUTO_FREE uint8_t *data = NULL;
	off_t len = lseek(in->state, 0, SEEK_END);
	int r;

	if (len < 0 || len > SNAP_BLOB_MAX)
		return err_set(e, len < 0 ? -errno : -EFBIG, "device state: %s", err_name(len < 0 ? -errno : -EFBIG));
	if (len == 0)
		return 0;
	data = malloc((size_t)len);
	if (!data)
		return err_set(e, -ENOMEM, "device state: no memory");
	r = read_padded(in->state, data, (size_t)len, 0);
	if (r < 0)
		return err_set(e, r, "device state: reading it: %s", err_name(r));
	m->state_bytes = (uint64_t)len;
	return snap_blob_put(b, data, (size_t)len, &m->state, e);
}

static int put_map(struct snap_batch *b, struct work *w, const struct snap_digest *base, const struct snap_digest *fill,
		   uint64_t entries, int (*put)(struct work *w, struct err *e), struct snap_digest *ret, struct err *e)
{
	struct snap_digest root;
	int r = snap_edit_new(b, base, fill, entries, &w->edit, e), end;

	if (r < 0)
		return r;
	r = put(w, e);
	end = snap_edit_finish(w->edit, &root, r < 0 ? NULL : e);
	if (r == 0)
		r = end;
	if (r == 0)
		*ret = root;
	return r;
}

static int put_all(struct snap_batch *b, struct work *w, const struct snap_manifest *base, struct snap_manifest *m,
		   struct err *e)
{
	const struct ingest *in = &w->q->in;
	int r = put_state(b, in, m, e);

	w->total = in->memory_pages + in->disk_blocks;
	if (r == 0 && in->memory_pages)
		r = put_map(b, w, base->memory_pages ? &base->memory : NULL, &snap_zero, in->memory_pages, put_memory,
			    &m->memory, e);
	w->before = in->memory_pages;
	if (r == 0 && in->disk_blocks)
		r = put_map(b, w, base->disk_blocks ? &base->disk : NULL, &snap_absent, in->disk_blocks, put_disk,
			    &m->disk, e);
	return r;
}

/* The snapshot that this one changes. None: all of it stays empty. */
static int read_base(struct snap *s, const struct ingest *in, struct snap_manifest *ret, struct err *e)
{
	int r;

	if (!*in->base)
		return 0;
	r = snap_manifest_read(s, in->base, ret, e);
	if (r < 0) {
		err_wrap(e, "the base");
		return r;
	}
	if ((in->memory_pages && ret->memory_pages && ret->memory_pages != in->memory_pages) ||
	    (in->disk_blocks && ret->disk_blocks && ret->disk_blocks != in->disk_blocks))
		return err_set(e, -EINVAL, "the base %s is of another size", in->base);
	if (in->memory_whole)
		ret->memory_pages = 0;
	return 0;
}

/* How many pages and blocks are the base's. */
static int count_shared(struct snap *s, const struct snap_manifest *base, const struct snap_manifest *m, uint64_t *ret,
			struct err *e)
{
	uint64_t shared = 0, differ = 0, sum = 0;
	int r = 0;

	if (m->memory_pages && base->memory_pages) {
		r = snap_map_diff(s, &base->memory, &m->memory, m->memory_pages, &shared, &differ, e);
		sum += shared;
	}
	if (r == 0 && m->disk_blocks && base->disk_blocks) {
		shared = 0;
		r = snap_map_diff(s, &base->disk, &m->disk, m->disk_blocks, &shared, &differ, e);
		sum += shared;
	}
	if (r == 0)
		*ret = sum;
	return r;
}

static void add_digest(struct json_object *o, const char *key, const struct snap_digest *d)
{
	char hex[DIGEST_HEX];

	json_object_object_add(o, key, json_object_new_string(digest_hex(d, hex)));
}

static int report(struct request *q, const struct snap_manifest *m, const struct snap_counts *c, uint64_t shared)
{
	AUTO_JSON *o = json_object_new_object();
	const char *line;
	int r = -ENOMEM;

	if (o) {
		json_object_object_add(o, "pages_new", json_object_new_uint64(c->pages_new));
		json_object_object_add(o, "pages_known", json_object_new_uint64(c->pages_known));
		json_object_object_add(o, "pages_zero", json_object_new_uint64(c->pages_zero));
		json_object_object_add(o, "bytes_stored", json_object_new_uint64(c->bytes_stored));
		json_object_object_add(o, "shared_with_parent", json_object_new_uint64(shared));
		add_digest(o, "disk_root", &m->disk);
		add_digest(o, "memory_root", &m->memory);
		line = json_line(o);
		if (line)
			r = wire_put_str(&q->out, line);
	}
	return r < 0 ? err_set(&q->err, r, "answer: %s", err_name(r)) : 0;
}

int ingest_run(struct snap *s, struct request *q)
{
	AUTO_FREE struct work *w = calloc(1, sizeof(*w));
	struct snap_manifest m = { 0 }, base = { 0 };
	struct snap_batch *b = NULL;
	struct snap_counts counts;
	uint64_t shared = 0;
	int r;

	if (!w)
		return err_set(&q->err, -ENOMEM, "ingest: no memory");
	w->q = q;
	memcpy(m.uuid, q->in.uuid, sizeof(m.uuid));
	memcpy(m.parent, q->in.parent, sizeof(m.parent));
	m.created_ns = q->in.created_ns;
	m.memory_pages = q->in.memory_pages;
	m.disk_blocks = q->in.disk_blocks;
	m.disk = snap_absent;
	m.meta = json_object_get(q->in.meta);
	r = read_base(s, &q->in, &base, &q->err);
	if (r == 0)
		r = snap_batch_new(s, &b, &q->err);
	if (r == 0) {
		r = put_all(b, w, &base, &m, &q->err);
		if (r < 0)
			snap_batch_abort(b);
		else
			r = snap_batch_commit(b, &m, &counts, &q->err);
	}
	/* It is stored: what fails from here on is the count alone. */
	if (r == 0 && count_shared(s, &base, &m, &shared, NULL) < 0)
		shared = 0;
	if (r == 0)
		r = report(q, &m, &counts, shared);
	else
		err_wrap(&q->err, "storing snapshot %s", q->in.uuid);
	snap_manifest_fini(&base);
	snap_manifest_fini(&m);
	return r;
}
