/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/disk_dir.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

void disk_dir_make(struct disk_dir *d)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(d->path, sizeof(d->path), "%s/crucible-disk-XXXXXX", tmp && strlen(tmp) < 32 ? tmp : "/tmp");
	if (!mkdtemp(d->path))
		abort();
	d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert(d->fd >= 0);
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *w)
{
	(void)st;
	(void)type;
	(void)w;
	return remove(path);
}

void disk_dir_end(struct disk_dir *d)
{
	fd_close(&d->fd);
	nftw(d->path, drop, 16, FTW_DEPTH | FTW_PHYS);
}

uint8_t disk_dir_byte(uint64_t off)
{
	return (uint8_t)(1 + (off * 2654435761u >> 13) % 255);
}

int disk_dir_base(const struct disk_dir *d, const char *name, uint64_t bytes)
{
	char path[128], again[128];
	uint8_t block[4096];
	int fd, ro;

	mkdirat(d->fd, "bases", 0700);
	snprintf(path, sizeof(path), "bases/%s", name);
	fd = openat(d->fd, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert(fd >= 0);
	for (uint64_t at = 0; at < bytes; at += sizeof(block)) {
		size_t n = bytes - at < sizeof(block) ? (size_t)(bytes - at) : sizeof(block);

		for (size_t i = 0; i < n; i++)
			block[i] = disk_dir_byte(at + i);
		if (fd_pwrite_all(fd, block, n, at) < 0)
			abort();
	}
	snprintf(again, sizeof(again), "/proc/self/fd/%d", fd);
	ro = open(again, O_RDONLY | O_CLOEXEC);
	assert(ro >= 0);
	close(fd);
	return ro;
}

unsigned disk_dir_files(const struct disk_dir *d, const char *folder)
{
	DIR *dir = fdopendir(openat(d->fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	const struct dirent *f;
	unsigned n = 0;

	assert(dir);
	while ((f = readdir(dir)))
		n += f->d_name[0] != '.';
	closedir(dir);
	return n;
}
