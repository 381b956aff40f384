/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <errno.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_add(struct buf *out, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint8_t *to;
	int r;

	if (len > SIZE_MAX / 4)
		return -EFBIG;
	r = buf_reserve(out, (len + 2) / 3 * 4, &to);
	if (r < 0)
		return r;
	for (; len >= 3; len -= 3, p += 3) {
		uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];

		*to++ = (uint8_t)letters[v >> 18];
		*to++ = (uint8_t)letters[v >> 12 & 63];
		*to++ = (uint8_t)letters[v >> 6 & 63];
		*to++ = (uint8_t)letters[v & 63];
	}
	if (len) {
		uint32_t v = (uint32_t)p[0] << 16 | (len == 2 ? (uint32_t)p[1] << 8 : 0);

		*to++ = (uint8_t)letters[v >> 18];
		*to++ = (uint8_t)letters[v >> 12 & 63];
		*to++ = len == 2 ? (uint8_t)letters[v >> 6 & 63] : '=';
		*to++ = '=';
	}
	out->len = (size_t)(to - out->data);
	return 0;
}

/* The six bits of a letter, or -1. */
static int bits(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_check(const char *text, size_t len, size_t *ret_len)
{
	size_t padding = 0;

	if (len % 4)
		return -EINVAL;
	while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
		padding++;
	for (size_t i = 0; i < len - padding; i++) {
		if (bits(text[i]) < 0)
			return -EINVAL;
	}
	*ret_len = len / 4 * 3 - padding;
	return 0;
}

size_t base64_decode(const char *text, size_t len, uint8_t *out)
{
	uint8_t *to = out;

	for (size_t i = 0; i + 4 <= len; i += 4) {
		uint32_t v = 0;

		for (size_t k = 0; k < 4; k++)
			v = v << 6 | ((uint32_t)bits(text[i + k]) & 63);
		*to++ = (uint8_t)(v >> 16);
		if (text[i + 2] != '=')
			*to++ = (uint8_t)(v >> 8);
		if (text[i + 3] != '=')
			*to++ = (uint8_t)v;
	}
	return (size_t)(to - out);
}
