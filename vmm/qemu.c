/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * QEMU as an engine: the calls of engine.h over its monitor. At most one call is under way (`calling`); quit is not
 * counted. The state follows the engine's own events STOP and RESUME, which come before the answer to the command that
 * caused them; so the machine that stops by itself (a full disk) is PAUSED too.
 *
 * save(): capability x-ignore-shared (RAM is a shared memfd, so it stays out of the stream), then getfd, then migrate
 * to that descriptor, then query-migrate until it says completed. No event tells the end without a further capability,
 * and the whole takes 6 to 8 ms, so it is asked every 2 ms.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "vmm/machine.h"
#include "vmm/qmp.h"

#define SAVE_POLL_NS	(2 * 1000 * 1000ull)
#define QUIT_TIMEOUT_MS 5000
#define SAVE_FD_NAME	"state"

enum state { CONNECTING, RUNNING, PAUSED, GONE };

struct engine {
	struct loop *loop;
	struct qmp *qmp;
	struct engine_events ev;
	void *arg;
	enum state state;
	bool calling; /* one at a time */
	engine_done_fn *fn;
	void *fn_arg;
	uint64_t deadline_ns; /* of the op */
	int save_fd;	      /* borrowed */
	loop_id poll;
	unsigned int busy;
	bool freed;
};

