/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's network namespace: what of a guest arrives where, and that nothing else does. Needs root. What must not
 * arrive is sent before something that does: when the second is there, the first is not coming any more. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <netlink/route/route.h>
#include <nftables/libnftables.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/proc.h"
#include "tests/unit/net_guest.h"

#define DEADLINE_MS 20000
#define STRANGER    65534

static int setup(void **state)
{
	struct netrig *n = malloc(sizeof(*n));
	struct err e = { 0 };

	netrig_new(n);
	if (netrig_up(n, &e) < 0)
		fail_msg("%s", e.msg);
	*state = n;
	return 0;
}

static int teardown(void **state)
{
	netrig_free(*state);
	free(*state);
	return 0;
}

/* -- addresses and sockets ------------------------------------------------------------------------- */

struct place {
	struct sockaddr_storage sa;
	socklen_t len;
};

static struct place at(const char *addr, uint16_t port)
{
	struct place p = { .len = sizeof(struct sockaddr_in) };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	if (inet_pton(AF_INET, addr, &four.sin_addr) == 1) {
		memcpy(&p.sa, &four, sizeof(four));
		return p;
	}
	assert_int_equal(inet_pton(AF_INET6, addr, &six.sin6_addr), 1);
	memcpy(&p.sa, &six, sizeof(six));
	p.len = sizeof(six);
	return p;
}

static void assert_place(const struct sockaddr_storage *sa, const char *addr, uint16_t port)
{
	struct place want = at(addr, port);

	assert_int_equal(sa->ss_family, want.sa.ss_family);
	if (sa->ss_family == AF_INET) {
		const struct sockaddr_in *a = (const void *)sa, *b = (const void *)&want.sa;

		assert_memory_equal(&a->sin_addr, &b->sin_addr, sizeof(a->sin_addr));
		assert_int_equal(a->sin_port, port ? b->sin_port : a->sin_port);
	} else {
		const struct sockaddr_in6 *a = (const void *)sa, *b = (const void *)&want.sa;

		assert_memory_equal(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr));
		assert_int_equal(a->sin6_port, port ? b->sin6_port : a->sin6_port);
	}
}

static void wait_for(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
}

