/* SPDX-License-Identifier: Apache-2.0 */
/* What fault.c fails, and what the snapstore uses beyond that. */
#include <sys/mman.h>
#include <unistd.h>
#include "fault.c"

WRAP(ssize_t, pwrite64, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at), -1, ENOSPC)
WRAP(ssize_t, pread64, (int fd, void *p, size_t n, off_t at), (fd, p, n, at), -1, EIO)
WRAP(void *, mmap64, (void *p, size_t n, int prot, int flags, int fd, off_t at), (p, n, prot, flags, fd, at),
     MAP_FAILED, ENOMEM)
WRAP(int, unlinkat, (int fd, const char *p, int flags), (fd, p, flags), -1, EIO)
