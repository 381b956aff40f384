/* SPDX-License-Identifier: Apache-2.0 */
/* Being the command's standard streams until it ends: its output to ours, our input to it, signals to it. */
#ifndef CRUCIBLE_TOOLS_ATTACH_H
#define CRUCIBLE_TOOLS_ATTACH_H

#include <stdbool.h>
#include "base/err.h"
#include "tools/crucible/record.h"
#include "tools/crucible/slot.h"

enum attach_signals {
	ATTACH_KILL,	/* SIGINT kills the command */
	ATTACH_FORWARD, /* SIGINT is passed on first; a second one kills */
};

struct attach {
	int out, err; /* where its output goes; -1: nowhere (it stays in the record) */
	int in;	      /* what it reads; -1: nothing */
	bool raw;     /* a terminal gets the guest's bytes as they are */
	bool tty;     /* `in` is our terminal, in raw mode: follow its size, watch for "~." */
	enum attach_signals signals;
};

/* Run the loop until the command's record is there and its output passed on. *ret_signal: the signal that made us end
 * it (SIGINT, SIGTERM, SIGHUP, SIGQUIT; SIGUSR1 to this thread is how
 * another one cancels it), 0 when it ended by itself; then, too, @ret is filled where there is a record (text
 * NULL: there is none). Blocks. Errors: -EPIPE our output is closed (the command is killed); -ENOENT the sandbox was
 * removed; -ENOTCONN the daemon has gone; -ECANCELED "~."; those of read and write, with words. */
int attach_run(struct slot *t, const struct attach *a, struct record *ret, int *ret_signal, struct err *e);

#endif
