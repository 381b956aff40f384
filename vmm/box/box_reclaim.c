/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A page that the guest has written once is the machine's own, whether the guest still uses it or not, and a snapshot
 * would copy and store it: a file of 1 GiB that was written and deleted leaves a guest full of pages that nobody needs.
 * So before a snapshot the guest gives free memory up to its balloon, which takes it from the machine, and gets it
 * back.
 *
 * How much of the free memory was ever written only the host knows, and which of the written pages are free only the
 * guest does. Free pages are handed out last freed, first taken, so it is found out by trying: a first small step, then
 * each as large as all before it, for as long as at least half of what a step took was the machine's own. Where nothing
 * is to be had that costs one small step, and where little was written not even that.
 *
 * A machine that was saved while memory is out has a balloon that nobody tells to shrink, in each of its forks. So a
 * FREEZE is refused meanwhile, and a daemon that finds a reclaim of its predecessor's waits for its end.
 *
 * None of it must fail a snapshot: what cannot be had is stored. The guest runs on meanwhile; the engine gives the
 * memory back before a command is killed for want of it (deflate-on-oom), and what the guest keeps for itself is not
 * asked for.
 */
#include <string.h>

#include "base/pagemap.h"
#include "base/wire.h"
#include "vmm/box/box_priv.h"

/* Giving a MiB back takes longer than copying it, some milliseconds under emulation, and the snapshot is waited for:
 * less than this is copied and stored. */
#define WORTH	   (UINT64_C(64) << 20)
#define FIRST_STEP (UINT64_C(16) << 20)
#define AGAIN_NS   (UINT64_C(10) * 1000 * 1000)

static void grow(struct box *b);

static void over(struct box *b)
{
	struct box_reclaim *c = &b->reclaim;
	uint64_t pages = c->first > c->own ? c->first - c->own : 0;

	c->running = false;
	if (c->connection != b->connection)
		return;
	if (wire_put_u64(&b->data, pages * PAGEMAP_PAGE) == 0)
		box_reply_data(b, c->id, 0, "", b->data.data, b->data.len, NULL, 0);
	buf_reset(&b->data);
}

/* How many pages are the machine's own now; false: it cannot be told. */
static bool look(struct box *b)
{
	const struct box_memory *m = &b->memory;
	uint64_t n;

	if (m->pagemap < 0 || pagemap_count_own(m->pagemap, m->base, b->reclaim.ram, &n, NULL) < 0)
		return false;
	b->reclaim.own = n;
	return true;
}

static void on_back(void *arg, int code, const struct err *e)
{
	(void)code; /* where it is slow it goes on by itself, also in a fork: all of it is the target */
	(void)e;
	over(arg);
}

static void on_again(void *arg);

static void give_back(struct box *b)
{
	int r = b->engine_ops->balloon(b->engine, b->reclaim.ram, b->t.reclaim_answer_ms, on_back, b);

	/* What is out must come back: without memory for the order, soon. */
	if (r == -ENOMEM)
		r = loop_timer(b->loop, now_ns() + AGAIN_NS, on_again, b, &b->reclaim.again);
	if (r < 0)
		over(b);
}

static void on_again(void *arg)
{
	struct box *b = arg;

	b->reclaim.again = 0;
	give_back(b);
}

static void on_out(void *arg, int code, const struct err *e)
{
	struct box *b = arg;
	struct box_reclaim *c = &b->reclaim;
	uint64_t before = c->own, step = c->out <= FIRST_STEP ? c->out : c->out / 2;

	(void)e;
	if (code < 0 || !look(b) || c->out == c->spare || before < c->own ||
	    (before - c->own) * PAGEMAP_PAGE < step / 2 || b->state != BOX_READY)
		give_back(b);
	else
		grow(b);
}

static void grow(struct box *b)
{
	struct box_reclaim *c = &b->reclaim;
	uint64_t out = c->out ? c->out * 2 : FIRST_STEP, now = now_ns();

	c->out = out < c->spare ? out : c->spare;
	if (now >= c->until_ns || b->engine_ops->balloon(b->engine, c->ram - c->out,
							 (uint32_t)((c->until_ns - now) / 1000000 + 1), on_out, b) < 0)
		give_back(b);
}

static void on_spare(void *arg, int code, const void *data, size_t len)
{
	struct box *b = arg;
	struct box_reclaim *c = &b->reclaim;
	struct wire_rd r;

	wire_rd_init(&r, data, code < 0 ? 0 : len);
	c->spare = code < 0 ? 0 : wire_u64(&r) / PAGEMAP_PAGE * PAGEMAP_PAGE;
	if (r.bad || c->spare < WORTH || c->spare >= c->ram || !b->engine || b->state != BOX_READY) {
		over(b);
	} else {
		c->until_ns = now_ns() + b->t.reclaim_grow_ms * UINT64_C(1000000);
		grow(b);
	}
}

static void on_synced(void *arg, int code, const void *data, size_t len)
{
	struct box *b = arg;

	(void)data;
	(void)len;
	/* A disk that is slow is no reason: it is written later. */
	if ((code < 0 && code != -ETIMEDOUT) || guest_spare(b->guest, b->t.reclaim_answer_ms, on_spare, b) < 0)
		over(b);
}

static int refuse(struct box *b, struct err *e)
{
	if (b->ending || b->state != BOX_READY || b->freeze.step != FREEZE_NONE || b->pause_id)
		return err_set(e, -EBUSY, "reclaim: the sandbox does not run");
	if (b->reclaim.running && b->reclaim.connection == b->connection)
		return err_set(e, -EBUSY, "reclaim: one is under way");
	return b->memory.known ? 0 : err_set(e, -ENOENT, "reclaim: the memory was not handed over yet");
}

void box_reclaim_fini(struct box *b)
{
	struct box_reclaim *c = &b->reclaim;

	loop_del(b->loop, &c->again);
	if (c->running && c->connection == b->connection)
		box_reply(b, c->id, -ENOTCONN, b->why);
	c->running = false;
}

void box_take_reclaim(struct box *b, uint32_t id, uint64_t bytes)
{
	struct err e = { 0 };
	int r = refuse(b, &e);

	if (r < 0) {
		box_reply(b, id, r, e.msg);
		return;
	}
	if (b->reclaim.running) { /* of a daemon that went: this one waits for the same */
		b->reclaim.id = id;
		b->reclaim.connection = b->connection;
		return;
	}
	b->reclaim = (struct box_reclaim){ .running = true, .id = id, .connection = b->connection, .ram = bytes };
	if (!look(b)) {
		over(b);
		return;
	}
	b->reclaim.first = b->reclaim.own;
	if (b->reclaim.own * PAGEMAP_PAGE < WORTH || guest_sync(b->guest, b->t.reclaim_sync_ms, on_synced, b) < 0)
		over(b);
}
