/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox is often removed once its snapshot is taken: what its names led to is then what its forks have in their
 * caches. */
#include <stdio.h>
#include <string.h>

#include "netpolicy/names.h"
#include "netpolicy/netd/netd_priv.h"

static struct netd_gone_names *find(struct netd_bygone *b, const char *uuid)
{
	for (unsigned i = 0; i < NETD_BYGONE_MAX; i++)
		if (b->of[i].names && strcmp(b->of[i].uuid, uuid) == 0)
			return &b->of[i];
	return NULL;
}

void netd_bygone_add(struct netd_bygone *b, const char *uuid, struct names *names)
{
	struct netd_gone_names *g;

	if (!names_any(names)) {
		names_free(names);
		return;
	}
	g = find(b, uuid);
	if (!g)
		g = &b->of[b->next++ % NETD_BYGONE_MAX];
	names_free(g->names);
	g->names = names;
	snprintf(g->uuid, sizeof(g->uuid), "%s", uuid);
}

const struct names *netd_bygone_find(struct netd_bygone *b, const char *uuid)
{
	const struct netd_gone_names *g = find(b, uuid);

	return g ? g->names : NULL;
}

void netd_bygone_fini(struct netd_bygone *b)
{
	for (unsigned i = 0; i < NETD_BYGONE_MAX; i++)
		b->of[i].names = names_free(b->of[i].names);
}
