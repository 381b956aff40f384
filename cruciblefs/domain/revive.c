/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * revive.h has the stages. Calls to the pager, the store and the box are on their way while a revival may be let go, or
 * fail: `asked` counts them, and the memory is freed with the last answer. While its machine is nobody's, the machine's
 * end comes to on_machine() here; a sandbox that was given it hears of it by its own link and lets go of us.
 *
 * ATTACH is not waited for, except on a host without userfaultfd: faults wait for the pager by themselves. What it
 * refuses ends the machine, whosever it is then.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "cruciblefs/domain/revive.h"
#include "snapstore/stored/stored.h"

enum {
	NEED_TEMPLATE = 1,
	NEED_DISK = 2,
	NEED_MACHINE = 4,
	NEED_STATE = 8,
	NEED_EXPORT = 16,
	NEED_MEMORY = 32,
	NEED_ATTACH = 64,
	FIRST = NEED_TEMPLATE | NEED_DISK | NEED_MACHINE | NEED_STATE,
	SECOND = NEED_EXPORT | NEED_MEMORY,
};

struct revival {
	struct registry *reg;
	struct revival *next; /* in the registry, until let go */
	const struct revive_ops *ops;
	void *arg;
	struct snapshot *p;   /* a reference */
	struct machine *m;    /* until it is given away */
	struct boxlink *link; /* its; also afterwards, until let go */
	char id[LAUNCH_UUID_LEN + 1];
	enum box_hold hold;
	bool pooled, lost, given, failed, let_go;
	bool unreadable;	       /* revive_unreadable() */
	bool disk, exported, attached; /* the pager was asked for that */
	unsigned missing;	       /* NEED_* of this stage */
	unsigned asked;		       /* answers that are on their way, and calls of ours on the stack */
	struct buf ranges;
	int template_fd, state_fd;
	loop_id timer; /* until it is done */
};

static void release(struct revival *v)
{
	if (v->asked || !v->let_go)
		return;
	struct registry *r = v->reg;

	fd_close(&v->template_fd);
	fd_close(&v->state_fd);
	buf_fini(&v->ranges);
	snapshot_unref(v->p);
	free(v);
	snapshots_sweep(r); /* it may have been removed meanwhile */
}

static void unlist(struct revival *v)
{
	struct revival **at = &v->reg->revivals;

	while (*at && *at != v)
		at = &(*at)->next;
	if (*at)
		*at = v->next;
}

struct revival *revive_free(struct revival *v)
{
	if (!v)
		return NULL;
	v->let_go = true;
	v->asked++; /* the calls to its box end in here */
	loop_del(v->reg->loop, &v->timer);
	unlist(v);
	if (!v->given) {
		net_early_drop(v->reg, v->id);
		v->m = machine_free(v->m);
		pager_let_go(v->reg, v->id,
			     (v->attached ? GO_MEMORY : 0) | (v->exported ? GO_EXPORT : 0) | (v->disk ? GO_DISK : 0));
	}
	v->asked--;
	release(v);
	return NULL;
}

static void fail(struct revival *v, int code, const char *step, const char *words)
{
	if (v->failed || v->let_go)
		return;
	v->failed = true;
	loop_del(v->reg->loop, &v->timer);
	v->asked++;
	v->ops->fn(v->arg, code, step, words);
	v->asked--;
	release(v);
}

/* An answer came: is it still wanted? False: @v may be gone. */
static bool answered(struct revival *v, int code, const char *step, const char *words)
{
	v->asked--;
	if (v->let_go || v->failed) {
		release(v);
		return false;
	}
	if (code < 0) {
		/* Of FIRST, these are template, disk and state; the machine comes by on_machine(). */
		v->unreadable = (v->missing & FIRST) && (code == -EBADMSG || code == -ENOENT);
		fail(v, code, step, words);
		return false;
	}
	return true;
}

/* @v lives on return: its caller holds it. */
static void sent(struct revival *v, int code, const char *step)
{
	if (code == 0)
		v->asked++;
	else
		fail(v, code, step, strerror(-code));
}

static void ask_its_box(struct revival *v, int type, struct ask *a, ask_fn *fn, const char *step)
{
	int k = ask_box(v->link, type, a, fn, v);

	v->lost |= k < 0;
	sent(v, k, step);
}

