/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's beginning and end, as the domain sees them: what ran before us is adopted or settled; at the end all machines go down. */
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/priv.h"

/* Boxes look for the daemon every 250 ms; one that has not come by then is stuck. */
#define ADOPT_NS (15ull * 1000000000ull)
#define SHUTDOWN_GRACE_MS 5000u

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
		if (s->nwaiting && sandbox_start(s, NULL, &e) < 0) {
			exec_lose_all(s, e.msg, false);
			sandbox_fail(s, NULL, &e);
		}
		return;
	}
	s->spawned = exists;
	if (exists && ran && s->box_uid) {
		loop_timer(s->reg->loop, now_ns() + ADOPT_NS, on_not_adopted, s, &s->adopt_timer);
		sandbox_life_timer(s);
		return;
	}
	s->stop_asked = !ran; /* it was on its way down */
	sandbox_down(s, "the machine was lost while no daemon ran");
}

static void on_list(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct registry *reg = arg;
	uint32_t n = code == 0 ? wire_u32(r) : 0;
	struct sandbox *next;

	(void)m;
	if (code < 0)
		log_err("event=list-failed error=\"%s\" next=assumes-none", words);
	for (uint32_t i = 0; i < n && !r->bad; i++) {
		char uuid[64];
		struct sandbox *s;

		wire_str(r, uuid, sizeof(uuid));
		s = r->bad ? NULL : registry_by_uuid(reg, uuid);
		if (s) {
			s->spawned = true;
		} else if (!r->bad) {
			struct buf b;

			log_info("uuid=%s event=stray-cgroup next=killed", uuid);
			buf_init(&b, 64);
			if (wire_put_str(&b, uuid) == 0)
				launcher_call(reg->launcher, LAUNCH_KILL, b.data, b.len, NULL, 0, NULL, NULL);
			buf_fini(&b);
		}
	}
	/* Boxes connect in later rounds of the loop, so none can have come before its sandbox was looked at. */
	for (struct sandbox *s = reg->first; s; s = next) {
		next = s->next;
		if (!s->link)
			look_for_machine(s, s->spawned);
	}
}

int registry_begin(struct registry *r, struct launcher *launcher, struct err *e)
{
	int k;

	r->launcher = launcher;
	r->tsc_khz = engine_tsc_khz();
	journal_add(r, NULL, NULL, "daemon_started", NULL);
	journal_prune(r);
	trial_begin(r);
	k = launcher_call(launcher, LAUNCH_LIST, NULL, 0, NULL, 0, on_list, r);
	if (k < 0)
		return err_set(e, k, "asking the launcher what runs: %s", strerror(-k));
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
	struct sandbox *s = registry_by_uuid(r, uuid);

	/* What follows from it comes by the box's connection; this line says how it ended. */
	log_info("sandbox=%s uuid=%s event=%s-ended wait_status=%d", s ? s->name : "", uuid, is_box ? "box" : "engine", status);
}

void registry_check_shutdown(struct registry *r)
{
	if (!r->shutting_down || !r->on_down || r->ndowns)
		return;
	for (struct sandbox *s = r->first; s; s = s->next) {
		if (s->start || s->link || s->down_pending || s->box_uid)
			return;
	}
	loop_fn *done = r->on_down;

	r->on_down = NULL;
	journal_add(r, NULL, NULL, "daemon_stopped", NULL);
	done(r->on_down_arg);
}

static void check(void *arg)
{
	registry_check_shutdown(arg);
}

void registry_shutdown(struct registry *r, loop_fn *done, void *arg)
{
	struct sandbox *next;

	r->shutting_down = true;
	r->on_down = done;
	r->on_down_arg = arg;
	for (struct sandbox *s = r->first; s; s = next) {
		next = s->next;
		if (s->start || s->link || s->box_uid)
			sandbox_stop(s, SHUTDOWN_GRACE_MS);
	}
	loop_defer(r->loop, check, r, NULL);
}
