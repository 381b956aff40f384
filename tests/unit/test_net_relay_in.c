/* SPDX-License-Identifier: Apache-2.0 */
/* The relay inward: published ports, which come and go, and the sockets that lead into the sandbox's network. */
#include "tests/unit/relay_fix.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define MIB  (1ull << 20)
#define HOST "127.0.0.1"

const uint16_t fix_port = 0; /* the server is the guest's */

static struct net_port port_of(uint16_t host, uint16_t guest)
{
	struct net_port p = { .host_port = host, .guest_port = guest };

	assert_int_equal(net_addr_parse(HOST, &p.host), 0);
	return p;
}

/* One port, listened on from now. */
static void publish(uint16_t host, uint16_t guest)
{
	struct net_port p = port_of(host, guest);
	int fd = rig_listen(OUTSIDE, HOST, host, 1024);

	assert_int_equal(relay_set_ports(rig.relay, &p, &fd, 1, NULL), 0);
}

static void join(uint16_t port, int *ret_client, int *ret_guest)
{
	*ret_client = rig_dial(OUTSIDE, HOST, port);
	*ret_guest = rig_accept(&rig, server);
}

static bool refuses(uint16_t port)
{
	AUTO_FD fd = rig_dial(OUTSIDE, HOST, port);
	char c;

	return rig_read(&rig, fd, &c, 1) == -ECONNREFUSED;
}

/* Whoever handed a listening socket over may shut it down before the relay is told: that is no reason to be busy, and
 * nothing of it is left when the port goes. */
static void test_shut_down_by_others(void **state)
{
	int fd = rig_listen(OUTSIDE, HOST, 8080, 1024), copy = dup(fd);
	struct net_port p = port_of(8080, 80), q = port_of(8081, 80);

	(void)state;
	rig.relay->rest_ns = 1000000;
	assert_int_equal(relay_set_ports(rig.relay, &p, &fd, 1, NULL), 0);
	assert_int_equal(shutdown(copy, SHUT_RDWR), 0);
	fd_close(&copy);
	for (int i = 0; i < 20; i++)
		assert_int_equal(loop_once(rig.loop, 0), 0);
	assert_int_equal(rig.relay->ports[0]->listener.src, 0);
	assert_int_equal(rig.relay->ports[0]->listener.again, 0);
	fd = rig_listen(OUTSIDE, HOST, 8081, 1024);
	assert_int_equal(relay_set_ports(rig.relay, &q, &fd, 1, NULL), 0);
	for (int i = 0; i < 20; i++) /* what had been left would run now */
		assert_int_equal(loop_once(rig.loop, 1), 0);
	/* The place can be had again. */
	fd = rig_listen(OUTSIDE, HOST, 8080, 1024);
	assert_int_equal(relay_set_ports(rig.relay, &p, &fd, 1, NULL), 0);
}

/* -- a port -------------------------------------------------------------------------------------------------------- */

static void test_both_ways(void **state)
{
	const struct relay_event *ev = &rig.events[0].ev;
	char text[NET_ADDR_TEXT];
	int client, guest;

	(void)state;
	publish(8080, 80);
	rig_give_sockets(&rig, RELAY_SOCKETS);
	join(8080, &client, &guest);
	rig_talk(&rig, client, guest, 8 * MIB);
	(void)rig_event(&rig, 1, "in", "ended", "");
	assert_string_equal(net_addr_text(&ev->addr, text), HOST);
	assert_int_equal(ev->port, 8080);
	assert_int_equal(ev->bytes_in, 8 * MIB);
	assert_int_equal(ev->bytes_out, 8 * MIB);
	assert_int_equal(rig_stat(&rig).opened, 1);
	assert_int_equal(rig.decided, 0); /* the policy speaks of what goes out */
}

