/* SPDX-License-Identifier: Apache-2.0 */
/* A whole box: one sandbox's machine, guest, commands and daemon tied together. See state.h for its states. Thread: the
 * loop's. */
#ifndef CRUCIBLE_VMM_BOX_CORE_H
#define CRUCIBLE_VMM_BOX_CORE_H

#include <stdbool.h>
#include "base/loop.h"
#include "vmm/box/tuning.h"
#include "vmm/engine.h"

#define BOX_FDS (BOX_FD_MEMORY - BOX_FD_DAEMON + 1)

struct box_params {
	int fds[BOX_FDS]; /* in the order of enum box_fd; taken, also on failure */
	int dirfd;	  /* the sandbox's folder, /box; borrowed for life */
	bool generic;	  /* the engine was started without a kernel: it waits for MEMORY and LOAD */
	struct box_tuning tuning;
	const struct engine_ops *engine;
};

struct box;
/* @on_over: called once, from the loop, when the box has nothing more to do: its last message is out. @words: why the
 * sandbox ended, "" for a stop that was asked for. It may not free the box. Errors: -ENOMEM, those of loop_add. */
int box_new(struct loop *l, struct box_params *p, void (*on_over)(void *arg, const char *words), void *arg,
	    struct box **ret, struct err *e);
struct box *box_free(struct box *b); /* NULL is fine; returns NULL */

#endif
