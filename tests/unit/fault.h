/* SPDX-License-Identifier: Apache-2.0 */
/* Make the Nth allocation or system call of a program fail, for every N until it passes without one. Linked with --wrap
 * (see FAULT_LDFLAGS in cruciblefs/domain/domain.mk); calls inside libc itself are not seen. Any thread's calls count.
 */
#ifndef CRUCIBLE_TEST_FAULT_H
#define CRUCIBLE_TEST_FAULT_H

#include <stdbool.h>

void fault_arm(unsigned nth); /* the @nth call from now on fails: 1 is the next one */
bool fault_disarm(void);      /* whether it came to that */
#define FAULT_DIED 42
void fault_dies(void);	      /* from now on the call does not fail: the process ends there, with this status */
const char *fault_name(void); /* of the call that failed last */

#endif
