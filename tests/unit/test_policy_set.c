/* SPDX-License-Identifier: Apache-2.0 */
/* Several policies at once: what all of them permit, and nothing else. */
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

static struct net_policy *rules(const char *text)
{
	struct net_policy *p = NULL;

	assert_int_equal(net_policy_parse(text, strlen(text), &nothing, &p, NULL), 0);
	return p;
}

/* A set of its own policies: POLICIES ended by NULL. */
static struct policy_set set_of(const char *const texts[])
{
	struct policy_set set = { 0 };

	for (; *texts; texts++) {
		assert_true(set.n < POLICY_SET_MAX);
		set.of[set.n++] = parse(*texts);
	}
	return set;
}
#define SET(...) set_of((const char *const[]){ __VA_ARGS__, NULL })

static void drop(struct policy_set *set)
{
	for (size_t i = 0; i < set->n; i++)
		policy_unref((struct policy *)set->of[i]);
}

/* What the set amounts to, on one line. */
static char *shown(const struct policy_set *set)
{
	AUTO_JSON *o = json_object_new_object();
	char *text;

	assert_non_null(o);
	assert_int_equal(policy_set_json(set, o), 0);
	text = strdup(json_line(o));
	assert_non_null(text);
	return text;
}

#define ALL_OPS "\"create\",\"exec\",\"snapshot\",\"fork\",\"delete\",\"read\",\"files\",\"network\",\"images\""

static void test_no_policy(void **state)
{
	const struct policy_set none = { 0 };
	struct net_policy *wanted = rules("any.example");
	struct err e = { 0 };
	char *text = shown(&none);

	(void)state;
	for (unsigned i = 0; i < POLICY_OP_COUNT; i++)
		assert_int_equal(policy_set_allows(&none, 1u << i), 1u << i != POLICY_ADMIN);
	assert_false(policy_set_names_admin(&none));
	assert_false(policy_set_allows(&none, 0));
	for (unsigned i = 0; i < POLICY_MAX_COUNT; i++)
		assert_int_equal(policy_set_max(&none, i), 0);
	assert_true(policy_set_allows_profile(&none, "a"));
	assert_true(policy_set_allows_image(&none, "a"));
	assert_null(policy_set_first_profile(&none));
	assert_false(policy_set_net_limited(&none));
	assert_int_equal(policy_set_net_check(&none, wanted, &e), 0);
	assert_string_equal(text, "{\"operations\":[" ALL_OPS "]}");
	free(text);
	net_policy_unref(wanted);
}

/* The laws, over every pair of a few policies: allows(set) is AND, a maximum is the least. */
static void test_laws(void **state)
{
	static const char *const texts[] = {
		"{}",
		"{\"operations\":[]}",
		"{\"operations\":[\"admin\",\"read\",\"exec\"],\"max_fork\":3,\"allow_profiles\":[\"a\",\"b\"]}",
		"{\"operations\":[\"admin\",\"read\",\"create\"],\"max_fork\":7,\"max_vcpus\":2,\"allow_profiles\":[\"b\",\"c\",\"a\"],"
		"\"allow_images\":[\"r/*\"]}",
		"{\"max_sandboxes\":5,\"max_fork\":1,\"max_timeout_s\":9,\"max_memory_mib\":256,\"max_disk_mib\":1024,"
		"\"max_snapshots\":2,\"allow_profiles\":[],\"allow_images\":[\"r/a\",\"s/*\",\"r/b*\"]}",
	};
	static const char *const names[] = { "a", "b", "c", "d" };
	static const char *const refs[] = { "r/a", "r/b:1", "r/c", "s/x", "t" };

	(void)state;
	for (size_t a = 0; a < ARRAY_LEN(texts); a++) {
		for (size_t b = 0; b < ARRAY_LEN(texts); b++) {
			struct policy_set one = SET(texts[a]), two = SET(texts[b]), both = SET(texts[a], texts[b]);

			for (unsigned i = 0; i < POLICY_OP_COUNT; i++)
				assert_int_equal(policy_set_allows(&both, 1u << i),
						 policy_set_allows(&one, 1u << i) && policy_set_allows(&two, 1u << i));
			for (unsigned i = 0; i < POLICY_MAX_COUNT; i++) {
				uint64_t x = policy_set_max(&one, i), y = policy_set_max(&two, i);

				assert_int_equal(policy_set_max(&both, i), !x ? y : !y ? x : x < y ? x : y);
			}
			for (size_t i = 0; i < ARRAY_LEN(names); i++)
				assert_int_equal(policy_set_allows_profile(&both, names[i]),
						 policy_set_allows_profile(&one, names[i]) &&
							 policy_set_allows_profile(&two, names[i]));
			for (size_t i = 0; i < ARRAY_LEN(refs); i++)
				assert_int_equal(policy_set_allows_image(&both, refs[i]),
						 policy_set_allows_image(&one, refs[i]) &&
							 policy_set_allows_image(&two, refs[i]));
			drop(&one);
			drop(&two);
			drop(&both);
		}
	}
}

