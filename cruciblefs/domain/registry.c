/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sandboxes: finding, making, renaming, ending. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/name.h"
#include "cruciblefs/domain/view_priv.h"
#include "cruciblefs/domain/worker.h"

int cfs_name_check(const char *name)
{
	_Static_assert(CFS_NAME_MAX == NAME_LEN_MAX, "one length of names");
	return name_check(name);
}

/* A random UUID (version 4). */
int registry_make_uuid(char out[LAUNCH_UUID_LEN + 1])
{
	uint8_t b[16];

	if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
		return -EIO;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	snprintf(out, LAUNCH_UUID_LEN + 1, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return 0;
}

struct sandbox *registry_find(struct registry *r, const struct view *view, const char *name)
{
	for (struct sandbox *s = r->first; s; s = s->next) {
		if (s->owner.view == view && !strcmp(s->name, name))
			return s;
	}
	return NULL;
}

struct sandbox *registry_by_uuid(struct registry *r, const char *uuid)
{
	for (struct sandbox *s = r->first; s; s = s->next) {
		if (!strcmp(s->uuid, uuid))
			return s;
	}
	return NULL;
}

struct sandbox *registry_by_machine(struct registry *r, const char *id)
{
	struct sandbox *const lists[] = { r->first, r->hidden };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		for (struct sandbox *s = lists[i]; s; s = s->next) {
			if (!strcmp(s->machine, id))
				return s;
		}
	}
	return NULL;
}

struct sandbox *registry_next(struct registry *r, const struct view *view, struct sandbox *after)
{
	struct sandbox *s = after ? after->next : r->first;

	while (s && s->owner.view != view)
		s = s->next;
	return s;
}

size_t registry_count(struct registry *r)
{
	return r->count;
}

void registry_insert(struct registry *r, struct sandbox *s)
{
	struct sandbox *at = r->last;

	/* In order of creation: loading meets them in the directory's order. */
	while (at && at->created_ns > s->created_ns)
		at = at->prev;
	s->prev = at;
	s->next = at ? at->next : r->first;
	*(s->next ? &s->next->prev : &r->last) = s;
	*(at ? &at->next : &r->first) = s;
	r->count++;
}

static void take_out(struct registry *r, struct sandbox *s)
{
	*(s->prev ? &s->prev->next : &r->first) = s->next;
	*(s->next ? &s->next->prev : &r->last) = s->prev;
	s->prev = s->next = NULL;
	r->count--;
}

/* -- one object ------------------------------------------------------------------------------------ */

struct sandbox *sandbox_new(struct registry *r)
{
	struct sandbox *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->reg = r;
	s->refs = 1;
	s->dirfd = s->boxfd = -1;
	s->created_ns = s->changed_ns = wall_ns();
	waitq_init(&s->waitq, r->loop);
	return s;
}

struct sandbox *sandbox_ref(struct sandbox *s)
{
	s->refs++;
	return s;
}

struct sandbox *sandbox_unref(struct sandbox *s)
{
	if (!s || --s->refs)
		return NULL;
	assert(!s->link && !s->start && !s->restore && !s->capture && !s->fs_first);
	loop_del(s->reg->loop, &s->life_timer);
	loop_del(s->reg->loop, &s->adopt_timer);
	loop_del(s->reg->loop, &s->stop_timer);
	exec_free_all(s);
	slot_free_all(s);
	net_fini(s);
	attrs_fini(&s->attrs);
	waitq_fini(&s->waitq);
	who_drop(&s->owner);
	free(s->stdin_path);
	free(s->guest);
	free(s->unenforced);
	fd_close(&s->boxfd);
	fd_close(&s->dirfd);
	free(s);
	return NULL;
}

static int mkdir_open(int dirfd, const char *name, mode_t mode, int *ret)
{
	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	*ret = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? -errno : 0;
}

int registry_new(struct loop *l, struct config *cfg, struct pool *p, int store_fd, const struct engine_info *engine,
		 struct registry **ret, struct err *e)
{
	struct registry *r = calloc(1, sizeof(*r));
	int k;

	if (!r)
		return err_set(e, -ENOMEM, "no memory");
	r->loop = l;
	r->cfg = cfg;
	r->pool = p;
	r->engine = *engine;
	r->store_fd = store_fd;
	r->snapshots_fd = r->views_fd = r->views_clock = -1;
	r->sandboxes_fd = r->logs_fd = r->state_fd = r->events_fd = r->listen_fd = -1;
	r->started_wall_ns = wall_ns();
	r->host_memory_mib = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
	waitq_init(&r->journal_waitq, l);
	waitq_init(&r->trial_waitq, l);
	if ((k = mkdir_open(store_fd, "sandboxes", 0700, &r->sandboxes_fd)) < 0 ||
	    (k = mkdir_open(store_fd, "snapshots", 0700, &r->snapshots_fd)) < 0 ||
	    (k = mkdir_open(store_fd, "views", 0700, &r->views_fd)) < 0 ||
	    (k = mkdir_open(store_fd, "logs", 0700, &r->logs_fd)) < 0 ||
	    (k = mkdir_open(store_fd, "state", 0755, &r->state_fd)) < 0)
		err_set(e, k, "store %s: %s", cfg->store, strerror(-k));
	if (!k)
		k = registry_load_defaults(r, e);
	if (!k)
		k = journal_open(r, e);
	if (!k)
		k = views_open_clock(r, e);
	if (!k)
		k = views_load(r, e);
	if (!k) {
		strays_load(r);
		k = registry_load(r, e);
	}
	if (!k)
		k = snapshots_load(r, e);
	if (k < 0) {
		registry_free(r);
		return k;
	}
	*ret = r;
	return 0;
}

