/* SPDX-License-Identifier: Apache-2.0 */
/* What box.c (life), box_daemon.c (what the daemon asks for), box_memory.c, box_reclaim.c, box_freeze.c and box_load.c
 * share. */
#ifndef CRUCIBLE_VMM_BOX_PRIV_H
#define CRUCIBLE_VMM_BOX_PRIV_H

#include "vmm/box/box_core.h"
#include "vmm/box/console.h"
#include "vmm/box/guest.h"
#include "vmm/box/inherit.h"
#include "vmm/box/message.h"
#include "vmm/box/queue.h"
#include "vmm/box/session.h"
#include "vmm/box/state.h"
#include "vmm/preload/preload.h"

struct box_memory { /* box_memory.c */
	struct preload *preload;
	bool begun;			     /* the descriptors below are ours, or -1 */
	int mem, pagemap, template_fd, uffd; /* copies of what was handed over */
	uint64_t base, bytes;		     /* bytes 0: no template yet */
	char snapshot[BOX_SNAPSHOT_MAX];     /* whose template that is */
	bool known;			     /* something was handed over */
	bool pending, with_template;	     /* an order is under way */
	int fresh;			     /* its template */
	uint64_t fresh_bytes;
	char fresh_snapshot[BOX_SNAPSHOT_MAX];
	uint32_t id; /* whose answer is owed; 0: nobody's */
};

enum freeze_step { FREEZE_NONE, FREEZE_GUEST, FREEZE_PAUSE, FREEZE_SAVE, FREEZE_HELD, FREEZE_RESUME };

struct box_freeze { /* box_freeze.c */
	enum freeze_step step;
	uint32_t id, ms; /* id: of FREEZE or THAW, whose answer is owed; 0: nobody's */
	int fd;		 /* for the device state; while step is not NONE */
	uint64_t paused_ns, paused_wall_ns;
	bool thawing;	  /* as soon as what is under way has ended */
	bool stray_pause; /* a pause that was given up may still come */
	int code;	  /* why it failed, with words; 0: not yet */
	char words[256];
	const char *event; /* thawed by itself, why; told when it is; NULL: not */
	loop_id timer, away_call;
};

struct box_reclaim { /* box_reclaim.c */
	bool running;
	uint32_t id;
	unsigned int connection;  /* whose id that is */
	uint64_t ram, spare, out; /* bytes: of the machine; that the guest can do without; that were asked of it */
	uint64_t until_ns;	  /* no step beyond */
	loop_id again;
	uint64_t first, own; /* pages of the machine's own: at the start, after the last step */
};

enum box_life {
	LIFE_COLD,  /* no generic engine: it boots by itself */
	LIFE_EMPTY, /* waits for LOAD */
	LIFE_LOADING,
	LIFE_LOADED, /* stands; waits for START */
	LIFE_WAKING,
	LIFE_WARM_HELLO,
	LIFE_WARMING,
	LIFE_HOLDING, /* being frozen, or paused */
	LIFE_REHEARSING,
	LIFE_HELD,     /* waits for START */
	LIFE_GREETING, /* as a clone */
	LIFE_LIVE,
};

struct box_load { /* box_load.c */
	enum box_life life;
	uint32_t id; /* LOAD's answer is owed */
	int fd;	     /* LOADING: the device state */
	enum box_hold hold;
	bool running, warm, late;
	bool pause_owed;	 /* one that was given up, which may come all the same */
	struct guest_exec *exec; /* WARMING */
	loop_id warm_timer;
};

/* MEMORY and LOAD that came before the monitor was usable: the engine has no memory yet. */
struct box_early {
	uint16_t type;
	uint32_t id;
	int fd;
	size_t len;
	uint8_t *data;
};
#define BOX_EARLY_MAX 4

struct box {
	struct loop *loop;
	struct box_tuning t;
	const struct engine_ops *engine_ops;
	int dirfd;
	int fds[BOX_FDS]; /* until they are used; -1 then */
	void (*on_over)(void *arg, const char *words);
	void *arg;

	struct box_config config;
	bool generic;
	bool configured; /* START has come */
	enum box_state state;
	char state_words[512]; /* of the last BOX_STATE */
	char guest_json[2048]; /* the agent's hello, "" before */
	char stage[128];       /* where its boot stands */

	struct session *session;
	struct engine *engine;
	struct guest *guest;
	struct console *console;
	struct queue *queue;
	struct inherit *inherit;

