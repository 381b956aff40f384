/* SPDX-License-Identifier: Apache-2.0 */
/* Making a machine: slot of uids -> engine -> box, each step waiting for the launcher's answer. The launcher works in
 * order, so what is still on its way when a machine is freed is killed by the KILL behind it; the answer then finds a
 * struct machine_making without a machine, and frees it. */
#include "cruciblefs/domain/snapshot_priv.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

/* Beyond the guest's memory, an engine needs: its own heap and stacks, and under TCG up to 128 MiB of translated code.
 */
#define ENGINE_OVERHEAD_MIB 384u
#define ENGINE_PIDS	    256u
#define BOX_MEMORY_MIB	    64u
#define BOX_PIDS	    16u
#define BOX_FDS		    (BOX_FD_MEMORY - BOX_FD_DAEMON + 1)

struct machine_making {
	struct machine *m; /* NULL: let go, only clean up */
	struct registry *reg;
	char bootid[80], disk[LAUNCH_UUID_LEN + 1];
	uint32_t cpu_percent;
	uint64_t io_bytes_per_s;
	bool has_slot;
	uint32_t slot;
	int engine_fds[1 + ENGINE_FD_COUNT]; /* [0]: stdout and stderr */
	int box_fds[1 + BOX_FDS];
	int daemon_fd; /* our end */
};

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fd_close(&fds[i]);
}

static void slot_give_back(struct registry *r, uint32_t slot)
{
	uint8_t raw[4];

	/* Our hold only: the box and the engine have their own. */
	launch_slot_encode(slot, raw);
	if (r->launcher)
		launcher_call(r->launcher, LAUNCH_SLOT_FREE, raw, sizeof(raw), NULL, 0, NULL, NULL);
}

static void making_free(struct machine_making *k)
{
	if (k->has_slot)
		slot_give_back(k->reg, k->slot);
	if (k->m)
		k->m->making = NULL;
	close_all(k->engine_fds, ARRAY_LEN(k->engine_fds));
	close_all(k->box_fds, ARRAY_LEN(k->box_fds));
	fd_close(&k->daemon_fd);
	free(k);
}

/* The making ends: with @code 0 the machine is IDLE. The machine may be gone on return. */
static void made(struct machine_making *k, int code, const char *step, const char *words)
{
	struct machine *m = k->m;
	char text[256];

	making_free(k);
	if (!m)
		return;
	snprintf(text, sizeof(text), "%s: %s", step, words);
	m->fn(m->arg, m, code, code < 0 ? text : "");
}

static void on_killed(void *arg, int code, const char *words, struct wire_rd *rd, struct msg *m)
{
	struct registry *r = arg;

	(void)rd;
	(void)m;
	if (code < 0)
		log_err("event=machine-not-killed error=\"%s\" next=the-next-start-tries-again", words);
	r->ndowns--;
	registry_check_shutdown(r);
}

void machine_kill(struct registry *r, const char *id)
{
	uint8_t raw[LAUNCH_UUID_BYTES];

	launch_uuid_encode(id, raw);
	if (!r->launcher)
		return;
	if (launcher_call(r->launcher, LAUNCH_KILL, raw, sizeof(raw), NULL, 0, on_killed, r) == 0)
		r->ndowns++; /* a shutdown waits for it */
	else		     /* no memory to wait for the answer with */
		launcher_call(r->launcher, LAUNCH_KILL, raw, sizeof(raw), NULL, 0, NULL, NULL);
}

uid_t machine_engine_uid(const struct machine *m)
{
	return m->reg->cfg->uid_base + 2 + 2 * m->slot;
}

static void add_unenforced(struct machine *m, struct wire_rd *r)
{
	char words[512], *sum;

	wire_u32(r); /* its pid */
	wire_str(r, words, sizeof(words));
	if (r->bad || !words[0])
		return;
	if (asprintf(&sum, "%s%s%s", m->unenforced ? m->unenforced : "", m->unenforced ? "," : "", words) < 0)
		return;
	free(m->unenforced);
	m->unenforced = sum;
}

static int spawn(struct machine_making *k, const struct launch_spawn *sp, const int *fds, size_t nfds, launcher_fn *fn)
{
	struct buf b;
	int r;

	buf_init(&b, MSG_MAX);
	r = launch_spawn_encode(sp, &b);
	if (!r)
		r = launcher_call(k->reg->launcher, LAUNCH_SPAWN, b.data, b.len, fds, nfds, fn, k);
	buf_fini(&b);
	return r;
}

