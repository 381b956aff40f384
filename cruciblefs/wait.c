/* SPDX-License-Identifier: Apache-2.0 */
/* `.wait`: blocks until a command has ended, then reads as its record.
 *
 * A look-up never blocks: it binds the node to a command (the latest, exec/<n>/'s own). Has that one ended, the node is
 * a frozen text like any other. Else the node is *pending*, and the kernel was told a length of 0; the open is what
 * waits. When the command ends, the record cannot be read through this node (splice and mmap go by the length of the
 * look-up), so the open is answered ESTALE: the kernel looks the name up again and opens again, inside the same
 * open(2), and finds a frozen text. Once only: a promise (promise.h) leads the second look-up to the same command even
 * if a newer one runs by then, and a node that has told ESTALE before opens without the page cache instead.
 *
 * O_NONBLOCK: the open succeeds, reads give EAGAIN until the command has ended, poll(2) tells when. */
#include <poll.h>
#include <stdlib.h>
#include "cruciblefs/tree_priv.h"

static int refuse_park(struct cfs_req *r, const struct cfs_about *a, int code)
{
	struct err e = { 0 };

	if (code == -EDQUOT) {
		err_set(&e, code, "wait: too many calls of this user wait; poll(2) or look for result.json instead");
		cfs_fail(a, cfs_req_who(r), &e);
	}
	return code;
}

/* Is there something to read: 1; must wait: 0; -ENOENT: there will never be. Renders the record into the node. */
static int look(struct cfs_tnode *n)
{
	const struct cfs_about *a = &n->about;
	struct execution *x;
	struct buf b;
	int code;

	if (n->text)
		return 1;
	x = sandbox_gone(a->sbx) ? NULL : sandbox_exec(a->sbx, a->bound);
	if (!x)
		return -ENOENT;
	if (exec_state(x) != EXEC_DONE)
		return 0;
	buf_init(&b, CFS_TEXT_MAX);
	code = a->entry->show(a, &b);
	if (!code) {
		code = cfs_text_new(n->node.session, a->caller.uid, b.data, b.len, &n->text);
		code = code < 0 ? code : 1;
		n->mtime_ns = exec_changed_ns(x);
	}
	buf_fini(&b);
	return code;
}

/* -- open ------------------------------------------------------------------------------------- */

static void open_now(struct cfs_req *r, struct cfs_tnode *n, int flags)
{
	struct cfs_handle *h = calloc(1, sizeof(*h));
	int code = h ? cfs_tnode_handle(r, h, n, flags) : -ENOMEM;

	if (code < 0) {
		free(h);
		cfs_reply_err(r, code);
		return;
	}
	cfs_reply_open(r, h, n->pending ? CFS_OPEN_DIRECT : CFS_OPEN_KEEP);
}

static bool open_if_ready(struct cfs_req *r, struct cfs_tnode *n, int flags)
{
	struct promises *ps = &n->about.tree->promises;
	uid_t uid = cfs_req_who(r)->uid;
	int code = look(n);

	if (code == 0)
		return false;
	if (code < 0) {
		cfs_reply_err(r, code);
	} else if (!n->stale_told && promise_make(ps, n->ino, uid, cfs_req_pid(r), n->about.bound) == 0) {
		n->stale_told = true;
		cfs_reply_err(r, -ESTALE);
	} else {
		open_now(r, n, flags);
	}
	return true;
}

static void open_again(struct cfs_req *r, void *arg)
{
	open_if_ready(r, arg, O_RDONLY);
}

static void wait_open(struct cfs_req *r, struct cfs_node *node, int flags)
{
	struct cfs_tnode *n = cfs_tnode_of(node);
	int code;

	if (cfs_wants_write(flags)) {
		cfs_reply_err(r, -EPERM);
		return;
	}
	if (!n->pending) {
		promise_kept(&n->about.tree->promises, n->ino, cfs_req_who(r)->uid, cfs_req_pid(r));
		open_now(r, n, flags);
		return;
	}
	if (flags & O_NONBLOCK) {
		open_now(r, n, flags);
		return;
	}
	if (open_if_ready(r, n, flags))
		return;
	code = cfs_park(r, sandbox_waitq(n->about.sbx), open_again, NULL, n);
	if (code < 0)
		cfs_reply_err(r, refuse_park(r, &n->about, code));
}

/* -- read: of a frozen node, or after a non-blocking open ------------------------------------------ */

struct wait_read {
	size_t size;
	uint64_t off;
};

static bool read_if_ready(struct cfs_req *r, struct cfs_tnode *n, size_t size, uint64_t off)
{
	int code = look(n);

	if (code > 0)
		cfs_reply_text(r, n->text, size, off);
	else if (code < 0)
		cfs_reply_err(r, code);
	return code != 0;
}

static void read_again(struct cfs_req *r, void *arg)
{
	struct wait_read *w = cfs_req_data_get(r);

	read_if_ready(r, arg, w->size, w->off);
}

static void wait_read(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	struct cfs_tnode *n = cfs_tnode_of(node);
	struct wait_read *w;
	int code;

	if (read_if_ready(r, n, size, off))
		return;
	if (h->flags & O_NONBLOCK) {
		cfs_reply_err(r, -EAGAIN);
		return;
	}
	w = cfs_req_data(r, sizeof(*w));
	if (!w) {
		cfs_reply_err(r, -ENOMEM);
		return;
	}
	*w = (struct wait_read){ size, off };
	code = cfs_park(r, sandbox_waitq(n->about.sbx), read_again, NULL, n);
	if (code < 0)
		cfs_reply_err(r, refuse_park(r, &n->about, code));
}

static unsigned wait_poll(struct cfs_handle *h)
{
	int code = look(cfs_tnode_of(h->node));

	return code > 0 ? POLLIN : code < 0 ? POLLIN | POLLERR : 0;
}

static struct waitq *wait_queue(struct cfs_handle *h)
{
	return sandbox_waitq(cfs_tnode_of(h->node)->about.sbx);
}

static void wait_release(struct cfs_handle *h)
{
	free(h);
}

/* -- look-up -------------------------------------------------------------------------------------- */

static void wait_lookup(struct cfs_req *r, const struct cfs_about *asked, uint64_t ino)
{
	struct cfs_about a = *asked;
	uint64_t promised = promise_find(&a.tree->promises, ino, cfs_req_who(r)->uid, cfs_req_pid(r));
	struct cfs_tnode *n = NULL;
	int code;

	if (promised && sandbox_exec(a.sbx, promised)) {
		a.bound = promised;
		cfs_about_changed(&a);
	}
	code = cfs_enter(&a, &n);
	if (code == -ENOENT && sandbox_exec(a.sbx, a.bound)) { /* it runs still */
		code = cfs_tnode_new(&a, ino, NULL, &n);
		if (!code)
			n->pending = true;
	}
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	cfs_tnode_reply_entry(r, n);
	cfs_node_unref(&n->node);
}

static const struct cfs_node_ops wait_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.open = wait_open,
	.read = wait_read,
	.release = wait_release,
	.poll = wait_poll,
	.poll_queue = wait_queue,
};

const struct cfs_kind cfs_kind_wait = {
	.name = "wait",
	.type = S_IFREG,
	.ops = &wait_ops,
	.reuse = REUSE_SAME_TEXT,
	.lookup = wait_lookup,
};
