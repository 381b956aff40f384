/* SPDX-License-Identifier: Apache-2.0 */
/* Views as objects: names of their own, ends of theirs, what a restart finds. What policies permit is in
 * test_domain_policy.c. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/unit/view_fix.h"

#define MOST "{\"operations\":[" ALL_OPS "]}"

static char *shown(struct view *v, int (*show)(struct view *v, struct buf *out))
{
	static char text[8192];
	struct buf b;

	buf_init(&b, sizeof(text));
	assert_int_equal(show(v, &b), 0);
	snprintf(text, sizeof(text), "%s", b.len ? buf_str(&b) : "");
	buf_fini(&b);
	return text;
}

static int show_ttl(struct view *v, struct buf *out)
{
	return view_ttl_show(v, out);
}

static int show_policy(struct view *v, struct buf *out)
{
	return view_policy_show(v, out);
}

static bool store_has(struct world *w, const char *path)
{
	struct stat st;

	return fstatat(w->store_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int remove_view(struct world *w, struct view *v)
{
	struct err e = { 0 };

	return registry_remove_view(w->reg, v, &root_user, &e);
}

/* -- making and writing ------------------------------------------------------------------------------------------- */

static void test_who_may_make_one(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", NULL), *other = NULL;
	struct cfs_who inside;
	struct err e;

	assert_int_equal(view_status(v), VIEW_NEW);
	assert_true(view_dead(v));
	assert_int_equal(registry_create_view(w->reg, "x", &alice, &other, &e), -EPERM);
	assert_says(e.msg, "views/x");
	assert_int_equal(registry_create_view(w->reg, "../x", &root_user, &other, &e), -EINVAL);
	assert_int_equal(registry_create_view(w->reg, "ci", &root_user, &other, &e), -EEXIST);
	assert_int_equal(write_policy(v, MOST, &e), 0);
	assert_int_equal(view_status(v), VIEW_ACTIVE);
	/* No view in a view, not even for root; nor are they changed from inside. */
	inside = through(v, &root_user);
	assert_int_equal(registry_create_view(w->reg, "x", &inside, &other, &e), -EPERM);
	assert_int_equal(write_policy(v, "{\"operations\":[\"create\",\"admin\"]}", &e), 0);
	assert_int_equal(registry_may(w->reg, &inside, POLICY_ADMIN, &e), 0);
	assert_int_equal(registry_create_view(w->reg, "x", &inside, &other, &e), -EPERM);
	assert_int_equal(view_policy_store(v, MOST, strlen(MOST), &inside, &e), -EPERM);
	assert_int_equal(view_ttl_store(v, "none", 4, &inside, &e), -EPERM);
	assert_int_equal(registry_remove_view(w->reg, v, &inside, &e), -EPERM);
	assert_int_equal(view_chown(v, 1, 1, &inside, &e), -EPERM);
	/* Its owner is not who may change it. */
	assert_int_equal(view_chown(v, alice.uid, alice.gid, &alice, &e), -EPERM);
	assert_int_equal(view_chown(v, alice.uid, alice.gid, &root_user, &e), 0);
	assert_int_equal(view_owner(v).uid, alice.uid);
	assert_int_equal(view_policy_store(v, MOST, strlen(MOST), &alice, &e), -EPERM);
	assert_int_equal(view_ttl_store(v, "none", 4, &alice, &e), -EPERM);
	assert_int_equal(registry_remove_view(w->reg, v, &alice, &e), -EPERM);
	assert_string_equal(view_error(v), "");
	/* A user whose policy names admin makes some, and changes those; root's it does not. */
	bind_policy(w, false, bob.uid, "{\"operations\":[\"create\",\"admin\"]}");
	assert_int_equal(registry_create_view(w->reg, "bobs", &bob, &other, &e), 0);
	assert_int_equal(view_policy_store(other, MOST, strlen(MOST), &bob, &e), 0);
	assert_int_equal(view_policy_store(v, MOST, strlen(MOST), &bob, &e), -EPERM);
	assert_int_equal(view_chown(other, alice.uid, alice.gid, &bob, &e), -EPERM);
	assert_int_equal(registry_remove_view(w->reg, other, &bob, &e), 0);
	for (unsigned i = 1; i < VIEWS_MAX; i++) {
		char name[16];

		snprintf(name, sizeof(name), "v%u", i);
		new_view(w, name, NULL);
	}
	assert_int_equal(registry_create_view(w->reg, "x", &root_user, &other, &e), -EDQUOT);
}

