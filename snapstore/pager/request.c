/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's requests about memory: one function each. What takes time goes on in ahead.c, look.c or capture.c and
 * answers from there, by a struct pending. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "snapstore/pager/bits.h"
#include "snapstore/pager/core.h"

/* A request whose answer comes later. The template, if it is about one, is held. */
struct pending {
	struct pg_call call;
	struct pg_template *t;
	struct pg_request q;
	int fds[3];
	struct pg_capture_result captured;
	bool whole;	  /* CAPTURE: its machine has no userfaultfd, and may go on before it is attached again */
	struct buf reply; /* the same */
};

static struct pending *pending_new(const struct pg_call *c, const struct pg_request *q, struct pg_template *t)
{
	struct pending *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->call = *c;
	w->q = *q;
	w->t = t;
	buf_init(&w->reply, MSG_MAX);
	for (size_t i = 0; i < ARRAY_LEN(w->fds); i++)
		w->fds[i] = -1;
	if (t)
		t->refs++;
	return w;
}

static void pending_free(struct pending *w)
{
	for (size_t i = 0; i < ARRAY_LEN(w->fds); i++)
		fd_close(&w->fds[i]);
	pg_template_unref(w->t);
	buf_fini(&w->reply);
	free(w);
}

static int no_memory(struct err *e)
{
	return err_set(e, -ENOMEM, "pager: no memory");
}

/* {ranges} after what is in @b; descriptors: the template, and @fd2 if there is one. */
static int reply_template(const struct pg_call *c, struct pg_template *t, struct buf *b, int fd2, struct err *e)
{
	struct pg_range ranges[PAGER_RANGES_MAX];
	AUTO_FD fd = -1;
	int r = pg_template_reopen(t, &fd, e);

	if (r < 0)
		return r;
	if (pg_ranges_put(b, ranges, pg_zero_ranges(t, ranges)) < 0)
		return no_memory(e);
	pg_reply(c, 0, NULL, b, (int[]){ fd, fd2 }, fd2 < 0 ? 1 : 2);
	return 0;
}

static int find(struct pager *p, const char *snapshot, struct pg_template **ret, struct err *e)
{
	*ret = pg_template_find(p, snapshot);
	return *ret ? 0 : err_set(e, -ENOENT, "template %s is not here", snapshot);
}

/* Its pages can be had. */
static int ready(const struct pg_template *t, uint64_t bytes, struct err *e)
{
	if (t->state != PG_CAPTURED && t->state != PG_STORED)
		return err_set(e, -EBUSY, "template %s is being made", t->snapshot);
	if (t->bytes != bytes)
		return err_set(e, -EINVAL, "template %s has %llu bytes, not %llu", t->snapshot,
			       (unsigned long long)t->bytes, (unsigned long long)bytes);
	return 0;
}

/* -- TEMPLATE ----------------------------------------------------------------------------------------------- */

/* What waits for a template to be looked through. */
struct pg_wait {
	struct pg_wait *next;
	struct pg_template *t;
	pg_done_fn *fn;
	void *arg;
};

static void on_looked(void *arg, int code, const char *words)
{
	struct pg_template *t = arg;
	struct pager *p = t->p;
	struct pg_wait **at = &p->waits;

	if (code < 0)
		t->forgotten = true; /* gone when the last one here has let go */
	while (*at) {
		struct pg_wait *w = *at;

		if (w->t != t) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->fn(w->arg, code, words);
		free(w);
	}
}

/* Call @fn, from the loop or now, when the opening template @t is stored, or cannot be. */
static int wait_for(struct pg_template *t, pg_done_fn *fn, void *arg, struct err *e)
{
	struct pg_wait *w = calloc(1, sizeof(*w)), **at = &t->p->waits;

	if (!w)
		return no_memory(e);
	*w = (struct pg_wait){ .t = t, .fn = fn, .arg = arg };
	while (*at)
		at = &(*at)->next;
	*at = w;
	return 0;
}

