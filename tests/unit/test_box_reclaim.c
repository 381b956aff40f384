/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest has freed is given back before a snapshot: memory of ours stands for the machine's RAM, and the fake
 * engine's balloon takes pages of it away as the real one does. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"
#include "test_box_rig.h"

#define MIB (UINT64_C(1) << 20)
#define RAM (160 * MIB)

static char *ram;

/* Free pages are handed out from @free_at on. */
static uint64_t free_at;

static void discard(struct rig *r, uint64_t bytes)
{
	uint64_t out = RAM - bytes;

	(void)r;
	assert_true(bytes <= RAM && free_at + out <= RAM);
	if (out > 0)
		assert_int_equal(madvise(ram + free_at, out, MADV_DONTNEED), 0);
}

/* A machine whose memory was handed over; the first @own bytes of it are its own. @tune may be NULL. */
static struct rig *tuned(uint64_t own, void (*tune)(struct rig *r))
{
	struct rig *r = rig_new(false);

	ram = mmap(NULL, RAM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(ram, MAP_FAILED);
	assert_int_equal(madvise(ram, RAM, MADV_NOHUGEPAGE), 0);
	memset(ram, 1, own);
	free_at = 0;
	r->mem_base = (uintptr_t)ram;
	fd_close(&r->mem_fds[1]);
	r->mem_fds[1] = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	assert_true(r->mem_fds[1] >= 0);
	r->on_balloon = discard;
	r->tuning.reclaim_sync_ms = r->tuning.reclaim_grow_ms = r->tuning.reclaim_answer_ms = 30000;
	if (tune)
		tune(r);
	rig_use_fake_engine(r);
	rig_begin(r);
	rig_boot(r);
	assert_int_equal(rig_reply(r, rig_ask_memory(r, false), NULL, NULL), 0);
	buf_reset(&r->trace);
	return r;
}

static struct rig *ready(uint64_t own)
{
	return tuned(own, NULL);
}

static void end(struct rig *r)
{
	rig_free(r);
	munmap(ram, RAM);
}

static uint32_t ask(struct rig *r)
{
	struct buf b;
	uint32_t id;

	buf_init(&b, 64);
	assert_int_equal(wire_put_u64(&b, RAM), 0);
	id = rig_request(r, BOX_RECLAIM, b.data, b.len);
	buf_fini(&b);
	return id;
}

/* What it answers, in MiB. */
static uint64_t given_back(struct rig *r, uint32_t id)
{
	struct wire_rd rd;
	uint64_t n;

	assert_int_equal(rig_reply(r, id, NULL, &rd), 0);
	n = wire_u64(&rd);
	assert_int_equal(wire_done(&rd), 0);
	assert_int_equal(n % MIB, 0);
	return n / MIB;
}

static int refused(struct rig *r, uint32_t id, const char *part)
{
	const char *words;
	int code = rig_reply(r, id, &words, NULL);

	if (!strstr(words, part))
		fail_msg("\"%s\" does not hold \"%s\"", words, part);
	return code;
}

static void settle(struct rig *r)
{
	for (int i = 0; i < 20; i++)
		loop_once(r->loop, 1);
}

/* All that is free was written: it is taken in growing steps, all of it, and the guest gets it back. */
static void test_freed_memory(void **state)
{
	struct rig *r = ready(80 * MIB);

	(void)state;
	free_at = 10 * MIB;
	r->spare = 70 * MIB + 123;
	assert_int_equal(given_back(r, ask(r)), 70);
	rig_traced(r, "balloon=144 balloon=128 balloon=96 balloon=90 balloon=160 ");
	assert_int_equal(r->syncs, 1);
	for (size_t at = 0; at < 10 * MIB; at += 4096)
		assert_int_equal(ram[at], 1); /* what is in use stays */
	end(r);
}

/* It ends where what is taken is no longer the machine's own: at once, or behind a part. */
static void test_never_written(void **state)
{
	static const struct {
		uint64_t free_at, given; /* MiB */
		const char *trace;
	} cases[] = {
		{ 80, 0, "balloon=144 balloon=160 " },
		{ 52, 28, "balloon=144 balloon=128 balloon=96 balloon=160 " },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rig *r = ready(80 * MIB);

		free_at = cases[i].free_at * MIB;
		r->spare = 70 * MIB;
		assert_int_equal(given_back(r, ask(r)), cases[i].given);
		rig_traced(r, cases[i].trace);
		end(r);
	}
}

static void test_not_worth_it(void **state)
{
	struct rig *r = ready(63 * MIB);

	(void)state;
	r->spare = 150 * MIB;
	assert_int_equal(given_back(r, ask(r)), 0); /* little is its own: the guest is not even asked */
	assert_int_equal(r->syncs, 0);
	memset(ram, 1, 80 * MIB);
	r->spare = 63 * MIB; /* little is free */
	assert_int_equal(given_back(r, ask(r)), 0);
	assert_int_equal(r->syncs, 1);
	rig_traced(r, "");
	end(r);
}

/* Nothing that guest or engine do makes it an error, and what was taken is always given back. */
static void test_what_goes_wrong(void **state)
{
	struct rig *r = ready(80 * MIB);

	(void)state;
	r->spare = RAM; /* more than all */
	assert_int_equal(given_back(r, ask(r)), 0);
	r->spare = UINT64_MAX;
	assert_int_equal(given_back(r, ask(r)), 0);
	r->spare = 70 * MIB;
	r->spare_code = -EIO;
	assert_int_equal(given_back(r, ask(r)), 0);
	rig_traced(r, "");

	r->spare_code = 0;
	r->op_refuse[OP_BALLOON] = -EBUSY;
	assert_int_equal(given_back(r, ask(r)), 0);
	r->op_refuse[OP_BALLOON] = 0;
	r->op_fail[OP_BALLOON] = -ETIMEDOUT;
	assert_int_equal(given_back(r, ask(r)), 0);
	rig_traced(r, "balloon=144 balloon=160 ");
	r->op_fail[OP_BALLOON] = 0;

	end(r);
}

static void reconnect_soon(struct rig *r)
{
	r->tuning.reconnect_ms = 1;
}

static void soon(struct rig *r)
{
	r->tuning.reclaim_sync_ms = r->tuning.reclaim_answer_ms = 20;
}

static void test_a_guest_that_is_slow(void **state)
{
	struct rig *r = tuned(80 * MIB, soon);

	(void)state;
	r->spare = 70 * MIB;
	r->sync_silent = true; /* its disk is: what is free can be given back all the same */
	assert_int_equal(given_back(r, ask(r)), 70);
	rig_traced(r, "balloon=144 balloon=128 balloon=96 balloon=90 balloon=160 ");
	r->sync_silent = false;
	r->spare_silent = true;
	memset(ram, 1, 80 * MIB);
	assert_int_equal(given_back(r, ask(r)), 0);
	rig_traced(r, "");
	end(r);
}

static void in_no_time(struct rig *r)
{
	r->tuning.reclaim_grow_ms = 0;
}

/* The time is over before the first step, which is not made. */
static void test_no_step_beyond_its_time(void **state)
{
	struct rig *r = tuned(80 * MIB, in_no_time);

	(void)state;
	r->spare = 70 * MIB;
	assert_int_equal(given_back(r, ask(r)), 0);
	rig_traced(r, "balloon=160 ");
	end(r);
}

static void test_refused(void **state)
{
	struct rig *r = ready(80 * MIB);
	uint32_t id;

	(void)state;
	r->spare = 70 * MIB;
	r->op_hang[OP_BALLOON] = true;
	id = ask(r);
	UNTIL(r, r->ops[OP_BALLOON] == 1);
	assert_int_equal(refused(r, ask(r), "under way"), -EBUSY);
	r->op_hang[OP_BALLOON] = false;
	rig_balloon_answers(r);
	assert_int_equal(given_back(r, id), 70);

	assert_int_equal(rig_reply(r, rig_ask_freeze(r, 100), NULL, NULL), 0);
	assert_int_equal(refused(r, ask(r), "does not run"), -EBUSY);
	end(r);

	r = rig_new(false);
	rig_use_fake_engine(r);
	rig_begin(r);
	rig_boot(r);
	assert_int_equal(refused(r, ask(r), "not handed over"), -ENOENT);
	rig_free(r);
}

/* A machine that was saved while memory is out would never get it back in a fork. */
static void test_no_freeze_meanwhile(void **state)
{
	struct rig *r = ready(80 * MIB);
	const char *words;
	uint32_t id;

	(void)state;
	r->spare = 70 * MIB;
	r->op_hang[OP_BALLOON] = true;
	id = ask(r);
	UNTIL(r, r->ops[OP_BALLOON] == 1);
	assert_int_equal(rig_reply(r, rig_ask_freeze(r, 100), &words, NULL), -EBUSY);
	assert_non_null(strstr(words, "being given back"));
	assert_int_equal(r->ops[OP_SAVE], 0);
	r->op_hang[OP_BALLOON] = false;
	rig_balloon_answers(r);
	assert_int_equal(given_back(r, id), 70);
	assert_int_equal(rig_reply(r, rig_ask_freeze(r, 100), NULL, NULL), 0);
	assert_int_equal(rig_reply(r, rig_request(r, BOX_THAW, NULL, 0), NULL, NULL), 0);
	assert_int_equal(r->state, BOX_READY);
	end(r);
}

static void discard_and_write(struct rig *r, uint64_t bytes)
{
	discard(r, bytes);
	memset(ram + 100 * MIB, 1, 40 * MIB);
}

/* What the guest writes meanwhile hides what is given back: no further step. */
static void test_a_guest_that_writes(void **state)
{
	struct rig *r = ready(80 * MIB);

	(void)state;
	r->spare = 70 * MIB;
	r->on_balloon = discard_and_write;
	assert_int_equal(given_back(r, ask(r)), 0);
	rig_traced(r, "balloon=144 balloon=160 ");
	end(r);
}

static void discard_and_lose_memory(struct rig *r, uint64_t bytes)
{
	discard(r, bytes);
	r->op_refuse[OP_BALLOON] = -ENOMEM;
}

/* No memory for the order to give back: it is given again, until it can be. */
static void test_what_is_out_comes_back(void **state)
{
	struct rig *r = ready(80 * MIB);
	uint32_t id;

	(void)state;
	r->spare = 70 * MIB;
	r->on_balloon = discard_and_lose_memory;
	id = ask(r);
	UNTIL(r, r->op_refuse[OP_BALLOON]);
	settle(r);
	rig_traced(r, "balloon=144 ");
	r->on_balloon = discard;
	r->op_refuse[OP_BALLOON] = 0;
	assert_int_equal(given_back(r, id), 16);
	rig_traced(r, "balloon=160 ");
	end(r);
	/* Nor does the end of the machine wait for that. */
	r = ready(80 * MIB);
	r->spare = 70 * MIB;
	r->on_balloon = discard_and_lose_memory;
	id = ask(r);
	UNTIL(r, r->op_refuse[OP_BALLOON]);
	rig_engine_says(r, ENGINE_EV_GONE, "");
	assert_int_equal(refused(r, id, ""), -ENOTCONN);
	UNTIL(r, r->over);
	end(r);
}

/* Its user pauses the machine: no further step, and what is out is told to come back. */
static void test_a_pause_in_the_middle(void **state)
{
	struct rig *r = ready(80 * MIB);
	uint32_t id;

	(void)state;
	r->spare = 70 * MIB;
	r->op_hang[OP_BALLOON] = true;
	id = ask(r);
	UNTIL(r, r->ops[OP_BALLOON] == 1);
	assert_int_equal(rig_vm(r, BOX_VM_PAUSE, 0), 0);
	r->op_hang[OP_BALLOON] = false;
	rig_balloon_answers(r);
	assert_int_equal(given_back(r, id), 16);
	rig_traced(r, "balloon=144 pause balloon=160 ");
	assert_int_equal(refused(r, ask(r), "does not run"), -EBUSY);
	end(r);
}

/* Its daemon goes: the guest gets its memory back, and the next daemon no answer of another's. */
static void test_daemon_gone(void **state)
{
	struct rig *r = tuned(80 * MIB, reconnect_soon);
	size_t replies;

	(void)state;
	r->spare = 70 * MIB;
	r->op_hang[OP_BALLOON] = true;
	ask(r);
	UNTIL(r, r->ops[OP_BALLOON] == 1);
	replies = rig_count(r, BOX_REPLY);
	rig_daemon_leaves(r);
	settle(r);
	r->op_hang[OP_BALLOON] = false;
	rig_balloon_answers(r);
	UNTIL(r, strstr(buf_str(&r->trace), "balloon=160 "));
	rig_daemon_back(r);
	settle(r);
	assert_int_equal(rig_count(r, BOX_REPLY), replies);
	assert_int_equal(given_back(r, ask(r)), 0); /* and it works again */
	end(r);
}

/* The next daemon asks while the last one's goes on: it gets that one's answer, when the memory is back. */
static void test_the_next_daemon_waits(void **state)
{
	struct rig *r = tuned(80 * MIB, reconnect_soon);
	uint32_t id;

	(void)state;
	r->spare = 70 * MIB;
	r->op_hang[OP_BALLOON] = true;
	ask(r);
	UNTIL(r, r->ops[OP_BALLOON] == 1);
	rig_daemon_leaves(r);
	settle(r);
	rig_daemon_back(r);
	id = ask(r);
	settle(r);
	assert_int_equal(refused(r, ask(r), "under way"), -EBUSY);
	r->op_hang[OP_BALLOON] = false;
	rig_balloon_answers(r);
	assert_int_equal(given_back(r, id), 70);
	rig_traced(r, "balloon=144 balloon=128 balloon=96 balloon=90 balloon=160 ");
	end(r);
}

static void test_the_end_in_the_middle(void **state)
{
	(void)state;
	for (int step = 0; step < 3; step++) {
		struct rig *r = ready(80 * MIB);
		uint32_t id;

		r->spare = 70 * MIB;
		r->sync_silent = step == 0;
		r->spare_silent = step == 1;
		r->op_hang[OP_BALLOON] = true;
		id = ask(r);
		if (step == 2)
			UNTIL(r, r->ops[OP_BALLOON] == 1);
		else
			settle(r);
		rig_engine_says(r, ENGINE_EV_GONE, "");
		UNTIL(r, r->over);
		assert_int_equal(rig_reply(r, id, NULL, NULL), -ENOTCONN);
		end(r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freed_memory),
		cmocka_unit_test(test_never_written),
		cmocka_unit_test(test_not_worth_it),
		cmocka_unit_test(test_what_goes_wrong),
		cmocka_unit_test(test_a_guest_that_is_slow),
		cmocka_unit_test(test_no_step_beyond_its_time),
		cmocka_unit_test(test_a_guest_that_writes),
		cmocka_unit_test(test_what_is_out_comes_back),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_no_freeze_meanwhile),
		cmocka_unit_test(test_a_pause_in_the_middle),
		cmocka_unit_test(test_the_next_daemon_waits),
		cmocka_unit_test(test_daemon_gone),
		cmocka_unit_test(test_the_end_in_the_middle),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
