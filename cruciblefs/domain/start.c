/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a machine up; down.c brings it down.
 *
 * Up, each step waiting for the launcher's answer: slot of uids -> engine -> box -> BOX_START; the box says when the
 * guest is ready. One struct start holds what is on its way. Down is the same from every state: the start (if any) is
 * let go, the link closed, LAUNCH_KILL sent. The launcher works in order, so a SPAWN that is still on its way is killed
 * by the KILL behind it; only its answer settles the sandbox. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "cruciblefs/domain/disk.h"
#include "cruciblefs/domain/priv.h"

/* Beyond the guest's memory, an engine needs: its own heap and stacks, and under TCG up to 128 MiB of translated code.
 */
#define ENGINE_OVERHEAD_MIB 384u
#define ENGINE_PIDS	    256u
#define BOX_MEMORY_MIB	    64u
#define BOX_PIDS	    16u
#define BOOT_TIMEOUT_S	    60u

struct start {
	struct sandbox *s; /* NULL: let go, only clean up. A reference. */
	struct registry *reg;
	struct waiter trial;
	struct profile profile;
	bool has_slot;
	uint32_t slot;
	int engine_fds[1 + ENGINE_FD_COUNT]; /* [0]: stdout and stderr */
	int box_fds[1 + 6];
	int daemon_fd; /* our end */
};

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fd_close(&fds[i]);
}

static void start_free(struct start *st)
{
	waitq_del(&st->trial);
	if (st->has_slot && st->reg->launcher) {
		uint8_t slot[4];

		/* Our hold only: the box and the engine have their own. */
		launch_slot_encode(st->slot, slot);
		launcher_call(st->reg->launcher, LAUNCH_SLOT_FREE, slot, sizeof(slot), NULL, 0, NULL, NULL);
	}
	if (st->s) {
		if (st->s->start == st)
			st->s->start = NULL;
		sandbox_unref(st->s);
	}
	fd_close(&st->profile.base_fd);
	close_all(st->engine_fds, ARRAY_LEN(st->engine_fds));
	close_all(st->box_fds, ARRAY_LEN(st->box_fds));
	fd_close(&st->daemon_fd);
	free(st);
}

/* A step failed. Frees @st. */
static void start_fail(struct start *st, int code, const char *step, const char *words)
{
	struct sandbox *s = st->s;
	struct err e = { 0 };

	if (!s) {
		start_free(st);
		return;
	}
	s->reg->n_failed_starts++;
	err_set(&e, code ? code : -EIO, "sandbox %s: %s: %s", s->name, step, words);
	sandbox_ref(s);
	start_free(st);
	sandbox_down(s, e.msg);
	sandbox_unref(s);
}

static void add_unenforced(struct sandbox *s, const char *words)
{
	char *sum;

	if (!words[0])
		return;
	if (asprintf(&sum, "%s%s%s", s->unenforced ? s->unenforced : "", s->unenforced ? "," : "", words) < 0)
		return;
	free(s->unenforced);
	s->unenforced = sum;
}

/* -- the last step: the box has its orders ------------------------------------------------------------------------- */

static int send_orders(struct sandbox *s)
{
	struct box_config c = {
		.boot_timeout_s = BOOT_TIMEOUT_S,
		.exec_timeout_s = sandbox_num(s, ATTR_EXEC_TIMEOUT_S),
		.output_mib = sandbox_num(s, ATTR_OUTPUT_MIB),
		.spool_mib = sandbox_num(s, ATTR_SPOOL_MIB),
		.memory_mib = sandbox_num(s, ATTR_MEMORY_MIB),
		.cpu_percent = sandbox_num(s, ATTR_CPU_PERCENT),
		.pids = sandbox_num(s, ATTR_PIDS),
		.root_mib = sandbox_num(s, ATTR_DISK_MIB),
		.env = s->attrs.env, /* borrowed: box_config_fini is not called */
	};
	struct buf b;
	int r;

	snprintf(c.uuid, sizeof(c.uuid), "%s", s->uuid);
	snprintf(c.name, sizeof(c.name), "%s", s->name);
	snprintf(c.engine, sizeof(c.engine), "%s", s->reg->engine.name);
	snprintf(c.accel, sizeof(c.accel), "%s", engine_accel_name(s->accel));
	snprintf(c.network, sizeof(c.network), "none");
	snprintf(c.unenforced, sizeof(c.unenforced), "%s", s->unenforced ? s->unenforced : "");
	buf_init(&b, MSG_MAX);
	r = box_config_format(&c, &b);
	if (!r)
		r = boxlink_call(s->link, BOX_START, b.data, b.len, NULL, NULL);
	buf_fini(&b);
	return r;
}

