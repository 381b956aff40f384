/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * One timer: the next try while WAITING, the end of patience while GREETING, the next look while UP and calls wait.
 * Every try is noted, so that the delay before the next follows from the tries of the last minute alone: none of them,
 * 250 ms; some, 1 s; five, until the oldest is a minute ago. A connection that is taken up proves nothing (the kernel
 * queues it for a process that hangs, or that dies before it accepts), so UP begins with an answer. One that hangs is
 * killed before the next start; so is, for good measure, whatever no longer listens: two servers of one store must
 * never be.
 *
 * Nobody can tell from outside whether what takes long is slow or stuck. So it is asked something in between that it
 * answers from its loop, whatever its workers and its disk do: one that does not say that word hangs. And a worker that
 * is at it tells progress, so one that tells none for very long, while nothing else is answered, is stuck. */
#include "cruciblefs/domain/peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/log.h"

#define QUEUE_BYTES_MAX (8u * 1024 * 1024)
#define MINUTE_NS	60000000000ull
#define MS		1000000ull

enum state { WAITING, KILLING, SPAWNING, GREETING, UP, STOPPED };

struct peer {
	const struct peer_kind *kind;
	struct peer_setup setup;
	struct peer_ops ops;
	void *arg;
	enum state state;
	bool fresh;	/* the one we are connected to was started by us */
	bool must_kill; /* it hangs */
	struct msgconn *conn;
	struct calls calls;
	loop_id timer;
	uint32_t probe;				/* id of what was asked in between; 0: none waits */
	bool heard, moved;			/* since the last look: anything; an answer to somebody, or progress */
	unsigned silent, stalled;		/* looks in a row */
	uint64_t tries_ns[PEER_TRIES_A_MINUTE]; /* the newest ones */
	uint64_t ntries;
	char degraded[512];
};

/* -- tries ------------------------------------------------------------------------------------------------------- */

static void attempt(void *arg);

static void note_try(struct peer *p)
{
	p->tries_ns[p->ntries++ % PEER_TRIES_A_MINUTE] = now_ns();
}

static uint64_t next_try_ns(const struct peer *p, unsigned *ret_recent)
{
	uint64_t now = now_ns(), oldest = now;
	unsigned recent = 0;

	for (size_t i = 0; i < PEER_TRIES_A_MINUTE && i < p->ntries; i++) {
		if (now - p->tries_ns[i] >= MINUTE_NS)
			continue;
		recent++;
		oldest = p->tries_ns[i] < oldest ? p->tries_ns[i] : oldest;
	}
	*ret_recent = recent;
	if (recent >= PEER_TRIES_A_MINUTE)
		return oldest + MINUTE_NS;
	return now + (recent > 1 ? PEER_DELAY_MS : PEER_FIRST_DELAY_MS) * MS;
}

/* There is none, for this reason. Try again later. */
static void wait_and_try(struct peer *p, const char *words)
{
	unsigned recent;
	uint64_t at = next_try_ns(p, &recent);
	char quoted[sizeof(p->degraded) + 64];

	loop_del(p->setup.loop, &p->timer);
	p->state = WAITING;
	if (recent >= PEER_TRIES_A_MINUTE)
		snprintf(p->degraded, sizeof(p->degraded),
			 "%s: failed %u times in a minute, tried again in a minute: %.400s", p->kind->name, recent,
			 words);
	log_warn("peer=%s event=absent error=%s next=\"tried again in %" PRIu64 " ms\"", p->kind->name,
		 log_quote(words, quoted, sizeof(quoted)), (uint64_t)((at - now_ns()) / MS));
	if (loop_timer(p->setup.loop, at, attempt, p, &p->timer) < 0) {
		snprintf(p->degraded, sizeof(p->degraded), "%s: no memory to try again; restart the daemon",
			 p->kind->name);
		log_err("peer=%s event=given-up error=\"no memory\"", p->kind->name);
	}
}

static void fail(struct peer *p, int code, const char *step, const char *words)
{
	struct err e = { 0 };

	p->conn = msgconn_free(p->conn);
	calls_drop(&p->calls); /* the greeting, which nobody but us has sent */
	err_set(&e, code, "%s: %s: %s", p->kind->name, step, words[0] ? words : strerror(-code));
	wait_and_try(p, e.msg);
}

/* -- connected --------------------------------------------------------------------------------------------------- */

static void on_msg(void *arg, struct msg *m)
{
	struct peer *p = arg;

	p->heard = true;
	p->moved |= m->type == p->kind->reply ? m->id != p->probe : m->type == p->kind->progress;
	if (m->type == p->kind->reply)
		calls_reply(&p->calls, m);
	else if (p->state == UP && p->ops.on_msg)
		p->ops.on_msg(p->arg, m);
}

/* It was UP, or STOPPED, and is no more. */
static void lose(struct peer *p, const char *words)
{
	bool was_up = p->state == UP;

	p->conn = msgconn_free(p->conn);
	/* Before anybody is told, who may free us. */
	if (was_up)
		wait_and_try(p, words);
	if (calls_end(&p->calls, -EPIPE, words) && was_up)
		p->ops.on_lost(p->arg, words);
}

