/* SPDX-License-Identifier: Apache-2.0 */
/* From a manifest to everything that it needs. Shared parts are gone through as often as the caller's node() says. */
#include <stdlib.h>
#include <string.h>
#include "snapstore/blob.h"
#include "snapstore/snap_priv.h"

struct walk {
	struct snap *s;
	const struct walk_ops *ops;
	void *arg;
	uint64_t entries;
};

/* At most NODE_LEVELS deep. */
static int walk_node(struct walk *w, const struct snap_digest *d, unsigned level, uint64_t first, struct err *e)
{
	AUTO_FREE struct node *own = NULL;
	const struct node *n;
	int r;

	if (digest_special(d) || !w->ops->node(w->arg, d))
		return 0;
	r = nodes_get(w->s, d, level, node_count(w->entries, level, first), &n, e);
	if (r < 0)
		return w->ops->bad(w->arg, r, e);
	if (level == 0)
		return w->ops->leaf(w->arg, n->v, n->n, e);
	own = malloc(sizeof(*own));
	if (!own)
		return err_set(e, -ENOMEM, "map: no memory");
	*own = *n;
	for (unsigned i = 0; r == 0 && i < own->n; i++)
		r = walk_node(w, &own->v[i], level - 1, first + i * node_span(level), e);
	return r;
}

static int walk_map(struct walk *w, const struct snap_digest *root, uint64_t entries, struct err *e)
{
	w->entries = entries;
	return entries ? walk_node(w, root, node_levels(entries) - 1, 0, e) : 0;
}

static int walk_blob(struct walk *w, const struct snap_digest *d, struct err *e)
{
	const uint8_t *data;
	struct blob blob;
	uint32_t len;
	int r = w->ops->object(w->arg, d, e);

	if (r < 0)
		return r;
	r = snap_object(w->s, d, true, &data, &len, e);
	if (r == 0)
		r = blob_parse(data, len, &blob, e);
	if (r < 0)
		return w->ops->bad(w->arg, r, e);
	for (uint32_t i = 0; r == 0 && i < blob.n; i++)
		r = w->ops->object(w->arg, &blob.pieces[i], e);
	return r;
}

int walk_manifest(struct snap *s, const struct snap_manifest *m, const struct walk_ops *ops, void *arg, struct err *e)
{
	struct walk w = { .s = s, .ops = ops, .arg = arg };
	int r = walk_map(&w, &m->memory, m->memory_pages, e);

	if (r == 0)
		r = walk_map(&w, &m->disk, m->disk_blocks, e);
	if (r == 0 && m->state_bytes)
		r = walk_blob(&w, &m->state, e);
	return r;
}

static bool add_uuid(void *arg, const char *uuid)
{
	struct uuids *u = arg;

	if (u->n == u->cap) {
		size_t cap = u->cap ? u->cap * 2 : 64;
		void *more = realloc(u->v, cap * sizeof(*u->v));

		if (!more) {
			u->no_memory = true;
			return false;
		}
		u->v = more;
		u->cap = cap;
	}
	memcpy(u->v[u->n++], uuid, SNAP_UUID_LEN + 1);
	return true;
}

int uuids_list(struct snap *s, struct uuids *ret, struct err *e)
{
	int r;

	*ret = (struct uuids){ 0 };
	r = snap_manifest_each(s, add_uuid, ret, e);
	if (r == 0 && ret->no_memory)
		r = err_set(e, -ENOMEM, "manifests: no memory");
	if (r < 0)
		uuids_fini(ret);
	return r;
}

void uuids_fini(struct uuids *u)
{
	free(u->v);
	*u = (struct uuids){ 0 };
}

bool mark_set(struct pack *p, uint32_t frame, uint32_t slot, bool *ret_new)
{
	if (!p->marks)
		p->marks = calloc(p->x.nframes + 1u, sizeof(*p->marks));
	if (!p->marks || frame >= p->x.nframes || slot >= 16)
		return false;
	*ret_new = !(p->marks[frame] >> slot & 1);
	p->marks[frame] = (uint16_t)(p->marks[frame] | 1u << slot);
	return true;
}

void marks_clear(struct snap *s)
{
	for (size_t i = 0; i < s->packs.n; i++) {
		free(s->packs.v[i]->marks);
		s->packs.v[i]->marks = NULL;
	}
}
