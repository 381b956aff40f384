/* SPDX-License-Identifier: Apache-2.0 */
/* Start a program: fork and exec with descriptors in known places, and an answer in words when that fails.
 * Thread: the caller's; the process should have one thread only (the child runs our code until the exec). */
#ifndef CRUCIBLE_BASE_PROC_H
#define CRUCIBLE_BASE_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* What to start. All members are borrowed until the call returns. Begin with PROC_SPEC_INIT. */
struct proc_spec {
	const char *name;     /* for the words of errors: "box", "launcher" */
	const char *path;     /* executed in the child's root, unless exec_fd >= 0 */
	int exec_fd;	      /* the program itself, wherever the child's root lies; may be O_PATH. -1: path.
			       * Close-on-exec, so no script with "#!" */
	char *const *argv;    /* NULL-ended */
	char *const *envp;    /* NULL-ended; NULL: an empty environment */
	uint64_t clone_flags; /* CLONE_NEW*: the namespaces of its own */
	int cgroup_fd;	      /* folder of a v2 cgroup that it is born in (CLONE_INTO_CGROUP); -1: ours */
	bool new_session;     /* setsid(): the terminal's signals do not reach it */
	int stdio[3];	      /* its 0, 1, 2; -1: /dev/null */
	const int *fds;	      /* its 3, 4, …: everything else is closed at the exec */
	size_t nfds;

	/* Runs in the child with all of our privileges, before descriptors are placed: confinement. Must not
	 * return to any loop. An error it returns, with its words, is what proc_spawn() returns. NULL: nothing. */
	int (*setup)(void *arg, struct err *e);
	void *arg;
};
#define PROC_SPEC_INIT                                                  \
	{                                                               \
		.exec_fd = -1, .cgroup_fd = -1, .stdio = { -1, -1, -1 } \
	}

/* Start it. Signals are reset to their defaults and unblocked in the child. Returns when the program runs (its exec
 * succeeded) or has failed; then the child is reaped already. A child that was killed before its exec counts as
 * started: its wait status tells. @ret_pidfd: owned by the caller, close-on-exec; may be NULL. Blocks: until the exec.
 * Errors: those of clone3, of setup(), of open and dup for the descriptors, of execve; -ENOMEM. */
int proc_spawn(const struct proc_spec *spec, pid_t *ret_pid, int *ret_pidfd, struct err *e);

/* Wait for a child of ours and return its wait status; goes on after EINTR. Blocks. Errors: -ECHILD. */
int proc_wait(pid_t pid, int *ret_status);

#endif
