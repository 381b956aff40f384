/* SPDX-License-Identifier: Apache-2.0 */
/* mount and umount: what a mount's table says, where a view may be mounted, and the whole of it in a mount namespace of
 * the test's own, on a file system that looks like a tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/unit/files.h"
#include "tools/crucible/bind.h"
#include "tools/crucible/command.h"
#include "tools/crucible/fields.h"

static char dir[64]; /* of the test */
static int root;     /* of it, or of what looks like a mount in it */
static char mount_dir[96], at[96];

/* -- the table of mounts ------------------------------------------------------------------------------------------- */

static const char mountinfo[] = "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
				"40 21 0:50 / /crucible rw,nosuid,nodev,noexec - fuse.crucible crucible rw\n"
				"41 21 0:50 /views/agent/tree /mnt/a rw - fuse.crucible crucible rw\n"
				"42 21 0:50 /views/old/tree//deleted /mnt/b rw - fuse.crucible crucible rw\n"
				"43 21 0:50 /run/x/.fs /mnt/c rw - fuse.crucible crucible rw\n"
				"44 21 0:50 /views/a/b/tree /mnt/d rw - fuse.crucible crucible rw\n"
				"45 21 0:50 /views//tree /mnt/e rw - fuse.crucible crucible rw\n"
				"46 21 0:50 /views/agent/tree/run /mnt/f rw - fuse.crucible crucible rw\n"
				"47 21 0:50 /views/agent\\040x/tree /mnt/g rw - fuse.crucible crucible rw\n"
				"48";

static void test_a_view_is_found_by_its_mount(void **state)
{
	static const struct {
		uint64_t id;
		int code;
		const char *view;
	} cases[] = {
		{ 41, 0, "agent" },  { 42, 0, "old" },	  { 40, -EINVAL, "" }, { 43, -EINVAL, "" },
		{ 44, -EINVAL, "" }, { 45, -EINVAL, "" }, { 46, -EINVAL, "" }, { 47, -EINVAL, "" },
		{ 21, -EINVAL, "" }, { 48, -ENOENT, "" }, { 4, -ENOENT, "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char view[SBX_ID_MAX + 1] = "";

		if (bind_parse(mountinfo, cases[i].id, view) != cases[i].code || strcmp(view, cases[i].view) != 0)
			fail_msg("mount %d: \"%s\"", (int)cases[i].id, view);
	}
}

static void test_the_tree_of_a_view_is_found(void **state)
{
	static const char two[] = "40 21 0:50 / /crucible rw - fuse.crucible crucible rw\n"
				  "41 21 0:51 / /mnt/with\\040blank rw - fuse.crucible crucible rw\n"
				  "42 21 0:51 / /other rw - fuse.crucible crucible rw\n"
				  "43 21 0:51 /views/agent/tree /mnt/a rw - fuse.crucible crucible rw\n"
				  "44 21 0:52 /views/agent/tree /mnt/b rw - fuse.crucible crucible rw\n";
	char path[32];

	(void)state;
	assert_int_equal(bind_parse_tree(two, 43, path, sizeof(path)), 0);
	assert_string_equal(path, "/other");
	assert_int_equal(bind_parse_tree(two, 43, path, 3), -ENAMETOOLONG);
	assert_int_equal(bind_parse_tree(two, 44, path, sizeof(path)), -ENOENT);
	assert_int_equal(bind_parse_tree(two, 45, path, sizeof(path)), -ENOENT);
}

/* -- where a view may be mounted ------------------------------------------------------------------------------------
 */

static int enter(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test-crucible-view.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	root = open(dir, O_RDONLY | O_DIRECTORY);
	return root < 0;
}

static int leave(void **state)
{
	char command[128];

	(void)state;
	close(root);
	if (*mount_dir)
		umount2(mount_dir, MNT_DETACH);
	*mount_dir = '\0';
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void assert_refused(const char *name, int code, const char *words)
{
	struct err e = { 0 };
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(bind_open(path, &e), code);
	if (!strstr(e.msg, words) || !strstr(e.msg, path))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, words);
}

static void test_no_link_leads_to_where_it_is_mounted_ELOOP(void **state)
{
	struct err e = { 0 };
	char path[128];
	int fd;

	(void)state;
	assert_int_equal(mkdirat(root, "real", 0755), 0);
	assert_int_equal(mkdirat(root, "real/in", 0755), 0);
	assert_int_equal(symlinkat("real", root, "link"), 0);
	assert_int_equal(mknodat(root, "file", S_IFREG | 0644, 0), 0);
	assert_refused("link", -ELOOP, "realpath");
	assert_refused("link/", -ELOOP, "realpath");
	assert_refused("link/in", -ELOOP, "realpath");
	assert_refused("nothing", -ENOENT, "does not exist");
	assert_refused("file", -ENOTDIR, "no directory");
	snprintf(path, sizeof(path), "%s/real/in/", dir);
	fd = bind_open(path, &e);
	assert_true(fd >= 0);
	close(fd);
}

/* -- the whole of it
 * ---------------------------------------------------------------------------------------------------- */

/* A version, run/, and a view that has its files. */
static void make_tree(int fd)
{
	static const char *const dirs[] = { "run", "views", "views/v", "views/v/tree", "views/v/tree/run" };

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		assert_int_equal(mkdirat(fd, dirs[i], 0755), 0);
	put_file(fd, "version", "0.1.0\n");
	put_file(fd, "views/v/tree/version", "0.1.0\n");
	put_file(fd, "views/v/ttl", "none\n");
	put_file(fd, "views/v/info.json", "{\"id\":\"v\"}\n");
}

/* A tmpfs that looks like a tree, in a namespace from which nothing leads out. */
static bool make_world(void)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return false;
	snprintf(mount_dir, sizeof(mount_dir), "%s/crucible", dir);
	snprintf(at, sizeof(at), "%s/at", dir);
	assert_int_equal(mkdir(mount_dir, 0755), 0);
	assert_int_equal(mkdir(at, 0755), 0);
	if (mount("none", mount_dir, "tmpfs", 0, NULL) < 0)
		return false;
	close(root);
	root = open(mount_dir, O_RDONLY | O_DIRECTORY);
	assert_true(root >= 0);
	make_tree(root);
	return true;
}

