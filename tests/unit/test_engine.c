/* SPDX-License-Identifier: Apache-2.0 */
/* The real thing: a guest boots cold, is saved with its memory and disk, and goes on in engines that were started for
 * no one in particular; its parent goes on too, over the same pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "engine_rig.h"

static struct rig *need(uint32_t memory_mib, uint32_t vcpus, uid_t uid)
{
	const char *must = getenv("CRUCIBLE_MUST_RUN"), *why;
	struct rig *r = rig_new(memory_mib, vcpus, uid, &why);

	if (r)
		return r;
	if (must && strcmp(must, "1") == 0)
		fail_msg("may not be skipped: %s", why);
	fprintf(stderr, "skipped: %s\n", why);
	skip();
	return NULL;
}

static double ms_since(uint64_t *t)
{
	uint64_t now = now_ns();
	double ms = (double)(now - *t) / 1e6;

	*t = now;
	return ms;
}

/* A fork: memory, disk, state, go. */
static void fork_into(struct machine *m, struct template *t, bool with_zeros, const char *disk, int state_fd,
		      const char *word)
{
	struct preload_range zeros[PRELOAD_RANGES_MAX];
	uint32_t n = with_zeros ? template_holes(t, zeros, PRELOAD_RANGES_MAX) : 0;
	uint64_t begin = now_ns(), at = begin;
	double order, assign, load, cont, pong;

	assert_int_equal(machine_order(m, t, zeros, n), 0);
	order = ms_since(&at);
	assert_int_equal(machine_assign(m, disk), 0);
	assign = ms_since(&at);
	assert_int_equal(machine_load(m, state_fd), 0);
	load = ms_since(&at);
	assert_int_equal(machine_resume(m), 0);
	cont = ms_since(&at);
	machine_ping(m, word);
	pong = ms_since(&at);
	print_message(
		"%s: order %.2f (%u ranges), disk %.2f, load %.2f, cont %.2f, pong %.2f; in all %.1f ms; %llu faults\n",
		m->name, order, n, assign, load, cont, pong, (double)(now_ns() - begin) / 1e6,
		(unsigned long long)m->faults);
}

static void generations(uint32_t memory_mib, uint32_t vcpus, uid_t uid)
{
	static const char *const disks[] = { "parent", "one", "two", "three" };
	struct rig *r = need(memory_mib, vcpus, uid);
	struct machine *parent, *one, *two, *three;
	struct template t1, t2, t3, lazy;
	uint64_t at;

	for (size_t i = 0; i < ARRAY_LEN(disks); i++)
		rig_disk(r, disks[i], NULL);
	rig_serve(r, disks, ARRAY_LEN(disks));
	one = machine_start(r, "one", NULL);
	at = now_ns();
	parent = machine_start(r, "parent", "parent");
	machine_hello(parent);
	machine_ping(parent, "first");
	print_message("cold boot %.0f ms\n", ms_since(&at));

	/* The first snapshot, and a fork of it. */
	at = now_ns();
	assert_int_equal(machine_pause(parent), 0);
	print_message("pause %.2f", ms_since(&at));
	assert_int_equal(machine_save(parent), 0);
	print_message(", save %.2f (%lld bytes)", ms_since(&at), (long long)lseek(parent->state_fd, 0, SEEK_CUR));
	assert_int_equal(machine_order(parent, NULL, NULL, 0), 0);
	template_take(&t1, parent, NULL);
	print_message(", copy %.2f ms (%.1f MiB)\n", ms_since(&at), (double)t1.pages / 256);
	rig_disk(r, "one", "parent");
	one->seq_control = parent->seq_control;
	fork_into(one, &t1, false, "one", parent->state_fd, "fork");

	/* The parent goes on over the same template, and its next snapshot is small. */
	at = now_ns();
	assert_int_equal(machine_order(parent, &t1, NULL, 0), 0);
	print_message("re-base %.2f", ms_since(&at));
	assert_int_equal(machine_resume(parent), 0);
	machine_ping(parent, "goes on");
	print_message(", pong %.2f ms\n", ms_since(&at));
	two = machine_start(r, "two", NULL);
	machine_ping(parent, "still");
	assert_int_equal(machine_pause(parent), 0);
	assert_int_equal(machine_save(parent), 0);
	template_take(&t2, parent, &t1);
	print_message("the parent's second snapshot: %.1f MiB\n", (double)t2.pages / 256);
	assert_true(t2.pages * 4 < t1.pages);
	rig_disk(r, "two", "parent");
	template_empty(&lazy, &t2); /* every page comes through its pager */
	two->seq_control = parent->seq_control;
	fork_into(two, one->uffd >= 0 ? &lazy : &t2, false, "two", parent->state_fd, "second");

	if (two->uffd >= 0)
		assert_true(two->faults > 100);

	/* A fork of the fork, whose zeros are its own. */
	three = machine_start(r, "three", NULL);
	machine_ping(one, "one lives");
	assert_int_equal(machine_pause(one), 0);
	assert_int_equal(machine_save(one), 0);
	template_take(&t3, one, &t1);
	rig_disk(r, "three", "one");
	three->seq_control = one->seq_control;
	fork_into(three, &t3, true, "three", one->state_fd, "grandchild");
	assert_int_equal(machine_order(one, &t3, NULL, 0), 0);
	assert_int_equal(machine_resume(one), 0);
	machine_ping(one, "and goes on");
	machine_ping(two, "two");
	machine_ping(three, "three");

	machine_end(one);
	machine_end(two);
	machine_end(three);
	machine_end(parent);
	template_drop(&t1);
	template_drop(&t2);
	template_drop(&t3);
	template_drop(&lazy);
	rig_free(r);
}

static void test_generations(void **state)
{
	(void)state;
	generations(512, 1, 0);
}

/* Two vCPUs, each in a thread of its own; no privilege; QEMU's own filter is always on. */
static void test_generations_unprivileged_two_vcpus(void **state)
{
	(void)state;
	generations(256, 2, 65534);
}

/* A state that does not fit ends the engine, and that is told. */
static void test_load_of_nonsense(void **state)
{
	static const char *const disks[] = { "none" };
	struct rig *r = need(256, 1, 0);
	struct machine *m;
	int pair[2];

	(void)state;
	rig_disk(r, "none", NULL);
	rig_serve(r, disks, 1);
	m = machine_start(r, "m", NULL);
	assert_int_equal(pipe(pair), 0);
	assert_int_equal(write(pair[1], "this is no state", 16), 16);
	close(pair[1]);
	assert_int_equal(machine_assign(m, "unknown"), -EIO);
	machine_end(m);
	m = machine_start(r, "m", NULL);
	assert_int_equal(machine_assign(m, "none"), 0);
	assert_int_equal(machine_load(m, pair[0]), -EPIPE);
	close(pair[0]);
	machine_end(m);
	rig_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_generations),
		cmocka_unit_test(test_generations_unprivileged_two_vcpus),
		cmocka_unit_test(test_load_of_nonsense),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
