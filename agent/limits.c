/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/limits.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define FILE_MAX      (64u * 1024) /* of a cgroup file; longer is cut */
#define DEPTH_MAX     16	   /* of cgroups that a command made below its own */
#define RESERVE_MIN   (16ull << 20)
#define RESERVE_MAX   (64ull << 20)
#define RESERVE_TASKS 256u

/* -- files -------------------------------------------------------------------------- */

static int write_at(int dirfd, const char *file, const char *text)
{
	AUTO_FD fd = openat(dirfd, file, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return fd_write_all(fd, text, strlen(text));
}

static int write_u64(int dirfd, const char *file, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	return write_at(dirfd, file, text);
}

/* The whole text into @out, cut at @cap; -errno. */
static int read_at(int dirfd, const char *file, char *out, size_t cap)
{
	AUTO_FD fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	while (len < cap - 1 && (n = read(fd, out + len, cap - 1 - len)) != 0) {
		if (n < 0 && errno != EINTR)
			return -errno;
		len += n > 0 ? (size_t)n : 0;
	}
	out[len] = '\0';
	return 0;
}

/* The number behind @key at the start of a line ("oom_kill 3"). */
static uint64_t keyed_value(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (strncmp(p, key, len) == 0 && p[len] == ' ')
			return strtoull(p + len + 1, NULL, 10);
	}
	return 0;
}

/* The sum of all "key=N" in a text of several devices. */
static uint64_t sum_values(const char *text, const char *key)
{
	size_t len = strlen(key);
	uint64_t sum = 0;

	for (const char *p = strstr(text, key); p; p = strstr(p + len, key))
		sum += strtoull(p + len, NULL, 10);
	return sum;
}

/* -- all commands together ---------------------------------------------------------- */

/* Give the children of @dirfd one controller. */
static bool enable(int dirfd, const char *controller)
{
	char text[16];

	snprintf(text, sizeof(text), "+%s", controller);
	return write_at(dirfd, "cgroup.subtree_control", text) == 0;
}

static bool enable_both(int top_fd, int cmds_fd, const char *controller)
{
	return enable(top_fd, controller) && enable(cmds_fd, controller);
}

/* How many tasks all commands may have, so that some are left for the agent and the kernel. 0: not known. */
static uint64_t usable_tasks(const struct guest *g)
{
	char text[32] = "";
	uint64_t all;

	if (g->proc_fd < 0 || read_at(g->proc_fd, "sys/kernel/threads-max", text, sizeof(text)) < 0)
		return 0;
	all = strtoull(text, NULL, 10);
	return all > 2 * RESERVE_TASKS ? all - RESERVE_TASKS : all / 2;
}

/* How much memory all commands may have: what is free when nothing runs yet, less a reserve. So they meet their own
 * limit before the kernel meets its end, and the agent can always act. 0: not known. */
static uint64_t usable_memory(const struct guest *g)
{
	uint64_t total, free_now, reserve;
	char text[4096] = "";

	if (g->proc_fd < 0 || read_at(g->proc_fd, "meminfo", text, sizeof(text)) < 0)
		return 0;
	total = keyed_value(text, "MemTotal:") * 1024;
	free_now = keyed_value(text, "MemAvailable:") * 1024;
	reserve = total / 32;
	if (reserve < RESERVE_MIN)
		reserve = RESERVE_MIN;
	if (reserve > RESERVE_MAX)
		reserve = RESERVE_MAX;
	return free_now > 2 * reserve ? free_now - reserve : free_now / 2;
}

void limits_init(struct limits *l, const struct guest *g, struct unenforced *u)
{
	AUTO_FD cmds = -1;

	*l = (struct limits){ .cmds_fd = -1, .tasks = usable_tasks(g), .memory_bytes = usable_memory(g) };
	if (g->cgroup_fd < 0) {
		unenforced_add(u, "cgroups: none in this guest: limits of commands, kill of whole process trees");
		return;
	}
	if (mkdirat(g->cgroup_fd, "cmds", 0755) < 0 && errno != EEXIST)
		unenforced_add(u, "cgroups: cannot make cmds: %s", strerror(errno));
	cmds = openat(g->cgroup_fd, "cmds", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cmds < 0) {
		unenforced_add(u, "cgroups: cannot open cmds: %s", strerror(errno));
		return;
	}
	l->memory = enable_both(g->cgroup_fd, cmds, "memory");
	l->pids = enable_both(g->cgroup_fd, cmds, "pids");
	l->cpu = enable_both(g->cgroup_fd, cmds, "cpu");
	enable_both(g->cgroup_fd, cmds, "io"); /* counts only */
	l->cmds_fd = take_fd(&cmds);
	if (!l->memory)
		unenforced_add(u, "cgroups: no memory controller: memory limits, oom_killed");
	if (!l->pids)
		unenforced_add(u, "cgroups: no pids controller: limits of processes");
	if (!l->cpu)
		unenforced_add(u, "cgroups: no cpu controller: cpu_percent");
	limits_set_total(l, 0, 0, 0, u);
}

