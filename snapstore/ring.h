/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of packs that do not block: an io_uring that can do nothing else. It is made disabled, restricted to READ on
 * registered files (and to replacing those), and then enabled; seccomp sees nothing of what a ring does, so this is its
 * confinement. */
#ifndef CRUCIBLE_SNAP_RING_H
#define CRUCIBLE_SNAP_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct ring;
/* @event_fd: readable when something has completed; borrowed for life. @depth: reads under way at once.
 * Errors: -ENOSYS, -EPERM forbidden; -EOPNOTSUPP a kernel without restrictions; those of io_uring_setup. */
int ring_new(unsigned depth, int event_fd, struct ring **ret, struct err *e);
struct ring *ring_free(struct ring *r); /* nothing may be under way; NULL is fine */
/* The place of file @id in the table of files, made when it has none (@fd then goes in, for another that is idle).
 * It may be another after the next call. -EBUSY: all have reads under way. */
int ring_file(struct ring *r, uint64_t id, int fd, unsigned *ret_slot, struct err *e);
/* Let go of the files for which @keep says false; reads of them that are under way go on. */
void ring_sweep(struct ring *r, bool (*keep)(void *arg, uint64_t id), void *arg);
/* Begin to read. @token comes back from ring_next(). -EBUSY: depth. */
int ring_read(struct ring *r, unsigned slot, void *buf, uint32_t len, uint64_t off, void *token);
/* What has completed: its token and result (bytes or -errno); NULL when there is nothing. */
void *ring_next(struct ring *r, int *ret_res);
int ring_wait(struct ring *r); /* block until something has completed. 0 or -errno */

#endif
