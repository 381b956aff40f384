/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/fsserver.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/child.h"
#include "agent/files.h"
#include "base/fd.h"
#include "base/msg.h"

#define MSG_RESET 0u /* type of the message that begins a new generation; the others are operations */
#define QUEUE_MAX (AG_FS_INFLIGHT_MAX * (AG_PAYLOAD_MAX + 64u))
#define TRIES_MAX 2u

struct request {
	struct request *next;
	uint32_t id;
	uint8_t op;
	unsigned tries; /* servers that were given it while it was the head */
	size_t len;
	uint8_t data[];
};

struct fsserver {
	struct loop *loop;
	const struct guest *guest;
	fsserver_reply_fn *reply;
	void *arg;

	struct msgconn *conn; /* NULL: no server */
	pid_t pid;
	uint16_t generation; /* of the present server's handles */
	bool reset_due;	     /* it has not been told of its newest one: before the next request is time enough */

	struct request *head, **tail;
	size_t count;
	uint64_t head_since_ns; /* when the head came to be it */
	loop_id watchdog; /* fires when the head may be too old; looks again if a younger one has taken its place */
};

/* -- the child ---------------------------------------------------------------------- */

struct child_args {
	int sock, root_fd, proc_fd;
	uint16_t generation;
};

static int serve(void *arg)
{
	const struct child_args *a = arg;
	static uint8_t in[MSG_MAX];
	struct files *files;
	struct buf out;
	struct msg m;

	prctl(PR_SET_NAME, "crucible-files");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	umask(0);
	signal(SIGXFSZ, SIG_IGN);
	if (files_new(a->root_fd, a->proc_fd, a->generation, &files) < 0)
		return 1;
	buf_init(&out, AG_PAYLOAD_MAX);
	while (msg_recv(a->sock, in, sizeof(in), &m) == 0) {
		msg_close_fds(&m);
		if (m.type == MSG_RESET) {
			files_reset(files, (uint16_t)m.id);
			continue;
		}
		files_handle(files, (uint8_t)m.type, m.data, m.len, &out);
		if (msg_send(a->sock, m.type, m.id, out.data, out.len, NULL, 0) < 0)
			break;
	}
	return 0;
}

/* -- the agent's side --------------------------------------------------------------- */

static void server_lost(struct fsserver *s, int reason);

static struct request *pop(struct fsserver *s)
{
	struct request *q = s->head;

	s->head = q->next;
	if (!s->head)
		s->tail = &s->head;
	s->count--;
	s->head_since_ns = now_ns();
	return q;
}

static void answer_error(struct fsserver *s, const struct request *q, int code)
{
	uint8_t payload[4];

	for (int i = 0; i < 4; i++)
		payload[i] = (uint8_t)((uint32_t)code >> (8 * i));
	s->reply(s->arg, q->op, q->id, payload, sizeof(payload));
}

static void fail_head(struct fsserver *s, int code)
{
	struct request *q = pop(s);

	answer_error(s, q, code);
	free(q);
}

static uint64_t patience_ns(const struct request *q)
{
	return (q->op == AG_FS_FSYNC ? FSSERVER_FSYNC_HANG_MS : FSSERVER_HANG_MS) * 1000000ull;
}

static void on_watchdog(void *arg);

/* Never further ahead than the shortest patience: the head of that time may be another one. */
static void watch_head(struct fsserver *s)
{
	if (s->head && !s->watchdog)
		loop_timer(s->loop, now_ns() + FSSERVER_HANG_MS * 1000000ull, on_watchdog, s, &s->watchdog);
}

static void on_watchdog(void *arg)
{
	struct fsserver *s = arg;
	uint64_t due;

	s->watchdog = 0;
	if (!s->head)
		return;
	due = s->head_since_ns + patience_ns(s->head);
	if (now_ns() >= due)
		server_lost(s, -ETIMEDOUT);
	else if (due - now_ns() < FSSERVER_HANG_MS * 1000000ull)
		loop_timer(s->loop, due, on_watchdog, s, &s->watchdog);
	watch_head(s);
}

static void on_msg(void *arg, struct msg *m)
{
	struct fsserver *s = arg;
	struct request *q;

	/* In order, or it is not our server any more. */
	if (!s->head || s->head->id != m->id || s->head->op != m->type || m->len < 4 || m->len > AG_PAYLOAD_MAX) {
		server_lost(s, -EIO);
		return;
	}
	q = pop(s);
	s->reply(s->arg, q->op, q->id, m->data, m->len);
	free(q);
}

static void on_gone(void *arg, int reason)
{
	(void)reason;
	server_lost(arg, -EIO);
}

