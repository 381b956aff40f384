/* SPDX-License-Identifier: Apache-2.0 */
/* bench-snapstore: images of a guest's memory in and out of the store of snapshots, as a program that others are
 * compared with.
 *
 *   bench-snapstore in STORE IMAGE…     each image is a snapshot, the child of the one before; prints bytes stored
 *   bench-snapstore out STORE DIR       each snapshot becomes DIR/N
 *   bench-snapstore read STORE [random]  the first snapshot's windows once, nothing is written; prints bytes and
 * seconds: pages (64 KiB windows read) as bytes, that is what a fault would be given
 *
 * Beside a running machine nobody compares: what was written since the last snapshot is known (DESIGN.md). Here the
 * image before is read again and compared, which is timed as well. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "snapstore/snap.h"

#define DEPTH	     16u
#define WINDOW_BYTES ((size_t)SNAP_WINDOW_PAGES * SNAP_PAGE_BYTES)
#define NAME	     "store"

static unsigned under_way;

static void fail(const char *what, const struct err *e)
{
	fprintf(stderr, "bench-snapstore: %s: %s\n", what, e && e->code ? e->msg : strerror(errno));
	exit(1);
}

static void name_of(unsigned n, char out[SNAP_UUID_LEN + 1])
{
	snprintf(out, SNAP_UUID_LEN + 1, "%08x-0000-4000-8000-000000000000", n);
}

static struct snap *open_store(const char *folder, enum snap_mode mode)
{
	AUTO_FD dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct snap *s = NULL;
	struct err e = { 0 };

	if (dir < 0 || snap_open(dir, NAME, mode, &s, &e) < 0)
		fail(folder, &e);
	return s;
}

/* -- in --------------------------------------------------------------------------------------------------------------
 */

/* The pages of a window that are not those of the image before. */
static void put_window(struct snap_edit *d, uint64_t at, const uint8_t *now, const uint8_t *before, size_t len)
{
	struct err e = { 0 };

	for (size_t i = 0; i + SNAP_PAGE_BYTES <= len; i += SNAP_PAGE_BYTES)
		if (!before || memcmp(now + i, before + i, SNAP_PAGE_BYTES) != 0)
			if (snap_edit_put(d, (at + i) / SNAP_PAGE_BYTES, now + i, &e) < 0)
				fail("a page", &e);
}

static uint64_t put_image(struct snap *s, const char *path, const char *before, unsigned n)
{
	static uint8_t now[WINDOW_BYTES], old[WINDOW_BYTES];
	AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
	AUTO_FD old_fd = before ? open(before, O_RDONLY | O_CLOEXEC) : -1;
	struct snap_manifest m = { 0 }, parent = { 0 };
	struct snap_counts counts;
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;
	struct err e = { 0 };
	struct stat st;
	ssize_t len;

	if (fd < 0 || fstat(fd, &st) < 0 || (before && old_fd < 0))
		fail(path, NULL);
	name_of(n, m.uuid);
	if (before) {
		name_of(n - 1, m.parent);
		if (snap_manifest_read(s, m.parent, &parent, &e) < 0)
			fail("the parent", &e);
	}
	m.memory_pages = (uint64_t)st.st_size / SNAP_PAGE_BYTES;
	if (snap_batch_new(s, &b, &e) < 0 ||
	    snap_edit_new(b, before ? &parent.memory : NULL, &snap_zero, m.memory_pages, &d, &e) < 0)
		fail("a batch", &e);
	for (uint64_t at = 0; (len = pread(fd, now, sizeof(now), (off_t)at)) > 0; at += (uint64_t)len) {
		if (before && pread(old_fd, old, (size_t)len, (off_t)at) != len)
			fail(before, NULL);
		put_window(d, at, now, before ? old : NULL, (size_t)len);
	}
	if (snap_edit_finish(d, &m.memory, &e) < 0 || snap_batch_commit(b, &m, &counts, &e) < 0)
		fail("storing", &e);
	snap_manifest_fini(&parent);
	return counts.bytes_stored;
}

/* -- out -------------------------------------------------------------------------------------------------------------
 */

static void on_read(void *arg, int code, const struct err *e)
{
	(void)arg;
	if (code < 0)
		fail("reading", e);
	under_way--;
}

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

static bool all_zeros(struct snap_map *m, uint64_t page, unsigned n)
{
	struct err e = { 0 };
	uint64_t run = 0;

	return snap_map_run(m, page, &snap_zero, &run, &e) == 0 && run >= n;
}

