/* SPDX-License-Identifier: Apache-2.0 */
/* Policies at the door: what each file needs, in a view and in the whole tree; under open descriptors too. Each denial
 * has a twin that succeeds. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "cruciblefs/tables.h"
#include "fusewire.h"

static char buf[262144];

/* -- two ways to bind a policy ---------------------------------------------------------------------------- */

enum where { IN_VIEW, IN_TREE };

struct world {
	struct fw *w;
	enum where where;
};

static const char *at(const struct world *t, const char *path)
{
	static char full[4][160];
	static unsigned i;

	i = (i + 1) % 4;
	snprintf(full[i], sizeof(full[i]), "%s%s", t->where == IN_VIEW ? "views/v/tree/" : "", path);
	return full[i];
}

static void bind_policy(const struct world *t, const char *document)
{
	static const struct cfs_who root;

	if (t->where == IN_TREE)
		fake_policy_uid(t->w->reg, 0, document);
	else
		assert_int_equal(
			view_policy_store(registry_find_view(t->w->reg, "v"), document, strlen(document), &root, NULL),
			0);
}

/* All but @op, or @op alone. */
static void grant(const struct world *t, enum policy_op op, bool alone)
{
	char text[256] = "{\"operations\":[";
	size_t len = strlen(text);
	const char *comma = "";

	for (unsigned i = 0; i < POLICY_OP_COUNT; i++) {
		enum policy_op one = (enum policy_op)(1u << i);

		if ((one == op) != alone)
			continue;
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s\"%s\"", comma, policy_op_name(one));
		comma = ",";
	}
	snprintf(text + len, sizeof(text) - len, "]}");
	bind_policy(t, text);
}

static struct world set_up(struct fw *w, enum where where)
{
	struct world t = { w, where };

	if (where == IN_VIEW)
		fake_view(w->reg, "v", "{}");
	fake_end_at_once(w->reg, true);
	assert_int_equal(fw_mkdir(w, at(&t, "run/a")), 0);
	assert_int_equal(fw_put(w, at(&t, "run/a/cmd"), "true"), 0);
	assert_int_equal(fw_mkdir(w, at(&t, "run/a/exec/s")), 0);
	assert_int_equal(fw_put(w, at(&t, "run/a/exec/s/cmd"), "true"), 0);
	assert_int_equal(fw_put(w, at(&t, "run/a/snapshot"), "s"), 0);
	return t;
}

/* -- what each file needs ------------------------------------------------------------------------------------ */

enum act { PUT, CAT, MKDIR, RMDIR, RENAME, LOOKUP, LEASE, RENAME_OVER, RECREATE };

struct need {
	enum policy_op op; /* 0: nothing */
	enum act act;
	const char *path, *arg;
};

static int hold_lease(struct fw *w, const char *path)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;
	int r = fw_walk(w, path, &e);

	if (!r)
		r = fw_open(w, e.nodeid, O_WRONLY, &o);
	if (!r)
		fw_release(w, e.nodeid, o.fh);
	return r;
}

static int recreate(struct fw *w, const char *path)
{
	int r = fw_unlink(w, path);

	return r < 0 && r != -ENOENT ? r : fw_put(w, path, "");
}

static long act(const struct world *t, const struct need *n)
{
	struct fuse_entry_out e;

	switch (n->act) {
	case PUT:
		return fw_put(t->w, at(t, n->path), n->arg);
	case CAT:
		return fw_cat(t->w, at(t, n->path), buf, sizeof(buf));
	case MKDIR:
		return fw_mkdir(t->w, at(t, n->path));
	case RMDIR:
		return fw_rmdir(t->w, at(t, n->path));
	case RENAME:
		return fw_rename(t->w, at(t, n->path), at(t, n->arg), 0);
	case LOOKUP:
		return fw_walk(t->w, at(t, n->path), &e);
	case LEASE:
		return hold_lease(t->w, at(t, n->path));
	case RENAME_OVER:
		fw_unlink(t->w, at(t, "run/a/x"));
		fw_put(t->w, at(t, "run/a/x"), n->arg);
		return fw_rename(t->w, at(t, "run/a/x"), at(t, n->path), 0);
	case RECREATE:
		return recreate(t->w, at(t, n->path));
	}
	return -EINVAL;
}

