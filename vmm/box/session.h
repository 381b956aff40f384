/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to the daemon, which may vanish and come back: then the socket that it listens on is tried again and
 * again, until it is there or the sandbox is an orphan. Thread: the loop's. */
#ifndef CRUCIBLE_VMM_BOX_SESSION_H
#define CRUCIBLE_VMM_BOX_SESSION_H

#include <stdbool.h>
#include "base/msg.h"
#include "vmm/box/tuning.h"

struct session_ops { /* from the loop; none may free the session */
	void (*on_msg)(void *arg, struct msg *m);
	void (*on_away)(void *arg);   /* the connection ended; also from inside of session_send() */
	void (*on_back)(void *arg);   /* connected anew: HELLO is due */
	void (*on_orphan)(void *arg); /* nobody came for tuning.orphan_ms */
};

struct session;
/* Takes @fd, the first connection, also on failure. @t: borrowed for life. -ENOMEM, those of loop_add. */
int session_new(struct loop *l, int fd, const struct box_tuning *t, const struct session_ops *ops, void *arg,
		struct session **ret);
struct session *session_free(struct session *s); /* NULL is fine; returns NULL */
/* Send, or drop while there is no daemon. A daemon that lets its queue fill up is dropped too, and will hear the state
 * anew. */
void session_send(struct session *s, enum box_type type, uint32_t id, const void *data, size_t len);
/* The same with descriptors, which stay the caller's. */
void session_send_fds(struct session *s, enum box_type type, uint32_t id, const void *data, size_t len, const int *fds,
		      size_t nfds);
/* The same for what is of use only at once: dropped too when others wait. */
void session_hint(struct session *s, enum box_type type, const void *data, size_t len);
bool session_idle(const struct session *s); /* nothing waits to be sent */

#endif
