/* SPDX-License-Identifier: Apache-2.0 */
/* A command's process: from clone to exec. */
#ifndef CRUCIBLE_AGENT_CHILD_H
#define CRUCIBLE_AGENT_CHILD_H

#include <sys/types.h>
#include "agent/guest.h"
#include "agent/limits.h"
#include "agent/request.h"
#include "base/err.h"

/* argv[0] of the agent's own commands: no path of a file begins like that */
#define IMPORT_ARGV0 "//import"
#define LIST_ARGV0   "//list"

struct child_plan {
	const struct guest *guest;
	const struct exec_req *req;
	const struct cgroup *cgroup;
	char *script;  /* its path, if req->script */
	int script_fd; /* the same, read-only; to be given to the user */
	int stdio[3];  /* what becomes 0, 1 and 2; with a terminal three times the same */
};

/* Start it. *ret_err_fd is the read end of a pipe (non-blocking): end of file when exec succeeded, else one struct err.
 * Errors: those of pipe and clone, in words. Thread: the loop's; does not block (what can block happens in the child).
 */
int child_start(const struct child_plan *plan, pid_t *ret_pid, int *ret_err_fd, struct err *e);

/* A helper process of the agent's own (file server, sync): a fork, in which 0 to 2 and the descriptors in @keep stay
 * open (the array is sorted there). It runs @fn and exits with what that returns. Errors: those of clone, in words. */
int child_helper(int *keep, size_t nkeep, int (*fn)(void *arg), void *arg, pid_t *ret_pid, struct err *e);

#endif
