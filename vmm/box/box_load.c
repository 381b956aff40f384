/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The life of a generic engine, from an empty machine to a sandbox's. START (who it is) and LOAD (what it is) come in
 * any order; state.h has the table. Without `hold` the loaded machine stands until START, then it is resumed and
 * greeted as a clone.
 *
 * With a hold and no START yet it is resumed, greeted as nobody, and paused, so that the greeting as somebody finds
 * what it does translated and in memory: a rehearsal, in which the commands of the snapshot stay frozen. In a profile's
 * machine (BOX_HOLD_WARM) commands of ours run and are frozen before that; nothing is ever run in a user's.
 *
 * What goes wrong there is no failure, as long as the agent answers: the machine is held as it is, warm or not, frozen
 * or not, and the greeting as a clone makes everything right. A START that comes in the middle cuts that short at the
 * next step, and the machine is greeted without having been paused.
 *
 * To the rest of the box, and to the daemon, all of it is BOOTING.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "vmm/box/box_priv.h"

#define HOLD_FREEZE_MS 1000

/* What nearly every sandbox runs first: so that the fork's first command finds it translated and in memory. */
static const char warm_script[] = "sh -c true; sh -c true; sh -c true\n"
				  "[ ! -x /usr/bin/python3 ] || /usr/bin/python3 -c 1\n";

static void end_with(struct box *b, const char *what, int code, const struct err *e)
{
	char words[320];

	snprintf(words, sizeof(words), "%s: %.200s", what, e && *e->msg ? e->msg : err_name(code));
	box_reply(b, b->load.id, code, words);
	b->load.id = 0;
	box_end(b, words);
}

/* -- the greeting ------------------------------------------------------------------------------ */

static void greet_now(struct box *b)
{
	struct guest_identity id;
	int r;

	box_identity(b, &id);
	id.clone_parent = b->config.parent;
	id.machine_id = b->config.machine_id;
	b->load.life = LIFE_GREETING;
	snprintf(b->stage, sizeof(b->stage), "greeted as a clone");
	r = guest_hello(b->guest, &id);
	if (r < 0)
		end_with(b, "the restored guest could not be greeted", r, NULL);
}

static void on_greet_resumed(void *arg, int code, const struct err *e)
{
	struct box *b = arg;

	if (code < 0)
		end_with(b, "the restored machine could not be resumed", code, e);
	else
		greet_now(b);
}

static void greet(struct box *b)
{
	int r;

	loop_del(b->loop, &b->load.warm_timer);
	if (b->load.running) {
		greet_now(b);
		return;
	}
	b->load.life = LIFE_GREETING;
	b->load.running = true;
	snprintf(b->stage, sizeof(b->stage), "resumed");
	r = b->engine_ops->resume(b->engine, b->t.pause_timeout_ms, on_greet_resumed, b);
	if (r < 0)
		end_with(b, "the restored machine could not be resumed", r, NULL);
}

/* -- warm and held ----------------------------------------------------------------------------- */

static void held(struct box *b)
{
	b->load.life = LIFE_HELD;
	loop_del(b->loop, &b->load.warm_timer);
	if (b->queue)
		greet(b);
	else
		box_say_event(b, b->load.warm ? "{\"event\":\"held\",\"warm\":true}"
					      : "{\"event\":\"held\",\"warm\":false}");
}

static void on_hold_paused(void *arg, int code, const struct err *e)
{
	struct box *b = arg;

	(void)e;
	b->load.running = code < 0;
	b->load.pause_owed = code == -ETIMEDOUT;
	held(b);
}

static void on_late_pause_undone(void *arg, int code, const struct err *e)
{
	if (code < 0)
		end_with(arg, "a machine that was paused too late could not be resumed", code, e);
}

/* Whoever has it by now was told that it runs. */
bool box_load_takes_pause(struct box *b)
{
	if (!b->load.pause_owed)
		return false;
	b->load.pause_owed = false;
	if (b->load.life == LIFE_HELD) {
		b->load.running = false;
		return true;
	}
	return b->engine_ops->resume(b->engine, b->t.pause_timeout_ms, on_late_pause_undone, b) == 0;
}

