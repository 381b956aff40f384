/* SPDX-License-Identifier: Apache-2.0 */
/* The names of forks. Thread: any. */
#ifndef CRUCIBLE_TOOLS_FORK_H
#define CRUCIBLE_TOOLS_FORK_H

#include "base/err.h"
#include "tools/crucible/sbx.h"

#define FORKS_MAX 256 /* of one batch */

struct fork_batch {
	char names[FORKS_MAX][SBX_ID_MAX + 1];
	size_t n;
};

/* The next @n (at most FORKS_MAX) free names of forks of the snapshot @id, as the tree numbers them: "<id>-1", …
 * Another one may take them meanwhile (-EEXIST of the fork: number anew). Errors: those of listing run/; -EDQUOT too
 * many. */
int fork_number(int root, const char *id, size_t n, struct fork_batch *ret, struct err *e);

#endif
