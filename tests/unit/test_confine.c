/* SPDX-License-Identifier: Apache-2.0 */
/* Each case runs in a child, since what it gives up does not come back; the child's exit status is the line that
 * failed. */
#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/confine.h"
#include "base/fd.h"

#define NOBODY 65534

/* In the child: end with a status that tells which check failed. */
#define check(cond)                                                        \
	do {                                                               \
		if (!(cond)) {                                             \
			fprintf(stderr, "line %d: %s\n", __LINE__, #cond); \
			_exit(1);                                          \
		}                                                          \
	} while (0)

static int in_child(void (*fn)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static uint64_t caps(int which)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { 0 } };

	syscall(SYS_capget, &head, d);
	return which ? (uint64_t)d[1].permitted << 32 | d[0].permitted
		     : (uint64_t)d[1].effective << 32 | d[0].effective;
}

static void drop_all(void)
{
	struct err e = { 0 };
	uid_t r, eu, s;

	check(confine_drop(NOBODY, NOBODY, 0, &e) == 0);
	check(getresuid(&r, &eu, &s) == 0 && r == NOBODY && eu == NOBODY && s == NOBODY);
	check(getgid() == NOBODY && getegid() == NOBODY && getgroups(0, NULL) == 0);
	check(caps(0) == 0 && caps(1) == 0);
	for (unsigned long c = 0; c <= CAP_LAST_CAP; c++)
		check(prctl(PR_CAPBSET_READ, c, 0, 0, 0) != 1);
	check(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	check(setresuid(0, 0, 0) < 0 && setresgid(0, 0, 0) < 0);
	/* Not even once more to somebody else. */
	check(confine_drop(NOBODY - 1, NOBODY - 1, 0, &e) == -EPERM && e.msg[0]);
}

static void keep_some(void)
{
	const uint64_t keep = CONFINE_CAP(CAP_KILL) | CONFINE_CAP(CAP_CHECKPOINT_RESTORE);
	uint64_t had = caps(1) & keep;
	struct err e = { 0 };

	/* One of each word of the mask, and one that nobody has. */
	check(confine_drop(NOBODY, NOBODY, keep | CONFINE_CAP(62), &e) == 0);
	check(caps(0) == had && caps(1) == had && (had & CONFINE_CAP(CAP_KILL)));
	check(prctl(PR_CAPBSET_READ, CAP_KILL, 0, 0, 0) == 1);
	check(prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 0);
	check(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_KILL, 0, 0) == 0);
}

static void stay_root(void)
{
	struct err e = { 0 };

	check(confine_drop(0, 0, CONFINE_CAP(CAP_CHOWN), &e) == 0);
	check(geteuid() == 0 && caps(0) == CONFINE_CAP(CAP_CHOWN));
}

