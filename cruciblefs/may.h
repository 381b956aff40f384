/* SPDX-License-Identifier: Apache-2.0 */
/* What policies say of the files of the tree. That each request is asked about, the session sees to (begin.c); what a
 * request of a node needs, the node's kind says (ops->may): a row of the tables by its .op (tablemay.c), the guest's
 * files always `files`. Thread: the loop's. */
#ifndef CRUCIBLE_MAY_H
#define CRUCIBLE_MAY_H

#include "cruciblefs/view.h"

/* May @who do @op? The words of a refusal go into the `error` of @s. Errors: -EPERM; -ESTALE its view has ended. */
int cfs_may_sandbox(struct registry *r, struct sandbox *s, const struct cfs_who *who, enum policy_op op);

#endif