static uint64_t smaller_limit(uint64_t a, uint64_t b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/* Remember what a write that ended with @r has set. Returns @r. */
static int set_once(int r, uint64_t value, uint64_t *set)
{
	*set = r < 0 ? 0 : value;
	return r;
}

void limits_set_total(struct limits *l, uint64_t memory_bytes, uint64_t cpu_percent, uint64_t pids,
		      struct unenforced *u)
{
	char text[48];

	if (l->cmds_fd < 0)
		return;
	memory_bytes = smaller_limit(memory_bytes, l->memory_bytes);
	pids = smaller_limit(pids, l->tasks);
	if (l->memory && memory_bytes && memory_bytes != l->total.memory_bytes &&
	    set_once(write_u64(l->cmds_fd, "memory.max", memory_bytes), memory_bytes, &l->total.memory_bytes) < 0)
		unenforced_add(u, "cgroups: cannot set the memory limit of all commands");
	if (l->pids && pids && pids != l->total.pids &&
	    set_once(write_u64(l->cmds_fd, "pids.max", pids), pids, &l->total.pids) < 0)
		unenforced_add(u, "cgroups: cannot set the limit of processes");
	/* What a fork bomb leaves behind lives on when its command has ended: the next command must still be able to
	 * begin. */
	l->tasks_of_one = pids - pids / 8;
	if (!l->cpu || (l->total.cpu_known && cpu_percent == l->total.cpu_percent))
		return;
	if (cpu_percent)
		snprintf(text, sizeof(text), "%llu 100000", (unsigned long long)cpu_percent * 1000);
	else
		snprintf(text, sizeof(text), "max 100000");
	l->total.cpu_known = set_once(write_at(l->cmds_fd, "cpu.max", text), cpu_percent, &l->total.cpu_percent) == 0;
	if (!l->total.cpu_known)
		unenforced_add(u, "cgroups: cannot set cpu_percent");
}

void limits_kill_all(struct limits *l)
{
	if (l->cmds_fd >= 0)
		write_at(l->cmds_fd, "cgroup.kill", "1");
}

int limits_freeze(struct limits *l, bool on)
{
	return l->cmds_fd < 0 ? -ENOENT : write_at(l->cmds_fd, "cgroup.freeze", on ? "1" : "0");
}

bool limits_frozen(const struct limits *l)
{
	char text[256] = "";

	return l->cmds_fd >= 0 && read_at(l->cmds_fd, "cgroup.events", text, sizeof(text)) == 0 &&
	       keyed_value(text, "frozen") == 1;
}

void limits_fini(struct limits *l)
{
	/* `cmds` itself stays: in a guest it goes with the guest, in a test with the test's own cgroup. */
	limits_kill_all(l);
	fd_close(&l->cmds_fd);
}

/* -- one command -------------------------------------------------------------------- */

static void make_name(struct limits *l, const char *label, char out[64])
{
	int n = snprintf(out, 64, "%llu", (unsigned long long)++l->serial);
	size_t len = (size_t)n;

	if (!label || !*label)
		return;
	out[len++] = '-';
	for (; *label && len < 48; label++)
		out[len++] = isalnum((unsigned char)*label) || strchr("-_", *label) ? *label : '_';
	out[len] = '\0';
}

int cgroup_make(struct limits *l, const struct cgroup_limits *want, struct cgroup *ret, struct err *e)
{
	struct cgroup c = CGROUP_NONE;
	uint64_t pids = l->pids ? smaller_limit(want->pids, l->tasks_of_one) : 0;
	int r;

	if ((want->memory_bytes && !l->memory) || (want->pids && !l->pids))
		return err_set(e, -ENOTSUP, "a limit was asked for, and this guest has no %s controller",
			       want->memory_bytes && !l->memory ? "memory" : "pids");
	if (l->cmds_fd < 0) {
		*ret = c;
		return 0;
	}
	make_name(l, want->label, c.name);
	if (mkdirat(l->cmds_fd, c.name, 0755) < 0)
		return err_set(e, -errno, "cgroup %s: %s", c.name, strerror(errno));
	c.fd = openat(l->cmds_fd, c.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = c.fd < 0 ? -errno : 0;
	if (r == 0 && want->memory_bytes)
		r = write_u64(c.fd, "memory.max", want->memory_bytes);
	if (r == 0 && pids)
		r = write_u64(c.fd, "pids.max", pids);
	if (r < 0) {
		cgroup_remove(l, &c);
		return err_set(e, r, "cgroup of the command: limits: %s", strerror(-r));
	}
	*ret = c;
	return 0;
}

int cgroup_kill(const struct cgroup *c)
{
	return c->fd < 0 ? -ENOENT : write_at(c->fd, "cgroup.kill", "1");
}

static void signal_each(int dirfd, int signo, int depth);

/* Call @fn for each cgroup right below @dirfd. */
static void each_child(int dirfd, int arg, int depth, void (*fn)(int dirfd, const char *name, int arg, int depth))
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		fd_close(&fd);
		return;
	}
	for (struct dirent *de; (de = readdir(d));)
		if (de->d_type == DT_DIR && de->d_name[0] != '.')
			fn(dirfd, de->d_name, arg, depth);
	closedir(d);
}

