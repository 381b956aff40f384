/* SPDX-License-Identifier: Apache-2.0 */
/* The relay outward: what is accepted, decided, dialed, and how the bytes move. */
#include "tests/unit/relay_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define MIB   (1ull << 20)
#define PORT  8000
#define THERE "127.0.0.2"

static struct relay_rig rig;
static int server = -1; /* at THERE:PORT, outside */

static int world(void **state)
{
	(void)state;
	rig_world();
	return 0;
}

static int setup(void **state)
{
	(void)state;
	rig_start(&rig, PORT);
	server = rig_listen(OUTSIDE, THERE, PORT, 1024);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fd_close(&server);
	rig_stop(&rig);
	return 0;
}

/* A connection through the relay. */
static void join(int *ret_guest, int *ret_far)
{
	*ret_guest = rig_dial(INSIDE, THERE, PORT);
	*ret_far = rig_accept(&rig, server);
}

static const struct rig_event *last_event(unsigned n)
{
	rig_run(&rig, rig.nevents >= n);
	assert_int_equal(rig.nevents, n);
	return &rig.events[(n - 1) % RIG_EVENTS];
}

static void assert_event(unsigned n, const char *verdict, const char *reason)
{
	const struct rig_event *x = last_event(n);

	assert_string_equal(x->ev.direction, "out");
	assert_string_equal(x->ev.verdict, verdict);
	assert_string_equal(x->reason, reason);
}

static struct relay_stat stat_now(void)
{
	struct relay_stat s;

	relay_stat(rig.relay, &s);
	return s;
}

/* -- bytes --------------------------------------------------------------------------------------------------------- */

static void talk_both_ways(void)
{
	const struct rig_event *x;
	char text[NET_ADDR_TEXT];
	int guest, far;

	join(&guest, &far);
	rig_talk(&rig, guest, far, 8 * MIB);
	x = last_event(1);
	assert_event(1, "ended", "");
	assert_string_equal(x->name, "by.address");
	assert_string_equal(net_addr_text(&x->ev.addr, text), THERE);
	assert_int_equal(x->ev.port, PORT);
	assert_int_equal(x->ev.bytes_out, 8 * MIB);
	assert_int_equal(x->ev.bytes_in, 8 * MIB);
	assert_true(x->ev.duration_ns > 0);
	assert_int_equal(stat_now().bytes_out, 8 * MIB);
	assert_int_equal(stat_now().bytes_in, 8 * MIB);
	assert_int_equal(stat_now().opened, 1);
	assert_int_equal(stat_now().open, 0);
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
	join(&guest, &far);
	rig_echo(&rig, guest, far);
	pipes_close(&rig.relay->pipes);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	rig_talk(&rig, guest, far, MIB);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_event(1, "ended", "");
}

static void test_ipv6(void **state)
{
	int there = rig_listen(OUTSIDE, "::1", PORT, 8), guest = rig_dial(INSIDE, "::1", PORT);
	int far = rig_accept(&rig, there);
	char text[NET_ADDR_TEXT];

	(void)state;
	rig_talk(&rig, guest, far, MIB);
	assert_event(1, "ended", "");
	assert_string_equal(net_addr_text(&last_event(1)->ev.addr, text), "::1");
	fd_close(&there);
}

static void half_close(bool guest_first)
{
	int guest, far, first, second;
	char c;

	join(&guest, &far);
	first = guest_first ? guest : far;
	second = guest_first ? far : guest;
	rig_write(&rig, first, "ask", 3);
	assert_int_equal(shutdown(first, SHUT_WR), 0);
	rig_expect(&rig, second, "ask");
	assert_int_equal(rig_read(&rig, second, &c, 1), 0);
	assert_int_equal(stat_now().open, 1);
	rig_write(&rig, second, "answer", 6);
	rig_expect(&rig, first, "answer");
	fd_close(&second);
	assert_int_equal(rig_read(&rig, first, &c, 1), 0);
	assert_event(1, "ended", "");
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
	join(&guest, &far);
	sent = stuff(guest);
	/* Four sockets' buffers and one pipe, whatever the guest has to say. */
	assert_in_range(sent, PUMP_PIPE_BYTES, 32 * MIB);
	assert_true(rig.relay->conns->from_guest.held <= PUMP_PIPE_BYTES);
	join(&guest2, &far2);
	rig_talk(&rig, guest2, far2, MIB);
	/* The other direction is open, too. */
	rig_write(&rig, far, "a word", 6);
	rig_expect(&rig, guest, "a word");
	assert_int_equal(shutdown(guest, SHUT_WR), 0);
	assert_int_equal(read_all(far), sent);
	fd_close(&far);
	assert_int_equal(read_all(guest), 0);
	fd_close(&guest);
	assert_event(2, "ended", "");
}

