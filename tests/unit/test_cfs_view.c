/* SPDX-License-Identifier: Apache-2.0 */
/* views/: what is there, whose it is, and that what is seen through a view meets nothing of another. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "fusewire.h"

#define POLICY "{\n  \"operations\": [\"create\", \"read\"],\n  \"max_sandboxes\": 2\n}\n"

static char buf[262144];

static void expect(struct fw *w, const char *path, const char *names)
{
	assert_int_equal(fw_list(w, path, buf, sizeof(buf)), 0);
	assert_string_equal(buf, names);
}

static void cat_has(struct fw *w, const char *path, const char *text)
{
	assert_true(fw_cat(w, path, buf, sizeof(buf)) >= 0);
	if (!strstr(buf, text))
		fail_msg("%s: \"%s\" without \"%s\"", path, buf, text);
}

static void cat_is(struct fw *w, const char *path, const char *text)
{
	assert_int_equal(fw_cat(w, path, buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

static struct fuse_attr attr_of(struct fw *w, const char *path)
{
	struct fuse_entry_out e;

	assert_int_equal(fw_walk(w, path, &e), 0);
	return e.attr;
}

#define VIEW_FILES "error info.json policy status "
#define TREE_FILES \
	"README.md defaults events.jsonl health.json logs metrics policy.json profiles run snapshots version "

static void a_view_is_made_and_written(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;

	expect(w, "views", ". .. ");
	assert_int_equal(fw_mkdir(w, "views/v"), 0);
	expect(w, "views", ". .. v ");
	expect(w, "views/v", ". .. " VIEW_FILES "ttl uuid ");
	assert_int_equal(fw_walk(w, "views/v/tree", &e), -ENOENT);
	cat_is(w, "views/v/status", "new\n");
	cat_is(w, "views/v/policy", "");
	cat_is(w, "views/v/ttl", "none\n");
	assert_int_equal(fw_put(w, "views/v/policy", POLICY), 0);
	cat_is(w, "views/v/status", "active\n");
	cat_has(w, "views/v/policy", "\"max_sandboxes\"");
	expect(w, "views/v", ". .. " VIEW_FILES "tree ttl uuid ");
	expect(w, "views/v/tree", ". .. " TREE_FILES);
	assert_int_equal(fw_walk(w, "views/v/tree/views", &e), -ENOENT);
	assert_int_equal(fw_walk(w, "views/v/tree/store", &e), -ENOENT);
	assert_int_equal(fw_put(w, "views/v/ttl", "60\n"), 0);
	cat_is(w, "views/v/ttl", "60\n");
	assert_int_equal(fw_mkdir(w, "views/v"), -EEXIST);
	assert_int_equal(fw_mkdir(w, "views/.v"), -EINVAL);
	assert_int_equal(fw_rmdir(w, "views/v"), 0);
	assert_int_equal(fw_walk(w, "views/v", &e), -ENOENT);
	expect(w, "views", ". .. ");
}

/* One write is one document: not its first lines. Its faults are told all at once, and the old one stays. */
static void a_policy_is_one_document_EINVAL(void **state)
{
	static char first[128 * 1024] = "{}";
	struct fw *w = *state;

	assert_int_equal(fw_mkdir(w, "views/v"), 0);
	assert_int_equal(fw_put(w, "views/v/policy", POLICY), 0);
	assert_int_equal(fw_put(w, "views/v/policy", "{\n\"max_fork\": 0,\n\"nonsense\": 1\n}\n"), -EINVAL);
	cat_has(w, "views/v/error", "max_fork");
	cat_has(w, "views/v/error", "nonsense");
	assert_ptr_equal(strchr(buf, '\n'), buf + strlen(buf) - 1);
	cat_has(w, "views/v/policy", "\"max_sandboxes\"");
	assert_int_equal(fw_put(w, "views/v/policy", " \n\n"), 0); /* blanks alone do nothing */
	assert_int_equal(fw_put_bytes(w, "views/v/policy", O_WRONLY, "{}\0", 3), -EINVAL);
	/* Nor the first part of a long one, as the kernel cuts it: blanks count. */
	memset(first + 2, ' ', sizeof(first) - 2);
	assert_int_equal(fw_put_bytes(w, "views/v/policy", O_WRONLY, first, sizeof(first)), -EFBIG);
	cat_has(w, "views/v/policy", "\"max_sandboxes\"");
}

