/* SPDX-License-Identifier: Apache-2.0 */
/* A command in a sandbox, through the tree and nothing else, by one process that keeps nothing open.
 *
 *   exec     ARGUMENT = run/ID. Write --text into cmd, close, read wait to the end: its record.
 *   output   the same, then read all of stdout, which must be --bytes long.
 *   create   ARGUMENT = run. mkdir, then as exec: timed from the mkdir to the record. Then, untimed, rmdir, and the
 *wait until no process of the sandbox's user ids is left, so that its end costs the next run nothing. */
#include "tools/bench/turns.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

#define RECORD_MAX (256u * 1024u)
#define GONE_MS	   10000u

struct sandbox {
	const char *dir;
	const struct bench_opts *o;
	unsigned count;
	char record[RECORD_MAX];
};

static int sandbox_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct sandbox *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, -ENOMEM, "no memory");
	s->dir = arg;
	s->o = o;
	*ret = s;
	return 0;
}

static void sandbox_close(void *op)
{
	free(op);
}

static int slurp(const char *dir, const char *name, char *buf, size_t cap, struct err *e)
{
	char path[PATH_MAX];
	AUTO_FD fd = -1;
	size_t have = 0;
	ssize_t n = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, -errno, "%s: open: %s", path, strerror(errno));
	while (have + 1 < cap && (n = read(fd, buf + have, cap - 1 - have)) > 0)
		have += (size_t)n;
	if (n < 0)
		return err_set(e, -errno, "%s: read: %s", path, strerror(errno));
	buf[have] = '\0';
	return 0;
}

static int put(const char *dir, const char *name, const char *text, struct err *e)
{
	char path[PATH_MAX];
	AUTO_FD fd = -1;
	int r;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, -errno, "%s: open: %s", path, strerror(errno));
	r = fd_write_all(fd, text, strlen(text));
	return r < 0 ? err_set(e, r, "%s: write: %s", path, strerror(-r)) : 0;
}

static int command(struct sandbox *s, const char *dir, struct err *e)
{
	int r = put(dir, "cmd", s->o->text, e);

	if (r == 0)
		r = slurp(dir, "wait", s->record, sizeof(s->record), e);
	if (r == 0 && !strstr(s->record, "\"exit_code\":0,"))
		r = err_set(e, -EIO, "%s: no exit code 0: %.200s", dir, s->record);
	return r;
}

static int exec_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct sandbox *s = op;
	uint64_t began = bench_now_ns();
	int r = command(s, s->dir, e);

	if (r < 0)
		return r;
	*ret_ns = bench_now_ns() - began;
	return 0;
}

static int output_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct sandbox *s = op;
	uint64_t began = bench_now_ns(), have = 0;
	char path[PATH_MAX];
	AUTO_FD fd = -1;
	int r = command(s, s->dir, e);
	ssize_t n;

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/stdout", s->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set(e, -errno, "%s: open: %s", path, strerror(errno));
	while ((n = read(fd, s->record, sizeof(s->record))) > 0)
		have += (uint64_t)n;
	*ret_ns = bench_now_ns() - began;
	if (n < 0 || have != s->o->bytes)
		return err_set(e, -EIO, "%s: %llu bytes, not %llu", path, (unsigned long long)have,
			       (unsigned long long)s->o->bytes);
	return 0;
}

/* -- create ----------------------------------------------------------------------------------------------------- */

/* The two user ids of a sandbox's processes, of its info.json. */
static int uids_of(const char *dir, unsigned long ret[2], struct err *e)
{
	static const char *const keys[] = { "\"engine_uid\":", "\"box_uid\":" };
	char info[4096];
	int r = slurp(dir, "info.json", info, sizeof(info), e);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(keys); i++) {
		char *at = strstr(info, keys[i]);

		if (!at)
			return err_set(e, -EIO, "%s/info.json: no %s", dir, keys[i]);
		ret[i] = strtoul(at + strlen(keys[i]), NULL, 10);
	}
	return r;
}

/* A process that may not be dumped belongs to root in /proc; its status tells who it is. */
static unsigned long uid_of(int procfd, const char *pid)
{
	char path[300], text[1024];
	AUTO_FD fd = -1;
	ssize_t n;
	char *at;

	snprintf(path, sizeof(path), "%s/status", pid);
	fd = openat(procfd, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return 0;
	text[n] = '\0';
	at = strstr(text, "\nUid:");
	return at ? strtoul(at + strlen("\nUid:"), NULL, 10) : 0;
}

static bool process_of(const unsigned long uids[2])
{
	DIR *d = opendir("/proc");
	struct dirent *entry;
	bool found = false;

	if (!d)
		return false;
	while (!found && (entry = readdir(d)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
			unsigned long uid = uid_of(dirfd(d), entry->d_name);

			found = uid != 0 && (uid == uids[0] || uid == uids[1]);
		}
	closedir(d);
	return found;
}

static int destroy(const char *dir, const unsigned long uids[2], struct err *e)
{
	const struct timespec tick = { .tv_nsec = 5 * 1000 * 1000 };
	uint64_t until = bench_now_ns() + GONE_MS * 1000000ull;

	if (rmdir(dir) < 0)
		return err_set(e, -errno, "%s: rmdir: %s", dir, strerror(errno));
	while (process_of(uids)) {
		if (bench_now_ns() > until)
			return err_set(e, -ETIMEDOUT, "%s: processes are left after its rmdir", dir);
		nanosleep(&tick, NULL);
	}
	return 0;
}

static int create_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct sandbox *s = op;
	unsigned long uids[2] = { 0 };
	char dir[PATH_MAX];
	uint64_t began, ended;
	int r;

	snprintf(dir, sizeof(dir), "%s/bench-%u", s->dir, ++s->count);
	began = bench_now_ns();
	if (mkdir(dir, 0755) < 0)
		return err_set(e, -errno, "%s: mkdir: %s", dir, strerror(errno));
	r = command(s, dir, e);
	ended = bench_now_ns();
	if (r == 0)
		r = uids_of(dir, uids, e);
	if (r < 0) {
		rmdir(dir);
		return r;
	}
	*ret_ns = ended - began;
	return destroy(dir, uids, e);
}

const struct bench_op bench_op_exec = { "exec", sandbox_open, exec_run, sandbox_close };
const struct bench_op bench_op_output = { "output", sandbox_open, output_run, sandbox_close };
const struct bench_op bench_op_create = { "create", sandbox_open, create_run, sandbox_close };
