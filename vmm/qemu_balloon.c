/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The guest gives memory up to its balloon's driver, which hands it to the engine page by page; the engine discards
 * each: MADV_DONTNEED on a private mapping, so that it shows the template again, or zeros where there is none, and is
 * no longer the machine's own. What it gets back it has to write before it reads, as any free page.
 *
 * The command names what is to be left to the guest and returns at once; the driver comes there 256 pages at a time, so
 * how far it is asked again and again. It is no call of its own kind of qemu.c's: a pause need not wait for it. */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "vmm/qemu_priv.h"

#define POLL_NS (2 * 1000 * 1000ull)
/* A driver that does not move at all for so long will not: nobody serves it, or its machine is paused. */
#define STALL_NS (2 * 1000 * 1000 * 1000ull)

static void end(struct engine *g, int code, const struct err *e)
{
	engine_done_fn *fn = g->balloon.fn;

	loop_del(g->loop, &g->balloon.poll);
	g->balloon.fn = NULL;
	if (fn)
		fn(g->balloon.arg, code, e);
}

static void fail(struct engine *g, int code, const char *words)
{
	struct err e = { 0 };

	err_set(&e, code, "the guest's free memory: %s", words);
	end(g, code, &e);
}

static uint32_t left_ms(const struct engine *g)
{
	uint64_t now = now_ns();

	return now >= g->balloon.deadline_ns ? 0 : (uint32_t)((g->balloon.deadline_ns - now) / 1000000 + 1);
}

static void on_actual(void *arg, int code, struct json_object *ret, const struct err *e);

static void on_poll(void *arg)
{
	struct engine *g = arg;
	int r;

	g->balloon.poll = 0;
	qemu_enter(g);
	r = qmp_call(g->qmp, "query-balloon", NULL, -1, left_ms(g), on_actual, g);
	if (r < 0)
		fail(g, r, err_name(r));
	qemu_leave(g);
}

/* @actual: how far it is; 0: not known. */
static void wait_on(struct engine *g, uint64_t actual)
{
	uint64_t now = now_ns();

	if (actual != g->balloon.actual) {
		g->balloon.actual = actual;
		g->balloon.moved_ns = now;
	}
	if (left_ms(g) == 0)
		fail(g, -ETIMEDOUT, "its driver did not come there in time");
	else if (now - g->balloon.moved_ns > STALL_NS)
		fail(g, -ETIMEDOUT, "its driver does not move");
	else if (loop_timer(g->loop, now_ns() + POLL_NS, on_poll, g, &g->balloon.poll) < 0)
		fail(g, -ENOMEM, "no memory");
}

static void on_actual(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;
	uint64_t actual = UINT64_MAX; /* a member that is missing leaves it */

	qemu_enter(g);
	if (code < 0)
		end(g, code, e);
	else if (!ret || json_get_u64(ret, "actual", 0, UINT64_MAX - 1, &actual, NULL) < 0 || actual == UINT64_MAX)
		fail(g, -EIO, "the engine's answer names none");
	else if (actual == g->balloon.target)
		end(g, 0, NULL);
	else
		wait_on(g, actual);
	qemu_leave(g);
}

static void on_told(void *arg, int code, struct json_object *ret, const struct err *e)
{
	struct engine *g = arg;

	(void)ret;
	qemu_enter(g);
	if (code < 0)
		end(g, code, e);
	else
		wait_on(g, 0);
	qemu_leave(g);
}

int qemu_balloon(struct engine *g, uint64_t bytes, uint32_t timeout_ms, engine_done_fn *fn, void *arg)
{
	char args[64];
	int r;

	if (g->state == QEMU_GONE)
		return -EPIPE;
	if (g->balloon.fn || (g->state != QEMU_RUNNING && g->state != QEMU_PAUSED))
		return -EBUSY;
	if (!fn || !bytes || bytes % 4096)
		return -EINVAL;
	snprintf(args, sizeof(args), "{\"value\":%" PRIu64 "}", bytes);
	g->balloon.fn = fn;
	g->balloon.arg = arg;
	g->balloon.target = bytes;
	g->balloon.actual = 0;
	g->balloon.moved_ns = now_ns();
	g->balloon.deadline_ns = now_ns() + timeout_ms * 1000000ull;
	r = qmp_call(g->qmp, "balloon", args, -1, timeout_ms, on_told, g);
	if (r < 0)
		g->balloon.fn = NULL;
	return r;
}
