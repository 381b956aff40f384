/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots as objects: the table, who descends from whom, and when one really goes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/revive.h"
#include "cruciblefs/domain/view_priv.h"
#include "snapstore/stored/stored.h"

static const char *const status_words[] = {
	[SNAPSHOT_CAPTURING] = "capturing",
	[SNAPSHOT_STORING] = "storing",
	[SNAPSHOT_READY] = "ready",
	[SNAPSHOT_DAMAGED] = "damaged",
};
_Static_assert(ARRAY_LEN(status_words) == SNAPSHOT_STATUS_COUNT, "every status has its word");

const char *snapshot_status_name(enum snapshot_status s)
{
	return status_words[s];
}

bool snapshot_gone(const struct snapshot *p)
{
	return p->gone || !p->listed;
}

const char *snapshot_name(const struct snapshot *p)
{
	return p->name;
}

const char *snapshot_uuid(const struct snapshot *p)
{
	return p->uuid;
}

const char *snapshot_source_uuid(const struct snapshot *p)
{
	return p->source_uuid;
}

const char *snapshot_parent(const struct snapshot *p)
{
	return p->parent;
}

struct cfs_who snapshot_owner(const struct snapshot *p)
{
	return p->owner;
}

enum snapshot_status snapshot_status(const struct snapshot *p)
{
	return p->status;
}

const char *snapshot_error(const struct snapshot *p)
{
	return p->error;
}

uint64_t snapshot_created_ns(const struct snapshot *p)
{
	return p->created_ns;
}

uint64_t snapshot_changed_ns(const struct snapshot *p)
{
	return p->changed_ns;
}

struct waitq *snapshot_waitq(struct snapshot *p)
{
	return &p->waitq;
}

void snapshot_changed(struct snapshot *p)
{
	p->changed_ns = wall_ns();
	waitq_wake(&p->waitq);
}

/* -- the table -------------------------------------------------------------------------------------------------------
 */

int snapshot_usable(struct snapshot *p, struct err *e)
{
	struct engine_machine m = {
		.accel = p->reg->accel, .memory_mib = p->memory_mib, .vcpus = p->vcpus, .disk = true
	};
	char mine[128];

	if (p->status == SNAPSHOT_CAPTURING)
		return err_set(e, -EBUSY, "snapshot %s: is being taken", p->name);
	if (p->status == SNAPSHOT_DAMAGED)
		return err_set(e, -EBADMSG, "snapshot %s: damaged: %.150s", p->name, p->error);
	if (engine_fingerprint(&p->reg->engine, &m, mine, sizeof(mine)) < 0 || strcmp(mine, p->fingerprint) != 0)
		return err_set(
			e, -EPROTONOSUPPORT,
			"snapshot %s: was taken by \"%s\", here is \"%s\"; its disk can be booted: crucible fork "
			"--disk-only %s",
			p->name, p->fingerprint, mine, p->name);
	return 0;
}

struct snapshot *registry_find_snapshot(struct registry *r, const struct view *view, const char *name)
{
	for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
		if (!p->gone && !p->hidden && p->owner.view == view && !strcmp(p->name, name))
			return p;
	}
	return NULL;
}

struct snapshot *snapshot_by_uuid(struct registry *r, const char *uuid)
{
	for (struct snapshot *p = r->first_snapshot; uuid[0] && p; p = p->next) {
		if (!strcmp(p->uuid, uuid))
			return p;
	}
	return NULL;
}

struct snapshot *registry_snapshot_by_uuid(struct registry *r, const char *uuid)
{
	struct snapshot *p = snapshot_by_uuid(r, uuid);

	return p && !p->gone && !p->hidden ? p : NULL;
}

struct snapshot *snapshot_by_key(struct registry *r, const char *key)
{
	for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
		if (!p->gone && p->hidden && !strcmp(p->key, key))
			return p;
	}
	return NULL;
}

struct snapshot *registry_next_snapshot(struct registry *r, const struct view *view, struct snapshot *after)
{
	struct snapshot *p = after ? after->next : r->first_snapshot;

	while (p && (p->gone || p->hidden || p->owner.view != view))
		p = p->next;
	return p;
}

