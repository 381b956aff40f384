/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the daemon and one box: calls with their answers, and what the box tells on its own. A box parses
 * what a guest sends and may have been taken over by it, so what it says is bounded here and can only concern its own
 * sandbox. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

#define QUEUE_BYTES_MAX (8u * 1024 * 1024) /* waiting for a box that does not read */
#define GREETINGS_MAX	64u		   /* connections that have not said who they are; one of each uid */
#define ACCEPT_AGAIN_NS (500ull * 1000000ull)
#define EVENTS_A_MINUTE 600u /* of one box: each is written to files that all share */

struct boxlink {
	struct registry *reg;
	struct sandbox *s;    /* a reference; NULL: a machine's, or greeting */
	struct machine *m;    /* NULL: a sandbox's, or greeting */
	struct boxlink *next; /* while greeting */
	struct msgconn *conn;
	struct calls calls;
	uid_t peer_uid;
	uint64_t events_since_ns;
	unsigned nevents;
};

static void boxlink_end(struct boxlink *k)
{
	k->conn = msgconn_free(k->conn);
	calls_end(&k->calls, -ENOTCONN, "the machine is gone");
	sandbox_unref(k->s);
	free(k);
}

struct boxlink *boxlink_free(struct boxlink *k)
{
	if (!k)
		return NULL;
	if (!k->s && !k->m) {
		struct boxlink **at = &k->reg->greeting;

		while (*at && *at != k)
			at = &(*at)->next;
		if (*at)
			*at = k->next;
	}
	boxlink_end(k);
	return NULL;
}

void boxlink_give(struct boxlink *k, struct sandbox *s)
{
	k->m = NULL;
	k->s = sandbox_ref(s);
	s->link = k;
}

int boxlink_call_fds(struct boxlink *k, enum box_type type, const void *data, size_t len, const int *fds, size_t nfds,
		     boxlink_fn *fn, void *arg)
{
	if (!k->conn)
		return -ENOTCONN; /* of a link that is being freed: who is told of its end must not begin anew */
	if (!fn)
		return msgconn_send(k->conn, (uint16_t)type, 0, data, len, fds, nfds);
	return calls_send(&k->calls, k->conn, (uint16_t)type, data, len, fds, nfds, fn, arg, NULL);
}

int boxlink_call(struct boxlink *k, enum box_type type, const void *data, size_t len, boxlink_fn *fn, void *arg)
{
	return boxlink_call_fds(k, type, data, len, NULL, 0, fn, arg);
}

int boxlink_vm(struct boxlink *k, enum box_vm verb, uint32_t grace_ms, boxlink_fn *fn, void *arg)
{
	struct buf b;
	int r;

	buf_init(&b, 16);
	if ((r = wire_put_u8(&b, (uint8_t)verb)) == 0 && (r = wire_put_u32(&b, grace_ms)) == 0)
		r = boxlink_call(k, BOX_VM, b.data, b.len, fn, arg);
	buf_fini(&b);
	return r;
}

int boxlink_ctl(struct boxlink *k, uint64_t n, enum box_verb verb, uint32_t a, uint32_t bb, boxlink_fn *fn, void *arg)
{
	struct buf b;
	int r;

	buf_init(&b, 32);
	if ((r = wire_put_u64(&b, n)) == 0 && (r = wire_put_u8(&b, (uint8_t)verb)) == 0 &&
	    (r = wire_put_u32(&b, a)) == 0 && (r = wire_put_u32(&b, bb)) == 0)
		r = boxlink_call(k, BOX_CTL, b.data, b.len, fn, arg);
	buf_fini(&b);
	return r;
}

void boxlink_set(struct sandbox *s)
{
	AUTO_JSON *o = s->link ? json_object_new_object() : NULL;
	const char *line;

	if (!o)
		return;
	json_object_object_add(o, "name", json_object_new_string(s->name));
	json_object_object_add(o, "env", json_object_new_string(s->attrs.env ? s->attrs.env : ""));
	line = json_line(o);
	boxlink_call(s->link, BOX_SET, line, strlen(line), NULL, NULL);
}

/* -- what a box tells -------------------------------------------------------------------------------------------- */

static void on_progress(struct sandbox *s, struct wire_rd *r)
{
	uint64_t n = wire_u64(r);
	uint8_t started = wire_u8(r);
	struct execution *x;

	wire_u64(r); /* the files say how much there is */
	wire_u64(r);
	x = wire_done(r) == 0 ? sandbox_exec(s, n) : NULL;
	if (!x)
		return;
	if (started && x->state == EXEC_QUEUED) {
		struct slot *t = x->live_stdin ? slot_of_exec(s, n) : NULL;

		exec_set_state(s, x, EXEC_RUNNING);
		if (t)
			slot_began(s, t);
	} else {
		waitq_wake(&s->waitq);
	}
}

