/* SPDX-License-Identifier: Apache-2.0 */
/* Two network namespaces: a sandbox's, as topology.h makes it, and one that plays its guest. A thread carries frames
 * between the sandbox's tap and the guest's. Failures end the test (cmocka's assertions). */
#ifndef CRUCIBLE_TESTS_NET_GUEST_H
#define CRUCIBLE_TESTS_NET_GUEST_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "netpolicy/topology.h"

#define GUEST_NIC   "eth0"
#define GUEST_OTHER "10.77.0.3" /* an address that the guest gives itself, besides its own */

struct netrig {
	int host_ns, sandbox_ns, guest_ns;
	int tap, nic;	/* the two ends that the thread copies between */
	int stop[2];	/* a pipe */
	pthread_t pump; /* from rig_new() on */
	int fds[TOPOLOGY_FD_COUNT];
};

/* In a fresh namespace: topology_tap(); in another: a guest with its addresses and routes. topology_up() is the test's
 * to call. The caller is in its own namespace again afterwards. */
void netrig_new(struct netrig *n);
void netrig_free(struct netrig *n);
/* Move the calling thread. */
void netrig_enter(int ns);
/* In the sandbox's namespace, and back. */
int netrig_up(struct netrig *n, struct err *e);
void netrig_close_fds(struct netrig *n);

#endif
