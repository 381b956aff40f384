/* SPDX-License-Identifier: Apache-2.0 */
/* Disks, one behaviour a test. More than 800 lines because all share one fixture and each test is short. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
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

#define MIB	 (1ull << 20)
#define BYTES	 (64 * MIB)
#define B	 ((uint64_t)DISK_BLOCK_BYTES)
#define BLOCKS	 (BYTES / B)
#define BASE_END (3 * B + 100)

struct fix {
	struct disk_dir dir;
	int base;
	struct snap *snap;
	struct disks *d;
	struct err e;
};

static int setup(void **state)
{
	static struct fix f;

	memset(&f, 0, sizeof(f));
	disk_dir_make(&f.dir);
	f.base = disk_dir_base(&f.dir, "img", BASE_END);
	f.snap = fake_snap_new();
	assert_int_equal(disks_open(f.dir.fd, f.snap, &f.d, &f.e), 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;

	assert_null(disks_close(f->d));
	assert_null(disks_close(NULL));
	assert_null(disk_close(NULL));
	assert_int_equal(fake_snap_maps_open(f->snap), 0);
	fake_snap_free(f->snap);
	fd_close(&f->base);
	disk_dir_end(&f->dir);
	return 0;
}

static void reopen(struct fix *f)
{
	disks_close(f->d);
	assert_int_equal(disks_open(f->dir.fd, f->snap, &f->d, &f->e), 0);
}

static struct disk *make(struct fix *f, const char *id, uint64_t limit)
{
	struct disk_origin o = { .base_fd = f->base, .base = "img" };
	struct disk *k;

	assert_int_equal(disk_create(f->d, id, BYTES, limit, &o, &f->e), 0);
	assert_int_equal(disk_open(f->d, id, &k, &f->e), 0);
	return k;
}

static struct disk *fork_of(struct fix *f, const char *snapshot, const char *id)
{
	struct disk_origin o = { .base_fd = -1 };
	struct disk *k;

	snprintf(o.snapshot, sizeof(o.snapshot), "%s", snapshot);
	assert_int_equal(disk_create(f->d, id, BYTES, 0, &o, &f->e), 0);
	assert_int_equal(disk_open(f->d, id, &k, &f->e), 0);
	return k;
}

static void put(struct disk *k, uint64_t block, uint8_t value)
{
	uint8_t data[DISK_BLOCK_BYTES];

	memset(data, value, sizeof(data));
	assert_int_equal(disk_write(k, data, block * B, sizeof(data), NULL), 0);
}

static void expect(struct disk *k, uint64_t block, uint8_t value)
{
	uint8_t data[DISK_BLOCK_BYTES];

	assert_int_equal(disk_read(k, data, block * B, sizeof(data), NULL), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		assert_int_equal(data[i], value);
}

static void expect_base(struct disk *k, uint64_t off, uint32_t len)
{
	uint8_t data[4 * DISK_BLOCK_BYTES];

	assert_true(len <= sizeof(data));
	assert_int_equal(disk_read(k, data, off, len, NULL), 0);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(data[i], off + i < BASE_END ? disk_dir_byte(off + i) : 0);
}

static uint64_t own(struct fix *f, const char *id, unsigned layers)
{
	uint64_t bytes = 0;
	unsigned n = 0;

	assert_int_equal(disk_stat(f->d, id, &bytes, &n, &f->e), 0);
	assert_int_equal(n, layers);
	return bytes / B;
}

/* -- making and opening ------------------------------------------------------------------------------------------ */

static void test_base_shows_through(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);

	assert_int_equal(disk_bytes(k), BYTES);
	expect_base(k, 0, 4 * DISK_BLOCK_BYTES);
	expect_base(k, 3 * B + 90, 200);
	assert_int_equal(disk_write(k, "abc", B + 5, 3, &f->e), 0);
	expect_base(k, 0, DISK_BLOCK_BYTES + 5);
	expect_base(k, B + 8, DISK_BLOCK_BYTES);
	expect(k, BLOCKS - 1, 0);
	disk_close(k);
	reopen(f); /* by its name now */
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), 0);
	expect_base(k, 0, DISK_BLOCK_BYTES + 5);
	expect_base(k, B + 8, 2 * DISK_BLOCK_BYTES);
}

static void test_two_machines_of_one_base(void **state)
{
	struct fix *f = *state;
	struct disk *a = make(f, "a", 0), *b = make(f, "b", 0);

	put(a, 0, 7);
	expect(a, 0, 7);
	expect_base(b, 0, DISK_BLOCK_BYTES);
}

