/* SPDX-License-Identifier: Apache-2.0 */
/* A growable array of bytes with a hard limit. Embedded: buf_init/buf_fini. Thread: the owner's. */
#ifndef CRUCIBLE_BASE_BUF_H
#define CRUCIBLE_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	uint8_t *data; /* NULL while empty */
	size_t len;    /* bytes held */
	size_t cap;    /* bytes allocated */
	size_t max;    /* never more bytes than this */
};

void buf_init(struct buf *b, size_t max);
void buf_fini(struct buf *b);  /* frees; the buffer may be used again */
void buf_reset(struct buf *b); /* len = 0; memory above 4 KiB is given back */

/* Append. Errors: -EFBIG beyond max, -ENOMEM; the buffer is then as before. */
int buf_add(struct buf *b, const void *data, size_t len);
int buf_addf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int buf_adds(struct buf *b, const char *text);
/* Make room for @len more bytes and return where they go in *ret (len is not moved: add to b->len). */
int buf_reserve(struct buf *b, size_t len, uint8_t **ret);
void buf_drop(struct buf *b, size_t n); /* remove the first n bytes */
/* The text with a NUL behind it (not counted); valid until the next change. NULL on -ENOMEM/-EFBIG. */
char *buf_str(struct buf *b);

#endif
