/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/fd.h"

#define DEPTH_MAX 32

void json_put(struct json_object **o)
{
	json_object_put(*o);
	*o = NULL;
}

static int fail_at(struct err *e, const char *text, size_t at, const char *why)
{
	size_t line = 1, column = 1;

	for (size_t i = 0; i < at; i++) {
		column++;
		if (text[i] == '\n') {
			line++;
			column = 1;
		}
	}
	return err_set(e, -EINVAL, "JSON, line %zu, column %zu: %s", line, column, why);
}

/* Bytes of the number at @p, 0 when it is none of RFC 8259's or a whole number that no 64 bits hold (json-c would take
 * "00" and "1.", and make the largest value it knows of "99999999999999999999"). */
static size_t number_len(const char *p, size_t left)
{
	size_t i = left && p[0] == '-', first = i;
	bool whole = true, fits = true;
	uint64_t v = 0;

	for (; i < left && p[i] >= '0' && p[i] <= '9'; i++)
		fits = fits && !__builtin_mul_overflow(v, 10u, &v) &&
		       !__builtin_add_overflow(v, (uint64_t)(p[i] - '0'), &v);
	if (i == first || (p[first] == '0' && i > first + 1))
		return 0;
	if (i < left && p[i] == '.') {
		size_t dot = i++;

		whole = false;
		while (i < left && p[i] >= '0' && p[i] <= '9')
			i++;
		if (i == dot + 1)
			return 0;
	}
	if (i < left && (p[i] == 'e' || p[i] == 'E')) {
		size_t digits;

		whole = false;
		i++;
		if (i < left && (p[i] == '+' || p[i] == '-'))
			i++;
		for (digits = i; i < left && p[i] >= '0' && p[i] <= '9'; i++)
			;
		if (i == digits)
			return 0;
	}
	if (whole && (!fits || (first && v > (uint64_t)INT64_MAX + 1)))
		return 0;
	return i;
}

/* What json-c lets pass even when strict, found by walking over the text once: control characters inside of strings,
 * and outside of them odd numbers, NaN, Infinity and single quotes. Everything else is the tokener's business. */
static const char *lenient_at(const char *text, size_t len, size_t *ret_at)
{
	bool in_string = false;
	size_t n;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		*ret_at = i;
		if (in_string) {
			if (c < 0x20)
				return "control character in a string";
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == 'N' || c == 'I') {
			return "NaN and Infinity are not JSON";
		} else if (c == '\'') {
			return "single quote";
		} else if (c == '\0') {
			return "NUL byte";
		} else if (c == '-' || (c >= '0' && c <= '9')) {
			n = number_len(text + i, len - i);
			if (n == 0)
				return "not a number, or one that is too large";
			i += n - 1;
		}
	}
	return NULL;
}

int json_parse(const char *text, size_t len, struct json_object **ret, struct err *e)
{
	AUTO_JSON *o = NULL;
	struct json_tokener *tok;
	enum json_tokener_error why;
	const char *lenient;
	size_t at, end;

	if (len > INT_MAX)
		return err_set(e, -EINVAL, "JSON: longer than 2 GiB");
	lenient = lenient_at(text, len, &at);
	if (lenient)
		return fail_at(e, text, at, lenient);
	tok = json_tokener_new_ex(DEPTH_MAX);
	if (!tok)
		return err_set(e, -ENOMEM, "JSON: no memory");
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	o = json_tokener_parse_ex(tok, text, (int)len);
	why = json_tokener_get_error(tok);
	end = json_tokener_get_parse_end(tok);
	if (why == json_tokener_continue) {
		/* A number, or a text that stops too early: the NUL says that nothing follows. */
		o = json_tokener_parse_ex(tok, "", 1);
		why = json_tokener_get_error(tok);
		end = len;
	}
	json_tokener_free(tok);
	if (why == json_tokener_continue)
		return fail_at(e, text, len, "the text ends too early");
	if (why != json_tokener_success)
		return fail_at(e, text, end, json_tokener_error_desc(why));
	while (end < len && strchr(" \t\r\n", text[end]))
		end++;
	if (end < len)
		return fail_at(e, text, end, "something follows the value");
	*ret = o;
	o = NULL;
	return 0;
}

/* 1 and *ret when @key is there, 0 when absent, -EINVAL when of another type. */
static int get_typed(struct json_object *o, const char *key, enum json_type type, struct json_object **ret,
		     struct err *e)
{
	struct json_object *v;

	if (!json_object_is_type(o, json_type_object))
		return err_set(e, -EINVAL, "%s: not inside an object", key);
	if (!json_object_object_get_ex(o, key, &v))
		return 0;
	if (json_object_get_type(v) != type)
		return err_set(e, -EINVAL, "%s: must be of type %s, not %s", key, json_type_to_name(type),
			       json_type_to_name(json_object_get_type(v)));
	*ret = v;
	return 1;
}

int json_get_str(struct json_object *o, const char *key, const char **ret, struct err *e)
{
	struct json_object *v = NULL;
	int r = get_typed(o, key, json_type_string, &v, e);

	if (r <= 0)
		return r;
	/* Callers take it for a C string: a NUL inside would hide what follows. */
	if (strlen(json_object_get_string(v)) != (size_t)json_object_get_string_len(v))
		return err_set(e, -EINVAL, "%s: holds a NUL", key);
	*ret = json_object_get_string(v);
	return 0;
}