static void test_a_wrong_policy_says_all_that_is_wrong(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", NULL);
	struct buf b;
	struct err e;

	buf_init(&b, 2 * POLICY_TEXT_MAX);
	assert_int_equal(view_policy_show(v, &b), -ENOENT);
	assert_int_equal(write_policy(v, "{\"max_fork\":0,\"colour\":1,\"operations\":[\"fly\"]}", &e), -EINVAL);
	assert_says(view_error(v), "view ci: policy: ");
	assert_says(view_error(v), "max_fork");
	assert_says(view_error(v), "colour");
	assert_says(view_error(v), "fly");
	assert_says(view_error(v), "; ");
	assert_null(strchr(view_error(v), '\n'));
	assert_int_equal(view_status(v), VIEW_NEW);
	assert_int_equal(write_policy(v, "{\"max_fork\":3}", &e), 0);
	assert_string_equal(view_error(v), "");
	/* What is wrong changes nothing. */
	assert_int_equal(write_policy(v, "no JSON", &e), -EINVAL);
	assert_says(shown(v, show_policy), "\"max_fork\": 3");
	assert_int_equal(view_status(v), VIEW_ACTIVE);
	/* What root has not opened is nothing to permit. */
	assert_int_equal(write_policy(v, "{\"net_allow_max\":[\"10.0.0.0/8\"]}", &e), -EINVAL);
	assert_says(view_error(v), "net_allow_max");
	snprintf(w->cfg.net_private, sizeof(w->cfg.net_private), "10.0.0.0/8");
	assert_int_equal(write_policy(v, "{\"net_allow_max\":[\"10.0.0.0/8\"]}", &e), 0);
	for (size_t i = 0; i <= POLICY_TEXT_MAX; i++)
		buf_adds(&b, " ");
	assert_int_equal(view_policy_store(v, (char *)b.data, b.len, &root_user, &e), -EFBIG);
	assert_says(view_error(v), "at most");
	buf_fini(&b);
}

static void test_ttl(void **state)
{
	static const struct {
		const char *text;
		const char *left; /* NULL: refused */
	} cases[] = {
		{ "none", "none\n" }, { "100", "100\n" },
		{ "100s", "100\n" },  { "2m", "120\n" },
		{ "3h", "10800\n" },  { "1d", "86400\n" },
		{ "0", NULL },	      { "-1", NULL },
		{ "", NULL },	      { "1w", NULL },
		{ "1hh", NULL },      { "1.5h", NULL },
		{ "None", NULL },     { "3650d", "315360000\n" },
		{ "3651d", NULL },    { "99999999999999999999", NULL },
	};
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);

	assert_string_equal(shown(v, show_ttl), "none\n");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct err e = { 0 };
		int k = view_ttl_store(v, cases[i].text, strlen(cases[i].text), &root_user, &e);

		if (k != (cases[i].left ? 0 : -EINVAL))
			fail_msg("ttl \"%s\": %d", cases[i].text, k);
		if (cases[i].left)
			assert_string_equal(shown(v, show_ttl), cases[i].left);
		else
			assert_says(view_error(v), "view ci: ttl: ");
		assert_int_equal(view_status(v), VIEW_ACTIVE);
	}
}

/* -- names -------------------------------------------------------------------------------------------------------- */

