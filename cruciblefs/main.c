/* SPDX-License-Identifier: Apache-2.0 */
/* crucibled: the daemon. Started as root; makes the launcher (which stays root) and gives its own privileges up before
 * it serves.
 *
 * Order: configuration -> store's directories and lock -> engine probe -> launcher (fork and exec) -> mount (by the
 * launcher, which hands the descriptor over) -> drop to the service uid -> load the store -> serve. Nothing that a
 * user, a guest or the network wrote is read before the drop, but for the configuration and the policies that it names,
 * which are root's. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/confine.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/proc.h"
#include "cruciblefs/domain/config.h"
#include "cruciblefs/domain/domain.h"
#include "cruciblefs/launch/launch.h"
#include "cruciblefs/root.h"
#include "cruciblefs/session.h"
#include "crucibled_syscalls.h"

#define CONFIG_DEFAULT "/etc/crucible/crucible.conf"
#define POOL_THREADS   4
#define POOL_QUEUE     1024
#define NOFILE	       65536

struct daemon {
	struct config cfg;
	struct engine_info engine;
	struct loop *loop;
	struct pool *pool;
	struct launcher *launcher;
	struct registry *reg;
	struct cfs_session *session;
	int store_fd, lock_fd;
	int launcher_fd;
	int undo_fd; /* the launcher's once more, until we serve: -1 */
	int fuse_fd;
	struct buf list; /* the launcher's, of what runs */
	int ready_fd;	 /* --ready-fd, or -1 */
	bool stopping;
};

static const char usage[] =
	"usage: crucibled [--mount DIR] [--store DIR] [--config FILE] [--log-level LEVEL] [--set KEY=VALUE]... [--ready-fd N]\n"
	"Serves the tree at DIR (default /crucible). Settings: crucible.conf(5); files: cruciblefs(8).\n";

static int parse_set(struct daemon *d, char *arg, struct err *e)
{
	char *eq = strchr(arg, '=');

	if (!eq)
		return err_set(e, -EINVAL, "--set %s: not KEY=VALUE", arg);
	*eq = '\0';
	return config_set(&d->cfg, arg, eq + 1, e);
}

static int absolute(struct daemon *d, const char *key, const char *path, struct err *e)
{
	char whole[PATH_MAX + 256], cwd[PATH_MAX];

	if (path[0] == '/')
		return config_set(&d->cfg, key, path, e);
	if (!getcwd(cwd, sizeof(cwd)))
		return err_set(e, -errno, "--%s: the current directory: %s", key, strerror(errno));
	snprintf(whole, sizeof(whole), "%s/%.255s", cwd, path);
	return config_set(&d->cfg, key, whole, e);
}

static int parse_args(struct daemon *d, int argc, char **argv, struct err *e)
{
	enum { OPT_MOUNT = 256, OPT_STORE, OPT_CONFIG, OPT_LEVEL, OPT_SET, OPT_READY, OPT_HELP, OPT_VERSION };
	static const struct option options[] = {
		{ "mount", required_argument, NULL, OPT_MOUNT },
		{ "store", required_argument, NULL, OPT_STORE },
		{ "config", required_argument, NULL, OPT_CONFIG },
		{ "log-level", required_argument, NULL, OPT_LEVEL },
		{ "set", required_argument, NULL, OPT_SET },
		{ "ready-fd", required_argument, NULL, OPT_READY },
		{ "help", no_argument, NULL, OPT_HELP },
		{ "version", no_argument, NULL, OPT_VERSION },
		{ NULL, 0, NULL, 0 },
	};
	const char *config = NULL;
	char empty[1] = "", *end;
	int c, r;

	/* The file first, whatever the order of the words: the command line is above it. */
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == OPT_CONFIG)
			config = optarg;
		if (c == '?')
			return err_set(e, -EINVAL, "see crucibled --help");
	}
	if (optind < argc)
		return err_set(e, -EINVAL, "\"%s\": no arguments but options; see crucibled --help", argv[optind]);
	r = config_load(&d->cfg, config ? config : CONFIG_DEFAULT, e);
	if (r == -ENOENT && !config) {
		*e = (struct err){ 0 };
		r = 0;
	}
	optind = 1;
	while (!r && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		char *arg = optarg ? optarg : empty;

		switch (c) {
		case OPT_MOUNT:
			r = absolute(d, "mount", arg, e);
			break;
		case OPT_STORE:
			r = absolute(d, "store", arg, e);
			break;
		case OPT_LEVEL:
			r = config_set(&d->cfg, "log_level", arg, e);
			break;
		case OPT_SET:
			r = parse_set(d, arg, e);
			break;
		case OPT_READY:
			d->ready_fd = (int)strtol(arg, &end, 10);
			if (*end || d->ready_fd < 3 || fd_set_cloexec(d->ready_fd, true) < 0)
				r = err_set(e, -EBADF, "--ready-fd %s: no open descriptor", arg);
			break;
		case OPT_HELP:
			fputs(usage, stdout);
			exit(0);
		case OPT_VERSION:
			puts("crucibled " CRUCIBLE_VERSION);
			exit(0);
		default:
			break;
		}
	}
	return r ? r : config_finish(&d->cfg, e);
}

