/* SPDX-License-Identifier: Apache-2.0 */
/* How views end: their time is over, or they are removed.
 *
 * One timer on the wall clock, for the view that ends first. It also fires when the clock is set, and when the host
 * wakes up; then all are looked at. Requests do not wait for it: view_dead() asks the clock. */
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

#define STOP_GRACE_MS 10000u
#define NS_PER_S      UINT64_C(1000000000)

/* -- what runs -------------------------------------------------------------------------------------------------------
 */

/* One whose box has not come back yet stops when it does (view_adopted()), or is lost. */
static bool runs(const struct sandbox *s)
{
	return s->start || s->restore || s->link || (s->box_uid && !s->adopt_timer);
}

static void stop_the_dead(struct registry *r)
{
	struct sandbox *next;

	for (struct sandbox *s = r->first; s; s = next) {
		next = s->next;
		if (s->owner.view && view_dead(s->owner.view) && runs(s))
			sandbox_stop(s, STOP_GRACE_MS);
	}
	/* Those that wait for a fork, too: a new ttl may be long in coming, and their memory is the host's. */
	for (const struct snapshot *p = r->first_snapshot; p; p = p->next) {
		if (p->owner.view && view_dead(p->owner.view))
			warm_forget(r, p);
	}
	diffs_end_dead(r);
}

static void on_stop(void *arg)
{
	struct registry *r = arg;

	r->views_stop = 0;
	stop_the_dead(r);
}

/* Not at once: its link may be what called us. */
void view_adopted(struct sandbox *s)
{
	struct registry *r = s->reg;

	if (s->owner.view && view_dead(s->owner.view) && !r->views_stop)
		loop_timer(r->loop, 0, on_stop, r, &r->views_stop);
}

/* -- time ------------------------------------------------------------------------------------------------------------
 */

static void expire(struct view *v)
{
	struct err e = { 0 };

	v->expired = true;
	if (view_save(v, &e) < 0)
		log_warn("view=%s event=not-saved error=\"%s\" next=expired-all-the-same", v->name, e.msg);
	log_info("view=%s uuid=%s event=expired next=its-machines-are-stopped", v->name, v->uuid);
	view_tell(v, NULL, "view_expired");
	view_changed(v);
}

static bool is_due(const struct view *v, uint64_t now)
{
	return !v->gone && !v->lost && !v->expired && v->expires_ns && v->expires_ns <= now;
}

static void look(struct registry *r)
{
	uint64_t now = wall_ns();
	bool any = false;

	for (struct view *v = r->first_view; v; v = v->next) {
		if (!is_due(v, now))
			continue;
		expire(v);
		any = true;
	}
	if (any)
		stop_the_dead(r);
	views_arm(r);
}

static void on_clock(void *arg, uint32_t events)
{
	struct registry *r = arg;
	uint64_t n;

	(void)events;
	/* -ECANCELED: the clock was set. Either way there is to be looked. */
	if (read(r->views_clock, &n, sizeof(n)) < 0 && errno == EAGAIN)
		return;
	look(r);
}

void views_arm(struct registry *r)
{
	struct itimerspec at = { 0 };
	uint64_t first = UINT64_MAX;

	for (const struct view *v = r->first_view; v; v = v->next) {
		if (is_due(v, UINT64_MAX) && v->expires_ns < first)
			first = v->expires_ns;
	}
	if (first != UINT64_MAX) {
		at.it_value.tv_sec = (time_t)(first / NS_PER_S);
		at.it_value.tv_nsec = (long)(first % NS_PER_S);
	}
	/* Of a time that a damaged file gave us: never is what it says. */
	if (timerfd_settime(r->views_clock, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at, NULL) < 0 &&
	    errno != ECANCELED) /* set, and the clock was, too */
		log_err("event=no-clock-of-views error=\"%s\" next=ends-are-kept-machines-run-on", strerror(errno));
}

int views_open_clock(struct registry *r, struct err *e)
{
	int k;

	r->views_clock = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (r->views_clock < 0)
		return err_set(e, -errno, "a clock for views: %s", strerror(errno));
	k = loop_add(r->loop, r->views_clock, EPOLLIN, on_clock, r, &r->views_clock_id);
	return k < 0 ? err_set(e, k, "a clock for views: %s", strerror(-k)) : 0;
}

void views_close_clock(struct registry *r)
{
	loop_del(r->loop, &r->views_stop);
	loop_del(r->loop, &r->views_clock_id);
	fd_close(&r->views_clock);
}

/* -- removal ---------------------------------------------------------------------------------------------------------
 */

static void end(struct view *v, const struct cfs_who *who)
{
	struct registry *r = v->reg;
	struct sandbox *s;
	struct snapshot *p;

	v->gone = true;
	while ((s = registry_next(r, v, NULL)))
		registry_destroy(r, s, who, "its view was removed");
	while ((p = registry_next_snapshot(r, v, NULL)))
		snapshot_destroy(p, who);
	diffs_end_dead(r);
	view_changed(v);
	view_take_out(v);
}

int registry_remove_view(struct registry *r, struct view *v, const struct cfs_who *who, struct err *e)
{
	int k = view_may_change(v, who, "rmdir", e);

	if (!k)
		k = view_disown(v, e);
	if (k < 0)
		return k;
	view_tell(v, who, "view_removed");
	end(v, who);
	views_arm(r);
	return 0;
}

void views_begin(struct registry *r)
{
	struct view *next;

	for (struct view *v = r->first_view; v; v = next) {
		static const struct cfs_who root = { .uid = 0, .gid = 0 };

		next = v->next;
		if (v->gone)
			end(v, &root);
	}
	look(r);
	stop_the_dead(r);
}
