/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that wait warm (warm.c): of the user's snapshot that was forked last, beside those of the prepared one. */
#include <stdlib.h>
#include "tests/unit/snapshot_fix.h"

static unsigned waiting(struct world *w, enum warm_of kind)
{
	return warm_count(w->reg, kind, true);
}

/* Forked once, and the machine for the next one waits. */
static struct snapshot *warmed(struct world *w, const char *name)
{
	struct snapshot *p = kept(w, name);
	struct err e = { 0 };

	w->cfg.warm_size = 1;
	assert_int_equal(fork_of(w, p, "first", &e), 0);
	until(w, waiting(w, WARM_FORKED) == 1);
	gone(w, registry_find(w->reg, NULL, "first"));
	return p;
}

static void all_gone(struct world *w, struct snapshot *p)
{
	while (w->reg->first)
		gone(w, w->reg->first);
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

static void test_the_second_fork_finds_one(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	const struct warm_kind *k = &w->reg->warm_kinds[WARM_FORKED];
	struct err e = { 0 };
	unsigned boxes;

	w->cfg.warm_size = 1;
	pool_fill(w->reg);
	until(w, !w->reg->pool_timer);
	assert_int_equal(fake_box_count(), 0); /* nobody has forked it */
	assert_int_equal(fork_of(w, p, "a", &e), 0);
	assert_int_equal(k->missed, 1);
	until(w, waiting(w, WARM_FORKED) == 1);
	assert_int_equal(fakes.holds[BOX_HOLD_NOT], 1);
	assert_int_equal(fakes.holds[BOX_HOLD_REHEARSED], 1);
	assert_int_equal(fakes.holds[BOX_HOLD_WARM], 0);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 0); /* nothing is run in it */
	assert_int_equal(fake_box_count(), 2);
	assert_int_equal(registry_count(w->reg), 1);
	assert_int_equal(warm_memory_mib(w->reg), p->memory_mib);
	boxes = w->fake.spawned_boxes;
	w->cfg.warm_size = 0; /* no further one */
	assert_int_equal(fork_of(w, p, "b", &e), 0);
	assert_int_equal(w->fake.spawned_boxes, boxes);
	assert_int_equal(fakes.holds[BOX_HOLD_NOT], 1);
	assert_int_equal(k->taken, 1);
	assert_int_equal(waiting(w, WARM_FORKED), 0);
	assert_string_equal(registry_find(w->reg, NULL, "b")->template, p->uuid);
	assert_string_equal(registry_find(w->reg, NULL, "b")->parent_uuid, p->uuid);
	assert_true(strstr(fakes.last_json, "\"name\":\"b\"") != NULL);
	all_gone(w, p);
}

/* With limits of its own, with another disk, or to be booted: it is not for those. */
static void test_who_does_not_get_it(void **state)
{
	struct world *w = *state;
	struct snapshot *p = warmed(w, "one");
	const struct warm_kind *k = &w->reg->warm_kinds[WARM_FORKED];
	struct snapshot_job *j = NULL;
	struct err e = { 0 };
	struct sandbox *s = new_sandbox(w, "limited", &root_user);

	assert_int_equal(sandbox_attr_store(s, ATTR_FROM, "snapshot:one", 12, &root_user, &e), 0);
	assert_int_equal(sandbox_attr_store(s, ATTR_CPU_PERCENT, "50", 2, &root_user, &e), 0);
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(snapshot_fork(p, "disk", true, &root_user, &j, &e), 0);
	assert_int_equal(job_result(w, j, &e), 0);
	assert_string_equal(registry_find(w->reg, NULL, "disk")->template, "");
	/* Who may not fork it is told so before anybody looks here. */
	assert_int_equal(snapshot_fork(p, "x", false, &alice, &j, &e), -EPERM);
	assert_int_equal(k->taken, 0);
	assert_int_equal(waiting(w, WARM_FORKED), 1);
	all_gone(w, p);
}

