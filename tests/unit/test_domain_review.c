/* SPDX-License-Identifier: Apache-2.0 */
/* Faults of snapshots and forks that a review found; each test says what is right. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "cruciblefs/domain/snapshot_priv.h"
#include "tests/unit/domain_world.h"

static const struct cfs_who bob = { .uid = 1002, .gid = 1002 };

static struct sandbox *make(struct world *w, const char *name, const struct cfs_who *who)
{
	struct sandbox *s = NULL;
	struct err e = { 0 };

	boxes_play(w);
	until(w, registry_peers_are_up(w->reg));
	assert_int_equal(registry_create(w->reg, name, who, &s, &e), 0);
	return s;
}

static struct sandbox *started(struct world *w, const char *name, const struct cfs_who *who)
{
	struct sandbox *s = make(w, name, who);
	struct err e = { 0 };

	assert_int_equal(sandbox_start(s, who, &e), 0);
	until(w, s->status == SBX_READY || s->status == SBX_FAILED);
	assert_int_equal(s->status, SBX_READY);
	return s;
}

static struct snapshot *take(struct world *w, struct sandbox *s, const char *name, const struct cfs_who *who)
{
	struct snapshot_job *j = NULL;
	struct err e = { 0 };

	if (sandbox_snapshot(s, name, who, &j, &e) < 0)
		return NULL;
	until(w, snapshot_job_result(j, NULL) != -EAGAIN);
	snapshot_job_drop(j);
	return registry_find_snapshot(w->reg, NULL, name);
}

/* A refused write of `from` must not make the sandbox start from somebody else's snapshot of an earlier name. */
static void test_from_of_a_stranger(void **state)
{
	struct world *w = *state;
	struct sandbox *b = started(w, "b", &bob), *a = started(w, "a", &alice), *c = make(w, "c", &bob);
	struct err e = { 0 };
	struct snapshot *p = take(w, b, "s", &bob);

	assert_non_null(p);
	until(w, p->status == SNAPSHOT_READY);
	assert_int_equal(sandbox_attr_store(c, ATTR_FROM, "snapshot:s", 10, &bob, &e), 0);
	snapshot_destroy(p, &bob);
	p = take(w, a, "s", &alice);
	assert_non_null(p);
	until(w, p->status == SNAPSHOT_READY);
	assert_int_equal(sandbox_attr_store(c, ATTR_FROM, "snapshot:s", 10, &bob, &e), -EPERM);
	memset(&e, 0, sizeof(e));
	sandbox_start(c, &bob, &e);
	until(w, c->status == SBX_READY || c->status == SBX_FAILED);
	assert_string_not_equal(c->template, p->uuid);
}

/* What cannot be written down has not happened, to what it starts from neither. */
static void test_from_that_is_not_saved(void **state)
{
	struct world *w = *state;
	struct sandbox *b = started(w, "b", &bob), *c = make(w, "c", &bob);
	struct err e = { 0 };
	struct snapshot *p = take(w, b, "p", &bob);
	char path[128];

	assert_non_null(take(w, b, "q", &bob));
	assert_int_equal(sandbox_attr_store(c, ATTR_FROM, "snapshot:p", 10, &bob, &e), 0);
	/* A directory in the way of the new file. */
	snprintf(path, sizeof(path), "%s/sandboxes/%s/sandbox.json", w->dir, c->uuid);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_true(sandbox_attr_store(c, ATTR_FROM, "snapshot:q", 10, &bob, &e) < 0);
	assert_string_equal(c->parent_uuid, p->uuid);
	assert_string_equal(c->parent, "p");
	assert_string_equal(c->attrs.from, "snapshot:p");
	assert_int_equal(rmdir(path), 0);
}

