/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the domain's snapshots begin with: sandboxes that run, snapshots that are there. */
#ifndef CRUCIBLE_TEST_SNAPSHOT_FIX_H
#define CRUCIBLE_TEST_SNAPSHOT_FIX_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "tests/unit/domain_world.h"

int snapshot_world(void **state); /* cmocka's set-up: world_setup() with boxes that play */
struct sandbox *new_sandbox(struct world *w, const char *name, const struct cfs_who *who);
struct sandbox *running(struct world *w, const char *name); /* booted cold, ready */
void command(struct sandbox *s, const char *text);
/* Written into `snapshot`, as root; NULL and words in @e when it is refused at once. */
struct snapshot_job *begin_snapshot(struct sandbox *s, const char *name, struct err *e);
int job_result(struct world *w, struct snapshot_job *j, struct err *e);	     /* waits, and drops it */
struct snapshot *take(struct world *w, struct sandbox *s, const char *name); /* there; perhaps not stored yet */
struct snapshot *take_ready(struct world *w, struct sandbox *s, const char *name);
struct snapshot *kept(struct world *w, const char *name); /* in the store, of a machine that is gone */
int fork_of(struct world *w, struct snapshot *p, const char *text, struct err *e); /* waits */
void gone(struct world *w, struct sandbox *s);					   /* rmdir, and all of it ended */
/* Nothing of pager, launcher and boxes is left when nothing runs and nothing is kept. */
void assert_clean(struct world *w);
int count_fds(void);
void assert_says(const char *text, const char *words);

#endif
