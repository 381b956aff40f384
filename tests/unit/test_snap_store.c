/* SPDX-License-Identifier: Apache-2.0 */
/* The store from outside: batches, maps, blobs, manifests, damage. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "snap_rig.h"

#define N 3000u /* entries: six leaves, the last one short; two levels */

static uint64_t *seeds_of(uint64_t n, uint64_t fill)
{
	uint64_t *v = malloc(n * sizeof(*v));

	assert_non_null(v);
	for (uint64_t i = 0; i < n; i++)
		v[i] = fill;
	return v;
}

static void expect_page(struct snap *s, struct snap_map *m, uint64_t index, uint64_t seed)
{
	uint8_t want[SNAP_PAGE_BYTES], got[SNAP_PAGE_BYTES];
	struct snap_digest d;

	rig_page(seed, want);
	OK(snap_map_get(m, index, &d, &rig_err));
	OK(snap_page_read(s, &d, got, &rig_err));
	assert_memory_equal(want, got, sizeof(want));
	assert_int_equal(snap_digest_equal(&d, &snap_zero), seed == 0);
}

static void test_round_trip(void **state)
{
	AUTO_FREE uint64_t *seeds = seeds_of(N, UINT64_MAX);
	struct snap_counts c;
	struct snap_digest root;
	struct snap_map *m = NULL;
	char pack[128], idx[128];
	struct snap_rig r;
	struct snap *s;

	(void)state;
	snap_rig_new(&r);
	for (unsigned i = 0; i < N; i += 3)
		seeds[i] = i % 6 ? i + 1 : 0;
	seeds[9] = seeds[3];
	root = rig_store(&r, 1, NULL, seeds, N, &c);
	assert_int_equal(c.pages_seen, 1000);
	assert_int_equal(c.pages_zero, 500);
	assert_int_equal(c.pages_new, 499);
	assert_int_equal(c.pages_known, 1);
	assert_int_equal(c.nodes_new, 7);
	assert_int_equal(rig_files(&r, "packs", ".pack", pack), 1);
	assert_int_equal(rig_files(&r, "packs", ".idx", idx), 1);
	assert_int_equal(c.bytes_stored, rig_size(&r, pack) + rig_size(&r, idx));
	s = snap_rig_reader(&r);
	OK(snap_map_open(s, &root, N, &m, &rig_err));
	for (unsigned i = 0; i < N; i++)
		expect_page(s, m, i, seeds[i] == UINT64_MAX ? 0 : seeds[i]);
	snap_map_close(m);
	snap_close(s);
	snap_rig_free(&r);
}

static void test_a_child_costs_what_changed(void **state)
{
	AUTO_FREE uint64_t *seeds = seeds_of(N, UINT64_MAX);
	struct snap_digest first, second, same;
	uint64_t shared, differ;
	struct snap_map *m = NULL;
	struct snap_counts c;
	struct snap_rig r;

	(void)state;
	snap_rig_new(&r);
	for (unsigned i = 0; i < N; i++)
		seeds[i] = i + 1;
	first = rig_store(&r, 1, NULL, seeds, N, NULL);
	for (unsigned i = 0; i < N; i++)
		seeds[i] = UINT64_MAX;
	seeds[700] = 12345;
	seeds[701] = 0;
	second = rig_store(&r, 2, &first, seeds, N, &c);
	assert_int_equal(c.pages_new, 1);
	assert_int_equal(c.pages_zero, 1);
	assert_int_equal(c.nodes_new, 2); /* a leaf and the root */
	OK(snap_map_open(r.s, &second, N, &m, &rig_err));
	expect_page(r.s, m, 699, 700);
	expect_page(r.s, m, 700, 12345);
	expect_page(r.s, m, 701, 0);
	expect_page(r.s, m, N - 1, N);
	snap_map_close(m);
	OK(snap_map_diff(r.s, &first, &second, N, &shared, &differ, &rig_err));
	assert_int_equal(differ, 2);
	assert_int_equal(shared, N - 2);
	/* The same again is nothing: the nodes are the parent's. */
	seeds[700] = 701;
	seeds[701] = 702;
	same = rig_store(&r, 3, &second, seeds, N, &c);
	assert_true(snap_digest_equal(&same, &first));
	assert_int_equal(c.pages_new + c.nodes_new, 0);
	assert_int_equal(c.bytes_stored, 0);
	snap_rig_free(&r);
}

