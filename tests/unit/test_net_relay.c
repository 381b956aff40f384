/* SPDX-License-Identifier: Apache-2.0 */
/* The relay outward: how the bytes move, and how connections end. */
#include "tests/unit/relay_fix.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define MIB  (1ull << 20)
#define PORT 8000

const uint16_t fix_port = PORT;

/* -- bytes --------------------------------------------------------------------------------------------------------- */

static void talk_both_ways(void)
{
	const struct rig_event *x;
	char text[NET_ADDR_TEXT];
	int guest, far;

	fix_join(&guest, &far);
	rig_talk(&rig, guest, far, 8 * MIB);
	x = rig_event(&rig, 1, "out", "ended", "");
	assert_string_equal(x->name, "by.address");
	assert_string_equal(net_addr_text(&x->ev.addr, text), THERE);
	assert_int_equal(x->ev.port, PORT);
	assert_int_equal(x->ev.bytes_out, 8 * MIB);
	assert_int_equal(x->ev.bytes_in, 8 * MIB);
	assert_true(x->ev.duration_ns > 0);
	assert_int_equal(rig_stat(&rig).bytes_out, 8 * MIB);
	assert_int_equal(rig_stat(&rig).bytes_in, 8 * MIB);
	assert_int_equal(rig_stat(&rig).opened, 1);
	assert_int_equal(rig_stat(&rig).open, 0);
	assert_int_equal(rig.decided, 1);
	assert_string_equal(net_addr_text(&rig.decided_addr, text), THERE);
	assert_int_equal(rig.decided_port, PORT);
	assert_string_equal(rig.decided_tls, "-");
}

static void test_both_ways(void **state)
{
	(void)state;
	talk_both_ways();
}

static void test_both_ways_by_copying(void **state)
{
	(void)state;
	rig.relay->copy = true;
	talk_both_ways();
}

/* No descriptor is left for a pipe: read and write do it. */
static void test_without_pipes(void **state)
{
	struct rlimit was, few;
	int guest, far;

	(void)state;
	fix_join(&guest, &far);
	rig_echo(&rig, guest, far);
	pipes_close(&rig.relay->pipes);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	rig_talk(&rig, guest, far, MIB);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	(void)rig_event(&rig, 1, "out", "ended", "");
}

/* Urgent bytes are bytes like others, wherever they come from. What could not be passed on would be told for ever. */
static void test_urgent(void **state)
{
	int guest, far;

	(void)state;
	fix_join(&guest, &far);
	for (int i = 0; i < 2; i++) {
		int from = i ? far : guest, to = i ? guest : far;

		rig_write(&rig, from, "a", 1);
		rig_expect(&rig, to, "a");
		assert_int_equal(send(from, "!", 1, MSG_OOB), 1);
		rig_write(&rig, from, "bcd", 3);
		rig_expect(&rig, to, "!bcd");
		assert_int_equal(send(from, "ef?", 3, MSG_OOB), 3);
		rig_expect(&rig, to, "ef?");
	}
	for (int i = 0; i < 20; i++) /* nothing is left to do */
		assert_int_equal(loop_once(rig.loop, 0), 0);
	rig_talk(&rig, guest, far, MIB);
	(void)rig_event(&rig, 1, "out", "ended", "");
}

static void test_ipv6(void **state)
{
	int there = rig_listen(OUTSIDE, "::1", PORT, 8), guest = rig_dial(INSIDE, "::1", PORT);
	int far = rig_accept(&rig, there);
	const struct rig_event *x;
	char text[NET_ADDR_TEXT];

	(void)state;
	rig_talk(&rig, guest, far, MIB);
	x = rig_event(&rig, 1, "out", "ended", "");
	assert_string_equal(net_addr_text(&x->ev.addr, text), "::1");
	fd_close(&there);
}

static void half_close(bool guest_first)
{
	int guest, far, first, second;
	char c;

	fix_join(&guest, &far);
	first = guest_first ? guest : far;
	second = guest_first ? far : guest;
	rig_write(&rig, first, "ask", 3);
	assert_int_equal(shutdown(first, SHUT_WR), 0);
	rig_expect(&rig, second, "ask");
	assert_int_equal(rig_read(&rig, second, &c, 1), 0);
	assert_int_equal(rig_stat(&rig).open, 1);
	rig_write(&rig, second, "answer", 6);
	rig_expect(&rig, first, "answer");
	fd_close(&second);
	assert_int_equal(rig_read(&rig, first, &c, 1), 0);
	(void)rig_event(&rig, 1, "out", "ended", "");
	fd_close(&first);
}

