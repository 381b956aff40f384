/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The invariants: a command whose process was made sends exactly one EXIT in its epoch, after the last byte of output
 * that it counts; its cgroup and descriptors exist until nothing of it lives; a struct exec is freed from one place,
 * exec_settle(), which every event of a lingering one comes to, and never while one of its own callbacks is on the
 * stack (exec_settle() defers).
 *
 * The end of a command is the end of its own process (reaped), not the end of its output: what stands in the pipes at
 * that instant was written by it or before it ended, so just that is still sent; what background children write later
 * is dropped. */
#include "agent/exec_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/pty.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/wire.h"

#define LINGERING_MAX AG_EXECS_MAX
#define EXIT_MAX      8192u
#define SIGNO_MAX     64u

/* -- telling the host --------------------------------------------------------------- */

static void send_control(struct exec *x, uint8_t type, const void *data, size_t len)
{
	if (x->stream && conn_is_up(x->set->conn))
		conn_send(x->set->conn, CONN_CONTROL, type, 0, x->stream, data, len);
}

void exec_began(struct exec *x)
{
	AUTO_JSON *o = json_object_new_object();
	char path[SCRIPT_PATH_CAP];
	const char *line;

	if (x->inherited)
		return; /* HELLO has told of it */
	json_object_object_add(o, "pid", json_object_new_int(x->pid));
	if (x->req.script) {
		exec_script_path(x, path);
		json_object_object_add(o, "script", json_object_new_string(path));
	}
	line = json_line(o);
	if (line)
		send_control(x, AG_EXEC_STARTED, line, strlen(line));
}

static void send_exit(struct exec *x)
{
	static const char no_memory[] =
		"{\"exit_code\":-1,\"signal\":\"\",\"timed_out\":false,\"oom_killed\":false,"
		"\"error\":\"the guest's agent has no memory for the record\",\"stdout_bytes\":0,"
		"\"stderr_bytes\":0,\"duration_ns\":0,\"usage\":{}}";
	struct buf text;

	x->record.stdout_bytes = x->out[0].sent;
	x->record.stderr_bytes = x->out[1].sent;
	buf_init(&text, EXIT_MAX);
	if (record_put(&x->record, &text) == 0)
		send_control(x, AG_EXIT, text.data, text.len);
	else
		send_control(x, AG_EXIT, no_memory, sizeof(no_memory) - 1);
	buf_fini(&text);
}

/* -- life --------------------------------------------------------------------------- */

static struct exec *exec_new(struct execs *set, uint32_t stream)
{
	struct exec *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->set = set;
	x->stream = stream;
	x->serial = ++set->serial;
	x->cgroup = CGROUP_NONE;
	x->err_fd = x->script_fd = x->events_fd = x->out[0].fd = x->out[1].fd = -1;
	x->script_window = AG_WINDOW;
	input_open(&x->in, &set->streams, stream);
	x->next = set->list;
	set->list = x;
	set->running++;
	return x;
}

static void forget_stream(struct execs *set, uint32_t *stream)
{
	if (*stream)
		set->gone[set->gone_at++ % ARRAY_LEN(set->gone)] = *stream;
	*stream = 0;
}

static bool is_gone(const struct execs *set, uint32_t stream)
{
	for (size_t i = 0; i < ARRAY_LEN(set->gone); i++)
		if (set->gone[i] == stream)
			return true;
	return false;
}

/* What only a command that is not over needs. */
static void exec_release(struct exec *x)
{
	struct loop *l = x->set->loop;

	loop_del(l, &x->deadline);
	loop_del(l, &x->err_src);
	fd_close(&x->err_fd);
	fd_close(&x->script_fd);
	if (x->script_name[0])
		unlinkat(x->set->guest->scripts_fd, x->script_name, 0);
	x->script_name[0] = '\0';
	input_close(&x->in);
	exec_req_fini(&x->req);
}

