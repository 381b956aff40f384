/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-netd as a program between two network namespaces: `INSIDE` is a sandbox's, where some public and private
 * addresses lead to whoever listens, as all do by TPROXY; `OUTSIDE` is the host's, where this process lives, with the
 * same addresses. The test is the daemon, the guest, the upstream and the servers. Everything blocks, for 30 s at most.
 */
#ifndef CRUCIBLE_TEST_NETD_RIG_H
#define CRUCIBLE_TEST_NETD_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/msg.h"
#include "base/wire.h"
#include "netpolicy/netd/netd.h"
#include "netpolicy/topology.h"

#define PUBLIC	    "93.184.216.34" /* in both namespaces, and no interface's */
#define PUBLIC2	    "93.184.216.35"
#define PUBLIC_OWN  "93.184.216.1" /* of the host */
#define PRIVATE	    "10.5.0.9"
#define PRIVATE_OWN "10.5.0.1"

enum side { OUTSIDE, INSIDE };
void world(void); /* once a process; exits with 77 where it cannot be made */
/* Sockets, close on exec, with a time limit. */
int world_listen(enum side side, const char *ip, uint16_t port);
int world_dial(enum side side, const char *ip, uint16_t port); /* -errno */
int world_udp(enum side side, const char *ip, uint16_t port);  /* tells where datagrams were sent to */
int world_socket(enum side side);			       /* TCP over IPv4, not connected */
int world_accept(int listener);
void world_echo(int a, int b); /* a word each way */
bool world_is_reset(int fd);   /* waits for its end: was it a reset? */
uint16_t world_port_of(int fd);

struct rig {
	char folder[40], socket[60];
	pid_t pid;
	int fd; /* the daemon's connection */
	uint32_t id;
	/* The last answer. */
	uint8_t buf[MSG_MAX];
	struct msg m;
	int32_t code;
	char words[400];
	struct wire_rd rest;
	/* What came unasked. */
	struct json_object *lines; /* an array: NETD_LOG of any sandbox, those that were not looked at */
	unsigned needs;
};
void rig_start(struct rig *g, uid_t daemon, const char *orphan_ms);
int rig_ended(struct rig *g);	 /* waits; its status */
void rig_stop(struct rig *g);	 /* NETD_QUIT, and it must have ended well */
void rig_connect(struct rig *g); /* closes the connection of before */

/* Send a request and wait for its answer. */
int rig_call(struct rig *g, uint16_t type, const struct buf *b, const int *fds, size_t nfds);
int rig_text(struct rig *g, uint16_t type, const char *uuid, const char *text); /* {str uuid} or {str uuid, str text} */
/* @ranges: NULL-ended. */
int rig_config(struct rig *g, const char *resolv_conf, const char *const ranges[]);
/* A sandbox with that TCP listener and UDP socket, IPv4; -1: none. Closes them here. */
int rig_open(struct rig *g, const char *uuid, int tcp, int udp);
/* The same with TCP alone, of a fork. */
int rig_open_fork(struct rig *g, const char *uuid, const char *origin, int tcp);
int rig_ports(struct rig *g, const char *uuid, const char *const ports[], const int *fds);

/* Waits for a line in which each of these members has this text; the caller puts it. NULL-ended pairs. */
struct json_object *rig_line(struct rig *g, const char *key, ...) __attribute__((sentinel));
void rig_logged(struct rig *g, const char *key, ...) __attribute__((sentinel)); /* the same, put */

#endif
