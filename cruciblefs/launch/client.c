/* SPDX-License-Identifier: Apache-2.0 */
/* crucibled's end of the launcher's socket. Replies are matched to their calls by id. A callback may free the launcher:
 * `busy` counts our frames on the stack, the last of them frees. */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "cruciblefs/launch/launch_priv.h"

#define QUEUE_MAX (4u << 20)

struct call {
	struct call *next;
	uint32_t id;
	launcher_fn *fn;
	void *arg;
};

struct launcher {
	struct msgconn *conn;
	struct launcher_ops ops;
	void *arg;
	uint32_t last_id;
	struct call *calls;
	unsigned int busy;
	bool freed;
};

/* The start of every reply. What follows is left in @r. */
static int parse_reply(struct wire_rd *r, char *words, size_t cap, int *ret_code)
{
	*ret_code = (int)wire_u32(r);
	wire_str(r, words, cap);
	return r->bad || *ret_code > 0 ? -EBADMSG : 0;
}

static void release(struct launcher *l)
{
	if (l->busy == 0 && l->freed)
		free(l);
}

static void on_reply(struct launcher *l, struct msg *m)
{
	struct call **at = &l->calls, *c;
	char words[sizeof(((struct err *)0)->msg)] = "";
	struct wire_rd r;
	int code;

	while (*at && (*at)->id != m->id)
		at = &(*at)->next;
	c = *at;
	if (!c)
		return;
	*at = c->next;
	wire_rd_init(&r, m->data, m->len);
	if (parse_reply(&r, words, sizeof(words), &code) < 0) {
		code = -EBADMSG;
		strcpy(words, "launcher: malformed reply");
	}
	if (c->fn)
		c->fn(c->arg, code, words, &r, m);
	free(c);
}

static void on_exit_event(struct launcher *l, struct msg *m)
{
	char uuid[LAUNCH_UUID_LEN + 1];
	struct wire_rd r;
	uint8_t kind;
	int status;

	wire_rd_init(&r, m->data, m->len);
	wire_str(&r, uuid, sizeof(uuid));
	kind = wire_u8(&r);
	status = (int)wire_u32(&r);
	if (wire_done(&r) == 0 && kind < LAUNCH_KIND_COUNT && launch_uuid_ok(uuid) && l->ops.on_exit)
		l->ops.on_exit(l->arg, uuid, (enum launch_kind)kind, status);
}

static void on_msg(void *arg, struct msg *m)
{
	struct launcher *l = arg;

	l->busy++;
	if (m->type == LAUNCH_REPLY)
		on_reply(l, m);
	else if (m->type == LAUNCH_EXIT_EVENT)
		on_exit_event(l, m);
	l->busy--;
	release(l);
}

static void on_gone(void *arg, int reason)
{
	struct launcher *l = arg;
	struct wire_rd nothing;
	struct msg none = { 0 };

	(void)reason;
	l->busy++;
	wire_rd_init(&nothing, NULL, 0);
	while (l->calls && !l->freed) {
		struct call *c = l->calls;

		l->calls = c->next;
		if (c->fn)
			c->fn(c->arg, -EPIPE, "the launcher is gone", &nothing, &none);
		free(c);
	}
	if (!l->freed && l->ops.on_gone)
		l->ops.on_gone(l->arg);
	l->busy--;
	release(l);
}

int launcher_new(struct loop *loop, int fd, const struct launcher_ops *ops, void *arg, struct launcher **ret)
{
	static const struct msgconn_ops conn_ops = { .on_msg = on_msg, .on_gone = on_gone };
	struct launcher *l = calloc(1, sizeof(*l));
	int r;

	if (!l) {
		fd_close(&fd);
		return -ENOMEM;
	}
	l->ops = *ops;
	l->arg = arg;
	r = msgconn_new(loop, fd, QUEUE_MAX, &conn_ops, l, &l->conn);
	if (r < 0) {
		free(l);
		return r;
	}
	*ret = l;
	return 0;
}

struct launcher *launcher_free(struct launcher *l)
{
	if (!l)
		return NULL;
	l->conn = msgconn_free(l->conn);
	while (l->calls) {
		struct call *c = l->calls;

		l->calls = c->next;
		free(c);
	}
	l->freed = true;
	release(l);
	return NULL;
}

int launcher_call(struct launcher *l, enum launch_type type, const void *data, size_t len, const int *fds, size_t nfds,
		  launcher_fn *fn, void *arg)
{
	struct call *c, **at = &l->calls;
	int r;

	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	if (++l->last_id == 0)
		l->last_id = 1;
	*c = (struct call){ .id = l->last_id, .fn = fn, .arg = arg };
	r = msgconn_send(l->conn, (uint16_t)type, c->id, data, len, fds, nfds);
	if (r < 0) {
		free(c);
		return r;
	}
	/* At the end: replies come in about the order of the calls, so the search is short. */
	while (*at)
		at = &(*at)->next;
	*at = c;
	return 0;
}

int launcher_call_sync(int fd, enum launch_type type, const void *data, size_t len, struct buf *ret_payload,
		       int *ret_fd, struct err *e)
{
	static uint32_t last_id;
	static uint8_t in[MSG_MAX]; /* before the loop and its threads */
	char words[sizeof(((struct err *)0)->msg)];
	struct wire_rd rd;
	struct msg m;
	uint32_t id = ++last_id ? last_id : ++last_id;
	int r, code;

	r = msg_send(fd, (uint16_t)type, id, data, len, NULL, 0);
	if (r < 0)
		return err_set(e, r, "launcher: send: %s", strerror(-r));
	for (;;) {
		r = msg_recv(fd, in, sizeof(in), &m);
		if (r < 0)
			return err_set(e, r, "launcher: %s", r == -ECONNRESET ? "it ended" : strerror(-r));
		if (m.type == LAUNCH_REPLY && m.id == id)
			break;
		msg_close_fds(&m);
	}
	wire_rd_init(&rd, m.data, m.len);
	r = parse_reply(&rd, words, sizeof(words), &code);
	if (r < 0)
		err_set(e, r, "launcher: malformed reply");
	else if (code < 0)
		r = err_set(e, code, "%s", words);
	if (r == 0 && ret_payload)
		r = buf_add(ret_payload, rd.p, wire_left(&rd));
	if (r == 0 && ret_fd)
		*ret_fd = m.nfds ? take_fd(&m.fds[0]) : -1;
	msg_close_fds(&m);
	return r;
}