static void test_special_entries_and_runs(void **state)
{
	struct snap_manifest man = { .disk_blocks = 600000 };
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;
	uint8_t page[SNAP_PAGE_BYTES];
	struct snap_map *m = NULL;
	struct snap_rig r;
	uint64_t run;

	(void)state;
	snap_rig_new(&r);
	rig_uuid(1, man.uuid);
	OK(snap_batch_new(r.s, &b, &rig_err));
	/* Nothing put: the root is the fill itself. */
	OK(snap_edit_new(b, NULL, &snap_absent, 600000, &d, &rig_err));
	OK(snap_edit_finish(d, &man.disk, &rig_err));
	assert_true(snap_digest_equal(&man.disk, &snap_absent));
	OK(snap_edit_new(b, NULL, &snap_absent, 600000, &d, &rig_err));
	rig_page(7, page);
	OK(snap_edit_put(d, 5, page, &rig_err));
	OK(snap_edit_mark(d, 6, &snap_zero, &rig_err));
	assert_int_equal(snap_edit_mark(d, 6, &snap_zero, &rig_err), -EINVAL);
	assert_int_equal(snap_edit_mark(d, 600000, &snap_zero, &rig_err), -EINVAL);
	OK(snap_edit_put(d, 599999, page, &rig_err));
	OK(snap_edit_finish(d, &man.disk, &rig_err));
	OK(snap_batch_commit(b, &man, NULL, &rig_err));
	OK(snap_map_open(r.s, &man.disk, 600000, &m, &rig_err));
	OK(snap_map_run(m, 0, &snap_absent, &run, &rig_err));
	assert_int_equal(run, 5);
	OK(snap_map_run(m, 5, &snap_absent, &run, &rig_err));
	assert_int_equal(run, 0);
	OK(snap_map_run(m, 6, &snap_zero, &run, &rig_err));
	assert_int_equal(run, 1);
	OK(snap_map_run(m, 7, &snap_absent, &run, &rig_err));
	assert_int_equal(run, 599992);
	assert_int_equal(snap_map_run(m, 600000, &snap_absent, &run, &rig_err), -EINVAL);
	snap_map_close(m);
	/* A node says how much it holds: a map of another length is another map. */
	assert_int_equal(snap_map_open(r.s, &man.disk, 512, &m, &rig_err), -EBADMSG);
	snap_rig_free(&r);
}

static void test_blobs(void **state)
{
	static const size_t sizes[] = { 0, 1, 4096, 60 * 1024, 60 * 1024 + 1, 1000000, SNAP_BLOB_MAX };
	AUTO_FREE uint8_t *data = malloc(SNAP_BLOB_MAX + 1);
	struct snap_digest d[ARRAY_LEN(sizes)];
	struct snap_manifest m = { 0 };
	struct snap_batch *b = NULL;
	struct snap_rig r;
	struct buf out;

	(void)state;
	snap_rig_new(&r);
	for (size_t i = 0; i < SNAP_BLOB_MAX; i += SNAP_PAGE_BYTES)
		rig_page(i + 1, data + i);
	rig_uuid(1, m.uuid);
	OK(snap_batch_new(r.s, &b, &rig_err));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
		OK(snap_blob_put(b, data, sizes[i], &d[i], &rig_err));
	assert_int_equal(snap_blob_put(b, data, SNAP_BLOB_MAX + 1, &d[0], &rig_err), -EFBIG);
	OK(snap_batch_commit(b, &m, NULL, &rig_err));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		buf_init(&out, SNAP_BLOB_MAX);
		OK(snap_blob_read(r.s, &d[i], &out, &rig_err));
		assert_int_equal(out.len, sizes[i]);
		assert_memory_equal(out.data ? out.data : data, data, sizes[i]);
		buf_fini(&out);
	}
	buf_init(&out, 100);
	assert_int_equal(snap_blob_read(r.s, &d[5], &out, &rig_err), -EFBIG);
	buf_fini(&out);
	snap_rig_free(&r);
}

static void test_manifest(void **state)
{
	static char big[70000];
	struct snap_manifest m = { .memory_pages = 512, .disk_blocks = 77, .state_bytes = 9, .created_ns = UINT64_MAX };
	struct snap_manifest got;
	struct snap_batch *b = NULL;
	struct snap_rig r;

	(void)state;
	snap_rig_new(&r);
	rig_uuid(1, m.uuid);
	rig_uuid(2, m.parent);
	m.disk = snap_absent;
	m.meta = json_object_new_object();
	json_object_object_add(m.meta, "shape", json_object_new_string("a\"b/\xc3\xa4"));
	OK(snap_batch_new(r.s, &b, &rig_err));
	OK(snap_batch_commit(b, &m, NULL, &rig_err));
	OK(snap_manifest_read(r.s, m.uuid, &got, &rig_err));
	assert_string_equal(got.uuid, m.uuid);
	assert_string_equal(got.parent, m.parent);
	assert_true(got.created_ns == UINT64_MAX && got.memory_pages == 512 && got.disk_blocks == 77);
	assert_int_equal(got.state_bytes, 9);
	assert_true(snap_digest_equal(&got.disk, &snap_absent) && snap_digest_equal(&got.memory, &snap_zero));
	assert_string_equal(json_line(got.meta), json_line(m.meta));
	snap_manifest_fini(&got);
	OK(snap_batch_new(r.s, &b, &rig_err));
	assert_int_equal(snap_batch_commit(b, &m, NULL, &rig_err), -EEXIST);
	OK(snap_manifest_remove(r.s, m.uuid, &rig_err));
	OK(snap_manifest_remove(r.s, m.uuid, &rig_err));
	assert_int_equal(snap_manifest_read(r.s, m.uuid, &got, &rig_err), -ENOENT);
	assert_int_equal(snap_manifest_read(r.s, "../format", &got, &rig_err), -EINVAL);
	memset(big, 'x', sizeof(big));
	json_object_object_add(m.meta, "big", json_object_new_string_len(big, sizeof(big)));
	OK(snap_batch_new(r.s, &b, &rig_err));
	assert_int_equal(snap_batch_commit(b, &m, NULL, &rig_err), -EINVAL);
	snap_manifest_fini(&m);
	snap_rig_free(&r);
}

