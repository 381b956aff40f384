/* SPDX-License-Identifier: Apache-2.0 */
/* run, exec: a command to its end. */
#include <stdio.h>
#include <string.h>

#include "tools/crucible/execute.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/mcp/call.h"

/* "timeout_s" as the flag: 0 and more than the operator's are clamped. */
static void take_timeout(struct call *c, enum opt_id id)
{
	struct json_object *v;
	double s = json_object_object_get_ex(c->in, "timeout_s", &v) ? json_object_get_double(v) : 0;
	uint64_t ms = s >= 1e9 ? 1000000000000u : (uint64_t)(s * 1000.0);

	if (s > 0 && ms == 0)
		ms = 1;
	ms = guard_timeout_ms(c->guard, ms);
	c->cli.args.given[id] = ms != 0;
	c->cli.args.number[id] = ms;
}

static int check_command(struct call *c)
{
	const char *code = call_text(c, "code");
	char **guest = c->cli.args.guest;

	if (code && guest)
		return err_set(&c->cli.err, -EINVAL, "command, code: give one of them");
	if (!code && !guest)
		return err_set(&c->cli.err, -EINVAL, "command: missing (or give code)");
	if (code ? !*code : !guest[0])
		return err_set(&c->cli.err, -EINVAL, "%s: empty", code ? "code" : "command");
	return 0;
}

/* The record, whatever the command's exit code was, is the result. */
static int execute_in(struct call *c, struct sbx *s)
{
	struct json_object *record = NULL;
	const char *code = call_text(c, "code");
	struct execute x = {
		.argv = code ? NULL : (const char *const *)c->cli.args.guest,
		.script = code,
		.text = call_text(c, "stdin"),
		.signals = ATTACH_KILL,
	};
	int r;

	c->cli.answer = &record;
	r = execute(&c->cli, s, &x);
	c->cli.answer = NULL;
	if (r >= 0 && !record)
		return call_ended(c, r);
	c->result = record;
	return r < 0 ? r : 0;
}

int tool_exec(struct call *c)
{
	struct sbx s;
	int r = check_command(c);

	if (r == 0)
		r = open_sandbox(c, &s);
	if (r < 0)
		return r;
	take_timeout(c, OPT_TIMEOUT);
	r = execute_in(c, &s);
	sbx_close(&s);
	return r;
}

int tool_run(struct call *c)
{
	struct err ignored = { 0 };
	uint64_t files, bytes;
	struct sbx s;
	int r = check_command(c);

	if (r == 0)
		r = make_sandbox(c, "run-", true, &s);
	if (r < 0)
		return r;
	take_timeout(c, OPT_TIMEOUT);
	if (c->cli.args.given[OPT_TIMEOUT])
		r = sbx_stretch(&s, c->cli.args.number[OPT_TIMEOUT], &c->cli.err);
	if (r == 0)
		r = write_files(c, &s, &files, &bytes);
	if (r == 0)
		r = call_check(c);
	if (r == 0)
		r = execute_in(c, &s);
	sbx_remove(&s, &ignored); /* letting go of the lease does it too */
	sbx_close(&s);
	return r;
}
