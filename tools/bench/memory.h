/* SPDX-License-Identifier: Apache-2.0 */
/* What machines take of the host's memory. Thread: any. Blocks: on /proc. */
#ifndef CRUCIBLE_TOOLS_BENCH_MEMORY_H
#define CRUCIBLE_TOOLS_BENCH_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

uint64_t memory_available(void); /* bytes of MemAvailable; 0: unknown */

/* Anonymous bytes of an engine: those of its guest's RAM (@ram_bytes, one range of addresses that begins with the
 * mapping of a file of that purpose), and all others. A process that is gone adds nothing. */
void memory_of_engine(pid_t pid, uint64_t ram_bytes, uint64_t *guest, uint64_t *engine);

#endif
