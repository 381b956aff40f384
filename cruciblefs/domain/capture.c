/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * Taking a snapshot of a machine that runs. Steps, each waiting for the answer to the one before:
 *   KNOW     a machine that booted cold: the box hands over its mem and pagemap, the pager gets them
 *   BEGIN    the pager makes an empty template
 *   RECLAIM  the box: memory that the guest has freed is given back, so that it is not copied; it may fail
 *   FREEZE   the box: commands frozen, machine paused, device state written        | the pause
 *   CAPTURE  the pager: pages written since the mapping was made -> template, disk |
 *   MEMORY   the box: RAM becomes a private mapping of that template (re-base)     |
 *   THAW     the machine goes on                                                   |
 * and beside THAW ATTACH: the pager serves the new mapping (until it does, faults wait; without userfaultfd none would,
 * and THAW waits for its answer). From then on the snapshot can be forked; ingest.c takes over.
 *
 * Whatever fails between FREEZE and THAW is followed by THAW, and the machine goes on as it was: its old mapping is
 * there until MEMORY has answered, and what the pager has captured is a template of its own. A box that hears nothing
 * for 30 s thaws by itself, so a daemon that dies in the middle costs the snapshot and nothing else; so does one that
 * is stopped. What the pager copied meanwhile is of no instant: it is a snapshot only when the box says, after CAPTURE,
 * that the machine still stood, by taking MEMORY or by a THAW that was one.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"

/* Commands that are busy on four emulated vCPUs take up to 115 ms, where the machine has its cores. Where it waits for
 * them (a busy host, one that is itself a guest) it takes seconds. The machine runs meanwhile, so it costs only
 * commands that stand already, and those only when one cannot be frozen at all. */
#define FREEZE_MS 5000u

enum step { KNOW, KNOWN, BEGIN, RECLAIM, FREEZE, CAPTURE, MEMORY, ATTACH, THAW, UNDO };

/* For people: what it was at when it failed. */
static const char *const step_words[] = {
	[KNOW] = "looking at its memory",
	[KNOWN] = "telling the pager of its memory",
	[BEGIN] = "making a template",
	[RECLAIM] = "giving free memory back",
	[FREEZE] = "freezing it",
	[CAPTURE] = "copying what it wrote",
	[MEMORY] = "putting the template in place",
	[ATTACH] = "telling the pager of its new memory",
	[THAW] = "letting it go on",
	[UNDO] = "letting it go on",
};

struct capture {
	struct sandbox *s;  /* a reference; s->capture is us */
	struct snapshot *p; /* a reference; in the table */
	struct snapshot_job *job;
	enum step step;
	bool frozen;
	bool copied;   /* CAPTURE has answered */
	bool captured; /* and it was all of one instant: it is a snapshot, whatever comes */
	int code;      /* of what failed */
	char words[256];
	struct buf ranges; /* as the pager told them: u32 n, n * {u64, u64} */
	uint64_t base;	   /* address of the RAM in the engine */
	int uffd, mem, pagemap;
	loop_id timer;
	bool late;   /* it took too long and is over, but for the answer that is awaited */
	int written; /* what the engine writes its state into, until FREEZE has answered */
};

static void run(struct capture *c, enum step step);

static uint64_t ram_bytes(const struct capture *c)
{
	return (uint64_t)c->p->memory_mib << 20;
}

static void drop_fds(struct capture *c)
{
	fd_close(&c->uffd);
	fd_close(&c->mem);
	fd_close(&c->pagemap);
	fd_close(&c->written);
}

/* -- the end ---------------------------------------------------------------------------------------------------------
 */

