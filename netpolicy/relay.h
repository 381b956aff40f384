/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between a sandbox and the world. Outward: accepted where TPROXY took them, decided, dialed from the
 * caller's own network namespace, then spliced. Inward: accepted at a published port, dialed in the sandbox's namespace
 * by a socket that was made there. Thread: one loop; nothing blocks.
 *
 * Outward, a connection to TCP port 53 is handed to `on_dns`. For every other one: to a TLS port (443, 465, 563, 636,
 * 853, 989, 990, 992-995, 5061, 8443) the ClientHello is read first (sniff.h; within 10 s and SNIFF_MAX), `decide` gets
 * its name; any result but SNIFF_NAME refuses, whatever the policy says. Else `decide` gets NULL at once. What is
 * refused is reset (SO_LINGER 0). What is allowed is dialed at exactly the address that the guest dialed; that address
 * is checked once more by `decide`, which is asked for open connections again by relay_recheck(). A dial that fails is
 * a reset, too. (The guest's connect has succeeded by then: that is TPROXY's nature.)
 *
 * Data moves by splice() through a pipe each way (back-pressure by it; read and write where splice cannot); half-close
 * is passed on, a reset resets the other side. Idle connections are kept (RELAY_IDLE_S).
 *
 * A connection that has ended keeps a port of the host for a minute, of some 28000 towards one server. So a sandbox
 * opens RELAY_A_SECOND outward ones a second, after RELAY_BURST at once; more wait to be accepted.
 *
 * The process ignores SIGPIPE: splice() raises it. A connection holds two descriptors, and up to four more while bytes
 * are stuck in it; when there are none left, what is accepted waits, and bytes are copied; what would take one of those
 * that are kept for others (reserve.h) is refused. None of the ops may call back, but for relay_sockets() in
 * need_sockets and relay_stat() in on_event. */
#ifndef CRUCIBLE_NETPOLICY_RELAY_H
#define CRUCIBLE_NETPOLICY_RELAY_H

#include "base/err.h"
#include "base/loop.h"
#include "netpolicy/addr.h"
#include "netpolicy/net.h"
#include "netpolicy/policy.h"

#define RELAY_CONNECTIONS_MAX 512u /* of one sandbox, both ways; beyond: refused */
#define RELAY_A_SECOND	      100u
#define RELAY_BURST	      1000u
#define RELAY_DIAL_S	      15u
#define RELAY_IDLE_S	      7200u
#define RELAY_SOCKETS	      32u /* made in the namespace and kept ready, for published ports */

struct relay_event {		      /* one connection: when it was refused, and when it has ended */
	const char *direction;	      /* "out" "in" */
	const char *name;	      /* that it was allowed by; "" */
	struct net_addr addr;	      /* out: dialed; in: the client's */
	uint16_t port;		      /* out: dialed; in: the published one (host) */
	const char *verdict;	      /* "ended" "refused" "failed" */
	const char *reason;	      /* words, or "" */
	uint64_t bytes_out, bytes_in; /* from and to the guest */
	uint64_t duration_ns;
};
struct relay_ops {
	/* May the guest talk to @a:@port? @tls: the name in its hello, or NULL. 0 and the name into @name (NET_NAME_MAX
	 * + 1 bytes; "" for a range), or -EPERM with a reason. relay_recheck(): @name holds what the connection was
	 * allowed by, which may have been resolved long ago; else "". */
	int (*decide)(void *arg, const struct net_addr *a, uint16_t port, const char *tls, char *name, struct err *e);
	void (*on_dns)(void *arg, int fd); /* takes @fd */
	void (*on_event)(void *arg, const struct relay_event *ev);
	/* Fewer than a quarter of RELAY_SOCKETS are left: call relay_sockets() soon. Asked once until then. */
	void (*need_sockets)(void *arg);
};
struct relay_stat {
	uint64_t bytes_out, bytes_in, opened, refused, failed; /* since its start; opened: both sides were connected */
	uint32_t open;					       /* all that count for RELAY_CONNECTIONS_MAX */
};

struct relay; /* one sandbox's */
/* Takes @tcp4 and @tcp6 (listening, transparent; -1: none), also on failure. -ENOMEM, those of loop_add */
int relay_new(struct loop *l, const struct relay_ops *ops, void *arg, int tcp4, int tcp6, struct relay **ret);
/* The same two, later, of one that was made without. Takes them, also on failure. */
int relay_listen(struct relay *r, int tcp4, int tcp6);
struct relay *relay_free(struct relay *r); /* every connection is reset, with its event; NULL is fine; returns NULL */
void relay_recheck(struct relay *r);	   /* the policy has changed: open outward connections that it forbids end */
void relay_stat(const struct relay *r, struct relay_stat *ret);

/* Inward: the ports from now on; what was listened on and is not named any more is closed, and its connections reset;
 * those of a port that leads to another port of the guest, too.
 * @fds: bound and listening, one each, taken also on failure; -1: keep the one that is there for this host address and
 * port. -ENOMEM, -ENOENT (none is there); nothing has changed then. */
int relay_set_ports(struct relay *r, const struct net_port *ports, const int *fds, size_t n, struct err *e);
/* TCP sockets made in the sandbox's namespace, not connected, IPv4. Takes them. Clients wait for them for RELAY_DIAL_S;
 * @n of 0: there are none to be had, who waits is reset, and the next client asks again. */
void relay_sockets(struct relay *r, const int *fds, size_t n);

#endif
