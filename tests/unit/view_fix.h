/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of views and policies begin with. */
#ifndef CRUCIBLE_TEST_VIEW_FIX_H
#define CRUCIBLE_TEST_VIEW_FIX_H

#include "cruciblefs/domain/view_priv.h"
#include "tests/unit/snapshot_fix.h"

#define ALL_OPS "\"create\",\"exec\",\"snapshot\",\"fork\",\"delete\",\"read\",\"files\",\"network\""

extern const struct cfs_who bob;

struct view *new_view(struct world *w, const char *name, const char *policy_or_null); /* as root */
struct cfs_who through(struct view *v, const struct cfs_who *who);
int write_policy(struct view *v, const char *text, struct err *e); /* as root */
void write_ttl(struct view *v, const char *text);		   /* as root */
struct view *view_named(struct world *w, const char *name);	   /* it is there */
int create(struct world *w, const char *name, const struct cfs_who *who, struct sandbox **ret, struct err *e);
struct sandbox *runs_for(struct world *w, const char *name, const struct cfs_who *who); /* booted cold, ready */
int snapshot_as(struct world *w, struct sandbox *s, const char *name, const struct cfs_who *who, struct err *e);
int fork_as(struct world *w, struct snapshot *p, const char *text, const struct cfs_who *who, struct err *e);
int limit(struct sandbox *s, enum sandbox_attr a, const char *text, const struct cfs_who *who, struct err *e);
/* @text bound to that uid or gid by the configuration of the next daemon: bring_up() reads it. */
void bind_policy(struct world *w, bool of_gid, uint32_t id, const char *text);
void restart(struct world *w); /* killed, and started again */
char *read_fd(int fd);	       /* all of it, malloc'd; closes it */

#endif
