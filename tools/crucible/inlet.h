/* SPDX-License-Identifier: Apache-2.0 */
/* Our standard input on its way to a command. Thread: the caller's. */
#ifndef CRUCIBLE_TOOLS_INLET_H
#define CRUCIBLE_TOOLS_INLET_H

#include <stdbool.h>
#include "base/buf.h"
#include "base/err.h"
#include "tools/crucible/slot.h"
#include "tools/crucible/terminal.h"

struct inlet {
	struct slot *slot; /* borrowed */
	int from;	   /* ours; borrowed; -1: ended */
	int to;		   /* the slot's `stdin`, non-blocking; owned; -1: ended */
	bool tty;	   /* watch for "~." */
	bool eof_said;
	bool whole; /* `to` is `.stdin`: SFTP has one word for "not now" and "never", and only the record tells them
		       apart */
	struct escape escape;
	struct buf pending; /* read, not yet taken by the guest */
};

/* @from -1: the command is told the end of its input at once. @tells: follow_tells() of the slot's files; if not, input
 * goes through `.stdin`, which never waits, in pieces that are taken whole or not at all. Errors: those of openat and
 * of the slot's ctl, with words. */
int inlet_open(struct inlet *i, struct slot *t, int from, bool tty, bool tells, struct err *e);
/* Move on what can be moved without blocking. @readable: poll(2) says so of `from`. Returns 1 when something moved, 0,
 * -ECANCELED for "~.", or -errno. A command that no longer reads is no error: the rest is dropped. */
int inlet_move(struct inlet *i, bool readable, struct err *e);
/* What to wait for: descriptors for poll(2), -1 for nothing. */
int inlet_wants_input(const struct inlet *i);
int inlet_wants_room(const struct inlet *i);
void inlet_close(struct inlet *i);

#endif
