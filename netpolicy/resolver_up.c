/* SPDX-License-Identifier: Apache-2.0 */
/* How this works
 *
 * A query makes its tries one after the other, each with a fresh socket, a fresh random id and a timer. UDP first: the
 * socket is connected and its port chosen by the kernel at random, so what is received came from that server; a message
 * that is not the answer to that id and question is passed over, and the try goes on. An answer that was cut is asked
 * for again over TCP, at the same server, within a new timer. Whatever else goes wrong (silence, refusal, a server's
 * failure) ends the try; the next one asks the next server.
 *
 * A try that cannot even begin sets its timer to now: so no callback ever runs within up_ask(). */
#include "netpolicy/resolver_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "netpolicy/reserve.h"

#define TRIES_MIN   3u
#define READS_MAX   16 /* datagrams or pieces in one event */
#define TCP_PREFIX  2u
#define CHUNK_BYTES 4096u

struct up_query {
	struct resolver *r;
	struct resolver_upstream up[RESOLVER_UPSTREAMS_MAX]; /* those of when it was asked */
	size_t nup, first;
	unsigned up_set;
	size_t tries; /* begun */
	const struct dns_question *q;
	up_fn *fn;
	void *arg;
	bool no_edns;	/* a server did not like it */
	struct err why; /* the last try failed */

	/* the try that is under way */
	int fd;
	bool tcp;
	loop_id src, timer;
	uint16_t id;
	struct buf out, in; /* TCP, with the length before the message */
};

static const struct resolver_upstream *server_of(const struct up_query *u)
{
	return &u->up[(u->first + u->tries - 1) % u->nup];
}

static void try_end(struct up_query *u)
{
	loop_del(u->r->loop, &u->src);
	loop_del(u->r->loop, &u->timer);
	fd_close(&u->fd);
	buf_fini(&u->out);
	buf_fini(&u->in);
}

struct up_query *up_cancel(struct up_query *u)
{
	if (u) {
		try_end(u);
		free(u);
	}
	return NULL;
}

static void finish(struct up_query *u, const struct dns_answer *a)
{
	struct up_query gone;

	try_end(u);
	gone = *u;
	free(u);
	gone.fn(gone.arg, a, a ? NULL : &gone.why);
}

static void say_why(struct up_query *u, int code, const char *what)
{
	char text[NET_ADDR_TEXT];

	err_set(&u->why, code, "%s: %s", net_addr_text(&server_of(u)->addr, text), what);
}

static void try_next(struct up_query *u);

/* Not from within up_ask(). */
static void try_failed(struct up_query *u, int code, const char *what)
{
	say_why(u, code, what);
	try_next(u);
}

/* -- what comes -------------------------------------------------------------------------------------------------- */

static int try_start(struct up_query *u, bool tcp);

static void on_answer(struct up_query *u, const struct dns_answer *a)
{
	int r;

	if (a->truncated) {
		r = u->tcp ? -EBADMSG : try_start(u, true);
		if (r < 0)
			try_failed(u, r, "the answer was cut, and no TCP");
		return;
	}
	switch (a->rcode) {
	case DNS_NOERROR:
	case DNS_NXDOMAIN:
		if (u->r->up_set == u->up_set)
			u->r->first = (size_t)(server_of(u) - u->up);
		finish(u, a);
		return;
	case DNS_FORMERR:
	case DNS_NOTIMP:
		u->no_edns = true;
		try_failed(u, -EPROTO, "it does not understand the question");
		return;
	case DNS_REFUSED:
		try_failed(u, -EPERM, "it refuses to answer");
		return;
	default:
		try_failed(u, -EIO, "it failed to find out");
		return;
	}
}

/* false: the message was not for us; else @u may be gone. */
static bool take_message(struct up_query *u, const uint8_t *data, size_t len)
{
	struct dns_answer a;
	int r = dns_answer_parse(data, len, u->id, u->q, &a);

	if (r == -EAGAIN)
		return false;
	if (r < 0)
		try_failed(u, r, r == -ENOMEM ? "no memory" : "the answer cannot be read");
	else
		on_answer(u, &a);
	return true;
}

static void on_udp(void *arg, uint32_t events)
{
	struct up_query *u = arg;
	uint8_t data[CHUNK_BYTES]; /* more than was offered */

	(void)events;
	for (int i = 0; i < READS_MAX; i++) {
		ssize_t n = recv(u->fd, data, sizeof(data), MSG_TRUNC);

		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR)
				try_failed(u, -errno, strerror(errno));
			return;
		}
		if ((size_t)n <= sizeof(data) && take_message(u, data, (size_t)n))
			return;
	}
}

/* 1: whole; 0: there is more to come; -errno. */
static int tcp_read(struct up_query *u)
{
	for (int i = 0; i < READS_MAX; i++) {
		size_t want = TCP_PREFIX;
		uint8_t *to;
		ssize_t n;
		int r;

		if (u->in.len >= TCP_PREFIX)
			want += (size_t)u->in.data[0] << 8 | u->in.data[1];
		if (u->in.len == want && want > TCP_PREFIX)
			return 1;
		if (u->in.len == want)
			return -EBADMSG; /* a message of no bytes */
		want -= u->in.len;
		if (want > CHUNK_BYTES)
			want = CHUNK_BYTES;
		r = buf_reserve(&u->in, want, &to);
		if (r < 0)
			return r;
		n = recv(u->fd, to, want, 0);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		if (n == 0)
			return -ECONNRESET;
		u->in.len += (size_t)n;
	}
	return 0;
}

