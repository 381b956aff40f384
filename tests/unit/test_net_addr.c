/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "netpolicy/addr.h"

static struct net_addr addr(const char *text)
{
	struct net_addr a;

	if (net_addr_parse(text, &a) < 0)
		fail_msg("%s is no address", text);
	return a;
}

static struct net_cidr cidr(const char *text)
{
	struct err e = { 0 };
	struct net_cidr c;

	if (net_cidr_parse(text, &c, &e) < 0)
		fail_msg("%s", e.msg);
	return c;
}

static void test_parse(void **state)
{
	static const char *const none[] = { "",		 "1.2.3",     "1.2.3.4.5", "01.2.3.4", "0x7f.0.0.1",
					    "256.1.1.1", "localhost", "[::1]",	   "::1%lo",   "fe80::1%2",
					    "1.2.3.4 ",	 " 1.2.3.4",  "::g",	   "1::2::3",  "1.2.3.4/8" };
	char text[NET_ADDR_TEXT];
	struct net_addr a;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(none); i++)
		assert_int_equal(net_addr_parse(none[i], &a), -EINVAL);
	a = addr("198.51.100.7");
	assert_int_equal(a.family, AF_INET);
	assert_string_equal(net_addr_text(&a, text), "198.51.100.7");
	a = addr("2606:4700:0:0::1111");
	assert_string_equal(net_addr_text(&a, text), "2606:4700::1111");
	/* IPv4 in IPv6's clothes is IPv4. */
	a = addr("::ffff:10.0.0.1");
	assert_int_equal(a.family, AF_INET);
	assert_string_equal(net_addr_text(&a, text), "10.0.0.1");
	assert_true(net_addr_equal(&a, &(struct net_addr){ AF_INET, { 10, 0, 0, 1 } }));
	a = addr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
	assert_int_equal(strlen(net_addr_text(&a, text)), 39);
	assert_string_equal(net_addr_text(&(struct net_addr){ .family = AF_UNIX }, text), "?");
}

static void test_sockaddr(void **state)
{
	static const char *const texts[] = { "192.0.2.1", "2001:db8::1" };
	struct sockaddr_in6 mapped = { .sin6_family = AF_INET6, .sin6_port = 0x5000 };
	struct sockaddr_storage ss;
	struct net_addr a, b;
	uint16_t port = 0;
	socklen_t len;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		a = addr(texts[i]);
		len = net_addr_to_sockaddr(&a, 8443, &ss);
		assert_int_equal(net_addr_from_sockaddr((struct sockaddr *)&ss, len, &b, &port), 0);
		assert_true(net_addr_equal(&a, &b));
		assert_int_equal(port, 8443);
		assert_int_equal(net_addr_from_sockaddr((struct sockaddr *)&ss, len - 1, &b, NULL), -EAFNOSUPPORT);
	}
	memcpy(mapped.sin6_addr.s6_addr, (uint8_t[16]){ [10] = 0xff, 0xff, 127, 0, 0, 1 }, 16);
	assert_int_equal(net_addr_from_sockaddr((struct sockaddr *)&mapped, sizeof(mapped), &a, NULL), 0);
	assert_int_equal(a.family, AF_INET);
	ss.ss_family = AF_UNIX;
	assert_int_equal(net_addr_from_sockaddr((struct sockaddr *)&ss, sizeof(ss), &a, NULL), -EAFNOSUPPORT);
	assert_int_equal(net_addr_from_sockaddr((struct sockaddr *)&ss, 0, &a, NULL), -EAFNOSUPPORT);
}

