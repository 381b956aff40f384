/* SPDX-License-Identifier: Apache-2.0 */
/* Disks and the block server, in a thread with a loop of its own: they block on files, faults must not wait for that.
 *
 * Requests go over, and come back answered, as pointers through two pipes: in order, bounded by the pipe, whole by its
 * rules (8 bytes are written at once or not at all). Whoever holds the pointer owns the struct. Nothing else is shared.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "snapstore/disk/disk.h"
#include "snapstore/pager/core.h"

#define DISK_CALL_FREEZE 1000 /* beside the types of pager.h */

struct disk_call {
	unsigned type;
	struct pg_call call;
	struct pg_request q;
	int base_fd;
	pg_done_fn *fn; /* FREEZE */
	void *arg;
	int code;
	struct err e;
	struct buf answer;
	int fds[MSG_FDS_MAX];
	size_t nfds;
};

struct pg_disks {
	struct pager *p;
	int to[2], from[2]; /* read, write */
	loop_id from_watch;
	pthread_t thread;
	bool runs;
	/* the thread's: */
	struct loop *loop;
	loop_id to_watch;
	struct snap *snap; /* NULL: no store yet */
	struct disks *disks;
	struct nbd *nbd;
	struct disk_call *making_room; /* no other call is taken up before it is answered; blocks are */
	loop_id room_defer;
};

static void disk_call_free(struct disk_call *a)
{
	fd_close(&a->base_fd);
	for (size_t i = 0; i < a->nfds; i++)
		fd_close(&a->fds[i]);
	buf_fini(&a->answer);
	free(a);
}

/* A pointer through a pipe. NULL says: the end. */
static int put(int fd, struct disk_call *a)
{
	uintptr_t word = (uintptr_t)a;
	ssize_t n = write(fd, &word, sizeof(word));

	return n == (ssize_t)sizeof(word) ? 0 : n < 0 && errno == EAGAIN ? -EBUSY : -EIO;
}

static bool get(int fd, struct disk_call **ret)
{
	uintptr_t word;

	if (read(fd, &word, sizeof(word)) != (ssize_t)sizeof(word))
		return false;
	*ret = (struct disk_call *)word; // NOLINT(performance-no-int-to-ptr): it was one
	return true;
}

/* -- in the thread ------------------------------------------------------------------------------------------ */

/* The root of a stored snapshot's disk. -ENOENT: none, or no store. */
static int stored_disk(struct pg_disks *d, const char *snapshot, struct snap_manifest *ret, struct err *e)
{
	int r;

	if (!d->snap)
		return err_set(e, -ENOENT, "snapshot %s: there is no store", snapshot);
	r = snap_manifest_read(d->snap, snapshot, ret, e);
	if (r == 0 && !ret->disk_blocks) {
		snap_manifest_fini(ret);
		r = err_set(e, -ENOENT, "snapshot %s has no disk", snapshot);
	}
	return r;
}

static int create_stored(struct pg_disks *d, const struct pg_request *q, const struct disk_origin *o, struct err *e)
{
	struct disk_origin base = *o;
	struct snap_manifest m = { 0 };
	int r = stored_disk(d, q->snapshot, &m, e);

	if (r < 0)
		return r;
	*base.snapshot = 0;
	r = disk_create_from_store(d->disks, q->snapshot, m.disk_blocks * DISK_BLOCK_BYTES, &base, &m.disk, e);
	snap_manifest_fini(&m);
	return r;
}

static int create(struct pg_disks *d, struct disk_call *a)
{
	const struct pg_request *q = &a->q;
	struct disk_origin o = { .base_fd = a->base_fd };
	int r = 0;

	memcpy(o.base, q->name, sizeof(q->name));
	memcpy(o.snapshot, q->snapshot, sizeof(q->snapshot));
	if (*q->snapshot && !disk_exists(d->disks, q->snapshot))
		r = create_stored(d, q, &o, &a->e);
	return r < 0 ? r : disk_create(d->disks, q->id, q->bytes, q->limit, &o, &a->e);
}

static int stored(struct pg_disks *d, struct disk_call *a)
{
	struct snap_manifest m = { 0 };
	int r;

	if (!disk_exists(d->disks, a->q.snapshot))
		return 0;
	r = stored_disk(d, a->q.snapshot, &m, &a->e);
	if (r < 0)
		return r;
	r = disk_snapshot_stored(d->disks, a->q.snapshot, &m.disk, &a->e);
	snap_manifest_fini(&m);
	return r;
}

static int files(struct pg_disks *d, struct disk_call *a)
{
	struct disk_files f = { 0 };
	int r = disk_snapshot_files(d->disks, a->q.snapshot, a->q.parent, &f, &a->e);

	if (r < 0)
		return r;
	for (unsigned i = 0; i < f.n; i++) {
		a->fds[a->nfds++] = f.data[i];
		a->fds[a->nfds++] = f.map[i];
	}
	return wire_put_u32(&a->answer, f.n);
}

