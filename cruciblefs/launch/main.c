/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-launch: the only process that stays root. See launch.h for what it does and README.md for why.
 *
 * How this works: one loop, one socket, one message at a time. Set-up, then privileges down to what mounting, starting
 * and killing need, then seccomp, then requests until the end of the file. It never looks at a guest's, a user's or the
 * network's bytes. */
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "cruciblefs/launch/launch_priv.h"
#include "netpolicy/topology.h"
#include "crucible_launch_syscalls.h"

#define QUEUE_MAX    (8u << 20) /* replies that the daemon has not read */
#define SLOTS_NOFILE 65536	/* a lock for each slot, and a pinch */

static int on_slot_alloc(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	uint32_t slot;
	int rc;

	(void)m;
	if (wire_done(r) < 0)
		return err_set(e, -EBADMSG, "slot: malformed");
	rc = slots_alloc(&d->slots, &slot, e);
	return rc < 0 ? rc : wire_put_u32(&a->payload, slot);
}

static int on_slot_free(struct launchd *d, struct msg *m, struct wire_rd *r, struct answer *a, struct err *e)
{
	uint32_t slot = wire_u32(r);

	(void)m, (void)a;
	if (wire_done(r) < 0)
		return err_set(e, -EBADMSG, "slot: malformed");
	return slots_free(&d->slots, slot, e);
}

static const struct {
	handler_fn *fn; /* NULL: ours to send */
	const char *name;
} handlers[] = {
	[0] = { NULL, "nothing" },
	[LAUNCH_REPLY] = { NULL, "reply" },
	[LAUNCH_MOUNT] = { on_mount, "mount" },
	[LAUNCH_UNMOUNT] = { on_unmount, "unmount" },
	[LAUNCH_SLOT_ALLOC] = { on_slot_alloc, "slot-alloc" },
	[LAUNCH_SLOT_FREE] = { on_slot_free, "slot-free" },
	[LAUNCH_SPAWN] = { on_spawn, "spawn" },
	[LAUNCH_KILL] = { on_kill, "kill" },
	[LAUNCH_STAT] = { on_stat, "stat" },
	[LAUNCH_LIST] = { on_list, "list" },
	[LAUNCH_NET] = { on_net, "net" },
	[LAUNCH_NET_SOCKETS] = { on_net_sockets, "net-sockets" },
	[LAUNCH_EXIT_EVENT] = { NULL, "exit-event" },
};
_Static_assert(ARRAY_LEN(handlers) == LAUNCH_TYPE_COUNT, "a row for each type");

/* -- serving ------------------------------------------------------------------------------------ */

void launchd_reply(struct launchd *d, uint32_t id, int code, const char *words, const struct answer *a)
{
	bool with = a && code == 0; /* an error carries words only */
	struct buf b;
	int r;

	if (id == 0)
		return;
	buf_init(&b, MSG_MAX);
	r = wire_put_u32(&b, (uint32_t)code);
	if (r == 0)
		r = wire_put_str(&b, code ? words : "");
	if (r == 0 && with)
		r = buf_add(&b, a->payload.data, a->payload.len);
	if (r == 0)
		r = msgconn_send(d->conn, LAUNCH_REPLY, id, b.data, b.len, with ? a->fds : NULL, with ? a->nfds : 0);
	buf_fini(&b);
	if (r == 0 || r == -EPIPE) /* EPIPE: on_gone() follows */
		return;
	log_err("event=reply_lost error=\"%s\" next=\"ends\"", strerror(-r));
	loop_stop(d->loop);
}

static void on_msg(void *arg, struct msg *m)
{
	struct answer a = { 0 };
	struct launchd *d = arg;
	struct err e = { 0 };
	char quoted[sizeof(e.msg) + 64];
	struct wire_rd r;
	int code;

	wire_rd_init(&r, m->data, m->len);
	buf_init(&a.payload, MSG_MAX - 1024);
	if (m->type < ARRAY_LEN(handlers) && handlers[m->type].fn)
		code = handlers[m->type].fn(d, m, &r, &a, &e);
	else
		code = err_set(&e, -ENOTSUP, "request %u: unknown", m->type);
	if (code < 0) {
		const char *name = m->type < ARRAY_LEN(handlers) ? handlers[m->type].name : "unknown";

		if (!e.msg[0])
			err_set(&e, code, "%s: %s", name, strerror(-code));
		log_warn("request=%s error=%s next=refused", name, log_quote(e.msg, quoted, sizeof(quoted)));
	}
	if (code != LAUNCH_LATER)
		launchd_reply(d, m->id, code, e.msg, &a);
	for (size_t i = 0; i < a.nfds; i++)
		fd_close(&a.fds[i]);
	buf_fini(&a.payload);
}

static void on_gone(void *arg, int reason)
{
	struct launchd *d = arg;

	log_info("event=daemon_gone reason=\"%s\" next=\"ends; sandboxes run on\"", strerror(-reason));
	loop_stop(d->loop);
}

