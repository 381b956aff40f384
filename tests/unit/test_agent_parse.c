/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's own parsers: users and groups, HELLO. (EXEC's is tested through the agent, test_agent_exec.c.) */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* */
#include <cmocka.h>

#include "agent/identity.h"
#include "agent/spare.h"
#include "agent/users.h"
#include "base/fd.h"

static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\n"
			     "\n"
			     "# a comment\n"
			     "broken\n"
			     "nouid:x::0::/:\n"
			     "huge:x:99999999999:0::/:\n"
			     "minus:x:-1:0::/:\n"
			     "none:x:4294967295:0::/:\n"
			     "ann:x:1000:1001:Ann,,,:/home/ann:/bin/zsh\n"
			     "bare:x:1002:1003\n"
			     "1000:x:7:7::/odd:\n"
			     "last:x:1004:1004::/home/last:/bin/sh";

static void passwd_lines(void **state)
{
	struct user u;

	(void)state;
	assert_int_equal(passwd_find(passwd, "ann", &u), 1);
	assert_int_equal(u.uid, 1000);
	assert_int_equal(u.gid, 1001);
	assert_string_equal(u.home, "/home/ann");
	assert_string_equal(u.shell, "/bin/zsh");
	assert_int_equal(passwd_find(passwd, "1000", &u), 1); /* the first that has the name or the number */
	assert_string_equal(u.name, "ann");
	assert_int_equal(passwd_find(passwd, "bare", &u), 1);
	assert_string_equal(u.home, "/");
	assert_string_equal(u.shell, "/bin/sh");
	assert_int_equal(passwd_find(passwd, "last", &u), 1); /* without a newline */
	assert_int_equal(u.uid, 1004);
	assert_int_equal(passwd_find(passwd, "0", &u), 1);
	assert_string_equal(u.name, "root");
}

static void passwd_lines_that_are_none(void **state)
{
	static const char *const absent[] = { "broken", "nouid", "huge", "minus", "none", "an", "annn", "", "5000" };
	struct user u;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(absent); i++)
		assert_int_equal(passwd_find(passwd, absent[i], &u), 0);
	assert_int_equal(passwd_find("", "root", &u), 0);
}

static void group_lines(void **state)
{
	static const char groups[] =
		"root:x:0:\nadm:x:4:syslog,ann\nstaff:x:50:ann\nanna:x:51:anna,ann1\nown:x:1001:ann\nbad:x:z:ann\n"
		"end:x:60:bob,ann";
	struct user u = { .gid = 1001, .name = "ann" };
	gid_t gid;

	(void)state;
	group_members(groups, &u);
	assert_int_equal(u.ngroups, 3);
	assert_int_equal(u.groups[0], 4);
	assert_int_equal(u.groups[1], 50);
	assert_int_equal(u.groups[2], 60);
	assert_int_equal(group_find(groups, "staff", &gid), 1);
	assert_int_equal(gid, 50);
	assert_int_equal(group_find(groups, "bad", &gid), 0);
	assert_int_equal(group_find(groups, "sta", &gid), 0);
}

static void groups_are_bounded(void **state)
{
	struct user u = { .gid = 1, .name = "ann" };
	char *text = malloc(1 << 16), *p = text;

	(void)state;
	assert_non_null(text);
	for (int i = 0; i < 1000; i++)
		p += sprintf(p, "g%d:x:%d:ann\n", i, 100 + i);
	group_members(text, &u);
	assert_int_equal(u.ngroups, USER_GROUPS_MAX);
	free(text);
}