/* Also as root: they may be for root's eyes only. All that is wrong is told, a line each. */
static int read_policies(struct daemon *d, struct err *e)
{
	struct buf faults;
	const char *text;
	int r;

	buf_init(&faults, 64 * 1024);
	r = config_read_policies(&d->cfg, &faults, e);
	text = buf_str(&faults);
	if (r < 0 && text)
		fputs(text, stderr);
	buf_fini(&faults);
	return r;
}

/* -- the store, as root ------------------------------------------------------------------------------------------ */

static int owned_dir(int dirfd, const char *name, mode_t mode, uid_t uid, gid_t gid)
{
	AUTO_FD fd = -1;

	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0)
		return -errno;
	return 0;
}

/* What users and the daemon's own uid go through; the umask is for what lies inside. */
static int make_public_dir(const char *path)
{
	if (mkdir(path, 0755) < 0)
		return errno == EEXIST ? 0 : -errno;
	return chmod(path, 0755) < 0 ? -errno : 0;
}

/* May the uid that we become go through it? */
static bool can_enter(const struct daemon *d, const struct stat *st)
{
	if (st->st_uid == d->cfg.uid_base)
		return st->st_mode & S_IXUSR;
	return st->st_mode & (st->st_gid == d->cfg.uid_base ? S_IXGRP : S_IXOTH);
}

static int prepare_store(struct daemon *d, struct err *e)
{
	static const struct {
		const char *name;
		mode_t mode;
		uid_t uid; /* beyond uid_base; the group is the service gid */
	} dirs[] = {
		{ "sandboxes", 0700, 0 },
		{ "logs", 0700, 0 },
		{ "state", 0755, 0 },
		{ "run", 0750, 0 },
		{ "snapshots", 0700, 0 },
		{ "views", 0700, 0 },
		{ "blocks", 0700, 0 },
		{ LAUNCH_BLOCKS_DIR, 0711, 0 },
		/* One writes, the service's group reads; what is made inside is the group's as well (setgid). */
		{ "snapstore", 02750, LAUNCH_UID_STORE },
		{ "disks", 02770, LAUNCH_UID_PAGER },
	};
	AUTO_FD state = -1;
	struct stat st;
	int r = make_public_dir(d->cfg.store);

	if (r < 0)
		return err_set(e, r, "store %s: %s; make its parent directory, or choose another with --store",
			       d->cfg.store, strerror(-r));
	d->store_fd = open(d->cfg.store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->store_fd < 0 || fstat(d->store_fd, &st) < 0)
		return err_set(e, -errno, "store %s: %s", d->cfg.store, strerror(errno));
	if (!can_enter(d, &st))
		return err_set(e, -EACCES,
			       "store %s: its mode is %04o, and the daemon, which becomes uid %u, could not enter it: "
			       "chmod o+x %s",
			       d->cfg.store, st.st_mode & 07777, d->cfg.uid_base, d->cfg.store);
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		r = owned_dir(d->store_fd, dirs[i].name, dirs[i].mode, d->cfg.uid_base + dirs[i].uid, d->cfg.uid_base);
		if (r < 0)
			return err_set(e, r, "store %s: %s/: %s", d->cfg.store, dirs[i].name, strerror(-r));
	}
	state = openat(d->store_fd, "state", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d->lock_fd = state < 0 ? -1 : openat(state, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (d->lock_fd < 0)
		return err_set(e, -errno, "store %s: state/lock: %s", d->cfg.store, strerror(errno));
	if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(e, -EBUSY,
			       "store %s: another crucibled uses it; stop that one, or choose another with --store",
			       d->cfg.store);
	return 0;
}

static int check_mount_point(struct daemon *d, struct err *e)
{
	char cwd[PATH_MAX];
	const char *home = getenv("HOME");
	struct stat st;
	int r;

	/* What we or a library might open there would make us wait for ourselves. */
	if (getcwd(cwd, sizeof(cwd)) && config_is_inside(cwd, d->cfg.mount))
		return err_set(e, -EINVAL,
			       "the current directory %s is inside the mount %s; start the daemon elsewhere", cwd,
			       d->cfg.mount);
	if (home && config_is_inside(home, d->cfg.mount))
		return err_set(e, -EINVAL, "HOME %s is inside the mount %s; start the daemon with another HOME", home,
			       d->cfg.mount);
	if (chdir("/") < 0)
		return err_set(e, -errno, "/: %s", strerror(errno));
	if (stat(d->cfg.mount, &st) < 0 && errno == ENOENT && (r = make_public_dir(d->cfg.mount)) < 0)
		return err_set(e, r, "mount point %s: %s", d->cfg.mount, strerror(-r));
	return 0;
}

/* -- the launcher -------------------------------------------------------------------------------------------------- */

/* Our other programs: beside us when run from a build tree, else where they were installed. */
static int sibling(const char *name, char *out, size_t cap, struct err *e)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n > 0) {
		self[n] = '\0';
		slash = strrchr(self, '/');
		if (slash) {
			*slash = '\0';
			if ((size_t)snprintf(out, cap, "%s/%s", self, name) < cap && access(out, X_OK) == 0)
				return 0;
		}
	}
	if ((size_t)snprintf(out, cap, "%s/%s", CRUCIBLE_LIBEXECDIR, name) < cap && access(out, X_OK) == 0)
		return 0;
	return err_set(e, -ENOENT, "%s is neither beside crucibled nor in %s; install crucible anew", name,
		       CRUCIBLE_LIBEXECDIR);
}

