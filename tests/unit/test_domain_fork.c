/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of forks (fork.c): all or none, names, waiting; and removal of what forks descend from (snapshot.c). */
#include <stdlib.h>
#include "tests/unit/snapshot_fix.h"

static void test_names(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot *p = take_ready(w, s, "one");
	struct snapshot_job *j = NULL;
	struct buf b;
	static const struct {
		const char *text;
		int code;
		const char *words;
	} bad[] = {
		{ "0", -EINVAL, "not a number from 1 to 256" },
		{ "257", -EINVAL, "not a number from 1 to 256" },
		{ "99999999999999999999999", -EINVAL, "not a number from 1 to 256" },
		{ "a", -EEXIST, "run/a exists" },
		{ "x y x", -EEXIST, "x is named twice" },
		{ "x ../y", -EINVAL, "\"../y\" is neither" },
		{ "x .y", -EINVAL, "neither a number nor a name" },
		{ "x a23456789-123456789-123456789-123456789-123456789-123456789-1234", -ENAMETOOLONG,
		  "63 characters" },
		{ "-1", -EINVAL, "neither" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct err e = { 0 };

		assert_int_equal(snapshot_fork(p, bad[i].text, false, &root_user, &j, &e), bad[i].code);
		assert_says(e.msg, bad[i].words);
		assert_int_equal(registry_count(w->reg), 1);
	}
	struct err e = { 0 };

	new_sandbox(w, "one-2", &root_user);
	assert_int_equal(fork_of(w, p, "2", &e), 0);
	buf_init(&b, 1 << 16);
	assert_int_equal(snapshot_last_batch(p, &b), 0);
	assert_string_equal(buf_str(&b), "one-1\none-3\n");
	buf_reset(&b);
	assert_int_equal(fork_of(w, p, " x\ty\r\nz ", &e), 0);
	snapshot_last_batch(p, &b);
	assert_string_equal(buf_str(&b), "x\ny\nz\n");
	buf_fini(&b);
	for (s = snapshot_next_fork(p, NULL); s; s = snapshot_next_fork(p, s))
		assert_int_equal(sandbox_status(s), SBX_READY);
	/* Who may. */
	assert_int_equal(snapshot_fork(p, "1", false, &alice, &j, &e), -EPERM);
	while (w->reg->first)
		gone(w, w->reg->first);
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

/* One of them is refused when the others have begun. */
static void test_all_or_none(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot *p = take_ready(w, s, "one");
	struct snapshot_job *j = NULL;
	struct err e = { 0 };

	/* At once: the quota, with two made. */
	w->cfg.max_sandboxes = 3;
	assert_int_equal(snapshot_fork(p, "3", false, &root_user, &j, &e), -EDQUOT);
	spin(w);
	assert_int_equal(registry_count(w->reg), 1);
	assert_int_equal(fake_box_count(), 1);
	w->cfg.max_sandboxes = 100;
	/* Later: the box of one ends while it comes up. */
	fakes.hold[FAKE_BOX][BOX_LOAD] = true;
	assert_int_equal(snapshot_fork(p, "x y z", false, &root_user, &j, &e), 0);
	spin(w);
	assert_int_equal(snapshot_job_result(j, NULL), -EAGAIN);
	fake_box_hang_up(registry_find(w->reg, NULL, "y")->machine);
	fakes_answer(FAKE_BOX, BOX_LOAD);
	assert_int_equal(job_result(w, j, &e), -EIO);
	assert_says(e.msg, "none was made");
	assert_says(snapshot_error(p), "its box ended");
	spin(w);
	assert_int_equal(registry_count(w->reg), 1);
	assert_int_equal(fake_box_count(), 1);
	/* One of them is removed meanwhile. */
	fakes.hold[FAKE_BOX][BOX_LOAD] = true;
	assert_int_equal(snapshot_fork(p, "x y", false, &root_user, &j, &e), 0);
	spin(w);
	registry_destroy(w->reg, registry_find(w->reg, NULL, "x"), &root_user, "test");
	assert_int_equal(job_result(w, j, &e), -ECANCELED);
	fakes_answer(FAKE_BOX, BOX_LOAD);
	spin(w);
	assert_int_equal(registry_count(w->reg), 1);
	/* Nobody waits: they come up all the same. */
	assert_int_equal(snapshot_fork(p, "x y", false, &root_user, &j, &e), 0);
	snapshot_job_drop(j);
	spin(w);
	assert_int_equal(sandbox_status(registry_find(w->reg, NULL, "y")), SBX_READY);
	/* The daemon ends while some come up. */
	fakes.hold[FAKE_BOX][BOX_LOAD] = true;
	assert_int_equal(snapshot_fork(p, "u v", false, &root_user, &j, &e), 0);
	snapshot_job_drop(j);
	spin(w);
	bring_down(w);
	fakes_reset(NULL);
	bring_up(w);
	assert_non_null(registry_find(w->reg, NULL, "u"));
}

/* While it is being taken there is nothing to fork; from then on there is, stored or not. */
static void test_when_it_can_be_forked(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot_job *j, *f = NULL;
	struct err e = { 0 };
	struct snapshot *p;

	fakes.hold[FAKE_PAGER][PAGER_CAPTURE] = true;
	fakes.hold[FAKE_STORE][STORE_INGEST] = true;
	j = begin_snapshot(s, "one", &e);
	spin(w);
	p = registry_find_snapshot(w->reg, NULL, "one");
	assert_int_equal(snapshot_fork(p, "b", false, &root_user, &f, &e), -EBUSY);
	assert_int_equal(snapshot_fork(p, "b", true, &root_user, &f, &e), -EBUSY);
	fakes_answer(FAKE_PAGER, PAGER_CAPTURE);
	assert_int_equal(job_result(w, j, &e), 0);
	assert_int_equal(snapshot_status(p), SNAPSHOT_STORING);
	fakes.trace[0] = '\0';
	assert_int_equal(fork_of(w, p, "b", &e), 0);
	assert_false(fakes_traced("S:STATE ")); /* it is a file here */
	fakes_answer(FAKE_STORE, STORE_INGEST);
	spin(w);
	assert_int_equal(snapshot_status(p), SNAPSHOT_READY);
	gone(w, s);
	gone(w, registry_find(w->reg, NULL, "b"));
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

/* rmdir of what others stand on: hidden at once, kept until the last of them is gone. What that itself was a difference
 * to goes: it is in the store, and stands for itself. */
static void test_removed_while_forks_live(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a"), *b;
	struct snapshot *one = take_ready(w, s, "one"), *two = take_ready(w, s, "two");
	struct err e = { 0 };
	char uuid[LAUNCH_UUID_LEN + 1], first[LAUNCH_UUID_LEN + 1];

	memcpy(uuid, two->uuid, sizeof(uuid));
	memcpy(first, one->uuid, sizeof(first));
	assert_int_equal(fork_of(w, two, "b", &e), 0);
	b = registry_find(w->reg, NULL, "b");
	snapshot_destroy(two, &root_user);
	snapshot_destroy(one, &root_user);
	spin(w);
	assert_null(registry_find_snapshot(w->reg, NULL, "one"));
	assert_null(registry_next_snapshot(w->reg, NULL, NULL));
	assert_non_null(snapshot_by_uuid(w->reg, uuid));
	assert_null(snapshot_by_uuid(w->reg, first));
	assert_false(fakes_have(FAKE_STORED, first));
	assert_true(fakes_have(FAKE_STORED, uuid));
	/* Its name can be used again, for another. */
	assert_string_not_equal(take_ready(w, s, "one")->uuid, uuid);
	snapshot_destroy(registry_find_snapshot(w->reg, NULL, "one"), &root_user);
	gone(w, s);
	assert_non_null(snapshot_by_uuid(w->reg, uuid));
	/* A restart of the daemon forgets none of it. */
	assert_int_equal(sandbox_ctl(b, "stop", &root_user, &e), 0);
	spin(w);
	bring_down(w);
	bring_up(w);
	spin(w);
	assert_null(registry_find_snapshot(w->reg, NULL, "two"));
	assert_non_null(snapshot_by_uuid(w->reg, uuid));
	assert_true(fakes_have(FAKE_STORED, uuid));
	gone(w, registry_find(w->reg, NULL, "b"));
	assert_null(w->reg->first_snapshot);
	assert_true(fakes_traced("P:FORGET S:REMOVE "));
	assert_clean(w);
}

/* At the bottom of a line's disks lies the map of the snapshot that its first machine was born of, however many were
 * taken since, and although all of those are stored: it is kept for every machine of that line, over restarts too. */
static void test_removed_while_a_disk_was_born_of_it(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a"), *b, *c;
	struct snapshot *one = take_ready(w, s, "one"), *two;
	struct err e = { 0 };
	char uuid[LAUNCH_UUID_LEN + 1];

	memcpy(uuid, one->uuid, sizeof(uuid));
	assert_int_equal(fork_of(w, one, "b", &e), 0);
	gone(w, s);
	b = registry_find(w->reg, NULL, "b");
	two = take_ready(w, b, "two");
	/* b stands on two now, memory and disk, but for the bottom. */
	assert_string_equal(b->origin, two->uuid);
	assert_string_equal(b->template, two->uuid);
	snapshot_destroy(one, &root_user);
	spin(w);
	assert_true(fakes_have(FAKE_STORED, uuid));
	/* c was born of two, whose layers lie on it. */
	assert_int_equal(fork_of(w, two, "c", &e), 0);
	c = registry_find(w->reg, NULL, "c");
	assert_string_equal(c->birth, two->uuid);
	gone(w, b);
	snapshot_destroy(two, &root_user);
	spin(w);
	assert_non_null(snapshot_by_uuid(w->reg, uuid));
	assert_true(fakes_have(FAKE_STORED, uuid));
	assert_int_equal(sandbox_ctl(c, "stop", &root_user, &e), 0);
	spin(w);
	bring_down(w);
	bring_up(w);
	spin(w);
	assert_non_null(snapshot_by_uuid(w->reg, uuid));
	assert_true(fakes_have(FAKE_STORED, uuid));
	gone(w, registry_find(w->reg, NULL, "c"));
	assert_null(w->reg->first_snapshot);
	assert_clean(w);
}

/* The store is away when it really goes: told when it is back. */
static void test_removed_while_the_store_is_away(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot *p = take_ready(w, s, "one");

	gone(w, s);
	fakes_lose(FAKE_STORE);
	snapshot_destroy(p, &root_user);
	spin(w);
	assert_null(registry_find_snapshot(w->reg, NULL, "one"));
	assert_int_equal(fakes.nset[FAKE_STORED], 1);
	fakes_up(FAKE_STORE, true);
	spin(w);
	assert_clean(w);
}

/* Nothing needs it, and the store is at it: that is told to stop, and does not keep it. */
static void test_removed_while_the_store_is_at_it(void **state)
{
	struct world *w = *state;

	for (int last = 0; last < 2; last++) {
		struct sandbox *s = running(w, "a");
		struct snapshot *p;
		struct err e = { 0 };

		fakes.hold[FAKE_STORE][STORE_INGEST] = true;
		p = take(w, s, "one");
		until(w, p->work.id);
		fakes.trace[0] = '\0';
		if (last)
			gone(w, s);
		snapshot_destroy(p, &root_user);
		spin(w);
		if (!last) { /* its source stands on it */
			assert_false(fakes_traced("S:CANCEL "));
			gone(w, s);
		}
		assert_true(fakes_traced("S:CANCEL P:FORGET S:REMOVE "));
		assert_int_equal(fakes.nset[FAKE_STORED], 0);
		assert_clean(w);
		fakes_obey();
		/* While it is checked. */
		s = running(w, "a");
		p = take_ready(w, s, "one");
		gone(w, s);
		fakes.hold[FAKE_STORE][STORE_VERIFY] = true;
		assert_int_equal(snapshot_verify(p, &root_user, &e), 0);
		fakes.trace[0] = '\0';
		snapshot_destroy(p, &root_user);
		assert_true(fakes_traced("S:CANCEL "));
		spin(w);
		assert_clean(w);
		fakes_obey();
	}
}

/* It is in somebody's hands when it is removed: swept when they let go. */
static void test_removed_while_a_fork_comes_up(void **state)
{
	struct world *w = *state;

	for (int fails = 0; fails < 2; fails++) {
		struct sandbox *s = running(w, "a");
		struct snapshot *p = take_ready(w, s, "one");
		struct snapshot_job *j = NULL;
		struct err e = { 0 };

		gone(w, s);
		fakes.hold[FAKE_PAGER][PAGER_TEMPLATE] = true;
		assert_int_equal(snapshot_fork(p, "b", false, &root_user, &j, &e), 0);
		spin(w);
		snapshot_destroy(p, &root_user);
		fakes.refuse[FAKE_PAGER][PAGER_TEMPLATE] = fails ? -EIO : 0;
		fakes_answer(FAKE_PAGER, PAGER_TEMPLATE);
		assert_int_equal(job_result(w, j, &e), fails ? -EIO : 0);
		fakes_obey();
		if (!fails)
			gone(w, registry_find(w->reg, NULL, "b"));
		assert_clean(w);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_names),
		T(test_all_or_none),
		T(test_when_it_can_be_forked),
		T(test_removed_while_forks_live),
		T(test_removed_while_a_disk_was_born_of_it),
		T(test_removed_while_the_store_is_away),
		T(test_removed_while_the_store_is_at_it),
		T(test_removed_while_a_fork_comes_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
