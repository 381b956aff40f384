/* SPDX-License-Identifier: Apache-2.0 */
/* The man page and the completions against the table of subcommands. Runs in the top directory of the sources. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "policy/policy.h"
#include "tools/crucible/command.h"

#define MAN	   "docs/man/crucible.1"
#define POLICY_MAN "docs/man/crucible-policy.5"
#define COMPLETION "tools/crucible/completion/"

static char *slurp(const char *path)
{
	char *text;

	if (fd_slurp(AT_FDCWD, path, 1 << 20, &text, NULL) < 0)
		fail_msg("%s cannot be read", path);
	return text;
}

static const enum opt_id common[] = { OPT_MOUNT, OPT_OUTPUT, OPT_HELP, OPT_END };

/* The part of @text that begins with a line @head (followed by a blank or a newline) and goes to the next one that
 * begins with
 * ".S"; malloc'd. */
static char *section(const char *text, const char *head)
{
	size_t len = strlen(head);

	for (const char *p = text; (p = strstr(p, head)); p += len) {
		const char *end = strstr(p + len, "\n.S");

		if ((p == text || p[-1] == '\n') && (p[len] == ' ' || p[len] == '\n'))
			return end ? strndup(p, (size_t)(end - p)) : strdup(p);
	}
	return NULL;
}

/* Is "Fl -name" there, and not as the beginning of a longer name? */
static bool has_flag(const char *text, const char *name)
{
	char flag[64];
	size_t len = (size_t)snprintf(flag, sizeof(flag), "Fl -%s", name);

	for (const char *p = text; (p = strstr(p, flag)); p += len) {
		if (p[len] == ' ' || p[len] == '\n')
			return true;
	}
	return false;
}

static bool takes(const struct command *c, enum opt_id id)
{
	for (const enum opt_id *o = c->opts; *o != OPT_END; o++) {
		if (*o == id)
			return true;
	}
	return false;
}

static void test_man_page_has_every_command_and_option(void **state)
{
	char *man = slurp(MAN), head[64];

	(void)state;
	for (size_t i = 0; i < ncommands; i++) {
		char *part;

		snprintf(head, sizeof(head), ".Ss %s", commands[i].name);
		part = section(man, head);
		if (!part)
			fail_msg(MAN ": no section \"%s\"", head);
		for (const enum opt_id *id = commands[i].opts; *id != OPT_END; id++) {
			const struct opt *o = &opt_table[*id];
			char item[64];

			snprintf(item, sizeof(item), ".It Fl %c , Fl -%s", o->letter, o->name);
			if (!o->letter)
				snprintf(item, sizeof(item), ".It Fl -%s", o->name);
			if (!has_flag(part, o->name) || !strstr(part, item))
				fail_msg(MAN ": %s: no \"%s\"", commands[i].name, item);
		}
		free(part);
	}
	for (const enum opt_id *id = common; *id != OPT_END; id++)
		assert_true(has_flag(man, opt_table[*id].name));
	for (size_t i = 0; i < ncommand_aliases; i++) {
		snprintf(head, sizeof(head), ".Cm %s\n", command_aliases[i].name);
		assert_non_null(strstr(man, head));
	}
	free(man);
}

/* Each ".It Fl" of a command's section is an option of it. */
static void test_man_page_has_no_more(void **state)
{
	char *man = slurp(MAN);

	(void)state;
	for (size_t i = 0; i < ncommands; i++) {
		char head[64], *part;

		snprintf(head, sizeof(head), ".Ss %s", commands[i].name);
		part = section(man, head);
		assert_non_null(part);
		for (char *p = part; (p = strstr(p, "\n.It Fl ")); p++) {
			char *dash = strstr(p, "Fl -"), name[32];
			bool known = false;

			assert_non_null(dash);
			assert_int_equal(sscanf(dash, "Fl -%31[a-z-]", name), 1);
			for (enum opt_id id = OPT_END + 1; id < OPT_COUNT; id++)
				known = known || (!strcmp(opt_table[id].name, name) && takes(&commands[i], id));
			if (!known)
				fail_msg(MAN ": %s has no option --%s", commands[i].name, name);
		}
		free(part);
	}
	for (char *p = man; (p = strstr(p, "\n.Ss ")); p++) {
		bool known = false;

		for (size_t i = 0; i < ncommands; i++) {
			size_t len = strlen(commands[i].name);

			known = known ||
				(!strncmp(p + 5, commands[i].name, len) && (p[5 + len] == ' ' || p[5 + len] == '\n'));
		}
		if (!known)
			fail_msg(MAN ": \"%.30s\" is no command", p + 5);
	}
	free(man);
}

/* Each field and operation of a policy is an item, and there is no other. */
static void test_policy_page_has_every_field_and_operation(void **state)
{
	static const char *const lists[] = { "operations", "net_allow_max", "allow_profiles", "allow_images" };
	char *man = slurp(POLICY_MAN), item[64];
	size_t fields = 0, ops = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(lists) + POLICY_MAX_COUNT; i++) {
		bool list = i < ARRAY_LEN(lists);

		snprintf(item, sizeof(item), "\n.It Va %s\n",
			 list ? lists[i] : policy_max_name((enum policy_max)(i - ARRAY_LEN(lists))));
		if (!strstr(man, item))
			fail_msg(POLICY_MAN ": no%s", item);
	}
	for (unsigned i = 0; i < POLICY_OP_COUNT; i++) {
		snprintf(item, sizeof(item), "\n.It Cm %s\n", policy_op_name(1u << i));
		if (!strstr(man, item))
			fail_msg(POLICY_MAN ": no%s", item);
	}
	for (const char *p = man; (p = strstr(p, "\n.It Va ")); p++)
		fields++;
	for (const char *p = man; (p = strstr(p, "\n.It Cm ")); p++)
		ops++;
	assert_int_equal(fields, ARRAY_LEN(lists) + POLICY_MAX_COUNT);
	assert_int_equal(ops, POLICY_OP_COUNT);
	free(man);
}