static void finish(struct capture *c)
{
	struct sandbox *s = c->s;
	struct registry *r = s->reg;
	struct snapshot *p = c->p;
	struct snapshot_job *job = c->job;
	struct err e = { 0 };

	s->capture = NULL;
	loop_del(r->loop, &c->timer);
	if (c->code < 0 && c->captured) {
		/* The pages are safe; what went wrong came after. */
		log_warn("snapshot=%s uuid=%s event=after-capture error=\"%s\" next=continues", p->name, p->uuid,
			 c->words);
		c->code = 0;
	}
	if (c->code < 0) {
		err_set(&e, c->code, "sandbox %s: snapshot %s: %s", s->name, p->name, c->words);
		if (!s->gone)
			sandbox_fail(s, &p->owner, &e);
		/* It never was: swept below, or when the pager is back; after a restart, too, for what was being taken.
		 */
		p->gone = true;
		snapshot_changed(p);
	} else {
		if (!p->hidden) {
			snprintf(s->latest_snapshot, sizeof(s->latest_snapshot), "%s", p->name);
			/* What its memory is of, its box tells the next daemon, too. */
			if (sandbox_save(s, &e) < 0)
				log_warn("sandbox=%s uuid=%s event=not-saved error=\"%s\" next=continues", s->name,
					 s->uuid, e.msg);
			e = (struct err){ 0 };
		}
		snapshot_set_status(p, SNAPSHOT_STORING, "");
		ingest_kick(r);
	}
	drop_fds(c);
	buf_fini(&c->ranges);
	job_end(job, c->code, e.msg);
	sandbox_changed(s);
	snapshot_unref(p);
	if (!c->late) {
		sandbox_unref(s);
		free(c);
	}
	snapshots_sweep(r);
}

static void fail(struct capture *c, int code, const char *step, const char *words)
{
	if (!c->code) {
		c->code = code;
		snprintf(c->words, sizeof(c->words), "%s: %s", step, words);
	}
	if (c->frozen && c->s->link)
		run(c, UNDO);
	else
		finish(c);
}

/* -- the steps -------------------------------------------------------------------------------------------------------
 */

/* The pager is gone: its successor gets it (relink.c). Else its faults would wait for ever. */
static void not_attached(struct sandbox *s, int code, const char *words)
{
	char text[256];

	s->attached = false;
	if (code == -EPIPE || code == -ENOTCONN || s->gone || !s->link)
		return;
	snprintf(text, sizeof(text), "the machine was lost: the pager does not take its memory: %s", words);
	sandbox_down(s, text);
}

static void on_attached(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct sandbox *s = arg;

	(void)r;
	(void)m;
	if (code < 0)
		not_attached(s, code, words);
	sandbox_unref(s);
}

int capture_attach(struct sandbox *s, const char *template, uint64_t base, uint64_t bytes, const struct buf *ranges,
		   const int *fds, size_t nfds)
{
	const struct attach at = { s->machine, template, base, bytes, ranges, fds, nfds };
	int code = ask_attach(s->reg, &at, on_attached, sandbox_ref(s));

	if (code < 0)
		sandbox_unref(s);
	return code;
}

static int attach(struct capture *c)
{
	int fds[3] = { c->uffd, c->mem, c->pagemap };
	int code = capture_attach(c->s, c->p->uuid, c->base, ram_bytes(c), &c->ranges, fds, 3);

	drop_fds(c);
	return code;
}

static int take_memory(struct capture *c, struct wire_rd *r, struct msg *m)
{
	uint8_t has_uffd;

	c->base = wire_u64(r);
	has_uffd = wire_u8(r);
	if (wire_done(r) < 0 || m->nfds < 2u + has_uffd)
		return -EBADMSG;
	drop_fds(c);
	c->mem = take_fd(&m->fds[0]);
	c->pagemap = take_fd(&m->fds[1]);
	if (has_uffd)
		c->uffd = take_fd(&m->fds[2]);
	return 0;
}

static int take_captured(struct capture *c, struct wire_rd *r, struct msg *m)
{
	size_t left;

	c->p->captured_pages = wire_u64(r);
	wire_u64(r); /* how long it took: the pause is told by the box */
	left = wire_left(r);
	buf_reset(&c->ranges);
	if (r->bad || wire_left(r) < 4 || buf_add(&c->ranges, wire_raw(r, wire_left(r)), left) < 0 || m->nfds < 1)
		return -EBADMSG;
	c->p->bits_fd = take_fd(&m->fds[0]);
	c->copied = true;
	return 0;
}

/* The commands that stand now go on in each fork as inherited ones. What began or ended while the snapshot was being
 * prepared was told before the answer to FREEZE. */
static int note_running(struct snapshot *p, struct sandbox *s)
{
	struct json_object *a = json_object_new_array();

	if (!a)
		return -ENOMEM;
	for (struct execution *x = s->first_exec; x; x = x->next) {
		struct json_object *o = x->state == EXEC_RUNNING ? json_object_new_object() : NULL;

		if (!o)
			continue;
		json_object_object_add(o, "n", json_object_new_uint64(x->n));
		json_object_array_add(a, o);
	}
	p->inherited = strdup(json_line(a));
	json_object_put(a);
	return p->inherited ? 0 : -ENOMEM;
}

