/* SPDX-License-Identifier: Apache-2.0 */
/* The trial of KVM, with programs of this test in place of the engine. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/proc.h"
#include "vmm/trial.h"

static const struct engine_info info_kvm = { .name = "qemu",
					     .version = "7.2.22",
					     .caps = ENGINE_CAP_TCG | ENGINE_CAP_KVM };

static struct engine_machine machine(void)
{
	return (struct engine_machine){
		.memory_mib = 512, .vcpus = 1, .kernel = "/k", .initrd = "/i", .disk = true, .disk_export = "m"
	};
}

struct fix {
	struct loop *loop;
	struct trial *trial;
	const char *script; /* what runs in place of the engine; NULL: spawning fails */
	bool later;	    /* trial_spawned() is called by the test */
	pid_t pid;
	int pidfd, spawned, killed, done;
	bool kvm_asked, disk_asked;
	struct trial_outcome outcome;
};

static void spawn(void *arg, struct trial *t, const struct engine_command *cmd, const int *fds, size_t nfds, int log)
{
	struct fix *f = arg;
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)f->script, NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = { 0 };

	f->spawned++;
	for (size_t i = 0; i < cmd->argc; i++) {
		f->kvm_asked |= strcmp(cmd->argv[i], "kvm") == 0;
		f->disk_asked |= strstr(cmd->argv[i], "blk") != NULL;
	}
	assert_int_equal(nfds, 4);
	if (!f->script) {
		trial_spawned(t, -EPERM, "the launcher says no", -1);
		return;
	}
	spec.name = "engine";
	spec.path = "/bin/sh";
	spec.argv = argv;
	spec.stdio[1] = spec.stdio[2] = log;
	spec.fds = fds;
	spec.nfds = nfds;
	if (proc_spawn(&spec, &f->pid, &f->pidfd, &e) < 0)
		fail_msg("%s", e.msg);
	if (!f->later)
		trial_spawned(t, 0, "", f->pidfd);
}

static void kill_it(void *arg)
{
	struct fix *f = arg;

	f->killed++;
	assert_int_equal(f->done, 0);
	kill(f->pid, SIGKILL);
}

static void done(void *arg, const struct trial_outcome *o)
{
	struct fix *f = arg;

	f->done++;
	f->outcome = *o;
}

static const struct trial_ops ops = { .spawn = spawn, .kill = kill_it, .done = done };

static void begin(struct fix *f, const struct engine_info *info, uint32_t timeout_ms)
{
	struct engine_machine m = machine();
	struct err e = { 0 };

	assert_int_equal(loop_new(&f->loop), 0);
	assert_int_equal(trial_new(f->loop, &engine_qemu, info, &m, timeout_ms, &ops, f, &f->trial, &e), 0);
	assert_int_equal(f->done, 0); /* never inside of the call */
}

static void finish(struct fix *f)
{
	uint64_t end = now_ns() + 20000000000ull;

	while (!f->done && now_ns() < end)
		assert_int_equal(loop_once(f->loop, 50), 0);
	assert_int_equal(f->done, 1);
	f->trial = trial_free(f->trial);
	if (f->pid > 0)
		waitpid(f->pid, NULL, 0);
	loop_free(f->loop);
}

static void expect(struct fix *f, enum engine_accel accel, const char *words)
{
	finish(f);
	assert_int_equal(f->outcome.accel, accel);
	if (!strstr(f->outcome.reason, words))
		fail_msg("\"%s\" does not hold \"%s\"", f->outcome.reason, words);
}

static void test_a_guest_speaks(void **state)
{
	/* A STAGE frame with five bytes, in two pieces. */
	struct fix f = {
		.script =
			"printf '\\005\\0\\0\\0\\005\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0he' >&4; printf llo >&4; exec sleep 100"
	};

	(void)state;
	begin(&f, &info_kvm, 15000);
	expect(&f, ACCEL_KVM, "a guest boots with KVM");
	assert_int_equal(f.killed, 1);
	assert_true(f.kvm_asked);
	assert_false(f.disk_asked);
}

static void test_the_engine_aborts(void **state)
{
	struct fix f = {
		.script =
			"echo 'qemu-system-x86_64: warning: host does not' >&2; "
			"echo 'qemu-system-x86_64: error: failed to set MSR 0x48 to 0x0' >&2; echo garbage >&6; kill -ABRT $$"
	};

	(void)state;
	begin(&f, &info_kvm, 15000);
	expect(&f, ACCEL_TCG,
	       "no guest boots with it: the engine ended: qemu-system-x86_64: error: failed to set MSR 0x48 to 0x0");
	assert_int_equal(f.spawned, 1);
}

