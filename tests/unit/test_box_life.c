/* SPDX-License-Identifier: Apache-2.0 */
/* A box from its START to its end, and what it makes of a guest, an engine or a daemon that goes wrong. */
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

static void never(struct rig *r, struct fake_exec *x)
{
	(void)r;
	exec_started(x);
}

static void words_hold(struct rig *r, const char *part)
{
	if (!strstr(r->state_words, part))
		fail_msg("\"%s\" does not hold \"%s\"", r->state_words, part);
}

static void gone_with(struct rig *r, const char *part)
{
	UNTIL(r, r->state == BOX_GONE && r->over);
	words_hold(r, part);
	assert_string_equal(r->over_words, r->state_words);
}

/* One that runs and one that waits, and the guest then does nothing. */
static void two_commands(struct rig *r, uint64_t *ret_running, uint64_t *ret_waiting)
{
	size_t before = r->nexecs;

	r->on_exec = never;
	*ret_running = rig_exec(r, "sleep 60");
	*ret_waiting = rig_exec(r, "echo");
	UNTIL(r, agent_exec(r, before) && agent_exec(r, before)->begun);
}

static void both_are_lost(struct rig *r, uint64_t running, uint64_t waiting, const char *why)
{
	assert_non_null(rig_find(r, BOX_DONE, running));
	assert_non_null(rig_find(r, BOX_DONE, waiting));
	record_int(r, running, "exit_code", -1);
	record_holds(r, running, "error", "lost: ");
	record_holds(r, running, "error", why);
	record_true(r, running, "cancelled", false);
	record_int(r, waiting, "exit_code", -1);
	record_true(r, waiting, "cancelled", true);
	record_holds(r, waiting, "error", "never began: ");
	record_holds(r, waiting, "error", why);
}

/* -- boot -------------------------------------------------------------------------------------- */

static void test_boot(void **state)
{
	struct rig *r = rig_new(false);
	struct box_hello h;
	struct heard *m;
	struct err e = { 0 };
	uint64_t n;

	(void)state;
	rig_begin(r);
	m = &r->heard[0];
	assert_int_equal(m->type, BOX_HELLO); /* before anything else */
	assert_int_equal(box_hello_parse(m->data, m->len, &h, &e), 0);
	assert_string_equal(h.uuid, r->config.uuid);
	assert_int_equal(h.state, BOX_BOOTING);
	assert_int_equal(h.nopen, 0);
	box_hello_fini(&h);
	n = rig_exec(r, "early"); /* accepted, and run when the guest is there */
	assert_int_equal(r->hellos, 0);
	agent_stage(r, "root disk");
	for (int i = 0; i < 5; i++)
		loop_once(r->loop, 0);
	assert_int_equal(r->hellos, 0);
	agent_stage(r, AG_STAGE_HELLO);
	rig_done(r, n);
	assert_int_equal(r->state, BOX_READY);
	record_int(r, n, "exit_code", 0);
	rig_free(r);
}

static void test_boot_timeout_tells_stage_and_console(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t n;

	(void)state;
	r->config.boot_timeout_s = 1;
	rig_begin(r);
	agent_stage(r, "root disk");
	assert_true(write(r->console, "Kernel panic?\r\n\033[1mno root\r\n", 29) == 29);
	n = rig_exec(r, "x");
	gone_with(r, "not ready after 1 s (stage: root disk)");
	words_hold(r, "Kernel panic? | no root");
	record_holds(r, n, "error", "never began: the guest was not ready");
	rig_free(r);
}

static void test_boot_the_agent_gives_up(void **state)
{
	struct rig *r = rig_new(false);
	static const char bye[] = "{\"error\":\"no root file system on vda\"}";

	(void)state;
	rig_begin(r);
	agent_frame(r, 0, AG_BYE, 0, 0, bye, strlen(bye));
	gone_with(r, "no root file system on vda");
	assert_int_equal(r->quits, 1);
	rig_free(r);
}

static void test_boot_the_engine_ends(void **state)
{
	struct rig *r = rig_new(false);

	(void)state;
	rig_begin(r);
	assert_true(write(r->console, "VFS: cannot mount\n", 18) == 18);
	monitor_says(r, "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-reset\"}}\r\n");
	rig_engine_dies(r);
	gone_with(r, "the guest's kernel panicked or restarted");
	words_hold(r, "before the guest was ready");
	words_hold(r, "VFS: cannot mount");
	rig_free(r);
}

