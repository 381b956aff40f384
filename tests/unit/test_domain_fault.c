/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a sandbox, and of a snapshot and a fork of one, once for each allocation and system call in it that can
 * fail: nothing crashes, nothing leaks (under the sanitizers), nothing half made stays, and the next sandbox works. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "agent/proto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/msg.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "cruciblefs/domain/view_priv.h"
#include "tests/unit/domain_world.h"
#include "tests/unit/fault.h"
#include "vmm/box/box.h"

#define FAULTS_MAX 5000u /* more calls than that, and the test has lost its way */

/* What a box would say; the message may get lost on a failing call, as everything here. */
static void box_say(struct world *w, uint16_t type, void (*fill)(struct buf *b))
{
	struct buf b;

	if (w->fake.box_fd < 0)
		return;
	buf_init(&b, 4096);
	fill(&b);
	if (b.len)
		msg_send(w->fake.box_fd, type, 0, b.data, b.len, NULL, 0);
	buf_fini(&b);
	spin(w);
}

static void fill_ready(struct buf *b)
{
	wire_put_u8(b, BOX_READY);
	wire_put_str(b, "");
	wire_put_str(b, "{\"kernel\":\"k\"}");
}

static void fill_progress(struct buf *b)
{
	wire_put_u64(b, 1);
	wire_put_u8(b, 1);
	wire_put_u64(b, 0);
	wire_put_u64(b, 0);
}

static void fill_done(struct buf *b)
{
	wire_put_u64(b, 1);
	wire_put_u32(b, 0);
	wire_put_str(b, "");
	wire_put_str(b, "");
	wire_put_u64(b, 1);
	wire_put_u64(b, 2);
}

static void on_fs(void *arg, int code, struct wire_rd *r)
{
	(void)code;
	(void)r;
	++*(int *)arg;
}

static void write_command(struct sandbox *s, const char *slot, const char *text)
{
	struct upload *u = NULL;
	struct err e = { 0 };

	if (upload_new(s, UPLOAD_CMD, slot, &root_user, &u, &e) < 0)
		return;
	if (upload_write(u, text, strlen(text), &e) < 0)
		assert_true(e.msg[0] != '\0');
	upload_commit(u);
}

/* Whatever fails, the file says what is in force. */
static void net_lists(struct sandbox *s)
{
	static const char allow[] = "a.test\n198.51.100.0/24:80\n";
	struct err e = { 0 };

	if (sandbox_net_allow_store(s, "a.test\n", 7, &root_user, &e) < 0) {
		assert_true(e.msg[0] != '\0' && !s->attrs.net_allow);
	} else {
		assert_string_equal(s->attrs.net_allow, "a.test\n");
		assert_true(sandbox_net_allow_store(s, allow, sizeof(allow) - 1, &root_user, &e) <
			    0); /* no such range */
		assert_string_equal(s->attrs.net_allow, "a.test\n");
	}
	e = (struct err){ 0 };
	if (sandbox_net_ports_store(s, "127.0.0.77:8077:80\n", 19, &root_user, &e) < 0)
		assert_true(e.msg[0] != '\0' && !s->net.nports);
}

/* Each step is tried whatever became of those before. */
static void life(struct world *w)
{
	struct sandbox *s = NULL;
	struct err e = { 0 };
	struct buf out;
	int answers = 0;

	if (registry_create(w->reg, "a", &root_user, &s, &e) < 0) {
		assert_true(e.msg[0] != '\0');
		assert_null(registry_find(w->reg, NULL, "a"));
		return;
	}
	sandbox_attr_store(s, ATTR_ENV, "A=1\n", 4, &root_user, &e);
	net_lists(s);
	slot_create(s, "side", &root_user, &e);
	write_command(s, NULL, "true\n");
	spin(w);
	box_say(w, BOX_STATE, fill_ready);
	box_say(w, BOX_PROGRESS, fill_progress);
	sandbox_fs(s, AG_FS_STATFS, NULL, 0, &root_user, on_fs, &answers, NULL);
	write_command(s, "side", "cat\n");
	box_say(w, BOX_DONE, fill_done);
	sandbox_net_allow_store(s, "b.test\n", 7, &root_user, &e);
	buf_init(&out, 1 << 20);
	sandbox_info_json(s, &out);
	sandbox_usage_json(s, &out);
	sandbox_net_allow_show(s, &out);
	sandbox_net_ports_show(s, &out);
	registry_health_json(w->reg, &root_user, &out);
	registry_metrics(w->reg, &root_user, &out);
	buf_fini(&out);
	registry_rename(w->reg, s, "b", &root_user, &e);
	sandbox_ctl(s, "stop", &root_user, &e);
	spin(w);
	registry_destroy(w->reg, s, &root_user, "test");
	spin(w);
}

/* -- of a snapshot and a fork, with boxes that play ------------------------------------------------------------ */