static void on_box(void *arg, int code, const char *words, struct wire_rd *r, struct msg *msg)
{
	struct machine_making *k = arg;
	struct err e = { 0 };
	int c;

	(void)msg; /* the pidfd: the link's end tells as much */
	if (code < 0 || !k->m) {
		made(k, code, "starting its box", words);
		return;
	}
	add_unenforced(k->m, r);
	c = boxlink_new(k->reg, NULL, k->m, take_fd(&k->daemon_fd), &k->m->link, &e);
	made(k, c, "talking to its box", c < 0 ? e.msg : "");
}

static void on_engine(void *arg, int code, const char *words, struct wire_rd *r, struct msg *msg)
{
	struct machine_making *k = arg;
	struct launch_spawn sp = {
		.kind = LAUNCH_BOX,
		.slot = k->slot,
		.memory_bytes = (uint64_t)BOX_MEMORY_MIB << 20,
		.pids = BOX_PIDS,
		.nofile = 4096,
		.argc = 1,
		.argv = { "crucible-box", "generic" },
	};
	int c;

	if (code < 0 || !k->m || msg->nfds < 1) {
		made(k, code < 0 ? code : -EIO, "starting its engine", words);
		return;
	}
	add_unenforced(k->m, r);
	close_all(k->engine_fds, ARRAY_LEN(k->engine_fds)); /* the engine has its own */
	k->box_fds[1 + BOX_FD_ENGINE - BOX_FD_DAEMON] = take_fd(&msg->fds[0]);
	snprintf(sp.uuid, sizeof(sp.uuid), "%s", k->m->id);
	sp.argc += k->m->generic;
	c = spawn(k, &sp, k->box_fds, ARRAY_LEN(k->box_fds), on_box);
	if (c < 0)
		made(k, c, "asking the launcher for its box", strerror(-c));
	else
		close_all(k->box_fds, ARRAY_LEN(k->box_fds));
}

static int make_sockets(struct machine_making *k)
{
	int pair[2];
	/* Sockets between the engine and the box; the last one between the box and us. */
	static const struct {
		int type;
		int engine, box; /* places; engine -1: ours */
	} links[] = {
		{ SOCK_STREAM, 1 + ENGINE_FD_MONITOR, 1 + BOX_FD_MONITOR - BOX_FD_DAEMON },
		{ SOCK_STREAM, 1 + ENGINE_FD_CONTROL, 1 + BOX_FD_CONTROL - BOX_FD_DAEMON },
		{ SOCK_STREAM, 1 + ENGINE_FD_BULK, 1 + BOX_FD_BULK - BOX_FD_DAEMON },
		{ SOCK_SEQPACKET, 1 + ENGINE_FD_MEMORY, 1 + BOX_FD_MEMORY - BOX_FD_DAEMON },
		{ SOCK_SEQPACKET, -1, 1 },
	};

	for (size_t i = 0; i < ARRAY_LEN(links); i++) {
		if (socketpair(AF_UNIX, links[i].type | SOCK_CLOEXEC, 0, pair) < 0)
			return -errno;
		*(links[i].engine < 0 ? &k->daemon_fd : &k->engine_fds[links[i].engine]) = pair[0];
		k->box_fds[links[i].box] = pair[1];
	}
	/* The console, and whatever the engine itself has to say, go to the box, which keeps a bounded log. */
	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	k->box_fds[1 + BOX_FD_CONSOLE - BOX_FD_DAEMON] = pair[0];
	k->engine_fds[1 + ENGINE_FD_CONSOLE] = pair[1];
	k->engine_fds[0] = fcntl(pair[1], F_DUPFD_CLOEXEC, 3);
	if (k->engine_fds[0] < 0)
		return -errno;
	k->engine_fds[1 + ENGINE_FD_NET] = open("/dev/null", O_RDWR | O_CLOEXEC); /* keeps the tap's place */
	return k->engine_fds[1 + ENGINE_FD_NET] < 0 ? -errno : 0;
}

static int open_log(struct machine_making *k)
{
	char path[LAUNCH_UUID_LEN + 16];

	snprintf(path, sizeof(path), "%s/box.log", k->m->id);
	k->box_fds[0] = openat(k->reg->sandboxes_fd, path,
			       O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0640);
	return k->box_fds[0] < 0 ? -errno : 0;
}

