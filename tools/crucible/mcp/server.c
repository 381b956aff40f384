/* SPDX-License-Identifier: Apache-2.0 */
/* How this works.
 *
 * One loop reads lines, answers at once what needs no file (initialize, ping, lists of tools), and hands all else to a
 * pool of threads as a struct call. A worker runs the call and forms its answer as a line; only the loop writes to
 * standard output, so lines never mix and a client that does not read holds up no call. Invariants:
 *  1. A call is in `calls` from its submission until its `done`; its id is unique there.
 *  2. Cancelling is a flag and a signal: SIGUSR1 to the thread interrupts a blocked write or poll(2), and is what
 * attach_run() takes for Ctrl-C. It may come between two system calls, so it is sent again until the call has ended.
 * Under the call's lock, and what is left of it is taken away at the end: it never meets the thread's next call. All
 * other signals are the loop's; attach_run() may be the first to read one, and call_ended() passes it on.
 *  3. A cancelled call is not answered.
 *  4. The end (end of input, broken output, a signal) cancels everything and takes END_MS at most: who has not ended by
 * then does with the process, and the kernel lets go of the leases. */
#include "tools/crucible/mcp/server.h"

#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/mcp/out.h"
#include "tools/crucible/mcp/protocol.h"

#define THREADS	    16
#define QUEUE_MAX   256
#define END_MS	    700
#define RESEND_MS   20
#define PROGRESS_MS 1000
#define IDLE_MS	    200			 /* after the last call memory is given back */
#define OUT_MAX	    (512u * 1024 * 1024) /* then nobody reads us: the end */
#define OUT_FULL    (4u * 1024 * 1024)	 /* above it no further request is read */
#define PIECE	    65536

/* Answers to a list of requests are one list. */
struct batch {
	struct buf text;
	unsigned left; /* calls that are under way, and one while its requests are read */
};

struct server {
	struct server_config config;
	struct loop *loop;
	struct pool *pool;
	struct rpc_reader in;
	struct out out;
	struct call *calls;
	struct batch *batch; /* the one whose requests are read, or answered; NULL: none */
	loop_id in_id, out_id, resend, progress, deadline, again, idle;
	bool paused; /* of reading */
	bool ending;
	int code; /* what server_run() returns */
};

static void end(struct server *s, int code);
static void resend_signals(void *arg);

/* -- output -------------------------------------------------------------------------------------------------------- */

static void flush(struct server *s)
{
	out_flush(&s->out);
	if (s->out.broken)
		end(s, 0);
	if (s->out_id)
		loop_mod(s->loop, s->out_id, out_left(&s->out) ? EPOLLOUT : 0);
	if (s->paused && out_left(&s->out) < OUT_FULL && s->in_id) {
		s->paused = false;
		loop_mod(s->loop, s->in_id, EPOLLIN);
	}
}

static void on_out(void *arg, uint32_t events)
{
	struct server *s = arg;

	/* A reader that is gone is told although nothing waits to be written. */
	if (events & (EPOLLERR | EPOLLHUP))
		s->out.broken = true;
	flush(s);
}

/* Where an answer goes. */
static struct buf *answers(struct server *s)
{
	return s->batch ? &s->batch->text : &s->out.text;
}

/* @r: of what appended to it. */
static void sent(struct server *s, int r)
{
	if (r < 0)
		s->out.broken = true;
	if (!s->batch || r < 0)
		flush(s);
}

static void leave_batch(struct server *s, struct batch *b)
{
	if (!b || --b->left)
		return;
	sent(s, rpc_list(&s->out.text, &b->text));
	buf_fini(&b->text);
	free(b);
}

/* -- calls --------------------------------------------------------------------------------------------------------- */

static void answer_call(struct server *s, struct call *c)
{
	bool failed = !c->result;
	struct json_object *result = protocol_result(c->result, c->modern, !c->tool);
	int r;

	s->batch = c->batch;
	c->result = NULL;
	if (result)
		r = rpc_result(answers(s), c->id, result);
	else if (failed && !c->tool) /* a failure of a tool is a result */
		r = rpc_error(answers(s), c->id, c->modern ? RPC_PARAMS : RPC_NO_RESOURCE, c->cli.err.msg, NULL);
	else
		r = rpc_error(answers(s), c->id, RPC_INTERNAL, "no memory", NULL);
	sent(s, r);
	s->batch = NULL;
}

static void give_back(void *arg)
{
	struct server *s = arg;

	s->idle = 0;
	malloc_trim(0);
}

static void done_call(struct pool_job *job)
{
	struct call *c = call_of_job(job);
	struct server *s = c->server;

	for (struct call **p = &s->calls; *p; p = &(*p)->next) {
		if (*p == c) {
			*p = c->next;
			break;
		}
	}
	if (!atomic_load(&c->cancelled))
		answer_call(s, c);
	leave_batch(s, c->batch);
	call_free(c);
	if (!s->calls && !s->idle)
		loop_timer(s->loop, now_ns() + IDLE_MS * 1000000ull, give_back, s, &s->idle);
	if (s->ending && !s->calls)
		loop_stop(s->loop);
}

