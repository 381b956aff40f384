/* SPDX-License-Identifier: Apache-2.0 */
/* net/ports: what is listened on at the host, and where it leads to in the guest. */
#include <stdio.h>
#include <string.h>

#include "netpolicy/policy_priv.h"

#define SHOWN 80

/* "[HOST_IP:]HOST" */
static const char *parse_host(char *text, struct net_port *ret)
{
	char *port = text, *end;

	*ret = (struct net_port){ .host = { AF_INET, { 127, 0, 0, 1 } } };
	if (text[0] == '[') {
		end = strchr(text, ']');
		if (!end || end[1] != ':')
			return "behind an IPv6 address come ] and :HOST:GUEST";
		*end = '\0';
		if (net_addr_parse(text + 1, &ret->host) < 0)
			return "no IPv6 address stands between [ and ]";
		port = end + 2;
	} else if ((end = strrchr(text, ':'))) {
		*end = '\0';
		if (strchr(text, ':'))
			return "an IPv6 address stands between [ and ]";
		if (net_addr_parse(text, &ret->host) < 0)
			return "the host's address is a number, not a name: [HOST_IP:]HOST:GUEST";
		port = end + 1;
	}
	if (net_port_number(port, strlen(port), &ret->host_port) < 0)
		return "the host's port is a number from 1 to 65535";
	return NULL;
}

static const char *parse_port(char *text, struct net_port *ret)
{
	char *slash = strchr(text, '/'), *guest;
	const char *why;

	if (*text == '+' || *text == '-')
		return "lines with + and - are for net/allow; here > replaces the list, and >> adds to it";
	if (slash) {
		if (strcmp(slash, "/udp") == 0)
			return "there is no UDP into a sandbox, only TCP";
		if (strcmp(slash, "/tcp") != 0)
			return "behind the ports comes /tcp or nothing";
		*slash = '\0';
	}
	guest = strrchr(text, ':');
	if (!guest || guest == text)
		return "write [HOST_IP:]HOST:GUEST";
	*guest++ = '\0';
	why = parse_host(text, ret);
	if (!why && net_port_number(guest, strlen(guest), &ret->guest_port) < 0)
		why = "the guest's port is a number from 1 to 65535";
	return why;
}

int net_ports_parse(const char *text, size_t len, struct net_port out[NET_PORTS_MAX], size_t *ret_n, struct err *e)
{
	const char *line;
	size_t n = 0, line_len;

	if (len > NET_LIST_MAX)
		return err_set(e, -E2BIG, "the list has %zu bytes, at most %u are taken", len, NET_LIST_MAX);
	while (net_next_line(&text, &len, &line, &line_len)) {
		int shown = (int)(line_len < SHOWN ? line_len : SHOWN);
		char copy[NET_ADDR_TEXT + 32];
		struct net_port p;
		const char *why = "too long, or not a text";

		if (line_len < sizeof(copy) && !memchr(line, '\0', line_len)) {
			memcpy(copy, line, line_len);
			copy[line_len] = '\0';
			why = parse_port(copy, &p);
		}
		if (why)
			return err_set(e, -EINVAL, "port %.*s: %s", shown, line, why);
		for (size_t i = 0; i < n; i++)
			if (net_port_same_place(&out[i], &p))
				return err_set(e, -EEXIST, "port %.*s: port %u of that address is there already", shown,
					       line, p.host_port);
		if (n == NET_PORTS_MAX)
			return err_set(e, -E2BIG, "more than %u ports", NET_PORTS_MAX);
		out[n++] = p;
	}
	*ret_n = n;
	return 0;
}

bool net_port_same_place(const struct net_port *a, const struct net_port *b)
{
	return a->host_port == b->host_port && net_addr_equal(&a->host, &b->host);
}

int net_port_text(const struct net_port *p, char *out, size_t cap)
{
	bool v6 = p->host.family == AF_INET6;
	char addr[NET_ADDR_TEXT];
	int n = snprintf(out, cap, "%s%s%s:%u:%u/tcp", v6 ? "[" : "", net_addr_text(&p->host, addr), v6 ? "]" : "",
			 p->host_port, p->guest_port);

	return n < 0 || (size_t)n >= cap ? -ENOSPC : 0;
}
