/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent is told of its network, and connections that end with their parent; in a network namespace of the
 * test's own. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
/* */
#include <cmocka.h>

#include "agent/net.h"
#include "base/fd.h"
#include "base/json.h"

#define GOOD                                                                                          \
	"\"address\":\"10.77.0.2\",\"prefix\":24,\"gateway\":\"10.77.0.1\",\"address6\":\"fd77::2\"," \
	"\"prefix6\":64,\"gateway6\":\"fd77::1\""

static int parse(const char *text, struct net_config *c, bool *given, struct err *e)
{
	AUTO_JSON *o = NULL;

	assert_int_equal(json_parse(text, strlen(text), &o, e), 0);
	return net_parse(o, c, given, e);
}

static void what_it_is_told(void **state)
{
	static const struct {
		const char *text, *words;
	} bad[] = {
		{ "{\"net\":7}", "net" },
		{ "{\"net\":{}}", "address: not an address" },
		{ "{\"net\":{\"address\":\"10.77.0.2.1\"}}", "address: not an address" },
		{ "{\"net\":{" GOOD ",\"mtu\":70000}}", "mtu" },
		{ "{\"net\":{\"address\":\"10.77.0.2\",\"gateway\":\"10.77.0.1\",\"address6\":\"::1\",\"gateway6\":\"::2\"}}",
		  "prefix" },
	};
	struct net_config c;
	struct err e = { 0 };
	bool given;

	(void)state;
	assert_int_equal(parse("{}", &c, &given, &e), 0);
	assert_false(given);
	assert_int_equal(parse("{\"net\":{" GOOD "}}", &c, &given, &e), 0);
	assert_true(given);
	assert_int_equal(c.address.s_addr, inet_addr("10.77.0.2"));
	assert_int_equal(c.prefix, 24);
	assert_int_equal(c.mtu, 1500);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(parse(bad[i].text, &c, &given, &e), -EINVAL);
		assert_non_null(strstr(e.msg, bad[i].words));
		assert_false(given);
	}
}

/* Neither a card nor anything else of the machine is touched by a test's agent. */
static void no_guest_ENODEV(void **state)
{
	struct guest g = { .test = true };
	struct net_config c = { 0 };
	struct err e = { 0 };

	(void)state;
	assert_int_equal(net_up(&g, &c, &e), -ENODEV);
}

static bool own_namespace; /* of the network; once the first test that needs one has run */

/* -- connections ------------------------------------------------------------------------------- */

static void set_lo(int fd, const char *name, const char *addr)
{
	struct ifreq ifr = { 0 };
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(addr) };

	strcpy(ifr.ifr_name, name);
	memcpy(&ifr.ifr_addr, &sa, sizeof(sa));
	assert_int_equal(ioctl(fd, SIOCSIFADDR, &ifr), 0);
	assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &ifr), 0);
	ifr.ifr_flags |= IFF_UP;
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &ifr), 0);
}

struct pair {
	int client, server;
};

static struct pair connect_to(const char *from, const char *addr)
{
	struct sockaddr_in mine = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from) };
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(addr) };
	AUTO_FD listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(sa);
	struct pair p;

	assert_int_equal(bind(listening, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(listening, 1), 0);
	assert_int_equal(getsockname(listening, (struct sockaddr *)&sa, &len), 0);
	p.client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(p.client, (struct sockaddr *)&mine, sizeof(mine)), 0);
	assert_int_equal(connect(p.client, (struct sockaddr *)&sa, sizeof(sa)), 0);
	p.server = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	assert_true(p.server >= 0);
	return p;
}

static void close_pair(struct pair *p)
{
	close(p->client);
	close(p->server);
}

static void connections_of_before_are_reset(void **state)
{
	struct guest g = { .net_up = true,
			   .tcp_fd = { -1, -1 },
			   .proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
	struct pair outside, inside, own;
	struct err e = { 0 };
	char byte = 0;
	int fd, r;

	(void)state;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
		if (getenv("CRUCIBLE_MUST_RUN"))
			fail_msg("no network namespace: %s", strerror(errno));
		print_message("skipped: no network namespace of its own: %s\n", strerror(errno));
		skip();
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	own_namespace = true;
	net_hold_counts(&g);
	assert_true(g.tcp_fd[0] >= 0);
	/* None of either family: nobody is asked, so that it works where the kernel could not even say. */
	assert_int_equal(net_reset_connections(&g, &e), 0);
	set_lo(fd, "lo", "127.0.0.1");
	set_lo(fd, "lo:1", "10.9.9.1"); /* not loopback's, but here: as if it were elsewhere */
	set_lo(fd, "lo:2", "10.9.9.2");
	close(fd);
	outside = connect_to("10.9.9.1", "10.9.9.2");
	inside = connect_to("127.0.0.1", "127.0.0.1");
	own = connect_to("10.9.9.1", "10.9.9.1");
	r = net_reset_connections(&g, &e);
	if (r < 0 && strstr(e.msg, "not supported")) {
		if (getenv("CRUCIBLE_MUST_RUN"))
			fail_msg("%s", e.msg);
		print_message("skipped: this kernel cannot end connections: %s\n", e.msg);
		skip();
	}
	assert_int_equal(r, 0);
	assert_int_equal(recv(outside.client, &byte, 1, MSG_DONTWAIT), -1);
	assert_true(errno == ECONNABORTED || errno == ECONNRESET);
	assert_int_equal(send(inside.client, "x", 1, 0), 1);
	assert_int_equal(recv(inside.server, &byte, 1, 0), 1);
	assert_int_equal(byte, 'x');
	assert_int_equal(send(own.client, "y", 1, 0), 1);
	assert_int_equal(recv(own.server, &byte, 1, 0), 1);
	assert_int_equal(byte, 'y');
	/* Nothing is left, and that is fine. */
	close_pair(&outside);
	assert_int_equal(net_reset_connections(&g, &e), 0);
	/* Without the counters it looks. */
	outside = connect_to("10.9.9.1", "10.9.9.2");
	fd_close(&g.tcp_fd[0]);
	fd_close(&g.tcp_fd[1]);
	assert_int_equal(net_reset_connections(&g, &e), 0);
	assert_int_equal(recv(outside.client, &byte, 1, MSG_DONTWAIT), -1);
	assert_true(errno == ECONNABORTED || errno == ECONNRESET);
	close_pair(&outside);
	close_pair(&inside);
	close_pair(&own);
	fd_close(&g.proc_fd);
}

/* Nobody is answered while it waits for a card, so that is not for long. */
static unsigned naps;
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
	(void)left;
	assert_true(t->tv_sec == 0 && t->tv_nsec <= 1000000);
	naps++;
	return 0;
}

static void no_card_ENODEV(void **state)
{
	struct guest g = { .proc_fd = -1, .root_fd = -1, .initramfs_fd = -1, .tcp_fd = { -1, -1 } };
	struct net_config c = { .mtu = 1500 };
	struct err e = { 0 };

	(void)state;
	if (!own_namespace) /* never on the cards of this host */
		skip();
	assert_int_equal(net_up(&g, &c, &e), -ENODEV);
	assert_non_null(strstr(e.msg, "no network card"));
	assert_in_range(naps, 1, 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_is_told),
		cmocka_unit_test(no_guest_ENODEV),
		cmocka_unit_test(connections_of_before_are_reset),
		cmocka_unit_test(no_card_ENODEV),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
