/* SPDX-License-Identifier: Apache-2.0 */
/* A request that reads or writes files of the mount, and so may block: it runs in a worker of the pool, and the loop's
 * thread may cancel it. Its steps are the functions of tools/crucible/, with a struct cli as a command has it. */
#ifndef CRUCIBLE_MCP_CALL_H
#define CRUCIBLE_MCP_CALL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/json.h"
#include "base/pool.h"
#include "tools/crucible/command.h"
#include "tools/crucible/mcp/guard.h"
#include "tools/crucible/mcp/rpc.h"

struct call;
typedef int call_fn(struct call *c); /* 0 with c->result, or -errno with words in c->cli.err */

struct tool;

struct call {
	/* Set before it is submitted; then the worker's, until `done`. */
	struct json_object *in;	 /* arguments, or params; owned */
	const struct tool *tool; /* NULL: no tool's */
	call_fn *run;
	struct guard *guard;	    /* borrowed */
	const char *mount;	    /* --mount, or NULL */
	struct cli cli;		    /* args: what `in` says, as flags; mount: open while it runs */
	struct json_object *result; /* an object; owned; NULL again when it has become `text` */
	struct buf text;	    /* the result as JSON, unless... */
	bool failed;		    /* ...there is none: words in cli.err */

	/* The loop's. */
	enum call_state {
		CALL_QUEUED,  /* no thread has been asked to run it */
		CALL_RUNNING, /* one has */
		CALL_DONE,    /* it waits until its answer is taken */
	} state;
	size_t bytes; /* so long was the request */
	struct pool_job job;
	struct server *server;
	struct call *next;
	struct batch *batch;	      /* what it is answered in; NULL: a line of its own */
	struct json_object *id;	      /* owned */
	struct json_object *progress; /* its token, or NULL; owned */
	uint64_t started_ns;
	bool modern;
	bool unlisted; /* the worker's: the policy does not permit the tool, so there is none */

	atomic_bool cancelled;
	pthread_mutex_t lock; /* protects what follows: a signal must not meet the thread's next job */
	bool running;
	pthread_t thread;
};

/* Of the loop: a call for the request @m, of @tool or, without one, by @fn. NULL: no memory. */
struct call *call_new(const struct rpc_message *m, const struct tool *tool, call_fn *fn);
struct call *call_free(struct call *c); /* NULL is fine */
struct call *call_of_job(struct pool_job *job);
/* Interrupt what it waits in, if it runs. To be sent again until it has ended: it may have been between two waits. */
void call_signal(struct call *c);

/* For a handler that was ended by a signal (128+N of execute()): if it was not our own cancellation, the process is
 * meant: pass it on. Returns -ECANCELED with words. */
int call_ended(struct call *c, int code);
/* -ECANCELED when it was cancelled, else 0. Between steps. */
int call_check(struct call *c);
/* The argument's text or NULL; borrowed. */
const char *call_text(struct call *c, const char *key);
/* Set one word (for a subcommand): borrowed. -ENOMEM. */
int call_word(struct call *c, const char *word);
/* Run a subcommand as -o json would print it; what it gives becomes c->result, below @key unless that is NULL. */
int call_command(struct call *c, command_fn *fn, const char *key);

/* What its result was, or that it failed, as the line that answers it, behind what is in @out (answer.c). To be used
 * once: the result is freed on the way. -ENOMEM, -EFBIG; @out is then as before. */
int call_answer(struct call *c, struct buf *out);

/* -- tools: one table (tools.c) -- */

enum tool_flags {
	TOOL_READ_ONLY = 1 << 0,
	TOOL_DESTRUCTIVE = 1 << 1,
	TOOL_IDEMPOTENT = 1 << 2,
	TOOL_GUEST_TEXT = 1 << 3, /* its result holds what a guest wrote */
	TOOL_ANY_OP = 1 << 4,	  /* one of its operations will do */
};

struct tool {
	const char *name;
	const char *description;    /* what it does, and with which files */
	const char *input, *output; /* schemas, as schema_parse() reads them */
	unsigned flags;
	unsigned ops; /* enum policy_op: what it needs in any case; what an argument needs besides the daemon says */
	call_fn *run;
};
extern const struct tool tools[];
extern const size_t ntools;

/* By the flags alone: the policy may have changed, which the worker looks at. */
const struct tool *tool_find(const struct guard *g, const char *name);
/* By the flags and the policy that is known. */
bool tool_permitted(struct guard *g, const struct tool *t);
/* {"tools":[…]} of those that @g permits. NULL: no memory. */
struct json_object *tools_list(struct guard *g);
/* Check the arguments, open the mount, run. As a call_fn; also -EPERM with c->unlisted. */
int tool_call(struct call *c);

call_fn tool_run, tool_exec, tool_create, tool_stop, tool_delete, tool_inspect, tool_list,
	tool_logs;							       /* sandbox.c exec.c */
call_fn tool_write_files, tool_read_file, tool_list_files, tool_wait_for_text; /* files.c wait.c */
call_fn tool_snapshot, tool_fork, tool_list_snapshots, tool_inspect_snapshot, tool_delete_snapshot,
	tool_diff; /* snapshot.c */
call_fn tool_list_profiles, tool_list_images;

/* -- shared by the tools -- */

/* A sandbox of this call: admitted, made, set up as the arguments say. With @lease it goes when we do. */
int make_sandbox(struct call *c, const char *prefix, bool lease, struct sbx *ret);
/* The sandbox that `sandbox_id` names. */
int open_sandbox(struct call *c, struct sbx *ret);
/* Write the argument `files` into it. *ret_*: how many. */
int write_files(struct call *c, struct sbx *s, uint64_t *ret_files, uint64_t *ret_bytes);
/* Open the guest's @path (absolute) below fs/. @flags, @mode as openat2 has them; parents are made for O_CREAT. The
 * first use starts the machine: waits for it. Returns a descriptor, or -errno with words. */
int open_guest_file(struct call *c, struct sbx *s, const char *path, int flags, mode_t mode);
/* A guest's bytes as members of @o: @key as text, or base64 with "base64": true. @bytes is empty afterwards: a large
 * file is held no longer than needed. */
int put_content(struct json_object *o, const char *key, struct buf *bytes);

/* -- resources.c -- */

call_fn resources_list, resources_read;
struct json_object *resources_templates(void);
bool resources_permitted(struct guard *g);

#endif