static void on_gone(void *arg, int reason)
{
	struct peer *p = arg;
	struct err e = { 0 };

	if (p->state == GREETING) {
		fail(p, reason, "it ended before it answered", "");
		return;
	}
	err_set(&e, -EPIPE, "%s is gone (%s)", p->kind->name, strerror(-reason));
	lose(p, e.msg);
}

/* -- does it live? ------------------------------------------------------------------------------------------------ */

static void look_later(struct peer *p);

static void on_probed(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct peer *p = arg;

	(void)code, (void)words, (void)r, (void)m; /* whatever it says, it lives */
	p->probe = 0;
}

static void on_look(void *arg)
{
	struct peer *p = arg;
	struct err e = { 0 };

	p->timer = 0;
	if (!p->calls.n)
		return;
	p->silent = p->heard ? 0 : p->silent + 1;
	p->stalled = p->moved || !p->kind->progress ? 0 : p->stalled + 1;
	p->heard = p->moved = false;
	if (p->silent >= PEER_SILENT_LOOKS)
		err_set(&e, -EPIPE, "%s hangs: it has said nothing for %u s; it is started again", p->kind->name,
			PEER_SILENT_LOOKS * PEER_LOOK_MS / 1000);
	else if (p->stalled >= PEER_STALLED_LOOKS)
		err_set(&e, -EPIPE, "%s is stuck: it got no further for %u s; it is started again", p->kind->name,
			PEER_STALLED_LOOKS * PEER_LOOK_MS / 1000);
	if (e.code) {
		p->must_kill = true;
		lose(p, e.msg);
		return;
	}
	if (p->silent && !p->probe)
		calls_send(&p->calls, p->conn, p->kind->probe ? p->kind->probe : p->kind->greeting, NULL, 0, NULL, 0,
			   on_probed, p, &p->probe);
	look_later(p);
}

/* Nobody looks while no call waits: an idle daemon sleeps. */
static void look_later(struct peer *p)
{
	if (!p->timer)
		loop_timer(p->setup.loop, now_ns() + PEER_LOOK_MS * MS, on_look, p, &p->timer);
}

static void on_greeted(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct peer *p = arg;

	(void)r, (void)m;
	/* Whatever it answers, it lives; but what is no answer does not come from one of ours. */
	if (code == -EBADMSG) {
		fail(p, code, "its first answer", words);
		return;
	}
	loop_del(p->setup.loop, &p->timer);
	p->probe = 0;
	p->state = UP;
	p->must_kill = false;
	p->degraded[0] = '\0';
	log_info("peer=%s event=up fresh=%d", p->kind->name, p->fresh);
	p->ops.on_up(p->arg, p->fresh);
}

static void on_no_greeting(void *arg)
{
	struct peer *p = arg;

	p->must_kill = true;
	fail(p, -ETIMEDOUT, "it does not answer", "");
}

static void greet(struct peer *p, int fd, bool fresh)
{
	static const struct msgconn_ops ops = { on_msg, on_gone };
	int r = msgconn_new(p->setup.loop, fd, QUEUE_BYTES_MAX, &ops, p, &p->conn);

	p->state = GREETING;
	p->fresh = fresh;
	if (r == 0)
		r = calls_send(&p->calls, p->conn, p->kind->greeting, NULL, 0, NULL, 0, on_greeted, p, NULL);
	if (r == 0 && !p->kind->patient)
		r = loop_timer(p->setup.loop, now_ns() + PEER_GREETING_MS * MS, on_no_greeting, p, &p->timer);
	if (r < 0)
		fail(p, r, "connection", "");
}

/* -- found or started -------------------------------------------------------------------------------------------- */

static void on_spawned(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct peer *p = arg;
	char unenforced[256];
	int fd = -1;

	(void)m; /* the pidfd: the connection's end tells as much */
	if (p->state != SPAWNING)
		return; /* told to end meanwhile; without a daemon it does so by itself */
	if (code < 0) {
		fail(p, code, "starting it", words);
		return;
	}
	wire_u32(r); /* pid, of the launcher's namespace */
	wire_str(r, unenforced, sizeof(unenforced));
	if (unenforced[0])
		log_warn("peer=%s event=started unenforced=%s next=continues", p->kind->name, unenforced);
	code = peer_connect(p->setup.store_fd, &p->kind->listen[0], &fd);
	if (code < 0)
		fail(p, code, "connecting to it", "");
	else
		greet(p, fd, true);
}

