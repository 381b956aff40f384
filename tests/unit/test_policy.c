/* SPDX-License-Identifier: Apache-2.0 */
/* A document: each field, each fault, all faults at once, its one form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "policy/policy.h"
#include "tests/unit/policy_fix.h"

static struct policy_set set_of(const struct policy *p)
{
	return (struct policy_set){ .of = { p }, .n = 1 };
}

static size_t lines_in(const char *text)
{
	size_t n = 0;

	for (; (text = strchr(text, '\n')); text++)
		n++;
	return n;
}

static void test_names(void **state)
{
	static const char *const ops[] = { "create", "exec",  "snapshot", "fork",   "delete",
					   "read",   "files", "network",  "images", "admin" };
	static const char *const max[] = { "max_sandboxes",  "max_fork",     "max_timeout_s", "max_vcpus",
					   "max_memory_mib", "max_disk_mib", "max_snapshots" };

	(void)state;
	for (unsigned i = 0; i < POLICY_OP_COUNT; i++)
		assert_string_equal(policy_op_name(1u << i), ops[i]);
	assert_null(policy_op_name(0));
	assert_null(policy_op_name(POLICY_CREATE | POLICY_EXEC));
	assert_null(policy_op_name(POLICY_ADMIN << 1));
	for (unsigned i = 0; i < POLICY_MAX_COUNT; i++)
		assert_string_equal(policy_max_name(i), max[i]);
}

static void test_empty_permits_all_but_admin(void **state)
{
	struct policy *p = parse(" {} \n");
	struct policy_set set = set_of(p);

	(void)state;
	for (unsigned i = 0; i < POLICY_OP_COUNT; i++)
		assert_int_equal(policy_set_allows(&set, 1u << i), 1u << i != POLICY_ADMIN);
	for (unsigned i = 0; i < POLICY_MAX_COUNT; i++)
		assert_int_equal(policy_set_max(&set, i), 0);
	assert_true(policy_set_allows_profile(&set, "any"));
	assert_true(policy_set_allows_image(&set, "registry.example/any:1"));
	assert_null(policy_set_first_profile(&set));
	assert_false(policy_set_net_limited(&set));
	assert_null(policy_unref(p));
}

static void test_operations_are_what_is_named(void **state)
{
	struct policy *p = parse("{\"operations\":[\"admin\",\"read\"]}"), *none = parse("{\"operations\":[]}");
	struct policy_set set = set_of(p), nothing_at_all = set_of(none);

	(void)state;
	for (unsigned i = 0; i < POLICY_OP_COUNT; i++) {
		assert_int_equal(policy_set_allows(&set, 1u << i), 1u << i == POLICY_ADMIN || 1u << i == POLICY_READ);
		assert_false(policy_set_allows(&nothing_at_all, 1u << i));
	}
	assert_true(policy_set_names_admin(&set));
	policy_unref(none);
	policy_unref(p);
}

static void test_maxima(void **state)
{
	struct policy *p = parse(
		"{\"max_sandboxes\":1,\"max_fork\":2,\"max_timeout_s\":31536000,\"max_vcpus\":4,\"max_memory_mib\":5,"
		"\"max_disk_mib\":16777216,\"max_snapshots\":65536}");
	static const uint64_t expected[] = { 1, 2, 31536000, 4, 5, 1u << 24, 65536 };
	struct policy_set set = set_of(p);

	(void)state;
	for (unsigned i = 0; i < POLICY_MAX_COUNT; i++)
		assert_int_equal(policy_set_max(&set, i), expected[i]);
	policy_unref(p);
}

static void test_profiles_and_images(void **state)
{
	struct policy *p = parse("{\"allow_profiles\":[\"python\",\"node-20\"],"
				 "\"allow_images\":[\"registry.example/team/*\",\"docker.io/library/alpine:3.20\"]}");
	struct policy *none = parse("{\"allow_profiles\":[],\"allow_images\":[]}");
	struct policy_set set = set_of(p), empty = set_of(none);

	(void)state;
	assert_true(policy_set_allows_profile(&set, "python"));
	assert_true(policy_set_allows_profile(&set, "node-20"));
	assert_false(policy_set_allows_profile(&set, "pytho"));
	assert_false(policy_set_allows_profile(&set, "python3"));
	assert_false(policy_set_allows_profile(&set, "Python"));
	assert_false(policy_set_allows_profile(&set, ""));
	assert_string_equal(policy_set_first_profile(&set), "python");
	assert_true(policy_set_allows_image(&set, "registry.example/team/a:1"));
	assert_true(policy_set_allows_image(&set, "registry.example/team/a/b@sha256:00"));
	assert_true(policy_set_allows_image(&set, "docker.io/library/alpine:3.20"));
	assert_false(policy_set_allows_image(&set, "registry.example/team"));
	assert_false(policy_set_allows_image(&set, "registry.example/teams/a"));
	assert_false(policy_set_allows_image(&set, "docker.io/library/alpine:3.20.1"));
	assert_false(policy_set_allows_image(&set, "docker.io/library/alpine"));
	assert_false(policy_set_allows_image(&set, "alpine:3.20"));
	assert_false(policy_set_allows_image(&set, ""));
	assert_false(policy_set_allows_profile(&empty, "python"));
	assert_false(policy_set_allows_image(&empty, "alpine"));
	assert_string_equal(policy_set_first_profile(&empty), "");
	policy_unref(none);
	policy_unref(p);
	p = parse("{\"allow_images\":[\"*\"]}");
	set = set_of(p);
	assert_true(policy_set_allows_image(&set, "any/thing"));
	policy_unref(p);
}

/* -- faults ----------------------------------------------------------------------------------------------------------
 */

