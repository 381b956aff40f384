/* SPDX-License-Identifier: Apache-2.0 */
/* How a command begins: its script is stored, its streams are made, its process is started, and the child tells whether
 * exec(2) went well. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/child.h"
#include "agent/exec_priv.h"
#include "agent/pty.h"
#include "base/fd.h"

/* The child's words, or the end of file that a successful exec makes. */
void exec_read_words(struct exec *x)
{
	struct err e;
	ssize_t n = read(x->err_fd, &e, sizeof(e));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	loop_del(x->set->loop, &x->err_src);
	fd_close(&x->err_fd);
	if (x->state == EXEC_STARTING)
		x->state = EXEC_RUNNING;
	if (n == (ssize_t)sizeof(e)) {
		e.msg[sizeof(e.msg) - 1] = '\0';
		exec_failed(x, &e); /* the process is about to end: EXIT follows then */
	} else {
		exec_began(x);
	}
}

static void on_child_words(void *arg, uint32_t events)
{
	(void)events;
	exec_read_words(arg);
}

/* The command's ends of its streams, closed when the child has them. */
struct ends {
	int in, out, err;
};

static void ends_close(struct ends *e)
{
	fd_close(&e->in);
	fd_close(&e->out);
	fd_close(&e->err);
}
#define AUTO_ENDS __attribute__((cleanup(ends_close))) struct ends

#define PIPE_BYTES (256 * 1024)

static int make_pipe(int *ret_ours, int *ret_theirs, bool we_write, struct err *e)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(e, -errno, "standard streams: %s", strerror(errno));
	*ret_ours = fds[we_write];
	*ret_theirs = fds[!we_write];
	fd_set_nonblock(*ret_ours, true);
	/* Of output, larger pieces: fewer switches between command and agent. Where it is refused the default does. */
	if (!we_write)
		fcntl(*ret_ours, F_SETPIPE_SZ, PIPE_BYTES);
	return 0;
}

static int open_output(struct exec *x, int i, int *fd, struct err *e)
{
	struct output *o = &x->out[i];
	int r = output_open(o, &x->set->streams, x->stream, i == 0 ? AG_STDOUT : AG_STDERR, fd, x->req.tty);

	o->on_tail = exec_tail;
	o->on_eof = exec_eof;
	o->arg = x;
	return r < 0 ? err_set(e, r, "standard streams: %s", strerror(-r)) : 0;
}

static int open_tty(struct exec *x, struct ends *ends, struct err *e)
{
	AUTO_FD master = -1;
	AUTO_FD master2 = -1;
	int r;

	if (x->set->guest->tty_fd < 0)
		return err_set(e, -ENOTSUP, "tty: this guest has no /dev/pts");
	r = pty_open(x->set->guest->tty_fd, x->req.rows, x->req.cols, &master, &ends->in, e);
	if (r < 0)
		return r;
	master2 = fcntl(master, F_DUPFD_CLOEXEC, 3);
	ends->out = fcntl(ends->in, F_DUPFD_CLOEXEC, 3);
	ends->err = fcntl(ends->in, F_DUPFD_CLOEXEC, 3);
	if (master2 < 0 || ends->out < 0 || ends->err < 0)
		return err_set(e, -errno, "tty: %s", strerror(errno));
	r = open_output(x, 0, &master, e);
	if (r < 0)
		return r;
	input_start(&x->in, &master2, true);
	if (!x->req.has_stdin)
		input_data(&x->in, NULL, 0, true);
	return 0;
}

static int open_pipes(struct exec *x, struct ends *ends, struct err *e)
{
	AUTO_FD in = -1;
	AUTO_FD out = -1;
	AUTO_FD err = -1;
	int r;

	if (x->req.has_stdin)
		r = make_pipe(&in, &ends->in, true, e);
	else
		r = (ends->in = fcntl(x->set->guest->null_fd, F_DUPFD_CLOEXEC, 3)) < 0
			    ? err_set(e, -errno, "standard input: %s", strerror(errno))
			    : 0;
	if (r == 0)
		r = make_pipe(&out, &ends->out, false, e);
	if (r == 0)
		r = make_pipe(&err, &ends->err, false, e);
	if (r < 0)
		return r;
	r = open_output(x, 0, &out, e);
	if (r == 0)
		r = open_output(x, 1, &err, e);
	if (r == 0)
		input_start(&x->in, &in, false);
	return r;
}

