/* SPDX-License-Identifier: Apache-2.0 */
/* A generic engine's box: pooled, loaded, warm and held, greeted as a clone; and what a restored guest inherited. More
 * lines than a file should have: each of its tests begins with the same pooled box and the same guest, loaded. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "test_box_rig.h"

static struct rig *fresh(void)
{
	struct rig *r = rig_new(false);

	rig_use_fake_engine(r);
	r->generic = true;
	r->config.restore = true;
	snprintf(r->config.parent, sizeof(r->config.parent), "before-the-storm");
	snprintf(r->config.machine_id, sizeof(r->config.machine_id), "0123456789abcdef0123456789abcdef");
	assert_true(pwrite(r->state_fd, "DEVICES", 7, 0) == 7);
	return r;
}

static struct rig *pooled(void)
{
	struct rig *r = fresh();

	rig_begin(r);
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

static void load(struct rig *r, enum box_hold hold)
{
	assert_int_equal(reply_of(r, rig_ask_memory(r, true), ""), 0);
	assert_int_equal(reply_of(r, rig_ask_load(r, hold), ""), 0);
	assert_string_equal(r->disk, "disk-of-a");
	assert_string_equal(r->loaded, "DEVICES");
}

static struct rig *held_so(enum box_hold hold)
{
	struct rig *r = pooled();

	load(r, hold);
	UNTIL(r, rig_event(r, "\"held\""));
	return r;
}

static struct rig *held(void)
{
	return held_so(BOX_HOLD_WARM);
}

static void settle(struct rig *r)
{
	for (int i = 0; i < 20; i++)
		loop_once(r->loop, 1);
}

static void gone_with(struct rig *r, const char *part)
{
	UNTIL(r, r->state == BOX_GONE && r->over);
	if (!strstr(r->state_words, part))
		fail_msg("\"%s\" does not hold \"%s\"", r->state_words, part);
}

static bool hello_has(struct rig *r, const char *part)
{
	return memmem(r->hello.data, r->hello.len, part, strlen(part)) != NULL;
}

static void is_live(struct rig *r)
{
	uint64_t n;

	UNTIL(r, r->state == BOX_READY);
	assert_true(hello_has(r, "\"clone\":{\"fork\":\"01234567-89ab-4cde-8f01-23456789abcd\","
				 "\"parent\":\"before-the-storm\","
				 "\"machine_id\":\"0123456789abcdef0123456789abcdef\"}"));
	assert_true(hello_has(r, "\"hostname\":\"a\""));
	n = rig_exec(r, "well");
	rig_done(r, n);
	record_text(r, n, "stdout", "well");
}

/* What it was told last is no identity of anybody. */
static void is_nobody(struct rig *r)
{
	assert_true(hello_has(r, "\"clone\":{\"fork\":\"00000000-0000-0000-0000-000000000000\",\"parent\":\"\","
				 "\"machine_id\":\"00000000000000000000000000000000\",\"hold\":true}"));
	assert_true(hello_has(r, "\"hostname\":\"nobody\""));
	assert_true(hello_has(r, "\"entropy\""));
	assert_true(hello_has(r, "\"memory_bytes\":0"));
}

static struct box_hello said_hello(struct rig *r, size_t nth)
{
	struct box_hello h = { 0 };
	struct err e = { 0 };

	for (size_t i = 0; i < r->nheard; i++)
		if (r->heard[i].type == BOX_HELLO && nth-- == 0) {
			assert_int_equal(box_hello_parse(r->heard[i].data, r->heard[i].len, &h, &e), 0);
			return h;
		}
	fail_msg("no such HELLO");
	return h;
}

/* -- the pooled box ---------------------------------------------------------------------------- */

static void test_pooled(void **state)
{
	struct rig *r = pooled();
	struct box_hello h = said_hello(r, 0);

	(void)state;
	assert_true(h.pooled);
	assert_int_equal(h.state, BOX_BOOTING);
	assert_string_equal(h.uuid, "");
	box_hello_fini(&h);
	assert_int_equal(rig_accept(r, 1, 0), -ENOTCONN);
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), -ENOTCONN);
	assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), ""), -ENOTCONN);
	load(r, BOX_HOLD_NOT);
	rig_traced(r, "memory assign load ");
	settle(r);
	rig_traced(r, ""); /* nothing more before START */
	rig_send_start(r);
	is_live(r);
	rig_traced(r, "resume clone ");
	h = said_hello(r, 1);
	assert_false(h.pooled);
	assert_string_equal(h.uuid, r->config.uuid);
	box_hello_fini(&h);
	rig_free(r);
}

