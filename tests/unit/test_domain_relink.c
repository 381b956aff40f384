/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots on their way into the store (ingest.c), what is told to a pager that was restarted (relink.c), and a daemon
 * that was killed while a sandbox took a machine's directory (machine.c, persist.c). */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/unit/snapshot_fix.h"

/* -- into the store --------------------------------------------------------------------------------------------- */

static void test_parents_first(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot *one, *two;

	fakes.hold[FAKE_STORE][STORE_INGEST] = true;
	one = take(w, s, "one");
	two = take(w, s, "two");
	spin(w);
	assert_int_equal(fakes.asked[FAKE_STORE][STORE_INGEST], 1);
	assert_non_null(strstr(fakes.last_json, one->uuid));
	assert_int_equal(snapshot_status(one), SNAPSHOT_STORING);
	assert_true(fakes_have(FAKE_CAPTURED, one->uuid) && fakes_have(FAKE_CAPTURED, two->uuid));
	fakes_answer(FAKE_STORE, STORE_INGEST);
	spin(w);
	assert_int_equal(fakes.asked[FAKE_STORE][STORE_INGEST], 2);
	assert_non_null(strstr(fakes.last_json, two->uuid));
	assert_int_equal(snapshot_status(one), SNAPSHOT_READY);
	assert_int_equal(snapshot_status(two), SNAPSHOT_READY);
	assert_int_equal(fakes.nset[FAKE_CAPTURED], 0);
	snapshot_destroy(one, &root_user);
	snapshot_destroy(two, &root_user);
	gone(w, s);
	assert_clean(w);
}

static void test_a_full_disk_is_tried_again(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot *p;

	fakes.refuse[FAKE_STORE][STORE_INGEST] = -ENOSPC;
	p = take(w, s, "one");
	no_delays(true);
	until(w, fakes.asked[FAKE_STORE][STORE_INGEST] > 3);
	assert_int_equal(snapshot_status(p), SNAPSHOT_STORING);
	assert_says(snapshot_error(p), "snapshot one: storing it: refused by the test");
	fakes_obey();
	until(w, snapshot_status(p) == SNAPSHOT_READY);
	assert_string_equal(snapshot_error(p), "");
	snapshot_destroy(p, &root_user);
	gone(w, s);
	assert_clean(w);
}

/* What it is a difference to is damaged: so is it, and the next is stored. */
static void test_damage_is_not_tried_again(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a"), *b = running(w, "b");
	struct snapshot *p, *q;

	fakes.refuse[FAKE_STORE][STORE_INGEST] = -EBADMSG;
	p = take(w, s, "one");
	spin(w);
	assert_int_equal(snapshot_status(p), SNAPSHOT_DAMAGED);
	assert_says(snapshot_error(p), "storing it");
	fakes_obey();
	q = take_ready(w, b, "two");
	assert_int_equal(snapshot_status(p), SNAPSHOT_DAMAGED);
	snapshot_destroy(p, &root_user);
	snapshot_destroy(q, &root_user);
	gone(w, s);
	gone(w, b);
	assert_clean(w);
}

/* The daemon is killed while one is stored: pager and store go on, the next daemon finds out. */
static void test_a_daemon_restarted_while_storing(void **state)
{
	struct world *w = *state;
	enum { CAPTURED, STORED, LOST, NO_STATE };

	for (int how = CAPTURED; how <= NO_STATE; how++) {
		struct sandbox *s = running(w, "a");
		char uuid[LAUNCH_UUID_LEN + 1], path[128];
		struct snapshot *p;
		int fds;

		fakes.hold[FAKE_STORE][STORE_INGEST] = true;
		p = take(w, s, "one");
		spin(w);
		memcpy(uuid, p->uuid, sizeof(uuid));
		bring_down(w);
		fakes_obey();
		if (how == STORED || how == LOST)
			fakes_drop(FAKE_CAPTURED, uuid);
		if (how == STORED)
			fakes_put(FAKE_STORED, uuid);
		snprintf(path, sizeof(path), "snapshots/%s/state", uuid);
		if (how == NO_STATE)
			assert_int_equal(unlinkat(w->store_fd, path, 0), 0);
		bring_up(w);
		spin(w);
		p = registry_find_snapshot(w->reg, NULL, "one");
		assert_non_null(p);
		if (how == CAPTURED || how == STORED) {
			assert_int_equal(snapshot_status(p), SNAPSHOT_READY);
			assert_true(fakes_have(FAKE_STORED, uuid));
			assert_int_equal(faccessat(w->store_fd, path, F_OK, 0), -1);
		} else {
			assert_int_equal(snapshot_status(p), SNAPSHOT_DAMAGED);
			assert_says(snapshot_error(p),
				    how == LOST ? "its pages were lost" : "its device state was lost");
		}
		/* Nothing is held twice, though pager and store both came up. */
		fds = count_fds();
		assert_true(p->template_fd < 0 && p->bits_fd < 0);
		spin(w);
		assert_int_equal(count_fds(), fds);
		gone(w, registry_find(w->reg, NULL, "a"));
		snapshot_destroy(p, &root_user);
		fakes.nset[FAKE_MACHINES] = fakes.nset[FAKE_EXPORTS] =
			0; /* of a daemon that was not killed but ended */
		assert_clean(w);
	}
}