static void test_half_close_by_the_guest(void **state)
{
	(void)state;
	half_close(true);
}

static void test_half_close_by_the_peer(void **state)
{
	(void)state;
	half_close(false);
}

/* -- back-pressure ------------------------------------------------------------------------------------------------- */

/* As much as goes without anybody reading it. */
static uint64_t stuff(int fd)
{
	static const uint8_t data[65536];
	uint64_t sent = 0;

	for (unsigned quiet = 0; quiet < 50;) {
		ssize_t n = write(fd, data, sizeof(data));

		if (n < 0)
			assert_int_equal(errno, EAGAIN);
		quiet = n < 0 ? quiet + 1 : 0;
		sent += n > 0 ? (uint64_t)n : 0;
		assert_int_equal(loop_once(rig.loop, 1), 0);
	}
	return sent;
}

static uint64_t read_all(int fd)
{
	static uint8_t data[65536];
	uint64_t got = 0;
	ssize_t n;

	while ((n = rig_read(&rig, fd, data, sizeof(data))) > 0)
		got += (uint64_t)n;
	assert_int_equal(n, 0);
	return got;
}

static void test_a_slow_reader(void **state)
{
	int guest, far, guest2, far2;
	uint64_t sent;

	(void)state;
	fix_join(&guest, &far);
	sent = stuff(guest);
	/* Four sockets' buffers and one pipe, whatever the guest has to say. */
	assert_in_range(sent, PUMP_PIPE_BYTES, 32 * MIB);
	assert_true(rig.relay->conns->from_guest.held <= PUMP_PIPE_BYTES);
	fix_join(&guest2, &far2);
	rig_talk(&rig, guest2, far2, MIB);
	/* The other direction is open, too. */
	rig_write(&rig, far, "a word", 6);
	rig_expect(&rig, guest, "a word");
	assert_int_equal(shutdown(guest, SHUT_WR), 0);
	assert_int_equal(read_all(far), sent);
	fd_close(&far);
	assert_int_equal(read_all(guest), 0);
	fd_close(&guest);
	(void)rig_event(&rig, 2, "out", "ended", "");
}

/* Epoll tells a hang-up for ever. */
static void test_a_hang_up_with_bytes_left(void **state)
{
	static const uint8_t data[16384];
	struct relay_conn *c;
	uint64_t sent = 0;
	int guest, far;

	(void)state;
	fix_join(&guest, &far);
	rig_echo(&rig, guest, far);
	c = rig.relay->conns;
	while (!c->to_guest.stuck) {
		rig_write(&rig, far, data, sizeof(data));
		sent += sizeof(data);
		assert_int_equal(loop_once(rig.loop, 0), 0);
	}
	assert_int_equal(shutdown(far, SHUT_WR), 0);
	assert_int_equal(shutdown(guest, SHUT_WR), 0);
	rig_run(&rig, c->from_guest.done && c->far.src == 0);
	assert_true(c->to_guest.stuck);
	fd_close(&far);
	assert_int_equal(read_all(guest), sent);
	(void)rig_event(&rig, 1, "out", "ended", "");
	fd_close(&guest);
}

static void test_an_idle_one_holds_no_pipe(void **state)
{
	int guest, far;

	(void)state;
	fix_join(&guest, &far);
	rig_echo(&rig, guest, far);
	assert_int_equal(rig.relay->conns->from_guest.pipe[0], -1);
	assert_int_equal(rig.relay->conns->to_guest.pipe[0], -1);
	assert_int_equal(rig.relay->pipes.n, 1);
	fd_close(&guest);
	fd_close(&far);
	rig_run(&rig, rig_stat(&rig).open == 0);
	assert_int_equal(rig.relay->pipes.n, 0);
}

/* -- ends ---------------------------------------------------------------------------------------------------------- */

