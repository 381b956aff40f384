/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's file systems of a session: their roots, their operations. See guestfs.h. */
#include "cruciblefs/guestfs_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "cruciblefs/may.h"

/* Every living one. A sandbox has one root node for each session: a second would make the kernel move the dentries of
 * the first. */
static struct guestfs *all;

static void fs_free(struct guestfs *fs)
{
	gtable_fini(&fs->table);
	buf_fini(&fs->msg);
	sandbox_unref(fs->s);
	free(fs);
}

static int fs_new(struct cfs_session *cs, struct sandbox *s, struct guestfs **ret)
{
	struct guestfs *fs = calloc(1, sizeof(*fs));
	int r;

	if (!fs)
		return -ENOMEM;
	fs->session = cs;
	fs->s = sandbox_ref(s);
	fs->salt = cfs_ino("fs", sandbox_uuid(s), NULL);
	buf_init(&fs->msg, AG_PAYLOAD_MAX);
	r = gtable_init(&fs->table);
	if (r == 0)
		r = cfs_node_init(cs, &fs->root.node, &guest_ops, sandbox_owner(s).view);
	if (r < 0) {
		fs_free(fs);
		return r;
	}
	gnode_init_root(&fs->root, fs);
	*ret = fs;
	return 0;
}

int guestfs_root(struct cfs_session *cs, struct sandbox *s, struct cfs_node **ret, struct stat *ret_st)
{
	struct guestfs *fs = all;
	int r;

	while (fs && (fs->session != cs || fs->s != s))
		fs = fs->next;
	if (fs) {
		cfs_node_ref(&fs->root.node);
	} else {
		r = fs_new(cs, s, &fs);
		if (r < 0)
			return r;
		fs->next = all;
		all = fs;
	}
	gstat_root(fs, ret_st);
	*ret = &fs->root.node;
	return 0;
}

static void guest_free(struct cfs_node *cn)
{
	struct gnode *n = gnode_of(cn);
	struct guestfs *fs = n->fs, **p = &all;

	if (n->parent) {
		gnode_free(&fs->table, n);
		return;
	}
	while (*p != fs)
		p = &(*p)->next;
	*p = fs->next;
	fs_free(fs);
}

/* Whatever it is: to ask the guest anything is an operation on its files. */
static int guest_may(struct cfs_req *r, struct cfs_node *n, unsigned access)
{
	(void)access;
	return cfs_may_sandbox(cfs_session_registry(n->session), gnode_of(n)->fs->s, cfs_req_who(r), POLICY_FILES);
}

const struct cfs_node_ops guest_ops = {
	.may = guest_may,
	.free = guest_free,
	.lookup = guest_lookup,
	.getattr = guest_getattr,
	.setattr = guest_setattr,
	.readlink = guest_readlink,
	.mknod = guest_mknod,
	.mkdir = guest_mkdir,
	.symlink = guest_symlink,
	.link = guest_link,
	.unlink = guest_unlink,
	.rmdir = guest_rmdir,
	.rename = guest_rename,
	.open = guest_open,
	.create = guest_create,
	.read = guest_read,
	.write = guest_write,
	.fsync = guest_fsync,
	.fallocate = guest_fallocate,
	.lseek = guest_lseek,
	.release = guest_release,
	.opendir = guest_opendir,
	.readdir = guest_readdir,
	.statfs = guest_statfs,
	.setxattr = guest_setxattr,
	.getxattr = guest_getxattr,
	.listxattr = guest_listxattr,
	.removexattr = guest_removexattr,
};
