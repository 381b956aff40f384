/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A call is an entry of q->calls, oldest first, from qmp_call() until its answer has come. Its text waits in the entry
 * until the socket took all of it; entries are sent in order, so the first with unsent text is the only one that may be
 * half out. The answer is matched by its id. An overdue call has lost its function but keeps its place: the answer may
 * still come and must not look like one that nobody asked for.
 *
 * One timer, for the earliest deadline. Callbacks may free the connection: `busy` counts the frames of this file that
 * are on the stack, and qmp_free() then only marks it.
 */
#include "vmm/qmp.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <fcntl.h>

#include "base/fd.h"
#include "base/json.h"

#define READ_CHUNK 4096

struct call {
	struct call *next;
	uint64_t id;
	uint64_t deadline_ns;
	char *text; /* NULL once sent */
	size_t len, sent;
	int fd; /* goes with the first byte; -1: none */
	bool overdue;
	qmp_done_fn *fn;
	void *arg;
};

struct qmp {
	struct loop *loop;
	int fd; /* -1: gone */
	loop_id src, timer;
	struct qmp_parser parser;
	enum { QMP_GREETING, QMP_NEGOTIATING, QMP_READY } state;
	struct qmp_ops ops;
	void *arg;
	struct call *calls;
	size_t ncalls;
	uint64_t last_id;
	unsigned int busy;
	bool freed;
};

static struct call *call_free(struct call *c)
{
	if (!c)
		return NULL;
	fd_close(&c->fd);
	free(c->text);
	free(c);
	return NULL;
}

static void release(struct qmp *q)
{
	struct call *c;

	if (q->busy > 0 || !q->freed)
		return;
	while ((c = q->calls)) {
		q->calls = c->next;
		call_free(c);
	}
	qmp_parser_fini(&q->parser);
	free(q);
}

/* The end, seen from here: the descriptor closes, every call is answered, the owner is told. */
static void fail(struct qmp *q, int reason)
{
	struct err e = { 0 };
	struct call *c;

	if (q->fd < 0)
		return;
	loop_del(q->loop, &q->src);
	loop_del(q->loop, &q->timer);
	fd_close(&q->fd);
	q->busy++;
	err_set(&e, -EPIPE, "monitor: the engine is gone");
	while (!q->freed && (c = q->calls)) {
		q->calls = c->next;
		q->ncalls--;
		if (c->fn)
			c->fn(c->arg, -EPIPE, NULL, &e);
		call_free(c);
	}
	if (!q->freed && q->ops.on_gone)
		q->ops.on_gone(q->arg, reason);
	q->busy--;
}

/* -- sending ----------------------------------------------------------------------------------- */

static ssize_t send_some(int sock, const char *text, size_t len, int fd)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)text, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *h;

		m.msg_control = control.space;
		m.msg_controllen = sizeof(control.space);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &fd, sizeof(fd));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Send what waits. Before the negotiation is over only qmp_capabilities, the first call, goes out. 0 or -errno. */
static int flush(struct qmp *q)
{
	bool more = false;

	if (q->state == QMP_GREETING)
		return 0;
	for (struct call *c = q->calls; c && !more; c = c->next) {
		if (!c->text)
			continue;
		if (q->state == QMP_NEGOTIATING && c != q->calls)
			break;
		while (c->sent < c->len) {
			ssize_t n = send_some(q->fd, c->text + c->sent, c->len - c->sent, c->fd);

			if (n < 0 && errno == EINTR)
				continue;
			if (n < 0 && errno != EAGAIN)
				return -errno;
			if (n < 0) {
				more = true;
				break;
			}
			fd_close(&c->fd);
			c->sent += (size_t)n;
		}
		if (!more) {
			free(c->text);
			c->text = NULL;
		}
	}
	return loop_mod(q->loop, q->src, EPOLLIN | (more ? EPOLLOUT : 0));
}

/* -- deadlines --------------------------------------------------------------------------------- */

static void on_timer(void *arg);

static void arm(struct qmp *q)
{
	uint64_t first = UINT64_MAX;

	loop_del(q->loop, &q->timer);
	for (struct call *c = q->calls; c; c = c->next)
		if (!c->overdue && c->deadline_ns < first)
			first = c->deadline_ns;
	/* Without memory for a timer a call has no deadline; the box's own deadlines still hold. */
	if (first != UINT64_MAX)
		loop_timer(q->loop, first, on_timer, q, &q->timer);
}

static void on_timer(void *arg)
{
	struct qmp *q = arg;
	struct err e = { 0 };
	struct call *c;

	q->timer = 0;
	q->busy++;
	err_set(&e, -ETIMEDOUT, "monitor: no answer in time");
again:
	for (c = q->calls; c && !q->freed && q->fd >= 0; c = c->next) {
		qmp_done_fn *fn = c->fn;

		if (c->overdue || c->deadline_ns > now_ns())
			continue;
		c->overdue = true;
		c->fn = NULL;
		if (fn)
			fn(c->arg, -ETIMEDOUT, NULL, &e);
		goto again; /* the list may be another one now */
	}
	if (!q->freed && q->fd >= 0)
		arm(q);
	q->busy--;
	release(q);
}

/* -- receiving --------------------------------------------------------------------------------- */

static int start_call(struct qmp *q, const char *command, const char *args, int fd, uint32_t timeout_ms,
		      qmp_done_fn *fn, void *arg);

static void on_capabilities(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct qmp *q = arg;

	(void)ret;
	(void)e;
	if (code == -EPIPE)
		return;
	if (code < 0) {
		fail(q, code == -ETIMEDOUT ? code : -EBADMSG);
		return;
	}
	q->state = QMP_READY;
	flush(q); /* calls that came too early */
	if (q->ops.on_ready)
		q->ops.on_ready(q->arg);
}

