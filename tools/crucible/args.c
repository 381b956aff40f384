/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/args.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

const struct opt opt_table[OPT_COUNT] = {
	[OPT_MOUNT] = { OPT_TEXT, 0, "mount", "DIR", NULL, "the mount (else CRUCIBLE_MOUNT, else /crucible)" },
	[OPT_OUTPUT] = { OPT_CHOICE, 'o', "output", "FORMAT", "table json", "table for people, json for programs" },
	[OPT_HELP] = { OPT_SWITCH, 'h', "help", NULL, NULL, "say how this command is used" },
	[OPT_PROFILE] = { OPT_TEXT, 0, "profile", "NAME", NULL, "the root file system to start from" },
	[OPT_FROM] = { OPT_TEXT, 0, "from", "ORIGIN", NULL,
		       "the origin as the file `from` takes it: profile:NAME, snapshot:ID" },
	[OPT_SNAPSHOT] = { OPT_TEXT, 0, "snapshot", "ID", NULL, "go on from a snapshot" },
	[OPT_VCPUS] = { OPT_NUMBER, 0, "vcpus", "N", NULL, "virtual CPUs" },
	[OPT_MEMORY] = { OPT_SIZE, 0, "memory", "SIZE", NULL, "memory: MiB, or with M or G behind it" },
	[OPT_DISK] = { OPT_SIZE, 0, "disk", "SIZE", NULL, "size of the root disk: MiB, or with M or G behind it" },
	[OPT_NET_ALLOW] = { OPT_TEXTS, 0, "net-allow", "HOST[:PORT]", NULL,
			    "what it may reach: a host, *.DOMAIN, a preset as @pypi; may be repeated" },
	[OPT_PUBLISH] = { OPT_TEXTS, 'p', "publish", "[IP:]HOST:GUEST", NULL,
			  "let a port of this host lead to one of the sandbox; may be repeated" },
	[OPT_LIFETIME] = { OPT_SECONDS, 0, "timeout", "TIME", NULL,
			   "remove the sandbox after this time: 90, 90s, 5m, 2h, 1d" },
	[OPT_NAME] = { OPT_TEXT, 0, "name", "ID", NULL, "the new sandbox's name (else one is made up)" },
	[OPT_KEEP] = { OPT_SWITCH, 0, "keep", NULL, NULL, "keep the sandbox, say its name on standard error" },
	[OPT_TREE] = { OPT_SWITCH, 0, "tree", NULL, NULL, "by what grew out of what, with profiles and sandboxes" },
	[OPT_WAIT] = { OPT_SWITCH, 0, "wait", NULL, NULL, "return when it is stored, not when it can be forked" },
	[OPT_FORKS] = { OPT_NUMBER, 0, "count", "N", NULL, "how many, called SNAPSHOT-1, SNAPSHOT-2 … (else one)" },
	[OPT_NAMES] = { OPT_TEXTS, 0, "name", "ID", NULL, "the fork's name; may be repeated, for one fork each" },
	[OPT_DISK_ONLY] = { OPT_SWITCH, 0, "disk-only", NULL, NULL,
			    "boot the snapshot's disk: without its memory, nothing that ran goes on" },
	[OPT_TIMEOUT] = { OPT_SECONDS, 0, "timeout", "TIME", NULL,
			  "kill the command after this time (exit code 124): 1.5, 30s, 5m" },
	[OPT_ENV] = { OPT_TEXTS, 'e', "env", "KEY=VALUE", NULL, "set a variable for the command; may be repeated" },
	[OPT_CWD] = { OPT_TEXT, 'w', "cwd", "DIR", NULL, "where in the guest the command starts" },
	[OPT_USER] = { OPT_TEXT, 'u', "user", "NAME", NULL, "who in the guest runs it: user or user:group" },
	[OPT_INTERACTIVE] = { OPT_SWITCH, 'i', "interactive", NULL, NULL, "pass standard input to the command" },
	[OPT_TTY] = { OPT_SWITCH, 't', "tty", NULL, NULL, "give the command a terminal" },
	[OPT_SHELL] = { OPT_TEXT, 0, "shell", "PATH", NULL, "the shell to run (else /bin/bash, else /bin/sh)" },
	[OPT_FOLLOW] = { OPT_SWITCH, 'f', "follow", NULL, NULL, "go on with what is added" },
	[OPT_SOURCE] = { OPT_CHOICE, 0, "source", "WHAT", "exec service all",
			 "records of commands, of the sandbox itself, or all" },
	[OPT_SINCE] = { OPT_NUMBER, 0, "since", "N", NULL, "only events with a number above N" },
	[OPT_FORCE] = { OPT_SWITCH, 'f', "force", NULL, NULL, "one that is not there is no error" },
	[OPT_JSON] = { OPT_SWITCH, 0, "json", NULL, NULL, "the same as -o json" },
	[OPT_DEEP] = { OPT_SWITCH, 0, "deep", NULL, NULL, "also boot a sandbox and run a command in it" },
	[OPT_STORE] = { OPT_TEXT, 0, "store", "DIR", NULL, "where disks, profiles and logs are kept" },
	[OPT_CONFIG] = { OPT_TEXT, 0, "config", "FILE", NULL, "the configuration, crucible.conf(5)" },
	[OPT_SET] = { OPT_TEXTS, 0, "set", "KEY=VALUE", NULL,
		      "a setting of crucible.conf(5), above the file; may be repeated" },
	[OPT_RECIPES] = { OPT_TEXT, 0, "profiles", "DIR", NULL, "look for NAME.profile there first" },
	[OPT_IMAGE_SIZE] = { OPT_SIZE, 0, "size", "SIZE", NULL, "size of the image: MiB, or with M or G behind it" },
	[OPT_REBUILD] = { OPT_SWITCH, 'f', "force", NULL, NULL, "build although all is up to date" },
	[OPT_VERBOSE] = { OPT_SWITCH, 'v', "verbose", NULL, NULL, "show what the tools print" },
	[OPT_DEFAULT_PROFILE] = { OPT_TEXT, 0, "default-profile", "NAME", NULL,
				  "what a sandbox starts from when the agent names nothing" },
	[OPT_ALLOW_PROFILES] = { OPT_TEXT, 0, "allow-profiles", "A,B", NULL, "only these profiles, no images" },
	[OPT_NET_ALLOW_MAX] = { OPT_TEXT, 0, "net-allow-max", "HOST,…", NULL,
				"the most that a sandbox may reach; empty: nothing" },
	[OPT_MAX_SANDBOXES] = { OPT_NUMBER, 0, "max-sandboxes", "N", NULL, "sandboxes of this user at once" },
	[OPT_MAX_FORK] = { OPT_NUMBER, 0, "max-fork", "N", NULL, "forks of one call" },
	[OPT_MAX_TIMEOUT] = { OPT_SECONDS, 0, "max-timeout", "TIME", NULL,
			      "the longest time of a command, a wait, a sandbox; more is cut to it" },
	[OPT_TOOLS] = { OPT_TEXT, 0, "tools", "A,B", NULL, "only these tools" },
	[OPT_DENY_TOOLS] = { OPT_TEXT, 0, "deny-tools", "A,B", NULL, "not these tools" },
	[OPT_CLIENT] = { OPT_CHOICE, 0, "client", "NAME", "claude claude-desktop cursor vscode zed",
			 "only for this program" },
	[OPT_WRITE] = { OPT_SWITCH, 0, "write", NULL, NULL, "merge it into the program's file, and keep a backup" },
	[OPT_POLICY] = { OPT_TEXT, 0, "policy", "FILE|-", NULL,
			 "make a view of what this policy permits; -: standard input" },
	[OPT_TTL] = { OPT_SECONDS, 0, "ttl", "TIME", NULL, "the view ends after this time: 90, 90s, 5m, 24h, 7d" },
	[OPT_VIEW_NAME] = { OPT_TEXT, 0, "name", "NAME", NULL, "the view's name; without --policy one that is there" },
	[OPT_OWNER] = { OPT_TEXT, 0, "owner", "UID[:GID]", NULL, "whose the directory views/NAME is" },
	[OPT_KEEP_VIEW] = { OPT_SWITCH, 0, "keep", NULL, NULL, "take only the mount away; the view stays" },
	[OPT_LOG_LEVEL] = { OPT_CHOICE, 0, "log-level", "LEVEL", "err warn info debug", "how much the daemon says" },
};

