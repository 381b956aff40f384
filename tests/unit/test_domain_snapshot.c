/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a snapshot (capture.c): the order of what is asked of box and pager, and that a machine goes on whatever
 * fails. */
#include <sys/stat.h>
#include <unistd.h>
#include "base/json.h"
#include "tests/unit/snapshot_fix.h"

#define HAPPY "P:CAPTURE_BEGIN B:RECLAIM B:FREEZE P:CAPTURE B:MEMORY P:ATTACH B:THAW "

static void test_the_order_of_requests(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot *p;
	struct err e = { 0 };
	struct buf b;

	fakes.trace[0] = '\0';
	p = take_ready(w, s, "one");
	/* It booted cold, so the pager does not know its memory. */
	assert_true(fakes_traced("B:MEMORY P:ATTACH " HAPPY "P:DISK_FILES S:INGEST P:STORED "));
	assert_int_equal(p->captured_pages, 77);
	assert_int_equal(p->pause_ns, 5000000);
	assert_int_equal(p->stored_bytes, 4096);
	assert_int_equal(p->shared_pages, 7);
	assert_string_equal(snapshot_parent(p), "profile:base");
	assert_string_equal(p->parent_uuid, "");
	assert_string_equal(p->memory_base, "");
	assert_string_equal(sandbox_latest_snapshot(s), "one");
	assert_string_equal(s->origin, p->uuid);
	assert_string_equal(s->template, p->uuid);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_false(fake_box_frozen(s->machine));
	assert_true(p->state_fd < 0 && p->template_fd < 0 && p->bits_fd < 0);
	assert_non_null(strstr(fakes.last_json, "\"memory_whole\":true"));
	/* The second is a difference to the first. */
	fakes.trace[0] = '\0';
	p = take_ready(w, s, "two");
	assert_true(fakes_traced(HAPPY));
	assert_true(fakes.trace[0] == 'P'); /* nothing before CAPTURE_BEGIN */
	assert_string_equal(snapshot_parent(p), "one");
	assert_string_equal(p->parent_uuid, registry_find_snapshot(w->reg, NULL, "one")->uuid);
	assert_string_equal(p->memory_base, p->parent_uuid);
	assert_non_null(strstr(fakes.last_json, "\"memory_whole\":false"));
	buf_init(&b, 1 << 16);
	assert_int_equal(snapshot_info_json(p, &b), 0);
	assert_says(buf_str(&b), "\"status\":\"ready\"");
	assert_says(buf_str(&b), "\"pause_ms\":5.0");
	buf_fini(&b);
	/* Refused at once. */
	assert_null(begin_snapshot(s, "two", &e));
	assert_int_equal(e.code, -EEXIST);
	assert_null(begin_snapshot(s, "../x", &e));
	assert_int_equal(e.code, -EINVAL);
	assert_null(begin_snapshot(s, "a23456789-123456789-123456789-123456789-123456789-1234567", &e));
	assert_int_equal(e.code, -ENAMETOOLONG);
	snapshot_destroy(registry_find_snapshot(w->reg, NULL, "one"), &root_user);
	snapshot_destroy(p, &root_user);
	gone(w, s);
	assert_clean(w);
}

static void test_who_may_and_when(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &alice);
	struct snapshot_job *first, *j = NULL;
	struct err e = { 0 };

	assert_null(begin_snapshot(s, "one", &e));
	assert_int_equal(e.code, -EBUSY);
	assert_says(e.msg, "configured");
	assert_int_equal(sandbox_ctl(s, "start", &alice, &e), 0);
	spin(w);
	fakes.hold[FAKE_PAGER][PAGER_CAPTURE] = true;
	first = begin_snapshot(s, "one", &e);
	assert_non_null(first);
	spin(w);
	assert_null(begin_snapshot(s, "two", &e));
	assert_int_equal(e.code, -EBUSY);
	assert_says(e.msg, "under way");
	assert_int_equal(snapshot_status(registry_find_snapshot(w->reg, NULL, "one")), SNAPSHOT_CAPTURING);
	fakes_answer(FAKE_PAGER, PAGER_CAPTURE);
	assert_int_equal(job_result(w, first, &e), 0);
	w->cfg.max_snapshots_per_uid = 0;
	assert_int_equal(sandbox_snapshot(s, "two", &alice, &j, &e), -EDQUOT);
	assert_says(e.msg, "max_snapshots_per_uid");
	w->cfg.disk_floor_mib = UINT32_MAX;
	assert_int_equal(sandbox_snapshot(s, "two", &root_user, &j, &e), -ENOSPC);
	assert_says(e.msg, "disk_floor_mib");
	w->cfg.disk_floor_mib = 0;
	gone(w, s);
}