static void test_create_errors(void **state)
{
	struct fix *f = *state;
	struct disk_origin o = { .base_fd = -1 }, of_machine = { .base_fd = -1, .snapshot = "m" };
	struct disk_origin gone = { .base_fd = -1, .base = "gone" }, evil = { .base_fd = -1, .base = "../x" };
	struct disk_origin none = { .base_fd = -1, .snapshot = "none" };
	char longer[DISK_ID_MAX + 2];
	const char *bad[] = { "", ".", "..", "a/b", "a b", "x.new-1-1", "a\"b", "a\nb", longer };

	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(disk_create(f->d, bad[i], BYTES, 0, &o, &f->e), -EINVAL);
	assert_int_equal(disk_create(f->d, "m", 0, 0, &o, &f->e), -EINVAL);
	assert_int_equal(disk_create(f->d, "m", DISK_BYTES_MAX + 1, 0, &o, &f->e), -EINVAL);
	assert_int_equal(disk_create(f->d, "m", BYTES, 0, &gone, &f->e), -EBADMSG);
	assert_int_equal(disk_create(f->d, "m", BYTES, 0, &evil, &f->e), -EINVAL);
	assert_int_equal(disk_create(f->d, "m", BYTES, 0, &none, &f->e), -ENOENT);
	assert_string_equal(f->e.msg, "disk none: there is none");
	assert_int_equal(disk_create(f->d, "m", BYTES, 0, &o, &f->e), 0);
	assert_int_equal(disk_create(f->d, "m", BYTES, 0, &o, &f->e), -EEXIST);
	assert_int_equal(disk_create(f->d, "n", BYTES, 0, &of_machine, &f->e), -EINVAL);
	assert_int_equal(layer_files(f->d, &f->dir), 2);
	assert_int_equal(disk_dir_files(&f->dir, "stacks"), 1);
}

static void test_open_errors(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0), *again;

	assert_int_equal(disk_open(f->d, "none", &again, &f->e), -ENOENT);
	assert_int_equal(disk_open(f->d, "a/b", &again, &f->e), -EINVAL);
	assert_int_equal(disk_open(f->d, "m", &again, &f->e), -EBUSY);
	assert_int_equal(disk_remove(f->d, "m", &f->e), -EBUSY);
	disk_close(k);
	assert_int_equal(disk_open(f->d, "m", &again, &f->e), 0);
}

static void test_ranges(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);
	uint8_t b[2];

	assert_int_equal(disk_read(k, b, BYTES - 1, 2, &f->e), -EINVAL);
	assert_int_equal(disk_write(k, b, BYTES - 1, 2, &f->e), -EINVAL);
	assert_int_equal(disk_zero(k, BYTES - 1, 2, true, &f->e), -EINVAL);
	assert_int_equal(disk_read(k, b, UINT64_MAX, 2, &f->e), -EINVAL);
	assert_int_equal(disk_zero(k, 5, UINT64_MAX, true, &f->e), -EINVAL);
	assert_int_equal(disk_read(k, b, BYTES, 0, &f->e), 0);
	assert_int_equal(disk_zero(k, BYTES, 0, true, &f->e), 0);
	assert_int_equal(own(f, "m", 1), 0);
}

static void test_a_record_that_cannot_be_read(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);

	put(k, 1, 1);
	disk_close(k);
	make(f, "good", 0);
	assert_int_equal(fd_replace(f->dir.fd, "stacks/m", "{\"bytes\":", 9, 0600, false), 0);
	reopen(f);
	assert_true(disk_exists(f->d, "m"));
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), -EBADMSG);
	assert_int_equal(disk_open(f->d, "good", &k, &f->e), 0);
	assert_int_equal(layer_files(f->d, &f->dir), 4); /* whose they are is not known */
	assert_int_equal(disk_remove(f->d, "m", &f->e), 0);
	assert_false(disk_exists(f->d, "m"));
	reopen(f);
	assert_int_equal(layer_files(f->d, &f->dir), 2);
}

static void test_a_layer_that_is_gone(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);

	disk_close(k);
	assert_int_equal(unlinkat(f->dir.fd, "layers/0000000000000001.map", 0), 0);
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), -EBADMSG);
	assert_non_null(strstr(f->e.msg, "0000000000000001"));
}

static void test_a_map_that_is_damaged(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);
	AUTO_FD fd = openat(f->dir.fd, "layers/0000000000000001.map", O_WRONLY);
	uint8_t b;

	assert_int_equal(fd_pwrite_all(fd, "\3", 1, 0), 0);
	assert_int_equal(disk_read(k, &b, 0, 1, &f->e), -EBADMSG);
	assert_int_equal(disk_read(k, &b, 17 * MIB, 1, &f->e), 0);
}

static void test_left_overs_go(void **state)
{
	struct fix *f = *state;
	const char *left[] = { "layers/0000000000000077.data", "layers/0000000000000077.map", "stacks/m.new-1-1" };
	struct disk *k;

	for (size_t i = 0; i < ARRAY_LEN(left); i++)
		close(openat(f->dir.fd, left[i], O_CREAT | O_WRONLY, 0600));
	close(openat(f->dir.fd, "layers/notes", O_CREAT | O_WRONLY, 0600)); /* not ours */
	reopen(f);
	assert_int_equal(layer_files(f->d, &f->dir), 1);
	assert_int_equal(disk_dir_files(&f->dir, "stacks"), 0);
	k = make(f, "m", 0);
	assert_int_equal(faccessat(f->dir.fd, "layers/0000000000000078.data", F_OK, 0),
			 0); /* the number is not reused */
	disk_close(k);
}

