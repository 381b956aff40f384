/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/syncer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/child.h"

struct syncer {
	syncer_done_fn *fn;
	void *arg;
	pid_t pid; /* 0: none runs */
	uint32_t ids[SYNCER_WAITING_MAX];
	size_t served; /* the first ones of ids: the running sync is theirs */
	size_t n;
};

static int do_sync(void *arg)
{
	(void)arg;
	sync();
	return 0;
}

static void start(struct syncer *s)
{
	if (s->pid || s->n == 0)
		return;
	s->served = s->n;
	if (child_helper(NULL, 0, do_sync, NULL, &s->pid, NULL) == 0)
		return;
	/* No process to be had: it must be done all the same, and late is better than not at all. */
	sync();
	s->pid = 0;
	for (size_t i = 0; i < s->served; i++)
		s->fn(s->arg, s->ids[i]);
	s->n = s->served = 0;
}

int syncer_request(struct syncer *s, uint32_t id)
{
	if (s->n == SYNCER_WAITING_MAX)
		return -EBADMSG;
	s->ids[s->n++] = id;
	start(s);
	return 0;
}

void syncer_reset(struct syncer *s)
{
	s->n = s->served = 0;
}

bool syncer_reaped(struct syncer *s, pid_t pid)
{
	uint32_t done[SYNCER_WAITING_MAX];
	size_t n = s->served;

	if (pid != s->pid || pid <= 0)
		return false;
	s->pid = 0;
	memcpy(done, s->ids, n * sizeof(done[0]));
	s->n -= n;
	memmove(s->ids, s->ids + n, s->n * sizeof(s->ids[0]));
	s->served = 0;
	for (size_t i = 0; i < n; i++)
		s->fn(s->arg, done[i]);
	start(s);
	return true;
}

int syncer_new(syncer_done_fn *fn, void *arg, struct syncer **ret)
{
	struct syncer *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->fn = fn;
	s->arg = arg;
	*ret = s;
	return 0;
}

struct syncer *syncer_free(struct syncer *s)
{
	free(s);
	return NULL;
}
