/* SPDX-License-Identifier: Apache-2.0 */
/* Captures: what a machine wrote becomes a template, generation upon generation, in memory and in the store; and pagers
 * that are killed meanwhile. */
#include "pager_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "snapstore/disk/disk.h"
#include "snapstore/pager/bits.h"

#define PAGES 1030u
#define GENS  5u

static struct pager_rig rig;
static char uuid[GENS + 2][PG_UUID_LEN + 1];

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(uuid); i++)
		rig_uuid(i + 1, uuid[i]);
	pager_rig_new(&rig);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pager_rig_free(&rig);
	return 0;
}

static void restart(void)
{
	pager_rig_start(&rig);
	pager_rig_connect(&rig);
}

/* A machine of anonymous memory, attached. */
static void cold(struct rig_machine *m, unsigned number)
{
	rig_machine_new(m, number, NULL, PAGES, false);
	assert_int_equal(rig_machine_attach(&rig, m, ""), 0);
}

/* Fork @snapshot, and compare all of it. */
static void check_fork(const char *snapshot, const uint64_t *seeds)
{
	static unsigned number = 100;
	struct rig_template t;
	struct rig_machine f;

	assert_int_equal(rig_template(&rig, snapshot, PAGES, &t), 0);
	rig_machine_new(&f, number++, &t, PAGES, true);
	fd_close(&t.fd);
	assert_int_equal(rig_machine_attach(&rig, &f, snapshot), 0);
	assert_int_equal(rig_machine_check(&f, 0, PAGES, seeds), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, f.id), 0);
	rig_machine_free(&f);
}

/* What crucible-store does: the captured pages over the parent's map, and word to the pager. */
static void ingest(const char *snapshot, const char *parent)
{
	struct snap_manifest m = { .memory_pages = PAGES, .created_ns = 1 }, base = { 0 };
	uint64_t bits[PAGES / 64 + 1] = { 0 };
	uint8_t page[SNAP_PAGE_BYTES];
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;
	struct rig_reply y;
	struct buf out;

	buf_init(&out, 64);
	wire_put_str(&out, snapshot);
	assert_int_equal(rig_ask(&rig, PAGER_CAPTURED, &out, NULL, 0, &y), 0);
	buf_fini(&out);
	assert_int_equal(y.nfds, 2);
	assert_true(pread(y.fds[1], bits, sizeof(bits), 0) == (PAGES + 7) / 8);
	if (*parent)
		OK(snap_manifest_read(rig.store.s, parent, &base, &rig_err));
	strcpy(m.uuid, snapshot);
	OK(snap_batch_new(rig.store.s, &b, &rig_err));
	OK(snap_edit_new(b, *parent ? &base.memory : NULL, &snap_zero, PAGES, &d, &rig_err));
	for (uint32_t i = bits_find(bits, 0, PAGES, true); i < PAGES; i = bits_find(bits, i + 1, PAGES, true)) {
		assert_int_equal(pread(y.fds[0], page, sizeof(page), (off_t)i * SNAP_PAGE_BYTES), sizeof(page));
		OK(snap_edit_put(d, i, page, &rig_err));
	}
	OK(snap_edit_finish(d, &m.memory, &rig_err));
	OK(snap_batch_commit(b, &m, NULL, &rig_err));
	snap_manifest_fini(&base);
	rig_close(&y);
	assert_int_equal(rig_ask_str(&rig, PAGER_STORED, snapshot), 0);
}

static void evict(const char *snapshot)
{
	assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, snapshot), 0);
	while (rig_stat(&rig, snapshot, "resident_bytes"))
		;
}

/* A few runs of pages, some of them zeros. */
static void write_some(struct rig_machine *m, uint64_t *model, uint64_t *random, unsigned runs)
{
	for (unsigned i = 0; i < runs; i++) {
		uint32_t n = 1 + (uint32_t)(rig_random(random) % 20), at = (uint32_t)(rig_random(random) % (PAGES - n));
		bool zeros = rig_random(random) % 4 == 0;

		for (uint32_t k = at; k < at + n; k++)
			model[k] = zeros ? 0 : rig_random(random) | 1;
		rig_machine_write(m, at, n, &model[at]);
	}
}

