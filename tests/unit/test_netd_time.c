/* SPDX-License-Identifier: Apache-2.0 */
/* What hours do to netd: in this process, with a clock that the test moves. The other side of its log is a socket. */
#include "tests/unit/netd_rig.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "netpolicy/netd/netd_priv.h"

#define S 1000000000ull

uint64_t __wrap_now_ns(void);
uint64_t __real_now_ns(void);

static uint64_t later_ns;  /* than it is */
static uint64_t frozen_ns; /* it is that, and stays; 0: it runs */

uint64_t __wrap_now_ns(void)
{
	return frozen_ns ? frozen_ns : __real_now_ns() + later_ns;
}

struct all {
	struct loop *loop;
	struct netd *n;
	struct netd_sandbox *s;
	int peer; /* the daemon's end */
};

static void pass_log(void *arg, struct msg *m)
{
	(void)arg, (void)m;
}

static void all_new(struct all *a)
{
	static const struct msgconn_ops ops = { .on_msg = pass_log };
	struct netd_params p = { .listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
				 .orphan_ns = 3600 * S };
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct err e = { 0 };
	int fds[TOPOLOGY_FD_COUNT] = { -1, -1, -1, -1 }, pair[2];

	later_ns = frozen_ns = 0;
	assert_int_equal(bind(p.listen_fd, (struct sockaddr *)&at, sizeof(at.sun_family)),
			 0); /* a name of the kernel's */
	assert_int_equal(listen(p.listen_fd, 1), 0);
	assert_int_equal(loop_new(&a->loop), 0);
	assert_int_equal(netd_new(a->loop, &p, NULL, NULL, &a->n, &e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	a->peer = pair[0];
	assert_int_equal(fd_set_nonblock(a->peer, true), 0);
	assert_int_equal(msgconn_new(a->loop, pair[1], NETD_QUEUE_MAX, &ops, NULL, &a->n->conn), 0);
	assert_int_equal(netd_sandbox_new(a->n, "a", &a->s, &e), 0);
	fds[TOPOLOGY_TCP4] = world_listen(INSIDE, "0.0.0.0", 8080);
	assert_int_equal(netd_sandbox_open(a->s, fds, &e), 0);
}

static void all_free(struct all *a)
{
	netd_sandbox_free(a->s);
	netd_free(a->n);
	loop_free(a->loop);
	fd_close(&a->peer);
}

/* The next line; NULL: there is none. */
static struct json_object *line(struct all *a)
{
	static uint8_t buf[MSG_MAX];
	struct json_object *o = NULL;
	char uuid[NETD_UUID_MAX], text[2049];
	struct wire_rd r;
	struct msg m;
	struct err e;

	if (msg_recv(a->peer, buf, sizeof(buf), &m) < 0)
		return NULL;
	assert_int_equal(m.type, NETD_LOG);
	wire_rd_init(&r, m.data, m.len);
	wire_str(&r, uuid, sizeof(uuid));
	wire_str(&r, text, sizeof(text));
	assert_int_equal(wire_done(&r), 0);
	assert_int_equal(json_parse(text, strlen(text), &o, &e), 0);
	return o;
}

static void assert_line(struct all *a, const char *key, int value)
{
	struct json_object *o = line(a), *v;

	assert_non_null(o);
	assert_true(json_object_object_get_ex(o, key, &v) == (value >= 0));
	if (value >= 0)
		assert_int_equal(json_object_get_int(v), value);
	json_put(&o);
}

static void turn(struct all *a, int rounds)
{
	while (rounds-- > 0)
		assert_int_equal(loop_once(a->loop, 1), 0);
}

/* A connection lasts longer than the answer that led to it: a change of the list asks for the name, not for its age. */
static void test_open_connection_does_not_age(void **state)
{
	AUTO_FD server = world_listen(OUTSIDE, PUBLIC, 8080), guest = -1, there = -1, late = -1;
	struct net_addr addr;
	struct err e = { 0 };
	struct all a;

	(void)state;
	all_new(&a);
	assert_int_equal(fd_set_nonblock(server, true), 0);
	assert_int_equal(net_addr_parse(PUBLIC, &addr), 0);
	assert_int_equal(netd_sandbox_allow(a.s, "one.example", 11, &e), 0);
	assert_int_equal(names_add(a.s->names, "one.example", &addr, 60, now_ns()), 0);
	guest = world_dial(INSIDE, PUBLIC, 8080);
	for (int i = 0; there < 0 && i < 10000; i++) {
		turn(&a, 1);
		there = accept4(server, NULL, NULL, SOCK_CLOEXEC);
	}
	assert_true(guest >= 0 && there >= 0);
	later_ns = 3600 * S;
	assert_int_equal(netd_sandbox_allow(a.s, "one.example\ntwo.example", 23, &e), 0);
	assert_int_equal(send(guest, "x", 1, 0), 1);
	turn(&a, 20);
	assert_int_equal(recv(there, &(char){ 0 }, 1, 0), 1);
	/* A new one does ask. */
	late = world_dial(INSIDE, PUBLIC, 8080);
	turn(&a, 20);
	if (late >= 0)
		assert_true(world_is_reset(late));
	else
		late = -1;
	assert_line(&a, "bytes_out", 0);
	/* What does not allow the name ends it, however old it is. */
	assert_int_equal(netd_sandbox_allow(a.s, "two.example", 11, &e), 0);
	turn(&a, 5);
	assert_true(world_is_reset(guest));
	assert_line(&a, "bytes_out", 1);
	all_free(&a);
}

static void test_repeats(void **state)
{
	struct net_addr one = { AF_INET, { 8, 8, 8, 8 } }, two = { AF_INET, { 8, 8, 8, 9 } };
	struct all a;

	(void)state;
	all_new(&a);
	frozen_ns = now_ns();
	for (int i = 0; i < 5; i++)
		netd_log_datagram(&a.s->log, &one, 443, "x");
	netd_log_datagram(&a.s->log, &two, 443, "x");
	netd_log_datagram(&a.s->log, &one, 444, "x");
	for (int i = 0; i < 3; i++)
		assert_line(&a, "repeated", -1);
	assert_null(line(&a));
	frozen_ns += S;
	netd_log_datagram(&a.s->log, &one, 443, "x");
	netd_log_datagram(&a.s->log, &two, 443, "x");
	assert_line(&a, "repeated", 4);
	assert_line(&a, "repeated", -1);
	assert_null(line(&a));
	all_free(&a);
}

static void test_rate(void **state)
{
	struct net_addr addr = { AF_INET, { 8, 8 } };
	struct all a;

	(void)state;
	all_new(&a);
	frozen_ns = now_ns();
	for (uint16_t i = 0; i < 200; i++)
		netd_log_datagram(&a.s->log, &addr, i, "x");
	for (unsigned i = 0; i < NETD_LOG_PER_S; i++)
		assert_line(&a, "port", (int)i);
	assert_null(line(&a));
	assert_int_equal(a.s->log.dropped, 200 - NETD_LOG_PER_S);
	assert_true(a.s->log.timer != 0);
	frozen_ns += S;
	netd_log_datagram(&a.s->log, &addr, 1000, "x");
	assert_line(&a, "port", 1000);
	all_free(&a);
}

/* Nobody hears it: it is counted. */
static void test_nobody(void **state)
{
	struct net_addr addr = { AF_INET, { 8, 8 } };
	struct all a;

	(void)state;
	all_new(&a);
	a.n->conn = msgconn_free(a.n->conn);
	netd_log_datagram(&a.s->log, &addr, 443, "x");
	assert_int_equal(a.s->log.dropped, 1);
	all_free(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_connection_does_not_age),
		cmocka_unit_test(test_repeats),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_nobody),
	};

	world();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
