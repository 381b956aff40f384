/* SPDX-License-Identifier: Apache-2.0 */
/* Each allocation of this library fails once: it says -ENOMEM, leaves nothing behind (the address sanitizer looks), and
 * never calls a document good or bad because of it. Allocations inside json-c are not seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "policy/policy.h"
#include "tests/unit/fault.h"

static const char good[] = "{\"operations\":[\"read\",\"exec\"],\"net_allow_max\":[\"*.a.example:443\",\"@npm\"],"
			   "\"allow_profiles\":[\"a\",\"b\"],\"allow_images\":[\"r/*\",\"s/t\"],\"max_fork\":3}";
static const char other[] = "{\"net_allow_max\":[\"b.a.example\"],\"allow_images\":[\"s/*\"]}";
static const char bad[] =
	"{\"operations\":[\"fly\"],\"net_allow_max\":[\"*\",\"a.example\"],\"allow_profiles\":[\"a\",\"-\"],"
	"\"max_fork\":0,\"colour\":1}";

static int parse_good(void)
{
	struct policy *p = NULL;
	int r = policy_parse(good, strlen(good), NULL, &p, NULL);

	assert_int_equal(r == 0, p != NULL);
	policy_unref(p);
	return r;
}

static int parse_bad(void)
{
	struct policy *p = NULL;
	struct buf faults;
	int r;

	buf_init(&faults, 4096);
	r = policy_parse(bad, strlen(bad), NULL, &p, &faults);
	assert_null(p);
	buf_fini(&faults);
	return r == -EINVAL ? 0 : r;
}

static struct policy *one, *two;

static int write_text(void)
{
	struct buf text;
	int r;

	buf_init(&text, POLICY_TEXT_MAX);
	r = policy_text(one, &text);
	buf_fini(&text);
	return r;
}

static int show(void)
{
	const struct policy_set set = { .of = { one, two }, .n = 2 };
	AUTO_JSON *o = json_object_new_object();

	assert_non_null(o);
	return policy_set_json(&set, o);
}

static void test_each_allocation(void **state)
{
	static int (*const calls[])(void) = { parse_good, parse_bad, write_text, show };

	(void)state;
	assert_int_equal(policy_parse(good, strlen(good), NULL, &one, NULL), 0);
	assert_int_equal(policy_parse(other, strlen(other), NULL, &two, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		bool failed = true;

		for (unsigned n = 1; failed; n++) {
			int r;

			fault_arm(n);
			r = calls[i]();
			failed = fault_disarm();
			/* A list that cannot be made shorter is as good. */
			if (calls[i] == show && failed && !strcmp(fault_name(), "realloc") && r == 0)
				continue;
			if (r != (failed ? -ENOMEM : 0))
				fail_msg("call %zu, allocation %u (%s): %d", i, n, failed ? fault_name() : "none", r);
			assert_true(failed || n > 1);
		}
	}
	one = policy_unref(one);
	two = policy_unref(two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
