/* SPDX-License-Identifier: Apache-2.0 */
/* What one sandbox may reach (net/allow) and what leads into it (net/ports). Thread: any; nothing blocks. A policy is
 * never changed: a new list is a new policy. */
#ifndef CRUCIBLE_NETPOLICY_POLICY_H
#define CRUCIBLE_NETPOLICY_POLICY_H

#include "base/buf.h"
#include "base/err.h"
#include "netpolicy/addr.h"
#include "netpolicy/net.h"

/* One rule is one line:
 *
 *   example.com  example.com:8443	exactly that name; case does not matter, a dot at the end neither
 *   *.example.com[:PORT]		any name below it, of any depth; not example.com itself
 *   198.51.100.0/24[:PORT]  2606::/32  [2606::]/32:443   addresses that are dialed without a name (public ones only,
 *					but for what root opened)
 *   @pypi @npm @debian			presets: names that those need; no port
 *
 * Without a port: any TCP port. Names: ASCII letters, digits, - and _, labels of 1 to 63, 253 in all, at least
 * two labels unless it is one that root's upstream knows (single labels are allowed). Refused with words that name the
 * rule and the way out (-EINVAL): a bare "*", a star anywhere but as the whole first label, "*.com" (a star below one
 * label only), names of digits that look like addresses (1.2.3, 0x7f.1), a port of 0 or beyond 65535, ranges that
 * net_cidr_refused() refuses, unknown presets, localhost, labels that begin or end with '-'; -E2BIG: more than
 * NET_RULES_MAX or NET_LIST_MAX. */
struct net_policy;

/* Lines with '\n'; blanks around them, empty lines and lines that begin with '#' are dropped; duplicates are one. An
 * empty text is an empty policy: nothing is allowed. @reach: whose ranges may be named. */
int net_policy_parse(const char *text, size_t len, const struct net_reach *reach, struct net_policy **ret,
		     struct err *e);
/* One rule; writes its one form ("Example.COM." -> "example.com") into @out. -EINVAL */
int net_rule_normal(const char *rule, size_t len, const struct net_reach *reach, char *out, size_t cap, struct err *e);
struct net_policy *net_policy_ref(struct net_policy *p);
struct net_policy *net_policy_unref(struct net_policy *p); /* NULL is fine; returns NULL */
/* One rule a line, in the order in which they were given, each in its one form. -ENOMEM, -EFBIG */
int net_policy_text(const struct net_policy *p, struct buf *out);
bool net_policy_empty(const struct net_policy *p);

/* May this name be resolved? By a rule of a name with any port; @name: any case, with or without the last dot. */
bool net_policy_resolves(const struct net_policy *p, const char *name);
bool net_policy_allows_name(const struct net_policy *p, const char *name, uint16_t port);
bool net_policy_allows_addr(const struct net_policy *p, const struct net_addr *a, uint16_t port); /* CIDR rules */
/* Is everything that @p allows allowed by @most, too? If not, @e names the first rule that is not. */
bool net_policy_within(const struct net_policy *p, const struct net_policy *most, struct err *e);
/* What both allow, for showing: a list that is within both, and that each list within both is within; beyond
 * NET_RULES_MAX rules the rest is left out. *ret is the caller's. -ENOMEM */
int net_policy_both(const struct net_policy *a, const struct net_policy *b, struct net_policy **ret);

/* The next line of a list that says something (neither empty nor a remark), without blanks around it; @text and @len
 * stand behind it then. False: there is none. */
bool net_next_line(const char **text, size_t *len, const char **ret, size_t *ret_len);

/* Lower case, without the last dot; false: no name (see above). @out: NET_NAME_MAX + 1 bytes. */
bool net_name_normal(const char *name, size_t len, char *out);

/* -- ports ------------------------------------------------------------------------------------------------------- */

/* "[HOST_IP:]HOST:GUEST[/tcp]"; an IPv6 address in brackets. Without an address: 127.0.0.1. */
struct net_port {
	struct net_addr host;
	uint16_t host_port, guest_port;
};
/* -EINVAL with words: no port, 0, beyond 65535, udp (there is none), a host name; -EEXIST: the same address and host
 * port twice; -E2BIG: more than NET_PORTS_MAX. */
int net_ports_parse(const char *text, size_t len, struct net_port out[NET_PORTS_MAX], size_t *ret_n, struct err *e);
bool net_port_same_place(const struct net_port *a, const struct net_port *b); /* of the host, wherever they lead */
int net_port_text(const struct net_port *p, char *out, size_t cap);	      /* "127.0.0.1:8080:80/tcp"; -ENOSPC */

#endif
