/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon asks a box for, and what it is told. A message that is malformed, or comes at the wrong time, is
 * answered in words: the daemon is another program of ours, but a box does not fall over it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/box/box_priv.h"

/* -- saying ------------------------------------------------------------------------------------ */

static void send(struct box *b, enum box_type type, uint32_t id, int made)
{
	/* A message that could not be made for want of memory is lost; the daemon has deadlines of its own. */
	if (made == 0)
		session_send(b->session, type, id, b->out.data, b->out.len);
	buf_reset(&b->out);
}

static void reply_data(struct box *b, uint32_t id, int code, const char *words, const void *data, size_t len)
{
	if (id != 0)
		send(b, BOX_REPLY, id, box_reply_format(&b->out, code, words, data, len));
}

void box_reply(struct box *b, uint32_t id, int code, const char *words)
{
	reply_data(b, id, code, words, NULL, 0);
}

void box_say_state(struct box *b)
{
	send(b, BOX_STATE, 0, box_state_format(&b->out, b->state, b->state_words, b->guest_json));
}

void box_say_event(struct box *b, const char *json)
{
	session_send(b->session, BOX_EVENT, 0, json, strlen(json));
}

static void say_credit(void *arg, uint64_t n, uint32_t bytes)
{
	struct box *b = arg;

	send(b, BOX_STDIN_CREDIT, 0, box_credit_format(&b->out, n, bytes));
}

void box_say_hello(struct box *b)
{
	uint64_t open[BOX_QUEUE_MAX + BOX_BESIDE_MAX + 1];
	struct box_hello h = { .state = b->state, .open = open };

	snprintf(h.uuid, sizeof(h.uuid), "%s", b->config.uuid);
	snprintf(h.guest, sizeof(h.guest), "%s", b->guest_json);
	if (b->queue) {
		h.last_exec = queue_last(b->queue);
		h.nopen = queue_open(b->queue, open, sizeof(open) / sizeof(open[0]));
	}
	send(b, BOX_HELLO, 0, box_hello_format(&h, &b->out));
}

/* -- what the queue tells (queue_ops) ---------------------------------------------------------- */

static void on_progress(void *arg, uint64_t n, bool first, uint64_t stdout_bytes, uint64_t stderr_bytes)
{
	struct box *b = arg;

	if (box_progress_format(&b->out, n, true, stdout_bytes, stderr_bytes) == 0) {
		if (first)
			session_send(b->session, BOX_PROGRESS, 0, b->out.data, b->out.len);
		else
			session_hint(b->session, BOX_PROGRESS, b->out.data, b->out.len);
	}
	buf_reset(&b->out);
}

static void on_done(void *arg, const struct box_done *d)
{
	struct box *b = arg;

	send(b, BOX_DONE, 0, box_done_format(&b->out, d));
}

static void tell_removed(void *arg)
{
	struct box *b = arg;
	char json[120];

	b->removed_call = 0;
	snprintf(json, sizeof(json), "{\"event\":\"exec_removed\",\"first\":%" PRIu64 ",\"last\":%" PRIu64 "}",
		 b->removed_first, b->removed_last);
	b->removed_first = b->removed_last = 0;
	box_say_event(b, json);
}

/* Many go in a row: they are told as one. */
static void on_removed(void *arg, uint64_t n)
{
	struct box *b = arg;

	if (!b->removed_first || n < b->removed_first)
		b->removed_first = n;
	if (n > b->removed_last)
		b->removed_last = n;
	if (!b->removed_call)
		loop_defer(b->loop, tell_removed, b, &b->removed_call);
}

static void on_lost(void *arg, const char *words)
{
	box_end(arg, words);
}

const struct queue_ops box_queue_ops = {
	.on_progress = on_progress,
	.on_done = on_done,
	.on_credit = say_credit,
	.on_removed = on_removed,
	.on_lost = on_lost,
};

/* -- commands ---------------------------------------------------------------------------------- */

static void take_exec(struct box *b, uint32_t id, const struct box_msg *m)
{
	struct err e = { 0 };
	int r;

	if (b->state == BOX_STOPPING || b->ending)
		r = err_set(&e, -EBUSY, "the sandbox is being stopped");
	else
		r = queue_exec(b->queue, m->exec.n, m->exec.flags, m->exec.accepted_wall_ns, &e);
	box_reply(b, id, r, e.msg);
	if (r == 0)
		queue_kick(b->queue);
}

