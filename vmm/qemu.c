/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * QEMU as an engine: the calls of engine.h over its monitor. At most one call is under way (`calling`); quit is not
 * counted. The state follows the engine's own events STOP and RESUME, which come before the answer to the command that
 * caused them; so the machine that stops by itself (a full disk) is PAUSED too. A generic one is INCOMING until load()
 * has ended, whatever events say. The calls that are sequences of commands stand in qemu_state.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "vmm/machine.h"
#include "vmm/qemu_priv.h"

#define QUIT_TIMEOUT_MS 5000

void qemu_enter(struct engine *g)
{
	g->busy++;
}

void qemu_leave(struct engine *g)
{
	g->busy--;
	if (g->busy == 0 && g->freed)
		free(g);
}

static void tell(struct engine *g, enum engine_event ev, const char *detail)
{
	g->ev.on_event(g->arg, ev, detail);
}

/* Words of the engine, for people: no control characters, not endless. */
static void clean(const char *text, char *out, size_t cap)
{
	size_t i;

	for (i = 0; text[i] && i + 1 < cap; i++)
		out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
	out[i] = '\0';
}

/* -- events of the monitor --------------------------------------------------------------------- */

static void on_ready(void *arg)
{
	struct engine *g = arg;

	qemu_enter(g);
	g->state = g->generic ? QEMU_INCOMING : QEMU_RUNNING;
	tell(g, ENGINE_EV_UP, "");
	qemu_leave(g);
}

static void shutdown_words(struct json_object *data, char *out, size_t cap)
{
	static const struct {
		const char *reason, *words;
	} known[] = {
		{ "guest-shutdown", "the guest powered off" },
		{ "guest-reset", "the guest's kernel panicked or restarted" },
		{ "guest-panic", "the guest's kernel panicked" },
		{ "host-qmp-quit", "it was told to" },
		{ "host-signal", "it got a signal" },
		{ "host-error", "an error on the host" },
	};
	const char *reason = "";

	if (data)
		json_get_str(data, "reason", &reason, NULL);
	for (size_t i = 0; i < ARRAY_LEN(known); i++)
		if (strcmp(reason, known[i].reason) == 0) {
			snprintf(out, cap, "%s", known[i].words);
			return;
		}
	clean(reason, out, cap);
}

static void io_error_words(struct json_object *data, char *out, size_t cap)
{
	const char *reason = "", *operation = "";
	bool full = false;

	if (data) {
		json_get_bool(data, "nospace", &full, NULL);
		json_get_str(data, "reason", &reason, NULL);
		json_get_str(data, "operation", &operation, NULL);
	}
	if (full)
		snprintf(out, cap, "the host's disk is full: the machine is paused; make room and resume it");
	else
		snprintf(out, cap, "the disk failed on a %.16s: %.100s", operation, reason);
	clean(out, out, cap);
}

static void on_event(void *arg, const char *name, struct json_object *data)
{
	struct engine *g = arg;
	char words[192];

	qemu_enter(g);
	if (strcmp(name, "STOP") == 0) {
		if (g->state != QEMU_INCOMING)
			g->state = QEMU_PAUSED;
		tell(g, ENGINE_EV_PAUSED, "");
	} else if (strcmp(name, "RESUME") == 0) {
		if (g->state != QEMU_INCOMING)
			g->state = QEMU_RUNNING;
		tell(g, ENGINE_EV_RESUMED, "");
	} else if (strcmp(name, "SHUTDOWN") == 0) {
		shutdown_words(data, words, sizeof(words));
		tell(g, ENGINE_EV_SHUTDOWN, words);
	} else if (strcmp(name, "GUEST_PANICKED") == 0) {
		tell(g, ENGINE_EV_PANICKED, "the guest's kernel panicked");
	} else if (strcmp(name, "BLOCK_IO_ERROR") == 0) {
		io_error_words(data, words, sizeof(words));
		tell(g, ENGINE_EV_IO_ERROR, words);
	}
	qemu_leave(g);
}

static void on_gone(void *arg, int reason)
{
	struct engine *g = arg;
	struct err e = { 0 };

	qemu_enter(g);
	g->state = QEMU_GONE;
	/* The monitor has ended what it was asked; this is the call that was about to ask again. */
	if (g->calling) {
		err_set(&e, -EPIPE, "the engine is gone");
		qemu_op_end(g, -EPIPE, &e);
	}
	if (!g->freed)
		tell(g, ENGINE_EV_GONE,
		     reason == -ECONNRESET ? "its monitor closed"
		     : reason == -EBADMSG  ? "its monitor spoke nonsense"
					   : err_name(reason));
	qemu_leave(g);
}

