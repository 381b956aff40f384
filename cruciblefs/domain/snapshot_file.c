/* SPDX-License-Identifier: Apache-2.0 */
/* What of a snapshot lies in the daemon's part of the store: snapshots/<uuid>/snapshot.json. Its pages, blocks and
 * device state are the snapstore's. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/members.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"
#include "snapstore/snap.h"

#define OF(name) MEMBER(struct snapshot, name)
static const struct member words[] = {
	OF(name),  OF(uuid),	    OF(error), OF(source), OF(source_uuid), OF(parent),	     OF(parent_uuid),
	OF(birth), OF(memory_base), OF(key),   OF(base),   OF(bootid),	    OF(fingerprint),
};
#undef OF

static const struct {
	const char *key;
	size_t at;
} numbers[] = {
#define NUMBER(member)                                     \
	{                                                  \
#member, offsetof(struct snapshot, member) \
	}
	NUMBER(created_ns),   NUMBER(pause_ns),	 NUMBER(captured_pages),
	NUMBER(stored_bytes), NUMBER(new_pages), NUMBER(shared_pages),
#undef NUMBER
};

static struct json_object *to_json(struct snapshot *p)
{
	struct json_object *o = json_object_new_object(), *attrs = json_object_new_object();

	if (!o || !attrs || attrs_to_json(&p->attrs, attrs) < 0) {
		json_object_put(o);
		json_object_put(attrs);
		return NULL;
	}
	json_object_object_add(o, "version", json_object_new_int(1));
	members_put(o, p, words, ARRAY_LEN(words));
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
		uint64_t n;

		memcpy(&n, (char *)p + numbers[i].at, sizeof(n));
		json_object_object_add(o, numbers[i].key, json_object_new_uint64(n));
	}
	json_object_object_add(o, "uid", json_object_new_int64(p->owner.uid));
	json_object_object_add(o, "gid", json_object_new_int64(p->owner.gid));
	view_put(&p->owner, o);
	json_object_object_add(o, "status", json_object_new_string(snapshot_status_name(p->status)));
	json_object_object_add(o, "gone", json_object_new_boolean(p->gone));
	json_object_object_add(o, "hidden", json_object_new_boolean(p->hidden));
	json_object_object_add(o, "accel", json_object_new_string(engine_accel_name(p->accel)));
	json_object_object_add(o, "memory_mib", json_object_new_int64(p->memory_mib));
	json_object_object_add(o, "vcpus", json_object_new_int64(p->vcpus));
	if (p->inherited)
		json_object_object_add(o, "inherited", json_text(p->inherited, strlen(p->inherited)));
	json_object_object_add(o, "attrs", attrs);
	return o;
}

int snapshot_save(struct snapshot *p, struct err *e)
{
	AUTO_JSON *o = to_json(p);
	AUTO_FD dir = -1;
	const char *line;
	int r = 0;

	if (!o)
		return err_set(e, -ENOMEM, "snapshot %s: no memory", p->name);
	if (mkdirat(p->reg->snapshots_fd, p->uuid, 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (!r) {
		dir = openat(p->reg->snapshots_fd, p->uuid, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		line = json_line(o);
		r = dir < 0 ? -errno : fd_replace(dir, "snapshot.json", line, strlen(line), 0640, false);
	}
	return r < 0 ? err_set(e, r, "snapshot %s: writing snapshot.json: %s", p->name, strerror(-r)) : 0;
}

/* It stays a file until the store has it: the daemon may be restarted meanwhile. */
int snapshot_open_state(struct snapshot *p)
{
	char path[LAUNCH_UUID_LEN + 32];

	snprintf(path, sizeof(path), "%s/state", p->uuid);
	fd_close(&p->state_fd);
	p->state_fd = openat(p->reg->snapshots_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return p->state_fd < 0 ? -errno : 0;
}

int snapshot_make_state(void)
{
	AUTO_FD fd = memfd_create("crucible-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, SNAP_BLOB_MAX) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
		return -errno;
	return take_fd(&fd);
}

/* The engine, which may be taken over, keeps its descriptor: it has none of the file. */
int snapshot_keep_state(struct snapshot *p, int from)
{
	char path[LAUNCH_UUID_LEN + 32];
	off_t len = lseek(from, 0, SEEK_CUR), at = 0; /* the offset is shared with whoever wrote */
	AUTO_FD fd = -1;

	if (len <= 0 || len > (off_t)SNAP_BLOB_MAX)
		return len < 0 ? -errno : -EIO;
	snprintf(path, sizeof(path), "%s/state", p->uuid);
	fd = openat(p->reg->snapshots_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	while (at < len) {
		ssize_t n = sendfile(fd, from, &at, (size_t)(len - at));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EIO;
	}
	return snapshot_open_state(p);
}

void snapshot_state_used(struct snapshot *p)
{
	struct snapshot *least = NULL;
	unsigned n = 0;

	p->state_used_ns = now_ns();
	for (struct snapshot *at = p->reg->first_snapshot; at; at = at->next) {
		if (at->status != SNAPSHOT_READY || at->state_fd < 0)
			continue;
		n++;
		if (at != p && (!least || at->state_used_ns < least->state_used_ns))
			least = at;
	}
	if (n > SNAPSHOT_STATES_KEPT && least)
		fd_close(&least->state_fd);
}

void snapshot_drop_state(struct snapshot *p)
{
	char path[LAUNCH_UUID_LEN + 32];

	snprintf(path, sizeof(path), "%s/state", p->uuid);
	unlinkat(p->reg->snapshots_fd, path, 0);
	fd_close(&p->state_fd);
}

void snapshot_remove_dir(struct snapshot *p)
{
	char path[LAUNCH_UUID_LEN + 32];

	snprintf(path, sizeof(path), "%s/snapshot.json", p->uuid);
	unlinkat(p->reg->snapshots_fd, path, 0);
	snprintf(path, sizeof(path), "%s/state", p->uuid);
	unlinkat(p->reg->snapshots_fd, path, 0);
	snprintf(path, sizeof(path), "%s/diff.json", p->uuid);
	unlinkat(p->reg->snapshots_fd, path, 0);
	snprintf(path, sizeof(path), "%s/workset", p->uuid);
	unlinkat(p->reg->snapshots_fd, path, 0);
	unlinkat(p->reg->snapshots_fd, p->uuid, AT_REMOVEDIR);
}

static int from_json(struct snapshot *p, struct json_object *o, struct err *e)
{
	const char *status = "", *accel = "tcg", *inherited = NULL;
	struct json_object *attrs = NULL;
	uint64_t version = 0, uid = 0, gid = 0, memory = 0, vcpus = 0;
	int r = json_get_u64(o, "version", 1, 1, &version, e);

	if (!r)
		r = members_get(o, p, words, ARRAY_LEN(words), e);
	for (size_t i = 0; !r && i < ARRAY_LEN(numbers); i++) {
		uint64_t n = 0;

		r = json_get_u64(o, numbers[i].key, 0, UINT64_MAX, &n, e);
		memcpy((char *)p + numbers[i].at, &n, sizeof(n));
	}
	if (r < 0 || (r = json_get_u64(o, "uid", 0, UINT32_MAX, &uid, e)) < 0 ||
	    (r = json_get_u64(o, "gid", 0, UINT32_MAX, &gid, e)) < 0 ||
	    (r = json_get_u64(o, "memory_mib", 0, UINT32_MAX, &memory, e)) < 0 ||
	    (r = json_get_u64(o, "vcpus", 0, UINT32_MAX, &vcpus, e)) < 0 ||
	    (r = json_get_str(o, "status", &status, e)) < 0 || (r = json_get_str(o, "accel", &accel, e)) < 0 ||
	    (r = json_get_str(o, "inherited", &inherited, e)) < 0 || (r = json_get_bool(o, "gone", &p->gone, e)) < 0 ||
	    (r = json_get_bool(o, "hidden", &p->hidden, e)) < 0 ||
	    (r = json_get_obj(o, "attrs", json_type_object, &attrs, e)) < 0)
		return r;
	if (version != 1)
		return err_set(e, -EPROTONOSUPPORT, "version: missing, or of a newer crucible");
	if (strlen(p->uuid) != LAUNCH_UUID_LEN || !p->name[0])
		return err_set(e, -EINVAL, "uuid or name missing or malformed");
	r = view_get(p->reg, (struct cfs_who){ .uid = (uid_t)uid, .gid = (gid_t)gid }, o, &p->owner, e);
	if (r < 0)
		return r;
	p->memory_mib = (uint32_t)memory;
	p->vcpus = (uint32_t)vcpus;
	p->accel = !strcmp(accel, "kvm") ? ACCEL_KVM : ACCEL_TCG;
	p->inherited = inherited ? strdup(inherited) : NULL;
	p->status = SNAPSHOT_DAMAGED;
	for (unsigned i = 0; i < SNAPSHOT_STATUS_COUNT; i++) {
		if (!strcmp(status, snapshot_status_name(i)))
			p->status = i;
	}
	return attrs ? attrs_from_json(&p->attrs, attrs, e) : 0;
}

static int load_one(struct registry *r, const char *uuid, struct err *e)
{
	struct snapshot *p = snapshot_new(r);
	AUTO_FREE char *text = NULL;
	AUTO_JSON *o = NULL;
	AUTO_FD dir = openat(r->snapshots_fd, uuid, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	size_t len = 0;
	int k;

	if (!p)
		return err_set(e, -ENOMEM, "no memory");
	k = dir < 0 ? -errno : fd_slurp(dir, "snapshot.json", 1 << 20, &text, &len);
	if (!k)
		k = json_parse(text, len, &o, e);
	if (!k)
		k = from_json(p, o, e);
	if (!k && strcmp(p->uuid, uuid))
		k = err_set(e, -EINVAL, "its uuid is %s", p->uuid);
	if (k < 0) {
		if (!e->code)
			err_set(e, k, "%s", strerror(-k));
		snapshot_unref(p);
		return k;
	}
	p->changed_ns = p->created_ns;
	if (faccessat(dir, "diff.json", R_OK, 0) == 0)
		p->diff = DIFF_DONE;
	if (faccessat(dir, "workset", R_OK, 0) == 0)
		p->workset = WORKSET_KEPT;
	if (p->status == SNAPSHOT_STORING)
		snapshot_open_state(p); /* without it: damaged, once the pager was asked (relink.c) */
	/* It was being taken: nobody was told that it is there. */
	if (p->status == SNAPSHOT_CAPTURING)
		p->gone = p->doubt = true;
	snapshot_insert(r, p);
	return 0;
}

int snapshots_load(struct registry *r, struct err *e)
{
	int fd = openat(r->snapshots_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		int k = -errno;

		fd_close(&fd);
		return err_set(e, k, "store: snapshots/: %s", strerror(-k));
	}
	while ((ent = readdir(d))) {
		struct err why = { 0 };

		if (strlen(ent->d_name) == LAUNCH_UUID_LEN && load_one(r, ent->d_name, &why) < 0)
			log_warn("snapshot=%s event=not-loaded error=\"%s\" next=left-alone", ent->d_name, why.msg);
	}
	closedir(d);
	return 0;
}
