/* SPDX-License-Identifier: Apache-2.0 */
/* A preload library in an engine that was taken over: any answer, with any number of descriptors, to an order. */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/preload/preload.h"

#define FDS_MAX 6

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void on_done(void *arg, struct preload_done *d)
{
	int fds = (d->mem >= 0) + (d->pagemap >= 0) + (d->uffd >= 0);

	++*(int *)arg;
	assert(d->code <= 0 && d->words);
	assert(d->code < 0 ? fds == 0 : fds >= 2);
	for (const char *w = d->words; *w; w++)
		assert((unsigned char)*w >= 0x20 && *w != 0x7f);
}

static void send_answer(int sock, const uint8_t *data, size_t len, size_t nfds)
{
	union {
		char space[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} c = { 0 };
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		struct cmsghdr *h;

		m.msg_control = &c;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		for (size_t i = 0; i < nfds; i++)
			memcpy(CMSG_DATA(h) + i * sizeof(int), &sock, sizeof(sock));
	}
	assert(sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)len);
}

/* The first byte: how many descriptors; 0x80: the order had a template. The rest is the answer. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct preload *p;
	struct loop *l;
	int pair[2], ended = 0, asked;

	if (len < 2 || len > 4096 || loop_new(&l) < 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 || preload_new(l, pair[0], &p) < 0)
		abort();
	asked = preload_order(p, data[0] & 0x80 ? 0 : -1, 4096, NULL, 0, 1000, on_done, &ended) == 0;
	send_answer(pair[1], data + 1, len - 1, (data[0] & 0x7f) % (FDS_MAX + 1));
	close(pair[1]);
	for (int i = 0; i < 10 && ended < asked; i++)
		loop_once(l, 0);
	assert(ended == asked);
	preload_free(p);
	loop_free(l);
	return 0;
}