static void test_start_before_load(void **state)
{
	for (int hold = 0; hold < 2; hold++) { /* there is no use in holding it then */
		struct rig *r = pooled();
		uint64_t n;

		(void)state;
		rig_send_start(r);
		n = rig_exec(r, "early");
		load(r, hold);
		rig_done(r, n);
		rig_traced(r, "memory assign load resume clone ");
		is_live(r);
		rig_free(r);
	}
}

static void test_snapshot_of_a_restored_one(void **state)
{
	struct rig *r = pooled();

	(void)state;
	load(r, BOX_HOLD_NOT);
	rig_send_start(r);
	is_live(r);
	buf_reset(&r->trace);
	assert_int_equal(reply_of(r, rig_ask_freeze(r, 100), ""), 0);
	assert_int_equal(reply_of(r, rig_ask_memory(r, true), ""), 0);
	assert_int_equal(reply_of(r, rig_request(r, BOX_THAW, NULL, 0), ""), 0);
	rig_traced(r, "freeze pause save memory resume thaw ");
	assert_int_equal(reply_of(r, rig_ask_load(r, BOX_HOLD_NOT), "loaded already"), -EBUSY);
	is_live(r);
	rig_free(r);
}

static void test_before_the_monitor_is_up(void **state)
{
	struct rig *r = fresh();
	uint32_t memory, load_id;

	(void)state;
	r->engine_late = true;
	rig_begin(r);
	memory = rig_ask_memory(r, true);
	settle(r);
	assert_int_equal(r->mem_orders, 0);
	rig_engine_up(r);
	assert_int_equal(reply_of(r, memory, ""), 0);
	load_id = rig_ask_load(r, BOX_HOLD_NOT);
	rig_send_start(r);
	assert_int_equal(reply_of(r, load_id, ""), 0);
	is_live(r);
	rig_free(r);
}

static void test_load_refused(void **state)
{
	struct rig *r = pooled();
	uint32_t first;

	(void)state;
	assert_int_equal(reply_of(r, rig_ask_load(r, BOX_HOLD_NOT), "memory is not in place"), -EBUSY);
	assert_int_equal(reply_of(r, rig_ask_memory(r, false), ""), 0);
	assert_int_equal(reply_of(r, rig_ask_load(r, BOX_HOLD_NOT), "memory is not in place"), -EBUSY);
	assert_int_equal(reply_of(r, rig_ask_memory(r, true), ""), 0);
	assert_int_equal(reply_of(r, rig_request(r, BOX_LOAD, "\0\1\0\0\0x", 6), "no file"), -EBADMSG);
	r->op_refuse[OP_ASSIGN] = -EBUSY;
	assert_int_equal(reply_of(r, rig_ask_load(r, BOX_HOLD_NOT), "disk could not be assigned"), -EBUSY);
	r->op_refuse[OP_ASSIGN] = 0;
	r->op_hang[OP_LOAD] = true;
	first = rig_ask_load(r, BOX_HOLD_NOT);
	UNTIL(r, r->ops[OP_LOAD] == 1);
	assert_int_equal(reply_of(r, rig_ask_load(r, BOX_HOLD_NOT), "loaded already"), -EBUSY);
	assert_int_equal(reply_of(r, rig_ask_memory(r, true), "before a load"), -EBUSY);
	rig_engine_answers(r);
	assert_int_equal(reply_of(r, first, ""), 0);
	rig_send_start(r);
	is_live(r);
	rig_free(r);
}

