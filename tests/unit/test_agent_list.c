/* SPDX-License-Identifier: Apache-2.0 */
/* `//list`, driven through the real agent. */
#include "test_agent_harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"

static struct host *host;
static char *saved; /* the list as it was */

static int setup(void **state)
{
	int r = agent_setup(state);

	host = *state;
	return r;
}

static int teardown(void **state)
{
	free(saved);
	saved = NULL;
	return agent_teardown(state);
}

static const char *at(const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", host->root, name);
	return path;
}

static void put_file(const char *name, size_t len, mode_t mode)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static struct cmd *list_it(void)
{
	struct cmd *c = cmd_open(host, "{\"argv\":[\"//list\"]}");

	cmd_wait(host, c);
	return c;
}

/* The paths alone, one a line: what is behind the sixth blank. The agent's own directory of a test is left out. */
static const char *paths_of(struct cmd *c)
{
	char *p, *line;
	size_t n = 0;

	free(saved);
	p = strdup(cmd_out(c));
	saved = calloc(1, strlen(p) + 1);
	assert_non_null(saved);
	for (char *next = p; (line = strsep(&next, "\n")) && next;) {
		for (int i = 0; i < 6; i++) {
			line = strchr(line, ' ');
			assert_non_null(line++);
		}
		if (strcmp(line, "/run-crucible") != 0)
			n += (size_t)sprintf(saved + n, "%s\n", line);
	}
	free(p);
	return saved;
}

static void assert_line(struct cmd *c, const char *want)
{
	if (!strstr(cmd_out(c), want))
		fail_msg("no line \"%s\" in:\n%s", want, cmd_out(c));
}

static void every_type_and_field(void **state)
{
	const struct timespec times[2] = { { 0, UTIME_OMIT }, { 1234567890, 123456789 } },
			      old[2] = { { 0, 0 }, { -1, 5 } };
	char want[256];
	struct cmd *c;

	(void)state;
	put_file("f", 12345, 04751);
	assert_int_equal(mkdir(at("d"), 0700), 0);
	put_file("d/old", 0, 0640);
	assert_int_equal(symlink("to/where", at("l")), 0);
	assert_int_equal(mkfifo(at("p"), 0600), 0);
	assert_int_equal(utimensat(AT_FDCWD, at("f"), times, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, at("d/old"), old, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, at("l"), times, AT_SYMLINK_NOFOLLOW), 0);
	if (geteuid() == 0) {
		assert_int_equal(mknod(at("c"), S_IFCHR | 0600, makedev(1, 3)), 0);
		assert_int_equal(chown(at("f"), 12, 34), 0);
		assert_int_equal(chmod(at("f"), 04751), 0);
	}
	c = list_it();
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_string_equal(cmd_err(c), "");
	snprintf(want, sizeof(want), "f 4751 %u %u 12345 1234567890123456789 /f\n", geteuid() ? geteuid() : 12,
		 geteuid() ? getegid() : 34);
	assert_line(c, want);
	snprintf(want, sizeof(want), "l 777 %u %u 8 1234567890123456789 /l -> to/where\n", geteuid(), getegid());
	assert_line(c, want);
	snprintf(want, sizeof(want), "f 640 %u %u 0 -999999995 /d/old\n", geteuid(), getegid());
	assert_line(c, want);
	snprintf(want, sizeof(want), "d 700 %u %u ", geteuid(), getegid());
	assert_line(c, want);
	snprintf(want, sizeof(want), "p 600 %u %u 0 ", geteuid(), getegid());
	assert_line(c, want);
	snprintf(want, sizeof(want), "c 600 0 0 %llu ", (unsigned long long)makedev(1, 3));
	if (geteuid() == 0)
		assert_line(c, want);
}

static void sorted_by_the_bytes_of_paths(void **state)
{
	(void)state;
	assert_int_equal(mkdir(at("a"), 0755), 0);
	assert_int_equal(mkdir(at("a/x"), 0755), 0);
	put_file("a/x/1", 0, 0644);
	put_file("a/x!", 0, 0644);
	put_file("a-b", 0, 0644);
	put_file("a.b", 0, 0644);
	put_file("a0", 0, 0644);
	put_file("\xc3\xa9", 0, 0644);
	put_file("Z", 0, 0644);
	assert_string_equal(paths_of(list_it()), "/Z\n/a\n/a-b\n/a.b\n/a/x\n/a/x!\n/a/x/1\n/a0\n/\xc3\xa9\n");
}

static void odd_names_are_escaped(void **state)
{
	(void)state;
	put_file("a\nb\\c > d", 0, 0644);
	assert_int_equal(symlink("x\n -> \\y", at("l -> m")), 0);
	put_file("latin-\xe9", 0, 0644);
	assert_string_equal(paths_of(list_it()), "/a\\nb\\\\c > d\n/l -\\> m -> x\\n -> \\\\y\n/latin-\xe9\n");
}

static void kernel_trees_and_mounts_are_left_out(void **state)
{
	static const char *const dirs[] = { "proc", "sys", "dev", "run", "etc", "etc/run", "mnt" };
	const char *paths;

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		assert_int_equal(mkdir(at(dirs[i]), 0755), 0);
	put_file("run/x", 0, 0644);
	put_file("etc/run/y", 0, 0644);
	paths = paths_of(list_it());
	assert_string_equal(paths, "/etc\n/etc/run\n/etc/run/y\n/mnt\n");
	if (mount("none", at("mnt"), "tmpfs", 0, "size=64k") < 0)
		skip_because("no file system can be mounted");
	put_file("mnt/z", 0, 0644);
	paths = paths_of(list_it());
	assert_int_equal(umount(at("mnt")), 0);
	assert_string_equal(paths, "/etc\n/etc/run\n/etc/run/y\n");
}

/* Deeper than there are descriptors, and than a path is long. */
static void deep_trees_end_in_words(void **state)
{
	char want[] = "has a path that is too long\n";
	struct cmd *c;
	int fd = open(host->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	(void)state;
	for (int i = 0; i < 2100; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "d", 0755), 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		close(fd);
		fd = next;
	}
	close(fd);
	c = list_it();
	assert_int_equal(cmd_int(c, "exit_code"), 1);
	assert_non_null(strstr(cmd_err(c), want));
	assert_string_equal(strstr(cmd_err(c), want), want); /* once */
	assert_true(strlen(cmd_out(c)) > 2040 * 2040);
	/* As nftw() in the tear-down cannot. */
	c = cmd_open(host, "{\"argv\":[\"rm\",\"-rf\",\"%s/d\"]}", host->root);
	cmd_wait(host, c);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
}

static void many_files(void **state)
{
	char name[32], last[32] = "", *line;
	const char *paths;
	size_t n = 0;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "%u", (unsigned)i * 2654435761u);
		put_file(name, 0, 0644);
	}
	paths = paths_of(list_it());
	for (char *p = (char *)paths; (line = strsep(&p, "\n")) && p; n++) {
		assert_true(strcmp(last, line) < 0);
		snprintf(last, sizeof(last), "%s", line);
	}
	assert_int_equal(n, 3000);
}

#define WITH_AGENT(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_AGENT(every_type_and_field),    WITH_AGENT(sorted_by_the_bytes_of_paths),
		WITH_AGENT(odd_names_are_escaped),   WITH_AGENT(kernel_trees_and_mounts_are_left_out),
		WITH_AGENT(deep_trees_end_in_words), WITH_AGENT(many_files),
	};

	return tests_end(cmocka_run_group_tests(tests, NULL, NULL));
}
