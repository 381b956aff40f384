/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that goes on from a snapshot, brought up for whoever wants one: a sandbox (restore.c) or the pool of warm
 * ones (warm.c). A revival owns what it has made, the machine, its disk, what the pager knows of it, until they are
 * given to a sandbox:
 *
 *   FIRST   template, disk, machine, state: asked for at once, awaited together
 *   SECOND  the disk announced, the memory put in place; meanwhile @has_machine
 *   THIRD   the state loaded                          -> @fn(0); with a hold when the machine is warm and waits
 *
 * The machine and its disk have one id, so that what a killed daemon leaves behind can be found (strays.c).
 * Thread: loop. Nothing blocks. */
#ifndef CRUCIBLE_REVIVE_H
#define CRUCIBLE_REVIVE_H

#include "cruciblefs/domain/snapshot_priv.h"

struct revive_plan {
	struct snapshot *p;
	uint32_t disk_mib;
	uint32_t cpu_percent;	 /* 0: what the vCPUs need */
	uint64_t io_bytes_per_s; /* 0: no limit */
	enum box_hold hold;	 /* for nobody yet: BOX_LOAD's */
	bool fresh;		 /* a machine is made for it: none that waited */
};

struct revive_ops {
	/* Once, in SECOND: the moment to give the machine away (revive_give) while the others work. May be NULL. -errno
	 * with words ends it. */
	int (*has_machine)(void *arg, struct err *e);
	/* 0: it is done. -errno: @step failed, which may also come later, while it is held. After -errno nothing else
	 * comes. @words are borrowed; revive_free() may be called in here. */
	void (*fn)(void *arg, int code, const char *step, const char *words);
};

struct revival;
/* *@ret stands before @ops are called, which may be before this returns. -ENOMEM: @ops are not called. */
int revive_begin(struct registry *r, const struct revive_plan *plan, const struct revive_ops *ops, void *arg,
		 struct revival **ret, struct err *e);
/* Machine, disk and origin are @s's from now on. Errors of machine_give: nothing has changed. */
int revive_give(struct revival *v, struct sandbox *s, struct err *e);
/* Let go: what was not given away is ended and removed. NULL is fine; returns NULL. */
struct revival *revive_free(struct revival *v);
const struct snapshot *revive_snapshot(const struct revival *v);
const char *revive_machine(const struct revival *v); /* its id */
/* It failed because the pager or the store cannot read the snapshot: not because there was no machine. */
bool revive_unreadable(const struct revival *v);
bool revive_given(const struct revival *v);
/* Its machine waited in the pool: it may have died there, and nobody knows of it yet. */
bool revive_pooled(const struct revival *v);
/* It failed because of such a machine, not of the pager, the store or the host: another one may do. */
bool revive_pooled_lost(const struct revival *v);

/* The pager cannot serve machine @id any more, or its box is gone: whoever has it loses it. */
void machine_lost(struct registry *r, const char *id, const char *words);
/* The pager was restarted: what has a machine that is no sandbox's yet cannot go on. */
void revive_end_all(struct registry *r, const char *words);
/* The snapshots that revivals, held ones too, stand on. */
void revive_each(struct registry *r, void (*fn)(void *arg, const char *uuid), void *arg);

#endif