static void rest(struct box *b)
{
	b->load.life = LIFE_HOLDING;
	if (b->queue || b->engine_ops->pause(b->engine, b->t.pause_timeout_ms, on_hold_paused, b) < 0)
		held(b);
}

/* Its commands are frozen: the greeting as it will be, with an identity that nobody has. The size of its disk is looked
 * at, and is never less than that. */
static void rehearse(struct box *b)
{
	static const struct guest_identity nobody = { .hostname = "nobody",
						      .instance = "00000000-0000-0000-0000-000000000000",
						      .root_mib = 1,
						      .clone_parent = "",
						      .machine_id = "00000000000000000000000000000000",
						      .rehearsal = true };

	b->load.life = LIFE_REHEARSING;
	if (guest_hello(b->guest, &nobody) < 0)
		rest(b);
}

static void on_hold_frozen(void *arg, int code, const void *data, size_t len)
{
	struct box *b = arg;

	(void)data;
	(void)len;
	if (b->ending)
		return;
	if (code == 0 && !b->queue)
		rehearse(b);
	else
		rest(b);
}

static void hold(struct box *b)
{
	b->load.exec = guest_exec_free(b->load.exec);
	if (b->queue) {
		greet(b);
		return;
	}
	b->load.life = LIFE_HOLDING;
	if (guest_freeze(b->guest, HOLD_FREEZE_MS, b->t.freeze_margin_ms, on_hold_frozen, b) < 0)
		on_hold_frozen(b, -EIO, NULL, 0);
}

static void on_warm_started(void *arg, const char *script)
{
	(void)arg;
	(void)script;
}

static void on_warm_output(void *arg, enum ag_which which, const uint8_t *data, size_t len)
{
	(void)arg;
	(void)which;
	(void)data;
	(void)len;
}

static void on_warm_exit(void *arg, const struct guest_exit *x)
{
	struct box *b = arg;

	b->load.warm = x->exit_code == 0;
}

static void on_warm_end(void *arg)
{
	hold(arg);
}

static void on_warm_credit(void *arg, uint32_t bytes)
{
	(void)arg;
	(void)bytes;
}

static int begin_warming(struct box *b)
{
	static const struct guest_exec_ops ops = { .on_started = on_warm_started,
						   .on_output = on_warm_output,
						   .on_exit = on_warm_exit,
						   .on_end = on_warm_end,
						   .on_stdin_credit = on_warm_credit };
	char *env[] = { NULL };
	struct guest_exec_req req = { .env = env, .name = "warm", .timeout_ns = b->t.warm_ms * 1000000ull };
	char *text = strdup(warm_script);
	int r = text ? source_memory(&req.script, text, strlen(text), b->dirfd) : -ENOMEM;

	return r < 0 ? r : guest_exec_new(b->guest, &req, &ops, b, &b->load.exec, NULL);
}

static void on_warm_timer(void *arg)
{
	struct box *b = arg;

	b->load.warm_timer = 0;
	b->load.late = true;
	if (b->load.life == LIFE_WARMING) {
		guest_exec_kill(b->load.exec);
		hold(b);
	}
}

static void on_waked(void *arg, int code, const struct err *e)
{
	const struct guest_identity nobody = { .rehearsal = true };
	struct box *b = arg;
	int r;

	if (code < 0) {
		end_with(b, "the restored machine could not be resumed", code, e);
		return;
	}
	if (b->queue) {
		greet_now(b);
		return;
	}
	if (b->load.hold == BOX_HOLD_REHEARSED) {
		rehearse(b);
		return;
	}
	b->load.life = LIFE_WARM_HELLO;
	r = guest_hello(b->guest, &nobody);
	if (r < 0)
		end_with(b, "the restored guest could not be greeted", r, NULL);
}