static const struct step {
	enum fake_who who;
	int type;
	bool cold;   /* only of a machine that booted cold */
	bool frozen; /* it is frozen then */
	const char *words;
} steps[] = {
	{ FAKE_BOX, BOX_MEMORY, true, false, "looking at its memory" },
	{ FAKE_PAGER, PAGER_ATTACH, true, false, "telling the pager of its memory" },
	{ FAKE_PAGER, PAGER_CAPTURE_BEGIN, false, false, "making a template" },
	{ FAKE_BOX, BOX_FREEZE, false, false, "freezing it" },
	{ FAKE_PAGER, PAGER_CAPTURE, false, true, "copying what it wrote" },
};

static void test_each_step_refused(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		const struct step *t = &steps[i];
		unsigned thaws = fakes.asked[FAKE_BOX][BOX_THAW];
		int fds = count_fds();
		struct err e = { 0 };
		struct snapshot_job *j;

		fakes.refuse[t->who][t->type] = -ETIMEDOUT;
		j = begin_snapshot(s, "one", &e);
		assert_non_null(j);
		assert_int_equal(job_result(w, j, &e), -ETIMEDOUT);
		assert_says(e.msg, t->words);
		assert_says(e.msg, "refused by the test");
		assert_string_equal(sandbox_error(s), e.msg);
		assert_null(registry_find_snapshot(w->reg, NULL, "one"));
		assert_int_equal(fakes.asked[FAKE_BOX][BOX_THAW] - thaws, t->frozen);
		assert_false(fake_box_frozen(s->machine));
		assert_int_equal(sandbox_status(s), SBX_READY);
		assert_null(s->capture);
		spin(w);
		assert_int_equal(fakes.nset[FAKE_TEMPLATES], 0);
		assert_int_equal(count_entries(w, "snapshots"), 0);
		until(w, count_fds() <= fds); /* the pool has some for a moment, at both times */
		fakes_obey();
	}
	/* And when nobody refuses any more, it works. */
	take_ready(w, s, "one");
	assert_string_equal(sandbox_latest_snapshot(s), "one");
	snapshot_destroy(registry_find_snapshot(w->reg, NULL, "one"), &root_user);
	gone(w, s);
	assert_clean(w);
}

/* What the engine writes, and when: it keeps its descriptor, and may be taken over. */
static void test_the_device_state_is_ours(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct err e = { 0 };
	struct snapshot *p;
	char text[8] = "", path[80];
	static char much[4096];
	int fd = snapshot_make_state(), r = 0;

	fakes.no_state = true;
	assert_int_equal(job_result(w, begin_snapshot(s, "one", &e), &e), -EIO);
	assert_says(e.msg, "freezing it");
	assert_false(fake_box_frozen(s->machine));
	fakes.no_state = false;
	fakes.hold[FAKE_STORE][STORE_INGEST] = true;
	p = take(w, s, "one");
	assert_int_equal(pread(p->state_fd, text, sizeof(text), 0), 5);
	assert_string_equal(text, "STATE");
	snprintf(path, sizeof(path), "snapshots/%s/state", p->uuid);
	assert_int_equal(faccessat(w->store_fd, path, F_OK, 0), 0);
	/* Not more than the store takes; and what it writes later, nobody reads. */
	assert_true(fd >= 0);
	for (size_t n = 0; n < 16u << 20 && r >= 0; n += sizeof(much))
		r = (int)write(fd, much, sizeof(much));
	assert_int_equal(r, sizeof(much));
	assert_int_equal(write(fd, much, 1), -1);
	assert_int_equal(ftruncate(fd, 17 << 20), -1);
	memcpy(p->uuid + 30, "ffffff", 6);
	assert_int_equal(mkdirat(w->reg->snapshots_fd, p->uuid, 0700), 0);
	assert_int_equal(snapshot_keep_state(p, fd), 0);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	assert_int_equal(pread(p->state_fd, text, 1, 0), 1);
	assert_int_equal(text[0], 0);
	assert_int_equal(write(p->state_fd, "x", 1), -1);
	close(fd);
}

