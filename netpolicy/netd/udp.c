/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams of a guest, with the address that each was sent to. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "netpolicy/netd/netd_priv.h"
#include "netpolicy/resolver_msg.h"

#define DATAGRAM_MAX (DNS_QUESTION_MAX + 1) /* what is cut to that is seen to be too long for a question */
#define READS_A_TURN 32

struct netd_udp {
	struct loop *loop;
	int fd;
	loop_id src;
	netd_udp_fn *fn;
	void *arg;
};

/* Where it was sent to. False: the kernel did not say. */
static bool original(struct msghdr *mh, struct sockaddr_storage *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c; c = CMSG_NXTHDR(mh, c)) {
		size_t len = c->cmsg_len - CMSG_LEN(0);

		if ((c->cmsg_level == SOL_IP && c->cmsg_type == IP_ORIGDSTADDR && len >= sizeof(struct sockaddr_in)) ||
		    (c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_ORIGDSTADDR &&
		     len >= sizeof(struct sockaddr_in6))) {
			memcpy(ret, CMSG_DATA(c), len < sizeof(*ret) ? len : sizeof(*ret));
			return true;
		}
	}
	return false;
}

static void on_udp(void *arg, uint32_t events)
{
	struct netd_udp *u = arg;
	uint8_t data[DATAGRAM_MAX];

	(void)events;
	for (int i = 0; i < READS_A_TURN; i++) {
		struct sockaddr_storage from, to;
		struct iovec iov = { data, sizeof(data) };
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(struct sockaddr_in6)) + CMSG_SPACE(sizeof(struct sockaddr_in))];
		} control;
		struct msghdr mh = { .msg_name = &from,
				     .msg_namelen = sizeof(from),
				     .msg_iov = &iov,
				     .msg_iovlen = 1,
				     .msg_control = control.bytes,
				     .msg_controllen = sizeof(control.bytes) };
		ssize_t n = recvmsg(u->fd, &mh, MSG_DONTWAIT);

		if (n < 0)
			return; /* nothing left, or an error of one datagram: the next turn goes on */
		if ((mh.msg_flags & MSG_CTRUNC) || !original(&mh, &to))
			continue;
		u->fn(u->arg, u->fd, &from, &to, data, (size_t)n);
	}
}

int netd_udp_new(struct loop *l, int fd, netd_udp_fn *fn, void *arg, struct netd_udp **ret)
{
	struct netd_udp *u = calloc(1, sizeof(*u));
	int r;

	if (!u) {
		fd_close(&fd);
		return -ENOMEM;
	}
	*u = (struct netd_udp){ .loop = l, .fd = fd, .fn = fn, .arg = arg };
	r = loop_add(l, fd, EPOLLIN, on_udp, u, &u->src);
	if (r < 0) {
		netd_udp_free(u);
		return r;
	}
	*ret = u;
	return 0;
}

struct netd_udp *netd_udp_free(struct netd_udp *u)
{
	if (!u)
		return NULL;
	loop_del(u->loop, &u->src);
	fd_close(&u->fd);
	free(u);
	return NULL;
}
