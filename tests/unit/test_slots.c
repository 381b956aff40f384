/* SPDX-License-Identifier: Apache-2.0 */
/* Several launchers at once, coming and going: no slot is ever held twice, though the file under them is removed and
 * made again all the time. It is the real file, /run/crucible/slots: sharing it with a daemon that runs here is the
 * point. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "cruciblefs/launch/launch_priv.h"

#define PROCESSES 4
#define ROUNDS	  300

static atomic_int *owners; /* of each slot: 0, or who holds it */

static void run_launchers(int me)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct slots s;
		struct err e = { 0 };
		uint32_t got[3];

		if (slots_init(&s, &e) < 0)
			_exit(1);
		for (size_t k = 0; k < ARRAY_LEN(got); k++) {
			int nobody = 0;

			if (slots_alloc(&s, &got[k], &e) < 0) {
				fprintf(stderr, "alloc: %s\n", e.msg);
				_exit(2);
			}
			if (!atomic_compare_exchange_strong(&owners[got[k]], &nobody, me)) {
				fprintf(stderr, "slot %u is held by %d and %d\n", got[k], nobody, me);
				_exit(3);
			}
		}
		/* One is given back, the others go with the process's end of them. */
		for (size_t k = 0; k < ARRAY_LEN(got); k++)
			atomic_store(&owners[got[k]], 0);
		if (slots_free(&s, got[0], &e) < 0 || slots_free(&s, got[0], &e) != -EINVAL)
			_exit(4);
		slots_fini(&s);
	}
}

static void test_no_slot_held_twice(void **state)
{
	int status;

	(void)state;
	owners = mmap(NULL, LAUNCH_SLOTS_MAX * sizeof(*owners), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	assert_ptr_not_equal(owners, MAP_FAILED);
	for (int p = 1; p <= PROCESSES; p++)
		if (fork() == 0) {
			run_launchers(p);
			_exit(0);
		}
	for (int p = 1; p <= PROCESSES; p++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	munmap(owners, LAUNCH_SLOTS_MAX * sizeof(*owners));
}

/* An inherited descriptor keeps the slot and the file: whoever removes it would give the slot out a second time. */
static void test_file_stays_while_one_is_held(void **state)
{
	struct slots s, other;
	uint32_t slot, second;
	struct stat before, after;
	int inherited;

	(void)state;
	assert_int_equal(slots_init(&s, NULL), 0);
	assert_int_equal(slots_alloc(&s, &slot, NULL), 0);
	assert_true(slots_fd(&s, slot) >= 0);
	assert_int_equal(slots_fd(&s, LAUNCH_SLOTS_MAX), -1);
	inherited = fcntl(slots_fd(&s, slot), F_DUPFD_CLOEXEC, 3);
	assert_int_equal(stat(LAUNCH_RUN_DIR "/slots", &before), 0);
	slots_fini(&s);
	assert_int_equal(stat(LAUNCH_RUN_DIR "/slots", &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(slots_init(&other, NULL), 0);
	assert_int_equal(slots_alloc(&other, &second, NULL), 0);
	assert_int_not_equal(second, slot);
	close(inherited);
	slots_fini(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_slot_held_twice),
		cmocka_unit_test(test_file_stays_while_one_is_held),
	};
	const char *must = getenv("CRUCIBLE_MUST_RUN");

	if (geteuid() != 0) {
		fprintf(stderr, "SKIP: " LAUNCH_RUN_DIR " needs root\n");
		return must && *must == '1' ? 1 : 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
