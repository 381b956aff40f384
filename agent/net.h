/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's network card. Until the host says so its driver is not loaded: a guest without a policy has loopback and
 * nothing else. Thread: the agent's; blocks for some tens of milliseconds when it loads the driver, for 200 when
 * there is no card. */
#ifndef CRUCIBLE_AGENT_NET_H
#define CRUCIBLE_AGENT_NET_H

#include <json-c/json.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include "agent/guest.h"
#include "base/err.h"

struct net_config { /* proto.h: HELLO's "net" */
	struct in_addr address, gateway;
	struct in6_addr address6, gateway6;
	uint64_t prefix, prefix6, mtu;
};

/* "net" of @o. *@ret_given: it is there. -EINVAL in words. */
int net_parse(struct json_object *o, struct net_config *ret, bool *ret_given, struct err *e);

/* Driver, addresses, routes, /etc/resolv.conf: what stands already is kept. A guest without IPv6, or without /etc, is
 * fine. Errors, in words: -ENODEV: no card has come within a fifth of a second; those of loading a module and of
 * ioctl(). */
int net_up(struct guest *g, const struct net_config *c, struct err *e);

/* Open what tells net_reset_connections() that there is nothing to reset; without it, it looks. */
void net_hold_counts(struct guest *g);

/* Reset every TCP connection that is not the guest's own (loopback, or from its address to itself): its other end is
 * not ours any more. The programs see ECONNRESET or EPIPE... at once, without a packet. Errors: those of the kernel's
 * socket diagnosis, in words; what was found is reset all the same. */
int net_reset_connections(const struct guest *g, struct err *e);

#endif