/* The defaults name a snapshot: who makes a sandbox must be allowed to use that one, unless it is root's. */
static void test_defaults_from_a_snapshot(void **state)
{
	struct world *w = *state;
	struct sandbox *b = started(w, "b", &bob), *r = started(w, "r", &root_user), *s = NULL;
	struct err e = { 0 };
	struct snapshot *p = take(w, b, "s", &bob);

	assert_int_equal(registry_default_store(w->reg, ATTR_FROM, "snapshot:s", 10, &root_user, &e), 0);
	assert_int_equal(registry_create(w->reg, "x", &alice, &s, &e), -EPERM);
	memset(&e, 0, sizeof(e));
	assert_int_equal(registry_create(w->reg, "x", &bob, &s, &e), 0);
	assert_string_equal(s->parent_uuid, p->uuid);
	snapshot_destroy(p, &bob);
	assert_int_equal(registry_create(w->reg, "y", &alice, &s, &e), -ENOENT);
	memset(&e, 0, sizeof(e));
	until(w, !registry_find_snapshot(w->reg, NULL, "s"));
	p = take(w, r, "s", &root_user);
	assert_int_equal(registry_create(w->reg, "y", &alice, &s, &e), 0);
	assert_string_equal(s->parent_uuid, p->uuid);
}

/* The box thawed by itself while the pager copied: what was copied is of no instant. */
static void test_thawed_while_copying(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot_job *j = NULL;
	struct err e = { 0 };

	fakes.hold[FAKE_PAGER][PAGER_CAPTURE] = true;
	assert_int_equal(sandbox_snapshot(s, "s", &alice, &j, &e), 0);
	until(w, fakes.asked[FAKE_PAGER][PAGER_CAPTURE] == 1);
	fakes.refuse[FAKE_BOX][BOX_MEMORY] = fakes.refuse[FAKE_BOX][BOX_THAW] =
		-EBUSY; /* as box_memory.c, box_freeze.c */
	fakes_answer(FAKE_PAGER, PAGER_CAPTURE);
	until(w, snapshot_job_result(j, NULL) != -EAGAIN);
	assert_true(snapshot_job_result(j, NULL) < 0);
	snapshot_job_drop(j);
}

/* One that cannot be stored (a state over SNAP_BLOB_MAX: -EFBIG) does not keep the others out. */
static void test_one_that_cannot_be_stored(void **state)
{
	struct world *w = *state;
	struct sandbox *b = started(w, "b", &bob), *a = started(w, "a", &alice);
	struct snapshot *bad, *good;

	fakes.refuse[FAKE_STORE][STORE_INGEST] = -EFBIG;
	bad = take(w, b, "bad", &bob);
	assert_non_null(bad);
	until(w, fakes.asked[FAKE_STORE][STORE_INGEST] >= 1);
	good = take(w, a, "good", &alice);
	assert_non_null(good);
	no_delays(true);
	for (int i = 0; i < 20; i++) { /* as many tries as it likes: are they only of the first? */
		ingest_kick(w->reg);
		spin(w);
	}
	assert_non_null(strstr(fakes.last_json, good->uuid));
	assert_int_equal(bad->status, SNAPSHOT_DAMAGED);
	assert_true(bad->template_fd < 0 && bad->state_fd < 0);
}

/* One that fails, and may not for ever, lets the others go first; what is a difference to it waits for it. */
static void test_one_that_is_not_stored_yet(void **state)
{
	struct world *w = *state;
	struct sandbox *b = started(w, "b", &bob), *a = started(w, "a", &alice);
	struct snapshot *bad, *child, *good;

	fakes.refuse[FAKE_STORE][STORE_INGEST] = -ENOSPC;
	bad = take(w, b, "bad", &bob);
	child = take(w, b, "child", &bob);
	until(w, bad->ingest_tries >= 1);
	fakes.refuse[FAKE_STORE][STORE_INGEST] = 0;
	good = take(w, a, "good", &alice);
	until(w, good->status == SNAPSHOT_READY);
	/* The success has let it try again, too, and then its child. */
	until(w, bad->status == SNAPSHOT_READY && child->status == SNAPSHOT_READY);
	assert_int_equal(child->ingest_tries, 0);
	/* A parent that can never be stored: the store lacks the base of the child, which is damaged in turn. */
	fakes.refuse[FAKE_STORE][STORE_INGEST] = -EFBIG;
	bad = take(w, b, "bad2", &bob);
	until(w, bad->status == SNAPSHOT_DAMAGED);
	fakes.refuse[FAKE_STORE][STORE_INGEST] = -ENOENT;
	child = take(w, b, "child2", &bob);
	until(w, child->status == SNAPSHOT_DAMAGED);
	assert_non_null(strstr(child->error, "storing it"));
	fakes_obey();
	good = take(w, a, "good2", &alice);
	until(w, good->status == SNAPSHOT_READY);
}

