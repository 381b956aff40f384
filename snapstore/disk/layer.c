/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's two files. The map is written with pwrite, not through a mapping: a full disk is then an error of the one
 * who wrote, not a SIGBUS of the process that serves everybody. */
#include "snapstore/disk/disk_priv.h"

#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a map's words are its bytes only there");

#define MAP_STEP 512u /* words read at once */

struct layer_name {
	char data[32], map[32];
};

static struct layer_name name_of(uint64_t id)
{
	struct layer_name n;

	snprintf(n.data, sizeof(n.data), "%016" PRIx64 ".data", id);
	snprintf(n.map, sizeof(n.map), "%016" PRIx64 ".map", id);
	return n;
}

static void remove_files(const struct disks *d, uint64_t id)
{
	struct layer_name n = name_of(id);

	unlinkat(d->layers_fd, n.data, 0);
	unlinkat(d->layers_fd, n.map, 0);
}

static struct layer **place_of(struct disks *d, uint64_t id)
{
	struct layer **at = &d->layers[id % DISK_BUCKETS];

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

struct layer *layer_get(struct disks *d, uint64_t id)
{
	struct layer **at = place_of(d, id), *l = *at;

	if (!l) {
		l = calloc(1, sizeof(*l));
		if (!l)
			return NULL;
		*l = (struct layer){ .id = id, .data = -1, .map = -1 };
		*at = l;
		if (id >= d->next_layer)
			d->next_layer = id + 1;
	}
	l->refs++;
	return l;
}

void layer_put(struct disks *d, struct layer *l)
{
	if (--l->refs > 0)
		return;
	remove_files(d, l->id);
	*place_of(d, l->id) = l->next;
	fd_close(&l->data);
	fd_close(&l->map);
	free(l);
}

static int create_files(const struct disks *d, struct layer *l)
{
	struct layer_name n = name_of(l->id);

	l->data = openat(d->layers_fd, n.data, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (l->data < 0)
		return -errno;
	l->map = openat(d->layers_fd, n.map, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return l->map < 0 ? -errno : 0;
}

int layer_size(struct layer *l, uint64_t bytes, struct err *e)
{
	uint64_t blocks = (bytes + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES;

	if (ftruncate(l->data, (off_t)(blocks * DISK_BLOCK_BYTES)) < 0 ||
	    ftruncate(l->map, (off_t)((blocks + WORD_BLOCKS - 1) / WORD_BLOCKS * sizeof(uint64_t))) < 0)
		return err_set(e, -errno, "disk: layer %016" PRIx64 ": size: %s", l->id, strerror(errno));
	return 0;
}

int layer_create(struct disks *d, uint64_t bytes, struct layer **ret, struct err *e)
{
	struct layer *l = layer_get(d, d->next_layer);
	int r;

	if (!l)
		return err_set(e, -ENOMEM, "disk: new layer: no memory");
	r = create_files(d, l);
	if (r < 0)
		err_set(e, r, "disk: new layer %016" PRIx64 ": %s", l->id, strerror(-r));
	else if (bytes > 0)
		r = layer_size(l, bytes, e);
	if (r < 0) {
		layer_put(d, l);
		return r;
	}
	l->opens = 1;
	l->counted = true;
	*ret = l;
	return 0;
}

int layer_alias(struct disks *d, struct layer *l, struct layer **ret, struct err *e)
{
	struct layer *other = layer_get(d, d->next_layer);
	struct layer_name from, to;
	int r;

	if (!other)
		return err_set(e, -ENOMEM, "disk: new layer: no memory");
	from = name_of(l->id);
	to = name_of(other->id);
	if (linkat(d->layers_fd, from.data, d->layers_fd, to.data, 0) < 0 ||
	    linkat(d->layers_fd, from.map, d->layers_fd, to.map, 0) < 0)
		r = err_set(e, -errno, "disk: layer %016" PRIx64 ": link: %s", l->id, strerror(errno));
	else
		r = layer_open(d, other, e);
	if (r < 0) {
		layer_put(d, other);
		return r;
	}
	*ret = other;
	return 0;
}

int layer_open(struct disks *d, struct layer *l, struct err *e)
{
	struct layer_name n = name_of(l->id);
	AUTO_FD data = -1;
	AUTO_FD map = -1;

	if (l->opens > 0) {
		l->opens++;
		return 0;
	}
	data = openat(d->layers_fd, n.data, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (data >= 0)
		map = openat(d->layers_fd, n.map, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (map < 0)
		return err_set(e, errno == ENOENT ? -EBADMSG : -errno, "disk: layer %016" PRIx64 ": open: %s", l->id,
			       strerror(errno));
	l->data = take_fd(&data);
	l->map = take_fd(&map);
	l->opens = 1;
	return 0;
}

int layer_reopen(const struct disks *d, const struct layer *l, int *ret_data, int *ret_map, struct err *e)
{
	struct layer_name n = name_of(l->id);
	AUTO_FD data = openat(d->layers_fd, n.data, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD map = data < 0 ? -1 : openat(d->layers_fd, n.map, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (map < 0)
		return err_set(e, errno == ENOENT ? -EBADMSG : -errno, "disk: layer %016" PRIx64 ": open: %s", l->id,
			       strerror(errno));
	*ret_data = take_fd(&data);
	*ret_map = take_fd(&map);
	return 0;
}

void layer_close(struct layer *l)
{
	if (--l->opens > 0)
		return;
	fd_close(&l->data);
	fd_close(&l->map);
}

/* -- the map ------------------------------------------------------------------------------------------------------- */

int layer_map_read(const struct layer *l, uint64_t first, uint64_t *words, unsigned n, struct err *e)
{
	size_t want = n * sizeof(*words), have = 0;
	off_t at = (off_t)(first / WORD_BLOCKS * sizeof(*words));

	while (have < want) {
		ssize_t got = pread(l->map, (uint8_t *)words + have, want - have, at + (off_t)have);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set(e, -errno, "disk: layer %016" PRIx64 ": read of its map: %s", l->id,
				       strerror(errno));
		if (got == 0)
			break;
		have += (size_t)got;
	}
	memset((uint8_t *)words + have, 0, want - have);
	for (unsigned i = 0; i < n; i++)
		if (words[i] & (words[i] >> 1) & WORD_LOW)
			return err_set(e, -EBADMSG, "disk: layer %016" PRIx64 ": its map is damaged", l->id);
	return 0;
}

int layer_map_write(struct layer *l, uint64_t first, const uint64_t *words, unsigned n, struct err *e)
{
	int r = fd_pwrite_all(l->map, words, n * sizeof(*words), first / WORD_BLOCKS * sizeof(*words));

	l->synced = false;
	if (r < 0)
		return err_set(e, r, "disk: layer %016" PRIx64 ": write of its map: %s", l->id, strerror(-r));
	return 0;
}

/* The bits of blocks [first, first+n) of one word. */
static uint64_t word_mask(unsigned first, unsigned n)
{
	return (n == WORD_BLOCKS ? UINT64_MAX : (1ull << (2 * n)) - 1) << (2 * first);
}

void words_set(uint64_t *words, unsigned first, unsigned n, enum block_state state)
{
	while (n > 0) {
		unsigned at = first % WORD_BLOCKS;
		unsigned some = n < WORD_BLOCKS - at ? n : WORD_BLOCKS - at;
		uint64_t mask = word_mask(at, some);
		uint64_t *w = &words[first / WORD_BLOCKS];

		*w = (*w & ~mask) | (mask & (WORD_LOW * (unsigned)state));
		first += some;
		n -= some;
	}
}

/* A map is mostly holes: only what SEEK_DATA shows is looked at. */
int layer_count(struct layer *l, struct err *e)
{
	uint64_t words[MAP_STEP], used = 0;
	off_t at = 0, end;

	if (l->counted)
		return 0;
	while ((at = lseek(l->map, at, SEEK_DATA)) >= 0) {
		end = lseek(l->map, at, SEEK_HOLE);
		if (end <= at)
			break;
		for (at -= at % (off_t)sizeof(words); at < end; at += (off_t)sizeof(words)) {
			int r = layer_map_read(l, (uint64_t)at / sizeof(*words) * WORD_BLOCKS, words, MAP_STEP, e);

			if (r < 0)
				return r;
			for (unsigned i = 0; i < MAP_STEP; i++)
				used += words_data(words[i]);
		}
	}
	l->used = used;
	l->counted = true;
	return 0;
}

int layer_sync(struct layer *l, struct err *e)
{
	if (l->synced)
		return 0;
	if (fdatasync(l->data) < 0 || fdatasync(l->map) < 0)
		return err_set(e, -errno, "disk: layer %016" PRIx64 ": sync: %s", l->id, strerror(errno));
	l->synced = true;
	return 0;
}

/* -- at the start ------------------------------------------------------------------------------------------------ */

/* The id in a file's name. False: not a name of ours. */
static bool name_parse(const char *name, uint64_t *ret)
{
	struct layer_name n;
	uint64_t id = 0;

	for (unsigned i = 0; i < 16; i++) {
		const char *digits = "0123456789abcdef", *at = name[i] ? strchr(digits, name[i]) : NULL;

		if (!at)
			return false;
		id = id << 4 | (uint64_t)(at - digits);
	}
	n = name_of(id);
	*ret = id;
	return strcmp(name, n.data) == 0 || strcmp(name, n.map) == 0;
}

int layers_sweep(struct disks *d, bool remove, struct err *e)
{
	int fd = openat(d->layers_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *f;

	if (!dir) {
		int r = err_set(e, -errno, "disks: list layers: %s", strerror(errno));

		fd_close(&fd);
		return r;
	}
	while ((f = readdir(dir))) {
		uint64_t id;

		if (!name_parse(f->d_name, &id) || id == UINT64_MAX)
			continue;
		if (id >= d->next_layer)
			d->next_layer = id + 1;
		if (remove && !*place_of(d, id))
			unlinkat(d->layers_fd, f->d_name, 0);
	}
	closedir(dir);
	return 0;
}
