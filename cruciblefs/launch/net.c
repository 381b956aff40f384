/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * What needs to be done in an engine's network namespace (netpolicy/topology.h) is done by a child of ours, forked for
 * it: it finds the engine, enters its namespace, gives up all but two capabilities, makes the sockets, sends them back
 * over a socket and ends. We never leave the host's namespace, and wait for nobody: few children work at once, the
 * others' turn comes in order, and one that takes NET_TIMEOUT_NS is killed.
 *
 * The engine is found by its cgroup, since whoever started it may have been another launcher. A pid may be another
 * process's a moment later; so its folder in /proc is opened first, which stays that process's, and the cgroup is asked
 * again afterwards. The kernel shows a process's namespaces to those of the same uid and gid; we take on the engine's
 * for the one open (of file system matters only, which is what it looks at), instead of the right to look into all.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/launch/launch_priv.h"
#include "netpolicy/topology.h"

#define NET_TIMEOUT_NS	5000000000u
#define NET_RUNNING_MAX 4
#define PIDS_MAX	64 /* an engine is one process */

struct net_job {
	struct net_job *next; /* in the order in which they came */
	struct launchd *d;
	uint32_t id; /* of the request */
	char uuid[LAUNCH_UUID_LEN + 1];
	uint32_t sockets; /* how many; 0: topology_up() */
	uint64_t begun_ns;
	int pidfd, fd; /* of its child; -1: its turn has not come */
	loop_id io, timer;
};

/* -- in the child -------------------------------------------------------------------------------- */

