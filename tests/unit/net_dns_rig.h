/* SPDX-License-Identifier: Apache-2.0 */
/* A resolver between a guest and upstream servers that are this rig: all on one loop, on loopback, unprivileged. */
#ifndef CRUCIBLE_TESTS_NET_DNS_RIG_H
#define CRUCIBLE_TESTS_NET_DNS_RIG_H

#include "netpolicy/resolver_priv.h"

#define RIG_MESSAGE 65536
#define RIG_ANSWERS 300
#define RIG_UPS	    2

struct rig;
struct rig_up { /* one upstream server */
	struct rig *rig;
	int udp, tcp, conn; /* one connection at a time */
	loop_id udp_src, tcp_src, conn_src;
	uint16_t port;
	/* Called for each message; answers by rig_up_send(), now, later or never. NULL: silence. */
	void (*respond)(struct rig_up *u, const uint8_t *q, size_t len, bool tcp);
	struct sockaddr_storage peer; /* of the last datagram */
	uint16_t ports[16], ids[16];  /* where the first datagrams came from, and their ids */
	size_t nudp, ntcp;	      /* messages that came */
	uint8_t last[512];	      /* the last one */
	size_t last_len;
	uint8_t in[1024]; /* of the connection */
	size_t in_len;
};

struct rig {
	struct loop *loop;
	struct resolver *r;
	struct resolver_client *c;
	struct rig_up up[RIG_UPS];
	int guest, host; /* UDP: the guest's end, and netd's */
	struct sockaddr_storage guest_addr, host_addr;

	const char *allowed; /* NULL: nothing; "": everything; else the one name */
	/* what the operations were told */
	size_t nevents;
	char name[256], type[16], verdict[16], reason[320];
	struct net_addr addrs[RIG_ANSWERS];
	size_t naddrs, nremembered;
	struct net_addr remembered;
	char remembered_name[256];
	uint32_t remembered_ttl_s;
	bool told_before_answer; /* no address was remembered after its answer had been there */
};

struct rig_reply {
	size_t len;
	uint16_t id;
	int rcode; /* with EDNS' bits */
	bool tc, edns;
	char question[300]; /* "Name. TYPE" as in the message */
	size_t nanswers;
	char answers[RIG_ANSWERS][300]; /* "owner TTL TYPE data" */
};

void rig_init(struct rig *g, size_t nup);
void rig_fini(struct rig *g); /* checks that nothing is left under way */
int rig_setup(void **state);  /* two servers, everything allowed; *state is the rig */
int rig_teardown(void **state);

/* Messages. @edns: the size that is offered, 0: no OPT record. Returns the bytes. */
size_t rig_question(uint8_t *out, uint16_t id, const char *name, uint16_t type, unsigned edns);
size_t rig_put_name(uint8_t *out, const char *name);
/* An answer to @q: header and question; then records behind it. @flags: beyond QR, RD, RA: rcode, TC (0x200). */
size_t rig_answer(uint8_t *out, const uint8_t *q, size_t len, uint16_t flags, uint16_t nanswers);
/* @owner: NULL: the question's. @data: of A and AAAA the address, of CNAME the name. */
size_t rig_record(uint8_t *out, const char *owner, uint16_t type, uint32_t ttl_s, const char *data);

/* The guest. */
void rig_send(struct rig *g, const uint8_t *data, size_t len);
void rig_ask(struct rig *g, uint16_t id, const char *name, uint16_t type, unsigned edns);
void rig_take(struct rig *g, struct rig_reply *ret); /* waits for a datagram */
void rig_asked(struct rig *g, const char *name, uint16_t type, struct rig_reply *ret);
bool rig_silent(struct rig *g); /* nothing has come for the guest */
void rig_read(const uint8_t *data, size_t len, struct rig_reply *ret);
void rig_until(struct rig *g, bool (*done)(struct rig *g));	 /* rounds of the loop, until it is so */
int rig_connect(struct rig *g);					 /* a TCP connection of the guest; its end */
bool rig_tcp_take(struct rig *g, int fd, struct rig_reply *ret); /* false: the connection was closed */

/* The servers. */
void rig_up_send(struct rig_up *u, const uint8_t *data, size_t len, bool tcp);
void rig_say_public(struct rig_up *u, const uint8_t *q, size_t len, bool tcp); /* 93.184.215.14, 2606:2800::1 */

#endif
