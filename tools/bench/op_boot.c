/* SPDX-License-Identifier: Apache-2.0 */
/* A bare boot: the engine with the very arguments that crucible gave it, and nothing around it.
 *
 *   boot         timed from the fork to the first byte that the guest's agent writes into its control port
 *   boot-ready   to the text of the agent's last stage, which says that it waits for hello
 *
 * ARGUMENT is a folder as bare.h wants it. The copy of the disk is made before, the engine killed after the timed part.
 */
#include "tools/bench/turns.h"

#include <stdlib.h>

#include "agent/proto.h"
#include "tools/bench/bare.h"

static int boot_open(const struct bench_opts *o, const char *arg, void **ret, struct err *e)
{
	struct bare_kind *k = calloc(1, sizeof(*k));

	(void)o;
	if (!k)
		return err_set(e, -ENOMEM, "no memory");
	*ret = k;
	return bare_kind_open(arg, k, e);
}

static void boot_close(void *op)
{
	bare_kind_close(op);
	free(op);
}

static int boot_once(const struct bare_kind *k, const char *words, uint64_t *ret_ns, struct err *e)
{
	static struct bare b;
	int r = bare_prepare(k, &b, e);
	uint64_t began = bench_now_ns();

	if (r == 0)
		r = bare_start(k, &b, e);
	if (r == 0)
		r = bare_hear_stage(&b, words, e);
	*ret_ns = bench_now_ns() - began;
	bare_end(&b);
	return r;
}

static int boot_run(void *op, uint64_t *ret_ns, struct err *e)
{
	return boot_once(op, NULL, ret_ns, e);
}

static int boot_ready_run(void *op, uint64_t *ret_ns, struct err *e)
{
	return boot_once(op, AG_STAGE_HELLO, ret_ns, e);
}

const struct bench_op bench_op_boot = { "boot", boot_open, boot_run, boot_close, { 0 } };
const struct bench_op bench_op_boot_ready = { "boot-ready", boot_open, boot_ready_run, boot_close, { 0 } };
