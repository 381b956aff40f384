/* SPDX-License-Identifier: Apache-2.0 */
/* sh: ARGUMENT is run by /bin/sh, as a person would; timed from the fork to its end. Its output is dropped.
 * Before each run --text is run, untimed (to put away what the last run has made). */
#include "tools/bench/turns.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct shell {
	const char *command, *before;
	posix_spawn_file_actions_t actions;
};

static int shell_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct shell *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, -ENOMEM, "no memory");
	s->command = arg;
	s->before = o->text;
	posix_spawn_file_actions_init(&s->actions);
	posix_spawn_file_actions_addopen(&s->actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&s->actions, 1, "/dev/null", O_WRONLY, 0);
	*ret = s;
	return 0;
}

static void shell_close(void *op)
{
	struct shell *s = op;

	posix_spawn_file_actions_destroy(&s->actions);
	free(s);
}

static int run_shell(struct shell *s, const char *command, struct err *e)
{
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)command, NULL };
	int status, r;
	pid_t pid;

	r = posix_spawn(&pid, "/bin/sh", &s->actions, NULL, argv, environ);
	if (r != 0)
		return err_set(e, -r, "/bin/sh: %s", strerror(r));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_set(e, -errno, "waitpid: %s", strerror(errno));
	return status == 0 ? 0 : err_set(e, -EIO, "ended with status %#x: %s", (unsigned)status, command);
}

static int shell_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct shell *s = op;
	uint64_t began;
	int r;

	if (*s->before && (r = run_shell(s, s->before, e)) < 0)
		return r;
	began = bench_now_ns();
	r = run_shell(s, s->command, e);
	if (r < 0)
		return r;
	*ret_ns = bench_now_ns() - began;
	return 0;
}

const struct bench_op bench_op_sh = { "sh", shell_open, shell_run, shell_close, { 0 } };
