/* SPDX-License-Identifier: Apache-2.0 */
/* What concerns the whole store, and checking one snapshot: verify, gc, statistics. The work is crucible-store's; here
 * it is asked for and its last outcome kept. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"
#include "snapstore/stored/stored.h"

#define GC_AFTER_NS (10ull * 1000000000ull) /* something was removed; more may follow */

/* A line of JSON about the end of some work: @answer's members (a JSON object, "" for none) behind a status. */
static char *outcome(const char *status, const char *answer, const char *words)
{
	AUTO_JSON *o = json_object_new_object();
	AUTO_JSON *in = NULL;
	char at[32];
	struct err e;

	if (!o)
		return NULL;
	json_time(wall_ns(), at);
	json_object_object_add(o, "status", json_object_new_string(status));
	json_object_object_add(o, "at", json_object_new_string(at));
	if (words[0])
		json_object_object_add(o, "error", json_text(words, strlen(words)));
	if (answer[0] && json_parse(answer, strlen(answer), &in, &e) == 0 &&
	    json_object_is_type(in, json_type_object)) {
		json_object_object_foreach(in, key, value)
			json_object_object_add(o, key, json_object_get(value));
	}
	return strdup(json_line(o));
}

static bool is_damaged(const char *answer)
{
	AUTO_JSON *o = NULL;
	struct err e;
	uint64_t n = 0;

	if (json_parse(answer, strlen(answer), &o, &e) < 0)
		return false;
	json_get_u64(o, "damaged", 0, UINT64_MAX, &n, NULL);
	return n > 0;
}

static void keep(char **at, char *line)
{
	free(*at);
	*at = line;
}

/* The line @line, "" for NULL; of what is under way also how far it is. */
static int show(const char *line, const struct store_work *w, struct buf *out)
{
	AUTO_JSON *o = NULL;
	struct err e;

	if (!line)
		return 0;
	if (w->total && json_parse(line, strlen(line), &o, &e) == 0 && store_work_add(w, o) == 0)
		line = json_line(o);
	return buf_addf(out, "%s\n", line);
}

/* -- one snapshot ----------------------------------------------------------------------------------------------------
 */

static void on_verified(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct snapshot *p = arg;
	char answer[1024] = "";

	(void)m;
	if (code == 0)
		wire_str(r, answer, sizeof(answer));
	p->busy = false;
	store_work_done(&p->work);
	if (code == -EBADMSG || (code == 0 && is_damaged(answer))) {
		keep(&p->verified, outcome("damaged", answer, words));
		if (!p->gone)
			snapshot_set_status(p, SNAPSHOT_DAMAGED, "what is stored of it is damaged; verify says where");
	} else if (code == 0) {
		keep(&p->verified, outcome("ok", answer, ""));
		/* A damage that was mended outside. */
		if (p->status == SNAPSHOT_DAMAGED && !p->gone)
			snapshot_set_status(p, SNAPSHOT_READY, "");
	} else {
		keep(&p->verified, outcome("failed", "", words));
	}
	snapshot_changed(p);
	struct registry *reg = p->reg;

	snapshot_unref(p);
	snapshots_sweep(reg);
}

int snapshot_verify(struct snapshot *p, const struct cfs_who *who, struct err *e)
{
	struct ask a;
	int k = snapshot_permits(p, who, POLICY_READ, "verify", e);

	if (k < 0)
		return k;
	if (p->status < SNAPSHOT_READY)
		return err_set(e, -EBUSY, "snapshot %s: verify: it is %s; wait until it is ready", p->name,
			       snapshot_status_name(p->status));
	if (p->busy)
		return err_set(e, -EBUSY, "snapshot %s: verify: runs already", p->name);
	ask_init(&a);
	ask_str(&a, p->uuid);
	k = ask_store_work(p->reg, STORE_VERIFY, &a, on_verified, snapshot_ref(p), &p->work);
	if (k < 0) {
		snapshot_unref(p);
		return err_set(e, k == -ENOTCONN ? -EBUSY : k,
			       "snapshot %s: verify: the store process is not there yet (%s); try again", p->name,
			       strerror(-k));
	}
	p->busy = true;
	keep(&p->verified, outcome("running", "", ""));
	snapshot_changed(p);
	return 0;
}