static bool lives_in(struct launchd *d, const char *cgroup, pid_t pid, pid_t *pids, size_t *n)
{
	if (cgroup_pids(d->cgroups, cgroup, pids, PIDS_MAX, n) < 0)
		*n = 0;
	for (size_t i = 0; i < *n; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/* One of the slots' engines, as spawn.c gives them out. */
static bool is_engine(const struct launchd *d, const struct stat *st)
{
	uint32_t beyond = st->st_uid - d->cfg.uid_base;

	return st->st_uid == st->st_gid && beyond >= 2 && beyond % 2 == 0 && beyond <= 2 * LAUNCH_SLOTS_MAX;
}

static int open_ns(const struct launchd *d, int proc, const struct stat *st, struct err *e)
{
	int fd, saved;

	if (!is_engine(d, st))
		return err_set(e, -ENOENT, "its engine is only just starting");
	setfsgid(st->st_gid);
	setfsuid(st->st_uid);
	fd = openat(proc, "ns/net", O_RDONLY | O_CLOEXEC);
	saved = errno;
	setfsuid(0);
	setfsgid(0);
	return fd < 0 ? err_set(e, -saved, "its engine's network namespace: %s", strerror(saved)) : fd;
}

static int find_ns(struct launchd *d, const char *uuid, struct err *e)
{
	char cgroup[LAUNCH_UUID_LEN + 16], path[32];
	pid_t pids[PIDS_MAX], pid;
	AUTO_FD proc = -1;
	AUTO_FD ns = -1;
	struct stat st;
	size_t n;
	int r;

	snprintf(cgroup, sizeof(cgroup), "%s/engine", uuid);
	r = cgroup_pids(d->cgroups, cgroup, pids, PIDS_MAX, &n);
	if (r == -ENOENT || (r == 0 && n == 0))
		return err_set(e, -ENOENT, "no engine runs");
	if (r < 0)
		return err_set(e, r, "its engine's cgroup: %s", strerror(-r));
	pid = pids[0];
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (proc < 0 || fstat(proc, &st) < 0)
		return err_set(e, -ENOENT, "its engine has just ended");
	ns = open_ns(d, proc, &st, e);
	if (ns >= 0 && !lives_in(d, cgroup, pid, pids, &n))
		return err_set(e, -ENOENT, "its engine has just ended");
	return ns < 0 ? ns : take_fd(&ns);
}

/* Should: leave the host's network for good. Mustn't: keep a descriptor or a privilege that leads back. @fd is 3 then.
 */
static int enter(int *fd, int ns, struct err *e)
{
	const uint64_t caps = CONFINE_CAP(CAP_NET_ADMIN) | CONFINE_CAP(CAP_NET_BIND_SERVICE);

	if (setns(ns, CLONE_NEWNET) < 0)
		return err_set(e, -errno, "enter its engine's network namespace: %s", strerror(errno));
	if (*fd != 3 && dup2(*fd, 3) < 0)
		return err_set(e, -errno, "dup2: %s", strerror(errno));
	*fd = 3;
	if (close_range(4, ~0u, 0) < 0)
		return err_set(e, -errno, "close_range: %s", strerror(errno));
	return confine_drop(0, 0, caps, e);
}

static int work(struct launchd *d, const struct net_job *j, int *sock, int fds[MSG_FDS_MAX], size_t *nfds,
		uint8_t *mask, struct err *e)
{
	int up[TOPOLOGY_FD_COUNT], ns = find_ns(d, j->uuid, e), r;

	if (ns < 0)
		return ns;
	r = enter(sock, ns, e);
	if (r == 0 && j->sockets) {
		*nfds = j->sockets;
		return topology_sockets(fds, j->sockets, e);
	}
	if (r == 0)
		r = topology_up(up, e);
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(up); i++)
		if (up[i] >= 0) {
			fds[(*nfds)++] = up[i];
			*mask |= (uint8_t)(1u << i);
		}
	return r;
}

/* What it sends is what the daemon is answered with: {i32 code, str words, u8 mask}. */
static __attribute__((noreturn)) void child(struct launchd *d, const struct net_job *j, int sock)
{
	int fds[MSG_FDS_MAX], r;
	struct err e = { 0 };
	uint8_t mask = 0;
	size_t nfds = 0;
	struct buf b;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	r = work(d, j, &sock, fds, &nfds, &mask, &e);
	buf_init(&b, 1024);
	if (wire_put_u32(&b, (uint32_t)r) == 0 && wire_put_str(&b, r < 0 ? e.msg : "") == 0 &&
	    wire_put_u8(&b, mask) == 0)
		msg_send(sock, LAUNCH_REPLY, 0, b.data, b.len, fds, r < 0 ? 0 : nfds);
	_exit(0);
}

/* -- the jobs ------------------------------------------------------------------------------------- */

static void end(struct net_job *j)
{
	struct net_job **at = &j->d->nets;

	while (*at != j)
		at = &(*at)->next;
	*at = j->next;
	loop_del(j->d->loop, &j->io);
	loop_del(j->d->loop, &j->timer);
	fd_close(&j->fd);
	fd_close(&j->pidfd); /* children_reap() collects the child */
	free(j);
}

static void finish(struct net_job *j, int code, const struct err *e, const struct answer *a)
{
	char quoted[sizeof(e->msg) + 64], words[sizeof(e->msg)];
	struct err said = { 0 };

	if (code < 0) {
		snprintf(words, sizeof(words), "%s", e->msg);
		err_set(&said, code, "network of %s: %s", j->uuid, words);
		log_warn("sandbox=%s request=net error=%s next=refused", j->uuid,
			 log_quote(said.msg, quoted, sizeof(quoted)));
	} else {
		log_debug("sandbox=%s event=net sockets=%u ms=%llu", j->uuid, j->sockets,
			  (unsigned long long)(now_ns() - j->begun_ns) / 1000000);
	}
	launchd_reply(j->d, j->id, code, said.msg, a);
	end(j);
}

static void start_next(struct launchd *d);

static void on_late(void *arg)
{
	struct net_job *j = arg;
	struct launchd *d = j->d;
	struct err e = { 0 };

	syscall(SYS_pidfd_send_signal, j->pidfd, SIGKILL, NULL, 0);
	finish(j, err_set(&e, -ETIMEDOUT, "it is not ready after %llu s", NET_TIMEOUT_NS / 1000000000ull), &e, NULL);
	start_next(d);
}

static int read_answer(struct net_job *j, struct msg *m, struct answer *a, struct err *e)
{
	struct wire_rd r;
	uint8_t mask;
	int code;

	wire_rd_init(&r, m->data, m->len);
	code = (int)wire_u32(&r);
	wire_str(&r, e->msg, sizeof(e->msg));
	mask = wire_u8(&r);
	if (wire_done(&r) < 0 || code > 0)
		return err_set(e, -EBADMSG, "its child says what cannot be");
	if (code < 0)
		return code;
	if (!j->sockets)
		code = wire_put_u8(&a->payload, mask);
	while (code == 0 && a->nfds < m->nfds) {
		a->fds[a->nfds] = take_fd(&m->fds[a->nfds]);
		a->nfds++;
	}
	return code;
}

static void on_child(void *arg, uint32_t events)
{
	struct answer a = { 0 };
	struct net_job *j = arg;
	struct launchd *d = j->d;
	struct err e = { 0 };
	uint8_t buf[2048];
	struct msg m;
	int r;

	(void)events;
	buf_init(&a.payload, 64);
	r = msg_recv(j->fd, buf, sizeof(buf), &m);
	if (r < 0) {
		err_set(&e, r = -EIO, "its child ended without a word");
	} else {
		r = read_answer(j, &m, &a, &e);
		msg_close_fds(&m);
	}
	finish(j, r, &e, &a);
	for (size_t i = 0; i < a.nfds; i++)
		fd_close(&a.fds[i]);
	buf_fini(&a.payload);
	start_next(d);
}

static int start(struct net_job *j, struct err *e)
{
	int pair[2], r;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, -errno, "socketpair: %s", strerror(errno));
	j->fd = pair[0];
	j->begun_ns = now_ns();
	pid = fork();
	if (pid == 0)
		child(j->d, j, pair[1]);
	r = pid < 0 ? -errno : 0;
	close(pair[1]);
	if (r < 0)
		return err_set(e, r, "fork: %s", strerror(-r));
	j->pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* not collected before we are back in the loop */
	r = j->pidfd < 0 ? -errno : loop_add(j->d->loop, j->fd, EPOLLIN, on_child, j, &j->io);
	if (r == 0)
		r = loop_timer(j->d->loop, j->begun_ns + NET_TIMEOUT_NS, on_late, j, &j->timer);
	if (r < 0) {
		kill(pid, SIGKILL);
		return err_set(e, r, "watch its child: %s", strerror(-r));
	}
	return 0;
}

