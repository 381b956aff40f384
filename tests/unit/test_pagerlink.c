/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's link to the pager: found or started, lost and started again, and its messages. The test is the pager. */
#include "tests/unit/peer_fix.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "cruciblefs/domain/pagerlink.h"

static struct {
	unsigned n;
	char machine[64], words[64];
	int code;
} lost_machine;

static void on_machine_lost(void *arg, const char *machine, int code, const char *words)
{
	(void)arg;
	lost_machine.n++;
	lost_machine.code = code;
	snprintf(lost_machine.machine, sizeof(lost_machine.machine), "%s", machine);
	snprintf(lost_machine.words, sizeof(lost_machine.words), "%s", words);
}

static const struct pagerlink_ops ops = { peer_on_up, peer_on_lost, on_machine_lost };

/* -- what an answer was --------------------------------------------------------------------------- */

static struct seen {
	unsigned n;
	struct pager_reply r; /* arrays of it are gone */
	char words[128];
	int fds[2];
	struct pager_machine machine;
	struct pager_held held;
	unsigned losts; /* that had been told before */
	struct peer_world *w;
} seen;

static void on_reply(void *arg, struct pager_reply *r)
{
	struct seen *s = arg;

	s->n++;
	s->r = *r;
	snprintf(s->words, sizeof(s->words), "%s", r->words);
	s->losts = s->w->losts;
	if (r->nmachines)
		s->machine = r->machines[0];
	if (r->nheld)
		s->held = r->held[0];
	s->fds[0] = s->fds[1] = -1;
	for (size_t i = 0; i < r->nfds && i < 2; i++)
		s->fds[i] = take_fd(&r->fds[i]);
}

static struct pagerlink *start_fresh(struct peer_world *w)
{
	struct pagerlink *k = NULL;
	struct err e = { 0 };

	seen = (struct seen){ .w = w, .fds = { -1, -1 } };
	if (pagerlink_new(&w->setup, &ops, w, &k, &e) < 0)
		fail_msg("%s", e.msg);
	return k;
}

static struct pagerlink *start(struct peer_world *w)
{
	struct pagerlink *k = start_fresh(w);

	assert_int_equal(w->kills, 0); /* nothing inside of it */
	return k;
}

/* What has just been started answers its first question. */
static void come_up(struct peer_world *w, int listener)
{
	unsigned before = w->ups;
	struct buf b;

	peer_accept(w, listener);
	peer_receive(w, PAGER_LIST);
	buf_init(&b, 64);
	assert_int_equal(peer_put(&b, "uu", 0u, 0u), 0);
	peer_answer(w, PAGER_REPLY, 0, "", &b, NULL, 0);
	buf_fini(&b);
	peer_until(w, w->ups == before + 1);
}

static struct pagerlink *start_and_up(struct peer_world *w)
{
	struct pagerlink *k = start(w);

	peer_until(w, w->spawns == 1);
	come_up(w, w->listeners[0]);
	return k;
}

/* -- its life --------------------------------------------------------------------------------------- */

