/* SPDX-License-Identifier: Apache-2.0 */
#include "base/confine.h"

#include <grp.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

/* Should: make it impossible to get a capability back by executing something. Mustn't: fail on a kernel that knows
 * fewer capabilities than our headers (EINVAL ends the list). */
static int drop_bounding(uint64_t keep, struct err *e)
{
	for (unsigned long cap = 0; cap < 64; cap++) {
		int have = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

		if (have < 0)
			break;
		if (have == 0 || (keep & CONFINE_CAP(cap)))
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return err_set(e, -errno, "capability %lu: drop from the bounding set: %s", cap,
				       strerror(errno));
	}
	return 0;
}

/* Should: leave exactly @keep. Mustn't: be called before the uid is changed, which needs capabilities itself. */
static int set_caps(uint64_t keep, struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (uint32_t)keep, .permitted = (uint32_t)keep },
		{ .effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32) },
	};

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
		return err_set(e, -errno, "clear ambient capabilities: %s", strerror(errno));
	if (syscall(SYS_capset, &head, data) < 0)
		return err_set(e, -errno, "capset: %s", strerror(errno));
	memset(data, 0xff, sizeof(data));
	if (syscall(SYS_capget, &head, data) < 0)
		return err_set(e, -errno, "capget: %s", strerror(errno));
	if (data[0].permitted != (uint32_t)keep || data[1].permitted != (uint32_t)(keep >> 32) || data[0].inheritable ||
	    data[1].inheritable)
		return err_set(e, -EPERM, "capabilities were not given up");
	return 0;
}

/* What of @mask we have. */
static uint64_t held_caps(uint64_t mask)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	if (syscall(SYS_capget, &head, data) < 0)
		return 0;
	return mask & ((uint64_t)data[1].permitted << 32 | data[0].permitted);
}

bool confine_has(uint64_t caps)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	if (syscall(SYS_capget, &head, data) < 0)
		return false;
	return (caps & ~((uint64_t)data[1].effective << 32 | data[0].effective)) == 0;
}

/* Should: change all three ids of both kinds. Mustn't: leave a supplementary group. */
static int set_ids(uid_t uid, gid_t gid, struct err *e)
{
	uid_t ru, eu, su;
	gid_t rg, eg, sg;

	/* A process that was confined before its exec may do this again to itself: it has none and may not even ask. */
	if (getgroups(0, NULL) != 0 && setgroups(0, NULL) < 0)
		return err_set(e, -errno, "setgroups: %s", strerror(errno));
	if (setresgid(gid, gid, gid) < 0)
		return err_set(e, -errno, "setresgid %u: %s", gid, strerror(errno));
	if (setresuid(uid, uid, uid) < 0)
		return err_set(e, -errno, "setresuid %u: %s", uid, strerror(errno));
	if (getresuid(&ru, &eu, &su) < 0 || getresgid(&rg, &eg, &sg) < 0 || ru != uid || eu != uid || su != uid ||
	    rg != gid || eg != gid || sg != gid)
		return err_set(e, -EPERM, "ids were not changed");
	return 0;
}