/* It was being taken when the daemon was killed: it never was. */
static void test_a_daemon_restarted_while_capturing(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct err e = { 0 };
	struct snapshot *p = snapshot_new(w->reg);

	/* As it lies there then: nothing else is known of it. */
	snprintf(p->name, sizeof(p->name), "one");
	registry_make_uuid(p->uuid);
	assert_int_equal(attrs_copy(&p->attrs, &s->attrs), 0);
	assert_int_equal(snapshot_save(p, &e), 0);
	fakes_put(FAKE_TEMPLATES, p->uuid);
	snapshot_unref(p);
	gone(w, s);
	bring_down(w);
	bring_up(w);
	spin(w);
	assert_null(registry_find_snapshot(w->reg, NULL, "one"));
	assert_clean(w);
}

/* It was being taken when the daemon was killed, and its box may have put the machine onto it already: only the box
 * knows. */
static void test_a_daemon_killed_around_the_rebase(void **state)
{
	struct world *w = *state;

	for (int rebased = 0; rebased < 2; rebased++) {
		struct sandbox *s = running(w, "a");
		struct snapshot *p = snapshot_new(w->reg);
		struct snapshot_job *j = NULL;
		struct err e = { 0 };
		struct ask a;
		char uuid[LAUNCH_UUID_LEN + 1];

		/* As the next daemon finds it: the sandbox as it was before, the snapshot half taken. */
		snprintf(p->name, sizeof(p->name), "one");
		registry_make_uuid(p->uuid);
		memcpy(uuid, p->uuid, sizeof(uuid));
		memcpy(p->source_uuid, s->uuid, sizeof(p->source_uuid));
		p->memory_mib = 256;
		assert_int_equal(attrs_copy(&p->attrs, &s->attrs), 0);
		assert_int_equal(snapshot_save(p, &e), 0);
		int written = snapshot_make_state();

		assert_int_equal(write(written, "STATE", 5), 5);
		assert_int_equal(snapshot_keep_state(p, written), 0);
		close(written);
		snapshot_unref(p);
		fakes_put(FAKE_TEMPLATES, uuid);
		if (rebased) {
			fakes_put(FAKE_CAPTURED, uuid);
			ask_init(&a);
			ask_u64(&a, 256 << 20);
			ask_u32(&a, 0);
			ask_str(&a, uuid);
			ask_fd(&a, w->store_fd);
			assert_int_equal(ask_box(s->link, BOX_MEMORY, &a, NULL, NULL), 0);
			spin(w);
		}
		assert_int_equal(snapshots_load(w->reg, &e), 0);
		snapshots_sweep(w->reg);
		spin(w);
		assert_true(fakes_have(FAKE_TEMPLATES, uuid)); /* until its box has said */
		assert_int_equal(sandbox_snapshot(s, "two", &root_user, &j, &e), -EBUSY);
		relink_adopted(s);
		spin(w);
		assert_null(registry_find_snapshot(w->reg, NULL, "one"));
		if (rebased) {
			assert_string_equal(s->template, uuid);
			assert_string_equal(s->origin, uuid);
			assert_true(s->attached);
			assert_true(fakes_have(FAKE_STORED, uuid) && fakes_have(FAKE_TEMPLATES, uuid));
		} else {
			assert_string_equal(s->template, "");
			assert_false(fakes_have(FAKE_TEMPLATES, uuid));
		}
		assert_int_equal(sandbox_status(s), SBX_READY);
		gone(w, s);
		assert_clean(w);
	}
}

/* A box that names what is nobody's loses its machine. */
static void test_memory_of_nobody_knows_what(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a"), *b = running(w, "b");
	struct snapshot *p = take_ready(w, s, "one"), *q = take_ready(w, b, "two");

	memcpy(s->template, q->uuid, sizeof(s->template)); /* its box knows better, and may */
	relink_sandbox(s);
	spin(w);
	assert_string_equal(s->template, p->uuid);
	assert_int_equal(sandbox_status(s), SBX_READY);
	memcpy(p->source_uuid, b->uuid, sizeof(p->source_uuid)); /* now that is another's */
	s->template[0] = '\0';
	relink_sandbox(s);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_says(sandbox_error(s), "could not hand over its memory");
}

