/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A sandbox goes on from a snapshot. Three things are asked for at once and awaited together: the template (pager), a
 * disk that is the snapshot's (pager), a generic machine (the pool's, or one that is made now). Then, together again,
 * the disk is announced to the block server for that machine, and the box puts the template in place. Then the box
 * loads the device state; the pager gets the userfaultfd meanwhile (until it does, faults wait). The box's orders
 * (START) went along, so it greets the guest and says READY, which is the end as boxlink.c sees it.
 *
 * Before the machine is the sandbox's, a failure of a profile's prepared snapshot is no failure of the start: it boots
 * cold instead. After that, a failure ends the start; no guest has run on the disk then, so that it goes too, and the
 * next start goes on from the snapshot, not from its disk alone.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "snapstore/stored/stored.h"

enum {
	NEED_TEMPLATE = 1,
	NEED_DISK = 2,
	NEED_MACHINE = 4,
	NEED_STATE = 8,
	NEED_EXPORT = 16,
	NEED_MEMORY = 32,
	NEED_LOAD = 64,
	FIRST = NEED_TEMPLATE | NEED_DISK | NEED_MACHINE | NEED_STATE,
	SECOND = NEED_EXPORT | NEED_MEMORY,
};

struct restore {
	struct registry *reg;
	struct sandbox *s;  /* NULL: let go. A reference */
	struct snapshot *p; /* a reference */
	struct machine *m;  /* until it is the sandbox's */
	unsigned missing;   /* NEED_* of this stage */
	unsigned asked;	    /* answers that are on their way: we live as long */
	bool given;	    /* the machine is the sandbox's */
	struct buf ranges;
	int template_fd, state_fd;
	char disk[LAUNCH_UUID_LEN + 1];
};

static void release(struct restore *o)
{
	if (o->asked || o->s || o->m)
		return;
	struct registry *r = o->reg;

	fd_close(&o->template_fd);
	fd_close(&o->state_fd);
	buf_fini(&o->ranges);
	snapshot_unref(o->p);
	free(o);
	snapshots_sweep(r); /* it may have been removed meanwhile */
}

static void disk_remove(struct registry *r, const char *disk)
{
	struct ask a;

	ask_init(&a);
	ask_str(&a, disk);
	ask_pager(r, PAGER_DISK_REMOVE, &a, NULL, NULL);
}

void restore_let_go(struct restore *o)
{
	struct sandbox *s = o->s;

	if (!s)
		return;
	o->s = NULL;
	s->restore = NULL;
	if (!o->given && o->disk[0])
		disk_remove(o->reg, o->disk);
	o->m = machine_free(o->m);
	sandbox_unref(s);
	release(o);
}

/* @damage: it is about what is kept of the snapshot, which cannot be read if the code says so. */
static void fail_of(struct restore *o, int code, const char *step, const char *words, bool damage)
{
	struct sandbox *s = o->s;
	struct snapshot *p = o->p;
	bool cold = !o->given && p->hidden;
	struct err e = { 0 };

	if (!s)
		return;
	err_set(&e, code, "sandbox %s: going on from %s: %s: %s", s->name, p->hidden ? p->key : p->name, step, words);
	sandbox_ref(s);
	if (damage && (code == -EBADMSG || code == -ENOENT)) {
		snapshot_ref(p);
		if (p->hidden)
			snapshot_destroy(p, NULL); /* made anew */
		else
			snapshot_set_status(p, SNAPSHOT_DAMAGED, e.msg);
		snapshot_unref(p);
	}
	restore_let_go(o);
	if (cold) {
		log_warn("sandbox=%s uuid=%s event=not-restored error=\"%s\" next=boots-cold", s->name, s->uuid, e.msg);
		start_cold(s);
	} else {
		s->reg->n_failed_starts++;
		sandbox_down(s, e.msg);
	}
	sandbox_unref(s);
}

static void fail(struct restore *o, int code, const char *step, const char *words)
{
	fail_of(o, code, step, words, false);
}

/* An answer came: is it still wanted? False: @o may be gone. Before the machine is there, pager and store tell of what
 * they keep. */
static bool answered(struct restore *o, int code, const char *step, const char *words)
{
	o->asked--;
	if (!o->s) {
		release(o);
		return false;
	}
	if (code < 0) {
		o->asked++; /* it must outlive fail() */
		fail_of(o, code, step, words, !o->given);
		o->asked--;
		release(o);
		return false;
	}
	return true;
}

static void sent(struct restore *o, int code, const char *step)
{
	if (code == 0)
		o->asked++;
	else
		fail(o, code, step, strerror(-code));
}

/* -- third: loaded ---------------------------------------------------------------------------------------------------
 */

