/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot of what runs. Before each run --text is run in the guest, untimed (it dirties memory).
 *
 *   snapshot     ARGUMENT = MOUNT:SANDBOX. Marks: pause, as info.json tells; call, the write into `snapshot`, after
 * which it can be forked; ready, until it is stored. It is removed afterwards. migrate      ARGUMENT = a folder
 * (bare.h): a bare machine that is started at the first run and stays. Stopped, all of its memory into a file, resumed.
 * Marks: pause and call, the whole; ready, with an fdatasync. background   the same machine with QEMU's
 * background-snapshot. Marks: pause, as query-migrate tells (downtime); call and ready as above. */
#include "tools/bench/turns.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/proto.h"
#include "base/fd.h"
#include "tools/bench/bare.h"
#include "tools/bench/tree.h"

#define READY_MS   60000u
#define ANSWER_MAX 16384u

static const struct timespec tick = { .tv_nsec = 1000 * 1000 };

struct snapshots {
	const struct bench_opts *o;
	char sandbox[PATH_MAX];
	const char *mount;
	unsigned count;
	char record[TREE_RECORD_MAX];
};

static int snapshots_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct snapshots *s = calloc(1, sizeof(*s));
	char *colon = strchr(arg, ':');

	if (!s)
		return err_set(e, -ENOMEM, "no memory");
	*ret = s;
	if (!colon)
		return err_set(e, -EINVAL, "%s: not MOUNT:SANDBOX", arg);
	*colon = '\0'; /* of argv: ours */
	s->o = o;
	s->mount = arg;
	snprintf(s->sandbox, sizeof(s->sandbox), "%s/run/%s", arg, colon + 1);
	return 0;
}

static void snapshots_close(void *op)
{
	free(op);
}

static int wait_ready(const char *dir, struct err *e)
{
	uint64_t until = bench_now_ns() + READY_MS * 1000000ull;
	char status[64];

	for (;;) {
		int r = tree_read(dir, "status", status, sizeof(status), e);

		if (r < 0)
			return r;
		if (!strncmp(status, "ready", 5))
			return 0;
		if (!strncmp(status, "failed", 6) || bench_now_ns() > until)
			return err_set(e, -EIO, "%s is %.20s", dir, status);
		nanosleep(&tick, NULL);
	}
}

static int snapshot_run(void *op, uint64_t *ret, struct err *e)
{
	static const char key[] = "\"pause_ms\":";
	struct snapshots *s = op;
	char name[32], dir[PATH_MAX], info[8192];
	uint64_t began;
	const char *at;
	int r = *s->o->text ? tree_command(s->sandbox, s->o->text, s->record, e) : 0;

	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "bench-%d-%u", (int)getpid(), ++s->count);
	snprintf(dir, sizeof(dir), "%s/snapshots/%s", s->mount, name);
	began = bench_now_ns();
	r = tree_write(s->sandbox, "snapshot", name, e);
	ret[1] = bench_now_ns() - began;
	if (r == 0)
		r = wait_ready(dir, e);
	ret[2] = bench_now_ns() - began;
	if (r == 0)
		r = tree_read(dir, "info.json", info, sizeof(info), e);
	if (r < 0)
		return r;
	at = strstr(info, key);
	if (!at)
		return err_set(e, -EIO, "%s/info.json: no pause_ms", dir);
	ret[0] = (uint64_t)(strtod(at + strlen(key), NULL) * 1e6);
	return rmdir(dir) < 0 ? err_set(e, -errno, "%s: rmdir: %s", dir, strerror(errno)) : 0;
}

/* -- QEMU alone -------------------------------------------------------------------------------------------------------
 */

struct migration {
	const struct bench_opts *o;
	struct bare_kind kind;
	struct bare b;
	bool up;
};

static int migration_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct migration *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, -ENOMEM, "no memory");
	s->o = o;
	*ret = s;
	return bare_kind_open(arg, &s->kind, e);
}

static void migration_close(void *op)
{
	struct migration *s = op;

	if (s->up)
		bare_end(&s->b);
	bare_kind_close(&s->kind);
	free(s);
}

