/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The index (index.c) says for each block which file has it. Neighbours that one file has are read with one pread; all
 * writes go to the top layer: first the bytes, then the bits of its map that say so, then the index. So at each instant
 * in which the process may die a block is the old one or the new one. A block of which only a part is written is made
 * whole with what it showed before, in the same system call. Bits that are right already cost nothing.
 *
 * Files are whole blocks long, whatever the disk's length; what lies behind its end is zeros. */
#include "snapstore/disk/disk_priv.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"

#define CHUNK_BYTES ((uint64_t)CHUNK_BLOCKS * DISK_BLOCK_BYTES)

static struct layer *top_of(const struct disk *k)
{
	return k->stack->layers[k->stack->nlayers - 1];
}

static int check_range(const struct disk *k, uint64_t off, uint64_t len, struct err *e)
{
	if (off > k->stack->bytes || len > k->stack->bytes - off)
		return err_set(e, -EINVAL, "disk %s: beyond its end", k->stack->id);
	return 0;
}

/* -- open and close ---------------------------------------------------------------------------------------------- */

void disk_restack(struct disk *k, bool other_layers)
{
	k->epoch++;
	k->prepared = false;
	if (other_layers)
		index_drop(k);
}

/* While the machine runs, do what its next freeze would have to do in the pause. What does not work now is done then.
 */
static void prepare(struct disk *k)
{
	if (spare_add(k->set))
		return; /* one thing a write */
	k->prepared = k->stack->nlayers < DISK_LAYERS_MAX || stack_join_step(k->set, k->stack, NULL) <= 0;
}

