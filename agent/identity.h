/* SPDX-License-Identifier: Apache-2.0 */
/* What makes this guest another one than its parent or sister: HELLO's clock, entropy, names. Thread: the loop's.
 * Blocks for as long as the root file system takes to write two small files, or to grow. */
#ifndef CRUCIBLE_AGENT_IDENTITY_H
#define CRUCIBLE_AGENT_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "agent/guest.h"
#include "agent/net.h"
#include "base/err.h"

#define ENTROPY_BYTES 32u
#define HOSTNAME_MAX  64u
#define PARENT_MAX    255u /* bytes of a snapshot's name */

/* The host's HELLO, parsed. */
struct hello {
	uint64_t version_min, version_max, epoch, wall_ns;
	uint8_t entropy[ENTROPY_BYTES];
	size_t entropy_len;				    /* 0: none given */
	char hostname[HOSTNAME_MAX + 1], instance[37];	    /* "": absent; instance is a uuid in lower case */
	uint64_t root_mib, memory_bytes, cpu_percent, pids; /* 0: none */

	bool has_net; /* it has a network, as in net */
	struct net_config net;

	bool clone; /* this guest was restored from a snapshot; then these are there, and all of entropy and clock */
	char fork[37], parent[PARENT_MAX + 1], machine_id[33]; /* a uuid; "" for a nameless one; hex in lower case */
	bool hold;					       /* a rehearsal: its commands stay frozen */
};
/* Errors: -EINVAL in words. Keys that are not known are passed over: a newer host may offer more than it needs. */
int hello_parse(const void *json, size_t len, struct hello *ret, struct err *e);

/* Make the guest what @h says, in this order: entropy, machine-id, hostname, clock, size of the root. What fails, or
 * must not be done in a test's agent, is said by unenforced_add(). */
void identity_take(const struct guest *g, const struct hello *h, struct unenforced *u);
/* The same for a fork, while no command of it runs: here each of these is a condition, in this order: entropy,
 * machine-id, hostname, clock, the marker /run/crucible/fork. The size of the root comes last and is none. In a test's
 * agent the files are written and the machine is left alone. Errors: the first step that failed, in words. */
int identity_clone(const struct guest *g, const struct hello *h, struct unenforced *u, struct err *e);

#endif
