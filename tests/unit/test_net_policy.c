/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "netpolicy/policy.h"

static struct net_reach nothing;

static struct net_policy *parse(const char *text)
{
	struct err e = { 0 };
	struct net_policy *p = NULL;

	if (net_policy_parse(text, strlen(text), &nothing, &p, &e) < 0)
		fail_msg("%s", e.msg);
	return p;
}

static struct net_addr addr(const char *text)
{
	struct net_addr a;

	assert_int_equal(net_addr_parse(text, &a), 0);
	return a;
}

static void test_normal(void **state)
{
	static const struct {
		const char *rule, *normal;
	} cases[] = {
		{ "example.com", "example.com" },
		{ "EXAMPLE.com.", "example.com" },
		{ "Example.COM.:8443", "example.com:8443" },
		{ "*.Example.com", "*.example.com" },
		{ "*.a.example.com:1", "*.a.example.com:1" },
		{ "mirror", "mirror" },
		{ "_x.a-b.c0:65535", "_x.a-b.c0:65535" },
		{ "xn--bcher-kva.example", "xn--bcher-kva.example" },
		{ "1e100.net", "1e100.net" },
		{ "4chan.org", "4chan.org" },
		{ "0x7f.example", "0x7f.example" },
		{ "8.8.8.0/24", "8.8.8.0/24" },
		{ "8.8.8.8/32", "8.8.8.8" },
		{ "8.8.8.8:53", "8.8.8.8:53" },
		{ "8.8.8.0/24:443", "8.8.8.0/24:443" },
		{ "8.8.8.2/31", "8.8.8.2/31" },
		{ "2606::/32", "2606::/32" },
		{ "[2606::]/32:443", "[2606::]/32:443" },
		{ "[2606::]/32", "2606::/32" },
		{ "2606:0::1", "2606::1" },
		{ "[2606::1]:443", "[2606::1]:443" },
		{ "::ffff:8.8.8.8", "8.8.8.8" },
		{ "[::ffff:8.8.8.8]:1", "8.8.8.8:1" },
		{ "@pypi", "@pypi" },
	};
	struct err e = { 0 };
	char out[300], again[300];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *rule = cases[i].rule;

		if (net_rule_normal(rule, strlen(rule), &nothing, out, sizeof(out), &e) < 0)
			fail_msg("%s", e.msg);
		assert_string_equal(out, cases[i].normal);
		assert_int_equal(net_rule_normal(out, strlen(out), &nothing, again, sizeof(again), &e), 0);
		assert_string_equal(out, again);
	}
	assert_int_equal(net_rule_normal("example.com", 11, &nothing, out, 11, &e), -EINVAL);
	assert_int_equal(net_rule_normal("example.com", 11, &nothing, out, 12, &e), 0);
}

#define L63 "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg"

