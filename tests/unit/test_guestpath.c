/* SPDX-License-Identifier: Apache-2.0 */
/* The table of nodes known by path: identity, renames of subtrees, what loses its path. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/loop.h"
#include "cruciblefs/guestpath.h"
#include "cruciblefs/session.h"

static struct loop *loop;
static struct cfs_session *session;
static struct gtable table;
static struct gnode root;
static int far_end;

static void node_end(struct cfs_node *n)
{
	struct gnode *g = cfs_container(n, struct gnode, node);

	if (g->parent)
		gnode_free(&table, g);
}

static const struct cfs_node_ops test_ops = { .free = node_end };

static int set_up(void **state)
{
	struct cfs_session_opts o = { .socket = true };
	int sv[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
	far_end = sv[1];
	assert_int_equal(loop_new(&loop), 0);
	o.loop = loop;
	o.fd = sv[0];
	assert_int_equal(cfs_session_new(&o, &session, NULL), 0);
	root = (struct gnode){ 0 };
	cfs_session_set_root(session, &root.node, &test_ops, NULL);
	gnode_init_root(&root, NULL);
	return gtable_init(&table);
}

static int tear_down(void **state)
{
	(void)state;
	session = cfs_session_free(session);
	gtable_fini(&table);
	loop = loop_free(loop);
	return close(far_end);
}

/* The guest has something there: a node that the kernel knows, without a reference of ours. */
static struct gnode *have(struct gnode *dir, const char *name, uint32_t type, uint64_t ino)
{
	struct gattr a = { .type = type, .ino = ino };
	struct gnode *n;

	assert_int_equal(gnode_take(&table, dir, name, &a, &test_ops, &n), 0);
	n->node.lookups++;
	cfs_node_unref(&n->node);
	return n;
}

static struct gnode *have_dir(struct gnode *dir, const char *name)
{
	return have(dir, name, S_IFDIR, 1);
}

static void forget(struct gnode *n)
{
	n->node.lookups = 0;
	cfs_node_ref(&n->node);
	cfs_node_unref(&n->node);
	loop_once(loop, 0);
}

static const char *path_of(const struct gnode *n, const char *name)
{
	static char out[AG_PATH_MAX + 1];
	size_t len;
	int r = gnode_path(n, name, out, &len);

	if (r < 0)
		return r == -ESTALE ? "ESTALE" : r == -ENAMETOOLONG ? "ENAMETOOLONG" : "?";
	assert_int_equal(len, strlen(out));
	return out;
}

static int check(struct gnode *dir, const char *name, struct gnode *newdir, const char *newname, unsigned flags)
{
	return gnode_rename_check(&table, dir, name, newdir, newname, flags);
}

static void test_a_path_has_one_node(void **state)
{
	struct gnode *a = have_dir(&root, "a"), *f = have(a, "f", S_IFREG, 7);

	(void)state;
	assert_ptr_equal(have_dir(&root, "a"), a);
	assert_ptr_equal(have(a, "f", S_IFREG, 7), f);
	assert_ptr_equal(gnode_find(&table, &root, "a"), a);
	assert_null(gnode_find(&table, &root, "f"));
	assert_string_equal(path_of(f, NULL), "a/f");
	assert_string_equal(path_of(&root, NULL), "");
	assert_string_equal(path_of(&root, "x"), "x");
	assert_string_equal(path_of(a, "x"), "a/x");
	assert_int_equal(f->depth, 2);
}

static void test_the_same_guest_inode_elsewhere_is_another_node(void **state)
{
	struct gnode *a = have_dir(&root, "a"), *b = have_dir(&root, "b");

	(void)state;
	/* The guest has moved a directory: it must not be found, or the kernel would move its dentry. */
	assert_ptr_not_equal(have(a, "d", S_IFDIR, 9), have(b, "d", S_IFDIR, 9));
	assert_ptr_not_equal(have(a, "f", S_IFREG, 5), have(a, "hardlink", S_IFREG, 5));
}

static void test_another_file_is_another_node(void **state)
{
	struct gnode *f = have(&root, "f", S_IFREG, 1), *now;

	(void)state;
	now = have(&root, "f", S_IFREG, 2);
	assert_ptr_not_equal(now, f);
	assert_string_equal(path_of(f, NULL), "ESTALE");
	assert_string_equal(path_of(now, NULL), "f");
	assert_ptr_not_equal(have(&root, "f", S_IFLNK, 2), now);
	/* Directories keep theirs: some guest file systems number them anew all the time. */
	f = have(&root, "d", S_IFDIR, 3);
	assert_ptr_equal(have(&root, "d", S_IFDIR, 4), f);
	assert_ptr_not_equal(have(&root, "d", S_IFREG, 4), f);
}