static void test_half_close(void **state)
{
	int client, guest;
	char c;

	(void)state;
	publish(8080, 80);
	rig_give_sockets(&rig, 1);
	join(8080, &client, &guest);
	rig_write(&rig, client, "ask", 3);
	assert_int_equal(shutdown(client, SHUT_WR), 0);
	rig_expect(&rig, guest, "ask");
	assert_int_equal(rig_read(&rig, guest, &c, 1), 0);
	rig_write(&rig, guest, "answer", 6);
	fd_close(&guest);
	rig_expect(&rig, client, "answer");
	assert_int_equal(rig_read(&rig, client, &c, 1), 0);
	fd_close(&client);
	(void)rig_event(&rig, 1, "in", "ended", "");
}

static void test_refused_by_the_guest(void **state)
{
	int client;

	(void)state;
	publish(8080, 81);
	rig_give_sockets(&rig, 1);
	client = rig_dial(OUTSIDE, HOST, 8080);
	rig_expect_reset(&rig, &client);
	(void)rig_event(&rig, 1, "in", "failed", strerror(ECONNREFUSED));
	assert_int_equal(rig_stat(&rig).failed, 1);
}

static void test_recheck_is_not_for_these(void **state)
{
	int client, guest;

	(void)state;
	publish(8080, 80);
	rig_give_sockets(&rig, 1);
	rig.denied_port = 8080;
	join(8080, &client, &guest);
	relay_recheck(rig.relay);
	rig_echo(&rig, client, guest);
	fd_close(&client);
	fd_close(&guest);
}

static void test_the_most_connections(void **state)
{
	int client[RELAY_CONNECTIONS_MAX], guest[RELAY_CONNECTIONS_MAX], more;

	(void)state;
	rig.make_now = RELAY_SOCKETS / 2;
	publish(8080, 80);
	for (size_t i = 0; i < RELAY_CONNECTIONS_MAX; i++)
		join(8080, &client[i], &guest[i]);
	more = rig_dial(OUTSIDE, HOST, 8080);
	rig_expect_reset(&rig, &more);
	(void)rig_event(&rig, 1, "in", "refused", "too many connections");
	fd_close(&client[3]);
	fd_close(&guest[3]);
	rig_run(&rig, rig_stat(&rig).open == RELAY_CONNECTIONS_MAX - 1);
	join(8080, &client[3], &guest[3]);
	rig_echo(&rig, client[3], guest[3]);
	for (size_t i = 0; i < RELAY_CONNECTIONS_MAX; i++) {
		fd_close(&client[i]);
		fd_close(&guest[i]);
	}
	rig_run(&rig, rig_stat(&rig).open == 0);
}

/* Whoever listens keeps a copy of the socket, and ends it for all. Some time later the relay is told. */
static void test_given_back_before_it_is_told(void **state)
{
	struct net_port p = port_of(8080, 80);
	int fd = rig_listen(OUTSIDE, HOST, 8080, 16), copy = dup(fd);
	uint64_t rested;
	int client, guest;

	(void)state;
	assert_true(copy >= 0);
	rig.relay->rest_ns = 20000000;
	assert_int_equal(relay_set_ports(rig.relay, &p, &fd, 1, NULL), 0);
	assert_int_equal(shutdown(copy, SHUT_RDWR), 0);
	fd_close(&copy);
	for (int i = 0; i < 10; i++)
		assert_int_equal(loop_once(rig.loop, 0), 0);
	assert_int_equal(relay_set_ports(rig.relay, NULL, NULL, 0, NULL), 0);
	/* Nothing of it comes later. */
	rested = now_ns() + 2 * rig.relay->rest_ns;
	rig_run(&rig, now_ns() > rested);
	publish(8080, 80);
	rig_give_sockets(&rig, 1);
	join(8080, &client, &guest);
	rig_echo(&rig, client, guest);
	fd_close(&client);
	fd_close(&guest);
}

/* -- sockets ------------------------------------------------------------------------------------------------------- */

