/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a machine up; down.c brings it down.
 *
 * Where from: a sandbox that has a disk boots that (it was stopped). One that is made from a snapshot goes on from it.
 * One that is made from a profile goes on from the profile's prepared snapshot, if there is one for its shape; if not,
 * it boots cold, and one is prepared behind it (prepare.c). restore.c does the going on; the cold boot is here:
 * disk (pager) -> machine (machine.c) -> BOX_START; the box says when the guest is ready.
 *
 * Down is the same from every state: what is on its way is let go, the link closed, LAUNCH_KILL sent. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

#define BOOT_TIMEOUT_S 60u
#define LOOK_NS	       (500ull * 1000000ull)
#define WARM_OWN_MIB   32u /* what a warm machine has at least of its own */

struct start {		   /* a cold boot on its way */
	struct sandbox *s; /* NULL: let go, only clean up. A reference. */
	struct registry *reg;
	struct waiter trial;
	loop_id look_again;	/* while it waits for the trial, the pager and the store */
	struct profile profile; /* of a first boot */
	struct machine *m;
	bool asked; /* an answer is on its way */
};

static void start_free(struct start *st)
{
	waitq_del(&st->trial);
	loop_del(st->reg->loop, &st->look_again);
	if (st->s) {
		if (st->s->start == st)
			st->s->start = NULL;
		sandbox_unref(st->s);
	}
	machine_free(st->m);
	fd_close(&st->profile.base_fd);
	free(st);
}

/* A step failed. Frees @st. */
static void start_fail(struct start *st, int code, const char *step, const char *words)
{
	struct sandbox *s = st->s;
	struct err e = { 0 };

	if (!s) {
		start_free(st);
		return;
	}
	s->reg->n_failed_starts++;
	err_set(&e, code ? code : -EIO, "sandbox %s: %s: %s", s->name, step, words);
	sandbox_ref(s);
	start_free(st);
	sandbox_down(s, e.msg);
	sandbox_unref(s);
}

/* -- the last step: the box has its orders ------------------------------------------------------------------------- */

static void machine_id(const struct sandbox *s, char out[33])
{
	size_t n = 0;

	for (const char *p = s->uuid; *p && n < 32; p++) {
		if (*p != '-')
			out[n++] = *p;
	}
	out[n] = '\0';
}

int start_orders(struct sandbox *s, struct snapshot *p)
{
	struct box_config c = {
		.boot_timeout_s = BOOT_TIMEOUT_S,
		.exec_timeout_s = sandbox_num(s, ATTR_EXEC_TIMEOUT_S),
		.output_mib = sandbox_num(s, ATTR_OUTPUT_MIB),
		.spool_mib = sandbox_num(s, ATTR_SPOOL_MIB),
		.memory_mib = sandbox_num(s, ATTR_MEMORY_MIB),
		.cpu_percent = sandbox_num(s, ATTR_CPU_PERCENT),
		.pids = sandbox_num(s, ATTR_PIDS),
		.root_mib = sandbox_num(s, ATTR_DISK_MIB),
		.restore = p != NULL,
		.env = s->attrs.env, /* borrowed: box_config_fini is not called */
	};
	struct buf b;
	int r;

	c.net = net_wanted(s);
	snprintf(c.uuid, sizeof(c.uuid), "%s", s->uuid);
	snprintf(c.name, sizeof(c.name), "%s", s->name);
	snprintf(c.engine, sizeof(c.engine), "%s", s->reg->engine.name);
	snprintf(c.accel, sizeof(c.accel), "%s", engine_accel_name(s->accel));
	snprintf(c.network, sizeof(c.network), "%s", c.net ? "filtered" : "none");
	snprintf(c.unenforced, sizeof(c.unenforced), "%s", s->unenforced ? s->unenforced : "");
	if (p) {
		snprintf(c.parent, sizeof(c.parent), "%.63s", p->hidden ? s->attrs.from : p->name);
		machine_id(s, c.machine_id);
	}
	buf_init(&b, MSG_MAX);
	r = box_config_format(&c, &b);
	if (!r)
		r = boxlink_call(s->link, BOX_START, b.data, b.len, NULL, NULL);
	buf_fini(&b);
	/* Beside the boot, or the way back; commands and READY wait for it. */
	return r < 0 ? r : net_start(s, c.net);
}

