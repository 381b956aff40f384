/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A call waits (g->waiting, with its payload) until bulk has room and fewer than AG_FS_INFLIGHT_MAX are in flight, then
 * it stands in g->calls until the agent has answered. One that is overdue is ended with -ETIMEDOUT but keeps its place,
 * without a function: the agent still works on it, so it counts against what the protocol lets be in flight, and its
 * late answer is swallowed.
 *
 * One timer, armed for the earliest deadline when there was none: a call that is answered in time costs no timer of its
 * own. Before the guest is ready there are no deadlines: the boot has its own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "vmm/box/guest_json.h"
#include "vmm/box/guest_priv.h"

struct call {
	struct call *next;
	uint32_t id;
	uint8_t type, op; /* AG_FS_REQ, AG_SYNC, AG_TRIM, AG_NET or AG_SPARE; op of the first */
	uint32_t timeout_ms;
	uint64_t deadline_ns;
	guest_call_fn *fn; /* NULL: overdue, answered already */
	void *arg;
	size_t len;
	uint8_t data[]; /* while it waits */
};

static void on_timer(void *arg);

static void arm(struct guest *g)
{
	uint64_t first = UINT64_MAX;

	if (g->call_timer || g->freed || g->state != GUEST_READY || g->quiet != GUEST_FLOWING)
		return;
	for (struct call *c = g->calls; c; c = c->next)
		if (c->fn && c->deadline_ns < first)
			first = c->deadline_ns;
	for (struct call *c = g->waiting; c; c = c->next)
		if (c->deadline_ns < first)
			first = c->deadline_ns;
	if (first != UINT64_MAX)
		loop_timer(g->loop, first, on_timer, g, &g->call_timer);
}

/* Take the first of @list that is overdue out of it, or, if it was sent, just its function. */
static bool end_overdue(struct guest *g, uint64_t now)
{
	for (struct call *c = g->calls; c; c = c->next)
		if (c->fn && c->deadline_ns <= now) {
			guest_call_fn *fn = c->fn;

			c->fn = NULL;
			fn(c->arg, -ETIMEDOUT, NULL, 0);
			return true;
		}
	for (struct call **at = &g->waiting; *at; at = &(*at)->next)
		if ((*at)->deadline_ns <= now) {
			struct call *c = *at;

			*at = c->next;
			if (!*at)
				g->tail = at;
			g->nwaiting--;
			g->waiting_bytes -= c->len;
			c->fn(c->arg, -ETIMEDOUT, NULL, 0);
			free(c);
			return true;
		}
	return false;
}

static void on_timer(void *arg)
{
	struct guest *g = arg;
	uint64_t now = now_ns();

	/* The functions may do anything but free the guest, so each round begins anew. */
	g->call_timer = 0;
	while (end_overdue(g, now))
		;
	arm(g);
}

void guest_call_ready(struct guest *g)
{
	for (struct call *c = g->waiting; c; c = c->next)
		c->deadline_ns = now_ns() + c->timeout_ms * 1000000ull;
	guest_call_pump(g);
	arm(g);
}

void guest_call_hold(struct guest *g)
{
	loop_del(g->loop, &g->call_timer);
}

void guest_call_unhold(struct guest *g, uint64_t ns)
{
	for (struct call *c = g->calls; c; c = c->next)
		c->deadline_ns += ns;
	for (struct call *c = g->waiting; c; c = c->next)
		c->deadline_ns += ns;
	arm(g);
}

void guest_call_pump(struct guest *g)
{
	while (g->waiting && g->state == GUEST_READY && !g->rehearsal && g->in_flight < AG_FS_INFLIGHT_MAX &&
	       channel_has_room(g->channel)) {
		struct call *c = g->waiting, **at = &g->calls;

		if (guest_send(g, CHANNEL_BULK, c->type, c->op, c->id, c->data, c->len) < 0)
			return; /* gone, which ends it; or no memory: at the next chance */
		g->waiting = c->next;
		if (!g->waiting)
			g->tail = &g->waiting;
		g->nwaiting--;
		g->waiting_bytes -= c->len;
		while (*at)
			at = &(*at)->next;
		c->next = NULL;
		*at = c;
		g->in_flight++;
	}
}

static int call_new(struct guest *g, uint8_t type, uint8_t op, const void *data, size_t len, uint32_t timeout_ms,
		    guest_call_fn *fn, void *arg, struct call **ret)
{
	struct call *c;

	if (g->state == GUEST_GONE)
		return -ENOTCONN;
	c = malloc(sizeof(*c) + len);
	if (!c)
		return -ENOMEM;
	*c = (struct call){ .id = guest_next_stream(g), .type = type, .op = op, .fn = fn, .arg = arg, .len = len };
	c->timeout_ms = timeout_ms;
	c->deadline_ns = now_ns() + timeout_ms * 1000000ull;
	if (len)
		memcpy(c->data, data, len);
	*ret = c;
	return 0;
}

