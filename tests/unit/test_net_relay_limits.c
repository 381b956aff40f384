/* SPDX-License-Identifier: Apache-2.0 */
/* The relay outward: what is forbidden, what is too much, what there is not enough of. */
#include "tests/unit/relay_fix.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "netpolicy/reserve.h"

#define MIB  (1ull << 20)
#define PORT 8000

const uint16_t fix_port = PORT;

/* -- policy -------------------------------------------------------------------------------------------------------- */

static void test_forbidden(void **state)
{
	int guest;

	(void)state;
	rig.denied_port = PORT;
	guest = rig_dial(INSIDE, THERE, PORT);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "refused", "no rule allows it");
	assert_int_equal(rig_stat(&rig).refused, 1);
	assert_int_equal(accept4(server, NULL, NULL, 0), -1);
}

static void test_recheck_of_what_is_dialed(void **state)
{
	int full = rig_listen(OUTSIDE, "127.0.0.3", PORT, 0), guest, first = rig_dial(OUTSIDE, "127.0.0.3", PORT);

	(void)state;
	guest = rig_dial(INSIDE, "127.0.0.3", PORT);
	rig_run(&rig, rig_stat(&rig).open == 1);
	relay_recheck(rig.relay);
	assert_int_equal(rig_stat(&rig).open, 1);
	rig.denied_port = PORT;
	relay_recheck(rig.relay);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "refused", "no rule allows it");
	fd_close(&guest);
	fd_close(&first);
	fd_close(&full);
}

/* -- limits -------------------------------------------------------------------------------------------------------- */

/* Bytes that the kernel may keep for the newest connection; those of its first ones grow. */
static int buffers_of_the_newest(void)
{
	const int options[] = { SO_RCVBUF, SO_SNDBUF }, fds[] = { rig.relay->last->guest.fd, rig.relay->last->far.fd };
	int sum = 0;

	for (size_t i = 0; i < 4; i++) {
		int v = 0;
		socklen_t len = sizeof(v);

		assert_int_equal(getsockopt(fds[i / 2], SOL_SOCKET, options[i % 2], &v, &len), 0);
		sum += v;
	}
	return sum;
}

static void test_the_most_connections(void **state)
{
	int guest[RELAY_CONNECTIONS_MAX + 1], far[RELAY_CONNECTIONS_MAX + 1];

	(void)state;
	for (size_t i = 0; i < RELAY_CONNECTIONS_MAX; i++)
		fix_join(&guest[i], &far[i]);
	rig_echo(&rig, guest[RELAY_CONNECTIONS_MAX - 1], far[RELAY_CONNECTIONS_MAX - 1]);
	assert_in_range(buffers_of_the_newest(), 1, 512 * 1024);
	guest[RELAY_CONNECTIONS_MAX] = rig_dial(INSIDE, THERE, PORT);
	rig_expect_reset(&rig, &guest[RELAY_CONNECTIONS_MAX]);
	(void)rig_event(&rig, 1, "out", "refused", "too many connections");
	assert_int_equal(rig_stat(&rig).open, RELAY_CONNECTIONS_MAX);
	fd_close(&guest[RELAY_CONNECTIONS_MAX]);
	fd_close(&guest[7]);
	fd_close(&far[7]);
	(void)rig_event(&rig, 2, "out", "ended", "");
	fix_join(&guest[7], &far[7]);
	rig_echo(&rig, guest[7], far[7]);
	rig_talk(&rig, guest[400], far[400], MIB); /* a narrow one */
	guest[400] = far[400] = -1;
	for (size_t i = 0; i < RELAY_CONNECTIONS_MAX; i++) {
		fd_close(&guest[i]);
		fd_close(&far[i]);
	}
	rig_run(&rig, rig_stat(&rig).open == 0);
	assert_int_equal(rig_stat(&rig).opened, RELAY_CONNECTIONS_MAX + 1);
}

static void test_a_thousand_short_ones(void **state)
{
	int guest, far;
	char c;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		fix_join(&guest, &far);
		switch (i % 4) {
		case 0: /* a request, half-closed, and an answer */
			rig_write(&rig, guest, "ask", 3);
			assert_int_equal(shutdown(guest, SHUT_WR), 0);
			rig_expect(&rig, far, "ask");
			assert_int_equal(rig_read(&rig, far, &c, 1), 0);
			rig_write(&rig, far, "answer", 6);
			fd_close(&far);
			rig_expect(&rig, guest, "answer");
			break;
		case 1:
			rig_reset(&guest);
			break;
		case 2:
			fd_close(&far);
			break;
		default:
			break;
		}
		fd_close(&guest);
		fd_close(&far);
	}
	rig_run(&rig, rig_stat(&rig).open == 0);
	assert_int_equal(rig_stat(&rig).opened, 1000);
	fix_join(&guest, &far);
	rig_talk(&rig, guest, far, MIB);
}