static int disk_numbers(struct pg_disks *d, struct disk_call *a)
{
	uint64_t own = 0;
	unsigned layers = 0;
	int r = disk_stat(d->disks, a->q.id, &own, &layers, &a->e);

	if (r == 0)
		r = wire_put_u64(&a->answer, own);
	return r < 0 ? r : wire_put_u32(&a->answer, layers);
}

/* A write that is under way would be in neither the snapshot nor the machine's pages. */
static int freeze(struct pg_disks *d, struct disk_call *a)
{
	if (nbd_busy(d->nbd, a->q.id))
		return err_set(&a->e, -EBUSY, "%s: requests are under way: its machine is not paused", a->q.id);
	return disk_freeze(d->disks, a->q.id, a->q.snapshot, &a->e);
}

static int answer(struct pg_disks *d, struct disk_call *a)
{
	struct pg_request *q = &a->q;

	switch (a->type) {
	case PAGER_DISK_CREATE:
		return create(d, a);
	case PAGER_DISK_REMOVE:
		return disk_remove(d->disks, q->id, &a->e);
	case PAGER_DISK_EXPORT:
		return nbd_export(d->nbd, q->name, q->id, q->uid, &a->e);
	case PAGER_DISK_UNEXPORT:
		nbd_unexport(d->nbd, q->name);
		return 0;
	case PAGER_DISK_SYNC:
		return disk_sync(d->disks, q->id, &a->e);
	case PAGER_DISK_FILES:
		return files(d, a);
	case PAGER_DISK_STAT:
		return disk_numbers(d, a);
	case PAGER_STORED:
		return stored(d, a);
	case PAGER_FORGET:
		return disk_remove(d->disks, q->snapshot, &a->e);
	case DISK_CALL_FREEZE:
		return q->id[0] ? freeze(d, a) : 0;
	default:
		return err_set(&a->e, -ENOSYS, "request %u is not one of disks", a->type);
	}
}

/* A full stack that is to be frozen gets room for a top, in steps. 1: not yet. */
static int make_room(struct pg_disks *d, struct disk_call *a)
{
	return a->type == DISK_CALL_FREEZE && a->q.id[0] ? disk_make_room(d->disks, a->q.id, &a->e) : 0;
}

/* Other machines' blocks are served between two steps; other calls wait, as they do behind a call that takes long. */
static void serve(void *arg)
{
	struct pg_disks *d = arg;
	struct disk_call *a = d->making_room;
	int r = make_room(d, a);

	d->room_defer = 0;
	if (r > 0 && loop_mod(d->loop, d->to_watch, 0) == 0 && loop_defer(d->loop, serve, d, &d->room_defer) == 0)
		return;
	d->making_room = NULL;
	loop_mod(d->loop, d->to_watch, EPOLLIN);
	a->code = r < 0 ? r : answer(d, a);
	if (a->code < 0 && !*a->e.msg)
		err_set(&a->e, a->code, "disk: %s", err_name(a->code));
	put(d->from[1], a); /* may wait for the loop, which never waits for us */
}

static void on_call(void *arg, uint32_t events)
{
	struct pg_disks *d = arg;
	struct disk_call *a;

	(void)events;
	if (!get(d->to[0], &a))
		return;
	if (!a) { /* the end */
		loop_stop(d->loop);
		return;
	}
	if (!d->snap && snap_open(d->p->params.rootfd, d->p->params.store, SNAP_READ, &d->snap, NULL) == 0)
		disks_set_snap(d->disks, d->snap);
	d->making_room = a;
	serve(d);
}

static void *run(void *arg)
{
	struct pg_disks *d = arg;

	loop_run(d->loop);
	return NULL;
}

/* -- in the loop's thread ----------------------------------------------------------------------------------- */

static void on_answer(void *arg, uint32_t events)
{
	struct pg_disks *d = arg;
	struct disk_call *a;

	(void)events;
	if (!get(d->from[0], &a))
		return;
	if (a->fn)
		a->fn(a->arg, a->code, a->e.msg);
	else if (a->code < 0)
		pg_reply_err(&a->call, &a->e);
	else
		pg_reply(&a->call, 0, NULL, &a->answer, a->fds, a->nfds);
	disk_call_free(a);
}

static struct disk_call *disk_call_new(unsigned type, const struct pg_call *c)
{
	struct disk_call *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->type = type;
	if (c)
		a->call = *c;
	a->base_fd = -1;
	buf_init(&a->answer, 4096);
	return a;
}

