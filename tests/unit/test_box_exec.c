/* SPDX-License-Identifier: Apache-2.0 */
/* Commands through a whole box: order, input, output, verbs, deadlines. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/wire.h"
#include "test_box_rig.h"

#define MIB (1024u * 1024)

static void never(struct rig *r, struct fake_exec *x)
{
	(void)r;
	exec_started(x);
}

static long size_of(struct rig *r, uint64_t n, const char *name)
{
	struct stat st;
	char path[64];

	snprintf(path, sizeof(path), "exec/%" PRIu64 "/%s", n, name);
	return fstatat(r->dirfd, path, &st, 0) < 0 ? -1 : (long)st.st_size;
}

static void test_one_command(void **state)
{
	struct rig *r = rig_ready();
	uint64_t n = rig_exec(r, "echo hi");
	struct fake_exec *x;

	(void)state;
	rig_done(r, n);
	record_int(r, n, "exit_code", 0);
	record_text(r, n, "stdout", "echo hi");
	record_text(r, n, "error", "");
	record_text(r, n, "argv", "[ \"\\/bin\\/sh\", \"\\/run\\/crucible\\/script\" ]");
	record_holds(r, n, "usage", "\"cpu_user_ms\": 1");
	/* The host's list and the guest's, whose comma is not one of the list. */
	record_holds(r, n, "isolation", "[ \"io\", \"pids; of the guest\" ]");
	/* The agent is told to forget it. */
	UNTIL(r, !r->execs);
	/* HELLO told the guest who it is. */
	assert_non_null(memmem(r->hello.data, r->hello.len, "\"hostname\":\"a\"", 14));
	assert_non_null(memmem(r->hello.data, r->hello.len, "\"memory_bytes\":536870912", 24));
	x = agent_exec(r, 0);
	assert_null(x);
	rig_free(r);
}

static void test_what_the_agent_is_asked(void **state)
{
	struct rig *r = rig_new(false);
	struct fake_exec *x;
	uint64_t n;

	(void)state;
	r->on_exec = never;
	r->config.env = strdup("A=1\nB=2\nnonsense\n=x\nB=3\nC=c");
	rig_begin(r);
	free(r->config.env);
	r->config.env = NULL;
	rig_boot(r);
	n = rig_exec(
		r,
		"{\"argv\":[\"a\",\"ä\"],\"env\":{\"A\":\"9\",\"D\":\"\"},\"cwd\":\"/w\",\"user\":\"u:g\",\"timeout_s\":2.0004,"
		"\"tty\":{\"rows\":5,\"cols\":6}}");
	UNTIL(r, (x = agent_exec(r, 0)) && x->whole);
	buf_str(&x->json);
	assert_string_equal(
		(char *)x->json.data,
		"{\"argv\":[\"a\",\"ä\"],\"env\":[\"B=3\",\"C=c\",\"A=9\",\"D=\"],\"cwd\":\"/w\",\"user\":\"u:g\","
		"\"name\":\"exec-1\",\"stdin\":false,\"tty\":{\"rows\":5,\"cols\":6},\"timeout_ms\":2001}");
	assert_int_equal(rig_ctl(r, n, BOX_RESIZE, 50, 60), 0);
	assert_int_equal(rig_ctl(r, n, BOX_SIGNAL, 15, 0), 0);
	UNTIL(r, x->last_signal == 15);
	assert_int_equal(x->rows, 50);
	assert_int_equal(x->cols, 60);
	assert_int_equal(rig_ctl(r, n, BOX_RESIZE, 0, 60), -EINVAL);
	assert_int_equal(rig_ctl(r, n, BOX_RESIZE, 1, 65536), -EINVAL);
	assert_int_equal(rig_ctl(r, n, BOX_SIGNAL, 65, 0), -EINVAL);
	assert_int_equal(rig_ctl(r, n + 1, BOX_KILL, 0, 0), -ENOENT);
	rig_free(r);
}

