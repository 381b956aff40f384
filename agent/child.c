/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The new process is made inside of its cgroup (clone3), so there is no instant in which what it does is charged to the
 * agent. Everything that may block or fail on what the guest's disk holds (/etc/passwd on a dead mount, a cwd that
 * hangs) happens in the child: then it is that command which hangs, until its timeout. What fails is told in words
 * through a pipe that a successful exec closes.
 *
 * Order in the child: session and streams, then what only root may do (its place in the OOM order, limits, owner of
 * streams and script), then the user, then the working directory (as that user: permission is checked), then exec. */
#include "agent/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <paths.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/import.h"
#include "agent/list.h"
#include "agent/pty.h"
#include "agent/users.h"
#include "base/fd.h"

#define PATH_DEFAULT   "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define NOFILE_SOFT    1024u
#define NOFILE_HARD    524288u
#define MEMLOCK	       (8u << 20)
#define TXTBSY_TRIES   100
#define TXTBSY_WAIT_NS 2000000

static char shell[] = "/bin/sh"; /* an array, because argv is made of such */

/* -- making the process ------------------------------------------------------------- */

/* @cgroup_fd -1: where the agent is. */
static pid_t clone_into(int cgroup_fd)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	long pid;

	if (cgroup_fd >= 0) {
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup_fd;
	}
	pid = syscall(SYS_clone3, &args, sizeof(args));
	return pid < 0 ? -errno : (pid_t)pid;
}

/* Where clone3 is not known (valgrind): fork, and the child moves itself before it does anything else. */
static pid_t fork_into(int cgroup_fd)
{
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0 && cgroup_fd >= 0) {
		AUTO_FD fd = openat(cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

		if (fd < 0 || write(fd, "0", 1) != 1)
			_exit(127);
	}
	return pid;
}

static pid_t start_process(int cgroup_fd)
{
	pid_t pid = clone_into(cgroup_fd);

	return pid == -ENOSYS || pid == -EINVAL || pid == -E2BIG ? fork_into(cgroup_fd) : pid;
}

/* Close everything above 2 but the @n descriptors in @keep, which is sorted on the way; -1 and 0 to 2 in it mean
 * nothing. */
static void close_all_but(int *keep, size_t n)
{
	unsigned from = 3;

	for (size_t i = 1; i < n; i++)
		for (size_t j = i; j > 0 && keep[j] < keep[j - 1]; j--) {
			int tmp = keep[j];

			keep[j] = keep[j - 1];
			keep[j - 1] = tmp;
		}
	for (size_t i = 0; i < n; i++) {
		if (keep[i] < (int)from)
			continue;
		if ((unsigned)keep[i] > from)
			close_range(from, (unsigned)keep[i] - 1, 0);
		from = (unsigned)keep[i] + 1;
	}
	close_range(from, UINT_MAX, 0);
}

/* -- in the child: privileges ------------------------------------------------------- */

static void set_limit(int what, rlim_t soft, rlim_t hard)
{
	struct rlimit rl = { .rlim_cur = soft, .rlim_max = hard };

	/* Where we are not root the hard limit cannot grow: as much as there is. */
	if (setrlimit((__rlimit_resource_t)what, &rl) < 0 && getrlimit((__rlimit_resource_t)what, &rl) == 0) {
		rl.rlim_cur = soft < rl.rlim_max ? soft : rl.rlim_max;
		setrlimit((__rlimit_resource_t)what, &rl);
	}
}

/* The agent itself is never chosen by the OOM killer, runs before others and has many descriptors: a command must not
 * inherit that. */
