/* SPDX-License-Identifier: Apache-2.0 */
/* The box's own times. Tests shorten them; nobody else does. */
#ifndef CRUCIBLE_VMM_BOX_TUNING_H
#define CRUCIBLE_VMM_BOX_TUNING_H

#include <stdint.h>
#include "vmm/box/box.h"
#include "vmm/box/console.h"

struct box_tuning {
	uint32_t lost_after_ms; /* beyond a command's deadline, or a kill: then the guest is lost */
	uint32_t kill_grace_ms; /* the agent keeps the deadline itself; so much later the host kills */
	uint32_t ping_after_ms; /* of silence while a command runs */
	uint32_t silent_ms;	/* and so much silence is a guest that is lost */
	uint32_t progress_ms;	/* between two BOX_PROGRESS of a command */
	uint32_t fs_timeout_ms, sync_timeout_ms, trim_timeout_ms, pause_timeout_ms, net_timeout_ms;
	/* Of a reclaim: for the guest's disk; for all growing of the balloon; for any other answer of guest or balloon.
	 */
	uint32_t reclaim_sync_ms, reclaim_grow_ms, reclaim_answer_ms;
	uint32_t freeze_margin_ms; /* beyond what the agent has to freeze: for its answer */
	uint32_t save_timeout_ms, memory_timeout_ms, load_timeout_ms;
	uint32_t thaw_after_ms; /* a frozen guest that nobody thaws */
	uint32_t warm_ms;	/* from LOAD with hold until it is frozen, at most */
	uint32_t quit_ms;	/* from QUIT to the engine's end */
	uint32_t settle_ms;	/* a port or the pidfd told of an end: so long to hear the reason from the monitor */
	uint32_t reconnect_ms, orphan_ms;
	uint32_t farewell_ms; /* to get the last messages out */
	uint64_t console_keep;
	const char *daemon_socket; /* where a daemon that vanished comes back */
};

#define BOX_TUNING_DEFAULT                                                                                             \
	{                                                                                                              \
		.lost_after_ms = BOX_LOST_AFTER_MS, .kill_grace_ms = 100, .ping_after_ms = 10000, .silent_ms = 30000,  \
		.progress_ms = 20, .fs_timeout_ms = 5000, .sync_timeout_ms = 30000, .trim_timeout_ms = 120000,         \
		.net_timeout_ms = 20000, .reclaim_sync_ms = 5000, .reclaim_grow_ms = 10000, .reclaim_answer_ms = 5000, \
		.pause_timeout_ms = 5000, .freeze_margin_ms = 2000, .save_timeout_ms = 10000,                          \
		.memory_timeout_ms = 10000, .load_timeout_ms = 10000, .thaw_after_ms = 30000, .warm_ms = 5000,         \
		.quit_ms = 2000, .settle_ms = 100, .reconnect_ms = 250, .orphan_ms = BOX_ORPHAN_S * 1000,              \
		.farewell_ms = 2000, .console_keep = CONSOLE_KEEP, .daemon_socket = "/run/daemon.sock",                \
	}

#endif
