/* SPDX-License-Identifier: Apache-2.0 */
/* crucible run: a sandbox for one command. The sandbox hangs on its `lease`, which we hold open: however we end, it is
 * destroyed. */
#include <stdio.h>
#include <unistd.h>

#include "tools/crucible/command.h"
#include "tools/crucible/execute.h"
#include "tools/crucible/sbx.h"

int cmd_run(struct cli *c)
{
	const struct args *a = &c->args;
	struct execute x = {
		.argv = (const char *const *)a->guest,
		.input = a->given[OPT_INTERACTIVE] || !isatty(STDIN_FILENO),
		.tty = a->given[OPT_TTY],
		.endless = a->given[OPT_TTY],
		.signals = ATTACH_KILL,
	};
	struct err ignored = { 0 };
	struct sbx s;
	int r = sbx_make(c->mount.fd, NULL, "run-", !a->given[OPT_KEEP], &s, &c->err);

	if (r < 0)
		return r;
	r = sbx_set_up(&s, a, &c->err);
	if (r == 0 && a->given[OPT_TIMEOUT])
		r = sbx_stretch(&s, a->number[OPT_TIMEOUT], &c->err);
	if (r == 0)
		r = execute(c, &s, &x);
	if (a->given[OPT_KEEP])
		fprintf(stderr, "crucible: kept sandbox %s\n", s.id);
	else
		sbx_remove(&s, &ignored); /* letting go of the lease does it too */
	sbx_close(&s);
	return r;
}
