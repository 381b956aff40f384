/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/table.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fd.h"
#include "tools/crucible/printable.h"

int table_begin(struct table *t, const char *const head[])
{
	*t = (struct table){ 0 };
	while (head[t->columns])
		t->columns++;
	assert(t->columns > 0 && t->columns <= TABLE_COLUMNS_MAX);
	return table_row(t, head);
}

int table_row(struct table *t, const char *const cells[])
{
	char **grown = reallocarray(t->cells, t->ncells + t->columns, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	t->cells = grown;
	for (size_t i = 0; i < t->columns; i++) {
		char *copy = strdup(cells[i] && *cells[i] ? cells[i] : "-");

		if (!copy) {
			while (i-- > 0)
				free(t->cells[t->ncells + i]);
			return -ENOMEM;
		}
		t->cells[t->ncells + i] = printable_line(copy);
	}
	t->ncells += t->columns;
	t->rows++;
	return 0;
}

/* Characters, near enough to columns: ids are ASCII, descriptions come from Debian's packages. */
static size_t width(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

int table_format(const struct table *t, struct buf *out)
{
	size_t widths[TABLE_COLUMNS_MAX] = { 0 };
	int r = 0;

	for (size_t i = 0; i < t->ncells; i++) {
		size_t n = width(t->cells[i]);

		if (n > widths[i % t->columns])
			widths[i % t->columns] = n;
	}
	for (size_t i = 0; i < t->ncells && r == 0; i++) {
		size_t column = i % t->columns;

		/* No blanks at a line's end. */
		if (column == t->columns - 1)
			r = buf_addf(out, "%s\n", t->cells[i]);
		else
			r = buf_addf(out, "%s%*s", t->cells[i], (int)(widths[column] - width(t->cells[i]) + 2), "");
	}
	return r;
}

void table_end(struct table *t)
{
	for (size_t i = 0; i < t->ncells; i++)
		free(t->cells[i]);
	free(t->cells);
	*t = (struct table){ 0 };
}

const char *table_age(uint64_t s, char out[24])
{
	static const struct {
		uint64_t seconds;
		char unit;
	} units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
	size_t i = 0;

	/* Two of the larger unit at least: "90s" says more than "1m". */
	while (i < ARRAY_LEN(units) - 1 && s < 2 * units[i].seconds)
		i++;
	snprintf(out, 24, "%llu%c", (unsigned long long)(s / units[i].seconds), units[i].unit);
	return out;
}

const char *table_since(const char *created, int64_t now, char out[24])
{
	struct tm tm = { 0 };
	const char *end = created ? strptime(created, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	int64_t then = end ? (int64_t)timegm(&tm) : 0;

	if (!end || then > now)
		return NULL;
	return table_age((uint64_t)(now - then), out);
}

const char *table_size(uint64_t bytes, char out[24])
{
	static const char units[] = "BKMGTPE";
	uint64_t whole = bytes, tenths = 0;
	size_t i = 0;

	while (whole >= 1024) {
		tenths = (whole & 1023) * 10 / 1024;
		whole >>= 10;
		i++;
	}
	if (i > 0 && whole < 10)
		snprintf(out, 24, "%llu.%llu%c", (unsigned long long)whole, (unsigned long long)tenths, units[i]);
	else
		snprintf(out, 24, "%llu%c", (unsigned long long)whole, units[i]);
	return out;
}