static void test_a_hundred_in_order(void **state)
{
	struct rig *r = rig_ready();
	uint64_t first = 0, n = 0, last = 0;
	size_t seen = 0;

	(void)state;
	for (int i = 0; i < 100; i++) {
		char text[32];

		snprintf(text, sizeof(text), "echo %d", i);
		n = rig_exec(r, text);
		first = first ? first : n;
	}
	rig_done(r, n);
	for (size_t i = 0; i < r->nheard; i++)
		if (r->heard[i].type == BOX_DONE) {
			struct wire_rd rd;

			wire_rd_init(&rd, r->heard[i].data, r->heard[i].len);
			n = wire_u64(&rd);
			assert_true(n > last);
			last = n;
			seen++;
		}
	assert_int_equal(seen, 100);
	for (n = first; n < first + 100; n++) {
		char text[32];

		snprintf(text, sizeof(text), "echo %d", (int)(n - first));
		record_text(r, n, "stdout", text);
	}
	rig_free(r);
}

static void test_bad_json_ends_in_its_turn(void **state)
{
	struct rig *r = rig_ready();
	uint64_t a, b, c;

	(void)state;
	r->on_exec = never;
	a = rig_exec(r, "sleep 9");
	b = rig_exec(r, "{bad");
	c = rig_exec(r, "  ");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	assert_null(rig_find(r, BOX_DONE, b));
	assert_int_equal(size_of(r, b, "result.json"), -1);
	exec_exit(agent_exec(r, 0), 3);
	rig_done(r, a);
	rig_done(r, b);
	rig_done(r, c);
	record_int(r, a, "exit_code", 3);
	record_int(r, b, "exit_code", -1);
	record_holds(r, b, "error", "JSON");
	record_text(r, b, "started_at", "");
	record_text(r, c, "error", "the command is blank");
	assert_int_equal(r->nexecs, 1);
	rig_free(r);
}

static void test_many_bad_ones_do_not_nest(void **state)
{
	struct rig *r = rig_ready();
	uint64_t n = 0;

	(void)state;
	for (int i = 0; i < 300; i++)
		n = rig_exec(r, "{");
	rig_done(r, n);
	assert_int_equal(rig_count(r, BOX_DONE), 300);
	rig_free(r);
}

static void test_text_that_is_not_there(void **state)
{
	struct rig *r = rig_ready();

	(void)state;
	assert_int_equal(rig_accept(r, 7, 0), 0);
	UNTIL(r, rig_find(r, BOX_DONE, 7)); /* not even a folder: the daemon hears of it all the same */
	assert_int_equal(rig_accept(r, 7, 0), -ENOENT);
	assert_int_equal(rig_accept(r, 6, 0), -ENOENT);
	rig_free(r);
}

static void test_ebusy_queue_full(void **state)
{
	struct rig *r = rig_ready();
	uint64_t n;

	(void)state;
	r->on_exec = never;
	for (unsigned int i = 0; i <= BOX_QUEUE_MAX; i++) /* one runs, 64 wait */
		rig_exec(r, "x");
	n = rig_put(r, "x", 1);
	assert_int_equal(rig_accept(r, n, 0), -EBUSY);
	rig_done(r, n); /* its record is there for who waits */
	record_holds(r, n, "error", "64 commands wait already");
	/* Beside has a bound of its own. */
	for (unsigned int i = 0; i < BOX_BESIDE_MAX; i++)
		assert_int_equal(rig_accept(r, rig_put(r, "x", 1), BOX_EXEC_BESIDE), 0);
	n = rig_put(r, "x", 1);
	assert_int_equal(rig_accept(r, n, BOX_EXEC_BESIDE), -EBUSY);
	rig_done(r, n);
	record_holds(r, n, "error", "256 commands run side by side already");
	UNTIL(r, r->nexecs == 1 + BOX_BESIDE_MAX);
	rig_free(r);
}

