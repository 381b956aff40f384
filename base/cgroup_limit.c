/* SPDX-License-Identifier: Apache-2.0 */
/* Limits and readings: the files of v2 and of v1, side by side. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/cgroup_priv.h"
#include "base/fd.h"

#define CPU_PERIOD_US 100000u

static int put_u64(const struct cgroup_tree *t, const char *path, const char *file, uint64_t v)
{
	char text[32];

	snprintf(text, sizeof(text), "%" PRIu64, v);
	return cgroup_file_put(t, path, file, text);
}

static int limit_memory(const struct cgroup_tree *t, const char *path, const struct cgroup_limits *l)
{
	uint64_t with_swap = l->memory_bytes > UINT64_MAX / 2 ? UINT64_MAX : l->memory_bytes * 2;
	int r;

	/* Swap accounting may be off: no swap limit then, which is no memory limit broken. */
	if (t->v2) {
		r = put_u64(t, path, "memory.max", l->memory_bytes);
		put_u64(t, path, "memory.swap.max", l->memory_bytes);
		/* A machine whose engine lost one thread's process is no machine: all or none. */
		cgroup_file_put(t, path, "memory.oom.group", "1");
	} else {
		r = put_u64(t, path, "memory.limit_in_bytes", l->memory_bytes);
		put_u64(t, path, "memory.memsw.limit_in_bytes", with_swap);
	}
	return r;
}

static int limit_cpu(const struct cgroup_tree *t, const char *path, const struct cgroup_limits *l)
{
	uint64_t quota_us = (uint64_t)l->cpu_percent * CPU_PERIOD_US / 100;
	char text[64];
	int r;

	if (t->v2) {
		snprintf(text, sizeof(text), "%" PRIu64 " %u", quota_us, CPU_PERIOD_US);
		return cgroup_file_put(t, path, "cpu.max", text);
	}
	r = put_u64(t, path, "cpu.cfs_period_us", CPU_PERIOD_US);
	return r < 0 ? r : put_u64(t, path, "cpu.cfs_quota_us", quota_us);
}

static int limit_pids(const struct cgroup_tree *t, const char *path, const struct cgroup_limits *l)
{
	return put_u64(t, path, "pids.max", l->pids);
}

/* Limits are for whole disks: a partition stands for its disk. 0 when @dev is no disk (tmpfs, btrfs, overlayfs). */
static dev_t disk_of(dev_t dev)
{
	AUTO_FREE char *text = NULL;
	unsigned long maj, min;
	char path[64], *end;

	if (major(dev) == 0)
		return 0;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/partition", major(dev), minor(dev));
	if (access(path, F_OK) < 0)
		return dev;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/../dev", major(dev), minor(dev));
	if (fd_slurp(AT_FDCWD, path, 64, &text, NULL) < 0)
		return 0;
	maj = strtoul(text, &end, 10);
	if (*end != ':')
		return 0;
	min = strtoul(end + 1, &end, 10);
	return makedev((unsigned int)maj, (unsigned int)min);
}

static int limit_io(const struct cgroup_tree *t, const char *path, const struct cgroup_limits *l)
{
	dev_t disk = disk_of(l->io_dev);
	char text[128];
	int r;

	if (disk == 0)
		return -ENODEV;
	if (t->v2) {
		snprintf(text, sizeof(text), "%u:%u rbps=%" PRIu64 " wbps=%" PRIu64, major(disk), minor(disk),
			 l->io_bytes_per_s, l->io_bytes_per_s);
		return cgroup_file_put(t, path, "io.max", text);
	}
	snprintf(text, sizeof(text), "%u:%u %" PRIu64, major(disk), minor(disk), l->io_bytes_per_s);
	r = cgroup_file_put(t, path, "blkio.throttle.read_bps_device", text);
	return r < 0 ? r : cgroup_file_put(t, path, "blkio.throttle.write_bps_device", text);
}

