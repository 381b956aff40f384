/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A pipe that closes itself at the exec carries the answer: end of file means that the program runs, a struct err that
 * it does not. clone3() is called bare (the C library has no wrapper), which is fork without its handlers: with one
 * thread there is nothing that they would have to put right.
 *
 * All signals are blocked over the clone, so that no handler of ours runs in the child; the child then puts every
 * disposition to its default and unblocks. Descriptors are placed in two steps, first out of the way, then down to
 * their places, so that no source is overwritten before it was used.
 */
#include "base/proc.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

#define PLACES_MAX 64 /* descriptors that one child can be given */

int proc_wait(pid_t pid, int *ret_status)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (ret_status)
		*ret_status = status;
	return 0;
}

/* -- in the child ------------------------------------------------------------------------------ */

static void reset_signals(void)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	sigset_t none;

	/* The two that cannot be changed, and the C library's own, fail: that is fine. */
	for (int s = 1; s < _NSIG; s++)
		sigaction(s, &dfl, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static int move_above(int *fd, int floor, struct err *e)
{
	int moved = fcntl(*fd, F_DUPFD_CLOEXEC, floor);

	if (moved < 0)
		return err_set(e, -errno, "descriptor %d: dup: %s", *fd, strerror(errno));
	*fd = moved;
	return 0;
}

/* Should: give the program exactly the descriptors it was meant to have. Mustn't: leak one of ours. */
static int place_fds(const struct proc_spec *spec, int *exec_fd, int *report_fd, struct err *e)
{
	size_t n = 3 + spec->nfds;
	int from[PLACES_MAX], r;

	memcpy(from, spec->stdio, sizeof(spec->stdio));
	if (spec->nfds)
		memcpy(from + 3, spec->fds, spec->nfds * sizeof(int));
	for (size_t i = 0; i < n; i++) {
		r = move_above(&from[i], (int)n, e);
		if (r < 0)
			return r;
	}
	r = move_above(report_fd, (int)n, e);
	if (r == 0 && *exec_fd >= 0)
		r = move_above(exec_fd, (int)n, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < n; i++)
		if (dup2(from[i], (int)i) < 0)
			return err_set(e, -errno, "descriptor %zu: dup2: %s", i, strerror(errno));
	if (close_range((unsigned int)n, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return err_set(e, -errno, "close_range: %s", strerror(errno));
	return 0;
}

static __attribute__((noreturn)) void child(const struct proc_spec *spec, int exec_fd, int report_fd)
{
	static char *const no_env[] = { NULL };
	char *const *envp = spec->envp ? spec->envp : no_env;
	struct err e = { 0 };
	int r = 0;

	reset_signals();
	if (spec->new_session)
		setsid();
	if (spec->setup)
		r = spec->setup(spec->arg, &e);
	if (r == 0)
		r = place_fds(spec, &exec_fd, &report_fd, &e);
	if (r == 0) {
		if (exec_fd >= 0)
			execveat(exec_fd, "", spec->argv, envp, AT_EMPTY_PATH);
		else
			execve(spec->path, spec->argv, envp);
		r = err_set(&e, -errno, "exec %s: %s", spec->path ? spec->path : spec->argv[0], strerror(errno));
	}
	e.code = r;
	(void)!fd_write_all(report_fd, &e, sizeof(e)); /* less than a pipe's buffer: all at once */
	_exit(127);
}

/* -- in the parent ----------------------------------------------------------------------------- */

/* What the child has to say: 0 when the program runs. */
static int read_report(int fd, struct err *ret)
{
	int r = fd_read_all(fd, ret, sizeof(*ret));

	if (r == -ENODATA)
		return 0; /* closed by the exec, or by the child's death */
	if (r < 0)
		return err_set(ret, r, "start report: %s", strerror(-r));
	ret->msg[sizeof(ret->msg) - 1] = '\0';
	return ret->code < 0 ? ret->code : -EIO;
}

int proc_spawn(const struct proc_spec *spec, pid_t *ret_pid, int *ret_pidfd, struct err *e)
{
	struct clone_args args = { .flags = spec->clone_flags | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
				   .exit_signal = SIGCHLD };
	struct proc_spec with_null = *spec;
	AUTO_FD report_rd = -1;
	AUTO_FD report_wr = -1;
	AUTO_FD null_fd = -1;
	AUTO_FD pidfd = -1;
	struct err child_err = { 0 };
	sigset_t all, before;
	int pipe_fds[2], r;
	long pid;

	if (spec->nfds > PLACES_MAX - 3)
		return err_set(e, -E2BIG, "%s: more than %d descriptors", spec->name, PLACES_MAX - 3);
	for (int i = 0; i < 3; i++) {
		if (spec->stdio[i] >= 0)
			continue;
		if (null_fd < 0)
			null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
		if (null_fd < 0)
			return err_set(e, -errno, "%s: open /dev/null: %s", spec->name, strerror(errno));
		with_null.stdio[i] = null_fd;
	}
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return err_set(e, -errno, "%s: pipe: %s", spec->name, strerror(errno));
	report_rd = pipe_fds[0];
	report_wr = pipe_fds[1];
	if (spec->cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)spec->cgroup_fd;
	}
	args.pidfd = (uint64_t)(uintptr_t)&pidfd;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		child(&with_null, spec->exec_fd, report_wr);
	r = errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		return err_set(e, -r, "%s: clone3: %s", spec->name, strerror(r));

	fd_close(&report_wr);
	r = read_report(report_rd, &child_err);
	if (r < 0) {
		proc_wait((pid_t)pid, NULL);
		return err_set(e, r, "%s: %s", spec->name, child_err.msg);
	}
	*ret_pid = (pid_t)pid;
	if (ret_pidfd)
		*ret_pidfd = take_fd(&pidfd);
	return 0;
}
