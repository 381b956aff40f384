/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of real machines, served by a real pager out of a real store. */
#include "pager_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

#define PAGES 2055u /* 8 MiB and a cut window at the end */

static struct pager_rig rig;
static uint64_t seeds[PAGES];
static char snap1[PG_UUID_LEN + 1];

/* Pages of their own, zeros in between: long runs and short ones. */
static void make_seeds(void)
{
	for (uint32_t i = 0; i < PAGES; i++)
		seeds[i] = (i >= 256 && i < 400) || (i >= 1000 && i < 1007) || i % 37 == 5 ? 0 : i + 1;
}

static int setup(void **state)
{
	(void)state;
	make_seeds();
	rig_uuid(1, snap1);
	pager_rig_new(&rig);
	rig_store_pages(&rig, snap1, seeds, PAGES);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pager_rig_free(&rig);
	return 0;
}

static void start(struct rig_machine *m, unsigned number)
{
	struct rig_template t;

	assert_int_equal(rig_template(&rig, snap1, PAGES, &t), 0);
	rig_machine_new(m, number, &t, PAGES, true);
	fd_close(&t.fd);
	assert_int_equal(rig_machine_attach(&rig, m, snap1), 0);
}

/* What everybody shares has no hole that somebody could fill with zeros: each page is there before anybody maps it. */
static void test_a_whole_template_has_no_holes(void **state)
{
	uint64_t want[SNAP_PAGE_BYTES / 8], got[SNAP_PAGE_BYTES / 8];
	struct rig_template t;

	(void)state;
	assert_int_equal(rig_template_ask(&rig, snap1, PAGES, true, &t), 0);
	for (uint32_t i = 0; i < PAGES; i++) {
		off_t at = (off_t)i * SNAP_PAGE_BYTES;

		if (!seeds[i])
			continue;
		assert_int_equal(lseek(t.fd, at, SEEK_DATA), at);
		rig_words(seeds[i], want);
		assert_int_equal(pread(t.fd, got, sizeof(got), at), sizeof(got));
		assert_memory_equal(got, want, sizeof(want));
	}
	fd_close(&t.fd);
}

static void test_every_page_is_right(void **state)
{
	struct rig_machine m;

	(void)state;
	start(&m, 1);
	assert_int_equal(m.nranges, 1); /* the one run of 64 KiB and more */
	assert_int_equal(m.ranges[0].offset, 256 * SNAP_PAGE_BYTES);
	assert_int_equal(m.ranges[0].bytes, 144 * SNAP_PAGE_BYTES);
	assert_int_equal(rig_machine_check(&m, PAGES - 1, 1, &seeds[PAGES - 1]), 0);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	assert_int_equal(rig_machine_check(&m, 1, 3, &seeds[0]), 3); /* it can fail */
	assert_true(rig_stat(&rig, snap1, "from_store") > 1500);
	/* zeros took no memory of the template */
	assert_true(rig_stat(&rig, snap1, "resident_bytes") / SNAP_PAGE_BYTES == rig_stat(&rig, snap1, "from_store"));
	rig_machine_free(&m);
}

static void test_several_at_once_and_no_page_is_torn(void **state)
{
	struct rig_machine m[4];

	(void)state;
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < ARRAY_LEN(m); i++)
			start(&m[i], i);
		for (unsigned i = 0; i < ARRAY_LEN(m); i++)
			rig_machine_check_send(&m[i], 0, PAGES, seeds);
		for (unsigned i = 0; i < ARRAY_LEN(m); i++)
			assert_int_equal(rig_machine_check_receive(&m[i]), 0);
		for (unsigned i = 0; i < ARRAY_LEN(m); i++) {
			assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, m[i].id), 0);
			rig_machine_free(&m[i]);
		}
		assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, snap1), 0);
	}
}

/* More faults at once than there are slots: they wait in the kernel, and all are served. */
static void test_more_faults_than_slots(void **state)
{
	static struct rig_machine m[PG_DEPTH + 16];

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(m); i++)
		start(&m[i], i);
	for (unsigned i = 0; i < ARRAY_LEN(m); i++)
		rig_machine_check_send(&m[i], i * 40, 40, &seeds[(size_t)i * 40]);
	for (unsigned i = 0; i < ARRAY_LEN(m); i++) {
		assert_int_equal(rig_machine_check_receive(&m[i]), 0);
		rig_machine_free(&m[i]);
	}
}

