/* SPDX-License-Identifier: Apache-2.0 */
/* What AG_EXIT says of a command. Thread: any. */
#ifndef CRUCIBLE_AGENT_RECORD_H
#define CRUCIBLE_AGENT_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include "agent/limits.h"
#include "base/buf.h"

struct record {
	bool began; /* else `error` says why not */
	bool timed_out;
	bool killed; /* never began because it was killed: signal is SIGKILL */
	int status;  /* of wait(2) */
	uint64_t stdout_bytes, stderr_bytes, duration_ns;
	struct rusage ru;
	struct cgroup_usage usage;
	char error[320];
};

/* The JSON into @out. 0, -ENOMEM. */
int record_put(const struct record *r, struct buf *out);

#endif
