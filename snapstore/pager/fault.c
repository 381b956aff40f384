/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Each machine's userfaultfd is a source of the loop. An event names an address; its page is asked of fill.c. Events
 * are read only while there are free slots for reads from the store; else the machine is "stalled": not watched until a
 * slot is free, its threads wait in the kernel. So what faults is bounded by what is under way, however many threads
 * there are.
 *
 * The engine holds the same userfaultfd, and may be taken over. It can read our events away (its own threads then
 * wait), give addresses that are not the memory's (they are woken: they fault in vain), and set the descriptor to
 * block: so it is read with RWF_NOWAIT, and one that poll tells an error of is lost. Nothing it does can make this loop
 * wait. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapstore/pager/core.h"

#define EVENTS 16u

void pg_wake(struct pg_machine *m, uint32_t first, uint32_t n)
{
	struct uffdio_range r = { .start = m->base + (uint64_t)first * SNAP_PAGE_BYTES,
				  .len = (uint64_t)n * SNAP_PAGE_BYTES };

	if (m->uffd >= 0)
		ioctl(m->uffd, UFFDIO_WAKE, &r); /* it fails only when the engine is gone */
}

int pg_zero(struct pg_machine *m, uint32_t first, uint32_t n)
{
	struct uffdio_zeropage z = { .range = { .start = m->base + (uint64_t)first * SNAP_PAGE_BYTES,
						.len = (uint64_t)n * SNAP_PAGE_BYTES } };

	if (ioctl(m->uffd, UFFDIO_ZEROPAGE, &z) == 0)
		return 0;
	if (errno == EINVAL)
		return -EINVAL;
	/* Another thread was faster (EEXIST), the mapping is changing (EAGAIN, ENOENT), the engine is gone (ESRCH):
	 * those who still wait fault again. */
	pg_wake(m, first, n);
	return 0;
}

static void on_event(struct pg_machine *m, const struct uffd_msg *u)
{
	uint64_t off = u->arg.pagefault.address - m->base;
	uint32_t page = (uint32_t)(off / SNAP_PAGE_BYTES);

	if (u->event != UFFD_EVENT_PAGEFAULT)
		return;
	if (u->arg.pagefault.address < m->base || off >= m->bytes) {
		pg_machine_lost(m, -EFAULT, "a fault outside of the guest's memory");
		return;
	}
	m->t->faults++;
	m->p->faults++;
	pg_workset_touch(m, page);
	pg_fill_fault(m, page);
}

static void stall(struct pg_machine *m)
{
	m->stalled = true;
	m->p->nstalled++;
	loop_mod(m->p->loop, m->watch, 0);
}

static void on_readable(void *arg, uint32_t events)
{
	struct pg_machine *m = arg;
	struct uffd_msg msgs[EVENTS];
	unsigned room = PG_DEPTH - m->p->nfills;
	struct iovec io = { msgs, sizeof(msgs[0]) * (room < EVENTS ? room : EVENTS) };
	ssize_t got;

	if (events & (EPOLLERR | EPOLLHUP)) {
		pg_machine_lost(m, -EBADF, "its userfaultfd is not as it was");
		return;
	}
	if (!room) {
		stall(m);
		return;
	}
	got = preadv2(m->uffd, &io, 1, -1, RWF_NOWAIT);
	if (got < 0 && errno == EOPNOTSUPP)
		got = read(m->uffd, msgs, io.iov_len); /* an old kernel; O_NONBLOCK was set at the start */
	if (got < 0 && errno != EAGAIN && errno != EINTR) {
		pg_machine_lost(m, -errno, "its userfaultfd cannot be read");
		return;
	}
	for (ssize_t i = 0; i < got / (ssize_t)sizeof(msgs[0]) && !m->lost; i++)
		on_event(m, &msgs[i]);
}

static void unstall(void *arg)
{
	struct pager *p = arg;

	p->stall_defer = 0;
	for (struct pg_machine *m = p->machines; m && p->nstalled; m = m->next) {
		if (!m->stalled)
			continue;
		m->stalled = false;
		p->nstalled--;
		loop_mod(p->loop, m->watch, EPOLLIN);
	}
}

void pg_fault_unstall(struct pager *p)
{
	if (p->nstalled && !p->stall_defer)
		loop_defer(p->loop, unstall, p, &p->stall_defer);
}

int pg_fault_watch(struct pg_machine *m, struct err *e)
{
	int r = fd_set_nonblock(m->uffd, true);

	if (r == 0)
		r = loop_add(m->p->loop, m->uffd, EPOLLIN, on_readable, m, &m->watch);
	if (r < 0)
		return err_set(e, r, "machine %s: userfaultfd: %s", m->id, err_name(r));
	/* Those who faulted under a former pager: their events may have been read by it. They fault again. */
	pg_wake(m, 0, m->t->pages);
	return 0;
}
