/* SPDX-License-Identifier: Apache-2.0 */
/* crucible-netd as it is in service, confined: what a guest asks and dials, what the daemon says. */
#include "tests/unit/netd_dns.h"
#include "tests/unit/netd_rig.h"

#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "netpolicy/addr.h"

#define A "11111111-2222-4333-8444-555555555555"
#define B "99999999-2222-4333-8444-555555555555"

static const char *const opened[] = { "10.5.0.0/24", NULL };

/* A sandbox whose guest dials @port. */
static void open_tcp(struct rig *g, const char *uuid, uint16_t port)
{
	assert_int_equal(rig_open(g, uuid, world_listen(INSIDE, "0.0.0.0", port), -1), 0);
}

/* It is refused: by a reset, and with that reason. */
static void assert_refused(struct rig *g, const char *ip, uint16_t port, const char *reason)
{
	int fd = world_dial(INSIDE, ip, port);

	if (fd != -ECONNRESET) { /* it may come before connect() has returned */
		assert_true(fd >= 0);
		assert_true(world_is_reset(fd));
		close(fd);
	}
	rig_logged(g, "event", "connection", "verdict", "refused", "address", ip, "reason", reason, "direction", "out",
		   NULL);
}

static void assert_reached(const char *ip, uint16_t port, int server)
{
	int guest = world_dial(INSIDE, ip, port), there;

	assert_true(guest >= 0);
	there = world_accept(server);
	world_echo(guest, there);
	close(guest);
	assert_false(world_is_reset(there)); /* the end is passed on */
	close(there);
}

/* -- DNS ----------------------------------------------------------------------------------------------------------- */

/* A guest's socket that asks a server at @ip: only answers from there come in. */
static int asker(const char *ip)
{
	int fd = world_udp(INSIDE, "0.0.0.0", 0);
	struct sockaddr_storage to;
	struct net_addr a;
	socklen_t len;

	assert_int_equal(net_addr_parse(ip, &a), 0);
	len = net_addr_to_sockaddr(&a, 53, &to);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, len), 0);
	return fd;
}

static struct dns_answer take_answer(int fd)
{
	uint8_t data[1500];
	ssize_t n = recv(fd, data, sizeof(data), 0);

	assert_true(n > 0);
	return dns_read(data, (size_t)n);
}

static void ask(int fd, const char *name, int type)
{
	uint8_t data[512];
	size_t len = dns_question(data, sizeof(data), name, type);

	assert_int_equal(send(fd, data, len, 0), len);
}

/* The daemon of a sandbox with a resolver whose upstream is ours. Returns the upstream's socket. */
static int with_dns(struct rig *g, const char *uuid, int tcp, const char *const ranges[])
{
	int upstream = world_udp(OUTSIDE, "127.0.0.1", 0);
	char conf[80];

	snprintf(conf, sizeof(conf), "search nowhere.example\nnameserver 127.0.0.1#%u\n", world_port_of(upstream));
	assert_int_equal(rig_config(g, conf, ranges), 0);
	assert_int_equal(rig_open(g, uuid, tcp, world_udp(INSIDE, "0.0.0.0", 53)), 0);
	return upstream;
}

static void resolve(int upstream, const char *name, const char *addr)
{
	AUTO_FD guest = asker(NET_HOST_ADDR);
	struct dns_answer a;

	ask(guest, name, DNS_A);
	dns_upstream(upstream, name, addr);
	a = take_answer(guest);
	assert_int_equal(a.rcode, 0);
	assert_string_equal(a.addr, addr);
}