/* A process that is up, and answers no more: the snapshot fails, the next works. */
static void test_nobody_answers(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct err e = { 0 };

		ask_deadline_ns = 200000000;
		fakes.hold[steps[i].who][steps[i].type] = true;
		assert_int_equal(job_result(w, begin_snapshot(s, "one", &e), &e), -ETIMEDOUT);
		assert_says(e.msg, steps[i].words);
		assert_says(e.msg, "no answer");
		assert_null(s->capture);
		until(w, !fake_box_frozen(s->machine));
		ask_deadline_ns = DEADLINE_NS;
		fakes_answer(steps[i].who, steps[i].type); /* late */
		spin(w);
		assert_false(fake_box_frozen(s->machine));
	}
	take_ready(w, s, "two");
	assert_int_equal(sandbox_status(s), SBX_READY);
	snapshot_destroy(registry_find_snapshot(w->reg, NULL, "two"), &root_user);
	gone(w, s);
	fakes.nset[FAKE_TEMPLATES] = fakes.nset[FAKE_CAPTURED] = 0; /* the played pager makes them when it answers */
	assert_clean(w);
}

/* The pages are safe by then: the snapshot is there, the machine goes on as it was. */
static void test_what_fails_after_the_capture(void **state)
{
	struct world *w = *state;
	static const int types[] = { BOX_MEMORY, BOX_THAW };

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct sandbox *s = running(w, "a");
		struct snapshot *p;

		take_ready(w, s, "zero"); /* so that MEMORY is not asked at first */
		fakes.refuse[FAKE_BOX][types[i]] = -EIO;
		p = take_ready(w, s, "one");
		assert_int_equal(sandbox_status(s), SBX_READY);
		assert_true(fakes.asked[FAKE_BOX][BOX_THAW] > 0);
		/* What it is a difference to, is what its memory is mapped from. */
		assert_string_equal(s->template, types[i] == BOX_THAW ? p->uuid : p->memory_base);
		fakes_obey();
		snapshot_destroy(registry_find_snapshot(w->reg, NULL, "zero"), &root_user);
		snapshot_destroy(p, &root_user);
		gone(w, s);
		assert_clean(w);
	}
}

/* At each step, while its answer is awaited. */
static void test_the_box_ends_meanwhile(void **state)
{
	struct world *w = *state;
	static const struct {
		enum fake_who who;
		int type;
		bool kept; /* it was captured */
	} at[] = {
		{ FAKE_BOX, BOX_MEMORY, false },
		{ FAKE_PAGER, PAGER_ATTACH, false },
		{ FAKE_PAGER, PAGER_CAPTURE_BEGIN, false },
		{ FAKE_BOX, BOX_FREEZE, false },
		{ FAKE_PAGER, PAGER_CAPTURE, false },
		{ FAKE_BOX, BOX_THAW, true },
	};

	for (size_t i = 0; i < ARRAY_LEN(at); i++) {
		for (int removed = 0; removed < 2; removed++) {
			struct sandbox *s = running(w, "a");
			struct err e = { 0 };
			struct snapshot_job *j;
			struct snapshot *p;
			int r;

			fakes.hold[at[i].who][at[i].type] = true;
			j = begin_snapshot(s, "one", &e);
			assert_non_null(j);
			spin(w);
			assert_int_equal(snapshot_job_result(j, NULL), -EAGAIN);
			sandbox_ref(s);
			if (removed)
				registry_destroy(w->reg, s, &root_user, "test");
			else
				fake_box_hang_up(s->machine);
			spin(w);
			fakes_answer(at[i].who, at[i].type);
			r = job_result(w, j, &e);
			if (at[i].kept) {
				assert_int_equal(r, 0);
			} else {
				assert_true(r < 0); /* what of it was seen first */
				assert_says(e.msg, "sandbox a: snapshot one: ");
			}
			assert_null(s->capture);
			p = registry_find_snapshot(w->reg, NULL, "one");
			assert_int_equal(p != NULL, at[i].kept);
			if (p)
				snapshot_destroy(p, &root_user);
			if (!removed)
				gone(w, s);
			sandbox_unref(s);
			fakes_obey();
			until(w, !registry_find_snapshot(w->reg, NULL, "one"));
			assert_clean(w);
		}
	}
}

