/* SPDX-License-Identifier: Apache-2.0 */
/* mcp serve without a mount: framing, messages, schemas, the operator's limits, revisions; and the server over two
 * pipes, with a tree of plain files behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/mcp/protocol.h"
#include "tools/crucible/mcp/schema.h"
#include "tools/crucible/mcp/server.h"

/* -- framing ----------------------------------------------------------------------------------------------------- */

static void assert_line(struct rpc_reader *r, const char *expected)
{
	const char *line;
	size_t len;

	assert_int_equal(rpc_reader_line(r, &line, &len), 1);
	assert_int_equal(len, strlen(expected));
	assert_memory_equal(line, expected, len);
}

static void test_lines_come_in_any_pieces(void **state)
{
	static const char text[] = "{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
	struct rpc_reader r;
	const char *line;
	size_t len;

	(void)state;
	for (size_t piece = 1; piece < sizeof(text); piece++) {
		size_t seen = 0;

		rpc_reader_init(&r);
		for (size_t at = 0; at < sizeof(text) - 1; at += piece) {
			size_t n = sizeof(text) - 1 - at < piece ? sizeof(text) - 1 - at : piece;
			int more;

			assert_int_equal(rpc_reader_add(&r, text + at, n), 0);
			while ((more = rpc_reader_line(&r, &line, &len)) > 0) {
				static const char *const expected[] = { "{\"a\":1}", "", "{\"b\":2}" };

				assert_true(seen < 3);
				assert_int_equal(len, strlen(expected[seen]));
				assert_memory_equal(line, expected[seen++], len);
			}
			assert_int_equal(more, 0);
		}
		assert_int_equal(seen, 3);
		rpc_reader_fini(&r);
	}
}

static void test_a_line_too_long_is_told_once(void **state)
{
	const size_t piece = 64 * 1024;
	char *text = malloc(piece);
	struct rpc_reader r;
	const char *line;
	size_t len;
	int told = 0;

	(void)state;
	assert_non_null(text);
	memset(text, 'x', piece);
	rpc_reader_init(&r);
	for (size_t sum = 0; sum < 3 * (size_t)RPC_LINE_MAX; sum += piece) {
		int code;

		assert_int_equal(rpc_reader_add(&r, text, piece), 0);
		while ((code = rpc_reader_line(&r, &line, &len)) != 0) {
			assert_int_equal(code, -EFBIG);
			told++;
		}
	}
	assert_int_equal(told, 1);
	assert_int_equal(rpc_reader_add(&r, "\nnext\n", 6), 0);
	assert_line(&r, "next");
	rpc_reader_fini(&r);
	free(text);
}

static void test_what_a_long_line_took_is_given_back(void **state)
{
	const size_t len = 1024 * 1024;
	char *text = malloc(len + 8);
	struct rpc_reader r;
	const char *line;
	size_t n;

	(void)state;
	assert_non_null(text);
	memset(text, 'x', len);
	memcpy(text + len, "\nnext\ny", 7);
	rpc_reader_init(&r);
	for (size_t at = 0; at < len + 7; at += 64 * 1024)
		assert_int_equal(rpc_reader_add(&r, text + at, len + 7 - at < 64 * 1024 ? len + 7 - at : 64 * 1024), 0);
	assert_int_equal(rpc_reader_line(&r, &line, &n), 1);
	assert_int_equal(n, len);
	rpc_reader_trim(&r);
	assert_true(r.text.cap < 64 * 1024);
	assert_line(&r, "next");
	rpc_reader_trim(&r);
	assert_int_equal(rpc_reader_line(&r, &line, &n), 0);
	assert_int_equal(rpc_reader_add(&r, "z\n", 2), 0);
	assert_line(&r, "yz");
	rpc_reader_fini(&r);
	free(text);
}

static void test_what_is_no_message(void **state)
{
	static const struct {
		const char *text;
		int code;
		bool id; /* it can be answered by its id */
	} cases[] = {
		{ "", RPC_PARSE, false },
		{ "{", RPC_PARSE, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"} {}", RPC_PARSE, false },
		{ "7", RPC_REQUEST, false },
		{ "[]", RPC_REQUEST, false },
		{ "[1]", RPC_BATCH, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}", RPC_REQUEST, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"x\"}", RPC_REQUEST, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1}", RPC_REQUEST, true },
		{ "{\"id\":\"a\",\"method\":\"x\"}", RPC_REQUEST, true },
		{ "{\"jsonrpc\":2,\"id\":1,\"method\":\"x\"}", RPC_REQUEST, true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", RPC_REQUEST, true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":7}", RPC_PARAMS, true },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}", 0, true },
		{ "{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{}}", 0, false },
		{ "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 0, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rpc_message m;
		struct err e = { 0 };

		assert_int_equal(rpc_parse(cases[i].text, strlen(cases[i].text), &m, &e), cases[i].code);
		assert_int_equal(m.id != NULL, cases[i].id);
		assert_int_equal(*e.msg != '\0', cases[i].code < 0);
		rpc_message_fini(&m);
	}
}

