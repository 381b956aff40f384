/* SPDX-License-Identifier: Apache-2.0 */
/* The standard streams of a command: pipes (or a terminal's master) on one side, DATA and CREDIT frames on bulk on the
 * other. Embedded in struct exec. Thread: the loop's. Nothing blocks.
 *
 * | state of an output | what is read goes                      | next |
 * |--------------------|----------------------------------------|---------------------------------------------------------|
 * | OUT_LIVE           | to the host, within credit and room    | TAIL when the command's process ended; EOF | |
 * OUT_TAIL           | to the host, but only what stood in    | DRAIN when that is sent (then on_tail is called); EOF |
 * |                    | the pipe when the process ended        | | | OUT_DRAIN          | nowhere: a background child
 * still      | EOF (then on_eof is called)                             | |                    | writes, and must not
 * get SIGPIPE       |                                                         | | OUT_EOF            | closed | |
 */
#ifndef CRUCIBLE_AGENT_STREAM_H
#define CRUCIBLE_AGENT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "agent/conn.h"
#include "agent/guest.h"
#include "base/buf.h"
#include "base/loop.h"

struct output;

/* Shared by all streams of an agent. */
struct streams {
	struct loop *loop;
	struct conn *conn;
	const struct guest *guest;
	struct output *starved; /* outputs that wait for room on bulk */
	struct output *resting; /* drained ones that wait for the tick */
	loop_id tick;
};

enum output_state { OUT_LIVE, OUT_TAIL, OUT_DRAIN, OUT_EOF };

struct output {
	struct streams *set;
	uint32_t stream; /* 0: nobody listens any more */
	enum ag_which which;
	enum output_state state;
	int fd;
	bool is_tty;
	loop_id src;
	loop_id nudge;		/* a deferred look: an empty terminal never wakes us */
	bool watched;		/* the loop looks for input */
	uint32_t credit;	/* bytes that may still be sent */
	uint64_t sent;		/* bytes that were */
	uint64_t left;		/* OUT_TAIL: bytes still to send at most */
	struct output **queued; /* the list it stands in (starved, resting), or NULL */
	struct output *next;
	void (*on_tail)(
		void *arg); /* the tail is sent, or there is none: at most once, never inside a call of this header */
	void (*on_eof)(void *arg); /* closed; the same */
	void *arg;
};

/* Takes *@fd. Errors: those of loop_add. */
int output_open(struct output *o, struct streams *set, uint32_t stream, enum ag_which which, int *fd, bool is_tty);
void output_close(struct output *o); /* at once; no callback comes any more; an output of zeros is fine */
/* The host gave credit back. -EBADMSG when it is more than it had taken. */
int output_credit(struct output *o, uint32_t bytes);
/* The command's process has ended: send what stands in the pipe, no more. true when nothing is to be waited for. */
bool output_tail(struct output *o);
/* A new epoch, and the host goes on listening: credit and count begin anew. What was sent before is not sent again. */
void output_renew(struct output *o);
/* Nobody listens any more: drop everything from now on. */
void output_drain(struct output *o);
void streams_room(struct streams *s); /* bulk has room again */

struct input {
	struct streams *set;
	uint32_t stream;
	int fd; /* -1 once started: closed, or dead: what comes is dropped, and credit is given back all the same */
	bool started; /* before: what comes is kept */
	bool is_tty, eof;
	uint8_t last; /* is_tty: the last byte written */
	loop_id src;
	uint32_t window;   /* bytes the host may still send */
	uint32_t consumed; /* bytes not yet given back */
	struct buf buf;	   /* what the pipe did not take; at most AG_WINDOW */
	size_t head;
};

void input_open(struct input *in, struct streams *set, uint32_t stream);
/* The command begins. Takes *@fd (-1: it has no input, whatever is sent is dropped). */
void input_start(struct input *in, int *fd, bool is_tty);
void input_close(struct input *in); /* an input of zeros is fine */
void input_end(struct input *in); /* the host has no more, and is told nothing more: end of file behind what is here */
/* DATA of the host. -EBADMSG beyond its window or behind its end. */
int input_data(struct input *in, const uint8_t *data, size_t len, bool eof);

/* Give credit back in pieces of a quarter window; also for scripts. */
void stream_consumed(struct streams *s, uint32_t stream, enum ag_which which, uint32_t *window, uint32_t *consumed,
		     size_t len);

#endif
