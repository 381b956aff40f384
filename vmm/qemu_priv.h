/* SPDX-License-Identifier: Apache-2.0 */
/* What qemu.c (connection, events, short calls) and qemu_state.c (sequences) share. Innards of vmm/. */
#ifndef CRUCIBLE_VMM_QEMU_PRIV_H
#define CRUCIBLE_VMM_QEMU_PRIV_H

#include "vmm/engine.h"
#include "vmm/qmp.h"

enum qemu_state { QEMU_CONNECTING, QEMU_INCOMING, QEMU_RUNNING, QEMU_PAUSED, QEMU_GONE };

struct engine {
	struct loop *loop;
	struct qmp *qmp;
	struct engine_events ev;
	void *arg;
	enum qemu_state state;
	bool generic;
	bool assigned; /* generic: it has its disk */
	bool calling;  /* an op is under way; one at a time */
	engine_done_fn *fn;
	void *fn_arg;
	uint64_t deadline_ns;	      /* of the op */
	const struct qemu_step *step; /* of a sequence (qemu_state.c) */
	int state_fd;		      /* of save and load; borrowed until the op ends */
	char export_name[80];	      /* of assign_disk */
	loop_id poll;
	struct {		    /* qemu_balloon.c */
		engine_done_fn *fn; /* NULL: none is under way */
		void *arg;
		uint64_t target, deadline_ns;
		uint64_t actual, moved_ns; /* how far it was last, since when */
		loop_id poll;
	} balloon;
	unsigned int busy; /* frames of ours on the stack */
	bool freed;
};

/* An op: begun in state @needed (-EPIPE, -EBUSY), ended once, each step in what is left of its time. */
int qemu_op_begin(struct engine *g, enum qemu_state needed, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
/* Not begun after all: the caller is told by the return value, not by fn. Returns @code. */
int qemu_op_drop(struct engine *g, int code);
void qemu_op_end(struct engine *g, int code, const struct err *e);
uint32_t qemu_op_left_ms(const struct engine *g);
/* Around whatever may call the owner, who may free the engine. */
void qemu_enter(struct engine *g);
void qemu_leave(struct engine *g);

int qemu_save(struct engine *g, int fd, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
int qemu_assign_disk(struct engine *g, const char *export_name, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
int qemu_load(struct engine *g, int fd, uint32_t timeout_ms, engine_done_fn *fn, void *arg);
int qemu_balloon(struct engine *g, uint64_t bytes, uint32_t timeout_ms, engine_done_fn *fn, void *arg);

#endif