static void test_questions(void **state)
{
	AUTO_FD upstream = -1, guest = -1;
	struct dns_answer a;
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), NULL);
	upstream = with_dns(&g, A, -1, NULL);
	guest = asker(PUBLIC2); /* wherever it asks */
	ask(guest, "one.example", DNS_A);
	assert_int_equal(take_answer(guest).rcode, DNS_NXDOMAIN); /* nothing is allowed yet */
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "one.example\n"), 0);
	ask(guest, "ONE.example", DNS_A);
	dns_upstream(upstream, "one.example", PUBLIC);
	a = take_answer(guest);
	assert_int_equal(a.rcode, 0);
	assert_string_equal(a.addr, PUBLIC);
	rig_logged(&g, "event", "question", "name", "one.example", "type", "A", "verdict", "denied", NULL);
	rig_logged(&g, "event", "question", "name", "one.example", "type", "A", "verdict", "answered", "addresses",
		   "[ \"" PUBLIC "\" ]", NULL);
	/* An address that nobody may reach is no answer. */
	ask(guest, "one.example", DNS_A);
	dns_upstream(upstream, "one.example", PRIVATE);
	a = take_answer(guest);
	assert_int_equal(a.rcode, DNS_NXDOMAIN);
	assert_string_equal(a.addr, "");
	rig_logged(&g, "event", "question", "verdict", "filtered", NULL);
	assert_int_equal(rig_text(&g, NETD_STAT, A, NULL), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(wire_u64(&g.rest), 0);
	assert_int_equal(wire_u64(&g.rest), 3);
	assert_int_equal(wire_u64(&g.rest), 1);
	rig_stop(&g);
}

static void test_questions_by_tcp(void **state)
{
	AUTO_FD upstream = -1, guest = -1;
	struct rig g;
	uint8_t data[512 + 2];
	struct dns_answer a;
	size_t len;

	(void)state;
	rig_start(&g, getuid(), NULL);
	upstream = with_dns(&g, A, world_listen(INSIDE, "0.0.0.0", 53), NULL);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "one.example\n"), 0);
	guest = world_dial(INSIDE, NET_HOST_ADDR, 53);
	assert_true(guest >= 0);
	len = dns_question(data + 2, sizeof(data) - 2, "one.example", DNS_A);
	data[0] = (uint8_t)(len >> 8);
	data[1] = (uint8_t)len;
	assert_int_equal(send(guest, data, len + 2, 0), len + 2);
	dns_upstream(upstream, "one.example", PUBLIC);
	assert_int_equal(recv(guest, data, 2, MSG_WAITALL), 2);
	len = (size_t)data[0] << 8 | data[1];
	assert_true(len <= sizeof(data));
	assert_int_equal(recv(guest, data, len, MSG_WAITALL), len);
	a = dns_read(data, len);
	assert_string_equal(a.addr, PUBLIC);
	rig_stop(&g);
}

static void test_datagrams(void **state)
{
	static const char large[6000];
	AUTO_FD guest = world_udp(INSIDE, "0.0.0.0", 0);
	struct sockaddr_storage to;
	struct json_object *o, *times;
	struct net_addr a;
	struct rig g;
	socklen_t len;

	(void)state;
	rig_start(&g, getuid(), NULL);
	assert_int_equal(rig_open(&g, A, -1, world_udp(INSIDE, "0.0.0.0", 443)), 0);
	assert_int_equal(net_addr_parse(PUBLIC, &a), 0);
	len = net_addr_to_sockaddr(&a, 443, &to);
	assert_int_equal(connect(guest, (struct sockaddr *)&to, len), 0);
	assert_int_equal(send(guest, "quic", 4, 0), 4);
	o = rig_line(&g, "event", "datagram", "address", PUBLIC, "port", "443", "verdict", "refused", NULL);
	assert_true(json_object_object_get_ex(o, "reason", &times));
	assert_string_equal(json_object_get_string(times), "no UDP but DNS");
	assert_false(json_object_object_get_ex(o, "repeated", &times));
	json_put(&o);
	/* Again and again: told once a second, with how often it was not. */
	for (unsigned sent = 0;; sent++) {
		assert_int_equal(send(guest, "quic", 4, 0), 4);
		assert_int_equal(rig_text(&g, NETD_STAT, A, NULL), 0);
		if (json_object_array_length(g.lines) > 0)
			break;
		assert_true(sent < 10000000);
	}
	o = rig_line(&g, "event", "datagram", "address", PUBLIC, NULL);
	assert_true(json_object_object_get_ex(o, "repeated", &times));
	assert_true(json_object_get_int(times) > 0);
	json_put(&o);
	/* A large one is told as well. */
	assert_int_equal(net_addr_parse(PUBLIC2, &a), 0);
	len = net_addr_to_sockaddr(&a, 443, &to);
	assert_int_equal(connect(guest, (struct sockaddr *)&to, len), 0);
	assert_int_equal(send(guest, large, sizeof(large), 0), sizeof(large));
	rig_logged(&g, "event", "datagram", "address", PUBLIC2, "verdict", "refused", NULL);
	rig_stop(&g);
}

