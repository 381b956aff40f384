/* SPDX-License-Identifier: Apache-2.0 */
/* Machines of the pool (pool.c): who gets one, and what becomes of those who get one that had died. */
#include "agent/proto.h"
#include "cruciblefs/domain/revive.h"
#include "tests/unit/snapshot_fix.h"

/* So many machines wait; those that are taken are not made again. */
static void pool_of(struct world *w, unsigned n)
{
	w->cfg.pool_size = n;
	pool_fill(w->reg);
	until(w, pool_ready(w->reg) == n);
	w->cfg.pool_size = 0;
}

static void test_machines_of_the_pool(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct err e = { 0 };
	struct sandbox *s;
	unsigned boxes;

	w->cfg.pool_size = 2;
	no_delays(true);
	assert_int_equal(fork_of(w, p, "b", &e), 0);
	until(w, w->reg->npool == 2 && !w->reg->pool_machines->making && !w->reg->pool_machines->next->making);
	assert_int_equal(fake_box_count(), 3);
	/* The next one takes one of them. */
	boxes = w->fake.spawned_boxes;
	w->cfg.pool_size = 0;
	assert_int_equal(fork_of(w, p, "c", &e), 0);
	assert_int_equal(w->fake.spawned_boxes, boxes);
	assert_int_equal(w->reg->npool, 1);
	/* One that dies in the pool is nobody's loss. */
	fake_box_hang_up(w->reg->pool_machines->id);
	spin(w);
	assert_int_equal(w->reg->npool, 0);
	/* Limits of its own: no pooled machine is for it. */
	w->cfg.pool_size = 1;
	pool_fill(w->reg);
	until(w, w->reg->npool == 1 && !w->reg->pool_machines->making);
	s = new_sandbox(w, "e", &root_user);
	assert_int_equal(sandbox_attr_store(s, ATTR_FROM, "snapshot:one", 12, &root_user, &e), 0);
	assert_int_equal(sandbox_attr_store(s, ATTR_CPU_PERCENT, "50", 2, &root_user, &e), 0);
	sandbox_ctl(s, "start", &root_user, &e);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(w->reg->npool, 1);
	w->cfg.pool_size = 0;
	pool_drain(w->reg);
	while (w->reg->first)
		gone(w, w->reg->first);
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

/* It had died there, and that is known only when its sandbox waits for @who to answer @type: the sandbox gets another
 * one, which is made for it; when that dies too, it is told. */
static void loses_one(struct world *w, struct snapshot *p, enum fake_who who, int type)
{
	struct snapshot_job *j = NULL;
	struct sandbox *s;
	struct err e = { 0 };
	char id[LAUNCH_UUID_LEN + 1];

	for (unsigned lost = 1; lost <= 2; lost++) {
		pool_of(w, 2);
		memset(fakes.asked, 0, sizeof(fakes.asked));
		fakes.hold[who][type] = true;
		assert_int_equal(snapshot_fork(p, "d", false, &root_user, &j, &e), 0);
		s = registry_find(w->reg, NULL, "d");
		for (unsigned i = 1; i <= lost; i++) {
			until(w, fakes.asked[who][type] == i);
			memcpy(id, s->machine[0] ? s->machine : revive_machine(w->reg->revivals), sizeof(id));
			if (i == 2)
				assert_int_equal(pool_ready(w->reg), 1); /* the other one is none for it */
			fake_box_hang_up(id);
		}
		if (lost == 1) {
			until(w, fakes.asked[who][type] == 2);
			fakes_answer(who, type);
			assert_int_equal(job_result(w, j, &e), 0);
			assert_int_equal(sandbox_status(s), SBX_READY);
			assert_false(s->unproven || s->fresh);
			gone(w, s);
		} else {
			assert_int_equal(job_result(w, j, &e), -EIO);
			assert_says(e.msg, "its box ended");
			fakes_answer(who, type);
			spin(w);
		}
		assert_int_equal(p->failed_loads, 0);
		pool_drain(w->reg);
		spin(w);
	}
}

static void on_fs(void *arg, int code, struct wire_rd *r)
{
	(void)r;
	*(int *)arg = code;
}

/* A fork that has lost the first machine, after it was given it: the machine before is still ending. A call to its
 * files waits; its answer comes to *@ret_called. */
static struct sandbox *losing(struct world *w, struct snapshot *p, struct snapshot_job **ret, int *ret_called)
{
	struct sandbox *s;
	struct err e = { 0 };

	*ret_called = 1;
	pool_of(w, 1);
	memset(fakes.asked, 0, sizeof(fakes.asked));
	fakes.hold[FAKE_BOX][BOX_LOAD] = true;
	assert_int_equal(snapshot_fork(p, "d", false, &root_user, ret, &e), 0);
	s = registry_find(w->reg, NULL, "d");
	until(w, fakes.asked[FAKE_BOX][BOX_LOAD] == 1);
	assert_true(s->unproven);
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, ret_called, NULL), 0);
	w->fake.hold_kill = true;
	fake_box_hang_up(s->machine);
	until(w, s->down_pending);
	return s;
}