static void test_started(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start(w);
	struct stat st;

	assert_false(pagerlink_is_up(k));
	assert_int_equal(pager_list(k, on_reply, &seen), -ENOTCONN);
	peer_until(w, w->spawns == 1);
	assert_int_equal(w->kills, 1); /* whatever is left of one that nobody reaches */
	assert_string_equal(w->killed, LAUNCH_UUID_PAGER);
	assert_int_equal(w->last.kind, LAUNCH_PAGER);
	assert_string_equal(w->last.uuid, LAUNCH_UUID_PAGER);
	assert_string_equal(w->last_args, "crucible-peer --daemon-uid 7 ");
	assert_int_equal(w->last.nofile, 4096);
	assert_true(w->last.memory_bytes == 0 && w->last.ram_bytes == 0);
	assert_int_equal(fstatat(w->setup.store_fd, "run/pager.sock", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0600);
	assert_int_equal(fstatat(w->setup.store_fd, LAUNCH_BLOCKS_DIR "/nbd.sock", &st, 0), 0);
	assert_int_equal(st.st_mode, S_IFSOCK | 0666);
	peer_spin(w);
	assert_int_equal(w->ups, 0); /* connected, but it has not said a word */
	come_up(w, w->listeners[0]);
	assert_true(w->fresh && pagerlink_is_up(k));
	assert_string_equal(pagerlink_degraded(k), "");
	pagerlink_free(k);
}

static void test_found(void **state)
{
	struct peer_world *w = *state;
	int listener = peer_listen_as_before(w, "run/pager.sock");
	struct pagerlink *k = start(w);

	come_up(w, listener);
	assert_false(w->fresh);
	assert_int_equal(w->spawns + w->kills, 0);
	pagerlink_free(k);
	close(listener);
}

/* Its socket is there, but nobody listens. */
static void test_stale_socket(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k;

	close(peer_listen_as_before(w, "run/pager.sock"));
	k = start_and_up(w);
	assert_true(w->fresh);
	pagerlink_free(k);
}

/* A link in the place of the folder is not followed. */
static void test_folder_is_a_link_enotdir(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k;

	assert_int_equal(renameat(w->setup.store_fd, LAUNCH_BLOCKS_DIR, w->setup.store_fd, "blocks/other"), 0);
	assert_int_equal(symlinkat("other", w->setup.store_fd, LAUNCH_BLOCKS_DIR), 0);
	peer_no_delays(true);
	k = start(w);
	peer_until(w, pagerlink_degraded(k)[0]);
	assert_non_null(strstr(pagerlink_degraded(k), "blocks"));
	assert_int_equal(w->spawns, 0);
	pagerlink_free(k);
}

static void test_lost_and_again(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);

	assert_int_equal(pager_stat(k, on_reply, &seen), 0);
	assert_int_equal(pager_detach(k, MACHINE_A, NULL, NULL), 0);
	peer_hang_up(w);
	peer_until(w, w->losts == 1);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.r.code, -EPIPE);
	assert_int_equal(seen.losts, 0); /* before it was told */
	assert_non_null(strstr(w->words, "crucible-pager is gone"));
	assert_false(pagerlink_is_up(k));
	assert_int_equal(pager_list(k, on_reply, &seen), -ENOTCONN);
	peer_until(w, w->spawns == 2);
	come_up(w, w->listeners[0]);
	assert_true(w->fresh);
	assert_int_equal(pager_list(k, on_reply, &seen), 0);
	pagerlink_free(k);
	assert_int_equal(seen.n, 2);
	assert_int_equal(seen.r.code, -EPIPE);
}

/* The connection goes, the process does not: it is found again, and was not started anew. */
static void test_connection_lost(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);

	fd_close(&w->fd);
	peer_until(w, w->losts == 1);
	come_up(w, w->listeners[0]);
	assert_false(w->fresh);
	assert_int_equal(w->spawns, 1);
	pagerlink_free(k);
}

static void test_degraded_in_words(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k;

	peer_no_delays(true);
	w->refuse_spawn = -ENOENT;
	k = start(w);
	peer_until(w, w->spawns == PEER_TRIES_A_MINUTE - 1);
	assert_string_equal(pagerlink_degraded(k), "");
	peer_until(w, pagerlink_degraded(k)[0]);
	assert_int_equal(w->spawns, PEER_TRIES_A_MINUTE);
	assert_non_null(strstr(pagerlink_degraded(k), "refused by the test"));
	assert_int_equal(w->losts, 0); /* there was none to lose */
	/* It is tried on, and all is well again when it succeeds. */
	w->refuse_spawn = 0;
	peer_until(w, w->listeners[0] >= 0);
	come_up(w, w->listeners[0]);
	assert_string_equal(pagerlink_degraded(k), "");
	pagerlink_free(k);
}

/* It takes connections and says nothing: it is ended before another is started. */
static void test_hangs_etimedout(void **state)
{
	struct peer_world *w = *state;
	int listener = peer_listen_as_before(w, "run/pager.sock");
	struct pagerlink *k;

	peer_no_delays(true);
	k = start(w);
	peer_until(w, w->spawns == 1);
	assert_int_equal(w->kills, 1);
	assert_int_equal(w->ups, 0);
	peer_no_delays(false);
	pagerlink_free(k);
	close(listener);
}

