/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that are made before anybody wants them: an engine and its box, generic, of the shapes that were used last.
 * They hide what starting processes costs. The pool is filled behind, one machine at a time and never while a sandbox
 * is being brought up, so that a burst is not slowed down by its own refill. */
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"

#define QUIET_NS   (100ull * 1000000ull)  /* after the last start */
#define COMMAND_NS (2000ull * 1000000ull) /* after it, while commands run */

static void fill(void *arg);

static void soon(struct registry *r)
{
	if (!r->pool_timer)
		loop_timer(r->loop, now_ns() + QUIET_NS, fill, r, &r->pool_timer);
}

static void take_out(struct registry *r, struct machine *m)
{
	struct machine **at = &r->pool_machines;

	while (*at && *at != m)
		at = &(*at)->next;
	if (*at) {
		*at = m->next;
		m->next = NULL;
		r->npool--;
	}
}

/* It is made, or it has ended: nobody waits for it. */
static void on_machine(void *arg, struct machine *m, int code, const char *words)
{
	struct registry *r = arg;

	if (code < 0) {
		log_warn("machine=%s event=pool-machine-lost error=\"%s\" next=the-next-start-makes-one", m->id, words);
		take_out(r, m);
		machine_free(m);
		r->pool_failures++;
		return;
	}
	r->pool_failures = 0;
	soon(r);
}

bool registry_anybody_starts(const struct registry *r)
{
	for (const struct sandbox *s = r->first; s; s = s->next) {
		if (s->start || s->restore || s->status == SBX_STARTING)
			return true;
	}
	return false;
}

/* A command that just got its machine would run beside the making of the next: it goes first, within reason. */
static bool in_the_way(const struct registry *r)
{
	if (now_ns() - r->pool_wanted_ns > COMMAND_NS)
		return false;
	for (const struct sandbox *s = r->first; s; s = s->next) {
		if (s->nrunning)
			return true;
	}
	return false;
}

static void fill(void *arg)
{
	struct registry *r = arg;
	struct machine_plan plan = {
		.generic = true, .accel = r->accel, .memory_mib = r->pool_memory_mib, .vcpus = r->pool_vcpus
	};
	struct machine *m;
	struct err e = { 0 };

	r->pool_timer = 0; /* it has fired: soon() may set it again */
	if (r->shutting_down || !r->launcher || r->trial != TRIAL_DONE || !r->pool_memory_mib)
		return;
	if (registry_anybody_starts(r) || in_the_way(r)) {
		soon(r);
		return;
	}
	if (r->npool >= r->cfg->pool_size || r->pool_failures > 2) {
		warm_fill(r);
		return;
	}
	for (m = r->pool_machines; m; m = m->next) {
		if (m->making)
			return; /* its end brings us here again */
	}
	if (machine_new(r, &plan, on_machine, r, &m, &e) < 0) {
		log_warn("event=pool-not-filled error=\"%s\" next=the-next-start-makes-one", e.msg);
		return;
	}
	m->next = r->pool_machines;
	r->pool_machines = m;
	r->npool++;
}

struct machine *pool_take(struct registry *r, uint32_t memory_mib, uint32_t vcpus)
{
	struct machine *m = r->pool_machines;

	while (m && (m->making || m->memory_mib != memory_mib || m->vcpus != vcpus || m->accel != r->accel))
		m = m->next;
	if (m)
		take_out(r, m);
	/* The shape that is wanted now is the one that will be wanted next; machines of others are in the way. */
	r->pool_memory_mib = memory_mib;
	r->pool_vcpus = vcpus;
	r->pool_failures = 0;
	r->pool_taken += m != NULL;
	r->pool_missed += !m && r->cfg->pool_size;
	if (!m && r->npool && r->npool >= r->cfg->pool_size) {
		struct machine *old = r->pool_machines;

		while (old && old->memory_mib == memory_mib && old->vcpus == vcpus)
			old = old->next;
		if (old) {
			take_out(r, old);
			machine_free(old);
		}
	}
	pool_wanted(r);
	return m;
}

void pool_wanted(struct registry *r)
{
	r->pool_wanted_ns = now_ns();
	loop_del(r->loop, &r->pool_timer);
	soon(r);
}

unsigned pool_ready(const struct registry *r)
{
	unsigned n = 0;

	for (const struct machine *m = r->pool_machines; m; m = m->next)
		n += !m->making;
	return n;
}

void pool_fill(struct registry *r)
{
	if (!r->pool_memory_mib) {
		r->pool_memory_mib = engine_memory_class(r->defaults.num[ATTR_MEMORY_MIB]);
		r->pool_vcpus = engine_vcpus_class(r->defaults.num[ATTR_VCPUS]);
	}
	soon(r);
}

void pool_drain(struct registry *r)
{
	loop_del(r->loop, &r->pool_timer);
	warm_drain(r);
	while (r->pool_machines) {
		struct machine *m = r->pool_machines;

		take_out(r, m);
		machine_free(m);
	}
}
