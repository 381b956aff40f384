/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes, engines, the pager, the store and netd: started confined, and missed when they end. */
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/proc.h"
#include "cruciblefs/launch/launch_priv.h"
#include "netpolicy/topology.h"

#define NICE_ANY   (-20)
#define NOFILE_MIN 32 /* below that not even the dynamic linker starts */

static const struct {
	const char *name;    /* of its cgroup, and in words */
	const char *oom_adj; /* the kernel's OOM killer meets the engine first, never the daemon or the pager */
	const char *only;    /* the one uuid that it has; NULL: one each sandbox */
	bool no_huge_pages;
	bool rings;		/* io_uring */
	bool host_net;		/* the one that reaches the network */
	int nice;		/* at least */
	uint64_t memlock_bytes; /* 0: as we have it */
} kinds[] = {
	[LAUNCH_BOX] = { .name = "box", .oom_adj = "100", .nice = NICE_ANY },
	[LAUNCH_ENGINE] = { .name = "engine", .oom_adj = "500", .no_huge_pages = true, .nice = NICE_ANY },
	[LAUNCH_PAGER] = { .name = "pager",
			   .oom_adj = "-500",
			   .only = LAUNCH_UUID_PAGER,
			   .rings = true,
			   .nice = NICE_ANY,
			   .memlock_bytes = 16u << 20 },
	[LAUNCH_STORE] = { .name = "store", .oom_adj = "200", .only = LAUNCH_UUID_STORE, .rings = true, .nice = 10 },
	[LAUNCH_NETD] = { .name = "netd",
			  .oom_adj = "-400",
			  .only = LAUNCH_UUID_NETD,
			  .host_net = true,
			  .nice = NICE_ANY },
};
_Static_assert(ARRAY_LEN(kinds) == LAUNCH_KIND_COUNT, "a row for each kind");

struct child {
	struct child *next;
	pid_t pid;
	enum launch_kind kind;
	char uuid[LAUNCH_UUID_LEN + 1];
};

/* -- in the child -------------------------------------------------------------------------------- */

struct confinement {
	const struct launch_spawn *req;
	struct root_plan root;
	const struct cgroup_entry *cgroup;
	bool oom_below_zero;
	int *tap; /* where to put its tap; NULL: nowhere */
};

/* Should: mark who dies first when the host runs out of memory. Mustn't: run after /proc is gone. */
static int set_oom_adj(const char *adj, struct err *e)
{
	AUTO_FD fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : fd_write_all(fd, adj, strlen(adj));

	return r < 0 ? err_set(e, r, "oom_score_adj: %s", strerror(-r)) : 0;
}

/* As much as we may give: where our own hard limit is lower and cannot be raised, that. */
static int set_memlock(uint64_t bytes, struct err *e)
{
	struct rlimit rl;

	if (confine_rlimit(RLIMIT_MEMLOCK, "memlock", bytes, NULL) == 0)
		return 0;
	if (getrlimit(RLIMIT_MEMLOCK, &rl) < 0)
		return err_set(e, -errno, "limit memlock: %s", strerror(errno));
	return confine_rlimit(RLIMIT_MEMLOCK, "memlock", rl.rlim_max, e);
}

static int set_limits(const struct launch_spawn *req, struct err *e)
{
	int r = confine_rlimit(RLIMIT_CORE, "core", 0, e);

	if (r == 0)
		r = confine_rlimit(RLIMIT_NOFILE, "nofile", req->nofile, e);
	if (r == 0 && kinds[req->kind].no_huge_pages && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0)
		r = err_set(e, -errno, "switch huge pages off: %s", strerror(errno));
	if (r == 0 && kinds[req->kind].memlock_bytes)
		r = set_memlock(kinds[req->kind].memlock_bytes, e);
	/* Only down: going up is not ours to do, when we were started lower still. */
	if (r == 0 && getpriority(PRIO_PROCESS, 0) < kinds[req->kind].nice &&
	    setpriority(PRIO_PROCESS, 0, kinds[req->kind].nice) < 0)
		r = err_set(e, -errno, "priority: %s", strerror(errno));
	return r;
}

/* Should: take away what of the list is ours alone, and the rings from whoever has no use for them, since they carry
 * calls past every filter; and from all the sockets that no network namespace holds. */