static void a_policy_comes_by_rename(void **state)
{
	struct fw *w = *state;

	assert_int_equal(fw_mkdir(w, "views/v"), 0);
	assert_int_equal(fw_put(w, "views/v/new", POLICY), 0);
	assert_int_equal(fw_rename(w, "views/v/new", "views/v/policy", 0), 0);
	cat_is(w, "views/v/status", "active\n");
	assert_int_equal(fw_put(w, "views/v/bad", "{"), 0);
	assert_int_equal(fw_rename(w, "views/v/bad", "views/v/policy", 0), -EINVAL);
	expect(w, "views/v", ". .. bad " VIEW_FILES "tree ttl uuid ");
	/* Scratch files go with the view, and one of the same name begins anew. */
	assert_int_equal(fw_rmdir(w, "views/v"), 0);
	assert_int_equal(fw_mkdir(w, "views/v"), 0);
	expect(w, "views/v", ". .. " VIEW_FILES "ttl uuid ");
}

static void scratch_files_go_with_the_view(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out d, e;
	struct fuse_open_out o;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(fw_mkdir(w, "views/v"), 0);
		assert_int_equal(fw_walk(w, "views/v", &d), 0);
		assert_int_equal(fw_create(w, d.nodeid, "new", O_WRONLY | O_CREAT, 0600, &e, &o), 0);
		/* As much as there may be of all views together. */
		assert_int_equal(fw_setattr(w, e.nodeid, FATTR_SIZE, 0, CFS_SCRATCH_MAX, 0, 0), 0);
		assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, CFS_SCRATCH_MAX, "x", 1), -EDQUOT);
		fw_release(w, e.nodeid, o.fh);
		fw_forget(w, e.nodeid, 1);
		assert_int_equal(fw_rmdir(w, "views/v"), 0);
	}
}

static void owners_and_modes(void **state)
{
	static const char *const files[] = { "policy", "ttl", "status", "error", "uuid", "info.json" };
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_attr a;

	fake_view(w->reg, "v", "{}");
	a = attr_of(w, "views");
	assert_int_equal(a.mode, S_IFDIR | 01777);
	assert_int_equal(fw_walk(w, "views/v", &e), 0);
	assert_int_equal(e.attr.mode, S_IFDIR | 0700);
	assert_int_equal(e.attr.uid, 0);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_UID, 0, 0, 0, 1000), 0);
	assert_int_equal(fw_getattr(w, e.nodeid, &a), 0);
	assert_int_equal(a.uid, 1000);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_MODE, 0, 0, 0777, 0), -EPERM);
	assert_int_equal(attr_of(w, "views/v").uid, 1000);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		char path[64];

		snprintf(path, sizeof(path), "views/v/%s", files[i]);
		a = attr_of(w, path);
		assert_int_equal(a.uid, 0);
		assert_int_equal(a.mode, S_IFREG | (i < 2 ? 0644 : 0444));
	}
	a = attr_of(w, "views/v/tree");
	assert_int_equal(a.mode, S_IFDIR | 0755);
	assert_int_equal(a.uid, 0);
	assert_int_equal(attr_of(w, "views/v/tree/run").mode, S_IFDIR | 01777);
	/* Its owner reaches the tree, and cannot change what binds it. */
	w->uid = 1000;
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a"), 0);
	assert_int_equal(attr_of(w, "views/v/tree/run/a").uid, 1000);
	assert_int_equal(fw_put(w, "views/v/policy", "{}"), -EPERM);
	assert_int_equal(fw_put(w, "views/v/ttl", "none"), -EPERM);
	assert_int_equal(fw_put(w, "views/v/mine", "{}"), -EPERM);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_UID, 0, 0, 0, 5), -EPERM);
	assert_int_equal(fw_unlink(w, "views/v/policy"), -EPERM);
	assert_int_equal(fw_rmdir(w, "views/v/tree"), -EPERM);
	assert_int_equal(fw_rmdir(w, "views/v"), -EPERM);
	assert_int_equal(fw_mkdir(w, "views/w"), -EPERM);
	/* What is root's can be put beside it, and does not become a policy by somebody else's rename. */
	w->uid = 0;
	assert_int_equal(fw_put(w, "views/v/mine", "{}"), 0);
	w->uid = 1000;
	assert_int_equal(fw_rename(w, "views/v/mine", "views/v/policy", 0), -EPERM);
}