static int bring_up(struct migration *s, const char *first, struct err *e)
{
	char answer[ANSWER_MAX];
	int r = bare_prepare(&s->kind, &s->b, e);

	s->up = true;
	if (r == 0)
		r = bare_start(&s->kind, &s->b, e);
	if (r == 0)
		r = bare_hear_stage(&s->b, AG_STAGE_HELLO, e);
	if (r == 0)
		r = bare_say_hello(&s->b, e);
	if (r == 0)
		r = bare_hear_hello(&s->b, e);
	if (r == 0 && first)
		r = bare_script(&s->b, first, e);
	if (r == 0)
		r = bare_monitor(&s->b, "{\"execute\":\"qmp_capabilities\"}\n", -1, answer, sizeof(answer), e);
	if (r == 0) /* no limit on its speed */
		r = bare_monitor(&s->b,
				 "{\"execute\":\"migrate-set-parameters\",\"arguments\":{\"max-bandwidth\":"
				 "1099511627776}}\n",
				 -1, answer, sizeof(answer), e);
	return r;
}

static int migrate(struct bare *b, int fd, char *answer, struct err *e)
{
	uint64_t until = bench_now_ns() + READY_MS * 1000000ull;
	int r = bare_monitor(b, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"f\"}}\n", fd, answer, ANSWER_MAX,
			     e);

	if (r == 0)
		r = bare_monitor(b, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:f\"}}\n", -1, answer,
				 ANSWER_MAX, e);
	while (r == 0) {
		r = bare_monitor(b, "{\"execute\":\"query-migrate\"}\n", -1, answer, ANSWER_MAX, e);
		if (r == 0 && strstr(answer, "\"completed\""))
			return 0;
		if (r == 0 && (strstr(answer, "\"failed\"") || bench_now_ns() > until))
			r = err_set(e, -EIO, "migrate: %.150s", answer);
		nanosleep(&tick, NULL);
	}
	return r;
}

static int migration_run(struct migration *s, bool background, uint64_t *ret, struct err *e)
{
	char answer[ANSWER_MAX], path[PATH_MAX];
	AUTO_FD fd = -1;
	uint64_t began;
	const char *at;
	int r = s->up ? 0 : bring_up(s, s->o->file, e);

	if (r == 0 && *s->o->text)
		r = bare_script(&s->b, s->o->text, e);
	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/out", s->kind.dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, -errno, "%s: %s", path, strerror(errno));
	if (background)
		r = bare_monitor(&s->b,
				 "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":[{"
				 "\"capability\":\"background-snapshot\",\"state\":true}]}}\n",
				 -1, answer, sizeof(answer), e);
	began = bench_now_ns();
	if (r == 0 && !background)
		r = bare_monitor(&s->b, "{\"execute\":\"stop\"}\n", -1, answer, sizeof(answer), e);
	if (r == 0)
		r = migrate(&s->b, fd, answer, e);
	at = strstr(answer, "\"downtime\": ");
	ret[0] = background && at ? strtoull(at + 12, NULL, 10) * 1000000u : 0;
	if (r == 0 && !background)
		r = bare_monitor(&s->b, "{\"execute\":\"cont\"}\n", -1, answer, sizeof(answer), e);
	ret[1] = bench_now_ns() - began;
	if (!background)
		ret[0] = ret[1];
	if (r == 0 && fdatasync(fd) < 0)
		r = err_set(e, -errno, "%s: %s", path, strerror(errno));
	ret[2] = bench_now_ns() - began;
	unlink(path);
	return r;
}

static int migrate_run(void *op, uint64_t *ret, struct err *e)
{
	return migration_run(op, false, ret, e);
}

static int background_run(void *op, uint64_t *ret, struct err *e)
{
	return migration_run(op, true, ret, e);
}

const struct bench_op bench_op_snapshot = {
	"snapshot", snapshots_open, snapshot_run, snapshots_close, { "pause", "call", "ready" },
};
const struct bench_op bench_op_migrate = {
	"migrate", migration_open, migrate_run, migration_close, { "pause", "call", "ready" },
};
const struct bench_op bench_op_background = {
	"background", migration_open, background_run, migration_close, { "pause", "call", "ready" },
};