/* Nobody waits any more: the work goes on. */
static void test_the_waiter_goes(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct err e = { 0 };
	struct snapshot *p;

	snapshot_job_drop(begin_snapshot(s, "one", &e));
	spin(w);
	p = registry_find_snapshot(w->reg, NULL, "one");
	assert_non_null(p);
	assert_int_equal(snapshot_status(p), SNAPSHOT_READY);
	snapshot_destroy(p, &root_user);
	gone(w, s);
	assert_clean(w);
}

static void assert_reads(struct snapshot *p, int (*show)(struct snapshot *p, struct buf *out), const char *words,
			 bool there)
{
	struct buf b;

	buf_init(&b, 1 << 16);
	assert_int_equal(show(p, &b), 0);
	if (there)
		assert_says((const char *)b.data, words);
	else
		assert_null(strstr((const char *)b.data, words));
	buf_fini(&b);
}

/* How far the store is with it, as long as it is at it. */
static void test_progress(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot *p;
	struct err e = { 0 };
	struct buf b;

	fakes.hold[FAKE_STORE][STORE_INGEST] = true;
	p = take(w, s, "one");
	until(w, fakes.asked[FAKE_STORE][STORE_INGEST]);
	assert_reads(p, snapshot_info_json, "\"progress\"", false); /* nothing is known yet */
	fakes_store_progress(STORE_INGEST, 5, 20);
	assert_reads(p, snapshot_info_json, "\"progress\":{\"done\":5,\"total\":20}", true);
	fakes_store_progress(STORE_INGEST, 21, 20);
	assert_reads(p, snapshot_info_json, "\"progress\":{\"done\":20,\"total\":20}", true);
	fakes_answer(FAKE_STORE, STORE_INGEST);
	until(w, p->status == SNAPSHOT_READY);
	assert_reads(p, snapshot_info_json, "\"progress\"", false);
	fakes.hold[FAKE_STORE][STORE_VERIFY] = true;
	assert_int_equal(snapshot_verify(p, &root_user, &e), 0);
	assert_reads(p, snapshot_verify_json, "\"status\":\"running\"", true);
	assert_reads(p, snapshot_verify_json, "\"done\"", false);
	fakes_store_progress(STORE_VERIFY, 1, 3);
	assert_reads(p, snapshot_verify_json, "\"done\":1,\"total\":3", true);
	assert_reads(p, snapshot_info_json, "\"progress\"", false);
	/* Of the whole store, at the same time. */
	assert_int_equal(registry_store_start(w->reg, "gc", &root_user, &e), 0);
	fakes_answer(FAKE_STORE, STORE_VERIFY);
	fakes.hold[FAKE_STORE][STORE_VERIFY] = true;
	spin(w);
	assert_reads(p, snapshot_verify_json, "\"status\":\"ok\"", true);
	assert_reads(p, snapshot_verify_json, "\"done\"", false);
	assert_int_equal(registry_store_start(w->reg, "verify", &root_user, &e), 0);
	fakes_store_progress(STORE_VERIFY, 2, 4);
	buf_init(&b, 1024);
	assert_int_equal(registry_store_outcome(w->reg, "verify", &b), 0);
	assert_says((const char *)b.data, "\"done\":2,\"total\":4");
	buf_fini(&b);
	fakes_answer(FAKE_STORE, STORE_VERIFY);
	gone(w, s);
	snapshot_destroy(p, &root_user);
	assert_clean(w);
}

/* Commands that run then are noted; those that ended or wait are not. */
static void test_what_runs_is_inherited(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct snapshot_job *j;
	struct err e = { 0 };
	struct snapshot *p;
	struct buf b;

	fakes.runs_commands = true;
	command(s, "true\n");
	spin(w);
	p = take_ready(w, s, "idle");
	assert_string_equal(p->inherited, "[]");
	fakes.runs_commands = false;
	command(s, "sleep 60\n");
	spin(w);
	exec_set_state(s, sandbox_exec(s, 2), EXEC_RUNNING);
	p = take_ready(w, s, "busy");
	/* As a fork's own info.json, and inherited/2.out, call it. */
	buf_init(&b, 1 << 16);
	assert_int_equal(snapshot_info_json(p, &b), 0);
	assert_says((const char *)b.data, "\"inherited\":[{\"n\":2}]");
	buf_fini(&b);
	/* Then is when they are frozen: it runs while free memory is given back, which may take seconds. */
	command(s, "sleep 60\n");
	spin(w);
	fakes.hold[FAKE_BOX][BOX_RECLAIM] = true;
	j = begin_snapshot(s, "later", &e);
	assert_non_null(j);
	until(w, fakes.asked[FAKE_BOX][BOX_RECLAIM] == 3);
	exec_set_state(s, sandbox_exec(s, 2), EXEC_DONE);
	exec_set_state(s, sandbox_exec(s, 3), EXEC_RUNNING);
	fakes_answer(FAKE_BOX, BOX_RECLAIM);
	assert_int_equal(job_result(w, j, &e), 0);
	assert_string_equal(registry_find_snapshot(w->reg, NULL, "later")->inherited, "[{\"n\":3}]");
	gone(w, s);
}