static void exec_free(struct exec *x)
{
	struct exec **p = &x->set->list;

	while (*p != x)
		p = &(*p)->next;
	*p = x->next;
	if (x->state == EXEC_LINGERING)
		x->set->lingering--;
	else
		x->set->running--;
	exec_release(x);
	forget_stream(x->set, &x->stream);
	output_close(&x->out[0]);
	output_close(&x->out[1]);
	loop_del(x->set->loop, &x->events_src);
	loop_del(x->set->loop, &x->settle);
	fd_close(&x->events_fd);
	fd_close(&x->cgroup.fd);
	free(x);
}

static struct exec *find_stream(struct execs *set, uint32_t stream)
{
	for (struct exec *x = set->list; x; x = x->next)
		if (x->stream == stream)
			return x;
	return NULL;
}

/* -- lingering ---------------------------------------------------------------------- */

static void exec_settle(struct exec *x);

static void on_cgroup_events(void *arg, uint32_t events)
{
	struct exec *x = arg;
	char text[256];

	(void)events;
	/* Read through this very descriptor: that is what acknowledges the event. */
	if (pread(x->events_fd, text, sizeof(text), 0) < 0)
		loop_del(x->set->loop, &x->events_src);
	exec_settle(x);
}

static void watch_cgroup(struct exec *x)
{
	char text[256];

	if (x->events_fd >= 0)
		return;
	x->events_fd = cgroup_watch(&x->cgroup);
	if (x->events_fd < 0)
		return;
	if (pread(x->events_fd, text, sizeof(text), 0) < 0 ||
	    loop_add(x->set->loop, x->events_fd, EPOLLPRI, on_cgroup_events, x, &x->events_src) < 0)
		fd_close(&x->events_fd);
}

static bool output_over(const struct output *o)
{
	return !o->set || o->state == OUT_EOF;
}

static void on_settle(void *arg)
{
	struct exec *x = arg;

	x->settle = 0;
	if (x->state != EXEC_LINGERING)
		return;
	/* Watched first, looked at then: what ends in between is an event. */
	if (x->cgroup.fd >= 0 && cgroup_remove(x->set->limits, &x->cgroup) == -EBUSY) {
		watch_cgroup(x);
		if (x->events_fd >= 0 && cgroup_remove(x->set->limits, &x->cgroup) == -EBUSY)
			return;
	}
	if (output_over(&x->out[0]) && output_over(&x->out[1]))
		exec_free(x);
}

/* Is a lingering command gone altogether? Looked at when the present callback has returned. */
static void exec_settle(struct exec *x)
{
	if (x->state == EXEC_LINGERING && !x->settle)
		loop_defer(x->set->loop, on_settle, x, &x->settle);
}

/* The oldest ones give way: their background children may get SIGPIPE then. */
static void limit_lingering(struct execs *set)
{
	struct exec *oldest = NULL;

	if (set->lingering <= LINGERING_MAX)
		return;
	for (struct exec *x = set->list; x; x = x->next)
		if (x->state == EXEC_LINGERING)
			oldest = x;
	exec_free(oldest);
}

void exec_linger(struct exec *x)
{
	exec_release(x);
	x->state = EXEC_LINGERING;
	x->set->running--;
	x->set->lingering++;
	output_drain(&x->out[0]);
	output_drain(&x->out[1]);
	exec_settle(x);
}

/* -- the end ------------------------------------------------------------------------ */

void exec_finish(struct exec *x)
{
	send_exit(x);
	exec_linger(x);
}

static bool in_tail(const struct output *o)
{
	return o->set && o->state == OUT_TAIL;
}

void exec_tail(void *arg)
{
	struct exec *x = arg;

	if (x->state == EXEC_ENDING && !in_tail(&x->out[0]) && !in_tail(&x->out[1]))
		exec_finish(x);
}

void exec_eof(void *arg)
{
	exec_settle(arg);
}

/* The process is gone; `record` knows how. */
static void exec_ended(struct exec *x)
{
	bool quiet[2];

	x->state = EXEC_ENDING;
	loop_del(x->set->loop, &x->deadline);
	cgroup_usage_get(&x->cgroup, &x->record.usage);
	for (int i = 0; i < 2; i++)
		quiet[i] = output_tail(&x->out[i]);
	if (quiet[0] && quiet[1])
		exec_finish(x);
}