static void test_bad_start(void **state)
{
	struct rig *r = rig_new(false);

	(void)state;
	r->config.name[0] = '\0';
	rig_begin(r);
	gone_with(r, "box configuration: no uuid or no name");
	rig_free(r);
	/* One that is right, in a folder that is not. */
	r = rig_new(false);
	assert_int_equal(mkdirat(r->dirfd, "console.log", 0700), 0);
	rig_begin(r);
	gone_with(r, "console: ");
	rig_free(r);
}

/* -- the engine and the guest go wrong --------------------------------------------------------- */

static void test_engine_killed_in_mid_command(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		struct rig *r = rig_ready();
		uint64_t a, b;

		two_commands(r, &a, &b);
		exec_print(agent_exec(r, 0), AG_STDOUT, "so far");
		UNTIL(r, rig_find(r, BOX_PROGRESS, a) && rig_count(r, BOX_PROGRESS) >= 2);
		rig_engine_dies(r);
		gone_with(r, "the engine ended");
		both_are_lost(r, a, b, "the engine ended (its monitor closed)");
		record_text(r, a, "stdout", "so far");
		rig_free(r);
	}
}

static void test_engine_ends_with_a_reason(void **state)
{
	struct rig *r = rig_ready();
	uint64_t a, b;

	(void)state;
	two_commands(r, &a, &b);
	monitor_says(r, "{\"event\":\"SHUTDOWN\",\"data\":{\"guest\":true,\"reason\":\"guest-shutdown\"}}\r\n");
	rig_engine_dies(r);
	gone_with(r, "the engine ended (the guest powered off)");
	both_are_lost(r, a, b, "the guest powered off");
	rig_free(r);
}

static void test_pidfd_alone_is_enough(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t one = 1, a, b;

	(void)state;
	r->tuning.settle_ms = 1;
	rig_begin(r);
	rig_boot(r);
	two_commands(r, &a, &b);
	assert_true(write(r->exit_fd, &one, sizeof(one)) > 0);
	gone_with(r, "the engine ended (killed, or crashed)");
	both_are_lost(r, a, b, "killed, or crashed");
	rig_free(r);
}

static void test_a_port_is_cut(void **state)
{
	(void)state;
	for (int port = 0; port < 2; port++) {
		struct rig *r = rig_new(false);
		uint64_t a, b;

		r->tuning.settle_ms = 1;
		rig_begin(r);
		rig_boot(r);
		two_commands(r, &a, &b);
		exec_print(agent_exec(r, 0), AG_STDOUT, "some");
		loop_del(r->loop, &r->port_src[port]);
		fd_close(&r->port[port]);
		gone_with(r, port ? "its bulk port was closed" : "its control port was closed");
		both_are_lost(r, a, b, "port was closed");
		record_text(r, a, "stdout", "some");
		assert_int_equal(r->quits, 1); /* a machine that nobody can reach is not left running */
		rig_free(r);
	}
}

