/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include "tests/unit/fault.h"

static atomic_int left; /* calls to go; 0: not armed, negative: it has failed */
static const char *_Atomic failed;
static atomic_bool dies;

void fault_dies(void)
{
	atomic_store(&dies, true);
}

void fault_arm(unsigned nth)
{
	atomic_store(&left, (int)nth);
}

bool fault_disarm(void)
{
	return atomic_exchange(&left, 0) < 0;
}

const char *fault_name(void)
{
	return atomic_load(&failed);
}

static bool fails(const char *name)
{
	int n = atomic_load(&left);

	while (n > 0 && !atomic_compare_exchange_weak(&left, &n, n == 1 ? -1 : n - 1))
		;
	if (n != 1)
		return false;
	if (atomic_load(&dies))
		_exit(FAULT_DIED);
	atomic_store(&failed, name);
	return true;
}

/* One line a call: what it returns when it fails, with which errno. */
#define WRAP(type, name, params, args, bad, code) \
	type __real_##name params;                \
	type __wrap_##name params;                \
	type __wrap_##name params                 \
	{                                         \
		if (fails(#name)) {               \
			errno = code;             \
			return bad;               \
		}                                 \
		return __real_##name args;        \
	}

WRAP(void *, malloc, (size_t n), (n), NULL, ENOMEM)
WRAP(void *, calloc, (size_t n, size_t m), (n, m), NULL, ENOMEM)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL, ENOMEM)
WRAP(char *, strdup, (const char *s), (s), NULL, ENOMEM)
WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), -1, ENOSPC)
WRAP(int, mkdirat, (int fd, const char *p, mode_t m), (fd, p, m), -1, ENOSPC)
WRAP(int, renameat, (int a, const char *p, int b, const char *q), (a, p, b, q), -1, EIO)
WRAP(int, fsync, (int fd), (fd), -1, EIO)
WRAP(int, fchmod, (int fd, mode_t m), (fd, m), -1, EIO)
WRAP(int, fchmodat, (int fd, const char *p, mode_t m, int f), (fd, p, m, f), -1, EIO)
WRAP(int, socketpair, (int d, int t, int p, int v[2]), (d, t, p, v), -1, EMFILE)
WRAP(int, pipe2, (int v[2], int f), (v, f), -1, EMFILE)

int __real_openat64(int fd, const char *path, int flags, mode_t mode);
int __wrap_openat64(int fd, const char *path, int flags, ...);
int __wrap_openat64(int fd, const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	if (fails("openat")) {
		errno = EMFILE;
		return -1;
	}
	return __real_openat64(fd, path, flags, mode);
}
