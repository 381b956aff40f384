/* SPDX-License-Identifier: Apache-2.0 */
/* Commands, driven through the real agent. */
#include "test_agent_harness.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"

static uint64_t ms_since(uint64_t start)
{
	return (now_ns() - start) / 1000000;
}

static bool has_cgroups(const struct host *h)
{
	return h->cgroup[0] != '\0';
}

/* -- how commands end --------------------------------------------------------------- */

static void exit_code_and_output(void **state)
{
	struct cmd *c = sh(*state, "echo out; echo err >&2; exit 7");

	assert_true(c->started);
	assert_int_equal(cmd_int(c, "exit_code"), 7);
	assert_string_equal(cmd_str(c, "signal"), "");
	assert_string_equal(cmd_str(c, "error"), "");
	assert_false(cmd_bool(c, "timed_out"));
	assert_false(cmd_bool(c, "oom_killed"));
	assert_string_equal(cmd_out(c), "out\n");
	assert_string_equal(cmd_err(c), "err\n");
	assert_true(cmd_int(c, "duration_ns") > 0);
}

static void signals_have_names(void **state)
{
	static const char *const names[] = { "SEGV", "TERM", "KILL", "ABRT", "USR1" };
	char script[64], want[16];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		struct cmd *c;

		snprintf(script, sizeof(script), "kill -%s $$; sleep 5", names[i]);
		c = sh(*state, script);
		snprintf(want, sizeof(want), "SIG%s", names[i]);
		assert_string_equal(cmd_str(c, "signal"), want);
		assert_int_equal(cmd_int(c, "exit_code"), -1);
	}
}

static void usage_is_counted(void **state)
{
	struct json_object *usage, *v;
	struct cmd *c = sh(*state, "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done");

	assert_true(json_object_object_get_ex(c->exit, "usage", &usage));
	assert_true(json_object_object_get_ex(usage, "cpu_user_ms", &v));
	assert_true(json_object_get_int64(v) > 0);
	assert_true(json_object_object_get_ex(usage, "peak_memory_bytes", &v));
	assert_true(json_object_get_int64(v) > 100000);
	assert_true(json_object_object_get_ex(usage, "io_write_bytes", &v));
	assert_true(json_object_object_get_ex(usage, "context_switches_involuntary", &v));
}

static void background_child_holds_nothing_up(void **state)
{
	uint64_t start = now_ns();
	struct cmd *c = sh(*state, "sleep 60 & echo hi");

	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_string_equal(cmd_out(c), "hi\n");
	assert_true(ms_since(start) < 5000);
	host_send(*state, CONTROL, AG_KILL, 0, c->stream, NULL, 0);
}

/* Its later output is dropped, and it gets no SIGPIPE. */
static void background_child_can_go_on_writing(void **state)
{
	struct host *h = *state;
	char script[512], path[256];
	struct cmd *c;

	snprintf(path, sizeof(path), "%s/done", h->root);
	snprintf(script, sizeof(script), "(sleep 0.1; head -c 1000000 /dev/zero; echo $? > %s) & echo hi", path);
	c = sh(h, script);
	assert_string_equal(cmd_out(c), "hi\n");
	for (int i = 0; access(path, F_OK) < 0; i++) {
		assert_true(i < PATIENCE_MS / 10);
		host_pump(h, 10);
	}
	for (int i = 0;; i++) {
		FILE *f = fopen(path, "re");
		int code = -1, n = fscanf(f, "%d", &code);

		fclose(f);
		if (n == 1) {
			assert_int_equal(code, 0);
			break;
		}
		assert_true(i < PATIENCE_MS / 10);
		host_pump(h, 10);
	}
	assert_int_equal(c->out.len, 3);
}

/* -- timeouts and kills ------------------------------------------------------------- */

