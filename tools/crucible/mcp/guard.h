/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of `mcp serve`: the operator's flags, and what the mount's policy permits. Of both the smaller one holds;
 * whoever calls tools can narrow them, never widen. The policy is the daemon's to enforce: here it decides which tools
 * are shown, and refuses early and in words. Thread: any, once made. */
#ifndef CRUCIBLE_MCP_GUARD_H
#define CRUCIBLE_MCP_GUARD_H

#include <pthread.h>
#include "tools/crucible/args.h"
#include "tools/crucible/permits.h"
#include "tools/crucible/sbx.h"

#define GUARD_PENDING_MAX 1024

struct guard {
	const struct args *args; /* the flags; borrowed: the lists are words of these */

	pthread_mutex_t lock; /* protects what follows */
	bool known;	      /* the policy was read */
	struct permits policy;
	unsigned changes;		 /* how often other operations were permitted than before */
	char (*pending)[SBX_ID_MAX + 1]; /* names that were admitted and may not stand in run/ yet */
	size_t npending;
};

int guard_init(struct guard *g, const struct args *flags, struct err *e); /* -ENOMEM */
void guard_fini(struct guard *g);

/* At the start: is each rule of --net-allow-max one that net/allow takes? Tells of all that are not.
 * -EINVAL, -EFBIG, -ENOMEM */
int guard_check_net_max(const struct args *flags, struct err *e);
/* Has the mount @root the profile of --default-profile? -ENOENT: it lists profiles, and not this one. Where it lists
 * none, the call that needs it tells. Blocks: no longer than the daemon. */
int guard_check_default(const struct args *flags, int root, struct err *e);

/* Read the policy of the mount @root; what was known before stays where that fails. Blocks: no longer than the daemon.
 */
void guard_refresh(struct guard *g, int root);
bool guard_knows(struct guard *g);	 /* was it ever read? */
unsigned guard_changes(struct guard *g); /* another number: other tools are permitted */

/* Is @word in the list "a,b" (NULL: no list)? */
bool guard_lists(const char *list, const char *word);
/* Do the flags permit this tool? */
bool guard_permits_tool(const struct guard *g, const char *name);
/* Does the policy permit all of @ops (enum policy_op)? Where it is not known: yes, the daemon will say. */
bool guard_permits(struct guard *g, unsigned ops);

/* Where a new sandbox comes from: fill in the default profile, refuse what is not permitted. -EPERM. */
int guard_origin(struct guard *g, struct args *a, struct err *e);
bool guard_permits_profile(struct guard *g, const char *name);
/* Is every line of net_allow permitted? Of the policy only "no network" is looked at. -EPERM. */
int guard_net(struct guard *g, const struct args_texts *lines, struct err *e);
/* The same of what a sandbox (@dir) may reach now: one that comes from a snapshot has its list from there. */
int guard_net_of(const struct guard *g, int dir, struct err *e);
/* Ports that lead in are a network, too. -EPERM. */
int guard_publish(struct guard *g, const struct args_texts *ports, struct err *e);
/* At most what is permitted; @ms 0 is "no limit". */
uint64_t guard_timeout_ms(struct guard *g, uint64_t ms);
/* The operator's alone, 0: none. What the policy says of forks the daemon has seen to. */
uint64_t guard_fork_lifetime_ms(const struct guard *g);
int guard_forks(struct guard *g, uint64_t count, struct err *e); /* -EPERM */

/* May @n more sandboxes, with these names, be made? Then they count from now on. guard_settle() when they stand in
 * run/, or never will. What counts are sandboxes of this user, whoever made them. -EDQUOT; errors of reading run/. */
int guard_admit(struct guard *g, int root, const char (*names)[SBX_ID_MAX + 1], size_t n, struct err *e);
void guard_settle(struct guard *g, const char (*names)[SBX_ID_MAX + 1], size_t n);

#endif
