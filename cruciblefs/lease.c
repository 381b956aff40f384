/* SPDX-License-Identifier: Apache-2.0 */
/* `lease`: who holds it open for writing keeps the sandbox; the last close ends it, however the holder died.
 * A holder that only reads does not count: grep -r and tar open everything that they can read, and reading is harmless.
 */
#include <stdlib.h>
#include "cruciblefs/table.h"

struct lease {
	struct cfs_handle h;
	bool holds;
};

static int lease_open(struct cfs_req *r, struct cfs_tnode *n, int flags, struct cfs_handle **ret,
		      unsigned *ret_open_flags)
{
	struct lease *l;
	int code;

	if (sandbox_gone(n->about.sbx))
		return -ENOENT;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	code = cfs_tnode_handle(r, &l->h, n, flags);
	if (code < 0) {
		free(l);
		return code;
	}
	l->holds = cfs_wants_write(flags);
	if (l->holds)
		sandbox_lease_open(n->about.sbx);
	*ret = &l->h;
	*ret_open_flags = CFS_OPEN_DIRECT;
	return 0;
}

static void lease_read(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	(void)node, (void)h, (void)size, (void)off;
	cfs_reply_buf(r, "", 0);
}

static void lease_write(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, const void *data, size_t size,
			uint64_t off)
{
	(void)node, (void)h, (void)data, (void)size, (void)off;
	cfs_reply_err(r, -EPERM);
}

static void lease_release(struct cfs_handle *h)
{
	struct lease *l = cfs_container(h, struct lease, h);

	/* At the daemon's own end the holders have not let go: their sandboxes live on, to their time limit at most. */
	if (l->holds && !cfs_session_freeing(h->node->session))
		sandbox_lease_close(cfs_tnode_of(h->node)->about.sbx);
	free(l);
}

static const struct cfs_node_ops lease_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.open = cfs_tnode_open,
	.read = lease_read,
	.write = lease_write,
	.release = lease_release,
};

const struct cfs_kind cfs_kind_lease = {
	.name = "lease",
	.type = S_IFREG,
	.ops = &lease_ops,
	.reuse = REUSE_NEVER,
	.writable = true,
	.open = lease_open,
};
