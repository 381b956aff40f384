/* SPDX-License-Identifier: Apache-2.0 */
/* Typed messages with descriptors between our own processes, over SOCK_SEQPACKET: one datagram is one
 * message, so nothing is ever half read. Header 12 bytes, then at most MSG_MAX bytes of payload.
 * The peer is another program of ours, possibly taken over: lengths, types and the number of
 * descriptors are checked here, contents by each message's own parser (base/wire.h). */
#ifndef CRUCIBLE_BASE_MSG_H
#define CRUCIBLE_BASE_MSG_H

#include <stddef.h>
#include <stdint.h>
#include "base/loop.h"

#define MSG_MAX	    (144 * 1024) /* payload bytes: a FUSE write of 128 KiB and its header */
#define MSG_FDS_MAX 16

struct msg {
	uint16_t type;
	uint32_t id;	     /* matches a reply to its request; 0: no reply wanted */
	const uint8_t *data; /* borrowed until the handler returns */
	size_t len;
	int fds[MSG_FDS_MAX]; /* received: the handler takes those it wants (take_fd); the rest are closed */
	size_t nfds;
};

/* Blocking, for processes at their start. msg_recv fills @m with data inside @buf.
 * Errors: -EMSGSIZE, -EBADMSG (malformed), -ECONNRESET (end of file), those of the socket. */
int msg_send(int fd, uint16_t type, uint32_t id, const void *data, size_t len, const int *fds, size_t nfds);
int msg_recv(int fd, void *buf, size_t cap, struct msg *m);
void msg_close_fds(struct msg *m); /* those not taken */

/* A connection on a loop. Owns its descriptor. Never blocks: what does not fit waits in a queue bounded by
 * @queue_max bytes. @on_gone is called once, from the loop, at end of file, error or malformed input, with the
 * reason as -errno; the connection is then dead (sending: -EPIPE) until freed. Both callbacks may free it. */
struct msgconn;
struct msgconn_ops {
	void (*on_msg)(void *arg, struct msg *m);
	void (*on_gone)(void *arg, int reason);
};
int msgconn_new(struct loop *l, int fd, size_t queue_max, const struct msgconn_ops *ops, void *arg,
		struct msgconn **ret);		 /* takes @fd, also on failure. -ENOMEM, those of loop_add */
struct msgconn *msgconn_free(struct msgconn *c); /* NULL is fine; returns NULL */
/* @fds are duplicated when the message has to wait: the caller keeps its own.
 * Errors: -EPIPE dead, -ENOBUFS queue full, -EMSGSIZE, -ENOMEM. */
int msgconn_send(struct msgconn *c, uint16_t type, uint32_t id, const void *data, size_t len, const int *fds,
		 size_t nfds);
size_t msgconn_queued(const struct msgconn *c); /* bytes waiting */
int msgconn_fd(const struct msgconn *c);

#endif
