/* SPDX-License-Identifier: Apache-2.0 */
/* A process of ours beside the daemon, of which there is one: the pager, the store. It outlives daemons, so it is
 * looked for first and started when it does not live; when it dies, or hangs, it is started again.
 *
 *   state      meaning                                 next
 *   WAITING    a try is due later                      KILLING (nobody answers), GREETING
 *   KILLING    what may be left of it is being ended   SPAWNING, WAITING
 *   SPAWNING   the launcher starts it                  GREETING, WAITING
 *   GREETING   connected, it was asked something       UP (it answered), WAITING
 *   UP         calls are taken                         WAITING (on_lost), STOPPED after peer_quit()
 *   STOPPED    it was told to end; it stays so                                                            */
#ifndef CRUCIBLE_DOMAIN_PEER_H
#define CRUCIBLE_DOMAIN_PEER_H

#include <sys/types.h>
#include "base/call.h"
#include "cruciblefs/launch/launch.h"

#define PEER_LISTEN_MAX	    2
#define PEER_TRIES_A_MINUTE 5
#define PEER_FIRST_DELAY_MS 250u
#define PEER_DELAY_MS	    1000u
#define PEER_GREETING_MS    10000u
/* While calls wait, every PEER_LOOK_MS is a look: PEER_SILENT_LOOKS in a row without a word from it (and it was asked
 * for one), or PEER_STALLED_LOOKS without an answer or progress, and it hangs. Looks, not time: of a daemon that was
 * stopped itself, or starved, one counts. */
#define PEER_LOOK_MS	   10000u
#define PEER_SILENT_LOOKS  6u
#define PEER_STALLED_LOOKS 90u

struct peer_kind {
	const char *name; /* "crucible-pager": for words and the log */
	enum launch_kind kind;
	const char *uuid; /* LAUNCH_UUID_* */
	/* Its descriptors 3, 4: sockets that are bound in the store and listen. The first is ours to connect to. */
	struct peer_listen {
		const char *dir, *name;
		int type; /* SOCK_* */
		mode_t mode;
	} listen[PEER_LISTEN_MAX];
	size_t nlisten;
	uint16_t reply;	   /* type of its replies */
	uint16_t greeting; /* a request without a payload that any of them answers */
	uint16_t probe;	   /* the same, that it answers whatever it is at; 0: the greeting is one */
	bool patient;	   /* it may be at work for long before it greets: no answer is no sign of death */
	uint16_t progress; /* type of its messages about how far a call is; 0: none, and it is never called stuck */
};

struct peer_setup {
	struct loop *loop;
	struct launcher *launcher; /* borrowed; freed before the peer is, since an answer of it may be on its way */
	int store_fd;		   /* borrowed: the store's directory */
	int log_fd;		   /* its stdout and stderr; borrowed */
	uint32_t nofile;
	size_t argc; /* its own command line, argv[0] included; borrowed for life */
	const char *const *argv;
};

struct peer_ops {
	/* It answers, and calls are taken. @fresh: it was started just now and knows nothing of before. */
	void (*on_up)(void *arg, bool fresh);
	/* It is gone, or hung and will be ended: all calls have been answered with -EPIPE; a new one is tried. */
	void (*on_lost)(void *arg, const char *words);
	void (*on_msg)(void *arg, struct msg *m); /* no reply; may be NULL */
};

struct peer;
/* Nothing is called before this returned. Errors: -ENOMEM, -E2BIG too many arguments. */
int peer_new(const struct peer_kind *kind, const struct peer_setup *setup, const struct peer_ops *ops, void *arg,
	     struct peer **ret, struct err *e);
/* Calls that wait are answered with -EPIPE. The process lives on. From any callback but those of that answer. */
struct peer *peer_free(struct peer *p);
bool peer_is_up(const struct peer *p);
/* Why there is none, once it failed too often in a minute (it is tried on, more slowly); "": nothing is wrong. */
const char *peer_degraded(const struct peer *p);
/* @fn: called exactly once. Errors, after which it is not: -ENOTCONN (not UP), those of calls_send(). */
int peer_call(struct peer *p, uint16_t type, const void *data, size_t len, const int *fds, size_t nfds, call_fn *fn,
	      void *arg, uint32_t *ret_id);
/* Without a reply. Errors: -ENOTCONN, those of msgconn_send(). */
int peer_tell(struct peer *p, uint16_t type, const void *data, size_t len, const int *fds, size_t nfds);
/* Tell it to end (@type, without a payload) and let it be gone: no on_lost, no new one. */
void peer_quit(struct peer *p, uint16_t type);

/* -- peersock.c: both take a socket below @store_fd and give a descriptor. Errors: those of the system calls. */
/* -ECONNREFUSED or -ENOENT nobody listens; -EAGAIN so many wait that nobody can. */
int peer_connect(int store_fd, const struct peer_listen *l, int *ret);
int peer_listen_at(int store_fd, const struct peer_listen *l, int *ret); /* anew, whatever was there */

#endif