static int on_greeting(struct qmp *q, struct json_object *o)
{
	if (!json_object_object_get_ex(o, "QMP", NULL))
		return -EBADMSG;
	q->state = QMP_NEGOTIATING;
	return start_call(q, "qmp_capabilities", NULL, -1, 10000, on_capabilities, q);
}

static int on_event(struct qmp *q, struct json_object *o)
{
	struct json_object *data = NULL;
	const char *name = NULL;

	if (json_get_str(o, "event", &name, NULL) < 0 || json_get_obj(o, "data", json_type_object, &data, NULL) < 0)
		return -EBADMSG;
	if (q->ops.on_event)
		q->ops.on_event(q->arg, name, data);
	return 0;
}

static int on_answer(struct qmp *q, struct json_object *o)
{
	struct json_object *ret = NULL, *error = NULL;
	struct call **at = &q->calls, *c;
	struct err e = { 0 };
	const char *words = "refused";
	uint64_t id = 0;
	int code = 0;

	if (json_get_u64(o, "id", 1, UINT64_MAX, &id, NULL) < 0 || id == 0)
		return -EBADMSG;
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	c = *at;
	if (!c || c->text)
		return -EBADMSG;
	if (json_object_object_get_ex(o, "error", &error)) {
		json_get_str(error, "desc", &words, NULL);
		code = err_set(&e, -EIO, "the engine refused: %s", words);
	} else if (!json_object_object_get_ex(o, "return", &ret)) {
		return -EBADMSG;
	}
	*at = c->next;
	q->ncalls--;
	if (c->fn)
		c->fn(c->arg, code, ret, &e);
	call_free(c);
	if (!q->freed && q->fd >= 0)
		arm(q);
	return 0;
}

/* One object: the greeting, an answer or an event. -ECANCELED: the connection ended inside a callback. */
static int on_object(void *arg, struct json_object *o)
{
	struct qmp *q = arg;
	int r;

	if (q->state == QMP_GREETING)
		r = on_greeting(q, o);
	else if (json_object_object_get_ex(o, "event", NULL))
		r = on_event(q, o);
	else
		r = on_answer(q, o);
	return r == 0 && (q->freed || q->fd < 0) ? -ECANCELED : r;
}

static void on_socket(void *arg, uint32_t events)
{
	struct qmp *q = arg;
	char chunk[READ_CHUNK];
	ssize_t n;
	int r = 0;

	q->busy++;
	if (events & EPOLLOUT)
		r = flush(q);
	if (r == 0 && (events & ~(uint32_t)EPOLLOUT)) {
		n = recv(q->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
		if (n > 0)
			r = qmp_parser_feed(&q->parser, chunk, (size_t)n, on_object, q);
		else if (n == 0)
			r = -ECONNRESET;
		else if (errno != EAGAIN && errno != EINTR)
			r = -errno;
	}
	if (r < 0 && r != -ECANCELED && !q->freed)
		fail(q, r);
	q->busy--;
	release(q);
}

/* -- the interface ----------------------------------------------------------------------------- */

int qmp_new(struct loop *l, int fd, const struct qmp_ops *ops, void *arg, struct qmp **ret)
{
	struct qmp *q = calloc(1, sizeof(*q));
	int r;

	if (!q) {
		fd_close(&fd);
		return -ENOMEM;
	}
	q->loop = l;
	q->fd = fd;
	q->ops = *ops;
	q->arg = arg;
	qmp_parser_init(&q->parser);
	r = loop_add(l, fd, EPOLLIN, on_socket, q, &q->src);
	if (r < 0) {
		qmp_free(q);
		return r;
	}
	*ret = q;
	return 0;
}

struct qmp *qmp_free(struct qmp *q)
{
	if (!q || q->freed)
		return NULL;
	loop_del(q->loop, &q->src);
	loop_del(q->loop, &q->timer);
	fd_close(&q->fd);
	q->freed = true;
	release(q);
	return NULL;
}

static char *call_text(const char *command, const char *args, uint64_t id)
{
	char *text;

	if (asprintf(&text, "{\"execute\":\"%s\",\"id\":%llu%s%s}\n", command, (unsigned long long)id,
		     args ? ",\"arguments\":" : "", args ? args : "") < 0)
		return NULL;
	return text;
}

static int start_call(struct qmp *q, const char *command, const char *args, int fd, uint32_t timeout_ms,
		      qmp_done_fn *fn, void *arg)
{
	struct call *c = calloc(1, sizeof(*c)), **at = &q->calls;

	if (!c)
		return -ENOMEM;
	*c = (struct call){ .id = ++q->last_id, .fd = -1, .fn = fn, .arg = arg };
	c->deadline_ns = now_ns() + timeout_ms * 1000000ull;
	c->text = call_text(command, args, c->id);
	if (fd >= 0)
		c->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (!c->text || (fd >= 0 && c->fd < 0)) {
		call_free(c);
		return -ENOMEM;
	}
	c->len = strlen(c->text);
	/* The negotiation stands before what was asked for too early. */
	if (q->state != QMP_NEGOTIATING)
		while (*at)
			at = &(*at)->next;
	c->next = *at;
	*at = c;
	q->ncalls++;
	arm(q);
	/* A socket that fails is found by the reader too, which then ends all calls from the loop, not inside their
	 * making. */
	flush(q);
	return 0;
}

int qmp_call(struct qmp *q, const char *command, const char *args, int fd, uint32_t timeout_ms, qmp_done_fn *fn,
	     void *arg)
{
	if (q->fd < 0)
		return -EPIPE;
	if (q->ncalls >= QMP_CALLS_MAX)
		return -EBUSY;
	return start_call(q, command, args, fd, timeout_ms, fn, arg);
}
