/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "snap_rig.h"

struct err rig_err;
uint64_t rig_note;

void snap_rig_new(struct snap_rig *r)
{
	/* In memory, where there is such a place: some tests sync thousands of times. */
	const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");

	snprintf(r->path, sizeof(r->path), "%.40s/snap-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(r->path));
	r->dirfd = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->dirfd >= 0);
	OK(snap_open(r->dirfd, "store", SNAP_WRITE, &r->s, &rig_err));
}

void snap_rig_reopen(struct snap_rig *r)
{
	r->s = snap_close(r->s);
	OK(snap_open(r->dirfd, "store", SNAP_WRITE, &r->s, &rig_err));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void snap_rig_free(struct snap_rig *r)
{
	snap_close(r->s);
	close(r->dirfd);
	nftw(r->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

struct snap *snap_rig_reader(struct snap_rig *r)
{
	struct snap *s = NULL;

	OK(snap_open(r->dirfd, "store", SNAP_READ, &s, &rig_err));
	return s;
}

uint64_t rig_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void rig_page(uint64_t seed, uint8_t page[SNAP_PAGE_BYTES])
{
	uint64_t state = seed;

	memset(page, 0, SNAP_PAGE_BYTES);
	if (!seed)
		return;
	for (unsigned i = 0; i < SNAP_PAGE_BYTES / 2; i += 8) {
		uint64_t v = rig_random(&state);

		memcpy(page + i, &v, 8);
	}
	for (unsigned i = SNAP_PAGE_BYTES / 2; i < SNAP_PAGE_BYTES; i += 8)
		snprintf((char *)page + i, 8, "%07u", (unsigned)(seed % 10000000));
}

void rig_uuid(unsigned n, char out[SNAP_UUID_LEN + 1])
{
	snprintf(out, SNAP_UUID_LEN + 1, "%08x-0000-4000-8000-000000000000", n);
}

struct snap_digest rig_store(struct snap_rig *r, unsigned uuid, const struct snap_digest *base, const uint64_t *seeds,
			     uint64_t n, struct snap_counts *ret)
{
	struct snap_manifest m = { .memory_pages = n, .created_ns = 1 };
	uint8_t page[SNAP_PAGE_BYTES];
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;

	rig_uuid(uuid, m.uuid);
	OK(snap_batch_new(r->s, &b, &rig_err));
	OK(snap_edit_new(b, base, &snap_zero, n, &d, &rig_err));
	for (uint64_t i = 0; i < n; i++) {
		if (seeds[i] == UINT64_MAX)
			continue;
		rig_page(seeds[i], page);
		OK(snap_edit_put(d, i, page, &rig_err));
	}
	OK(snap_edit_finish(d, &m.memory, &rig_err));
	OK(snap_batch_commit(b, &m, ret, &rig_err));
	return m.memory;
}

unsigned rig_files(struct snap_rig *r, const char *folder, const char *suffix, char ret_path[128])
{
	char path[160];
	struct dirent *entry;
	unsigned n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/store/%s", r->path, folder);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		size_t len = strlen(entry->d_name), want = strlen(suffix);

		if (entry->d_name[0] == '.' || len < want || strcmp(entry->d_name + len - want, suffix) != 0)
			continue;
		n++;
		if (ret_path)
			snprintf(ret_path, 128, "store/%s/%.80s", folder, entry->d_name);
	}
	closedir(dir);
	return n;
}

void rig_flip(struct snap_rig *r, const char *path, uint64_t off)
{
	AUTO_FD fd = openat(r->dirfd, path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)off), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)off), 1);
}

uint64_t rig_size(struct snap_rig *r, const char *path)
{
	struct stat st;

	assert_int_equal(fstatat(r->dirfd, path, &st, 0), 0);
	return (uint64_t)st.st_size;
}

void rig_cut(struct snap_rig *r, const char *path, uint64_t len)
{
	AUTO_FD fd = openat(r->dirfd, path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
}
