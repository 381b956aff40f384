/* SPDX-License-Identifier: Apache-2.0 */
/* The box's side of the preload library.
 *
 * The answer carries no number, so at most one is under way. An order that was not answered in time has ended for its
 * caller, but its answer may still come and must not be taken for the next one's: until then a new order is -EBUSY.
 * The engine may have been taken over: an answer that is not one ends the connection. */
#include "vmm/preload/preload.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define FDS_MAX 3 /* mem, pagemap, userfaultfd */

struct preload {
	struct loop *loop;
	int fd; /* -1: gone */
	loop_id src, timer;
	bool waiting;	/* for an answer */
	bool templated; /* the order that is waited for had a template */
	preload_fn *fn; /* NULL: nobody is interested any more */
	void *arg;
	unsigned int busy; /* frames of this file on the stack */
	bool freed;
};

/* What one answer says, checked. The descriptors are owned by it. */
struct answer {
	struct preload_answer a;
	int fds[FDS_MAX];
	size_t nfds;
};

static void release(struct preload *p)
{
	if (p->busy == 0 && p->freed)
		free(p);
}

/* End what is pending, once. */
static void end(struct preload *p, struct preload_done *d)
{
	preload_fn *fn = p->fn;

	loop_del(p->loop, &p->timer);
	p->fn = NULL;
	if (fn)
		fn(p->arg, d);
	fd_close(&d->mem);
	fd_close(&d->pagemap);
	fd_close(&d->uffd);
}

static void end_empty(struct preload *p, int code, bool lost, const char *words)
{
	struct preload_done d = { .code = code, .lost = lost, .words = words, .mem = -1, .pagemap = -1, .uffd = -1 };

	end(p, &d);
}

/* @lost: it is still there, but nobody knows what it has done. */
static void gone(struct preload *p, bool lost, const char *words)
{
	loop_del(p->loop, &p->src);
	fd_close(&p->fd);
	p->waiting = false;
	end_empty(p, -EPIPE, lost, words);
}

static void on_timer(void *arg)
{
	struct preload *p = arg;

	p->timer = 0;
	p->busy++;
	end_empty(p, -ETIMEDOUT, false, "the engine's preload library does not answer");
	p->busy--;
	release(p);
}

/* -- answers ----------------------------------------------------------------------------------- */

static void take_fds(struct msghdr *m, struct answer *ret)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
		size_t n;

		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
			if (ret->nfds < FDS_MAX)
				ret->fds[ret->nfds++] = fd;
			else
				close(fd);
		}
	}
}

/* 0; -EAGAIN nothing there; -EPIPE the end; -EBADMSG not an answer. */
static int receive(int fd, struct answer *ret)
{
	union {
		char space[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} c = { 0 };
	struct iovec iov = { .iov_base = &ret->a, .iov_len = sizeof(ret->a) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c) };
	ssize_t n;

	*ret = (struct answer){ .fds = { -1, -1, -1 } };
	n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -EPIPE;
	if (n == 0)
		return -EPIPE;
	take_fds(&m, ret);
	return n == sizeof(ret->a) && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ? 0 : -EBADMSG;
}

/* Is it one that the library gives to the order that was sent? Its words become safe to print. */
static int check(struct answer *r, bool templated)
{
	struct preload_answer *a = &r->a;
	size_t want = a->code < 0 ? 0 : a->has_uffd ? 3 : 2;

	if (a->magic != PRELOAD_MAGIC || a->code > 0 || a->code < -4095 || a->has_uffd > 1 || a->lost > 1 ||
	    r->nfds != want)
		return -EBADMSG;
	if ((a->has_uffd && (!templated || a->code < 0)) || (a->lost && (!templated || a->code == 0)))
		return -EBADMSG;
	a->words[sizeof(a->words) - 1] = '\0';
	for (char *w = a->words; *w; w++)
		if ((unsigned char)*w < 0x20 || *w == 0x7f)
			*w = '?';
	return 0;
}

static void on_socket(void *arg, uint32_t events)
{
	struct preload *p = arg;
	struct answer r;
	int code = receive(p->fd, &r);

	(void)events;
	if (code == -EAGAIN)
		return;
	if (code == 0 && !p->waiting)
		code = -EBADMSG;
	if (code == 0)
		code = check(&r, p->templated);
	p->busy++;
	if (code < 0) {
		for (size_t i = 0; i < r.nfds; i++)
			fd_close(&r.fds[i]);
		gone(p, code != -EPIPE && p->templated,
		     code == -EPIPE ? "the engine is gone" : "the engine's preload library speaks nonsense");
	} else {
		struct preload_done d = { .code = r.a.code,
					  .lost = r.a.lost,
					  .words = r.a.words,
					  .base = r.a.base,
					  .mem = r.fds[0],
					  .pagemap = r.fds[1],
					  .uffd = r.fds[2] };

		p->waiting = false;
		end(p, &d);
	}
	p->busy--;
	release(p);
}

/* -- the interface ----------------------------------------------------------------------------- */

int preload_new(struct loop *l, int fd, struct preload **ret)
{
	struct preload *p = calloc(1, sizeof(*p));
	int r;

	if (!p) {
		fd_close(&fd);
		return -ENOMEM;
	}
	*p = (struct preload){ .loop = l, .fd = fd };
	r = loop_add(l, fd, EPOLLIN, on_socket, p, &p->src);
	if (r < 0) {
		preload_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

struct preload *preload_free(struct preload *p)
{
	if (!p || p->freed)
		return NULL;
	loop_del(p->loop, &p->src);
	loop_del(p->loop, &p->timer);
	fd_close(&p->fd);
	p->fn = NULL;
	p->freed = true;
	release(p);
	return NULL;
}

static int send_order(int fd, const struct preload_order *o, int template_fd)
{
	union {
		char space[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c = { 0 };
	struct iovec iov = { .iov_base = (void *)o, .iov_len = sizeof(*o) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (template_fd >= 0) {
		struct cmsghdr *h;

		m.msg_control = &c;
		m.msg_controllen = sizeof(c);
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(h), &template_fd, sizeof(int));
	}
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	/* Nothing is under way, so there is room, but in the socket of one that is going. */
	return n < 0 ? (errno == EPIPE || errno == ECONNRESET ? -EPIPE : -errno) : 0;
}

int preload_order(struct preload *p, int template_fd, uint64_t bytes, const struct preload_range *ranges, uint32_t n,
		  uint32_t timeout_ms, preload_fn *fn, void *arg)
{
	struct preload_order o = { .magic = PRELOAD_MAGIC, .nranges = n, .bytes = template_fd >= 0 ? bytes : 0 };
	int r;

	if (p->fd < 0)
		return -EPIPE;
	if (p->waiting)
		return -EBUSY;
	if (n > PRELOAD_RANGES_MAX || (template_fd < 0 && n))
		return -EINVAL;
	if (n)
		memcpy(o.ranges, ranges, n * sizeof(*ranges));
	r = loop_timer(p->loop, now_ns() + timeout_ms * 1000000ull, on_timer, p, &p->timer);
	if (r == 0)
		r = send_order(p->fd, &o, template_fd);
	if (r < 0) {
		loop_del(p->loop, &p->timer);
		return r;
	}
	p->waiting = true;
	p->templated = template_fd >= 0;
	p->fn = fn;
	p->arg = arg;
	return 0;
}