static const struct need needs[] = {
	{ POLICY_CREATE, MKDIR, "run/n", NULL },
	{ POLICY_CREATE, RENAME, "run/n", "run/m" },
	{ POLICY_CREATE, PUT, "run/a/from", "profile:base" },
	{ POLICY_CREATE, PUT, "run/a/limits/pids", "7" },
	{ POLICY_CREATE, PUT, "run/a/env", "A=1\n" },
	{ POLICY_CREATE, RENAME_OVER, "run/a/env", "A=2\n" },
	{ POLICY_CREATE, RECREATE, "run/a/env", NULL },
	{ POLICY_EXEC, MKDIR, "run/a/exec/n", NULL },
	{ POLICY_EXEC, RMDIR, "run/a/exec/n", NULL },
	{ POLICY_EXEC, PUT, "run/a/cmd", "true" },
	{ POLICY_EXEC, RENAME_OVER, "run/a/cmd", "true" },
	{ POLICY_EXEC, RECREATE, "run/a/cmd", NULL },
	{ POLICY_EXEC, PUT, "run/a/stdin", "text" },
	{ POLICY_EXEC, PUT, "run/a/ctl", "resume" },
	{ POLICY_EXEC, RENAME_OVER, "run/a/ctl", "resume" },
	{ POLICY_EXEC, PUT, "run/a/exec/s/cmd", "true" },
	{ POLICY_EXEC, PUT, "run/a/exec/s/ctl", "kill" },
	{ POLICY_EXEC, PUT, "run/a/exec/s/stdin", "" },
	{ POLICY_SNAPSHOT, PUT, "run/a/snapshot", "t" },
	{ POLICY_FORK, PUT, "snapshots/s/fork", "f" },
	{ POLICY_FILES, PUT, "run/a/import", "tar" },
	{ POLICY_FILES, LOOKUP, "run/a/.fs", NULL },
	{ POLICY_NETWORK, PUT, "run/a/net/allow", "example.org\n" },
	{ POLICY_NETWORK, PUT, "run/a/net/ports", "8080:80\n" },
	{ POLICY_READ, PUT, "snapshots/s/verify", "1" },
	{ POLICY_READ, PUT, "snapshots/s/diff", "1" },
	{ POLICY_READ, CAT, "run/a/cmd", NULL },
	{ POLICY_READ, CAT, "run/a/stdout", NULL },
	{ POLICY_READ, CAT, "run/a/result.json", NULL },
	{ POLICY_READ, CAT, "run/a/.wait", NULL },
	{ POLICY_READ, CAT, "run/a/info.json", NULL },
	{ POLICY_READ, CAT, "run/a/usage.json", NULL },
	{ POLICY_READ, CAT, "run/a/env", NULL },
	{ POLICY_READ, CAT, "run/a/limits/pids", NULL },
	{ POLICY_READ, CAT, "run/a/net/allow", NULL },
	{ POLICY_READ, CAT, "run/a/net/log.jsonl", NULL },
	{ POLICY_READ, CAT, "run/a/log.jsonl", NULL },
	{ POLICY_READ, CAT, "run/a/console.log", NULL },
	{ POLICY_READ, CAT, "run/a/exec/1/stdout", NULL },
	{ POLICY_READ, CAT, "run/a/exec/1/result.json", NULL },
	{ POLICY_READ, CAT, "run/a/exec/s/.wait", NULL },
	{ POLICY_READ, CAT, "snapshots/s/info.json", NULL },
	{ POLICY_READ, CAT, "snapshots/s/fork", NULL },
	{ POLICY_READ, CAT, "events.jsonl", NULL },
	{ POLICY_READ, CAT, "metrics", NULL },
	{ POLICY_READ, RENAME, "run/a/env", "run/a/env~" }, /* its text would be had by another name */
	{ POLICY_ADMIN, PUT, "defaults/pids", "9" },
	{ 0, CAT, "README.md", NULL },
	{ 0, CAT, "version", NULL },
	{ 0, CAT, "health.json", NULL },
	{ 0, CAT, "policy.json", NULL },
	{ 0, CAT, "profiles/base/info.json", NULL },
	{ 0, CAT, "defaults/pids", NULL },
	{ 0, CAT, "run/a/status", NULL },
	{ 0, CAT, "run/a/error", NULL },
	{ 0, CAT, "run/a/uuid", NULL },
	{ 0, CAT, "run/a/exec/1/status", NULL },
	{ 0, CAT, "run/a/exec/s/status", NULL },
	{ 0, CAT, "snapshots/s/status", NULL },
	{ 0, CAT, "snapshots/s/error", NULL },
	{ 0, CAT, "snapshots/s/uuid", NULL },
	{ 0, LOOKUP, "run/a/stdout", NULL },
	{ 0, LOOKUP, "run/a/wait", NULL },
	{ 0, PUT, "run/a/note", "scratch" },
	/* At the end: what they are about is gone then. */
	{ POLICY_DELETE, RMDIR, "snapshots/s", NULL },
	{ POLICY_DELETE, RMDIR, "run/m", NULL },
	{ POLICY_DELETE, LEASE, "run/a/lease", NULL },
};