#define L63 "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg"

static void test_refused(void **state)
{
	static const struct {
		const char *text, *line; /* what its line begins with */
		const char *words;	 /* and holds */
	} cases[] = {
		{ "", "policy: JSON, line 1", "unexpected end of data; one JSON object" },
		{ "{", "policy: JSON", "one JSON object" },
		{ "{}{}", "policy: JSON, line 1, column 3", "nothing before or behind it" },
		{ "{} x", "policy: JSON, line 1, column 4", "nothing before or behind it" },
		{ "{\"max_fork\":1,}", "policy: JSON", "" },
		{ "{'max_fork':1}", "policy: JSON", "single quote" },
		{ "// all\n{}", "policy: JSON", "" },
		{ "{\"max_fork\":99999999999999999999}", "policy: JSON", "too large" },
		{ "{\"max_fork\":01}", "policy: JSON", "not a number" },
		{ "{\"max_fork\":\"\xff\"}", "policy: JSON", "" },
		{ "[]", "policy: an array; one JSON object", "max_snapshots" },
		{ "null", "policy: null", "operations" },
		{ "1", "policy: a number", "operations" },
		{ "{\"max_forks\":1}", "max_forks: no field of a policy; there are operations net_allow_max ",
		  "max_fork " },
		{ "{\"Operations\":[]}", "Operations: no field", "operations" },
		{ "{\"\":1}", ": no field", "operations" },
		{ "{\"a\\nb\":1}", "a?b: no field", "operations" },
		{ "{\"operations\\u0000x\":[\"read\"]}", "operations: a NUL in the name", "no field" },
		{ "{\"max_fork\":1,\"max_fork\":2}", "max_fork: given twice", "at most once" },
		{ "{\"max_fork\":1,\"max\\u005ffork\":2}", "max_fork: given twice", "at most once" },
		{ "{\"operations\":[],\"allow_images\":[\"a:\"],\"operations\":[]}", "operations: given twice", "" },
		{ "{\"operations\":\"read\"}", "operations: a text, not a list", "an array of names of operations" },
		{ "{\"operations\":null}", "operations: null, not a list", "an array" },
		{ "{\"operations\":{}}", "operations: an object, not a list", "an array" },
		{ "{\"operations\":[1]}", "operations: entry 1 is a number", "names of operations" },
		{ "{\"operations\":[\"read\",[]]}", "operations: entry 2 is an array", "names of operations" },
		{ "{\"operations\":[\"read\\u0000\"]}", "operations: entry 1 holds a NUL", "" },
		{ "{\"operations\":[\"Read\"]}",
		  "operations: \"Read\" is no operation; there are create exec snapshot fork delete read files network images admin",
		  "" },
		{ "{\"operations\":[\"\"]}", "operations: \"\" is no operation", "there are create" },
		{ "{\"operations\":[\"read\",\"exec\",\"read\"]}", "operations: \"read\" stands there twice", "once" },
		{ "{\"net_allow_max\":\"a.example\"}", "net_allow_max: a text, not a list", "netpolicy(5)" },
		{ "{\"net_allow_max\":[null]}", "net_allow_max: entry 1 is null", "rules" },
		{ "{\"net_allow_max\":[\"*\"]}", "net_allow_max: rule *: ", "name the hosts" },
		{ "{\"net_allow_max\":[\"a.example\\nb.example\"]}", "net_allow_max: rule a.example?b.example: ", "" },
		{ "{\"net_allow_max\":[\"# all\"]}", "net_allow_max: rule # all: ", "" },
		{ "{\"net_allow_max\":[\" a.example\"]}", "net_allow_max: rule  a.example: ", "" },
		{ "{\"net_allow_max\":[\"\"]}", "net_allow_max: rule ", "empty" },
		{ "{\"net_allow_max\":[\"10.0.0.0/8\"]}", "net_allow_max: rule 10.0.0.0/8: ", "net_private" },
		{ "{\"net_allow_max\":[\"127.0.0.1\"]}", "net_allow_max: rule 127.0.0.1: ", "loopback" },
		{ "{\"allow_profiles\":{}}", "allow_profiles: an object, not a list", "names of profiles" },
		{ "{\"allow_profiles\":[false]}", "allow_profiles: entry 1 is true or false", "names of profiles" },
		{ "{\"allow_profiles\":[\"\"]}", "allow_profiles: \"\": no name of a profile", "63" },
		{ "{\"allow_profiles\":[\"../x\"]}", "allow_profiles: \"../x\": no name", "letters, digits" },
		{ "{\"allow_profiles\":[\"py*\"]}", "allow_profiles: \"py*\": no name", "letters, digits" },
		{ "{\"allow_profiles\":[\"" L63 "h\"]}", "allow_profiles: \"aaaaaaaaaa", "63" },
		{ "{\"allow_profiles\":[\"a\",\"b\",\"a\"]}", "allow_profiles: \"a\" stands there twice", "once" },
		{ "{\"allow_images\":7}", "allow_images: a number, not a list", "references" },
		{ "{\"allow_images\":[{}]}", "allow_images: entry 1 is an object", "references" },
		{ "{\"allow_images\":[\"\"]}", "allow_images: \"\": empty", "'*'" },
		{ "{\"allow_images\":[\"*/team\"]}", "allow_images: \"*/team\": a '*' stands at the end only",
		  "team/*" },
		{ "{\"allow_images\":[\"a**\"]}", "allow_images: \"a**\": a '*' stands at the end only", "" },
		{ "{\"allow_images\":[\"a b\"]}", "allow_images: \"a b\": no reference", "letters, digits" },
		{ "{\"allow_images\":[\"a?\"]}", "allow_images: \"a?\": no reference", "letters, digits" },
		{ "{\"allow_images\":[\"a\",\"a\"]}", "allow_images: \"a\" stands there twice", "once" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy *p = NULL;
		const char *said;
		struct buf faults;

		buf_init(&faults, 4096);
		assert_int_equal(policy_parse(cases[i].text, strlen(cases[i].text), &nothing, &p, &faults), -EINVAL);
		assert_null(p);
		said = buf_str(&faults);
		if (strncmp(said, cases[i].line, strlen(cases[i].line)) != 0 || !strstr(said, cases[i].words) ||
		    lines_in(said) != 1)
			fail_msg("%s: %s", cases[i].text, said);
		buf_fini(&faults);
		assert_int_equal(policy_parse(cases[i].text, strlen(cases[i].text), &nothing, &p, NULL), -EINVAL);
	}
}

static void test_refused_numbers(void **state)
{
	static const struct {
		const char *value, *words;
	} cases[] = {
		{ "0", "0 is out of range; 1 to " },
		{ "-1", "-1 is out of range; 1 to " },
		{ "-9223372036854775808", "out of range" },
		{ "31536001000", "out of range" },
		{ "18446744073709551615", "out of range" },
		{ "1.0", "1.0 is no whole number; 1 to " },
		{ "1e2", "no whole number" },
		{ "\"1\"", "a text is no whole number" },
		{ "true", "true or false is no whole number" },
		{ "null", "null is no whole number; 1 to " },
		{ "[1]", "an array is no whole number" },
	};
	char text[128], line[160];

	(void)state;
	for (unsigned m = 0; m < POLICY_MAX_COUNT; m++) {
		for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
			struct policy *p = NULL;
			struct buf faults;

			snprintf(text, sizeof(text), "{\"%s\":%s}", policy_max_name(m), cases[i].value);
			snprintf(line, sizeof(line), "%s: ", policy_max_name(m));
			buf_init(&faults, 4096);
			assert_int_equal(policy_parse(text, strlen(text), &nothing, &p, &faults), -EINVAL);
			if (strncmp(buf_str(&faults), line, strlen(line)) != 0 ||
			    !strstr(buf_str(&faults), cases[i].words) ||
			    !strstr(buf_str(&faults), "without the field there is no limit"))
				fail_msg("%s: %s", text, buf_str(&faults));
			buf_fini(&faults);
		}
	}
}

