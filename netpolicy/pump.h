/* SPDX-License-Identifier: Apache-2.0 */
/* One direction of a connection: bytes from one socket to another, by splice() through a pipe. Thread: one loop's.
 *
 * A pump has a pipe only while bytes are in it: what is idle holds none. It reads only when everything it read before
 * has been written, so that at most one pipe of bytes is held, and the kernel's windows hold back the sender. */
#ifndef CRUCIBLE_NETPOLICY_PUMP_H
#define CRUCIBLE_NETPOLICY_PUMP_H

#include <stdbool.h>
#include "base/buf.h"

#define PUMP_PIPE_BYTES (256 * 1024) /* asked for; the kernel gives less to a user that has many */
#define PUMP_TURN_BYTES (512u * 1024u)
#define PIPES_KEPT	4u

/* Pipes that nobody uses at the moment. All zero is an empty one. */
struct pipes {
	int fd[PIPES_KEPT][2];
	unsigned n;
};
void pipes_close(struct pipes *p);

struct pump {
	struct buf head; /* goes first: what was read from the source before there was a pump */
	int pipe[2];	 /* -1: none */
	size_t held;	 /* bytes in it */
	uint64_t bytes;	 /* written */
	bool eof;	 /* the source has ended */
	bool done;	 /* and the target was told */
	bool stuck;	 /* waits for the target; else for the source */
	bool copy;	 /* by read and write: these cannot be spliced */
};
void pump_init(struct pump *p, size_t head_max);
void pump_fini(struct pump *p);
/* Move what can be moved, PUMP_TURN_BYTES or a little more: 0, and `stuck` or `done` say how it goes on. What fails is
 * one of the sockets: its -errno. Both do not block; the process ignores SIGPIPE. */
int pump_turn(struct pump *p, struct pipes *pipes, int from, int to);

#endif