static void take_stdin(struct box *b, uint32_t id, const struct box_msg *m)
{
	int r = queue_stdin(b->queue, m->in.n, m->in.data, m->in.len, m->in.eof);

	box_reply(b, id, r, r < 0 ? err_name(r) : "");
}

static void take_ctl(struct box *b, uint32_t id, const struct box_msg *m)
{
	int r = queue_ctl(b->queue, m->ctl.n, m->ctl.verb, m->ctl.a, m->ctl.b);

	box_reply(b, id, r, r == -ENOENT ? "no such command runs" : r < 0 ? err_name(r) : "");
}

static void take_set(struct box *b, uint32_t id, const struct box_msg *m)
{
	int r = m->set.env ? queue_set_env(b->queue, m->set.env) : 0;

	if (r == 0 && m->set.name)
		snprintf(b->config.name, sizeof(b->config.name), "%s", m->set.name);
	box_reply(b, id, r, r < 0 ? err_name(r) : "");
}

/* -- the guest's files and the machine --------------------------------------------------------- */

struct request { /* whose answer comes later */
	struct box *box;
	uint32_t id;
};

static void on_answer(void *arg, int code, const void *data, size_t len)
{
	struct request *q = arg;

	reply_data(q->box, q->id, code, code < 0 ? err_name(code) : "", data, len);
	free(q);
}

static int call_guest(struct box *b, uint32_t id, const struct box_msg *m)
{
	struct request *q = malloc(sizeof(*q));
	int r;

	if (!q)
		return -ENOMEM;
	*q = (struct request){ .box = b, .id = id };
	if (m->type == BOX_FS)
		r = guest_fs(b->guest, m->fs.op, m->fs.data, m->fs.len, b->t.fs_timeout_ms, on_answer, q);
	else
		r = guest_sync(b->guest, b->t.sync_timeout_ms, on_answer, q);
	if (r < 0)
		free(q);
	return r;
}

static void take_fs(struct box *b, uint32_t id, const struct box_msg *m)
{
	int r;

	if (b->ending || b->state == BOX_STOPPING)
		r = -ENOTCONN;
	else if (b->state == BOX_PAUSED &&
		 m->fs.op != AG_FS_RELEASE) /* a handle is let go of whatever the state: it waits in the port */
		r = -EBUSY;
	else
		r = call_guest(b, id, m);
	if (r < 0)
		box_reply(b, id, r, err_name(r));
}

static void on_pause_done(void *arg, int code, const struct err *e)
{
	struct box *b = arg;

	box_reply(b, b->pause_id, code, code < 0 && e ? e->msg : "");
	b->pause_id = 0;
}

static int pause_or_resume(struct box *b, uint32_t id, enum box_vm what)
{
	enum box_state needed = what == BOX_VM_PAUSE ? BOX_READY : BOX_PAUSED;
	int r;

	if (b->state != needed || b->pause_id)
		return -EBUSY;
	b->pause_id = id;
	r = (what == BOX_VM_PAUSE ? b->engine_ops->pause : b->engine_ops->resume)(b->engine, b->t.pause_timeout_ms,
										  on_pause_done, b);
	if (r < 0)
		b->pause_id = 0;
	return r;
}

static void on_grace_over(void *arg)
{
	struct box *b = arg;

	b->stop_timer = 0;
	box_quit_engine(b);
}

static void on_resumed_to_stop(void *arg, int code, const struct err *e)
{
	struct box *b = arg;

	(void)e;
	if (code < 0 || guest_shutdown(b->guest) < 0)
		box_quit_engine(b);
}

static int ask_to_stop(struct box *b, bool paused, uint32_t grace_ms)
{
	int r = loop_timer(b->loop, now_ns() + grace_ms * 1000000ull, on_grace_over, b, &b->stop_timer);

	if (r < 0)
		return r;
	return paused ? b->engine_ops->resume(b->engine, grace_ms, on_resumed_to_stop, b) : guest_shutdown(b->guest);
}

