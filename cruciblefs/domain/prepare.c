/* SPDX-License-Identifier: Apache-2.0 */
/* A profile is booted once for each shape of machine: a hidden sandbox boots cold, runs what warms it, gives unused
 * memory and blocks back, and is snapshotted. From then on sandboxes of that profile and shape go on from there. One is
 * prepared at a time, behind, when nobody is being brought up. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "cruciblefs/domain/worker.h"

#define QUIET_NS     (300ull * 1000000ull)
#define FAILURES_MAX 3u

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

static void fail(struct prepare *g, const char *step, const char *words)
{
	log_warn("profile=\"%s\" event=not-prepared step=\"%s\" error=\"%s\" next=boots-cold", g->key, step, words);
	g->reg->prepare_failures++;
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
	g->reg->prepare_failures = 0;
	drop_older(g->reg, g->key);
	release(g);
}

static void on_trimmed(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	static const struct cfs_who root = { 0, 0 };
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

static int key_of(struct sandbox *s, const struct profile *pr, char *out, size_t cap)
{
	uint32_t most = s->reg->defaults.num[ATTR_DISK_MIB], root = sandbox_num(s, ATTR_DISK_MIB);
	struct engine_machine m = { .accel = s->reg->accel,
				    .memory_mib = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)),
				    .vcpus = engine_vcpus_class(sandbox_num(s, ATTR_VCPUS)),
				    .disk = true };
	char print[128];
	int k = engine_fingerprint(&s->reg->engine, &m, print, sizeof(print));

	if (k < 0)
		return k;
	/* A file system can grow in a fork, not shrink. */
	k = snprintf(out, cap, "%s memory_mib=%u vcpus=%u disk_mib=%u | %s %s %s", s->attrs.from, m.memory_mib, m.vcpus,
		     root < most ? root : most, pr->bootid, pr->base, print);
	return k < 0 || (size_t)k >= cap ? -EINVAL : 0;
}

struct snapshot *prepared_for(struct sandbox *s, const struct profile *pr)
{
	struct registry *r = s->reg;
	struct snapshot *p;
	struct prepare *g;
	struct err e;
	char key[256];

	if (!r->cfg->prepare || key_of(s, pr, key, sizeof(key)) < 0)
		return NULL;
	p = snapshot_by_key(r, key);
	if (p && snapshot_usable(p, &e) == 0)
		return p;
	if (p && p->status == SNAPSHOT_CAPTURING)
		return NULL;
	if (p)
		snapshot_destroy(p, NULL);
	if (r->prepare || r->prepare_failures >= FAILURES_MAX || r->shutting_down)
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
	if (sandbox_num(s, ATTR_DISK_MIB) < g->attrs.num[ATTR_DISK_MIB])
		g->attrs.num[ATTR_DISK_MIB] = sandbox_num(s, ATTR_DISK_MIB);
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
