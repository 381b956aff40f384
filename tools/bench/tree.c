/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/bench/turns.h"

#define GONE_MS	 20000u
#define POOL_MS	 20000u
#define UIDS	 32768ul /* of engines and boxes; behind them are the services (cruciblefs/launch/launch.h) */
#define ARGS_MAX 8192u

static const struct timespec tick = { .tv_nsec = 5 * 1000 * 1000 };

int tree_read(const char *dir, const char *name, char *buf, size_t cap, struct err *e)
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

int tree_write(const char *dir, const char *name, const char *text, struct err *e)
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

int tree_command(const char *dir, const char *text, char *record, struct err *e)
{
	int r = tree_write(dir, "cmd", text, e);

	if (r == 0)
		r = tree_read(dir, "wait", record, TREE_RECORD_MAX, e);
	if (r == 0 && !strstr(record, "\"exit_code\":0,"))
		r = err_set(e, -EIO, "%s: no exit code 0: %.200s", dir, record);
	return r;
}

static int number_of(const char *dir, const char *info, const char *key, unsigned long *ret, struct err *e)
{
	const char *at = strstr(info, key);

	if (!at)
		return err_set(e, -EIO, "%s: no %s", dir, key);
	*ret = strtoul(at + strlen(key), NULL, 10);
	return 0;
}

int tree_uids(const char *dir, struct tree_uids *ret, struct err *e)
{
	char info[4096];
	int r = tree_read(dir, "info.json", info, sizeof(info), e);

	if (r == 0)
		r = number_of(dir, info, "\"engine_uid\":", &ret->engine, e);
	if (r == 0)
		r = number_of(dir, info, "\"box_uid\":", &ret->box, e);
	return r;
}

/* -- processes ------------------------------------------------------------------------------------------------------
 */

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

typedef void process_fn(void *arg, int procfd, const char *pid, unsigned long uid);

static void each_process(process_fn *fn, void *arg)
{
	DIR *d = opendir("/proc");
	struct dirent *entry;

	if (!d)
		return;
	while ((entry = readdir(d)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
			fn(arg, dirfd(d), entry->d_name, uid_of(dirfd(d), entry->d_name));
	closedir(d);
}

struct search {
	const unsigned long *uids;
	size_t n;
	pid_t *pids;
};

static void on_searched(void *arg, int procfd, const char *pid, unsigned long uid)
{
	struct search *s = arg;

	(void)procfd;
	for (size_t i = 0; i < s->n; i++)
		if (uid != 0 && s->uids[i] == uid)
			s->pids[i] = (pid_t)strtol(pid, NULL, 10);
}

void tree_pids(const unsigned long *uids, size_t n, pid_t *ret)
{
	struct search s = { uids, n, ret };

	memset(ret, 0, n * sizeof(*ret));
	each_process(on_searched, &s);
}

int tree_destroy(const char *dir, const struct tree_uids *u, struct err *e)
{
	uint64_t until = bench_now_ns() + GONE_MS * 1000000ull;
	unsigned long uids[] = { u->engine, u->box };
	pid_t pids[2];

	if (rmdir(dir) < 0)
		return err_set(e, -errno, "%s: rmdir: %s", dir, strerror(errno));
	for (;;) {
		tree_pids(uids, ARRAY_LEN(uids), pids);
		if (!pids[0] && !pids[1])
			return 0;
		if (bench_now_ns() > until)
			return err_set(e, -ETIMEDOUT, "%s: processes are left after its rmdir", dir);
		nanosleep(&tick, NULL);
	}
}

/* -- the pool ---------------------------------------------------------------------------------------------------------
 */

struct pool {
	unsigned long first;
	size_t n;
};

/* A generic engine: it was started with -incoming. Whoever asks has ended all forks. */
static void on_pooled(void *arg, int procfd, const char *pid, unsigned long uid)
{
	static const char word[] = "-incoming";
	struct pool *p = arg;
	char path[300], args[ARGS_MAX];
	AUTO_FD fd = -1;
	ssize_t n;

	if (uid < p->first || uid >= p->first + UIDS)
		return;
	snprintf(path, sizeof(path), "%s/cmdline", pid);
	fd = openat(procfd, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, args, sizeof(args));
	if (n > 0 && memmem(args, (size_t)n, word, sizeof(word)))
		p->n++;
}

/* "SIZE":N and "READY":N of `pool` in health.json. */
static int is_full(const char *mount, const char *pool, const char *size, const char *ready, struct err *e)
{
	unsigned long want = 0, have = 0;
	int r = number_of(mount, pool, size, &want, e);

	if (r == 0)
		r = number_of(mount, pool, ready, &have, e);
	return r < 0 ? r : have >= want;
}

int tree_wait_full(const char *mount, struct err *e)
{
	uint64_t until = bench_now_ns() + POOL_MS * 1000000ull;

	for (;;) {
		char health[8192];
		const char *pool;
		int r = tree_read(mount, "health.json", health, sizeof(health), e);

		if (r < 0)
			return r;
		pool = strstr(health, "\"pool\":");
		if (!pool)
			return err_set(e, -EIO, "%s/health.json: no pool", mount);
		r = is_full(mount, pool, "\"size\":", "\"ready\":", e);
		if (r > 0)
			r = is_full(mount, pool, "\"warm_size\":", "\"fork_ready\":", e);
		if (r != 0)
			return r < 0 ? r : 0;
		if (bench_now_ns() > until)
			return err_set(e, -ETIMEDOUT, "%s: not all machines that are to wait do: %.200s", mount, pool);
		nanosleep(&tick, NULL);
	}
}

int tree_wait_pool(const char *pool, struct err *e)
{
	const struct timespec settle = { .tv_nsec = 150 * 1000 * 1000 }; /* its monitor and its box answer */
	uint64_t until = bench_now_ns() + POOL_MS * 1000000ull;
	size_t want, seen = SIZE_MAX;
	struct pool p = { 0 };
	char *colon;

	if (!pool)
		return 0;
	p.first = strtoul(pool, &colon, 10);
	want = *colon == ':' ? strtoul(colon + 1, NULL, 10) : 0;
	for (;;) {
		p.n = 0;
		each_process(on_pooled, &p);
		if (p.n >= want) {
			nanosleep(&settle, NULL);
			return 0;
		}
		if (p.n > seen || seen == SIZE_MAX) /* it is being filled */
			until = bench_now_ns() + POOL_MS * 1000000ull;
		seen = p.n;
		if (bench_now_ns() > until)
			return err_set(e, -ETIMEDOUT, "the pool has %zu of %zu engines and gets no more", p.n, want);
		nanosleep(&tick, NULL);
	}
}
