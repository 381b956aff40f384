/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed pool of threads for work that blocks (removing large files, say), with a bounded queue. A job's @run is
 * called in a worker, its @done on the loop's thread afterwards. Jobs of one pool run in no particular order. */
#ifndef CRUCIBLE_BASE_POOL_H
#define CRUCIBLE_BASE_POOL_H

#include <stddef.h>
#include "base/loop.h"

struct pool;
struct pool_job {
	void (*run)(struct pool_job *job);  /* in a worker; touches nothing that the loop's thread owns */
	void (*done)(struct pool_job *job); /* on the loop's thread; may free the job */
	struct pool_job *next;		    /* private */
};

/* Uses the loop's wake (loop_set_wake): one pool a loop. Errors: -ENOMEM, -EAGAIN no thread. */
int pool_new(struct loop *l, unsigned threads, size_t queue_max, struct pool **ret);
/* Waits for the jobs that run; jobs still queued are run too (in the caller). All `done` are called. NULL is fine. */
struct pool *pool_free(struct pool *p);
/* -EBUSY when the queue is full: the job was not taken. Thread: loop. */
int pool_submit(struct pool *p, struct pool_job *job);

#endif
