/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.h for tests of the FUSE layer: everything in memory, guests that do what the test says. With
 * fake_run_for_real() commands are run by the host's own shell, for trying tools on a real mount (fakefs.c). Ends the
 * program when it cannot work at all. */
#ifndef CRUCIBLE_TESTS_FAKE_DOMAIN_H
#define CRUCIBLE_TESTS_FAKE_DOMAIN_H

#include "cruciblefs/snapshot.h"
#include "fake_view.h"

struct registry *fake_registry_new(struct loop *l);
struct registry *fake_registry_free(struct registry *r);

/* From now on each command ends as soon as it is accepted: exit code 0, no output. */
void fake_end_at_once(struct registry *r, bool on);
void fake_run_for_real(struct registry *r);

struct sandbox *fake_sandbox(struct registry *r, const char *name, uid_t uid); /* made, ready */
void fake_status(struct sandbox *s, enum sandbox_status st);
void fake_print(struct sandbox *s, uint64_t n, int which, const char *text); /* output of command n */
void fake_end(struct sandbox *s, uint64_t n, int exit_code);
void fake_forget(struct sandbox *s, uint64_t n);		   /* no longer kept */
void fake_room(struct sandbox *s, const char *slot, size_t bytes); /* live input: this many bytes more are taken */
const char *fake_stdin(struct sandbox *s);			   /* kept for the next command */
const char *fake_livein(struct sandbox *s, const char *slot, size_t *ret_len); /* what a slot has got */
unsigned fake_leases(struct sandbox *s);
unsigned fake_refs(struct sandbox *s);
const char *fake_ctl(struct sandbox *s); /* the lines that ctl took, "a|b|" */
unsigned fake_env_stores(struct sandbox *s);
void fake_queue_full(struct sandbox *s, bool full);
void fake_event(struct registry *r, const char *line);		     /* into events.jsonl, seen by all */
void fake_event_of(struct registry *r, uid_t uid, const char *line); /* seen by that uid and root */
unsigned fake_uploads(struct registry *r);			     /* open ones */

/* Snapshots (fake_snapshot.c). One that is written is there at once; what waits for it goes on then too, or when the
 * test ends the job. @s: of what; NULL: of something that is gone. */
struct snapshot *fake_snapshot(struct registry *r, const char *name, struct sandbox *s, uid_t uid);
void fake_snapshot_status(struct snapshot *p, enum snapshot_status st);
void fake_jobs_wait(struct registry *r, bool on);
void fake_jobs_end(struct registry *r, int code); /* all that wait */
unsigned fake_jobs(struct registry *r);		  /* that somebody holds */
void fake_inherits(struct sandbox *s, uint64_t n);

struct view *fake_view(struct registry *r, const char *name, const char *policy); /* fake_view_new() */

/* A line of net/log.jsonl. */
void fake_net_log(struct sandbox *s, const char *line);

#endif