static void generations(uint64_t random)
{
	static uint64_t model[GENS + 1][PAGES];
	struct rig_machine m;
	struct rig_reply y;
	unsigned old;

	memset(model, 0, sizeof(model));
	cold(&m, 1);
	for (unsigned g = 0; g < GENS; g++) {
		if (g)
			memcpy(model[g], model[g - 1], sizeof(model[g]));
		write_some(&m, model[g], &random, 12);
		assert_int_equal(rig_snapshot(&rig, &m, g ? uuid[g - 1] : "", uuid[g], &y), 0);
		rig_close(&y);
		old = (unsigned)(rig_random(&random) % (g + 1));
		check_fork(uuid[old], model[old]);
		assert_int_equal(rig_machine_check(&m, 0, PAGES, model[g]), 0);
		check_fork(uuid[g], model[g]);
	}
	rig_machine_free(&m);
	for (unsigned g = 0; g < GENS; g++)
		ingest(uuid[g], g ? uuid[g - 1] : "");
	for (unsigned g = 0; g < GENS; g++) {
		evict(uuid[g]);
		check_fork(uuid[g], model[g]);
	}
	/* As if nothing had ever been in memory. */
	pager_rig_kill(&rig);
	restart();
	for (unsigned g = 0; g < GENS; g++)
		check_fork(uuid[g], model[g]);
}

static void test_a_chain_replayed_equals_the_image(void **state)
{
	(void)state;
	generations(1);
}

static void test_a_chain_without_scan_and_ring(void **state)
{
	(void)state;
	pager_rig_kill(&rig);
	rig.params.scan = false;
	rig.params.uring = false;
	restart();
	generations(2);
}

static void test_many_small_chains(void **state)
{
	static uint64_t a[PAGES], b[PAGES];
	struct rig_machine m;
	struct rig_reply y;

	(void)state;
	for (uint64_t random = 10; random < 30; random++) {
		uint64_t r = random;

		memset(a, 0, sizeof(a));
		cold(&m, 1);
		write_some(&m, a, &r, 4);
		assert_int_equal(rig_snapshot(&rig, &m, "", uuid[0], &y), 0);
		rig_close(&y);
		memcpy(b, a, sizeof(b));
		write_some(&m, b, &r, 3);
		assert_int_equal(rig_snapshot(&rig, &m, uuid[0], uuid[1], &y), 0);
		rig_close(&y);
		check_fork(uuid[1], b);
		check_fork(uuid[0], a);
		assert_int_equal(rig_machine_check(&m, 0, PAGES, b), 0);
		assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid[0]), 0);
		assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid[1]), 0);
		assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, m.id), 0);
		rig_machine_free(&m);
	}
}

static void test_only_what_was_written_is_captured(void **state)
{
	uint64_t seeds[PAGES] = { 0 }, four[4] = { 11, 12, 0, 14 }, bits[PAGES / 64 + 1] = { 0 };
	struct rig_machine m;
	struct rig_reply y;
	struct wire_rd rd;

	(void)state;
	cold(&m, 1);
	memcpy(&seeds[700], four, sizeof(four));
	rig_machine_write(&m, 700, 4, four);
	rig_machine_touch(&m, 0, PAGES, false, NULL); /* reading makes nothing one's own */
	assert_int_equal(rig_snapshot(&rig, &m, "", uuid[0], &y), 0);
	wire_rd_init(&rd, y.data, y.len);
	assert_int_equal(wire_u64(&rd), 3); /* zeros over nothing are nothing */
	rig_close(&y);
	seeds[701] = 0;
	rig_machine_write(&m, 701, 1, &seeds[701]);
	rig_machine_touch(&m, 0, PAGES, false, NULL);
	assert_int_equal(rig_snapshot(&rig, &m, uuid[0], uuid[1], &y), 0);
	wire_rd_init(&rd, y.data, y.len);
	assert_int_equal(wire_u64(&rd), 1); /* zeros over something are something */
	assert_true(pread(y.fds[0], bits, sizeof(bits), 0) > 0);
	assert_int_equal(bits_count(bits, PAGES), 1);
	assert_true(bit_get(bits, 701));
	rig_close(&y);
	check_fork(uuid[1], seeds);
	rig_machine_free(&m);
}

static int begin(const char *snapshot, uint32_t pages, const char *parent)
{
	struct rig_reply y;
	struct buf b;

	buf_init(&b, 256);
	wire_put_str(&b, snapshot);
	wire_put_u64(&b, (uint64_t)pages * SNAP_PAGE_BYTES);
	wire_put_str(&b, parent);
	rig_ask(&rig, PAGER_CAPTURE_BEGIN, &b, NULL, 0, &y);
	rig_close(&y);
	buf_fini(&b);
	return y.code;
}

