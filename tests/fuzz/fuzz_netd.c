/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of a daemon that was taken over. The first byte is the type, the second how many descriptors came along. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "netpolicy/netd/netd_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct netd_request q;
	struct msg m = { 0 };
	struct err e = { 0 };
	size_t nfds = 0;
	uint8_t *own;
	int r;

	if (len < 2 || len - 2 > MSG_MAX)
		return 0;
	own = malloc(len); /* exactly as long: what reads beyond is seen */
	if (!own)
		return 0;
	memcpy(own, data, len);
	m.type = own[0];
	m.nfds = own[1] % (MSG_FDS_MAX + 1);
	m.data = own + 2;
	m.len = len - 2;
	r = netd_request_parse(&m, &q, &e);
	assert(r <= 0 && (r == 0 || *e.msg));
	if (r == 0) {
		assert(q.nports <= NET_PORTS_MAX && q.nup <= RESOLVER_UPSTREAMS_MAX && q.nopened <= NETD_OPENED_MAX);
		assert(memchr(q.uuid, '\0', sizeof(q.uuid)));
		assert(*q.uuid || q.type == NETD_STAT || q.type == NETD_CONFIG || q.type == NETD_LIST ||
		       q.type == NETD_QUIT);
		for (size_t i = 0; i < q.nports; i++)
			nfds += q.has_fd[i];
		assert(q.type != NETD_PORTS || nfds == m.nfds);
		assert(q.type != NETD_OPEN || (size_t)__builtin_popcount(q.mask) == m.nfds);
		assert(!q.list || (q.list >= (char *)own && q.list + q.list_len <= (char *)own + len) ||
		       q.list_len == 0);
	}
	free(own);
	return 0;
}
