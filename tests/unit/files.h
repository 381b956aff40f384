/* SPDX-License-Identifier: Apache-2.0 */
/* Small files of tests that play a tree with a folder. Thread: any; blocks. A failure fails the test. */
#ifndef CRUCIBLE_TEST_FILES_H
#define CRUCIBLE_TEST_FILES_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"

/* @path below @dirfd becomes @text; made when it is not there. */
static inline void put_file(int dirfd, const char *path, const char *text)
{
	int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static inline void assert_file(int dirfd, const char *path, const char *expected)
{
	char *text;

	if (fd_slurp(dirfd, path, 1 << 20, &text, NULL) < 0)
		fail_msg("%s cannot be read", path);
	assert_string_equal(text, expected);
	free(text);
}

#endif