static void test_answers_are_lines(void **state)
{
	AUTO_JSON *id = json_object_new_string("a\nb");
	struct buf out;

	(void)state;
	buf_init(&out, 4096);
	assert_int_equal(rpc_result(&out, id, json_object_new_object()), 0);
	assert_int_equal(rpc_error(&out, NULL, RPC_PARSE, "bad \xff", NULL), 0);
	assert_int_equal(rpc_notify(&out, "m", json_object_new_object()), 0);
	assert_string_equal(
		buf_str(&out),
		"{\"jsonrpc\":\"2.0\",\"id\":\"a\\nb\",\"result\":{}}\n"
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"bad \xef\xbf\xbd\"}}\n"
		"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{}}\n");
	assert_int_equal(rpc_result(&out, id, NULL), -ENOMEM);
	buf_fini(&out);
	/* What does not fit leaves nothing of it. */
	buf_init(&out, 20);
	assert_int_equal(rpc_result(&out, id, json_object_new_object()), -EFBIG);
	assert_int_equal(out.len, 0);
	buf_fini(&out);
}

static void test_ids_are_the_same_by_type_and_value(void **state)
{
	AUTO_JSON *one = json_object_new_int(1), *one64 = json_object_new_int64(1), *text = json_object_new_string("1");

	(void)state;
	assert_true(rpc_same_id(one, one64));
	assert_false(rpc_same_id(one, text));
	assert_false(rpc_same_id(one, NULL));
}

/* -- schemas ----------------------------------------------------------------------------------------------------- */

static void test_schema_names_the_field(void **state)
{
	static const char schema_text[] =
		"{'type':'object','properties':{'a':{'type':'string'},'n':{'type':'integer','minimum':1,'maximum':9},"
		"'x':{'type':'number'},'e':{'enum':['p','q']},'b':{'type':'boolean'},"
		"'l':{'type':'array','items':{'type':'object','properties':{'k':{'type':'string'}},'required':['k'],"
		"'additionalProperties':false}}},'required':['a'],'additionalProperties':false}";
	static const struct {
		const char *value, *words; /* NULL: good */
	} cases[] = {
		{ "{'a':'x'}", NULL },
		{ "{'a':'x','n':9,'x':1,'e':'q','b':true,'l':[{'k':'v'}]}", NULL },
		{ "{'a':'x','x':1.5,'l':[]}", NULL },
		{ "{}", "a: missing" },
		{ "{'a':1}", "a: must be a text" },
		{ "{'a':null}", "a: must be a text" },
		{ "{'a':'x','n':0}", "n: must be 1 or more" },
		{ "{'a':'x','n':10}", "n: must be 9 or less" },
		{ "{'a':'x','n':1.5}", "n: must be a whole number" },
		{ "{'a':'x','x':'1'}", "x: must be a number" },
		{ "{'a':'x','e':'r'}", "e: must be one of [\"p\",\"q\"]" },
		{ "{'a':'x','b':1}", "b: must be true or false" },
		{ "{'a':'x','l':{}}", "l: must be a list" },
		{ "{'a':'x','l':[1]}", "l[0]: must be an object" },
		{ "{'a':'x','l':[{'k':'v'},{}]}", "l[1].k: missing" },
		{ "{'a':'x','l':[{'k':'v','z':1}]}", "l[0].z: there is no such argument" },
		{ "{'a':'x','zz':1}", "zz: there is no such argument" },
		{ "[]", "arguments: must be an object" },
	};
	AUTO_JSON *schema = schema_parse(schema_text);

	(void)state;
	assert_non_null(schema);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		AUTO_JSON *v = schema_parse(cases[i].value);
		struct err e = { 0 };

		assert_non_null(v);
		assert_int_equal(schema_check(schema, v, &e), cases[i].words ? -EINVAL : 0);
		assert_string_equal(e.msg, cases[i].words ?: "");
	}
}

/* -- tools --------------------------------------------------------------------------------------------------------- */

static void test_every_tool_has_schemas(void **state)
{
	(void)state;
	for (size_t i = 0; i < ntools; i++) {
		AUTO_JSON *in = schema_parse(tools[i].input), *out = schema_parse(tools[i].output);

		if (!in || !out || !tools[i].run || strpbrk(tools[i].description, "'\""))
			fail_msg("%s is incomplete", tools[i].name);
		assert_string_equal(fields_text(in, "type"), "object");
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(tools[i].name, tools[k].name);
	}
}