int snapshot_verify_json(struct snapshot *p, struct buf *out)
{
	return show(p->verified, &p->work, out);
}

/* -- the whole store -------------------------------------------------------------------------------------------------
 */

static void on_stat(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct registry *reg = arg;
	char answer[1024] = "";

	(void)words;
	(void)m;
	reg->stat_asked = false;
	if (code == 0)
		wire_str(r, answer, sizeof(answer));
	if (answer[0] && !r->bad)
		keep(&reg->store_stat, strdup(answer));
}

/* What was told last; newer numbers are asked for behind. */
static void ask_stat(struct registry *r)
{
	struct ask a;

	if (r->stat_asked)
		return;
	ask_init(&a);
	r->stat_asked = ask_store(r, STORE_STAT, &a, on_stat, r) == 0;
}

int registry_store_json(struct registry *r, struct buf *out)
{
	ask_stat(r);
	return buf_addf(out, "%s\n", r->store_stat ? r->store_stat : "{}");
}

struct work {
	struct registry *reg;
	char **at;
	bool *runs;
	struct store_work *far;
};

static void on_work(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct work *w = arg;
	char answer[1024] = "";

	(void)m;
	if (code == 0)
		wire_str(r, answer, sizeof(answer));
	*w->runs = false;
	store_work_done(w->far);
	keep(w->at, outcome(code < 0 ? "failed" : is_damaged(answer) ? "damaged" : "ok", answer, words));
	log_info("event=store-work-done outcome=%s", *w->at ? *w->at : "");
	ask_stat(w->reg);
	free(w);
}

static int begin(struct registry *r, bool gc, struct err *e)
{
	char **at = gc ? &r->gc_outcome : &r->verify_outcome;
	bool *runs = gc ? &r->gc_runs : &r->verify_runs;
	struct store_work *far = gc ? &r->gc_work : &r->verify_work;
	struct work *w;
	struct ask a;
	int k;

	if (*runs)
		return err_set(e, -EBUSY, "store: %s: runs already", gc ? "gc" : "verify");
	w = malloc(sizeof(*w));
	if (!w)
		return err_set(e, -ENOMEM, "store: no memory");
	*w = (struct work){ r, at, runs, far };
	ask_init(&a);
	if (!gc)
		ask_str(&a, "");
	k = ask_store_work(r, gc ? STORE_GC : STORE_VERIFY, &a, on_work, w, far);
	if (k < 0) {
		free(w);
		return err_set(e, k == -ENOTCONN ? -EBUSY : k,
			       "store: %s: the store process is not there yet (%s); try again", gc ? "gc" : "verify",
			       strerror(-k));
	}
	*runs = true;
	keep(at, outcome("running", "", ""));
	return 0;
}

int registry_store_start(struct registry *r, const char *what, const struct cfs_who *who, struct err *e)
{
	int k = who->view ? err_set(e, -EPERM, "the store is not a view's affair")
			  : registry_may(r, who, POLICY_ADMIN, e);

	if (k < 0) {
		err_wrap(e, "store: %s", what);
		return k;
	}
	return begin(r, !strcmp(what, "gc"), e);
}

int registry_store_outcome(struct registry *r, const char *what, struct buf *out)
{
	bool gc = !strcmp(what, "gc");

	return show(gc ? r->gc_outcome : r->verify_outcome, gc ? &r->gc_work : &r->verify_work, out);
}

static void on_gc_time(void *arg)
{
	struct registry *r = arg;
	struct err e;

	if (r->shutting_down || begin(r, true, &e) == 0)
		r->gc_wanted = false;
	else
		store_gc_soon(r);
}

void store_gc_soon(struct registry *r)
{
	r->gc_wanted = true;
	loop_del(r->loop, &r->gc_timer);
	loop_timer(r->loop, now_ns() + GC_AFTER_NS, on_gc_time, r, &r->gc_timer);
}

void store_end(struct registry *r)
{
	loop_del(r->loop, &r->gc_timer);
	free(r->store_stat);
	free(r->gc_outcome);
	free(r->verify_outcome);
}
