/* SPDX-License-Identifier: Apache-2.0 */
/* What of a sandbox lies in the store: sandbox.json, read at the start, replaced at changes. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/members.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

#define OF(name) MEMBER(struct sandbox, name)
static const struct member words[] = {
	OF(machine), OF(disk),	 OF(origin), OF(birth),	      OF(template),
	OF(base),    OF(bootid), OF(parent), OF(parent_uuid), OF(latest_snapshot),
};
#undef OF

static int put_ports(struct sandbox *s, struct json_object *o)
{
	struct buf b;
	int r;

	if (!s->net.nports)
		return 0;
	buf_init(&b, NET_LIST_MAX);
	r = net_ports_text(s, &b);
	if (!r)
		r = buf_str(&b) ? json_object_object_add(o, "net_ports", json_object_new_string(buf_str(&b))) : -ENOMEM;
	buf_fini(&b);
	return r;
}

/* Machines that ran when this was written are looked for after a restart: what status says is what was so then. Words
 * of users and boxes may hold any bytes, or end in half a character: a file with those could not be read again. */
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
	view_put(&s->owner, o);
	json_object_object_add(o, "created_ns", json_object_new_uint64(s->created_ns));
	json_object_object_add(o, "started_ns", json_object_new_uint64(s->started_ns));
	json_object_object_add(o, "leased", json_object_new_boolean(s->leases > 0));
	json_object_object_add(o, "status", json_object_new_string(sandbox_status_name(s->status)));
	json_object_object_add(o, "error", json_text(s->error, strlen(s->error)));
	json_object_object_add(o, "slot", json_object_new_int64(s->slot));
	json_object_object_add(o, "box_uid", json_object_new_int64(s->box_uid));
	members_put(o, s, words, ARRAY_LEN(words));
	json_object_object_add(o, "hidden", json_object_new_boolean(s->hidden));
	json_object_object_add(o, "accel", json_object_new_string(engine_accel_name(s->accel)));
	json_object_object_add(o, "net_on", json_object_new_boolean(s->net.guest_on));
	if (put_ports(s, o) < 0)
		goto fail;
	if (s->unenforced)
		json_object_object_add(o, "unenforced", json_text(s->unenforced, strlen(s->unenforced)));
	if (s->guest)
		json_object_object_add(o, "guest", json_text(s->guest, strlen(s->guest)));
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
	json_object_object_foreach(slots, name, value) {
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
	const char *uuid = NULL, *name = NULL, *status = NULL, *error = "", *accel = "tcg", *unenforced = NULL,
		   *guest = NULL, *ports = NULL;
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
	r = members_get(o, s, words, ARRAY_LEN(words), e);
	if (!r)
		r = json_get_bool(o, "hidden", &s->hidden, e);
	if (!r)
		r = json_get_bool(o, "leased", &s->was_leased, e);
	if (!r)
		r = json_get_bool(o, "net_on", &s->net.guest_on, e);
	if (!r)
		r = json_get_str(o, "net_ports", &ports, e);
	if (!r && ports)
		r = net_ports_from_text(s, ports, e);
	if (r < 0)
		return r;
	if (!uuid || strlen(uuid) != LAUNCH_UUID_LEN || !name || cfs_name_check(name) < 0 || !status)
		return err_set(e, -EINVAL, "uuid, name or status missing or malformed");
	snprintf(s->uuid, sizeof(s->uuid), "%s", uuid);
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->error, sizeof(s->error), "%s", error);
	r = view_get(s->reg, (struct cfs_who){ .uid = (uid_t)uid, .gid = (gid_t)gid }, o, &s->owner, e);
	if (r < 0)
		return r;
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