static void users_of_a_root(void **state)
{
	char root[] = "/tmp/agent-users-XXXXXX", path[64];
	struct err e = { 0 };
	struct user u;
	int fd;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(root));
	fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* No files at all: root and numbers only. */
	assert_int_equal(user_find(fd, NULL, &u, &e), 0);
	assert_int_equal(u.uid, 0);
	assert_string_equal(u.home, "/root");
	assert_int_equal(user_find(fd, "1234", &u, &e), 0);
	assert_int_equal(u.uid, 1234);
	assert_int_equal(u.gid, 0);
	assert_string_equal(u.home, "/");
	assert_int_equal(user_find(fd, "ann", &u, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "user ann: not in the guest's /etc/passwd"));
	assert_int_equal(user_find(fd, ":x", &u, &e), -EINVAL);
	assert_int_equal(user_find(fd, "ann:", &u, &e), -EINVAL);
	/* A FIFO in its place is neither waited for nor read. */
	snprintf(path, sizeof(path), "%s/etc", root);
	mkdir(path, 0755);
	strcat(path, "/passwd");
	assert_int_equal(mkfifo(path, 0644), 0);
	assert_int_equal(user_find(fd, NULL, &u, &e), -EINVAL);
	unlink(path);
	/* Absolute links stay inside. */
	assert_int_equal(symlink("/etc/real", path), 0);
	snprintf(path, sizeof(path), "%s/etc/real", root);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(passwd, f);
	fclose(f);
	assert_int_equal(user_find(fd, "ann:77", &u, &e), 0);
	assert_int_equal(u.uid, 1000);
	assert_int_equal(u.gid, 77);
	assert_int_equal(u.ngroups, 0);
	unlink(path);
	snprintf(path, sizeof(path), "%s/etc/passwd", root);
	unlink(path);
	snprintf(path, sizeof(path), "%s/etc", root);
	rmdir(path);
	rmdir(root);
	close(fd);
}

static int parse(const char *json, struct hello *h, struct err *e)
{
	return hello_parse(json, strlen(json), h, e);
}

static void hello_of_a_host(void **state)
{
	struct err e = { 0 };
	struct hello h;

	(void)state;
	assert_int_equal(
		parse("{\"version_min\":1,\"version_max\":2,\"epoch\":18446744073709551615,\"wall_ns\":1700000000000000000,"
		      "\"entropy\":\"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eFF\",\"hostname\":\"a-1\","
		      "\"instance\":\"01234567-89AB-cdef-0123-456789abcdef\",\"root_mib\":8192,\"memory_bytes\":1000,"
		      "\"cpu_percent\":250,\"pids\":10,\"future\":[1]}",
		      &h, &e),
		0);
	assert_int_equal(h.version_max, 2);
	assert_true(h.epoch == UINT64_MAX);
	assert_int_equal(h.entropy_len, 32);
	assert_int_equal(h.entropy[31], 0xff);
	assert_string_equal(h.hostname, "a-1");
	assert_string_equal(h.instance, "01234567-89ab-cdef-0123-456789abcdef");
	assert_int_equal(h.root_mib, 8192);
	assert_int_equal(h.cpu_percent, 250);
	assert_int_equal(parse("{}", &h, &e), 0);
	assert_int_equal(h.entropy_len, 0);
}

static void hello_that_is_none_EINVAL(void **state)
{
	static const char *const bad[] = {
		"[]",
		"{\"epoch\":-1}",
		"{\"epoch\":\"1\"}",
		"{\"entropy\":\"0\"}",
		"{\"entropy\":\"0g\"}",
		"{\"entropy\":\"000000000000000000000000000000000000000000000000000000000000000000\"}",
		"{\"hostname\":\"a b\"}",
		"{\"hostname\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
		"{\"instance\":\"01234567-89ab-cdef-0123-456789abcde\"}",
		"{\"instance\":\"01234567-89ab-cdef-0123-456789abcdef0\"}",
		"{\"instance\":\"../../../../../../../../../etc/passwd\"}",
		"{\"cpu_percent\":1000001}",
		"{\"wall_ns\":9223372036854775808}",
	};
	struct err e = { 0 };
	struct hello h;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(parse(bad[i], &h, &e), -EINVAL);
}

#define FORK  "\"fork\":\"01234567-89AB-cdef-0123-456789abcdef\""
#define ID    "\"machine_id\":\"0123456789abcdefABCDEF0123456789\""
#define CLONE "{\"clone\":{" FORK ",\"parent\":\"s \\u00e9\"," ID ",\"future\":1}"
#define REST  "\"wall_ns\":1,\"entropy\":\"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\""

