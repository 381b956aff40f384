/* SPDX-License-Identifier: Apache-2.0 */
/* One sandbox, as its directory: found, made, set up, awaited, removed. Thread: any. Blocks: only where it says so. */
#ifndef CRUCIBLE_TOOLS_SBX_H
#define CRUCIBLE_TOOLS_SBX_H

#include <stdint.h>
#include "base/err.h"
#include "tools/crucible/args.h"

#define SBX_ID_MAX 63

struct sbx {
	int dir;   /* O_PATH of run/<id>; -1: not open */
	int run;   /* the mount's `run`; owned */
	int lease; /* -1: not held */
	char id[SBX_ID_MAX + 1];
};
#define SBX_NONE ((struct sbx){ .dir = -1, .run = -1, .lease = -1 })

/* The tree checks names itself; this is for clear words. -EINVAL, -ENAMETOOLONG. */
int sbx_id_check(const char *id, struct err *e);

/* Open run/@id below @root. Errors: of sbx_id_check; -ENOENT; -EACCES; those of openat. */
int sbx_open(int root, const char *id, struct sbx *ret, struct err *e);

/* Make one. @id NULL: a fresh name that begins with @prefix. With @lease it is destroyed when we end, however that
 * happens (no signal can come between). Errors: of sbx_id_check and mkdir: -EEXIST, -EDQUOT, -ENOSPC, -ENOMEM, -EPERM;
 * nothing is left then. */
int sbx_make(int root, const char *id, const char *prefix, bool lease, struct sbx *ret, struct err *e);

/* Write the attributes that @a holds: --profile, --from or --snapshot, --vcpus, --memory, --disk, --net-allow,
 * --publish, the lifetime. Errors:
 * of the writes. */
int sbx_set_up(struct sbx *s, const struct args *a, struct err *e);

/* Write the variables of all its commands, KEY=VALUE each; none leaves the file alone. The file takes lines, so a value
 * cannot hold a newline. Errors: -EINVAL, -E2BIG, those of the write. */
int sbx_set_env(struct sbx *s, const struct args_texts *env, struct err *e);

/* Have it live as long as a command of @timeout_ms may run in it, and a little more, unless it does, or as long as the
 * policy permits. Errors: of reading and writing limits/timeout_s. */
int sbx_stretch(struct sbx *s, uint64_t timeout_ms, struct err *e);

/* Have it end after @ms, from its start on. Errors: of the write. */
int sbx_limit_lifetime(struct sbx *s, uint64_t ms, struct err *e);

/* rmdir. An @s that is gone is no error. */
int sbx_remove(struct sbx *s, struct err *e);
/* The same after a failure, whose words @e holds: where it may not be removed, they say that it stays. */
void sbx_undo(struct sbx *s, struct err *e);
/* By name, without opening it: works for a sandbox whose directory one may not enter. -ENOENT, -EPERM, -EACCES. */
int sbx_remove_id(int root, const char *id, struct err *e);

/* Block until `status` is @word (0), or `failed` (-EIO, its `error` in words), or @timeout_ms passed (-ETIMEDOUT). */
int sbx_await(struct sbx *s, const char *word, unsigned timeout_ms, struct err *e);

void sbx_close(struct sbx *s); /* also lets go of the lease */

/* "run-3f9a01c2": eight random digits behind @prefix. */
void sbx_fresh_name(const char *prefix, char out[SBX_ID_MAX + 1]);

#endif
