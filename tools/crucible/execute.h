/* SPDX-License-Identifier: Apache-2.0 */
/* One command in a sandbox, by the flags of `run`, `sandbox exec` and `shell`: slot, request, streams, exit code. */
#ifndef CRUCIBLE_TOOLS_EXECUTE_H
#define CRUCIBLE_TOOLS_EXECUTE_H

#include "tools/crucible/attach.h"
#include "tools/crucible/command.h"
#include "tools/crucible/sbx.h"

struct execute {
	const char *const *argv; /* NULL-ended; NULL: @script */
	const char *script;	 /* instead of @argv */
	bool input;		 /* our standard input is the command's */
	const char *text;	 /* without `input`: what the command reads; may be NULL */
	bool tty;		 /* a terminal for the guest; raw mode when ours is one */
	bool endless;		 /* no deadline unless --timeout names one: what a person sits before */
	enum attach_signals signals;
};

/* Returns the exit code (the command's; 124, 128+N, EXIT_CRUCIBLE) with everything said that is to be said, or -errno
 * with words in c->err. With -o json the record is printed instead of the output (with c->answer: it is there unless a
 * signal ended us; then 128+N is returned). Blocks until the end. */
int execute(struct cli *c, struct sbx *s, const struct execute *x);

/* For `cp`: run @argv to its end; its output stays in the slot *ret, a file `stdout` that the caller reads and then
 * removes with the slot. Returns 0 when it ended with exit code 0, else -errno with words: -EIO what the guest said,
 * -EFBIG the output was cut, -EINTR with *ret_signal set; the slot is removed then. */
int execute_captured(struct sbx *s, const char *const *argv, struct slot *ret, int *ret_signal, struct err *e);

#endif