static void test_cancel_and_kill(void **state)
{
	struct rig *r = rig_ready();
	uint64_t a, b, c;

	(void)state;
	r->on_exec = never;
	a = rig_exec(r, "a");
	b = rig_exec(r, "b");
	c = rig_exec(r, "c");
	assert_int_equal(rig_ctl(r, b, BOX_SIGNAL, 9, 0), -ENOENT); /* it waits */
	assert_int_equal(rig_ctl(r, b, BOX_CANCEL, 0, 0), 0);
	rig_done(r, b);
	record_true(r, b, "cancelled", true);
	record_int(r, b, "exit_code", -1);
	record_int(r, b, "duration_ms", 0);
	assert_int_equal(rig_ctl(r, b, BOX_CANCEL, 0, 0), -ENOENT);
	/* 0 is the one that runs. */
	assert_int_equal(rig_ctl(r, 0, BOX_KILL, 0, 0), 0);
	rig_done(r, a);
	record_text(r, a, "signal", "SIGKILL");
	record_true(r, a, "cancelled", false);
	record_text(r, a, "error", "");
	assert_int_equal(rig_ctl(r, c, BOX_CANCEL, 0, 0), 0);
	rig_done(r, c);
	record_text(r, c, "signal", "SIGKILL");
	record_true(r, c, "cancelled", true);
	assert_int_equal(rig_ctl(r, 0, BOX_KILL, 0, 0), -ENOENT);
	rig_free(r);
}

/* -- output ------------------------------------------------------------------------------------ */

static uint64_t flood_out, flood_err;

static void flood(struct rig *r, struct fake_exec *x)
{
	(void)r;
	exec_started(x);
	x->flood[0] = flood_out;
	x->flood[1] = flood_err;
	exec_exit(x, 0);
}

static void test_output_sizes_are_exact(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 65535, 65536, 65537, 98304, MIB - 1, MIB, MIB + 1, 3 * MIB };
	struct rig *r = rig_ready();

	(void)state;
	r->on_exec = flood;
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		uint64_t n, kept = sizes[i] < MIB ? sizes[i] : MIB, text = kept < 65536 ? kept : 65536;
		AUTO_JSON *o = NULL;
		struct json_object *v;

		flood_out = sizes[i];
		flood_err = sizes[ARRAY_LEN(sizes) - 1 - i];
		n = rig_exec(r, "flood");
		rig_done(r, n);
		assert_int_equal(size_of(r, n, "stdout"), (long)kept);
		record_int(r, n, "stdout_bytes", (int64_t)sizes[i]);
		record_true(r, n, "stdout_truncated", sizes[i] > MIB);
		record_int(r, n, "stderr_bytes", (int64_t)flood_err);
		record_true(r, n, "stderr_truncated", flood_err > MIB);
		record_text(r, n, "error", "");
		o = rig_record(r, n);
		assert_true(json_object_object_get_ex(o, "stdout", &v));
		assert_int_equal(json_object_get_string_len(v), (int)text);
	}
	rig_free(r);
}

static void test_output_mib_of_the_request(void **state)
{
	struct rig *r = rig_ready();
	uint64_t n;

	(void)state;
	r->on_exec = flood;
	flood_out = 5 * MIB;
	flood_err = 0;
	n = rig_exec(r, "{\"script\":\"x\",\"output_mib\":3}");
	rig_done(r, n);
	assert_int_equal(size_of(r, n, "stdout"), 3 * MIB);
	record_true(r, n, "stdout_truncated", true);
	rig_free(r);
}

static void test_old_output_makes_room(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t n = 0;

	(void)state;
	r->config.spool_mib = 3;
	r->on_exec = flood;
	flood_out = MIB;
	flood_err = 0;
	rig_begin(r);
	rig_boot(r);
	for (int i = 0; i < 6; i++) {
		n = rig_exec(r, "x");
		rig_done(r, n);
	}
	assert_int_equal(size_of(r, 1, "stdout"), -1);
	assert_int_equal(size_of(r, n, "stdout"), MIB);
	record_true(r, n, "stdout_truncated", false);
	UNTIL(r, rig_count(r, BOX_EVENT) > 0);
	rig_free(r);
}