static void test_names_of_two_views_and_outside_do_not_meet(void **state)
{
	struct world *w = *state;
	struct view *one = new_view(w, "one", MOST), *two = new_view(w, "two", MOST);
	const struct cfs_who at[] = { alice, through(one, &alice), through(two, &alice) };
	struct sandbox *s[3];
	struct err e;

	for (size_t i = 0; i < 3; i++) {
		s[i] = runs_for(w, "a", &at[i]);
		assert_int_equal(create(w, "a", &at[i], NULL, &e), -EEXIST);
		assert_int_equal(snapshot_as(w, s[i], "snap", &at[i], &e), 0);
		assert_int_equal(snapshot_as(w, s[i], "snap", &at[i], &e), -EEXIST);
	}
	for (size_t i = 0; i < 3; i++) {
		struct snapshot *p = registry_find_snapshot(w->reg, at[i].view, "snap");

		assert_ptr_equal(registry_find(w->reg, at[i].view, "a"), s[i]);
		assert_null(registry_next(w->reg, at[i].view, s[i]));
		assert_non_null(p);
		assert_ptr_equal(sandbox_owner(s[i]).view, at[i].view);
		assert_null(registry_next_snapshot(w->reg, at[i].view, p));
		assert_string_equal(snapshot_source_uuid(p), sandbox_uuid(s[i]));
		/* Another's of that name tells nothing, nor is it reached. */
		assert_int_equal(registry_rename(w->reg, s[i], "b", &at[(i + 1) % 3], &e), i == 2 ? 0 : -ENOENT);
		assert_int_equal(registry_rename(w->reg, s[i], "b", &at[i], &e), 0);
	}
	assert_says(shown(one, view_info_json), "\"sandboxes\":1,\"snapshots\":1");
	/* They are all alice's, who may have three. */
	assert_int_equal(create(w, "c", &at[1], NULL, &e), -EDQUOT);
	assert_says(e.msg, "max_sandboxes_per_uid");
	restart(w);
	for (size_t i = 0; i < 3; i++) {
		struct view *v = i ? view_named(w, i == 1 ? "one" : "two") : NULL;

		assert_non_null(registry_find(w->reg, v, "b"));
		assert_non_null(registry_find_snapshot(w->reg, v, "snap"));
	}
}

static int count_logs_named;

static bool count_log(void *arg, const char *uuid, uid_t owner, const char *name, uint64_t changed_ns)
{
	(void)uuid;
	(void)owner;
	(void)changed_ns;
	count_logs_named += name[0] != '\0';
	++*(int *)arg;
	return true;
}

static int logs_of(struct world *w, const struct cfs_who *who)
{
	int n = 0;

	count_logs_named = 0;
	journal_each_log(w->reg, who, count_log, &n);
	return n;
}

static char *events_of(struct world *w, const struct cfs_who *who)
{
	int fd = -1;

	assert_int_equal(journal_open_events(w->reg, who, &fd), 0);
	return read_fd(fd);
}

static void assert_events(struct world *w, const struct cfs_who *who, const char *has, const char *has_not)
{
	char *text = events_of(w, who);

	if (has)
		assert_says(text, has);
	if (has_not && strstr(text, has_not))
		fail_msg("\"%s\" says \"%s\"", text, has_not);
	free(text);
}