static int capture_with(const char *machine, const char *snapshot, const char *disk)
{
	struct rig_reply y;
	struct buf b;

	buf_init(&b, 256);
	wire_put_str(&b, machine);
	wire_put_str(&b, snapshot);
	wire_put_str(&b, disk);
	rig_ask(&rig, PAGER_CAPTURE, &b, NULL, 0, &y);
	rig_close(&y);
	buf_fini(&b);
	return y.code;
}

static int capture(const char *machine, const char *snapshot)
{
	return capture_with(machine, snapshot, "");
}

static void test_captures_that_are_refused(void **state)
{
	struct rig_machine m;
	struct rig_reply y;
	struct buf b;
	uint64_t one = 1;

	(void)state;
	cold(&m, 1);
	rig_machine_write(&m, 1, 1, &one);
	assert_int_equal(begin(uuid[0], PAGES, uuid[3]), -ENOENT);
	assert_int_equal(begin(uuid[0], PAGES + 1, ""), 0);
	assert_int_equal(begin(uuid[0], PAGES, ""), -EEXIST);
	assert_int_equal(capture(m.id, uuid[0]), -EINVAL); /* of another size */
	assert_int_equal(capture(m.id, uuid[1]), -ENOENT);
	assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid[0]), 0);
	assert_int_equal(begin(uuid[0], PAGES, ""), 0);
	assert_int_equal(begin(uuid[1], PAGES, uuid[0]), -EBUSY); /* not captured yet */
	assert_int_equal(capture(uuid[5], uuid[0]), -ENOENT);
	assert_int_equal(capture(m.id, uuid[0]), 0);
	assert_int_equal(capture(m.id, uuid[0]), -EEXIST);
	assert_int_equal(begin(uuid[1], PAGES, uuid[0]), 0);
	assert_int_equal(capture(m.id, uuid[1]), -EINVAL); /* it was not re-based: its pages are against nothing */
	buf_init(&b, 64);
	wire_put_u64(&b, 4096);
	assert_int_equal(rig_ask(&rig, PAGER_CONFIG, &b, NULL, 0, &y), 0);
	buf_fini(&b);
	assert_int_equal(begin(uuid[2], PAGES, ""), -ENOMEM);
	assert_int_equal(rig_ask_str(&rig, PAGER_STORED, uuid[0]), -ENOENT); /* it is not */
	rig_machine_free(&m);
}

static void test_a_machine_that_died_changes_nothing(void **state)
{
	uint64_t seeds[PAGES] = { 0 };
	struct rig_machine dead, m;

	(void)state;
	seeds[9] = 99;
	cold(&dead, 1);
	cold(&m, 2);
	rig_machine_write(&m, 9, 1, &seeds[9]);
	rig_machine_write(&dead, 8, 1, &seeds[9]);
	kill(dead.pid, SIGKILL);
	waitpid(dead.pid, NULL, 0);
	assert_int_equal(begin(uuid[0], PAGES, ""), 0);
	assert_int_equal(capture(dead.id, uuid[0]), -ESRCH);
	assert_int_equal(capture(m.id, uuid[0]), 0); /* the template is as it was */
	check_fork(uuid[0], seeds);
	rig_machine_free(&m);
	rig_machine_free(&dead);
}

/* -- a pager that was killed -------------------------------------------------------------------------------- */

static int adopt(const char *snapshot, int fd, const char *parent, int bits)
{
	struct rig_reply y;
	struct buf b;

	buf_init(&b, 256);
	wire_put_str(&b, snapshot);
	wire_put_u64(&b, (uint64_t)PAGES * SNAP_PAGE_BYTES);
	wire_put_str(&b, parent);
	wire_put_u8(&b, bits < 0);
	rig_ask(&rig, PAGER_ADOPT, &b, (int[]){ fd, bits }, bits < 0 ? 1 : 2, &y);
	buf_fini(&b);
	return y.code;
}

/* The descriptors that the daemon, or a box, keeps. */
static void captured(const char *snapshot, int *ret_fd, int *ret_bits)
{
	struct rig_reply y;
	struct buf b;

	buf_init(&b, 64);
	wire_put_str(&b, snapshot);
	assert_int_equal(rig_ask(&rig, PAGER_CAPTURED, &b, NULL, 0, &y), 0);
	buf_fini(&b);
	*ret_fd = y.fds[0];
	*ret_bits = y.fds[1];
}

