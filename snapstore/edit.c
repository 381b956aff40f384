/* SPDX-License-Identifier: Apache-2.0 */
/* A new version of a map.
 *
 * How this works. Entries come in growing order, so one path from the root to a leaf is open at a time, in d->at[]:
 * each node as it was in the base, or all fill. Going to the next leaf closes what does not hold it, from the leaf up:
 * a node that changed is stored, unless it is there, and its digest put into its parent; one that did not change costs
 * nothing.
 *
 * Pages are gathered by window of 16. When a window ends, those that are new go into one frame. When its 16 entries
 * would then lie in more than four frames, the whole window is stored anew in one, so that a later reader needs one
 * read: what is found for a digest is always the newest copy. */
#include <stdlib.h>
#include <string.h>
#include "snapstore/snap_priv.h"

struct open_node {
	bool open, changed;
	uint64_t first; /* entry of the map */
	struct node node;
};

struct spot { /* a frame: of a pack, or (pack NULL) of the one that is being written */
	struct pack *pack;
	uint32_t frame;
};

struct snap_edit {
	struct snap_batch *b;
	struct snap_edit *next;
	uint64_t entries;
	uint64_t from; /* the smallest index that may come */
	unsigned levels;
	struct snap_digest root;
	struct open_node at[NODE_LEVELS];
	uint64_t window; /* first entry of the one that is gathered */
	uint32_t put;	 /* bits: its pages that are in raw */
	bool changed;	 /* one of them is another than it was */
	uint8_t raw[SNAP_WINDOW_PAGES * SNAP_PAGE_BYTES];
	uint8_t out[SNAP_WINDOW_PAGES * SNAP_PAGE_BYTES];
	uint8_t old[FRAME_RAW_MAX];
	uint8_t bytes[FRAME_MAX];
};

int snap_edit_new(struct snap_batch *b, const struct snap_digest *base, const struct snap_digest *fill,
		  uint64_t entries, struct snap_edit **ret, struct err *e)
{
	struct snap_edit *d;

	if (entries < 1 || entries > NODE_ENTRIES_MAX)
		return err_set(e, -EINVAL, "a map of %llu entries", (unsigned long long)entries);
	if (!base && !digest_special(fill))
		return err_set(e, -EINVAL, "a map is filled with zeros or with nothing");
	d = calloc(1, sizeof(*d));
	if (!d)
		return batch_failed(b, err_set(e, -ENOMEM, "map: no memory"));
	d->b = b;
	d->entries = entries;
	d->levels = node_levels(entries);
	d->root = base ? *base : *fill;
	d->next = b->edits;
	b->edits = d;
	*ret = d;
	return 0;
}

struct snap_edit *edit_free(struct snap_edit *d)
{
	struct snap_edit **at = &d->b->edits;

	while (*at != d)
		at = &(*at)->next;
	*at = d->next;
	free(d);
	return NULL;
}

/* -- windows ------------------------------------------------------------------------------------------------------ */

/* Where the newest copy is: -ENOENT nowhere. */
static int locate(struct snap_edit *d, const struct snap_digest *x, struct spot *ret, struct err *e)
{
	struct where w;
	uint32_t slot;
	int r;

	ret->pack = NULL;
	if (packer_find(d->b->packer, x, &ret->frame, &slot))
		return 0;
	r = packs_find(&d->b->s->packs, x, &w, e);
	if (r == 0)
		*ret = (struct spot){ w.pack, w.frame };
	return r;
}

/* A page of the base, for a window that is stored anew. */
static int fetch(struct snap_edit *d, const struct snap_digest *x, uint8_t *page, struct err *e)
{
	uint32_t number, slot;
	struct frame f;
	size_t len;
	int r;

	if (!packer_find(d->b->packer, x, &number, &slot))
		return snap_page_read(d->b->s, x, page, e);
	r = packer_read(d->b->packer, number, d->bytes, &len, e);
	if (r == 0)
		r = frame_open(&d->b->s->hash, d->bytes, len, &f, e);
	if (r == 0 && f.unit != SNAP_PAGE_BYTES)
		r = err_set(e, -EBADMSG, "not a page");
	if (r == 0)
		r = frame_unpack(&f, d->old, e);
	if (r == 0)
		memcpy(page, d->old + (size_t)slot * SNAP_PAGE_BYTES, SNAP_PAGE_BYTES);
	return r;
}

