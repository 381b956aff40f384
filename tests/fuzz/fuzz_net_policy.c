/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that a user writes: net/allow and net/ports. What was understood is written in one form, and read again the
 * same. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "netpolicy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void rules(const char *text, size_t len)
{
	struct net_policy *p = NULL, *q = NULL;
	struct err e = { 0 };
	struct buf one, two;
	int r = net_policy_parse(text, len, NULL, &p, &e);

	if (r < 0) {
		assert((r == -EINVAL || r == -E2BIG) && *e.msg);
		return;
	}
	buf_init(&one, 1 << 20);
	buf_init(&two, 1 << 20);
	assert(net_policy_text(p, &one) == 0);
	assert(net_policy_parse((const char *)one.data, one.len, NULL, &q, &e) == 0);
	assert(net_policy_text(q, &two) == 0);
	assert(one.len == two.len && (one.len == 0 || memcmp(one.data, two.data, one.len) == 0));
	assert(net_policy_within(p, q, &e) && net_policy_within(q, p, &e));
	assert(net_policy_empty(p) == (one.len == 0));
	assert(!net_policy_allows_addr(p, &(struct net_addr){ AF_INET, { 127, 0, 0, 1 } }, 80));
	buf_fini(&one);
	buf_fini(&two);
	net_policy_unref(p);
	net_policy_unref(q);
}

static void ports(const char *text, size_t len)
{
	struct net_port list[NET_PORTS_MAX], again;
	struct err e = { 0 };
	char form[100];
	size_t n = 0;
	int r = net_ports_parse(text, len, list, &n, &e);

	if (r < 0) {
		assert(*e.msg);
		return;
	}
	assert(n <= NET_PORTS_MAX);
	for (size_t i = 0; i < n; i++) {
		struct net_port one[NET_PORTS_MAX];
		size_t m = 0;

		assert(net_port_text(&list[i], form, sizeof(form)) == 0);
		assert(net_ports_parse(form, strlen(form), one, &m, &e) == 0 && m == 1);
		again = one[0];
		assert(net_addr_equal(&again.host, &list[i].host) && again.host_port == list[i].host_port &&
		       again.guest_port == list[i].guest_port);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *own = malloc(len ? len : 1);

	if (!own)
		return 0;
	memcpy(own, data, len);
	rules(own, len);
	ports(own, len);
	free(own);
	return 0;
}