static bool goes_on(const struct revival *v)
{
	return !v->failed && !v->let_go;
}

/* -- third: loaded ---------------------------------------------------------------------------------------------------
 */

static void end_well(struct revival *v)
{
	if (v->hold != BOX_HOLD_REHEARSED) /* it touches too little */
		workset_learn(v->p);
	loop_del(v->reg->loop, &v->timer);
	v->asked++;
	v->ops->fn(v->arg, 0, "", "");
	v->asked--;
	release(v);
}

static void on_loaded(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct revival *v = arg;

	(void)r;
	(void)m;
	v->lost |= code < 0;
	if (answered(v, code, "loading its state", words) && !v->hold)
		end_well(v);
}

/* One that could not be warmed in time may be half frozen, too: it is not worth waiting with. */
static void on_held(void *arg, struct machine *m, bool warm)
{
	struct revival *v = arg;

	(void)m;
	if (!goes_on(v) || !v->hold)
		return;
	if (warm)
		end_well(v);
	else
		fail(v, -ETIMEDOUT, "warming it", "it could not be made warm in time");
}

static void load(struct revival *v)
{
	struct ask a;

	ask_init(&a);
	ask_u8(&a, (uint8_t)v->hold);
	ask_str(&a, v->id);
	ask_fd(&a, v->state_fd);
	ask_its_box(v, BOX_LOAD, &a, on_loaded, "asking its box to load");
}

/* -- second: memory and disk ------------------------------------------------------------------------------------------
 */

static void got(struct revival *v, unsigned what);

static void on_attached(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct revival *v = arg;

	(void)r;
	(void)m;
	/* Its faults would wait for ever. */
	if (code < 0 && v->let_go && v->given) {
		char text[256];

		snprintf(text, sizeof(text), "the pager does not take its memory: %s", words);
		machine_lost(v->reg, v->id, text);
	}
	if (answered(v, code, "telling the pager of its memory", words) && (v->missing & NEED_ATTACH))
		got(v, NEED_ATTACH);
}

static void on_memory(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct revival *v = arg;
	uint64_t base;
	uint8_t has_uffd;

	v->lost |= code < 0;
	if (!answered(v, code, "putting its memory in place", words))
		return;
	base = wire_u64(r);
	has_uffd = wire_u8(r);
	if (wire_done(r) < 0 || m->nfds < 2u + has_uffd) {
		fail(v, -EBADMSG, "putting its memory in place", "the box answers nonsense");
		return;
	}
	int fds[3] = { has_uffd ? m->fds[2] : -1, m->fds[0], m->fds[1] };
	const struct attach at = {
		.machine = v->id,
		.template = v->p->uuid,
		.base = base,
		.bytes = (uint64_t)v->p->memory_mib << 20,
		.ranges = &v->ranges,
		.fds = fds + !has_uffd,
		.nfds = 2u + has_uffd,
	};

	v->asked++;
	v->missing |= has_uffd ? 0 : NEED_ATTACH;
	sent(v, ask_attach(v->reg, &at, on_attached, v), "telling the pager of its memory");
	v->attached = true;
	if (goes_on(v))
		got(v, NEED_MEMORY);
	v->asked--;
	release(v);
}

static void on_export(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct revival *v = arg;

	(void)r;
	(void)m;
	if (answered(v, code, "offering it its disk", words))
		got(v, NEED_EXPORT);
}

static void second(struct revival *v)
{
	struct err e = { 0 };
	struct ask a;
	int k;

	v->link = v->m->link;
	v->missing = SECOND;
	ask_init(&a);
	ask_str(&a, v->id);
	ask_str(&a, v->id);
	ask_u32(&a, machine_engine_uid(v->m));
	v->exported = true;
	sent(v, ask_pager(v->reg, PAGER_DISK_EXPORT, &a, on_export, v), "offering it its disk");
	if (goes_on(v)) {
		ask_init(&a);
		ask_u64(&a, (uint64_t)v->p->memory_mib << 20);
		ask_raw(&a, v->ranges.data, v->ranges.len);
		ask_str(&a, v->p->uuid);
		ask_fd(&a, v->template_fd);
		ask_its_box(v, BOX_MEMORY, &a, on_memory, "putting its memory in place");
	}
	if (goes_on(v) && v->ops->has_machine) {
		k = v->ops->has_machine(v->arg, &e);
		if (k < 0)
			fail(v, k, "taking a machine", e.msg);
	}
}