static void test_what_one_writes_another_does_not_see(void **state)
{
	uint64_t mine[8] = { 7001, 0, 7003, 7004, 7005, 7006, 7007, 7008 };
	struct rig_machine a, b;

	(void)state;
	start(&a, 1);
	start(&b, 2);
	rig_machine_write(&a, 30, 8, mine);   /* before anybody read it */
	rig_machine_write(&a, 300, 8, mine);  /* a range of zeros */
	rig_machine_write(&a, 1001, 5, mine); /* zeros that are no range */
	assert_int_equal(rig_machine_check(&b, 0, PAGES, seeds), 0);
	assert_int_equal(rig_machine_check(&a, 30, 8, mine), 0);
	assert_int_equal(rig_machine_check(&a, 300, 8, mine), 0);
	assert_int_equal(rig_machine_check(&a, 1001, 5, mine), 0);
	rig_machine_free(&a);
	rig_machine_free(&b);
}

static void evict_and_wait(const char *snapshot)
{
	assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, snapshot), 0);
	while (rig_stat(&rig, snap1, "resident_bytes"))
		;
}

static void test_evicted_live_template_faults_again(void **state)
{
	uint64_t mine[2] = { 9001, 9002 };
	struct rig_machine m;

	(void)state;
	start(&m, 1);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	rig_machine_write(&m, 10, 2, mine);
	evict_and_wait(snap1);
	assert_int_equal(rig_machine_check(&m, 10, 2, mine), 0); /* its own: untouched */
	assert_int_equal(rig_machine_check(&m, 12, PAGES - 12, &seeds[12]), 0);
	evict_and_wait(""); /* the least used one: this */
	assert_int_equal(rig_machine_check(&m, 0, 10, seeds), 0);
	rig_machine_free(&m);
}

static void test_budget_evicts_what_nobody_uses(void **state)
{
	struct rig_machine m;
	struct rig_reply y;
	struct buf b;

	(void)state;
	start(&m, 1);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	buf_init(&b, 64);
	wire_put_u64(&b, 4096);
	assert_int_equal(rig_ask(&rig, PAGER_CONFIG, &b, NULL, 0, &y), 0);
	buf_fini(&b);
	assert_true(rig_stat(&rig, snap1, "resident_bytes") > 0); /* somebody uses it */
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, m.id), 0);
	while (rig_stat(&rig, snap1, "resident_bytes"))
		;
	rig_machine_free(&m);
}

/* -- what an engine that was taken over may try ------------------------------------------------------------- */

static int as_other(int fd)
{
	char path[64];
	int bad = 0, again;
	uint8_t byte = 1;
	void *p;

	if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
		return 100;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR);
	bad += again >= 0;
	again = open(path, O_WRONLY);
	bad += again >= 0;
	bad += mmap(NULL, SNAP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
	p = mmap(NULL, SNAP_PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	bad += p == MAP_FAILED || mprotect(p, SNAP_PAGE_BYTES, PROT_READ | PROT_WRITE) == 0;
	bad += fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SNAP_PAGE_BYTES) == 0;
	bad += madvise(p, SNAP_PAGE_BYTES, MADV_REMOVE) == 0;
	bad += fchmod(fd, 0666) == 0;
	bad += ftruncate(fd, 0) == 0;
	bad += pwrite(fd, &byte, 1, 0) >= 0;
	bad += fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0;
	return bad;
}

static void test_an_engine_cannot_change_the_template(void **state)
{
	struct rig_template t;
	int status;
	pid_t pid;

	(void)state;
	if (getuid() != 0)
		skip();
	assert_int_equal(rig_template(&rig, snap1, PAGES, &t), 0);
	pid = fork();
	if (pid == 0)
		_exit(as_other(t.fd));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	fd_close(&t.fd);
}

/* The one thing that it can: read holes by a mapping without userfaultfd. */
static void read_everything(int fd)
{
	volatile const uint8_t *p = mmap(NULL, (size_t)PAGES * SNAP_PAGE_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);

	assert_true(p != MAP_FAILED);
	for (uint32_t i = 0; i < PAGES; i++)
		(void)p[(size_t)i * SNAP_PAGE_BYTES];
	munmap((void *)p, (size_t)PAGES * SNAP_PAGE_BYTES);
}

static uint64_t pages_in(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512 / SNAP_PAGE_BYTES;
}

/* The pager answers between two steps: there are few. */
static void wait_strays_gone(int fd)
{
	for (int i = 0; i < 1000; i++)
		if (rig_stat(&rig, snap1, "resident_bytes") / SNAP_PAGE_BYTES == pages_in(fd))
			return;
	fail_msg("%llu pages are in the template, by its bits %llu", (unsigned long long)pages_in(fd),
		 (unsigned long long)(rig_stat(&rig, snap1, "resident_bytes") / SNAP_PAGE_BYTES));
}

