/* SPDX-License-Identifier: Apache-2.0 */
/* What grew out of what: profiles, the snapshots of machines that were booted from them, snapshots of forks of those …,
 * and sandboxes as leaves. Made from the info.json of each, as far as the caller may read them. Thread: any. */
#ifndef CRUCIBLE_TOOLS_LINEAGE_H
#define CRUCIBLE_TOOLS_LINEAGE_H

#include <stddef.h>
#include "base/err.h"
#include "base/json.h"
#include "tools/crucible/table.h"

struct lineage_node {
	enum {
		LINEAGE_PROFILE,
		LINEAGE_SNAPSHOT,
		LINEAGE_SANDBOX,
		LINEAGE_GONE, /* a snapshot that was removed; what grew out of it lives on */
	} kind;
	char *name, *status;	  /* malloc'd; status "" where there is none */
	char *uuid;		  /* malloc'd; "" when it is not known */
	struct json_object *info; /* owned; NULL: somebody else's, or none */
	size_t parent;		  /* index; LINEAGE_NONE: a root */
};
#define LINEAGE_NONE ((size_t)-1)

struct lineage {
	struct lineage_node *nodes;
	size_t n;
};

/* Read snapshots/ and run/ below @root. What is removed meanwhile is left out. Errors: those of reading the
 * directories; -ENOMEM. lineage_fini() is due in any case. */
int lineage_read(int root, struct lineage *ret, struct err *e);
void lineage_fini(struct lineage *l);

/* A row each, a parent above its children. @t was begun with LINEAGE_HEAD. @now: wall clock, seconds. -ENOMEM. */
#define LINEAGE_HEAD ((const char *const[]){ "NAME", "KIND", "STATUS", "UNIQUE", "AGE", NULL })
int lineage_table(const struct lineage *l, int64_t now, struct table *t);
/* [{"name","kind","status","uuid","children":[…]}, …]. NULL: no memory. */
struct json_object *lineage_json(const struct lineage *l);

#endif
