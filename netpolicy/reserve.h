/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that guests may not use up: an eighth of what this process may have is kept for its client and what that
 * hands over, so that many guests who hold on to connections keep nobody else from having a network, or from changing
 * theirs. Thread: any; nothing blocks. */
#ifndef CRUCIBLE_NETPOLICY_RESERVE_H
#define CRUCIBLE_NETPOLICY_RESERVE_H

#include <stdbool.h>

#define RESERVE_FROM 4096u /* a process that may have fewer than this keeps none */

/* Is @fd, which was opened for a guest just now, one of them? The kernel gives the lowest number that is free, so its
 * number says how many are in use. Whoever opened it closes it again. A negative one is none. */
bool reserve_has(int fd);

#endif
