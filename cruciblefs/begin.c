/* SPDX-License-Identifier: Apache-2.0 */
/* What a request is about: its nodes, its handle, its name; and whether it may be asked at all. Every request but
 * FORGET comes through here, so these stand once, for all kinds of nodes:
 *  - a node that is gone, or whose view has ended, is ESTALE;
 *  - who asks, asks through the view of the node;
 *  - what a policy forbids is refused (ops->may), under open descriptors too. */
#include "cruciblefs/session_priv.h"

#include <string.h>

#include "cruciblefs/view.h"

bool node_is_stale(const struct cfs_node *n)
{
	return n->view && view_dead(n->view);
}

static struct cfs_req *refuse(struct cfs_req *r, int code)
{
	cfs_reply_err(r, code);
	req_leave(r);
	return NULL;
}

/* Whatever has become of its view. */
static struct cfs_req *find(fuse_req_t fr, fuse_ino_t ino)
{
	struct cfs_session *cs = fuse_req_userdata(fr);
	struct cfs_req *r = req_new(cs, fr);
	struct cfs_node *n;

	if (!r)
		return NULL;
	n = cfs_node_find(cs, ino);
	if (!n)
		return refuse(r, -ESTALE);
	r->node = cfs_node_ref(n);
	r->who.view = n->view;
	return r;
}

static struct cfs_req *find_open(fuse_req_t fr, fuse_ino_t ino, uint64_t fh)
{
	struct cfs_req *r = find(fr, ino);
	struct cfs_handle *h;

	if (!r)
		return NULL;
	h = handle_find(r->cs, fh);
	if (!h || h->node != r->node)
		return refuse(r, -EBADF);
	handle_pin(h);
	r->h = h;
	return r;
}

/* May it go on? @r, or NULL: it was answered. */
static struct cfs_req *enter(struct cfs_req *r, unsigned access)
{
	struct cfs_node *n;
	int code = 0;

	if (!r)
		return NULL;
	n = r->node;
	if (node_is_stale(n))
		code = -ESTALE;
	else if (access && n->ops->may)
		code = n->ops->may(r, n, access);
	return code < 0 ? refuse(r, code) : r;
}

static int name_code(const char *name)
{
	size_t len = strnlen(name, REQ_NAME_MAX + 1);

	if (len > REQ_NAME_MAX)
		return -ENAMETOOLONG;
	if (!len || !strcmp(name, ".") || !strcmp(name, "..") || strchr(name, '/'))
		return -EINVAL;
	return 0;
}

struct cfs_req *req_begin(fuse_req_t fr, fuse_ino_t ino, unsigned access)
{
	return enter(find(fr, ino), access);
}

struct cfs_req *req_begin_name(fuse_req_t fr, fuse_ino_t ino, const char *name, unsigned access)
{
	struct cfs_req *r = req_begin(fr, ino, access);
	int code = r ? name_code(name) : 0;

	return code < 0 ? refuse(r, code) : r;
}

struct cfs_req *req_begin_two(fuse_req_t fr, fuse_ino_t ino, const char *name, fuse_ino_t ino2, const char *name2)
{
	struct cfs_req *r = req_begin_name(fr, ino, name, CFS_ACCESS_NAMES);
	struct cfs_node *n2;
	int code = 0;

	if (!r)
		return NULL;
	n2 = cfs_node_find(r->cs, ino2);
	if (!n2 || node_is_stale(n2))
		code = -ESTALE;
	else if (name2)
		code = name_code(name2);
	/* Nothing moves from one view into another. */
	if (!code && (n2->ops != r->node->ops || n2->view != r->node->view))
		code = -EXDEV;
	if (code < 0)
		return refuse(r, code);
	r->node2 = cfs_node_ref(n2);
	return r;
}

struct cfs_req *req_begin_open(fuse_req_t fr, fuse_ino_t ino, uint64_t fh, unsigned access)
{
	return enter(find_open(fr, ino, fh), access);
}

struct cfs_req *req_begin_release(fuse_req_t fr, fuse_ino_t ino, uint64_t fh)
{
	return find_open(fr, ino, fh);
}
