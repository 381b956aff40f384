/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a call: made and freed by the loop, run by a worker, cancelled by a signal to it. */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/loop.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/mcp/call.h"

#define TEXT_MAX (128u * 1024 * 1024) /* a file of 4 MiB is 24 of them at worst */

struct call *call_free(struct call *c)
{
	if (!c)
		return NULL;
	json_object_put(c->in);
	json_object_put(c->result);
	buf_fini(&c->text);
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

/* A tree takes several times the memory of its text. */
static int keep_as_text(struct call *c)
{
	const char *line = c->result ? json_line(c->result) : NULL;
	int r = line ? buf_adds(&c->text, line) : -ENOMEM;

	json_object_put(c->result);
	c->result = NULL;
	return r < 0 ? err_set(&c->cli.err, r, "the result: %s", strerror(-r)) : 0;
}

/* The pool's threads have all signals blocked; the one that cancels is let in for as long as the call runs. */
static void run(struct pool_job *job)
{
	struct call *c = call_of_job(job);
	const struct timespec now = { 0 };
	sigset_t set;
	int r;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	set_running(c, true);
	follow_cancel_by(&c->cancelled);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	r = c->tool ? tool_call(c) : c->run(c);
	if (r == 0)
		r = keep_as_text(c);
	c->failed = r < 0;
	if (r < 0 && !*c->cli.err.msg)
		err_set(&c->cli.err, r, "%s", strerror(-r));
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
	buf_init(&c->text, TEXT_MAX);
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
