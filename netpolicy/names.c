/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of name and address: a chain for each hash of an address, the newest first, and one list of all by age. */
#include "netpolicy/names.h"

#include <stdlib.h>
#include <string.h>

#define CHAINS	  256u
#define TTL_MAX_S 86400u /* more than a day is nobody's honest answer */

struct pair {
	struct pair *next, *prev;   /* of its chain: next is older */
	struct pair *older, *newer; /* of all */
	struct net_addr addr;
	uint64_t until_ns;
	char name[];
};
struct names {
	struct pair *chains[CHAINS];
	struct pair *newest, *oldest;
	size_t n;
};

int names_new(struct names **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static unsigned chain_of(const struct net_addr *a)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < sizeof(a->bytes); i++)
		h = (h ^ a->bytes[i]) * 16777619u;
	return (h ^ h >> 16) % CHAINS;
}

static void unlink_pair(struct names *t, struct pair *p)
{
	*(p->prev ? &p->prev->next : &t->chains[chain_of(&p->addr)]) = p->next;
	if (p->next)
		p->next->prev = p->prev;
	*(p->newer ? &p->newer->older : &t->newest) = p->older;
	*(p->older ? &p->older->newer : &t->oldest) = p->newer;
	t->n--;
}

static void link_newest(struct names *t, struct pair *p)
{
	struct pair **chain = &t->chains[chain_of(&p->addr)];

	p->prev = p->newer = NULL;
	p->next = *chain;
	if (p->next)
		p->next->prev = p;
	*chain = p;
	p->older = t->newest;
	*(p->older ? &p->older->newer : &t->oldest) = p;
	t->newest = p;
	t->n++;
}

static struct pair *find(const struct names *t, const char *name, const struct net_addr *a)
{
	struct pair *p = t->chains[chain_of(a)];

	while (p && !(net_addr_equal(&p->addr, a) && strcmp(p->name, name) == 0))
		p = p->next;
	return p;
}

static int add(struct names *t, const char *name, const struct net_addr *a, uint64_t until_ns)
{
	struct pair *p = find(t, name, a);
	size_t len = strlen(name) + 1;

	if (p) {
		unlink_pair(t, p);
	} else {
		p = malloc(sizeof(*p) + len);
		if (!p)
			return -ENOMEM;
		p->addr = *a;
		p->until_ns = 0;
		memcpy(p->name, name, len);
		if (t->n == NAMES_MAX) {
			struct pair *old = t->oldest;

			unlink_pair(t, old);
			free(old);
		}
	}
	if (until_ns > p->until_ns)
		p->until_ns = until_ns;
	link_newest(t, p);
	return 0;
}

int names_add(struct names *t, const char *name, const struct net_addr *a, uint32_t ttl_s, uint64_t now_ns)
{
	uint32_t ttl = ttl_s < TTL_MAX_S ? ttl_s : TTL_MAX_S;

	return add(t, name, a, now_ns + ttl * 1000000000ull + NAMES_GRACE_NS);
}

bool names_any(const struct names *t)
{
	return t->n > 0;
}

int names_copy(struct names *t, const struct names *from, uint64_t now_ns)
{
	int r = 0;

	for (const struct pair *p = from->oldest; p && r == 0; p = p->newer)
		if (p->until_ns >= now_ns)
			r = add(t, p->name, &p->addr, p->until_ns);
	return r;
}

void names_find(const struct names *t, const struct net_addr *a, uint64_t now_ns,
		bool (*fn)(void *arg, const char *name), void *arg)
{
	for (const struct pair *p = t->chains[chain_of(a)]; p; p = p->next)
		if (net_addr_equal(&p->addr, a) && p->until_ns >= now_ns && fn(arg, p->name))
			return;
}

struct names *names_free(struct names *t)
{
	while (t && t->newest) {
		struct pair *p = t->newest;

		unlink_pair(t, p);
		free(p);
	}
	free(t);
	return NULL;
}