static void on_done(struct sandbox *s, struct wire_rd *r)
{
	uint64_t n = wire_u64(r);
	int32_t exit_code = (int32_t)wire_u32(r);
	char signal[32], error[320];
	uint64_t duration_ms, spool;
	struct execution *x;
	struct json_object *extra;

	wire_str(r, signal, sizeof(signal));
	wire_str(r, error, sizeof(error));
	duration_ms = wire_u64(r);
	spool = wire_u64(r);
	x = wire_done(r) == 0 ? sandbox_exec(s, n) : NULL;
	if (!x || x->state == EXEC_DONE)
		return;
	s->spool_bytes = spool;
	sandbox_ask_stat(s);
	exec_set_state(s, x, EXEC_DONE);
	if (error[0])
		exec_tell_error(s, n, error);
	extra = json_object_new_object();
	if (extra) {
		json_object_object_add(extra, "exec", json_object_new_uint64(n));
		json_object_object_add(extra, "exit_code", json_object_new_int(exit_code));
		if (signal[0])
			json_object_object_add(extra, "signal", json_text(signal, strlen(signal)));
		if (error[0])
			json_object_object_add(extra, "error", json_text(error, strlen(error)));
		json_object_object_add(extra, "duration_ms", json_object_new_uint64(duration_ms));
	}
	journal_add(s->reg, s, NULL, "exec_done", extra);
	exec_forget_old(s);
}

static void keep_guest(struct sandbox *s, const char *json)
{
	if (json[0]) {
		free(s->guest);
		s->guest = strdup(json);
	}
}

void boxlink_ready(struct sandbox *s)
{
	if (s->status == SBX_STARTING)
		s->epoch++;
	sandbox_set_status(s, SBX_READY);
	exec_send_all(s);
	fs_send_waiting(s);
}

/* The link may be gone on return (sandbox_down). */
static void on_state(struct sandbox *s, struct wire_rd *r)
{
	uint8_t state = wire_u8(r);
	char words[1024], guest[4096];

	wire_str(r, words, sizeof(words));
	wire_str(r, guest, sizeof(guest));
	if (wire_done(r) < 0 || state >= BOX_STATE_COUNT)
		return;
	switch ((enum box_state)state) {
	case BOX_READY:
		keep_guest(s, guest);
		s->unproven = s->fresh = false;
		/* Its network may not be there yet; then that is what leads on. */
		if (!net_guest_ready(s))
			boxlink_ready(s);
		break;
	case BOX_PAUSED:
		sandbox_set_status(s, SBX_PAUSED);
		/* Paused because the host's disk is full, not by order. */
		if (words[0])
			sandbox_set_error(s, words);
		break;
	case BOX_GONE:
		sandbox_down(s, words);
		break;
	default:
		break;
	}
}

/* A box that was taken over must not push what others did out of the journal. */
static bool too_many_events(struct boxlink *k)
{
	uint64_t now = now_ns();

	if (!k->nevents || now - k->events_since_ns > 60ull * 1000000000u) {
		k->events_since_ns = now;
		k->nevents = 0;
	}
	if (++k->nevents == EVENTS_A_MINUTE)
		log_warn("sandbox=%s uuid=%s event=box-tells-too-much next=ignored-for-a-minute", k->s->name,
			 k->s->uuid);
	return k->nevents >= EVENTS_A_MINUTE;
}

/* The event's object, put by the caller, and its name, which lives as long; NULL: it is none. */
static struct json_object *parse_event(struct msg *m, const char **ret_event)
{
	struct json_object *o = NULL;
	struct err e;

	*ret_event = NULL;
	if (m->len > 4096 || json_parse((const char *)m->data, m->len, &o, &e) < 0)
		return NULL;
	if (json_object_is_type(o, json_type_object) && json_get_str(o, "event", ret_event, NULL) == 0 && *ret_event)
		return o;
	json_object_put(o);
	return NULL;
}

static void on_machine_event(struct machine *m, struct msg *msg)
{
	const char *event;
	AUTO_JSON *o = parse_event(msg, &event);
	bool warm = false;

	if (!o || !m->on_held || strcmp(event, "held") != 0)
		return;
	json_get_bool(o, "warm", &warm, NULL);
	m->on_held(m->arg, m, warm); /* may free it, and the link */
}

