/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's serial console: from a pipe into console.log, of which the newest CONSOLE_KEEP to 2 * CONSOLE_KEEP bytes
 * stay. The last lines are remembered for the words of a boot that failed. Thread: the loop's. */
#ifndef CRUCIBLE_VMM_BOX_CONSOLE_H
#define CRUCIBLE_VMM_BOX_CONSOLE_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/loop.h"

#define CONSOLE_KEEP (2u * 1024 * 1024)

struct console;
/* Takes @pipe_fd, also on failure. @dirfd: where console.log lies; borrowed for life. A console.log of an earlier boot
 * is added to. Errors: -ENOMEM, those of open. */
int console_new(struct loop *l, int pipe_fd, int dirfd, uint64_t keep, struct console **ret, struct err *e);
struct console *console_free(struct console *c); /* NULL is fine; returns NULL */
/* Read what is in the pipe now: before the last words are asked for. */
void console_drain(struct console *c);
/* The last lines as one line of words: control characters stripped, lines joined by " | ". "" when nothing was printed.
 */
void console_tail(const struct console *c, char *out, size_t cap);

#endif