static void test_sockets_are_asked_for_once(void **state)
{
	int client[RELAY_SOCKETS], guest[RELAY_SOCKETS];
	const unsigned enough = RELAY_SOCKETS - RELAY_SOCKETS / 4; /* taken: a quarter is left */

	(void)state;
	publish(8080, 80);
	assert_int_equal(rig.asked, 1);
	publish(8081, 80); /* still under way */
	assert_int_equal(rig.asked, 1);
	rig_give_sockets(&rig, RELAY_SOCKETS + 3); /* what is too much is closed */
	for (unsigned i = 0; i < enough; i++)
		join(8081, &client[i], &guest[i]);
	assert_int_equal(rig.asked, 1);
	join(8081, &client[enough], &guest[enough]);
	assert_int_equal(rig.asked, 2);
	join(8081, &client[enough + 1], &guest[enough + 1]);
	assert_int_equal(rig.asked, 2);
	for (unsigned i = 0; i < enough + 2; i++) {
		fd_close(&client[i]);
		fd_close(&guest[i]);
	}
}

static void test_clients_wait_for_sockets(void **state)
{
	int client[3], guest;

	(void)state;
	publish(8080, 80);
	for (size_t i = 0; i < ARRAY_LEN(client); i++) {
		client[i] = rig_dial(OUTSIDE, HOST, 8080);
		rig_run(&rig, rig_stat(&rig).open == i + 1);
	}
	assert_int_equal(rig.asked, 1);
	rig_give_sockets(&rig, 1);
	assert_int_equal(rig.asked, 2); /* two wait still */
	guest = rig_accept(&rig, server);
	rig_echo(&rig, client[0], guest); /* the oldest one */
	fd_close(&guest);
	fd_close(&client[0]);
	rig_run(&rig, rig_stat(&rig).open == 2);
	rig_reset(&client[1]); /* one goes while it waits */
	rig_run(&rig, rig_stat(&rig).open == 1);
	rig_give_sockets(&rig, 0); /* there are none: who waits is told so */
	rig_expect_reset(&rig, &client[2]);
	assert_int_equal(rig.asked, 2);
	assert_string_equal(rig.events[2].reason, "no socket could be made in the sandbox's network");
	client[2] = rig_dial(OUTSIDE, HOST, 8080);
	rig_run(&rig, rig.asked == 3);
	rig_give_sockets(&rig, 1);
	guest = rig_accept(&rig, server);
	rig_echo(&rig, client[2], guest);
	fd_close(&guest);
	fd_close(&client[2]);
}

static void test_no_socket_comes(void **state)
{
	int client;

	(void)state;
	rig.relay->dial_ns = 1;
	publish(8080, 80);
	client = rig_dial(OUTSIDE, HOST, 8080);
	rig_expect_reset(&rig, &client);
	(void)rig_event(&rig, 1, "in", "failed", "no socket could be made in the sandbox's network in time");
}

/* need_sockets may hand them over at once. */
static void test_sockets_made_at_once(void **state)
{
	int client, guest;

	(void)state;
	publish(8080, 80);
	rig_give_sockets(&rig, 0);
	rig.make_now = 1;
	for (unsigned i = 0; i < 20; i++) {
		join(8080, &client, &guest);
		rig_echo(&rig, client, guest);
		fd_close(&client);
		fd_close(&guest);
	}
	rig_run(&rig, rig_stat(&rig).open == 0);
	assert_int_equal(rig_stat(&rig).opened, 20);
}

/* -- the list ------------------------------------------------------------------------------------------------------ */

