/* SPDX-License-Identifier: Apache-2.0 */
/* `import`, driven through the real agent: tar streams made by hand, block by block. */
#include "test_agent_harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define BLOCK 512

static struct host *host;
static struct buf tar;

static int setup(void **state)
{
	int r = agent_setup(state);

	host = *state;
	buf_init(&tar, 16 << 20);
	return r;
}

static int teardown(void **state)
{
	buf_fini(&tar);
	return agent_teardown(state);
}

static void add_entry(const char *name, char type, const char *link, unsigned mode, const void *data, size_t len)
{
	static const uint8_t zeros[BLOCK];
	char h[BLOCK] = { 0 };
	unsigned sum = 0;

	snprintf(h, 100, "%s", name);
	snprintf(h + 100, 8, "%07o", mode);
	snprintf(h + 108, 8, "%07o", (unsigned)geteuid());
	snprintf(h + 116, 8, "%07o", (unsigned)getegid());
	snprintf(h + 124, 12, "%011zo", len);
	snprintf(h + 136, 12, "%011o", 1234567890u);
	h[156] = type;
	if (link)
		snprintf(h + 157, 100, "%s", link);
	memcpy(h + 257,
	       "ustar\0"
	       "00",
	       8);
	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < BLOCK; i++)
		sum += (uint8_t)h[i];
	snprintf(h + 148, 8, "%06o", sum);
	assert_int_equal(buf_add(&tar, h, BLOCK), 0);
	assert_int_equal(buf_add(&tar, data, len), 0);
	assert_int_equal(buf_add(&tar, zeros, (BLOCK - len % BLOCK) % BLOCK), 0);
}

static struct cmd *run_import(bool end)
{
	static const uint8_t zeros[2 * BLOCK];
	struct cmd *c = cmd_open(host, "{\"argv\":[\"//import\"],\"stdin\":true}");

	if (end)
		assert_int_equal(buf_add(&tar, zeros, sizeof(zeros)), 0);
	cmd_write(host, c, AG_STDIN, tar.data, tar.len, true);
	cmd_wait(host, c);
	return c;
}

static const char *at(const char *name)
{
	static char path[2][256];
	static int n;
	char *p = path[n++ % 2];

	snprintf(p, sizeof(path[0]), "%s/%s", host->root, name);
	return p;
}

static void assert_content(const char *name, const char *want)
{
	char *text;

	assert_int_equal(fd_slurp(AT_FDCWD, at(name), 1 << 20, &text, NULL), 0);
	assert_string_equal(text, want);
	free(text);
}

