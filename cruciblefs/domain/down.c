/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a machine down: the same way from every state (start.c says how the two meet). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"

#define STOP_SLACK_NS (5ull * 1000000000ull) /* beyond the grace: then the engine is killed whatever the box says */

/* The engine is gone: nobody touches its memory and its disk any more. */
static void let_go_of_pager(struct sandbox *s)
{
	if (!s->machine[0])
		return;
	pager_let_go(s->reg, s->machine, GO_MEMORY | GO_EXPORT);
	s->attached = false;
}

/* What is written down names no disk that is not there any more: a daemon that is killed in between would start with it
 * for ever in vain. */
static void drop_disk(struct sandbox *s)
{
	char disk[sizeof(s->disk)];

	memcpy(disk, s->disk, sizeof(disk));
	s->disk[0] = s->birth[0] = s->origin[0] = '\0';
	sandbox_save(s, NULL);
	if (disk[0])
		pager_let_go(s->reg, disk, GO_DISK);
}

/* A machine that waited in the pool had died meanwhile, or could not be woken: nothing has happened in it that the
 * sandbox could know of, so it gets another one. */
static bool starts_again(struct sandbox *s)
{
	struct err e = { 0 };

	s->unproven = false;
	if (s->stop_asked || s->reg->shutting_down || !s->down_words[0])
		return false;
	drop_disk(s);
	s->fresh = true;
	log_warn("sandbox=%s uuid=%s event=pool-machine-lost error=\"%s\" next=another-is-made", s->name, s->uuid,
		 s->down_words);
	if (sandbox_start(s, NULL, &e) == 0)
		return true;
	snprintf(s->down_words, sizeof(s->down_words), "%s", e.msg);
	s->reg->n_failed_starts++;
	return false;
}

bool sandbox_comes_back(const struct sandbox *s)
{
	return s->unproven && !s->stop_asked && !s->gone;
}

static void settle(struct sandbox *s)
{
	s->down_pending = s->spawned = false;
	s->box_uid = 0;
	s->machine[0] = s->template[0] = '\0';
	loop_del(s->reg->loop, &s->life_timer);
	if (s->gone) {
		fs_fail_all(s, -ENOENT);
		if (s->disk[0])
			pager_let_go(s->reg, s->disk, GO_DISK);
		registry_remove_dir(s->reg, s->uuid);
		/* The kernel may remember it for as long as anybody stands in it, and it counts in nobody's limit now.
		 */
		fd_close(&s->boxfd);
		fd_close(&s->dirfd);
		sandbox_changed(s);
		snapshots_sweep(s->reg);
		return;
	}
	if (s->unproven && starts_again(s))
		return;
	s->fresh = false;
	fs_fail_all(s, -ENOTCONN);
	if (s->disk[0] && s->disk_unused) {
		drop_disk(s);
	} else if (s->disk[0]) {
		struct ask a;

		ask_init(&a);
		ask_str(&a, s->disk);
		ask_pager(s->reg, PAGER_DISK_SYNC, &a, NULL, NULL); /* a host that fails soon may cost it, no more */
	}
	s->disk_unused = false;
	/* What was said on the way down stands in down_words; "" is an orderly stop. */
	if (s->down_words[0]) {
		exec_lose_all(s, s->down_words, s->down_ran);
		sandbox_set_error(s, s->down_words);
		sandbox_set_status(s, SBX_FAILED);
	} else {
		exec_lose_all(s, "the sandbox was stopped", true);
		sandbox_set_status(s, SBX_STOPPED);
	}
	sandbox_save(s, NULL);
	s->stop_asked = false;
	/* Written after the stop, or never sent to the machine that was lost: they are for the next one. */
	if (exec_any_waits(s) && !s->reg->shutting_down) {
		struct err e = { 0 };

		if (sandbox_start(s, NULL, &e) < 0) {
			exec_lose_all(s, e.msg, false);
			sandbox_fail(s, NULL, &e);
		}
	}
}

/* Also without a launcher, when no answer follows that a shutdown could wait for. */
static void settle_and_tell(struct sandbox *s)
{
	settle(s);
	registry_check_shutdown(s->reg);
}

