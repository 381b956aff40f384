/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * All chains drop what no rule names. TPROXY gives a packet to a socket by its own look-up: an established connection
 * first, then the transparent listener at the port named here; the packet's addresses stay as they are, so the socket's
 * own address is what the guest dialed. The mark makes routing deliver it here instead of looking for a way out
 * (topology_links.c). Nothing needs connection tracking, and none is switched on.
 *
 * Neighbour tables are one for the whole host, of limited size: a guest that invents neighbours could fill them for
 * everybody. So ARP and neighbour discovery are heard from the guest's own addresses only, and what it advertises are
 * these: of one who claims ours the kernel would tell in the host's log.
 *
 * Loopback has no rule: what a process here, an engine that was taken over, sends to the sockets' ports by itself
 * never arrives. Numbers instead of names where nft would ask the name service.
 */
#include <nftables/libnftables.h>
#include <stdio.h>
#include <string.h>

#include "netpolicy/topology_priv.h"

#define STR_(x) #x
#define STR(x)	STR_(x)
#define TAP	"\"" NET_TAP "\""
#define TCP	"6"
#define UDP	"17"
#define ICMPV6	"58"
#define SOLICIT "135" /* neighbour solicitation, neighbour advertisement */
#define ADVERT	"136"
#define ND	"{ " SOLICIT ", " ADVERT " }"
/* An advertisement's target: the guest's addresses, as older nft can say them. */
#define ITS_OWN	   "@th,64,128 { 0xfd770000000000000000000000000002, 0xfe80000000000000505400fffec00001 }"
#define FROM_GUEST "ip6 hoplimit 255 ip6 saddr { " NET_GUEST_ADDR6 ", " NET_GUEST_LINK6 " }"
/* A table that is there is emptied by being deleted, which needs it to be there. */
static const char emptied[] = "table arp crucible\ndelete table arp crucible\n"
			      "table inet crucible\ndelete table inet crucible\n";
/* Fails where there is one. */
#define NEW "create table arp crucible\ncreate table inet crucible\n"

#define TAKE(family, proto, port) \
	"meta l4proto " proto " tproxy " family " to :" STR(port) " meta mark set " STR(NET_MARK) " accept\n"

static const char before_ipv6[] = /* clang-format off */
	NEW
	"table arp crucible {\n"
	"	chain input {\n"
	"		type filter hook input priority 0; policy drop;\n"
	"		iifname " TAP " arp saddr ip " NET_GUEST_ADDR " accept\n"
	"	}\n"
	"}\n"
	"table inet crucible {\n"
	"	chain forward {\n"
	"		type filter hook forward priority 0; policy drop;\n"
	"	}\n"
	"	chain input {\n"
	"		type filter hook input priority 0; policy drop;\n"
	"		iifname " TAP " meta mark " STR(NET_MARK) " accept\n"
	"		iifname " TAP " meta l4proto " ICMPV6 " icmpv6 type " ND " accept\n"
	"	}\n"
	"	chain output {\n"
	"		type filter hook output priority 0; policy drop;\n"
	"		oifname " TAP " meta l4proto { " TCP ", " UDP " } accept\n"
	"		oifname " TAP " meta l4proto " ICMPV6 " icmpv6 type " ND " accept\n"
	"	}\n"
	"	chain prerouting {\n"
	"		type filter hook prerouting priority -150; policy drop;\n"
	"		iifname != " TAP " drop\n"
	"		ip saddr " NET_GUEST_ADDR " " TAKE("ip", TCP, NET_TCP_PORT)
	"		ip saddr " NET_GUEST_ADDR " " TAKE("ip", UDP, NET_UDP_PORT);
static const char of_ipv6[] =
	"		ip6 saddr " NET_GUEST_ADDR6 " " TAKE("ip6", TCP, NET_TCP_PORT)
	"		ip6 saddr " NET_GUEST_ADDR6 " " TAKE("ip6", UDP, NET_UDP_PORT)
	"		meta l4proto " ICMPV6 " icmpv6 type " SOLICIT " " FROM_GUEST " accept\n"
	"		meta l4proto " ICMPV6 " icmpv6 type " ADVERT " " ITS_OWN " " FROM_GUEST " accept\n";
static const char behind_ipv6[] =
	"	}\n"
	"}\n"; /* clang-format on */

/* Nearly always no table is there, and deleting one costs a grace period of the kernel: ten milliseconds or more. */
static int load(struct nft_ctx *nft, bool ipv6)
{
	char text[sizeof(emptied) + sizeof(before_ipv6) + sizeof(of_ipv6) + sizeof(behind_ipv6)];

	snprintf(text, sizeof(text), "%s%s%s%s", emptied, before_ipv6, ipv6 ? of_ipv6 : "", behind_ipv6);
	if (nft_run_cmd_from_buffer(nft, text + strlen(emptied)) == 0)
		return 0;
	(void)nft_ctx_get_error_buffer(nft); /* forgets it */
	return nft_run_cmd_from_buffer(nft, text);
}

int topology_rules(bool ipv6, struct err *e)
{
	struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);
	const char *said;
	int r = 0;

	if (!nft)
		return err_set(e, -ENOMEM, "rules: libnftables does not start");
	nft_ctx_buffer_output(nft);
	nft_ctx_buffer_error(nft);
	if (load(nft, ipv6) != 0) {
		said = nft_ctx_get_error_buffer(nft);
		r = err_set(e, -ENOPROTOOPT,
			    "rules: the kernel takes no nftables rules with TPROXY (modprobe nf_tables; modprobe "
			    "nft_tproxy): %.*s",
			    said ? (int)strcspn(said, "\n") : 0, said ? said : "");
	}
	nft_ctx_free(nft);
	return r;
}