static void test_removed_ones_count(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	unsigned n = 0, most = 15;
	struct snapshot *p;

	w->cfg.max_snapshots_per_uid = 5;

	while (n < most && (p = take(w, s, "s", &alice))) {
		until(w, p->status == SNAPSHOT_READY);
		snapshot_destroy(p, &alice);
		n++;
	}
	n = 0;
	for (p = w->reg->first_snapshot; p; p = p->next)
		n++;
	print_message("%u kept, limit %u\n", n, w->cfg.max_snapshots_per_uid);
	assert_true(n <= w->cfg.max_snapshots_per_uid + 1);
}

/* A box (or a launcher without its binaries) that says ENOENT says nothing about the snapshot. */
static void test_a_box_does_not_damage(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot *p = take(w, s, "s", &alice);
	struct snapshot_job *j = NULL;
	struct err e = { 0 };

	until(w, p->status == SNAPSHOT_READY);
	w->fake.refuse_spawn = -ENOENT;
	assert_int_equal(snapshot_fork(p, "f", false, &alice, &j, &e), 0);
	until(w, snapshot_job_result(j, NULL) != -EAGAIN);
	snapshot_job_drop(j);
	assert_int_equal(p->status, SNAPSHOT_READY);
}

/* A pager that dies while ATTACH is on its way is started again, and is told of the machine then. */
static void test_pager_dies_at_attach(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot_job *j = NULL;
	struct err e = { 0 };

	assert_non_null(take(w, s, "first", &alice)); /* so that KNOW is over */
	until(w, s->reg->first_snapshot->status == SNAPSHOT_READY);
	fakes.hold[FAKE_PAGER][PAGER_ATTACH] = true;
	assert_int_equal(sandbox_snapshot(s, "s", &alice, &j, &e), 0);
	until(w, snapshot_job_result(j, NULL) != -EAGAIN);
	assert_int_equal(snapshot_job_result(j, NULL), 0);
	snapshot_job_drop(j);
	fakes_lose(FAKE_PAGER);
	fakes_obey();
	fakes_up(FAKE_PAGER, true);
	spin(w);
	spin(w);
	print_message("status %d, %s\n", s->status, s->error);
	assert_int_equal(s->status, SBX_READY);
}

/* pager.h, ATTACH: without userfaultfd the machine must not touch its memory before the answer. */
static void test_without_userfaultfd(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot *p = take(w, s, "p", &alice);
	struct snapshot_job *j = NULL;
	struct err e = { 0 };
	unsigned thaws, loads;

	assert_non_null(p);
	until(w, p->status == SNAPSHOT_READY);
	fakes.no_uffd = true;
	fakes.hold[FAKE_PAGER][PAGER_ATTACH] = true;
	loads = fakes.asked[FAKE_BOX][BOX_LOAD];
	assert_int_equal(snapshot_fork(p, "f", false, &alice, &j, &e), 0);
	for (int i = 0; i < 20; i++)
		spin(w);
	snapshot_job_drop(j);
	thaws = fakes.asked[FAKE_BOX][BOX_THAW];
	assert_int_equal(sandbox_snapshot(s, "q", &alice, &j, &e), 0);
	for (int i = 0; i < 20; i++)
		spin(w);
	snapshot_job_drop(j);
	print_message("%u loads, %u thaws before the answer\n", fakes.asked[FAKE_BOX][BOX_LOAD] - loads,
		      fakes.asked[FAKE_BOX][BOX_THAW] - thaws);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_LOAD], loads);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_THAW], thaws);
}

/* Removed while the store, or the pager, is being restarted: nothing of it stays behind. */
static void test_removed_while_the_store_is_away(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot *p = take(w, s, "s", &alice);
	char uuid[LAUNCH_UUID_LEN + 1];

	until(w, p->status == SNAPSHOT_READY);
	snprintf(uuid, sizeof(uuid), "%s", p->uuid);
	registry_destroy(w->reg, s, &alice, "");
	spin(w);
	fakes_lose(FAKE_STORE);
	snapshot_destroy(p, &alice);
	spin(w);
	fakes_up(FAKE_STORE, true);
	spin(w);
	assert_false(fakes_have(FAKE_STORED, uuid));
}

