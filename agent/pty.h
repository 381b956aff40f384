/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo terminals of commands with "tty". Thread: the loop's. */
#ifndef CRUCIBLE_AGENT_PTY_H
#define CRUCIBLE_AGENT_PTY_H

#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

/* Both ends of a new terminal of that size, opened without a path that a command could change. @devpts_fd: /dev/pts.
 * Errors: -errno in words. */
int pty_open(int devpts_fd, uint16_t rows, uint16_t cols, int *ret_master, int *ret_slave, struct err *e);
/* 0 or -errno; the foreground group gets SIGWINCH from the kernel. */
int pty_resize(int master, uint16_t rows, uint16_t cols);
/* The foreground process group, -errno if there is none. */
pid_t pty_foreground(int master);
/* The byte that means end of file to who reads the terminal, or -1 while it is in raw mode: then there is no such
 * thing. */
int pty_eof_byte(int master);
/* In the child, a session leader already: make @slave its controlling terminal. 0 or -errno. */
int pty_take(int slave);

#endif