static void test_nothing_tells_of_others(void **state)
{
	struct world *w = *state;
	struct view *one = new_view(w, "one", MOST), *two = new_view(w, "two", MOST);
	struct cfs_who a = through(one, &alice), b = through(two, &bob), root_in = through(one, &root_user);
	struct sandbox *mine = new_sandbox(w, "mine", &a), *roots = new_sandbox(w, "roots", &root_in);
	struct sandbox *others = new_sandbox(w, "others", &b);
	struct buf out;
	int fd = -1;

	new_sandbox(w, "outside", &alice);
	for (int again = 0; again < 2; again++) {
		assert_events(w, &a, "\"sandbox\":\"mine\",", "roots");
		assert_events(w, &a, NULL, "outside");
		assert_events(w, &a, "\"view\":\"one\"", "others");
		assert_events(w, &root_in, "\"sandbox\":\"roots\",", "others");
		assert_events(w, &root_in, "\"sandbox\":\"mine\",", "outside");
		assert_events(w, &alice, "\"sandbox\":\"outside\",", "others");
		assert_events(w, &alice, "\"sandbox\":\"mine\",", NULL);
		assert_events(w, &root_user, "\"sandbox\":\"others\",", NULL);
		assert_events(w, &root_user, "\"event\":\"view_policy\"", NULL);
		assert_int_equal(logs_of(w, &a), 2); /* their names, as run/ shows them; opening is another thing */
		assert_int_equal(logs_of(w, &b), 1);
		assert_int_equal(logs_of(w, &alice), 2);
		assert_int_equal(count_logs_named, 1); /* that of the view has no name out here */
		assert_int_equal(logs_of(w, &bob), 2);
		assert_int_equal(logs_of(w, &root_user), 4);
		assert_int_equal(count_logs_named, 1);
		assert_int_equal(journal_open_log(w->reg, sandbox_uuid(others), &a, &fd), -ENOENT);
		assert_int_equal(journal_open_log(w->reg, sandbox_uuid(others), &root_in, &fd), -ENOENT);
		assert_int_equal(journal_open_log(w->reg, sandbox_uuid(others), &alice, &fd), -ENOENT);
		assert_int_equal(journal_open_log(w->reg, sandbox_uuid(roots), &a, &fd), -EACCES);
		assert_int_equal(journal_open_log(w->reg, sandbox_uuid(mine), &a, &fd), 0);
		close(fd);
		assert_int_equal(journal_open_log(w->reg, sandbox_uuid(mine), &alice, &fd), 0);
		close(fd);
		buf_init(&out, 65536);
		assert_int_equal(registry_health_json(w->reg, &a, &out), 0);
		assert_says(buf_str(&out), "\"sandboxes\":2");
		assert_null(strstr(buf_str(&out), "\"pool\""));
		buf_reset(&out);
		assert_int_equal(registry_metrics(w->reg, &a, &out), 0);
		assert_says(buf_str(&out), "status=\"configured\"} 2\n");
		buf_reset(&out);
		assert_int_equal(registry_metrics(w->reg, &root_in, &out), 0);
		assert_says(buf_str(&out), "status=\"configured\"} 2\n");
		assert_null(strstr(buf_str(&out), "created_total"));
		buf_reset(&out);
		assert_int_equal(registry_metrics(w->reg, &bob, &out), 0);
		assert_says(buf_str(&out), "status=\"configured\"} 2\n"); /* outside's, and bob's own in the view */
		buf_reset(&out);
		assert_int_equal(registry_metrics(w->reg, &root_user, &out), 0);
		assert_says(buf_str(&out), "status=\"configured\"} 4\n");
		buf_fini(&out);
		if (again)
			break;
		restart(w);
		a.view = root_in.view = one = view_named(w, "one");
		b.view = two = view_named(w, "two");
		mine = registry_find(w->reg, one, "mine");
		roots = registry_find(w->reg, one, "roots");
		others = registry_find(w->reg, two, "others");
		assert_true(mine && roots && others);
	}
}

/* -- ends --------------------------------------------------------------------------------------------------------- */

struct woken {
	struct waiter w;
	unsigned n;
};

static void on_wake(struct waiter *w)
{
	((struct woken *)w)->n++;
}

static void on_fs(void *arg, int code, struct wire_rd *r)
{
	(void)r;
	*(int *)arg = code;
}