static void test_load_fails(void **state)
{
	static const struct {
		enum rig_op op;
		const char *words;
	} cases[] = { { OP_ASSIGN, "the disk could not be assigned: the fake engine would not" },
		      { OP_LOAD, "the saved state could not be loaded: the fake engine would not" } };

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct rig *r = pooled();
		uint64_t n = 0;

		if (i & 2) {
			rig_send_start(r);
			n = rig_exec(r, "x");
		}
		r->op_fail[cases[i & 1].op] = -EIO;
		assert_int_equal(reply_of(r, rig_ask_memory(r, true), ""), 0);
		assert_int_equal(reply_of(r, rig_ask_load(r, i & 2 ? BOX_HOLD_WARM : BOX_HOLD_NOT), cases[i & 1].words),
				 -EIO);
		gone_with(r, cases[i & 1].words);
		if (n)
			record_holds(r, n, "error", "never began: ");
		assert_int_equal(r->quits, 1);
		rig_free(r);
	}
}

static void test_resume_fails(void **state)
{
	for (enum box_hold hold = 0; hold < BOX_HOLD_COUNT; hold++) {
		struct rig *r = pooled();

		(void)state;
		r->op_fail[OP_RESUME] = -EIO;
		load(r, hold);
		if (!hold)
			rig_send_start(r);
		gone_with(r, "the restored machine could not be resumed: the fake");
		rig_free(r);
	}
}

static void test_wrong_starts(void **state)
{
	struct rig *r = pooled();

	(void)state;
	r->config.restore = false;
	rig_send_start(r);
	gone_with(r, "was told to boot");
	rig_free(r);
	r = pooled();
	r->config.machine_id[31] = 'G';
	rig_send_start(r);
	gone_with(r, "machine_id: not 32 hexadecimal digits");
	rig_free(r);
	r = pooled();
	r->config.parent[0] = '\0';
	rig_send_start(r);
	gone_with(r, "without the name of a parent");
	rig_free(r);
	r = fresh(); /* a machine that boots */
	r->generic = false;
	rig_begin(r);
	gone_with(r, "was told to restore");
	rig_free(r);
}

static void test_clone_does_not_answer(void **state)
{
	struct rig *r = pooled();

	(void)state;
	r->config.boot_timeout_s = 1;
	r->hello_silent = true;
	load(r, BOX_HOLD_NOT);
	rig_send_start(r);
	gone_with(r, "not ready after 1 s (stage: greeted as a clone)");
	rig_free(r);
}

static void test_clone_refuses(void **state)
{
	static const char bye[] = "{\"error\":\"hello: clone: /etc/machine-id: read-only\"}";
	struct rig *r = pooled();

	(void)state;
	r->hello_silent = true;
	load(r, BOX_HOLD_NOT);
	rig_send_start(r);
	UNTIL(r, r->hellos == 2);
	agent_frame(r, 0, AG_BYE, 0, 0, bye, strlen(bye));
	gone_with(r, "clone: /etc/machine-id: read-only");
	rig_free(r);
}

static void test_pooled_ends(void **state)
{
	for (int how = 0; how < 4; how++) {
		struct rig *r = fresh();
		uint32_t id = 0;

		(void)state;
		r->tuning.reconnect_ms = 1;
		r->tuning.orphan_ms = 20;
		rig_begin(r);
		load(r, how == 2);
		if (how == 0) {
			id = rig_request(r, BOX_VM, "\4\0\0\0\0", 5);
			assert_int_equal(rig_reply(r, id, NULL, NULL), 0);
			gone_with(r, "");
		} else if (how == 1) {
			rig_engine_says(r, ENGINE_EV_GONE, "its monitor closed");
			gone_with(r, "the engine ended (its monitor closed)");
		} else if (how == 2) {
			UNTIL(r, rig_event(r, "\"held\""));
			agent_frame(r, 1, AG_CREDIT, 0, 0, "\0\0\0\0", 4);
			gone_with(r, "broke the protocol");
		} else {
			rig_daemon_leaves(r);
			UNTIL(r, r->over);
			assert_string_equal(r->over_words, "no daemon");
		}
		rig_free(r);
	}
}

static void test_daemon_back_while_pooled(void **state)
{
	struct rig *r = fresh();
	struct box_hello h;
	struct heard *a;

	(void)state;
	r->tuning.reconnect_ms = 1;
	rig_begin(r);
	load(r, BOX_HOLD_WARM);
	UNTIL(r, rig_event(r, "\"held\""));
	rig_daemon_leaves(r);
	settle(r);
	rig_daemon_back(r);
	UNTIL(r, rig_count(r, BOX_HELLO) == 2);
	h = said_hello(r, 1);
	assert_true(h.pooled);
	box_hello_fini(&h);
	a = rig_heard_reply(r, rig_request(r, BOX_MEMORY_AGAIN, NULL, 0));
	assert_int_equal(a->nfds, 4);
	rig_send_start(r);
	is_live(r);
	rig_free(r);
}

