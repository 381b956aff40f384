/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest wrote, made harmless for a terminal. A terminal obeys control characters: they can retitle a window,
 * answer in the user's name, or rewrite what stands on the screen. Thread: any. Nothing blocks. */
#ifndef CRUCIBLE_TOOLS_PRINTABLE_H
#define CRUCIBLE_TOOLS_PRINTABLE_H

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

/* A stream that comes in pieces: a UTF-8 character may be cut between two of them. All zero is the start. */
struct printable {
	uint8_t held[4]; /* the beginning of a character */
	size_t nheld;
};

/* Append @data to @out without control characters: of C0 only newline, tab and carriage return pass, of C1 (also as
 * UTF-8) nothing; DEL goes too. What is no UTF-8 becomes U+FFFD. Errors: -ENOMEM, -EFBIG of @out. */
int printable_add(struct printable *p, const void *data, size_t len, struct buf *out);
/* The end of the stream: a character that was cut off becomes U+FFFD. */
int printable_end(struct printable *p, struct buf *out);

/* One line in place: every control character (newline and tab too) and every bad byte becomes '?'. Returns @text. */
char *printable_line(char *text);

#endif