/* Nobody waits for the answer. */
static void thaw(struct sandbox *s)
{
	struct ask a;

	ask_init(&a);
	if (s->link)
		ask_box(s->link, BOX_THAW, &a, NULL, NULL);
}

static void on_step(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct capture *c = arg;
	struct sandbox *s = c->s;
	enum step step = c->step, next = step + 1;

	if (c->late) {
		if (step == FREEZE && code == 0)
			thaw(s);
		sandbox_unref(s);
		free(c);
		return;
	}
	if (code == 0 && !s->link) {
		code = -ENOTCONN;
		words = "the machine is gone";
	}
	if (step == RECLAIM && s->link) {
		log_info("snapshot=%s uuid=%s event=reclaimed bytes=%" PRIu64 " error=\"%s\"", c->p->name, c->p->uuid,
			 code < 0 ? 0 : wire_u64(r), code < 0 ? words : "");
		code = 0; /* what speaks against a snapshot, FREEZE says */
	}
	if (code < 0) {
		if (step == ATTACH)
			not_attached(s, code, words);
		if (step == THAW || step == UNDO)
			c->frozen = false;
		if (step == UNDO)
			finish(c);
		else
			fail(c, code, step_words[step], words);
		return;
	}
	switch (step) {
	case KNOW:
		code = take_memory(c, r, m);
		break;
	case KNOWN:
		s->attached = true;
		break;
	case BEGIN:
		code = m->nfds < 1 ? -EBADMSG : 0;
		if (!code)
			c->p->template_fd = take_fd(&m->fds[0]);
		break;
	case RECLAIM:
		break;
	case FREEZE:
		c->frozen = true;
		code = snapshot_keep_state(c->p, c->written);
		fd_close(&c->written);
		if (code == 0)
			code = note_running(c->p, s);
		break;
	case CAPTURE:
		code = take_captured(c, r, m);
		break;
	case MEMORY:
		code = take_memory(c, r, m);
		c->captured = true;
		snprintf(s->template, sizeof(s->template), "%s", c->p->uuid);
		snprintf(s->origin, sizeof(s->origin), "%s", c->p->uuid);
		if (code < 0)
			not_attached(s, code, "its box answers nonsense");
		else if (c->uffd >= 0) {
			next = THAW;
			code = attach(c);
			if (code == -ENOTCONN) { /* as on_attached() */
				s->attached = false;
				code = 0;
			}
		}
		break;
	case ATTACH:
		s->attached = true;
		break;
	case THAW:
	case UNDO:
		c->frozen = false;
		c->captured = c->copied;
		c->p->pause_ns = wire_u64(r);
		finish(c);
		return;
	}
	if (code < 0)
		fail(c, code, step_words[step], strerror(-code));
	else
		run(c, next);
}

static void run(struct capture *c, enum step step)
{
	struct sandbox *s = c->s;
	struct ask a;
	int code;

	c->step = step;
	ask_init(&a);
	switch (step) {
	case KNOW:
		ask_u64(&a, 0);
		ask_u32(&a, 0);
		ask_str(&a, "");
		code = ask_box(s->link, BOX_MEMORY, &a, on_step, c);
		break;
	case KNOWN:
		ask_str(&a, s->machine);
		ask_str(&a, "");
		ask_u64(&a, c->base);
		ask_u64(&a, ram_bytes(c));
		ask_u32(&a, 0);
		ask_fd(&a, c->mem);
		ask_fd(&a, c->pagemap);
		code = ask_pager(s->reg, PAGER_ATTACH, &a, on_step, c);
		drop_fds(c);
		break;
	case BEGIN:
		ask_str(&a, c->p->uuid);
		ask_u64(&a, ram_bytes(c));
		ask_str(&a, s->template);
		code = ask_pager(s->reg, PAGER_CAPTURE_BEGIN, &a, on_step, c);
		break;
	case RECLAIM:
		ask_u64(&a, ram_bytes(c));
		code = ask_box(s->link, BOX_RECLAIM, &a, on_step, c);
		break;
	case FREEZE:
		ask_u32(&a, FREEZE_MS);
		c->written = snapshot_make_state();
		if (c->written < 0) {
			fail(c, c->written, step_words[step], strerror(-c->written));
			return;
		}
		ask_fd(&a, c->written);
		code = ask_box(s->link, BOX_FREEZE, &a, on_step, c);
		break;
	case CAPTURE:
		ask_str(&a, s->machine);
		ask_str(&a, c->p->uuid);
		ask_str(&a, s->disk);
		code = ask_pager(s->reg, PAGER_CAPTURE, &a, on_step, c);
		break;
	case MEMORY:
		ask_u64(&a, ram_bytes(c));
		ask_raw(&a, c->ranges.data, c->ranges.len);
		ask_str(&a, c->p->uuid);
		ask_fd(&a, c->p->template_fd);
		code = ask_box(s->link, BOX_MEMORY, &a, on_step, c);
		break;
	case ATTACH:
		code = ask_attach(s->reg,
				  &(struct attach){ s->machine, c->p->uuid, c->base, ram_bytes(c), &c->ranges,
						    (int[]){ c->mem, c->pagemap }, 2 },
				  on_step, c);
		drop_fds(c);
		s->attached = s->attached && code == 0;
		break;
	case THAW:
	case UNDO:
	default:
		code = ask_box(s->link, BOX_THAW, &a, on_step, c);
		break;
	}
	if (code < 0 && (step == THAW || step == UNDO)) {
		c->frozen = false; /* the link is dying, and the machine with it */
		finish(c);
	} else if (code < 0) {
		fail(c, code, step_words[step], code == -ENOTCONN ? "it is not there" : strerror(-code));
	}
}