static void signal_child(int dirfd, const char *name, int signo, int depth)
{
	AUTO_FD fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		signal_each(fd, signo, depth + 1);
}

static void signal_each(int dirfd, int signo, int depth)
{
	AUTO_FREE char *text = malloc(FILE_MAX);

	if (!text || depth > DEPTH_MAX)
		return;
	if (read_at(dirfd, "cgroup.procs", text, FILE_MAX) == 0) {
		for (char *p = text, *end; *p; p = end + (*end == '\n')) {
			long pid = strtol(p, &end, 10);

			if (end == p)
				break;
			if (pid > 1)
				kill((pid_t)pid, signo);
		}
	}
	each_child(dirfd, signo, depth, signal_child);
}

void cgroup_signal(const struct cgroup *c, int signo)
{
	if (c->fd >= 0)
		signal_each(c->fd, signo, 0);
}

bool cgroup_is_empty(const struct cgroup *c)
{
	char text[256] = "";

	if (c->fd < 0 || read_at(c->fd, "cgroup.events", text, sizeof(text)) < 0)
		return true;
	return keyed_value(text, "populated") == 0;
}

int cgroup_watch(const struct cgroup *c)
{
	int fd = c->fd < 0 ? -1 : openat(c->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static void remove_child(int dirfd, const char *name, int arg, int depth)
{
	AUTO_FD fd = -1;

	if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || depth > DEPTH_MAX)
		return;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	each_child(fd, arg, depth + 1, remove_child);
	unlinkat(dirfd, name, AT_REMOVEDIR);
}

int cgroup_remove(struct limits *l, struct cgroup *c)
{
	if (c->name[0] == '\0')
		return 0;
	if (unlinkat(l->cmds_fd, c->name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
		/* Something lives, or the command made cgroups below its own. */
		if (!cgroup_is_empty(c))
			return -EBUSY;
		remove_child(l->cmds_fd, c->name, 0, 0);
		if (faccessat(l->cmds_fd, c->name, F_OK, 0) == 0)
			return -EBUSY;
	}
	fd_close(&c->fd);
	c->name[0] = '\0';
	return 0;
}

void cgroup_usage_get(const struct cgroup *c, struct cgroup_usage *ret)
{
	char text[4096] = "";

	*ret = (struct cgroup_usage){ .valid = c->fd >= 0 };
	if (!ret->valid)
		return;
	if (read_at(c->fd, "cpu.stat", text, sizeof(text)) == 0) {
		ret->cpu_user_us = keyed_value(text, "user_usec");
		ret->cpu_sys_us = keyed_value(text, "system_usec");
	}
	if (read_at(c->fd, "memory.peak", text, sizeof(text)) == 0) {
		ret->has_memory = true;
		ret->memory_peak_bytes = strtoull(text, NULL, 10);
	}
	/* Hierarchical: a victim in a cgroup that the command made below counts as well. */
	if (read_at(c->fd, "memory.events", text, sizeof(text)) == 0)
		ret->oom_killed = keyed_value(text, "oom_kill") > 0;
	if (read_at(c->fd, "io.stat", text, sizeof(text)) == 0) {
		ret->has_io = true;
		ret->io_read_bytes = sum_values(text, "rbytes=");
		ret->io_write_bytes = sum_values(text, "wbytes=");
	}
}
