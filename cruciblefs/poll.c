/* SPDX-License-Identifier: Apache-2.0 */
/* poll(2): the kernel asks FUSE_POLL with a handle to be told by, and asks again after it was told. One such handle is
 * kept for each open file: the newest (they name the same file). The answer is given at once; telling is done from the
 * loop when the file's queue is woken and something is ready, never while the request is being handled. */
#include "cruciblefs/session_priv.h"

#include <poll.h>
#include <stdlib.h>

#include "cruciblefs/view.h"

struct cfs_pollstate {
	struct cfs_handle *h;
	struct fuse_pollhandle *ph; /* NULL: told, and not asked since */
	struct waiter w;	    /* on the file's queue */
	struct waiter view_w;	    /* on the view's */
};

/* Told once: who still waits asks again and brings a new handle. */
static void tell(struct cfs_pollstate *p)
{
	struct fuse_pollhandle *ph = p->ph;

	p->ph = NULL;
	waitq_del(&p->w);
	waitq_del(&p->view_w);
	fuse_lowlevel_notify_poll(ph);
	fuse_pollhandle_destroy(ph);
}

static void on_wake(struct waiter *w)
{
	struct cfs_pollstate *p = cfs_container(w, struct cfs_pollstate, w);

	if (p->h->node->ops->poll(p->h))
		tell(p);
}

/* Who asks again is answered ESTALE, which poll(2) calls POLLERR. */
static void on_view_wake(struct waiter *w)
{
	struct cfs_pollstate *p = cfs_container(w, struct cfs_pollstate, view_w);

	if (node_is_stale(p->h->node))
		tell(p);
}

static int keep(struct cfs_handle *h, struct fuse_pollhandle *ph)
{
	struct waitq *q = h->node->ops->poll_queue(h);
	struct cfs_pollstate *p = h->poll;

	if (!p) {
		p = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
		p->h = h;
		p->w.fn = on_wake;
		p->view_w.fn = on_view_wake;
		h->poll = p;
	}
	if (p->ph)
		fuse_pollhandle_destroy(p->ph);
	p->ph = ph;
	if (q && !p->w.q)
		waitq_add(q, &p->w);
	if (h->node->view && !p->view_w.q)
		waitq_add(view_waitq(h->node->view), &p->view_w);
	return 0;
}

void poll_request(struct cfs_req *r, struct cfs_handle *h, struct fuse_pollhandle *ph)
{
	const struct cfs_node_ops *ops = h->node->ops;
	unsigned ready = POLLIN | POLLOUT;

	if (ops->poll) {
		ready = ops->poll(h);
		if (ph && keep(h, ph) == 0)
			ph = NULL;
	}
	if (ph)
		fuse_pollhandle_destroy(ph);
	req_answer_poll(r, ready);
}

void poll_forget(struct cfs_handle *h)
{
	struct cfs_pollstate *p = h->poll;

	if (!p)
		return;
	waitq_del(&p->w);
	waitq_del(&p->view_w);
	if (p->ph)
		fuse_pollhandle_destroy(p->ph);
	free(p);
	h->poll = NULL;
}