static int leave_agents_place(const struct guest *g, struct err *e)
{
	AUTO_FD fd = openat(g->proc_fd, "self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	sigset_t none;

	if ((fd < 0 || write(fd, "0", 1) != 1) && !g->test)
		return err_set(e, -errno, "oom_score_adj: %s", strerror(errno));
	sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
	setpriority(PRIO_PROCESS, 0, 0);
	umask(022);
	set_limit(RLIMIT_NOFILE, NOFILE_SOFT, NOFILE_HARD);
	set_limit(RLIMIT_CORE, 0, RLIM_INFINITY);
	set_limit(RLIMIT_MEMLOCK, MEMLOCK, MEMLOCK);
	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return 0;
}

/* So that /dev/stdout, opened anew, and the script are the user's. */
static int give_to_user(const struct child_plan *p, const struct user *u, struct err *e)
{
	for (int fd = 0; fd < 3; fd++) {
		struct stat st;

		if (fstat(fd, &st) < 0 || (!S_ISFIFO(st.st_mode) && !p->req->tty))
			continue;
		/* A terminal keeps its group: that is how write(1) and wall(1) reach it. */
		if (fchown(fd, u->uid, p->req->tty ? (gid_t)-1 : u->gid) < 0 && errno != EPERM)
			return err_set(e, -errno, "standard streams: chown: %s", strerror(errno));
	}
	if (p->script_fd >= 0 && fchown(p->script_fd, u->uid, u->gid) < 0)
		return err_set(e, -errno, "script: chown: %s", strerror(errno));
	return 0;
}

static int become(const struct user *u, struct err *e)
{
	if (u->uid == geteuid() && geteuid() != 0)
		return 0; /* a test's agent that is not root runs commands as itself */
	if (setgroups(u->ngroups, u->groups) < 0 && geteuid() == 0)
		return err_set(e, -errno, "user %s: setgroups: %s", u->name, strerror(errno));
	if (setresgid(u->gid, u->gid, u->gid) < 0)
		return err_set(e, -errno, "user %s: setgid %u: %s", u->name, u->gid, strerror(errno));
	if (setresuid(u->uid, u->uid, u->uid) < 0)
		return err_set(e, -errno, "user %s: setuid %u: %s", u->name, u->uid, strerror(errno));
	return 0;
}

/* -- in the child: environment ------------------------------------------------------ */

static const char *env_get(char *const *env, const char *key)
{
	size_t len = strlen(key);

	/* The last one wins, as with env(1) given a name twice. */
	for (size_t i = 0; env && env[i]; i++)
		if (strncmp(env[i], key, len) == 0 && env[i][len] == '=' && (!env[i + 1] || !env_get(env + i + 1, key)))
			return env[i] + len + 1;
	return NULL;
}

/* Drop every entry that a later one repeats: what getenv(3) finds first must be the last that was given. */
static size_t env_unique(char **env, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++) {
		size_t len = (size_t)(strchr(env[i], '=') - env[i]) + 1, j;

		for (j = i + 1; j < n && strncmp(env[i], env[j], len) != 0; j++)
			;
		if (j == n)
			env[kept++] = env[i];
	}
	env[kept] = NULL;
	return kept;
}

static char **make_env(const struct exec_req *q, const struct user *u)
{
	const struct {
		const char *key, *value;
	} defaults[] = {
		{ "PATH", PATH_DEFAULT }, { "HOME", u->home },	 { "USER", u->name },
		{ "LOGNAME", u->name },	  { "SHELL", u->shell }, { "TERM", q->tty ? "xterm" : NULL },
	};
	char **env = calloc(q->envc + ARRAY_LEN(defaults) + 1, sizeof(*env));
	size_t n = 0;

	if (!env)
		return NULL;
	for (size_t i = 0; i < ARRAY_LEN(defaults); i++) {
		if (!defaults[i].value)
			continue;
		if (asprintf(&env[n++], "%s=%s", defaults[i].key, defaults[i].value) < 0)
			return NULL;
	}
	for (size_t i = 0; i < q->envc; i++)
		env[n++] = q->env[i];
	env_unique(env, n);
	return env;
}

/* -- in the child: exec ------------------------------------------------------------- */

/* A script's descriptor may be open for writing, for an instant, in a sibling that was forked while it was stored. */
static int exec_once(const char *path, char *const *argv, char *const *env)
{
	const struct timespec wait = { .tv_nsec = TXTBSY_WAIT_NS };

	for (int i = 0; i < TXTBSY_TRIES; i++) {
		execve(path, argv, env);
		if (errno != ETXTBSY)
			break;
		nanosleep(&wait, NULL);
	}
	return -errno;
}