static void each_sees_its_own_views(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;

	fake_view(w->reg, "v", "{}");
	fake_view(w->reg, "w", "{}");
	assert_int_equal(fw_walk(w, "views/v", &e), 0);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_UID, 0, 0, 0, 1000), 0);
	expect(w, "views", ". .. v w ");
	w->uid = 1000;
	expect(w, "views", ". .. v ");
	w->uid = 1001;
	expect(w, "views", ". .. ");
}

static void who_administers_may_make_views(void **state)
{
	struct fw *w = *state;

	fake_policy_uid(w->reg, 1000, "{\"operations\":[\"admin\"]}");
	w->uid = 1000;
	assert_int_equal(fw_mkdir(w, "views/v"), 0);
	w->uid = 1001;
	assert_int_equal(fw_mkdir(w, "views/w"), -EPERM);
	w->uid = 1000;
	assert_int_equal(fw_put(w, "views/v/policy", "{}"), 0);
	assert_int_equal(fw_rmdir(w, "views/v"), 0);
}

static void names_do_not_meet(void **state)
{
	struct fw *w = *state;
	static const char *const roots[] = { "", "views/v/tree/", "views/w/tree/" };
	uint64_t ino[3], node[3];
	struct fuse_entry_out e;
	char path[64];

	fake_view(w->reg, "v", "{}");
	fake_view(w->reg, "w", "{}");
	for (size_t i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%srun", roots[i]);
		expect(w, path, ". .. ");
		ino[i] = attr_of(w, path).ino;
		snprintf(path, sizeof(path), "%srun/a", roots[i]);
		assert_int_equal(fw_mkdir(w, path), 0);
		assert_int_equal(fw_mkdir(w, path), -EEXIST);
		snprintf(path, sizeof(path), "%srun/a/snapshot", roots[i]);
		assert_int_equal(fw_put(w, path, "s"), 0);
		snprintf(path, sizeof(path), "%ssnapshots", roots[i]);
		expect(w, path, ". .. s ");
		snprintf(path, sizeof(path), "%srun/a/snapshots", roots[i]);
		expect(w, path, ". .. s ");
		snprintf(path, sizeof(path), "%ssnapshots/s/fork", roots[i]);
		assert_int_equal(fw_put(w, path, "b"), 0);
		snprintf(path, sizeof(path), "%srun", roots[i]);
		expect(w, path, ". .. a b ");
		snprintf(path, sizeof(path), "%ssnapshots/s/forks", roots[i]);
		expect(w, path, ". .. b ");
		snprintf(path, sizeof(path), "%sversion", roots[i]);
		assert_int_equal(fw_walk(w, path, &e), 0);
		node[i] = e.nodeid;
	}
	assert_true(ino[0] != ino[1] && ino[1] != ino[2] && ino[0] != ino[2]);
	assert_true(node[0] != node[1] && node[1] != node[2] && node[0] != node[2]);
	expect(w, "views/v/tree/logs/by-name", ". .. a b ");
	/* Three of each were made; one view tells of its own. */
	assert_int_equal(fw_list(w, "views/v/tree/logs", buf, sizeof(buf)), 0);
	assert_string_equal(strstr(buf, "by-name"), "by-name ");
	assert_int_equal(strlen(buf), strlen(". .. by-name ") + 2 * (36 + sizeof(".jsonl")));
	assert_int_equal(fw_rmdir(w, "views/v/tree/run/a"), 0);
	expect(w, "run", ". .. a b ");
	expect(w, "views/v/tree/run", ". .. b ");
}

/* Nothing moves from one to the other. */
static void rename_between_views_EXDEV(void **state)
{
	struct fw *w = *state;

	fake_view(w->reg, "v", "{}");
	assert_int_equal(fw_mkdir(w, "run/a"), 0);
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/b"), 0);
	assert_int_equal(fw_rename(w, "run/a", "views/v/tree/run/a", 0), -EXDEV);
	assert_int_equal(fw_rename(w, "views/v/tree/run/b", "run/b", 0), -EXDEV);
	assert_int_equal(fw_put(w, "run/a/x", "1"), 0);
	assert_int_equal(fw_rename(w, "run/a/x", "views/v/tree/run/b/env", 0), -EXDEV);
	assert_int_equal(fw_rename(w, "views/v/tree/run/b", "views/v/tree/run/c", 0), 0);
}