/* It never became a process, or not the one that was asked for. */
void exec_failed(struct exec *x, const struct err *e)
{
	snprintf(x->record.error, sizeof(x->record.error), "%s", e->msg);
	x->record.began = false;
}

void exec_kill(struct exec *x)
{
	if (cgroup_kill(&x->cgroup) == 0)
		return;
	/* No cgroup: those that stayed in its process group, and itself. */
	if (x->pid > 0) {
		kill(-x->pid, SIGKILL);
		kill(x->pid, SIGKILL);
	}
}

void exec_timeout(void *arg)
{
	struct exec *x = arg;

	x->deadline = 0;
	x->record.timed_out = true;
	exec_kill(x);
}

/* -- frames ------------------------------------------------------------------------- */

static void exec_open(struct execs *set, uint32_t stream, const void *json, size_t len)
{
	struct err e = { 0 };
	struct exec *x;
	int r;

	limit_lingering(set);
	x = exec_new(set, stream);
	if (!x) {
		struct exec none = { .set = set, .stream = stream };

		snprintf(none.record.error, sizeof(none.record.error), "the guest's agent has no memory");
		send_exit(&none);
		return;
	}
	r = set->running > AG_EXECS_MAX ? err_set(&e, -EBUSY, "%u commands run in this guest: no more", AG_EXECS_MAX)
					: 0;
	if (r == 0)
		r = exec_req_parse(json, len, &x->req, &e);
	if (r == 0 && x->req.script)
		r = exec_script_open(x, &e);
	if (r < 0) {
		exec_failed(x, &e);
		exec_finish(x);
	} else if (!x->req.script) {
		exec_start(x);
	}
}

static int on_exec(struct execs *set, const struct ag_frame *f)
{
	if (f->stream == 0 || find_stream(set, f->stream) || (set->json_stream && set->json_stream != f->stream))
		return -EBADMSG;
	if (!set->json_stream && !(f->flags & AG_MORE)) {
		exec_open(set, f->stream, f->payload, f->len);
		return 0;
	}
	if (buf_add(&set->json, f->payload, f->len) < 0)
		return -EBADMSG;
	set->json_stream = f->stream;
	if (f->flags & AG_MORE)
		return 0;
	set->json_stream = 0;
	exec_open(set, f->stream, set->json.data, set->json.len);
	buf_reset(&set->json);
	return 0;
}

static int on_data(struct exec *x, const struct ag_frame *f)
{
	enum ag_which which = f->flags & AG_WHICH_MASK;

	if (which != AG_STDIN && which != AG_SCRIPT)
		return -EBADMSG;
	if (x->state > EXEC_RUNNING)
		return 0; /* it was under way when the command ended */
	return which == AG_SCRIPT ? exec_script_data(x, f) : input_data(&x->in, f->payload, f->len, f->flags & AG_EOF);
}

static int on_credit(struct exec *x, const struct ag_frame *f)
{
	enum ag_which which = f->flags & AG_WHICH_MASK;
	struct wire_rd r;

	if (which != AG_STDOUT && which != AG_STDERR)
		return -EBADMSG;
	wire_rd_init(&r, f->payload, f->len);
	return output_credit(&x->out[which == AG_STDERR], wire_u32(&r));
}

static int on_signal(struct exec *x, const struct ag_frame *f)
{
	struct wire_rd r;
	uint32_t signo;
	pid_t group;

	wire_rd_init(&r, f->payload, f->len);
	signo = wire_u32(&r);
	if (signo < 1 || signo > SIGNO_MAX)
		return -EBADMSG;
	if (x->pid <= 0)
		return 0;
	group = x->req.tty && x->out[0].fd >= 0 ? pty_foreground(x->out[0].fd) : 0;
	kill(group > 0 ? -group : -x->pid, (int)signo);
	return 0;
}