/* All windows that are not zeros, DEPTH at once, to @fd (or nowhere, -1). Returns bytes. */
static uint64_t get_map(struct snap *s, const struct snap_manifest *sm, int fd, bool random)
{
	uint64_t windows = (sm->memory_pages + SNAP_WINDOW_PAGES - 1) / SNAP_WINDOW_PAGES, bytes = 0,
		 state = 88172645463325252u;
	uint8_t *pages = malloc(DEPTH * WINDOW_BYTES);
	uint64_t *order = calloc(windows, sizeof(*order)), slot_of[DEPTH];
	struct snap_reader *r = NULL;
	struct snap_map *m = NULL;
	struct err e = { 0 };
	uint32_t absent;
	bool uring;

	if (!pages || !order || snap_map_open(s, &sm->memory, sm->memory_pages, &m, &e) < 0 ||
	    snap_reader_new(s, DEPTH, true, &r, &uring, &e) < 0)
		fail("a reader", &e);
	for (uint64_t i = 0; i < windows; i++)
		order[i] = i;
	for (uint64_t i = windows; random && i > 1; i--) {
		uint64_t k = next_random(&state) % i, t = order[i - 1];

		order[i - 1] = order[k];
		order[k] = t;
	}
	for (uint64_t i = 0; i < windows;) {
		unsigned n = 0;

		/* Without a file DEPTH are kept under way, and nobody looks at what was read: slots are shared then. */
		for (; (fd < 0 || n < DEPTH) && i < windows; i++) {
			uint64_t page = order[i] * SNAP_WINDOW_PAGES, left = sm->memory_pages - page;
			unsigned take = left < SNAP_WINDOW_PAGES ? (unsigned)left : SNAP_WINDOW_PAGES;

			if (all_zeros(m, page, take))
				continue;
			while (under_way == DEPTH)
				snap_reader_poll(r);
			slot_of[n % DEPTH] = page;
			if (snap_read(r, m, page, take, pages + n % DEPTH * WINDOW_BYTES, &absent, on_read, NULL, &e) <
			    0)
				fail("reading", &e);
			under_way++;
			n++;
		}
		while (under_way)
			snap_reader_poll(r);
		for (unsigned k = 0; k < n; k++) {
			bytes += WINDOW_BYTES;
			if (fd >= 0 &&
			    fd_pwrite_all(fd, pages + k * WINDOW_BYTES, WINDOW_BYTES, slot_of[k] * SNAP_PAGE_BYTES) < 0)
				fail("writing", NULL);
		}
	}
	snap_reader_free(r);
	snap_map_close(m);
	free(order);
	free(pages);
	return bytes;
}

static bool get_all(struct snap *s, unsigned n, const char *dir)
{
	struct snap_manifest m = { 0 };
	char uuid[SNAP_UUID_LEN + 1], path[4096];
	AUTO_FD fd = -1;
	struct err e = { 0 };

	name_of(n, uuid);
	if (snap_manifest_read(s, uuid, &m, &e) < 0)
		return false;
	snprintf(path, sizeof(path), "%s/%u", dir, n);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)(m.memory_pages * SNAP_PAGE_BYTES)) < 0)
		fail(path, NULL);
	get_map(s, &m, fd, false);
	snap_manifest_fini(&m);
	return true;
}

static void read_first(struct snap *s, bool random)
{
	struct snap_manifest m = { 0 };
	char uuid[SNAP_UUID_LEN + 1];
	struct err e = { 0 };
	uint64_t began, bytes;

	name_of(1, uuid);
	if (snap_manifest_read(s, uuid, &m, &e) < 0)
		fail("the first snapshot", &e);
	began = now_ns();
	bytes = get_map(s, &m, -1, random);
	printf("%" PRIu64 " %" PRIu64 "\n", bytes, now_ns() - began);
	snap_manifest_fini(&m);
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";
	uint64_t stored = 0;
	struct snap *s;

	if (!strcmp(what, "in") && argc > 3) {
		s = open_store(argv[2], SNAP_WRITE);
		for (int i = 3; i < argc; i++)
			stored += put_image(s, argv[i], i > 3 ? argv[i - 1] : NULL, (unsigned)i - 2);
		printf("%" PRIu64 "\n", stored);
	} else if (!strcmp(what, "out") && argc == 4) {
		s = open_store(argv[2], SNAP_READ);
		for (unsigned n = 1; get_all(s, n, argv[3]);)
			n++;
	} else if (!strcmp(what, "read")) {
		s = open_store(argv[2], SNAP_READ);
		read_first(s, argc > 3);
	} else {
		fputs("usage: bench-snapstore in STORE IMAGE... | out STORE DIR | read STORE [random]\n", stderr);
		return 2;
	}
	snap_close(s);
	return 0;
}
