/* SPDX-License-Identifier: Apache-2.0 */
/* A command in a sandbox, through the tree and nothing else, by one process that keeps nothing open.
 *
 *   exec     ARGUMENT = run/ID. Write --text into cmd, close, read wait to the end: its record.
 *   output   the same, then read all of stdout, which must be --bytes long.
 *   create-drained   as create, when the pool of one machine (--pool) has just been emptied by another sandbox.
 *   create   ARGUMENT = run. mkdir, then as exec: timed from the mkdir to the record. Then, untimed, rmdir, and the
 *wait until no process of the sandbox's user ids is left, so that its end costs the next run nothing. */
#include "tools/bench/turns.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/bench/tree.h"

struct sandbox {
	const char *dir;
	const struct bench_opts *o;
	unsigned count;
	char record[TREE_RECORD_MAX];
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

static int command(struct sandbox *s, const char *dir, struct err *e)
{
	return tree_command(dir, s->o->text, s->record, e);
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

static int create_timed(struct sandbox *s, uint64_t *ret_ns, struct err *e)
{
	struct tree_uids uids = { 0 };
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
		r = tree_uids(dir, &uids, e);
	if (r < 0) {
		rmdir(dir);
		return r;
	}
	*ret_ns = ended - began;
	return tree_destroy(dir, &uids, e);
}

static int create_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct sandbox *s = op;
	int r = tree_wait_pool(s->o->pool, e);

	return r < 0 ? r : create_timed(s, ret_ns, e);
}

/* Not timed: one that takes what the pool of one machine has. Then one that finds it empty. */
static int create_drained_run(void *op, uint64_t *ret_ns, struct err *e)
{
	struct sandbox *s = op;
	struct tree_uids uids = { 0 };
	char dir[PATH_MAX];
	int r = tree_wait_pool(s->o->pool, e);

	if (r < 0)
		return r;
	snprintf(dir, sizeof(dir), "%s/bench-%u", s->dir, ++s->count);
	if (mkdir(dir, 0755) < 0)
		return err_set(e, -errno, "%s: mkdir: %s", dir, strerror(errno));
	r = command(s, dir, e);
	if (r == 0)
		r = create_timed(s, ret_ns, e);
	if (r == 0)
		r = tree_uids(dir, &uids, e);
	if (r < 0) {
		rmdir(dir);
		return r;
	}
	return tree_destroy(dir, &uids, e);
}

const struct bench_op bench_op_exec = { "exec", sandbox_open, exec_run, sandbox_close, { 0 } };
const struct bench_op bench_op_output = { "output", sandbox_open, output_run, sandbox_close, { 0 } };
const struct bench_op bench_op_create_drained = {
	"create-drained", sandbox_open, create_drained_run, sandbox_close, { 0 }
};
const struct bench_op bench_op_create = { "create", sandbox_open, create_run, sandbox_close, { 0 } };
