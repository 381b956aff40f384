/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's domain on a store of its own, with a launcher that starts nothing and a box that the test plays.
 * More than 800 lines, because all of it is one world (store, launcher, box) and what is asked of it; each test is
 * short. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "agent/proto.h"
#include "base/fd.h"
#include "cruciblefs/domain/domain.h"
#include "cruciblefs/sandbox.h"
#include "tests/unit/domain_world.h"
#include "vmm/box/box.h"

static struct sandbox *make(struct world *w, const char *name, const struct cfs_who *who)
{
	struct sandbox *s = NULL;
	struct err e = { 0 };

	assert_int_equal(registry_create(w->reg, name, who, &s, &e), 0);
	return s;
}

static void command(struct sandbox *s, const char *slot, const char *text)
{
	struct upload *u = NULL;
	struct err e = { 0 };

	assert_int_equal(upload_new(s, UPLOAD_CMD, slot, &root_user, &u, &e), 0);
	assert_int_equal(upload_write(u, text, strlen(text), &e), 0);
	upload_commit(u);
}

static void assert_record_says(struct sandbox *s, uint64_t n, const char *words)
{
	struct execution *x = sandbox_exec(s, n);
	struct buf b;

	assert_non_null(x);
	buf_init(&b, 1 << 20);
	assert_int_equal(exec_record(s, x, &b), 0);
	if (!strstr(buf_str(&b), words))
		fail_msg("the record %s does not say %s", buf_str(&b), words);
	buf_fini(&b);
}

/* -- the box that the test plays --------------------------------------------------------------------------------- */

static uint8_t box_buf[MSG_MAX];