static void test_dies_before_it_answers(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start(w);

	peer_until(w, w->spawns == 1);
	peer_accept(w, w->listeners[0]);
	peer_hang_up(w);
	peer_until(w, w->spawns == 2);
	assert_int_equal(w->ups + w->losts, 0);
	come_up(w, w->listeners[0]);
	pagerlink_free(k);
}

static void test_first_answer_ebadmsg(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start(w);

	peer_until(w, w->spawns == 1);
	peer_accept(w, w->listeners[0]);
	peer_receive(w, PAGER_LIST);
	assert_int_equal(msg_send(w->fd, PAGER_REPLY, w->m.id, "x", 1, NULL, 0), 0);
	come_up(w, w->listeners[0]); /* over another connection, to which it keeps */
	assert_int_equal(w->ups, 1);
	pagerlink_free(k);
}

static void test_quit(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);

	peer_no_delays(true);
	pagerlink_quit(k);
	peer_receive(w, PAGER_QUIT);
	peer_hang_up(w);
	peer_spin(w);
	assert_int_equal(w->spawns, 1);
	assert_int_equal(w->losts, 0);
	assert_int_equal(pager_list(k, on_reply, &seen), -ENOTCONN);
	pagerlink_free(k);
}

/* Told to end while it is being started. */
static void test_quit_early(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start(w);

	w->hold = true;
	peer_until(w, w->kills == 1);
	pagerlink_quit(k);
	peer_launcher_answers(w);
	peer_spin(w);
	assert_int_equal(w->spawns, 0);
	pagerlink_free(k);
	/* One step later. */
	k = start_fresh(w);
	peer_until(w, w->kills == 2);
	peer_launcher_answers(w);
	assert_int_equal(w->spawns, 1);
	pagerlink_quit(k);
	peer_launcher_answers(w);
	peer_spin(w);
	assert_int_equal(w->ups, 0);
	pagerlink_free(k);
}

/* -- freed from callbacks ----------------------------------------------------------------------------- */

static struct pagerlink *victim;

static void free_on_up(void *arg, bool fresh)
{
	peer_on_up(arg, fresh);
	victim = pagerlink_free(victim);
}

static void free_on_lost(void *arg, const char *words)
{
	peer_on_lost(arg, words);
	victim = pagerlink_free(victim);
}

static void free_on_reply(void *arg, struct pager_reply *r)
{
	on_reply(arg, r);
	victim = pagerlink_free(victim);
}

static void test_freed_in_callbacks(void **state)
{
	struct peer_world *w = *state;
	static const struct pagerlink_ops up = { free_on_up, peer_on_lost, on_machine_lost };
	static const struct pagerlink_ops lost = { peer_on_up, free_on_lost, on_machine_lost };
	struct buf b;

	seen = (struct seen){ .w = w };
	assert_int_equal(pagerlink_new(&w->setup, &up, w, &victim, NULL), 0);
	peer_until(w, w->spawns == 1);
	come_up(w, w->listeners[0]);
	assert_null(victim);
	peer_hang_up(w);
	assert_int_equal(pagerlink_new(&w->setup, &lost, w, &victim, NULL), 0);
	peer_until(w, w->spawns == 2);
	come_up(w, w->listeners[0]);
	peer_hang_up(w);
	peer_until(w, !victim);
	/* In the answer of a call, while others wait, which are answered too. */
	assert_int_equal(pagerlink_new(&w->setup, &ops, w, &victim, NULL), 0);
	peer_until(w, w->spawns == 3);
	come_up(w, w->listeners[0]);
	assert_int_equal(pager_forget(victim, SNAP_A, free_on_reply, &seen), 0);
	assert_int_equal(pager_forget(victim, SNAP_B, on_reply, &seen), 0);
	peer_receive(w, PAGER_FORGET);
	buf_init(&b, 16);
	peer_answer(w, PAGER_REPLY, 0, "", NULL, NULL, 0);
	peer_until(w, !victim);
	assert_int_equal(seen.n, 2);
	peer_hang_up(w);
	/* In what the end of the connection answers. */
	assert_int_equal(pagerlink_new(&w->setup, &ops, w, &victim, NULL), 0);
	peer_until(w, w->spawns == 4);
	come_up(w, w->listeners[0]);
	assert_int_equal(pager_forget(victim, SNAP_A, free_on_reply, &seen), 0);
	assert_int_equal(pager_forget(victim, SNAP_B, on_reply, &seen), 0);
	w->losts = 0;
	peer_hang_up(w);
	peer_until(w, !victim);
	assert_int_equal(seen.n, 4);
	assert_int_equal(w->losts, 0); /* it is gone: nobody is told */
	buf_fini(&b);
}

