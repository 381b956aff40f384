/* SPDX-License-Identifier: Apache-2.0 */
/* The pager's requests in one process: what a client cannot bring about. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "snapstore/pager/request_priv.h"

#define SNAPSHOT "00000000-0000-4000-8000-000000000001"

/* Its look through the store cannot begin, and so it ends before the request has gone on. */
static void open_stored_without_a_worker_EBUSY(void **state)
{
	char dir[] = "/tmp/test_pager_request.XXXXXX";
	struct pager_params params = { .listen_fd = -1, .blocks_fd = -1, .disksfd = -1, .store = "snapstore" };
	struct pg_template *t = NULL;
	struct err e = { 0 };
	struct pager *p;
	struct pool *pool;
	struct loop *l;

	(void)state;
	assert_non_null(mkdtemp(dir));
	params.rootfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	params.procfd = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(loop_new(&l), 0);
	assert_int_equal(pager_new(l, &params, &p, &e), 0);
	pool = p->pool;
	p->pool = NULL;
	assert_int_equal(pg_open_stored(p, SNAPSHOT, 1u << 20, &t, &e), -EBUSY);
	assert_null(t);
	assert_null(p->templates);
	assert_int_equal(p->ntemplates, 0);
	p->pool = pool;
	pager_free(p);
	loop_free(l);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(open_stored_without_a_worker_EBUSY),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
