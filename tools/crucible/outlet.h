/* SPDX-License-Identifier: Apache-2.0 */
/* One stream of a command's output on its way to one of our descriptors. Thread: the caller's. */
#ifndef CRUCIBLE_TOOLS_OUTLET_H
#define CRUCIBLE_TOOLS_OUTLET_H

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"
#include "tools/crucible/printable.h"

struct outlet {
	int from;   /* a stream of the tree; owned; -1: none */
	int to;	    /* ours; borrowed; -1: none, then nothing is read */
	bool strip; /* `to` is a terminal that is to get no control characters */
	struct printable state;
	struct buf pending; /* read, not yet written: an interrupted write loses nothing */
};

/* Follow @name of the directory @dir to @to. @raw: as it is, also to a terminal. Errors: those of openat. */
int outlet_open(struct outlet *o, int dir, const char *name, int to, bool raw);
/* Pass on what is there, at most about a megabyte. @interrupt: a descriptor that ends the waiting for a slow reader
 * when it becomes readable (-1: none). Returns the bytes moved (0: none is there), -EINTR interrupted (call again),
 * -EPIPE, or -errno. */
ssize_t outlet_move(struct outlet *o, int interrupt, struct err *e);
/* The end: what was held back of a cut character. Errors: as outlet_move; -EINTR too: call again. */
int outlet_end(struct outlet *o, int interrupt, struct err *e);
void outlet_close(struct outlet *o);

#endif
