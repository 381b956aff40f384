/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the server share: server.c (reading, writing, the end), server_requests.c, server_calls.c. Thread:
 * the loop's, all of it. Nothing blocks. */
#ifndef CRUCIBLE_MCP_SERVER_PRIV_H
#define CRUCIBLE_MCP_SERVER_PRIV_H

#include "base/loop.h"
#include "base/pool.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/mcp/out.h"
#include "tools/crucible/mcp/server.h"

#define THREADS	    16
#define ANSWERS_MAX (64u * 1024 * 1024) /* of one answer; of all that wait for the rest of their batches */

/* Answers to a list of requests are one list. */
struct batch {
	struct buf text;
	unsigned left; /* calls that are under way, and one while its requests are read */
};

struct server {
	struct server_config config;
	struct loop *loop;
	struct pool *pool;
	struct rpc_reader in;
	struct out out;
	struct call *calls;
	unsigned in_state[CALL_DONE + 1]; /* how many of them */
	size_t requests;		  /* bytes of them */
	struct batch *batch;		  /* the one whose requests are read, or answered; NULL: none */
	size_t batches;			  /* bytes in all of them */
	size_t line_bytes;		  /* of the request that is read, or its share of a batch */
	loop_id in_id, out_id, resend, progress, deadline, room, idle;
	bool paused;	   /* of reading */
	bool always_ready; /* the input: a file, or a pipe that nobody writes to any more */
	bool shook_hands;  /* by `initialize`: whoever did is told when the tools are others */
	unsigned told;	   /* guard_changes() that it knows of */
	bool ending;
	uint64_t gone_ns; /* by then, when it is ending */
	int code;	  /* what server_run() returns */
};

/* -- server.c -- */

bool server_full(const struct server *s);
/* Look again, soon, at what may go on. */
void server_go_on(struct server *s);
/* Where an answer goes: the output, or the batch that is read or answered. */
struct buf *server_answers(struct server *s);
/* It was appended, with the result @r: write what can be written. */
void server_sent(struct server *s, int r);
/* The end of all, if it has not begun. @code: what server_run() returns. */
void server_end(struct server *s, int code);

/* -- server_requests.c -- */

/* One line of the input: answer it, or make calls of it. */
void server_line(struct server *s, const char *line, size_t len);

/* -- server_calls.c -- */

/* Make a call of the request @m, or answer why not. @tool or, without one, @run. */
void server_submit(struct server *s, const struct rpc_message *m, bool modern, const struct tool *tool, call_fn *run);
struct call *server_find_call(struct server *s, struct json_object *id); /* NULL: none */
void server_cancel(struct server *s, struct call *c);
/* Answer what is done and begin what waits, as far as there is room. */
void server_serve_calls(struct server *s);
/* One of @b's is done (NULL: nothing). The last one sends it. */
void server_leave_batch(struct server *s, struct batch *b);

#endif
