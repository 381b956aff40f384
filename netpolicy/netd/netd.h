/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-netd: relay and resolver of all sandboxes, the one process of crucible that reaches the network.
 *
 * Started by the launcher (kind LAUNCH_NETD) in the host's network namespace with 3: a listening SOCK_SEQPACKET socket
 * bound at <store>/run/netd.sock, under a uid of its own, without any capability, with an empty root and a seccomp
 * filter. The daemon is its only client (SO_PEERCRED: argv[1] is the daemon's uid); one that connects later replaces
 * the one before. A client that goes takes nothing with it: connections go on; netd ends 90 s after the last, or by
 * NETD_QUIT. Requests are answered in order by NETD_REPLY with their id: {i32 code, str words, payload}. -EBADMSG
 * malformed. A sandbox is named by its uuid. */
#ifndef CRUCIBLE_NETPOLICY_NETD_H
#define CRUCIBLE_NETPOLICY_NETD_H

#include "base/msg.h"
#include "base/wire.h"
#include "netpolicy/net.h"

#define NETD_FD_LISTEN 3
#define NETD_ORPHAN_S  90u

enum netd_type {
	NETD_REPLY = 1,
	/* {str resolv_conf, u32 n, n * str cidr}: upstreams as "nameserver" lines ("ADDRESS" or "ADDRESS#PORT"), ranges
	 * that root opened. First of all, and again whenever they change. -EINVAL */
	NETD_CONFIG,
	/* {str uuid} fds: those of topology_up() that are there, {u8 mask} tells which (bit n: enum topology_fd n).
	 * Wire: str uuid, u8 mask, and perhaps str origin: the sandbox that this one is a fork of, or of which its
	 * snapshot was taken; a new one begins with the names that netd knows that one by, if it does. Replaces the
	 * sockets of one that is there (its connections are reset); without fds: is it there? -> {u8 ports_known, u32
	 * n, n * str port}: its published ports, which can be kept by NETD_PORTS. -ENOENT (without fds, and it is not
	 * there), -EMFILE. Before the first NETD_ALLOW nothing is allowed, and nobody is answered: it waits in the
	 * sockets. */
	NETD_OPEN,
	/* {str uuid, str list}: net/allow. Live: connections that it forbids end. -EINVAL in words, the old list stays.
	 */
	NETD_ALLOW,
	/* {str uuid, u32 n, n * {str port, u8 has_fd}} fds: the listening sockets of those with has_fd, in order. Ports
	 * that are named without one must be there (-ENOENT). */
	NETD_PORTS,
	/* {str uuid} fds: up to MSG_FDS_MAX sockets made in its namespace, none if there are none to be had; no reply
	 * is wanted (id 0). Every NETD_NEED_SOCKETS is answered by one: netd asks no second time before. */
	NETD_SOCKETS,
	NETD_CLOSE, /* {str uuid}: all of it ends, descriptors closed; fine when none */
	NETD_LIST,  /* {} -> {u32 n, n * str uuid} */
	/* {str uuid or "" for all} -> {u64 bytes_out, bytes_in, opened, refused, failed, questions, denied, u32 open}
	 */
	NETD_STAT,
	NETD_QUIT,

	/* netd -> daemon, id 0 */
	NETD_LOG,	   /* {str uuid, str json}: one line of net/log.jsonl, without '\n', at most 2 KiB */
	NETD_NEED_SOCKETS, /* {str uuid} */
	NETD_TYPE_COUNT,
};

/* Lines of the log. "time" is RFC 3339 with milliseconds, in UTC:
 * {"time":…,"event":"question","name":"a.test","type":"A","verdict":"answered","addresses":["…"],"reason":""}
 * {"time":…,"event":"connection","direction":"out","name":"a.test","address":"…","port":443,"verdict":"ended",
 *  "reason":"","bytes_out":N,"bytes_in":N,"duration_ms":N}
 * {"time":…,"event":"datagram","address":"…","port":443,"verdict":"refused","reason":"no UDP but DNS"}
 * {"time":…,"event":"dropped","lines":N}: more than NETD_LOG_PER_S a second were not told.
 * A question or datagram that repeats within a second is told once ("repeated":N with the next). */
#define NETD_LOG_PER_S 50u

#endif