static void test_cidr(void **state)
{
	static const struct {
		const char *text, *words;
	} bad[] = {
		{ "192.0.2.0/33", "too long, at most /32" },
		{ "2001:db8::/129", "too long, at most /128" },
		{ "192.0.2.1/24", "host bits are set; 192.0.2.0/24 is meant?" },
		{ "2001:db8::1/32", "host bits" },
		{ "192.0.2.0/", "number of bits" },
		{ "192.0.2.0/-1", "number of bits" },
		{ "192.0.2.0/024", "number of bits" },
		{ "192.0.2.0/24/8", "number of bits" },
		{ "192.0.2.0/ 8", "number of bits" },
		{ "192.0.2.0/4294967320", "number of bits" },
		{ "/8", "no address" },
		{ "example.com/8", "no address" },
		{ "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000/8", "no address" },
		{ "::ffff:10.0.0.0/95", "host bits" },
	};
	struct err e;
	struct net_cidr c;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		e = (struct err){ 0 };
		assert_int_equal(net_cidr_parse(bad[i].text, &c, &e), -EINVAL);
		if (!strstr(e.msg, bad[i].words))
			fail_msg("%s: %s", bad[i].text, e.msg);
	}
	c = cidr("198.51.100.7");
	assert_int_equal(c.bits, 32);
	c = cidr("2606::1");
	assert_int_equal(c.bits, 128);
	c = cidr("::ffff:10.0.0.0/104");
	assert_int_equal(c.addr.family, AF_INET);
	assert_int_equal(c.bits, 8);
	c = cidr("0.0.0.0/0");
	assert_true(net_cidr_has(&c, &(struct net_addr){ AF_INET, { 255, 1 } }));
	assert_false(net_cidr_has(&c, &(struct net_addr){ .family = AF_INET6 }));
	/* /31 and /32 */
	c = cidr("192.0.2.2/31");
	assert_true(net_cidr_has(&c, &(struct net_addr){ AF_INET, { 192, 0, 2, 3 } }));
	assert_false(net_cidr_has(&c, &(struct net_addr){ AF_INET, { 192, 0, 2, 4 } }));
	assert_false(net_cidr_has(&c, &(struct net_addr){ AF_INET, { 192, 0, 2, 1 } }));
	c = cidr("192.0.2.2/32");
	assert_true(net_cidr_has(&c, &(struct net_addr){ AF_INET, { 192, 0, 2, 2 } }));
	assert_false(net_cidr_has(&c, &(struct net_addr){ AF_INET, { 192, 0, 2, 3 } }));
}

static void test_cidr_within(void **state)
{
	struct net_cidr a = cidr("10.0.0.0/8"), b = cidr("10.1.0.0/16"), all = cidr("0.0.0.0/0"), v6 = cidr("::/0");

	(void)state;
	assert_true(net_cidr_within(&b, &a));
	assert_true(net_cidr_within(&a, &a));
	assert_false(net_cidr_within(&a, &b));
	assert_true(net_cidr_within(&a, &all));
	assert_false(net_cidr_within(&a, &v6));
}

