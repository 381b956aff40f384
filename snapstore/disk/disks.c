/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * What is on disk is always enough: an operation makes files that nobody names yet, then names them by one rename of a
 * record, then changes what is in memory. A freeze has two records to write. The machine's goes first, with the new
 * top: were the process to die in between, the machine would have one layer more, which nobody can see; the other way
 * round a snapshot would name a layer that is still written.
 *
 * Files that no record names are removed at the next start, unless a record cannot be read. */
#include "snapstore/disk/disk_priv.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* -- the whole --------------------------------------------------------------------------------------------------- */

static int open_folder(int dirfd, const char *name, int *ret, struct err *e)
{
	if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
		return err_set(e, -errno, "disks: make %s: %s", name, strerror(errno));
	*ret = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*ret < 0)
		return err_set(e, -errno, "disks: open %s: %s", name, strerror(errno));
	return 0;
}

int disks_open(int dirfd, struct snap *snap, struct disks **ret, struct err *e)
{
	struct disks *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return err_set(e, -ENOMEM, "disks: no memory");
	*d = (struct disks){ .dirfd = dirfd, .layers_fd = -1, .stacks_fd = -1, .bases_fd = -1, .snap = snap };
	d->next_layer = 1;
	if ((r = open_folder(dirfd, "layers", &d->layers_fd, e)) < 0 ||
	    (r = open_folder(dirfd, "stacks", &d->stacks_fd, e)) < 0 ||
	    (r = open_folder(dirfd, "bases", &d->bases_fd, e)) < 0 || (r = stacks_load(d, e)) < 0 ||
	    (r = layers_sweep(d, !d->unreadable, e)) < 0) {
		disks_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

void disks_set_snap(struct disks *d, struct snap *snap)
{
	if (!d->snap)
		d->snap = snap;
}

struct disks *disks_close(struct disks *d)
{
	if (!d)
		return NULL;
	spares_drop(d);
	for (unsigned i = 0; i < DISK_BUCKETS; i++) {
		struct stack *k;

		while ((k = d->stacks[i])) {
			d->stacks[i] = k->next;
			join_drop(d, k);
			disk_close(k->disk);
			base_put(d, k->base);
			free(k);
		}
	}
	for (unsigned i = 0; i < DISK_BUCKETS; i++) {
		struct layer *l;

		while ((l = d->layers[i])) {
			d->layers[i] = l->next;
			fd_close(&l->data);
			fd_close(&l->map);
			free(l);
		}
	}
	storelayer_end(d);
	fd_close(&d->layers_fd);
	fd_close(&d->stacks_fd);
	fd_close(&d->bases_fd);
	free(d);
	return NULL;
}

/* -- making ------------------------------------------------------------------------------------------------------ */

static int check_new(struct disks *d, const char *id, uint64_t bytes, struct err *e)
{
	if (!disk_id_ok(id))
		return err_set(e, -EINVAL, "disk: not a name for one");
	if (bytes == 0 || bytes > DISK_BYTES_MAX)
		return err_set(e, -EINVAL, "disk %s: its size is not from 1 to %llu bytes", id, DISK_BYTES_MAX);
	if (stack_find(d, id))
		return err_set(e, -EEXIST, "disk %s: it exists", id);
	return 0;
}

static int room_for_top(struct disks *d, struct stack *k, struct err *e)
{
	return k->nlayers < DISK_LAYERS_MAX && !k->join ? 0 : stack_join(d, k, e);
}

int disk_make_room(struct disks *d, const char *id, struct err *e)
{
	struct stack *k = disk_id_ok(id) ? stack_find(d, id) : NULL;

	return !k || k->damaged || k->nlayers < DISK_LAYERS_MAX ? 0 : stack_join_step(d, k, e);
}

/* An empty layer on @k, which is in no bucket. It stays open: *ret_top is to be closed. */
static int put_top(struct disks *d, struct stack *k, struct layer **ret_top, struct err *e)
{
	int r = spare_layer(d, k->bytes, &k->layers[k->nlayers], e);

	if (r < 0)
		return r;
	*ret_top = k->layers[k->nlayers++];
	return 0;
}

static uint64_t blocks_of(uint64_t bytes)
{
	return (bytes + DISK_BLOCK_BYTES - 1) / DISK_BLOCK_BYTES;
}

int disk_create(struct disks *d, const char *id, uint64_t bytes, uint64_t limit_bytes, const struct disk_origin *o,
		struct err *e)
{
	struct stack *k = NULL, *from = NULL;
	struct layer *top = NULL;
	int r = check_new(d, id, bytes, e);

	if (r < 0)
		return r;
	if (o->snapshot[0]) {
		r = stack_need(d, o->snapshot, &from, e);
		if (r == 0 && !from->frozen)
			r = err_set(e, -EINVAL, "disk %s: that of a machine, not a snapshot", o->snapshot);
		if (r == 0 && from->rooted && blocks_of(bytes) != blocks_of(from->bytes))
			r = err_set(e, -EINVAL, "disk %s: not of the size of snapshot %s", id, o->snapshot);
		if (r == 0)
			join_drop(d, from); /* its layers are not its own alone any more */
		if (r == 0)
			r = stack_clone(d, from, id, &k, e);
	} else {
		k = stack_new(id);
		r = k ? base_get(d, o->base, o->base_fd, &k->base, e) : err_set(e, -ENOMEM, "disk %s: no memory", id);
	}
	if (r == 0 && k) {
		k->bytes = bytes;
		k->limit = limit_bytes;
		k->own = 0;
		k->frozen = false;
		r = base_open(d, k->base, e);
	}
	if (r == 0 && k)
		r = room_for_top(d, k, e);
	if (r == 0 && k)
		r = put_top(d, k, &top, e);
	if (r == 0 && k) {
		k->own = 1;
		layer_close(top);
		r = stack_write(d, k, false, e);
	}
	if (r < 0) {
		stack_free(d, k);
		return r;
	}
	stack_link(d, k);
	return 0;
}

int disk_create_from_store(struct disks *d, const char *snapshot, uint64_t bytes, const struct disk_origin *base,
			   const struct snap_digest *root, struct err *e)
{
	struct stack *k;
	int r = check_new(d, snapshot, bytes, e);

	if (r < 0)
		return r;
	if (!d->snap)
		return err_set(e, -EINVAL, "disk %s: there is no snapstore here", snapshot);
	k = stack_new(snapshot);
	if (!k)
		return err_set(e, -ENOMEM, "disk %s: no memory", snapshot);
	k->bytes = bytes;
	k->frozen = true;
	k->rooted = true;
	k->root = *root;
	r = base ? base_get(d, base->base, base->base_fd, &k->base, e) : 0;
	if (r == 0)
		r = base_open(d, k->base, e);
	if (r == 0)
		r = stack_write(d, k, false, e);
	if (r < 0) {
		stack_free(d, k);
		return r;
	}
	stack_link(d, k);
	return 0;
}

/* -- freezing ---------------------------------------------------------------------------------------------------- */

/* @k without its top, which was put on it a moment ago and is empty. */
static void drop_top(struct disks *d, struct stack *k)
{
	struct layer *top = k->layers[--k->nlayers];

	k->own--;
	layer_close(top);
	layer_put(d, top);
}

/* The record as it was before there was a new top. */
static int unwrite_top(struct disks *d, struct stack *k)
{
	int r;

	k->nlayers--;
	k->own--;
	r = stack_write(d, k, false, NULL);
	k->nlayers++;
	k->own++;
	return r;
}

int disk_freeze(struct disks *d, const char *id, const char *snapshot, struct err *e)
{
	struct stack *k = NULL, *s = NULL;
	struct layer *top = NULL;
	int r = stack_need(d, id, &k, e);

	if (r == 0)
		r = check_new(d, snapshot, k->bytes, e);
	if (r == 0 && k->frozen)
		r = err_set(e, -EROFS, "disk %s: a snapshot's, it is never written", id);
	if (r == 0)
		r = room_for_top(d, k, e);
	if (r == 0)
		r = stack_clone(d, k, snapshot, &s, e);
	if (r < 0 || !s)
		return r;
	s->frozen = true;
	s->limit = 0;
	r = put_top(d, k, &top, e);
	if (r < 0) {
		stack_free(d, s);
		return r;
	}
	k->own++;
	r = stack_write(d, k, false, e);
	if (r < 0) {
		drop_top(d, k);
		stack_free(d, s);
		return r;
	}
	r = stack_write(d, s, false, e);
	if (r < 0 && unwrite_top(d, k) == 0) {
		drop_top(d, k);
		stack_free(d, s);
		return r;
	}
	if (r == 0)
		stack_link(d, s);
	else
		stack_free(d, s); /* the machine keeps its new top: what is on disk counts, and it shows the same */
	if (k->disk)
		disk_restack(k->disk, false);
	else
		layer_close(top);
	return r;
}

/* -- for the snapstore ------------------------------------------------------------------------------------------- */

static bool has_layer(const struct stack *k, uint64_t id)
{
	for (unsigned i = 0; i < k->nlayers; i++)
		if (k->layers[i]->id == id)
			return true;
	for (unsigned i = 0; i < k->nhad; i++)
		if (k->had[i] == id)
			return true;
	return false;
}

static int add_files(const struct disks *d, struct disk_files *f, const struct layer *l, struct err *e)
{
	int r = layer_reopen(d, l, &f->data[f->n], &f->map[f->n], e);

	f->n += r == 0;
	return r;
}

/* All of @layers as one, in a layer that no stack has; its files live as long as their descriptors. */
static int add_joined(struct disks *d, struct disk_files *f, struct layer *const *layers, unsigned n, uint64_t bytes,
		      struct err *e)
{
	struct layer *all;
	int r = layer_create(d, bytes, &all, e);

	if (r < 0)
		return r;
	for (unsigned i = 0; r == 0 && i < n; i++) {
		r = layer_open(d, layers[i], e);
		if (r < 0)
			break;
		r = layer_pour(layers[i], all, bytes, true, e);
		layer_close(layers[i]);
	}
	if (r == 0)
		r = add_files(d, f, all, e);
	layer_close(all);
	layer_put(d, all);
	return r;
}

int disk_snapshot_files(struct disks *d, const char *snapshot, const char *parent_or_empty, struct disk_files *ret,
			struct err *e)
{
	struct layer *lacking[DISK_LAYERS_MAX];
	struct stack *s = NULL, *p = NULL;
	struct disk_files f = { 0 };
	unsigned n = 0, joined = 0;
	int r = stack_need(d, snapshot, &s, e);

	if (r == 0 && !s->frozen)
		r = err_set(e, -EINVAL, "disk %s: that of a machine, not a snapshot", snapshot);
	if (r == 0 && parent_or_empty[0])
		r = stack_need(d, parent_or_empty, &p, e);
	if (r == 0 && !p && s->rooted)
		r = err_set(e, -EINVAL, "disk %s: it stands on a stored one: nothing without its parent", snapshot);
	if (r < 0)
		return r;
	for (unsigned i = 0; i < s->nlayers; i++)
		if (!p || !has_layer(p, s->layers[i]->id))
			lacking[n++] = s->layers[i];
	if (n > ARRAY_LEN(f.data)) {
		joined = n - (unsigned)ARRAY_LEN(f.data) + 1;
		r = add_joined(d, &f, lacking, joined, s->bytes, e);
	}
	for (unsigned i = joined; r == 0 && i < n; i++)
		r = add_files(d, &f, lacking[i], e);
	if (r < 0) {
		for (unsigned i = 0; i < f.n; i++) {
			fd_close(&f.data[i]);
			fd_close(&f.map[i]);
		}
		return r;
	}
	*ret = f;
	return 0;
}

int disk_snapshot_stored(struct disks *d, const char *snapshot, const struct snap_digest *root, struct err *e)
{
	struct stack *s = NULL, old;
	int r = stack_need(d, snapshot, &s, e);

	if (r == 0 && !s->frozen)
		r = err_set(e, -EINVAL, "disk %s: that of a machine, not a snapshot", snapshot);
	if (r == 0 && !d->snap)
		r = err_set(e, -EINVAL, "disk %s: there is no snapstore here", snapshot);
	if (r == 0 && s->disk)
		r = err_set(e, -EBUSY, "disk %s: open", snapshot);
	if (r < 0)
		return r;
	join_drop(d, s);
	old = *s;
	/* Who asks for its changes later knows the layers by these numbers, also a second time. */
	for (unsigned i = 0; i < s->nlayers && s->nhad < DISK_LAYERS_MAX; i++)
		s->had[s->nhad++] = s->layers[i]->id;
	s->nlayers = 0;
	s->own = 0;
	s->rooted = true;
	s->root = *root;
	r = stack_write(d, s, true, e);
	if (r < 0) {
		*s = old;
		return r;
	}
	for (unsigned i = 0; i < old.nlayers; i++)
		layer_put(d, old.layers[i]);
	return 0;
}

/* -- the rest ---------------------------------------------------------------------------------------------------- */

int disk_remove(struct disks *d, const char *id, struct err *e)
{
	struct stack *k = disk_id_ok(id) ? stack_find(d, id) : NULL;

	if (!k)
		return 0;
	if (k->disk)
		return err_set(e, -EBUSY, "disk %s: open", id);
	if (unlinkat(d->stacks_fd, id, 0) < 0 && errno != ENOENT)
		return err_set(e, -errno, "disk %s: remove: %s", id, strerror(errno));
	stack_unlink(d, k);
	stack_free(d, k);
	return 0;
}

int disk_sync(struct disks *d, const char *id, struct err *e)
{
	struct stack *k = NULL;
	int r = stack_need(d, id, &k, e);

	for (unsigned i = 0; r == 0 && i < k->nlayers; i++) {
		r = layer_open(d, k->layers[i], e);
		if (r < 0)
			break;
		r = layer_sync(k->layers[i], e);
		layer_close(k->layers[i]);
	}
	if (r == 0 && fsync(d->layers_fd) < 0)
		r = err_set(e, -errno, "disk %s: sync: %s", id, strerror(errno));
	return r < 0 ? r : stack_write(d, k, true, e);
}

bool disk_exists(struct disks *d, const char *id)
{
	return stack_find(d, id) != NULL;
}

int disk_stat(struct disks *d, const char *id, uint64_t *ret_own_bytes, unsigned *ret_layers, struct err *e)
{
	struct stack *k = NULL;
	uint64_t blocks = 0;
	int r = stack_need(d, id, &k, e);

	for (unsigned i = r == 0 ? k->nlayers - k->own : 0; r == 0 && i < k->nlayers; i++) {
		r = layer_open(d, k->layers[i], e);
		if (r < 0)
			break;
		r = layer_count(k->layers[i], e);
		layer_close(k->layers[i]);
		blocks += k->layers[i]->used;
	}
	if (r < 0)
		return r;
	*ret_own_bytes = blocks * DISK_BLOCK_BYTES;
	*ret_layers = k->nlayers;
	return 0;
}
