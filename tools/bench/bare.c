/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/bare.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "agent/proto.h"
#include "base/fd.h"
#include "base/proc.h"
#include "tools/bench/turns.h"

#define PATIENCE_MS 60000
#define ARGV_MAX    65536

/* -- what there is to start --------------------------------------------------------------------------------------- */

int bare_kind_open(const char *dir, struct bare_kind *ret, struct err *e)
{
	AUTO_FD dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	size_t len = 0, argc = 0;
	int r;

	*ret = (struct bare_kind){ .dir = dir, .disk_new = -1, .disk = -1, .state = -1 };
	if (dirfd < 0)
		return err_set(e, -errno, "%s: %s", dir, strerror(errno));
	r = fd_slurp(dirfd, "argv", ARGV_MAX, &ret->text, &len);
	if (r < 0)
		return err_set(e, r, "%s/argv: %s", dir, strerror(-r));
	for (size_t at = 0; at < len && argc < BARE_ARGS_MAX; at += strlen(ret->text + at) + 1)
		ret->argv[argc++] = ret->text + at;
	for (size_t i = 0; i + 1 < argc; i++) {
		if (!strcmp(ret->argv[i], "-m"))
			ret->ram_bytes = strtoull(ret->argv[i + 1], NULL, 10) << 20;
		ret->shared |= !strcmp(ret->argv[i], "-incoming") && !strcmp(ret->argv[i + 1], "defer");
	}
	ret->disk_new = openat(dirfd, "disk.new", O_RDONLY | O_CLOEXEC);
	if (ret->disk_new < 0)
		ret->disk = openat(dirfd, "disk", O_RDWR | O_CLOEXEC);
	ret->state = openat(dirfd, "state", O_RDONLY | O_CLOEXEC);
	if (argc == 0 || (ret->disk_new < 0 && ret->disk < 0))
		return err_set(e, -EINVAL, "%s: no arguments, or no disk", dir);
	return 0;
}

void bare_kind_close(struct bare_kind *k)
{
	free(k->text);
	fd_close(&k->disk_new);
	fd_close(&k->disk);
	fd_close(&k->state);
}

/* Nameless, in memory: it takes the same time whatever lies below. */
static int copy_disk(int from, int *ret)
{
	AUTO_FD to = memfd_create("disk", MFD_CLOEXEC);
	static char block[65536], zeros[65536];
	uint64_t off = 0;
	ssize_t n;

	if (to < 0)
		return -errno;
	while ((n = pread(from, block, sizeof(block), (off_t)off)) > 0) {
		int r = memcmp(block, zeros, (size_t)n) ? fd_pwrite_all(to, block, (size_t)n, off) : 0;

		if (r < 0)
			return r;
		off += (uint64_t)n;
	}
	if (n < 0 || ftruncate(to, (off_t)off) < 0)
		return -errno;
	*ret = take_fd(&to);
	return 0;
}

int bare_prepare(const struct bare_kind *k, struct bare *b, struct err *e)
{
	int r;

	*b = (struct bare){ .disk = -1 };
	for (int i = 0; i < BARE_PORT_COUNT; i++)
		b->port[i] = -1;
	if (k->disk_new < 0)
		return 0;
	r = copy_disk(k->disk_new, &b->disk);
	return r < 0 ? err_set(e, r, "%s/disk.new: copy: %s", k->dir, strerror(-r)) : 0;
}