static int open_parts(struct disks *d, struct disk *k, unsigned *ret_opened, struct err *e)
{
	struct stack *s = k->stack;
	int r = base_open(d, s->base, e);

	for (; r == 0 && *ret_opened < s->nlayers; *ret_opened += r == 0)
		r = layer_open(d, s->layers[*ret_opened], e);
	if (r == 0 && s->rooted)
		r = storelayer_open(d, &s->root, (s->bytes + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES, &k->store, e);
	if (r == 0 && s->own)
		r = layer_count(s->layers[s->nlayers - 1], e);
	if (r == 0)
		disk_restack(k, false);
	return r;
}

int disk_open(struct disks *d, const char *id, struct disk **ret, struct err *e)
{
	struct stack *s = NULL;
	struct disk *k;
	unsigned opened = 0;
	int r = stack_need(d, id, &s, e);

	if (r < 0)
		return r;
	if (s->disk)
		return err_set(e, -EBUSY, "disk %s: open already", id);
	k = calloc(1, sizeof(*k));
	if (!k)
		return err_set(e, -ENOMEM, "disk %s: no memory", id);
	k->set = d;
	k->stack = s;
	k->nchunks = (s->bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
	k->chunks = calloc(k->nchunks, sizeof(struct chunk *));
	r = k->chunks ? open_parts(d, k, &opened, e) : err_set(e, -ENOMEM, "disk %s: no memory", id);
	if (r < 0) {
		while (opened > 0)
			layer_close(s->layers[--opened]);
		storelayer_close(d, k->store);
		free(k->chunks);
		free(k);
		return r;
	}
	s->disk = k;
	*ret = k;
	return 0;
}

struct disk *disk_close(struct disk *k)
{
	if (!k)
		return NULL;
	k->stack->disk = NULL;
	for (unsigned i = 0; i < k->stack->nlayers; i++)
		layer_close(k->stack->layers[i]);
	storelayer_close(k->set, k->store);
	index_drop(k);
	free(k->chunks);
	free(k);
	return NULL;
}

uint64_t disk_bytes(const struct disk *k)
{
	return k->stack->bytes;
}

const char *disk_id(const struct disk *k)
{
	return k->stack->id;
}

/* -- reading ----------------------------------------------------------------------------------------------------- */

/* @len bytes of a file; past its end: zeros when @fill, else damage. */
static int file_read(const struct disk *k, int fd, void *buf, uint64_t off, uint32_t len, bool fill, struct err *e)
{
	uint8_t *p = buf;

	while (len > 0) {
		ssize_t n = pread(fd, p, len, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, -EIO, "disk %s: read: %s", k->stack->id, strerror(errno));
		if (n == 0 && !fill)
			return err_set(e, -EBADMSG, "disk %s: a layer's file was cut", k->stack->id);
		if (n == 0) {
			memset(p, 0, len);
			return 0;
		}
		p += n;
		off += (uint64_t)n;
		len -= (uint32_t)n;
	}
	return 0;
}

static int base_read(const struct disk *k, void *buf, uint64_t off, uint32_t len, struct err *e)
{
	if (!k->stack->base || off >= k->stack->base->bytes) {
		memset(buf, 0, len);
		return 0;
	}
	return file_read(k, k->stack->base->fd, buf, off, len, true, e);
}

static int store_read(const struct disk *k, uint8_t *buf, uint64_t off, uint32_t len, struct err *e)
{
	while (len > 0) {
		uint32_t n = 0;
		bool absent = false;
		int r = storelayer_read(k->set, k->store, buf, off, len, &n, &absent, e);

		if (r == 0 && absent)
			r = base_read(k, buf, off, n, e);
		if (r < 0)
			return err_wrap(e, "disk %s", k->stack->id);
		buf += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* What one source has, @len bytes of it. */
static int source_read(const struct disk *k, uint8_t src, uint8_t *buf, uint64_t off, uint32_t len, struct err *e)
{
	switch (src) {
	case SRC_BASE:
		return base_read(k, buf, off, len, e);
	case SRC_STORE:
		return store_read(k, buf, off, len, e);
	case SRC_ZERO:
		memset(buf, 0, len);
		return 0;
	default:
		return file_read(k, k->stack->layers[src - 1]->data, buf, off, len, false, e);
	}
}

/* Not checked against the disk's end: the last block may be asked for as a whole. */
static int read_range(struct disk *k, uint8_t *buf, uint64_t off, uint32_t len, struct err *e)
{
	while (len > 0) {
		uint64_t block = off / DISK_BLOCK_BYTES;
		unsigned at = (unsigned)(block % CHUNK_BLOCKS), end = at + 1;
		uint64_t last = at + (off % DISK_BLOCK_BYTES + len - 1) / DISK_BLOCK_BYTES;
		struct chunk *c;
		uint64_t room;
		uint32_t n;
		int r = index_chunk(k, block, &c, e);

		if (r < 0)
			return r;
		while (end < CHUNK_BLOCKS && end <= last && c->src[end] == c->src[at])
			end++;
		room = (uint64_t)(end - at) * DISK_BLOCK_BYTES - off % DISK_BLOCK_BYTES;
		n = room < len ? (uint32_t)room : len;
		r = source_read(k, c->src[at], buf, off, n, e);
		if (r < 0)
			return r;
		buf += n;
		off += n;
		len -= n;
	}
	return 0;
}

int disk_read(struct disk *k, void *buf, uint64_t off, uint32_t len, struct err *e)
{
	int r = check_range(k, off, len, e);

	return r < 0 ? r : read_range(k, buf, off, len, e);
}

/* -- writing ----------------------------------------------------------------------------------------------------- */

static int writev_all(int fd, struct iovec *v, int n, uint64_t off)
{
	while (n > 0) {
		ssize_t done = pwritev(fd, v, n, (off_t)off);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		off += (uint64_t)done;
		for (; n > 0 && (size_t)done >= v->iov_len; v++, n--)
			done -= (ssize_t)v->iov_len;
		if (n > 0) {
			v->iov_base = (uint8_t *)v->iov_base + done;
			v->iov_len -= (size_t)done;
		}
	}
	return 0;
}

/* Blocks [first, first+n) of chunk @c become @state in the top layer's map, on disk and then here. */
static int mark(struct disk *k, struct chunk *c, uint64_t chunk_block, unsigned first, unsigned n,
		enum block_state state, struct err *e)
{
	unsigned w0 = first / WORD_BLOCKS, w1 = (first + n - 1) / WORD_BLOCKS, nw = w1 - w0 + 1;
	struct layer *l = top_of(k);
	uint64_t words[CHUNK_WORDS];
	uint64_t used = l->used;
	int r;

	memcpy(words, c->top + w0, nw * sizeof(*words));
	words_set(words, first - w0 * WORD_BLOCKS, n, state);
	for (unsigned i = 0; i < nw; i++) {
		used -= words_data(c->top[w0 + i]);
		used += words_data(words[i]);
	}
	if (memcmp(words, c->top + w0, nw * sizeof(*words)) != 0) {
		r = layer_map_write(l, chunk_block + (uint64_t)w0 * WORD_BLOCKS, words, nw, e);
		if (r < 0)
			return r;
		memcpy(c->top + w0, words, nw * sizeof(*words));
		l->used = used;
	}
	memset(c->src + first, state == BLOCK_ZERO ? SRC_ZERO : k->stack->nlayers, n);
	return 0;
}

/* What is frozen is its snapshot's: a machine that writes one file again and again between snapshots must not run full.
 * A guest's own file system is no larger than the limit. */
static int check_limit(const struct disk *k, unsigned fresh, struct err *e)
{
	const struct stack *s = k->stack;

	if (s->limit && fresh && ((uint64_t)top_of(k)->used + fresh) * DISK_BLOCK_BYTES > s->limit)
		return err_set(e, -EDQUOT, "disk %s: its limit of %llu bytes is reached", s->id,
			       (unsigned long long)s->limit);
	return 0;
}

/* Of a range within one chunk. */
static int write_piece(struct disk *k, const void *buf, uint64_t off, uint32_t len, struct err *e)
{
	uint64_t block = off / DISK_BLOCK_BYTES, end = off + len;
	unsigned at = (unsigned)(block % CHUNK_BLOCKS), n = (unsigned)((end - 1) / DISK_BLOCK_BYTES - block + 1);
	unsigned before = (unsigned)(off % DISK_BLOCK_BYTES), fresh = 0;
	unsigned after = (unsigned)(-end % DISK_BLOCK_BYTES);
	uint8_t head[DISK_BLOCK_BYTES], tail[DISK_BLOCK_BYTES], top = (uint8_t)k->stack->nlayers;
	struct iovec v[3] = { { .iov_base = head }, { .iov_base = (void *)buf, .iov_len = len }, { 0 } };
	struct chunk *c;
	int r = index_chunk(k, block, &c, e);

	for (unsigned i = at; r == 0 && i < at + n; i++)
		fresh += c->src[i] != top;
	if (r == 0)
		r = check_limit(k, fresh, e);
	if (r == 0 && before && c->src[at] != top) {
		v[0].iov_len = before;
		r = read_range(k, head, off - before, before, e);
	}
	if (r == 0 && after && c->src[at + n - 1] != top) {
		v[2] = (struct iovec){ .iov_base = tail, .iov_len = after };
		r = read_range(k, tail, end, after, e);
	}
	if (r < 0)
		return r;
	r = writev_all(top_of(k)->data, v, 3, off - v[0].iov_len);
	top_of(k)->synced = false;
	if (r < 0)
		return err_set(e, r, "disk %s: write: %s", k->stack->id, strerror(-r));
	return fresh ? mark(k, c, block - at, at, n, BLOCK_DATA, e) : 0;
}

/* In pieces that lie in one chunk each. */
static int write_range(struct disk *k, const uint8_t *buf, uint64_t off, uint32_t len, struct err *e)
{
	while (len > 0) {
		uint64_t room = CHUNK_BYTES - off % CHUNK_BYTES;
		uint32_t n = room < len ? (uint32_t)room : len;
		int r = write_piece(k, buf, off, n, e);

		if (r < 0)
			return r;
		buf += n;
		off += n;
		len -= n;
	}
	return 0;
}

static int check_writable(const struct disk *k, uint64_t off, uint64_t len, struct err *e)
{
	if (k->stack->frozen)
		return err_set(e, -EROFS, "disk %s: a snapshot's, it is never written", k->stack->id);
	return check_range(k, off, len, e);
}

int disk_write(struct disk *k, const void *buf, uint64_t off, uint32_t len, struct err *e)
{
	int r = check_writable(k, off, len, e);

	if (r < 0)
		return r;
	if (!k->prepared)
		prepare(k);
	return write_range(k, buf, off, len, e);
}

/* -- zeros ------------------------------------------------------------------------------------------------------- */

static const uint8_t zeros[65536];

/* A part of a block. */
static int zero_part(struct disk *k, uint64_t off, uint32_t len, struct err *e)
{
	struct chunk *c;
	int r = index_chunk(k, off / DISK_BLOCK_BYTES, &c, e);

	if (r < 0 || c->src[off / DISK_BLOCK_BYTES % CHUNK_BLOCKS] == SRC_ZERO)
		return r;
	return write_range(k, zeros, off, len, e);
}

/* The space of a file's range goes back, or stays and holds zeros. */
static int give_back(const struct disk *k, uint64_t off, uint64_t len, struct err *e)
{
	/* Where it cannot be done the map says zeros all the same; the space is used by the next write. */
	if (fallocate(top_of(k)->data, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) < 0 &&
	    errno != EOPNOTSUPP)
		return err_set(e, -EIO, "disk %s: discard: %s", k->stack->id, strerror(errno));
	return 0;
}

static int keep_as_zeros(struct disk *k, uint64_t off, uint64_t len, struct err *e)
{
	top_of(k)->synced = false;
	if (fallocate(top_of(k)->data, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, (off_t)off, (off_t)len) == 0)
		return 0;
	while (len > 0) {
		uint32_t n = len < sizeof(zeros) ? (uint32_t)len : (uint32_t)sizeof(zeros);
		int r = write_range(k, zeros, off, n, e);

		if (r < 0)
			return r;
		off += n;
		len -= n;
	}
	return 0;
}

/* Blocks [at, at+n) of one chunk. Those of the top layer that are to keep their space stay data; all others become
 * zeros in its map, which costs nothing. */
static int zero_blocks(struct disk *k, uint64_t block, unsigned n, bool punch, struct err *e)
{
	unsigned at = (unsigned)(block % CHUNK_BLOCKS), end = at + n;
	struct chunk *c;
	int r = index_chunk(k, block, &c, e);

	while (r == 0 && at < end) {
		bool mine = c->src[at] == k->stack->nlayers, zero = c->src[at] == SRC_ZERO;
		uint64_t off = (block / CHUNK_BLOCKS * CHUNK_BLOCKS + at) * DISK_BLOCK_BYTES;
		unsigned run = 1;

		while (at + run < end && (c->src[at + run] == k->stack->nlayers) == mine &&
		       (c->src[at + run] == SRC_ZERO) == zero)
			run++;
		if (mine && !punch)
			r = keep_as_zeros(k, off, (uint64_t)run * DISK_BLOCK_BYTES, e);
		else if (!zero)
			r = mark(k, c, block / CHUNK_BLOCKS * CHUNK_BLOCKS, at, run, BLOCK_ZERO, e);
		if (r == 0 && mine && punch)
			r = give_back(k, off, (uint64_t)run * DISK_BLOCK_BYTES, e);
		at += run;
	}
	return r;
}

/* A chunk that was never looked at, as a whole: without looking at the layers below. */
static int zero_unseen(struct disk *k, uint64_t block, struct err *e)
{
	struct layer *l = top_of(k);
	uint64_t words[CHUNK_WORDS], used = 0;
	int r = layer_map_read(l, block, words, CHUNK_WORDS, e);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < CHUNK_WORDS; i++)
		used += words_data(words[i]);
	words_set(words, 0, CHUNK_BLOCKS, BLOCK_ZERO);
	r = layer_map_write(l, block, words, CHUNK_WORDS, e);
	if (r < 0)
		return r;
	l->used -= used;
	return used ? give_back(k, block * DISK_BLOCK_BYTES, CHUNK_BYTES, e) : 0;
}

int disk_zero(struct disk *k, uint64_t off, uint64_t len, bool punch, struct err *e)
{
	uint64_t end = off + len, whole_end = end / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
	int r = check_writable(k, off, len, e);

	if (r == 0 && end == k->stack->bytes) /* what lies behind the end belongs to the last block */
		whole_end = (end + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES * DISK_BLOCK_BYTES;
	while (r == 0 && off < end) {
		uint64_t block = off / DISK_BLOCK_BYTES, n = CHUNK_BLOCKS - block % CHUNK_BLOCKS, next;

		if (off % DISK_BLOCK_BYTES || off >= whole_end) {
			next = (block + 1) * DISK_BLOCK_BYTES < end ? (block + 1) * DISK_BLOCK_BYTES : end;
			r = zero_part(k, off, (uint32_t)(next - off), e);
			off = next;
			continue;
		}
		if (n > (whole_end - off) / DISK_BLOCK_BYTES)
			n = (whole_end - off) / DISK_BLOCK_BYTES;
		if (n == CHUNK_BLOCKS && punch && !k->chunks[block / CHUNK_BLOCKS])
			r = zero_unseen(k, block, e);
		else
			r = zero_blocks(k, block, (unsigned)n, punch, e);
		off += n * DISK_BLOCK_BYTES;
	}
	return r;
}
