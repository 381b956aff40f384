/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON of AG_EXEC, parsed once into a plain struct. Thread: any. */
#ifndef CRUCIBLE_AGENT_REQUEST_H
#define CRUCIBLE_AGENT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct exec_req {
	char **argv, **env; /* NULL-ended, owned; argv is NULL for a script */
	size_t argc, envc;
	char *cwd, *user, *name; /* owned; NULL: absent */
	bool script, has_stdin, tty;
	uint16_t rows, cols;
	uint64_t timeout_ms, memory_bytes, pids; /* 0: none */
};

/* Errors: -EINVAL in words (unknown keys too: a limit that is not understood must not be dropped silently), -ENOMEM.
 * *ret is then empty. */
int exec_req_parse(const void *json, size_t len, struct exec_req *ret, struct err *e);
void exec_req_fini(struct exec_req *r);

#endif
