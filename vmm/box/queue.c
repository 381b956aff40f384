/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Commands of the queue run one after another: `current` runs, `waiting` wait. Those beside are in `beside`, running or
 * (before the guest is ready) waiting. Whatever ends a command goes through finish(): record, on_done(), gone. The next
 * one is begun by queue_kick(), a loop, so that a thousand bad commands in a row do not nest. Deadlines are in
 * queue_time.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "vmm/box/queue_priv.h"

#define MIB	      (1024ull * 1024)
#define START_LATE_NS (2 * 1000000000ull) /* a late "started" moves the deadline by no more than this */

struct queue_view queue_view(const struct queue *q)
{
	return (struct queue_view){
		.dirfd = q->dirfd, .config = q->config, .spool = q->spool, .unenforced = q->unenforced
	};
}

/* -- ends and beginnings ----------------------------------------------------------------------- */

/* Take @c out of wherever it is. */
static void unlink_cmd(struct queue *q, struct cmd *c)
{
	struct cmd **at;

	if (q->current == c) {
		q->current = NULL;
		return;
	}
	for (at = &q->waiting; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			if (!*at)
				q->tail = at;
			q->nwaiting--;
			return;
		}
	for (at = &q->beside; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			q->nbeside--;
			return;
		}
}

static void finish(struct cmd *c)
{
	struct queue *q = c->queue;
	struct box_done done;

	unlink_cmd(q, c);
	cmd_record(c, c->started_wall_ns ? queue_clock_ns(q) - c->started_at : 0, &done);
	q->ops.on_done(q->arg, &done);
	cmd_free(c);
}

/* How late "started" may be and still be waited for: well before the guest is lost. */
static uint64_t start_late_ns(const struct queue *q)
{
	uint64_t most = (q->t.lost_after_ms - q->t.kill_grace_ms) * 1000000ull / 2;

	return q->t.lost_after_ms < q->t.kill_grace_ms ? 0 : most < START_LATE_NS ? most : START_LATE_NS;
}

/* It runs from now on: the agent has been told. */
static void begun(struct queue *q, struct cmd *c)
{
	uint64_t now = queue_clock_ns(q);

	if (!queue_busy(q)) {
		q->busy_since = now;
		q->pinged = false;
	}
	c->state = CMD_RUNNING;
	c->started_wall_ns = wall_ns();
	c->started_at = now;
	if (c->timeout_ns) {
		c->kill_at = now + start_late_ns(q) + c->timeout_ns + q->t.kill_grace_ms * 1000000ull;
		c->lost_at = now + c->timeout_ns + q->t.lost_after_ms * 1000000ull;
	}
	queue_tell_progress(c, 0, true); /* 0: the first output is told at once */
}

/* Begin @c. False: it has ended in words. */
static bool begin(struct queue *q, struct cmd *c)
{
	struct err e = { 0 };

	if (cmd_begin(c, q->guest, &e) == 0) {
		begun(q, c);
		if (c->early.len > 0 || c->early_eof)
			guest_exec_stdin(c->exec, c->early.data, c->early.len, c->early_eof);
		buf_fini(&c->early);
		if (*c->error) /* killed already: there is no place for its output */
			queue_answer_soon(q, c);
		return true;
	}
	cmd_error(c, e.msg);
	finish(c);
	return false;
}

static bool can_begin(const struct queue *q)
{
	return q->guest && guest_ready(q->guest) && !q->paused && !q->closed && !q->lost;
}

static struct cmd *waiting_beside(const struct queue *q)
{
	struct cmd *c = q->beside;

	while (c && c->state != CMD_WAITING)
		c = c->next;
	return c;
}

void queue_kick(struct queue *q)
{
	struct cmd *c;

	while (can_begin(q) && (c = waiting_beside(q)))
		begin(q, c);
	while (can_begin(q) && !q->current && (c = q->waiting)) {
		unlink_cmd(q, c);
		if (begin(q, c))
			q->current = c;
	}
	queue_arm(q);
}

