/* SPDX-License-Identifier: Apache-2.0 */
#include "netpolicy/reserve.h"

#include <sys/resource.h>

#define SHARE 8u

bool reserve_has(int fd)
{
	struct rlimit files;

	if (fd < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur < RESERVE_FROM)
		return false;
	return (rlim_t)fd >= files.rlim_cur - files.rlim_cur / SHARE;
}
