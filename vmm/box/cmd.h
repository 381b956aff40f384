/* SPDX-License-Identifier: Apache-2.0 */
/* One command from its text to its record. Innards of the queue, which owns order and time. */
#ifndef CRUCIBLE_VMM_BOX_CMD_H
#define CRUCIBLE_VMM_BOX_CMD_H

#include "base/buf.h"
#include "vmm/box/guest.h"
#include "vmm/box/queue.h"
#include "vmm/box/spool.h"

#define NEVER UINT64_MAX

/* The sandbox's `env` as it was when a command was accepted; shared by those that saw the same. */
struct env_text {
	unsigned int refs;
	char text[];
};
struct env_text *env_text_ref(struct env_text *t);
struct env_text *env_text_unref(struct env_text *t); /* NULL is fine; returns NULL */

enum cmd_state { CMD_WAITING, CMD_RUNNING, CMD_EXITED };

struct cmd {
	struct cmd *next;
	struct queue *queue;
	uint64_t n;
	uint8_t flags;		/* BOX_EXEC_* */
	uint32_t timeout_max_s; /* 0: none */
	uint64_t accepted_wall_ns;
	struct env_text *env; /* NULL: none */
	enum cmd_state state;
	struct buf early; /* live input that came before it began */
	bool early_eof;

	struct guest_exec *exec;
	struct spool_cmd out;
	char **argv;		   /* for the record; NULL: too long to be kept, read again at the end */
	char *text;		   /* what argv's members point into */
	char script_path[256];	   /* argv's last member, once the agent has told it */
	bool script, unreadable;   /* unreadable: its text is no request */
	uint64_t timeout_ns;	   /* 0: none */
	uint64_t started_wall_ns;  /* 0: not begun */
	uint64_t started_at;	   /* the queue's clock */
	uint64_t kill_at, lost_at; /* the same; NEVER */
	bool told_started;	   /* the agent's word that it runs has come */

	bool kill_timeout, kill_cancel; /* why it was killed, if by us */
	struct guest_exit exit;		/* once CMD_EXITED */
	char error[320];		/* of our own making; goes before the agent's */

	uint64_t progress_at; /* CLOCK_MONOTONIC of the last BOX_PROGRESS */
	bool progress_owed;
};

/* Read the text and give it to the guest. 0, or -errno with e: it ends with these words. */
int cmd_begin(struct cmd *c, struct guest *g, struct err *e);
/* Write the record as things stand and fill @ret (its texts live as long as @c). @duration_ns: by the host's clock. */
void cmd_record(struct cmd *c, uint64_t duration_ns, struct box_done *ret);
/* Take note of words for `error`; the first ones stay. */
void cmd_error(struct cmd *c, const char *words);
struct cmd *cmd_free(struct cmd *c); /* NULL is fine; returns NULL */

/* What a command needs of its queue (queue.c). */
struct queue_view {
	int dirfd;
	const struct box_config *config;
	struct spool *spool;
	const char *unenforced; /* the host's and the guest's, comma separated */
};
struct queue_view queue_view(const struct queue *q);
extern const struct guest_exec_ops queue_exec_ops; /* arg: the struct cmd */

#endif
