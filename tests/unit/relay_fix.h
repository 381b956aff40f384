/* SPDX-License-Identifier: Apache-2.0 */
/* What each test of the relay begins with: one relay and one server that it leads to. For cmocka's tables. */
#ifndef CRUCIBLE_TEST_RELAY_FIX_H
#define CRUCIBLE_TEST_RELAY_FIX_H

#include "tests/unit/relay_rig.h"

#define THERE "127.0.0.2" /* where the server is, outside */

/* The test's own, in its file. The relay takes what is dialed inside at this port, and the server listens at THERE and
 * the same one; 0: it takes nothing, and the server is the guest's, at NET_GUEST_ADDR and port 80. */
extern const uint16_t fix_port;

extern struct relay_rig rig;
extern int server;

int fix_setup(void **state);
int fix_teardown(void **state);
/* A connection from the guest through the relay to the server. */
void fix_join(int *ret_guest, int *ret_far);

#endif
