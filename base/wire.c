/* SPDX-License-Identifier: Apache-2.0 */
#include "base/wire.h"

#include <errno.h>
#include <string.h>

void wire_rd_init(struct wire_rd *r, const void *data, size_t len)
{
	r->p = data;
	r->end = len ? r->p + len : r->p;
	r->bad = false;
}

size_t wire_left(const struct wire_rd *r)
{
	return r->bad ? 0 : (size_t)(r->end - r->p);
}

const uint8_t *wire_raw(struct wire_rd *r, size_t n)
{
	const uint8_t *p = r->p;

	if (n == 0)
		return NULL;
	if (wire_left(r) < n) {
		r->bad = true;
		return NULL;
	}
	r->p += n;
	return p;
}

static uint64_t get_le(struct wire_rd *r, size_t n)
{
	const uint8_t *p = wire_raw(r, n);
	uint64_t v = 0;

	if (p)
		for (size_t i = 0; i < n; i++)
			v |= (uint64_t)p[i] << (8 * i);
	return v;
}

uint8_t wire_u8(struct wire_rd *r)
{
	return (uint8_t)get_le(r, 1);
}

uint16_t wire_u16(struct wire_rd *r)
{
	return (uint16_t)get_le(r, 2);
}

uint32_t wire_u32(struct wire_rd *r)
{
	return (uint32_t)get_le(r, 4);
}

uint64_t wire_u64(struct wire_rd *r)
{
	return get_le(r, 8);
}

const char *wire_bytes(struct wire_rd *r, size_t max, size_t *ret_len)
{
	size_t len = wire_u32(r);
	const uint8_t *p;

	*ret_len = 0;
	if (r->bad || len > max || len > wire_left(r)) {
		r->bad = true;
		return NULL;
	}
	if (len == 0)
		return "";
	p = wire_raw(r, len);
	*ret_len = len;
	return (const char *)p;
}

void wire_str(struct wire_rd *r, char *out, size_t cap)
{
	size_t len;
	const char *p;

	if (cap == 0) { /* not even the NUL fits */
		r->bad = true;
		return;
	}
	p = wire_bytes(r, cap - 1, &len);
	if (p && memchr(p, '\0', len)) {
		r->bad = true;
		p = NULL;
	}
	if (p)
		memcpy(out, p, len);
	out[p ? len : 0] = '\0';
}

int wire_done(const struct wire_rd *r)
{
	return r->bad || r->p != r->end ? -EBADMSG : 0;
}

static void put_le(uint8_t *p, uint64_t v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static int put(struct buf *b, uint64_t v, size_t n)
{
	uint8_t *p;
	int r = buf_reserve(b, n, &p);

	if (r < 0)
		return r;
	put_le(p, v, n);
	b->len += n;
	return 0;
}

int wire_put_u8(struct buf *b, uint8_t v)
{
	return put(b, v, 1);
}

int wire_put_u16(struct buf *b, uint16_t v)
{
	return put(b, v, 2);
}

int wire_put_u32(struct buf *b, uint32_t v)
{
	return put(b, v, 4);
}

int wire_put_u64(struct buf *b, uint64_t v)
{
	return put(b, v, 8);
}

int wire_put_bytes(struct buf *b, const void *data, size_t len)
{
	uint8_t *p;
	int r;

	if (len > UINT32_MAX)
		return -EFBIG;
	r = buf_reserve(b, 4 + len, &p); /* both or nothing */
	if (r < 0)
		return r;
	put_le(p, len, 4);
	if (len)
		memcpy(p + 4, data, len);
	b->len += 4 + len;
	return 0;
}

int wire_put_str(struct buf *b, const char *s)
{
	return wire_put_bytes(b, s, strlen(s));
}