static int drop_calls(bool rings, struct err *e)
{
	static const char *const calls[] = { "setns",	       "setfsuid",	 "setfsgid",
					     "io_uring_setup", "io_uring_enter", "io_uring_register" };

	int r = confine_seccomp_without(calls, rings ? 3 : ARRAY_LEN(calls), e);

	return r < 0 ? r : confine_seccomp_families(e);
}

/* Should: make the tap in the namespace that the child was born in. Mustn't: run where that is the host's. */
static int make_tap(int *ret, struct err *e)
{
	int fd = topology_tap(e);

	if (fd < 0)
		return fd;
	*ret = fd; /* what stood there is the parent's, and closed by the exec */
	return 0;
}

/* In this order: what needs the host's /proc, /dev and cgroupfs; the new root; the host's name; limits; and last, since
 * it is what allows all before, the privileges. */
static int confine(void *arg, struct err *e)
{
	const struct confinement *c = arg;
	static const char host[] = "crucible";
	const char *adj = kinds[c->req->kind].oom_adj;
	int r;

	r = cgroup_entry_join(c->cgroup, e);
	if (r == 0 && (adj[0] != '-' || c->oom_below_zero))
		r = set_oom_adj(adj, e);
	if (r == 0 && c->tap)
		r = make_tap(c->tap, e);
	if (r == 0)
		r = root_enter(&c->root, e);
	if (r == 0 && sethostname(host, strlen(host)) < 0)
		r = err_set(e, -errno, "hostname: %s", strerror(errno));
	if (r == 0)
		r = set_limits(c->req, e);
	if (r == 0)
		r = confine_drop(c->root.uid, c->root.gid, 0, e);
	if (r == 0)
		r = drop_calls(kinds[c->req->kind].rings, e);
	return r;
}

/* -- the request --------------------------------------------------------------------------------- */

/* The program's descriptor: pinned at our start, or opened now when it was not there then. */
static int program(struct launchd *d, enum launch_kind kind, struct err *e)
{
	if (!d->cfg.prog[kind])
		return err_set(e, -ENOENT, "%s: no such program is configured", kinds[kind].name);
	if (d->prog_fd[kind] < 0)
		d->prog_fd[kind] = open(d->cfg.prog[kind], O_PATH | O_CLOEXEC);
	if (d->prog_fd[kind] < 0)
		return err_set(e, -errno, "%s %s: %s", kinds[kind].name, d->cfg.prog[kind], strerror(errno));
	return d->prog_fd[kind];
}

/* The preload library is an engine's, and its socket one of the descriptors that came along. */
static int check_preload(const struct launchd *d, const struct launch_spawn *req, const struct msg *m, struct err *e)
{
	if (!req->ram_bytes)
		return req->memory_fd ? err_set(e, -EINVAL, "spawn: memory_fd without ram_bytes") : 0;
	if (req->kind != LAUNCH_ENGINE)
		return err_set(e, -EINVAL, "spawn: ram_bytes are an engine's");
	if (req->memory_fd < 3 || req->memory_fd - 3 >= m->nfds - 1)
		return err_set(e, -EINVAL, "spawn: memory_fd %u is none of its descriptors", req->memory_fd);
	if (!d->cfg.preload)
		return err_set(e, -ENOENT, "spawn: no preload library is configured");
	return 0;
}

static int check_net(const struct launch_spawn *req, const struct msg *m, struct err *e)
{
	if (!req->net_fd)
		return 0;
	if (req->kind != LAUNCH_ENGINE)
		return err_set(e, -EINVAL, "spawn: net_fd is an engine's");
	if (req->net_fd < 3 || req->net_fd - 3 >= m->nfds - 1)
		return err_set(e, -EINVAL, "spawn: net_fd %u is none of its descriptors", req->net_fd);
	if (req->net_fd == req->memory_fd)
		return err_set(e, -EINVAL, "spawn: net_fd %u is its memory_fd", req->net_fd);
	return 0;
}

