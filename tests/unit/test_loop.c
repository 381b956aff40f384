/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/loop.h"

struct fix {
	struct loop *l;
	int pipe[2];
	loop_id id, id2;
	unsigned int calls, calls2;
	char order[64];
};

static int setup(void **state)
{
	static struct fix f;

	memset(&f, 0, sizeof(f));
	assert_int_equal(loop_new(&f.l), 0);
	assert_int_equal(pipe2(f.pipe, O_CLOEXEC | O_NONBLOCK), 0);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;

	assert_null(loop_free(f->l));
	assert_null(loop_free(NULL));
	fd_close(&f->pipe[0]);
	fd_close(&f->pipe[1]);
	return 0;
}

static void count_io(void *arg, uint32_t events)
{
	(void)events;
	((struct fix *)arg)->calls++;
}

static void count(void *arg)
{
	((struct fix *)arg)->calls++;
}

/* -- descriptors ---------------------------------------------------------------------------------- */

static void test_level_triggered_and_mod(void **state)
{
	struct fix *f = *state;

	assert_int_equal(loop_add(f->l, f->pipe[0], EPOLLIN, count_io, f, &f->id), 0);
	assert_true(f->id != 0);
	assert_int_equal(loop_once(f->l, 0), 0);
	assert_int_equal(f->calls, 0);
	assert_int_equal(write(f->pipe[1], "x", 1), 1);
	loop_once(f->l, 0);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 2);
	assert_int_equal(loop_mod(f->l, f->id, 0), 0);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 2);
	assert_int_equal(loop_mod(f->l, f->id, EPOLLIN), 0);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 3);
	loop_del(f->l, &f->id);
	assert_true(f->id == 0);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 3);
	loop_del(f->l, &f->id); /* 0 is fine */
}

static void test_add_eexist_and_eperm(void **state)
{
	struct fix *f = *state;
	AUTO_FD file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_int_equal(loop_add(f->l, f->pipe[0], EPOLLIN, count_io, f, &f->id), 0);
	assert_int_equal(loop_add(f->l, f->pipe[0], EPOLLIN, count_io, f, &f->id2), -EEXIST);
	assert_true(f->id2 == 0);
	assert_int_equal(loop_add(f->l, file, EPOLLIN, count_io, f, &f->id2), -EPERM);
	assert_int_equal(loop_mod(f->l, 12345, EPOLLIN), -ENOENT);
	loop_del(f->l, &f->id);
}

static void del_both(void *arg, uint32_t events)
{
	struct fix *f = arg;

	(void)events;
	f->calls++;
	loop_del(f->l, &f->id);
	loop_del(f->l, &f->id2);
}

/* Two are ready in one round; the first removes both: the second's event is dropped. */
static void test_del_in_the_same_round(void **state)
{
	struct fix *f = *state;
	AUTO_FD other = dup(f->pipe[0]);

	assert_int_equal(loop_add(f->l, f->pipe[0], EPOLLIN, del_both, f, &f->id), 0);
	assert_int_equal(loop_add(f->l, other, EPOLLIN, del_both, f, &f->id2), 0);
	assert_int_equal(write(f->pipe[1], "x", 1), 1);
	loop_once(f->l, 0);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 1);
}

static void swap(void *arg, uint32_t events)
{
	struct fix *f = arg;

	(void)events;
	f->calls++;
	/* The slot of the removed one is used again at once, by one that is not ready. */
	loop_del(f->l, &f->id2);
	loop_del(f->l, &f->id);
	assert_int_equal(loop_add(f->l, f->pipe[1], 0, count_io, f, &f->id), 0);
}

static void test_slot_used_again_in_the_same_round(void **state)
{
	struct fix *f = *state;
	AUTO_FD other = dup(f->pipe[0]);

	assert_int_equal(loop_add(f->l, f->pipe[0], EPOLLIN, swap, f, &f->id), 0);
	assert_int_equal(loop_add(f->l, other, EPOLLIN, swap, f, &f->id2), 0);
	assert_int_equal(write(f->pipe[1], "x", 1), 1);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 1);
	loop_del(f->l, &f->id);
}

/* More sources than the table begins with, added by a callback: it moves in memory under the caller. */
static void add_many(void *arg, uint32_t events)
{
	struct fix *f = arg;
	loop_id id;

	(void)events;
	loop_del(f->l, &f->id);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(loop_timer(f->l, 0, count, f, &id), 0);
}

static void test_table_grows(void **state)
{
	struct fix *f = *state;

	assert_int_equal(write(f->pipe[1], "x", 1), 1);
	assert_int_equal(loop_add(f->l, f->pipe[0], EPOLLIN, add_many, f, &f->id), 0);
	loop_once(f->l, 0);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 1000);
}

/* -- timers --------------------------------------------------------------------------------------- */

struct mark {
	struct fix *f;
	char c;
};

static void mark(void *arg)
{
	const struct mark *m = arg;
	size_t n = strlen(m->f->order);

	m->f->order[n] = m->c;
	m->f->order[n + 1] = '\0';
}

static void test_timers_in_order(void **state)
{
	struct fix *f = *state;
	struct mark m[6];
	const uint64_t at[6] = { 50, 10, 40, 10, 30, 20 };
	uint64_t now = now_ns();
	loop_id ids[6];

	for (size_t i = 0; i < 6; i++) {
		m[i] = (struct mark){ f, (char)('a' + i) };
		assert_int_equal(loop_timer(f->l, now - 1000 + at[i], mark, &m[i], &ids[i]), 0);
	}
	loop_del(f->l, &ids[2]);
	loop_once(f->l, 0);
	assert_string_equal(f->order, "bdfea"); /* by time; b before d, which came later */
	loop_del(f->l, &ids[1]);		/* fired: fine */
}

