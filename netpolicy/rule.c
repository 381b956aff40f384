/* SPDX-License-Identifier: Apache-2.0 */
/* One rule of net/allow: its parts, its one form, what it covers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "netpolicy/policy_priv.h"

#define SHOWN 80 /* of a rule in words */

/* What those tools ask for with their defaults. */
static const struct {
	const char *name;
	const char *hosts[NET_PRESET_MAX + 1];
} presets[] = {
	{ "@pypi", { "pypi.org", "files.pythonhosted.org" } },
	{ "@npm", { "registry.npmjs.org", "registry.yarnpkg.com" } },
	{ "@debian", { "deb.debian.org", "security.debian.org", "ftp.debian.org" } },
};

const char *const *net_preset(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(presets); i++)
		if (strcmp(presets[i].name, name) == 0)
			return presets[i].hosts;
	return NULL;
}

/* -- names ------------------------------------------------------------------------------------------------------ */

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool hex(char c)
{
	return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Is the last label a number? inet_aton() would take such a name for an address: "1.2.3", "0x7f.1". */
static bool ends_in_number(const char *name, size_t len)
{
	size_t at = len;
	bool is_hex;

	while (at > 0 && name[at - 1] != '.')
		at--;
	is_hex = len - at >= 2 && name[at] == '0' && (name[at + 1] == 'x' || name[at + 1] == 'X');
	if (is_hex)
		at += 2;
	else if (at == len)
		return false;
	while (at < len && (is_hex ? hex(name[at]) : digit(name[at])))
		at++;
	return at == len;
}

/* Why it is no name, or NULL and its normal form in @out. */
static const char *name_trouble(const char *name, size_t len, char *out)
{
	size_t label = 0;

	if (len > 0 && name[len - 1] == '.')
		len--;
	if (len == 0)
		return "an empty name";
	if (len > NET_NAME_MAX)
		return "a name has at most 253 characters";
	for (size_t i = 0; i <= len; i++) {
		char c = i < len ? name[i] : '.';

		if (c == '.') {
			if (i == label)
				return "an empty label";
			if (i - label > 63)
				return "a label has at most 63 characters";
			if (name[label] == '-' || name[i - 1] == '-')
				return "no label begins or ends with '-'";
			label = i + 1;
		} else if (c & 0x80) {
			return "a name has ASCII letters only: write its xn-- form";
		} else if (!digit(c) && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '-' && c != '_') {
			return "a name has letters, digits, '-', '_' and dots";
		}
	}
	if (ends_in_number(name, len))
		return "it looks like an address, but is none: a.b.c.d or a.b.c.d/BITS";
	for (size_t i = 0; i < len; i++)
		out[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + ('a' - 'A')) : name[i];
	out[len] = '\0';
	return NULL;
}

bool net_name_normal(const char *name, size_t len, char *out)
{
	return !name_trouble(name, len, out);
}

static bool is_below(const char *name, const char *domain)
{
	size_t n = strlen(name), d = strlen(domain);

	return n > d + 1 && name[n - d - 1] == '.' && memcmp(name + n - d, domain, d) == 0;
}

bool net_rule_covers_name(const struct net_rule *r, const char *normal)
{
	const char *const *hosts;

	switch (r->kind) {
	case NET_RULE_NAME:
		return strcmp(r->name, normal) == 0;
	case NET_RULE_BELOW:
		return is_below(normal, r->name);
	case NET_RULE_PRESET:
		for (hosts = net_preset(r->name); hosts && *hosts; hosts++)
			if (strcmp(*hosts, normal) == 0)
				return true;
		return false;
	case NET_RULE_CIDR:
		break;
	}
	return false;
}

/* -- text to rule ----------------------------------------------------------------------------------------------- */

int net_port_number(const char *text, size_t len, uint16_t *ret)
{
	unsigned long v = 0;

	if (len == 0 || len > 5 || text[0] == '0')
		return -EINVAL;
	for (size_t i = 0; i < len; i++) {
		if (!digit(text[i]))
			return -EINVAL;
		v = v * 10 + (unsigned long)(text[i] - '0');
	}
	if (v > 65535)
		return -EINVAL;
	*ret = (uint16_t)v;
	return 0;
}

/* Cut the port off: @host is what is left. "[2606::]/32:443" becomes "2606::/32", "2606::/32" has no port. */
static const char *split_port(char *host, bool *ret_v6, uint16_t *ret_port)
{
	char *bracket = host[0] == '[' ? strchr(host, ']') : NULL, *colon;

	if (host[0] == '[' && !bracket)
		return "the ] is missing";
	colon = strrchr(bracket ? bracket : host, ':');
	*ret_v6 = bracket || (colon && strchr(host, ':') != colon);
	if (colon && (bracket || !*ret_v6)) {
		if (net_port_number(colon + 1, strlen(colon + 1), ret_port) < 0)
			return "a port is a number from 1 to 65535";
		*colon = '\0';
	}
	if (bracket) {
		if (bracket[1] && bracket[1] != '/')
			return "behind the ] come /BITS and :PORT";
		memmove(bracket, bracket + 1, strlen(bracket));
		memmove(host, host + 1, strlen(host));
	}
	return NULL;
}

static const char *parse_name(const char *host, struct net_rule *ret)
{
	const char *why;

	if (strcmp(host, "*") == 0)
		return "there is no rule for everything: name the hosts that are needed";
	ret->kind = NET_RULE_NAME;
	if (host[0] == '*' && host[1] == '.') {
		ret->kind = NET_RULE_BELOW;
		host += 2;
	}
	if (strchr(host, '*'))
		return "a star stands for the whole first label only: *.example.com";
	why = name_trouble(host, strlen(host), ret->name);
	if (why)
		return why;
	if (ret->kind == NET_RULE_BELOW && !strchr(ret->name, '.'))
		return "a star needs two labels behind it at least: *.example.com";
	if (strcmp(ret->name, "localhost") == 0 || is_below(ret->name, "localhost"))
		return "localhost is the guest itself";
	return NULL;
}

static int parse_cidr(const char *host, const struct net_reach *reach, struct net_rule *ret, struct err *e)
{
	const char *why;

	ret->kind = NET_RULE_CIDR;
	if (net_cidr_parse(host, &ret->cidr, e) < 0)
		return err_wrap(e, "rule");
	why = net_cidr_refused(&ret->cidr, reach);
	if (why)
		return err_set(e, -EINVAL,
			       "rule %.*s: it holds addresses that no sandbox may reach (%s); root can open "
			       "ranges: net_private of crucible.conf(5)",
			       SHOWN, host, why);
	return 0;
}

int net_rule_parse(const char *text, size_t len, const struct net_reach *reach, struct net_rule *ret, struct err *e)
{
	char host[NET_RULE_TEXT + 16];
	int shown = (int)(len < SHOWN ? len : SHOWN); /* @text has no end of its own */
	const char *why = NULL, *slash;
	bool v6 = false;

	*ret = (struct net_rule){ 0 };
	if (len == 0 || len >= sizeof(host) || memchr(text, '\0', len))
		return err_set(e, -EINVAL, "rule %.*s: %s", shown, text,
			       len == 0 ? "empty" : "too long, or not a text");
	memcpy(host, text, len);
	host[len] = '\0';
	if (host[0] == '@') {
		if (len >= sizeof(ret->name) || !net_preset(host))
			return err_set(e, -EINVAL, "rule %.*s: no such preset; there are @pypi, @npm, @debian", SHOWN,
				       host);
		ret->kind = NET_RULE_PRESET;
		memcpy(ret->name, host, len + 1);
		return 0;
	}
	if (strstr(host, "://"))
		why = "only the name of the host, without scheme and path";
	if (!why)
		why = split_port(host, &v6, &ret->port);
	slash = strchr(host, '/');
	if (!why && (v6 || ends_in_number(host, slash ? (size_t)(slash - host) : strlen(host)))) {
		struct net_addr a;

		/* "1.2.3" is no address, and no name either: its words come from below. */
		if (v6 || slash || net_addr_parse(host, &a) == 0)
			return parse_cidr(host, reach, ret, e);
	}
	if (!why && slash)
		why = "only the name of the host, without a path";
	if (!why)
		why = parse_name(host, ret);
	if (why)
		return err_set(e, -EINVAL, "rule %.*s: %s", shown, text, why);
	return 0;
}

void net_rule_text(const struct net_rule *r, char out[NET_RULE_TEXT])
{
	bool v6 = r->cidr.addr.family == AF_INET6, single = r->cidr.bits == (v6 ? 128 : 32);
	char addr[NET_ADDR_TEXT], bits[8] = "", port[8] = "";

	if (r->port)
		snprintf(port, sizeof(port), ":%u", r->port);
	if (r->kind == NET_RULE_CIDR) {
		if (!single)
			snprintf(bits, sizeof(bits), "/%u", r->cidr.bits);
		net_addr_text(&r->cidr.addr, addr);
		v6 = v6 && r->port;
		snprintf(out, NET_RULE_TEXT, "%s%s%s%s%s", v6 ? "[" : "", addr, v6 ? "]" : "", bits, port);
	} else {
		snprintf(out, NET_RULE_TEXT, "%s%s%s", r->kind == NET_RULE_BELOW ? "*." : "", r->name, port);
	}
}

int net_rule_normal(const char *rule, size_t len, const struct net_reach *reach, char *out, size_t cap, struct err *e)
{
	char text[NET_RULE_TEXT];
	struct net_rule r;
	int code = net_rule_parse(rule, len, reach, &r, e);

	if (code < 0)
		return code;
	net_rule_text(&r, text);
	if (strlen(text) >= cap)
		return err_set(e, -EINVAL, "rule %.*s: too long", SHOWN, text);
	memcpy(out, text, strlen(text) + 1);
	return 0;
}
