/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a call: made and freed by the loop, run by a worker, cancelled by a signal to it. */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "base/loop.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/mcp/call.h"

struct call *call_free(struct call *c)
{
	if (!c)
		return NULL;
	json_object_put(c->in);
	json_object_put(c->result);
	json_object_put(c->id);
	json_object_put(c->progress);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return NULL;
}

struct call *call_of_job(struct pool_job *job)
{
	return (struct call *)((char *)job - offsetof(struct call, job));
}

static void set_running(struct call *c, bool running)
{
	pthread_mutex_lock(&c->lock);
	c->running = running;
	c->thread = pthread_self();
	pthread_mutex_unlock(&c->lock);
}

/* The pool's threads have all signals blocked; the one that cancels is let in for as long as the call runs. */
static void run(struct pool_job *job)
{
	struct call *c = call_of_job(job);
	const struct timespec now = { 0 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	set_running(c, true);
	follow_cancel_by(&c->cancelled);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	if (c->tool) {
		struct json_object *shaped = tool_call(c);

		json_object_put(c->result);
		c->result = shaped;
	} else if (c->run(c) < 0) {
		json_object_put(c->result);
		c->result = NULL;
	}
	set_running(c, false);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	while (sigtimedwait(&set, NULL, &now) > 0)
		;
	follow_cancel_by(NULL);
}

struct call *call_new(const struct rpc_message *m, const struct tool *tool, call_fn *fn)
{
	struct call *c = calloc(1, sizeof(*c));
	struct json_object *in = m->params, *meta = NULL, *token = NULL;

	if (!c)
		return NULL;
	pthread_mutex_init(&c->lock, NULL);
	if (tool && (!in || !json_object_object_get_ex(in, "arguments", &in)))
		in = NULL;
	c->in = in ? json_object_get(in) : json_object_new_object();
	c->id = json_object_get(m->id);
	if (m->params && json_object_object_get_ex(m->params, "_meta", &meta))
		json_object_object_get_ex(meta, "progressToken", &token);
	c->progress = json_object_get(token);
	c->tool = tool;
	c->run = fn;
	c->cli = (struct cli){ .json = true, .mount = { .fd = -1 } };
	c->started_ns = now_ns();
	c->job.run = run;
	return c->in ? c : call_free(c);
}

void call_signal(struct call *c)
{
	pthread_mutex_lock(&c->lock);
	if (c->running)
		pthread_kill(c->thread, SIGUSR1);
	pthread_mutex_unlock(&c->lock);
}