static int spawn_engine(struct machine_making *k, struct err *e)
{
	struct machine *m = k->m;
	char kernel[160], initrd[160];
	struct engine_machine em = {
		.accel = m->accel,
		.memory_mib = m->memory_mib,
		.vcpus = m->vcpus,
		.tsc_khz = k->reg->tsc_khz,
		.kernel = m->generic ? NULL : kernel,
		.initrd = m->generic ? NULL : initrd,
		.disk = true,
		.disk_export = m->generic ? NULL : m->id,
		.net = k->reg->engine.caps & ENGINE_CAP_NET,
	};
	struct launch_spawn sp = {
		.kind = LAUNCH_ENGINE,
		.slot = k->slot,
		.kvm = m->accel == ACCEL_KVM,
		.memory_bytes = (uint64_t)(m->memory_mib + ENGINE_OVERHEAD_MIB) << 20,
		/* One CPU's worth a vCPU, and a quarter for the engine's own threads. */
		.cpu_percent = k->cpu_percent ? k->cpu_percent : m->vcpus * 100 + 25,
		.pids = ENGINE_PIDS,
		.io_bytes_per_s = k->io_bytes_per_s,
		.nofile = 1024,
		.ram_bytes = (uint64_t)m->memory_mib << 20,
		.memory_fd = 3 + ENGINE_FD_MEMORY,
		.net_fd = 3 + ENGINE_FD_NET,
	};
	struct engine_command *cmd = malloc(sizeof(*cmd));
	int r;

	if (!cmd)
		return err_set(e, -ENOMEM, "no memory");
	snprintf(kernel, sizeof(kernel), "/boot/%s/vmlinux", k->bootid);
	snprintf(initrd, sizeof(initrd), "/boot/%s/initramfs", k->bootid);
	snprintf(sp.uuid, sizeof(sp.uuid), "%s", m->id);
	r = engine_qemu.command(&em, cmd, e);
	if (!r && cmd->argc > ARRAY_LEN(sp.argv))
		r = err_set(e, -E2BIG, "the engine's command line has %zu words", cmd->argc);
	if (!r) {
		sp.argc = cmd->argc;
		memcpy(sp.argv, cmd->argv, cmd->argc * sizeof(cmd->argv[0]));
		r = spawn(k, &sp, k->engine_fds, ARRAY_LEN(k->engine_fds), on_engine);
		if (r < 0)
			err_set(e, r, "asking the launcher for its engine: %s", strerror(-r));
		else
			m->spawned = true;
	}
	free(cmd);
	return r;
}

static void prepare(struct machine_making *k)
{
	struct err e = { 0 };
	int c = make_sockets(k);

	if (!c)
		c = open_log(k);
	if (c < 0)
		err_set(&e, c, "descriptors: %s", strerror(-c));
	else
		c = spawn_engine(k, &e);
	if (c < 0)
		made(k, c, "preparing it", e.msg);
}

static void on_export(void *arg, int code, const char *words, struct wire_rd *r, struct msg *msg)
{
	struct machine_making *k = arg;

	(void)r;
	(void)msg;
	if (k->m)
		k->m->exported = code == 0;
	if (code < 0 || !k->m)
		made(k, code, "offering it its disk", words);
	else
		prepare(k);
}

/* An engine that boots connects to its disk at once. */
static void offer_disk(struct machine_making *k)
{
	struct ask a;
	int c;

	ask_init(&a);
	ask_str(&a, k->m->id);
	ask_str(&a, k->disk);
	ask_u32(&a, machine_engine_uid(k->m));
	c = ask_pager(k->reg, PAGER_DISK_EXPORT, &a, on_export, k);
	k->m->exported = c == 0; /* the pager works in order: what comes behind it takes it back */
	if (c < 0)
		made(k, c, "offering it its disk", strerror(-c));
}

static void on_slot(void *arg, int code, const char *words, struct wire_rd *r, struct msg *msg)
{
	struct machine_making *k = arg;

	(void)msg;
	if (code == 0) {
		k->slot = wire_u32(r);
		k->has_slot = !r->bad;
	}
	if (code < 0 || !k->m || !k->has_slot) {
		made(k, code < 0 ? code : -EBADMSG, "a slot of user ids", words);
		return;
	}
	k->m->slot = k->slot;
	if (k->m->generic)
		prepare(k);
	else
		offer_disk(k);
}

/* -- its directory ---------------------------------------------------------------------------------------------------
 */

/* The box sees only box/ and may write there (group: the service gid; setgid hands it on to what it makes): a box that
 * was taken over must not be able to say whose sandbox this is. */
int machine_make_dir(struct registry *r, const char *id)
{
	AUTO_FD dir = -1;

	if (mkdirat(r->sandboxes_fd, id, 0700) < 0)
		return -errno;
	dir = openat(r->sandboxes_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || mkdirat(dir, "tmp", 0700) < 0 || mkdirat(dir, "box", 0770) < 0 ||
	    fchmodat(dir, "box", 02770, 0) < 0 || mkdirat(dir, "box/exec", 0770) < 0)
		return -errno;
	return 0;
}

