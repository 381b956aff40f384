/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon asks a box for besides commands, and a daemon that goes and comes. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "test_box_rig.h"

static void never(struct rig *r, struct fake_exec *x)
{
	(void)r;
	exec_started(x);
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

/* -- the guest's files ------------------------------------------------------------------------- */

static void echo_fs(struct rig *r, const struct ag_frame *f)
{
	uint8_t answer[AG_PAYLOAD_MAX] = { 0 };

	memcpy(answer + 4, f->payload, f->len);
	agent_frame(r, 1, AG_FS_REP, f->flags, f->stream, answer, 4 + f->len);
}

static void refuse_fs(struct rig *r, const struct ag_frame *f)
{
	const uint8_t answer[4] = { (uint8_t)-2, 0xff, 0xff, 0xff };

	agent_frame(r, 1, AG_FS_REP, f->flags, f->stream, answer, 4);
}

static void test_fs(void **state)
{
	struct rig *r = rig_new(false);
	struct wire_rd data;
	const char *words;
	uint32_t early, ids[300];

	(void)state;
	r->on_fs = echo_fs;
	r->tuning.fs_timeout_ms = 200;
	rig_begin(r);
	early = rig_request(r, BOX_FS, "\1path", 5); /* waits for the guest */
	rig_boot(r);
	assert_int_equal(rig_reply(r, early, NULL, &data), 0);
	assert_int_equal(wire_left(&data), 4);
	assert_memory_equal(data.p, "path", 4);
	/* Many at once: all are answered, in the order in which they came. */
	r->fs_ops.len = 0;
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		uint8_t op = (uint8_t)(1 + i % 20);

		ids[i] = rig_request(r, BOX_FS, &op, 1);
	}
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		assert_int_equal(rig_reply(r, ids[i], NULL, NULL), 0);
	assert_int_equal(r->fs_ops.len, ARRAY_LEN(ids));
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		assert_int_equal(r->fs_ops.data[i], 1 + i % 20);
	r->on_fs = refuse_fs;
	assert_int_equal(rig_reply(r, rig_request(r, BOX_FS, "\5", 1), &words, NULL), -ENOENT);
	assert_true(*words);
	/* One that the guest never answers, and its late answer. */
	r->on_fs = NULL;
	assert_int_equal(rig_reply(r, rig_request(r, BOX_FS, "\5", 1), NULL, NULL), -ETIMEDOUT);
	assert_int_equal(r->state, BOX_READY);
	rig_free(r);
}

static void test_fs_not_beyond_what_may_be_in_flight(void **state)
{
	struct rig *r = rig_ready();
	uint32_t last = 0;

	(void)state;
	r->on_fs = NULL;
	for (unsigned int i = 0; i < AG_FS_INFLIGHT_MAX + 50; i++)
		last = rig_request(r, BOX_FS, "\1", 1);
	UNTIL(r, r->fs_ops.len == AG_FS_INFLIGHT_MAX);
	for (int i = 0; i < 20; i++)
		loop_once(r->loop, 0);
	assert_int_equal(r->fs_ops.len, AG_FS_INFLIGHT_MAX);
	/* The end of the guest answers them all. */
	rig_engine_dies(r);
	assert_int_equal(rig_reply(r, last, NULL, NULL), -ENOTCONN);
	rig_free(r);
}

static void test_release_is_taken_while_paused(void **state)
{
	struct rig *r = rig_ready();
	const uint8_t release[5] = { AG_FS_RELEASE, 7, 0, 0, 0 };

	(void)state;
	r->on_fs = echo_fs;
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), 0);
	assert_int_equal(rig_reply(r, rig_request(r, BOX_FS, release, sizeof(release)), NULL, NULL), 0);
	rig_free(r);
}

/* -- the daemon
 * --------------------------------------------------------------------------------------------------------- */

static void test_daemon_vanishes_and_returns(void **state)
{
	struct rig *r = rig_new(false);
	struct box_hello h;
	struct heard *m = NULL;
	struct err e = { 0 };
	uint64_t a, b, live, done;
	size_t heard;

	(void)state;
	r->tuning.reconnect_ms = 5;
	rig_begin(r);
	rig_boot(r);
	done = rig_exec(r, "echo");
	rig_done(r, done);
	two_commands(r, &a, &b);
	live = rig_put(r, "cat", 3);
	assert_int_equal(rig_accept(r, live, BOX_EXEC_BESIDE | BOX_EXEC_LIVE_STDIN), 0);
	heard = r->nheard;
	rig_daemon_leaves(r);
	/* It goes on meanwhile. */
	exec_exit(agent_exec(r, 1), 0);
	UNTIL(r, agent_exec(r, 3) && agent_exec(r, 3)->begun);
	rig_daemon_back(r);
	UNTIL(r, rig_find(r, BOX_STDIN_CREDIT, live));
	for (size_t i = heard; i < r->nheard && !m; i++)
		m = r->heard[i].type == BOX_HELLO ? &r->heard[i] : NULL;
	assert_non_null(m);
	assert_int_equal(box_hello_parse(m->data, m->len, &h, &e), 0);
	assert_int_equal(h.state, BOX_READY);
	assert_int_equal(h.last_exec, live);
	assert_int_equal(h.nopen, 2);
	assert_int_equal(h.open[0], b);
	assert_int_equal(h.open[1], live);
	assert_non_null(strstr(h.guest, "\"kernel\":\"6.1\""));
	box_hello_fini(&h);
	record_int(r, a, "exit_code", 0); /* it ended unseen: its record tells */
	exec_exit(agent_exec(r, 3), 0);
	rig_done(r, b);
	rig_free(r);
}