static void each_needs_what_it_needs(struct fw *w, enum where where)
{
	struct world t = set_up(w, where);

	for (size_t i = 0; i < sizeof(needs) / sizeof(*needs); i++) {
		const struct need *n = &needs[i];
		long r;

		if (n->op) {
			grant(&t, n->op, false);
			r = act(&t, n);
			if (r != -EPERM)
				fail_msg("%s without %s: %ld", n->path, policy_op_name(n->op), r);
		}
		if (n->op)
			grant(&t, n->op, true);
		else
			bind_policy(&t, "{\"operations\":[]}");
		r = act(&t, n);
		if (r < 0)
			fail_msg("%s with %s alone: %ld", n->path, n->op ? policy_op_name(n->op) : "nothing", r);
	}
}

static void in_a_view_EPERM(void **state)
{
	each_needs_what_it_needs(*state, IN_VIEW);
}

static void in_the_whole_tree_EPERM(void **state)
{
	each_needs_what_it_needs(*state, IN_TREE);
}

static void the_store_is_for_who_administers_EPERM(void **state)
{
	struct fw *w = *state;

	fake_policy_uid(w->reg, 0, "{}");
	assert_int_equal(fw_put(w, "store/gc", "1"), -EPERM);
	fake_policy_uid(w->reg, 0, "{\"operations\":[\"admin\"]}");
	assert_int_equal(fw_put(w, "store/gc", "1"), 0);
	assert_int_equal(fw_cat(w, "store/stat.json", buf, sizeof(buf)), -EPERM);
	fake_policy_uid(w->reg, 0, NULL);
	assert_int_equal(fw_put(w, "store/gc", "1"), 0);
}

static void both_policies_must_permit_EPERM(void **state)
{
	struct fw *w = *state;

	fake_view(w->reg, "v", "{\"operations\":[\"create\"]}");
	fake_policy_uid(w->reg, 0, "{\"operations\":[\"exec\"]}");
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a"), -EPERM);
	fake_policy_uid(w->reg, 0, "{\"operations\":[\"exec\",\"create\"]}");
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a"), 0);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/cmd", "true"), -EPERM);
}

/* Names, stat and unlink need nothing: ls -l, find and rm -rf work. */
static void names_need_nothing(void **state)
{
	struct fw *w = *state;
	struct world t = set_up(w, IN_VIEW);
	struct fuse_entry_out e;

	bind_policy(&t, "{\"operations\":[]}");
	assert_int_equal(fw_list(w, at(&t, "run"), buf, sizeof(buf)), 0);
	assert_string_equal(buf, ". .. a ");
	assert_int_equal(fw_list(w, at(&t, "run/a"), buf, sizeof(buf)), 0);
	assert_int_equal(fw_list(w, at(&t, "run/a/exec/1"), buf, sizeof(buf)), 0);
	assert_int_equal(fw_readlink(w, at(&t, "run/a/exec/latest"), buf, sizeof(buf)), 0);
	assert_int_equal(fw_walk(w, at(&t, "run/a/cmd"), &e), 0);
	assert_int_equal(fw_getattr(w, e.nodeid, NULL), 0);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_MODE, 0, 0, 0600, 0), 0);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_SIZE, 0, 0, 0, 0), -EPERM);
	assert_int_equal(fw_unlink(w, at(&t, "run/a/cmd")), 0);
	assert_int_equal(fw_rmdir(w, at(&t, "run/a/limits")), 0);
	assert_int_equal(fw_rmdir(w, at(&t, "run/a/exec/1")), 0); /* hidden, not undone */
	assert_int_equal(fw_mkdir(w, at(&t, "run/a/limits")), 0); /* shown again */
}

