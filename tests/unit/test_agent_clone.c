/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO with "clone": the same agent, frozen, is told that it is a fork's. What the kernel alone can do (entropy, host
 * name, clock): test_agent_identity.c. */
#include "test_agent_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/loop.h"

#define PATIENT 10000u
#define OLD_ID	"0123456789abcdef0123456789abcdef"
#define NEW_ID	"fedcba9876543210fedcba9876543210"
#define NO_ID	"00000000000000000000000000000000"

static void need_cgroups(const struct host *h)
{
	if (!h->cgroup[0])
		skip_because("no cgroup2 directory that can be written to");
}

static const char *at(const char *root, const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

static void put_file(const char *root, const char *name, const char *text)
{
	int fd = open(at(root, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static void assert_file(const char *root, const char *name, const char *want)
{
	char *text;

	assert_int_equal(fd_slurp(AT_FDCWD, at(root, name), 4096, &text, NULL), 0);
	assert_string_equal(text, want);
	free(text);
}

static void make_dirs(const char *root)
{
	static const char *const dirs[] = { "etc", "var", "var/lib", "var/lib/dbus" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		assert_int_equal(mkdir(at(root, dirs[i]), 0755), 0);
}

static struct json_object *inherited(struct host *h, size_t i)
{
	struct json_object *list;

	assert_true(json_object_object_get_ex(h->hello, "inherited", &list));
	return json_object_array_get_idx(list, i);
}

static size_t count_inherited(struct host *h)
{
	struct json_object *list;

	assert_true(json_object_object_get_ex(h->hello, "inherited", &list));
	return json_object_array_length(list);
}

static int64_t number(struct json_object *o, const char *key)
{
	struct json_object *v;

	assert_true(json_object_object_get_ex(o, key, &v));
	return json_object_get_int64(v);
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

/* -- identity ----------------------------------------------------------------------- */

static bool printed_new_id(struct host *h, void *arg)
{
	const char *text = buf_str(&((struct cmd *)arg)->out);

	(void)h;
	return text && strstr(text, " " NEW_ID "\n");
}

/* HELLO with "hold": afterwards the agent is as quiet as it was. */
static void rehearse(struct host *h, uint64_t epoch)
{
	char members[512];

	snprintf(members, sizeof(members),
		 "\"hostname\":\"nobody\",\"entropy\":\"%064d\",\"root_mib\":1,"
		 "\"clone\":{\"fork\":\"" CLONE_FORK "\",\"machine_id\":\"" NO_ID "\",\"hold\":true}",
		 7);
	host_clone_send(h, epoch, members);
	host_clone_wait(h);
	h->silent = true;
	assert_false(json_object_object_get_ex(h->hello, "inherited", NULL));
	assert_int_equal(number(h->hello, "epoch"), (int64_t)epoch);
	assert_file(h->root, "etc/machine-id", NO_ID "\n");
	host_pump(h, 50);
}

/* Counted lines, each with the machine's id, over both epochs: none is lost or repeated, and the id changes once. This
 * is what a process that draws random numbers in a loop sees: it does not run while the guest is nobody. */
static void the_id_changes_once_after(struct host *h, unsigned rehearsals)
{
	char script[512], *text, *p, *line;
	bool renewed = false;
	long n = 0;
	struct cmd *c;

	need_cgroups(h);
	make_dirs(h->root);
	put_file(h->root, "etc/machine-id", OLD_ID "\n");
	snprintf(script, sizeof(script), "i=0; while :; do i=$((i+1)); read id < %s/etc/machine-id; echo $i $id; done",
		 h->root);
	c = cmd_script(h, "\"name\":\"the loop\"", script);
	host_until(h, printed, c);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	text = strdup(buf_str(&c->out));
	assert_null(strstr(text, NEW_ID));
	for (unsigned i = 0; i < rehearsals; i++)
		rehearse(h, 2 + i);
	host_clone(h, 2 + rehearsals, NEW_ID);
	assert_int_equal(count_inherited(h), 1);
	host_until(h, printed_new_id, c); /* after what stood in the pipe */
	kill_and_wait(h, c);		  /* its count is that of the new epoch */
	assert_true(asprintf(&p, "%s%s", text, buf_str(&c->out)) > 0);
	free(text);
	text = p;
	while ((line = strsep(&p, "\n")) && p) {
		assert_int_equal(strtol(line, &line, 10), ++n);
		renewed = renewed || strcmp(line, " " OLD_ID) != 0;
		assert_string_equal(line, renewed ? " " NEW_ID : " " OLD_ID);
	}
	free(text);
	assert_true(renewed);
}

static void the_id_changes_once(void **state)
{
	the_id_changes_once_after(*state, 0);
}

/* The process does not see that one, however often, and is still there to be inherited. */
static void a_rehearsal_shows_nothing(void **state)
{
	the_id_changes_once_after(*state, 2);
}

/* Without commands, and so without cgroups, too; what came before is answered after it. */
static void a_rehearsal_changes_the_files(void **state)
{
	struct host *h = *state;
	struct buf args;

	make_dirs(h->root);
	put_file(h->root, "etc/machine-id", OLD_ID "\n");
	put_file(h->root, "etc/hostname", "parent\n");
	assert_int_equal(host_freeze(h, PATIENT), 0);
	rehearse(h, 5);
	assert_file(h->root, "etc/hostname", "nobody\n");
	host_clone(h, 6, NEW_ID);
	assert_file(h->root, "etc/machine-id", NEW_ID "\n");
	assert_file(h->root, "etc/hostname", "forked\n");
	assert_string_equal(cmd_out(sh(h, "echo x")), "x\n");
	put_args(&args, "s", "");
	assert_int_equal(fs_call(h, AG_FS_GETATTR, &args)->code, 0);
	/* A fork of that fork. */
	assert_int_equal(host_freeze(h, PATIENT), 0);
	rehearse(h, 7);
	host_clone(h, 8, OLD_ID);
	assert_file(h->root, "etc/machine-id", OLD_ID "\n");
}

/* Its commands end in a rehearsal, and are told of in the epoch of whoever it becomes. */
static void an_end_in_a_rehearsal_is_told_after_it(void **state)
{
	struct host *h = *state;
	struct cmd *c;

	need_cgroups(h);
	make_dirs(h->root);
	c = cmd_open(h, "{\"argv\":[\"sh\",\"-c\",\"echo $$; exec sleep 60\"],\"timeout_ms\":500}");
	while (c->out.len < 2)
		host_pump(h, 100);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	rehearse(h, 2);
	host_pump(h, 600); /* its time is over in here */
	rehearse(h, 3);
	host_clone(h, 4, NEW_ID);
	cmd_wait(h, c);
	assert_string_equal(cmd_str(c, "signal"), "SIGKILL");
}

static void files_of_the_identity(void **state)
{
	struct host *h = *state;
	struct json_object *o = NULL, *v;
	struct stat st;
	char *text;

	make_dirs(h->root);
	put_file(h->root, "etc/machine-id", OLD_ID "\n");
	put_file(h->root, "var/lib/dbus/machine-id", OLD_ID "\n");
	put_file(h->root, "etc/hostname", "a much longer name than the new one\n");
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 77, NEW_ID);
	assert_int_equal(count_inherited(h), 0);
	assert_int_equal(number(h->hello, "epoch"), 77);
	assert_int_equal(number(h->hello, "version"), AG_VERSION);
	assert_file(h->root, "etc/machine-id", NEW_ID "\n");
	assert_file(h->root, "var/lib/dbus/machine-id", NEW_ID "\n");
	assert_file(h->root, "etc/hostname", "forked\n");
	assert_int_equal(stat(at(h->root, "etc/machine-id"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	assert_int_equal(fd_slurp(AT_FDCWD, at(h->root, "run-crucible/fork"), 4096, &text, NULL), 0);
	assert_int_equal(json_parse(text, strcspn(text, "\n"), &o, NULL), 0);
	free(text);
	assert_int_equal(number(o, "epoch"), 77);
	assert_true(json_object_object_get_ex(o, "fork", &v));
	assert_string_equal(json_object_get_string(v), CLONE_FORK);
	assert_true(json_object_object_get_ex(o, "parent", &v));
	assert_string_equal(json_object_get_string(v), "snap-1");
	json_object_put(o);
	/* A fork of the fork. */
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 78, OLD_ID);
	assert_file(h->root, "etc/machine-id", OLD_ID "\n");
	assert_file(h->root, "var/lib/dbus/machine-id", OLD_ID "\n");
}

/* Without /etc none is made; with it one is; links are replaced or left alone, never written through. */
static void identity_follows_no_link(void **state)
{
	struct host *h = *state;
	char moved[256];
	struct stat st;

	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	assert_int_equal(access(at(h->root, "etc"), F_OK), -1);
	make_dirs(h->root);
	put_file(h->root, "victim", "as it was");
	assert_int_equal(symlink("../victim", at(h->root, "etc/hostname")), 0);
	assert_int_equal(symlink("../../../victim", at(h->root, "var/lib/dbus/machine-id")), 0);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 3, NEW_ID);
	assert_file(h->root, "etc/machine-id", NEW_ID "\n"); /* there was none */
	assert_file(h->root, "victim", "as it was");
	assert_int_equal(lstat(at(h->root, "etc/hostname"), &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	unlink(at(h->root, "etc/machine-id"));
	assert_int_equal(symlink("/victim", at(h->root, "etc/machine-id")), 0);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 4, OLD_ID);
	assert_file(h->root, "etc/machine-id", OLD_ID "\n");
	assert_file(h->root, "victim", "as it was");
	/* A link on the way leads on, inside of the root only. */
	assert_int_equal(unlink(at(h->root, "var/lib/dbus/machine-id")), 0);
	put_file(h->root, "var/lib/dbus/machine-id", OLD_ID "\n");
	snprintf(moved, sizeof(moved), "%s/moved", h->root);
	assert_int_equal(rename(at(h->root, "var/lib"), moved), 0);
	assert_int_equal(symlink("/moved", at(h->root, "var/lib")), 0);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 5, NEW_ID);
	assert_file(h->root, "moved/dbus/machine-id", NEW_ID "\n");
}

/* The form that profiles have: links to the agent's own files, in memory. They stay links, and whoever holds the old
 * file open sees the old text whole. Any other link is replaced or left alone, as before. */
static void links_to_the_agents_own_stay(void **state)
{
	static const char *const names[] = { "machine-id", "hostname" };
	struct host *h = *state;
	char own[256], text[64];
	struct stat st;
	int old;

	make_dirs(h->root);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(own, sizeof(own), "%s/run-crucible/%s", h->root, names[i]);
		snprintf(text, sizeof(text), "etc/%s", names[i]);
		assert_int_equal(symlink(own, at(h->root, text)), 0);
	}
	put_file(h->root, "run-crucible/machine-id", OLD_ID "\n");
	old = open(at(h->root, "etc/machine-id"), O_RDONLY | O_CLOEXEC);
	assert_true(old >= 0);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(text, sizeof(text), "etc/%s", names[i]);
		assert_int_equal(lstat(at(h->root, text), &st), 0);
		assert_true(S_ISLNK(st.st_mode));
	}
	assert_file(h->root, "run-crucible/machine-id", NEW_ID "\n");
	assert_file(h->root, "run-crucible/hostname", "forked\n");
	assert_int_equal(read(old, text, sizeof(text)), strlen(OLD_ID) + 1);
	assert_memory_equal(text, OLD_ID "\n", strlen(OLD_ID) + 1);
	close(old);
}

static off_t size_of(const struct host *h, const char *name)
{
	struct stat st;

	return stat(at(h->root, name), &st) < 0 ? -1 : st.st_size;
}

static void until_size(struct host *h, const char *name, off_t more_than)
{
	for (int i = 0; size_of(h, name) <= more_than; i++) {
		assert_true(i < PATIENCE_MS / 10);
		host_pump(h, 10);
	}
}

static bool said_bye(struct host *h, void *arg)
{
	(void)arg;
	return h->bye.len > 0;
}

/* A step that fails, or a HELLO that lacks something: nothing moves, and the next try works. */
static void a_failed_step_leaves_all_frozen(void **state)
{
	static const struct {
		const char *members, *words;
	} bad[] = {
		{ "\"clone\":7", "clone: " },
		{ "\"clone\":{}", "clone: fork: not a uuid" },
		{ "\"clone\":{\"fork\":\"" CLONE_FORK "\"}", "clone: machine_id: not 32 hex digits" },
		{ "\"clone\":{\"fork\":\"" CLONE_FORK "\",\"machine_id\":\"" NEW_ID "\"}", "clone: needs wall_ns and" },
		{ "\"entropy\":\"0000000000000000000000000000000000000000000000000000000000000000\",\"hostname\":\"x\","
		  "\"clone\":{\"fork\":\"" CLONE_FORK "\",\"machine_id\":\"" NEW_ID "\"}",
		  "hello: clone: /etc/machine-id: " },
		{ "\"clone\":{\"fork\":\"" CLONE_FORK "\",\"machine_id\":\"" NEW_ID "\",\"hold\":1}", "hold" },
	};
	struct host *h = *state;
	char script[256];
	struct cmd *c;
	off_t before;

	need_cgroups(h);
	make_dirs(h->root);
	assert_int_equal(mkdir(at(h->root, "etc/machine-id"), 0755), 0);
	snprintf(script, sizeof(script), "while :; do echo x >> %s/busy; done", h->root);
	c = cmd_script(h, "", script);
	until_size(h, "busy", 10);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	before = size_of(h, "busy");
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		h->bye.len = 0;
		host_clone_send(h, 2 + i, bad[i].members);
		host_until(h, said_bye, NULL);
		if (!strstr(buf_str(&h->bye), bad[i].words))
			fail_msg("\"%s\" does not say \"%s\"", buf_str(&h->bye), bad[i].words);
		host_pump(h, 50);
		assert_int_equal(size_of(h, "busy"), before);
	}
	assert_int_equal(rmdir(at(h->root, "etc/machine-id")), 0);
	host_clone(h, 9, NEW_ID);
	assert_int_equal(count_inherited(h), 1);
	until_size(h, "busy", before);
	kill_and_wait(h, c);
}

/* -- inherited commands ------------------------------------------------------------- */

static void inherited_commands_are_listed_and_end(void **state)
{
	struct host *h = *state;
	char pid_text[32];
	struct cmd *a, *b, *ended, *script;
	struct json_object *v;

	need_cgroups(h);
	ended = sh(h, "sleep 60 > /dev/null 2>&1 & true"); /* over, but for a child */
	a = cmd_open(h,
		     "{\"argv\":[\"sh\",\"-c\",\"echo $$; while [ ! -e %s/go ]; do sleep 0.02; done; "
		     "echo out; echo err >&2; exit 7\"],\"name\":\"a \\u00fc\"}",
		     h->root);
	b = cmd_open(h, "{\"argv\":[\"sleep\",\"60\"]}");
	script = cmd_open(h, "{\"script\":true}"); /* never whole: it does not begin */
	while (a->out.len < 2 || !b->started)
		host_pump(h, 100);
	snprintf(pid_text, sizeof(pid_text), "%s", cmd_out(a));
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	assert_int_equal(count_inherited(h), 2);
	for (size_t i = 0; i < 2; i++) {
		struct json_object *o = inherited(h, i);

		assert_true(number(o, "pid") > 1);
		if (number(o, "stream") == b->stream) {
			assert_false(json_object_object_get_ex(o, "name", &v));
			continue;
		}
		assert_int_equal(number(o, "stream"), a->stream);
		assert_int_equal(number(o, "pid"), strtol(pid_text, NULL, 10));
		assert_true(json_object_object_get_ex(o, "name", &v));
		assert_string_equal(json_object_get_string(v), "a \xc3\xbc");
	}
	put_file(h->root, "go", "");
	cmd_wait(h, a);
	assert_int_equal(cmd_int(a, "exit_code"), 7);
	assert_string_equal(cmd_out(a), "out\n"); /* what was printed before belongs to the parent */
	assert_string_equal(cmd_err(a), "err\n");
	kill_and_wait(h, b);
	/* Streams of the others are free: the host may name a new one so. */
	script->stream = ended->stream = 0;
	h->next_stream = 1;
	assert_string_equal(cmd_out(sh(h, "echo new")), "new\n");
}

/* More text than a frame holds: the list is whole, without names. */
static void many_long_names(void **state)
{
	struct host *h = *state;
	char name[3001];
	struct cmd *c[40];

	need_cgroups(h);
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		c[i] = cmd_open(h, "{\"argv\":[\"sleep\",\"60\"],\"name\":\"%s\"}", name);
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		while (!c[i]->started)
			host_pump(h, 100);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	assert_int_equal(count_inherited(h), ARRAY_LEN(c));
	assert_false(json_object_object_get_ex(inherited(h, 7), "name", NULL));
	for (size_t i = 0; i < ARRAY_LEN(c); i++)
		kill_and_wait(h, c[i]);
}

/* What stood in a pipe, unsent for want of credit, and the end of a command that waited for that. */
static void output_that_waited_for_credit(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h, "{\"argv\":[\"sh\",\"-c\",\"head -c 400000 /dev/zero; echo end\"]}");

	need_cgroups(h);
	c->keep_credit = true;
	while (c->out.len < AG_WINDOW)
		host_pump(h, 100);
	host_pump(h, 200); /* it can end: the pipe holds the rest */
	assert_null(c->exit);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	c->keep_credit = false;
	host_clone(h, 2, NEW_ID);
	assert_int_equal(count_inherited(h), 1);
	assert_true(number(inherited(h, 0), "pid") > 1);
	cmd_wait(h, c);
	assert_int_equal(c->out.len, 400004 - AG_WINDOW);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
}

/* More than a window of the new epoch: credit works there. */
static void credit_begins_anew(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h,
				 "{\"argv\":[\"sh\",\"-c\",\"head -c 300000 /dev/zero; "
				 "while [ ! -e %s/go ]; do sleep 0.02; done; head -c 3000000 /dev/zero\"]}",
				 h->root);

	need_cgroups(h);
	while (c->out.len < 300000)
		host_pump(h, 100);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	put_file(h->root, "go", "");
	cmd_wait(h, c);
	assert_int_equal(c->out.len, 3000000);
}

static void standard_input_is_at_its_end(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_open(h, "{\"argv\":[\"sh\",\"-c\",\"echo up; sed s/^/got-/; echo end\"],\"stdin\":true}");
	struct cmd *t = cmd_open(h, "{\"argv\":[\"sh\",\"-c\",\"echo up; cat; echo end\"],\"stdin\":true,\"tty\":{}}");

	need_cgroups(h);
	while (c->out.len < 3 || t->out.len < 4)
		host_pump(h, 100);
	cmd_write(h, c, AG_STDIN, "unfinished", 10, false);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	assert_int_equal(count_inherited(h), 2);
	cmd_wait(h, c);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_non_null(strstr(cmd_out(c), "end\n"));
	cmd_wait(h, t);
	assert_int_equal(cmd_int(t, "exit_code"), 0);
	assert_non_null(strstr(cmd_out(t), "end\r\n"));
}

static void what_is_left_of_the_deadline_counts(void **state)
{
	struct host *h = *state;
	uint64_t start = now_ns();
	struct cmd *c = cmd_script(h, "\"timeout_ms\":1500", "echo up; sleep 60");

	need_cgroups(h);
	while (c->out.len < 3)
		host_pump(h, 100);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	cmd_wait(h, c);
	assert_true(cmd_bool(c, "timed_out"));
	assert_true(cmd_int(c, "duration_ns") >= 1500000000);
	assert_true(now_ns() - start >= 1500000000);
}

/* It ended in the fork before that was told who it is: the end is the first thing of the new epoch. */
static void an_end_before_hello_is_told_after_it(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_script(h, "\"timeout_ms\":300", "echo up; sleep 60");

	need_cgroups(h);
	while (c->out.len < 3)
		host_pump(h, 100);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_pump(h, 300);
	host_pump(h, 300);
	host_clone(h, 2, NEW_ID);
	assert_int_equal(count_inherited(h), 1);
	cmd_wait(h, c);
	assert_true(cmd_bool(c, "timed_out"));
}

static void signals_reach_inherited_commands(void **state)
{
	static const uint8_t usr1[4] = { 10 };
	struct host *h = *state;
	struct cmd *c = cmd_script(h, "", "trap 'echo got; exit 3' USR1; echo up; while :; do sleep 0.02; done");

	need_cgroups(h);
	while (c->out.len < 3)
		host_pump(h, 100);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	host_send(h, CONTROL, AG_SIGNAL, 0, c->stream, usr1, 4);
	cmd_wait(h, c);
	assert_int_equal(cmd_int(c, "exit_code"), 3);
	assert_string_equal(cmd_out(c), "got\n");
	host_send(h, CONTROL, AG_CLOSE, 0, c->stream, NULL, 0);
	assert_string_equal(cmd_out(sh(h, "echo x")), "x\n");
}

/* -- what else was of the older epoch ----------------------------------------------- */

static void handles_of_the_older_epoch_ESTALE(void **state)
{
	struct host *h = *state;
	struct fsrep *rep;
	struct wire_rd r;
	struct buf args;
	uint32_t handle;

	put_file(h->root, "f", "text");
	put_args(&args, "su", "f", 0u);
	rep = fs_call(h, AG_FS_OPEN, &args);
	assert_int_equal(rep->code, 0);
	wire_rd_init(&r, rep->data.data, rep->data.len);
	handle = wire_u32(&r);
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_thaw(h);
	put_args(&args, "uUu", handle, (uint64_t)0, 4u);
	assert_int_equal(fs_call(h, AG_FS_READ, &args)->code, 0); /* the parent goes on with it */
	assert_int_equal(host_freeze(h, PATIENT), 0);
	host_clone(h, 2, NEW_ID);
	put_args(&args, "uUu", handle, (uint64_t)0, 4u);
	assert_int_equal(fs_call(h, AG_FS_READ, &args)->code, -ESTALE);
	put_args(&args, "su", "f", 0u);
	assert_int_equal(fs_call(h, AG_FS_OPEN, &args)->code, 0);
}

/* The parent's host had written the first part of a frame on bulk, and a whole one that was not taken: the fork's host
 * begins right behind it. */
static void half_a_frame_of_the_parent(void **state)
{
	struct host *h = *state;
	uint8_t frame[AG_HEADER_LEN + 100] = { 0 };
	struct buf args;

	sh(h, "echo x");
	assert_int_equal(host_freeze(h, PATIENT), 0);
	put_args(&args, "s", "");
	fs_send(h, AG_FS_GETATTR, &args);
	ag_frame_header(frame, AG_FS_REQ, AG_FS_GETATTR, 99, h->port[BULK].seq_out, AG_PAYLOAD_MAX);
	host_send_raw(h, BULK, frame, sizeof(frame));
	host_pump(h, 50);
	host_clone(h, 2, NEW_ID);
	put_args(&args, "s", "");
	assert_int_equal(fs_call(h, AG_FS_GETATTR, &args)->code, 0);
	assert_int_equal(h->nfs, 0);
}

/* Not frozen, so nothing can be inherited; it is another machine all the same. */
static void clone_without_freeze(void **state)
{
	struct host *h = *state;
	struct cmd *c = cmd_script(h, "", "while :; do echo noise; sleep 0.01; done");
	char json[512];

	make_dirs(h->root);
	while (c->out.len == 0)
		host_pump(h, 100);
	snprintf(
		json, sizeof(json),
		"{\"version_min\":4,\"version_max\":4,\"epoch\":2,\"wall_ns\":1,\"entropy\":\"%064d\",\"clone\":{\"fork\":"
		"\"" CLONE_FORK "\",\"machine_id\":\"" NEW_ID "\"}}",
		1);
	json_object_put(h->hello);
	h->hello = NULL;
	h->stale = true;
	h->port[CONTROL].seq_out = h->port[BULK].seq_out = 0;
	host_send(h, CONTROL, AG_HELLO, 0, 0, json, strlen(json));
	host_send(h, BULK, AG_HELLO, 0, 0, json, strlen(json));
	host_clone_wait(h);
	host_forget(h);
	assert_int_equal(count_inherited(h), 0);
	assert_file(h->root, "etc/machine-id", NEW_ID "\n");
	assert_string_equal(cmd_out(sh(h, "echo x")), "x\n");
}

static void hold_without_freeze(void **state)
{
	struct host *h = *state;
	char members[512];

	make_dirs(h->root);
	put_file(h->root, "etc/machine-id", OLD_ID "\n");
	snprintf(members, sizeof(members),
		 "\"entropy\":\"%064d\",\"clone\":{\"fork\":\"" CLONE_FORK "\",\"machine_id\":\"" NEW_ID
		 "\",\"hold\":true}",
		 7);
	host_clone_send(h, 2, members);
	host_until(h, said_bye, NULL);
	assert_non_null(strstr(buf_str(&h->bye), "clone: hold: this guest is not frozen"));
	assert_file(h->root, "etc/machine-id", OLD_ID "\n");
}

#define WITH_AGENT(t) cmocka_unit_test_setup_teardown(t, agent_setup, agent_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_AGENT(the_id_changes_once),
		WITH_AGENT(a_rehearsal_shows_nothing),
		WITH_AGENT(a_rehearsal_changes_the_files),
		WITH_AGENT(an_end_in_a_rehearsal_is_told_after_it),
		WITH_AGENT(files_of_the_identity),
		WITH_AGENT(identity_follows_no_link),
		WITH_AGENT(links_to_the_agents_own_stay),
		WITH_AGENT(a_failed_step_leaves_all_frozen),
		WITH_AGENT(inherited_commands_are_listed_and_end),
		WITH_AGENT(many_long_names),
		WITH_AGENT(output_that_waited_for_credit),
		WITH_AGENT(credit_begins_anew),
		WITH_AGENT(standard_input_is_at_its_end),
		WITH_AGENT(what_is_left_of_the_deadline_counts),
		WITH_AGENT(an_end_before_hello_is_told_after_it),
		WITH_AGENT(signals_reach_inherited_commands),
		WITH_AGENT(handles_of_the_older_epoch_ESTALE),
		WITH_AGENT(half_a_frame_of_the_parent),
		WITH_AGENT(clone_without_freeze),
		WITH_AGENT(hold_without_freeze),
	};

	return tests_end(cmocka_run_group_tests(tests, NULL, NULL));
}
