/* SPDX-License-Identifier: Apache-2.0 */
/* A machine that goes on from a saved state, the way people do it with QEMU alone. ARGUMENT is a folder as bare.h wants
 * it; its arguments say which way: all of the RAM from a stream, an internal snapshot, a file of RAM mapped private.
 *
 *   restore         marks: reply, from the fork of the engine to the agent's answer to hello; result, to the end of
 * --text restore-burst   --bytes machines at once; marks: wall, from the first fork to the last answer; child, of one
 * machine; available, guest, engine: bytes of one machine (memory.h), when all have answered
 *
 * hello is written before the machine is there, so it costs no turn. The copy of the disk is made before. */
#include "tools/bench/turns.h"

#include <stdlib.h>

#include "tools/bench/bare.h"
#include "tools/bench/memory.h"

#define BURST_MAX 64u

struct restore {
	const struct bench_opts *o;
	struct bare_kind kind;
	struct bare machines[BURST_MAX];
};

static int restore_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct restore *s = calloc(1, sizeof(*s));

	if (!s)
		return err_set(e, -ENOMEM, "no memory");
	s->o = o;
	*ret = s;
	return bare_kind_open(arg, &s->kind, e);
}

static void restore_close(void *op)
{
	struct restore *s = op;

	bare_kind_close(&s->kind);
	free(s);
}

static int restore_run(void *op, uint64_t *ret, struct err *e)
{
	struct restore *s = op;
	struct bare *b = &s->machines[0];
	int r = bare_prepare(&s->kind, b, e);
	uint64_t began = bench_now_ns();

	if (r == 0)
		r = bare_start(&s->kind, b, e);
	if (r == 0)
		r = bare_say_hello(b, e);
	if (r == 0)
		r = bare_hear_hello(b, e);
	ret[0] = bench_now_ns() - began;
	if (r == 0)
		r = bare_script(b, s->o->text, e);
	ret[1] = bench_now_ns() - began;
	bare_end(b);
	return r;
}

static int burst_run(void *op, uint64_t *ret, struct err *e)
{
	struct restore *s = op;
	uint64_t began, available, guest = 0, engine = 0;
	size_t n = s->o->bytes, i;
	int r = 0;

	if (n == 0 || n > BURST_MAX)
		return err_set(e, -EINVAL, "--bytes: 1 to %u machines", BURST_MAX);
	for (i = 0; i < n; i++)
		if (bare_prepare(&s->kind, &s->machines[i], e) < 0)
			r = e->code;
	available = memory_available();
	began = bench_now_ns();
	for (i = 0; i < n && r == 0; i++) {
		r = bare_start(&s->kind, &s->machines[i], e);
		if (r == 0)
			r = bare_say_hello(&s->machines[i], e);
	}
	for (i = 0; i < n && r == 0; i++)
		r = bare_hear_hello(&s->machines[i], e);
	ret[0] = bench_now_ns() - began;
	ret[1] = ret[0] / n;
	if (r == 0) {
		uint64_t left = memory_available();

		ret[2] = available > left ? (available - left) / n : 0;
		for (i = 0; i < n; i++)
			memory_of_engine(s->machines[i].pid, s->kind.ram_bytes, &guest, &engine);
		ret[3] = guest / n;
		ret[4] = engine / n;
	}
	for (i = 0; i < n; i++)
		bare_end(&s->machines[i]);
	return r;
}

const struct bench_op bench_op_restore = { "restore", restore_open, restore_run, restore_close, { "reply", "result" } };
const struct bench_op bench_op_restore_burst = {
	"restore-burst", restore_open, burst_run, restore_close, { "wall", "child", "available", "guest", "engine" },
};