static void box_expect(struct world *w, uint16_t type, struct msg *m)
{
	const struct timeval patience = { .tv_sec = 10 };

	spin(w);
	assert_true(w->fake.box_fd >= 0);
	/* What does not come is a failure, not a wait for ever. */
	assert_int_equal(setsockopt(w->fake.box_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	assert_int_equal(msg_recv(w->fake.box_fd, box_buf, sizeof(box_buf), m), 0);
	assert_int_equal(m->type, type);
}

static void box_say(struct world *w, uint16_t type, uint32_t id, struct buf *b)
{
	assert_int_equal(msg_send(w->fake.box_fd, type, id, b->data, b->len, NULL, 0), 0);
	buf_fini(b);
	spin(w);
}

static void box_state(struct world *w, enum box_state st, const char *words)
{
	struct buf b;

	buf_init(&b, 4096);
	wire_put_u8(&b, (uint8_t)st);
	wire_put_str(&b, words);
	wire_put_str(&b, "");
	box_say(w, BOX_STATE, 0, &b);
}

static void box_hello(struct world *w, struct sandbox *s, uint64_t last, uint64_t *open, size_t nopen)
{
	struct box_hello h = { .state = BOX_READY, .last_exec = last, .open = open, .nopen = nopen };
	struct buf b;

	snprintf(h.uuid, sizeof(h.uuid), "%s", sandbox_uuid(s));
	buf_init(&b, 8192);
	assert_int_equal(box_hello_format(&h, &b), 0);
	box_say(w, BOX_HELLO, 0, &b);
}

static void box_done(struct world *w, uint64_t n)
{
	struct buf b;

	buf_init(&b, 4096);
	wire_put_u64(&b, n);
	wire_put_u32(&b, 0);
	wire_put_str(&b, "");
	wire_put_str(&b, "");
	wire_put_u64(&b, 1);
	wire_put_u64(&b, 100);
	box_say(w, BOX_DONE, 0, &b);
}

static void box_progress(struct world *w, uint64_t n)
{
	struct buf b;

	buf_init(&b, 64);
	wire_put_u64(&b, n);
	wire_put_u8(&b, 1);
	wire_put_u64(&b, 0);
	wire_put_u64(&b, 0);
	box_say(w, BOX_PROGRESS, 0, &b);
}

/* -- tests -----------------------------------------------------------------------------------------------------------
 */

static void test_names_and_quotas(void **state)
{
	struct world *w = *state;
	struct sandbox *s;
	struct err e = { 0 };
	char longest[65];

	memset(longest, 'a', 64);
	longest[64] = '\0';
	assert_int_equal(registry_create(w->reg, "a/b", &alice, &s, &e), -EINVAL);
	assert_int_equal(registry_create(w->reg, ".a", &alice, &s, &e), -EINVAL);
	assert_int_equal(registry_create(w->reg, "", &alice, &s, &e), -EINVAL);
	assert_int_equal(registry_create(w->reg, longest, &alice, &s, &e), -ENAMETOOLONG);
	longest[63] = '\0';
	make(w, longest, &alice);
	make(w, "a.B-c_9", &alice);
	assert_int_equal(registry_create(w->reg, "a.B-c_9", &root_user, &s, &e), -EEXIST);
	make(w, "third", &alice);
	assert_int_equal(registry_create(w->reg, "fourth", &alice, &s, &e), -EDQUOT);
	assert_non_null(strstr(e.msg, "max_sandboxes_per_uid"));
	make(w, "fourth", &root_user);
	assert_int_equal(registry_count(w->reg), 4);
}

static void test_attributes_have_ranges_and_words(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	static const struct {
		enum sandbox_attr a;
		const char *text, *words;
	} bad[] = {
		{ ATTR_VCPUS, "0", "from 1 to 4" },
		{ ATTR_VCPUS, "five", "whole number" },
		{ ATTR_MEMORY_MIB, "-1", "whole number" },
		{ ATTR_MEMORY_MIB, "1e3", "whole number" },
		{ ATTR_FROM, "profile:none", "profile build none" },
		{ ATTR_FROM, "../etc", "neither profile:NAME nor snapshot:NAME" },
		{ ATTR_ENV, "novalue\n", "not KEY=VALUE" },
		{ ATTR_ENV, "=x\n", "not KEY=VALUE" },
	};
	struct err e;
	struct buf b;

	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		e = (struct err){ 0 };
		assert_int_equal(sandbox_attr_store(s, bad[i].a, bad[i].text, strlen(bad[i].text), &root_user, &e),
				 -EINVAL);
		if (!strstr(sandbox_error(s), bad[i].words))
			fail_msg("\"%s\" does not say \"%s\"", sandbox_error(s), bad[i].words);
	}
	assert_int_equal(sandbox_attr_store(s, ATTR_MEMORY_MIB, "1024", 4, &root_user, &e), 0);
	assert_int_equal(sandbox_attr_store(s, ATTR_ENV, "A=1\nB=two words\n", 16, &root_user, &e), 0);
	buf_init(&b, 4096);
	assert_int_equal(sandbox_attr_show(s, ATTR_MEMORY_MIB, &b), 0);
	assert_int_equal(sandbox_attr_show(s, ATTR_ENV, &b), 0);
	assert_string_equal(buf_str(&b), "1024\nA=1\nB=two words\n");
	buf_fini(&b);
	assert_int_equal(registry_default_store(w->reg, ATTR_VCPUS, "2", 1, &alice, &e), -EPERM);
	assert_int_equal(registry_default_store(w->reg, ATTR_VCPUS, "2", 1, &root_user, &e), 0);
}

static void test_what_is_in_the_store_survives_the_daemon(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "keep", &alice);
	struct err e = { 0 };
	char uuid[40];
	struct buf b;

	snprintf(uuid, sizeof(uuid), "%s", sandbox_uuid(s));
	assert_int_equal(sandbox_attr_store(s, ATTR_VCPUS, "4", 1, &alice, &e), 0);
	assert_int_equal(registry_default_store(w->reg, ATTR_PIDS, "99", 2, &root_user, &e), 0);
	assert_int_equal(slot_create(s, "side", &alice, &e), 0);
	assert_int_equal(registry_rename(w->reg, s, "kept", &alice, &e), 0);
	bring_down(w);
	bring_up(w);
	s = registry_find(w->reg, NULL, "kept");
	assert_non_null(s);
	assert_string_equal(sandbox_uuid(s), uuid);
	assert_int_equal(sandbox_owner(s).uid, alice.uid);
	assert_true(slot_exists(s, "side"));
	buf_init(&b, 4096);
	sandbox_attr_show(s, ATTR_VCPUS, &b);
	registry_default_show(w->reg, ATTR_PIDS, &b);
	assert_string_equal(buf_str(&b), "4\n99\n");
	buf_fini(&b);
}

static void test_a_lease_does_not_outlive_the_daemon(void **state)
{
	struct world *w = *state;

	sandbox_lease_open(make(w, "leased", &alice));
	make(w, "free", &alice);
	bring_down(w);
	bring_up(w);
	assert_null(registry_find(w->reg, NULL, "leased"));
	assert_non_null(registry_find(w->reg, NULL, "free"));
}