static void test_malformed_frames(void **state)
{
	static const struct {
		const char *what;
		int port;
		uint8_t frame[AG_HEADER_LEN + 8];
		size_t len;
	} cases[] = {
		{ "no such type", 0, { 0, 0, 0, 0, 99 }, 16 },
		{ "longer than can be", 1, { 1, 0, 1, 0, AG_DATA }, 16 },
		{ "the zero field", 0, { 0, 0, 0, 0, AG_PONG, 0, 1 }, 16 },
		{ "a gap in seq", 0, { 0, 0, 0, 0, AG_PONG, 0, 0, 0, 0, 0, 0, 0, 77 }, 16 },
		{ "the host's own", 0, { 0, 0, 0, 0, AG_KILL }, 16 },
		{ "output on control", 0, { 1, 0, 0, 0, AG_DATA, AG_STDOUT, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'x' }, 17 },
		{ "an exit on bulk", 1, { 2, 0, 0, 0, AG_EXIT, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, '{', '}' }, 18 },
		{ "an exit without a code", 0, { 2, 0, 0, 0, AG_EXIT, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, '{', '}' }, 18 },
		{ "a stream that never was",
		  1,
		  { 1, 0, 0, 0, AG_DATA, AG_STDOUT, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 'x' },
		  17 },
		{ "input from the guest", 1, { 1, 0, 0, 0, AG_DATA, AG_STDIN, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'x' }, 17 },
		{ "credit for nothing",
		  1,
		  { 4, 0, 0, 0, AG_CREDIT, AG_STDIN, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0 },
		  20 },
		{ "an answer to nothing",
		  1,
		  { 4, 0, 0, 0, AG_FS_REP, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
		  20 },
		{ "a second hello", 0, { 2, 0, 0, 0, AG_HELLO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '{', '}' }, 18 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rig *r = rig_ready();
		uint8_t frame[sizeof(cases[0].frame)];
		uint64_t a, b;

		two_commands(r, &a, &b);
		memcpy(frame, cases[i].frame, sizeof(frame));
		if (frame[12] == 0)
			frame[12] = (uint8_t)r->seq[cases[i].port];
		agent_raw(r, cases[i].port, frame, cases[i].len);
		gone_with(r, cases[i].port ? "the agent broke the protocol on its bulk port"
					   : "the agent broke the protocol on its control port");
		both_are_lost(r, a, b, "the agent broke the protocol");
		assert_int_equal(r->quits, 1);
		rig_free(r);
	}
}

static void test_output_beyond_what_was_told(void **state)
{
	static const char json[] = "{\"exit_code\":0,\"stdout_bytes\":10,\"stderr_bytes\":0}";
	uint64_t a, b;

	(void)state;
	for (int late = 0; late < 2; late++) {
		struct rig *r = rig_ready();
		struct fake_exec *x;

		two_commands(r, &a, &b);
		x = agent_exec(r, 0);
		exec_print(x, AG_STDOUT, late ? "12345" : "12345678901");
		UNTIL(r, rig_count(r, BOX_PROGRESS) >= 2);
		agent_frame(r, 0, AG_EXIT, 0, x->stream, json, strlen(json));
		exec_print(x, AG_STDOUT, "678901");
		gone_with(r, "broke the protocol");
		both_are_lost(r, a, b, "broke the protocol");
		rig_free(r);
	}
}

static void test_silent_agent_is_lost_in_time(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t a, b, begun;

	(void)state;
	r->tuning.lost_after_ms = 100;
	r->tuning.kill_grace_ms = 10;
	rig_begin(r);
	rig_boot(r);
	r->on_exec = never;
	a = rig_exec(r, "{\"argv\":[\"sleep\",\"60\"],\"timeout_s\":0.1}");
	b = rig_exec(r, "echo");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	r->deaf = true;
	begun = now_ns();
	gone_with(r, "the guest does not answer: command 1 has not ended within its 0.1 s");
	assert_true(now_ns() - begun < 5000000000ull);
	both_are_lost(r, a, b, "does not answer");
	record_true(r, a, "timed_out", true);
	rig_free(r);
}

static void test_stopped_agent_without_a_deadline(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t a, b;

	(void)state;
	r->tuning.ping_after_ms = 20;
	r->tuning.silent_ms = 1000;
	rig_begin(r);
	rig_boot(r);
	two_commands(r, &a, &b);
	/* A living one is asked now and then, and stays. */
	UNTIL(r, r->pings >= 3);
	assert_int_equal(r->state, BOX_READY);
	r->deaf = true;
	gone_with(r, "its agent has been silent for too long");
	both_are_lost(r, a, b, "silent");
	rig_free(r);
}

static void test_idle_guest_is_not_asked(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t n, end;

	(void)state;
	r->tuning.ping_after_ms = 1;
	rig_begin(r);
	rig_boot(r);
	n = rig_exec(r, "echo");
	rig_done(r, n);
	r->pings = 0;
	for (end = now_ns() + 30000000; now_ns() < end;)
		loop_once(r->loop, 10);
	assert_int_equal(r->pings, 0);
	assert_int_equal(r->state, BOX_READY);
	rig_free(r);
}

static void test_kill_that_has_no_effect(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t a, b;

	(void)state;
	r->tuning.lost_after_ms = 50;
	r->obeys = false;
	rig_begin(r);
	rig_boot(r);
	two_commands(r, &a, &b);
	assert_int_equal(rig_ctl(r, a, BOX_KILL, 0, 0), 0);
	gone_with(r, "command 1 was killed and has not ended");
	both_are_lost(r, a, b, "was killed");
	rig_free(r);
}

static void test_output_that_never_comes(void **state)
{
	struct rig *r = rig_new(false);
	static const char json[] = "{\"exit_code\":0,\"stdout_bytes\":5,\"stderr_bytes\":0}";
	uint64_t a, b;

	(void)state;
	r->tuning.lost_after_ms = 50;
	rig_begin(r);
	rig_boot(r);
	two_commands(r, &a, &b);
	agent_frame(r, 0, AG_EXIT, 0, agent_exec(r, 0)->stream, json, strlen(json));
	gone_with(r, "the output of command 1 is missing");
	record_int(r, a, "exit_code", -1); /* never the agent's 0 */
	record_holds(r, a, "error", "lost: ");
	rig_free(r);
}

/* -- pause, stop, quit ------------------------------------------------------------------------- */

static void test_pause_and_resume(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t a, b;

	(void)state;
	r->tuning.kill_grace_ms = 1;
	rig_begin(r);
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), -EBUSY);
	rig_boot(r);
	assert_int_equal(rig_vm(r, BOX_VM_RESUME, 0), -EBUSY);
	r->on_exec = never;
	a = rig_exec(r, "{\"argv\":[\"sleep\"],\"timeout_s\":0.2}");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), 0);
	assert_int_equal(r->state, BOX_PAUSED);
	assert_int_equal(r->stops, 1);
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), -EBUSY);
	assert_int_equal(rig_vm(r, BOX_VM_SYNC, 0), -EBUSY);
	/* What comes now waits; the clock of what runs stands. */
	b = rig_put(r, "b", 1);
	assert_int_equal(rig_accept(r, b, BOX_EXEC_BESIDE), 0);
	for (uint64_t end = now_ns() + 400000000; now_ns() < end;)
		loop_once(r->loop, 50);
	assert_int_equal(agent_exec(r, 0)->kills, 0);
	assert_int_equal(r->nexecs, 1);
	assert_int_equal(rig_reply(r, rig_request(r, BOX_FS, "\1", 1), NULL, NULL), -EBUSY);
	assert_int_equal(rig_vm(r, BOX_VM_RESUME, 0), 0);
	assert_int_equal(r->state, BOX_READY);
	UNTIL(r, r->nexecs == 2);
	rig_done(r, a);
	record_true(r, a, "timed_out", true);
	{
		AUTO_JSON *o = rig_record(r, a);
		struct json_object *v;

		assert_true(json_object_object_get_ex(o, "duration_ms", &v));
		assert_true(json_object_get_int64(v) < 400); /* without the pause */
	}
	rig_free(r);
}

