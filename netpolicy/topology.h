/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's network namespace, made ready. Called by the launcher in short-lived children of its own that are in that
 * namespace already and still have CAP_NET_ADMIN there; nothing in it comes from a user, a guest or the network: it is
 * the same for every sandbox. Blocks for some milliseconds. Uses libnl (links, addresses, rules) and libnftables. */
#ifndef CRUCIBLE_NETPOLICY_TOPOLOGY_H
#define CRUCIBLE_NETPOLICY_TOPOLOGY_H

#include <stddef.h>
#include "base/err.h"
#include "netpolicy/net.h"

/* At an engine's start: NET_TAP, down, without an address, and its descriptor for QEMU (IFF_TAP | IFF_NO_PI |
 * IFF_VNET_HDR). Returns it or -errno with words (-ENOENT: no /dev/net/tun on this host). */
int topology_tap(struct err *e);

enum topology_fd { TOPOLOGY_TCP4, TOPOLOGY_TCP6, TOPOLOGY_UDP4, TOPOLOGY_UDP6, TOPOLOGY_FD_COUNT };
/* When a policy appears: loopback and NET_TAP up with their addresses; rules: TCP and UDP from NET_TAP are taken by
 * TPROXY to the sockets below, whatever they were sent to; everything else that comes or goes is dropped, neighbour
 * discovery and ARP excepted; so is what comes from another address than the guest's, and all that a process in this
 * namespace sends over loopback, the sockets' ports included. Routes: the connected ones, and table 100 with a
 * local default for what the rules marked; none leads out. May be
 * called again (the daemon of before had died): it makes the same state and fresh sockets; the older ones must be
 * closed by then (it waits up to 2 s for that). @fds: listening (TCP), transparent, non-blocking, with
 * IP_RECVORIGDSTADDR (UDP). A host without IPv6: -1 for those. -ENODEV no NET_TAP; -EADDRINUSE; -ENOPROTOOPT, -ENOENT
 * ... with words: what of nftables, TPROXY is missing. Nothing is left open on an error. */
int topology_up(int fds[TOPOLOGY_FD_COUNT], struct err *e);
/* @n fresh IPv4 TCP sockets (non-blocking, close on exec, transparent: TPROXY gives them the guest's answers only
 * then), to be connected to the guest from anywhere. Nothing is left open on an error. */
int topology_sockets(int *fds, size_t n, struct err *e);

/* What this host can do, tried in a fresh namespace of a child: 0, or -errno with words that name what is missing.
 * For `crucible doctor` and the daemon's health; needs root. */
int topology_probe(struct err *e);

#endif
