/* SPDX-License-Identifier: Apache-2.0 */
/* A profile is booted once for each shape of machine: a hidden sandbox boots cold, runs what warms it, gives unused
 * memory and blocks back, and is snapshotted. From then on sandboxes of that profile and shape go on from there. One is
 * prepared at a time, behind, when nobody is being brought up; a few are kept, those that were used last. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/worker.h"

#define QUIET_NS     (300ull * 1000000ull)
#define FAILURES_MAX 3u /* of one key */
#define PREPARED_MAX 8u
#define DISK_MIN_MIB 64u

/* What most commands need, once: the shell, the dynamic linker, an interpreter if there is one. */
static const char warm_command[] = "true; ls / >/dev/null; cat /etc/passwd >/dev/null\n"
				   "for i in 1 2 3; do sh -c true; done\n"
				   "! command -v python3 >/dev/null || python3 -c 'import json, os, re'\n";

struct prepare {
	struct registry *reg;
	char key[256];
	struct attrs attrs;
	loop_id timer; /* not begun yet */
	struct worker *worker;
	struct waiter w; /* on the job */
	struct snapshot_job *job;
	bool asked; /* an answer is on its way */
	bool dropped;
};

static void release(struct prepare *g)
{
	struct registry *r = g->reg;

	if (g->asked) {
		g->dropped = true;
		return;
	}
	if (r->prepare == g)
		r->prepare = NULL;
	waitq_del(&g->w);
	snapshot_job_drop(g->job);
	loop_del(r->loop, &g->timer);
	worker_free(g->worker);
	attrs_fini(&g->attrs);
	free(g);
}

/* Of the same profile and shape, but of another kernel, image or engine. */
static void drop_older(struct registry *r, const char *key)
{
	size_t same = (size_t)(strchr(key, '|') - key) + 1;
	struct snapshot *next;

	for (struct snapshot *p = r->first_snapshot; p; p = next) {
		next = p->next;
		if (p->hidden && !p->gone && !strncmp(p->key, key, same) && strcmp(p->key, key) != 0) {
			snapshot_destroy(p, NULL);
			next = r->first_snapshot; /* the table has changed */
		}
	}
}

/* Those that nobody went on from for the longest time: any user can ask for another shape. */
static void drop_unused(struct registry *r, const char *but)
{
	for (;;) {
		struct snapshot *least = NULL;
		size_t n = 0;

		for (struct snapshot *p = r->first_snapshot; p; p = p->next) {
			if (!p->hidden || p->gone)
				continue;
			n++;
			if (strcmp(p->key, but) != 0 && (!least || p->used_ns < least->used_ns))
				least = p;
		}
		if (n <= PREPARED_MAX || !least)
			return;
		log_info("profile=\"%s\" event=prepared-one-dropped next=prepared-anew-when-wanted", least->key);
		snapshot_destroy(least, NULL);
	}
}

/* How often it failed, by key: one that cannot be prepared keeps no other from it. NULL: never. */
static struct prepare_failure *failures_of(struct registry *r, const char *key)
{
	for (size_t i = 0; i < ARRAY_LEN(r->prepare_failed); i++) {
		if (!strcmp(r->prepare_failed[i].key, key))
			return &r->prepare_failed[i];
	}
	return NULL;
}

static void note_failure(struct registry *r, const char *key)
{
	struct prepare_failure *f = failures_of(r, key);

	if (!f) {
		f = &r->prepare_failed[r->nprepare_failed++ % ARRAY_LEN(r->prepare_failed)];
		snprintf(f->key, sizeof(f->key), "%s", key);
		f->n = 0;
	}
	f->n++;
}

static void fail(struct prepare *g, const char *step, const char *words)
{
	log_warn("profile=\"%s\" event=not-prepared step=\"%s\" error=\"%s\" next=boots-cold", g->key, step, words);
	note_failure(g->reg, g->key);
	release(g);
}

static void on_job(struct waiter *w)
{
	struct prepare *g = (struct prepare *)((char *)w - offsetof(struct prepare, w));
	struct err e = { 0 };
	int k = snapshot_job_result(g->job, &e);

	if (k == -EAGAIN)
		return;
	if (k < 0) {
		fail(g, "snapshot", e.msg);
		return;
	}
	log_info("profile=\"%s\" event=prepared", g->key);
	if (failures_of(g->reg, g->key))
		failures_of(g->reg, g->key)->key[0] = '\0';
	drop_older(g->reg, g->key);
	drop_unused(g->reg, g->key);
	release(g);
}

static void on_trimmed(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	static const struct cfs_who root = { .uid = 0, .gid = 0 };
	struct prepare *g = arg;
	struct err e = { 0 };

	(void)r;
	(void)m;
	g->asked = false;
	if (g->dropped || code < 0) {
		if (g->dropped)
			release(g);
		else
			fail(g, "trim", words);
		return;
	}
	g->job = job_new(g->reg);
	if (!g->job) {
		fail(g, "snapshot", "no memory");
		return;
	}
	g->w.fn = on_job;
	waitq_add(snapshot_job_waitq(g->job), &g->w);
	code = capture_begin(worker_sandbox(g->worker), "prepared", g->key, &root, g->job, &e);
	if (code < 0)
		job_end(g->job, code, e.msg);
}

