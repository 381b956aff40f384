/* SPDX-License-Identifier: Apache-2.0 */
/* File operations in the guest: each has its own deadline, which begins when the guest is ready. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "agent/proto.h"
#include "cruciblefs/domain/view_priv.h"

#define FS_DEADLINE_NS (5ull * 1000000000ull)
#define FS_CALLS_MAX   1024u /* of one sandbox, outstanding and waiting */

struct fs_call {
	struct fs_call *prev, *next; /* of the sandbox */
	struct sandbox *s;	     /* a reference */
	uint8_t op;
	uint8_t *payload; /* kept while it waits for the guest */
	size_t len;
	fs_done_fn *fn; /* NULL: the answer is not wanted (any more) */
	void *arg;
	loop_id timer;
	bool sent; /* the link will call on_reply, so the memory must stay */
};

static void take_out(struct fs_call *c)
{
	struct sandbox *s = c->s;

	*(c->prev ? &c->prev->next : &s->fs_first) = c->next;
	if (c->next)
		c->next->prev = c->prev;
	s->nfs--;
}

static void call_free(struct fs_call *c)
{
	take_out(c);
	loop_del(c->s->reg->loop, &c->timer);
	sandbox_unref(c->s);
	free(c->payload);
	free(c);
}

/* Answer once; the memory stays while the link still holds it. */
static void answer(struct fs_call *c, int code, struct wire_rd *r)
{
	fs_done_fn *fn = c->fn;
	struct wire_rd none;

	c->fn = NULL;
	loop_del(c->s->reg->loop, &c->timer);
	if (!r) {
		wire_rd_init(&none, NULL, 0);
		r = &none;
	}
	if (fn)
		fn(c->arg, code, r);
}

/* Nobody is there to use it: the guest shall not keep it open. */
static void release_late_handle(struct fs_call *c, struct wire_rd *r)
{
	struct buf b;
	uint32_t handle = wire_u32(r);

	if (r->bad || !c->s->link)
		return;
	buf_init(&b, 16);
	if (wire_put_u8(&b, AG_FS_RELEASE) == 0 && wire_put_u32(&b, handle) == 0)
		boxlink_call(c->s->link, BOX_FS, b.data, b.len, NULL, NULL);
	buf_fini(&b);
}

static void on_reply(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct fs_call *c = arg;

	(void)words, (void)m;
	c->sent = false;
	if (c->fn)
		answer(c, code, r);
	else if (code == 0 && (c->op == AG_FS_OPEN || c->op == AG_FS_CREATE))
		release_late_handle(c, r);
	call_free(c);
}

static void on_deadline(void *arg)
{
	struct fs_call *c = arg;

	answer(c, -ETIMEDOUT, NULL);
	if (!c->sent)
		call_free(c);
}

static void on_refused(void *arg)
{
	struct fs_call *c = arg;

	answer(c, -ENOTCONN, NULL);
	call_free(c);
}

static void send_call(struct fs_call *c)
{
	struct sandbox *s = c->s;
	struct buf b;
	int r;

	loop_del(s->reg->loop, &c->timer);
	buf_init(&b, MSG_MAX);
	if ((r = wire_put_u8(&b, c->op)) == 0 && (r = buf_add(&b, c->payload, c->len)) == 0) {
		c->sent = true;
		r = boxlink_call(s->link, BOX_FS, b.data, b.len, on_reply, c);
		if (r < 0)
			c->sent = false;
	}
	buf_fini(&b);
	free(c->payload);
	c->payload = NULL;
	/* Never answered inside sandbox_fs(): a link that does not take it is answered in the next round. */
	if (r < 0)
		loop_timer(s->reg->loop, 0, on_refused, c, &c->timer);
	else
		loop_timer(s->reg->loop, now_ns() + FS_DEADLINE_NS, on_deadline, c, &c->timer);
}

int sandbox_fs(struct sandbox *s, uint8_t op, const void *payload, size_t len, const struct cfs_who *who,
	       fs_done_fn *fn, void *arg, struct fs_call **ret)
{
	struct fs_call *c;
	struct err e = { 0 };
	int r;

	if (s->gone)
		return -ENOENT;
	if (op != AG_FS_RELEASE && (r = sandbox_permits(s, who, POLICY_FILES, "fs", NULL)) < 0)
		return r;
	/* A handle is given back also to a paused guest, later: else it would be open there for ever. There are not
	 * more of these than handles. */
	if (op != AG_FS_RELEASE && (s->status == SBX_PAUSED || s->nfs >= FS_CALLS_MAX))
		return -EBUSY;
	if (op == AG_FS_RELEASE && !s->link)
		return -ENOTCONN;
	if (s->status == SBX_STOPPED || s->status == SBX_FAILED || (s->down_pending && !sandbox_comes_back(s)))
		return -ENOTCONN;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->payload = malloc(len ? len : 1);
	if (!c->payload) {
		free(c);
		return -ENOMEM;
	}
	if (s->status == SBX_CONFIGURED) {
		r = sandbox_start(s, who, &e);
		if (r < 0)
			sandbox_fail(s, who, &e);
		else if (s->status != SBX_STARTING || (s->down_pending && !sandbox_comes_back(s)))
			r = -ENOTCONN; /* it has failed already, and told those who waited: we would wait for ever */
		if (r < 0) {
			free(c->payload);
			free(c);
			return r;
		}
	}
	if (len)
		memcpy(c->payload, payload, len);
	c->len = len;
	c->s = sandbox_ref(s);
	c->op = op;
	c->fn = fn;
	c->arg = arg;
	/* At the end: those that wait for the boot are sent in their order. */
	if (s->fs_first) {
		struct fs_call *last = s->fs_first;

		while (last->next)
			last = last->next;
		last->next = c;
		c->prev = last;
	} else {
		s->fs_first = c;
	}
	s->nfs++;
	if (s->status == SBX_READY && s->link)
		send_call(c);
	if (ret)
		*ret = c;
	return 0;
}

void fs_call_cancel(struct fs_call *c)
{
	if (!c)
		return;
	c->fn = NULL;
	if (!c->sent)
		call_free(c);
}

uint64_t sandbox_fs_epoch(const struct sandbox *s)
{
	return s->epoch;
}

void fs_send_waiting(struct sandbox *s)
{
	for (struct fs_call *c = s->fs_first; c; c = c->next) {
		if (!c->sent && c->payload && s->link)
			send_call(c);
	}
}

/* After the link is gone: calls that were sent have been answered by it. */
void fs_fail_all(struct sandbox *s, int code)
{
	while (s->fs_first) {
		struct fs_call *c = s->fs_first;

		if (c->sent)
			return; /* the link answers these itself when it is freed; then we are called again */
		answer(c, code, NULL);
		call_free(c);
	}
}
