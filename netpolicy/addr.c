/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * What is refused stands in two tables, one a family. An entry is `hard` when a range that root opened does not open
 * it, but one that names exactly that address does: what lives there is this host, everybody, or the cloud's metadata.
 * IPv6 is the other way round than it looks: only 2000::/3 is in use as public addresses, so what lies outside of it is
 * refused whole. Addresses that carry an IPv4 address to a translator (NAT64, 6to4) are judged by what they carry. */
#include "netpolicy/addr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

struct range {
	uint8_t bytes[16];
	unsigned bits;
	bool hard;
	const char *why;
};

/* The first that fits tells why. */
static const struct range ranges4[] = {
	{ { 0 }, 8, true, "unspecified" },
	{ { 127 }, 8, true, "loopback" },
	{ { 169, 254 }, 16, true, "link-local" },
	{ { 224 }, 4, true, "multicast" },
	{ { 255, 255, 255, 255 }, 32, true, "broadcast" },
	{ { 100, 100, 100, 200 }, 32, true, "cloud metadata" },
	{ { 168, 63, 129, 16 }, 32, true, "cloud metadata" },
	{ { 192, 0, 0, 192 }, 32, true, "cloud metadata" },
	{ { 10 }, 8, false, "private" },
	{ { 100, 64 }, 10, false, "private" },
	{ { 172, 16 }, 12, false, "private" },
	{ { 192, 168 }, 16, false, "private" },
	{ { 192, 0, 0 }, 24, false, "reserved" },
	{ { 192, 0, 2 }, 24, false, "documentation" },
	{ { 192, 88, 99 }, 24, false, "reserved" },
	{ { 198, 18 }, 15, false, "benchmarks" },
	{ { 198, 51, 100 }, 24, false, "documentation" },
	{ { 203, 0, 113 }, 24, false, "documentation" },
	{ { 240 }, 4, false, "reserved" },
};

static const struct range ranges6[] = {
	{ { 0 }, 128, true, "unspecified" },
	{ { [15] = 1 }, 128, true, "loopback" },
	{ { 0xfe, 0x80 }, 10, true, "link-local" },
	{ { 0xff }, 8, true, "multicast" },
	{ { 0xfd, 0x00, 0x0e, 0xc2 }, 32, true, "cloud metadata" },
	{ { 0xfd, 0x20, 0x00, 0xce }, 32, true, "cloud metadata" },
	{ { 0xfc }, 7, false, "private" },
	{ { 0xfe, 0xc0 }, 10, false, "private" },
	{ { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 }, 48, false, "translated" },
	{ { 0x20, 0x01, 0x00, 0x00 }, 32, false, "translated" },
	{ { 0x20, 0x01, 0x0d, 0xb8 }, 32, false, "documentation" },
	{ { 0x3f, 0xff }, 20, false, "documentation" },
	{ { 0x20, 0x01 }, 23, false, "reserved" },
	{ { 0x00 }, 3, false, "reserved" },
	{ { 0x40 }, 2, false, "reserved" },
	{ { 0x80 }, 1, false, "reserved" },
};

/* Where the inner IPv4 address begins in those that carry one. */
static const struct {
	struct net_cidr cidr;
	unsigned at; /* bytes */
} carriers[] = {
	{ { { AF_INET6, { 0x00, 0x64, 0xff, 0x9b } }, 96 }, 12 },
	{ { { AF_INET6, { 0x20, 0x02 } }, 16 }, 2 },
};

static unsigned bits_of(int family)
{
	return family == AF_INET ? 32 : 128;
}

static bool same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(a, b, whole) != 0)
		return false;
	return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

/* -- addresses -------------------------------------------------------------------------------------------------- */

static void from_in6(const uint8_t bytes[16], struct net_addr *ret)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

	*ret = (struct net_addr){ .family = AF_INET6 };
	if (memcmp(bytes, mapped, sizeof(mapped)) == 0) {
		ret->family = AF_INET;
		memcpy(ret->bytes, bytes + 12, 4);
	} else {
		memcpy(ret->bytes, bytes, 16);
	}
}

int net_addr_parse(const char *text, struct net_addr *ret)
{
	uint8_t bytes[16] = { 0 };

	if (inet_pton(AF_INET, text, bytes) == 1) {
		*ret = (struct net_addr){ .family = AF_INET };
		memcpy(ret->bytes, bytes, 4);
		return 0;
	}
	if (inet_pton(AF_INET6, text, bytes) != 1)
		return -EINVAL;
	from_in6(bytes, ret);
	return 0;
}