static void on_sigchld(void *arg, const struct signalfd_siginfo *si)
{
	struct launchd *d = arg;

	(void)si;
	children_reap(d);
	kills_poke(d);
}

/* -- starting ----------------------------------------------------------------------------------- */

static void usage(void)
{
	fprintf(stderr, "usage: crucible-launch --sock-fd N --uid-base N --mount DIR --store DIR --cgroup NAME"
			" --box PATH --engine PATH [--pager PATH] [--store-writer PATH] [--netd PATH]"
			" [--preload PATH] [--log-level LEVEL]\n(started by crucibled, not by people)\n"
			"       crucible-launch --probe-network\n");
	exit(2);
}

static unsigned long number(const char *text, unsigned long max)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 10);
	if (errno || end == text || *end || text[0] == '-' || v > max)
		usage();
	return v;
}

/* The mount point as mountinfo shows it. Its own last step is not looked at: a dead mount there answers nothing. */
static const char *canonical(const char *path)
{
	static char out[PATH_MAX];
	char parent[PATH_MAX], real[PATH_MAX];
	const char *slash;
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	if (path[0] != '/' || len < 2 || len >= sizeof(parent))
		usage();
	snprintf(parent, sizeof(parent), "%.*s", (int)len, path);
	slash = strrchr(parent, '/');
	if (!strcmp(slash, "/.") || !strcmp(slash, "/.."))
		usage();
	parent[slash - parent] = '\0';
	if (!realpath(parent[0] ? parent : "/", real)) {
		fprintf(stderr, "crucible-launch: --mount %s: %s\n", path, strerror(errno));
		exit(2);
	}
	if (snprintf(out, sizeof(out), "%s/%s", real[1] ? real : "", slash + 1) >= (int)sizeof(out))
		usage();
	return out;
}

