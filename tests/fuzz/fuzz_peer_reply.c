/* SPDX-License-Identifier: Apache-2.0 */
/* What pager and store answer, as the daemon takes it apart. First byte: whose; second: to which request; third: how
 * many descriptors came along; then the reply. What is accepted is within all bounds. */
#include <stdlib.h>
#include <string.h>

#include "cruciblefs/domain/pagerlink.h"
#include "cruciblefs/domain/storelink.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);
/* The links are here, the launcher is not. */
int launcher_call(struct launcher *l, enum launch_type type, const void *data, size_t len, const int *fds, size_t nfds,
		  launcher_fn *fn, void *arg)
{
	(void)l, (void)type, (void)data, (void)len, (void)fds, (void)nfds, (void)fn, (void)arg;
	return -EPIPE;
}

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void pager(enum pager_type type, struct wire_rd *r, struct msg *m)
{
	const uint64_t bytes = type == PAGER_TEMPLATE ? 1u << 30 : 0;
	struct pager_reply p;

	if (pager_reply_parse(type, bytes, r, m, &p) == 0) {
		uint64_t end = 0;

		must(p.nranges <= PAGER_RANGES_MAX && p.nfds == m->nfds);
		for (uint32_t i = 0; i < p.nranges; i++) {
			must(p.ranges[i].offset >= end && p.ranges[i].bytes >= PAGER_RANGE_MIN);
			end = p.ranges[i].offset + p.ranges[i].bytes;
			must(end > p.ranges[i].offset && end <= (bytes ? bytes : PAGER_MEMORY_MAX));
		}
		for (size_t i = 0; i < p.nmachines; i++)
			must(strlen(p.machines[i].machine) <= PAGER_UUID_LEN &&
			     strlen(p.machines[i].snapshot) <= PAGER_UUID_LEN);
		for (size_t i = 0; i < p.nheld; i++)
			must(strlen(p.held[i].snapshot) <= PAGER_UUID_LEN);
		if (type == PAGER_DISK_FILES)
			must(m->nfds == 2 * (size_t)p.layers);
	}
	pager_reply_fini(&p);
}

static void store(enum stored_type type, struct wire_rd *r, struct msg *m)
{
	struct store_reply s;

	if (store_reply_parse(type, r, m, &s) == 0) {
		must(s.nuuids <= STORE_LIST_MAX && (s.state_fd != NULL) == (type == STORE_STATE));
		must(strlen(s.ingested.disk_root) <= 64 && strlen(s.ingested.memory_root) <= 64);
		must(strlen(s.verified.first) < sizeof(s.verified.first));
		for (size_t i = 0; i < s.nuuids; i++)
			must(strlen(s.uuids[i]) <= SNAP_UUID_LEN);
	}
	store_reply_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char words[CALLS_WORDS_MAX];
	struct msg m = { 0 };
	struct wire_rd r;
	int code;

	if (len < 3)
		return 0;
	m.nfds = data[2] % (MSG_FDS_MAX + 1);
	for (size_t i = 0; i < m.nfds; i++)
		m.fds[i] = -1;
	wire_rd_init(&r, data + 3, len - 3);
	if (call_parse(&r, &code, words) < 0)
		return 0;
	must(code <= 0 && strlen(words) < sizeof(words));
	if (data[0] % 2)
		store((enum stored_type)(data[1] % STORE_TYPE_COUNT), &r, &m);
	else
		pager((enum pager_type)(data[1] % PAGER_TYPE_COUNT), &r, &m);
	return 0;
}