static int start_launcher(struct daemon *d, struct err *e)
{
	char launch[PATH_MAX], box[PATH_MAX], pager[PATH_MAX], store[PATH_MAX], netd[PATH_MAX], preload[PATH_MAX],
		uid[16];
	const char *argv[] = { "crucible-launch",
			       "--sock-fd",
			       "3",
			       "--uid-base",
			       uid,
			       "--mount",
			       d->cfg.mount,
			       "--store",
			       d->cfg.store,
			       "--cgroup",
			       d->cfg.cgroup,
			       "--box",
			       box,
			       "--engine",
			       d->engine.path,
			       "--pager",
			       pager,
			       "--store-writer",
			       store,
			       "--netd",
			       netd,
			       "--preload",
			       preload,
			       "--log-level",
			       log_level_name(d->cfg.log_level),
			       NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	int pair[2], r;
	pid_t pid;

	r = sibling("crucible-launch", launch, sizeof(launch), e);
	if (!r)
		r = sibling("crucible-box", box, sizeof(box), e);
	if (!r)
		r = sibling("crucible-pager", pager, sizeof(pager), e);
	if (!r)
		r = sibling("crucible-store", store, sizeof(store), e);
	if (!r)
		r = sibling("crucible-preload.so", preload, sizeof(preload), e);
	if (r < 0)
		return r;
	/* Without it there is all but a network; the launcher looks for it again when it is to be started. */
	if (sibling("crucible-netd", netd, sizeof(netd), NULL) < 0)
		snprintf(netd, sizeof(netd), "%s/crucible-netd", CRUCIBLE_LIBEXECDIR);
	snprintf(uid, sizeof(uid), "%u", d->cfg.uid_base);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, -errno, "launcher: socketpair: %s", strerror(errno));
	spec.name = "launcher";
	spec.path = launch;
	spec.argv = (char *const *)argv; /* execve takes them so, and changes none */
	spec.new_session = true;
	spec.stdio[2] = 2;
	spec.fds = &pair[1];
	spec.nfds = 1;
	r = proc_spawn(&spec, &pid, NULL, e);
	close(pair[1]);
	if (r < 0) {
		close(pair[0]);
		return r;
	}
	d->launcher_fd = pair[0];
	return 0;
}

