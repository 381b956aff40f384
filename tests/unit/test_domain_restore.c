/* SPDX-License-Identifier: Apache-2.0 */
/* Going on from a snapshot (restore.c), of a profile's prepared one too (prepare.c). With machines of the pool:
 * test_domain_pool.c. */
#include "tests/unit/snapshot_fix.h"

static void test_the_order_of_requests(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct err e = { 0 };
	struct sandbox *s;

	fakes.trace[0] = '\0';
	assert_int_equal(fork_of(w, p, "b", &e), 0);
	s = registry_find(w->reg, NULL, "b");
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_true(fakes_traced("P:TEMPLATE P:DISK_CREATE S:STATE P:DISK_EXPORT B:MEMORY B:START P:ATTACH B:LOAD "));
	assert_says(fakes.last_json, "\"restore\":true");
	assert_says(fakes.last_json, "\"parent\":\"one\"");
	assert_string_equal(s->template, p->uuid);
	assert_string_equal(s->origin, p->uuid);
	assert_string_equal(s->parent_uuid, p->uuid);
	assert_true(fakes_have(FAKE_DISKS, s->disk) && fakes_have(FAKE_MACHINES, s->machine));
	assert_true(s->attached && !s->restore && !s->start);
	/* A second one has the state at hand. */
	fakes.trace[0] = '\0';
	assert_int_equal(fork_of(w, p, "c", &e), 0);
	assert_false(fakes_traced("S:STATE "));
	gone(w, s);
	gone(w, registry_find(w->reg, NULL, "c"));
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

static const struct step {
	enum fake_who who;
	int type;
	const char *words;
	bool given; /* the machine was the sandbox's by then */
} steps[] = {
	{ FAKE_PAGER, PAGER_TEMPLATE, "its memory", false },
	{ FAKE_PAGER, PAGER_DISK_CREATE, "its disk", false },
	{ FAKE_STORE, STORE_STATE, "its state", false },
	{ FAKE_PAGER, PAGER_DISK_EXPORT, "offering it its disk", true },
	{ FAKE_BOX, BOX_MEMORY, "putting its memory in place", true },
	{ FAKE_PAGER, PAGER_ATTACH, "telling the pager of its memory", true },
	{ FAKE_BOX, BOX_LOAD, "loading its state", true },
};

static void test_each_step_refused(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct snapshot *p = kept(w, "one");
		struct err e = { 0 };
		struct sandbox *s;

		s = new_sandbox(w, "b", &root_user);
		assert_int_equal(sandbox_attr_store(s, ATTR_FROM, "snapshot:one", 12, &root_user, &e), 0);
		fakes.refuse[steps[i].who][steps[i].type] = -EIO;
		assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
		spin(w);
		assert_int_equal(sandbox_status(s), SBX_FAILED);
		assert_says(sandbox_error(s), steps[i].words);
		assert_says(sandbox_error(s), "refused by the test");
		assert_int_equal(snapshot_status(p), SNAPSHOT_READY); /* it is none of its fault */
		assert_true(!s->restore && !s->link && !s->attached && !s->box_uid);
		assert_int_equal(fake_box_count(), 0);
		assert_int_equal(w->fake.slots_taken, w->fake.slots_freed);
		assert_int_equal(fakes.nset[FAKE_DISKS], 0);
		assert_int_equal(fakes.nset[FAKE_EXPORTS], 0);
		assert_int_equal(fakes.nset[FAKE_MACHINES], 0);
		/* And when nobody refuses any more, it goes on from there, not from its disk alone. */
		fakes_obey();
		assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
		spin(w);
		assert_int_equal(sandbox_status(s), SBX_READY);
		assert_string_equal(s->template, p->uuid);
		/* A batch says it too, and leaves nothing. */
		fakes.refuse[steps[i].who][steps[i].type] = -EIO;
		if (steps[i].type != STORE_STATE) { /* that is at hand by now */
			assert_int_equal(fork_of(w, p, "2", &e), -EIO);
			assert_says(e.msg, steps[i].words);
			assert_says(e.msg, "none was made");
			assert_string_equal(snapshot_error(p), e.msg);
			assert_int_equal(registry_count(w->reg), 1);
		}
		fakes_obey();
		gone(w, s);
		snapshot_destroy(p, &root_user);
		assert_clean(w);
	}
}

