/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges that root opened, and the host's own addresses. */
#include <stdlib.h>
#include <string.h>

#include "netpolicy/netd/netd_priv.h"

#define OWN_NS (5ull * 1000000000) /* an address that is new to the host may count as foreign that long */

static int look_up(struct netd_reach *r, struct err *e)
{
	struct net_addr *own;
	size_t n;
	int code = net_own_addresses(&own, &n, e);

	r->own_ns = now_ns();
	if (code < 0)
		return code; /* those of before stay */
	free(r->own);
	r->own = own;
	r->reach.own = own;
	r->reach.nown = n;
	return 0;
}

int netd_reach_init(struct netd_reach *r, struct err *e)
{
	*r = (struct netd_reach){ .reach.opened = r->opened };
	return look_up(r, e);
}

void netd_reach_fini(struct netd_reach *r)
{
	free(r->own);
	r->own = NULL;
	r->reach = (struct net_reach){ 0 };
}

void netd_reach_open(struct netd_reach *r, const struct net_cidr *opened, size_t n)
{
	memcpy(r->opened, opened, n * sizeof(*opened));
	r->reach.nopened = n;
}

const char *netd_reach_refused(struct netd_reach *r, const struct net_addr *a)
{
	if (now_ns() - r->own_ns >= OWN_NS)
		look_up(r, NULL);
	return net_addr_refused(a, &r->reach);
}