static void test_refused_rules(void **state)
{
	static const struct {
		const char *rule, *words;
	} cases[] = {
		{ "*", "no rule for everything" },
		{ "*:443", "no rule for everything" },
		{ "*.com", "two labels" },
		{ "*.com.", "two labels" },
		{ "a.*.com", "whole first label" },
		{ "*a.example.com", "whole first label" },
		{ "*.*.example.com", "whole first label" },
		{ "**.example.com", "whole first label" },
		{ "example.*", "whole first label" },
		{ "*.", "empty name" },
		{ ".", "empty name" },
		{ ":443", "empty name" },
		{ ".example.com", "empty label" },
		{ "a..b", "empty label" },
		{ "example.com..", "empty label" },
		{ L63 "x.example", "63" },
		{ L63 "." L63 "." L63 "." L63, "253" },
		{ "-a.example", "'-'" },
		{ "a-.example", "'-'" },
		{ "exa mple.com", "letters, digits" },
		{ "b\xc3\xbc"
		  "cher.example",
		  "xn--" },
		{ "user@example.com", "letters, digits" },
		{ "http://example.com", "scheme" },
		{ "example.com/path", "without a path" },
		{ "example.com/24", "without a path" },
		{ "1.2.3", "looks like an address" },
		{ "0x7f.1", "looks like an address" },
		{ "0x7f000001", "looks like an address" },
		{ "2130706433", "looks like an address" },
		{ "1.2.3.4.", "looks like an address" },
		{ "1.2.3.4.5", "looks like an address" },
		{ "example.1", "looks like an address" },
		{ "*.2.3", "looks like an address" },
		{ "example.com:0", "1 to 65535" },
		{ "example.com:65536", "1 to 65535" },
		{ "example.com:", "1 to 65535" },
		{ "example.com:http", "1 to 65535" },
		{ "example.com:-1", "1 to 65535" },
		{ "example.com:080", "1 to 65535" },
		{ "example.com:443-445", "1 to 65535" },
		{ "8.8.8.8:0", "1 to 65535" },
		{ "[2606::1]:99999", "1 to 65535" },
		{ "[2606::1", "] is missing" },
		{ "[2606::1]x", "behind the ]" },
		{ "8.8.8.1/24", "host bits" },
		{ "8.8.8.0/33", "too long" },
		{ "10.0.0.0/8", "(private)" },
		{ "127.0.0.1", "(loopback)" },
		{ "169.254.169.254:80", "(link-local)" },
		{ "0.0.0.0/0", "no sandbox may reach" },
		{ "::/0", "no sandbox may reach" },
		{ "::1", "(loopback)" },
		{ "fe80::/10", "(link-local)" },
		{ "::ffff:10.0.0.1", "(private)" },
		{ "64:ff9b::a00:1", "(translated)" },
		{ "240.0.0.0/4", "no sandbox may reach" },
		{ "@pip", "no such preset" },
		{ "@", "no such preset" },
		{ "@pypi:443", "no such preset" },
		{ "localhost", "guest itself" },
		{ "a.localhost:80", "guest itself" },
	};
	char long_rule[400], out[300];
	struct net_policy *p = NULL;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *rule = cases[i].rule;

		e = (struct err){ 0 };
		if (net_policy_parse(rule, strlen(rule), &nothing, &p, &e) != -EINVAL || !strstr(e.msg, cases[i].words))
			fail_msg("%s: %s", rule, e.msg);
		assert_int_equal(net_rule_normal(rule, strlen(rule), &nothing, out, sizeof(out), &e), -EINVAL);
	}
	memset(long_rule, 'a', sizeof(long_rule));
	assert_int_equal(net_policy_parse(long_rule, sizeof(long_rule), &nothing, &p, &e), -EINVAL);
	assert_int_equal(net_policy_parse("a.example\0b", 11, &nothing, &p, &e), -EINVAL);
	assert_int_equal(net_rule_normal("", 0, &nothing, out, sizeof(out), &e), -EINVAL);
	assert_null(p);
}

static void test_opened_ranges(void **state)
{
	struct net_cidr opened;
	struct net_reach reach = { .opened = &opened, .nopened = 1 };
	struct net_addr a = addr("10.1.2.3");
	struct net_policy *p = NULL;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(net_cidr_parse("10.1.0.0/16", &opened, &e), 0);
	assert_int_equal(net_policy_parse("10.1.2.0/24:80", 14, &reach, &p, &e), 0);
	assert_true(net_policy_allows_addr(p, &a, 80));
	assert_false(net_policy_allows_addr(p, &a, 81));
	p = net_policy_unref(p);
	assert_int_equal(net_policy_parse("10.0.0.0/8", 10, &reach, &p, &e), -EINVAL);
}

static void test_list(void **state)
{
	static const char text[] =
		"# what it needs\n\n \t a.example \r\nA.EXAMPLE.\na.example:443\n  #b.example\n*.c.example\n"
		"@npm\n8.8.8.0/24\n@npm\n8.8.8.0/24\n8.8.8.0/25";
	struct net_policy *p = parse(text), *q = net_policy_ref(p);
	struct buf b;

	(void)state;
	buf_init(&b, NET_LIST_MAX);
	net_policy_unref(p);
	assert_int_equal(net_policy_text(q, &b), 0);
	assert_string_equal(buf_str(&b), "a.example\na.example:443\n*.c.example\n@npm\n8.8.8.0/24\n8.8.8.0/25\n");
	assert_false(net_policy_empty(q));
	buf_fini(&b);
	buf_init(&b, 5);
	assert_int_equal(net_policy_text(q, &b), -EFBIG);
	buf_fini(&b);
	assert_null(net_policy_unref(q));
	assert_null(net_policy_unref(NULL));
	assert_null(net_policy_ref(NULL));
}

static void test_empty(void **state)
{
	static const char *const texts[] = { "", "\n", "  \n#a\n\t", "# a.example" };
	struct net_addr a = addr("8.8.8.8");

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct net_policy *p = parse(texts[i]);

		assert_true(net_policy_empty(p));
		assert_false(net_policy_resolves(p, "a.example"));
		assert_false(net_policy_resolves(p, ""));
		assert_false(net_policy_allows_name(p, "a.example", 443));
		assert_false(net_policy_allows_addr(p, &a, 443));
		net_policy_unref(p);
	}
}

