/* SPDX-License-Identifier: Apache-2.0 */
/* Anonymous, not Private_Dirty: pages of a template that one process alone has read count there (DESIGN.md). */
#include "tools/bench/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

uint64_t memory_available(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		/* NOLINTNEXTLINE(cert-err34-c): the kernel wrote it */
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024u;
}

void memory_of_engine(pid_t pid, uint64_t ram_bytes, uint64_t *guest, uint64_t *engine)
{
	unsigned long long from, to, offset, kib;
	uint64_t begin = 0, end = 0;
	bool in_guest = false;
	char path[64], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		/* NOLINTNEXTLINE(cert-err34-c): the kernel wrote it */
		if (sscanf(line, "%llx-%llx %*s %llx", &from, &to, &offset) == 3) {
			/* A memfd, or the file of a bare machine. Its offset tells where the RAM begins: before it may
			 * lie ranges of zeros that are anonymous. */
			if (!end && (strstr(line, "memfd:") || strstr(line, "/ram")) && to - from >= (1u << 20)) {
				begin = from - offset;
				end = begin + ram_bytes;
			}
			in_guest = from >= begin && from < end;
			/* NOLINTNEXTLINE(cert-err34-c): the kernel wrote it */
		} else if (sscanf(line, "Anonymous: %llu kB", &kib) == 1) {
			*(in_guest ? guest : engine) += kib * 1024u;
		}
	}
	if (f)
		fclose(f);
}