/* Somebody who is there answers no more. The machine is let go on without waiting for that, too. */
static void on_deadline(void *arg)
{
	struct capture *c = arg;

	c->timer = 0;
	c->late = true;
	if (!c->code) {
		c->code = -ETIMEDOUT;
		snprintf(c->words, sizeof(c->words), "%s: no answer", step_words[c->step]);
	}
	if (c->step == KNOWN || c->step == ATTACH)
		c->s->attached = false;
	if (c->frozen && c->step != THAW && c->step != UNDO)
		thaw(c->s);
	finish(c);
}

/* -- the beginning ---------------------------------------------------------------------------------------------------
 */

/* What of a sandbox a snapshot has to know: its attributes, the shape of its machine, where it comes from. */
static int describe(struct snapshot *p, struct sandbox *s, struct err *e)
{
	struct engine_machine m = { .accel = s->accel,
				    .memory_mib = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)),
				    .vcpus = engine_vcpus_class(sandbox_num(s, ATTR_VCPUS)),
				    .disk = true };
	int k = attrs_copy(&p->attrs, &s->attrs);

	p->accel = s->accel;
	p->memory_mib = m.memory_mib;
	p->vcpus = m.vcpus;
	snprintf(p->source, sizeof(p->source), "%s", s->name);
	snprintf(p->source_uuid, sizeof(p->source_uuid), "%s", s->uuid);
	snprintf(p->parent_uuid, sizeof(p->parent_uuid), "%s", s->origin);
	snprintf(p->birth, sizeof(p->birth), "%s", s->birth);
	snprintf(p->memory_base, sizeof(p->memory_base), "%s", s->template);
	snprintf(p->bootid, sizeof(p->bootid), "%s", s->bootid);
	snprintf(p->base, sizeof(p->base), "%s", s->base);
	if (s->latest_snapshot[0])
		snprintf(p->parent, sizeof(p->parent), "%s", s->latest_snapshot);
	else
		snprintf(p->parent, sizeof(p->parent), "%s", s->parent[0] ? s->parent : s->attrs.from);
	if (!k)
		k = engine_fingerprint(&s->reg->engine, &m, p->fingerprint, sizeof(p->fingerprint));
	return k < 0 ? err_set(e, k, "sandbox %s: snapshot: describing its machine: %s", s->name, strerror(-k)) : 0;
}

int capture_begin(struct sandbox *s, const char *name, const char *key, const struct cfs_who *who,
		  struct snapshot_job *j, struct err *e)
{
	struct registry *r = s->reg;
	struct capture *c = calloc(1, sizeof(*c));
	struct snapshot *p = snapshot_new(r);
	int k;

