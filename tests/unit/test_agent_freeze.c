/* SPDX-License-Identifier: Apache-2.0 */
/* FREEZE, FROZEN, THAW and TRIM, driven through the real agent. After FROZEN the harness fails a test for any frame. */
#include "test_agent_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

#define PATIENT 10000u /* milliseconds to freeze in: as long as may be asked for */

static void need_cgroups(const struct host *h)
{
	if (!h->cgroup[0])
		skip_because("no cgroup2 directory that can be written to");
}

static bool printed(struct host *h, void *arg)
{
	(void)h;
	return ((struct cmd *)arg)->out.len > 1000;
}

static void kill_and_wait(struct host *h, struct cmd *c)
{
	host_send(h, CONTROL, AG_KILL, 0, c->stream, NULL, 0);
	cmd_wait(h, c);
	assert_string_equal(cmd_str(c, "signal"), "SIGKILL");
}

/* "1\n2\n3\n…", the last line perhaps cut. Returns how many are whole. */
static long assert_counts(struct cmd *c)
{
	long n = 0;
	char *p = buf_str(&c->out), *end;

	assert_non_null(p);
	while ((end = strchr(p, '\n'))) {
		if (strtol(p, NULL, 10) != ++n)
			fail_msg("line %ld is \"%.20s\"", n, p);
		p = end + 1;
	}
	return n;
}

#define COUNTER "i=0; while :; do i=$((i+1)); echo $i; done"

/* Output under way: nothing comes while frozen, nothing is lost or repeated afterwards. */
static void output_stops_and_goes_on(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_script(h, "", COUNTER);

	need_cgroups(h);
	for (int round = 0; round < 10; round++) {
		size_t before;

		host_until(h, printed, c);
		assert_int_equal(host_freeze(h, PATIENT), 0);
		before = c->out.len;
		host_pump(h, round == 0 ? 300 : 20); /* silent: see the harness */
		assert_int_equal(c->out.len, before);
		host_thaw(h);
		while (c->out.len == before)
			host_pump(h, 100);
	}
	kill_and_wait(h, c);
	assert_true(assert_counts(c) > 1000);
}

/* The slow reader's window is used up, so bytes stand in the pipe; they come when it reads on. */
static void a_full_pipe_stays_full(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h, "{\"argv\":[\"sh\",\"-c\",\"head -c 400000 /dev/zero; echo end\"]}");

	need_cgroups(h);
	c->keep_credit = true;
	while (c->out.len < AG_WINDOW)
		host_pump(h, 100);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_pump(h, 50);
	c->keep_credit = false;
	host_thaw(h);
	cmd_wait(h, c);
	assert_int_equal(c->out.len, 400004);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
}

static off_t size_of(const struct host *h, const char *name)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", h->root, name);
	return stat(path, &st) < 0 ? -1 : st.st_size;
}

static void until_size(struct host *h, const char *name, off_t more_than)
{
	for (int i = 0; size_of(h, name) <= more_than; i++) {
		assert_true(i < PATIENCE_MS / 10);
		host_pump(h, 10);
	}
}

/* Children in the background of a command that has ended, out of its group and session, stand as well. */
static void background_children_stand(void **state)
{
	struct host *h = *state;
	char script[512];
	off_t before;
	struct cmd *c;

	need_cgroups(h);
	snprintf(script, sizeof(script),
		 "setsid sh -c 'setsid sh -c \"while :; do echo x >> %s/bg; done\" &' > /dev/null 2>&1 &", h->root);
	c = sh(h, script);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	until_size(h, "bg", 10);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	before = size_of(h, "bg");
	host_pump(h, 200);
	assert_int_equal(size_of(h, "bg"), before);
	host_thaw(h);
	until_size(h, "bg", before);
	host_send(h, CONTROL, AG_KILL, 0, c->stream, NULL, 0);
}

static void forking_commands_freeze(void **state)
{
	struct host *h = *state;
	struct cmd *c[4];

	need_cgroups(h);
	for (int i = 0; i < 4; i++)
		c[i] = cmd_script(h, "",
				  "f() { while :; do (true | true) & true; wait; echo x; done; }\nf & f & f & f");
	for (int i = 0; i < 4; i++)
		while (c[i]->out.len < 20)
			host_pump(h, 100);
	for (int round = 0; round < 5; round++) {
		size_t before;

		assert_int_equal(host_freeze(h, PATIENT), 0);
		host_pump(h, 20);
		before = c[0]->out.len;
		host_thaw(h);
		while (c[0]->out.len == before)
			host_pump(h, 100);
	}
	for (int i = 0; i < 4; i++)
		kill_and_wait(h, c[i]);
}

