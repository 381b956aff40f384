/* SPDX-License-Identifier: Apache-2.0 */
/* crucible snapshot create: write a name into run/<id>/snapshot. */
#include <fcntl.h>
#include <stdio.h>

#include "tools/crucible/command.h"
#include "tools/crucible/sbx.h"
#include "tools/crucible/snapshot.h"
#include "tools/crucible/tree.h"

#define NAME_TRIES 8

/* Blocks until it can be forked: the time of the pause, and little more. */
static int take(struct sbx *s, const char *name, struct err *e)
{
	struct err words = { 0 };
	int r = tree_set(s->dir, "snapshot", name, &words);

	if (r == -EEXIST)
		return snapshot_explain(r, name, e);
	if (r < 0)
		err_set(e, r, "%s", words.msg);
	return r;
}

int cmd_snapshot_create(struct cli *c)
{
	const struct args *a = &c->args;
	struct snapshot snap = SNAPSHOT_NONE;
	AUTO_JSON *info = NULL;
	char made_up[SBX_ID_MAX + 1];
	const char *name = a->nwords > 1 ? a->words[1] : made_up;
	struct sbx s = SBX_NONE;
	int r = 0;

	if (name != made_up)
		r = snapshot_id_check(name, &c->err);
	if (r == 0)
		r = sbx_open(c->mount.fd, a->words[0], &s, &c->err);
	if (r < 0)
		return r;
	for (int tries = 0; tries < NAME_TRIES; tries++) {
		sbx_fresh_name("snap-", made_up);
		r = take(&s, name, &c->err);
		if (r != -EEXIST || name != made_up)
			break;
	}
	sbx_close(&s);
	if (r == 0 && (c->json || a->given[OPT_WAIT]))
		r = snapshot_open(c->mount.fd, name, &snap, &c->err);
	if (r == 0 && a->given[OPT_WAIT])
		r = snapshot_await_ready(c->mount.fd, &snap, &c->err);
	if (r == 0 && c->json)
		r = tree_info(snap.dir, name, &info, &c->err);
	if (r == 0 && c->json)
		r = print_json(c, json_object_get(info));
	else if (r == 0)
		puts(name);
	snapshot_close(&snap);
	return r;
}
