/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots of the fake domain: objects with words in them. A job ends at once, or, after fake_jobs_wait(), when
 * the test says so. */
#include "fake_domain_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "cruciblefs/snapshot.h"

#define FORKS_MAX 8u

struct snapshot {
	struct registry *r;
	struct snapshot *next; /* newest last */
	unsigned refs;
	bool gone;
	char name[CFS_NAME_MAX + 1], uuid[40], source_uuid[40], parent[80], error[320];
	struct cfs_who owner;
	enum snapshot_status status;
	uint64_t created_ns, changed_ns;
	struct waitq waitq;
	char forks[FORKS_MAX][40]; /* their uuids */
	size_t nforks;
	struct buf batch;
	bool diffed, verified;
};

struct snapshot_job {
	struct registry *r;
	struct snapshot_job *next; /* that wait for the test */
	unsigned refs;		   /* the waiter's, the list's */
	bool done;
	struct err e;
	struct waitq waitq;
};

/* -- jobs --------------------------------------------------------------------------------------------------- */

void fake_jobs_wait(struct registry *r, bool on)
{
	r->jobs_wait = on;
}

unsigned fake_jobs(struct registry *r)
{
	return r->njobs;
}

void fake_jobs_end(struct registry *r, int code)
{
	while (r->jobs) {
		struct snapshot_job *j = r->jobs;

		r->jobs = j->next;
		j->done = true;
		if (code < 0)
			err_set(&j->e, code, "the test says so");
		waitq_wake(&j->waitq);
		snapshot_job_drop(j);
	}
}

static struct snapshot_job *new_job(struct registry *r)
{
	struct snapshot_job *j = fake_need(calloc(1, sizeof(*j)));

	j->r = r;
	j->refs = 1;
	j->done = !r->jobs_wait;
	waitq_init(&j->waitq, r->loop);
	r->njobs++;
	if (!j->done) {
		j->refs++;
		j->next = r->jobs;
		r->jobs = j;
	}
	return j;
}

int snapshot_job_result(struct snapshot_job *j, struct err *e)
{
	if (!j->done)
		return -EAGAIN;
	if (e)
		*e = j->e;
	return j->e.code;
}

struct waitq *snapshot_job_waitq(struct snapshot_job *j)
{
	return &j->waitq;
}

void snapshot_job_drop(struct snapshot_job *j)
{
	if (!j || --j->refs)
		return;
	j->r->njobs--;
	waitq_fini(&j->waitq);
	free(j);
}

/* -- snapshots ---------------------------------------------------------------------------------------------- */

const char *snapshot_status_name(enum snapshot_status s)
{
	static const char *const words[] = { "capturing", "storing", "ready", "damaged" };

	return words[s];
}

struct snapshot *registry_find_snapshot(struct registry *r, const struct view *view, const char *name)
{
	struct snapshot *p = r->snapshots;

	while (p && (p->owner.view != view || strcmp(p->name, name) != 0))
		p = p->next;
	return p;
}

struct snapshot *registry_snapshot_by_uuid(struct registry *r, const char *uuid)
{
	struct snapshot *p = r->snapshots;

	while (p && strcmp(p->uuid, uuid) != 0)
		p = p->next;
	return p;
}

struct snapshot *registry_next_snapshot(struct registry *r, const struct view *view, struct snapshot *after)
{
	struct snapshot *p = after ? after->next : r->snapshots;

	while (p && p->owner.view != view)
		p = p->next;
	return p;
}

struct snapshot *snapshot_ref(struct snapshot *p)
{
	p->refs++;
	return p;
}

struct snapshot *snapshot_unref(struct snapshot *p)
{
	if (!p || --p->refs)
		return NULL;
	buf_fini(&p->batch);
	waitq_fini(&p->waitq);
	view_unref(p->owner.view);
	free(p);
	return NULL;
}

