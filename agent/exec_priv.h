/* SPDX-License-Identifier: Apache-2.0 */
/* What exec.c (states, frames, ends) and exec_start.c (scripts, streams, the process) share. */
#ifndef CRUCIBLE_AGENT_EXEC_PRIV_H
#define CRUCIBLE_AGENT_EXEC_PRIV_H

#include "agent/exec.h"
#include "agent/record.h"
#include "agent/request.h"
#include "base/buf.h"
#include "base/err.h"

#define SCRIPT_PATH_CAP (sizeof(((struct guest *)0)->scripts_path) + 32)

enum exec_state { EXEC_SCRIPT, EXEC_STARTING, EXEC_RUNNING, EXEC_ENDING, EXEC_LINGERING };

struct exec {
	struct execs *set;
	struct exec *next;
	uint32_t stream; /* 0: of an older epoch, or forgotten by the host */
	enum exec_state state;
	struct exec_req req;
	uint64_t serial; /* names its script */
	struct cgroup cgroup;

	pid_t pid;	 /* 0: none, or reaped */
	pid_t first_pid; /* the same, kept when it is reaped */
	bool inherited;	 /* of the guest that this one was cloned from */
	int err_fd;	 /* STARTING: the child's words */
	loop_id err_src;
	int script_fd; /* SCRIPT: written; then read-only until the start */
	uint32_t script_window, script_consumed;
	char script_name[32]; /* in the scripts directory; "": none */

	struct input in;
	struct output out[2]; /* stdout, stderr */
	loop_id deadline;
	uint64_t started_ns;

	int events_fd; /* LINGERING: the cgroup's events */
	loop_id events_src;
	loop_id settle; /* deferred */
	struct record record;
};

struct execs {
	struct loop *loop;
	struct conn *conn;
	const struct guest *guest;
	struct limits *limits;
	struct streams streams;
	struct exec *list;
	size_t running, lingering;
	uint64_t serial;
	struct buf json;	     /* of an EXEC that comes in several frames */
	uint32_t json_stream;	     /* whose; 0: none */
	uint32_t gone[AG_EXECS_MAX]; /* streams that ended last, a ring: input for them may still be under way */
	size_t gone_at;
};

/* exec.c */
void exec_failed(struct exec *x, const struct err *e); /* it never began, or not as asked for: EXIT will say why */
void exec_finish(struct exec *x);		       /* send EXIT; what is left lingers */
void exec_kill(struct exec *x);
void exec_linger(struct exec *x); /* its process is gone, or never was; nobody is told */
void exec_began(struct exec *x);  /* exec(2) has succeeded: send STARTED */
void exec_timeout(void *arg);	  /* a loop_fn: the deadline */
void exec_tail(void *arg);	  /* an output's on_tail */
void exec_eof(void *arg);	  /* an output's on_eof */

/* exec_start.c */
void exec_start(struct exec *x);      /* start the process, or finish with the reason */
void exec_read_words(struct exec *x); /* look what the child says of exec(2) */
int exec_script_open(struct exec *x, struct err *e);
int exec_script_data(struct exec *x, const struct ag_frame *f); /* 0 or -EBADMSG */
void exec_script_path(const struct exec *x, char path[SCRIPT_PATH_CAP]);

#endif