const char *net_addr_text(const struct net_addr *a, char out[NET_ADDR_TEXT])
{
	if (!inet_ntop(a->family, a->bytes, out, NET_ADDR_TEXT))
		snprintf(out, NET_ADDR_TEXT, "?");
	return out;
}

bool net_addr_equal(const struct net_addr *a, const struct net_addr *b)
{
	return a->family == b->family && memcmp(a->bytes, b->bytes, bits_of(a->family) / 8) == 0;
}

int net_addr_from_sockaddr(const struct sockaddr *sa, socklen_t len, struct net_addr *ret, uint16_t *ret_port)
{
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} u;
	sa_family_t family;

	if (len < offsetof(struct sockaddr, sa_data))
		return -EAFNOSUPPORT;
	memcpy(&family, &sa->sa_family, sizeof(family));
	if (family == AF_INET && len >= sizeof(u.v4)) {
		memcpy(&u.v4, sa, sizeof(u.v4));
		*ret = (struct net_addr){ .family = AF_INET };
		memcpy(ret->bytes, &u.v4.sin_addr, 4);
		if (ret_port)
			*ret_port = ntohs(u.v4.sin_port);
		return 0;
	}
	if (family == AF_INET6 && len >= sizeof(u.v6)) {
		memcpy(&u.v6, sa, sizeof(u.v6));
		from_in6(u.v6.sin6_addr.s6_addr, ret);
		if (ret_port)
			*ret_port = ntohs(u.v6.sin6_port);
		return 0;
	}
	return -EAFNOSUPPORT;
}

socklen_t net_addr_to_sockaddr(const struct net_addr *a, uint16_t port, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (a->family == AF_INET) {
		struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };

		memcpy(&v4.sin_addr, a->bytes, 4);
		memcpy(ret, &v4, sizeof(v4));
		return sizeof(v4);
	}
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

	memcpy(&v6.sin6_addr, a->bytes, 16);
	memcpy(ret, &v6, sizeof(v6));
	return sizeof(v6);
}

/* -- ranges ----------------------------------------------------------------------------------------------------- */

int net_cidr_parse(const char *text, struct net_cidr *ret, struct err *e)
{
	char addr[NET_ADDR_TEXT + 1];
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	unsigned bits, written_bits;
	struct net_addr a;
	bool v6;

	if (len >= sizeof(addr))
		return err_set(e, -EINVAL, "%.60s: no address", text);
	memcpy(addr, text, len);
	addr[len] = '\0';
	if (net_addr_parse(addr, &a) < 0)
		return err_set(e, -EINVAL, "%.60s: no address", text);
	v6 = strchr(addr, ':');
	written_bits = bits = v6 ? 128 : 32;
	if (slash) {
		const char *p = slash + 1;

		if (*p < '0' || *p > '9' || strlen(p) > 3 || strspn(p, "0123456789") != strlen(p) ||
		    (*p == '0' && p[1]))
			return err_set(e, -EINVAL, "%.60s: a number of bits belongs behind the /", text);
		bits = (unsigned)strtoul(p, NULL, 10);
		if (bits > written_bits)
			return err_set(e, -EINVAL, "%.60s: /%u is too long, at most /%u", text, bits, written_bits);
	}
	if (v6 && a.family == AF_INET) { /* ::ffff:a.b.c.d */
		if (bits < 96)
			return err_set(e, -EINVAL, "%.60s: host bits are set", text);
		bits -= 96;
	}
	struct net_cidr c = { .addr = a, .bits = bits };

	for (unsigned i = bits; i < bits_of(a.family); i++)
		c.addr.bytes[i / 8] &= (uint8_t) ~(0x80u >> (i % 8));
	if (!net_addr_equal(&c.addr, &a))
		return err_set(e, -EINVAL, "%.60s: host bits are set; %s/%u is meant?", text,
			       net_addr_text(&c.addr, addr), bits);
	*ret = c;
	return 0;
}

bool net_cidr_has(const struct net_cidr *c, const struct net_addr *a)
{
	return c->addr.family == a->family && same_bits(c->addr.bytes, a->bytes, c->bits);
}

bool net_cidr_within(const struct net_cidr *c, const struct net_cidr *wider)
{
	return c->bits >= wider->bits && net_cidr_has(wider, &c->addr);
}

/* -- what is refused -------------------------------------------------------------------------------------------- */

