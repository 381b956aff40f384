/* SPDX-License-Identifier: Apache-2.0 */
/* How this works.
 *
 * One loop over poll(2). Each round moves everything that can be moved (both outputs, the input), then looks whether
 * the record is there, then waits for: the two outputs, the slot's `wait` (readable when the command has ended), room
 * in its `stdin`, our own input, and signals, which are blocked and come through a signalfd. Invariants:
 *  1. The command has ended exactly when result.json is there; `wait` only wakes us. After that each output is read to
 * its end once more: what the record counts stands in the files before the record does.
 *  2. Nothing is lost when a signal interrupts a write to a slow reader: it stays pending in its outlet.
 *  3. Whatever ends the loop early (our reader is gone, a signal, "~."), the command is killed; the caller removes the
 * slot. The first SIGINT of ATTACH_FORWARD is the command's own; a terminal in raw mode never makes one of ours. */
#include "tools/crucible/attach.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/inlet.h"
#include "tools/crucible/outlet.h"
#include "tools/crucible/terminal.h"
#include "tools/crucible/tree.h"

#define KILLED_MS 1000 /* how long the record of a command that we killed is waited for */

struct loop_state {
	struct slot *slot;
	const struct attach *a;
	struct outlet out, err;
	struct inlet in;
	int wait;    /* the slot's `wait` */
	int signals; /* a signalfd */
	int signal;  /* the one that ended it, 0 none */
	bool interrupted_once;
	struct follow follow;
};

