/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A struct cfs_req wraps libfuse's request from the moment it is dispatched until its answer. Invariants:
 *  1. It is answered once: every answer goes through answer_begins(), which says no the second time.
 *  2. Its memory goes when it is answered and no function of its own is on the stack (depth 0): at the end of the
 * answer for one that waited, in req_leave() else.
 *  3. One that waits when its view ends is answered ESTALE, whatever else wakes it.
 *  4. It holds references of its nodes and a pin on its handle, so a raced FORGET or RELEASE cannot pull them away.
 *
 * Interrupts: libfuse calls on_interrupt() with the request's lock held, from inside another request's processing (or
 * from inside fuse_req_interrupt_func() when the interrupt came first). Answering there is a use-after-free in libfuse,
 * so it only sets two flags. req_run_interrupts(), at the end of the batch that brought the INTERRUPT (or from the
 * loop), answers. */
#include "cruciblefs/session_priv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cruciblefs/view.h"

#define PARKED_UID 2048u
#define PARKED_ALL 16384u

/* -- life ----------------------------------------------------------------------------------- */

struct cfs_req *req_new(struct cfs_session *cs, fuse_req_t fr)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(fr);
	struct cfs_req *r = calloc(1, sizeof(*r));

	if (!r) {
		fuse_reply_err(fr, ENOMEM);
		return NULL;
	}
	r->cs = cs;
	r->fr = fr;
	r->who = (struct cfs_who){ .uid = ctx->uid, .gid = ctx->gid };
	r->pid = ctx->pid;
	r->umask = ctx->umask;
	r->depth = 1;
	return r;
}

static void req_free(struct cfs_req *r)
{
	if (r->h)
		handle_unpin(r->h);
	cfs_node_unref(r->node);
	cfs_node_unref(r->node2);
	free(r->data);
	free(r);
}

void req_leave(struct cfs_req *r)
{
	/* An ops function that neither answered nor parked would leave the caller hanging for ever. */
	assert(r->answered || r->parked);
	if (--r->depth == 0 && r->answered)
		req_free(r);
}

struct cfs_session *cfs_req_session(struct cfs_req *r)
{
	return r->cs;
}

const struct cfs_who *cfs_req_who(struct cfs_req *r)
{
	return &r->who;
}

mode_t cfs_req_umask(struct cfs_req *r)
{
	return r->umask;
}

pid_t cfs_req_pid(struct cfs_req *r)
{
	return r->pid;
}

void *cfs_req_data(struct cfs_req *r, size_t size)
{
	assert(!r->data);
	r->data = calloc(1, size);
	return r->data;
}

void *cfs_req_data_get(struct cfs_req *r)
{
	return r->data;
}

bool cfs_req_answered(struct cfs_req *r)
{
	return r->answered;
}

/* -- waiting -------------------------------------------------------------------------------- */

static void on_interrupt(fuse_req_t fr, void *data)
{
	struct cfs_req *r = data;

	(void)fr;
	r->interrupted = true;
	r->cs->interrupts = true;
}

static void interrupts_later(void *arg)
{
	struct cfs_session *cs = arg;

	cs->intr_id = 0;
	req_run_interrupts(cs);
}

static void end_parked(struct cfs_req *r, int code);

/* The view's queue: it wakes at each change of the view, also where it lives on. */
static void on_view_wake(struct waiter *w)
{
	struct cfs_req *r = cfs_container(w, struct cfs_req, view_w);

	if (r->depth == 0 && node_is_stale(r->node))
		end_parked(r, -ESTALE);
}

static void on_wake(struct waiter *w)
{
	struct cfs_req *r = cfs_container(w, struct cfs_req, w);

	if (node_is_stale(r->node)) {
		end_parked(r, -ESTALE);
		return;
	}
	r->depth++;
	r->again(r, r->arg);
	req_leave(r);
}

static int count_parked(struct cfs_req *r)
{
	struct cfs_session *cs = r->cs;
	unsigned all = cs->limits.parked_all ? cs->limits.parked_all : PARKED_ALL;
	unsigned own = cs->limits.parked_uid ? cs->limits.parked_uid : PARKED_UID;
	struct uid_count *u;

	if (cs->nparked >= all)
		return -EDQUOT;
	u = uid_count_get(cs, r->who.uid);
	if (!u)
		return -EDQUOT;
	if (u->parked >= own) {
		uid_count_put(cs, r->who.uid);
		return -EDQUOT;
	}
	u->parked++;
	cs->nparked++;
	return 0;
}

