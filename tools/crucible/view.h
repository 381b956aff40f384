/* SPDX-License-Identifier: Apache-2.0 */
/* One view, as its directory views/<name>: found, made, given an end and an owner, removed. Thread: any. Blocks: no
 * longer than the daemon. */
#ifndef CRUCIBLE_TOOLS_VIEW_H
#define CRUCIBLE_TOOLS_VIEW_H

#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "base/err.h"
#include "tools/crucible/sbx.h"

struct view {
	int dir; /* O_PATH of views/<id>; -1: not open */
	int all; /* the mount's `views`; owned */
	char id[SBX_ID_MAX + 1];
};
#define VIEW_NONE ((struct view){ .dir = -1, .all = -1 })

/* Open views/@id below @root. Errors, with words: of sbx_id_check(); -ENOENT, also where the mount has no views;
 * -EACCES. */
int view_open(int root, const char *id, struct view *ret, struct err *e);
/* mkdir. @id NULL: a fresh name. Errors: of sbx_id_check(); -EEXIST, -EPERM, -EDQUOT, -ENOSPC, -ENOENT no views. */
int view_make(int root, const char *id, struct view *ret, struct err *e);

/* Write its `ttl`: from now on, in whole seconds (what is more than whole counts as one more). */
int view_set_ttl(struct view *v, uint64_t ms, struct err *e);
/* Write its `policy`: all of @text. A document with faults: -EINVAL; @faults has all of them, as `error` tells them. */
int view_set_policy(struct view *v, const char *text, size_t len, struct buf *faults, struct err *e);
/* Whose the directory is: @gid (gid_t)-1 leaves the group. -EPERM. */
int view_set_owner(struct view *v, uid_t uid, gid_t gid, struct err *e);
/* Its `tree`, O_PATH. -ENOENT no policy was written yet; -ESTALE its time is over. */
int view_open_tree(struct view *v, struct err *e);

/* rmdir, with all that was made through it. One that is gone is no error. -EPERM, -EACCES. */
int view_remove(struct view *v, struct err *e);
void view_close(struct view *v);

#endif
