/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/relay_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/fd.h"

/* -- the world ----------------------------------------------------------------------------------------------------- */

static int namespaces[2] = { -1, -1 }; /* by enum rig_side */

static void lo_up(void)
{
	AUTO_FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &up), 0);
}

void rig_address(const char *ip)
{
	AUTO_FD fd = -1;
	struct ifreq four = { .ifr_name = "lo:1" };
	struct in6_ifreq six = { .ifr6_prefixlen = 128, .ifr6_ifindex = (int)if_nametoindex("lo") };
	struct sockaddr_storage ss;
	struct net_addr addr;
	socklen_t len;

	assert_int_equal(net_addr_parse(ip, &addr), 0);
	len = net_addr_to_sockaddr(&addr, 0, &ss);
	fd = socket(addr.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	memcpy(&four.ifr_addr, &ss, sizeof(four.ifr_addr));
	memcpy(&six.ifr6_addr, addr.bytes, sizeof(six.ifr6_addr));
	if (addr.family == AF_INET)
		assert_int_equal(ioctl(fd, SIOCSIFADDR, &four), 0);
	else
		assert_int_equal(ioctl(fd, SIOCSIFADDR, &six), 0);
	/* The kernel makes IPv6 addresses usable in the background. */
	while (bind(fd, (struct sockaddr *)&ss, len) < 0) {
		assert_int_equal(errno, EADDRNOTAVAIL);
		usleep(1000);
	}
}

static void process(void)
{
	struct rlimit files;

	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
}

static int current_ns(void)
{
	int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

void rig_world_of(int inside_ns)
{
	process();
	lo_up();
	namespaces[INSIDE] = inside_ns;
	fd_close(&namespaces[OUTSIDE]);
	namespaces[OUTSIDE] = current_ns();
}

int rig_world(void **state)
{
	const int sides[] = { INSIDE, OUTSIDE };

	(void)state;
	process();
	for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
		if (unshare(CLONE_NEWNET | (i == 0 && geteuid() != 0 ? CLONE_NEWUSER : 0)) < 0) {
			printf("skipped: no network namespace can be made here: %s\n", strerror(errno));
			exit(77);
		}
		lo_up();
		if (sides[i] == INSIDE)
			rig_address(NET_GUEST_ADDR);
		namespaces[sides[i]] = current_ns();
	}
	return 0;
}

unsigned rig_open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void enter(enum rig_side side)
{
	assert_int_equal(setns(namespaces[side], CLONE_NEWNET), 0);
}

int rig_socket(enum rig_side side, int family)
{
	int fd;

	enter(side);
	fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	enter(OUTSIDE);
	assert_true(fd >= 0);
	return fd;
}

static socklen_t address(const char *ip, uint16_t port, struct sockaddr_storage *ret)
{
	struct net_addr a;

	assert_int_equal(net_addr_parse(ip, &a), 0);
	return net_addr_to_sockaddr(&a, port, ret);
}

int rig_listen(enum rig_side side, const char *ip, uint16_t port, int backlog)
{
	struct sockaddr_storage a;
	socklen_t len = address(ip, port, &a);
	int fd = rig_socket(side, a.ss_family), on = 1;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	if (a.ss_family == AF_INET6)
		assert_int_equal(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)), 0);
	if (bind(fd, (struct sockaddr *)&a, len) < 0)
		fail_msg("bind %s: %s", ip, strerror(errno));
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

int rig_dial(enum rig_side side, const char *ip, uint16_t port)
{
	struct sockaddr_storage a;
	socklen_t len = address(ip, port, &a);
	int fd = rig_socket(side, a.ss_family);

	if (connect(fd, (struct sockaddr *)&a, len) < 0)
		assert_int_equal(errno, EINPROGRESS);
	return fd;
}

void rig_give_sockets(struct relay_rig *g, unsigned n)
{
	int fds[64];

	assert_true(n <= ARRAY_LEN(fds));
	for (unsigned i = 0; i < n; i++)
		fds[i] = rig_socket(INSIDE, AF_INET);
	relay_sockets(g->relay, fds, n);
}

/* -- the relay's owner --------------------------------------------------------------------------------------------- */

static int decide(void *arg, const struct net_addr *a, uint16_t port, const char *tls, char *name, struct err *e)
{
	struct relay_rig *g = arg;

	g->decided++;
	g->decided_addr = *a;
	g->decided_port = port;
	snprintf(g->decided_tls, sizeof(g->decided_tls), "%s", tls ? tls : "-");
	snprintf(g->decided_name, sizeof(g->decided_name), "%s", name);
	if (g->denied_port == port || (tls && g->denied_name && !strcmp(tls, g->denied_name)))
		return err_set(e, -EPERM, "no rule allows it");
	snprintf(name, NET_NAME_MAX + 1, "%s", tls ? tls : "by.address");
	return 0;
}

