/* SPDX-License-Identifier: Apache-2.0 */
/* One snapshot, as its directory snapshots/<id>: found, waited for, its failures in words. Thread: any. */
#ifndef CRUCIBLE_TOOLS_SNAPSHOT_H
#define CRUCIBLE_TOOLS_SNAPSHOT_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define SNAPSHOT_ID_MAX 56 /* so that "<id>-1000000" is a sandbox's name, too */

struct snapshot {
	int dir; /* O_PATH of snapshots/<id>; -1: not open */
	char id[SNAPSHOT_ID_MAX + 1];
};
#define SNAPSHOT_NONE ((struct snapshot){ .dir = -1 })

/* The tree checks names itself; this is for clear words. -EINVAL, -ENAMETOOLONG. */
int snapshot_id_check(const char *id, struct err *e);

/* Open snapshots/@id below @root. Errors: of snapshot_id_check; -ENOENT; -EACCES somebody else's; those of openat. */
int snapshot_open(int root, const char *id, struct snapshot *ret, struct err *e);
void snapshot_close(struct snapshot *s);

/* Words for what an operation on the snapshot @id said. Returns @code. */
int snapshot_explain(int code, const char *id, struct err *e);

/* Block until `status` is `ready`; on a terminal, show how far it is. -EBADMSG it is `damaged`, with its `error` in
 * words; -ENOENT it was removed. */
int snapshot_await_ready(int root, struct snapshot *s, struct err *e);

/* diff.json as lines, "A /path" for what was added, M changed, D deleted: exactly one line for each, however it is
 * called. Errors: -EINVAL it is no such record; those of @out. */
int snapshot_diff_text(struct json_object *diff, struct buf *out, struct err *e);

#endif