static void test_pause_that_the_engine_does_not_answer(void **state)
{
	struct rig *r = rig_new(false);

	(void)state;
	r->tuning.pause_timeout_ms = 20;
	rig_begin(r);
	rig_boot(r);
	r->mon_silent = true;
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), -ETIMEDOUT);
	assert_int_equal(r->state, BOX_READY);
	UNTIL(r, rig_count(r, BOX_EVENT) == 1);
	rig_free(r);
}

static void test_full_disk_pauses(void **state)
{
	struct rig *r = rig_ready();
	static const char line[] =
		"{\"event\":\"BLOCK_IO_ERROR\",\"data\":{\"nospace\":true,\"operation\":\"write\",\"action\":\"stop\"}}\r\n";

	(void)state;
	for (int i = 0; i < 10; i++)
		monitor_says(r, line);
	monitor_says(r, "{\"event\":\"STOP\"}\r\n");
	UNTIL(r, r->state == BOX_PAUSED);
	words_hold(r, "the host's disk is full");
	assert_int_equal(rig_count(r, BOX_EVENT), 1);
	assert_int_equal(rig_vm(r, BOX_VM_RESUME, 0), 0);
	assert_int_equal(r->state, BOX_READY);
	assert_string_equal(r->state_words, "");
	rig_free(r);
}

static void test_stop_is_graceful(void **state)
{
	struct rig *r = rig_ready();
	uint64_t a, b;

	(void)state;
	two_commands(r, &a, &b);
	assert_int_equal(rig_vm(r, BOX_VM_STOP, 5000), 0);
	UNTIL(r, r->over);
	assert_int_equal(r->state, BOX_GONE);
	assert_string_equal(r->state_words, "");
	assert_string_equal(r->over_words, "");
	assert_int_equal(r->shutdowns, 1);
	record_text(r, a, "signal", "SIGTERM");
	record_true(r, a, "cancelled", true);
	record_true(r, b, "cancelled", true);
	record_text(r, b, "error", "the sandbox was stopped before it began");
	rig_free(r);
}