static void cancel_call(struct server *s, struct call *c)
{
	atomic_store(&c->cancelled, true);
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
		if (atomic_load(&c->cancelled)) {
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
	sent(s, rpc_notify(&s->out.text, "notifications/progress", o));
}

static void on_progress(void *arg)
{
	struct server *s = arg;
	bool any = false;

	s->progress = 0;
	for (struct call *c = s->calls; c; c = c->next) {
		if (c->progress && !atomic_load(&c->cancelled)) {
			tell_progress(s, c);
			any = true;
		}
	}
	if (any && !s->ending)
		loop_timer(s->loop, now_ns() + PROGRESS_MS * 1000000ull, on_progress, s, &s->progress);
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

static struct call *find_call(struct server *s, struct json_object *id)
{
	struct call *c;

	for (c = s->calls; c && !rpc_same_id(c->id, id); c = c->next)
		;
	return c;
}

static void submit(struct server *s, const struct rpc_message *m, bool modern, const struct tool *tool, call_fn *run)
{
	struct call *c = NULL;
	int r;

	if (find_call(s, m->id)) {
		sent(s, rpc_error(answers(s), m->id, RPC_REQUEST, "id: a request with this id is under way", NULL));
		return;
	}
	c = call_new(m, tool, run);
	if (!c) {
		sent(s, rpc_error(answers(s), m->id, RPC_INTERNAL, "no memory", NULL));
		return;
	}
	c->modern = modern;
	c->server = s;
	c->guard = s->config.guard;
	c->mount = s->config.mount;
	c->job.done = done_call;
	r = pool_submit(s->pool, &c->job);
	if (r < 0) {
		call_free(c);
		sent(s, rpc_error(answers(s), m->id, RPC_BUSY, "too many calls are under way: wait for one of them",
				  NULL));
		return;
	}
	c->next = s->calls;
	s->calls = c;
	c->batch = s->batch;
	if (c->batch)
		c->batch->left++;
	if (c->progress) {
		tell_progress(s, c);
		if (!s->progress)
			loop_timer(s->loop, now_ns() + PROGRESS_MS * 1000000ull, on_progress, s, &s->progress);
	}
}

static void on_tool(struct server *s, const struct rpc_message *m, bool modern)
{
	const char *name = fields_text(m->params, "name");
	const struct tool *tool = name ? tool_find(s->config.guard, name) : NULL;
	char words[160];

	if (tool) {
		submit(s, m, modern, tool, NULL);
		return;
	}
	snprintf(words, sizeof(words), name ? "there is no tool \"%.100s\"" : "name: missing", name);
	sent(s, rpc_error(answers(s), m->id, RPC_PARAMS, words, NULL));
}

static void on_request(struct server *s, const struct rpc_message *m)
{
	const bool resources = resources_permitted(s->config.guard);
	struct json_object *result = NULL, *data = NULL;
	struct err words = { 0 };
	bool modern = false;
	int r = protocol_check(m->params, &modern, &data, &words);

	if (r != 0)
		return sent(s, rpc_error(answers(s), m->id, r, words.msg, data));
	if (!modern && !strcmp(m->method, "initialize"))
		result = protocol_initialize(m->params, resources);
	else if (!strcmp(m->method, "server/discover"))
		result = protocol_discover(resources);
	else if (!modern && !strcmp(m->method, "ping"))
		result = json_object_new_object();
	else if (!strcmp(m->method, "tools/list"))
		result = tools_list(s->config.guard);
	else if (resources && !strcmp(m->method, "resources/templates/list"))
		result = resources_templates();
	else if (!strcmp(m->method, "tools/call"))
		return on_tool(s, m, modern);
	else if (resources && !strcmp(m->method, "resources/list"))
		return submit(s, m, modern, NULL, resources_list);
	else if (resources && !strcmp(m->method, "resources/read"))
		return submit(s, m, modern, NULL, resources_read);
	else {
		char text[160];

		snprintf(text, sizeof(text), "there is no method \"%.100s\"", m->method);
		return sent(s, rpc_error(answers(s), m->id, RPC_METHOD, text, NULL));
	}
	result = protocol_result(result, modern, true);
	if (result)
		sent(s, rpc_result(answers(s), m->id, result));
	else
		sent(s, rpc_error(answers(s), m->id, RPC_INTERNAL, "no memory", NULL));
}

static void on_notification(struct server *s, const struct rpc_message *m)
{
	struct json_object *id;
	struct call *c;

	if (strcmp(m->method, "notifications/cancelled") != 0 || !m->params ||
	    !json_object_object_get_ex(m->params, "requestId", &id))
		return;
	c = find_call(s, id);
	if (c)
		cancel_call(s, c);
}

/* @r: of reading it. */
static void on_message(struct server *s, const struct rpc_message *m, int r, const struct err *e)
{
	if (r != 0)
		sent(s, rpc_error(answers(s), m->id, r, e->msg, NULL));
	else if (m->method && m->id)
		on_request(s, m);
	else if (m->method)
		on_notification(s, m);
}

static void on_batch(struct server *s, struct json_object *list)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (!b)
		return sent(s, -ENOMEM);
	buf_init(&b->text, OUT_MAX);
	b->left = 1;
	s->batch = b;
	for (size_t i = 0; i < json_object_array_length(list) && !s->ending; i++) {
		struct rpc_message m;
		struct err e = { 0 };
		int r = rpc_take(json_object_get(json_object_array_get_idx(list, i)), &m, &e);

		on_message(s, &m, r, &e);
		rpc_message_fini(&m);
	}
	s->batch = NULL;
	leave_batch(s, b);
}

static void on_line(struct server *s, const char *line, size_t len)
{
	struct rpc_message m;
	struct err e = { 0 };
	int r;

	while (len && (line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	if (!len)
		return;
	r = rpc_parse(line, len, &m, &e);
	if (r == RPC_BATCH)
		on_batch(s, m.all);
	else
		on_message(s, &m, r, &e);
	rpc_message_fini(&m);
}

/* -- input --------------------------------------------------------------------------------------------------------- */

static void read_input(struct server *s)
{
	char piece[PIECE];
	const char *line;
	size_t len;
	ssize_t n = read(s->config.in, piece, sizeof(piece));
	int r;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		end(s, 0);
		return;
	}
	if (rpc_reader_add(&s->in, piece, (size_t)n) < 0) {
		s->out.broken = true; /* no memory: there is nothing sensible to say */
		end(s, 0);
		return;
	}
	while (!s->ending && (r = rpc_reader_line(&s->in, &line, &len)) != 0) {
		if (r < 0)
			sent(s, rpc_error(answers(s), NULL, RPC_PARSE, "a message is longer than 16 MiB", NULL));
		else
			on_line(s, line, len);
	}
	if (out_left(&s->out) >= OUT_FULL && s->in_id && !s->ending) {
		s->paused = true;
		loop_mod(s->loop, s->in_id, 0);
	}
}

static void on_in(void *arg, uint32_t events)
{
	(void)events;
	read_input(arg);
}

/* Of a file: it is always ready. */
static void on_again(void *arg)
{
	struct server *s = arg;

	s->again = 0;
	read_input(s);
	if (!s->ending)
		loop_defer(s->loop, on_again, s, &s->again);
}

/* -- beginning and end --------------------------------------------------------------------------------------------- */

static void on_deadline(void *arg)
{
	struct server *s = arg;

	_exit(s->code); /* threads that do not come back; the kernel closes their leases */
}

static void end(struct server *s, int code)
{
	if (s->ending)
		return;
	s->ending = true;
	s->code = code;
	loop_del(s->loop, &s->in_id);
	loop_del(s->loop, &s->again);
	loop_timer(s->loop, now_ns() + END_MS * 1000000ull, on_deadline, s, &s->deadline);
	for (struct call *c = s->calls; c; c = c->next)
		cancel_call(s, c);
	if (!s->calls)
		loop_stop(s->loop);
}

static void on_signal(void *arg, const struct signalfd_siginfo *si)
{
	end(arg, 128 + (int)si->ssi_signo);
}

static void ignore(int signo)
{
	(void)signo; /* it is sent to interrupt a system call */
}

static int begin(struct server *s, struct err *e)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction interrupt = { .sa_handler = ignore };
	int r = loop_new(&s->loop);

	sigemptyset(&interrupt.sa_mask);
	sigaction(SIGUSR1, &interrupt, NULL); /* without SA_RESTART */
	for (size_t i = 0; i < ARRAY_LEN(signals) && r == 0; i++)
		r = loop_signal(s->loop, signals[i], on_signal, s);
	if (r == 0)
		r = pool_new(s->loop, THREADS, QUEUE_MAX, &s->pool);
	if (r == 0)
		r = loop_add(s->loop, s->config.in, EPOLLIN, on_in, s, &s->in_id);
	if (r == -EPERM)
		r = loop_defer(s->loop, on_again, s, &s->again);
	if (r == 0)
		r = loop_add(s->loop, s->config.out, 0, on_out, s, &s->out_id);
	if (r == -EPERM || r == -EEXIST) { /* a file; or the socket that is our input, too */
		s->out.is_file = r == -EPERM;
		r = 0;
	}
	return r < 0 ? err_set(e, r, "mcp serve: %s", strerror(-r)) : 0;
}

/* What is still to be said, to a client that still listens. */
static void drain(struct server *s)
{
	uint64_t until = now_ns() + END_MS * 1000000ull;

	while (out_left(&s->out) && !s->out.broken && now_ns() < until) {
		struct pollfd p = { .fd = s->config.out, .events = POLLOUT };

		poll(&p, 1, RESEND_MS);
		flush(s);
	}
}

int server_run(const struct server_config *config, struct err *e)
{
	struct server s = { .config = *config };
	int r;

	rpc_reader_init(&s.in);
	out_init(&s.out, config->out, OUT_MAX);
	r = begin(&s, e);
	if (r == 0)
		r = loop_run(s.loop);
	drain(&s);
	pool_free(s.pool);
	loop_free(s.loop);
	rpc_reader_fini(&s.in);
	out_fini(&s.out);
	return r < 0 ? err_set(e, r, "mcp serve: %s", strerror(-r)) : s.code;
}