static void test_a_half_made_sandbox_is_not_one(void **state)
{
	struct world *w = *state;

	bring_down(w);
	assert_int_equal(mkdirat(w->store_fd, "sandboxes/11111111-2222-4333-8444-555555555555", 0700), 0);
	assert_int_equal(mkdirat(w->store_fd, "sandboxes/.gone-11111111-2222-4333-8444-666666666666", 0700), 0);
	bring_up(w);
	assert_int_equal(registry_count(w->reg), 0);
	bring_down(w); /* ends the pool's work */
	assert_int_equal(faccessat(w->store_fd, "sandboxes/11111111-2222-4333-8444-555555555555", F_OK, 0), -1);
	assert_int_equal(faccessat(w->store_fd, "sandboxes/.gone-11111111-2222-4333-8444-666666666666", F_OK, 0), -1);
	bring_up(w);
}

static void test_uploads_refuse_early_and_commit_once(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct upload *u = NULL;
	struct err e = { 0 };
	static char block[1 << 20];

	memset(block, 'x', sizeof(block));
	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &root_user, &u, &e), 0);
	assert_int_equal(upload_write(u, "a\0b", 3, &e), -EINVAL);
	assert_non_null(strstr(sandbox_error(s), "NUL"));
	upload_commit(u); /* half a command does not run */
	assert_int_equal(sandbox_latest_exec(s), 0);

	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &root_user, &u, &e), 0);
	upload_commit(u); /* nothing written is no command */
	assert_int_equal(sandbox_latest_exec(s), 0);

	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &root_user, &u, &e), 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(upload_write(u, block, sizeof(block), &e), 0);
	assert_int_equal(upload_write(u, "x", 1, &e), -EFBIG);
	upload_abort(u);

	assert_int_equal(upload_new(s, UPLOAD_CMD, "none", &root_user, &u, &e), -ENOENT);
}

static void test_a_start_that_fails_is_in_the_record(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct err e = { 0 };

	assert_int_equal(sandbox_attr_store(s, ATTR_FROM, "profile:half", 12, &root_user, &e), 0);
	command(s, NULL, "true\n");
	assert_int_equal(sandbox_latest_exec(s), 1);
	assert_record_says(s, 1, "\"exit_code\":-1");
	assert_record_says(s, 1, "crucible profile build half");
	assert_int_equal(w->fake.spawned_engines, 0);

	/* The launcher cannot start it: nothing half made stays, and the words are the launcher's. */
	s = make(w, "b", &root_user);
	w->fake.refuse_spawn = -ENOENT;
	command(s, NULL, "true\n");
	spin(w);
	assert_record_says(s, 1, "refused by the test");
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_int_equal(w->fake.slots_taken, w->fake.slots_freed);
	w->fake.refuse_spawn = 0;
}

static void test_a_command_goes_to_the_box_and_back(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct msg m;
	struct wire_rd r;

	command(s, NULL, "echo hi\n");
	assert_int_equal(sandbox_status(s), SBX_STARTING);
	box_expect(w, BOX_START, &m);
	assert_int_equal(w->fake.spawned_engines, 1);
	assert_int_equal(w->fake.spawned_boxes, 1);
	assert_int_equal(w->fake.slots_taken, w->fake.slots_freed);
	box_expect(w, BOX_EXEC, &m);
	wire_rd_init(&r, m.data, m.len);
	assert_int_equal(wire_u64(&r), 1);
	box_state(w, BOX_READY, "");
	assert_int_equal(sandbox_status(s), SBX_READY);
	box_progress(w, 1);
	assert_int_equal(sandbox_status(s), SBX_RUNNING);
	assert_int_equal(exec_state(sandbox_exec(s, 1)), EXEC_RUNNING);
	box_done(w, 1);
	assert_int_equal(exec_state(sandbox_exec(s, 1)), EXEC_DONE);
	assert_int_equal(sandbox_status(s), SBX_READY);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
	assert_int_equal(w->fake.kills, 1);
}

static void test_a_box_that_dies_loses_its_commands_in_words(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct msg m;

	command(s, NULL, "sleep 60\n");
	command(s, NULL, "true\n");
	box_expect(w, BOX_START, &m);
	box_state(w, BOX_READY, "");
	box_progress(w, 1);
	fd_close(&w->fake.box_fd);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_record_says(s, 1, "lost");
	assert_record_says(s, 1, "\"exit_code\":-1");
	assert_record_says(s, 2, "\"cancelled\":true");
	/* And the next command boots it again. */
	command(s, NULL, "true\n");
	box_expect(w, BOX_START, &m);
	assert_int_equal(w->fake.spawned_boxes, 2);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

static void test_the_queue_is_bounded(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct upload *u, *late;
	struct err e = { 0 };

	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &root_user, &late, &e), 0);
	assert_int_equal(upload_write(late, "true\n", 5, &e), 0);
	for (unsigned i = 0; i < BOX_QUEUE_MAX; i++)
		command(s, NULL, "true\n");
	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &root_user, &u, &e), 0);
	assert_int_equal(upload_write(u, "true\n", 5, &e), -EBUSY);
	upload_abort(u);
	/* Written before the queue was full, closed after: a command with a number that ends at once. */
	upload_commit(late);
	assert_int_equal(sandbox_latest_exec(s), BOX_QUEUE_MAX + 1);
	assert_record_says(s, BOX_QUEUE_MAX + 1, "queue is full");
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

