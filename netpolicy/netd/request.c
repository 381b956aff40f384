/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's messages, read once into a struct. */
#include <stdlib.h>
#include <string.h>

#include "netpolicy/netd/netd_priv.h"

#define RESOLV_CONF_MAX (64u * 1024)
#define CIDR_MAX	64u
#define PORT_MAX	128u

static bool uuid_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}

static void parse_uuid(struct wire_rd *r, struct netd_request *q)
{
	wire_str(r, q->uuid, sizeof(q->uuid));
	for (const char *p = q->uuid; *p; p++)
		r->bad |= !uuid_char(*p);
	r->bad |= !*q->uuid && q->type != NETD_STAT;
}

static int parse_config(struct wire_rd *r, struct netd_request *q, struct err *e)
{
	size_t len;
	const char *text = wire_bytes(r, RESOLV_CONF_MAX, &len);
	uint32_t n = wire_u32(r);
	char *copy;

	if (r->bad || n > NETD_OPENED_MAX || (len > 0 && memchr(text, '\0', len)))
		return -EBADMSG;
	for (uint32_t i = 0; i < n; i++) {
		char cidr[CIDR_MAX];
		int code;

		wire_str(r, cidr, sizeof(cidr));
		if (r->bad)
			return -EBADMSG;
		code = net_cidr_parse(cidr, &q->opened[i], e);
		if (code < 0) {
			err_wrap(e, "range");
			return code;
		}
	}
	q->nopened = n;
	copy = strndup(len > 0 ? text : "", len);
	if (!copy)
		return err_set(e, -ENOMEM, "no memory");
	q->nup = resolver_parse_resolv_conf(copy, q->up, RESOLVER_UPSTREAMS_MAX);
	free(copy);
	return 0;
}

/* The ports are one list: that two are the same is seen by who reads lists. */
static int parse_ports(struct wire_rd *r, struct netd_request *q, size_t *ret_nfds, struct err *e)
{
	uint32_t n = wire_u32(r);
	size_t nfds = 0;
	struct buf list;
	int code = 0;

	if (r->bad || n > NET_PORTS_MAX)
		return -EBADMSG;
	buf_init(&list, NET_LIST_MAX);
	for (uint32_t i = 0; i < n && code == 0; i++) {
		char port[PORT_MAX];

		wire_str(r, port, sizeof(port));
		q->has_fd[i] = wire_u8(r) != 0;
		nfds += q->has_fd[i];
		r->bad |= strchr(port, '\n') != NULL; /* two in one */
		code = r->bad ? -EBADMSG : buf_addf(&list, "%s\n", port);
	}
	if (code == 0)
		code = net_ports_parse((const char *)list.data, list.len, q->ports, &q->nports, e);
	buf_fini(&list);
	if (code == 0 && q->nports != n) /* an empty one */
		code = -EBADMSG;
	*ret_nfds = nfds;
	return code;
}

static int parse(struct wire_rd *r, size_t have_fds, struct netd_request *q, struct err *e)
{
	size_t nfds = 0;
	int code = 0;

	switch ((enum netd_type)q->type) {
	case NETD_CONFIG:
		code = parse_config(r, q, e);
		break;
	case NETD_OPEN:
		parse_uuid(r, q);
		q->mask = wire_u8(r);
		if (wire_left(r) > 0)
			wire_str(r, q->origin, sizeof(q->origin));
		r->bad |= q->mask >= 1u << TOPOLOGY_FD_COUNT;
		nfds = (size_t)__builtin_popcount(q->mask);
		break;
	case NETD_ALLOW:
		parse_uuid(r, q);
		q->list = wire_bytes(r, MSG_MAX, &q->list_len);
		break;
	case NETD_PORTS:
		parse_uuid(r, q);
		code = parse_ports(r, q, &nfds, e);
		break;
	case NETD_SOCKETS:
		parse_uuid(r, q);
		nfds = have_fds;
		break;
	case NETD_CLOSE:
	case NETD_STAT:
		parse_uuid(r, q);
		break;
	case NETD_LIST:
	case NETD_QUIT:
		break;
	default:
		return err_set(e, -EBADMSG, "no such request: %u", q->type);
	}
	if (code == 0 && (wire_done(r) < 0 || nfds != have_fds))
		code = -EBADMSG;
	return code;
}

int netd_request_parse(const struct msg *m, struct netd_request *ret, struct err *e)
{
	struct wire_rd r;
	int code;

	*ret = (struct netd_request){ .type = m->type };
	*e = (struct err){ 0 };
	wire_rd_init(&r, m->data, m->len);
	code = parse(&r, m->nfds, ret, e);
	if (code < 0 && !*e->msg)
		err_set(e, code, code == -EBADMSG ? "a message of another shape" : "%s", err_name(code));
	return code;
}
