/* SPDX-License-Identifier: Apache-2.0 */
/* The lowest layer when it is a disk map of the snapstore. Blocks come in windows of 64 KiB, as the store's frames are;
 * a bounded number of windows is kept for all disks, the least recently used goes first. Reading is in place: the block
 * server does nothing else for the one who waits. */
#include "snapstore/disk/disk_priv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define WINDOWS_MAX  128u /* 8 MiB */
#define WINDOW_BYTES (SNAP_WINDOW_PAGES * SNAP_PAGE_BYTES)

static_assert(SNAP_PAGE_BYTES == DISK_BLOCK_BYTES, "a block is a page");

struct storelayer {
	struct storelayer *next;
	unsigned users;
	struct snap_digest root;
	uint64_t blocks;
	struct snap_map *map;
};

struct window {
	const struct storelayer *of; /* NULL: empty */
	uint64_t index, used;	     /* used: the clock at the last use */
	uint32_t absent;
	uint8_t *pages;
};

struct store_state {
	struct storelayer *open;
	struct snap_reader *reader;
	uint64_t clock;
	struct window windows[WINDOWS_MAX];
};

static int state_need(struct disks *d, struct err *e)
{
	bool uring;
	int r;

	if (d->store)
		return 0;
	if (!d->snap)
		return err_set(e, -EINVAL, "disk: there is no snapstore here");
	d->store = calloc(1, sizeof(*d->store));
	if (!d->store)
		return err_set(e, -ENOMEM, "disk: no memory");
	r = snap_reader_new(d->snap, 1, false, &d->store->reader, &uring, e);
	if (r < 0) {
		free(d->store);
		d->store = NULL;
	}
	return r;
}

int storelayer_open(struct disks *d, const struct snap_digest *root, uint64_t blocks, struct storelayer **ret,
		    struct err *e)
{
	struct storelayer *s;
	int r = state_need(d, e);

	if (r < 0)
		return r;
	for (s = d->store->open; s; s = s->next) {
		if (s->blocks == blocks && snap_digest_equal(&s->root, root)) {
			s->users++;
			*ret = s;
			return 0;
		}
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return err_set(e, -ENOMEM, "disk: no memory");
	r = snap_map_open(d->snap, root, blocks, &s->map, e);
	if (r < 0) {
		free(s);
		return r;
	}
	s->root = *root;
	s->blocks = blocks;
	s->users = 1;
	s->next = d->store->open;
	d->store->open = s;
	*ret = s;
	return 0;
}

struct storelayer *storelayer_close(struct disks *d, struct storelayer *s)
{
	struct storelayer **at;

	if (!s || --s->users > 0)
		return NULL;
	for (at = &d->store->open; *at != s; at = &(*at)->next)
		;
	*at = s->next;
	for (unsigned i = 0; i < WINDOWS_MAX; i++) {
		struct window *w = &d->store->windows[i];

		if (w->of != s)
			continue;
		free(w->pages);
		*w = (struct window){ 0 };
	}
	snap_map_close(s->map);
	free(s);
	return NULL;
}

void storelayer_end(struct disks *d)
{
	if (!d->store)
		return;
	snap_reader_free(d->store->reader);
	free(d->store);
	d->store = NULL;
}

struct result {
	bool done;
	int code;
	struct err err;
};

static void on_read(void *arg, int code, const struct err *e)
{
	struct result *res = arg;

	res->done = true;
	res->code = code;
	if (code < 0 && e)
		res->err = *e;
}

static int load(struct disks *d, struct storelayer *s, uint64_t index, struct window *w, struct err *e)
{
	struct result res = { 0 };
	uint64_t first = index * SNAP_WINDOW_PAGES;
	unsigned n = s->blocks - first < SNAP_WINDOW_PAGES ? (unsigned)(s->blocks - first) : SNAP_WINDOW_PAGES;
	int r;

	w->of = NULL;
	if (!w->pages)
		w->pages = malloc(WINDOW_BYTES);
	if (!w->pages)
		return err_set(e, -ENOMEM, "no memory for a window of the store");
	r = snap_read(d->store->reader, s->map, first, n, w->pages, &w->absent, on_read, &res, e);
	if (r < 0)
		return r;
	/* Without a ring the read is done inside; each poll brings it nearer. */
	while (!res.done)
		snap_reader_poll(d->store->reader);
	if (res.code < 0)
		return err_set(e, res.code, "%s", res.err.msg);
	w->of = s;
	w->index = index;
	return 0;
}

static int window_of(struct disks *d, struct storelayer *s, uint64_t index, struct window **ret, struct err *e)
{
	struct store_state *st = d->store;
	struct window *oldest = &st->windows[0];
	int r;

	for (unsigned i = 0; i < WINDOWS_MAX; i++) {
		struct window *w = &st->windows[i];

		if (w->of == s && w->index == index) {
			w->used = ++st->clock;
			*ret = w;
			return 0;
		}
		if (w->used < oldest->used)
			oldest = w;
	}
	r = load(d, s, index, oldest, e);
	if (r < 0)
		return r;
	oldest->used = ++st->clock;
	*ret = oldest;
	return 0;
}

int storelayer_read(struct disks *d, struct storelayer *s, void *buf, uint64_t off, uint32_t len, uint32_t *ret_len,
		    bool *ret_absent, struct err *e)
{
	unsigned in = (unsigned)(off % WINDOW_BYTES), page = in / SNAP_PAGE_BYTES, end = page + 1, room;
	struct window *w;
	bool absent;
	int r = window_of(d, s, off / WINDOW_BYTES, &w, e);

	if (r < 0)
		return r;
	absent = w->absent >> page & 1;
	while (end < SNAP_WINDOW_PAGES && (w->absent >> end & 1) == absent)
		end++;
	room = end * SNAP_PAGE_BYTES - in;
	*ret_len = room < len ? room : len;
	*ret_absent = absent;
	if (!absent)
		memcpy(buf, w->pages + in, *ret_len);
	return 0;
}