static void test_the_list_is_small(void **state)
{
	struct args flags = { 0 };
	struct guard g;
	AUTO_JSON *all = NULL;

	(void)state;
	assert_int_equal(guard_init(&g, &flags, NULL), 0);
	all = tools_list(&g);
	assert_non_null(all);
	print_message("tools/list: %zu bytes\n", strlen(json_line(all)));
	assert_true(strlen(json_line(all)) < 24 * 1024);
	guard_fini(&g);
}

/* -- the operator's limits -------------------------------------------------------------------------------------------
 */

static void test_hosts_below_the_most(void **state)
{
	static const struct {
		const char *most, *line;
		bool good;
	} cases[] = {
		{ "", "a", false },
		{ "a", "a", true },
		{ "a", "A", true },
		{ "a", "a:443", true },
		{ "a", "a:", false },
		{ "a", "a:x", false },
		{ "a", "aa", false },
		{ "a:443", "a:443", true },
		{ "a:443", "a:80", false },
		{ "a:443", "a", false },
		{ " a , b", "b", true },
		{ "*.d", "x.d", true },
		{ "*.d", "*.x.d", true },
		{ "*.d", "x.d:1", true },
		{ "*.d", "*.d", true },
		{ "*.d", "d", false },
		{ "*.d", ".d", false },
		{ "*.d", "xd", false },
		{ "*", "a", false },
		{ "@pypi", "@pypi", true },
		{ "@pypi", "@npm", false },
		{ "10.0.0.0/8", "10.0.0.0/8", true },
		{ "10.0.0.0/8", "10.1.1.1", false },
		{ "fe80", "fe80::1", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct args flags = { .given[OPT_NET_ALLOW_MAX] = true, .text[OPT_NET_ALLOW_MAX] = cases[i].most };
		const char *lines[] = { cases[i].line };
		struct args_texts list = { .v = lines, .n = 1 };
		struct guard g;
		int r;

		assert_int_equal(guard_init(&g, &flags, NULL), 0);
		r = guard_net(&g, &list, NULL);
		if (r != (cases[i].good ? 0 : -EPERM))
			fail_msg("\"%s\" below \"%s\": %d", cases[i].line, cases[i].most, r);
		guard_fini(&g);
	}
}

static void test_origin_is_permitted_or_EPERM(void **state)
{
	struct args flags = { .given[OPT_ALLOW_PROFILES] = true, .text[OPT_ALLOW_PROFILES] = "one,two" };
	struct args a = { 0 };
	struct guard g;

	(void)state;
	assert_int_equal(guard_init(&g, &flags, NULL), 0);
	assert_int_equal(guard_origin(&g, &a, NULL), 0);
	assert_string_equal(a.text[OPT_PROFILE], "one");
	a.text[OPT_PROFILE] = "two";
	assert_int_equal(guard_origin(&g, &a, NULL), 0);
	a.text[OPT_PROFILE] = "tw";
	assert_int_equal(guard_origin(&g, &a, NULL), -EPERM);
	a = (struct args){ .given[OPT_FROM] = true, .text[OPT_FROM] = "image:x" };
	assert_int_equal(guard_origin(&g, &a, NULL), -EPERM);
	a = (struct args){ .given[OPT_SNAPSHOT] = true, .text[OPT_SNAPSHOT] = "s" };
	assert_int_equal(guard_origin(&g, &a, NULL), 0);
	assert_false(a.given[OPT_PROFILE]);
	guard_fini(&g);
}

static void test_times_are_cut(void **state)
{
	struct args flags = { .given[OPT_MAX_TIMEOUT] = true, .number[OPT_MAX_TIMEOUT] = 5000 }, none = { 0 };
	struct guard g;

	(void)state;
	assert_int_equal(guard_init(&g, &flags, NULL), 0);
	assert_int_equal(guard_timeout_ms(&g, 0), 5000);
	assert_int_equal(guard_timeout_ms(&g, 5001), 5000);
	assert_int_equal(guard_timeout_ms(&g, 4999), 4999);
	g.args = &none;
	assert_int_equal(guard_timeout_ms(&g, 0), 0);
	assert_int_equal(guard_timeout_ms(&g, 7), 7);
	guard_fini(&g);
}

/* -- the mount's policy -----------------------------------------------------------------------------------------------
 */

static char world[] = "/tmp/test-mcp.XXXXXX"; /* looks like a mount */

static void put_policy(const char *text)
{
	int fd, r;

	fd = open(world, O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = fd_replace(fd, "policy.json", text, strlen(text), 0644, false);
	close(fd);
	assert_int_equal(r, 0);
}

static int enter(void **state)
{
	char path[64];

	(void)state;
	strcpy(world, "/tmp/test-mcp.XXXXXX");
	if (!mkdtemp(world))
		return -1;
	snprintf(path, sizeof(path), "%s/run", world);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/snapshots", world);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/profiles", world);
	mkdir(path, 0755);
	return 0;
}

static int leave(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", world);
	return system(command);
}

static void refresh(struct guard *g, const char *policy)
{
	int root;

	put_policy(policy);
	root = open(world, O_PATH | O_DIRECTORY | O_CLOEXEC);
	guard_refresh(g, root);
	close(root);
}

static void test_what_the_policy_says_is_read(void **state)
{
	static const struct {
		const char *text;
		int code;
		unsigned ops;
	} cases[] = {
		{ "{'operations':[]}", 0, 0 },
		{ "{'operations':['create','admin'],'other':1}", 0, POLICY_CREATE | POLICY_ADMIN },
		{ "{'operations':['read','teleport',7]}", 0, POLICY_READ },
		{ "{}", -EINVAL, 0 },
		{ "{'operations':'read'}", -EINVAL, 0 },
		{ "{'operations':[],'max_fork':-1}", -EINVAL, 0 },
		{ "{'operations':[],'max_fork':'1'}", -EINVAL, 0 },
		{ "{'operations':[],'net_allow_max':{}}", -EINVAL, 0 },
		{ "{'operations':[],'allow_profiles':7}", -EINVAL, 0 },
	};
	AUTO_JSON *full = schema_parse("{'operations':['fork'],'max_fork':3,'max_timeout_s':9,'net_allow_max':[],"
				       "'allow_profiles':['a','b']}");
	struct permits p;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		AUTO_JSON *o = schema_parse(cases[i].text);

		assert_int_equal(permits_parse(o, &p, NULL), cases[i].code);
		if (cases[i].code)
			continue;
		assert_int_equal(p.ops, cases[i].ops);
		assert_null(p.profiles);
		assert_false(p.no_network);
	}
	assert_int_equal(permits_parse(full, &p, NULL), 0);
	assert_int_equal(p.max[POLICY_MAX_FORK], 3);
	assert_int_equal(p.max[POLICY_MAX_TIMEOUT_S], 9);
	assert_int_equal(p.max[POLICY_MAX_SANDBOXES], 0);
	assert_true(p.no_network);
	assert_string_equal(p.profiles, "a,b");
	permits_fini(&p);
}