int confine_drop(uid_t uid, gid_t gid, uint64_t keep_caps, struct err *e)
{
	int r;

	keep_caps = held_caps(keep_caps);
	r = drop_bounding(keep_caps, e);
	if (r < 0)
		return r;
	/* Cleared again by the kernel at the next exec. */
	if (keep_caps && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		return err_set(e, -errno, "keep capabilities: %s", strerror(errno));
	r = set_ids(uid, gid, e);
	if (r < 0)
		return r;
	r = set_caps(keep_caps, e);
	if (r < 0)
		return r;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_set(e, -errno, "no_new_privs: %s", strerror(errno));
	return 0;
}

int confine_rlimit(int resource, const char *name, uint64_t value, struct err *e)
{
	struct rlimit rl = { .rlim_cur = value, .rlim_max = value };

	if (setrlimit((__rlimit_resource_t)resource, &rl) < 0)
		return err_set(e, -errno, "limit %s to %llu: %s", name, (unsigned long long)value, strerror(errno));
	return 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* What the sanitizers' own code calls; the leak checker stops its process with ptrace from a helper. They go
 * first: the first rule for a call stands, and a list may refuse some of them. */
static const char *const sanitizer_syscalls[] = {
	"clone",       "fork",	      "getpid",	      "gettid",		  "getrlimit",
	"kill",	       "madvise",     "mmap",	      "mprotect",	  "munmap",
	"open",	       "openat",      "prctl",	      "prlimit64",	  "ptrace",
	"read",	       "readlink",    "rt_sigaction", "rt_sigprocmask",	  "sched_getaffinity",
	"sched_yield", "sigaltstack", "stat",	      "newfstatat",	  "wait4",
	"write",       "getdents64",  "close",	      "set_robust_list",  "tgkill",
	"exit",	       "exit_group",  "futex",	      "process_vm_readv", "personality",
};
#endif

static int add_rule(scmp_filter_ctx ctx, const char *name, struct err *e)
{
	bool denied = name[0] == '!';
	int nr = seccomp_syscall_resolve_name(name + denied), r;

	/* Negative: unknown, or known to libseccomp but absent on this machine. */
	if (nr < 0)
		return 0;
	r = seccomp_rule_add(ctx, denied ? SCMP_ACT_ERRNO(ENOSYS) : SCMP_ACT_ALLOW, nr, 0);
	if (r < 0 && r != -EEXIST)
		return err_set(e, r, "seccomp: %s: %s", name, strerror(-r));
	return 0;
}

/* A filter with that answer for what no rule speaks of. NULL: no memory. */
static scmp_filter_ctx new_filter(uint32_t otherwise, struct err *e)
{
	scmp_filter_ctx ctx = seccomp_init(otherwise);
	int r = ctx ? 0 : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r < 0) {
		err_set(e, r, "seccomp: attributes: %s", strerror(-r));
		seccomp_release(ctx);
		return NULL;
	}
	/* A binary tree instead of a list; older libraries do not know it, and work without. */
	seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	return ctx;
}

static int load_filter(scmp_filter_ctx ctx, struct err *e)
{
	int r = seccomp_load(ctx);

	return r < 0 ? err_set(e, r, "seccomp: load: %s", strerror(-r)) : 0;
}

int confine_seccomp(const char *const names[], size_t n, struct err *e)
{
	scmp_filter_ctx ctx = new_filter(SCMP_ACT_KILL_PROCESS, e);
	int r = 0;

	if (!ctx)
		return -ENOMEM;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	for (size_t i = 0; i < ARRAY_LEN(sanitizer_syscalls) && r == 0; i++)
		r = add_rule(ctx, sanitizer_syscalls[i], e);
#endif
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_rule(ctx, names[i], e);
	if (r == 0)
		r = load_filter(ctx, e);
	seccomp_release(ctx);
	return r;
}

int confine_program(const char *const names[], size_t n, struct err *e)
{
	int r = confine_drop(getuid(), getgid(), 0, e);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	(void)names, (void)n;
#else
	if (r == 0)
		r = confine_seccomp(names, n, e);
#endif
	return r;
}

int confine_seccomp_without(const char *const names[], size_t n, struct err *e)
{
	scmp_filter_ctx ctx = new_filter(SCMP_ACT_ALLOW, e);
	int r = 0;

	if (!ctx)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++) {
		int nr = seccomp_syscall_resolve_name(names[i]);

		if (nr >= 0) /* else unknown here, so that nobody can call it */
			r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), nr, 0);
		if (r < 0)
			err_set(e, r, "seccomp: without %s: %s", names[i], strerror(-r));
	}
	if (r == 0)
		r = load_filter(ctx, e);
	seccomp_release(ctx);
	return r;
}

int confine_seccomp_families(struct err *e)
{
	static const char *const calls[] = { "socket", "socketpair" };
	static const int last = AF_NETLINK; /* of those that are left */
	scmp_filter_ctx ctx = new_filter(SCMP_ACT_ALLOW, e);
	int r = 0;

	if (!ctx)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_LEN(calls) && r == 0; i++) {
		int nr = seccomp_syscall_resolve_name(calls[i]);

		/* The kernel takes an int, the filter compares 64 bits: what is set above them is beyond, too. */
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), nr, 1, SCMP_A0(SCMP_CMP_GT, last));
		for (int family = 0; family < last && r == 0; family++)
			if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
				r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EAFNOSUPPORT), nr, 1,
						     SCMP_A0(SCMP_CMP_EQ, family));
		if (r < 0)
			err_set(e, r, "seccomp: families of %s: %s", calls[i], strerror(-r));
	}
	if (r == 0)
		r = load_filter(ctx, e);
	seccomp_release(ctx);
	return r;
}
