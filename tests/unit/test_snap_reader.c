/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that do not block, by the ring and by pread; and what the ring refuses. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/fd.h"
#include "snap_rig.h"

#include "snapstore/ring.c" /* the ring itself: what it refuses shows only inside */

#define N     1600u
#define DEPTH 8u

struct answer {
	unsigned called;
	int code;
};

static void on_read(void *arg, int code, const struct err *e)
{
	struct answer *a = arg;

	a->called++;
	a->code = code;
	assert_int_equal(code != 0, e && *e->msg);
}

static void wait_for(struct snap_reader *r, const unsigned *called, unsigned want, bool uring)
{
	while (*called < want) {
		struct pollfd p = { snap_reader_fd(r), POLLIN, 0 };

		if (uring)
			assert_int_equal(poll(&p, 1, 10000), 1);
		snap_reader_poll(r);
	}
}

struct world {
	struct snap_rig rig;
	struct snap *s;
	struct snap_map *m;
	struct snap_reader *r;
	bool uring;
	uint64_t seeds[N];
};

static void world_new(struct world *w, bool uring)
{
	struct snap_digest root;

	snap_rig_new(&w->rig);
	for (unsigned i = 0; i < N; i++)
		w->seeds[i] = i / 100 % 3 ? i % 1001 : 0;
	root = rig_store(&w->rig, 1, NULL, w->seeds, N, NULL);
	w->s = snap_rig_reader(&w->rig);
	OK(snap_map_open(w->s, &root, N, &w->m, &rig_err));
	memset(&rig_err, 0, sizeof(rig_err));
	OK(snap_reader_new(w->s, DEPTH, uring, &w->r, &w->uring, &rig_err));
	assert_true(uring || !w->uring);
	if (uring && !w->uring) {
		print_message("no ring here: %s\n", rig_err.msg);
		assert_true(*rig_err.msg);
	}
}

static void world_free(struct world *w)
{
	snap_reader_free(w->r);
	snap_map_close(w->m);
	snap_close(w->s);
	snap_rig_free(&w->rig);
}

static void expect(const uint8_t *pages, const uint64_t *seeds, unsigned n)
{
	uint8_t page[SNAP_PAGE_BYTES];

	for (unsigned i = 0; i < n; i++) {
		rig_page(seeds[i], page);
		assert_memory_equal(page, pages + (size_t)i * SNAP_PAGE_BYTES, SNAP_PAGE_BYTES);
	}
}

static void all_windows(bool uring)
{
	uint8_t *pages = malloc((size_t)N * SNAP_PAGE_BYTES);
	static struct world w;
	struct answer a = { 0 };
	uint32_t absent;
	unsigned begun = 0;

	world_new(&w, uring);
	memset(pages, 0xee, (size_t)N * SNAP_PAGE_BYTES);
	for (unsigned i = 0; i < N;) {
		unsigned n = 1 + i % 16 < N - i ? 1 + i % 16 : N - i;
		int code =
			snap_read(w.r, w.m, i, n, pages + (size_t)i * SNAP_PAGE_BYTES, &absent, on_read, &a, &rig_err);

		if (code == -EBUSY) {
			assert_int_equal(begun - a.called, DEPTH);
			wait_for(w.r, &a.called, begun, w.uring);
			continue;
		}
		assert_int_equal(code, 0);
		assert_int_equal(absent, 0);
		begun++;
		i += n;
	}
	wait_for(w.r, &a.called, begun, w.uring);
	assert_int_equal(a.called, begun);
	expect(pages, w.seeds, N);
	assert_int_equal(snap_read(w.r, w.m, 0, 17, pages, &absent, on_read, &a, &rig_err), -EINVAL);
	assert_int_equal(snap_read(w.r, w.m, N - 1, 2, pages, &absent, on_read, &a, &rig_err), -EINVAL);
	free(pages);
	world_free(&w);
}

static void test_all_windows_by_the_ring(void **state)
{
	(void)state;
	all_windows(true);
}

static void test_all_windows_by_pread(void **state)
{
	(void)state;
	all_windows(false);
}

static void test_absent_pages_are_left_alone(void **state)
{
	struct snap_manifest man = { .disk_blocks = 100 };
	uint8_t pages[4 * SNAP_PAGE_BYTES], page[SNAP_PAGE_BYTES];
	struct snap_reader *reader = NULL;
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;
	struct snap_map *m = NULL;
	struct answer a = { 0 };
	struct snap_rig r;
	uint32_t absent;
	bool uring;

	(void)state;
	snap_rig_new(&r);
	rig_uuid(1, man.uuid);
	OK(snap_batch_new(r.s, &b, &rig_err));
	OK(snap_edit_new(b, NULL, &snap_absent, 100, &d, &rig_err));
	rig_page(5, page);
	OK(snap_edit_put(d, 1, page, &rig_err));
	OK(snap_edit_mark(d, 2, &snap_zero, &rig_err));
	OK(snap_edit_finish(d, &man.disk, &rig_err));
	OK(snap_batch_commit(b, &man, NULL, &rig_err));
	OK(snap_map_open(r.s, &man.disk, 100, &m, &rig_err));
	OK(snap_reader_new(r.s, 1, true, &reader, &uring, &rig_err));
	memset(pages, 0xee, sizeof(pages));
	OK(snap_read(reader, m, 0, 4, pages, &absent, on_read, &a, &rig_err));
	assert_int_equal(absent, 9);
	assert_int_equal(a.called, 0);
	wait_for(reader, &a.called, 1, uring);
	assert_true(pages[0] == 0xee && pages[4 * SNAP_PAGE_BYTES - 1] == 0xee && pages[2 * SNAP_PAGE_BYTES] == 0);
	assert_memory_equal(pages + SNAP_PAGE_BYTES, page, sizeof(page));
	/* Nothing to read: told from poll all the same, and the descriptor says so. */
	OK(snap_read(reader, m, 50, 4, pages, &absent, on_read, &a, &rig_err));
	assert_int_equal(absent, 15);
	assert_int_equal(a.called, 1);
	wait_for(reader, &a.called, 2, uring);
	snap_reader_free(reader);
	snap_map_close(m);
	snap_rig_free(&r);
}

