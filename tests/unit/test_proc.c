/* SPDX-License-Identifier: Apache-2.0 */
/* This program starts itself under the name "probe", which says what it was given. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/proc.h"

static int probe(void)
{
	struct sigaction sa;
	sigset_t mask;
	int ignored = 0, blocked = 0, env = 0;
	char line[32];

	for (char **v = environ; *v; v++)
		env++;
	sigprocmask(SIG_SETMASK, NULL, &mask);
	for (int s = 1; s < 32; s++) {
		sigaction(s, NULL, &sa);
		ignored += sa.sa_handler == SIG_IGN;
		blocked += sigismember(&mask, s) == 1;
	}
	printf("env=%d ignored=%d blocked=%d session=%d fds=", env, ignored, blocked, getsid(0) == getpid());
	for (int fd = 0; fd < 64; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf("%d,", fd);
	/* Descriptors from 3 on are pipes with a word each. */
	for (int fd = 3; fcntl(fd, F_GETFD) >= 0; fd++) {
		ssize_t n = read(fd, line, sizeof(line) - 1);

		printf(" %.*s", (int)(n > 0 ? n : 0), line);
	}
	printf("\n");
	fflush(stdout);
	_exit(5);
}

static int self_fd(void)
{
	return open("/proc/self/exe", O_PATH | O_CLOEXEC);
}

static int word_pipe(const char *word)
{
	int p[2];

	assert_int_equal(pipe2(p, O_CLOEXEC), 0);
	assert_int_equal(write(p[1], word, strlen(word)), strlen(word));
	close(p[1]);
	return p[0];
}

static void slurp_pipe(int fd, char *out, size_t cap)
{
	size_t n = 0;
	ssize_t got;

	while (n < cap - 1 && (got = read(fd, out + n, cap - 1 - n)) > 0)
		n += (size_t)got;
	out[n] = '\0';
}

static void test_descriptors_signals_environment(void **state)
{
	char *argv[] = { (char *)"probe", NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	int out[2], fds[3], status, pidfd = -1;
	struct err e = { 0 };
	char text[512];
	sigset_t usr1;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	/* In the wrong order and in each other's places, so that placing them one by one would overwrite some. */
	fds[2] = word_pipe("two");
	fds[1] = word_pipe("one");
	fds[0] = word_pipe("zero");
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	signal(SIGHUP, SIG_IGN);
	(void)!fcntl(2, F_DUPFD, 40); /* not close-on-exec, and yet not handed on */
	spec.name = "probe";
	spec.exec_fd = self_fd();
	spec.argv = argv;
	spec.stdio[1] = out[1];
	spec.fds = fds;
	spec.nfds = 3;
	spec.new_session = true;
	if (proc_spawn(&spec, &pid, &pidfd, &e) < 0)
		fail_msg("%s", e.msg);
	close(out[1]);
	slurp_pipe(out[0], text, sizeof(text));
	assert_string_equal(text, "env=0 ignored=0 blocked=0 session=1 fds=0,1,2,3,4,5, zero one two\n");
	assert_true(pidfd >= 0);
	assert_int_equal(poll(&(struct pollfd){ .fd = pidfd, .events = POLLIN }, 1, 20000), 1);
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_int_equal(WEXITSTATUS(status), 5);
	assert_int_equal(proc_wait(pid, &status), -ECHILD);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	close(out[0]);
	close(pidfd);
	close(spec.exec_fd);
	close(40);
	sigprocmask(SIG_UNBLOCK, &usr1, NULL);
	signal(SIGHUP, SIG_DFL);
}

static void test_exec_fails_in_words(void **state)
{
	char *argv[] = { (char *)"x", NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = { 0 };
	pid_t pid = 77;

	(void)state;
	spec.name = "box";
	spec.argv = argv;
	spec.path = "/nonexistent/program";
	assert_int_equal(proc_spawn(&spec, &pid, NULL, &e), -ENOENT);
	assert_string_equal(e.msg, "box: exec /nonexistent/program: No such file or directory");
	spec.path = "/proc/self/status";
	assert_int_equal(proc_spawn(&spec, &pid, NULL, &e), -EACCES);
	assert_int_equal(pid, 77);			  /* untouched */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* and nobody to bury */
	assert_int_equal(errno, ECHILD);
}

static int refuse(void *arg, struct err *e)
{
	return err_set(e, -EDOM, "setup says %s", (const char *)arg);
}

static int die(void *arg, struct err *e)
{
	(void)arg, (void)e;
	raise(SIGKILL);
	return 0;
}

static void test_setup_errors_and_death(void **state)
{
	char *argv[] = { (char *)"x", NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = { 0 };
	int status;
	pid_t pid;

	(void)state;
	spec.name = "engine";
	spec.argv = argv;
	spec.path = "/bin/true";
	spec.setup = refuse;
	spec.arg = (char *)"no";
	assert_int_equal(proc_spawn(&spec, &pid, NULL, &e), -EDOM);
	assert_string_equal(e.msg, "engine: setup says no");
	spec.setup = die; /* as if it had run and died at once */
	assert_int_equal(proc_spawn(&spec, &pid, NULL, &e), 0);
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_true(WIFSIGNALED(status));
}

static void test_too_many_descriptors_e2big(void **state)
{
	char *argv[] = { (char *)"x", NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	int fds[100] = { 0 };
	struct err e = { 0 };
	pid_t pid;

	(void)state;
	spec.name = "x";
	spec.argv = argv;
	spec.path = "/bin/true";
	spec.fds = fds;
	spec.nfds = ARRAY_LEN(fds);
	assert_int_equal(proc_spawn(&spec, &pid, NULL, &e), -E2BIG);
	fds[0] = 999; /* not open */
	spec.nfds = 1;
	assert_int_equal(proc_spawn(&spec, &pid, NULL, &e), -EBADF);
	assert_non_null(strstr(e.msg, "descriptor 999"));
	spec.nfds = 0;
	spec.clone_flags = UINT64_C(1) << 63;
	assert_int_equal(proc_spawn(&spec, &pid, NULL, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "clone3"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_descriptors_signals_environment),
		cmocka_unit_test(test_exec_fails_in_words),
		cmocka_unit_test(test_setup_errors_and_death),
		cmocka_unit_test(test_too_many_descriptors_e2big),
	};

	if (argc > 0 && !strcmp(argv[0], "probe"))
		probe();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