/* Each tool alone: it is there when all of its operations are, and not when one is missing. */
static void test_a_tool_needs_its_operations(void **state)
{
	struct args none = { 0 };
	struct guard g;

	(void)state;
	assert_int_equal(guard_init(&g, &none, NULL), 0);
	assert_false(guard_knows(&g));
	for (size_t i = 0; i < ntools; i++)
		assert_true(tool_permitted(&g, &tools[i]));
	g.known = true;
	for (size_t i = 0; i < ntools; i++) {
		const struct tool *t = &tools[i];

		g.policy.ops = POLICY_OPS_ALL;
		assert_true(tool_permitted(&g, t));
		for (unsigned op = 1; op < POLICY_OPS_ALL; op <<= 1) {
			g.policy.ops = t->ops & ~op;
			if (tool_permitted(&g, t) == ((t->ops & op) != 0 && !(t->flags & TOOL_ANY_OP)))
				fail_msg("%s without %s", t->name, policy_op_name(op));
		}
		g.policy.ops = 0;
		assert_int_equal(tool_permitted(&g, t), t->ops == 0);
	}
	guard_fini(&g);
}

static void test_of_flags_and_policy_the_smaller_holds(void **state)
{
	struct args flags = { 0 }, a = { 0 };
	const char *lines[] = { "a" };
	struct args_texts one = { .v = lines, .n = 1 };
	struct err e = { 0 };
	struct guard g;

	(void)state;
	assert_int_equal(guard_init(&g, &flags, NULL), 0);
	refresh(&g, "{\"operations\":[\"create\",\"network\"],\"max_timeout_s\":5,\"max_fork\":2,"
		    "\"allow_profiles\":[\"two\",\"three\"]}");
	assert_true(guard_knows(&g));
	assert_int_equal(guard_timeout_ms(&g, 0), 5000);
	assert_int_equal(guard_timeout_ms(&g, 9000), 5000);
	assert_int_equal(guard_timeout_ms(&g, 4000), 4000);
	assert_int_equal(guard_fork_lifetime_ms(&g), 0);
	assert_int_equal(guard_forks(&g, 2, &e), 0);
	assert_int_equal(guard_forks(&g, 3, &e), -EDQUOT);
	assert_int_equal(guard_net(&g, &one, &e), 0);
	/* No flag says which: the daemon takes one that the policy permits. */
	assert_int_equal(guard_origin(&g, &a, &e), 0);
	assert_false(a.given[OPT_PROFILE]);
	a = (struct args){ .given[OPT_PROFILE] = true, .text[OPT_PROFILE] = "one" };
	assert_int_equal(guard_origin(&g, &a, &e), -EPERM);
	assert_non_null(strstr(e.msg, "policy"));
	a.text[OPT_PROFILE] = "three";
	assert_int_equal(guard_origin(&g, &a, &e), 0);

	flags = (struct args){ .given[OPT_MAX_TIMEOUT] = true,
			       .number[OPT_MAX_TIMEOUT] = 3000,
			       .given[OPT_MAX_FORK] = true,
			       .number[OPT_MAX_FORK] = 1,
			       .given[OPT_ALLOW_PROFILES] = true,
			       .text[OPT_ALLOW_PROFILES] = "one, two" };
	assert_int_equal(guard_timeout_ms(&g, 0), 3000);
	assert_int_equal(guard_forks(&g, 2, &e), -EPERM);
	a = (struct args){ 0 };
	assert_int_equal(guard_origin(&g, &a, &e), 0);
	assert_string_equal(a.text[OPT_PROFILE], "two"); /* the first that both have */
	a.text[OPT_PROFILE] = "three";
	assert_int_equal(guard_origin(&g, &a, &e), -EPERM);
	flags.number[OPT_MAX_TIMEOUT] = 7000;
	assert_int_equal(guard_timeout_ms(&g, 0), 5000);
	assert_int_equal(guard_fork_lifetime_ms(&g), 7000);

	refresh(&g, "{\"operations\":[\"network\"],\"net_allow_max\":[]}");
	assert_int_equal(guard_net(&g, &one, &e), -EPERM);
	assert_int_equal(guard_publish(&g, &one, &e), -EPERM);
	assert_int_equal(guard_net(&g, &(struct args_texts){ 0 }, &e), 0);
	refresh(&g, "{\"operations\":[\"create\"]}");
	assert_int_equal(guard_net(&g, &one, &e), -EPERM);
	/* One that cannot be read changes nothing. */
	refresh(&g, "garbage");
	assert_false(guard_permits(&g, POLICY_NETWORK));
	assert_true(guard_permits(&g, POLICY_CREATE));
	guard_fini(&g);
}