static void test_progress_tells_growth(void **state)
{
	struct rig *r = rig_new(false);
	struct wire_rd rd;
	struct heard *h;
	uint64_t n;

	(void)state;
	r->tuning.progress_ms = 1;
	rig_begin(r);
	rig_boot(r);
	r->on_exec = never;
	n = rig_exec(r, "x");
	UNTIL(r, (h = rig_find(r, BOX_PROGRESS, n)));
	wire_rd_init(&rd, h->data, h->len);
	wire_u64(&rd);
	assert_int_equal(wire_u8(&rd), 1);
	assert_int_equal(wire_u64(&rd), 0);
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	/* Printed a while after each other: both are told, the second by the timer at the latest. */
	for (uint64_t bytes = 3; bytes <= 6; bytes += 3) {
		uint64_t told = 0;

		exec_print(agent_exec(r, 0), AG_STDERR, "abc");
		for (uint64_t end = now_ns() + RIG_WAIT_NS; told != bytes && now_ns() < end;) {
			loop_once(r->loop, 20);
			h = rig_find(r, BOX_PROGRESS, n);
			wire_rd_init(&rd, h->data, h->len);
			wire_raw(&rd, 17);
			told = wire_u64(&rd);
		}
		assert_int_equal(told, bytes);
	}
	exec_exit(agent_exec(r, 0), 0);
	rig_done(r, n);
	rig_free(r);
}

static void test_invalid_utf8(void **state)
{
	struct rig *r = rig_ready();
	AUTO_FREE char *raw = NULL;
	uint64_t n;
	size_t len;

	(void)state;
	r->on_exec = never;
	n = rig_exec(r, "x");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	/* One character in two frames, then something that is none. */
	exec_print(agent_exec(r, 0), AG_STDOUT, "a\xc3");
	exec_print(agent_exec(r, 0), AG_STDOUT, "\xa4\xff!");
	exec_exit(agent_exec(r, 0), 0);
	rig_done(r, n);
	record_text(r, n, "stdout", "aä\xef\xbf\xbd!");
	assert_int_equal(fd_slurp(r->dirfd, "exec/1/stdout", 100, &raw, &len), 0);
	assert_int_equal(len, 5);
	assert_memory_equal(raw, "a\xc3\xa4\xff!", 5);
	rig_free(r);
}

static void test_exit_before_the_output(void **state)
{
	struct rig *r = rig_ready();
	struct fake_exec *x;
	uint64_t n;
	static const char exit_json[] = "{\"exit_code\":0,\"stdout_bytes\":6,\"stderr_bytes\":0}";

	(void)state;
	r->on_exec = never;
	n = rig_exec(r, "x");
	UNTIL(r, (x = agent_exec(r, 0)) && x->begun);
	exec_print(x, AG_STDOUT, "abc");
	agent_frame(r, 0, AG_EXIT, 0, x->stream, exit_json, strlen(exit_json));
	for (int i = 0; i < 5; i++)
		loop_once(r->loop, 0);
	assert_null(rig_find(r, BOX_DONE, n));
	exec_print(x, AG_STDOUT, "def");
	rig_done(r, n);
	record_text(r, n, "stdout", "abcdef");
	rig_free(r);
}

static void test_enospc_ends_the_command_not_the_box(void **state)
{
	struct rig *r = rig_new(false);
	const char *must = getenv("CRUCIBLE_MUST_RUN");
	uint64_t n;

	(void)state;
	if (mount("none", r->dir, "tmpfs", 0, "size=256k") < 0) {
		fprintf(stderr, "skipped: no mount here: %s\n", strerror(errno));
		rig_free(r);
		if (must && strcmp(must, "1") == 0)
			fail_msg("may not be skipped");
		skip();
	}
	fd_close(&r->dirfd);
	r->dirfd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(r->dirfd, "exec", 0700), 0);
	rig_begin(r);
	rig_boot(r);
	r->on_exec = flood;
	flood_out = MIB;
	flood_err = 0;
	n = rig_exec(r, "x");
	rig_done(r, n);
	/* Even its record has a place: the output made way for it. */
	record_int(r, n, "exit_code", -1);
	record_holds(r, n, "error", "its output could not be kept: the host's disk is full");
	record_true(r, n, "stdout_truncated", true);
	/* The next one is clean. */
	flood_out = 1000;
	n = rig_exec(r, "x");
	rig_done(r, n);
	record_int(r, n, "exit_code", 0);
	record_int(r, n, "stdout_bytes", 1000);
	record_text(r, n, "error", "");
	rig_free(r);
}