/* Every bit of every byte: an error, or the same as before. */
static void test_manifest_every_byte(void **state)
{
	struct snap_manifest m = { .memory_pages = 5 }, got;
	AUTO_FREE char *text = NULL;
	struct snap_batch *b = NULL;
	struct snap_rig r;
	size_t len;

	(void)state;
	snap_rig_new(&r);
	rig_uuid(1, m.uuid);
	OK(snap_batch_new(r.s, &b, &rig_err));
	OK(snap_batch_commit(b, &m, NULL, &rig_err));
	assert_int_equal(fd_slurp(r.dirfd, "store/manifests/00000001-0000-4000-8000-000000000000", 4096, &text, &len),
			 0);
	OK(snap_manifest_parse(text, len, &got, &rig_err));
	snap_manifest_fini(&got);
	for (size_t i = 0; i < len; i++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			text[i] = (char)(text[i] ^ 1 << bit);
			assert_int_equal(snap_manifest_parse(text, len, &got, &rig_err), -EBADMSG);
			text[i] = (char)(text[i] ^ 1 << bit);
		}
		assert_int_equal(snap_manifest_parse(text, i, &got, &rig_err), -EBADMSG);
	}
	snap_rig_free(&r);
}

static int read_all(struct snap *s, const struct snap_digest *root, uint64_t n)
{
	uint8_t page[SNAP_PAGE_BYTES];
	struct snap_map *m = NULL;
	struct snap_digest d;
	int r = snap_map_open(s, root, n, &m, &rig_err);

	for (uint64_t i = 0; r == 0 && i < n; i++) {
		r = snap_map_get(m, i, &d, &rig_err);
		if (r == 0)
			r = snap_page_read(s, &d, page, &rig_err);
	}
	snap_map_close(m);
	return r;
}

/* Each byte of a small pack, then of its index. */
static void test_damage_is_told_and_mended(void **state)
{
	uint64_t seeds[20];
	struct snap_digest root;
	struct snap_rig r;
	char path[128];

	(void)state;
	snap_rig_new(&r);
	for (unsigned i = 0; i < ARRAY_LEN(seeds); i++)
		seeds[i] = i + 1;
	root = rig_store(&r, 1, NULL, seeds, ARRAY_LEN(seeds), NULL);
	assert_int_equal(rig_files(&r, "packs", ".pack", path), 1);
	for (uint64_t i = 0, len = rig_size(&r, path); i < len; i += i < 700 || i + 700 > len ? 1 : 97) {
		struct snap *s = snap_rig_reader(&r);

		rig_flip(&r, path, i);
		assert_int_equal(read_all(s, &root, ARRAY_LEN(seeds)), -EBADMSG);
		assert_int_equal(read_all(s, &root, ARRAY_LEN(seeds)), -EBADMSG);
		rig_flip(&r, path, i);
		/* The same reader: it kept nothing of the damage. */
		assert_int_equal(read_all(s, &root, ARRAY_LEN(seeds)), 0);
		snap_close(s);
	}
	assert_int_equal(rig_files(&r, "packs", ".idx", path), 1);
	for (uint64_t i = 0, len = rig_size(&r, path); i < len; i++) {
		struct snap *s;
		int code;

		rig_flip(&r, path, i);
		s = snap_rig_reader(&r);
		code = read_all(s, &root, ARRAY_LEN(seeds));
		assert_true(code == 0 || code == -EBADMSG);
		snap_close(s);
		rig_flip(&r, path, i);
	}
	snap_rig_free(&r);
}

