/* SPDX-License-Identifier: Apache-2.0 */
/* How far long work has come: a bar on a terminal, lines elsewhere. To standard error. Thread: any. */
#ifndef CRUCIBLE_TOOLS_PROGRESS_H
#define CRUCIBLE_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

struct progress {
	bool bar;      /* standard error is a terminal */
	bool drawn;    /* the cursor stands behind a bar */
	unsigned last; /* percent of the last line */
};

void progress_begin(struct progress *p);
/* Take one line of a builder's output: "progress PERCENT WORDS" is shown, another line is printed as it is (controls
 * stripped). */
void progress_line(struct progress *p, char *line);
void progress_end(struct progress *p);

/* For tests: "progress 42 words" -> 42 and "words". false: another kind of line. Borrowed from @line. */
bool progress_parse(const char *line, unsigned *ret_percent, const char **ret_words);
/* The bar as text, @columns wide at most: "[#####     ]  50% words". */
void progress_bar(unsigned percent, const char *words, unsigned columns, char *out, size_t cap);

#endif