/* A template of a stored snapshot that is not here. */
static int open_stored(struct pager *p, const char *snapshot, uint64_t bytes, struct pg_template **ret, struct err *e)
{
	struct pg_template *t;
	int r = pg_template_new(p, snapshot, bytes, NULL, false, &t, e);

	if (r < 0)
		return r;
	t->state = PG_OPENING;
	r = pg_look(t, on_looked, t, e);
	if (r < 0) {
		t->forgotten = true;
		pg_template_gone(t);
		return r;
	}
	*ret = t;
	return 0;
}

static void template_filled(void *arg, int code, const char *words)
{
	struct pending *w = arg;
	struct err e = { 0 };
	struct buf b;

	buf_init(&b, MSG_MAX);
	if (code < 0)
		pg_reply(&w->call, code, words, NULL, NULL, 0);
	else if (reply_template(&w->call, w->t, &b, -1, &e) < 0)
		pg_reply_err(&w->call, &e);
	buf_fini(&b);
	pending_free(w);
}

static void template_there(void *arg, int code, const char *words)
{
	struct pending *w = arg;
	uint32_t n = 0;
	bool whole = w->q.whole;
	const uint32_t *pages = code < 0 || whole ? NULL : pg_workset_get(w->call.p, w->t->snapshot, &n);
	struct err e = { 0 };

	if (code == 0 && ready(w->t, w->q.bytes, &e) < 0)
		template_filled(w, e.code, e.msg);
	else if (code < 0 || !(whole || pages))
		template_filled(w, code, words);
	else if (pg_ahead(w->t, pages, n, whole, template_filled, w) < 0)
		template_filled(w, whole ? -ENOMEM : 0, "reading it: no memory");
}

static int do_template(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t = pg_template_find(c->p, q->snapshot);
	struct pending *w;
	int r = 0;

	if (t && t->forgotten)
		return err_set(e, -ENOENT, "template %s was let go", q->snapshot);
	if (!t)
		r = open_stored(c->p, q->snapshot, q->bytes, &t, e);
	if (r < 0)
		return r;
	t->used_ns = now_ns();
	w = pending_new(c, q, t);
	if (!w)
		return no_memory(e);
	if (t->state != PG_OPENING) {
		template_there(w, 0, "");
		return 0;
	}
	r = wait_for(t, template_there, w, e);
	if (r < 0)
		pending_free(w);
	return r;
}

/* -- ATTACH ------------------------------------------------------------------------------------------------- */

static void attach_filled(void *arg, int code, const char *words)
{
	struct pending *w = arg;
	struct err e = { 0 };

	if (code == 0)
		code = pg_machine_attach(w->call.p, &w->q, w->t, -1, take_fd(&w->fds[0]), take_fd(&w->fds[1]), &e);
	else
		err_set(&e, code, "%s", words);
	if (code < 0) {
		w->t->whole--;
		pg_reply_err(&w->call, &e);
	} else {
		pg_reply(&w->call, 0, NULL, NULL, NULL, 0);
	}
	pending_free(w);
}

/* Without userfaultfd a hole reads as zeros: nothing runs on it before it is full. */
static int attach_whole(const struct pg_call *c, const struct pg_request *q, struct pg_template *t, struct msg *m,
			struct err *e)
{
	struct pending *w = pending_new(c, q, t);

	if (!w)
		return no_memory(e);
	w->fds[0] = take_fd(&m->fds[0]);
	w->fds[1] = take_fd(&m->fds[1]);
	t->whole++;
	if (pg_ahead(t, NULL, 0, true, attach_filled, w) < 0) {
		t->whole--;
		pending_free(w);
		return no_memory(e);
	}
	return 0;
}

static int do_attach(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e);

/* Its template was adopted a moment ago, and is known now; or cannot be. */
static void attach_opened(void *arg, int code, const char *words)
{
	struct pending *w = arg;
	struct msg m = { 0 };
	struct err e = { 0 };

	if (code < 0)
		err_set(&e, code, "%s", words);
	for (size_t i = 0; i < ARRAY_LEN(w->fds); i++) {
		if (w->fds[i] >= 0)
			m.fds[m.nfds++] = take_fd(&w->fds[i]);
	}
	if (code < 0 || do_attach(&w->call, &w->q, &m, &e) < 0)
		pg_reply_err(&w->call, &e);
	msg_close_fds(&m);
	pending_free(w);
}

