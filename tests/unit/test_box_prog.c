/* SPDX-License-Identifier: Apache-2.0 */
/* The real program, confined as it is in service, between the fakes: what only a process of its own can show. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "test_box_rig.h"

#define MIB (1024u * 1024)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static struct rig *program(void)
{
	struct rig *r = rig_new(true);

	r->config.output_mib = 256;
	r->config.spool_mib = 512;
	rig_begin(r);
	rig_boot(r);
	return r;
}

/* A number of /proc/<pid>/<file>, behind @key. */
static long proc_number(pid_t pid, const char *file, const char *key)
{
	AUTO_FREE char *text = NULL;
	char path[64];
	const char *p;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	assert_int_equal(fd_slurp(-1, path, 65536, &text, NULL), 0);
	p = strstr(text, key);
	assert_non_null(p);
	return strtol(p + strlen(key), NULL, 10);
}

/* Wait for its end: the wait status. */
static int end_of(struct rig *r)
{
	int pidfd = (int)syscall(SYS_pidfd_open, r->pid, 0), status;
	uint64_t end = now_ns() + RIG_WAIT_NS;
	bool over = false;

	assert_true(pidfd >= 0);
	while (!over && now_ns() < end) {
		over = waitpid(r->pid, &status, WNOHANG) == r->pid;
		loop_once(r->loop, 5);
	}
	close(pidfd);
	assert_true(over);
	r->pid = -2;
	return status;
}

static uint64_t flood_bytes;

static void flood(struct rig *r, struct fake_exec *x)
{
	(void)r;
	exec_started(x);
	x->flood[0] = flood_bytes;
	exec_exit(x, 0);
}

static void test_life(void **state)
{
	struct rig *r = program();
	uint64_t n = rig_exec(r, "echo hi");

	(void)state;
	rig_done(r, n);
	record_text(r, n, "stdout", "echo hi");
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), 0);
	assert_int_equal(rig_vm(r, BOX_VM_RESUME, 0), 0);
	assert_int_equal(rig_vm(r, BOX_VM_SYNC, 0), 0);
	assert_int_equal(rig_vm(r, BOX_VM_STOP, 5000), 0);
	UNTIL(r, r->state == BOX_GONE);
	assert_int_equal(end_of(r), 0);
	rig_free(r);
}

static void test_memory_stays_small(void **state)
{
	struct rig *r = program();
	AUTO_FREE char *text = malloc(BOX_CMD_MAX);
	struct fake_exec *x;
	uint64_t n;
	size_t len;

	(void)state;
	if (SANITIZED)
		print_message("not measured: a sanitizer's memory is its own\n");
	print_message("anonymous at first: %ld KiB\n", proc_number(r->pid, "smaps_rollup", "Anonymous:"));
	r->on_exec = flood;
	flood_bytes = 200ull * MIB;
	n = rig_exec(r, "flood");
	rig_done(r, n);
	record_int(r, n, "stdout_bytes", 200 * MIB);
	print_message("after 200 MiB of output: %ld KiB\n", proc_number(r->pid, "smaps_rollup", "Anonymous:"));
	if (!SANITIZED)
		assert_true(proc_number(r->pid, "smaps_rollup", "Anonymous:") <= 2048);
	/* 8 MiB of script, then 8 MiB of JSON: a million small arguments, which no guest would take. */
	memset(text, '#', BOX_CMD_MAX);
	flood_bytes = 1;
	n = rig_put(r, text, BOX_CMD_MAX);
	assert_int_equal(rig_accept(r, n, 0), 0);
	rig_done(r, n);
	record_text(r, n, "error", "");
	len = (size_t)sprintf(text, "{\"argv\":[\"a\"");
	while (len + 10 < BOX_CMD_MAX)
		len += (size_t)sprintf(text + len, ",\"abcd\"");
	strcpy(text + len, "]}");
	n = rig_put(r, text, len + 2);
	assert_int_equal(rig_accept(r, n, 0), 0);
	rig_done(r, n);
	record_holds(r, n, "error", "too many values");
	/* And 8 MiB that are taken: one string. */
	memset(text, 'y', BOX_CMD_MAX);
	memcpy(text, "{\"script\":\"", 11);
	memcpy(text + BOX_CMD_MAX - 3, "\"}\n", 3);
	n = rig_put(r, text, BOX_CMD_MAX);
	assert_int_equal(rig_accept(r, n, 0), 0);
	rig_done(r, n);
	record_text(r, n, "error", "");
	print_message("at its most: %ld KiB\n", proc_number(r->pid, "status", "VmHWM:"));
	print_message("after commands of 8 MiB: %ld KiB\n", proc_number(r->pid, "smaps_rollup", "Anonymous:"));
	if (!SANITIZED)
		assert_true(proc_number(r->pid, "smaps_rollup", "Anonymous:") <= 2048);
	x = agent_exec(r, 0);
	assert_null(x);
	rig_free(r);
}

static void test_idle_does_not_wake(void **state)
{
	struct rig *r = program();
	uint64_t n = rig_exec(r, "echo"), end;
	long before;

	(void)state;
	rig_done(r, n);
	UNTIL(r, !r->execs);
	before = proc_number(r->pid, "status", "\nvoluntary_ctxt_switches:");
	/* Not a wait for something to happen, but the while that is measured. */
	for (end = now_ns() + 300000000; now_ns() < end;)
		loop_once(r->loop, 50);
	assert_in_range(proc_number(r->pid, "status", "\nvoluntary_ctxt_switches:") - before, 0, 1);
	rig_free(r);
}