static int start_child(struct exec *x, struct err *e)
{
	struct execs *set = x->set;
	const struct cgroup_limits want = { .label = x->req.name,
					    .memory_bytes = x->req.memory_bytes,
					    .pids = x->req.pids };
	AUTO_ENDS ends = { -1, -1, -1 };
	char script[SCRIPT_PATH_CAP];
	struct child_plan plan = {
		.guest = set->guest, .req = &x->req, .cgroup = &x->cgroup, .script_fd = x->script_fd
	};
	int r;

	r = cgroup_make(set->limits, &want, &x->cgroup, e);
	if (r == 0)
		r = x->req.tty ? open_tty(x, &ends, e) : open_pipes(x, &ends, e);
	if (r < 0)
		return r;
	exec_script_path(x, script);
	plan.script = script;
	plan.stdio[0] = ends.in;
	plan.stdio[1] = ends.out;
	plan.stdio[2] = ends.err;
	x->started_ns = now_ns();
	r = child_start(&plan, &x->pid, &x->err_fd, e);
	if (r < 0)
		return r;
	x->first_pid = x->pid;
	x->record.began = true;
	x->state = EXEC_STARTING;
	r = loop_add(set->loop, x->err_fd, EPOLLIN, on_child_words, x, &x->err_src);
	if (r == 0 && x->req.timeout_ms)
		r = loop_timer(set->loop, x->started_ns + x->req.timeout_ms * 1000000u, exec_timeout, x, &x->deadline);
	if (r < 0) {
		/* It exists, but could not be kept to its deadline: it must not. EXIT follows when it is reaped. */
		err_set(e, r, "no memory to watch the command");
		exec_failed(x, e);
		exec_kill(x);
	}
	return 0;
}

/* Start, or say why not. */
void exec_start(struct exec *x)
{
	struct err e = { 0 };

	if (start_child(x, &e) == 0)
		return;
	exec_failed(x, &e);
	output_close(&x->out[0]);
	output_close(&x->out[1]);
	exec_finish(x);
}

/* -- scripts ------------------------------------------------------------------------ */

int exec_script_open(struct exec *x, struct err *e)
{
	int dir = x->set->guest->scripts_fd;

	if (dir < 0)
		return err_set(e, -ENOENT, "script: the guest has no place for it");
	snprintf(x->script_name, sizeof(x->script_name), "script-%llu", (unsigned long long)x->serial);
	unlinkat(dir, x->script_name, 0); /* a guest's own file of that name */
	x->script_fd = openat(dir, x->script_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0700);
	return x->script_fd < 0 ? err_set(e, -errno, "script: cannot store it: %s", strerror(errno)) : 0;
}

/* Written by nobody any more: an executable that is open for writing cannot be executed. */
static int script_close(struct exec *x, struct err *e)
{
	fd_close(&x->script_fd);
	x->script_fd = openat(x->set->guest->scripts_fd, x->script_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return x->script_fd < 0 ? err_set(e, -errno, "script: cannot read it: %s", strerror(errno)) : 0;
}

int exec_script_data(struct exec *x, const struct ag_frame *f)
{
	struct err e = { 0 };
	int r = 0;

	if (x->state != EXEC_SCRIPT)
		return -EBADMSG; /* there is none, or this is behind its end */
	if (f->len > x->script_window)
		return -EBADMSG;
	x->script_window -= f->len;
	if (f->len) {
		r = fd_write_all(x->script_fd, f->payload, f->len);
		if (r < 0)
			err_set(&e, r, "script: cannot store it: %s", strerror(-r));
		stream_consumed(&x->set->streams, x->stream, AG_SCRIPT, &x->script_window, &x->script_consumed, f->len);
	}
	if (r == 0 && f->flags & AG_EOF) {
		r = script_close(x, &e);
		if (r == 0) {
			exec_start(x);
			return 0;
		}
	}
	if (r < 0) {
		exec_failed(x, &e);
		exec_finish(x);
	}
	return 0;
}

void exec_script_path(const struct exec *x, char path[SCRIPT_PATH_CAP])
{
	snprintf(path, SCRIPT_PATH_CAP, "%s/%s", x->set->guest->scripts_path, x->script_name);
}
