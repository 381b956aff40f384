/* SPDX-License-Identifier: Apache-2.0 */
/* What policies say of the files of the tables. See may.h; what each row needs stands in it (.op, CFS_ALWAYS). */
#include "cruciblefs/may.h"
#include "cruciblefs/table.h"

int cfs_may(const struct cfs_about *a, const struct cfs_who *who, unsigned op)
{
	struct registry *reg = cfs_tree_registry(a->tree);
	struct err e = { 0 };
	int code;

	if (!op)
		return 0;
	if (a->sbx)
		return cfs_may_sandbox(reg, a->sbx, who, (enum policy_op)op);
	code = registry_may(reg, who, (enum policy_op)op, &e);
	if (code == -EPERM) {
		err_wrap(&e, "%s", policy_op_name((enum policy_op)op));
		cfs_fail(a, who, &e);
	}
	return code;
}

int cfs_may_use(const struct cfs_about *a, const struct cfs_who *who, unsigned access)
{
	const struct cfs_entry *e = a->entry;
	int code = 0;

	/* Of directories and links there is nothing but names. */
	if (e->kind->type != S_IFREG)
		return 0;
	if ((access & CFS_ACCESS_READ) && !(e->flags & CFS_ALWAYS))
		code = cfs_may(a, who, POLICY_READ);
	/* A row that does not say what its writers need is for who may do everything. */
	if (!code && (access & CFS_ACCESS_WRITE) && e->kind->writable)
		code = cfs_may(a, who, e->op ? e->op : POLICY_ADMIN);
	return code;
}

int cfs_tnode_may(struct cfs_req *r, struct cfs_node *n, unsigned access)
{
	return cfs_may_use(&cfs_tnode_of(n)->about, cfs_req_who(r), access);
}
