/* SPDX-License-Identifier: Apache-2.0 */
/* bench-report: make a table and a JSON file of what was measured.
 *
 *   bench-report NAME OUT.json < LINES
 *
 * LINES, in any order but `cell` first for the order of the table:
 *
 *   fact KEY VALUE			about the host, the engine, the guest; becomes a member of the JSON file
 *   cell CELL UNIT WORDS		UNIT: ns, bytes or count; WORDS: what it is
 *   sample CELL SUBJECT NUMBER		in UNIT
 *   failed CELL SUBJECT WORDS		it was not measured, or not to the end
 *   at-most CELL OURS THEIRS X		to reach: median(OURS) <= X * median(THEIRS)
 *   faster CELL OURS THEIRS X		to reach: X * median(OURS) <= median(THEIRS)
 *   limit CELL OURS X			to reach: median(OURS) <= X
 *
 * A ratio in the table is that of the subject `crucible` to the subject of the line. What was not reached is printed
 * like everything else, with the word LOSES; the exit code says only whether there was something to report. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"

#define CELLS_MAX    64
#define SUBJECTS_MAX 8
#define TARGETS_MAX  8

struct subject {
	char name[48];
	double *v;
	size_t n, cap;
	char failed[256];
};

enum target_kind { TARGET_AT_MOST, TARGET_FASTER, TARGET_LIMIT };

struct target {
	enum target_kind kind;
	char ours[48], theirs[48];
	double x;
};

struct cell {
	char name[48], unit[16], words[160];
	struct subject subjects[SUBJECTS_MAX];
	struct target targets[TARGETS_MAX];
	size_t nsubjects, ntargets;
};

static struct cell cells[CELLS_MAX];
static size_t ncells;

static void die(const char *words, const char *line)
{
	fprintf(stderr, "bench-report: %s: %s\n", words, line);
	exit(1);
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

static struct cell *cell_of(const char *name)
{
	for (size_t i = 0; i < ncells; i++)
		if (!strcmp(cells[i].name, name))
			return &cells[i];
	if (ncells == CELLS_MAX)
		die("too many cells", name);
	snprintf(cells[ncells].name, sizeof(cells[0].name), "%s", name);
	snprintf(cells[ncells].unit, sizeof(cells[0].unit), "ns");
	return &cells[ncells++];
}

static struct subject *subject_find(struct cell *c, const char *name)
{
	for (size_t i = 0; i < c->nsubjects; i++)
		if (!strcmp(c->subjects[i].name, name))
			return &c->subjects[i];
	return NULL;
}

static struct subject *subject_of(struct cell *c, const char *name)
{
	struct subject *s = subject_find(c, name);

	if (s)
		return s;
	if (c->nsubjects == SUBJECTS_MAX)
		die("too many subjects", name);
	s = &c->subjects[c->nsubjects++];
	snprintf(s->name, sizeof(s->name), "%s", name);
	return s;
}

static void add_sample(struct subject *s, double v)
{
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->v = reallocarray(s->v, s->cap, sizeof(*s->v));
		if (!s->v)
			die("no memory", s->name);
	}
	s->v[s->n++] = v;
}

static bool number(const char *text, double *ret)
{
	char *end;

	*ret = strtod(text, &end);
	return end != text && !*end && isfinite(*ret);
}

static void add_target(enum target_kind kind, const char *line)
{
	struct target t = { .kind = kind };
	char cell[48] = "", x[48] = "";
	struct cell *c;
	int n;

	if (kind == TARGET_LIMIT)
		n = sscanf(line, "%*s %47s %47s %47s", cell, t.ours, x) + 1;
	else
		n = sscanf(line, "%*s %47s %47s %47s %47s", cell, t.ours, t.theirs, x);
	c = cell_of(cell);
	if (n != 4 || !number(x, &t.x) || c->ntargets == TARGETS_MAX)
		die("not understood, or too many", line);
	c->targets[c->ntargets++] = t;
}

/* "0.5" and "12" become numbers. */
static struct json_object *value_of(const char *text)
{
	double v;

	if (!number(text, &v))
		return json_text(text, strlen(text));
	return strpbrk(text, ".eE") ? json_object_new_double(v) : json_object_new_int64(strtoll(text, NULL, 10));
}

