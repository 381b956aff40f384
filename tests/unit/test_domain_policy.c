/* SPDX-License-Identifier: Apache-2.0 */
/* What policies permit: of a view, of a user, of a group, of the host; and that it is the domain that asks, whatever
 * the tree has let through. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "agent/proto.h"
#include "tests/unit/net_fix.h"
#include "tests/unit/view_fix.h"

#define MOST "{\"operations\":[" ALL_OPS "]}"

static int allow_as(struct sandbox *s, const char *text, const struct cfs_who *who, struct err *e)
{
	*e = (struct err){ 0 };
	return sandbox_net_allow_store(s, text, strlen(text), who, e);
}

static int ports_as(struct sandbox *s, const char *text, const struct cfs_who *who, struct err *e)
{
	*e = (struct err){ 0 };
	return sandbox_net_ports_store(s, text, strlen(text), who, e);
}

static int ctl_as(struct sandbox *s, const char *line, const struct cfs_who *who, struct err *e)
{
	*e = (struct err){ 0 };
	return sandbox_ctl(s, line, who, e);
}

/* -- operations --------------------------------------------------------------------------------------------------- */

static void on_fs(void *arg, int code, struct wire_rd *r)
{
	(void)r;
	*(int *)arg = code;
}

struct scene {
	struct world *w;
	struct sandbox *s; /* runs */
	struct snapshot *p;
	struct cfs_who who;
	struct err e;
	int fs_code;
};

static int do_create(struct scene *x)
{
	return create(x->w, "new", &x->who, NULL, &x->e);
}

static int do_rename(struct scene *x)
{
	int k = registry_rename(x->w->reg, x->s, "b", &x->who, &x->e);

	return k < 0 ? k : registry_rename(x->w->reg, x->s, "a", &x->who, &x->e);
}

static int do_env(struct scene *x)
{
	return limit(x->s, ATTR_ENV, "A=1\n", &x->who, &x->e);
}

static int do_upload(struct scene *x, enum upload_kind kind)
{
	struct upload *u = NULL;
	int k = upload_new(x->s, kind, NULL, &x->who, &u, &x->e);

	upload_abort(u);
	return k;
}

static int do_cmd(struct scene *x)
{
	return do_upload(x, UPLOAD_CMD);
}

static int do_stdin(struct scene *x)
{
	return do_upload(x, UPLOAD_STDIN);
}

static int do_import(struct scene *x)
{
	return do_upload(x, UPLOAD_IMPORT);
}

static int do_ctl(struct scene *x)
{
	return ctl_as(x->s, "extend 1", &x->who, &x->e);
}

static int do_slot(struct scene *x)
{
	int k = slot_create(x->s, "side", &x->who, &x->e);

	return k < 0 ? k : slot_remove(x->s, "side", &x->who, &x->e);
}

static int do_slot_ctl(struct scene *x)
{
	struct err e;
	int k;

	if (!slot_exists(x->s, "kept"))
		assert_int_equal(slot_create(x->s, "kept", &root_user, &e), 0);
	k = slot_ctl(x->s, "kept", "eof", &x->who, &x->e);
	return k < 0 ? k : slot_remove(x->s, "kept", &x->who, &x->e);
}

static int do_snapshot(struct scene *x)
{
	int k = snapshot_as(x->w, x->s, "more", &x->who, &x->e);

	if (!k)
		snapshot_destroy(registry_find_snapshot(x->w->reg, x->who.view, "more"), &root_user);
	return k;
}

static int do_fork(struct scene *x)
{
	return fork_as(x->w, x->p, "forked", &x->who, &x->e);
}

static int do_from_snapshot(struct scene *x)
{
	struct err e = { 0 };
	struct sandbox *s = registry_find(x->w->reg, x->who.view, "fresh");
	int k;

	if (!s)
		fail_msg("no fresh one");
	k = limit(s, ATTR_FROM, "snapshot:snap", &x->who, &x->e);
	if (!k)
		assert_int_equal(limit(s, ATTR_FROM, "base", &x->who, &e), 0);
	else
		assert_string_equal(s->attrs.from, "profile:base");
	return k;
}

static int do_rmdir(struct scene *x)
{
	return registry_remove(x->w->reg, registry_find(x->w->reg, x->who.view, "fresh"), &x->who, &x->e);
}

