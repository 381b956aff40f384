/* SPDX-License-Identifier: Apache-2.0 */
/* The whole way: a guest with a network stack of its own, its tap, the namespace as the launcher makes it,
 * crucible-netd, and the world. */
#include "tests/unit/net_guest.h"
#include "tests/unit/netd_dns.h"
#include "tests/unit/netd_rig.h"

#include <net/if.h>
#include <linux/ipv6.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "netpolicy/addr.h"

#define UUID	"11111111-2222-4333-8444-555555555555"
#define PUBLIC6 "2606:2800:220::34" /* the host's own, opened by its very name */
#define WAIT_S	30
#define BULK	(8u << 20)

struct all {
	struct rig g;
	struct netrig net;
	int upstream;
	bool ipv6;
};

static int guest_socket(struct all *a, int family, int type)
{
	struct timeval limit = { .tv_sec = WAIT_S };
	int fd;

	netrig_enter(a->net.guest_ns);
	fd = socket(family, type | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	netrig_enter(a->net.host_ns);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
	return fd;
}

static int guest_dial(struct all *a, int type, const char *ip, uint16_t port)
{
	struct sockaddr_storage to;
	struct net_addr addr;
	socklen_t len;
	int fd;

	assert_int_equal(net_addr_parse(ip, &addr), 0);
	len = net_addr_to_sockaddr(&addr, port, &to);
	fd = guest_socket(a, addr.family, type);
	/* A reset may be there before connect() has returned. */
	if (connect(fd, (struct sockaddr *)&to, len) < 0 && errno != ECONNRESET)
		fail_msg("%s port %u: %s", ip, port, strerror(errno));
	return fd;
}

static int guest_listen(struct all *a, uint16_t port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = guest_socket(a, AF_INET, SOCK_STREAM);

	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static void add_public6(void)
{
	struct in6_ifreq q = { .ifr6_prefixlen = 128, .ifr6_ifindex = (int)if_nametoindex("lo") };
	AUTO_FD fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct net_addr a;

	assert_int_equal(net_addr_parse(PUBLIC6, &a), 0);
	memcpy(&q.ifr6_addr, a.bytes, 16);
	if (fd >= 0)
		assert_int_equal(ioctl(fd, SIOCSIFADDR, &q), 0);
}

static void open_sandbox(struct all *a)
{
	int fds[TOPOLOGY_FD_COUNT];
	uint8_t mask = 0;
	size_t n = 0;
	struct err e = { 0 };
	struct buf b;

	if (netrig_up(&a->net, &e) < 0)
		fail_msg("%s", e.msg);
	for (int i = 0; i < TOPOLOGY_FD_COUNT; i++) {
		if (a->net.fds[i] >= 0) {
			mask |= (uint8_t)(1u << i);
			fds[n++] = a->net.fds[i];
		}
	}
	a->ipv6 = a->net.fds[TOPOLOGY_TCP6] >= 0;
	buf_init(&b, 200);
	assert_int_equal(wire_put_str(&b, UUID), 0);
	assert_int_equal(wire_put_u8(&b, mask), 0);
	assert_int_equal(rig_call(&a->g, NETD_OPEN, &b, fds, n), 0);
	assert_int_equal(rig_text(&a->g, NETD_ALLOW, UUID, ""), 0); /* served from here on */
	buf_fini(&b);
	netrig_close_fds(&a->net); /* netd's now */
}

static int setup(void **state)
{
	static struct all a;
	const char *const opened[] = { PUBLIC6, NULL };
	char conf[60];

	a = (struct all){ 0 };
	netrig_new(&a.net);
	rig_start(&a.g, getuid(), NULL);
	a.upstream = world_udp(OUTSIDE, "127.0.0.1", 0);
	snprintf(conf, sizeof(conf), "nameserver 127.0.0.1#%u\n", world_port_of(a.upstream));
	assert_int_equal(rig_config(&a.g, conf, opened), 0);
	open_sandbox(&a);
	*state = &a;
	return 0;
}

static int teardown(void **state)
{
	struct all *a = *state;

	rig_stop(&a->g);
	fd_close(&a->upstream);
	netrig_free(&a->net);
	return 0;
}

static struct dns_answer ask(struct all *a, const char *server, const char *name, int type, const char *answer)
{
	AUTO_FD fd = guest_dial(a, SOCK_DGRAM, server, 53);
	uint8_t data[1500];
	size_t len = dns_question(data, sizeof(data), name, type);
	ssize_t n;

	assert_int_equal(send(fd, data, len, 0), len);
	if (answer)
		dns_upstream(a->upstream, name, answer);
	n = recv(fd, data, sizeof(data), 0); /* from whom it asked, or it does not come in */
	assert_true(n > 0);
	return dns_read(data, (size_t)n);
}

static void test_questions(void **state)
{
	struct all *a = *state;
	const char *const servers[] = { NET_HOST_ADDR, "8.8.8.8", a->ipv6 ? NET_HOST_ADDR6 : NET_HOST_ADDR,
					a->ipv6 ? "2001:4860:4860::8888" : "1.1.1.1" };

	assert_int_equal(rig_text(&a->g, NETD_ALLOW, UUID, "one.example"), 0);
	for (size_t i = 0; i < ARRAY_LEN(servers); i++) {
		assert_string_equal(ask(a, servers[i], "one.example", DNS_A, PUBLIC).addr, PUBLIC);
		assert_string_equal(ask(a, servers[i], "one.example", DNS_AAAA, PUBLIC6).addr, PUBLIC6);
		assert_int_equal(ask(a, servers[i], "two.example", DNS_A, NULL).rcode, DNS_NXDOMAIN);
	}
}

static void test_questions_by_tcp(void **state)
{
	struct all *a = *state;
	AUTO_FD fd = guest_dial(a, SOCK_STREAM, "8.8.8.8", 53);
	uint8_t data[600];
	size_t len = dns_question(data + 2, sizeof(data) - 2, "two.example", DNS_A);

	data[0] = (uint8_t)(len >> 8);
	data[1] = (uint8_t)len;
	assert_int_equal(send(fd, data, len + 2, 0), len + 2);
	assert_int_equal(recv(fd, data, 2, MSG_WAITALL), 2);
	len = (size_t)data[0] << 8 | data[1];
	assert_true(len <= sizeof(data));
	assert_int_equal(recv(fd, data, len, MSG_WAITALL), len);
	assert_int_equal(dns_read(data, len).rcode, DNS_NXDOMAIN);
}

static void assert_refused(struct all *a, const char *ip, uint16_t port, const char *reason)
{
	int fd = guest_dial(a, SOCK_STREAM, ip, port);

	(void)world_is_reset(fd); /* connect() may have taken the error away */
	close(fd);
	rig_logged(&a->g, "event", "connection", "verdict", "refused", "address", ip, "reason", reason, NULL);
}

/* A child writes, we read: more than any buffer holds. */
static void bulk(int from, int to)
{
	static uint8_t data[65536];
	size_t got = 0;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		for (size_t i = 0; i < BULK; i += sizeof(data)) {
			memset(data, (int)(i / sizeof(data)), sizeof(data));
			if (fd_write_all(from, data, sizeof(data)) < 0)
				_exit(1);
		}
		_exit(0);
	}
	while (got < BULK) {
		ssize_t n = recv(to, data, sizeof(data), 0);

		assert_true(n > 0);
		for (ssize_t i = 0; i < n; i++)
			if (data[i] != (uint8_t)((got + (size_t)i) / sizeof(data)))
				fail_msg("byte %zu is another", got + (size_t)i);
		got += (size_t)n;
	}
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_out(void **state)
{
	struct all *a = *state;
	AUTO_FD server = world_listen(OUTSIDE, PUBLIC, 8080), guest = -1, there = -1;

	assert_refused(a, PUBLIC, 8080, "no allowed name led to this address");
	assert_int_equal(rig_text(&a->g, NETD_ALLOW, UUID, "one.example:8080"), 0);
	ask(a, NET_HOST_ADDR, "one.example", DNS_A, PUBLIC);
	guest = guest_dial(a, SOCK_STREAM, PUBLIC, 8080);
	there = world_accept(server);
	world_echo(guest, there);
	bulk(guest, there);
	bulk(there, guest);
	assert_refused(a, PUBLIC2, 8080, "no allowed name led to this address");
	assert_refused(a, PUBLIC, 81, "the names of this address are not allowed with port 81");
	assert_refused(a, "169.254.169.254", 8080, "link-local");
	assert_refused(a, "10.0.0.1", 8080, "private");
	assert_refused(a, NET_HOST_ADDR, 8080, "private");
	if (a->ipv6)
		assert_refused(a, "fd00::1", 8080, "private");
	assert_int_equal(rig_text(&a->g, NETD_ALLOW, UUID, ""), 0);
	assert_true(world_is_reset(guest));
	assert_true(world_is_reset(there));
}

static void test_out6(void **state)
{
	struct all *a = *state;
	struct sockaddr_in6 in = { .sin6_family = AF_INET6, .sin6_port = htons(8080) };
	AUTO_FD server = -1, guest = -1, there = -1;

	if (!a->ipv6)
		skip();
	server = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(server, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(listen(server, 4), 0);
	assert_int_equal(rig_text(&a->g, NETD_ALLOW, UUID, "one.example:8080"), 0);
	assert_refused(a, PUBLIC6, 8080, "no allowed name led to this address");
	ask(a, NET_HOST_ADDR6, "one.example", DNS_AAAA, PUBLIC6);
	guest = guest_dial(a, SOCK_STREAM, PUBLIC6, 8080);
	there = world_accept(server);
	world_echo(guest, there);
}

static void test_datagrams(void **state)
{
	struct all *a = *state;
	AUTO_FD four = guest_dial(a, SOCK_DGRAM, PUBLIC, 443), six = -1;

	assert_int_equal(send(four, "quic", 4, 0), 4);
	rig_logged(&a->g, "event", "datagram", "address", PUBLIC, "port", "443", "verdict", "refused", NULL);
	if (!a->ipv6)
		return;
	six = guest_dial(a, SOCK_DGRAM, PUBLIC6, 443);
	assert_int_equal(send(six, "quic", 4, 0), 4);
	rig_logged(&a->g, "event", "datagram", "address", PUBLIC6, "port", "443", "verdict", "refused", NULL);
}

static void test_in(void **state)
{
	struct all *a = *state;
	AUTO_FD server = guest_listen(a, 80), published = world_listen(OUTSIDE, "127.0.0.1", 0), client = -1,
		there = -1;
	int fds[MSG_FDS_MAX];
	struct err e = { 0 };
	char port[60];
	struct buf b;

	snprintf(port, sizeof(port), "%u:80", world_port_of(published));
	netrig_enter(a->net.sandbox_ns);
	if (topology_sockets(fds, ARRAY_LEN(fds), &e) < 0)
		fail_msg("%s", e.msg);
	netrig_enter(a->net.host_ns);
	assert_int_equal(rig_ports(&a->g, UUID, (const char *[]){ port, NULL }, &published), 0);
	buf_init(&b, 100);
	assert_int_equal(wire_put_str(&b, UUID), 0);
	assert_int_equal(msg_send(a->g.fd, NETD_SOCKETS, 0, b.data, b.len, fds, ARRAY_LEN(fds)), 0);
	buf_fini(&b);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		close(fds[i]);
	client = world_dial(OUTSIDE, "127.0.0.1", world_port_of(published));
	there = world_accept(server);
	world_echo(client, there);
	bulk(client, there);
	bulk(there, client);
}

/* A daemon that starts anew: the sockets of before are closed first, and all is as it was. */
static void test_again(void **state)
{
	struct all *a = *state;

	assert_int_equal(rig_text(&a->g, NETD_CLOSE, UUID, NULL), 0);
	open_sandbox(a);
	assert_int_equal(rig_text(&a->g, NETD_ALLOW, UUID, "one.example"), 0);
	assert_string_equal(ask(a, NET_HOST_ADDR, "one.example", DNS_A, PUBLIC).addr, PUBLIC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_questions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_questions_by_tcp, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out6, setup, teardown),
		cmocka_unit_test_setup_teardown(test_datagrams, setup, teardown),
		cmocka_unit_test_setup_teardown(test_in, setup, teardown),
		cmocka_unit_test_setup_teardown(test_again, setup, teardown),
	};

	world();
	if (access("/dev/net/tun", R_OK | W_OK) < 0) {
		printf("skipped: no /dev/net/tun\n");
		return 77;
	}
	add_public6();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