static void on_event(struct sandbox *s, struct msg *m)
{
	struct json_object *extra;
	const char *event;
	AUTO_JSON *o = parse_event(m, &event);

	if (!o)
		return;
	/* Its members may not pass for ours: they go below one of their own. */
	extra = json_object_new_object();
	if (extra)
		json_object_object_add(extra, "box", json_object_get(o));
	journal_add(s->reg, s, NULL, "box", extra);
}

static void adopt(struct sandbox *s, const struct box_hello *h)
{
	bool queue_runs = h->state != BOX_READY && h->state != BOX_PAUSED;

	for (struct execution *x = s->first_exec; x; x = x->next) {
		if (x->state == EXEC_DONE)
			continue;
		x->sent = x->n <= h->last_exec;
		/* What the box has runs: those of slots at once, of the queue the first. */
		if (!x->sent || (!x->beside && queue_runs))
			continue;
		exec_set_state(s, x, EXEC_RUNNING);
		queue_runs |= !x->beside;
	}
	if (h->guest[0])
		keep_guest(s, h->guest);
	/* What of live input the box still takes, it says itself. */
	for (struct slot *t = s->slots; t; t = t->next)
		t->credit = 0;
	loop_del(s->reg->loop, &s->adopt_timer);
	s->epoch++; /* handles of the daemon before us are unknown to us */
	if (h->state == BOX_READY || h->state == BOX_PAUSED)
		sandbox_set_status(s, h->state == BOX_READY ? SBX_READY : SBX_PAUSED);
	relink_adopted(s);
	net_adopted(s);
	view_adopted(s);
	log_info("sandbox=%s uuid=%s event=adopted last_exec=%" PRIu64 " open=%zu", s->name, s->uuid, h->last_exec,
		 h->nopen);
}

/* The first message of a connection. A box that comes back is believed only for the sandbox whose uid it has. */
static int on_hello(struct boxlink *k, struct msg *m)
{
	struct box_hello h = { 0 };
	struct err e = { 0 };
	struct sandbox *s = k->s;
	int r = box_hello_parse(m->data, m->len, &h, &e);

	if (r < 0) {
		log_warn("event=bad-hello peer_uid=%u error=\"%s\" next=closed", k->peer_uid, e.msg);
		return r;
	}
	if (!s && !k->m) {
		s = registry_by_uuid(k->reg, h.uuid);
		if (!s || s->link || s->start || s->down_pending || !s->box_uid || s->box_uid != k->peer_uid) {
			log_warn("event=unknown-box peer_uid=%u next=closed", k->peer_uid);
			box_hello_fini(&h);
			return -EPERM;
		}
		for (struct boxlink **at = &k->reg->greeting; *at; at = &(*at)->next) {
			if (*at == k) {
				*at = k->next;
				break;
			}
		}
		k->s = sandbox_ref(s);
		s->link = k;
		adopt(s, &h);
		exec_send_all(s);
		fs_send_waiting(s);
	}
	if (!s) {
		box_hello_fini(&h);
		return 0;
	}
	/* What it did not know of and cannot end any more: accepted by a box, not open in it, without a record. */
	for (struct execution *x = s->first_exec; x; x = x->next) {
		bool open = false;

		if (x->state == EXEC_DONE || !x->sent || x->n > h.last_exec)
			continue;
		for (size_t i = 0; i < h.nopen; i++)
			open |= h.open[i] == x->n;
		if (!open && exec_has_record(s, x->n))
			exec_set_state(s, x, EXEC_DONE);
	}
	box_hello_fini(&h);
	return 0;
}

static void on_gone(void *arg, int reason)
{
	struct boxlink *k = arg;

	if (k->s && k->s->link == k) {
		char words[128];

		snprintf(words, sizeof(words), "the machine was lost: its box ended (%s)", strerror(-reason));
		sandbox_down(k->s, words);
		return; /* freed */
	}
	if (k->m) {
		struct machine *m = k->m;

		m->link = NULL;
		k->m = NULL; /* boxlink_free() would look for it among those that greet */
		/* First, for it may free the machine: the calls that end now find that told. */
		m->fn(m->arg, m, -ENOTCONN, "its box ended");
		boxlink_end(k);
		return;
	}
	boxlink_free(k);
}