/* -- messages ----------------------------------------------------------------------------------------- */

/* The answer to what was asked last, with so many descriptors. */
static void answer(struct peer_world *w, const struct buf *payload, size_t nfds)
{
	int fds[MSG_FDS_MAX], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	unsigned before = seen.n;

	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = null;
	peer_answer(w, PAGER_REPLY, 0, "", payload, fds, nfds);
	close(null);
	peer_until(w, seen.n == before + 1);
}

static void expect_text(struct wire_rd *r, const char *want)
{
	char text[256];

	wire_str(r, text, sizeof(text));
	assert_false(r->bad);
	assert_string_equal(text, want);
}

static void test_template(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);
	const uint64_t bytes = 512ull << 20;
	struct wire_rd r;
	struct buf b;

	assert_int_equal(pager_template(k, SNAP_A, bytes, on_reply, &seen), 0);
	peer_receive(w, PAGER_TEMPLATE);
	wire_rd_init(&r, w->m.data, w->m.len);
	expect_text(&r, SNAP_A);
	assert_true(wire_u64(&r) == bytes);
	assert_int_equal(wire_done(&r), 0);
	buf_init(&b, 1024);
	peer_put(&b, "uqqqq", 2u, (uint64_t)65536, (uint64_t)65536, bytes - 65536, (uint64_t)65536);
	answer(w, &b, 1);
	assert_int_equal(seen.r.code, 0);
	assert_int_equal(seen.r.nranges, 2);
	assert_true(seen.r.ranges[1].offset == bytes - 65536 && seen.r.ranges[1].bytes == 65536);
	assert_true(seen.fds[0] >= 0);
	fd_close(&seen.fds[0]);
	/* A refusal has words and nothing else. */
	assert_int_equal(pager_template(k, SNAP_A, bytes, on_reply, &seen), 0);
	peer_receive(w, PAGER_TEMPLATE);
	peer_answer(w, PAGER_REPLY, -ENOENT, "no such snapshot", NULL, NULL, 0);
	peer_until(w, seen.n == 2);
	assert_int_equal(seen.r.code, -ENOENT);
	assert_string_equal(seen.words, "no such snapshot");
	assert_int_equal(seen.r.nfds, 0);
	pagerlink_free(k);
	buf_fini(&b);
}