int sandbox_open_dirs(struct registry *r, struct sandbox *s)
{
	s->dirfd = openat(r->sandboxes_fd, s->uuid, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (s->dirfd < 0)
		return -errno;
	s->boxfd = openat(s->dirfd, "box", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return s->boxfd < 0 ? -errno : 0;
}

/* What was being written when the daemon before us was killed: half a command, or input for one that will not come. */
static void clear_tmp(struct sandbox *s)
{
	int fd = openat(s->dirfd, "tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		fd_close(&fd);
		return;
	}
	while ((ent = readdir(d)))
		unlinkat(dirfd(d), ent->d_name, 0); /* "." and ".." refuse */
	closedir(d);
}

/* A daemon was killed while the sandbox took a machine's directory (machine.c): the box/ that was its own may lie in
 * the machine's, with its commands. */
static int finish_exchange(struct registry *r, struct sandbox *s)
{
	char path[LAUNCH_UUID_LEN + 16];

	if (!s->machine[0] || !strcmp(s->machine, s->uuid))
		return 0;
	snprintf(path, sizeof(path), "%s/box/exec", s->machine);
	/* Fails where there is no such directory (all was done), or where ours is not empty (nothing was done yet, or a
	 * box wrote since). */
	if (renameat(r->sandboxes_fd, path, s->boxfd, "exec") < 0 && errno != ENOENT && errno != ENOTEMPTY &&
	    errno != EEXIST)
		return -errno;
	return 0;
}

static int load_one(struct registry *r, const char *uuid, struct err *e)
{
	struct sandbox *s = sandbox_new(r);
	AUTO_FREE char *text = NULL;
	AUTO_JSON *o = NULL;
	size_t len;
	int k;

	if (!s)
		return err_set(e, -ENOMEM, "no memory");
	snprintf(s->uuid, sizeof(s->uuid), "%.36s", uuid);
	k = attrs_copy(&s->attrs, &r->defaults);
	if (!k)
		k = sandbox_open_dirs(r, s);
	if (!k)
		k = fd_slurp(s->dirfd, "sandbox.json", 1 << 20, &text, &len);
	if (!k)
		k = json_parse(text, len, &o, e);
	if (!k)
		k = from_json(s, o, e);
	if (!k)
		k = finish_exchange(r, s);
	if (!k && strcmp(s->uuid, uuid))
		k = err_set(e, -EINVAL, "its uuid is %s", s->uuid);
	if (!k && registry_find(r, s->owner.view, s->name))
		k = err_set(e, -EEXIST, "its name \"%s\" is taken", s->name);
	if (!k)
		k = exec_load(s, e);
	if (k < 0) {
		if (!e->code)
			err_set(e, k, "%s", strerror(-k));
		sandbox_unref(s);
		return k;
	}
	if (s->hidden) {
		strays_add(r, s->disk);
		sandbox_unref(s); /* the daemon's own, of a work that has ended with it */
		registry_remove_dir(r, uuid);
		return 0;
	}
	clear_tmp(s);
	registry_insert(r, s);
	return 0;
}

/* What a killed daemon was about to remove, and directories without a sandbox.json: a creation that was never seen, or
 * a machine of the pool; those come last, since a sandbox may have to fetch something out of one. */
static int load_pass(struct registry *r, bool remove, struct err *e)
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

		if (!strncmp(ent->d_name, REMOVAL_PREFIX, sizeof(REMOVAL_PREFIX) - 1)) {
			if (remove)
				registry_remove_dir(r, ent->d_name + sizeof(REMOVAL_PREFIX) - 1);
			continue;
		}
		if (strlen(ent->d_name) != LAUNCH_UUID_LEN)
			continue; /* "." and "..", and what is not ours */
		snprintf(path, sizeof(path), "%s/sandbox.json", ent->d_name);
		if (fstatat(r->sandboxes_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
			if (remove) {
				strays_add(r, ent->d_name);
				registry_remove_dir(r, ent->d_name);
			}
			continue;
		}
		if (!remove && load_one(r, ent->d_name, &why) < 0)
			log_warn("sandbox=%s event=not-loaded error=\"%s\" next=left-alone", ent->d_name, why.msg);
	}
	closedir(d);
	return 0;
}

int registry_load(struct registry *r, struct err *e)
{
	int k = load_pass(r, false, e);

	return k < 0 ? k : load_pass(r, true, e);
}

int registry_load_defaults(struct registry *r, struct err *e)
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
