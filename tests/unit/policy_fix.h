/* SPDX-License-Identifier: Apache-2.0 */
/* Policies of tests. */
#ifndef CRUCIBLE_TEST_POLICY_FIX_H
#define CRUCIBLE_TEST_POLICY_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "policy/policy.h"

static const struct net_reach nothing;

/* The policy of @text, which must have no faults. */
static inline struct policy *parse(const char *text)
{
	struct policy *p = NULL;
	struct buf faults;

	buf_init(&faults, 4096);
	if (policy_parse(text, strlen(text), &nothing, &p, &faults) < 0)
		fail_msg("%s: %s", text, buf_str(&faults));
	assert_int_equal(faults.len, 0);
	buf_fini(&faults);
	return p;
}

#endif