static void test_what_is_pending_counts_once(void **state)
{
	struct args flags = { .given[OPT_MAX_SANDBOXES] = true, .number[OPT_MAX_SANDBOXES] = 3 };
	const char names[4][SBX_ID_MAX + 1] = { "a", "b", "c", "d" };
	char dir[] = "/tmp/test-mcp.XXXXXX", command[64];
	struct err e = { 0 };
	struct guard g;
	int root;

	(void)state;
	assert_non_null(mkdtemp(dir));
	root = open(dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(mkdirat(root, "run", 0755), 0);
	assert_int_equal(guard_init(&g, &flags, NULL), 0);
	assert_int_equal(guard_admit(&g, root, names, 4, &e), -EDQUOT);
	assert_int_equal(guard_admit(&g, root, names, 2, &e), 0);
	assert_int_equal(mkdirat(root, "run/a", 0755), 0); /* it is there and still pending */
	assert_int_equal(guard_admit(&g, root, &names[2], 1, &e), 0);
	assert_int_equal(guard_admit(&g, root, &names[3], 1, &e), -EDQUOT);
	guard_settle(&g, names, 1);
	assert_int_equal(guard_admit(&g, root, &names[3], 1, &e), -EDQUOT);
	guard_settle(&g, &names[1], 1); /* was never made */
	assert_int_equal(guard_admit(&g, root, &names[3], 1, &e), 0);
	guard_settle(&g, &names[2], 2);
	assert_int_equal(g.npending, 0);
	guard_fini(&g);
	close(root);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	assert_int_equal(system(command), 0);
}

/* -- the server ---------------------------------------------------------------------------------------------------- */

/* Serves @text from a file to its end; what it answers, malloc'd. */
static char *serve_text(const char *text, const struct args *flags, const char *mount)
{
	FILE *in = tmpfile(), *out = tmpfile();
	struct server_config config = { .mount = mount };
	struct err e = { 0 };
	struct guard g;
	char *answers;
	long len;

	assert_true(in && out);
	fputs(text, in);
	rewind(in);
	assert_int_equal(guard_init(&g, flags, NULL), 0);
	config.in = fileno(in);
	config.out = fileno(out);
	config.guard = &g;
	assert_int_equal(server_run(&config, &e), 0);
	guard_fini(&g);
	fseek(out, 0, SEEK_END);
	len = ftell(out);
	rewind(out);
	answers = calloc(1, (size_t)len + 1);
	assert_int_equal(fread(answers, 1, (size_t)len, out), (size_t)len);
	fclose(in);
	fclose(out);
	return answers;
}

static void test_a_conversation_without_files(void **state)
{
	struct args none = { 0 };
	char *text =
		serve_text("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n"
			   "nonsense\n"
			   "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"
			   "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":9}}\n"
			   "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"x\"}\n"
			   "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":{}}\n",
			   &none, "/nonexistent");

	(void)state;
	assert_non_null(strstr(text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n"));
	assert_non_null(strstr(text, "\"id\":null,\"error\":{\"code\":-32700"));
	assert_non_null(strstr(text, "\"id\":2,\"error\":{\"code\":-32601"));
	assert_non_null(strstr(text, "\"id\":3,\"error\":{\"code\":-32602,\"message\":\"name: missing\""));
	free(text);
}

static void test_a_batch_is_answered_by_a_list(void **state)
{
	struct args none = { 0 };
	char *text = serve_text(
		"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},{\"jsonrpc\":\"2.0\",\"method\":\"n\"},7,"
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}]\n"
		"[{\"jsonrpc\":\"2.0\",\"method\":\"n\"}]\n"
		"[]\n",
		&none, "/nonexistent");

	(void)state;
	assert_string_equal(
		text,
		"[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}},"
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"a message is an object\"}},"
		"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]\n"
		"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"a batch is of 1 to 256 messages\"}}\n");
	free(text);
}

