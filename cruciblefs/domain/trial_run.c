/* SPDX-License-Identifier: Apache-2.0 */
/* Which accelerator the machines get: decided once per host boot, kernel, engine and guest by a trial boot
 * (vmm/trial.h), which the launcher starts like any engine, and remembered in <store>/state/trial.json. Until then
 * starting sandboxes wait. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/domain/priv.h"
#include "vmm/trial.h"

#define OUTCOME		   "trial.json"
#define TRIAL_MEMORY_MIB   512u
#define TRIAL_OVERHEAD_MIB 256u

struct trial_run {
	struct registry *reg;
	struct trial *trial;
	struct trial_key key;
	char uuid[LAUNCH_UUID_LEN + 1]; /* its cgroup's */
	char kernel[160], initrd[160];
	struct engine_command *cmd; /* kept until it is spawned */
	int fds[MSG_FDS_MAX];	    /* borrowed: [0] is its standard error */
	size_t nfds;
	uint32_t slot;
	bool has_slot;
};

static void decided(struct registry *r, const struct trial_outcome *o)
{
	char words[sizeof(o->reason) + 16];

	r->accel = o->accel;
	r->trial = TRIAL_DONE;
	snprintf(r->accel_reason, sizeof(r->accel_reason), "%s", o->reason);
	log_info("event=accel accel=%s reason=%s", engine_accel_name(o->accel),
		 log_quote(o->reason, words, sizeof(words)));
	waitq_wake(&r->trial_waitq);
}

static void run_free(struct trial_run *t)
{
	uint8_t slot[4];

	launch_slot_encode(t->slot, slot);
	if (t->has_slot && t->reg->launcher)
		launcher_call(t->reg->launcher, LAUNCH_SLOT_FREE, slot, sizeof(slot), NULL, 0, NULL, NULL);
	t->reg->trial_run = NULL;
	free(t);
}

static void on_done(void *arg, const struct trial_outcome *o)
{
	struct trial_run *t = arg;
	struct registry *r = t->reg;
	struct trial_outcome answer = *o;
	struct buf b;

	trial_free(t->trial);
	buf_init(&b, 8192);
	if (trial_outcome_format(&t->key, &answer, &b) < 0 ||
	    fd_replace(r->state_fd, OUTCOME, b.data, b.len, 0644, false) < 0)
		log_warn("event=trial-not-remembered next=tried-again-at-the-next-start");
	buf_fini(&b);
	run_free(t);
	decided(r, &answer);
}

static void on_kill(void *arg)
{
	struct trial_run *t = arg;
	uint8_t uuid[LAUNCH_UUID_BYTES];

	launch_uuid_encode(t->uuid, uuid);
	if (t->reg->launcher)
		launcher_call(t->reg->launcher, LAUNCH_KILL, uuid, sizeof(uuid), NULL, 0, NULL, NULL);
}

static void on_spawned(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct trial_run *t = arg;

	(void)r;
	trial_spawned(t->trial, code, words, code == 0 && m->nfds ? take_fd(&m->fds[0]) : -1);
}

static void on_slot(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct trial_run *t = arg;
	struct launch_spawn sp = {
		.kind = LAUNCH_ENGINE,
		.kvm = true,
		.memory_bytes = (uint64_t)(TRIAL_MEMORY_MIB + TRIAL_OVERHEAD_MIB) << 20,
		.cpu_percent = 100,
		.pids = 64,
		.nofile = 256,
	};
	struct buf b;

	(void)m;
	if (code == 0) {
		t->slot = wire_u32(r);
		t->has_slot = !r->bad;
		code = r->bad ? -EBADMSG : 0;
	}
	sp.slot = t->slot;
	snprintf(sp.uuid, sizeof(sp.uuid), "%s", t->uuid);
	sp.argc = t->cmd->argc;
	memcpy(sp.argv, t->cmd->argv, t->cmd->argc * sizeof(t->cmd->argv[0]));
	buf_init(&b, MSG_MAX);
	if (!code)
		code = launch_spawn_encode(&sp, &b);
	if (!code)
		code = launcher_call(t->reg->launcher, LAUNCH_SPAWN, b.data, b.len, t->fds, t->nfds, on_spawned, t);
	buf_fini(&b);
	free(t->cmd);
	t->cmd = NULL;
	if (code < 0)
		trial_spawned(t->trial, code, words[0] ? words : strerror(-code), -1);
}

