/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Output is read straight into the bulk queue, one piece an event, so that many commands share the port fairly. Who may
 * not send (no credit, no room) is not looked at by the loop: the pipe fills, and the command waits in write(2). So the
 * agent's memory does not depend on what commands print.
 *
 * Draining a background child must not cost more than the child: what stands in the pipe is spliced to /dev/null in one
 * call, then the output rests until the next tick. A pipe holds DRAIN_PIPE bytes then, so such a child is slowed down
 * to that much a tick, and an endless one wakes the agent 50 times a second, not 10000.
 */
#include "agent/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/pty.h"
#include "base/fd.h"

#define PIECE	     AG_PAYLOAD_MAX
#define TICK_NS	     20000000u
#define DRAIN_PIPE   (256 * 1024)
#define TTY_TAIL_MAX (128u * 1024) /* more than a terminal can hold */

static void on_output(void *arg, uint32_t events);

static void on_nudge(void *arg)
{
	struct output *o = arg;

	o->nudge = 0;
	on_output(o, EPOLLIN);
}

static void output_watch(struct output *o, bool on)
{
	if (on && o->is_tty && o->state == OUT_TAIL && !o->nudge)
		loop_defer(o->set->loop, on_nudge, o, &o->nudge);
	if (o->watched == on || !o->src)
		return;
	if (on) {
		if (loop_mod(o->set->loop, o->src, EPOLLIN) == 0)
			o->watched = true;
		return;
	}
	/* An end that hung up is reported even when nothing is asked for: with EPOLLET it is reported once. */
	if (loop_mod(o->set->loop, o->src, EPOLLET) == 0)
		o->watched = false;
}

static void output_unqueue(struct output *o)
{
	struct output **p = o->queued;

	if (!p)
		return;
	while (*p != o)
		p = &(*p)->next;
	*p = o->next;
	o->queued = NULL;
}

static void output_queue(struct output *o, struct output **list)
{
	output_unqueue(o);
	o->next = *list;
	*list = o;
	o->queued = list;
	output_watch(o, false);
}

int output_open(struct output *o, struct streams *set, uint32_t stream, enum ag_which which, int *fd, bool is_tty)
{
	o->set = set;
	o->stream = stream;
	o->which = which;
	o->state = OUT_LIVE;
	o->is_tty = is_tty;
	o->credit = AG_WINDOW;
	o->fd = take_fd(fd);
	o->watched = true;
	return loop_add(set->loop, o->fd, EPOLLIN, on_output, o, &o->src);
}

void output_close(struct output *o)
{
	if (!o->set)
		return;
	output_unqueue(o);
	loop_del(o->set->loop, &o->src);
	loop_del(o->set->loop, &o->nudge);
	fd_close(&o->fd);
	o->state = OUT_EOF;
}

static void output_ended(struct output *o)
{
	bool tail = o->state == OUT_TAIL;

	output_close(o);
	if (tail)
		o->on_tail(o->arg);
	else
		o->on_eof(o->arg);
}

void output_drain(struct output *o)
{
	if (!o->set || o->state == OUT_EOF)
		return;
	o->state = OUT_DRAIN;
	o->stream = 0;
	output_unqueue(o);
	if (!o->is_tty)
		fcntl(o->fd, F_SETPIPE_SZ, DRAIN_PIPE); /* or as it is */
	output_watch(o, true);
}

bool output_tail(struct output *o)
{
	int n = 0;

	if (!o->set || o->state != OUT_LIVE)
		return true;
	/* A terminal's bytes may still be on their way inside of the kernel: there the tail ends when it is empty. */
	if (o->is_tty)
		o->left = TTY_TAIL_MAX;
	else if (ioctl(o->fd, FIONREAD, &n) == 0)
		o->left = (uint64_t)n;
	if (o->left == 0) {
		output_drain(o);
		return true;
	}
	o->state = OUT_TAIL;
	if (o->credit && !o->queued)
		output_watch(o, true);
	return false;
}

int output_credit(struct output *o, uint32_t bytes)
{
	if (!o->set || o->stream == 0)
		return 0;
	if (bytes > AG_WINDOW - o->credit)
		return -EBADMSG;
	o->credit += bytes;
	if (o->credit && !o->queued)
		output_watch(o, true);
	return 0;
}