static void test_stop_of_a_guest_that_does_not(void **state)
{
	struct rig *r = rig_ready();
	uint64_t a, b;

	(void)state;
	r->obeys = false;
	two_commands(r, &a, &b);
	assert_int_equal(rig_vm(r, BOX_VM_STOP, 20), 0);
	UNTIL(r, r->over);
	assert_int_equal(r->shutdowns, 1);
	assert_int_equal(r->quits, 1);
	assert_string_equal(r->state_words, "");
	record_text(r, a, "error", "the sandbox was stopped");
	record_true(r, a, "cancelled", true);
	rig_free(r);
}

static void test_stop_of_a_paused_one(void **state)
{
	struct rig *r = rig_ready();

	(void)state;
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), 0);
	assert_int_equal(rig_vm(r, BOX_VM_STOP, 5000), 0);
	UNTIL(r, r->over);
	assert_int_equal(r->conts, 1);
	assert_int_equal(r->shutdowns, 1);
	rig_free(r);
}

static void test_quit(void **state)
{
	struct rig *r = rig_ready();
	uint64_t a, b;

	(void)state;
	two_commands(r, &a, &b);
	assert_int_equal(rig_vm(r, BOX_VM_QUIT, 0), 0);
	UNTIL(r, r->over);
	assert_int_equal(r->shutdowns, 0);
	assert_int_equal(r->quits, 1);
	record_text(r, a, "error", "the sandbox was stopped");
	rig_free(r);
	/* Also while it boots, and when even the monitor is silent. */
	r = rig_new(false);
	r->tuning.quit_ms = 20;
	rig_begin(r);
	r->mon_silent = true;
	assert_int_equal(rig_vm(r, BOX_VM_QUIT, 0), 0);
	UNTIL(r, r->over);
	rig_free(r);
}

static void test_quit_after_stop(void **state)
{
	struct rig *r = rig_ready();
	uint8_t stop[5] = { BOX_VM_STOP, 0x10, 0x27, 0, 0 };
	uint64_t n;
	uint32_t id;

	(void)state;
	r->obeys = false;
	id = rig_request(r, BOX_VM, stop, sizeof(stop));
	UNTIL(r, r->shutdowns == 1);
	assert_int_equal(rig_vm(r, BOX_VM_STOP, 1000), -EBUSY);
	n = rig_put(r, "x", 1);
	assert_int_equal(rig_accept(r, n, 0), -EBUSY);
	assert_int_equal(rig_reply(r, rig_request(r, BOX_FS, "\1", 1), NULL, NULL), -ENOTCONN);
	assert_int_equal(rig_vm(r, BOX_VM_QUIT, 0), 0);
	assert_int_equal(rig_reply(r, id, NULL, NULL), -ECANCELED);
	UNTIL(r, r->over);
	rig_free(r);
}

static void test_sync(void **state)
{
	struct rig *r = rig_ready();

	(void)state;
	assert_int_equal(rig_vm(r, BOX_VM_SYNC, 0), 0);
	assert_int_equal(r->syncs, 1);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_boot),
		cmocka_unit_test(test_boot_timeout_tells_stage_and_console),
		cmocka_unit_test(test_boot_the_agent_gives_up),
		cmocka_unit_test(test_boot_the_engine_ends),
		cmocka_unit_test(test_bad_start),
		cmocka_unit_test(test_engine_killed_in_mid_command),
		cmocka_unit_test(test_engine_ends_with_a_reason),
		cmocka_unit_test(test_pidfd_alone_is_enough),
		cmocka_unit_test(test_a_port_is_cut),
		cmocka_unit_test(test_malformed_frames),
		cmocka_unit_test(test_output_beyond_what_was_told),
		cmocka_unit_test(test_silent_agent_is_lost_in_time),
		cmocka_unit_test(test_stopped_agent_without_a_deadline),
		cmocka_unit_test(test_idle_guest_is_not_asked),
		cmocka_unit_test(test_kill_that_has_no_effect),
		cmocka_unit_test(test_output_that_never_comes),
		cmocka_unit_test(test_pause_and_resume),
		cmocka_unit_test(test_pause_that_the_engine_does_not_answer),
		cmocka_unit_test(test_full_disk_pauses),
		cmocka_unit_test(test_stop_is_graceful),
		cmocka_unit_test(test_stop_of_a_guest_that_does_not),
		cmocka_unit_test(test_stop_of_a_paused_one),
		cmocka_unit_test(test_quit),
		cmocka_unit_test(test_quit_after_stop),
		cmocka_unit_test(test_sync),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
