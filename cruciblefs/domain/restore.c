/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox goes on from a snapshot: with a warm machine of the pool when there is one (warm.c), else with one that is
 * revived for it (revive.c). Its box has its orders (START) as soon as the machine is the sandbox's, so it greets the
 * guest by itself and says READY, which is the end as boxlink.c sees it.
 *
 * A machine that waited in the pool may have died there, and nobody knows of it yet: when that is why it fails, the
 * sandbox gets another one, made for it (down.c). Until the guest has answered, commands and calls wait in the daemon.
 *
 * Else: before the machine is the sandbox's, a failure of a profile's prepared snapshot is no failure of the start: it
 * boots cold instead. After that, a failure ends the start; no guest has run on the disk then, so that it goes too, and
 * the next start goes on from the snapshot, not from its disk alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/revive.h"

#define FAILED_LOADS_MAX 2u /* one after the other; a single one may have lost its engine for any reason */

struct restore {
	struct sandbox *s;  /* a reference; s->restore is us */
	struct snapshot *p; /* a reference */
	struct revival *v;
};

void restore_let_go(struct restore *o)
{
	struct sandbox *s = o->s;

	s->restore = NULL;
	revive_free(o->v);
	snapshot_unref(o->p);
	free(o);
	sandbox_unref(s);
}

static void fail(struct restore *o, int code, const char *step, const char *words)
{
	struct sandbox *s = sandbox_ref(o->s);
	struct snapshot *p = snapshot_ref(o->p);
	bool given = revive_given(o->v), unreadable = revive_unreadable(o->v);
	bool again = revive_pooled_lost(o->v) && (!given || s->unproven);
	bool cold = p->hidden && !given && !again;
	struct err e = { 0 };

	err_set(&e, code, "sandbox %s: going on from %s: %s: %s", s->name, p->hidden ? p->key : p->name, step, words);
	restore_let_go(o);
	if (given && !again)
		p->failed_loads++;
	/* What belongs to the snapshot is not there, or not what it was. (A missing engine is no damage.) A prepared
	 * one that loads no more must not be in every start's way. */
	if (p->hidden && p->failed_loads >= FAILED_LOADS_MAX && !p->gone) {
		snapshot_destroy(p, NULL);
	} else if (unreadable) {
		if (p->hidden)
			snapshot_destroy(p, NULL); /* made anew */
		else
			snapshot_set_status(p, SNAPSHOT_DAMAGED, e.msg);
	}
	if (cold) {
		log_warn("sandbox=%s uuid=%s event=not-restored error=\"%s\" next=boots-cold", s->name, s->uuid, e.msg);
		start_cold(s);
	} else {
		s->unproven = again;
		if (!again)
			s->reg->n_failed_starts++;
		sandbox_down(s, e.msg);
	}
	snapshot_unref(p);
	sandbox_unref(s);
}

/* -errno: nothing but its orders is missing, or nothing has changed (see revive_given). */
static int take(struct sandbox *s, struct snapshot *p, struct revival *v, struct err *e)
{
	int k = revive_give(v, s, e);

	if (k < 0)
		return k;
	/* No guest has run on its disk yet; a prepared one's that does not load can be booted all the same. */
	s->disk_unused = !p->hidden;
	k = start_orders(s, p);
	if (k < 0)
		return err_set(e, k, "talking to its box: %s", strerror(-k));
	start_began(s);
	return 0;
}

static int has_machine(void *arg, struct err *e)
{
	struct restore *o = arg;

	o->s->unproven = revive_pooled(o->v); /* before anything is sent to it */
	return take(o->s, o->p, o->v, e);
}

static void on_end(void *arg, int code, const char *step, const char *words)
{
	struct restore *o = arg;

	if (code < 0) {
		fail(o, code, step, words);
		return;
	}
	o->s->attached = true;
	o->s->disk_unused = false;
	o->p->failed_loads = 0;
	restore_let_go(o); /* READY comes by itself */
}

/* 0: @s has a warm machine. */
static int take_warm(struct sandbox *s, struct snapshot *p, const struct revive_plan *plan)
{
	struct revival *v = plan->cpu_percent || plan->io_bytes_per_s ? NULL : warm_take(s->reg, p, plan->disk_mib);
	struct err e = { 0 };
	int k;

	if (!v)
		return -ENOENT;
	s->unproven = true; /* before anything is sent to it */
	k = take(s, p, v, &e);
	s->unproven = revive_given(v);
	revive_free(v);
	if (k == 0)
		return 0;
	if (s->unproven) {
		sandbox_down(s, e.msg); /* which makes another one: down.c */
		return 0;
	}
	log_warn("sandbox=%s uuid=%s event=warm-machine-not-taken error=\"%s\" next=another-is-made", s->name, s->uuid,
		 e.msg);
	return k;
}

int restore_begin(struct sandbox *s, struct snapshot *p, struct err *e)
{
	static const struct revive_ops ops = { has_machine, on_end };
	const struct revive_plan plan = {
		.p = p,
		.disk_mib = sandbox_num(s, ATTR_DISK_MIB),
		.cpu_percent = sandbox_num(s, ATTR_CPU_PERCENT),
		.io_bytes_per_s = (uint64_t)sandbox_num(s, ATTR_IO_MBPS) * 1000000u,
		.fresh = s->fresh,
	};
	struct restore *o;
	int k;

	if (!plan.fresh && take_warm(s, p, &plan) == 0)
		return 0;
	o = calloc(1, sizeof(*o));
	if (!o)
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	o->s = sandbox_ref(s);
	o->p = snapshot_ref(p);
	s->restore = o;
	k = revive_begin(s->reg, &plan, &ops, o, &o->v, e);
	if (k < 0)
		restore_let_go(o);
	return k;
}
