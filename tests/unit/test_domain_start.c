/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that go on from their profile's prepared snapshot: what arrives while they are on their way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "agent/proto.h"
#include "cruciblefs/domain/domain.h"
#include "cruciblefs/sandbox.h"
#include "tests/unit/domain_world.h"

static struct sandbox *make(struct world *w, const char *name)
{
	struct sandbox *s = NULL;
	struct err e = { 0 };

	assert_int_equal(registry_create(w->reg, name, &root_user, &s, &e), 0);
	return s;
}

static void command(struct sandbox *s, const char *text)
{
	struct upload *u = NULL;
	struct err e = { 0 };

	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &root_user, &u, &e), 0);
	assert_int_equal(upload_write(u, text, strlen(text), &e), 0);
	upload_commit(u);
}

/* The default profile and shape have a snapshot to go on from. */
static void prepare(struct world *w)
{
	struct err e = { 0 };
	struct sandbox *s;

	bring_down(w);
	snprintf(w->engine.version, sizeof(w->engine.version), "7.2.22"); /* part of a snapshot's fingerprint */
	bring_up(w);
	w->cfg.prepare = 1;
	fakes.runs_commands = true;
	boxes_play(w);
	no_delays(true);
	s = make(w, "first");
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
	until(w, fakes.nset[FAKE_STORED] == 1 && sandbox_status(s) == SBX_READY);
	no_delays(false);
}

static void on_fs(void *arg, int code, struct wire_rd *r)
{
	(void)r;
	*(int *)arg = code;
}

static void test_what_comes_while_it_goes_on_waits_for_it(void **state)
{
	struct world *w = *state;
	int answer = 1, second = 1;
	struct sandbox *s;

	prepare(w);
	fakes.hold[FAKE_PAGER][PAGER_TEMPLATE] = true;
	s = make(w, "a");
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &answer, NULL), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_STARTING);
	command(s, "true\n"); /* which does not start it a second time */
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &second, NULL), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_STARTING);
	assert_int_equal(answer, 1);
	fakes_answer(FAKE_PAGER, PAGER_TEMPLATE);
	until(w, answer <= 0 && second <= 0 && exec_state(sandbox_exec(s, 1)) == EXEC_DONE);
	assert_int_equal(answer, 0);
	assert_int_equal(second, 0);
	assert_true(fakes_traced("P:TEMPLATE B:MEMORY B:LOAD "));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_comes_while_it_goes_on_waits_for_it, world_setup,
						world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
