/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * The kernel's freezer stops processes as they are scheduled, so it is looked at again and again until all stand: at
 * once, then every LOOK_NS. (The event of cgroup.events would come up to 10 ms late: the kernel limits its rate.) The
 * file server stands outside of the commands' cgroup; it is still when it owes no answer.
 *
 * FROZEN is queued behind whatever was queued before, so a host that has read it on both ports has read everything. */
#include "agent/freeze.h"

#include <errno.h>

#include "agent/agent.h"

#define LOOK_NS 500000u

static void send_frozen(struct agent *a, enum conn_port port, int32_t code)
{
	uint8_t le[4];

	for (int i = 0; i < 4; i++)
		le[i] = (uint8_t)((uint32_t)code >> (8 * i));
	conn_send(a->conn, port, AG_FROZEN, 0, 0, le, sizeof(le));
}

/* Everything goes on. Children that ended meanwhile are told of now, in the order in which they are found. */
static void go_on(struct agent *a)
{
	loop_del(a->loop, &a->freeze_look);
	a->freeze = FREEZE_NONE;
	limits_freeze(&a->limits, false);
	conn_quiet(a->conn, false);
	conn_retry(a->conn, CONN_BULK);
	if (a->reap_later) {
		a->reap_later = false;
		reap_all(a);
	}
}

static void give_up(struct agent *a)
{
	go_on(a);
	send_frozen(a, CONN_CONTROL, -ETIMEDOUT);
}

/* Without cgroups nothing can be frozen, but nothing may be there either. */
static bool commands_stand(const struct agent *a)
{
	return a->limits.cmds_fd < 0 ? execs_alive(a->execs) == 0 : limits_frozen(&a->limits);
}

static void look(void *arg)
{
	struct agent *a = arg;
	uint64_t now = now_ns();

	a->freeze_look = 0;
	if (commands_stand(a) && fsserver_idle(a->fs)) {
		send_frozen(a, CONN_CONTROL, 0);
		if (a->freeze == FREEZE_ASKED)
			send_frozen(a, CONN_BULK, 0);
		if (a->freeze != FREEZE_ASKED)
			return; /* a queue was full: the epoch is over */
		a->freeze = FREEZE_DONE;
		conn_quiet(a->conn, true);
	} else if (now >= a->freeze_deadline_ns || loop_timer(a->loop, now + LOOK_NS, look, a, &a->freeze_look) < 0) {
		give_up(a);
	}
}

int freeze_begin(struct agent *a, uint32_t ms)
{
	int r;

	if (a->freeze != FREEZE_NONE || ms > FREEZE_MAX_MS)
		return -EBADMSG;
	a->freeze = FREEZE_ASKED;
	a->freeze_deadline_ns = now_ns() + ms * 1000000ull;
	r = limits_freeze(&a->limits, true);
	if (a->stopping || (r < 0 && r != -ENOENT))
		give_up(a);
	else
		look(a);
	return 0;
}

void freeze_thaw(struct agent *a)
{
	if (a->freeze == FREEZE_ASKED)
		give_up(a);
	else if (a->freeze == FREEZE_DONE)
		go_on(a);
}

void freeze_reset(struct agent *a)
{
	if (a->freeze == FREEZE_ASKED)
		go_on(a);
}

int freeze_hello_thaw(struct agent *a)
{
	int r = a->freeze == FREEZE_NONE ? 0 : limits_freeze(&a->limits, false);

	return r == -ENOENT ? 0 : r;
}

void freeze_hello_end(struct agent *a)
{
	if (a->freeze != FREEZE_NONE)
		go_on(a);
}
