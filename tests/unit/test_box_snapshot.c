/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot as the box sees it: freeze, memory, thaw; and every step that fails is undone.
 * More than 800 lines, because all of it is one machine and what may fail in it; each test is short. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "test_box_rig.h"

/* A cold machine behind the fake engine; @tune may be NULL. */
static struct rig *ready(void (*tune)(struct rig *r))
{
	struct rig *r = rig_new(false);

	rig_use_fake_engine(r);
	if (tune)
		tune(r);
	rig_begin(r);
	rig_boot(r);
	buf_reset(&r->trace);
	return r;
}

static int reply_of(struct rig *r, uint32_t id, const char *part)
{
	const char *words;
	int code = rig_reply(r, id, &words, NULL);

	if (!strstr(words, part))
		fail_msg("\"%s\" does not hold \"%s\"", words, part);
	return code;
}

static int ask(struct rig *r, enum box_type type, const char *part)
{
	return reply_of(r, rig_request(r, type, NULL, 0), part);
}

static void freeze(struct rig *r)
{
	struct wire_rd rd;

	assert_int_equal(rig_reply(r, rig_ask_freeze(r, 100), NULL, &rd), 0);
	assert_true(wall_ns() - wire_u64(&rd) < 3600 * 1000000000ull);
	assert_int_equal(wire_done(&rd), 0);
}

static void never(struct rig *r, struct fake_exec *x)
{
	(void)r;
	exec_started(x);
}

static void settle(struct rig *r)
{
	for (int i = 0; i < 20; i++)
		loop_once(r->loop, 1);
}

/* It is as if nothing had been: a command runs, another freeze works. */
static void all_is_well(struct rig *r)
{
	uint64_t n;

	for (size_t i = 0; i < OP_COUNT; i++)
		r->op_fail[i] = r->op_refuse[i] = 0;
	r->freeze_fails = false;
	r->on_exec = run_at_once;
	assert_int_equal(r->state, BOX_READY);
	n = rig_exec(r, "well");
	rig_done(r, n);
	record_text(r, n, "stdout", "well");
	buf_reset(&r->trace);
	freeze(r);
	assert_int_equal(ask(r, BOX_THAW, ""), 0);
	rig_traced(r, "freeze pause save resume thaw ");
}

/* -- freeze and thaw --------------------------------------------------------------------------- */

static void test_freeze_and_thaw(void **state)
{
	struct rig *r = ready(NULL);
	char text[8] = "";
	struct wire_rd rd;

	(void)state;
	freeze(r);
	rig_traced(r, "freeze pause save ");
	assert_int_equal(r->state, BOX_READY);
	assert_true(pread(r->state_fd, text, 5, 0) == 5);
	assert_string_equal(text, "STATE");
	assert_int_equal(rig_reply(r, rig_request(r, BOX_THAW, NULL, 0), NULL, &rd), 0);
	assert_true(wire_u64(&rd) > 0);
	assert_int_equal(wire_done(&rd), 0);
	rig_traced(r, "resume thaw ");
	assert_int_equal(ask(r, BOX_THAW, "not frozen"), -EBUSY);
	all_is_well(r);
	rig_free(r);
}

static void answer_fs(struct rig *r, const struct ag_frame *f)
{
	agent_frame(r, 1, AG_FS_REP, f->flags, f->stream, "\0\0\0\0attr", 8);
}

static void test_what_comes_meanwhile_waits(void **state)
{
	static const uint8_t fs[] = { AG_FS_GETATTR, 0, 0, 0, 0 };
	struct rig *r = ready(NULL);
	uint32_t fs_id;
	uint64_t a, b;

	(void)state;
	r->on_exec = never;
	r->on_fs = answer_fs;
	a = rig_exec(r, "sleep");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	freeze(r);
	/* The fake agent fails the test when a frame comes to it now. */
	b = rig_exec(r, "later");
	assert_int_equal(rig_ctl(r, a, BOX_SIGNAL, 15, 0), 0);
	fs_id = rig_request(r, BOX_FS, fs, sizeof(fs));
	settle(r);
	assert_int_equal(agent_exec(r, 0)->last_signal, 0);
	assert_int_equal(r->fs_ops.len, 0);
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), -EBUSY);
	assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), "another snapshot"), -EBUSY);
	assert_int_equal(ask(r, BOX_THAW, ""), 0);
	UNTIL(r, agent_exec(r, 0)->last_signal == 15 && r->fs_ops.len == 1);
	assert_int_equal(r->fs_ops.data[0], AG_FS_GETATTR);
	exec_exit(agent_exec(r, 0), 0);
	rig_done(r, a);
	UNTIL(r, agent_exec(r, 1) && agent_exec(r, 1)->begun);
	exec_exit(agent_exec(r, 1), 0);
	rig_done(r, b);
	assert_int_equal(rig_reply(r, fs_id, NULL, NULL), 0);
	rig_free(r);
}

