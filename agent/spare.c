/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/spare.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fd.h"

#define ZONEINFO_MAX (256u * 1024)
/* Beyond the watermarks: for what is allocated between this and the taking. */
#define MARGIN (UINT64_C(1) << 20)

uint64_t spare_watermarks(char *zoneinfo)
{
	uint64_t sum = 0, n;
	char *save;

	/* Each zone has "  high  N"; each of its processors has "  high:  N", which is something else. */
	for (char *line = strtok_r(zoneinfo, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (sscanf(line, " high %" SCNu64, &n) == 1)
			sum += n;
	return sum;
}

int spare_memory(const struct guest *g, uint64_t *ret)
{
	AUTO_FREE char *zones = NULL;
	struct sysinfo info;
	uint64_t kept;
	int r = fd_slurp(g->proc_fd, "zoneinfo", ZONEINFO_MAX, &zones, NULL);

	if (r < 0)
		return r;
	if (sysinfo(&info) < 0)
		return -errno;
	kept = spare_watermarks(zones) * (uint64_t)sysconf(_SC_PAGESIZE) + MARGIN;
	*ret = (uint64_t)info.freeram * info.mem_unit;
	*ret = *ret > kept ? *ret - kept : 0;
	return 0;
}