static int check(const struct launchd *d, const struct launch_spawn *req, const struct msg *m, struct err *e)
{
	const char *only = kinds[req->kind].only;
	int r;

	if (m->nfds < 1)
		return err_set(e, -EBADMSG, "spawn: no descriptor for its output");
	if (only ? strcmp(req->uuid, only) != 0 : launch_uuid_is_ours(req->uuid))
		return err_set(e, -EINVAL, "spawn: %s is no uuid of a %s", req->uuid, kinds[req->kind].name);
	if (!only && slots_fd(&d->slots, req->slot) < 0)
		return err_set(e, -EINVAL, "spawn: slot %u is not allocated", req->slot);
	r = check_preload(d, req, m, e);
	if (r == 0)
		r = check_net(req, m, e);
	if (r < 0)
		return r;
	if (req->nofile < NOFILE_MIN)
		return err_set(e, -EINVAL, "spawn: nofile must be at least %d", NOFILE_MIN);
	for (const struct child *c = d->children; c; c = c->next)
		if (c->kind == (enum launch_kind)req->kind && !strcmp(c->uuid, req->uuid))
			return err_set(e, -EEXIST, "spawn: the %s of %s runs already", kinds[req->kind].name,
				       req->uuid);
	return 0;
}

static uid_t uid_of(const struct launchd *d, const struct launch_spawn *req)
{
	switch ((enum launch_kind)req->kind) {
	case LAUNCH_PAGER:
		return d->cfg.uid_base + LAUNCH_UID_PAGER;
	case LAUNCH_STORE:
		return d->cfg.uid_base + LAUNCH_UID_STORE;
	case LAUNCH_NETD:
		return d->cfg.uid_base + LAUNCH_UID_NETD;
	case LAUNCH_ENGINE:
		return d->cfg.uid_base + 2 + 2 * req->slot;
	default:
		return d->cfg.uid_base + 1 + 2 * req->slot;
	}
}

/* -- what it goes without ------------------------------------------------------------------------- */

static int add_word(struct buf *words, const char *word)
{
	int r = words->len ? buf_adds(words, ",") : 0;

	return r < 0 ? r : buf_adds(words, word);
}

/* Looked for each time: a module may come, and go. Opening it is what a host without the module refuses. */
static bool have_tun(void)
{
	AUTO_FD fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	return fd >= 0;
}

/* What it should have besides the limits of its cgroup, and this machine does not permit. */
static int add_unenforced(const struct launchd *d, const struct launch_spawn *req, bool tap, struct buf *unenforced)
{
	int r = 0;

	if (req->net_fd && !tap)
		r = add_word(unenforced, "network");
	if (r < 0)
		return r;
	if (req->ram_bytes && d->uffd_dev < 0)
		r = add_word(unenforced, "userfaultfd");
	if (r == 0 && kinds[req->kind].oom_adj[0] == '-' && !d->oom_below_zero)
		r = add_word(unenforced, "oom_score_adj");
	return r;
}

/* Make its cgroup, start it in it. On an error nothing of it is left. */
static int start(struct launchd *d, const struct launch_spawn *req, const struct msg *m, pid_t *ret_pid, int *ret_pidfd,
		 struct buf *unenforced, struct err *e)
{
	const struct cgroup_limits limits = {
		.memory_bytes = req->memory_bytes,
		.cpu_percent = req->cpu_percent,
		.pids = req->pids,
		.io_bytes_per_s = req->io_bytes_per_s,
		.io_dev = d->store_dev,
	};
	struct cgroup_entry entry = { .born_fd = -1 };
	bool tap = req->net_fd && have_tun();
	struct given given = { 0 };
	struct confinement conf = {
		.req = req,
		.root = { .kind = req->kind,
			  .store = d->cfg.store,
			  .uuid = req->uuid,
			  .uid = uid_of(d, req),
			  .gid = req->kind == LAUNCH_ENGINE ? uid_of(d, req) : d->cfg.uid_base,
			  .kvm = req->kvm,
			  .preload = req->ram_bytes ? d->cfg.preload : NULL },
		.cgroup = &entry,
		.oom_below_zero = d->oom_below_zero,
		.tap = tap ? &given.fds[req->net_fd - 3] : NULL,
	};
	struct proc_spec spec = PROC_SPEC_INIT;
	char cgroup[LAUNCH_UUID_LEN + 16], *argv[LAUNCH_ARGS_MAX + 1];
	int r;

	spec.exec_fd = program(d, req->kind, e);
	if (spec.exec_fd < 0)
		return spec.exec_fd;
	snprintf(cgroup, sizeof(cgroup), "%s/%s", req->uuid, kinds[req->kind].name);
	for (size_t i = 0; i < req->argc; i++)
		argv[i] = (char *)req->argv[i];
	argv[req->argc] = NULL;
	spec.name = kinds[req->kind].name;
	spec.path = d->cfg.prog[req->kind];
	spec.argv = argv;
	spec.envp = given.envp;
	spec.clone_flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
	if (!kinds[req->kind].host_net)
		spec.clone_flags |= CLONE_NEWNET;
	spec.new_session = true;
	spec.stdio[1] = spec.stdio[2] = m->fds[0];
	spec.setup = confine;
	spec.arg = &conf;

