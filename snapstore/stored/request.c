/* SPDX-License-Identifier: Apache-2.0 */
/* Requests but for ingest, as the worker does them; and what an ingest request looks like. */
#include <endian.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/json.h"
#include "snapstore/snap_priv.h"
#include "snapstore/stored/stored_priv.h"

#define PAGES_MAX (1ull << 36)

bool request_progress(void *arg, uint64_t done, uint64_t total)
{
	struct request *q = arg;

	atomic_store_explicit(&q->total, total, memory_order_relaxed);
	atomic_store_explicit(&q->done, done, memory_order_relaxed);
	return !atomic_load_explicit(&q->cancel, memory_order_relaxed);
}

/* -- ingest, as a message ----------------------------------------------------------------------------------- */

void ingest_init(struct ingest *in)
{
	*in = (struct ingest){ .state = -1, .memory = -1, .bits = -1 };
	for (unsigned i = 0; i < STORED_LAYERS_MAX; i++)
		in->data[i] = in->map[i] = -1;
}

void ingest_fini(struct ingest *in)
{
	json_put(&in->meta);
	fd_close(&in->state);
	fd_close(&in->memory);
	fd_close(&in->bits);
	for (unsigned i = 0; i < STORED_LAYERS_MAX; i++) {
		fd_close(&in->data[i]);
		fd_close(&in->map[i]);
	}
}

