/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel lists its TCP sockets (sock_diag) and destroys those that we name: as `ss --kill` does. They are listed to
 * the end first: destroying changes the list. That takes a machine that has just been restored under emulation ten
 * milliseconds, so a family that has no sockets at all, listening ones among them, is not listed: its counter tells. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <netinet/tcp.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/net.h"
#include "base/fd.h"

#define CONNECTIONS_MAX 65536u
#define STATES                                                                                           \
	((1u << TCP_ESTABLISHED) | (1u << TCP_SYN_SENT) | (1u << TCP_SYN_RECV) | (1u << TCP_FIN_WAIT1) | \
	 (1u << TCP_FIN_WAIT2) | (1u << TCP_CLOSE_WAIT) | (1u << TCP_LAST_ACK) | (1u << TCP_CLOSING))

struct found {
	struct inet_diag_sockid *ids;
	size_t n, cap;
	int code; /* 0 or one of libnl's: not all were found */
};

static bool is_loopback(int family, const __be32 src[4])
{
	static const uint8_t one[16] = { [15] = 1 };
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *p = (const uint8_t *)src;

	if (family == AF_INET)
		return p[0] == 127;
	return memcmp(p, one, 16) == 0 || (memcmp(p, mapped, 12) == 0 && p[12] == 127);
}

/* Both its ends are in this guest: over loopback, or by the card's own address. */
static bool is_own(int family, const struct inet_diag_sockid *id)
{
	return is_loopback(family, id->idiag_src) ||
	       memcmp(id->idiag_src, id->idiag_dst, family == AF_INET ? 4 : 16) == 0;
}

static int on_socket(struct nl_msg *msg, void *arg)
{
	const struct nlmsghdr *h = nlmsg_hdr(msg);
	const struct inet_diag_msg *d = nlmsg_data(h);
	struct found *f = arg;

	if (nlmsg_datalen(h) < (int)sizeof(*d) || is_own(d->idiag_family, &d->id))
		return NL_OK;
	if (f->n == CONNECTIONS_MAX) {
		f->code = -NLE_RANGE;
		return NL_OK; /* what follows must be read all the same */
	}
	if (f->n == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 64;
		struct inet_diag_sockid *more = realloc(f->ids, cap * sizeof(*more));

		if (!more) {
			f->code = -NLE_NOMEM;
			return NL_OK;
		}
		f->ids = more;
		f->cap = cap;
	}
	f->ids[f->n++] = d->id;
	return NL_OK;
}

static int request(struct nl_sock *s, int type, int flags, uint8_t family, const struct inet_diag_sockid *id)
{
	struct inet_diag_req_v2 req = { .sdiag_family = family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = STATES };

	if (id)
		req.id = *id;
	return nl_send_simple(s, type, flags, &req, sizeof(req));
}

/* A socket that has gone meanwhile is as good. */
static int destroy(struct nl_sock *s, uint8_t family, const struct inet_diag_sockid *id)
{
	int r = request(s, SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, family, id);

	if (r >= 0)
		r = nl_wait_for_ack(s);
	return r == -NLE_OBJ_NOTFOUND ? 0 : r;
}

void net_hold_counts(struct guest *g)
{
	static const char *const names[] = { "net/sockstat", "net/sockstat6" };

	for (size_t i = 0; i < ARRAY_LEN(g->tcp_fd); i++)
		if (g->tcp_fd[i] < 0)
			g->tcp_fd[i] = openat(g->proc_fd, names[i], O_RDONLY | O_CLOEXEC);
}

/* What cannot be read is no answer. */
static bool has_none(int tcp_fd)
{
	char text[1024];
	ssize_t n = pread(tcp_fd, text, sizeof(text) - 1, 0);
	const char *at;

	text[n < 0 ? 0 : n] = '\0';
	at = strstr(text, "TCP");
	return at && (strncmp(at, "TCP: inuse 0 ", 13) == 0 || strncmp(at, "TCP6: inuse 0\n", 14) == 0);
}

static int reset_family(struct nl_sock *s, uint8_t family)
{
	struct found f = { 0 };
	int r;

	nl_socket_modify_cb(s, NL_CB_VALID, NL_CB_CUSTOM, on_socket, &f);
	r = request(s, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, family, NULL);
	if (r >= 0)
		r = nl_recvmsgs_default(s);
	for (size_t i = 0; i < f.n && r >= 0; i++)
		r = destroy(s, family, &f.ids[i]);
	free(f.ids);
	return f.code < 0 ? f.code : r;
}

int net_reset_connections(const struct guest *g, struct err *e)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	bool none[ARRAY_LEN(families)] = { has_none(g->tcp_fd[0]), has_none(g->tcp_fd[1]) };
	struct nl_sock *s;
	int r;

	if (none[0] && none[1])
		return 0;
	s = nl_socket_alloc();
	r = s ? nl_connect(s, NETLINK_SOCK_DIAG) : -NLE_NOMEM;
	if (r >= 0)
		nl_socket_disable_seq_check(s);
	for (size_t i = 0; i < ARRAY_LEN(families) && r >= 0; i++)
		if (!none[i])
			r = reset_family(s, families[i]);
	nl_socket_free(s);
	return r < 0 ? err_set(e, -EIO, "connections of before: %s", nl_geterror(r)) : 0;
}