static void short_times(struct rig *r)
{
	r->tuning.lost_after_ms = 50;
	r->tuning.kill_grace_ms = 10;
	r->tuning.fs_timeout_ms = 500;
}

/* Deadlines of commands and of file operations stand while the machine does. */
static void test_time_stands(void **state)
{
	static const uint8_t fs[] = { AG_FS_GETATTR, 0, 0, 0, 0 };
	struct rig *r = ready(short_times);
	uint32_t id;
	uint64_t n, until;

	(void)state;
	r->on_exec = never;
	r->on_fs = answer_fs;
	n = rig_exec(r, "{\"argv\":[\"x\"],\"timeout_s\":0.1}");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	freeze(r);
	id = rig_request(r, BOX_FS, fs, sizeof(fs));
	until = now_ns() + 600000000; /* the while that is measured, beyond every limit above */
	while (now_ns() < until)
		loop_once(r->loop, 20);
	assert_int_equal(r->state, BOX_READY);
	assert_int_equal(agent_exec(r, 0)->kills, 0);
	assert_int_equal(rig_count(r, BOX_DONE), 0);
	for (size_t i = 0; i < r->nheard; i++)
		assert_false(r->heard[i].type == BOX_REPLY && r->heard[i].id == id);
	assert_int_equal(ask(r, BOX_THAW, ""), 0);
	exec_exit(agent_exec(r, 0), 0);
	rig_done(r, n);
	record_int(r, n, "exit_code", 0);
	assert_int_equal(rig_reply(r, id, NULL, NULL), 0);
	rig_free(r);
}

static void test_refused_in_the_wrong_state(void **state)
{
	struct rig *r = rig_new(false);

	(void)state;
	rig_use_fake_engine(r);
	rig_begin(r);
	assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), "not ready yet"), -EBUSY);
	assert_int_equal(ask(r, BOX_THAW, "not frozen"), -EBUSY);
	assert_int_equal(ask(r, BOX_TRIM, ""), -EBUSY);
	rig_boot(r);
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), 0);
	assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), "is paused"), -EBUSY);
	assert_int_equal(ask(r, BOX_TRIM, ""), -EBUSY);
	assert_int_equal(rig_vm(r, BOX_VM_RESUME, 0), 0);
	assert_int_equal(reply_of(r, rig_ask_load(r, BOX_HOLD_NOT), "boots by itself"), -EBUSY);
	assert_int_equal(reply_of(r, rig_request(r, BOX_FREEZE, "\x64\0\0\0", 4), "no file"), -EBADMSG);
	assert_int_equal(reply_of(r, rig_request(r, BOX_FREEZE, "\0\0\0\0", 4), "malformed"), -EBADMSG);
	assert_int_equal(reply_of(r, rig_request(r, BOX_THAW, "x", 1), "malformed"), -EBADMSG);
	all_is_well(r);
	rig_free(r);
}

/* -- steps that fail --------------------------------------------------------------------------- */

static void test_guest_does_not_freeze(void **state)
{
	struct rig *r = ready(NULL);

	(void)state;
	r->freeze_fails = true;
	assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), "did not freeze its commands within 100 ms"), -ETIMEDOUT);
	rig_traced(r, "freeze "); /* and no THAW: it has thawed by itself */
	all_is_well(r);
	rig_free(r);
}

static void no_margin(struct rig *r)
{
	r->tuning.freeze_margin_ms = 1;
}

