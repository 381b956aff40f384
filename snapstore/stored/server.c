/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's side: the socket, its one client, the list of requests, progress, the end. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/fd.h"
#include "snapstore/stored/stored_priv.h"

#define REQUESTS_MAX 64u
#define QUEUE_MAX    (8u * 1024 * 1024)
#define PROGRESS_NS  100000000ull
#define OUT_MAX	     (MSG_MAX - 1024) /* what is left for the code and the words */

struct stored {
	struct loop *loop;
	struct snap *snap;
	struct pool *pool; /* a thread a lane */
	bool busy[LANES];  /* something of the lane runs */
	bool stopping;
	struct refresh {
		struct pool_job job;
		struct stored *owner;
		bool wanted;
	} refresh; /* of the quick lane */
	struct stored_params p;
	struct msgconn *conn; /* NULL: nobody */
	uint64_t client;      /* counts connections */
	loop_id listen_id, orphan_id, progress_id;
	struct request *requests; /* not answered, oldest first */
	unsigned nrequests;
	bool quit;
	loop_fn *on_end;
	void *arg;
};

static void request_free(struct request *q)
{
	ingest_fini(&q->in);
	buf_fini(&q->out);
	fd_close(&q->out_fd);
	free(q);
}

/* -- answers ------------------------------------------------------------------------------------------------ */

static void orphan(struct stored *st);

static void reply(struct stored *st, uint32_t id, int code, const char *words, const struct buf *out, int fd)
{
	struct buf b;
	int r;

	buf_init(&b, MSG_MAX);
	r = wire_put_u32(&b, (uint32_t)code);
	if (r == 0)
		r = wire_put_str(&b, words);
	if (r == 0 && code == 0 && out)
		r = buf_add(&b, out->data, out->len);
	if (r == 0 && st->conn)
		r = msgconn_send(st->conn, STORE_REPLY, id, b.data, b.len, &fd, fd >= 0);
	buf_fini(&b);
	/* A client that does not take its answers, or that we cannot answer: it has to come and ask again. */
	if (r < 0 && st->conn) {
		st->conn = msgconn_free(st->conn);
		orphan(st);
	}
}

static void kick(struct stored *st);

static void end_when_idle(struct stored *st)
{
	if (st->quit && !st->requests && st->on_end) {
		loop_fn *fn = st->on_end;

		st->on_end = NULL;
		fn(st->arg);
	}
}

static void on_done(struct pool_job *job)
{
	struct request *q = (struct request *)job; /* its first member */
	struct stored *st = q->owner;
	struct request **at = &st->requests;

	while (*at != q)
		at = &(*at)->next;
	*at = q->next;
	st->nrequests--;
	if (st->conn && q->client == st->client)
		reply(st, q->id, q->code, q->code ? q->err.msg : "", &q->out, q->code ? -1 : q->out_fd);
	st->busy[q->lane] = false;
	/* The reader's descriptors hold what gc has removed. */
	st->refresh.wanted |= q->type == STORE_GC && st->p.reader;
	request_free(q);
	kick(st);
	if (!st->conn)
		orphan(st);
	end_when_idle(st);
}

static void run(struct pool_job *job)
{
	struct request *q = (struct request *)job;

	atomic_store(&q->running, true);
	q->code = request_run(q->owner->snap, q);
	atomic_store(&q->running, false);
}

static void run_quick(struct pool_job *job)
{
	struct request *q = (struct request *)job;
	struct snap *s = q->owner->p.reader;

	q->code = snap_refresh(s, &q->err); /* the worker may have written since */
	if (q->code == 0)
		q->code = request_run(s, q);
}

static void refresh_run(struct pool_job *job)
{
	struct err e;

	snap_refresh(((struct refresh *)job)->owner->p.reader, &e); /* the next request tells what is wrong */
}

static void refresh_done(struct pool_job *job)
{
	struct stored *st = ((struct refresh *)job)->owner;

	st->busy[QUICK] = false;
	kick(st);
}

/* What somebody waits for who starts a machine, or the daemon: it does not stand in line behind hours of verify. Unless
 * what it asks about is being changed by one that was asked before. */
