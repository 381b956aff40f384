/* SPDX-License-Identifier: Apache-2.0 */
/* The one parser that root runs on what crucibled wrote. What it accepts is within all bounds, and written again it is
 * the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "cruciblefs/launch/launch_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool ok)
{
	if (!ok)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static char store[LAUNCH_ARGS_BYTES_MAX];
	static struct launch_spawn s;
	struct launch_stat st;
	struct wire_rd r;
	struct buf b;

	buf_init(&b, 1u << 20);
	if (launch_spawn_decode(data, len, &s, store, sizeof(store)) == 0) {
		must(s.kind < LAUNCH_KIND_COUNT && s.slot < LAUNCH_SLOTS_MAX && launch_uuid_ok(s.uuid));
		must(s.argc >= 1 && s.argc <= LAUNCH_ARGS_MAX);
		for (size_t i = 0; i < s.argc; i++)
			must(s.argv[i] >= store && s.argv[i] + strlen(s.argv[i]) < store + sizeof(store));
		must(launch_spawn_encode(&s, &b) == 0);
		must(b.len == len && memcmp(b.data, data, len) == 0);
	}
	buf_reset(&b);
	wire_rd_init(&r, data, len);
	if (launch_stat_decode(&r, &st) == 0) {
		must(launch_stat_encode(&st, &b) == 0);
		must(b.len == len && memcmp(b.data, data, len) == 0);
	}
	buf_fini(&b);
	return 0;
}
