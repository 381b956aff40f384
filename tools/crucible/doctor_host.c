/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's part of `doctor`. */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/doctor.h"
#include "tools/crucible/table.h"

#define PROC_TEXT_MAX	 (64u * 1024)
#define MEMORY_LEAST_MIB 1024u

void check_kernel(struct doctor *d, struct finding *f)
{
	struct utsname u;

	(void)d;
	if (uname(&u) < 0) {
		find(f, LEVEL_WARN, "uname: %s", strerror(errno));
		return;
	}
	if (strcmp(u.machine, "x86_64") != 0) {
		find(f, LEVEL_BAD, "%s %s on %s: guests are x86-64 and need an x86-64 host", u.sysname, u.release,
		     u.machine);
		return;
	}
	find(f, LEVEL_OK, "%s %s %s", u.sysname, u.release, u.machine);
}

/* "MemAvailable:   123 kB" of /proc/meminfo, in bytes; 0 when it is not there. */
static uint64_t meminfo(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

void check_memory(struct doctor *d, struct finding *f)
{
	AUTO_FREE char *text = NULL;
	char total_text[24], free_text[24];
	uint64_t total, available;
	int r = fd_slurp(AT_FDCWD, "/proc/meminfo", PROC_TEXT_MAX, &text, NULL);

	(void)d;
	if (r < 0) {
		find(f, LEVEL_WARN, "/proc/meminfo: %s", strerror(-r));
		return;
	}
	total = meminfo(text, "MemTotal:");
	available = meminfo(text, "MemAvailable:");
	find(f, available >> 20 < MEMORY_LEAST_MIB ? LEVEL_WARN : LEVEL_OK, "%s, %s available",
	     table_size(total, total_text), table_size(available, free_text));
	if (f->level == LEVEL_WARN)
		mend(f,
		     "free some: a sandbox takes 512 MiB by default, and new ones are refused below memory_floor_mib");
}

void check_kvm(struct doctor *d, struct finding *f)
{
	AUTO_FD fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);

	(void)d;
	/* Being there says little: a nested host can offer a KVM that no kernel boots on. The trial boot decides
	 * ("accelerator"). */
	if (fd >= 0)
		find(f, LEVEL_OK, "/dev/kvm can be opened; whether a guest boots with it, the daemon tries by itself");
	else if (errno == ENOENT)
		find(f, LEVEL_INFO, "no /dev/kvm: software emulation (tcg) is used, several times slower");
	else if (errno == EACCES || errno == EPERM)
		find(f, LEVEL_INFO, "/dev/kvm is there, not for this user; the daemon opens it as root");
	else
		find(f, LEVEL_INFO, "/dev/kvm: %s", strerror(errno));
}

void check_fuse(struct doctor *d, struct finding *f)
{
	(void)d;
	if (access("/dev/fuse", F_OK) == 0) {
		find(f, LEVEL_OK, "/dev/fuse is there");
		return;
	}
	find(f, LEVEL_BAD, "no /dev/fuse: the tree cannot be mounted");
	mend(f, "modprobe fuse");
}

void check_userfaultfd(struct doctor *d, struct finding *f)
{
	AUTO_FD fd = -1;

	(void)d;
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (fd >= 0 || access("/dev/userfaultfd", F_OK) == 0) {
		find(f, LEVEL_OK, "available: forks load their memory as they use it");
		return;
	}
	find(f, LEVEL_INFO, "not available: %s; forks wait until all memory of their snapshot is loaded",
	     strerror(errno));
	mend(f, "sysctl vm.unprivileged_userfaultfd=1");
}

void check_io_uring(struct doctor *d, struct finding *f)
{
	(void)d;
	/* No parameters: EFAULT says that the call itself is permitted. */
	if (syscall(SYS_io_uring_setup, 1, NULL) >= 0 || errno == EFAULT || errno == EINVAL) {
		find(f, LEVEL_OK, "available: the store reads with it");
		return;
	}
	find(f, LEVEL_INFO, "not available: %s; the store reads with threads", strerror(errno));
	if (errno == EPERM)
		mend(f, "sysctl kernel.io_uring_disabled=0");
}

/* Without any of it sandboxes work, and have no network. */
void check_tun(struct doctor *d, struct finding *f)
{
	AUTO_FD fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	(void)d;
	if (fd >= 0 || errno == EACCES) {
		find(f, LEVEL_OK, "/dev/net/tun is there");
	} else if (errno == EPERM) {
		find(f, LEVEL_WARN, "/dev/net/tun may not be opened here: sandboxes have no network");
		mend(f, "give the container that device (docker run --device /dev/net/tun)");
	} else {
		find(f, LEVEL_WARN, "no /dev/net/tun: sandboxes have no network");
		mend(f, "modprobe tun");
	}
}

/* -- cgroups ----------------------------------------------------------------------------------------------------- */

static const char *const controllers[] = { "cpu", "memory", "pids", "io" };

/* Is @word one of the words of @text? */
static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = text; (p = strstr(p, word)); p += n) {
		if ((p == text || strchr(" \n\t", p[-1])) && (!p[n] || strchr(" \n\t", p[n])))
			return true;
	}
	return false;
}

/* The version 1 name of a controller's hierarchy is the first word of a line of /proc/cgroups; "io" was "blkio". */
static bool has_v1(const char *text, const char *name)
{
	char line[32];

	snprintf(line, sizeof(line), "\n%s\t", strcmp(name, "io") == 0 ? "blkio" : name);
	return strstr(text, line) != NULL;
}

void check_cgroups(struct doctor *d, struct finding *f)
{
	AUTO_FREE char *v2 = NULL;
	AUTO_FREE char *v1 = NULL;
	char missing[64] = "";

	(void)d;
	if (fd_slurp(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", PROC_TEXT_MAX, &v2, NULL) < 0)
		v2 = NULL;
	if (fd_slurp(AT_FDCWD, "/proc/cgroups", PROC_TEXT_MAX, &v1, NULL) < 0)
		v1 = NULL;
	for (size_t i = 0; i < ARRAY_LEN(controllers); i++) {
		if ((v2 && has_word(v2, controllers[i])) || (v1 && has_v1(v1, controllers[i])))
			continue;
		list_word(missing, sizeof(missing), controllers[i]);
	}
	if (*missing) {
		find(f, LEVEL_WARN, "%s; without: %s (each record names what was not enforced)",
		     v2	  ? "version 2"
		     : v1 ? "version 1"
			  : "none",
		     missing);
		mend(f, "boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup");
		return;
	}
	find(f, LEVEL_OK, "%s with cpu memory pids io",
	     v2 && has_word(v2, "memory") ? "version 2"
	     : v2			  ? "versions 1 and 2"
					  : "version 1");
}