/* What comes in between: a call waits for the other machine; a stop is obeyed; a removal, too. */
static void test_while_a_machine_of_the_pool_is_lost(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct snapshot_job *j = NULL;
	struct sandbox *s;
	struct err e = { 0 };
	int early, waits = 1, comes = 1;

	no_delays(true);
	s = losing(w, p, &j, &early);
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &comes, NULL), 0);
	fake_launcher_answer(&w->fake);
	until(w, fakes.asked[FAKE_BOX][BOX_LOAD] == 2);
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &waits, NULL), 0);
	spin(w);
	assert_int_equal(early + comes + waits, 3);
	fakes_answer(FAKE_BOX, BOX_LOAD);
	assert_int_equal(job_result(w, j, &e), 0);
	until(w, early <= 0 && comes <= 0 && waits <= 0);
	assert_true(early != -ENOTCONN && comes != -ENOTCONN && waits != -ENOTCONN);
	gone(w, s);

	comes = 1;
	s = losing(w, p, &j, &early);
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &comes, NULL), 0);
	sandbox_ref(s); /* the batch that it was made in fails, and it goes */
	assert_int_equal(sandbox_ctl(s, "stop", &root_user, &e), 0);
	fake_launcher_answer(&w->fake);
	until(w, !s->down_pending);
	assert_int_equal(early, -ENOTCONN);
	assert_int_equal(comes, -ENOTCONN);
	assert_int_equal(sandbox_status(s), SBX_STOPPED);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_LOAD], 1);
	assert_int_equal(job_result(w, j, &e), -EIO);
	sandbox_unref(s);
	spin(w);

	comes = 1;
	s = losing(w, p, &j, &early);
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &comes, NULL), 0);
	registry_destroy(w->reg, s, &root_user, "test");
	fake_launcher_answer(&w->fake);
	assert_int_equal(job_result(w, j, &e), -ECANCELED);
	until(w, comes == -ENOENT && early == -ENOENT);
	fakes_obey();
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

/* bring_down() ends what is under way in order, which writes it down; here what is written of @s is as it was before.
 */
static void kill_daemon(struct world *w, const struct sandbox *s)
{
	AUTO_FREE char *text = NULL;
	char path[LAUNCH_UUID_LEN + 32];

	snprintf(path, sizeof(path), "sandboxes/%s/sandbox.json", s->uuid);
	assert_int_equal(fd_slurp(w->store_fd, path, 65536, &text, NULL), 0);
	bring_down(w);
	put(w, path, text);
}

/* A daemon that is killed in between leaves a sandbox that starts: from the snapshot, not with the disk that is gone.
 */
static void test_killed_while_a_machine_of_the_pool_is_lost(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct snapshot_job *j = NULL;
	struct sandbox *s;
	struct err e = { 0 };
	int early;

	no_delays(true);
	losing(w, p, &j, &early);
	snapshot_job_drop(j);
	fake_launcher_answer(&w->fake);
	until(w, fakes.asked[FAKE_BOX][BOX_LOAD] == 2);
	fakes.hold[FAKE_BOX][BOX_LOAD] = false;
	for (unsigned i = 0; i < 2; i++) {
		/* The second time: before it has any other machine. */
		if (i == 1) {
			losing(w, registry_find_snapshot(w->reg, NULL, "one"), &j, &early);
			snapshot_job_drop(j);
			fake_launcher_answer(&w->fake);
			fakes.hold[FAKE_PAGER][PAGER_TEMPLATE] = true;
			until(w, fakes.asked[FAKE_PAGER][PAGER_TEMPLATE] == 2);
		}
		kill_daemon(w, registry_find(w->reg, NULL, "d"));
		fakes_obey();
		bring_up(w);
		spin(w);
		s = registry_find(w->reg, NULL, "d");
		assert_non_null(s);
		assert_true(!s->disk[0] || fakes_have(FAKE_DISKS, s->disk));
		if (sandbox_status(s) != SBX_READY)
			assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
		until(w, sandbox_status(s) != SBX_STARTING);
		assert_string_equal(s->error, "");
		assert_int_equal(sandbox_status(s), SBX_READY);
		gone(w, s);
	}
}

/* What is not the machine's fault is not tried twice. */
static void test_a_full_disk_with_a_machine_of_the_pool(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct snapshot_job *j = NULL;
	struct err e = { 0 };

	no_delays(true);
	pool_of(w, 1);
	memset(fakes.asked, 0, sizeof(fakes.asked));
	fakes.refuse[FAKE_PAGER][PAGER_DISK_CREATE] = -ENOSPC;
	assert_int_equal(snapshot_fork(p, "d", false, &root_user, &j, &e), 0);
	assert_int_equal(job_result(w, j, &e), -EIO);
	assert_int_equal(fakes.asked[FAKE_PAGER][PAGER_DISK_CREATE], 1);
	assert_int_equal(p->status, SNAPSHOT_READY);
	fakes_obey();
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

static void test_a_machine_of_the_pool_is_lost(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");

	no_delays(true);
	loses_one(w, p, FAKE_PAGER, PAGER_TEMPLATE);
	loses_one(w, p, FAKE_BOX, BOX_MEMORY);
	loses_one(w, p, FAKE_PAGER, PAGER_DISK_EXPORT);
	loses_one(w, p, FAKE_BOX, BOX_LOAD);
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_machines_of_the_pool),
		T(test_while_a_machine_of_the_pool_is_lost),
		T(test_killed_while_a_machine_of_the_pool_is_lost),
		T(test_a_full_disk_with_a_machine_of_the_pool),
		T(test_a_machine_of_the_pool_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
