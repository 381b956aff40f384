/* SPDX-License-Identifier: Apache-2.0 */
/* Box and engine: started confined, and missed when they end. */
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

#define NOFILE_MIN 32 /* below that not even the dynamic linker starts */

static const struct {
	const char *name;    /* of its cgroup, and in words */
	const char *oom_adj; /* the kernel's OOM killer meets the engine first, never the daemon */
	bool no_huge_pages;
} kinds[] = {
	[LAUNCH_BOX] = { "box", "100", false },
	[LAUNCH_ENGINE] = { "engine", "500", true },
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
};

/* Should: mark who dies first when the host runs out of memory. Mustn't: run after /proc is gone. */
static int set_oom_adj(const char *adj, struct err *e)
{
	AUTO_FD fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	int r = fd < 0 ? -errno : fd_write_all(fd, adj, strlen(adj));

	return r < 0 ? err_set(e, r, "oom_score_adj: %s", strerror(-r)) : 0;
}

static int set_limits(const struct launch_spawn *req, struct err *e)
{
	int r = confine_rlimit(RLIMIT_CORE, "core", 0, e);

	if (r == 0)
		r = confine_rlimit(RLIMIT_NOFILE, "nofile", req->nofile, e);
	if (r == 0 && kinds[req->kind].no_huge_pages && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0)
		r = err_set(e, -errno, "switch huge pages off: %s", strerror(errno));
	return r;
}

/* In this order: what needs the host's /proc and cgroupfs; the new root; the host's name; limits; and last, since it
 * is what allows all before, the privileges. */
static int confine(void *arg, struct err *e)
{
	const struct confinement *c = arg;
	static const char host[] = "crucible";
	int r;

	r = cgroup_entry_join(c->cgroup, e);
	if (r == 0)
		r = set_oom_adj(kinds[c->req->kind].oom_adj, e);
	if (r == 0)
		r = root_enter(&c->root, e);
	if (r == 0 && sethostname(host, strlen(host)) < 0)
		r = err_set(e, -errno, "hostname: %s", strerror(errno));
	if (r == 0)
		r = set_limits(c->req, e);
	if (r == 0)
		r = confine_drop(c->root.uid, c->root.gid, 0, e);
	return r;
}

/* -- the request --------------------------------------------------------------------------------- */

/* The program's descriptor: pinned at our start, or opened now when it was not there then. */
static int program(struct launchd *d, enum launch_kind kind, struct err *e)
{
	if (d->prog_fd[kind] < 0)
		d->prog_fd[kind] = open(d->cfg.prog[kind], O_PATH | O_CLOEXEC);
	if (d->prog_fd[kind] < 0)
		return err_set(e, -errno, "%s %s: %s", kinds[kind].name, d->cfg.prog[kind], strerror(errno));
	return d->prog_fd[kind];
}

static int check(const struct launchd *d, const struct launch_spawn *req, const struct msg *m, struct err *e)
{
	if (m->nfds < 1)
		return err_set(e, -EBADMSG, "spawn: no descriptor for its output");
	if (slots_fd(&d->slots, req->slot) < 0)
		return err_set(e, -EINVAL, "spawn: slot %u is not allocated", req->slot);
	if (req->nofile < NOFILE_MIN)
		return err_set(e, -EINVAL, "spawn: nofile must be at least %d", NOFILE_MIN);
	for (const struct child *c = d->children; c; c = c->next)
		if (c->kind == (enum launch_kind)req->kind && !strcmp(c->uuid, req->uuid))
			return err_set(e, -EEXIST, "spawn: the %s of %s runs already", kinds[req->kind].name,
				       req->uuid);
	return 0;
}

/* Make its cgroup, start it in it. On an error nothing of it is left. */
static int start(struct launchd *d, const struct launch_spawn *req, const struct msg *m, pid_t *ret_pid, int *ret_pidfd,
		 struct buf *unenforced, struct err *e)
{
	uid_t uid = d->cfg.uid_base + 1 + 2 * req->slot + (req->kind == LAUNCH_ENGINE);
	gid_t gid = req->kind == LAUNCH_ENGINE ? uid : d->cfg.uid_base;
	const struct cgroup_limits limits = {
		.memory_bytes = req->memory_bytes,
		.cpu_percent = req->cpu_percent,
		.pids = req->pids,
		.io_bytes_per_s = req->io_bytes_per_s,
		.io_dev = d->store_dev,
	};
	struct cgroup_entry entry = { .born_fd = -1 };
	struct confinement conf = {
		.req = req,
		.root = { .kind = req->kind,
			  .store = d->cfg.store,
			  .uuid = req->uuid,
			  .uid = uid,
			  .gid = gid,
			  .kvm = req->kvm },
		.cgroup = &entry,
	};
	struct proc_spec spec = PROC_SPEC_INIT;
	char cgroup[LAUNCH_UUID_LEN + 16], *argv[LAUNCH_ARGS_MAX + 1], *envp[2] = { NULL, NULL };
	AUTO_FREE char *preload = NULL;
	int fds[MSG_FDS_MAX + 1], r;

	spec.exec_fd = program(d, req->kind, e);
	if (spec.exec_fd < 0)
		return spec.exec_fd;
	snprintf(cgroup, sizeof(cgroup), "%s/%s", req->uuid, kinds[req->kind].name);
	for (size_t i = 0; i < req->argc; i++)
		argv[i] = (char *)req->argv[i];
	argv[req->argc] = NULL;
	/* Its descriptors behind the one for its output, then the slot's lock. */
	memcpy(fds, m->fds + 1, (m->nfds - 1) * sizeof(int));
	fds[m->nfds - 1] = slots_fd(&d->slots, req->slot);
#ifdef __SANITIZE_ADDRESS__
	if (getenv("LD_PRELOAD") && asprintf(&preload, "LD_PRELOAD=%s", getenv("LD_PRELOAD")) > 0)
		envp[0] = preload;
#endif
	spec.name = kinds[req->kind].name;
	spec.path = d->cfg.prog[req->kind];
	spec.argv = argv;
	spec.envp = envp;
	spec.clone_flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	spec.new_session = true;
	spec.stdio[1] = spec.stdio[2] = m->fds[0];
	spec.fds = fds;
	spec.nfds = m->nfds;
	spec.setup = confine;
	spec.arg = &conf;

	r = cgroup_make(d->cgroups, cgroup, e);
	if (r < 0)
		return r;
	r = cgroup_limit(d->cgroups, cgroup, &limits, unenforced);
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
	r = start(d, &req, m, &pid, &a->fd, &unenforced, e);
	if (r < 0) {
		free(child);
		goto out;
	}
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
			continue; /* a probe of mount.c that came back late */
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
