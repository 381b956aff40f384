/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands. One table (commands.c) says for each what it is called, which options it takes and which function
 * runs it; main.c goes by it, help.c prints it, and the tests compare the man page and the completions with it. */
#ifndef CRUCIBLE_TOOLS_COMMAND_H
#define CRUCIBLE_TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"
#include "base/json.h"
#include "tools/crucible/args.h"
#include "tools/crucible/mount.h"

/* What a running subcommand has. */
struct cli {
	const struct command *cmd;
	struct args args;
	bool json;		     /* -o json */
	struct mount mount;	     /* open for those with COMMAND_MOUNT; else fd -1 */
	struct json_object **answer; /* what -o json prints goes here instead; NULL: to standard output. One value */
	struct err err;		     /* words for a failure, without "crucible: " */
};

/* Returns the exit code (0..255), or -errno with words in c->err: main prints them and exits with 1. -EPIPE: standard
 * output is closed; main ends quietly, as by SIGPIPE. */
typedef int command_fn(struct cli *c);

#define COMMAND_OPTS_MAX 16

struct command {
	const char *name;    /* "run", "sandbox ls" */
	const char *words;   /* for the usage line: what stands besides options; "" for nothing */
	const char *summary; /* one line */
	const char *details; /* what --help says more, or NULL */
	command_fn *run;
	enum {
		COMMAND_MOUNT = 1 << 0, /* needs a daemon */
		COMMAND_GUEST = 1 << 1, /* takes `-- CMD…`, and must have it */
	} flags;
	unsigned min, max;		    /* how many words */
	enum opt_id opts[COMMAND_OPTS_MAX]; /* ended by OPT_END; the common ones are not listed */
};
extern const struct command commands[];
extern const size_t ncommands;

/* Another name for a command: "rm" for "sandbox rm". */
struct command_alias {
	const char *name, *command;
};
extern const struct command_alias command_aliases[];
extern const size_t ncommand_aliases;

/* The command that @argv[0..argc) begins with; *ret_used: how many words its name took. NULL: none. */
const struct command *command_find(int argc, char **argv, int *ret_used);
/* Is @word the first word of two-word commands ("sandbox", "profile")? */
bool command_is_group(const char *word);

/* The words after "crucible ": usage, what it does, its options. To standard output. */
void help_command(const struct command *cmd);
void help_group(const char *group);
void help_all(void);

/* Print one value for -o json: compact, one line; or hand it over as c->answer. Takes @o; NULL is -ENOMEM. Returns 0 or
 * -errno with words. */
int print_json(struct cli *c, struct json_object *o);

command_fn cmd_cp, cmd_daemon, cmd_doctor, cmd_events, cmd_fork, cmd_help, cmd_logs, cmd_mcp_serve, cmd_mount,
	cmd_policy_show, cmd_policy_validate, cmd_profile_build, cmd_profile_ls, cmd_run, cmd_sandbox_create,
	cmd_sandbox_exec, cmd_sandbox_inspect, cmd_sandbox_ls, cmd_sandbox_rm, cmd_setup, cmd_shell,
	cmd_snapshot_create, cmd_snapshot_diff, cmd_snapshot_inspect, cmd_snapshot_ls, cmd_snapshot_rm,
	cmd_snapshot_verify, cmd_stop, cmd_store_gc, cmd_store_stat, cmd_store_verify, cmd_umount, cmd_version;

#endif
