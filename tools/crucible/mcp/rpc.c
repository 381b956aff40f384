/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/mcp/rpc.h"

#include <string.h>

#include "tools/crucible/fields.h"

#define PIECE_MAX (256u * 1024) /* what may stand behind a line's end */

void rpc_reader_init(struct rpc_reader *r)
{
	*r = (struct rpc_reader){ 0 };
	buf_init(&r->text, RPC_LINE_MAX + PIECE_MAX);
}

void rpc_reader_fini(struct rpc_reader *r)
{
	buf_fini(&r->text);
}

/* What was taken makes room. */
static void drop_taken(struct rpc_reader *r)
{
	buf_drop(&r->text, r->at);
	r->scanned -= r->at;
	r->at = 0;
	if (r->text.len == 0)
		buf_reset(&r->text);
}

int rpc_reader_add(struct rpc_reader *r, const void *data, size_t len)
{
	drop_taken(r);
	return buf_add(&r->text, data, len);
}

void rpc_reader_trim(struct rpc_reader *r)
{
	struct buf small;

	if (r->text.cap <= PIECE_MAX || r->text.len - r->at > PIECE_MAX)
		return;
	drop_taken(r);
	buf_init(&small, r->text.max);
	if (!r->text.len || buf_add(&small, r->text.data, r->text.len) < 0)
		return;
	buf_fini(&r->text);
	r->text = small;
}

int rpc_reader_line(struct rpc_reader *r, const char **ret, size_t *ret_len)
{
	for (;;) {
		uint8_t *newline = NULL, *start = r->text.data + r->at;
		size_t held = r->text.len - r->at;

		if (r->text.len > r->scanned)
			newline = memchr(r->text.data + r->scanned, '\n', r->text.len - r->scanned);
		if (!newline) {
			r->scanned = r->text.len;
			if (held <= RPC_LINE_MAX)
				return 0;
			/* Its beginning is of no use any more. */
			r->at = r->text.len;
			if (r->dropping)
				return 0;
			r->dropping = true;
			return -EFBIG;
		}
		held = (size_t)(newline - start);
		r->at += held + 1;
		r->scanned = r->at;
		if (r->dropping) {
			r->dropping = false;
			continue;
		}
		if (held > RPC_LINE_MAX)
			return -EFBIG;
		*ret = (const char *)start;
		*ret_len = held;
		return 1;
	}
}

static bool is_id(struct json_object *id)
{
	return json_object_is_type(id, json_type_string) || json_object_is_type(id, json_type_int);
}

static int refuse(struct err *e, enum rpc_code code, const char *words)
{
	err_set(e, -EINVAL, "%s", words);
	return (int)code;
}

int rpc_parse(const char *line, size_t len, struct rpc_message *ret, struct err *e)
{
	struct json_object *o = NULL;
	struct err why = { 0 };

	*ret = (struct rpc_message){ 0 };
	if (json_parse(line, len, &o, &why) < 0)
		return refuse(e, RPC_PARSE, why.msg);
	if (!json_object_is_type(o, json_type_array))
		return rpc_take(o, ret, e);
	ret->all = o;
	len = json_object_array_length(o);
	if (len == 0 || len > RPC_BATCH_MAX)
		return refuse(e, RPC_REQUEST, "a batch is of 1 to 256 messages");
	return RPC_BATCH;
}

int rpc_take(struct json_object *o, struct rpc_message *ret, struct err *e)
{
	struct json_object *v;

	*ret = (struct rpc_message){ .all = o };
	if (!json_object_is_type(o, json_type_object))
		return refuse(e, RPC_REQUEST, "a message is an object");
	if (json_object_object_get_ex(ret->all, "id", &v)) {
		if (!is_id(v))
			return refuse(e, RPC_REQUEST, "id: neither a text nor a whole number");
		ret->id = v;
	}
	if (!json_object_object_get_ex(ret->all, "jsonrpc", &v) || !json_object_is_type(v, json_type_string) ||
	    strcmp(json_object_get_string(v), "2.0") != 0)
		return refuse(e, RPC_REQUEST, "jsonrpc: not \"2.0\"");
	if (!json_object_object_get_ex(ret->all, "method", &v)) {
		if (json_object_object_get_ex(ret->all, "result", NULL) ||
		    json_object_object_get_ex(ret->all, "error", NULL))
			return 0;
		return refuse(e, RPC_REQUEST, "there is no method");
	}
	if (!json_object_is_type(v, json_type_string))
		return refuse(e, RPC_REQUEST, "method: no text");
	if (json_object_object_get_ex(ret->all, "params", &ret->params) &&
	    !json_object_is_type(ret->params, json_type_object)) {
		ret->params = NULL;
		return refuse(e, RPC_PARAMS, "params: no object");
	}
	ret->method = json_object_get_string(v);
	return 0;
}

