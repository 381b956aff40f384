/* SPDX-License-Identifier: Apache-2.0 */
/* An engine and its box, from a slot of user ids until a sandbox has them.
 *
 * A machine has an id of its own (a uuid): the name of its cgroups and of the directory <store>/sandboxes/<id>/ whose
 * box/ the box sees. When a sandbox takes it, the two directories' box/ are exchanged: a mount follows the directory.
 *
 *   MAKING   slot, engine, box are asked of the launcher, one after another   -> IDLE, or freed by @fn's caller
 *   IDLE     its box is there and waits for orders                            -> given to a sandbox, or freed
 *
 * Thread: loop. Nothing blocks. */
#ifndef CRUCIBLE_MACHINE_DOMAIN_H
#define CRUCIBLE_MACHINE_DOMAIN_H

#include "cruciblefs/domain/priv.h"

struct machine_plan {
	bool generic; /* waits for memory and state; else it boots */
	enum engine_accel accel;
	uint32_t memory_mib, vcpus; /* classes */
	uint32_t cpu_percent;	    /* 0: what the vCPUs need */
	uint64_t io_bytes_per_s;    /* 0: no limit */
	const char *bootid;	    /* of one that boots */
	const char *disk;	    /* of one that boots: offered to it by the block server */
};

struct machine {
	struct registry *reg;
	struct machine *next; /* of whoever holds it */
	char id[LAUNCH_UUID_LEN + 1];
	bool generic;
	enum engine_accel accel;
	uint32_t memory_mib, vcpus;
	bool plain; /* no limits of its own: any sandbox without any can take it */
	bool has_slot;
	uint32_t slot;
	bool spawned;  /* something of it may run */
	bool exported; /* a disk is offered to it */
	char *unenforced;
	struct boxlink *link; /* IDLE */
	/* Ends MAKING, once: 0, or -errno with words that name the step. Later, when its box ends: -ENOTCONN. May free
	 * it.
	 */
	void (*fn)(void *arg, struct machine *m, int code, const char *words);
	void *arg;
	/* Its box says that it is warm and waits (BOX_EVENT "held"). NULL: nobody waits for that. @arg as above. */
	void (*on_held)(void *arg, struct machine *m);
	struct machine_making *making;
};

/* Errors (then @fn is not called): -ENOMEM, -EIO no launcher, those of making its directory. */
int machine_new(struct registry *r, const struct machine_plan *p,
		void (*fn)(void *arg, struct machine *m, int code, const char *words), void *arg, struct machine **ret,
		struct err *e);
/* End it: what runs is killed behind, its directory (if it has one) removed. NULL is fine; returns NULL. */
struct machine *machine_free(struct machine *m);
/* @s has it from now on: link, uids, directory, cgroup. Frees @m. -errno of the store: nothing has changed. */
int machine_give(struct machine *m, struct sandbox *s, struct err *e);
int machine_make_dir(struct registry *r, const char *id); /* <store>/sandboxes/<id>/{tmp,box/exec} */
uid_t machine_engine_uid(const struct machine *m);
/* Kill whatever the launcher has under @id, without waiting. */
void machine_kill(struct registry *r, const char *id);

#endif
