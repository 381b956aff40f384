/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of a map, read without blocking.
 *
 * How this works. A job is one snap_read(): its entries are looked up at once, in indexes that are mapped, and become
 * parts, one a frame. A part takes a buffer, is read (by the ring, or by pread in place), is checked and decoded, and
 * its pages are copied to where they belong. Parts that find no buffer or no room in the ring wait in a queue. A job
 * whose parts are all done waits for snap_reader_poll(), which calls @fn, and only that does.
 *
 * What is read is checked by the frame's own digest, and that the frame holds at that place the page that was looked
 * for; so neither a damaged pack nor a damaged index can make a wrong page. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "snapstore/ring.h"
#include "snapstore/snap_priv.h"

#define BUFFERS_SPARE 3u

struct job;
struct part {
	struct job *job;
	struct part *next; /* waiting */
	struct pack *pack; /* held */
	uint32_t frame;
	struct place place;
	uint8_t *buf; /* FRAME_MAX; NULL while it waits */
};

struct job {
	struct job *next; /* free, or done */
	snap_read_fn *fn;
	void *arg;
	uint8_t *pages;
	unsigned n, nparts, left;
	int code; /* the first failure */
	struct err err;
	struct snap_digest want[SNAP_WINDOW_PAGES];
	uint8_t part[SNAP_WINDOW_PAGES], slot[SNAP_WINDOW_PAGES]; /* part: nparts or more: not from a frame */
	struct part parts[SNAP_WINDOW_PAGES];
};

struct snap_reader {
	struct snap *s;
	struct ring *ring; /* NULL: pread */
	int event_fd;
	unsigned depth, nbufs, active; /* active: reads in the ring */
	uint64_t gone;		       /* packs that had gone when the ring's files were looked through */
	struct job *jobs, *free, *done, **done_last;
	struct part *waiting, **waiting_last;
	uint8_t **bufs; /* free ones, below nbufs_free; made when first needed */
	unsigned nbufs_free, nbufs_made;
	uint8_t *raw;
};

int snap_reader_new(struct snap *s, unsigned depth, bool use_uring, struct snap_reader **ret, bool *ret_uring,
		    struct err *e)
{
	struct snap_reader *r;
	struct err why = { 0 };

	if (depth < 1 || depth > 1024)
		return err_set(e, -EINVAL, "reader: a depth of %u", depth);
	r = calloc(1, sizeof(*r));
	if (!r)
		return err_set(e, -ENOMEM, "reader: no memory");
	*r = (struct snap_reader){ .s = s, .depth = depth, .nbufs = depth + BUFFERS_SPARE, .event_fd = -1 };
	r->done_last = &r->done;
	r->waiting_last = &r->waiting;
	r->jobs = calloc(depth, sizeof(*r->jobs));
	r->bufs = calloc(r->nbufs, sizeof(*r->bufs)); /* NOLINT(bugprone-sizeof-expression): of pointers */
	r->raw = malloc(FRAME_RAW_MAX);
	r->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!r->jobs || !r->bufs || !r->raw || r->event_fd < 0) {
		int code = r->event_fd < 0 ? -errno : -ENOMEM;

		snap_reader_free(r);
		return err_set(e, code, "reader: %s", err_name(code));
	}
	for (unsigned i = 0; i < depth; i++) {
		r->jobs[i].next = r->free;
		r->free = &r->jobs[i];
	}
	/* Without one it is slower, not wrong: @e tells why. */
	if (use_uring && ring_new(r->nbufs, r->event_fd, &r->ring, &why) < 0)
		err_set(e, why.code, "%s", why.msg);
	*ret_uring = r->ring != NULL;
	*ret = r;
	return 0;
}

int snap_reader_fd(const struct snap_reader *r)
{
	return r->event_fd;
}

/* -- parts -------------------------------------------------------------------------------------------------- */

static uint8_t *buf_take(struct snap_reader *r)
{
	uint8_t *buf;

	if (r->nbufs_free)
		return r->bufs[--r->nbufs_free];
	if (r->nbufs_made == r->nbufs)
		return NULL;
	buf = malloc(FRAME_MAX);
	r->nbufs_made += buf != NULL;
	return buf;
}