static void test_reset_by_the_guest(void **state)
{
	int guest, far;

	(void)state;
	fix_join(&guest, &far);
	rig_echo(&rig, guest, far);
	rig_reset(&guest);
	rig_expect_reset(&rig, &far);
	(void)rig_event(&rig, 1, "out", "ended", strerror(ECONNRESET));
}

static void test_reset_by_the_peer(void **state)
{
	int guest, far;

	(void)state;
	fix_join(&guest, &far);
	rig_echo(&rig, guest, far);
	/* What was said before is heard before. */
	assert_int_equal(write(far, "last words", 10), 10);
	rig_reset(&far);
	rig_expect(&rig, guest, "last words");
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "ended", strerror(ECONNRESET));
	assert_int_equal(rig.events[0].ev.bytes_in, 16);
}

/* While the other side does not read, so that nothing is read from the one that was reset. */
static void test_reset_behind_a_slow_reader(void **state)
{
	int guest, far;

	(void)state;
	fix_join(&guest, &far);
	stuff(guest);
	rig_reset(&guest);
	(void)rig_event(&rig, 1, "out", "ended", strerror(ECONNRESET));
	fd_close(&far);
}

static void test_refused_by_the_peer(void **state)
{
	int guest;

	(void)state;
	fd_close(&server);
	guest = rig_dial(INSIDE, THERE, PORT);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "failed", strerror(ECONNREFUSED));
	assert_string_equal(rig.events[0].name, "by.address");
	assert_int_equal(rig_stat(&rig).failed, 1);
	assert_int_equal(rig_stat(&rig).opened, 0);
}

static void test_no_answer(void **state)
{
	int full = rig_listen(OUTSIDE, "127.0.0.3", PORT, 0), guest, first = rig_dial(OUTSIDE, "127.0.0.3", PORT);

	(void)state;
	rig.relay->dial_ns = 1;
	guest = rig_dial(INSIDE, "127.0.0.3", PORT);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 1, "out", "failed", "connect: no answer");
	fd_close(&guest);
	fd_close(&first);
	fd_close(&full);
}

static void test_the_guest_goes_while_it_is_dialed(void **state)
{
	int full = rig_listen(OUTSIDE, "127.0.0.3", PORT, 0), guest, first = rig_dial(OUTSIDE, "127.0.0.3", PORT);

	(void)state;
	guest = rig_dial(INSIDE, "127.0.0.3", PORT);
	rig_run(&rig, rig_stat(&rig).open == 1);
	assert_int_equal(rig.relay->conns->state, RELAY_DIAL);
	rig_reset(&guest);
	(void)rig_event(&rig, 1, "out", "failed", strerror(ECONNRESET));
	fd_close(&first);
	fd_close(&full);
}

static void test_idle(void **state)
{
	int guest, far;

	(void)state;
	rig.relay->idle_ns = 1;
	fix_join(&guest, &far);
	rig_expect_reset(&rig, &guest);
	rig_expect_reset(&rig, &far);
	(void)rig_event(&rig, 1, "out", "ended", "idle for too long");
	fd_close(&guest);
}

static void test_free_resets(void **state)
{
	int guest, far;

	(void)state;
	fix_join(&guest, &far);
	rig_echo(&rig, guest, far);
	rig.relay = relay_free(rig.relay);
	rig_expect_reset(&rig, &guest);
	rig_expect_reset(&rig, &far);
	(void)rig_event(&rig, 1, "out", "ended", "the network stops");
	fd_close(&guest);
	fd_close(&far);
	assert_null(relay_free(NULL));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_both_ways),
		TEST(test_both_ways_by_copying),
		TEST(test_without_pipes),
		TEST(test_urgent),
		TEST(test_ipv6),
		TEST(test_half_close_by_the_guest),
		TEST(test_half_close_by_the_peer),
		TEST(test_a_slow_reader),
		TEST(test_a_hang_up_with_bytes_left),
		TEST(test_an_idle_one_holds_no_pipe),
		TEST(test_reset_by_the_guest),
		TEST(test_reset_by_the_peer),
		TEST(test_reset_behind_a_slow_reader),
		TEST(test_refused_by_the_peer),
		TEST(test_no_answer),
		TEST(test_the_guest_goes_while_it_is_dialed),
		TEST(test_idle),
		TEST(test_free_resets),
	};

	return cmocka_run_group_tests(tests, rig_world, NULL);
}