/* -- input ------------------------------------------------------------------------------------- */

static void test_large_script_and_input(void **state)
{
	struct rig *r = rig_ready();
	size_t script_len = BOX_CMD_MAX, in_len = 5 * MIB + 17;
	AUTO_FREE char *script = malloc(script_len), *in = malloc(in_len);
	struct fake_exec *x;
	uint64_t n;

	(void)state;
	r->on_exec = NULL;
	for (size_t i = 0; i < script_len; i++)
		script[i] = (char)('a' + i * i % 26);
	for (size_t i = 0; i < in_len; i++)
		in[i] = (char)(i * i / 7);
	n = rig_put(r, script, script_len);
	rig_put_stdin(r, n, in, in_len);
	assert_int_equal(rig_accept(r, n, 0), 0);
	UNTIL(r, (x = agent_exec(r, 0)) && x->script_eof && x->in_eof);
	assert_true(exec_json_has(x, "\"script\":true"));
	assert_true(exec_json_has(x, "\"stdin\":true"));
	assert_int_equal(x->script.len, script_len);
	assert_memory_equal(x->script.data, script, script_len);
	assert_int_equal(x->in.len, in_len);
	assert_memory_equal(x->in.data, in, in_len);
	exec_exit(x, 0);
	rig_done(r, n);
	record_text(r, n, "error", "");
	rig_free(r);
}

static void test_script_of_json_is_spilled(void **state)
{
	struct rig *r = rig_ready();
	size_t len = 200000;
	AUTO_FREE char *cmd = malloc(len + 100);
	struct fake_exec *x;

	(void)state;
	r->on_exec = NULL;
	strcpy(cmd, "{\"stdin\":\"in\",\"script\":\"");
	memset(cmd + strlen(cmd), 'y', len);
	strcpy(cmd + 24 + len, "\\n\"}");
	rig_exec(r, cmd);
	UNTIL(r, (x = agent_exec(r, 0)) && x->script_eof && x->in_eof);
	assert_int_equal(x->script.len, len + 1);
	assert_int_equal(x->in.len, 2);
	assert_int_equal(faccessat(r->dirfd, ".spill", F_OK, 0), -1);
	rig_free(r);
}

static void test_environment_of_64_kib(void **state)
{
	struct rig *r = rig_ready();
	struct buf cmd;
	struct fake_exec *x;

	(void)state;
	r->on_exec = never;
	buf_init(&cmd, MIB);
	buf_adds(&cmd, "{\"argv\":[\"env\"],\"env\":{");
	for (int i = 0; i < 60; i++)
		buf_addf(&cmd, "%s\"V%d\":\"%0*d\"", i ? "," : "", i, 1100, i);
	buf_adds(&cmd, "}}");
	rig_exec(r, buf_str(&cmd));
	UNTIL(r, (x = agent_exec(r, 0)) && x->begun);
	assert_true(x->json.len > AG_PAYLOAD_MAX);
	assert_true(exec_json_has(x, "\"V59="));
	buf_fini(&cmd);
	rig_free(r);
}

static void test_e2big(void **state)
{
	struct rig *r = rig_ready();
	AUTO_FREE char *cmd = malloc(2 * MIB);
	uint64_t n;

	(void)state;
	strcpy(cmd, "{\"argv\":[\"a\",\"");
	memset(cmd + 14, 'z', AG_EXEC_JSON_MAX);
	strcpy(cmd + 14 + AG_EXEC_JSON_MAX, "\"]}");
	n = rig_exec(r, cmd);
	rig_done(r, n);
	record_holds(r, n, "error", "arguments and environment are longer than 1024 KiB");
	/* It did not begin, and the next one is clean. */
	assert_int_equal(r->nexecs, 0);
	n = rig_exec(r, "echo");
	rig_done(r, n);
	record_int(r, n, "exit_code", 0);
	rig_free(r);
}