static void test_a_killed_pager_is_taken_over_from(void **state)
{
	static uint64_t first[PAGES], second[PAGES];
	AUTO_FD fd = -1;
	AUTO_FD bits = -1;
	struct rig_template t;
	struct rig_machine m, fork1, fork2;
	struct rig_reply y;
	uint64_t random = 5;

	(void)state;
	for (uint32_t i = 0; i < PAGES; i++)
		first[i] = i % 50 ? i + 1 : 0;
	rig_store_pages(&rig, uuid[0], first, PAGES);
	assert_int_equal(rig_template(&rig, uuid[0], PAGES, &t), 0);
	rig_machine_new(&m, 1, &t, PAGES, true);
	rig_machine_new(&fork1, 2, &t, PAGES, true);
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), 0);
	assert_int_equal(rig_machine_attach(&rig, &fork1, uuid[0]), 0);
	memcpy(second, first, sizeof(second));
	write_some(&m, second, &random, 8);
	assert_int_equal(rig_snapshot(&rig, &m, uuid[0], uuid[1], &y), 0);
	rig_close(&y);
	captured(uuid[1], &fd, &bits);
	rig_machine_new(&fork2, 3, &(struct rig_template){ .fd = fd }, PAGES, true);
	assert_int_equal(rig_machine_attach(&rig, &fork2, uuid[1]), 0);
	assert_int_equal(rig_machine_check(&fork2, 0, 200, second), 0);

	pager_rig_kill(&rig);
	/* These wait: nothing is there to serve them, and zeros they do not get. */
	rig_machine_check_send(&m, 0, PAGES, second);
	rig_machine_check_send(&fork1, 0, PAGES, first);
	rig_machine_check_send(&fork2, 0, PAGES, second);
	assert_false(rig_machine_answers(&fork1, 50));
	restart();
	assert_int_equal(adopt(uuid[0], bits, "", -1), -EPERM); /* no template of ours */
	assert_int_equal(adopt(uuid[1], fd, uuid[0], bits), 0); /* its parent comes from the store, or */
	if (adopt(uuid[0], t.fd, "", -1) != -EEXIST)
		fail();
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[1]), 0);
	assert_int_equal(rig_machine_attach(&rig, &fork2, uuid[1]), 0);
	assert_int_equal(rig_machine_check_receive(&m), 0);
	assert_int_equal(rig_machine_check_receive(&fork2), 0);

	/* Once more, and the parent first, with what it holds. */
	pager_rig_kill(&rig);
	restart();
	assert_int_equal(adopt(uuid[0], t.fd, "", -1), 0);
	assert_int_equal(adopt(uuid[1], fd, uuid[0], bits), 0);
	assert_int_equal(rig_machine_attach(&rig, &fork1, uuid[0]), 0);
	assert_int_equal(rig_machine_check_receive(&fork1), 0);
	check_fork(uuid[1], second);
	ingest(uuid[1], uuid[0]);
	evict(uuid[1]);
	check_fork(uuid[1], second);
	fd_close(&t.fd);
	rig_machine_free(&m);
	rig_machine_free(&fork1);
	rig_machine_free(&fork2);
}

/* What a box hands over for a template is the pager's, but another snapshot's. */
static void test_the_template_of_another_snapshot_is_not_adopted(void **state)
{
	static uint64_t seeds[2][PAGES];
	struct rig_template t[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		for (uint32_t k = 0; k < PAGES; k++)
			seeds[i][k] = k + 1 + 5000 * i;
		rig_store_pages(&rig, uuid[i], seeds[i], PAGES);
		assert_int_equal(rig_template_ask(&rig, uuid[i], PAGES, true, &t[i]), 0);
	}
	pager_rig_kill(&rig);
	restart();
	assert_int_equal(adopt(uuid[0], t[1].fd, "", -1), -EPERM);
	check_fork(uuid[0], seeds[0]); /* it is made anew, from the store */
	assert_int_equal(adopt(uuid[1], t[1].fd, "", -1), 0);
	check_fork(uuid[1], seeds[1]);
	fd_close(&t[0].fd);
	fd_close(&t[1].fd);
}