/* STOP: the guest is asked; whoever does not answer within the grace is not asked again. */
static void stop(struct box *b, uint32_t grace_ms)
{
	bool paused = b->state == BOX_PAUSED, ready = paused || b->state == BOX_READY;

	loop_del(b->loop, &b->boot_timer);
	box_set_state(b, BOX_STOPPING, "");
	queue_close(b->queue, "the sandbox was stopped before it began");
	queue_resume(b->queue);
	if (!ready || grace_ms == 0 || ask_to_stop(b, paused, grace_ms) < 0)
		box_quit_engine(b);
}

static int take_stop(struct box *b, uint32_t id, uint32_t grace_ms)
{
	if (b->ending)
		return -ENOTCONN;
	if (b->state == BOX_STOPPING && grace_ms > 0)
		return -EBUSY;
	/* QUIT after STOP: the first one is answered now, the second at the end. */
	box_reply(b, b->stop_id, -ECANCELED, "a quit came in between");
	b->stop_id = id;
	if (b->state == BOX_STOPPING)
		box_quit_engine(b);
	else
		stop(b, grace_ms);
	return 0;
}

static void take_vm(struct box *b, uint32_t id, const struct box_msg *m)
{
	int r;

	switch (m->vm.what) {
	case BOX_VM_PAUSE:
	case BOX_VM_RESUME:
		r = b->ending ? -ENOTCONN : pause_or_resume(b, id, m->vm.what);
		break;
	case BOX_VM_STOP:
		r = take_stop(b, id, m->vm.grace_ms ? m->vm.grace_ms : 1);
		break;
	case BOX_VM_QUIT:
		r = take_stop(b, id, 0);
		break;
	default: /* BOX_VM_SYNC */
		r = b->ending ? -ENOTCONN : b->state == BOX_READY ? call_guest(b, id, m) : -EBUSY;
		break;
	}
	if (r < 0)
		box_reply(b, id, r, err_name(r));
}

/* -- messages ---------------------------------------------------------------------------------- */

static void take_start(struct box *b, struct box_msg *m)
{
	struct err e = { 0 };

	if (b->configured)
		return;
	b->config = m->start;
	m->start.env = NULL; /* ours now */
	if (box_start(b, &e) < 0) {
		box_say_hello(b);
		box_end(b, e.msg);
		return;
	}
	box_say_hello(b);
	box_say_state(b);
}

static void take(struct box *b, uint32_t id, struct box_msg *m)
{
	if (m->type == BOX_START) {
		take_start(b, m);
		return;
	}
	if (!b->configured || !b->queue) {
		box_reply(b, id, -ENOTCONN, "the sandbox is gone, or was never begun");
		return;
	}
	switch (m->type) {
	case BOX_EXEC:
		take_exec(b, id, m);
		break;
	case BOX_STDIN:
		take_stdin(b, id, m);
		break;
	case BOX_CTL:
		take_ctl(b, id, m);
		break;
	case BOX_VM:
		take_vm(b, id, m);
		break;
	case BOX_SET:
		take_set(b, id, m);
		break;
	default: /* BOX_FS */
		take_fs(b, id, m);
		break;
	}
}

static void on_msg(void *arg, struct msg *msg)
{
	struct box *b = arg;
	struct box_msg m;
	struct err e = { 0 };
	int r = box_msg_parse(msg->type, msg->data, msg->len, &m, &e);

	if (r < 0) {
		box_reply(b, msg->id, r, e.msg);
		if (msg->type == BOX_START && !b->configured)
			box_end(b, e.msg);
		return;
	}
	take(b, msg->id, &m);
	box_msg_fini(&m);
}

static void on_back(void *arg)
{
	struct box *b = arg;

	box_say_hello(b);
	box_say_state(b);
	if (b->queue)
		queue_each_live(b->queue, say_credit, b);
}

static void on_orphan(void *arg)
{
	struct box *b = arg;

	if (b->configured && !b->ending && b->state != BOX_STOPPING)
		stop(b, 0);
	else
		box_end(b, "no daemon");
}

const struct session_ops box_session_ops = { .on_msg = on_msg, .on_back = on_back, .on_orphan = on_orphan };
