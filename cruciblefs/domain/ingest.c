/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots on their way into the snapstore, one after another, parents first: what a snapshot is a difference to must
 * be there before it. Its pages are in the template, its blocks in frozen layers; both stay until the store has said
 * that all is durable. A full disk loses nothing: it is tried again, and `error` says so. One that fails lets the
 * others go first; one that can never be stored, or whose parent could not be, is damaged, and says why. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "snapstore/stored/stored.h"

#define AGAIN_NS      (5ull * 1000000000ull)
#define DOUBLINGS_MAX 4u

struct storing {
	struct registry *reg; /* NULL: the daemon ends, only clean up */
	struct snapshot *p;   /* a reference */
};

static void end(struct storing *g)
{
	if (g->reg) {
		g->reg->ingest = NULL;
		registry_shutdown_looks(g->reg); /* it waits for this */
	}
	snapshot_unref(g->p);
	free(g);
}

/* What will be so at the next try as well. -ENOENT: what it is a difference to, or its disk, is not there. */
static bool for_good(int code)
{
	return code == -EBADMSG || code == -EFBIG || code == -E2BIG || code == -EINVAL || code == -ENOENT;
}

static void again(void *arg)
{
	struct registry *r = arg;

	r->ingest_timer = 0;
	ingest_kick(r);
}

/* Is @uuid itself still to be stored? What is a difference to it waits. */
static bool waits_for(struct registry *r, const char *uuid)
{
	struct snapshot *p = snapshot_by_uuid(r, uuid);

	return p && p->status <= SNAPSHOT_STORING;
}

/* The one that failed least, of those the oldest: none keeps the others out. NULL: none waits. */
static struct snapshot *next(struct registry *r)
{
	struct snapshot *best = NULL;

	for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
		if (p->status == SNAPSHOT_STORING && !p->removing && p->template_fd >= 0 && p->bits_fd >= 0 &&
		    p->state_fd >= 0 && (!best || p->ingest_tries < best->ingest_tries) &&
		    !waits_for(r, p->parent_uuid) && !waits_for(r, p->memory_base))
			best = p;
	}
	return best;
}

/* At once for one that was not tried as often as @tries; for the rest the longer the more often they failed. */
static void later(struct registry *r, unsigned tries)
{
	struct snapshot *p = next(r);
	unsigned n = p && p->ingest_tries > 1 ? p->ingest_tries - 1 : 0;
	uint64_t wait_ns = p && p->ingest_tries < tries ? 0 : AGAIN_NS << (n < DOUBLINGS_MAX ? n : DOUBLINGS_MAX);

	loop_del(r->loop, &r->ingest_timer);
	if (p)
		loop_timer(r->loop, now_ns() + wait_ns, again, r, &r->ingest_timer);
}

/* It was removed meanwhile, and nothing needs it. */
static void canceled(struct storing *g)
{
	struct registry *r = g->reg;

	end(g);
	snapshots_sweep(r);
	ingest_kick(r);
}

static void failed(struct storing *g, int code, const char *step, const char *words)
{
	struct registry *r = g->reg;
	struct snapshot *p = g->p;
	struct err e = { 0 };
	unsigned tries = 0;

	if (r) {
		err_set(&e, code, "snapshot %s: %s: %s", p->name, step, words);
		log_warn("snapshot=%s uuid=%s event=not-stored error=\"%s\" next=%s", p->name, p->uuid, e.msg,
			 for_good(code) ? "it-is-damaged" : "tried-again");
		if (for_good(code)) {
			snapshot_set_status(p, SNAPSHOT_DAMAGED, e.msg);
			fd_close(&p->template_fd);
			fd_close(&p->bits_fd);
			snapshot_drop_state(p);
			tries = 1;
		} else {
			/* Of a peer that is away it says nothing. */
			if (code != -EPIPE && code != -ENOTCONN)
				tries = ++p->ingest_tries;
			if (strcmp(p->error, e.msg))
				snapshot_fail(p, &p->owner, &e);
		}
	}
	end(g);
	if (r)
		later(r, tries);
}

/* The pager knows that the store has all: the template may be given back from now on. */
static void on_pager_told(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct storing *g = arg;
	struct registry *r = g->reg;

	(void)rd;
	(void)m;
	if (code < 0 && code != -EPIPE && r)
		log_warn("snapshot=%s uuid=%s event=pager-not-told error=\"%s\" next=continues", g->p->name, g->p->uuid,
			 words);
	if (r) {
		fd_close(&g->p->template_fd);
		fd_close(&g->p->bits_fd);
		snapshot_set_status(g->p, SNAPSHOT_READY, "");
		snapshot_drop_state(g->p);
		if (g->p->hidden)
			pool_fill(r);
	}
	end(g);
	if (r) {
		snapshots_sweep(r);
		ingest_kick(r);
	}
}

