/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches a terminal: stripped text, tables, progress, the way out of a shell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "tools/crucible/printable.h"
#include "tools/crucible/progress.h"
#include "tools/crucible/table.h"
#include "tools/crucible/terminal.h"

/* @text in pieces of @piece bytes; the result is malloc'd. */
static char *strip(const char *text, size_t len, size_t piece)
{
	struct printable p = { 0 };
	struct buf out;
	char *copy;

	buf_init(&out, 1 << 20);
	for (size_t at = 0; at < len; at += piece)
		assert_int_equal(printable_add(&p, text + at, len - at < piece ? len - at : piece, &out), 0);
	assert_int_equal(printable_end(&p, &out), 0);
	copy = strdup(buf_str(&out));
	buf_fini(&out);
	return copy;
}

static const struct {
	const char *in, *out;
} streams[] = {
	{ "plain\n\ttext\r\n", "plain\n\ttext\r\n" },
	{ "\x1b[31mred\x1b[0m", "[31mred[0m" },
	{ "\x1b]0;title\x07", "]0;title" },
	{ "a\bb\x7f"
	  "c\x0e\x0f",
	  "abc" },
	{ "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8e\x89", "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8e\x89" },
	{ "\xc2\x9b"
	  "31m",
	  "31m" },		    /* C1 CSI as UTF-8 */
	{ "\xc2\xa0", "\xc2\xa0" }, /* the first after C1 */
	{ "\x9b"
	  "31m",
	  "\xef\xbf\xbd"
	  "31m" }, /* C1 CSI as one byte is no UTF-8 */
	{ "\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" }, /* overlong */
	{ "\xe0\x80", "\xef\xbf\xbd\xef\xbf\xbd" },
	{ "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },		    /* a surrogate */
	{ "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" }, /* above U+10FFFF */
	{ "\xe2\x82"
	  "a",
	  "\xef\xbf\xbd"
	  "a" },
	{ "cut \xe2\x82", "cut \xef\xbf\xbd" },
	{ "\xe2\x1b[m", "\xef\xbf\xbd[m" }, /* an escape hidden in a character */
	{ "", "" },
};

static void test_streams_are_stripped_whatever_the_pieces(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
		for (size_t piece = 1; piece <= 7; piece++) {
			char *got = strip(streams[i].in, strlen(streams[i].in), piece);

			if (strcmp(got, streams[i].out) != 0)
				fail_msg("case %zu in pieces of %zu: \"%s\"", i, piece, got);
			free(got);
		}
	}
}

/* Every byte, alone and behind a lead byte: no C0 (but three) and no DEL gets through, ever. */
static void test_no_control_gets_through(void **state)
{
	static const char leads[] = { 'a', '\xc2', '\xe2', '\xf0', '\x80' };

	(void)state;
	for (unsigned c = 0; c < 256; c++) {
		for (size_t l = 0; l < sizeof(leads); l++) {
			char text[2] = { leads[l], (char)c };
			char *got = strip(text, 2, 1);

			for (const char *p = got; *p; p++) {
				unsigned char b = (unsigned char)*p;

				assert_true((b >= 0x20 && b != 0x7f) || b == '\n' || b == '\t' || b == '\r');
			}
			assert_null(strstr(got, "\xc2\x9b"));
			free(got);
		}
	}
}

static void test_lines(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "plain", "plain" }, { "two\nlines\t", "two?lines?" }, { "\x1b[31m", "?[31m" },
		{ "\xc2\x9b", "??" }, { "\xc3\xbc", "\xc3\xbc" },	{ "cut\xe2\x82", "cut??" },
		{ "", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char text[32];

		strcpy(text, cases[i].in);
		assert_string_equal(printable_line(text), cases[i].out);
	}
}

