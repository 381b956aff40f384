/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sandboxes and what of it lies in the store: sandbox.json of each, read at the start, replaced at changes. */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/priv.h"

#define TRASH ".gone-" /* a sandbox directory on its way out: "<TRASH><uuid>" */

int cfs_name_check(const char *name)
{
	size_t n = 0;

	for (; name[n]; n++) {
		char c = name[n];
		bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

		if (!alnum && (n == 0 || (c != '.' && c != '_' && c != '-')))
			return -EINVAL;
	}
	return n == 0 ? -EINVAL : n > CFS_NAME_MAX ? -ENAMETOOLONG : 0;
}

/* A random UUID (version 4). */
int registry_make_uuid(char out[LAUNCH_UUID_LEN + 1])
{
	uint8_t b[16];

	if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
		return -EIO;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	snprintf(out, LAUNCH_UUID_LEN + 1, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2],
		 b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return 0;
}

struct sandbox *registry_find(struct registry *r, const char *name)
{
	for (struct sandbox *s = r->first; s; s = s->next) {
		if (!strcmp(s->name, name))
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

struct sandbox *registry_next(struct registry *r, struct sandbox *after)
{
	return after ? after->next : r->first;
}

size_t registry_count(struct registry *r)
{
	return r->count;
}

static void insert(struct registry *r, struct sandbox *s)
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

static struct sandbox *sandbox_alloc(struct registry *r)
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
	assert(!s->link && !s->start && !s->fs_first);
	loop_del(s->reg->loop, &s->life_timer);
	loop_del(s->reg->loop, &s->adopt_timer);
	loop_del(s->reg->loop, &s->stop_timer);
	exec_free_all(s);
	slot_free_all(s);
	attrs_fini(&s->attrs);
	waitq_fini(&s->waitq);
	free(s->stdin_path);
	free(s->guest);
	free(s->unenforced);
	fd_close(&s->boxfd);
	fd_close(&s->dirfd);
	free(s);
	return NULL;
}

/* Machines that ran when this was written are looked for after a restart: what status says is what was so then. */
static struct json_object *to_json(struct sandbox *s)
{
	struct json_object *o = json_object_new_object(), *slots = json_object_new_object();