void start_began(struct sandbox *s)
{
	sandbox_life_timer(s);
	exec_send_all(s);
}

/* -- a cold boot ------------------------------------------------------------------------------------------------------
 */

static void on_machine(void *arg, struct machine *m, int code, const char *words)
{
	struct start *st = arg;
	struct sandbox *s = st->s;
	struct err e = { 0 };
	int k;

	if (code < 0) {
		start_fail(st, code, "starting its machine", words);
		return;
	}
	st->m = NULL;
	s->template[0] = '\0';
	k = machine_give(m, s, &e);
	if (k < 0) {
		machine_free(m);
		start_fail(st, k, "taking its machine", e.msg);
		return;
	}
	k = start_orders(s, NULL);
	if (k < 0) {
		start_fail(st, k, "talking to its box", strerror(-k));
		return;
	}
	start_free(st);
	start_began(s);
}

static void make_machine(struct start *st)
{
	struct sandbox *s = st->s;
	struct machine_plan plan = {
		.accel = s->accel,
		.memory_mib = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)),
		.vcpus = engine_vcpus_class(sandbox_num(s, ATTR_VCPUS)),
		.cpu_percent = sandbox_num(s, ATTR_CPU_PERCENT),
		.io_bytes_per_s = (uint64_t)sandbox_num(s, ATTR_IO_MBPS) * 1000000u,
		.bootid = s->bootid,
		.disk = s->disk,
	};
	struct err e = { 0 };
	int k = machine_new(s->reg, &plan, on_machine, st, &st->m, &e);

	if (k < 0)
		start_fail(st, k, "a machine", e.msg);
}

static void on_disk(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct start *st = arg;

	(void)r;
	(void)m;
	st->asked = false;
	if (code < 0 || !st->s) {
		if (st->s)
			st->s->disk[0] = '\0';
		start_fail(st, code, "making its disk", words);
		return;
	}
	sandbox_save(st->s, NULL);
	make_machine(st);
}

static void make_disk(struct start *st)
{
	struct sandbox *s = st->s;
	struct ask a;
	int k = registry_make_uuid(s->disk);

	if (k < 0) {
		start_fail(st, k, "making its disk", strerror(-k));
		return;
	}
	ask_init(&a);
	ask_str(&a, s->disk);
	ask_u64(&a, ENGINE_DISK_BYTES);
	ask_u64(&a, (uint64_t)sandbox_num(s, ATTR_DISK_MIB) << 20);
	ask_str(&a, s->origin);
	ask_str(&a, s->base);
	if (st->profile.base_fd >= 0)
		ask_fd(&a, st->profile.base_fd);
	k = ask_pager(s->reg, PAGER_DISK_CREATE, &a, on_disk, st);
	if (k < 0) {
		s->disk[0] = '\0';
		start_fail(st, k, "making its disk", strerror(-k));
	} else {
		st->asked = true;
	}
}

static void begin(struct start *st)
{
	st->s->accel = st->reg->accel;
	if (st->s->disk[0])
		make_machine(st);
	else
		make_disk(st);
}

static int new_start(struct sandbox *s, struct start **ret, struct err *e)
{
	struct start *st = calloc(1, sizeof(*st));

	if (!st)
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	st->profile.base_fd = -1;
	st->reg = s->reg;
	st->s = sandbox_ref(s);
	s->start = st;
	*ret = st;
	return 0;
}

/* What its profile offers, and in the sandbox what it has to remember of that. */
static int open_profile(struct sandbox *s, struct profile *ret, struct err *e)
{
	int r = profile_open(s->reg, s->attrs.from + strlen("profile:"), ret, e);

	if (r < 0) {
		err_wrap(e, "sandbox %s: start", s->name);
		return r;
	}
	snprintf(s->bootid, sizeof(s->bootid), "%s", ret->bootid);
	snprintf(s->base, sizeof(s->base), "%s", ret->base);
	return 0;
}

void start_cold(struct sandbox *s)
{
	struct err e = { 0 };
	struct start *st = NULL;
	int r = new_start(s, &st, &e);

	if (!r && st && !s->disk[0])
		r = open_profile(s, &st->profile, &e);
	if (r == 0 && st)
		begin(st);
	else if (s->start)
		start_fail(s->start, r, "start", e.msg);
	else
		sandbox_down(s, e.msg);
}