static void say_stdin(struct rig *r, uint64_t n, bool eof, size_t len, int want)
{
	struct buf m;

	buf_init(&m, MSG_MAX);
	wire_put_u64(&m, n);
	wire_put_u8(&m, eof);
	for (size_t i = 0; i < len; i++)
		wire_put_u8(&m, (uint8_t)i);
	assert_int_equal(rig_reply(r, rig_request(r, BOX_STDIN, m.data, m.len), NULL, NULL), want);
	buf_fini(&m);
}

static void test_live_stdin_and_its_credit(void **state)
{
	struct rig *r = rig_ready();
	struct fake_exec *x;
	struct wire_rd rd;
	struct heard *h;
	uint64_t n = rig_put(r, "cat", 3), q;
	uint8_t credit[4] = { 0, 0, 2, 0 }; /* 128 KiB */

	(void)state;
	r->on_exec = never;
	r->gives_credit = false;
	assert_int_equal(rig_accept(r, n, BOX_EXEC_BESIDE | BOX_EXEC_LIVE_STDIN), 0);
	UNTIL(r, (x = agent_exec(r, 0)) && x->begun);
	say_stdin(r, n, false, 128 * 1024, 0);
	say_stdin(r, n, false, 128 * 1024, 0);
	UNTIL(r, x->in.len == BOX_STDIN_WINDOW);
	say_stdin(r, n, false, 1, -ENOBUFS);
	say_stdin(r, n, false, 0, 0);
	/* The guest has read: so much more may come, and the daemon is told. */
	agent_frame(r, 1, AG_CREDIT, AG_STDIN, x->stream, credit, 4);
	UNTIL(r, (h = rig_find(r, BOX_STDIN_CREDIT, n)));
	wire_rd_init(&rd, h->data, h->len);
	wire_u64(&rd);
	assert_int_equal(wire_u32(&rd), 128 * 1024);
	say_stdin(r, n, false, 100 * 1024, 0);
	say_stdin(r, n, true, 28 * 1024, 0);
	UNTIL(r, x->in_eof);
	assert_int_equal(x->in.len, BOX_STDIN_WINDOW + 128 * 1024);
	say_stdin(r, n, false, 1, -EPIPE);
	/* The queue is not held up by it. */
	r->on_exec = run_at_once;
	q = rig_exec(r, "echo");
	rig_done(r, q);
	say_stdin(r, q, false, 1, -ENOENT);
	exec_exit(x, 0);
	rig_done(r, n);
	say_stdin(r, n, false, 1, -ENOENT);
	rig_free(r);
}

static void test_live_stdin_before_it_begins(void **state)
{
	struct rig *r = rig_new(false);
	struct fake_exec *x;
	uint64_t n;

	(void)state;
	r->on_exec = never;
	rig_begin(r);
	n = rig_put(r, "cat", 3);
	assert_int_equal(rig_accept(r, n, BOX_EXEC_BESIDE | BOX_EXEC_LIVE_STDIN), 0);
	say_stdin(r, n, false, 100 * 1024, 0);
	say_stdin(r, n, false, 100 * 1024, 0);
	say_stdin(r, n, false, 100 * 1024, -ENOBUFS);
	say_stdin(r, n, true, 56 * 1024, 0);
	say_stdin(r, n, false, 1, -EPIPE);
	rig_boot(r);
	UNTIL(r, (x = agent_exec(r, 0)) && x->in_eof);
	assert_int_equal(x->in.len, BOX_STDIN_WINDOW);
	rig_free(r);
}

