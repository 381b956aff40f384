/* SPDX-License-Identifier: Apache-2.0 */
/* The block server against a client of ours, polite and not. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "tests/unit/fake_snap.h"
#include "tests/unit/nbd_rig.h"

#define MIB   (1ull << 20)
#define BYTES (80 * MIB)
#define B     ((uint64_t)DISK_BLOCK_BYTES)

static struct nbd_rig rig;
static uint8_t big[NBD_REQUEST_MAX], big2[NBD_REQUEST_MAX];

static int setup(void **state)
{
	(void)state;
	nbd_rig_start(&rig, 3 * B + 100, NULL);
	nbd_rig_disk(&rig, "m", BYTES, 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	nbd_rig_end(&rig);
	return 0;
}

static void fill(uint8_t *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)((i * 2654435761u + seed) >> 11);
}

static void busy(struct nbd_rig *r, void *arg)
{
	*(unsigned *)arg = nbd_busy(r->nbd, "m");
}

static unsigned busy_now(void)
{
	unsigned n = 99;

	nbd_rig_call(&rig, busy, &n);
	return n;
}

static void wait_busy(bool want)
{
	while ((busy_now() > 0) != want)
		usleep(1000);
}

/* -- the handshake ----------------------------------------------------------------------------------------------- */

static void test_go(void **state)
{
	AUTO_FD fd = nbd_dial(&rig);
	uint64_t bytes = 0;
	uint16_t flags = 0;

	(void)state;
	assert_int_equal(nbd_go(fd, NBD_OPT_INFO, "m", &bytes, &flags), NBD_REP_ACK);
	assert_int_equal(bytes, BYTES);
	assert_int_equal(flags, NBD_F_HAS_FLAGS | NBD_F_SEND_FLUSH | NBD_F_SEND_FUA | NBD_F_SEND_TRIM |
					NBD_F_SEND_WRITE_ZEROES);
	assert_int_equal(nbd_go(fd, NBD_OPT_GO, "none", NULL, NULL), NBD_REP_ERR_UNKNOWN);
	assert_int_equal(nbd_go(fd, NBD_OPT_LIST, "", NULL, NULL), NBD_REP_ERR_POLICY);
	assert_int_equal(nbd_go(fd, 8, "", NULL, NULL), NBD_REP_ERR_UNSUP); /* structured replies */
	assert_int_equal(nbd_go(fd, 5, "", NULL, NULL), NBD_REP_ERR_UNSUP); /* TLS */
	assert_int_equal(nbd_go(fd, NBD_OPT_GO, "m", &bytes, NULL), NBD_REP_ACK);
	assert_int_equal(nbd_do(fd, NBD_CMD_FLUSH, 0, 0, 0, NULL), NBD_OK);
	nbd_ask(fd, NBD_CMD_DISC, 0, 1, 0, 0);
	assert_true(nbd_ended(fd));
}

static void test_export_name(void **state)
{
	static const char ask[] = "IHAVEOPT\0\0\0\1\0\0\0\1m", wrong[] = "IHAVEOPT\0\0\0\1\0\0\0\1n";
	AUTO_FD fd = nbd_dial(&rig);
	uint8_t info[10];

	(void)state;
	assert_int_equal(fd_write_all(fd, ask, sizeof(ask) - 1), 0);
	assert_int_equal(fd_read_all(fd, info, sizeof(info)), 0);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 3, big), NBD_OK);
	assert_int_equal(big[2], disk_dir_byte(2));
	fd_close(&fd);
	fd = nbd_dial(&rig);
	assert_int_equal(fd_write_all(fd, wrong, sizeof(wrong) - 1), 0);
	assert_true(nbd_ended(fd));
}

static void test_abort(void **state)
{
	AUTO_FD fd = nbd_dial(&rig);

	(void)state;
	assert_int_equal(nbd_go(fd, NBD_OPT_ABORT, "", NULL, NULL), NBD_REP_ACK);
	assert_true(nbd_ended(fd));
}

static void test_an_option_too_long(void **state)
{
	static const char head[] = "IHAVEOPT\0\0\0\7\0\2\0\0", name[] = "IHAVEOPT\0\0\0\1\0\2\0\0";
	AUTO_FD fd = nbd_dial(&rig);
	uint8_t answer[NBD_ANSWER_BYTES];

	(void)state;
	assert_int_equal(fd_write_all(fd, head, sizeof(head) - 1), 0);
	assert_int_equal(fd_write_all(fd, big, 0x20000), 0);
	assert_int_equal(fd_read_all(fd, answer, sizeof(answer)), 0);
	assert_memory_equal(answer + 12, "\x80\0\0\x9", 4);
	assert_int_equal(nbd_go(fd, NBD_OPT_GO, "m", NULL, NULL), NBD_REP_ACK);
	fd_close(&fd);
	fd = nbd_dial(&rig);
	assert_int_equal(fd_write_all(fd, name, sizeof(name) - 1), 0);
	assert_true(nbd_ended(fd));
}

