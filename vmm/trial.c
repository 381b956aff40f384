/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The trial holds the other ends of everything the engine gets: a socket for each port, and one pipe for both the
 * guest's console and the engine's own words. It succeeds with the first whole frame on the control port, which only a
 * guest that has booted into our agent sends. It fails when the engine ends (the pidfd), when its end of the port
 * closes, or when the time is over; the last of what came through the pipe is then the reason.
 */
#include "vmm/trial.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/proto.h"
#include "base/fd.h"

#define TAIL		2048
#define FRAME_MAX_TRIED (AG_HEADER_LEN + 4096u)

const char *trial_kvm_device = "/dev/kvm";

struct trial {
	struct loop *loop;
	struct trial_ops ops;
	void *arg;
	uint32_t timeout_ms;
	struct engine_command cmd;

	int ours[ENGINE_FD_COUNT], theirs[ENGINE_FD_COUNT]; /* theirs: until it runs; console: the pipe's ends */
	int pidfd;
	loop_id control, pipe, exit, timer, call;
	bool asked, running, over;

	uint8_t frame[FRAME_MAX_TRIED];
	size_t frame_len;
	char tail[TAIL];
	size_t tail_len;
	struct trial_outcome outcome;
};

static void close_all(int *fds)
{
	for (size_t i = 0; i < ENGINE_FD_COUNT; i++)
		fd_close(&fds[i]);
}

static void stop_watching(struct trial *t)
{
	loop_del(t->loop, &t->control);
	loop_del(t->loop, &t->pipe);
	loop_del(t->loop, &t->exit);
	loop_del(t->loop, &t->timer);
}

static void tell(void *arg)
{
	struct trial *t = arg;

	t->call = 0;
	if (t->running)
		t->ops.kill(t->arg);
	t->running = false;
	t->ops.done(t->arg, &t->outcome);
}

/* The answer is there; it is told from the loop, once. */
static void decide(struct trial *t, enum engine_accel accel, const char *reason)
{
	if (t->over)
		return;
	t->over = true;
	stop_watching(t);
	t->outcome.accel = accel;
	snprintf(t->outcome.reason, sizeof(t->outcome.reason), "%s", reason);
	if (loop_defer(t->loop, tell, t, &t->call) < 0)
		loop_timer(t->loop, 0, tell, t, &t->call);
}

/* -- words of the engine ----------------------------------------------------------------------- */

static void keep_tail(struct trial *t, const char *data, size_t len)
{
	if (t->tail_len + len > TAIL) {
		size_t drop = t->tail_len + len - TAIL;

		t->tail_len -= drop;
		memmove(t->tail, t->tail + drop, t->tail_len);
	}
	memcpy(t->tail + t->tail_len, data, len);
	t->tail_len += len;
}

static bool read_pipe(struct trial *t)
{
	char chunk[TAIL / 2];
	ssize_t n = read(t->ours[ENGINE_FD_CONSOLE], chunk, sizeof(chunk));

	if (n > 0)
		keep_tail(t, chunk, (size_t)n);
	return n > 0;
}

static void on_pipe(void *arg, uint32_t events)
{
	struct trial *t = arg;

	/* At its end it would stay readable for ever; who ended is told elsewhere. */
	if (!read_pipe(t) && (events & EPOLLHUP))
		loop_del(t->loop, &t->pipe);
}

/* The last line that says something: an error of the engine's, if there is one, else whatever was printed last. */
static void last_words(struct trial *t, char *out, size_t cap)
{
	char *line, *rest, *best = NULL;

	while (read_pipe(t))
		;
	for (size_t i = 0; i < t->tail_len; i++)
		if ((t->tail[i] < 0x20 && t->tail[i] != '\n') || t->tail[i] == 0x7f)
			t->tail[i] = t->tail[i] == '\r' ? '\n' : '?';
	if (t->tail_len == TAIL)
		t->tail_len--;
	t->tail[t->tail_len] = '\0';
	rest = t->tail;
	while ((line = strsep(&rest, "\n")))
		if (*line && !strstr(line, "warning:") && !(best && strstr(best, "qemu") && !strstr(line, "qemu")))
			best = line;
	snprintf(out, cap, "%s", best ? best : "");
}

static void fail(struct trial *t, const char *what)
{
	char words[300], reason[512];

	last_words(t, words, sizeof(words));
	snprintf(reason, sizeof(reason), "/dev/kvm is there, but no guest boots with it: %s%s%s", what,
		 *words ? ": " : "", words);
	decide(t, ACCEL_TCG, reason);
}

/* -- signs of life and death ------------------------------------------------------------------- */

