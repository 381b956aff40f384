/* SPDX-License-Identifier: Apache-2.0 */
/* What makes this guest another one than its parent or sister: HELLO's clock, entropy, names. Thread: the loop's.
 * Blocks for as long as the root file system takes to write two small files, or to grow. */
#ifndef CRUCIBLE_AGENT_IDENTITY_H
#define CRUCIBLE_AGENT_IDENTITY_H

#include <stddef.h>
#include <stdint.h>
#include "agent/guest.h"
#include "base/err.h"

#define ENTROPY_BYTES 32u
#define HOSTNAME_MAX  64u

/* The host's HELLO, parsed. */
struct hello {
	uint64_t version_min, version_max, epoch, wall_ns;
	uint8_t entropy[ENTROPY_BYTES];
	size_t entropy_len;				    /* 0: none given */
	char hostname[HOSTNAME_MAX + 1], instance[37];	    /* "": absent; instance is a uuid in lower case */
	uint64_t root_mib, memory_bytes, cpu_percent, pids; /* 0: none */
};
/* Errors: -EINVAL in words. Keys that are not known are passed over: a newer host may offer more than it needs. */
int hello_parse(const void *json, size_t len, struct hello *ret, struct err *e);

/* Make the guest what @h says, in this order: entropy, machine-id, hostname, clock, size of the root. What fails, or
 * must not be done in a test's agent, is said by unenforced_add(). */
void identity_take(const struct guest *g, const struct hello *h, struct unenforced *u);

#endif