static int spawn(struct peer *p, struct err *e)
{
	struct launch_spawn sp = { .kind = p->kind->kind, .nofile = p->setup.nofile, .argc = p->setup.argc };
	int fds[1 + PEER_LISTEN_MAX] = { p->setup.log_fd, -1, -1 }, r = 0;
	struct buf b;

	snprintf(sp.uuid, sizeof(sp.uuid), "%s", p->kind->uuid);
	memcpy(sp.argv, p->setup.argv, p->setup.argc * sizeof(sp.argv[0]));
	for (size_t i = 0; i < p->kind->nlisten && r == 0; i++) {
		const struct peer_listen *l = &p->kind->listen[i];

		r = peer_listen_at(p->setup.store_fd, l, &fds[1 + i]);
		if (r < 0)
			err_set(e, r, "%s/%s: %s", l->dir, l->name, strerror(-r));
	}
	if (r == 0) {
		buf_init(&b, MSG_MAX);
		r = launch_spawn_encode(&sp, &b);
		if (r == 0)
			r = launcher_call(p->setup.launcher, LAUNCH_SPAWN, b.data, b.len, fds, 1 + p->kind->nlisten,
					  on_spawned, p);
		if (r < 0)
			err_set(e, r, "asking the launcher: %s", strerror(-r));
		buf_fini(&b);
	}
	/* Ours are closed, so that its death closes the last ones and whoever connects is refused. */
	for (size_t i = 0; i < PEER_LISTEN_MAX; i++)
		fd_close(&fds[1 + i]);
	return r;
}

static void on_killed(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct peer *p = arg;
	struct err e = { 0 };

	(void)r, (void)m;
	if (p->state != KILLING)
		return;
	if (code < 0) {
		fail(p, code, "ending the one before", words);
		return;
	}
	p->state = SPAWNING;
	p->must_kill = false;
	code = spawn(p, &e);
	if (code < 0)
		fail(p, code, "starting it", e.msg);
}

static void attempt(void *arg)
{
	uint8_t uuid[LAUNCH_UUID_BYTES];
	struct peer *p = arg;
	int fd = -1, r = -ECONNREFUSED;

	note_try(p);
	if (!p->must_kill)
		r = peer_connect(p->setup.store_fd, &p->kind->listen[0], &fd);
	if (r == 0) {
		greet(p, fd, false);
		return;
	}
	if (r != -ECONNREFUSED && r != -ENOENT) {
		p->must_kill |= r == -EAGAIN; /* it lets them wait: so it hangs, or the next try finds it well */
		fail(p, r, "connecting to it", "");
		return;
	}
	p->state = KILLING;
	launch_uuid_encode(p->kind->uuid, uuid);
	r = launcher_call(p->setup.launcher, LAUNCH_KILL, uuid, sizeof(uuid), NULL, 0, on_killed, p);
	if (r < 0)
		fail(p, r, "asking the launcher", "");
}

/* -- its face ------------------------------------------------------------------------------------------------------ */

int peer_new(const struct peer_kind *kind, const struct peer_setup *setup, const struct peer_ops *ops, void *arg,
	     struct peer **ret, struct err *e)
{
	struct peer *p;
	int r;

	if (setup->argc > LAUNCH_ARGS_MAX)
		return err_set(e, -E2BIG, "%s: %zu arguments", kind->name, setup->argc);
	p = calloc(1, sizeof(*p));
	if (!p)
		return err_set(e, -ENOMEM, "%s: no memory", kind->name);
	p->kind = kind;
	p->setup = *setup;
	p->ops = *ops;
	p->arg = arg;
	calls_init(&p->calls, kind->name);
	r = loop_timer(setup->loop, now_ns(), attempt, p, &p->timer);
	if (r < 0) {
		free(p);
		return err_set(e, r, "%s: no memory", kind->name);
	}
	*ret = p;
	return 0;
}

struct peer *peer_free(struct peer *p)
{
	if (!p)
		return NULL;
	loop_del(p->setup.loop, &p->timer);
	p->conn = msgconn_free(p->conn);
	if (p->state == GREETING)
		calls_drop(&p->calls);
	p->state = STOPPED;
	calls_end(&p->calls, -EPIPE, "the daemon ends");
	calls_drop(&p->calls); /* for a calls_end() that we are called from */
	free(p);
	return NULL;
}

bool peer_is_up(const struct peer *p)
{
	return p->state == UP;
}

const char *peer_degraded(const struct peer *p)
{
	return p->degraded;
}

int peer_call(struct peer *p, uint16_t type, const void *data, size_t len, const int *fds, size_t nfds, call_fn *fn,
	      void *arg, uint32_t *ret_id)
{
	bool first = !p->timer;
	int r;

	if (p->state != UP)
		return -ENOTCONN;
	r = calls_send(&p->calls, p->conn, type, data, len, fds, nfds, fn, arg, ret_id);
	if (r == 0 && first) {
		p->silent = p->stalled = 0;
		p->heard = p->moved = true; /* the first look comes up to one too early */
		look_later(p);
	}
	return r;
}

int peer_tell(struct peer *p, uint16_t type, const void *data, size_t len, const int *fds, size_t nfds)
{
	if (p->state != UP)
		return -ENOTCONN;
	return msgconn_send(p->conn, type, 0, data, len, fds, nfds);
}

void peer_quit(struct peer *p, uint16_t type)
{
	if (p->state == UP) {
		msgconn_send(p->conn, type, 0, NULL, 0, NULL, 0);
	} else if (p->state == GREETING) {
		p->conn = msgconn_free(p->conn);
		calls_drop(&p->calls);
	}
	loop_del(p->setup.loop, &p->timer);
	p->state = STOPPED;
}
