/* SPDX-License-Identifier: Apache-2.0 */
/* crucible help, and --help of each command: made from the same tables as the parsing. */
#include <stdio.h>
#include <string.h>

#include "tools/crucible/command.h"

static void print_option(enum opt_id id)
{
	const struct opt *o = &opt_table[id];
	char left[40];

	snprintf(left, sizeof(left), "%c%c%s --%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ',
		 o->letter ? "," : " ", o->name, o->metavar ? " " : "", o->metavar ? o->metavar : "");
	printf("  %-26s  %s%s%s%s\n", left, o->help, o->choices ? " (" : "", o->choices ? o->choices : "",
	       o->choices ? ")" : "");
}

void help_command(const struct command *cmd)
{
	printf("usage: crucible %s [options]%s%s\n\n%s\n", cmd->name, *cmd->words ? " " : "", cmd->words, cmd->summary);
	if (cmd->details)
		printf("\n%s\n", cmd->details);
	printf("\noptions:\n");
	for (const enum opt_id *id = cmd->opts; *id != OPT_END; id++)
		print_option(*id);
	print_option(OPT_MOUNT);
	print_option(OPT_OUTPUT);
	print_option(OPT_HELP);
}

static void print_summaries(const char *group)
{
	size_t len = group ? strlen(group) : 0;

	for (size_t i = 0; i < ncommands; i++) {
		if (!group || (!strncmp(commands[i].name, group, len) && commands[i].name[len] == ' '))
			printf("  %-16s  %s\n", commands[i].name, commands[i].summary);
	}
}

void help_group(const char *group)
{
	printf("usage: crucible %s COMMAND [options]\n\n", group);
	print_summaries(group);
}

void help_all(void)
{
	printf("usage: crucible [--mount DIR] COMMAND [options]\n\nRuns untrusted code in virtual machines, driven through the files of a mount.\n\n");
	print_summaries(NULL);
	for (size_t i = 0; i < ncommand_aliases; i++)
		printf("  %-16s  the same as %s\n", command_aliases[i].name, command_aliases[i].command);
	printf("\n`crucible COMMAND --help` says more; crucible(1) and cruciblefs(8) say all.\n");
}

/* -o json: the table itself, for programs that offer the commands to somebody. */
static struct json_object *as_json(void)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; list && i < ncommands; i++) {
		struct json_object *o = json_object_new_object();

		if (!o)
			continue;
		json_object_object_add(o, "name", json_object_new_string(commands[i].name));
		json_object_object_add(o, "summary", json_object_new_string(commands[i].summary));
		json_object_array_add(list, o);
	}
	return list;
}

int cmd_help(struct cli *c)
{
	const struct command *cmd;
	int used;

	if (c->json)
		return print_json(c, as_json());
	if (!c->args.nwords) {
		help_all();
		return 0;
	}
	cmd = command_find((int)c->args.nwords, (char **)c->args.words, &used);
	if (cmd)
		help_command(cmd);
	else if (c->args.nwords == 1 && command_is_group(c->args.words[0]))
		help_group(c->args.words[0]);
	else
		return err_set(&c->err, -EINVAL, "there is no command \"%s\"; crucible help lists them",
			       c->args.words[0]);
	return 0;
}