static void test_remove(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);

	make(f, "other", 0);
	put(k, 1, 9);
	assert_int_equal(disk_remove(f->d, "m", &f->e), -EBUSY); /* open */
	disk_close(k);
	reopen(f);
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), 0);
	expect(k, 1, 9);
	disk_close(k);
	assert_int_equal(disk_remove(f->d, "m", &f->e), 0);
	assert_int_equal(disk_remove(f->d, "m", &f->e), 0);
	assert_false(disk_exists(f->d, "m"));
	assert_int_equal(layer_files(f->d, &f->dir), 2);
}

/* -- space ------------------------------------------------------------------------------------------------------- */

static blkcnt_t space(struct fix *f)
{
	struct stat st;

	assert_int_equal(fstatat(f->dir.fd, "layers/0000000000000001.data", &st, 0), 0);
	return st.st_blocks;
}

static void test_discard_gives_space_back(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);
	static uint8_t data[MIB];
	blkcnt_t full;

	memset(data, 5, sizeof(data));
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(disk_write(k, data, i * MIB, sizeof(data), &f->e), 0);
	assert_int_equal(disk_sync(f->d, "m", &f->e), 0);
	full = space(f);
	assert_true(full >= 8 * 2048);
	assert_int_equal(own(f, "m", 1), 2048);
	assert_int_equal(disk_zero(k, MIB, 4 * MIB, true, &f->e), 0);
	assert_int_equal(disk_sync(f->d, "m", &f->e), 0);
	assert_true(space(f) <= full - 4 * 2048);
	assert_int_equal(own(f, "m", 1), 1024);
	expect(k, 256, 0);
	expect(k, 5 * 256, 5);
	assert_int_equal(disk_zero(k, 5 * MIB, MIB, false, &f->e), 0); /* this one keeps it */
	assert_int_equal(own(f, "m", 1), 1024);
	expect(k, 5 * 256, 0);
	expect(k, 6 * 256, 5);
}

static void test_discard_of_what_was_never_looked_at(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);

	put(k, 4096 + 17, 3);
	put(k, 3 * 4096, 4);
	disk_close(k);
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), 0);
	assert_int_equal(disk_zero(k, 16 * MIB, 16 * MIB, true, &f->e), 0);
	assert_int_equal(own(f, "m", 1), 1);
	expect(k, 4096 + 17, 0);
	expect(k, 3 * 4096, 4);
	disk_close(k);
	reopen(f);
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), 0);
	expect(k, 4096 + 17, 0);
	assert_int_equal(own(f, "m", 1), 1);
}

static void test_limit(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 4 * B);
	uint8_t two[2 * DISK_BLOCK_BYTES];

	memset(two, 6, sizeof(two));
	put(k, 100, 1);
	put(k, 101, 1);
	assert_int_equal(disk_freeze(f->d, "m", "s", &f->e), 0);
	put(k, 100, 2); /* what is frozen does not count: its snapshot has it */
	put(k, 101, 2);
	put(k, 102, 2);
	assert_int_equal(disk_write(k, two, 200 * B, sizeof(two), &f->e), -EDQUOT);
	assert_non_null(strstr(f->e.msg, "limit of 16384 bytes"));
	expect(k, 200, 0); /* all or nothing of what lies in one piece */
	put(k, 200, 3);
	put(k, 200, 4); /* in place */
	assert_int_equal(disk_write(k, two, 201 * B, 1, &f->e), -EDQUOT);
	assert_int_equal(disk_zero(k, 100 * B, B, true, &f->e), 0);
	put(k, 201, 5);
	assert_int_equal(own(f, "m", 2), 6);
	disk_close(k);
	reopen(f);
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), 0);
	assert_int_equal(disk_write(k, two, 300 * B, 1, &f->e), -EDQUOT);
	k = fork_of(f, "s", "n"); /* starts from nothing of its own */
	assert_int_equal(own(f, "n", 2), 0);
	put(k, 300, 1);
	assert_int_equal(own(f, "n", 2), 1);
}