static void on_warm(void *arg, struct worker *k, int code, const char *words)
{
	struct prepare *g = arg;
	struct sandbox *s = worker_sandbox(k);
	struct ask a;

	if (code < 0) {
		fail(g, "boot", words);
		return;
	}
	ask_init(&a);
	code = s->link ? ask_box(s->link, BOX_TRIM, &a, on_trimmed, g) : -ENOTCONN;
	g->asked = code == 0;
	if (code < 0)
		fail(g, "trim", strerror(-code));
}

static void begin(void *arg)
{
	struct prepare *g = arg;
	struct registry *r = g->reg;
	struct err e = { 0 };

	if (registry_anybody_starts(r)) {
		loop_timer(r->loop, now_ns() + QUIET_NS, begin, g, &g->timer);
		return;
	}
	if (worker_new(r, "prepare", &g->attrs, NULL, warm_command, on_warm, g, &g->worker, &e) < 0)
		fail(g, "start", e.msg);
}

/* A file system can grow in a fork, not shrink: the next smaller class of disks, the default being the largest. */
static uint32_t disk_class(const struct sandbox *s)
{
	uint32_t most = s->reg->defaults.num[ATTR_DISK_MIB], want = sandbox_num(s, ATTR_DISK_MIB), at = DISK_MIN_MIB;

	if (want >= most)
		return most;
	while (at * 2 <= want)
		at *= 2;
	return at;
}

static int key_of(struct sandbox *s, const struct profile *pr, char *out, size_t cap)
{
	struct engine_machine m = { .accel = s->reg->accel,
				    .memory_mib = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)),
				    .vcpus = engine_vcpus_class(sandbox_num(s, ATTR_VCPUS)),
				    .disk = true };
	char print[128];
	int k = engine_fingerprint(&s->reg->engine, &m, print, sizeof(print));

	if (k < 0)
		return k;
	k = snprintf(out, cap, "%s memory_mib=%u vcpus=%u disk_mib=%u | %s %s %s", s->attrs.from, m.memory_mib, m.vcpus,
		     disk_class(s), pr->bootid, pr->base, print);
	return k < 0 || (size_t)k >= cap ? -EINVAL : 0;
}

struct snapshot *prepared_for(struct sandbox *s, const struct profile *pr)
{
	struct registry *r = s->reg;
	struct snapshot *p;
	struct prepare_failure *f;
	struct prepare *g;
	struct err e;
	char key[256];

	if (!r->cfg->prepare || key_of(s, pr, key, sizeof(key)) < 0)
		return NULL;
	p = snapshot_by_key(r, key);
	if (p && snapshot_usable(p, &e) == 0) {
		p->used_ns = now_ns();
		return p;
	}
	if (p && p->status == SNAPSHOT_CAPTURING)
		return NULL;
	if (p)
		snapshot_destroy(p, NULL);
	f = failures_of(r, key);
	if (r->prepare || (f && f->n >= FAILURES_MAX) || r->shutting_down)
		return NULL;
	g = calloc(1, sizeof(*g));
	if (!g || attrs_copy(&g->attrs, &r->defaults) < 0) {
		free(g);
		return NULL;
	}
	g->reg = r;
	snprintf(g->key, sizeof(g->key), "%s", key);
	memcpy(g->attrs.from, s->attrs.from, sizeof(g->attrs.from));
	g->attrs.num[ATTR_MEMORY_MIB] = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB));
	g->attrs.num[ATTR_VCPUS] = engine_vcpus_class(sandbox_num(s, ATTR_VCPUS));
	g->attrs.num[ATTR_DISK_MIB] = disk_class(s);
	g->attrs.num[ATTR_CPU_PERCENT] = g->attrs.num[ATTR_IO_MBPS] = 0;
	free(g->attrs.env);
	g->attrs.env = NULL;
	r->prepare = g;
	loop_timer(r->loop, now_ns() + QUIET_NS, begin, g, &g->timer);
	return NULL;
}

struct snapshot *prepared_default(struct registry *r)
{
	char key[256];
	int k = snprintf(key, sizeof(key), "%s memory_mib=%u vcpus=%u disk_mib=%u |", r->defaults.from,
			 engine_memory_class(r->defaults.num[ATTR_MEMORY_MIB]),
			 engine_vcpus_class(r->defaults.num[ATTR_VCPUS]), r->defaults.num[ATTR_DISK_MIB]);

	if (!r->cfg->prepare || k < 0 || (size_t)k >= sizeof(key))
		return NULL;
	for (struct snapshot *p = r->last_snapshot; p; p = p->prev) {
		if (p->hidden && !p->gone && !strncmp(p->key, key, (size_t)k))
			return p;
	}
	return NULL;
}

void prepare_end(struct registry *r)
{
	struct prepare *g = r->prepare;
	struct sandbox *s;

	if (!g)
		return;
	if (!g->asked) {
		release(g);
		return;
	}
	/* With its machine comes the answer that is on its way, and that frees @g. */
	s = sandbox_ref(worker_sandbox(g->worker));
	g->dropped = true;
	sandbox_down(s, "the daemon needs it no more");
	sandbox_unref(s);
}