static int do_rmdir_snapshot(struct scene *x)
{
	return snapshot_remove(registry_find_snapshot(x->w->reg, x->who.view, "spare"), &x->who, &x->e);
}

static int do_verify(struct scene *x)
{
	return snapshot_verify(x->p, &x->who, &x->e);
}

static int do_diff(struct scene *x)
{
	int k = snapshot_diff(x->p, &x->who, &x->e);

	return k == -ENOENT ? 0 : k; /* nothing to compare with: asked, all the same */
}

static int do_fs(struct scene *x)
{
	int k = sandbox_fs(x->s, AG_FS_STATFS, NULL, 0, &x->who, on_fs, &x->fs_code, NULL);

	spin(x->w);
	return k;
}

static int do_allow(struct scene *x)
{
	return allow_as(x->s, "a.test\n", &x->who, &x->e);
}

static int do_ports(struct scene *x)
{
	char text[32];

	snprintf(text, sizeof(text), "%u:80\n", free_port());
	return ports_as(x->s, text, &x->who, &x->e);
}

static const struct act {
	enum policy_op op;
	const char *name;
	int (*act)(struct scene *x);
	bool silent; /* an errno, no words */
} acts[] = {
	{ POLICY_CREATE, "create", do_create, false },
	{ POLICY_CREATE, "rename", do_rename, false },
	{ POLICY_CREATE, "env", do_env, false },
	{ POLICY_EXEC, "cmd", do_cmd, false },
	{ POLICY_EXEC, "stdin", do_stdin, false },
	{ POLICY_FILES, "import", do_import, false },
	{ POLICY_EXEC, "ctl", do_ctl, false },
	{ POLICY_EXEC, "slot", do_slot, false },
	{ POLICY_EXEC, "slot ctl", do_slot_ctl, false },
	{ POLICY_SNAPSHOT, "snapshot", do_snapshot, false },
	{ POLICY_FORK, "fork", do_fork, false },
	{ POLICY_FORK, "from", do_from_snapshot, false },
	{ POLICY_READ, "verify", do_verify, false },
	{ POLICY_READ, "diff", do_diff, false },
	{ POLICY_FILES, "fs", do_fs, true },
	{ POLICY_NETWORK, "net/allow", do_allow, false },
	{ POLICY_NETWORK, "net/ports", do_ports, false },
	{ POLICY_DELETE, "rmdir", do_rmdir, false },
	{ POLICY_DELETE, "rmdir", do_rmdir_snapshot, false },
};

static void but(enum policy_op op, char out[256])
{
	size_t n = (size_t)snprintf(out, 256, "{\"operations\":[\"images\"");

	for (unsigned i = 0; i < POLICY_OP_COUNT; i++) {
		if (1u << i != POLICY_ADMIN && 1u << i != POLICY_IMAGES && 1u << i != op)
			n += (size_t)snprintf(out + n, 256 - n, ",\"%s\"", policy_op_name(1u << i));
	}
	snprintf(out + n, 256 - n, "]}");
}

static void test_each_operation_is_asked_for_here(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct scene x = { .w = w, .who = through(v, &alice) };
	struct err e;

	w->cfg.max_sandboxes_per_uid = 10;
	x.s = runs_for(w, "a", &x.who);
	new_sandbox(w, "fresh", &x.who);
	assert_int_equal(snapshot_as(w, x.s, "snap", &x.who, &e), 0);
	assert_int_equal(snapshot_as(w, x.s, "spare", &x.who, &e), 0);
	x.p = registry_find_snapshot(w->reg, v, "snap");
	until(w, x.p->status == SNAPSHOT_READY);
	for (size_t i = 0; i < ARRAY_LEN(acts); i++) {
		char policy[256], words[32];
		size_t n = registry_count(w->reg);
		int k;

		but(acts[i].op, policy);
		assert_int_equal(write_policy(v, policy, &e), 0);
		x.e = (struct err){ 0 };
		k = acts[i].act(&x);
		if (k != -EPERM)
			fail_msg("%s without %s: %d %s", acts[i].name, policy_op_name(acts[i].op), k, x.e.msg);
		snprintf(words, sizeof(words), "\"%s\"", policy_op_name(acts[i].op));
		if (!acts[i].silent) {
			assert_says(x.e.msg, words);
			assert_says(x.e.msg, "the policy of this view");
		}
		assert_int_equal(registry_count(w->reg), n);
		/* With that alone, and what it is made of, it is done. */
		assert_int_equal(write_policy(v, MOST, &e), 0);
		x.e = (struct err){ 0 };
		k = acts[i].act(&x);
		if (k < 0)
			fail_msg("%s: %d %s", acts[i].name, k, x.e.msg);
	}
}