struct registry *registry_free(struct registry *r)
{
	if (!r)
		return NULL;
	r->freed = true;
	r->launcher = NULL; /* its owner has freed it */
	trial_end(r);
	relink_end(r);
	netd_end(r);
	pool_drain(r);
	while (r->greeting)
		boxlink_free(r->greeting);
	forks_end(r);
	while (r->first) {
		struct sandbox *s = r->first;
		struct boxlink *link = s->link;

		s->link = NULL; /* whoever is told of the end must not use it */
		boxlink_free(link);
		fs_fail_all(s, -ENOTCONN);
		start_let_go(s);
		take_out(r, s);
		sandbox_unref(s);
	}
	workers_end(r);
	diffs_end(r);
	prepare_end(r);
	net_early_free(r);
	ingest_stop(r);
	snapshots_free_all(r);
	views_close_clock(r);
	views_free_all(r);
	store_end(r);
	strays_free(r);
	boxlink_unlisten(r);
	loop_del(r->loop, &r->prune_timer);
	loop_del(r->loop, &r->shutdown_timer);
	loop_del(r->loop, &r->shutdown_look);
	journal_close(r);
	attrs_fini(&r->defaults);
	waitq_fini(&r->journal_waitq);
	waitq_fini(&r->trial_waitq);
	fd_close(&r->sandboxes_fd);
	fd_close(&r->snapshots_fd);
	fd_close(&r->views_fd);
	fd_close(&r->logs_fd);
	fd_close(&r->state_fd);
	free(r);
	return NULL;
}

/* -- making and ending ------------------------------------------------------------------------------- */

/* How many of all there are is told to nobody who sees but the few of a view. */
static int host_limits(struct registry *r, const struct cfs_who *who, const char *name, struct err *e)
{
	size_t own = 0;

	for (struct sandbox *s = r->first; s; s = s->next)
		own += s->owner.uid == who->uid;
	if (who->view && r->count >= r->cfg->max_sandboxes)
		return err_set(e, -EDQUOT, "run/%s: this host can have no more sandboxes (max_sandboxes)", name);
	if (r->count >= r->cfg->max_sandboxes)
		return err_set(e, -EDQUOT, "run/%s: %zu sandboxes exist, the limit of this host (max_sandboxes)", name,
			       r->count);
	if (who->uid && own >= r->cfg->max_sandboxes_per_uid)
		return err_set(e, -EDQUOT, "run/%s: uid %u has %zu sandboxes, its limit (max_sandboxes_per_uid)", name,
			       who->uid, own);
	return 0;
}

static int may_create(struct registry *r, const struct cfs_who *who, const char *name, enum policy_op op, struct err *e)
{
	uint64_t free_mib = 0;
	int k = cfs_name_check(name);

	if (k < 0)
		return err_set(
			e, k, "run/%.64s: a name is a letter or digit, then up to 62 of letters, digits, '.', '_', '-'",
			name);
	k = registry_may(r, who, op, e);
	if (k < 0) {
		err_wrap(e, "run/%s", name);
		return k;
	}
	if (registry_find(r, who->view, name))
		return err_set(e, -EEXIST, "run/%s: exists", name);
	k = permit_one_more(r, who, POLICY_MAX_SANDBOXES, e);
	if (k < 0)
		err_wrap(e, "run/%s", name);
	else
		k = host_limits(r, who, name, e);
	if (k < 0)
		return k;
	k = host_disk_free_mib(r->store_fd, &free_mib);
	if (k < 0)
		return err_set(e, k, "run/%s: the store: %s", name, strerror(-k));
	if (free_mib < r->cfg->disk_floor_mib)
		return err_set(e, -ENOSPC,
			       "run/%s: the store's disk has %" PRIu64 " MiB left, less than disk_floor_mib (%" PRIu32
			       ")",
			       name, free_mib, r->cfg->disk_floor_mib);
	return 0;
}

static struct json_object *origin_of(const struct snapshot *p)
{
	struct json_object *o = json_object_new_object();

	if (o) {
		json_object_object_add(o, "snapshot", json_object_new_string(p->name));
		json_object_object_add(o, "snapshot_uuid", json_object_new_string(p->uuid));
	}
	return o;
}

/* A sandbox with its directory, in no table yet. */
int sandbox_make(struct registry *r, const char *name, const struct attrs *attrs, const struct cfs_who *who,
		 struct sandbox **ret, struct err *e)
{
	struct sandbox *s = sandbox_new(r);
	int k;

