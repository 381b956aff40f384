/* SPDX-License-Identifier: Apache-2.0 */
/* A store and a launcher that starts nothing but keeps what it was given: the test itself is then the process at the
 * other end. Failures end the test (cmocka's assertions). */
#ifndef CRUCIBLE_TESTS_PEER_FIX_H
#define CRUCIBLE_TESTS_PEER_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cruciblefs/domain/peer.h"

#define DEADLINE_NS 20000000000u
#define SNAP_A	    "0f0e0d0c-0b0a-4908-8706-050403020100"
#define SNAP_B	    "1f0e0d0c-0b0a-4908-8706-050403020100"
#define MACHINE_A   "2f0e0d0c-0b0a-4908-8706-050403020100"

struct peer_world {
	char dir[64];
	struct loop *loop;
	struct peer_setup setup;
	/* the launcher */
	int refuse_spawn; /* -errno */
	bool hold;	  /* it answers by peer_launcher_answers() only */
	unsigned kills, spawns;
	char killed[LAUNCH_UUID_LEN + 1]; /* the last */
	struct launch_spawn last;
	char last_args[256];
	int listeners[PEER_LISTEN_MAX]; /* what the last one started has as 3 and 4 */
	/* the other end */
	int fd;
	uint8_t in[MSG_MAX];
	struct msg m;
	/* what the link told */
	unsigned ups, losts;
	bool fresh;
	char words[256];
};

int peer_setup_world(void **state);
int peer_teardown_world(void **state);
/* Delays are as if they had passed, for links that are made afterwards too. */
void peer_no_delays(bool on);

void peer_on_up(void *arg, bool fresh);
void peer_on_lost(void *arg, const char *words);

#define peer_until(w, cond)                                            \
	do {                                                           \
		uint64_t peer_end = peer_real_ns() + DEADLINE_NS;      \
		while (!(cond)) {                                      \
			assert_true(peer_real_ns() < peer_end);        \
			assert_int_equal(loop_once((w)->loop, 20), 0); \
		}                                                      \
	} while (0)
uint64_t peer_real_ns(void);
void peer_spin(struct peer_world *w); /* what is ready now */
void peer_launcher_answers(struct peer_world *w);

/* Take the link's connection from @listener. */
void peer_accept(struct peer_world *w, int listener);
void peer_receive(struct peer_world *w, uint16_t type); /* the next message must be of it: w->m */
/* Answer w->m; @payload may be NULL. */
void peer_answer(struct peer_world *w, uint16_t type, int code, const char *words, const struct buf *payload,
		 const int *fds, size_t nfds);
void peer_hang_up(struct peer_world *w);			   /* it dies */
int peer_listen_as_before(struct peer_world *w, const char *path); /* of a process that another daemon started */
int peer_count_fds(void);

#endif
