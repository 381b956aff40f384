/* SPDX-License-Identifier: Apache-2.0 */
/* What box.c (life) and box_daemon.c (what the daemon asks for) share. */
#ifndef CRUCIBLE_VMM_BOX_PRIV_H
#define CRUCIBLE_VMM_BOX_PRIV_H

#include "vmm/box/box_core.h"
#include "vmm/box/console.h"
#include "vmm/box/guest.h"
#include "vmm/box/message.h"
#include "vmm/box/queue.h"
#include "vmm/box/session.h"
#include "vmm/box/state.h"

struct box {
	struct loop *loop;
	struct box_tuning t;
	const struct engine_ops *engine_ops;
	int dirfd;
	int fds[BOX_FD_ENGINE - BOX_FD_DAEMON + 1]; /* until they are used; -1 then */
	void (*on_over)(void *arg, const char *words);
	void *arg;

	struct box_config config;
	bool configured; /* START has come: the rest exists */
	enum box_state state;
	char state_words[512]; /* of the last BOX_STATE */
	char guest_json[2048]; /* the agent's hello, "" before */
	char stage[128];       /* where its boot stands */

	struct session *session;
	struct engine *engine;
	struct guest *guest;
	struct console *console;
	struct queue *queue;

	bool engine_gone, guest_gone;
	char engine_words[192]; /* why the engine stops, when it said so */
	char guest_words[320];	/* why the guest went, when a port was closed */
	char io_words[192];	/* the disk's failure that paused the machine */
	char why[512];		/* why the end is coming; "" none is, or it was asked for */
	bool ending, over;
	uint32_t stop_id, pause_id; /* requests whose answer is owed; 0: none */
	loop_id boot_timer, stop_timer, settle_timer, end_call, pidfd, farewell_timer;

	uint64_t removed_first, removed_last; /* records that went, not told yet; 0: none */
	loop_id removed_call;
	struct buf out; /* a message under construction */
};

/* -- box.c ------------------------------------------------------------------------------------- */

/* Become @s and tell the daemon. */
void box_set_state(struct box *b, enum box_state s, const char *words);
/* The sandbox ends, soon and from the loop: with @words ("" for a stop that was asked for). The first words stay. */
void box_end(struct box *b, const char *words);
/* Ask the engine to go; if it does not within the time, end anyway. */
void box_quit_engine(struct box *b);

/* -- box_daemon.c ------------------------------------------------------------------------------ */

extern const struct session_ops box_session_ops; /* arg: the struct box */
extern const struct queue_ops box_queue_ops;	 /* the same */
int box_start(struct box *b, struct err *e);	 /* box.c: all that needs the configuration */
void box_say_hello(struct box *b);
void box_say_state(struct box *b);
void box_say_event(struct box *b, const char *json);
void box_reply(struct box *b, uint32_t id, int code, const char *words);

#endif