/* Three spinners that left their parent's group, session and tree; each touches its file ten times a second. */
#define ESCAPEES                                                                                \
	"spin() { while :; do echo x >> $1; sleep 0.05; done; }\n"                              \
	"(spin %1$s/a) &\n"                                                                     \
	"setsid sh -c 'while :; do echo x >> %1$s/b; sleep 0.05; done' &\n"                     \
	"(setsid sh -c 'sh -c \"while :; do echo x >> %1$s/c; sleep 0.05; done\" & exit' &) \n" \
	"while [ ! -e %1$s/a ] || [ ! -e %1$s/b ] || [ ! -e %1$s/c ]; do sleep 0.02; done\n"    \
	"echo all\n"                                                                            \
	"sleep 60\n"

static off_t size_of(const char *root, const char *name)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return stat(path, &st) < 0 ? -1 : st.st_size;
}

static void assert_all_still(struct host *h)
{
	static const char *const names[] = { "a", "b", "c" };
	off_t before[3];

	for (size_t i = 0; i < 3; i++)
		before[i] = size_of(h->root, names[i]);
	host_pump(h, 300); /* six periods of theirs: the thing measured, not a wait */
	host_pump(h, 300);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(before[i], size_of(h->root, names[i]));
}

static void timeout_kills_the_whole_tree(void **state)
{
	struct host *h = *state;
	char script[2048];
	struct cmd *c;

	if (!has_cgroups(h))
		skip_because("no cgroup2 directory that can be written to");
	snprintf(script, sizeof(script), ESCAPEES, h->root);
	c = cmd_script(h, "\"timeout_ms\":1500", script);
	cmd_wait(h, c);
	assert_true(cmd_bool(c, "timed_out"));
	assert_string_equal(cmd_str(c, "signal"), "SIGKILL");
	assert_int_equal(cmd_int(c, "exit_code"), -1);
	assert_string_equal(cmd_out(c), "all\n"); /* what was printed stays */
	assert_all_still(h);
}

static bool printed_all(struct host *h, void *arg)
{
	(void)h;
	return ((struct cmd *)arg)->out.len == 4;
}

static void kill_takes_the_whole_tree(void **state)
{
	struct host *h = *state;
	char script[2048];
	struct cmd *c;

	if (!has_cgroups(h))
		skip_because("no cgroup2 directory that can be written to");
	snprintf(script, sizeof(script), ESCAPEES, h->root);
	c = cmd_script(h, "", script);
	host_until(h, printed_all, c);
	host_send(h, CONTROL, AG_KILL, 0, c->stream, NULL, 0);
	cmd_wait(h, c);
	assert_false(cmd_bool(c, "timed_out"));
	assert_string_equal(cmd_str(c, "signal"), "SIGKILL");
	assert_all_still(h);
}

/* After the end of the command, AG_KILL still reaches what it left in the background. */
static void kill_reaches_background_children(void **state)
{
	struct host *h = *state;
	char script[2048];
	struct cmd *c;

	if (!has_cgroups(h))
		skip_because("no cgroup2 directory that can be written to");
	snprintf(script, sizeof(script), ESCAPEES, h->root);
	*strstr(script, "sleep 60\n") = '\0';
	c = sh(h, script);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	host_send(h, CONTROL, AG_KILL, 0, c->stream, NULL, 0);
	host_send(h, CONTROL, AG_PING, 0, 0, "x", 1);
	host_pump(h, 100);
	assert_all_still(h);
}

static void timeout_without_cgroups(void **state)
{
	uint64_t start = now_ns();
	struct cmd *c = cmd_open(*state, "{\"argv\":[\"sleep\",\"60\"],\"timeout_ms\":300}");

	cmd_wait(*state, c);
	assert_true(cmd_bool(c, "timed_out"));
	assert_string_equal(cmd_str(c, "signal"), "SIGKILL");
	assert_true(ms_since(start) >= 300);
	assert_true(ms_since(start) < 5000);
}

static void killed_before_it_began(void **state)
{
	struct cmd *c = cmd_open(*state, "{\"script\":true}");

	host_send(*state, CONTROL, AG_KILL, 0, c->stream, NULL, 0);
	cmd_wait(*state, c);
	assert_false(c->started);
	assert_string_equal(cmd_str(c, "signal"), "SIGKILL");
	assert_string_equal(cmd_str(c, "error"), "killed before it began");
}

