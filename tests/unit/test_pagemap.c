/* SPDX-License-Identifier: Apache-2.0 */
/* pagemap: which pages are our own, with and without the kernel's call; given back ones are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pagemap.h"

#define PAGES 64u

struct fix {
	char *p;
	int pagemap, file;
};

static int setup(void **state)
{
	static struct fix f;

	f.file = memfd_create("pages", MFD_CLOEXEC);
	f.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	assert_true(f.file >= 0 && f.pagemap >= 0);
	assert_int_equal(ftruncate(f.file, (off_t)PAGES * PAGEMAP_PAGE), 0);
	f.p = mmap(NULL, (size_t)PAGES * PAGEMAP_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, f.file, 0);
	assert_ptr_not_equal(f.p, MAP_FAILED);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;

	munmap(f->p, (size_t)PAGES * PAGEMAP_PAGE);
	fd_close(&f->file);
	fd_close(&f->pagemap);
	return 0;
}

struct runs {
	uint32_t first[PAGES], n[PAGES];
	size_t count;
};

static int add(void *arg, uint32_t first, uint32_t n, struct err *e)
{
	struct runs *r = arg;

	(void)e;
	assert_true(r->count < PAGES);
	r->first[r->count] = first;
	r->n[r->count++] = n;
	return 0;
}

static void touch(struct fix *f, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		f->p[(size_t)i * PAGEMAP_PAGE] = 1;
}

static uint64_t own(struct fix *f)
{
	struct err e = { 0 };
	uint64_t n = 0;

	assert_int_equal(pagemap_count_own(f->pagemap, (uintptr_t)f->p, (uint64_t)PAGES * PAGEMAP_PAGE, &n, &e), 0);
	return n;
}

/* What was only read is the file's. */
static void test_runs(void **state)
{
	static const bool calls[] = { true, false };
	struct fix *f = *state;
	struct err e = { 0 };

	touch(f, 3, 2);
	touch(f, 10, 1);
	assert_int_equal(*(volatile char *)(f->p + (size_t)20 * PAGEMAP_PAGE), 0);
	for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
		struct runs r = { 0 };

		assert_int_equal(
			pagemap_own(f->pagemap, (uintptr_t)f->p, (uint64_t)PAGES * PAGEMAP_PAGE, calls[i], add, &r, &e),
			0);
		assert_int_equal(r.count, 2);
		assert_int_equal(r.first[0], 3);
		assert_int_equal(r.n[0], 2);
		assert_int_equal(r.first[1], 10);
		assert_int_equal(r.n[1], 1);
	}
	assert_int_equal(own(f), 3);
}

/* As a balloon gives it back: the page shows the file again and is not counted. */
static void test_given_back(void **state)
{
	struct fix *f = *state;

	assert_int_equal(pwrite(f->file, "file", 4, (off_t)5 * PAGEMAP_PAGE), 4);
	touch(f, 4, 4);
	assert_int_equal(own(f), 4);
	assert_int_equal(madvise(f->p + (size_t)5 * PAGEMAP_PAGE, PAGEMAP_PAGE, MADV_DONTNEED), 0);
	assert_int_equal(own(f), 3);
	assert_memory_equal(f->p + (size_t)5 * PAGEMAP_PAGE, "file", 4);
}

static int refuse(void *arg, uint32_t first, uint32_t n, struct err *e)
{
	(void)arg;
	(void)first;
	(void)n;
	return err_set(e, -EDOM, "enough");
}

static void test_what_the_function_returns(void **state)
{
	struct fix *f = *state;
	struct err e = { 0 };

	touch(f, 0, 1);
	assert_int_equal(pagemap_own(f->pagemap, (uintptr_t)f->p, PAGEMAP_PAGE, true, refuse, NULL, &e), -EDOM);
	assert_string_equal(e.msg, "enough");
}

static void test_of_a_process_that_is_gone(void **state)
{
	struct fix *f = *state;
	struct err e = { 0 };
	char path[64];
	uint64_t n;
	int pipes[2], fd;
	pid_t pid;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		close(pipes[1]);
		_exit(read(pipes[0], path, 1) != 0);
	}
	assert_true(pid > 0);
	close(pipes[0]);
	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(pipes[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(pagemap_count_own(fd, (uintptr_t)f->p, PAGEMAP_PAGE, &n, &e), -ESRCH);
	assert_true(*e.msg);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_runs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_given_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_the_function_returns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_of_a_process_that_is_gone, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