	if (!s || registry_make_uuid(s->uuid) < 0 || attrs_copy(&s->attrs, attrs) < 0) {
		sandbox_unref(s);
		return err_set(e, -ENOMEM, "run/%s: no memory", name);
	}
	snprintf(s->name, sizeof(s->name), "%s", name);
	who_take(&s->owner, who);
	k = machine_make_dir(r, s->uuid);
	if (!k)
		k = sandbox_open_dirs(r, s);
	if (k < 0) {
		registry_remove_dir(r, s->uuid);
		sandbox_unref(s);
		return err_set(e, k, "run/%s: the store: %s", name, strerror(-k));
	}
	*ret = s;
	return 0;
}

/* What it begins with, within what the policies of @who permit. */
static int begin_with(struct sandbox *s, struct snapshot *p, const struct cfs_who *who, struct err *e)
{
	int k = 0;

	if (!p) {
		k = attrs_choose_origin(&s->attrs, s->reg, who, e);
		if (k < 0)
			err_wrap(e, "run/%s", s->name);
		else
			k = attrs_take_origin(s, who, true, e);
	}
	if (k < 0)
		return k;
	k = attrs_lower(&s->attrs, s->reg, who, !p && !s->parent_uuid[0], e);
	if (!k && (k = net_list_check(s, e)) < 0)
		err_wrap(e, "net/allow");
	if (k < 0)
		err_wrap(e, "run/%s", s->name);
	return k;
}

int registry_create_from(struct registry *r, const char *name, struct snapshot *p, const struct cfs_who *who,
			 struct sandbox **ret, struct err *e)
{
	struct sandbox *s = NULL;
	int k = may_create(r, who, name, p ? POLICY_FORK : POLICY_CREATE, e);

	if (!k)
		k = sandbox_make(r, name, p ? &p->attrs : &r->defaults, who, &s, e);
	if (k < 0 || !s)
		return k;
	k = begin_with(s, p, who, e);
	if (p) {
		snprintf(s->attrs.from, sizeof(s->attrs.from), "snapshot:%s", p->name);
		snprintf(s->parent, sizeof(s->parent), "%s", p->name);
		snprintf(s->parent_uuid, sizeof(s->parent_uuid), "%s", p->uuid);
	}
	/* sandbox.json comes last: a directory without it never was a sandbox (persist.c). */
	if (!k)
		k = journal_log_open(s, e);
	if (!k)
		k = sandbox_save(s, e);
	if (k < 0) {
		registry_remove_dir(r, s->uuid);
		goto fail;
	}
	registry_insert(r, s);
	r->n_created++;
	journal_add(r, s, who, p ? "forked" : "created", p ? origin_of(p) : NULL);
	*ret = s;
	return 0;
fail:
	sandbox_unref(s);
	return k;
}

int registry_create(struct registry *r, const char *name, const struct cfs_who *who, struct sandbox **ret,
		    struct err *e)
{
	return registry_create_from(r, name, NULL, who, ret, e);
}

int registry_rename(struct registry *r, struct sandbox *s, const char *to, const struct cfs_who *who, struct err *e)
{
	char old[sizeof(s->name)];
	struct json_object *extra;
	int k = cfs_name_check(to);

	if (k < 0)
		return err_set(e, k, "run/%.64s: not a name", to);
	k = sandbox_permits(s, who, POLICY_CREATE, "rename", e);
	if (k < 0)
		return k;
	if (!strcmp(to, s->name))
		return 0;
	if (registry_find(r, s->owner.view, to))
		return err_set(e, -EEXIST, "run/%s: exists", to);
	snprintf(old, sizeof(old), "%s", s->name);
	snprintf(s->name, sizeof(s->name), "%s", to);
	k = sandbox_save(s, e);
	if (k < 0) {
		snprintf(s->name, sizeof(s->name), "%s", old);
		return k;
	}
	journal_log_renamed(s);
	boxlink_set(s);
	extra = json_object_new_object();
	if (extra)
		json_object_object_add(extra, "old_name", json_object_new_string(old));
	journal_add(r, s, who, "renamed", extra);
	sandbox_changed(s);
	return 0;
}

int registry_remove(struct registry *r, struct sandbox *s, const struct cfs_who *who, struct err *e)
{
	int k = sandbox_permits(s, who, POLICY_DELETE, "rmdir", e);

	if (!k)
		registry_destroy(r, s, who, "rmdir");
	return k;
}

void registry_destroy(struct registry *r, struct sandbox *s, const struct cfs_who *who, const char *why)
{
	struct json_object *extra;

	if (s->gone)
		return;
	s->gone = true;
	take_out(r, s);
	r->n_destroyed++;
	extra = json_object_new_object();
	if (extra)
		json_object_object_add(extra, "why", json_object_new_string(why));
	journal_add(r, s, who, "destroyed", extra);
	sandbox_down(s, "the sandbox was removed"); /* removes the directory behind, too */
	net_gone(s);
	sandbox_changed(s);
	sandbox_unref(s); /* the registry's */
}