/* -- where from -------------------------------------------------------------------------------------------------------
 */

static int same_shape(struct sandbox *s, struct snapshot *p, struct err *e)
{
	uint32_t memory = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)),
		 vcpus = engine_vcpus_class(sandbox_num(s, ATTR_VCPUS));

	if (memory == p->memory_mib && vcpus == p->vcpus)
		return 0;
	return err_set(e, -EPROTONOSUPPORT,
		       "snapshot %s is of a machine of %" PRIu32 " MiB and %" PRIu32
		       " vCPUs, limits/ ask for one of %" PRIu32 " and %" PRIu32
		       "; write those of the snapshot, or boot its disk: crucible fork --disk-only %s",
		       p->name, p->memory_mib, p->vcpus, memory, vcpus, p->name);
}

static void choose(struct start *st)
{
	struct sandbox *s = st->s;
	struct snapshot *p = NULL;
	struct err e = { 0 };
	int r = 0;

	s->accel = s->reg->accel;
	if (s->disk[0]) {
		begin(st);
		return;
	}
	if (!strncmp(s->attrs.from, "snapshot:", strlen("snapshot:"))) {
		/* By uuid only: names can be used again, by others. The daemon's own work may be with removed ones. */
		p = s->hidden ? snapshot_by_uuid(s->reg, s->parent_uuid)
			      : registry_snapshot_by_uuid(s->reg, s->parent_uuid);
		r = p ? s->disk_only ? 0 : snapshot_usable(p, &e)
		      : err_set(&e, -ENOENT, "%s: no such snapshot; ls snapshots/ shows them", s->attrs.from);
	} else if (!s->hidden) {
		p = prepared_for(s, &st->profile);
	}
	if (!r && p && !s->disk_only && !p->hidden)
		r = same_shape(s, p, &e);
	if (!r && s->disk_only) {
		snprintf(s->birth, sizeof(s->birth), "%s", p->uuid);
		snprintf(s->origin, sizeof(s->origin), "%s", p->uuid);
		snprintf(s->base, sizeof(s->base), "%s", p->base);
		snprintf(s->bootid, sizeof(s->bootid), "%s", p->bootid);
		p = NULL;
	}
	if (r < 0) {
		start_fail(st, r, "start", e.msg);
	} else if (!p) {
		begin(st);
	} else {
		sandbox_ref(s);
		start_free(st);
		r = restore_begin(s, p, &e);
		if (r < 0)
			sandbox_down(s, e.msg);
		sandbox_unref(s);
	}
}

/* The accelerator is known, and pager and store answer, or are known not to. */
static bool can_choose(struct registry *r)
{
	return r->trial == TRIAL_DONE && (registry_peers_are_up(r) || registry_peers_failed(r));
}

static void look(struct start *st);

static void on_look_again(void *arg)
{
	look(arg);
}

static void look(struct start *st)
{
	struct registry *r = st->reg;

	loop_del(r->loop, &st->look_again);
	if (!can_choose(r)) {
		loop_timer(r->loop, now_ns() + LOOK_NS, on_look_again, st, &st->look_again);
		return;
	}
	waitq_del(&st->trial);
	if (registry_peers_are_up(r))
		choose(st);
	else
		start_fail(st, -EIO, "start", registry_peers_words(r));
}

static void on_trial(struct waiter *w)
{
	struct start *st = (struct start *)((char *)w - offsetof(struct start, trial));

	look(st);
}

/* memory_mib of all that runs or starts, but for @but and warm machines. */
static uint64_t committed_mib(const struct registry *r, const struct sandbox *but)
{
	uint64_t sum = 0;

	const struct sandbox *const lists[] = { r->first, r->hidden };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		for (const struct sandbox *o = lists[i]; o; o = o->next) {
			if (o != but && (o->box_uid || o->start || o->restore))
				sum += engine_memory_class(sandbox_num(o, ATTR_MEMORY_MIB));
		}
	}
	return sum;
}

static uint64_t committed_most_mib(const struct registry *r)
{
	return r->host_memory_mib * r->cfg->overcommit_percent / 100;
}