/* What a guest has freed is stored then, no more. */
static void test_memory_that_is_not_given_back(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");

	fakes.refuse[FAKE_BOX][BOX_RECLAIM] = -EBUSY;
	take_ready(w, s, "one");
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_RECLAIM], 1);
	fakes_obey();
	snapshot_destroy(registry_find_snapshot(w->reg, NULL, "one"), &root_user);
	gone(w, s);
	assert_clean(w);
}

/* usage.json tells what was known at the last look, also of a stopped one's disk. */
static void test_usage_of_a_disk(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct err e = { 0 };
	struct buf b;

	buf_init(&b, 1 << 16);
	assert_int_equal(sandbox_usage_json(s, &b), 0);
	assert_says((const char *)b.data, "\"disk_bytes\":0,\"disk_layers\":0}");
	assert_int_equal(sandbox_usage_json(s, &b), 0); /* asked once */
	spin(w);
	assert_int_equal(fakes.asked[FAKE_PAGER][PAGER_DISK_STAT], 1);
	buf_reset(&b);
	assert_int_equal(sandbox_ctl(s, "stop", &root_user, &e), 0);
	spin(w);
	fakes.refuse[FAKE_PAGER][PAGER_DISK_STAT] = -EIO;
	assert_int_equal(sandbox_usage_json(s, &b), 0);
	assert_says((const char *)b.data, "\"disk_bytes\":12345,\"disk_layers\":3}");
	spin(w);
	assert_int_equal(fakes.asked[FAKE_PAGER][PAGER_DISK_STAT], 2);
	buf_reset(&b);
	fakes_lose(FAKE_PAGER);
	assert_int_equal(sandbox_usage_json(s, &b), 0);
	assert_says((const char *)b.data, "\"disk_bytes\":12345"); /* what was known stays */
	fakes_up(FAKE_PAGER, true);
	fakes_obey();
	gone(w, s);
	assert_clean(w);
	buf_fini(&b);
}

/* The host has too little memory: the pager gives back what the store has as well. */
static void test_short_of_memory(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &root_user);
	struct err e = { 0 };

	w->cfg.memory_floor_mib = 1u << 20;
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), -ENOMEM);
	assert_says(e.msg, "memory_floor_mib");
	assert_true(fakes_traced("P:EVICT "));
	w->cfg.memory_floor_mib = 0;
	fakes.trace[0] = '\0';
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
	spin(w);
	assert_false(fakes_traced("P:EVICT "));
	gone(w, s);
	assert_clean(w);
}

static void test_a_store_that_cannot_be_written(void **state)
{
	struct world *w = *state;
	struct sandbox *s = running(w, "a");
	struct err e = { 0 };

	/* Nothing is begun. */
	assert_int_equal(renameat(w->store_fd, "snapshots", w->store_fd, "aside"), 0);
	close(w->reg->snapshots_fd);
	w->reg->snapshots_fd = -1;
	assert_null(begin_snapshot(s, "one", &e));
	assert_true(e.code < 0);
	assert_says(e.msg, "snapshot.json");
	assert_null(s->capture);
	assert_null(w->reg->first_snapshot);
	gone(w, s);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_the_order_of_requests),
		T(test_who_may_and_when),
		T(test_each_step_refused),
		T(test_what_fails_after_the_capture),
		T(test_the_box_ends_meanwhile),
		T(test_the_waiter_goes),
		T(test_progress),
		T(test_usage_of_a_disk),
		T(test_short_of_memory),
		T(test_the_device_state_is_ours),
		T(test_nobody_answers),
		T(test_what_runs_is_inherited),
		T(test_memory_that_is_not_given_back),
		T(test_a_store_that_cannot_be_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
