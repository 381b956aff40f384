/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's namespace from the inside: the tap, what the kernel is told, the sockets. Rules: topology_rules.c; links
 * and routes: topology_links.c. */
#include "netpolicy/topology.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/ether.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "base/proc.h"
#include "netpolicy/topology_priv.h"

#define TUN	     "/dev/net/tun"
#define BACKLOG	     512
#define BIND_WAIT_NS 2000000000u
#define BIND_TRY_NS  5000000

/* -- the tap ------------------------------------------------------------------------------------ */

static int open_tun(struct err *e)
{
	int fd = open(TUN, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT || errno == ENODEV || errno == ENXIO)
		return err_set(e, -ENOENT, "no " TUN " on this host (modprobe tun)");
	return err_set(e, -errno, TUN ": %s (a container must be given this device)", strerror(errno));
}

static int set_mac(struct err *e)
{
	struct ifreq req = { .ifr_name = NET_TAP, .ifr_hwaddr.sa_family = ARPHRD_ETHER };
	AUTO_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ether_addr mac;

	if (s < 0 || !ether_aton_r(NET_HOST_MAC, &mac))
		return err_set(e, s < 0 ? -errno : -EINVAL, NET_TAP ": no socket to name it");
	memcpy(req.ifr_hwaddr.sa_data, &mac, sizeof(mac));
	if (ioctl(s, SIOCSIFHWADDR, &req) < 0)
		return err_set(e, -errno, NET_TAP ": its address %s: %s", NET_HOST_MAC, strerror(errno));
	return 0;
}

int topology_tap(struct err *e)
{
	struct ifreq req = { .ifr_name = NET_TAP, .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	AUTO_FD fd = open_tun(e);
	int r;

	if (fd < 0)
		return fd;
	if (ioctl(fd, TUNSETIFF, &req) < 0)
		return err_set(e, -errno, NET_TAP ": make the tap: %s", strerror(errno));
	/* It ends with its namespace, which the kernel takes down behind everybody's back, and not with its descriptor:
	 * that would keep a killed engine for tens of milliseconds. */
	if (ioctl(fd, TUNSETPERSIST, 1) < 0)
		return err_set(e, -errno, NET_TAP ": make the tap stay: %s", strerror(errno));
	r = set_mac(e);
	return r < 0 ? r : take_fd(&fd);
}

/* -- what the kernel is told --------------------------------------------------------------------- */

/* A new namespace begins with the host's settings, which may be anything. */
struct setting {
	const char *path, *value;
};
#define SYS(path) "/proc/sys/net/" path
static const struct setting settings4[] = {
	{ SYS("ipv4/ip_forward"), "0" },
	/* The rules drop spoofed addresses; with the mark in the look-up every source would be one of ours. */
	{ SYS("ipv4/conf/all/rp_filter"), "0" },
	{ SYS("ipv4/conf/" NET_TAP "/rp_filter"), "0" },
	{ SYS("ipv4/conf/all/src_valid_mark"), "0" },
	{ SYS("ipv4/conf/" NET_TAP "/src_valid_mark"), "0" },
	{ SYS("ipv4/conf/all/arp_ignore"), "0" },
	{ SYS("ipv4/conf/" NET_TAP "/arp_ignore"), "0" },
	/* A guest that takes no more of connections that have ended here keeps their bytes in the host's memory for
	 * seconds, not for minutes. */
	{ SYS("ipv4/tcp_orphan_retries"), "5" },
	{ SYS("ipv4/conf/all/log_martians"), "0" }, /* a guest cannot fill the host's log */
	{ SYS("ipv4/conf/" NET_TAP "/log_martians"), "0" },
};
static const struct setting settings6[] = {
	{ SYS("ipv6/conf/all/forwarding"), "0" },
	{ SYS("ipv6/conf/lo/disable_ipv6"), "0" },
	{ SYS("ipv6/conf/" NET_TAP "/disable_ipv6"), "0" },
	{ SYS("ipv6/conf/" NET_TAP "/addr_gen_mode"), "1" }, /* no address of the kernel's own making */
	{ SYS("ipv6/conf/" NET_TAP "/accept_ra"), "0" },
	{ SYS("ipv6/conf/" NET_TAP "/accept_redirects"), "0" },
};

/* What is so already is not written: /proc/sys may be read-only here. */
static int set_one(const struct setting *s, struct err *e)
{
	char now[16] = "";
	AUTO_FD fd = open(s->path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, now, sizeof(now) - 1);

	if (n < 0)
		return err_set(e, -errno, "%s: %s", s->path, strerror(errno));
	now[strcspn(now, "\n")] = '\0';
	if (strcmp(now, s->value) == 0)
		return 0;
	fd_close(&fd);
	fd = open(s->path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, s->value, strlen(s->value)) < 0)
		return err_set(e, -errno, "%s: must be %s, and cannot be set: %s", s->path, s->value, strerror(errno));
	return 0;
}

static int set_all(const struct setting *s, size_t n, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = set_one(&s[i], e);
	return r;
}

/* -- the sockets ---------------------------------------------------------------------------------- */

/* Switched off at boot, there is no such family; switched off for new interfaces, we switch it on for ours. */
static bool has_ipv6(void)
{
	AUTO_FD s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return s >= 0 && access(SYS("ipv6/conf/" NET_TAP), F_OK) == 0;
}

static int set_on(int fd, int level, int option)
{
	static const int on = 1;

	return setsockopt(fd, level, option, &on, sizeof(on));
}

