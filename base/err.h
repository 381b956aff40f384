/* SPDX-License-Identifier: Apache-2.0 */
/* An error with its words. Functions return 0 or -errno; at module borders they also fill a
 * struct err that the caller owns. Nothing here allocates, logs or exits. Thread: any. */
#ifndef CRUCIBLE_BASE_ERR_H
#define CRUCIBLE_BASE_ERR_H

#include <errno.h>
#include <stdarg.h>

struct err {
	int code;      /* 0 or -errno of the last err_set() */
	char msg[320]; /* one line, no newline at the end, names the object and the step */
};

/* Set the words and the code. @e may be NULL. Control characters in the result become '?', a text
 * that is too long is cut. errno is preserved. Returns @code, so that `return err_set(…)` works. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put one level of context before the words: "fmt: old words". Returns the code that @e holds
 * (or -EIO when @e is NULL or holds none). */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The words for -errno codes of the tree's own vocabulary. Never NULL; static storage. */
const char *err_name(int code);

#endif
