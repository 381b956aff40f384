/* SPDX-License-Identifier: Apache-2.0 */
/* States of a box (box.h, enum box_state) and what is allowed in them:
 *
 *   state     exec      ctl    fs         vm                      snapshots          -> next
 *   booting   queued    queue  waits      stop quit               load, memory       -> ready, gone
 *   ready     runs      all    yes        pause stop sync quit    freeze thaw trim   -> paused, stopping, gone
 *   paused    queued    queue  -EBUSY     resume stop quit        -                  -> ready, stopping, gone
 *   stopping  -EBUSY    kill   -ENOTCONN  quit                    -                  -> gone
 *   gone      -         -      -          -                       -                  the process ends
 *
 * "queue": verbs for commands that have not begun (cancel). MEMORY without a template: always.
 *
 * While it is frozen a box is READY, but commands, calls and verbs wait (box_freeze.c):
 *   none -> guest (its commands freeze) -> pause -> save -> held -> resume -> none; from each of them to resume
 *
 * A generic engine's box is BOOTING from its start on (box_load.c):
 *   empty     MEMORY, LOAD                                          -> loading -> loaded
 *   loaded    START: -> greeting; with hold and no START:           -> waking
 *   waking    a profile's: -> warm_hello -> warming -> holding      -> rehearsing -> holding -> held
 *   held      START                                                 -> greeting
 *   greeting  the agent has answered                                -> live (READY)
 * With START a pooled box becomes a sandbox's; before it takes QUIT and STOP, but nothing of commands and files. */
#ifndef CRUCIBLE_VMM_BOX_STATE_H
#define CRUCIBLE_VMM_BOX_STATE_H

#include "vmm/box/box.h"

const char *box_state_name(enum box_state s); /* "booting" … */

#endif