/* However many there are: lines and those that are said to be dropped are all of them. */
static void test_log_is_bounded(void **state)
{
	enum { MANY = 400 };
	AUTO_FD guest = -1;
	unsigned seen = 0, told = 0;
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), NULL);
	assert_int_equal(rig_open(&g, A, -1, world_udp(INSIDE, "0.0.0.0", 53)), 0);
	guest = asker(NET_HOST_ADDR);
	for (int i = 0; i < MANY; i++) {
		char name[40];

		snprintf(name, sizeof(name), "n%d.example", i);
		ask(guest, name, DNS_A);
		take_answer(guest);
	}
	while (seen < MANY) {
		struct json_object *o = rig_line(&g, NULL, NULL), *v; /* any */

		if (json_object_object_get_ex(o, "lines", &v))
			seen += (unsigned)json_object_get_int(v);
		else
			seen++, told++;
		json_put(&o);
	}
	assert_int_equal(seen, MANY);
	assert_true(told < MANY);
	rig_stop(&g);
}

/* -- connections --------------------------------------------------------------------------------------------------- */

static void test_by_name(void **state)
{
	AUTO_FD upstream = -1, server = world_listen(OUTSIDE, "0.0.0.0", 8080), guest = -1, there = -1;
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), NULL);
	upstream = with_dns(&g, A, world_listen(INSIDE, "0.0.0.0", 8080), NULL);
	assert_refused(&g, PUBLIC, 8080, "no allowed name led to this address");
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "one.example:8080\ntwo.example:80\n"), 0);
	assert_refused(&g, PUBLIC, 8080, "no allowed name led to this address");
	resolve(upstream, "one.example", PUBLIC);
	resolve(upstream, "two.example", PUBLIC2);
	assert_reached(PUBLIC, 8080, server);
	rig_logged(&g, "event", "connection", "verdict", "ended", "name", "one.example", "address", PUBLIC, "port",
		   "8080", "bytes_out", "5", "bytes_in", "4", NULL);
	assert_refused(&g, PUBLIC2, 8080, "the names of this address are not allowed with port 8080");
	/* An unrelated public address; those that nobody may reach, whatever led there. */
	assert_refused(&g, "93.184.216.40", 8080, "no allowed name led to this address");
	assert_refused(&g, PRIVATE, 8080, "private");
	assert_refused(&g, "127.0.0.1", 8080, "loopback");
	assert_refused(&g, PUBLIC_OWN, 8080, "the host's own");
	/* A list that does not parse changes nothing; one that forbids ends what is open. */
	guest = world_dial(INSIDE, PUBLIC, 8080);
	there = world_accept(server);
	world_echo(guest, there);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "other.example\n*\n"), -EINVAL);
	assert_non_null(strstr(g.words, "rule *"));
	world_echo(guest, there);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "one.example\n"), 0);
	world_echo(guest, there);
	assert_int_equal(rig_text(&g, NETD_STAT, A, NULL), 0);
	assert_int_equal(wire_u64(&g.rest), 5 + 3 * 5);
	assert_int_equal(wire_u64(&g.rest), 4 + 3 * 4);
	assert_int_equal(wire_u64(&g.rest), 2);
	assert_int_equal(wire_u64(&g.rest), 7);
	assert_int_equal(wire_u64(&g.rest), 0);
	wire_raw(&g.rest, 16);
	assert_int_equal(wire_u32(&g.rest), 1);
	assert_int_equal(wire_done(&g.rest), 0);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, ""), 0);
	assert_true(world_is_reset(guest));
	assert_true(world_is_reset(there));
	assert_refused(&g, PUBLIC, 8080, "the names of this address are not allowed with port 8080");
	rig_stop(&g);
}

/* A fork goes on with the addresses that its parent had resolved, whether that is there still or not; what it may reach
 * is its own list's to say. */