static void test_guest_does_not_answer(void **state)
{
	/* What it says in the end, in the order of the real one: nothing; it froze after all; it did not. */
	for (int late = 0; late < 3; late++) {
		struct rig *r = ready(no_margin);

		(void)state;
		r->freeze_silent = r->ping_silent = true;
		assert_int_equal(reply_of(r, rig_ask_freeze(r, 1), "did not freeze"), -ETIMEDOUT);
		assert_int_equal(reply_of(r, rig_ask_freeze(r, 1), "has not answered an earlier"), -EBUSY);
		if (late == 1) {
			agent_frozen(r, 1, 0);
			agent_frozen(r, 0, 0);
		} else if (late == 2) {
			agent_frozen(r, 0, -ETIMEDOUT);
		} else {
			agent_frame(r, 0, AG_PONG, 0, 0, "thaw", 4);
		}
		UNTIL(r, r->thaws == 1 && r->pings == 1);
		for (int i = 0; i < 10; i++)
			loop_once(r->loop, 1);
		r->freeze_silent = r->ping_silent = false;
		all_is_well(r);
		rig_free(r);
	}
}

/* What was sent before has to leave first, and does not: FREEZE is not sent at all, nothing is lost. */
static void test_guest_does_not_read(void **state)
{
	struct rig *r = ready(no_margin);
	AUTO_FREE char *input = calloc(1, 1 << 20);
	uint64_t n;

	(void)state;
	r->on_exec = never;
	r->gives_credit = false;
	n = rig_put(r, "{\"argv\":[\"cat\"]}", 16);
	rig_put_stdin(r, n, input, 1 << 20);
	r->deaf = true;
	assert_int_equal(rig_accept(r, n, 0), 0);
	settle(r);
	assert_int_equal(reply_of(r, rig_ask_freeze(r, 1), "did not freeze"), -ETIMEDOUT);
	assert_int_equal(r->state, BOX_READY);
	rig_listen(r);
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->in.len == AG_WINDOW);
	rig_traced(r, "");
	exec_exit(agent_exec(r, 0), 0);
	rig_done(r, n);
	all_is_well(r);
	rig_free(r);
}

static void test_engine_steps_that_fail(void **state)
{
	static const struct {
		enum rig_op op;
		bool refuse; /* else it ends with the error */
		int code;
		const char *words, *trace;
	} cases[] = {
		{ OP_PAUSE, true, -EPIPE, "could not be paused", "freeze resume thaw " },
		{ OP_PAUSE, false, -EIO, "could not be paused: the fake engine would not",
		  "freeze pause resume thaw " },
		{ OP_SAVE, true, -ENOMEM, "state could not be saved", "freeze pause resume thaw " },
		{ OP_SAVE, false, -EIO, "state could not be saved: the fake", "freeze pause save resume thaw " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rig *r = ready(NULL);
		bool runs = cases[i].op == OP_PAUSE; /* there is nothing to resume then */
		char want[64];

		(cases[i].refuse ? r->op_refuse : r->op_fail)[cases[i].op] = cases[i].code;
		assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), cases[i].words), cases[i].code);
		UNTIL(r, r->thaws == 1);
		snprintf(want, sizeof(want), "%s", cases[i].trace);
		if (runs)
			memmove(strstr(want, "resume "), "thaw ", 6);
		rig_traced(r, want);
		all_is_well(r);
		rig_free(r);
	}
}

static void test_a_pause_that_comes_late(void **state)
{
	struct rig *r = ready(NULL);

	(void)state;
	r->op_fail[OP_PAUSE] = -ETIMEDOUT;
	assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), "could not be paused"), -ETIMEDOUT);
	UNTIL(r, r->thaws == 1);
	buf_reset(&r->trace);
	rig_engine_says(r, ENGINE_EV_PAUSED, "");
	UNTIL(r, r->ops[OP_RESUME] == 1);
	all_is_well(r);
	rig_free(r);
}

