/* SPDX-License-Identifier: Apache-2.0 */
/* A process of which there is one, beside the daemon: found or started, lost and started again, asked. The test is that
 * process. */
#include "tests/unit/peer_fix.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "cruciblefs/domain/peer.h"

enum { REPLY = 1, GREETING, ASK, TELL, NEWS, QUIT, PROGRESS, PROBE };

static const struct peer_kind kind = {
	.name = "crucible-pager",
	.kind = LAUNCH_PAGER,
	.uuid = LAUNCH_UUID_PAGER,
	.listen = { { "run", "pager.sock", SOCK_SEQPACKET, 0600 },
		    { LAUNCH_BLOCKS_DIR, "nbd.sock", SOCK_STREAM, 0666 } },
	.nlisten = 2,
	.reply = REPLY,
	.greeting = GREETING,
};

static struct {
	unsigned n;
	uint16_t type;
	char text[64];
} told;

static void on_msg(void *arg, struct msg *m)
{
	struct wire_rd r;

	(void)arg;
	told.n++;
	told.type = m->type;
	wire_rd_init(&r, m->data, m->len);
	wire_str(&r, told.text, sizeof(told.text));
}

static const struct peer_ops ops = { peer_on_up, peer_on_lost, on_msg };

/* -- what an answer was --------------------------------------------------------------------------- */

static struct seen {
	unsigned n;
	int code;
	char words[128];
	uint32_t value;
	size_t nfds;
	unsigned losts; /* that had been told before */
	struct peer_world *w;
} seen;

static void on_reply(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct seen *s = arg;

	s->n++;
	s->code = code;
	snprintf(s->words, sizeof(s->words), "%s", words);
	s->losts = s->w->losts;
	s->nfds = code == 0 ? m->nfds : 0;
	s->value = code == 0 && wire_left(r) ? wire_u32(r) : 0;
}

static int ask(struct peer *k, uint16_t type)
{
	return peer_call(k, type, "what", 4, NULL, 0, on_reply, &seen, NULL);
}

static struct peer *start_fresh(struct peer_world *w)
{
	struct peer *k = NULL;
	struct err e = { 0 };

	seen = (struct seen){ .w = w };
	if (peer_new(&kind, &w->setup, &ops, w, &k, &e) < 0)
		fail_msg("%s", e.msg);
	return k;
}

static struct peer *start(struct peer_world *w)
{
	struct peer *k = start_fresh(w);

	assert_int_equal(w->kills, 0); /* nothing inside of it */
	return k;
}

/* What has just been started answers its first question. */
static void come_up(struct peer_world *w, int listener)
{
	unsigned before = w->ups;
	struct buf b;

	peer_accept(w, listener);
	peer_receive(w, GREETING);
	buf_init(&b, 64);
	assert_int_equal(wire_put_u32(&b, 0) | wire_put_u32(&b, 0), 0);
	peer_answer(w, REPLY, 0, "", &b, NULL, 0);
	buf_fini(&b);
	peer_until(w, w->ups == before + 1);
}

static struct peer *start_and_up(struct peer_world *w)
{
	struct peer *k = start(w);

	peer_until(w, w->spawns == 1);
	come_up(w, w->listeners[0]);
	return k;
}

/* -- its life --------------------------------------------------------------------------------------- */

static void test_started(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start(w);
	struct stat st;

	assert_false(peer_is_up(k));
	assert_int_equal(ask(k, ASK), -ENOTCONN);
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
	assert_true(w->fresh && peer_is_up(k));
	assert_string_equal(peer_degraded(k), "");
	peer_free(k);
}

static void test_found(void **state)
{
	struct peer_world *w = *state;
	int listener = peer_listen_as_before(w, "run/pager.sock");
	struct peer *k = start(w);

	come_up(w, listener);
	assert_false(w->fresh);
	assert_int_equal(w->spawns + w->kills, 0);
	peer_free(k);
	close(listener);
}

/* Its socket is there, but nobody listens. */
static void test_stale_socket(void **state)
{
	struct peer_world *w = *state;
	struct peer *k;

	close(peer_listen_as_before(w, "run/pager.sock"));
	k = start_and_up(w);
	assert_true(w->fresh);
	peer_free(k);
}

/* A link in the place of the folder is not followed. */
static void test_folder_is_a_link_enotdir(void **state)
{
	struct peer_world *w = *state;
	struct peer *k;

	assert_int_equal(renameat(w->setup.store_fd, LAUNCH_BLOCKS_DIR, w->setup.store_fd, "blocks/other"), 0);
	assert_int_equal(symlinkat("other", w->setup.store_fd, LAUNCH_BLOCKS_DIR), 0);
	peer_no_delays(true);
	k = start(w);
	peer_until(w, peer_degraded(k)[0]);
	assert_non_null(strstr(peer_degraded(k), "blocks"));
	assert_int_equal(w->spawns, 0);
	peer_free(k);
}