static void test_refused(void **state)
{
	static const struct {
		const char *addr, *why;
	} cases[] = {
		{ "0.0.0.0", "unspecified" },
		{ "0.1.2.3", "unspecified" },
		{ "10.0.0.1", "private" },
		{ "10.255.255.255", "private" },
		{ "100.64.0.0", "private" },
		{ "100.127.255.255", "private" },
		{ "100.100.100.200", "cloud metadata" },
		{ "127.0.0.1", "loopback" },
		{ "127.255.255.254", "loopback" },
		{ "168.63.129.16", "cloud metadata" },
		{ "169.254.169.254", "link-local" },
		{ "172.16.0.1", "private" },
		{ "172.31.255.255", "private" },
		{ "192.0.0.8", "reserved" },
		{ "192.0.0.192", "cloud metadata" },
		{ "192.0.2.1", "documentation" },
		{ "192.88.99.1", "reserved" },
		{ "192.168.1.1", "private" },
		{ "198.18.0.1", "benchmarks" },
		{ "198.19.255.255", "benchmarks" },
		{ "198.51.100.1", "documentation" },
		{ "203.0.113.1", "documentation" },
		{ "224.0.0.1", "multicast" },
		{ "239.255.255.255", "multicast" },
		{ "240.0.0.1", "reserved" },
		{ "255.255.255.254", "reserved" },
		{ "255.255.255.255", "broadcast" },
		{ "::", "unspecified" },
		{ "::1", "loopback" },
		{ "::2", "reserved" },
		{ "::ffff:10.0.0.1", "private" },
		{ "::ffff:127.0.0.1", "loopback" },
		{ "::127.0.0.1", "reserved" },
		{ "64:ff9b::a00:1", "translated" },
		{ "64:ff9b::7f00:1", "translated" },
		{ "64:ff9b::a9fe:a9fe", "translated" },
		{ "64:ff9b:1::808:808", "translated" },
		{ "64:ff9b:0:0:0:1::1", "reserved" },
		{ "100::1", "reserved" },
		{ "2001::1", "translated" },
		{ "2001:20::1", "reserved" },
		{ "2001:db8::1", "documentation" },
		{ "2002:a00:1::1", "translated" },
		{ "2002:7f00:1::", "translated" },
		{ "3fff::1", "documentation" },
		{ "4000::1", "reserved" },
		{ "5f00::1", "reserved" },
		{ "fc00::1", "private" },
		{ "fdff::1", "private" },
		{ "fd00:ec2::254", "cloud metadata" },
		{ "fe80::1", "link-local" },
		{ "febf::1", "link-local" },
		{ "fec0::1", "private" },
		{ "ff02::1", "multicast" },
		/* The neighbours of those. */
		{ "1.1.1.1", NULL },
		{ "9.255.255.255", NULL },
		{ "11.0.0.0", NULL },
		{ "100.63.255.255", NULL },
		{ "100.128.0.0", NULL },
		{ "126.255.255.255", NULL },
		{ "128.0.0.0", NULL },
		{ "169.253.255.255", NULL },
		{ "172.15.255.255", NULL },
		{ "172.32.0.0", NULL },
		{ "192.0.1.0", NULL },
		{ "192.0.3.0", NULL },
		{ "198.17.255.255", NULL },
		{ "198.20.0.0", NULL },
		{ "223.255.255.255", NULL },
		{ "::ffff:8.8.8.8", NULL },
		{ "64:ff9b::808:808", NULL },
		{ "2001:4860:4860::8888", NULL },
		{ "2001:200::1", NULL },
		{ "2002:808:808::1", NULL },
		{ "2606:4700::1111", NULL },
		{ "3ffe::1", NULL },
	};
	struct net_addr raw = { AF_INET6, { [10] = 0xff, 0xff, 8, 8, 8, 8 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct net_addr a = addr(cases[i].addr);
		const char *why = net_addr_refused(&a, NULL);

		if ((why == NULL) != (cases[i].why == NULL) || (why && strcmp(why, cases[i].why) != 0))
			fail_msg("%s: %s instead of %s", cases[i].addr, why ? why : "-",
				 cases[i].why ? cases[i].why : "-");
	}
	/* Not by net_addr_parse(): judged all the same. */
	assert_null(net_addr_refused(&raw, NULL));
	raw.bytes[12] = 10;
	assert_string_equal(net_addr_refused(&raw, NULL), "private");
	raw.family = AF_UNIX;
	assert_non_null(net_addr_refused(&raw, NULL));
}

static void test_opened(void **state)
{
	struct net_cidr opened[] = { cidr("10.0.0.0/8"), cidr("127.0.0.1"), cidr("169.254.0.0/16"),
				     cidr("fd00::/8"),	 cidr("::/0"),	    cidr("10.0.0.9") };
	struct net_addr own[] = { addr("10.0.0.8"), addr("10.0.0.9"), addr("9.9.9.9"), addr("2606::9") };
	struct net_reach reach = { .opened = opened, .nopened = ARRAY_LEN(opened), .own = own, .nown = ARRAY_LEN(own) };
	static const struct {
		const char *addr, *why;
	} cases[] = {
		{ "10.1.2.3", NULL },
		{ "192.168.0.1", "private" },
		/* Only by its very name. */
		{ "127.0.0.1", NULL },
		{ "127.0.0.2", "loopback" },
		{ "169.254.169.254", "link-local" },
		{ "fd00::1", NULL },
		{ "fd00:ec2::254", "cloud metadata" },
		{ "::1", "loopback" },
		{ "fe80::1", "link-local" },
		{ "ff02::1", "multicast" },
		{ "2001:db8::1", NULL },
		/* What it carries counts. */
		{ "64:ff9b::a00:1", NULL },
		{ "64:ff9b::c0a8:1", "translated" },
		/* The host's own. */
		{ "10.0.0.8", "the host's own" },
		{ "10.0.0.9", NULL },
		{ "9.9.9.9", "the host's own" },
		{ "::ffff:9.9.9.9", "the host's own" },
		{ "64:ff9b::909:909", "translated" },
		{ "2002:909:909::1", "translated" },
		{ "2606::9", "the host's own" },
		{ "2606::8", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct net_addr a = addr(cases[i].addr);
		const char *why = net_addr_refused(&a, &reach);

		if ((why == NULL) != (cases[i].why == NULL) || (why && strcmp(why, cases[i].why) != 0))
			fail_msg("%s: %s instead of %s", cases[i].addr, why ? why : "-",
				 cases[i].why ? cases[i].why : "-");
	}
}

static void test_cidr_refused(void **state)
{
	struct net_cidr opened[] = { cidr("10.0.0.0/8") };
	struct net_addr own[] = { addr("10.0.0.8"), addr("9.9.9.9") };
	struct net_reach reach = { .opened = opened, .nopened = ARRAY_LEN(opened), .own = own, .nown = ARRAY_LEN(own) };
	static const struct {
		const char *cidr;
		bool refused;
	} cases[] = {
		{ "0.0.0.0/0", true },
		{ "0.0.0.0/1", true },
		{ "128.0.0.0/2", true }, /* 169.254/16 */
		{ "8.0.0.0/8", false },
		{ "8.0.0.0/7", false },
		{ "10.0.0.0/8", false },
		{ "10.0.0.0/9", false },
		{ "10.0.0.0/7", false }, /* 11/8 is public */
		{ "172.0.0.0/8", true },
		{ "240.0.0.0/4", true },
		{ "255.255.255.255/32", true },
		{ "192.0.2.0/31", true },
		{ "9.9.9.9/32", true },	 /* own */
		{ "9.9.9.0/24", false }, /* own in it: refused when it is dialed */
		{ "::/0", true },
		{ "2000::/3", true },
		{ "2600::/8", false },
		{ "2001:db8::/48", true },
		{ "64:ff9b::/96", true },
		{ "64:ff9b::/64", true },
		{ "64:ff9b::800:0/104", false },
		{ "64:ff9b::a00:0/104", false }, /* opened inside */
		{ "64:ff9b::c0a8:0/112", true },
		{ "2002::/16", true },
		{ "2002:808::/32", false },
		{ "2002:808:808::/48", false },
		{ "2002:c0a8::/32", true },
		{ "fe80::/10", true },
		{ "fd00::/64", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct net_cidr c = cidr(cases[i].cidr);
		const char *why = net_cidr_refused(&c, &reach);

		if ((why != NULL) != cases[i].refused)
			fail_msg("%s: %s", cases[i].cidr, why ? why : "not refused");
	}
}

static void test_own(void **state)
{
	struct net_addr *list = NULL, lo = addr("127.0.0.1");
	struct err e = { 0 };
	bool found = false;
	size_t n = 0;

	(void)state;
	assert_int_equal(net_own_addresses(&list, &n, &e), 0);
	for (size_t i = 0; i < n; i++)
		found |= net_addr_equal(&list[i], &lo);
	free(list);
	assert_true(n == 0 || found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),	     cmocka_unit_test(test_sockaddr), cmocka_unit_test(test_cidr),
		cmocka_unit_test(test_cidr_within),  cmocka_unit_test(test_refused),  cmocka_unit_test(test_opened),
		cmocka_unit_test(test_cidr_refused), cmocka_unit_test(test_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