static void on_msg(void *arg, struct msg *m)
{
	struct boxlink *k = arg;
	struct wire_rd r;

	if (m->type == BOX_HELLO) {
		if (on_hello(k, m) < 0)
			on_gone(k, -EBADMSG);
		return;
	}
	if (!k->s && k->m && m->type == BOX_REPLY) {
		calls_reply(&k->calls, m);
		return;
	}
	if (!k->s && k->m && m->type == BOX_EVENT) {
		on_machine_event(k->m, m);
		return;
	}
	if (!k->s) {
		/* A machine that nobody has may say how it is, but the end of it comes by the connection's. */
		if (!k->m)
			on_gone(k, -EBADMSG);
		return;
	}
	wire_rd_init(&r, m->data, m->len);
	switch (m->type) {
	case BOX_REPLY:
		calls_reply(&k->calls, m);
		break;
	case BOX_STATE:
		on_state(k->s, &r);
		break;
	case BOX_PROGRESS:
		on_progress(k->s, &r);
		break;
	case BOX_DONE:
		on_done(k->s, &r);
		break;
	case BOX_STDIN_CREDIT: {
		uint64_t n = wire_u64(&r);
		uint32_t bytes = wire_u32(&r);

		if (wire_done(&r) == 0)
			slot_credit(k->s, n, bytes);
		break;
	}
	case BOX_EVENT:
		if (!too_many_events(k))
			on_event(k->s, m);
		break;
	default: /* of a newer box: what it cannot do without is in its hello */
		break;
	}
}

int boxlink_new(struct registry *r, struct sandbox *s, struct machine *m, int fd, struct boxlink **ret, struct err *e)
{
	static const struct msgconn_ops ops = { on_msg, on_gone };
	struct boxlink *k = calloc(1, sizeof(*k));
	int code;

	if (!k) {
		fd_close(&fd);
		return err_set(e, -ENOMEM, "no memory");
	}
	k->reg = r;
	calls_init(&k->calls, "the box");
	k->s = s ? sandbox_ref(s) : NULL;
	k->m = m;
	code = msgconn_new(r->loop, fd, QUEUE_BYTES_MAX, &ops, k, &k->conn);
	if (code < 0) {
		sandbox_unref(k->s);
		free(k);
		return err_set(e, code, "a connection to a box: %s", strerror(-code));
	}
	if (!s && !m) {
		k->next = r->greeting;
		r->greeting = k;
	}
	*ret = k;
	return 0;
}

/* -- boxes that come back ------------------------------------------------------------------------------------------ */

static void on_connect(void *arg, uint32_t events);

static void listen_again(void *arg)
{
	struct registry *r = arg;

	if (loop_add(r->loop, r->listen_fd, EPOLLIN, on_connect, r, &r->listen_id) < 0)
		log_err("event=listen-failed next=boxes-cannot-come-back");
}

static void on_connect(void *arg, uint32_t events)
{
	struct registry *r = arg;
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct boxlink *k = NULL;
	struct err e;
	unsigned n = 0;
	int fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	/* Out of descriptors: the socket stays readable, so look away for a while instead of spinning. */
	if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
		loop_del(r->loop, &r->listen_id);
		loop_timer(r->loop, now_ns() + ACCEPT_AGAIN_NS, listen_again, r, &r->listen_timer);
	}
	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
		fd_close(&fd);
		return;
	}
	/* Whoever is refused comes again. One box may not keep the others out, or their machines would be lost. */
	for (k = r->greeting; k; k = k->next)
		n = k->peer_uid == cred.uid ? GREETINGS_MAX : n + 1;
	if (n >= GREETINGS_MAX) {
		fd_close(&fd);
		return;
	}
	boxlink_new(r, NULL, NULL, fd, &k, &e);
	if (k)
		k->peer_uid = cred.uid;
}

int boxlink_listen(struct registry *r, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	AUTO_FD dir = openat(r->store_fd, "run", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int code;

	if (dir < 0 || fd < 0)
		return err_set(e, -errno, "store: run/: %s", strerror(errno));
	/* A store's path may be longer than a socket's address: the descriptor's is short. */
	snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/daemon.sock", dir);
	unlinkat(dir, "daemon.sock", 0);
	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || fchmodat(dir, "daemon.sock", 0660, 0) < 0 ||
	    listen(fd, 64) < 0)
		return err_set(e, -errno, "store: run/daemon.sock: %s", strerror(errno));
	code = loop_add(r->loop, fd, EPOLLIN, on_connect, r, &r->listen_id);
	if (code < 0)
		return err_set(e, code, "store: run/daemon.sock: %s", strerror(-code));
	r->listen_fd = take_fd(&fd);
	return 0;
}

/* After an orderly end nobody is to find a socket that nobody listens on. A killed daemon leaves it; its successor
 * replaces it. */
void boxlink_unlisten(struct registry *r)
{
	if (r->listen_fd < 0)
		return;
	loop_del(r->loop, &r->listen_id);
	loop_del(r->loop, &r->listen_timer);
	fd_close(&r->listen_fd);
	unlinkat(r->store_fd, "run/daemon.sock", 0);
}
