/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's own cgroups (v2): `cmds` holds all commands together and is limited a bit under the guest's memory and
 * tasks, so that the agent, which stays outside of it, can always act; below it each command has one of its own. A
 * guest without cgroups, or without one of the controllers, still runs commands: what is lost is said by
 * unenforced_add(). Thread: the loop's. Nothing blocks: cgroupfs answers from memory. */
#ifndef CRUCIBLE_AGENT_LIMITS_H
#define CRUCIBLE_AGENT_LIMITS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "agent/guest.h"
#include "base/err.h"

struct limits {
	int cmds_fd;		      /* -1: no cgroups */
	bool memory, pids, cpu;	      /* these controllers work in `cmds` and below */
	uint64_t tasks, memory_bytes; /* what all commands together may have at most; 0: not known */
	uint64_t tasks_of_one;	      /* what one command may have of that; 0: no limit */
	uint64_t serial;	      /* names of command cgroups: never the same twice */
	struct {		      /* as limits_set_total() has set it; 0: nothing yet */
		uint64_t memory_bytes, pids, cpu_percent;
		bool cpu_known;
	} total;
};

/* Make `cmds` in the cgroup @g->cgroup_fd, which it must be possible to write to. Never fails: see @u. */
void limits_init(struct limits *l, const struct guest *g, struct unenforced *u);
void limits_fini(struct limits *l); /* kills what is left and removes `cmds` */
/* The limits of all commands together; 0: none asked for, the guest's own reserve is kept all the same. What is set
 * already is not written again: a fork has what its parent had. */
void limits_set_total(struct limits *l, uint64_t memory_bytes, uint64_t cpu_percent, uint64_t pids,
		      struct unenforced *u);
void limits_kill_all(struct limits *l);
/* Freeze every command with all its children, or let them go on. Freezing takes a while: ask limits_frozen().
 * 0, -ENOENT without cgroups, or -errno of the write. */
int limits_freeze(struct limits *l, bool on);
bool limits_frozen(const struct limits *l); /* every process of every command stands still */

/* The cgroup of one command. */
struct cgroup {
	int fd;	       /* the directory; -1: none */
	char name[64]; /* in `cmds` */
};
#define CGROUP_NONE ((struct cgroup){ .fd = -1 })

struct cgroup_limits {
	const char *label;	     /* words for people in the cgroup's name; may be NULL */
	uint64_t memory_bytes, pids; /* 0: none */
};
/* Without cgroups: success, and @ret->fd is -1 (unless a limit is asked for: -ENOTSUP, so that none is silently
 * dropped). Errors: those of mkdir and write, in words. */
int cgroup_make(struct limits *l, const struct cgroup_limits *want, struct cgroup *ret, struct err *e);
/* SIGKILL for everything in it and below. 0, -ENOENT without a cgroup, or -errno. */
int cgroup_kill(const struct cgroup *c);
/* Send @signo to each process in it and below (to those of the moment: one that forks meanwhile can slip through). */
void cgroup_signal(const struct cgroup *c, int signo);
bool cgroup_is_empty(const struct cgroup *c); /* no living process in it or below; true without a cgroup */
/* A descriptor that polls POLLPRI when processes came or went; to be read by cgroup_is_empty(). -errno. */
int cgroup_watch(const struct cgroup *c);
/* Remove it with what commands made below it. 0 (also without a cgroup), -EBUSY while something lives in it. */
int cgroup_remove(struct limits *l, struct cgroup *c);

struct cgroup_usage {
	bool valid; /* there was a cgroup */
	bool oom_killed;
	uint64_t cpu_user_us, cpu_sys_us, memory_peak_bytes, io_read_bytes, io_write_bytes;
	bool has_memory, has_io;
};
void cgroup_usage_get(const struct cgroup *c, struct cgroup_usage *ret);

#endif