static void whoever_comes_through_a_view_is_known(void **state)
{
	struct fw *w = *state;

	fake_view(w->reg, "v", "{}");
	cat_is(w, "policy.json", "{\"uid\":0}\n");
	cat_is(w, "views/v/tree/policy.json", "{\"uid\":0,\"view\":\"v\"}\n");
	w->uid = 7;
	cat_is(w, "views/v/tree/policy.json", "{\"uid\":7,\"view\":\"v\"}\n");
	cat_is(w, "policy.json", "{\"uid\":7}\n");
}

/* The kernel must ask us each time: nothing of a view may be remembered. */
static void nothing_of_a_view_is_cached(void **state)
{
	static const char *const files[] = { "version",	     "README.md",   "run/a/ctl",      "run/a/env",
					     "run/a/status", "run/a/cmd",   "run/a/scratch",  "events.jsonl",
					     "policy.json",  "run/a/.wait", "run/a/snapshot", "defaults/pids" };
	static const char *const names[] = { "", "run", "run/a", "defaults", "logs", "logs/by-name", "run/a/fs" };
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;
	struct fuse_getattr_in in = { 0 };
	const struct fw_answer *a;
	char path[80];

	fake_view(w->reg, "v", "{}");
	fake_end_at_once(w->reg, true);
	assert_int_equal(fw_mkdir(w, "views/v/tree/run/a"), 0);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/cmd", "true"), 0);
	assert_int_equal(fw_put(w, "views/v/tree/run/a/scratch", "x"), 0);
	for (size_t i = 0; i < sizeof(files) / sizeof(*files) + sizeof(names) / sizeof(*names); i++) {
		bool file = i < sizeof(files) / sizeof(*files);

		snprintf(path, sizeof(path), "views/v/tree/%s",
			 file ? files[i] : names[i - sizeof(files) / sizeof(*files)]);
		if (path[strlen(path) - 1] == '/')
			path[strlen(path) - 1] = '\0';
		assert_int_equal(fw_walk(w, path, &e), 0);
		assert_true(!e.entry_valid && !e.entry_valid_nsec && !e.attr_valid && !e.attr_valid_nsec);
		assert_int_equal(fw_call(w, FUSE_GETATTR, e.nodeid, &in, sizeof(in), NULL, 0, &a), 0);
		assert_int_equal(((const struct fuse_attr_out *)(const void *)a->data)->attr_valid, 0);
		assert_int_equal(((const struct fuse_attr_out *)(const void *)a->data)->attr_valid_nsec, 0);
		if (!file)
			continue;
		assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), 0);
		assert_int_equal(o.open_flags & (FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE), FOPEN_DIRECT_IO);
		fw_release(w, e.nodeid, o.fh);
	}
	assert_int_equal(fw_walk(w, "views/v/tree/run/a", &e), 0);
	assert_int_equal(fw_create(w, e.nodeid, "new", O_RDWR | O_CREAT, 0600, &e, &o), 0);
	assert_int_equal(o.open_flags & (FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE), FOPEN_DIRECT_IO);
	fw_release(w, e.nodeid, o.fh);
	/* In the whole tree it is as ever. */
	assert_int_equal(fw_walk(w, "version", &e), 0);
	assert_true(e.attr_valid > 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDONLY, &o), 0);
	assert_int_equal(o.open_flags & (FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE), FOPEN_KEEP_CACHE);
	fw_release(w, e.nodeid, o.fh);
}

/* The numbers of the whole tree are what they were before there were views. */
static void numbers_stay(void **state)
{
	struct fw *w = *state;

	assert_int_equal(attr_of(w, "version").ino, cfs_ino("", "", "version", "", "0", NULL));
}