static void test_removed_while_the_pager_is_away(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	char disk[LAUNCH_UUID_LEN + 1];

	snprintf(disk, sizeof(disk), "%s", s->disk);
	assert_true(fakes_have(FAKE_DISKS, disk));
	fakes_lose(FAKE_PAGER);
	registry_destroy(w->reg, s, &alice, "");
	spin(w);
	fakes_up(FAKE_PAGER, true);
	spin(w);
	assert_false(fakes_have(FAKE_DISKS, disk));
}

/* It dies when it was asked to remove the disk and had not answered; the next daemon tells its successor. */
static void test_the_pager_dies_at_a_removal(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	char disk[LAUNCH_UUID_LEN + 1];

	snprintf(disk, sizeof(disk), "%s", s->disk);
	fakes.refuse[FAKE_PAGER][PAGER_DISK_REMOVE] = -EIO; /* it does nothing, */
	fakes.hold[FAKE_PAGER][PAGER_DISK_REMOVE] = true;   /* and says nothing */
	registry_destroy(w->reg, s, &alice, "");
	until(w, fakes.asked[FAKE_PAGER][PAGER_DISK_REMOVE] == 1);
	fakes_lose(FAKE_PAGER);
	bring_down(w);
	fakes_obey();
	assert_true(fakes_have(FAKE_DISKS, disk));
	fakes.away[FAKE_PAGER] = false;
	bring_up(w);
	until(w, !fakes_have(FAKE_DISKS, disk));
}

/* An engine that boots is offered its disk before it is there. */
static void test_a_machine_that_is_not_made_keeps_no_export(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &alice);
	struct err e = { 0 };

	w->fake.refuse_spawn = -EIO;
	assert_int_equal(sandbox_start(s, &alice, &e), 0);
	until(w, s->status == SBX_FAILED);
	spin(w);
	assert_int_equal(fakes.nset[FAKE_EXPORTS], 0);
}

/* Comparing runs machines of its own: they go with the daemon, in an orderly end. */
static void end(void *arg)
{
	*(bool *)arg = true;
}

static void test_shutdown_during_a_diff(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot *p, *q;
	struct err e = { 0 };
	bool down = false;

	p = take(w, s, "p", &alice);
	q = take(w, s, "q", &alice);
	assert_non_null(p);
	assert_non_null(q);
	until(w, p->status == SNAPSHOT_READY && q->status == SNAPSHOT_READY);
	assert_int_equal(snapshot_diff(q, &alice, &e), 0);
	until(w, fake_box_count() == 2);
	registry_shutdown(w->reg, end, &down);
	until(w, down);
	assert_int_equal(fake_box_count(), 0);
}

/* The machines are down, and only the store is waited for: not a moment longer than it takes. */
static void shutdown_while_storing(struct world *w, enum fake_who who, int type)
{
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot *p;
	bool down = false;

	fakes.hold[who][type] = true;
	p = take(w, s, "p", &alice);
	assert_non_null(p);
	until(w, fakes.asked[who][type]);
	registry_shutdown(w->reg, end, &down);
	until(w, fake_box_count() == 0);
	spin(w);
	assert_int_equal(p->status, SNAPSHOT_STORING);
	assert_false(down);
	fakes_answer(who, type);
	until(w, down); /* shutdown_by_ns is later than it waits */
	assert_int_equal(p->status, SNAPSHOT_READY);
}

static void test_shutdown_while_it_is_stored(void **state)
{
	shutdown_while_storing(*state, FAKE_STORE, STORE_INGEST);
}

static void test_shutdown_while_the_pager_is_told(void **state)
{
	shutdown_while_storing(*state, FAKE_PAGER, PAGER_STORED);
}