static void test_names_of_a_fork(void **state)
{
	AUTO_FD upstream = -1, server = world_listen(OUTSIDE, "0.0.0.0", 8080);
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), NULL);
	upstream = with_dns(&g, A, world_listen(INSIDE, "0.0.0.0", 8079), NULL);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "one.example\n"), 0);
	resolve(upstream, "one.example", PUBLIC);
	for (int i = 0; i < 4; i++) {
		/* It lives; it is gone; twice in a row; and another, whose forks have nothing. */
		const char *origin = i < 3 ? A : "another";

		if (i == 1)
			assert_int_equal(rig_text(&g, NETD_CLOSE, A, NULL), 0);
		assert_int_equal(rig_open_fork(&g, B, origin, world_listen(INSIDE, "0.0.0.0", 8080)), 0);
		assert_int_equal(rig_text(&g, NETD_ALLOW, B, "two.example\n"), 0);
		assert_refused(&g, PUBLIC, 8080,
			       i < 3 ? "the names of this address are not allowed with port 8080"
				     : "no allowed name led to this address");
		assert_int_equal(rig_text(&g, NETD_ALLOW, B, "one.example\n"), 0);
		if (i < 3)
			assert_reached(PUBLIC, 8080, server);
		else
			assert_refused(&g, PUBLIC, 8080, "no allowed name led to this address");
		assert_int_equal(rig_text(&g, NETD_CLOSE, B, NULL), 0);
	}
	rig_stop(&g);
}

static void test_by_range(void **state)
{
	AUTO_FD server = world_listen(OUTSIDE, "0.0.0.0", 8080), guest = -1, there = -1;
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), NULL);
	open_tcp(&g, A, 8080);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "10.5.0.0/24\n"), -EINVAL);
	assert_non_null(strstr(g.words, "private"));
	assert_int_equal(rig_config(&g, "", opened), 0);
	assert_refused(&g, PRIVATE, 8080, "no allowed name led to this address");
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "10.5.0.0/24\n93.184.216.34:80\n"), 0);
	assert_reached(PRIVATE, 8080, server);
	assert_refused(&g, PRIVATE_OWN, 8080, "the host's own");
	assert_refused(&g, PUBLIC, 8080, "no allowed name led to this address");
	/* Root closes it again: for what is open, too. */
	guest = world_dial(INSIDE, PRIVATE, 8080);
	there = world_accept(server);
	world_echo(guest, there);
	assert_int_equal(rig_config(&g, "", NULL), 0);
	assert_true(world_is_reset(guest));
	assert_refused(&g, PRIVATE, 8080, "private");
	rig_stop(&g);
}

/* Says hello as a client of @name, dialing @ip. Returns the guest's end. */
static int hello(const char *ip, const char *name)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *ssl = SSL_new(ctx);
	BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
	int fd = world_dial(INSIDE, ip, 443), n;
	uint8_t data[2048];

	assert_true(fd >= 0);
	SSL_set_bio(ssl, in, out);
	if (name)
		assert_int_equal(SSL_set_tlsext_host_name(ssl, name), 1);
	assert_int_equal(SSL_connect(ssl), -1);
	n = BIO_read(out, data, sizeof(data));
	assert_true(n > 0);
	assert_int_equal(send(fd, data, (size_t)n, 0), n);
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	return fd;
}

static void assert_hello_refused(struct rig *g, const char *ip, const char *name, const char *reason)
{
	int fd = hello(ip, name);

	assert_true(world_is_reset(fd));
	close(fd);
	rig_logged(g, "event", "connection", "verdict", "refused", "address", ip, "reason", reason, NULL);
}

