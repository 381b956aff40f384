/* SPDX-License-Identifier: Apache-2.0 */
/* crucible sandbox create: a sandbox that stays, not started. */
#include <stdio.h>

#include "tools/crucible/command.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/tree.h"

int cmd_sandbox_create(struct cli *c)
{
	const struct args *a = &c->args;
	AUTO_JSON *info = NULL;
	struct sbx s;
	int r = sbx_make(c->mount.fd, a->text[OPT_NAME], "sbx-", false, &s, &c->err);

	if (r < 0)
		return r;
	r = sbx_set_up(&s, a, &c->err);
	if (r == 0)
		r = sbx_set_env(&s, &a->texts[OPT_ENV], &c->err);
	if (r == 0 && c->json)
		r = tree_info(s.dir, s.id, &info, &c->err);
	if (r < 0)
		sbx_undo(&s, &c->err);
	else if (c->json)
		r = print_json(c, json_object_get(info));
	else
		puts(s.id);
	sbx_close(&s);
	return r;
}
