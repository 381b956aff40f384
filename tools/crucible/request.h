/* SPDX-License-Identifier: Apache-2.0 */
/* A command as the tree takes it: a JSON request made of an argument vector and flags. Thread: any. Nothing blocks. */
#ifndef CRUCIBLE_TOOLS_REQUEST_H
#define CRUCIBLE_TOOLS_REQUEST_H

#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "tools/crucible/args.h"

struct request {
	const char *const *argv;      /* NULL-ended, not empty; NULL: @script */
	const char *script;	      /* text for /bin/sh, or for what its "#!" names; instead of @argv */
	const struct args_texts *env; /* KEY=VALUE; may be NULL */
	const char *term;	      /* TERM, unless @env sets it; may be NULL */
	const char *cwd, *user;	      /* may be NULL */
	uint64_t timeout_ms;	      /* 0: the sandbox's default */
	bool tty;
	unsigned rows, cols; /* with tty */
	bool no_stdin;	     /* end of file at once, or behind @input */
	const char *input;   /* with no_stdin: what it reads; may be NULL */
	unsigned output_mib; /* 0: the sandbox's default */
};

/* Append one line of JSON. Errors: -EINVAL with words (not KEY=VALUE, not UTF-8, an empty argv), -ENOMEM, -EFBIG of
 * @out. */
int request_format(const struct request *q, struct buf *out, struct err *e);

#endif
