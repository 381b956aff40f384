/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection, verification, statistics. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "snap_rig.h"

#define N 600u

static uint64_t seeds[N];

static struct snap_digest store(struct snap_rig *r, unsigned uuid, uint64_t from)
{
	for (unsigned i = 0; i < N; i++)
		seeds[i] = from + i;
	return rig_store(r, uuid, NULL, seeds, N, NULL);
}

static void expect(struct snap *s, const struct snap_digest *root, uint64_t from)
{
	uint8_t want[SNAP_PAGE_BYTES], got[SNAP_PAGE_BYTES];
	struct snap_map *m = NULL;
	struct snap_digest d;

	OK(snap_map_open(s, root, N, &m, &rig_err));
	for (unsigned i = 0; i < N; i++) {
		rig_page(from + i, want);
		OK(snap_map_get(m, i, &d, &rig_err));
		OK(snap_page_read(s, &d, got, &rig_err));
		assert_memory_equal(want, got, sizeof(want));
	}
	snap_map_close(m);
}

static void drop(struct snap_rig *r, unsigned n)
{
	char uuid[SNAP_UUID_LEN + 1];

	rig_uuid(n, uuid);
	OK(snap_manifest_remove(r->s, uuid, &rig_err));
}

static void test_space_comes_back(void **state)
{
	struct snap_digest second;
	struct snap_gc gc;
	struct snap_rig r;
	struct snap *old;

	(void)state;
	snap_rig_new(&r);
	store(&r, 1, 1);
	second = store(&r, 2, 301); /* half is the first's */
	old = snap_rig_reader(&r);
	drop(&r, 1);
	OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err));
	assert_int_equal(gc.pages_dropped, 300);
	assert_true(gc.bytes_after < gc.bytes_before * 3 / 4);
	assert_int_equal(gc.packs_before, 2);
	assert_int_equal(gc.packs_after, 1); /* small ones are joined */
	assert_int_equal(rig_files(&r, "packs", ".pack", NULL), 1);
	expect(r.s, &second, 301);
	expect(old, &second, 301);
	drop(&r, 2);
	OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err));
	assert_int_equal(gc.bytes_after, 0);
	assert_int_equal(rig_files(&r, "packs", "", NULL), 0);
	snap_close(old);
	snap_rig_free(&r);
}

static void test_leftovers_go(void **state)
{
	static const char *const names[] = { "packs/0000000000000001.pack", "packs/0000000000000002.idx.new",
					     "packs/0000000000000003.idx",
					     "manifests/00000001-0000-4000-8000-000000000000.new-1-1" };
	struct snap_digest root;
	struct snap_gc gc;
	struct snap_rig r;
	char path[100];

	(void)state;
	snap_rig_new(&r);
	root = store(&r, 1, 1);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "store/%s", names[i]);
		assert_int_equal(fd_replace(r.dirfd, path, "x", 1, 0600, false), 0);
	}
	snap_rig_reopen(&r);
	OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err));
	assert_int_equal(rig_files(&r, "packs", "", NULL), 2);
	assert_int_equal(rig_files(&r, "manifests", "", NULL), 1);
	expect(r.s, &root, 1);
	snap_rig_free(&r);
}

static bool stop_at_once(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	assert_true(done <= total);
	return false;
}

static void test_refusals(void **state)
{
	char manifest[128], uuid[SNAP_UUID_LEN + 1];
	struct snap_batch *b = NULL;
	struct snap_report rep;
	struct snap_gc gc;
	struct snap_rig r;
	struct snap *s;

	(void)state;
	snap_rig_new(&r);
	store(&r, 1, 1);
	s = snap_rig_reader(&r);
	assert_int_equal(snap_gc(s, NULL, NULL, &gc, &rig_err), -EROFS);
	rig_uuid(1, uuid);
	assert_int_equal(snap_manifest_remove(s, uuid, &rig_err), -EROFS);
	snap_close(s);
	OK(snap_batch_new(r.s, &b, &rig_err));
	assert_int_equal(snap_gc(r.s, NULL, NULL, &gc, &rig_err), -EBUSY);
	snap_batch_abort(b);
	assert_int_equal(snap_gc(r.s, stop_at_once, NULL, &gc, &rig_err), -ECANCELED);
	assert_int_equal(snap_verify(r.s, NULL, stop_at_once, NULL, &rep, &rig_err), -ECANCELED);
	assert_int_equal(snap_verify(r.s, uuid, stop_at_once, NULL, &rep, &rig_err), -ECANCELED);
	rig_uuid(9, uuid);
	assert_int_equal(snap_verify(r.s, uuid, NULL, NULL, &rep, &rig_err), -ENOENT);
	/* A manifest that cannot be read: what it needs is not known, so nothing goes. */
	store(&r, 2, 1000);
	drop(&r, 2);
	assert_int_equal(rig_files(&r, "manifests", "", manifest), 1);
	rig_flip(&r, manifest, 30);
	assert_int_equal(snap_gc(r.s, NULL, NULL, &gc, &rig_err), -EBADMSG);
	assert_int_equal(rig_files(&r, "packs", ".pack", NULL), 2);
	rig_flip(&r, manifest, 30);
	OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err));
	assert_int_equal(rig_files(&r, "packs", ".pack", NULL), 1);
	snap_rig_free(&r);
}

