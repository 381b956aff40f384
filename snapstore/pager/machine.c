/* SPDX-License-Identifier: Apache-2.0 */
/* Machines: whose memory is served, and by which descriptors. */
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "snapstore/pager/core.h"

struct pg_machine *pg_machine_find(struct pager *p, const char *id)
{
	for (struct pg_machine *m = p->machines; m; m = m->next)
		if (!strcmp(m->id, id))
			return m;
	return NULL;
}

/* The descriptors come from an engine that may be taken over: anything else could block a thread of ours, or say that a
 * page is not its own. */
static int check_kind(struct pager *p, int fd, const char *end, bool proc, struct err *e)
{
	char name[16], to[PATH_MAX];
	struct statfs fs;
	ssize_t n;

	snprintf(name, sizeof(name), "%d", fd);
	n = readlinkat(p->params.procfd, name, to, sizeof(to) - 1);
	if (n < 0)
		return err_set(e, -errno, "descriptor: %s", err_name(-errno));
	to[n] = 0;
	if ((size_t)n < strlen(end) || strcmp(to + n - strlen(end), end) != 0 ||
	    (proc && (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)))
		return err_set(e, -EINVAL, "attach: a descriptor is not what it should be: %s", end);
	return 0;
}

static int check_kinds(struct pager *p, int uffd, int mem, int pagemap, struct err *e)
{
	int r = check_kind(p, mem, "/mem", true, e);

	if (r == 0)
		r = check_kind(p, pagemap, "/pagemap", true, e);
	if (r == 0 && uffd >= 0)
		r = check_kind(p, uffd, "anon_inode:[userfaultfd]", false, e);
	return r;
}

void pg_machine_free(struct pg_machine *m)
{
	fd_close(&m->uffd);
	fd_close(&m->mem);
	fd_close(&m->pagemap);
	free(m);
}

void pg_machine_detach(struct pg_machine *m)
{
	struct pager *p = m->p;
	struct pg_template *t = m->t;
	struct pg_machine **at = &p->machines;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	p->nmachines--;
	pg_workset_detached(m);
	pg_fill_forget_machine(m);
	loop_del(p->loop, &m->watch);
	if (m->stalled)
		p->nstalled--;
	if (t) {
		if (m->uffd < 0)
			t->whole--;
		t->nmachines--;
		pg_evict_strays(t);
		pg_template_unref(t);
		m->t = NULL;
	}
	fd_close(&m->uffd);
	m->detached = true;
	if (!m->capturing)
		pg_machine_free(m);
}

int pg_machine_attach(struct pager *p, const struct pg_request *q, struct pg_template *t, int uffd, int mem,
		      int pagemap, struct err *e)
{
	AUTO_FD owned_uffd = uffd;
	AUTO_FD owned_mem = mem;
	AUTO_FD owned_pagemap = pagemap;
	struct pg_machine *old = pg_machine_find(p, q->machine), *m;
	int r = check_kinds(p, uffd, mem, pagemap, e);

	if (r < 0)
		return r;
	if (p->nmachines >= PAGER_MACHINES_MAX && !old)
		return err_set(e, -ENOSPC, "machine %s: there are %u already", q->machine, p->nmachines);
	m = calloc(1, sizeof(*m) + q->nranges * sizeof(m->ranges[0]));
	if (!m)
		return err_set(e, -ENOMEM, "machine %s: no memory", q->machine);
	m->p = p;
	memcpy(m->id, q->machine, sizeof(m->id));
	m->base = q->base;
	m->bytes = q->bytes;
	m->uffd = take_fd(&owned_uffd);
	m->mem = take_fd(&owned_mem);
	m->pagemap = take_fd(&owned_pagemap);
	m->nranges = q->nranges;
	memcpy(m->ranges, q->ranges, q->nranges * sizeof(m->ranges[0]));
	m->t = t;
	if (m->uffd >= 0)
		r = pg_fault_watch(m, e);
	if (r < 0) {
		pg_machine_free(m);
		return r;
	}
	if (t) {
		t->refs++;
		t->nmachines++;
		pg_template_unpin(t); /* if it needs that, it is counted by itself */
	}
	pg_workset_attached(m, old != NULL);
	if (old)
		pg_machine_detach(old);
	m->next = p->machines;
	p->machines = m;
	p->nmachines++;
	return 0;
}

bool pg_machine_lives(const struct pg_machine *m)
{
	uint64_t entry;

	/* Not the memory: reading that could fault, and wait for ourselves. */
	return pread(m->pagemap, &entry, sizeof(entry), (off_t)(m->base / SNAP_PAGE_BYTES * sizeof(entry))) > 0;
}

void pg_machine_lost(struct pg_machine *m, int code, const char *words)
{
	if (m->lost)
		return;
	m->lost = code;
	snprintf(m->lost_words, sizeof(m->lost_words), "%s", words);
	loop_del(m->p->loop, &m->watch); /* its threads wait until it is ended; zeros they never get */
	if (m->stalled) {
		m->stalled = false;
		m->p->nstalled--;
	}
	pg_client_lost(m);
}