	r = cgroup_make(d->cgroups, cgroup, e);
	if (r < 0)
		return r;
	r = given_make(&given, d, req, m);
	spec.fds = given.fds;
	spec.nfds = given.nfds;
	if (r == 0)
		r = cgroup_limit(d->cgroups, cgroup, &limits, unenforced);
	if (r == 0)
		r = add_unenforced(d, req, tap, unenforced);
	if (r < 0)
		err_set(e, r, "spawn: %s", strerror(-r));
	if (r == 0)
		r = cgroup_entry_open(d->cgroups, cgroup, &entry, e);
	if (r == 0) {
		spec.cgroup_fd = entry.born_fd;
		r = proc_spawn(&spec, ret_pid, ret_pidfd, e);
		cgroup_entry_close(&entry);
	}
	if (r < 0) /* with the sandbox's own, when it was only for this; else that is busy and stays */
		cgroup_remove(d->cgroups, cgroup, NULL) == 0 ? cgroup_remove(d->cgroups, req->uuid, NULL) : 0;
	given_fini(&given);
	return r;
}

int on_spawn(struct launchd *d, struct msg *m, struct wire_rd *rd, struct answer *a, struct err *e)
{
	static char store[LAUNCH_ARGS_BYTES_MAX];
	static struct launch_spawn req; /* a kilobyte of pointers: not on the stack */
	struct child *child;
	struct buf unenforced;
	pid_t pid = 0;
	int r;

	r = launch_spawn_decode(m->data, m->len, &req, store, sizeof(store));
	(void)wire_raw(rd, wire_left(rd)); /* read by the line above */
	if (r < 0)
		return err_set(e, r, "spawn: malformed");
	r = check(d, &req, m, e);
	if (r < 0)
		return r;
	child = calloc(1, sizeof(*child));
	if (!child)
		return err_set(e, -ENOMEM, "spawn: no memory");
	buf_init(&unenforced, 256);
	r = start(d, &req, m, &pid, &a->fds[0], &unenforced, e);
	if (r < 0) {
		free(child);
		goto out;
	}
	a->nfds = 1;
	*child = (struct child){ .next = d->children, .pid = pid, .kind = req.kind };
	memcpy(child->uuid, req.uuid, sizeof(child->uuid));
	d->children = child;
	log_info("sandbox=%s event=started what=%s pid=%d slot=%u", req.uuid, kinds[req.kind].name, (int)pid, req.slot);
	r = wire_put_u32(&a->payload, (uint32_t)pid);
	if (r == 0)
		r = wire_put_bytes(&a->payload, unenforced.data, unenforced.len);
out:
	buf_fini(&unenforced);
	return r;
}

/* -- when they end ------------------------------------------------------------------------------- */

static void tell_exit(struct launchd *d, const struct child *c, int status)
{
	struct buf b;

	log_info("sandbox=%s event=ended what=%s pid=%d status=%d", c->uuid, kinds[c->kind].name, (int)c->pid, status);
	buf_init(&b, 128);
	if (wire_put_str(&b, c->uuid) == 0 && wire_put_u8(&b, (uint8_t)c->kind) == 0 &&
	    wire_put_u32(&b, (uint32_t)status) == 0)
		if (msgconn_send(d->conn, LAUNCH_EXIT_EVENT, 0, b.data, b.len, NULL, 0) < 0)
			log_warn("sandbox=%s event=exit_not_told next=\"the daemon learns it from its socket\"",
				 c->uuid);
	buf_fini(&b);
}

void children_reap(struct launchd *d)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		struct child **at = &d->children, *c;

		while (*at && (*at)->pid != pid)
			at = &(*at)->next;
		c = *at;
		if (!c)
			continue; /* a probe of mount.c that came back late, or one of net.c, whose socket says all */
		*at = c->next;
		tell_exit(d, c, status);
		free(c);
	}
}

bool children_has(const struct launchd *d, const char *uuid)
{
	for (const struct child *c = d->children; c; c = c->next)
		if (!strcmp(c->uuid, uuid))
			return true;
	return false;
}

void children_free(struct launchd *d)
{
	while (d->children) {
		struct child *c = d->children;

		d->children = c->next;
		free(c);
	}
}
