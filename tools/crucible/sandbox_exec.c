/* SPDX-License-Identifier: Apache-2.0 */
/* crucible sandbox exec, crucible shell: a command in a sandbox that is there. */
#include <stdio.h>
#include <unistd.h>

#include "tools/crucible/command.h"
#include "tools/crucible/execute.h"
#include "tools/crucible/sbx.h"

int cmd_sandbox_exec(struct cli *c)
{
	const struct args *a = &c->args;
	/* Input only when asked for: in `while read id; do crucible sandbox exec …` the list is not the command's. */
	struct execute x = {
		.argv = (const char *const *)a->guest,
		.input = a->given[OPT_INTERACTIVE],
		.tty = a->given[OPT_TTY],
		.endless = a->given[OPT_TTY] && a->given[OPT_INTERACTIVE],
		.signals = ATTACH_FORWARD,
	};
	struct sbx s;
	int r = sbx_open(c->mount.fd, a->words[0], &s, &c->err);

	if (r < 0)
		return r;
	r = execute(c, &s, &x);
	sbx_close(&s);
	return r;
}

int cmd_shell(struct cli *c)
{
	/* One request decides between the two: asking first would be a race, and one more round trip. */
	static const char *const any_shell[] = { "/bin/sh", "-c",
						 "[ -x /bin/bash ] && exec /bin/bash -i; exec /bin/sh -i", NULL };
	const char *const chosen[] = { c->args.text[OPT_SHELL], "-i", NULL };
	struct execute x = {
		.argv = chosen[0] ? chosen : any_shell,
		.input = true,
		.tty = true,
		.endless = true,
		.signals = ATTACH_KILL,
	};
	struct sbx s;
	int r;

	if (!isatty(STDIN_FILENO))
		return err_set(
			&c->err, -ENOTTY,
			"shell needs a terminal on standard input; for a script: crucible sandbox exec -i %s -- /bin/sh",
			c->args.words[0]);
	r = sbx_open(c->mount.fd, c->args.words[0], &s, &c->err);
	if (r < 0)
		return r;
	r = execute(c, &s, &x);
	sbx_close(&s);
	return r;
}