/* The daemon's own machines take memory as others do, and one diff at a time. */
static void test_diffs_take_turns(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot *p[3];
	struct err e = { 0 };

	for (size_t i = 0; i < 3; i++) {
		p[i] = take(w, s, (const char *[]){ "p", "q", "r" }[i], &alice);
		until(w, p[i]->status == SNAPSHOT_READY);
	}
	assert_int_equal(snapshot_diff(p[1], &alice, &e), 0);
	assert_int_equal(snapshot_diff(p[2], &alice, &e), 0);
	until(w, fake_box_count() == 2);
	spin(w);
	assert_int_equal(fake_box_count(), 2);
	assert_false(registry_anybody_starts(w->reg)); /* the pool and profiles do not wait for them */
	/* It counts: there is room for two such machines, and no third. */
	w->cfg.overcommit_percent = (uint32_t)((uint64_t)1100 * 100 / w->reg->host_memory_mib + 1);
	if ((uint64_t)w->cfg.overcommit_percent * w->reg->host_memory_mib / 100 < 1536)
		assert_int_equal(sandbox_start(make(w, "b", &bob), &bob, &e), -ENOMEM);
	w->cfg.overcommit_percent = 1000;
	/* The first one fails: the second has its turn. */
	fake_box_hang_up(w->reg->hidden->machine);
	until(w, p[1]->diff == DIFF_FAILED);
	until(w, fake_box_count() == 2);
	assert_int_equal(p[2]->diff, DIFF_RUNNING);
}

static void test_shutdown_during_a_trim(void **state)
{
	struct world *w = *state;
	bool down = false;

	w->cfg.prepare = 1;
	fakes.runs_commands = true;
	no_delays(true);
	fakes.hold[FAKE_BOX][BOX_TRIM] = true;
	started(w, "a", &alice);
	until(w, fakes.asked[FAKE_BOX][BOX_TRIM] == 1);
	assert_int_equal(fake_box_count(), 2);
	registry_shutdown(w->reg, end, &down);
	until(w, down);
	assert_int_equal(fake_box_count(), 0);
}

/* A machine that is being warmed is let go of at an orderly end, whatever its box was asked. */
static void warmed_until(struct world *w, enum box_type type)
{
	bool down = false;

	w->cfg.prepare = 1;
	fakes.runs_commands = true;
	no_delays(true);
	started(w, "a", &alice);
	until(w, w->reg->last_snapshot && w->reg->last_snapshot->status == SNAPSHOT_READY && !w->reg->prepare);
	no_delays(false); /* its limit of time is one of them */
	w->cfg.warm_size = 1;
	memset(fakes.asked, 0, sizeof(fakes.asked));
	fakes.hold[FAKE_BOX][type] = true;
	pool_fill(w->reg);
	until(w, fakes.asked[FAKE_BOX][type] == 1);
	registry_shutdown(w->reg, end, &down);
	until(w, down);
	assert_int_equal(fake_box_count(), 0);
}

static void test_shutdown_at_its_memory(void **state)
{
	warmed_until(*state, BOX_MEMORY);
}

static void test_shutdown_at_its_load(void **state)
{
	warmed_until(*state, BOX_LOAD);
}

/* The store says when it has removed one; until then the snapshot is not forgotten here. */
static void test_the_store_does_not_remove(void **state)
{
	static const int codes[] = { -EBUSY, -EPIPE };

	for (size_t i = 0; i < 2; i++) {
		struct world *w = *state;
		struct sandbox *s = started(w, "a", &alice);
		struct snapshot *p = take(w, s, "s", &alice);
		char uuid[LAUNCH_UUID_LEN + 1];

		snprintf(uuid, sizeof(uuid), "%s", p->uuid);
		until(w, p->status == SNAPSHOT_READY);
		registry_destroy(w->reg, s, &alice, "");
		spin(w);
		memset(fakes.asked, 0, sizeof(fakes.asked));
		fakes.refuse[FAKE_STORE][STORE_REMOVE] = codes[i];
		fakes.hold[FAKE_STORE][STORE_REMOVE] = true;
		snapshot_destroy(p, &alice);
		until(w, fakes.asked[FAKE_STORE][STORE_REMOVE] == 1);
		if (codes[i] == -EPIPE)
			fakes_lose(FAKE_STORE);
		else
			fakes_answer(FAKE_STORE, STORE_REMOVE);
		spin(w);
		assert_ptr_equal(snapshot_by_uuid(w->reg, uuid), p);
		fakes_obey();
		if (codes[i] == -EPIPE)
			fakes_up(FAKE_STORE, false);
		else
			snapshots_sweep(w->reg); /* 5 s later by itself */
		until(w, !snapshot_by_uuid(w->reg, uuid));
		assert_false(fakes_have(FAKE_STORED, uuid));
	}
}

