/* SPDX-License-Identifier: Apache-2.0 */
/* Views: parts of the tree with names and a policy of their own, `views/<name>/`. As sandbox.h: the loop's thread,
 * nothing blocks.
 *
 * Who comes through views/<name>/tree (or a bind mount of it) acts in that view: struct cfs_who carries it, and what is
 * made belongs to it (owner.view). Names of sandboxes and snapshots are looked up in one view, or in the whole tree's
 * own name space (NULL): neither tells of the other's. Every request is held against all policies that apply to it: the
 * view's, the one that the configuration binds to the caller's uid, the one bound to its gid, the host's. All must
 * permit it, and the smallest limit counts.
 *
 * States (the words of `status`):
 *   new      no policy was written yet: there is no `tree`                       -> active, gone
 *   active   what the policy permits                                             -> expired, gone
 *   expired  its time is over: all below `tree`, open descriptors too, is ESTALE. Its machines are stopped; disks,
 *            records and snapshots stay                                          -> active (a new ttl), gone
 * rmdir removes a view with all that was made through it. */
#ifndef CRUCIBLE_VIEW_H
#define CRUCIBLE_VIEW_H

#include "cruciblefs/sandbox.h"
#include "policy/policy.h"

struct view;

enum view_status { VIEW_NEW, VIEW_ACTIVE, VIEW_EXPIRED };
const char *view_status_name(enum view_status s);

/* Borrowed; NULL when there is none. */
struct view *registry_find_view(struct registry *r, const char *name);
/* In order of creation: NULL starts, NULL ends. Not across changes. */
struct view *registry_next_view(struct registry *r, struct view *after);
/* Make one, `new`. Errors: those of cfs_name_check; -EEXIST, also where the store has a file of that name that could
 * not be read; -EPERM who may not administer, or comes through a view itself; -EDQUOT VIEWS_MAX; -ENOSPC, -EIO. */
int registry_create_view(struct registry *r, const char *name, const struct cfs_who *who, struct view **ret,
			 struct err *e);
#define VIEWS_MAX 1024u
/* Out of the tree at once, dead; what was made through it is destroyed as by rmdir. -EPERM */
int registry_remove_view(struct registry *r, struct view *v, const struct cfs_who *who, struct err *e);

struct view *view_ref(struct view *v);	 /* NULL is fine */
struct view *view_unref(struct view *v); /* NULL is fine; returns NULL */
/* What comes through it is ESTALE: expired, removed, or it never had a policy. */
bool view_dead(const struct view *v);
bool view_gone(const struct view *v); /* removed */
enum view_status view_status(const struct view *v);
const char *view_name(const struct view *v);
const char *view_uuid(const struct view *v);
struct cfs_who view_owner(const struct view *v); /* of the directory views/<name>; its files are root's */
const char *view_error(const struct view *v);	 /* "" when there is none */
uint64_t view_created_ns(const struct view *v);	 /* wall clock */
uint64_t view_changed_ns(const struct view *v);	 /* wall clock */
/* Woken at every change of policy, ttl, status and error, and at the end. Never freed before the object. */
struct waitq *view_waitq(struct view *v);

int view_info_json(struct view *v, struct buf *out); /* with the newline */
/* The policy, in its one form. -ENOENT before one was written. */
int view_policy_show(const struct view *v, struct buf *out);
/* The whole document; takes effect at once, on open descriptors too. -EINVAL with every fault in `error`, one line,
 * "; " between them; the old policy stays. -EPERM, -EFBIG, those of the store. */
int view_policy_store(struct view *v, const char *text, size_t len, const struct cfs_who *who, struct err *e);
/* Seconds left, or "none". */
int view_ttl_show(const struct view *v, struct buf *out);
/* "SECONDS", or a number with s, m, h or d; "none". Counts from now, on the wall clock, over restarts. -EINVAL, -EPERM
 */
int view_ttl_store(struct view *v, const char *text, size_t len, const struct cfs_who *who, struct err *e);
int view_chown(struct view *v, uid_t uid, gid_t gid, const struct cfs_who *who, struct err *e); /* root: -EPERM else */

/* May @who do that, by all policies that apply? 0; -EPERM with words that name the operation and whose policy it is;
 * -ESTALE its view is dead. */
int registry_may(struct registry *r, const struct cfs_who *who, enum policy_op op, struct err *e);
/* All policies that apply to @who; valid until the loop's next round. */
void registry_policies(struct registry *r, const struct cfs_who *who, struct policy_set *ret);

#endif