bool snapshot_gone(const struct snapshot *p)
{
	return p->gone;
}
const char *snapshot_name(const struct snapshot *p)
{
	return p->name;
}
const char *snapshot_uuid(const struct snapshot *p)
{
	return p->uuid;
}
const char *snapshot_source_uuid(const struct snapshot *p)
{
	return p->source_uuid;
}
const char *snapshot_parent(const struct snapshot *p)
{
	return p->parent;
}
struct cfs_who snapshot_owner(const struct snapshot *p)
{
	return p->owner;
}
enum snapshot_status snapshot_status(const struct snapshot *p)
{
	return p->status;
}
const char *snapshot_error(const struct snapshot *p)
{
	return p->error;
}
uint64_t snapshot_created_ns(const struct snapshot *p)
{
	return p->created_ns;
}
uint64_t snapshot_changed_ns(const struct snapshot *p)
{
	return p->changed_ns;
}
struct waitq *snapshot_waitq(struct snapshot *p)
{
	return &p->waitq;
}

static void changed(struct snapshot *p)
{
	p->changed_ns = wall_ns();
	waitq_wake(&p->waitq);
}

void snapshot_fail(struct snapshot *p, const struct cfs_who *who, const struct err *e)
{
	(void)who;
	snprintf(p->error, sizeof(p->error), "%s", e->msg);
	changed(p);
}

int snapshot_info_json(struct snapshot *p, struct buf *out)
{
	return buf_addf(out, "{\"id\":\"%s\",\"uuid\":\"%s\"}\n", p->name, p->uuid);
}

struct sandbox *snapshot_next_fork(struct snapshot *p, struct sandbox *after)
{
	for (struct sandbox *s = registry_next(p->r, p->owner.view, after); s;
	     s = registry_next(p->r, p->owner.view, s)) {
		for (size_t i = 0; i < p->nforks; i++)
			if (!strcmp(p->forks[i], sandbox_uuid(s)))
				return s;
	}
	return NULL;
}

void snapshot_destroy(struct snapshot *p, const struct cfs_who *who)
{
	struct snapshot **at = &p->r->snapshots;

	(void)who;
	while (*at && *at != p)
		at = &(*at)->next;
	if (!*at)
		return;
	*at = p->next;
	p->gone = true;
	changed(p);
	snapshot_unref(p);
}

int snapshot_remove(struct snapshot *p, const struct cfs_who *who, struct err *e)
{
	int code = registry_may(p->r, who, POLICY_DELETE, e);

	if (!code)
		snapshot_destroy(p, who);
	return code;
}

void fake_snapshots_free(struct registry *r)
{
	static const struct cfs_who root;

	fake_jobs_end(r, -ECANCELED);
	while (r->snapshots)
		snapshot_destroy(r->snapshots, &root);
}

void fake_snapshot_status(struct snapshot *p, enum snapshot_status st)
{
	p->status = st;
	changed(p);
}

struct snapshot *fake_snapshot(struct registry *r, const char *name, struct sandbox *s, uid_t uid)
{
	struct snapshot *p = fake_need(calloc(1, sizeof(*p))), **at = &r->snapshots;

	p->r = r;
	p->refs = 1;
	p->owner = (struct cfs_who){ .uid = uid, .gid = uid, .view = s ? view_ref(s->owner.view) : NULL };
	p->status = SNAPSHOT_READY;
	p->created_ns = p->changed_ns = wall_ns();
	snprintf(p->name, sizeof(p->name), "%s", name);
	snprintf(p->uuid, sizeof(p->uuid), "00000000-0000-4000-9000-%012u", ++r->serial);
	snprintf(p->source_uuid, sizeof(p->source_uuid), "%s", s ? sandbox_uuid(s) : "");
	snprintf(p->parent, sizeof(p->parent), "profile:base");
	waitq_init(&p->waitq, r->loop);
	buf_init(&p->batch, 1 << 20);
	while (*at)
		at = &(*at)->next;
	*at = p;
	return p;
}

/* -- what is written ---------------------------------------------------------------------------------------- */

int sandbox_snapshot(struct sandbox *s, const char *name, const struct cfs_who *who, struct snapshot_job **ret,
		     struct err *e)
{
	int code = cfs_name_check(name);