/* -- first: template, disk, machine, state ---------------------------------------------------------------------------
 */

/* @v may be gone on return. */
static void got(struct revival *v, unsigned what)
{
	v->missing &= ~what;
	if (v->missing)
		return;
	v->asked++;
	if (what & FIRST)
		second(v);
	else
		load(v);
	v->asked--;
	release(v);
}

static void on_template(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct revival *v = arg;
	size_t left = wire_left(r);

	if (!answered(v, code, "its memory", words))
		return;
	if (m->nfds < 1 || left < 4 || buf_add(&v->ranges, wire_raw(r, left), left) < 0) {
		fail(v, -EIO, "its memory", "the pager answers nonsense");
		return;
	}
	v->template_fd = take_fd(&m->fds[0]);
	got(v, NEED_TEMPLATE);
}

static void on_disk(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct revival *v = arg;

	(void)r;
	(void)m;
	if (answered(v, code, "its disk", words))
		got(v, NEED_DISK);
}

/* Made, or made and lost. A machine that is not ours any more says so to its sandbox. */
static void on_machine(void *arg, struct machine *m, int code, const char *words)
{
	struct revival *v = arg;

	if (code < 0) {
		v->m = NULL;
		v->lost = true;
		machine_free(m);
		fail(v, code, "a machine", words);
	} else {
		got(v, NEED_MACHINE);
	}
}

/* Every reader needs an offset of its own. */
static int reopen(int fd)
{
	char path[40];
	int k;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	k = open(path, O_RDONLY | O_CLOEXEC);
	return k < 0 ? -errno : k;
}

static void state_here(struct revival *v)
{
	int k = reopen(v->p->state_fd);

	snapshot_state_used(v->p);
	if (k < 0) {
		fail(v, k, "its state", strerror(-k));
		return;
	}
	v->state_fd = k;
	got(v, NEED_STATE);
}

static void on_state(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct revival *v = arg;

	(void)r;
	if (!answered(v, code, "its state", words))
		return;
	if (m->nfds < 1) {
		fail(v, -EIO, "its state", "the store answers nonsense");
		return;
	}
	if (v->p->state_fd < 0)
		v->p->state_fd = take_fd(&m->fds[0]);
	state_here(v);
}

static void ask_template(struct revival *v)
{
	struct ask a;

	workset_tell(v->p);
	ask_init(&a);
	ask_str(&a, v->p->uuid);
	ask_u64(&a, (uint64_t)v->p->memory_mib << 20);
	ask_u8(&a, v->p->hidden); /* a profile's is everybody's */
	sent(v, ask_pager(v->reg, PAGER_TEMPLATE, &a, on_template, v), "its memory");
}

static void ask_disk(struct revival *v, uint32_t disk_mib)
{
	struct ask a;

	ask_init(&a);
	ask_str(&a, v->id);
	ask_u64(&a, ENGINE_DISK_BYTES);
	ask_u64(&a, (uint64_t)disk_mib << 20);
	ask_str(&a, v->p->uuid);
	ask_str(&a, v->p->base);
	v->disk = true;
	sent(v, ask_pager(v->reg, PAGER_DISK_CREATE, &a, on_disk, v), "its disk");
}

static void ask_state(struct revival *v)
{
	struct ask a;

	if (v->p->state_fd >= 0) {
		state_here(v);
		return;
	}
	ask_init(&a);
	ask_str(&a, v->p->uuid);
	sent(v, ask_store(v->reg, STORE_STATE, &a, on_state, v), "its state");
}

/* A machine, and with it the id. */
static void ask_machine(struct revival *v, const struct revive_plan *q)
{
	const struct machine_plan plan = {
		.generic = true,
		.accel = v->p->accel,
		.memory_mib = v->p->memory_mib,
		.vcpus = v->p->vcpus,
		.cpu_percent = q->cpu_percent,
		.io_bytes_per_s = q->io_bytes_per_s,
	};
	bool any_will_do = !q->hold && !q->fresh && !q->cpu_percent && !q->io_bytes_per_s;
	struct err e = { 0 };
	int k;

	v->m = any_will_do ? pool_take(v->reg, plan.memory_mib, plan.vcpus) : NULL;
	v->pooled = v->m != NULL;
	if (v->pooled) {
		v->m->fn = on_machine; /* its box may still die */
		v->m->arg = v;
	} else if ((k = machine_new(v->reg, &plan, on_machine, v, &v->m, &e)) < 0) {
		fail(v, k, "a machine", e.msg);
		return;
	}
	v->m->on_held = on_held;
	snprintf(v->id, sizeof(v->id), "%s", v->m->id);
}