static void on_dns(void *arg, int fd)
{
	struct relay_rig *g = arg;

	fd_close(&g->dns_fd);
	g->dns_fd = fd;
}

static void on_event(void *arg, const struct relay_event *ev)
{
	struct relay_rig *g = arg;
	struct rig_event *x = &g->events[g->nevents++ % RIG_EVENTS];

	x->ev = *ev;
	snprintf(x->name, sizeof(x->name), "%s", ev->name);
	snprintf(x->reason, sizeof(x->reason), "%s", ev->reason);
	x->ev.name = x->name;
	x->ev.reason = x->reason;
}

static void need_sockets(void *arg)
{
	struct relay_rig *g = arg;

	g->asked++;
	if (g->make_now > 0)
		rig_give_sockets(g, g->make_now);
}

void rig_start_with(struct relay_rig *g, int tcp4, int tcp6)
{
	static const struct relay_ops ops = {
		.decide = decide, .on_dns = on_dns, .on_event = on_event, .need_sockets = need_sockets
	};

	memset(g, 0, sizeof(*g));
	g->fds_before = rig_open_fds() - (tcp4 >= 0) - (tcp6 >= 0);
	g->dns_fd = -1;
	g->tcp4 = tcp4;
	assert_int_equal(loop_new(&g->loop), 0);
	assert_int_equal(relay_new(g->loop, &ops, g, tcp4, tcp6, &g->relay), 0);
}

void rig_start(struct relay_rig *g, uint16_t port)
{
	if (port == 0)
		rig_start_with(g, -1, -1);
	else
		rig_start_with(g, rig_listen(INSIDE, "0.0.0.0", port, 1024), rig_listen(INSIDE, "::", port, 1024));
}

void rig_stop(struct relay_rig *g)
{
	g->relay = relay_free(g->relay);
	g->loop = loop_free(g->loop);
	fd_close(&g->dns_fd);
	assert_int_equal(rig_open_fds(), g->fds_before);
}

/* -- talk ---------------------------------------------------------------------------------------------------------- */

int rig_accept(struct relay_rig *g, int listener)
{
	int fd = -1;

	rig_run(g, (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0 || errno != EAGAIN);
	assert_true(fd >= 0);
	return fd;
}

ssize_t rig_read(struct relay_rig *g, int fd, void *buf, size_t cap)
{
	ssize_t n = -1;

	rig_run(g, (n = read(fd, buf, cap)) >= 0 || errno != EAGAIN);
	return n < 0 ? -errno : n;
}

void rig_write(struct relay_rig *g, int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = -1;

		/* ENOTCONN does not happen: sockets of lo are connected once they were accepted. */
		rig_run(g, (n = write(fd, p, len)) >= 0 || errno != EAGAIN);
		assert_true(n > 0);
		p += n;
		len -= (size_t)n;
	}
}

void rig_expect(struct relay_rig *g, int fd, const char *text)
{
	size_t len = strlen(text), at = 0;
	char got[256];

	assert_true(len < sizeof(got));
	while (at < len) {
		ssize_t n = rig_read(g, fd, got + at, len - at);

		assert_true(n > 0);
		at += (size_t)n;
	}
	assert_memory_equal(got, text, len);
}

void rig_echo(struct relay_rig *g, int a, int b)
{
	rig_write(g, a, "ask", 3);
	rig_expect(g, b, "ask");
	rig_write(g, b, "answer", 6);
	rig_expect(g, a, "answer");
}

void rig_reset(int *fd)
{
	relay_reset_fd(fd);
}

void rig_expect_reset(struct relay_rig *g, int *fd)
{
	char c;

	assert_int_equal(rig_read(g, *fd, &c, 1), -ECONNRESET);
	fd_close(fd);
}

struct relay_stat rig_stat(const struct relay_rig *g)
{
	struct relay_stat s;

	relay_stat(g->relay, &s);
	return s;
}

const struct rig_event *rig_event(struct relay_rig *g, unsigned n, const char *direction, const char *verdict,
				  const char *reason)
{
	const struct rig_event *x = &g->events[(n - 1) % RIG_EVENTS];

	rig_run(g, g->nevents >= n);
	assert_int_equal(g->nevents, n);
	assert_string_equal(x->ev.direction, direction);
	assert_string_equal(x->ev.verdict, verdict);
	assert_string_equal(x->reason, reason);
	return x;
}

/* -- long talk ----------------------------------------------------------------------------------------------------- */