static void test_the_last_one_counts(void **state)
{
	struct world *w = *state;
	struct snapshot *one = warmed(w, "one"), *two;
	struct err e = { 0 };

	w->cfg.warm_size = 0;
	two = kept(w, "two");
	w->cfg.warm_size = 2;
	assert_int_equal(fork_of(w, two, "b", &e), 0);
	until(w, waiting(w, WARM_FORKED) == 2);
	assert_string_equal(w->reg->warm_kinds[WARM_FORKED].uuid, two->uuid);
	assert_int_equal(fake_box_count(), 3);
	warm_forget(w->reg, one); /* there is none of it any more */
	assert_int_equal(waiting(w, WARM_FORKED), 2);
	/* A batch takes what there is. */
	assert_int_equal(fork_of(w, two, "c d e", &e), 0);
	assert_int_equal(w->reg->warm_kinds[WARM_FORKED].taken, 2);
	while (w->reg->first)
		gone(w, w->reg->first);
	snapshot_destroy(one, &root_user);
	snapshot_destroy(two, &root_user);
	assert_clean(w);
}

static void test_it_goes_with_its_snapshot(void **state)
{
	struct world *w = *state;
	struct snapshot *p = warmed(w, "one");

	/* Damaged: it can be forked no more. */
	snapshot_set_status(p, SNAPSHOT_DAMAGED, "by a test");
	spin(w);
	assert_int_equal(fake_box_count(), 0);
	pool_fill(w->reg);
	until(w, !w->reg->pool_timer);
	assert_int_equal(fake_box_count(), 0);
	snapshot_set_status(p, SNAPSHOT_READY, "");
	pool_fill(w->reg);
	until(w, waiting(w, WARM_FORKED) == 1);
	/* Removed: nothing is left, not even one that is being made. */
	fakes.hold[FAKE_BOX][BOX_LOAD] = true;
	warm_give_up(w->reg);
	pool_fill(w->reg);
	until(w, fakes.asked[FAKE_BOX][BOX_LOAD] == 4);
	assert_int_equal(warm_count(w->reg, WARM_FORKED, false), 1);
	snapshot_destroy(p, &root_user);
	fakes_obey();
	assert_clean(w);
}

/* What fails while one is warmed is nobody's: not the snapshot's, not its owner's. And it is not tried for ever. */
static void test_failures(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	const struct warm_kind *k = &w->reg->warm_kinds[WARM_FORKED];
	static const struct {
		enum fake_who who;
		int type, code;
	} steps[] = {
		{ FAKE_PAGER, PAGER_TEMPLATE, -EBADMSG },
		{ FAKE_PAGER, PAGER_DISK_CREATE, -ENOSPC },
		{ FAKE_BOX, BOX_MEMORY, -ENOMEM },
		{ FAKE_BOX, BOX_LOAD, -EIO },
	};

	for (size_t i = 0; i <= ARRAY_LEN(steps); i++) {
		struct err e = { 0 };

		w->cfg.warm_size = 0;
		assert_int_equal(fork_of(w, p, "a", &e), 0);
		if (i < ARRAY_LEN(steps))
			fakes.refuse[steps[i].who][steps[i].type] = steps[i].code;
		else
			fakes.not_warm = true;
		w->cfg.warm_size = 1;
		assert_int_equal(k->failures, 0);
		pool_fill(w->reg);
		until(w, k->failures == 3 && !w->reg->pool_timer);
		spin(w);
		assert_null(w->reg->warm);
		assert_int_equal(p->status, SNAPSHOT_READY);
		assert_string_equal(p->error, "");
		assert_int_equal(p->failed_loads, 0);
		assert_int_equal(w->reg->n_failed_starts, 0);
		assert_int_equal(fake_box_count(), 1);
		assert_int_equal(fakes.nset[FAKE_DISKS], 1);
		fakes_obey();
		fakes.not_warm = false;
		gone(w, registry_find(w->reg, NULL, "a"));
	}
	all_gone(w, p);
}

