/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of the pager: who may speak, what is answered, when it ends; and the real program, confined. */
#include "pager_rig.h"
#include "nbd_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

#define PAGES 600u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* without seccomp */
#else
#define SANITIZED 0
#endif

static struct pager_rig rig;
static char uuid[3][PG_UUID_LEN + 1];
static uint64_t seeds[PAGES];

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(uuid); i++)
		rig_uuid(i + 1, uuid[i]);
	for (uint32_t i = 0; i < PAGES; i++)
		seeds[i] = i % 9 ? i + 1 : 0;
	pager_rig_new(&rig);
	rig_store_pages(&rig, uuid[0], seeds, PAGES);
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
	pager_rig_kill(&rig);
	pager_rig_start(&rig);
	pager_rig_connect(&rig);
}

static void start(struct rig_machine *m, unsigned number)
{
	struct rig_template t;

	assert_int_equal(rig_template(&rig, uuid[0], PAGES, &t), 0);
	rig_machine_new(m, number, &t, PAGES, true);
	fd_close(&t.fd);
	assert_int_equal(rig_machine_attach(&rig, m, uuid[0]), 0);
}

static void new_disk(const char *id, const char *snapshot, struct rig_reply *y)
{
	AUTO_FD base = memfd_create("image", MFD_CLOEXEC);
	struct buf b;

	assert_int_equal(ftruncate(base, 1 << 20), 0);
	buf_init(&b, 512);
	wire_put_str(&b, id);
	wire_put_u64(&b, 1 << 20);
	wire_put_u64(&b, 1 << 20);
	wire_put_str(&b, snapshot);
	wire_put_str(&b, "image");
	rig_ask(&rig, PAGER_DISK_CREATE, &b, &base, 1, y);
	buf_fini(&b);
}

/* An engine's connection to its disk: as the rig of the block server has it, but for the server. */
static int join(const char *export)
{
	struct nbd_rig n = { 0 };

	snprintf(n.socket, sizeof(n.socket), "%s/nbd.sock", rig.store.path);
	return nbd_join(&n, export);
}

static void export_disk(const char *name, const char *id)
{
	struct rig_reply y;
	struct buf b;

	buf_init(&b, 512);
	wire_put_str(&b, name);
	wire_put_str(&b, id);
	wire_put_u32(&b, getuid());
	assert_int_equal(rig_ask(&rig, PAGER_DISK_EXPORT, &b, NULL, 0, &y), 0);
	buf_fini(&b);
}

static void test_the_confined_program_does_it_all(void **state)
{
	uint64_t mine[4] = { 901, 902, 903, 904 };
	static uint64_t now[PAGES];
	struct rig_machine m, f;
	struct rig_template t;
	struct rig_reply y;
	uint8_t block[4096], other[4096] = { 0 };
	AUTO_FD disk = -1;
	AUTO_FD fork_disk = -1;

	(void)state;
	if (getuid() != 0)
		skip();
	rig.as = 65534;
	assert_int_equal(chmod(rig.store.path, 0755), 0);
	restart();
	start(&m, 1);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	memcpy(now, seeds, sizeof(now));
	memcpy(&now[40], mine, sizeof(mine));
	rig_machine_write(&m, 40, 4, mine);
	new_disk(m.id, "", &y);
	assert_int_equal(y.code, 0);
	export_disk("export-1", m.id);
	disk = join("export-1");
	memset(block, 7, sizeof(block));
	assert_int_equal(nbd_do(disk, NBD_CMD_WRITE, 0, 8192, 4096, block), 0);
	snprintf(m.disk, sizeof(m.disk), "%s", m.id);
	/* Half a write: whoever is in the middle of one is not paused. */
	nbd_ask(disk, NBD_CMD_WRITE, 0, 5, 8192, 4096);
	assert_int_equal(rig_snapshot(&rig, &m, uuid[0], uuid[1], &y), -EBUSY);
	assert_non_null(strstr(y.words, "requests are under way"));
	assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid[1]), 0);
	assert_int_equal(fd_write_all(disk, block, sizeof(block)), 0);
	assert_int_equal(nbd_reply(disk, 5), NBD_OK);
	assert_int_equal(rig_snapshot(&rig, &m, uuid[0], uuid[1], &y), 0);
	rig_close(&y);
	assert_int_equal(rig_template(&rig, uuid[1], PAGES, &t), 0);
	rig_machine_new(&f, 2, &t, PAGES, true);
	assert_int_equal(rig_machine_attach(&rig, &f, uuid[1]), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_EVICT, uuid[0]), 0);
	assert_int_equal(rig_machine_check(&f, 0, PAGES, now), 0);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, now), 0);
	assert_int_equal(nbd_do(disk, NBD_CMD_WRITE, 0, 8192, 4096, other), 0); /* after the snapshot */
	new_disk(f.id, uuid[1], &y);
	assert_int_equal(y.code, 0);
	export_disk("export-2", f.id);
	fork_disk = join("export-2");
	assert_int_equal(nbd_do(fork_disk, NBD_CMD_READ, 0, 8192, 4096, other), 0);
	assert_memory_equal(other, block, sizeof(block));
	assert_int_equal(nbd_do(fork_disk, NBD_CMD_TRIM, 0, 8192, 4096, NULL), 0);
	fd_close(&fork_disk);
	assert_int_equal(rig_ask_str(&rig, PAGER_DISK_UNEXPORT, "export-1"), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_DISK_SYNC, m.id), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, m.id), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_DISK_REMOVE, m.id), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid[1]), 0);
	rig_machine_free(&m);
	rig_machine_free(&f);
	fd_close(&t.fd);
}

