/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CRUCIBLE_AGENT_SPARE_H
#define CRUCIBLE_AGENT_SPARE_H

#include <stdint.h>

#include "agent/guest.h"

/* Bytes of free memory beyond the watermarks below which the kernel begins to reclaim: so much can be taken without
 * anything being dropped from a cache. Thread: any. Reads /proc. Errors: those of open(2), read(2), sysinfo(2). */
int spare_memory(const struct guest *g, uint64_t *ret);

/* The same of the text of /proc/zoneinfo, in pages: the sum of the zones' high watermarks. */
uint64_t spare_watermarks(char *zoneinfo);

#endif
