/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/fd.h"
#include "cruciblefs/domain/priv.h"

/* MemAvailable; UINT64_MAX where the kernel does not tell (then nothing is refused for it). */
uint64_t host_available_mib(void)
{
	AUTO_FD fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	char text[1024];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	char *at;

	if (n <= 0)
		return UINT64_MAX;
	text[n] = '\0';
	at = strstr(text, "MemAvailable:");
	return at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) / 1024 : UINT64_MAX;
}

int host_disk_free_mib(int fd, uint64_t *ret)
{
	struct statvfs v;

	if (fstatvfs(fd, &v) < 0)
		return -errno;
	*ret = (uint64_t)v.f_bavail * v.f_frsize >> 20;
	return 0;
}