static void refusals_have_words(void **state)
{
	struct fw *w = *state;
	struct world t = set_up(w, IN_VIEW);
	uint64_t changed;
	struct sandbox *s = registry_find(w->reg, registry_find_view(w->reg, "v"), "a");

	bind_policy(&t, "{\"operations\":[]}");
	assert_int_equal(fw_put(w, at(&t, "run/a/cmd"), "true"), -EPERM);
	assert_true(fw_cat(w, at(&t, "run/a/error"), buf, sizeof(buf)) > 0);
	assert_string_equal(buf, "sandbox a: exec: exec: the policy of v does not permit it\n");
	assert_int_equal(fw_walk(w, at(&t, "run/a/.fs"), &(struct fuse_entry_out){ 0 }), -EPERM);
	assert_true(fw_cat(w, at(&t, "run/a/error"), buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "sandbox a: files: "));
	assert_int_equal(fw_put(w, at(&t, "snapshots/s/fork"), "f"), -EPERM);
	assert_true(fw_cat(w, at(&t, "snapshots/s/error"), buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "fork: "));
	/* grep -r: one refusal for each file, words once. */
	assert_int_equal(fw_cat(w, at(&t, "run/a/stdout"), buf, sizeof(buf)), -EPERM);
	changed = sandbox_changed_ns(s);
	assert_int_equal(fw_cat(w, at(&t, "run/a/stderr"), buf, sizeof(buf)), -EPERM);
	assert_int_equal(sandbox_changed_ns(s), changed);
}

/* -- under open descriptors ----------------------------------------------------------------------------------- */

static void open_at(const struct world *t, const char *path, int flags, uint64_t *ret_node, uint64_t *ret_fh)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;

	assert_int_equal(fw_walk(t->w, at(t, path), &e), 0);
	assert_int_equal(fw_open(t->w, e.nodeid, flags, &o), 0);
	*ret_node = e.nodeid;
	*ret_fh = o.fh;
}

static void a_narrower_policy_holds_at_once_EPERM(void **state)
{
	static const char *const written[] = { "run/a/cmd",    "run/a/ctl",	  "run/a/env",	       "run/a/snapshot",
					       "run/a/import", "run/a/net/allow", "run/a/exec/s/stdin" };
	static const char *const read[] = { "run/a/stdout", "run/a/log.jsonl", "run/a/info.json",
					    "events.jsonl", "run/a/.wait",     "metrics" };
	struct fw *w = *state;
	struct world t = set_up(w, IN_VIEW);
	struct sandbox *s = registry_find(w->reg, registry_find_view(w->reg, "v"), "a");
	uint64_t node[13], fh[13];
	size_t n = 0;

	for (size_t i = 0; i < 7; i++, n++)
		open_at(&t, written[i], O_WRONLY, &node[n], &fh[n]);
	for (size_t i = 0; i < 6; i++, n++)
		open_at(&t, read[i], O_RDONLY, &node[n], &fh[n]);
	assert_int_equal(fw_write(w, node[0], fh[0], O_WRONLY, 0, "rm -rf /", 8), 8);
	bind_policy(&t, "{\"operations\":[]}");
	for (size_t i = 0; i < 7; i++)
		assert_int_equal(fw_write(w, node[i], fh[i], O_WRONLY, 0, "A=1\n", 4), -EPERM);
	assert_int_equal(fw_setattr(w, node[0], FATTR_FH | FATTR_SIZE, fh[0], 0, 0, 0), -EPERM);
	for (size_t i = 7; i < n; i++)
		assert_int_equal(fw_read(w, node[i], fh[i], O_RDONLY, 0, buf, 10), -EPERM);
	/* What was written before does not become a command any more. */
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(fw_flush(w, node[i], fh[i]), 0);
		fw_release(w, node[i], fh[i]);
	}
	assert_int_equal(fake_uploads(w->reg), 0);
	assert_int_equal(sandbox_latest_exec(s), 1);
	bind_policy(&t, "{}");
	assert_int_equal(fw_put(w, at(&t, "run/a/cmd"), "true"), 0);
}