struct snapshot *snapshot_new(struct registry *r)
{
	struct snapshot *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->reg = r;
	p->refs = 1;
	p->state_fd = p->template_fd = p->bits_fd = -1;
	p->created_ns = p->changed_ns = wall_ns();
	waitq_init(&p->waitq, r->loop);
	return p;
}

struct snapshot *snapshot_ref(struct snapshot *p)
{
	p->refs++;
	return p;
}

struct snapshot *snapshot_unref(struct snapshot *p)
{
	if (!p || --p->refs)
		return NULL;
	who_drop(&p->owner);
	attrs_fini(&p->attrs);
	waitq_fini(&p->waitq);
	loop_del(p->reg->loop, &p->workset_timer);
	free(p->inherited);
	free(p->batch);
	free(p->verified);
	fd_close(&p->state_fd);
	fd_close(&p->template_fd);
	fd_close(&p->bits_fd);
	free(p);
	return NULL;
}

void snapshot_insert(struct registry *r, struct snapshot *p)
{
	struct snapshot *at = r->last_snapshot;

	while (at && at->created_ns > p->created_ns)
		at = at->prev;
	p->prev = at;
	p->next = at ? at->next : r->first_snapshot;
	*(p->next ? &p->next->prev : &r->last_snapshot) = p;
	*(at ? &at->next : &r->first_snapshot) = p;
	p->listed = true;
}

static void take_out(struct registry *r, struct snapshot *p)
{
	*(p->prev ? &p->prev->next : &r->first_snapshot) = p->next;
	*(p->next ? &p->next->prev : &r->last_snapshot) = p->prev;
	p->prev = p->next = NULL;
	p->listed = false;
	loop_del(r->loop, &p->workset_timer);
	snapshot_unref(p);
}

void snapshots_free_all(struct registry *r)
{
	loop_del(r->loop, &r->sweep_timer);
	while (r->first_snapshot)
		take_out(r, r->first_snapshot);
}

/* -- what happens to one ---------------------------------------------------------------------------------------------
 */

/* A record of the journal about a snapshot: its members instead of a sandbox's. */
static void tell(struct snapshot *p, const struct cfs_who *who, const char *event, const char *words)
{
	struct json_object *o;

	if (p->hidden)
		return;
	o = json_object_new_object();
	if (o) {
		json_object_object_add(o, "snapshot", json_object_new_string(p->name));
		json_object_object_add(o, "snapshot_uuid", json_object_new_string(p->uuid));
		json_object_object_add(o, "source", json_object_new_string(p->source));
		if (words[0])
			json_object_object_add(o, "error", json_text(words, strlen(words)));
	}
	journal_add_of(p->reg, &p->owner, who ? who : &p->owner, event, o);
}

void snapshot_set_status(struct snapshot *p, enum snapshot_status st, const char *words)
{
	static const char *const events[] = {
		[SNAPSHOT_CAPTURING] = "snapshot_capturing",
		[SNAPSHOT_STORING] = "snapshot",
		[SNAPSHOT_READY] = "snapshot_ready",
		[SNAPSHOT_DAMAGED] = "snapshot_damaged",
	};
	struct err e = { 0 };
	bool changed = p->status != st;

	p->status = st;
	snprintf(p->error, sizeof(p->error), "%s", words);
	if (snapshot_save(p, &e) < 0)
		log_warn("snapshot=%s uuid=%s event=not-saved error=\"%s\" next=continues", p->name, p->uuid, e.msg);
	if (changed)
		tell(p, NULL, events[st], words);
	if (st == SNAPSHOT_DAMAGED)
		warm_forget(p->reg, p);
	snapshot_changed(p);
}

void snapshot_fail(struct snapshot *p, const struct cfs_who *who, const struct err *e)
{
	if (!e->code)
		return;
	snprintf(p->error, sizeof(p->error), "%s", e->msg);
	tell(p, who, "error", e->msg);
	snapshot_changed(p);
}

struct sandbox *snapshot_next_fork(struct snapshot *p, struct sandbox *after)
{
	struct sandbox *s = after ? after->next : p->reg->first;

	/* One of the defaults may be the origin of sandboxes in views: what these are called is their affair. */
	while (s && (s->owner.view != p->owner.view || strcmp(s->parent_uuid, p->uuid) != 0))
		s = s->next;
	return s;
}