/* Do poll(2) and O_NONBLOCK reach the daemon? */
static bool can_tell(const struct loop_state *s)
{
	int fd = s->out.from >= 0 ? s->out.from : s->err.from;
	AUTO_FD own = -1;

	if (fd < 0) {
		own = openat(s->slot->dir, "stdout", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
		fd = own;
	}
	return fd >= 0 && follow_tells(fd);
}

static int begin(struct loop_state *s, struct err *e)
{
	bool tells;
	int r;

	r = outlet_open(&s->out, s->slot->dir, "stdout", s->a->out, s->a->raw);
	if (r < 0)
		return err_set(e, r, "exec/%s/stdout: %s", s->slot->name, strerror(-r));
	r = outlet_open(&s->err, s->slot->dir, "stderr", s->a->err, s->a->raw);
	if (r < 0)
		return err_set(e, r, "exec/%s/stderr: %s", s->slot->name, strerror(-r));
	/* Never read, only polled. Where O_NONBLOCK does not arrive the open would wait for the command's end. */
	tells = can_tell(s);
	if (tells)
		s->wait = openat(s->slot->dir, "wait", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	return inlet_open(&s->in, s->slot, s->a->in, s->a->tty, tells, e);
}

/* Both outputs, the input. Returns 1 when anything moved, 0, or -errno. */
static int move_all(struct loop_state *s, bool input_ready, struct err *e)
{
	struct outlet *outlets[] = { &s->out, &s->err };
	int moved = 0, r;

	for (size_t i = 0; i < ARRAY_LEN(outlets); i++) {
		ssize_t n = outlet_move(outlets[i], s->signals, e);

		if (n < 0 && n != -EINTR)
			return (int)n;
		moved = moved || n != 0;
	}
	r = inlet_move(&s->in, input_ready, e);
	return r < 0 ? r : moved || r > 0;
}

/* Words for a file of the slot that failed: its sandbox is no more (-ENOENT), the daemon is no more (-ENOTCONN), or
 * else. */
static int gone_or(int code, struct err *e, const char *what)
{
	if (code == -ENOENT || code == -ESTALE)
		return err_set(e, -ENOENT, "the sandbox was removed while its command ran");
	if (code == -ENOTCONN || code == -ECONNABORTED)
		return err_set(e, -ENOTCONN,
			       "the daemon, or the connection to it, has gone; the command may still run");
	return err_set(e, code, "%s: %s", what, strerror(-code));
}

/* 1 and *ret when the command has ended, 0 when not yet; -ENOENT when its sandbox is no more. */
static int look_for_record(struct loop_state *s, struct record *ret, struct err *e)
{
	AUTO_FREE char *text = NULL;
	char status[32];
	size_t len;
	int r = tree_read(s->slot->dir, "result.json", &text, &len);

	if (r == 0) {
		r = record_parse(text, len, ret, e);
		return r < 0 ? r : 1;
	}
	/* Not there: not yet, or never more, because the slot is not there either. */
	if (r == -ENOENT)
		r = tree_word(s->slot->dir, "status", status, sizeof(status));
	return r < 0 ? gone_or(r, e, "result.json") : 0;
}

static void resize(struct loop_state *s)
{
	char line[48];
	unsigned rows, cols;

	terminal_size(&rows, &cols);
	snprintf(line, sizeof(line), "resize %u %u", rows, cols);
	slot_ctl(s->slot, line, NULL); /* the command may just have ended */
}

/* Stop as anybody would, but with the terminal as it was. */
static void suspend(struct loop_state *s)
{
	if (s->a->tty)
		terminal_leave();
	raise(SIGSTOP);
	if (s->a->tty && terminal_enter(NULL) == 0)
		resize(s);
}

/* Returns 1 when the command is to be ended. */
static int take_signal(struct loop_state *s)
{
	struct signalfd_siginfo si;

	if (read(s->signals, &si, sizeof(si)) != sizeof(si))
		return 0;
	switch (si.ssi_signo) {
	case SIGWINCH:
		if (s->a->tty)
			resize(s);
		return 0;
	case SIGTSTP:
		suspend(s);
		return 0;
	case SIGCONT:
		if (s->a->tty)
			terminal_again();
		return 0;
	case SIGINT:
		if (s->a->signals == ATTACH_FORWARD && !s->interrupted_once) {
			s->interrupted_once = true;
			slot_ctl(s->slot, "signal SIGINT", NULL);
			return 0;
		}
		break;
	}
	s->signal = (int)si.ssi_signo;
	return 1;
}

/* Wait for whatever comes first. *ret_input: our own input has something. Returns 1 when a signal asks for the end, 0,
 * or -errno. */
static int wait_for_more(struct loop_state *s, bool moved, bool *ret_input, struct err *e)
{
	enum { OUT, ERR, WAIT, ROOM, TREE, INPUT = TREE, SIGNALS, ALL };
	struct pollfd p[ALL] = {
		[OUT] = { .fd = s->out.from, .events = POLLIN },
		[ERR] = { .fd = s->err.from, .events = POLLIN },
		[WAIT] = { .fd = s->wait, .events = POLLIN },
		[ROOM] = { .fd = inlet_wants_room(&s->in), .events = POLLOUT },
		[INPUT] = { .fd = inlet_wants_input(&s->in), .events = POLLIN },
		[SIGNALS] = { .fd = s->signals, .events = POLLIN },
	};
	int r = follow_wait(&s->follow, p, TREE, ALL, moved);

	if (r < 0)
		return err_set(e, r, "poll: %s", strerror(-r));
	*ret_input = p[INPUT].revents != 0;
	return p[SIGNALS].revents ? take_signal(s) : 0;
}

/* Until the record is there. */
static int serve(struct loop_state *s, struct record *ret, struct err *e)
{
	bool input_ready = false;
	int r;

	for (;;) {
		int moved = move_all(s, input_ready, e);

		if (moved == -ENOTCONN || moved == -ECONNABORTED || moved == -ESTALE)
			return gone_or(moved, e, "output");
		if (moved < 0)
			return moved;
		r = look_for_record(s, ret, e);
		if (r != 0)
			break;
		r = wait_for_more(s, moved > 0, &input_ready, e);
		if (r > 0)
			return err_set(e, -EINTR, "ended by a signal");
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	do {
		r = move_all(s, false, e);
		if (take_signal(s) > 0)
			return err_set(e, -EINTR, "ended by a signal");
	} while (r > 0);
	if (r == 0)
		r = outlet_end(&s->out, -1, e);
	if (r == 0)
		r = outlet_end(&s->err, -1, e);
	return r;
}

/* The command must not outlive us. Its record, when it comes soon, is still of use. */
static void kill_command(struct loop_state *s, struct record *ret)
{
	uint64_t end_ns = now_ns() + KILLED_MS * 1000000ull;
	struct follow f = { 0 };

	if (slot_ctl(s->slot, "kill", NULL) < 0)
		return;
	while (look_for_record(s, ret, NULL) == 0 && now_ns() < end_ns) {
		struct pollfd p = { .fd = s->wait, .events = POLLIN };

		if (follow_wait(&f, &p, 1, 1, false) < 0)
			return;
	}
}

int attach_run(struct slot *t, const struct attach *a, struct record *ret, int *ret_signal, struct err *e)
{
	static const int ours[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGWINCH, SIGTSTP, SIGCONT };
	struct loop_state s = {
		.slot = t, .a = a, .out.from = -1, .err.from = -1, .in.to = -1, .wait = -1, .signals = -1
	};
	sigset_t set, old;
	int r;

	*ret = (struct record){ .exit_code = -1 };
	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_LEN(ours); i++)
		sigaddset(&set, ours[i]);
	sigprocmask(SIG_BLOCK, &set, &old);
	s.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	r = s.signals < 0 ? err_set(e, -errno, "signalfd: %s", strerror(errno)) : begin(&s, e);
	if (r == 0)
		r = serve(&s, ret, e);
	if (r < 0 && !ret->text && r != -ENOENT && r != -ENOTCONN)
		kill_command(&s, ret);
	outlet_close(&s.out);
	outlet_close(&s.err);
	inlet_close(&s.in);
	fd_close(&s.wait);
	fd_close(&s.signals);
	sigprocmask(SIG_SETMASK, &old, NULL);
	*ret_signal = s.signal;
	return r == -EINTR ? 0 : r;
}