/* A host whose disk is full: the error says so, the bytes are the old ones, and what is discarded can be used again. */
static void test_a_full_host(void **state)
{
	struct fix *f = *state;
	static uint8_t data[64 * DISK_BLOCK_BYTES];
	char path[96];
	AUTO_FD fd = -1;
	struct disk_origin o = { .base_fd = -1 };
	struct disks *d;
	struct disk *k;
	unsigned at = 0;
	int r;

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount("", "/", "", MS_REC | MS_PRIVATE, NULL) < 0)
		skip();
	snprintf(path, sizeof(path), "%s/small", f->dir.path);
	assert_int_equal(mkdir(path, 0700), 0);
	if (mount("none", path, "tmpfs", 0, "size=2m") < 0)
		skip();
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(disks_open(fd, NULL, &d, &f->e), 0);
	assert_int_equal(disk_create(d, "m", BYTES, 0, &o, &f->e), 0);
	assert_int_equal(disk_open(d, "m", &k, &f->e), 0);
	memset(data, 1, sizeof(data));
	while ((r = disk_write(k, data, at * sizeof(data), sizeof(data), &f->e)) == 0)
		at++;
	assert_int_equal(r, -ENOSPC);
	assert_in_range(at, 1, 8);
	expect(k, at * 64 - 1, 1);
	expect(k, at * 64, 0);
	put(k, 0, 2); /* in place: needs nothing */
	assert_int_equal(disk_zero(k, 0, sizeof(data), true, &f->e), 0);
	assert_int_equal(disk_write(k, data, at * sizeof(data), sizeof(data), &f->e), 0);
	expect(k, at * 64 + 63, 1);
	expect(k, 0, 0);
	disks_close(d);
	fd_close(&fd);
	umount2(path, MNT_DETACH);
}

/* -- the end without warning ----------------------------------------------------------------------------------------
 */

#define KILL_BLOCKS 64u

struct diary { /* shared with the one who is killed */
	_Atomic uint32_t writes;
	_Atomic uint32_t begun[KILL_BLOCKS], done[KILL_BLOCKS];
};

static void write_until_killed(const struct disk_dir *dir, struct diary *y, unsigned seed)
{
	struct disks *d;
	struct disk *k;
	uint32_t data[DISK_BLOCK_BYTES / 4];
	char name[16];

	if (disks_open(dir->fd, NULL, &d, NULL) < 0 || disk_open(d, "m", &k, NULL) < 0)
		_exit(1);
	for (;;) {
		uint32_t n = atomic_fetch_add(&y->writes, 1) + 1, b = (uint32_t)rand_r(&seed) % KILL_BLOCKS;

		for (size_t i = 0; i < ARRAY_LEN(data); i++)
			data[i] = n;
		snprintf(name, sizeof(name), "s%u", n);
		if (n % 16 == 0 && (disk_freeze(d, "m", name, NULL) < 0 || disk_remove(d, name, NULL) < 0))
			_exit(2);
		atomic_store(&y->begun[b], n);
		if (disk_write(k, data, b * B, sizeof(data), NULL) < 0)
			_exit(3);
		atomic_store(&y->done[b], n);
	}
}

static void test_killed(void **state)
{
	struct fix *f = *state;
	struct diary *y = mmap(NULL, sizeof(*y), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct disk_origin o = { .base_fd = -1 };

	assert_int_equal(disk_create(f->d, "m", BYTES, 0, &o, &f->e), 0);
	disks_close(f->d);
	f->d = NULL;
	for (unsigned round = 1; round <= 15; round++) {
		uint32_t until = atomic_load(&y->writes) + round * 7;
		uint32_t got[DISK_BLOCK_BYTES / 4];
		struct disk *k;
		int status;
		pid_t pid = fork();

		if (pid == 0)
			write_until_killed(&f->dir, y, round);
		while (atomic_load(&y->writes) < until && waitpid(pid, &status, WNOHANG) == 0)
			sched_yield();
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status));
		assert_int_equal(disks_open(f->dir.fd, f->snap, &f->d, &f->e), 0);
		assert_int_equal(disk_open(f->d, "m", &k, &f->e), 0);
		for (unsigned b = 0; b < KILL_BLOCKS; b++) {
			assert_int_equal(disk_read(k, got, b * B, sizeof(got), &f->e), 0);
			assert_true(got[0] == y->done[b] || got[0] == y->begun[b]);
			for (size_t i = 1; i < ARRAY_LEN(got); i++)
				assert_int_equal(got[i], got[0]);
			y->done[b] = y->begun[b] = got[0];
		}
		disk_close(k);
		f->d = disks_close(f->d);
	}
	munmap(y, sizeof(*y));
	assert_int_equal(disks_open(f->dir.fd, f->snap, &f->d, &f->e), 0);
}

/* -- forks ------------------------------------------------------------------------------------------------------- */

static void test_freeze_errors(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);

	assert_int_equal(disk_freeze(f->d, "none", "s", &f->e), -ENOENT);
	assert_int_equal(disk_freeze(f->d, "m", "m", &f->e), -EEXIST);
	assert_int_equal(disk_freeze(f->d, "m", "", &f->e), -EINVAL);
	assert_int_equal(disk_freeze(f->d, "m", "s", &f->e), 0);
	assert_int_equal(disk_freeze(f->d, "m", "s", &f->e), -EEXIST);
	assert_int_equal(disk_freeze(f->d, "s", "t", &f->e), -EROFS);
	assert_int_equal(own(f, "m", 2), 0);
	disk_close(k);
	assert_int_equal(disk_freeze(f->d, "m", "t", &f->e), 0); /* nobody has it open */
	assert_int_equal(own(f, "m", 3), 0);
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), 0);
	put(k, 1, 1);
}

