/* SPDX-License-Identifier: Apache-2.0 */
/* A store, a loop, a pool, a launcher that starts nothing, a pager and a store process that are played: what the tests
 * of the daemon's domain run in. Nothing is prepared and no machine is made beforehand, unless the test says so. */
#ifndef CRUCIBLE_TEST_DOMAIN_WORLD_H
#define CRUCIBLE_TEST_DOMAIN_WORLD_H

#include "cruciblefs/domain/config.h"
#include "cruciblefs/domain/domain.h"
#include "cruciblefs/sandbox.h"
#include "tests/unit/fake_launcher.h"
#include "tests/unit/fakes.h"

#define DEADLINE_NS 20000000000u

extern const struct cfs_who root_user, alice;

struct world {
	char dir[64];
	struct config cfg;
	struct engine_info engine;
	struct loop *loop;
	struct pool *pool;
	struct fake_launcher fake;
	struct launcher *launcher;
	struct registry *reg;
	int store_fd;
};

int world_setup(void **state); /* of cmocka: *state becomes a struct world */
int world_teardown(void **state);
void bring_up(struct world *w);				  /* a daemon on the world's store */
void bring_up_with(struct world *w, const char *machine); /* which runs; NULL: none does */
void bring_down(struct world *w);			  /* as kill -9 would: nothing is told to anybody */
void spin(struct world *w);				  /* some rounds of the loop */
void boxes_play(struct world *w); /* from now on boxes answer by themselves (fake_box.c), and the test sees none */
/* Delays are as if they had passed, for timers that are made from now on. */
void no_delays(bool on);
uint64_t real_ns(void);
#define until(w, cond)                                        \
	do {                                                  \
		uint64_t until_end = real_ns() + DEADLINE_NS; \
		while (!(cond)) {                             \
			assert_true(real_ns() < until_end);   \
			loop_once((w)->loop, 5);              \
			spin(w);                              \
		}                                             \
	} while (0)
void put(struct world *w, const char *path, const char *text); /* a file of the store */
size_t count_entries(struct world *w, const char *path);       /* entries of a folder of the store */

#endif