static void test_expiry_stops_what_runs_and_keeps_the_rest(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a), *idle = new_sandbox(w, "idle", &a), *out = running(w, "out");
	struct woken woken = { .w = { .fn = on_wake } };
	struct upload *u = NULL;
	struct err e;
	int code = 0;

	assert_int_equal(snapshot_as(w, s, "snap", &a, &e), 0);
	waitq_add(view_waitq(v), &woken.w);
	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &a, &u, &e), 0);
	assert_int_equal(upload_write(u, "true\n", 5, &e), 0);
	write_ttl(v, "1s");
	until(w, view_status(v) == VIEW_EXPIRED && sandbox_status(s) == SBX_STOPPED);
	assert_true(woken.n >= 1);
	waitq_del(&woken.w);
	assert_string_equal(shown(v, show_ttl), "0\n");
	assert_true(view_dead(v) && !view_gone(v));
	assert_int_equal(sandbox_status(idle), SBX_CONFIGURED);
	assert_int_equal(sandbox_status(out), SBX_READY);
	/* What was being written is no command: nobody could ask for its end. */
	upload_commit(u);
	assert_int_equal(sandbox_latest_exec(s), 0);
	/* All of it is ESTALE now. */
	assert_int_equal(create(w, "b", &a, NULL, &e), -ESTALE);
	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &a, &u, &e), -ESTALE);
	assert_int_equal(sandbox_ctl(s, "start", &a, &e), -ESTALE);
	assert_int_equal(sandbox_ctl(s, "start", &root_user, &e), -ESTALE);
	assert_int_equal(limit(s, ATTR_VCPUS, "2", &a, &e), -ESTALE);
	assert_int_equal(sandbox_fs(idle, 1, NULL, 0, &a, on_fs, &code, NULL), -ESTALE);
	assert_int_equal(registry_remove(w->reg, s, &a, &e), -ESTALE);
	assert_int_equal(snapshot_remove(registry_find_snapshot(w->reg, v, "snap"), &a, &e), -ESTALE);
	assert_events(w, &root_user, "\"event\":\"view_expired\"", NULL);
	/* Over a restart, too; and a new ttl has all of it there again. */
	restart(w);
	v = view_named(w, "ci");
	assert_int_equal(view_status(v), VIEW_EXPIRED);
	write_ttl(v, "none");
	assert_int_equal(view_status(v), VIEW_ACTIVE);
	a = through(v, &alice);
	assert_non_null(registry_find_snapshot(w->reg, v, "snap"));
	s = registry_find(w->reg, v, "a");
	assert_int_equal(sandbox_ctl(s, "start", &a, &e), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
}

/* A machine that waits for the next fork of a snapshot is none of the view's, and runs for nobody else. */
static void test_warm_machines_end_with_it(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct cfs_who a = through(v, &alice);
	struct snapshot *p;
	struct err e;

	assert_int_equal(snapshot_as(w, runs_for(w, "a", &a), "snap", &a, &e), 0);
	p = registry_find_snapshot(w->reg, v, "snap");
	until(w, p->status == SNAPSHOT_READY);
	w->cfg.warm_size = 1;
	assert_int_equal(fork_as(w, p, "f", &a, &e), 0);
	until(w, warm_count(w->reg, WARM_FORKED, true) == 1);
	write_ttl(v, "1s");
	until(w, view_status(v) == VIEW_EXPIRED && sandbox_status(registry_find(w->reg, v, "f")) == SBX_STOPPED);
	assert_int_equal(warm_count(w->reg, WARM_FORKED, false), 0);
	/* Nor is there another one, while it is over. */
	assert_int_equal(fork_as(w, p, "g", &a, &e), -ESTALE);
	assert_false(warm_fill(w->reg));
	pool_fill(w->reg);
	until(w, !w->reg->pool_timer);
	assert_int_equal(warm_count(w->reg, WARM_FORKED, false), 0);
	write_ttl(v, "none");
	w->cfg.max_sandboxes_per_uid = 10;
	assert_int_equal(fork_as(w, p, "g", &a, &e), 0);
	until(w, warm_count(w->reg, WARM_FORKED, true) == 1);
	assert_int_equal(remove_view(w, v), 0);
	assert_int_equal(warm_count(w->reg, WARM_FORKED, false), 0);
	until(w, !w->reg->first_snapshot);
}

