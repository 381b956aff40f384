/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for what goes on behind a control file: a snapshot that is being stored, a check, a collection. The files
 * that tell of it are texts, which poll(2) knows nothing of; but each change is a line of events.jsonl, and that one is
 * a stream. Where it cannot be read a look every second must do. Thread: any. */
#ifndef CRUCIBLE_TOOLS_WATCH_H
#define CRUCIBLE_TOOLS_WATCH_H

#include <stdbool.h>
#include "base/err.h"
#include "base/json.h"
#include "tools/crucible/follow.h"
#include "tools/crucible/progress.h"

struct watch {
	int events; /* events.jsonl, read to its end; -1: there is none */
	bool moved; /* something was read at the last look */
	struct follow follow;
	struct progress progress;
	unsigned percent; /* what was shown last */
};
void watch_begin(int root, struct watch *w);
/* Block until something may have changed, at most a second. Returns 0 or -errno of poll with words. */
int watch_wait(struct watch *w, struct err *e);
/* Show how far it is: a bar, or lines, on standard error, when the percentage has changed. @o: a record with "done" and
 * "total" (without: nothing is done yet). @what: in words. */
void watch_show(struct watch *w, struct json_object *o, const char *what);
void watch_end(struct watch *w);

/* Start what the control file @path of @dir starts by writing into it, and block until the record that it reads as says
 * another "status" than "running"; meanwhile show how far it is ("done" of "total", @what in words) on standard error.
 * *ret: the last record. Errors: of the write, by tree_explain() for @dir; -EIO it reads as no outcome. */
int watch_outcome(int root, int dir, const char *path, const char *what, struct json_object **ret, struct err *e);

#endif
