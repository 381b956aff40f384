/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tools, and what is the same for all of them: arguments are checked by the schema that tools/list shows,
 * then become the flags that a subcommand of the same meaning would have. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/fields.h"
#include "tools/crucible/mcp/call.h"
#include "tools/crucible/mcp/schema.h"
#include "tools/crucible/tree.h"

/* Schemas, with ' for ". */
#define OBJECT(properties, required) \
	"{'type':'object','properties':{" properties "},'required':[" required "],'additionalProperties':false}"
#define GIVES(properties, required) "{'type':'object','properties':{" properties "},'required':[" required "]}"
#define TEXTS			    "{'type':'array','items':{'type':'string'}}"
#define RECORDS			    "{'type':'array','items':{'type':'object'}}"
#define TEXT			    "{'type':'string'}"
#define WHOLE			    "{'type':'integer'}"
#define BOOL			    "{'type':'boolean'}"
#define SECONDS			    "{'type':'number','minimum':0}"
#define COUNT			    "{'type':'integer','minimum':1}"
#define SBX			    "'sandbox_id':" TEXT
#define SNAP			    "'snapshot_id':" TEXT
#define COMMAND			    "'command':{'type':'array','items':{'type':'string'},'description':'argument vector, no shell'}"
#define ENV			    "'env':{'type':'array','items':{'type':'string'},'description':'K=V each'}"
#define NET                                                                                                          \
	"'net_allow':{'type':'array','items':{'type':'string'},'description':'hosts it may reach: name, name:port, " \
	"*.domain, @pypi; none: no network'}"
#define ORIGIN                                                                                                       \
	"'profile':" TEXT                                                                                            \
	",'image':{'type':'string','description':'OCI reference; this version has none yet, give profile'},'pull':{" \
	"'enum':['missing','always','never'],'description':'only with image'}"
#define SIZES "'vcpus':" COUNT ",'memory_mib':" COUNT ",'disk_mib':" COUNT
#define FILES                                                                                             \
	"'files':{'type':'array','items':" OBJECT(                                                        \
		"'path':{'type':'string','description':'absolute'},'content':" TEXT                       \
		",'base64':{'type':'string','description':'instead of content'},'mode':{'type':'string'," \
		"'description':'octal, 0644'}",                                                           \
		"'path'") "}"
#define RECORD                                                                                                \
	GIVES("'exit_code':{'type':'integer','description':'-1: none; see signal, error'},'signal':" TEXT     \
	      ",'error':" TEXT ",'timed_out':" BOOL ",'oom_killed':" BOOL                                     \
	      ",'duration_ms':{'type':'number'},'stdout':" TEXT ",'stderr':" TEXT ",'stdout_truncated':" BOOL \
	      ",'stderr_truncated':" BOOL,                                                                    \
	      "'exit_code','stdout','stderr'")
#define SANDBOX	 GIVES("'id':" TEXT ",'status':" TEXT ",'from':" TEXT, "'id','status'")
#define SNAPSHOT GIVES("'id':" TEXT ",'status':" TEXT ",'source':" TEXT, "'id'")
#define GONE(id) GIVES(id ",'deleted':" BOOL, "'deleted'")

