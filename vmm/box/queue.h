/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of a sandbox: in which order they run, how long they may, and that each one gets its record. Thread: the
 * loop's.
 *
 * States of a command:
 *   waiting  accepted; its text is not looked at yet    cancel           -> running, done
 *   running  the agent has it                           all verbs        -> exited, done
 *   exited   its process has ended, output is coming    (as running)     -> done
 *   done     its record stands, on_done() was called; forgotten                                                    */
#ifndef CRUCIBLE_VMM_BOX_QUEUE_H
#define CRUCIBLE_VMM_BOX_QUEUE_H

#include "vmm/box/guest.h"
#include "vmm/box/message.h"
#include "vmm/box/spool.h"
#include "vmm/box/tuning.h"

struct queue;
struct queue_ops { /* from the loop; none may free the queue */
	/* @first: it has begun; must not get lost. Else it has printed. */
	void (*on_progress)(void *arg, uint64_t n, bool first, uint64_t stdout_bytes, uint64_t stderr_bytes);
	void (*on_done)(void *arg, const struct box_done *d);
	void (*on_credit)(void *arg, uint64_t n, uint32_t bytes);
	void (*on_removed)(void *arg, uint64_t n); /* an old record went, to make room */
	/* The guest does not answer, in words. Told once; whoever hears it ends the machine and calls queue_end_all().
	 */
	void (*on_lost)(void *arg, const char *words);
};

/* @c: the configuration; borrowed for life, its `name` is read when a record is written. @dirfd: borrowed for life.
 * Errors: of spool_new. */
int queue_new(struct loop *l, int dirfd, const struct box_config *c, const struct box_tuning *t,
	      const struct queue_ops *ops, void *arg, struct queue **ret, struct err *e);
struct queue *queue_free(struct queue *q); /* NULL is fine; commands are dropped without a record; returns NULL */

/* Accept. -ENOENT: not higher than the last; -EBUSY: being stopped, or too many (then its record says so, and on_done()
 * was called); -ENOMEM. */
int queue_exec(struct queue *q, uint64_t n, uint8_t flags, uint64_t accepted_wall_ns, uint32_t timeout_max_s,
	       struct err *e);
/* Standard input of a live one; kept, up to the window, when it has not begun. -ENOENT no such command, or not live;
 * -ENOBUFS beyond the credit; -EPIPE after eof. */
int queue_stdin(struct queue *q, uint64_t n, const void *data, size_t len, bool eof);
int queue_ctl(struct queue *q, uint64_t n, enum box_verb verb, uint32_t a,
	      uint32_t b);			      /* -ENOENT, -EINVAL, of guest_exec_kill() */
int queue_set_env(struct queue *q, const char *text); /* for what is accepted from now on; NULL: none. -ENOMEM */

/* Begin what may begin: after queue_exec(), when the caller is done with it. */
void queue_kick(struct queue *q);
/* The machine runs and @g is ready: begin what may begin. */
void queue_start(struct queue *q, struct guest *g, const char *unenforced);
void queue_pause(struct queue *q); /* the machine stands: clocks too */
void queue_resume(struct queue *q);
/* End what waits as cancelled, with @words, and let what runs be known as cancelled when a signal ends it. Nothing is
 * accepted or begun any more. */
void queue_close(struct queue *q, const char *words);
/* End everything: what runs with @error, as cancelled if so; what waits as cancelled, with @waiting_words. */
void queue_end_all(struct queue *q, const char *error, const char *waiting_words, bool cancelled);

bool queue_busy(const struct queue *q);	    /* does anything run? */
uint64_t queue_last(const struct queue *q); /* the highest number accepted, or finished by an earlier box */
/* Numbers accepted and not done, in order: at most @cap into @ret; returns how many. */
size_t queue_open(const struct queue *q, uint64_t *ret, size_t cap);
/* Call @fn for each live command with the credit that is free. */
void queue_each_live(const struct queue *q, void (*fn)(void *arg, uint64_t n, uint32_t bytes), void *arg);

#endif