static void test_ctl_words(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	static const struct {
		const char *line;
		int code;
	} cases[] = {
		{ "dance", -EINVAL },	       { "start now", -EINVAL },
		{ "signal", -EINVAL },	       { "signal SIGNOPE", -EINVAL },
		{ "kill", -ENOENT },	       { "pause", -EBUSY },
		{ "resume", -EBUSY },	       { "stop", -EBUSY },
		{ "extend x", -EINVAL },       { "extend 10", 0 },
		{ "kill-inherited", -ENOENT },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = { 0 };

		assert_int_equal(sandbox_ctl(s, cases[i].line, &root_user, &e), cases[i].code);
		if (cases[i].code)
			assert_string_equal(sandbox_error(s), e.msg);
	}
}

/* The tree may hold one for as long as somebody stands in it, and it counts in nobody's limit. */
static void test_a_removed_one_holds_no_descriptors(void **state)
{
	struct world *w = *state;
	struct sandbox *s = sandbox_ref(make(w, "a", &root_user));

	assert_true(sandbox_dirfd(s) >= 0);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
	assert_int_equal(sandbox_dirfd(s), -1);
	sandbox_unref(s);
}

static void test_a_restarted_daemon_settles_what_is_gone(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct msg m;

	command(s, NULL, "sleep 60\n");
	box_expect(w, BOX_START, &m);
	box_state(w, BOX_READY, "");
	bring_down(w); /* as kill -9 would: nothing is told to anybody */
	bring_up(w);   /* the launcher lists no cgroup: the machine is gone */
	spin(w);
	s = registry_find(w->reg, NULL, "a");
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_record_says(s, 1, "lost while no daemon ran");
}