static void on_control(void *arg, uint32_t events)
{
	struct trial *t = arg;
	struct ag_frame f;
	ssize_t n;
	long taken;

	(void)events;
	n = recv(t->ours[ENGINE_FD_CONTROL], t->frame + t->frame_len, sizeof(t->frame) - t->frame_len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		fail(t, "the engine ended");
		return;
	}
	t->frame_len += (size_t)n;
	taken = ag_frame_parse(t->frame, t->frame_len, &f);
	if (taken > 0)
		decide(t, ACCEL_KVM, "a guest boots with KVM");
	else if (taken < 0 || t->frame_len == sizeof(t->frame))
		fail(t, "what came from the guest is not our agent");
}

static void on_exit_told(void *arg, uint32_t events)
{
	(void)events;
	fail(arg, "the engine ended");
}

static void on_timer(void *arg)
{
	struct trial *t = arg;
	char what[64];

	t->timer = 0;
	snprintf(what, sizeof(what), "nothing was heard of it for %u s", t->timeout_ms / 1000);
	fail(t, what);
}

void trial_spawned(struct trial *t, int code, const char *words, int pidfd)
{
	char reason[400];

	close_all(t->theirs);
	t->pidfd = pidfd;
	if (code < 0) {
		snprintf(reason, sizeof(reason), "the trial of KVM could not be started: %s", words);
		decide(t, ACCEL_TCG, reason);
		return;
	}
	t->running = true;
	if (loop_add(t->loop, t->ours[ENGINE_FD_CONTROL], EPOLLIN, on_control, t, &t->control) < 0 ||
	    loop_add(t->loop, t->ours[ENGINE_FD_CONSOLE], EPOLLIN, on_pipe, t, &t->pipe) < 0 ||
	    loop_add(t->loop, pidfd, EPOLLIN, on_exit_told, t, &t->exit) < 0 ||
	    loop_timer(t->loop, now_ns() + t->timeout_ms * 1000000ull, on_timer, t, &t->timer) < 0)
		decide(t, ACCEL_TCG, "the trial of KVM could not be watched: no memory");
}

/* -- the beginning ----------------------------------------------------------------------------- */

static int make_fds(struct trial *t)
{
	static const enum engine_fd sockets[] = { ENGINE_FD_MONITOR, ENGINE_FD_CONTROL, ENGINE_FD_BULK };
	int pair[2];

	for (size_t i = 0; i < ARRAY_LEN(sockets); i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			return -errno;
		t->ours[sockets[i]] = pair[0];
		t->theirs[sockets[i]] = pair[1];
	}
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	t->ours[ENGINE_FD_CONSOLE] = pair[0];
	t->theirs[ENGINE_FD_CONSOLE] = pair[1];
	return fd_set_nonblock(pair[0], true);
}

/* What can be said without a boot; NULL: it takes one. */
static const char *known_before(const struct engine_info *info)
{
	if (!(info->caps & ENGINE_CAP_KVM))
		return "this engine was built without KVM";
	if (access(trial_kvm_device, F_OK) < 0)
		return "this host has no /dev/kvm";
	return NULL;
}

static void begin(void *arg)
{
	struct trial *t = arg;

	t->call = 0;
	t->asked = true;
	/* MEMORY is not handed over: the trial machine is not to be snapshotted and needs no preload library. */
	t->ops.spawn(t->arg, t, &t->cmd, t->theirs, ENGINE_FD_MEMORY, t->theirs[ENGINE_FD_CONSOLE]);
}

int trial_new(struct loop *l, const struct engine_ops *engine, const struct engine_info *info,
	      const struct engine_machine *m, uint32_t timeout_ms, const struct trial_ops *ops, void *arg,
	      struct trial **ret, struct err *e)
{
	struct trial *t = calloc(1, sizeof(*t));
	struct engine_machine tried = *m;
	const char *known = known_before(info);
	int r;

	if (!t)
		return err_set(e, -ENOMEM, "trial: no memory");
	*t = (struct trial){ .loop = l, .ops = *ops, .arg = arg, .timeout_ms = timeout_ms, .pidfd = -1 };
	for (size_t i = 0; i < ENGINE_FD_COUNT; i++)
		t->ours[i] = t->theirs[i] = -1;
	tried.accel = ACCEL_KVM;
	tried.disk = false;
	r = engine->command(&tried, &t->cmd, e);
	if (r == 0 && known)
		decide(t, ACCEL_TCG, known);
	else if (r == 0) {
		r = make_fds(t);
		if (r == 0)
			r = loop_defer(l, begin, t, &t->call);
		if (r < 0)
			err_set(e, r, "trial: %s", err_name(r));
	}
	if (r < 0) {
		trial_free(t);
		return r;
	}
	*ret = t;
	return 0;
}

struct trial *trial_free(struct trial *t)
{
	if (!t)
		return NULL;
	stop_watching(t);
	loop_del(t->loop, &t->call);
	if (t->running)
		t->ops.kill(t->arg);
	close_all(t->ours);
	close_all(t->theirs);
	fd_close(&t->pidfd);
	free(t);
	return NULL;
}
