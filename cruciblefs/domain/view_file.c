/* SPDX-License-Identifier: Apache-2.0 */
/* What of a view lies in the store: views/<name>.json, read before sandboxes and snapshots are. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/view_priv.h"

#define FILE_MAX      (1u << 20)
#define SUFFIX	      ".json"
#define GONE_PREFIX   ".gone-"
#define HALF_WRITTEN  SUFFIX ".new-" /* fd_replace() names them so; no view's file, for those end with SUFFIX */
#define FILE_NAME_MAX (CFS_NAME_MAX + sizeof(SUFFIX))

static void file_name(const struct view *v, char out[FILE_NAME_MAX])
{
	snprintf(out, FILE_NAME_MAX, "%s" SUFFIX, v->name);
}

static void gone_name(const struct view *v, char out[FILE_NAME_MAX])
{
	snprintf(out, FILE_NAME_MAX, GONE_PREFIX "%s" SUFFIX, v->uuid);
}

static int put_policy(const struct view *v, struct json_object *o)
{
	struct buf b;
	int k;

	if (!v->policy)
		return 0;
	buf_init(&b, POLICY_TEXT_MAX);
	k = policy_text(v->policy, &b);
	if (!k)
		k = json_object_object_add(o, "policy", json_object_new_string_len((const char *)b.data, (int)b.len));
	buf_fini(&b);
	return k < 0 ? -ENOMEM : 0;
}

static int write_file(struct view *v, bool durable, struct err *e)
{
	AUTO_JSON *o = json_object_new_object();
	char name[FILE_NAME_MAX];
	const char *line;
	int k;

	if (!o || put_policy(v, o) < 0)
		return err_set(e, -ENOMEM, "view %s: no memory", v->name);
	json_object_object_add(o, "version", json_object_new_int(1));
	json_object_object_add(o, "uuid", json_object_new_string(v->uuid));
	json_object_object_add(o, "name", json_object_new_string(v->name));
	json_object_object_add(o, "uid", json_object_new_int64(v->owner.uid));
	json_object_object_add(o, "gid", json_object_new_int64(v->owner.gid));
	json_object_object_add(o, "created_ns", json_object_new_uint64(v->created_ns));
	json_object_object_add(o, "expires_ns", json_object_new_uint64(v->expires_ns));
	json_object_object_add(o, "expired", json_object_new_boolean(v->expired));
	line = json_line(o);
	if (!line)
		return err_set(e, -ENOMEM, "view %s: no memory", v->name);
	file_name(v, name);
	k = fd_replace(v->reg->views_fd, name, line, strlen(line), 0640, durable);
	return k < 0 ? err_set(e, k, "view %s: the store: views/%s: %s", v->name, name, strerror(-k)) : 0;
}

int view_save(struct view *v, struct err *e)
{
	return write_file(v, true, e);
}