void output_renew(struct output *o)
{
	if (!o->set || o->stream == 0)
		return;
	o->credit = AG_WINDOW;
	o->sent = 0;
	if (!o->queued)
		output_watch(o, true);
}

/* -- from the command to the host --------------------------------------------------- */

/* One piece. Returns bytes, 0 at the end, -EAGAIN. */
static ssize_t output_send(struct output *o)
{
	size_t want = PIECE;
	uint8_t *at;
	ssize_t n;

	if (want > o->credit)
		want = o->credit;
	if (o->state == OUT_TAIL && want > o->left)
		want = o->left;
	if (conn_reserve(o->set->conn, want, &at) < 0)
		return -EAGAIN;
	do {
		n = read(o->fd, at, want);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -EAGAIN : 0; /* EIO: the terminal's last user is gone */
	if (n == 0)
		return 0;
	conn_commit(o->set->conn, AG_DATA, o->which, o->stream, (size_t)n);
	o->credit -= (uint32_t)n;
	o->sent += (uint64_t)n;
	return n;
}

/* Nothing can be sent now? Then it is looked at again when that has changed. */
static bool output_blocked(struct output *o)
{
	if (o->credit == 0)
		output_watch(o, false);
	else if (!conn_has_room(o->set->conn))
		output_queue(o, &o->set->starved);
	else
		return false;
	return true;
}

static void output_live(struct output *o)
{
	ssize_t n;

	if (output_blocked(o))
		return;
	n = output_send(o);
	if (n == 0)
		output_ended(o);
}

static void output_last(struct output *o)
{
	ssize_t n;

	/* A terminal is read until it is empty, since it does not tell how much it holds. */
	do {
		if (output_blocked(o))
			return;
		n = output_send(o);
		if (n == 0) {
			output_ended(o);
			return;
		}
		if (n > 0)
			o->left -= (uint64_t)n;
	} while (o->is_tty && n > 0 && o->left > 0);
	if (o->left > 0 && !o->is_tty)
		return;
	output_drain(o);
	o->on_tail(o->arg);
}

void streams_room(struct streams *s)
{
	struct output *list = s->starved;

	s->starved = NULL;
	for (struct output *o = list, *next; o; o = next) {
		next = o->next;
		o->queued = NULL;
		output_watch(o, true);
	}
}

/* -- from a background child to nowhere --------------------------------------------- */

static void on_tick(void *arg)
{
	struct streams *s = arg;
	struct output *list = s->resting;

	s->tick = 0;
	s->resting = NULL;
	for (struct output *o = list, *next; o; o = next) {
		next = o->next;
		o->queued = NULL;
		output_watch(o, true);
	}
}

static ssize_t drain_once(struct output *o)
{
	char junk[4096];
	ssize_t n, total = 0;

	if (!o->is_tty)
		return splice(o->fd, NULL, o->set->guest->null_fd, NULL, DRAIN_PIPE, SPLICE_F_NONBLOCK);
	while (total < DRAIN_PIPE && (n = read(o->fd, junk, sizeof(junk))) > 0)
		total += n;
	return total ? total : n;
}

static void output_dropped(struct output *o)
{
	ssize_t n = drain_once(o);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		output_ended(o);
		return;
	}
	/* Without a timer it is not put to rest: costly, but right. */
	if (!o->set->tick && loop_timer(o->set->loop, now_ns() + TICK_NS, on_tick, o->set, &o->set->tick) < 0)
		return;
	output_queue(o, &o->set->resting);
}

static void on_output(void *arg, uint32_t events)
{
	struct output *o = arg;

	(void)events;
	if (o->state == OUT_DRAIN)
		output_dropped(o);
	else if (o->state == OUT_TAIL)
		output_last(o);
	else
		output_live(o);
}

/* -- from the host to the command --------------------------------------------------- */

void stream_consumed(struct streams *s, uint32_t stream, enum ag_which which, uint32_t *window, uint32_t *consumed,
		     size_t len)
{
	uint8_t give[4];

	*consumed += (uint32_t)len;
	if (*consumed < AG_WINDOW / 4 || stream == 0)
		return;
	for (int i = 0; i < 4; i++)
		give[i] = (uint8_t)(*consumed >> (8 * i));
	if (conn_send(s->conn, CONN_BULK, AG_CREDIT, which, stream, give, sizeof(give)) < 0)
		return;
	*window += *consumed;
	*consumed = 0;
}