static void test_resume_fails(void **state)
{
	/* In a thaw, and in an undo: the sandbox is paused in words, and RESUME mends it. */
	for (int undo = 0; undo < 2; undo++) {
		struct rig *r = ready(NULL);

		(void)state;
		r->op_fail[OP_RESUME] = -ETIMEDOUT;
		if (undo) {
			r->op_fail[OP_SAVE] = -EIO;
			assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), "could not be saved"), -EIO);
		} else {
			freeze(r);
			assert_int_equal(ask(r, BOX_THAW, "could not be resumed"), -ETIMEDOUT);
		}
		UNTIL(r, r->state == BOX_PAUSED);
		assert_non_null(strstr(r->state_words, "could not be resumed after a snapshot"));
		r->op_fail[OP_RESUME] = r->op_fail[OP_SAVE] = 0;
		assert_int_equal(rig_vm(r, BOX_VM_RESUME, 0), 0);
		UNTIL(r, r->state == BOX_READY && r->thaws == 1);
		all_is_well(r);
		rig_free(r);
	}
}

static void test_disk_fails_while_it_freezes(void **state)
{
	struct rig *r = ready(NULL);
	uint32_t id;

	(void)state;
	r->freeze_silent = true;
	id = rig_ask_freeze(r, 10000);
	UNTIL(r, r->trace.len > 0);
	rig_engine_says(r, ENGINE_EV_IO_ERROR, "the disk is full");
	rig_engine_says(r, ENGINE_EV_PAUSED, "");
	assert_int_equal(reply_of(r, id, "the disk is full"), -EIO);
	UNTIL(r, r->state == BOX_PAUSED);
	assert_string_equal(r->state_words, "the disk is full");
	r->freeze_silent = false;
	UNTIL(r, r->thaws == 1);
	assert_int_equal(rig_vm(r, BOX_VM_RESUME, 0), 0);
	UNTIL(r, r->state == BOX_READY);
	for (int i = 0; i < 10; i++)
		loop_once(r->loop, 1);
	all_is_well(r);
	rig_free(r);
}

/* -- nobody thaws ------------------------------------------------------------------------------ */

static void soon(struct rig *r)
{
	r->tuning.thaw_after_ms = 20;
	r->tuning.reconnect_ms = 1;
}

static void test_thawed_by_itself(void **state)
{
	struct rig *r = ready(soon);

	(void)state;
	freeze(r);
	UNTIL(r, rig_event(r, "{\"event\":\"thawed\",\"reason\":\"timeout\"}") && r->thaws == 1);
	rig_traced(r, "freeze pause save resume thaw ");
	assert_int_equal(ask(r, BOX_THAW, "not frozen"), -EBUSY);
	r->on_exec = run_at_once;
	rig_done(r, rig_exec(r, "x"));
	rig_free(r);
}

static void reconnect_soon(struct rig *r)
{
	r->tuning.reconnect_ms = 1;
}

/* The daemon goes: while the guest freezes, while the engine pauses, saves, and when all stands. */
static void test_daemon_gone(void **state)
{
	(void)state;
	for (int step = 0; step < 4; step++) {
		struct rig *r = ready(reconnect_soon);

		r->freeze_silent = step == 0;
		r->op_hang[OP_PAUSE] = step == 1;
		r->op_hang[OP_SAVE] = step == 2;
		rig_ask_freeze(r, 10000);
		UNTIL(r, strstr(buf_str(&r->trace) ? buf_str(&r->trace) : "", step == 0	  ? "freeze "
									      : step == 1 ? "pause "
											  : "save "));
		if (step == 3)
			UNTIL(r, rig_count(r, BOX_REPLY) == 1);
		rig_daemon_leaves(r);
		for (int i = 0; i < 10; i++)
			loop_once(r->loop, 1);
		if (step == 1 || step == 2)
			rig_engine_answers(r);
		UNTIL(r, r->thaws == 1);
		memset(r->op_hang, 0, sizeof(r->op_hang));
		r->freeze_silent = false;
		rig_daemon_back(r);
		UNTIL(r, rig_event(r, "{\"event\":\"thawed\",\"reason\":\"daemon\"}"));
		assert_int_equal(rig_count(r, BOX_REPLY), step == 3); /* an older daemon's answer is for nobody */
		all_is_well(r);
		rig_free(r);
	}
}

