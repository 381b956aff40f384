/* SPDX-License-Identifier: Apache-2.0 */
/* An operation that is timed: what bench-turns repeats, in turn with others. Thread: one. All of them block. */
#ifndef CRUCIBLE_TOOLS_BENCH_TURNS_H
#define CRUCIBLE_TOOLS_BENCH_TURNS_H

#include <stdint.h>

#include "base/err.h"

/* What all subjects of a cell share. */
struct bench_opts {
	const char *text; /* what is written, or run: see each operation */
	uint64_t bytes;	  /* how much is read where an amount is asked for */
	const char *file; /* for the operations that need one */
	const char *pool; /* FIRST_UID:N: before each run N engines must stand ready (tree.h), or what an operation
			   * knows (op_fork.c); NULL: not waited for */
};

#define BENCH_MARKS_MAX 6
struct bench_op {
	const char *name;
	/* Make ready for many runs. @arg: what stands behind the colon; borrowed for ever (it is of argv), like @o. */
	int (*open)(const struct bench_opts *o, const char *arg, void **ret, struct err *e);
	/* Once. @ret_ns: what it took, without what has to be prepared and put away, which is done here as well. With
	 * marks: as many numbers, in whatever units the script says. */
	int (*run)(void *op, uint64_t *ret_ns, struct err *e);
	void (*close)(void *op);
	const char *marks[BENCH_MARKS_MAX]; /* an operation of several numbers: CELL.MARK is a cell of its own */
};

extern const struct bench_op bench_op_stat, bench_op_read, bench_op_write, bench_op_list; /* op_file.c */
extern const struct bench_op bench_op_sh;						  /* op_shell.c */
extern const struct bench_op bench_op_exec, bench_op_output, bench_op_create,
	bench_op_create_drained;						       /* op_sandbox.c */
extern const struct bench_op bench_op_qga;					       /* op_guestagent.c */
extern const struct bench_op bench_op_raw;					       /* op_raw.c */
extern const struct bench_op bench_op_boot, bench_op_boot_ready;		       /* op_boot.c */
extern const struct bench_op bench_op_restore, bench_op_restore_burst;		       /* op_restore.c */
extern const struct bench_op bench_op_fork, bench_op_fork_burst;		       /* op_fork.c */
extern const struct bench_op bench_op_snapshot, bench_op_migrate, bench_op_background; /* op_snapshot.c */

uint64_t bench_now_ns(void); /* CLOCK_MONOTONIC */

#endif
