/* SPDX-License-Identifier: Apache-2.0 */
/* What json-c lacks: strict parsing of untrusted text, typed getters with words, safe text. Thread: any. */
#ifndef CRUCIBLE_BASE_JSON_H
#define CRUCIBLE_BASE_JSON_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

void json_put(struct json_object **o); /* for AUTO_JSON */
#define AUTO_JSON __attribute__((cleanup(json_put))) struct json_object

/* Parse exactly one value of @len bytes: strict RFC 8259, depth <= 32, no text behind it, valid UTF-8, no
 * duplicate keys matter (last wins). Errors: -EINVAL with the place in words, -ENOMEM. */
int json_parse(const char *text, size_t len, struct json_object **ret, struct err *e);

/* Typed getters: @key absent: the output is left alone and 0 is returned. Wrong type or out of range: -EINVAL
 * with words that name the key. Borrowed strings live as long as @o. */
int json_get_str(struct json_object *o, const char *key, const char **ret, struct err *e);
int json_get_u64(struct json_object *o, const char *key, uint64_t min, uint64_t max, uint64_t *ret, struct err *e);
int json_get_bool(struct json_object *o, const char *key, bool *ret, struct err *e);
int json_get_obj(struct json_object *o, const char *key, enum json_type type, struct json_object **ret, struct err *e);
/* Every key of @o must be in the NULL-ended list: else -EINVAL, naming it. */
int json_known_keys(struct json_object *o, const char *const keys[], struct err *e);

bool json_is_utf8(const void *data, size_t len);
/* A JSON string of raw bytes: invalid UTF-8 becomes U+FFFD, NUL becomes U+FFFD. NULL on no memory. */
struct json_object *json_text(const void *data, size_t len);
/* Compact text, one line, slashes not escaped; borrowed from @o until it is changed or freed. */
const char *json_line(struct json_object *o); /* NULL: no memory */
/* The same with a newline, behind what is in @out. -ENOMEM, those of buf_add(). */
int json_add_line(struct json_object *o, struct buf *out);
/* Append @len bytes of UTF-8 as one JSON string, quotes and all, escaped as json_line() does it. -ENOMEM, -EFBIG; @out
 * is then as before. */
int json_add_text(struct buf *out, const void *data, size_t len);
/* "2026-01-31T12:00:00.123Z" of CLOCK_REALTIME nanoseconds. */
void json_time(uint64_t wall_ns, char out[32]);

#endif