static void test_tls(void **state)
{
	AUTO_FD upstream = -1, server = world_listen(OUTSIDE, "0.0.0.0", 443), guest = -1, there = -1;
	uint8_t first;
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), NULL);
	upstream = with_dns(&g, A, world_listen(INSIDE, "0.0.0.0", 443), opened);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "one.example\n*.two.example:443\nthree.example:80\n10.5.0.0/24\n"),
			 0);
	resolve(upstream, "one.example", PUBLIC);
	resolve(upstream, "a.two.example", PUBLIC2);
	resolve(upstream, "three.example", PUBLIC);
	guest = hello(PUBLIC, "One.example");
	there = world_accept(server);
	assert_int_equal(recv(there, &first, 1, 0), 1);
	assert_int_equal(first, 22);
	/* An allowed address, but another name. */
	assert_hello_refused(&g, PUBLIC, "evil.example",
			     "the hello names evil.example, which is not allowed with port 443");
	assert_hello_refused(&g, PUBLIC, "three.example",
			     "the hello names three.example, which is not allowed with port 443");
	/* An allowed name, but another's address. */
	assert_hello_refused(&g, PUBLIC, "a.two.example",
			     "the hello names a.two.example, which did not lead to this address");
	assert_hello_refused(&g, PUBLIC, "b.two.example",
			     "the hello names b.two.example, which did not lead to this address");
	fd_close(&guest);
	fd_close(&there);
	guest = hello(PUBLIC2, "a.two.example");
	there = world_accept(server);
	fd_close(&guest);
	fd_close(&there);
	/* A range does not ask for names, but a hello has to have one. */
	guest = hello(PRIVATE, "mirror.example");
	there = world_accept(server);
	fd_close(&guest);
	guest = hello(PUBLIC, NULL);
	assert_true(world_is_reset(guest));
	rig_stop(&g);
}

/* -- published ports ----------------------------------------------------------------------------------------------- */

static void give_sockets(struct rig *g, const char *uuid, size_t n)
{
	int fds[MSG_FDS_MAX];
	struct buf b;

	buf_init(&b, 100);
	assert_int_equal(wire_put_str(&b, uuid), 0);
	for (size_t i = 0; i < n; i++)
		fds[i] = world_socket(INSIDE);
	assert_int_equal(msg_send(g->fd, NETD_SOCKETS, 0, b.data, b.len, fds, n), 0);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
	buf_fini(&b);
}

static void test_ports(void **state)
{
	AUTO_FD server = world_listen(INSIDE, NET_GUEST_ADDR, 80), one = world_listen(OUTSIDE, "127.0.0.1", 0),
		two = -1, client = -1, there = -1;
	uint16_t port = world_port_of(one);
	const char *ports[3] = { NULL };
	char first[60], second[60], text[60];
	struct rig g;
	unsigned needs;

	(void)state;
	rig_start(&g, getuid(), NULL);
	open_tcp(&g, A, 8080);
	two = world_listen(OUTSIDE, "127.0.0.1", 0);
	snprintf(first, sizeof(first), "127.0.0.1:%u:80/tcp", port);
	snprintf(second, sizeof(second), "127.0.0.1:%u:81/tcp", world_port_of(two));
	ports[0] = first;
	assert_int_equal(rig_ports(&g, A, ports, NULL), -ENOENT); /* it was never there */
	assert_int_equal(rig_ports(&g, A, ports, &one), 0);
	give_sockets(&g, A, 16);
	client = world_dial(OUTSIDE, "127.0.0.1", port);
	there = world_accept(server);
	world_echo(client, there);
	/* What is named again stays, what is not ends. */
	ports[1] = second;
	assert_int_equal(rig_ports(&g, A, ports, (int[]){ -1, two }), 0);
	world_echo(client, there);
	assert_int_equal(rig_open(&g, A, -1, -1), 0);
	assert_int_equal(wire_u8(&g.rest), 1);
	assert_int_equal(wire_u32(&g.rest), 2);
	wire_str(&g.rest, text, sizeof(text));
	assert_string_equal(text, first);
	wire_str(&g.rest, text, sizeof(text));
	assert_string_equal(text, second);
	assert_int_equal(wire_done(&g.rest), 0);
	assert_int_equal(rig_ports(&g, A, ports + 1, NULL), 0);
	assert_true(world_is_reset(client));
	fd_close(&client);
	fd_close(&there);
	rig_logged(&g, "event", "connection", "direction", "in", NULL);
	/* More than are ready: more are asked for. */
	for (int i = 0; i < 16 && !g.needs; i++) {
		client = world_dial(OUTSIDE, "127.0.0.1", world_port_of(two));
		if (client != -ECONNRESET) { /* nobody listens at 81 */
			assert_true(client >= 0 && world_is_reset(client));
			fd_close(&client);
		}
		client = -1;
		rig_logged(&g, "event", "connection", "direction", "in", NULL);
	}
	assert_true(g.needs > 0);
	/* None could be made: the next client makes it ask again. */
	needs = g.needs;
	give_sockets(&g, A, 0);
	for (int i = 0; i < 16 && g.needs == needs; i++) {
		client = world_dial(OUTSIDE, "127.0.0.1", world_port_of(two));
		if (client >= 0)
			fd_close(&client);
		client = -1;
		rig_logged(&g, "event", "connection", "direction", "in", NULL);
	}
	assert_int_equal(g.needs, needs + 1);
	rig_stop(&g);
}

