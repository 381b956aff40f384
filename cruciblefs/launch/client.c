/* SPDX-License-Identifier: Apache-2.0 */
/* crucibled's end of the launcher's socket. A callback may free the launcher: nothing of it is touched after one. */
#include <stdlib.h>
#include <string.h>

#include "base/call.h"
#include "base/fd.h"
#include "cruciblefs/launch/launch_priv.h"

#define QUEUE_MAX (4u << 20)

struct launcher {
	struct msgconn *conn;
	struct launcher_ops ops;
	void *arg;
	struct calls calls;
};

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

	if (m->type == LAUNCH_REPLY)
		calls_reply(&l->calls, m);
	else if (m->type == LAUNCH_EXIT_EVENT)
		on_exit_event(l, m);
}

static void on_gone(void *arg, int reason)
{
	struct launcher *l = arg;

	(void)reason;
	if (calls_end(&l->calls, -EPIPE, "the launcher is gone") && l->ops.on_gone)
		l->ops.on_gone(l->arg);
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
	calls_init(&l->calls, "launcher");
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
	calls_drop(&l->calls);
	free(l);
	return NULL;
}

int launcher_call(struct launcher *l, enum launch_type type, const void *data, size_t len, const int *fds, size_t nfds,
		  launcher_fn *fn, void *arg)
{
	return calls_send(&l->calls, l->conn, (uint16_t)type, data, len, fds, nfds, fn, arg, NULL);
}

int launcher_call_sync(int fd, enum launch_type type, const void *data, size_t len, struct buf *ret_payload,
		       int *ret_fd, struct err *e)
{
	static uint32_t last_id;
	static uint8_t in[MSG_MAX]; /* before the loop and its threads */
	char words[CALLS_WORDS_MAX];
	struct wire_rd rd;
	struct msg m;
	uint32_t id = ++last_id | 1u << 31; /* none of launcher_call()'s: one of those may have left answers */
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
	r = call_parse(&rd, &code, words);
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