/* It was open when the policy became narrower: it is no command any more, as the tree, which asks first, sees to. */
static void test_what_was_being_written_obeys_the_policy_of_its_end(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a);
	struct upload *u = NULL;
	char policy[256];
	struct err e;

	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, &a, &u, &e), 0);
	assert_int_equal(upload_write(u, "true\n", 5, &e), 0);
	but(POLICY_EXEC, policy);
	assert_int_equal(write_policy(v, policy, &e), 0);
	upload_commit(u);
	assert_int_equal(sandbox_latest_exec(s), 0);
	assert_says(sandbox_error(s), "does not permit the operation \"exec\"");
	spin(w);
	assert_int_equal(fakes.asked[FAKE_BOX][BOX_EXEC], 0);
	/* What runs goes on. */
	assert_int_equal(sandbox_status(s), SBX_READY);
}

/* -- who is meant -------------------------------------------------------------------------------------------------- */

static void test_all_that_apply_must_permit(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", "{\"operations\":[\"create\",\"exec\",\"read\"]}");
	const struct cfs_who in = through(v, &alice), grouped = { .uid = 5, .gid = 100 };
	struct policy_set set;
	struct err e = { 0 };

	bind_policy(w, false, alice.uid, "{\"operations\":[\"create\",\"read\",\"delete\"]}");
	bind_policy(w, true, 100, "{\"operations\":[\"read\"]}");
	registry_policies(w->reg, &bob, &set);
	assert_int_equal(set.n, 0);
	registry_policies(w->reg, &in, &set);
	assert_int_equal(set.n, 2);
	assert_int_equal(registry_may(w->reg, &in, POLICY_CREATE, &e), 0);
	assert_int_equal(registry_may(w->reg, &in, POLICY_EXEC, &e), -EPERM);
	assert_says(e.msg, "the policy of uid 1001");
	assert_int_equal(registry_may(w->reg, &in, POLICY_DELETE, &e), -EPERM);
	assert_says(e.msg, "the policy of this view");
	assert_int_equal(registry_may(w->reg, &grouped, POLICY_CREATE, &e), -EPERM);
	assert_says(e.msg, "the policy of gid 100");
	assert_int_equal(create(w, "x", &grouped, NULL, &e), -EPERM);
	assert_says(e.msg, "run/x: the policy of gid 100");
	assert_int_equal(registry_may(w->reg, &bob, POLICY_CREATE, &e), 0);
}

static void test_who_may_as_root_may(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST),
		    *admin = new_view(w, "admin", "{\"operations\":[\"create\",\"admin\"]}");
	const struct cfs_who root_in = through(v, &root_user), alice_admin = through(admin, &alice);
	struct err e = { 0 };

	assert_int_equal(registry_may(w->reg, &root_user, POLICY_ADMIN, &e), 0);
	assert_int_equal(registry_may(w->reg, &alice, POLICY_ADMIN, &e), -EPERM);
	assert_int_equal(registry_may(w->reg, &root_in, POLICY_ADMIN, &e), -EPERM);
	assert_int_equal(registry_default_store(w->reg, ATTR_VCPUS, "2", 1, &root_in, &e), -EPERM);
	assert_int_equal(registry_store_start(w->reg, "gc", &root_in, &e), -EPERM);
	assert_int_equal(registry_may(w->reg, &alice_admin, POLICY_ADMIN, &e), 0);
	assert_int_equal(registry_default_store(w->reg, ATTR_VCPUS, "2", 1, &alice_admin, &e), 0);
	assert_int_equal(registry_store_start(w->reg, "gc", &alice_admin, &e), -EPERM); /* not even so */
	/* That of the host is about networks: it makes nobody root, and takes it from nobody. */
	assert_int_equal(config_set(&w->cfg, "net_allow_max", "a.test", &e), 0);
	assert_int_equal(config_finish(&w->cfg, &e), 0);
	assert_int_equal(registry_may(w->reg, &alice, POLICY_ADMIN, &e), -EPERM);
	assert_int_equal(registry_may(w->reg, &root_user, POLICY_ADMIN, &e), 0);
	assert_int_equal(registry_may(w->reg, &alice_admin, POLICY_ADMIN, &e), 0);
	/* Root with a policy is as anybody with one. */
	bind_policy(w, false, 0, "{\"operations\":[\"create\"]}");
	assert_int_equal(registry_may(w->reg, &root_user, POLICY_ADMIN, &e), -EPERM);
	assert_int_equal(registry_default_store(w->reg, ATTR_VCPUS, "1", 1, &root_user, &e), -EPERM);
}