	if (!o || !slots)
		goto fail;
	json_object_object_add(o, "version", json_object_new_int(1));
	json_object_object_add(o, "uuid", json_object_new_string(s->uuid));
	json_object_object_add(o, "name", json_object_new_string(s->name));
	json_object_object_add(o, "uid", json_object_new_int64(s->owner.uid));
	json_object_object_add(o, "gid", json_object_new_int64(s->owner.gid));
	json_object_object_add(o, "created_ns", json_object_new_uint64(s->created_ns));
	json_object_object_add(o, "started_ns", json_object_new_uint64(s->started_ns));
	json_object_object_add(o, "status", json_object_new_string(sandbox_status_name(s->status)));
	json_object_object_add(o, "error", json_object_new_string(s->error));
	json_object_object_add(o, "slot", json_object_new_int64(s->slot));
	json_object_object_add(o, "box_uid", json_object_new_int64(s->box_uid));
	json_object_object_add(o, "accel", json_object_new_string(engine_accel_name(s->accel)));
	if (s->unenforced)
		json_object_object_add(o, "unenforced", json_object_new_string(s->unenforced));
	if (s->guest)
		json_object_object_add(o, "guest", json_object_new_string(s->guest));
	for (struct slot *t = s->slots; t; t = t->next)
		json_object_object_add(slots, t->name, json_object_new_uint64(t->latest));
	json_object_object_add(o, "slots", slots);
	slots = NULL;
	if (attrs_to_json(&s->attrs, o) < 0)
		goto fail;
	return o;
fail:
	json_object_put(slots);
	json_object_put(o);
	return NULL;
}

int sandbox_save(struct sandbox *s, struct err *e)
{
	AUTO_JSON *o = to_json(s);
	const char *line;
	int r;

	if (!o)
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	line = json_line(o);
	r = fd_replace(s->dirfd, "sandbox.json", line, strlen(line), 0640, false);
	return r < 0 ? err_set(e, r, "sandbox %s: writing sandbox.json: %s", s->name, strerror(-r)) : 0;
}

static int load_slots(struct sandbox *s, struct json_object *o, struct err *e)
{
	struct json_object *slots = NULL;
	int r = json_get_obj(o, "slots", json_type_object, &slots, e);

	if (r < 0 || !slots)
		return r;
	json_object_object_foreach(slots, name, value)
	{
		struct slot *t;

		if (cfs_name_check(name) < 0)
			continue;
		t = calloc(1, sizeof(*t));
		if (!t)
			return err_set(e, -ENOMEM, "no memory");
		snprintf(t->name, sizeof(t->name), "%s", name);
		t->latest = json_object_get_uint64(value);
		buf_init(&t->early, BOX_STDIN_WINDOW);
		t->next = s->slots;
		s->slots = t;
		s->nslots++;
	}
	return 0;
}

static int from_json(struct sandbox *s, struct json_object *o, struct err *e)
{
	const char *uuid = NULL, *name = NULL, *status = NULL, *error = "", *accel = "tcg", *unenforced = NULL, *guest = NULL;
	uint64_t uid = 0, gid = 0, slot = 0, box_uid = 0;
	int r;

	if ((r = json_get_str(o, "uuid", &uuid, e)) < 0 || (r = json_get_str(o, "name", &name, e)) < 0 ||
	    (r = json_get_str(o, "status", &status, e)) < 0 || (r = json_get_str(o, "error", &error, e)) < 0 ||
	    (r = json_get_str(o, "accel", &accel, e)) < 0 || (r = json_get_str(o, "unenforced", &unenforced, e)) < 0 ||
	    (r = json_get_str(o, "guest", &guest, e)) < 0 || (r = json_get_u64(o, "uid", 0, UINT32_MAX, &uid, e)) < 0 ||
	    (r = json_get_u64(o, "gid", 0, UINT32_MAX, &gid, e)) < 0 ||
	    (r = json_get_u64(o, "slot", 0, LAUNCH_SLOTS_MAX, &slot, e)) < 0 ||
	    (r = json_get_u64(o, "box_uid", 0, UINT32_MAX, &box_uid, e)) < 0 ||
	    (r = json_get_u64(o, "created_ns", 0, UINT64_MAX, &s->created_ns, e)) < 0 ||
	    (r = json_get_u64(o, "started_ns", 0, UINT64_MAX, &s->started_ns, e)) < 0)
		return r;
	if (!uuid || strlen(uuid) != LAUNCH_UUID_LEN || !name || cfs_name_check(name) < 0 || !status)
		return err_set(e, -EINVAL, "uuid, name or status missing or malformed");
	snprintf(s->uuid, sizeof(s->uuid), "%s", uuid);
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->error, sizeof(s->error), "%s", error);
	s->owner = (struct cfs_who){ (uid_t)uid, (gid_t)gid };
	s->slot = (uint32_t)slot;
	s->box_uid = (uint32_t)box_uid;
	s->accel = !strcmp(accel, "kvm") ? ACCEL_KVM : ACCEL_TCG;
	s->unenforced = unenforced ? strdup(unenforced) : NULL;
	s->guest = guest ? strdup(guest) : NULL;
	s->status = SBX_FAILED;
	for (unsigned i = 0; i < SBX_STATUS_COUNT; i++) {
		if (!strcmp(status, sandbox_status_name(i)))
			s->status = i;
	}
	r = attrs_from_json(&s->attrs, o, e);
	return r < 0 ? r : load_slots(s, o, e);
}