static int do_mount(struct daemon *d, struct err *e)
{
	struct buf b;
	int r;

	buf_init(&b, 4096);
	r = wire_put_str(&b, d->cfg.mount);
	if (!r)
		r = launcher_call_sync(d->launcher_fd, LAUNCH_MOUNT, b.data, b.len, NULL, &d->fuse_fd, e);
	buf_fini(&b);
	if (r < 0)
		return r;
	d->undo_fd = fcntl(d->launcher_fd, F_DUPFD_CLOEXEC, 3);
	return d->undo_fd < 0 ? err_set(e, -errno, "mount %s: %s", d->cfg.mount, strerror(errno)) : 0;
}

/* The daemon does not come to serving what it has mounted. */
static void undo_mount(struct daemon *d)
{
	struct err e = { 0 };

	(void)fcntl(d->undo_fd, F_SETFL, 0); /* the loop has it read without waiting */
	if (launcher_call_sync(d->undo_fd, LAUNCH_UNMOUNT, NULL, 0, NULL, NULL, &e) < 0)
		log_warn("mount=%s event=not-unmounted error=\"%s\" next=ends", d->cfg.mount, e.msg);
	fd_close(&d->undo_fd);
}

/* Asked here, while answers can be waited for: before anything is served. */
static int ask_what_runs(struct daemon *d, struct err *e)
{
	buf_init(&d->list, MSG_MAX);
	return launcher_call_sync(d->launcher_fd, LAUNCH_LIST, NULL, 0, &d->list, NULL, e);
}

static void on_launcher_exit(void *arg, const char *uuid, enum launch_kind kind, int status)
{
	struct daemon *d = arg;

	/* Of the pager and the store their links say it. */
	if (kind != LAUNCH_BOX && kind != LAUNCH_ENGINE)
		return;
	registry_launcher_exit(d->reg, uuid, kind == LAUNCH_BOX, status);
}

static void on_launcher_gone(void *arg)
{
	struct daemon *d = arg;

	registry_launcher_gone(d->reg);
	if (d->stopping)
		loop_stop(d->loop);
}

/* -- the end ---------------------------------------------------------------------------------------------------------
 */

static void on_unmounted(void *arg, int code, const char *words, struct wire_rd *r, struct msg *m)
{
	struct daemon *d = arg;

	(void)r;
	(void)m;
	if (code < 0)
		log_warn("mount=%s event=not-unmounted error=\"%s\" next=ends", d->cfg.mount, words);
	loop_stop(d->loop);
}

static void on_all_down(void *arg)
{
	struct daemon *d = arg;

	cfs_session_stop(d->session);
	if (launcher_call(d->launcher, LAUNCH_UNMOUNT, NULL, 0, NULL, 0, on_unmounted, d) < 0)
		loop_stop(d->loop);
}

static void on_term(void *arg, const struct signalfd_siginfo *si)
{
	struct daemon *d = arg;

	if (d->stopping)
		return;
	d->stopping = true;
	log_info("event=stopping signal=%u", si->ssi_signo);
	registry_shutdown(d->reg, on_all_down, d);
}

/* Somebody unmounted us from outside: the same end, in order. */
static void on_session_ended(void *arg)
{
	struct daemon *d = arg;

	if (d->stopping)
		return;
	d->stopping = true;
	log_info("mount=%s event=unmounted-from-outside next=stopping", d->cfg.mount);
	registry_shutdown(d->reg, on_all_down, d);
}

/* Many open files are our trade. Where the host permits fewer than we would like, that is what we get. */
static int limit_descriptors(struct err *e)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return err_set(e, -errno, "descriptors: %s", strerror(errno));
	return confine_rlimit(RLIMIT_NOFILE, "nofile", lim.rlim_max < NOFILE ? lim.rlim_max : NOFILE, e);
}

/* -- serving
 * ------------------------------------------------------------------------------------------------------------ */

static void say_ready(struct daemon *d)
{
	const char *path = getenv("NOTIFY_SOCKET");

	if (d->ready_fd >= 0) {
		if (write(d->ready_fd, "ready\n", 6) != 6)
			log_warn("event=ready-fd-failed error=\"%s\" next=continues", strerror(errno));
		fd_close(&d->ready_fd);
	}
	if (path && path[0] && strlen(path) < sizeof(((struct sockaddr_un *)0)->sun_path)) {
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		AUTO_FD fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));

		memcpy(a.sun_path, path, strlen(path));
		if (a.sun_path[0] == '@')
			a.sun_path[0] = '\0';
		if (fd < 0 || sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&a, len) < 0)
			log_warn("event=notify-failed error=\"%s\" next=continues", strerror(errno));
	}
}