static bool printed(struct host *h, void *arg)
{
	(void)h;
	return ((struct cmd *)arg)->out.len > 0;
}

static void signal_reaches_the_group(void **state)
{
	static const uint8_t usr1[4] = { SIGUSR1 }, bad[4] = { 65 };
	struct host *h = *state;
	struct cmd *c = cmd_script(h, "", "trap 'echo got; exit 3' USR1; echo up; while :; do sleep 0.02; done");

	host_until(h, printed, c);
	host_send(h, CONTROL, AG_SIGNAL, 0, c->stream, usr1, 4);
	cmd_wait(h, c);
	assert_int_equal(cmd_int(c, "exit_code"), 3);
	assert_string_equal(cmd_out(c), "up\ngot\n");
	host_send(h, CONTROL, AG_SIGNAL, 0, c->stream, bad, 4);
	host_hello(h, 2); /* gone, or no such signal: the agent is fine either way */
}

/* -- what a command is given -------------------------------------------------------- */

static void argv_is_found_through_path(void **state)
{
	struct cmd *c = cmd_open(*state, "{\"argv\":[\"printf\",\"%%s|\",\"a b\",\"\",\"\\u00e9\"]}");

	cmd_wait(*state, c);
	assert_string_equal(cmd_out(c), "a b||\xc3\xa9|");
}

static void command_not_found_EXIT_words(void **state)
{
	struct cmd *c = cmd_open(*state, "{\"argv\":[\"no-such-command\"]}");

	cmd_wait(*state, c);
	assert_false(c->started);
	assert_int_equal(cmd_int(c, "exit_code"), -1);
	assert_non_null(strstr(cmd_str(c, "error"), "no-such-command: command not found"));
	c = cmd_open(*state, "{\"argv\":[\"/etc/passwd\"]}");
	cmd_wait(*state, c);
	assert_string_equal(cmd_str(c, "error"), "/etc/passwd: Permission denied");
	c = cmd_open(*state, "{\"argv\":[\"/tmp\"]}");
	cmd_wait(*state, c);
	assert_string_equal(cmd_str(c, "error"), "/tmp: is a directory");
}

static void cwd_is_entered_or_named(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h, "{\"argv\":[\"pwd\"],\"cwd\":\"%s\"}", h->root);

	cmd_wait(h, c);
	assert_int_equal(strncmp(cmd_out(c), h->root, strlen(h->root)), 0);
	c = cmd_open(h, "{\"argv\":[\"pwd\"]}");
	cmd_wait(h, c);
	assert_string_equal(cmd_out(c), "/\n");
	c = cmd_open(h, "{\"argv\":[\"pwd\"],\"cwd\":\"/no/such/dir\"}");
	cmd_wait(h, c);
	assert_string_equal(cmd_str(c, "error"), "cwd /no/such/dir: No such file or directory");
	assert_int_equal(cmd_int(c, "exit_code"), -1);
	c = cmd_open(h, "{\"argv\":[\"pwd\"],\"cwd\":\"relative\"}");
	cmd_wait(h, c);
	assert_non_null(strstr(cmd_str(c, "error"), "cwd relative: must begin with /"));
}

static void env_has_defaults_and_is_overridden(void **state)
{
	struct cmd *c =
		cmd_open(*state, "{\"argv\":[\"env\"],\"env\":[\"A=1\",\"A=2\",\"HOME=/h\",\"EMPTY=\",\"EQ=a=b\"]}");
	const char *out;

	cmd_wait(*state, c);
	out = cmd_out(c);
	assert_non_null(strstr(out, "PATH=/usr/local/sbin:"));
	assert_non_null(strstr(out, "\nUSER="));
	assert_non_null(strstr(out, "\nLOGNAME="));
	assert_non_null(strstr(out, "\nSHELL=/"));
	assert_non_null(strstr(out, "A=2\n"));
	assert_null(strstr(out, "A=1\n"));
	assert_non_null(strstr(out, "HOME=/h\n"));
	assert_null(strstr(out, "HOME=/root"));
	assert_non_null(strstr(out, "EMPTY=\n"));
	assert_non_null(strstr(out, "EQ=a=b\n"));
	assert_null(strstr(out, "TERM="));
}