static void lives_of_snapshots(struct world *w)
{
	struct sandbox *s = NULL;
	struct snapshot_job *j = NULL;
	struct snapshot *p;
	struct err e = { 0 };
	struct buf out;

	if (registry_create(w->reg, "a", &root_user, &s, &e) < 0) {
		assert_true(e.msg[0] != '\0');
		return;
	}
	sandbox_net_allow_store(s, "a.test\n", 7, &root_user, &e);
	e = (struct err){ 0 };
	if (sandbox_ctl(s, "start", &root_user, &e) < 0)
		assert_true(e.msg[0] != '\0');
	spin(w);
	for (int i = 0; i < 2; i++) { /* of a machine that booted cold, and of one that was re-based */
		e = (struct err){ 0 };
		if (sandbox_snapshot(s, i ? "two" : "one", &root_user, &j, &e) < 0) {
			assert_true(e.msg[0] != '\0');
			continue;
		}
		spin(w);
		snapshot_job_drop(j);
	}
	p = registry_find_snapshot(w->reg, NULL, "two");
	if (p) {
		buf_init(&out, 1 << 20);
		snapshot_info_json(p, &out);
		buf_fini(&out);
		e = (struct err){ 0 };
		if (snapshot_fork(p, "2", false, &root_user, &j, &e) < 0) {
			assert_true(e.msg[0] != '\0');
		} else {
			spin(w);
			snapshot_job_drop(j);
		}
	}
}

static void end_lives(struct world *w)
{
	while (w->reg->first) {
		registry_destroy(w->reg, w->reg->first, &root_user, "test");
		spin(w);
	}
	for (int i = 0; i < 2; i++) {
		struct snapshot *p = registry_find_snapshot(w->reg, NULL, i ? "two" : "one");

		if (p)
			snapshot_destroy(p, &root_user);
		spin(w);
	}
}

