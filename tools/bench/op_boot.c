/* SPDX-License-Identifier: Apache-2.0 */
/* A bare boot: the engine with the very arguments that crucible gave it, and nothing around it.
 *
 *   boot         timed from the fork to the first byte that the guest's agent writes into its control port
 *   boot-ready   to the text of the agent's last stage, which says that it waits for hello
 *
 * ARGUMENT is a directory: `argv` (arguments, each ended by NUL), `base` (the image), `overlay.new` (an empty overlay
 * over it). The descriptors stand where vmm/engine.h puts them: 3 monitor, 4 control, 5 bulk, 6 console, 7 base, 8
 * overlay. The copy of the overlay is made before, the engine killed after the timed part. */
#include "tools/bench/turns.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/proto.h"
#include "base/fd.h"
#include "base/proc.h"

#define ARGS_MAX    256
#define BOOT_MS	    60000
#define SAID_MAX    8192
#define OVERLAY_MAX (64u << 20)

struct boot {
	const char *dir;
	char *text;
	char *argv[ARGS_MAX + 1];
	char *overlay;
	size_t overlay_len;
};

static int boot_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct boot *b = calloc(1, sizeof(*b));
	AUTO_FD dirfd = -1;
	size_t len = 0, argc = 0;
	int r;

	(void)o;
	if (!b)
		return err_set(e, -ENOMEM, "no memory");
	*ret = b;
	b->dir = arg;
	dirfd = open(arg, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return err_set(e, -errno, "%s: %s", arg, strerror(errno));
	r = fd_slurp(dirfd, "argv", 65536, &b->text, &len);
	if (r == 0)
		r = fd_slurp(dirfd, "overlay.new", OVERLAY_MAX, &b->overlay, &b->overlay_len);
	if (r < 0)
		return err_set(e, r, "%s: argv or overlay.new: %s", arg, strerror(-r));
	for (size_t at = 0; at < len && argc < ARGS_MAX; at += strlen(b->text + at) + 1)
		b->argv[argc++] = b->text + at;
	return argc > 0 ? 0 : err_set(e, -EINVAL, "%s/argv: empty", arg);
}

static void boot_close(void *op)
{
	struct boot *b = op;

	free(b->text);
	free(b->overlay);
	free(b);
}

/* Both ends of a port: ours stays open until the boot is over. */
struct ports {
	int ours[3];
	int fds[6];
};

static int open_in(const char *dir, const char *name, int flags)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return open(path, flags | O_CLOEXEC, 0600);
}

static int make_ports(const struct boot *b, struct ports *p, struct err *e)
{
	for (int i = 0; i < 3; i++) {
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			return err_set(e, -errno, "socketpair: %s", strerror(errno));
		p->ours[i] = pair[0];
		p->fds[i] = pair[1];
	}
	p->fds[3] = open_in(b->dir, "console.log", O_WRONLY | O_CREAT | O_APPEND);
	p->fds[4] = open_in(b->dir, "base", O_RDONLY);
	p->fds[5] = open_in(b->dir, "overlay", O_RDWR | O_CREAT | O_TRUNC);
	if (p->fds[3] < 0 || p->fds[4] < 0 || p->fds[5] < 0)
		return err_set(e, -errno, "%s: %s", b->dir, strerror(errno));
	return fd_pwrite_all(p->fds[5], b->overlay, b->overlay_len, 0);
}

static void close_ports(struct ports *p)
{
	for (size_t i = 0; i < ARRAY_LEN(p->ours); i++)
		fd_close(&p->ours[i]);
	for (size_t i = 0; i < ARRAY_LEN(p->fds); i++)
		fd_close(&p->fds[i]);
}

/* Until the agent has said something, or, with @words, that. */
static int hear(int fd, const char *words, struct err *e)
{
	uint64_t until = bench_now_ns() + BOOT_MS * 1000000ull;
	char said[SAID_MAX];
	size_t have = 0;

	while (!have || (words && !memmem(said, have, words, strlen(words)))) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = bench_now_ns();
		ssize_t n;

		if (now > until || poll(&p, 1, (int)((until - now) / 1000000u)) <= 0)
			return err_set(e, -ETIMEDOUT, "the guest's agent said nothing within %d ms", BOOT_MS);
		n = have < sizeof(said) ? read(fd, said + have, sizeof(said) - have) : -1;
		if (n <= 0)
			return err_set(e, -EIO, "the engine ended before the guest's agent had spoken");
		have += (size_t)n;
	}
	return 0;
}

static int boot_once(struct boot *b, const char *words, uint64_t *ret_ns, struct err *e)
{
	struct proc_spec spec = PROC_SPEC_INIT;
	struct ports p;
	uint64_t began;
	pid_t pid;
	int r;

	memset(&p, 0xff, sizeof(p));
	r = make_ports(b, &p, e);
	if (r < 0) {
		close_ports(&p);
		return r;
	}
	spec.name = "engine";
	spec.path = b->text;
	spec.argv = b->argv;
	spec.envp = environ;
	spec.stdio[2] = 2;
	spec.fds = p.fds;
	spec.nfds = ARRAY_LEN(p.fds);
	began = bench_now_ns();
	r = proc_spawn(&spec, &pid, NULL, e);
	if (r < 0) {
		close_ports(&p);
		return r;
	}
	for (size_t i = 0; i < ARRAY_LEN(p.fds); i++)
		fd_close(&p.fds[i]);
	r = hear(p.ours[1], words, e);
	*ret_ns = bench_now_ns() - began;
	kill(pid, SIGKILL);
	proc_wait(pid, NULL);
	close_ports(&p);
	return r;
}

static int boot_run(void *op, uint64_t *ret_ns, struct err *e)
{
	return boot_once(op, NULL, ret_ns, e);
}

static int boot_ready_run(void *op, uint64_t *ret_ns, struct err *e)
{
	return boot_once(op, AG_STAGE_HELLO, ret_ns, e);
}

const struct bench_op bench_op_boot = { "boot", boot_open, boot_run, boot_close };
const struct bench_op bench_op_boot_ready = { "boot-ready", boot_open, boot_ready_run, boot_close };
