/* SPDX-License-Identifier: Apache-2.0 */
/* What the relay costs, on loopback: bytes from one process to another, without it and through it. It asserts that they
 * arrive and prints figures; none of them is a limit. FIGURES_MIB=N: so many a run. */
#include "tests/unit/relay_rig.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

#define PORT  8000
#define THERE "127.0.0.2"
#define RUNS  3
#define CHUNK (256u * 1024u)
#define TURNS 2000u

static struct relay_rig rig;
static uint64_t bytes;
static uint8_t chunk[CHUNK];

static int world(void **state)
{
	const char *mib = getenv("FIGURES_MIB");

	bytes = (mib ? strtoull(mib, NULL, 10) : 64) << 20;
	return rig_world(state);
}

/* A child that runs @fn on @fd, which blocks there, and ends with 0 if that is true. It must not hold @other open. */
static pid_t in_child(bool (*fn)(int fd), int fd, int other)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0 && other >= 0)
		close(other);
	if (pid == 0)
		_exit(fd_set_nonblock(fd, false) == 0 && fn(fd) ? 0 : 1);
	close(fd);
	return pid;
}

static void reap(pid_t pid)
{
	int status = -1;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static bool source(int fd)
{
	for (uint64_t at = 0; at < bytes; at += CHUNK)
		if (fd_write_all(fd, chunk, CHUNK) < 0)
			return false;
	return true;
}

static bool sink(int fd)
{
	uint64_t got = 0;
	ssize_t n;

	while ((n = read(fd, chunk, CHUNK)) > 0)
		got += (uint64_t)n;
	return got == bytes;
}

static bool asks(int fd)
{
	for (unsigned i = 0; i < TURNS; i++)
		if (fd_write_all(fd, chunk, 64) < 0 || fd_read_all(fd, chunk, 64) < 0)
			return false;
	return true;
}

static bool answers(int fd)
{
	for (unsigned i = 0; i < TURNS; i++)
		if (fd_read_all(fd, chunk, 64) < 0 || fd_write_all(fd, chunk, 64) < 0)
			return false;
	return true;
}

enum way { DIRECT, SPLICED, COPIED, WAY_COUNT };
static const char *const way_names[] = { "direct", "relay, splice", "relay, copy" };
static_assert(ARRAY_LEN(way_names) == WAY_COUNT, "every way has a name");

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts), 0);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

struct cost {
	uint64_t ns;  /* from the start of both processes to the end of both */
	uint64_t cpu; /* of the relay's process */
};

static struct cost run(enum way way, bool (*near)(int fd), bool (*far)(int fd))
{
	int server, a, b;
	struct cost c;
	pid_t pids[2];

	rig_start(&rig, PORT);
	rig.relay->copy = way == COPIED;
	server = rig_listen(OUTSIDE, THERE, PORT, 8);
	a = rig_dial(way == DIRECT ? OUTSIDE : INSIDE, THERE, PORT);
	b = rig_accept(&rig, server);
	fd_close(&server);
	rig_run(&rig, way == DIRECT || (rig.relay->conns && rig.relay->conns->state == RELAY_OPEN));
	c = (struct cost){ now_ns(), cpu_ns() };
	pids[0] = in_child(near, a, b);
	pids[1] = in_child(far, b, -1);
	if (way != DIRECT)
		rig_run(&rig, rig.nevents == 1);
	for (int i = 0; i < 2; i++)
		reap(pids[i]);
	c = (struct cost){ now_ns() - c.ns, cpu_ns() - c.cpu };
	if (way != DIRECT)
		assert_string_equal(rig.events[0].reason, "");
	rig_stop(&rig);
	return c;
}

static void best_of(struct cost best[WAY_COUNT], bool (*near)(int fd), bool (*far)(int fd))
{
	for (int w = 0; w < WAY_COUNT; w++)
		best[w] = (struct cost){ UINT64_MAX, UINT64_MAX };
	for (int i = 0; i < RUNS; i++) {
		for (int w = 0; w < WAY_COUNT; w++) {
			struct cost c = run((enum way)w, near, far);

			best[w].ns = c.ns < best[w].ns ? c.ns : best[w].ns;
			best[w].cpu = c.cpu < best[w].cpu ? c.cpu : best[w].cpu;
		}
	}
}

static void test_throughput(void **state)
{
	struct cost best[WAY_COUNT];

	(void)state;
	best_of(best, source, sink);
	for (int w = 0; w < WAY_COUNT; w++)
		printf("%-14s %6.0f MB/s  %.2f of direct  %5.0f ms of this process' CPU a GB\n", way_names[w],
		       (double)bytes * 1e3 / (double)best[w].ns, (double)best[DIRECT].ns / (double)best[w].ns,
		       (double)best[w].cpu * 1e3 / (double)bytes);
}

static void test_turns(void **state)
{
	struct cost best[WAY_COUNT];

	(void)state;
	best_of(best, asks, answers);
	for (int w = 0; w < WAY_COUNT; w++)
		printf("%-14s %6.1f us a question and its answer  %5.1f us of this process' CPU\n", way_names[w],
		       (double)best[w].ns / 1e3 / TURNS, (double)best[w].cpu / 1e3 / TURNS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_throughput),
		cmocka_unit_test(test_turns),
	};

	return cmocka_run_group_tests(tests, world, NULL);
}
