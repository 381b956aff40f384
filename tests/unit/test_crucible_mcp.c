/* SPDX-License-Identifier: Apache-2.0 */
/* mcp serve without a mount: framing, messages, schemas, the operator's limits, revisions; and the server over two
 * pipes, with a tree of plain files behind it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
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

static void test_rules_of_the_most_are_those_of_net_allow(void **state)
{
	static const struct {
		const char *most, *words[2]; /* none: good */
	} cases[] = {
		{ "", { NULL } },
		{ " , ", { NULL } },
		{ "example.org,*.debian.org, api.test:443 @pypi 10.0.0.0/8", { NULL } },
		{ "*", { "--net-allow-max: rule *: ", "name the hosts" } },
		{ "a.test,*,b.test,x..y", { "rule *: ", "rule x..y: " } },
		{ "@nope", { "rule @nope: " } },
		{ "a.test:0", { "rule a.test:0: " } },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct args flags = { .given[OPT_NET_ALLOW_MAX] = true, .text[OPT_NET_ALLOW_MAX] = cases[i].most };
		struct err e = { 0 };

		assert_int_equal(guard_check_net_max(&flags, &e), cases[i].words[0] ? -EINVAL : 0);
		for (size_t k = 0; k < 2 && cases[i].words[k]; k++) {
			if (!strstr(e.msg, cases[i].words[k]))
				fail_msg("\"%s\": %s", cases[i].most, e.msg);
		}
	}
	assert_int_equal(guard_check_net_max(&(struct args){ 0 }, NULL), 0);
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
		cmocka_unit_test(test_rules_of_the_most_are_those_of_net_allow),
		cmocka_unit_test(test_origin_is_permitted_or_EPERM),
		cmocka_unit_test(test_times_are_cut),
		cmocka_unit_test(test_what_is_pending_counts_once),
		cmocka_unit_test(test_a_conversation_without_files),
		cmocka_unit_test(test_a_batch_is_answered_by_a_list),
		cmocka_unit_test(test_who_does_not_read_is_not_served),
		cmocka_unit_test(test_a_batch_that_is_too_long_is_cut),
		cmocka_unit_test(test_revisions),
	};

	return cmocka_run_group_tests(tests_of_mcp, NULL, NULL);
}
