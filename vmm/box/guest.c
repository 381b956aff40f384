/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * One channel, on which execs and calls are streams with numbers of one counter. A frame is dispatched by its type to
 * the file that knows it. A type on the wrong port, or one that only the host may send, breaks the protocol: the guest
 * is then gone, because an agent that is not in step any more can not be believed about which command ended how.
 *
 * Input for the guest (scripts, standard input, file requests) is pulled: when bulk has room, waiting calls go first,
 * then each command with input and credit gets one piece in turn. So a command with 64 MiB of input delays nobody by
 * more than a piece.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fd.h"
#include "vmm/box/guest_json.h"
#include "vmm/box/guest_priv.h"

void guest_release(struct guest *g)
{
	if (g->busy > 0 || !g->freed)
		return;
	guest_call_free_all(g);
	free(g);
}

void guest_fail(struct guest *g, int reason, const char *words)
{
	if (g->state == GUEST_GONE)
		return;
	g->state = GUEST_GONE;
	g->busy++;
	g->channel = channel_free(g->channel);
	guest_call_end_all(g);
	guest_freeze_end(g, -ENOTCONN);
	if (!g->freed)
		g->ops.on_gone(g->arg, reason, words);
	g->busy--;
}

uint32_t guest_next_stream(struct guest *g)
{
	if (++g->last_stream == 0)
		g->last_stream = 1;
	return g->last_stream;
}

int guest_send(struct guest *g, enum channel_port port, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
	       size_t len)
{
	int r = g->channel ? channel_send(g->channel, port, type, flags, stream, data, len) : -ENOTCONN;

	return r == -EPIPE ? -ENOTCONN : r;
}

/* -- frames ------------------------------------------------------------------------------------ */

static int take_hello(struct guest *g, const struct ag_frame *f)
{
	struct guest_hello_text text;
	struct guest_info info = { .json = text.json, .unenforced = text.unenforced };
	int r;

	if (g->state != GUEST_GREETED)
		return -EBADMSG;
	r = guest_hello_parse(f->payload, f->len, &text);
	if (r < 0)
		return r;
	if (g->cloned) {
		info.inherited = text.inherited;
		info.ninherited = text.ninherited;
	}
	/* Numbers of this epoch begin behind those that stay. */
	for (size_t i = 0; i < info.ninherited; i++)
		if (info.inherited[i].stream > g->last_stream)
			g->last_stream = info.inherited[i].stream;
	g->state = GUEST_READY;
	g->ops.on_ready(g->arg, &info);
	if (g->state == GUEST_READY && !g->rehearsal)
		guest_call_ready(g);
	guest_hello_text_fini(&text);
	return 0;
}

static void take_stage(struct guest *g, const struct ag_frame *f)
{
	char words[128];

	guest_words(f->payload, f->len, words, sizeof(words));
	g->ops.on_stage(g->arg, words);
}

static int take_control(struct guest *g, const struct ag_frame *f)
{
	g->heard_ns = now_ns();
	switch (f->type) {
	case AG_HELLO:
		return take_hello(g, f);
	case AG_STAGE:
		take_stage(g, f);
		return 0;
	case AG_BYE:
		guest_bye_parse(f->payload, f->len, g->bye, sizeof(g->bye));
		guest_fail(g, -ENOTCONN, g->bye);
		return 0;
	case AG_PONG:
		guest_freeze_pong(g, f);
		return 0;
	case AG_FROZEN:
		return guest_freeze_frame(g, CHANNEL_CONTROL, f);
	case AG_EXEC_STARTED:
	case AG_EXIT:
		return guest_exec_frame(g, f);
	case AG_SYNCED:
	case AG_NET_UP:
	case AG_SPARE_IS:
		return guest_call_answer(g, f);
	default:
		return -EBADMSG;
	}
}

static int on_frame(void *arg, enum channel_port port, const struct ag_frame *f)
{
	struct guest *g = arg;
	int r;

	g->busy++;
	if (g->said_frozen[port] && f->type != AG_BYE)
		r = -EBADMSG; /* it said that it is quiet */
	else if (port == CHANNEL_CONTROL)
		r = take_control(g, f);
	else if (f->type == AG_FROZEN)
		r = guest_freeze_frame(g, port, f);
	else if (f->type == AG_DATA || f->type == AG_CREDIT)
		r = guest_exec_frame(g, f);
	else
		r = f->type == AG_FS_REP ? guest_call_answer(g, f) : -EBADMSG;
	g->busy--;
	guest_release(g);
	return r;
}

