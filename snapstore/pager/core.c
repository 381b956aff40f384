/* SPDX-License-Identifier: Apache-2.0 */
/* The process as a whole: what it opens at its start, and lets go at its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapstore/pager/core.h"

#define POOL_THREADS (PG_CAPTURE_MAX + 1) /* captures, and one for what is short */
#define POOL_QUEUE   4096u

void pg_degraded(struct pager *p, const char *words)
{
	if (!*p->degraded)
		snprintf(p->degraded, sizeof(p->degraded), "%s", words);
}

static void on_reader(void *arg, uint32_t events)
{
	struct pager *p = arg;

	(void)events;
	snap_reader_poll(p->reader);
}

int pg_store(struct pager *p, struct err *e)
{
	bool uring = p->params.uring;
	int r;

	if (p->reader)
		return 0;
	r = p->snap ? 0 : snap_open(p->params.rootfd, p->params.store, SNAP_READ, &p->snap, e);
	if (r == 0)
		r = snap_reader_new(p->snap, PG_DEPTH, uring, &p->reader, &p->uring, e);
	if (r == 0 && p->uring) {
		r = loop_add(p->loop, snap_reader_fd(p->reader), EPOLLIN, on_reader, p, &p->reader_watch);
		if (r < 0) {
			err_set(e, r, "reader: %s", err_name(r));
			p->reader = snap_reader_free(p->reader);
		}
	}
	if (r == 0 && uring && !p->uring)
		pg_degraded(p, "io_uring is not to be had: pages are read with pread");
	return r;
}

static void poll_reader(void *arg)
{
	struct pager *p = arg;

	p->reader_defer = 0;
	snap_reader_poll(p->reader);
}

void pg_reader_kick(struct pager *p)
{
	/* What is in the page cache is there already; and without a ring nothing becomes readable. */
	if (!p->reader_defer)
		loop_defer(p->loop, poll_reader, p, &p->reader_defer);
}

static uint64_t quarter_of_memory(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4;
}

int pager_new(struct loop *l, const struct pager_params *pp, struct pager **ret, struct err *e)
{
	struct pager *p = calloc(1, sizeof(*p));
	struct pager_params params = *pp;
	int r;

	if (!p) {
		fd_close(&params.listen_fd);
		fd_close(&params.blocks_fd);
		fd_close(&params.procfd);
		fd_close(&params.rootfd);
		fd_close(&params.disksfd);
		return err_set(e, -ENOMEM, "no memory");
	}
	p->loop = l;
	p->params = params;
	p->budget_bytes = params.budget_bytes ? params.budget_bytes : quarter_of_memory();
	r = pool_new(l, POOL_THREADS, POOL_QUEUE, &p->pool);
	if (r < 0)
		err_set(e, r, "threads: %s", err_name(r));
	if (r == 0)
		r = pg_fill_init(p, e);
	if (r == 0) {
		/* A store that nobody has made yet is opened when it is needed; one that is wrong is said at once. */
		r = pg_store(p, e);
		if (r == -ENOENT)
			r = 0;
	}
	if (r == 0 && params.disksfd >= 0 && params.blocks_fd >= 0)
		r = pg_disks_new(p, &p->disks, e);
	if (r == 0 && params.listen_fd >= 0)
		r = pg_client_listen(p, e);
	if (r < 0) {
		pager_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct pager *pager_free(struct pager *p)
{
	struct pool *pool;

	if (!p)
		return NULL;
	pg_client_fini(p);
	p->disks = pg_disks_free(p->disks);
	pool = p->pool;
	p->pool = NULL; /* nothing new: what ends closes in place from here on */
	pool_free(pool);
	pg_look_fini(p);
	if (p->reader)
		loop_del(p->loop, &p->reader_watch);
	p->reader = p->reader ? snap_reader_free(p->reader) : NULL;
	for (unsigned i = 0; i < PG_DEPTH; i++) {
		if (!p->fills[i].t)
			continue;
		pg_template_unref(p->fills[i].source);
		pg_template_unref(p->fills[i].t);
		p->fills[i].t = NULL;
	}
	pg_ahead_fini(p);
	pg_request_fini(p);
	while (p->machines)
		pg_machine_detach(p->machines);
	for (struct pg_template *t = p->templates; t; t = t->next)
		t->forgotten = true;
	while (p->templates) { /* those that others hold go with them */
		struct pg_template *t = p->templates;

		while (t && t->refs)
			t = t->next;
		if (!t)
			break;
		pg_template_gone(t);
	}
	p->snap = p->snap ? snap_close(p->snap) : NULL;
	pg_workset_fini(p);
	pg_fill_fini(p);
	loop_del(p->loop, &p->reader_defer);
	loop_del(p->loop, &p->ahead_defer);
	loop_del(p->loop, &p->stall_defer);
	loop_del(p->loop, &p->evict_defer);
	loop_del(p->loop, &p->orphan_timer);
	fd_close(&p->params.procfd);
	fd_close(&p->params.rootfd);
	free(p);
	return NULL;
}