/* -- how many -------------------------------------------------------------------------------------------------------
 */

static void test_EDQUOT_of_sandboxes_each_policy_counts_its_own(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", "{\"max_sandboxes\":2}"),
		    *wide = new_view(w, "wide", "{\"max_sandboxes\":9}");
	const struct cfs_who a = through(v, &alice), b = through(v, &bob), in_wide = through(wide, &alice);
	const struct cfs_who g1 = { .uid = 11, .gid = 100 }, g2 = { .uid = 12, .gid = 100 };
	struct sandbox *s;
	struct err e;

	w->cfg.max_sandboxes_per_uid = 10;
	/* What others have, outside or in another view, does not count; what another user has in it, does. */
	new_sandbox(w, "o1", &alice);
	new_sandbox(w, "o2", &root_user);
	new_sandbox(w, "o3", &in_wide);
	s = new_sandbox(w, "one", &a);
	new_sandbox(w, "two", &b);
	assert_int_equal(create(w, "three", &a, NULL, &e), -EDQUOT);
	assert_says(e.msg, "run/three: max_sandboxes is 2 by the policy of this view");
	assert_int_equal(create(w, "two", &a, NULL, &e), -EEXIST);
	assert_null(registry_find(w->reg, v, "three"));
	assert_int_equal(registry_remove(w->reg, s, &a, &e), 0);
	assert_int_equal(create(w, "three", &a, NULL, &e), 0);
	/* The user's is the smaller one: three are alice's, wherever. */
	bind_policy(w, false, alice.uid, "{\"max_sandboxes\":3}");
	assert_int_equal(create(w, "o4", &in_wide, NULL, &e), -EDQUOT);
	assert_says(e.msg, "max_sandboxes is 3 by the policy of uid 1001");
	assert_int_equal(create(w, "o4", &alice, NULL, &e), -EDQUOT);
	bind_policy(w, true, 100, "{\"max_sandboxes\":2}");
	assert_int_equal(create(w, "g1", &g1, NULL, &e), 0);
	assert_int_equal(create(w, "g2", &g2, NULL, &e), 0);
	assert_int_equal(create(w, "g3", &g1, NULL, &e), -EDQUOT);
	assert_says(e.msg, "the policy of gid 100");
	/* It is counted anew after a restart. */
	restart(w);
	assert_int_equal(create(w, "g3", &g1, NULL, &e), -EDQUOT);
	assert_int_equal(create(w, "o4", &alice, NULL, &e), -EDQUOT);
	/* The host's limit tells nobody in a view how many there are. */
	w->cfg.max_sandboxes = 3;
	assert_int_equal(create(w, "x", &(struct cfs_who){ .uid = 77, .view = view_named(w, "wide") }, NULL, &e),
			 -EDQUOT);
	assert_null(strpbrk(e.msg, "0123456789"));
}

static void test_EDQUOT_of_snapshots_and_forks(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", "{\"max_snapshots\":1,\"max_fork\":2,\"max_sandboxes\":4}");
	const struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a), *out = running(w, "out");
	struct snapshot *p;
	struct err e;

	w->cfg.max_sandboxes_per_uid = 20;
	take(w, out, "theirs");
	assert_int_equal(snapshot_as(w, s, "one", &a, &e), 0);
	assert_int_equal(snapshot_as(w, s, "two", &a, &e), -EDQUOT);
	assert_says(e.msg, "sandbox a: snapshot: max_snapshots is 1 by the policy of this view");
	p = registry_find_snapshot(w->reg, v, "one");
	until(w, p->status == SNAPSHOT_READY);
	assert_int_equal(fork_as(w, p, "3", &a, &e), -EDQUOT);
	assert_says(e.msg, "snapshot one: fork: 3 is more than the policy of this view permits: max_fork is 2");
	assert_int_equal(fork_as(w, p, "2", &a, &e), 0);
	assert_int_equal(fork_as(w, p, "2", &a, &e), -EDQUOT); /* the second of them is the fifth */
	assert_says(e.msg, "max_sandboxes is 4");
	spin(w);
	assert_null(registry_find(w->reg, v, "one-3")); /* all or none */
	assert_int_equal(registry_count(w->reg), 4);
}

