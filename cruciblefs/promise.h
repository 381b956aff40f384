/* SPDX-License-Identifier: Apache-2.0 */
/* After an open was told ESTALE, the calling thread is still inside its open(2): the kernel looks the path up again for
 * it, at once. A promise remembers which command's record that thread is to find, so that a newer command cannot make
 * it wait, and be told ESTALE, a second time. Kept for the second look-up and the open behind it; forgotten after a
 * second. Thread: the loop's. */
#ifndef CRUCIBLE_PROMISE_H
#define CRUCIBLE_PROMISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct promise {
	uint64_t ino; /* of the file */
	uint64_t exec;
	uint64_t until_ns; /* monotonic */
	uid_t uid;
	pid_t pid; /* the thread's */
};

struct promises { /* in order of until_ns; zeroed memory is an empty one */
	struct promise *p;
	size_t n, cap;
};

int promise_make(struct promises *ps, uint64_t ino, uid_t uid, pid_t pid, uint64_t exec); /* -ENOMEM */
uint64_t promise_find(struct promises *ps, uint64_t ino, uid_t uid, pid_t pid);		  /* the command; 0: none */
void promise_kept(struct promises *ps, uint64_t ino, uid_t uid, pid_t pid);
void promises_fini(struct promises *ps);

#endif