/* An engine maps its template without userfaultfd, and reads: the kernel makes pages of zeros. */
static void test_pages_that_an_engine_made_are_not_taken_over(void **state)
{
	static uint64_t seeds[PAGES];
	struct rig_template t;
	volatile uint8_t *p;
	uint8_t sum = 0;

	(void)state;
	for (uint32_t i = 0; i < PAGES; i++)
		seeds[i] = i + 1;
	rig_store_pages(&rig, uuid[0], seeds, PAGES);
	assert_int_equal(rig_template(&rig, uuid[0], PAGES, &t), 0);
	p = mmap(NULL, (size_t)PAGES * SNAP_PAGE_BYTES, PROT_READ, MAP_SHARED, t.fd, 0);
	assert_true(p != MAP_FAILED);
	for (uint32_t i = 0; i < 100; i++)
		sum |= p[(size_t)i * SNAP_PAGE_BYTES];
	assert_int_equal(sum, 0);
	pager_rig_kill(&rig);
	restart();
	assert_int_equal(adopt(uuid[0], t.fd, "", -1), 0);
	assert_int_equal(rig_stat(&rig, uuid[0], "resident_bytes"), 0);
	check_fork(uuid[0], seeds);
	munmap((void *)(uintptr_t)p, (size_t)PAGES * SNAP_PAGE_BYTES);
	fd_close(&t.fd);
}

static void test_killed_again_and_again_under_load(void **state)
{
	static uint64_t seeds[PAGES];
	struct rig_template t;
	struct rig_machine m;

	(void)state;
	for (uint32_t i = 0; i < PAGES; i++)
		seeds[i] = i + 1;
	rig_store_pages(&rig, uuid[0], seeds, PAGES);
	assert_int_equal(rig_template(&rig, uuid[0], PAGES, &t), 0);
	rig_machine_new(&m, 1, &t, PAGES, true);
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), 0);
	for (unsigned round = 0; round < 8; round++) {
		assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, uuid[0]), 0);
		rig_machine_check_send(&m, 0, PAGES, seeds);
		rig_machine_answers(&m, (int)round % 3);
		pager_rig_kill(&rig);
		restart();
		assert_int_equal(adopt(uuid[0], t.fd, "", -1), 0);
		assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), 0);
		assert_int_equal(rig_machine_check_receive(&m), 0);
	}
	fd_close(&t.fd);
	rig_machine_free(&m);
}

/* -- without userfaultfd ------------------------------------------------------------------------------------- */

/* The machine may go on with its new template before ATTACH was answered, or asked for: nothing of it is a hole, and
 * nothing of it goes. */
static void test_without_userfaultfd_it_can_go_on_at_once(void **state)
{
	static uint64_t seeds[PAGES];
	struct rig_template t;
	struct rig_machine m;
	struct rig_reply y;
	struct buf b;

	(void)state;
	for (uint32_t i = 0; i < PAGES; i++)
		seeds[i] = i % 7 ? i + 1 : 0;
	rig_store_pages(&rig, uuid[0], seeds, PAGES);
	assert_int_equal(rig_template(&rig, uuid[0], PAGES, &t), 0);
	rig_machine_new(&m, 1, &t, PAGES, false);
	fd_close(&t.fd);
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), 0);
	seeds[3] = 4711;
	rig_machine_write(&m, 3, 1, &seeds[3]);
	buf_init(&b, 512);
	wire_put_str(&b, uuid[1]);
	wire_put_u64(&b, (uint64_t)PAGES * SNAP_PAGE_BYTES);
	wire_put_str(&b, uuid[0]);
	assert_int_equal(rig_ask(&rig, PAGER_CAPTURE_BEGIN, &b, NULL, 0, &y), 0);
	t = (struct rig_template){ .fd = take_fd(&y.fds[0]), .pages = PAGES };
	rig_close(&y);
	wire_put_str(&b, m.id);
	wire_put_str(&b, uuid[1]);
	wire_put_str(&b, "");
	assert_int_equal(rig_ask(&rig, PAGER_CAPTURE, &b, NULL, 0, &y), 0);
	rig_close(&y);
	rig_machine_map(&m, &t, false);
	assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, uuid[1]), 0); /* in vain */
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[1]), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, uuid[1]), 0);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	assert_true(rig_stat(&rig, uuid[1], "resident_bytes") > PAGES / 2 * SNAP_PAGE_BYTES);
	/* Without it the template is as any other. */
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, m.id), 0);
	/* It goes in steps, behind the answer; and not while a fill is under way in it, so that it is asked for again.
	 * In vain for ever: the runner's limit. */
	do
		assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, uuid[1]), 0);
	while (rig_stat(&rig, uuid[1], "resident_bytes") >= PAGES / 2 * SNAP_PAGE_BYTES);
	fd_close(&t.fd);
	buf_fini(&b);
	rig_machine_free(&m);
}