const struct tool tools[] = {
	{ "run",
	  "One command in a fresh virtual machine that is always removed afterwards. (mkdir run/X; hold lease; write cmd; read "
	  "wait; rmdir)",
	  OBJECT(COMMAND
		 ",'code':{'type':'string','description':'instead of command: a script for /bin/sh or its #! line'}," ORIGIN
		 "," ENV "," FILES ",'stdin':" TEXT ",'cwd':" TEXT ",'timeout_s':" SECONDS "," NET "," SIZES,
		 ""),
	  RECORD, TOOL_DESTRUCTIVE | TOOL_GUEST_TEXT, POLICY_CREATE | POLICY_EXEC | POLICY_READ | POLICY_DELETE,
	  tool_run },
	{ "create_sandbox",
	  "A machine that stays until deleted or timeout_s is over; starts at its first use. (mkdir run/NAME; write from, limits/*, "
	  "net/allow, net/ports)",
	  OBJECT("'name':" TEXT "," ORIGIN ",'snapshot':" TEXT "," SIZES ",'timeout_s':" SECONDS "," ENV "," NET
		 ",'publish':{'type':'array','items':{'type':'string'},'description':'[IP:]HOST:GUEST ports'}",
		 ""),
	  SANDBOX, 0, POLICY_CREATE, tool_create },
	{ "exec",
	  "Run a command in a sandbox to its end; several may run at once. (mkdir run/ID/exec/X; write cmd; read wait; rmdir)",
	  OBJECT(SBX "," COMMAND ",'code':{'type':'string','description':'instead of command: a script'},'cwd':" TEXT
		     "," ENV ",'user':" TEXT ",'timeout_s':" SECONDS ",'stdin':" TEXT,
		 "'sandbox_id'"),
	  RECORD, TOOL_DESTRUCTIVE | TOOL_GUEST_TEXT, POLICY_EXEC | POLICY_READ, tool_exec },
	{ "write_files",
	  "Write files into a sandbox; parents are made, existing files replaced. (write run/ID/fs/PATH)",
	  OBJECT(SBX "," FILES, "'sandbox_id','files'"), GIVES("'files':" WHOLE ",'bytes':" WHOLE, "'files','bytes'"),
	  TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT, POLICY_FILES, tool_write_files },
	{ "read_file", "Read one file of a sandbox; base64 is true where it is no text. (read run/ID/fs/PATH)",
	  OBJECT(SBX ",'path':" TEXT
		     ",'max_bytes':{'type':'integer','minimum':0,'maximum':4194304,'description':'1048576'}",
		 "'sandbox_id','path'"),
	  GIVES("'path':" TEXT ",'content':" TEXT ",'bytes':" WHOLE ",'base64':" BOOL ",'truncated':" BOOL,
		"'path','content','bytes','base64','truncated'"),
	  TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_GUEST_TEXT, POLICY_FILES, tool_read_file },
	{ "list_files", "The entries of one directory of a sandbox. (ls run/ID/fs/PATH)",
	  OBJECT(SBX ",'path':" TEXT, "'sandbox_id','path'"),
	  GIVES("'entries':{'type':'array','items':" GIVES("'name':" TEXT ",'type':" TEXT ",'size':" WHOLE
							   ",'mode':" TEXT,
							   "'name','type'") "},'truncated':" BOOL,
		"'entries','truncated'"),
	  TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_GUEST_TEXT, POLICY_FILES, tool_list_files },
	{ "wait_for_text",
	  "Wait until a file of the sandbox, or the output of its latest command, holds a text: for servers that say they are "
	  "ready. (read run/ID/fs/PATH, stdout, stderr or console.log again and again)",
	  OBJECT(SBX ",'path':" TEXT ",'stream':{'enum':['stdout','stderr','console']},'text':" TEXT
		     ",'timeout_s':" SECONDS,
		 "'sandbox_id','text'"),
	  GIVES("'found':" BOOL ",'offset':" WHOLE ",'line':" TEXT, "'found'"),
	  TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_GUEST_TEXT | TOOL_ANY_OP, POLICY_READ | POLICY_FILES,
	  tool_wait_for_text },
	{ "logs",
	  "What happened to a sandbox, also when it is gone; go on with since = next_offset. (read run/ID/log.jsonl, "
	  "logs/by-name/ID)",
	  OBJECT(SBX ",'source':{'enum':['exec','service','all']},'since':{'type':'integer','minimum':0}",
		 "'sandbox_id'"),
	  GIVES("'records':" RECORDS ",'next_offset':" WHOLE, "'records','next_offset'"),
	  TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_GUEST_TEXT, POLICY_READ, tool_logs },
	{ "stop_sandbox", "Power a sandbox off in good order; its disk stays. (write stop into run/ID/ctl)",
	  OBJECT(SBX, "'sandbox_id'"), GIVES(SBX ",'status':" TEXT, "'sandbox_id','status'"),
	  TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT, POLICY_EXEC, tool_stop },
	{ "delete_sandbox", "End a sandbox and remove all of it. (rmdir run/ID)", OBJECT(SBX, "'sandbox_id'"),
	  GONE(SBX), TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT, POLICY_DELETE, tool_delete },
	{ "inspect_sandbox",
	  "Status, limits, usage and origin of a sandbox. (read run/ID/info.json, limits/*, usage.json)",
	  OBJECT(SBX, "'sandbox_id'"), SANDBOX, TOOL_READ_ONLY | TOOL_IDEMPOTENT, POLICY_READ, tool_inspect },
	{ "list_sandboxes", "All sandboxes. (ls run)", OBJECT("", ""), GIVES("'sandboxes':" RECORDS, "'sandboxes'"),
	  TOOL_READ_ONLY | TOOL_IDEMPOTENT, 0, tool_list },
	{ "snapshot",
	  "Freeze memory and disk of a sandbox, which goes on; can be forked at once. (write NAME into run/ID/snapshot)",
	  OBJECT(SBX ",'name':" TEXT, "'sandbox_id'"), SNAPSHOT, 0, POLICY_SNAPSHOT, tool_snapshot },
	{ "fork",
	  "New sandboxes that go on from a snapshot; what ran in it runs on in each. (write into snapshots/ID/fork)",
	  OBJECT(SNAP ",'count':{'type':'integer','minimum':1,'maximum':256}", "'snapshot_id'"),
	  GIVES("'sandboxes':" RECORDS, "'sandboxes'"), 0, POLICY_FORK, tool_fork },
	{ "list_snapshots", "All snapshots. (ls snapshots)", OBJECT("", ""),
	  GIVES("'snapshots':" RECORDS, "'snapshots'"), TOOL_READ_ONLY | TOOL_IDEMPOTENT, 0, tool_list_snapshots },
	{ "inspect_snapshot", "Source, parent, sizes and forks of a snapshot. (read snapshots/ID/info.json)",
	  OBJECT(SNAP, "'snapshot_id'"), SNAPSHOT, TOOL_READ_ONLY | TOOL_IDEMPOTENT, POLICY_READ,
	  tool_inspect_snapshot },
	{ "delete_snapshot", "Remove a snapshot; what grew out of it lives on. (rmdir snapshots/ID)",
	  OBJECT(SNAP, "'snapshot_id'"), GONE(SNAP), TOOL_DESTRUCTIVE | TOOL_IDEMPOTENT, POLICY_DELETE,
	  tool_delete_snapshot },
	{ "diff", "Which files a snapshot has otherwise than its parent. (read snapshots/ID/diff.json)",
	  OBJECT(SNAP, "'snapshot_id'"),
	  GIVES("'added':" TEXTS ",'changed':" TEXTS ",'deleted':" TEXTS, "'added','changed','deleted'"),
	  TOOL_READ_ONLY | TOOL_IDEMPOTENT | TOOL_GUEST_TEXT, POLICY_READ, tool_diff },
	{ "list_profiles", "The root file systems to start from. (ls profiles)", OBJECT("", ""),
	  GIVES("'profiles':" RECORDS, "'profiles'"), TOOL_READ_ONLY | TOOL_IDEMPOTENT, 0, tool_list_profiles },
	{ "list_images", "The OCI images that are here; this version has none yet. (ls images/tags)", OBJECT("", ""),
	  GIVES("'images':" TEXTS, "'images'"), TOOL_READ_ONLY | TOOL_IDEMPOTENT, 0, tool_list_images },
};
const size_t ntools = ARRAY_LEN(tools);

