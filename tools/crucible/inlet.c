/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/inlet.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define PIECE_BYTES (64u * 1024)
#define WHOLE_BYTES (16u * 1024) /* less than what SFTP carries in one message */

/* The command has ended, or its slot has: whoever waits for the record will hear of it. */
static bool is_end(int code)
{
	return code == -EPIPE || code == -ENOENT || code == -ESTALE || code == -ENOTCONN;
}

static int say_eof(struct inlet *i, struct err *e)
{
	struct err why = { 0 };
	int r;

	fd_close(&i->to);
	i->from = -1;
	if (i->eof_said)
		return 0;
	i->eof_said = true;
	r = slot_ctl(i->slot, "eof", &why);
	return r < 0 && !is_end(r) ? err_set(e, r, "%s", why.msg) : 0;
}

int inlet_open(struct inlet *i, struct slot *t, int from, bool tty, bool tells, struct err *e)
{
	*i = (struct inlet){ .slot = t, .from = from, .to = -1, .tty = tty };
	buf_init(&i->pending, PIECE_BYTES + 1);
	if (from < 0) {
		i->eof_said = true; /* the request said that there is none */
		return 0;
	}
	if (!tells)
		i->to = openat(t->dir, ".stdin", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	i->whole = i->to >= 0;
	if (i->to < 0)
		i->to = openat(t->dir, "stdin", O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	if (i->to < 0)
		return err_set(e, -errno, "exec/%s/stdin: %s", t->name, strerror(errno));
	return 0;
}

/* One read. Returns the bytes, 0 at the end, -ECANCELED, or -errno. */
static ssize_t fill(struct inlet *i, struct err *e)
{
	char typed[PIECE_BYTES];
	uint8_t *to;
	bool leave = false;
	ssize_t n;

	n = read(i->from, typed, sizeof(typed));
	if (n < 0)
		return errno == EINTR || errno == EAGAIN ? -EAGAIN
							 : err_set(e, -errno, "standard input: %s", strerror(errno));
	if (n == 0 || buf_reserve(&i->pending, (size_t)n + 1, &to) < 0)
		return n == 0 ? 0 : err_set(e, -ENOMEM, "no memory");
	if (i->tty) {
		i->pending.len += escape_filter(&i->escape, typed, (size_t)n, (char *)to, &leave);
		return leave ? -ECANCELED : n;
	}
	memcpy(to, typed, (size_t)n);
	i->pending.len += (size_t)n;
	return n;
}

int inlet_move(struct inlet *i, bool readable, struct err *e)
{
	int moved = 0;
	ssize_t n;

	if (i->from >= 0 && readable && !i->pending.len) {
		n = fill(i, e);
		if (n == 0)
			return say_eof(i, e);
		if (n < 0 && n != -EAGAIN)
			return (int)n;
		moved = n > 0;
	}
	while (i->to >= 0 && i->pending.len) {
		size_t len = i->whole && i->pending.len > WHOLE_BYTES ? WHOLE_BYTES : i->pending.len;

		n = write(i->to, i->pending.data, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || (i->whole && (errno == EPERM || errno == EIO))))
			break;
		if (n < 0 && is_end(-errno)) {
			buf_reset(&i->pending);
			i->eof_said = true;
			return say_eof(i, e);
		}
		if (n < 0)
			return err_set(e, -errno, "the command's input: %s", strerror(errno));
		buf_drop(&i->pending, (size_t)n);
		moved = 1;
	}
	return moved;
}

int inlet_wants_input(const struct inlet *i)
{
	return i->pending.len ? -1 : i->from;
}

int inlet_wants_room(const struct inlet *i)
{
	return i->pending.len ? i->to : -1;
}

void inlet_close(struct inlet *i)
{
	fd_close(&i->to);
	buf_fini(&i->pending);
}