/* The old sockets are going: whoever held them was ended before we were called. */
static int bind_patiently(int fd, const struct sockaddr *sa, socklen_t len)
{
	const struct timespec pause = { .tv_nsec = BIND_TRY_NS };
	uint64_t end = now_ns() + BIND_WAIT_NS;
	int r;

	while ((r = bind(fd, sa, len)) < 0 && errno == EADDRINUSE && now_ns() < end)
		nanosleep(&pause, NULL);
	return r;
}

static int make_socket(int family, int type, struct err *e)
{
	static const char what[] = "a socket for the guest";
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	struct sockaddr_in four = { .sin_family = AF_INET };
	uint16_t port = htons(type == SOCK_STREAM ? NET_TCP_PORT : NET_UDP_PORT);
	AUTO_FD fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool is6 = family == AF_INET6;
	int r;

	if (fd < 0)
		return err_set(e, -errno, "%s: %s", what, strerror(errno));
	six.sin6_port = four.sin_port = port;
	r = is6 ? set_on(fd, IPPROTO_IPV6, IPV6_TRANSPARENT) : set_on(fd, IPPROTO_IP, IP_TRANSPARENT);
	if (r == 0 && is6)
		r = set_on(fd, IPPROTO_IPV6, IPV6_V6ONLY);
	if (r == 0 && type == SOCK_STREAM) /* old connections do not count; two datagram sockets would share the port */
		r = set_on(fd, SOL_SOCKET, SO_REUSEADDR);
	if (r == 0 && type == SOCK_DGRAM)
		r = is6 ? set_on(fd, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR) : set_on(fd, IPPROTO_IP, IP_RECVORIGDSTADDR);
	if (r < 0)
		return err_set(e, -errno, "%s: make it transparent: %s", what, strerror(errno));
	r = is6 ? bind_patiently(fd, (const struct sockaddr *)&six, sizeof(six))
		: bind_patiently(fd, (const struct sockaddr *)&four, sizeof(four));
	if (r == 0 && type == SOCK_STREAM)
		r = listen(fd, BACKLOG);
	if (r < 0)
		return err_set(e, -errno, "%s: port %u: %s", what, ntohs(port), strerror(errno));
	return take_fd(&fd);
}

static int make_sockets(int fds[TOPOLOGY_FD_COUNT], bool ipv6, struct err *e)
{
	static const struct {
		int family, type;
	} kinds[] = {
		[TOPOLOGY_TCP4] = { AF_INET, SOCK_STREAM },
		[TOPOLOGY_TCP6] = { AF_INET6, SOCK_STREAM },
		[TOPOLOGY_UDP4] = { AF_INET, SOCK_DGRAM },
		[TOPOLOGY_UDP6] = { AF_INET6, SOCK_DGRAM },
	};
	_Static_assert(ARRAY_LEN(kinds) == TOPOLOGY_FD_COUNT, "a row for each socket");
	int made[TOPOLOGY_FD_COUNT] = { -1, -1, -1, -1 }, r = 0;

	for (size_t i = 0; i < ARRAY_LEN(kinds) && r >= 0; i++)
		if (ipv6 || kinds[i].family == AF_INET)
			r = made[i] = make_socket(kinds[i].family, kinds[i].type, e);
	if (r < 0) {
		for (size_t i = 0; i < ARRAY_LEN(made); i++)
			fd_close(&made[i]);
		return r;
	}
	memcpy(fds, made, sizeof(made));
	return 0;
}

int topology_up(int fds[TOPOLOGY_FD_COUNT], struct err *e)
{
	bool ipv6 = has_ipv6();
	int r = if_nametoindex(NET_TAP) ? 0 : -ENODEV;

	if (r < 0)
		return err_set(e, r, "no " NET_TAP ": its engine was started without a tap (start the sandbox anew)");
	r = topology_rules(ipv6, e);
	if (r == 0)
		r = set_all(settings4, ARRAY_LEN(settings4), e);
	if (r == 0 && ipv6)
		r = set_all(settings6, ARRAY_LEN(settings6), e);
	if (r == 0)
		r = topology_links(ipv6, e);
	return r < 0 ? r : make_sockets(fds, ipv6, e);
}

int topology_sockets(int *fds, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		int r;

		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fds[i] >= 0 && set_on(fds[i], IPPROTO_IP, IP_TRANSPARENT) == 0)
			continue;
		r = err_set(e, -errno, "sockets towards the guest: %s", strerror(errno));
		for (size_t k = 0; k <= i; k++)
			fd_close(&fds[k]);
		return r;
	}
	return 0;
}

/* -- the probe ------------------------------------------------------------------------------------- */

static int try_all(struct err *e)
{
	int fds[TOPOLOGY_FD_COUNT], r;

	if (unshare(CLONE_NEWNET) < 0)
		return err_set(e, -errno, "a network namespace: %s%s", strerror(errno),
			       errno == EPERM ? " (this needs root)" : "");
	r = topology_tap(e);
	return r < 0 ? r : topology_up(fds, e);
}

int topology_probe(struct err *e)
{
	AUTO_FD rd = -1;
	AUTO_FD wr = -1;
	struct err said = { 0 };
	int pair[2], r;
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return err_set(e, -errno, "probe: pipe: %s", strerror(errno));
	rd = pair[0];
	wr = pair[1];
	pid = fork();
	if (pid < 0)
		return err_set(e, -errno, "probe: fork: %s", strerror(errno));
	if (pid == 0) {
		said.code = try_all(&said);
		(void)!fd_write_all(wr, &said, sizeof(said));
		_exit(0); /* the namespace and all that is in it goes with us */
	}
	fd_close(&wr);
	r = fd_read_all(rd, &said, sizeof(said));
	proc_wait(pid, NULL);
	if (r < 0)
		return err_set(e, -EIO, "probe: its child ended without a word");
	return said.code < 0 ? err_set(e, said.code, "%s", said.msg) : 0;
}