static void test_garbage(void **state)
{
	AUTO_FD fd = nbd_dial(&rig);

	(void)state;
	assert_int_equal(fd_write_all(fd, "GET / HTTP/1.1\r\n\r\n", 18), 0);
	assert_true(nbd_ended(fd));
	fd_close(&fd);
	fd = nbd_join(&rig, "m");
	assert_int_equal(fd_write_all(fd, "this is not a request of NBD", 28), 0);
	assert_true(nbd_ended(fd));
	fd_close(&fd);
	fd = nbd_join(&rig, "m");
	assert_int_equal(nbd_do(fd, NBD_CMD_FLUSH, 0, 0, 0, NULL), NBD_OK);
}

static void test_too_many_that_say_nothing(void **state)
{
	int fd[9];

	(void)state;
	for (size_t i = 0; i < 8; i++)
		fd[i] = nbd_dial(&rig);
	fd[8] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	{
		struct sockaddr_storage a;
		socklen_t len = sizeof(a);

		assert_int_equal(getpeername(fd[0], (struct sockaddr *)&a, &len), 0);
		assert_int_equal(connect(fd[8], (struct sockaddr *)&a, len), 0);
	}
	assert_true(nbd_ended(fd[8]));
	assert_int_equal(nbd_go(fd[3], NBD_OPT_GO, "m", NULL, NULL), NBD_REP_ACK); /* makes room */
	fd_close(&fd[8]);
	fd[8] = nbd_dial(&rig);
	for (size_t i = 0; i < ARRAY_LEN(fd); i++)
		fd_close(&fd[i]);
}

struct codes {
	int created, exported, twice, absent, open, unnamed;
};

static void export_other(struct nbd_rig *r, void *arg)
{
	struct disk_origin o = { .base_fd = -1 };
	struct codes *c = arg;

	c->created = disk_create(r->d, "other", MIB, 0, &o, NULL);
	c->exported = nbd_export(r->nbd, "other", "other", 12345, NULL);
	c->twice = nbd_export(r->nbd, "other", "m", 12345, NULL);
	c->absent = nbd_export(r->nbd, "x", "none", 12345, NULL);
	c->open = nbd_export(r->nbd, "x", "m", 12345, NULL);
	c->unnamed = nbd_export(r->nbd, "", "m", 12345, NULL);
}

/* In a process of uid 12345: 0 when it got what is its, and nothing else. */
static int as_other(void)
{
	if (setresgid(12345, 12345, 12345) < 0 || setresuid(12345, 12345, 12345) < 0)
		return 2;
	if (nbd_go(nbd_dial(&rig), NBD_OPT_GO, "m", NULL, NULL) != NBD_REP_ERR_UNKNOWN)
		return 3;
	return nbd_go(nbd_dial(&rig), NBD_OPT_GO, "other", NULL, NULL) == NBD_REP_ACK ? 0 : 4;
}