static void on_deadline(void *arg)
{
	struct revival *v = arg;

	v->timer = 0;
	fail(v, -ETIMEDOUT, v->missing ? "waiting for the pager, the store or its box" : "loading its state",
	     "no answer");
}

int revive_begin(struct registry *r, const struct revive_plan *plan, const struct revive_ops *ops, void *arg,
		 struct revival **ret, struct err *e)
{
	struct revival *v = calloc(1, sizeof(*v));

	if (!v)
		return err_set(e, -ENOMEM, "no memory");
	v->reg = r;
	v->ops = ops;
	v->arg = arg;
	v->p = snapshot_ref(plan->p);
	v->hold = plan->hold;
	v->template_fd = v->state_fd = -1;
	v->missing = FIRST;
	buf_init(&v->ranges, 16384);
	v->next = r->revivals;
	r->revivals = v;
	*ret = v;
	loop_timer(r->loop, now_ns() + ask_deadline_ns, on_deadline, v, &v->timer); /* without memory: without */
	v->asked++;								    /* of ours, until all is asked */
	ask_machine(v, plan);
	if (goes_on(v))
		ask_template(v);
	if (goes_on(v))
		ask_disk(v, plan->disk_mib);
	if (goes_on(v))
		ask_state(v);
	if (goes_on(v) && v->pooled)
		got(v, NEED_MACHINE);
	v->asked--;
	release(v);
	return 0;
}

/* -- whose it is ------------------------------------------------------------------------------------------------------
 */

int revive_give(struct revival *v, struct sandbox *s, struct err *e)
{
	int k;

	snprintf(s->template, sizeof(s->template), "%s", v->p->uuid);
	snprintf(s->birth, sizeof(s->birth), "%s", v->p->uuid);
	snprintf(s->origin, sizeof(s->origin), "%s", v->p->uuid);
	snprintf(s->disk, sizeof(s->disk), "%s", v->id);
	snprintf(s->bootid, sizeof(s->bootid), "%s", v->p->bootid);
	snprintf(s->base, sizeof(s->base), "%s", v->p->base);
	k = machine_give(v->m, s, e);
	if (k < 0) {
		s->template[0] = s->birth[0] = s->origin[0] = s->disk[0] = '\0';
		return k;
	}
	s->attached = v->attached;
	v->m = NULL;
	v->given = true;
	return 0;
}

const char *revive_machine(const struct revival *v)
{
	return v->id;
}

const struct snapshot *revive_snapshot(const struct revival *v)
{
	return v->p;
}

bool revive_unreadable(const struct revival *v)
{
	return v->unreadable;
}

bool revive_given(const struct revival *v)
{
	return v->given;
}

bool revive_pooled(const struct revival *v)
{
	return v->pooled;
}

bool revive_pooled_lost(const struct revival *v)
{
	return v->pooled && v->lost;
}

void machine_lost(struct registry *r, const char *id, const char *words)
{
	struct sandbox *s = registry_by_machine(r, id);
	char text[320];

	snprintf(text, sizeof(text), "the machine was lost: %s", words);
	if (s) {
		sandbox_down(s, text);
		return;
	}
	for (struct revival *v = r->revivals; v; v = v->next) {
		if (!strcmp(v->id, id)) {
			fail(v, -EIO, "its memory", words);
			return;
		}
	}
}

void revive_end_all(struct registry *r, const char *words)
{
	struct revival *v = r->revivals;

	while (v) {
		/* One that has failed is being let go of by whoever has it. */
		while (v && (v->given || v->failed))
			v = v->next;
		if (!v)
			return;
		fail(v, -EPIPE, "its memory", words);
		v = r->revivals; /* the list has changed */
	}
}

void revive_each(struct registry *r, void (*fn)(void *arg, const char *uuid), void *arg)
{
	for (struct revival *v = r->revivals; v; v = v->next)
		fn(arg, v->p->uuid);
}
