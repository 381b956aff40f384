/* SPDX-License-Identifier: Apache-2.0 */
/* What the relay's parts share. */
#ifndef CRUCIBLE_NETPOLICY_RELAY_PRIV_H
#define CRUCIBLE_NETPOLICY_RELAY_PRIV_H

#include "netpolicy/pump.h"
#include "netpolicy/relay.h"
#include "netpolicy/sniff.h"

/* A listening socket. An accept that fails for want of something would be told again and again: it rests. */
struct relay_listener {
	struct relay *r;
	int fd;
	bool paced; /* outward: no more than RELAY_A_SECOND */
	loop_id src, again;
	/* Takes @fd, which does not block. */
	void (*take)(struct relay_listener *l, int fd, const struct sockaddr_storage *peer, socklen_t len);
};
void relay_listener_init(struct relay_listener *l, struct relay *r, int fd); /* takes @fd */
int relay_listener_start(struct relay_listener *l);			     /* -ENOMEM, those of loop_add */
void relay_listener_fini(struct relay_listener *l);

struct relay_port {
	struct relay_listener listener; /* first: it is found by it */
	struct net_port at;
	bool kept; /* while the list is replaced */
};

/* One of the two sockets of a connection. */
struct relay_side {
	int fd;
	loop_id src;
	uint32_t events; /* asked for */
	bool hung;	 /* both its directions have ended: the loop would tell that again and again */
};

enum relay_state {
	RELAY_HELLO, /* out: reads what the guest says first; it goes to from_guest.head */
	RELAY_WAIT,  /* in: there is no socket to dial with */
	RELAY_DIAL,
	RELAY_OPEN,
};

struct relay_conn {
	struct relay *r;
	struct relay_conn *prev, *next; /* of r->conns, the oldest first */
	enum relay_state state;
	bool out;
	struct relay_side guest, far;
	struct pump from_guest, to_guest;
	struct net_addr addr; /* as in struct relay_event */
	uint16_t port;
	struct net_port at; /* in: the published one */
	bool has_tls;
	char tls[NET_NAME_MAX + 1], name[NET_NAME_MAX + 1];
	loop_id timer; /* of the state */
	uint64_t began_ns, moved_ns;
};

struct relay {
	struct loop *loop;
	struct relay_ops ops;
	void *arg;
	struct relay_listener tcp[2];
	struct relay_port **ports;
	size_t nports;
	int sockets[RELAY_SOCKETS];
	unsigned nsockets;
	bool asked;			/* for more of them */
	uint64_t saved_ns, refilled_ns; /* of the pace: what has been saved up for connections */
	struct relay_conn *conns, *last;
	struct pipes pipes;
	struct relay_stat stat; /* `open` counts r->conns */
	/* What tests change. */
	uint64_t hello_ns, dial_ns, idle_ns, rest_ns, cost_ns;
	bool copy; /* never splice */
};

/* relay.c: refuse what was accepted just now. Takes @fd. */
void relay_refuse(struct relay *r, const char *direction, const struct net_addr *a, uint16_t port, int fd,
		  const char *reason);
/* Must @fd, accepted just now, be refused, whoever it is? */
bool relay_full(const struct relay *r, int fd, const char **ret_why);
void relay_reset_fd(int *fd); /* close it so that the other end gets a reset */

/* relay_conn.c. Both take @fd; what fails is an event. */
void relay_conn_out(struct relay *r, int fd, const struct net_addr *a, uint16_t port);
void relay_conn_in(struct relay *r, int fd, const struct net_addr *from, const struct net_port *at);
void relay_conn_dial(struct relay_conn *c, int fd); /* RELAY_WAIT: here is its socket. Takes it */
/* "ended", or "failed" if it was never open. Both sides are reset, unless everything has been passed on. Frees @c. */
void relay_conn_end(struct relay_conn *c, const char *reason);
void relay_conn_refuse(struct relay_conn *c, const char *reason); /* the same, before it was open */
bool relay_conn_decide(struct relay_conn *c);	/* out; false: it was refused or ended, and is freed */
void relay_conn_dial_out(struct relay_conn *c); /* decide, and dial */

/* relay_hello.c */
bool relay_tls_port(uint16_t port);
void relay_hello(struct relay_conn *c); /* RELAY_HELLO: there is something to read */

/* relay_in.c */
void relay_ask(struct relay *r); /* for sockets, when there are few */
void relay_in_close(struct relay *r);

#endif
