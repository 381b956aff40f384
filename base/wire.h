/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded reading and writing of little-endian binary messages. A reader that ran over its end, or met a
 * bad length, is `bad` from then on and yields zeros: check once, at the end, with wire_done(). */
#ifndef CRUCIBLE_BASE_WIRE_H
#define CRUCIBLE_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

struct wire_rd {
	const uint8_t *p, *end; /* what is left; borrowed */
	bool bad;
};

void wire_rd_init(struct wire_rd *r, const void *data, size_t len);
uint8_t wire_u8(struct wire_rd *r);
uint16_t wire_u16(struct wire_rd *r);
uint32_t wire_u32(struct wire_rd *r);
uint64_t wire_u64(struct wire_rd *r);
/* @n raw bytes; NULL when there are fewer (or n is 0). Borrowed from the message. */
const uint8_t *wire_raw(struct wire_rd *r, size_t n);
/* A string: u32 length and bytes. Borrowed, not terminated. Longer than @max is bad. */
const char *wire_bytes(struct wire_rd *r, size_t max, size_t *ret_len);
/* A string copied into @out with a NUL; bad if it holds a NUL or does not fit into @cap. */
void wire_str(struct wire_rd *r, char *out, size_t cap);
size_t wire_left(const struct wire_rd *r);
/* 0 when everything was read and nothing was bad, else -EBADMSG. */
int wire_done(const struct wire_rd *r);

/* Writers append to a struct buf; they return 0, -EFBIG or -ENOMEM. */
int wire_put_u8(struct buf *b, uint8_t v);
int wire_put_u16(struct buf *b, uint16_t v);
int wire_put_u32(struct buf *b, uint32_t v);
int wire_put_u64(struct buf *b, uint64_t v);
int wire_put_bytes(struct buf *b, const void *data, size_t len); /* u32 length and bytes */
int wire_put_str(struct buf *b, const char *s);

#endif
