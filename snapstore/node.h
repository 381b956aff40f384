/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes of maps. A map of n entries is a tree: leaves (level 0) hold 512 digests of pages, a node of level k holds 512
 * digests of nodes of level k-1. An entry that is snap_zero or snap_absent says so of everything below it; so may the
 * root itself. Nodes are therefore never all zero or all absent: one content, one digest. A node as an object:
 *
 *	4  "CNOD"    1  level    1  0    2  entries (1 to 512; fewer than 512 only at the end of the map)    8  0
 *	32 each  digests
 *
 * No node is as long as a page: a page that a guest made up cannot pass for one. */
#ifndef CRUCIBLE_SNAP_NODE_H
#define CRUCIBLE_SNAP_NODE_H

#include "snapstore/digest.h"

#define NODE_HEAD	 16u
#define NODE_BYTES_MAX	 (NODE_HEAD + SNAP_NODE_ENTRIES * 32)
#define NODE_LEVELS	 4u
#define NODE_ENTRIES_MAX (1ull << 36) /* 512 to the power of NODE_LEVELS */

struct node {
	unsigned level, n;
	struct snap_digest v[SNAP_NODE_ENTRIES];
};

size_t node_pack(const struct node *n, uint8_t out[NODE_BYTES_MAX]);
int node_parse(const void *data, size_t len, struct node *ret, struct err *e); /* untrusted: -EBADMSG */
/* All entries are the same special one. */
bool node_uniform(const struct node *n, struct snap_digest *ret);

unsigned node_levels(uint64_t entries); /* of a map, at least 1; entries in [1, NODE_ENTRIES_MAX] */
uint64_t node_span(unsigned level);	/* entries of the map below one entry of a node */
/* Entries of the node of @level that holds entry @index of a map of @entries. */
unsigned node_count(uint64_t entries, unsigned level, uint64_t index);

/* The nodes read last, 512 of them at most (8 MiB). */
struct nodes {
	struct nodes_slot *slots;
	uint64_t clock;
};
struct snap;
int nodes_init(struct nodes *c);
void nodes_fini(struct nodes *c);
void nodes_forget(struct nodes *c); /* the memory stays */
/* Borrowed until the next call. @level, @n: what it must be, or it is -EBADMSG. */
int nodes_get(struct snap *s, const struct snap_digest *d, unsigned level, unsigned n, const struct node **ret,
	      struct err *e);

#endif
