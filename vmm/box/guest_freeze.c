/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The agent is quiet between its FROZEN, on both ports, and our THAW (or HELLO). Before FREEZE goes out, what was sent
 * earlier has left our buffers, and what comes later is held by the channel: so nothing of a frame is under way when
 * the machine is paused. The agent has `ms` to freeze, and a margin to say so. If it fails in time it says so, has
 * thawed everything, and is not quiet; what was held flows again.
 *
 * If it does not answer at all, THAW is sent and everything flows, but its FROZEN may still come. A PING behind the
 * THAW tells when it can not any more: until then FROZEN is swallowed, and no new freeze begins.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "vmm/box/guest_priv.h"

static const char ping_text[] = "thaw"; /* tells this PONG from those of guest_ping() */

void guest_freeze_end(struct guest *g, int code)
{
	guest_call_fn *fn = g->freeze_fn;

	loop_del(g->loop, &g->freeze_timer);
	g->freeze_fn = NULL;
	if (fn)
		fn(g->freeze_arg, code, NULL, 0);
}

void guest_freeze_forget(struct guest *g)
{
	loop_del(g->loop, &g->freeze_timer);
	g->freeze_fn = NULL;
	g->quiet = GUEST_FLOWING;
	memset(g->said_frozen, 0, sizeof(g->said_frozen));
	g->late = false;
}

/* Everything flows again, what was held first. The guest may be gone then. */
static void flow(struct guest *g)
{
	int r;

	g->quiet = GUEST_FLOWING;
	memset(g->said_frozen, 0, sizeof(g->said_frozen));
	loop_del(g->loop, &g->freeze_timer);
	r = g->channel ? channel_release(g->channel) : -ENOTCONN;
	if (r < 0) {
		guest_fail(g, r, "what was held during a snapshot could not be sent");
		return;
	}
	guest_call_unhold(g, now_ns() - g->quiet_since);
	guest_call_pump(g);
	guest_exec_pump(g);
}

/* It was told to freeze, and nobody waits for it any more. */
static void give_up(struct guest *g)
{
	if (g->quiet == GUEST_FREEZING) {
		g->late = true;
		memcpy(g->late_said, g->said_frozen, sizeof(g->late_said));
		guest_send(g, CHANNEL_CONTROL, AG_THAW, 0, 0, NULL, 0);
		flow(g);
		guest_send(g, CHANNEL_CONTROL, AG_PING, 0, 0, ping_text, strlen(ping_text));
		return;
	}
	flow(g);
}

static void on_timer(void *arg)
{
	struct guest *g = arg;

	g->freeze_timer = 0;
	g->busy++;
	give_up(g);
	guest_freeze_end(g, -ETIMEDOUT);
	g->busy--;
	guest_release(g);
}

static int send_freeze(struct guest *g)
{
	uint8_t payload[4];
	int r;

	for (int i = 0; i < 4; i++)
		payload[i] = (uint8_t)(g->freeze_ms >> (8 * i));
	r = guest_send(g, CHANNEL_CONTROL, AG_FREEZE, 0, 0, payload, sizeof(payload));
	if (r == 0)
		g->quiet = GUEST_FREEZING;
	return r;
}

void guest_freeze_drained(struct guest *g)
{
	int r;

	if (g->quiet != GUEST_DRAINING)
		return;
	r = send_freeze(g);
	if (r < 0) {
		flow(g);
		guest_freeze_end(g, r);
	}
}

int guest_freeze(struct guest *g, uint32_t ms, uint32_t margin_ms, guest_call_fn *fn, void *arg)
{
	int r;

	if (!guest_ready(g))
		return -ENOTCONN;
	if (g->quiet != GUEST_FLOWING || g->late)
		return -EBUSY;
	r = loop_timer(g->loop, now_ns() + ((uint64_t)ms + margin_ms) * 1000000, on_timer, g, &g->freeze_timer);
	if (r < 0)
		return r;
	g->freeze_ms = ms;
	g->freeze_fn = fn;
	g->freeze_arg = arg;
	g->quiet = GUEST_DRAINING;
	g->quiet_since = now_ns();
	guest_call_hold(g);
	channel_hold(g->channel);
	r = channel_drained(g->channel) ? send_freeze(g) : 0;
	if (r < 0) {
		g->freeze_fn = NULL;
		flow(g);
	}
	return r;
}

bool guest_frozen(const struct guest *g)
{
	return g->quiet == GUEST_FROZEN;
}

void guest_thaw(struct guest *g)
{
	if (g->quiet == GUEST_FLOWING || g->state == GUEST_GONE)
		return;
	g->busy++;
	g->freeze_fn = NULL;
	if (g->quiet == GUEST_FROZEN) {
		guest_send(g, CHANNEL_CONTROL, AG_THAW, 0, 0, NULL, 0);
		flow(g);
	} else {
		give_up(g);
	}
	g->busy--;
	guest_release(g);
}

/* -- what it answers --------------------------------------------------------------------------- */

static int take_late(struct guest *g, enum channel_port port, int code)
{
	if (g->late_said[port])
		return -EBADMSG;
	g->late_said[port] = true;
	if (code < 0 || (g->late_said[CHANNEL_CONTROL] && g->late_said[CHANNEL_BULK]))
		g->late = false;
	return 0;
}

void guest_freeze_pong(struct guest *g, const struct ag_frame *f)
{
	bool ours = f->len == strlen(ping_text) && memcmp(f->payload, ping_text, f->len) == 0;

	/* If it froze after all, FROZEN came on control before this and comes on bulk for certain; else nothing does.
	 */
	if (ours && !g->late_said[CHANNEL_CONTROL])
		g->late = false;
}

int guest_freeze_frame(struct guest *g, enum channel_port port, const struct ag_frame *f)
{
	const uint8_t *p = f->payload;
	int code = (int)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);

	if (code != 0 && (code != -ETIMEDOUT || port != CHANNEL_CONTROL))
		return -EBADMSG;
	if (g->late)
		return take_late(g, port, code);
	if (g->quiet != GUEST_FREEZING || g->said_frozen[port])
		return -EBADMSG;
	if (code < 0) {
		if (g->said_frozen[CHANNEL_BULK])
			return -EBADMSG;
		flow(g);
		guest_freeze_end(g, code);
		return 0;
	}
	g->said_frozen[port] = true;
	if (g->said_frozen[CHANNEL_CONTROL] && g->said_frozen[CHANNEL_BULK]) {
		g->quiet = GUEST_FROZEN;
		guest_freeze_end(g, 0);
	}
	return 0;
}