int machine_new(struct registry *r, const struct machine_plan *p,
		void (*fn)(void *arg, struct machine *m, int code, const char *words), void *arg, struct machine **ret,
		struct err *e)
{
	struct machine *m = calloc(1, sizeof(*m));
	struct machine_making *k = calloc(1, sizeof(*k));
	int c;

	if (!m || !k || !r->launcher) {
		free(m);
		free(k);
		return r->launcher ? err_set(e, -ENOMEM, "no memory")
				   : err_set(e, -EIO, "the launcher is gone; restart the daemon");
	}
	*m = (struct machine){ .reg = r,
			       .generic = p->generic,
			       .accel = p->accel,
			       .memory_mib = p->memory_mib,
			       .vcpus = p->vcpus,
			       .plain = !p->cpu_percent && !p->io_bytes_per_s,
			       .fn = fn,
			       .arg = arg,
			       .making = k };
	k->m = m;
	k->reg = r;
	k->daemon_fd = -1;
	k->cpu_percent = p->cpu_percent;
	k->io_bytes_per_s = p->io_bytes_per_s;
	snprintf(k->bootid, sizeof(k->bootid), "%s", p->bootid ? p->bootid : "");
	snprintf(k->disk, sizeof(k->disk), "%s", p->disk ? p->disk : "");
	for (size_t i = 0; i < ARRAY_LEN(k->engine_fds); i++)
		k->engine_fds[i] = -1;
	for (size_t i = 0; i < ARRAY_LEN(k->box_fds); i++)
		k->box_fds[i] = -1;
	c = registry_make_uuid(m->id);
	if (!c)
		c = machine_make_dir(r, m->id);
	if (!c)
		c = launcher_call(r->launcher, LAUNCH_SLOT_ALLOC, NULL, 0, NULL, 0, on_slot, k);
	if (c < 0) {
		err_set(e, c, "asking for a machine: %s", strerror(-c));
		making_free(k);
		machine_free(m);
		return c;
	}
	*ret = m;
	return 0;
}

struct machine *machine_free(struct machine *m)
{
	if (!m)
		return NULL;
	if (m->making)
		m->making->m = NULL; /* the answer that is on its way finds nobody, and frees it */
	m->link = boxlink_free(m->link);
	if (m->spawned)
		machine_kill(m->reg, m->id);
	if (m->exported)
		pager_let_go(m->reg, m->id, GO_EXPORT);
	registry_remove_dir(m->reg, m->id);
	free(m->unenforced);
	free(m);
	return NULL;
}

/* -- giving it away --------------------------------------------------------------------------------------------------
 */

/* The machine's box/ becomes the sandbox's: a bind mount in the box follows the directory. Commands that were accepted
 * before move along. persist.c finishes what a crash left half done: s->machine was written first. */
static int exchange_dirs(struct machine *m, struct sandbox *s)
{
	AUTO_FD dir = openat(m->reg->sandboxes_fd, m->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_FD box = -1;

	if (dir < 0)
		return -errno;
	if (renameat2(dir, "box", s->dirfd, "box", RENAME_EXCHANGE) < 0)
		return -errno;
	box = openat(s->dirfd, "box", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (box < 0 || renameat(dir, "box/exec", s->dirfd, "box/exec") < 0) {
		int c = -errno;

		/* The machine goes with its directory: the sandbox's commands must not be in it. */
		renameat2(dir, "box", s->dirfd, "box", RENAME_EXCHANGE);
		return c;
	}
	fd_close(&s->boxfd);
	s->boxfd = take_fd(&box);
	return 0;
}

int machine_give(struct machine *m, struct sandbox *s, struct err *e)
{
	int c;

	snprintf(s->machine, sizeof(s->machine), "%s", m->id);
	s->started_ns = wall_ns();
	s->slot = m->slot;
	s->box_uid = m->reg->cfg->uid_base + 1 + 2 * m->slot;
	c = sandbox_save(s, e);
	if (!c && (c = exchange_dirs(m, s)) < 0)
		err_set(e, c, "sandbox %s: taking a machine's directory: %s", s->name, strerror(-c));
	if (c < 0) {
		s->machine[0] = '\0';
		s->box_uid = 0;
		return c;
	}
	s->spawned = true;
	s->accel = m->accel;
	free(s->unenforced);
	s->unenforced = m->unenforced;
	m->unenforced = NULL;
	boxlink_give(m->link, s);
	m->link = NULL;
	m->spawned = m->exported = false;
	machine_free(m);
	return 0;
}
