/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, ranges of them, and which ones no sandbox may ever reach. Thread: any; nothing blocks. */
#ifndef CRUCIBLE_NETPOLICY_ADDR_H
#define CRUCIBLE_NETPOLICY_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "base/err.h"

struct net_addr {
	int family;	   /* AF_INET or AF_INET6; an IPv4-mapped IPv6 address is AF_INET from the moment it is read */
	uint8_t bytes[16]; /* network order; AF_INET: the first four, the rest zero */
};
#define NET_ADDR_TEXT 46 /* bytes of its text with the NUL */

int net_addr_parse(const char *text, struct net_addr *ret); /* -EINVAL; no names, no zone, no brackets */
const char *net_addr_text(const struct net_addr *a, char out[NET_ADDR_TEXT]);
bool net_addr_equal(const struct net_addr *a, const struct net_addr *b);
/* -EAFNOSUPPORT; @ret_port may be NULL. */
int net_addr_from_sockaddr(const struct sockaddr *sa, socklen_t len, struct net_addr *ret, uint16_t *ret_port);
socklen_t net_addr_to_sockaddr(const struct net_addr *a, uint16_t port, struct sockaddr_storage *ret);

struct net_cidr {
	struct net_addr addr; /* bits beyond `bits` are zero */
	unsigned bits;
};
/* "192.0.2.0/24", "2001:db8::/32", or a bare address (/32, /128). -EINVAL with words: bits out of range, host bits
 * set. */
int net_cidr_parse(const char *text, struct net_cidr *ret, struct err *e);
bool net_cidr_has(const struct net_cidr *c, const struct net_addr *a);
bool net_cidr_within(const struct net_cidr *c, const struct net_cidr *wider);

/* What root's configuration opens (net_private), and the host's own addresses, which stay closed. */
struct net_reach {
	const struct net_cidr *opened;
	size_t nopened;
	const struct net_addr *own; /* of the host's interfaces */
	size_t nown;
	bool any; /* take what root could open for opened: lists are read before it is known where they will hold */
};
/* NULL: may be dialed. Else why not, in a word or two: "loopback", "private", "link-local", "multicast",
 * "documentation", "reserved", "the host's own", "translated" (64:ff9b::/96, 2002::/16 whose inner address is refused),
 * ... An opened range opens whatever lies in it but loopback, unspecified, multicast, broadcast, link-local
 * (169.254/16, fe80::/10: cloud metadata) and the host's own, which stay refused unless the opened range names exactly
 * that one address (/32 or /128). So do the addresses of clouds' metadata that lie elsewhere ("cloud metadata").
 * Refused: DESIGN.md's list, v4 and v6; of v6 all that is not 2000::/3, too. */
const char *net_addr_refused(const struct net_addr *a, const struct net_reach *reach);
/* The same for all of a range: why some of it is refused, or NULL. The host's own addresses in it do not count, unless
 * it is one of them: they are refused when they are dialed. */
const char *net_cidr_refused(const struct net_cidr *range, const struct net_reach *reach);

/* The host's own addresses (getifaddrs), malloc'd. */
int net_own_addresses(struct net_addr **ret, size_t *ret_n, struct err *e);

#endif
