/* SPDX-License-Identifier: Apache-2.0 */
/* A monitor that was taken over: any bytes, to a client that is in the middle of calls. */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vmm/engine.h"
#include "vmm/qmp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int on_object(void *arg, struct json_object *o)
{
	++*(size_t *)arg;
	assert(json_object_is_type(o, json_type_object));
	return 0;
}

/* The same objects come out however the stream is cut. */
static size_t objects(const uint8_t *data, size_t len, size_t piece, int *ret_code)
{
	struct qmp_parser p;
	size_t n = 0;
	int r = 0;

	qmp_parser_init(&p);
	for (size_t at = 0; r == 0 && at < len; at += piece)
		r = qmp_parser_feed(&p, (const char *)data + at, len - at < piece ? len - at : piece, on_object, &n);
	qmp_parser_fini(&p);
	*ret_code = r;
	return n;
}

struct seen {
	bool gone;
	int ended;
};

static void on_event(void *arg, enum engine_event ev, const char *detail)
{
	struct seen *s = arg;

	assert(strlen(detail) < 4096);
	s->gone |= ev == ENGINE_EV_GONE;
}

static void on_done(void *arg, int code, const struct err *e)
{
	struct seen *s = arg;

	assert(code == 0 || e);
	s->ended++;
}

static void converse(const uint8_t *data, size_t len, bool generic)
{
	static const char head[] = "{\"QMP\":{}}\n{\"return\":{},\"id\":1}\n";
	static const struct engine_events events = { .on_event = on_event };
	struct seen seen = { 0 };
	struct engine *g;
	struct loop *l;
	struct err e = { 0 };
	int pair[2], asked;

	if (len > 100000 || loop_new(&l) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	if (engine_qemu.connect(l, pair[0], generic, &events, &seen, &g, &e) < 0)
		abort();
	assert(write(pair[1], head, strlen(head)) == (ssize_t)strlen(head));
	loop_once(l, 0);
	/* Its answer has the id 2; those of the steps that follow count on. */
	asked = (generic ? engine_qemu.assign_disk(g, "m", 1000, on_done, &seen)
			 : engine_qemu.pause(g, 1000, on_done, &seen)) == 0;
	if (len)
		assert(write(pair[1], data, len) == (ssize_t)len);
	close(pair[1]);
	for (int i = 0; i < 100 && !seen.gone; i++)
		loop_once(l, 0);
	assert(seen.gone && seen.ended == asked); /* every call ends, once */
	engine_qemu.free(g);
	loop_free(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	size_t in_one, in_pieces;
	int whole, cut;

	if (len == 0)
		return 0;
	in_one = objects(data + 1, len - 1, len, &whole);
	in_pieces = objects(data + 1, len - 1, (size_t)data[0] % 16 + 1, &cut);
	assert(whole == cut && in_one == in_pieces);
	converse(data + 1, len - 1, data[0] & 0x80);
	return 0;
}
