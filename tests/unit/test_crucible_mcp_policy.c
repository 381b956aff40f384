/* SPDX-License-Identifier: Apache-2.0 */
/* mcp serve and the policy of its mount: which tools there are, which limit of the policy's and the operator's holds,
 * and when the policy is read anew. With a tree of plain files for a mount. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/mcp/schema.h"
#include "tools/crucible/mcp/server.h"

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

static void test_the_default_profile_is_there(void **state)
{
	struct args flags = { .given[OPT_DEFAULT_PROFILE] = true, .text[OPT_DEFAULT_PROFILE] = "nope" };
	struct err e = { 0 };
	int root = open(world, O_PATH | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	assert_int_equal(guard_check_default(&(struct args){ 0 }, root, &e), 0);
	assert_int_equal(guard_check_default(&flags, root, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "--default-profile: there is no profile \"nope\""));
	assert_int_equal(mkdirat(root, "profiles/nope", 0755), 0);
	assert_int_equal(guard_check_default(&flags, root, &e), 0);
	assert_int_equal(unlinkat(root, "profiles/nope", AT_REMOVEDIR), 0);
	assert_int_equal(unlinkat(root, "profiles", AT_REMOVEDIR), 0); /* none are listed: a call will tell */
	assert_int_equal(guard_check_default(&flags, root, &e), 0);
	close(root);
}

/* -- the server ---------------------------------------------------------------------------------------------------- */

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

/* "the error begins with the argument's name" and, where there is one, the way out. */
static void test_what_is_wrong_begins_with_the_argument(void **state)
{
	static const struct {
		const char *call, *words;
	} cases[] = {
		{ CALL("2", "create_sandbox", "{\"env\":[\"A=1\",\"bad\"]}"),
		  "\"text\":\"env[1]: \\\"bad\\\" is not KEY=VALUE" },
		{ CALL("2", "run", "{\"command\":[\"true\"],\"env\":[\"=x\"]}"),
		  "\"text\":\"env[0]: \\\"=x\\\" is not KEY=VALUE" },
		{ CALL("2", "exec", "{\"sandbox_id\":\"a\",\"command\":[\"true\"],\"env\":[\"A=1\",\"B\"]}"),
		  "\"text\":\"env[1]: " },
		{ CALL("2", "create_sandbox", "{\"profile\":\"../x\"}"), "\"text\":\"profile: " },
		{ CALL("2", "create_sandbox", "{\"snapshot\":\"../x\"}"), "\"text\":\"snapshot: " },
		{ CALL("2", "create_sandbox", "{\"net_allow\":[\"a\\nb\"]}"), "\"text\":\"net_allow: " },
		{ CALL("2", "create_sandbox", "{\"profile\":\"a\",\"snapshot\":\"b\"}"),
		  "\"text\":\"profile, image, snapshot: give one of them" },
		{ CALL("2", "run", "{\"command\":[\"true\"],\"image\":\"alpine\"}"),
		  "\"text\":\"image: this version has no images yet: give a profile (list_profiles" },
		{ CALL("2", "run", "{\"command\":\"echo hi\"}"),
		  "\"text\":\"command: must be a list: give [\\\"sh\\\",\\\"-c\\\",\\\"…\\\"], or code" },
		{ CALL("2", "exec", "{\"sandbox_id\":\"a\",\"command\":\"x\"}"),
		  "\"text\":\"command: must be a list: give" },
		{ CALL("2", "read_file", "{\"command\":\"x\",\"sandbox_id\":\"a\",\"path\":\"/a\"}"),
		  "\"text\":\"command: there is no such argument" },
	};
	struct args none = { 0 };

	(void)state;
	put_version();
	put_policy("{\"operations\":[\"create\",\"exec\",\"delete\",\"read\",\"files\",\"fork\",\"network\"]}");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char *text = serve_calls(cases[i].call, &none, world, 1);

		if (!strstr(text, cases[i].words))
			fail_msg("%s: %s", cases[i].words, text);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests_of_policy[] = {
		cmocka_unit_test(test_what_the_policy_says_is_read),
		cmocka_unit_test(test_a_tool_needs_its_operations),
		cmocka_unit_test_setup_teardown(test_of_flags_and_policy_the_smaller_holds, enter, leave),
		cmocka_unit_test_setup_teardown(test_the_default_profile_is_there, enter, leave),
		cmocka_unit_test_setup_teardown(test_the_first_call_with_a_mount_reads_the_policy, enter, leave),
		cmocka_unit_test_setup_teardown(test_what_is_wrong_begins_with_the_argument, enter, leave),
		cmocka_unit_test(test_a_wrong_call_without_a_mount_is_told_as_before),
	};

	return cmocka_run_group_tests(tests_of_policy, NULL, NULL);
}