static void test_ENOENT_what_is_gone(void **state)
{
	struct gattr a = { .type = S_IFREG };
	struct gnode *d = have_dir(&root, "d"), *f = have(d, "f", S_IFREG, 1), *n;

	(void)state;
	gnode_gone(&table, &root, "d");
	gnode_gone(&table, &root, "never");
	assert_true(gnode_dead(d) && gnode_dead(f));
	assert_string_equal(path_of(d, NULL), "ESTALE");
	assert_string_equal(path_of(f, NULL), "ESTALE");
	assert_int_equal(gnode_take(&table, d, "new", &a, &test_ops, &n), -ENOENT);
	/* The name can be used again; the old ones stay dead. */
	assert_ptr_not_equal(have_dir(&root, "d"), d);
	assert_string_equal(path_of(f, NULL), "ESTALE");
}

static void test_a_subtree_moves_with_its_directory(void **state)
{
	struct gnode *a = have_dir(&root, "a"), *b = have_dir(&root, "b"), *d = have_dir(a, "d"), *e = have_dir(d, "e"),
		     *l = have(e, "l", S_IFLNK, 4);

	(void)state;
	assert_int_equal(check(a, "d", b, "dd", 0), 0);
	gnode_renamed(&table, a, "d", b, "dd", 0);
	assert_string_equal(path_of(l, NULL), "b/dd/e/l");
	assert_ptr_equal(gnode_find(&table, b, "dd"), d);
	assert_null(gnode_find(&table, a, "d"));
	assert_int_equal(l->depth, 4);
	assert_int_equal(table.renames, 1);
}

static void test_EXDEV_directories_keep_their_depth(void **state)
{
	struct gnode *a = have_dir(&root, "a"), *b = have_dir(&root, "b");

	(void)state;
	have_dir(a, "d");
	have(&root, "f", S_IFREG, 4);
	assert_int_equal(check(a, "d", &root, "d", 0), -EXDEV);
	assert_int_equal(check(&root, "b", a, "b", 0), -EXDEV);
	assert_int_equal(check(&root, "f", a, "f", 0), 0);
	assert_int_equal(check(&root, "f", a, "d", RENAME_EXCHANGE), -EXDEV);
	assert_int_equal(check(a, "d", b, "f", RENAME_NOREPLACE), 0);
}

static void test_EXDEV_while_the_kernel_may_still_take_it_for_a_directory(void **state)
{
	struct gnode *a = have_dir(&root, "a"), *ghost = have_dir(a, "d");

	(void)state;
	/* The guest has put a file where the kernel has a directory's dentry, and somebody else's look-up has told us.
	 */
	have(a, "d", S_IFREG, 2);
	assert_int_equal(check(a, "d", &root, "d", 0), -EXDEV);
	assert_int_equal(check(a, "d", a, "dd", 0), 0);
	forget(ghost);
	assert_int_equal(check(a, "d", &root, "d", 0), 0);
}

static void test_ESTALE_a_source_that_is_not_known(void **state)
{
	struct gnode *a = have_dir(&root, "a");

	(void)state;
	assert_int_equal(check(&root, "f", a, "f", 0), -ESTALE);
	have(&root, "f", S_IFREG, 1);
	assert_int_equal(check(&root, "f", a, "g", RENAME_EXCHANGE), -ESTALE);
}

static void test_EINVAL_into_itself_and_flags(void **state)
{
	struct gnode *a = have_dir(&root, "a"), *d = have_dir(a, "d");

	(void)state;
	have_dir(d, "e");
	assert_int_equal(check(&root, "a", a, "x", 0), -EINVAL);
	assert_int_equal(check(&root, "a", d, "x", 0), -EINVAL);
	assert_int_equal(check(d, "e", &root, "a", RENAME_EXCHANGE), -EINVAL);
	assert_int_equal(check(&root, "a", &root, "b", 1u << 2), -EINVAL); /* RENAME_WHITEOUT */
	assert_int_equal(check(&root, "a", &root, "b", RENAME_NOREPLACE | RENAME_EXCHANGE), -EINVAL);
}

