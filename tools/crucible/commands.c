/* SPDX-License-Identifier: Apache-2.0 */
/* The table of subcommands. A new one is a line here, a file beside this one, and a section of crucible(1). */
#include "tools/crucible/command.h"

#include <stdio.h>
#include <string.h>

#include "base/fd.h"

#define EXEC_OPTS OPT_TIMEOUT, OPT_ENV, OPT_CWD, OPT_USER, OPT_INTERACTIVE, OPT_TTY
#define MAKE_OPTS OPT_PROFILE, OPT_FROM, OPT_SNAPSHOT, OPT_VCPUS, OPT_MEMORY, OPT_DISK, OPT_NET_ALLOW, OPT_PUBLISH

const struct command commands[] = {
	{
		.name = "daemon",
		.words = "",
		.summary = "run the daemon in the foreground (as root)",
		.details =
			"Becomes crucibled, see cruciblefs(8). Without --mount and --store it takes what crucible.conf(5) says.",
		.run = cmd_daemon,
		.opts = { OPT_STORE, OPT_CONFIG, OPT_LOG_LEVEL, OPT_SET },
	},
	{
		.name = "run",
		.words = "-- CMD [ARG…]",
		.summary = "run one command in a sandbox of its own, then remove it",
		.details =
			"Output is passed on while it is printed; standard input is the command's unless it is a terminal (then\n"
			"with -i). The sandbox goes when the command ends, at Ctrl-C, and also when this program is killed.\n"
			"Exit code: the command's; 128+N when it died by signal N; 124 when its time was up; 1 for a failure of\n"
			"crucible itself, with words on standard error.",
		.run = cmd_run,
		.flags = COMMAND_MOUNT | COMMAND_GUEST,
		.opts = { MAKE_OPTS, EXEC_OPTS, OPT_KEEP },
	},
	{
		.name = "sandbox create",
		.words = "",
		.summary = "make a sandbox that stays; print its id",
		.details = "It starts with its first command, or by `echo start > run/ID/ctl`.",
		.run = cmd_sandbox_create,
		.flags = COMMAND_MOUNT,
		.opts = { OPT_NAME, MAKE_OPTS, OPT_LIFETIME, OPT_ENV },
	},
	{
		.name = "sandbox ls",
		.words = "",
		.summary = "list sandboxes",
		.run = cmd_sandbox_ls,
		.flags = COMMAND_MOUNT,
	},
	{
		.name = "sandbox inspect",
		.words = "ID",
		.summary = "show all that is known of a sandbox",
		.run = cmd_sandbox_inspect,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 1,
	},
	{
		.name = "sandbox exec",
		.words = "ID -- CMD [ARG…]",
		.summary = "run a command in a sandbox, beside its other ones",
		.details =
			"Without -i the command reads end of file. With -t it has a terminal, and its bytes reach yours as they\n"
			"are; `~.` at the beginning of a line leaves. The first Ctrl-C is passed on as SIGINT, the second kills.\n"
			"Exit codes as of `crucible run`.",
		.run = cmd_sandbox_exec,
		.flags = COMMAND_MOUNT | COMMAND_GUEST,
		.min = 1,
		.max = 1,
		.opts = { EXEC_OPTS },
	},
	{
		.name = "sandbox rm",
		.words = "ID…",
		.summary = "remove sandboxes and what runs in them",
		.run = cmd_sandbox_rm,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = ~0u,
		.opts = { OPT_FORCE },
	},
	{
		.name = "stop",
		.words = "ID…",
		.summary = "stop sandboxes in good order; their disks stay",
		.details =
			"Commands get SIGTERM, then the guest powers off; a guest that does not is killed after 10 s. The next\n"
			"command boots it again.",
		.run = cmd_stop,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = ~0u,
	},
	{
		.name = "shell",
		.words = "ID",
		.summary = "an interactive shell in a sandbox",
		.details =
			"/bin/bash, or /bin/sh where there is none. The guest's bytes reach your terminal as they are. `~.` at\n"
			"the beginning of a line leaves a shell that does not answer.",
		.run = cmd_shell,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 1,
		.opts = { OPT_SHELL, OPT_ENV, OPT_CWD, OPT_USER },
	},
	{
		.name = "cp",
		.words = "SRC DST",
		.summary = "copy a file or directory into a sandbox, or out of it",
		.details =
			"One of the two is ID:/path. Into a directory that exists the source's name is kept. Out of a guest come\n"
			"files, directories, and symbolic links that stay inside of what is copied.",
		.run = cmd_cp,
		.flags = COMMAND_MOUNT,
		.min = 2,
		.max = 2,
	},
	{
		.name = "snapshot create",
		.words = "SANDBOX [NAME]",
		.summary = "freeze a sandbox's memory and disk; print the snapshot's name",
		.details =
			"The sandbox pauses for some milliseconds and goes on. The snapshot can be forked at once; behind it is\n"
			"stored, and then its status is `ready`.",
		.run = cmd_snapshot_create,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 2,
		.opts = { OPT_WAIT },
	},
	{
		.name = "snapshot ls",
		.words = "",
		.summary = "list snapshots",
		.run = cmd_snapshot_ls,
		.flags = COMMAND_MOUNT,
		.opts = { OPT_TREE },
	},
	{
		.name = "snapshot inspect",
		.words = "ID",
		.summary = "show all that is known of a snapshot",
		.run = cmd_snapshot_inspect,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 1,
	},
	{
		.name = "snapshot diff",
		.words = "ID",
		.summary = "list the files that it has otherwise than its parent",
		.details =
			"A line each: A for added, M for changed, D for deleted. The first time they are compared, which takes a while.",
		.run = cmd_snapshot_diff,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 1,
	},
	{
		.name = "snapshot verify",
		.words = "ID",
		.summary = "read and check every page of it",
		.run = cmd_snapshot_verify,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 1,
	},
	{
		.name = "snapshot rm",
		.words = "ID…",
		.summary = "remove snapshots; what grew out of them lives on",
		.run = cmd_snapshot_rm,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = ~0u,
		.opts = { OPT_FORCE },
	},
	{
		.name = "fork",
		.words = "SNAPSHOT",
		.summary = "make sandboxes that go on from a snapshot; print their ids",
		.details =
			"All of them are made, or none. They answer when this returns. What ran in the snapshot runs on in each,\n"
			"with entropy, machine-id, host name and clock of its own.",
		.run = cmd_fork,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 1,
		.opts = { OPT_FORKS, OPT_NAMES, OPT_DISK_ONLY },
	},
	{
		.name = "store stat",
		.words = "",
		.summary = "what the store of snapshots holds",
		.run = cmd_store_stat,
		.flags = COMMAND_MOUNT,
	},
	{
		.name = "store verify",
		.words = "",
		.summary = "read and check everything in the store (as root)",
		.run = cmd_store_verify,
		.flags = COMMAND_MOUNT,
	},
	{
		.name = "store gc",
		.words = "",
		.summary = "give back what no snapshot needs (as root)",
		.run = cmd_store_gc,
		.flags = COMMAND_MOUNT,
	},
	{
		.name = "logs",
		.words = "ID",
		.summary = "what happened to a sandbox; also when it is gone",
		.details = "ID is a name or a uuid. Of several sandboxes that had the name it is the last one.",
		.run = cmd_logs,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 1,
		.opts = { OPT_FOLLOW, OPT_SOURCE },
	},
	{
		.name = "events",
		.words = "",
		.summary = "what happened, all sandboxes together",
		.run = cmd_events,
		.flags = COMMAND_MOUNT,
		.opts = { OPT_FOLLOW, OPT_SINCE },
	},
	{
		.name = "mcp serve",
		.words = "",
		.summary = "serve the tree to an agent's program: MCP on standard input and output",
		.details =
			"Each tool is a few file operations on the mount, done as the caller. The options are limits that the agent\n"
			"cannot widen. It ends with its input; what runs then is cancelled.",
		.run = cmd_mcp_serve,
		.opts = { OPT_DEFAULT_PROFILE, OPT_ALLOW_PROFILES, OPT_NET_ALLOW_MAX, OPT_MAX_SANDBOXES, OPT_MAX_FORK,
			  OPT_MAX_TIMEOUT, OPT_TOOLS, OPT_DENY_TOOLS },
	},
	{
		.name = "mount",
		.words = "DIR",
		.summary = "make a view of the tree and mount it for an agent; print its name (as root)",
		.details =
			"Whoever reaches DIR, an empty directory, may do there what the policy permits, until the ttl is over, and sees\n"
			"nothing but what was made through the view. Without --policy the view --name, which is there, is mounted\n"
			"(once more): a daemon that was started anew has a new mount, and mounts of the old one are dead.",
		.run = cmd_mount,
		.flags = COMMAND_MOUNT,
		.min = 1,
		.max = 1,
		.opts = { OPT_POLICY, OPT_TTL, OPT_VIEW_NAME, OPT_OWNER },
	},
	{
		.name = "umount",
		.words = "DIR",
		.summary = "take a view's mount away, and the view with all that was made through it (as root)",
		.run = cmd_umount,
		.min = 1,
		.max = 1,
		.opts = { OPT_KEEP_VIEW },
	},
	{
		.name = "setup",
		.words = "",
		.summary = "say how an agent's program is told of `mcp serve`",
		.details =
			"First a command is run in a sandbox. Then the block for each program's own file is printed, or with --write\n"
			"merged into it: for Claude Code and VS Code into that of the current directory, else into the user's. The\n"
			"last line is `ready`, `degraded` or `not ready` (exit code 1).",
		.run = cmd_setup,
		.opts = { OPT_CLIENT, OPT_WRITE },
	},
	{
		.name = "policy validate",
		.words = "FILE|-",
		.summary = "check a policy, and print it in its one form",
		.details =
			"Of a policy with faults all are told, a line each, and the exit code is 1. Needs no daemon.",
		.run = cmd_policy_validate,
		.min = 1,
		.max = 1,
	},
	{
		.name = "policy show",
		.words = "",
		.summary = "what you may do through this mount",
		.run = cmd_policy_show,
		.flags = COMMAND_MOUNT,
	},
	{
		.name = "profile ls",
		.words = "",
		.summary = "list the root file systems to start from",
		.run = cmd_profile_ls,
		.flags = COMMAND_MOUNT,
	},
	{
		.name = "profile build",
		.words = "NAME",
		.summary = "build a profile into the store (as root)",
		.details =
			"NAME.profile is looked for in --profiles, /etc/crucible/profiles and among those that come with crucible.\n"
			"Without --store it goes to the store of the running daemon.",
		.run = cmd_profile_build,
		.min = 1,
		.max = 1,
		.opts = { OPT_STORE, OPT_RECIPES, OPT_IMAGE_SIZE, OPT_REBUILD, OPT_VERBOSE },
	},
	{
		.name = "doctor",
		.words = "",
		.summary = "say what this host can do, and the commands that mend it",
		.details = "Exit code 0 when sandboxes can run here. Needs no daemon, but --deep does.",
		.run = cmd_doctor,
		.opts = { OPT_JSON, OPT_DEEP, OPT_STORE },
	},
	{
		.name = "version",
		.words = "",
		.summary = "print the version, and the daemon's",
		.run = cmd_version,
	},
	{
		.name = "help",
		.words = "[COMMAND]",
		.summary = "say how a command is used",
		.run = cmd_help,
		.max = 2,
	},
};
const size_t ncommands = ARRAY_LEN(commands);