void rpc_message_fini(struct rpc_message *m)
{
	json_object_put(m->all);
	*m = (struct rpc_message){ 0 };
}

bool rpc_same_id(struct json_object *a, struct json_object *b)
{
	return a && b && is_id(a) && json_object_equal(a, b);
}

/* Takes @o and @v. */
static int add_line(struct buf *out, struct json_object *o, const char *key, struct json_object *v)
{
	size_t len = out->len;
	int r = -ENOMEM;

	if (fields_put(o, key, v) == 0) {
		r = buf_adds(out, json_line(o));
		if (r == 0)
			r = buf_adds(out, "\n");
	}
	if (r < 0)
		out->len = len;
	json_object_put(o);
	return r;
}

static struct json_object *envelope(void)
{
	struct json_object *o = json_object_new_object();

	if (o)
		fields_put(o, "jsonrpc", json_object_new_string("2.0"));
	return o;
}

static struct json_object *answer(struct json_object *id)
{
	struct json_object *o = envelope();

	/* A NULL is JSON's null. */
	if (o)
		json_object_object_add(o, "id", json_object_get(id));
	return o;
}

int rpc_result(struct buf *out, struct json_object *id, struct json_object *result)
{
	struct json_object *o = answer(id);

	if (!o) {
		json_object_put(result);
		return -ENOMEM;
	}
	return add_line(out, o, "result", result);
}

int rpc_open(struct buf *out, struct json_object *id, struct json_object *head)
{
	struct json_object *o = answer(id);
	const char *line;
	size_t len;
	int r = -ENOMEM;

	if (!o || fields_put(o, "result", head) < 0) {
		json_object_put(o ? NULL : head);
		json_object_put(o);
		return r;
	}
	line = json_line(o);
	if (line) {
		len = strlen(line) - 2; /* of "}}": the line's, and the result's */
		r = buf_add(out, line, len);
		if (r == 0 && line[len - 1] != '{')
			r = buf_adds(out, ",");
	}
	json_object_put(o);
	return r;
}

int rpc_close(struct buf *out)
{
	return buf_adds(out, "}}\n");
}

int rpc_error(struct buf *out, struct json_object *id, enum rpc_code code, const char *words, struct json_object *data)
{
	struct json_object *o = answer(id), *error = json_object_new_object();

	if (!o || !error || fields_put(error, "code", json_object_new_int((int)code)) < 0 ||
	    fields_put(error, "message", json_text(words, strlen(words))) < 0 ||
	    (data && fields_put(error, "data", json_object_get(data)) < 0)) {
		json_object_put(error);
		json_object_put(o);
		json_object_put(data);
		return -ENOMEM;
	}
	json_object_put(data);
	return add_line(out, o, "error", error);
}

int rpc_list(struct buf *out, const struct buf *lines)
{
	size_t len = out->len;
	int r = 0;

	if (!lines->len)
		return 0;
	r = buf_adds(out, "[");
	if (r == 0)
		r = buf_add(out, lines->data, lines->len);
	/* No line holds a newline of its own. */
	for (size_t i = len; r == 0 && i + 1 < out->len; i++) {
		if (out->data[i] == '\n')
			out->data[i] = ',';
	}
	if (r == 0) {
		out->data[out->len - 1] = ']';
		r = buf_adds(out, "\n");
	}
	if (r < 0)
		out->len = len;
	return r;
}

int rpc_notify(struct buf *out, const char *method, struct json_object *params)
{
	struct json_object *o = envelope();

	if (!o || fields_put(o, "method", json_object_new_string(method)) < 0) {
		json_object_put(o);
		json_object_put(params);
		return -ENOMEM;
	}
	return add_line(out, o, "params", params);
}