static int tcp_write(struct up_query *u)
{
	ssize_t n = send(u->fd, u->out.data, u->out.len, MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	buf_drop(&u->out, (size_t)n);
	return u->out.len == 0 ? loop_mod(u->r->loop, u->src, EPOLLIN) : 0;
}

static void on_tcp(void *arg, uint32_t events)
{
	struct up_query *u = arg;
	int r;

	(void)events; /* an error shows in what is tried */
	r = u->out.len > 0 ? tcp_write(u) : tcp_read(u);
	if (r < 0)
		try_failed(u, r, strerror(-r));
	else if (r > 0 && !take_message(u, u->in.data + TCP_PREFIX, u->in.len - TCP_PREFIX))
		try_failed(u, -EBADMSG, "it answers something else");
}

static void on_timer(void *arg)
{
	struct up_query *u = arg;

	u->timer = 0;
	if (u->fd >= 0)
		say_why(u, -ETIMEDOUT, "no answer");
	try_next(u);
}

/* -- what goes --------------------------------------------------------------------------------------------------- */

static int send_udp(struct up_query *u, const uint8_t *wire, size_t len)
{
	if (send(u->fd, wire, len, MSG_NOSIGNAL) < 0)
		return -errno;
	return loop_add(u->r->loop, u->fd, EPOLLIN, on_udp, u, &u->src);
}

static int send_tcp(struct up_query *u, const uint8_t *wire, size_t len)
{
	uint8_t prefix[TCP_PREFIX] = { (uint8_t)(len >> 8), (uint8_t)len };
	int r = buf_add(&u->out, prefix, sizeof(prefix));

	if (r == 0)
		r = buf_add(&u->out, wire, len);
	if (r == 0)
		r = loop_add(u->r->loop, u->fd, EPOLLOUT, on_tcp, u, &u->src);
	return r;
}

/* Ends the try that is under way and begins one at server_of(). On an error nothing is under way. */
static int try_open(struct up_query *u, bool tcp)
{
	const struct resolver_upstream *s = server_of(u);
	AUTO_FREE uint8_t *wire = NULL;
	struct sockaddr_storage to;
	socklen_t to_len = net_addr_to_sockaddr(&s->addr, s->port, &to);
	size_t len;
	int r;

	try_end(u);
	buf_init(&u->in, TCP_PREFIX + DNS_MESSAGE_MAX);
	buf_init(&u->out, TCP_PREFIX + DNS_MESSAGE_MAX);
	u->tcp = tcp;
	if (getrandom(&u->id, sizeof(u->id), GRND_NONBLOCK) != sizeof(u->id))
		return -EAGAIN; /* without randomness nothing is asked */
	r = dns_query_build(u->id, u->q, !u->no_edns, &wire, &len);
	if (r < 0)
		return r;
	u->fd = socket(to.ss_family, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (u->fd < 0)
		return -errno;
	if (reserve_has(u->fd))
		return -EMFILE;
	if (connect(u->fd, (struct sockaddr *)&to, to_len) < 0 && errno != EINPROGRESS)
		return -errno;
	r = tcp ? send_tcp(u, wire, len) : send_udp(u, wire, len);
	if (r == 0)
		r = loop_timer(u->r->loop, now_ns() + u->r->try_ns, on_timer, u, &u->timer);
	return r;
}

static int try_start(struct up_query *u, bool tcp)
{
	int r = try_open(u, tcp);

	if (r < 0)
		try_end(u);
	return r;
}

/* The next try; without one the query ends. Never called by up_ask(). */
static void try_next(struct up_query *u)
{
	size_t most = u->nup > TRIES_MIN ? u->nup : TRIES_MIN;

	while (u->nup > 0 && u->tries < most) {
		int r;

		u->tries++;
		r = try_start(u, false);
		if (r == 0)
			return;
		say_why(u, r, strerror(-r));
	}
	if (u->why.code == 0)
		err_set(&u->why, -ENOENT, "no upstream server is known");
	finish(u, NULL);
}

int up_ask(struct resolver *r, const struct dns_question *q, up_fn *fn, void *arg, struct up_query **ret)
{
	struct up_query *u = calloc(1, sizeof(*u));
	int e;

	if (!u)
		return -ENOMEM;
	u->r = r;
	memcpy(u->up, r->up, sizeof(u->up));
	u->nup = r->nup;
	u->first = r->first;
	u->up_set = r->up_set;
	u->q = q;
	u->fn = fn;
	u->arg = arg;
	u->fd = -1;
	e = loop_timer(r->loop, now_ns(), on_timer, u, &u->timer); /* in the next round */
	if (e < 0) {
		free(u);
		return e;
	}
	*ret = u;
	return 0;
}