static void test_lost_and_again(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start_and_up(w);

	assert_int_equal(ask(k, ASK), 0);
	assert_int_equal(peer_tell(k, TELL, NULL, 0, NULL, 0), 0);
	peer_hang_up(w);
	peer_until(w, w->losts == 1);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.code, -EPIPE);
	assert_int_equal(seen.losts, 0); /* before it was told */
	assert_non_null(strstr(w->words, "crucible-pager is gone"));
	assert_false(peer_is_up(k));
	assert_int_equal(ask(k, ASK), -ENOTCONN);
	peer_until(w, w->spawns == 2);
	come_up(w, w->listeners[0]);
	assert_true(w->fresh);
	assert_int_equal(ask(k, ASK), 0);
	peer_free(k);
	assert_int_equal(seen.n, 2);
	assert_int_equal(seen.code, -EPIPE);
}

/* The connection goes, the process does not: it is found again, and was not started anew. */
static void test_connection_lost(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start_and_up(w);

	fd_close(&w->fd);
	peer_until(w, w->losts == 1);
	come_up(w, w->listeners[0]);
	assert_false(w->fresh);
	assert_int_equal(w->spawns, 1);
	peer_free(k);
}

static void test_degraded_in_words(void **state)
{
	struct peer_world *w = *state;
	struct peer *k;

	peer_no_delays(true);
	w->refuse_spawn = -ENOENT;
	k = start(w);
	peer_until(w, w->spawns == PEER_TRIES_A_MINUTE - 1);
	assert_string_equal(peer_degraded(k), "");
	peer_until(w, peer_degraded(k)[0]);
	assert_int_equal(w->spawns, PEER_TRIES_A_MINUTE);
	assert_non_null(strstr(peer_degraded(k), "refused by the test"));
	assert_int_equal(w->losts, 0); /* there was none to lose */
	/* It is tried on, and all is well again when it succeeds. */
	w->refuse_spawn = 0;
	peer_until(w, w->listeners[0] >= 0);
	come_up(w, w->listeners[0]);
	assert_string_equal(peer_degraded(k), "");
	peer_free(k);
}

/* It takes connections and says nothing: it is ended before another is started. */
static void test_hangs_etimedout(void **state)
{
	struct peer_world *w = *state;
	int listener = peer_listen_as_before(w, "run/pager.sock");
	struct peer *k;

	peer_no_delays(true);
	k = start(w);
	peer_until(w, w->spawns == 1);
	assert_int_equal(w->kills, 1);
	assert_int_equal(w->ups, 0);
	peer_no_delays(false);
	peer_free(k);
	close(listener);
}

static void test_dies_before_it_answers(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start(w);

	peer_until(w, w->spawns == 1);
	peer_accept(w, w->listeners[0]);
	peer_hang_up(w);
	peer_until(w, w->spawns == 2);
	assert_int_equal(w->ups + w->losts, 0);
	come_up(w, w->listeners[0]);
	peer_free(k);
}

static void test_first_answer_ebadmsg(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start(w);

	peer_until(w, w->spawns == 1);
	peer_accept(w, w->listeners[0]);
	peer_receive(w, GREETING);
	assert_int_equal(msg_send(w->fd, REPLY, w->m.id, "x", 1, NULL, 0), 0);
	come_up(w, w->listeners[0]); /* over another connection, to which it keeps */
	assert_int_equal(w->ups, 1);
	peer_free(k);
}

static void test_quit(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start_and_up(w);

	peer_no_delays(true);
	peer_quit(k, QUIT);
	peer_receive(w, QUIT);
	peer_hang_up(w);
	peer_spin(w);
	assert_int_equal(w->spawns, 1);
	assert_int_equal(w->losts, 0);
	assert_int_equal(ask(k, ASK), -ENOTCONN);
	peer_free(k);
}

/* Told to end while it is being started. */
static void test_quit_early(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start(w);

	w->hold = true;
	peer_until(w, w->kills == 1);
	peer_quit(k, QUIT);
	peer_launcher_answers(w);
	peer_spin(w);
	assert_int_equal(w->spawns, 0);
	peer_free(k);
	/* One step later. */
	k = start_fresh(w);
	peer_until(w, w->kills == 2);
	peer_launcher_answers(w);
	assert_int_equal(w->spawns, 1);
	peer_quit(k, QUIT);
	peer_launcher_answers(w);
	peer_spin(w);
	assert_int_equal(w->ups, 0);
	peer_free(k);
}

/* -- freed from callbacks ----------------------------------------------------------------------------- */

static struct peer *victim;

static void free_on_up(void *arg, bool fresh)
{
	peer_on_up(arg, fresh);
	victim = peer_free(victim);
}