/* Its mode lets nobody write, its owner neither: the descriptor that came back is one for reading. */
static void test_a_restarted_program_opens_its_template_again(void **state)
{
	struct rig_template t;
	struct rig_reply y;
	struct rig_machine m;
	struct buf b;

	(void)state;
	if (getuid() != 0)
		skip();
	rig.as = 65534;
	assert_int_equal(chmod(rig.store.path, 0755), 0);
	restart();
	assert_int_equal(rig_template(&rig, uuid[0], PAGES, &t), 0);
	rig_machine_new(&m, 1, &t, PAGES, true);
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), 0);
	restart();
	buf_init(&b, 512);
	wire_put_str(&b, uuid[0]);
	wire_put_u64(&b, (uint64_t)PAGES * SNAP_PAGE_BYTES);
	wire_put_str(&b, "");
	wire_put_u8(&b, 1);
	assert_int_equal(rig_ask(&rig, PAGER_ADOPT, &b, &t.fd, 1, &y), 0);
	buf_fini(&b);
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), 0);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	rig_machine_free(&m);
	fd_close(&t.fd);
}

/* A snapshot whose disk, of 1 MiB, has one block. */
static void store_disk(const char *snapshot)
{
	struct snap_manifest m = { .disk_blocks = 256, .created_ns = 1 };
	uint64_t block[SNAP_PAGE_BYTES / 8];
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;

	memcpy(m.uuid, snapshot, sizeof(m.uuid));
	rig_words(77, block);
	OK(snap_batch_new(rig.store.s, &b, &rig_err));
	OK(snap_edit_new(b, NULL, &snap_absent, 256, &d, &rig_err));
	OK(snap_edit_put(d, 3, block, &rig_err));
	OK(snap_edit_finish(d, &m.disk, &rig_err));
	OK(snap_batch_commit(b, &m, NULL, &rig_err));
}

/* On a new host the pager may come before the store: it finds it later, and reads without a ring, which it may not make
 * any more. */
static void test_a_store_that_comes_later(void **state)
{
	_Alignas(8) uint8_t block[4096], want[4096];
	AUTO_FD disk = -1;
	struct rig_machine m;
	struct rig_reply y;

	(void)state;
	if (getuid() != 0)
		skip();
	rig.as = 65534;
	store_disk(uuid[1]);
	assert_int_equal(chmod(rig.store.path, 0755), 0);
	assert_int_equal(renameat(rig.store.dirfd, "store", rig.store.dirfd, "away"), 0);
	restart();
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, uuid[2]), 0); /* it serves */
	assert_int_equal(renameat(rig.store.dirfd, "away", rig.store.dirfd, "store"), 0);
	start(&m, 1);
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	new_disk(m.id, uuid[1], &y); /* a stored disk: nothing of it is in /disks */
	assert_int_equal(y.code, 0);
	export_disk("export-1", m.id);
	disk = join("export-1");
	assert_int_equal(nbd_do(disk, NBD_CMD_READ, 0, 3 * 4096, 4096, block), 0);
	rig_words(77, (uint64_t *)(void *)want);
	assert_memory_equal(block, want, sizeof(want));
	if (!SANITIZED)
		assert_int_equal(rig_stat(&rig, NULL, "uring"), 0);
	rig_machine_free(&m);
}