static void on_room(void *arg)
{
	struct guest *g = arg;

	g->busy++;
	guest_call_pump(g);
	guest_exec_pump(g);
	g->busy--;
	guest_release(g);
}

static void on_drained(void *arg)
{
	struct guest *g = arg;

	g->busy++;
	guest_freeze_drained(g);
	g->busy--;
	guest_release(g);
}

static void on_channel_gone(void *arg, enum channel_port port, int reason)
{
	struct guest *g = arg;
	char words[96];

	if (reason == -EBADMSG)
		snprintf(words, sizeof(words), "the agent broke the protocol on its %s port", channel_port_name(port));
	else if (reason == -ECONNRESET)
		snprintf(words, sizeof(words), "its %s port was closed", channel_port_name(port));
	else
		snprintf(words, sizeof(words), "its %s port: %s", channel_port_name(port), err_name(reason));
	g->busy++;
	guest_fail(g, reason, words);
	g->busy--;
	guest_release(g);
}

/* -- the interface ----------------------------------------------------------------------------- */

int guest_new(struct loop *l, int control_fd, int bulk_fd, const struct guest_ops *ops, void *arg, struct guest **ret)
{
	static const struct channel_ops channel_ops = {
		.on_frame = on_frame, .on_room = on_room, .on_drained = on_drained, .on_gone = on_channel_gone
	};
	struct guest *g = calloc(1, sizeof(*g));
	int r;

	if (!g) {
		fd_close(&control_fd);
		fd_close(&bulk_fd);
		return -ENOMEM;
	}
	*g = (struct guest){ .loop = l, .ops = *ops, .arg = arg, .tail = &g->waiting };
	r = channel_new(l, control_fd, bulk_fd, &channel_ops, g, &g->channel);
	if (r < 0) {
		free(g);
		return r;
	}
	*ret = g;
	return 0;
}

struct guest *guest_free(struct guest *g)
{
	if (!g || g->freed)
		return NULL;
	g->channel = channel_free(g->channel);
	g->state = GUEST_GONE;
	loop_del(g->loop, &g->call_timer);
	loop_del(g->loop, &g->freeze_timer);
	g->freeze_fn = NULL;
	g->freed = true;
	guest_release(g);
	return NULL;
}

/* Higher than any that this guest has heard. One that was restored heard those of others: they began at 1, or at a
 * time that has passed. */
static uint64_t next_epoch(struct guest *g, const struct guest_identity *id)
{
	uint64_t now_ms = wall_ns() / 1000000;

	g->epoch++;
	if ((id->clone_parent || id->rehearsal) && g->epoch < now_ms)
		g->epoch = now_ms;
	return g->epoch;
}

int guest_hello(struct guest *g, const struct guest_identity *id)
{
	struct buf json;
	int r;

	if (g->state == GUEST_GONE)
		return -EPIPE;
	if (g->state == GUEST_GREETED || g->execs || g->in_flight > 0)
		return -EBUSY;
	buf_init(&json, AG_PAYLOAD_MAX);
	r = guest_hello_format(id, next_epoch(g, id), &json);
	if (r == 0)
		r = channel_hello(g->channel, (const char *)json.data, json.len);
	buf_fini(&json);
	if (r < 0)
		return r;
	guest_freeze_forget(g);
	g->state = GUEST_GREETED;
	g->cloned = id->clone_parent && !id->rehearsal;
	g->rehearsal = id->rehearsal;
	return 0;
}

bool guest_ready(const struct guest *g)
{
	return g->state == GUEST_READY;
}

uint64_t guest_heard_ns(const struct guest *g)
{
	return g->heard_ns;
}

int guest_ping(struct guest *g)
{
	return guest_ready(g) ? guest_send(g, CHANNEL_CONTROL, AG_PING, 0, 0, NULL, 0) : -ENOTCONN;
}

int guest_shutdown(struct guest *g)
{
	return guest_ready(g) ? guest_send(g, CHANNEL_CONTROL, AG_SHUTDOWN, 0, 0, NULL, 0) : -ENOTCONN;
}