static int attach_later(const struct pg_call *c, const struct pg_request *q, struct pg_template *t, struct msg *m,
			struct err *e)
{
	struct pending *w = pending_new(c, q, t);
	int r = w ? wait_for(t, attach_opened, w, e) : no_memory(e);

	if (r < 0 && w)
		pending_free(w);
	for (size_t i = 0; r == 0 && i < m->nfds; i++)
		w->fds[i] = take_fd(&m->fds[i]);
	return r;
}

static int do_attach(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e)
{
	struct pg_template *t = NULL;
	bool uffd = m->nfds == 3;
	int r = 0;

	if (*q->snapshot) {
		r = find(c->p, q->snapshot, &t, e);
		if (r == 0 && t->state == PG_OPENING)
			return attach_later(c, q, t, m, e);
		if (r == 0)
			r = ready(t, q->bytes, e);
		if (r == 0 && !uffd)
			return attach_whole(c, q, t, m, e);
	}
	if (r == 0)
		r = pg_machine_attach(c->p, q, t, uffd ? take_fd(&m->fds[0]) : -1, take_fd(&m->fds[uffd]),
				      take_fd(&m->fds[uffd + 1]), e);
	if (r == 0)
		pg_reply(c, 0, NULL, NULL, NULL, 0);
	return r;
}

static int do_detach(const struct pg_call *c, const struct pg_request *q)
{
	struct pg_machine *m = pg_machine_find(c->p, q->machine);

	if (m)
		pg_machine_detach(m);
	pg_reply(c, 0, NULL, NULL, NULL, 0);
	pg_evict_check(c->p);
	return 0;
}

/* -- captures ----------------------------------------------------------------------------------------------- */

/* Captured pages stay until they are stored: they alone must not pass the budget. The first one always may. */
static int check_budget(struct pager *p, struct err *e)
{
	uint64_t bytes = 0;

	for (struct pg_template *t = p->templates; t; t = t->next)
		if (t->state != PG_STORED)
			bytes += (uint64_t)t->nown * SNAP_PAGE_BYTES;
	if (bytes && bytes >= p->budget_bytes)
		return err_set(e, -ENOMEM, "host memory: %llu MiB of snapshots are not in the store yet",
			       (unsigned long long)(bytes >> 20));
	return 0;
}

static int do_capture_begin(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *parent = NULL, *t = NULL;
	struct buf none = { 0 };
	AUTO_FD fd = -1;
	int r = check_budget(c->p, e);

	if (r == 0 && *q->parent)
		r = find(c->p, q->parent, &parent, e);
	if (r == 0 && parent)
		r = ready(parent, q->bytes, e);
	if (r == 0)
		r = pg_template_new(c->p, q->snapshot, q->bytes, parent, true, &t, e);
	if (!t)
		return r;
	t->state = PG_BEGUN;
	r = pg_template_reopen(t, &fd, e);
	if (r < 0) {
		t->forgotten = true;
		pg_template_gone(t);
		return r;
	}
	pg_reply(c, 0, NULL, &none, &fd, 1);
	return 0;
}

static void capture_failed(struct pending *w, int code, const char *words)
{
	pg_template_empty(w->t);
	w->t->state = PG_BEGUN;
	pg_reply(&w->call, code, words, NULL, NULL, 0);
	pending_free(w);
}

static void capture_frozen(void *arg, int code, const char *words)
{
	struct pending *w = arg;
	struct err e = { 0 };

	if (code < 0) {
		err_set(&e, code, "disk: %s", words);
		capture_failed(w, code, e.msg);
		return;
	}
	/* From here on it is there, whether the answer arrives or not: CAPTURED tells of it. */
	w->t->state = PG_CAPTURED;
	w->t->pinned = w->whole;
	w->t->whole += w->whole;
	pg_reply(&w->call, 0, NULL, &w->reply, w->fds, 1);
	pending_free(w);
}