static void on_box(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct start *st = arg;
	struct sandbox *s = st->s;
	char unenforced[512];
	struct err e = { 0 };
	int k;

	(void)m; /* the pidfd: the link's end tells as much */
	if (code < 0 || !s) {
		start_fail(st, code, "starting its box", words);
		return;
	}
	wire_u32(r);
	wire_str(r, unenforced, sizeof(unenforced));
	if (!r->bad)
		add_unenforced(s, unenforced);
	k = boxlink_new(s->reg, s, take_fd(&st->daemon_fd), &s->link, &e);
	if (!k)
		k = send_orders(s);
	if (k < 0) {
		start_fail(st, k, "talking to its box", e.code ? e.msg : strerror(-k));
		return;
	}
	start_free(st);
	s->started_ns = wall_ns();
	sandbox_save(s, NULL);
	sandbox_life_timer(s);
	exec_send_all(s);
}

static int spawn(struct start *st, const struct launch_spawn *sp, const int *fds, size_t nfds, launcher_fn *fn)
{
	struct buf b;
	int r;

	buf_init(&b, MSG_MAX);
	r = launch_spawn_encode(sp, &b);
	if (!r)
		r = launcher_call(st->reg->launcher, LAUNCH_SPAWN, b.data, b.len, fds, nfds, fn, st);
	buf_fini(&b);
	return r;
}

static void on_engine(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct start *st = arg;
	struct sandbox *s = st->s;
	struct launch_spawn sp = {
		.kind = LAUNCH_BOX,
		.slot = st->slot,
		.memory_bytes = (uint64_t)BOX_MEMORY_MIB << 20,
		.pids = BOX_PIDS,
		.nofile = 4096,
		.argc = 1,
		.argv = { "crucible-box" },
	};
	char unenforced[512];
	int k;

	if (code < 0 || !s || m->nfds < 1) {
		start_fail(st, code, "starting its engine", words);
		return;
	}
	wire_u32(r);
	wire_str(r, unenforced, sizeof(unenforced));
	if (!r->bad)
		add_unenforced(s, unenforced);
	close_all(st->engine_fds, ARRAY_LEN(st->engine_fds)); /* the engine has its own */
	st->box_fds[1 + BOX_FD_ENGINE - BOX_FD_DAEMON] = take_fd(&m->fds[0]);
	snprintf(sp.uuid, sizeof(sp.uuid), "%s", s->uuid);
	k = spawn(st, &sp, st->box_fds, ARRAY_LEN(st->box_fds), on_box);
	if (k < 0) {
		start_fail(st, k, "asking the launcher for its box", strerror(-k));
		return;
	}
	close_all(st->box_fds, ARRAY_LEN(st->box_fds));
	/* From now on a restarted daemon could meet this box. */
	s->box_uid = s->reg->cfg->uid_base + 1 + 2 * st->slot;
	s->slot = st->slot;
	sandbox_save(s, NULL);
}

/* -- the engine ------------------------------------------------------------------------------------------------------
 */

