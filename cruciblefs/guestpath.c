/* SPDX-License-Identifier: Apache-2.0 */
/* See guestpath.h. */
#include "cruciblefs/guestpath.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define BUCKETS_MIN 64u

/* -- hashing ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 p = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xe7037ed1a0b428dbu);

	return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t hash_name(uint64_t seed, uint64_t parent, const char *name)
{
	size_t len = strlen(name);
	uint64_t h = mix(seed, parent + len);

	while (len) {
		size_t n = len < 8 ? len : 8;
		uint64_t word = 0;

		memcpy(&word, name, n);
		h = mix(h ^ word, seed);
		name += n;
		len -= n;
	}
	return h;
}

uint64_t gnode_path_hash(const struct gnode *dir, const char *name)
{
	uint64_t h = hash_name(0, 0, name);

	for (; dir && dir->parent; dir = dir->parent)
		h = hash_name(h, dir->depth, dir->name);
	return h;
}

/* -- the table -------------------------------------------------------------------------------- */

int gtable_init(struct gtable *t)
{
	*t = (struct gtable){ .nbuckets = BUCKETS_MIN };
	t->bucket = calloc(t->nbuckets, sizeof(struct gnode *));
	if (!t->bucket)
		return -ENOMEM;
	/* Without entropy (never after boot) the seed is only weaker. */
	if (getrandom(&t->seed, sizeof(t->seed), GRND_NONBLOCK) != sizeof(t->seed))
		t->seed = (uint64_t)(uintptr_t)t->bucket;
	return 0;
}

void gtable_fini(struct gtable *t)
{
	assert(t->nnodes == 0);
	free(t->bucket);
	t->bucket = NULL;
}

static struct gnode **bucket_of(const struct gtable *t, uint64_t hash)
{
	return &t->bucket[hash & (t->nbuckets - 1)];
}

/* More buckets when the chains get long. Without memory they stay long. */
static void grow(struct gtable *t)
{
	struct gtable bigger = { .nbuckets = t->nbuckets * 2 };

	bigger.bucket = calloc(bigger.nbuckets, sizeof(struct gnode *));
	if (!bigger.bucket)
		return;
	for (size_t i = 0; i < t->nbuckets; i++) {
		struct gnode *n, *next;

		for (n = t->bucket[i]; n; n = next) {
			struct gnode **b = bucket_of(&bigger, n->hash);

			next = n->chain;
			n->chain = *b;
			*b = n;
		}
	}
	free(t->bucket);
	t->bucket = bigger.bucket;
	t->nbuckets = bigger.nbuckets;
}

static void attach(struct gtable *t, struct gnode *n)
{
	struct gnode **b;

	n->hash = hash_name(t->seed, n->parent->node.id, n->name);
	b = bucket_of(t, n->hash);
	n->chain = *b;
	*b = n;
	n->attached = true;
}

static void unchain(struct gtable *t, struct gnode *n)
{
	struct gnode **p = bucket_of(t, n->hash);

	while (*p != n)
		p = &(*p)->chain;
	*p = n->chain;
	n->chain = NULL;
	n->attached = false;
}

static void detach(struct gtable *t, struct gnode *n)
{
	unchain(t, n);
	if (n->type == S_IFDIR)
		n->parent->ghosts++;
}

void gnode_init_root(struct gnode *n, struct guestfs *fs)
{
	static char no_name[] = "";

	n->fs = fs;
	n->name = no_name;
	n->type = S_IFDIR;
	n->attached = true;
}

struct gnode *gnode_find(struct gtable *t, const struct gnode *dir, const char *name)
{
	uint64_t hash = hash_name(t->seed, dir->node.id, name);
	struct gnode *n = *bucket_of(t, hash);

	while (n && (n->hash != hash || n->parent != dir || strcmp(n->name, name) != 0))
		n = n->chain;
	return n;
}

int gnode_take(struct gtable *t, struct gnode *dir, const char *name, const struct gattr *a,
	       const struct cfs_node_ops *ops, struct gnode **ret)
{
	struct gnode *n;
	int r;

	if (gnode_dead(dir))
		return -ENOENT;
	n = gnode_find(t, dir, name);
	if (n && (n->type != a->type || (n->type != S_IFDIR && n->ino != a->ino))) {
		detach(t, n);
		n = NULL;
	}
	if (n) {
		n->ino = a->ino;
		cfs_node_ref(&n->node);
		*ret = n;
		return 0;
	}
	if (t->nnodes >= GTABLE_NODES_MAX)
		return -ENFILE;
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->name = strdup(name);
	r = n->name ? cfs_node_init(dir->node.session, &n->node, ops, dir->node.view) : -ENOMEM;
	if (r < 0) {
		free(n->name);
		free(n);
		return r;
	}
	n->fs = dir->fs;
	n->parent = dir;
	cfs_node_ref(&dir->node);
	n->depth = dir->depth + 1;
	n->type = a->type;
	n->ino = a->ino;
	if (++t->nnodes > t->nbuckets)
		grow(t);
	attach(t, n);
	*ret = n;
	return 0;
}