static bool among(const struct snap_digest *v, unsigned n, const struct snap_digest *x)
{
	while (n > 0 && !snap_digest_equal(&v[n - 1], x))
		n--;
	return n > 0;
}

struct window {
	const struct snap_digest *v; /* its entries */
	unsigned n;
	uint32_t fresh;	 /* bits: pages that are in no pack */
	unsigned frames; /* that hold the others */
};

static int survey(struct snap_edit *d, struct window *w, struct err *e)
{
	struct spot spots[SNAP_WINDOW_PAGES], spot;

	for (unsigned i = 0; i < w->n; i++) {
		bool mine = d->put >> i & 1;
		unsigned k = 0;
		int r;

		if (digest_special(&w->v[i]))
			continue;
		r = locate(d, &w->v[i], &spot, e);
		if (r == -ENOENT && mine && !among(w->v, i, &w->v[i])) {
			w->fresh |= 1u << i;
			d->b->counts.pages_new++;
			continue;
		}
		if (mine)
			d->b->counts.pages_known++;
		if (r == -ENOENT) /* the same page twice in this window; or the base lacks it */
			continue;
		if (r < 0)
			return r;
		while (k < w->frames && (spots[k].pack != spot.pack || spots[k].frame != spot.frame))
			k++;
		if (k == w->frames)
			spots[w->frames++] = spot;
	}
	return 0;
}

/* All of the window, each page once, in d->out. False: something of the base cannot be read, and is left where it is.
 */
static bool gather_all(struct snap_edit *d, const struct window *w, struct snap_digest *digests, unsigned *ret_n)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w->n; i++) {
		uint8_t *to = d->out + (size_t)n * SNAP_PAGE_BYTES;

		if (digest_special(&w->v[i]) || among(digests, n, &w->v[i]))
			continue;
		if (d->put >> i & 1)
			memcpy(to, d->raw + (size_t)i * SNAP_PAGE_BYTES, SNAP_PAGE_BYTES);
		else if (fetch(d, &w->v[i], to, NULL) < 0)
			return false;
		digests[n++] = w->v[i];
	}
	*ret_n = n;
	return true;
}

static int flush_window(struct snap_edit *d, struct err *e)
{
	unsigned at = (unsigned)(d->window % SNAP_NODE_ENTRIES), n = 0;
	struct node *leaf = &d->at[0].node;
	struct window w = { .v = leaf->v + at, .n = leaf->n - at };
	struct snap_digest digests[SNAP_WINDOW_PAGES];
	int r = 0;

	if (!d->put)
		return 0;
	if (w.n > SNAP_WINDOW_PAGES)
		w.n = SNAP_WINDOW_PAGES;
	if (!d->changed)
		d->b->counts.pages_known += (unsigned)__builtin_popcount(d->put);
	else
		r = survey(d, &w, e);
	if (r < 0)
		return r;
	if (w.frames + (w.fresh != 0) <= SNAP_FRAMES_A_WINDOW || !gather_all(d, &w, digests, &n)) {
		n = 0;
		for (unsigned i = 0; i < w.n; i++) {
			if (!(w.fresh >> i & 1))
				continue;
			memcpy(d->out + (size_t)n * SNAP_PAGE_BYTES, d->raw + (size_t)i * SNAP_PAGE_BYTES,
			       SNAP_PAGE_BYTES);
			digests[n++] = w.v[i];
		}
	}
	d->put = 0;
	d->changed = false;
	return n ? packer_frame(d->b->packer, d->out, SNAP_PAGE_BYTES, n, digests, e) : 0;
}

/* -- nodes -------------------------------------------------------------------------------------------------------- */

/* Where the digest of the open node of @level stands: in its parent, or it is the root. */
static struct snap_digest *entry_of(struct snap_edit *d, unsigned level, uint64_t first)
{
	if (level + 1 == d->levels)
		return &d->root;
	return &d->at[level + 1].node.v[(first / node_span(level + 1)) % SNAP_NODE_ENTRIES];
}

