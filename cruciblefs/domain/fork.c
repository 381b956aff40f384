/* SPDX-License-Identifier: Apache-2.0 */
/* Making sandboxes of a snapshot, all or none: names first, then the sandboxes, then their machines; when one of them
 * does not come up, all of the batch are destroyed. */
#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

struct fork {
	struct fork *next;  /* in the registry */
	struct waiter w;    /* on the sandbox that is waited for now */
	struct snapshot *p; /* a reference */
	struct snapshot_job *job;
	struct cfs_who who;
	struct sandbox *made[FORK_MAX]; /* references */
	size_t n, at;
};

struct names {
	size_t n;
	char name[FORK_MAX][CFS_NAME_MAX + 1];
};

/* -- names ------------------------------------------------------------------------------------------------------------
 */

/* <snapshot>-1, -2 …: the next free ones. */
static int numbered(struct snapshot *p, unsigned long count, struct names *ret, struct err *e)
{
	unsigned i = 1;

	if (!count || count > FORK_MAX)
		return err_set(e, -EINVAL, "snapshot %s: fork: %lu is not a number from 1 to %u", p->name, count,
			       FORK_MAX);
	for (; ret->n < count; i++) {
		snprintf(ret->name[ret->n], sizeof(ret->name[0]), "%.*s-%u", SNAPSHOT_NAME_MAX, p->name, i);
		if (!registry_find(p->reg, p->owner.view, ret->name[ret->n]))
			ret->n++;
	}
	return 0;
}

static int named(struct snapshot *p, const char *text, struct names *ret, struct err *e)
{
	while (*(text += strspn(text, " \t\r\n"))) {
		size_t len = strcspn(text, " \t\r\n");
		char *to;
		int k;

		if (ret->n == FORK_MAX)
			return err_set(e, -EINVAL, "snapshot %s: fork: more than %u names", p->name, FORK_MAX);
		if (len > CFS_NAME_MAX)
			return err_set(e, -ENAMETOOLONG, "snapshot %s: fork: %.64s…: a name has at most %u characters",
				       p->name, text, CFS_NAME_MAX);
		to = ret->name[ret->n];
		memcpy(to, text, len);
		to[len] = '\0';
		k = cfs_name_check(to);
		if (k < 0)
			return err_set(
				e, k,
				"snapshot %s: fork: \"%s\" is neither a number nor a name (a letter or digit, then "
				"letters, digits, '.', '_', '-')",
				p->name, to);
		if (registry_find(p->reg, p->owner.view, to))
			return err_set(e, -EEXIST, "snapshot %s: fork: run/%s exists; none was made", p->name, to);
		for (size_t i = 0; i < ret->n; i++) {
			if (!strcmp(ret->name[i], to))
				return err_set(e, -EEXIST, "snapshot %s: fork: %s is named twice; none was made",
					       p->name, to);
		}
		ret->n++;
		text += len;
	}
	return 0;
}

static int parse(struct snapshot *p, const char *text, struct names *ret, struct err *e)
{
	size_t digits = strspn(text, "0123456789");

	ret->n = 0;
	if (digits && !text[digits])
		return numbered(p, digits < 10 ? strtoul(text, NULL, 10) : ULONG_MAX, ret, e);
	return named(p, text, ret, e);
}

static void keep_batch(struct snapshot *p, const struct names *names)
{
	struct buf b;

	buf_init(&b, FORK_MAX * (CFS_NAME_MAX + 2));
	for (size_t i = 0; i < names->n; i++)
		buf_addf(&b, "%s\n", names->name[i]);
	free(p->batch);
	p->batch = buf_str(&b) ? strdup(buf_str(&b)) : NULL;
	buf_fini(&b);
}

/* -- the batch --------------------------------------------------------------------------------------------------------
 */

static void take_out(struct fork *f)
{
	struct fork **at = &f->p->reg->forks;

	while (*at && *at != f)
		at = &(*at)->next;
	if (*at)
		*at = f->next;
}

