/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the tree, one file of source for each directory; and the functions that several tables use. */
#ifndef CRUCIBLE_TABLES_H
#define CRUCIBLE_TABLES_H

#include "cruciblefs/table.h"

extern const struct cfs_table cfs_root_table;	   /* root.c: / */
extern const struct cfs_table cfs_view_root_table; /* root.c: views/<name>/tree/ */
extern const struct cfs_table cfs_views_table;	   /* views.c: views/ */
extern const struct cfs_table cfs_run_table;	   /* run.c: run/ */
extern const struct cfs_table cfs_sandbox_table;   /* run.c: run/<id>/ */
extern const struct cfs_table cfs_limits_table;	   /* run.c: run/<id>/limits/ */
extern const struct cfs_table cfs_net_table;	   /* netdir.c: run/<id>/net/ */
extern const struct cfs_table cfs_execs_table;	   /* exec.c: run/<id>/exec/ */
extern const struct cfs_table cfs_exec_table;	   /* exec.c: run/<id>/exec/<n>/ */
extern const struct cfs_table cfs_slot_table;	   /* exec.c: run/<id>/exec/NAME/ */
extern const struct cfs_table cfs_logs_table;	   /* logs.c: logs/ */
extern const struct cfs_table cfs_snapshots_table; /* snapshots.c: snapshots/ */
extern const struct cfs_table cfs_taken_table;	   /* snapshots.c: run/<id>/snapshots/ */
extern const struct cfs_table cfs_inherited_table; /* snapshots.c: run/<id>/inherited/ */
extern const struct cfs_table cfs_store_table;	   /* snapshots.c: store/ */
extern const struct cfs_table cfs_by_name_table;   /* logs.c: logs/by-name/ */

extern const char cfs_readme[]; /* readme.c: README.md */

/* exec.c: the files of one command, for the latest (run/<id>/), a numbered and a slot's. All go by a->bound. */
int cfs_bind_done(struct cfs_about *a); /* -ENOENT until that command has ended */
int cfs_show_command(const struct cfs_about *a, struct buf *out);
int cfs_show_record(const struct cfs_about *a, struct buf *out);
extern const struct cfs_stream_ops cfs_output; /* .arg: 1 stdout, 2 stderr */
struct waitq *cfs_sandbox_queue(const struct cfs_about *a);
int cfs_show_wait_link(const struct cfs_about *a, struct buf *out);

struct waitq *cfs_journal_queue(const struct cfs_about *a); /* root.c */
uint64_t cfs_fd_size(int fd);				    /* root.c: 0 when it cannot be told; closes @fd */

#endif
