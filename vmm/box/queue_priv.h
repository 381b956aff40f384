/* SPDX-License-Identifier: Apache-2.0 */
/* What queue.c (order) and queue_time.c (deadlines and progress) share. */
#ifndef CRUCIBLE_VMM_BOX_QUEUE_PRIV_H
#define CRUCIBLE_VMM_BOX_QUEUE_PRIV_H

#include "vmm/box/cmd.h"

struct queue {
	struct loop *loop;
	int dirfd;
	const struct box_config *config;
	struct box_tuning t;
	struct queue_ops ops;
	void *arg;
	struct spool *spool;
	struct env_text *env;
	struct guest *guest; /* NULL until it is ready */
	char unenforced[1600];

	struct cmd *current, *waiting, **tail, *beside;
	size_t nwaiting, nbeside;
	uint64_t last;

	bool paused, closed, lost;
	uint64_t paused_since, paused_total; /* of CLOCK_MONOTONIC */
	uint64_t busy_since;		     /* clock: silence counts from here at the earliest */
	bool pinged;			     /* since the agent was heard last */
	uint64_t ping_heard;		     /* what guest_heard_ns() said then */
	loop_id timer, progress_timer;
};

/* The guest's clock: it stands while the machine is paused. */
uint64_t queue_clock_ns(const struct queue *q);
/* Call @fn for each running command until it returns false; false then. It may not end commands. */
bool queue_each_running(const struct queue *q, bool (*fn)(struct cmd *c, void *arg), void *arg);
void queue_arm(struct queue *q);			/* the timer, for what is due first; none when nothing runs */
void queue_answer_soon(struct queue *q, struct cmd *c); /* it was killed, or has exited: the rest has to come in time */
void queue_tell_progress(struct cmd *c, uint64_t now_ns, bool first);
void queue_progress(struct cmd *c); /* it printed: tell, now or soon */

#endif