static void free_on_lost(void *arg, const char *words)
{
	peer_on_lost(arg, words);
	victim = peer_free(victim);
}

static void free_on_reply(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	on_reply(arg, code, words, r, m);
	victim = peer_free(victim);
}

static void test_freed_in_callbacks(void **state)
{
	struct peer_world *w = *state;
	static const struct peer_ops up = { free_on_up, peer_on_lost, on_msg };
	static const struct peer_ops lost = { peer_on_up, free_on_lost, on_msg };
	struct buf b;

	seen = (struct seen){ .w = w };
	assert_int_equal(peer_new(&kind, &w->setup, &up, w, &victim, NULL), 0);
	peer_until(w, w->spawns == 1);
	come_up(w, w->listeners[0]);
	assert_null(victim);
	peer_hang_up(w);
	assert_int_equal(peer_new(&kind, &w->setup, &lost, w, &victim, NULL), 0);
	peer_until(w, w->spawns == 2);
	come_up(w, w->listeners[0]);
	peer_hang_up(w);
	peer_until(w, !victim);
	/* In the answer of a call, while others wait, which are answered too. */
	assert_int_equal(peer_new(&kind, &w->setup, &ops, w, &victim, NULL), 0);
	peer_until(w, w->spawns == 3);
	come_up(w, w->listeners[0]);
	assert_int_equal(peer_call(victim, ASK, NULL, 0, NULL, 0, free_on_reply, &seen, NULL), 0);
	assert_int_equal(ask(victim, ASK), 0);
	peer_receive(w, ASK);
	buf_init(&b, 16);
	peer_answer(w, REPLY, 0, "", NULL, NULL, 0);
	peer_until(w, !victim);
	assert_int_equal(seen.n, 2);
	peer_hang_up(w);
	/* In what the end of the connection answers. */
	assert_int_equal(peer_new(&kind, &w->setup, &ops, w, &victim, NULL), 0);
	peer_until(w, w->spawns == 4);
	come_up(w, w->listeners[0]);
	assert_int_equal(peer_call(victim, ASK, NULL, 0, NULL, 0, free_on_reply, &seen, NULL), 0);
	assert_int_equal(ask(victim, ASK), 0);
	w->losts = 0;
	peer_hang_up(w);
	peer_until(w, !victim);
	assert_int_equal(seen.n, 4);
	assert_int_equal(w->losts, 0); /* it is gone: nobody is told */
	buf_fini(&b);
}

/* -- does it hang? ------------------------------------------------------------------------------------- */

/* One round of the loop, with one look in it at most; what has come is answered, and must be @probe. */
static void look(struct peer_world *w, uint16_t probe)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };

	assert_int_equal(loop_once(w->loop, 0), 0);
	if (w->fd >= 0 && poll(&p, 1, 0) == 1 && !(p.revents & POLLHUP)) {
		peer_receive(w, probe);
		peer_answer(w, REPLY, 0, "", NULL, NULL, 0);
	}
}

/* Connected, alive, without a word: it is ended, and another is started. */
static void test_hangs_while_a_call_waits_epipe(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start_and_up(w);

	peer_no_delays(true);
	assert_int_equal(ask(k, ASK), 0);
	peer_until(w, w->losts == 1);
	peer_no_delays(false);
	assert_int_equal(seen.code, -EPIPE);
	assert_non_null(strstr(seen.words, "crucible-pager hangs: it has said nothing for 60 s"));
	assert_false(peer_is_up(k));
	peer_until(w, w->spawns == 2);
	assert_int_equal(w->kills, 2); /* though its socket still takes connections */
	come_up(w, w->listeners[0]);
	peer_free(k);
}

/* It is slow, and says so when it is asked: nothing happens, however long that takes. */
static void test_slow_is_not_hung(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start_and_up(w);

	peer_no_delays(true);
	assert_int_equal(ask(k, ASK), 0);
	peer_receive(w, ASK);
	for (unsigned i = 0; i < 4 * PEER_STALLED_LOOKS; i++)
		look(w, GREETING);
	assert_int_equal(w->losts, 0);
	assert_true(peer_is_up(k));
	peer_free(k);
}

static unsigned looks_until_stuck(struct peer_world *w, unsigned rounds, bool progress)
{
	for (unsigned i = 0; i < rounds; i++) {
		if (w->losts)
			return i;
		if (progress && i % 50 == 0)
			assert_int_equal(msg_send(w->fd, PROGRESS, 7, NULL, 0, NULL, 0), 0);
		look(w, PROBE);
	}
	return rounds;
}

