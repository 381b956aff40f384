/* SPDX-License-Identifier: Apache-2.0 */
/* crucible mcp serve: the tree for agents that call tools. It holds nothing: whatever it does is done by opening files
 * of the mount, as its caller. No daemon is needed to start it; a call without one fails in words that say how to start
 * it, and the first one with it reads the policy. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/mcp/server.h"

/* Every word of a list must be a tool's: a misspelt --deny-tools must not permit. */
static int check_tools(struct cli *c, enum opt_id id)
{
	const char *p = c->args.text[id] ?: "";
	char word[64];

	while (*(p += strspn(p, ", \t"))) {
		size_t len = strcspn(p, ", \t"), i;

		snprintf(word, sizeof(word), "%.*s", (int)len, p);
		for (i = 0; i < ntools && strcmp(tools[i].name, word) != 0; i++)
			;
		if (i == ntools)
			return err_set(&c->err, -EINVAL, "--%s: there is no tool \"%s\"", opt_table[id].name, word);
		p += len;
	}
	return 0;
}

static int check_flags(struct cli *c)
{
	const struct args *a = &c->args;
	int r = check_tools(c, OPT_TOOLS);

	if (r == 0)
		r = check_tools(c, OPT_DENY_TOOLS);
	if (r == 0)
		r = guard_check_net_max(a, &c->err);
	if (r == 0 && a->given[OPT_DEFAULT_PROFILE])
		r = sbx_id_check(a->text[OPT_DEFAULT_PROFILE], &c->err);
	if (r < 0)
		return r;
	if (a->given[OPT_DEFAULT_PROFILE] && a->given[OPT_ALLOW_PROFILES] &&
	    !guard_lists(a->text[OPT_ALLOW_PROFILES], a->text[OPT_DEFAULT_PROFILE]))
		return err_set(&c->err, -EINVAL, "--default-profile: \"%s\" is not among --allow-profiles",
			       a->text[OPT_DEFAULT_PROFILE]);
	return 0;
}

int cmd_mcp_serve(struct cli *c)
{
	struct server_config config = { .in = STDIN_FILENO, .mount = c->args.text[OPT_MOUNT] };
	struct guard guard;
	AUTO_FD out = -1;
	int r = check_flags(c);

	if (r < 0)
		return r;
	/* Nothing but messages may reach standard output, whoever prints. */
	out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	if (out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
		return err_set(&c->err, -errno, "standard output: %s", strerror(errno));
	config.out = out;
	r = guard_init(&guard, &c->args, &c->err);
	if (r < 0)
		return r;
	config.guard = &guard;
	if (mount_open(config.mount, &c->mount, NULL) == 0) {
		guard_refresh(&guard, c->mount.fd);
		r = guard_check_default(&c->args, c->mount.fd, &c->err);
	}
	mount_close(&c->mount);
	if (r == 0)
		r = server_run(&config, &c->err);
	guard_fini(&guard);
	return r;
}
