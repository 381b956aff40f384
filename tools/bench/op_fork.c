/* SPDX-License-Identifier: Apache-2.0 */
/* Forks of a snapshot, through the tree. ARGUMENT = MOUNT:SNAPSHOT.
 *
 *   fork         marks: reply, from the open of `fork` to the return of its close, which says that the fork has
 * answered; result, to the record of --text fork-burst   --bytes forks by one write; marks as those of restore-burst
 * (op_restore.c)
 *
 * Before each run the pool is full again (--pool; `full`: and the machine of the snapshot waits, as the daemon says),
 * after it the forks are removed; neither is timed. */
#include "tools/bench/turns.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/bench/memory.h"
#include "tools/bench/tree.h"

#define BURST_MAX 64u

struct forks {
	const struct bench_opts *o;
	const char *mount;
	char snapshot[PATH_MAX]; /* its folder */
	uint64_t ram_bytes;
	unsigned count;
	char record[TREE_RECORD_MAX];
};

static int forks_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct forks *s = calloc(1, sizeof(*s));
	char info[8192], *colon = strchr(arg, ':');
	const char *at;
	int r;

	if (!s)
		return err_set(e, -ENOMEM, "no memory");
	*ret = s;
	if (!colon)
		return err_set(e, -EINVAL, "%s: not MOUNT:SNAPSHOT", arg);
	*colon = '\0'; /* of argv: ours */
	s->o = o;
	s->mount = arg;
	snprintf(s->snapshot, sizeof(s->snapshot), "%s/snapshots/%s", arg, colon + 1);
	r = tree_read(s->snapshot, "info.json", info, sizeof(info), e);
	at = r < 0 ? NULL : strstr(info, "\"memory_bytes\":");
	s->ram_bytes = at ? strtoull(at + strlen("\"memory_bytes\":"), NULL, 10) : 0;
	return r;
}

static void forks_close(void *op)
{
	free(op);
}

/* What the tree says about a fork that failed. */
static int in_words(const struct forks *s, int r, struct err *e)
{
	char words[160];
	struct err other = { 0 };

	if (r < 0 && tree_read(s->snapshot, "error", words, sizeof(words), &other) == 0)
		err_set(e, r, "%s", words);
	return r;
}

static int wait_pool(const struct forks *s, struct err *e)
{
	bool full = s->o->pool && strcmp(s->o->pool, "full") == 0;

	return full ? tree_wait_full(s->mount, e) : tree_wait_pool(s->o->pool, e);
}

static int fork_run(void *op, uint64_t *ret, struct err *e)
{
	struct forks *s = op;
	struct tree_uids uids = { 0 };
	char name[32], dir[PATH_MAX];
	uint64_t began;
	int r = wait_pool(s, e);

	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "bench-fork-%u", ++s->count);
	snprintf(dir, sizeof(dir), "%s/run/%s", s->mount, name);
	began = bench_now_ns();
	r = tree_write(s->snapshot, "fork", name, e);
	ret[0] = bench_now_ns() - began;
	if (r < 0)
		return in_words(s, r, e);
	r = tree_command(dir, s->o->text, s->record, e);
	ret[1] = bench_now_ns() - began;
	if (r == 0)
		r = tree_uids(dir, &uids, e);
	if (r < 0) {
		rmdir(dir);
		return r;
	}
	return tree_destroy(dir, &uids, e);
}

/* Names of the burst, one a line. */
static void burst_names(unsigned run, size_t n, char *out, size_t cap)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++)
		used += (size_t)snprintf(out + used, cap - used, "bench-%u-%zu\n", run, i);
}

static int burst_measure(struct forks *s, size_t n, uint64_t *ret, struct tree_uids *uids, struct err *e)
{
	uint64_t guest = 0, engine = 0;
	unsigned long engines[BURST_MAX];
	pid_t pids[BURST_MAX];
	char dir[PATH_MAX];

	for (size_t i = 0; i < n; i++) {
		snprintf(dir, sizeof(dir), "%s/run/bench-%u-%zu", s->mount, s->count, i);
		if (tree_uids(dir, &uids[i], e) < 0)
			return e->code;
		engines[i] = uids[i].engine;
	}
	tree_pids(engines, n, pids);
	for (size_t i = 0; i < n; i++)
		memory_of_engine(pids[i], s->ram_bytes, &guest, &engine);
	ret[3] = guest / n;
	ret[4] = engine / n;
	return 0;
}

static int burst_run(void *op, uint64_t *ret, struct err *e)
{
	char names[BURST_MAX * 24], dir[PATH_MAX];
	struct tree_uids uids[BURST_MAX] = { 0 };
	struct forks *s = op;
	size_t n = s->o->bytes;
	uint64_t began, available, left;
	int r, k = 0;

	if (n == 0 || n > BURST_MAX)
		return err_set(e, -EINVAL, "--bytes: 1 to %u forks", BURST_MAX);
	r = wait_pool(s, e);
	if (r < 0)
		return r;
	burst_names(++s->count, n, names, sizeof(names));
	available = memory_available();
	began = bench_now_ns();
	r = tree_write(s->snapshot, "fork", names, e);
	ret[0] = bench_now_ns() - began;
	left = memory_available();
	if (r < 0)
		return in_words(s, r, e);
	ret[1] = ret[0] / n;
	ret[2] = available > left ? (available - left) / n : 0;
	r = burst_measure(s, n, ret, uids, e);
	for (size_t i = 0; i < n; i++) {
		struct err other = { 0 };

		snprintf(dir, sizeof(dir), "%s/run/bench-%u-%zu", s->mount, s->count, i);
		k = tree_destroy(dir, &uids[i], &other);
		if (k < 0 && r == 0)
			r = err_set(e, k, "%s", other.msg);
	}
	return r;
}

const struct bench_op bench_op_fork = { "fork", forks_open, fork_run, forks_close, { "reply", "result" } };
const struct bench_op bench_op_fork_burst = {
	"fork-burst", forks_open, burst_run, forks_close, { "wall", "child", "available", "guest", "engine" },
};