int cfs_park(struct cfs_req *r, struct waitq *q, cfs_again_fn *again, cfs_cancel_fn *cancel, void *arg)
{
	struct cfs_session *cs = r->cs;
	int code;

	assert(!r->answered && !q == !again);
	if (cs->stopping)
		return -ENOTCONN;
	if (!r->parked) {
		code = count_parked(r);
		if (code < 0)
			return code;
		r->parked = true;
		r->prev = cs->parked_last;
		*(r->prev ? &r->prev->next : &cs->parked_first) = r;
		cs->parked_last = r;
	}
	r->again = again;
	r->cancel = cancel;
	r->arg = arg;
	waitq_del(&r->w);
	if (q) {
		r->w.fn = on_wake;
		waitq_add(q, &r->w);
	}
	if (r->node->view && !r->view_w.q) {
		r->view_w.fn = on_view_wake;
		waitq_add(view_waitq(r->node->view), &r->view_w);
	}
	fuse_req_interrupt_func(r->fr, on_interrupt, r);
	if (cs->interrupts && !cs->in_batch && !cs->intr_id)
		loop_defer(cs->loop, interrupts_later, cs, &cs->intr_id);
	return 0;
}

void cfs_park_grace(struct cfs_req *r, unsigned ms)
{
	r->grace_until_ns = now_ns() + ms * 1000000ull;
}

static void unpark(struct cfs_req *r)
{
	struct cfs_session *cs = r->cs;

	if (!r->parked)
		return;
	r->parked = false;
	*(r->prev ? &r->prev->next : &cs->parked_first) = r->next;
	*(r->next ? &r->next->prev : &cs->parked_last) = r->prev;
	waitq_del(&r->w);
	waitq_del(&r->view_w);
	loop_del(cs->loop, &r->grace_id);
	cs->nparked--;
	uid_count_get(cs, r->who.uid)->parked--; /* counted before, so it is there */
	uid_count_put(cs, r->who.uid);
}

/* End a parked request from outside: its owner forgets it, then it is answered. */
static void end_parked(struct cfs_req *r, int code)
{
	assert(r->depth == 0); /* it waits */
	r->depth = 1;
	if (r->cancel)
		r->cancel(r, r->arg);
	cfs_reply_err(r, code); /* ignored when cancel has answered */
	/* The analyser does not see that an answer frees at depth 0 only. */
	req_leave(r); /* NOLINT(clang-analyzer-unix.Malloc) */
}

static void grace_over(void *arg)
{
	struct cfs_req *r = arg;

	r->grace_id = 0;
	end_parked(r, -EINTR);
}

static void interrupt(struct cfs_req *r)
{
	struct loop *l = r->cs->loop;

	if (r->grace_id)
		return; /* interrupted before */
	/* Without memory for a timer at once is the right time. */
	if (now_ns() >= r->grace_until_ns || loop_timer(l, r->grace_until_ns, grace_over, r, &r->grace_id) < 0)
		end_parked(r, -EINTR);
}

void req_run_interrupts(struct cfs_session *cs)
{
	struct cfs_req *r, *next;

	while (cs->interrupts) {
		cs->interrupts = false;
		/* A cancel function ends its own request only, so `next` stands. */
		for (r = cs->parked_first; r; r = next) {
			next = r->next;
			if (r->interrupted)
				interrupt(r);
		}
	}
}

void req_cancel_all(struct cfs_session *cs, int code)
{
	while (cs->parked_first)
		end_parked(cs->parked_first,
			   code); /* NOLINT(clang-analyzer-unix.Malloc): cancelled ones are taken out */
}

/* -- answers -------------------------------------------------------------------------------- */

static bool answer_begins(struct cfs_req *r)
{
	if (r->answered)
		return false;
	r->answered = true;
	unpark(r);
	return true;
}

static void answer_ends(struct cfs_req *r)
{
	if (r->depth == 0)
		req_free(r);
}

void cfs_reply_err(struct cfs_req *r, int code)
{
	/* The end of its view stops a machine: to whoever waits for that, it is the end of the view all the same. */
	if (r->parked && node_is_stale(r->node))
		code = -ESTALE;
	if (!answer_begins(r))
		return;
	fuse_reply_err(r->fr, -code);
	answer_ends(r);
}

static struct fuse_entry_param entry_of(const struct cfs_node *n, const struct stat *st, double entry_timeout,
					double attr_timeout)
{
	return (struct fuse_entry_param){
		.ino = n->id,
		.generation = 1,
		.attr = *st,
		.entry_timeout = n->view ? 0 : entry_timeout,
		.attr_timeout = n->view ? 0 : attr_timeout,
	};
}