const struct command_alias command_aliases[] = {
	{ "rm", "sandbox rm" },
	{ "delete", "sandbox rm" },
};
const size_t ncommand_aliases = ARRAY_LEN(command_aliases);

static const struct command *by_name(const char *name, size_t len)
{
	for (size_t i = 0; i < ncommands; i++) {
		if (strlen(commands[i].name) == len && !memcmp(commands[i].name, name, len))
			return &commands[i];
	}
	return NULL;
}

bool command_is_group(const char *word)
{
	size_t len = strlen(word);

	for (size_t i = 0; i < ncommands; i++) {
		if (!strncmp(commands[i].name, word, len) && commands[i].name[len] == ' ')
			return true;
	}
	return false;
}

const struct command *command_find(int argc, char **argv, int *ret_used)
{
	char two[64];
	const struct command *cmd = NULL;

	if (argc < 1)
		return NULL;
	*ret_used = 1;
	for (size_t i = 0; i < ncommand_aliases; i++) {
		if (!strcmp(argv[0], command_aliases[i].name))
			return by_name(command_aliases[i].command, strlen(command_aliases[i].command));
	}
	if (!strchr(argv[0], ' '))
		cmd = by_name(argv[0], strlen(argv[0]));
	if (cmd || argc < 2 || (size_t)snprintf(two, sizeof(two), "%s %s", argv[0], argv[1]) >= sizeof(two))
		return cmd;
	*ret_used = 2;
	return by_name(two, strlen(two));
}