/* -- sizes and times ------------------------------------------------------------------------------------------------
 */

#define SMALL                                                                                 \
	"{\"max_vcpus\":2,\"max_memory_mib\":256,\"max_disk_mib\":1024,\"max_timeout_s\":30," \
	"\"operations\":[" ALL_OPS "]}"

static uint32_t num(const struct sandbox *s, enum sandbox_attr a)
{
	return sandbox_num(s, a);
}

static void test_EDQUOT_of_sizes_and_times(void **state)
{
	static const struct {
		enum sandbox_attr a;
		const char *most, *more, *words;
	} cases[] = {
		{ ATTR_VCPUS, "2", "3", "max_vcpus is 2" },
		{ ATTR_MEMORY_MIB, "256", "257", "max_memory_mib is 256" },
		{ ATTR_DISK_MIB, "1024", "1025", "max_disk_mib is 1024" },
		{ ATTR_TIMEOUT_S, "30", "31", "max_timeout_s is 30" },
		{ ATTR_TIMEOUT_S, "30", "0", "0 (no end) is more" },
		{ ATTR_EXEC_TIMEOUT_S, "30", "31", "max_timeout_s is 30" },
		{ ATTR_EXEC_TIMEOUT_S, "30", "0", "0 (no end) is more" },
	};
	struct world *w = *state;
	struct view *v = new_view(w, "ci", SMALL);
	const struct cfs_who a = through(v, &alice);
	struct sandbox *s;
	struct err e = { 0 };

	assert_int_equal(registry_default_store(w->reg, ATTR_TIMEOUT_S, "0", 1, &root_user, &e), 0);
	s = new_sandbox(w, "a", &a);
	/* The defaults are more than that, or without end. */
	assert_int_equal(num(s, ATTR_VCPUS), 1);
	assert_int_equal(num(s, ATTR_MEMORY_MIB), 256);
	assert_int_equal(num(s, ATTR_DISK_MIB), 1024);
	assert_int_equal(num(s, ATTR_TIMEOUT_S), 30);
	assert_int_equal(num(s, ATTR_EXEC_TIMEOUT_S), 30);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(limit(s, cases[i].a, cases[i].more, &a, &e), -EDQUOT);
		assert_says(e.msg, cases[i].words);
		assert_says(e.msg, "sandbox a: limits/");
		assert_says(sandbox_error(s), cases[i].words);
		assert_int_equal(limit(s, cases[i].a, cases[i].most, &a, &e), 0);
		assert_int_equal(num(s, cases[i].a), strtoul(cases[i].most, NULL, 10));
	}
	assert_int_equal(limit(s, ATTR_TIMEOUT_S, "20", &a, &e), 0);
	assert_int_equal(ctl_as(s, "extend 11", &a, &e), -EDQUOT);
	assert_int_equal(ctl_as(s, "extend 10", &a, &e), 0);
	assert_int_equal(num(s, ATTR_TIMEOUT_S), 30);
	/* `extend` is of ctl: it needs no create. */
	assert_int_equal(write_policy(v, "{\"operations\":[\"exec\"]}", &e), 0);
	assert_int_equal(ctl_as(s, "extend 1", &a, &e), 0);
	assert_int_equal(limit(s, ATTR_TIMEOUT_S, "1", &a, &e), -EPERM);
	/* No sandbox is so small. */
	assert_int_equal(write_policy(v, "{\"max_memory_mib\":50}", &e), 0);
	assert_int_equal(create(w, "b", &a, NULL, &e), -EDQUOT);
	assert_says(e.msg, "max_memory_mib is 50 by the policy, and no sandbox has less memory_mib than 96");
	assert_null(registry_find(w->reg, v, "b"));
	/* Whoever has no policy has the defaults. */
	s = new_sandbox(w, "x", &bob);
	assert_int_equal(num(s, ATTR_MEMORY_MIB), 512);
	assert_int_equal(num(s, ATTR_TIMEOUT_S), 0);
}