static const char many[] = "{\"operations\":[\"read\",\"fly\",\"read\"],\"max_fork\":0,\"colour\":\"red\",\n"
			   "\"net_allow_max\":[\"a.example\",\"*\",\"a..b\",7],\"allow_profiles\":[\"python\",\"-\"],"
			   "\"allow_images\":\"a\",\"max_vcpus\":1.5,\"max_fork\":1,\"max_disk_mib\":5}";

static void test_all_faults_at_once(void **state)
{
	static const char *const begins[] = { "max_fork: given twice",	"operations: \"fly\"",
					      "operations: \"read\"",	"colour: ",
					      "net_allow_max: rule *",	"net_allow_max: rule a..b",
					      "net_allow_max: entry 4", "allow_profiles: \"-\"",
					      "allow_images: ",		"max_vcpus: " };
	struct policy *p = NULL;
	const char *at;
	struct buf faults;

	(void)state;
	buf_init(&faults, 1 << 16);
	assert_int_equal(policy_parse(many, strlen(many), &nothing, &p, &faults), -EINVAL);
	at = buf_str(&faults);
	for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
		const char *line = strstr(at, begins[i]);

		if (!line || (line != at && line[-1] != '\n'))
			fail_msg("no line \"%s\" in %s", begins[i], at);
	}
	assert_int_equal(lines_in(at), ARRAY_LEN(begins));
	buf_fini(&faults);
}