static void test_bounds(void **state)
{
	struct net_policy *p = NULL;
	struct err e = { 0 };
	struct buf b;

	(void)state;
	buf_init(&b, 1 << 20);
	for (unsigned i = 0; i < NET_RULES_MAX; i++)
		assert_int_equal(buf_addf(&b, "h%u.example\n", i), 0);
	for (unsigned i = 0; i < 100; i++) /* said already */
		assert_int_equal(buf_addf(&b, "h%u.example.\n", i), 0);
	assert_int_equal(net_policy_parse((char *)b.data, b.len, &nothing, &p, &e), 0);
	assert_true(net_policy_resolves(p, "h255.example"));
	p = net_policy_unref(p);
	assert_int_equal(buf_adds(&b, "one.more.example\n"), 0);
	assert_int_equal(net_policy_parse((char *)b.data, b.len, &nothing, &p, &e), -E2BIG);
	assert_non_null(strstr(e.msg, "256"));
	buf_reset(&b);
	while (b.len <= NET_LIST_MAX)
		assert_int_equal(buf_adds(&b, "# nothing but words\n"), 0);
	assert_int_equal(net_policy_parse((char *)b.data, b.len, &nothing, &p, &e), -E2BIG);
	assert_int_equal(net_policy_parse((char *)b.data, NET_LIST_MAX, &nothing, &p, &e), 0);
	net_policy_unref(p);
	buf_fini(&b);
}

static void test_names(void **state)
{
	struct net_policy *p = parse("example.com\nalt.example:8443\n*.wild.example\n*.deep.example:443\n@pypi\n");

	(void)state;
	assert_true(net_policy_resolves(p, "EXAMPLE.com."));
	assert_true(net_policy_allows_name(p, "EXAMPLE.com.", 1));
	assert_false(net_policy_resolves(p, "www.example.com"));
	assert_false(net_policy_resolves(p, "xexample.com"));
	assert_false(net_policy_resolves(p, "example.com.evil.example"));
	assert_false(net_policy_resolves(p, "com"));
	assert_true(net_policy_resolves(p, "alt.example")); /* for its port */
	assert_true(net_policy_allows_name(p, "alt.example", 8443));
	assert_false(net_policy_allows_name(p, "alt.example", 443));
	assert_true(net_policy_resolves(p, "a.wild.example"));
	assert_true(net_policy_resolves(p, "a.b.c.Wild.example"));
	assert_false(net_policy_resolves(p, "wild.example"));
	assert_false(net_policy_resolves(p, "awild.example"));
	assert_false(net_policy_resolves(p, ".wild.example"));
	assert_false(net_policy_resolves(p, "*.wild.example"));
	assert_true(net_policy_allows_name(p, "x.deep.example", 443));
	assert_false(net_policy_allows_name(p, "x.deep.example", 80));
	assert_true(net_policy_allows_name(p, "pypi.org", 443));
	assert_true(net_policy_allows_name(p, "files.pythonhosted.org", 443));
	assert_false(net_policy_allows_name(p, "registry.npmjs.org", 443));
	net_policy_unref(p);
	p = parse("@npm\n@debian");
	assert_true(net_policy_resolves(p, "registry.npmjs.org"));
	assert_true(net_policy_resolves(p, "deb.debian.org"));
	assert_true(net_policy_resolves(p, "security.debian.org"));
	assert_false(net_policy_resolves(p, "pypi.org"));
	net_policy_unref(p);
}

static void test_addresses(void **state)
{
	struct net_policy *p = parse("8.8.8.0/24:53\n9.9.9.9\n2606::/32\nexample.com");
	struct net_addr in = addr("8.8.8.255"), out = addr("8.8.9.0"), one = addr("9.9.9.9"), v6 = addr("2606::5");

	(void)state;
	assert_true(net_policy_allows_addr(p, &in, 53));
	assert_false(net_policy_allows_addr(p, &in, 54));
	assert_false(net_policy_allows_addr(p, &out, 53));
	assert_true(net_policy_allows_addr(p, &one, 65535));
	assert_true(net_policy_allows_addr(p, &v6, 1));
	net_policy_unref(p);
}