bool view_has_file(const struct view *v)
{
	char name[FILE_NAME_MAX];
	struct stat st;

	file_name(v, name);
	return fstatat(v->reg->views_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

void view_put_back(struct view *v)
{
	char name[FILE_NAME_MAX];

	file_name(v, name);
	if (v->listed)
		write_file(v, false, NULL);
	else
		unlinkat(v->reg->views_fd, name, 0);
}

int view_disown(struct view *v, struct err *e)
{
	char name[FILE_NAME_MAX], gone[FILE_NAME_MAX];
	int k = 0;

	file_name(v, name);
	gone_name(v, gone);
	/* -ENOENT: somebody took the file away. It is no view any more, which is what was asked for. */
	if (renameat(v->reg->views_fd, name, v->reg->views_fd, gone) < 0 && errno != ENOENT)
		k = -errno;
	if (!k && fsync(v->reg->views_fd) < 0) {
		k = -errno;
		renameat(v->reg->views_fd, gone, v->reg->views_fd, name);
	}
	return k < 0 ? err_set(e, k, "view %s: the store: views/%s: %s", v->name, name, strerror(-k)) : 0;
}

/* Its journals are nobody's to read any more; root's has all of it. */
static void remove_journals(struct registry *r, const char *uuid)
{
	int fd = openat(r->state_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	char prefix[64];
	struct dirent *ent;

	if (!d) {
		fd_close(&fd);
		return; /* they are in nobody's way */
	}
	snprintf(prefix, sizeof(prefix), JOURNAL_VIEW_PREFIX "%s", uuid);
	while ((ent = readdir(d))) {
		if (!strncmp(ent->d_name, prefix, strlen(prefix)))
			unlinkat(r->state_fd, ent->d_name, 0);
	}
	closedir(d);
}

void view_forget(struct view *v)
{
	char gone[FILE_NAME_MAX];

	remove_journals(v->reg, v->uuid);
	gone_name(v, gone);
	unlinkat(v->reg->views_fd, gone, 0);
}

/* -- loading ---------------------------------------------------------------------------------------------------------
 */

static bool is_uuid(const char *s, size_t n)
{
	return n == LAUNCH_UUID_LEN && strspn(s, "0123456789abcdef-") >= n;
}

static int take_policy(struct view *v, const char *text, struct err *e)
{
	struct buf faults;
	int k;

	if (!text)
		return 0;
	buf_init(&faults, 4096);
	k = policy_parse(text, strlen(text), NULL, &v->policy, &faults);
	if (k < 0) {
		const char *words = buf_str(&faults);
		size_t n = words ? strcspn(words, "\n") : 0;

		err_set(e, k, "policy: %.*s", n ? (int)n : (int)strlen(strerror(-k)), n ? words : strerror(-k));
	}
	buf_fini(&faults);
	return k;
}

static int from_json(struct view *v, struct json_object *o, struct err *e)
{
	const char *uuid = "", *name = "", *policy = NULL;
	uint64_t version = 0, uid = 0, gid = 0;
	int k;

	if ((k = json_get_u64(o, "version", 1, 1, &version, e)) < 0 || (k = json_get_str(o, "uuid", &uuid, e)) < 0 ||
	    (k = json_get_str(o, "name", &name, e)) < 0 || (k = json_get_str(o, "policy", &policy, e)) < 0 ||
	    (k = json_get_u64(o, "uid", 0, UINT32_MAX, &uid, e)) < 0 ||
	    (k = json_get_u64(o, "gid", 0, UINT32_MAX, &gid, e)) < 0 ||
	    (k = json_get_u64(o, "created_ns", 0, UINT64_MAX, &v->created_ns, e)) < 0 ||
	    (k = json_get_u64(o, "expires_ns", 0, UINT64_MAX, &v->expires_ns, e)) < 0 ||
	    (k = json_get_bool(o, "expired", &v->expired, e)) < 0)
		return k;
	if (version != 1)
		return err_set(e, -EPROTONOSUPPORT, "version: missing, or of a newer crucible");
	if (!is_uuid(uuid, strlen(uuid)) || cfs_name_check(name) < 0)
		return err_set(e, -EINVAL, "uuid or name missing or malformed");
	snprintf(v->uuid, sizeof(v->uuid), "%s", uuid);
	snprintf(v->name, sizeof(v->name), "%s", name);
	v->owner = (struct cfs_who){ .uid = (uid_t)uid, .gid = (gid_t)gid };
	v->changed_ns = v->created_ns;
	return take_policy(v, policy, e);
}

static int load_one(struct registry *r, const char *file, size_t name_len, struct err *e)
{
	struct view *v = view_new(r);
	AUTO_FREE char *text = NULL;
	AUTO_JSON *o = NULL;
	size_t len = 0;
	int k;

	if (!v)
		return err_set(e, -ENOMEM, "no memory");
	k = fd_slurp(r->views_fd, file, FILE_MAX, &text, &len);
	if (!k)
		k = json_parse(text, len, &o, e);
	if (!k)
		k = from_json(v, o, e);
	if (!k && (strlen(v->name) != name_len || strncmp(v->name, file, name_len) != 0))
		k = err_set(e, -EINVAL, "its name is %s", v->name);
	if (!k && view_by_uuid(r, v->uuid))
		k = err_set(e, -EEXIST, "its uuid %s is another view's", v->uuid);
	if (k < 0) {
		if (!e->code)
			err_set(e, k, "%s", strerror(-k));
		view_unref(v);
		return k;
	}
	view_insert(r, v);
	return 0;
}

/* One that was being removed: whatever its file says, its name is enough. */
static int load_gone(struct registry *r, const char *uuid, struct err *e)
{
	struct view *v = view_new(r);

	if (!v)
		return err_set(e, -ENOMEM, "no memory");
	v->gone = true;
	snprintf(v->uuid, sizeof(v->uuid), "%.*s", LAUNCH_UUID_LEN, uuid);
	view_insert(r, v);
	return 0;
}

/* Not a view's file: 0 and nothing done. */
static int load_file(struct registry *r, const char *file, struct err *e)
{
	size_t len = strlen(file), suffix = sizeof(SUFFIX) - 1, prefix = sizeof(GONE_PREFIX) - 1;

	if (len <= suffix || strcmp(file + len - suffix, SUFFIX) != 0) {
		if (strstr(file, HALF_WRITTEN)) /* by a daemon that was killed */
			unlinkat(r->views_fd, file, 0);
		return 0;
	}
	len -= suffix;
	if (!strncmp(file, GONE_PREFIX, prefix))
		return is_uuid(file + prefix, len - prefix) ? load_gone(r, file + prefix, e) : 0;
	return file[0] == '.' ? 0 : load_one(r, file, len, e);
}

int views_load(struct registry *r, struct err *e)
{
	int fd = openat(r->views_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), k = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		k = -errno;
		fd_close(&fd);
		return err_set(e, k, "store: views/: %s", strerror(-k));
	}
	while (!k && (ent = readdir(d))) {
		struct err why = { 0 };

		k = load_file(r, ent->d_name, &why);
		if (k == -ENOMEM) {
			err_set(e, k, "store: views/%s: no memory", ent->d_name);
			break;
		}
		/* Of what was made through it the sandboxes and snapshots say it (view_lost()). */
		if (k < 0)
			log_warn("view=%s event=not-loaded error=\"%s\" next=left-alone", ent->d_name, why.msg);
		k = 0;
	}
	closedir(d);
	return k;
}

/* -- whose a sandbox or snapshot is
 * ------------------------------------------------------------------------------------ */

void view_put(const struct cfs_who *owner, struct json_object *o)
{
	if (owner->view)
		json_object_object_add(o, "view", json_object_new_string(owner->view->uuid));
}

int view_get(struct registry *r, struct cfs_who who, struct json_object *o, struct cfs_who *ret, struct err *e)
{
	const char *uuid = NULL;
	int k = json_get_str(o, "view", &uuid, e);

	if (k < 0)
		return k;
	if (uuid && !is_uuid(uuid, strlen(uuid)))
		return err_set(e, -EINVAL, "view: malformed");
	who.view = uuid ? view_of_uuid(r, uuid, e) : NULL;
	if (uuid && !who.view)
		return -ENOMEM;
	who_take(ret, &who);
	return 0;
}
