/* SPDX-License-Identifier: Apache-2.0 */
/* What a page costs. It asserts that the pages are right, and prints figures; none of them is a limit. */
#include "pager_rig.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

#define PAGES 16384u /* 64 MiB */

static struct pager_rig rig;
static uint64_t seeds[PAGES];
static char uuid[3][PG_UUID_LEN + 1];

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_LEN(uuid); i++)
		rig_uuid(i + 1, uuid[i]);
	for (uint32_t i = 0; i < PAGES; i++)
		seeds[i] = i + 1;
	pager_rig_new(&rig);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pager_rig_free(&rig);
	return 0;
}

static void start(struct rig_machine *m, unsigned number, const char *snapshot)
{
	struct rig_template t;

	assert_int_equal(rig_template(&rig, snapshot, PAGES, &t), 0);
	rig_machine_new(m, number, &t, PAGES, true);
	fd_close(&t.fd);
	assert_int_equal(rig_machine_attach(&rig, m, snapshot), 0);
}

static void stop(struct rig_machine *m)
{
	assert_int_equal(rig_ask_str(&rig, PAGER_DETACH, m->id), 0);
	rig_machine_free(m);
}

static void figure(const char *what, const char *snapshot, bool write, uint32_t stride)
{
	uint64_t ns = 0, one;
	struct rig_machine m;

	start(&m, 1, snapshot);
	if (stride == 1) {
		rig_machine_touch(&m, 0, PAGES, write, &ns);
	} else {
		for (uint32_t i = 0; i < PAGES; i += stride) {
			rig_machine_touch(&m, i, 1, write, &one);
			ns += one;
		}
	}
	if (!write)
		assert_int_equal(rig_machine_check(&m, 300, 900, &seeds[300]), 0);
	stop(&m);
	print_message("%-58s %6.2f us a page\n", what, (double)ns / 1000 / (PAGES / stride));
}

static void test_faults(void **state)
{
	(void)state;
	rig_store_pages(&rig, uuid[0], seeds, PAGES);
	figure("hole, from the store, one page of each 64 KiB", uuid[0], false, PG_WINDOW);
	assert_int_equal(rig_ask_str(&rig, PAGER_FORGET, uuid[0]), 0);
	figure("hole, from the store, every page (64 KiB an event)", uuid[0], false, 1);
	figure("resident, read", uuid[0], false, 1);
	figure("resident, written", uuid[0], true, 1);
}

static void test_captures(void **state)
{
	struct rig_machine m;
	struct rig_reply y;
	struct wire_rd rd;
	uint64_t pages, ns;

	(void)state;
	rig_machine_new(&m, 5, NULL, PAGES, false);
	assert_int_equal(rig_machine_attach(&rig, &m, ""), 0);
	rig_machine_write(&m, 0, PAGES, seeds);
	assert_int_equal(rig_snapshot(&rig, &m, "", uuid[1], &y), 0);
	wire_rd_init(&rd, y.data, y.len);
	pages = wire_u64(&rd);
	ns = wire_u64(&rd);
	rig_close(&y);
	assert_int_equal(pages, PAGES);
	print_message("capture of 64 MiB: %.1f ms, %.2f GB/s\n", (double)ns / 1e6, (double)pages * 4096 / (double)ns);
	rig_machine_write(&m, 0, 256, &seeds[5]);
	assert_int_equal(rig_snapshot(&rig, &m, uuid[1], uuid[2], &y), 0);
	wire_rd_init(&rd, y.data, y.len);
	pages = wire_u64(&rd);
	ns = wire_u64(&rd);
	rig_close(&y);
	assert_int_equal(pages, 256);
	print_message("capture of 1 MiB: %.2f ms\n", (double)ns / 1e6);
	figure("hole, from the parent, one page of each 64 KiB", uuid[2], false, PG_WINDOW);
	stop(&m);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_faults), T(test_captures) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
