/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/may.h"

#include <errno.h>
#include <string.h>

int cfs_may_sandbox(struct registry *r, struct sandbox *s, const struct cfs_who *who, enum policy_op op)
{
	struct err e = { 0 };
	int code = registry_may(r, who, op, &e);

	if (code == -EPERM)
		err_wrap(&e, "sandbox %s: %s", sandbox_name(s), policy_op_name(op));
	/* `grep -r` over what may not be read is refused file by file: the same words are written once. */
	if (code == -EPERM && !sandbox_gone(s) && strcmp(sandbox_error(s), e.msg) != 0)
		sandbox_fail(s, who, &e);
	return code;
}