static int begin(struct daemon *d, struct err *e)
{
	static const struct launcher_ops launcher_ops = { on_launcher_exit, on_launcher_gone };
	struct cfs_session_opts opts = { .ended = on_session_ended, .arg = d };
	int r;

	r = loop_new(&d->loop);
	if (r < 0)
		return err_set(e, r, "loop: %s", strerror(-r));
	if ((r = loop_signal(d->loop, SIGTERM, on_term, d)) < 0 || (r = loop_signal(d->loop, SIGINT, on_term, d)) < 0 ||
	    (r = pool_new(d->loop, POOL_THREADS, POOL_QUEUE, &d->pool)) < 0)
		return err_set(e, r, "loop: %s", strerror(-r));
	r = registry_new(d->loop, &d->cfg, d->pool, d->store_fd, &d->engine, &d->reg, e);
	if (r < 0)
		return r;
	r = launcher_new(d->loop, take_fd(&d->launcher_fd), &launcher_ops, d, &d->launcher);
	if (r < 0)
		return err_set(e, r, "launcher: %s", strerror(-r));
	opts.loop = d->loop;
	opts.registry = d->reg;
	opts.fd = d->fuse_fd;
	r = cfs_session_new(&opts, &d->session, e);
	if (r < 0)
		return r;
	d->fuse_fd = -1;
	r = cfs_root_install(d->session, e);
	if (r < 0)
		return r;
	return registry_begin(d->reg, d->launcher, d->list.data, d->list.len, e);
}

static int serve(struct daemon *d, struct err *e)
{
	int r = begin(d, e);

	if (!r)
		r = confine_seccomp(crucibled_syscalls, ARRAY_LEN(crucibled_syscalls), e);
	if (!r) {
		log_info("event=ready mount=%s store=%s engine=%s version=%s", d->cfg.mount, d->cfg.store,
			 d->engine.name, d->engine.version);
		fd_close(&d->undo_fd);
		say_ready(d);
		r = loop_run(d->loop);
		if (r < 0)
			err_set(e, r, "loop: %s", strerror(-r));
	}
	buf_fini(&d->list);
	d->session = cfs_session_free(d->session);
	/* The launcher's pending answers concern sandboxes: they go first. */
	d->launcher = launcher_free(d->launcher);
	d->reg = registry_free(d->reg);
	d->pool = pool_free(d->pool);
	d->loop = loop_free(d->loop);
	return r;
}

int main(int argc, char **argv)
{
	struct daemon d = {
		.store_fd = -1, .lock_fd = -1, .launcher_fd = -1, .undo_fd = -1, .fuse_fd = -1, .ready_fd = -1
	};
	struct err e = { 0 };
	int r;

	log_init("crucibled", LOG_L_INFO);
	umask(0007) /* our group is the service gid, which boxes have too */;
	/* One arena and early trimming: the daemon's memory is bounded by what it holds, not by what it once held. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	mallopt(M_TRIM_THRESHOLD, 256 * 1024);
	signal(SIGPIPE, SIG_IGN);
	config_defaults(&d.cfg);
	r = parse_args(&d, argc, argv, &e);
	log_set_level(d.cfg.log_level);
	if (!r && geteuid() != 0)
		r = err_set(
			&e, -EPERM,
			"the daemon starts as root (it needs mounts, cgroups and user ids) and gives that up; use sudo");
	if (!r)
		r = read_policies(&d, &e);
	if (!r)
		r = check_mount_point(&d, &e);
	if (!r)
		r = engine_qemu.probe(d.cfg.qemu[0] ? d.cfg.qemu : NULL, &d.engine, &e);
	if (!r)
		r = prepare_store(&d, &e);
	if (!r)
		r = start_launcher(&d, &e);
	if (!r)
		r = ask_what_runs(&d, &e);
	if (!r)
		r = do_mount(&d, &e);
	if (!r)
		r = limit_descriptors(&e);
	if (!r)
		r = confine_drop(d.cfg.uid_base, d.cfg.uid_base, 0, &e);
	if (!r)
		r = serve(&d, &e);
	if (r < 0 && d.undo_fd >= 0)
		undo_mount(&d);
	config_fini(&d.cfg);
	if (r < 0) {
		fprintf(stderr, "crucibled: %s\n", e.code ? e.msg : strerror(-r));
		return 1;
	}
	return 0;
}