static void test_a_link_loses_its_node_at_another_depth(void **state)
{
	struct gnode *a = have_dir(&root, "a"), *b = have_dir(&root, "b"), *l = have(&root, "l", S_IFLNK, 4), *f;

	(void)state;
	assert_int_equal(check(&root, "l", a, "l", 0), 0);
	gnode_renamed(&table, &root, "l", a, "l", 0);
	assert_true(gnode_dead(l));
	assert_null(gnode_find(&table, a, "l"));
	/* At the same depth it keeps it, and a regular file always does. */
	l = have(a, "m", S_IFLNK, 5);
	gnode_renamed(&table, a, "m", b, "m", 0);
	assert_string_equal(path_of(l, NULL), "b/m");
	f = have(&root, "f", S_IFREG, 6);
	gnode_renamed(&table, &root, "f", a, "f", 0);
	assert_string_equal(path_of(f, NULL), "a/f");
	assert_int_equal(f->depth, 2);
}

static void test_what_is_renamed_over_is_gone(void **state)
{
	struct gnode *f = have(&root, "f", S_IFREG, 1), *g = have(&root, "g", S_IFREG, 2);

	(void)state;
	gnode_renamed(&table, &root, "f", &root, "g", 0);
	assert_true(gnode_dead(g));
	assert_ptr_equal(gnode_find(&table, &root, "g"), f);
	assert_null(gnode_find(&table, &root, "f"));
	gnode_renamed(&table, &root, "g", &root, "g", 0);
	assert_ptr_equal(gnode_find(&table, &root, "g"), f);
}

static void test_exchange(void **state)
{
	struct gnode *a = have_dir(&root, "a"), *b = have_dir(&root, "b"), *f = have(a, "f", S_IFREG, 1),
		     *d = have_dir(b, "d"), *below = have(d, "x", S_IFREG, 3);

	(void)state;
	assert_int_equal(check(a, "f", b, "d", RENAME_EXCHANGE), 0);
	gnode_renamed(&table, a, "f", b, "d", RENAME_EXCHANGE);
	assert_string_equal(path_of(f, NULL), "b/d");
	assert_string_equal(path_of(d, NULL), "a/f");
	assert_string_equal(path_of(below, NULL), "a/f/x");
	/* Of another depth: the file follows, the link does not. */
	f = have(&root, "f", S_IFREG, 4);
	have(a, "l", S_IFLNK, 5);
	assert_int_equal(check(&root, "f", a, "l", RENAME_EXCHANGE), 0);
	gnode_renamed(&table, &root, "f", a, "l", RENAME_EXCHANGE);
	assert_string_equal(path_of(f, NULL), "a/l");
	assert_null(gnode_find(&table, &root, "f"));
}

static void test_a_forgotten_node_is_free(void **state)
{
	struct gnode *d = have_dir(&root, "d"), *f = have(d, "f", S_IFREG, 1);

	(void)state;
	assert_int_equal(table.nnodes, 2);
	forget(d); /* held by its child */
	assert_int_equal(table.nnodes, 2);
	forget(f);
	loop_once(loop, 0);
	assert_int_equal(table.nnodes, 0);
	assert_null(gnode_find(&table, &root, "d"));
}

/* Forgotten and asked for in one breath, as the kernel does it: used again. */
static void test_a_node_at_its_end_is_found_again(void **state)
{
	struct gnode *f = have(&root, "f", S_IFREG, 1);

	(void)state;
	f->node.lookups = 0;
	cfs_node_ref(&f->node);
	cfs_node_unref(&f->node); /* freed in the loop's next round, unless */
	assert_ptr_equal(have(&root, "f", S_IFREG, 1), f);
	loop_once(loop, 0);
	assert_ptr_equal(gnode_find(&table, &root, "f"), f);
}

static void test_ENAMETOOLONG_deep_paths(void **state)
{
	char name[251];
	struct gnode *d = &root;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	for (int i = 0; i < 16; i++)
		d = have_dir(d, name); /* 16 * 250 + 15 = 4015 */
	assert_int_equal(strlen(path_of(d, NULL)), 4015);
	name[79] = '\0';
	assert_int_equal(strlen(path_of(d, name)), AG_PATH_MAX);
	name[79] = 'n';
	name[80] = '\0';
	assert_string_equal(path_of(d, name), "ENAMETOOLONG");
}