/* A process that is up, and answers no more. */
static void test_nobody_answers(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct err e = { 0 };
		struct snapshot *p;

		if (steps[i].type == PAGER_ATTACH && steps[i].who == FAKE_PAGER)
			continue; /* faults wait for that by themselves */
		p = kept(w, "one");
		ask_deadline_ns = 200000000;
		fakes.hold[steps[i].who][steps[i].type] = true;
		assert_int_equal(fork_of(w, p, "b", &e), -EIO);
		assert_says(e.msg, "no answer");
		assert_int_equal(snapshot_status(p), SNAPSHOT_READY);
		ask_deadline_ns = DEADLINE_NS;
		fakes_answer(steps[i].who, steps[i].type); /* late */
		spin(w);
		assert_int_equal(fork_of(w, p, "b", &e), 0);
		gone(w, registry_find(w->reg, NULL, "b"));
		snapshot_destroy(p, &root_user);
		assert_clean(w);
	}
}

/* The launcher refuses: that says nothing of the snapshot. */
static void test_no_machine(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct err e = { 0 };

	w->fake.refuse_spawn = -ENOENT;
	assert_int_equal(fork_of(w, p, "b", &e), -EIO);
	assert_says(e.msg, "starting its engine");
	assert_int_equal(snapshot_status(p), SNAPSHOT_READY);
	w->fake.refuse_spawn = 0;
	assert_int_equal(fork_of(w, p, "b", &e), 0);
	gone(w, registry_find(w->reg, NULL, "b"));
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

/* What it needs cannot be read: damaged, in words; whatever runs is not touched. */
static void test_what_is_missing_is_damage(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct err e = { 0 };

	assert_int_equal(fork_of(w, p, "b", &e), 0);
	fakes.refuse[FAKE_PAGER][PAGER_TEMPLATE] = -EBADMSG;
	assert_int_equal(fork_of(w, p, "c", &e), -EIO);
	assert_int_equal(snapshot_status(p), SNAPSHOT_DAMAGED);
	assert_says(snapshot_error(p), "its memory");
	fakes_obey();
	assert_int_equal(fork_of(w, p, "c", &e), -EBADMSG);
	assert_says(e.msg, "damaged");
	assert_int_equal(sandbox_status(registry_find(w->reg, NULL, "b")), SBX_READY);
	/* It was mended, and that was looked at. */
	assert_int_equal(snapshot_verify(p, &root_user, &e), 0);
	spin(w);
	assert_int_equal(snapshot_status(p), SNAPSHOT_READY);
	assert_int_equal(fork_of(w, p, "c", &e), 0);
	gone(w, registry_find(w->reg, NULL, "b"));
	gone(w, registry_find(w->reg, NULL, "c"));
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

static void test_another_engine_or_shape(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct snapshot_job *j = NULL;
	struct err e = { 0 };
	struct sandbox *s;

	/* Another minor version; a security update of the same is none. */
	snprintf(w->reg->engine.version, sizeof(w->reg->engine.version), "7.2.99");
	assert_int_equal(snapshot_usable(p, &e), 0);
	snprintf(w->reg->engine.version, sizeof(w->reg->engine.version), "8.0.1");
	assert_int_equal(snapshot_fork(p, "1", false, &root_user, &j, &e), -EPROTONOSUPPORT);
	assert_says(e.msg, "--disk-only one");
	/* The way out: its disk, booted. */
	fakes.trace[0] = '\0';
	assert_int_equal(snapshot_fork(p, "b", true, &root_user, &j, &e), 0);
	assert_int_equal(job_result(w, j, &e), 0);
	s = registry_find(w->reg, NULL, "b");
	assert_string_equal(s->origin, p->uuid);
	assert_string_equal(s->template, "");
	assert_true(fakes_traced("P:DISK_CREATE P:DISK_EXPORT B:START "));
	assert_false(fakes_traced("B:LOAD "));
	assert_string_equal(fakes.last_text[0], s->machine); /* of the export */
	gone(w, s);
	snprintf(w->reg->engine.version, sizeof(w->reg->engine.version), "7.2.22");
	/* Limits of another shape. */
	s = new_sandbox(w, "b", &root_user);
	assert_int_equal(sandbox_attr_store(s, ATTR_FROM, "snapshot:one", 12, &root_user, &e), 0);
	assert_int_equal(sandbox_attr_store(s, ATTR_VCPUS, "2", 1, &root_user, &e), 0);
	sandbox_ctl(s, "start", &root_user, &e);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_says(sandbox_error(s), "1 vCPUs, limits/ ask for one of 512 and 2");
	gone(w, s);
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

/* Under KVM a guest sees who made the processor: one of another vendor is refused, and the words name both. */
static void test_another_vendor(void **state)
{
	struct world *w = *state;
	struct snapshot *p = kept(w, "one");
	struct engine_machine m = { .accel = ACCEL_KVM, .memory_mib = p->memory_mib, .vcpus = p->vcpus, .disk = true };
	struct engine_info *i = &w->reg->engine;
	enum engine_accel accel = w->reg->accel;
	struct snapshot_job *j = NULL;
	struct err e = { 0 };

	snprintf(i->cpu_vendor, sizeof(i->cpu_vendor), "GenuineIntel");
	assert_int_equal(engine_fingerprint(i, &m, p->fingerprint, sizeof(p->fingerprint)), 0);
	w->reg->accel = ACCEL_KVM;
	assert_int_equal(snapshot_usable(p, &e), 0);
	snprintf(i->cpu_vendor, sizeof(i->cpu_vendor), "AuthenticAMD");
	assert_int_equal(snapshot_fork(p, "1", false, &root_user, &j, &e), -EPROTONOSUPPORT);
	assert_says(e.msg, "enforce GenuineIntel agent-");
	assert_says(e.msg, "enforce AuthenticAMD agent-");
	assert_says(e.msg, "; its disk can be booted: crucible fork --disk-only one");
	w->reg->accel = accel;
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

/* Unwanted, or its box gone, while any of the answers is awaited. */
static void test_it_ends_at_each_step(void **state)
{
	struct world *w = *state;

	for (size_t i = 0; i < 2 * ARRAY_LEN(steps); i++) {
		const struct step *t = &steps[i / 2];
		struct snapshot *p = kept(w, "one");
		struct snapshot_job *j = NULL;
		struct err e = { 0 };
		struct sandbox *s;

		fakes.hold[t->who][t->type] = true;
		assert_int_equal(snapshot_fork(p, "b", false, &root_user, &j, &e), 0);
		spin(w);
		s = registry_find(w->reg, NULL, "b");
		if (t->type == PAGER_ATTACH) { /* nobody waits for it */
			assert_int_equal(job_result(w, j, &e), 0);
			registry_destroy(w->reg, s, &root_user, "test");
		} else {
			assert_int_equal(snapshot_job_result(j, NULL), -EAGAIN);
			if (i % 2 == 0 || !t->given)
				registry_destroy(w->reg, s, &root_user, "test");
			else
				fake_box_hang_up(s->machine);
			assert_true(job_result(w, j, &e) < 0);
		}
		spin(w);
		assert_int_equal(registry_count(w->reg), 0);
		fakes_answer(t->who, t->type);
		snapshot_destroy(p, &root_user);
		assert_clean(w);
	}
}

/* -- prepared profiles ---------------------------------------------------------------------------------------- */

static struct snapshot *prepared(struct world *w)
{
	struct snapshot *p = w->reg->first_snapshot;

	while (p && (!p->hidden || p->gone))
		p = p->next;
	return p && p->status == SNAPSHOT_READY && !w->reg->prepare ? p : NULL;
}

static void prepare_on(struct world *w)
{
	w->cfg.prepare = 1;
	fakes.runs_commands = true;
	no_delays(true);
}

static void test_a_profile_is_prepared_behind(void **state)
{
	struct world *w = *state;
	struct sandbox *s, *other;

	prepare_on(w);
	fakes.trace[0] = '\0';
	s = running(w, "a");
	assert_string_equal(s->template, ""); /* cold, the first one */
	until(w, prepared(w));
	assert_true(fakes_traced("B:START B:START B:EXEC B:TRIM P:CAPTURE_BEGIN B:FREEZE P:CAPTURE B:MEMORY B:THAW "));
	assert_null(w->reg->hidden);				 /* its sandbox is gone */
	assert_null(registry_next_snapshot(w->reg, NULL, NULL)); /* nobody's to see */
	assert_int_equal(registry_count(w->reg), 1);
	fakes.trace[0] = '\0';
	other = running(w, "b");
	assert_string_equal(other->template, prepared(w)->uuid);
	assert_true(fakes_traced("B:LOAD "));
	assert_int_equal(w->reg->nprepare_failed, 0);
	gone(w, s);
	gone(w, other);
}

/* Whatever fails before the machine is the sandbox's: it boots cold, and nobody notices. */
static void test_a_prepared_one_that_fails_boots_cold(void **state)
{
	struct world *w = *state;

	prepare_on(w);
	gone(w, running(w, "a"));
	until(w, prepared(w));
	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct sandbox *s;
		struct err e = { 0 };

		if (steps[i].given || steps[i].type == PAGER_DISK_CREATE) /* a cold boot needs a disk, too */
			continue;
		s = new_sandbox(w, "b", &root_user);
		fakes.refuse[steps[i].who][steps[i].type] = -EIO;
		assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
		spin(w);
		if (sandbox_status(s) != SBX_READY)
			fail_msg("%s: %s", steps[i].words, sandbox_error(s));
		assert_string_equal(s->template, "");
		assert_int_equal(fakes.nset[FAKE_DISKS], 1); /* that of the try is gone */
		fakes_obey();
		gone(w, s);
	}
	assert_non_null(prepared(w)); /* -EIO is no damage */
	/* What cannot be read is dropped and made anew. */
	struct snapshot *was = prepared(w);
	char uuid[LAUNCH_UUID_LEN + 1];

	memcpy(uuid, was->uuid, sizeof(uuid));
	fakes.refuse[FAKE_PAGER][PAGER_TEMPLATE] = -EBADMSG;
	gone(w, running(w, "b"));
	fakes_obey();
	assert_null(snapshot_by_uuid(w->reg, uuid));
	gone(w, running(w, "b")); /* cold again, and one is prepared */
	until(w, prepared(w));
	assert_string_not_equal(prepared(w)->uuid, uuid);
}

static void test_failures_to_prepare_are_bounded(void **state)
{
	struct world *w = *state;
	unsigned trims = 0;

	prepare_on(w);
	fakes.refuse[FAKE_BOX][BOX_TRIM] = -EIO;
	for (int i = 0; i < 6; i++) {
		gone(w, running(w, "a"));
		until(w, !w->reg->prepare && !w->reg->hidden);
		trims = fakes.asked[FAKE_BOX][BOX_TRIM];
	}
	assert_int_equal(trims, 3);
	assert_int_equal(w->reg->prepare_failed[0].n, 3);
	until(w, !w->reg->first_snapshot);
	/* Another shape is no worse for it. */
	fakes_obey();
	struct sandbox *s = new_sandbox(w, "b", &root_user);
	struct err e = { 0 };

	assert_int_equal(sandbox_attr_store(s, ATTR_VCPUS, "2", 1, &root_user, &e), 0);
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
	until(w, prepared(w));
	gone(w, s);
	snapshot_destroy(prepared(w), NULL);
	until(w, !w->reg->first_snapshot);
	assert_clean(w);
}

/* Any number of shapes can be wanted: few are kept, those that were used last; sizes of disks are classes. */
static void test_few_prepared_ones_are_kept(void **state)
{
	static const char *const sizes[] = { "64",  "100",  "128",  "200",  "256",  "300", "512",
					     "900", "1024", "1900", "2048", "4096", "9999" };
	struct world *w = *state;
	struct sandbox *s;
	struct err e = { 0 };
	size_t most = 0;

	prepare_on(w);
	for (unsigned vcpus = 1; vcpus <= 2; vcpus++) {
		for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
			size_t n = 0;

			s = new_sandbox(w, "a", &root_user);
			assert_int_equal(
				sandbox_attr_store(s, ATTR_DISK_MIB, sizes[i], strlen(sizes[i]), &root_user, &e), 0);
			assert_int_equal(sandbox_attr_store(s, ATTR_VCPUS, vcpus == 1 ? "1" : "2", 1, &root_user, &e),
					 0);
			assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
			until(w, sandbox_status(s) == SBX_READY);
			gone(w, s);
			until(w, !w->reg->prepare && !w->reg->hidden);
			for (struct snapshot *p = w->reg->first_snapshot; p; p = p->next)
				n += !p->gone;
			most = n > most ? n : most;
			if (vcpus == 1 && i == ARRAY_LEN(sizes) - 1)
				assert_int_equal(n, 7); /* 64 to 2048, and the default's */
		}
	}
	assert_int_equal(most, 8);
}

/* At each step of it the daemon may end. */
static void test_the_end_in_the_midst_of_preparing(void **state)
{
	struct world *w = *state;
	static const struct {
		enum fake_who who;
		int type;
	} at[] = {
		{ FAKE_PAGER, PAGER_DISK_CREATE }, { FAKE_BOX, BOX_TRIM },	  { FAKE_PAGER, PAGER_CAPTURE_BEGIN },
		{ FAKE_BOX, BOX_FREEZE },	   { FAKE_PAGER, PAGER_CAPTURE }, { FAKE_BOX, BOX_THAW },
		{ FAKE_STORE, STORE_INGEST },
	};

	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		for (struct snapshot *p = w->reg->first_snapshot; p; p = p->next)
			snapshot_destroy(p, NULL);
		until(w, !w->reg->first_snapshot);
		prepare_on(w);
		no_delays(false); /* it begins once the hold is there */
		running(w, "a");
		memset(fakes.asked, 0, sizeof(fakes.asked));
		fakes.hold[at[i].who][at[i].type] = true;
		until(w, fakes.asked[at[i].who][at[i].type]);
		bring_down(w);
		fakes_reset(NULL);
		boxes_play(w);
		bring_up(w);
		spin(w);
		gone(w, registry_find(w->reg, NULL, "a"));
		assert_int_equal(registry_count(w->reg), 0);
		assert_null(w->reg->hidden);
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_the_order_of_requests),
		T(test_each_step_refused),
		T(test_nobody_answers),
		T(test_no_machine),
		T(test_what_is_missing_is_damage),
		T(test_another_engine_or_shape),
		T(test_another_vendor),
		T(test_it_ends_at_each_step),
		T(test_a_profile_is_prepared_behind),
		T(test_a_prepared_one_that_fails_boots_cold),
		T(test_failures_to_prepare_are_bounded),
		T(test_few_prepared_ones_are_kept),
		T(test_the_end_in_the_midst_of_preparing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
