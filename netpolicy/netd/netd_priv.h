/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of crucible-netd share. One thread, one loop. */
#ifndef CRUCIBLE_NETPOLICY_NETD_PRIV_H
#define CRUCIBLE_NETPOLICY_NETD_PRIV_H

#include "base/loop.h"
#include "netpolicy/names.h"
#include "netpolicy/netd/netd.h"
#include "netpolicy/policy.h"
#include "netpolicy/relay.h"
#include "netpolicy/resolver.h"
#include "netpolicy/topology.h"

#define NETD_UUID_MAX	   64u /* with the NUL */
#define NETD_OPENED_MAX	   256u
#define NETD_SANDBOXES_MAX 1024u
#define NETD_QUEUE_MAX	   (8u * 1024 * 1024) /* bytes that wait for the daemon; log lines take half of it at most */

struct netd;

/* -- request.c: the daemon's messages ---------------------------------------------------------------------------- */

struct netd_request {
	uint16_t type;
	char uuid[NETD_UUID_MAX];   /* "": NETD_STAT of all */
	char origin[NETD_UUID_MAX]; /* NETD_OPEN; "": none */
	uint8_t mask;		    /* NETD_OPEN: which of enum topology_fd the descriptors are */
	const char *list;	    /* NETD_ALLOW: borrowed from the message */
	size_t list_len;
	struct net_port ports[NET_PORTS_MAX]; /* NETD_PORTS */
	bool has_fd[NET_PORTS_MAX];
	size_t nports;
	struct resolver_upstream up[RESOLVER_UPSTREAMS_MAX]; /* NETD_CONFIG */
	size_t nup;
	struct net_cidr opened[NETD_OPENED_MAX];
	size_t nopened;
};
/* Takes nothing of @m. -EBADMSG another shape, or other descriptors than it speaks of; -EINVAL, -EEXIST, -E2BIG
 * in words, those of net_cidr_parse() and net_ports_parse(). */
int netd_request_parse(const struct msg *m, struct netd_request *ret, struct err *e);

/* -- reach.c: what nobody may reach ------------------------------------------------------------------------------ */

struct netd_reach {
	struct net_reach reach;
	struct net_cidr opened[NETD_OPENED_MAX];
	struct net_addr *own; /* owned */
	uint64_t own_ns;      /* when they were looked up */
};
int netd_reach_init(struct netd_reach *r, struct err *e); /* those of net_own_addresses() */
void netd_reach_fini(struct netd_reach *r);
void netd_reach_open(struct netd_reach *r, const struct net_cidr *opened, size_t n);
/* As net_addr_refused(). The host's own addresses change: they are looked up again when they are some seconds old. */
const char *netd_reach_refused(struct netd_reach *r, const struct net_addr *a);

/* -- log.c: lines of net/log.jsonl ------------------------------------------------------------------------------- */

#define NETD_LOG_SEEN 32u /* questions and datagrams that are looked at for repeats */

struct netd_log {
	struct netd *netd;
	const char *uuid; /* of the sandbox, which has this */
	uint64_t second_ns;
	unsigned lines;	  /* told since second_ns */
	uint64_t dropped; /* not told */
	loop_id timer;	  /* says how many that were */
	struct netd_log_seen {
		uint64_t key, told_ns; /* 0: free */
		uint64_t repeated;
	} seen[NETD_LOG_SEEN];
};
void netd_log_init(struct netd_log *g, struct netd *n, const char *uuid);
void netd_log_fini(struct netd_log *g);
void netd_log_question(struct netd_log *g, const struct resolver_event *ev);
void netd_log_connection(struct netd_log *g, const struct relay_event *ev);
void netd_log_datagram(struct netd_log *g, const struct net_addr *a, uint16_t port, const char *reason);

/* -- udp.c: a socket that TPROXY takes datagrams to --------------------------------------------------------------- */

struct netd_udp;
/* @to: where the guest sent it. @len: DNS_QUESTION_MAX + 1 of a longer one. Everything is borrowed until return. */
typedef void netd_udp_fn(void *arg, int fd, const struct sockaddr_storage *from, const struct sockaddr_storage *to,
			 const void *data, size_t len);
