/* SPDX-License-Identifier: Apache-2.0 */
/* Every call that can fail, fails once: storing a snapshot, and gc. After each failure the store verifies clean, what
 * was there is there, and the same thing works. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fault.h"
#include "snap_rig.h"

#define N    700u
#define STEP 9u /* every ninth page is put */
#define MOST 3000u

static uint64_t seeds[N];

static int try_store(struct snap *s, unsigned uuid, const struct snap_digest *base, uint64_t from,
		     struct snap_digest *ret)
{
	struct snap_manifest m = { .memory_pages = N };
	uint8_t page[SNAP_PAGE_BYTES];
	struct snap_batch *b = NULL;
	struct snap_edit *d = NULL;
	int r = snap_batch_new(s, &b, &rig_err);

	if (r < 0)
		return r;
	rig_uuid(uuid, m.uuid);
	r = snap_edit_new(b, base, &snap_zero, N, &d, &rig_err);
	for (unsigned i = 0; r == 0 && i < N; i += STEP) {
		rig_page(from + i, page);
		r = snap_edit_put(d, i, page, &rig_err);
	}
	if (d && r == 0)
		r = snap_edit_finish(d, &m.memory, &rig_err);
	if (r == 0)
		r = snap_blob_put(b, seeds, sizeof(seeds), &m.state, &rig_err);
	m.state_bytes = sizeof(seeds);
	/* A caller that goes on after a failed step must not get half a snapshot. */
	if (r < 0 && from % 2) {
		snap_batch_abort(b);
		return r;
	}
	if (r < 0) {
		assert_true(snap_batch_commit(b, &m, NULL, &rig_err) < 0);
		return r;
	}
	r = snap_batch_commit(b, &m, NULL, &rig_err);
	if (r == 0)
		*ret = m.memory;
	return r;
}

static void expect_clean(struct snap *s, uint64_t snapshots)
{
	struct snap_report rep;
	struct snap_stat st;

	OK(snap_verify(s, NULL, NULL, NULL, &rep, &rig_err));
	if (rep.damaged)
		fail_msg("round %llu: %s failed: %llu damaged: %s", (unsigned long long)rig_note, fault_name(),
			 (unsigned long long)rep.damaged, rep.first);
	OK(snap_stat(s, &st, &rig_err));
	assert_int_equal(st.snapshots, snapshots);
}

static void expect_pages(struct snap *s, const struct snap_digest *root, uint64_t from)
{
	uint8_t want[SNAP_PAGE_BYTES], got[SNAP_PAGE_BYTES];
	struct snap_map *m = NULL;
	struct snap_digest d;

	OK(snap_map_open(s, root, N, &m, &rig_err));
	for (unsigned i = 0; i < N; i += STEP) {
		rig_page(from + i, want);
		OK(snap_map_get(m, i, &d, &rig_err));
		OK(snap_page_read(s, &d, got, &rig_err));
		assert_memory_equal(want, got, sizeof(want));
	}
	snap_map_close(m);
}

static void test_storing(void **state)
{
	struct snap_digest first, second, third;
	struct snap_rig r;
	bool failed = true;
	char uuid[SNAP_UUID_LEN + 1];

	(void)state;
	snap_rig_new(&r);
	OK(try_store(r.s, 1, NULL, 1000, &first));
	for (unsigned n = 1; failed; n++) {
		int code;

		assert_true(n < MOST);
		rig_note = n;
		memset(&rig_err, 0, sizeof(rig_err));
		fault_arm(n);
		code = try_store(r.s, 2, &first, 2000 + n, &second);
		failed = fault_disarm();
		assert_true(failed ? code <= 0 : code == 0);
		if (code < 0)
			assert_true(*rig_err.msg);
		/* The same process goes on; every third time it is another. */
		if (n % 3 == 0)
			snap_rig_reopen(&r);
		expect_clean(r.s, code == 0 ? 2 : 1);
		expect_pages(r.s, &first, 1000);
		if (code == 0)
			expect_pages(r.s, &second, 2000 + n);
		rig_uuid(2, uuid);
		OK(snap_manifest_remove(r.s, uuid, &rig_err));
		OK(try_store(r.s, 3, &first, 3000 + n, &third));
		expect_pages(r.s, &third, 3000 + n);
		rig_uuid(3, uuid);
		OK(snap_manifest_remove(r.s, uuid, &rig_err));
		if (n % 5 == 0) {
			struct snap_gc gc;

			OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err));
			assert_int_equal(gc.packs_after, 1);
			assert_int_equal(rig_files(&r, "packs", "", NULL), 2);
		}
	}
	print_message("%u calls\n", (unsigned)rig_note);
	assert_true(rig_note > 20);
	snap_rig_free(&r);
}