/* -- warm and held ----------------------------------------------------------------------------- */

static struct fake_exec *heir(struct rig *r, uint32_t stream)
{
	struct fake_exec *x = calloc(1, sizeof(*x));

	*x = (struct fake_exec){ .next = r->execs,
				 .rig = r,
				 .stream = stream,
				 .credit = { AG_WINDOW, AG_WINDOW },
				 .whole = true,
				 .begun = true };
	buf_init(&x->json, 16);
	buf_init(&x->script, 16);
	buf_init(&x->in, 16);
	r->execs = x;
	return x;
}

static void answers_hello(struct rig *r)
{
	static const char json[] = "{\"version\":4,\"epoch\":1}";

	r->seq[0] = r->seq[1] = 0;
	agent_frame(r, 0, AG_HELLO, 0, 0, json, strlen(json));
}

static void only_the_console(struct rig *r)
{
	DIR *d = fdopendir(openat(r->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *entry;

	assert_non_null(d);
	while ((entry = readdir(d)))
		if (entry->d_name[0] != '.' && strcmp(entry->d_name, "exec") != 0 && /* the rig's */
		    strcmp(entry->d_name, "console.log") != 0)
			fail_msg("%s is there", entry->d_name);
	closedir(d);
}

static void test_held(void **state)
{
	struct rig *r = held();
	char moved[220];

	(void)state;
	rig_traced(r, "memory assign load resume hello freeze rehearsal pause ");
	assert_true(rig_event(r, "{\"event\":\"held\",\"warm\":true}"));
	is_nobody(r);
	assert_int_equal(r->nexecs, 1);
	assert_int_equal(rig_count(r, BOX_DONE), 0);
	assert_int_equal(r->state, -1);
	only_the_console(r);
	/* The daemon gives the folder its place: the box follows. */
	snprintf(moved, sizeof(moved), "%s.moved", r->dir);
	assert_int_equal(rename(r->dir, moved), 0);
	rig_send_start(r);
	is_live(r);
	rig_traced(r, "resume clone ");
	assert_int_equal(rename(moved, r->dir), 0);
	rig_free(r);
}

/* One of a user's snapshot: nothing is run in it, and it is not thawed. */
static void test_rehearsed(void **state)
{
	struct rig *r = held_so(BOX_HOLD_REHEARSED);

	(void)state;
	rig_traced(r, "memory assign load resume rehearsal pause ");
	assert_true(rig_event(r, "{\"event\":\"held\",\"warm\":true}"));
	is_nobody(r);
	assert_int_equal(r->nexecs, 0);
	assert_int_equal(r->state, -1);
	only_the_console(r);
	r->inherited = "[{\"stream\":5,\"pid\":77,\"name\":\"exec-3\"}]";
	heir(r, 5);
	rig_send_start(r);
	is_live(r);
	rig_traced(r, "resume clone ");
	assert_int_equal(r->nexecs, 1); /* is_live()'s own */
	rig_free(r);
}

/* What the agent tells of commands in a rehearsal is not believed: they are adopted at the greeting, once. */
static void test_a_rehearsal_inherits_nothing(void **state)
{
	struct rig *r = pooled();

	(void)state;
	r->inherited = "[{\"stream\":5,\"pid\":77,\"name\":\"exec-3\"}]";
	load(r, BOX_HOLD_REHEARSED);
	UNTIL(r, rig_event(r, "\"held\""));
	only_the_console(r);
	heir(r, 5);
	rig_send_start(r);
	is_live(r);
	rig_free(r);
}

static void test_start_while_it_rehearses(void **state)
{
	/* Being resumed; in the rehearsal; being paused; and the last with a pause that fails. */
	for (int step = 0; step < 4; step++) {
		struct rig *r = fresh();

		(void)state;
		r->op_hang[OP_RESUME] = step == 0;
		r->rehearsal_silent = step == 1;
		r->op_hang[OP_PAUSE] = step >= 2;
		r->op_fail[OP_PAUSE] = step == 3 ? -ETIMEDOUT : 0;
		rig_begin(r);
		load(r, BOX_HOLD_REHEARSED);
		UNTIL(r, step == 0 ? r->ops[OP_RESUME] == 1 : step == 1 ? r->hellos == 2 : r->ops[OP_PAUSE] == 1);
		rig_send_start(r);
		UNTIL(r, rig_count(r, BOX_HELLO) == 2);
		r->op_hang[OP_RESUME] = r->op_hang[OP_PAUSE] = false;
		if (step == 1)
			answers_hello(r);
		else
			rig_engine_answers(r);
		is_live(r);
		assert_string_equal(strstr(buf_str(&r->trace), "resume "),
				    step == 0	? "resume clone "
				    : step == 1 ? "resume rehearsal clone "
				    : step == 2 ? "resume rehearsal pause resume clone "
						: "resume rehearsal pause clone ");
		assert_int_equal(r->nexecs, 1); /* is_live()'s own */
		rig_free(r);
	}
}

/* A pause that was given up, and comes all the same: while nobody has the machine; while it is greeted; when it lives.
 */
static void test_a_pause_that_comes_late(void **state)
{
	for (int when = 0; when < 3; when++) {
		struct rig *r = fresh();

		(void)state;
		r->op_fail[OP_PAUSE] = -ETIMEDOUT;
		rig_begin(r);
		load(r, BOX_HOLD_REHEARSED);
		UNTIL(r, rig_event(r, "\"held\""));
		if (when == 0)
			rig_engine_says(r, ENGINE_EV_PAUSED, "");
		rig_send_start(r);
		if (when == 1) {
			UNTIL(r, strstr(buf_str(&r->trace), "clone"));
			rig_engine_says(r, ENGINE_EV_PAUSED, "");
		}
		is_live(r);
		if (when == 2)
			rig_engine_says(r, ENGINE_EV_PAUSED, "");
		UNTIL(r, r->ops[OP_RESUME] == 2);
		assert_string_equal(strstr(buf_str(&r->trace), "resume "),
				    when == 0 ? "resume rehearsal pause resume clone "
					      : "resume rehearsal pause clone resume ");
		assert_int_equal(r->state, BOX_READY);
		/* The next one is somebody's. */
		UNTIL(r, rig_engine_runs(r));
		rig_engine_says(r, ENGINE_EV_PAUSED, "");
		UNTIL(r, r->state == BOX_PAUSED);
		rig_free(r);
	}
}

/* The agent refuses, or is not there any more: the machine is lost, nobody's yet. */
static void test_rehearsal_refused(void **state)
{
	static const char bye[] = "{\"error\":\"hello: clone: hold: this guest is not frozen\"}";
	struct rig *r = pooled();

	(void)state;
	r->rehearsal_silent = true;
	load(r, BOX_HOLD_REHEARSED);
	UNTIL(r, r->hellos == 2);
	r->seq[0] = r->seq[1] = 0;
	agent_frame(r, 0, AG_BYE, 0, 0, bye, strlen(bye));
	gone_with(r, "the guest was lost: hello: clone: hold: this guest is not frozen");
	assert_false(rig_event(r, "\"held\""));
	rig_free(r);
}

static uint64_t epoch_of(struct rig *r)
{
	const char *at = strstr(buf_str(&r->hello), "\"epoch\":");

	assert_non_null(at);
	return strtoull(at + 8, NULL, 10);
}

static void test_epochs_grow(void **state)
{
	struct rig *r = held();
	uint64_t first = epoch_of(r);

	(void)state;
	assert_true(first > 1000000000); /* than those of the machine that was saved */
	rig_send_start(r);
	is_live(r);
	assert_true(epoch_of(r) > first);
	rig_free(r);
}

static void fails(struct rig *r, struct fake_exec *x)
{
	(void)r;
	exec_started(x);
	exec_exit(x, 127);
}

static void never(struct rig *r, struct fake_exec *x)
{
	(void)r;
	exec_started(x);
}

static void test_held_though_not_warm(void **state)
{
	for (int how = 0; how < 4; how++) {
		struct rig *r = fresh();

		(void)state;
		if (how == 0)
			r->on_exec = fails;
		if (how == 1) {
			r->on_exec = never;
			r->obeys = false;
			r->tuning.warm_ms = 50;
		}
		r->freeze_fails = how == 2;
		if (how == 3)
			r->op_fail[OP_PAUSE] = -ETIMEDOUT;
		rig_begin(r);
		load(r, BOX_HOLD_WARM);
		UNTIL(r, rig_event(r, "\"held\""));
		assert_int_equal(rig_event(r, "\"warm\":true"), how > 1);
		r->on_exec = run_at_once;
		r->freeze_fails = false;
		buf_reset(&r->trace);
		rig_send_start(r);
		is_live(r);
		rig_traced(r, how == 3 ? "clone " : "resume clone ");
		rig_free(r);
	}
}

static void test_start_while_it_is_being_warmed(void **state)
{
	/* Resumed; greeted; its commands run, and end when killed; do not; being frozen; being paused; rehearsing. */
	for (int step = 0; step < 7; step++) {
		struct rig *r = fresh();

		(void)state;
		r->tuning.warm_ms = step == 3 ? 100 : 5000;
		r->op_hang[OP_RESUME] = step == 0;
		r->hello_silent = step == 1;
		r->on_exec = step == 2 || step == 3 ? never : run_at_once;
		r->obeys = step != 3;
		r->freeze_silent = step == 4;
		r->op_hang[OP_PAUSE] = step == 5;
		r->rehearsal_silent = step == 6;
		rig_begin(r);
		load(r, BOX_HOLD_WARM);
		UNTIL(r, step == 0   ? r->ops[OP_RESUME] == 1
			 : step == 1 ? r->hellos == 2
			 : step < 4  ? r->nexecs == 1
			 : step == 4 ? strstr(buf_str(&r->trace), "freeze ") != NULL
			 : step == 6 ? strstr(buf_str(&r->trace), "rehearsal ") != NULL
				     : r->ops[OP_PAUSE] == 1);
		rig_send_start(r);
		UNTIL(r, rig_count(r, BOX_HELLO) == 2);
		r->on_exec = run_at_once;
		r->hello_silent = false;
		if (step == 0 || step == 5) {
			r->op_hang[OP_RESUME] = r->op_hang[OP_PAUSE] = false;
			rig_engine_answers(r);
		} else if (step == 1 || step == 6) {
			answers_hello(r);
		} else if (step == 4) {
			r->freeze_silent = false;
			agent_frozen(r, 0, 0);
			agent_frozen(r, 1, 0);
		}
		is_live(r);
		assert_int_equal(r->ops[OP_PAUSE], step == 5);
		rig_free(r);
	}
}

/* -- what was inherited ------------------------------------------------------------------------ */

static struct rig *with_heirs(const char *inherited)
{
	struct rig *r = pooled();

	r->inherited = inherited;
	load(r, BOX_HOLD_NOT);
	rig_send_start(r);
	return r;
}

static void output_is(struct rig *r, const char *path, const char *want)
{
	AUTO_FREE char *text = NULL;
	size_t len;

	assert_int_equal(fd_slurp(r->dirfd, path, 4 << 20, &text, &len), 0);
	assert_string_equal(text, want);
}

static const char *guest_json(struct rig *r)
{
	static char json[2048];
	char words[600];
	struct wire_rd rd;

	for (size_t i = r->nheard; i-- > 0;)
		if (r->heard[i].type == BOX_STATE) {
			wire_rd_init(&rd, r->heard[i].data, r->heard[i].len);
			wire_u8(&rd);
			wire_str(&rd, words, sizeof(words));
			wire_str(&rd, json, sizeof(json));
			assert_int_equal(wire_done(&rd), 0);
			return json;
		}
	return "";
}

static void test_inherited(void **state)
{
	struct rig *r = with_heirs("[{\"stream\":5,\"pid\":77,\"name\":\"exec-3\"},"
				   "{\"stream\":9,\"pid\":78,\"name\":\"exec-12\"}]");
	struct fake_exec *a = heir(r, 5);
	uint64_t n;

	(void)state;
	heir(r, 9);
	UNTIL(r, r->state == BOX_READY);
	assert_non_null(strstr(guest_json(r), "\"inherited\":[{\"n\":3,\"pid\":77,\"name\":\"exec-3\"},"
					      "{\"n\":12,\"pid\":78,\"name\":\"exec-12\"}]"));
	exec_print(a, AG_STDOUT, "one ");
	exec_print(a, AG_STDERR, "two ");
	exec_exit(a, 7);
	UNTIL(r,
	      rig_event(
		      r,
		      "{\"event\":\"inherited_ended\",\"n\":3,\"exit_code\":7,\"signal\":\"\",\"bytes\":8,\"dropped\":0}"));
	output_is(r, "inherited/3.out", "one two ");
	/* New commands have numbers of their own, in the guest too. */
	n = rig_exec(r, "well");
	rig_done(r, n);
	assert_int_equal(rig_ctl(r, 0, BOX_KILL_INHERITED, 0, 0), 0);
	UNTIL(r, rig_event(r, "{\"event\":\"inherited_ended\",\"n\":12,\"exit_code\":-1,\"signal\":\"SIGKILL\""));
	assert_int_equal(rig_ctl(r, 0, BOX_KILL_INHERITED, 0, 0), 0); /* there is none: fine */
	is_live(r);
	rig_free(r);
}

/* It prints before the box has read the answer to HELLO: the ports are read in any order. */
static void test_inherited_prints_at_once(void **state)
{
	static const char json[] =
		"{\"version\":4,\"epoch\":1,\"inherited\":[{\"stream\":5,\"pid\":77,\"name\":\"exec-3\"}]}";
	struct rig *r = pooled();
	struct fake_exec *x;

	(void)state;
	r->hello_silent = true;
	load(r, BOX_HOLD_NOT);
	rig_send_start(r);
	UNTIL(r, r->hellos == 2);
	x = heir(r, 5);
	r->seq[0] = r->seq[1] = 0;
	exec_print(x, AG_STDOUT, "at once");
	settle(r);
	agent_frame(r, 0, AG_HELLO, 0, 0, json, strlen(json));
	exec_exit(x, 0);
	UNTIL(r, rig_event(r, "\"inherited_ended\",\"n\":3"));
	output_is(r, "inherited/3.out", "at once");
	is_live(r);
	rig_free(r);
}

static void test_inherited_output_is_bounded(void **state)
{
	struct rig *r = with_heirs("[{\"stream\":5,\"pid\":77,\"name\":\"exec-3\"}]");
	struct fake_exec *x = heir(r, 5);
	struct stat st;

	(void)state;
	UNTIL(r, r->state == BOX_READY);
	exec_flood(x, AG_STDOUT, 3u << 20);
	exec_exit(x, 0);
	UNTIL(r, rig_event(r, "\"bytes\":3145728,\"dropped\":2097152"));
	assert_int_equal(fstatat(r->dirfd, "inherited/3.out", &st, 0), 0);
	assert_int_equal(st.st_size, 1 << 20);
	is_live(r);
	rig_free(r);
}

static void test_inherited_numbers(void **state)
{
	struct rig *r = with_heirs("[{\"stream\":5,\"name\":\"exec-3\"},{\"stream\":6,\"name\":\"exec-3\"},"
				   "{\"stream\":7,\"name\":\"../../etc\"},{\"stream\":8},"
				   "{\"stream\":9,\"name\":\"exec-99999999999999999999999\"},"
				   "{\"stream\":10,\"name\":\"exec--1\"}]");

	(void)state;
	UNTIL(r, r->state == BOX_READY);
	for (int n = 3; n <= 8; n++) {
		char part[20];

		snprintf(part, sizeof(part), "{\"n\":%d,", n);
		assert_non_null(strstr(guest_json(r), part));
	}
	is_live(r);
	rig_free(r);
}

static void test_more_than_can_be_listed(void **state)
{
	struct buf list;
	struct rig *r;

	(void)state;
	buf_init(&list, 1 << 20);
	buf_adds(&list, "[");
	for (int i = 1; i <= 40; i++)
		buf_addf(&list, "%s{\"stream\":%d,\"pid\":%d,\"name\":\"exec-%d\"}", i > 1 ? "," : "", i, i, i);
	buf_adds(&list, "]");
	r = with_heirs(buf_str(&list));
	UNTIL(r, r->state == BOX_READY);
	assert_non_null(strstr(guest_json(r), "\"inherited_count\":40"));
	assert_non_null(strstr(guest_json(r), "\"exec-20\""));
	exec_exit(heir(r, 40), 0);
	UNTIL(r, rig_event(r, "\"inherited_ended\",\"n\":40"));
	is_live(r);
	rig_free(r);
	buf_fini(&list);
}

static void test_inherited_nonsense(void **state)
{
	static const char *const lists[] = {
		"{}",
		"[1]",
		"[{\"stream\":0}]",
		"[{}]",
		"[{\"stream\":5},{\"stream\":5}]",
		"[{\"stream\":4294967295}]",
		"[{\"stream\":5,\"pid\":-1}]",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		struct rig *r = with_heirs(lists[i]);

		gone_with(r, "broke the protocol");
		rig_free(r);
	}
}

/* -- malformed input --------------------------------------------------------------------------- */

static void test_nonsense_never_kills(void **state)
{
	static const uint8_t types[] = { BOX_MEMORY, BOX_MEMORY_AGAIN, BOX_FREEZE, BOX_THAW, BOX_LOAD, BOX_TRIM, 63 };
	unsigned int seed = 1;

	(void)state;
	for (int live = 0; live < 2; live++) {
		struct rig *r = pooled();

		load(r, BOX_HOLD_NOT);
		if (live) {
			rig_send_start(r);
			is_live(r);
		}
		for (int i = 0; i < 400; i++) {
			uint8_t data[64];
			size_t len = (size_t)rand_r(&seed) % sizeof(data);

			for (size_t k = 0; k < len; k++)
				data[k] = rand_r(&seed) % 3 ? 0 : (uint8_t)rand_r(&seed);
			rig_heard_reply(r, rig_request_fd(r, types[(size_t)i % ARRAY_LEN(types)], data, len,
							  i % 2 ? r->state_fd : -1));
		}
		assert_false(r->over);
		if (!live)
			rig_send_start(r);
		UNTIL(r, r->state == BOX_READY);
		rig_reply(r, rig_request(r, BOX_THAW, NULL, 0), NULL, NULL); /* one of them may have been good */
		is_live(r);
		rig_free(r);
	}
}

static void test_no_descriptor_is_left(void **state)
{
	unsigned int before = open_fds();
	struct rig *r = held();

	(void)state;
	rig_free(r);
	r = pooled();
	r->op_hang[OP_LOAD] = true;
	rig_heard_reply(r, rig_ask_memory(r, true));
	rig_ask_load(r, BOX_HOLD_WARM);
	UNTIL(r, r->ops[OP_LOAD] == 1);
	rig_free(r);
	assert_int_equal(open_fds(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pooled),
		cmocka_unit_test(test_start_before_load),
		cmocka_unit_test(test_snapshot_of_a_restored_one),
		cmocka_unit_test(test_before_the_monitor_is_up),
		cmocka_unit_test(test_load_refused),
		cmocka_unit_test(test_load_fails),
		cmocka_unit_test(test_resume_fails),
		cmocka_unit_test(test_wrong_starts),
		cmocka_unit_test(test_clone_does_not_answer),
		cmocka_unit_test(test_clone_refuses),
		cmocka_unit_test(test_pooled_ends),
		cmocka_unit_test(test_daemon_back_while_pooled),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_rehearsed),
		cmocka_unit_test(test_a_rehearsal_inherits_nothing),
		cmocka_unit_test(test_start_while_it_rehearses),
		cmocka_unit_test(test_a_pause_that_comes_late),
		cmocka_unit_test(test_rehearsal_refused),
		cmocka_unit_test(test_epochs_grow),
		cmocka_unit_test(test_held_though_not_warm),
		cmocka_unit_test(test_start_while_it_is_being_warmed),
		cmocka_unit_test(test_inherited),
		cmocka_unit_test(test_inherited_prints_at_once),
		cmocka_unit_test(test_inherited_output_is_bounded),
		cmocka_unit_test(test_inherited_numbers),
		cmocka_unit_test(test_more_than_can_be_listed),
		cmocka_unit_test(test_inherited_nonsense),
		cmocka_unit_test(test_nonsense_never_kills),
		cmocka_unit_test(test_no_descriptor_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
