/* SPDX-License-Identifier: Apache-2.0 */
/* The two ports to the agent as frames: what comes in is checked for form and order, what goes out is queued and
 * bounded. What the frames mean is guest.c's. Thread: the loop's.
 *
 * An epoch begins with channel_hello(), the first or a further one. Until the agent's HELLO has come on control, STAGE
 * and BYE are passed on, the rest is what an older epoch left in the pipe and is dropped; on bulk the new epoch begins
 * with the first frame whose seq is 0.
 *
 * Quiet: channel_hold(), and when channel_drained() (or on_drained) FREEZE; what else is sent from the hold on waits
 * for channel_release() or is dropped by channel_hello(). FREEZE, THAW and HELLO are never held. */
#ifndef CRUCIBLE_VMM_BOX_CHANNEL_H
#define CRUCIBLE_VMM_BOX_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "agent/proto.h"
#include "base/loop.h"

enum channel_port { CHANNEL_CONTROL, CHANNEL_BULK, CHANNEL_PORT_COUNT };
const char *channel_port_name(enum channel_port p); /* "control", "bulk" */

#define CHANNEL_QUEUE_MAX (2u * 1024 * 1024) /* bytes that wait for a port that the guest does not read */
#define CHANNEL_ROOM	  (64u * 1024)	     /* below this much waiting, bulk has room for another piece of a stream */

struct channel_ops { /* from the loop; each may free the channel */
	/* One frame; its payload dies on return. 0, or -EBADMSG when the agent may not send it here or now: on_gone
	 * follows. */
	int (*on_frame)(void *arg, enum channel_port port, const struct ag_frame *f);
	/* Bulk has room again; called after channel_send() has filled it. */
	void (*on_room)(void *arg);
	/* Nothing waits any more; once after channel_hold(), when something did. */
	void (*on_drained)(void *arg);
	/* Once: end of file, malformed input (-EBADMSG), a queue that is full (-ENOBUFS). Nothing is sent or received
	 * any more. */
	void (*on_gone)(void *arg, enum channel_port port, int reason);
};

struct channel;
/* Takes both descriptors, also on failure. -ENOMEM, those of loop_add. */
int channel_new(struct loop *l, int control_fd, int bulk_fd, const struct channel_ops *ops, void *arg,
		struct channel **ret);
struct channel *channel_free(struct channel *c); /* NULL is fine; returns NULL */
/* Begin an epoch: HELLO with @json on both ports. -EPIPE, -ENOMEM. */
int channel_hello(struct channel *c, const char *json, size_t len);
/* Send one frame; never blocks, what the port does not take waits. -EPIPE gone; -ENOBUFS beyond CHANNEL_QUEUE_MAX
 * (nothing was queued); -ENOMEM. */
int channel_send(struct channel *c, enum channel_port port, uint8_t type, uint8_t flags, uint32_t stream,
		 const void *data, size_t len);
bool channel_has_room(const struct channel *c); /* bulk; false on hold, and once the channel is gone */
void channel_hold(struct channel *c);
bool channel_drained(const struct channel *c); /* all that was sent before the hold has left */
/* Send what was held. Those of channel_send(): the order would be broken, so the channel is of no use any more. */
int channel_release(struct channel *c);

#endif