static void test_template_ebadmsg(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);
	const uint64_t bytes = 1u << 20;
	static const struct {
		uint64_t a, alen, b, blen;
		size_t nfds;
	} bad[] = {
		{ 0, 65536, 65536, 65536, 0 },		      /* no template */
		{ 0, 65536, 65536, 65536, 2 },		      /* one too many */
		{ 0, 65536, 0, 65536, 1 },		      /* overlapping */
		{ 131072, 65536, 0, 65536, 1 },		      /* out of order */
		{ 0, 4096, 65536, 65536, 1 },		      /* shorter than any is */
		{ 1, 65536, 131072, 65536, 1 },		      /* no whole pages */
		{ 0, 65536, 1u << 20, 65536, 1 },	      /* behind the end */
		{ 0, 65536, (1u << 20) - 65536, 131072, 1 },  /* over it */
		{ 0, 65536, UINT64_MAX - 4095, 1u << 20, 1 }, /* around */
		{ 0, 65536, 65536, UINT64_MAX - 65535 + 61440, 1 },
	};
	int before = peer_count_fds();
	struct buf b;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(pager_template(k, SNAP_A, bytes, on_reply, &seen), 0);
		peer_receive(w, PAGER_TEMPLATE);
		buf_init(&b, 1024);
		peer_put(&b, "uqqqq", 2u, bad[i].a, bad[i].alen, bad[i].b, bad[i].blen);
		answer(w, &b, bad[i].nfds);
		buf_fini(&b);
		assert_int_equal(seen.r.code, -EBADMSG);
		assert_int_equal(seen.r.nranges, 0);
		assert_true(seen.words[0]);
	}
	/* Cut, and with too many ranges. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pager_template(k, SNAP_A, bytes, on_reply, &seen), 0);
		peer_receive(w, PAGER_TEMPLATE);
		buf_init(&b, 1024);
		peer_put(&b, "uq", i ? UINT32_MAX : 1u, (uint64_t)0);
		answer(w, &b, 1);
		buf_fini(&b);
		assert_int_equal(seen.r.code, -EBADMSG);
	}
	peer_spin(w);
	assert_int_equal(peer_count_fds(), before); /* what came along is closed */
	assert_true(pagerlink_is_up(k));
	pagerlink_free(k);
}

static void test_attach(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);
	struct pager_range ranges[2] = { { 0, 65536 }, { 131072, 65536 } };
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct pager_attach a = {
		.machine = MACHINE_A,
		.snapshot = SNAP_A,
		.base = 0x7f0000000000,
		.bytes = 1u << 20,
		.nranges = 2,
		.ranges = ranges,
		.uffd = fd,
		.mem = fd,
		.pagemap = fd,
	};
	struct wire_rd r;

	assert_int_equal(pager_attach(k, &a, on_reply, &seen), 0);
	peer_receive(w, PAGER_ATTACH);
	assert_int_equal(w->m.nfds, 3);
	wire_rd_init(&r, w->m.data, w->m.len);
	expect_text(&r, MACHINE_A);
	expect_text(&r, SNAP_A);
	assert_true(wire_u64(&r) == a.base && wire_u64(&r) == a.bytes);
	assert_int_equal(wire_u32(&r), 2);
	assert_true(wire_u64(&r) == 0 && wire_u64(&r) == 65536 && wire_u64(&r) == 131072 && wire_u64(&r) == 65536);
	assert_int_equal(wire_done(&r), 0);
	answer(w, NULL, 0);
	assert_int_equal(seen.r.code, 0);
	/* Cold-booted: no userfaultfd. */
	a.snapshot = "";
	a.nranges = 0;
	a.uffd = -1;
	assert_int_equal(pager_attach(k, &a, on_reply, &seen), 0);
	peer_receive(w, PAGER_ATTACH);
	assert_int_equal(w->m.nfds, 2);
	answer(w, NULL, 0);
	a.nranges = PAGER_RANGES_MAX + 1;
	assert_int_equal(pager_attach(k, &a, on_reply, &seen), -EINVAL);
	close(fd);
	pagerlink_free(k);
}