bool start_room_for(struct registry *r, uint32_t memory_mib)
{
	return committed_mib(r, NULL) + warm_memory_mib(r) + memory_mib <= committed_most_mib(r) &&
	       host_available_mib() >= (uint64_t)r->cfg->memory_floor_mib + memory_mib;
}

/* Refuse early what the host cannot carry: an honest no is better than the kernel's OOM killer. */
static int admit(struct sandbox *s, struct err *e)
{
	struct ask a;

	struct registry *reg = s->reg;
	uint64_t sum = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)) + committed_mib(reg, s),
		 most = committed_most_mib(reg), available = host_available_mib(), free_mib = 0;

	/* What is only prepared can be prepared later. */
	if (sum > most && !s->hidden && reg->prepare) {
		prepare_end(reg);
		sum = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)) + committed_mib(reg, s);
	}
	while (sum <= most && sum + warm_memory_mib(reg) > most && warm_give_up(reg))
		;
	/* What a warm one had comes back behind; it is worth at least its engine's own memory. */
	while (available < reg->cfg->memory_floor_mib && warm_give_up(reg))
		available += WARM_OWN_MIB;
	/* So do pages that the store has as well; how many, is seen at the next try. */
	if (available < reg->cfg->memory_floor_mib && !s->hidden) {
		ask_init(&a);
		ask_str(&a, "");
		ask_pager(reg, PAGER_EVICT, &a, NULL, NULL);
	}
	if (sum > most)
		return err_set(e, -ENOMEM,
			       "sandbox %s: start: %" PRIu64 " MiB of memory_mib would run, more than the %" PRIu64
			       " MiB of overcommit_percent; stop others or lower limits/memory_mib",
			       s->name, sum, most);
	if (available < reg->cfg->memory_floor_mib)
		return err_set(e, -ENOMEM,
			       "sandbox %s: start: the host has %" PRIu64
			       " MiB available, less than memory_floor_mib (%" PRIu32 ")",
			       s->name, available, reg->cfg->memory_floor_mib);
	if (host_disk_free_mib(reg->store_fd, &free_mib) == 0 && free_mib < reg->cfg->disk_floor_mib)
		return err_set(e, -ENOSPC,
			       "sandbox %s: start: the store's disk has %" PRIu64
			       " MiB left, less than disk_floor_mib (%" PRIu32 "); free some",
			       s->name, free_mib, reg->cfg->disk_floor_mib);
	return 0;
}

int sandbox_start(struct sandbox *s, const struct cfs_who *who, struct err *e)
{
	struct start *st = NULL;
	int r;

	(void)who;
	if (s->owner.view && view_dead(s->owner.view))
		return err_set(e, -ESTALE, "sandbox %s: start: its view has ended", s->name);
	if (s->down_pending)
		return err_set(e, -EBUSY, "sandbox %s: start: the machine before is still ending", s->name);
	assert(!s->start && !s->restore && !s->link && !s->box_uid);
	if (!s->reg->launcher)
		return err_set(e, -EIO, "sandbox %s: start: the launcher is gone; restart the daemon", s->name);
	r = admit(s, e);
	if (!r && net_wanted(s) && (r = net_list_check(s, e)) < 0)
		err_wrap(e, "sandbox %s: start: net/allow", s->name);
	if (!r)
		r = new_start(s, &st, e);
	if (r < 0 || !st)
		return r;
	if (!s->disk[0] && !strncmp(s->attrs.from, "profile:", strlen("profile:"))) {
		r = open_profile(s, &st->profile, e);
		if (r < 0) {
			start_free(st);
			return r;
		}
	}
	s->stop_asked = false;
	free(s->unenforced);
	s->unenforced = NULL;
	sandbox_set_error(s, "");
	sandbox_set_status(s, SBX_STARTING);
	trial_begin(s->reg);
	st->trial.fn = on_trial;
	waitq_add(&s->reg->trial_waitq, &st->trial);
	look(st); /* may have failed and gone on return: `error` and `status` say so */
	return 0;
}

void start_let_go(struct sandbox *s)
{
	struct start *st = s->start;

	if (s->restore)
		restore_let_go(s->restore);
	if (!st)
		return;
	s->start = NULL;
	if (!st->asked) {
		start_free(st);
		return;
	}
	st->s = NULL; /* the answer that is on its way finds nobody, and frees it */
	waitq_del(&st->trial);
	sandbox_unref(s);
}
