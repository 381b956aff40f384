/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's memory inside an engine that knows nothing of it.
 *
 * QEMU maps its RAM (memory-backend-memfd, share=on) once, MAP_SHARED. crucible-preload.so, loaded into it by
 * LD_PRELOAD, turns exactly that mapping into private anonymous memory, and later, told by the box over a socket, puts
 * a private mapping of a template in its place: for a fork before the machine's state is loaded, for a machine that was
 * snapshotted while it is paused. It makes the userfaultfd in the process, registers the mapping (MISSING), and hands
 * it over with /proc/self/mem and /proc/self/pagemap, which nobody else may open.
 *
 * Environment of the engine: CRUCIBLE_PRELOAD_SOCKET=<fd of a SOCK_SEQPACKET socket>, CRUCIBLE_PRELOAD_RAM=<bytes>,
 * CRUCIBLE_PRELOAD_UFFD=<fd of an open /dev/userfaultfd, or -1>. Without them it does nothing. The first mmap() or
 * mmap64() with MAP_SHARED, a descriptor and exactly that many bytes is the one; a second such, or an order before it,
 * is refused in words. A thread of its own serves the socket: one order, one answer. DONTFORK and DONTDUMP are put
 * back. The userfaultfd stays open in the engine for life, so that a dead pager means waiting, never zeros.
 *
 * Order: struct preload_order, and one descriptor: the template (O_RDONLY), or none (then only hand over mem and
 * pagemap: `base` of the answer tells where). Answer: struct preload_answer, and the descriptors in this order:
 * mem, pagemap, and userfaultfd when there was a template and userfaultfd works here. */
#ifndef CRUCIBLE_PRELOAD_H
#define CRUCIBLE_PRELOAD_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/loop.h"

#define PRELOAD_MAGIC	   0x43525031u /* "CRP1" */
#define PRELOAD_RANGES_MAX 256u

struct preload_range {
	uint64_t offset, bytes; /* of the RAM; page-aligned, in order, not overlapping */
};
struct preload_order {
	uint32_t magic, nranges;
	uint64_t bytes; /* of the template: must be the RAM's */
	struct preload_range
		ranges[PRELOAD_RANGES_MAX]; /* all zeros: mapped anonymous over the template, not registered */
};
struct preload_answer {
	uint32_t magic;
	int32_t code;	   /* 0 or -errno */
	uint64_t base;	   /* address of the RAM in the engine */
	uint32_t has_uffd; /* 1; 0: not permitted here: holes of the template read as zeros, so it must be full */
	uint32_t lost;	   /* 1, of a failure: the RAM is not what it was, nor what it was to be: the engine must end */
	char words[144];   /* of a failure */
};

/* -- the box's side ------------------------------------------------------------------------------------ */
struct preload; /* a connection to one engine's library */
struct preload_done {
	int code;  /* 0 or -errno (-EPIPE: the engine is gone; -ETIMEDOUT; what the library said) */
	bool lost; /* of a failure: the machine must not go on (preload_answer); -ETIMEDOUT: it may come to that yet */
	const char *words;
	uint64_t base;
	int mem, pagemap, uffd; /* -1: none. The callee takes what it wants; the rest is closed */
};
typedef void preload_fn(void *arg, struct preload_done *d);
/* Takes @fd. Thread: loop. -ENOMEM and those of loop_add. */
int preload_new(struct loop *l, int fd, struct preload **ret);
struct preload *preload_free(struct preload *p); /* @fn of what is pending is not called */
/* @template_fd -1: none. One at a time: -EBUSY. @fn is called once, from the loop. */
int preload_order(struct preload *p, int template_fd, uint64_t bytes, const struct preload_range *ranges, uint32_t n,
		  uint32_t timeout_ms, preload_fn *fn, void *arg);

#endif