/* As main.c runs it; *ret_answer (may be NULL): what -o json gives. */
static int run(const char *const *words, struct err *ret_err, struct json_object **ret_answer)
{
	struct json_object *answer = NULL;
	struct cli c = { .mount.fd = -1, .json = true, .answer = &answer };
	char **argv = (char **)words; /* nothing is written to them */
	int used = 0, argc = 0, r;

	while (argv[argc])
		argc++;
	args_init(&c.args);
	c.cmd = command_find(argc, argv, &used);
	assert_non_null(c.cmd);
	r = args_parse(&c.args, c.cmd->opts, argc - used, argv + used, false, NULL, &c.err);
	if (r == 0 && c.cmd->flags & COMMAND_MOUNT)
		r = mount_open(c.args.text[OPT_MOUNT], &c.mount, &c.err);
	if (r == 0)
		r = c.cmd->run(&c);
	mount_close(&c.mount);
	args_fini(&c.args);
	*ret_err = c.err;
	if (ret_answer)
		*ret_answer = answer;
	else
		json_object_put(answer);
	return r;
}
#define RUN(e, answer, ...) run((const char *const[]){ __VA_ARGS__, NULL }, e, answer)

static bool is_mounted(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/version", at);
	return access(path, F_OK) == 0;
}

static void test_a_view_is_mounted_and_taken_away(void **state)
{
	AUTO_JSON *answer = NULL;
	struct err e = { 0 };
	struct stat st;
	char path[128];

	(void)state;
	if (!make_world())
		skip();
	/* What is wrong is told before anything is done. */
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, at), -EINVAL);
	assert_non_null(strstr(e.msg, "--policy"));
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", "--owner", "root", at), -EINVAL);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", "--owner", "4294967295", at),
			 -EINVAL);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", "--owner", "1:", at), -EINVAL);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "w", at), -ENOENT);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "../v", at), -EINVAL);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--policy", "/nonexistent", at), -ENOENT);
	snprintf(path, sizeof(path), "%s/views/v/tree/run", mount_dir);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", path), -EINVAL);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", dir), -ENOTEMPTY);
	put_file(root, "views/v/status", "expired\n");
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", at), -ESTALE);
	assert_non_null(strstr(e.msg, "add --ttl"));
	put_file(root, "views/v/status", "active\n");
	assert_false(is_mounted());
	assert_file(root, "views/v/ttl", "none\n");

	assert_int_equal(
		RUN(&e, &answer, "mount", "--mount", mount_dir, "--name", "v", "--owner", "12:34", "--ttl", "1.5h", at),
		0);
	assert_string_equal(fields_text(answer, "id"), "v");
	assert_true(is_mounted());
	assert_int_equal(fstatat(root, "views/v", &st, 0), 0);
	assert_int_equal(st.st_uid, 12);
	assert_int_equal(st.st_gid, 34);
	assert_file(root, "views/v/ttl", "5400\n");
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", at),
			 -EINVAL); /* it is a view already */

	/* --keep asks for no daemon; what is not the view's own mount is left alone. */
	snprintf(path, sizeof(path), "%s/run", at);
	assert_int_equal(RUN(&e, NULL, "umount", "--keep", path), -EINVAL);
	assert_int_equal(RUN(&e, NULL, "umount", "--keep", mount_dir), -EINVAL);
	assert_int_equal(RUN(&e, NULL, "umount", "--mount", "/nonexistent", at), -ENOENT);
	assert_non_null(strstr(e.msg, "--keep"));
	assert_true(is_mounted());
	assert_int_equal(RUN(&e, NULL, "umount", "--keep", "--mount", "/nonexistent", at), 0);
	assert_false(is_mounted());
	assert_int_equal(RUN(&e, NULL, "umount", "--keep", at), -EINVAL);
	assert_non_null(strstr(e.msg, "nothing is mounted"));

	/* Only who mounts is told to make the directory. */
	snprintf(path, sizeof(path), "%s/nothing", dir);
	assert_int_equal(RUN(&e, NULL, "umount", "--keep", path), -ENOENT);
	assert_null(strstr(e.msg, "mkdir"));
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", path), -ENOENT);
	assert_non_null(strstr(e.msg, "mkdir"));
}