static int parse_args(int argc, char **argv, struct launch_config *c)
{
	static const struct option opts[] = {
		{ "sock-fd", required_argument, NULL, 's' },
		{ "uid-base", required_argument, NULL, 'u' },
		{ "mount", required_argument, NULL, 'm' },
		{ "store", required_argument, NULL, 'd' },
		{ "cgroup", required_argument, NULL, 'c' },
		{ "box", required_argument, NULL, 'b' },
		{ "engine", required_argument, NULL, 'e' },
		{ "pager", required_argument, NULL, 'p' },
		{ "store-writer", required_argument, NULL, 'w' },
		{ "preload", required_argument, NULL, 'r' },
		{ "netd", required_argument, NULL, 'n' },
		{ "log-level", required_argument, NULL, 'l' },
		{ 0 },
	};
	enum log_level level = LOG_L_INFO;
	int sock_fd = -1, opt;

	while ((opt = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (opt) {
		case 's':
			sock_fd = (int)number(optarg, INT_MAX);
			break;
		case 'u':
			c->uid_base = (uid_t)number(optarg, UINT32_MAX - 1 - LAUNCH_UID_NETD);
			break;
		case 'm':
			c->mount = canonical(optarg);
			break;
		case 'd':
			c->store = optarg;
			break;
		case 'c':
			c->cgroup = optarg;
			break;
		case 'b':
			c->prog[LAUNCH_BOX] = optarg;
			break;
		case 'e':
			c->prog[LAUNCH_ENGINE] = optarg;
			break;
		case 'p':
			c->prog[LAUNCH_PAGER] = optarg;
			break;
		case 'w':
			c->prog[LAUNCH_STORE] = optarg;
			break;
		case 'n':
			c->prog[LAUNCH_NETD] = optarg;
			break;
		case 'r':
			c->preload = optarg;
			break;
		case 'l':
			if (log_level_parse(optarg, &level) < 0)
				usage();
			log_set_level(level);
			break;
		default:
			usage();
		}
	}
	if (optind != argc || sock_fd < 3 || c->uid_base == 0 || !c->mount || !c->store || !c->cgroup ||
	    !c->prog[LAUNCH_BOX] || !c->prog[LAUNCH_ENGINE] || c->store[0] != '/' ||
	    (c->preload && c->preload[0] != '/'))
		usage();
	for (size_t i = 0; i < LAUNCH_KIND_COUNT; i++)
		if (c->prog[i] && c->prog[i][0] != '/')
			usage();
	return sock_fd;
}

/* As far as we may: in a container without CAP_SYS_RESOURCE there are fewer slots, and the last one says why. */
static void raise_nofile(void)
{
	struct rlimit rl;

	if (confine_rlimit(RLIMIT_NOFILE, "nofile", SLOTS_NOFILE, NULL) == 0 || getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
}

/* Should: open all that is needed for the time after. Mustn't: read a message yet. */
static int set_up(struct launchd *d, int sock_fd, struct err *e)
{
	static const struct msgconn_ops ops = { .on_msg = on_msg, .on_gone = on_gone };
	static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };
	struct stat st;
	int r;

	/* The daemon decides when we end, by closing its end: it needs us to unmount while it stops itself. */
	for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
		signal(ignored[i], SIG_IGN);
	umask(022);
	if (stat(d->cfg.store, &st) < 0)
		return err_set(e, -errno, "store %s: %s", d->cfg.store, strerror(errno));
	d->store_dev = st.st_dev;
	/* One that is absent now, such as an engine not yet installed, is looked for again when it is asked for. */
	for (size_t i = 0; i < LAUNCH_KIND_COUNT; i++)
		if (d->cfg.prog[i])
			d->prog_fd[i] = open(d->cfg.prog[i], O_PATH | O_CLOEXEC);
	d->uffd_dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	d->oom_below_zero = confine_has(CONFINE_CAP(CAP_SYS_RESOURCE));
	raise_nofile();
	r = cgroup_root_new(d->cfg.cgroup, 0, &d->cgroups, e);
	if (r == 0)
		r = slots_init(&d->slots, e);
	if (r < 0)
		return r;
	r = loop_new(&d->loop);
	if (r == 0)
		r = loop_signal(d->loop, SIGCHLD, on_sigchld, d);
	if (r == 0)
		r = fd_set_cloexec(sock_fd, true);
	if (r == 0)
		r = msgconn_new(d->loop, sock_fd, QUEUE_MAX, &ops, d, &d->conn);
	return r < 0 ? err_set(e, r, "set up: %s", strerror(-r)) : 0;
}

/* Should: keep what mounting, starting, killing and the sandboxes' networks need. Mustn't: keep what reaches other
 * parts of the machine (modules, raw I/O, tracing); the children are born without all of these. What the network's
 * capabilities are for happens in children of ours that have left the host's namespace before. */
static int confine_self(struct err *e)
{
	const uint64_t caps = CONFINE_CAP(CAP_SYS_ADMIN) |    /* mount, namespaces, pivot_root, sethostname */
			      CONFINE_CAP(CAP_DAC_OVERRIDE) | /* the store and /box belong to others */
			      CONFINE_CAP(CAP_SETUID) | CONFINE_CAP(CAP_SETGID) | CONFINE_CAP(CAP_SETPCAP) |
			      CONFINE_CAP(CAP_KILL) |				/* processes of the slots' uids */
			      CONFINE_CAP(CAP_SYS_RESOURCE) |			/* nofile above the hard limit */
			      CONFINE_CAP(CAP_MKNOD) | CONFINE_CAP(CAP_CHOWN) | /* the engine's /dev/kvm */
			      CONFINE_CAP(CAP_NET_ADMIN) |			/* the engine's tap, its rules */
			      CONFINE_CAP(CAP_NET_BIND_SERVICE);		/* port 53 in its namespace */
	int r = confine_drop(0, 0, caps, e);

	return r < 0 ? r : confine_seccomp(crucible_launch_syscalls, ARRAY_LEN(crucible_launch_syscalls), e);
}

static void tear_down(struct launchd *d)
{
	d->conn = msgconn_free(d->conn);
	nets_free(d);
	kills_free(d);
	children_free(d);
	slots_fini(&d->slots);
	if (d->cgroups)
		cgroup_root_remove(d->cgroups);
	d->cgroups = cgroup_root_free(d->cgroups);
	for (size_t i = 0; i < LAUNCH_KIND_COUNT; i++)
		fd_close(&d->prog_fd[i]);
	fd_close(&d->uffd_dev);
	d->loop = loop_free(d->loop);
}

/* For `crucible doctor`: can sandboxes of this host have a network? Says why not. */
static int probe_network(void)
{
	struct err e = { 0 };

	if (topology_probe(&e) == 0)
		return 0;
	printf("%s\n", e.msg);
	return 1;
}

int main(int argc, char **argv)
{
	struct launchd d = { .prog_fd = { -1, -1, -1, -1, -1 }, .uffd_dev = -1 };
	struct err e = { 0 };
	int sock_fd, r;

	_Static_assert(ARRAY_LEN(d.prog_fd) == 5, "none is open at the start");
	if (argc == 2 && strcmp(argv[1], "--probe-network") == 0)
		return probe_network();
	log_init("crucible-launch", LOG_L_INFO);
	sock_fd = parse_args(argc, argv, &d.cfg);
	if (geteuid() != 0) {
		log_err("event=start error=\"must be root\"");
		return 1;
	}
	r = set_up(&d, sock_fd, &e);
	if (r == 0)
		r = confine_self(&e);
	if (r == 0) {
		r = loop_run(d.loop);
		if (r < 0)
			err_set(&e, r, "loop: %s", strerror(-r));
	}
	if (r < 0)
		log_err("event=failed error=\"%s\"", e.msg);
	tear_down(&d);
	return r < 0;
}
