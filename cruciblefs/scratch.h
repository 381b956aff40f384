/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch files: what sed -i, rsync, install and editors make beside a control file before they rename it over it. In
 * memory, CFS_SCRATCH_MAX bytes and SCRATCH_FILES files in a sandbox (and in all views/<name>/ together); they go with
 * the sandbox, the view or the daemon. Thread:
 * the loop's. */
#ifndef CRUCIBLE_SCRATCH_H
#define CRUCIBLE_SCRATCH_H

#include "cruciblefs/place.h"
#include "cruciblefs/session.h"

#define SCRATCH_FILES 256u

struct scratch;

struct scratch *scratch_find(struct cfs_place *p, uint64_t dir_ino, const char *name);
struct scratch *scratch_next(struct cfs_place *p, struct scratch *after); /* NULL starts, NULL ends */
const char *scratch_name(const struct scratch *s);
uint64_t scratch_dir(const struct scratch *s); /* the number of its directory */
void scratch_stat(const struct scratch *s, struct stat *st);
void scratch_text(const struct scratch *s, const char **ret_data, size_t *ret_len); /* borrowed */

/* A new, empty one, seen through @view (NULL: the whole tree). Errors: -EDQUOT too many; -ENOMEM, -ENFILE. */
int scratch_new(struct cfs_session *cs, struct view *view, struct cfs_place *p, uint64_t dir_ino, const char *name,
		mode_t mode, const struct cfs_who *who, struct scratch **ret);
int scratch_fill(struct scratch *s, const void *data, size_t len); /* -EDQUOT, -ENOMEM */
/* Take its name away; open ones stay. */
void scratch_unlink(struct scratch *s);
void scratch_rename(struct scratch *s, uint64_t dir_ino, const char *name); /* the name is free */
void scratch_drop_dir(struct cfs_place *p, uint64_t dir_ino);
void scratch_drop_all(struct cfs_place *p);

void scratch_reply_entry(struct cfs_req *r, struct scratch *s);
void scratch_reply_create(struct cfs_req *r, struct scratch *s, int flags);

#endif