int guest_fs(struct guest *g, uint8_t op, const void *data, size_t len, uint32_t timeout_ms, guest_call_fn *fn,
	     void *arg)
{
	struct call *c;
	int r;

	if (g->nwaiting >= GUEST_CALLS_WAITING_MAX || len > GUEST_CALLS_WAITING_BYTES - g->waiting_bytes)
		return -EBUSY;
	r = call_new(g, AG_FS_REQ, op, data, len, timeout_ms, fn, arg, &c);
	if (r < 0)
		return r;
	*g->tail = c;
	g->tail = &c->next;
	g->nwaiting++;
	g->waiting_bytes += len;
	guest_call_pump(g);
	arm(g);
	return 0;
}

static int small_call(struct guest *g, uint8_t type, const struct buf *payload, uint32_t timeout_ms, guest_call_fn *fn,
		      void *arg)
{
	struct call *c, **at = &g->calls;
	int r;

	if (g->state != GUEST_READY)
		return -ENOTCONN;
	if (g->in_flight >= AG_FS_INFLIGHT_MAX)
		return -EBUSY;
	r = call_new(g, type, 0, NULL, 0, timeout_ms, fn, arg, &c);
	if (r < 0)
		return r;
	r = guest_send(g, CHANNEL_CONTROL, type, 0, c->id, payload ? payload->data : NULL, payload ? payload->len : 0);
	if (r < 0) {
		free(c);
		return r;
	}
	while (*at)
		at = &(*at)->next;
	*at = c;
	g->in_flight++;
	arm(g);
	return 0;
}

int guest_sync(struct guest *g, uint32_t timeout_ms, guest_call_fn *fn, void *arg)
{
	return small_call(g, AG_SYNC, NULL, timeout_ms, fn, arg);
}

int guest_trim(struct guest *g, uint32_t timeout_ms, guest_call_fn *fn, void *arg)
{
	return small_call(g, AG_TRIM, NULL, timeout_ms, fn, arg);
}

int guest_spare(struct guest *g, uint32_t timeout_ms, guest_call_fn *fn, void *arg)
{
	return small_call(g, AG_SPARE, NULL, timeout_ms, fn, arg);
}

int guest_net(struct guest *g, uint32_t timeout_ms, guest_call_fn *fn, void *arg)
{
	struct buf json;
	int r;

	buf_init(&json, AG_PAYLOAD_MAX);
	r = guest_net_format(&json);
	if (r == 0)
		r = small_call(g, AG_NET, &json, timeout_ms, fn, arg);
	buf_fini(&json);
	return r;
}

static uint8_t answer_to(uint8_t type)
{
	switch (type) {
	case AG_FS_REQ:
		return AG_FS_REP;
	case AG_NET:
		return AG_NET_UP;
	case AG_SPARE:
		return AG_SPARE_IS;
	default:
		return AG_SYNCED;
	}
}

/* The answer's code and what follows it: all but AG_SYNCED begin with one. */
static int answer_of(const struct call *c, const struct ag_frame *f, int *ret_code)
{
	uint32_t code = 0;

	*ret_code = 0;
	if (answer_to(c->type) != f->type || c->op != f->flags)
		return -EBADMSG;
	if (f->type == AG_SYNCED)
		return 0;
	if (f->len < 4)
		return -EBADMSG;
	for (int i = 0; i < 4; i++)
		code |= (uint32_t)f->payload[i] << (8 * i);
	if ((int32_t)code > 0 || (int32_t)code < -4095)
		return -EBADMSG;
	*ret_code = (int32_t)code;
	return 0;
}

int guest_call_answer(struct guest *g, const struct ag_frame *f)
{
	size_t head = f->type == AG_SYNCED ? 0 : 4;
	struct call **at = &g->calls, *c;
	int code;

	while (*at && (*at)->id != f->stream)
		at = &(*at)->next;
	c = *at;
	if (!c || answer_of(c, f, &code) < 0)
		return -EBADMSG;
	*at = c->next;
	g->in_flight--;
	if (c->fn)
		c->fn(c->arg, code, f->payload + head, f->len - head);
	free(c);
	guest_call_pump(g);
	return 0;
}

void guest_call_end_all(struct guest *g)
{
	struct call *lists[] = { g->calls, g->waiting }, *c;

	loop_del(g->loop, &g->call_timer);
	g->calls = g->waiting = NULL;
	g->tail = &g->waiting;
	g->in_flight = g->nwaiting = g->waiting_bytes = 0;
	for (size_t i = 0; i < 2; i++)
		while ((c = lists[i])) {
			lists[i] = c->next;
			if (c->fn)
				c->fn(c->arg, -ENOTCONN, NULL, 0);
			free(c);
		}
}

void guest_call_free_all(struct guest *g)
{
	for (struct call *c; (c = g->calls); free(c))
		g->calls = c->next;
	for (struct call *c; (c = g->waiting); free(c))
		g->waiting = c->next;
}
