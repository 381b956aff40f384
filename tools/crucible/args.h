/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: every option of every command stands in one table, from which parsing, --help and the tests of the
 * man page and of the completions are made. Thread: any. Nothing blocks. */
#ifndef CRUCIBLE_TOOLS_ARGS_H
#define CRUCIBLE_TOOLS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum opt_id {
	OPT_END, /* ends a command's list */
	/* Of every command. */
	OPT_MOUNT,
	OPT_OUTPUT,
	OPT_HELP,
	/* Of a sandbox that is made. */
	OPT_PROFILE,
	OPT_FROM,
	OPT_SNAPSHOT,
	OPT_VCPUS,
	OPT_MEMORY,
	OPT_DISK,
	OPT_NET_ALLOW,
	OPT_PUBLISH,
	OPT_LIFETIME, /* --timeout of `sandbox create` */
	OPT_NAME,
	OPT_KEEP,
	/* Of snapshots and forks. */
	OPT_TREE,
	OPT_WAIT,
	OPT_FORKS, /* --count of `fork` */
	OPT_NAMES, /* --name of `fork` */
	OPT_DISK_ONLY,
	/* Of a command in a sandbox. */
	OPT_TIMEOUT,
	OPT_ENV,
	OPT_CWD,
	OPT_USER,
	OPT_INTERACTIVE,
	OPT_TTY,
	OPT_SHELL,
	/* Of single commands. */
	OPT_FOLLOW,
	OPT_SOURCE,
	OPT_SINCE,
	OPT_FORCE,
	OPT_JSON,
	OPT_DEEP,
	OPT_STORE,
	OPT_CONFIG,
	OPT_LOG_LEVEL,
	OPT_SET,
	OPT_RECIPES,
	OPT_IMAGE_SIZE,
	OPT_REBUILD,
	OPT_VERBOSE,
	/* Of `mcp serve` and `setup`. */
	OPT_DEFAULT_PROFILE,
	OPT_ALLOW_PROFILES,
	OPT_NET_ALLOW_MAX,
	OPT_MAX_SANDBOXES,
	OPT_MAX_FORK,
	OPT_MAX_TIMEOUT,
	OPT_TOOLS,
	OPT_DENY_TOOLS,
	OPT_CLIENT,
	OPT_WRITE,
	/* Of `mount` and `umount`. */
	OPT_POLICY,
	OPT_TTL,
	OPT_VIEW_NAME, /* --name of `mount` */
	OPT_OWNER,
	OPT_KEEP_VIEW, /* --keep of `umount` */
	OPT_COUNT
};

enum opt_kind {
	OPT_SWITCH, /* takes no value */
	OPT_TEXT,
	OPT_TEXTS,   /* may be given several times */
	OPT_CHOICE,  /* one of the words in `choices` */
	OPT_NUMBER,  /* a whole number */
	OPT_SIZE,    /* MiB: "512", "512M", "2G" */
	OPT_SECONDS, /* milliseconds: "30", "1.5", "90s", "5m", "2h", "1d" */
};

struct opt {
	enum opt_kind kind;
	char letter;	     /* 0: none */
	const char *name;    /* without the dashes */
	const char *metavar; /* for --help; NULL for a switch */
	const char *choices; /* of OPT_CHOICE: words with a blank between */
	const char *help;
};
extern const struct opt opt_table[OPT_COUNT];

struct args_texts {
	const char **v;
	size_t n;
};

struct args {
	bool given[OPT_COUNT];
	const char *text[OPT_COUNT];	    /* as given; NULL when not; borrowed from argv */
	uint64_t number[OPT_COUNT];	    /* of OPT_NUMBER, OPT_SIZE (MiB), OPT_SECONDS (ms) */
	struct args_texts texts[OPT_COUNT]; /* of OPT_TEXTS; malloc'd arrays of borrowed texts */
	const char **words;		    /* what is no option; malloc'd array of borrowed texts */
	size_t nwords;
	char **guest; /* what follows "--", NULL-ended; NULL when there is no "--" */
};

void args_init(struct args *a);
void args_fini(struct args *a);

/* Read @argv[0..argc) into @a, beside what it holds already. @opts: the command's options, ended by OPT_END; OPT_MOUNT,
 * OPT_OUTPUT and OPT_HELP are always taken. With @stop_at_word the first word that is no option ends the reading.
 * *ret_used (may be NULL): how many of @argv were read. Errors: -EINVAL with words that name the option; -ENOMEM. */
int args_parse(struct args *a, const enum opt_id *opts, int argc, char **argv, bool stop_at_word, int *ret_used,
	       struct err *e);

/* "2G" -> 2048 (MiB); "1.5m" -> 90000 (ms). Errors: -EINVAL. */
int args_size(const char *text, uint64_t *ret_mib);
int args_seconds(const char *text, uint64_t *ret_ms);

#endif
