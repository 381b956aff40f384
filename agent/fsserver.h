/* SPDX-License-Identifier: Apache-2.0 */
/* The file server: a child process that does the file operations (files.h), and the agent's side of it, which passes
 * requests on and answers for a server that hangs or was killed. Thread: the loop's. Nothing here blocks.
 *
 * Requests are worked off in order. The one at the head is the only one that a lost server can have begun: it is
 * answered -ETIMEDOUT (no answer within FSSERVER_HANG_MS), or after a death once more asked if it changes nothing, else
 * -EIO. The others go to the next server as if nothing had happened, but that handles are -ESTALE there. */
#ifndef CRUCIBLE_AGENT_FSSERVER_H
#define CRUCIBLE_AGENT_FSSERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "agent/guest.h"
#include "agent/proto.h"
#include "base/loop.h"

#define FSSERVER_HANG_MS       5000u
#define FSSERVER_FSYNC_HANG_MS 30000u /* a slow disk is not a dead one */

struct fsserver;
/* Called with the payload of AG_FS_REP; borrowed until it returns. */
typedef void fsserver_reply_fn(void *arg, uint8_t op, uint32_t id, const void *data, size_t len);

/* Starts nothing yet. -ENOMEM. */
int fsserver_new(struct loop *l, const struct guest *g, fsserver_reply_fn *fn, void *arg, struct fsserver **ret);
struct fsserver *fsserver_free(struct fsserver *s); /* kills the child; NULL is fine; returns NULL */
/* Have a child ready before the first request, so that it need not wait for a fork. Failing is fine. */
void fsserver_warm(struct fsserver *s);
/* One AG_FS_REQ. -EBADMSG beyond AG_FS_INFLIGHT_MAX. Every other failure is a reply. */
int fsserver_request(struct fsserver *s, uint8_t op, uint32_t id, const void *data, size_t len);
bool fsserver_idle(const struct fsserver *s); /* no request is unanswered */
/* A new epoch: forget the requests, close all handles. */
void fsserver_reset(struct fsserver *s);
/* A child was reaped. true: it was ours. */
bool fsserver_reaped(struct fsserver *s, pid_t pid);

#endif