/* -- a pager that was restarted ---------------------------------------------------------------------------------- */

static void test_a_fresh_pager_is_told_all(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a"), *cold = running(w, "cold"), *f;
	struct snapshot *p = take_ready(w, s, "one"), *q;
	struct err e = { 0 };

	assert_int_equal(fork_of(w, p, "b", &e), 0);
	f = registry_find(w->reg, NULL, "b");
	/* One more is on its way into the store. */
	fakes.hold[FAKE_STORE][STORE_INGEST] = true;
	q = take(w, s, "two");
	spin(w);
	fakes_lose(FAKE_PAGER);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(job_result(w, begin_snapshot(s, "three", &e), &e), -ENOTCONN);
	assert_says(e.msg, "sandbox a: snapshot three: making a template: it is not there");
	assert_null(registry_find_snapshot(w->reg, NULL, "three"));
	fakes.trace[0] = '\0';
	fakes_up(FAKE_PAGER, true);
	spin(w);
	assert_true(fakes_traced("P:CONFIG P:ADOPT P:DISK_EXPORT B:MEMORY_AGAIN P:ADOPT P:ATTACH "));
	assert_true(fakes_have(FAKE_MACHINES, s->machine) && fakes_have(FAKE_MACHINES, f->machine));
	assert_false(fakes_have(FAKE_MACHINES, cold->machine)); /* nobody had asked for its memory */
	assert_true(fakes_have(FAKE_EXPORTS, s->machine) && fakes_have(FAKE_EXPORTS, f->machine) &&
		    fakes_have(FAKE_EXPORTS, cold->machine));
	assert_true(fakes_have(FAKE_TEMPLATES, p->uuid) && fakes_have(FAKE_TEMPLATES, q->uuid));
	assert_true(s->attached && f->attached && !cold->attached);
	fakes_answer(FAKE_STORE, STORE_INGEST);
	until(w, snapshot_status(q) == SNAPSHOT_READY);
	/* A box that cannot hand over: that machine is lost, in words. */
	fakes_lose(FAKE_PAGER);
	fakes.refuse[FAKE_BOX][BOX_MEMORY_AGAIN] = -EIO;
	fakes_up(FAKE_PAGER, true);
	spin(w);
	assert_int_equal(sandbox_status(f), SBX_FAILED);
	assert_says(sandbox_error(f), "could not hand over its memory");
}

/* The first capture of a machine that booted cold fails after its memory was asked for, and the pager is another one
 * then: there is nothing to hand over yet. */
static void test_cold_and_known(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct err e = { 0 };

	fakes.refuse[FAKE_PAGER][PAGER_CAPTURE_BEGIN] = -EIO;
	assert_int_equal(job_result(w, begin_snapshot(s, "one", &e), &e), -EIO);
	fakes_obey();
	assert_true(fakes_have(FAKE_MACHINES, s->machine));
	fakes_lose(FAKE_PAGER);
	fakes.trace[0] = '\0';
	fakes_up(FAKE_PAGER, true);
	spin(w);
	assert_true(fakes_traced("B:MEMORY_AGAIN "));
	assert_false(fakes_traced("P:ATTACH "));
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_false(s->attached);
	take_ready(w, s, "one");
	assert_true(fakes_traced("B:MEMORY P:ATTACH P:CAPTURE_BEGIN "));
	assert_true(s->attached);
}

/* The pager dies before it has answered the ATTACH: its successor gets the machine, which goes on. */
static void test_lost_before_it_took_the_memory(void **state)
{
	struct world *w = *state;

	for (int fresh = 0; fresh < 2; fresh++) {
		struct sandbox *s = running(w, "a");
		struct err e = { 0 };
		struct snapshot *p = take_ready(w, s, "zero");
		struct snapshot_job *j;

		fakes.hold[FAKE_PAGER][PAGER_ATTACH] = true;
		j = begin_snapshot(s, "one", &e);
		assert_int_equal(job_result(w, j, &e), 0);
		spin(w);
		fakes_lose(FAKE_PAGER);
		fakes_obey();
		spin(w);
		assert_int_equal(sandbox_status(s), SBX_READY);
		fakes.nset[FAKE_MACHINES] = 0;
		fakes_up(FAKE_PAGER, fresh);
		spin(w);
		assert_int_equal(sandbox_status(s), SBX_READY);
		assert_true(s->attached);
		assert_true(fakes_have(FAKE_MACHINES, s->machine));
		snapshot_destroy(p, &root_user);
		snapshot_destroy(registry_find_snapshot(w->reg, NULL, "one"), &root_user);
		gone(w, s);
		until(w, !w->reg->first_snapshot);
		assert_clean(w);
	}
}