static void read_line(char *line, struct json_object *facts)
{
	char kind[16] = "", a[48] = "", b[48] = "", x[48] = "";
	int words = 0;
	double v;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%15s %47s %n", kind, a, &words) < 2 || !words)
		die("not understood", line);
	if (!strcmp(kind, "fact")) {
		json_object_object_add(facts, a, value_of(line + words));
	} else if (!strcmp(kind, "cell")) {
		struct cell *c = cell_of(a);

		if (sscanf(line, "%*s %*s %15s %n", c->unit, &words) < 1)
			die("not understood", line);
		snprintf(c->words, sizeof(c->words), "%s", line + words);
	} else if (!strcmp(kind, "sample") && sscanf(line, "%*s %*s %47s %47s", b, x) == 2 && number(x, &v)) {
		add_sample(subject_of(cell_of(a), b), v);
	} else if (!strcmp(kind, "failed") && sscanf(line, "%*s %*s %47s %n", b, &words) == 1) {
		snprintf(subject_of(cell_of(a), b)->failed, sizeof(cells[0].subjects[0].failed), "%s", line + words);
	} else if (!strcmp(kind, "at-most")) {
		add_target(TARGET_AT_MOST, line);
	} else if (!strcmp(kind, "faster")) {
		add_target(TARGET_FASTER, line);
	} else if (!strcmp(kind, "limit")) {
		add_target(TARGET_LIMIT, line);
	} else {
		die("not understood", line);
	}
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of sorted values, by the nearest rank. */
static double quantile(const struct subject *s, unsigned percent)
{
	size_t rank = (s->n * percent + 99) / 100;

	return s->v[rank ? rank - 1 : 0];
}

static double median(const struct subject *s)
{
	return s->n % 2 ? s->v[s->n / 2] : (s->v[s->n / 2 - 1] + s->v[s->n / 2]) / 2;
}

static const char *show(double v, const char *unit, char out[32])
{
	if (!strcmp(unit, "count"))
		snprintf(out, 32, "%.0f", v);
	else if (!strcmp(unit, "bytes"))
		snprintf(out, 32, v < 1048576 ? "%.0f KiB" : "%.2f MiB", v / (v < 1048576 ? 1024 : 1048576));
	else if (v < 1e6)
		snprintf(out, 32, "%.1f us", v / 1e3);
	else if (v < 1e9)
		snprintf(out, 32, "%.2f ms", v / 1e6);
	else
		snprintf(out, 32, "%.3f s", v / 1e9);
	return out;
}

/* -- verdicts -------------------------------------------------------------------------------------------------------
 */

struct verdict {
	bool known, reached;
	double is; /* ratio as the target asks for it; for a limit the value itself */
};

static struct verdict judge(struct cell *c, const struct target *t)
{
	struct subject *ours = subject_find(c, t->ours), *theirs = subject_find(c, t->theirs);
	struct verdict v = { 0 };

	if (!ours || !ours->n || (t->kind != TARGET_LIMIT && (!theirs || !theirs->n)))
		return v;
	v.known = true;
	switch (t->kind) {
	case TARGET_AT_MOST:
		v.is = median(ours) / median(theirs);
		break;
	case TARGET_FASTER:
		v.is = median(theirs) / median(ours);
		break;
	case TARGET_LIMIT:
		v.is = median(ours);
		break;
	}
	v.reached = t->kind == TARGET_FASTER ? v.is >= t->x : v.is <= t->x;
	return v;
}

static void print_target(struct cell *c, const struct target *t)
{
	struct verdict v = judge(c, t);
	const char *word = !v.known ? "not measured" : v.reached ? "reached" : "LOSES";
	char want[32], is[32];

	switch (t->kind) {
	case TARGET_AT_MOST:
		printf("    to reach: %s <= %.2fx %s: is %.2fx  %s\n", t->ours, t->x, t->theirs, v.is, word);
		break;
	case TARGET_FASTER:
		printf("    to reach: %s >= %.1fx faster than %s: is %.2fx  %s\n", t->ours, t->x, t->theirs, v.is,
		       word);
		break;
	case TARGET_LIMIT:
		printf("    to reach: %s <= %s: is %s  %s\n", t->ours, show(t->x, c->unit, want),
		       show(v.is, c->unit, is), word);
		break;
	}
}

static void print_cell(struct cell *c)
{
	struct subject *ours = subject_find(c, "crucible");
	char a[32], b[32], d[32];

	printf("\n  %s: %s\n", c->name, c->words);
	printf("    %-22s %7s %12s %12s %12s %8s\n", "", "n", "median", "p99", "min", "ratio");
	for (size_t i = 0; i < c->nsubjects; i++) {
		const struct subject *s = &c->subjects[i];

		if (s->n) {
			printf("    %-22s %7zu %12s %12s %12s", s->name, s->n, show(median(s), c->unit, a),
			       show(quantile(s, 99), c->unit, b), show(s->v[0], c->unit, d));
			if (ours && ours != s && ours->n && median(s) > 0)
				printf(" %7.2fx", median(ours) / median(s));
			putchar('\n');
		}
		if (*s->failed)
			printf("    %-22s failed: %s\n", s->name, s->failed);
	}
	for (size_t i = 0; i < c->ntargets; i++)
		print_target(c, &c->targets[i]);
}

/* -- JSON ------------------------------------------------------------------------------------------------------------
 */

static struct json_object *json_of_subject(const struct subject *s)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "n", json_object_new_int64((int64_t)s->n));
	if (s->n) {
		json_object_object_add(o, "median", json_object_new_double(median(s)));
		json_object_object_add(o, "p99", json_object_new_double(quantile(s, 99)));
		json_object_object_add(o, "min", json_object_new_double(s->v[0]));
		json_object_object_add(o, "max", json_object_new_double(s->v[s->n - 1]));
	}
	if (*s->failed)
		json_object_object_add(o, "failed", json_text(s->failed, strlen(s->failed)));
	return o;
}

