/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes through the tree and nothing else, for operations; and processes by their user ids. Thread: one. All block.
 */
#ifndef CRUCIBLE_TOOLS_BENCH_TREE_H
#define CRUCIBLE_TOOLS_BENCH_TREE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define TREE_RECORD_MAX (256u * 1024u)

struct tree_uids {
	unsigned long engine, box;
};

int tree_read(const char *dir, const char *name, char *buf, size_t cap, struct err *e); /* at most cap - 1 bytes, NUL */
int tree_write(const char *dir, const char *name, const char *text, struct err *e);
/* Write cmd, read wait to the end into @record (TREE_RECORD_MAX bytes). -EIO when its exit code is not 0. */
int tree_command(const char *dir, const char *text, char *record, struct err *e);
int tree_uids(const char *dir, struct tree_uids *ret, struct err *e);
/* rmdir, and wait until no process of these users is left: its end costs the next run nothing. */
int tree_destroy(const char *dir, const struct tree_uids *u, struct err *e);

/* The process of each of these users: ret[i] 0: none. One pass over /proc. */
void tree_pids(const unsigned long *uids, size_t n, pid_t *ret);
/* Wait until @n engines stand ready in the pool. @pool: "FIRST_UID:N" of the daemon; NULL: nothing is waited for. */
int tree_wait_pool(const char *pool, struct err *e);
/* Wait until the daemon of @mount says that all that is to wait does: pool_size machines, and warm_size of the snapshot
 * that was forked last; one must have been. */
int tree_wait_full(const char *mount, struct err *e);

#endif