static void hello_of_a_fork(void **state)
{
	struct err e = { 0 };
	struct hello h;

	(void)state;
	assert_int_equal(parse(CLONE "," REST "}", &h, &e), 0);
	assert_true(h.clone);
	assert_string_equal(h.fork, "01234567-89ab-cdef-0123-456789abcdef");
	assert_string_equal(h.machine_id, "0123456789abcdefabcdef0123456789");
	assert_string_equal(h.parent, "s \xc3\xa9");
	assert_int_equal(parse("{" REST "}", &h, &e), 0);
	assert_false(h.clone);
}

/* What a fork cannot do without, absent or wrong. */
static void hello_of_no_fork_EINVAL(void **state)
{
	static const struct {
		const char *json, *words;
	} bad[] = {
		{ "{\"clone\":true}", "clone: " },
		{ "{\"clone\":{" FORK "}," REST "}", "clone: machine_id: not 32 hex digits" },
		{ "{\"clone\":{" ID "}," REST "}", "clone: fork: not a uuid" },
		{ "{\"clone\":{\"fork\":7," ID "}," REST "}", "clone: fork: " },
		{ "{\"clone\":{" FORK ",\"machine_id\":\"0123456789abcdefABCDEF012345678-\"}," REST "}", "not 32 hex" },
		{ "{\"clone\":{" FORK ",\"machine_id\":\"0123456789abcdefABCDEF01234567890\"}," REST "}",
		  "not 32 hex" },
		{ CLONE "}", "clone: needs wall_ns and 32 bytes of entropy" },
		{ CLONE ",\"wall_ns\":1,\"entropy\":\"00\"}", "clone: needs wall_ns and 32 bytes of entropy" },
	};
	char parent[400], name[PARENT_MAX + 2];
	struct err e = { 0 };
	struct hello h;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		assert_int_equal(parse(bad[i].json, &h, &e), -EINVAL);
		if (!strstr(e.msg, bad[i].words))
			fail_msg("\"%s\" does not say \"%s\"", e.msg, bad[i].words);
	}
	memset(name, 'p', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	snprintf(parent, sizeof(parent), "{\"clone\":{" FORK "," ID ",\"parent\":\"%s\"}}", name);
	assert_int_equal(parse(parent, &h, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "clone: parent: at most 255 bytes"));
}

/* A zone can spare what is free beyond its watermark and what it keeps from those who could take from a higher one. */
static void test_spare_pages(void **state)
{
	char text[] =
		"Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 62\n  pages free     3840\n        boost    0\n"
		"        min      66\n        low      82\n        high     98\n        spanned  4095\n"
		"        protection: (0, 2963, 3907, 3907, 3907)\n  pagesets\n"
		"    cpu: 0\n              count: 7\n              high:  999999\n              batch: 1\n"
		"Node 0, zone    DMA32\n  pages free     500000\n        high     1000\n        high     x\n"
		"        protection: (0, 0, 944, 944, 100)\n      nr_free_pages 500000\n"
		"Node 0, zone   Normal\n  pages free     2010\n        high     10\n        protection: (0, 0, 0, 0, 0)\n"
		"Node 0, zone  Movable\n  pages free     0\n        high     32\n        protection: (0, 0, 0, 0, 0)\n";
	char odd[] = "  pages free     7\n        protection: (\n        protection: (x, 5\n";
	char nothing[] = "";

	(void)state;
	assert_int_equal(spare_pages(text), 500000 - 1000 - 944 + 2000);
	assert_int_equal(spare_pages(odd), 7);
	assert_int_equal(spare_pages(nothing), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spare_pages),
		cmocka_unit_test(passwd_lines),
		cmocka_unit_test(passwd_lines_that_are_none),
		cmocka_unit_test(group_lines),
		cmocka_unit_test(groups_are_bounded),
		cmocka_unit_test(users_of_a_root),
		cmocka_unit_test(hello_of_a_host),
		cmocka_unit_test(hello_that_is_none_EINVAL),
		cmocka_unit_test(hello_of_a_fork),
		cmocka_unit_test(hello_of_no_fork_EINVAL),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