int json_get_u64(struct json_object *o, const char *key, uint64_t min, uint64_t max, uint64_t *ret, struct err *e)
{
	struct json_object *v = NULL;
	uint64_t u;
	int r = get_typed(o, key, json_type_int, &v, e);

	if (r <= 0)
		return r;
	/* json_object_get_uint64() makes 0 of a negative number. */
	u = json_object_get_uint64(v);
	if (json_object_get_int64(v) < 0 || u < min || u > max)
		return err_set(e, -EINVAL, "%s: must be a whole number from %llu to %llu", key, (unsigned long long)min,
			       (unsigned long long)max);
	*ret = u;
	return 0;
}

int json_get_bool(struct json_object *o, const char *key, bool *ret, struct err *e)
{
	struct json_object *v = NULL;
	int r = get_typed(o, key, json_type_boolean, &v, e);

	if (r <= 0)
		return r;
	*ret = json_object_get_boolean(v);
	return 0;
}

int json_get_obj(struct json_object *o, const char *key, enum json_type type, struct json_object **ret, struct err *e)
{
	int r = get_typed(o, key, type, ret, e);

	return r < 0 ? r : 0;
}

int json_known_keys(struct json_object *o, const char *const keys[], struct err *e)
{
	if (!json_object_is_type(o, json_type_object))
		return err_set(e, -EINVAL, "must be an object, not %s", json_type_to_name(json_object_get_type(o)));
	json_object_object_foreach(o, key, v) {
		size_t i;

		(void)v;
		for (i = 0; keys[i] && strcmp(keys[i], key) != 0; i++)
			;
		if (!keys[i])
			return err_set(e, -EINVAL, "%s: unknown key", key);
	}
	return 0;
}

/* Bytes of the UTF-8 character at @p (RFC 3629: no surrogates, nothing overlong, up to U+10FFFF). When it is not one:
 * 0, and *ret_bad is how many bytes to replace by one U+FFFD (what the Unicode standard calls a maximal subpart). */
static size_t utf8_len(const uint8_t *p, size_t left, size_t *ret_bad)
{
	uint8_t low = 0x80, high = 0xbf;
	size_t n;

	*ret_bad = 1;
	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (p[0] == 0xe0)
		low = 0xa0;
	else if (p[0] == 0xed)
		high = 0x9f;
	else if (p[0] == 0xf0)
		low = 0x90;
	else if (p[0] == 0xf4)
		high = 0x8f;
	for (size_t i = 1; i < n; i++) {
		if (i >= left || p[i] < low || p[i] > high)
			return 0;
		low = 0x80;
		high = 0xbf;
		*ret_bad = i + 1;
	}
	return n;
}

bool json_is_utf8(const void *data, size_t len)
{
	const uint8_t *p = data;
	size_t n, bad;

	for (size_t at = 0; at < len; at += n) {
		n = utf8_len(p + at, len - at, &bad);
		if (!n)
			return false;
	}
	return true;
}

struct json_object *json_text(const void *data, size_t len)
{
	const uint8_t *p = data;
	struct json_object *o = NULL;
	struct buf out;

	if (len > INT_MAX / 3) /* each byte may become three */
		return NULL;
	buf_init(&out, INT_MAX);
	for (size_t at = 0; at < len;) {
		size_t start = at, n, bad = 1;

		/* Runs of good characters in one piece: this is every line of every command's output. */
		while (at < len && p[at] != 0 && (n = utf8_len(p + at, len - at, &bad)) > 0)
			at += n;
		if (buf_add(&out, p + start, at - start) < 0)
			goto out;
		if (at == len)
			break;
		if (buf_add(&out, "\xef\xbf\xbd", 3) < 0)
			goto out;
		at += p[at] == 0 ? 1 : bad;
	}
	o = json_object_new_string_len(out.len ? (const char *)out.data : "", (int)out.len);
out:
	buf_fini(&out);
	return o;
}

const char *json_line(struct json_object *o)
{
	return json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE);
}

int json_add_line(struct json_object *o, struct buf *out)
{
	const char *line = json_line(o);

	return line ? buf_addf(out, "%s\n", line) : -ENOMEM;
}

/* What stands for @c in a string; NULL: itself. */
static const char *escape(uint8_t c, char hex[8])
{
	switch (c) {
	case '"':
		return "\\\"";
	case '\\':
		return "\\\\";
	case '\b':
		return "\\b";
	case '\n':
		return "\\n";
	case '\r':
		return "\\r";
	case '\t':
		return "\\t";
	case '\f':
		return "\\f";
	default:
		if (c >= 0x20)
			return NULL;
		snprintf(hex, 8, "\\u%04x", c);
		return hex;
	}
}

int json_add_text(struct buf *out, const void *data, size_t len)
{
	const uint8_t *p = data;
	const size_t was = out->len;
	int r = buf_adds(out, "\"");

	for (size_t at = 0, start = 0; r == 0 && start < len; start = ++at) {
		const char *instead = NULL;
		char hex[8];

		while (at < len && !(instead = escape(p[at], hex)))
			at++;
		r = buf_add(out, p + start, at - start);
		if (r == 0 && instead)
			r = buf_adds(out, instead);
	}
	if (r == 0)
		r = buf_adds(out, "\"");
	if (r < 0)
		out->len = was;
	return r;
}

void json_time(uint64_t ns, char out[32])
{
	time_t s = (time_t)(ns / 1000000000u);
	struct tm tm;
	size_t n;

	gmtime_r(&s, &tm);
	n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out + n, 32 - n, ".%03uZ", (unsigned int)(ns / 1000000u % 1000u));
}
