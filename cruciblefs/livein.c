/* SPDX-License-Identifier: Apache-2.0 */
/* exec/NAME/stdin: live standard input of a slot's command. A write waits while the guest does not read, and takes all
 * that it was given unless it is interrupted (then a short count, or EINTR when nothing was taken) or O_NONBLOCK.
 * exec/NAME/.stdin: the same for whom O_NONBLOCK and short counts do not reach, as through SFTP: a write is taken whole
 * or not at all, and never waits. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "cruciblefs/table.h"

#define WAIT_MAX \
	(128u * 1024) /* bytes of one write that are kept while it waits; more: a short count, as from a pipe */

struct waiting_write {
	size_t before;	   /* bytes taken before the write began to wait */
	size_t len, taken; /* of data */
	char data[];
};

/* Take what fits. 0: all was taken; -EAGAIN: it must wait; others. *taken grows by what was taken. */
static int feed(const struct cfs_about *a, const char *data, size_t len, size_t *taken)
{
	while (*taken < len) {
		struct err e = { 0 };
		size_t n = 0;
		int r;

		if (sandbox_gone(a->sbx))
			return -ESTALE;
		r = slot_stdin(a->sbx, a->name, data + *taken, len - *taken, &n, &e);
		if (r < 0)
			return r;
		*taken += n;
	}
	return 0;
}

/* What was taken counts before what went wrong afterwards. */
static void answer(struct cfs_req *r, size_t taken, int code)
{
	if (taken || !code)
		cfs_reply_write(r, taken);
	else
		cfs_reply_err(r, code);
}

static void forget(struct cfs_req *r, const struct waiting_write *w)
{
	cfs_uncharge(cfs_req_session(r), cfs_req_who(r)->uid, w->len);
}

static void write_again(struct cfs_req *r, void *arg)
{
	struct cfs_tnode *n = arg;
	struct waiting_write *w = cfs_req_data_get(r);
	int code = feed(&n->about, w->data, w->len, &w->taken);

	if (code == -EAGAIN)
		return;
	forget(r, w);
	answer(r, w->before + w->taken, code);
}

static void write_cancel(struct cfs_req *r, void *arg)
{
	struct waiting_write *w = cfs_req_data_get(r);

	(void)arg;
	forget(r, w);
	if (w->before + w->taken)
		cfs_reply_write(r, w->before + w->taken);
}

static int wait_for_room(struct cfs_req *r, struct cfs_tnode *n, const char *data, size_t len, size_t before)
{
	struct cfs_session *cs = cfs_req_session(r);
	size_t keep = len < WAIT_MAX ? len : WAIT_MAX;
	struct waiting_write *w;
	int code = cfs_charge(cs, cfs_req_who(r)->uid, keep);

	if (code < 0)
		return code;
	w = cfs_req_data(r, sizeof(*w) + keep);
	if (w) {
		w->before = before;
		w->len = keep;
		memcpy(w->data, data, keep);
	}
	code = w ? cfs_park(r, sandbox_waitq(n->about.sbx), write_again, write_cancel, n) : -ENOMEM;
	if (code < 0)
		cfs_uncharge(cs, cfs_req_who(r)->uid, keep);
	return code;
}

static void livein_write(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, const void *data, size_t size,
			 uint64_t off)
{
	struct cfs_tnode *n = cfs_tnode_of(node);
	size_t taken = 0;
	struct err e = { 0 };
	int code;

	(void)off;
	if (n->about.entry->arg == LIVEIN_WHOLE && !sandbox_gone(n->about.sbx) &&
	    (size > WAIT_MAX || size > slot_stdin_room(n->about.sbx, n->about.name))) {
		cfs_reply_err(r, size > WAIT_MAX ? -EMSGSIZE : -EAGAIN);
		return;
	}
	code = feed(&n->about, data, size, &taken);
	if (code == -EAGAIN && !(h->flags & O_NONBLOCK)) {
		code = wait_for_room(r, n, (const char *)data + taken, size - taken, taken);
		if (!code)
			return;
		if (code == -EDQUOT) {
			err_set(&e, code, "exec/%s/stdin: too many calls of this user wait", n->about.name);
			cfs_fail(&n->about, cfs_req_who(r), &e);
		}
	}
	answer(r, taken, code);
}

static int livein_open(struct cfs_req *r, struct cfs_tnode *n, int flags, struct cfs_handle **ret,
		       unsigned *ret_open_flags)
{
	struct cfs_handle *h = calloc(1, sizeof(*h));
	int code = h ? cfs_tnode_handle(r, h, n, flags) : -ENOMEM;

	if (code < 0) {
		free(h);
		return code;
	}
	*ret = h;
	*ret_open_flags = CFS_OPEN_DIRECT;
	return 0;
}

static void livein_read(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	(void)node, (void)h, (void)size, (void)off;
	cfs_reply_buf(r, "", 0);
}

static unsigned livein_poll(struct cfs_handle *h)
{
	const struct cfs_about *a = &cfs_tnode_of(h->node)->about;

	if (sandbox_gone(a->sbx))
		return POLLERR | POLLHUP;
	return POLLIN | (slot_stdin_room(a->sbx, a->name) ? POLLOUT : 0);
}

static struct waitq *livein_queue(struct cfs_handle *h)
{
	return sandbox_waitq(cfs_tnode_of(h->node)->about.sbx);
}

static void livein_release(struct cfs_handle *h)
{
	free(h);
}

static const struct cfs_node_ops livein_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.open = cfs_tnode_open,
	.read = livein_read,
	.write = livein_write,
	.release = livein_release,
	.poll = livein_poll,
	.poll_queue = livein_queue,
};

const struct cfs_kind cfs_kind_livein = {
	.name = "live stdin",
	.type = S_IFREG,
	.ops = &livein_ops,
	.reuse = REUSE_NEVER,
	.writable = true,
	.open = livein_open,
};
