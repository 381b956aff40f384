/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's limits of `mcp serve`. Whoever calls tools can narrow them, never widen. Thread: any, once made. */
#ifndef CRUCIBLE_MCP_GUARD_H
#define CRUCIBLE_MCP_GUARD_H

#include <pthread.h>
#include "tools/crucible/args.h"
#include "tools/crucible/sbx.h"

#define GUARD_PENDING_MAX 1024

struct guard {
	const struct args *args; /* the flags; borrowed: the lists are words of these */

	pthread_mutex_t lock;		 /* protects what follows */
	char (*pending)[SBX_ID_MAX + 1]; /* names that were admitted and may not stand in run/ yet */
	size_t npending;
};

int guard_init(struct guard *g, const struct args *flags, struct err *e); /* -ENOMEM */
void guard_fini(struct guard *g);

/* Is @word in the list "a,b" (NULL: no list)? */
bool guard_lists(const char *list, const char *word);
/* May this tool be seen and called? */
bool guard_permits_tool(const struct guard *g, const char *name);

/* Where a new sandbox comes from: fill in the default profile, refuse what is not permitted. -EPERM. */
int guard_origin(const struct guard *g, struct args *a, struct err *e);
/* Is every line of net_allow permitted? -EPERM. */
int guard_net(const struct guard *g, const struct args_texts *lines, struct err *e);
/* The same of what a sandbox (@dir) may reach now: one that comes from a snapshot has its list from there. */
int guard_net_of(const struct guard *g, int dir, struct err *e);
/* Ports that lead in are a network, too. -EPERM. */
int guard_publish(const struct guard *g, const struct args_texts *ports, struct err *e);
/* At most the operator's; @ms 0 is "no limit". */
uint64_t guard_timeout_ms(const struct guard *g, uint64_t ms);
int guard_forks(const struct guard *g, uint64_t count, struct err *e); /* -EPERM */

/* May @n more sandboxes, with these names, be made? Then they count from now on. guard_settle() when they stand in
 * run/, or never will. What counts are sandboxes of this user, whoever made them. -EDQUOT; errors of reading run/. */
int guard_admit(struct guard *g, int root, const char (*names)[SBX_ID_MAX + 1], size_t n, struct err *e);
void guard_settle(struct guard *g, const char (*names)[SBX_ID_MAX + 1], size_t n);

#endif