/* A socket of the namespace @ns, bound to @from where that is not NULL. */
static int socket_in(const struct netrig *n, int ns, int type, int protocol, const struct place *like, const char *from)
{
	int fd;

	netrig_enter(ns);
	fd = socket(like->sa.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
	assert_true(fd >= 0);
	if (from) {
		struct place p = at(from, 0);

		assert_int_equal(bind(fd, (const struct sockaddr *)&p.sa, p.len), 0);
	}
	netrig_enter(n->host_ns);
	return fd;
}

/* Begin a connection of the guest; its result is not waited for. */
static int dial(const struct netrig *n, const char *from, const char *addr, uint16_t port)
{
	struct place to = at(addr, port);
	int fd = socket_in(n, n->guest_ns, SOCK_STREAM, 0, &to, from);

	if (connect(fd, (const struct sockaddr *)&to.sa, to.len) < 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

static int accept_one(int listener, struct sockaddr_storage *ret_peer)
{
	socklen_t len = sizeof(*ret_peer);
	int fd;

	wait_for(listener, POLLIN);
	fd = accept4(listener, (struct sockaddr *)ret_peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(fd >= 0);
	return fd;
}

static void say(int from, int to, const char *text)
{
	char got[64] = "";

	wait_for(from, POLLOUT);
	assert_int_equal(send(from, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	wait_for(to, POLLIN);
	assert_int_equal(recv(to, got, sizeof(got), 0), strlen(text));
	assert_string_equal(got, text);
}

/* -- TCP -------------------------------------------------------------------------------------------- */

static void dial_and_talk(const struct netrig *n, int listener, const char *addr, uint16_t port, const char *guest)
{
	struct sockaddr_storage peer, dialed;
	socklen_t len = sizeof(dialed);
	AUTO_FD ours = -1;
	AUTO_FD theirs = dial(n, NULL, addr, port);

	ours = accept_one(listener, &peer);
	assert_int_equal(getsockname(ours, (struct sockaddr *)&dialed, &len), 0);
	assert_place(&dialed, addr, port);
	assert_place(&peer, guest, 0);
	say(theirs, ours, "hello");
	say(ours, theirs, "and back");
}

static void test_tcp_anywhere(void **state)
{
	const struct netrig *n = *state;
	static const char *const four[] = { "93.184.216.34", "169.254.169.254", "192.168.1.1", NET_HOST_ADDR };
	static const char *const six[] = { "2606:4700::1111", "fd00::1", NET_HOST_ADDR6 };

	for (size_t i = 0; i < ARRAY_LEN(four); i++) {
		dial_and_talk(n, n->fds[TOPOLOGY_TCP4], four[i], 443, NET_GUEST_ADDR);
		dial_and_talk(n, n->fds[TOPOLOGY_TCP4], four[i], NET_TCP_PORT, NET_GUEST_ADDR);
	}
	for (size_t i = 0; n->fds[TOPOLOGY_TCP6] >= 0 && i < ARRAY_LEN(six); i++)
		dial_and_talk(n, n->fds[TOPOLOGY_TCP6], six[i], 22, NET_GUEST_ADDR6);
}

/* -- UDP -------------------------------------------------------------------------------------------- */

struct got {
	char text[64];
	struct sockaddr_storage from, to;
};

static void receive(int fd, struct got *ret)
{
	char control[256] __attribute__((aligned(8)));
	struct iovec iov = { ret->text, sizeof(ret->text) - 1 };
	struct msghdr m = { .msg_name = &ret->from,
			    .msg_namelen = sizeof(ret->from),
			    .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control,
			    .msg_controllen = sizeof(control) };
	bool told = false;

	memset(ret, 0, sizeof(*ret));
	wait_for(fd, POLLIN);
	assert_true(recvmsg(fd, &m, 0) > 0);
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_ORIGDSTADDR) ||
		    (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR)) {
			memcpy(&ret->to, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
			told = true;
		}
	assert_true(told);
}

/* As the resolver does: with the address that was asked as its source. */
static void answer(int fd, const struct got *g, const char *text)
{
	char control[CMSG_SPACE(sizeof(struct in6_pktinfo))] __attribute__((aligned(8))) = { 0 };
	struct iovec iov = { (char *)text, strlen(text) };
	struct msghdr m = { .msg_name = (void *)&g->from, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control };
	bool six = g->to.ss_family == AF_INET6;
	struct in_pktinfo four = { 0 };
	struct in6_pktinfo info6 = { 0 };
	struct cmsghdr *c;

	m.msg_namelen = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	m.msg_controllen = six ? CMSG_SPACE(sizeof(info6)) : CMSG_SPACE(sizeof(four));
	c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = six ? IPPROTO_IPV6 : IPPROTO_IP;
	c->cmsg_type = six ? IPV6_PKTINFO : IP_PKTINFO;
	c->cmsg_len = six ? CMSG_LEN(sizeof(info6)) : CMSG_LEN(sizeof(four));
	if (six) {
		info6.ipi6_addr = ((const struct sockaddr_in6 *)&g->to)->sin6_addr;
		memcpy(CMSG_DATA(c), &info6, sizeof(info6));
	} else {
		four.ipi_spec_dst = ((const struct sockaddr_in *)&g->to)->sin_addr;
		memcpy(CMSG_DATA(c), &four, sizeof(four));
	}
	if (sendmsg(fd, &m, 0) < 0)
		fail_msg("answer: %s", strerror(errno));
}

/* A question and its answer; the guest's socket is connected, so that it hears nobody but whom it asked. */
static void ask(const struct netrig *n, int udp, const char *addr, const char *guest)
{
	struct place to = at(addr, 53);
	AUTO_FD s = socket_in(n, n->guest_ns, SOCK_DGRAM, 0, &to, NULL);
	char text[64] = "";
	struct got g;

	assert_int_equal(connect(s, (const struct sockaddr *)&to.sa, to.len), 0);
	assert_int_equal(send(s, "a?", 2, 0), 2);
	receive(udp, &g);
	assert_string_equal(g.text, "a?");
	assert_place(&g.from, guest, 0);
	assert_place(&g.to, addr, 53);
	answer(udp, &g, "192.0.2.1");
	wait_for(s, POLLIN);
	assert_int_equal(recv(s, text, sizeof(text), 0), 9);
	assert_string_equal(text, "192.0.2.1");
}

static void test_udp_answered_as_asked(void **state)
{
	const struct netrig *n = *state;

	ask(n, n->fds[TOPOLOGY_UDP4], "8.8.8.8", NET_GUEST_ADDR);
	ask(n, n->fds[TOPOLOGY_UDP4], NET_HOST_ADDR, NET_GUEST_ADDR);
	if (n->fds[TOPOLOGY_UDP6] >= 0) {
		ask(n, n->fds[TOPOLOGY_UDP6], "2001:4860:4860::8888", NET_GUEST_ADDR6);
		ask(n, n->fds[TOPOLOGY_UDP6], NET_HOST_ADDR6, NET_GUEST_ADDR6);
	}
}

static void send_from(const struct netrig *n, const char *from, const char *addr, uint16_t port, const char *text)
{
	struct place to = at(addr, port);
	AUTO_FD s = socket_in(n, n->guest_ns, SOCK_DGRAM, 0, &to, from);

	assert_int_equal(sendto(s, text, strlen(text), 0, (const struct sockaddr *)&to.sa, to.len), strlen(text));
}

static void test_udp_other_ports(void **state)
{
	const struct netrig *n = *state;
	struct got g;

	send_from(n, NULL, "93.184.216.34", 443, "quic");
	receive(n->fds[TOPOLOGY_UDP4], &g);
	assert_string_equal(g.text, "quic");
	assert_place(&g.to, "93.184.216.34", 443);
	send_from(n, NULL, NET_HOST_ADDR, NET_TCP_PORT, "x");
	receive(n->fds[TOPOLOGY_UDP4], &g);
	assert_place(&g.to, NET_HOST_ADDR, NET_TCP_PORT);
}

/* -- what must not arrive ----------------------------------------------------------------------------- */

static void assert_nobody(int listener)
{
	assert_int_equal(accept4(listener, NULL, NULL, SOCK_CLOEXEC), -1);
	assert_int_equal(errno, EAGAIN);
}

static void test_spoofed_dropped(void **state)
{
	const struct netrig *n = *state;
	struct sockaddr_storage peer;
	AUTO_FD spoofed = -1;
	AUTO_FD fence = -1;
	AUTO_FD got = -1;
	struct got g;

	send_from(n, GUEST_OTHER, "8.8.8.8", 53, "spoofed");
	send_from(n, NULL, "8.8.8.8", 53, "fence");
	receive(n->fds[TOPOLOGY_UDP4], &g);
	assert_string_equal(g.text, "fence");
	spoofed = dial(n, GUEST_OTHER, "8.8.8.8", 80);
	fence = dial(n, NULL, "8.8.8.8", 80);
	got = accept_one(n->fds[TOPOLOGY_TCP4], &peer);
	assert_place(&peer, NET_GUEST_ADDR, 0);
	assert_nobody(n->fds[TOPOLOGY_TCP4]);
}

/* The text of a file of the sandbox's namespace. */
static void read_there(const struct netrig *n, const char *path, char *out, size_t cap)
{
	ssize_t len;
	AUTO_FD fd = -1;

	netrig_enter(n->sandbox_ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	len = read(fd, out, cap - 1);
	netrig_enter(n->host_ns);
	assert_true(len >= 0);
	out[len] = '\0';
}

static void test_orphans_do_not_stay(void **state)
{
	const struct netrig *n = *state;
	char text[16];

	read_there(n, "/proc/sys/net/ipv4/tcp_orphan_retries", text, sizeof(text));
	assert_string_equal(text, "5\n");
}

/* "Who has 10.77.0.1? Tell 10.77.0.@last", as a frame of the guest's with the header that a tap's user writes. */
static void arp_from(const struct netrig *n, uint8_t last)
{
	uint8_t frame[10 + 14 + 28] = { [10] = 0xff, 0xff, 0xff, 0xff,	   0xff, 0xff, 0x52,	  0x54, 0, 0xc0, 0,
					1,	     8,	   6,	 [24] = 0, 1,	 8,    0,	  6,	4, 0,	 1,
					0x52,	     0x54, 0,	 0xc0,	   0,	 1,    [38] = 10, 77,	0, last };

	memcpy(frame + 48, (const uint8_t[]){ 10, 77, 0, 1 }, 4);
	assert_int_equal(write(n->tap, frame, sizeof(frame)), sizeof(frame));
}

static void test_neighbours_bounded(void **state)
{
	const struct netrig *n = *state;
	char text[4096];

	for (uint8_t i = 100; i < 120; i++)
		arp_from(n, i);
	ask(n, n->fds[TOPOLOGY_UDP4], "8.8.8.8", NET_GUEST_ADDR);
	read_there(n, "/proc/thread-self/net/arp", text, sizeof(text));
	assert_non_null(strstr(text, NET_GUEST_ADDR " "));
	assert_null(strstr(text, "10.77.0.10"));
	assert_null(strstr(text, "10.77.0.11"));
}

static uint16_t sum_of(uint32_t sum, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* "@target is at my card", unasked, from @source. */
static void advertise(const struct netrig *n, const char *source, const char *target)
{
	uint8_t frame[10 + 14 + 40 + 32] = {
		[10] = 0x52,
		0x54,
		0,
		0xc0,
		0,
		0,
		0x52,
		0x54,
		0,
		0xc0,
		0,
		1,
		0x86,
		0xdd,
		[24] = 0x60,
		0,
		0,
		0,
		0,
		32,
		IPPROTO_ICMPV6,
		255,
		[64] = ND_NEIGHBOR_ADVERT,
		[68] = 0x20,
		[88] = ND_OPT_TARGET_LINKADDR,
		1,
		0x52,
		0x54,
		0,
		0xc0,
		0,
		1,
	};
	uint16_t sum;

	assert_int_equal(inet_pton(AF_INET6, source, frame + 32), 1);
	assert_int_equal(inet_pton(AF_INET6, NET_HOST_ADDR6, frame + 48), 1);
	assert_int_equal(inet_pton(AF_INET6, target, frame + 72), 1);
	sum = (uint16_t)~sum_of(32 + IPPROTO_ICMPV6, frame + 32, 64);
	frame[66] = (uint8_t)(sum >> 8);
	frame[67] = (uint8_t)sum;
	assert_int_equal(write(n->tap, frame, sizeof(frame)), sizeof(frame));
}

static unsigned adverts_heard(const struct netrig *n)
{
	char text[8192];
	const char *at;

	read_there(n, "/proc/thread-self/net/snmp6", text, sizeof(text));
	at = strstr(text, "Icmp6InNeighborAdvertisements");
	assert_non_null(at);
	return (unsigned)strtoul(at + strlen("Icmp6InNeighborAdvertisements"), NULL, 10);
}

/* Of an address of ours that somebody else claims to have the kernel tells in the host's log, each time. */
static void test_ours_not_advertised(void **state)
{
	const struct netrig *n = *state;
	unsigned before;

	if (n->fds[TOPOLOGY_UDP6] < 0)
		skip();
	for (int k = 0; k < 2; k++) /* the neighbours know each other */
		ask(n, n->fds[TOPOLOGY_UDP6], "2001:4860:4860::8888", NET_GUEST_ADDR6);
	before = adverts_heard(n);
	advertise(n, NET_GUEST_ADDR6, NET_HOST_ADDR6);
	advertise(n, NET_GUEST_LINK6, NET_HOST_LINK6);
	advertise(n, NET_GUEST_ADDR6, "fd77::3");
	ask(n, n->fds[TOPOLOGY_UDP6], "2001:4860:4860::8888", NET_GUEST_ADDR6);
	assert_int_equal(adverts_heard(n), before);
	advertise(n, NET_GUEST_ADDR6, NET_GUEST_ADDR6);
	advertise(n, NET_GUEST_LINK6, NET_GUEST_LINK6);
	ask(n, n->fds[TOPOLOGY_UDP6], "2001:4860:4860::8888", NET_GUEST_ADDR6);
	assert_int_equal(adverts_heard(n), before + 2);
}

/* Echo requests and a protocol of no name: no answer, no complaint. */
static void test_others_dropped(void **state)
{
	const struct netrig *n = *state;
	static const char *const where[] = { NET_HOST_ADDR, "8.8.8.8" };
	struct icmphdr echo = { .type = ICMP_ECHO, .checksum = htons(0xf7ff) };
	struct place to = at(NET_HOST_ADDR, 0);
	AUTO_FD icmp = socket_in(n, n->guest_ns, SOCK_RAW, IPPROTO_ICMP, &to, NULL);
	AUTO_FD gre = socket_in(n, n->guest_ns, SOCK_RAW, IPPROTO_GRE, &to, NULL);
	char text[128];

	for (size_t i = 0; i < ARRAY_LEN(where); i++) {
		to = at(where[i], 0);
		assert_int_equal(sendto(icmp, &echo, sizeof(echo), 0, (const struct sockaddr *)&to.sa, to.len),
				 sizeof(echo));
		assert_int_equal(sendto(gre, "grrr", 4, 0, (const struct sockaddr *)&to.sa, to.len), 4);
	}
	ask(n, n->fds[TOPOLOGY_UDP4], "8.8.8.8", NET_GUEST_ADDR);
	assert_int_equal(recv(icmp, text, sizeof(text), 0), -1);
	assert_int_equal(errno, EAGAIN);
}

static void test_ping6_dropped(void **state)
{
	const struct netrig *n = *state;
	struct icmp6_hdr echo = { .icmp6_type = ICMP6_ECHO_REQUEST };
	struct icmp6_filter only;
	struct place to = at(NET_HOST_ADDR6, 0);
	AUTO_FD icmp = -1;
	char text[128];

	if (n->fds[TOPOLOGY_UDP6] < 0)
		skip();
	icmp = socket_in(n, n->guest_ns, SOCK_RAW, IPPROTO_ICMPV6, &to, NULL);
	ICMP6_FILTER_SETBLOCKALL(&only);
	ICMP6_FILTER_SETPASS(ICMP6_ECHO_REPLY, &only);
	assert_int_equal(setsockopt(icmp, IPPROTO_ICMPV6, ICMP6_FILTER, &only, sizeof(only)), 0);
	assert_int_equal(sendto(icmp, &echo, sizeof(echo), 0, (const struct sockaddr *)&to.sa, to.len), sizeof(echo));
	ask(n, n->fds[TOPOLOGY_UDP6], NET_HOST_ADDR6, NET_GUEST_ADDR6);
	assert_int_equal(recv(icmp, text, sizeof(text), 0), -1);
	assert_int_equal(errno, EAGAIN);
}

/* -- somebody else in the namespace: an engine that was taken over ------------------------------------- */

static bool fails_with(int r, int want)
{
	return r < 0 && errno == want;
}

static bool unreachable(int r)
{
	return fails_with(r, ENETUNREACH) || fails_with(r, EADDRNOTAVAIL);
}

static int tries(int type, const char *addr, uint16_t port)
{
	struct place to = at(addr, port);
	int s = socket(to.sa.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (type == SOCK_DGRAM)
		return (int)sendto(s, "x", 1, 0, (const struct sockaddr *)&to.sa, to.len);
	return connect(s, (const struct sockaddr *)&to.sa, to.len);
}

/* 0, or which of its attempts went otherwise. Sockets stay open until it ends. */
static int stranger(bool six)
{
	static const char *const here[] = { "127.0.0.1", NET_HOST_ADDR, "::1", NET_HOST_ADDR6 };
	static const char *const away[] = { "8.8.8.8", "192.168.0.1", "2606:4700::1111", "fd00::1" };

	if (setresgid(STRANGER, STRANGER, STRANGER) < 0 || setresuid(STRANGER, STRANGER, STRANGER) < 0)
		return 1;
	for (int i = 0; i < (six ? 4 : 2); i++) {
		/* What it sends is thrown away on its way out: a datagram says so, a connection is never answered. */
		if (!fails_with(tries(SOCK_STREAM, here[i], NET_TCP_PORT), EINPROGRESS))
			return 10 + i;
		if (!fails_with(tries(SOCK_DGRAM, here[i], NET_UDP_PORT), EPERM))
			return 20 + i;
		if (!unreachable(tries(SOCK_STREAM, away[i], 443)))
			return 30 + i;
		if (!unreachable(tries(SOCK_DGRAM, away[i], 53)))
			return 40 + i;
	}
	return 0;
}

static void test_stranger_reaches_nothing(void **state)
{
	const struct netrig *n = *state;
	struct sockaddr_storage peer;
	struct got g;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		netrig_enter(n->sandbox_ns);
		_exit(stranger(n->fds[TOPOLOGY_TCP6] >= 0));
	}
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_true(WIFEXITED(status));
	for (int i = TOPOLOGY_TCP4; i <= TOPOLOGY_TCP6; i++) {
		AUTO_FD fence = -1;
		AUTO_FD got = -1;

		if (n->fds[i] < 0)
			continue;
		fence = dial(n, NULL, i == TOPOLOGY_TCP4 ? "8.8.8.8" : "2606:4700::1111", 80);
		got = accept_one(n->fds[i], &peer);
		assert_place(&peer, i == TOPOLOGY_TCP4 ? NET_GUEST_ADDR : NET_GUEST_ADDR6, 0);
		assert_nobody(n->fds[i]);
	}
	send_from(n, NULL, "8.8.8.8", 53, "fence");
	receive(n->fds[TOPOLOGY_UDP4], &g);
	assert_string_equal(g.text, "fence");
}

/* -- the state ----------------------------------------------------------------------------------------- */

struct routes {
	int away, main, marked, six_main;
};

static void look_at(struct nl_object *obj, void *arg)
{
	struct rtnl_route *r = (struct rtnl_route *)obj;
	struct routes *seen = arg;
	char text[64];

	nl_addr2str(rtnl_route_get_dst(r), text, sizeof(text));
	if (rtnl_route_get_nnexthops(r) > 0 && rtnl_route_nh_get_gateway(rtnl_route_nexthop_n(r, 0)))
		seen->away++;
	if (rtnl_route_get_table(r) == RT_TABLE_MAIN) {
		seen->main++;
		if (strcmp(text, "10.77.0.0/24") != 0 && strcmp(text, "fd77::/64") != 0 &&
		    strcmp(text, "fe80::/64") != 0)
			fail_msg("a route to %s", text);
	} else if (rtnl_route_get_table(r) != RT_TABLE_LOCAL) {
		assert_int_equal(rtnl_route_get_table(r), 100);
		assert_int_equal(rtnl_route_get_type(r), RTN_LOCAL);
		seen->marked++;
	}
}

static void test_no_way_out(void **state)
{
	const struct netrig *n = *state;
	struct nl_sock *sk = nl_socket_alloc();
	struct nl_cache *cache = NULL;
	struct routes seen = { 0 };
	int families = n->fds[TOPOLOGY_TCP6] >= 0 ? 2 : 1, addresses = 0;
	char text[4096];

	netrig_enter(n->sandbox_ns);
	assert_int_equal(nl_connect(sk, NETLINK_ROUTE), 0);
	netrig_enter(n->host_ns);
	assert_int_equal(rtnl_route_alloc_cache(sk, AF_UNSPEC, 0, &cache), 0);
	nl_cache_foreach(cache, look_at, &seen);
	nl_cache_free(cache);
	nl_socket_free(sk);
	if (families == 2) { /* addresses that we gave it, and none that waits to be usable */
		read_there(n, "/proc/thread-self/net/if_inet6", text, sizeof(text));
		for (const char *p = text; (p = strstr(p, NET_TAP "\n")); p++)
			addresses++;
		assert_int_equal(addresses, 2);
	}
	assert_int_equal(seen.away, 0);
	assert_int_equal(seen.marked, families);
	assert_int_equal(seen.main, families == 2 ? 3 : 1);
}

static void test_up_again(void **state)
{
	struct netrig *n = *state;
	int old[TOPOLOGY_FD_COUNT], before[TOPOLOGY_FD_COUNT];
	struct err e = { 0 };

	/* While the old sockets are there, their ports are taken; nothing of ours is left then. */
	memcpy(old, n->fds, sizeof(old));
	memset(before, 0x55, sizeof(before));
	memcpy(n->fds, before, sizeof(before));
	assert_int_equal(netrig_up(n, &e), -EADDRINUSE);
	assert_memory_equal(n->fds, before, sizeof(before));
	memcpy(n->fds, old, sizeof(old));
	netrig_close_fds(n);
	for (int i = 0; i < 3; i++) {
		if (netrig_up(n, &e) < 0)
			fail_msg("%s", e.msg);
		dial_and_talk(n, n->fds[TOPOLOGY_TCP4], "93.184.216.34", 443, NET_GUEST_ADDR);
		ask(n, n->fds[TOPOLOGY_UDP4], "8.8.8.8", NET_GUEST_ADDR);
		if (i < 2)
			netrig_close_fds(n);
	}
	test_no_way_out(state);
	test_spoofed_dropped(state);
}

/* A published port: sockets from in there, used from out here. */
static void test_sockets_to_guest(void **state)
{
	const struct netrig *n = *state;
	struct place any = at(NET_GUEST_ADDR, 8080);
	AUTO_FD listener = socket_in(n, n->guest_ns, SOCK_STREAM, 0, &any, NULL);
	struct sockaddr_storage peer;
	struct err e = { 0 };
	int fds[3];

	assert_int_equal(bind(listener, (const struct sockaddr *)&any.sa, any.len), 0);
	assert_int_equal(listen(listener, 8), 0);
	netrig_enter(n->sandbox_ns);
	assert_int_equal(topology_sockets(fds, ARRAY_LEN(fds), &e), 0);
	netrig_enter(n->host_ns);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
		AUTO_FD got = -1;

		if (connect(fds[i], (const struct sockaddr *)&any.sa, any.len) < 0)
			assert_int_equal(errno, EINPROGRESS);
		got = accept_one(listener, &peer);
		assert_place(&peer, NET_HOST_ADDR, 0);
		say(fds[i], got, "GET /");
		say(got, fds[i], "200");
		fd_close(&fds[i]);
	}
}

static char *host_rules(void)
{
	struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);
	char *text;

	assert_non_null(nft);
	nft_ctx_buffer_output(nft);
	assert_int_equal(nft_run_cmd_from_buffer(nft, "list ruleset"), 0);
	text = strdup(nft_ctx_get_output_buffer(nft));
	nft_ctx_free(nft);
	return text;
}

static void test_host_untouched(void **state)
{
	AUTO_FREE char *before = host_rules();
	AUTO_FREE char *after = NULL;
	struct netrig n;
	struct err e = { 0 };

	(void)state;
	netrig_new(&n);
	assert_int_equal(netrig_up(&n, &e), 0);
	after = host_rules();
	assert_string_equal(before, after);
	assert_int_equal(if_nametoindex(NET_TAP), 0);
	netrig_free(&n);
}

/* Before topology_up() the tap is down: it takes no frame, and nothing comes out of it. */
static void test_down_until_asked(void **state)
{
	uint8_t frame[10 + 60] = { 0 };
	struct netrig n;
	char text[4096];

	(void)state;
	netrig_new(&n);
	assert_int_equal(write(n.tap, frame, sizeof(frame)), -1);
	assert_int_equal(errno, EIO);
	read_there(&n, "/proc/thread-self/net/route", text, sizeof(text));
	assert_null(strstr(text, NET_TAP));
	netrig_free(&n);
}

static void test_probe(void **state)
{
	struct err e = { 0 };

	(void)state;
	if (topology_probe(&e) < 0)
		fail_msg("%s", e.msg);
}

static void test_probe_eperm(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct err e = { 0 };

		if (setresgid(STRANGER, STRANGER, STRANGER) < 0 || setresuid(STRANGER, STRANGER, STRANGER) < 0)
			_exit(1);
		_exit(topology_probe(&e) == -EPERM && strstr(e.msg, "root") ? 0 : 2);
	}
	assert_int_equal(proc_wait(pid, &status), 0);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tcp_anywhere, setup, teardown),
		cmocka_unit_test_setup_teardown(test_udp_answered_as_asked, setup, teardown),
		cmocka_unit_test_setup_teardown(test_udp_other_ports, setup, teardown),
		cmocka_unit_test_setup_teardown(test_spoofed_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_neighbours_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ours_not_advertised, setup, teardown),
		cmocka_unit_test_setup_teardown(test_orphans_do_not_stay, setup, teardown),
		cmocka_unit_test_setup_teardown(test_others_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ping6_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stranger_reaches_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_way_out, setup, teardown),
		cmocka_unit_test_setup_teardown(test_up_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sockets_to_guest, setup, teardown),
		cmocka_unit_test(test_host_untouched),
		cmocka_unit_test(test_down_until_asked),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_probe_eperm),
	};
	const char *must = getenv("CRUCIBLE_MUST_RUN");
	struct err e = { 0 };

	if (geteuid() != 0 || access("/dev/net/tun", F_OK) < 0) {
		fprintf(stderr, "skip: needs root and /dev/net/tun\n");
		return must && *must == '1' ? 1 : 77;
	}
	if (topology_probe(&e) < 0 && !(must && *must == '1')) {
		fprintf(stderr, "skip: %s\n", e.msg);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
