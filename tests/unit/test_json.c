/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/json.h"

static int parse(const char *text)
{
	AUTO_JSON *o = NULL;
	struct err e = { 0 };
	int r = json_parse(text, strlen(text), &o, &e);

	if (r < 0)
		assert_true(e.msg[0] != '\0' && e.code == r);
	return r;
}

static void test_accepts_rfc8259(void **state)
{
	static const char *const good[] = {
		"null",
		"true",
		"false",
		"0",
		"-0",
		"1",
		"-1.5e+10",
		"1E5",
		"\"\"",
		"\"\\u00e9\\n\\\"\"",
		"[]",
		"{}",
		" [ 1 , 2 ] \n",
		"{\"a\":{\"b\":[null]}}",
		"\"\xc3\xa9\"",
		"18446744073709551615",
		"-9223372036854775808",
		"{\"a\":1,\"a\":2}",
		"\"N and I, 01 and -\"",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (parse(good[i]) != 0)
			fail_msg("refused: %s", good[i]);
}

static void test_refuses_the_rest_einval(void **state)
{
	static const char *const bad[] = {
		"",
		" ",
		"nul",
		"nulll",
		"True",
		"tRue",
		"NaN",
		"-NaN",
		"Infinity",
		"-Infinity",
		"01",
		"00",
		"-",
		"1.",
		".5",
		"+1",
		"1e",
		"1e+",
		"- 1",
		"--1",
		"0x10",
		"99999999999999999999",
		"-9223372036854775809",
		"'a'",
		"{a:1}",
		"{'a':1}",
		"[1,]",
		"{\"a\":1,}",
		"[,1]",
		"{,}",
		"[1 2]",
		"{\"a\" 1}",
		"{\"a\":}",
		"{\"a\":1 \"b\":2}",
		"[1",
		"{\"a\":1",
		"\"a",
		"\"\\",
		"\"\\x\"",
		"\"\t\"",
		"\"\n\"",
		"\"\xff\"",
		"\"\xc3\"",
		"[1] x",
		"[1][2]",
		"1 2",
		"/* c */ 1",
		"1 // c",
		"\xef\xbb\xbf{}",
		"]",
		"}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (parse(bad[i]) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
}

static void test_nul_and_depth(void **state)
{
	struct json_object *o = NULL;
	char deep[128] = "";

	(void)state;
	assert_int_equal(json_parse("1\0", 2, &o, NULL), -EINVAL);
	assert_int_equal(json_parse("{}\0{}", 5, &o, NULL), -EINVAL);
	assert_int_equal(json_parse("\"a\0b\"", 5, &o, NULL), -EINVAL);
	for (size_t d = 31; d <= 33; d++) {
		memset(deep, '[', d);
		memset(deep + d, ']', d);
		deep[2 * d] = '\0';
		assert_int_equal(parse(deep), d <= 32 ? 0 : -EINVAL);
	}
}

static void test_place_in_words(void **state)
{
	static const char text[] = "{\n  \"a\": 1,\n  \"b\": 02\n}";
	struct json_object *o = NULL;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(json_parse(text, strlen(text), &o, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "line 3, column 8"));
	assert_null(o);
}

static void test_getters(void **state)
{
	static const char text[] =
		"{\"s\":\"x\",\"n\":7,\"neg\":-1,\"big\":18446744073709551615,\"f\":1.0,\"t\":true,\"o\":{},"
		"\"a\":[],\"z\":null,\"nul\":\"a\\u0000b\"}";
	AUTO_JSON *o = NULL;
	struct json_object *sub = NULL;
	const char *s = "before";
	uint64_t u = 42;
	bool b = false;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(json_parse(text, strlen(text), &o, &e), 0);
	assert_int_equal(json_get_str(o, "absent", &s, &e), 0);
	assert_string_equal(s, "before");
	assert_int_equal(json_get_str(o, "s", &s, &e), 0);
	assert_string_equal(s, "x");
	assert_int_equal(json_get_str(o, "n", &s, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "n: must be of type string"));
	assert_int_equal(json_get_str(o, "z", &s, &e), -EINVAL);
	assert_int_equal(json_get_str(o, "nul", &s, &e), -EINVAL);
	assert_int_equal(json_get_u64(o, "absent", 0, 1, &u, &e), 0);
	assert_int_equal(u, 42);
	assert_int_equal(json_get_u64(o, "n", 7, 7, &u, &e), 0);
	assert_int_equal(u, 7);
	assert_int_equal(json_get_u64(o, "n", 8, 9, &u, &e), -EINVAL);
	assert_int_equal(json_get_u64(o, "n", 0, 6, &u, &e), -EINVAL);
	assert_int_equal(json_get_u64(o, "neg", 0, UINT64_MAX, &u, &e), -EINVAL);
	assert_int_equal(json_get_u64(o, "f", 0, UINT64_MAX, &u, &e), -EINVAL);
	assert_int_equal(u, 7);
	assert_int_equal(json_get_u64(o, "big", 0, UINT64_MAX, &u, &e), 0);
	assert_true(u == UINT64_MAX);
	assert_int_equal(json_get_bool(o, "t", &b, &e), 0);
	assert_true(b);
	assert_int_equal(json_get_bool(o, "n", &b, &e), -EINVAL);
	assert_int_equal(json_get_obj(o, "absent", json_type_object, &sub, &e), 0);
	assert_null(sub);
	assert_int_equal(json_get_obj(o, "o", json_type_object, &sub, &e), 0);
	assert_non_null(sub);
	assert_int_equal(json_get_obj(o, "a", json_type_object, &sub, &e), -EINVAL);
	assert_int_equal(json_get_obj(sub, "x", json_type_array, &sub, &e), 0);
	assert_int_equal(json_get_str(NULL, "s", &s, &e), -EINVAL);
}

static void test_known_keys(void **state)
{
	static const char *const keys[] = { "a", "b", NULL };
	AUTO_JSON *o = NULL;
	AUTO_JSON *list = json_object_new_array();
	struct err e = { 0 };

	(void)state;
	assert_int_equal(json_parse("{\"a\":1,\"c\":2}", 13, &o, &e), 0);
	assert_int_equal(json_known_keys(o, keys, &e), -EINVAL);
	assert_string_equal(e.msg, "c: unknown key");
	json_object_object_del(o, "c");
	assert_int_equal(json_known_keys(o, keys, &e), 0);
	assert_int_equal(json_known_keys(list, keys, &e), -EINVAL);
}

static void text_is(const char *in, size_t len, const char *want)
{
	AUTO_JSON *o = json_text(in, len);

	assert_non_null(o);
	assert_int_equal(json_object_get_string_len(o), strlen(want));
	assert_string_equal(json_object_get_string(o), want);
}

static void test_text_is_valid_utf8(void **state)
{
	(void)state;
	text_is("", 0, "");
	text_is("plain\n", 6, "plain\n");
	text_is("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
	text_is("a\0b", 3,
		"a\xef\xbf\xbd"
		"b");
	text_is("\xff", 1, "\xef\xbf\xbd");
	text_is("\xc0\xaf", 2, "\xef\xbf\xbd\xef\xbf\xbd");		    /* overlong */
	text_is("\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* surrogate */
	text_is("\xf4\x90\x80\x80", 4, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
	text_is("\xe2\x82", 2, "\xef\xbf\xbd"); /* cut: one for all of it */
	text_is("\xf0\x9f\x98z", 4, "\xef\xbf\xbdz");
	text_is("\xe2z", 2, "\xef\xbf\xbdz");
	text_is("x\xe2\0", 3, "x\xef\xbf\xbd\xef\xbf\xbd");
}

static void test_line_and_time(void **state)
{
	AUTO_JSON *o = json_object_new_object();
	char t[32];

	(void)state;
	json_object_object_add(o, "path", json_text("/a/b\n", 5));
	assert_string_equal(json_line(o), "{\"path\":\"/a/b\\n\"}");
	json_time(UINT64_C(1769860800123456789), t);
	assert_string_equal(t, "2026-01-31T12:00:00.123Z");
	json_time(0, t);
	assert_string_equal(t, "1970-01-01T00:00:00.000Z");
}

/* Behind what is there, with its newline, or not at all. */
static void test_add_line(void **state)
{
	AUTO_JSON *o = json_object_new_object();
	struct buf b;

	(void)state;
	buf_init(&b, 16);
	assert_int_equal(buf_adds(&b, "x\n"), 0);
	json_object_object_add(o, "a", json_object_new_string("b/c"));
	assert_int_equal(json_add_line(o, &b), 0);
	assert_string_equal(buf_str(&b), "x\n{\"a\":\"b/c\"}\n");
	assert_int_equal(json_add_line(o, &b), -EFBIG);
	assert_string_equal(buf_str(&b), "x\n{\"a\":\"b/c\"}\n");
	buf_fini(&b);
}

/* As json-c writes it, for every byte that may stand in a string, behind what is there already. */
static void test_add_text_is_as_json_c_writes_it_or_EFBIG(void **state)
{
	char text[128 + 4];
	struct buf out;

	(void)state;
	for (size_t i = 0; i < 128; i++)
		text[i] = (char)i;
	memcpy(text + 128, "\xf0\x9f\x98\x80", 4);
	buf_init(&out, 4096);
	for (size_t from = 0; from <= sizeof(text); from++) {
		AUTO_JSON *o = json_object_new_string_len(text + from, (int)(sizeof(text) - from));

		assert_int_equal(buf_adds(&out, "x"), 0);
		assert_int_equal(json_add_text(&out, text + from, sizeof(text) - from), 0);
		assert_string_equal(buf_str(&out) + 1, json_line(o));
		out.len = 0;
	}
	buf_fini(&out);
	buf_init(&out, 6);
	assert_int_equal(buf_adds(&out, "x"), 0);
	assert_int_equal(json_add_text(&out, "a\nbc", 4), -EFBIG);
	assert_string_equal(buf_str(&out), "x");
	assert_int_equal(json_add_text(&out, "a\n", 2), 0);
	buf_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_add_line),
		cmocka_unit_test(test_add_text_is_as_json_c_writes_it_or_EFBIG),
		cmocka_unit_test(test_accepts_rfc8259),
		cmocka_unit_test(test_refuses_the_rest_einval),
		cmocka_unit_test(test_nul_and_depth),
		cmocka_unit_test(test_place_in_words),
		cmocka_unit_test(test_getters),
		cmocka_unit_test(test_known_keys),
		cmocka_unit_test(test_text_is_valid_utf8),
		cmocka_unit_test(test_line_and_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