static void test_ENFILE_too_many(void **state)
{
	struct gattr a = { .type = S_IFREG };
	struct gnode *n;
	char name[16];

	(void)state;
	for (unsigned i = 0; i < GTABLE_NODES_MAX; i++) {
		snprintf(name, sizeof(name), "%u", i);
		have(&root, name, S_IFREG, i);
	}
	assert_int_equal(gnode_take(&table, &root, "one more", &a, &test_ops, &n), -ENFILE);
	assert_ptr_equal(have(&root, "77", S_IFREG, 77), gnode_find(&table, &root, "77"));
	forget(gnode_find(&table, &root, "5"));
	assert_int_equal(gnode_take(&table, &root, "one more", &a, &test_ops, &n), 0);
	cfs_node_unref(&n->node);
}

/* Against a plain model: random look-ups, removals and renames; every node's path, and the one rule that links depend
 * on. */
static uint64_t rng = 42;

static unsigned rnd(unsigned n)
{
	rng = rng * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(rng >> 33) % n;
}

static void check_random_node(struct gnode *g)
{
	struct gnode *at = &root;
	char *save = NULL, path[AG_PATH_MAX + 1];
	unsigned parts = 0;

	strcpy(path, path_of(g, NULL));
	for (char *part = strtok_r(path, "/", &save); part; part = strtok_r(NULL, "/", &save), parts++) {
		at = gnode_find(&table, at, part);
		assert_non_null(at);
	}
	assert_ptr_equal(at, g);
	assert_int_equal(parts, g->depth);
}

enum { MANY = 500 };
static struct gnode *known[MANY]; /* alive when last seen */
static unsigned depth[MANY], nknown;

static struct gnode *random_dir(void)
{
	while (nknown && rnd(4)) {
		unsigned i = rnd(nknown);

		if (gnode_dead(known[i])) {
			known[i] = known[--nknown];
			depth[i] = depth[nknown];
		} else if (known[i]->type == S_IFDIR) {
			return known[i];
		}
	}
	return &root;
}

static void test_random_renames_keep_paths_and_depths(void **state)
{
	unsigned checked = 0;

	(void)state;
	for (unsigned step = 0; step < 40000; step++) {
		struct gnode *dir = random_dir(), *to = random_dir();
		char name[2] = { (char)('a' + rnd(5)), 0 }, name2[2] = { (char)('a' + rnd(5)), 0 };
		unsigned flags = rnd(4) ? RENAME_EXCHANGE : 0, what = rnd(100);

		if (what < 60 && nknown < MANY && dir->depth < 6 && !gnode_find(&table, dir, name)) {
			known[nknown] = have(dir, name, rnd(4) ? S_IFDIR : S_IFLNK, 1);
			depth[nknown] = known[nknown]->depth;
			nknown++;
		} else if (what == 60 && dir->depth > 1) {
			gnode_gone(&table, dir, name);
		} else if (what > 60 && gnode_rename_check(&table, dir, name, to, name2, flags) == 0 &&
			   gnode_find(&table, dir, name)) {
			gnode_renamed(&table, dir, name, to, name2, flags);
		}
		for (unsigned i = 0; i < nknown && step % 100 == 0; i++) {
			assert_int_equal(known[i]->depth, depth[i]); /* of directories and links alike */
			if (gnode_dead(known[i]))
				continue;
			check_random_node(known[i]);
			checked++;
		}
	}
	assert_true(checked > 1000 && table.renames > 1000);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_path_has_one_node),
		TEST(test_the_same_guest_inode_elsewhere_is_another_node),
		TEST(test_another_file_is_another_node),
		TEST(test_ENOENT_what_is_gone),
		TEST(test_a_subtree_moves_with_its_directory),
		TEST(test_EXDEV_directories_keep_their_depth),
		TEST(test_EXDEV_while_the_kernel_may_still_take_it_for_a_directory),
		TEST(test_ESTALE_a_source_that_is_not_known),
		TEST(test_EINVAL_into_itself_and_flags),
		TEST(test_a_link_loses_its_node_at_another_depth),
		TEST(test_what_is_renamed_over_is_gone),
		TEST(test_exchange),
		TEST(test_a_forgotten_node_is_free),
		TEST(test_a_node_at_its_end_is_found_again),
		TEST(test_ENAMETOOLONG_deep_paths),
		TEST(test_ENFILE_too_many),
		TEST(test_random_renames_keep_paths_and_depths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
