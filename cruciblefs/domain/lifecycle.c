/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's beginning and end, as the domain sees them: what ran before us is adopted or settled; at the end all
 * machines go down. */
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/view_priv.h"
#include "cruciblefs/domain/worker.h"

/* Boxes look for the daemon every 250 ms; one that has not come by then is stuck. */
#define ADOPT_NS	  (15ull * 1000000000ull)
#define SHUTDOWN_GRACE_MS 5000u
#define STORING_NS	  (60ull * 1000000000ull) /* longer than any snapshot takes on a disk that has room */

static void on_not_adopted(void *arg)
{
	sandbox_down(arg, "the machine was lost: its box did not come back after a restart of the daemon");
}

/* A machine of the daemon before us is there (its cgroup exists), or is not. */
static void look_for_machine(struct sandbox *s, bool exists)
{
	bool ran = s->status == SBX_STARTING || s->status == SBX_READY || s->status == SBX_PAUSED;

	if (!ran && !exists) {
		struct err e = { 0 };

		/* Accepted, but the daemon was killed before it could start the machine. */
		if (exec_any_waits(s) && sandbox_start(s, NULL, &e) < 0) {
			exec_lose_all(s, e.msg, false);
			sandbox_fail(s, NULL, &e);
		}
		return;
	}
	s->spawned = exists;
	/* Which of its commands the box had got, only the box can tell; until then none may be taken for unsent and run
	 * twice. */
	for (struct execution *x = s->first_exec; x; x = x->next)
		x->sent = true;
	if (exists && ran && s->box_uid) {
		loop_timer(s->reg->loop, now_ns() + ADOPT_NS, on_not_adopted, s, &s->adopt_timer);
		sandbox_life_timer(s);
		return;
	}
	s->stop_asked = !ran; /* it was on its way down */
	sandbox_down(s, "the machine was lost while no daemon ran");
}

/* Before anything is served, so that what is made from now on is not taken for something of the daemon before us. */
static int settle_the_past(struct registry *r, const void *list, size_t len, struct err *e)
{
	struct sandbox *next;
	struct wire_rd rd;
	uint32_t n;

	wire_rd_init(&rd, list, len);
	n = wire_u32(&rd);
	for (uint32_t i = 0; i < n && !rd.bad; i++) {
		char uuid[64];
		struct sandbox *s;

		wire_str(&rd, uuid, sizeof(uuid));
		if (strlen(uuid) != LAUNCH_UUID_LEN)
			continue;
		s = rd.bad ? NULL : registry_by_machine(r, uuid);
		if (s)
			s->spawned = true;
		if (s || rd.bad)
			continue;
		log_info("uuid=%s event=stray-cgroup next=killed", uuid);
		strays_add(r, uuid);
		machine_kill(r, uuid);
	}
	if (wire_done(&rd) < 0)
		return err_set(e, -EBADMSG, "the launcher's list of what runs is malformed");
	for (struct sandbox *s = r->first; s; s = next) {
		next = s->next;
		if (s->was_leased)
			registry_destroy(r, s, &s->owner, "its lease was lost with the daemon before");
		else
			look_for_machine(s, s->spawned);
	}
	for (struct sandbox *s = r->first; s; s = s->next) {
		/* Of one whose machine runs, netd has them; one that netd has not closed yet is tried again
		 * (netpeer.c). */
		if (!s->adopt_timer)
			net_ports_bind(s, NULL);
	}
	return 0;
}

int registry_begin(struct registry *r, struct launcher *launcher, const void *list, size_t len, struct err *e)
{
	int k;

	r->launcher = launcher;
	r->tsc_khz = engine_tsc_khz();
	journal_add(r, NULL, NULL, "daemon_started", NULL);
	journal_prune(r);
	k = relink_begin(r, e);
	if (!k)
		k = netd_begin(r, e);
	if (k < 0)
		return k;
	trial_begin(r);
	k = settle_the_past(r, list, len, e);
	if (k < 0)
		return k;
	views_begin(r);
	return boxlink_listen(r, e);
}

/* Asks of the launcher come back with -EPIPE on their own; this is for everything after. */
void registry_launcher_gone(struct registry *r)
{
	log_err("event=launcher-gone next=running-sandboxes-go-on-no-new-ones");
	r->launcher = NULL;
}

void registry_launcher_exit(struct registry *r, const char *uuid, int is_box, int status)
{
	struct sandbox *s = registry_by_machine(r, uuid);

	if (!strcmp(uuid, LAUNCH_UUID_PAGER) || !strcmp(uuid, LAUNCH_UUID_STORE) || !strcmp(uuid, LAUNCH_UUID_NETD))
		return; /* the launcher has said so, and the connection's end is acted on */
	/* What follows from it comes by the box's connection; this line says how it ended. */
	log_info("sandbox=%s uuid=%s event=%s-ended wait_status=%d", s ? s->name : "", uuid, is_box ? "box" : "engine",
		 status);
}

static bool still_storing(const struct registry *r)
{
	for (const struct snapshot *p = r->first_snapshot; p; p = p->next) {
		if (p->status == SNAPSHOT_STORING && p->template_fd >= 0 && p->state_fd >= 0)
			return true;
	}
	return false;
}

void registry_check_shutdown(struct registry *r)
{
	if (!r->shutting_down || !r->on_down || r->ndowns)
		return;
	const struct sandbox *const lists[] = { r->first, r->hidden };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		for (const struct sandbox *s = lists[i]; s; s = s->next) {
			if (s->start || s->restore || s->link || s->down_pending || s->box_uid)
				return;
		}
	}
	if (!r->peers_ended) {
		/* What was captured lives in the pager's memory until it is in the store. */
		if (still_storing(r) && now_ns() < r->shutdown_by_ns)
			return;
		r->peers_ended = true;
		relink_quit(r);
		netd_quit(r);
		machine_kill(r, LAUNCH_UUID_PAGER);
		machine_kill(r, LAUNCH_UUID_STORE);
		machine_kill(r, LAUNCH_UUID_NETD);
		if (r->ndowns)
			return;
	}
	relink_unlink(r);
	netd_unlink(r);
	loop_fn *done = r->on_down;

	r->on_down = NULL;
	loop_del(r->loop, &r->shutdown_timer);
	journal_add(r, NULL, NULL, "daemon_stopped", NULL);
	done(r->on_down_arg);
}

static void check(void *arg)
{
	registry_check_shutdown(arg);
}

static void look(void *arg)
{
	struct registry *r = arg;

	r->shutdown_look = 0;
	registry_check_shutdown(r);
}

void registry_shutdown_looks(struct registry *r)
{
	if (r->shutting_down && !r->freed && !r->shutdown_look)
		loop_defer(r->loop, look, r, &r->shutdown_look); /* without memory: at shutdown_by_ns */
}

void registry_shutdown(struct registry *r, loop_fn *done, void *arg)
{
	struct sandbox *next;

	r->shutting_down = true;
	r->on_down = done;
	r->on_down_arg = arg;
	r->shutdown_by_ns = now_ns() + STORING_NS;
	loop_timer(r->loop, r->shutdown_by_ns, check, r, &r->shutdown_timer);
	prepare_end(r);
	diffs_end(r);
	workers_stop(r);
	pool_drain(r);
	for (struct sandbox *s = r->first; s; s = next) {
		next = s->next;
		if (s->start || s->restore || s->link || s->box_uid)
			sandbox_stop(s, SHUTDOWN_GRACE_MS);
	}
	registry_shutdown_looks(r);
}