/* -- the daemon ---------------------------------------------------------------------------------------------------- */

static void test_life(void **state)
{
	AUTO_FD server = world_listen(OUTSIDE, "0.0.0.0", 8080), guest = -1, there = -1, old = -1;
	char byte, text[60];
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), NULL);
	assert_int_equal(rig_config(&g, "", opened), 0);
	assert_int_equal(rig_open(&g, A, -1, -1), -ENOENT);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, ""), -ENOENT);
	assert_int_equal(rig_ports(&g, A, (const char *[]){ NULL }, NULL), -ENOENT);
	assert_int_equal(rig_text(&g, NETD_STAT, A, NULL), -ENOENT);
	assert_int_equal(rig_text(&g, NETD_CLOSE, A, NULL), 0);
	give_sockets(&g, A, 2); /* nobody's: closed */
	open_tcp(&g, A, 8080);
	assert_int_equal(rig_open(&g, B, -1, world_udp(INSIDE, "0.0.0.0", 53)), 0);
	assert_int_equal(rig_call(&g, NETD_LIST, NULL, NULL, 0), 0);
	assert_int_equal(wire_u32(&g.rest), 2);
	wire_str(&g.rest, text, sizeof(text));
	assert_string_equal(text, A);
	wire_str(&g.rest, text, sizeof(text));
	assert_string_equal(text, B);
	assert_int_equal(rig_text(&g, NETD_ALLOW, A, "10.5.0.0/24"), 0);
	guest = world_dial(INSIDE, PRIVATE, 8080);
	there = world_accept(server);
	world_echo(guest, there);
	/* A daemon that comes later has all of it; the one before is put out. */
	old = take_fd(&g.fd);
	rig_connect(&g);
	assert_int_equal(recv(old, &byte, 1, 0), 0);
	world_echo(guest, there);
	assert_int_equal(rig_open(&g, A, -1, -1), 0);
	assert_int_equal(wire_u8(&g.rest), 0);
	assert_int_equal(wire_u32(&g.rest), 0);
	/* Other sockets for a sandbox: its connections end, and nothing is allowed. */
	open_tcp(&g, A, 8081);
	assert_true(world_is_reset(guest));
	rig_logged(&g, "event", "connection", "verdict", "ended", NULL);
	assert_refused(&g, PRIVATE, 8081, "no allowed name led to this address");
	assert_int_equal(rig_text(&g, NETD_STAT, A, NULL), 0);
	assert_int_equal(wire_u64(&g.rest), 10); /* of before, too */
	assert_int_equal(rig_text(&g, NETD_CLOSE, A, NULL), 0);
	assert_true(world_dial(INSIDE, PRIVATE, 8081) < 0);
	assert_int_equal(rig_text(&g, NETD_STAT, "", NULL), 0);
	assert_int_equal(wire_u64(&g.rest), 10);
	rig_stop(&g);
}