/* A tree of plain files with one sandbox, "a", whose guest has a file of 1 MiB. */
static void make_tree(char dir[])
{
	char path[128], *text = malloc(1024 * 1024);
	int fd;

	assert_non_null(mkdtemp(dir));
	for (size_t i = 0; i < 5; i++) {
		static const char *const made[] = { "run", "run/a", "run/a/fs", "version", "run/a/fs/big" };

		snprintf(path, sizeof(path), "%s/%s", dir, made[i]);
		if (i < 3) {
			assert_int_equal(mkdir(path, 0755), 0);
			continue;
		}
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
		assert_true(fd >= 0);
		memset(text, 'x', 1024 * 1024);
		assert_int_equal(fd_write_all(fd, i == 3 ? "1\n" : text, i == 3 ? 2 : 1024 * 1024), 0);
		close(fd);
	}
	free(text);
}

/* A server in a process of its own. */
struct served {
	char dir[32];
	int to, from;
	pid_t pid;
	char *line;
	size_t cap;
	FILE *answers;
};

static void begin_serving(struct served *s)
{
	struct args none = { 0 };
	int in[2], out[2];

	*s = (struct served){ .dir = "/tmp/test-mcp.XXXXXX" };
	make_tree(s->dir);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		struct server_config config = { .in = in[0], .out = out[1], .mount = s->dir };
		struct guard g;

		close(in[1]);
		close(out[0]);
		config.guard = &g;
		_exit(guard_init(&g, &none, NULL) < 0 || server_run(&config, NULL) != 0);
	}
	close(in[0]);
	close(out[1]);
	s->to = in[1];
	s->from = out[0];
	s->answers = fdopen(out[0], "r");
	assert_non_null(s->answers);
}