/* The page's example is a policy. */
static void test_policy_page_has_a_good_example(void **state)
{
	char *man = slurp(POLICY_MAN), *part = section(man, ".Bd -literal -offset indent"), *start, *end;
	struct policy *p = NULL;
	struct buf faults;

	(void)state;
	assert_non_null(part);
	start = strchr(part, '{');
	assert_non_null(start);
	end = strstr(start, "\n.Ed");
	assert_non_null(end);
	buf_init(&faults, 4096);
	if (policy_parse(start, (size_t)(end - start), NULL, &p, &faults) < 0)
		fail_msg(POLICY_MAN ": %s", buf_str(&faults));
	policy_unref(p);
	buf_fini(&faults);
	free(part);
	free(man);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What bash offers for "crucible COMMAND --", sorted, a blank behind each. */
static void bash_offers(const char *line, const char *current, struct buf *out)
{
	char command[1024];
	FILE *pipe;
	int c;

	snprintf(command, sizeof(command),
		 "bash -c 'source " COMPLETION
		 "crucible.bash; COMP_WORDS=(crucible %s \"%s\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
		 "_crucible; printf \"%%s\\n\" \"${COMPREPLY[@]}\" | LC_ALL=C sort' 2>&1",
		 line, current);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	while ((c = getc(pipe)) != EOF)
		assert_int_equal(buf_add(out, &(char){ c == '\n' ? ' ' : (char)c }, 1), 0);
	assert_int_equal(pclose(pipe), 0);
}

static void test_bash_completes_every_option(void **state)
{
	(void)state;
	for (size_t i = 0; i < ncommands; i++) {
		const char *names[OPT_COUNT];
		struct buf expected, got;
		size_t n = 0;

		buf_init(&expected, 4096);
		buf_init(&got, 4096);
		for (const enum opt_id *id = commands[i].opts; *id != OPT_END; id++)
			names[n++] = opt_table[*id].name;
		for (const enum opt_id *id = common; *id != OPT_END; id++)
			names[n++] = opt_table[*id].name;
		qsort(names, n, sizeof(*names), by_text);
		for (size_t k = 0; k < n; k++)
			assert_int_equal(buf_addf(&expected, "--%s ", names[k]), 0);
		bash_offers(commands[i].name, "--", &got);
		if (strcmp(buf_str(&got), buf_str(&expected)) != 0)
			fail_msg("%s:\n  offered  %s\n  expected %s", commands[i].name, buf_str(&got),
				 buf_str(&expected));
		buf_fini(&expected);
		buf_fini(&got);
	}
}

static void test_bash_completes_words(void **state)
{
	static const struct {
		const char *line, *current, *offered;
	} cases[] = {
		{ "sandbox", "", "create exec inspect ls rm " },
		{ "profile", "b", "build " },
		{ "policy", "", "show validate " },
		{ "policy validate", "docs/man/crucible-p", "docs/man/crucible-policy.5 " },
		{ "", "da", "daemon " },
		{ "--mount /x", "da", "daemon " },
		{ "logs --source", "", "all exec service " },
		{ "run -o", "", "json table " },
		{ "run --", "--", " " }, /* the guest's command is not ours to complete */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf got;

		buf_init(&got, 4096);
		bash_offers(cases[i].line, cases[i].current, &got);
		assert_string_equal(buf_str(&got), cases[i].offered);
		buf_fini(&got);
	}
}

/* The first words of the commands, for the shells whose files cannot be run here. */
static void assert_mentions(const char *path, const char *before_option)
{
	char *text = slurp(path), part[64];

	for (size_t i = 0; i < ncommands; i++) {
		snprintf(part, sizeof(part), "%.*s", (int)strcspn(commands[i].name, " "), commands[i].name);
		if (!strstr(text, part))
			fail_msg("%s: no \"%s\"", path, part);
		if (strchr(commands[i].name, ' ') && !strstr(text, strchr(commands[i].name, ' ') + 1))
			fail_msg("%s: no \"%s\"", path, commands[i].name);
	}
	for (enum opt_id id = OPT_END + 1; id < OPT_COUNT; id++) {
		snprintf(part, sizeof(part), "%s%s", before_option, opt_table[id].name);
		if (!strstr(text, part))
			fail_msg("%s: no \"%s\"", path, part);
	}
	free(text);
}

static void test_zsh_and_fish_know_every_name(void **state)
{
	(void)state;
	assert_mentions(COMPLETION "_crucible", "--");
	assert_mentions(COMPLETION "crucible.fish", "-l ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_man_page_has_every_command_and_option),
		cmocka_unit_test(test_man_page_has_no_more),
		cmocka_unit_test(test_policy_page_has_every_field_and_operation),
		cmocka_unit_test(test_policy_page_has_a_good_example),
		cmocka_unit_test(test_bash_completes_every_option),
		cmocka_unit_test(test_bash_completes_words),
		cmocka_unit_test(test_zsh_and_fish_know_every_name),
	};

	const char *top = getenv("CRUCIBLE_TOP"); /* the runner's: its tests have folders of their own */

	if (top && chdir(top) < 0) {
		perror(top);
		return 1;
	}
	if (access(MAN, R_OK) < 0) {
		fprintf(stderr, "skipped: not in the top directory of the sources\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
