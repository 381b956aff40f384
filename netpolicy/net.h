/* SPDX-License-Identifier: Apache-2.0 */
/* What is the same in every sandbox's network.
 *
 * A sandbox's engine has a network namespace of its own with loopback and one tap, NET_TAP, whose other end is the
 * guest's network card. There is no route out of it, no veth, no forwarding: beside the connected routes there is one
 * table, for marked packets, that says "all of this is local", which is what TPROXY delivers by. Every TCP connection
 * and every UDP datagram of the guest is taken by TPROXY to sockets of crucible-netd, which were made in that
 * namespace; netd itself lives in the host's namespace and dials from there what the policy allows. Everything else is
 * dropped.
 *
 * All guests have the same addresses: a fork goes on with those of its parent, and nothing of them is ever seen
 * outside of the namespace. */
#ifndef CRUCIBLE_NETPOLICY_NET_H
#define CRUCIBLE_NETPOLICY_NET_H

#define NET_TAP		"net0"
#define NET_MTU		1500
#define NET_HOST_MAC	"52:54:00:c0:00:00" /* of the tap; the guest's is MACHINE_MAC */
#define NET_HOST_ADDR	"10.77.0.1"	    /* the guest's gateway and resolver */
#define NET_GUEST_ADDR	"10.77.0.2"
#define NET_PREFIX	24
#define NET_HOST_ADDR6	"fd77::1"
#define NET_GUEST_ADDR6 "fd77::2"
#define NET_PREFIX6	64
#define NET_HOST_LINK6	"fe80::1"
#define NET_GUEST_LINK6 "fe80::5054:ff:fec0:1" /* what MACHINE_MAC makes of it: neighbour discovery only */
#define NET_TCP_PORT	15001		       /* where TPROXY takes TCP to, in the sandbox's namespace */
#define NET_UDP_PORT	53 /* UDP; an answer carries the socket's own port, so it is the one that was asked */
#define NET_MARK	0x1

/* Of one sandbox, and of what a sandbox can be told. */
#define NET_NAME_MAX  253u /* bytes of a host name, without the last dot */
#define NET_RULES_MAX 256u
#define NET_LIST_MAX  (32u * 1024u) /* bytes of net/allow or net/ports */
#define NET_PORTS_MAX 64u

#endif
