/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * FREEZE goes through three steps: the guest freezes its commands and falls silent, the machine is paused, its device
 * state is saved. Then it is HELD until THAW, which resumes the machine and tells the guest to go on. To the rest of
 * the box all of it is a READY machine in which nothing moves: commands wait in the queue, whose clock stands, and
 * frames wait in the channel.
 *
 * Every way out is the same one, undo(): resume the machine if it is paused, thaw the guest if it is frozen, let the
 * queue go on, and then answer whoever waits. It is taken by THAW, by a step that failed, by the timer, by a daemon
 * that went, and by a stop. Whoever wants it while a call of the engine is under way leaves word (`thawing`), and the
 * call's end takes it; so does the end of an order to the memory, which must not be replaced under a machine that runs.
 *
 * A machine that can not be resumed is shown as paused; a RESUME that succeeds thaws the guest too.
 */
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/wire.h"
#include "vmm/box/box_priv.h"

static void undo(struct box *b);

/* Why it did not come to a snapshot; the first reason stays. */
static void failed(struct box *b, int code, const char *words)
{
	if (b->freeze.code == 0) {
		b->freeze.code = code;
		snprintf(b->freeze.words, sizeof(b->freeze.words), "%s", words);
	}
}

/* -- the way out ------------------------------------------------------------------------------- */

static void answer(struct box *b)
{
	struct box_freeze *f = &b->freeze;

	if (f->code == 0 && wire_put_u64(&b->data, f->paused_ns ? now_ns() - f->paused_ns : 0) == 0)
		box_reply_data(b, f->id, 0, "", b->data.data, b->data.len, NULL, 0);
	else
		box_reply(b, f->id, f->code, f->words);
	buf_reset(&b->data);
	f->id = 0;
}

static void over(struct box *b)
{
	struct box_freeze *f = &b->freeze;

	loop_del(b->loop, &f->timer);
	fd_close(&f->fd);
	f->step = FREEZE_NONE;
	f->thawing = false;
}

static void gone_on(struct box *b)
{
	over(b);
	guest_thaw(b->guest);
	if (b->ending)
		return; /* what was held could not be sent */
	queue_resume(b->queue);
	answer(b);
	if (b->freeze.event)
		box_say_thawed(b);
	if (b->state == BOX_STOPPING)
		box_stop_guest(b, false);
}

static void stuck(struct box *b, int code, const char *detail)
{
	char words[256];

	over(b);
	snprintf(words, sizeof(words), "the machine could not be resumed after a snapshot: %.180s", detail);
	failed(b, code, words);
	answer(b);
	b->freeze.event = NULL;
	if (b->state == BOX_STOPPING)
		box_quit_engine(b);
	else
		box_set_state(b, BOX_PAUSED, words);
}

static void on_resumed(void *arg, int code, const struct err *e)
{
	struct box *b = arg;

	if (code < 0)
		stuck(b, code, e ? e->msg : err_name(code));
	else
		gone_on(b);
}

static void undo(struct box *b)
{
	bool maybe_running = b->freeze.step == FREEZE_PAUSE;
	int r;

	if (b->ending)
		return; /* perhaps because its memory was lost: it must not run */
	loop_del(b->loop, &b->freeze.timer);
	b->freeze.step = FREEZE_RESUME;
	r = b->engine_ops->resume(b->engine, b->t.pause_timeout_ms, on_resumed, b);
	if (r == -EBUSY && maybe_running) {
		b->freeze.stray_pause = true; /* it may yet come */
		gone_on(b);
	} else if (r < 0) {
		stuck(b, r, err_name(r));
	}
}

/* A step of the engine has ended: does something speak against the next one? */
static bool stopped_here(struct box *b, int code, const char *what, const struct err *e)
{
	char words[256];

	if (code < 0) {
		snprintf(words, sizeof(words), "%s: %.180s", what, e && *e->msg ? e->msg : err_name(code));
		failed(b, code, words);
	}
	if (code == 0 && !b->freeze.thawing)
		return false;
	undo(b);
	return true;
}

void box_freeze_abandon(struct box *b, int code, const char *words)
{
	struct box_freeze *f = &b->freeze;

	switch (f->step) {
	case FREEZE_NONE:
	case FREEZE_RESUME:
		break;
	case FREEZE_GUEST:
		failed(b, code, words);
		gone_on(b);
		break;
	case FREEZE_HELD:
		f->thawing = true;
		if (!b->memory.pending)
			undo(b);
		break;
	default: /* the engine's answer comes first */
		failed(b, code, words);
		f->thawing = true;
		break;
	}
}

void box_freeze_memory_done(struct box *b)
{
	if (b->freeze.step == FREEZE_HELD && b->freeze.thawing && !b->ending)
		undo(b);
}

static void on_timer(void *arg)
{
	struct box *b = arg;

	b->freeze.timer = 0;
	b->freeze.event = "timeout";
	box_freeze_abandon(b, -ETIMEDOUT, "nobody thawed the machine");
}

static void on_away(void *arg)
{
	struct box *b = arg;

	b->freeze.away_call = 0;
	if (b->freeze.step != FREEZE_NONE && b->freeze.step != FREEZE_RESUME)
		b->freeze.event = "daemon";
	box_freeze_abandon(b, -ECANCELED, "the daemon went");
}

void box_freeze_away(struct box *b)
{
	b->freeze.id = 0;
	/* Deferred: sending found it out, from anywhere. */
	if (b->freeze.step != FREEZE_NONE && !b->freeze.away_call && !b->ending)
		loop_defer(b->loop, on_away, b, &b->freeze.away_call);
}