static void test_stop_in_the_middle(void **state)
{
	(void)state;
	for (int step = 0; step < 4; step++) {
		struct rig *r = ready(NULL);
		uint32_t freeze_id, stop_id;

		r->freeze_silent = step == 0;
		r->op_hang[OP_SAVE] = step == 1;
		freeze_id = rig_ask_freeze(r, 10000);
		if (step < 2)
			UNTIL(r, strstr(buf_str(&r->trace) ? buf_str(&r->trace) : "", step ? "save " : "freeze "));
		else
			assert_int_equal(rig_reply(r, freeze_id, NULL, NULL), 0);
		stop_id = rig_request(r, BOX_VM, step == 3 ? "\x04\0\0\0\0" : "\x02\x10\x27\0\0", 5);
		if (step == 1) {
			UNTIL(r, r->state == BOX_STOPPING);
			rig_engine_answers(r);
		}
		if (step < 2)
			assert_int_equal(reply_of(r, freeze_id, "being stopped"), -ECANCELED);
		UNTIL(r, step == 3 ? r->quits > 0 : r->shutdowns > 0);
		if (step < 3)
			rig_engine_says(r, ENGINE_EV_GONE, "");
		assert_int_equal(rig_reply(r, stop_id, NULL, NULL), 0);
		UNTIL(r, r->state == BOX_GONE && r->over);
		assert_string_equal(r->state_words, "");
		rig_free(r);
	}
}

static void test_engine_dies_frozen(void **state)
{
	struct rig *r = ready(NULL);
	uint32_t id;

	(void)state;
	r->op_hang[OP_SAVE] = true;
	id = rig_ask_freeze(r, 100);
	UNTIL(r, r->ops[OP_SAVE] == 1);
	rig_engine_says(r, ENGINE_EV_GONE, "its monitor closed");
	assert_int_equal(reply_of(r, id, "the engine ended"), -ENOTCONN);
	UNTIL(r, r->state == BOX_GONE && r->over);
	rig_free(r);
}

/* -- an agent that is not what it should be ------------------------------------------------------ */

static void test_agent_breaks_the_silence(void **state)
{
	static const char *const what[] = { "a frame behind FROZEN on control",
					    "a frame behind FROZEN on bulk",
					    "FROZEN that nobody asked for",
					    "FROZEN twice",
					    "a failure on bulk",
					    "a failure behind FROZEN",
					    "an answer that is none" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(what); i++) {
		struct rig *r = ready(NULL);

		if (i < 2) {
			freeze(r);
			agent_frame(r, (int)i, i ? AG_CREDIT : AG_PONG, 0, 0, "\0\0\0\0", 4);
		} else if (i == 2) {
			agent_frozen(r, 0, 0);
		} else {
			r->freeze_silent = true;
			rig_ask_freeze(r, 10000);
			UNTIL(r, r->trace.len > 0);
			if (i == 3) {
				agent_frozen(r, 0, 0);
				agent_frozen(r, 0, 0);
			} else if (i == 4) {
				agent_frozen(r, 1, -ETIMEDOUT);
			} else if (i == 5) {
				agent_frozen(r, 1, 0);
				UNTIL(r, r->out[1].len == 0);
				for (int k = 0; k < 5; k++)
					loop_once(r->loop, 1);
				agent_frozen(r, 0, -ETIMEDOUT);
			} else {
				agent_frozen(r, 0, 17);
			}
		}
		UNTIL(r, r->state == BOX_GONE && r->over);
		if (!strstr(r->state_words, "broke the protocol"))
			fail_msg("%s: %s", what[i], r->state_words);
		rig_free(r);
	}
}

/* -- memory ------------------------------------------------------------------------------------ */

