/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at maps. */
#include <stdlib.h>
#include <string.h>
#include "snapstore/snap_priv.h"

struct snap_map {
	struct snap *s;
	struct snap_digest root;
	uint64_t entries;
};

int snap_map_open(struct snap *s, const struct snap_digest *root, uint64_t entries, struct snap_map **ret,
		  struct err *e)
{
	struct snap_map *m;

	if (entries < 1 || entries > NODE_ENTRIES_MAX)
		return err_set(e, -EINVAL, "a map of %llu entries", (unsigned long long)entries);
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(e, -ENOMEM, "map: no memory");
	*m = (struct snap_map){ s, *root, entries };
	if (!digest_special(root)) {
		unsigned top = node_levels(entries) - 1;
		const struct node *n;
		int r = nodes_get(s, root, top, node_count(entries, top, 0), &n, e);

		if (r < 0) {
			free(m);
			return r;
		}
	}
	*ret = m;
	return 0;
}

struct snap_map *snap_map_close(struct snap_map *m)
{
	free(m);
	return NULL;
}

/* Go down to @index: the entry, or the special one that stands for all entries up to *ret_end. */
static int descend(struct snap_map *m, uint64_t index, struct snap_digest *ret, uint64_t *ret_end, struct err *e)
{
	unsigned level = node_levels(m->entries);
	struct snap_digest d = m->root;
	const struct node *n;
	int r;

	if (index >= m->entries)
		return err_set(e, -EINVAL, "map: entry %llu is outside", (unsigned long long)index);
	while (level > 0 && !digest_special(&d)) {
		level--;
		r = nodes_get(m->s, &d, level, node_count(m->entries, level, index), &n, e);
		if (r < 0)
			return r;
		d = n->v[(index / node_span(level)) % SNAP_NODE_ENTRIES];
	}
	*ret = d;
	*ret_end = (index & ~(node_span(level) - 1)) + node_span(level);
	if (*ret_end > m->entries)
		*ret_end = m->entries;
	return 0;
}

int snap_map_get(struct snap_map *m, uint64_t index, struct snap_digest *ret, struct err *e)
{
	uint64_t end;

	return descend(m, index, ret, &end, e);
}

int snap_map_run(struct snap_map *m, uint64_t index, const struct snap_digest *special, uint64_t *ret_len,
		 struct err *e)
{
	uint64_t at = index, end = 0;
	struct snap_digest d = snap_zero;
	int r;

	do {
		r = descend(m, at, &d, &end, e);
		if (r < 0)
			return r;
		if (!snap_digest_equal(&d, special))
			break;
		at = end;
	} while (at < m->entries);
	*ret_len = at - index;
	return 0;
}

/* -- comparing ---------------------------------------------------------------------------------------------- */

struct diff {
	struct snap *s;
	uint64_t entries, shared, differ;
};

/* The node of @x, or one made of the special entry that it is. */
static int node_of(const struct diff *c, const struct snap_digest *x, unsigned level, uint64_t first, struct node *ret,
		   struct err *e)
{
	unsigned n = node_count(c->entries, level, first);
	const struct node *there;
	int r;

	if (!digest_special(x)) {
		r = nodes_get(c->s, x, level, n, &there, e);
		if (r == 0)
			*ret = *there;
		return r;
	}
	ret->level = level;
	ret->n = n;
	for (unsigned i = 0; i < n; i++)
		ret->v[i] = *x;
	return 0;
}

static int diff_nodes(struct diff *c, const struct snap_digest *a, const struct snap_digest *b, unsigned level,
		      uint64_t first, struct err *e)
{
	AUTO_FREE struct node *x = NULL;
	AUTO_FREE struct node *y = NULL;
	int r;

	if (snap_digest_equal(a, b) && digest_special(a))
		return 0;
	x = malloc(sizeof(*x));
	y = malloc(sizeof(*y));
	if (!x || !y)
		return err_set(e, -ENOMEM, "map: no memory");
	r = node_of(c, a, level, first, x, e);
	if (r == 0)
		r = node_of(c, b, level, first, y, e);
	for (unsigned i = 0; r == 0 && i < x->n; i++) {
		if (level > 0)
			r = diff_nodes(c, &x->v[i], &y->v[i], level - 1, first + i * node_span(level), e);
		else if (!snap_digest_equal(&x->v[i], &y->v[i]))
			c->differ++;
		else
			c->shared += !digest_special(&x->v[i]);
	}
	return r;
}

int snap_map_diff(struct snap *s, const struct snap_digest *a, const struct snap_digest *b, uint64_t entries,
		  uint64_t *ret_shared, uint64_t *ret_differ, struct err *e)
{
	struct diff c = { .s = s, .entries = entries };
	int r;

	if (entries < 1 || entries > NODE_ENTRIES_MAX)
		return err_set(e, -EINVAL, "a map of %llu entries", (unsigned long long)entries);
	r = diff_nodes(&c, a, b, node_levels(entries) - 1, 0, e);
	if (r == 0) {
		*ret_shared = c.shared;
		*ret_differ = c.differ;
	}
	return r;
}