static EVP_MD_CTX *sum_new(void)
{
	EVP_MD_CTX *c = EVP_MD_CTX_new();

	assert_non_null(c);
	assert_int_equal(EVP_DigestInit_ex(c, EVP_sha256(), NULL), 1);
	return c;
}

void rig_end_init(struct rig_end *n, int fd, uint64_t bytes, uint64_t seed)
{
	memset(n, 0, sizeof(*n));
	n->fd = fd;
	n->left = bytes;
	n->seed = seed | 1;
	n->said_sum = sum_new();
	n->heard_sum = sum_new();
}

static void make_more(struct rig_end *n)
{
	n->data_at = 0;
	n->data_len = n->left < sizeof(n->data) ? (size_t)n->left : sizeof(n->data);
	for (size_t i = 0; i < n->data_len; i++) {
		n->seed ^= n->seed << 13;
		n->seed ^= n->seed >> 7;
		n->seed ^= n->seed << 17;
		n->data[i] = (uint8_t)n->seed;
	}
	n->left -= n->data_len;
	EVP_DigestUpdate(n->said_sum, n->data, n->data_len);
}

static void say(struct rig_end *n)
{
	while (!n->shut) {
		ssize_t r;

		if (n->data_at == n->data_len && n->left > 0)
			make_more(n);
		if (n->data_at == n->data_len) {
			assert_int_equal(shutdown(n->fd, SHUT_WR), 0);
			n->shut = true;
			return;
		}
		r = write(n->fd, n->data + n->data_at, n->data_len - n->data_at);
		if (r < 0) {
			assert_int_equal(errno, EAGAIN);
			return;
		}
		n->data_at += (size_t)r;
	}
}

bool rig_end_step(struct rig_end *n)
{
	uint8_t data[16384];

	say(n);
	for (int i = 0; !n->eof && i < 16; i++) {
		ssize_t r = read(n->fd, data, sizeof(data));

		if (r < 0) {
			assert_int_equal(errno, EAGAIN);
			break;
		}
		n->eof = r == 0;
		n->heard += (size_t)r;
		EVP_DigestUpdate(n->heard_sum, data, (size_t)r);
	}
	return n->shut && n->eof;
}

void rig_end_fini(struct rig_end *n, uint8_t said[32], uint8_t heard[32])
{
	EVP_DigestFinal_ex(n->said_sum, said, NULL);
	EVP_DigestFinal_ex(n->heard_sum, heard, NULL);
	EVP_MD_CTX_free(n->said_sum);
	EVP_MD_CTX_free(n->heard_sum);
	fd_close(&n->fd);
}

void rig_talk(struct relay_rig *g, int a, int b, uint64_t bytes)
{
	uint8_t said[2][32], heard[2][32];
	struct rig_end ends[2];

	rig_end_init(&ends[0], a, bytes, 1234567);
	rig_end_init(&ends[1], b, bytes, 7654321);
	/* Both, always: `&&` would leave the second one waiting. */
	rig_run(g, (rig_end_step(&ends[0]) & rig_end_step(&ends[1])) != 0);
	assert_int_equal(ends[0].heard, bytes);
	assert_int_equal(ends[1].heard, bytes);
	for (int i = 0; i < 2; i++)
		rig_end_fini(&ends[i], said[i], heard[i]);
	assert_memory_equal(said[0], heard[1], 32);
	assert_memory_equal(said[1], heard[0], 32);
}

/* -- TLS ----------------------------------------------------------------------------------------------------------- */

static uint8_t *put16(uint8_t *p, size_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
	return p + 2;
}

size_t rig_hello(uint8_t *out, const char *name, size_t padding)
{
	size_t name_len = name ? strlen(name) : 0, sni = name ? 9 + name_len : 0;
	size_t extensions = sni + 4 + padding, body = 2 + 32 + 1 + 4 + 2 + 2 + extensions;
	uint8_t *p = out;

	assert_true(body + 4 < 16384);
	memcpy(p, "\x16\x03\x01", 3);
	p = put16(p + 3, body + 4);
	*p++ = 1; /* ClientHello */
	*p++ = 0;
	p = put16(p, body);
	memcpy(p, "\x03\x03", 2);
	memset(p + 2, 0x5a, 32);
	p += 34;
	*p++ = 0; /* no session */
	memcpy(p, "\x00\x02\x13\x01\x01\x00", 6);
	p = put16(p + 6, extensions);
	if (name) {
		p = put16(put16(put16(p, 0), name_len + 5), name_len + 3);
		*p++ = 0; /* host_name */
		p = put16(p, name_len);
		memcpy(p, name, name_len);
		p += name_len;
	}
	p = put16(put16(p, 0xfafa), padding);
	memset(p, 0, padding);
	return (size_t)(p + padding - out);
}