static void test_admin_must_be_named_by_each(void **state)
{
	struct policy_set both = SET("{\"operations\":[\"admin\"]}", "{}");
	struct policy_set named = SET("{\"operations\":[\"admin\"]}", "{\"operations\":[\"read\",\"admin\"]}");

	(void)state;
	assert_false(policy_set_names_admin(&both));
	assert_true(policy_set_names_admin(&named));
	drop(&both);
	drop(&named);
}

static void test_first_profile(void **state)
{
	static const struct {
		const char *texts[POLICY_SET_MAX + 1];
		const char *first; /* NULL: no list */
	} cases[] = {
		{ { "{}", "{}" }, NULL },
		{ { "{}", "{\"allow_profiles\":[\"z\",\"a\"]}" }, "z" },
		{ { "{\"allow_profiles\":[\"a\",\"b\",\"c\"]}", "{\"allow_profiles\":[\"c\",\"b\"]}" }, "c" },
		{ { "{\"allow_profiles\":[\"a\",\"b\",\"c\"]}", "{\"allow_profiles\":[\"d\",\"b\"]}" }, "b" },
		{ { "{\"allow_profiles\":[\"a\"]}", "{\"allow_profiles\":[\"b\"]}" }, "" },
		{ { "{\"allow_profiles\":[\"a\"]}", "{\"allow_profiles\":[]}" }, "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy_set set = set_of(cases[i].texts);
		const char *first = policy_set_first_profile(&set);

		if (!cases[i].first)
			assert_null(first);
		else
			assert_string_equal(first, cases[i].first);
		if (first)
			assert_int_equal(policy_set_allows_profile(&set, first), *first != '\0');
		drop(&set);
	}
}

/* -- network ---------------------------------------------------------------------------------------------------------
 */

static void test_net(void **state)
{
	static const struct {
		const char *texts[POLICY_SET_MAX + 1];
		const char *wanted;
		int code;
		const char *words;
	} cases[] = {
		{ { "{}", "{\"max_fork\":1}" }, "a.example\n8.8.8.8", 0, "" },
		{ { "{\"net_allow_max\":[]}" }, "", 0, "" },
		{ { "{\"net_allow_max\":[]}" }, "a.example", -EPERM, "no network" },
		{ { "{\"net_allow_max\":[\"a.example\"]}", "{\"net_allow_max\":[]}" },
		  "b.example",
		  -EPERM,
		  "no network" },
		{ { "{\"net_allow_max\":[\"a.example\"]}" }, "a.example:443", 0, "" },
		{ { "{\"net_allow_max\":[\"a.example:443\"]}" }, "a.example", -EDQUOT, "rule a.example: " },
		{ { "{\"net_allow_max\":[\"*.a.example\"]}", "{\"net_allow_max\":[\"b.a.example\"]}" },
		  "b.a.example:1",
		  0,
		  "" },
		{ { "{\"net_allow_max\":[\"*.a.example\"]}", "{}", "{\"net_allow_max\":[\"b.a.example\"]}" },
		  "b.a.example\nc.a.example",
		  -EDQUOT,
		  "rule c.a.example: " },
		{ { "{\"net_allow_max\":[\"a.example\"]}", "{\"net_allow_max\":[\"b.example\"]}" },
		  "a.example",
		  -EDQUOT,
		  "policy.json" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy_set set = set_of(cases[i].texts);
		struct net_policy *wanted = rules(cases[i].wanted);
		struct err e = { 0 };

		if (policy_set_net_check(&set, wanted, &e) != cases[i].code || e.code != cases[i].code ||
		    !strstr(e.msg, cases[i].words))
			fail_msg("%zu: %s", i, e.msg);
		assert_int_equal(policy_set_net_check(&set, wanted, NULL), cases[i].code);
		assert_int_equal(policy_set_net_limited(&set), strstr(cases[i].texts[0], "net") != NULL);
		net_policy_unref(wanted);
		drop(&set);
	}
}

/* -- what policy.json shows
 * -------------------------------------------------------------------------------------------- */

static void test_shown(void **state)
{
	static const struct {
		const char *texts[POLICY_SET_MAX + 1];
		const char *json; /* behind "operations":[…] */
	} cases[] = {
		{ { "{}", "{}" }, "" },
		{ { "{\"max_fork\":3,\"max_vcpus\":2}", "{\"max_fork\":2}" }, ",\"max_fork\":2,\"max_vcpus\":2" },
		{ { "{\"allow_profiles\":[\"a\",\"b\",\"c\"]}", "{}", "{\"allow_profiles\":[\"c\",\"d\",\"b\"]}" },
		  ",\"allow_profiles\":[\"b\",\"c\"]" },
		{ { "{\"allow_profiles\":[\"a\"]}", "{\"allow_profiles\":[\"b\"]}" }, ",\"allow_profiles\":[]" },
		{ { "{\"allow_images\":[\"r/*\",\"s/a\"]}", "{\"allow_images\":[\"r/a*\",\"s/*\",\"t\"]}" },
		  ",\"allow_images\":[\"s/a\",\"r/a*\"]" },
		{ { "{\"allow_images\":[\"r/*\"]}", "{\"allow_images\":[\"r/*\"]}" }, ",\"allow_images\":[\"r/*\"]" },
		{ { "{\"net_allow_max\":[]}", "{\"net_allow_max\":[\"a.example\"]}" }, ",\"net_allow_max\":[]" },
		{ { "{\"net_allow_max\":[\"a.example\",\"b.example\"]}", "{}" },
		  ",\"net_allow_max\":[\"a.example\",\"b.example\"]" },
		{ { "{\"net_allow_max\":[\"*.a.example\",\"@pypi\",\"8.8.0.0/16\"]}",
		    "{\"net_allow_max\":[\"b.a.example\",\"pypi.org\",\"8.8.8.8\",\"c.example\"]}" },
		  ",\"net_allow_max\":[\"b.a.example\",\"pypi.org\",\"8.8.8.8\"]" },
		/* What neither list says itself. */
		{ { "{\"net_allow_max\":[\"*.a.example:443\"]}", "{\"net_allow_max\":[\"b.a.example\"]}" },
		  ",\"net_allow_max\":[\"b.a.example:443\"]" },
		{ { "{\"net_allow_max\":[\"@npm\"]}", "{\"net_allow_max\":[\"*.npmjs.org:443\"]}" },
		  ",\"net_allow_max\":[\"registry.npmjs.org:443\"]" },
		{ { "{\"net_allow_max\":[\"8.8.0.0/16:53\"]}", "{\"net_allow_max\":[\"8.8.8.0/24\"]}",
		    "{\"net_allow_max\":[\"8.8.8.8\"]}" },
		  ",\"net_allow_max\":[\"8.8.8.8:53\"]" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy_set set = set_of(cases[i].texts);
		char *text = shown(&set), expected[512];

		snprintf(expected, sizeof(expected), "{\"operations\":[" ALL_OPS "]%s}", cases[i].json);
		assert_string_equal(text, expected);
		free(text);
		drop(&set);
	}
}

/* Read as a document, what is shown permits what the set permits. */
static void test_shown_is_a_document_of_the_same_meaning(void **state)
{
	struct policy_set set =
		SET("{\"operations\":[\"read\",\"exec\",\"admin\"],\"net_allow_max\":[\"*.a.example:443\",\"@pypi\"],"
		    "\"allow_images\":[\"r/*\"],\"allow_profiles\":[\"a\",\"b\"],\"max_fork\":3}",
		    "{\"operations\":[\"admin\",\"read\"],\"net_allow_max\":[\"b.a.example\",\"pypi.org:443\"],"
		    "\"allow_images\":[\"r/x/*\"],\"allow_profiles\":[\"b\"],\"max_fork\":4,\"max_vcpus\":1}");
	char *text = shown(&set), *again;
	struct policy_set one = SET(text);

	(void)state;
	again = shown(&one);
	assert_string_equal(text, again);
	free(again);
	free(text);
	drop(&one);
	drop(&set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_policy),
		cmocka_unit_test(test_laws),
		cmocka_unit_test(test_admin_must_be_named_by_each),
		cmocka_unit_test(test_first_profile),
		cmocka_unit_test(test_net),
		cmocka_unit_test(test_shown),
		cmocka_unit_test(test_shown_is_a_document_of_the_same_meaning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
