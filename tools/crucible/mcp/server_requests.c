/* SPDX-License-Identifier: Apache-2.0 */
/* Lines become answers at once, or calls, or cancellations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/crucible/fields.h"
#include "tools/crucible/mcp/protocol.h"
#include "tools/crucible/mcp/server_priv.h"

static void on_tool(struct server *s, const struct rpc_message *m, bool modern)
{
	const char *name = fields_text(m->params, "name");
	const struct tool *tool = name ? tool_find(s->config.guard, name) : NULL;
	char words[160];

	if (tool) {
		server_submit(s, m, modern, tool, NULL);
		return;
	}
	snprintf(words, sizeof(words), name ? "there is no tool \"%.100s\"" : "name: missing", name);
	server_sent(s, rpc_error(server_answers(s), m->id, RPC_PARAMS, words, NULL));
}

static void on_request(struct server *s, const struct rpc_message *m)
{
	const bool resources = resources_permitted(s->config.guard);
	struct json_object *result = NULL, *data = NULL;
	struct err words = { 0 };
	bool modern = false;
	int r = protocol_check(m->params, &modern, &data, &words);

	if (r != 0)
		return server_sent(s, rpc_error(server_answers(s), m->id, r, words.msg, data));
	if (!modern && !strcmp(m->method, "initialize")) {
		result = protocol_initialize(m->params, resources);
		s->shook_hands = true;
	} else if (!strcmp(m->method, "server/discover")) {
		result = protocol_discover(resources);
	} else if (!modern && !strcmp(m->method, "ping")) {
		result = json_object_new_object();
	} else if (!strcmp(m->method, "tools/list")) {
		result = tools_list(s->config.guard);
	} else if (resources && !strcmp(m->method, "resources/templates/list")) {
		result = resources_templates();
	} else if (!strcmp(m->method, "tools/call")) {
		return on_tool(s, m, modern);
	} else if (resources && !strcmp(m->method, "resources/list")) {
		return server_submit(s, m, modern, NULL, resources_list);
	} else if (resources && !strcmp(m->method, "resources/read")) {
		return server_submit(s, m, modern, NULL, resources_read);
	} else {
		char text[160];

		snprintf(text, sizeof(text), "there is no method \"%.100s\"", m->method);
		return server_sent(s, rpc_error(server_answers(s), m->id, RPC_METHOD, text, NULL));
	}
	result = protocol_result(result, modern, true);
	if (result)
		server_sent(s, rpc_result(server_answers(s), m->id, result));
	else
		server_sent(s, rpc_error(server_answers(s), m->id, RPC_INTERNAL, "no memory", NULL));
}

static void on_notification(struct server *s, const struct rpc_message *m)
{
	struct json_object *id;
	struct call *c;

	if (strcmp(m->method, "notifications/cancelled") != 0 || !m->params ||
	    !json_object_object_get_ex(m->params, "requestId", &id))
		return;
	c = server_find_call(s, id);
	if (c)
		server_cancel(s, c);
}

/* @r: of reading it. */
static void on_message(struct server *s, const struct rpc_message *m, int r, const struct err *e)
{
	const size_t was = s->batch ? s->batch->text.len : 0;

	if (r == 0 && m->id && s->batches > ANSWERS_MAX)
		server_sent(s, rpc_error(server_answers(s), m->id, RPC_BUSY,
					 "too many answers wait for the rest of their batches", NULL));
	else if (r != 0)
		server_sent(s, rpc_error(server_answers(s), m->id, r, e->msg, NULL));
	else if (m->method && m->id)
		on_request(s, m);
	else if (m->method)
		on_notification(s, m);
	if (s->batch)
		s->batches += s->batch->text.len - was;
}

static void on_batch(struct server *s, struct json_object *list)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (!b)
		return server_sent(s, -ENOMEM);
	buf_init(&b->text, 2 * ANSWERS_MAX);
	b->left = 1;
	s->batch = b;
	s->line_bytes /= json_object_array_length(list);
	for (size_t i = 0; i < json_object_array_length(list) && !s->ending; i++) {
		struct rpc_message m;
		struct err e = { 0 };
		int r = rpc_take(json_object_get(json_object_array_get_idx(list, i)), &m, &e);

		on_message(s, &m, r, &e);
		rpc_message_fini(&m);
	}
	s->batch = NULL;
	server_leave_batch(s, b);
}

void server_line(struct server *s, const char *line, size_t len)
{
	struct rpc_message m;
	struct err e = { 0 };
	int r;

	while (len && (line[len - 1] == '\r' || line[len - 1] == ' '))
		len--;
	if (!len)
		return;
	s->line_bytes = len;
	r = rpc_parse(line, len, &m, &e);
	rpc_reader_trim(&s->in); /* now that it is a tree */
	if (r == RPC_BATCH)
		on_batch(s, m.all);
	else
		on_message(s, &m, r, &e);
	rpc_message_fini(&m);
}