int cgroup_limit(struct cgroup_root *c, const char *path, const struct cgroup_limits *l, struct buf *unenforced)
{
	const struct {
		bool wanted;
		enum cgroup_ctl ctl;
		const char *word;
		int (*set)(const struct cgroup_tree *t, const char *path, const struct cgroup_limits *l);
	} rows[] = {
		{ l->memory_bytes > 0, CGROUP_MEMORY, "memory", limit_memory },
		{ l->cpu_percent > 0, CGROUP_CPU, "cpu", limit_cpu },
		{ l->pids > 0, CGROUP_PIDS, "pids", limit_pids },
		{ l->io_bytes_per_s > 0, CGROUP_IO, "io", limit_io },
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct cgroup_tree *t = cgroup_tree_of(c, rows[i].ctl);
		int r;

		if (!rows[i].wanted || (t && rows[i].set(t, path, l) == 0))
			continue;
		r = buf_addf(unenforced, "%s%s", unenforced->len ? "," : "", rows[i].word);
		if (r < 0)
			return r;
	}
	return 0;
}

/* -- readings ----------------------------------------------------------------------------------- */

/* A file that holds one number, or the number behind @key in one of many lines "key number". */
static uint64_t get_u64(const struct cgroup_tree *t, const char *path, const char *file, const char *key)
{
	AUTO_FREE char *text = NULL;
	const char *p;

	if (!t || cgroup_file_get(t, path, file, &text) < 0)
		return 0;
	if (!key)
		return strtoull(text, NULL, 10);
	for (p = text; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (!strncmp(p, key, strlen(key)) && p[strlen(key)] == ' ')
			return strtoull(p + strlen(key), NULL, 10);
		if (!*p)
			break;
	}
	return 0;
}

/* The sum over all disks of the numbers behind @key: "8:0 rbytes=1 …" on v2, "8:0 Read 1" on v1. */
static uint64_t sum_io(const char *text, const char *key)
{
	uint64_t sum = 0;

	for (const char *p = text; (p = strstr(p, key)); p += strlen(key))
		sum += strtoull(p + strlen(key), NULL, 10);
	return sum;
}

static void stat_io(const struct cgroup_tree *t, const char *path, struct cgroup_stat *ret)
{
	AUTO_FREE char *text = NULL;

	if (!t || cgroup_file_get(t, path, t->v2 ? "io.stat" : "blkio.throttle.io_service_bytes", &text) < 0)
		return;
	ret->io_read_bytes = sum_io(text, t->v2 ? " rbytes=" : " Read ");
	ret->io_write_bytes = sum_io(text, t->v2 ? " wbytes=" : " Write ");
}

static uint32_t count_tasks(const struct cgroup_tree *t, const char *path)
{
	AUTO_FREE char *text = NULL;
	uint32_t n = 0;

	if (cgroup_file_get(t, path, t->v2 ? "cgroup.threads" : "tasks", &text) < 0)
		return 0;
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		n++;
	return n;
}

int cgroup_stat(struct cgroup_root *c, const char *path, struct cgroup_stat *ret)
{
	const struct cgroup_tree *t = cgroup_tree_of(c, CGROUP_MEMORY);
	struct cgroup_stat s = { 0 };
	AUTO_FD dir = -1;

	if (c->ntrees == 0)
		return -ENOENT;
	dir = cgroup_file_open(&c->trees[0], path, NULL, O_RDONLY | O_DIRECTORY);
	if (dir < 0)
		return dir;
	s.tasks = count_tasks(&c->trees[0], path);
	if (t && t->v2) {
		s.memory_bytes = get_u64(t, path, "memory.current", NULL);
		s.memory_peak_bytes = get_u64(t, path, "memory.peak", NULL);
		s.oom_kills = get_u64(t, path, "memory.events", "oom_kill");
	} else if (t) {
		s.memory_bytes = get_u64(t, path, "memory.usage_in_bytes", NULL);
		s.memory_peak_bytes = get_u64(t, path, "memory.max_usage_in_bytes", NULL);
		s.oom_kills = get_u64(t, path, "memory.oom_control", "oom_kill");
	}
	if (s.memory_peak_bytes < s.memory_bytes) /* memory.peak came with 5.19 */
		s.memory_peak_bytes = s.memory_bytes;
	t = cgroup_tree_of(c, CGROUP_CPUACCT);
	s.cpu_usec = t && !t->v2 ? get_u64(t, path, "cpuacct.usage", NULL) / 1000
				 : get_u64(t, path, "cpu.stat", "usage_usec");
	stat_io(cgroup_tree_of(c, CGROUP_IO), path, &s);
	*ret = s;
	return 0;
}