	if (!code && registry_find_snapshot(s->r, s->owner.view, name))
		code = -EEXIST;
	if (code < 0)
		return err_set(e, code, "sandbox %s: snapshot %s: %s", s->name, name, strerror(-code));
	fake_snapshot(s->r, name, s, who->uid);
	snprintf(s->latest_snapshot, sizeof(s->latest_snapshot), "%s", name);
	fake_changed(s);
	*ret = new_job(s->r);
	return 0;
}

const char *sandbox_latest_snapshot(const struct sandbox *s)
{
	return s->latest_snapshot;
}

int snapshot_fork(struct snapshot *p, const char *text, bool disk_only, const struct cfs_who *who,
		  struct snapshot_job **ret, struct err *e)
{
	char name[CFS_NAME_MAX + 1];
	struct sandbox *s;
	int code;

	if (p->nforks == FORKS_MAX)
		return err_set(e, -EDQUOT, "snapshot %s: no more forks", p->name);
	snprintf(name, sizeof(name), "%.*s", CFS_NAME_MAX, text);
	code = registry_create(p->r, name, who, &s, e);
	if (code < 0)
		return code;
	s->status = SBX_READY;
	snprintf(p->forks[p->nforks++], sizeof(p->forks[0]), "%s", s->uuid);
	buf_reset(&p->batch);
	buf_addf(&p->batch, "%s%s\n", name, disk_only ? " disk-only" : "");
	changed(p);
	*ret = new_job(p->r);
	return 0;
}

int snapshot_last_batch(struct snapshot *p, struct buf *out)
{
	return p->batch.len ? buf_add(out, p->batch.data, p->batch.len) : 0;
}

int snapshot_verify(struct snapshot *p, const struct cfs_who *who, struct err *e)
{
	(void)who;
	if (p->status != SNAPSHOT_READY)
		return err_set(e, -EBUSY, "snapshot %s: not stored yet", p->name);
	p->verified = true;
	changed(p);
	return 0;
}

int snapshot_verify_json(struct snapshot *p, struct buf *out)
{
	return p->verified ? buf_adds(out, "{\"damaged\":0}\n") : 0;
}

int snapshot_diff(struct snapshot *p, const struct cfs_who *who, struct err *e)
{
	(void)who, (void)e;
	p->diffed = true;
	changed(p);
	return 0;
}

const char *snapshot_diff_state(struct snapshot *p)
{
	return p->diffed ? "done" : "none";
}

int snapshot_diff_json(struct snapshot *p, struct buf *out)
{
	return p->diffed ? buf_adds(out, "{\"changed\":[]}\n") : -ENOENT;
}

/* -- inherited commands, the store --------------------------------------------------------------------------- */

void fake_inherits(struct sandbox *s, uint64_t n)
{
	s->inherited = n;
}

uint64_t sandbox_inherited_next(struct sandbox *s, uint64_t after)
{
	return after < s->inherited ? s->inherited : 0;
}

int sandbox_inherited_open(struct sandbox *s, uint64_t n, int *ret_fd)
{
	if (!n || n != s->inherited)
		return -ENOENT;
	*ret_fd = memfd_create("inherited", MFD_CLOEXEC);
	return *ret_fd < 0 || fd_write_all(*ret_fd, "since\n", 6) < 0 || lseek(*ret_fd, 0, SEEK_SET) < 0 ? -errno : 0;
}

int registry_store_json(struct registry *r, struct buf *out)
{
	(void)r;
	return buf_adds(out, "{\"packs\":1}\n");
}

int registry_store_start(struct registry *r, const char *what, const struct cfs_who *who, struct err *e)
{
	if (who->uid)
		return err_set(e, -EPERM, "store/%s: only root may", what);
	snprintf(r->store_did, sizeof(r->store_did), "%s", what);
	return 0;
}

int registry_store_outcome(struct registry *r, const char *what, struct buf *out)
{
	return strcmp(r->store_did, what) == 0 ? buf_addf(out, "{\"%s\":\"done\"}\n", what) : 0;
}
