/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of the machine that was snapshotted, which run on in a restored one: what they print goes into
 * inherited/<n>.out, their ends are told, all of them can be killed. Thread: the loop's; blocks on the disk. */
#ifndef CRUCIBLE_VMM_BOX_INHERIT_H
#define CRUCIBLE_VMM_BOX_INHERIT_H

#include <stdbool.h>
#include "vmm/box/guest.h"

#define INHERIT_OUTPUT_MAX (1024ull * 1024) /* of one command, both streams; the rest is dropped and counted */

struct inherit_end {
	uint64_t n;
	int exit_code;	    /* -1: none */
	const char *signal; /* "SIGKILL", or "" */
	uint64_t bytes;	    /* printed since the snapshot */
	uint64_t dropped;   /* of them */
};
/* From the loop; may not free the inheritance. */
typedef void inherit_end_fn(void *arg, const struct inherit_end *end);

struct inherit;
/* Take on those of @info, from within on_ready(). Their numbers are those in their names ("exec-7"); a number that two
 * have, or none has, is made up, above the others. @dirfd: borrowed for life. @keep: bytes of each. -ENOMEM. */
int inherit_new(struct guest *g, const struct guest_info *info, int dirfd, uint64_t keep, inherit_end_fn *fn, void *arg,
		struct inherit **ret);
struct inherit *inherit_free(struct inherit *h); /* before guest_free(); NULL is fine; returns NULL */
/* All that run, each with what it started. 0, or the first failure: -ENOTCONN, -ENOBUFS. */
int inherit_kill(struct inherit *h);
/* The guest's JSON with "inherited":[{"n":N,"pid":N,"name":"…"}, …] (those that have ended: "exit_code", "signal" too),
 * as many as fit into @cap, and "inherited_count". -ENOMEM, -EFBIG: @out is as before. */
int inherit_json(const struct inherit *h, const char *guest, char *out, size_t cap);

#endif
