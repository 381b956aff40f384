/* SPDX-License-Identifier: Apache-2.0 */
/* What cgroup_find.c, cgroup.c and cgroup_limit.c share. */
#ifndef CRUCIBLE_BASE_CGROUP_PRIV_H
#define CRUCIBLE_BASE_CGROUP_PRIV_H

#include <limits.h>

#include "base/cgroup.h"

enum cgroup_ctl { CGROUP_MEMORY, CGROUP_CPU, CGROUP_CPUACCT, CGROUP_PIDS, CGROUP_IO, CGROUP_FREEZER, CGROUP_CTL_COUNT };

/* One mounted hierarchy. */
struct cgroup_tree {
	int root_fd; /* its mount point */
	bool v2;
	bool delegated;	     /* the base is not ours to remove, and nothing above it ours to change */
	char base[PATH_MAX]; /* below root_fd; "." is root_fd itself */
};

struct cgroup_root {
	struct cgroup_tree trees[CGROUP_TREES_MAX]; /* v2 first, if any: the first is the one that is listed */
	size_t ntrees;
	int tree_of[CGROUP_CTL_COUNT]; /* -1: nobody has it */
};

/* Fill @c of the texts of /proc/self/mountinfo and /proc/self/cgroup. Opens the mount points, makes nothing. */
int cgroup_find(struct cgroup_root *c, const char *name, unsigned int flags, const char *mountinfo,
		const char *self_cgroup, struct err *e);

/* The tree of a controller, or NULL. */
const struct cgroup_tree *cgroup_tree_of(const struct cgroup_root *c, enum cgroup_ctl ctl);

/* Open, write or read one file of a group in one tree. 0 or -errno; *ret_text is malloc'd. */
int cgroup_file_open(const struct cgroup_tree *t, const char *path, const char *file, int flags); /* the descriptor */
int cgroup_file_put(const struct cgroup_tree *t, const char *path, const char *file, const char *text);
int cgroup_file_get(const struct cgroup_tree *t, const char *path, const char *file, char **ret_text);

#endif