static int server_start(struct fsserver *s)
{
	static const struct msgconn_ops ops = { .on_msg = on_msg, .on_gone = on_gone };
	struct child_args args = { .root_fd = s->guest->root_fd, .proc_fd = s->guest->proc_fd };
	AUTO_FD ours = -1;
	AUTO_FD theirs = -1;
	int fds[2], keep[3], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	ours = fds[0];
	theirs = fds[1];
	args.sock = theirs;
	args.generation = ++s->generation;
	keep[0] = args.sock;
	keep[1] = args.root_fd;
	keep[2] = args.proc_fd;
	r = child_helper(keep, ARRAY_LEN(keep), serve, &args, &s->pid, NULL);
	if (r < 0)
		return r;
	return msgconn_new(s->loop, take_fd(&ours), QUEUE_MAX, &ops, s, &s->conn);
}

static void server_stop(struct fsserver *s)
{
	s->conn = msgconn_free(s->conn);
	if (s->pid > 0)
		kill(s->pid, SIGKILL); /* reaped by the loop, whenever it can die */
	s->pid = 0;
	s->reset_due = false; /* the next one has no handles */
}

/* A request that may be asked twice without harm. */
static bool changes_nothing(uint8_t op)
{
	return op == AG_FS_GETATTR || op == AG_FS_FGETATTR || op == AG_FS_READLINK || op == AG_FS_READDIR ||
	       op == AG_FS_READ || op == AG_FS_STATFS || op == AG_FS_GETXATTR || op == AG_FS_LISTXATTR;
}

static int give(struct fsserver *s, const struct request *q)
{
	return msgconn_send(s->conn, q->op, q->id, q->data, q->len, NULL, 0);
}

/* Make a server if there is none, and give it all that waits. */
static int server_ready(struct fsserver *s)
{
	int r = 0;

	if (s->conn)
		return 0;
	r = server_start(s);
	s->head_since_ns = now_ns();
	for (struct request *q = s->head; q && r == 0; q = q->next)
		r = give(s, q);
	if (r < 0)
		server_stop(s);
	return r;
}

static void server_lost(struct fsserver *s, int reason)
{
	int r;

	server_stop(s);
	if (s->head && (reason == -ETIMEDOUT || ++s->head->tries >= TRIES_MAX || !changes_nothing(s->head->op)))
		fail_head(s, reason);
	if (!s->head)
		return; /* the next request makes a new one */
	r = server_ready(s);
	while (r < 0 && s->head)
		fail_head(s, r);
}

/* It goes ahead of whatever is asked next. */
static void tell_reset(struct fsserver *s)
{
	if (s->reset_due && msgconn_send(s->conn, MSG_RESET, s->generation, NULL, 0, NULL, 0) < 0)
		server_stop(s);
	s->reset_due = false;
}

int fsserver_request(struct fsserver *s, uint8_t op, uint32_t id, const void *data, size_t len)
{
	struct request *q;
	int r;

	if (s->count >= AG_FS_INFLIGHT_MAX)
		return -EBADMSG;
	tell_reset(s);
	r = server_ready(s);
	q = malloc(sizeof(*q) + len);
	if (!q || r < 0) {
		struct request none = { .id = id, .op = op };

		free(q);
		answer_error(s, &none, r < 0 ? r : -ENOMEM);
		return 0;
	}
	*q = (struct request){ .id = id, .op = op, .len = len };
	if (len)
		memcpy(q->data, data, len);
	if (!s->head)
		s->head_since_ns = now_ns();
	*s->tail = q;
	s->tail = &q->next;
	s->count++;
	/* A server that has just died takes nothing: on_gone() follows and finds the request in the list. */
	give(s, q);
	watch_head(s);
	return 0;
}

bool fsserver_idle(const struct fsserver *s)
{
	return !s->head;
}

void fsserver_reset(struct fsserver *s)
{
	bool busy = s->head != NULL;

	while (s->head)
		free(pop(s));
	if (busy)
		server_stop(s);
	if (!s->conn)
		return;
	s->generation++;
	s->reset_due = true;
}

bool fsserver_reaped(struct fsserver *s, pid_t pid)
{
	if (pid != s->pid || pid <= 0)
		return false;
	s->pid = 0; /* the connection's end of file tells the rest */
	return true;
}

void fsserver_warm(struct fsserver *s)
{
	tell_reset(s);
	server_ready(s);
}

int fsserver_new(struct loop *l, const struct guest *g, fsserver_reply_fn *fn, void *arg, struct fsserver **ret)
{
	struct fsserver *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->loop = l;
	s->guest = g;
	s->reply = fn;
	s->arg = arg;
	s->tail = &s->head;
	*ret = s;
	return 0;
}

struct fsserver *fsserver_free(struct fsserver *s)
{
	if (!s)
		return NULL;
	loop_del(s->loop, &s->watchdog);
	while (s->head)
		free(pop(s));
	server_stop(s);
	free(s);
	return NULL;
}
