/* SPDX-License-Identifier: Apache-2.0 */
/* What rule.c and policy.c share: one rule. */
#ifndef CRUCIBLE_NETPOLICY_POLICY_PRIV_H
#define CRUCIBLE_NETPOLICY_POLICY_PRIV_H

#include "netpolicy/policy.h"

enum net_rule_kind { NET_RULE_NAME, NET_RULE_BELOW, NET_RULE_CIDR, NET_RULE_PRESET };

struct net_rule {
	enum net_rule_kind kind;
	uint16_t port;		     /* 0: any */
	struct net_cidr cidr;	     /* of NET_RULE_CIDR */
	char name[NET_NAME_MAX + 1]; /* normal form; NET_RULE_BELOW: without "*."; NET_RULE_PRESET: with the '@' */
};
#define NET_PRESET_MAX 3u		    /* hosts of a preset */
#define NET_RULE_TEXT  (NET_NAME_MAX + 16u) /* bytes of its text with the NUL */

/* -EINVAL with words that name the rule. @text: without blanks around it. */
int net_rule_parse(const char *text, size_t len, const struct net_reach *reach, struct net_rule *ret, struct err *e);
void net_rule_text(const struct net_rule *r, char out[NET_RULE_TEXT]);
const char *const *net_preset(const char *name); /* NULL-ended; NULL: there is none of that name */

bool net_rule_covers_name(const struct net_rule *r, const char *normal); /* whatever the port */
static inline bool net_rule_port(const struct net_rule *r, uint16_t port)
{
	return r->port == 0 || r->port == port;
}

int net_port_number(const char *text, size_t len, uint16_t *ret); /* 1 to 65535, digits only; -EINVAL */

#endif
