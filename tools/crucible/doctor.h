/* SPDX-License-Identifier: Apache-2.0 */
/* What `doctor` looks at: one function a check, in one table (doctor.c). Thread: main. */
#ifndef CRUCIBLE_TOOLS_DOCTOR_H
#define CRUCIBLE_TOOLS_DOCTOR_H

#include <limits.h>
#include <stddef.h>
#include "base/json.h"
#include "tools/crucible/mount.h"

enum level {
	LEVEL_OK,
	LEVEL_INFO, /* worth knowing, nothing is wrong */
	LEVEL_WARN, /* works, but less well, or a part of it does not */
	LEVEL_BAD,  /* nothing runs until this is mended */
	LEVEL_COUNT
};

struct finding {
	enum level level;
	char text[320]; /* one line: what there is */
	char mend[192]; /* the command that mends it; "" when there is nothing to mend */
};

struct doctor {
	struct mount mount;	    /* fd -1: no daemon */
	struct err mount_err;	    /* then why */
	struct json_object *health; /* of the daemon, or NULL */
	char store[PATH_MAX];	    /* of the daemon, --store, or the default; "": not known through a view */
	bool view;		    /* the mount is a view's, or was */
	bool deep;
};

/* Fill @f; it is all zero (LEVEL_OK, no text) before. Blocks: moments; deep ones for seconds. */
typedef void check_fn(struct doctor *d, struct finding *f);

check_fn check_kernel, check_kvm, check_fuse, check_userfaultfd, check_io_uring, check_cgroups, check_tun,
	check_memory;									     /* doctor_host.c */
check_fn check_qemu, check_builder, check_network, check_programs;			     /* doctor_tools.c */
check_fn check_daemon, check_store, check_trial, check_profiles, check_degraded, check_deep; /* doctor_daemon.c */

/* Say it. Each returns nothing: a finding is the result. */
void find(struct finding *f, enum level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void mend(struct finding *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Make a sandbox below @root, run `true` in it, remove it. Blocks. Errors: whatever kept it from ending with 0. */
int run_true(int root, struct err *e);

/* Append @word to the list @text, a blank between; what does not fit is left out. */
void list_word(char *text, size_t cap, const char *word);

#endif