static void test_orphan_ends(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t a, b;

	(void)state;
	r->tuning.reconnect_ms = 5;
	r->tuning.orphan_ms = 30;
	rig_begin(r);
	rig_boot(r);
	two_commands(r, &a, &b);
	rig_daemon_leaves(r);
	UNTIL(r, r->over);
	assert_int_equal(r->quits, 1);
	record_text(r, a, "error", "the sandbox was stopped");
	rig_free(r);
}

static void test_daemon_that_does_not_read(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t n;
	int fd;

	(void)state;
	r->tuning.farewell_ms = 20;
	rig_begin(r);
	rig_boot(r);
	/* Its socket stays open, and full: commands go on, and the end is not held up. */
	fd = dup(msgconn_fd(r->daemon));
	for (int i = 0; i < 40; i++)
		rig_exec(r, "echo");
	r->daemon = msgconn_free(r->daemon);
	n = r->last_n;
	UNTIL(r, r->nexecs == n && !r->execs);
	rig_engine_dies(r);
	UNTIL(r, r->over);
	close(fd);
	rig_free(r);
}

static void test_malformed_messages_are_answered(void **state)
{
	struct rig *r = rig_ready();
	const char *words;
	uint64_t n;

	(void)state;
	assert_int_equal(rig_reply(r, rig_request(r, BOX_EXEC, "x", 1), &words, NULL), -EBADMSG);
	assert_non_null(strstr(words, "malformed"));
	assert_int_equal(rig_reply(r, rig_request(r, (enum box_type)50, "", 0), NULL, NULL), -EBADMSG);
	assert_int_equal(rig_reply(r, rig_request(r, BOX_SET, "{", 1), NULL, NULL), -EINVAL);
	n = rig_exec(r, "echo");
	rig_done(r, n);
	rig_free(r);
}

static void test_nothing_leaks(void **state)
{
	unsigned int before = open_fds();
	struct rig *r = rig_ready();
	uint64_t a, b;

	(void)state;
	two_commands(r, &a, &b);
	rig_free(r); /* in mid-command */
	assert_int_equal(open_fds(), before);
}

/* What a policy permits at most is above what the request and the sandbox say. */
static void test_timeout_of_a_policy(void **state)
{
	static const struct {
		uint32_t sandbox, most;
		const char *request, *words;
	} cases[] = {
		{ 7, 5, "x", "\"timeout_ms\":5000" },
		{ 3, 5, "x", "\"timeout_ms\":3000" },
		{ 0, 5, "x", "\"timeout_ms\":5000" },
		{ 7, 5, "{\"argv\":[\"x\"],\"timeout_s\":2}", "\"timeout_ms\":2000" },
		{ 7, 5, "{\"argv\":[\"x\"],\"timeout_s\":60}", "\"timeout_ms\":5000" },
		{ 7, 0, "{\"argv\":[\"x\"],\"timeout_s\":60}", "\"timeout_ms\":60000" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rig *r = rig_new(false);
		struct fake_exec *x;

		r->config.exec_timeout_s = cases[i].sandbox;
		r->timeout_max_s = cases[i].most;
		r->on_exec = never;
		rig_begin(r);
		rig_boot(r);
		rig_exec(r, cases[i].request);
		UNTIL(r, (x = agent_exec(r, 0)) && x->begun);
		if (!exec_json_has(x, cases[i].words))
			fail_msg("case %zu: %s", i, buf_str(&x->json));
		rig_free(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_timeout_of_a_policy),
		cmocka_unit_test(test_fs),
		cmocka_unit_test(test_fs_not_beyond_what_may_be_in_flight),
		cmocka_unit_test(test_release_is_taken_while_paused),
		cmocka_unit_test(test_daemon_vanishes_and_returns),
		cmocka_unit_test(test_orphan_ends),
		cmocka_unit_test(test_daemon_that_does_not_read),
		cmocka_unit_test(test_malformed_messages_are_answered),
		cmocka_unit_test(test_nothing_leaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