static void test_short_memory(void **state)
{
	struct world *w = *state;
	struct snapshot *p;
	struct err e = { 0 };

	w->cfg.prepare = 1;
	w->cfg.warm_size = 1;
	fakes.runs_commands = true;
	gone(w, running(w, "a"));
	until(w, waiting(w, WARM_PREPARED) == 1);
	assert_int_equal(fakes.holds[BOX_HOLD_WARM], 1);
	p = kept(w, "one");
	assert_int_equal(fork_of(w, p, "b", &e), 0);
	until(w, waiting(w, WARM_PREPARED) == 1 && waiting(w, WARM_FORKED) == 1);
	/* That of a user's snapshot goes first, and only one. */
	assert_true(warm_give_up(w->reg));
	assert_int_equal(waiting(w, WARM_PREPARED), 1);
	assert_int_equal(waiting(w, WARM_FORKED), 0);
	assert_true(warm_give_up(w->reg));
	assert_int_equal(waiting(w, WARM_PREPARED), 0);
	assert_false(warm_give_up(w->reg));
	/* Whoever starts gets the room of both. */
	pool_fill(w->reg);
	until(w, waiting(w, WARM_PREPARED) == 1 && waiting(w, WARM_FORKED) == 1);
	w->cfg.warm_size = 0;
	w->reg->host_memory_mib = 2ul * p->memory_mib * 100 / w->cfg.overcommit_percent + 1;
	running(w, "c");
	assert_null(w->reg->warm);
}

/* It died while it waited: another is made. It dies as it is given away: the fork gets another machine. */
static void test_it_dies(void **state)
{
	struct world *w = *state;
	struct snapshot *p = warmed(w, "one");
	struct snapshot_job *j = NULL;
	struct sandbox *s;
	struct err e = { 0 };
	char id[LAUNCH_UUID_LEN + 1];

	snprintf(id, sizeof(id), "%s", fakes.set[FAKE_MACHINES][0]);
	fake_box_hang_up(id);
	until(w, !fakes_have(FAKE_MACHINES, id) && waiting(w, WARM_FORKED) == 1);
	assert_int_equal(w->reg->warm_kinds[WARM_FORKED].failures, 0);
	w->cfg.warm_size = 0;
	fakes.silent = true;
	assert_int_equal(snapshot_fork(p, "b", false, &root_user, &j, &e), 0);
	spin(w);
	s = registry_find(w->reg, NULL, "b");
	assert_int_equal(w->reg->warm_kinds[WARM_FORKED].taken, 1);
	assert_true(s->unproven);
	fakes.silent = false;
	fake_box_hang_up(s->machine);
	assert_int_equal(job_result(w, j, &e), 0);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_false(s->unproven);
	assert_int_equal(p->failed_loads, 0);
	all_gone(w, p);
}

/* A profile's sandbox loses its machine while it is trimmed: nobody's loss, and nothing is used after its end. */
static void test_a_worker_is_lost(void **state)
{
	struct world *w = *state;

	w->cfg.prepare = 1;
	fakes.runs_commands = true;
	no_delays(true);
	fakes.hold[FAKE_BOX][BOX_TRIM] = true;
	running(w, "a");
	until(w, fakes.asked[FAKE_BOX][BOX_TRIM] == 1);
	assert_non_null(w->reg->hidden);
	fake_box_hang_up(w->reg->hidden->machine);
	until(w, !w->reg->hidden);
	w->cfg.prepare = 0;
	fakes_obey();
	spin(w);
	gone(w, registry_find(w->reg, NULL, "a"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_the_second_fork_finds_one),
		T(test_who_does_not_get_it),
		T(test_the_last_one_counts),
		T(test_it_goes_with_its_snapshot),
		T(test_failures),
		T(test_short_memory),
		T(test_it_dies),
		T(test_a_worker_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
