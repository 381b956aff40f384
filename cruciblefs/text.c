/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are rendered and only read, and symbolic links. Also what every kind of file shares: frozen texts,
 * opening. */
#include <stdlib.h>
#include <string.h>
#include "cruciblefs/table.h"

#define FROZEN_S                                                                                                       \
	3600.0 /* a node's text, time and owner never change: the kernel need not ask again. Its name it asks for each \
		  time */

/* -- frozen texts -------------------------------------------------------------------------- */

int cfs_text_new(struct cfs_session *cs, uid_t uid, const void *data, size_t len, struct cfs_text **ret)
{
	struct cfs_text *t;
	int code = cfs_charge(cs, uid, len);

	if (code < 0)
		return code;
	t = malloc(sizeof(*t) + len);
	if (!t) {
		cfs_uncharge(cs, uid, len);
		return -ENOMEM;
	}
	*t = (struct cfs_text){ .refs = 1, .session = cs, .uid = uid, .len = len };
	if (len)
		memcpy(t->data, data, len);
	*ret = t;
	return 0;
}

struct cfs_text *cfs_text_ref(struct cfs_text *t)
{
	if (t)
		t->refs++;
	return t;
}

struct cfs_text *cfs_text_unref(struct cfs_text *t)
{
	if (t && --t->refs == 0) {
		cfs_uncharge(t->session, t->uid, t->len);
		free(t);
	}
	return NULL;
}

void cfs_reply_text(struct cfs_req *r, const struct cfs_text *t, size_t size, uint64_t off)
{
	size_t left = t && off < t->len ? t->len - (size_t)off : 0;

	cfs_reply_buf(r, left ? t->data + off : "", size < left ? size : left);
}

/* -- opening --------------------------------------------------------------------------------- */

int cfs_tnode_handle(struct cfs_req *r, struct cfs_handle *h, struct cfs_tnode *n, int flags)
{
	int code = cfs_handle_open(r, h, &n->node, flags);
	struct err e = { 0 };

	if (code == -EMFILE || code == -ENFILE) {
		err_set(&e, code, "%s: open: too many files of the tree are open %s", n->about.entry->name,
			code == -EMFILE ? "by this user; close some" : "in all");
		cfs_fail(&n->about, cfs_req_who(r), &e);
	}
	return code;
}

void cfs_tnode_open(struct cfs_req *r, struct cfs_node *node, int flags)
{
	struct cfs_tnode *n = cfs_tnode_of(node);
	struct cfs_handle *h;
	unsigned open_flags = 0;
	int code = n->about.entry->kind->open(r, n, flags, &h, &open_flags);

	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_reply_open(r, h, open_flags);
}

/* -- the kind `text` --------------------------------------------------------------------------- */

static int text_open(struct cfs_req *r, struct cfs_tnode *n, int flags, struct cfs_handle **ret,
		     unsigned *ret_open_flags)
{
	struct cfs_handle *h;
	int code;

	if (cfs_wants_write(flags))
		return -EPERM;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	code = cfs_tnode_handle(r, h, n, flags);
	if (code < 0) {
		free(h);
		return code;
	}
	*ret = h;
	*ret_open_flags = CFS_OPEN_KEEP;
	return 0;
}

static void text_read(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	(void)h;
	cfs_reply_text(r, cfs_tnode_of(node)->text, size, off);
}

static void text_release(struct cfs_handle *h)
{
	free(h);
}

static const struct cfs_node_ops text_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.open = cfs_tnode_open,
	.read = text_read,
	.release = text_release,
};

const struct cfs_kind cfs_kind_text = {
	.name = "text",
	.type = S_IFREG,
	.ops = &text_ops,
	.reuse = REUSE_SAME_TEXT,
	.attr_timeout = FROZEN_S,
	.open = text_open,
};

/* -- the kind `link`: the text is the target ----------------------------------------------------- */

static void link_readlink(struct cfs_req *r, struct cfs_node *node)
{
	const struct cfs_text *t = cfs_tnode_of(node)->text;
	char target[256];

	if (t->len >= sizeof(target)) {
		cfs_reply_err(r, -ENAMETOOLONG);
		return;
	}
	memcpy(target, t->data, t->len);
	target[t->len] = '\0';
	cfs_reply_readlink(r, target);
}

static const struct cfs_node_ops link_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = cfs_tnode_setattr,
	.readlink = link_readlink,
};

const struct cfs_kind cfs_kind_link = {
	.name = "link",
	.type = S_IFLNK,
	.ops = &link_ops,
	.reuse = REUSE_SAME_TEXT,
	.attr_timeout = FROZEN_S,
};
