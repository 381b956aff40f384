/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for something to change. A waiter is embedded in what waits; waking calls each waiter's function from
 * the loop after the current callback (never inside waitq_wake), and the waiter decides by looking again whether it
 * goes on waiting. Wakes merge. Thread: the loop's. */
#ifndef CRUCIBLE_BASE_WAITQ_H
#define CRUCIBLE_BASE_WAITQ_H

#include <stdbool.h>
#include "base/loop.h"

struct waitq;
struct waiter {
	struct waiter *prev, *next; /* private */
	struct waitq *q;	    /* NULL: waits for nothing */
	unsigned round;		    /* private */
	void (*fn)(struct waiter *w);
};
struct waitq {
	struct waiter *first, *last; /* in order of arrival */
	struct loop *loop;
	loop_id deferred;
	unsigned round;
	bool *ended; /* of the wake that is on the stack, if one is */
};

void waitq_init(struct waitq *q, struct loop *l);
void waitq_fini(struct waitq *q); /* waiters are detached without a call; allowed from any waiter's fn */
/* @w->fn is set by the caller and must stay valid until waitq_del. Adding twice is a bug (assert). */
void waitq_add(struct waitq *q, struct waiter *w);
void waitq_del(struct waiter *w); /* fine when it waits for nothing; allowed from any waiter's fn */
void waitq_wake(struct waitq *q);
bool waitq_empty(const struct waitq *q);

#endif
