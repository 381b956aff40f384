/* SPDX-License-Identifier: Apache-2.0 */
/* Giving back what no manifest reaches.
 *
 * How this works. From each manifest everything reachable is marked, a bit an object, at its newest copy: what is not
 * marked is garbage, older copies too. Packs without a mark are removed. Those of which less than half is marked, and
 * small ones if there is something to join them with, are written anew: frames that are all live are copied as they
 * are, others with what is live in them. When the new packs are durable, the old ones are removed, index first: a
 * reader that has them open reads on; one that comes too late does not find what it looks for, looks at the folder
 * again and finds the new place.
 *
 * It would rather keep than lose: with a manifest or node that cannot be read nothing is removed (-EBADMSG), a pack in
 * which a frame is damaged stays. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "snapstore/snap_priv.h"

enum fate { KEEP, DROP, REWRITE };

struct gc {
	struct snap *s;
	snap_progress_fn *fn;
	void *arg;
	uint64_t done, total;
	bool no_memory;
};

static int progress(struct gc *g, uint64_t more, struct err *e)
{
	g->done += more;
	if (g->fn && !g->fn(g->arg, g->done < g->total ? g->done : g->total, g->total))
		return err_set(e, -ECANCELED, "gc: stopped");
	return 0;
}

/* -- what is reached ---------------------------------------------------------------------------------------- */

static bool mark(struct gc *g, const struct snap_digest *d)
{
	struct where w;
	bool fresh = true;

	if (packs_find(&g->s->packs, d, &w, NULL) < 0)
		return true; /* nothing to keep; a node is gone into, and then told as bad */
	if (!mark_set(w.pack, w.frame, w.slot, &fresh))
		g->no_memory = true;
	return fresh;
}

static bool on_node(void *arg, const struct snap_digest *d)
{
	return mark(arg, d);
}

static int on_leaf(void *arg, const struct snap_digest *v, unsigned n, struct err *e)
{
	struct gc *g = arg;

	for (unsigned i = 0; i < n; i++)
		if (!digest_special(&v[i]))
			mark(g, &v[i]);
	return progress(g, 0, e);
}

static int on_object(void *arg, const struct snap_digest *d, struct err *e)
{
	(void)e;
	mark(arg, d);
	return 0;
}

static int on_bad(void *arg, int code, struct err *e)
{
	(void)arg;
	(void)e;
	return code;
}

static int mark_all(struct gc *g, struct err *e)
{
	static const struct walk_ops ops = { on_node, on_leaf, on_object, on_bad };
	struct snap_manifest m;
	struct uuids all;
	int r = uuids_list(g->s, &all, e);

	for (size_t i = 0; r == 0 && i < all.n; i++) {
		r = snap_manifest_read(g->s, all.v[i], &m, e);
		if (r == 0) {
			r = walk_manifest(g->s, &m, &ops, g, e);
			snap_manifest_fini(&m);
		}
		if (r < 0 && r != -ECANCELED)
			err_wrap(e, "gc: snapshot %s (nothing was removed)", all.v[i]);
	}
	if (r == 0 && g->no_memory)
		r = err_set(e, -ENOMEM, "gc: no memory");
	uuids_fini(&all);
	return r;
}

/* -- packs -------------------------------------------------------------------------------------------------- */

static uint64_t live_bytes(const struct pack *p)
{
	uint64_t sum = 0;
	struct place place;

	for (uint32_t i = 0; p->marks && i < p->x.nframes; i++) {
		unsigned live = (unsigned)__builtin_popcount(p->marks[i]);

		if (live && index_frame(&p->x, i, &place, NULL) == 0 && place.count)
			sum += (uint64_t)place.bytes * live / place.count;
	}
	return sum;
}

/* Worth joining with others; what is full of tiny objects is not. */
static bool small(const struct pack *p)
{
	return p->x.pack_bytes < SNAP_SMALL_BYTES && p->x.nobjects < SNAP_PACK_OBJECTS / 2;
}

static void decide(struct gc *g, enum fate *fates)
{
	struct packs *all = &g->s->packs;
	size_t joined = 0;

	for (size_t i = 0; i < all->n; i++) {
		uint64_t live = live_bytes(all->v[i]);

		fates[i] = !live ? DROP : live < all->v[i]->x.pack_bytes / 2 ? REWRITE : KEEP;
		joined += fates[i] == REWRITE || (live && small(all->v[i]));
	}
	for (size_t i = 0; i < all->n; i++) {
		if (fates[i] == KEEP && joined > 1 && small(all->v[i]))
			fates[i] = REWRITE;
		if (fates[i] == REWRITE)
			g->total += all->v[i]->x.pack_bytes;
	}
}

/* The loaded frame's live objects, into the new pack. */
static int move_frame(struct gc *g, struct packer *to, uint16_t live, uint32_t bytes, uint8_t *raw, struct err *e)
{
	const struct frame *f = &g->s->last.f;
	struct snap_digest digests[SNAP_WINDOW_PAGES];
	uint32_t n = 0;

	if (live == (1u << f->count) - 1)
		return packer_copy(to, g->s->last.bytes, bytes, f, e);
	for (uint32_t k = 0; k < f->count; k++) {
		if (!(live >> k & 1))
			continue;
		memcpy(raw + (size_t)n * f->unit, g->s->last.raw + (size_t)k * f->unit, f->unit);
		digests[n++] = f->digests[k];
	}
	return n ? packer_frame(to, raw, f->unit, n, digests, e) : 0;
}