/* -- what the guest says (guest_exec_ops) ------------------------------------------------------ */

static void on_started(void *arg, const char *script)
{
	struct cmd *c = arg;
	struct queue *q = c->queue;
	uint64_t now = queue_clock_ns(q), late = now - c->started_at,
		 kill_at = now + c->timeout_ns + q->t.kill_grace_ms * 1000000ull;

	if (c->told_started)
		return;
	c->told_started = true;
	if (c->script && *script) {
		size_t last = 0;

		snprintf(c->script_path, sizeof(c->script_path), "%s", script);
		while (c->argv[last + 1])
			last++;
		c->argv[last] = c->script_path;
	}
	/* The agent's deadline runs from here, so the host's does too; a large script takes its time to get there, and
	 * so does a guest that shares a busy host. */
	if (c->timeout_ns && !c->kill_timeout) {
		if (c->kill_at != NEVER && kill_at < c->kill_at)
			c->kill_at = kill_at;
		c->lost_at += late < START_LATE_NS ? late : START_LATE_NS;
		queue_arm(q);
	}
}

static void on_output(void *arg, enum ag_which which, const uint8_t *data, size_t len)
{
	struct cmd *c = arg;
	struct queue *q = c->queue;
	char words[160];
	int r;

	r = spool_write(q->spool, &c->out, which == AG_STDOUT ? SPOOL_STDOUT : SPOOL_STDERR, data, len);
	if (r < 0 && !*c->error) {
		snprintf(words, sizeof(words), "its output could not be kept: %s", err_name(r));
		cmd_error(c, words);
		guest_exec_kill(c->exec);
		queue_answer_soon(q, c);
	}
	queue_progress(c);
}

static void on_exit_told(void *arg, const struct guest_exit *x)
{
	struct cmd *c = arg;
	struct queue *q = c->queue;

	c->exit = *x;
	c->state = CMD_EXITED;
	c->kill_at = NEVER;
	queue_answer_soon(q, c);
}

static void on_end(void *arg)
{
	struct queue *q = ((struct cmd *)arg)->queue;

	finish(arg);
	queue_kick(q);
}

static void on_stdin_credit(void *arg, uint32_t bytes)
{
	struct cmd *c = arg;

	c->queue->ops.on_credit(c->queue->arg, c->n, bytes);
}

const struct guest_exec_ops queue_exec_ops = {
	.on_started = on_started,
	.on_output = on_output,
	.on_exit = on_exit_told,
	.on_end = on_end,
	.on_stdin_credit = on_stdin_credit,
};

/* -- the interface
 * ------------------------------------------------------------------------------------------------------ */

static void on_removed(void *arg, uint64_t n)
{
	struct queue *q = arg;

	q->ops.on_removed(q->arg, n);
}

int queue_new(struct loop *l, int dirfd, const struct box_config *c, const struct box_tuning *t,
	      const struct queue_ops *ops, void *arg, struct queue **ret, struct err *e)
{
	struct queue *q = calloc(1, sizeof(*q));
	int r;

	if (!q)
		return err_set(e, -ENOMEM, "queue: no memory");
	*q = (struct queue){
		.loop = l, .dirfd = dirfd, .config = c, .t = *t, .ops = *ops, .arg = arg, .tail = &q->waiting
	};
	snprintf(q->unenforced, sizeof(q->unenforced), "%s", c->unenforced);
	r = spool_new(dirfd, c->spool_mib * MIB, BOX_KEEP_EXECS, on_removed, q, &q->spool, e);
	if (r == 0)
		r = queue_set_env(q, c->env);
	if (r < 0) {
		queue_free(q);
		return r;
	}
	q->last = spool_last(q->spool);
	*ret = q;
	return 0;
}

struct queue *queue_free(struct queue *q)
{
	struct cmd *c;

