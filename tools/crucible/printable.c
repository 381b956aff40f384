/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/crucible/printable.h"

#include <stdbool.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

enum verdict {
	CHAR_PASS,
	CHAR_DROP, /* a control character */
	CHAR_BAD,  /* no UTF-8 */
	CHAR_MORE, /* cut off: the rest may follow */
};

/* Look at the character at @p (RFC 3629). *ret_len: the bytes it takes, at least one. */
static enum verdict judge(const uint8_t *p, size_t left, size_t *ret_len)
{
	uint8_t low = 0x80, high = 0xbf;
	size_t n;

	*ret_len = 1;
	if (p[0] < 0x80) {
		if (p[0] >= 0x20)
			return p[0] == 0x7f ? CHAR_DROP : CHAR_PASS;
		return p[0] == '\n' || p[0] == '\t' || p[0] == '\r' ? CHAR_PASS : CHAR_DROP;
	}
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return CHAR_BAD;
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (p[0] == 0xe0)
		low = 0xa0; /* nothing overlong */
	else if (p[0] == 0xed)
		high = 0x9f; /* no surrogates */
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f; /* not above U+10FFFF */
	for (size_t i = 1; i < n; i++) {
		if (i == left)
			return CHAR_MORE;
		if (p[i] < low || p[i] > high)
			return CHAR_BAD;
		*ret_len = i + 1;
		low = 0x80;
		high = 0xbf;
	}
	return p[0] == 0xc2 && p[1] < 0xa0 ? CHAR_DROP : CHAR_PASS; /* U+0080..U+009F: C1 */
}

/* Everything of @p but a character that is cut off at its end; *ret_used says how much that was. */
static int add_whole(const uint8_t *p, size_t len, struct buf *out, size_t *ret_used)
{
	size_t at = 0, n;
	int r = 0;

	while (at < len && r == 0) {
		size_t start = at;
		enum verdict v = CHAR_PASS;

		while (at < len && (v = judge(p + at, len - at, &n)) == CHAR_PASS)
			at += n;
		r = buf_add(out, p + start, at - start);
		if (at == len || r < 0 || v == CHAR_MORE)
			break;
		at += n;
		if (v == CHAR_BAD)
			r = buf_add(out, replacement, 3);
	}
	*ret_used = at;
	return r;
}

int printable_add(struct printable *p, const void *data, size_t len, struct buf *out)
{
	const uint8_t *next = data;
	size_t used;
	int r;

	/* Fill the character that the last piece ended in, byte by byte: at most three. */
	while (p->nheld && len) {
		p->held[p->nheld++] = *next++;
		len--;
		r = add_whole(p->held, p->nheld, out, &used);
		if (r < 0)
			return r;
		memmove(p->held, p->held + used, p->nheld - used);
		p->nheld -= used;
	}
	r = add_whole(next, len, out, &used);
	if (r < 0)
		return r;
	if (used < len) {
		p->nheld = len - used;
		memcpy(p->held, next + used, p->nheld);
	}
	return 0;
}

int printable_end(struct printable *p, struct buf *out)
{
	bool cut = p->nheld > 0;

	p->nheld = 0;
	return cut ? buf_add(out, replacement, 3) : 0;
}

char *printable_line(char *text)
{
	size_t len = strlen(text), at = 0, n;

	while (at < len) {
		enum verdict v = judge((uint8_t *)text + at, len - at, &n);

		if (v != CHAR_PASS || strchr("\n\t\r", text[at])) {
			if (v == CHAR_MORE)
				n = len - at;
			memset(text + at, '?', n);
		}
		at += n;
	}
	return text;
}
