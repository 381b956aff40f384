/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot, fork, list_snapshots, inspect_snapshot, delete_snapshot, diff. */
#include <string.h>

#include "tools/crucible/fields.h"
#include "tools/crucible/fork.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/snapshot.h"
#include "tools/crucible/tree.h"

#define NAME_TRIES 16

int tool_snapshot(struct call *c)
{
	const char *name = call_text(c, "name");
	int r = call_word(c, call_text(c, "sandbox_id"));

	if (r == 0 && name)
		r = call_word(c, name);
	return r < 0 ? r : call_command(c, cmd_snapshot_create, NULL);
}

/* The operator's limits hold for forks, too: what they may reach they have from their snapshot. */
static int restrict_forks(struct call *c, const struct fork_batch *b)
{
	uint64_t timeout_ms = guard_fork_lifetime_ms(c->guard);
	struct err ignored = { 0 };
	int r = 0;

	for (size_t i = 0; i < b->n && r == 0; i++) {
		struct sbx s;

		r = sbx_open(c->cli.mount.fd, b->names[i], &s, &c->cli.err);
		if (r < 0)
			break;
		r = guard_net_of(c->guard, s.dir, &c->cli.err);
		if (r == 0 && timeout_ms)
			r = sbx_limit_lifetime(&s, timeout_ms, &c->cli.err);
		sbx_close(&s);
	}
	for (size_t i = 0; i < b->n && r < 0; i++)
		sbx_remove_id(c->cli.mount.fd, b->names[i], &ignored);
	return r;
}

int tool_fork(struct call *c)
{
	const char *id = call_text(c, "snapshot_id");
	struct args *a = &c->cli.args;
	uint64_t n = a->given[OPT_FORKS] ? a->number[OPT_FORKS] : 1;
	const char *words[FORKS_MAX];
	struct fork_batch b = { 0 };
	int r = snapshot_id_check(id, &c->cli.err);

	if (r == 0)
		r = guard_forks(c->guard, n, &c->cli.err);
	if (r == 0)
		r = call_word(c, id);
	if (r < 0)
		return r;
	/* We name them, so that they can be counted before they are there. */
	for (int tries = 0; tries < NAME_TRIES; tries++) {
		r = fork_number(c->cli.mount.fd, id, n, &b, &c->cli.err);
		if (r == 0)
			r = guard_admit(c->guard, c->cli.mount.fd, b.names, b.n, &c->cli.err);
		if (r < 0)
			return r;
		for (size_t i = 0; i < b.n; i++)
			words[i] = b.names[i];
		a->given[OPT_NAMES] = true;
		a->texts[OPT_NAMES] = (struct args_texts){ .v = words, .n = b.n };
		r = call_command(c, cmd_fork, "sandboxes");
		a->texts[OPT_NAMES] = (struct args_texts){ 0 };
		guard_settle(c->guard, b.names, b.n);
		if (r != -EEXIST)
			break;
		r = call_check(c);
		if (r < 0)
			return r;
		r = -EEXIST;
	}
	return r < 0 ? r : restrict_forks(c, &b);
}

int tool_list_snapshots(struct call *c)
{
	return call_command(c, cmd_snapshot_ls, "snapshots");
}

int tool_inspect_snapshot(struct call *c)
{
	int r = call_word(c, call_text(c, "snapshot_id"));

	return r < 0 ? r : call_command(c, cmd_snapshot_inspect, NULL);
}

int tool_delete_snapshot(struct call *c)
{
	const char *id = call_text(c, "snapshot_id");
	int r = call_word(c, id);

	if (r == 0)
		r = call_command(c, cmd_snapshot_rm, NULL);
	json_object_put(c->result);
	c->result = NULL;
	if (r < 0)
		return r;
	c->result = json_object_new_object();
	if (c->result && fields_put(c->result, "snapshot_id", json_object_new_string(id)) == 0 &&
	    fields_put(c->result, "deleted", json_object_new_boolean(true)) == 0)
		return 0;
	return err_set(&c->cli.err, -ENOMEM, "no memory");
}

int tool_diff(struct call *c)
{
	int r = call_word(c, call_text(c, "snapshot_id"));

	return r < 0 ? r : call_command(c, cmd_snapshot_diff, NULL);
}