const struct tool *tool_find(const struct guard *g, const char *name)
{
	for (size_t i = 0; i < ntools; i++) {
		if (!strcmp(tools[i].name, name))
			return guard_permits_tool(g, name) ? &tools[i] : NULL;
	}
	return NULL;
}

bool tool_permitted(struct guard *g, const struct tool *t)
{
	bool good = !(t->flags & TOOL_ANY_OP) && guard_permits(g, t->ops);

	for (unsigned op = 1; t->flags & TOOL_ANY_OP && op <= t->ops; op <<= 1)
		good = good || (t->ops & op && guard_permits(g, op));
	return good && guard_permits_tool(g, t->name);
}

static struct json_object *describe(const struct tool *t)
{
	struct json_object *o = json_object_new_object(), *hints = json_object_new_object();
	bool read_only = t->flags & TOOL_READ_ONLY;

	if (!o || !hints || fields_put(hints, "readOnlyHint", json_object_new_boolean(read_only)) < 0 ||
	    fields_put(hints, "destructiveHint", json_object_new_boolean((t->flags & TOOL_DESTRUCTIVE) != 0)) < 0 ||
	    fields_put(hints, "idempotentHint", json_object_new_boolean((t->flags & TOOL_IDEMPOTENT) != 0)) < 0 ||
	    fields_put(o, "name", json_object_new_string(t->name)) < 0 ||
	    fields_put(o, "description", json_object_new_string(t->description)) < 0 ||
	    fields_put(o, "inputSchema", schema_parse(t->input)) < 0 ||
	    fields_put(o, "outputSchema", schema_parse(t->output)) < 0 ||
	    fields_put(o, "annotations", json_object_get(hints)) < 0) {
		json_object_put(o);
		o = NULL;
	}
	json_object_put(hints);
	return o;
}

