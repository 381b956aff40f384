/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include "snapstore/snap_priv.h"

#define SETS 128u
#define WAYS 4u

struct nodes_slot {
	struct snap_digest d;
	uint64_t used; /* 0: nothing in it */
	struct node *node;
};

static const uint8_t magic[4] = { 'C', 'N', 'O', 'D' };

size_t node_pack(const struct node *n, uint8_t out[NODE_BYTES_MAX])
{
	uint16_t count = htole16((uint16_t)n->n);

	memset(out, 0, NODE_HEAD);
	memcpy(out, magic, sizeof(magic));
	out[4] = (uint8_t)n->level;
	memcpy(out + 6, &count, sizeof(count));
	memcpy(out + NODE_HEAD, n->v, n->n * sizeof(n->v[0]));
	return NODE_HEAD + n->n * sizeof(n->v[0]);
}

bool node_uniform(const struct node *n, struct snap_digest *ret)
{
	if (!digest_special(&n->v[0]))
		return false;
	for (unsigned i = 1; i < n->n; i++)
		if (!snap_digest_equal(&n->v[i], &n->v[0]))
			return false;
	*ret = n->v[0];
	return true;
}

int node_parse(const void *data, size_t len, struct node *ret, struct err *e)
{
	static const uint8_t none[8];
	const uint8_t *p = data;
	struct snap_digest same;
	uint16_t count;

	if (len < NODE_HEAD || len > NODE_BYTES_MAX || memcmp(p, magic, sizeof(magic)) != 0 || p[5] ||
	    memcmp(p + 8, none, sizeof(none)) != 0)
		return err_set(e, -EBADMSG, "not a node of a map");
	memcpy(&count, p + 6, sizeof(count));
	count = le16toh(count);
	if (p[4] >= NODE_LEVELS || count < 1 || count > SNAP_NODE_ENTRIES || len != NODE_HEAD + count * 32u)
		return err_set(e, -EBADMSG, "the head of a node is wrong");
	ret->level = p[4];
	ret->n = count;
	memcpy(ret->v, p + NODE_HEAD, count * 32u);
	if (node_uniform(ret, &same))
		return err_set(e, -EBADMSG, "a node that should not be stored");
	return 0;
}

unsigned node_levels(uint64_t entries)
{
	unsigned levels = 1;

	while (levels < NODE_LEVELS && node_span(levels) < entries)
		levels++;
	return levels;
}

uint64_t node_span(unsigned level)
{
	return 1ull << (9 * level);
}

unsigned node_count(uint64_t entries, unsigned level, uint64_t index)
{
	uint64_t first = index & ~(node_span(level + 1) - 1);
	uint64_t below = (entries - first + node_span(level) - 1) >> (9 * level);

	return below < SNAP_NODE_ENTRIES ? (unsigned)below : SNAP_NODE_ENTRIES;
}

int nodes_init(struct nodes *c)
{
	c->slots = calloc((size_t)SETS * WAYS, sizeof(*c->slots));
	return c->slots ? 0 : -ENOMEM;
}

void nodes_fini(struct nodes *c)
{
	for (size_t i = 0; c->slots && i < (size_t)SETS * WAYS; i++)
		free(c->slots[i].node);
	free(c->slots);
	c->slots = NULL;
}

void nodes_forget(struct nodes *c)
{
	for (size_t i = 0; i < (size_t)SETS * WAYS; i++)
		c->slots[i].used = 0;
}

static struct nodes_slot *slot_of(struct nodes *c, const struct snap_digest *d)
{
	struct nodes_slot *set = c->slots + (size_t)(d->bytes[0] % SETS) * WAYS, *oldest = set;

	for (unsigned i = 0; i < WAYS; i++) {
		if (set[i].used && snap_digest_equal(&set[i].d, d))
			return &set[i];
		if (set[i].used < oldest->used)
			oldest = &set[i];
	}
	return oldest;
}

int nodes_get(struct snap *s, const struct snap_digest *d, unsigned level, unsigned n, const struct node **ret,
	      struct err *e)
{
	struct nodes_slot *slot = slot_of(&s->nodes, d);
	char hex[DIGEST_HEX];
	const uint8_t *data = NULL;
	uint32_t len = 0;
	int r;

	if (!slot->used || !snap_digest_equal(&slot->d, d)) {
		slot->used = 0;
		r = snap_object(s, d, true, &data, &len, e);
		if (r < 0)
			return r;
		if (!slot->node)
			slot->node = calloc(1, sizeof(*slot->node));
		if (!slot->node)
			return err_set(e, -ENOMEM, "node of a map: no memory");
		r = node_parse(data, len, slot->node, e);
		if (r < 0) {
			err_wrap(e, "node %.16s", digest_hex(d, hex));
			return r;
		}
		slot->d = *d;
	}
	slot->used = ++s->nodes.clock;
	if (slot->node->level != level || slot->node->n != n)
		return err_set(e, -EBADMSG, "node %.16s: it is of another place or map (level %u, %u entries)",
			       digest_hex(d, hex), slot->node->level, slot->node->n);
	*ret = slot->node;
	return 0;
}
