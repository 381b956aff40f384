/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the store, each written here; their answers are taken apart by store_reply.c. */
#include "cruciblefs/domain/storelink.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/json.h"

struct storelink {
	struct peer *peer;
	struct storelink_ops ops;
	void *arg;
};

/* A call that waits. */
struct order {
	enum stored_type type;
	store_progress_fn *progress;
	store_fn *fn;
	void *arg;
};

/* -- calls --------------------------------------------------------------------------------------------------------- */

static void on_reply(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct order *o = arg;
	struct store_reply s = { 0 };
	int k = code < 0 ? 0 : store_reply_parse(o->type, r, m, &s);

	if (k < 0) {
		store_reply_fini(&s);
		s = (struct store_reply){ 0 };
	}
	s.code = k < 0 ? k : code;
	s.words = k == -ENOMEM ? "no memory" : k < 0 ? "the store answers nonsense" : words;
	if (o->fn)
		o->fn(o->arg, &s);
	store_reply_fini(&s);
	free(o);
}

/* Send @b, which is freed; @r: how it was filled. */
static int call(struct storelink *k, const struct order *what, int r, struct buf *b, const int *fds, size_t nfds,
		uint32_t *ret_id)
{
	struct order *o = r == 0 ? malloc(sizeof(*o)) : NULL;

	if (r == 0 && !o)
		r = -ENOMEM;
	if (r == 0) {
		*o = *what;
		r = peer_call(k->peer, (uint16_t)o->type, b->data, b->len, fds, nfds, on_reply, o, ret_id);
	}
	if (r < 0)
		free(o);
	buf_fini(b);
	return r;
}

static int call_uuid(struct storelink *k, const struct order *what, const char *uuid_or_null, uint32_t *ret_id)
{
	struct buf b;

	buf_init(&b, 256);
	return call(k, what, uuid_or_null ? peer_put(&b, "s", uuid_or_null) : 0, &b, NULL, 0, ret_id);
}

static int put_ingest(const struct store_ingest *i, struct buf *b)
{
	AUTO_JSON *o = json_object_new_object();
	const char *text;

	if (!o)
		return -ENOMEM;
	json_object_object_add(o, "uuid", json_object_new_string(i->uuid));
	json_object_object_add(o, "parent", json_object_new_string(i->parent));
	json_object_object_add(o, "base", json_object_new_string(i->base));
	json_object_object_add(o, "created_ns", json_object_new_uint64(i->created_ns));
	json_object_object_add(o, "memory_bytes", json_object_new_uint64(i->memory_bytes));
	json_object_object_add(o, "disk_bytes", json_object_new_uint64(i->disk_bytes));
	json_object_object_add(o, "meta", i->meta ? json_object_get(i->meta) : json_object_new_object());
	text = json_line(o);
	return text ? peer_put(b, "su", text, (uint32_t)i->nlayers) : -ENOMEM;
}

int store_ingest(struct storelink *k, const struct store_ingest *i, store_progress_fn *progress, store_fn *fn,
		 void *arg, uint32_t *ret_id)
{
	const struct order what = { STORE_INGEST, progress, fn, arg };
	int fds[3 + 2 * STORE_LAYERS_MAX];
	size_t n = 0;
	struct buf b;

	if (i->nlayers > STORE_LAYERS_MAX || i->state_fd < 0 || (i->memory_bytes > 0) != (i->template_fd >= 0) ||
	    (i->memory_bytes > 0) != (i->bits_fd >= 0))
		return -EINVAL;
	fds[n++] = i->state_fd;
	if (i->memory_bytes) {
		fds[n++] = i->template_fd;
		fds[n++] = i->bits_fd;
	}
	for (unsigned l = 0; l < i->nlayers; l++) {
		fds[n++] = i->data[l];
		fds[n++] = i->map[l];
	}
	buf_init(&b, MSG_MAX);
	return call(k, &what, put_ingest(i, &b), &b, fds, n, ret_id);
}