static void wake(struct box *b)
{
	int r = loop_timer(b->loop, now_ns() + b->t.warm_ms * 1000000ull, on_warm_timer, b, &b->load.warm_timer);

	b->load.life = LIFE_WAKING;
	b->load.running = true;
	if (r == 0)
		r = b->engine_ops->resume(b->engine, b->t.pause_timeout_ms, on_waked, b);
	if (r < 0)
		end_with(b, "the restored machine could not be resumed", r, NULL);
}

bool box_load_ready(struct box *b)
{
	if (b->load.life == LIFE_GREETING) {
		b->load.life = LIFE_LIVE;
		return false;
	}
	if (b->load.life == LIFE_REHEARSING) {
		b->load.warm = b->load.warm || b->load.hold == BOX_HOLD_REHEARSED;
		rest(b);
		return true;
	}
	if (b->load.life != LIFE_WARM_HELLO)
		return b->load.life != LIFE_COLD;
	b->load.life = LIFE_WARMING;
	if (b->queue || b->load.late || begin_warming(b) < 0)
		hold(b);
	return true;
}

void box_load_started(struct box *b)
{
	switch (b->load.life) {
	case LIFE_LOADED:
	case LIFE_HELD:
		greet(b);
		break;
	case LIFE_WARMING: /* its end goes on; the timer stays */
		guest_exec_kill(b->load.exec);
		break;
	default: /* what is under way looks at it at its next step */
		break;
	}
}

/* -- LOAD -------------------------------------------------------------------------------------- */

static void on_loaded(void *arg, int code, const struct err *e)
{
	struct box *b = arg;

	fd_close(&b->load.fd);
	if (code < 0) {
		end_with(b, "the saved state could not be loaded", code, e);
		return;
	}
	box_reply(b, b->load.id, 0, "");
	b->load.id = 0;
	b->load.life = LIFE_LOADED;
	snprintf(b->stage, sizeof(b->stage), "loaded");
	if (b->queue)
		greet(b);
	else if (b->load.hold)
		wake(b);
}

static void on_assigned(void *arg, int code, const struct err *e)
{
	struct box *b = arg;
	int r = 0;

	if (code == 0)
		r = b->engine_ops->load(b->engine, b->load.fd, b->t.load_timeout_ms, on_loaded, b);
	if (code < 0 || r < 0)
		end_with(b, code < 0 ? "the disk could not be assigned" : "the saved state could not be loaded",
			 code < 0 ? code : r, e);
}

static int refuse(struct box *b, int fd, struct err *e)
{
	if (b->ending || b->state == BOX_STOPPING)
		return err_set(e, -EBUSY, "load: the machine is being stopped");
	if (b->load.life == LIFE_COLD)
		return err_set(e, -EBUSY, "load: this machine boots by itself");
	if (b->load.life != LIFE_EMPTY)
		return err_set(e, -EBUSY, "load: something was loaded already");
	if (b->memory.pending || b->memory.template_fd < 0)
		return err_set(e, -EBUSY, "load: its memory is not in place");
	return fd < 0 ? err_set(e, -EBADMSG, "load: no file with the machine's state") : 0;
}

void box_take_load(struct box *b, uint32_t id, const struct box_msg *m, int *fd)
{
	struct err e = { 0 };
	int r = refuse(b, *fd, &e);

	if (r == 0) {
		r = b->engine_ops->assign_disk(b->engine, m->load.export_name, b->t.load_timeout_ms, on_assigned, b);
		if (r < 0)
			err_set(&e, r, "load: the disk could not be assigned: %s", err_name(r));
	}
	if (r < 0) {
		box_reply(b, id, r, e.msg);
		return;
	}
	b->load.life = LIFE_LOADING;
	b->load.id = id;
	b->load.hold = m->load.hold;
	b->load.fd = take_fd(fd);
	snprintf(b->stage, sizeof(b->stage), "being loaded");
}

void box_load_fini(struct box *b)
{
	loop_del(b->loop, &b->load.warm_timer);
	b->load.exec = guest_exec_free(b->load.exec);
	if (b->load.life == LIFE_LOADING)
		fd_close(&b->load.fd);
}