void snapshot_lend(struct snapshot *p, struct sandbox *s)
{
	memcpy(s->attrs.num, p->attrs.num, sizeof(s->attrs.num));
	snprintf(s->parent, sizeof(s->parent), "%s", p->name);
	snprintf(s->parent_uuid, sizeof(s->parent_uuid), "%s", p->uuid);
}

/* -- removal ---------------------------------------------------------------------------------------------------------
 */

#define SWEEP_AGAIN_NS (5ull * 1000000000ull)

/* All snapshots by uuid, for one sweep: chains of a thousand are walked for each of a thousand sandboxes. */
struct snapshot_index {
	struct snapshot **at;
	size_t n;
};

static int compare_uuids(const void *a, const void *b)
{
	return strcmp((*(struct snapshot *const *)a)->uuid, (*(struct snapshot *const *)b)->uuid);
}

static int compare_key(const void *key, const void *at)
{
	return strcmp(key, (*(struct snapshot *const *)at)->uuid);
}

static int index_snapshots(struct registry *r, struct snapshot_index *x)
{
	size_t n = 0;

	for (struct snapshot *p = r->first_snapshot; p; p = p->next)
		n++;
	x->at = malloc((n + 1) * sizeof(struct snapshot *));
	if (!x->at)
		return -ENOMEM;
	x->n = 0;
	for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
		p->needed = false;
		x->at[x->n++] = p;
	}
	qsort(x->at, x->n, sizeof(struct snapshot *), compare_uuids);
	return 0;
}

/* Somebody stands on @uuid. While that is not in the store, what it is a difference to is needed, too. One that is
 * there stands for itself, but for disks that were made before: at their bottom lies the map of the snapshot that the
 * first machine of that line was born of. */
static void mark(void *arg, const char *uuid)
{
	struct snapshot_index *x = arg;
	struct snapshot **found;

	while (uuid[0]) {
		found = bsearch(uuid, x->at, x->n, sizeof(struct snapshot *), compare_key);
		if (!found || (*found)->needed)
			return;
		(*found)->needed = true;
		if ((*found)->status != SNAPSHOT_READY) {
			mark(arg, (*found)->parent_uuid);
			mark(arg, (*found)->memory_base);
		}
		uuid = (*found)->birth;
	}
}

static void mark_all(struct registry *r, struct snapshot_index *x)
{
	const struct sandbox *const lists[] = { r->first, r->hidden };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		for (const struct sandbox *s = lists[i]; s; s = s->next) {
			mark(x, s->origin);
			mark(x, s->template);
			mark(x, s->birth);
		}
	}
	revive_each(r, mark, x);
	for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
		const struct sandbox *source = p->doubt ? registry_by_uuid(r, p->source_uuid) : NULL;

		if (source && source->machine[0])
			mark(x, p->uuid);
		if (p->status <= SNAPSHOT_STORING) {
			mark(x, p->parent_uuid);
			mark(x, p->memory_base);
		}
	}
}

static void on_sweep(void *arg)
{
	struct registry *r = arg;

	r->sweep_timer = 0;
	snapshots_sweep(r);
}

/* Many go at once: one look for all of them. */
static void sweep_in(struct registry *r, uint64_t ns)
{
	loop_del(r->loop, &r->sweep_timer);
	loop_timer(r->loop, now_ns() + ns, on_sweep, r, &r->sweep_timer);
}

/* It stays as it was; the next sweep asks anew. */
static void stays(struct snapshot *p, int code, const char *who, const char *words)
{
	struct registry *r = p->reg;
	bool listed = p->listed;

	p->removing = false;
	if (listed && code != -EPIPE) { /* else it is swept when they are back: relink.c */
		log_warn("snapshot=%s uuid=%s event=not-removed by=%s error=\"%s\" next=tried-again", p->name, p->uuid,
			 who, words);
		sweep_in(r, SWEEP_AGAIN_NS);
	}
	snapshot_unref(p);
}

static void on_removed(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct snapshot *p = arg;
	struct registry *r = p->reg;

	(void)rd;
	(void)m;
	if (code < 0 || !p->listed) {
		stays(p, code, "store", words);
		return;
	}
	snapshot_remove_dir(p);
	take_out(r, p);
	snapshot_unref(p);
	store_gc_soon(r);
	registry_shutdown_looks(r);
	sweep_in(r, 0); /* its parent may go now */
}