static void test_slots(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct err e = { 0 };
	size_t taken = 0;
	static char block[BOX_STDIN_WINDOW + 1];
	struct msg m;

	assert_int_equal(slot_create(s, "12", &root_user, &e), -EINVAL);
	assert_int_equal(slot_create(s, "latest", &root_user, &e), -EINVAL);
	assert_int_equal(slot_create(s, "in", &root_user, &e), 0);
	assert_int_equal(slot_create(s, "in", &root_user, &e), -EEXIST);
	assert_int_equal(slot_ctl(s, "in", "resize 0 80", &root_user, &e), -EINVAL);
	assert_int_equal(slot_ctl(s, "in", "kill", &root_user, &e), -ENOENT);
	/* Input before the command is kept, up to the window. */
	assert_int_equal(slot_stdin(s, "in", block, sizeof(block), &taken, &e), 0);
	assert_int_equal(taken, BOX_STDIN_WINDOW);
	assert_int_equal(slot_stdin(s, "in", block, 1, &taken, &e), -EAGAIN);
	assert_int_equal(slot_stdin_room(s, "in"), 0);
	command(s, "in", "cat\n");
	assert_int_equal(slot_latest_exec(s, "in"), 1);
	assert_int_equal(sandbox_latest_exec(s), 0); /* the queue has none */
	box_expect(w, BOX_START, &m);
	box_expect(w, BOX_EXEC, &m);
	box_state(w, BOX_READY, "");
	/* Nothing goes to a command that does not run yet: the box could not take it. */
	assert_int_equal(slot_stdin(s, "in", block, 1, &taken, &e), -EAGAIN);
	box_progress(w, 1);
	for (unsigned i = 0; i < BOX_STDIN_WINDOW / 65536; i++)
		box_expect(w, BOX_STDIN, &m);
	assert_int_equal(slot_stdin(s, "in", block, 1, &taken, &e), -EAGAIN);
	struct buf b;
	buf_init(&b, 64);
	wire_put_u64(&b, 1);
	wire_put_u32(&b, 5);
	box_say(w, BOX_STDIN_CREDIT, 0, &b);
	assert_int_equal(slot_stdin(s, "in", block, 10, &taken, &e), 0);
	assert_int_equal(taken, 5);
	/* More credit than was ever taken is a lie, and ignored. */
	buf_init(&b, 64);
	wire_put_u64(&b, 1);
	wire_put_u32(&b, UINT32_MAX);
	box_say(w, BOX_STDIN_CREDIT, 0, &b);
	assert_int_equal(slot_stdin_room(s, "in"), 0);
	box_done(w, 1);
	assert_int_equal(slot_stdin(s, "in", block, 1, &taken, &e), -EPIPE);
	assert_int_equal(slot_remove(s, "in", &root_user, &e), 0);
	assert_int_equal(slot_remove(s, "in", &root_user, &e), -ENOENT);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

/* A start may be unwanted at any of its steps: nothing of it stays, and the next one works. */
static void test_a_stop_at_each_step_of_a_start(void **state)
{
	struct world *w = *state;
	struct msg m;

	for (int step = 0; step < 9; step++) {
		struct sandbox *s = make(w, "a", &root_user);
		struct err e = { 0 };
		unsigned taken;

		command(s, NULL, "true\n");
		for (int i = 0; i < step; i++)
			loop_once(w->loop, 0);
		assert_int_equal(sandbox_ctl(s, "stop", &root_user, &e), 0);
		spin(w);
		assert_int_equal(sandbox_status(s), SBX_STOPPED);
		assert_record_says(s, 1, "\"cancelled\":true");
		assert_int_equal(w->fake.slots_taken, w->fake.slots_freed);
		/* The same with rmdir, right after the next start. */
		command(s, NULL, "true\n");
		for (int i = 0; i < step; i++)
			loop_once(w->loop, 0);
		registry_destroy(w->reg, s, &root_user, "test");
		spin(w);
		assert_int_equal(w->fake.slots_taken, w->fake.slots_freed);
		assert_int_equal(registry_count(w->reg), 0);
		taken = w->fake.slots_taken;
		s = make(w, "a", &root_user);
		command(s, NULL, "true\n");
		box_expect(w, BOX_START, &m);
		assert_true(w->fake.slots_taken > taken);
		registry_destroy(w->reg, s, &root_user, "test");
		spin(w);
	}
}

struct fs_answer {
	int calls, code;
};

static void on_fs(void *arg, int code, struct wire_rd *r)
{
	struct fs_answer *a = arg;

	(void)r;
	a->calls++;
	a->code = code;
}

static void test_fs_calls_wait_for_the_guest_and_end_with_it(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct fs_answer first = { 0 }, second = { 0 }, cancelled = { 0 };
	struct fs_call *c = NULL;
	struct msg m;
	struct buf b;

	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &first, NULL), 0);
	assert_int_equal(sandbox_fs(s, AG_FS_OPEN, "x", 1, &root_user, on_fs, &cancelled, &c), 0);
	box_expect(w, BOX_START, &m);
	assert_int_equal(first.calls, 0);
	box_state(w, BOX_READY, "");
	box_expect(w, BOX_FS, &m);
	buf_init(&b, 64);
	wire_put_u32(&b, 0);
	wire_put_str(&b, "");
	box_say(w, BOX_REPLY, m.id, &b);
	assert_int_equal(first.calls, 1);
	assert_int_equal(first.code, 0);
	/* A late open that nobody wants any more: its handle goes back. */
	box_expect(w, BOX_FS, &m);
	fs_call_cancel(c);
	buf_init(&b, 64);
	wire_put_u32(&b, 0);
	wire_put_str(&b, "");
	wire_put_u32(&b, 77);
	box_say(w, BOX_REPLY, m.id, &b);
	assert_int_equal(cancelled.calls, 0);
	box_expect(w, BOX_FS, &m);
	assert_int_equal(m.data[0], AG_FS_RELEASE);
	assert_int_equal(m.data[1], 77);
	/* The machine dies with one outstanding. */
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &second, NULL), 0);
	fd_close(&w->fake.box_fd);
	spin(w);
	assert_int_equal(second.calls, 1);
	assert_int_equal(second.code, -ENOTCONN);
	assert_int_equal(sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &second, NULL), -ENOTCONN);
}

