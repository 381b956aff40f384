/* SPDX-License-Identifier: Apache-2.0 */
/* Which names a sandbox has resolved to which addresses: how the relay knows what a connection is meant for. Bounded:
 * the oldest go first. Thread: netd's loop. */
#ifndef CRUCIBLE_NETPOLICY_NAMES_H
#define CRUCIBLE_NETPOLICY_NAMES_H

#include "netpolicy/addr.h"
#include "netpolicy/net.h"

#define NAMES_MAX 4096u /* pairs of name and address */
/* An answer is kept that long beyond its TTL: programs cache longer. */
#define NAMES_GRACE_NS (600ull * 1000000000ull)

struct names;
int names_new(struct names **ret); /* -ENOMEM */
struct names *names_free(struct names *t);
/* @name: net_name_normal()'s form: the name that was ASKED for, also when a CNAME led elsewhere. -ENOMEM */
int names_add(struct names *t, const char *name, const struct net_addr *a, uint32_t ttl_s, uint64_t now_ns);
/* Those of @from that are not too old, as the newest of @t, each until the time that it had there. -ENOMEM: not all. */
int names_copy(struct names *t, const struct names *from, uint64_t now_ns);
bool names_any(const struct names *t); /* old ones, too */
/* The names that led to @a and are not too old, the newest first: @fn returns true to end it. */
void names_find(const struct names *t, const struct net_addr *a, uint64_t now_ns,
		bool (*fn)(void *arg, const char *name), void *arg);

#endif
