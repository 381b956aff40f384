/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that have been revived from a snapshot before anybody wants them, greeted as nobody and paused: what is left
 * to do for a sandbox is to say who it is. There are two kinds: of the profile's prepared snapshot that was used last,
 * whose commands have been run once, too; and of the user's snapshot that was forked last, in which nothing has run
 * (box_load.c). One that nobody forks costs nothing. Who may fork it was looked at before anybody comes here; what goes
 * wrong here is told in the log and is nobody's.
 *
 * pool.c says when one is made; they count as memory that runs (start.c), and are the first to go when that is short.
 */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/revive.h"
#include "cruciblefs/view.h"

#define HOLD_NS	     (60ull * 1000000000ull) /* from the order for a machine to its rest; a box warms for 5 s at most */
#define FAILURES_MAX 3u

struct warm {
	struct registry *reg;
	struct warm *next;
	enum warm_of kind;
	struct revival *v;
	uint32_t disk_mib;
	bool held;
	loop_id limit;
};

static void drop(struct warm *w)
{
	struct registry *r = w->reg;
	struct warm **at = &r->warm;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
	loop_del(r->loop, &w->limit);
	revive_free(w->v);
	free(w);
}

static void on_end(void *arg, int code, const char *step, const char *words)
{
	struct warm *w = arg;
	struct registry *r = w->reg;
	const struct snapshot *p = revive_snapshot(w->v);

	if (code == 0) {
		w->held = true;
		loop_del(r->loop, &w->limit);
		r->warm_kinds[w->kind].failures = 0;
		if (w->kind == WARM_FORKED && p->attrs.net_allow)
			net_early_begin(r, revive_machine(w->v));
		pool_fill(r); /* the next, if there is to be another */
		return;
	}
	log_warn("snapshot=%s event=warm-machine-lost step=\"%s\" error=\"%s\" next=another-is-made",
		 p->hidden ? p->key : p->name, step, words);
	if (!w->held)
		r->warm_kinds[w->kind].failures++;
	drop(w);
	snapshots_sweep(r);
	pool_fill(r);
}

static void on_limit(void *arg)
{
	on_end(arg, -ETIMEDOUT, "warming it", "it did not come to rest");
}

/* The one that was used last, while it is there; after a restart the prepared one of the defaults, and no other. */
static struct snapshot *wanted(struct registry *r, enum warm_of kind)
{
	struct snapshot *p = snapshot_by_uuid(r, r->warm_kinds[kind].uuid);
	struct err e;

	if (!p && kind == WARM_PREPARED)
		p = prepared_default(r);
	if (!p || p->gone || (p->owner.view && view_dead(p->owner.view)))
		return NULL;
	return snapshot_usable(p, &e) == 0 ? p : NULL;
}

static enum warm_of kind_of(const struct snapshot *p)
{
	return p->hidden ? WARM_PREPARED : WARM_FORKED;
}

unsigned warm_count(const struct registry *r, enum warm_of kind, bool held)
{
	unsigned n = 0;

	for (const struct warm *w = r->warm; w; w = w->next)
		n += w->kind == kind && (!held || w->held);
	return n;
}

uint64_t warm_memory_mib(const struct registry *r)
{
	uint64_t sum = 0;

	for (const struct warm *w = r->warm; w; w = w->next)
		sum += revive_snapshot(w->v)->memory_mib;
	return sum;
}

bool warm_give_up(struct registry *r)
{
	struct warm *w = r->warm;

	while (w && w->next && w->kind == WARM_PREPARED)
		w = w->next;
	if (!w)
		return false;
	log_info("event=warm-machine-given-up next=the-memory-is-wanted");
	drop(w);
	return true;
}

void warm_drain(struct registry *r)
{
	while (r->warm)
		drop(r->warm);
}

void warm_forget(struct registry *r, const struct snapshot *p)
{
	for (struct warm *w = r->warm, *next; w; w = next) {
		next = w->next;
		if (revive_snapshot(w->v) == p)
			drop(w);
	}
}

/* Those that are not what is wanted go. */
static void keep_only(struct registry *r, enum warm_of kind, const struct snapshot *p, uint32_t disk_mib)
{
	for (struct warm *w = r->warm, *next; w; w = next) {
		next = w->next;
		if (w->kind == kind && (revive_snapshot(w->v) != p || w->disk_mib != disk_mib))
			drop(w);
	}
}

static bool is_making(const struct registry *r)
{
	for (const struct warm *w = r->warm; w; w = w->next) {
		if (!w->held)
			return true;
	}
	return false;
}

static bool make(struct registry *r, enum warm_of kind, const struct revive_plan *plan)
{
	static const struct revive_ops ops = { NULL, on_end };
	struct warm *w = calloc(1, sizeof(*w));
	struct err e = { 0 };

	if (!w)
		return false;
	*w = (struct warm){ .reg = r, .next = r->warm, .kind = kind, .disk_mib = plan->disk_mib };
	r->warm = w;
	if (loop_timer(r->loop, now_ns() + HOLD_NS, on_limit, w, &w->limit) < 0 ||
	    revive_begin(r, plan, &ops, w, &w->v, &e) < 0) {
		drop(w);
		return false;
	}
	return true;
}

static bool fill(struct registry *r, enum warm_of kind)
{
	const struct warm_kind *k = &r->warm_kinds[kind];
	struct revive_plan plan = {
		.p = wanted(r, kind),
		.disk_mib = k->disk_mib ? k->disk_mib : r->defaults.num[ATTR_DISK_MIB],
		.hold = kind == WARM_PREPARED ? BOX_HOLD_WARM : BOX_HOLD_REHEARSED,
	};

	if (!plan.p || k->failures >= FAILURES_MAX)
		return false;
	keep_only(r, kind, plan.p, plan.disk_mib);
	if (is_making(r))
		return true; /* one at a time: its end brings us here again */
	return warm_count(r, kind, false) < r->cfg->warm_size && start_room_for(r, plan.p->memory_mib) &&
	       make(r, kind, &plan);
}

bool warm_fill(struct registry *r)
{
	if (!r->cfg->warm_size || !registry_peers_are_up(r))
		return false;
	return fill(r, WARM_PREPARED) || fill(r, WARM_FORKED);
}

struct revival *warm_take(struct registry *r, struct snapshot *p, uint32_t disk_mib)
{
	struct warm_kind *k = &r->warm_kinds[kind_of(p)];
	struct warm *w = r->warm;
	struct revival *v;

	memcpy(k->uuid, p->uuid, sizeof(k->uuid));
	k->disk_mib = disk_mib;
	k->failures = 0;
	pool_wanted(r);
	while (w && (!w->held || revive_snapshot(w->v) != p || w->disk_mib != disk_mib))
		w = w->next;
	if (!w) {
		k->missed += r->cfg->warm_size > 0;
		return NULL;
	}
	k->taken++;
	v = w->v;
	w->v = NULL;
	drop(w);
	return v;
}