/* Two snapshots of a view's, and the second is being compared with the first, in a machine. */
static struct snapshot *compared(struct world *w, struct view *v)
{
	struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a);
	static const char *const names[] = { "p", "q" };
	struct snapshot *p = NULL;
	struct err e;

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		assert_int_equal(snapshot_as(w, s, names[i], &a, &e), 0);
		p = registry_find_snapshot(w->reg, v, names[i]);
		until(w, p->status == SNAPSHOT_READY);
	}
	assert_int_equal(snapshot_diff(p, &a, &e), 0);
	until(w, fake_box_count() == 2);
	return p;
}

static void test_comparisons_end_with_it(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct snapshot *p = compared(w, v);

	write_ttl(v, "1s");
	until(w, view_status(v) == VIEW_EXPIRED && fake_box_count() == 0);
	assert_int_equal(p->diff, DIFF_FAILED);
	assert_non_null(strstr(snapshot_error(p), "view has ended"));
	assert_int_equal(remove_view(w, v), 0);
	v = new_view(w, "ci", MOST);
	compared(w, v);
	assert_int_equal(remove_view(w, v), 0);
	assert_null(w->reg->diffs);
	until(w, fake_box_count() == 0);
	until(w, !w->reg->first_snapshot);
	until(w, count_entries(w, "views") == 0);
}

/* The clock is asked at each request: the timer may be late. */
static void test_the_end_does_not_wait_for_the_timer(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct cfs_who a = through(v, &alice);
	struct err e;

	write_ttl(v, "1h");
	assert_int_equal(registry_may(w->reg, &a, POLICY_CREATE, &e), 0);
	v->expires_ns = wall_ns() - 1;
	assert_int_equal(registry_may(w->reg, &a, POLICY_CREATE, &e), -ESTALE);
	assert_int_equal(create(w, "a", &a, NULL, &e), -ESTALE);
	/* A clock that is set back wakes no dead. */
	views_arm(w->reg);
	until(w, v->expired);
	v->expires_ns = wall_ns() + 3600000000000u;
	assert_int_equal(view_status(v), VIEW_EXPIRED);
}

static void test_expired_while_no_daemon_ran(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a);
	char machine[LAUNCH_UUID_LEN + 1];
	struct err e;

	write_ttl(v, "1h");
	v->expires_ns = wall_ns() - 1;
	assert_int_equal(view_save(v, &e), 0);
	snprintf(machine, sizeof(machine), "%s", s->machine);
	bring_down(w);
	bring_up_with(w, machine); /* still runs */
	v = view_named(w, "ci");
	assert_int_equal(view_status(v), VIEW_EXPIRED);
	s = registry_find(w->reg, v, "a");
	assert_true(s->adopt_timer != 0);
	spin(w);
	assert_true(s->spawned); /* it is not killed: its box comes back, and then it is told to stop */
	loop_del(w->loop, &s->adopt_timer);
	view_adopted(s);
	until(w, sandbox_status(s) == SBX_STOPPED);
	assert_int_equal(sandbox_start(s, NULL, &e), -ESTALE);
}

