/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void fd_close(int *fd)
{
	int saved = errno;

	/* Never again after EINTR: on Linux the descriptor is gone whatever close() says. */
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}

int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

void free_ptr(void *pp)
{
	free(*(void **)pp);
}

int fd_write_all(int fd, const void *buf, size_t len)
{
	const uint8_t *p = buf;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_read_all(int fd, void *buf, size_t len)
{
	uint8_t *p = buf;

	while (len > 0) {
		ssize_t n = read(fd, p, len);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			return -ENODATA;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int fd_pwrite_all(int fd, const void *buf, size_t len, uint64_t off)
{
	const uint8_t *p = buf;

	if (off > INT64_MAX || len > INT64_MAX - off)
		return -EFBIG;
	while (len > 0) {
		ssize_t n = pwrite(fd, p, len, (off_t)off);

		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		p += n;
		off += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int set_flag(int fd, int get, int set, int flag, bool on)
{
	int flags = fcntl(fd, get);

	if (flags < 0)
		return -errno;
	flags = on ? flags | flag : flags & ~flag;
	return fcntl(fd, set, flags) < 0 ? -errno : 0;
}

int fd_set_nonblock(int fd, bool on)
{
	return set_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int fd_set_cloexec(int fd, bool on)
{
	return set_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

int fd_slurp(int dirfd, const char *path, size_t cap, char **ret_text, size_t *ret_len)
{
	AUTO_FD fd = -1;
	AUTO_FREE char *text = NULL;
	size_t len = 0, room;
	struct stat st;

	/* O_NONBLOCK: a FIFO planted in our place must not hang us before it is refused. */
	fd = openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (cap > SSIZE_MAX - 2)
		cap = SSIZE_MAX - 2;
	if (st.st_size > 0 && (uint64_t)st.st_size > cap)
		return -EFBIG;
	/* The size is a hint only: files of proc and cgroupfs say 0. One byte to see the end, one for the NUL. */
	room = (size_t)st.st_size + 2;
	if (room < 1024)
		room = 1024;
	for (;;) {
		ssize_t n;
		char *grown;

		if (!text || len + 1 == room) {
			if (text)
				room *= 2;
			if (room > cap + 2)
				room = cap + 2;
			grown = realloc(text, room);
			if (!grown)
				return -ENOMEM;
			text = grown;
		}
		n = read(fd, text + len, room - 1 - len);
		if (n < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		if (n == 0)
			break;
		len += (size_t)n;
		if (len > cap)
			return -EFBIG;
	}
	text[len] = '\0';
	*ret_text = text;
	text = NULL;
	if (ret_len)
		*ret_len = len;
	return 0;
}

/* The folder that @path lies in, opened for fsync. */
static int open_parent(int dirfd, const char *path)
{
	const char *slash = strrchr(path, '/');
	AUTO_FREE char *parent = NULL;
	int fd;

	parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
	if (!parent)
		return -ENOMEM; /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not know AUTO_FREE */
	fd = openat(dirfd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int fd_replace(int dirfd, const char *path, const void *data, size_t len, mode_t mode, bool sync)
{
	static atomic_uint counter;
	AUTO_FREE char *tmp = NULL;
	AUTO_FD dir = -1;
	AUTO_FD fd = -1;
	int r;

	if (sync) {
		dir = open_parent(dirfd, path);
		if (dir < 0)
			return dir;
	}
	/* A number per process and call; a leftover of a crashed process with our pid is stepped over. */
	for (int tries = 0; fd < 0; tries++) {
		free(tmp);
		if (asprintf(&tmp, "%s.new-%d-%u", path, (int)getpid(), atomic_fetch_add(&counter, 1)) < 0) {
			tmp = NULL;
			return -ENOMEM;
		}
		fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		if (fd < 0 && (errno != EEXIST || tries == 100))
			return -errno;
	}
	r = fd_write_all(fd, data, len);
	if (r == 0 && fchmod(fd, mode) < 0) /* past the umask */
		r = -errno;
	if (r == 0 && sync && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(dirfd, tmp, dirfd, path) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dirfd, tmp, 0);
		return r;
	}
	/* From here the new file stands, even if the folder's own write fails. */
	if (sync && fsync(dir) < 0)
		return -errno;
	return 0;
}