static void test_EDQUOT_of_a_snapshot_that_is_larger(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	const struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a), *fresh = new_sandbox(w, "fresh", &a);
	struct snapshot *p;
	struct err e;

	assert_int_equal(snapshot_as(w, s, "snap", &a, &e), 0);
	p = registry_find_snapshot(w->reg, v, "snap");
	until(w, p->status == SNAPSHOT_READY);
	/* It runs on; no more of them. */
	assert_int_equal(write_policy(v, SMALL, &e), 0);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(fork_as(w, p, "f", &a, &e), -EDQUOT);
	assert_says(e.msg, "run/f: its memory_mib: 512 is more than the policy of this view permits");
	assert_null(registry_find(w->reg, v, "f"));
	assert_int_equal(limit(fresh, ATTR_FROM, "snapshot:snap", &a, &e), -EDQUOT);
	assert_says(sandbox_error(fresh), "sandbox fresh: from: its memory_mib: 512 is more");
	assert_string_equal(fresh->attrs.from, "profile:base");
	assert_string_equal(fresh->parent_uuid, "");
	/* Its times are not part of its shape: they are lowered. */
	assert_int_equal(write_policy(v, "{\"max_timeout_s\":30}", &e), 0);
	assert_int_equal(fork_as(w, p, "f", &a, &e), 0);
	assert_int_equal(num(registry_find(w->reg, v, "f"), ATTR_TIMEOUT_S), 30);
	assert_int_equal(num(registry_find(w->reg, v, "f"), ATTR_EXEC_TIMEOUT_S), 30);
	assert_int_equal(limit(fresh, ATTR_FROM, "snapshot:snap", &a, &e), 0);
	assert_int_equal(num(fresh, ATTR_TIMEOUT_S), 30);
}

static void say(struct sandbox *s, const struct cfs_who *who)
{
	struct upload *u = NULL;
	struct err e = { 0 };

	assert_int_equal(upload_new(s, UPLOAD_CMD, NULL, who, &u, &e), 0);
	assert_int_equal(upload_write(u, "{\"script\":\"x\",\"timeout_s\":99}", 29, &e), 0);
	upload_commit(u);
}

/* Whatever a request says: the box gets the most that it may take. Of who wrote it, and as it is now. */
static void test_a_request_has_no_more_time_than_its_writer(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", "{\"max_timeout_s\":30}");
	const struct cfs_who a = through(v, &alice);
	struct sandbox *s = runs_for(w, "a", &a), *out = running(w, "out");
	struct err e;

	fakes.runs_commands = true;
	say(s, &a);
	spin(w);
	assert_int_equal(fakes.last_timeout_max, 30);
	assert_int_equal(write_policy(v, "{\"max_timeout_s\":7}", &e), 0);
	say(s, &a);
	spin(w);
	assert_int_equal(fakes.last_timeout_max, 7);
	say(out, &root_user);
	spin(w);
	assert_int_equal(fakes.last_timeout_max, 0);
	bind_policy(w, false, alice.uid, "{\"max_timeout_s\":5}");
	say(s, &a);
	spin(w);
	assert_int_equal(fakes.last_timeout_max, 5);
}

/* -- profiles -------------------------------------------------------------------------------------------------------
 */