/* The pager uses it no more: now the store may let it go, and only then we: what is in no table is in nobody's. */
static void on_forgotten(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct snapshot *p = arg;
	struct ask a;

	(void)rd;
	(void)m;
	if (code < 0 || !p->listed) {
		stays(p, code, "pager", words);
		return;
	}
	ask_init(&a);
	ask_str(&a, p->uuid);
	code = ask_store(p->reg, STORE_REMOVE, &a, on_removed, p);
	if (code < 0)
		stays(p, code == -ENOTCONN ? -EPIPE : code, "store", strerror(-code));
}

/* Its source may stand on it, which only that one's box knows. */
static bool doubted(struct registry *r, const struct snapshot *p)
{
	const struct sandbox *source = p->doubt ? registry_by_uuid(r, p->source_uuid) : NULL;

	return source && source->machine[0];
}

void snapshots_sweep(struct registry *r)
{
	struct snapshot_index x;

	/* Both have to be told, or they would keep it for ever: when they are back (relink.c). */
	if (!registry_peers_are_up(r))
		return;
	if (index_snapshots(r, &x) < 0) {
		sweep_in(r, SWEEP_AGAIN_NS);
		return;
	}
	mark_all(r, &x);
	for (size_t i = 0; i < x.n; i++) {
		struct snapshot *p = x.at[i];
		struct ask a;

		if (!p->gone || p->removing || p->needed || doubted(r, p))
			continue;
		/* One reference is the table's, the others of whoever works on it. Is that the store alone, it need
		 * not. */
		if (p->refs == 2)
			store_work_cancel(r, &p->work);
		if (p->busy || p->refs > 1)
			continue;
		ask_init(&a);
		ask_str(&a, p->uuid);
		p->removing = true;
		if (ask_pager(r, PAGER_FORGET, &a, on_forgotten, snapshot_ref(p)) < 0) {
			snapshot_unref(p); /* the pager is away: tried again when it is back, or at the next start */
			p->removing = false;
		}
	}
	free(x.at);
}

int snapshot_permits(struct snapshot *p, const struct cfs_who *who, enum policy_op op, const char *step, struct err *e)
{
	int k = who->view && who->view != p->owner.view ? err_set(e, -ENOENT, "it is not of this view")
							: registry_may(p->reg, who, op, e);

	if (k < 0)
		err_wrap(e, "snapshot %s: %s", p->name, step);
	return k;
}

int snapshot_remove(struct snapshot *p, const struct cfs_who *who, struct err *e)
{
	int k = snapshot_permits(p, who, POLICY_DELETE, "rmdir", e);

	if (!k)
		snapshot_destroy(p, who);
	return k;
}

void snapshot_destroy(struct snapshot *p, const struct cfs_who *who)
{
	struct registry *r = p->reg;

	if (p->gone)
		return;
	p->gone = true;
	warm_forget(r, p);
	tell(p, who, "snapshot_removed", "");
	snapshot_save(p, NULL);
	snapshot_changed(p);
	snapshots_sweep(r);
}

/* -- jobs ------------------------------------------------------------------------------------------------------------
 */

struct snapshot_job *job_new(struct registry *r)
{
	struct snapshot_job *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->refs = 2;
	waitq_init(&j->waitq, r->loop);
	return j;
}

void snapshot_job_drop(struct snapshot_job *j)
{
	if (!j || --j->refs)
		return;
	waitq_fini(&j->waitq);
	free(j);
}

void job_end(struct snapshot_job *j, int code, const char *words)
{
	if (!j)
		return;
	j->done = true;
	if (code < 0)
		err_set(&j->e, code, "%s", words);
	waitq_wake(&j->waitq);
	snapshot_job_drop(j);
}

int snapshot_job_result(struct snapshot_job *j, struct err *e)
{
	if (!j->done)
		return -EAGAIN;
	if (e)
		*e = j->e;
	return j->e.code;
}

struct waitq *snapshot_job_waitq(struct snapshot_job *j)
{
	return &j->waitq;
}
