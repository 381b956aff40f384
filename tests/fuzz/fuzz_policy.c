/* SPDX-License-Identifier: Apache-2.0 */
/* Policies that a user writes. What was taken is written in one form, read again the same, and means the same; what was
 * refused says why, a line a fault. Beside another one it permits no more than alone. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const char other_text[] =
	"{\"operations\":[\"create\",\"read\",\"admin\"],\"net_allow_max\":[\"*.example.com:443\","
	"\"@pypi\",\"8.8.0.0/16\"],\"allow_profiles\":[\"python\",\"base\"],"
	"\"allow_images\":[\"registry.example/*\"],\"max_fork\":4,\"max_vcpus\":2}";

static void refused(int r, const struct policy *p, struct buf *faults)
{
	assert((r == -EINVAL || r == -EFBIG) && !p && faults->len > 0);
	assert(faults->data[faults->len - 1] == '\n');
	for (size_t i = 0; i < faults->len; i++) /* one line each, whatever the document holds */
		assert(faults->data[i] == '\n' ? i > 0 && faults->data[i - 1] != '\n' : faults->data[i] >= 0x20);
}

static void round_trip(const struct policy *p, struct buf *one, struct buf *two)
{
	struct policy *q = NULL;

	assert(policy_text(p, one) == 0);
	assert(policy_parse((const char *)one->data, one->len, NULL, &q, NULL) == 0);
	assert(policy_text(q, two) == 0);
	assert(one->len == two->len && memcmp(one->data, two->data, one->len) == 0);
	policy_unref(q);
}

static void beside(const struct policy *p)
{
	static struct policy *other; /* for good */
	AUTO_JSON *o = json_object_new_object();
	struct policy *shown = NULL;
	int r;

	if (!other)
		assert(policy_parse(other_text, strlen(other_text), NULL, &other, NULL) == 0);

	struct policy_set alone = { .of = { p }, .n = 1 }, both = { .of = { p, other }, .n = 2 }, said;

	assert(o && policy_set_json(&both, o) == 0);
	r = policy_parse(json_line(o), strlen(json_line(o)), NULL, &shown, NULL);
	if (r == -EFBIG) /* two lists may have more in common than either says */
		return;
	assert(r == 0);
	said = (struct policy_set){ .of = { shown }, .n = 1 };
	for (unsigned i = 0; i < POLICY_OP_COUNT; i++) {
		assert(!policy_set_allows(&both, 1u << i) || policy_set_allows(&alone, 1u << i));
		assert(policy_set_allows(&both, 1u << i) == policy_set_allows(&said, 1u << i));
	}
	for (unsigned i = 0; i < POLICY_MAX_COUNT; i++) {
		uint64_t a = policy_set_max(&alone, i), b = policy_set_max(&both, i);

		assert(!a || (b && b <= a));
		assert(b == policy_set_max(&said, i));
	}
	if (policy_set_first_profile(&both) && *policy_set_first_profile(&both))
		assert(policy_set_allows_profile(&alone, policy_set_first_profile(&both)));
	policy_unref(shown);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *own = malloc(len ? len : 1);
	struct buf faults, one, two;
	struct policy *p = NULL;
	int r;

	if (!own)
		return 0;
	memcpy(own, data, len);
	buf_init(&faults, 64u << 20);
	buf_init(&one, POLICY_TEXT_MAX * 4);
	buf_init(&two, POLICY_TEXT_MAX * 4);
	r = policy_parse(own, len, NULL, &p, &faults);
	if (r < 0) {
		refused(r, p, &faults);
	} else {
		assert(p && faults.len == 0);
		round_trip(p, &one, &two);
		beside(p);
		policy_unref(p);
	}
	buf_fini(&faults);
	buf_fini(&one);
	buf_fini(&two);
	free(own);
	return 0;
}
