/* SPDX-License-Identifier: Apache-2.0 */
/* A store, a loop, a pool, a launcher that starts nothing: what the tests of the daemon's domain run in. */
#ifndef CRUCIBLE_TEST_DOMAIN_WORLD_H
#define CRUCIBLE_TEST_DOMAIN_WORLD_H

#include "cruciblefs/domain/config.h"
#include "cruciblefs/domain/domain.h"
#include "cruciblefs/sandbox.h"
#include "tests/unit/fake_launcher.h"

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
void bring_up(struct world *w);				       /* a daemon on the world's store */
void bring_down(struct world *w);			       /* as kill -9 would: nothing is told to anybody */
void spin(struct world *w);				       /* some rounds of the loop */
void put(struct world *w, const char *path, const char *text); /* a file of the store */

#endif