	struct box_memory memory;
	struct box_freeze freeze;
	struct box_load load;
	struct box_reclaim reclaim;
	bool engine_up;
	struct box_early early[BOX_EARLY_MAX];
	size_t nearly;
	loop_id early_call;

	bool engine_gone, guest_gone;
	char engine_words[192]; /* why the engine stops, when it said so */
	char guest_words[320];	/* why the guest went, when a port was closed */
	char io_words[192];	/* the disk's failure that paused the machine */
	char why[512];		/* why the end is coming; "" none is, or it was asked for */
	bool ending, over;
	uint32_t stop_id, pause_id; /* requests whose answer is owed; 0: none */
	unsigned int connection;    /* of the daemon: an answer to an older one's request is for nobody */
	bool away;		    /* it has none now */
	loop_id boot_timer, stop_timer, settle_timer, end_call, pidfd, farewell_timer;

	uint64_t removed_first, removed_last; /* records that went, not told yet; 0: none */
	loop_id removed_call;
	struct buf out;	 /* a message under construction */
	struct buf data; /* of a reply */
};

/* -- box.c ------------------------------------------------------------------------------------- */

/* Become @s and tell the daemon. */
void box_set_state(struct box *b, enum box_state s, const char *words);
/* The sandbox ends, soon and from the loop: with @words ("" for a stop that was asked for). The first words stay. */
void box_end(struct box *b, const char *words);
/* Ask the engine to go; if it does not within the time, end anyway. */
void box_quit_engine(struct box *b);
void box_identity(struct box *b, struct guest_identity *ret); /* who the sandbox is; borrows from the configuration */
/* All that needs the engine: its monitor, the guest, the memory. */
int box_start_machine(struct box *b, struct err *e);
/* All that needs the configuration. */
int box_start(struct box *b, struct err *e);
void box_tell_guest(struct box *b); /* guest_json anew, with what was inherited */

/* -- box_daemon.c ------------------------------------------------------------------------------ */

extern const struct session_ops box_session_ops; /* arg: the struct box */
extern const struct queue_ops box_queue_ops;	 /* the same */
void box_say_hello(struct box *b);
void box_say_state(struct box *b);
void box_say_event(struct box *b, const char *json);
void box_reply(struct box *b, uint32_t id, int code, const char *words);
void box_reply_data(struct box *b, uint32_t id, int code, const char *words, const void *data, size_t len,
		    const int *fds, size_t nfds);
void box_say_thawed(struct box *b); /* now, or to the daemon that comes back */
/* Any message of the daemon; @fd came with it, or is -1, and is taken if it is used. */
void box_take_message(struct box *b, uint16_t type, uint32_t id, const void *data, size_t len, int *fd);
void box_stop_guest(struct box *b, bool paused); /* ask it to power off */

/* -- box_early.c ------------------------------------------------------------------------------- */

int box_keep_early(struct box *b, const struct msg *msg, int *fd); /* -EBUSY too many; -ENOMEM */
void box_replay_early(struct box *b);				   /* the engine is usable */
void box_forget_early(struct box *b);				   /* nobody waits for their answers any more */
void box_drop_early(struct box *b);				   /* -ENOTCONN for each */

/* -- box_memory.c, box_freeze.c, box_load.c: @fd is taken if it is used -------------------------- */

int box_memory_begin(struct box *b, int fd); /* takes @fd. Those of preload_new() */
void box_memory_fini(struct box *b);
void box_take_memory(struct box *b, uint32_t id, const struct box_msg *m, int *fd);
void box_take_memory_again(struct box *b, uint32_t id);

void box_take_freeze(struct box *b, uint32_t id, uint32_t ms, int *fd);
void box_take_thaw(struct box *b, uint32_t id);
/* Undo what was begun; the first reason stays. Nothing is: nothing happens. */
void box_freeze_abandon(struct box *b, int code, const char *words);
void box_freeze_memory_done(struct box *b);
void box_freeze_away(struct box *b);	    /* the daemon went */
bool box_freeze_takes_pause(struct box *b); /* the machine was paused: was that ours? */
void box_freeze_fini(struct box *b);

void box_take_reclaim(struct box *b, uint32_t id, uint64_t bytes);
void box_reclaim_fini(struct box *b); /* the end: whoever waits for one is told */

void box_take_load(struct box *b, uint32_t id, const struct box_msg *m, int *fd);
void box_load_started(struct box *b);
bool box_load_takes_pause(struct box *b); /* the machine is paused: true: that is nobody's news */
bool box_load_ready(struct box *b);	  /* the agent has answered: true: not to the sandbox's greeting */
void box_load_fini(struct box *b);

#endif
