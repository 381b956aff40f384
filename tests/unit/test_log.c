/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/loop.h"

static int saved_stderr = -1, rd = -1;

/* stderr into a pipe for the time of one test. */
static int setup(void **state)
{
	int p[2];

	(void)state;
	assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
	saved_stderr = dup(2);
	dup2(p[1], 2);
	close(p[1]);
	rd = p[0];
	log_init("test", LOG_L_INFO);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	dup2(saved_stderr, 2);
	fd_close(&saved_stderr);
	fd_close(&rd);
	return 0;
}

static const char *logged(void)
{
	static char text[8192];
	ssize_t n = read(rd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void test_line(void **state)
{
	const char *t;

	(void)state;
	errno = EXDEV;
	log_info("vm=%s event=started", "a");
	assert_int_equal(errno, EXDEV);
	t = logged();
	assert_int_equal(strncmp(t, "time=2", 6), 0);
	assert_non_null(strstr(t, "Z level=info prog=test vm=a event=started\n"));
	log_debug("not shown");
	assert_string_equal(logged(), "");
	log_set_level(LOG_L_DEBUG);
	log_debug("a\nb\x1b");
	assert_non_null(strstr(logged(), "level=debug prog=test a?b?\n"));
}

static void test_long_line_is_cut(void **state)
{
	char big[4000];
	const char *t;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	log_err("%s", big);
	t = logged();
	assert_true(strlen(t) < 1300);
	assert_int_equal(t[strlen(t) - 1], '\n');
}

static void test_repeats_are_counted(void **state)
{
	uint64_t end = now_ns() + 1100000000u;
	const char *t;

	(void)state;
	log_warn("same");
	log_warn("other");
	for (int i = 0; i < 5; i++) {
		log_warn("same");
		log_warn("other");
	}
	t = logged();
	assert_non_null(strstr(t, "prog=test same\n"));
	assert_null(strstr(strstr(t, "same") + 4, "same"));
	assert_null(strstr(strstr(t, "other") + 5, "other"));
	/* The second over, the next line tells how many there were. */
	while (now_ns() < end)
		usleep(10000);
	log_warn("next");
	t = logged();
	assert_non_null(strstr(t, "same repeated=5\n"));
	assert_non_null(strstr(t, "other repeated=5\n"));
	assert_non_null(strstr(t, "prog=test next\n"));
	/* More different lines than are remembered: all are printed. */
	for (int i = 0; i < 20; i++)
		log_warn("line %d", i);
	t = logged();
	assert_non_null(strstr(t, "line 0\n"));
	assert_non_null(strstr(t, "line 19\n"));
}

static void test_levels_and_quotes(void **state)
{
	enum log_level level;
	char out[16];

	(void)state;
	assert_int_equal(log_level_parse("debug", &level), 0);
	assert_int_equal(level, LOG_L_DEBUG);
	assert_int_equal(log_level_parse("loud", &level), -EINVAL);
	assert_string_equal(log_quote("a\"b\\c\n", out, sizeof(out)), "\"a\\\"b\\\\c?\"");
	assert_string_equal(log_quote("long long long text", out, 8), "\"long \"");
	assert_string_equal(log_quote("\"\"\"\"", out, 6), "\"\\\"\"");
	assert_string_equal(log_quote("x", out, 2), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_line_is_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_repeats_are_counted, setup, teardown),
		cmocka_unit_test(test_levels_and_quotes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