static void test_a_box_speaks_for_its_own_sandbox_only(void **state)
{
	struct world *w = *state;
	struct sandbox *a = make(w, "a", &root_user), *b = make(w, "b", &root_user);
	struct msg m;

	command(b, NULL, "true\n");
	box_expect(w, BOX_START, &m);
	command(a, NULL, "true\n"); /* its own box takes the test's descriptor over */
	box_expect(w, BOX_START, &m);
	box_expect(w, BOX_EXEC, &m);
	/* Nonsense of all kinds: lengths, unknown numbers, unknown types. */
	for (uint16_t type = 0; type < 100; type++) {
		struct buf t;

		if (type == BOX_HELLO || type == BOX_STATE)
			continue;
		buf_init(&t, 64);
		wire_put_u64(&t, 999);
		wire_put_u8(&t, 255);
		box_say(w, type, 12345, &t);
	}
	assert_int_equal(exec_state(sandbox_exec(b, 1)), EXEC_QUEUED);
	assert_int_equal(exec_state(sandbox_exec(a, 1)), EXEC_QUEUED);
	/* A hello that names the other one changes nothing of it. */
	uint64_t none[1] = { 0 };
	box_hello(w, b, 1, none, 0);
	assert_int_equal(exec_state(sandbox_exec(b, 1)), EXEC_QUEUED);
	registry_destroy(w->reg, a, &root_user, "test");
	registry_destroy(w->reg, b, &root_user, "test");
	spin(w);
}

static bool count_log(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns)
{
	(void)uuid;
	(void)owner;
	(void)name;
	(void)changed_ns;
	++*(int *)arg;
	return true;
}

static void test_journals_outlive_and_are_each_owners_own(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "mine", &alice);
	const struct cfs_who bob = { .uid = 1002, .gid = 1002 };
	char uuid[40], text[4096];
	int fd = -1, logs = 0;
	ssize_t n;

	snprintf(uuid, sizeof(uuid), "%s", sandbox_uuid(s));
	make(w, "roots", &root_user);
	registry_destroy(w->reg, s, &alice, "test");
	spin(w);
	assert_int_equal(journal_open_log(w->reg, uuid, &bob, &fd), -EACCES);
	assert_int_equal(journal_open_log(w->reg, "no-such", &alice, &fd), -ENOENT);
	assert_int_equal(journal_open_log(w->reg, uuid, &alice, &fd), 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	assert_true(n > 0);
	text[n] = '\0';
	assert_non_null(strstr(text, "\"event\":\"created\""));
	assert_non_null(strstr(text, "\"event\":\"destroyed\""));
	assert_int_equal(journal_open_events(w->reg, &alice, &fd), 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	assert_non_null(strstr(text, "\"sandbox\":\"mine\""));
	assert_null(strstr(text, "\"sandbox\":\"roots\""));
	assert_int_equal(journal_open_events(w->reg, &bob, &fd), 0);
	assert_int_equal(read(fd, text, sizeof(text)), 0);
	close(fd);
	journal_each_log(w->reg, NULL, count_log, &logs);
	assert_int_equal(logs, 2);
}

static void restart(struct world *w)
{
	bring_down(w);
	bring_up(w);
	spin(w);
}

/* A running command older than a thousand ended ones, overtaken in its slot: its entry goes with its end, and nothing
 * else must. */
static void test_ending_all_forgets_none_too_early(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct err e = { 0 };
	struct msg m;

	assert_int_equal(slot_create(s, "in", &root_user, &e), 0);
	command(s, "in", "sleep 1000\n");
	command(s, "in", "sleep 1000\n");
	box_expect(w, BOX_START, &m);
	box_state(w, BOX_READY, "");
	box_progress(w, 1);
	for (uint64_t n = 3; n < 3 + BOX_KEEP_EXECS; n++) {
		command(s, NULL, "true\n");
		box_expect(w, BOX_EXEC, &m);
		box_done(w, n);
	}
	for (int i = 0; i < 10; i++)
		command(s, NULL, "true\n");
	fd_close(&w->fake.box_fd);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_FAILED);
	assert_null(sandbox_exec(s, 1)); /* forgotten, after its record was written */
	assert_int_equal(exec_state(sandbox_exec(s, 2)), EXEC_DONE);
	assert_record_says(s, sandbox_latest_exec(s), "\"cancelled\":true");
}