	if (!q)
		return NULL;
	loop_del(q->loop, &q->timer);
	loop_del(q->loop, &q->progress_timer);
	while ((c = q->current ? q->current : q->waiting ? q->waiting : q->beside)) {
		unlink_cmd(q, c);
		cmd_free(c);
	}
	q->spool = spool_free(q->spool);
	env_text_unref(q->env);
	free(q);
	return NULL;
}

int queue_set_env(struct queue *q, const char *text)
{
	struct env_text *t = NULL;

	if (text && *text) {
		t = malloc(sizeof(*t) + strlen(text) + 1);
		if (!t)
			return -ENOMEM;
		t->refs = 1;
		memcpy(t->text, text, strlen(text) + 1);
	}
	env_text_unref(q->env);
	q->env = t;
	return 0;
}

int queue_exec(struct queue *q, uint64_t n, uint8_t flags, uint64_t accepted_wall_ns, uint32_t timeout_max_s,
	       struct err *e)
{
	bool beside = flags & BOX_EXEC_BESIDE;
	struct cmd *c;

	if (q->closed)
		return err_set(e, -EBUSY, "command %" PRIu64 ": the sandbox is being stopped", n);
	if (n <= q->last)
		return err_set(e, -ENOENT, "command %" PRIu64 ": not a new number", n);
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_set(e, -ENOMEM, "command %" PRIu64 ": no memory", n);
	*c = (struct cmd){
		.queue = q,
		.n = n,
		.flags = flags,
		.timeout_max_s = timeout_max_s,
		.accepted_wall_ns = accepted_wall_ns,
		.out = SPOOL_CMD_INIT,
	};
	c->out.n = n;
	buf_init(&c->early, BOX_STDIN_WINDOW);
	c->kill_at = c->lost_at = NEVER;
	c->env = env_text_ref(q->env);
	q->last = n;
	if (beside ? q->nbeside >= BOX_BESIDE_MAX : q->nwaiting >= BOX_QUEUE_MAX) {
		/* Refused, and told by its record too: whoever waits for that must not wait for ever. */
		err_set(e, -EBUSY, "command %" PRIu64 ": %u commands %s already", n,
			beside ? BOX_BESIDE_MAX : BOX_QUEUE_MAX, beside ? "run side by side" : "wait");
		cmd_error(c, e->msg);
		finish(c);
		return -EBUSY;
	}
	if (beside) {
		struct cmd **at = &q->beside;

		while (*at)
			at = &(*at)->next;
		*at = c;
		q->nbeside++;
	} else {
		*q->tail = c;
		q->tail = &c->next;
		q->nwaiting++;
	}
	return 0;
}

static struct cmd *find(const struct queue *q, uint64_t n)
{
	if (q->current && (n == 0 || q->current->n == n))
		return q->current;
	if (n == 0)
		return NULL;
	for (struct cmd *c = q->waiting; c; c = c->next)
		if (c->n == n)
			return c;
	for (struct cmd *c = q->beside; c; c = c->next)
		if (c->n == n)
			return c;
	return NULL;
}

int queue_stdin(struct queue *q, uint64_t n, const void *data, size_t len, bool eof)
{
	struct cmd *c = find(q, n);
	int r;

	if (!c || !(c->flags & BOX_EXEC_LIVE_STDIN))
		return -ENOENT;
	if (c->exec)
		return guest_exec_stdin(c->exec, data, len, eof);
	if (c->early_eof)
		return -EPIPE;
	r = buf_add(&c->early, data, len);
	if (r < 0)
		return r == -EFBIG ? -ENOBUFS : r;
	c->early_eof = eof;
	return 0;
}

static int kill_cmd(struct queue *q, struct cmd *c, bool cancel)
{
	int r;

	if (c->state == CMD_WAITING) {
		c->kill_cancel = true;
		cmd_error(c, "cancelled before it began");
		finish(c);
		return 0;
	}
	c->kill_cancel |= cancel;
	r = guest_exec_kill(c->exec);
	if (r < 0)
		return r;
	queue_answer_soon(q, c);
	return 0;
}

