/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots, as the files of the tree see them: `run/<id>/snapshot`, `snapshots/<id>/`. As sandbox.h: the loop's
 * thread, nothing blocks; what takes long is a struct snapshot_job whose end is waited for on a queue.
 *
 * States (the words of `status`):
 *   capturing  the machine is being frozen and copied         -> storing, gone (a failure: it never was)
 *   storing    forks may be made; pages go into the store     -> ready, damaged
 *   ready      everything is in the store, durable            -> damaged
 *   damaged    what it needs cannot be read; `error` says what. Other snapshots and what runs are not touched.
 * rmdir at any time: sandboxes and later snapshots made from it keep working. */
#ifndef CRUCIBLE_SNAPSHOT_H
#define CRUCIBLE_SNAPSHOT_H

#include "cruciblefs/sandbox.h"

#define SNAPSHOT_NAME_MAX 56
#define FORK_MAX	  256u /* sandboxes of one batch */

enum snapshot_status { SNAPSHOT_CAPTURING, SNAPSHOT_STORING, SNAPSHOT_READY, SNAPSHOT_DAMAGED, SNAPSHOT_STATUS_COUNT };
const char *snapshot_status_name(enum snapshot_status s);

struct snapshot;

/* By its name in @view (NULL: in the whole tree's snapshots/). Borrowed; NULL when there is none. */
struct snapshot *registry_find_snapshot(struct registry *r, const struct view *view, const char *name);
struct snapshot *registry_snapshot_by_uuid(struct registry *r, const char *uuid); /* the same, not by name */
/* Those of @view in order of creation, hidden ones left out: NULL starts, NULL ends. Not across changes. */
struct snapshot *registry_next_snapshot(struct registry *r, const struct view *view, struct snapshot *after);
struct snapshot *snapshot_ref(struct snapshot *p);
struct snapshot *snapshot_unref(struct snapshot *p); /* NULL is fine; returns NULL */
bool snapshot_gone(const struct snapshot *p);
const char *snapshot_name(const struct snapshot *p);
const char *snapshot_uuid(const struct snapshot *p);
const char *snapshot_source_uuid(const struct snapshot *p); /* the sandbox's that it was taken of */
const char *snapshot_parent(const struct snapshot *p);	    /* a snapshot's name, or "profile:NAME" */
struct cfs_who snapshot_owner(const struct snapshot *p);
enum snapshot_status snapshot_status(const struct snapshot *p);
const char *snapshot_error(const struct snapshot *p); /* "" when there is none */
uint64_t snapshot_created_ns(const struct snapshot *p);
uint64_t snapshot_changed_ns(const struct snapshot *p);
struct waitq *snapshot_waitq(struct snapshot *p); /* woken at every change of status, error, verify, diff */
void snapshot_fail(struct snapshot *p, const struct cfs_who *who,
		   const struct err *e); /* into `error` and the journal */
int snapshot_info_json(struct snapshot *p, struct buf *out);
/* Names of living sandboxes made from it; NULL starts, NULL ends; borrowed. */
struct sandbox *snapshot_next_fork(struct snapshot *p, struct sandbox *after);
/* The shape and limits of @p, and where it comes from, become @s's: it will go on from @p. */
void snapshot_lend(struct snapshot *p, struct sandbox *s);
void snapshot_destroy(struct snapshot *p, const struct cfs_who *who);
/* The same, as rmdir: if @who may. Errors: -EPERM, -ESTALE, -ENOENT (registry_may(), view.h). */
int snapshot_remove(struct snapshot *p, const struct cfs_who *who, struct err *e);

/* Something that takes a while: one caller waits for its end. */
struct snapshot_job;
/* -EAGAIN: not yet, wait on the queue; else 0 or -errno with words. */
int snapshot_job_result(struct snapshot_job *j, struct err *e);
struct waitq *snapshot_job_waitq(struct snapshot_job *j);
void snapshot_job_drop(struct snapshot_job *j); /* not waited for (any more): the work goes on. NULL is fine */

/* Write a name into run/<id>/snapshot. Errors at once: those of cfs_name_check, -ENAMETOOLONG over SNAPSHOT_NAME_MAX;
 * -EEXIST; -EBUSY not running, or another snapshot of it is under way; -EDQUOT; -ENOSPC, -ENOMEM the host is full.
 * Later: -ETIMEDOUT the guest did not freeze; -ENOTCONN it ended. The sandbox goes on in every case. */
int sandbox_snapshot(struct sandbox *s, const char *name, const struct cfs_who *who, struct snapshot_job **ret,
		     struct err *e);
const char *sandbox_latest_snapshot(const struct sandbox *s); /* a name, or "" */

/* Commands that run on from the snapshot: their numbers there, growing; 0 starts, 0 ends. What each has printed since:
 * a file, the caller closes. */
uint64_t sandbox_inherited_next(struct sandbox *s, uint64_t after);
int sandbox_inherited_open(struct sandbox *s, uint64_t n, int *ret_fd);

/* Write into snapshots/<id>/fork: a number, or names, one a line. All or none. Errors at once: -EINVAL; -EEXIST;
 * -EDQUOT; -EPERM not the owner; -EBUSY capturing; -EBADMSG damaged; -EPROTONOSUPPORT another machine, engine or kernel
 * (words name the way out); -ENOMEM. Later: what a start can end with. */
int snapshot_fork(struct snapshot *p, const char *text, bool disk_only, const struct cfs_who *who,
		  struct snapshot_job **ret, struct err *e);
int snapshot_last_batch(struct snapshot *p, struct buf *out); /* names, one a line */

int snapshot_verify(struct snapshot *p, const struct cfs_who *who, struct err *e); /* behind; -EBUSY: not stored yet */
int snapshot_verify_json(struct snapshot *p, struct buf *out);			   /* the last outcome; "" before */
int snapshot_diff(struct snapshot *p, const struct cfs_who *who, struct err *e);   /* behind */
const char *snapshot_diff_state(struct snapshot *p);				   /* none running done failed */
int snapshot_diff_json(struct snapshot *p, struct buf *out);			   /* -ENOENT before */

/* store/: of the whole store. */
int registry_store_json(struct registry *r, struct buf *out);
int registry_store_start(struct registry *r, const char *what, const struct cfs_who *who,
			 struct err *e); /* gc verify */
int registry_store_outcome(struct registry *r, const char *what, struct buf *out);

#endif