static int make_sockets(struct start *st)
{
	struct sandbox *s = st->s;
	int pair[2];
	/* Stream sockets between the engine and the box; the last one between the box and us. */
	static const struct {
		int type;
		int engine, box; /* places; engine -1: ours */
	} links[] = {
		{ SOCK_STREAM, 1 + ENGINE_FD_MONITOR, 1 + BOX_FD_MONITOR - BOX_FD_DAEMON },
		{ SOCK_STREAM, 1 + ENGINE_FD_CONTROL, 1 + BOX_FD_CONTROL - BOX_FD_DAEMON },
		{ SOCK_STREAM, 1 + ENGINE_FD_BULK, 1 + BOX_FD_BULK - BOX_FD_DAEMON },
		{ SOCK_SEQPACKET, -1, 1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		if (socketpair(AF_UNIX, links[i].type | SOCK_CLOEXEC, 0, pair) < 0)
			return -errno;
		*(links[i].engine < 0 ? &st->daemon_fd : &st->engine_fds[links[i].engine]) = pair[0];
		st->box_fds[links[i].box] = pair[1];
	}
	/* The console, and whatever the engine itself has to say, go to the box, which keeps a bounded log. */
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	st->box_fds[1 + BOX_FD_CONSOLE - BOX_FD_DAEMON] = pair[0];
	st->engine_fds[1 + ENGINE_FD_CONSOLE] = pair[1];
	st->engine_fds[0] = fcntl(pair[1], F_DUPFD_CLOEXEC, 3);
	st->box_fds[0] =
		openat(s->dirfd, "box.log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
	return st->engine_fds[0] < 0 || st->box_fds[0] < 0 ? -errno : 0;
}

static int spawn_engine(struct start *st, struct err *e)
{
	struct sandbox *s = st->s;
	char kernel[160], initrd[160];
	struct engine_machine m = {
		.accel = s->accel,
		.memory_mib = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)),
		.vcpus = engine_vcpus_class(sandbox_num(s, ATTR_VCPUS)),
		.tsc_khz = s->reg->tsc_khz,
		.kernel = kernel,
		.initrd = initrd,
		.disk = true,
		.base_format = "raw",
		.overlay_format = "qcow2",
	};
	struct launch_spawn sp = {
		.kind = LAUNCH_ENGINE,
		.slot = st->slot,
		.kvm = s->accel == ACCEL_KVM,
		.memory_bytes = (uint64_t)(m.memory_mib + ENGINE_OVERHEAD_MIB) << 20,
		.cpu_percent = sandbox_num(s, ATTR_CPU_PERCENT),
		.pids = ENGINE_PIDS,
		.io_bytes_per_s = (uint64_t)sandbox_num(s, ATTR_IO_MBPS) * 1000000u,
		.nofile = 1024,
	};
	struct engine_command *cmd = malloc(sizeof(*cmd));
	int r;

	if (!cmd)
		return err_set(e, -ENOMEM, "no memory");
	snprintf(kernel, sizeof(kernel), "/boot/%s/vmlinux", st->profile.bootid);
	snprintf(initrd, sizeof(initrd), "/boot/%s/initramfs", st->profile.bootid);
	snprintf(sp.uuid, sizeof(sp.uuid), "%s", s->uuid);
	/* One CPU's worth a vCPU, and a quarter for the engine's own threads. */
	if (!sp.cpu_percent)
		sp.cpu_percent = m.vcpus * 100 + 25;
	r = engine_qemu.command(&m, cmd, e);
	if (!r && cmd->argc > ARRAY_LEN(sp.argv))
		r = err_set(e, -E2BIG, "the engine's command line has %zu words", cmd->argc);
	if (!r) {
		sp.argc = cmd->argc;
		memcpy(sp.argv, cmd->argv, cmd->argc * sizeof(cmd->argv[0]));
		r = spawn(st, &sp, st->engine_fds, ARRAY_LEN(st->engine_fds), on_engine);
		if (r < 0)
			err_set(e, r, "asking the launcher for its engine: %s", strerror(-r));
		else
			s->spawned = true;
	}
	free(cmd);
	return r;
}

static void on_slot(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct start *st = arg;
	struct sandbox *s = st->s;
	struct err e = { 0 };
	int k;

	(void)m;
	if (code == 0) {
		st->slot = wire_u32(r);
		st->has_slot = !r->bad;
	}
	if (code < 0 || !s || !st->has_slot) {
		start_fail(st, code, "a slot of user ids", words);
		return;
	}
	st->engine_fds[1 + ENGINE_FD_BASE] = take_fd(&st->profile.base_fd);
	k = disk_open(s->dirfd, s->reg->state_fd, st->profile.base_bytes, sandbox_num(s, ATTR_DISK_MIB),
		      &st->engine_fds[1 + ENGINE_FD_OVERLAY], &e);
	if (!k) {
		k = make_sockets(st);
		if (k < 0)
			err_set(&e, k, "descriptors: %s", strerror(-k));
	}
	if (!k)
		k = spawn_engine(st, &e);
	if (k < 0)
		start_fail(st, k, "preparing its machine", e.msg);
}