static bool is_quick(const struct stored *st, const struct request *q)
{
	if (!st->p.reader || (q->type != STORE_STATE && q->type != STORE_MANIFEST && q->type != STORE_LIST))
		return false;
	for (const struct request *o = st->requests; o && q->type != STORE_LIST; o = o->next) {
		if ((o->type == STORE_INGEST && !strcmp(o->in.uuid, q->uuid)) ||
		    (o->type == STORE_REMOVE && !strcmp(o->uuid, q->uuid)))
			return false;
	}
	return true;
}

/* The next of each lane that is free: the pool never holds more than it has threads. */
static void kick(struct stored *st)
{
	if (st->stopping)
		return;
	if (st->refresh.wanted && !st->busy[QUICK]) {
		st->refresh = (struct refresh){ .job = { .run = refresh_run, .done = refresh_done }, .owner = st };
		st->busy[QUICK] = pool_submit(st->pool, &st->refresh.job) == 0;
	}
	for (struct request *q = st->requests; q; q = q->next) {
		if (q->submitted || st->busy[q->lane])
			continue;
		q->job.run = q->lane == QUICK ? run_quick : run;
		q->submitted = st->busy[q->lane] = pool_submit(st->pool, &q->job) == 0;
	}
}

/* -- progress ----------------------------------------------------------------------------------------------- */

static void on_progress(void *arg)
{
	struct stored *st = arg;
	uint8_t data[16];
	struct buf b;

	st->progress_id = 0;
	for (struct request *q = st->requests; q && st->conn; q = q->next) {
		uint64_t done = atomic_load(&q->done), total = atomic_load(&q->total);

		if (q->client != st->client || !atomic_load(&q->running) || !total || done == q->told)
			continue;
		q->told = done;
		buf_init(&b, sizeof(data));
		if (wire_put_u64(&b, done) == 0 && wire_put_u64(&b, total) == 0)
			msgconn_send(st->conn, STORE_PROGRESS, q->id, b.data, b.len, NULL, 0);
		buf_fini(&b);
	}
	if (st->requests)
		loop_timer(st->loop, now_ns() + PROGRESS_NS, on_progress, st, &st->progress_id);
}

/* -- requests ----------------------------------------------------------------------------------------------- */

static void on_cancel(struct stored *st, struct msg *m)
{
	struct wire_rd rd;
	uint32_t id;

	wire_rd_init(&rd, m->data, m->len);
	id = wire_u32(&rd);
	if (wire_done(&rd) < 0)
		return;
	for (struct request *q = st->requests; q; q = q->next)
		if (q->client == st->client && q->id == id)
			atomic_store(&q->cancel, true);
}

static int parse(struct request *q, struct msg *m)
{
	struct wire_rd rd;

	if (m->type == STORE_INGEST)
		return ingest_parse(m, &q->in, &q->err);
	if (m->type >= STORE_TYPE_COUNT || m->type <= STORE_INGEST || m->type == STORE_PROGRESS)
		return err_set(&q->err, -EBADMSG, "no such request: %u", m->type);
	wire_rd_init(&rd, m->data, m->len);
	if (m->type == STORE_VERIFY || m->type == STORE_REMOVE || m->type == STORE_MANIFEST || m->type == STORE_STATE)
		wire_str(&rd, q->uuid, sizeof(q->uuid));
	if (wire_done(&rd) < 0)
		return err_set(&q->err, -EBADMSG, "a message of another shape");
	return 0;
}

static void on_request(struct stored *st, struct msg *m)
{
	struct request *q = calloc(1, sizeof(*q)), **at = &st->requests;
	int r;

	if (!q) {
		reply(st, m->id, -ENOMEM, "no memory", NULL, -1);
		return;
	}
	q->job.done = on_done;
	q->owner = st;
	q->client = st->client;
	q->id = m->id;
	q->type = m->type;
	q->out_fd = -1;
	q->told = UINT64_MAX;
	ingest_init(&q->in);
	buf_init(&q->out, OUT_MAX);
	r = parse(q, m);
	if (r == 0 && st->quit)
		r = err_set(&q->err, -ESHUTDOWN, "the store is ending");
	if (r == 0 && st->nrequests == REQUESTS_MAX)
		r = err_set(&q->err, -EBUSY, "%u requests are waiting", st->nrequests);
	if (r < 0) {
		reply(st, m->id, r, q->err.msg, NULL, -1);
		request_free(q);
		return;
	}
	q->lane = is_quick(st, q) ? QUICK : SLOW;
	while (*at)
		at = &(*at)->next;
	*at = q;
	st->nrequests++;
	kick(st);
	if (!st->progress_id)
		loop_timer(st->loop, now_ns() + PROGRESS_NS, on_progress, st, &st->progress_id);
}