static void test_memory_without_a_template(void **state)
{
	struct rig *r = ready(NULL);
	struct heard *h;
	char name[64];
	struct wire_rd rd;
	uint32_t id;

	(void)state;
	assert_int_equal(ask(r, BOX_MEMORY_AGAIN, "nothing was handed over"), -ENOENT);
	id = rig_ask_memory(r, false);
	assert_int_equal(rig_reply(r, id, NULL, &rd), 0);
	assert_int_equal(wire_u64(&rd), RIG_MEM_BASE);
	assert_int_equal(wire_u8(&rd), 0);
	assert_int_equal(wire_done(&rd), 0);
	h = rig_heard_reply(r, id);
	assert_int_equal(h->nfds, 2);
	assert_true(heard_fd_is(h, 0, r->mem_fds[0]) && heard_fd_is(h, 1, r->mem_fds[1]));
	assert_false(r->mem_had_template);
	id = rig_request(r, BOX_MEMORY_AGAIN, NULL, 0);
	assert_int_equal(rig_reply(r, id, NULL, &rd), 0);
	assert_int_equal(wire_u64(&rd), RIG_MEM_BASE);
	assert_int_equal(wire_u64(&rd), 0);
	assert_int_equal(wire_u8(&rd), 0);
	wire_str(&rd, name, sizeof(name));
	assert_string_equal(name, "");
	assert_int_equal(wire_done(&rd), 0);
	assert_int_equal(rig_heard_reply(r, id)->nfds, 2);
	rig_free(r);
}

static void test_rebase(void **state)
{
	struct rig *r = ready(NULL);
	struct heard *h;
	char name[64];
	struct wire_rd rd;
	uint32_t id;

	(void)state;
	assert_int_equal(reply_of(r, rig_ask_memory(r, true), "while frozen"), -EBUSY);
	assert_int_equal(r->mem_orders, 0);
	freeze(r);
	id = rig_ask_memory(r, true);
	assert_int_equal(rig_reply(r, id, NULL, &rd), 0);
	assert_int_equal(wire_u64(&rd), RIG_MEM_BASE);
	assert_int_equal(wire_u8(&rd), 1);
	assert_int_equal(wire_done(&rd), 0);
	h = rig_heard_reply(r, id);
	assert_int_equal(h->nfds, 3);
	for (size_t i = 0; i < 3; i++)
		assert_true(heard_fd_is(h, i, r->mem_fds[i]));
	assert_true(r->mem_had_template);
	assert_int_equal(r->mem_order.bytes, RIG_MEM_BYTES);
	assert_int_equal(r->mem_order.nranges, 1);
	assert_int_equal(r->mem_order.ranges[0].offset, 65536);
	assert_int_equal(r->mem_order.ranges[0].bytes, 131072);
	/* Without one again: what was in place still is. */
	assert_int_equal(rig_reply(r, rig_ask_memory(r, false), NULL, NULL), 0);
	id = rig_request(r, BOX_MEMORY_AGAIN, NULL, 0);
	assert_int_equal(rig_reply(r, id, NULL, &rd), 0);
	h = rig_heard_reply(r, id);
	assert_int_equal(wire_u64(&rd), RIG_MEM_BASE);
	assert_int_equal(wire_u64(&rd), RIG_MEM_BYTES);
	assert_int_equal(wire_u8(&rd), 1);
	wire_str(&rd, name, sizeof(name)); /* whose template that is */
	assert_string_equal(name, RIG_SNAPSHOT);
	assert_int_equal(wire_done(&rd), 0);
	assert_int_equal(h->nfds, 4);
	assert_true(heard_fd_is(h, 0, r->mem_fds[0]) && heard_fd_is(h, 1, r->mem_fds[1]));
	assert_true(heard_fd_is(h, 2, r->template_fd) && heard_fd_is(h, 3, r->mem_fds[2]));
	assert_int_equal(ask(r, BOX_THAW, ""), 0);
	rig_traced(r, "freeze pause save memory memory resume thaw ");
	all_is_well(r);
	rig_free(r);
}

static void test_rebase_without_userfaultfd(void **state)
{
	struct rig *r = ready(NULL);
	struct heard *h;
	uint32_t id;

	(void)state;
	freeze(r);
	assert_int_equal(rig_reply(r, rig_ask_memory(r, true), NULL, NULL), 0);
	r->mem_no_uffd = true;
	id = rig_ask_memory(r, true);
	assert_int_equal(rig_reply(r, id, NULL, NULL), 0);
	assert_int_equal(rig_heard_reply(r, id)->nfds, 2);
	h = rig_heard_reply(r, rig_request(r, BOX_MEMORY_AGAIN, NULL, 0));
	assert_int_equal(h->nfds, 3); /* the older userfaultfd served a mapping that is no more */
	assert_true(heard_fd_is(h, 2, r->template_fd));
	rig_free(r);
}