void pg_disks_ask(struct pg_disks *d, const struct pg_call *c, const struct pg_request *q, int base_fd)
{
	struct disk_call *a = disk_call_new(q->type, c);
	int r;

	if (!a) {
		fd_close(&base_fd);
		pg_reply(c, -ENOMEM, "disks: no memory", NULL, NULL, 0);
		return;
	}
	a->q = *q;
	a->base_fd = base_fd;
	r = put(d->to[1], a);
	if (r < 0) {
		pg_reply(c, r, "disks: too much is under way", NULL, NULL, 0);
		disk_call_free(a);
	}
}

/* About a snapshot; the answer, if anybody wants one, goes to @fn. */
static int call_snapshot(struct pg_disks *d, unsigned type, const char *id, const char *snapshot, pg_done_fn *fn,
			 void *arg)
{
	struct disk_call *a = disk_call_new(type, &(struct pg_call){ .p = d->p });
	int r;

	if (!a)
		return -ENOMEM;
	snprintf(a->q.id, sizeof(a->q.id), "%s", id);
	snprintf(a->q.snapshot, sizeof(a->q.snapshot), "%s", snapshot);
	a->fn = fn;
	a->arg = arg;
	r = put(d->to[1], a);
	if (r < 0)
		disk_call_free(a);
	return r;
}

int pg_disks_freeze(struct pg_disks *d, const char *id, const char *snapshot, pg_done_fn *fn, void *arg)
{
	return call_snapshot(d, DISK_CALL_FREEZE, id, snapshot, fn, arg);
}

void pg_disks_stored(struct pg_disks *d, const char *snapshot)
{
	call_snapshot(d, PAGER_STORED, "", snapshot, NULL, NULL);
}

void pg_disks_forget(struct pg_disks *d, const char *snapshot)
{
	call_snapshot(d, PAGER_FORGET, "", snapshot, NULL, NULL);
}

int pg_disks_new(struct pager *p, struct pg_disks **ret, struct err *e)
{
	struct pg_disks *d = calloc(1, sizeof(*d));
	struct err ignored = { 0 };
	int r;

	if (!d)
		return err_set(e, -ENOMEM, "disks: no memory");
	d->p = p;
	d->to[0] = d->to[1] = d->from[0] = d->from[1] = -1;
	r = loop_new(&d->loop);
	if (r == 0 && (pipe2(d->to, O_CLOEXEC) < 0 || pipe2(d->from, O_CLOEXEC) < 0))
		r = -errno;
	if (r == 0)
		r = fd_set_nonblock(d->to[1], true); /* full: the daemon is told */
	if (r == 0)
		r = loop_add(d->loop, d->to[0], EPOLLIN, on_call, d, &d->to_watch);
	if (r == 0)
		r = loop_add(p->loop, d->from[0], EPOLLIN, on_answer, d, &d->from_watch);
	if (r < 0)
		err_set(e, r, "disks: %s", err_name(r));
	if (r == 0) /* there may be none yet */
		snap_open(p->params.rootfd, p->params.store, SNAP_READ, &d->snap, &ignored);
	if (r == 0)
		r = disks_open(p->params.disksfd, d->snap, &d->disks, e);
	if (r == 0)
		r = nbd_new(d->loop, take_fd(&p->params.blocks_fd), d->disks, &d->nbd, e);
	if (r == 0) {
		r = -pthread_create(&d->thread, NULL, run, d);
		d->runs = r == 0;
		if (r < 0)
			err_set(e, r, "disks: thread: %s", err_name(r));
	}
	if (r < 0) {
		pg_disks_free(d);
		return r;
	}
	*ret = d;
	return 0;
}

static void drain(int fd)
{
	struct disk_call *a;

	if (fd < 0 || fd_set_nonblock(fd, true) < 0)
		return;
	while (get(fd, &a)) {
		if (a && a->fn)
			a->fn(a->arg, -ECANCELED, "the pager ends");
		if (a)
			disk_call_free(a);
	}
}

struct pg_disks *pg_disks_free(struct pg_disks *d)
{
	if (!d)
		return NULL;
	if (d->runs) {
		/* Answers may fill their pipe while we say so: it holds as many as the other one. */
		fd_set_nonblock(d->to[1], false);
		put(d->to[1], NULL);
		pthread_join(d->thread, NULL);
	}
	loop_del(d->p->loop, &d->from_watch);
	drain(d->to[0]);
	drain(d->from[0]);
	d->nbd = d->nbd ? nbd_free(d->nbd) : NULL;
	d->disks = d->disks ? disks_close(d->disks) : NULL;
	d->snap = d->snap ? snap_close(d->snap) : NULL;
	if (d->loop)
		loop_del(d->loop, &d->to_watch);
	d->loop = loop_free(d->loop);
	fd_close(&d->to[0]);
	fd_close(&d->to[1]);
	fd_close(&d->from[0]);
	fd_close(&d->from[1]);
	free(d);
	return NULL;
}