/* Which pages a fork touched first is kept with the snapshot, and told to a pager that has not seen it. */
static void test_working_set(void **state)
{
	struct world *w = *state;
	struct sandbox *s = started(w, "a", &alice);
	struct snapshot *p = take(w, s, "p", &alice);
	struct snapshot_job *j = NULL;
	struct err e = { 0 };
	char path[256];
	struct stat st;

	until(w, p->status == SNAPSHOT_READY);
	snprintf(path, sizeof(path), "%s/snapshots/%s/workset", w->dir, p->uuid);
	no_delays(true);
	fakes.refuse[FAKE_PAGER][PAGER_WORKSET] = -EAGAIN; /* it has not seen enough */
	assert_int_equal(snapshot_fork(p, "f", false, &alice, &j, &e), 0);
	snapshot_job_drop(j);
	until(w, fakes.asked[FAKE_PAGER][PAGER_WORKSET] == 1);
	spin(w);
	assert_int_equal(stat(path, &st), -1);
	fakes_obey();
	assert_int_equal(snapshot_fork(p, "g", false, &alice, &j, &e), 0);
	snapshot_job_drop(j);
	until(w, stat(path, &st) == 0);
	assert_int_equal(st.st_size, 8);
	assert_int_equal(fakes.asked[FAKE_PAGER][PAGER_WORKSET], 2);
	/* This pager knows. */
	w->cfg.max_sandboxes_per_uid = 9;
	assert_int_equal(snapshot_fork(p, "h", false, &alice, &j, &e), 0);
	snapshot_job_drop(j);
	spin(w);
	assert_int_equal(fakes.asked[FAKE_PAGER][PAGER_WORKSET_SET], 0);
	/* Its successor does not, nor does one that another daemon meets. */
	for (int i = 0; i < 2; i++) {
		if (i == 0) {
			fakes_lose(FAKE_PAGER);
			fakes_up(FAKE_PAGER, true);
		} else {
			bring_down(w);
			bring_up(w);
			p = registry_find_snapshot(w->reg, NULL, "p");
		}
		spin(w);
		fakes.trace[0] = '\0';
		assert_int_equal(snapshot_fork(p, i ? "i" : "k", false, &alice, &j, &e), 0);
		snapshot_job_drop(j);
		until(w, fakes_traced("P:WORKSET_SET P:TEMPLATE "));
	}
	assert_int_equal(fakes.asked[FAKE_PAGER][PAGER_WORKSET], 2);
	while (w->reg->first)
		registry_destroy(w->reg, w->reg->first, &alice, "");
	snapshot_destroy(p, &alice);
	until(w, !w->reg->first_snapshot);
	assert_int_equal(stat(path, &st), -1);
}

#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(test_from_of_a_stranger),
		T(test_from_that_is_not_saved),
		T(test_defaults_from_a_snapshot),
		T(test_thawed_while_copying),
		T(test_one_that_cannot_be_stored),
		T(test_one_that_is_not_stored_yet),
		T(test_removed_ones_count),
		T(test_without_userfaultfd),
		T(test_a_box_does_not_damage),
		T(test_pager_dies_at_attach),
		T(test_removed_while_the_store_is_away),
		T(test_removed_while_the_pager_is_away),
		T(test_the_pager_dies_at_a_removal),
		T(test_a_machine_that_is_not_made_keeps_no_export),
		T(test_shutdown_during_a_diff),
		T(test_shutdown_while_it_is_stored),
		T(test_shutdown_while_the_pager_is_told),
		T(test_working_set),
		T(test_diffs_take_turns),
		T(test_shutdown_during_a_trim),
		T(test_shutdown_at_its_memory),
		T(test_shutdown_at_its_load),
		T(test_the_store_does_not_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
