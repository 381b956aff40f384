/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Every source, timer and deferred call is a slot of one table. Its id is the slot's index and a generation that grows
 * each time the slot is given away, so an id of something that is gone never means something else: epoll's answers, the
 * queue of deferred calls and the callers' own ids are all looked up through slot_of(), which checks it.
 *
 * A round: epoll_wait -> descriptors -> timers that were due when the round began to run them -> deferred calls that
 * were queued before. What a callback adds waits for the next round, so nothing can starve the rest. Callbacks may grow
 * the table: no pointer into it is kept over a call.
 *
 * Timers are a binary heap of slot indices ordered by (at_ns, seq). Deferred calls are a queue of ids: a deleted one is
 * found dead when its turn comes, in this round or the next, so the queue needs no removal in the middle.
 */
#include "base/loop.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

#define EVENTS_A_ROUND 64
#define NO_SLOT	       UINT32_MAX

enum slot_kind { SLOT_FREE, SLOT_IO, SLOT_TIMER, SLOT_DEFER };

struct slot {
	enum slot_kind kind;
	uint32_t gen;	    /* never 0, so that no id is 0 */
	uint32_t next_free; /* SLOT_FREE: the next free slot */
	int fd;		    /* SLOT_IO */
	loop_io_fn *io;	    /* SLOT_IO */
	loop_fn *fn;	    /* the others */
	void *arg;
	uint64_t at_ns;	  /* SLOT_TIMER */
	uint64_t seq;	  /* SLOT_TIMER: order of arrival */
	uint32_t heap_at; /* SLOT_TIMER: place in the heap */
};

struct loop {
	int epoll_fd;
	bool stop;

	struct slot *slots;
	uint32_t nslots, first_free;

	uint32_t *heap; /* as many places as slots, so that pushing cannot fail */
	uint32_t nheap;
	uint64_t seq;
	uint64_t timers_ns; /* the instant the last run of timers compared with */

	loop_id *defers; /* a ring would save the memmove; queues are a few entries long */
	size_t ndefers, defers_cap;

	int wake_fd; /* eventfd; loop_wake() is the only thing other threads touch */
	loop_fn *wake_fn;
	void *wake_arg;

	int signal_fd; /* -1 until the first loop_signal() */
	sigset_t signals;
	struct {
		loop_signal_fn *fn;
		void *arg;
	} on_signal[_NSIG];
};

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t wall_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

/* -- the table -------------------------------------------------------------------------------- */

static loop_id id_of(const struct loop *l, uint32_t index)
{
	return (uint64_t)l->slots[index].gen << 32 | index;
}

/* The living slot that @id names, or NULL. */
static struct slot *slot_of(struct loop *l, loop_id id)
{
	uint32_t index = (uint32_t)id;

	if (id == 0 || index >= l->nslots)
		return NULL;
	if (l->slots[index].gen != id >> 32 || l->slots[index].kind == SLOT_FREE)
		return NULL;
	return &l->slots[index];
}

