/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/box/console.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define LOG	      "console.log"
#define LOG_NEW	      "console.log.new"
#define CHUNK	      4096
#define TAIL	      1024
#define READS_A_ROUND 16

struct console {
	struct loop *loop;
	int pipe, dirfd, file; /* file -1: the disk failed; the tail goes on */
	loop_id src;
	uint64_t size, keep;
	char tail[TAIL]; /* the last bytes, in order */
	size_t tail_len;
};

/* Copy the last `keep` bytes of the log to a new one that takes its place. 0 or -errno; then the old one stands. */
static int rotate(struct console *c)
{
	AUTO_FD fresh = openat(c->dirfd, LOG_NEW, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0660);
	uint64_t at = c->size > c->keep ? c->size - c->keep : 0, size = 0;
	char chunk[CHUNK];
	ssize_t n = 0;
	int r = fresh < 0 ? -errno : 0;

	while (r == 0 && (n = pread(c->file, chunk, sizeof(chunk), (off_t)at)) > 0) {
		r = fd_write_all(fresh, chunk, (size_t)n);
		at += (uint64_t)n;
		size += (uint64_t)n;
	}
	if (r == 0 && n < 0)
		r = -errno;
	if (r == 0 && renameat(c->dirfd, LOG_NEW, c->dirfd, LOG) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(c->dirfd, LOG_NEW, 0);
		return r;
	}
	fd_close(&c->file);
	c->file = take_fd(&fresh);
	c->size = size;
	return 0;
}

static void keep_tail(struct console *c, const char *data, size_t len)
{
	if (len >= TAIL) {
		data += len - TAIL;
		len = TAIL;
	}
	if (c->tail_len + len > TAIL) {
		size_t drop = c->tail_len + len - TAIL;

		c->tail_len -= drop;
		memmove(c->tail, c->tail + drop, c->tail_len);
	}
	memcpy(c->tail + c->tail_len, data, len);
	c->tail_len += len;
}

static void take(struct console *c, const char *data, size_t len)
{
	keep_tail(c, data, len);
	if (c->file >= 0 && c->size >= 2 * c->keep && rotate(c) < 0)
		return; /* full disk: this piece is lost to the log, the next one tries again */
	if (c->file >= 0 && fd_pwrite_all(c->file, data, len, c->size) == 0)
		c->size += len;
}

/* False at the end of the pipe, or when it is empty. */
static bool read_some(struct console *c)
{
	char chunk[CHUNK];
	ssize_t n = c->pipe < 0 ? -1 : read(c->pipe, chunk, sizeof(chunk));

	if (n > 0) {
		take(c, chunk, (size_t)n);
		return true;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		loop_del(c->loop, &c->src);
		fd_close(&c->pipe);
	}
	return false;
}

static void on_pipe(void *arg, uint32_t events)
{
	(void)events;
	for (int i = 0; i < READS_A_ROUND && read_some(arg); i++)
		;
}

void console_drain(struct console *c)
{
	/* Bounded: whoever prints without end does not hold us here. */
	for (int i = 0; c && i < 4 * READS_A_ROUND && read_some(c); i++)
		;
}

int console_new(struct loop *l, int pipe_fd, int dirfd, uint64_t keep, struct console **ret, struct err *e)
{
	struct console *c = calloc(1, sizeof(*c));
	struct stat st = { 0 };
	int r;

	if (!c) {
		fd_close(&pipe_fd);
		return err_set(e, -ENOMEM, "console: no memory");
	}
	*c = (struct console){ .loop = l, .pipe = pipe_fd, .dirfd = dirfd, .keep = keep };
	c->file = openat(dirfd, LOG, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0660);
	r = c->file < 0 || fstat(c->file, &st) < 0 ? -errno : 0;
	if (r == 0)
		c->size = (uint64_t)st.st_size;
	if (r == 0)
		r = fd_set_nonblock(pipe_fd, true);
	if (r == 0)
		r = loop_add(l, pipe_fd, EPOLLIN, on_pipe, c, &c->src);
	if (r < 0) {
		console_free(c);
		return err_set(e, r, "console: %s", err_name(r));
	}
	*ret = c;
	return 0;
}

struct console *console_free(struct console *c)
{
	if (!c)
		return NULL;
	loop_del(c->loop, &c->src);
	fd_close(&c->pipe);
	fd_close(&c->file);
	free(c);
	return NULL;
}

/* Where the escape sequence that begins at @i ends: colours and cursor movements are no words. */
static size_t skip_escape(const struct console *c, size_t i)
{
	if (i + 1 < c->tail_len && c->tail[i + 1] == '[')
		for (i += 2; i < c->tail_len && (c->tail[i] < 0x40 || c->tail[i] > 0x7e); i++)
			;
	return i;
}

void console_tail(const struct console *c, char *out, size_t cap)
{
	char line[3 * TAIL];
	size_t n = 0, from;
	bool line_end = false;

	for (size_t i = 0; i < c->tail_len; i++) {
		char b = c->tail[i];

		if (b == '\n' || b == '\r') {
			line_end = n > 0;
			continue;
		}
		if (b == '\033')
			i = skip_escape(c, i);
		if (b < 0x20 || b == 0x7f) /* char is signed here: bytes above 0x7f go as well */
			continue;
		if (line_end) {
			line[n++] = ' ';
			line[n++] = '|';
			line[n++] = ' ';
			line_end = false;
		}
		line[n++] = b;
	}
	/* The end matters more than the beginning. */
	from = n < cap ? 0 : n - cap + 1;
	memcpy(out, line + from, n - from);
	out[n - from] = '\0';
}
