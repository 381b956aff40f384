/* SPDX-License-Identifier: Apache-2.0 */
/* Writing packs.
 *
 * How this works. Frames are appended to <id>.pack as they come; their digests stay in memory, in a hash table, until
 * the pack ends. Ending it: fsync the pack, write <id>.idx.new, fsync it, rename it to <id>.idx, fsync the folder. A
 * pack without an index is no pack, so that a crash at any instant leaves one that is whole or one that nobody sees. A
 * large batch makes several; those that ended are known to the snap at once and found there. */
#include <fcntl.h>
#include <inttypes.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/loop.h"
#include "snapstore/snap_priv.h"

#define TABLE_BITS 18u /* twice SNAP_PACK_OBJECTS and what one frame may go beyond */

struct packer {
	struct snap *s;
	uint64_t id;
	int fd;	 /* -1: no pack is open */
	int dir; /* packs/, opened for fsync */
	uint64_t bytes;
	uint64_t done_bytes; /* of packs that ended, with their indexes */
	struct index_entry *entries;
	uint32_t n, cap;
	struct place *frames;
	uint32_t nframes, frames_cap;
	uint32_t *table; /* entry + 1, by digest; 0: free */
	uint64_t *ended; /* ids */
	size_t nended;
	void *lz4;
	uint8_t frame[FRAME_MAX];
};