static void test_a_damaged_frame_stays(void **state)
{
	struct snap_digest root;
	struct snap_report rep;
	struct snap_gc gc;
	struct snap_rig r;
	char pack[128];

	(void)state;
	snap_rig_new(&r);
	root = store(&r, 1, 1);
	assert_int_equal(rig_files(&r, "packs", ".pack", pack), 1);
	store(&r, 2, 2000);
	rig_flip(&r, pack, 5000);
	snap_rig_reopen(&r);
	OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err)); /* would join the two */
	rig_flip(&r, pack, 5000);
	OK(snap_verify(r.s, NULL, NULL, NULL, &rep, &rig_err));
	assert_int_equal(rep.damaged, 0);
	expect(r.s, &root, 1);
	snap_rig_free(&r);
}

static void test_verify_finds_damage(void **state)
{
	char pack[128], idx[128], uuid[SNAP_UUID_LEN + 1];
	struct snap_report rep;
	struct snap_rig r;

	(void)state;
	snap_rig_new(&r);
	store(&r, 1, 1);
	rig_uuid(1, uuid);
	for (unsigned all = 0; all < 2; all++) {
		OK(snap_verify(r.s, all ? NULL : uuid, NULL, NULL, &rep, &rig_err));
		assert_int_equal(rep.pages, N);
		assert_int_equal(rep.nodes, 3);
		assert_int_equal(rep.damaged, 0);
		assert_true(rep.bytes_read > N * 2000);
	}
	assert_int_equal(rig_files(&r, "packs", ".pack", pack), 1);
	assert_int_equal(rig_files(&r, "packs", ".idx", idx), 1);
	for (uint64_t at = 0, len = rig_size(&r, pack); at < len; at += 50021) {
		rig_flip(&r, pack, at);
		for (unsigned all = 0; all < 2; all++) {
			OK(snap_verify(r.s, all ? NULL : uuid, NULL, NULL, &rep, &rig_err));
			assert_true(rep.damaged > 0);
			assert_non_null(strstr(rep.first, "pack"));
		}
		rig_flip(&r, pack, at);
	}
	for (uint64_t at = 0, len = rig_size(&r, idx); at < len; at += 1 + len / 50) {
		struct snap *s;

		rig_flip(&r, idx, at);
		s = snap_rig_reader(&r);
		OK(snap_verify(s, NULL, NULL, NULL, &rep, &rig_err));
		assert_true(rep.damaged > 0);
		snap_close(s);
		rig_flip(&r, idx, at);
	}
	OK(snap_verify(r.s, NULL, NULL, NULL, &rep, &rig_err));
	assert_int_equal(rep.damaged, 0);
	snap_rig_free(&r);
}

/* A reader in the middle of its work while packs go and come below it, read by read. */
static void test_gc_while_a_reader_reads(void **state)
{
	struct snap_digest roots[8], d;
	uint8_t want[SNAP_PAGE_BYTES], got[SNAP_PAGE_BYTES];
	struct snap_map *m = NULL;
	struct snap_gc gc;
	struct snap_rig r;
	struct snap *s;

	(void)state;
	snap_rig_new(&r);
	for (unsigned k = 0; k < 8; k++)
		roots[k] = store(&r, 1 + k, 1 + k * 75);
	s = snap_rig_reader(&r);
	OK(snap_map_open(s, &roots[7], N, &m, &rig_err));
	for (unsigned i = 0; i < N; i++) {
		rig_page(1 + 7 * 75 + i, want);
		if (i % 75 == 0 && i / 75 < 7) {
			drop(&r, 1 + i / 75);
			OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err));
		}
		if (i % 150 == 0)
			snap_rig_reopen(&r);
		OK(snap_map_get(m, i, &d, &rig_err));
		OK(snap_page_read(s, &d, got, &rig_err));
		assert_memory_equal(want, got, sizeof(want));
		if (i % 40 == 0)
			OK(snap_refresh(s, &rig_err));
	}
	snap_map_close(m);
	snap_close(s);
	snap_rig_free(&r);
}

