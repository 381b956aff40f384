/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the host: two ports, frames, sequence numbers, bounded output queues, HELLO. What frames mean is
 * the session's business (session.h). Thread: the loop's. Nothing blocks but conn_flush_blocking().
 *
 * | state of a port | what comes in                                         | next |
 * |-----------------|-------------------------------------------------------|------------------------------------------|
 * | AWAIT           | bytes are skipped up to a HELLO                       | PENDING | | PENDING         | another
 * HELLO replaces the first, the rest is dropped | UP (both) once the other has the same one | | UP              |
 * frames in order to on_frame; a HELLO: on_reset        | PENDING, the other port AWAIT            | | UP | malformed:
 * on_reset, BYE                              | AWAIT, both                              |
 */
#ifndef CRUCIBLE_AGENT_CONN_H
#define CRUCIBLE_AGENT_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "agent/proto.h"
#include "base/loop.h"

struct conn;
enum conn_port { CONN_CONTROL, CONN_BULK, CONN_PORT_COUNT };

struct conn_ops {
	/* A frame of an established epoch, in order; its payload dies with the call. Returns 0; -EBADMSG when the frame
	 * may not come here or now: the connection is then reset; -EAGAIN: not yet, the port stops there until
	 * conn_retry(). */
	int (*on_frame)(void *arg, enum conn_port port, const struct ag_frame *f);
	/* Both ports have the same HELLO: answer it with conn_hello() and return 0, or refuse it (BYE) with -errno. */
	int (*on_hello)(void *arg, const void *json, size_t len);
	/* The epoch is over: forget every stream and request of it. */
	void (*on_reset)(void *arg);
	/* Bulk has room again, after conn_has_room() was false. */
	void (*on_room)(void *arg);
	/* The host's end was closed for good: sockets only (tests); a virtio port is waited for instead. */
	void (*on_gone)(void *arg);
};

/* Takes both descriptors, also on failure. Errors: -ENOMEM, those of loop_add. */
int conn_new(struct loop *l, int control_fd, int bulk_fd, const struct conn_ops *ops, void *arg, struct conn **ret);
struct conn *conn_free(struct conn *c); /* NULL is fine; returns NULL */

/* Queue one frame; it is written when the loop's round ends. -ENOBUFS: beyond the hard bound of the queue, or no memory
 * (the connection is then reset: a frame that is missing cannot be made good). */
int conn_send(struct conn *c, enum conn_port port, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
	      size_t len);
/* The answer to HELLO: sequence numbers begin anew. */
int conn_hello(struct conn *c, const void *json, size_t len);
/* A frame on bulk whose payload the caller fills in place: at most @cap bytes into *@ret, then conn_commit() with what
 * it has, or nothing at all. Nothing else may be sent in between. Errors: -ENOBUFS. */
int conn_reserve(struct conn *c, size_t cap, uint8_t **ret);
void conn_commit(struct conn *c, uint8_t type, uint8_t flags, uint32_t stream, size_t len);
/* Offer the frame that was refused with -EAGAIN again, soon. Fine when there is none. */
void conn_retry(struct conn *c, enum conn_port port);
/* Whether output may be added to bulk. After false, on_room() is called when there is room. */
bool conn_has_room(struct conn *c);
bool conn_is_up(const struct conn *c); /* an epoch is established */
/* Quiet: what was queued before is still written, what is queued from now on waits (BYE and HELLO excepted: they come
 * after a reset, which drops what waits), and conn_has_room() is false. Quiet outlives a reset. Off: what waits goes
 * out, and on_room() is called for who asked. */
void conn_quiet(struct conn *c, bool on);
/* Write what is queued for up to @ms milliseconds (0: what goes at once): for when the loop does not run. */
void conn_flush_blocking(struct conn *c, int ms);

#endif
