/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "cruciblefs/domain/config.h"

static int load(struct config *c, const char *text, struct err *e)
{
	char path[] = "/tmp/crucible-test-config-XXXXXX";
	int fd = mkstemp(path), r;

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
	config_defaults(c);
	*e = (struct err){ 0 };
	r = config_load(c, path, e);
	unlink(path);
	return r;
}

static void test_a_file_is_read(void **state)
{
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(
		load(&c,
		     "# words\n\n mount = /srv/c/ \nstore=/srv/s\nmax_sandboxes = 7\naccel = tcg\nlog_level=debug\n",
		     &e),
		0);
	assert_string_equal(c.mount, "/srv/c");
	assert_string_equal(c.store, "/srv/s");
	assert_int_equal(c.max_sandboxes, 7);
	assert_int_equal(c.accel, CONFIG_ACCEL_TCG);
	assert_int_equal(c.log_level, LOG_L_DEBUG);
	assert_int_equal(config_finish(&c, &e), 0);
	assert_memory_equal(c.cgroup, "crucible-", 9);
}

static void test_EINVAL_names_file_line_and_way_out(void **state)
{
	static const struct {
		const char *text, *words;
	} bad[] = {
		{ "mount = /a\nnonsense\n", ":2: not \"key = value\"" },
		{ "colour = red\n", "\"colour\" is no setting" },
		{ "store = relative\n", "is not an absolute path" },
		{ "max_sandboxes = 0\n", "is not a number from 1 to 4096" },
		{ "max_sandboxes = -1\n", "is not a number" },
		{ "max_sandboxes = 1x\n", "is not a number" },
		{ "max_sandboxes = 99999999999999999999\n", "is not a number" },
		{ "accel = gpu\n", "none of auto, tcg, kvm" },
		{ "log_level = loud\n", "none of err, warn, info, debug" },
		{ "net_upstream = example.com\n", "is not ADDRESS or ADDRESS#PORT" },
		{ "net_upstream = 192.0.2.1#0\n", "a number from 1 to 65535" },
		{ "net_upstream = 192.0.2.1#5x\n", "a number from 1 to 65535" },
		{ "net_upstream = ::1 ::2 ::3 ::4 ::5\n", "more than 4" },
		{ "net_private = 10.0.0.1/8\n", "net_private: " },
		{ "net_private = 10.0.0.0/8 x\n", "net_private: " },
		{ "policy_uid = /etc/p.json\n", "is not a number and the absolute path" },
		{ "policy_uid = 1001\n", "is not a number and the absolute path" },
		{ "policy_uid = 1001 p.json\n", "is not a number and the absolute path" },
		{ "policy_uid = alice /etc/p.json\n", "is not a number and the absolute path" },
		{ "policy_gid = 1x /etc/p.json\n", "is not a number and the absolute path" },
		{ "policy_gid = -1 /etc/p.json\n", "is not a number and the absolute path" },
		{ "policy_gid = 4294967295 /etc/p.json\n", "is not a number and the absolute path" },
		{ "policy_uid = 5 /p.json\npolicy_uid = 5 /q.json\n", "policy_uid: 5 has /p.json already" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct config c;
		struct err e;

		assert_int_equal(load(&c, bad[i].text, &e), -EINVAL);
		if (!strstr(e.msg, bad[i].words))
			fail_msg("\"%s\" does not say \"%s\"", e.msg, bad[i].words);
		config_fini(&c);
	}
}

static void test_lists_of_networks(void **state)
{
	struct net_cidr ranges[CONFIG_NET_RANGES_MAX];
	size_t n = 0;
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(load(&c, "net_upstream = 192.0.2.1#5353, 2001:db8::1\n", &e), 0);
	assert_string_equal(c.net_upstream, "192.0.2.1#5353\n2001:db8::1\n");
	assert_false(c.net_limited);
	/* What is given later takes the place; a refused one changes nothing. */
	assert_int_equal(config_set(&c, "net_upstream", "::1", &e), 0);
	assert_int_equal(config_set(&c, "net_upstream", "::2 x", &e), -EINVAL);
	assert_string_equal(c.net_upstream, "::1\n");
	/* The most may name what is opened, wherever that stands. */
	assert_int_equal(load(&c, "net_allow_max = 10.1.0.0/16 a.test\nnet_private = 10.0.0.0/8,fd00::/8\n", &e), 0);
	assert_int_equal(config_net_private(&c, ranges, &n, &e), 0);
	assert_int_equal(n, 2);
	assert_int_equal(ranges[1].bits, 8);
	assert_true(c.net_limited);
	assert_int_equal(config_finish(&c, &e), 0);
	assert_int_equal(config_set(&c, "net_private", "", &e), 0);
	assert_int_equal(config_finish(&c, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "net_allow_max"));
	assert_int_equal(config_set(&c, "net_allow_max", "", &e), 0);
	assert_int_equal(config_finish(&c, &e), 0);
	assert_true(c.net_limited);
	config_fini(&c);
}

/* -- policies --------------------------------------------------------------------------------------------------------
 */

struct policy_file {
	char path[64];
};

static const char *write_policy(struct policy_file *f, const char *text)
{
	int fd;

	snprintf(f->path, sizeof(f->path), "/tmp/crucible-test-policy-XXXXXX");
	fd = mkstemp(f->path);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	close(fd);
	return f->path;
}

static void test_policies_are_bound_to_uids_and_gids(void **state)
{
	struct policy_file a, b;
	struct config c;
	struct buf faults;
	char text[512];
	struct err e;

	(void)state;
	write_policy(&a, "{\"operations\":[\"create\"]}");
	write_policy(&b, "{\"max_sandboxes\":2}\n");
	snprintf(text, sizeof(text), "policy_uid = 1001 %s\npolicy_gid=1001\t%s\npolicy_uid = 0 %s\n", a.path, b.path,
		 b.path);
	assert_int_equal(load(&c, text, &e), 0);
	assert_null(config_policy(&c, false, 1001)); /* not read yet */
	buf_init(&faults, 4096);
	assert_int_equal(config_read_policies(&c, &faults, &e), 0);
	assert_int_equal(faults.len, 0);
	assert_non_null(config_policy(&c, false, 1001));
	assert_non_null(config_policy(&c, true, 1001));
	assert_ptr_not_equal(config_policy(&c, false, 1001), config_policy(&c, true, 1001));
	assert_non_null(config_policy(&c, false, 0));
	assert_null(config_policy(&c, true, 0));
	assert_null(config_policy(&c, false, 1002));
	/* Which of two it should be, is nothing to guess. */
	snprintf(text, sizeof(text), "1001 %s", b.path);
	assert_int_equal(config_set(&c, "policy_uid", text, &e), -EINVAL);
	assert_non_null(strstr(e.msg, a.path));
	buf_fini(&faults);
	config_fini(&c);
	unlink(a.path);
	unlink(b.path);
}

static void test_EINVAL_of_wrong_policies_tells_all_of_them(void **state)
{
	struct policy_file a, b;
	struct config c;
	struct buf faults;
	char text[512], id[64];
	struct err e;

	(void)state;
	write_policy(&a, "{\"operations\":[\"fly\"],\"max_fork\":0}");
	write_policy(&b, "nothing");
	snprintf(text, sizeof(text), "policy_uid = 7 %s\npolicy_gid = 8 %s\npolicy_gid = 9 /nonexistent/p.json\n",
		 a.path, b.path);
	assert_int_equal(load(&c, text, &e), 0);
	buf_init(&faults, 4096);
	assert_int_equal(config_read_policies(&c, &faults, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "policy_uid 7: "));
	assert_non_null(strstr(e.msg, a.path));
	assert_non_null(strstr(buf_str(&faults), "fly"));
	assert_non_null(strstr(buf_str(&faults), "max_fork"));
	assert_non_null(strstr(buf_str(&faults), b.path));
	assert_non_null(strstr(buf_str(&faults), "/nonexistent/p.json: No such file"));
	config_fini(&c);
	/* What root has not opened is nothing to permit. */
	unlink(a.path);
	write_policy(&a, "{\"net_allow_max\":[\"10.0.0.0/8\"]}");
	snprintf(text, sizeof(text), "policy_uid = 7 %s\n", a.path);
	assert_int_equal(load(&c, text, &e), 0);
	buf_reset(&faults);
	assert_int_equal(config_read_policies(&c, &faults, &e), -EINVAL);
	assert_non_null(strstr(buf_str(&faults), "net_allow_max"));
	config_fini(&c);
	snprintf(text, sizeof(text), "policy_uid = 7 %s\nnet_private = 10.0.0.0/8\n", a.path);
	assert_int_equal(load(&c, text, &e), 0);
	assert_int_equal(config_read_policies(&c, &faults, &e), 0);
	config_fini(&c);
	/* More than there may be. */
	config_defaults(&c);
	for (unsigned i = 0; i < CONFIG_POLICIES_MAX; i++) {
		snprintf(id, sizeof(id), "%u /p.json", i);
		assert_int_equal(config_set(&c, "policy_uid", id, &e), 0);
	}
	assert_int_equal(config_set(&c, "policy_gid", "1 /p.json", &e), -EINVAL);
	assert_non_null(strstr(e.msg, "more than 256"));
	config_fini(&c);
	buf_fini(&faults);
	unlink(a.path);
	unlink(b.path);
}

static void test_net_allow_max_is_a_policy(void **state)
{
	struct policy_set set = { .n = 1 };
	struct config c;
	struct err e;

	(void)state;
	assert_int_equal(load(&c, "net_allow_max = a.test *.b.test:443\n", &e), 0);
	assert_null(c.net_policy);
	assert_int_equal(config_finish(&c, &e), 0);
	set.of[0] = c.net_policy;
	assert_true(policy_set_net_limited(&set));
	assert_true(policy_set_allows(&set, POLICY_CREATE));
	assert_false(policy_set_names_admin(&set));
	/* Any sandbox has none: it is still a limit. */
	assert_int_equal(config_set(&c, "net_allow_max", "", &e), 0);
	assert_int_equal(config_finish(&c, &e), 0);
	set.of[0] = c.net_policy;
	assert_true(policy_set_net_limited(&set));
	config_fini(&c);
	config_defaults(&c);
	assert_int_equal(config_finish(&c, &e), 0);
	assert_null(c.net_policy);
}

static void test_ENOENT_of_a_file_that_is_not_there(void **state)
{
	struct config c;
	struct err e = { 0 };

	(void)state;
	config_defaults(&c);
	assert_int_equal(config_load(&c, "/nonexistent/crucible.conf", &e), -ENOENT);
}

static void test_store_and_mount_may_not_hold_each_other(void **state)
{
	static const struct {
		const char *mount, *store;
		int code;
	} cases[] = {
		{ "/c", "/c/store", -EINVAL }, { "/s/c", "/s", -EINVAL }, { "/c", "/c", -EINVAL }, { "/c", "/cc", 0 },
		{ "/a/c", "/a/s", 0 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct config c;
		struct err e = { 0 };

		config_defaults(&c);
		assert_int_equal(config_set(&c, "mount", cases[i].mount, &e), 0);
		assert_int_equal(config_set(&c, "store", cases[i].store, &e), 0);
		assert_int_equal(config_finish(&c, &e), cases[i].code);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_file_is_read),
		cmocka_unit_test(test_EINVAL_names_file_line_and_way_out),
		cmocka_unit_test(test_lists_of_networks),
		cmocka_unit_test(test_policies_are_bound_to_uids_and_gids),
		cmocka_unit_test(test_EINVAL_of_wrong_policies_tells_all_of_them),
		cmocka_unit_test(test_net_allow_max_is_a_policy),
		cmocka_unit_test(test_ENOENT_of_a_file_that_is_not_there),
		cmocka_unit_test(test_store_and_mount_may_not_hold_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
