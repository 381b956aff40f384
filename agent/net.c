/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "agent/boot.h"
#include "base/fd.h"
#include "base/json.h"

#define CARD	   "eth0" /* the kernel's name for the only one */
#define CARD_TRIES 400	  /* half a millisecond apart */

/* -- what the host says -------------------------------------------------------------------------- */

static int parse_addr(struct json_object *o, const char *key, int family, void *ret, struct err *e)
{
	const char *text = "";
	int r = json_get_str(o, key, &text, e);

	if (r == 0 && inet_pton(family, text, ret) != 1)
		r = err_set(e, -EINVAL, "%s: not an address", key);
	return r;
}

int net_parse(struct json_object *o, struct net_config *ret, bool *ret_given, struct err *e)
{
	struct net_config c = { .mtu = 1500 };
	struct json_object *net = NULL;
	int r = json_get_obj(o, "net", json_type_object, &net, e);

	*ret_given = false;
	if (r < 0 || !net)
		return r;
	r = parse_addr(net, "address", AF_INET, &c.address, e);
	if (r == 0)
		r = parse_addr(net, "gateway", AF_INET, &c.gateway, e);
	if (r == 0)
		r = parse_addr(net, "address6", AF_INET6, &c.address6, e);
	if (r == 0)
		r = parse_addr(net, "gateway6", AF_INET6, &c.gateway6, e);
	if (r == 0)
		r = json_get_u64(net, "prefix", 1, 32, &c.prefix, e);
	if (r == 0)
		r = json_get_u64(net, "prefix6", 1, 128, &c.prefix6, e);
	if (r == 0)
		r = json_get_u64(net, "mtu", 1280, 65535, &c.mtu, e);
	if (r == 0 && (c.prefix == 0 || c.prefix6 == 0))
		r = err_set(e, -EINVAL, "prefix or prefix6 is missing");
	if (r < 0)
		return err_wrap(e, "net");
	*ret = c;
	*ret_given = true;
	return 0;
}

/* -- the card ------------------------------------------------------------------------------------ */

static struct ifreq card_request(void)
{
	return (struct ifreq){ .ifr_name = CARD };
}

/* Every driver that we load has found its card by the time it is loaded; one that is built in may be a little later.
 * The agent answers nobody meanwhile, so a machine without a card is told from one soon. */
static int wait_for_card(int fd, struct err *e)
{
	const struct timespec step = { .tv_nsec = 500000 };
	struct ifreq ifr = card_request();
	int tries = 0;

	while (ioctl(fd, SIOCGIFINDEX, &ifr) < 0) {
		if (errno != ENODEV)
			return err_set(e, -errno, "%s: %s", CARD, strerror(errno));
		if (++tries == CARD_TRIES)
			return err_set(e, -ENODEV, "%s: this machine has no network card", CARD);
		nanosleep(&step, NULL);
	}
	return ifr.ifr_ifindex;
}

static int set_addr(int fd, unsigned long what, struct in_addr a, struct err *e)
{
	struct ifreq ifr = card_request();

	memcpy(&ifr.ifr_addr, &(struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = a },
	       sizeof(struct sockaddr_in));
	return ioctl(fd, what, &ifr) < 0 ? err_set(e, -errno, "%s: address: %s", CARD, strerror(errno)) : 0;
}

static int set_up(int fd, uint64_t mtu, struct err *e)
{
	struct ifreq ifr = card_request();

	ifr.ifr_mtu = (int)mtu;
	if (ioctl(fd, SIOCSIFMTU, &ifr) < 0)
		return err_set(e, -errno, "%s: mtu: %s", CARD, strerror(errno));
	ifr = card_request();
	if (ioctl(fd, SIOCGIFFLAGS, &ifr) == 0) {
		ifr.ifr_flags |= IFF_UP;
		if (ioctl(fd, SIOCSIFFLAGS, &ifr) == 0)
			return 0;
	}
	return err_set(e, -errno, "%s: up: %s", CARD, strerror(errno));
}

static int add_default_route(int fd, struct in_addr gateway, struct err *e)
{
	struct rtentry rt = { .rt_flags = RTF_UP | RTF_GATEWAY };

	((struct sockaddr_in *)&rt.rt_gateway)->sin_family = AF_INET;
	((struct sockaddr_in *)&rt.rt_gateway)->sin_addr = gateway;
	rt.rt_dst.sa_family = rt.rt_genmask.sa_family = AF_INET;
	if (ioctl(fd, SIOCADDRT, &rt) < 0 && errno != EEXIST)
		return err_set(e, -errno, "%s: default route: %s", CARD, strerror(errno));
	return 0;
}