/* More generations than a stack has layers, all kept, all forked. */
static void test_deep(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);
	char name[16];

	for (unsigned g = 1; g <= 100; g++) {
		put(k, 7, (uint8_t)g);
		put(k, 100 + g, (uint8_t)g);
		snprintf(name, sizeof(name), "s%u", g);
		assert_int_equal(disk_freeze(f->d, "m", name, &f->e), 0);
	}
	assert_true(stack_find(f->d, "m")->nlayers <= DISK_LAYERS_MAX);
	disk_close(k);
	reopen(f);
	for (unsigned g = 1; g <= 100; g += 11) {
		snprintf(name, sizeof(name), "s%u", g);
		k = fork_of(f, name, "n");
		expect(k, 7, (uint8_t)g);
		for (unsigned i = 1; i <= 100; i++)
			expect(k, 100 + i, i <= g ? (uint8_t)i : 0);
		expect_base(k, 0, DISK_BLOCK_BYTES);
		disk_close(k);
		assert_int_equal(disk_remove(f->d, "n", &f->e), 0);
	}
	for (unsigned g = 1; g <= 100; g++) {
		snprintf(name, sizeof(name), "s%u", g);
		assert_int_equal(disk_remove(f->d, name, &f->e), 0);
	}
	assert_int_equal(disk_open(f->d, "m", &k, &f->e), 0);
	expect(k, 7, 100);
	for (unsigned i = 1; i <= 100; i++)
		expect(k, 100 + i, (uint8_t)i);
	disk_close(k);
	assert_int_equal(disk_remove(f->d, "m", &f->e), 0);
	assert_int_equal(layer_files(f->d, &f->dir), 0);
}

/* Snapshots that go again: the layers are the machine's alone, and join in place. */
static void test_deep_alone(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);

	for (unsigned g = 1; g <= 200; g++) {
		put(k, g % 50, (uint8_t)g);
		assert_int_equal(disk_freeze(f->d, "m", "s", &f->e), 0);
		assert_int_equal(disk_remove(f->d, "s", &f->e), 0);
	}
	assert_int_equal(layer_files(f->d, &f->dir), 2 * stack_find(f->d, "m")->nlayers);
	for (unsigned i = 0; i < 50; i++)
		expect(k, i, (uint8_t)(i ? 150 + i : 200));
	assert_in_range(own(f, "m", DISK_LAYERS_MAX), 50, 199); /* what was overwritten goes when layers meet */
}

/* A full stack of layers of a MiB each, all the machine's alone or all of snapshots. */
static struct disk *make_full(struct fix *f, bool alone)
{
	AUTO_FREE uint8_t *mib = malloc(1 << 20);
	struct disk_origin o = { .base = "img", .base_fd = f->base };
	struct disk *k;
	char s[16];

	assert_non_null(mib);
	assert_int_equal(disk_create(f->d, "big", 128ull << 20, 0, &o, &f->e), 0);
	assert_int_equal(disk_open(f->d, "big", &k, &f->e), 0);
	for (unsigned g = 0; g < DISK_LAYERS_MAX - 1; g++) {
		memset(mib, (int)g + 1, 1 << 20);
		assert_int_equal(disk_write(k, mib, (uint64_t)g << 20, 1 << 20, &f->e), 0);
		snprintf(s, sizeof(s), "s%u", g);
		assert_int_equal(disk_freeze(f->d, "big", s, &f->e), 0);
		if (alone)
			assert_int_equal(disk_remove(f->d, s, &f->e), 0);
	}
	assert_int_equal(stack_find(f->d, "big")->nlayers, DISK_LAYERS_MAX);
	return k;
}

static void expect_mibs(struct disk *k)
{
	uint8_t got[B];

	for (unsigned g = 0; g < DISK_LAYERS_MAX - 1; g++) {
		assert_int_equal(disk_read(k, got, ((uint64_t)g << 20) + 77 * B, B, NULL), 0);
		assert_int_equal(got[0], g + 1);
		assert_int_equal(got[B - 1], g + 1);
	}
}