struct json_object *tools_list(struct guard *g)
{
	struct json_object *all = json_object_new_object(), *list = json_object_new_array();
	bool good = all && list;

	for (size_t i = 0; good && i < ntools; i++) {
		struct json_object *o = NULL;

		if (!tool_permitted(g, &tools[i]))
			continue;
		o = describe(&tools[i]);
		good = o && json_object_array_add(list, o) == 0;
		if (!good)
			json_object_put(o);
	}
	good = good && fields_put(all, "tools", json_object_get(list)) == 0;
	json_object_put(list);
	if (good)
		return all;
	json_object_put(all);
	return NULL;
}

/* -- arguments as flags ---------------------------------------------------------------------------------------- */

static int add_text(struct args_texts *l, struct json_object *v)
{
	const char **grown = reallocarray(l->v, l->n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	l->v = grown;
	l->v[l->n++] = json_object_get_string(v);
	return 0;
}

static int take_command(struct args *a, struct json_object *list)
{
	size_t n = json_object_array_length(list);

	a->guest = calloc(n + 1, sizeof(*a->guest)); /* freed by finish() */
	for (size_t i = 0; a->guest && i < n; i++)
		a->guest[i] = (char *)json_object_get_string(json_object_array_get_idx(list, i));
	return a->guest ? 0 : -ENOMEM;
}

static const struct {
	const char *key;
	enum opt_id id;
} flags[] = {
	{ "name", OPT_NAME },
	{ "profile", OPT_PROFILE },
	{ "snapshot", OPT_SNAPSHOT },
	{ "vcpus", OPT_VCPUS },
	{ "memory_mib", OPT_MEMORY },
	{ "disk_mib", OPT_DISK },
	{ "net_allow", OPT_NET_ALLOW },
	{ "publish", OPT_PUBLISH },
	{ "env", OPT_ENV },
	{ "cwd", OPT_CWD },
	{ "user", OPT_USER },
	{ "count", OPT_FORKS },
	{ "source", OPT_SOURCE },
};

/* Every argument whose name is that of a flag. The schema has seen to its type. */
static int take_flags(struct call *c)
{
	struct args *a = &c->cli.args;
	struct json_object *v;
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(flags) && r == 0; i++) {
		enum opt_id id = flags[i].id;

		if (!json_object_object_get_ex(c->in, flags[i].key, &v))
			continue;
		a->given[id] = true;
		if (json_object_is_type(v, json_type_string))
			a->text[id] = json_object_get_string(v);
		else if (json_object_is_type(v, json_type_int))
			a->number[id] = json_object_get_uint64(v);
		else
			for (size_t k = 0; k < json_object_array_length(v) && r == 0; k++)
				r = add_text(&a->texts[id], json_object_array_get_idx(v, k));
	}
	if (r == 0 && json_object_object_get_ex(c->in, "command", &v))
		r = take_command(a, v);
	return r < 0 ? err_set(&c->cli.err, r, "no memory") : 0;
}

/* What a subcommand would say of "--net-allow: …" is said of the argument. */
static void name_argument(struct err *e)
{
	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		const char *name = opt_table[flags[i].id].name;
		size_t len = strlen(name);
		struct err old = *e;

		if (strncmp(old.msg, "--", 2) != 0 || strncmp(old.msg + 2, name, len) != 0 || old.msg[2 + len] != ':')
			continue;
		err_set(e, old.code, "%s%s", flags[i].key, old.msg + 2 + len);
		return;
	}
}

/* A flag is one text, and an argument one of a list: which, only we can say. */
static int check_env(struct call *c)
{
	const struct args_texts *env = &c->cli.args.texts[OPT_ENV];

	for (size_t i = 0; i < env->n; i++) {
		const char *eq = strchr(env->v[i], '=');

		if (!eq || eq == env->v[i])
			return err_set(&c->cli.err, -EINVAL, "env[%zu]: \"%s\" is not KEY=VALUE", i, env->v[i]);
	}
	return 0;
}

/* -- one call -------------------------------------------------------------------------------------------------- */

