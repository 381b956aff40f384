/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/netd_rig.h"

#include <fcntl.h>
#include <libgen.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/proc.h"
#include "netpolicy/addr.h"

#define WAIT_S 30

/* -- the world ----------------------------------------------------------------------------------------------------- */

static int namespaces[2];

static void in4(const char *text, uint16_t port, struct sockaddr *ret)
{
	struct sockaddr_storage ss;
	struct net_addr a;

	assert_int_equal(net_addr_parse(text, &a), 0);
	net_addr_to_sockaddr(&a, port, &ss);
	memcpy(ret, &ss, sizeof(struct sockaddr_in));
}

/* The whole /24 leads here; only @ip is the interface's. */
static void lo_address(int fd, const char *name, const char *ip)
{
	struct ifreq q = { 0 };

	snprintf(q.ifr_name, sizeof(q.ifr_name), "%s", name);
	in4(ip, 0, &q.ifr_addr);
	assert_int_equal(ioctl(fd, SIOCSIFADDR, &q), 0);
	in4("255.255.255.0", 0, &q.ifr_netmask);
	assert_int_equal(ioctl(fd, SIOCSIFNETMASK, &q), 0);
}

void world(void)
{
	const enum side sides[] = { INSIDE, OUTSIDE }; /* the last is where we stay */

	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
		struct ifreq up = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
		AUTO_FD fd = -1;

		if (geteuid() != 0 || unshare(CLONE_NEWNET) < 0) {
			printf("skipped: only root can make the network that this needs\n");
			exit(77);
		}
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &up), 0);
		lo_address(fd, "lo:1", PUBLIC_OWN);
		lo_address(fd, "lo:2", PRIVATE_OWN);
		if (sides[i] == INSIDE)
			lo_address(fd, "lo:3", NET_GUEST_ADDR);
		namespaces[sides[i]] = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
		assert_true(namespaces[sides[i]] >= 0);
	}
}

