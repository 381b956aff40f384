/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/follow.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"

#define LINE_MAX_BYTES (4u * 1024 * 1024)
#define READ_BYTES     (64u * 1024)

static _Thread_local const atomic_bool *cancel_flag;

void follow_cancel_by(const atomic_bool *flag)
{
	cancel_flag = flag;
}

bool follow_is_cancelled(void)
{
	return cancel_flag && atomic_load(cancel_flag);
}

bool follow_tells(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDNORM };

	/* The daemon answers in POLLIN and POLLOUT alone. A file system without poll leaves the answer to the kernel,
	 * whose "always ready" has every bit. */
	return poll(&p, 1, 0) >= 0 && !(p.revents & POLLRDNORM);
}

int follow_wait(struct follow *f, struct pollfd *fds, size_t ntree, size_t n, bool moved)
{
	size_t skip = 0;
	int timeout = FOLLOW_TICK_MS;

	if (moved || !f->was_ready)
		f->idle = 0;
	else if (f->idle < 16)
		f->idle++;
	/* Once can be a race with a reader that was quicker than the notice. Twice is a file that cannot tell. */
	if (f->idle >= 2) {
		skip = ntree;
		timeout = 5 << (f->idle - 2);
		if (f->idle > 6 || timeout > FOLLOW_SLEEP_MAX_MS)
			timeout = FOLLOW_SLEEP_MAX_MS;
	}
	for (size_t i = 0; i < n; i++)
		fds[i].revents = 0;
	if (poll(fds + skip, n - skip, timeout) < 0 && errno != EINTR)
		return -errno;
	f->was_ready = skip > 0;
	for (size_t i = 0; i < ntree; i++)
		f->was_ready = f->was_ready || fds[i].revents;
	return 0;
}

static bool is_replaced(int fd)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	struct stat st;

	return at > 0 && fstat(fd, &st) == 0 && st.st_size < at;
}

int follow_lines(int fd, bool follow, int (*fn)(void *arg, char *line, size_t len), void *arg)
{
	struct follow f = { 0 };
	struct buf text;
	bool moved = false;
	int r = 0;

	buf_init(&text, LINE_MAX_BYTES);
	while (r == 0) {
		size_t at = 0;
		uint8_t *to, *newline;
		ssize_t n;

		r = buf_reserve(&text, READ_BYTES, &to);
		if (r < 0)
			break;
		n = read(fd, to, READ_BYTES);
		if (n < 0 && errno != EINTR && errno != EAGAIN) {
			r = -errno;
			break;
		}
		if (n > 0) {
			text.len += (size_t)n;
			moved = true;
		}
		while (r == 0 && text.len > at && (newline = memchr(text.data + at, '\n', text.len - at))) {
			size_t len = (size_t)(newline - text.data) - at;

			*newline = '\0';
			r = fn(arg, (char *)text.data + at, len);
			at += len + 1;
		}
		buf_drop(&text, at);
		if (n > 0 || r != 0)
			continue;
		if (n == 0 && !follow)
			break;
		/* Nobody will be told any more: found out now, not with the next line. */
		struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = STDOUT_FILENO } };
		r = follow_wait(&f, p, 1, 2, moved);
		if (r == 0 && p[1].revents & POLLERR)
			r = -EPIPE;
		moved = false;
		if (r == 0 && is_replaced(fd))
			r = FOLLOW_REPLACED;
	}
	buf_fini(&text);
	return r;
}
