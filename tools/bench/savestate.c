/* SPDX-License-Identifier: Apache-2.0 */
/* bench-savestate: saved states of a bare machine, for those who restore them the way people do it with QEMU alone.
 *
 *   bench-savestate DIR SCRIPT
 *
 * DIR is a folder as bare.h wants it, with `disk`, an overlay of its own, and RAM that is the file DIR/ram. It boots,
 * runs SCRIPT, and then leaves, as three states of the same machine:
 *
 *   DIR/loadvm.disk                              an internal snapshot `s` in its disk
 *   DIR/shared.state, shared.ram, shared.disk    the device state, the RAM beside it
 *   DIR/full.state, full.disk                    a stream with all of the RAM */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/proto.h"
#include "base/fd.h"
#include "tools/bench/bare.h"
#include "tools/bench/turns.h"

#define ANSWER_MAX 16384u

uint64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static char answer[ANSWER_MAX];

static int ask(struct bare *b, const char *json, int fd, struct err *e)
{
	return bare_monitor(b, json, fd, answer, sizeof(answer), e);
}

/* A copy with holes where there are zeros. */
static int copy(const char *dir, const char *from, const char *to, struct err *e)
{
	static char block[65536], zeros[65536];
	char path[PATH_MAX];
	AUTO_FD in = -1, out = -1;
	uint64_t off = 0;
	ssize_t n;
	int r = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, from);
	in = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "%s/%s", dir, to);
	out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (in < 0 || out < 0)
		return err_set(e, -errno, "%s: %s", path, strerror(errno));
	while (r == 0 && (n = read(in, block, sizeof(block))) > 0) {
		if (memcmp(block, zeros, (size_t)n) != 0)
			r = fd_pwrite_all(out, block, (size_t)n, off);
		off += (uint64_t)n;
	}
	if (r == 0 && ftruncate(out, (off_t)off) < 0)
		r = -errno;
	return r < 0 ? err_set(e, r, "%s: %s", path, strerror(-r)) : 0;
}

/* While it runs, so that a machine that loads it runs, too. It is stopped afterwards. */
static int migrate(struct bare *b, const char *dir, const char *name, bool shared, struct err *e)
{
	const struct timespec tick = { .tv_nsec = 5 * 1000 * 1000 };
	char path[PATH_MAX], text[200];
	AUTO_FD fd = -1;
	int r;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_set(e, -errno, "%s: %s", path, strerror(errno));
	snprintf(text, sizeof(text),
		 "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":[{\"capability\":"
		 "\"x-ignore-shared\",\"state\":%s}]}}\n",
		 shared ? "true" : "false");
	r = ask(b, text, -1, e);
	if (r == 0)
		r = ask(b, "{\"execute\":\"migrate-set-parameters\",\"arguments\":{\"max-bandwidth\":1099511627776}}\n",
			-1, e);
	if (r == 0)
		r = ask(b, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"f\"}}\n", fd, e);
	if (r == 0)
		r = ask(b, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:f\"}}\n", -1, e);
	while (r == 0) {
		r = ask(b, "{\"execute\":\"query-migrate\"}\n", -1, e);
		if (r == 0 && strstr(answer, "\"completed\""))
			return 0;
		if (r == 0 && strstr(answer, "\"failed\""))
			r = err_set(e, -EIO, "%s: migrate: %.120s", name, answer);
		nanosleep(&tick, NULL);
	}
	return r;
}

static int save(struct bare *b, const char *dir, struct err *e)
{
	int r = ask(b, "{\"execute\":\"qmp_capabilities\"}\n", -1, e);

	if (r == 0)
		r = ask(b, "{\"execute\":\"human-monitor-command\",\"arguments\":{\"command-line\":\"savevm s\"}}\n",
			-1, e);
	if (r == 0 && strstr(answer, "Error"))
		r = err_set(e, -EIO, "savevm: %.120s", answer);
	if (r == 0)
		r = copy(dir, "disk", "loadvm.disk", e);
	if (r == 0) /* else each of the others carries it along */
		r = ask(b, "{\"execute\":\"human-monitor-command\",\"arguments\":{\"command-line\":\"delvm s\"}}\n", -1,
			e);
	if (r == 0)
		r = migrate(b, dir, "shared.state", true, e);
	if (r == 0)
		r = copy(dir, "ram", "shared.ram", e);
	if (r == 0)
		r = copy(dir, "disk", "shared.disk", e);
	if (r == 0)
		r = ask(b, "{\"execute\":\"cont\"}\n", -1, e);
	if (r == 0)
		r = migrate(b, dir, "full.state", false, e);
	return r < 0 ? r : copy(dir, "disk", "full.disk", e);
}

static int save_images(struct bare *b, const char *dir, const char *script, unsigned n, struct err *e)
{
	int r = ask(b, "{\"execute\":\"qmp_capabilities\"}\n", -1, e);
	char text[2048], name[32];

	for (unsigned i = 1; i <= n && r == 0; i++) {
		snprintf(text, sizeof(text), "set %u\n%.1900s", i, script);
		snprintf(name, sizeof(name), "image.%u", i);
		r = bare_script(b, text, e);
		if (r == 0)
			r = ask(b, "{\"execute\":\"stop\"}\n", -1, e);
		if (r == 0)
			r = copy(dir, "ram", name, e);
		if (r == 0)
			r = ask(b, "{\"execute\":\"cont\"}\n", -1, e);
	}
	return r;
}

int main(int argc, char **argv)
{
	static struct bare b;
	struct bare_kind k;
	struct err e = { 0 };
	int r;

	if (argc != 3 && argc != 4) {
		fputs("usage: bench-savestate DIR SCRIPT [IMAGES]\n", stderr);
		return 2;
	}
	r = bare_kind_open(argv[1], &k, &e);
	if (r == 0)
		r = bare_prepare(&k, &b, &e);
	if (r == 0) {
		r = bare_start(&k, &b, &e);
		if (r == 0)
			r = bare_hear_stage(&b, AG_STAGE_HELLO, &e);
		if (r == 0)
			r = bare_say_hello(&b, &e);
		if (r == 0)
			r = bare_hear_hello(&b, &e);
		if (r == 0 && argc == 4) {
			r = save_images(&b, argv[1], argv[2], (unsigned)strtoul(argv[3], NULL, 10), &e);
		} else if (r == 0) {
			r = bare_script(&b, argv[2], &e);
			if (r == 0)
				r = save(&b, argv[1], &e);
		}
		bare_end(&b);
	}
	bare_kind_close(&k);
	if (r < 0)
		fprintf(stderr, "bench-savestate: %s\n", e.msg);
	return r < 0;
}
