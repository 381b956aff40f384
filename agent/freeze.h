/* SPDX-License-Identifier: Apache-2.0 */
/* Standing still for a snapshot: AG_FREEZE, AG_THAW, and the HELLO that ends it. Thread: the loop's. Nothing blocks.
 *
 * | state        | what comes                                          | next                                     |
 * |--------------|-----------------------------------------------------|------------------------------------------|
 * | FREEZE_NONE  | FREEZE                                              | ASKED; NONE when it can never be         |
 * | FREEZE_ASKED | every command stands, the file server is idle       | DONE, FROZEN sent on both ports          |
 * | FREEZE_ASKED | the deadline, THAW                                  | NONE, all thawed, FROZEN -ETIMEDOUT sent |
 * | FREEZE_ASKED | the end of the epoch                                | NONE, all thawed                         |
 * | FREEZE_DONE  | THAW                                                | NONE: as before                          |
 * | FREEZE_DONE  | the end of the epoch (a HELLO's half, a bad frame)  | DONE: nothing moves before a whole HELLO |
 * | FREEZE_DONE  | HELLO, accepted                                     | NONE; a refused one changes nothing      |
 *
 * While it is not NONE no frame is taken from bulk, so that file requests and input wait where they are. While it is
 * DONE the connection is quiet and no child is reaped: ends are told afterwards. */
#ifndef CRUCIBLE_AGENT_FREEZE_H
#define CRUCIBLE_AGENT_FREEZE_H

#include <stdbool.h>
#include <stdint.h>

#define FREEZE_MAX_MS 10000u

struct agent;

enum freeze_state { FREEZE_NONE, FREEZE_ASKED, FREEZE_DONE };

int freeze_begin(struct agent *a, uint32_t ms); /* AG_FREEZE; -EBADMSG: twice, or too long */
void freeze_thaw(struct agent *a);		/* AG_THAW; fine when nothing is frozen (it has just timed out) */
void freeze_reset(struct agent *a);		/* the epoch is over */
/* HELLO, in two steps, around its answer: all processes go on; then frames go out again. Fine when nothing is frozen.
 * -errno: they cannot be thawed, and stay as they are. */
int freeze_hello_thaw(struct agent *a);
void freeze_hello_end(struct agent *a);

#endif
