/* SPDX-License-Identifier: Apache-2.0 */
/* Our own terminal while a guest's is shown on it. One at a time in a process. It is restored at terminal_leave(), at
 * exit() and, because signals are blocked meanwhile (attach.c), at each of their ends too. Thread: main. */
#ifndef CRUCIBLE_TOOLS_TERMINAL_H
#define CRUCIBLE_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/* Standard input's terminal into raw mode: every key goes to the guest. -ENOTTY. Again after a stop: terminal_again().
 */
int terminal_enter(struct err *e);
void terminal_again(void);
void terminal_leave(void); /* fine when not entered */

/* Size of the terminal on standard output, else input, else 24 x 80. Always at least 1 x 1, at most 1000 x 1000. */
void terminal_size(unsigned *ret_rows, unsigned *ret_cols);

/* The way out of a guest that does not answer: "~." at the beginning of a line, as in ssh(1). */
struct escape {
	enum { ESCAPE_LINE, ESCAPE_TEXT, ESCAPE_TILDE } state; /* 0: at the beginning of a line */
};
/* Take what was typed, @len bytes into @out (at least @len + 1 bytes; a "~" held back may come first). Returns how many
 * bytes go to the guest; *ret_leave: "~." was typed, what is behind it is dropped. */
size_t escape_filter(struct escape *s, const char *typed, size_t len, char *out, bool *ret_leave);

#endif