static int close_node(struct snap_edit *d, unsigned level, struct err *e)
{
	uint8_t data[NODE_BYTES_MAX];
	struct open_node *o = &d->at[level];
	struct snap_digest digest;
	bool fresh = false;
	int r = 0;

	if (o->open && o->changed) {
		if (!node_uniform(&o->node, &digest))
			r = batch_object(d->b, data, node_pack(&o->node, data), &digest, &fresh, e);
		if (r < 0)
			return r;
		d->b->counts.nodes_new += fresh;
		*entry_of(d, level, o->first) = digest;
		if (level + 1 < d->levels)
			d->at[level + 1].changed = true;
	}
	o->open = false;
	return 0;
}

static int open_node(struct snap_edit *d, unsigned level, uint64_t index, struct err *e)
{
	struct open_node *o = &d->at[level];
	const struct snap_digest *digest;
	const struct node *old;
	int r;

	o->first = index & ~(node_span(level + 1) - 1);
	o->changed = false;
	digest = entry_of(d, level, o->first);
	o->node.level = level;
	o->node.n = node_count(d->entries, level, index);
	if (digest_special(digest)) {
		for (unsigned i = 0; i < o->node.n; i++)
			o->node.v[i] = *digest;
	} else {
		r = nodes_get(d->b->s, digest, level, o->node.n, &old, e);
		if (r < 0)
			return r;
		o->node = *old;
	}
	o->open = true;
	return 0;
}

/* Open the leaf of @index, the window too. */
static int seek(struct snap_edit *d, uint64_t index, struct err *e)
{
	uint64_t window = index & ~(uint64_t)(SNAP_WINDOW_PAGES - 1);
	unsigned level = 0;
	int r;

	if (d->at[0].open && d->window == window)
		return 0;
	if (d->at[0].open && (r = flush_window(d, e)) < 0)
		return r;
	while (level < d->levels && (!d->at[level].open || index - d->at[level].first >= node_span(level + 1))) {
		r = close_node(d, level, e);
		if (r < 0)
			return r;
		level++;
	}
	while (level-- > 0) {
		r = open_node(d, level, index, e);
		if (r < 0)
			return r;
	}
	d->window = window;
	return 0;
}

static int begin(struct snap_edit *d, uint64_t index, struct err *e)
{
	int r;

	if (index < d->from || index >= d->entries)
		return err_set(e, -EINVAL, "map: entry %llu is outside, or comes after a larger one",
			       (unsigned long long)index);
	d->from = index + 1;
	r = seek(d, index, e);
	return r < 0 ? batch_failed(d->b, r) : 0;
}

static void set(struct snap_edit *d, uint64_t index, const struct snap_digest *x)
{
	struct snap_digest *at = &d->at[0].node.v[index % SNAP_NODE_ENTRIES];

	if (snap_digest_equal(at, x))
		return;
	*at = *x;
	d->at[0].changed = true;
	d->changed = true;
}

int snap_edit_put(struct snap_edit *d, uint64_t index, const void *page, struct err *e)
{
	unsigned slot = index % SNAP_WINDOW_PAGES;
	struct snap_digest x;
	int r = begin(d, index, e);

	if (r < 0)
		return r;
	d->b->counts.pages_seen++;
	if (page_is_zero(page)) {
		d->b->counts.pages_zero++;
		set(d, index, &snap_zero);
		return 0;
	}
	if (hasher_sum(&d->b->s->hash, page, SNAP_PAGE_BYTES, &x) < 0)
		return batch_failed(d->b, err_set(e, -EIO, "SHA-256 of a page failed"));
	memcpy(d->raw + (size_t)slot * SNAP_PAGE_BYTES, page, SNAP_PAGE_BYTES);
	d->put |= 1u << slot;
	set(d, index, &x);
	return 0;
}

int snap_edit_mark(struct snap_edit *d, uint64_t index, const struct snap_digest *special, struct err *e)
{
	int r;

	if (!digest_special(special))
		return err_set(e, -EINVAL, "map: only zeros and nothing are marked");
	r = begin(d, index, e);
	if (r == 0)
		set(d, index, special);
	return r;
}

int snap_edit_finish(struct snap_edit *d, struct snap_digest *ret_root, struct err *e)
{
	int r = d->at[0].open ? flush_window(d, e) : 0;

	for (unsigned level = 0; r == 0 && level < d->levels; level++)
		r = close_node(d, level, e);
	if (r == 0)
		*ret_root = d->root;
	else
		batch_failed(d->b, r);
	edit_free(d);
	return r;
}