/* More JSON than one frame holds. */
static void env_of_200_KiB(void **state)
{
	struct host *h = *state;
	size_t len = 0;
	char *json = malloc(400000), *p = json;
	struct cmd *c;

	assert_non_null(json);
	p += sprintf(p, "{\"argv\":[\"sh\",\"-c\",\"env | grep -c ^BIG; echo ${#BIG59}\"],\"env\":[");
	for (int i = 0; i < 60; i++) {
		p += sprintf(p, "%s\"BIG%d=", i ? "," : "", i);
		memset(p, 'a' + i % 26, 3500);
		p += 3500;
		*p++ = '"';
		len += 3500;
	}
	strcpy(p, "]}");
	assert_true(strlen(json) > 3 * AG_PAYLOAD_MAX);
	c = cmd_open(h, "%s", json);
	free(json);
	cmd_wait(h, c);
	assert_string_equal(cmd_out(c), "60\n3500\n");
}

static void bad_requests_are_told_in_words(void **state)
{
	static const struct {
		const char *json, *words;
	} bad[] = {
		{ "{\"argv\":[\"true\"],\"speed\":1}", "speed: unknown key" },
		{ "{\"argv\":[]}", "argv[0]: empty" },
		{ "{\"argv\":[\"true\"],\"script\":true}", "either argv or script" },
		{ "{}", "either argv or script" },
		{ "{\"argv\":[1]}", "argv[0]: must be a string" },
		{ "{\"argv\":[\"a\\u0000b\"]}", "holds a NUL" },
		{ "{\"argv\":[\"true\"],\"env\":[\"=x\"]}", "env[0]: must be KEY=VALUE" },
		{ "{\"argv\":[\"true\"],\"timeout_ms\":-1}", "timeout_ms: " },
		{ "{\"argv\":[\"true\"],\"tty\":{\"rows\":70000}}", "tty: rows" },
		{ "{\"argv\"", "JSON, line 1" },
		{ "{\"argv\":[\"true\"],\"user\":\"no-such-user\"}", "user no-such-user: not in" },
		{ "{\"argv\":[\"true\"],\"user\":\"root:no-such-group\"}", "group no-such-group: not in" },
	};

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct cmd *c = cmd_open(*state, "%s", bad[i].json);

		cmd_wait(*state, c);
		assert_false(c->started);
		assert_int_equal(cmd_int(c, "exit_code"), -1);
		if (!strstr(cmd_str(c, "error"), bad[i].words))
			fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].json, cmd_str(c, "error"), bad[i].words);
	}
}

static void limits_without_controllers_are_refused(void **state)
{
	struct cmd *c = cmd_open(*state, "{\"argv\":[\"true\"],\"memory_bytes\":1000000}");

	cmd_wait(*state, c);
	assert_non_null(strstr(cmd_str(c, "error"), "no memory controller"));
}

