/* SPDX-License-Identifier: Apache-2.0 */
/* What the caller may do on a mount, as its policy.json tells. The daemon enforces it; this is for offering only what
 * will be permitted, and for words. Thread: any. */
#ifndef CRUCIBLE_TOOLS_PERMITS_H
#define CRUCIBLE_TOOLS_PERMITS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/json.h"
#include "policy/policy.h"

struct permits {
	unsigned ops;			/* enum policy_op; those that we do not know are left out */
	uint64_t max[POLICY_MAX_COUNT]; /* 0: no limit */
	bool no_network;		/* net_allow_max is there, and empty */
	char *profiles;			/* "a,b"; NULL: any; malloc'd */
};

/* Read policy.json of the mount @root. Blocks: no longer than the daemon. Errors: those of tree_json(); -EINVAL a field
 * is not what it should be; -ENOMEM. permits_fini() only after success. */
int permits_read(int root, struct permits *ret, struct err *e);
int permits_parse(struct json_object *o, struct permits *ret, struct err *e); /* the same of the record */
void permits_fini(struct permits *p);

/* Words for a refusal (-EPERM, -EACCES) of what needs @op: when the policy does not permit it that is said, and true is
 * returned; else @e is left alone. */
bool permits_explain(int root, enum policy_op op, const char *what, struct err *e);

#endif
