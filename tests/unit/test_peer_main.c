/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/peer_main.h"

static void test_begin(void **state)
{
	struct sigaction pipe_signal;

	(void)state;
	peer_main_begin("a-test", 0027);
	assert_int_equal(sigaction(SIGPIPE, NULL, &pipe_signal), 0);
	assert_ptr_equal(pipe_signal.sa_handler, SIG_IGN);
	assert_int_equal(umask(0022), 0027);
}

static void test_numbers(void **state)
{
	static const char *const bad[] = { "", " 1", "+1", "-1", "1 ", "0x10", "one", "11", "99999999999999999999999" };
	uint64_t n;

	(void)state;
	assert_true(peer_main_number("0", 10, &n) && n == 0);
	assert_true(peer_main_number("10", 10, &n) && n == 10);
	assert_true(peer_main_number("18446744073709551615", UINT64_MAX, &n) && n == UINT64_MAX);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_false(peer_main_number(bad[i], 10, &n));
	assert_false(peer_main_number("18446744073709551616", UINT64_MAX, &n));
}

static void test_files(void **state)
{
	struct rlimit was, few, now;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = (struct rlimit){ .rlim_cur = 32, .rlim_max = was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	peer_main_files();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
	assert_int_equal(now.rlim_cur, was.rlim_max);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

static void test_listener(void **state)
{
	int fd = dup(STDIN_FILENO), gone = fd;
	struct err e = { 0 };

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(peer_main_listener(fd, &e), 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	fd_close(&fd);
	assert_int_equal(peer_main_listener(gone, &e), -EBADF);
	assert_non_null(strstr(e.msg, "is missing"));
}

static void test_stop(void **state)
{
	struct loop *loop;
	loop_id id;

	(void)state;
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(loop_defer(loop, peer_main_stop, loop, &id), 0);
	assert_int_equal(loop_run(loop), 0);
	assert_null(loop_free(loop));
}

static void test_end(void **state)
{
	struct err e = { 0 };

	(void)state;
	assert_int_equal(peer_main_end(0, &e), EXIT_SUCCESS);
	err_set(&e, -EIO, "something \"quoted\"");
	assert_int_equal(peer_main_end(-EIO, &e), EXIT_FAILURE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_begin),	 cmocka_unit_test(test_numbers), cmocka_unit_test(test_files),
		cmocka_unit_test(test_listener), cmocka_unit_test(test_stop),	 cmocka_unit_test(test_end),
	};

	return cmocka_run_group_tests_name("peer_main", tests, NULL, NULL);
}
