/* SPDX-License-Identifier: Apache-2.0 */
#include "netpolicy/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "netpolicy/reserve.h"

#define COPY_BYTES (64u * 1024u)

/* -- pipes ------------------------------------------------------------------------------------------------------- */

static int pipe_take(struct pipes *p, int pipe[2])
{
	if (p->n > 0) {
		p->n--;
		pipe[0] = p->fd[p->n][0];
		pipe[1] = p->fd[p->n][1];
		return 0;
	}
	if (pipe2(pipe, O_NONBLOCK | O_CLOEXEC) < 0) {
		pipe[0] = pipe[1] = -1;
		return -errno;
	}
	if (reserve_has(pipe[0]) || reserve_has(pipe[1])) {
		fd_close(&pipe[0]);
		fd_close(&pipe[1]);
		return -EMFILE;
	}
	/* -EPERM: this user's pipes hold much already. A small one does, too. */
	(void)fcntl(pipe[1], F_SETPIPE_SZ, PUMP_PIPE_BYTES);
	return 0;
}

/* An empty one. */
static void pipe_give(struct pipes *p, int pipe[2])
{
	if (pipe[0] < 0)
		return;
	if (p->n == PIPES_KEPT) {
		fd_close(&pipe[0]);
		fd_close(&pipe[1]);
		return;
	}
	p->fd[p->n][0] = take_fd(&pipe[0]);
	p->fd[p->n][1] = take_fd(&pipe[1]);
	p->n++;
}

void pipes_close(struct pipes *p)
{
	for (; p->n > 0; p->n--) {
		fd_close(&p->fd[p->n - 1][0]);
		fd_close(&p->fd[p->n - 1][1]);
	}
}

/* -- steps: bytes moved, 0: would block, or -errno ----------------------------------------------------------------- */

/* What a call has done, with the errors that mean "later" as 0. */
static ssize_t later(ssize_t n)
{
	if (n >= 0)
		return n;
	return errno == EAGAIN || errno == EINTR ? 0 : -errno;
}

static ssize_t send_head(struct pump *p, int to)
{
	ssize_t n = later(send(to, p->head.data, p->head.len, MSG_DONTWAIT | MSG_NOSIGNAL));

	if (n <= 0) {
		p->stuck = n == 0;
		return n;
	}
	p->bytes += (size_t)n;
	if ((size_t)n == p->head.len)
		buf_fini(&p->head);
	else
		buf_drop(&p->head, (size_t)n);
	return n;
}

static ssize_t drain(struct pump *p, int to)
{
	ssize_t n = later(splice(p->pipe[0], NULL, to, NULL, p->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK));

	if (n <= 0) {
		p->stuck = n == 0;
		return n;
	}
	p->held -= (size_t)n;
	p->bytes += (size_t)n;
	return n;
}

/* Nothing is held in between: the source keeps what the target did not take. */
static ssize_t copy(struct pump *p, int from, int to)
{
	uint8_t data[COPY_BYTES];
	ssize_t n = recv(from, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT), sent;

	if (n <= 0) {
		p->eof = n == 0;
		return later(n);
	}
	sent = later(send(to, data, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL));
	if (sent <= 0) {
		p->stuck = sent == 0;
		return sent;
	}
	p->bytes += (size_t)sent;
	return recv(from, data, (size_t)sent, MSG_DONTWAIT) == sent ? sent : -EIO;
}

static ssize_t fill(struct pump *p, struct pipes *pipes, int from, int to)
{
	ssize_t n;

	if (p->copy || (p->pipe[0] < 0 && pipe_take(pipes, p->pipe) < 0))
		return copy(p, from, to);
	n = splice(from, NULL, p->pipe[1], NULL, PUMP_PIPE_BYTES, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0 && errno == EINVAL) {
		p->copy = true;
		return copy(p, from, to);
	}
	p->eof = n == 0;
	n = later(n);
	if (n > 0)
		p->held = (size_t)n;
	return n;
}

/* -- a pump ------------------------------------------------------------------------------------------------------ */

void pump_init(struct pump *p, size_t head_max)
{
	*p = (struct pump){ .pipe = { -1, -1 } };
	buf_init(&p->head, head_max);
}

void pump_fini(struct pump *p)
{
	fd_close(&p->pipe[0]);
	fd_close(&p->pipe[1]);
	buf_fini(&p->head);
}

int pump_turn(struct pump *p, struct pipes *pipes, int from, int to)
{
	uint64_t until = p->bytes + PUMP_TURN_BYTES;
	ssize_t n = 1;

	p->stuck = false;
	while (n > 0 && !p->done && p->bytes < until) {
		if (p->head.len > 0) {
			n = send_head(p, to);
		} else if (p->held > 0) {
			n = drain(p, to);
		} else if (p->eof) {
			/* One that was reset meanwhile says so by an event. */
			(void)shutdown(to, SHUT_WR);
			p->done = true;
		} else {
			n = fill(p, pipes, from, to);
			if (n == 0 && p->eof)
				n = 1;
		}
	}
	if (p->held == 0)
		pipe_give(pipes, p->pipe);
	else if (n > 0)
		p->stuck = true; /* what is in the pipe must go first */
	return n < 0 ? (int)n : 0;
}
