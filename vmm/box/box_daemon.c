/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon asks a box for, and what it is told. A message that is malformed, or comes at the wrong time, is
 * answered in words: the daemon is another program of ours, but a box does not fall over it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/wire.h"
#include "vmm/box/box_priv.h"
#include "vmm/box/guest_json.h"

/* -- saying ------------------------------------------------------------------------------------ */

static void send(struct box *b, enum box_type type, uint32_t id, int made)
{
	/* A message that could not be made for want of memory is lost; the daemon has deadlines of its own. */
	if (made == 0)
		session_send(b->session, type, id, b->out.data, b->out.len);
	buf_reset(&b->out);
}

void box_reply_data(struct box *b, uint32_t id, int code, const char *words, const void *data, size_t len,
		    const int *fds, size_t nfds)
{
	if (id != 0 && box_reply_format(&b->out, code, words, data, len) == 0)
		session_send_fds(b->session, BOX_REPLY, id, b->out.data, b->out.len, fds, nfds);
	buf_reset(&b->out);
}

void box_reply(struct box *b, uint32_t id, int code, const char *words)
{
	box_reply_data(b, id, code, words, NULL, 0, NULL, 0);
}

void box_say_state(struct box *b)
{
	send(b, BOX_STATE, 0, box_state_format(&b->out, b->state, b->state_words, b->guest_json));
}

void box_say_event(struct box *b, const char *json)
{
	session_send(b->session, BOX_EVENT, 0, json, strlen(json));
}

/* In b->freeze.event, until it was said. */
void box_say_thawed(struct box *b)
{
	char json[80];

	if (b->away)
		return;
	snprintf(json, sizeof(json), "{\"event\":\"thawed\",\"reason\":\"%s\"}", b->freeze.event);
	b->freeze.event = NULL;
	box_say_event(b, json);
}

static void say_credit(void *arg, uint64_t n, uint32_t bytes)
{
	struct box *b = arg;

	send(b, BOX_STDIN_CREDIT, 0, box_credit_format(&b->out, n, bytes));
}

void box_say_hello(struct box *b)
{
	uint64_t open[BOX_QUEUE_MAX + BOX_BESIDE_MAX + 1];
	struct box_hello h = { .state = b->state, .open = open, .pooled = b->generic && !b->configured };

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
		r = queue_exec(b->queue, m->exec.n, m->exec.flags, m->exec.accepted_wall_ns, m->exec.timeout_max_s, &e);
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
	int r = m->ctl.verb == BOX_KILL_INHERITED ? inherit_kill(b->inherit)
						  : queue_ctl(b->queue, m->ctl.n, m->ctl.verb, m->ctl.a, m->ctl.b);

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
	unsigned int connection;
};

static void on_answer(void *arg, int code, const void *data, size_t len)
{
	struct request *q = arg;

	if (q->connection == q->box->connection)
		box_reply_data(q->box, q->id, code, code < 0 ? err_name(code) : "", data, len, NULL, 0);
	free(q);
}

/* Its answer has words of its own. */
static void on_net(void *arg, int code, const void *data, size_t len)
{
	struct request *q = arg;
	char raw[160] = "", words[160];
	struct wire_rd r;

	wire_rd_init(&r, data, code < 0 ? len : 0);
	wire_str(&r, raw, sizeof(raw));
	guest_words(raw, strlen(raw), words, sizeof(words));
	if (code == 0) /* in the records from now on */
		snprintf(q->box->config.network, sizeof(q->box->config.network), "filtered");
	if (q->connection == q->box->connection)
		box_reply(q->box, q->id, code, code == 0 ? "" : *words ? words : err_name(code));
	free(q);
}

static int call_guest(struct box *b, uint32_t id, const struct box_msg *m)
{
	struct request *q = malloc(sizeof(*q));
	int r;

	if (!q)
		return -ENOMEM;
	*q = (struct request){ .box = b, .id = id, .connection = b->connection };
	if (m->type == BOX_FS)
		r = guest_fs(b->guest, m->fs.op, m->fs.data, m->fs.len, b->t.fs_timeout_ms, on_answer, q);
	else if (m->type == BOX_TRIM)
		r = guest_trim(b->guest, b->t.trim_timeout_ms, on_answer, q);
	else if (m->type == BOX_NET)
		r = guest_net(b->guest, b->t.net_timeout_ms, on_net, q);
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

	if (b->state != needed || b->pause_id || b->freeze.step != FREEZE_NONE)
		return -EBUSY;
	b->freeze.stray_pause = false;
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
	if (code == 0)
		guest_thaw(b->guest);
	if (code < 0 || guest_shutdown(b->guest) < 0)
		box_quit_engine(b);
}

void box_stop_guest(struct box *b, bool paused)
{
	int r = paused ? b->engine_ops->resume(b->engine, b->t.pause_timeout_ms, on_resumed_to_stop, b)
		       : guest_shutdown(b->guest);

	if (r < 0)
		box_quit_engine(b);
}

