/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for files that grow. The tree's streams tell poll(2) when there is more to read, so waiting costs nothing.
 * Where they do not (the mount through sshfs, plain files in a test) poll answers "ready" at once for ever; that is
 * noticed, and the wait becomes a sleep that grows to FOLLOW_SLEEP_MAX_MS. Thread: the caller's. */
#ifndef CRUCIBLE_TOOLS_FOLLOW_H
#define CRUCIBLE_TOOLS_FOLLOW_H

#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

#define FOLLOW_SLEEP_MAX_MS 100
#define FOLLOW_TICK_MS	    1000 /* look again after this time whatever poll says */

struct follow {		/* all zero at the start */
	unsigned idle;	/* rounds in a row in which "ready" was not true */
	bool was_ready; /* the last round ended because a file of the tree was ready */
};

/* Read everything there is, then call this. @fds[0..ntree) are files of the tree, the rest (to @n) are others (signals,
 * our own standard input). @moved: something was read or written since the last call. On return `revents` are set; what
 * was not asked about in a round of sleep has 0. Blocks. Returns 0 or -errno of poll (EINTR counts as a return with
 * nothing ready). */
int follow_wait(struct follow *f, struct pollfd *fds, size_t ntree, size_t n, bool moved);

/* Does poll(2) tell the truth of @fd, a stream of the tree or a slot's `stdin`? Where it does not (sshfs), O_NONBLOCK
 * is not carried either: an open or a write that would wait holds up everybody on that connection. Never blocks. */
bool follow_tells(int fd);

/* Of a thread whose waits another one may cancel: it sets *@flag and then sends a signal that interrupts poll(2). Until
 * this is called with NULL the flag must live. Those who wait ask follow_is_cancelled() after each follow_wait(). */
void follow_cancel_by(const atomic_bool *flag);
bool follow_is_cancelled(void);

#define FOLLOW_REPLACED 0x10000 /* of follow_lines(): the file was begun anew, open it again */

/* Hand over the lines of @fd, one by one, without their newline; a last line without one is held back. With @follow it
 * goes on until @fn returns non-zero, the file is gone (-ESTALE), or it has become shorter than what was read: then a
 * journal was put aside, and another one stands in its place (FOLLOW_REPLACED). @fn may change the line. Returns what
 * @fn returned, 0 at the end, FOLLOW_REPLACED, -EPIPE when nobody reads our standard output any more, or -errno of
 * read. */
int follow_lines(int fd, bool follow, int (*fn)(void *arg, char *line, size_t len), void *arg);

#endif