static void test_profiles(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", "{\"allow_profiles\":[\"node\",\"half\"]}");
	const struct cfs_who a = through(v, &alice);
	struct sandbox *s, *out = running(w, "out");
	struct err e = { 0 };

	w->cfg.max_sandboxes_per_uid = 20;
	assert_int_equal(mkdirat(w->store_fd, "profiles/node", 0755), 0);
	put(w, "profiles/node/root.img", "image");
	put(w, "profiles/node/info.json", "{\"name\":\"node\",\"bootid\":\"b1\",\"base\":\"node.img\"}");
	/* The default is not among them: the first is taken. */
	s = new_sandbox(w, "a", &a);
	assert_string_equal(s->attrs.from, "profile:node");
	assert_int_equal(limit(s, ATTR_FROM, "base", &a, &e), -EPERM);
	assert_says(e.msg, "sandbox a: from: the policy of this view does not permit profile \"base\"");
	assert_string_equal(s->attrs.from, "profile:node");
	assert_int_equal(limit(s, ATTR_FROM, "half", &a, &e), 0);
	assert_int_equal(write_policy(v, "{\"allow_profiles\":[\"half\",\"base\"]}", &e), 0);
	assert_string_equal(new_sandbox(w, "b", &a)->attrs.from, "profile:base");
	assert_int_equal(write_policy(v, "{\"allow_profiles\":[]}", &e), 0);
	assert_int_equal(create(w, "c", &a, NULL, &e), -EPERM);
	assert_says(e.msg, "run/c: the policy permits no profile");
	/* The default is a snapshot of root's: for those who may fork. */
	take_ready(w, out, "root-snap");
	assert_int_equal(registry_default_store(w->reg, ATTR_FROM, "snapshot:root-snap", 18, &root_user, &e), 0);
	s = new_sandbox(w, "c", &a);
	assert_string_equal(s->attrs.from, "snapshot:root-snap");
	/* What they are called is none of the whole tree's business. */
	assert_null(snapshot_next_fork(registry_find_snapshot(w->reg, NULL, "root-snap"), NULL));
	assert_int_equal(write_policy(v, "{\"operations\":[\"create\"],\"allow_profiles\":[\"node\"]}", &e), 0);
	assert_string_equal(new_sandbox(w, "d", &a)->attrs.from, "profile:node");
	assert_int_equal(write_policy(v, "{\"operations\":[\"create\"]}", &e), 0);
	assert_string_equal(new_sandbox(w, "e", &a)->attrs.from, "profile:base");
	assert_int_equal(write_policy(v, SMALL, &e), 0); /* it is larger than that */
	s = new_sandbox(w, "f", &a);
	assert_string_equal(s->attrs.from, "profile:base");
	assert_int_equal(num(s, ATTR_MEMORY_MIB), 256);
}

/* -- the network ----------------------------------------------------------------------------------------------------
 */

static void test_net_EPERM_EDQUOT(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", "{\"net_allow_max\":[\"*.a.test\"]}");
	const struct cfs_who a = through(v, &alice);
	struct sandbox *s = new_sandbox(w, "a", &a);
	struct snapshot *p;
	char port[32];
	struct err e;

	snprintf(port, sizeof(port), "%u:80\n", free_port());
	assert_int_equal(allow_as(s, "x.a.test\n", &a, &e), 0);
	assert_int_equal(allow_as(s, "x.a.test\nb.test\n", &a, &e), -EDQUOT);
	assert_says(e.msg, "b.test");
	assert_string_equal(s->attrs.net_allow, "x.a.test\n");
	assert_int_equal(ports_as(s, port, &a, &e), 0); /* no list is empty */
	assert_int_equal(ports_as(s, "", &a, &e), 0);
	starts(w, s);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(snapshot_as(w, s, "snap", &a, &e), 0);
	p = registry_find_snapshot(w->reg, v, "snap");
	until(w, p->status == SNAPSHOT_READY);
	assert_int_equal(fork_as(w, p, "f", &a, &e), 0);
	/* Narrower: what runs goes on; no fork, no start with it, no word more. */
	assert_int_equal(write_policy(v, "{\"net_allow_max\":[]}", &e), 0);
	assert_int_equal(sandbox_status(s), SBX_READY);
	assert_int_equal(fork_as(w, p, "g", &a, &e), -EPERM);
	assert_says(e.msg, "run/g: net/allow: ");
	assert_null(registry_find(w->reg, v, "g"));
	assert_int_equal(allow_as(s, "x.a.test\ny.a.test\n", &a, &e), -EPERM);
	assert_int_equal(ports_as(s, port, &a, &e), -EPERM);
	assert_int_equal(ctl_as(s, "stop", &a, &e), 0);
	until(w, sandbox_status(s) == SBX_STOPPED);
	assert_int_equal(ctl_as(s, "start", &a, &e), -EPERM);
	assert_says(e.msg, "no network");
	assert_int_equal(write_policy(v, "{\"operations\":[\"create\",\"exec\"]}", &e), 0);
	assert_int_equal(ctl_as(s, "start", &a, &e), -EPERM);
	assert_says(e.msg, "\"network\"");
	assert_int_equal(write_policy(v, "{\"net_allow_max\":[\"x.a.test\"]}", &e), 0);
	assert_int_equal(ctl_as(s, "start", &a, &e), 0);
	spin(w);
	assert_int_equal(sandbox_status(s), SBX_READY);
}