void gnode_gone(struct gtable *t, const struct gnode *dir, const char *name)
{
	struct gnode *n = gnode_find(t, dir, name);

	if (n)
		detach(t, n);
}

void gnode_free(struct gtable *t, struct gnode *n)
{
	struct gnode *parent = n->parent;

	assert(parent && !n->files && t->nnodes > 0);
	if (n->attached)
		unchain(t, n);
	else if (n->type == S_IFDIR)
		parent->ghosts--;
	t->nnodes--;
	free(n->name);
	free(n);
	cfs_node_unref(&parent->node);
}

/* -- paths ------------------------------------------------------------------------------------ */

bool gnode_dead(const struct gnode *n)
{
	for (; n; n = n->parent)
		if (!n->attached)
			return true;
	return false;
}

/* Put @name and a '/' before what stands at @p (unless that is the end of the path). NULL: no room. */
static char *prepend(char *start, char *p, const char *end, const char *name)
{
	size_t len = strlen(name), slash = p == end ? 0 : 1;

	if ((size_t)(p - start) < len + slash)
		return NULL;
	if (slash)
		*--p = '/';
	return memcpy(p - len, name, len); /* NOLINT(bugprone-not-null-terminated-result): more follows */
}

int gnode_path(const struct gnode *n, const char *name, char out[AG_PATH_MAX + 1], size_t *ret_len)
{
	char *end = out + AG_PATH_MAX, *p = end;

	if (gnode_dead(n))
		return -ESTALE;
	if (name)
		p = prepend(out, p, end, name);
	for (; p && n->parent; n = n->parent)
		p = prepend(out, p, end, n->name);
	if (!p)
		return -ENAMETOOLONG;
	memmove(out, p, (size_t)(end - p));
	out[end - p] = '\0';
	*ret_len = (size_t)(end - p);
	return 0;
}

/* -- renames ---------------------------------------------------------------------------------- */

/* May what the kernel has at (@dir, @name) be moved to another depth? */
static int depth_check(struct gtable *t, const struct gnode *dir, const char *name)
{
	const struct gnode *n = gnode_find(t, dir, name);

	if (!n)
		return -ESTALE;
	return n->type == S_IFDIR || dir->ghosts ? -EXDEV : 0;
}

static bool is_below(const struct gnode *n, const struct gnode *top)
{
	while (n && n != top)
		n = n->parent;
	return n != NULL;
}

int gnode_rename_check(struct gtable *t, const struct gnode *dir, const char *name, const struct gnode *newdir,
		       const char *newname, unsigned flags)
{
	const struct gnode *n = gnode_find(t, dir, name), *other = gnode_find(t, newdir, newname);
	int r = 0;

	if ((flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE)) || flags == (RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	/* The kernel sees to it too, but by its own idea of the tree. */
	if ((n && is_below(newdir, n)) || ((flags & RENAME_EXCHANGE) && other && is_below(dir, other)))
		return -EINVAL;
	if (dir->depth != newdir->depth) {
		r = depth_check(t, dir, name);
		if (r == 0 && (flags & RENAME_EXCHANGE))
			r = depth_check(t, newdir, newname);
	}
	return r;
}

/* Put @n at its new place, or let it lose its path: invariants 3 and 4. */
static void place(struct gtable *t, struct gnode *n, struct gnode *dir, const char *name)
{
	char *copy = strdup(name);

	if (!copy || (dir->depth + 1 != n->depth && (n->type == S_IFDIR || n->type == S_IFLNK))) {
		free(copy);
		detach(t, n);
		return;
	}
	unchain(t, n);
	free(n->name);
	n->name = copy;
	if (n->parent != dir) {
		struct gnode *old = n->parent;

		n->parent = dir;
		cfs_node_ref(&dir->node);
		cfs_node_unref(&old->node);
	}
	n->depth = dir->depth + 1;
	attach(t, n);
}

void gnode_renamed(struct gtable *t, struct gnode *dir, const char *name, struct gnode *newdir, const char *newname,
		   unsigned flags)
{
	struct gnode *from = gnode_find(t, dir, name), *to = gnode_find(t, newdir, newname);

	t->renames++;
	if (from == to)
		return;
	if (to && !(flags & RENAME_EXCHANGE)) {
		detach(t, to);
		to = NULL;
	}
	if (from)
		place(t, from, newdir, newname);
	if (to)
		place(t, to, dir, name);
}