static void test_zeros_that_an_engine_puts_into_holes_go_with_the_next_machine(void **state)
{
	struct rig_machine old, next;
	struct rig_template t;

	(void)state;
	start(&old, 1);
	assert_int_equal(rig_machine_check(&old, 0, 300, seeds), 0);
	assert_int_equal(rig_template(&rig, snap1, PAGES, &t), 0);
	read_everything(t.fd);
	assert_int_equal(pages_in(t.fd), PAGES);
	start(&next, 2); /* attached once they are gone */
	assert_int_equal(pages_in(t.fd), rig_stat(&rig, snap1, "resident_bytes") / SNAP_PAGE_BYTES);
	assert_true(rig_stat(&rig, snap1, "strays") > PAGES / 2);
	assert_int_equal(rig_machine_check(&next, 0, PAGES, seeds), 0);
	assert_int_equal(rig_machine_check(&old, 0, PAGES, seeds), 0);
	rig_machine_free(&old);
	rig_machine_free(&next);
	fd_close(&t.fd);
}

static void test_zeros_that_an_engine_puts_into_holes_go_with_it(void **state)
{
	struct rig_machine evil, other;
	struct rig_template t;

	(void)state;
	start(&evil, 1);
	start(&other, 2);
	assert_int_equal(rig_template(&rig, snap1, PAGES, &t), 0);
	read_everything(t.fd);
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, evil.id), 0);
	wait_strays_gone(t.fd);
	assert_int_equal(rig_machine_check(&other, 0, PAGES, seeds), 0);
	rig_machine_free(&evil);
	rig_machine_free(&other);
	fd_close(&t.fd);
}

/* -- what cannot be served ---------------------------------------------------------------------------------- */

/* Flip a bit in the middle of the only pack. */
static void damage(void)
{
	char pack[128];

	assert_int_equal(rig_files(&rig.store, "packs", ".pack", pack), 1);
	rig_flip(&rig.store, pack, rig_size(&rig.store, pack) / 2);
}

static void test_a_damaged_page_loses_its_machine_only(void **state)
{
	struct rig_machine m, other;

	(void)state;
	damage();
	start(&m, 1);
	start(&other, 2);
	rig_machine_check_send(&m, 0, PAGES, seeds);
	rig_wait_lost(&rig, 1);
	assert_string_equal(rig.lost[0].machine, m.id);
	assert_int_equal(rig.lost[0].code, -EBADMSG);
	assert_true(strlen(rig.lost[0].words) > 10);
	assert_false(rig_machine_answers(&m, 50)); /* it waits; zeros it did not get */
	assert_int_equal(rig_machine_check(&other, 0, 32, seeds), 0);
	rig_machine_free(&m);
	rig_machine_free(&other);
}

static void test_no_such_snapshot(void **state)
{
	char uuid[PG_UUID_LEN + 1];
	struct rig_template t;

	(void)state;
	rig_uuid(77, uuid);
	assert_int_equal(rig_template(&rig, uuid, PAGES, &t), -ENOENT);
	assert_int_equal(rig_template(&rig, snap1, PAGES + 1, &t), -EINVAL);
	assert_int_equal(rig_template(&rig, snap1, PAGES, &t), 0); /* the failure left nothing behind */
	fd_close(&t.fd);
}

/* -- without userfaultfd ------------------------------------------------------------------------------------ */

/* rmdir of a snapshot is never refused: who runs on it has all of it before the store forgets it. */
static void test_a_forgotten_snapshot_serves_its_machines(void **state)
{
	struct rig_template t;
	struct rig_machine m;
	char pack[128];

	(void)state;
	start(&m, 1);
	assert_int_equal(rig_machine_check(&m, 0, 16, seeds), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, snap1), 0);
	OK(snap_manifest_remove(rig.store.s, snap1, &rig_err));
	while (rig_files(&rig.store, "packs", ".pack", pack)) {
		AUTO_FD fd = openat(rig.store.dirfd, pack, O_RDWR | O_CLOEXEC);

		assert_int_equal(ftruncate(fd, 0), 0); /* open descriptors of it are no help */
		assert_int_equal(unlinkat(rig.store.dirfd, pack, 0), 0);
	}
	assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, snap1), 0); /* in vain */
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	assert_int_equal(rig_template(&rig, snap1, PAGES, &t), -ENOENT);
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, m.id), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_CAPTURED, snap1), -ENOENT); /* gone with its last machine */
	rig_machine_free(&m);
}

