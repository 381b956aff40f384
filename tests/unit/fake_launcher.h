/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher that starts nothing: it answers crucibled's calls from the loop and hands the test the box's end of the
 * connection. */
#ifndef CRUCIBLE_TEST_FAKE_LAUNCHER_H
#define CRUCIBLE_TEST_FAKE_LAUNCHER_H

#include "cruciblefs/launch/launch.h"

struct fake_launcher {
	struct loop *loop;
	int box_fd; /* the box's end of the box that was "spawned" last; -1 */
	char box_uuid[LAUNCH_UUID_LEN + 1];
	int older_box_fd; /* of the one before */
	unsigned spawned_engines, spawned_boxes, kills, slots_taken, slots_freed;
	struct launch_spawn last; /* argv is not kept */
	int refuse_spawn;	  /* -errno, or 0 */
	int refuse_sockets;	  /* the same, of NET_SOCKETS */
	int refuse_net;		  /* the same, of NET */
	bool hold_net, hold_kill; /* NET, KILL are answered by fake_launcher_answer() */
	unsigned nets, net_sockets;
	char killed[LAUNCH_UUID_LEN + 1];   /* the peer that was, last: netd */
	char net_uuid[LAUNCH_UUID_LEN + 1]; /* whose was made last */
	/* When set, each box's end goes here (the callee closes it) and box_fd stays -1; so do kills. */
	void (*on_box)(void *arg, const char *uuid, int fd);
	void (*on_kill)(void *arg, const char *uuid);
	void *arg;
};
struct launcher *fake_launcher_new(struct fake_launcher *f);
void fake_launcher_answer(struct fake_launcher *f); /* what was held; from now on at once */

#endif
