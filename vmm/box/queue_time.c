/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Time is the guest's: a clock that stands while the machine is paused. A running command has two instants on it:
 * kill_at, when the host kills what the agent should have ended, and lost_at, when the guest is lost. One timer serves
 * the earliest of all of them, and the silence of the agent while anything runs: after a while it is asked for a sign
 * of life, after a longer while it is lost (a command without a deadline would else wait for ever for an agent that was
 * stopped). When nothing runs there is no timer.
 */
#include <inttypes.h>
#include <stdio.h>

#include "vmm/box/queue_priv.h"

uint64_t queue_clock_ns(const struct queue *q)
{
	return (q->paused ? q->paused_since : now_ns()) - q->paused_total;
}

static uint64_t ms(uint32_t n)
{
	return n * 1000000ull;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Call @fn for each running command until it returns false. It may not end commands. */
bool queue_each_running(const struct queue *q, bool (*fn)(struct cmd *c, void *arg), void *arg)
{
	if (q->current && !fn(q->current, arg))
		return false;
	for (struct cmd *c = q->beside; c; c = c->next)
		if (c->state != CMD_WAITING && !fn(c, arg))
			return false;
	return true;
}

static bool find_deadline(struct cmd *c, void *arg)
{
	uint64_t *first = arg;

	*first = earlier(*first, earlier(c->kill_at, c->lost_at));
	return true;
}

static bool stop_at_first(struct cmd *c, void *arg)
{
	(void)c;
	(void)arg;
	return false;
}

bool queue_busy(const struct queue *q)
{
	return !queue_each_running(q, stop_at_first, NULL);
}

/* The instant (clock) from which the agent's silence counts. */
static uint64_t heard_at(const struct queue *q)
{
	uint64_t heard = guest_heard_ns(q->guest);

	heard = heard > q->paused_total ? heard - q->paused_total : 0;
	return heard > q->busy_since ? heard : q->busy_since;
}

static void on_timer(void *arg);

void queue_arm(struct queue *q)
{
	uint64_t first = NEVER;

	loop_del(q->loop, &q->timer);
	if (q->paused || q->lost || !q->guest || !queue_busy(q))
		return;
	queue_each_running(q, find_deadline, &first);
	first = earlier(first, heard_at(q) + ms(q->pinged ? q->t.silent_ms : q->t.ping_after_ms));
	loop_timer(q->loop, first + q->paused_total, on_timer, q, &q->timer);
}

static void lose(struct queue *q, const char *words)
{
	if (q->lost)
		return;
	q->lost = true;
	loop_del(q->loop, &q->timer);
	q->ops.on_lost(q->arg, words);
}

static void lose_by(struct queue *q, struct cmd *c)
{
	char words[192];
	double limit = (double)c->timeout_ns / 1e9;

	if (c->state == CMD_EXITED)
		snprintf(words, sizeof(words),
			 "the guest does not answer: the output of command %" PRIu64 " is missing", c->n);
	else if (c->kill_cancel || !c->timeout_ns || queue_clock_ns(q) < c->started_at + c->timeout_ns)
		snprintf(words, sizeof(words),
			 "the guest does not answer: command %" PRIu64 " was killed and has not ended", c->n);
	else
		snprintf(words, sizeof(words),
			 "the guest does not answer: command %" PRIu64 " has not ended within its %g s", c->n, limit);
	lose(q, words);
}

/* Kill what is over its time. False: a command says that the guest is lost; it is left in *arg. */
static bool check_deadline(struct cmd *c, void *arg)
{
	struct queue *q = c->queue;
	uint64_t now = queue_clock_ns(q);

	if (now >= c->lost_at) {
		*(struct cmd **)arg = c;
		return false;
	}
	if (now >= c->kill_at) {
		c->kill_at = NEVER;
		c->kill_timeout = true;
		guest_exec_kill(c->exec); /* a failure is met by lost_at */
	}
	return true;
}

static void check_silence(struct queue *q)
{
	uint64_t silence = queue_clock_ns(q) - earlier(heard_at(q), queue_clock_ns(q));

	if (q->pinged && guest_heard_ns(q->guest) != q->ping_heard)
		q->pinged = false;
	if (silence >= ms(q->t.silent_ms)) {
		lose(q, "the guest does not answer: its agent has been silent for too long");
	} else if (!q->pinged && silence >= ms(q->t.ping_after_ms)) {
		q->pinged = true;
		q->ping_heard = guest_heard_ns(q->guest);
		guest_ping(q->guest);
	}
}

static void on_timer(void *arg)
{
	struct queue *q = arg;
	struct cmd *overdue = NULL;

	q->timer = 0;
	if (!queue_each_running(q, check_deadline, &overdue)) {
		lose_by(q, overdue);
		return;
	}
	check_silence(q);
	queue_arm(q);
}

void queue_answer_soon(struct queue *q, struct cmd *c)
{
	c->lost_at = earlier(c->lost_at, queue_clock_ns(q) + ms(q->t.lost_after_ms));
	queue_arm(q);
}

/* -- progress ---------------------------------------------------------------------------------- */

void queue_tell_progress(struct cmd *c, uint64_t now, bool first)
{
	c->progress_owed = false;
	c->progress_at = now;
	c->queue->ops.on_progress(c->queue->arg, c->n, first, c->out.files[SPOOL_STDOUT].bytes,
				  c->out.files[SPOOL_STDERR].bytes);
}

struct progress {
	uint64_t now, next;
};

static bool progress_one(struct cmd *c, void *arg)
{
	struct progress *p = arg;
	uint64_t due = c->progress_at + ms(c->queue->t.progress_ms);

	if (c->progress_owed && due <= p->now)
		queue_tell_progress(c, p->now, false);
	else if (c->progress_owed)
		p->next = earlier(p->next, due);
	return true;
}

static void on_progress_timer(void *arg)
{
	struct queue *q = arg;
	struct progress p = { .now = now_ns(), .next = NEVER };

	q->progress_timer = 0;
	queue_each_running(q, progress_one, &p);
	if (p.next != NEVER)
		loop_timer(q->loop, p.next, on_progress_timer, q, &q->progress_timer);
}

void queue_progress(struct cmd *c)
{
	struct queue *q = c->queue;
	uint64_t now = now_ns(), due = c->progress_at + ms(q->t.progress_ms);

	if (due <= now) {
		queue_tell_progress(c, now, false);
		return;
	}
	c->progress_owed = true;
	if (!q->progress_timer)
		loop_timer(q->loop, due, on_progress_timer, q, &q->progress_timer);
}