static void test_capture(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);
	struct wire_rd r;
	struct buf b;

	assert_int_equal(pager_capture_begin(k, SNAP_B, 1u << 20, SNAP_A, on_reply, &seen), 0);
	peer_receive(w, PAGER_CAPTURE_BEGIN);
	wire_rd_init(&r, w->m.data, w->m.len);
	expect_text(&r, SNAP_B);
	assert_true(wire_u64(&r) == 1u << 20);
	expect_text(&r, SNAP_A);
	assert_int_equal(wire_done(&r), 0);
	answer(w, NULL, 1);
	assert_int_equal(seen.r.code, 0);
	fd_close(&seen.fds[0]);
	assert_int_equal(pager_capture(k, MACHINE_A, SNAP_B, on_reply, &seen), 0);
	peer_receive(w, PAGER_CAPTURE);
	buf_init(&b, 1024);
	peer_put(&b, "qquqq", (uint64_t)77, (uint64_t)88, 1u, (uint64_t)0, (uint64_t)65536);
	answer(w, &b, 1);
	assert_true(seen.r.code == 0 && seen.r.pages == 77 && seen.r.ns == 88 && seen.r.nranges == 1);
	fd_close(&seen.fds[0]);
	buf_reset(&b);
	assert_int_equal(pager_captured(k, SNAP_B, on_reply, &seen), 0);
	peer_receive(w, PAGER_CAPTURED);
	peer_put(&b, "qu", (uint64_t)1 << 20, 0u);
	answer(w, &b, 2);
	assert_true(seen.r.code == 0 && seen.r.bytes == 1u << 20 && seen.fds[0] >= 0 && seen.fds[1] >= 0);
	assert_int_equal(pager_adopt(k, SNAP_B, 1u << 20, SNAP_A, seen.fds[0], seen.fds[1], on_reply, &seen), 0);
	peer_receive(w, PAGER_ADOPT);
	assert_int_equal(w->m.nfds, 2);
	assert_int_equal(w->m.data[w->m.len - 1], 0); /* not stored */
	answer(w, NULL, 0);
	/* The answer took their places: adopted as stored, without bits. */
	assert_int_equal(pager_adopt(k, SNAP_B, 1u << 20, "", 2, -1, on_reply, &seen), 0);
	peer_receive(w, PAGER_ADOPT);
	assert_int_equal(w->m.nfds, 1);
	assert_int_equal(w->m.data[w->m.len - 1], 1);
	answer(w, NULL, 0);
	/* A size that no memory has. */
	buf_reset(&b);
	assert_int_equal(pager_captured(k, SNAP_B, on_reply, &seen), 0);
	peer_receive(w, PAGER_CAPTURED);
	peer_put(&b, "qu", UINT64_MAX, 0u);
	answer(w, &b, 2);
	assert_int_equal(seen.r.code, -EBADMSG);
	buf_fini(&b);
	pagerlink_free(k);
}

static void test_disks(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);
	int base = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct pager_disk d = { MACHINE_A, "", "b1.img", 64ull << 30, 1u << 30, base };
	struct wire_rd r;
	struct buf b;

	assert_int_equal(pager_disk_create(k, &d, on_reply, &seen), 0);
	peer_receive(w, PAGER_DISK_CREATE);
	wire_rd_init(&r, w->m.data, w->m.len);
	expect_text(&r, MACHINE_A);
	assert_true(wire_u64(&r) == 64ull << 30 && wire_u64(&r) == 1u << 30);
	expect_text(&r, "");
	expect_text(&r, "b1.img");
	assert_int_equal(wire_done(&r), 0);
	assert_int_equal(w->m.nfds, 1);
	answer(w, NULL, 0);
	assert_int_equal(pager_disk_export(k, "x1", MACHINE_A, 4711, on_reply, &seen), 0);
	peer_receive(w, PAGER_DISK_EXPORT);
	wire_rd_init(&r, w->m.data, w->m.len);
	expect_text(&r, "x1");
	expect_text(&r, MACHINE_A);
	assert_int_equal(wire_u32(&r), 4711);
	assert_int_equal(wire_done(&r), 0);
	answer(w, NULL, 0);
	buf_init(&b, 64);
	assert_int_equal(pager_disk_files(k, SNAP_B, SNAP_A, on_reply, &seen), 0);
	peer_receive(w, PAGER_DISK_FILES);
	peer_put(&b, "u", 1u);
	answer(w, &b, 2);
	assert_true(seen.r.code == 0 && seen.r.layers == 1 && seen.r.nfds == 2);
	fd_close(&seen.fds[0]);
	fd_close(&seen.fds[1]);
	assert_int_equal(pager_disk_files(k, SNAP_B, "", on_reply, &seen), 0);
	peer_receive(w, PAGER_DISK_FILES);
	answer(w, &b, 1); /* half a layer */
	assert_int_equal(seen.r.code, -EBADMSG);
	buf_reset(&b);
	assert_int_equal(pager_disk_stat(k, MACHINE_A, on_reply, &seen), 0);
	peer_receive(w, PAGER_DISK_STAT);
	peer_put(&b, "qu", (uint64_t)5, 3u);
	answer(w, &b, 0);
	assert_true(seen.r.code == 0 && seen.r.bytes == 5 && seen.r.layers == 3);
	buf_fini(&b);
	close(base);
	pagerlink_free(k);
}

