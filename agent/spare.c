/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/spare.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define ZONEINFO_MAX (256u * 1024)
/* Beyond the watermarks: for what is allocated between this and the taking. */
#define MARGIN (UINT64_C(1) << 20)

/* The largest of "(0, 0, 17024, 17024)". */
static uint64_t largest(const char *list)
{
	uint64_t max = 0;

	while (*list == '(' || *list == ',') {
		char *end;
		uint64_t n = strtoull(list + 1, &end, 10);

		max = n > max ? n : max;
		list = end;
	}
	return max;
}

/* "        high     98" */
static bool is_line(const char *line, const char *word, uint64_t *ret)
{
	size_t len = strlen(word);
	char *end;

	line += strspn(line, " ");
	if (strncmp(line, word, len) != 0 || line[len] != ' ')
		return false;
	*ret = strtoull(line + len, &end, 10);
	return end > line + len;
}

uint64_t spare_pages(char *zoneinfo)
{
	uint64_t sum = 0, free = 0, high = 0, n;
	char *save, *at;

	/* Each zone has "  high  N"; each of its processors has "  high:  N", which is something else. */
	for (char *line = strtok_r(zoneinfo, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (is_line(line, "pages free", &n)) {
			free = n;
			high = 0;
		} else if (is_line(line, "high", &n)) {
			high = n;
		} else if ((at = strstr(line, "protection: ("))) { /* the last of the three */
			n = high + largest(strchr(at, '('));
			sum += free > n ? free - n : 0;
			free = 0;
		}
	}
	return sum;
}

int spare_memory(const struct guest *g, uint64_t *ret)
{
	AUTO_FREE char *zones = NULL;
	int r = fd_slurp(g->proc_fd, "zoneinfo", ZONEINFO_MAX, &zones, NULL);

	if (r < 0)
		return r;
	*ret = spare_pages(zones) * (uint64_t)sysconf(_SC_PAGESIZE);
	*ret = *ret > MARGIN ? *ret - MARGIN : 0;
	return 0;
}