static void test_a_uid_that_it_is_not_for(void **state)
{
	AUTO_FD fd = -1;
	struct codes c = { 0 };
	int status = -1;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	nbd_rig_call(&rig, export_other, &c);
	assert_int_equal(c.created, 0);
	assert_int_equal(c.exported, 0);
	assert_int_equal(c.twice, -EEXIST);
	assert_int_equal(c.absent, -ENOENT);
	assert_int_equal(c.open, -EBUSY);
	assert_int_equal(c.unnamed, -EINVAL);
	fd = nbd_dial(&rig);
	assert_int_equal(nbd_go(fd, NBD_OPT_GO, "other", NULL, NULL), NBD_REP_ERR_UNKNOWN); /* root is nobody, too */
	pid = fork();
	if (pid == 0)
		_exit(as_other());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_a_newer_connection_ends_the_older(void **state)
{
	AUTO_FD a = nbd_join(&rig, "m");
	AUTO_FD b = -1;

	(void)state;
	assert_int_equal(nbd_do(a, NBD_CMD_FLUSH, 0, 0, 0, NULL), NBD_OK);
	b = nbd_join(&rig, "m");
	assert_true(nbd_ended(a));
	assert_int_equal(nbd_do(b, NBD_CMD_FLUSH, 0, 0, 0, NULL), NBD_OK);
}

static void unexport(struct nbd_rig *r, void *arg)
{
	(void)arg;
	nbd_unexport(r->nbd, "m");
	nbd_unexport(r->nbd, "none");
}

static void test_unexport(void **state)
{
	AUTO_FD a = nbd_join(&rig, "m");
	AUTO_FD b = nbd_dial(&rig);

	(void)state;
	nbd_rig_call(&rig, unexport, NULL);
	assert_true(nbd_ended(a));
	assert_int_equal(nbd_go(b, NBD_OPT_GO, "m", NULL, NULL), NBD_REP_ERR_UNKNOWN);
	assert_int_equal(busy_now(), 0);
	nbd_rig_export(&rig, "again", "m", geteuid());
	assert_int_equal(nbd_go(b, NBD_OPT_GO, "again", NULL, NULL), NBD_REP_ACK);
}

/* -- requests ---------------------------------------------------------------------------------------------------- */

static void test_read_and_write(void **state)
{
	static const uint32_t lens[] = { 1, 511, 512, 4096, 5000, 65536, 131072, 300000, 5 << 20, NBD_REQUEST_MAX };
	AUTO_FD fd = nbd_join(&rig, "m");

	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(lens); i++) {
		uint64_t off = 16 * MIB - 777 * i;

		fill(big, lens[i], i);
		assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, i % 2 ? NBD_CMD_FUA : 0, off, lens[i], big), NBD_OK);
		memset(big2, 0xaa, lens[i]);
		assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, off, lens[i], big2), NBD_OK);
		assert_memory_equal(big, big2, lens[i]);
	}
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 2 * B, big2), NBD_OK);
	for (unsigned i = 0; i < 2 * B; i++)
		assert_int_equal(big2[i], disk_dir_byte(i));
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, 0, 0, big2), NBD_OK);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 0, big2), NBD_OK);
}

static void test_trim_and_zeroes(void **state)
{
	AUTO_FD fd = nbd_join(&rig, "m");

	(void)state;
	memset(big, 7, 16 * B);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, 0, 16 * B, big), NBD_OK);
	assert_int_equal(nbd_do(fd, NBD_CMD_TRIM, 0, B - 1, 2 * B, NULL), NBD_OK); /* one whole block */
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE_ZEROES, 0, 4 * B + 5, 2 * B, NULL), NBD_OK);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE_ZEROES, NBD_CMD_NO_HOLE, 8 * B + 5, B, NULL), NBD_OK);
	memset(big + B, 0, B);
	memset(big + 4 * B + 5, 0, 2 * B);
	memset(big + 8 * B + 5, 0, B);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 16 * B, big2), NBD_OK);
	assert_memory_equal(big, big2, 16 * B);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE_ZEROES, NBD_CMD_FUA, 0, (uint32_t)BYTES, NULL), NBD_OK);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 16 * B, big2), NBD_OK);
	for (unsigned i = 0; i < 16 * B; i++)
		assert_int_equal(big2[i], 0);
}

/* One who discards gigabytes again and again, and one who wants a block in between. */
static void test_large_discards_stop_nobody(void **state)
{
	AUTO_FD rude = -1;
	AUTO_FD fd = nbd_join(&rig, "m");

	(void)state;
	nbd_rig_disk(&rig, "large", 64ull << 30, 0);
	rude = nbd_join(&rig, "large");
	for (unsigned i = 0; i < 60; i++)
		nbd_ask(rude, NBD_CMD_TRIM, 0, i, (uint64_t)i << 30, UINT32_MAX);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, i * B, B, big), NBD_OK);
	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(nbd_reply(rude, i), NBD_OK);
	assert_int_equal(nbd_do(rude, NBD_CMD_READ, 0, 0, 2 * B, big2), NBD_OK);
	for (unsigned i = 0; i < B; i++) {
		assert_int_equal(big2[i], 0); /* a part of the base's blocks */
		assert_int_equal(big2[B + i], 0);
	}
}

static void test_refused_requests(void **state)
{
	AUTO_FD fd = nbd_join(&rig, "m");

	(void)state;
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, BYTES - 1, 2, big), NBD_EINVAL);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, BYTES - 1, 2 * B, big), NBD_EINVAL); /* its data is swallowed */
	assert_int_equal(nbd_do(fd, NBD_CMD_TRIM, 0, BYTES, 1, NULL), NBD_EINVAL);
	assert_int_equal(nbd_do(fd, 5, 0, 0, 1, NULL), NBD_EINVAL);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 1 << 2, 0, 1, big), NBD_EINVAL);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, NBD_REQUEST_MAX + 1, big), NBD_EINVAL);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 1, big), NBD_OK);
	nbd_ask(fd, NBD_CMD_WRITE, 0, 1, 0, NBD_REQUEST_MAX + 1);
	assert_true(nbd_ended(fd));
}

