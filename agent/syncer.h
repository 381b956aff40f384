/* SPDX-License-Identifier: Apache-2.0 */
/* sync(2), and trims, in a child process, one at a time: on a slow disk it takes as long as it takes. Thread: the
 * loop's.
 */
#ifndef CRUCIBLE_AGENT_SYNCER_H
#define CRUCIBLE_AGENT_SYNCER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "agent/guest.h"

#define SYNCER_WAITING_MAX 64u

struct syncer;
typedef void syncer_done_fn(void *arg, uint32_t id);

/* @g is borrowed for life. */
int syncer_new(const struct guest *g, syncer_done_fn *fn, void *arg, struct syncer **ret); /* -ENOMEM */
struct syncer *syncer_free(struct syncer *s); /* NULL is fine; returns NULL */
/* @fn is called with @id when all that was written before this call is on the disk, and with @trim also its unused
 * blocks were given back and the kernel's caches dropped, as far as the guest can (inside of it only when no process
 * could be made). Many that wait are answered by one child. -EBADMSG beyond SYNCER_WAITING_MAX. */
int syncer_request(struct syncer *s, uint32_t id, bool trim);
void syncer_reset(struct syncer *s);		 /* a new epoch: nobody waits any more */
bool syncer_reaped(struct syncer *s, pid_t pid); /* true: it was ours */

#endif