static void begin(struct start *st)
{
	struct registry *reg = st->reg;
	int r;

	st->s->accel = reg->accel;
	r = launcher_call(reg->launcher, LAUNCH_SLOT_ALLOC, NULL, 0, NULL, 0, on_slot, st);
	if (r < 0)
		start_fail(st, r, "asking the launcher", strerror(-r));
}

static void on_trial(struct waiter *w)
{
	struct start *st = (struct start *)((char *)w - offsetof(struct start, trial));

	if (st->reg->trial == TRIAL_DONE) {
		waitq_del(w);
		begin(st);
	}
}

/* Refuse early what the host cannot carry: an honest no is better than the kernel's OOM killer. */
static int admit(struct sandbox *s, struct err *e)
{
	struct registry *reg = s->reg;
	uint64_t sum = engine_memory_class(sandbox_num(s, ATTR_MEMORY_MIB)), available = host_available_mib(),
		 free_mib = 0;
	uint64_t most = reg->host_memory_mib * reg->cfg->overcommit_percent / 100;

	for (struct sandbox *o = reg->first; o; o = o->next) {
		if (o != s && (o->box_uid || o->start))
			sum += engine_memory_class(sandbox_num(o, ATTR_MEMORY_MIB));
	}
	if (sum > most)
		return err_set(e, -ENOMEM,
			       "sandbox %s: start: %" PRIu64 " MiB of memory_mib would run, more than the %" PRIu64
			       " MiB of overcommit_percent; stop others or lower limits/memory_mib",
			       s->name, sum, most);
	if (available < reg->cfg->memory_floor_mib)
		return err_set(e, -ENOMEM,
			       "sandbox %s: start: the host has %" PRIu64
			       " MiB available, less than memory_floor_mib (%" PRIu32 ")",
			       s->name, available, reg->cfg->memory_floor_mib);
	if (host_disk_free_mib(reg->store_fd, &free_mib) == 0 && free_mib < reg->cfg->disk_floor_mib)
		return err_set(e, -ENOSPC,
			       "sandbox %s: start: the store's disk has %" PRIu64
			       " MiB left, less than disk_floor_mib (%" PRIu32 "); free some",
			       s->name, free_mib, reg->cfg->disk_floor_mib);
	return 0;
}

int sandbox_start(struct sandbox *s, const struct cfs_who *who, struct err *e)
{
	struct start *st;
	int r;

	(void)who;
	if (s->down_pending)
		return err_set(e, -EBUSY, "sandbox %s: start: the machine before is still ending", s->name);
	assert(!s->start && !s->link && !s->box_uid);
	if (!s->reg->launcher)
		return err_set(e, -EIO, "sandbox %s: start: the launcher is gone; restart the daemon", s->name);
	r = admit(s, e);
	if (r < 0)
		return r;
	st = calloc(1, sizeof(*st));
	if (!st)
		return err_set(e, -ENOMEM, "sandbox %s: no memory", s->name);
	for (size_t i = 0; i < ARRAY_LEN(st->engine_fds); i++)
		st->engine_fds[i] = -1;
	for (size_t i = 0; i < ARRAY_LEN(st->box_fds); i++)
		st->box_fds[i] = -1;
	st->daemon_fd = st->profile.base_fd = -1;
	st->reg = s->reg;
	st->trial.fn = on_trial;
	r = profile_open(s->reg, s->attrs.from + strlen("profile:"), &st->profile, e);
	if (r < 0) {
		err_wrap(e, "sandbox %s: start", s->name);
		start_free(st);
		return r;
	}
	st->s = sandbox_ref(s);
	s->start = st;
	s->stop_asked = false;
	free(s->unenforced);
	s->unenforced = NULL;
	sandbox_set_error(s, "");
	sandbox_set_status(s, SBX_STARTING);
	trial_begin(s->reg);
	if (s->reg->trial == TRIAL_DONE)
		begin(st); /* may have failed and gone on return: `error` and `status` say so */
	else
		waitq_add(&s->reg->trial_waitq, &st->trial);
	return 0;
}

void start_let_go(struct sandbox *s)
{
	struct start *st = s->start;

	if (!st)
		return;
	s->start = NULL;
	if (st->trial.q) {
		start_free(st); /* nothing was asked yet */
		return;
	}
	st->s = NULL; /* the answer that is on its way finds nobody, and frees it */
	sandbox_unref(s);
}
