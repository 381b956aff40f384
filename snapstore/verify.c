/* SPDX-License-Identifier: Apache-2.0 */
/* Reading everything and checking all that can be checked. What is damaged is counted, not an error. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "snapstore/snap_priv.h"

struct verify {
	struct snap *s;
	struct snap_report rep;
	snap_progress_fn *fn;
	void *arg;
	uint64_t done, total;
	bool pages; /* read them; else only see that they are somewhere */
};

static void damaged(struct verify *v, uint64_t n, const struct err *e)
{
	if (!v->rep.damaged)
		snprintf(v->rep.first, sizeof(v->rep.first), "%.159s", e->msg);
	v->rep.damaged += n;
}

/* Errors that are no damage end it. */
static int judge(struct verify *v, int code, const struct err *e)
{
	if (code != -EBADMSG && code != -EIO)
		return code;
	damaged(v, 1, e);
	return 0;
}

static int progress(struct verify *v, uint64_t more, struct err *e)
{
	v->done += more;
	if (v->fn && !v->fn(v->arg, v->done < v->total ? v->done : v->total, v->total))
		return err_set(e, -ECANCELED, "verify: stopped");
	return 0;
}

static bool on_node(void *arg, const struct snap_digest *d)
{
	struct verify *v = arg;
	struct where w;
	bool fresh = true;

	/* One that is nowhere is gone into, so that it is told. */
	if (packs_find(&v->s->packs, d, &w, NULL) == 0 && mark_set(w.pack, w.frame, w.slot, &fresh) && !fresh)
		return false;
	v->rep.nodes++;
	return true;
}

static int check_object(struct verify *v, const struct snap_digest *d, uint32_t want, struct err *e)
{
	char hex[DIGEST_HEX];
	const uint8_t *data;
	struct where w;
	bool fresh = true;
	uint32_t len;
	int r = snap_find(v->s, d, &w, e);

	if (r < 0)
		return judge(v, r, e);
	if (!v->pages || (mark_set(w.pack, w.frame, w.slot, &fresh) && !fresh))
		return 0;
	r = snap_object(v->s, d, true, &data, &len, e);
	if (r == 0 && want && len != want)
		r = err_set(e, -EBADMSG, "%.16s is no page", digest_hex(d, hex));
	v->rep.pages += r == 0 && len == SNAP_PAGE_BYTES;
	return judge(v, r, e);
}

static int on_leaf(void *arg, const struct snap_digest *d, unsigned n, struct err *e)
{
	struct verify *v = arg;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < n; i++)
		if (!digest_special(&d[i]))
			r = check_object(v, &d[i], SNAP_PAGE_BYTES, e);
	return r < 0 ? r : progress(v, v->pages ? n : 0, e);
}

static int on_object(void *arg, const struct snap_digest *d, struct err *e)
{
	return check_object(arg, d, 0, e);
}

static int on_bad(void *arg, int code, struct err *e)
{
	return judge(arg, code, e);
}

static int verify_manifest(struct verify *v, const char *uuid, struct err *e)
{
	static const struct walk_ops ops = { on_node, on_leaf, on_object, on_bad };
	struct snap_manifest m;
	int r = snap_manifest_read(v->s, uuid, &m, e);

	if (r < 0)
		return judge(v, r, e);
	if (v->pages)
		v->total = m.memory_pages + m.disk_blocks;
	r = walk_manifest(v->s, &m, &ops, v, e);
	snap_manifest_fini(&m);
	return r;
}

/* Every object of the frame that was loaded; how many of them the index leads to here. */
static int verify_frame(struct verify *v, const struct pack *p, uint32_t frame, uint32_t *indexed, struct err *e)
{
	const struct frame *f = &v->s->last.f;
	char hex[DIGEST_HEX];
	struct snap_digest sum;

	for (uint32_t k = 0; k < f->count; k++) {
		uint32_t pos, at, slot;

		if (hasher_sum(&v->s->hash, v->s->last.raw + (size_t)k * f->unit, f->unit, &sum) < 0)
			return err_set(e, -EIO, "SHA-256 of an object failed");
		if (!snap_digest_equal(&sum, &f->digests[k])) {
			err_set(e, -EBADMSG, "pack %016" PRIx64 ": what it has as %.16s is something else", p->id,
				digest_hex(&f->digests[k], hex));
			damaged(v, 1, e);
		}
		v->rep.pages += f->unit == SNAP_PAGE_BYTES;
		if (index_find(&p->x, &f->digests[k], &pos) && index_place(&p->x, pos, &at, &slot, NULL) == 0 &&
		    at == frame && slot == k)
			++*indexed;
	}
	return 0;
}

static int verify_pack(struct verify *v, struct pack *p, struct err *e)
{
	uint32_t indexed = 0;
	bool whole = true;
	struct place place;
	int r = index_check(&v->s->hash, p->data, p->len, e);

	if (r < 0) {
		err_wrap(e, "pack %016" PRIx64, p->id);
		damaged(v, 1, e);
		whole = false;
	}
	for (uint32_t i = 0; i < p->x.nframes; i++) {
		r = index_frame(&p->x, i, &place, e);
		if (r == 0)
			r = snap_frame_load(v->s, p, i, &place, e);
		if (r == 0)
			r = verify_frame(v, p, i, &indexed, e);
		if (r < 0 && r != -EBADMSG && r != -EIO)
			return r;
		if (r < 0) {
			damaged(v, place.count && place.count <= SNAP_WINDOW_PAGES ? place.count : 1, e);
			whole = false;
		}
		r = progress(v, place.bytes, e);
		if (r < 0)
			return r;
	}
	if (whole && indexed != p->x.nobjects) {
		err_set(e, -EBADMSG, "pack %016" PRIx64 ": its index names what it has not", p->id);
		damaged(v, p->x.nobjects - indexed, e);
	}
	return 0;
}

static int verify_all(struct verify *v, struct err *e)
{
	struct uuids all;
	int r = uuids_list(v->s, &all, e);

	if (r < 0)
		return r;
	for (size_t i = 0; i < v->s->packs.n; i++)
		v->total += v->s->packs.v[i]->x.pack_bytes;
	for (size_t i = 0; r == 0 && i < v->s->packs.n; i++) {
		struct pack *p = pack_ref(v->s->packs.v[i]);

		r = verify_pack(v, p, e);
		pack_unref(p);
	}
	if (r == 0 && v->s->packs.bad[0]) {
		err_set(e, -EBADMSG, "%s", v->s->packs.bad);
		damaged(v, 1, e);
	}
	for (size_t i = 0; r == 0 && i < all.n; i++) {
		r = verify_manifest(v, all.v[i], e);
		if (r == -ENOENT) /* removed meanwhile */
			r = 0;
	}
	uuids_fini(&all);
	return r;
}

int snap_verify(struct snap *s, const char *uuid, snap_progress_fn *fn, void *arg, struct snap_report *ret,
		struct err *e)
{
	struct verify v = { .s = s, .fn = fn, .arg = arg, .pages = uuid != NULL };
	struct err own = { 0 };
	uint64_t before;
	int r;

	if (!e)
		e = &own; /* the words go into the report, too */
	/* What is looked at is what the disk has, not what was read before. */
	s->last.pack = pack_unref(s->last.pack);
	nodes_forget(&s->nodes);
	before = s->bytes_read;
	r = snap_refresh(s, e);
	if (r == 0) {
		marks_clear(s);
		r = uuid ? verify_manifest(&v, uuid, e) : verify_all(&v, e);
		marks_clear(s);
	}
	v.rep.bytes_read = s->bytes_read - before;
	if (r == 0)
		*ret = v.rep;
	return r;
}
