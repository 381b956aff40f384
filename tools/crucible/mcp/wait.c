/* SPDX-License-Identifier: Apache-2.0 */
/* wait_for_text: a file of the guest, or a stream of the sandbox, read until it holds a text. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/loop.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/mcp/call.h"

#define TIMEOUT_MS 30000 /* where none is named */
#define PIECE	   65536
#define HELD_MAX   (1024u * 1024) /* of what was read, the end that is kept: the text, and its line */
#define LINE_BYTES 4096

struct search {
	const char *text;
	size_t len;
	struct buf held;
	uint64_t at; /* offset of held.data[0] */
	size_t seen; /* nothing begins before this place of it */
};

/* Returns a pointer into held, or NULL. */
static const uint8_t *look(struct search *s)
{
	const uint8_t *hit = NULL;

	if (s->held.len >= s->seen + s->len)
		hit = memmem(s->held.data + s->seen, s->held.len - s->seen, s->text, s->len);
	if (hit)
		return hit;
	s->seen = s->held.len >= s->len ? s->held.len - s->len + 1 : 0;
	if (s->held.len > HELD_MAX / 2 && s->seen > LINE_BYTES) {
		size_t drop = s->seen - LINE_BYTES;

		buf_drop(&s->held, drop);
		s->at += drop;
		s->seen -= drop;
	}
	return NULL;
}

static int tell(struct call *c, const struct search *s, const uint8_t *hit)
{
	struct json_object *o = json_object_new_object();
	int r = o ? fields_put(o, "found", json_object_new_boolean(hit != NULL)) : -ENOMEM;

	if (hit && r == 0) {
		const uint8_t *begin = hit, *end = hit + s->len, *stop = s->held.data + s->held.len;

		while (begin > s->held.data && begin[-1] != '\n' && hit - begin < LINE_BYTES)
			begin--;
		while (end < stop && *end != '\n' && end - hit < LINE_BYTES)
			end++;
		r = fields_put(o, "offset", json_object_new_uint64(s->at + (uint64_t)(hit - s->held.data)));
		if (r == 0)
			r = fields_put(o, "line", json_text(begin, (size_t)(end - begin)));
	}
	c->result = o;
	return r < 0 ? err_set(&c->cli.err, r, "no memory") : 0;
}

/* What is there from s->at + held.len on. Returns bytes or -errno. */
static ssize_t read_more(struct search *s, int fd)
{
	uint8_t *to;
	ssize_t n;

	if (buf_reserve(&s->held, PIECE, &to) < 0)
		return -ENOMEM;
	n = pread(fd, to, PIECE, (off_t)(s->at + s->held.len));
	if (n > 0)
		s->held.len += (size_t)n;
	return n < 0 && errno != EINTR && errno != EAGAIN ? -errno : n < 0 ? 0 : n;
}

static int open_stream(struct call *c, struct sbx *s, const char *stream)
{
	const char *name = !strcmp(stream, "console") ? "console.log" : stream;
	int fd = openat(s->dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 ? err_set(&c->cli.err, -errno, "stream: %s: %s", name, strerror(errno)) : fd;
}

/* *ret_fd stays -1 for a file that is not there yet: it may come. */
static int open_either(struct call *c, struct sbx *s, int *ret_fd)
{
	const char *path = call_text(c, "path");
	int fd = path ? open_guest_file(c, s, path, O_RDONLY | O_NONBLOCK, 0)
		      : open_stream(c, s, call_text(c, "stream") ?: "stdout");

	if (fd >= 0)
		*ret_fd = fd;
	return fd >= 0 || (path && fd == -ENOENT) ? 0 : fd;
}

static int wait_for(struct call *c, struct sbx *sbx, struct search *s, uint64_t end_ns)
{
	struct follow f = { 0 };
	AUTO_FD fd = -1;

	for (;;) {
		bool moved = false;
		const uint8_t *hit;
		ssize_t n = 0;
		int r = fd < 0 ? open_either(c, sbx, &fd) : 0;

		if (r < 0)
			return r;
		while (fd >= 0 && (n = read_more(s, fd)) > 0) {
			moved = true;
			hit = look(s);
			if (hit)
				return tell(c, s, hit);
		}
		if (n < 0)
			return err_set(&c->cli.err, (int)n, "path, stream: %s", strerror((int)-n));
		r = call_check(c);
		if (r < 0)
			return r;
		if (now_ns() >= end_ns)
			return tell(c, s, NULL);
		struct pollfd p = { .fd = fd, .events = POLLIN };
		/* Files of a guest tell nothing by poll(2): as a stream that is always ready. */
		f.idle = fd < 0 || call_text(c, "path") ? (f.idle < 2 ? 2 : f.idle) : f.idle;
		f.was_ready = f.was_ready || fd < 0 || call_text(c, "path") != NULL;
		r = follow_wait(&f, &p, 1, 1, moved && !call_text(c, "path"));
		if (r < 0)
			return err_set(&c->cli.err, r, "poll: %s", strerror(-r));
	}
}

int tool_wait_for_text(struct call *c)
{
	struct search search = { .text = call_text(c, "text") };
	struct json_object *v;
	uint64_t ms = TIMEOUT_MS;
	struct sbx s;
	int r;

	search.len = strlen(search.text);
	if (!search.len || search.len > LINE_BYTES)
		return err_set(&c->cli.err, -EINVAL, "text: from 1 to %d bytes", LINE_BYTES);
	if (call_text(c, "path") && call_text(c, "stream"))
		return err_set(&c->cli.err, -EINVAL, "path, stream: give one of them");
	if (json_object_object_get_ex(c->in, "timeout_s", &v) && json_object_get_double(v) < 1e6)
		ms = (uint64_t)(json_object_get_double(v) * 1000.0);
	else if (v)
		ms = 1000000000u;
	ms = ms ? guard_timeout_ms(c->guard, ms) : 0; /* 0: look once */
	r = open_sandbox(c, &s);
	if (r < 0)
		return r;
	buf_init(&search.held, HELD_MAX);
	r = wait_for(c, &s, &search, now_ns() + ms * 1000000u);
	buf_fini(&search.held);
	sbx_close(&s);
	return r;
}