/* Returns the most memory that it ever had, in KiB. */
static long end_serving(struct served *s)
{
	struct rusage used;
	char command[64];
	int status;

	close(s->to);
	assert_int_equal(wait4(s->pid, &status, 0, &used), s->pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	fclose(s->answers);
	free(s->line);
	snprintf(command, sizeof(command), "rm -rf %s", s->dir);
	assert_int_equal(system(command), 0);
	return used.ru_maxrss;
}

static struct json_object *next_answer(struct served *s)
{
	struct json_object *o = NULL;
	ssize_t n = getline(&s->line, &s->cap, s->answers);

	assert_true(n > 0);
	assert_int_equal(json_parse(s->line, (size_t)n, &o, NULL), 0);
	return o;
}

#define READ_BIG                                                                \
	"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/call\",\"params\":{" \
	"\"name\":\"read_file\",\"arguments\":{\"sandbox_id\":\"a\",\"path\":\"/big\"}}}"

/* 200 answers of 2 MiB each are asked for before the first is read. */
static void test_who_does_not_read_is_not_served(void **state)
{
	const int calls = 200;
	struct served s;
	bool seen[200] = { 0 };
	long most_kib;

	(void)state;
	begin_serving(&s);
	for (int i = 0; i < calls; i++)
		assert_true(dprintf(s.to, READ_BIG "\n", i) > 0);
	for (int i = 0; i < calls; i++) {
		AUTO_JSON *o = next_answer(&s);
		struct json_object *result;
		int id = (int)fields_number(o, "id");

		assert_true(id >= 0 && id < calls && !seen[id]);
		seen[id] = true;
		assert_true(json_object_object_get_ex(o, "result", &result));
		assert_true(json_object_object_get_ex(result, "structuredContent", &result));
		assert_int_equal(strlen(fields_text(result, "content")), 1024 * 1024);
	}
	/* What it does not answer it does not read either: this is more than all pipes and buffers hold. */
	for (int i = 0; i < 2000; i++)
		assert_true(dprintf(s.to, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"ping\"}\n", i) > 0);
	for (int i = 0; i < 2000; i++) {
		AUTO_JSON *o = next_answer(&s);

		assert_int_equal(fields_number(o, "id"), i);
	}
	most_kib = end_serving(&s);
	print_message("most memory: %ld KiB\n", most_kib);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	assert_true(most_kib < 128 * 1024);
#endif
}

/* A list of answers is one line, and so must be held as a whole: what is too much for it is refused, by its id. */
static void test_a_batch_that_is_too_long_is_cut(void **state)
{
	const size_t calls = 40;
	AUTO_JSON *list = NULL;
	struct served s;
	size_t refused = 0;

	(void)state;
	begin_serving(&s);
	for (size_t i = 0; i < calls; i++)
		assert_true(dprintf(s.to, "%c" READ_BIG, i ? ',' : '[', (int)i) > 0);
	assert_int_equal(write(s.to, "]\n", 2), 2);
	list = next_answer(&s);
	assert_int_equal(json_object_array_length(list), calls);
	for (size_t i = 0; i < calls; i++) {
		struct json_object *o = json_object_array_get_idx(list, i), *error;

		if (!json_object_object_get_ex(o, "error", &error))
			continue;
		assert_non_null(strstr(fields_text(error, "message"), "too long"));
		refused++;
	}
	assert_true(refused > 0 && refused < calls / 2);
	end_serving(&s);
}

#define INITIALIZE "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{}}\n"
#define CALL(id, tool, arguments)                                                                   \
	"{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"tools/call\",\"params\":{\"name\":\"" tool \
	"\",\"arguments\":" arguments "}}\n"
#define CHANGED "\"method\":\"notifications/tools/list_changed\""

struct serving {
	struct server_config config;
	int r;
};

static void *serve(void *arg)
{
	struct serving *s = arg;
	struct err e = { 0 };

	s->r = server_run(&s->config, &e);
	return NULL;
}

/* Its input ends only when @lines lines were answered; what they are, malloc'd. */
static char *serve_calls(const char *text, const struct args *flags, const char *mount, unsigned lines)
{
	struct serving s = { .config.mount = mount };
	int to[2], from[2];
	struct guard g;
	pthread_t thread;
	struct buf out;
	char *answers;

	assert_int_equal(pipe2(to, O_CLOEXEC) | pipe2(from, O_CLOEXEC), 0);
	assert_int_equal(guard_init(&g, flags, NULL), 0);
	s.config.in = to[0];
	s.config.out = from[1];
	s.config.guard = &g;
	assert_int_equal(fd_write_all(to[1], text, strlen(text)), 0);
	assert_int_equal(pthread_create(&thread, NULL, serve, &s), 0);
	buf_init(&out, 1 << 20);
	while (lines) {
		uint8_t *at;
		ssize_t n;

		assert_int_equal(buf_reserve(&out, 4096, &at), 0);
		n = read(from[0], at, 4096);
		assert_true(n > 0);
		out.len += (size_t)n;
		for (ssize_t i = 0; i < n && lines; i++)
			lines -= at[i] == '\n';
	}
	close(to[1]);
	pthread_join(thread, NULL);
	assert_int_equal(s.r, 0);
	guard_fini(&g);
	close(to[0]);
	close(from[0]);
	close(from[1]);
	answers = strdup(buf_str(&out));
	buf_fini(&out);
	return answers;
}

static void put_version(void)
{
	int fd = open(world, O_PATH | O_DIRECTORY | O_CLOEXEC),
	    r = fd_replace(fd, "version", "0.1.0\n", 6, 0644, false);

	close(fd);
	assert_int_equal(r, 0);
}

/* The first call reads the policy: the list was of all the tools before. */
static void test_the_first_call_with_a_mount_reads_the_policy(void **state)
{
	struct args none = { 0 };
	char *text;

	(void)state;
	put_version();
	put_policy("{\"operations\":[\"read\"]}");
	text = serve_calls(INITIALIZE CALL("2", "create_sandbox", "{}") CALL("3", "list_sandboxes", "{}"), &none, world,
			   4);
	assert_non_null(strstr(text, "\"listChanged\":true"));
	assert_non_null(strstr(
		text, "\"id\":2,\"error\":{\"code\":-32602,\"message\":\"there is no tool \\\"create_sandbox\\\"\""));
	assert_non_null(strstr(text, "\"id\":3,\"result\""));
	assert_non_null(strstr(text, CHANGED));
	free(text);
	/* Who did not shake hands is not told; nor who knows it. */
	text = serve_calls(CALL("2", "create_sandbox", "{}"), &none, world, 1);
	assert_null(strstr(text, CHANGED));
	free(text);
	put_policy("{\"operations\":[\"create\",\"exec\",\"snapshot\",\"fork\",\"delete\",\"read\",\"files\","
		   "\"network\",\"images\",\"admin\"]}");
	text = serve_calls(INITIALIZE CALL("3", "list_sandboxes", "{}"), &none, world, 2);
	assert_null(strstr(text, CHANGED));
	free(text);
}

static void test_a_wrong_call_without_a_mount_is_told_as_before(void **state)
{
	struct args none = { 0 };
	char *text = serve_calls(CALL("2", "exec", "{\"sandbox_id\":7}") CALL("3", "list_sandboxes", "{}"), &none,
				 "/nonexistent", 2);

	(void)state;
	assert_non_null(strstr(text, "sandbox_id: must be a text"));
	assert_non_null(strstr(text, "start the daemon"));
	free(text);
}

static void test_revisions(void **state)
{
	AUTO_JSON *params = NULL, *old = NULL, *data = NULL, *result = NULL;
	static const char modern[] = "{'_meta':{'io.modelcontextprotocol/protocolVersion':'2026-07-28',"
				     "'io.modelcontextprotocol/clientCapabilities':{}}}";
	struct err e = { 0 };
	bool is_modern;

	(void)state;
	params = schema_parse(modern);
	assert_int_equal(protocol_check(params, &is_modern, &data, &e), 0);
	assert_true(is_modern);
	result = protocol_result(json_object_new_object(), true, true);
	assert_string_equal(fields_text(result, "resultType"), "complete");
	json_object_object_del(json_object_object_get(params, "_meta"), "io.modelcontextprotocol/clientCapabilities");
	assert_int_equal(protocol_check(params, &is_modern, &data, &e), RPC_PARAMS);
	old = schema_parse("{'_meta':{'io.modelcontextprotocol/protocolVersion':7}}");
	assert_int_equal(protocol_check(old, &is_modern, &data, &e), RPC_VERSION);
	assert_non_null(data);
	assert_int_equal(protocol_check(NULL, &is_modern, &data, &e), 0);
	assert_false(is_modern);
}

int main(void)
{
	const struct CMUnitTest tests_of_mcp[] = {
		cmocka_unit_test(test_lines_come_in_any_pieces),
		cmocka_unit_test(test_a_line_too_long_is_told_once),
		cmocka_unit_test(test_what_a_long_line_took_is_given_back),
		cmocka_unit_test(test_what_is_no_message),
		cmocka_unit_test(test_answers_are_lines),
		cmocka_unit_test(test_ids_are_the_same_by_type_and_value),
		cmocka_unit_test(test_schema_names_the_field),
		cmocka_unit_test(test_every_tool_has_schemas),
		cmocka_unit_test(test_the_list_is_small),
		cmocka_unit_test(test_hosts_below_the_most),
		cmocka_unit_test(test_origin_is_permitted_or_EPERM),
		cmocka_unit_test(test_times_are_cut),
		cmocka_unit_test(test_what_the_policy_says_is_read),
		cmocka_unit_test(test_a_tool_needs_its_operations),
		cmocka_unit_test_setup_teardown(test_of_flags_and_policy_the_smaller_holds, enter, leave),
		cmocka_unit_test(test_what_is_pending_counts_once),
		cmocka_unit_test(test_a_conversation_without_files),
		cmocka_unit_test(test_a_batch_is_answered_by_a_list),
		cmocka_unit_test(test_who_does_not_read_is_not_served),
		cmocka_unit_test(test_a_batch_that_is_too_long_is_cut),
		cmocka_unit_test_setup_teardown(test_the_first_call_with_a_mount_reads_the_policy, enter, leave),
		cmocka_unit_test(test_a_wrong_call_without_a_mount_is_told_as_before),
		cmocka_unit_test(test_revisions),
	};

	return cmocka_run_group_tests(tests_of_mcp, NULL, NULL);
}
