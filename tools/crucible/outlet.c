/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/outlet.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"

#define PIECE_BYTES (128u * 1024)
#define TURN_BYTES  (1024 * 1024) /* then the other stream has its turn */

int outlet_open(struct outlet *o, int dir, const char *name, int to, bool raw)
{
	*o = (struct outlet){ .from = -1, .to = to, .strip = !raw && to >= 0 && isatty(to) };
	buf_init(&o->pending, 4 * PIECE_BYTES); /* stripping makes at most three bytes of one */
	if (to < 0)
		return 0;
	o->from = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return o->from < 0 ? -errno : 0;
}

/* Write what is pending. At most PIPE_BUF bytes at once: that does not block after poll(2) said so, and while nobody
 * reads a signal gets through. */
static int write_pending(struct outlet *o, int interrupt, struct err *e)
{
	size_t at = 0;
	int r = 0;

	while (r == 0 && at < o->pending.len) {
		struct pollfd p[2] = { { .fd = o->to, .events = POLLOUT }, { .fd = interrupt, .events = POLLIN } };
		size_t left = o->pending.len - at;
		ssize_t n;

		if (poll(p, 2, -1) < 0 && errno != EINTR) {
			r = err_set(e, -errno, "poll: %s", strerror(errno));
		} else if (p[1].revents) {
			r = -EINTR;
		} else if (p[0].revents) {
			n = write(o->to, o->pending.data + at, left < PIPE_BUF ? left : PIPE_BUF);
			if (n > 0)
				at += (size_t)n;
			else if (n < 0 && errno != EINTR && errno != EAGAIN)
				r = err_set(e, -errno, "standard %s: %s", o->to == STDERR_FILENO ? "error" : "output",
					    strerror(errno));
		}
	}
	buf_drop(&o->pending, at);
	return r;
}

ssize_t outlet_move(struct outlet *o, int interrupt, struct err *e)
{
	static uint8_t piece[PIECE_BYTES];
	ssize_t moved = 0;

	for (;;) {
		ssize_t n;
		int r = write_pending(o, interrupt, e);

		if (r < 0)
			return r;
		if (o->from < 0 || moved >= TURN_BYTES)
			return moved;
		n = read(o->from, piece, sizeof(piece));
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return err_set(e, -errno, "the command's output: %s", strerror(errno));
		if (n <= 0)
			return moved;
		moved += n;
		r = o->strip ? printable_add(&o->state, piece, (size_t)n, &o->pending)
			     : buf_add(&o->pending, piece, (size_t)n);
		if (r < 0)
			return err_set(e, r, "no memory");
	}
}

int outlet_end(struct outlet *o, int interrupt, struct err *e)
{
	if (o->strip && printable_end(&o->state, &o->pending) < 0)
		return err_set(e, -ENOMEM, "no memory");
	return write_pending(o, interrupt, e);
}

void outlet_close(struct outlet *o)
{
	buf_fini(&o->pending);
	fd_close(&o->from);
}
