/* SPDX-License-Identifier: Apache-2.0 */
/* What guest.c (connection), guest_call.c (calls with an answer), guest_exec.c (commands) and guest_freeze.c (quiet)
 * share. */
#ifndef CRUCIBLE_VMM_BOX_GUEST_PRIV_H
#define CRUCIBLE_VMM_BOX_GUEST_PRIV_H

#include "vmm/box/channel.h"
#include "vmm/box/guest.h"

enum guest_state { GUEST_WAITING, GUEST_GREETED, GUEST_READY, GUEST_GONE };

/* FLOWING -> DRAINING (what was sent before has to leave) -> FREEZING (FREEZE was sent) -> FROZEN -> FLOWING */
enum guest_quiet { GUEST_FLOWING, GUEST_DRAINING, GUEST_FREEZING, GUEST_FROZEN };

struct call; /* guest_call.c */

struct guest {
	struct loop *loop;
	struct channel *channel;
	struct guest_ops ops;
	void *arg;
	enum guest_state state;
	uint64_t heard_ns;
	uint32_t last_stream; /* of execs and calls alike; never 0 again */
	char bye[320];	      /* the agent's last words */

	struct guest_exec *execs;   /* all */
	struct guest_exec *senders; /* where the next turn to send input begins; NULL: with the first */

	struct call *calls;	      /* sent, not answered; oldest first */
	struct call *waiting, **tail; /* not sent */
	size_t in_flight, nwaiting, waiting_bytes;
	loop_id call_timer;

	uint64_t epoch; /* of the last HELLO */
	bool cloned;	/* it told of a clone */
	bool rehearsal; /* another one follows: calls wait for that */

	enum guest_quiet quiet;
	bool said_frozen[CHANNEL_PORT_COUNT]; /* FREEZING, FROZEN: nothing may follow on this port */
	uint32_t freeze_ms;
	uint64_t quiet_since; /* not FLOWING: from here on the calls' time stands */
	guest_call_fn *freeze_fn;
	void *freeze_arg;
	loop_id freeze_timer;
	/* We did not wait for its answer to a FREEZE: it may come until the PONG that was asked for behind it. */
	bool late, late_said[CHANNEL_PORT_COUNT];

	unsigned int busy;
	bool freed;
};

/* The connection is of no use any more: tell everybody, who may free the guest: the caller holds `busy`, and then calls
 * guest_release(). */
void guest_fail(struct guest *g, int reason, const char *words);
void guest_release(struct guest *g); /* free it if that was asked for and nobody holds it */
uint32_t guest_next_stream(struct guest *g);
/* channel_send(); -EPIPE becomes -ENOTCONN. -ENOBUFS is no end in itself: a guest that does not read its port does not
 * answer either, and that has its own deadlines. */
int guest_send(struct guest *g, enum channel_port port, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
	       size_t len);

/* Frames by type: 0 or -EBADMSG. */
int guest_freeze_frame(struct guest *g, enum channel_port port, const struct ag_frame *f); /* FROZEN */
void guest_freeze_pong(struct guest *g, const struct ag_frame *f);
int guest_call_answer(struct guest *g, const struct ag_frame *f);
int guest_exec_frame(struct guest *g, const struct ag_frame *f);

void guest_call_ready(struct guest *g);		      /* READY: what has waited for it goes out, its time begins */
void guest_call_pump(struct guest *g);		      /* send waiting calls while bulk has room */
void guest_call_end_all(struct guest *g);	      /* -ENOTCONN for each */
void guest_call_free_all(struct guest *g);	      /* without a word */
void guest_exec_pump(struct guest *g);		      /* send input while bulk has room */
void guest_call_hold(struct guest *g);		      /* their time stands */
void guest_call_unhold(struct guest *g, uint64_t ns); /* it goes on, after @ns */
void guest_freeze_drained(struct guest *g);	      /* the channel's on_drained */
void guest_freeze_forget(struct guest *g);	      /* flowing, without a word to anybody */
void guest_freeze_end(struct guest *g, int code);     /* tell who waits for it, if anybody does */

#endif