static void release(struct engine *g)
{
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

static void op_end(struct engine *g, int code, const struct err *e)
{
	engine_done_fn *fn = g->fn;
	void *arg = g->fn_arg;

	loop_del(g->loop, &g->poll);
	g->calling = false;
	g->fn = NULL;
	g->save_fd = -1;
	if (fn)
		fn(arg, code, e);
	if (code == -ETIMEDOUT && !g->freed)
		tell(g, ENGINE_EV_STUCK, e ? e->msg : "");
}

/* What is left of the op's time, for its next step. */
static uint32_t op_left_ms(const struct engine *g)
{
	uint64_t now = now_ns();

	return now >= g->deadline_ns ? 0 : (uint32_t)((g->deadline_ns - now) / 1000000 + 1);
}

/* The next command of the running op; a failure to send it ends the op. */
static void op_call(struct engine *g, const char *command, const char *args, int fd, qmp_done_fn *fn)
{
	struct err e = { 0 };
	int r = qmp_call(g->qmp, command, args, fd, op_left_ms(g), fn, g);

	if (r < 0) {
		err_set(&e, r, "monitor: %s: %s", command, err_name(r));
		op_end(g, r, &e);
	}
}

/* -- events of the monitor --------------------------------------------------------------------- */

static void on_ready(void *arg)
{
	struct engine *g = arg;

	g->busy++;
	g->state = RUNNING;
	tell(g, ENGINE_EV_UP, "");
	g->busy--;
	release(g);
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

	g->busy++;
	if (strcmp(name, "STOP") == 0) {
		g->state = PAUSED;
		tell(g, ENGINE_EV_PAUSED, "");
	} else if (strcmp(name, "RESUME") == 0) {
		g->state = RUNNING;
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
	g->busy--;
	release(g);
}

static void on_gone(void *arg, int reason)
{
	struct engine *g = arg;

	g->busy++;
	g->state = GONE;
	loop_del(g->loop, &g->poll);
	tell(g, ENGINE_EV_GONE,
	     reason == -ECONNRESET ? "its monitor closed"
	     : reason == -EBADMSG  ? "its monitor spoke nonsense"
				   : err_name(reason));
	g->busy--;
	release(g);
}

/* -- calls ------------------------------------------------------------------------------------- */

static int op_begin(struct engine *g, enum state needed, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	if (g->state == GONE)
		return -EPIPE;
	if (g->calling || g->state != needed)
		return -EBUSY;
	g->calling = true;
	g->fn = fn;
	g->fn_arg = arg;
	g->deadline_ns = now_ns() + timeout_ms * 1000000ull;
	return 0;
}

/* Not begun after all: the caller is told by the return value, not by fn. */
static int op_drop(struct engine *g, int code)
{
	g->calling = false;
	g->fn = NULL;
	return code;
}

static void on_simple_done(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;

	(void)ret;
	g->busy++;
	op_end(g, code, e);
	g->busy--;
	release(g);
}

static int engine_pause(struct engine *g, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	int r = op_begin(g, RUNNING, timeout_ms, fn, arg);

	if (r < 0)
		return r;
	r = qmp_call(g->qmp, "stop", NULL, -1, timeout_ms, on_simple_done, g);
	return r < 0 ? op_drop(g, r) : 0;
}

static int engine_resume(struct engine *g, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	int r = op_begin(g, PAUSED, timeout_ms, fn, arg);

	if (r < 0)
		return r;
	r = qmp_call(g->qmp, "cont", NULL, -1, timeout_ms, on_simple_done, g);
	return r < 0 ? op_drop(g, r) : 0;
}

static void save_poll(void *arg);

static void on_migrate_status(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;
	const char *status = "", *desc = "no reason given";
	struct err words = { 0 };

	g->busy++;
	if (code == 0 && (!ret || json_get_str(ret, "status", &status, &words) < 0))
		code = -EIO;
	if (code < 0) {
		op_end(g, code, words.code ? &words : e);
	} else if (strcmp(status, "completed") == 0) {
		op_end(g, 0, e);
	} else if (strcmp(status, "failed") == 0 || strcmp(status, "cancelled") == 0) {
		json_get_str(ret, "error-desc", &desc, NULL);
		err_set(&words, -EIO, "saving the device state failed: %s", desc);
		op_end(g, -EIO, &words);
	} else if (op_left_ms(g) == 0) {
		err_set(&words, -ETIMEDOUT, "saving the device state: not done in time");
		op_end(g, -ETIMEDOUT, &words);
	} else if (loop_timer(g->loop, now_ns() + SAVE_POLL_NS, save_poll, g, &g->poll) < 0) {
		err_set(&words, -ENOMEM, "saving the device state: no memory");
		op_end(g, -ENOMEM, &words);
	}
	g->busy--;
	release(g);
}

static void save_poll(void *arg)
{
	struct engine *g = arg;

	g->poll = 0;
	g->busy++;
	op_call(g, "query-migrate", NULL, -1, on_migrate_status);
	g->busy--;
	release(g);
}

/* The steps of save() that need nothing but a "done": what follows is decided by where we are. */
static void on_save_begun(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;

	(void)ret;
	g->busy++;
	if (code < 0)
		op_end(g, code, e);
	else
		op_call(g, "query-migrate", NULL, -1, on_migrate_status);
	g->busy--;
	release(g);
}

static void on_save_fd(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;

	(void)ret;
	g->busy++;
	if (code < 0)
		op_end(g, code, e);
	else
		op_call(g, "migrate", "{\"uri\":\"fd:" SAVE_FD_NAME "\"}", -1, on_save_begun);
	g->busy--;
	release(g);
}

static void on_save_capability(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;

	(void)ret;
	g->busy++;
	if (code < 0)
		op_end(g, code, e);
	else
		op_call(g, "getfd", "{\"fdname\":\"" SAVE_FD_NAME "\"}", g->save_fd, on_save_fd);
	g->busy--;
	release(g);
}

static int engine_save(struct engine *g, int fd, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	static const char args[] = "{\"capabilities\":[{\"capability\":\"x-ignore-shared\",\"state\":true}]}";
	int r = op_begin(g, PAUSED, timeout_ms, fn, arg);

	if (r < 0)
		return r;
	g->save_fd = fd;
	r = qmp_call(g->qmp, "migrate-set-capabilities", args, -1, timeout_ms, on_save_capability, g);
	return r < 0 ? op_drop(g, r) : 0;
}

static int engine_quit(struct engine *g)
{
	return g->state == GONE ? -EPIPE : qmp_call(g->qmp, "quit", NULL, -1, QUIT_TIMEOUT_MS, NULL, NULL);
}

static struct engine *engine_free(struct engine *g)
{
	if (!g || g->freed)
		return NULL;
	loop_del(g->loop, &g->poll);
	g->qmp = qmp_free(g->qmp);
	g->freed = true;
	release(g);
	return NULL;
}

static int engine_connect(struct loop *l, int fd, const struct engine_events *ev, void *arg, struct engine **ret,
			  struct err *e)
{
	static const struct qmp_ops ops = { .on_ready = on_ready, .on_event = on_event, .on_gone = on_gone };
	struct engine *g = calloc(1, sizeof(*g));
	int r;

	if (!g) {
		fd_close(&fd);
		return err_set(e, -ENOMEM, "engine: no memory");
	}
	*g = (struct engine){ .loop = l, .ev = *ev, .arg = arg, .save_fd = -1 };
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
	.save = engine_save,
	.quit = engine_quit,
	.free = engine_free,
};