static void test_table(void **state)
{
	struct table t;
	struct buf out;

	(void)state;
	buf_init(&out, 4096);
	assert_int_equal(table_begin(&t, (const char *[]){ "ID", "STATUS", "FROM", NULL }), 0);
	assert_int_equal(table_row(&t, (const char *[]){ "a", "ready", "profile:base" }), 0);
	assert_int_equal(table_row(&t, (const char *[]){ "longer-name", NULL, "gr\xc3\xbc\x1b[m" }), 0);
	assert_int_equal(table_row(&t, (const char *[]){ "\xc3\xbc", "x", "" }), 0);
	assert_int_equal(table_format(&t, &out), 0);
	assert_string_equal(buf_str(&out), "ID           STATUS  FROM\n"
					   "a            ready   profile:base\n"
					   "longer-name  -       gr\xc3\xbc?[m\n"
					   "\xc3\xbc            x       -\n");
	table_end(&t);
	buf_fini(&out);
}

static void test_short_texts(void **state)
{
	char out[24];

	(void)state;
	assert_string_equal(table_age(0, out), "0s");
	assert_string_equal(table_age(119, out), "119s");
	assert_string_equal(table_age(120, out), "2m");
	assert_string_equal(table_age(7200, out), "2h");
	assert_string_equal(table_age(86400 * 3, out), "3d");
	assert_string_equal(table_size(0, out), "0B");
	assert_string_equal(table_size(1023, out), "1023B");
	assert_string_equal(table_size(1536, out), "1.5K");
	assert_string_equal(table_size(64u << 20, out), "64M");
	assert_string_equal(table_size(UINT64_MAX, out), "15E");
}

static void test_progress_lines(void **state)
{
	const char *words;
	unsigned percent;
	char out[128];

	(void)state;
	assert_true(progress_parse("progress 42 unpacking", &percent, &words));
	assert_int_equal(percent, 42);
	assert_string_equal(words, "unpacking");
	assert_true(progress_parse("progress 100", &percent, &words));
	assert_string_equal(words, "");
	assert_true(progress_parse("progress 99999999999 x", &percent, &words));
	assert_int_equal(percent, 100);
	assert_false(progress_parse("progress x", &percent, &words));
	assert_false(progress_parse("progress 4x", &percent, &words));
	assert_false(progress_parse("something else", &percent, &words));

	progress_bar(50, "half", 80, out, sizeof(out));
	assert_string_equal(out, "[############            ]  50% half");
	progress_bar(0, "", 80, out, sizeof(out));
	assert_string_equal(out, "[                        ]   0% ");
	progress_bar(100, "a long line that does not fit", 40, out, sizeof(out));
	assert_int_equal(strlen(out), 39);
	progress_bar(100, "\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 35, out, sizeof(out));
	assert_true(strlen(out) < 35);
	assert_int_equal((unsigned char)out[strlen(out) - 1], 0xbc); /* no half character */
}

/* @typed in one piece, and byte by byte, gives @out. */
static void assert_escape(const char *typed, const char *expected, bool leaves)
{
	for (size_t piece = 1; piece <= strlen(typed); piece = piece == strlen(typed) ? piece + 1 : strlen(typed)) {
		struct escape s = { 0 };
		char out[64];
		size_t n = 0;
		bool leave = false;

		for (size_t at = 0; at < strlen(typed) && !leave; at += piece)
			n += escape_filter(&s, typed + at, piece, out + n, &leave);
		out[n] = '\0';
		assert_string_equal(out, expected);
		assert_int_equal(leave, leaves);
	}
}

static void test_escape(void **state)
{
	(void)state;
	assert_escape("ls\r", "ls\r", false);
	assert_escape("~.", "", true);
	assert_escape("ls\r~.more", "ls\r", true);
	assert_escape("a~.", "a~.", false);
	assert_escape("~~.", "~.", false);
	assert_escape("~x", "~x", false);
	assert_escape("cd ~\r", "cd ~\r", false);
	assert_escape("~/bin\r", "~/bin\r", false);
	assert_escape("abc\x03~.", "abc\x03", true);
	assert_escape("~\r~.", "~\r", true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_streams_are_stripped_whatever_the_pieces),
		cmocka_unit_test(test_no_control_gets_through),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_table),
		cmocka_unit_test(test_short_texts),
		cmocka_unit_test(test_progress_lines),
		cmocka_unit_test(test_escape),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