static void ask_to_stop(struct box *b, bool paused, uint32_t grace_ms)
{
	int r = loop_timer(b->loop, now_ns() + grace_ms * 1000000ull, on_grace_over, b, &b->stop_timer);

	if (r < 0)
		box_quit_engine(b);
	else if (b->freeze.step != FREEZE_NONE) /* it asks the guest when it is thawed */
		box_freeze_abandon(b, -ECANCELED, "the sandbox is being stopped");
	else
		box_stop_guest(b, paused);
}

/* STOP: the guest is asked; whoever does not answer within the grace is not asked again. */
static void stop(struct box *b, uint32_t grace_ms)
{
	bool paused = b->state == BOX_PAUSED, ready = paused || b->state == BOX_READY;

	loop_del(b->loop, &b->boot_timer);
	box_set_state(b, BOX_STOPPING, "");
	if (b->queue) {
		queue_close(b->queue, "the sandbox was stopped before it began");
		queue_resume(b->queue);
	}
	if (ready && grace_ms > 0)
		ask_to_stop(b, paused, grace_ms);
	else
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

	if (b->configured || b->ending)
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
	box_load_started(b);
}

static void take_net(struct box *b, uint32_t id, const struct box_msg *m)
{
	int r = b->state == BOX_READY && !b->ending ? 0 : -EBUSY;

	if (r == 0 && m->net.on)
		r = call_guest(b, id, m);
	if (r < 0 || !m->net.on)
		box_reply(b, id, r, r < 0 ? err_name(r) : "");
}

static void take_trim(struct box *b, uint32_t id, const struct box_msg *m)
{
	int r = b->state == BOX_READY && !b->ending ? call_guest(b, id, m) : -EBUSY;

	if (r < 0)
		box_reply(b, id, r, err_name(r));
}

/* Messages that need the machine, and nobody whose it is. */
static bool take_machine(struct box *b, uint32_t id, const struct box_msg *m, int *fd)
{
	bool end = m->type == BOX_VM && (m->vm.what == BOX_VM_STOP || m->vm.what == BOX_VM_QUIT);

	if (!b->engine)
		return false;
	switch (m->type) {
	case BOX_MEMORY:
		box_take_memory(b, id, m, fd);
		return true;
	case BOX_MEMORY_AGAIN:
		box_take_memory_again(b, id);
		return true;
	case BOX_LOAD:
		box_take_load(b, id, m, fd);
		return true;
	default:
		if (end)
			take_vm(b, id, m);
		return end;
	}
}

static void take(struct box *b, uint32_t id, struct box_msg *m, int *fd)
{
	if (m->type == BOX_START) {
		take_start(b, m);
		return;
	}
	if (take_machine(b, id, m, fd))
		return;
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
	case BOX_FREEZE:
		box_take_freeze(b, id, m->freeze.ms, fd);
		break;
	case BOX_THAW:
		box_take_thaw(b, id);
		break;
	case BOX_TRIM:
		take_trim(b, id, m);
		break;
	case BOX_NET:
		take_net(b, id, m);
		break;
	case BOX_RECLAIM:
		box_take_reclaim(b, id, m->reclaim.bytes);
		break;
	default: /* BOX_FS */
		take_fs(b, id, m);
		break;
	}
}

void box_take_message(struct box *b, uint16_t type, uint32_t id, const void *data, size_t len, int *fd)
{
	struct box_msg m;
	struct err e = { 0 };
	int r = box_msg_parse(type, data, len, &m, &e);

	if (r < 0) {
		box_reply(b, id, r, e.msg);
		if (type == BOX_START && !b->configured)
			box_end(b, e.msg);
		return;
	}
	take(b, id, &m, fd);
	box_msg_fini(&m);
}

static void on_msg(void *arg, struct msg *msg)
{
	struct box *b = arg;
	bool wants_engine = msg->type == BOX_MEMORY || msg->type == BOX_LOAD;
	AUTO_FD fd = -1;
	int r;

	if (msg->nfds > 0)
		fd = take_fd(&msg->fds[0]);
	if (wants_engine && b->engine && (!b->engine_up || b->nearly > 0)) {
		r = box_keep_early(b, msg, &fd);
		if (r < 0)
			box_reply(b, msg->id, r, "the engine is not up yet");
		return;
	}
	box_take_message(b, msg->type, msg->id, msg->data, msg->len, &fd);
}

static void on_away(void *arg)
{
	struct box *b = arg;

	b->away = true;
	b->connection++;
	/* Nobody waits for these answers any more. */
	b->stop_id = b->pause_id = b->memory.id = b->load.id = 0;
	box_forget_early(b);
	box_freeze_away(b);
}

static void on_back(void *arg)
{
	struct box *b = arg;

	b->away = false;
	box_say_hello(b);
	box_say_state(b);
	if (b->freeze.event && b->freeze.step == FREEZE_NONE)
		box_say_thawed(b);
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

const struct session_ops box_session_ops = {
	.on_msg = on_msg, .on_away = on_away, .on_back = on_back, .on_orphan = on_orphan
};
