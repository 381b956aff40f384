/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests: one line of JSON whose last member is the SHA-256 of all bytes before it. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/json.h"
#include "snapstore/snap_priv.h"

#define SUM_KEY	 ",\"sum\":\""
#define SUM_TAIL "\"}\n"
#define SUM_LEN	 (sizeof(SUM_KEY) - 1 + 64 + sizeof(SUM_TAIL) - 1)
#define META_MAX (64u * 1024)

bool snap_uuid_ok(const char *uuid)
{
	for (unsigned i = 0; i < SNAP_UUID_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		char c = uuid[i];

		if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
	}
	return uuid[SNAP_UUID_LEN] == '\0';
}

void snap_manifest_fini(struct snap_manifest *m)
{
	json_put(&m->meta);
	memset(m, 0, sizeof(*m));
}

/* -- text --------------------------------------------------------------------------------------------------------- */

static int sum(const void *data, size_t len, char hex[DIGEST_HEX], struct err *e)
{
	struct snap_digest d;
	struct hasher h;
	int r = hasher_init(&h, e);

	if (r < 0)
		return r;
	r = hasher_sum(&h, data, len, &d);
	hasher_fini(&h);
	if (r < 0)
		return err_set(e, r, "SHA-256 of a manifest failed");
	digest_hex(&d, hex);
	return 0;
}

int manifest_text(const struct snap_manifest *m, struct buf *out, struct err *e)
{
	char memory[DIGEST_HEX], disk[DIGEST_HEX], state[DIGEST_HEX], own[DIGEST_HEX];
	const char *meta = m->meta ? json_line(m->meta) : "{}";
	int r;

	if (!meta)
		return err_set(e, -ENOMEM, "manifest: no memory");
	if (strlen(meta) > META_MAX || (m->meta && !json_object_is_type(m->meta, json_type_object)))
		return err_set(e, -EINVAL, "manifest: meta is no object, or longer than 64 KiB");
	if (!snap_uuid_ok(m->uuid) || (*m->parent && !snap_uuid_ok(m->parent)))
		return err_set(e, -EINVAL, "manifest: not a uuid");
	r = buf_addf(out,
		     "{\"version\":1,\"uuid\":\"%s\",\"parent\":\"%s\",\"created_ns\":%llu,"
		     "\"memory\":{\"pages\":%llu,\"root\":\"%s\"},\"disk\":{\"blocks\":%llu,\"root\":\"%s\"},"
		     "\"state\":{\"bytes\":%llu,\"digest\":\"%s\"},\"meta\":%s",
		     m->uuid, m->parent, (unsigned long long)m->created_ns, (unsigned long long)m->memory_pages,
		     digest_hex(&m->memory, memory), (unsigned long long)m->disk_blocks, digest_hex(&m->disk, disk),
		     (unsigned long long)m->state_bytes, digest_hex(&m->state, state), meta);
	if (r < 0)
		return err_set(e, r, "manifest: %s", err_name(r));
	r = sum(out->data, out->len, own, e);
	if (r < 0)
		return r;
	r = buf_addf(out, SUM_KEY "%s" SUM_TAIL, own);
	return r < 0 ? err_set(e, r, "manifest: %s", err_name(r)) : 0;
}

/* A number and a digest of an object of the manifest. */
static int part(struct json_object *o, const char *key, const char *number, const char *digest, uint64_t max,
		uint64_t *ret_n, struct snap_digest *ret_d, struct err *e)
{
	struct json_object *inner = NULL;
	const char *hex = "";
	int r = json_get_obj(o, key, json_type_object, &inner, e);

	if (r < 0)
		return r;
	if (!inner)
		return err_set(e, -EBADMSG, "`%s` is missing", key);
	r = json_get_u64(inner, number, 0, max, ret_n, e);
	if (r == 0)
		r = json_get_str(inner, digest, &hex, e);
	if (r == 0 && !digest_parse(hex, strlen(hex), ret_d))
		r = err_set(e, -EBADMSG, "`%s.%s` is no digest", key, digest);
	return r;
}

static int name(struct json_object *o, const char *key, bool needed, char out[SNAP_UUID_LEN + 1], struct err *e)
{
	const char *text = "";
	int r = json_get_str(o, key, &text, e);

	if (r < 0)
		return r;
	if (needed || *text) {
		if (!snap_uuid_ok(text))
			return err_set(e, -EBADMSG, "`%s` is no uuid", key);
		memcpy(out, text, SNAP_UUID_LEN + 1);
	}
	return 0;
}