static void on_killed(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)r;
	(void)m;
	if (code < 0)
		log_err("sandbox=%s uuid=%s event=not-killed error=\"%s\" next=the-next-start-tries-again", s->name,
			s->uuid, words);
	s->reg->ndowns--;
	let_go_of_pager(s);
	settle_and_tell(s);
	sandbox_unref(s);
}

void sandbox_down(struct sandbox *s, const char *words)
{
	bool had_machine = s->box_uid || s->spawned;
	struct boxlink *link = s->link;
	uint8_t uuid[LAUNCH_UUID_BYTES];
	int r;

	if (s->down_pending)
		return;
	sandbox_ref(s); /* calls to its box end in here, and whoever made them may have the last one */
	/* A machine that never got ready takes its waiting commands along, or the next one would fail with them for
	 * ever. */
	s->down_ran = s->status == SBX_READY || s->status == SBX_PAUSED;
	snprintf(s->down_words, sizeof(s->down_words), "%s", s->stop_asked ? "" : words);
	loop_del(s->reg->loop, &s->adopt_timer);
	loop_del(s->reg->loop, &s->stop_timer);
	s->down_pending = true;
	net_down(s);
	start_let_go(s); /* what it was making is killed by whoever made it */
	s->link = NULL;
	boxlink_free(link);
	if (!sandbox_comes_back(s))
		fs_fail_all(s, s->gone ? -ENOENT : -ENOTCONN);
	sandbox_changed(s);
	if (!had_machine || !s->reg->launcher) {
		settle_and_tell(s);
		sandbox_unref(s);
		return;
	}
	launch_uuid_encode(s->machine[0] ? s->machine : s->uuid, uuid);
	r = launcher_call(s->reg->launcher, LAUNCH_KILL, uuid, sizeof(uuid), NULL, 0, on_killed, s);
	s->reg->ndowns += !r;
	if (r < 0) {
		/* No memory to wait for the answer with: it must end all the same. */
		launcher_call(s->reg->launcher, LAUNCH_KILL, uuid, sizeof(uuid), NULL, 0, NULL, NULL);
		log_err("sandbox=%s uuid=%s event=not-killed error=\"%s\" next=the-next-start-tries-again", s->name,
			s->uuid, strerror(-r));
		settle_and_tell(s);
		sandbox_unref(s);
	}
}

static void on_stop_overdue(void *arg)
{
	sandbox_down(arg, "");
}

void sandbox_stop(struct sandbox *s, uint32_t grace_ms)
{
	if (s->stop_asked || (s->down_pending && !s->unproven))
		return;
	s->stop_asked = true;
	/* These end with the machine; what comes later waits for the next one. */
	for (struct execution *x = s->first_exec; x; x = x->next)
		x->sent |= x->state != EXEC_DONE;
	if (s->down_pending) {
		s->down_words[0] = '\0'; /* it would have come back */
		return;
	}
	/* A guest that does not run cannot be asked. */
	if (!s->link || s->status != SBX_READY || boxlink_vm(s->link, BOX_VM_STOP, grace_ms, NULL, NULL) < 0) {
		sandbox_down(s, "");
		return;
	}
	loop_timer(s->reg->loop, now_ns() + (uint64_t)grace_ms * 1000000u + STOP_SLACK_NS, on_stop_overdue, s,
		   &s->stop_timer);
}

static void on_life_over(void *arg)
{
	struct sandbox *s = arg;
	struct err e = { 0 };

	err_set(&e, -ETIMEDOUT,
		"sandbox %s: its lifetime of %" PRIu32
		" s (limits/timeout_s) is over and it was stopped; a command starts it again",
		s->name, sandbox_num(s, ATTR_TIMEOUT_S));
	sandbox_fail(s, NULL, &e);
	sandbox_stop(s, 10000);
}

void sandbox_life_timer(struct sandbox *s)
{
	uint64_t life_ns = (uint64_t)sandbox_num(s, ATTR_TIMEOUT_S) * 1000000000u, now = wall_ns();
	uint64_t age_ns = now > s->started_ns ? now - s->started_ns : 0; /* the clock may have been set back */

	loop_del(s->reg->loop, &s->life_timer);
	if (!s->box_uid || !life_ns)
		return;
	loop_timer(s->reg->loop, now_ns() + (life_ns > age_ns ? life_ns - age_ns : 0), on_life_over, s, &s->life_timer);
}
