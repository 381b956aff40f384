/* SPDX-License-Identifier: Apache-2.0 */
/* JSON-RPC 2.0, one object a line: bytes to messages, answers to lines. Thread: any, one at a time. Nothing blocks. */
#ifndef CRUCIBLE_MCP_RPC_H
#define CRUCIBLE_MCP_RPC_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define RPC_LINE_MAX (16u * 1024 * 1024) /* of a message: twice what a command may be long */

enum rpc_code {
	RPC_PARSE = -32700,
	RPC_REQUEST = -32600, /* no request */
	RPC_METHOD = -32601,  /* no such method */
	RPC_PARAMS = -32602,
	RPC_INTERNAL = -32603,
	RPC_BUSY = -32000,
	RPC_NO_RESOURCE = -32002,
	RPC_VERSION = -32022, /* the request names a revision that we do not speak */
};

/* Lines out of a stream that comes in pieces. A line that is too long is dropped up to its end, and told once. */
struct rpc_reader {
	struct buf text;
	size_t at;	/* where the next line begins */
	size_t scanned; /* no newline before this place */
	bool dropping;
};
void rpc_reader_init(struct rpc_reader *r);
void rpc_reader_fini(struct rpc_reader *r);
/* Give back the memory of lines that were taken. The last line is no longer valid. */
void rpc_reader_trim(struct rpc_reader *r);
/* Take @len bytes. -ENOMEM. */
int rpc_reader_add(struct rpc_reader *r, const void *data, size_t len);
/* The next line, without its newline; valid until the next rpc_reader_add() or _trim(). Returns 1, 0 when there is none
 * (yet), or -EFBIG once for a line that was too long. */
int rpc_reader_line(struct rpc_reader *r, const char **ret, size_t *ret_len);

struct rpc_message {
	struct json_object *all;    /* owned */
	struct json_object *id;	    /* borrowed from @all; NULL: a notification */
	struct json_object *params; /* borrowed; an object, or NULL */
	const char *method;	    /* borrowed; NULL: somebody's answer to us, which is nothing to act on */
};
#define RPC_BATCH_MAX 256
#define RPC_BATCH     1
/* Read one line. Returns RPC_BATCH for a list (of revision 2025-03-26; @ret->all is it, not empty, each to be given to
 * rpc_take()), else 0, or the enum rpc_code of what it is instead, with words in @e; @ret->id is set where one
 * could be read. rpc_message_fini() is due in any case. */
int rpc_parse(const char *line, size_t len, struct rpc_message *ret, struct err *e);
int rpc_take(struct json_object *o, struct rpc_message *ret, struct err *e); /* the same; takes @o, never RPC_BATCH */
void rpc_message_fini(struct rpc_message *m);
/* Are these two the same id? */
bool rpc_same_id(struct json_object *a, struct json_object *b);

/* Append a line to @out. @id NULL: null. Takes @result, @data, @params (NULL @result: -ENOMEM). -ENOMEM, -EFBIG. */
int rpc_result(struct buf *out, struct json_object *id, struct json_object *result);
int rpc_error(struct buf *out, struct json_object *id, enum rpc_code code, const char *words, struct json_object *data);
/* A result whose large members are text already: rpc_open() appends the line up to them, with the members of @head
 * (taken; NULL: -ENOMEM); then the caller appends `"key":value`, at least one, and rpc_close() ends the line. -ENOMEM,
 * -EFBIG; what the three have appended is then for the caller to cut off. */
int rpc_open(struct buf *out, struct json_object *id, struct json_object *head);
int rpc_close(struct buf *out);
/* Append what stands in @lines as the one line that answers a batch; nothing for none. */
int rpc_list(struct buf *out, const struct buf *lines);
int rpc_notify(struct buf *out, const char *method, struct json_object *params);

#endif