static void test_faults_that_do_not_fit_are_left_out(void **state)
{
	struct policy *p = NULL;
	struct buf faults;

	(void)state;
	for (size_t cap = 0; cap < 400; cap += 7) {
		buf_init(&faults, cap);
		assert_int_equal(policy_parse(many, strlen(many), &nothing, &p, &faults), -EINVAL);
		assert_true(faults.len == 0 || faults.data[faults.len - 1] == '\n');
		buf_fini(&faults);
	}
}

/* -- bounds ----------------------------------------------------------------------------------------------------------
 */

static void test_size(void **state)
{
	char *text = malloc(POLICY_TEXT_MAX + 1);
	struct policy *p = NULL;
	struct buf faults;

	(void)state;
	assert_non_null(text);
	memset(text, ' ', POLICY_TEXT_MAX + 1);
	memcpy(text, "{}", 2);
	buf_init(&faults, 4096);
	assert_int_equal(policy_parse(text, POLICY_TEXT_MAX + 1, &nothing, &p, &faults), -EFBIG);
	assert_string_equal(buf_str(&faults), "policy: too long; at most 65536 bytes\n");
	assert_null(p);
	assert_int_equal(policy_parse(text, POLICY_TEXT_MAX, &nothing, &p, NULL), 0);
	policy_unref(p);
	buf_fini(&faults);
	free(text);
}

/* What it is written as must be read again, wherever that is kept. */
static void test_a_form_that_is_too_long_is_refused(void **state)
{
	struct policy *p = NULL;
	struct buf b, faults;

	(void)state;
	buf_init(&b, POLICY_TEXT_MAX);
	buf_init(&faults, 4096);
	assert_int_equal(buf_adds(&b, "{\"allow_images\":["), 0);
	for (unsigned i = 0; b.len < POLICY_TEXT_MAX - 600; i++) {
		assert_int_equal(buf_addf(&b, "%s\"%03u", i ? "," : "", i), 0);
		for (unsigned k = 0; k < POLICY_IMAGE_MAX - 3; k++)
			assert_int_equal(buf_adds(&b, "a"), 0);
		assert_int_equal(buf_adds(&b, "\""), 0);
	}
	assert_int_equal(buf_adds(&b, ",\"b"), 0);
	while (b.len < POLICY_TEXT_MAX - 3)
		assert_int_equal(buf_adds(&b, "b"), 0);
	assert_int_equal(buf_adds(&b, "\"]}"), 0);
	assert_int_equal(policy_parse((char *)b.data, b.len, &nothing, &p, &faults), -EFBIG);
	assert_non_null(strstr(buf_str(&faults), "policy: written in full"));
	assert_null(p);
	b.len -= 400;
	assert_int_equal(buf_adds(&b, "\"]}"), 0);
	assert_int_equal(policy_parse((char *)b.data, b.len, &nothing, &p, NULL), 0);
	policy_unref(p);
	buf_fini(&faults);
	buf_fini(&b);
}

