/* SPDX-License-Identifier: Apache-2.0 */
/* sync(2) in a child process, one at a time: on a slow disk it takes as long as it takes. Thread: the loop's. */
#ifndef CRUCIBLE_AGENT_SYNCER_H
#define CRUCIBLE_AGENT_SYNCER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SYNCER_WAITING_MAX 64u

struct syncer;
typedef void syncer_done_fn(void *arg, uint32_t id);

int syncer_new(syncer_done_fn *fn, void *arg, struct syncer **ret); /* -ENOMEM */
struct syncer *syncer_free(struct syncer *s);			    /* NULL is fine; returns NULL */
/* @fn is called with @id when all that was written before this call is on the disk (inside it only when
 * no process could be made). Many that wait are
 * answered by one sync. -EBADMSG beyond SYNCER_WAITING_MAX. */
int syncer_request(struct syncer *s, uint32_t id);
void syncer_reset(struct syncer *s);		 /* a new epoch: nobody waits any more */
bool syncer_reaped(struct syncer *s, pid_t pid); /* true: it was ours */

#endif
