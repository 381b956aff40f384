/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/waitq.h"

struct fake {
	struct waiter w;
	int called;
	bool leave;	     /* stops waiting when called */
	struct fake *remove; /* takes this one out when called */
	struct fake *add;    /* adds this one when called */
	struct waitq *q;
};

static void called(struct waiter *w)
{
	struct fake *f = (struct fake *)w;

	f->called++;
	if (f->leave)
		waitq_del(&f->w);
	if (f->remove)
		waitq_del(&f->remove->w);
	if (f->add && !f->add->w.q)
		waitq_add(f->q, &f->add->w);
}

static void setup(struct loop **l, struct waitq *q, struct fake *fakes, size_t n)
{
	assert_int_equal(loop_new(l), 0);
	waitq_init(q, *l);
	for (size_t i = 0; i < n; i++) {
		fakes[i] = (struct fake){ .w.fn = called, .q = q };
		waitq_add(q, &fakes[i].w);
	}
}

static void test_wakes_merge_and_never_call_inside(void **state)
{
	struct fake f[3];
	struct waitq q;
	struct loop *l;

	(void)state;
	setup(&l, &q, f, ARRAY_LEN(f));
	waitq_wake(&q);
	waitq_wake(&q);
	for (size_t i = 0; i < ARRAY_LEN(f); i++)
		assert_int_equal(f[i].called, 0);
	loop_once(l, 0);
	for (size_t i = 0; i < ARRAY_LEN(f); i++)
		assert_int_equal(f[i].called, 1);
	loop_once(l, 0);
	assert_int_equal(f[0].called, 1);
	waitq_fini(&q);
	loop_free(l);
}

static void test_a_waiter_may_remove_any_other(void **state)
{
	struct fake f[4];
	struct waitq q;
	struct loop *l;

	(void)state;
	setup(&l, &q, f, ARRAY_LEN(f));
	f[0].remove = &f[1]; /* the next in line */
	f[3].remove = &f[0]; /* one that was called already */
	f[2].leave = true;
	waitq_wake(&q);
	loop_once(l, 0);
	assert_int_equal(f[0].called, 1);
	assert_int_equal(f[1].called, 0);
	assert_int_equal(f[2].called, 1);
	assert_int_equal(f[3].called, 1);
	assert_false(waitq_empty(&q));
	waitq_del(&f[3].w);
	assert_true(waitq_empty(&q));
	waitq_fini(&q);
	loop_free(l);
}

static void test_one_added_meanwhile_waits_for_the_next_wake(void **state)
{
	struct fake f[2], late = { .w.fn = called };
	struct waitq q;
	struct loop *l;

	(void)state;
	setup(&l, &q, f, ARRAY_LEN(f));
	f[0].add = &late;
	waitq_wake(&q);
	loop_once(l, 0);
	assert_int_equal(late.called, 0);
	waitq_wake(&q);
	loop_once(l, 0);
	assert_int_equal(late.called, 1);
	assert_int_equal(f[0].called, 2);
	waitq_fini(&q);
	assert_null(late.w.q);
	loop_free(l);
}

/* Part of what the last waiter needs no more. */
static struct part {
	struct waitq q;
	struct waiter w[2];
	unsigned calls;
} * part;

static void drop(struct waiter *w)
{
	assert_true(w == &part->w[0]);
	part->calls++;
	waitq_fini(&part->q);
	memset(part, 0x55, sizeof(*part));
	free(part);
	part = NULL;
}

static void test_the_queue_may_end_in_a_call(void **state)
{
	struct loop *l;

	(void)state;
	assert_int_equal(loop_new(&l), 0);
	part = calloc(1, sizeof(*part));
	waitq_init(&part->q, l);
	for (size_t i = 0; i < 2; i++) {
		part->w[i].fn = drop;
		waitq_add(&part->q, &part->w[i]);
	}
	waitq_wake(&part->q);
	loop_once(l, 0);
	assert_null(part);
	loop_free(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wakes_merge_and_never_call_inside),
		cmocka_unit_test(test_a_waiter_may_remove_any_other),
		cmocka_unit_test(test_one_added_meanwhile_waits_for_the_next_wake),
		cmocka_unit_test(test_the_queue_may_end_in_a_call),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