static void assert_nothing_left(struct world *w, unsigned nth)
{
	int fd = openat(w->store_fd, "sandboxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d)
		fail_msg("after the fault at call %u (%s) sandboxes/: %s", nth, fault_name(), strerror(errno));
	while ((ent = readdir(d))) {
		if (ent->d_name[0] != '.')
			fail_msg("after the fault at call %u (%s) sandboxes/%s stays", nth, fault_name(), ent->d_name);
	}
	closedir(d);
}

static void test_each_call_of_a_life_may_fail(void **state)
{
	struct world *w = *state;
	unsigned nth = 1;
	bool hit;

	log_set_level(LOG_L_ERR); /* warnings are the point here */
	do {
		fault_arm(nth);
		life(w);
		hit = fault_disarm();
		spin(w);
		assert_int_equal(registry_count(w->reg), 0);
		assert_int_equal(w->fake.slots_taken, w->fake.slots_freed);
		/* Removal is the pool's: what it could not do is done at the next start. */
		if (nth % 16 == 0 || !hit) {
			bring_down(w);
			bring_up(w);
			bring_down(w);
			assert_nothing_left(w, nth);
			w->fake = (struct fake_launcher){ 0 };
			bring_up(w);
		}
	} while (hit && ++nth < FAULTS_MAX);
	assert_false(hit);
	/* It would be a poor life that makes no calls. */
	assert_true(nth > 100);
	print_message("%u calls were made to fail\n", nth - 1);
}

static void test_each_call_of_a_snapshots_life_may_fail(void **state)
{
	struct world *w = *state;
	unsigned nth = 1;
	bool hit;

	log_set_level(LOG_L_ERR);
	boxes_play(w);
	do {
		fault_arm(nth);
		lives_of_snapshots(w);
		hit = fault_disarm();
		end_lives(w);
		assert_int_equal(registry_count(w->reg), 0);
		if (w->fake.slots_taken != w->fake.slots_freed)
			fail_msg("after the fault at call %u (%s) a slot is taken", nth, fault_name());
		if (w->reg->first_snapshot)
			fail_msg("after the fault at call %u (%s) snapshot %s stays", nth, fault_name(),
				 w->reg->first_snapshot->name);
		if (fake_box_count())
			fail_msg("after the fault at call %u (%s) a box lives", nth, fault_name());
		/* What the pager could not be told for want of memory, it keeps until the machine's end or its own. */
		fakes.nset[FAKE_DISKS] = fakes.nset[FAKE_EXPORTS] = fakes.nset[FAKE_MACHINES] = 0;
		fakes.nset[FAKE_NETS] = 0;
		fakes.nset[FAKE_TEMPLATES] = fakes.nset[FAKE_CAPTURED] = fakes.nset[FAKE_STORED] = 0;
		if (nth % 32 == 0 || !hit) {
			bring_down(w);
			bring_up(w);
			bring_down(w);
			assert_nothing_left(w, nth);
			w->fake = (struct fake_launcher){ 0 };
			boxes_play(w);
			bring_up(w);
		}
	} while (hit && ++nth < FAULTS_MAX);
	assert_false(hit);
	assert_true(nth > 300);
	print_message("%u calls were made to fail\n", nth - 1);
}

/* -- of a view, and of what is made through it ------------------------------------------------------------------- */

static void lives_of_views(struct world *w)
{
	static const char wide[] = "{\"max_sandboxes\":2}", narrow[] = "{\"max_sandboxes\":1,\"max_vcpus\":1}";
	struct cfs_who who = { .uid = 1001, .gid = 1001 };
	struct sandbox *s = NULL;
	struct view *v = NULL;
	struct err e = { 0 };
	struct buf out;

	if (registry_create_view(w->reg, "v", &root_user, &v, &e) < 0) {
		assert_true(e.msg[0] != '\0');
		assert_null(registry_find_view(w->reg, "v"));
		return;
	}
	who.view = v;
	for (int i = 0; i < 2; i++) {
		const struct policy *old = v->policy;
		const char *text = i ? narrow : wide;

		e = (struct err){ 0 };
		if (view_policy_store(v, text, strlen(text), &root_user, &e) < 0) {
			assert_true(e.msg[0] != '\0');
			assert_ptr_equal(v->policy, old);
		}
		e = (struct err){ 0 };
		if (!s && registry_create(w->reg, "a", &who, &s, &e) < 0)
			assert_true(e.msg[0] != '\0');
	}
	e = (struct err){ 0 };
	if (view_ttl_store(v, "1h", 2, &root_user, &e) < 0)
		assert_true(e.msg[0] != '\0' && !v->expires_ns);
	if (view_chown(v, 5, 5, &root_user, &e) < 0)
		assert_int_equal(v->owner.uid, 0);
	buf_init(&out, 1 << 20);
	view_info_json(v, &out);
	view_policy_show(v, &out);
	registry_policy_json(w->reg, &who, &out);
	registry_health_json(w->reg, &who, &out);
	registry_metrics(w->reg, &who, &out);
	buf_fini(&out);
	if (s) {
		sandbox_net_allow_store(s, "a.test\n", 7, &who, &e);
		e = (struct err){ 0 };
		if (sandbox_ctl(s, "start", &who, &e) < 0)
			assert_true(e.msg[0] != '\0');
	}
	spin(w);
	e = (struct err){ 0 };
	if (registry_remove_view(w->reg, v, &root_user, &e) < 0) {
		assert_true(e.msg[0] != '\0');
		assert_ptr_equal(registry_find_view(w->reg, "v"), v);
		assert_false(v->gone);
	} else {
		assert_null(registry_find_view(w->reg, "v"));
	}
	spin(w);
}

/* What the store says is what was in force: the next daemon has the same. */
static void assert_same_after_a_restart(struct world *w, unsigned nth)
{
	struct view *v = registry_find_view(w->reg, "v");
	struct buf before, after;
	uint64_t expires_ns = v ? v->expires_ns : 0;
	uid_t uid = v ? v->owner.uid : 0;
	bool had = v != NULL;

	buf_init(&before, 65536);
	buf_init(&after, 65536);
	if (v)
		view_policy_show(v, &before);
	bring_down(w);
	w->fake = (struct fake_launcher){ 0 };
	boxes_play(w);
	bring_up(w);
	v = registry_find_view(w->reg, "v");
	if (v)
		view_policy_show(v, &after);
	if ((v != NULL) != had || (v && (v->expires_ns != expires_ns || v->owner.uid != uid)) ||
	    before.len != after.len || (before.len && memcmp(before.data, after.data, before.len) != 0))
		fail_msg("after the fault at call %u (%s) the view is another one", nth, fault_name());
	buf_fini(&before);
	buf_fini(&after);
}

static void test_each_call_of_a_views_life_may_fail(void **state)
{
	struct world *w = *state;
	unsigned nth = 1;
	bool hit;

	log_set_level(LOG_L_ERR);
	boxes_play(w);
	do {
		struct err e = { 0 };
		struct view *v;

		fault_arm(nth);
		lives_of_views(w);
		hit = fault_disarm();
		assert_same_after_a_restart(w, nth);
		v = registry_find_view(w->reg, "v");
		if (v)
			assert_int_equal(registry_remove_view(w->reg, v, &root_user, &e), 0);
		spin(w);
		if (registry_count(w->reg))
			fail_msg("after the fault at call %u (%s) a sandbox stays", nth, fault_name());
		/* What of a removed one could not be unlinked, the next start does. */
		until(w, count_entries(w, "sandboxes") == 0);
		if (count_entries(w, "views"))
			fail_msg("after the fault at call %u (%s) a file of views/ stays", nth, fault_name());
		fakes.nset[FAKE_DISKS] = fakes.nset[FAKE_EXPORTS] = fakes.nset[FAKE_MACHINES] = 0;
		fakes.nset[FAKE_NETS] = 0;
	} while (hit && ++nth < FAULTS_MAX);
	assert_false(hit);
	assert_true(nth > 100);
	print_message("%u calls were made to fail\n", nth - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_each_call_of_a_life_may_fail, world_setup, world_teardown),
		cmocka_unit_test_setup_teardown(test_each_call_of_a_snapshots_life_may_fail, world_setup,
						world_teardown),
		cmocka_unit_test_setup_teardown(test_each_call_of_a_views_life_may_fail, world_setup, world_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
