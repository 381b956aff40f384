/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/box/source.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

int source_open(struct source *s, int dirfd, const char *path)
{
	AUTO_FD fd = openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*s = (struct source){ .len = (uint64_t)st.st_size };
	s->fd = take_fd(&fd);
	return 0;
}

/* A file that is gone when it is closed. Not O_TMPFILE: overlayfs and NFS have none. */
static int open_nameless(int dirfd)
{
	static const char name[] = ".spill";
	int fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 && errno == EEXIST) {
		/* Left by a box that was killed between the two calls. */
		unlinkat(dirfd, name, 0);
		fd = openat(dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	}
	if (fd < 0)
		return -errno;
	unlinkat(dirfd, name, 0);
	return fd;
}

int source_memory(struct source *s, char *mem, size_t len, int dirfd)
{
	AUTO_FREE char *owned = mem;
	AUTO_FD fd = -1;
	int r;

	*s = (struct source){ .len = len };
	if (len <= SOURCE_MEMORY_MAX) {
		s->mem = owned;
		owned = NULL;
		return 0;
	}
	fd = open_nameless(dirfd);
	if (fd < 0)
		return fd;
	r = fd_write_all(fd, mem, len);
	if (r < 0)
		return r;
	s->fd = take_fd(&fd);
	return 0;
}

void source_fini(struct source *s)
{
	free(s->mem);
	if (s->fd > 0)
		close(s->fd);
	*s = (struct source){ 0 };
}

long source_read(struct source *s, uint8_t *buf, size_t cap)
{
	ssize_t n;

	if (cap > s->len - s->at)
		cap = (size_t)(s->len - s->at);
	if (cap == 0)
		return 0;
	if (s->mem) {
		memcpy(buf, s->mem + s->at, cap);
		s->at += cap;
		return (long)cap;
	}
	do {
		n = pread(s->fd, buf, cap, (off_t)s->at);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -EIO;
	if (n == 0)
		s->at = s->len;
	s->at += (uint64_t)n;
	return n;
}