/* Does root open all of @c? For what is `hard`: by its very name. */
static bool opens(const struct net_reach *reach, const struct net_cidr *c, bool exactly)
{
	if (reach && reach->any && (!exactly || c->bits == bits_of(c->addr.family)))
		return true;
	for (size_t i = 0; reach && i < reach->nopened; i++) {
		const struct net_cidr *o = &reach->opened[i];

		if (net_cidr_within(c, o) && (!exactly || o->bits == bits_of(o->addr.family)))
			return true;
	}
	return false;
}

static bool is_own(const struct net_addr *a, const struct net_reach *reach)
{
	for (size_t i = 0; reach && i < reach->nown; i++)
		if (net_addr_equal(&reach->own[i], a))
			return true;
	return false;
}

/* Of @c and @r, which overlap, the smaller. */
static struct net_cidr overlap(const struct net_cidr *c, const struct range *r)
{
	struct net_cidr o = *c;

	if (r->bits > c->bits) {
		memcpy(o.addr.bytes, r->bytes, 16);
		o.bits = r->bits;
	}
	return o;
}

/* The IPv4 range that a part of @c carries. False: @c carries none. */
static bool carried(const struct net_cidr *c, struct net_cidr *ret)
{
	for (size_t i = 0; i < ARRAY_LEN(carriers); i++) {
		unsigned at = carriers[i].at, bits = c->bits;

		if (!net_cidr_within(c, &carriers[i].cidr) && !net_cidr_within(&carriers[i].cidr, c))
			continue;
		bits = bits < at * 8 ? 0 : bits - at * 8;
		*ret = (struct net_cidr){ .addr = { .family = AF_INET }, .bits = bits > 32 ? 32 : bits };
		if (bits > 0)
			memcpy(ret->addr.bytes, c->addr.bytes + at, 4);
		return true;
	}
	return false;
}

static const char *in_table(const struct net_cidr *c, const struct net_reach *reach, bool hard)
{
	bool v4 = c->addr.family == AF_INET;
	const struct range *t = v4 ? ranges4 : ranges6;
	size_t n = v4 ? ARRAY_LEN(ranges4) : ARRAY_LEN(ranges6);

	for (size_t i = 0; i < n; i++) {
		unsigned bits = t[i].bits < c->bits ? t[i].bits : c->bits;
		struct net_cidr both;

		if (t[i].hard != hard || !same_bits(t[i].bytes, c->addr.bytes, bits))
			continue;
		both = overlap(c, &t[i]);
		if (!opens(reach, &both, hard))
			return t[i].why;
	}
	return NULL;
}

const char *net_cidr_refused(const struct net_cidr *range, const struct net_reach *reach)
{
	struct net_cidr c = *range, inner;
	bool single = c.bits == bits_of(c.addr.family);
	const char *why;

	if (c.addr.family != AF_INET && c.addr.family != AF_INET6)
		return "unknown";
	why = in_table(&c, reach, true);
	/* A range may hold the host's own: each address is asked for when it is dialed. */
	if (!why && single && is_own(&c.addr, reach) && !opens(reach, &c, true))
		why = "the host's own";
	if (why)
		return why;
	if (c.addr.family == AF_INET6 && carried(&c, &inner)) {
		if (net_cidr_refused(&inner, reach) && !opens(reach, &c, single))
			return "translated";
		if (net_cidr_within(&c, &carriers[0].cidr))
			return NULL; /* 64:ff9b::/96 lies in what is reserved */
	}
	return in_table(&c, reach, false);
}

const char *net_addr_refused(const struct net_addr *a, const struct net_reach *reach)
{
	struct net_cidr c = { .addr = *a, .bits = bits_of(a->family) };

	if (a->family == AF_INET6)
		from_in6(a->bytes, &c.addr); /* however it came about */
	c.bits = bits_of(c.addr.family);
	return net_cidr_refused(&c, reach);
}

int net_own_addresses(struct net_addr **ret, size_t *ret_n, struct err *e)
{
	struct net_addr *list;
	struct ifaddrs *all;
	size_t n = 0;

	if (getifaddrs(&all) < 0)
		return err_set(e, -errno, "the host's addresses: %s", err_name(-errno));
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		n++;
	list = calloc(n ? n : 1, sizeof(*list));
	if (!list) {
		freeifaddrs(all);
		return err_set(e, -ENOMEM, "the host's addresses: no memory");
	}
	n = 0;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		socklen_t len = sizeof(struct sockaddr_in);

		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET6)
			len = sizeof(struct sockaddr_in6);
		if (i->ifa_addr && net_addr_from_sockaddr(i->ifa_addr, len, &list[n], NULL) == 0)
			n++;
	}
	freeifaddrs(all);
	*ret = list;
	*ret_n = n;
	return 0;
}
