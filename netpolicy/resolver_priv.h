/* SPDX-License-Identifier: Apache-2.0 */
/* What the resolver's files share. resolver.c decides, resolver_up.c asks upstream, resolver_tcp.c holds guests'
 * connections, resolver_msg.c reads and writes messages. Thread: the loop's. */
#ifndef CRUCIBLE_NETPOLICY_RESOLVER_PRIV_H
#define CRUCIBLE_NETPOLICY_RESOLVER_PRIV_H

#include "netpolicy/resolver.h"
#include "netpolicy/resolver_msg.h"

struct resolver {
	struct loop *loop;
	struct resolver_upstream up[RESOLVER_UPSTREAMS_MAX];
	size_t nup;
	unsigned up_set;  /* counts resolver_set_upstreams() */
	size_t first;	  /* the server that answered last: it is asked first */
	uint64_t try_ns;  /* how long one server has for one try; tests shorten these two */
	uint64_t idle_ns; /* how long a guest's connection may be silent */
};

struct resolver_client {
	struct resolver *r;
	const struct resolver_ops *ops;
	void *arg;
	uint64_t tokens_ns; /* of the rate limit: what has been saved up; a question costs COST_NS */
	uint64_t refilled_ns;
	struct asked *asked; /* under way, newest first */
	size_t nasked;
	struct guest_conn *conns;
	size_t nconns;
};

/* Where an answer goes. */
struct reply_to {
	struct guest_conn *conn; /* NULL: UDP, by what follows */
	int fd;			 /* borrowed */
	struct sockaddr_storage from, to;
};

/* -- resolver.c -------------------------------------------------------------------------------------------------- */

/* One message of a guest. */
void resolver_question(struct resolver_client *c, const struct reply_to *to, const uint8_t *data, size_t len);
/* The connection ends: its questions are forgotten. */
void resolver_forget_conn(struct resolver_client *c, const struct guest_conn *conn);

/* -- resolver_tcp.c ---------------------------------------------------------------------------------------------- */

void guest_conn_new(struct resolver_client *c, int taken); /* a descriptor */
void guest_conn_end(struct guest_conn *g);
/* One question of this connection went on its way (+1), or has ended (-1). */
void guest_conn_pending(struct guest_conn *g, int by);
void guest_conn_send(struct guest_conn *g, const uint8_t *data, size_t len); /* never ends @g at once */

/* -- resolver_up.c ----------------------------------------------------------------------------------------------- */

struct up_query;
/* @e: NULL or why there is no answer. The query is gone when this is called. */
typedef void up_fn(void *arg, const struct dns_answer *a, const struct err *e);
/* @fn is called once, later, unless the query is cancelled. @q must live until then. -ENOMEM */
int up_ask(struct resolver *r, const struct dns_question *q, up_fn *fn, void *arg, struct up_query **ret);
struct up_query *up_cancel(struct up_query *u); /* NULL is fine; returns NULL */

#endif