/* What runs and can be done again is stopped; an ingest is finished, for its snapshot has nobody else. */
static void on_quit(struct stored *st, uint32_t id)
{
	st->quit = true;
	for (struct request *q = st->requests; q; q = q->next)
		if (q->type == STORE_VERIFY || q->type == STORE_GC)
			atomic_store(&q->cancel, true);
	if (id)
		reply(st, id, 0, "", NULL, -1);
	end_when_idle(st);
}

static void on_msg(void *arg, struct msg *m)
{
	struct stored *st = arg;

	if (m->type == STORE_CANCEL)
		on_cancel(st, m);
	else if (m->type == STORE_QUIT)
		on_quit(st, m->id);
	else if (m->type == STORE_PING)
		reply(st, m->id, 0, "", NULL, -1);
	else
		on_request(st, m);
}

/* -- the client --------------------------------------------------------------------------------------------- */

static void on_orphan(void *arg)
{
	struct stored *st = arg;

	st->orphan_id = 0;
	if (!st->conn && !st->requests)
		on_quit(st, 0);
}

/* Nobody is there: how long the end is away counts from now. */
static void orphan(struct stored *st)
{
	loop_del(st->loop, &st->orphan_id);
	loop_timer(st->loop, now_ns() + st->p.orphan_ns, on_orphan, st, &st->orphan_id);
}

static void on_gone(void *arg, int reason)
{
	struct stored *st = arg;

	(void)reason;
	st->conn = msgconn_free(st->conn);
	orphan(st);
}

static void on_listen(void *arg, uint32_t events)
{
	static const struct msgconn_ops ops = { on_msg, on_gone };
	struct stored *st = arg;
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int fd = accept4(st->p.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.uid != st->p.daemon_uid) {
		fd_close(&fd);
		return;
	}
	st->conn = msgconn_free(st->conn);
	st->client++;
	if (msgconn_new(st->loop, fd, QUEUE_MAX, &ops, st, &st->conn) < 0)
		st->conn = NULL;
	else
		loop_del(st->loop, &st->orphan_id);
}

int stored_new(struct loop *l, struct snap *s, const struct stored_params *p, loop_fn *on_end, void *arg,
	       struct stored **ret, struct err *e)
{
	struct stored *st = calloc(1, sizeof(*st));
	int r;

	if (!st)
		return err_set(e, -ENOMEM, "store: no memory");
	*st = (struct stored){ .loop = l, .snap = s, .p = *p, .on_end = on_end, .arg = arg };
	r = fd_set_nonblock(st->p.listen_fd, true);
	if (r == 0)
		r = pool_new(l, LANES, 2 * LANES, &st->pool);
	if (r == 0)
		r = loop_add(l, st->p.listen_fd, EPOLLIN, on_listen, st, &st->listen_id);
	if (r < 0) {
		err_set(e, r, "store: %s", err_name(r));
		stored_free(st);
		return r;
	}
	orphan(st);
	*ret = st;
	return 0;
}

struct stored *stored_free(struct stored *st)
{
	if (!st)
		return NULL;
	st->on_end = NULL;
	st->stopping = true;
	for (struct request *q = st->requests; q; q = q->next)
		atomic_store(&q->cancel, true);
	pool_free(st->pool);
	while (st->requests) { /* those that were not submitted */
		struct request *q = st->requests;

		st->requests = q->next;
		request_free(q);
	}
	msgconn_free(st->conn);
	loop_del(st->loop, &st->progress_id);
	loop_del(st->loop, &st->orphan_id);
	loop_del(st->loop, &st->listen_id);
	fd_close(&st->p.listen_fd);
	free(st);
	return NULL;
}