/* {"FIELD":["h0PAD.example", …]} */
static void many_entries(struct buf *b, const char *field, size_t n, size_t pad)
{
	static const char zeros[] = "000000000000000000000000000000000000000000000000000000000000";

	buf_reset(b);
	assert_int_equal(buf_addf(b, "{\"%s\":[", field), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(buf_addf(b, "%s\"h%zu%.*s.%.*s.example\"", i ? "," : "", i, (int)(pad / 2), zeros,
					  (int)(pad - pad / 2 + 1), zeros),
				 0);
	assert_int_equal(buf_adds(b, "]}"), 0);
}

static void test_long_lists(void **state)
{
	static const char *const fields[] = { "net_allow_max", "allow_profiles", "allow_images" };
	struct policy *p = NULL;
	struct buf b, faults;

	(void)state;
	buf_init(&b, POLICY_TEXT_MAX);
	buf_init(&faults, 4096);
	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		many_entries(&b, fields[i], POLICY_LIST_MAX, 0);
		assert_int_equal(policy_parse((char *)b.data, b.len, &nothing, &p, &faults), 0);
		p = policy_unref(p);
		many_entries(&b, fields[i], POLICY_LIST_MAX + 1, 0);
		assert_int_equal(policy_parse((char *)b.data, b.len, &nothing, &p, &faults), -EINVAL);
		assert_non_null(strstr(buf_str(&faults), ": 257 entries; at most 256"));
		buf_reset(&faults);
	}
	many_entries(&b, "net_allow_max", POLICY_LIST_MAX, 118); /* beyond NET_LIST_MAX */
	assert_int_equal(policy_parse((char *)b.data, b.len, &nothing, &p, &faults), -EINVAL);
	assert_non_null(strstr(buf_str(&faults), "net_allow_max: the list has"));
	buf_reset(&faults);
	buf_reset(&b);
	assert_int_equal(buf_adds(&b, "{\"allow_images\":[\""), 0);
	for (size_t i = 0; i < POLICY_IMAGE_MAX; i++)
		assert_int_equal(buf_adds(&b, "a"), 0);
	assert_int_equal(buf_adds(&b, "\"]}"), 0);
	assert_int_equal(policy_parse((char *)b.data, b.len, &nothing, &p, &faults), 0);
	p = policy_unref(p);
	b.len -= 3;
	assert_int_equal(buf_adds(&b, "*\"]}"), 0);
	assert_int_equal(policy_parse((char *)b.data, b.len, &nothing, &p, &faults), -EINVAL);
	assert_non_null(strstr(buf_str(&faults), "too long; at most 511"));
	buf_fini(&faults);
	buf_fini(&b);
}

/* -- whose ranges
 * ------------------------------------------------------------------------------------------------------ */

static int parse_rule(const char *rule, const struct net_reach *reach)
{
	struct policy *p = NULL;
	char text[128];
	int r;

	snprintf(text, sizeof(text), "{\"net_allow_max\":[\"%s\"]}", rule);
	r = policy_parse(text, strlen(text), reach, &p, NULL);
	policy_unref(p);
	return r;
}