/* Epoll tells a hang-up for ever. */
static void test_a_hang_up_with_bytes_left(void **state)
{
	static const uint8_t data[16384];
	struct relay_conn *c;
	uint64_t sent = 0;
	int guest, far;

	(void)state;
	join(&guest, &far);
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
	assert_event(1, "ended", "");
	fd_close(&guest);
}

static void test_an_idle_one_holds_no_pipe(void **state)
{
	int guest, far;

	(void)state;
	join(&guest, &far);
	rig_echo(&rig, guest, far);
	assert_int_equal(rig.relay->conns->from_guest.pipe[0], -1);
	assert_int_equal(rig.relay->conns->to_guest.pipe[0], -1);
	assert_int_equal(rig.relay->pipes.n, 1);
	fd_close(&guest);
	fd_close(&far);
	rig_run(&rig, stat_now().open == 0);
	assert_int_equal(rig.relay->pipes.n, 0);
}

/* -- ends ---------------------------------------------------------------------------------------------------------- */

static void test_reset_by_the_guest(void **state)
{
	int guest, far;
	char c;

	(void)state;
	join(&guest, &far);
	rig_echo(&rig, guest, far);
	rig_reset(&guest);
	assert_int_equal(rig_read(&rig, far, &c, 1), -ECONNRESET);
	assert_event(1, "ended", strerror(ECONNRESET));
	fd_close(&far);
}

static void test_reset_by_the_peer(void **state)
{
	int guest, far;
	char c;

	(void)state;
	join(&guest, &far);
	rig_echo(&rig, guest, far);
	/* What was said before is heard before. */
	assert_int_equal(write(far, "last words", 10), 10);
	rig_reset(&far);
	rig_expect(&rig, guest, "last words");
	assert_int_equal(rig_read(&rig, guest, &c, 1), -ECONNRESET);
	assert_event(1, "ended", strerror(ECONNRESET));
	assert_int_equal(last_event(1)->ev.bytes_in, 16);
	fd_close(&guest);
}

/* While the other side does not read, so that nothing is read from the one that was reset. */
static void test_reset_behind_a_slow_reader(void **state)
{
	int guest, far;

	(void)state;
	join(&guest, &far);
	stuff(guest);
	rig_reset(&guest);
	assert_event(1, "ended", strerror(ECONNRESET));
	fd_close(&far);
}

static void test_refused_by_the_peer(void **state)
{
	int guest;
	char c;

	(void)state;
	fd_close(&server);
	guest = rig_dial(INSIDE, THERE, PORT);
	assert_int_equal(rig_read(&rig, guest, &c, 1), -ECONNRESET);
	assert_event(1, "failed", strerror(ECONNREFUSED));
	assert_string_equal(last_event(1)->name, "by.address");
	assert_int_equal(stat_now().failed, 1);
	assert_int_equal(stat_now().opened, 0);
	fd_close(&guest);
}

static void test_no_answer(void **state)
{
	int full = rig_listen(OUTSIDE, "127.0.0.3", PORT, 0), guest, first = rig_dial(OUTSIDE, "127.0.0.3", PORT);
	char c;

	(void)state;
	rig.relay->dial_ns = 1;
	guest = rig_dial(INSIDE, "127.0.0.3", PORT);
	assert_int_equal(rig_read(&rig, guest, &c, 1), -ECONNRESET);
	assert_event(1, "failed", "connect: no answer");
	fd_close(&guest);
	fd_close(&first);
	fd_close(&full);
}

static void test_the_guest_goes_while_it_is_dialed(void **state)
{
	int full = rig_listen(OUTSIDE, "127.0.0.3", PORT, 0), guest, first = rig_dial(OUTSIDE, "127.0.0.3", PORT);

	(void)state;
	guest = rig_dial(INSIDE, "127.0.0.3", PORT);
	rig_run(&rig, stat_now().open == 1);
	assert_int_equal(rig.relay->conns->state, RELAY_DIAL);
	rig_reset(&guest);
	assert_event(1, "failed", strerror(ECONNRESET));
	fd_close(&first);
	fd_close(&full);
}

static void test_idle(void **state)
{
	int guest, far;
	char c;

	(void)state;
	rig.relay->idle_ns = 1;
	join(&guest, &far);
	assert_int_equal(rig_read(&rig, guest, &c, 1), -ECONNRESET);
	assert_int_equal(rig_read(&rig, far, &c, 1), -ECONNRESET);
	assert_event(1, "ended", "idle for too long");
	fd_close(&guest);
	fd_close(&far);
}

static void test_free_resets(void **state)
{
	int guest, far;
	char c;

	(void)state;
	join(&guest, &far);
	rig_echo(&rig, guest, far);
	rig.relay = relay_free(rig.relay);
	assert_int_equal(rig_read(&rig, guest, &c, 1), -ECONNRESET);
	assert_int_equal(rig_read(&rig, far, &c, 1), -ECONNRESET);
	assert_event(1, "ended", "the network stops");
	fd_close(&guest);
	fd_close(&far);
	assert_null(relay_free(NULL));
}

