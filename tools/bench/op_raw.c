/* SPDX-License-Identifier: Apache-2.0 */
/* raw: --bytes from a Unix socket behind which a guest writes zeros into a virtio-serial port for ever: what the
 * channel can carry when nobody frames, counts or stores. Timed from the first byte to the last. ARGUMENT: the socket.
 */
#include "tools/bench/turns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"

struct raw {
	int fd;
	uint64_t bytes;
	char buf[256 * 1024];
};

static int raw_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct raw *r = calloc(1, sizeof(*r));

	if (!r)
		return err_set(e, -ENOMEM, "no memory");
	*ret = r;
	r->bytes = o->bytes;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s", arg);
	r->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r->fd < 0 || connect(r->fd, (const struct sockaddr *)&at, sizeof(at)) < 0)
		return err_set(e, -errno, "%s: connect: %s", arg, strerror(errno));
	return 0;
}

static void raw_close(void *op)
{
	struct raw *r = op;

	fd_close(&r->fd);
	free(r);
}

static int raw_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct raw *r = op;
	ssize_t n = read(r->fd, r->buf, sizeof(r->buf));
	uint64_t have = n > 0 ? (uint64_t)n : 0, began = bench_now_ns();

	while (n > 0 && have < r->bytes) {
		n = read(r->fd, r->buf, sizeof(r->buf));
		have += n > 0 ? (uint64_t)n : 0;
	}
	if (n <= 0)
		return err_set(e, -EIO, "the port's socket: %s", n == 0 ? "closed" : strerror(errno));
	*ret_ns = bench_now_ns() - began;
	return 0;
}

const struct bench_op bench_op_raw = { "raw", raw_open, raw_run, raw_close, { 0 } };