static void test_within(void **state)
{
	static const struct {
		const char *most, *p, *first; /* NULL: within */
	} cases[] = {
		{ "", "", NULL },
		{ "a.example", "", NULL },
		{ "", "a.example", "a.example" },
		{ "a.example", "A.example.\na.example:443", NULL },
		{ "a.example:443", "a.example:443", NULL },
		{ "a.example:443", "a.example", "a.example" },
		{ "a.example:443", "a.example:80", "a.example:80" },
		{ "*.a.example", "b.a.example\n*.a.example\n*.b.a.example\n*.a.example:1", NULL },
		{ "*.a.example", "a.example", "a.example" },
		{ "*.b.a.example", "*.a.example", "*.a.example" },
		{ "b.a.example", "*.a.example", "*.a.example" },
		{ "@pypi", "pypi.org:443\nfiles.pythonhosted.org\n@pypi", NULL },
		{ "pypi.org\n*.pythonhosted.org", "@pypi", NULL },
		{ "pypi.org", "pypi.org\n@pypi", "@pypi" },
		{ "8.8.0.0/16", "8.8.8.0/24\n8.8.8.8:1\n8.8.0.0/16:5", NULL },
		{ "8.8.8.0/24:5", "8.8.8.8:5\n8.8.8.8", "8.8.8.8:" },
		{ "8.8.0.0/16", "8.0.0.0/8", "8.0.0.0/8" },
		{ "2606::/32", "[2606::1]:443", NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct net_policy *most = parse(cases[i].most), *p = parse(cases[i].p);
		struct err e = { 0 };
		bool within = net_policy_within(p, most, &e);

		if (within != !cases[i].first || (!within && !strstr(e.msg, cases[i].first)))
			fail_msg("%zu: %s", i, e.msg);
		net_policy_unref(most);
		net_policy_unref(p);
	}
}

static void test_both(void **state)
{
	static const struct {
		const char *a, *b, *both;
	} cases[] = {
		{ "", "a.example", "" },
		{ "a.example\nb.example", "b.example\nc.example", "b.example\n" },
		{ "*.a.example", "b.a.example:1\na.example\n*.c.a.example", "b.a.example:1\n*.c.a.example\n" },
		{ "*.a.example:443", "b.a.example", "b.a.example:443\n" },
		{ "a.example:443", "a.example:444", "" },
		{ "@pypi\n@npm", "pypi.org\n*.yarnpkg.com:443\n@npm", "@npm\npypi.org\n" },
		{ "@debian", "*.debian.org:80", "deb.debian.org:80\nsecurity.debian.org:80\nftp.debian.org:80\n" },
		{ "8.8.0.0/16:53", "8.8.8.0/24\n8.0.0.0/8:80\na.example\n2606::/32", "8.8.8.0/24:53\n" },
		{ "8.8.8.8", "8.8.8.8", "8.8.8.8\n" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct net_policy *a = parse(cases[i].a), *b = parse(cases[i].b), *both = NULL, *again = NULL;
		struct buf text;

		buf_init(&text, NET_LIST_MAX);
		assert_int_equal(net_policy_both(a, b, &both), 0);
		assert_int_equal(net_policy_text(both, &text), 0);
		assert_string_equal(buf_str(&text), cases[i].both);
		assert_true(net_policy_within(both, a, NULL));
		assert_true(net_policy_within(both, b, NULL));
		assert_int_equal(net_policy_both(b, a, &again), 0);
		assert_true(net_policy_within(both, again, NULL) && net_policy_within(again, both, NULL));
		buf_fini(&text);
		net_policy_unref(again);
		net_policy_unref(both);
		net_policy_unref(a);
		net_policy_unref(b);
	}
}

/* The product of two lists may be longer than a list. */
static void test_both_is_bounded(void **state)
{
	struct net_policy *a, *b, *both = NULL;
	struct buf names, ports;
	const char *text;
	size_t n = 0;

	(void)state;
	buf_init(&names, NET_LIST_MAX);
	buf_init(&ports, NET_LIST_MAX);
	for (unsigned i = 0; i < NET_RULES_MAX; i++) {
		assert_int_equal(buf_addf(&names, "h%u.a.example\n", i), 0);
		assert_int_equal(buf_addf(&ports, "*.a.example:%u\n", i + 1), 0);
	}
	a = parse(buf_str(&names));
	b = parse(buf_str(&ports));
	assert_int_equal(net_policy_both(a, b, &both), 0);
	buf_reset(&names);
	assert_int_equal(net_policy_text(both, &names), 0);
	for (text = buf_str(&names); (text = strchr(text, '\n')); text++)
		n++;
	assert_int_equal(n, NET_RULES_MAX);
	assert_true(net_policy_within(both, a, NULL) && net_policy_within(both, b, NULL));
	buf_fini(&names);
	buf_fini(&ports);
	net_policy_unref(both);
	net_policy_unref(a);
	net_policy_unref(b);
}

/* -- ports ------------------------------------------------------------------------------------------------------- */

static void test_ports(void **state)
{
	static const char text[] =
		"8080:80\n# web\n\n0.0.0.0:8080:80/tcp\n[::1]:1:65535\n[::]:1:1\n 10.0.0.1:65535:22 ";
	static const char *const texts[] = { "127.0.0.1:8080:80/tcp", "0.0.0.0:8080:80/tcp", "[::1]:1:65535/tcp",
					     "[::]:1:1/tcp", "10.0.0.1:65535:22/tcp" };
	struct net_port ports[NET_PORTS_MAX];
	struct err e = { 0 };
	char out[100];
	size_t n = 0;

	(void)state;
	assert_int_equal(net_ports_parse(text, strlen(text), ports, &n, &e), 0);
	assert_int_equal(n, ARRAY_LEN(texts));
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(net_port_text(&ports[i], out, sizeof(out)), 0);
		assert_string_equal(out, texts[i]);
		assert_int_equal(net_port_text(&ports[i], out, strlen(texts[i])), -ENOSPC);
	}
	assert_int_equal(net_ports_parse("", 0, ports, &n, &e), 0);
	assert_int_equal(n, 0);
}

static void test_ports_refused(void **state)
{
	static const struct {
		const char *text;
		int code;
		const char *words;
	} cases[] = {
		{ "8080", -EINVAL, "HOST:GUEST" },
		{ ":80", -EINVAL, "HOST:GUEST" },
		{ "8080:", -EINVAL, "guest's port" },
		{ "0:80", -EINVAL, "host's port" },
		{ "8080:0", -EINVAL, "guest's port" },
		{ "65536:80", -EINVAL, "host's port" },
		{ "8080:65536", -EINVAL, "guest's port" },
		{ "8080:80/udp", -EINVAL, "no UDP" },
		{ "8080:80/sctp", -EINVAL, "/tcp or nothing" },
		{ "localhost:8080:80", -EINVAL, "not a name" },
		{ "::1:8080:80", -EINVAL, "between [ and ]" },
		{ "[::1]8080:80", -EINVAL, "behind an IPv6 address" },
		{ "[::1:8080:80", -EINVAL, "behind an IPv6 address" },
		{ "[x]:8080:80", -EINVAL, "no IPv6 address" },
		{ "1.2.3:8080:80", -EINVAL, "not a name" },
		{ "80-90:80", -EINVAL, "host's port" },
		{ "+8080:80", -EINVAL, ">> adds" },
		{ "-8080:80", -EINVAL, ">> adds" },
		{ "8080:80\n127.0.0.1:8080:81", -EEXIST, "there already" },
	};
	struct net_port ports[NET_PORTS_MAX];
	struct err e;
	struct buf b;
	size_t n = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		e = (struct err){ 0 };
		if (net_ports_parse(cases[i].text, strlen(cases[i].text), ports, &n, &e) != cases[i].code ||
		    !strstr(e.msg, cases[i].words))
			fail_msg("%s: %s", cases[i].text, e.msg);
	}
	assert_int_equal(net_ports_parse("80:\0"
					 "80",
					 6, ports, &n, &e),
			 -EINVAL);
	buf_init(&b, 1 << 20);
	for (unsigned i = 1; i <= NET_PORTS_MAX; i++)
		assert_int_equal(buf_addf(&b, "%u:80\n", i), 0);
	assert_int_equal(n, 7);
	assert_int_equal(net_ports_parse((char *)b.data, b.len, ports, &n, &e), 0);
	assert_int_equal(n, NET_PORTS_MAX);
	assert_int_equal(buf_adds(&b, "1000:80\n"), 0);
	assert_int_equal(net_ports_parse((char *)b.data, b.len, ports, &n, &e), -E2BIG);
	while (b.len <= NET_LIST_MAX)
		assert_int_equal(buf_adds(&b, "#\n"), 0);
	assert_int_equal(net_ports_parse((char *)b.data, b.len, ports, &n, &e), -E2BIG);
	buf_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_normal),		cmocka_unit_test(test_refused_rules),
		cmocka_unit_test(test_opened_ranges),	cmocka_unit_test(test_list),
		cmocka_unit_test(test_empty),		cmocka_unit_test(test_bounds),
		cmocka_unit_test(test_names),		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_within),		cmocka_unit_test(test_both),
		cmocka_unit_test(test_both_is_bounded), cmocka_unit_test(test_ports),
		cmocka_unit_test(test_ports_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