/* Takes @fd, also on failure. -ENOMEM, those of loop_add */
int netd_udp_new(struct loop *l, int fd, netd_udp_fn *fn, void *arg, struct netd_udp **ret);
struct netd_udp *netd_udp_free(struct netd_udp *u); /* NULL is fine; returns NULL */

/* -- sandbox.c ---------------------------------------------------------------------------------------------------- */

struct netd_stat {
	struct relay_stat relay;
	uint64_t questions, denied;
};
struct netd_sandbox {
	struct netd_sandbox *next; /* of the server's list */
	struct netd *netd;
	char uuid[NETD_UUID_MAX];
	struct net_policy *policy;
	struct names *names;
	struct resolver_client *dns;
	struct relay *relay;
	struct netd_udp *udp[2];
	int unserved[TOPOLOGY_FD_COUNT]; /* until the first list; -1: none */
	struct netd_log log;
	bool ports_known; /* NETD_PORTS came since it was opened */
	struct net_port ports[NET_PORTS_MAX];
	size_t nports;
	struct netd_stat before; /* of relays that were replaced; questions of all times */
};
int netd_sandbox_new(struct netd *n, const char *uuid, struct netd_sandbox **ret, struct err *e); /* -ENOMEM */
struct netd_sandbox *netd_sandbox_free(struct netd_sandbox *s); /* NULL is fine; returns NULL */
/* Sockets for those of before, which are closed with all connections; nothing is allowed then. Takes @fds (-1: none),
 * also on failure, after which there are none. -EBADMSG (not the sockets that they should be), -ENOMEM, those of
 * relay_new() and loop_add(). */
int netd_sandbox_open(struct netd_sandbox *s, int fds[TOPOLOGY_FD_COUNT], struct err *e);
int netd_sandbox_allow(struct netd_sandbox *s, const char *list, size_t len, struct err *e); /* net_policy_parse() */
/* Takes descriptors of @m. -EBADMSG (no listening sockets of those families), those of relay_set_ports(). */
int netd_sandbox_ports(struct netd_sandbox *s, const struct netd_request *q, struct msg *m, struct err *e);
void netd_sandbox_recheck(struct netd_sandbox *s); /* what may be reached has changed */
void netd_sandbox_stat(const struct netd_sandbox *s, struct netd_stat *ret);
void netd_stat_add(struct netd_stat *sum, const struct netd_stat *s);

/* -- bygone.c: the names of sandboxes that were closed, for forks of their snapshots ------------------------------- */

#define NETD_BYGONE_MAX 16u /* sandboxes; the oldest go first. What a name is good for ends after minutes or hours */
struct netd_bygone {
	struct netd_gone_names {
		char uuid[NETD_UUID_MAX];
		struct names *names; /* NULL: free */
	} of[NETD_BYGONE_MAX];
	unsigned next;
};
void netd_bygone_add(struct netd_bygone *b, const char *uuid, struct names *names); /* takes @names */
const struct names *netd_bygone_find(struct netd_bygone *b, const char *uuid);	    /* NULL: none */
void netd_bygone_fini(struct netd_bygone *b);

/* -- server.c ------------------------------------------------------------------------------------------------------ */

struct netd_params {
	int listen_fd; /* taken */
	uid_t daemon_uid;
	uint64_t orphan_ns;
};
struct netd {
	struct loop *loop;
	struct netd_params p;
	struct msgconn *conn; /* NULL: nobody */
	loop_id listen_id, rest_id, orphan_id;
	struct resolver *resolver;
	struct netd_reach reach;
	struct netd_sandbox *sandboxes;
	size_t nsandboxes;
	struct netd_stat gone; /* of those that were closed */
	struct netd_bygone bygone;
	loop_fn *on_end;
	void *arg;
};
/* @on_end: there is nothing more to do; once, from the loop. Takes the listening socket, also on failure. */
int netd_new(struct loop *l, const struct netd_params *p, loop_fn *on_end, void *arg, struct netd **ret, struct err *e);
struct netd *netd_free(struct netd *n); /* NULL is fine; returns NULL */
/* To the daemon, without an answer. -EPIPE: nobody is there; -ENOBUFS: it does not read; those of msgconn_send(). */
int netd_tell(struct netd *n, uint16_t type, const struct buf *b);

#endif
