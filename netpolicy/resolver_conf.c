/* SPDX-License-Identifier: Apache-2.0 */
#include "netpolicy/resolver.h"

#include <stdlib.h>
#include <string.h>

#define KEYWORD	  "nameserver"
#define BLANKS	  " \t\r"
#define PORT_DNS  53u
#define VALUE_MAX (NET_ADDR_TEXT + 6) /* with "#65535" */

static int parse_server(char *value, struct resolver_upstream *ret)
{
	char *hash = strchr(value, '#'), *end;
	unsigned long port = PORT_DNS;

	if (hash) {
		*hash++ = '\0';
		port = strtoul(hash, &end, 10);
		if (hash[0] < '0' || hash[0] > '9' || *end || port == 0 || port > UINT16_MAX)
			return -EINVAL;
	}
	ret->port = (uint16_t)port;
	return net_addr_parse(value, &ret->addr);
}

size_t resolver_parse_resolv_conf(const char *text, struct resolver_upstream *out, size_t cap)
{
	size_t n = 0;

	while (*text && n < cap) {
		size_t line = strcspn(text, "\n"), key = strlen(KEYWORD), len;
		const char *at = text + key;
		char value[VALUE_MAX];
		struct resolver_upstream u = { 0 };

		if (line > key && strncmp(text, KEYWORD, key) == 0 && strchr(BLANKS, *at)) {
			at += strspn(at, BLANKS);
			len = strcspn(at, BLANKS "\n");
			if (len > 0 && len < sizeof(value)) {
				memcpy(value, at, len);
				value[len] = '\0';
				if (parse_server(value, &u) == 0)
					out[n++] = u;
			}
		}
		text += line + (text[line] == '\n');
	}
	return n;
}