static void keep_counts(struct snapshot *p, const char *json)
{
	AUTO_JSON *o = NULL;
	struct err e;

	if (json_parse(json, strlen(json), &o, &e) < 0)
		return;
	json_get_u64(o, "bytes_stored", 0, UINT64_MAX, &p->stored_bytes, NULL);
	json_get_u64(o, "pages_new", 0, UINT64_MAX, &p->new_pages, NULL);
	json_get_u64(o, "shared_with_parent", 0, UINT64_MAX, &p->shared_pages, NULL);
}

static void on_stored(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct storing *g = arg;
	char json[2048];
	struct ask a;

	(void)m;
	store_work_done(&g->p->work);
	if (code == -ECANCELED && g->reg && g->p->gone) {
		canceled(g);
		return;
	}
	/* -EEXIST: a daemon before us had it stored, and did not live to hear it. */
	if ((code < 0 && code != -EEXIST) || !g->reg) {
		failed(g, code, "storing it", words);
		return;
	}
	if (code == 0) {
		wire_str(rd, json, sizeof(json));
		if (!rd->bad)
			keep_counts(g->p, json);
	}
	ask_init(&a);
	ask_str(&a, g->p->uuid);
	code = ask_pager(g->reg, PAGER_STORED, &a, on_pager_told, g);
	if (code < 0)
		failed(g, code, "telling the pager", strerror(-code));
}

static char *describe(struct snapshot *p)
{
	AUTO_JSON *o = json_object_new_object();
	struct json_object *meta = json_object_new_object();

	if (!o || !meta) {
		json_object_put(meta);
		return NULL;
	}
	json_object_object_add(meta, "fingerprint", json_object_new_string(p->fingerprint));
	json_object_object_add(meta, "memory_mib", json_object_new_int64(p->memory_mib));
	json_object_object_add(meta, "vcpus", json_object_new_int64(p->vcpus));
	json_object_object_add(meta, "name", json_object_new_string(p->name));
	json_object_object_add(meta, "bootid", json_object_new_string(p->bootid));
	json_object_object_add(o, "uuid", json_object_new_string(p->uuid));
	json_object_object_add(o, "parent", json_object_new_string(p->parent_uuid));
	json_object_object_add(o, "base", json_object_new_string(p->parent_uuid));
	json_object_object_add(o, "memory_whole", json_object_new_boolean(!p->memory_base[0]));
	json_object_object_add(o, "created_ns", json_object_new_uint64(p->created_ns));
	json_object_object_add(o, "memory_bytes", json_object_new_uint64((uint64_t)p->memory_mib << 20));
	json_object_object_add(o, "disk_bytes", json_object_new_uint64(ENGINE_DISK_BYTES));
	json_object_object_add(o, "meta", meta);
	return strdup(json_line(o));
}

static void on_layers(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct storing *g = arg;
	AUTO_FREE char *json = NULL;
	uint32_t n = code == 0 ? wire_u32(rd) : 0;
	struct ask a;

	if (code == 0 && (wire_done(rd) < 0 || m->nfds != 2 * (size_t)n))
		code = -EBADMSG;
	if (code < 0 || !g->reg) {
		failed(g, code == -EBADMSG ? -EIO : code, "its disk", words);
		return;
	}
	json = describe(g->p);
	if (!json) {
		failed(g, -ENOMEM, "describing it", "no memory");
		return;
	}
	ask_init(&a);
	ask_str(&a, json);
	ask_u32(&a, n);
	ask_fd(&a, g->p->state_fd);
	ask_fd(&a, g->p->template_fd);
	ask_fd(&a, g->p->bits_fd);
	for (size_t i = 0; i < m->nfds; i++)
		ask_fd(&a, m->fds[i]);
	code = ask_store_work(g->reg, STORE_INGEST, &a, on_stored, g, &g->p->work);
	if (code < 0)
		failed(g, code, "asking the store", strerror(-code));
}

void ingest_kick(struct registry *r)
{
	struct snapshot *p = r->ingest ? NULL : next(r);
	struct storing *g = p ? calloc(1, sizeof(*g)) : NULL;
	struct ask a;
	int code;

	loop_del(r->loop, &r->ingest_timer);
	if (p && !g)
		later(r, 0);
	if (!g)
		return;
	g->reg = r;
	g->p = snapshot_ref(p);
	r->ingest = g;
	ask_init(&a);
	ask_str(&a, p->uuid);
	ask_str(&a, p->parent_uuid);
	code = ask_pager(r, PAGER_DISK_FILES, &a, on_layers, g);
	if (code < 0)
		failed(g, code, "asking the pager", strerror(-code));
}

void ingest_stop(struct registry *r)
{
	loop_del(r->loop, &r->ingest_timer);
	if (r->ingest) {
		r->ingest->reg = NULL;
		end(r->ingest);
		r->ingest = NULL;
	}
}
