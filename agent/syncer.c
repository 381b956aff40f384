/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/syncer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/child.h"
#include "base/fd.h"

struct syncer {
	const struct guest *guest;
	syncer_done_fn *fn;
	void *arg;
	pid_t pid; /* 0: none runs */
	uint32_t ids[SYNCER_WAITING_MAX];
	bool trim;     /* one that waits, and is not served yet, wants it */
	size_t served; /* the first ones of ids: the running sync is theirs */
	size_t n;
};

static int do_sync(void *arg)
{
	(void)arg;
	sync();
	return 0;
}

/* What can be done of it: a disk without discard keeps its blocks. */
static int do_trim(void *arg)
{
	const struct guest *g = arg;
	struct fstrim_range all = { .len = UINT64_MAX };
	AUTO_FD caches = -1;

	sync();
	if (g->test)
		return 0; /* the machine is not ours */
	ioctl(g->root_fd, FITRIM, &all);
	caches = openat(g->proc_fd, "sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
	return caches < 0 || write(caches, "3", 1) != 1;
}

static void start(struct syncer *s)
{
	int keep[] = { s->guest->root_fd, s->guest->proc_fd };
	int (*fn)(void *arg);

	if (s->pid || s->n == 0)
		return;
	fn = s->trim ? do_trim : do_sync;
	s->served = s->n;
	s->trim = false;
	if (child_helper(keep, ARRAY_LEN(keep), fn, (void *)s->guest, &s->pid, NULL) == 0)
		return;
	/* No process to be had: it must be done all the same, and late is better than not at all. */
	fn((void *)s->guest);
	s->pid = 0;
	for (size_t i = 0; i < s->served; i++)
		s->fn(s->arg, s->ids[i]);
	s->n = s->served = 0;
}

int syncer_request(struct syncer *s, uint32_t id, bool trim)
{
	if (s->n == SYNCER_WAITING_MAX)
		return -EBADMSG;
	s->ids[s->n++] = id;
	s->trim |= trim;
	start(s);
	return 0;
}

void syncer_reset(struct syncer *s)
{
	s->n = s->served = 0;
	s->trim = false;
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

int syncer_new(const struct guest *g, syncer_done_fn *fn, void *arg, struct syncer **ret)
{
	struct syncer *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->guest = g;
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
