/* SPDX-License-Identifier: Apache-2.0 */
/* An exec slot: a command of ours that runs beside the sandbox's other ones, with live input. Thread: any. */
#ifndef CRUCIBLE_TOOLS_SLOT_H
#define CRUCIBLE_TOOLS_SLOT_H

#include "base/err.h"
#include "tools/crucible/request.h"
#include "tools/crucible/sbx.h"

struct slot {
	int exec; /* O_PATH of run/<id>/exec; -1: none */
	int dir;  /* O_PATH of run/<id>/exec/<name> */
	int sbx;  /* borrowed from the sandbox: its `error` speaks for the slot */
	char name[SBX_ID_MAX + 1];
};
#define SLOT_NONE ((struct slot){ .exec = -1, .dir = -1, .sbx = -1 })

/* mkdir under a fresh name. @s must outlive the slot. Errors: -EDQUOT too many slots, those of mkdir. */
int slot_new(const struct sbx *s, struct slot *ret, struct err *e);
/* Hand over the command; from here on stdout, stderr, wait and status of the slot are its own. Errors: those of
 * request_format and of write: -EBUSY, -ENOTCONN; with words. */
int slot_send(struct slot *t, const struct request *q, struct err *e);
/* A line for `ctl`. Errors: of write: -ENOENT nothing runs. */
int slot_ctl(struct slot *t, const char *line, struct err *e);
/* Close and remove; kills what still runs in it. Never fails: a slot that cannot be removed goes with its sandbox. */
void slot_remove(struct slot *t);

#endif