/* The memory is there. The disk is last: what is frozen stays so, and nothing may fail behind it. */
static void capture_filled(void *arg, int code, const char *words)
{
	struct pending *w = arg;
	struct pager *p = w->call.p;
	struct pg_range ranges[PAGER_RANGES_MAX];
	struct err e = { 0 };

	err_set(&e, code, "what it has not written: %s", words);
	if (code == 0)
		code = pg_bits_memfd(w->t, &w->fds[0], &e);
	if (code == 0 &&
	    (wire_put_u64(&w->reply, w->captured.pages) < 0 || wire_put_u64(&w->reply, w->captured.ns) < 0 ||
	     pg_ranges_put(&w->reply, ranges, pg_zero_ranges(w->t, ranges)) < 0))
		code = no_memory(&e);
	if (code < 0) {
		capture_failed(w, code, e.msg);
		return;
	}
	code = p->disks ? pg_disks_freeze(p->disks, w->q.id, w->q.snapshot, capture_frozen, w) : -ENOSYS;
	if (code == -ENOSYS)
		capture_frozen(w, 0, "");
	else if (code < 0)
		capture_frozen(w, code, err_name(code));
}

static void capture_copied(void *arg, const struct pg_capture_result *res, int code, const char *words)
{
	struct pending *w = arg;

	if (code < 0) {
		pg_reply(&w->call, code, words, NULL, NULL, 0);
		pending_free(w);
		return;
	}
	w->captured = *res;
	if (!w->whole)
		capture_filled(w, 0, "");
	else if (pg_ahead(w->t, NULL, 0, true, capture_filled, w) < 0)
		capture_filled(w, -ENOMEM, "no memory");
}

static int do_capture(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_machine *m = pg_machine_find(c->p, q->machine);
	struct pg_template *t;
	struct pending *w;
	int r = find(c->p, q->snapshot, &t, e);

	if (!t)
		return r;
	if (!m)
		return err_set(e, -ENOENT, "machine %s is not attached", q->machine);
	if (t->state != PG_BEGUN)
		return err_set(e, -EEXIST, "template %s was captured already", q->snapshot);
	if (m->t != t->parent || m->bytes != t->bytes)
		return err_set(e, -EINVAL, "template %s does not grow out of the memory of machine %s", q->snapshot,
			       q->machine);
	w = pending_new(c, q, t);
	if (!w)
		return no_memory(e);
	w->whole = m->t && m->uffd < 0;
	r = pg_capture(m, t, capture_copied, w, e);
	if (r < 0)
		pending_free(w);
	return r;
}

static int do_captured(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t;
	AUTO_FD bits = -1;
	struct buf b;
	int r = find(c->p, q->snapshot, &t, e);

	if (r == 0 && t->state != PG_CAPTURED)
		r = err_set(e, -ENOENT, "template %s is not one that waits for the store", q->snapshot);
	if (r == 0)
		r = pg_bits_memfd(t, &bits, e);
	if (r < 0)
		return r;
	buf_init(&b, MSG_MAX);
	r = wire_put_u64(&b, t->bytes) < 0 ? no_memory(e) : reply_template(c, t, &b, bits, e);
	buf_fini(&b);
	return r;
}

static int do_stored(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t = pg_template_find(c->p, q->snapshot);
	int r = t && t->state == PG_CAPTURED ? pg_look_stored(t, e) : 0;

	if (r < 0)
		return r;
	if (t)
		pg_template_unpin(t);
	if (c->p->disks)
		pg_disks_stored(c->p->disks, q->snapshot);
	pg_reply(c, 0, NULL, NULL, NULL, 0);
	pg_evict_check(c->p);
	return 0;
}

static void forgotten_filled(void *arg, int code, const char *words)
{
	struct pending *w = arg;

	(void)code; /* what could not be read is lost when somebody touches it */
	(void)words;
	pg_reply(&w->call, 0, NULL, NULL, NULL, 0);
	pending_free(w);
}

/* Its machines, and snapshots that grow out of it, go on, although the store may throw its pages away once this is
 * answered: all of it is read before, and stays. */