static void damage(bool uring)
{
	uint8_t pages[16 * SNAP_PAGE_BYTES];
	static struct world w;
	struct answer a = { 0 };
	uint32_t absent;
	char path[128];

	world_new(&w, uring);
	assert_int_equal(rig_files(&w.rig, "packs", ".pack", path), 1);
	rig_flip(&w.rig, path, 3000); /* in the first frame */
	OK(snap_read(w.r, w.m, 100, 12, pages, &absent, on_read, &a, &rig_err));
	wait_for(w.r, &a.called, 1, w.uring);
	assert_int_equal(a.code, -EBADMSG);
	rig_flip(&w.rig, path, 3000);
	OK(snap_read(w.r, w.m, 100, 12, pages, &absent, on_read, &a, &rig_err));
	wait_for(w.r, &a.called, 2, w.uring);
	assert_int_equal(a.code, 0);
	expect(pages, w.seeds + 100, 12);
	rig_cut(&w.rig, path, 100);
	OK(snap_read(w.r, w.m, 100, 12, pages, &absent, on_read, &a, &rig_err));
	wait_for(w.r, &a.called, 3, w.uring);
	assert_int_equal(a.code, -EBADMSG);
	world_free(&w);
}

static void test_damage_by_the_ring(void **state)
{
	(void)state;
	damage(true);
}

static void test_damage_by_pread(void **state)
{
	(void)state;
	damage(false);
}

static void test_freed_while_reads_are_under_way(void **state)
{
	uint8_t *pages = malloc((size_t)DEPTH * 16 * SNAP_PAGE_BYTES);
	static struct world w;
	struct answer a = { 0 };
	uint32_t absent;

	(void)state;
	world_new(&w, true);
	for (unsigned i = 0; i < DEPTH; i++)
		OK(snap_read(w.r, w.m, 100 + 16 * i, 16, pages + (size_t)i * 16 * SNAP_PAGE_BYTES, &absent, on_read, &a,
			     &rig_err));
	w.r = snap_reader_free(w.r);
	assert_int_equal(a.called, 0);
	free(pages);
	world_free(&w);
}

/* -- the ring's confinement --------------------------------------------------------------------------------- */

static int result_of(struct ring *r, void (*prepare)(struct io_uring_sqe *sqe), unsigned flags)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->u);
	struct io_uring_cqe *cqe;
	int res;

	prepare(sqe);
	sqe->flags = (uint8_t)flags;
	assert_int_equal(io_uring_submit(&r->u), 1);
	assert_int_equal(io_uring_wait_cqe(&r->u, &cqe), 0);
	res = cqe->res;
	io_uring_cqe_seen(&r->u, cqe);
	return res;
}

static char bytes[16];

static void a_write(struct io_uring_sqe *sqe)
{
	io_uring_prep_write(sqe, 0, bytes, 1, 0);
}

static void an_open(struct io_uring_sqe *sqe)
{
	io_uring_prep_openat(sqe, AT_FDCWD, "/etc/passwd", O_RDONLY, 0);
}

static void a_read(struct io_uring_sqe *sqe)
{
	io_uring_prep_read(sqe, 0, bytes, sizeof(bytes), 0);
}

static void test_the_ring_does_nothing_but_read_its_files(void **state)
{
	AUTO_FD file = memfd_create("file", MFD_CLOEXEC);
	AUTO_FD event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct ring *r = NULL;
	unsigned slot, other;

	(void)state;
	assert_int_equal(ftruncate(file, 4096), 0);
	if (ring_new(4, event, &r, &rig_err) < 0) {
		print_message("no ring here: %s\n", rig_err.msg);
		skip();
	}
	OK(ring_file(r, 7, file, &slot, &rig_err));
	OK(ring_file(r, 7, file, &other, &rig_err));
	assert_int_equal(slot, other);
	assert_int_equal(result_of(r, a_read, IOSQE_FIXED_FILE), sizeof(bytes));
	assert_int_equal(result_of(r, a_read, 0), -EACCES); /* a descriptor of the process: standard input */
	assert_int_equal(result_of(r, a_write, IOSQE_FIXED_FILE), -EACCES);
	assert_int_equal(result_of(r, an_open, 0), -EACCES);
	assert_int_equal(result_of(r, io_uring_prep_nop, IOSQE_FIXED_FILE), -EACCES);
	assert_int_equal(io_uring_unregister_files(&r->u), -EACCES);
	/* More files than it has places: the idle ones give way. */
	for (unsigned i = 0; i < FILES + 5; i++)
		OK(ring_file(r, 100 + i, file, &slot, &rig_err));
	ring_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_windows_by_the_ring),
		cmocka_unit_test(test_all_windows_by_pread),
		cmocka_unit_test(test_absent_pages_are_left_alone),
		cmocka_unit_test(test_damage_by_the_ring),
		cmocka_unit_test(test_damage_by_pread),
		cmocka_unit_test(test_freed_while_reads_are_under_way),
		cmocka_unit_test(test_the_ring_does_nothing_but_read_its_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
