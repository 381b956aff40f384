/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a command (result.json) and what it means for our exit code. Thread: any. Nothing blocks. */
#ifndef CRUCIBLE_TOOLS_RECORD_H
#define CRUCIBLE_TOOLS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

#define EXIT_CRUCIBLE  1   /* a failure of ours, with words on standard error */
#define EXIT_TIMED_OUT 124 /* as timeout(1) says it */
#define EXIT_SIGNAL    128 /* + the signal's number */

struct record {
	int exit_code; /* -1: none */
	char signal[16];
	bool timed_out, oom_killed, cancelled;
	bool stdout_truncated, stderr_truncated;
	char error[320]; /* one line, printable */
	char *text;	 /* the whole record, one line without newline; malloc'd */
};

/* Read @text, a JSON object. The tree wrote it, a guest had its hand in it. Errors: -EINVAL with words; -ENOMEM. */
int record_parse(const char *text, size_t len, struct record *ret, struct err *e);
void record_fini(struct record *r);

/* 0..255. *ret_words (never NULL, static or inside @r; "" for none): what to say on standard error. A record without an
 * exit code, a signal or a timeout gives EXIT_CRUCIBLE, never 0. */
int record_exit_code(const struct record *r, const char **ret_words);

#endif
