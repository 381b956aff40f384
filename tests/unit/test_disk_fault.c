/* SPDX-License-Identifier: Apache-2.0 */
/* Each system call and allocation of a freeze, a creation, a join, a write fails in turn: the disk is as it was, and
 * the next try works. Linked with --wrap, see snapstore/disk/module.mk. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "snapstore/disk/disk_priv.h"
#include "tests/unit/disk_dir.h"
#include "tests/unit/fake_snap.h"

/* Without those that are there for the next freeze. */
static unsigned layer_files(const struct disks *d, const struct disk_dir *dir)
{
	return disk_dir_files(dir, "layers") - 2 * d->nspare_layers;
}

#define BYTES  (8ull << 20)
#define B      ((uint64_t)DISK_BLOCK_BYTES)
#define BLOCKS 40u

/* -- the Nth call fails ------------------------------------------------------------------------------------------ */

static int left; /* calls to go; 0: none is to fail */
static int code;
static bool failed, forever; /* @forever: all later ones, too */

static bool fails(void)
{
	if (failed && forever) {
		errno = code;
		return true;
	}
	if (left == 0 || --left > 0)
		return false;
	failed = true;
	errno = code;
	return true;
}

static void arm(int nth, int err, bool all)
{
	left = nth;
	code = err;
	failed = false;
	forever = all;
}

static bool disarm(void)
{
	left = 0;
	forever = false;
	return failed;
}

#define WRAP(type, name, params, args, bad) \
	type __real_##name params;          \
	type __wrap_##name params;          \
	type __wrap_##name params           \
	{                                   \
		if (fails())                \
			return bad;         \
		return __real_##name args;  \
	}

WRAP(void *, calloc, (size_t n, size_t m), (n, m), NULL)
WRAP(void *, malloc, (size_t n), (n), NULL)
WRAP(ssize_t, write, (int fd, const void *p, size_t n), (fd, p, n), -1)
WRAP(ssize_t, pwrite64, (int fd, const void *p, size_t n, off_t o), (fd, p, n, o), -1)
WRAP(ssize_t, pwritev64, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), -1)
WRAP(ssize_t, pread64, (int fd, void *p, size_t n, off_t o), (fd, p, n, o), -1)
WRAP(int, ftruncate64, (int fd, off_t n), (fd, n), -1)
WRAP(int, renameat, (int a, const char *p, int b, const char *q), (a, p, b, q), -1)
WRAP(int, linkat, (int a, const char *p, int b, const char *q, int f), (a, p, b, q, f), -1)

int __real_openat64(int dirfd, const char *path, int flags, mode_t mode);
int __wrap_openat64(int dirfd, const char *path, int flags, mode_t mode);
int __wrap_openat64(int dirfd, const char *path, int flags, mode_t mode)
{
	return fails() ? -1 : __real_openat64(dirfd, path, flags, mode);
}

/* -- the world --------------------------------------------------------------------------------------------------- */

struct fix {
	struct disk_dir dir;
	int base;
	struct disks *d;
	struct disk *k;
	struct err e;
	uint8_t shown[BLOCKS * DISK_BLOCK_BYTES];
};