static void start_next(struct launchd *d)
{
	struct net_job *next;
	size_t running = 0;

	for (struct net_job *j = d->nets; j; j = next) {
		struct err e = { 0 };
		int r;

		next = j->next;
		if (j->fd >= 0)
			running++;
		if (j->fd >= 0 || running >= NET_RUNNING_MAX)
			continue;
		r = start(j, &e);
		if (r < 0)
			finish(j, r, &e, NULL);
		else
			running++;
	}
}

/* -- the requests ----------------------------------------------------------------------------------- */

static int enqueue(struct launchd *d, const struct msg *m, const char *uuid, uint32_t sockets, struct err *e)
{
	struct net_job **at = &d->nets, *j;
	size_t n = 0;

	for (; *at; at = &(*at)->next)
		n++;
	if (n >= NET_JOBS_MAX)
		return err_set(e, -EBUSY, "network of %s: %d others are waited for", uuid, NET_JOBS_MAX);
	j = calloc(1, sizeof(*j));
	if (!j)
		return err_set(e, -ENOMEM, "network of %s: no memory", uuid);
	*j = (struct net_job){ .d = d, .id = m->id, .sockets = sockets, .pidfd = -1, .fd = -1 };
	memcpy(j->uuid, uuid, sizeof(j->uuid));
	*at = j;
	start_next(d);
	return LAUNCH_LATER;
}

int on_net(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	char uuid[LAUNCH_UUID_LEN + 1];

	(void)a;
	wire_str(r, uuid, sizeof(uuid));
	if (wire_done(r) < 0 || !launch_uuid_ok(uuid))
		return err_set(e, -EBADMSG, "net: malformed");
	return enqueue(d, m, uuid, 0, e);
}

int on_net_sockets(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	char uuid[LAUNCH_UUID_LEN + 1];
	uint32_t n;

	(void)a;
	wire_str(r, uuid, sizeof(uuid));
	n = wire_u32(r);
	if (wire_done(r) < 0 || !launch_uuid_ok(uuid))
		return err_set(e, -EBADMSG, "net-sockets: malformed");
	if (n < 1 || n > MSG_FDS_MAX)
		return err_set(e, -EINVAL, "net-sockets: %u; 1 to %d at once", n, MSG_FDS_MAX);
	return enqueue(d, m, uuid, n, e);
}

void nets_free(struct launchd *d)
{
	while (d->nets) {
		if (d->nets->pidfd >= 0)
			syscall(SYS_pidfd_send_signal, d->nets->pidfd, SIGKILL, NULL, 0);
		end(d->nets);
	}
}