static void test_engine_killed(void **state)
{
	struct rig *r = program();
	uint64_t n;

	(void)state;
	r->on_exec = NULL;
	n = rig_exec(r, "sleep");
	UNTIL(r, agent_exec(r, 0) && agent_exec(r, 0)->begun);
	rig_engine_dies(r);
	UNTIL(r, r->state == BOX_GONE);
	record_holds(r, n, "error", "lost: the engine ended");
	assert_int_equal(end_of(r), 0);
	rig_free(r);
}

static void test_daemon_returns(void **state)
{
	struct rig *r = program();
	uint64_t n;

	(void)state;
	rig_daemon_leaves(r);
	rig_daemon_back(r);
	UNTIL(r, rig_count(r, BOX_HELLO) == 2);
	n = rig_exec(r, "echo again");
	rig_done(r, n);
	record_text(r, n, "stdout", "echo again");
	rig_free(r);
}

static void test_missing_descriptor(void **state)
{
	struct rig *r = rig_new(true);
	int status = system(
		"b=$(dirname $(readlink /proc/$PPID/exe))/../libexec/crucible-box; $b /tmp 3>&- 2>&1 | grep -q 'descriptor 3 is missing'");

	(void)state;
	assert_int_equal(status, 0);
	r->pid = -1;
	rig_free(r);
}

static void freeze_and_thaw(struct rig *r)
{
	assert_int_equal(rig_reply(r, rig_ask_freeze(r, 1000), NULL, NULL), 0);
	assert_int_equal(rig_reply(r, rig_ask_memory(r, true), NULL, NULL), 0);
	assert_int_equal(rig_heard_reply(r, rig_request(r, BOX_MEMORY_AGAIN, NULL, 0))->nfds, 4);
	assert_int_equal(rig_reply(r, rig_request(r, BOX_THAW, NULL, 0), NULL, NULL), 0);
}

static void test_snapshot(void **state)
{
	struct rig *r = program();
	uint64_t n;

	(void)state;
	freeze_and_thaw(r);
	assert_int_equal(rig_reply(r, rig_request(r, BOX_TRIM, NULL, 0), NULL, NULL), 0);
	n = rig_exec(r, "echo on");
	rig_done(r, n);
	record_text(r, n, "stdout", "echo on");
	rig_free(r);
}

/* A pooled one: loaded, warm, held, and then somebody's. */
static void test_restore(void **state)
{
	struct rig *r = rig_new(true);
	uint64_t n;

	(void)state;
	r->generic = r->config.restore = true;
	snprintf(r->config.parent, sizeof(r->config.parent), "s");
	snprintf(r->config.machine_id, sizeof(r->config.machine_id), "0123456789abcdef0123456789abcdef");
	r->inherited = "[{\"stream\":5,\"pid\":77,\"name\":\"exec-3\"}]";
	rig_begin(r);
	assert_int_equal(rig_reply(r, rig_ask_memory(r, true), NULL, NULL), 0);
	assert_int_equal(rig_reply(r, rig_ask_load(r, BOX_HOLD_WARM), NULL, NULL), 0);
	UNTIL(r, rig_event(r, "{\"event\":\"held\",\"warm\":true}"));
	print_message("pooled and held: %ld KiB anonymous\n", proc_number(r->pid, "smaps_rollup", "Anonymous:"));
	rig_send_start(r);
	UNTIL(r, r->state == BOX_READY);
	agent_frame(r, 1, AG_DATA, AG_STDOUT, 5, "on and on", 9);
	n = rig_exec(r, "echo hi");
	rig_done(r, n);
	record_text(r, n, "stdout", "echo hi");
	assert_int_equal(faccessat(r->dirfd, "inherited/3.out", F_OK, 0), 0);
	freeze_and_thaw(r);
	assert_int_equal(rig_vm(r, BOX_VM_STOP, 5000), 0);
	assert_int_equal(end_of(r), 0);
	rig_free(r);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Not a test of speed: it prints what a command costs with an agent that answers at once. */
static void test_cost(void **state)
{
	struct rig *r = program();
	uint64_t took[300];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(took); i++) {
		uint64_t n = rig_put(r, "{\"argv\":[\"true\"]}", 17), begun = now_ns();

		assert_int_equal(rig_accept(r, n, 0), 0);
		rig_done(r, n);
		took[i] = now_ns() - begun;
	}
	qsort(took, ARRAY_LEN(took), sizeof(took[0]), by_size);
	print_message("EXEC to DONE: median %" PRIu64 " us, p99 %" PRIu64
		      " us, daemon and agent of the test included\n",
		      took[ARRAY_LEN(took) / 2] / 1000, took[ARRAY_LEN(took) * 99 / 100] / 1000);
	for (size_t i = 0; i < 100; i++) {
		uint64_t begun = now_ns();

		freeze_and_thaw(r);
		took[i] = now_ns() - begun;
	}
	qsort(took, 100, sizeof(took[0]), by_size);
	print_message("FREEZE, MEMORY twice, THAW: median %" PRIu64 " us, p99 %" PRIu64 " us, all fakes included\n",
		      took[50] / 1000, took[99] / 1000);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_memory_stays_small),
		cmocka_unit_test(test_idle_does_not_wake),
		cmocka_unit_test(test_engine_killed),
		cmocka_unit_test(test_daemon_returns),
		cmocka_unit_test(test_missing_descriptor),
		cmocka_unit_test(test_snapshot),
		cmocka_unit_test(test_restore),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