static void test_malformed(void **state)
{
	static const struct {
		uint16_t type;
		const char *data;
		size_t len;
	} cases[] = {
		{ 0, "", 0 },
		{ NETD_REPLY, "", 0 },
		{ NETD_LOG, "", 0 },
		{ NETD_TYPE_COUNT, "", 0 },
		{ 65535, "", 0 },
		{ NETD_CONFIG, "", 0 },
		{ NETD_CONFIG, "\xff\xff\xff\xff", 4 },
		{ NETD_CONFIG, "\0\0\0\0\xff\xff\xff\xff", 8 },
		{ NETD_CONFIG, "\1\0\0\0\0\0\0\0\0", 9 },
		{ NETD_CONFIG, "\0\0\0\0\0\0\0\0x", 9 },
		{ NETD_OPEN, "\1\0\0\0a", 5 },
		{ NETD_OPEN, "\0\0\0\0\0", 5 },
		{ NETD_OPEN, "\1\0\0\0/\0", 6 },
		{ NETD_OPEN, "\1\0\0\0a\1", 6 },  /* without the socket */
		{ NETD_OPEN, "\1\0\0\0a\20", 6 }, /* a fifth one */
		{ NETD_OPEN, "\1\0\0\0a\0\2\0\0\0b", 11 },
		{ NETD_ALLOW, "\1\0\0\0a", 5 },
		{ NETD_ALLOW, "\1\0\0\0a\2\0\0\0b", 10 },
		{ NETD_PORTS, "\1\0\0\0a\101\0\0\0", 9 },
		{ NETD_PORTS, "\1\0\0\0a\1\0\0\0\0\0\0\0\0", 14 },
		{ NETD_PORTS,
		  "\1\0\0\0a\1\0\0\0\4\0\0\0"
		  "1:1\n\0",
		  18 },
		{ NETD_PORTS,
		  "\1\0\0\0a\1\0\0\0\7\0\0\0"
		  "1:1\n2:2\0",
		  21 },
		{ NETD_PORTS,
		  "\1\0\0\0a\1\0\0\0\3\0\0\0"
		  "1:1\1",
		  17 }, /* without the socket */
		{ NETD_CLOSE, "\0\0\0\0", 4 },
		{ NETD_LIST, "x", 1 },
		{ NETD_QUIT, "x", 1 },
	};
	AUTO_FD datagram = world_udp(INSIDE, "127.0.0.1", 0);
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), NULL);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct buf b = { .data = (uint8_t *)cases[i].data, .len = cases[i].len };

		if (rig_call(&g, cases[i].type, &b, NULL, 0) != -EBADMSG)
			fail_msg("case %zu: %s", i, g.words);
	}
	assert_int_equal(rig_config(&g, "", (const char *[]){ "10.0.0.1/8", NULL }), -EINVAL);
	assert_non_null(strstr(g.words, "host bits"));
	assert_int_equal(rig_ports(&g, A, (const char *[]){ "80:80/udp", NULL }, NULL), -EINVAL);
	assert_int_equal(rig_ports(&g, A, (const char *[]){ "80:80", "80:81", NULL }, NULL), -EEXIST);
	/* Descriptors that are not what they are said to be. */
	assert_int_equal(rig_open(&g, A, dup(datagram), -1), -EBADMSG);
	assert_int_equal(rig_open(&g, A, world_socket(INSIDE), -1), -EBADMSG); /* does not listen */
	assert_int_equal(rig_open(&g, A, -1, -1), -ENOENT);
	open_tcp(&g, A, 8080);
	assert_int_equal(rig_ports(&g, A, (const char *[]){ "80:80", NULL }, &datagram), -EBADMSG);
	rig_stop(&g);
}

static void test_another_user(void **state)
{
	struct rig g;
	char byte;

	(void)state;
	rig_start(&g, getuid() + 1, "1000");
	assert_int_equal(recv(g.fd, &byte, 1, 0), 0);
	assert_int_equal(rig_ended(&g), 0); /* nobody came, so it ends */
}

static void test_orphan(void **state)
{
	struct rig g;

	(void)state;
	rig_start(&g, getuid(), "1000");
	open_tcp(&g, A, 8080);
	fd_close(&g.fd);
	assert_int_equal(rig_ended(&g), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_questions),
		cmocka_unit_test(test_questions_by_tcp),
		cmocka_unit_test(test_datagrams),
		cmocka_unit_test(test_log_is_bounded),
		cmocka_unit_test(test_by_name),
		cmocka_unit_test(test_by_range),
		cmocka_unit_test(test_tls),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_another_user),
		cmocka_unit_test(test_orphan),
		cmocka_unit_test(test_names_of_a_fork),
	};

	world();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
