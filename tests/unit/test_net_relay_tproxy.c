/* SPDX-License-Identifier: Apache-2.0 */
/* The relay as it is used: a guest's connections come through its card and TPROXY, and go out of another namespace.
 * Needs root. */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/net_guest.h"
#include "tests/unit/relay_rig.h"

#define MIB    (1ull << 20)
#define THERE  "203.0.113.5"
#define THERE6 "2001:db8::5"

static struct netrig net;
static struct relay_rig rig;

static int setup(void **state)
{
	struct err e = { 0 };

	(void)state;
	if (unshare(CLONE_NEWNET) < 0) {
		fprintf(stderr, "needs root: a network namespace: %s\n", strerror(errno));
		exit(77);
	}
	netrig_new(&net);
	if (netrig_up(&net, &e) < 0)
		fail_msg("%s", e.msg);
	rig_world_of(net.guest_ns);
	rig_address(THERE);
	if (net.fds[TOPOLOGY_TCP6] >= 0)
		rig_address(THERE6);
	rig_start_with(&rig, take_fd(&net.fds[TOPOLOGY_TCP4]), take_fd(&net.fds[TOPOLOGY_TCP6]));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	rig_stop(&rig);
	netrig_free(&net);
	return 0;
}

/* Or was: whoever is refused may have the connection's end already when we look, and has no peer then. */
static bool dialled(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	return poll(&p, 1, 0) == 1;
}

/* TPROXY answers for everybody: this succeeds whatever becomes of it. */
static int dial(const char *ip, uint16_t port)
{
	int fd = rig_dial(INSIDE, ip, port);

	rig_run(&rig, dialled(fd));
	return fd;
}

static void talk(const char *ip)
{
	int server = rig_listen(OUTSIDE, ip, 8000, 8), guest = dial(ip, 8000), far = rig_accept(&rig, server);
	char text[NET_ADDR_TEXT];
	unsigned n = rig.nevents;

	rig_talk(&rig, guest, far, 4 * MIB);
	(void)rig_event(&rig, n + 1, "out", "ended", "");
	assert_string_equal(net_addr_text(&rig.decided_addr, text), ip);
	assert_int_equal(rig.decided_port, 8000);
	fd_close(&server);
}

static void test_out(void **state)
{
	(void)state;
	talk(THERE);
}

static void test_out_ipv6(void **state)
{
	(void)state;
	if (rig.relay->tcp[1].fd < 0)
		skip();
	talk(THERE6);
}

static void test_tls(void **state)
{
	static uint8_t hello[SNIFF_MAX], got[SNIFF_MAX];
	int server = rig_listen(OUTSIDE, THERE, 443, 8), guest = dial(THERE, 443), far;
	size_t len = rig_hello(hello, "pypi.org", 9000), at = 0;

	(void)state;
	rig_write(&rig, guest, hello, len);
	far = rig_accept(&rig, server);
	while (at < len) {
		ssize_t n = rig_read(&rig, far, got + at, len - at);

		assert_true(n > 0);
		at += (size_t)n;
	}
	assert_memory_equal(got, hello, len);
	assert_string_equal(rig.decided_tls, "pypi.org");
	rig_talk(&rig, guest, far, MIB);
	fd_close(&server);
}

static void test_resets(void **state)
{
	int server = rig_listen(OUTSIDE, THERE, 8000, 8), guest = dial(THERE, 8000), far = rig_accept(&rig, server);

	(void)state;
	rig_echo(&rig, guest, far);
	rig_reset(&guest);
	rig_expect_reset(&rig, &far);
	guest = dial(THERE, 8000);
	far = rig_accept(&rig, server);
	rig_echo(&rig, guest, far);
	rig_reset(&far);
	rig_expect_reset(&rig, &guest);
	fd_close(&server);
	guest = dial(THERE, 8000); /* nobody listens any more */
	rig_expect_reset(&rig, &guest);
	rig.denied_port = 8001;
	guest = dial(THERE, 8001);
	rig_expect_reset(&rig, &guest);
	(void)rig_event(&rig, 4, "out", "refused", "no rule allows it");
}

static void test_dns(void **state)
{
	int guest = dial("192.0.2.1", 53);

	(void)state;
	rig_run(&rig, rig.dns_fd >= 0);
	rig_echo(&rig, guest, rig.dns_fd);
	fd_close(&guest);
}

static void test_in(void **state)
{
	struct net_port p = { .host_port = 8080, .guest_port = 80 };
	int server = rig_listen(INSIDE, NET_GUEST_ADDR, 80, 8), fds[4], fd, client, guest;

	(void)state;
	assert_int_equal(net_addr_parse("127.0.0.1", &p.host), 0);
	fd = rig_listen(OUTSIDE, "127.0.0.1", 8080, 8);
	assert_int_equal(relay_set_ports(rig.relay, &p, &fd, 1, NULL), 0);
	assert_int_equal(rig.asked, 1);
	netrig_enter(net.sandbox_ns);
	assert_int_equal(topology_sockets(fds, ARRAY_LEN(fds), NULL), 0);
	netrig_enter(net.host_ns);
	relay_sockets(rig.relay, fds, ARRAY_LEN(fds));
	client = rig_dial(OUTSIDE, "127.0.0.1", 8080);
	guest = rig_accept(&rig, server);
	rig_talk(&rig, client, guest, 4 * MIB);
	client = rig_dial(OUTSIDE, "127.0.0.1", 8080);
	guest = rig_accept(&rig, server);
	rig_echo(&rig, client, guest);
	rig_reset(&client);
	rig_expect_reset(&rig, &guest);
	fd_close(&server);
	client = rig_dial(OUTSIDE, "127.0.0.1", 8080);
	rig_expect_reset(&rig, &client);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_out), TEST(test_out_ipv6), TEST(test_tls), TEST(test_resets), TEST(test_dns), TEST(test_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