/* Room for a top is made in steps of a MiB; whatever is read and written in between is right. */
static void test_room_in_steps(void **state)
{
	struct fix *f = *state;

	for (int alone = 0; alone < 2; alone++) {
		struct disk *k = make_full(f, alone);
		struct stack *s = stack_find(f->d, "big");
		unsigned steps = 0;
		uint8_t x = 0;
		int r;

		assert_int_equal(disk_make_room(f->d, "none", &f->e), 0);
		while ((r = disk_make_room(f->d, "big", &f->e)) == 1) {
			steps++;
			assert_non_null(s->join);
			assert_int_equal(s->nlayers, DISK_LAYERS_MAX);
			expect_mibs(k);
			x = (uint8_t)(100 + steps);
			assert_int_equal(disk_write(k, &x, 100ull << 20, 1, &f->e), 0);
		}
		assert_int_equal(r, 0);
		assert_int_equal(s->nlayers, DISK_LAYERS_MAX - 1);
		assert_null(s->join);
		assert_in_range(steps, 1, 16); /* a layer, or two into a new one */
		assert_int_equal(disk_make_room(f->d, "big", &f->e), 0);
		expect_mibs(k);
		/* Full again: its writes do it, a step each. */
		assert_int_equal(disk_freeze(f->d, "big", "last", &f->e), 0);
		for (unsigned n = 0; s->nlayers == DISK_LAYERS_MAX; n++) {
			assert_true(n < 64);
			assert_int_equal(disk_write(k, &x, (101ull << 20) + n, 1, &f->e), 0);
		}
		expect_mibs(k);
		/* Given up in the middle: nothing is left of it, and nothing is lost. */
		assert_int_equal(disk_freeze(f->d, "big", "other", &f->e), 0);
		assert_int_equal(disk_make_room(f->d, "big", &f->e), 1);
		disk_close(k);
		f->d = disks_close(f->d);
		assert_int_equal(disks_open(f->dir.fd, NULL, &f->d, &f->e), 0);
		assert_int_equal(disk_open(f->d, "big", &k, &f->e), 0);
		assert_int_equal(stack_find(f->d, "big")->nlayers, DISK_LAYERS_MAX);
		expect_mibs(k);
		/* A freeze that finds it under way ends it. */
		assert_int_equal(disk_make_room(f->d, "big", &f->e), 1);
		assert_int_equal(disk_freeze(f->d, "big", "third", &f->e), 0);
		assert_null(stack_find(f->d, "big")->join);
		expect_mibs(k);
		disk_close(k);
		assert_int_equal(disk_remove(f->d, "big", &f->e), 0);
		for (unsigned g = 0; g < DISK_LAYERS_MAX; g++) {
			char name[16];

			snprintf(name, sizeof(name), "s%u", g);
			assert_int_equal(disk_remove(f->d, name, &f->e), 0);
		}
		assert_int_equal(disk_remove(f->d, "last", &f->e), 0);
		assert_int_equal(disk_remove(f->d, "other", &f->e), 0);
		assert_int_equal(disk_remove(f->d, "third", &f->e), 0);
	}
}

/* -- what the snapstore gets and gives --------------------------------------------------------------------------- */

static void close_files(struct disk_files *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		fd_close(&s->data[i]);
		fd_close(&s->map[i]);
	}
}

/* As who ingests them reads them: the newest that has the block. */
static int file_block(const struct disk_files *s, uint64_t block)
{
	for (unsigned i = s->n; i > 0; i--) {
		uint8_t bits = 0, data = 0;

		assert_int_equal(pread(s->map[i - 1], &bits, 1, (off_t)(block / 4)), 1);
		bits = bits >> (2 * (block % 4)) & 3;
		assert_int_equal(pread(s->data[i - 1], &data, 1, (off_t)(block * B)), 1);
		if (bits)
			return bits == BLOCK_DATA ? data : 0;
	}
	return -1;
}

