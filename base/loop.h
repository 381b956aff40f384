/* SPDX-License-Identifier: Apache-2.0 */
/* One epoll loop: descriptors, timers, signals, deferred calls. Single-threaded: every function is called
 * from the loop's thread, loop_wake() excepted. epoll carries an index and a generation, never a
 * pointer, so that an event for a source removed in the same round is dropped. */
#ifndef CRUCIBLE_BASE_LOOP_H
#define CRUCIBLE_BASE_LOOP_H

#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

struct loop;
typedef uint64_t loop_id; /* 0 is no source */

typedef void loop_io_fn(void *arg, uint32_t events);
typedef void loop_fn(void *arg);
typedef void loop_signal_fn(void *arg, const struct signalfd_siginfo *si);

int loop_new(struct loop **ret);	/* 0, -ENOMEM, -EMFILE */
struct loop *loop_free(struct loop *l); /* NULL is fine; returns NULL; closes no source's descriptor */

/* Watch @fd (borrowed: it must stay open until loop_del). Level-triggered. @fn may call any loop function,
 * its own loop_del included. Errors: -ENOMEM, -EPERM (a file that epoll cannot watch), -EEXIST. */
int loop_add(struct loop *l, int fd, uint32_t events, loop_io_fn *fn, void *arg, loop_id *ret_id);
int loop_mod(struct loop *l, loop_id id, uint32_t events);
/* Remove a source, timer or deferred call; *@id becomes 0. An id of 0, or one that fired, is fine. */
void loop_del(struct loop *l, loop_id *id);

/* One shot at CLOCK_MONOTONIC @at_ns (now or earlier: in the next round). The id is dead once it fired. */
int loop_timer(struct loop *l, uint64_t at_ns, loop_fn *fn, void *arg, loop_id *ret_id);
/* Run @fn after the callbacks of this round; runs in order; never inside the caller. */
int loop_defer(struct loop *l, loop_fn *fn, void *arg, loop_id *ret_id);
/* Block @signo for the process and deliver it here. One handler a signal. */
int loop_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg);
/* From any thread: make the loop run @fn of loop_set_wake() in its own thread, soon. Merges. */
void loop_wake(struct loop *l);
int loop_set_wake(struct loop *l, loop_fn *fn, void *arg);

int loop_run(struct loop *l); /* until loop_stop(); 0 or -errno of epoll_wait */
void loop_stop(struct loop *l);
/* One round: wait at most @timeout_ms (-1: for ever), run what is ready. For tests. */
int loop_once(struct loop *l, int timeout_ms);

uint64_t now_ns(void);	/* CLOCK_MONOTONIC */
uint64_t wall_ns(void); /* CLOCK_REALTIME */

#endif