static void test_list_and_stat(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);
	struct buf b;

	buf_init(&b, 4096);
	assert_int_equal(pager_list(k, on_reply, &seen), 0);
	peer_receive(w, PAGER_LIST);
	peer_put(&b, "ussusb", 1u, MACHINE_A, SNAP_A, 1u, SNAP_B, 1);
	answer(w, &b, 0);
	assert_true(seen.r.code == 0 && seen.r.nmachines == 1 && seen.r.nheld == 1);
	assert_string_equal(seen.machine.machine, MACHINE_A);
	assert_string_equal(seen.machine.snapshot, SNAP_A);
	assert_string_equal(seen.held.snapshot, SNAP_B);
	assert_true(seen.held.stored);
	/* More than there is. */
	buf_reset(&b);
	assert_int_equal(pager_list(k, on_reply, &seen), 0);
	peer_receive(w, PAGER_LIST);
	peer_put(&b, "uss", 8000u, MACHINE_A, SNAP_A);
	answer(w, &b, 0);
	assert_int_equal(seen.r.code, -EBADMSG);
	buf_reset(&b);
	assert_int_equal(pager_stat(k, on_reply, &seen), 0);
	peer_receive(w, PAGER_STAT);
	peer_put(&b, "s", "{\"machines\":3}");
	answer(w, &b, 0);
	assert_true(seen.r.code == 0 && seen.r.json);
	buf_reset(&b);
	assert_int_equal(pager_stat(k, on_reply, &seen), 0);
	peer_receive(w, PAGER_STAT);
	peer_put(&b, "s", "[]");
	answer(w, &b, 0);
	assert_true(seen.r.code == -EBADMSG && !seen.r.json);
	buf_fini(&b);
	pagerlink_free(k);
}

static void test_machine_lost(void **state)
{
	struct peer_world *w = *state;
	struct pagerlink *k = start_and_up(w);
	struct buf b;

	lost_machine.n = 0;
	buf_init(&b, 256);
	peer_put(&b, "sus", MACHINE_A, (uint32_t)-EBADMSG, "a page is damaged");
	assert_int_equal(msg_send(w->fd, PAGER_LOST, 0, b.data, b.len, NULL, 0), 0);
	assert_int_equal(msg_send(w->fd, PAGER_LOST, 0, b.data, b.len - 1, NULL, 0), 0); /* nobody's */
	assert_int_equal(msg_send(w->fd, 999, 0, b.data, b.len, NULL, 0), 0);
	peer_until(w, lost_machine.n == 1);
	peer_spin(w);
	assert_int_equal(lost_machine.n, 1);
	assert_int_equal(lost_machine.code, -EBADMSG);
	assert_string_equal(lost_machine.machine, MACHINE_A);
	assert_string_equal(lost_machine.words, "a page is damaged");
	buf_fini(&b);
	pagerlink_free(k);
}

int main(void)
{
#define with_world(test) cmocka_unit_test_setup_teardown(test, peer_setup_world, peer_teardown_world)
	const struct CMUnitTest tests[] = {
		with_world(test_started),
		with_world(test_found),
		with_world(test_stale_socket),
		with_world(test_folder_is_a_link_enotdir),
		with_world(test_lost_and_again),
		with_world(test_connection_lost),
		with_world(test_degraded_in_words),
		with_world(test_hangs_etimedout),
		with_world(test_dies_before_it_answers),
		with_world(test_first_answer_ebadmsg),
		with_world(test_quit),
		with_world(test_quit_early),
		with_world(test_freed_in_callbacks),
		with_world(test_template),
		with_world(test_template_ebadmsg),
		with_world(test_attach),
		with_world(test_capture),
		with_world(test_disks),
		with_world(test_list_and_stat),
		with_world(test_machine_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