/* The daemon is killed between mkdir and the command: the number is lost, the sandbox is not. */
static void test_a_half_accepted_command_is_in_nobodys_way(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	char path[128];

	snprintf(path, sizeof(path), "sandboxes/%s/box/exec/1", sandbox_uuid(s));
	assert_int_equal(mkdirat(w->store_fd, path, 0770), 0);
	snprintf(path, sizeof(path), "sandboxes/%s/tmp/stdin-9", sandbox_uuid(s));
	put(w, path, "half an input");
	restart(w);
	assert_int_equal(faccessat(w->store_fd, path, F_OK, 0), -1);
	s = registry_find(w->reg, NULL, "a");
	command(s, NULL, "true\n");
	assert_int_equal(sandbox_latest_exec(s), 2);
	/* And one that is in the way now, whoever made it. */
	snprintf(path, sizeof(path), "sandboxes/%s/box/exec/3", sandbox_uuid(s));
	assert_int_equal(mkdirat(w->store_fd, path, 0770), 0);
	command(s, NULL, "true\n");
	assert_int_equal(sandbox_latest_exec(s), 2);
	command(s, NULL, "true\n");
	assert_int_equal(sandbox_latest_exec(s), 4);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

/* Input for the next command stays that when one could not be accepted. */
static void test_input_outlives_a_refused_command(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	static char block[100000];
	struct upload *u = NULL;
	struct err e = { 0 };
	char cmd[256], path[128];

	assert_int_equal(upload_new(s, UPLOAD_STDIN, NULL, &root_user, &u, &e), 0);
	assert_int_equal(upload_write(u, "input", 5, &e), 0);
	upload_commit(u);
	memset(block, 'x', sizeof(block)); /* too long for memory: it lies in tmp/, from where it disappears */
	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &root_user, &u, &e), 0);
	assert_int_equal(upload_write(u, block, sizeof(block), &e), 0);
	snprintf(cmd, sizeof(cmd), "rm %s/sandboxes/%s/tmp/cmd-*", w->dir, sandbox_uuid(s));
	assert_int_equal(system(cmd), 0);
	upload_commit(u);
	assert_int_equal(sandbox_latest_exec(s), 0);
	command(s, NULL, "cat\n");
	snprintf(path, sizeof(path), "sandboxes/%s/box/exec/%d/stdin", sandbox_uuid(s), (int)sandbox_latest_exec(s));
	assert_int_equal(faccessat(w->store_fd, path, F_OK, 0), 0);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

/* Words of users and boxes are kept in sandbox.json, and that must be readable afterwards. */
static void test_no_words_make_a_sandbox_unreadable(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user), *b = make(w, "b", &root_user);
	struct err e = { 0 };
	struct msg m;

	assert_int_equal(sandbox_attr_store(s, ATTR_ENV, "A=\xff\n", 5, &root_user, &e), -EINVAL);
	assert_int_equal(sandbox_ctl(s, "\xff\xfe", &root_user, &e), -EINVAL);
	assert_int_equal(sandbox_attr_store(s, ATTR_TIMEOUT_S, "5", 1, &root_user, &e), 0); /* writes it */
	command(b, NULL, "true\n");
	box_expect(w, BOX_START, &m);
	box_state(w, BOX_GONE, "half a character: \xc3");
	spin(w);
	assert_int_equal(sandbox_status(b), SBX_FAILED);
	restart(w);
	assert_non_null(registry_find(w->reg, NULL, "a"));
	assert_non_null(registry_find(w->reg, NULL, "b"));
}

/* A command in a slot that comes while the machine goes down is for the next machine, like one of the queue. */
static void test_a_slots_command_after_a_stop_starts_the_next_machine(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct err e = { 0 };
	struct msg m;

	assert_int_equal(slot_create(s, "side", &root_user, &e), 0);
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), 0);
	box_expect(w, BOX_START, &m);
	assert_int_equal(sandbox_ctl(s, "stop", &root_user, &e), 0);
	command(s, "side", "true\n");
	box_expect(w, BOX_START, &m);
	assert_int_equal(w->fake.spawned_boxes, 2);
	box_expect(w, BOX_EXEC, &m);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