static const enum opt_id common_opts[] = { OPT_MOUNT, OPT_OUTPUT, OPT_HELP, OPT_END };

void args_init(struct args *a)
{
	memset(a, 0, sizeof(*a));
}

void args_fini(struct args *a)
{
	for (size_t i = 0; i < OPT_COUNT; i++)
		free(a->texts[i].v);
	free(a->words);
	args_init(a);
}

static int list_add(const char ***v, size_t *n, const char *text)
{
	const char **grown = reallocarray(*v, *n + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	grown[(*n)++] = text;
	*v = grown;
	return 0;
}

/* A whole number, digits only, at most @max. Returns what follows it, or NULL. */
static const char *read_number(const char *text, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (!isdigit((unsigned char)*text))
		return NULL;
	for (; isdigit((unsigned char)*text); text++) {
		if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v) ||
		    v > max)
			return NULL;
	}
	*ret = v;
	return text;
}

int args_size(const char *text, uint64_t *ret_mib)
{
	uint64_t v;
	const char *p = read_number(text, UINT32_MAX, &v);

	if (!p)
		return -EINVAL;
	if (*p == 'M' || *p == 'm') {
		p++;
	} else if (*p == 'G' || *p == 'g') {
		v *= 1024;
		p++;
	}
	if (p > text && !strcasecmp(p, "iB")) /* "512MiB" */
		p += 2;
	if (*p || v == 0)
		return -EINVAL;
	*ret_mib = v;
	return 0;
}

