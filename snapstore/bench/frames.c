/* SPDX-License-Identifier: Apache-2.0 */
/* How large a frame should be, measured on the memory of a machine:
 *
 *	bench-frames IMAGE [FOLDER]	IMAGE: a file of guest memory; FOLDER: where to work (default /tmp)
 *
 * First the same pages (no zeros, each once) in frames of 4, 16 and 64 KiB and 2 MiB: what is stored, with the digests
 *and index entries, how fast that is made and read in order, how long one random page takes, and how long a window of
 *64 KiB, which is what a page fault asks for. Files are in the page cache: this is our own time, a disk's comes on top.
 *Then the store itself: a whole image in, the same again, and out through a reader. One thread; prints a Markdown
 *table. */
#include <fcntl.h>
#include <inttypes.h>
#include <lz4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "snapstore/digest.h"
#include "snapstore/snap.h"

#define RANDOM_READS 3000u
#define FRAME_HEAD   48u
#define INDEX_PAGE   36u /* bytes a page, then a frame */
#define INDEX_FRAME  16u
#define DEPTH	     16u

static void fail(const char *what, const struct err *e)
{
	fprintf(stderr, "bench-frames: %s: %s\n", what, e ? e->msg : "failed");
	exit(1);
}

struct image {
	const uint8_t *p;
	uint64_t pages;
	struct snap_digest *digests;
	uint8_t *kept; /* 1: neither zeros nor seen before */
	uint64_t nkept, nzero;
};

static int by_digest(const void *a, const void *b, void *digests)
{
	const struct snap_digest *d = digests;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int c = memcmp(&d[x], &d[y], sizeof(*d));

	return c ? c : x < y ? -1 : x > y;
}

static void look(struct image *im, struct hasher *h)
{
	uint32_t *order = malloc(im->pages * sizeof(*order));

	im->digests = calloc(im->pages, sizeof(*im->digests));
	im->kept = calloc(im->pages, 1);
	if (!order || !im->digests || !im->kept)
		fail("no memory", NULL);
	for (uint64_t i = 0; i < im->pages; i++) {
		order[i] = (uint32_t)i;
		hasher_sum(h, im->p + i * SNAP_PAGE_BYTES, SNAP_PAGE_BYTES, &im->digests[i]);
	}
	qsort_r(order, im->pages, sizeof(*order), by_digest, im->digests);
	for (uint64_t i = 0; i < im->pages; i++) {
		const uint8_t *page = im->p + (uint64_t)order[i] * SNAP_PAGE_BYTES;

		if (page_is_zero(page))
			im->nzero++;
		else
			im->kept[order[i]] = i == 0 ||
					     !snap_digest_equal(&im->digests[order[i]], &im->digests[order[i - 1]]);
	}
	for (uint64_t i = 0; i < im->pages; i++)
		im->nkept += im->kept[i];
	free(order);
}

struct frames {
	uint32_t window; /* pages */
	uint64_t n, stored;
	uint64_t *off;
	uint32_t *len, *raw; /* of each window; 0: nothing in it */
	struct snap_digest *sums;
	int fd;
	double made_s, read_s;
};

/* Page digests are counted into the time, for the store has to make them. */
static void make(struct frames *f, const struct image *im, struct hasher *h, const char *folder)
{
	uint64_t windows = (im->pages + f->window - 1) / f->window;
	size_t raw_max = (size_t)f->window * SNAP_PAGE_BYTES;
	int cap = LZ4_compressBound((int)raw_max);
	uint8_t *raw = malloc(raw_max), *out = malloc((size_t)cap);
	void *state = malloc((size_t)LZ4_sizeofState());
	struct snap_digest page;
	uint64_t start;

	f->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	f->off = calloc(windows, sizeof(*f->off));
	f->len = calloc(windows, sizeof(*f->len));
	f->raw = calloc(windows, sizeof(*f->raw));
	f->sums = calloc(windows, sizeof(*f->sums));
	if (f->fd < 0 || !raw || !out || !state || !f->off || !f->len || !f->raw || !f->sums)
		fail("no memory, or no file", NULL);
	start = now_ns();
	for (uint64_t w = 0, at = 0; w < windows; w++) {
		uint32_t n = 0;
		int len;

		for (uint64_t i = w * f->window; i < (w + 1) * f->window && i < im->pages; i++) {
			if (!im->kept[i])
				continue;
			memcpy(raw + (size_t)n++ * SNAP_PAGE_BYTES, im->p + i * SNAP_PAGE_BYTES, SNAP_PAGE_BYTES);
			hasher_sum(h, im->p + i * SNAP_PAGE_BYTES, SNAP_PAGE_BYTES, &page);
		}
		if (!n)
			continue;
		len = LZ4_compress_fast_extState(state, (char *)raw, (char *)out, (int)(n * SNAP_PAGE_BYTES), cap, 1);
		hasher_sum(h, out, (size_t)len, &f->sums[w]);
		if (fd_pwrite_all(f->fd, out, (size_t)len, at) < 0)
			fail("writing", NULL);
		f->off[w] = at;
		f->len[w] = (uint32_t)len;
		f->raw[w] = n * SNAP_PAGE_BYTES;
		at += (uint64_t)len;
		f->n++;
		f->stored += (uint64_t)len + FRAME_HEAD + INDEX_FRAME + n * (32ull + INDEX_PAGE);
	}
	f->made_s = (double)(now_ns() - start) / 1e9;
	free(raw);
	free(out);
	free(state);
}

