/* SPDX-License-Identifier: Apache-2.0 */
/* The activity log of a sandbox, for whoever reads it. Thread: any. */
#ifndef CRUCIBLE_TOOLS_LOGS_H
#define CRUCIBLE_TOOLS_LOGS_H

#include <stdbool.h>

/* The log of the sandbox @id (a name or a uuid): of a living one, else of the last one of this name. Returns a
 * descriptor or -errno of openat. */
int logs_open(int root, const char *id);
/* Does a record of @event belong to @source: "exec", "service" or "all"? */
bool logs_is_of(const char *event, const char *source);

#endif