/* -- disks -------------------------------------------------------------------------------------------------- */

static int disk_ask(uint16_t type, const char *id, struct rig_reply *y)
{
	struct buf b;

	buf_init(&b, 512);
	wire_put_str(&b, id);
	if (type == PAGER_DISK_FILES)
		wire_put_str(&b, "");
	rig_ask(&rig, type, &b, NULL, 0, y);
	buf_fini(&b);
	return y->code;
}

static void test_the_disk_is_frozen_with_the_memory(void **state)
{
	AUTO_FD base = -1;
	char path[128];
	struct rig_machine m;
	struct rig_reply y;
	struct buf b;
	uint64_t one = 1;

	(void)state;
	snprintf(path, sizeof(path), "%s/image", rig.store.path);
	base = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(base, 1 << 20), 0);
	cold(&m, 1);
	rig_machine_write(&m, 3, 1, &one);
	buf_init(&b, 512);
	wire_put_str(&b, m.id);
	wire_put_u64(&b, 1 << 20);
	wire_put_u64(&b, 1 << 20);
	wire_put_str(&b, "");
	wire_put_str(&b, "image");
	assert_int_equal(rig_ask(&rig, PAGER_DISK_CREATE, &b, &base, 1, &y), 0);
	snprintf(m.disk, sizeof(m.disk), "%s", m.id);
	assert_int_equal(rig_snapshot(&rig, &m, "", uuid[0], &y), 0);
	rig_close(&y);
	assert_int_equal(disk_ask(PAGER_DISK_STAT, m.id, &y), 0);
	assert_int_equal(y.len, 12);
	assert_int_equal(disk_ask(PAGER_DISK_STAT, uuid[0], &y), 0); /* the snapshot's stack */
	assert_int_equal(disk_ask(PAGER_DISK_FILES, uuid[0], &y), 0);
	assert_int_equal(y.nfds, 2);
	rig_close(&y);
	/* The disk cannot be frozen (there is such a stack): the memory is not captured either. */
	wire_put_str(&b, uuid[1]);
	wire_put_u64(&b, 1 << 20);
	wire_put_u64(&b, 1 << 20);
	wire_put_str(&b, "");
	wire_put_str(&b, "image");
	assert_int_equal(rig_ask(&rig, PAGER_DISK_CREATE, &b, &base, 1, &y), 0);
	rig_machine_write(&m, 4, 1, &one);
	assert_int_equal(begin(uuid[1], PAGES, uuid[0]), 0);
	assert_int_equal(capture_with(m.id, uuid[1], m.disk), -EEXIST);
	assert_int_equal(rig_stat(&rig, uuid[1], "resident_bytes"), 0);
	assert_int_equal(disk_ask(PAGER_DISK_REMOVE, uuid[1], &y), 0);
	assert_int_equal(capture_with(m.id, uuid[1], m.disk), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid[1]), 0);
	assert_int_equal(disk_ask(PAGER_DISK_STAT, uuid[1], &y), -ENOENT);
	/* So often that layers have to be joined. */
	for (unsigned i = 0; i < 70; i++) {
		char from[SNAP_UUID_LEN + 1], to[SNAP_UUID_LEN + 1];

		rig_uuid(100 + i, from);
		rig_uuid(101 + i, to);
		assert_int_equal(rig_snapshot(&rig, &m, i ? from : uuid[0], to, &y), 0);
		rig_close(&y);
	}
	assert_int_equal(disk_ask(PAGER_DISK_STAT, m.id, &y), 0);
	assert_int_equal(y.data[8], DISK_LAYERS_MAX); /* u64 bytes, u32 layers */
	buf_fini(&b);
	rig_machine_free(&m);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_a_chain_replayed_equals_the_image),
		T(test_a_chain_without_scan_and_ring),
		T(test_many_small_chains),
		T(test_only_what_was_written_is_captured),
		T(test_captures_that_are_refused),
		T(test_a_machine_that_died_changes_nothing),
		T(test_a_killed_pager_is_taken_over_from),
		T(test_the_template_of_another_snapshot_is_not_adopted),
		T(test_pages_that_an_engine_made_are_not_taken_over),
		T(test_killed_again_and_again_under_load),
		T(test_without_userfaultfd_it_can_go_on_at_once),
		T(test_the_disk_is_frozen_with_the_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
