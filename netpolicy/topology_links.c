/* SPDX-License-Identifier: Apache-2.0 */
/* Links, addresses and routes of a sandbox's namespace, by libnl. Each step makes a state, so that a second time
 * changes nothing. */
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netlink/errno.h>
#include <netlink/route/addr.h>
#include <netlink/route/link.h>
#include <netlink/route/nexthop.h>
#include <netlink/route/route.h>
#include <netlink/route/rule.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "netpolicy/topology_priv.h"

#define RULE_PRIORITY 100 /* between the kernel's own table of local addresses (0) and the main one (32766) */

/* libnl has codes of its own. */
static int fail(struct err *e, int nl, const char *what)
{
	int code = nl == -NLE_NOMEM				 ? -ENOMEM
		   : nl == -NLE_PERM || nl == -NLE_NOACCESS	 ? -EPERM
		   : nl == -NLE_OPNOTSUPP			 ? -EOPNOTSUPP
		   : nl == -NLE_NODEV || nl == -NLE_OBJ_NOTFOUND ? -ENOENT
								 : -EIO;

	return err_set(e, code, "%s: %s", what, nl_geterror(nl));
}

static int link_up(struct nl_sock *sk, const char *name, struct err *e)
{
	struct rtnl_link *have = NULL, *change = rtnl_link_alloc();
	int r = change ? rtnl_link_get_kernel(sk, 0, name, &have) : -NLE_NOMEM;

	if (r == 0) {
		rtnl_link_set_flags(change, IFF_UP);
		r = rtnl_link_change(sk, have, change, 0);
	}
	if (have)
		rtnl_link_put(have);
	if (change)
		rtnl_link_put(change);
	return r < 0 ? fail(e, r, name) : 0;
}

static int add_addr(struct nl_sock *sk, int ifindex, int family, const char *text, int prefix, struct err *e)
{
	struct rtnl_addr *a = rtnl_addr_alloc();
	struct nl_addr *local = NULL;
	int r = a ? nl_addr_parse(text, family, &local) : -NLE_NOMEM;

	if (r == 0) {
		nl_addr_set_prefixlen(local, prefix);
		rtnl_addr_set_ifindex(a, ifindex);
		rtnl_addr_set_family(a, family);
		r = rtnl_addr_set_local(a, local);
	}
	if (r == 0) {
		if (family == AF_INET6) /* usable at once: nobody else can have it */
			rtnl_addr_set_flags(a, IFA_F_NODAD);
		if (family == AF_INET6 && strncmp(text, "fe80:", 5) == 0)
			rtnl_addr_set_scope(a, RT_SCOPE_LINK);
		r = rtnl_addr_add(sk, a, 0);
	}
	nl_addr_put(local);
	if (a)
		rtnl_addr_put(a);
	return r < 0 && r != -NLE_EXIST ? fail(e, r, text) : 0;
}

/* "What is marked is looked up in TOPOLOGY_TABLE." */
static int add_rule(struct nl_sock *sk, int family, struct err *e)
{
	struct rtnl_rule *rule = rtnl_rule_alloc();
	int r = -NLE_NOMEM;

	if (rule) {
		rtnl_rule_set_family(rule, family);
		rtnl_rule_set_prio(rule, RULE_PRIORITY);
		rtnl_rule_set_mark(rule, NET_MARK);
		rtnl_rule_set_mask(rule, UINT32_MAX);
		rtnl_rule_set_table(rule, TOPOLOGY_TABLE);
		rtnl_rule_set_action(rule, FR_ACT_TO_TBL);
		r = rtnl_rule_add(sk, rule, NLM_F_EXCL);
		rtnl_rule_put(rule);
	}
	return r < 0 && r != -NLE_EXIST ? fail(e, r, "rule for marked packets") : 0;
}

/* "All of that is local." */
static int add_route(struct nl_sock *sk, int family, int lo, struct err *e)
{
	struct rtnl_nexthop *hop = rtnl_route_nh_alloc();
	struct rtnl_route *route = rtnl_route_alloc();
	struct nl_addr *all = NULL;
	int r = hop && route ? nl_addr_parse("default", family, &all) : -NLE_NOMEM;

	if (r == 0) {
		rtnl_route_set_family(route, (uint8_t)family);
		rtnl_route_set_table(route, TOPOLOGY_TABLE);
		rtnl_route_set_scope(route, RT_SCOPE_HOST);
		rtnl_route_set_protocol(route, RTPROT_STATIC);
		r = rtnl_route_set_type(route, RTN_LOCAL);
	}
	if (r == 0)
		r = rtnl_route_set_dst(route, all);
	if (r == 0) {
		rtnl_route_nh_set_ifindex(hop, lo);
		rtnl_route_add_nexthop(route, hop);
		hop = NULL; /* the route's now */
		r = rtnl_route_add(sk, route, NLM_F_REPLACE);
	}
	nl_addr_put(all);
	if (hop)
		rtnl_route_nh_free(hop);
	if (route)
		rtnl_route_put(route);
	return r < 0 && r != -NLE_EXIST ? fail(e, r, "route for marked packets") : 0;
}

static int add_family(struct nl_sock *sk, int family, int tap, int lo, struct err *e)
{
	bool six = family == AF_INET6;
	int r = add_addr(sk, tap, family, six ? NET_HOST_ADDR6 : NET_HOST_ADDR, six ? NET_PREFIX6 : NET_PREFIX, e);

	/* Without one the kernel cannot ask whether a neighbour is still there. */
	if (r == 0 && six)
		r = add_addr(sk, tap, family, NET_HOST_LINK6, NET_PREFIX6, e);
	if (r == 0)
		r = add_rule(sk, family, e);
	return r < 0 ? r : add_route(sk, family, lo, e);
}

int topology_links(bool ipv6, struct err *e)
{
	struct nl_sock *sk = nl_socket_alloc();
	int r = sk ? nl_connect(sk, NETLINK_ROUTE) : -NLE_NOMEM, tap, lo;

	if (r < 0) {
		nl_socket_free(sk);
		return fail(e, r, "netlink");
	}
	r = link_up(sk, "lo", e);
	if (r == 0)
		r = link_up(sk, NET_TAP, e);
	lo = (int)if_nametoindex("lo");
	tap = (int)if_nametoindex(NET_TAP);
	if (r == 0 && (lo == 0 || tap == 0))
		r = err_set(e, -errno, "%s: %s", tap ? "lo" : NET_TAP, strerror(errno));
	if (r == 0)
		r = add_family(sk, AF_INET, tap, lo, e);
	if (r == 0 && ipv6)
		r = add_family(sk, AF_INET6, tap, lo, e);
	nl_socket_free(sk);
	return r;
}