/* What a program does with itself: nothing of root is left, and what the table does not name ends it. */
static void whole(void)
{
	static const char *const table[] = { "exit_group", "capget", "write", "newfstatat", "prctl" };
	struct err e = { 0 };

	check(confine_program(table, ARRAY_LEN(table), &e) == 0);
	check(caps(0) == 0 && caps(1) == 0);
	check(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}

static void whole_and_more(void)
{
	whole();
	syscall(SYS_getpid);
}

static void test_program(void **state)
{
	int status;

	(void)state;
	assert_int_equal(in_child(whole), 0);
	status = in_child(whole_and_more);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	assert_int_equal(status, 0);
#else
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
#endif
}

static void test_drop(void **state)
{
	(void)state;
	assert_int_equal(in_child(drop_all), 0);
	assert_int_equal(in_child(keep_some), 0);
	assert_int_equal(in_child(stay_root), 0);
}

static void limits(void)
{
	struct rlimit rl;
	struct err e = { 0 };

	check(confine_rlimit(RLIMIT_NOFILE, "nofile", 100, &e) == 0);
	check(getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur == 100 && rl.rlim_max == 100);
	check(confine_rlimit(1000, "nothing", 1, &e) == -EINVAL);
	check(strstr(e.msg, "limit nothing to 1"));
}

static void test_rlimit(void **state)
{
	(void)state;
	assert_int_equal(in_child(limits), 0);
}

/* Unknown names, and one of another machine, are skipped. */
static const char *const few[] = { "write", "exit_group", "no_such_call", "ppoll", "s390_pci_mmio_read",
				   "write", "!swapon" };

static void allowed(void)
{
	struct err e = { 0 };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(confine_seccomp(few, ARRAY_LEN(few), &e) == 0);
	check(syscall(SYS_swapon, "/x", 0) < 0 && errno == ENOSYS); /* refused, and not killed for it */
	(void)!write(2, "", 0);
}

static void forbidden(void)
{
	allowed();
	syscall(SYS_swapoff, "/x");
}

static void forbidden_after_exec(void)
{
	static const char *const with_exec[] = { "execve",   "write",	   "exit_group", "brk",	       "mmap",
						 "openat",   "read",	   "fstat",	 "newfstatat", "close",
						 "mprotect", "arch_prctl", "access",	 "pread64" };
	struct err e = { 0 };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(confine_seccomp(with_exec, ARRAY_LEN(with_exec), &e) == 0);
	execl("/bin/mkdir", "mkdir", "/tmp/crucible-test-confine-never", (char *)NULL);
}

/* On top of a list that has it, through an exec. */
static void taken_away(void)
{
	static const char *const gone[] = { "getppid", "no_such_call" };
	static const char *const list[] = { "getppid", "getpid", "exit_group", "write" };
	struct err e = { 0 };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(syscall(SYS_getppid) > 0);
	check(confine_seccomp_without(gone, ARRAY_LEN(gone), &e) == 0);
	check(syscall(SYS_getppid) < 0 && errno == ENOSYS);
	check(confine_seccomp(list, ARRAY_LEN(list), &e) == 0); /* the stricter one holds */
	check(syscall(SYS_getppid) < 0 && errno == ENOSYS);
	check(syscall(SYS_getpid) > 0);
}

static int makes(long call, long family)
{
	int pair[2];
	long fd = syscall(call, family, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);

	return fd < 0 ? errno : 0;
}

static void families(void)
{
	static const int others[] = { AF_UNSPEC,    3,	    9,	      11,	 AF_PACKET, AF_RDS, AF_TIPC,
				      AF_BLUETOOTH, AF_ALG, AF_VSOCK, AF_QIPCRTR };
	struct err e = { 0 };

	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(confine_seccomp_families(&e) == 0);
	for (size_t i = 0; i < ARRAY_LEN(others); i++) {
		check(makes(SYS_socket, others[i]) == EAFNOSUPPORT);
		check(makes(SYS_socket, others[i] | 1l << 32) == EAFNOSUPPORT); /* the kernel looks at 32 bits */
		check(makes(SYS_socketpair, others[i]) == EAFNOSUPPORT);
	}
	check(makes(SYS_socket, AF_UNIX) == 0);
	check(makes(SYS_socket, AF_INET) == 0);
	check(makes(SYS_socketpair, AF_UNIX) == 0);
	check(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0) >= 0);
}

static void test_seccomp_families(void **state)
{
	(void)state;
	assert_int_equal(in_child(families), 0);
}

static void test_seccomp_without(void **state)
{
	(void)state;
	assert_int_equal(in_child(taken_away), 0);
}

static void test_has(void **state)
{
	(void)state;
	assert_true(confine_has(0));
	assert_false(confine_has(CONFINE_CAP(63)));
	assert_int_equal(confine_has(CONFINE_CAP(CAP_KILL)), (caps(0) & CONFINE_CAP(CAP_KILL)) != 0);
	assert_int_equal(confine_has(CONFINE_CAP(CAP_SYSLOG)), (caps(0) & CONFINE_CAP(CAP_SYSLOG)) != 0);
}

static void test_seccomp(void **state)
{
	int status;

	(void)state;
	assert_int_equal(in_child(allowed), 0);
	status = in_child(forbidden);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	status = in_child(forbidden_after_exec);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
	assert_int_equal(access("/tmp/crucible-test-confine-never", F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest plain[] = {
		cmocka_unit_test(test_rlimit),
		cmocka_unit_test(test_seccomp),
		cmocka_unit_test(test_seccomp_without),
		cmocka_unit_test(test_seccomp_families),
		cmocka_unit_test(test_has),
	};
	const struct CMUnitTest as_root[] = { cmocka_unit_test(test_drop), cmocka_unit_test(test_program) };
	const char *must = getenv("CRUCIBLE_MUST_RUN");
	int failed = cmocka_run_group_tests_name("confine", plain, NULL, NULL);

	if (geteuid() != 0) {
		fprintf(stderr, "SKIP: giving up privileges needs some\n");
		return failed || (must && *must == '1') ? 1 : 77;
	}
	return failed + cmocka_run_group_tests_name("confine as root", as_root, NULL, NULL);
}