static void test_ports_replaced(void **state)
{
	struct net_port two[2] = { port_of(8080, 80), port_of(8081, 80) };
	struct net_port next[2] = { port_of(8082, 80), port_of(8081, 80) };
	int fds[2] = { rig_listen(OUTSIDE, HOST, 8080, 8), rig_listen(OUTSIDE, HOST, 8081, 8) };
	int client[3], guest[3];

	(void)state;
	rig_give_sockets(&rig, RELAY_SOCKETS);
	assert_int_equal(relay_set_ports(rig.relay, two, fds, 2, NULL), 0);
	for (uint16_t i = 0; i < 2; i++) {
		join((uint16_t)(8080 + i), &client[i], &guest[i]);
		rig_echo(&rig, client[i], guest[i]);
	}
	fds[0] = rig_listen(OUTSIDE, HOST, 8082, 8);
	fds[1] = -1;
	assert_int_equal(relay_set_ports(rig.relay, next, fds, 2, NULL), 0);
	rig_expect_reset(&rig, &client[0]);
	rig_expect_reset(&rig, &guest[0]);
	(void)rig_event(&rig, 1, "in", "ended", "the port is closed");
	assert_true(refuses(8080));
	rig_echo(&rig, client[1], guest[1]);
	join(8082, &client[2], &guest[2]);
	rig_echo(&rig, client[2], guest[2]);
	join(8081, &client[0], &guest[0]);
	rig_echo(&rig, client[0], guest[0]);
	/* None at all. */
	assert_int_equal(relay_set_ports(rig.relay, NULL, NULL, 0, NULL), 0);
	for (size_t i = 0; i < 3; i++) {
		rig_expect_reset(&rig, &client[i]);
		rig_expect_reset(&rig, &guest[i]);
	}
	assert_true(refuses(8081));
	assert_true(refuses(8082));
	assert_int_equal(rig_stat(&rig).open, 0);
}

/* The same place on the host, and another port of the guest. */
static void test_a_port_leads_elsewhere(void **state)
{
	int other = rig_listen(INSIDE, NET_GUEST_ADDR, 90, 8), keep = -1, client, guest;
	struct net_port p = port_of(8080, 90);

	(void)state;
	publish(8080, 80);
	rig_give_sockets(&rig, 4);
	join(8080, &client, &guest);
	assert_int_equal(relay_set_ports(rig.relay, &p, &keep, 1, NULL), 0);
	rig_expect_reset(&rig, &client);
	rig_expect_reset(&rig, &guest);
	client = rig_dial(OUTSIDE, HOST, 8080);
	guest = rig_accept(&rig, other);
	rig_echo(&rig, client, guest);
	fd_close(&client);
	fd_close(&guest);
	fd_close(&other);
}

static void test_enoent_changes_nothing(void **state)
{
	struct net_port wrong[3] = { port_of(8081, 80), port_of(8080, 80), port_of(8082, 80) };
	struct net_port twice[2] = { port_of(8080, 80), port_of(8080, 80) };
	int fds[3] = { rig_listen(OUTSIDE, HOST, 8081, 8), -1, -1 }, keep[2] = { -1, -1 }, client, guest;
	struct err e = { 0 };

	(void)state;
	publish(8080, 80);
	rig_give_sockets(&rig, 4);
	join(8080, &client, &guest);
	rig_echo(&rig, client, guest);
	assert_int_equal(relay_set_ports(rig.relay, wrong, fds, 3, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "8082"));
	assert_true(refuses(8081)); /* taken, and closed */
	assert_int_equal(relay_set_ports(rig.relay, twice, keep, 2, &e), -ENOENT);
	rig_echo(&rig, client, guest);
	fd_close(&client);
	fd_close(&guest);
	join(8080, &client, &guest);
	rig_echo(&rig, client, guest);
	/* And what was kept in vain can be kept. */
	assert_int_equal(relay_set_ports(rig.relay, twice, keep, 1, &e), 0);
	rig_echo(&rig, client, guest);
	fd_close(&client);
	fd_close(&guest);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fix_setup, fix_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_both_ways),
		TEST(test_half_close),
		TEST(test_shut_down_by_others),
		TEST(test_refused_by_the_guest),
		TEST(test_recheck_is_not_for_these),
		TEST(test_the_most_connections),
		TEST(test_given_back_before_it_is_told),
		TEST(test_sockets_are_asked_for_once),
		TEST(test_clients_wait_for_sockets),
		TEST(test_no_socket_comes),
		TEST(test_sockets_made_at_once),
		TEST(test_ports_replaced),
		TEST(test_a_port_leads_elsewhere),
		TEST(test_enoent_changes_nothing),
	};

	return cmocka_run_group_tests(tests, rig_world, NULL);
}
