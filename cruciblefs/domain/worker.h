/* SPDX-License-Identifier: Apache-2.0 */
/* A hidden sandbox of the daemon's own that runs one command. Thread: loop. */
#ifndef CRUCIBLE_DOMAIN_WORKER_H
#define CRUCIBLE_DOMAIN_WORKER_H

#include "cruciblefs/domain/snapshot_priv.h"

struct worker;
/* Its command has ended (0; the record says how), or its machine failed (-errno, words). Once; the sandbox is there
 * until worker_free(), which may be called from here. */
typedef void worker_fn(void *arg, struct worker *k, int code, const char *words);
/* @p: the snapshot that it goes on from; NULL: what @attrs say. @command: as written into `cmd`. Errors: -ENOMEM, those
 * of the store and of sandbox_start(). */
int worker_new(struct registry *r, const char *name, const struct attrs *attrs, struct snapshot *p, const char *command,
	       worker_fn *fn, void *arg, struct worker **ret, struct err *e);
struct sandbox *worker_sandbox(struct worker *k); /* borrowed */
uint64_t worker_command(const struct worker *k);
void workers_end(struct registry *r);	      /* the daemon ends: each has failed */
void workers_stop(struct registry *r);	      /* an orderly end */
struct worker *worker_free(struct worker *k); /* NULL is fine; returns NULL; the machine goes behind */

#endif