static int take(struct json_object *o, struct snap_manifest *m, struct err *e)
{
	uint64_t version = 0;
	int r = json_get_u64(o, "version", 0, UINT64_MAX, &version, e);

	if (r == 0 && version != 1)
		return err_set(e, -EBADMSG, "its version is %llu", (unsigned long long)version);
	if (r < 0 || (r = name(o, "uuid", true, m->uuid, e)) < 0 || (r = name(o, "parent", false, m->parent, e)) < 0 ||
	    (r = json_get_u64(o, "created_ns", 0, UINT64_MAX, &m->created_ns, e)) < 0 ||
	    (r = part(o, "memory", "pages", "root", NODE_ENTRIES_MAX, &m->memory_pages, &m->memory, e)) < 0 ||
	    (r = part(o, "disk", "blocks", "root", NODE_ENTRIES_MAX, &m->disk_blocks, &m->disk, e)) < 0 ||
	    (r = part(o, "state", "bytes", "digest", SNAP_BLOB_MAX, &m->state_bytes, &m->state, e)) < 0 ||
	    (r = json_get_obj(o, "meta", json_type_object, &m->meta, e)) < 0)
		return r;
	if (!m->meta)
		return err_set(e, -EBADMSG, "`meta` is missing");
	json_object_get(m->meta);
	return 0;
}

int snap_manifest_parse(const void *json, size_t len, struct snap_manifest *ret, struct err *e)
{
	struct snap_manifest m = { 0 };
	const char *text = json, *tail;
	char hex[DIGEST_HEX];
	AUTO_JSON *o = NULL;
	int r;

	if (len <= SUM_LEN || len > SNAP_MANIFEST_MAX)
		return err_set(e, -EBADMSG, "manifest: %zu bytes are none", len);
	tail = text + len - SUM_LEN;
	r = sum(text, (size_t)(tail - text), hex, e);
	if (r < 0)
		return r;
	if (memcmp(tail, SUM_KEY, sizeof(SUM_KEY) - 1) != 0 || memcmp(tail + sizeof(SUM_KEY) - 1, hex, 64) != 0 ||
	    memcmp(tail + sizeof(SUM_KEY) - 1 + 64, SUM_TAIL, sizeof(SUM_TAIL) - 1) != 0)
		return err_set(e, -EBADMSG, "manifest: it was changed (its digest differs)");
	r = json_parse(text, len, &o, e);
	if (r == 0 && !json_object_is_type(o, json_type_object))
		r = err_set(e, -EBADMSG, "no object");
	if (r == 0)
		r = take(o, &m, e);
	if (r < 0) {
		snap_manifest_fini(&m);
		err_wrap(e, "manifest");
		return r == -ENOMEM ? r : err_set(e, -EBADMSG, "%s", e ? e->msg : "");
	}
	*ret = m;
	return 0;
}

/* -- files -------------------------------------------------------------------------------------------------------- */

int manifest_slurp(struct snap *s, const char *uuid, char **ret, size_t *ret_len, struct err *e)
{
	int r;

	if (!snap_uuid_ok(uuid))
		return err_set(e, -EINVAL, "snapshot: not a uuid");
	r = fd_slurp(s->manifests_fd, uuid, SNAP_MANIFEST_MAX, ret, ret_len);
	if (r == -ENOENT)
		return err_set(e, r, "snapshot %s is not in the store", uuid);
	if (r == -EFBIG || r == -EINVAL)
		r = -EBADMSG;
	return r < 0 ? err_set(e, r, "manifest %s: %s", uuid, err_name(r)) : 0;
}

int snap_manifest_read(struct snap *s, const char *uuid, struct snap_manifest *ret, struct err *e)
{
	AUTO_FREE char *text = NULL;
	struct snap_manifest m = { 0 };
	size_t len = 0;
	int r = manifest_slurp(s, uuid, &text, &len, e);

	if (r < 0)
		return r;
	r = snap_manifest_parse(text, len, &m, e);
	if (r < 0) {
		err_wrap(e, "snapshot %s", uuid);
		return r;
	}
	if (strcmp(m.uuid, uuid) != 0) {
		snap_manifest_fini(&m);
		return err_set(e, -EBADMSG, "snapshot %s: its manifest is another's", uuid);
	}
	*ret = m;
	return 0;
}

int snap_manifest_each(struct snap *s, bool (*fn)(void *arg, const char *uuid), void *arg, struct err *e)
{
	int fd = openat(s->manifests_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		r = err_set(e, -errno, "manifests: %s", err_name(-errno));
		fd_close(&fd);
		return r;
	}
	for (;;) {
		errno = 0;
		entry = readdir(dir);
		if (!entry)
			break;
		if (snap_uuid_ok(entry->d_name) && !fn(arg, entry->d_name))
			break;
	}
	if (!entry && errno)
		r = err_set(e, -errno, "manifests: reading the folder: %s", err_name(-errno));
	closedir(dir);
	return r;
}

int snap_manifest_remove(struct snap *s, const char *uuid, struct err *e)
{
	AUTO_FD dir = -1;

	if (!s->write)
		return err_set(e, -EROFS, "snapstore: opened for reading");
	if (!snap_uuid_ok(uuid))
		return err_set(e, -EINVAL, "snapshot: not a uuid");
	if (unlinkat(s->manifests_fd, uuid, 0) < 0 && errno != ENOENT)
		return err_set(e, -errno, "snapshot %s: removing it: %s", uuid, err_name(-errno));
	/* Before gc gives the space back, the name must be gone for good. */
	dir = openat(s->manifests_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || fsync(dir) < 0)
		return err_set(e, -errno, "manifests: syncing the folder: %s", err_name(-errno));
	return 0;
}