static void test_malformed_requests_are_answered(void **state)
{
	struct rig_reply y;
	struct buf b;

	(void)state;
	buf_init(&b, 512);
	assert_int_equal(rig_ask(&rig, PAGER_TEMPLATE, &b, NULL, 0, &y), -EBADMSG);
	assert_int_equal(rig_ask(&rig, 999, &b, NULL, 0, &y), -EBADMSG);
	assert_int_equal(rig_ask(&rig, PAGER_STAT, &b, (int[]){ 0 }, 1, &y), -EBADMSG); /* a descriptor too many */
	wire_put_str(&b, uuid[0]);
	wire_put_u64(&b, 4097);
	wire_put_u8(&b, 0);
	assert_int_equal(rig_ask(&rig, PAGER_TEMPLATE, &b, NULL, 0, &y), -EINVAL);
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, uuid[2]), 0); /* none is fine */
	assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid[2]), 0);
	assert_int_equal(rig_ask_str(&rig, PAGER_CAPTURED, uuid[2]), -ENOENT);
	assert_int_equal(rig_ask_str(&rig, PAGER_WORKSET, uuid[2]), -ENOENT);
	buf_fini(&b);
}

/* What is not a machine's memory is not taken for it. */
static void test_descriptors_of_another_kind_are_refused(void **state)
{
	struct rig_template t;
	struct rig_machine m;
	int pipes[2], keep;

	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	assert_int_equal(rig_template(&rig, uuid[0], PAGES, &t), 0);
	rig_machine_new(&m, 1, &t, PAGES, true);
	keep = m.uffd;
	m.uffd = pipes[0];
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), -EINVAL);
	m.uffd = keep;
	keep = m.mem;
	m.mem = m.pagemap;
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), -EINVAL);
	m.mem = keep;
	keep = m.pagemap;
	m.pagemap = pipes[0];
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), -EINVAL);
	m.pagemap = keep;
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[2]), -ENOENT);
	assert_int_equal(rig_machine_attach(&rig, &m, uuid[0]), 0);
	/* An engine that makes its userfaultfd block must not hold anybody up: it is lost. */
	assert_int_equal(fd_set_nonblock(m.uffd, false), 0);
	rig_machine_check_send(&m, 0, 1, seeds);
	rig_wait_lost(&rig, 1);
	assert_int_equal(rig_stat(&rig, NULL, "machines"), 1);
	rig_machine_free(&m);
	fd_close(&t.fd);
	fd_close(&pipes[0]);
	fd_close(&pipes[1]);
}

static void test_the_next_daemon_replaces_the_former(void **state)
{
	struct rig_machine m;
	int former;

	(void)state;
	start(&m, 1);
	assert_int_equal(fd_set_nonblock(m.uffd, false), 0); /* lose it */
	rig_machine_check_send(&m, 0, 1, seeds);
	rig_wait_lost(&rig, 1);
	former = rig.client;
	rig.client = -1;
	pager_rig_connect(&rig);
	rig_wait_lost(&rig, 2); /* told again: the former one may have died of it */
	assert_string_equal(rig.lost[1].machine, m.id);
	assert_int_equal(rig_stat(&rig, NULL, "machines"), 1);
	assert_int_equal(recv(former, &(char){ 0 }, 1, 0), 0); /* its end */
	fd_close(&former);
	rig_machine_free(&m);
}

static void test_another_user_is_refused(void **state)
{
	(void)state;
	pager_rig_kill(&rig);
	rig.params.daemon_uid = getuid() + 1;
	pager_rig_start(&rig);
	pager_rig_connect(&rig);
	assert_true(recv(rig.client, &(char){ 0 }, 1, 0) <= 0);
	pager_rig_kill(&rig);
	rig.params.daemon_uid = getuid();
	pager_rig_start(&rig);
	pager_rig_connect(&rig);
}

static void test_it_ends_when_nobody_wants_it(void **state)
{
	struct pollfd none = { .fd = -1 };
	struct rig_machine m;

	(void)state;
	pager_rig_kill(&rig);
	rig.params.orphan_ns = 40000000;
	pager_rig_start(&rig);
	pager_rig_connect(&rig);
	start(&m, 1);
	fd_close(&rig.client);
	poll(&none, 1, 100);
	assert_int_equal(waitpid(rig.pid, NULL, WNOHANG), 0); /* a machine lives */
	assert_int_equal(rig_machine_check(&m, 0, PAGES, seeds), 0);
	rig_machine_free(&m);
	assert_int_equal(pager_rig_end(&rig), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_the_confined_program_does_it_all),
		T(test_a_restarted_program_opens_its_template_again),
		T(test_a_store_that_comes_later),
		T(test_malformed_requests_are_answered),
		T(test_descriptors_of_another_kind_are_refused),
		T(test_the_next_daemon_replaces_the_former),
		T(test_another_user_is_refused),
		T(test_it_ends_when_nobody_wants_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
