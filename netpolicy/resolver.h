/* SPDX-License-Identifier: Apache-2.0 */
/* The resolver of sandboxes: questions of guests over UDP and TCP; allowed names are asked for at the upstream,
 * everything else is answered at once and never sent. DNS messages are parsed and built by libldns. Thread: one loop;
 * nothing blocks.
 *
 * For an allowed name: A and AAAA go upstream (a random id and a random source port each; UDP, and TCP when the answer
 * is truncated; each upstream server in turn, the one that answered last first; 2 s a try, three tries or one a
 * server). From the answer only A and AAAA that the client's `refused` does not refuse are passed on, CNAMEs on the way
 * to them too; the names are remembered by `on_address` before the guest gets the answer. If all addresses were
 * refused: NXDOMAIN. HTTPS and SVCB: an empty answer (NOERROR), never sent (hints and encrypted hellos). Other types of
 * an allowed name: empty answer, never sent. Denied names: NXDOMAIN at once. PTR and the like: denied. More than one
 * question, a class but IN, an opcode but QUERY: NOTIMP or FORMERR. The guest's EDNS size counts (512 without; at most
 * 1232 over UDP): what is larger has the TC bit, and comes over TCP. `localhost` is NXDOMAIN. Upstream failures:
 * SERVFAIL. What is asked upstream is made anew in lower case: nothing else of a guest's message leaves the host. A
 * question that is repeated while it is under way is not sent again. At most 256 addresses and 16 CNAMEs of an answer
 * are passed on; an AAAA with an IPv4 address in it never is.
 *
 * Limits of each client: RESOLVER_QPS questions a second with a burst of twice that (beyond: REFUSED), RESOLVER_PENDING
 * under way, RESOLVER_TCP connections, each closed after 10 s of silence. */
#ifndef CRUCIBLE_NETPOLICY_RESOLVER_H
#define CRUCIBLE_NETPOLICY_RESOLVER_H

#include "base/err.h"
#include "base/loop.h"
#include "netpolicy/addr.h"
#include "netpolicy/net.h"

#define RESOLVER_QPS	       50u
#define RESOLVER_PENDING       64u
#define RESOLVER_TCP	       8u
#define RESOLVER_UPSTREAMS_MAX 4u

struct resolver_upstream {
	struct net_addr addr;
	uint16_t port; /* 53 */
};
struct resolver;
int resolver_new(struct loop *l, const struct resolver_upstream *up, size_t n, struct resolver **ret); /* -ENOMEM */
/* Questions that are under way go on at the old ones. */
void resolver_set_upstreams(struct resolver *r, const struct resolver_upstream *up, size_t n);
struct resolver *resolver_free(struct resolver *r); /* after its clients */
/* The "nameserver" lines of a resolv.conf(5) text. */
size_t resolver_parse_resolv_conf(const char *text, struct resolver_upstream *out, size_t cap);

struct resolver_event {		      /* one question, when it is answered */
	const char *name;	      /* normal form, or as good as it could be read (cleaned) */
	const char *type;	      /* "A", "AAAA", "HTTPS" … */
	const char *verdict;	      /* "answered" "denied" "filtered" "failed" "limited" "malformed" */
	const char *reason;	      /* words, or "" */
	const struct net_addr *addrs; /* what the guest was given */
	size_t naddrs;
};
/* None of these may free the client. */
struct resolver_ops {
	bool (*allows)(void *arg, const char *name);		     /* normal form */
	const char *(*refused)(void *arg, const struct net_addr *a); /* as net_addr_refused() */
	void (*on_address)(void *arg, const char *name, const struct net_addr *a, uint32_t ttl_s);
	void (*on_event)(void *arg, const struct resolver_event *ev);
};
struct resolver_client; /* one sandbox */
int resolver_client_new(struct resolver *r, const struct resolver_ops *ops, void *arg, struct resolver_client **ret);
struct resolver_client *resolver_client_free(struct resolver_client *c); /* NULL is fine; returns NULL */
/* A datagram that came to port 53, wherever it was sent to: answered by sendmsg on @fd (borrowed, must live as long as
 * the client) with @to as its source (IP_PKTINFO / IPV6_PKTINFO; the socket is transparent). */
void resolver_client_udp(struct resolver_client *c, int fd, const struct sockaddr_storage *from,
			 const struct sockaddr_storage *to, const void *data, size_t len);
/* A TCP connection to port 53. Takes @fd. */
void resolver_client_tcp(struct resolver_client *c, int fd);

#endif
