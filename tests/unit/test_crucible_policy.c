/* SPDX-License-Identifier: Apache-2.0 */
/* policy validate and show: what reaches standard output and error, and the exit code. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/command.h"
#include "tools/crucible/record.h"

static char dir[64];
static int root;
static char *out, *errors; /* of the last call */

static void put_file(const char *path, const char *text)
{
	int fd = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
}

static char *content(int fd)
{
	off_t len = lseek(fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)len + 1);

	assert_true(len >= 0 && text);
	assert_int_equal(pread(fd, text, (size_t)len, 0), len);
	return text;
}

/* Run @fn with @word and with @in as standard input; fills out and errors. */
static int call(command_fn *fn, const char *word, const char *in, bool json, struct err *ret_e)
{
	struct cli c = { .json = json, .mount.fd = root };
	int held[3], use[3];
	int r;

	args_init(&c.args);
	c.args.words = &word;
	c.args.nwords = 1;
	fflush(NULL);
	for (int i = 0; i < 3; i++) {
		held[i] = dup(i);
		use[i] = memfd_create("stream", MFD_CLOEXEC);
		assert_true(held[i] >= 0 && use[i] >= 0);
	}
	assert_int_equal(fd_write_all(use[0], in, strlen(in)), 0);
	lseek(use[0], 0, SEEK_SET);
	for (int i = 0; i < 3; i++)
		dup2(use[i], i);
	r = fn(&c);
	fflush(NULL);
	for (int i = 0; i < 3; i++) {
		dup2(held[i], i);
		close(held[i]);
	}
	free(out);
	free(errors);
	out = content(use[1]);
	errors = content(use[2]);
	for (int i = 0; i < 3; i++)
		close(use[i]);
	*ret_e = c.err;
	return r;
}

static int enter(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/test-crucible-policy.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	root = open(dir, O_RDONLY | O_DIRECTORY);
	return root < 0 || chdir(dir) < 0 ? -1 : 0;
}

static int leave(void **state)
{
	static const char *const made[] = { "good", "bad", "long", "link", "policy.json" };

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(made); i++)
		unlinkat(root, made[i], 0);
	close(root);
	free(out);
	free(errors);
	out = errors = NULL;
	return chdir("/") < 0 || rmdir(dir) < 0 ? -1 : 0;
}

static void test_a_good_one_is_printed_in_its_form(void **state)
{
	static const char form[] =
		"{\n  \"operations\": [ \"read\" ],\n  \"net_allow_max\": [ \"a.example\" ],\n  \"max_fork\": 2\n}\n";
	struct err e;

	(void)state;
	put_file("good", "{\"max_fork\":2,\"net_allow_max\":[\"A.Example.\"],\"operations\":[\"read\"]}");
	assert_int_equal(symlinkat("good", root, "link"), 0);
	assert_int_equal(call(cmd_policy_validate, "good", "", false, &e), 0);
	assert_string_equal(out, form);
	assert_string_equal(errors, "");
	assert_int_equal(call(cmd_policy_validate, "link", "", false, &e), 0);
	assert_string_equal(out, form);
	assert_int_equal(call(cmd_policy_validate, "-", form, false, &e), 0);
	assert_string_equal(out, form);
	assert_int_equal(call(cmd_policy_validate, "good", "", true, &e), 0);
	assert_string_equal(out, "{\"operations\":[\"read\"],\"net_allow_max\":[\"a.example\"],\"max_fork\":2}\n");
}

static void test_a_range_of_another_host_is_taken(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(call(cmd_policy_validate, "-", "{\"net_allow_max\":[\"10.9.0.0/16\"]}", false, &e), 0);
	assert_int_equal(call(cmd_policy_validate, "-", "{\"net_allow_max\":[\"0.0.0.0/0\"]}", false, &e),
			 EXIT_CRUCIBLE);
}

static void test_all_faults_go_to_standard_error(void **state)
{
	struct err e;

	(void)state;
	put_file("bad", "{\"max_fork\":0,\"a\\u001b[31m\":1,\"operations\":[\"fly\"]}");
	for (unsigned json = 0; json < 2; json++) {
		assert_int_equal(call(cmd_policy_validate, "bad", "", json, &e), EXIT_CRUCIBLE);
		assert_string_equal(out, "");
		assert_non_null(strstr(errors, "crucible: bad: max_fork: 0 is out of range; 1 to 65536"));
		assert_non_null(strstr(errors, "\ncrucible: bad: a?[31m: no field of a policy"));
		assert_non_null(strstr(errors, "\ncrucible: bad: operations: \"fly\" is no operation"));
		assert_null(strchr(errors, '\033'));
	}
	assert_int_equal(call(cmd_policy_validate, "-", "{", false, &e), EXIT_CRUCIBLE);
	assert_non_null(strstr(errors, "crucible: standard input: policy: JSON, line 1"));
	assert_int_equal(call(cmd_policy_validate, "-", "", false, &e), EXIT_CRUCIBLE);
	assert_non_null(strstr(errors, "crucible: standard input: policy: JSON"));
}

static void test_what_cannot_be_read(void **state)
{
	struct err e;
	int fd = openat(root, "long", O_WRONLY | O_CREAT, 0644);

	(void)state;
	assert_true(fd >= 0 && ftruncate(fd, (off_t)1 << 40) == 0);
	close(fd);
	assert_int_equal(call(cmd_policy_validate, "long", "", false, &e), EXIT_CRUCIBLE);
	assert_string_equal(errors, "crucible: long: policy: too long; at most 65536 bytes\n");
	assert_int_equal(call(cmd_policy_validate, "none\033", "", false, &e), -ENOENT);
	assert_string_equal(e.msg, "none?: No such file or directory");
	assert_int_equal(call(cmd_policy_validate, ".", "", false, &e), -EISDIR);
	assert_string_equal(e.msg, ".: Is a directory");
}

static void test_show(void **state)
{
	static const char json[] =
		"{\"operations\":[\"create\",\"read\"],\"net_allow_max\":[],\"allow_profiles\":[\"python\",\"base\"],"
		"\"max_sandboxes\":8,\"later\":\"x\\u001by\"}\n";
	struct err e;

	(void)state;
	assert_int_equal(call(cmd_policy_show, "", "", false, &e), -ENOENT);
	assert_string_equal(e.msg, "policy.json: No such file or directory");
	put_file("policy.json", json);
	assert_int_equal(call(cmd_policy_show, "", "", true, &e), 0);
	assert_string_equal(out, json);
	assert_int_equal(call(cmd_policy_show, "", "", false, &e), 0);
	assert_string_equal(out, "operations       create read\n"
				 "net_allow_max    none\n"
				 "allow_profiles   python base\n"
				 "allow_images     any\n"
				 "max_sandboxes    8\n"
				 "max_fork         no limit\n"
				 "max_timeout_s    no limit\n"
				 "max_vcpus        no limit\n"
				 "max_memory_mib   no limit\n"
				 "max_disk_mib     no limit\n"
				 "max_snapshots    no limit\n"
				 "later            x?y\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_good_one_is_printed_in_its_form, enter, leave),
		cmocka_unit_test_setup_teardown(test_a_range_of_another_host_is_taken, enter, leave),
		cmocka_unit_test_setup_teardown(test_all_faults_go_to_standard_error, enter, leave),
		cmocka_unit_test_setup_teardown(test_what_cannot_be_read, enter, leave),
		cmocka_unit_test_setup_teardown(test_show, enter, leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