int store_verify(struct storelink *k, const char *uuid, store_progress_fn *progress, store_fn *fn, void *arg,
		 uint32_t *ret_id)
{
	return call_uuid(k, &(struct order){ STORE_VERIFY, progress, fn, arg }, uuid, ret_id);
}

int store_remove(struct storelink *k, const char *uuid, store_fn *fn, void *arg)
{
	return call_uuid(k, &(struct order){ STORE_REMOVE, NULL, fn, arg }, uuid, NULL);
}

int store_gc(struct storelink *k, store_progress_fn *progress, store_fn *fn, void *arg, uint32_t *ret_id)
{
	return call_uuid(k, &(struct order){ STORE_GC, progress, fn, arg }, NULL, ret_id);
}

int store_stat(struct storelink *k, store_fn *fn, void *arg)
{
	return call_uuid(k, &(struct order){ STORE_STAT, NULL, fn, arg }, NULL, NULL);
}

int store_manifest(struct storelink *k, const char *uuid, store_fn *fn, void *arg)
{
	return call_uuid(k, &(struct order){ STORE_MANIFEST, NULL, fn, arg }, uuid, NULL);
}

int store_list(struct storelink *k, store_fn *fn, void *arg)
{
	return call_uuid(k, &(struct order){ STORE_LIST, NULL, fn, arg }, NULL, NULL);
}

int store_state(struct storelink *k, const char *uuid, store_fn *fn, void *arg)
{
	return call_uuid(k, &(struct order){ STORE_STATE, NULL, fn, arg }, uuid, NULL);
}

int store_cancel(struct storelink *k, uint32_t id)
{
	uint8_t payload[4];

	launch_slot_encode(id, payload); /* a u32 */
	return peer_tell(k->peer, STORE_CANCEL, payload, sizeof(payload));
}

/* -- the link ------------------------------------------------------------------------------------------------------ */

static void on_up(void *arg, bool fresh)
{
	struct storelink *k = arg;

	k->ops.on_up(k->arg, fresh);
}

static void on_lost(void *arg, const char *words)
{
	struct storelink *k = arg;

	k->ops.on_lost(k->arg, words);
}

static void on_msg(void *arg, struct msg *m)
{
	struct storelink *k = arg;
	const struct order *o = m->type == STORE_PROGRESS ? peer_call_arg(k->peer, m->id) : NULL;
	uint64_t done, total;
	struct wire_rd r;

	if (!o || !o->progress)
		return;
	wire_rd_init(&r, m->data, m->len);
	done = wire_u64(&r);
	total = wire_u64(&r);
	if (wire_done(&r) == 0 && done <= total)
		o->progress(o->arg, done, total);
}

int storelink_new(const struct peer_setup *setup, const struct storelink_ops *ops, void *arg, struct storelink **ret,
		  struct err *e)
{
	static const struct peer_kind kind = {
		.name = "crucible-store",
		.kind = LAUNCH_STORE,
		.uuid = LAUNCH_UUID_STORE,
		.listen = { [STORED_FD_LISTEN - 3] = { "run", "store.sock", SOCK_SEQPACKET, 0600 } },
		.nlisten = 1,
		.reply = STORE_REPLY,
		.greeting = STORE_LIST,
		.patient = true,
	};
	static const struct peer_ops peer_ops = { on_up, on_lost, on_msg };
	struct storelink *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return err_set(e, -ENOMEM, "%s: no memory", kind.name);
	k->ops = *ops;
	k->arg = arg;
	r = peer_new(&kind, setup, &peer_ops, k, &k->peer, e);
	if (r < 0) {
		free(k);
		return r;
	}
	*ret = k;
	return 0;
}

struct storelink *storelink_free(struct storelink *k)
{
	if (!k)
		return NULL;
	peer_free(k->peer);
	free(k);
	return NULL;
}

bool storelink_is_up(const struct storelink *k)
{
	return peer_is_up(k->peer);
}

const char *storelink_degraded(const struct storelink *k)
{
	return peer_degraded(k->peer);
}

void storelink_quit(struct storelink *k)
{
	peer_quit(k->peer, STORE_QUIT);
}