void cfs_reply_entry(struct cfs_req *r, struct cfs_node *n, const struct stat *st, double entry_timeout,
		     double attr_timeout)
{
	struct fuse_entry_param e = entry_of(n, st, entry_timeout, attr_timeout);

	int code = r->answered ? 0 : node_tell(n, r->who.uid);

	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	if (!answer_begins(r))
		return;
	if (fuse_reply_entry(r->fr, &e) < 0)
		node_untold(n); /* the caller was killed meanwhile: the kernel counts no lookup */
	answer_ends(r);
}

void cfs_reply_attr(struct cfs_req *r, const struct stat *st, double timeout)
{
	if (!answer_begins(r))
		return;
	fuse_reply_attr(r->fr, st, r->node->view ? 0 : timeout);
	answer_ends(r);
}

void cfs_reply_readlink(struct cfs_req *r, const char *target)
{
	if (!answer_begins(r))
		return;
	fuse_reply_readlink(r->fr, target);
	answer_ends(r);
}

int req_answer_buf(struct cfs_req *r, const void *data, size_t len)
{
	int code;

	if (!answer_begins(r))
		return -EALREADY;
	code = fuse_reply_buf(r->fr, data, len);
	answer_ends(r);
	return code;
}

void cfs_reply_buf(struct cfs_req *r, const void *data, size_t len)
{
	req_answer_buf(r, data, len);
}

void req_answer_poll(struct cfs_req *r, unsigned ready)
{
	if (!answer_begins(r))
		return;
	fuse_reply_poll(r->fr, ready);
	answer_ends(r);
}

void cfs_reply_write(struct cfs_req *r, size_t taken)
{
	if (!answer_begins(r))
		return;
	fuse_reply_write(r->fr, taken);
	answer_ends(r);
}

void cfs_reply_statfs(struct cfs_req *r, const struct statvfs *st)
{
	if (!answer_begins(r))
		return;
	fuse_reply_statfs(r->fr, st);
	answer_ends(r);
}

void cfs_reply_lseek(struct cfs_req *r, uint64_t off)
{
	if (!answer_begins(r))
		return;
	fuse_reply_lseek(r->fr, (off_t)off);
	answer_ends(r);
}

void cfs_reply_xattr(struct cfs_req *r, const void *value, size_t len, size_t size)
{
	if (size && len > size) {
		cfs_reply_err(r, -ERANGE);
		return;
	}
	if (!answer_begins(r))
		return;
	if (size)
		fuse_reply_buf(r->fr, value, len);
	else
		fuse_reply_xattr(r->fr, len);
	answer_ends(r);
}

static struct fuse_file_info file_info_of(const struct cfs_handle *h, unsigned open_flags)
{
	/* The end of a view, and a policy that became narrower, hold for what is open: each read must come here. */
	if (h->node->view)
		open_flags = (open_flags | CFS_OPEN_DIRECT) & ~CFS_OPEN_KEEP;
	return (struct fuse_file_info){
		.fh = h->fh,
		.flags = h->flags,
		.direct_io = !!(open_flags & CFS_OPEN_DIRECT),
		.keep_cache = !!(open_flags & CFS_OPEN_KEEP),
		.nonseekable = !!(open_flags & CFS_OPEN_NONSEEK),
	};
}

void cfs_reply_open(struct cfs_req *r, struct cfs_handle *h, unsigned open_flags)
{
	struct fuse_file_info fi = file_info_of(h, open_flags);

	if (!answer_begins(r))
		return;
	if (fuse_reply_open(r->fr, &fi) < 0)
		cfs_handle_close(r->cs, h); /* the caller has gone: no RELEASE will come */
	answer_ends(r);
}

void cfs_reply_create(struct cfs_req *r, struct cfs_node *n, const struct stat *st, double entry_timeout,
		      double attr_timeout, struct cfs_handle *h, unsigned open_flags)
{
	struct fuse_entry_param e = entry_of(n, st, entry_timeout, attr_timeout);
	struct fuse_file_info fi = file_info_of(h, open_flags);

	int code = r->answered ? 0 : node_tell(n, r->who.uid);

	if (code < 0) {
		cfs_handle_close(r->cs, h);
		cfs_reply_err(r, code);
		return;
	}
	if (!answer_begins(r))
		return;
	if (fuse_reply_create(r->fr, &e, &fi) < 0) {
		cfs_handle_close(r->cs, h);
		node_untold(n);
	}
	answer_ends(r);
}