/* What no option can say. */
static int load_shared(struct bare *b, struct err *e)
{
	static const char *const commands[] = {
		"{\"execute\":\"qmp_capabilities\"}\n",
		"{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":[{\"capability\":"
		"\"x-ignore-shared\",\"state\":true}]}}\n",
		"{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:8\"}}\n",
	};
	char answer[4096];
	int r = 0;

	for (size_t i = 0; i < ARRAY_LEN(commands) && r == 0; i++)
		r = bare_monitor(b, commands[i], -1, answer, sizeof(answer), e);
	return r;
}

int bare_start(const struct bare_kind *k, struct bare *b, struct err *e)
{
	struct proc_spec spec = PROC_SPEC_INIT;
	int fds[BARE_PORT_COUNT + 3], theirs[BARE_PORT_COUNT], pair[2], r;
	char path[PATH_MAX];
	AUTO_FD console = -1, state = -1;

	snprintf(path, sizeof(path), "%s/console.log", k->dir);
	console = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (console < 0)
		return err_set(e, -errno, "%s: %s", path, strerror(errno));
	if (k->state >= 0) { /* one of its own: the place where it is read belongs to the open file */
		snprintf(path, sizeof(path), "%s/state", k->dir);
		state = open(path, O_RDONLY | O_CLOEXEC);
		if (state < 0)
			return err_set(e, -errno, "%s: %s", path, strerror(errno));
	}
	for (int i = 0; i < BARE_PORT_COUNT; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			return err_set(e, -errno, "socketpair: %s", strerror(errno));
		b->port[i] = pair[0];
		fds[i] = theirs[i] = pair[1];
	}
	fds[BARE_PORT_COUNT] = console;
	fds[BARE_PORT_COUNT + 1] = b->disk >= 0 ? b->disk : k->disk;
	fds[BARE_PORT_COUNT + 2] = state;
	spec.name = "engine";
	spec.path = k->text;
	spec.argv = k->argv;
	spec.envp = environ;
	spec.stdio[1] = spec.stdio[2] = console;
	spec.fds = fds;
	spec.nfds = BARE_PORT_COUNT + (state < 0 ? 2 : 3);
	r = proc_spawn(&spec, &b->pid, NULL, e);
	for (int i = 0; i < BARE_PORT_COUNT; i++)
		fd_close(&theirs[i]);
	return r == 0 && k->shared ? load_shared(b, e) : r;
}

void bare_end(struct bare *b)
{
	if (b->pid > 0) {
		kill(b->pid, SIGKILL);
		proc_wait(b->pid, NULL);
		b->pid = 0;
	}
	for (int i = 0; i < BARE_PORT_COUNT; i++)
		fd_close(&b->port[i]);
	fd_close(&b->disk);
}

/* -- the agent ------------------------------------------------------------------------------------------------------
 */

/* More bytes of a port, before @until. */
static ssize_t more(int fd, void *buf, size_t cap, uint64_t until, struct err *e)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t now = bench_now_ns();
	ssize_t n;

	if (now > until || poll(&p, 1, (int)((until - now) / 1000000u) + 1) <= 0)
		return err_set(e, -ETIMEDOUT, "a bare machine said nothing within %d s", PATIENCE_MS / 1000);
	n = cap ? read(fd, buf, cap) : -1;
	return n > 0 ? n : err_set(e, -EIO, "a bare machine's engine ended");
}

static uint64_t patience(void)
{
	return bench_now_ns() + PATIENCE_MS * 1000000ull;
}

/* The next frame of control of this type (and stream); others are dropped. Its payload, cut to @cap. */
static int hear(struct bare *b, uint8_t type, uint32_t stream, char *ret, size_t cap, struct err *e)
{
	uint64_t until = patience();

	for (;;) {
		struct ag_frame f = { 0 };
		long used = ag_frame_parse(b->in, b->in_len, &f);
		bool found;
		ssize_t n;

		if (used < 0)
			return err_set(e, -EBADMSG, "a bare machine's agent: malformed frame");
		if (used == 0) {
			n = more(b->port[BARE_CONTROL], b->in + b->in_len, sizeof(b->in) - b->in_len, until, e);
			if (n < 0)
				return (int)n;
			b->in_len += (size_t)n;
			continue;
		}
		found = f.type == type && f.stream == stream;
		if (found || f.type == AG_BYE)
			snprintf(ret, cap, "%.*s", (int)f.len, (const char *)f.payload);
		b->in_len -= (size_t)used;
		memmove(b->in, b->in + used, b->in_len);
		if (found)
			return 0;
		if (f.type == AG_BYE)
			return err_set(e, -EIO, "a bare machine's agent ended: %.100s", ret);
	}
}

static int say(struct bare *b, enum bare_port port, uint8_t type, uint8_t flags, uint32_t stream, const char *text,
	       struct err *e)
{
	size_t len = strlen(text);
	uint8_t head[AG_HEADER_LEN];
	int r;

	ag_frame_header(head, type, flags, stream, b->seq[port]++, (uint32_t)len);
	r = fd_write_all(b->port[port], head, sizeof(head));
	if (r == 0 && len)
		r = fd_write_all(b->port[port], text, len);
	return r < 0 ? err_set(e, r, "a bare machine's port: %s", strerror(-r)) : 0;
}

int bare_hear_stage(struct bare *b, const char *words, struct err *e)
{
	uint64_t until = patience();
	char text[256];
	ssize_t n;
	int r = 0;

	if (!words) {
		n = more(b->port[BARE_CONTROL], b->in + b->in_len, sizeof(b->in) - b->in_len, until, e);
		b->in_len += n > 0 ? (size_t)n : 0;
		return n < 0 ? (int)n : 0;
	}
	do
		r = hear(b, AG_STAGE, 0, text, sizeof(text), e);
	while (r == 0 && strcmp(text, words) != 0);
	return r;
}

int bare_say_hello(struct bare *b, struct err *e)
{
	struct timespec t;
	char hello[600];
	int r;

	clock_gettime(CLOCK_REALTIME, &t);
	snprintf(hello, sizeof(hello),
		 "{\"version_min\":1,\"version_max\":%u,\"epoch\":%llu,\"wall_ns\":%llu,\"entropy\":\"%064llx\","
		 "\"hostname\":\"bare\",\"instance\":\"00000000-0000-0000-0000-000000000000\",\"root_mib\":0,"
		 "\"memory_bytes\":0,\"cpu_percent\":0,\"pids\":0}",
		 AG_VERSION, (unsigned long long)t.tv_sec,
		 (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec,
		 (unsigned long long)t.tv_nsec);
	b->seq[BARE_CONTROL] = b->seq[BARE_BULK] = 0;
	r = say(b, BARE_BULK, AG_HELLO, 0, 0, hello, e);
	return r < 0 ? r : say(b, BARE_CONTROL, AG_HELLO, 0, 0, hello, e);
}

int bare_hear_hello(struct bare *b, struct err *e)
{
	char text[4096];

	return hear(b, AG_HELLO, 0, text, sizeof(text), e);
}

int bare_script(struct bare *b, const char *text, struct err *e)
{
	char record[4096];
	uint32_t stream = ++b->stream;
	int r = say(b, BARE_CONTROL, AG_EXEC, 0, stream, "{\"script\":true,\"timeout_ms\":60000}", e);

	if (r == 0)
		r = say(b, BARE_BULK, AG_DATA, AG_SCRIPT | AG_EOF, stream, text, e);
	if (r == 0)
		r = hear(b, AG_EXIT, stream, record, sizeof(record), e);
	if (r == 0 && !strstr(record, "\"exit_code\":0,"))
		r = err_set(e, -EIO, "a bare machine: no exit code 0: %.120s", record);
	return r;
}

/* -- the monitor ----------------------------------------------------------------------------------------------------
 */

static int send_monitor(int to, const char *text, int fd)
{
	struct iovec v = { (char *)text, strlen(text) };
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *c;

		m.msg_control = control;
		m.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	return sendmsg(to, &m, MSG_NOSIGNAL) == (ssize_t)v.iov_len ? 0 : -errno;
}

/* Lines come a byte at a time, so that nothing of the next one is kept. They are short and few. */
int bare_monitor(struct bare *b, const char *json, int fd, char *ret, size_t cap, struct err *e)
{
	uint64_t until = patience();
	int r = send_monitor(b->port[BARE_MONITOR], json, fd);
	size_t have = 0;

	memset(ret, 0, cap);
	if (r < 0)
		return err_set(e, r, "a bare machine's monitor: %s", strerror(-r));
	for (;;) {
		ssize_t n = more(b->port[BARE_MONITOR], ret + have, have + 1 < cap ? 1 : 0, until, e);

		if (n < 0)
			return (int)n;
		if (ret[have++] != '\n')
			continue;
		ret[have] = '\0';
		have = 0;
		if (!strncmp(ret, "{\"error\"", 8))
			return err_set(e, -EIO, "a bare machine's monitor: %.60s: %.100s", json, ret);
		if (!strncmp(ret, "{\"return\"", 9))
			return 0;
	}
}
