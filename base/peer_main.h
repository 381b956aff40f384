/* SPDX-License-Identifier: Apache-2.0 */
/* What the main files of the daemon's peers (netd, pager, store) have in common, in the order it is called:
 *
 *	peer_main_begin()	before anything else
 *	peer_main_listener()	for each descriptor that the launcher hands over
 *	confine_program()	(confine.h) once all is open that the list of system calls does not allow
 *	peer_main_end()		the last line of main()
 *
 * Thread: the only one of the process, unless a function says otherwise. Nothing here blocks. Linking this also turns
 * the leak checker of AddressSanitizer off by default: it stops its process from a helper, which a confined one does
 *not allow, and the launcher hands no environment on. Unit tests that look for leaks say so in ASAN_OPTIONS. */
#ifndef CRUCIBLE_BASE_PEER_MAIN_H
#define CRUCIBLE_BASE_PEER_MAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Log as @name (which must live on) at level info; no SIGPIPE; @mask is what new files do not get. */
void peer_main_begin(const char *name, mode_t mask);

/* A whole decimal number up to @max; *@ret is written in any case. */
bool peer_main_number(const char *text, uint64_t max, uint64_t *ret);

/* As many open files as the hard limit allows. */
void peer_main_files(void);

/* Close @fd on exec; it must be there, or the next file that is opened would be taken for it.
 * Errors: -EBADF, with words. */
int peer_main_listener(int fd, struct err *e);

/* A loop_fn that ends the loop @loop (struct loop *). */
void peer_main_stop(void *loop);

/* @r < 0: @e is logged. Returns the exit status. */
int peer_main_end(int r, const struct err *e);

#endif
