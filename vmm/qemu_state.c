/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The calls that are sequences of commands. A sequence is a table of steps: each is a command with its arguments, sent
 * when the answer to the one before has come; the first refusal ends the call. The last step of save and load only
 * begins it, so they go on with a question that is repeated until the answer is final.
 *
 * save(): capability x-ignore-shared (RAM is shared for all that QEMU knows, so it stays out of the stream), getfd,
 * migrate to that descriptor, query-migrate until it says completed. No event tells the end without a further
 * capability, and the whole takes 6 to 8 ms, so it is asked every millisecond.
 *
 * assign_disk(): the export as a node of its own, then the node under the device is reopened on top of it. The device
 * never knows.
 *
 * load(): the same capability, no announcements, getfd, migrate-incoming, query-status until it is no longer
 * "inmigrate". A state that does not fit ends the process (QEMU's choice): the call ends with -EPIPE and the reason
 * stands in the console.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "vmm/machine.h"
#include "vmm/qemu_priv.h"

#define POLL_NS	      (1000 * 1000ull)
#define STATE_FD_NAME "state"

static void on_step(void *arg, int code, struct json_object *ret, const struct err *e);
static void on_save_status(void *arg, int code, struct json_object *ret, const struct err *e);
static void on_load_status(void *arg, int code, struct json_object *ret, const struct err *e);
static void on_assigned(void *arg, int code, struct json_object *ret, const struct err *e);

/* One command. @args: JSON; %s stands for the export's name. */
struct qemu_step {
	const char *command, *args;
	bool with_fd;
	qmp_done_fn *done;
};

#define CAPABILITY                                                                                                 \
	{                                                                                                          \
		"migrate-set-capabilities",                                                                        \
			"{\"capabilities\":[{\"capability\":\"x-ignore-shared\",\"state\":true}]}", false, on_step \
	}
#define GETFD                                                                \
	{                                                                    \
		"getfd", "{\"fdname\":\"" STATE_FD_NAME "\"}", true, on_step \
	}

static const struct qemu_step save_steps[] = {
	CAPABILITY,
	GETFD,
	{ "migrate", "{\"uri\":\"fd:" STATE_FD_NAME "\"}", false, on_step },
	{ "query-migrate", NULL, false, on_save_status },
};

static const struct qemu_step load_steps[] = {
	CAPABILITY,
	/* Five rounds of it otherwise, for switches that should hear where the machine is now. */
	{ "migrate-set-parameters", "{\"announce-rounds\":0}", false, on_step },
	GETFD,
	{ "migrate-incoming", "{\"uri\":\"fd:" STATE_FD_NAME "\"}", false, on_step },
	{ "query-status", NULL, false, on_load_status },
};

static const struct qemu_step assign_steps[] = {
	{ "blockdev-add",
	  "{\"driver\":\"nbd\",\"node-name\":\"" MACHINE_BLOCKS "\",\"server\":{\"type\":\"unix\",\"path\":"
	  "\"" ENGINE_BLOCKS_PATH "\"},\"export\":\"%s\",\"reconnect-delay\":" MACHINE_RECONNECT_S
	  ",\"discard\":\"unmap\"}",
	  false, on_step },
	{ "blockdev-reopen",
	  "{\"options\":[{\"driver\":\"raw\",\"node-name\":\"" MACHINE_DISK "\",\"file\":\"" MACHINE_BLOCKS
	  "\",\"discard\":\"unmap\",\"detect-zeroes\":\"off\"}]}",
	  false, on_assigned },
};

/* -- running a sequence ------------------------------------------------------------------------ */

static int send_step(struct engine *g, uint32_t timeout_ms)
{
	const struct qemu_step *s = g->step;
	const char *hole = s->args ? strstr(s->args, "%s") : NULL;
	char args[512];

	if (hole)
		snprintf(args, sizeof(args), "%.*s%s%s", (int)(hole - s->args), s->args, g->export_name, hole + 2);
	return qmp_call(g->qmp, s->command, hole ? args : s->args, s->with_fd ? g->state_fd : -1, timeout_ms, s->done,
			g);
}

/* Send the step where we are; a failure ends the call. */
static void go_on(struct engine *g)
{
	struct err e = { 0 };
	int r = send_step(g, qemu_op_left_ms(g));

	if (r < 0) {
		err_set(&e, r, "monitor: %s: %s", g->step->command, err_name(r));
		qemu_op_end(g, r, &e);
	}
}

static void on_step(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;

	(void)ret;
	qemu_enter(g);
	if (code < 0) {
		qemu_op_end(g, code, e);
	} else {
		g->step++;
		go_on(g);
	}
	qemu_leave(g);
}

static void on_poll(void *arg)
{
	struct engine *g = arg;

	g->poll = 0;
	qemu_enter(g);
	go_on(g);
	qemu_leave(g);
}

/* The same question again, soon. @what: for words. */
static void ask_again(struct engine *g, const char *what)
{
	struct err e = { 0 };

	if (qemu_op_left_ms(g) == 0) {
		err_set(&e, -ETIMEDOUT, "%s: not done in time", what);
		qemu_op_end(g, -ETIMEDOUT, &e);
	} else if (loop_timer(g->loop, now_ns() + POLL_NS, on_poll, g, &g->poll) < 0) {
		err_set(&e, -ENOMEM, "%s: no memory", what);
		qemu_op_end(g, -ENOMEM, &e);
	}
}

static int begin(struct engine *g, const struct qemu_step *steps, enum qemu_state needed, uint32_t timeout_ms,
		 engine_done_fn *fn, void *arg)
{
	int r = qemu_op_begin(g, needed, timeout_ms, fn, arg);

	if (r < 0)
		return r;
	g->step = steps;
	r = send_step(g, timeout_ms);
	return r < 0 ? qemu_op_drop(g, r) : 0;
}

/* "status" of an answer; NULL with words when there is none. */
static const char *status_of(int *code, struct json_object *ret, struct err *e)
{
	const char *status = NULL;

	if (*code < 0)
		return NULL;
	if (!ret || json_get_str(ret, "status", &status, e) < 0 || !status)
		*code = err_set(e, -EIO, "monitor: an answer without a status");
	return *code < 0 ? NULL : status;
}

/* -- save -------------------------------------------------------------------------------------- */

static void on_save_status(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;
	const char *desc = "no reason given", *status;
	struct err words = { 0 };

	qemu_enter(g);
	status = status_of(&code, ret, &words);
	if (!status) {
		qemu_op_end(g, code, words.code ? &words : e);
	} else if (strcmp(status, "completed") == 0) {
		qemu_op_end(g, 0, e);
	} else if (strcmp(status, "failed") == 0 || strcmp(status, "cancelled") == 0) {
		json_get_str(ret, "error-desc", &desc, NULL);
		err_set(&words, -EIO, "saving the device state failed: %s", desc);
		qemu_op_end(g, -EIO, &words);
	} else {
		ask_again(g, "saving the device state");
	}
	qemu_leave(g);
}

int qemu_save(struct engine *g, int fd, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	if (!g->calling)
		g->state_fd = fd;
	return begin(g, save_steps, QEMU_PAUSED, timeout_ms, fn, arg);
}

/* -- a generic machine becomes one ------------------------------------------------------------- */

static void on_assigned(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;

	(void)ret;
	qemu_enter(g);
	g->assigned |= code == 0;
	qemu_op_end(g, code, e);
	qemu_leave(g);
}

int qemu_assign_disk(struct engine *g, const char *export_name, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	if (!machine_export_name(export_name))
		return -EINVAL;
	if (g->calling || g->assigned)
		return g->state == QEMU_GONE ? -EPIPE : -EBUSY;
	snprintf(g->export_name, sizeof(g->export_name), "%s", export_name);
	return begin(g, assign_steps, QEMU_INCOMING, timeout_ms, fn, arg);
}

static void on_load_status(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;
	struct err words = { 0 };
	bool running = false;
	const char *status;

	qemu_enter(g);
	status = status_of(&code, ret, &words);
	if (status)
		json_get_bool(ret, "running", &running, NULL);
	if (!status) {
		qemu_op_end(g, code, words.code ? &words : e);
	} else if (strcmp(status, "inmigrate") == 0) {
		ask_again(g, "loading the device state");
	} else if (running || strcmp(status, "internal-error") == 0) {
		err_set(&words, -EIO, "loading the device state: the machine is then \"%s\", not paused", status);
		qemu_op_end(g, -EIO, &words);
	} else {
		g->state = QEMU_PAUSED;
		qemu_op_end(g, 0, e);
	}
	qemu_leave(g);
}

int qemu_load(struct engine *g, int fd, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	if (g->calling || !g->assigned)
		return g->state == QEMU_GONE ? -EPIPE : -EBUSY;
	/* Whoever wrote it, with this descriptor or a copy of it, left it at its end. A pipe has no other place. */
	if (g->state == QEMU_INCOMING && lseek(fd, 0, SEEK_SET) < 0 && errno != ESPIPE)
		return -errno;
	g->state_fd = fd;
	return begin(g, load_steps, QEMU_INCOMING, timeout_ms, fn, arg);
}