/* -- the way in -------------------------------------------------------------------------------- */

static void on_saved(void *arg, int code, const struct err *e)
{
	struct box *b = arg;
	struct box_freeze *f = &b->freeze;

	if (stopped_here(b, code, "the machine's state could not be saved", e))
		return;
	f->step = FREEZE_HELD;
	fd_close(&f->fd);
	if (loop_timer(b->loop, now_ns() + b->t.thaw_after_ms * 1000000ull, on_timer, b, &f->timer) < 0) {
		failed(b, -ENOMEM, "no memory");
		undo(b);
		return;
	}
	if (wire_put_u64(&b->data, f->paused_wall_ns) == 0)
		box_reply_data(b, f->id, 0, "", b->data.data, b->data.len, NULL, 0);
	buf_reset(&b->data);
	f->id = 0;
}

static void on_paused(void *arg, int code, const struct err *e)
{
	struct box *b = arg;
	struct box_freeze *f = &b->freeze;
	int r;

	f->paused_ns = now_ns();
	f->paused_wall_ns = wall_ns();
	if (stopped_here(b, code, "the machine could not be paused", e))
		return;
	f->step = FREEZE_SAVE;
	r = b->engine_ops->save(b->engine, f->fd, b->t.save_timeout_ms, on_saved, b);
	if (r < 0)
		stopped_here(b, r, "the machine's state could not be saved", NULL);
}

static void on_frozen(void *arg, int code, const void *data, size_t len)
{
	struct box *b = arg;
	char words[128];
	int r;

	(void)data;
	(void)len;
	if (code < 0) {
		if (code == -ETIMEDOUT)
			snprintf(words, sizeof(words), "the guest did not freeze its commands within %u ms",
				 b->freeze.ms);
		else
			snprintf(words, sizeof(words), "the guest did not freeze: %s", err_name(code));
		failed(b, code, words);
		gone_on(b);
		return;
	}
	b->freeze.step = FREEZE_PAUSE;
	r = b->engine_ops->pause(b->engine, b->t.pause_timeout_ms, on_paused, b);
	if (r < 0)
		stopped_here(b, r, "the machine could not be paused", NULL);
}

static int refuse(struct box *b, int fd, struct err *e)
{
	if (b->ending || b->state == BOX_STOPPING)
		return err_set(e, -EBUSY, "the sandbox is being stopped");
	if (b->state == BOX_BOOTING)
		return err_set(e, -EBUSY, "the sandbox is not ready yet");
	if (b->state == BOX_PAUSED)
		return err_set(
			e, -EBUSY,
			"the sandbox is paused: a guest that stands cannot freeze its commands; resume it first");
	if (b->freeze.step != FREEZE_NONE)
		return err_set(e, -EBUSY, "another snapshot of the sandbox is being taken");
	if (b->pause_id)
		return err_set(e, -EBUSY, "the sandbox is being paused");
	if (b->reclaim.running)
		return err_set(e, -EBUSY, "the guest's free memory is being given back; try again");
	return fd < 0 ? err_set(e, -EBADMSG, "freeze: no file for the machine's state") : 0;
}

void box_take_freeze(struct box *b, uint32_t id, uint32_t ms, int *fd)
{
	struct box_freeze *f = &b->freeze;
	struct err e = { 0 };
	int r = refuse(b, *fd, &e);

	if (r == 0) {
		r = guest_freeze(b->guest, ms, b->t.freeze_margin_ms, on_frozen, b);
		if (r == -EBUSY)
			err_set(&e, r, "the guest has not answered an earlier request to freeze");
		else if (r < 0)
			err_set(&e, r, "the guest did not freeze: %s", err_name(r));
	}
	if (r < 0) {
		box_reply(b, id, r, e.msg);
		return;
	}
	f->step = FREEZE_GUEST;
	f->id = id;
	f->ms = ms;
	f->fd = take_fd(fd);
	f->code = 0;
	f->paused_ns = 0;
	f->stray_pause = false;
	f->event = NULL;
	queue_pause(b->queue);
}

void box_take_thaw(struct box *b, uint32_t id)
{
	struct box_freeze *f = &b->freeze;

	if (f->step != FREEZE_HELD || f->id || b->ending) {
		box_reply(b, id, -EBUSY, b->ending ? "the sandbox ends" : "the sandbox is not frozen");
		return;
	}
	f->id = id;
	box_freeze_abandon(b, 0, "");
}

static void on_stray_resumed(void *arg, int code, const struct err *e)
{
	struct box *b = arg;

	if (code < 0 && b->state == BOX_READY)
		stuck(b, code, e ? e->msg : err_name(code));
}

bool box_freeze_takes_pause(struct box *b)
{
	struct box_freeze *f = &b->freeze;

	if (f->stray_pause && f->step == FREEZE_NONE && b->state == BOX_READY && !*b->io_words) {
		f->stray_pause = false;
		return b->engine_ops->resume(b->engine, b->t.pause_timeout_ms, on_stray_resumed, b) == 0;
	}
	if (f->step == FREEZE_GUEST) { /* not our doing: the disk */
		box_freeze_abandon(b, -EIO, *b->io_words ? b->io_words : "the machine was paused in between");
		return false;
	}
	return f->step != FREEZE_NONE;
}

void box_freeze_fini(struct box *b)
{
	loop_del(b->loop, &b->freeze.timer);
	loop_del(b->loop, &b->freeze.away_call);
	if (b->freeze.step != FREEZE_NONE)
		fd_close(&b->freeze.fd);
	b->freeze.step = FREEZE_NONE;
}
