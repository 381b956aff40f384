/* SPDX-License-Identifier: Apache-2.0 */
#include "cruciblefs/promise.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/loop.h"

#define LIFE_NS	     1000000000u
#define PROMISES_MAX 16384u /* as many as requests may wait */

/* They are in order, so the old ones are in front. */
static void forget_old(struct promises *ps)
{
	uint64_t now = ps->n ? now_ns() : 0;
	size_t old = 0;

	while (old < ps->n && ps->p[old].until_ns <= now)
		old++;
	if (!old)
		return;
	ps->n -= old;
	memmove(ps->p, ps->p + old, ps->n * sizeof(*ps->p));
}

static struct promise *find(struct promises *ps, uint64_t ino, uid_t uid, pid_t pid)
{
	forget_old(ps);
	for (size_t i = 0; i < ps->n; i++) {
		struct promise *p = &ps->p[i];

		if (p->ino == ino && p->uid == uid && p->pid == pid)
			return p;
	}
	return NULL;
}

int promise_make(struct promises *ps, uint64_t ino, uid_t uid, pid_t pid, uint64_t exec)
{
	promise_kept(ps, ino, uid, pid);
	if (ps->n == PROMISES_MAX)
		return -ENOMEM;
	if (ps->n == ps->cap) {
		size_t cap = ps->cap ? ps->cap * 2 : 16;
		struct promise *p = realloc(ps->p, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		ps->p = p;
		ps->cap = cap;
	}
	ps->p[ps->n++] =
		(struct promise){ .ino = ino, .exec = exec, .until_ns = now_ns() + LIFE_NS, .uid = uid, .pid = pid };
	return 0;
}

uint64_t promise_find(struct promises *ps, uint64_t ino, uid_t uid, pid_t pid)
{
	struct promise *p = find(ps, ino, uid, pid);

	return p ? p->exec : 0;
}

void promise_kept(struct promises *ps, uint64_t ino, uid_t uid, pid_t pid)
{
	struct promise *p = find(ps, ino, uid, pid);

	if (!p)
		return;
	ps->n--;
	memmove(p, p + 1, (size_t)(ps->p + ps->n - p) * sizeof(*p));
}

void promises_fini(struct promises *ps)
{
	free(ps->p);
	*ps = (struct promises){ 0 };
}