static void both_ways_need_both_EPERM(void **state)
{
	struct fw *w = *state;
	struct world t = set_up(w, IN_VIEW);
	struct fuse_entry_out e, d;
	struct fuse_open_out o;

	assert_int_equal(fw_walk(w, at(&t, "run/a"), &d), 0);
	assert_int_equal(fw_walk(w, at(&t, "run/a/cmd"), &e), 0);
	bind_policy(&t, "{\"operations\":[\"exec\"]}");
	assert_int_equal(fw_open(w, e.nodeid, O_RDWR, &o), -EPERM);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), -EPERM);
	assert_int_equal(fw_create(w, d.nodeid, "cmd", O_RDWR | O_CREAT, 0600, &e, &o), -EPERM);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY, &o), 0);
	fw_release(w, e.nodeid, o.fh);
	bind_policy(&t, "{\"operations\":[\"read\"]}");
	assert_int_equal(fw_open(w, e.nodeid, O_RDWR, &o), -EPERM);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY, &o), -EPERM);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY | O_TRUNC, &o), -EPERM);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), 0);
	fw_release(w, e.nodeid, o.fh);
}

/* -- nothing is forgotten ---------------------------------------------------------------------------------------- */

static void every_kind_asks(void **state)
{
	static const struct cfs_kind *const kinds[] = { &cfs_kind_dir,	   &cfs_kind_link,   &cfs_kind_text,
							&cfs_kind_control, &cfs_kind_stream, &cfs_kind_wait,
							&cfs_kind_upload,  &cfs_kind_livein, &cfs_kind_lease,
							&cfs_kind_job };

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		assert_ptr_equal(kinds[i]->ops->may, cfs_tnode_may);
}

static void check_rows(const struct cfs_table *t)
{
	for (size_t i = 0; i < t->count; i++) {
		const struct cfs_entry *e = &t->entries[i];

		if (e->kind->writable && !e->op)
			fail_msg("%s/%s: what do its writers need?", t->path, e->name);
		if (e->dir)
			check_rows(e->dir);
	}
}

static void every_row_says_what_its_writers_need(void **state)
{
	static const struct cfs_table *const tables[] = { &cfs_root_table, &cfs_view_root_table, &cfs_sandbox_table,
							  &cfs_exec_table, &cfs_slot_table };

	(void)state;
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		check_rows(tables[i]);
}

static void a_row_that_says_nothing_is_for_who_administers_EPERM(void **state)
{
	static const struct cfs_entry forgot = { .name = "new", .kind = &cfs_kind_control, .mode = 0666 };
	struct fw *w = *state;
	struct cfs_about a = cfs_tnode_of(cfs_session_root(w->cs))->about;
	struct cfs_who who = { .uid = 1000, .gid = 1000 };

	a.entry = &forgot;
	assert_int_equal(cfs_may_use(&a, &who, CFS_ACCESS_WRITE), -EPERM);
	who.uid = 0;
	assert_int_equal(cfs_may_use(&a, &who, CFS_ACCESS_WRITE), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fw_setup, fw_teardown)
	const struct CMUnitTest tests[] = {
		TEST(in_a_view_EPERM),
		TEST(in_the_whole_tree_EPERM),
		TEST(the_store_is_for_who_administers_EPERM),
		TEST(both_policies_must_permit_EPERM),
		TEST(names_need_nothing),
		TEST(refusals_have_words),
		TEST(a_narrower_policy_holds_at_once_EPERM),
		TEST(both_ways_need_both_EPERM),
		TEST(a_row_that_says_nothing_is_for_who_administers_EPERM),
		cmocka_unit_test(every_kind_asks),
		cmocka_unit_test(every_row_says_what_its_writers_need),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
