/* SPDX-License-Identifier: Apache-2.0 */
/* One byte more than `cap` is always allocated, so that buf_str() has a place for its NUL even in a full buffer. */
#include "base/buf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_KEEP  4096u /* memory that buf_reset() lets a buffer keep */
#define BUF_FIRST 64u	/* the first allocation */

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){ .max = max < SIZE_MAX / 2 ? max : SIZE_MAX / 2 };
}

void buf_fini(struct buf *b)
{
	free(b->data);
	b->data = NULL;
	b->len = b->cap = 0;
}

void buf_reset(struct buf *b)
{
	if (b->cap > BUF_KEEP)
		buf_fini(b);
	b->len = 0;
}

int buf_reserve(struct buf *b, size_t len, uint8_t **ret)
{
	size_t need, cap;
	uint8_t *grown;

	if (len > b->max || b->len > b->max - len)
		return -EFBIG;
	need = b->len + len;
	if (need > b->cap || !b->data) {
		cap = b->cap * 2 > BUF_FIRST ? b->cap * 2 : BUF_FIRST;
		if (cap < need)
			cap = need;
		if (cap > b->max)
			cap = b->max;
		grown = realloc(b->data, cap + 1);
		if (!grown)
			return -ENOMEM;
		b->data = grown;
		b->cap = cap;
	}
	if (ret)
		*ret = b->data + b->len;
	return 0;
}

int buf_add(struct buf *b, const void *data, size_t len)
{
	uint8_t *to;
	int r;

	if (len == 0)
		return 0;
	r = buf_reserve(b, len, &to);
	if (r < 0)
		return r;
	memcpy(to, data, len);
	b->len += len;
	return 0;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
	uint8_t *to;
	va_list ap;
	int n, r;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EFBIG; /* the only way it fails for our formats: longer than INT_MAX */
	r = buf_reserve(b, (size_t)n, &to);
	if (r < 0)
		return r;
	va_start(ap, fmt);
	vsnprintf((char *)to, (size_t)n + 1, fmt, ap); /* the NUL falls on the spare byte at worst */
	va_end(ap);
	b->len += (size_t)n;
	return 0;
}

int buf_adds(struct buf *b, const char *text)
{
	return buf_add(b, text, strlen(text));
}

void buf_drop(struct buf *b, size_t n)
{
	if (n >= b->len) {
		b->len = 0;
		return;
	}
	memmove(b->data, b->data + n, b->len - n);
	b->len -= n;
}

char *buf_str(struct buf *b)
{
	if (buf_reserve(b, 0, NULL) < 0)
		return NULL;
	b->data[b->len] = '\0';
	return (char *)b->data;
}