static int up4(int fd, const struct net_config *c, struct err *e)
{
	struct in_addr mask = { .s_addr = htonl(UINT32_MAX << (32 - c->prefix)) };
	int r = set_addr(fd, SIOCSIFADDR, c->address, e);

	if (r == 0)
		r = set_addr(fd, SIOCSIFNETMASK, mask, e);
	if (r == 0)
		r = set_up(fd, c->mtu, e);
	return r < 0 ? r : add_default_route(fd, c->gateway, e);
}

/* -- IPv6 ---------------------------------------------------------------------------------------- */

struct in6_ifreq_ { /* linux/ipv6.h's, which cannot be included beside netinet/in.h everywhere */
	struct in6_addr addr;
	uint32_t prefixlen;
	int ifindex;
};

static void set_ipv6(const struct guest *g, const char *name, const char *value)
{
	char path[96];
	AUTO_FD fd = -1;

	snprintf(path, sizeof(path), "sys/net/ipv6/%s", name);
	fd = openat(g->proc_fd, path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, value, strlen(value)) < 0)
		fd_close(&fd); /* an older kernel's default serves as well */
}

/* A guest that has no IPv6, or was told to have none, goes without. */
static int up6(int index, const struct net_config *c, struct err *e)
{
	AUTO_FD fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct in6_ifreq_ addr = { .addr = c->address6, .prefixlen = (uint32_t)c->prefix6, .ifindex = index };
	struct in6_rtmsg rt = { .rtmsg_gateway = c->gateway6,
				.rtmsg_flags = RTF_UP | RTF_GATEWAY,
				.rtmsg_metric = 1024,
				.rtmsg_ifindex = index };

	if (fd < 0)
		return errno == EAFNOSUPPORT ? 0 : err_set(e, -errno, "IPv6: %s", strerror(errno));
	if (ioctl(fd, SIOCSIFADDR, &addr) < 0 && errno != EEXIST)
		return errno == EACCES || errno == EOPNOTSUPP
			       ? 0
			       : err_set(e, -errno, "%s: IPv6 address: %s", CARD, strerror(errno));
	if (ioctl(fd, SIOCADDRT, &rt) < 0 && errno != EEXIST)
		return err_set(e, -errno, "%s: IPv6 default route: %s", CARD, strerror(errno));
	return 0;
}

/* -- the resolver -------------------------------------------------------------------------------- */

/* A link that leads to a file of systemd-resolved's is replaced as well: nothing else may answer here. */
static int write_resolv_conf(const struct guest *g, const struct net_config *c, struct err *e)
{
	char gateway[INET_ADDRSTRLEN], text[64];
	AUTO_FD etc = openat(g->root_fd, "etc", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	snprintf(text, sizeof(text), "nameserver %s\n", inet_ntop(AF_INET, &c->gateway, gateway, sizeof(gateway)));
	r = guest_write_own(g, "resolv.conf", text);
	if (r < 0)
		return err_set(e, r, "resolv.conf: %s", strerror(-r));
	if (r == 0)
		return 0;
	if (etc < 0)
		return errno == ENOENT ? 0 : err_set(e, -errno, "/etc: %s", strerror(errno));
	r = fd_replace(etc, "resolv.conf", text, strlen(text), 0644, false);
	return r < 0 ? err_set(e, r, "/etc/resolv.conf: %s", strerror(-r)) : 0;
}

/* -- together ------------------------------------------------------------------------------------ */

int net_up(struct guest *g, const struct net_config *c, struct err *e)
{
	AUTO_FD fd = -1;
	int r, index;

	if (g->test)
		return err_set(e, -ENODEV, "this agent is no guest's");
	if (g->net_up)
		return 0;
	/* Each multicast group is told of once, not twice with a second between: nobody hears of it, and a fork of a
	 * snapshot that was taken in that second would have to do it first of all. A card is given this number when it
	 * appears. */
	set_ipv6(g, "mld_qrv", "1");
	r = boot_net_modules(g, e);
	if (r < 0)
		return r;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_set(e, -errno, "socket: %s", strerror(errno));
	index = wait_for_card(fd, e);
	if (index < 0)
		return index;
	/* Nobody advertises here, and nobody else has our address. */
	set_ipv6(g, "conf/" CARD "/accept_ra", "0");
	set_ipv6(g, "conf/" CARD "/accept_dad", "0");
	r = up4(fd, c, e);
	if (r == 0)
		r = up6(index, c, e);
	if (r == 0)
		r = write_resolv_conf(g, c, e);
	g->net_up = r == 0;
	if (g->net_up)
		net_hold_counts(g);
	return r;
}