void input_open(struct input *in, struct streams *set, uint32_t stream)
{
	*in = (struct input){ .set = set, .stream = stream, .fd = -1, .last = '\n', .window = AG_WINDOW };
	buf_init(&in->buf, AG_WINDOW);
}

void input_close(struct input *in)
{
	if (!in->set)
		return;
	loop_del(in->set->loop, &in->src);
	fd_close(&in->fd);
	buf_fini(&in->buf);
	in->head = 0;
}

static void input_consumed(struct input *in, size_t len)
{
	stream_consumed(in->set, in->stream, AG_STDIN, &in->window, &in->consumed, len);
}

/* Write what the pipe takes of @data. Returns bytes taken; all of them once nobody reads any more. */
static size_t input_write(struct input *in, const uint8_t *data, size_t len)
{
	size_t done = 0;

	while (done < len && in->fd >= 0) {
		ssize_t n = write(in->fd, data + done, len - done);

		if (n > 0) {
			done += (size_t)n;
			in->last = data[done - 1];
		} else if (n < 0 && errno == EAGAIN) {
			return done;
		} else if (n < 0 && errno != EINTR) {
			loop_del(in->set->loop, &in->src);
			fd_close(&in->fd);
		}
	}
	return len;
}

/* Everything is written, and the host has no more. A terminal stays open: whoever reads it is told by its end-of-file
 * byte, twice behind an unfinished line (the first then only hands over the line). */
static void input_finish(struct input *in)
{
	int eof;

	if (!in->is_tty) {
		input_close(in);
		return;
	}
	eof = in->fd >= 0 ? pty_eof_byte(in->fd) : -1;
	if (eof >= 0) {
		uint8_t twice[2] = { (uint8_t)eof, (uint8_t)eof };

		input_write(in, twice, in->last == '\n' || in->last == (uint8_t)eof ? 1 : 2);
	}
}

static void on_input(void *arg, uint32_t events)
{
	struct input *in = arg;
	size_t n;

	(void)events;
	n = input_write(in, in->buf.data + in->head, in->buf.len - in->head);
	in->head += n;
	if (in->head == in->buf.len) {
		loop_del(in->set->loop, &in->src);
		buf_reset(&in->buf);
		in->head = 0;
		if (in->eof)
			input_finish(in);
	}
	input_consumed(in, n);
}

void input_start(struct input *in, int *fd, bool is_tty)
{
	in->fd = take_fd(fd);
	in->is_tty = is_tty;
	in->started = true;
	if (in->buf.len > 0 || in->eof)
		on_input(in, EPOLLOUT);
	if (in->buf.len > 0 && loop_add(in->set->loop, in->fd, EPOLLOUT, on_input, in, &in->src) < 0)
		input_close(in);
}

/* Keep what the pipe did not take. */
static void input_keep(struct input *in, const uint8_t *data, size_t len)
{
	if (in->head > 0) {
		buf_drop(&in->buf, in->head);
		in->head = 0;
	}
	if (buf_add(&in->buf, data, len) == 0 &&
	    (!in->started || in->src || loop_add(in->set->loop, in->fd, EPOLLOUT, on_input, in, &in->src) == 0))
		return;
	/* No memory: a hole in the input would be worse than its end. */
	input_close(in);
}

int input_data(struct input *in, const uint8_t *data, size_t len, bool eof)
{
	size_t n = 0;

	if (len > in->window || in->eof)
		return -EBADMSG;
	in->window -= (uint32_t)len;
	in->eof = eof;
	if (in->started && in->buf.len == in->head)
		n = input_write(in, data, len);
	if (n < len)
		input_keep(in, data + n, len - n);
	else if (in->started && eof && in->buf.len == in->head)
		input_finish(in);
	input_consumed(in, n);
	return 0;
}

void input_end(struct input *in)
{
	bool more = !in->eof;

	in->stream = 0;
	in->eof = true;
	if (more && in->started && in->buf.len == in->head)
		input_finish(in);
}