static void test_a_page_that_cannot_be_read_ends_its_machine(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a"), *b = running(w, "b");

	fakes_pager_lost(s->machine, "frame 7 is damaged");
	fakes_pager_lost("00000000-0000-4000-8000-000000000000", "nobody's");
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_says(sandbox_error(s), "the machine was lost: a page of its memory cannot be read: frame 7 is damaged");
	assert_int_equal(sandbox_status(b), SBX_READY);
	gone(w, s);
	gone(w, b);
	assert_clean(w);
}

static void test_a_start_waits_for_the_pager(void **state)
{
	struct world *w = *state;
	struct sandbox *s;
	struct err e = { 0 };

	fakes_lose(FAKE_PAGER);
	s = new_sandbox(w, "a", &root_user);
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_STARTING);
	fakes_up(FAKE_PAGER, true);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
	gone(w, s);
	/* It fails again and again: in words. */
	fakes_lose(FAKE_PAGER);
	fakes.degraded[FAKE_PAGER] = "crucible-pager: failed 5 times in a minute";
	s = new_sandbox(w, "a", &root_user);
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_says(sandbox_error(s), "failed 5 times in a minute");
}

/* -- killed while a machine's directory was taken --------------------------------------------------------------------
 */

static void test_a_crash_between_the_steps_of_taking_a_directory(void **state)
{
	struct world *w = *state;

	for (int step = 0; step < 4; step++) {
		struct sandbox *s = new_sandbox(w, "a", &root_user);
		char uuid[LAUNCH_UUID_LEN + 1], id[LAUNCH_UUID_LEN + 1], from[200], to[200];
		struct err e = { 0 };
		int dir, own;

		/* A command that was accepted before, and a machine that stands by. */
		fakes.hold[FAKE_PAGER][PAGER_DISK_CREATE] = true;
		command(s, "true\n");
		registry_make_uuid(id);
		assert_int_equal(machine_make_dir(w->reg, id), 0);
		memcpy(uuid, s->uuid, sizeof(uuid));
		snprintf(s->machine, sizeof(s->machine), "%s", id);
		assert_int_equal(sandbox_save(s, &e), 0);
		dir = openat(w->reg->sandboxes_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		own = openat(w->reg->sandboxes_fd, uuid, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (step > 0)
			assert_int_equal(renameat2(dir, "box", own, "box", RENAME_EXCHANGE), 0);
		if (step > 1)
			assert_int_equal(renameat(dir, "box/exec", own, "box/exec"), 0);
		if (step > 2)
			assert_int_equal(unlinkat(dir, "box", AT_REMOVEDIR), 0);
		close(dir);
		close(own);
		s->machine[0] = '\0';
		s = NULL;
		/* kill -9: what an orderly end would write is not there. */
		snprintf(from, sizeof(from), "sandboxes/%s/sandbox.json", uuid);
		snprintf(to, sizeof(to), "sandboxes/%s/kept", uuid);
		assert_int_equal(linkat(w->store_fd, from, w->store_fd, to, 0), 0);
		bring_down(w);
		assert_int_equal(renameat(w->store_fd, to, w->store_fd, from), 0);
		fakes_obey();
		bring_up(w);
		spin(w);
		s = registry_find(w->reg, NULL, "a");
		assert_non_null(s);
		assert_int_equal(sandbox_latest_exec(s), 1);
		snprintf(from, sizeof(from), "sandboxes/%s/box/exec/1/cmd", uuid);
		assert_int_equal(faccessat(w->store_fd, from, F_OK, 0), 0);
		until(w, count_entries(w, "sandboxes") == 1); /* the machine's is gone */
		gone(w, s);
		fakes.nset[FAKE_DISKS] = 0; /* nobody had written down that there is one */
		assert_clean(w);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_parents_first),
		T(test_a_full_disk_is_tried_again),
		T(test_damage_is_not_tried_again),
		T(test_a_daemon_restarted_while_storing),
		T(test_a_daemon_restarted_while_capturing),
		T(test_a_daemon_killed_around_the_rebase),
		T(test_memory_of_nobody_knows_what),
		T(test_a_fresh_pager_is_told_all),
		T(test_cold_and_known),
		T(test_lost_before_it_took_the_memory),
		T(test_a_page_that_cannot_be_read_ends_its_machine),
		T(test_a_start_waits_for_the_pager),
		T(test_a_crash_between_the_steps_of_taking_a_directory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
