/* SPDX-License-Identifier: Apache-2.0 */
/* QEMU's monitor protocol, client side: JSON objects, one a line, over a stream socket. The engine is not trusted more
 * than the guest that may have taken it over: objects are bounded, and whatever is not the protocol ends the
 * connection.
 *
 * States: GREETING (calls are kept back) -> READY (on_ready) -> GONE (on_gone, once; every pending call ended with
 * -EPIPE). */
#ifndef CRUCIBLE_VMM_QMP_H
#define CRUCIBLE_VMM_QMP_H

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/loop.h"

#define QMP_OBJECT_MAX (1024u * 1024) /* bytes of one object from the engine */
#define QMP_CALLS_MAX  16u	      /* outstanding at once */

/* -- the stream of objects; separate, so that it can be fuzzed --------------------------------- */

struct qmp_parser {
	struct buf line; /* the object that is being read */
};
/* One object; borrowed. Anything but 0 stops the feeding and is returned. */
typedef int qmp_object_fn(void *arg, struct json_object *o);

void qmp_parser_init(struct qmp_parser *p);
void qmp_parser_fini(struct qmp_parser *p);
/* Take @len more bytes; @fn is called for each object that they complete. 0; -EBADMSG: a line that is not an object, or
 * longer than QMP_OBJECT_MAX; -ENOMEM; what @fn returned. After an error the parser is useless. */
int qmp_parser_feed(struct qmp_parser *p, const char *data, size_t len, qmp_object_fn *fn, void *arg);

/* -- a connection ------------------------------------------------------------------------------ */

struct qmp;
struct qmp_ops { /* from the loop; each may free the connection */
	void (*on_ready)(void *arg);
	void (*on_event)(void *arg, const char *name, struct json_object *data); /* data: an object or NULL; borrowed */
	void (*on_gone)(void *arg, int reason);					 /* -errno */
};
/* The end of a call: 0 and the value of "return"; -EIO refused, words in e; -ETIMEDOUT; -EPIPE gone. Exactly once. */
typedef void qmp_done_fn(void *arg, int code, struct json_object *ret, const struct err *e);

/* Takes @fd (also on failure). -ENOMEM, those of loop_add. */
int qmp_new(struct loop *l, int fd, const struct qmp_ops *ops, void *arg, struct qmp **ret);
struct qmp *qmp_free(struct qmp *q); /* NULL is fine; pending calls are dropped; returns NULL */
/* Send a command. @args: the text of a JSON object, or NULL; copied. @fd >= 0 goes with it (borrowed). @fn may be NULL.
 * A call that is overdue ends with -ETIMEDOUT; its late answer is swallowed. Does not block. -EBUSY too many, -EPIPE,
 * -ENOMEM. */
int qmp_call(struct qmp *q, const char *command, const char *args, int fd, uint32_t timeout_ms, qmp_done_fn *fn,
	     void *arg);

#endif