static int table_grow(struct loop *l)
{
	uint32_t n = l->nslots ? l->nslots * 2 : 16;
	struct slot *slots;
	uint32_t *heap;

	if (n > UINT32_MAX / 4)
		return -ENOMEM;
	slots = realloc(l->slots, n * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	l->slots = slots;
	heap = realloc(l->heap, n * sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	l->heap = heap;
	for (uint32_t i = n; i-- > l->nslots;) {
		l->slots[i] = (struct slot){ .kind = SLOT_FREE, .gen = 1, .next_free = l->first_free };
		l->first_free = i;
	}
	l->nslots = n;
	return 0;
}

static int slot_take(struct loop *l, enum slot_kind kind, void *arg, uint32_t *ret)
{
	uint32_t index, gen;
	int r;

	if (l->first_free == NO_SLOT) {
		r = table_grow(l);
		if (r < 0)
			return r;
	}
	index = l->first_free;
	gen = l->slots[index].gen;
	l->first_free = l->slots[index].next_free;
	l->slots[index] = (struct slot){ .kind = kind, .gen = gen, .fd = -1, .arg = arg };
	*ret = index;
	return 0;
}

static void slot_give(struct loop *l, struct slot *s)
{
	s->kind = SLOT_FREE;
	if (++s->gen == 0)
		s->gen = 1;
	s->next_free = l->first_free;
	l->first_free = (uint32_t)(s - l->slots);
}

/* -- the heap of timers ----------------------------------------------------------------------- */

static bool timer_before(const struct loop *l, uint32_t a, uint32_t b)
{
	const struct slot *x = &l->slots[a], *y = &l->slots[b];

	return x->at_ns != y->at_ns ? x->at_ns < y->at_ns : x->seq < y->seq;
}

static void heap_put(struct loop *l, uint32_t at, uint32_t index)
{
	l->heap[at] = index;
	l->slots[index].heap_at = at;
}

static void heap_up(struct loop *l, uint32_t at)
{
	uint32_t index = l->heap[at];

	while (at > 0 && timer_before(l, index, l->heap[(at - 1) / 2])) {
		heap_put(l, at, l->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	heap_put(l, at, index);
}

static void heap_down(struct loop *l, uint32_t at)
{
	uint32_t index = l->heap[at];

	for (;;) {
		uint32_t child = at * 2 + 1;

		if (child >= l->nheap)
			break;
		if (child + 1 < l->nheap && timer_before(l, l->heap[child + 1], l->heap[child]))
			child++;
		if (!timer_before(l, l->heap[child], index))
			break;
		heap_put(l, at, l->heap[child]);
		at = child;
	}
	heap_put(l, at, index);
}

static void heap_remove(struct loop *l, uint32_t at)
{
	uint32_t last = l->heap[--l->nheap];

	if (at == l->nheap)
		return;
	heap_put(l, at, last);
	heap_up(l, at);
	heap_down(l, l->slots[last].heap_at);
}

/* -- sources ---------------------------------------------------------------------------------- */

int loop_add(struct loop *l, int fd, uint32_t events, loop_io_fn *fn, void *arg, loop_id *ret_id)
{
	struct epoll_event ev = { .events = events };
	uint32_t index;
	int r;

	r = slot_take(l, SLOT_IO, arg, &index);
	if (r < 0)
		return r;
	l->slots[index].fd = fd;
	l->slots[index].io = fn;
	ev.data.u64 = id_of(l, index);
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
		r = -errno;
		slot_give(l, &l->slots[index]);
		return r;
	}
	if (ret_id)
		*ret_id = id_of(l, index);
	return 0;
}

int loop_mod(struct loop *l, loop_id id, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.u64 = id };
	struct slot *s = slot_of(l, id);

	if (!s || s->kind != SLOT_IO)
		return -ENOENT;
	return epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, s->fd, &ev) < 0 ? -errno : 0;
}

void loop_del(struct loop *l, loop_id *id)
{
	struct slot *s = slot_of(l, *id);

	*id = 0;
	if (!s)
		return;
	if (s->kind == SLOT_IO)
		epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, s->fd, NULL);
	else if (s->kind == SLOT_TIMER)
		heap_remove(l, s->heap_at);
	slot_give(l, s);
}

int loop_timer(struct loop *l, uint64_t at_ns, loop_fn *fn, void *arg, loop_id *ret_id)
{
	uint32_t index;
	struct slot *s;
	int r;

	r = slot_take(l, SLOT_TIMER, arg, &index);
	if (r < 0)
		return r;
	s = &l->slots[index];
	s->fn = fn;
	s->seq = l->seq++;
	/* Not before the timers that are being run: run_timers() relies on late comers standing behind them. */
	s->at_ns = at_ns > l->timers_ns ? at_ns : l->timers_ns;
	heap_put(l, l->nheap++, index);
	heap_up(l, l->nheap - 1);
	if (ret_id)
		*ret_id = id_of(l, index);
	return 0;
}

