/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/session_priv.h"
#include "cruciblefs/view.h"

#include <assert.h>

#define NODES_ALL 1048576u
#define NODES_UID 65536u

int cfs_node_init(struct cfs_session *cs, struct cfs_node *n, const struct cfs_node_ops *ops, struct view *view)
{
	uint64_t id;
	int r = idtable_add(&cs->nodes, n, cs->limits.nodes_all ? cs->limits.nodes_all : NODES_ALL, &id);

	if (r < 0)
		return r;
	*n = (struct cfs_node){ .ops = ops, .session = cs, .id = id, .view = view_ref(view), .refs = 1 };
	return 0;
}

struct cfs_node *cfs_node_ref(struct cfs_node *n)
{
	n->refs++;
	return n;
}

static void reap_later(void *arg)
{
	struct cfs_session *cs = arg;

	cs->reap_id = 0;
	node_reap(cs);
}

/* It goes at the end of the batch (or of the round), so that no caller further up the stack is left with a dangling
 * pointer; until then it may be found and used again: the kernel often forgets a node and asks for its name in one
 * breath. */
static void list_if_unused(struct cfs_node *n)
{
	struct cfs_session *cs = n->session;

	if (n->lookups || n->refs || n->listed || n == cs->root)
		return;
	n->listed = true;
	n->next_unused = cs->unused;
	cs->unused = n;
	/* Without memory for the call the next batch's end does it. */
	if (!cs->in_batch && !cs->freeing && !cs->reap_id)
		loop_defer(cs->loop, reap_later, cs, &cs->reap_id);
}

struct cfs_node *cfs_node_unref(struct cfs_node *n)
{
	if (!n)
		return NULL;
	assert(n->refs > 0);
	n->refs--;
	list_if_unused(n);
	return NULL;
}

void node_reap(struct cfs_session *cs)
{
	/* Freeing one may leave another unused (a child holds its parent): until none is left. */
	while (cs->unused) {
		struct cfs_node *n = cs->unused;
		struct view *view = n->view;

		cs->unused = n->next_unused;
		n->listed = false;
		if (n->lookups || n->refs)
			continue;
		idtable_del(&cs->nodes, n->id);
		n->ops->free(n);
		view_unref(view);
	}
}

struct cfs_node *cfs_node_find(struct cfs_session *cs, uint64_t id)
{
	return id == FUSE_ROOT_ID ? cs->root : idtable_find(&cs->nodes, id);
}

size_t cfs_node_count(struct cfs_session *cs)
{
	return cs->nodes.count;
}

int node_tell(struct cfs_node *n, uid_t uid)
{
	struct cfs_session *cs = n->session;
	struct uid_count *u;

	if (n->lookups == 0 && n != cs->root) {
		u = uid_count_get(cs, uid);
		if (!u)
			return -ENOMEM;
		if (u->nodes >= (cs->limits.nodes_uid ? cs->limits.nodes_uid : NODES_UID)) {
			uid_count_put(cs, uid);
			return -ENFILE;
		}
		u->nodes++;
		n->uid = uid;
	}
	n->lookups++;
	return 0;
}

static void take_lookups(struct cfs_node *n, uint64_t lookups)
{
	struct cfs_session *cs = n->session;

	if (!n->lookups)
		return;
	n->lookups -= lookups < n->lookups ? lookups : n->lookups;
	if (n->lookups || n == cs->root)
		return;
	uid_count_get(cs, n->uid)->nodes--; /* counted when it was told, so it is there */
	uid_count_put(cs, n->uid);
	list_if_unused(n);
}

void node_untold(struct cfs_node *n)
{
	take_lookups(n, 1);
}

void node_forget(struct cfs_session *cs, uint64_t id, uint64_t lookups)
{
	struct cfs_node *n = cfs_node_find(cs, id);

	if (n)
		take_lookups(n, lookups);
}

/* FNV-1a over the texts and their ends, then a finaliser (of splitmix64) that spreads short texts over all bits. */
uint64_t cfs_ino_of(const char *const texts[])
{
	uint64_t h = 0xcbf29ce484222325u;

	for (; *texts; texts++) {
		const char *s = *texts;

		do
			h = (h ^ (unsigned char)*s) * 0x100000001b3u;
		while (*s++);
	}
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	h ^= h >> 31;
	return h > 1 ? h : 2;
}