/* -- policy -------------------------------------------------------------------------------------------------------- */

static void test_forbidden(void **state)
{
	int guest;
	char c;

	(void)state;
	rig.denied_port = PORT;
	guest = rig_dial(INSIDE, THERE, PORT);
	assert_int_equal(rig_read(&rig, guest, &c, 1), -ECONNRESET);
	assert_event(1, "refused", "no rule allows it");
	assert_int_equal(stat_now().refused, 1);
	assert_int_equal(accept4(server, NULL, NULL, 0), -1);
	fd_close(&guest);
}

static void test_recheck_of_what_is_dialed(void **state)
{
	int full = rig_listen(OUTSIDE, "127.0.0.3", PORT, 0), guest, first = rig_dial(OUTSIDE, "127.0.0.3", PORT);
	char c;

	(void)state;
	guest = rig_dial(INSIDE, "127.0.0.3", PORT);
	rig_run(&rig, stat_now().open == 1);
	relay_recheck(rig.relay);
	assert_int_equal(stat_now().open, 1);
	rig.denied_port = PORT;
	relay_recheck(rig.relay);
	assert_int_equal(rig_read(&rig, guest, &c, 1), -ECONNRESET);
	assert_event(1, "refused", "no rule allows it");
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
	char c;

	(void)state;
	for (size_t i = 0; i < RELAY_CONNECTIONS_MAX; i++)
		join(&guest[i], &far[i]);
	rig_echo(&rig, guest[RELAY_CONNECTIONS_MAX - 1], far[RELAY_CONNECTIONS_MAX - 1]);
	assert_in_range(buffers_of_the_newest(), 1, 512 * 1024);
	guest[RELAY_CONNECTIONS_MAX] = rig_dial(INSIDE, THERE, PORT);
	assert_int_equal(rig_read(&rig, guest[RELAY_CONNECTIONS_MAX], &c, 1), -ECONNRESET);
	assert_event(1, "refused", "too many connections");
	assert_int_equal(stat_now().open, RELAY_CONNECTIONS_MAX);
	fd_close(&guest[RELAY_CONNECTIONS_MAX]);
	fd_close(&guest[7]);
	fd_close(&far[7]);
	assert_event(2, "ended", "");
	join(&guest[7], &far[7]);
	rig_echo(&rig, guest[7], far[7]);
	rig_talk(&rig, guest[400], far[400], MIB); /* a narrow one */
	guest[400] = far[400] = -1;
	for (size_t i = 0; i < RELAY_CONNECTIONS_MAX; i++) {
		fd_close(&guest[i]);
		fd_close(&far[i]);
	}
	rig_run(&rig, stat_now().open == 0);
	assert_int_equal(stat_now().opened, RELAY_CONNECTIONS_MAX + 1);
}

static void test_a_thousand_short_ones(void **state)
{
	int guest, far;
	char c;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		join(&guest, &far);
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
	rig_run(&rig, stat_now().open == 0);
	assert_int_equal(stat_now().opened, 1000);
	join(&guest, &far);
	rig_talk(&rig, guest, far, MIB);
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
	assert_int_equal(stat_now().open, 0);
	loop_del(rig.loop, &rig.relay->tcp[0].again);
	assert_int_equal(loop_mod(rig.loop, rig.relay->tcp[0].src, EPOLLIN), 0);
	/* And it is tried again by itself. */
	rig.relay->rest_ns = 20000000;
	rig_run(&rig, rig.relay->tcp[0].again != 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	far = rig_accept(&rig, server);
	rig_talk(&rig, guest, far, 1000);
	assert_event(1, "ended", "");
}

/* Accepted, but no descriptor is left to dial with. */
static void test_no_descriptor_to_dial(void **state)
{
	struct rlimit was, few;
	int guest = rig_dial(INSIDE, THERE, PORT), next = dup(guest);
	char c;

	(void)state;
	assert_true(next >= 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	few.rlim_cur = (rlim_t)next + 1; /* for the one that is accepted */
	fd_close(&next);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(rig_read(&rig, guest, &c, 1), -ECONNRESET);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	assert_event(1, "failed", strerror(EMFILE));
	fd_close(&guest);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_both_ways),
		TEST(test_both_ways_by_copying),
		TEST(test_without_pipes),
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
		TEST(test_forbidden),
		TEST(test_recheck_of_what_is_dialed),
		TEST(test_the_most_connections),
		TEST(test_a_thousand_short_ones),
		TEST(test_no_descriptor_left),
		TEST(test_no_descriptor_to_dial),
	};

	return cmocka_run_group_tests(tests, world, NULL);
}
