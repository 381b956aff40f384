/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that are under way: queued, running, done and not yet answered; their cancellation and progress. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/mcp/server_priv.h"

#define QUEUE_MAX    256
#define RESEND_MS    20
#define PROGRESS_MS  1000
#define REQUESTS_MAX (64u * 1024 * 1024) /* of all calls that are under way */

static void resend_signals(void *arg);

void server_leave_batch(struct server *s, struct batch *b)
{
	if (!b || --b->left)
		return;
	s->batches -= b->text.len;
	server_sent(s, rpc_list(&s->out.text, &b->text));
	buf_fini(&b->text);
	free(b);
}

static void set_state(struct server *s, struct call *c, enum call_state state)
{
	s->in_state[c->state]--;
	s->in_state[state]++;
	c->state = state;
}

static void add_call(struct server *s, struct call *c)
{
	struct call **p = &s->calls;

	while (*p)
		p = &(*p)->next;
	*p = c;
	s->in_state[c->state]++;
	s->requests += c->bytes;
}

/* The oldest one in @state, or the oldest that was cancelled and does not run. */
static struct call *oldest(struct server *s, enum call_state state)
{
	struct call *c;

	for (c = s->calls; c; c = c->next) {
		if (c->state == state || (c->state != CALL_RUNNING && atomic_load(&c->cancelled)))
			break;
	}
	return c;
}

static void forget(struct server *s, struct call *c)
{
	struct call **p = &s->calls;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	s->in_state[c->state]--;
	s->requests -= c->bytes;
	server_leave_batch(s, c->batch);
	call_free(c);
}

static void answer_call(struct server *s, struct call *c)
{
	struct buf *out;
	size_t was;
	int r;

	s->batch = c->batch;
	out = server_answers(s);
	was = out->len;
	r = call_answer(c, out);
	if (r == -EFBIG || out->len - was > ANSWERS_MAX || (s->batch && out->len - was + s->batches > ANSWERS_MAX)) {
		out->len = was;
		r = rpc_error(out, c->id, RPC_INTERNAL, "the answer is too long: ask for less at once", NULL);
	} else if (r < 0) {
		r = rpc_error(out, c->id, RPC_INTERNAL, "no memory", NULL);
	}
	if (s->batch)
		s->batches += out->len - was;
	server_sent(s, r);
	s->batch = NULL;
}

static void done_call(struct pool_job *job)
{
	struct call *c = call_of_job(job);
	struct server *s = c->server;

	set_state(s, c, CALL_DONE);
	server_go_on(s);
}

/* A call has read the policy anew. */
static void tell_tools(struct server *s)
{
	unsigned now = guard_changes(s->config.guard);

	if (now == s->told)
		return;
	s->told = now;
	if (s->shook_hands)
		server_sent(s, rpc_notify(&s->out.text, "notifications/tools/list_changed", json_object_new_object()));
}

void server_serve_calls(struct server *s)
{
	struct call *c;

	while ((c = oldest(s, CALL_DONE)) && (!server_full(s) || atomic_load(&c->cancelled))) {
		if (!atomic_load(&c->cancelled))
			answer_call(s, c);
		forget(s, c);
		tell_tools(s);
	}
	while (!s->ending && !server_full(s) && s->in_state[CALL_RUNNING] < THREADS && (c = oldest(s, CALL_QUEUED)) &&
	       pool_submit(s->pool, &c->job) == 0)
		set_state(s, c, CALL_RUNNING);
}

void server_cancel(struct server *s, struct call *c)
{
	atomic_store(&c->cancelled, true);
	server_go_on(s); /* one that does not run is forgotten */
	call_signal(c);
	if (!s->resend)
		loop_timer(s->loop, now_ns() + RESEND_MS * 1000000ull, resend_signals, s, &s->resend);
}

static void resend_signals(void *arg)
{
	struct server *s = arg;
	bool any = false;

	s->resend = 0;
	for (struct call *c = s->calls; c; c = c->next) {
		if (c->state == CALL_RUNNING && atomic_load(&c->cancelled)) {
			call_signal(c);
			any = true;
		}
	}
	if (any)
		loop_timer(s->loop, now_ns() + RESEND_MS * 1000000ull, resend_signals, s, &s->resend);
}

/* -- progress ------------------------------------------------------------------------------------------------------ */

static void tell_progress(struct server *s, struct call *c)
{
	struct json_object *o = json_object_new_object();
	uint64_t ms = (now_ns() - c->started_ns) / 1000000;
	char words[96];

	snprintf(words, sizeof(words), "%s: %llu s", c->tool ? c->tool->name : "resource",
		 (unsigned long long)ms / 1000);
	if (!o || fields_put(o, "progressToken", json_object_get(c->progress)) < 0 ||
	    fields_put(o, "progress", json_object_new_double((double)ms / 1000)) < 0 ||
	    fields_put(o, "message", json_object_new_string(words)) < 0) {
		json_object_put(o);
		return;
	}
	server_sent(s, rpc_notify(&s->out.text, "notifications/progress", o));
}

static void on_progress(void *arg)
{
	struct server *s = arg;
	bool any = false;

	s->progress = 0;
	for (struct call *c = s->calls; c; c = c->next) {
		if (c->progress && !atomic_load(&c->cancelled)) {
			if (!server_full(s))
				tell_progress(s, c);
			any = true;
		}
	}
	if (any && !s->ending)
		loop_timer(s->loop, now_ns() + PROGRESS_MS * 1000000ull, on_progress, s, &s->progress);
}

/* -- the way in ---------------------------------------------------------------------------------------------------- */

struct call *server_find_call(struct server *s, struct json_object *id)
{
	struct call *c;

	for (c = s->calls; c && !rpc_same_id(c->id, id); c = c->next)
		;
	return c;
}

void server_submit(struct server *s, const struct rpc_message *m, bool modern, const struct tool *tool, call_fn *run)
{
	struct call *c;

	if (server_find_call(s, m->id)) {
		server_sent(s, rpc_error(server_answers(s), m->id, RPC_REQUEST,
					 "id: a request with this id is under way", NULL));
		return;
	}
	if (s->in_state[CALL_QUEUED] >= QUEUE_MAX || s->requests + s->line_bytes > REQUESTS_MAX) {
		server_sent(s, rpc_error(server_answers(s), m->id, RPC_BUSY,
					 "too many calls are under way: wait for one of them", NULL));
		return;
	}
	c = call_new(m, tool, run);
	if (!c) {
		server_sent(s, rpc_error(server_answers(s), m->id, RPC_INTERNAL, "no memory", NULL));
		return;
	}
	c->modern = modern;
	c->server = s;
	c->guard = s->config.guard;
	c->mount = s->config.mount;
	c->bytes = s->line_bytes;
	c->job.done = done_call;
	add_call(s, c);
	server_go_on(s);
	c->batch = s->batch;
	if (c->batch)
		c->batch->left++;
	if (c->progress) {
		tell_progress(s, c);
		if (!s->progress)
			loop_timer(s->loop, now_ns() + PROGRESS_MS * 1000000ull, on_progress, s, &s->progress);
	}
}