static void test_snapshot_files(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);
	struct disk_files s;

	put(k, 1, 1);
	put(k, 2, 1);
	assert_int_equal(disk_freeze(f->d, "m", "s1", &f->e), 0);
	put(k, 2, 2);
	assert_int_equal(disk_zero(k, B, B, true, &f->e), 0);
	assert_int_equal(disk_freeze(f->d, "m", "s2", &f->e), 0);
	assert_int_equal(disk_snapshot_files(f->d, "s1", "", &s, &f->e), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(file_block(&s, 1), 1);
	assert_int_equal(file_block(&s, 3), -1);
	assert_int_equal(fcntl(s.data[0], F_GETFL) & O_ACCMODE, O_RDONLY); /* for a process that is to read them only */
	assert_int_equal(fcntl(s.map[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	close_files(&s);
	assert_int_equal(disk_snapshot_files(f->d, "s2", "", &s, &f->e), 0);
	assert_int_equal(s.n, 2);
	assert_int_equal(file_block(&s, 1), 0);
	assert_int_equal(file_block(&s, 2), 2);
	close_files(&s);
	assert_int_equal(disk_snapshot_files(f->d, "s2", "s1", &s, &f->e), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(file_block(&s, 2), 2);
	close_files(&s);
	assert_int_equal(disk_snapshot_files(f->d, "s2", "s2", &s, &f->e), 0);
	assert_int_equal(s.n, 0);
	assert_int_equal(disk_snapshot_files(f->d, "none", "", &s, &f->e), -ENOENT);
	assert_int_equal(disk_snapshot_files(f->d, "s1", "none", &s, &f->e), -ENOENT);
	assert_int_equal(disk_snapshot_files(f->d, "m", "", &s, &f->e), -EINVAL);
}

static void test_snapshot_files_joined(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0);
	struct disk_files s;
	char name[16];
	unsigned files;

	for (unsigned g = 1; g <= 12; g++) {
		put(k, g, (uint8_t)g);
		put(k, 50, (uint8_t)g);
		snprintf(name, sizeof(name), "s%u", g);
		assert_int_equal(disk_freeze(f->d, "m", name, &f->e), 0);
	}
	files = layer_files(f->d, &f->dir);
	assert_int_equal(disk_snapshot_files(f->d, "s12", "s1", &s, &f->e), 0);
	assert_int_equal(s.n, DISK_FILES_MAX);
	assert_int_equal(file_block(&s, 1), -1);
	for (unsigned g = 2; g <= 12; g++)
		assert_int_equal(file_block(&s, g), (int)g);
	assert_int_equal(file_block(&s, 50), 12);
	close_files(&s);
	assert_int_equal(layer_files(f->d, &f->dir), files);
}

static void test_stored(void **state)
{
	struct fix *f = *state;
	struct disk *k = make(f, "m", 0), *n;
	struct snap_digest root = fake_snap_map(f->snap, BLOCKS);
	struct disk_origin of_s1 = { .base_fd = -1, .snapshot = "s1" };
	struct disk_files s;
	uint8_t page[DISK_BLOCK_BYTES];

	memset(page, 11, sizeof(page));
	fake_snap_put(f->snap, &root, 1, page);
	fake_snap_put(f->snap, &root, 2, NULL);
	put(k, 1, 11);
	put(k, 2, 0);
	assert_int_equal(disk_snapshot_stored(f->d, "m", &root, &f->e), -EINVAL);
	assert_int_equal(disk_snapshot_stored(f->d, "none", &root, &f->e), -ENOENT);
	assert_int_equal(disk_freeze(f->d, "m", "s1", &f->e), 0);
	assert_int_equal(disk_snapshot_stored(f->d, "s1", &root, &f->e), 0);
	put(k, 3, 12);
	assert_int_equal(disk_freeze(f->d, "m", "s2", &f->e), 0);
	assert_int_equal(disk_snapshot_files(f->d, "s2", "s1", &s, &f->e), 0); /* it knows what s1 had */
	assert_int_equal(s.n, 1);
	close_files(&s);
	assert_int_equal(layer_files(f->d, &f->dir), 6); /* the machine still has its own */
	assert_int_equal(disk_create(f->d, "n", BYTES + B, 0, &of_s1, &f->e), -EINVAL);
	n = fork_of(f, "s1", "n");
	expect(n, 1, 11);
	expect(n, 2, 0);
	expect_base(n, 0, DISK_BLOCK_BYTES);
	expect_base(n, 3 * B, DISK_BLOCK_BYTES);
	put(n, 2, 13);
	assert_int_equal(disk_freeze(f->d, "n", "s3", &f->e), 0);
	assert_int_equal(disk_snapshot_files(f->d, "s3", "s1", &s, &f->e), 0);
	assert_int_equal(s.n, 1);
	close_files(&s);
	assert_int_equal(disk_snapshot_files(f->d, "s3", "", &s, &f->e), -EINVAL);
	disk_close(k);
	disk_close(n);
	reopen(f);
	assert_int_equal(disk_open(f->d, "n", &n, &f->e), 0);
	expect(n, 1, 11);
	expect(n, 2, 13);
	assert_int_equal(disk_snapshot_files(f->d, "s2", "s1", &s, &f->e), 0);
	assert_int_equal(s.n, 1);
	close_files(&s);
	disk_close(n);
	assert_int_equal(disk_remove(f->d, "m", &f->e), 0);
	assert_int_equal(disk_remove(f->d, "s2", &f->e), 0);
	assert_int_equal(layer_files(f->d, &f->dir), 4);
}

static void test_from_store(void **state)
{
	struct fix *f = *state;
	struct snap_digest root = fake_snap_map(f->snap, BLOCKS);
	struct disk_origin o = { .base_fd = f->base, .base = "img" };
	uint8_t page[DISK_BLOCK_BYTES], got[64 * DISK_BLOCK_BYTES];
	struct disk *k;
	unsigned reads;

	for (unsigned i = 0; i < 200; i += 3) {
		memset(page, (int)i, sizeof(page));
		fake_snap_put(f->snap, &root, i, page);
	}
	assert_int_equal(disk_create_from_store(f->d, "s", BYTES, &o, &root, &f->e), 0);
	assert_int_equal(disk_create_from_store(f->d, "s", BYTES, &o, &root, &f->e), -EEXIST);
	k = fork_of(f, "s", "m");
	expect_base(k, B, 2 * DISK_BLOCK_BYTES); /* absent there */
	expect(k, 3, 3);
	reads = fake_snap_reads(f->snap);
	expect(k, 6, 6); /* the same window */
	assert_int_equal(fake_snap_reads(f->snap), reads);
	assert_int_equal(disk_read(k, got, B, sizeof(got), &f->e), 0);
	for (unsigned i = 3; i <= 64; i++)
		assert_int_equal(got[(i - 1) * B + 77], i % 3 ? 0 : i);
	assert_int_equal(disk_write(k, "x", 99 * B + 1, 1, &f->e), 0); /* a part over the store's */
	assert_int_equal(disk_read(k, got, 99 * B, 3, &f->e), 0);
	assert_memory_equal(got, "cxc", 3);
	for (unsigned w = 0; w < 1000; w++) /* more windows than are kept */
		expect(k, 200 + w * 16, 0);
	expect(k, 3, 3);
	expect(k, 18, 18);
	for (unsigned w = 0; w < 127; w++) /* so that its window is the next to go */
		expect(k, 208 + w * 16, 0);
	fake_snap_damage(f->snap, 150);
	assert_int_equal(disk_read(k, got, 150 * B, 1, &f->e), -EBADMSG);
	assert_non_null(strstr(f->e.msg, "digest differs"));
	expect(k, 18, 18);
	fake_snap_damage(f->snap, UINT64_MAX); /* repaired: nothing of it was kept */
	assert_int_equal(disk_read(k, got, 150 * B, 1, &f->e), 0);
	assert_int_equal(got[0], 150);
}

static void test_without_a_snapstore(void **state)
{
	struct fix *f = *state;
	struct snap_digest root = fake_snap_map(f->snap, BLOCKS);
	struct disk *k = make(f, "m", 0);

	assert_int_equal(disk_freeze(f->d, "m", "s", &f->e), 0);
	disk_close(k);
	assert_int_equal(disk_create_from_store(f->d, "t", BYTES, NULL, &root, &f->e), 0);
	disks_close(f->d);
	assert_int_equal(disks_open(f->dir.fd, NULL, &f->d, &f->e), 0);
	assert_int_equal(disk_create_from_store(f->d, "u", BYTES, NULL, &root, &f->e), -EINVAL);
	assert_int_equal(disk_snapshot_stored(f->d, "s", &root, &f->e), -EINVAL);
	assert_int_equal(disk_open(f->d, "t", &k, &f->e), -EINVAL);
}

static void test_records(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"bytes\":0,\"layers\":[\"0000000000000001\"]}",
		"{\"bytes\":4096}",
		"{\"bytes\":4096,\"layers\":[1]}",
		"{\"bytes\":4096,\"layers\":[\"1\"]}",
		"{\"bytes\":4096,\"layers\":[\"000000000000000G\"]}",
		"{\"bytes\":4096,\"layers\":[\"0000000000000000\"]}",
		"{\"bytes\":4096,\"layers\":[\"ffffffffffffffff\"]}",
		"{\"bytes\":4096,\"layers\":[\"0000000000000001\",\"0000000000000001\"]}",
		"{\"bytes\":4096,\"own\":2,\"layers\":[\"0000000000000001\"]}",
		"{\"bytes\":4096,\"layers\":[\"0000000000000001\"],\"base\":\"../x\"}",
		"{\"bytes\":4096,\"layers\":[\"0000000000000001\"],\"root\":\"00\"}",
		"{\"bytes\":4096,\"layers\":[\"0000000000000001\"],\"what\":1}",
		"{\"bytes\":99999999999999,\"layers\":[\"0000000000000001\"]}",
	};
	const char *good =
		"{\"bytes\":4096,\"limit\":7,\"own\":1,\"layers\":[\"0000000000000001\",\"00000000000000ab\"],"
		"\"had\":[],\"base\":\"img\"}";
	struct record rec;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(record_parse(bad[i], strlen(bad[i]), &rec, &e), -EBADMSG);
	assert_int_equal(record_parse(good, strlen(good), &rec, &e), 0);
	assert_int_equal(rec.nlayers, 2);
	assert_int_equal(rec.layers[1], 0xab);
	assert_int_equal(rec.limit, 7);
	assert_false(rec.rooted || rec.frozen);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_base_shows_through),
		T(test_two_machines_of_one_base),
		T(test_create_errors),
		T(test_open_errors),
		T(test_ranges),
		T(test_a_record_that_cannot_be_read),
		T(test_a_layer_that_is_gone),
		T(test_a_map_that_is_damaged),
		T(test_left_overs_go),
		T(test_remove),
		T(test_discard_gives_space_back),
		T(test_discard_of_what_was_never_looked_at),
		T(test_limit),
		T(test_a_full_host),
		T(test_killed),
		T(test_freeze_errors),
		T(test_deep),
		T(test_deep_alone),
		T(test_snapshot_files),
		T(test_snapshot_files_joined),
		T(test_room_in_steps),
		T(test_stored),
		T(test_from_store),
		T(test_without_a_snapstore),
		cmocka_unit_test(test_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
