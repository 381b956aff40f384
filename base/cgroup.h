/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of processes with limits, on cgroup v2, v1 and both at once.
 *
 * All groups of one user of this file live below one base:
 *   v2  our own cgroup, when its maker delegated it to us (systemd's Delegate=yes sets the xattr user.delegate): then
 *	 the processes in it are moved into a leaf `daemon` first, since v2 keeps limits and processes of one
 *	 level apart; else <root>/crucible-<name>
 *   v1  <root>/crucible-<name> in every hierarchy that is needed
 * A controller is used on v2 where v2 has it, else on v1. Where v2 is mounted at all it also holds the processes,
 * because it kills a whole tree in one step.
 *
 * A group is named by a path below the base: "uuid" or "uuid/engine". Only a group without groups below it may hold
 * processes. Thread: one. Needs root. Nothing blocks for longer than a write to cgroupfs takes. */
#ifndef CRUCIBLE_BASE_CGROUP_H
#define CRUCIBLE_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct cgroup_root;

enum cgroup_flags {
	CGROUP_V1_ONLY = 1 << 0, /* as if v2 was not mounted (tests) */
};

/* Find the hierarchies and settle the base; nothing is made yet but `daemon` of a delegated one. @name: [A-Za-z0-9._-],
 * at most 64. A machine without any usable hierarchy is no error: then every limit is reported as not applied.
 * Errors: -EINVAL bad name; -ENOMEM, those of reading /proc. */
int cgroup_root_new(const char *name, unsigned int flags, struct cgroup_root **ret, struct err *e);
struct cgroup_root *cgroup_root_free(struct cgroup_root *c); /* NULL is fine; returns NULL; removes nothing */
/* Remove the base where it is ours and empty; anything else is left alone. */
void cgroup_root_remove(struct cgroup_root *c);

/* Make a group and what is above it; fine when it exists. Errors: those of mkdir. */
int cgroup_make(struct cgroup_root *c, const char *path, struct err *e);

struct cgroup_limits {
	uint64_t memory_bytes;	 /* 0: none; and as much swap */
	uint32_t cpu_percent;	 /* of one CPU; 0: none */
	uint32_t pids;		 /* tasks; 0: none */
	uint64_t io_bytes_per_s; /* each of reading and writing on io_dev's disk; 0: none */
	dev_t io_dev;		 /* st_dev of a file on that disk */
};
/* Set the limits of a group. What could not be set is appended to @unenforced: words of "memory,cpu,pids,io"
 * with commas between. Errors: -ENOMEM, -EFBIG of that buffer. */
int cgroup_limit(struct cgroup_root *c, const char *path, const struct cgroup_limits *l, struct buf *unenforced);

/* A way into a group, opened by the parent and taken by its child, where no path leads to cgroupfs any more. */
#define CGROUP_TREES_MAX 8
struct cgroup_entry {
	int born_fd;		     /* for proc_spec.cgroup_fd; -1 without v2 */
	int procs[CGROUP_TREES_MAX]; /* the others' cgroup.procs */
	size_t nprocs;
};
/* Errors: those of open. On failure there is nothing to close. */
int cgroup_entry_open(struct cgroup_root *c, const char *path, struct cgroup_entry *ret, struct err *e);
/* In the child, before its privileges go: enter those that clone3 did not enter. Errors: those of write. */
int cgroup_entry_join(const struct cgroup_entry *entry, struct err *e);
void cgroup_entry_close(struct cgroup_entry *entry);

struct cgroup_stat {
	uint32_t tasks;
	uint64_t memory_bytes, memory_peak_bytes;
	uint64_t cpu_usec;
	uint64_t oom_kills;
	uint64_t io_read_bytes, io_write_bytes;
};
/* What a group uses; 0 where the machine does not say. Errors: -ENOENT no such group. */
int cgroup_stat(struct cgroup_root *c, const char *path, struct cgroup_stat *ret);

/* The processes right in a group, at most @cap of them. Errors: -ENOENT no such group; those of reading. */
int cgroup_pids(struct cgroup_root *c, const char *path, pid_t *ret, size_t cap, size_t *ret_n);

/* Send SIGKILL to every process in the group and below, new ones included, ourselves excepted. Call again until it
 * returns 0: nobody is left (or there is no such group). 1: some were there and will be gone soon. Errors: those of
 * cgroupfs, but -ENOENT. */
int cgroup_kill(struct cgroup_root *c, const char *path, struct err *e);
/* Remove a group and the empty ones below it. Errors: -EBUSY somebody lives in it; -ENOENT is fine. */
int cgroup_remove(struct cgroup_root *c, const char *path, struct err *e);

/* Call @fn for each group right below the base, in no order; its first result that is not 0 ends it and is returned. */
typedef int cgroup_list_fn(void *arg, const char *name);
int cgroup_list(struct cgroup_root *c, cgroup_list_fn *fn, void *arg);

#endif
