/* SPDX-License-Identifier: Apache-2.0 */
/* Commands: from AG_EXEC to AG_EXIT, and what they leave behind. Thread: the loop's. Nothing blocks.
 *
 * | state         | what it waits for                              | next                                         |
 * |---------------|------------------------------------------------|----------------------------------------------|
 * | EXEC_SCRIPT   | the end of its script                          | STARTING; LINGERING when it cannot begin     |
 * | EXEC_STARTING | exec(2), or the child's words why not          | RUNNING; ENDING                              |
 * | EXEC_RUNNING  | the end of its process                         | ENDING                                       |
 * | EXEC_ENDING   | the host to take what stood in the pipes       | LINGERING, with EXIT sent                    |
 * | EXEC_LINGERING| background children: pipes closed, cgroup empty | freed                                        |
 *
 * A command of an older epoch goes through the same states without sending anything. */
#ifndef CRUCIBLE_AGENT_EXEC_H
#define CRUCIBLE_AGENT_EXEC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include "agent/conn.h"
#include "agent/guest.h"
#include "agent/limits.h"
#include "agent/stream.h"
#include "base/loop.h"

struct execs;
struct json_object;

int execs_new(struct loop *l, struct conn *c, const struct guest *g, struct limits *lim,
	      struct execs **ret);	     /* -ENOMEM */
struct execs *execs_free(struct execs *set); /* kills all of them; NULL is fine; returns NULL */

/* Frames of the host. 0 or -EBADMSG; a frame for a stream that has ended, or never was, is fine and does nothing.
 * -EAGAIN: DATA for a stream that is not known: its EXEC travels on the other port and may not be here yet. Offer it
 * again after the next EXEC, or execs_give_up() on that stream first. */
int execs_frame(struct execs *set, const struct ag_frame *f);
bool execs_takes(uint8_t type); /* is a frame of that type theirs? */
void execs_give_up(struct execs *set, uint32_t stream);
/* The epoch is over: nothing is sent for those that exist any more; they run on. */
void execs_detach(struct execs *set);
/* The epoch is over while all commands are frozen, and the next HELLO tells whose they are: execs_detach() or
 * execs_inherit() follows. */
void execs_suspend(struct execs *set);
/* A fork's first epoch: commands that run keep their streams, with credit and counts anew and their standard input at
 * its end; the others are detached. */
void execs_inherit(struct execs *set);
/* HELLO's list of them: [{"stream":N,"pid":N,"name":"…"}], the names on demand. Never longer than a frame without. NULL
 * without memory. */
struct json_object *execs_inherited(const struct execs *set, bool names);
void execs_room(struct execs *set); /* bulk has room again */
/* A child was reaped. true: it was a command's. */
bool execs_reaped(struct execs *set, pid_t pid, int status, const struct rusage *ru);

void execs_signal_all(struct execs *set, int signo); /* to every process of every command */
void execs_kill_all(struct execs *set);
size_t execs_alive(const struct execs *set); /* commands of which something may still run */

#endif