static void unpacks_files_links_and_modes(void **state)
{
	struct cmd *c;
	struct stat st;
	char link[64];

	(void)state;
	add_entry("./", '5', NULL, 0755, NULL, 0);
	add_entry("./d/", '5', NULL, 01750, NULL, 0);
	add_entry("./d/f", '0', NULL, 04711, "hello", 5);
	add_entry("/abs", '0', NULL, 0600, "abs", 3); /* the leading slash goes */
	add_entry("d/l", '2', "../abs", 0777, NULL, 0);
	add_entry("d/h", '1', "./d/f", 0711, NULL, 0);
	add_entry("deep/er/f", '0', NULL, 0644, "x", 1); /* parents are made */
	c = run_import(true);
	assert_string_equal(cmd_err(c), "");
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_content("d/f", "hello");
	assert_content("abs", "abs");
	assert_content("deep/er/f", "x");
	assert_int_equal(stat(at("d"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 01750);
	assert_int_equal(st.st_mtim.tv_sec, 1234567890);
	assert_int_equal(stat(at("d/f"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 04711);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(st.st_mtim.tv_sec, 1234567890);
	assert_int_equal(readlink(at("d/l"), link, sizeof(link)), 6);
}

/* Links lead on inside of the root only: those that were there, and those that the stream itself made. */
static void links_never_lead_out(void **state)
{
	char outside[] = "/tmp/agent-outside-XXXXXX", name[64];
	struct cmd *c;

	(void)state;
	assert_non_null(mkdtemp(outside));
	add_entry("evil", '2', outside, 0777, NULL, 0);
	add_entry("evil/file", '0', NULL, 0644, "x", 1);
	add_entry("up", '2', "../../../..", 0777, NULL, 0);
	add_entry("up/file", '0', NULL, 0644, "y", 1);
	add_entry("loop", '2', "loop", 0777, NULL, 0);
	add_entry("loop/file", '0', NULL, 0644, "w", 1);
	add_entry("good", '0', NULL, 0644, "z", 1);
	c = run_import(true);
	assert_int_equal(cmd_int(c, "exit_code"), 1);
	assert_non_null(strstr(cmd_err(c), "import: loop/file: "));
	snprintf(name, sizeof(name), "%s/file", outside);
	assert_int_equal(access(name, F_OK), -1);
	assert_content(name + 1, "x"); /* the place of that name, below the root */
	assert_content("file", "y");
	assert_content("good", "z");
	rmdir(outside);
}

static void directories_behind_links_are_kept(void **state)
{
	char link[64];
	struct cmd *c;

	(void)state;
	assert_int_equal(mkdir(at("usr"), 0755), 0);
	assert_int_equal(mkdir(at("usr/bin"), 0700), 0);
	assert_int_equal(symlink("usr/bin", at("bin")), 0);
	assert_int_equal(symlink("/usr", at("absolute")), 0);
	add_entry("./bin/", '5', NULL, 0755, NULL, 0);
	add_entry("./bin/tool", '0', NULL, 0755, "tool", 4);
	add_entry("absolute/lib/x", '0', NULL, 0644, "lib", 3);
	add_entry("bin/same", '1', "bin/tool", 0755, NULL, 0);
	c = run_import(true);
	assert_string_equal(cmd_err(c), "");
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_int_equal(readlink(at("bin"), link, sizeof(link)), 7);
	assert_content("usr/bin/tool", "tool");
	assert_content("usr/bin/same", "tool");
	assert_content("usr/lib/x", "lib");
}

static void dots_are_refused(void **state)
{
	struct cmd *c;

	(void)state;
	add_entry("../escaped", '0', NULL, 0644, "x", 1);
	add_entry("a/../../escaped2", '0', NULL, 0644, "x", 1);
	add_entry("good", '0', NULL, 0644, "y", 1);
	c = run_import(true);
	assert_int_equal(cmd_int(c, "exit_code"), 1);
	assert_non_null(strstr(cmd_err(c), "../escaped"));
	assert_content("good", "y");
	assert_int_equal(access("/tmp/escaped", F_OK), -1);
	assert_int_equal(access("/tmp/escaped2", F_OK), -1);
}

static void existing_files_are_replaced(void **state)
{
	struct cmd *c;
	FILE *f = fopen(at("f"), "we");

	(void)state;
	assert_non_null(f);
	fputs("a longer old text", f);
	fclose(f);
	assert_int_equal(mkdir(at("d"), 0700), 0);
	add_entry("f", '0', NULL, 0644, "new", 3);
	add_entry("d/", '5', NULL, 0755, NULL, 0);
	c = run_import(true);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_content("f", "new");
}

static void damaged_streams_exit_2(void **state)
{
	static char noise[4000];
	struct cmd *c;

	(void)state;
	c = run_import(false);
	assert_int_equal(cmd_int(c, "exit_code"), 2);
	assert_string_equal(cmd_err(c), "import: this is not a tar stream\n");
	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (char)(i * 2654435761u >> 9);
	buf_add(&tar, noise, sizeof(noise));
	c = run_import(false);
	assert_int_equal(cmd_int(c, "exit_code"), 2);
	tar.len = 0;
	add_entry("cut", '0', NULL, 0644, noise, sizeof(noise));
	tar.len -= 2000;
	c = run_import(false);
	assert_int_equal(cmd_int(c, "exit_code"), 2);
	assert_non_null(strstr(cmd_err(c), "import: cut: "));
}

static void names_that_are_no_ascii(void **state)
{
	char record[64];
	struct cmd *c;

	(void)state;
	add_entry("gr\xc3\xbc\xc3\x9f", '0', NULL, 0644, "1", 1);
	add_entry("latin-\xe9", '0', NULL, 0644, "2", 1);
	snprintf(record, sizeof(record), "22 path=p\xc3\xa4x-\xe2\x82\xac-name\n");
	assert_int_equal(strlen(record), 22);
	add_entry("PaxHeader", 'x', NULL, 0644, record, strlen(record));
	add_entry("short", '0', NULL, 0644, "3", 1);
	c = run_import(true);
	assert_string_equal(cmd_err(c), "");
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	assert_content("gr\xc3\xbc\xc3\x9f", "1");
	assert_content("latin-\xe9", "2");
	assert_content("p\xc3\xa4x-\xe2\x82\xac-name", "3");
}

static void ten_megabytes(void **state)
{
	size_t len = 10 << 20;
	uint8_t *data = malloc(len), *back = malloc(len);
	struct cmd *c;
	int fd;

	(void)state;
	assert_true(data && back);
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 17);
	add_entry("big", '0', NULL, 0644, data, len);
	c = run_import(true);
	assert_int_equal(cmd_int(c, "exit_code"), 0);
	fd = open(at("big"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(fd_read_all(fd, back, len), 0);
	close(fd);
	assert_memory_equal(data, back, len);
	free(data);
	free(back);
}

#define WITH_AGENT(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_AGENT(unpacks_files_links_and_modes),     WITH_AGENT(links_never_lead_out),
		WITH_AGENT(directories_behind_links_are_kept), WITH_AGENT(dots_are_refused),
		WITH_AGENT(existing_files_are_replaced),       WITH_AGENT(damaged_streams_exit_2),
		WITH_AGENT(names_that_are_no_ascii),	       WITH_AGENT(ten_megabytes),
	};

	return tests_end(cmocka_run_group_tests(tests, NULL, NULL));
}