/* A text without "#!" is the shell's, as execvp(3) has it. */
static int exec_or_shell(char *path, char *const *argv, char *const *env)
{
	size_t argc = 0;
	char **sh;
	int r = exec_once(path, argv, env);

	if (r != -ENOEXEC)
		return r;
	while (argv[argc])
		argc++;
	sh = calloc(argc + 2, sizeof(*sh));
	if (!sh)
		return -ENOMEM;
	sh[0] = shell;
	sh[1] = path;
	memcpy(sh + 2, argv + 1, argc * sizeof(*sh)); /* the NULL as well */
	return exec_once(shell, sh, env);
}

static int exec_in_path(char *const *argv, char *const *env, struct err *e)
{
	const char *dirs = env_get(env, "PATH"), *p;
	int seen = 0; /* what the last one that exists said: go on looking, and tell in the end */
	char path[PATH_MAX];

	if (!dirs)
		dirs = PATH_DEFAULT;
	p = dirs;
	do {
		size_t len = strcspn(p, ":");
		int r, n = snprintf(path, sizeof(path), "%.*s/%s", len ? (int)len : 1, len ? p : ".", argv[0]);

		p += len;
		if (n >= (int)sizeof(path))
			continue;
		r = exec_or_shell(path, argv, env);
		if (r != -ENOENT && r != -ENOTDIR && r != -EACCES)
			return err_set(e, r, "%s: %s", path, strerror(-r));
		if (r == -EACCES || faccessat(AT_FDCWD, path, F_OK, 0) == 0)
			seen = r;
	} while (*p++ == ':');
	if (seen == -EACCES)
		return err_set(e, seen, "%s: found in PATH, but it may not be executed", argv[0]);
	if (seen)
		return err_set(e, seen, "%s: found in PATH, but its interpreter or loader is missing", argv[0]);
	return err_set(e, -ENOENT, "%s: command not found in PATH (%s)", argv[0], dirs);
}

static int exec_argv(char *const *argv, char *const *env, struct err *e)
{
	struct stat st;
	int r;

	if (!strchr(argv[0], '/'))
		return exec_in_path(argv, env, e);
	r = exec_or_shell(argv[0], argv, env);
	if (r == -EACCES && stat(argv[0], &st) == 0 && S_ISDIR(st.st_mode))
		return err_set(e, r, "%s: is a directory", argv[0]);
	if (r == -ENOENT && faccessat(AT_FDCWD, argv[0], F_OK, 0) == 0)
		return err_set(e, r, "%s: its interpreter or loader is missing", argv[0]);
	return err_set(e, r, "%s: %s", argv[0], strerror(-r));
}

static int exec_script(const struct child_plan *p, char *const *env, struct err *e)
{
	char *direct[] = { p->script, NULL };
	char *by_shell[] = { shell, p->script, NULL };
	char line[128] = "";
	ssize_t n = pread(p->script_fd, line, sizeof(line) - 1, 0);
	int r;

	if (n < 2 || line[0] != '#' || line[1] != '!') {
		r = exec_once(shell, by_shell, env);
		return err_set(e, r, "script: %s: %s", shell, r == -ENOENT ? "this guest has no shell" : strerror(-r));
	}
	r = exec_once(p->script, direct, env);
	line[strcspn(line, "\n")] = '\0';
	return err_set(e, r, "script: first line \"%s\": %s", line,
		       r == -ENOENT ? "no such interpreter" : strerror(-r));
}

/* -- in the child: the whole -------------------------------------------------------- */

/* 0, 1 and 2 from wherever they are; none of them is overwritten before it was used. */
static int take_stdio(const int stdio[3], struct err *e)
{
	int high[3];

	for (int i = 0; i < 3; i++) {
		high[i] = fcntl(stdio[i], F_DUPFD_CLOEXEC, 3);
		if (high[i] < 0)
			return err_set(e, -errno, "standard streams: %s", strerror(errno));
	}
	for (int i = 0; i < 3; i++) {
		if (dup2(high[i], i) < 0)
			return err_set(e, -errno, "standard streams: %s", strerror(errno));
		close(high[i]);
	}
	return 0;
}