static void test_a_window_in_many_frames_is_stored_anew(void **state)
{
	AUTO_FREE uint64_t *seeds = seeds_of(16, 0);
	struct snap_counts c;
	struct snap_digest root;
	struct snap_rig r;

	(void)state;
	snap_rig_new(&r);
	for (unsigned i = 0; i < 16; i++)
		seeds[i] = i + 1;
	root = rig_store(&r, 1, NULL, seeds, 16, NULL);
	/* One page more each time: a frame more. The fourth change would make five. */
	for (unsigned k = 0; k < 4; k++) {
		for (unsigned i = 0; i < 16; i++)
			seeds[i] = i == k ? 100 + k : UINT64_MAX;
		root = rig_store(&r, 2 + k, &root, seeds, 16, &c);
		assert_int_equal(c.pages_new, 1);
		if (k < 3)
			assert_true(c.bytes_stored < 8192);
		else
			assert_true(c.bytes_stored > 16 * 2048);
	}
	assert_int_equal(read_all(r.s, &root, 16), 0);
	snap_rig_free(&r);
}

static void test_open(void **state)
{
	struct snap_batch *b = NULL, *b2 = NULL;
	struct snap *s = NULL;
	struct snap_rig r;

	(void)state;
	snap_rig_new(&r);
	assert_int_equal(snap_open(r.dirfd, "none", SNAP_READ, &s, &rig_err), -ENOENT);
	assert_int_equal(snap_open(r.dirfd, "store", SNAP_WRITE, &s, &rig_err), -EBUSY);
	s = snap_rig_reader(&r);
	assert_int_equal(snap_batch_new(s, &b, &rig_err), -EROFS);
	OK(snap_batch_new(r.s, &b, &rig_err));
	assert_int_equal(snap_batch_new(r.s, &b2, &rig_err), -EBUSY);
	snap_batch_abort(b);
	s = snap_close(s);
	assert_int_equal(fd_replace(r.dirfd, "store/format", "crucible-snapstore 2\n", 21, 0644, false), 0);
	assert_int_equal(snap_open(r.dirfd, "store", SNAP_READ, &s, &rig_err), -EPROTONOSUPPORT);
	assert_int_equal(fd_replace(r.dirfd, "store/format", "crucible-snapstore x\n", 21, 0644, false), 0);
	assert_int_equal(snap_open(r.dirfd, "store", SNAP_READ, &s, &rig_err), -EBADMSG);
	snap_rig_free(&r);
}

static void test_abort_leaves_nothing(void **state)
{
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;
	uint8_t page[SNAP_PAGE_BYTES];
	struct snap_rig r;

	(void)state;
	snap_rig_new(&r);
	OK(snap_batch_new(r.s, &b, &rig_err));
	OK(snap_edit_new(b, NULL, &snap_zero, 100, &d, &rig_err));
	for (unsigned i = 0; i < 40; i++) {
		rig_page(i + 1, page);
		OK(snap_edit_put(d, i, page, &rig_err));
	}
	assert_int_equal(rig_files(&r, "packs", "", NULL), 1);
	snap_batch_abort(b);
	assert_int_equal(rig_files(&r, "packs", "", NULL), 0);
	snap_rig_free(&r);
}

/* More than one pack holds: each is found by the next, and goes with an abort. */
static void test_a_large_batch_makes_several_packs(void **state)
{
	AUTO_FREE uint64_t *seeds = seeds_of(70000, 0);
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;
	uint8_t page[SNAP_PAGE_BYTES];
	struct snap_counts c;
	struct snap_rig r;
	struct snap_digest root;

	(void)state;
	snap_rig_new(&r);
	for (unsigned i = 0; i < 70000; i++)
		seeds[i] = i == 69999 ? 1 : i + 1;
	OK(snap_batch_new(r.s, &b, &rig_err));
	OK(snap_edit_new(b, NULL, &snap_zero, 70000, &d, &rig_err));
	for (unsigned i = 0; i < 66000; i++) {
		rig_page(seeds[i], page);
		OK(snap_edit_put(d, i, page, &rig_err));
	}
	assert_int_equal(rig_files(&r, "packs", ".idx", NULL), 1);
	snap_batch_abort(b);
	assert_int_equal(rig_files(&r, "packs", "", NULL), 0);
	root = rig_store(&r, 1, NULL, seeds, 70000, &c);
	assert_int_equal(c.pages_new, 69999);
	assert_int_equal(c.pages_known, 1);
	assert_int_equal(rig_files(&r, "packs", ".idx", NULL), 2);
	assert_int_equal(read_all(r.s, &root, 70000), 0);
	snap_rig_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_a_child_costs_what_changed),
		cmocka_unit_test(test_special_entries_and_runs),
		cmocka_unit_test(test_blobs),
		cmocka_unit_test(test_manifest),
		cmocka_unit_test(test_manifest_every_byte),
		cmocka_unit_test(test_damage_is_told_and_mended),
		cmocka_unit_test(test_a_window_in_many_frames_is_stored_anew),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_abort_leaves_nothing),
		cmocka_unit_test(test_a_large_batch_makes_several_packs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