static bool keep_whole(const struct pg_call *c, const struct pg_request *q, struct pg_template *t)
{
	struct pending *w = t->refs && t->state == PG_STORED ? pending_new(c, q, t) : NULL;

	if (!w)
		return false;
	t->whole++; /* until it goes */
	if (pg_ahead(t, NULL, 0, false, forgotten_filled, w) == 0)
		return true;
	pending_free(w);
	return false;
}

static int do_forget(const struct pg_call *c, const struct pg_request *q)
{
	struct pg_template *t = pg_template_find(c->p, q->snapshot);
	bool later = t && !t->forgotten && keep_whole(c, q, t);

	pg_workset_forget(c->p, q->snapshot);
	if (c->p->disks)
		pg_disks_forget(c->p->disks, q->snapshot);
	if (t) {
		t->forgotten = true;
		pg_template_gone(t);
	}
	if (!later)
		pg_reply(c, 0, NULL, NULL, NULL, 0);
	return 0;
}

/* -- ADOPT -------------------------------------------------------------------------------------------------- */

/* Bits of captured pages, as a file of a former pager's. */
static int read_own(struct pg_template *t, int fd, struct err *e)
{
	size_t len = ((size_t)t->pages + 7) / 8;
	ssize_t n = pread(fd, t->own, len, 0);

	if (n < 0 || (size_t)n != len)
		return err_set(e, n < 0 ? -errno : -EBADMSG, "template %s: its bits cannot be read", t->snapshot);
	t->nown = bits_count(t->own, t->pages);
	for (size_t w = 0; w < bits_words(t->pages); w++)
		t->zero[w] = ((t->parent ? t->parent->zero[w] : ~UINT64_C(0)) | t->own[w]) & ~t->resident[w];
	return 0;
}

/* The parent, if there is to be one, is ready. */
static void adopt_parent_there(void *arg, int code, const char *words)
{
	struct pending *w = arg; /* its template: the parent, or NULL */
	struct pg_template *t;
	struct err e = { 0 };

	if (code < 0)
		err_set(&e, code, "%s", words);
	else if (w->t)
		code = ready(w->t, w->q.bytes, &e);
	if (code == 0)
		code = pg_template_adopt(w->call.p, w->fds[0], w->q.snapshot, w->q.bytes, w->t, true, &t, &e);
	if (code == 0) {
		code = read_own(t, w->fds[1], &e);
		t->state = PG_CAPTURED;
		t->forgotten = code < 0;
		pg_template_gone(t);
	}
	if (code < 0)
		pg_reply_err(&w->call, &e);
	else
		pg_reply(&w->call, 0, NULL, NULL, NULL, 0);
	pending_free(w);
}

static int adopt_captured(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e)
{
	struct pg_template *parent = *q->parent ? pg_template_find(c->p, q->parent) : NULL;
	struct pending *w;
	int r = 0;

	if (*q->parent && !parent) /* adopted later, or only in the store: its holes come from there */
		r = open_stored(c->p, q->parent, q->bytes, &parent, e);
	if (r < 0)
		return r;
	w = pending_new(c, q, parent);
	if (!w)
		return no_memory(e);
	w->fds[0] = take_fd(&m->fds[0]);
	w->fds[1] = take_fd(&m->fds[1]);
	if (!parent || parent->state != PG_OPENING) {
		adopt_parent_there(w, 0, "");
		return 0;
	}
	r = wait_for(parent, adopt_parent_there, w, e);
	if (r < 0)
		pending_free(w);
	return r;
}

static void adopted_stored(void *arg, int code, const char *words)
{
	struct pending *w = arg;

	pg_reply(&w->call, code, words, NULL, NULL, 0);
	pending_free(w);
}

static int do_adopt(const struct pg_call *c, const struct pg_request *q, struct msg *m, struct err *e)
{
	struct pg_template *t;
	struct pending *w = NULL;
	int r;

	if (!q->stored)
		return adopt_captured(c, q, m, e);
	r = pg_template_adopt(c->p, m->fds[0], q->snapshot, q->bytes, NULL, false, &t, e);
	if (r < 0)
		return r;
	t->state = PG_OPENING;
	w = pending_new(c, q, t);
	r = w ? wait_for(t, adopted_stored, w, e) : no_memory(e);
	if (r == 0)
		r = pg_look(t, on_looked, t, e);
	if (r < 0) {
		t->forgotten = true;
		if (w)
			on_looked(t, r, e->msg); /* answers */
		else
			pg_template_gone(t);
		return w ? 0 : r;
	}
	return 0;
}

