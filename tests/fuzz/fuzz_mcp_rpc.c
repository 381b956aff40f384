/* SPDX-License-Identifier: Apache-2.0 */
/* What a client may write to `mcp serve`: the first byte says in which pieces the rest comes; lines become messages,
 * messages calls whose arguments are checked. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tools/crucible/mcp/call.h"
#include "tools/crucible/mcp/protocol.h"
#include "tools/crucible/mcp/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static struct json_object *schemas[64];

/* The tool that the call names, or the first one. */
static void check_call(struct json_object *params)
{
	struct json_object *name = NULL, *arguments = NULL;
	struct err e = { 0 };
	size_t i = 0;

	if (!params || !json_object_object_get_ex(params, "arguments", &arguments))
		return;
	json_object_object_get_ex(params, "name", &name);
	for (size_t k = 0; name && k < ntools; k++) {
		if (!strcmp(tools[k].name, json_object_get_string(name)))
			i = k;
	}
	assert(ntools <= 64);
	if (!schemas[i])
		schemas[i] = schema_parse(tools[i].input);
	if (schema_check(schemas[i], arguments, &e) < 0)
		assert(e.code == -EINVAL && *e.msg);
}

static void answer(const struct rpc_message *m, int code, struct err *e, struct buf *out)
{
	struct json_object *more = NULL;
	bool modern;

	if (code != 0) {
		assert(*e->msg);
		rpc_error(out, m->id, code, e->msg, NULL);
	} else if (m->method) {
		if (protocol_check(m->params, &modern, &more, e) == 0)
			check_call(m->params);
		json_object_put(more);
		if (m->id)
			rpc_result(out, m->id, protocol_initialize(m->params, true));
	}
}

static void on_line(const char *line, size_t len)
{
	struct rpc_message m, one;
	struct err e = { 0 };
	struct buf out, lines;
	int code = rpc_parse(line, len, &m, &e);

	buf_init(&out, 1 << 20);
	buf_init(&lines, 1 << 20);
	for (size_t i = 0; code == RPC_BATCH && i < json_object_array_length(m.all); i++) {
		struct err why = { 0 };
		int r = rpc_take(json_object_get(json_object_array_get_idx(m.all, i)), &one, &why);

		answer(&one, r, &why, &lines);
		rpc_message_fini(&one);
	}
	if (code == RPC_BATCH)
		rpc_list(&out, &lines);
	else
		answer(&m, code, &e, &out);
	buf_fini(&lines);
	/* Exactly one line, whatever the id was. */
	if (out.len)
		assert((uint8_t *)memchr(out.data, '\n', out.len) == out.data + out.len - 1);
	buf_fini(&out);
	rpc_message_fini(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	size_t piece = len ? data[0] + 1u : 1;
	struct rpc_reader r;
	const char *line;
	size_t n;

	rpc_reader_init(&r);
	for (size_t at = 1; at < len; at += piece) {
		int more;

		if (rpc_reader_add(&r, data + at, len - at < piece ? len - at : piece) < 0)
			break;
		while ((more = rpc_reader_line(&r, &line, &n)) > 0) {
			assert(!memchr(line, '\n', n));
			on_line(line, n);
		}
		assert(more == 0);
	}
	rpc_reader_fini(&r);
	return 0;
}
