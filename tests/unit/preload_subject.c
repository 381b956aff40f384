/* SPDX-License-Identifier: Apache-2.0 */
/* A program for the preload library to be loaded into: it maps, reads and writes as it is told, a line at a time. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint8_t *ram; /* the first shared mapping that succeeded */

static void map(uint64_t bytes, int shared)
{
	int fd = memfd_create("ram", 0);
	uint8_t byte = 0;
	int reached;
	void *p;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0) {
		printf("no memfd\n");
		return;
	}
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED) {
		printf("errno %d\n", errno);
		return;
	}
	if (!ram)
		ram = p;
	/* Does what is written through the mapping reach the memfd? No access after the answer: it may be watched then.
	 */
	*(volatile uint8_t *)p = 0x5a;
	reached = pread(fd, &byte, 1, 0) == 1 && byte == 0x5a;
	*(volatile uint8_t *)p = 0;
	printf("%s %llx\n", reached ? "file" : "private", (unsigned long long)(uintptr_t)p);
	close(fd);
}

/* What the kernel says of the mapping at this offset. */
static void flags(uint64_t off)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long long at = (uintptr_t)ram + off, from, to;
	char line[512];
	int here = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
			here = from <= at && at < to;
		else if (here && strncmp(line, "VmFlags:", 8) == 0)
			printf("%s", line);
	}
	if (f)
		fclose(f);
}

/* As many mappings as the kernel permits, to the last one. */
static void crowd(void)
{
	static const size_t n = 4 << 20; /* more than anybody permits */
	uint8_t *p = mmap(NULL, n * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	void *last = NULL;
	size_t i = 1;

	if (p == MAP_FAILED) {
		printf("errno %d\n", errno);
		return;
	}
	while (i < n && mprotect(p + i * 4096, 4096, PROT_READ) == 0)
		i += 2;
	/* Each was two more. One more each, until there are none; then one fewer: mmap() of a place that is taken
	 * works, one that splits a mapping does not. */
	for (;; i++) {
		void *more = mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (more == MAP_FAILED)
			break;
		last = more;
	}
	printf("%s\n", last && munmap(last, 4096) == 0 ? "full" : "not full");
}

int main(void)
{
	unsigned long long a, b;
	char line[256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("hello\n");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "map %llu %llu", &a, &b) == 2)
			map(a, (int)b);
		else if (sscanf(line, "read %llu", &a) == 1)
			printf("%u\n", *(volatile uint8_t *)(ram + a));
		else if (sscanf(line, "write %llu %llu", &a, &b) == 2)
			printf("%u\n", *(volatile uint8_t *)(ram + a) = (uint8_t)b);
		else if (sscanf(line, "flags %llu", &a) == 1)
			flags(a);
		else if (strcmp(line, "crowd\n") == 0)
			crowd();
		else
			printf("what?\n");
	}
	return 0;
}