static void test_heap_with_many(void **state)
{
	struct fix *f = *state;
	static loop_id ids[500];
	uint64_t far = now_ns() + 3600u * UINT64_C(1000000000);

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		uint64_t at = i % 3 == 0 ? i : far + (i * 7919) % 1000;

		assert_int_equal(loop_timer(f->l, at, count, f, &ids[i]), 0);
	}
	for (size_t i = 1; i < ARRAY_LEN(ids); i += 3) /* from the middle of the heap */
		loop_del(f->l, &ids[i]);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 167);
	for (size_t i = 2; i < ARRAY_LEN(ids); i += 3)
		loop_del(f->l, &ids[i]);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 167);
}

static void again(void *arg)
{
	struct fix *f = arg;

	f->calls++;
	assert_int_equal(loop_timer(f->l, 0, again, f, &f->id), 0);
}

static void test_due_timer_waits_for_the_next_round(void **state)
{
	struct fix *f = *state;

	assert_int_equal(loop_timer(f->l, 0, again, f, &f->id), 0);
	loop_once(f->l, -1);
	assert_int_equal(f->calls, 1);
	loop_once(f->l, -1);
	assert_int_equal(f->calls, 2);
	loop_del(f->l, &f->id);
}

static void test_timer_is_not_early(void **state)
{
	struct fix *f = *state;
	uint64_t at = now_ns() + 3500000;

	assert_int_equal(loop_timer(f->l, at, count, f, &f->id), 0);
	while (!f->calls)
		loop_once(f->l, -1);
	assert_true(now_ns() >= at);
}

/* -- deferred calls ------------------------------------------------------------------------------- */

static void defer_more(void *arg)
{
	struct fix *f = arg;

	f->calls++;
	assert_int_equal(loop_defer(f->l, count, f, NULL), 0);
}

static void test_defer_in_order_never_inside(void **state)
{
	struct fix *f = *state;
	struct mark a = { f, 'a' }, b = { f, 'b' }, c = { f, 'c' };
	loop_id id;

	assert_int_equal(loop_defer(f->l, mark, &a, NULL), 0);
	assert_int_equal(loop_defer(f->l, mark, &b, &id), 0);
	assert_int_equal(loop_defer(f->l, mark, &c, NULL), 0);
	loop_del(f->l, &id);
	assert_string_equal(f->order, "");
	loop_once(f->l, -1); /* does not wait */
	assert_string_equal(f->order, "ac");
	assert_int_equal(loop_defer(f->l, defer_more, f, NULL), 0);
	loop_once(f->l, -1);
	assert_int_equal(f->calls, 1);
	loop_once(f->l, -1);
	assert_int_equal(f->calls, 2);
}

/* -- signals, wake-ups, running ------------------------------------------------------------------- */

static void on_usr1(void *arg, const struct signalfd_siginfo *si)
{
	struct fix *f = arg;

	assert_int_equal(si->ssi_signo, SIGUSR1);
	f->calls++;
	loop_stop(f->l);
}

static void on_usr2(void *arg, const struct signalfd_siginfo *si)
{
	(void)si;
	((struct fix *)arg)->calls2++;
}

static void test_signals(void **state)
{
	struct fix *f = *state;

	assert_int_equal(loop_signal(f->l, SIGUSR2, on_usr2, f), 0);
	assert_int_equal(loop_signal(f->l, SIGUSR1, on_usr1, f), 0);
	assert_int_equal(loop_signal(f->l, SIGUSR1, on_usr1, f), -EEXIST);
	assert_int_equal(loop_signal(f->l, 0, on_usr1, f), -EINVAL);
	assert_int_equal(loop_signal(f->l, 1000, on_usr1, f), -EINVAL);
	raise(SIGUSR1);
	raise(SIGUSR2);
	assert_int_equal(loop_run(f->l), 0);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->calls2, 1);
}

static void wake_fn(void *arg)
{
	struct fix *f = arg;

	f->calls++;
	loop_stop(f->l);
}

static void *wake_thread(void *arg)
{
	loop_wake(arg);
	return NULL;
}

static void test_wake_from_another_thread(void **state)
{
	struct fix *f = *state;
	pthread_t t;

	assert_int_equal(loop_set_wake(f->l, wake_fn, f), 0);
	assert_int_equal(pthread_create(&t, NULL, wake_thread, f->l), 0);
	assert_int_equal(loop_run(f->l), 0);
	pthread_join(t, NULL);
	assert_int_equal(f->calls, 1);
	loop_wake(f->l);
	loop_wake(f->l);
	loop_once(f->l, 0);
	loop_once(f->l, 0);
	assert_int_equal(f->calls, 2); /* merged */
}

static void test_clocks(void **state)
{
	uint64_t a = now_ns();

	(void)state;
	assert_true(now_ns() >= a);
	assert_true(wall_ns() > UINT64_C(1700000000000000000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_level_triggered_and_mod, setup, teardown),
		cmocka_unit_test_setup_teardown(test_add_eexist_and_eperm, setup, teardown),
		cmocka_unit_test_setup_teardown(test_del_in_the_same_round, setup, teardown),
		cmocka_unit_test_setup_teardown(test_slot_used_again_in_the_same_round, setup, teardown),
		cmocka_unit_test_setup_teardown(test_table_grows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timers_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_heap_with_many, setup, teardown),
		cmocka_unit_test_setup_teardown(test_due_timer_waits_for_the_next_round, setup, teardown),
		cmocka_unit_test_setup_teardown(test_timer_is_not_early, setup, teardown),
		cmocka_unit_test_setup_teardown(test_defer_in_order_never_inside, setup, teardown),
		cmocka_unit_test_setup_teardown(test_signals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wake_from_another_thread, setup, teardown),
		cmocka_unit_test(test_clocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
