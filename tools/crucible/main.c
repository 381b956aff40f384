/* SPDX-License-Identifier: Apache-2.0 */
/* crucible: the command line. It holds no privileges and talks to nobody: all it does is done with the files of the
 * mount. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/record.h"

/* A missing descriptor 0, 1 or 2 would be taken by the first file that we open. */
static void fill_standard_descriptors(void)
{
	for (int fd = 0; fd <= 2; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
			_exit(EXIT_CRUCIBLE);
	}
}

/* Our reader has gone: end as if we had never looked away from it. */
static int end_by_sigpipe(void)
{
	sigset_t set;

	signal(SIGPIPE, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	raise(SIGPIPE);
	return EXIT_SIGNAL + SIGPIPE;
}

/* Everything printed must have arrived. Returns the exit code. */
static int finish(struct cli *c, int r)
{
	bool flushed = fflush(stdout) == 0 && !ferror(stdout);

	if (r == -EPIPE || (!flushed && errno == EPIPE))
		return end_by_sigpipe();
	if (r >= 0 && !flushed)
		r = err_set(&c->err, -EIO, "standard output: %s", strerror(errno));
	if (r >= 0)
		return r;
	fprintf(stderr, "crucible: %s\n", printable_line(*c->err.msg ? c->err.msg : strerror(-r)));
	return EXIT_CRUCIBLE;
}

static int check_words(struct cli *c)
{
	const struct command *cmd = c->cmd;
	const struct args *a = &c->args;

	if (cmd->flags & COMMAND_GUEST && (!a->guest || !a->guest[0]) && a->nwords > cmd->min)
		return err_set(&c->err, -EINVAL, "put -- before the guest's command: crucible %s%s%s -- %s", cmd->name,
			       cmd->min ? " " : "", cmd->min ? a->words[0] : "", a->words[cmd->min]);
	if (cmd->flags & COMMAND_GUEST && (!a->guest || !a->guest[0]))
		return err_set(&c->err, -EINVAL, "%s: there is no command; usage: crucible %s [options] %s", cmd->name,
			       cmd->name, cmd->words);
	if (!(cmd->flags & COMMAND_GUEST) && a->guest && a->guest[0])
		return err_set(&c->err, -EINVAL, "%s takes no command behind --", cmd->name);
	if (a->nwords < cmd->min || a->nwords > cmd->max)
		return err_set(&c->err, -EINVAL, "%s: too %s arguments; usage: crucible %s [options] %s", cmd->name,
			       a->nwords < cmd->min ? "few" : "many", cmd->name, cmd->words);
	return 0;
}

static int run_command(struct cli *c, int argc, char **argv)
{
	int r = args_parse(&c->args, c->cmd->opts, argc, argv, false, NULL, &c->err);

	if (r == 0 && c->args.given[OPT_HELP]) {
		help_command(c->cmd);
		return 0;
	}
	if (r == 0)
		r = check_words(c);
	if (r < 0)
		return r;
	c->json = c->args.text[OPT_OUTPUT] && !strcmp(c->args.text[OPT_OUTPUT], "json");
	if (c->cmd->flags & COMMAND_MOUNT)
		r = mount_open(c->args.text[OPT_MOUNT], &c->mount, &c->err);
	if (r == 0)
		r = c->cmd->run(c);
	mount_close(&c->mount);
	return r;
}

static int run(struct cli *c, int argc, char **argv)
{
	static const enum opt_id none[] = { OPT_END };
	char group[] = "sandbox";
	int used = 0, r = args_parse(&c->args, none, argc - 1, argv + 1, true, &used, &c->err);

	argc -= 1 + used;
	argv += 1 + used;
	if (r < 0)
		return r;
	if (argc == 0 && !c->args.given[OPT_HELP])
		return err_set(&c->err, -EINVAL, "no command; crucible help lists them");
	c->cmd = command_find(argc, argv, &used);
	if (c->cmd)
		return run_command(c, argc - used, argv + used);
	if (argc == 0) {
		help_all();
		return 0;
	}
	if (!command_is_group(argv[0]) && command_find(2, (char *[]){ group, argv[0] }, &used))
		return err_set(&c->err, -EINVAL, "there is no command \"%s\"; say crucible sandbox %s", argv[0],
			       argv[0]);
	if (!command_is_group(argv[0]))
		return err_set(&c->err, -EINVAL, "there is no command \"%s\"; crucible help lists them", argv[0]);
	if (argc > 1 && strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0)
		return err_set(&c->err, -EINVAL, "there is no command \"%s %s\"; crucible help %s lists them", argv[0],
			       argv[1], argv[0]);
	help_group(argv[0]);
	return argc > 1 ? 0 : EXIT_CRUCIBLE;
}

int main(int argc, char **argv)
{
	struct cli c = { .mount.fd = -1 };
	int r;

	fill_standard_descriptors();
	setlocale(
		LC_CTYPE,
		"C.UTF-8"); /* names in tar streams are UTF-8, whatever the user's locale; nothing else depends on it */
	signal(SIGPIPE, SIG_IGN); /* a write says EPIPE, so that what runs in a guest can be ended first */
	args_init(&c.args);
	r = finish(&c, run(&c, argc, argv));
	args_fini(&c.args);
	return r;
}
