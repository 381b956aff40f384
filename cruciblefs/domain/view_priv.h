/* SPDX-License-Identifier: Apache-2.0 */
/* Views and policies, inside the domain (view.h is their face).
 *
 * Invariants:
 *  1. What a view is stands in <store>/views/<name>.json, durable, before anything acts on it. A removed one's is
 *     .gone-<uuid>.json from then on, until all that was made through it is gone, too: a daemon that is killed in
 *     between goes on where the one before stopped.
 *  2. Whoever belongs to a view holds a reference of it (struct cfs_who in an owner; only who_take() writes one).
 *     Sandboxes and snapshots whose view's file is not there, or cannot be read, belong to a lost view: it is dead, has
 *     no name, and they are in nobody's name space.
 *  3. Nothing of a dead view runs: it is stopped when the view dies, and sandbox_start() refuses.
 * Files: view.c (objects, policy, ttl), view_file.c (the files), view_end.c (expiry, removal), permit.c (which policies
 * apply, what they permit). */
#ifndef CRUCIBLE_DOMAIN_VIEW_PRIV_H
#define CRUCIBLE_DOMAIN_VIEW_PRIV_H

#include "cruciblefs/domain/priv.h"
#include "cruciblefs/view.h"

struct view {
	struct registry *reg;
	struct view *prev, *next; /* in the registry, which has a reference; in order of creation */
	unsigned refs;
	unsigned owned; /* of these: who_take() without who_drop(), so what was made through it */
	bool listed;	/* in the registry; removed ones only until registry_begin() */
	bool gone;	/* removed */
	bool forgotten; /* and its files are gone, too */
	bool lost;	/* its file is not there, or cannot be read: only the uuid is known */
	bool expired;	/* once so, until a new ttl: a clock that is set back wakes no dead */
	char name[CFS_NAME_MAX + 1];
	char uuid[LAUNCH_UUID_LEN + 1];
	struct cfs_who owner;
	uint64_t created_ns, changed_ns; /* wall clock */
	uint64_t expires_ns;		 /* wall clock; 0: never */
	struct policy *policy;		 /* NULL: none was written yet */
	char *error;			 /* NULL: none */
	struct waitq waitq;
};

/* -- view.c */
struct view *view_new(struct registry *r); /* in no table; NULL: no memory */
void view_insert(struct registry *r, struct view *v);
void view_take_out(struct view *v);						/* the registry's reference goes */
struct view *view_by_uuid(struct registry *r, const char *uuid);		/* also lost and removed ones */
struct view *view_of_uuid(struct registry *r, const char *uuid, struct err *e); /* a lost one is made; borrowed */
void view_changed(struct view *v);						/* mtime and wake */
void view_tell(struct view *v, const struct cfs_who *who, const char *event);	/* into the journal */
int view_may_change(struct view *v, const struct cfs_who *who, const char *step, struct err *e); /* -EPERM */
void views_free_all(struct registry *r);
/* An owner's copy of @who, with a reference of its view; who_drop() gives it back. */
void who_take(struct cfs_who *to, const struct cfs_who *who);
void who_drop(struct cfs_who *who);
/* -- view_file.c */
/* Errors: -ENOMEM; those of fd_replace. On some the new file stands: then what @v was is put back. */
int view_save(struct view *v, struct err *e);
bool view_has_file(const struct view *v);	/* of that name: of one that is in no table, somebody else's */
void view_put_back(struct view *v);		/* as it is now; one that is in no table has no file */
int view_disown(struct view *v, struct err *e); /* the file of a removed one, see above; those of rename and fsync */
void view_forget(struct view *v);		/* nothing is left of a removed one: its files go */
int views_load(struct registry *r, struct err *e);
/* An owner's view in sandbox.json and snapshot.json: its uuid. Read back, with the uid and gid of @who, into @ret,
 * which gets a reference; a view that is not there is a lost one. -EINVAL no uuid; -ENOMEM. */
void view_put(const struct cfs_who *owner, struct json_object *o);
int view_get(struct registry *r, struct cfs_who who, struct json_object *o, struct cfs_who *ret, struct err *e);
/* -- view_end.c */
int views_open_clock(struct registry *r, struct err *e);
void views_close_clock(struct registry *r);
void views_arm(struct registry *r);   /* after each change of a ttl */
void views_begin(struct registry *r); /* what ended while no daemon ran */
void view_adopted(struct sandbox *s); /* its machine is there again: stopped if its view is dead */

/* -- permit.c */
/* Is that the whole tree's root, or who may as if it were? 0; -EPERM with words. */
int permit_admin(struct registry *r, const struct cfs_who *who, struct err *e);
/* May @who do @op to @s? Words begin with the sandbox and @step. @who NULL, or a sandbox of the daemon's own: yes.
 * -EPERM, -ESTALE; -ENOENT @s belongs to another view than that which @who comes through. */
int sandbox_permits(struct sandbox *s, const struct cfs_who *who, enum policy_op op, const char *step, struct err *e);
/* The same of a snapshot (snapshot.c). */
int snapshot_permits(struct snapshot *p, const struct cfs_who *who, enum policy_op op, const char *step, struct err *e);
/* The smallest of that maximum; 0: no limit. */
uint64_t permit_max(struct registry *r, const struct cfs_who *who, enum policy_max which);
/* 0; -EDQUOT when @wanted is beyond the smallest of that maximum, with the limit and whose it is. 0 of
 * POLICY_MAX_TIMEOUT_S is no end at all, so it is beyond each. */
int permit_amount(struct registry *r, const struct cfs_who *who, enum policy_max which, uint64_t wanted, struct err *e);
/* One sandbox or snapshot more: each policy counts those that it is about: the view's those of the view, a user's those
 * of the user, a group's those of the group. -EDQUOT. */
int permit_one_more(struct registry *r, const struct cfs_who *who, enum policy_max which, struct err *e);
int permit_profile(struct registry *r, const struct cfs_who *who, const char *name, struct err *e); /* -EPERM */
/* By the lists of @who, and of the owner of @s. As policy_set_net_check(). */
int permit_net(struct sandbox *s, const struct cfs_who *who, const struct net_policy *wanted, struct err *e);
int permit_any_net(struct sandbox *s, const struct cfs_who *who, struct err *e); /* -EPERM there is to be none at all */

#endif
