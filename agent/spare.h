/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CRUCIBLE_AGENT_SPARE_H
#define CRUCIBLE_AGENT_SPARE_H

#include <stdint.h>

#include "agent/guest.h"

/* Bytes of free memory beyond what the kernel keeps for itself: the watermarks below which it begins to reclaim, and
 * what of its lower zones it gives nobody who could use a higher one. So much can be taken without anything being
 * dropped from a cache. Thread: any. Reads /proc. Errors: those of open(2) and read(2). */
int spare_memory(const struct guest *g, uint64_t *ret);

/* The same of the text of /proc/zoneinfo, which is changed, in pages. */
uint64_t spare_pages(char *zoneinfo);

#endif
