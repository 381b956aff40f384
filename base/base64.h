/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648, with padding). Thread: any. Nothing blocks. */
#ifndef CRUCIBLE_BASE_BASE64_H
#define CRUCIBLE_BASE_BASE64_H

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"

/* Append @len bytes as text. -EFBIG, -ENOMEM; the buffer is then as before. */
int base64_add(struct buf *out, const void *data, size_t len);

/* Is the text whole and strict: groups of four, '=' at the very end only? *ret_len: how many bytes it stands for.
 * -EINVAL. */
int base64_check(const char *text, size_t len, size_t *ret_len);

/* Decode what base64_check() took, or a piece of it that begins and ends between groups. @out: room for @len / 4 * 3
 * bytes. Returns the bytes written. */
size_t base64_decode(const char *text, size_t len, uint8_t *out);

#endif
