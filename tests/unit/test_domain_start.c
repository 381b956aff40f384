/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that go on from their profile's prepared snapshot: what arrives while they are on their way. */
#include <errno.h>
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

/* One that starts and gets as far as it gets. */
static enum sandbox_status start(struct world *w, const char *name)
{
	struct sandbox *s = make(w, name);
	struct err e = { 0 };
	enum sandbox_status is;

	fakes.trace[0] = '\0';
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
	until(w, sandbox_status(s) != SBX_STARTING);
	is = sandbox_status(s);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
	return is;
}

static void test_a_missing_engine_is_no_damage(void **state)
{
	struct world *w = *state;

	prepare(w);
	w->fake.refuse_spawn = -ENOENT;
	assert_int_equal(start(w, "a"), SBX_FAILED);
	w->fake.refuse_spawn = 0;
	assert_int_equal(start(w, "b"), SBX_READY);
	assert_true(fakes_traced("P:TEMPLATE B:LOAD "));
}

static void test_what_loads_no_more_is_made_anew(void **state)
{
	struct world *w = *state;

	prepare(w);
	fakes.refuse[FAKE_BOX][BOX_LOAD] = -EIO;
	assert_int_equal(start(w, "a"), SBX_FAILED);
	assert_int_equal(start(w, "b"), SBX_FAILED);
	assert_int_equal(start(w, "c"), SBX_READY); /* from the beginning */
	assert_false(fakes_traced("B:LOAD "));
}

/* What the pager does not find is no failure of the start. */
static void test_without_its_pages_it_boots(void **state)
{
	struct world *w = *state;

	prepare(w);
	fakes.refuse[FAKE_PAGER][PAGER_TEMPLATE] = -EBADMSG;
	assert_int_equal(start(w, "a"), SBX_READY);
	assert_false(fakes_traced("B:LOAD "));
	fakes_obey();
	assert_int_equal(start(w, "b"), SBX_READY);
	assert_false(fakes_traced("P:TEMPLATE ")); /* it is not asked for again */
}

/* One that is stopped while its machine is made: its disk can be offered to the next one. */
static void test_a_stop_takes_the_offer_back(void **state)
{
	struct world *w = *state;
	struct sandbox *s;
	struct err e = { 0 };

	boxes_play(w);
	for (int held = 0; held < 2; held++) {
		s = make(w, held ? "b" : "a");
		fakes.hold[FAKE_PAGER][PAGER_DISK_EXPORT] = held; /* the answer has come, or not yet */
		w->fake.refuse_spawn = held ? 0 : -EAGAIN;
		assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
		spin(w);
		if (held)
			assert_int_equal(sandbox_ctl(s, "stop", &root_user, &e), 0);
		fakes_answer(FAKE_PAGER, PAGER_DISK_EXPORT);
		until(w, sandbox_status(s) == (held ? SBX_STOPPED : SBX_FAILED));
		assert_int_equal(fakes.nset[FAKE_DISKS], held + 1);
		spin(w);
		assert_int_equal(fakes.nset[FAKE_EXPORTS], held);
		w->fake.refuse_spawn = 0;
		assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
		until(w, sandbox_status(s) == SBX_READY);
		assert_int_equal(fakes.nset[FAKE_EXPORTS], held + 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_comes_while_it_goes_on_waits_for_it, world_setup,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_a_missing_engine_is_no_damage, world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_what_loads_no_more_is_made_anew, world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_a_stop_takes_the_offer_back, world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_without_its_pages_it_boots, world_setup, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