static int on_kill(struct exec *x)
{
	struct err e = { 0 };

	if (x->state == EXEC_SCRIPT) {
		err_set(&e, -ECANCELED, "killed before it began");
		exec_failed(x, &e);
		x->record.killed = true;
		exec_finish(x);
		return 0;
	}
	exec_kill(x);
	return 0;
}

static int on_resize(struct exec *x, const struct ag_frame *f)
{
	struct wire_rd r;
	uint16_t rows, cols;

	wire_rd_init(&r, f->payload, f->len);
	rows = wire_u16(&r);
	cols = wire_u16(&r);
	if (x->req.tty && x->out[0].fd >= 0)
		pty_resize(x->out[0].fd, rows, cols);
	return 0;
}

bool execs_takes(uint8_t type)
{
	return type == AG_EXEC || type == AG_DATA || type == AG_CREDIT || type == AG_SIGNAL || type == AG_KILL ||
	       type == AG_RESIZE || type == AG_CLOSE;
}

int execs_frame(struct execs *set, const struct ag_frame *f)
{
	struct exec *x;

	if (f->type == AG_EXEC)
		return on_exec(set, f);
	x = f->stream ? find_stream(set, f->stream) : NULL;
	if (!f->stream)
		return -EBADMSG;
	if (!x)
		return f->type == AG_DATA && !is_gone(set, f->stream) ? -EAGAIN : 0;
	switch (f->type) {
	case AG_DATA:
		return on_data(x, f);
	case AG_CREDIT:
		return on_credit(x, f);
	case AG_SIGNAL:
		return on_signal(x, f);
	case AG_KILL:
		return on_kill(x);
	case AG_RESIZE:
		return on_resize(x, f);
	case AG_CLOSE:
		if (x->state == EXEC_LINGERING)
			forget_stream(set, &x->stream);
		return 0;
	default:
		return -EBADMSG;
	}
}

/* -- all of them -------------------------------------------------------------------- */

bool execs_reaped(struct execs *set, pid_t pid, int status, const struct rusage *ru)
{
	for (struct exec *x = set->list; x; x = x->next) {
		if (x->pid != pid)
			continue;
		x->record.duration_ns = now_ns() - x->started_ns;
		x->record.status = status;
		x->record.ru = *ru;
		if (x->err_fd >= 0)
			exec_read_words(x); /* STARTED, or the reason, comes before EXIT */
		x->pid = 0;
		exec_ended(x);
		return true;
	}
	return false;
}

void execs_give_up(struct execs *set, uint32_t stream)
{
	forget_stream(set, &stream);
}

void execs_room(struct execs *set)
{
	streams_room(&set->streams);
}

void execs_signal_all(struct execs *set, int signo)
{
	for (struct exec *x = set->list; x; x = x->next) {
		cgroup_signal(&x->cgroup, signo);
		if (x->cgroup.fd < 0 && x->pid > 0)
			kill(-x->pid, signo);
	}
}

void execs_kill_all(struct execs *set)
{
	for (struct exec *x = set->list; x; x = x->next)
		exec_kill(x);
	limits_kill_all(set->limits);
}

size_t execs_alive(const struct execs *set)
{
	size_t n = 0;

	for (const struct exec *x = set->list; x; x = x->next)
		n += x->pid > 0 || !cgroup_is_empty(&x->cgroup);
	return n;
}

int execs_new(struct loop *l, struct conn *c, const struct guest *g, struct limits *lim, struct execs **ret)
{
	struct execs *set = calloc(1, sizeof(*set));

	if (!set)
		return -ENOMEM;
	set->loop = l;
	set->conn = c;
	set->guest = g;
	set->limits = lim;
	set->streams = (struct streams){ .loop = l, .conn = c, .guest = g };
	buf_init(&set->json, AG_EXEC_JSON_MAX);
	*ret = set;
	return 0;
}

struct execs *execs_free(struct execs *set)
{
	if (!set)
		return NULL;
	execs_kill_all(set);
	while (set->list)
		exec_free(set->list);
	loop_del(set->loop, &set->streams.tick);
	buf_fini(&set->json);
	free(set);
	return NULL;
}