/* *ret_whole: all that is live was moved. */
static int rewrite(struct gc *g, struct pack *p, struct packer *to, uint8_t *raw, bool *ret_whole, struct err *e)
{
	struct place place;
	int r = 0;

	*ret_whole = true;
	for (uint32_t i = 0; r == 0 && i < p->x.nframes; i++) {
		if (!p->marks || !p->marks[i])
			continue;
		r = index_frame(&p->x, i, &place, e);
		if (r == 0)
			r = snap_frame_load(g->s, p, i, &place, e);
		if (r == -EBADMSG || r == -EIO) {
			*ret_whole = false;
			r = 0;
			continue;
		}
		if (r == 0)
			r = move_frame(g, to, p->marks[i], place.bytes, raw, e);
		if (r == 0)
			r = progress(g, place.bytes, e);
	}
	return r;
}

static int rewrite_all(struct gc *g, struct pack **packs, enum fate *fates, size_t n, struct err *e)
{
	AUTO_FREE uint8_t *raw = malloc(FRAME_RAW_MAX);
	struct packer *to = NULL;
	bool whole;
	int r;

	if (!raw)
		return err_set(e, -ENOMEM, "gc: no memory");
	r = packer_new(g->s, &to, e);
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (fates[i] != REWRITE)
			continue;
		r = rewrite(g, packs[i], to, raw, &whole, e);
		if (!whole)
			fates[i] = KEEP;
	}
	if (r == 0)
		r = packer_finish(to, e);
	packer_free(to, r < 0);
	return r;
}

static void drop(struct gc *g, const struct pack *p)
{
	static const char *const suffixes[] = { ".idx", ".pack" };
	uint64_t id = p->id;
	char name[32];

	for (size_t k = 0; k < ARRAY_LEN(suffixes); k++) {
		pack_name(id, suffixes[k], name);
		unlinkat(g->s->packs_fd, name, 0);
	}
	packs_forget(&g->s->packs, id);
}

static int collect(struct gc *g, struct err *e)
{
	size_t n = g->s->packs.n, some = 0;
	AUTO_FREE enum fate *fates = calloc(n + 1, sizeof(*fates));
	AUTO_FREE struct pack **packs = calloc(n + 1, sizeof(*packs)); /* NOLINT(bugprone-sizeof-expression) */
	int r = 0;

	if (!fates || !packs)
		return err_set(e, -ENOMEM, "gc: no memory");
	decide(g, fates);
	for (size_t i = 0; i < n; i++)
		packs[i] = pack_ref(g->s->packs.v[i]);
	/* First what needs no room. */
	for (size_t i = 0; i < n; i++) {
		if (fates[i] == DROP)
			drop(g, packs[i]);
		some += fates[i] == REWRITE;
	}
	if (some)
		r = rewrite_all(g, packs, fates, n, e);
	for (size_t i = 0; i < n; i++) {
		if (r == 0 && fates[i] == REWRITE)
			drop(g, packs[i]);
		pack_unref(packs[i]);
	}
	return r;
}

/* -- what crashes left -------------------------------------------------------------------------------------- */

static bool ends(const char *name, const char *suffix)
{
	size_t len = strlen(name), n = strlen(suffix);

	return len > n && strcmp(name + len - n, suffix) == 0;
}

static bool lacks(struct snap *s, const char *name, const char *suffix, const char *other)
{
	char twin[64];

	if (!ends(name, suffix) || strlen(name) > 40)
		return false;
	snprintf(twin, sizeof(twin), "%.*s%s", (int)(strlen(name) - strlen(suffix)), name, other);
	return faccessat(s->packs_fd, twin, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* A pack without an index, an index without a pack, or one that has not got its name. */
static bool pack_leftover(struct snap *s, const char *name)
{
	return ends(name, ".idx.new") || lacks(s, name, ".pack", ".idx") || lacks(s, name, ".idx", ".pack");
}

static bool manifest_leftover(struct snap *s, const char *name)
{
	(void)s;
	return strstr(name, ".new-") != NULL; /* fd_replace() names them so */
}

static void sweep(struct snap *s, int folder, bool (*leftover)(struct snap *s, const char *name))
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		fd_close(&fd);
		return;
	}
	while ((entry = readdir(dir)))
		if (leftover(s, entry->d_name))
			unlinkat(folder, entry->d_name, 0);
	fsync(fd);
	closedir(dir);
}

static void measure(const struct snap *s, uint64_t *bytes, uint64_t *packs, uint64_t *pages)
{
	*bytes = *pages = 0;
	*packs = s->packs.n;
	for (size_t i = 0; i < s->packs.n; i++) {
		*bytes += s->packs.v[i]->x.pack_bytes + s->packs.v[i]->len;
		*pages += s->packs.v[i]->x.npages;
	}
}

int snap_gc(struct snap *s, snap_progress_fn *fn, void *arg, struct snap_gc *ret, struct err *e)
{
	struct gc g = { .s = s, .fn = fn, .arg = arg };
	uint64_t before, after;
	struct snap_gc out;
	int r;

	if (!s->write)
		return err_set(e, -EROFS, "snapstore: opened for reading");
	if (s->batch)
		return err_set(e, -EBUSY, "gc: a batch is open");
	measure(s, &out.bytes_before, &out.packs_before, &before);
	marks_clear(s);
	r = mark_all(&g, e);
	if (r == 0)
		r = collect(&g, e);
	if (r == 0) {
		sweep(s, s->packs_fd, pack_leftover);
		sweep(s, s->manifests_fd, manifest_leftover);
	}
	marks_clear(s);
	s->last.pack = pack_unref(s->last.pack); /* it may be one that went: its space, too */
	if (r < 0)
		return r;
	measure(s, &out.bytes_after, &out.packs_after, &after);
	out.pages_dropped = before > after ? before - after : 0;
	*ret = out;
	return 0;
}