/* It answers, but one of its workers has stopped; one that gets on, slowly, is left alone. */
static void test_stuck_epipe(void **state)
{
	struct peer_world *w = *state;
	struct peer_kind telling = kind;
	struct peer *k = NULL;
	struct err e = { 0 };

	telling.progress = PROGRESS;
	telling.probe = PROBE;
	seen = (struct seen){ .w = w };
	assert_int_equal(peer_new(&telling, &w->setup, &ops, w, &k, &e), 0);
	peer_until(w, w->spawns == 1);
	come_up(w, w->listeners[0]);
	peer_no_delays(true);
	assert_int_equal(ask(k, ASK), 0);
	peer_receive(w, ASK);
	assert_int_equal(looks_until_stuck(w, 4 * PEER_STALLED_LOOKS, true), 4 * PEER_STALLED_LOOKS);
	assert_int_equal(w->losts, 0);
	assert_true(looks_until_stuck(w, 4 * PEER_STALLED_LOOKS, false) <= PEER_STALLED_LOOKS + 2);
	peer_no_delays(false);
	assert_int_equal(seen.code, -EPIPE);
	assert_non_null(strstr(seen.words, "is stuck"));
	peer_until(w, w->spawns == 2);
	assert_int_equal(w->kills, 2);
	peer_free(k);
}

/* Nobody looks at one of whom nothing is wanted. */
static void test_idle_is_not_looked_at(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start_and_up(w);
	struct pollfd p = { .fd = w->fd, .events = POLLIN };

	peer_no_delays(true);
	assert_int_equal(ask(k, ASK), 0);
	peer_receive(w, ASK);
	peer_answer(w, REPLY, 0, "", NULL, NULL, 0);
	for (unsigned i = 0; i < 4 * PEER_SILENT_LOOKS; i++)
		assert_int_equal(loop_once(w->loop, 0), 0);
	assert_int_equal(poll(&p, 1, 0), 0); /* it was not even asked */
	assert_int_equal(w->losts, 0);
	peer_free(k);
}

/* -- what nobody asked for ----------------------------------------------------------------------------- */

static void test_told(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start_and_up(w);
	struct buf b;

	told.n = 0;
	buf_init(&b, 256);
	wire_put_str(&b, "a page is damaged");
	assert_int_equal(msg_send(w->fd, NEWS, 0, b.data, b.len, NULL, 0), 0);
	assert_int_equal(msg_send(w->fd, REPLY, 4711, b.data, b.len, NULL, 0), 0); /* to nobody's question */
	peer_until(w, told.n == 1);
	peer_spin(w);
	assert_int_equal(told.n, 1);
	assert_int_equal(told.type, NEWS);
	assert_string_equal(told.text, "a page is damaged");
	assert_true(peer_is_up(k));
	buf_fini(&b);
	peer_free(k);
}

/* -- calls -------------------------------------------------------------------------------------------- */

static void test_call(void **state)
{
	struct peer_world *w = *state;
	struct peer *k = start_and_up(w);
	AUTO_FD null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int two[2] = { null, null }, before = peer_count_fds();
	uint32_t id = 0;
	struct buf b;

	assert_int_equal(peer_call(k, ASK, "what", 4, two, 2, on_reply, &seen, &id), 0);
	peer_receive(w, ASK);
	assert_int_equal(w->m.nfds, 2);
	assert_memory_equal(w->m.data, "what", 4);
	buf_init(&b, 64);
	wire_put_u32(&b, 77);
	peer_answer(w, REPLY, 0, "", &b, two, 1);
	peer_until(w, seen.n == 1);
	assert_int_equal(seen.code, 0);
	assert_int_equal(seen.value, 77);
	assert_int_equal(seen.nfds, 1);
	/* A refusal. */
	assert_int_equal(ask(k, ASK), 0);
	peer_receive(w, ASK);
	peer_answer(w, REPLY, -ENOENT, "no such thing", NULL, NULL, 0);
	peer_until(w, seen.n == 2);
	assert_int_equal(seen.code, -ENOENT);
	assert_string_equal(seen.words, "no such thing");
	assert_int_equal(peer_count_fds(), before); /* what came along and nobody took is closed */
	buf_fini(&b);
	peer_free(k);
}

static void test_arguments_e2big(void **state)
{
	struct peer_world *w = *state;
	struct peer_setup many = w->setup;
	struct peer *k = NULL;
	struct err e = { 0 };

	many.argc = LAUNCH_ARGS_MAX + 1;
	assert_int_equal(peer_new(&kind, &many, &ops, w, &k, &e), -E2BIG);
	assert_non_null(strstr(e.msg, "crucible-pager"));
	assert_null(k);
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
		with_world(test_hangs_while_a_call_waits_epipe),
		with_world(test_slow_is_not_hung),
		with_world(test_stuck_epipe),
		with_world(test_idle_is_not_looked_at),
		with_world(test_told),
		with_world(test_call),
		with_world(test_arguments_e2big),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