static void on_loaded(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct restore *o = arg;
	struct sandbox *s;

	(void)r;
	(void)m;
	if (!answered(o, code, "loading its state", words))
		return;
	s = o->s;
	o->s = NULL;
	s->restore = NULL; /* READY comes by itself */
	s->disk_unused = false;
	sandbox_unref(s);
	release(o);
}

static void load(struct restore *o)
{
	struct ask a;

	ask_init(&a);
	ask_u8(&a, 0);
	ask_str(&a, o->s->machine);
	ask_fd(&a, o->state_fd);
	sent(o, ask_box(o->s->link, BOX_LOAD, &a, on_loaded, o), "asking its box to load");
}

/* -- second: the machine is the sandbox's ----------------------------------------------------------------------------
 */

static void got(struct restore *o, unsigned what);

static void on_memory(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct restore *o = arg;
	uint64_t base;
	uint8_t has_uffd;

	if (!answered(o, code, "putting its memory in place", words))
		return;
	base = wire_u64(r);
	has_uffd = wire_u8(r);
	if (wire_done(r) < 0 || m->nfds < 2u + has_uffd) {
		fail(o, -EBADMSG, "putting its memory in place", "the box answers nonsense");
		return;
	}
	int fds[3] = { has_uffd ? m->fds[2] : -1, m->fds[0], m->fds[1] };

	code = capture_attach(o->s, o->p->uuid, base, (uint64_t)o->p->memory_mib << 20, &o->ranges, fds + !has_uffd,
			      2u + has_uffd);
	if (code < 0) {
		fail(o, code, "telling the pager of its memory", strerror(-code));
		return;
	}
	o->s->attached = true;
	got(o, NEED_MEMORY);
}

static void on_export(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct restore *o = arg;

	(void)r;
	(void)m;
	if (answered(o, code, "offering it its disk", words))
		got(o, NEED_EXPORT);
}

static void second(struct restore *o)
{
	struct sandbox *s = o->s;
	struct machine *m = o->m;
	uid_t uid = machine_engine_uid(m);
	struct err e = { 0 };
	struct ask a;
	int k;

	o->m = NULL;
	k = machine_give(m, s, &e);
	if (k < 0) {
		machine_free(m);
		fail(o, k, "taking a machine", e.msg);
		return;
	}
	o->given = true;
	snprintf(s->template, sizeof(s->template), "%s", o->p->uuid);
	snprintf(s->origin, sizeof(s->origin), "%s", o->p->uuid);
	snprintf(s->disk, sizeof(s->disk), "%s", o->disk);
	s->disk_unused = !o->p->hidden; /* a prepared one that does not load can be booted */
	snprintf(s->bootid, sizeof(s->bootid), "%s", o->p->bootid);
	snprintf(s->base, sizeof(s->base), "%s", o->p->base);
	o->missing = SECOND;

	ask_init(&a);
	ask_str(&a, s->machine);
	ask_str(&a, s->disk);
	ask_u32(&a, uid);
	o->asked++; /* of ours, so that a failure in here does not free it */
	sent(o, ask_pager(o->reg, PAGER_DISK_EXPORT, &a, on_export, o), "offering it its disk");
	if (o->s) {
		ask_init(&a);
		ask_u64(&a, (uint64_t)o->p->memory_mib << 20);
		ask_raw(&a, o->ranges.data, o->ranges.len);
		ask_fd(&a, o->template_fd);
		sent(o, ask_box(s->link, BOX_MEMORY, &a, on_memory, o), "putting its memory in place");
	}
	if (o->s) {
		k = start_orders(s, o->p);
		if (k < 0)
			fail(o, k, "talking to its box", strerror(-k));
	}
	if (o->s)
		start_began(s);
	o->asked--;
	release(o);
}

/* -- first: template, disk, machine, state ---------------------------------------------------------------------------
 */

static void got(struct restore *o, unsigned what)
{
	o->missing &= ~what;
	if (o->missing)
		return;
	if (what & FIRST)
		second(o);
	else
		load(o);
}

static void on_template(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct restore *o = arg;

	size_t left = wire_left(r);

	if (!answered(o, code, "its memory", words))
		return;
	if (m->nfds < 1 || left < 4 || buf_add(&o->ranges, wire_raw(r, left), left) < 0) {
		fail(o, -EIO, "its memory", "the pager answers nonsense");
		return;
	}
	o->template_fd = take_fd(&m->fds[0]);
	got(o, NEED_TEMPLATE);
}

static void on_disk(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct restore *o = arg;

	(void)r;
	(void)m;
	if (answered(o, code, "its disk", words))
		got(o, NEED_DISK);
}

static void on_machine(void *arg, struct machine *m, int code, const char *words)
{
	struct restore *o = arg;

	if (code < 0) {
		o->m = NULL;
		machine_free(m);
		fail(o, code, "a machine", words);
		return;
	}
	got(o, NEED_MACHINE);
}

