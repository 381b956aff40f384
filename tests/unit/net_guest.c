/* SPDX-License-Identifier: Apache-2.0 */
/* See net_guest.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/ipv6.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <netinet/ether.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/net_guest.h"
#include "vmm/machine.h"

void netrig_enter(int ns)
{
	assert_int_equal(setns(ns, CLONE_NEWNET), 0);
}

static int current_ns(void)
{
	int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* Frames, header and all, until told to stop. A side that is down takes none (EIO): as on a wire, they are lost. */
static void *pump(void *arg)
{
	const struct netrig *n = arg;
	struct pollfd p[] = { { .fd = n->tap, .events = POLLIN },
			      { .fd = n->nic, .events = POLLIN },
			      { .fd = n->stop[0], .events = POLLIN } };
	char frame[70000];

	while (poll(p, ARRAY_LEN(p), -1) > 0 && !p[2].revents)
		for (int i = 0; i < 2; i++) {
			ssize_t len = p[i].revents ? read(p[i].fd, frame, sizeof(frame)) : 0;

			if (len > 0)
				(void)!write(p[!i].fd, frame, (size_t)len);
		}
	return NULL;
}

/* -- the guest ------------------------------------------------------------------------------------ */

static void do_ioctl(int s, unsigned long what, void *arg, const char *name)
{
	if (ioctl(s, what, arg) < 0)
		fail_msg("%s: %s", name, strerror(errno));
}

#define DO(s, what, arg) do_ioctl(s, what, arg, #what)

static void put_sin(struct sockaddr *sa, const char *addr)
{
	struct sockaddr_in sin = { .sin_family = AF_INET };

	assert_int_equal(inet_pton(AF_INET, addr, &sin.sin_addr), 1);
	memcpy(sa, &sin, sizeof(sin));
}

static void add_four(int s, const char *name, const char *addr)
{
	struct ifreq req = { 0 };

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	put_sin(&req.ifr_addr, addr);
	DO(s, SIOCSIFADDR, &req);
	put_sin(&req.ifr_netmask, "255.255.255.0");
	DO(s, SIOCSIFNETMASK, &req);
}

static void up(int s, const char *name)
{
	struct ifreq req = { 0 };

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s", name);
	DO(s, SIOCGIFFLAGS, &req);
	req.ifr_flags |= IFF_UP;
	DO(s, SIOCSIFFLAGS, &req);
}

static void write_file(const char *path, const char *text)
{
	AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void make_guest4(int s)
{
	struct rtentry route = { .rt_flags = RTF_UP | RTF_GATEWAY };

	add_four(s, GUEST_NIC, NET_GUEST_ADDR);
	add_four(s, GUEST_NIC ":1", GUEST_OTHER);
	put_sin(&route.rt_dst, "0.0.0.0");
	put_sin(&route.rt_genmask, "0.0.0.0");
	put_sin(&route.rt_gateway, NET_HOST_ADDR);
	DO(s, SIOCADDRT, &route);
}

static void make_guest6(void)
{
	struct in6_rtmsg route = { .rtmsg_flags = RTF_UP | RTF_GATEWAY, .rtmsg_metric = 1 };
	struct in6_ifreq addr = { .ifr6_prefixlen = NET_PREFIX6 };
	AUTO_FD s = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (s < 0)
		return; /* no IPv6 here */
	addr.ifr6_ifindex = route.rtmsg_ifindex = (int)if_nametoindex(GUEST_NIC);
	assert_int_equal(inet_pton(AF_INET6, NET_GUEST_ADDR6, &addr.ifr6_addr), 1);
	DO(s, SIOCSIFADDR, &addr);
	assert_int_equal(inet_pton(AF_INET6, NET_HOST_ADDR6, &route.rtmsg_gateway), 1);
	DO(s, SIOCADDRT, &route);
}

static int make_guest(void)
{
	struct ifreq req = { .ifr_name = GUEST_NIC, .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	AUTO_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ether_addr mac;

	assert_true(fd >= 0 && s >= 0);
	DO(fd, TUNSETIFF, &req);
	assert_non_null(ether_aton_r(MACHINE_MAC, &mac));
	memset(&req.ifr_ifru, 0, sizeof(req.ifr_ifru));
	req.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	memcpy(req.ifr_hwaddr.sa_data, &mac, sizeof(mac));
	DO(s, SIOCSIFHWADDR, &req);
	/* No wait for somebody who has our address already. */
	if (access("/proc/sys/net/ipv6/conf/" GUEST_NIC, F_OK) == 0)
		write_file("/proc/sys/net/ipv6/conf/" GUEST_NIC "/accept_dad", "0");
	up(s, "lo");
	up(s, GUEST_NIC);
	make_guest4(s);
	make_guest6();
	return fd;
}

/* -- both ------------------------------------------------------------------------------------------ */

void netrig_new(struct netrig *n)
{
	struct err e = { 0 };

	*n = (struct netrig){ .host_ns = current_ns(), .fds = { -1, -1, -1, -1 } };
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	n->guest_ns = current_ns();
	n->nic = make_guest();
	assert_int_equal(unshare(CLONE_NEWNET), 0);
	n->sandbox_ns = current_ns();
	n->tap = topology_tap(&e);
	if (n->tap < 0)
		fail_msg("%s", e.msg);
	netrig_enter(n->host_ns);
	assert_int_equal(pipe2(n->stop, O_CLOEXEC), 0);
	assert_int_equal(pthread_create(&n->pump, NULL, pump, n), 0);
}

int netrig_up(struct netrig *n, struct err *e)
{
	int r;

	netrig_enter(n->sandbox_ns);
	r = topology_up(n->fds, e);
	netrig_enter(n->host_ns);
	return r;
}

void netrig_close_fds(struct netrig *n)
{
	for (size_t i = 0; i < ARRAY_LEN(n->fds); i++)
		fd_close(&n->fds[i]);
}

void netrig_free(struct netrig *n)
{
	netrig_enter(n->host_ns);
	close(n->stop[1]);
	pthread_join(n->pump, NULL);
	close(n->stop[0]);
	netrig_close_fds(n);
	close(n->tap);
	close(n->nic);
	close(n->guest_ns);
	close(n->sandbox_ns);
	close(n->host_ns);
}