static void read_frame(const struct frames *f, struct hasher *h, uint64_t w, uint8_t *in, uint8_t *raw)
{
	struct snap_digest sum;

	if (!f->len[w])
		return;
	if (pread(f->fd, in, f->len[w], (off_t)f->off[w]) != (ssize_t)f->len[w])
		fail("reading", NULL);
	hasher_sum(h, in, f->len[w], &sum);
	if (!snap_digest_equal(&sum, &f->sums[w]) ||
	    LZ4_decompress_safe((char *)in, (char *)raw, (int)f->len[w], (int)f->raw[w]) != (int)f->raw[w])
		fail("a frame differs", NULL);
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return *state >> 33;
}

/* Microseconds for what @pages pages at a random place of 64 KiB take. */
static double random_us(const struct frames *f, const struct image *im, struct hasher *h, uint8_t *in, uint8_t *raw,
			unsigned pages)
{
	uint64_t state = 1, start = now_ns(), done = 0;

	if (!im->pages || !im->nkept)
		return 0;
	while (done < RANDOM_READS) {
		/* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): it was looked at */
		uint64_t i = next_random(&state) % im->pages & ~(uint64_t)(pages - 1), last = UINT64_MAX;

		if (!im->kept[i])
			continue;
		for (uint64_t k = i; k < i + pages && k < im->pages; k++) {
			if (k / f->window != last)
				read_frame(f, h, k / f->window, in, raw);
			last = k / f->window;
		}
		done++;
	}
	return (double)(now_ns() - start) / 1e3 / RANDOM_READS;
}

static void compare(const struct image *im, struct hasher *h, const char *folder)
{
	static const uint32_t windows[] = { 1, 4, 16, 512 };
	uint8_t *in = malloc(3u << 20), *raw = malloc(2u << 20);
	double mb = (double)(im->nkept + !im->nkept) * SNAP_PAGE_BYTES / 1e6;

	if (!in || !raw)
		fail("no memory", NULL);
	printf("| frame | stored MB | of the pages | in MB/s | out MB/s | a random page, us | a window of 64 KiB, us |\n");
	printf("|---|---|---|---|---|---|---|\n");
	for (size_t k = 0; k < ARRAY_LEN(windows); k++) {
		struct frames f = { .window = windows[k] };
		uint64_t start;

		make(&f, im, h, folder);
		start = now_ns();
		for (uint64_t w = 0; w < (im->pages + f.window - 1) / f.window; w++)
			read_frame(&f, h, w, in, raw);
		f.read_s = (double)(now_ns() - start) / 1e9;
		printf("| %u KiB | %.1f | %.0f %% | %.0f | %.0f | %.1f | %.0f |\n", windows[k] * 4,
		       (double)f.stored / 1e6, 100.0 * (double)f.stored / 1e6 / mb, mb / f.made_s, mb / f.read_s,
		       random_us(&f, im, h, in, raw, 1), random_us(&f, im, h, in, raw, 16));
		fflush(stdout);
		close(f.fd);
		free(f.off);
		free(f.len);
		free(f.raw);
		free(f.sums);
	}
	free(in);
	free(raw);
}

/* -- the store itself
 * ------------------------------------------------------------------------------------------------------ */

static struct snap_digest put_image(struct snap *s, const struct image *im, const struct snap_digest *base, unsigned n,
				    struct snap_counts *counts)
{
	struct snap_manifest m = { .memory_pages = im->pages };
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;
	struct err e = { 0 };

	snprintf(m.uuid, sizeof(m.uuid), "%08x-0000-4000-8000-000000000000", n);
	if (snap_batch_new(s, &b, &e) < 0 || snap_edit_new(b, base, &snap_zero, im->pages, &d, &e) < 0)
		fail("a batch", &e);
	for (uint64_t i = 0; i < im->pages; i++)
		if (snap_edit_put(d, i, im->p + i * SNAP_PAGE_BYTES, &e) < 0)
			fail("putting a page", &e);
	if (snap_edit_finish(d, &m.memory, &e) < 0 || snap_batch_commit(b, &m, counts, &e) < 0)
		fail("storing", &e);
	return m.memory;
}

static unsigned under_way;