static void job_fail(struct job *j, int code, const struct err *e)
{
	if (j->code)
		return;
	j->code = code;
	j->err = *e;
}

static void part_end(struct snap_reader *r, struct part *p)
{
	struct job *j = p->job;

	p->pack = pack_unref(p->pack);
	if (p->buf)
		r->bufs[r->nbufs_free++] = p->buf;
	p->buf = NULL;
	if (--j->left)
		return;
	j->next = NULL;
	*r->done_last = j;
	r->done_last = &j->next;
}

/* The frame is in p->buf: its pages go to where they belong. */
static int part_take(struct snap_reader *r, const struct part *p, struct err *e)
{
	const struct job *j = p->job;
	struct frame f;
	int code = frame_open(&r->s->hash, p->buf, p->place.bytes, &f, e);

	if (code == 0)
		code = frame_unpack(&f, r->raw, e);
	if (code == 0 && f.unit != SNAP_PAGE_BYTES)
		code = err_set(e, -EBADMSG, "no pages there");
	for (unsigned i = 0; code == 0 && i < j->n; i++) {
		if (j->part[i] != p - j->parts)
			continue;
		if (j->slot[i] >= f.count || !snap_digest_equal(&f.digests[j->slot[i]], &j->want[i]))
			code = err_set(e, -EBADMSG, "its index says that a page is where it is not");
		else
			memcpy(j->pages + (size_t)i * SNAP_PAGE_BYTES, r->raw + (size_t)j->slot[i] * SNAP_PAGE_BYTES,
			       SNAP_PAGE_BYTES);
	}
	if (code < 0)
		err_wrap(e, "pack %016" PRIx64 " at %" PRIu64, p->pack->id, p->place.off);
	return code;
}

