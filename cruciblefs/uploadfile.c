/* SPDX-License-Identifier: Apache-2.0 */
/* `cmd`, `stdin`, `import`: what an open file gathers takes effect at its last close.
 *
 * Each open(2) has an upload of its own, so two writers never mix; whoever inherits or duplicates the descriptor writes
 * into the same one. It is committed in RELEASE, not in FLUSH: FLUSH comes for every descriptor that is closed, also by
 * a child that only inherited it, and would run a command twice. RELEASE stands in the kernel's queue before whatever
 * the closer asks next. */
#include <stdlib.h>
#include <string.h>
#include <fuse_lowlevel.h>
#include "cruciblefs/table.h"

struct upload_file {
	struct cfs_handle h;
	struct upload *u; /* NULL: open for reading */
};

static const char *slot_of(const struct cfs_about *a)
{
	return a->name[0] ? a->name : NULL;
}

static int begin(const struct cfs_about *a, const struct cfs_who *who, struct upload **ret)
{
	struct err e = { 0 };
	int r;

	if (sandbox_gone(a->sbx))
		return -ESTALE;
	r = upload_new(a->sbx, (enum upload_kind)a->entry->arg, slot_of(a), who, ret, &e);
	return r < 0 && e.code ? cfs_fail(a, who, &e) : r;
}

static int upload_open(struct cfs_req *r, struct cfs_tnode *n, int flags, struct cfs_handle **ret,
		       unsigned *ret_open_flags)
{
	struct upload_file *f = calloc(1, sizeof(*f));
	int code = f ? 0 : -ENOMEM;

	if (!code && cfs_wants_write(flags))
		code = begin(&n->about, cfs_req_who(r), &f->u);
	if (!code) {
		struct upload *u = f->u;

		code = cfs_tnode_handle(r, &f->h, n, flags);
		f->u = u;
	}
	if (code < 0) {
		if (f)
			upload_abort(f->u);
		free(f);
		return code;
	}
	*ret = &f->h;
	*ret_open_flags = f->u ? CFS_OPEN_DIRECT : CFS_OPEN_KEEP;
	return 0;
}

static void upload_read(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, size_t size, uint64_t off)
{
	(void)h;
	cfs_reply_text(r, cfs_tnode_of(node)->text, size, off);
}

static void upload_file_write(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, const void *data,
			      size_t size, uint64_t off)
{
	struct upload_file *f = cfs_container(h, struct upload_file, h);
	struct err e = { 0 };
	int code;

	(void)off; /* what is written comes in order */
	if (!f->u)
		code = -EBADF;
	else if (sandbox_gone(cfs_tnode_of(node)->about.sbx))
		code = -ESTALE;
	else
		code = upload_write(f->u, data, size, &e);
	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_reply_write(r, size);
}

/* ftruncate(2): to nothing begins anew; to what was written (rsync, cp of a file with holes) changes nothing; else
 * EINVAL. */
static int cut(struct upload_file *f, const struct cfs_about *a, uint64_t size)
{
	struct upload *fresh;
	int code;

	if (size == upload_size(f->u))
		return 0;
	if (size)
		return -EINVAL;
	code = begin(a, &f->h.who, &fresh);
	if (code < 0)
		return code;
	upload_abort(f->u);
	f->u = fresh;
	return 0;
}

static void upload_setattr(struct cfs_req *r, struct cfs_node *node, struct cfs_handle *h, const struct stat *st,
			   int valid)
{
	struct upload_file *f = h ? cfs_container(h, struct upload_file, h) : NULL;
	int code = 0;

	if ((valid & FUSE_SET_ATTR_SIZE) && f && f->u)
		code = cut(f, &cfs_tnode_of(node)->about, (uint64_t)st->st_size);
	if (code < 0)
		cfs_reply_err(r, code);
	else
		cfs_tnode_setattr(r, node, h, st, valid);
}

/* What was written while it was permitted must be so still: a command takes effect here. (Of a view that has ended this
 * says ESTALE.) */
static bool takes_effect(const struct cfs_handle *h)
{
	const struct cfs_about *a = &cfs_tnode_of(h->node)->about;

	return !cfs_session_freeing(h->node->session) && !sandbox_gone(a->sbx) &&
	       cfs_may_use(a, &h->who, CFS_ACCESS_WRITE) == 0;
}

static void upload_release(struct cfs_handle *h)
{
	struct upload_file *f = cfs_container(h, struct upload_file, h);

	if (f->u && takes_effect(h))
		upload_commit(f->u);
	else
		upload_abort(f->u);
	free(f);
}

static int upload_apply(const struct cfs_about *a, const struct cfs_who *who, const char *data, size_t len,
			struct err *e)
{
	struct upload *u;
	int r = begin(a, who, &u);

	if (r < 0)
		return r;
	r = len ? upload_write(u, data, len, e) : 0;
	if (r < 0)
		upload_abort(u);
	else
		upload_commit(u);
	return r;
}

static const struct cfs_node_ops upload_ops = {
	.may = cfs_tnode_may,
	.free = cfs_tnode_free,
	.getattr = cfs_tnode_getattr,
	.setattr = upload_setattr,
	.open = cfs_tnode_open,
	.read = upload_read,
	.write = upload_file_write,
	.release = upload_release,
};

const struct cfs_kind cfs_kind_upload = {
	.name = "upload",
	.type = S_IFREG,
	.ops = &upload_ops,
	.reuse = REUSE_NEVER,
	.writable = true,
	.open = upload_open,
	.apply = upload_apply,
};