static void write_guest_file(struct host *h, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/etc", h->root);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/etc/%s", h->root, name);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void user_of_the_guests_own_passwd(void **state)
{
	struct host *h = *state;
	struct cmd *c;

	if (geteuid() != 0)
		skip_because("only root can become another user");
	write_guest_file(h, "passwd", "root:x:0:0::/root:/bin/bash\nann:x:12345:12346:Ann:/home/ann:/bin/zsh\n");
	write_guest_file(h, "group", "root:x:0:\nann:x:12346:\nstaff:x:777:bob,ann\nother:x:778:bob\n");
	c = cmd_open(
		h,
		"{\"argv\":[\"sh\",\"-c\",\"id -u; id -g; id -G; echo $HOME $USER $LOGNAME $SHELL; echo x > /dev/stderr\"],"
		"\"user\":\"ann\"}");
	cmd_wait(h, c);
	assert_string_equal(cmd_out(c), "12345\n12346\n12346 777\n/home/ann ann ann /bin/zsh\n");
	assert_string_equal(cmd_err(c), "x\n"); /* the pipe is hers */
	c = cmd_open(h, "{\"argv\":[\"sh\",\"-c\",\"id -u; id -G\"],\"user\":\"ann:staff\"}");
	cmd_wait(h, c);
	assert_string_equal(cmd_out(c), "12345\n777\n");
	c = cmd_open(h, "{\"argv\":[\"sh\",\"-c\",\"id -u; id -G; echo $HOME\"],\"user\":\"4711:99\"}");
	cmd_wait(h, c);
	assert_string_equal(cmd_out(c), "4711\n99\n/\n");
	c = cmd_open(h, "{\"argv\":[\"pwd\"],\"user\":\"ann\",\"cwd\":\"%s\"}", h->root); /* 0700, root's */
	cmd_wait(h, c);
	assert_non_null(strstr(cmd_str(c, "error"), "Permission denied"));
}

/* -- scripts ------------------------------------------------------------------------ */

static void script_with_interpreter(void **state)
{
	struct cmd *c = sh(*state, "#!/usr/bin/env -S cat -n\nline\n");

	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_non_null(strstr(cmd_out(c), "2\tline\n"));
	c = sh(*state, "#!/no/such/interpreter\nx\n");
	assert_false(c->started);
	assert_string_equal(cmd_str(c, "error"), "script: first line \"#!/no/such/interpreter\": no such interpreter");
}

static void script_is_removed_afterwards(void **state)
{
	struct host *h = *state;
	struct cmd *c = sh(h, "test -x $0 && stat -c %a $0; echo $0");
	char name[256];

	assert_int_equal(strncmp(cmd_out(c), "700\n", 4), 0);
	snprintf(name, sizeof(name), "%s", cmd_out(c) + 4);
	name[strcspn(name, "\n")] = '\0';
	assert_string_equal(name, c->script);
	assert_int_equal(access(name, F_OK), -1);
}

static void script_of_3_MiB(void **state)
{
	struct host *h = *state;
	size_t len = 3 << 20;
	char *script = malloc(len + 1);
	struct cmd *c;

	assert_non_null(script);
	memset(script, '#', len);
	for (size_t i = 999; i < len; i += 1000)
		script[i] = '\n';
	memcpy(script + len - 10, "\necho end\n", 10);
	script[len] = '\0';
	c = sh(h, script);
	free(script);
	assert_string_equal(cmd_out(c), "end\n");
}

static void many_scripts_at_once(void **state)
{
	struct host *h = *state;
	struct cmd *c[16];

	for (int i = 0; i < 16; i++) {
		char script[64], members[320], path[256];

		snprintf(path, sizeof(path), "%s/d%d", h->root, i);
		mkdir(path, 0755);
		snprintf(members, sizeof(members), "\"cwd\":\"%s\"", path);
		snprintf(script, sizeof(script), "#!/bin/sh\necho %d; pwd", i);
		c[i] = cmd_script(h, members, script);
	}
	for (int i = 0; i < 16; i++) {
		char want[300];

		cmd_wait(h, c[i]);
		snprintf(want, sizeof(want), "%d\n%s/d%d\n", i, h->root, i);
		assert_string_equal(cmd_out(c[i]), want);
	}
}

/* -- terminals ---------------------------------------------------------------------- */

static void tty_has_size_and_is_controlling(void **state)
{
	struct cmd *c = cmd_open(
		*state,
		"{\"argv\":[\"sh\",\"-c\",\"stty size < /dev/tty; test -t 0 && test -t 2 && echo yes; echo $TERM\"],"
		"\"tty\":{\"rows\":33,\"cols\":99}}");

	cmd_wait(*state, c);
	assert_string_equal(cmd_out(c), "33 99\r\nyes\r\nxterm\r\n");
	assert_int_equal(c->err.len, 0);
}