static void test_gc(void **state)
{
	struct snap_digest first, second, third;
	char uuid[SNAP_UUID_LEN + 1];
	struct snap_rig r;
	struct snap_gc gc;
	bool failed = true;

	(void)state;
	snap_rig_new(&r);
	OK(try_store(r.s, 1, NULL, 1000, &first));
	for (unsigned n = 1; failed; n++) {
		int code;

		assert_true(n < MOST);
		rig_note = n;
		OK(try_store(r.s, 2, &first, 2000 + n, &second));
		OK(try_store(r.s, 3, &first, 3000 + n, &third));
		rig_uuid(2, uuid);
		OK(snap_manifest_remove(r.s, uuid, &rig_err));
		snap_rig_reopen(&r); /* no node is remembered */
		fault_arm(n);
		code = snap_gc(r.s, NULL, NULL, &gc, &rig_err);
		failed = fault_disarm();
		assert_true(failed || code == 0);
		if (n % 3 == 0)
			snap_rig_reopen(&r);
		expect_clean(r.s, 2);
		expect_pages(r.s, &first, 1000);
		expect_pages(r.s, &third, 3000 + n);
		rig_uuid(3, uuid);
		OK(snap_manifest_remove(r.s, uuid, &rig_err));
		snap_rig_reopen(&r);
		OK(snap_gc(r.s, NULL, NULL, &gc, &rig_err));
		assert_int_equal(gc.packs_after, 1);
		assert_int_equal(rig_files(&r, "packs", "", NULL), 2);
	}
	print_message("%u calls\n", (unsigned)rig_note);
	assert_true(rig_note > 20);
	snap_rig_free(&r);
}

/* In a process of its own, which ends at its @n-th call. Returns whether it came to that. */
static bool die_at(struct snap_rig *r, unsigned n, const struct snap_digest *base, bool gc)
{
	struct snap_digest root;
	struct snap *s = NULL;
	struct snap_gc out;
	int status;
	pid_t pid;

	r->s = snap_close(r->s);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		fault_dies();
		fault_arm(n);
		if (snap_open(r->dirfd, "store", SNAP_WRITE, &s, &rig_err) < 0 ||
		    try_store(s, 2, base, 2000 + n, &root) < 0 || (gc && snap_gc(s, NULL, NULL, &out, &rig_err) < 0))
			_exit(1);
		fault_disarm();
		snap_close(s);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	OK(snap_open(r->dirfd, "store", SNAP_WRITE, &r->s, &rig_err));
	assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == FAULT_DIED || WEXITSTATUS(status) == 0));
	return WEXITSTATUS(status) == FAULT_DIED;
}

static void crash(bool gc)
{
	struct snap_digest first, third;
	char two[SNAP_UUID_LEN + 1], three[SNAP_UUID_LEN + 1];
	struct snap_manifest m;
	struct snap_rig r;
	struct snap_gc out;
	bool died = true;

	snap_rig_new(&r);
	rig_uuid(2, two);
	rig_uuid(3, three);
	OK(try_store(r.s, 1, NULL, 1000, &first));
	for (unsigned n = 1; died; n++) {
		bool named;

		assert_true(n < MOST);
		rig_note = n;
		died = die_at(&r, n, &first, gc);
		named = snap_manifest_read(r.s, two, &m, &rig_err) == 0;
		assert_true(named || died);
		expect_clean(r.s, named ? 2 : 1);
		expect_pages(r.s, &first, 1000);
		if (named) {
			expect_pages(r.s, &m.memory, 2000 + n);
			snap_manifest_fini(&m);
			OK(snap_manifest_remove(r.s, two, &rig_err));
		}
		OK(try_store(r.s, 3, &first, 3000 + n, &third));
		expect_pages(r.s, &third, 3000 + n);
		OK(snap_manifest_remove(r.s, three, &rig_err));
		if (n % 5 == 0) {
			OK(snap_gc(r.s, NULL, NULL, &out, &rig_err));
			assert_int_equal(rig_files(&r, "packs", "", NULL), 2);
			assert_int_equal(rig_files(&r, "manifests", "", NULL), 1);
		}
	}
	print_message("%u calls\n", (unsigned)rig_note);
	assert_true(rig_note > 20);
	snap_rig_free(&r);
}

static void test_dying_while_storing(void **state)
{
	(void)state;
	crash(false);
}

static void test_dying_in_gc(void **state)
{
	(void)state;
	crash(true);
}

/* A store that is not there yet; opening one that is. */
static void test_opening(void **state)
{
	struct snap_digest first;
	struct snap *s = NULL;
	struct snap_rig r;
	bool failed = true;

	(void)state;
	snap_rig_new(&r);
	for (unsigned n = 1; failed; n++) {
		char name[20];
		int code;

		snprintf(name, sizeof(name), "new-%u", n);
		rig_note = n;
		fault_arm(n);
		code = snap_open(r.dirfd, name, SNAP_WRITE, &s, &rig_err);
		failed = fault_disarm();
		if (code == 0)
			s = snap_close(s);
		OK(snap_open(r.dirfd, name, SNAP_WRITE, &s, &rig_err));
		s = snap_close(s);
	}
	OK(try_store(r.s, 1, NULL, 1000, &first));
	failed = true;
	for (unsigned n = 1; failed; n++) {
		int code;

		rig_note = n;
		fault_arm(n);
		code = snap_open(r.dirfd, "store", SNAP_READ, &s, &rig_err);
		failed = fault_disarm();
		if (code == 0) {
			/* Perhaps without the pack that could not be opened then. */
			expect_pages(s, &first, 1000);
			s = snap_close(s);
		}
	}
	snap_rig_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_storing),	    cmocka_unit_test(test_gc),
		cmocka_unit_test(test_opening),	    cmocka_unit_test(test_dying_while_storing),
		cmocka_unit_test(test_dying_in_gc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