/* Requests, input and commands that were sent before FREEZE are all answered, before or after. */
static void what_came_before_is_answered(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h, "{\"argv\":[\"cat\"],\"stdin\":true}"), *late;
	uint32_t ids[40];
	struct buf args;

	need_cgroups(h);
	cmd_write(h, c, AG_STDIN, "one\n", 4, false);
	late = cmd_open(h, "{\"argv\":[\"echo\",\"late\"]}");
	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		put_args(&args, "s", "");
		ids[i] = fs_send(h, AG_FS_GETATTR, &args);
	}
	cmd_write(h, c, AG_STDIN, "two\n", 4, true);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_pump(h, 50);
	host_thaw(h);
	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		assert_int_equal(fs_wait(h, ids[i])->code, 0);
	cmd_wait(h, c);
	assert_string_equal(cmd_out(c), "one\ntwo\n");
	cmd_wait(h, late);
	assert_string_equal(cmd_out(late), "late\n");
	/* And the file server still serves. */
	put_args(&args, "s", "");
	assert_int_equal(fs_call(h, AG_FS_GETATTR, &args)->code, 0);
}

static void nothing_runs_and_it_freezes(void **state)
{
	struct host *h = *state;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(host_freeze(h, 1000), 0);
		host_thaw(h);
	}
	sh(h, "true");
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_thaw(h);
	assert_string_equal(cmd_out(sh(h, "echo x")), "x\n");
}

/* A deadline that passes meanwhile: the command is killed, and the host hears of it afterwards. */
static void an_end_while_frozen_is_told_afterwards(void **state)
{
	struct host *h = *state;
	struct cmd *c;

	need_cgroups(h);
	c = cmd_script(h, "\"timeout_ms\":400", "echo up; sleep 60");
	while (c->out.len < 3)
		host_pump(h, 100);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_pump(h, 300);
	host_pump(h, 300);
	host_thaw(h);
	cmd_wait(h, c);
	assert_true(cmd_bool(c, "timed_out"));
	assert_string_equal(cmd_str(c, "signal"), "SIGKILL");
}

/* -- failing ------------------------------------------------------------------------ */

static bool has_pong(struct host *h, void *arg)
{
	return h->pongs > *(unsigned *)arg;
}

static void assert_alive(struct host *h)
{
	unsigned before = h->pongs;

	host_send(h, CONTROL, AG_PING, 0, 0, "x", 1);
	host_until(h, has_pong, &before);
}

/* Processes that do not stand in time, as one in the kernel (D state) would not: all goes on. */
static void not_in_time_ETIMEDOUT(void **state)
{
	struct host *h = *state;
	struct buf args;

	fake_frozen(h, false);
	assert_int_equal(host_freeze(h, 50), -ETIMEDOUT);
	assert_int_equal(h->frozen[BULK], 0);
	assert_alive(h);
	put_args(&args, "s", "fake/cmds/cgroup.freeze");
	assert_int_equal(fs_call(h, AG_FS_GETATTR, &args)->code, 0);
	assert_int_equal(host_freeze(h, 0), -ETIMEDOUT);
	/* Late ones. */
	fake_frozen(h, true);
	assert_int_equal(host_freeze(h, 0), 0);
	host_pump(h, 20);
	host_thaw(h);
	assert_alive(h);
}

static bool is_thawed(struct host *h)
{
	char path[256];
	char *text;
	bool thawed;

	snprintf(path, sizeof(path), "%s/fake/cmds/cgroup.freeze", h->root);
	assert_int_equal(fd_slurp(AT_FDCWD, path, 16, &text, NULL), 0);
	thawed = strcmp(text, "0") == 0;
	free(text);
	return thawed;
}

static bool has_frozen(struct host *h, void *arg)
{
	(void)arg;
	return h->frozen[CONTROL];
}

static void send_freeze(struct host *h, uint32_t ms)
{
	uint8_t le[4] = { (uint8_t)ms, (uint8_t)(ms >> 8), (uint8_t)(ms >> 16) };

	h->frozen[CONTROL] = h->frozen[BULK] = 0;
	h->freezing = true;
	host_send(h, CONTROL, AG_FREEZE, 0, 0, le, 4);
}

static void a_host_that_does_not_wait_is_answered(void **state)
{
	struct host *h = *state;

	fake_frozen(h, false);
	send_freeze(h, 10000);
	host_send(h, CONTROL, AG_THAW, 0, 0, NULL, 0);
	host_until(h, has_frozen, NULL);
	assert_int_equal(h->frozen_code, -ETIMEDOUT);
	assert_true(is_thawed(h));
	host_send(h, CONTROL, AG_THAW, 0, 0, NULL, 0); /* crossing with the answer: fine */
	assert_alive(h);
}

static bool said_bye(struct host *h, void *arg)
{
	(void)arg;
	return h->bye.len > 0;
}