	if (!c || !p) {
		free(c);
		snapshot_unref(p);
		return err_set(e, -ENOMEM, "sandbox %s: snapshot: no memory", s->name);
	}
	p->hidden = key != NULL;
	who_take(&p->owner, who);
	p->status = SNAPSHOT_CAPTURING;
	snprintf(p->name, sizeof(p->name), "%s", name);
	snprintf(p->key, sizeof(p->key), "%s", key ? key : "");
	k = registry_make_uuid(p->uuid);
	if (k < 0)
		err_set(e, k, "sandbox %s: snapshot: %s", s->name, strerror(-k));
	if (!k)
		k = describe(p, s, e);
	if (!k)
		k = snapshot_save(p, e);
	if (k < 0) {
		if (p->uuid[0])
			snapshot_remove_dir(p);
		free(c);
		snapshot_unref(p);
		return k;
	}
	*c = (struct capture){
		.s = sandbox_ref(s), .p = snapshot_ref(p), .uffd = -1, .mem = -1, .pagemap = -1, .written = -1
	};
	c->job = j;
	buf_init(&c->ranges, 16384);
	s->capture = c;
	snapshot_insert(r, p);
	loop_timer(r->loop, now_ns() + ask_deadline_ns, on_deadline, c, &c->timer); /* without memory: without */
	run(c, s->attached ? BEGIN : KNOW);
	return 0;
}

int sandbox_snapshot(struct sandbox *s, const char *name, const struct cfs_who *who, struct snapshot_job **ret,
		     struct err *e)
{
	struct registry *r = s->reg;
	struct snapshot_job *j;
	uint64_t free_mib = 0;
	size_t own = 0;
	int k = cfs_name_check(name);

	if (k == 0 && strlen(name) > SNAPSHOT_NAME_MAX)
		k = -ENAMETOOLONG;
	if (k < 0)
		return err_set(e, k,
			       "sandbox %s: snapshot %.64s: a name is a letter or digit, then up to 55 of letters, "
			       "digits, '.', '_', '-'",
			       s->name, name);
	k = sandbox_permits(s, who, POLICY_SNAPSHOT, "snapshot", e);
	if (k < 0)
		return k;
	if (registry_find_snapshot(r, s->owner.view, name))
		return err_set(e, -EEXIST, "sandbox %s: snapshot %s: exists; choose another name, or rmdir it first",
			       s->name, name);
	if (s->status != SBX_READY || !s->link)
		return err_set(
			e, -EBUSY, "sandbox %s: snapshot: it is %s; only a running one can be frozen: echo %s > ctl",
			s->name, sandbox_status_name(sandbox_status(s)), s->status == SBX_PAUSED ? "resume" : "start");
	if ((s->template[0] && !s->attached) || relink_in_doubt(r, s)) /* the pager was restarted: see relink.c */
		return err_set(e, -EBUSY, "sandbox %s: snapshot: the pager is being told of its memory; try again",
			       s->name);
	if (s->capture)
		return err_set(e, -EBUSY, "sandbox %s: snapshot: another one is under way", s->name);
	k = permit_one_more(r, who, POLICY_MAX_SNAPSHOTS, e);
	if (k < 0) {
		err_wrap(e, "sandbox %s: snapshot", s->name);
		return k;
	}
	/* Removed ones that something still stands on take as much room. */
	for (struct snapshot *p = r->first_snapshot; p; p = p->next)
		own += !p->hidden && !p->removing && p->owner.uid == who->uid;
	if (who->uid && own >= r->cfg->max_snapshots_per_uid)
		return err_set(
			e, -EDQUOT,
			"sandbox %s: snapshot: uid %u has %zu, its limit (max_snapshots_per_uid), with those that "
			"were removed while a sandbox stands on them",
			s->name, who->uid, own);
	if (host_disk_free_mib(r->store_fd, &free_mib) == 0 && free_mib < r->cfg->disk_floor_mib)
		return err_set(e, -ENOSPC,
			       "sandbox %s: snapshot: the store's disk has %" PRIu64
			       " MiB left, less than disk_floor_mib (%" PRIu32 "); remove snapshots, or free some",
			       s->name, free_mib, r->cfg->disk_floor_mib);
	j = job_new(r);
	if (!j)
		return err_set(e, -ENOMEM, "sandbox %s: snapshot: no memory", s->name);
	k = capture_begin(s, name, NULL, who, j, e);
	if (k < 0) {
		job_end(j, k, "");
		snapshot_job_drop(j);
		return k;
	}
	*ret = j;
	return 0;
}

const char *sandbox_latest_snapshot(const struct sandbox *s)
{
	return s->latest_snapshot;
}
