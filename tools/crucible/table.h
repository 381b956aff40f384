/* SPDX-License-Identifier: Apache-2.0 */
/* A table for people: columns as wide as their widest cell, to standard output. Thread: any. */
#ifndef CRUCIBLE_TOOLS_TABLE_H
#define CRUCIBLE_TOOLS_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

#define TABLE_COLUMNS_MAX 8

struct table {
	size_t columns, rows; /* rows: the head included */
	char **cells;	      /* malloc'd copies, row by row */
	size_t ncells;
};

/* @head: the columns' names, NULL-ended. -ENOMEM. */
int table_begin(struct table *t, const char *const head[]);
/* One row: as many texts as there are columns, NULL shows as "-". Control characters are replaced. -ENOMEM. */
int table_row(struct table *t, const char *const cells[]);
/* The text of the whole table, appended to @out. Errors: of buf_add. */
int table_format(const struct table *t, struct buf *out);
void table_end(struct table *t);

/* Short texts for cells. Returns @out. */
const char *table_age(uint64_t seconds, char out[24]); /* "42s", "3m", "5h", "12d" */
/* "2026-01-31T12:00:00.123Z" -> how long before @now (wall clock, seconds); NULL when it is NULL, no such text, or
 * later. */
const char *table_since(const char *created, int64_t now, char out[24]);
const char *table_size(uint64_t bytes, char out[24]); /* "512B", "1.5K", "64M", "2.0G" */

#endif