static int make(enum side side, int type)
{
	struct timeval limit = { .tv_sec = WAIT_S };
	const int on = 1;
	int fd;

	assert_int_equal(setns(namespaces[side], CLONE_NEWNET), 0);
	fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(setns(namespaces[OUTSIDE], CLONE_NEWNET), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	return fd;
}

static void bind_to(int fd, const char *ip, uint16_t port)
{
	struct sockaddr_storage ss = { 0 };

	in4(ip, port, (struct sockaddr *)&ss);
	assert_int_equal(bind(fd, (struct sockaddr *)&ss, sizeof(struct sockaddr_in)), 0);
}

int world_listen(enum side side, const char *ip, uint16_t port)
{
	int fd = make(side, SOCK_STREAM);

	bind_to(fd, ip, port);
	assert_int_equal(listen(fd, 16), 0);
	return fd;
}

int world_dial(enum side side, const char *ip, uint16_t port)
{
	struct sockaddr_storage ss = { 0 };
	int fd = make(side, SOCK_STREAM);

	in4(ip, port, (struct sockaddr *)&ss);
	if (connect(fd, (struct sockaddr *)&ss, sizeof(struct sockaddr_in)) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

int world_udp(enum side side, const char *ip, uint16_t port)
{
	const int on = 1;
	int fd = make(side, SOCK_DGRAM);

	assert_int_equal(setsockopt(fd, SOL_IP, IP_RECVORIGDSTADDR, &on, sizeof(on)), 0);
	assert_int_equal(setsockopt(fd, SOL_IP, IP_TRANSPARENT, &on, sizeof(on)), 0);
	bind_to(fd, ip, port);
	return fd;
}

int world_socket(enum side side)
{
	return make(side, SOCK_STREAM);
}

int world_accept(int listener)
{
	struct timeval limit = { .tv_sec = WAIT_S };
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	return fd;
}

void world_echo(int a, int b)
{
	char text[8];

	assert_int_equal(send(a, "there", 5, 0), 5);
	assert_int_equal(recv(b, text, 5, MSG_WAITALL), 5);
	assert_memory_equal(text, "there", 5);
	assert_int_equal(send(b, "back", 4, 0), 4);
	assert_int_equal(recv(a, text, 4, MSG_WAITALL), 4);
	assert_memory_equal(text, "back", 4);
}

bool world_is_reset(int fd)
{
	char text[256];
	ssize_t n;

	do {
		n = recv(fd, text, sizeof(text), 0);
	} while (n > 0);
	return n < 0 && errno == ECONNRESET;
}

uint16_t world_port_of(int fd)
{
	struct sockaddr_in in = { 0 };
	socklen_t len = sizeof(in);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	return ntohs(in.sin_port);
}

/* -- the program --------------------------------------------------------------------------------------------------- */

static const char *program(void)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 40);

	assert_true(n > 0);
	path[n] = '\0';
	strcat(dirname(path), "/../libexec/crucible-netd");
	return path;
}

void rig_connect(struct rig *g)
{
	struct timeval limit = { .tv_sec = WAIT_S };
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	fd_close(&g->fd);
	strcpy(at.sun_path, g->socket);
	g->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(setsockopt(g->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(connect(g->fd, (struct sockaddr *)&at, sizeof(at)), 0);
}

void rig_start(struct rig *g, uid_t daemon, const char *orphan_ms)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char uid[20];
	const char *argv[] = { "crucible-netd", uid, "warn", orphan_ms, NULL };
	struct proc_spec spec = PROC_SPEC_INIT;
	struct err e = { 0 };
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	*g = (struct rig){ .fd = -1, .lines = json_object_new_array() };
	strcpy(g->folder, "/tmp/netd-XXXXXX");
	assert_non_null(mkdtemp(g->folder));
	snprintf(g->socket, sizeof(g->socket), "%s/sock", g->folder);
	snprintf(uid, sizeof(uid), "%u", daemon);
	strcpy(at.sun_path, g->socket);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 4), 0);
	spec.name = "netd";
	spec.path = program();
	spec.argv = (char *const *)argv;
	spec.envp = environ;
	spec.stdio[2] = 2;
	spec.fds = &listener;
	spec.nfds = 1;
	if (proc_spawn(&spec, &g->pid, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	close(listener);
	rig_connect(g);
}

int rig_ended(struct rig *g)
{
	int status = -1;

	assert_int_equal(proc_wait(g->pid, &status), 0);
	g->pid = 0;
	unlink(g->socket);
	rmdir(g->folder);
	fd_close(&g->fd);
	json_put(&g->lines);
	return status;
}

void rig_stop(struct rig *g)
{
	assert_int_equal(rig_call(g, NETD_QUIT, NULL, NULL, 0), 0);
	assert_int_equal(rig_ended(g), 0);
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

/* One message; those that nobody asked for are put away. True: it is the answer. */
static bool take(struct rig *g)
{
	struct wire_rd r;
	int code = msg_recv(g->fd, g->buf, sizeof(g->buf), &g->m);

	if (code < 0)
		fail_msg("netd says nothing: %s", err_name(code));
	assert_int_equal(g->m.nfds, 0);
	if (g->m.type == NETD_REPLY)
		return true;
	assert_int_equal(g->m.id, 0);
	wire_rd_init(&r, g->m.data, g->m.len);
	wire_str(&r, g->words, sizeof(g->words));
	if (g->m.type == NETD_LOG) {
		struct json_object *o = NULL;
		char line[2049];
		struct err e;

		wire_str(&r, line, sizeof(line));
		if (json_parse(line, strlen(line), &o, &e) < 0)
			fail_msg("%s: %s", line, e.msg);
		json_object_array_add(g->lines, o);
	} else {
		assert_int_equal(g->m.type, NETD_NEED_SOCKETS);
		g->needs++;
	}
	assert_int_equal(wire_done(&r), 0);
	return false;
}

int rig_call(struct rig *g, uint16_t type, const struct buf *b, const int *fds, size_t nfds)
{
	struct buf none = { 0 };

	if (!b)
		b = &none;
	assert_int_equal(msg_send(g->fd, type, ++g->id, b->data, b->len, fds, nfds), 0);
	while (!take(g))
		;
	assert_int_equal(g->m.id, g->id);
	wire_rd_init(&g->rest, g->m.data, g->m.len);
	g->code = (int32_t)wire_u32(&g->rest);
	wire_str(&g->rest, g->words, sizeof(g->words));
	assert_false(g->rest.bad);
	assert_true(g->code == 0 ? !*g->words : *g->words != '\0');
	return g->code;
}

int rig_text(struct rig *g, uint16_t type, const char *uuid, const char *text)
{
	struct buf b;

	buf_init(&b, MSG_MAX);
	assert_int_equal(wire_put_str(&b, uuid), 0);
	if (text)
		assert_int_equal(wire_put_str(&b, text), 0);
	rig_call(g, type, &b, NULL, 0);
	buf_fini(&b);
	return g->code;
}

int rig_config(struct rig *g, const char *resolv_conf, const char *const ranges[])
{
	struct buf b;
	uint32_t n = 0;

	while (ranges && ranges[n])
		n++;
	buf_init(&b, MSG_MAX);
	assert_int_equal(wire_put_str(&b, resolv_conf), 0);
	assert_int_equal(wire_put_u32(&b, n), 0);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(wire_put_str(&b, ranges[i]), 0);
	rig_call(g, NETD_CONFIG, &b, NULL, 0);
	buf_fini(&b);
	return g->code;
}

static int open_all(struct rig *g, const char *uuid, const char *origin, int tcp, int udp)
{
	int fds[2];
	size_t n = 0;
	struct buf b;

	if (tcp >= 0)
		fds[n++] = tcp;
	if (udp >= 0)
		fds[n++] = udp;
	buf_init(&b, MSG_MAX);
	assert_int_equal(wire_put_str(&b, uuid), 0);
	assert_int_equal(
		wire_put_u8(&b, (uint8_t)((tcp >= 0 ? 1 << TOPOLOGY_TCP4 : 0) | (udp >= 0 ? 1 << TOPOLOGY_UDP4 : 0))),
		0);
	if (origin)
		assert_int_equal(wire_put_str(&b, origin), 0);
	rig_call(g, NETD_OPEN, &b, fds, n);
	buf_fini(&b);
	fd_close(&tcp);
	fd_close(&udp);
	return g->code < 0 || n == 0 ? g->code : rig_text(g, NETD_ALLOW, uuid, ""); /* served from there on */
}

int rig_open(struct rig *g, const char *uuid, int tcp, int udp)
{
	return open_all(g, uuid, NULL, tcp, udp);
}

int rig_open_fork(struct rig *g, const char *uuid, const char *origin, int tcp)
{
	return open_all(g, uuid, origin, tcp, -1);
}

int rig_ports(struct rig *g, const char *uuid, const char *const ports[], const int *fds)
{
	int sent[MSG_FDS_MAX];
	size_t nsent = 0;
	struct buf b;
	uint32_t n = 0;

	while (ports[n])
		n++;
	buf_init(&b, MSG_MAX);
	assert_int_equal(wire_put_str(&b, uuid), 0);
	assert_int_equal(wire_put_u32(&b, n), 0);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(wire_put_str(&b, ports[i]), 0);
		assert_int_equal(wire_put_u8(&b, fds && fds[i] >= 0), 0);
		if (fds && fds[i] >= 0)
			sent[nsent++] = fds[i];
	}
	rig_call(g, NETD_PORTS, &b, sent, nsent);
	buf_fini(&b);
	return g->code;
}

/* -- the log ------------------------------------------------------------------------------------------------------- */

static bool fits(struct json_object *o, const char *key, va_list ap)
{
	bool all = true;

	for (; key; key = va_arg(ap, const char *)) {
		const char *want = va_arg(ap, const char *);
		struct json_object *v;

		all = all && json_object_object_get_ex(o, key, &v) && strcmp(json_object_get_string(v), want) == 0;
	}
	return all;
}

static struct json_object *find(struct rig *g, const char *key, va_list ap)
{
	for (size_t i = 0;; i++) {
		struct json_object *o;
		va_list copy;
		bool is;

		while (i == json_object_array_length(g->lines))
			assert_false(take(g));
		o = json_object_array_get_idx(g->lines, i);
		va_copy(copy, ap);
		is = fits(o, key, copy);
		va_end(copy);
		if (is) {
			json_object_get(o);
			json_object_array_del_idx(g->lines, i, 1);
			return o;
		}
	}
}

struct json_object *rig_line(struct rig *g, const char *key, ...)
{
	struct json_object *o;
	va_list ap;

	va_start(ap, key);
	o = find(g, key, ap);
	va_end(ap);
	return o;
}

void rig_logged(struct rig *g, const char *key, ...)
{
	struct json_object *o;
	va_list ap;

	va_start(ap, key);
	o = find(g, key, ap);
	va_end(ap);
	json_put(&o);
}
