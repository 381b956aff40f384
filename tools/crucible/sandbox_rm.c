/* SPDX-License-Identifier: Apache-2.0 */
/* crucible rm, crucible stop: the end of sandboxes, several at once. */
#include <string.h>

#include "tools/crucible/command.h"
#include "tools/crucible/each.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/tree.h"

#define STOP_TIMEOUT_MS 30000 /* the daemon gives a guest 10 s, then kills it */

static int remove_one(struct cli *c, const char *id, struct err *e)
{
	int r = sbx_remove_id(c->mount.fd, id, e);

	return r == -ENOENT && c->args.given[OPT_FORCE] ? 0 : r;
}

int cmd_sandbox_rm(struct cli *c)
{
	return each_word(c, remove_one);
}

static int stop_one(struct cli *c, const char *id, struct err *e)
{
	char status[32];
	struct sbx s;
	int r = sbx_open(c->mount.fd, id, &s, e);

	if (r < 0)
		return r;
	/* What does not run is stopped: not an error to somebody who wants just that. */
	r = tree_word(s.dir, "status", status, sizeof(status));
	if (r < 0)
		err_set(e, r, "sandbox \"%s\": status: %s", id, strerror(-r));
	else if (strcmp(status, "configured") != 0 && strcmp(status, "failed") != 0)
		r = tree_set(s.dir, "ctl", "stop", e);
	else
		goto out;
	if (r == 0)
		r = sbx_await(&s, "stopped", STOP_TIMEOUT_MS, e);
out:
	sbx_close(&s);
	return r;
}

int cmd_stop(struct cli *c)
{
	return each_word(c, stop_one);
}
