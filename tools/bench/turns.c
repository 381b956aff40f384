/* SPDX-License-Identifier: Apache-2.0 */
/* bench-turns: time several operations in turn.
 *
 *   bench-turns [--rounds N] [--ops N] [--text TEXT] [--bytes N] [--file PATH] [--pool UID:N] CELL
 * SUBJECT=OPERATION:ARGUMENT…
 *
 * A round runs each subject's operation --ops times, one subject after the other, so that what the machine does besides
 * meets all of them alike. Prints one line a run, `sample CELL SUBJECT NANOSECONDS` (an operation of several numbers:
 * one a number, `sample CELL.MARK …`); a subject that fails says so on stderr, prints `failed CELL SUBJECT WORDS`, and
 * the others go on without it. The exit code is 1 when one has failed.
 *
 * Samples are kept until the end: nothing is printed while something is timed. */
#include "tools/bench/turns.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"

#define SUBJECTS_MAX 8
#define SAMPLES_MAX  (1u << 22)

static const struct bench_op *const ops[] = {
	&bench_op_stat, &bench_op_read,	      &bench_op_write,	    &bench_op_list,	      &bench_op_sh,
	&bench_op_exec, &bench_op_output,     &bench_op_create,	    &bench_op_create_drained, &bench_op_qga,
	&bench_op_raw,	&bench_op_boot,	      &bench_op_boot_ready, &bench_op_restore,	      &bench_op_restore_burst,
	&bench_op_fork, &bench_op_fork_burst, &bench_op_snapshot,   &bench_op_migrate,	      &bench_op_background,
};

struct subject {
	const char *name;
	const struct bench_op *op;
	const char *arg;
	void *state;
	uint64_t *ns;
	size_t n;
	struct err e; /* code < 0: it has failed */
};

uint64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const struct bench_op *find_op(const char *name, size_t len)
{
	for (size_t i = 0; i < ARRAY_LEN(ops); i++)
		if (strlen(ops[i]->name) == len && !memcmp(ops[i]->name, name, len))
			return ops[i];
	return NULL;
}

static int parse_subject(char *text, struct subject *ret)
{
	char *eq = strchr(text, '=');
	char *colon = eq ? strchr(eq, ':') : NULL;

	if (!colon || eq == text)
		return -EINVAL;
	*eq = '\0';
	ret->name = text;
	ret->op = find_op(eq + 1, (size_t)(colon - eq - 1));
	ret->arg = colon + 1;
	return ret->op ? 0 : -EINVAL;
}

/* Numbers that a run of it gives. */
static size_t width(const struct subject *s)
{
	size_t n = 0;

	while (n < BENCH_MARKS_MAX && s->op->marks[n])
		n++;
	return n ? n : 1;
}

static void turn(struct subject *s, unsigned runs)
{
	for (unsigned i = 0; i < runs && s->e.code == 0; i++)
		if (s->op->run(s->state, &s->ns[s->n * width(s)], &s->e) == 0)
			s->n++;
}

static int report(const char *cell, const struct subject *s)
{
	for (size_t i = 0; i < s->n * width(s); i++) {
		const char *mark = s->op->marks[i % width(s)];

		printf("sample %s%s%s %s %llu\n", cell, mark ? "." : "", mark ? mark : "", s->name,
		       (unsigned long long)s->ns[i]);
	}
	if (s->e.code == 0)
		return 0;
	printf("failed %s%s%s %s %s\n", cell, s->op->marks[0] ? "." : "", s->op->marks[0] ? s->op->marks[0] : "",
	       s->name, s->e.msg);
	fprintf(stderr, "bench-turns: %s: %s: %s\n", cell, s->name, s->e.msg);
	return 1;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "rounds", required_argument, NULL, 'r' },
		{ "ops", required_argument, NULL, 'o' },
		{ "text", required_argument, NULL, 't' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "file", required_argument, NULL, 'f' },
		{ "pool", required_argument, NULL, 'p' },
		{ NULL, 0, NULL, 0 },
	};
	struct subject subjects[SUBJECTS_MAX] = { 0 };
	struct bench_opts o = { .text = "" };
	unsigned long rounds = 30, runs = 1;
	const char *cell;
	size_t n = 0;
	int c, failed = 0;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'r':
			rounds = strtoul(optarg, NULL, 10);
			break;
		case 'o':
			runs = strtoul(optarg, NULL, 10);
			break;
		case 't':
			o.text = optarg;
			break;
		case 'b':
			o.bytes = strtoull(optarg, NULL, 10);
			break;
		case 'f':
			o.file = optarg;
			break;
		case 'p':
			o.pool = optarg;
			break;
		default:
			return 2;
		}
	}
	cell = optind < argc ? argv[optind++] : NULL;
	if (!cell || optind == argc || argc - optind > SUBJECTS_MAX || !rounds || !runs ||
	    rounds > SAMPLES_MAX / runs) {
		fputs("usage: bench-turns [--rounds N] [--ops N] [--text TEXT] [--bytes N] [--file PATH] "
		      "[--pool UID:N] CELL SUBJECT=OPERATION:ARGUMENT...\n",
		      stderr);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	for (; optind < argc; optind++, n++) {
		struct subject *s = &subjects[n];

		if (parse_subject(argv[optind], s) < 0) {
			fprintf(stderr, "bench-turns: %s: not SUBJECT=OPERATION:ARGUMENT\n", argv[optind]);
			return 2;
		}
		s->ns = calloc(rounds * runs * width(s), sizeof(*s->ns));
		if (!s->ns) {
			fputs("bench-turns: no memory\n", stderr);
			return 2;
		}
		s->op->open(&o, s->arg, &s->state, &s->e);
	}
	for (unsigned long i = 0; i < rounds; i++)
		for (size_t k = 0; k < n; k++)
			turn(&subjects[k], (unsigned)runs);
	for (size_t k = 0; k < n; k++) {
		failed |= report(cell, &subjects[k]);
		if (subjects[k].state)
			subjects[k].op->close(subjects[k].state);
		free(subjects[k].ns);
	}
	return failed;
}
