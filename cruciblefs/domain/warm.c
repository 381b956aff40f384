/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that have been revived from a profile's prepared snapshot before anybody wants them: their commands have
 * been run once, they are frozen and paused, and what is left to do for a sandbox is to say who it is. There is one
 * kind of them at a time, of the prepared snapshot that was used last. pool.c says when one is made; they count as
 * memory that runs (start.c), and are the first to go when that is short. */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/revive.h"

#define HOLD_NS	     (60ull * 1000000000ull) /* from the order for a machine to its rest; a box warms for 5 s at most */
#define FAILURES_MAX 3u

struct warm {
	struct registry *reg;
	struct warm *next;
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

	if (code == 0) {
		w->held = true;
		loop_del(r->loop, &w->limit);
		r->warm_failures = 0;
		pool_fill(r); /* the next, if there is to be another */
		return;
	}
	log_warn("event=warm-machine-lost step=\"%s\" error=\"%s\" next=another-is-made", step, words);
	if (!w->held)
		r->warm_failures++;
	drop(w);
	snapshots_sweep(r);
	pool_fill(r);
}

static void on_limit(void *arg)
{
	on_end(arg, -ETIMEDOUT, "warming it", "it did not come to rest");
}

/* The one that was used last, while it is there; after a restart that of the defaults. */
static struct snapshot *wanted(struct registry *r)
{
	struct snapshot *p = snapshot_by_uuid(r, r->warm_uuid);
	struct err e;

	if (!p)
		p = prepared_default(r);
	return p && !p->gone && snapshot_usable(p, &e) == 0 ? p : NULL;
}

unsigned warm_count(const struct registry *r, bool held)
{
	unsigned n = 0;

	for (const struct warm *w = r->warm; w; w = w->next)
		n += !held || w->held;
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
	if (!r->warm)
		return false;
	log_info("event=warm-machine-given-up next=the-memory-is-wanted");
	drop(r->warm);
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

bool warm_fill(struct registry *r)
{
	static const struct revive_ops ops = { NULL, on_end };
	struct revive_plan plan = { .p = wanted(r), .disk_mib = r->warm_disk_mib, .hold = true };
	struct warm *w;
	struct err e = { 0 };

	if (!r->cfg->warm_size || !plan.p || r->warm_failures >= FAILURES_MAX || !registry_peers_are_up(r))
		return false;
	if (!plan.disk_mib)
		plan.disk_mib = r->defaults.num[ATTR_DISK_MIB];
	for (struct warm *next = r->warm; next;) {
		w = next;
		next = w->next;
		if (!w->held)
			return true; /* one at a time: its end brings us here again */
		if (revive_snapshot(w->v) != plan.p || w->disk_mib != plan.disk_mib)
			drop(w);
	}
	if (warm_count(r, false) >= r->cfg->warm_size || !start_room_for(r, plan.p->memory_mib))
		return false;
	w = calloc(1, sizeof(*w));
	if (!w)
		return false;
	w->reg = r;
	w->disk_mib = plan.disk_mib;
	w->next = r->warm;
	r->warm = w;
	if (loop_timer(r->loop, now_ns() + HOLD_NS, on_limit, w, &w->limit) < 0 ||
	    revive_begin(r, &plan, &ops, w, &w->v, &e) < 0) {
		drop(w);
		return false;
	}
	return true;
}

struct revival *warm_take(struct registry *r, struct snapshot *p, uint32_t disk_mib)
{
	struct warm *w = r->warm;
	struct revival *v;

	if (!p->hidden)
		return NULL;
	memcpy(r->warm_uuid, p->uuid, sizeof(r->warm_uuid));
	r->warm_disk_mib = disk_mib;
	r->warm_failures = 0;
	pool_wanted(r);
	while (w && (!w->held || revive_snapshot(w->v) != p || w->disk_mib != disk_mib))
		w = w->next;
	if (!w) {
		r->warm_missed += r->cfg->warm_size > 0;
		return NULL;
	}
	r->warm_taken++;
	v = w->v;
	w->v = NULL;
	drop(w);
	return v;
}