static void on_spawn(void *arg, struct trial *trial, const struct engine_command *cmd, const int *fds, size_t nfds,
		     int log)
{
	struct trial_run *t = arg;
	int r = nfds + 1 > ARRAY_LEN(t->fds) ? -E2BIG : 0;

	t->trial = trial;
	t->cmd = r ? NULL : malloc(sizeof(*cmd));
	if (!r && !t->cmd)
		r = -ENOMEM;
	if (!r) {
		/* The words point into the struct's own text. */
		*t->cmd = *cmd;
		for (size_t i = 0; i < cmd->argc; i++)
			t->cmd->argv[i] = t->cmd->text + (cmd->argv[i] - cmd->text);
		t->fds[0] = log;
		memcpy(t->fds + 1, fds, nfds * sizeof(fds[0]));
		t->nfds = nfds + 1;
		r = launcher_call(t->reg->launcher, LAUNCH_SLOT_ALLOC, NULL, 0, NULL, 0, on_slot, t);
	}
	if (r < 0)
		trial_spawned(trial, r, strerror(-r), -1);
}

/* The answer of an earlier start of the daemon, if nothing has changed since. */
static bool recall(struct registry *r, const struct trial_key *key)
{
	AUTO_FREE char *text = NULL;
	struct trial_outcome o;
	size_t len;

	if (fd_slurp(r->state_fd, OUTCOME, 8192, &text, &len) < 0 || trial_outcome_parse(text, len, key, &o) < 0)
		return false;
	decided(r, &o);
	return true;
}

static int current_bootid(struct registry *r, char *out, size_t cap)
{
	ssize_t n = readlinkat(r->store_fd, "boot/current", out, cap - 1);

	if (n <= 0)
		return -ENOENT;
	out[n] = '\0';
	return cfs_name_check(out);
}

void trial_begin(struct registry *r)
{
	static const struct trial_ops ops = { on_spawn, on_kill, on_done };
	struct trial_outcome o = { .accel = r->cfg->accel == CONFIG_ACCEL_KVM ? ACCEL_KVM : ACCEL_TCG };
	struct engine_machine m = { .memory_mib = TRIAL_MEMORY_MIB, .vcpus = 1, .tsc_khz = r->tsc_khz };
	struct err e = { 0 };
	struct trial_run *t;
	char bootid[64];
	int k;

	if (r->trial != TRIAL_NONE)
		return;
	if (r->cfg->accel != CONFIG_ACCEL_AUTO) {
		snprintf(o.reason, sizeof(o.reason), "chosen by configuration (accel)");
		decided(r, &o);
		return;
	}
	if (current_bootid(r, bootid, sizeof(bootid)) < 0)
		return; /* nothing to boot yet: the first start asks again */
	t = calloc(1, sizeof(*t));
	if (!t)
		return;
	t->reg = r;
	trial_key_make(&r->engine, bootid, &t->key);
	if (recall(r, &t->key)) {
		free(t);
		return;
	}
	snprintf(t->kernel, sizeof(t->kernel), "/boot/%s/vmlinux", bootid);
	snprintf(t->initrd, sizeof(t->initrd), "/boot/%s/initramfs", bootid);
	m.kernel = t->kernel;
	m.initrd = t->initrd;
	k = registry_make_uuid(t->uuid);
	r->trial = TRIAL_PENDING;
	r->trial_run = t;
	if (!k)
		k = trial_new(r->loop, &engine_qemu, &r->engine, &m, TRIAL_TIMEOUT_MS, &ops, t, &t->trial, &e);
	if (k < 0) {
		snprintf(o.reason, sizeof(o.reason), "no trial boot could be made: %s", e.code ? e.msg : strerror(-k));
		run_free(t);
		decided(r, &o);
	}
}

void trial_end(struct registry *r)
{
	if (r->trial_run) {
		trial_free(r->trial_run->trial);
		free(r->trial_run->cmd);
		free(r->trial_run);
		r->trial_run = NULL;
	}
}
