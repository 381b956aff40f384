/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/mcp/out.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define DROP_BYTES (1024u * 1024) /* what was written is dropped in pieces of this: each moves the rest */

void out_init(struct out *o, int fd, size_t max)
{
	*o = (struct out){ .fd = fd };
	buf_init(&o->text, max);
}

void out_fini(struct out *o)
{
	buf_fini(&o->text);
}

size_t out_left(const struct out *o)
{
	return o->text.len - o->at;
}

static ssize_t write_some(struct out *o)
{
	struct pollfd p = { .fd = o->fd, .events = POLLOUT };
	const uint8_t *data = o->text.data + o->at;
	size_t len = out_left(o);
	ssize_t n;

	if (!o->is_file) {
		n = send(o->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0 || errno != ENOTSOCK)
			return n < 0 ? -errno : n;
		/* A pipe that has room takes PIPE_BUF bytes at once. */
		if (poll(&p, 1, 0) <= 0)
			return -EAGAIN;
		if (len > PIPE_BUF)
			len = PIPE_BUF;
	}
	n = write(o->fd, data, len);
	return n < 0 ? -errno : n;
}

void out_flush(struct out *o)
{
	while (out_left(o) && !o->broken) {
		ssize_t n = write_some(o);

		if (n == -EAGAIN)
			break;
		if (n < 0 && n != -EINTR)
			o->broken = true;
		else if (n > 0)
			o->at += (size_t)n;
	}
	if (o->broken || !out_left(o)) {
		buf_reset(&o->text);
		o->at = 0;
	} else if (o->at >= DROP_BYTES) {
		buf_drop(&o->text, o->at);
		o->at = 0;
	}
}
