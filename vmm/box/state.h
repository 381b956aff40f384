/* SPDX-License-Identifier: Apache-2.0 */
/* States of a box (box.h, enum box_state) and what is allowed in them:
 *
 *   state     exec      ctl    fs         vm                      -> next
 *   booting   queued    queue  waits      stop quit               -> ready, gone
 *   ready     runs      all    yes        pause stop sync quit    -> paused, stopping, gone
 *   paused    queued    queue  -EBUSY     resume stop quit        -> ready, stopping, gone
 *   stopping  -EBUSY    kill   -ENOTCONN  quit                    -> gone
 *   gone      -         -      -          -                       the process ends
 *
 * "queue": verbs for commands that have not begun (cancel). */
#ifndef CRUCIBLE_VMM_BOX_STATE_H
#define CRUCIBLE_VMM_BOX_STATE_H

#include "vmm/box/box.h"

const char *box_state_name(enum box_state s); /* "booting" … */

#endif
