/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/pool.h"

struct counted {
	struct pool_job job;
	atomic_int *runs;
	int *dones;
	pthread_t ran_in;
};

static void run(struct pool_job *job)
{
	struct counted *c = (struct counted *)job;

	c->ran_in = pthread_self();
	atomic_fetch_add(c->runs, 1);
}

static void done(struct pool_job *job)
{
	struct counted *c = (struct counted *)job;

	assert_false(pthread_equal(c->ran_in, pthread_self()));
	(*c->dones)++;
	free(c);
}

static struct counted *make(atomic_int *runs, int *dones)
{
	struct counted *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->job = (struct pool_job){ .run = run, .done = done };
	c->runs = runs;
	c->dones = dones;
	return c;
}

static void test_every_job_runs_once_and_is_told_once(void **state)
{
	struct loop *l;
	struct pool *p;
	atomic_int runs = 0;
	int dones = 0;

	(void)state;
	assert_int_equal(loop_new(&l), 0);
	assert_int_equal(pool_new(l, 4, 1000, &p), 0);
	for (int i = 0; i < 500; i++)
		assert_int_equal(pool_submit(p, &make(&runs, &dones)->job), 0);
	while (dones < 500)
		assert_true(loop_once(l, 5000) >= 0);
	assert_int_equal(atomic_load(&runs), 500);
	pool_free(p);
	loop_free(l);
}

static void test_freeing_ends_what_is_queued(void **state)
{
	struct loop *l;
	struct pool *p;
	atomic_int runs = 0;
	int dones = 0;

	(void)state;
	assert_int_equal(loop_new(&l), 0);
	assert_int_equal(pool_new(l, 2, 1000, &p), 0);
	for (int i = 0; i < 200; i++)
		assert_int_equal(pool_submit(p, &make(&runs, &dones)->job), 0);
	pool_free(p);
	assert_int_equal(atomic_load(&runs), 200);
	assert_int_equal(dones, 200);
	loop_free(l);
}

struct gate {
	struct pool_job job;
	pthread_mutex_t *lock;
};

static void wait_at_gate(struct pool_job *job)
{
	struct gate *g = (struct gate *)job;

	pthread_mutex_lock(g->lock);
	pthread_mutex_unlock(g->lock);
}

static void nothing(struct pool_job *job)
{
	(void)job;
}

static void test_submit_EBUSY_when_the_queue_is_full(void **state)
{
	pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct gate jobs[16];
	struct loop *l;
	struct pool *p;
	int taken = 0, r = 0;

	(void)state;
	assert_int_equal(loop_new(&l), 0);
	assert_int_equal(pool_new(l, 1, 4, &p), 0);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < ARRAY_LEN(jobs) && !r; i++) {
		jobs[i] = (struct gate){ .job = { .run = wait_at_gate, .done = nothing }, .lock = &lock };
		r = pool_submit(p, &jobs[i].job);
		taken += !r;
	}
	pthread_mutex_unlock(&lock);
	assert_int_equal(r, -EBUSY);
	/* Four wait, and at most one more has been taken out by the worker. */
	assert_in_range(taken, 4, 5);
	pool_free(p);
	loop_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_job_runs_once_and_is_told_once),
		cmocka_unit_test(test_freeing_ends_what_is_queued),
		cmocka_unit_test(test_submit_EBUSY_when_the_queue_is_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