int packer_new(struct snap *s, struct packer **ret, struct err *e)
{
	struct packer *p = calloc(1, sizeof(*p));

	if (p) {
		*p = (struct packer){ .s = s, .fd = -1, .dir = -1 };
		p->table = calloc(1u << TABLE_BITS, sizeof(*p->table));
		p->lz4 = malloc((size_t)LZ4_sizeofState());
	}
	if (!p || !p->table || !p->lz4) {
		packer_free(p, false);
		return err_set(e, -ENOMEM, "packs: no memory");
	}
	p->dir = openat(s->packs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (p->dir < 0) {
		int r = err_set(e, -errno, "packs: %s", err_name(-errno));

		packer_free(p, false);
		return r;
	}
	*ret = p;
	return 0;
}

static int begin(struct packer *p, struct err *e)
{
	char name[32];

	/* A number is never given twice, also when gc removed the largest: readers know a pack by it. So it is the
	 * time. */
	p->id = wall_ns();
	if (p->id <= p->s->packs.top)
		p->id = p->s->packs.top + 1;
	pack_name(p->id, ".pack", name);
	p->fd = openat(p->s->packs_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, SNAP_FILE_MODE);
	if (p->fd < 0)
		return err_set(e, -errno, "packs/%s: %s", name, err_name(-errno));
	p->s->packs.top = p->id;
	return 0;
}

/* Where @d is, or would be, in the table. */
static uint32_t *table_slot(struct packer *p, const struct snap_digest *d)
{
	uint32_t at;

	memcpy(&at, d->bytes + 4, sizeof(at)); /* the first bytes are the fan-out's; any will do */
	for (;; at++) {
		uint32_t *slot = &p->table[at & ((1u << TABLE_BITS) - 1)];

		if (!*slot || snap_digest_equal(&p->entries[*slot - 1].digest, d))
			return slot;
	}
}

bool packer_find(struct packer *p, const struct snap_digest *d, uint32_t *ret_frame, uint32_t *ret_slot)
{
	uint32_t *slot = table_slot(p, d);

	if (!*slot)
		return false;
	*ret_frame = p->entries[*slot - 1].place / 16;
	*ret_slot = p->entries[*slot - 1].place % 16;
	return true;
}

/* Room for one more frame. */
static int reserve(struct packer *p)
{
	if (p->n + SNAP_WINDOW_PAGES > p->cap) {
		uint32_t cap = p->cap ? p->cap * 2 : 1024;
		struct index_entry *more = realloc(p->entries, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		p->entries = more;
		p->cap = cap;
	}
	if (p->nframes == p->frames_cap) {
		uint32_t cap = p->frames_cap ? p->frames_cap * 2 : 256;
		struct place *more = realloc(p->frames, cap * sizeof(*more));

		if (!more)
			return -ENOMEM;
		p->frames = more;
		p->frames_cap = cap;
	}
	return 0;
}

static int append(struct packer *p, const void *frame, size_t len, uint32_t unit, uint32_t count,
		  const struct snap_digest *digests, struct err *e)
{
	int r;

	if (p->fd >= 0 && (p->n + count > SNAP_PACK_OBJECTS || p->bytes + len > SNAP_PACK_BYTES))
		r = packer_finish(p, e);
	else
		r = 0;
	if (r == 0 && p->fd < 0)
		r = begin(p, e);
	if (r < 0)
		return r;
	r = reserve(p);
	if (r < 0)
		return err_set(e, r, "packs: no memory");
	r = fd_pwrite_all(p->fd, frame, len, p->bytes);
	if (r < 0)
		return err_set(e, r, "pack %016" PRIx64 ": writing: %s", p->id, err_name(r));
	for (uint32_t i = 0; i < count; i++) {
		uint32_t *slot = table_slot(p, &digests[i]);

		/* Stored anew: the newer place counts. */
		if (*slot) {
			p->entries[*slot - 1].place = p->nframes * 16 + i;
			continue;
		}
		p->entries[p->n] = (struct index_entry){ digests[i], p->nframes * 16 + i };
		*slot = ++p->n;
	}
	p->frames[p->nframes++] = (struct place){ p->bytes, (uint32_t)len, unit, count };
	p->bytes += len;
	return 0;
}

int packer_frame(struct packer *p, const void *raw, uint32_t unit, uint32_t count, const struct snap_digest *digests,
		 struct err *e)
{
	size_t len;
	int r = frame_encode(&p->s->hash, p->lz4, raw, unit, count, digests, p->frame, &len);

	return r < 0 ? err_set(e, r, "SHA-256 of a frame failed") : append(p, p->frame, len, unit, count, digests, e);
}

int packer_copy(struct packer *p, const void *frame, size_t len, const struct frame *f, struct err *e)
{
	return append(p, frame, len, f->unit, f->count, f->digests, e);
}

int packer_read(struct packer *p, uint32_t frame, uint8_t buf[FRAME_MAX], size_t *ret_len, struct err *e)
{
	const struct place *at = &p->frames[frame];
	ssize_t n = pread(p->fd, buf, at->bytes, (off_t)at->off);

	if (n != (ssize_t)at->bytes)
		return err_set(e, n < 0 ? -errno : -EIO, "pack %016" PRIx64 ": reading what was just written", p->id);
	*ret_len = at->bytes;
	return 0;
}

uint64_t packer_bytes(const struct packer *p)
{
	return p->done_bytes + p->bytes;
}

static int write_index(struct packer *p, const uint8_t *data, size_t len, const char *name, struct err *e)
{
	AUTO_FD fd = -1;
	int r = 0;

	fd = openat(p->s->packs_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, SNAP_FILE_MODE);
	if (fd < 0)
		return err_set(e, -errno, "packs/%s: %s", name, err_name(-errno));
	r = fd_pwrite_all(fd, data, len, 0);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	return r < 0 ? err_set(e, r, "packs/%s: writing: %s", name, err_name(r)) : 0;
}

static void forget_current(struct packer *p)
{
	p->n = 0;
	p->nframes = 0;
	p->bytes = 0;
	memset(p->table, 0, sizeof(*p->table) << TABLE_BITS);
	fd_close(&p->fd);
}

int packer_finish(struct packer *p, struct err *e)
{
	AUTO_FREE uint8_t *data = NULL;
	char pending[32], name[32];
	uint64_t *ended;
	size_t len = 0;
	int r;

	if (p->fd < 0)
		return 0;
	ended = realloc(p->ended, (p->nended + 1) * sizeof(*ended));
	if (!ended)
		return err_set(e, -ENOMEM, "packs: no memory");
	p->ended = ended;
	if (fsync(p->fd) < 0)
		return err_set(e, -errno, "pack %016" PRIx64 ": syncing: %s", p->id, err_name(-errno));
	r = index_build(&p->s->hash, p->entries, p->n, p->frames, p->nframes, p->bytes, &data, &len);
	/* The order of the entries is the index's now: the table is of no use, whatever comes. */
	memset(p->table, 0, sizeof(*p->table) << TABLE_BITS);
	if (r < 0)
		return err_set(e, r, "pack %016" PRIx64 ": its index: %s", p->id, err_name(r));
	pack_name(p->id, ".idx.new", pending);
	pack_name(p->id, ".idx", name);
	r = write_index(p, data, len, pending, e);
	if (r < 0)
		return r;
	if (renameat(p->s->packs_fd, pending, p->s->packs_fd, name) < 0)
		return err_set(e, -errno, "packs/%s: naming it: %s", name, err_name(-errno));
	p->ended[p->nended++] = p->id;
	p->done_bytes += p->bytes + len;
	forget_current(p);
	if (fsync(p->dir) < 0)
		return err_set(e, -errno, "packs: syncing the folder: %s", err_name(-errno));
	return packs_load(p->s, p->ended[p->nended - 1], e);
}

static void remove_pack(struct snap *s, uint64_t id)
{
	static const char *const suffixes[] = { ".idx", ".idx.new", ".pack" };
	char name[32];

	packs_forget(&s->packs, id);
	for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
		pack_name(id, suffixes[i], name);
		unlinkat(s->packs_fd, name, 0);
	}
}

struct packer *packer_free(struct packer *p, bool undo)
{
	if (!p)
		return NULL;
	if (p->fd >= 0)
		remove_pack(p->s, p->id);
	for (size_t i = 0; undo && i < p->nended; i++)
		remove_pack(p->s, p->ended[i]);
	fd_close(&p->fd);
	fd_close(&p->dir);
	free(p->entries);
	free(p->frames);
	free(p->table);
	free(p->ended);
	free(p->lz4);
	free(p);
	return NULL;
}