static void test_without_a_host_any_range_that_root_could_open_is_taken(void **state)
{
	static const char *const could[] = { "10.0.0.0/8",	"192.168.1.7:80", "127.0.0.1",
					     "169.254.169.254", "fd00:1234::/32", "100.100.100.200:80",
					     "fe80::1",		"203.0.113.0/24", "64:ff9b::a00:1" };
	static const char *const never[] = { "0.0.0.0/0", "127.0.0.0/8", "224.0.0.0/4",
					     "fe80::/10", "::/0",	 "10.0.0.1/8" };
	struct net_cidr opened;
	struct net_reach reach = { .opened = &opened, .nopened = 1 };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(could); i++) {
		if (parse_rule(could[i], NULL) != 0)
			fail_msg("%s is refused", could[i]);
		assert_int_equal(parse_rule(could[i], &nothing), -EINVAL);
	}
	for (size_t i = 0; i < ARRAY_LEN(never); i++) {
		if (parse_rule(never[i], NULL) != -EINVAL)
			fail_msg("%s is taken", never[i]);
	}
	assert_int_equal(net_cidr_parse("10.1.0.0/16", &opened, NULL), 0);
	assert_int_equal(parse_rule("10.1.2.0/24", &reach), 0);
	assert_int_equal(parse_rule("10.0.0.0/8", &reach), -EINVAL);
}

/* -- the one form
 * ------------------------------------------------------------------------------------------------------ */

static void test_text(void **state)
{
	static const struct {
		const char *text, *form;
	} cases[] = {
		{ "{}",
		  "{\n  \"operations\": [ \"create\", \"exec\", \"snapshot\", \"fork\", \"delete\", \"read\", \"files\", \"network\", \"images\" ]\n}\n" },
		{ "{\"operations\":[]}", "{\n  \"operations\": [ ]\n}\n" },
		{ "{ \"max_snapshots\" : 3, \"max_fork\":4,\"allow_images\":[\"b/c:1\",\"b/*\",\"a/*\"],\"allow_profiles\":[\"x\",\"a\"],"
		  "\"net_allow_max\":[\"Example.COM.\",\"*.b.example:443\",\"example.com\",\"@pypi\",\"[2606::]/32:443\"],"
		  "\"operations\":[\"admin\",\"read\",\"create\"]}",
		  "{\n"
		  "  \"operations\": [ \"create\", \"read\", \"admin\" ],\n"
		  "  \"net_allow_max\": [ \"example.com\", \"*.b.example:443\", \"@pypi\", \"[2606::]/32:443\" ],\n"
		  "  \"allow_profiles\": [ \"x\", \"a\" ],\n"
		  "  \"allow_images\": [ \"b/c:1\", \"b/*\", \"a/*\" ],\n"
		  "  \"max_fork\": 4,\n"
		  "  \"max_snapshots\": 3\n"
		  "}\n" },
		{ "{\"operations\":[\"read\"],\"net_allow_max\":[],\"allow_profiles\":[],\"allow_images\":[]}",
		  "{\n  \"operations\": [ \"read\" ],\n  \"net_allow_max\": [ ],\n  \"allow_profiles\": [ ],\n  \"allow_images\": [ ]\n}\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy *p = parse(cases[i].text), *again;
		struct buf b, c;

		buf_init(&b, POLICY_TEXT_MAX);
		buf_init(&c, POLICY_TEXT_MAX);
		assert_int_equal(policy_text(p, &b), 0);
		assert_string_equal(buf_str(&b), cases[i].form);
		again = parse((char *)b.data);
		assert_int_equal(policy_text(again, &c), 0);
		assert_string_equal(buf_str(&c), cases[i].form);
		policy_unref(again);
		buf_fini(&c);
		buf_init(&c, b.len - 1);
		assert_int_equal(policy_text(p, &c), -EFBIG);
		buf_fini(&c);
		buf_fini(&b);
		policy_unref(p);
	}
}

static void test_references(void **state)
{
	struct policy *p = parse("{\"max_fork\":3}");
	struct policy_set set = set_of(p);

	(void)state;
	assert_ptr_equal(policy_ref(p), p);
	assert_null(policy_unref(p));
	assert_int_equal(policy_set_max(&set, POLICY_MAX_FORK), 3);
	assert_null(policy_unref(p));
	assert_null(policy_ref(NULL));
	assert_null(policy_unref(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_empty_permits_all_but_admin),
		cmocka_unit_test(test_operations_are_what_is_named),
		cmocka_unit_test(test_maxima),
		cmocka_unit_test(test_profiles_and_images),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_refused_numbers),
		cmocka_unit_test(test_all_faults_at_once),
		cmocka_unit_test(test_faults_that_do_not_fit_are_left_out),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_a_form_that_is_too_long_is_refused),
		cmocka_unit_test(test_long_lists),
		cmocka_unit_test(test_without_a_host_any_range_that_root_could_open_is_taken),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_references),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