/* A box that floods the journal is cut off: what others did must stay in it. */
static void test_a_box_cannot_flood_the_journal(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct stat st;
	struct msg m;

	command(s, NULL, "true\n");
	box_expect(w, BOX_START, &m);
	for (int i = 0; i < 5000; i++) {
		assert_int_equal(msg_send(w->fake.box_fd, BOX_EVENT, 0, "{\"event\":\"noise\"}", 17, NULL, 0), 0);
		if (i % 16 == 0)
			spin(w);
	}
	spin(w);
	assert_int_equal(fstatat(w->store_fd, "state/events.jsonl", &st, 0), 0);
	assert_true(st.st_size < 5000 * 50);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

/* A box that was taken over makes its folders lead to another sandbox: nothing is read or written there. */
static void test_links_of_a_box_lead_nowhere(void **state)
{
	struct world *w = *state;
	struct sandbox *victim = make(w, "v", &alice), *s = make(w, "a", &root_user);
	char secret[128], cmd[512];
	struct msg m;
	struct buf b;
	int fd = -1;

	for (int whole = 0; whole < 2; whole++) {
		uint64_t n;

		command(s, NULL, "true\n");
		n = sandbox_latest_exec(s);
		box_expect(w, BOX_START, &m);
		box_state(w, BOX_READY, "");
		snprintf(secret, sizeof(secret), "sandboxes/%s/box/exec/%d", sandbox_uuid(victim), (int)n);
		assert_int_equal(mkdirat(w->store_fd, secret, 0770), 0);
		snprintf(secret, sizeof(secret), "sandboxes/%s/box/exec/%d/stdout", sandbox_uuid(victim), (int)n);
		put(w, secret, "secret");
		snprintf(cmd, sizeof(cmd), "cd %s/sandboxes/%s/box && mv %s ../moved-%d && ln -s ../../%s%s/box/%s %s",
			 w->dir, sandbox_uuid(s), whole ? "exec" : "exec/1", whole, whole ? "" : "../",
			 sandbox_uuid(victim), whole ? "exec" : "exec/1", whole ? "exec" : "exec/1");
		assert_int_equal(system(cmd), 0);
		assert_int_equal(exec_output_bytes(s, sandbox_exec(s, n), 1), 0);
		assert_true(exec_open_output(s, sandbox_exec(s, n), 1, &fd) < 0);
		fd_close(&w->fake.box_fd);
		spin(w);
		assert_int_equal(exec_state(sandbox_exec(s, n)), EXEC_DONE);
		buf_init(&b, 1 << 20);
		assert_true(exec_record(s, sandbox_exec(s, n), &b) < 0);
		buf_fini(&b);
		snprintf(secret, sizeof(secret), "sandboxes/%s/box/exec/%d/result.json", sandbox_uuid(victim), (int)n);
		assert_int_equal(faccessat(w->store_fd, secret, F_OK, 0), -1);
	}
	/* No command can be placed through the link either. */
	command(s, NULL, "true\n");
	snprintf(secret, sizeof(secret), "sandboxes/%s/box/exec/3", sandbox_uuid(victim));
	assert_int_equal(faccessat(w->store_fd, secret, F_OK, 0), -1);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

static void on_all_down(void *arg)
{
	++*(int *)arg;
}

/* The launcher has died: a shutdown still ends, once the boxes have. */
static void test_a_shutdown_without_a_launcher_ends(void **state)
{
	struct world *w = *state;
	struct sandbox *s = make(w, "a", &root_user);
	struct msg m;
	int down = 0;

	command(s, NULL, "true\n");
	box_expect(w, BOX_START, &m);
	box_state(w, BOX_READY, "");
	registry_launcher_gone(w->reg);
	registry_shutdown(w->reg, on_all_down, &down);
	spin(w);
	assert_int_equal(down, 0);
	box_state(w, BOX_GONE, "");
	assert_int_equal(sandbox_status(s), SBX_STOPPED);
	assert_int_equal(down, 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_names_and_quotas),
		T(test_attributes_have_ranges_and_words),
		T(test_what_is_in_the_store_survives_the_daemon),
		T(test_a_lease_does_not_outlive_the_daemon),
		T(test_a_half_made_sandbox_is_not_one),
		T(test_uploads_refuse_early_and_commit_once),
		T(test_a_start_that_fails_is_in_the_record),
		T(test_a_command_goes_to_the_box_and_back),
		T(test_a_box_that_dies_loses_its_commands_in_words),
		T(test_the_queue_is_bounded),
		T(test_ctl_words),
		T(test_a_removed_one_holds_no_descriptors),
		T(test_a_restarted_daemon_settles_what_is_gone),
		T(test_slots),
		T(test_a_stop_at_each_step_of_a_start),
		T(test_fs_calls_wait_for_the_guest_and_end_with_it),
		T(test_a_box_speaks_for_its_own_sandbox_only),
		T(test_journals_outlive_and_are_each_owners_own),
		T(test_ending_all_forgets_none_too_early),
		T(test_a_half_accepted_command_is_in_nobodys_way),
		T(test_input_outlives_a_refused_command),
		T(test_no_words_make_a_sandbox_unreadable),
		T(test_a_slots_command_after_a_stop_starts_the_next_machine),
		T(test_a_box_cannot_flood_the_journal),
		T(test_links_of_a_box_lead_nowhere),
		T(test_a_shutdown_without_a_launcher_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