static void test_the_limit_is_the_guests_error(void **state)
{
	AUTO_FD fd = -1;

	(void)state;
	nbd_rig_disk(&rig, "small", BYTES, 4 * B);
	fd = nbd_join(&rig, "small");
	memset(big, 1, MIB);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, 0, 4 * B, big), NBD_OK);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, 4 * B, MIB, big), NBD_EPERM);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, B, B, big), NBD_OK);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, MIB, big2), NBD_OK);
	assert_int_equal(big2[4 * B - 1], 1);
	assert_int_equal(big2[4 * B], 0);
}

/* A hundred at once, answered in order, some of them larger than what a socket holds. */
static void test_many_at_once(void **state)
{
	AUTO_FD fd = nbd_join(&rig, "m");

	(void)state;
	fill(big, 8 * MIB, 5);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, 0, 8 * MIB, big), NBD_OK);
	for (unsigned i = 0; i < 100; i++)
		nbd_ask(fd, i % 3 ? NBD_CMD_READ : NBD_CMD_FLUSH, 0, i, i % 3 ? i * 4111 : 0,
			i % 3 ? (i % 10 ? 4096 : 3 << 20) : 0);
	assert_true(busy_now() > 0);
	for (unsigned i = 0; i < 100; i++) {
		uint32_t len = i % 10 ? 4096 : 3 << 20;

		assert_int_equal(nbd_reply(fd, i), NBD_OK);
		if (i % 3 == 0)
			continue;
		assert_int_equal(fd_read_all(fd, big2, len), 0);
		assert_memory_equal(big2, big + i * 4111, len);
	}
	wait_busy(false);
}

/* -- those who do not go on -------------------------------------------------------------------------------------- */

static void test_one_who_stops_in_a_request(void **state)
{
	AUTO_FD rude = nbd_join(&rig, "m");
	AUTO_FD fd = -1;

	(void)state;
	nbd_rig_disk(&rig, "n", BYTES, 0);
	fd = nbd_join(&rig, "n");
	memset(big, 3, MIB);
	nbd_ask(rude, NBD_CMD_WRITE, 0, 1, 0, 4 * B);
	assert_int_equal(fd_write_all(rude, big, 2 * B + 50), 0);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, 0, MIB, big), NBD_OK); /* nobody else waits for it */
	assert_int_equal(busy_now(), 1);
	assert_int_equal(fd_write_all(rude, big, 2 * B - 50), 0);
	assert_int_equal(nbd_reply(rude, 1), NBD_OK);
	assert_int_equal(busy_now(), 0);
	nbd_ask(rude, NBD_CMD_WRITE, 0, 1, 16 * B, 4 * B);
	assert_int_equal(fd_write_all(rude, big, 2 * B + 50), 0);
	fd_close(&rude); /* what came in whole blocks stays, the rest never was */
	rude = nbd_join(&rig, "m");
	assert_int_equal(nbd_do(rude, NBD_CMD_READ, 0, 16 * B, 4 * B, big2), NBD_OK);
	assert_int_equal(big2[2 * B], 0);
	assert_int_equal(write(rude, "\x25\x60", 2), 2); /* and one in the middle of a header */
	assert_int_equal(nbd_do(fd, NBD_CMD_FLUSH, 0, 0, 0, NULL), NBD_OK);
	wait_busy(true);
}

static void test_one_who_does_not_read(void **state)
{
	AUTO_FD rude = nbd_join(&rig, "m");
	AUTO_FD fd = -1;

	(void)state;
	nbd_rig_disk(&rig, "n", BYTES, 0);
	fd = nbd_join(&rig, "n");
	fill(big, sizeof(big), 9);
	assert_int_equal(nbd_do(rude, NBD_CMD_WRITE, 0, 0, NBD_REQUEST_MAX, big), NBD_OK);
	for (unsigned i = 0; i < 50; i++)
		nbd_ask(rude, NBD_CMD_READ, 0, i, 0, NBD_REQUEST_MAX);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, i * MIB, MIB, big + i * MIB), NBD_OK);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(nbd_reply(rude, i), NBD_OK);
		assert_int_equal(fd_read_all(rude, big2, sizeof(big2)), 0);
		assert_memory_equal(big, big2, sizeof(big2));
	}
	assert_true(busy_now() > 0);
	fd_close(&rude);
	wait_busy(false);
}