static void test_a_later_view_of_the_name_stays(void **state)
{
	AUTO_JSON *answer = NULL;
	struct err e = { 0 };

	(void)state;
	if (!make_world())
		skip();
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--name", "v", at), 0);
	assert_int_equal(unlinkat(root, "views/v/tree/version", 0), 0);
	assert_int_equal(unlinkat(root, "views/v/tree/run", AT_REMOVEDIR), 0);
	assert_int_equal(unlinkat(root, "views/v/tree", AT_REMOVEDIR), 0);
	assert_int_equal(mkdirat(root, "views/v/tree", 0755), 0);
	assert_int_equal(RUN(&e, &answer, "umount", "--mount", mount_dir, at), 0);
	assert_string_equal(json_line(answer), "{\"view\":\"v\",\"removed\":false}");
	assert_int_equal(faccessat(root, "views/v/tree", F_OK, 0), 0);
}

/* A view whose directory does not take the policy (there is no file of that name) is removed again. */
static void test_what_fails_leaves_no_view(void **state)
{
	struct err e = { 0 };
	char policy[96];
	FILE *f;

	(void)state;
	if (!make_world())
		skip();
	snprintf(policy, sizeof(policy), "%s/policy", dir);
	f = fopen(policy, "w");
	assert_non_null(f);
	fputs("{\"operations\":[\"read\"]}", f);
	fclose(f);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--policy", policy, "--name", "n", at), -ENOENT);
	assert_int_equal(faccessat(root, "views/n", F_OK, 0), -1);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--policy", policy, "--name", "v", at), -EEXIST);
	assert_int_equal(faccessat(root, "views/v/tree", F_OK, 0), 0);
	f = fopen(policy, "w");
	assert_non_null(f);
	fputs("{\"max_fork\":0}", f);
	fclose(f);
	assert_int_equal(RUN(&e, NULL, "mount", "--mount", mount_dir, "--policy", policy, "--name", "n", at), -EINVAL);
	assert_false(is_mounted());
}

/* -- what is root's ------------------------------------------------------------------------------------------------ */

static void test_who_is_not_root_is_told_a_command_that_is_there(void **state)
{
	struct err e = { 0 };
	uid_t uid = geteuid();

	(void)state;
	if (uid == 0)
		assert_int_equal(seteuid(65534), 0);
	assert_int_equal(RUN(&e, NULL, "profile", "build", "tiny"), -EPERM);
	assert_int_equal(seteuid(uid), 0);
	assert_non_null(strstr(e.msg, "sudo crucible profile build tiny"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_view_is_found_by_its_mount),
		cmocka_unit_test(test_the_tree_of_a_view_is_found),
		cmocka_unit_test_setup_teardown(test_no_link_leads_to_where_it_is_mounted_ELOOP, enter, leave),
		cmocka_unit_test_setup_teardown(test_a_view_is_mounted_and_taken_away, enter, leave),
		cmocka_unit_test_setup_teardown(test_a_later_view_of_the_name_stays, enter, leave),
		cmocka_unit_test_setup_teardown(test_what_fails_leaves_no_view, enter, leave),
		cmocka_unit_test(test_who_is_not_root_is_told_a_command_that_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