/* Read in place from @done on: without a ring, and what a ring left. */
static int part_pread(struct part *p, size_t done, struct err *e)
{
	while (done < p->place.bytes) {
		ssize_t n = pread(p->pack->fd, p->buf + done, p->place.bytes - done, (off_t)(p->place.off + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(e, -EIO, "pack %016" PRIx64 ": reading at %" PRIu64 ": %s", p->pack->id,
				       p->place.off, err_name(-errno));
		if (n == 0)
			return err_set(e, -EBADMSG, "pack %016" PRIx64 ": it is cut", p->pack->id);
		done += (size_t)n;
	}
	return 0;
}

static void part_finish(struct snap_reader *r, struct part *p, size_t have)
{
	struct err e = { 0 };
	int code = part_pread(p, have, &e);

	if (code == 0)
		code = part_take(r, p, &e);
	if (code < 0)
		job_fail(p->job, code, &e);
	part_end(r, p);
}

/* Begin what waits, as far as there is room. Without a ring everything is done here. */
static void begin_waiting(struct snap_reader *r)
{
	while (r->waiting) {
		struct part *p = r->waiting;
		unsigned slot = 0;
		int code = -EAGAIN;

		p->buf = buf_take(r);
		if (!p->buf && r->active)
			return; /* one comes back */
		r->waiting = p->next;
		if (!r->waiting)
			r->waiting_last = &r->waiting;
		if (!p->buf) {
			struct err e = { 0 };

			job_fail(p->job, -ENOMEM, (err_set(&e, -ENOMEM, "reader: no memory"), &e));
			part_end(r, p);
			continue;
		}
		if (r->ring)
			code = ring_file(r->ring, p->pack->id, p->pack->fd, &slot, NULL);
		if (code == 0)
			code = ring_read(r->ring, slot, p->buf, p->place.bytes, p->place.off, p);
		if (code == 0)
			r->active++;
		else
			part_finish(r, p, 0);
	}
}

/* -- jobs --------------------------------------------------------------------------------------------------- */

/* The part that reads the frame of @w, a new one when there is none. */
static unsigned part_of(struct job *j, const struct where *w)
{
	unsigned k = 0;

	while (k < j->nparts && (j->parts[k].pack != w->pack || j->parts[k].frame != w->frame))
		k++;
	if (k == j->nparts) {
		j->parts[k] =
			(struct part){ .job = j, .pack = pack_ref(w->pack), .frame = w->frame, .place = w->place };
		j->nparts++;
	}
	return k;
}

static int plan(struct snap_reader *r, struct job *j, struct snap_map *m, uint64_t index, uint32_t *ret_absent,
		struct err *e)
{
	struct where w;
	int code;

	*ret_absent = 0;
	for (unsigned i = 0; i < j->n; i++) {
		j->part[i] = SNAP_WINDOW_PAGES;
		code = snap_map_get(m, index + i, &j->want[i], e);
		if (code < 0)
			return code;
		if (snap_digest_equal(&j->want[i], &snap_absent)) {
			*ret_absent |= 1u << i;
		} else if (snap_digest_equal(&j->want[i], &snap_zero)) {
			memset(j->pages + (size_t)i * SNAP_PAGE_BYTES, 0, SNAP_PAGE_BYTES);
		} else {
			code = snap_find(r->s, &j->want[i], &w, e);
			if (code < 0)
				return code;
			j->part[i] = (uint8_t)part_of(j, &w);
			j->slot[i] = (uint8_t)w.slot;
		}
	}
	return 0;
}

static bool keep_file(void *arg, uint64_t id)
{
	return packs_get(arg, id) != NULL;
}

int snap_read(struct snap_reader *r, struct snap_map *m, uint64_t index, unsigned n, void *pages, uint32_t *ret_absent,
	      snap_read_fn *fn, void *arg, struct err *e)
{
	struct job *j = r->free;
	uint64_t one = 1;
	int code;

	if (n < 1 || n > SNAP_WINDOW_PAGES)
		return err_set(e, -EINVAL, "reader: %u pages at once", n);
	if (!j)
		return err_set(e, -EBUSY, "reader: %u reads are under way", r->depth);
	j->fn = fn;
	j->arg = arg;
	j->pages = pages;
	j->n = n;
	j->nparts = 0;
	j->code = 0;
	code = plan(r, j, m, index, ret_absent, e);
	if (code < 0) {
		for (unsigned k = 0; k < j->nparts; k++)
			pack_unref(j->parts[k].pack);
		return code;
	}
	r->free = j->next;
	if (r->ring && r->gone != r->s->packs.gone) {
		r->gone = r->s->packs.gone;
		ring_sweep(r->ring, keep_file, &r->s->packs);
	}
	j->left = j->nparts + 1; /* ours until all are on their way */
	for (unsigned k = 0; k < j->nparts; k++) {
		*r->waiting_last = &j->parts[k];
		r->waiting_last = &j->parts[k].next;
	}
	begin_waiting(r);
	if (--j->left == 0) {
		j->next = NULL;
		*r->done_last = j;
		r->done_last = &j->next;
	}
	if (r->ring && r->done && write(r->event_fd, &one, sizeof(one)) < 0)
		return 0; /* it counts to the brim: readable */
	return 0;
}

static void completed(struct snap_reader *r)
{
	struct part *p;
	int res;

	while (r->ring && (p = ring_next(r->ring, &res))) {
		r->active--;
		/* What did not come (an interruption, a short read, an error) is tried once more, in place. */
		part_finish(r, p, res > 0 ? (size_t)res : 0);
	}
}

void snap_reader_poll(struct snap_reader *r)
{
	uint64_t count;

	if (r->ring && read(r->event_fd, &count, sizeof(count)) < 0)
		count = 0;
	completed(r);
	begin_waiting(r);
	while (r->done) {
		struct job *j = r->done;
		struct err e = j->err;
		snap_read_fn *fn = j->fn;
		void *arg = j->arg;
		int code = j->code;

		r->done = j->next;
		if (!r->done)
			r->done_last = &r->done;
		j->next = r->free;
		r->free = j;
		fn(arg, code, code ? &e : NULL);
	}
}

struct snap_reader *snap_reader_free(struct snap_reader *r)
{
	if (!r)
		return NULL;
	while (r->waiting) {
		struct part *p = r->waiting;

		r->waiting = p->next;
		pack_unref(p->pack);
	}
	r->waiting_last = &r->waiting;
	while (r->active && ring_wait(r->ring) == 0)
		completed(r);
	ring_free(r->ring);
	for (unsigned i = 0; r->bufs && i < r->nbufs_free; i++)
		free(r->bufs[i]);
	free(r->bufs);
	free(r->jobs);
	free(r->raw);
	fd_close(&r->event_fd);
	free(r);
	return NULL;
}