int args_seconds(const char *text, uint64_t *ret_ms)
{
	static const struct {
		const char *suffix;
		uint64_t ms;
	} units[] = { { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
	uint64_t whole, thousandths = 0, ms;
	const char *p = read_number(text, UINT32_MAX, &whole);

	if (!p)
		return -EINVAL;
	if (*p == '.') {
		uint64_t place = 100;

		if (!isdigit((unsigned char)*++p))
			return -EINVAL;
		for (; isdigit((unsigned char)*p); p++, place /= 10)
			thousandths += place * (uint64_t)(*p - '0');
	}
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (strcmp(p, units[i].suffix) != 0)
			continue;
		ms = whole * units[i].ms + thousandths * units[i].ms / 1000;
		if (ms == 0)
			return -EINVAL;
		*ret_ms = ms;
		return 0;
	}
	return -EINVAL;
}

static bool is_choice(const char *choices, const char *word)
{
	size_t n = strcspn(word, " ");

	if (word[n])
		return false;
	for (const char *p = choices; n && (p = strstr(p, word)); p += n) {
		if ((p == choices || p[-1] == ' ') && (p[n] == '\0' || p[n] == ' '))
			return true;
	}
	return false;
}

static int set_value(struct args *a, enum opt_id id, const char *value, struct err *e)
{
	const struct opt *o = &opt_table[id];
	const char *end;
	int r = 0;

	switch (o->kind) {
	case OPT_SWITCH:
	case OPT_TEXT:
		break;
	case OPT_TEXTS:
		r = list_add(&a->texts[id].v, &a->texts[id].n, value);
		if (r < 0)
			return err_set(e, r, "no memory");
		break;
	case OPT_CHOICE:
		if (!is_choice(o->choices, value))
			return err_set(e, -EINVAL, "--%s: \"%s\" is none of: %s", o->name, value, o->choices);
		break;
	case OPT_NUMBER:
		end = read_number(value, UINT64_MAX, &a->number[id]);
		if (!end || *end)
			return err_set(e, -EINVAL, "--%s: \"%s\" is not a whole number", o->name, value);
		break;
	case OPT_SIZE:
		if (args_size(value, &a->number[id]) < 0)
			return err_set(e, -EINVAL, "--%s: \"%s\" is not a size; write 512 (MiB), 512M or 2G", o->name,
				       value);
		break;
	case OPT_SECONDS:
		if (args_seconds(value, &a->number[id]) < 0)
			return err_set(e, -EINVAL,
				       "--%s: \"%s\" is not a time above zero; write 90, 1.5, 90s, 5m, 2h or 7d",
				       o->name, value);
		break;
	}
	a->given[id] = true;
	a->text[id] = value;
	return 0;
}

static enum opt_id find_in(const enum opt_id *opts, const char *name, size_t len, char letter)
{
	for (; *opts != OPT_END; opts++) {
		const struct opt *o = &opt_table[*opts];

		if (letter ? o->letter == letter : strlen(o->name) == len && !memcmp(o->name, name, len))
			return *opts;
	}
	return OPT_END;
}

static enum opt_id find(const enum opt_id *opts, const char *name, size_t len, char letter)
{
	enum opt_id id = find_in(opts, name, len, letter);

	return id != OPT_END ? id : find_in(common_opts, name, len, letter);
}

/* "--name", "--name=value", "--name value". *at is the place of the option, and of its last word afterwards. */
static int parse_long(struct args *a, const enum opt_id *opts, int argc, char **argv, int *at, struct err *e)
{
	const char *name = argv[*at] + 2, *eq = strchr(name, '=');
	size_t len = eq ? (size_t)(eq - name) : strlen(name);
	enum opt_id id = find(opts, name, len, 0);

	if (id == OPT_END)
		return err_set(e, -EINVAL, "no such option: --%.*s (--help lists them)", (int)len, name);
	if (opt_table[id].kind == OPT_SWITCH) {
		if (eq)
			return err_set(e, -EINVAL, "--%s takes no value", opt_table[id].name);
		return set_value(a, id, NULL, e);
	}
	if (eq)
		return set_value(a, id, eq + 1, e);
	if (*at + 1 >= argc)
		return err_set(e, -EINVAL, "--%s needs a value: %s", opt_table[id].name, opt_table[id].metavar);
	return set_value(a, id, argv[++*at], e);
}

/* "-i", "-it", "-o json", "-ojson". */
static int parse_letters(struct args *a, const enum opt_id *opts, int argc, char **argv, int *at, struct err *e)
{
	for (const char *p = argv[*at] + 1; *p; p++) {
		enum opt_id id = find(opts, NULL, 0, *p);
		int r;

		if (id == OPT_END)
			return err_set(e, -EINVAL, "no such option: -%c (--help lists them)", *p);
		if (opt_table[id].kind == OPT_SWITCH) {
			r = set_value(a, id, NULL, e);
			if (r < 0)
				return r;
			continue;
		}
		if (p[1])
			return set_value(a, id, p + 1, e);
		if (*at + 1 >= argc)
			return err_set(e, -EINVAL, "-%c needs a value: %s", *p, opt_table[id].metavar);
		return set_value(a, id, argv[++*at], e);
	}
	return 0;
}

int args_parse(struct args *a, const enum opt_id *opts, int argc, char **argv, bool stop_at_word, int *ret_used,
	       struct err *e)
{
	int i, r = 0;

	for (i = 0; i < argc; i++) {
		const char *word = argv[i];

		if (!strcmp(word, "--")) {
			a->guest = argv + i + 1;
			i = argc;
			break;
		}
		if (!strncmp(word, "--", 2)) {
			r = parse_long(a, opts, argc, argv, &i, e);
		} else if (word[0] == '-' && word[1]) {
			r = parse_letters(a, opts, argc, argv, &i, e);
		} else if (stop_at_word) {
			break;
		} else {
			r = list_add(&a->words, &a->nwords, word);
			if (r < 0)
				err_set(e, r, "no memory");
		}
		if (r < 0)
			return r;
	}
	if (ret_used)
		*ret_used = i;
	return 0;
}
