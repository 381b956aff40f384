/* SPDX-License-Identifier: Apache-2.0 */
/* The whole agent: what its parts are and who holds them. main.c makes it, session.c runs it. One thread. */
#ifndef CRUCIBLE_AGENT_AGENT_H
#define CRUCIBLE_AGENT_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "agent/conn.h"
#include "agent/exec.h"
#include "agent/freeze.h"
#include "agent/fsserver.h"
#include "agent/guest.h"
#include "agent/limits.h"
#include "agent/syncer.h"
#include "base/err.h"
#include "base/loop.h"

struct agent {
	struct loop *loop;
	struct guest guest;
	struct limits limits;
	struct unenforced unenforced; /* of the boot; a HELLO adds its own to a copy */
	struct conn *conn;	      /* NULL until the ports are open */
	struct execs *execs;
	struct fsserver *fs;
	struct syncer *syncer;

	loop_id give_up; /* an input frame whose EXEC does not come */
	uint32_t held_stream;

	enum freeze_state freeze; /* freeze.c */
	loop_id freeze_look;
	uint64_t freeze_deadline_ns;
	bool reap_later; /* children ended while it was DONE */

	bool stopping; /* shutdown.c */
	loop_id stop_timer;
	uint64_t stop_deadline_ns;
	bool stop_killed;
};

/* session.c: what frames mean. */
int session_open(struct agent *a, int control_fd, int bulk_fd, struct err *e); /* takes both; -errno in words */
void session_close(struct agent *a);

/* Where the boot stands: on the console until the ports are open, as AG_STAGE then. */
void agent_stage(struct agent *a, const char *text);

/* shutdown.c. In a test's agent the loop is stopped in place of the power. */
void shutdown_begin(struct agent *a);
/* Say why, as well as can be, then power off. Does not return in a guest: PID 1 must not. */
void shutdown_fatal(struct agent *a, const struct err *e);

/* reap.c: all children that ended, known ones and orphans; while frozen, later. */
void reap_all(struct agent *a);

#endif