static int take_name(struct json_object *o, const char *key, char out[SNAP_UUID_LEN + 1], struct err *e)
{
	const char *text = "";
	int r = json_get_str(o, key, &text, e);

	if (r < 0)
		return r;
	if (*text && strlen(text) != SNAP_UUID_LEN)
		return err_set(e, -EINVAL, "`%s` is no uuid", key);
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int take_fields(struct json_object *o, struct ingest *in, struct err *e)
{
	static const char *const known[] = { "uuid",	     "parent",	   "base", "created_ns", "memory_whole",
					     "memory_bytes", "disk_bytes", "meta", NULL };
	uint64_t memory = 0, disk = 0;
	int r = json_known_keys(o, known, e);

	if (r < 0 || (r = take_name(o, "uuid", in->uuid, e)) < 0 || (r = take_name(o, "parent", in->parent, e)) < 0 ||
	    (r = take_name(o, "base", in->base, e)) < 0 ||
	    (r = json_get_bool(o, "memory_whole", &in->memory_whole, e)) < 0 ||
	    (r = json_get_u64(o, "created_ns", 0, UINT64_MAX, &in->created_ns, e)) < 0 ||
	    (r = json_get_u64(o, "memory_bytes", 0, PAGES_MAX * SNAP_PAGE_BYTES, &memory, e)) < 0 ||
	    (r = json_get_u64(o, "disk_bytes", 0, PAGES_MAX * SNAP_PAGE_BYTES, &disk, e)) < 0 ||
	    (r = json_get_obj(o, "meta", json_type_object, &in->meta, e)) < 0)
		return r;
	json_object_get(in->meta);
	if (!*in->uuid)
		return err_set(e, -EINVAL, "`uuid` is missing");
	if (memory % SNAP_PAGE_BYTES)
		return err_set(e, -EINVAL, "`memory_bytes` is no number of pages");
	in->memory_pages = memory / SNAP_PAGE_BYTES;
	in->disk_blocks = (disk + SNAP_PAGE_BYTES - 1) / SNAP_PAGE_BYTES;
	return 0;
}

static int take_descriptors(struct msg *m, uint32_t nlayers, struct ingest *in, struct err *e)
{
	size_t next = 0, want = 1u + (in->memory_pages ? 2 : 0) + 2ull * nlayers;

	if (nlayers > STORED_LAYERS_MAX)
		return err_set(e, -E2BIG, "%u layers of a disk; at most %u", nlayers, STORED_LAYERS_MAX);
	if (nlayers && !in->disk_blocks)
		return err_set(e, -EINVAL, "layers of a disk that has no size");
	if (m->nfds != want)
		return err_set(e, -EINVAL, "%zu descriptors came instead of %zu", m->nfds, want);
	in->state = take_fd(&m->fds[next++]);
	if (in->memory_pages) {
		in->memory = take_fd(&m->fds[next++]);
		in->bits = take_fd(&m->fds[next++]);
	}
	in->nlayers = nlayers;
	for (uint32_t i = 0; i < nlayers; i++) {
		in->data[i] = take_fd(&m->fds[next++]);
		in->map[i] = take_fd(&m->fds[next++]);
	}
	return 0;
}

int ingest_parse(struct msg *m, struct ingest *ret, struct err *e)
{
	AUTO_JSON *o = NULL;
	struct wire_rd rd;
	const char *text;
	uint32_t nlayers;
	size_t len = 0;
	int r;

	wire_rd_init(&rd, m->data, m->len);
	text = wire_bytes(&rd, MSG_MAX, &len);
	nlayers = wire_u32(&rd);
	if (wire_done(&rd) < 0)
		return err_set(e, -EBADMSG, "a message of another shape");
	r = json_parse(text ? text : "", len, &o, e);
	if (r == 0 && !json_object_is_type(o, json_type_object))
		r = err_set(e, -EINVAL, "not an object");
	if (r == 0)
		r = take_fields(o, ret, e);
	if (r == 0)
		r = take_descriptors(m, nlayers, ret, e);
	return r;
}

/* -- the others --------------------------------------------------------------------------------------------- */

static int answer(struct request *q, struct json_object *o)
{
	const char *line = o ? json_line(o) : NULL;
	int r = line ? wire_put_str(&q->out, line) : -ENOMEM;

	json_put(&o);
	return r < 0 ? err_set(&q->err, r, "answer: %s", err_name(r)) : 0;
}

static void number(struct json_object *o, const char *key, uint64_t v)
{
	if (o)
		json_object_object_add(o, key, json_object_new_uint64(v));
}

static int run_verify(struct snap *s, struct request *q)
{
	struct json_object *o;
	struct snap_report rep;
	int r = snap_verify(s, *q->uuid ? q->uuid : NULL, request_progress, q, &rep, &q->err);

	if (r < 0)
		return r;
	o = json_object_new_object();
	number(o, "pages", rep.pages);
	number(o, "nodes", rep.nodes);
	number(o, "damaged", rep.damaged);
	number(o, "bytes_read", rep.bytes_read);
	if (o)
		json_object_object_add(o, "first", json_text(rep.first, strlen(rep.first)));
	return answer(q, o);
}

static int run_gc(struct snap *s, struct request *q)
{
	struct json_object *o;
	struct snap_gc gc;
	int r = snap_gc(s, request_progress, q, &gc, &q->err);

	if (r < 0)
		return r;
	o = json_object_new_object();
	number(o, "bytes_before", gc.bytes_before);
	number(o, "bytes_after", gc.bytes_after);
	number(o, "packs_before", gc.packs_before);
	number(o, "packs_after", gc.packs_after);
	number(o, "pages_dropped", gc.pages_dropped);
	return answer(q, o);
}

static int run_stat(struct snap *s, struct request *q)
{
	struct json_object *o;
	struct snap_stat st;
	int r = snap_stat(s, &st, &q->err);

	if (r < 0)
		return r;
	o = json_object_new_object();
	number(o, "snapshots", st.snapshots);
	number(o, "packs", st.packs);
	number(o, "pages", st.pages);
	number(o, "bytes_packs", st.bytes_packs);
	number(o, "bytes_index", st.bytes_index);
	number(o, "bytes_logical", st.bytes_logical);
	return answer(q, o);
}

static int run_manifest(struct snap *s, struct request *q)
{
	AUTO_FREE char *text = NULL;
	size_t len;
	int r = manifest_slurp(s, q->uuid, &text, &len, &q->err);

	if (r == 0 && (r = wire_put_bytes(&q->out, text, len)) < 0)
		err_set(&q->err, r, "answer: %s", err_name(r));
	return r;
}

struct list {
	struct buf *out;
	uint32_t n;
	int code;
};

static bool add_one(void *arg, const char *uuid)
{
	struct list *l = arg;

	l->code = wire_put_str(l->out, uuid);
	l->n += l->code == 0;
	return l->code == 0;
}

static int run_list(struct snap *s, struct request *q)
{
	struct list l = { .out = &q->out };
	size_t at = q->out.len;
	int r = wire_put_u32(&q->out, 0);

	if (r == 0)
		r = snap_manifest_each(s, add_one, &l, &q->err);
	if (r == 0)
		r = l.code;
	if (r < 0)
		return *q->err.msg ? r : err_set(&q->err, r, "the list of snapshots: %s", err_name(r));
	/* The number goes in front, once it is known. */
	l.n = htole32(l.n);
	memcpy(q->out.data + at, &l.n, sizeof(l.n));
	return 0;
}

#define STATE_SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)

static int run_state(struct snap *s, struct request *q)
{
	struct snap_manifest m;
	struct buf data;
	int r = snap_manifest_read(s, q->uuid, &m, &q->err);

	if (r < 0)
		return r;
	buf_init(&data, SNAP_BLOB_MAX);
	if (m.state_bytes)
		r = snap_blob_read(s, &m.state, &data, &q->err);
	snap_manifest_fini(&m);
	if (r == 0) {
		/* All forks get this one: an engine must not write into it. */
		q->out_fd = memfd_create("state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		r = q->out_fd < 0 ? -errno : fd_pwrite_all(q->out_fd, data.data, data.len, 0);
		if (r == 0 && (fchmod(q->out_fd, 0444) < 0 || fcntl(q->out_fd, F_ADD_SEALS, STATE_SEALS) < 0))
			r = -errno;
		if (r < 0)
			err_set(&q->err, r, "snapshot %s: its device state: %s", q->uuid, err_name(r));
	}
	buf_fini(&data);
	return r;
}

int request_run(struct snap *s, struct request *q)
{
	if (atomic_load(&q->cancel))
		return err_set(&q->err, -ECANCELED, "canceled");
	switch ((enum stored_type)q->type) {
	case STORE_INGEST:
		return ingest_run(s, q);
	case STORE_VERIFY:
		return run_verify(s, q);
	case STORE_REMOVE:
		return snap_manifest_remove(s, q->uuid, &q->err);
	case STORE_GC:
		return run_gc(s, q);
	case STORE_STAT:
		return run_stat(s, q);
	case STORE_MANIFEST:
		return run_manifest(s, q);
	case STORE_LIST:
		return run_list(s, q);
	case STORE_STATE:
		return run_state(s, q);
	case STORE_REPLY:
	case STORE_CANCEL:
	case STORE_PROGRESS:
	case STORE_QUIT:
	case STORE_PING:
	case STORE_TYPE_COUNT:
		break;
	}
	return err_set(&q->err, -EBADMSG, "no such request: %u", q->type);
}