static int enter_dir(const struct exec_req *q, struct err *e)
{
	const char *dir = q->cwd ? q->cwd : "/";

	return chdir(dir) < 0 ? err_set(e, -errno, "cwd %s: %s", dir, strerror(errno)) : 0;
}

typedef int builtin_fn(int root_fd);

/* The agent's own command of that name; NULL: it is a program. */
static builtin_fn *find_builtin(const struct exec_req *q)
{
	if (!q->script && strcmp(q->argv[0], IMPORT_ARGV0) == 0)
		return import_run;
	if (!q->script && strcmp(q->argv[0], LIST_ARGV0) == 0)
		return list_run;
	return NULL;
}

static const char *own_uid(char text[16])
{
	snprintf(text, 16, "%u", geteuid());
	return text;
}

/* Returns only when it failed. */
static int child_run(const struct child_plan *p, int err_fd, struct err *e)
{
	/* Others must not wait for us: a copy of the write end of their standard input would keep it open. */
	int keep[] = { err_fd, p->script_fd, p->guest->root_fd, p->guest->proc_fd };
	builtin_fn *builtin;
	struct user user;
	char own[16];
	char **env;
	int r;

	setsid();
	r = take_stdio(p->stdio, e);
	if (r == 0)
		close_all_but(keep, ARRAY_LEN(keep));
	if (r == 0 && p->req->tty) {
		r = pty_take(0);
		if (r < 0)
			err_set(e, r, "tty: %s", strerror(-r));
	}
	if (r == 0)
		r = leave_agents_place(p->guest, e);
	if (r == 0)
		r = user_find(p->guest->root_fd, p->req->user || geteuid() == 0 ? p->req->user : own_uid(own), &user,
			      e);
	if (r == 0)
		r = give_to_user(p, &user, e);
	if (r == 0)
		r = become(&user, e);
	if (r < 0)
		return r;
	builtin = find_builtin(p->req);
	if (builtin) {
		close(err_fd); /* "exec" has succeeded */
		_exit(builtin(p->guest->root_fd));
	}
	env = make_env(p->req, &user);
	if (!env)
		return err_set(e, -ENOMEM, "environment: no memory");
	r = enter_dir(p->req, e);
	if (r < 0)
		return r;
	return p->req->script ? exec_script(p, env, e) : exec_argv(p->req->argv, env, e);
}

static _Noreturn void child_main(const struct child_plan *p, int err_fd)
{
	struct err e = { 0 };
	AUTO_FD err = -1;

	/* Out of the way of 0, 1 and 2, where a test's agent may have it. */
	err = fcntl(err_fd, F_DUPFD_CLOEXEC, 3);
	if (err >= 0 && child_run(p, err, &e) < 0)
		fd_write_all(err, &e, sizeof(e)); /* less than PIPE_BUF: at once or not at all */
	_exit(127);
}

int child_start(const struct child_plan *plan, pid_t *ret_pid, int *ret_err_fd, struct err *e)
{
	AUTO_FD rd = -1;
	AUTO_FD wr = -1;
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(e, -errno, "pipe: %s", strerror(errno));
	rd = fds[0];
	wr = fds[1];
	fd_set_nonblock(rd, true);
	pid = start_process(plan->cgroup->fd);
	if (pid == 0)
		child_main(plan, wr);
	if (pid == -EAGAIN)
		return err_set(e, pid, "no new process: the guest's limit of processes is reached");
	if (pid < 0)
		return err_set(e, pid, "no new process: %s", strerror(-pid));
	*ret_pid = pid;
	*ret_err_fd = take_fd(&rd);
	return 0;
}

int child_helper(int *keep, size_t nkeep, int (*fn)(void *arg), void *arg, pid_t *ret_pid, struct err *e)
{
	pid_t pid = start_process(-1);

	if (pid < 0)
		return err_set(e, pid, "no new process: %s", strerror(-pid));
	if (pid == 0) {
		close_all_but(keep, nkeep);
		_exit(fn(arg));
	}
	*ret_pid = pid;
	return 0;
}
