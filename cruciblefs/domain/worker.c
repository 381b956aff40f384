/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox of the daemon's own, for one command: it is in no listing, has no log, and goes when its owner frees it.
 * What a killed daemon leaves of it is removed at the next start (persist.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/worker.h"

struct worker {
	struct waiter w; /* on the sandbox */
	struct registry *reg;
	struct sandbox *s;
	uint64_t n; /* of its command */
	worker_fn *fn;
	void *arg;
};

static void end(struct worker *k, int code, const char *words)
{
	worker_fn *fn = k->fn;

	waitq_del(&k->w);
	k->fn = NULL;
	if (fn)
		fn(k->arg, k, code, words);
}

static void on_change(struct waiter *w)
{
	struct worker *k = (struct worker *)((char *)w - offsetof(struct worker, w));
	struct execution *x = sandbox_exec(k->s, k->n);

	if (k->s->status == SBX_FAILED || k->s->status == SBX_STOPPED)
		end(k, -EIO, k->s->error);
	else if (!x)
		end(k, -EIO, "its command is gone");
	else if (x->state == EXEC_DONE)
		end(k, 0, "");
}

int worker_new(struct registry *r, const char *name, const struct attrs *attrs, struct snapshot *p, const char *command,
	       worker_fn *fn, void *arg, struct worker **ret, struct err *e)
{
	static const struct cfs_who root = { .uid = 0, .gid = 0 };
	struct worker *k = calloc(1, sizeof(*k));
	struct sandbox *s = NULL;
	int c = k ? 0 : err_set(e, -ENOMEM, "no memory");

	if (!c && r->shutting_down)
		c = err_set(e, -ECANCELED, "the daemon ends");
	if (!c)
		c = sandbox_make(r, name, attrs, &root, &s, e);
	if (c < 0 || !s || !k) {
		free(k);
		return c;
	}
	s->hidden = true;
	if (p) {
		snprintf(s->attrs.from, sizeof(s->attrs.from), "snapshot:%s", p->name);
		snprintf(s->parent_uuid, sizeof(s->parent_uuid), "%s", p->uuid);
	}
	*k = (struct worker){ .reg = r, .s = s, .fn = fn, .arg = arg };
	k->w.fn = on_change;
	s->next = r->hidden;
	r->hidden = s;
	c = sandbox_save(s, e);
	if (!c)
		c = exec_accept(s, NULL, &root, command, strlen(command), NULL, NULL, e);
	if (c < 0) {
		worker_free(k);
		return c;
	}
	k->n = s->latest;
	waitq_add(&s->waitq, &k->w);
	waitq_wake(&s->waitq); /* it may have failed at once */
	*ret = k;
	return 0;
}

struct sandbox *worker_sandbox(struct worker *k)
{
	return k->s;
}

uint64_t worker_command(const struct worker *k)
{
	return k->n;
}

struct worker *worker_free(struct worker *k)
{
	struct sandbox *s, **at;

	if (!k)
		return NULL;
	s = k->s;
	waitq_del(&k->w);
	for (at = &k->reg->hidden; *at && *at != s;)
		at = &(*at)->next;
	if (*at)
		*at = s->next;
	s->next = NULL;
	s->gone = true;
	sandbox_down(s, "the daemon needs it no more");
	sandbox_unref(s);
	free(k);
	return NULL;
}

/* An orderly end: their machines go now, and whoever asked for them hears that they failed. */
void workers_stop(struct registry *r)
{
	struct sandbox *next;

	for (struct sandbox *s = r->hidden; s; s = next) {
		next = s->next; /* each is freed by its own owner */
		sandbox_ref(s);
		sandbox_down(s, "the daemon ends");
		sandbox_unref(s);
	}
}

/* Who asked for it frees it. Answers of its box, which others may wait for, come first. */
void workers_end(struct registry *r)
{
	struct sandbox *s = r->hidden;

	while (s) {
		struct boxlink *link = s->link;

		s->link = NULL;
		boxlink_free(link);
		s = link ? r->hidden : s->next; /* the table may have changed */
	}
	while (r->hidden && r->hidden->waitq.first) {
		struct waiter *w = r->hidden->waitq.first;

		r->hidden->status = SBX_FAILED;
		w->fn(w);
	}
}
