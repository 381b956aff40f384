/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes: user.* of regular files and directories are the guest's; nothing else exists here. `ls -l`, `cp
 * -a` and the kernel itself (security.capability, before a write) ask for the others all the time: those are answered
 * without the guest. */
#include "cruciblefs/guestfs_priv.h"

#include <errno.h>
#include <linux/limits.h>
#include <linux/xattr.h>
#include <string.h>

struct xattr_op {
	struct gop op;
	struct gnode *n;
	uint8_t ag_op;
	size_t size; /* of get, list: the caller's room; of set: the value's bytes */
	uint32_t flags;
	char name[XATTR_NAME_MAX + 1];
	uint8_t value[];
};

/* 0; -EOPNOTSUPP another name space; -ERANGE as the kernel has it. */
static int check_name(const char *name)
{
	size_t len = strlen(name);

	if (len > XATTR_NAME_MAX)
		return -ERANGE;
	return strncmp(name, XATTR_USER_PREFIX, XATTR_USER_PREFIX_LEN) == 0 && len > XATTR_USER_PREFIX_LEN
		       ? 0
		       : -EOPNOTSUPP;
}

/* Has @n such attributes at all? Links and devices have none in Linux. Asking for those of the root does not start a
 * guest: `ls -l` of the sandbox's directory does it. */
static bool can_have(const struct gnode *n)
{
	if (!n->parent && sandbox_status(n->fs->s) == SBX_CONFIGURED)
		return false;
	return n->type == S_IFREG || n->type == S_IFDIR;
}

static int send_xattr(struct gop *op)
{
	struct xattr_op *o = (struct xattr_op *)op;
	struct buf *b = gop_msg(op);
	int r = gmsg_path(b, o->n, NULL);

	if (r == 0 && o->ag_op != AG_FS_LISTXATTR)
		r = wire_put_str(b, o->name);
	if (r == 0 && o->ag_op == AG_FS_SETXATTR) {
		r = wire_put_bytes(b, o->value, o->size);
		if (r == 0)
			r = wire_put_u32(b, o->flags);
		if (r == -EFBIG)
			r = -E2BIG; /* more than a message holds; ext4 takes less */
	}
	return r < 0 ? r : gop_call(op, 0, o->ag_op);
}

static void xattr_done(struct gop *op, unsigned i, int code, struct wire_rd *r)
{
	struct xattr_op *o = (struct xattr_op *)op;
	const uint8_t *value;
	struct buf list;
	size_t len;

	(void)i;
	if (code < 0) {
		gop_fail(op, code);
		return;
	}
	switch (o->ag_op) {
	case AG_FS_GETXATTR:
		code = greply_xattr(r, &value, &len);
		if (code == 0)
			cfs_reply_xattr(op->r, value, len, o->size);
		break;
	case AG_FS_LISTXATTR:
		buf_init(&list, AG_PAYLOAD_MAX);
		code = greply_xattr_list(r, &list);
		if (code == 0)
			cfs_reply_xattr(op->r, list.data, list.len, o->size);
		buf_fini(&list);
		break;
	default:
		code = greply_empty(r);
		if (code == 0)
			cfs_reply_err(op->r, 0);
	}
	if (code < 0)
		gop_fail(op, code);
}

static struct xattr_op *xattr_op(struct cfs_req *r, struct cfs_node *n, uint8_t ag_op, const char *name, size_t room)
{
	struct xattr_op *o = gop_new(r, gnode_of(n)->fs, sizeof(*o) + room, send_xattr, xattr_done);

	if (!o)
		return NULL;
	o->n = gnode_of(n);
	o->ag_op = ag_op;
	strncpy(o->name, name, XATTR_NAME_MAX);
	return o;
}

void guest_setxattr(struct cfs_req *r, struct cfs_node *n, const char *name, const void *value, size_t size, int flags)
{
	int code = check_name(name);
	struct xattr_op *o;

	if (code == 0 && !can_have(gnode_of(n)))
		code = -EPERM;
	if (code == 0 && size > AG_FS_IO_MAX)
		code = -E2BIG;
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	o = xattr_op(r, n, AG_FS_SETXATTR, name, size);
	if (!o)
		return;
	if (size)
		memcpy(o->value, value, size);
	o->size = size;
	o->flags = (uint32_t)flags;
	gop_start(&o->op);
}

void guest_getxattr(struct cfs_req *r, struct cfs_node *n, const char *name, size_t size)
{
	int code = check_name(name);
	struct xattr_op *o;

	if (code == 0 && !can_have(gnode_of(n)))
		code = -ENODATA;
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	o = xattr_op(r, n, AG_FS_GETXATTR, name, 0);
	if (!o)
		return;
	o->size = size;
	gop_start(&o->op);
}

void guest_listxattr(struct cfs_req *r, struct cfs_node *n, size_t size)
{
	struct xattr_op *o;

	if (!can_have(gnode_of(n))) {
		cfs_reply_xattr(r, NULL, 0, size);
		return;
	}
	o = xattr_op(r, n, AG_FS_LISTXATTR, "", 0);
	if (!o)
		return;
	o->size = size;
	gop_start(&o->op);
}

void guest_removexattr(struct cfs_req *r, struct cfs_node *n, const char *name)
{
	int code = check_name(name);
	struct xattr_op *o;

	if (code == 0 && !can_have(gnode_of(n)))
		code = -ENODATA;
	if (code < 0) {
		cfs_reply_err(r, code);
		return;
	}
	o = xattr_op(r, n, AG_FS_REMOVEXATTR, name, 0);
	if (o)
		gop_start(&o->op);
}