static void test_one_that_does_not_read_delays_nobody(void **state)
{
	struct rig *r = rig_ready();
	AUTO_FREE char *in = calloc(1, 2 * MIB);
	struct fake_exec *x;
	uint64_t a = rig_put(r, "a", 1), b = rig_put(r, "b", 1);

	(void)state;
	r->on_exec = never;
	r->gives_credit = false;
	rig_put_stdin(r, a, in, 2 * MIB);
	assert_int_equal(rig_accept(r, a, BOX_EXEC_BESIDE), 0);
	UNTIL(r, (x = agent_exec(r, 0)) && x->in.len == AG_WINDOW);
	r->gives_credit = true;
	rig_put_stdin(r, b, in, 2 * MIB);
	assert_int_equal(rig_accept(r, b, BOX_EXEC_BESIDE), 0);
	UNTIL(r, agent_exec(r, 1) && agent_exec(r, 1)->in_eof);
	assert_int_equal(agent_exec(r, 1)->in.len, 2 * MIB);
	assert_int_equal(agent_exec(r, 0)->in.len, AG_WINDOW);
	rig_free(r);
}

static void test_set_env_and_name(void **state)
{
	struct rig *r = rig_ready();
	static const char set[] = "{\"name\":\"final\",\"env\":\"X=1\\n\"}";
	uint64_t a, b, c;

	(void)state;
	r->on_exec = never;
	a = rig_exec(r, "a");
	b = rig_exec(r, "b"); /* accepted before: it keeps what was */
	assert_int_equal(rig_reply(r, rig_request(r, BOX_SET, set, strlen(set)), NULL, NULL), 0);
	c = rig_exec(r, "c");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	exec_exit(agent_exec(r, 0), 0);
	rig_done(r, a);
	UNTIL(r, agent_exec(r, 1) && agent_exec(r, 1)->begun);
	assert_false(exec_json_has(agent_exec(r, 1), "X=1"));
	exec_exit(agent_exec(r, 1), 0);
	rig_done(r, b);
	UNTIL(r, agent_exec(r, 2) && agent_exec(r, 2)->begun);
	assert_true(exec_json_has(agent_exec(r, 2), "\"env\":[\"X=1\"]"));
	exec_exit(agent_exec(r, 2), 0);
	rig_done(r, c);
	record_text(r, c, "sandbox", "final");
	rig_free(r);
}

/* -- deadlines --------------------------------------------------------------------------------- */

static void test_timeout_is_kept_by_the_host(void **state)
{
	struct rig *r = rig_new(false);
	uint64_t n;

	(void)state;
	r->tuning.kill_grace_ms = 1;
	r->on_exec = never; /* an agent that does not keep the time */
	rig_begin(r);
	rig_boot(r);
	n = rig_exec(r, "{\"argv\":[\"sleep\",\"9\"],\"timeout_s\":0.05}");
	rig_done(r, n);
	record_true(r, n, "timed_out", true);
	record_text(r, n, "signal", "SIGKILL");
	record_int(r, n, "exit_code", -1);
	record_text(r, n, "error", "");
	rig_free(r);
}

/* A busy guest that has not begun to run it yet is given a while; the time counts from then. */
static void test_timeout_counts_from_a_late_start(void **state)
{
	struct rig *r = rig_new(false);
	struct fake_exec *x;
	uint64_t n, begun;

	(void)state;
	r->tuning.kill_grace_ms = 1;
	r->on_exec = NULL; /* not even begun */
	rig_begin(r);
	rig_boot(r);
	n = rig_exec(r, "{\"argv\":[\"sleep\",\"9\"],\"timeout_s\":0.05}");
	UNTIL(r, (x = agent_exec(r, 0)) && x->begun);
	begun = now_ns();
	UNTIL(r, now_ns() - begun > 100000000u);
	assert_int_equal(x->kills, 0);
	exec_started(x);
	rig_done(r, n);
	record_true(r, n, "timed_out", true);
	assert_true(now_ns() - begun > 150000000u);
	rig_free(r);
}

