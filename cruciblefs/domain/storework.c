/* SPDX-License-Identifier: Apache-2.0 */
/* What takes long in the store: how far it is, and telling it that nobody wants it any more. */
#include "cruciblefs/domain/peer.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "snapstore/stored/stored.h"

int ask_store_work(struct registry *r, int type, struct ask *a, ask_fn *fn, void *arg, struct store_work *w)
{
	int k = a->code;

	*w = (struct store_work){ 0 };
	if (!k)
		k = r->store
			    ? peer_call(r->store, (uint16_t)type, a->b.data, a->b.len, a->fds, a->nfds, fn, arg, &w->id)
			    : -ENOTCONN;
	buf_fini(&a->b);
	return k;
}

void store_work_done(struct store_work *w)
{
	*w = (struct store_work){ 0 };
}

void store_work_cancel(struct registry *r, const struct store_work *w)
{
	struct ask a;

	if (!w->id)
		return;
	ask_init(&a);
	ask_u32(&a, w->id);
	ask_store(r, STORE_CANCEL, &a, NULL, NULL); /* a store that is away does it no more */
}

static struct store_work *find(struct registry *r, uint32_t id)
{
	if (r->verify_work.id == id)
		return &r->verify_work;
	if (r->gc_work.id == id)
		return &r->gc_work;
	for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
		if (p->work.id == id)
			return &p->work;
	}
	return NULL;
}

void store_work_heard(struct registry *r, struct msg *m)
{
	struct store_work *w = m->id ? find(r, m->id) : NULL;
	uint64_t done, total;
	struct wire_rd rd;

	wire_rd_init(&rd, m->data, m->len);
	done = wire_u64(&rd);
	total = wire_u64(&rd);
	if (!w || wire_done(&rd) < 0)
		return;
	w->done = done < total ? done : total;
	w->total = total;
}

int store_work_add(const struct store_work *w, struct json_object *o)
{
	if (!w->id || !w->total)
		return 0;
	json_object_object_add(o, "done", json_object_new_uint64(w->done));
	return json_object_object_add(o, "total", json_object_new_uint64(w->total)) < 0 ? -ENOMEM : 0;
}