/* Another process: reads everything again and again, by the ring too, until @fd ends. */
static void count_read(void *arg, int code, const struct err *e)
{
	if (code < 0) {
		fprintf(stderr, "reader: %s\n", e->msg);
		_exit(1);
	}
	++*(unsigned *)arg;
}

static void read_for_ever(struct snap_rig *r, const struct snap_digest *root, uint64_t from, int fd, int ready)
{
	static uint8_t pages[16 * SNAP_PAGE_BYTES];
	uint8_t want[SNAP_PAGE_BYTES];
	struct snap_reader *reader = NULL;
	struct snap_map *m = NULL;
	struct snap *s = NULL;
	struct err e = { 0 };
	uint32_t absent;
	bool uring;
	char byte;

	if (snap_open(r->dirfd, "store", SNAP_READ, &s, &e) < 0 || snap_map_open(s, root, N, &m, &e) < 0 ||
	    snap_reader_new(s, 4, true, &reader, &uring, &e) < 0)
		_exit(2);
	for (unsigned round = 0;; round++) {
		for (unsigned i = 0; i + 16 <= N; i += 16) {
			unsigned called = 0;

			if (snap_read(reader, m, i, 16, pages, &absent, count_read, &called, &e) < 0) {
				fprintf(stderr, "reader: %s\n", e.msg);
				_exit(3);
			}
			while (!called)
				snap_reader_poll(reader);
			rig_page(from + i + 5, want);
			if (memcmp(want, pages + (size_t)5 * SNAP_PAGE_BYTES, sizeof(want)) != 0)
				_exit(4);
		}
		if (round == 0 && write(ready, "r", 1) != 1)
			_exit(5);
		if (round % 4 == 3 && snap_refresh(s, &e) < 0)
			_exit(6);
		if (recv(fd, &byte, 1, MSG_DONTWAIT) == 0)
			_exit(0);
	}
}

static void test_gc_beside_another_process(void **state)
{
	struct snap_digest root;
	struct snap_gc gc;
	struct snap_rig r;
	int pair[2], status;
	pid_t pid;
	char byte;

	(void)state;
	snap_rig_new(&r);
	root = store(&r, 1, 1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(pair[0]);
		read_for_ever(&r, &root, 1, pair[1], pair[1]);
	}
	close(pair[1]);
	assert_int_equal(read(pair[0], &byte, 1), 1);
	/* Each round the packs that it reads from are joined with a new one, and removed. */
	for (unsigned k = 0; k < 40; k++) {
		store(&r, 2 + k, 10000 + k);
		OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err));
		assert_int_equal(gc.packs_after, 1);
		drop(&r, 2 + k);
	}
	close(pair[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	snap_rig_free(&r);
}

static void test_stat(void **state)
{
	struct snap_stat st;
	struct snap_rig r;
	char path[128];

	(void)state;
	snap_rig_new(&r);
	OK(snap_stat(r.s, &st, &rig_err));
	assert_int_equal(st.snapshots + st.packs + st.pages + st.bytes_packs + st.bytes_logical, 0);
	store(&r, 1, 1);
	store(&r, 2, 1);
	OK(snap_stat(r.s, &st, &rig_err));
	assert_int_equal(st.snapshots, 2);
	assert_int_equal(st.packs, 1);
	assert_int_equal(st.pages, N);
	assert_int_equal(st.bytes_logical, 2ull * N * SNAP_PAGE_BYTES);
	assert_int_equal(rig_files(&r, "packs", ".pack", path), 1);
	assert_int_equal(st.bytes_packs, rig_size(&r, path));
	snap_rig_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_space_comes_back),
		cmocka_unit_test(test_leftovers_go),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_a_damaged_frame_stays),
		cmocka_unit_test(test_verify_finds_damage),
		cmocka_unit_test(test_gc_while_a_reader_reads),
		cmocka_unit_test(test_gc_beside_another_process),
		cmocka_unit_test(test_stat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