static void test_timeout_of_the_sandbox(void **state)
{
	struct rig *r = rig_new(false);
	struct fake_exec *x;

	(void)state;
	r->config.exec_timeout_s = 7;
	r->on_exec = never;
	rig_begin(r);
	rig_boot(r);
	rig_exec(r, "x");
	UNTIL(r, (x = agent_exec(r, 0)) && x->begun);
	assert_true(exec_json_has(x, "\"timeout_ms\":7000"));
	rig_free(r);
}

static void test_the_agents_timeout(void **state)
{
	struct rig *r = rig_ready();
	uint64_t n;

	(void)state;
	r->on_exec = never;
	n = rig_exec(r, "{\"argv\":[\"sleep\"],\"timeout_s\":60}");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	exec_killed(agent_exec(r, 0), "SIGKILL", ",\"timed_out\":true,\"oom_killed\":true");
	rig_done(r, n);
	record_true(r, n, "timed_out", true);
	record_true(r, n, "oom_killed", true);
	rig_free(r);
}

static void test_what_the_agent_claims_is_cleaned(void **state)
{
	struct rig *r = rig_ready();
	struct fake_exec *x;
	uint64_t n;
	static const char *const claims[] = {
		"{\"exit_code\":0,\"signal\":\"SIGKILL\",\"stdout_bytes\":0,\"stderr_bytes\":0}",
		"{\"exit_code\":0,\"error\":\"a\\u0007\\u009b\\nb\",\"stdout_bytes\":0,\"stderr_bytes\":0}",
		"{\"exit_code\":-1,\"signal\":\"rm -rf\",\"stdout_bytes\":0,\"stderr_bytes\":0}",
	};
	static const char *const errors[] = { "", "a???b", "the agent gave neither an exit code nor a reason" };

	(void)state;
	r->on_exec = never;
	for (size_t i = 0; i < ARRAY_LEN(claims); i++) {
		n = rig_exec(r, "x");
		UNTIL(r, (x = agent_exec(r, i)) && x->begun);
		agent_frame(r, 0, AG_EXIT, 0, x->stream, claims[i], strlen(claims[i]));
		rig_done(r, n);
		record_int(r, n, "exit_code", -1);
		record_text(r, n, "signal", i == 0 ? "SIGKILL" : "");
		record_text(r, n, "error", errors[i]);
	}
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_command),
		cmocka_unit_test(test_what_the_agent_is_asked),
		cmocka_unit_test(test_a_hundred_in_order),
		cmocka_unit_test(test_bad_json_ends_in_its_turn),
		cmocka_unit_test(test_many_bad_ones_do_not_nest),
		cmocka_unit_test(test_text_that_is_not_there),
		cmocka_unit_test(test_ebusy_queue_full),
		cmocka_unit_test(test_cancel_and_kill),
		cmocka_unit_test(test_output_sizes_are_exact),
		cmocka_unit_test(test_output_mib_of_the_request),
		cmocka_unit_test(test_old_output_makes_room),
		cmocka_unit_test(test_progress_tells_growth),
		cmocka_unit_test(test_invalid_utf8),
		cmocka_unit_test(test_exit_before_the_output),
		cmocka_unit_test(test_enospc_ends_the_command_not_the_box),
		cmocka_unit_test(test_large_script_and_input),
		cmocka_unit_test(test_script_of_json_is_spilled),
		cmocka_unit_test(test_environment_of_64_kib),
		cmocka_unit_test(test_e2big),
		cmocka_unit_test(test_live_stdin_and_its_credit),
		cmocka_unit_test(test_live_stdin_before_it_begins),
		cmocka_unit_test(test_one_that_does_not_read_delays_nobody),
		cmocka_unit_test(test_set_env_and_name),
		cmocka_unit_test(test_timeout_is_kept_by_the_host),
		cmocka_unit_test(test_timeout_counts_from_a_late_start),
		cmocka_unit_test(test_timeout_of_the_sandbox),
		cmocka_unit_test(test_the_agents_timeout),
		cmocka_unit_test(test_what_the_agent_claims_is_cleaned),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