/* Walks all of a view, forgets all, removes the view: neither nodes nor the view stay. */
static void nothing_leaks(void **state)
{
	static const char *const paths[] = {
		"",	    "run",	    "run/a",	 "run/a/cmd", "run/a/limits/pids",	"logs", "run/a/scratch",
		"defaults", "events.jsonl", "run/a/.fs", "snapshots", "profiles/base/info.json"
	};
	struct fw *w = *state;
	size_t before = cfs_node_count(w->cs);
	struct fuse_entry_out e, up;
	uint64_t nodes[64];
	size_t n = 0;

	assert_int_equal(fw_lookup(w, FUSE_ROOT_ID, "views", &e), 0);
	nodes[n++] = e.nodeid;
	assert_int_equal(fw_call(w, FUSE_MKDIR, e.nodeid, &(struct fuse_mkdir_in){ 0 }, sizeof(struct fuse_mkdir_in),
				 "v", 2, NULL),
			 0);
	assert_int_equal(fw_lookup(w, e.nodeid, "v", &up), 0);
	nodes[n++] = up.nodeid;
	nodes[n++] = up.nodeid; /* mkdir's */
	assert_int_equal(view_policy_store(registry_find_view(w->reg, "v"), "{}", 2, &(struct cfs_who){ 0 }, NULL), 0);
	assert_int_equal(fw_lookup(w, up.nodeid, "tree", &up), 0);
	nodes[n++] = up.nodeid;
	for (size_t i = 1; i < sizeof(paths) / sizeof(*paths); i++) {
		char part[64], *save = NULL;
		uint64_t dir = up.nodeid;

		if (i == 2) { /* makes two lookups of one name */
			assert_int_equal(fw_lookup(w, dir, "run", &e), 0);
			nodes[n++] = e.nodeid;
			assert_int_equal(fw_call(w, FUSE_MKDIR, e.nodeid, &(struct fuse_mkdir_in){ 0 },
						 sizeof(struct fuse_mkdir_in), "a", 2, NULL),
					 0);
			assert_int_equal(fw_lookup(w, e.nodeid, "a", &e), 0);
			nodes[n++] = e.nodeid;
			nodes[n++] = e.nodeid;
			assert_int_equal(fw_call(w, FUSE_MKNOD, e.nodeid,
						 &(struct fuse_mknod_in){ .mode = S_IFREG | 0600 },
						 sizeof(struct fuse_mknod_in), "scratch", 8, NULL),
					 0);
			assert_int_equal(fw_lookup(w, e.nodeid, "scratch", &e), 0);
			nodes[n++] = e.nodeid;
			nodes[n++] = e.nodeid;
		}
		snprintf(part, sizeof(part), "%s", paths[i]);
		for (char *p = strtok_r(part, "/", &save); p; p = strtok_r(NULL, "/", &save)) {
			assert_int_equal(fw_lookup(w, dir, p, &e), 0);
			assert_true(n < 64);
			nodes[n++] = dir = e.nodeid;
		}
	}
	assert_true(cfs_node_count(w->cs) > before + 10);
	assert_int_equal(fw_rmdir(w, "views/v"), 0); /* with its nodes known; looks `views` up once more */
	nodes[n++] = nodes[0];
	assert_int_equal(fake_views_alive(), 1); /* held by its nodes */
	assert_int_equal(fw_getattr(w, up.nodeid, NULL), -ESTALE);
	assert_int_equal(fw_lookup(w, up.nodeid, "run", &e), -ESTALE);
	while (n)
		fw_forget(w, nodes[--n], 1);
	assert_int_equal(cfs_node_count(w->cs), before);
	assert_int_equal(fake_views_alive(), 0);
}

/* A descriptor of one view's control file does not lead to the next view of that name. */
static void a_name_used_again_is_another_view_ESTALE(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e, d;
	struct fuse_open_out o;

	assert_int_equal(fw_mkdir(w, "views/v"), 0);
	assert_int_equal(fw_walk(w, "views/v", &d), 0);
	assert_int_equal(fw_walk(w, "views/v/policy", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY, &o), 0);
	assert_int_equal(fw_rmdir(w, "views/v"), 0);
	assert_int_equal(fw_mkdir(w, "views/v"), 0);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 0, "{}", 2), -ESTALE);
	assert_int_equal(fw_setattr(w, d.nodeid, FATTR_UID, 0, 0, 0, 1000), -ESTALE);
	assert_int_equal(fw_lookup(w, d.nodeid, "policy", &e), -ENOENT);
	cat_is(w, "views/v/status", "new\n");
	fw_release(w, e.nodeid, o.fh);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, fw_setup, fw_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_view_is_made_and_written),
		TEST(a_policy_is_one_document_EINVAL),
		TEST(a_policy_comes_by_rename),
		TEST(scratch_files_go_with_the_view),
		TEST(owners_and_modes),
		TEST(each_sees_its_own_views),
		TEST(who_administers_may_make_views),
		TEST(names_do_not_meet),
		TEST(rename_between_views_EXDEV),
		TEST(whoever_comes_through_a_view_is_known),
		TEST(nothing_of_a_view_is_cached),
		TEST(numbers_stay),
		TEST(nothing_leaks),
		TEST(a_name_used_again_is_another_view_ESTALE),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
