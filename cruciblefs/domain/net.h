/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox's network, inside the domain (sandbox.h has its face).
 *
 *   state     meaning                                                          next
 *   OFF       no machine, or neither a list nor ports                          OPENING (a start, a write)
 *   OPENING   something of what the files say is on its way, or netd is away   OPEN, BROKEN, OFF
 *   OPEN      netd does what the files say, the guest has its card             OPENING (a write, netd is lost), OFF
 *   BROKEN    it could not be had; `error` says why. Nothing is let through    OPENING (a write, another netd), OFF
 *
 * A start that cannot have its network fails; a machine that runs goes on without one. Files: net.c (these states),
 * netstep.c (from one request to the next), netearly.c (of machines that wait), netlist.c (net/allow), netports.c
 * (net/ports and the sockets), netpeer.c (crucible-netd: found, started, configured; what it tells). */
#ifndef CRUCIBLE_DOMAIN_NET_H
#define CRUCIBLE_DOMAIN_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/loop.h"
#include "netpolicy/policy.h"

struct registry;
struct sandbox;
struct cfs_who;

struct net_held { /* a published port */
	struct net_port port;
	int fd;		/* bound and listening; -1: not by us */
	bool with_netd; /* it accepts there; -1 above then means that a daemon before us had it bound */
	bool sent;	/* in the message that is on its way */
};

struct netd_stat {
	uint64_t bytes_out, bytes_in, opened, refused, failed, questions, denied;
	uint32_t open;
};

enum net_state { NET_OFF, NET_OPENING, NET_OPEN, NET_BROKEN };

struct sandbox_net {
	enum net_state state;
	bool asked;   /* an answer is on its way; the next step comes after it */
	bool dropped; /* that answer is of a machine that is no more */
	bool there;   /* netd has its sockets */
	bool unsure;  /* or something of them, which must go first */
	bool maybe;   /* netd may have them, of a connection or a daemon before */
	bool allow_due, ports_due;
	bool guest_on;	  /* the guest has been told that it has a network */
	bool holds;	  /* commands wait for it */
	bool holds_ready; /* a start waits for it */
	bool ready_waits; /* and the guest is ready */
	bool sockets_asked, stat_asked;
	unsigned tries; /* of the launcher, that it could not serve yet */
	loop_id step, patience;
	struct net_held *ports;
	size_t nports;
	struct netd_stat stat; /* last known */
};

/* -- net.c */
bool net_wanted(const struct sandbox *s);
const char *net_word(const struct sandbox *s); /* of `isolation`: "none", "filtered" */
/* Its box has its orders, the guest's network among them if @on: the rest comes behind. -ENOMEM: not begun. */
int net_start(struct sandbox *s, bool on);
bool net_guest_ready(struct sandbox *s); /* true: it is not yet, boxlink_ready() comes when the network is there */
void net_adopted(struct sandbox *s);	 /* its box has come back to this daemon */
void net_changed(struct sandbox *s);	 /* a list was written */
void net_down(struct sandbox *s);	 /* its machine ends */
void net_gone(struct sandbox *s);	 /* it was removed: its ports are free on return */
void net_fini(struct sandbox *s);
void net_netd_lost(struct sandbox *s);
void net_netd_up(struct sandbox *s, bool fresh);
void net_give_sockets(struct sandbox *s); /* netd needs some made in its namespace */

void net_log_change(struct sandbox *s, const struct cfs_who *who, const char *file, size_t lines);

int net_step_later(struct sandbox *s, uint64_t after_ns); /* -ENOMEM */
void net_opened(struct sandbox *s);			  /* all of it is there */
/* It cannot be had; @what: a step. The sandbox may have gone down on return. */
void net_broken(struct sandbox *s, int code, const char *what, const char *words);
/* -- netstep.c */
void net_step(struct sandbox *s); /* what is missing is asked for */

/* -- netearly.c: of a machine that waits for somebody */
struct msg;
void net_early_begin(struct registry *r, const char *machine);
bool net_early_comes(struct registry *r, const char *machine); /* the launcher has not answered yet */
/* Not while it comes. True: @mask and the descriptors of @ret, which are the caller's, are what the launcher answers to
 * LAUNCH_NET. */
bool net_early_take(struct registry *r, const char *machine, uint8_t *mask, struct msg *ret);
void net_early_drop(struct registry *r, const char *machine);
void net_early_free(struct registry *r); /* once the launcher answers no more */

/* -- netlist.c */
/* Is what it has still within net_allow_max? -EPERM, -EDQUOT; -EINVAL a rule that is none any more. */
int net_list_check(struct sandbox *s, struct err *e);

/* -- netports.c */
int net_ports_from_text(struct sandbox *s, const char *text, struct err *e); /* of sandbox.json; nothing is bound */
int net_ports_text(const struct sandbox *s, struct buf *out);
/* Bind what is not bound and not netd's. -errno with words of the first that cannot be; the others are. */
int net_ports_bind(struct sandbox *s, struct err *e);
void net_ports_forget_netd(struct sandbox *s);		      /* it has none of them any more */
void net_ports_netd_has(struct sandbox *s, const char *text); /* it says so */
void net_ports_free(struct sandbox *s);

/* -- netpeer.c */
struct ask;
int netd_begin(struct registry *r, struct err *e);
void netd_quit(struct registry *r);
void netd_unlink(struct registry *r);
void netd_end(struct registry *r);
bool netd_is_up(const struct registry *r);
const char *netd_failed(const struct registry *r); /* words, once it failed too often; "" */
void netd_refresh(struct registry *r);		   /* its configuration, if resolv.conf has changed */
void netd_stat_ask(struct registry *r, struct sandbox *s_or_null);
const char *netd_state_word(const struct registry *r); /* "up" "starting" "failed" */
extern const char *netd_resolv_conf;		       /* "/etc/resolv.conf"; tests change it */

#endif