/* -- the rest ----------------------------------------------------------------------------------------------- */

static int do_workset(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t;
	AUTO_FD fd = -1;
	int r = find(c->p, q->snapshot, &t, e);

	if (r == 0)
		r = pg_workset_list(t, &fd, e);
	if (r == 0)
		pg_reply(c, 0, NULL, NULL, &fd, 1);
	return r;
}

static int do_evict(const struct pg_call *c, const struct pg_request *q, struct err *e)
{
	struct pg_template *t = NULL;
	int r = 0;

	if (*q->snapshot)
		r = find(c->p, q->snapshot, &t, e);
	else
		t = pg_evict_least(c->p, true);
	if (r < 0)
		return r;
	if (t)
		pg_evict(t);
	pg_reply(c, 0, NULL, NULL, NULL, 0);
	return 0;
}

static int do_text(const struct pg_call *c, int (*text)(struct pager *p, struct buf *out), struct err *e)
{
	struct buf b;
	int r;

	buf_init(&b, MSG_MAX - 1024);
	r = text(c->p, &b);
	if (r == 0)
		pg_reply(c, 0, NULL, &b, NULL, 0);
	else
		err_set(e, r == -EFBIG ? -E2BIG : r, "more than a message holds");
	buf_fini(&b);
	return r;
}

void pg_request(const struct pg_call *c, struct pg_request *q, struct msg *m)
{
	struct err e = { 0 };
	int r = 0;

	switch (q->type) {
	case PAGER_TEMPLATE:
		r = do_template(c, q, &e);
		break;
	case PAGER_ATTACH:
		r = do_attach(c, q, m, &e);
		break;
	case PAGER_DETACH:
		r = do_detach(c, q);
		break;
	case PAGER_CAPTURE_BEGIN:
		r = do_capture_begin(c, q, &e);
		break;
	case PAGER_CAPTURE:
		r = do_capture(c, q, &e);
		break;
	case PAGER_CAPTURED:
		r = do_captured(c, q, &e);
		break;
	case PAGER_ADOPT:
		r = do_adopt(c, q, m, &e);
		break;
	case PAGER_STORED:
		r = do_stored(c, q, &e);
		break;
	case PAGER_FORGET:
		r = do_forget(c, q);
		break;
	case PAGER_WORKSET:
		r = do_workset(c, q, &e);
		break;
	case PAGER_WORKSET_SET:
		r = pg_workset_set(c->p, q->snapshot, m->fds[0], &e);
		if (r == 0)
			pg_reply(c, 0, NULL, NULL, NULL, 0);
		break;
	case PAGER_STAT:
		r = do_text(c, pg_stat_text, &e);
		break;
	case PAGER_LIST:
		r = do_text(c, pg_list, &e);
		break;
	case PAGER_EVICT:
		r = do_evict(c, q, &e);
		break;
	case PAGER_CONFIG:
		c->p->budget_bytes = q->bytes;
		pg_reply(c, 0, NULL, NULL, NULL, 0);
		pg_evict_check(c->p);
		break;
	case PAGER_QUIT:
		pg_reply(c, 0, NULL, NULL, NULL, 0);
		c->p->quit = true;
		loop_stop(c->p->loop);
		break;
	default: /* the parser lets through what is left: disks */
		if (c->p->disks)
			pg_disks_ask(c->p->disks, c, q, m->nfds ? take_fd(&m->fds[0]) : -1);
		else
			r = err_set(&e, -ENOSYS, "no disks are served here");
	}
	if (r < 0)
		pg_reply_err(c, &e);
}

void pg_request_fini(struct pager *p)
{
	while (p->waits) {
		struct pg_wait *w = p->waits;

		p->waits = w->next;
		w->fn(w->arg, -ECANCELED, "the pager ends");
		free(w);
	}
}
