/* SPDX-License-Identifier: Apache-2.0 */
/* A batch: the pages, nodes and blobs of one snapshot, and the manifest that makes it one. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "snapstore/snap_priv.h"

int snap_batch_new(struct snap *s, struct snap_batch **ret, struct err *e)
{
	struct snap_batch *b;
	int r;

	if (!s->write)
		return err_set(e, -EROFS, "snapstore: opened for reading");
	if (s->batch)
		return err_set(e, -EBUSY, "snapstore: another batch is open");
	b = calloc(1, sizeof(*b));
	if (!b)
		return err_set(e, -ENOMEM, "batch: no memory");
	b->s = s;
	r = packer_new(s, &b->packer, e);
	if (r < 0) {
		free(b);
		return r;
	}
	s->batch = b;
	*ret = b;
	return 0;
}

static void batch_free(struct snap_batch *b, bool undo)
{
	while (b->edits)
		edit_free(b->edits);
	packer_free(b->packer, undo);
	b->s->batch = NULL;
	free(b);
}

struct snap_batch *snap_batch_abort(struct snap_batch *b)
{
	if (b)
		batch_free(b, true);
	return NULL;
}

int batch_failed(struct snap_batch *b, int code)
{
	if (!b->failed)
		b->failed = code;
	return code;
}

int batch_object(struct snap_batch *b, const void *data, size_t len, struct snap_digest *ret, bool *ret_new,
		 struct err *e)
{
	struct snap_digest d;
	struct where w;
	uint32_t frame, slot;
	int r = hasher_sum(&b->s->hash, data, len, &d);

	if (r < 0)
		return batch_failed(b, err_set(e, r, "SHA-256 of an object failed"));
	if (ret_new)
		*ret_new = false;
	if (!packer_find(b->packer, &d, &frame, &slot)) {
		r = packs_find_any(&b->s->packs, &d, &w, e);
		if (r < 0 && r != -ENOENT)
			return batch_failed(b, r);
		if (r == -ENOENT) {
			r = packer_frame(b->packer, data, (uint32_t)len, 1, &d, e);
			if (r < 0)
				return batch_failed(b, r);
			if (ret_new)
				*ret_new = true;
		}
	}
	*ret = d;
	return 0;
}

/* The last step. @ret_named: the manifest may have its name although this failed. */
static int name_it(struct snap *s, const struct snap_manifest *m, bool *ret_named, struct err *e)
{
	struct buf text;
	int r;

	*ret_named = false;
	buf_init(&text, SNAP_MANIFEST_MAX);
	r = manifest_text(m, &text, e);
	if (r == 0) {
		r = fd_replace(s->manifests_fd, m->uuid, text.data, text.len, SNAP_FILE_MODE, true);
		if (r < 0)
			err_set(e, r, "manifest %s: writing: %s", m->uuid, err_name(r));
	}
	if (r < 0 && faccessat(s->manifests_fd, m->uuid, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
		*ret_named = true;
		unlinkat(s->manifests_fd, m->uuid, 0);
	}
	buf_fini(&text);
	return r;
}

int snap_batch_commit(struct snap_batch *b, const struct snap_manifest *m, struct snap_counts *ret, struct err *e)
{
	struct snap *s = b->s;
	bool named = false;
	int r = 0;

	if (b->failed)
		r = err_set(e, b->failed, "batch: a step of it had failed: %s", err_name(b->failed));
	else if (b->edits)
		r = err_set(e, -EINVAL, "batch: an edit is still open");
	else if (!snap_uuid_ok(m->uuid))
		r = err_set(e, -EINVAL, "manifest: not a uuid");
	else if (faccessat(s->manifests_fd, m->uuid, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		r = err_set(e, -EEXIST, "snapshot %s is in the store already", m->uuid);
	if (r == 0)
		r = packer_finish(b->packer, e);
	if (r == 0)
		r = name_it(s, m, &named, e);
	if (r == 0 && ret) {
		*ret = b->counts;
		ret->bytes_stored = packer_bytes(b->packer);
	}
	/* Was it named, then a crash may bring the name back: its packs stay, for gc to judge. */
	batch_free(b, r < 0 && !named);
	return r;
}