/* -- calls ------------------------------------------------------------------------------------- */

void qemu_op_end(struct engine *g, int code, const struct err *e)
{
	engine_done_fn *fn = g->fn;
	void *arg = g->fn_arg;

	loop_del(g->loop, &g->poll);
	g->calling = false;
	g->fn = NULL;
	g->state_fd = -1;
	if (fn)
		fn(arg, code, e);
	if (code == -ETIMEDOUT && !g->freed)
		tell(g, ENGINE_EV_STUCK, e ? e->msg : "");
}

/* What is left of the op's time, for its next step. */
uint32_t qemu_op_left_ms(const struct engine *g)
{
	uint64_t now = now_ns();

	return now >= g->deadline_ns ? 0 : (uint32_t)((g->deadline_ns - now) / 1000000 + 1);
}

int qemu_op_begin(struct engine *g, enum qemu_state needed, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	if (g->state == QEMU_GONE)
		return -EPIPE;
	if (g->calling || g->state != needed)
		return -EBUSY;
	g->calling = true;
	g->fn = fn;
	g->fn_arg = arg;
	g->deadline_ns = now_ns() + timeout_ms * 1000000ull;
	return 0;
}

int qemu_op_drop(struct engine *g, int code)
{
	g->calling = false;
	g->fn = NULL;
	return code;
}

static void on_simple_done(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;

	(void)ret;
	qemu_enter(g);
	qemu_op_end(g, code, e);
	qemu_leave(g);
}

static int engine_pause(struct engine *g, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	int r = qemu_op_begin(g, QEMU_RUNNING, timeout_ms, fn, arg);

	if (r < 0)
		return r;
	r = qmp_call(g->qmp, "stop", NULL, -1, timeout_ms, on_simple_done, g);
	return r < 0 ? qemu_op_drop(g, r) : 0;
}

static int engine_resume(struct engine *g, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	int r = qemu_op_begin(g, QEMU_PAUSED, timeout_ms, fn, arg);

	if (r < 0)
		return r;
	r = qmp_call(g->qmp, "cont", NULL, -1, timeout_ms, on_simple_done, g);
	return r < 0 ? qemu_op_drop(g, r) : 0;
}

static int engine_quit(struct engine *g)
{
	return g->state == QEMU_GONE ? -EPIPE : qmp_call(g->qmp, "quit", NULL, -1, QUIT_TIMEOUT_MS, NULL, NULL);
}

static struct engine *engine_free(struct engine *g)
{
	if (!g || g->freed)
		return NULL;
	loop_del(g->loop, &g->poll);
	loop_del(g->loop, &g->balloon.poll);
	g->qmp = qmp_free(g->qmp);
	qemu_enter(g);
	g->freed = true;
	qemu_leave(g);
	return NULL;
}

static int engine_connect(struct loop *l, int fd, bool generic, const struct engine_events *ev, void *arg,
			  struct engine **ret, struct err *e)
{
	static const struct qmp_ops ops = { .on_ready = on_ready, .on_event = on_event, .on_gone = on_gone };
	struct engine *g = calloc(1, sizeof(*g));
	int r;

	if (!g) {
		fd_close(&fd);
		return err_set(e, -ENOMEM, "engine: no memory");
	}
	*g = (struct engine){ .loop = l, .generic = generic, .ev = *ev, .arg = arg, .state_fd = -1 };
	r = qmp_new(l, fd, &ops, g, &g->qmp);
	if (r < 0) {
		free(g);
		return err_set(e, r, "engine: monitor: %s", err_name(r));
	}
	*ret = g;
	return 0;
}

const struct engine_ops engine_qemu = {
	.name = "qemu",
	.probe = qemu_probe,
	.command = machine_command,
	.connect = engine_connect,
	.pause = engine_pause,
	.resume = engine_resume,
	.save = qemu_save,
	.assign_disk = qemu_assign_disk,
	.load = qemu_load,
	.balloon = qemu_balloon,
	.quit = engine_quit,
	.free = engine_free,
};