static void test_without_userfaultfd_it_is_filled_first(void **state)
{
	struct rig_machine m;
	struct rig_template t;

	(void)state;
	assert_int_equal(rig_template(&rig, snap1, PAGES, &t), 0);
	rig_machine_new(&m, 1, &t, PAGES, false);
	fd_close(&t.fd);
	assert_int_equal(rig_machine_attach(&rig, &m, snap1), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, snap1), 0); /* refused in silence: it would read zeros */
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	assert_true(rig_stat(&rig, snap1, "resident_bytes") > 0);
	rig_machine_free(&m);
}

static void test_without_userfaultfd_damage_is_told_at_once(void **state)
{
	struct rig_machine m;
	struct rig_template t;

	(void)state;
	damage();
	assert_int_equal(rig_template(&rig, snap1, PAGES, &t), 0);
	rig_machine_new(&m, 1, &t, PAGES, false);
	fd_close(&t.fd);
	assert_int_equal(rig_machine_attach(&rig, &m, snap1), -EBADMSG);
	rig_machine_free(&m);
}

/* -- working sets ------------------------------------------------------------------------------------------- */

static void test_the_working_set_is_read_ahead(void **state)
{
	uint32_t pages[3] = { 1500, 20, UINT32_MAX }; /* the last is no page: skipped */
	AUTO_FD list = memfd_create("list", MFD_CLOEXEC);
	struct rig_machine m;
	struct rig_reply y;
	struct buf b;

	(void)state;
	assert_int_equal(fd_write_all(list, pages, sizeof(pages)), 0);
	buf_init(&b, 64);
	wire_put_str(&b, snap1);
	assert_int_equal(rig_ask(&rig, PAGER_WORKSET_SET, &b, &list, 1, &y), 0);
	start(&m, 1);
	assert_true(rig_stat(&rig, snap1, "resident_bytes") / SNAP_PAGE_BYTES > 28); /* two windows but for zeros */
	assert_int_equal(rig_machine_check(&m, 1496, 8, &seeds[1496]), 0);
	assert_int_equal(rig_stat(&rig, snap1, "faults"), 0);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	buf_fini(&b);
	rig_machine_free(&m);
}

static void test_the_working_set_is_recorded(void **state)
{
	uint32_t got[64];
	struct rig_machine m;
	struct rig_reply y;
	struct buf b;
	ssize_t n;

	(void)state;
	pager_rig_kill(&rig);
	rig.params.workset_ns = UINT64_C(300000000);
	pager_rig_start(&rig);
	pager_rig_connect(&rig);
	start(&m, 1);
	rig_machine_touch(&m, 801, 1, false, NULL);
	rig_machine_touch(&m, 17, 1, true, NULL);
	buf_init(&b, 64);
	do {
		wire_put_str(&b, snap1);
		rig_ask(&rig, PAGER_WORKSET, &b, NULL, 0, &y);
	} while (y.code == -EAGAIN);
	assert_int_equal(y.code, 0);
	n = pread(y.fds[0], got, sizeof(got), 0) / 4;
	assert_true(n >= 2); /* in order, then what else it has mapped by itself */
	assert_int_equal(got[0], 801);
	assert_int_equal(got[1], 17);
	for (ssize_t i = 2; i < n; i++)
		assert_true(got[i] / PG_WINDOW == 801 / PG_WINDOW || got[i] / PG_WINDOW == 17 / PG_WINDOW);
	rig_close(&y);
	buf_fini(&b);
	rig_machine_free(&m);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_whole_template_has_no_holes),
		T(test_every_page_is_right),
		T(test_several_at_once_and_no_page_is_torn),
		T(test_more_faults_than_slots),
		T(test_what_one_writes_another_does_not_see),
		T(test_evicted_live_template_faults_again),
		T(test_budget_evicts_what_nobody_uses),
		T(test_an_engine_cannot_change_the_template),
		T(test_zeros_that_an_engine_puts_into_holes_go_with_the_next_machine),
		T(test_zeros_that_an_engine_puts_into_holes_go_with_it),
		T(test_a_damaged_page_loses_its_machine_only),
		T(test_no_such_snapshot),
		T(test_a_forgotten_snapshot_serves_its_machines),
		T(test_without_userfaultfd_it_is_filled_first),
		T(test_without_userfaultfd_damage_is_told_at_once),
		T(test_the_working_set_is_read_ahead),
		T(test_the_working_set_is_recorded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