static int setup(void **state)
{
	static struct fix f;
	struct disk_origin o = { .base = "img" };

	memset(&f, 0, sizeof(f));
	disk_dir_make(&f.dir);
	o.base_fd = f.base = disk_dir_base(&f.dir, "img", 10 * B);
	assert_int_equal(disks_open(f.dir.fd, NULL, &f.d, &f.e), 0);
	assert_int_equal(disk_create(f.d, "m", BYTES, 0, &o, &f.e), 0);
	assert_int_equal(disk_open(f.d, "m", &f.k, &f.e), 0);
	for (unsigned i = 0; i < 5; i++) {
		char name[8];
		uint8_t data[3 * DISK_BLOCK_BYTES];

		memset(data, (int)(i + 1), sizeof(data));
		assert_int_equal(disk_write(f.k, data, (5 + i * 3) * B, sizeof(data), &f.e), 0);
		snprintf(name, sizeof(name), "s%u", i);
		assert_int_equal(disk_freeze(f.d, "m", name, &f.e), 0);
	}
	assert_int_equal(disk_write(f.k, "top", 2 * B + 9, 3, &f.e), 0);
	assert_int_equal(disk_read(f.k, f.shown, 0, sizeof(f.shown), &f.e), 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;

	disks_close(f->d);
	fd_close(&f->base);
	disk_dir_end(&f->dir);
	return 0;
}

static void expect_same(struct fix *f)
{
	static uint8_t got[sizeof(f->shown)];

	assert_int_equal(disk_read(f->k, got, 0, sizeof(got), &f->e), 0);
	assert_memory_equal(got, f->shown, sizeof(got));
}

static void reopen(struct fix *f)
{
	disks_close(f->d);
	assert_int_equal(disks_open(f->dir.fd, NULL, &f->d, &f->e), 0);
	assert_int_equal(disk_open(f->d, "m", &f->k, &f->e), 0);
}

static unsigned layers(struct fix *f, uint64_t *ret_own)
{
	unsigned n = 0;

	assert_int_equal(disk_stat(f->d, "m", ret_own, &n, &f->e), 0);
	return n;
}

/* -- tests ------------------------------------------------------------------------------------------------------- */

static void fill_spares(struct fix *f)
{
	while (spare_add(f->d))
		;
}

/* @all: after the first failure nothing works any more, so what was done cannot be taken back either. @spare: with
 * files that were made before. */
static void freeze_with_failures(struct fix *f, bool all, bool spare)
{
	uint64_t own, own_now;
	unsigned n = layers(f, &own), files = layer_files(f->d, &f->dir);
	unsigned tried = 0;
	bool hit = true;

	for (int nth = 1; hit; nth++) {
		struct err e = { 0 };
		int r;

		if (spare)
			fill_spares(f);
		else
			spares_drop(f->d);
		arm(nth, ENOSPC, all);
		r = disk_freeze(f->d, "m", "t", &e);
		hit = disarm();
		if (!hit) {
			assert_int_equal(r, 0);
			break;
		}
		tried++;
		assert_true(r == -ENOSPC || r == -ENOMEM);
		assert_true(e.msg[0]);
		assert_false(disk_exists(f->d, "t"));
		expect_same(f);
		if (!all) {
			assert_int_equal(layers(f, &own_now), n);
			assert_int_equal(own_now, own);
			assert_int_equal(layer_files(f->d, &f->dir), files);
			assert_int_equal(disk_dir_files(&f->dir, "stacks"),
					 6); /* without those that begin with a dot */
		}
		if (nth % 3 == 0) {
			reopen(f);
			assert_false(disk_exists(f->d, "t"));
			expect_same(f);
		}
		assert_int_equal(disk_write(f->k, "top", 2 * B + 9, 3, &f->e), 0);
	}
	assert_true(tried >= 6);
	reopen(f);
	expect_same(f);
	f->k = disk_close(f->k);
	assert_int_equal(disk_open(f->d, "t", &f->k, &f->e), 0);
	expect_same(f);
}

static void test_freeze(void **state)
{
	freeze_with_failures(*state, false, false);
}

static void test_freeze_with_spares(void **state)
{
	freeze_with_failures(*state, false, true);
}

static void test_freeze_when_nothing_works_any_more(void **state)
{
	freeze_with_failures(*state, true, false);
}

static void test_freeze_with_spares_when_nothing_works_any_more(void **state)
{
	freeze_with_failures(*state, true, true);
}

static void test_create(void **state)
{
	struct fix *f = *state;
	struct disk_origin o = { .base_fd = -1, .snapshot = "s2" };
	unsigned files = layer_files(f->d, &f->dir);
	int r = -1;

	for (int nth = 1; r < 0; nth++) {
		arm(nth, ENOSPC, false);
		r = disk_create(f->d, "n", BYTES, 0, &o, &f->e);
		assert_int_equal(disarm(), r < 0);
		assert_int_equal(layer_files(f->d, &f->dir), files + (r < 0 ? 0 : 2));
		assert_int_equal(disk_exists(f->d, "n"), r == 0);
	}
	r = -1;
	for (int nth = 1; r < 0; nth++) {
		struct disk *k;

		arm(nth, EMFILE, false);
		r = disk_open(f->d, "n", &k, &f->e);
		assert_int_equal(disarm(), r < 0);
	}
}

/* @alone: no snapshot holds the layers, so they join in place. */
static void join_with_failures(struct fix *f, bool alone)
{
	uint64_t own;
	unsigned n = layers(f, &own);
	bool hit = true;

	for (unsigned i = 0; alone && i < 5; i++) {
		char name[8];

		snprintf(name, sizeof(name), "s%u", i);
		assert_int_equal(disk_remove(f->d, name, &f->e), 0);
	}
	for (int nth = 1; hit; nth++) {
		int r;

		arm(nth, ENOSPC, false);
		r = stack_join(f->d, stack_find(f->d, "m"), &f->e);
		hit = disarm();
		assert_true(hit ? r < 0 : r == 0);
		expect_same(f);
		assert_int_equal(layers(f, &own), r < 0 ? n : n - 1);
		if (nth % 5 == 0) {
			reopen(f);
			expect_same(f);
		}
	}
	reopen(f);
	expect_same(f);
	assert_int_equal(disk_write(f->k, "top", 2 * B + 9, 3, &f->e), 0);
	expect_same(f);
}

static void test_join(void **state)
{
	join_with_failures(*state, false);
}

static void test_join_in_place(void **state)
{
	join_with_failures(*state, true);
}

static void test_files(void **state)
{
	struct fix *f = *state;
	struct disk_files s;
	unsigned files;
	int r = -1;

	for (unsigned i = 5; i < 12; i++) { /* so that some have to be joined */
		char name[8];

		snprintf(name, sizeof(name), "s%u", i);
		assert_int_equal(disk_freeze(f->d, "m", name, &f->e), 0);
	}
	files = layer_files(f->d, &f->dir);
	for (int nth = 1; r < 0; nth++) {
		arm(nth, ENOSPC, false);
		r = disk_snapshot_files(f->d, "s11", "", &s, &f->e);
		assert_int_equal(disarm(), r < 0);
		assert_int_equal(layer_files(f->d, &f->dir), files);
	}
	assert_int_equal(s.n, DISK_FILES_MAX);
	for (unsigned i = 0; i < s.n; i++) {
		fd_close(&s.data[i]);
		fd_close(&s.map[i]);
	}
}

static void test_write(void **state)
{
	struct fix *f = *state;
	uint8_t data[2 * DISK_BLOCK_BYTES];
	uint64_t own, now;
	bool hit = true;

	memset(data, 0xee, sizeof(data));
	fill_spares(f); /* a failure to make one would be nobody's */
	layers(f, &own);
	f->k = disk_close(f->k);
	for (int nth = 1; hit; nth++) {
		int r;

		assert_int_equal(disk_open(f->d, "m", &f->k, &f->e), 0); /* with an empty index */
		arm(nth, ENOSPC, false);
		r = disk_write(f->k, data, 12 * B + 7, sizeof(data), &f->e);
		hit = disarm();
		if (hit) {
			assert_true(r == -ENOSPC || r == -EIO || r == -ENOMEM);
			expect_same(f);
			layers(f, &now);
			assert_int_equal(now, own);
		} else {
			assert_int_equal(r, 0);
		}
		if (hit)
			f->k = disk_close(f->k);
	}
	layers(f, &now);
	assert_int_equal(now, own + 3 * B);
	memcpy(f->shown + 12 * B + 7, data, sizeof(data));
	expect_same(f);
}

static void test_start(void **state)
{
	struct fix *f = *state;
	unsigned files = layer_files(f->d, &f->dir);
	int r = -1;

	f->d = disks_close(f->d);
	for (int nth = 1; r < 0; nth++) {
		arm(nth, ENOMEM, false);
		r = disks_open(f->dir.fd, NULL, &f->d, &f->e);
		disarm();
		assert_int_equal(disk_dir_files(&f->dir, "layers"), files);
		if (r == 0 && failed) { /* a record that could not be read */
			f->d = disks_close(f->d);
			r = -1;
		}
	}
	assert_int_equal(disk_open(f->d, "m", &f->k, &f->e), 0);
	expect_same(f);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_freeze),
		T(test_freeze_when_nothing_works_any_more),
		T(test_freeze_with_spares),
		T(test_freeze_with_spares_when_nothing_works_any_more),
		T(test_create),
		T(test_join),
		T(test_join_in_place),
		T(test_files),
		T(test_write),
		T(test_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