static void test_removal_takes_all_with_it(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST), *held;
	struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a), *out = new_sandbox(w, "a", &alice);
	struct err e;
	char path[128];
	size_t states = count_entries(w, "state") - 2; /* those of the view, and of alice in it */

	assert_int_equal(snapshot_as(w, s, "snap", &a, &e), 0);
	assert_int_equal(fork_as(w, registry_find_snapshot(w->reg, v, "snap"), "2", &a, &e), -EDQUOT); /* of the uid */
	w->cfg.max_sandboxes_per_uid = 10;
	assert_int_equal(fork_as(w, registry_find_snapshot(w->reg, v, "snap"), "2", &a, &e), 0);
	held = view_ref(v); /* by a node of the tree */
	sandbox_ref(s);
	assert_true(store_has(w, "views/ci.json"));
	assert_int_equal(remove_view(w, v), 0);
	assert_true(view_gone(held) && view_dead(held));
	assert_null(registry_find_view(w->reg, "ci"));
	assert_null(registry_next_view(w->reg, NULL));
	assert_true(sandbox_gone(s));
	assert_null(registry_next(w->reg, held, NULL));
	assert_null(registry_next_snapshot(w->reg, held, NULL));
	assert_int_equal(create(w, "b", &a, NULL, &e), -ESTALE);
	assert_false(store_has(w, "views/ci.json"));
	/* The name is free at once, for another one. */
	v = new_view(w, "ci", MOST);
	assert_true(strcmp(view_uuid(v), view_uuid(held)) != 0);
	assert_int_equal(remove_view(w, v), 0);
	spin(w);
	/* Its file says so until the last of it is gone. */
	snprintf(path, sizeof(path), "views/.gone-%s.json", view_uuid(held));
	assert_true(store_has(w, path));
	sandbox_unref(s);
	until(w, !w->reg->first_snapshot);
	until(w, !store_has(w, path)); /* also while the kernel remembers a node of it */
	assert_int_equal(count_entries(w, "views"), 0);
	view_unref(held);
	gone(w, out);
	assert_clean(w);
	/* Its journals are gone with it; root's has all of it. */
	assert_int_equal(count_entries(w, "state"), states);
	assert_events(w, &root_user, "\"event\":\"view_removed\"", NULL);
}

/* A daemon was killed with half of it done: the next one does the rest. */
static void test_a_removal_is_finished_after_a_restart(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a);
	struct err e;

	assert_int_equal(snapshot_as(w, s, "snap", &a, &e), 0);
	until(w, registry_find_snapshot(w->reg, v, "snap")->status == SNAPSHOT_READY);
	assert_int_equal(view_disown(v, &e), 0);
	restart(w);
	assert_null(registry_next_view(w->reg, NULL));
	assert_int_equal(registry_count(w->reg), 0);
	until(w, !w->reg->first_snapshot);
	until(w, count_entries(w, "views") == 0);
	until(w, count_entries(w, "sandboxes") == 0);
}

/* -- what a start finds ------------------------------------------------------------------------------------------- */

static void test_a_restart_finds_all_of_it(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", "{\"max_sandboxes\":2,\"net_allow_max\":[]}"), *next;
	char uuid[LAUNCH_UUID_LEN + 1], policy[8192];
	uint64_t created = view_created_ns(v), expires;
	struct err e;

	write_ttl(v, "1h");
	assert_int_equal(view_chown(v, alice.uid, 7, &root_user, &e), 0);
	new_view(w, "later", NULL);
	snprintf(uuid, sizeof(uuid), "%s", view_uuid(v));
	snprintf(policy, sizeof(policy), "%s", shown(v, show_policy));
	expires = v->expires_ns;
	restart(w);
	v = view_named(w, "ci");
	assert_string_equal(view_uuid(v), uuid);
	assert_string_equal(shown(v, show_policy), policy);
	assert_int_equal(v->expires_ns, expires);
	assert_int_equal(view_created_ns(v), created);
	assert_int_equal(view_owner(v).uid, alice.uid);
	assert_int_equal(view_owner(v).gid, 7);
	assert_int_equal(view_status(v), VIEW_ACTIVE);
	next = registry_next_view(w->reg, v);
	assert_string_equal(view_name(next), "later");
	assert_int_equal(view_status(next), VIEW_NEW);
	assert_null(registry_next_view(w->reg, next));
}