static void test_memory_refused(void **state)
{
	struct rig *r = ready(NULL);
	struct buf b;
	uint32_t first;

	(void)state;
	freeze(r);
	r->mem_code = -ENOMEM;
	assert_int_equal(reply_of(r, rig_ask_memory(r, true), "the fake library would not"), -ENOMEM);
	r->mem_code = 0;
	r->mem_silent = true;
	first = rig_ask_memory(r, true);
	assert_int_equal(reply_of(r, rig_ask_memory(r, false), "under way"), -EBUSY);
	rig_mem_answers(r);
	assert_int_equal(rig_reply(r, first, NULL, NULL), 0);
	r->mem_silent = false;
	/* A template, its size and its name: none without the others. */
	buf_init(&b, 64);
	for (int i = 1; i < 7; i++) {
		buf_reset(&b);
		wire_put_u64(&b, i & 1 ? RIG_MEM_BYTES : 0);
		wire_put_u32(&b, 0);
		wire_put_str(&b, i & 2 ? RIG_SNAPSHOT : "");
		assert_int_equal(reply_of(r, rig_request_fd(r, BOX_MEMORY, b.data, b.len, i & 4 ? r->state_fd : -1),
					  "come together"),
				 -EBADMSG);
	}
	buf_fini(&b);
	assert_int_equal(ask(r, BOX_THAW, ""), 0);
	all_is_well(r);
	rig_free(r);
}

/* The library has the template half in place, or speaks nonsense about it: the machine never runs again. */
static void test_lost_memory_ends_it(void **state)
{
	for (int nonsense = 0; nonsense < 2; nonsense++) {
		struct rig *r = ready(NULL);
		uint32_t memory, thaw;

		(void)state;
		freeze(r);
		r->mem_silent = true;
		memory = rig_ask_memory(r, true);
		UNTIL(r, r->mem_orders == 1);
		thaw = rig_request(r, BOX_THAW, NULL, 0);
		settle(r);
		r->mem_lost = true;
		r->mem_code = nonsense ? 0 : -ENOMEM; /* a success that lost it? */
		rig_mem_answers(r);
		assert_int_equal(rig_reply(r, memory, NULL, NULL), nonsense ? -EPIPE : -ENOMEM);
		UNTIL(r, r->state == BOX_GONE);
		assert_true(rig_reply(r, thaw, NULL, NULL) < 0);
		assert_non_null(strstr(r->state_words, "the guest's memory: "));
		assert_int_equal(r->ops[OP_RESUME], 0);
		rig_free(r);
	}
}

/* The memory is being replaced: whoever thaws waits for that. */
static void test_thaw_waits_for_the_memory(void **state)
{
	for (int by_timer = 0; by_timer < 2; by_timer++) {
		struct rig *r = ready(by_timer ? soon : NULL);
		uint32_t memory, thaw = 0;

		(void)state;
		freeze(r);
		r->mem_silent = true;
		memory = rig_ask_memory(r, true);
		UNTIL(r, r->mem_orders == 1);
		if (!by_timer)
			thaw = rig_request(r, BOX_THAW, NULL, 0);
		for (int i = 0; i < 20; i++)
			loop_once(r->loop, 5);
		assert_int_equal(r->ops[OP_RESUME], 0);
		assert_int_equal(reply_of(r, rig_ask_memory(r, true), ""), -EBUSY);
		rig_mem_answers(r);
		assert_int_equal(rig_reply(r, memory, NULL, NULL), 0);
		if (!by_timer)
			assert_int_equal(rig_reply(r, thaw, NULL, NULL), 0);
		UNTIL(r, r->thaws == 1);
		rig_traced(r, "freeze pause save memory resume thaw ");
		rig_free(r);
	}
}

static void short_memory(struct rig *r)
{
	r->tuning.memory_timeout_ms = 10;
}