static struct json_object *json_of_target(struct cell *c, const struct target *t)
{
	static const char *const kinds[] = { "at_most_ratio", "at_least_times_faster", "at_most" };
	struct json_object *o = json_object_new_object();
	struct verdict v = judge(c, t);

	json_object_object_add(o, "subject", json_object_new_string(t->ours));
	if (*t->theirs)
		json_object_object_add(o, "baseline", json_object_new_string(t->theirs));
	json_object_object_add(o, kinds[t->kind], json_object_new_double(t->x));
	json_object_object_add(o, "is", v.known ? json_object_new_double(v.is) : NULL);
	json_object_object_add(o, "reached", v.known ? json_object_new_boolean(v.reached) : NULL);
	return o;
}

static struct json_object *json_of_cell(struct cell *c)
{
	struct json_object *o = json_object_new_object(), *subjects = json_object_new_object();
	struct json_object *ratios = json_object_new_object(), *targets = json_object_new_array();
	struct subject *ours = subject_find(c, "crucible");

	json_object_object_add(o, "cell", json_object_new_string(c->name));
	json_object_object_add(o, "what", json_object_new_string(c->words));
	json_object_object_add(o, "unit", json_object_new_string(c->unit));
	for (size_t i = 0; i < c->nsubjects; i++) {
		struct subject *s = &c->subjects[i];

		json_object_object_add(subjects, s->name, json_of_subject(s));
		if (ours && ours != s && ours->n && s->n && median(s) > 0)
			json_object_object_add(ratios, s->name, json_object_new_double(median(ours) / median(s)));
	}
	for (size_t i = 0; i < c->ntargets; i++)
		json_object_array_add(targets, json_of_target(c, &c->targets[i]));
	json_object_object_add(o, "subjects", subjects);
	json_object_object_add(o, "ratios", ratios);
	json_object_object_add(o, "targets", targets);
	return o;
}

int main(int argc, char **argv)
{
	AUTO_JSON *root = json_object_new_object();
	struct json_object *facts = json_object_new_object(), *list = json_object_new_array();
	AUTO_FREE char *line = NULL;
	size_t cap = 0;

	if (argc != 3) {
		fputs("usage: bench-report NAME OUT.json < LINES\n", stderr);
		return 2;
	}
	json_object_object_add(root, "bench", json_object_new_string(argv[1]));
	json_object_object_add(root, "facts", facts);
	json_object_object_add(root, "cells", list);
	while (getline(&line, &cap, stdin) > 0)
		read_line(line, facts);
	for (size_t i = 0; i < ncells; i++) {
		for (size_t k = 0; k < cells[i].nsubjects; k++)
			if (cells[i].subjects[k].n)
				qsort(cells[i].subjects[k].v, cells[i].subjects[k].n, sizeof(double), by_value);
		print_cell(&cells[i]);
		json_object_array_add(list, json_of_cell(&cells[i]));
		for (size_t k = 0; k < cells[i].nsubjects; k++)
			free(cells[i].subjects[k].v);
	}
	if (json_object_to_file_ext(argv[2], root, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE) < 0) {
		fprintf(stderr, "bench-report: %s: %s\n", argv[2], strerror(errno));
		return 1;
	}
	return ncells ? 0 : 1;
}