static void test_of_a_damaged_view_nothing_is_shown(void **state)
{
	static const char *const damaged[] = {
		"",
		"{",
		"{}",
		"{\"version\":2,\"uuid\":\"x\"}",
		"[]",
		"{\"version\":1,\"uuid\":\"00000000-0000-4000-8000-000000000000\",\"name\":\"other\"}",
		"{\"version\":1,\"uuid\":\"00000000-0000-4000-8000-000000000000\",\"name\":\"ci\",\"policy\":\"{}x\"}",
		"{\"version\":1,\"uuid\":\"../../etc\",\"name\":\"ci\"}",
	};
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a);
	char uuid[LAUNCH_UUID_LEN + 1], view_of[LAUNCH_UUID_LEN + 1], *whole, *left;
	size_t len = 0;
	struct err e;

	assert_int_equal(snapshot_as(w, s, "snap", &a, &e), 0);
	snprintf(uuid, sizeof(uuid), "%s", sandbox_uuid(s));
	snprintf(view_of, sizeof(view_of), "%s", view_uuid(v));
	assert_int_equal(fd_slurp(w->store_fd, "views/ci.json", 65536, &whole, &len), 0);
	for (size_t i = 0; i < ARRAY_LEN(damaged); i++) {
		put(w, "views/ci.json", damaged[i]);
		restart(w);
		assert_null(registry_find_view(w->reg, "ci"));
		assert_null(registry_next_view(w->reg, NULL));
		/* Not in the whole tree, of all places. */
		assert_null(registry_next(w->reg, NULL, NULL));
		assert_null(registry_next_snapshot(w->reg, NULL, NULL));
		s = registry_by_uuid(w->reg, uuid);
		assert_non_null(s);
		assert_true(view_dead(s->owner.view));
		assert_string_equal(view_uuid(s->owner.view), view_of);
		assert_int_equal(sandbox_start(s, NULL, &e), -ESTALE);
		assert_int_equal(sandbox_save(s, &e), 0); /* and stays whose it is */
		assert_int_equal(logs_of(w, &bob), 0);
		assert_int_equal(logs_of(w, &root_user), 1);
		/* Another view brings nothing of it back. */
		if (i == 0) {
			v = new_view(w, "again", MOST);
			assert_null(registry_next(w->reg, v, NULL));
			assert_int_equal(remove_view(w, v), 0);
		}
		/* Its own name may not, as long as the file is there: that would be its end. */
		assert_int_equal(registry_create_view(w->reg, "ci", &root_user, &v, &e), -EEXIST);
		assert_says(e.msg, "views/ci.json");
		assert_int_equal(fd_slurp(w->store_fd, "views/ci.json", 65536, &left, &len), 0);
		assert_string_equal(left, damaged[i]);
		free(left);
	}
	put(w, "views/ci.json", whole);
	free(whole);
	restart(w);
	v = view_named(w, "ci");
	assert_non_null(registry_find(w->reg, v, "a"));
	assert_non_null(registry_find_snapshot(w->reg, v, "snap"));
	/* What is no view's file is left alone, but for what a daemon was writing when it was killed. */
	put(w, "views/notes.txt", "x");
	put(w, "views/.gone-x.json", "x");
	put(w, "views/ci.json.new-1-1", "x");
	new_view(w, "ci.json.new-1-1", NULL);
	restart(w);
	view_named(w, "ci");
	view_named(w, "ci.json.new-1-1");
	assert_false(store_has(w, "views/ci.json.new-1-1"));
	assert_int_equal(count_entries(w, "views"), 4);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_who_may_make_one),
		T(test_a_wrong_policy_says_all_that_is_wrong),
		T(test_ttl),
		T(test_names_of_two_views_and_outside_do_not_meet),
		T(test_nothing_tells_of_others),
		T(test_expiry_stops_what_runs_and_keeps_the_rest),
		T(test_warm_machines_end_with_it),
		T(test_comparisons_end_with_it),
		T(test_the_end_does_not_wait_for_the_timer),
		T(test_expired_while_no_daemon_ran),
		T(test_removal_takes_all_with_it),
		T(test_a_removal_is_finished_after_a_restart),
		T(test_a_restart_finds_all_of_it),
		T(test_of_a_damaged_view_nothing_is_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