static void tty_resize_signals(void **state)
{
	static const uint8_t size[4] = { 50, 0, 132, 0 };
	struct host *h = *state;
	struct cmd *c = cmd_script(h, "\"tty\":{\"rows\":24,\"cols\":80}",
				   "trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.02; done");

	host_until(h, printed, c);
	host_send(h, CONTROL, AG_RESIZE, 0, c->stream, size, 4);
	cmd_wait(h, c);
	assert_string_equal(cmd_out(c), "up\r\n50 132\r\n");
}

static void tty_input_and_interrupt(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(
		h,
		"{\"argv\":[\"sh\",\"-c\",\"trap 'echo int; exit 5' INT; read l; echo got $l; while :; do sleep 0.02; done\"],"
		"\"stdin\":true,\"tty\":{\"rows\":24,\"cols\":80}}");

	cmd_write(h, c, AG_STDIN, "hello\n", 6, false);
	while (!strstr(cmd_out(c), "got hello"))
		host_pump(h, 100);
	cmd_write(h, c, AG_STDIN, "\003", 1, false);
	cmd_wait(h, c);
	assert_int_equal(cmd_int(c, "exit_code"), 5);
	assert_non_null(strstr(cmd_out(c), "int\r\n"));
}

static void tty_without_stdin_reads_end_of_file(void **state)
{
	struct cmd *c = cmd_open(*state, "{\"argv\":[\"sh\",\"-c\",\"cat; echo end\"],\"tty\":{}}");

	cmd_wait(*state, c);
	assert_non_null(strstr(cmd_out(c), "end\r\n"));
}

static void tty_background_child_holds_nothing_up(void **state)
{
	struct cmd *c = cmd_open(*state, "{\"argv\":[\"sh\",\"-c\",\"trap '' HUP; sleep 60 & echo hi\"],\"tty\":{}}");

	cmd_wait(*state, c);
	assert_string_equal(cmd_out(c), "hi\r\n");
	host_send(*state, CONTROL, AG_KILL, 0, c->stream, NULL, 0);
}

static void tty_100_KiB_is_whole(void **state)
{
	struct cmd *c =
		cmd_open(*state, "{\"argv\":[\"sh\",\"-c\",\"head -c 100000 /dev/zero | tr '\\\\0' x\"],\"tty\":{}}");

	cmd_wait(*state, c);
	assert_int_equal(c->out.len, 100000);
}

/* -- nothing is left behind --------------------------------------------------------- */

static void orphans_leave_no_zombies(void **state)
{
	struct host *h = *state;
	char line[256], path[64];
	int zombies = 0;
	FILE *f;

	for (int i = 0; i < 100; i++)
		sh(h, "(sleep 0.01 &) ; (true &)");
	host_pump(h, 200);
	sh(h, "true");
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", h->pid, h->pid);
	f = fopen(path, "re");
	if (!f)
		skip_because("this kernel has no /proc/PID/task/TID/children");
	if (fgets(line, sizeof(line), f))
		for (char *p = strtok(line, " "); p; p = strtok(NULL, " ")) {
			char stat_path[64], state_char = 0;
			FILE *s;

			snprintf(stat_path, sizeof(stat_path), "/proc/%s/stat", p);
			s = fopen(stat_path, "re");
			if (s && fscanf(s, "%*d (%*[^)]) %c", &state_char) == 1 && state_char == 'Z')
				zombies++;
			if (s)
				fclose(s);
		}
	fclose(f);
	assert_int_equal(zombies, 0);
}

static int count_cgroups(const struct host *h)
{
	char cmd[320];
	int n = -1;
	FILE *p;

	snprintf(cmd, sizeof(cmd), "ls -d %s/cmds/*/ 2>/dev/null | wc -l", h->cgroup);
	p = popen(cmd, "re");
	assert_non_null(p);
	assert_int_equal(fscanf(p, "%d", &n), 1);
	pclose(p);
	return n;
}