static void test_nothing_is_heard(void **state)
{
	struct fix f = { .script = "printf 'Booting\\r\\n[ 0.0] stuck here' >&6; exec sleep 100" };

	(void)state;
	begin(&f, &info_kvm, 1000);
	expect(&f, ACCEL_TCG, "nothing was heard of it for 1 s: [ 0.0] stuck here");
	assert_int_equal(f.killed, 1);
}

static void test_not_our_agent(void **state)
{
	struct fix f = { .script = "printf 'login: wwwwwwwwwwwwwwww' >&4; exec sleep 100" };

	(void)state;
	begin(&f, &info_kvm, 15000);
	expect(&f, ACCEL_TCG, "not our agent");
}

static void test_it_can_not_be_started(void **state)
{
	struct fix f = { .script = NULL };

	(void)state;
	begin(&f, &info_kvm, 15000);
	expect(&f, ACCEL_TCG, "could not be started: the launcher says no");
	assert_int_equal(f.killed, 0);
}

static void test_an_engine_without_kvm(void **state)
{
	struct engine_info info = info_kvm;
	struct fix f = { 0 };

	(void)state;
	info.caps = ENGINE_CAP_TCG;
	begin(&f, &info, 15000);
	expect(&f, ACCEL_TCG, "built without KVM");
	assert_int_equal(f.spawned, 0);
}

static void test_a_host_without_kvm(void **state)
{
	struct fix f = { 0 };

	(void)state;
	trial_kvm_device = "/nonexistent/kvm";
	begin(&f, &info_kvm, 15000);
	trial_kvm_device = "/dev/null";
	expect(&f, ACCEL_TCG, "no /dev/kvm");
	assert_int_equal(f.spawned, 0);
}

static void test_freed_while_it_runs(void **state)
{
	struct fix f = { .script = "exec sleep 100", .later = true };

	(void)state;
	begin(&f, &info_kvm, 15000);
	while (!f.spawned)
		loop_once(f.loop, 50);
	trial_spawned(f.trial, 0, "", f.pidfd);
	f.trial = trial_free(f.trial);
	assert_int_equal(f.killed, 1);
	assert_int_equal(f.done, 0);
	waitpid(f.pid, NULL, 0);
	assert_null(trial_free(NULL));
	loop_free(f.loop);
}

/* -- remembering ------------------------------------------------------------------------------- */

static void test_outcome_round_trip(void **state)
{
	struct trial_outcome a = { .accel = ACCEL_KVM, .reason = "a \"good\" one" }, b;
	struct trial_key key, other;
	struct buf text;

	(void)state;
	trial_key_make(&info_kvm, "abc", &key);
	assert_string_equal(key.engine, "qemu 7.2.22");
	assert_true(*key.host_kernel);
	buf_init(&text, 65536);
	assert_int_equal(trial_outcome_format(&key, &a, &text), 0);
	assert_int_equal(trial_outcome_parse(text.data, text.len, &key, &b), 0);
	assert_int_equal(b.accel, ACCEL_KVM);
	assert_string_equal(b.reason, a.reason);
	for (int i = 0; i < 4; i++) {
		other = key;
		(i == 0	  ? other.host_boot_id
		 : i == 1 ? other.host_kernel
		 : i == 2 ? other.engine
			  : other.bootid)[0] ^= 1;
		assert_int_equal(trial_outcome_parse(text.data, text.len, &other, &b), -ESTALE);
	}
	buf_fini(&text);
}

static void test_outcome_einval(void **state)
{
	struct trial_key key = { .host_boot_id = "i", .host_kernel = "k", .engine = "e", .bootid = "b" };
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"host_boot_id\":\"i\"}",
		"{\"host_boot_id\":\"i\",\"host_kernel\":\"k\",\"engine\":\"e\",\"bootid\":\"b\",\"accel\":\"hvf\",\"reason\":\"\"}",
		"{\"host_boot_id\":\"i\",\"host_kernel\":\"k\",\"engine\":\"e\",\"bootid\":\"b\",\"accel\":\"kvm\"}",
	};
	struct trial_outcome o;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(trial_outcome_parse(bad[i], strlen(bad[i]), &key, &o), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_guest_speaks),	      cmocka_unit_test(test_the_engine_aborts),
		cmocka_unit_test(test_nothing_is_heard),      cmocka_unit_test(test_not_our_agent),
		cmocka_unit_test(test_it_can_not_be_started), cmocka_unit_test(test_an_engine_without_kvm),
		cmocka_unit_test(test_a_host_without_kvm),    cmocka_unit_test(test_freed_while_it_runs),
		cmocka_unit_test(test_outcome_round_trip),    cmocka_unit_test(test_outcome_einval),
	};

	trial_kvm_device = "/dev/null"; /* one that is there, on every host */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