static void on_read(void *arg, int code, const struct err *e)
{
	(void)arg;
	if (code < 0)
		fail("reading", e);
	under_way--;
}

/* @random: that many windows anywhere, one at a time; 0: all in order, DEPTH at once. Returns seconds. */
static double read_image(struct snap *s, const struct snap_digest *root, const struct image *im, bool use_uring,
			 unsigned random)
{
	uint8_t *pages = malloc((size_t)DEPTH * SNAP_WINDOW_PAGES * SNAP_PAGE_BYTES);
	uint64_t state = 1, windows = im->pages / SNAP_WINDOW_PAGES, start;
	struct snap_reader *r = NULL;
	struct snap_map *m = NULL;
	struct err e = { 0 };
	uint32_t absent;
	bool uring;

	if (!pages || snap_map_open(s, root, im->pages, &m, &e) < 0 ||
	    snap_reader_new(s, DEPTH, use_uring, &r, &uring, &e) < 0)
		fail("a reader", &e);
	start = now_ns();
	for (uint64_t i = 0; i < (random ? random : windows); i++) {
		uint64_t w = random ? next_random(&state) % windows : i;

		if (random && !im->kept[w * SNAP_WINDOW_PAGES]) {
			i--;
			continue;
		}
		if (snap_read(r, m, w * SNAP_WINDOW_PAGES, SNAP_WINDOW_PAGES,
			      pages + (size_t)(i % DEPTH) * SNAP_WINDOW_PAGES * SNAP_PAGE_BYTES, &absent, on_read, NULL,
			      &e) < 0)
			fail("reading", &e);
		under_way++;
		while (under_way == (random ? 1 : DEPTH))
			snap_reader_poll(r);
	}
	while (under_way)
		snap_reader_poll(r);
	start = now_ns() - start;
	snap_reader_free(r);
	snap_map_close(m);
	free(pages);
	return (double)start / 1e9;
}

static void whole_store(const struct image *im, const char *folder)
{
	double mb = (double)im->pages * SNAP_PAGE_BYTES / 1e6;
	AUTO_FD dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[64], command[300];
	struct snap_counts first, second;
	struct snap_digest root;
	struct snap *s = NULL;
	struct err e = { 0 };
	uint64_t start;
	double in, again;

	snprintf(name, sizeof(name), "bench-store-%d", (int)getpid());
	if (snap_open(dir, name, SNAP_WRITE, &s, &e) < 0)
		fail("the store", &e);
	start = now_ns();
	root = put_image(s, im, NULL, 1, &first);
	in = (double)(now_ns() - start) / 1e9;
	start = now_ns();
	put_image(s, im, NULL, 2, &second);
	again = (double)(now_ns() - start) / 1e9;
	printf("\nThe store: %.0f MB of memory, %" PRIu64 " pages new, %" PRIu64 " known, %" PRIu64
	       " zero, %.1f MB stored.\n\n| step | MB/s |\n|---|---|\n",
	       mb, first.pages_new, first.pages_known, first.pages_zero, (double)first.bytes_stored / 1e6);
	printf("| in, fsync included | %.0f |\n| the same again (%.1f MB stored) | %.0f |\n", mb / in,
	       (double)second.bytes_stored / 1e6, mb / again);
	for (unsigned uring = 0; uring < 2; uring++) {
		const char *how = uring ? "io_uring" : "pread";

		printf("| out, all in order, by %s | %.0f |\n", how, mb / read_image(s, &root, im, uring, 0));
		printf("| out, random windows one at a time, by %s: us each | %.1f |\n", how,
		       read_image(s, &root, im, uring, RANDOM_READS) * 1e6 / RANDOM_READS);
	}
	snap_close(s);
	snprintf(command, sizeof(command), "%.200s/%s", folder, name);
	printf("\n(left in %s)\n", command);
}

int main(int argc, char **argv)
{
	const char *folder = argc > 2 ? argv[2] : "/tmp";
	struct image im = { 0 };
	struct hasher h;
	struct stat st;
	AUTO_FD fd = -1;
	void *p;

	if (argc < 2) {
		fprintf(stderr, "usage: bench-frames IMAGE [FOLDER]\n");
		return 2;
	}
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < 2 << 20 || hasher_init(&h, NULL) < 0)
		fail(argv[1], NULL);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED)
		fail(argv[1], NULL);
	im.p = p;
	im.pages = (uint64_t)st.st_size / SNAP_PAGE_BYTES / SNAP_NODE_ENTRIES * SNAP_NODE_ENTRIES;
	look(&im, &h);
	printf("%.0f MB of memory: %" PRIu64 " pages, %" PRIu64 " zero, %" PRIu64 " kept.\n\n",
	       (double)im.pages * SNAP_PAGE_BYTES / 1e6, im.pages, im.nzero, im.nkept);
	compare(&im, &h, folder);
	whole_store(&im, folder);
	return 0;
}