static void a_thousand_commands_leak_nothing(void **state)
{
	struct host *h = *state;
	int fds;
	long kib;

	for (int i = 0; i < 50; i++)
		sh(h, "echo x");
	host_send(h, CONTROL, AG_PING, 0, 0, "", 0);
	host_pump(h, 100);
	fds = open_fds(h->pid);
	kib = resident_kib(h->pid);
	for (int i = 0; i < 1000; i++) {
		struct cmd *c = cmd_open(h, "{\"argv\":[\"/bin/true\"]}");

		cmd_wait(h, c);
		assert_int_equal(cmd_int(c, "exit_code"), 0);
	}
	host_pump(h, 100);
	assert_int_equal(open_fds(h->pid), fds);
	if (memory_can_be_measured())
		assert_true(resident_kib(h->pid) - kib < 256);
	if (has_cgroups(h))
		assert_int_equal(count_cgroups(h), 0);
}

static void shutdown_ends_commands(void **state)
{
	struct host *h = *state;
	char script[512], path[256];
	struct cmd *c;

	snprintf(path, sizeof(path), "%s/term", h->root);
	snprintf(script, sizeof(script), "trap 'echo t > %s; exit 4' TERM; echo up; while :; do sleep 0.02; done",
		 path);
	c = cmd_script(h, "", script);
	host_until(h, printed, c);
	host_send(h, CONTROL, AG_SHUTDOWN, 0, 0, NULL, 0);
	cmd_wait(h, c);
	assert_int_equal(cmd_int(c, "exit_code"), 4);
	assert_int_equal(access(path, F_OK), 0);
}

#define WITH_AGENT(t) cmocka_unit_test_setup_teardown(t, agent_setup, agent_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_AGENT(exit_code_and_output),
		WITH_AGENT(signals_have_names),
		WITH_AGENT(usage_is_counted),
		WITH_AGENT(background_child_holds_nothing_up),
		WITH_AGENT(background_child_can_go_on_writing),
		WITH_AGENT(timeout_kills_the_whole_tree),
		WITH_AGENT(kill_takes_the_whole_tree),
		WITH_AGENT(kill_reaches_background_children),
		cmocka_unit_test_setup_teardown(timeout_without_cgroups, agent_setup_without_cgroup, agent_teardown),
		WITH_AGENT(killed_before_it_began),
		WITH_AGENT(signal_reaches_the_group),
		WITH_AGENT(argv_is_found_through_path),
		WITH_AGENT(command_not_found_EXIT_words),
		WITH_AGENT(cwd_is_entered_or_named),
		WITH_AGENT(env_has_defaults_and_is_overridden),
		WITH_AGENT(env_of_200_KiB),
		WITH_AGENT(bad_requests_are_told_in_words),
		cmocka_unit_test_setup_teardown(limits_without_controllers_are_refused, agent_setup_without_cgroup,
						agent_teardown),
		WITH_AGENT(user_of_the_guests_own_passwd),
		WITH_AGENT(script_with_interpreter),
		WITH_AGENT(script_is_removed_afterwards),
		WITH_AGENT(script_of_3_MiB),
		WITH_AGENT(many_scripts_at_once),
		WITH_AGENT(tty_has_size_and_is_controlling),
		WITH_AGENT(tty_resize_signals),
		WITH_AGENT(tty_input_and_interrupt),
		WITH_AGENT(tty_without_stdin_reads_end_of_file),
		WITH_AGENT(tty_background_child_holds_nothing_up),
		WITH_AGENT(tty_100_KiB_is_whole),
		WITH_AGENT(orphans_leave_no_zombies),
		WITH_AGENT(a_thousand_commands_leak_nothing),
		WITH_AGENT(shutdown_ends_commands),
	};

	return tests_end(cmocka_run_group_tests(tests, NULL, NULL));
}