static void finish(struct fork *f, int code, const char *words)
{
	struct registry *r = f->p->reg;
	struct err e = { 0 };

	waitq_del(&f->w);
	take_out(f);
	if (code < 0) {
		err_set(&e, code, "snapshot %s: fork: %s; none was made", f->p->name, words);
		snapshot_fail(f->p, &f->who, &e);
	}
	for (size_t i = 0; i < f->n; i++) {
		if (code < 0)
			registry_destroy(r, f->made[i], &f->who, "its batch of forks failed");
		sandbox_unref(f->made[i]);
	}
	job_end(f->job, code, e.msg);
	snapshot_changed(f->p);
	snapshot_unref(f->p);
	free(f);
	snapshots_sweep(r); /* it may have been removed meanwhile */
}

/* What has come up stays, for the next daemon. */
void forks_end(struct registry *r)
{
	while (r->forks) {
		struct fork *f = r->forks;

		take_out(f);
		waitq_del(&f->w);
		for (size_t i = 0; i < f->n; i++)
			sandbox_unref(f->made[i]);
		job_end(f->job, -ECANCELED, "the daemon ends");
		snapshot_unref(f->p);
		free(f);
	}
}

/* Look at the sandboxes in order, from the one that was not up last time. May free @f. */
static void look(struct fork *f)
{
	waitq_del(&f->w);
	for (; f->at < f->n; f->at++) {
		struct sandbox *s = f->made[f->at];
		char words[400];

		if (s->gone) {
			finish(f, -ECANCELED, "one of them was removed meanwhile");
			return;
		}
		if (s->status == SBX_STARTING) {
			waitq_add(&s->waitq, &f->w);
			return;
		}
		if (s->status != SBX_READY && s->status != SBX_PAUSED) {
			snprintf(words, sizeof(words), "%s", s->error[0] ? s->error : "it did not start");
			finish(f, -EIO, words);
			return;
		}
	}
	finish(f, 0, "");
}

static void on_change(struct waiter *w)
{
	look((struct fork *)((char *)w - offsetof(struct fork, w)));
}

static int make_all(struct fork *f, const struct names *names, bool disk_only, struct err *e)
{
	struct registry *r = f->p->reg;
	int k = 0;

	for (size_t i = 0; !k && i < names->n; i++) {
		struct sandbox *s = NULL;

		k = registry_create_from(r, names->name[i], f->p, &f->who, &s, e);
		if (k < 0)
			break;
		f->made[f->n++] = sandbox_ref(s);
		s->disk_only = disk_only;
		k = sandbox_start(s, &f->who, e);
	}
	return k;
}

int snapshot_fork(struct snapshot *p, const char *text, bool disk_only, const struct cfs_who *who,
		  struct snapshot_job **ret, struct err *e)
{
	struct names *names = calloc(1, sizeof(*names));
	struct fork *f = calloc(1, sizeof(*f));
	struct snapshot_job *j = names && f ? job_new(p->reg) : NULL;
	int k = 0;

	if (!j || !names || !f) {
		free(names);
		free(f);
		return err_set(e, -ENOMEM, "snapshot %s: fork: no memory", p->name);
	}
	if (who->uid && who->uid != p->owner.uid)
		k = err_set(e, -EPERM, "snapshot %s: fork: it is uid %u's; only its owner and root may", p->name,
			    p->owner.uid);
	if (!k)
		k = snapshot_permits(p, who, POLICY_FORK, "fork", e);
	if (!k && (!disk_only || p->status == SNAPSHOT_CAPTURING))
		k = snapshot_usable(p, e);
	if (!k)
		k = parse(p, text, names, e);
	if (!k && (k = permit_amount(p->reg, who, POLICY_MAX_FORK, names->n, e)) < 0)
		err_wrap(e, "snapshot %s: fork", p->name);
	if (!k) {
		f->p = snapshot_ref(p);
		f->job = j;
		f->who = *who;
		f->w.fn = on_change;
		k = make_all(f, names, disk_only, e);
		for (size_t i = 0; k < 0 && i < f->n; i++) {
			registry_destroy(p->reg, f->made[i], who, "its batch of forks failed");
			sandbox_unref(f->made[i]);
		}
		if (k < 0)
			snapshot_unref(p);
	}
	if (k < 0) {
		snapshot_job_drop(j);
		snapshot_job_drop(j);
		free(f);
	} else {
		keep_batch(p, names);
		f->next = p->reg->forks;
		p->reg->forks = f;
		look(f);
		*ret = j;
	}
	free(names);
	return k;
}

int snapshot_last_batch(struct snapshot *p, struct buf *out)
{
	return p->batch ? buf_adds(out, p->batch) : 0;
}