int call_check(struct call *c)
{
	return atomic_load(&c->cancelled) ? err_set(&c->cli.err, -ECANCELED, "cancelled") : 0;
}

int call_ended(struct call *c, int code)
{
	int signo = code - 128;

	if (signo > 0 && signo < 64 && signo != SIGUSR1)
		kill(getpid(), signo); /* the server's own: we were the first to read it */
	return err_set(&c->cli.err, -ECANCELED, "cancelled");
}

const char *call_text(struct call *c, const char *key)
{
	return fields_text(c->in, key);
}

int call_word(struct call *c, const char *word)
{
	struct args *a = &c->cli.args;
	const char **grown = reallocarray(a->words, a->nwords + 1, sizeof(*grown));

	if (!grown)
		return err_set(&c->cli.err, -ENOMEM, "no memory");
	a->words = grown;
	a->words[a->nwords++] = word;
	return 0;
}

int call_command(struct call *c, command_fn *fn, const char *key)
{
	struct json_object *answer = NULL;
	int r;

	c->cli.answer = &answer;
	r = fn(&c->cli);
	c->cli.answer = NULL;
	if (r >= 0 && !answer)
		r = err_set(&c->cli.err, -EIO, "there is no answer");
	if (r < 0) {
		json_object_put(answer);
		return r;
	}
	if (!key) {
		c->result = answer;
		return 0;
	}
	c->result = json_object_new_object();
	if (!c->result)
		json_object_put(answer);
	return c->result && fields_put(c->result, key, answer) == 0 ? 0 : err_set(&c->cli.err, -ENOMEM, "no memory");
}

static int check_arguments(struct call *c)
{
	AUTO_JSON *schema = schema_parse(c->tool->input);
	struct json_object *properties;

	if (!schema)
		return err_set(&c->cli.err, -ENOMEM, "no memory");
	/* Many begin with a line for a shell. */
	if (fields_text(c->in, "command") && json_object_object_get_ex(schema, "properties", &properties) &&
	    json_object_object_get_ex(properties, "command", NULL))
		return err_set(&c->cli.err, -EINVAL,
			       "command: must be a list: give [\"sh\",\"-c\",\"…\"], or code with the text");
	return schema_check(schema, c->in, &c->cli.err);
}

/* Is there such a tool, by the newest policy that can be had? @r: of opening the mount. */
static bool is_listed(struct call *c, int r)
{
	if (r == 0 && (!guard_knows(c->guard) || !tool_permitted(c->guard, c->tool)))
		guard_refresh(c->guard, c->cli.mount.fd);
	return tool_permitted(c->guard, c->tool);
}

/* What a refusal means: the policy may be another one than we know, or the view is no longer there. */
static int judge(struct call *c, int r)
{
	char word[64];

	if (r == -EPERM || r == -EDQUOT) {
		guard_refresh(c->guard, c->cli.mount.fd);
		if (!tool_permitted(c->guard, c->tool))
			return err_set(&c->cli.err, r, "%s: the policy of this mount does not permit it any more",
				       c->tool->name);
	}
	/* Everything of a view that has ended answers so, but one sandbox that was removed does, too. */
	if (r < 0 && tree_word(c->cli.mount.fd, "version", word, sizeof(word)) == -ESTALE) {
		mount_close(&c->cli.mount);
		return mount_open(c->mount, &c->cli.mount, &c->cli.err) < 0 ? c->cli.err.code : r;
	}
	return r;
}

int tool_call(struct call *c)
{
	struct err no_mount = { 0 };
	int opened, r = call_check(c);

	opened = r < 0 ? r : mount_open(c->mount, &c->cli.mount, &no_mount);
	c->unlisted = !is_listed(c, opened);
	if (c->unlisted)
		r = err_set(&c->cli.err, -EPERM, "there is no tool \"%s\"", c->tool->name);
	if (r == 0)
		r = check_arguments(c); /* what is wrong with them is told without a daemon, too */
	if (r == 0 && opened < 0) {
		c->cli.err = no_mount;
		r = opened;
	}
	if (r == 0)
		r = take_flags(c);
	if (r == 0)
		r = check_env(c);
	if (r == 0)
		r = judge(c, c->tool->run(c));
	if (r < 0)
		name_argument(&c->cli.err);
	mount_close(&c->cli.mount);
	free(c->cli.args.guest);
	args_fini(&c->cli.args);
	return r;
}