/* Who has no policy writes it for somebody who has one: it is held against that, too, as the start will be. */
static void test_a_list_is_held_against_its_owners_policy(void **state)
{
	struct world *w = *state;
	struct sandbox *s = new_sandbox(w, "a", &alice);
	struct err e;

	bind_policy(w, false, alice.uid, "{\"net_allow_max\":[\"a.test\"]}");
	assert_int_equal(allow_as(s, "b.test\n", &root_user, &e), -EDQUOT);
	assert_int_equal(allow_as(s, "a.test\n", &root_user, &e), 0);
	/* And the host's against all. */
	assert_int_equal(config_set(&w->cfg, "net_allow_max", "c.test", &e), 0);
	assert_int_equal(config_finish(&w->cfg, &e), 0);
	assert_int_equal(allow_as(s, "a.test\n", &alice, &e), -EDQUOT);
	assert_int_equal(allow_as(s, "c.test\n", &alice, &e), -EDQUOT);
	assert_int_equal(allow_as(s, "", &alice, &e), 0);
}

/* Whose port it is, is told of a sandbox that the caller sees. */
static void test_a_port_that_another_has(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci", MOST);
	const struct cfs_who a = through(v, &alice);
	struct sandbox *s = new_sandbox(w, "inside", &a), *out = new_sandbox(w, "outside", &alice);
	char text[32];
	struct err e;

	snprintf(text, sizeof(text), "%u:80\n", free_port());
	assert_int_equal(ports_as(out, text, &alice, &e), 0);
	assert_int_equal(ports_as(s, text, &a, &e), -EADDRINUSE);
	assert_null(strstr(e.msg, "outside"));
}

/* -- policy.json ----------------------------------------------------------------------------------------------------
 */

static void test_what_policy_json_says(void **state)
{
	struct world *w = *state;
	struct view *v = new_view(w, "ci",
				  "{\"operations\":[\"create\",\"exec\",\"read\",\"files\",\"delete\"],"
				  "\"net_allow_max\":[],\"max_sandboxes\":2}");
	const struct cfs_who a = through(v, &alice);
	struct policy *p = NULL;
	struct buf b, faults;

	buf_init(&b, 65536);
	buf_init(&faults, 4096);
	assert_int_equal(registry_policy_json(w->reg, &a, &b), 0);
	assert_says(buf_str(&b), "\"operations\":[\"create\",\"exec\",\"delete\",\"read\",\"files\"]");
	assert_says(buf_str(&b), "\"net_allow_max\":[]");
	assert_says(buf_str(&b), "\"max_sandboxes\":2");
	/* It is a policy itself. */
	if (policy_parse(buf_str(&b), b.len, NULL, &p, &faults) < 0)
		fail_msg("%s", buf_str(&faults));
	policy_unref(p);
	buf_reset(&b);
	assert_int_equal(registry_policy_json(w->reg, &root_user, &b), 0);
	assert_says(buf_str(&b), "\"admin\"");
	assert_says(buf_str(&b), "\"max_sandboxes\":256");
	assert_null(strstr(buf_str(&b), "net_allow_max"));
	buf_reset(&b);
	bind_policy(w, false, alice.uid, "{\"max_snapshots\":4}");
	assert_int_equal(registry_policy_json(w->reg, &alice, &b), 0);
	assert_null(strstr(buf_str(&b), "\"admin\""));
	assert_says(buf_str(&b), "\"max_sandboxes\":3"); /* of the world's settings */
	assert_says(buf_str(&b), "\"max_snapshots\":4");
	buf_fini(&b);
	buf_fini(&faults);
}

int main(void)
{
#define T(fn) cmocka_unit_test_setup_teardown(fn, snapshot_world, world_teardown)
	const struct CMUnitTest tests[] = {
		T(test_each_operation_is_asked_for_here),
		T(test_what_was_being_written_obeys_the_policy_of_its_end),
		T(test_all_that_apply_must_permit),
		T(test_who_may_as_root_may),
		T(test_EDQUOT_of_sandboxes_each_policy_counts_its_own),
		T(test_EDQUOT_of_snapshots_and_forks),
		T(test_EDQUOT_of_sizes_and_times),
		T(test_EDQUOT_of_a_snapshot_that_is_larger),
		T(test_a_request_has_no_more_time_than_its_writer),
		T(test_profiles),
		T(test_net_EPERM_EDQUOT),
		T(test_a_list_is_held_against_its_owners_policy),
		T(test_a_port_that_another_has),
		T(test_what_policy_json_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