/* After a burst they wait for their turn, and none is refused. */
static void test_paced(void **state)
{
	int guest, far;

	(void)state;
	rig.relay->rest_ns = 1000000;
	rig.relay->cost_ns *= 360000; /* an hour */
	rig.relay->saved_ns = rig.relay->cost_ns;
	fix_join(&guest, &far); /* the burst */
	rig_echo(&rig, guest, far);
	fd_close(&guest);
	fd_close(&far);
	guest = rig_dial(INSIDE, THERE, PORT);
	for (int i = 0; i < 20; i++)
		assert_int_equal(loop_once(rig.loop, 5), 0);
	assert_int_equal(rig_stat(&rig).open, 0);
	assert_int_equal(rig_stat(&rig).opened, 1);
	rig.relay->cost_ns = 1;
	far = rig_accept(&rig, server);
	rig_talk(&rig, guest, far, 1000);
	assert_int_equal(rig_stat(&rig).refused, 0);
	assert_in_range(rig.relay->saved_ns, 0, RELAY_BURST); /* what is saved up is a burst at most */
}

/* One that cannot be accepted waits, and the loop is not busy with it meanwhile. */
static void test_no_descriptor_left(void **state)
{
	struct rlimit was, few;
	int guest, far;

	(void)state;
	guest = rig_dial(INSIDE, THERE, PORT);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 1;
	rig.relay->rest_ns = 3600ull * 1000000000ull;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	rig_run(&rig, rig.relay->tcp[0].again != 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(loop_once(rig.loop, 0), 0);
	assert_int_equal(rig_stat(&rig).open, 0);
	loop_del(rig.loop, &rig.relay->tcp[0].again);
	assert_int_equal(loop_mod(rig.loop, rig.relay->tcp[0].src, EPOLLIN), 0);
	/* And it is tried again by itself. */
	rig.relay->rest_ns = 20000000;
	rig_run(&rig, rig.relay->tcp[0].again != 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	far = rig_accept(&rig, server);
	rig_talk(&rig, guest, far, 1000);
	(void)rig_event(&rig, 1, "out", "ended", "");
}

/* Accepted, but no descriptor is left to dial with. */
static void test_no_descriptor_to_dial(void **state)
{
	struct rlimit was, few;
	int guest = rig_dial(INSIDE, THERE, PORT), next = dup(guest);

	(void)state;
	assert_true(next >= 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = (rlim_t)next + 1; /* for the one that is accepted */
	fd_close(&next);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	rig_expect_reset(&rig, &guest);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	(void)rig_event(&rig, 1, "out", "failed", strerror(EMFILE));
}

/* As many descriptors as guests may have are in use: what would take one of the others is refused, on both ways. */
static void test_what_is_kept_for_others(void **state)
{
	int guest, kept[RESERVE_FROM], n = 0, next, most = (int)(RESERVE_FROM - RESERVE_FROM / 8);
	struct rlimit was, few;

	(void)state;
	assert_false(reserve_has(-1));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = RESERVE_FROM;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_false(reserve_has(most - 1));
	assert_true(reserve_has(most));
	guest = rig_dial(INSIDE, THERE, PORT);
	while ((next = dup(server)) < most - 1)
		kept[n++] = next;
	assert_int_equal(next, most - 1);
	kept[n++] = next;
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "refused", "too many connections of all sandboxes");
	/* One is left: for the guest's side, but not for the far one. */
	guest = rig_dial(INSIDE, THERE, PORT);
	close(kept[--n]);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 2, "out", "failed", strerror(EMFILE));
	while (n > 0)
		close(kept[--n]);
	few.rlim_cur = RESERVE_FROM - 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_false(reserve_has((int)RESERVE_FROM - 2));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_forbidden),
		TEST(test_recheck_of_what_is_dialed),
		TEST(test_the_most_connections),
		TEST(test_a_thousand_short_ones),
		TEST(test_paced),
		TEST(test_no_descriptor_left),
		TEST(test_no_descriptor_to_dial),
		TEST(test_what_is_kept_for_others),
	};

	return cmocka_run_group_tests(tests, rig_world, NULL);
}