int loop_defer(struct loop *l, loop_fn *fn, void *arg, loop_id *ret_id)
{
	uint32_t index;
	int r;

	if (l->ndefers == l->defers_cap) {
		size_t cap = l->defers_cap ? l->defers_cap * 2 : 16;
		loop_id *grown = realloc(l->defers, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->defers = grown;
		l->defers_cap = cap;
	}
	r = slot_take(l, SLOT_DEFER, arg, &index);
	if (r < 0)
		return r;
	l->slots[index].fn = fn;
	l->defers[l->ndefers++] = id_of(l, index);
	if (ret_id)
		*ret_id = id_of(l, index);
	return 0;
}

/* -- signals and wake-ups ---------------------------------------------------------------------- */

static void on_signals(void *arg, uint32_t events)
{
	struct loop *l = arg;
	struct signalfd_siginfo si;

	(void)events;
	while (read(l->signal_fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		if (si.ssi_signo < _NSIG && l->on_signal[si.ssi_signo].fn)
			l->on_signal[si.ssi_signo].fn(l->on_signal[si.ssi_signo].arg, &si);
}

int loop_signal(struct loop *l, int signo, loop_signal_fn *fn, void *arg)
{
	bool first = l->signal_fd < 0;
	sigset_t set, one;
	int fd, r;

	if (signo < 1 || signo >= _NSIG)
		return -EINVAL;
	if (l->on_signal[signo].fn)
		return -EEXIST;
	set = l->signals;
	sigaddset(&set, signo);
	sigemptyset(&one);
	sigaddset(&one, signo);
	/* Blocked first: between the two calls a signal waits, the other way round it would strike. */
	r = pthread_sigmask(SIG_BLOCK, &one, NULL);
	if (r != 0)
		return -r;
	fd = signalfd(l->signal_fd, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (first) {
		r = loop_add(l, fd, EPOLLIN, on_signals, l, NULL);
		if (r < 0) {
			close(fd);
			return r;
		}
		l->signal_fd = fd;
	}
	l->signals = set;
	l->on_signal[signo].fn = fn;
	l->on_signal[signo].arg = arg;
	return 0;
}

static void on_wake(void *arg, uint32_t events)
{
	struct loop *l = arg;
	uint64_t n;

	(void)events;
	/* Emptied before the call: a wake that comes during it makes another round. */
	if (read(l->wake_fd, &n, sizeof(n)) == (ssize_t)sizeof(n) && l->wake_fn)
		l->wake_fn(l->wake_arg);
}

void loop_wake(struct loop *l)
{
	uint64_t one = 1;
	int saved = errno;

	/* EAGAIN: 2^64 - 2 wakes are waiting, so one more would merge with them anyway. */
	while (write(l->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	errno = saved;
}

int loop_set_wake(struct loop *l, loop_fn *fn, void *arg)
{
	l->wake_fn = fn;
	l->wake_arg = arg;
	return 0;
}

/* -- running ---------------------------------------------------------------------------------- */

static void run_timers(struct loop *l)
{
	uint64_t limit = l->seq;

	if (l->nheap == 0)
		return;
	l->timers_ns = now_ns();
	while (l->nheap > 0) {
		struct slot *s = &l->slots[l->heap[0]];
		loop_fn *fn = s->fn;
		void *arg = s->arg;

		if (s->at_ns > l->timers_ns || s->seq >= limit)
			return;
		heap_remove(l, 0);
		slot_give(l, s);
		fn(arg);
	}
}

static void run_defers(struct loop *l)
{
	size_t n = l->ndefers;

	for (size_t i = 0; i < n; i++) {
		struct slot *s = slot_of(l, l->defers[i]);
		loop_fn *fn;
		void *arg;

		if (!s)
			continue;
		fn = s->fn;
		arg = s->arg;
		slot_give(l, s);
		fn(arg);
	}
	l->ndefers -= n;
	memmove(l->defers, l->defers + n, l->ndefers * sizeof(*l->defers));
}

/* epoll's timeout: the caller's, or less when a timer or a deferred call is due earlier. Rounded up, so that
 * the timer is due when epoll comes back. */
static int wait_ms(const struct loop *l, int timeout_ms)
{
	uint64_t now, ms;

	if (l->ndefers > 0)
		return 0;
	if (l->nheap == 0)
		return timeout_ms;
	now = now_ns();
	if (l->slots[l->heap[0]].at_ns <= now)
		return 0;
	ms = (l->slots[l->heap[0]].at_ns - now + 999999) / 1000000;
	if (ms > INT_MAX)
		ms = INT_MAX;
	return timeout_ms >= 0 && (uint64_t)timeout_ms < ms ? timeout_ms : (int)ms;
}

int loop_once(struct loop *l, int timeout_ms)
{
	struct epoll_event evs[EVENTS_A_ROUND];
	int n;

	n = epoll_wait(l->epoll_fd, evs, EVENTS_A_ROUND, wait_ms(l, timeout_ms));
	if (n < 0) {
		if (errno != EINTR)
			return -errno;
		n = 0;
	}
	for (int i = 0; i < n; i++) {
		struct slot *s = slot_of(l, evs[i].data.u64);

		if (s && s->kind == SLOT_IO)
			s->io(s->arg, evs[i].events);
	}
	run_timers(l);
	if (l->ndefers > 0)
		run_defers(l);
	return 0;
}

int loop_run(struct loop *l)
{
	int r = 0;

	while (!l->stop && r == 0)
		r = loop_once(l, -1);
	l->stop = false;
	return r;
}

void loop_stop(struct loop *l)
{
	l->stop = true;
}

int loop_new(struct loop **ret)
{
	struct loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->first_free = NO_SLOT;
	l->signal_fd = l->wake_fd = -1;
	sigemptyset(&l->signals);
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd >= 0)
		l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (l->wake_fd < 0) {
		r = errno == ENOMEM ? -ENOMEM : -EMFILE;
		loop_free(l);
		return r;
	}
	r = loop_add(l, l->wake_fd, EPOLLIN, on_wake, l, NULL);
	if (r < 0) {
		loop_free(l);
		return r;
	}
	*ret = l;
	return 0;
}

struct loop *loop_free(struct loop *l)
{
	if (!l)
		return NULL;
	/* Signals stay blocked: one that comes between two loops must wait, not kill. */
	fd_close(&l->signal_fd);
	fd_close(&l->wake_fd);
	fd_close(&l->epoll_fd);
	free(l->slots);
	free(l->heap);
	free(l->defers);
	free(l);
	return NULL;
}