/* -- forks under a connection, damage ---------------------------------------------------------------------------- */

static void freeze_it(struct nbd_rig *r, void *arg)
{
	*(int *)arg = disk_freeze(r->d, "m", "s", NULL);
}

static void test_freeze_under_a_connection(void **state)
{
	AUTO_FD fd = nbd_join(&rig, "m");
	AUTO_FD ro = -1;
	uint64_t bytes;
	uint16_t flags = 0;
	int r = -1;

	(void)state;
	memset(big, 1, 2 * B);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, 0, 2 * B, big), NBD_OK);
	nbd_rig_call(&rig, freeze_it, &r);
	assert_int_equal(r, 0);
	memset(big, 2, B);
	assert_int_equal(nbd_do(fd, NBD_CMD_WRITE, 0, 0, B, big), NBD_OK);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 2 * B, big), NBD_OK);
	assert_int_equal(big[0], 2);
	assert_int_equal(big[B], 1);
	nbd_rig_export(&rig, "s", "s", geteuid());
	ro = nbd_dial(&rig);
	assert_int_equal(nbd_go(ro, NBD_OPT_GO, "s", &bytes, &flags), NBD_REP_ACK);
	assert_true(flags & NBD_F_READ_ONLY);
	assert_int_equal(nbd_do(ro, NBD_CMD_READ, 0, 0, 1, big), NBD_OK);
	assert_int_equal(big[0], 1);
	assert_int_equal(nbd_do(ro, NBD_CMD_WRITE, 0, 0, 1, big), NBD_EPERM);
	assert_int_equal(nbd_do(ro, NBD_CMD_TRIM, 0, 0, 1, big), NBD_EPERM);
}

struct stored {
	struct snap_digest root;
	int code;
};

static void from_store(struct nbd_rig *r, void *arg)
{
	struct disk_origin o = { .base_fd = -1, .snapshot = "t" };
	struct stored *s = arg;

	s->code = disk_create_from_store(r->d, "t", 8 * MIB, NULL, &s->root, NULL);
	if (s->code == 0)
		s->code = disk_create(r->d, "f", 8 * MIB, 0, &o, NULL);
	if (s->code == 0)
		s->code = nbd_export(r->nbd, "f", "f", geteuid(), NULL);
}

/* Damage in the first part of a long read is an error; in a later one it ends the connection, and is an error when the
 * client comes back and asks again; it works again when it was repaired. */
static void test_damage(void **state)
{
	struct snap *snap = fake_snap_new();
	struct stored s = { .root = fake_snap_map(snap, 8 * MIB / B) };
	AUTO_FD fd = -1;

	(void)state;
	nbd_rig_end(&rig);
	nbd_rig_start(&rig, 100, snap);
	fake_snap_damage(snap, 200);
	nbd_rig_call(&rig, from_store, &s);
	assert_int_equal(s.code, 0);
	fd = nbd_join(&rig, "f");
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 200 * B, B, big), NBD_EIO);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 190 * B, MIB, big), NBD_EIO);
	nbd_ask(fd, NBD_CMD_READ, 0, 1, 0, 2 * MIB);
	assert_int_equal(nbd_reply(fd, 1), NBD_OK);
	while (recv(fd, big, sizeof(big), 0) > 0)
		;
	fd_close(&fd);
	fd = nbd_join(&rig, "f");
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 2 * MIB, big), NBD_EIO);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 150 * B, big), NBD_OK);
	fake_snap_damage(snap, UINT64_MAX);
	assert_int_equal(nbd_do(fd, NBD_CMD_READ, 0, 0, 2 * MIB, big), NBD_OK);
	nbd_rig_end(&rig);
	fake_snap_free(snap);
	setup(NULL);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_go),
		T(test_export_name),
		T(test_abort),
		T(test_an_option_too_long),
		T(test_garbage),
		T(test_too_many_that_say_nothing),
		T(test_a_uid_that_it_is_not_for),
		T(test_a_newer_connection_ends_the_older),
		T(test_unexport),
		T(test_read_and_write),
		T(test_trim_and_zeroes),
		T(test_large_discards_stop_nobody),
		T(test_refused_requests),
		T(test_the_limit_is_the_guests_error),
		T(test_many_at_once),
		T(test_one_who_stops_in_a_request),
		T(test_one_who_does_not_read),
		T(test_freeze_under_a_connection),
		T(test_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