static int open_dir(struct registry *r, struct sandbox *s)
{
	s->dirfd = openat(r->sandboxes_fd, s->uuid, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->dirfd < 0)
		return -errno;
	s->boxfd = openat(s->dirfd, "box", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return s->boxfd < 0 ? -errno : 0;
}

static int load_one(struct registry *r, const char *uuid, struct err *e)
{
	struct sandbox *s = sandbox_alloc(r);
	AUTO_FREE char *text = NULL;
	AUTO_JSON *o = NULL;
	size_t len;
	int k;

	if (!s)
		return err_set(e, -ENOMEM, "no memory");
	snprintf(s->uuid, sizeof(s->uuid), "%.36s", uuid);
	k = attrs_copy(&s->attrs, &r->defaults);
	if (!k)
		k = open_dir(r, s);
	if (!k)
		k = fd_slurp(s->dirfd, "sandbox.json", 1 << 20, &text, &len);
	if (!k)
		k = json_parse(text, len, &o, e);
	if (!k)
		k = from_json(s, o, e);
	if (!k && strcmp(s->uuid, uuid))
		k = err_set(e, -EINVAL, "its uuid is %s", s->uuid);
	if (!k && registry_find(r, s->name))
		k = err_set(e, -EEXIST, "its name \"%s\" is taken", s->name);
	if (!k)
		k = exec_load(s, e);
	if (k < 0) {
		if (!e->code)
			err_set(e, k, "%s", strerror(-k));
		sandbox_unref(s);
		return k;
	}
	insert(r, s);
	return 0;
}

static int mkdir_open(int dirfd, const char *name, mode_t mode, int *ret)
{
	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	*ret = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *ret < 0 ? -errno : 0;
}

static void remove_dir(struct registry *r, const char *uuid);

/* What a killed daemon was about to remove, and directories without a sandbox.json: a creation that was never seen. */
static int load_all(struct registry *r, struct err *e)
{
	int fd = openat(r->sandboxes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		int k = -errno;

		fd_close(&fd);
		return err_set(e, k, "store: sandboxes/: %s", strerror(-k));
	}
	while ((ent = readdir(d))) {
		struct err why = { 0 };
		struct stat st;
		char path[300];

		if (!strncmp(ent->d_name, TRASH, sizeof(TRASH) - 1)) {
			remove_dir(r, ent->d_name + sizeof(TRASH) - 1);
			continue;
		}
		if (strlen(ent->d_name) != LAUNCH_UUID_LEN)
			continue; /* "." and "..", and what is not ours */
		snprintf(path, sizeof(path), "%s/sandbox.json", ent->d_name);
		if (fstatat(r->sandboxes_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
			remove_dir(r, ent->d_name);
			continue;
		}
		if (load_one(r, ent->d_name, &why) < 0)
			log_warn("sandbox=%s event=not-loaded error=\"%s\" next=left-alone", ent->d_name, why.msg);
	}
	closedir(d);
	return 0;
}

static int load_defaults(struct registry *r, struct err *e)
{
	AUTO_FREE char *text = NULL;
	AUTO_JSON *o = NULL;
	size_t len;
	int k = fd_slurp(r->state_fd, "defaults.json", 1 << 20, &text, &len);

	attrs_builtin(&r->defaults);
	if (k == -ENOENT)
		return 0;
	if (k < 0)
		return err_set(e, k, "store: state/defaults.json: %s", strerror(-k));
	k = json_parse(text, len, &o, e);
	if (!k)
		k = attrs_from_json(&r->defaults, o, e);
	if (k < 0)
		err_wrap(e, "store: state/defaults.json");
	return k;
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
	r->sandboxes_fd = r->logs_fd = r->state_fd = r->events_fd = r->listen_fd = -1;
	r->started_wall_ns = wall_ns();
	r->host_memory_mib = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
	waitq_init(&r->journal_waitq, l);
	waitq_init(&r->trial_waitq, l);
	if ((k = mkdir_open(store_fd, "sandboxes", 0700, &r->sandboxes_fd)) < 0 ||
	    (k = mkdir_open(store_fd, "logs", 0700, &r->logs_fd)) < 0 || (k = mkdir_open(store_fd, "state", 0755, &r->state_fd)) < 0)
		err_set(e, k, "store %s: %s", cfg->store, strerror(-k));
	if (!k)
		k = load_defaults(r, e);
	if (!k)
		k = journal_open(r, e);
	if (!k)
		k = load_all(r, e);
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
	trial_end(r);
	while (r->greeting)
		boxlink_free(r->greeting);
	while (r->first) {
		struct sandbox *s = r->first;

		s->link = boxlink_free(s->link);
		fs_fail_all(s, -ENOTCONN);
		take_out(r, s);
		sandbox_unref(s);
	}
	loop_del(r->loop, &r->listen_id);
	loop_del(r->loop, &r->prune_timer);
	fd_close(&r->listen_fd);
	journal_close(r);
	attrs_fini(&r->defaults);
	waitq_fini(&r->journal_waitq);
	waitq_fini(&r->trial_waitq);
	fd_close(&r->sandboxes_fd);
	fd_close(&r->logs_fd);
	fd_close(&r->state_fd);
	free(r);
	return NULL;
}

/* -- making and ending ------------------------------------------------------------------------------- */

static int may_create(struct registry *r, const struct cfs_who *who, const char *name, struct err *e)
{
	size_t own = 0;
	uint64_t free_mib = 0;
	int k = cfs_name_check(name);

	if (k < 0)
		return err_set(e, k, "run/%.64s: a name is a letter or digit, then up to 62 of letters, digits, '.', '_', '-'", name);
	if (registry_find(r, name))
		return err_set(e, -EEXIST, "run/%s: exists", name);
	for (struct sandbox *s = r->first; s; s = s->next)
		own += s->owner.uid == who->uid;
	if (r->count >= r->cfg->max_sandboxes)
		return err_set(e, -EDQUOT, "run/%s: %zu sandboxes exist, the limit of this host (max_sandboxes)", name, r->count);
	if (who->uid && own >= r->cfg->max_sandboxes_per_uid)
		return err_set(e, -EDQUOT, "run/%s: uid %u has %zu sandboxes, its limit (max_sandboxes_per_uid)", name, who->uid, own);
	k = host_disk_free_mib(r->store_fd, &free_mib);
	if (k < 0)
		return err_set(e, k, "run/%s: the store: %s", name, strerror(-k));
	if (free_mib < r->cfg->disk_floor_mib)
		return err_set(e, -ENOSPC, "run/%s: the store's disk has %" PRIu64 " MiB left, less than disk_floor_mib (%" PRIu32 ")",
			       name, free_mib, r->cfg->disk_floor_mib);
	return 0;
}

/* The box sees only box/ and may write there (group: the service gid; setgid hands it on to what it makes): a box that was taken over must
 * not be able to say whose sandbox this is. */
static int make_dirs(struct registry *r, struct sandbox *s)
{
	if (mkdirat(r->sandboxes_fd, s->uuid, 0700) < 0)
		return -errno;
	s->dirfd = openat(r->sandboxes_fd, s->uuid, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->dirfd < 0 || mkdirat(s->dirfd, "tmp", 0700) < 0 || mkdirat(s->dirfd, "box", 0770) < 0 ||
	    fchmodat(s->dirfd, "box", 02770, 0) < 0 || mkdirat(s->dirfd, "box/exec", 0770) < 0)
		return -errno;
	fd_close(&s->dirfd);
	return open_dir(r, s);
}

int registry_create(struct registry *r, const char *name, const struct cfs_who *who, struct sandbox **ret, struct err *e)
{
	struct sandbox *s = NULL;
	int k = may_create(r, who, name, e);

	if (k < 0)
		return k;
	s = sandbox_alloc(r);
	if (!s || registry_make_uuid(s->uuid) < 0 || attrs_copy(&s->attrs, &r->defaults) < 0) {
		k = err_set(e, -ENOMEM, "run/%s: no memory", name);
		goto fail;
	}
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->owner = *who;
	k = make_dirs(r, s);
	if (k < 0)
		err_set(e, k, "run/%s: the store: %s", name, strerror(-k));
	/* sandbox.json comes last: a directory without it never was a sandbox (load_all). */
	if (!k)
		k = journal_log_open(s, e);
	if (!k)
		k = sandbox_save(s, e);
	if (k < 0) {
		sandbox_remove_dir(s);
		goto fail;
	}
	insert(r, s);
	r->n_created++;
	journal_add(r, s, who, "created", NULL);
	*ret = s;
	return 0;
fail:
	sandbox_unref(s);
	return k;
}

int registry_rename(struct registry *r, struct sandbox *s, const char *to, const struct cfs_who *who, struct err *e)
{
	char old[sizeof(s->name)];
	struct json_object *extra;
	int k = cfs_name_check(to);

	if (k < 0)
		return err_set(e, k, "run/%.64s: not a name", to);
	if (!strcmp(to, s->name))
		return 0;
	if (registry_find(r, to))
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
	sandbox_changed(s);
	sandbox_unref(s); /* the registry's */
}

/* -- removing a directory, in the pool ------------------------------------------------------------------ */

struct removal {
	struct pool_job job;
	int dirfd; /* of sandboxes/, own copy */
	char name[sizeof(TRASH) + LAUNCH_UUID_LEN];
	int result;
};

/* Boxes own files in there and may have been taken over: never follow a link, never leave the directory's own tree. */
static int remove_tree(int dirfd, const char *name, unsigned depth)
{
	int fd, r = 0;
	DIR *d;
	struct dirent *ent;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (depth > 64)
		return -ELOOP;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	d = fdopendir(fd);
	if (!d) {
		r = -errno;
		fd_close(&fd);
		return r;
	}
	while ((ent = readdir(d))) {
		int k;

		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		k = remove_tree(fd, ent->d_name, depth + 1);
		r = r ? r : k;
	}
	closedir(d);
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT && !r)
		r = -errno;
	return r;
}

static void removal_run(struct pool_job *job)
{
	struct removal *m = (struct removal *)job;

	m->result = remove_tree(m->dirfd, m->name, 0);
}

static void removal_done(struct pool_job *job)
{
	struct removal *m = (struct removal *)job;

	if (m->result < 0)
		log_warn("sandbox=%s event=not-removed error=\"%s\" next=tried-at-the-next-start", m->name, strerror(-m->result));
	fd_close(&m->dirfd);
	free(m);
}

static void remove_dir(struct registry *r, const char *uuid)
{
	struct removal *m = calloc(1, sizeof(*m));

	if (!m)
		return; /* the next start finds it */
	m->job = (struct pool_job){ .run = removal_run, .done = removal_done };
	snprintf(m->name, sizeof(m->name), "%s%.36s", TRASH, uuid);
	m->dirfd = openat(r->sandboxes_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (m->dirfd < 0 || (renameat(m->dirfd, uuid, m->dirfd, m->name) < 0 && errno != ENOENT)) {
		m->result = -errno;
		removal_done(&m->job);
		return;
	}
	if (pool_submit(r->pool, &m->job) < 0) {
		/* The queue is full: better slow than a directory that nobody removes. */
		removal_run(&m->job);
		removal_done(&m->job);
	}
}

void sandbox_remove_dir(struct sandbox *s)
{
	remove_dir(s->reg, s->uuid);
}