/* Every reader needs an offset of its own. */
static int reopen(int fd)
{
	char path[40];
	int k;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	k = open(path, O_RDONLY | O_CLOEXEC);
	return k < 0 ? -errno : k;
}

static void state_here(struct restore *o)
{
	int k = reopen(o->p->state_fd);

	if (k < 0) {
		fail(o, k, "its state", strerror(-k));
		return;
	}
	o->state_fd = k;
	got(o, NEED_STATE);
}

static void on_state(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct restore *o = arg;

	(void)r;
	if (!answered(o, code, "its state", words))
		return;
	if (m->nfds < 1) {
		fail(o, -EIO, "its state", "the store answers nonsense");
		return;
	}
	if (o->p->state_fd < 0)
		o->p->state_fd = take_fd(&m->fds[0]);
	state_here(o);
}

static void ask_disk(struct restore *o)
{
	struct ask a;

	ask_init(&a);
	ask_str(&a, o->disk);
	ask_u64(&a, ENGINE_DISK_BYTES);
	ask_u64(&a, (uint64_t)sandbox_num(o->s, ATTR_DISK_MIB) << 20);
	ask_str(&a, o->p->uuid);
	ask_str(&a, o->p->base);
	sent(o, ask_pager(o->reg, PAGER_DISK_CREATE, &a, on_disk, o), "its disk");
}

static void ask_machine(struct restore *o)
{
	struct sandbox *s = o->s;
	struct machine_plan plan = {
		.generic = true,
		.accel = o->p->accel,
		.memory_mib = o->p->memory_mib,
		.vcpus = o->p->vcpus,
		.cpu_percent = sandbox_num(s, ATTR_CPU_PERCENT),
		.io_bytes_per_s = (uint64_t)sandbox_num(s, ATTR_IO_MBPS) * 1000000u,
	};
	struct err e = { 0 };
	int k;

	o->m = plan.cpu_percent || plan.io_bytes_per_s ? NULL : pool_take(o->reg, plan.memory_mib, plan.vcpus);
	if (o->m) {
		o->m->fn = on_machine; /* its box may still die */
		o->m->arg = o;
		got(o, NEED_MACHINE);
		return;
	}
	k = machine_new(o->reg, &plan, on_machine, o, &o->m, &e);
	if (k < 0)
		fail(o, k, "a machine", e.msg);
}

int snapshot_usable(struct snapshot *p, struct err *e)
{
	struct engine_machine m = {
		.accel = p->reg->accel, .memory_mib = p->memory_mib, .vcpus = p->vcpus, .disk = true
	};
	char mine[128];

	if (p->status == SNAPSHOT_CAPTURING)
		return err_set(e, -EBUSY, "snapshot %s: is being taken", p->name);
	if (p->status == SNAPSHOT_DAMAGED)
		return err_set(e, -EBADMSG, "snapshot %s: damaged: %.150s", p->name, p->error);
	if (engine_fingerprint(&p->reg->engine, &m, mine, sizeof(mine)) < 0 || strcmp(mine, p->fingerprint) != 0)
		return err_set(
			e, -EPROTONOSUPPORT,
			"snapshot %s: was taken by \"%s\", here is \"%s\"; its disk can be booted: crucible fork "
			"--disk-only %s",
			p->name, p->fingerprint, mine, p->name);
	return 0;
}

int restore_begin(struct sandbox *s, struct snapshot *p, struct err *e)
{
	struct restore *o = calloc(1, sizeof(*o));
	struct ask a;

	if (!o || registry_make_uuid(o->disk) < 0) {
		free(o);
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	}
	o->reg = s->reg;
	o->s = sandbox_ref(s);
	o->p = snapshot_ref(p);
	o->template_fd = o->state_fd = -1;
	o->missing = FIRST;
	buf_init(&o->ranges, 16384);
	s->restore = o;
	o->asked++; /* of ours, until all is asked */
	ask_init(&a);
	ask_str(&a, p->uuid);
	ask_u64(&a, (uint64_t)p->memory_mib << 20);
	ask_u8(&a, p->hidden); /* a profile's is everybody's */
	sent(o, ask_pager(o->reg, PAGER_TEMPLATE, &a, on_template, o), "its memory");
	if (o->s)
		ask_disk(o);
	if (o->s)
		ask_machine(o);
	if (o->s && p->state_fd >= 0) {
		state_here(o);
	} else if (o->s) {
		ask_init(&a);
		ask_str(&a, p->uuid);
		sent(o, ask_store(o->reg, STORE_STATE, &a, on_state, o), "its state");
	}
	o->asked--;
	release(o);
	return 0;
}