static void a_new_epoch_ends_the_wait(void **state)
{
	struct host *h = *state;

	fake_frozen(h, false);
	send_freeze(h, 10000);
	host_hello(h, 2);
	assert_true(is_thawed(h));
	assert_alive(h);
	send_freeze(h, 10000);
	host_send(h, CONTROL, AG_FREEZE, 0, 0, "\1\0\0\0", 4); /* twice */
	host_until(h, said_bye, NULL);
	assert_true(is_thawed(h));
	host_hello(h, 3);
	h->bye.len = 0;
	send_freeze(h, 10001); /* too long */
	host_until(h, said_bye, NULL);
	host_hello(h, 4);
	assert_alive(h);
}

/* Whatever comes but THAW or HELLO is malformed; nothing moves before a HELLO. */
static void a_frame_while_frozen_ends_the_epoch(void **state)
{
	struct host *h = *state;
	char script[256];
	off_t before;

	need_cgroups(h);
	snprintf(script, sizeof(script), "while :; do echo x >> %s/busy; done", h->root);
	cmd_script(h, "", script);
	until_size(h, "busy", 10);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	h->silent = false;
	host_send(h, CONTROL, AG_PING, 0, 0, NULL, 0);
	host_until(h, said_bye, NULL);
	before = size_of(h, "busy");
	host_pump(h, 100);
	assert_int_equal(size_of(h, "busy"), before);
	host_hello(h, 2);
	until_size(h, "busy", before);
}

/* The box of a daemon that was restarted: no clone, so everything goes on, detached. */
static void hello_thaws(void **state)
{
	struct host *h = *state;
	char script[256];
	off_t before;
	struct cmd *c;

	need_cgroups(h);
	snprintf(script, sizeof(script), "while :; do echo x >> %s/busy; echo y; done", h->root);
	c = cmd_script(h, "", script);
	host_until(h, printed, c);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	before = size_of(h, "busy");
	host_hello(h, 2);
	host_forget(h); /* a frame of it would fail here */
	until_size(h, "busy", before);
	assert_false(json_object_object_get_ex(h->hello, "inherited", NULL));
	assert_string_equal(cmd_out(sh(h, "echo x")), "x\n");
}

static void commands_without_cgroups_ETIMEDOUT(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h, "{\"argv\":[\"sleep\",\"60\"]}");

	while (!c->started)
		host_pump(h, 100);
	assert_int_equal(host_freeze(h, 30), -ETIMEDOUT);
	host_send(h, CONTROL, AG_KILL, 0, c->stream, NULL, 0);
	cmd_wait(h, c);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_thaw(h);
	assert_alive(h);
}

/* -- trim --------------------------------------------------------------------------- */

static bool has_synced(struct host *h, void *arg)
{
	(void)arg;
	return h->synced == 4;
}

static void trims_and_syncs_are_answered(void **state)
{
	struct host *h = *state;

	for (uint32_t i = 0; i < 4; i++)
		host_send(h, CONTROL, i % 2 ? AG_TRIM : AG_SYNC, 0, 100 + i, NULL, 0);
	host_until(h, has_synced, NULL);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_thaw(h);
}

static bool has_spare(struct host *h, void *arg)
{
	(void)arg;
	return h->spares == 1;
}

static void free_memory_is_told(void **state)
{
	struct host *h = *state;
	struct sysinfo info;
	struct wire_rd r;
	uint64_t spare;

	host_send(h, CONTROL, AG_SPARE, 0, 77, NULL, 0);
	host_until(h, has_spare, NULL);
	wire_rd_init(&r, h->spare_is, sizeof(h->spare_is));
	assert_int_equal(wire_u32(&r), 0);
	spare = wire_u64(&r);
	assert_int_equal(wire_done(&r), 0);
	assert_int_equal(sysinfo(&info), 0);
	assert_in_range(spare, 1, (uint64_t)info.totalram * info.mem_unit - 1);
}

#define WITH_AGENT(t) cmocka_unit_test_setup_teardown(t, agent_setup, agent_teardown)
#define WITH_FAKE(t)  cmocka_unit_test_setup_teardown(t, agent_setup_fake_cgroup, agent_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_AGENT(free_memory_is_told),
		WITH_AGENT(output_stops_and_goes_on),
		WITH_AGENT(a_full_pipe_stays_full),
		WITH_AGENT(background_children_stand),
		WITH_AGENT(forking_commands_freeze),
		WITH_AGENT(what_came_before_is_answered),
		WITH_AGENT(nothing_runs_and_it_freezes),
		WITH_AGENT(an_end_while_frozen_is_told_afterwards),
		WITH_FAKE(not_in_time_ETIMEDOUT),
		WITH_FAKE(a_host_that_does_not_wait_is_answered),
		WITH_FAKE(a_new_epoch_ends_the_wait),
		WITH_AGENT(a_frame_while_frozen_ends_the_epoch),
		WITH_AGENT(hello_thaws),
		cmocka_unit_test_setup_teardown(commands_without_cgroups_ETIMEDOUT, agent_setup_without_cgroup,
						agent_teardown),
		WITH_AGENT(trims_and_syncs_are_answered),
	};

	return tests_end(cmocka_run_group_tests(tests, NULL, NULL));
}
