/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of topology_up(). */
#ifndef CRUCIBLE_NETPOLICY_TOPOLOGY_PRIV_H
#define CRUCIBLE_NETPOLICY_TOPOLOGY_PRIV_H

#include <stdbool.h>
#include "netpolicy/topology.h"

#define TOPOLOGY_TABLE 100 /* of the routes for marked packets */

/* topology_rules.c: put the rules in place, in one step, whatever was there before. Before anything is up. */
int topology_rules(bool ipv6, struct err *e);
/* topology_links.c: links up, addresses, the rule and the routes of TOPOLOGY_TABLE. */
int topology_links(bool ipv6, struct err *e);

#endif
