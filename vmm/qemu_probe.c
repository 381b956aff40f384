/* SPDX-License-Identifier: Apache-2.0 */
/* Which QEMU is installed and what it can do. Runs once, before the daemon's loop; it alone may block. */
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "vmm/machine.h"

#define ANSWER_MAX	  16384
#define ANSWER_TIMEOUT_NS (10u * 1000000000ull)
#define VERSION_MAJOR	  7
#define VERSION_MINOR	  2

static const char *const places[] = { "/usr/bin/qemu-system-x86_64", "/usr/local/bin/qemu-system-x86_64" };

/* Read what the child prints until it closes its output. -ETIMEDOUT, -EFBIG, -EIO. */
static int read_answer(int fd, char *out, size_t cap)
{
	uint64_t end = now_ns() + ANSWER_TIMEOUT_NS;
	size_t len = 0;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = now_ns();
		ssize_t n;

		if (now >= end || poll(&p, 1, (int)((end - now) / 1000000) + 1) == 0)
			return -ETIMEDOUT;
		n = read(fd, out + len, cap - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -EIO;
		len += (size_t)n;
		out[len] = '\0';
		if (n == 0)
			return 0;
		if (len == cap - 1)
			return -EFBIG;
	}
}

/* Run `@path @a @b` (b may be NULL) and take what it prints on standard output and error. */
static int ask(const char *path, const char *a, const char *b, char *out, size_t cap, struct err *e)
{
	char *argv[] = { (char *)path, (char *)a, (char *)b, NULL };
	posix_spawn_file_actions_t fa;
	AUTO_FD rd = -1;
	AUTO_FD wr = -1;
	int fds[2], r, status = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set(e, -EIO, "%s: pipe: %s", path, err_name(-errno));
	rd = fds[0];
	wr = fds[1];
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, wr, 1);
	posix_spawn_file_actions_adddup2(&fa, wr, 2);
	r = posix_spawn(&pid, path, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	if (r != 0)
		return err_set(e, r == ENOENT ? -ENOENT : -EIO, "%s: %s", path, err_name(-r));
	fd_close(&wr);
	r = read_answer(rd, out, cap);
	if (r < 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return err_set(e, -EIO, "%s %s: %s", path, a, err_name(r));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		return err_set(e, -EIO, "%s %s: failed: %.120s", path, a, out);
	return 0;
}

/* "QEMU emulator version 7.2.22 (Debian …)" */
static int parse_version(const char *text, struct engine_info *ret, struct err *e)
{
	static const char mark[] = "version ";
	const char *v = strstr(text, mark);
	unsigned long major, minor;
	char *end;
	size_t n;

	v = v ? v + strlen(mark) : "";
	n = strspn(v, "0123456789.");
	if (n == 0 || n >= sizeof(ret->version))
		return err_set(e, -EIO, "%s: says no version", ret->path);
	memcpy(ret->version, v, n);
	ret->version[n] = '\0';
	major = strtoul(ret->version, &end, 10);
	minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
	if (major < VERSION_MAJOR || (major == VERSION_MAJOR && minor < VERSION_MINOR))
		return err_set(e, -ENOSYS, "%s: version %s is too old, at least %d.%d is needed", ret->path,
			       ret->version, VERSION_MAJOR, VERSION_MINOR);
	return 0;
}

/* `-accel help`: a heading, then one name a line. */
static bool has_line(const char *text, const char *word)
{
	size_t n = strlen(word);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, word, n) == 0 && (line[n] == '\n' || line[n] == '\0' || line[n] == '\r'))
			return true;
	}
	return false;
}

static const char *find_program(const char *path_or_null)
{
	if (path_or_null)
		return path_or_null;
	for (size_t i = 0; i < ARRAY_LEN(places); i++)
		if (access(places[i], X_OK) == 0)
			return places[i];
	return NULL;
}

/* Opened, since a node may be there without its driver; one that is not for us is for the launcher, which is root. */
static bool has_taps(void)
{
	AUTO_FD fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	return fd >= 0 || errno == EACCES;
}

int qemu_probe(const char *path_or_null, struct engine_info *ret, struct err *e)
{
	const char *path = find_program(path_or_null);
	struct engine_info info = { .name = "qemu", .caps = ENGINE_CAP_PAUSE | ENGINE_CAP_SAVE_STATE };
	char answer[ANSWER_MAX] = "";
	int r;

	if (!path)
		return err_set(e, -ENOENT, "qemu-system-x86_64 is not installed: apt-get install qemu-system-x86");
	if (strlen(path) >= sizeof(info.path))
		return err_set(e, -EIO, "%.80s…: the path is too long", path);
	memcpy(info.path, path, strlen(path) + 1);
	r = ask(path, "--version", NULL, answer, sizeof(answer), e);
	if (r == -ENOENT)
		return err_set(e, r, "%s is not there: apt-get install qemu-system-x86", path);
	if (r < 0)
		return r;
	r = parse_version(answer, &info, e);
	if (r < 0)
		return r;
	r = ask(path, "-accel", "help", answer, sizeof(answer), e);
	if (r < 0)
		return r;
	if (has_line(answer, "tcg"))
		info.caps |= ENGINE_CAP_TCG;
	if (has_line(answer, "kvm"))
		info.caps |= ENGINE_CAP_KVM;
	if (!(info.caps & (ENGINE_CAP_TCG | ENGINE_CAP_KVM)))
		return err_set(e, -EIO, "%s: offers neither tcg nor kvm", path);
	if (has_taps())
		info.caps |= ENGINE_CAP_NET;
	machine_cpu_vendor(info.cpu_vendor);
	*ret = info;
	return 0;
}
