/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stddef.h>
#include "base/waitq.h"

void waitq_init(struct waitq *q, struct loop *l)
{
	*q = (struct waitq){ .loop = l };
}

static void unlink_waiter(struct waiter *w)
{
	struct waitq *q = w->q;

	assert(q);
	*(w->prev ? &w->prev->next : &q->first) = w->next;
	*(w->next ? &w->next->prev : &q->last) = w->prev;
	w->prev = w->next = NULL;
	w->q = NULL;
}

void waitq_fini(struct waitq *q)
{
	while (q->first)
		unlink_waiter(q->first);
	if (q->deferred)
		loop_del(q->loop, &q->deferred);
	if (q->ended)
		*q->ended = true;
}

void waitq_add(struct waitq *q, struct waiter *w)
{
	assert(!w->q && w->fn);
	w->q = q;
	w->round = q->round; /* a wake already under way is not for this one */
	w->next = NULL;
	w->prev = q->last;
	*(q->last ? &q->last->next : &q->first) = w;
	q->last = w;
}

void waitq_del(struct waiter *w)
{
	if (w->q)
		unlink_waiter(w);
}

/* A waiter's function may delete any waiter, itself included, and may add new ones: so the list is searched anew from
 * its head for one that this round has not called yet. Those called and still waiting carry the round's number. It may
 * also be the last to need what the queue is part of: then the queue is gone when it returns. */
static void run(void *arg)
{
	struct waitq *q = arg;
	unsigned round = ++q->round;
	bool ended = false, *outer = q->ended;

	q->deferred = 0;
	q->ended = &ended;
	for (;;) {
		struct waiter *w = q->first;

		while (w && w->round == round)
			w = w->next;
		if (!w)
			break;
		/* To the end of the list, so that the search stays short when many go on waiting. */
		unlink_waiter(w);
		waitq_add(q, w);
		w->fn(w);
		if (ended) {
			if (outer)
				*outer = true;
			return;
		}
	}
	q->ended = outer;
}

void waitq_wake(struct waitq *q)
{
	/* Without memory for a deferred call nobody would ever wake: then call at once. Waiters only look and answer.
	 */
	if (q->first && !q->deferred && loop_defer(q->loop, run, q, &q->deferred) < 0)
		run(q);
}

bool waitq_empty(const struct waitq *q)
{
	return !q->first;
}