static void test_memory_in_doubt_ends_it(void **state)
{
	struct rig *r = ready(short_memory);

	(void)state;
	r->mem_silent = true;
	assert_int_equal(reply_of(r, rig_ask_memory(r, false), "does not answer"), -ETIMEDOUT);
	assert_int_equal(r->state, BOX_READY); /* nothing was to be replaced */
	rig_mem_answers(r);
	for (int i = 0; i < 5; i++)
		loop_once(r->loop, 1);
	freeze(r);
	assert_int_equal(rig_reply(r, rig_ask_memory(r, true), NULL, NULL), -ETIMEDOUT);
	UNTIL(r, r->state == BOX_GONE && r->over);
	assert_non_null(strstr(r->state_words, "did not say whether the guest's memory was replaced"));
	assert_int_equal(r->ops[OP_RESUME], 0);
	rig_free(r);
}

static void test_memory_before_the_monitor_is_up(void **state)
{
	struct rig *r = rig_new(false);
	uint32_t id;

	(void)state;
	rig_use_fake_engine(r);
	r->engine_late = true;
	rig_begin(r);
	id = rig_ask_memory(r, false);
	for (int i = 0; i < 10; i++)
		loop_once(r->loop, 1);
	assert_int_equal(r->mem_orders, 0);
	rig_engine_up(r);
	assert_int_equal(rig_reply(r, id, NULL, NULL), 0);
	rig_free(r);
	/* More than can wait, and an engine that never comes. */
	r = rig_new(false);
	rig_use_fake_engine(r);
	r->engine_late = true;
	rig_begin(r);
	id = rig_ask_memory(r, false);
	for (int i = 0; i < 3; i++)
		rig_ask_memory(r, false);
	assert_int_equal(reply_of(r, rig_ask_memory(r, false), "not up yet"), -EBUSY);
	rig_engine_says(r, ENGINE_EV_GONE, "");
	assert_int_equal(rig_reply(r, id, NULL, NULL), -ENOTCONN);
	UNTIL(r, r->over);
	rig_free(r);
}

static void test_trim(void **state)
{
	struct rig *r = ready(NULL);

	(void)state;
	assert_int_equal(ask(r, BOX_TRIM, ""), 0);
	assert_int_equal(r->trims, 1);
	rig_free(r);
}

static void test_no_descriptor_is_left(void **state)
{
	unsigned int before = open_fds();
	struct rig *r = ready(NULL);

	(void)state;
	for (int i = 0; i < 3; i++) {
		freeze(r);
		rig_heard_reply(r, rig_ask_memory(r, true));
		assert_int_equal(ask(r, BOX_THAW, ""), 0);
		r->op_fail[OP_SAVE] = -EIO;
		rig_reply(r, rig_ask_freeze(r, 100), NULL, NULL);
		r->op_fail[OP_SAVE] = 0;
		UNTIL(r, r->thaws == 2 * (unsigned int)i + 2);
	}
	rig_free(r);
	assert_int_equal(open_fds(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freeze_and_thaw),
		cmocka_unit_test(test_what_comes_meanwhile_waits),
		cmocka_unit_test(test_time_stands),
		cmocka_unit_test(test_refused_in_the_wrong_state),
		cmocka_unit_test(test_guest_does_not_freeze),
		cmocka_unit_test(test_guest_does_not_answer),
		cmocka_unit_test(test_guest_does_not_read),
		cmocka_unit_test(test_engine_steps_that_fail),
		cmocka_unit_test(test_a_pause_that_comes_late),
		cmocka_unit_test(test_resume_fails),
		cmocka_unit_test(test_disk_fails_while_it_freezes),
		cmocka_unit_test(test_thawed_by_itself),
		cmocka_unit_test(test_daemon_gone),
		cmocka_unit_test(test_stop_in_the_middle),
		cmocka_unit_test(test_engine_dies_frozen),
		cmocka_unit_test(test_agent_breaks_the_silence),
		cmocka_unit_test(test_memory_without_a_template),
		cmocka_unit_test(test_rebase),
		cmocka_unit_test(test_rebase_without_userfaultfd),
		cmocka_unit_test(test_memory_refused),
		cmocka_unit_test(test_thaw_waits_for_the_memory),
		cmocka_unit_test(test_lost_memory_ends_it),
		cmocka_unit_test(test_memory_in_doubt_ends_it),
		cmocka_unit_test(test_memory_before_the_monitor_is_up),
		cmocka_unit_test(test_trim),
		cmocka_unit_test(test_no_descriptor_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