int queue_ctl(struct queue *q, uint64_t n, enum box_verb verb, uint32_t a, uint32_t b)
{
	struct cmd *c = find(q, n);

	if (!c || (c->state == CMD_WAITING && verb != BOX_CANCEL && verb != BOX_KILL))
		return -ENOENT;
	switch (verb) {
	case BOX_SIGNAL:
		return a == 0 || a > 64 ? -EINVAL : guest_exec_signal(c->exec, a);
	case BOX_RESIZE:
		return a == 0 || a > UINT16_MAX || b == 0 || b > UINT16_MAX
			       ? -EINVAL
			       : guest_exec_resize(c->exec, (uint16_t)a, (uint16_t)b);
	case BOX_KILL:
	case BOX_CANCEL:
		return kill_cmd(q, c, verb == BOX_CANCEL);
	default:
		return -EINVAL;
	}
}

void queue_start(struct queue *q, struct guest *g, const char *unenforced)
{
	q->guest = g;
	if (*unenforced)
		snprintf(q->unenforced, sizeof(q->unenforced), "%s%s%s", q->config->unenforced,
			 *q->config->unenforced ? "," : "", unenforced);
	queue_kick(q);
}

void queue_pause(struct queue *q)
{
	if (q->paused)
		return;
	q->paused_since = now_ns();
	q->paused = true;
	loop_del(q->loop, &q->timer);
}

void queue_resume(struct queue *q)
{
	if (!q->paused)
		return;
	q->paused = false;
	q->paused_total += now_ns() - q->paused_since;
	q->busy_since = queue_clock_ns(q);
	q->pinged = false;
	queue_kick(q);
}

static bool mark_cancelled(struct cmd *c, void *arg)
{
	(void)arg;
	c->kill_cancel = true;
	return true;
}

void queue_close(struct queue *q, const char *words)
{
	struct cmd *c;

	q->closed = true;
	queue_each_running(q, mark_cancelled, NULL);
	while ((c = q->waiting ? q->waiting : waiting_beside(q))) {
		c->kill_cancel = true;
		cmd_error(c, words);
		finish(c);
	}
}

static struct cmd *running_beside(const struct queue *q)
{
	struct cmd *c = q->beside;

	while (c && c->state == CMD_WAITING)
		c = c->next;
	return c;
}

void queue_end_all(struct queue *q, const char *error, const char *waiting_words, bool cancelled)
{
	struct cmd *c;

	if (!q->closed && !cancelled)
		q->lost = true; /* so that nothing begins while these end */
	while ((c = q->current ? q->current : running_beside(q))) {
		c->kill_cancel |= cancelled;
		cmd_error(c, error);
		finish(c);
	}
	queue_close(q, waiting_words);
	queue_arm(q);
}

uint64_t queue_last(const struct queue *q)
{
	return q->last;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

size_t queue_open(const struct queue *q, uint64_t *ret, size_t cap)
{
	size_t n = 0;

	if (q->current && n < cap)
		ret[n++] = q->current->n;
	for (struct cmd *c = q->waiting; c && n < cap; c = c->next)
		ret[n++] = c->n;
	for (struct cmd *c = q->beside; c && n < cap; c = c->next)
		ret[n++] = c->n;
	qsort(ret, n, sizeof(*ret), by_number);
	return n;
}

static uint32_t stdin_room(const struct cmd *c)
{
	if (!(c->flags & BOX_EXEC_LIVE_STDIN) || c->early_eof)
		return 0;
	return c->exec ? guest_exec_stdin_room(c->exec) : BOX_STDIN_WINDOW - (uint32_t)c->early.len;
}

void queue_each_live(const struct queue *q, void (*fn)(void *arg, uint64_t n, uint32_t bytes), void *arg)
{
	for (struct cmd *c = q->beside; c; c = c->next)
		if (stdin_room(c) > 0)
			fn(arg, c->n, stdin_room(c));
}
