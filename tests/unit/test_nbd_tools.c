/* SPDX-License-Identifier: Apache-2.0 */
/* The block server as QEMU's own client sees it. Skips without qemu-img and qemu-io. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "tests/unit/nbd_rig.h"

#define MIB   (1ull << 20)
#define BYTES (48 * MIB + 4096)

static struct nbd_rig rig;

static bool have_tools(void)
{
	return system("command -v qemu-img qemu-io >/dev/null 2>&1") == 0;
}

/* Runs it, with %s being the server's address of an export, and returns the exit status; what it said is in @said. */
static char said[8192];

static int run(const char *format, const char *name)
{
	char url[192], cmd[1024];
	FILE *p;
	size_t n;
	int status;

	snprintf(url, sizeof(url), "'nbd+unix:///%s?socket=%s'", name, rig.socket);
	snprintf(cmd, sizeof(cmd), "cd %s && { ", rig.dir.path);
	for (const char *f = format; *f; f++) {
		size_t at = strlen(cmd);

		if (f[0] == '%' && f[1] == 's')
			snprintf(cmd + at, sizeof(cmd) - at, "%s", (f++, url));
		else
			snprintf(cmd + at, sizeof(cmd) - at, "%c", *f);
	}
	snprintf(cmd + strlen(cmd), sizeof(cmd) - strlen(cmd), "; } 2>&1");
	p = popen(cmd, "re");
	assert_non_null(p);
	n = fread(said, 1, sizeof(said) - 1, p);
	said[n] = '\0';
	status = pclose(p);
	if (status != 0)
		print_message("%s\n%s", cmd, said);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int setup(void **state)
{
	(void)state;
	nbd_rig_start(&rig, 20 * MIB + 333, NULL);
	nbd_rig_disk(&rig, "m", BYTES, 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	nbd_rig_end(&rig);
	return 0;
}

static void test_info(void **state)
{
	(void)state;
	if (!have_tools())
		skip();
	assert_int_equal(run("timeout 20 qemu-img info --output=json %s", "m"), 0);
	assert_non_null(strstr(said, "\"virtual-size\": 50335744"));
	assert_int_not_equal(run("timeout 20 qemu-img info %s", "none"), 0);
	assert_int_equal(run("timeout 20 qemu-img info %s", "m"), 0);
}

static void test_convert(void **state)
{
	(void)state;
	if (!have_tools())
		skip();
	/* Out: what the base shows; in: another image over it; out again, compared. */
	assert_int_equal(
		run("timeout 60 qemu-img convert -f raw -O raw %s out.raw && cmp -n 20971853 out.raw bases/img", "m"),
		0);
	assert_int_equal(run("head -c 30000000 /dev/urandom > in.raw && truncate -s 40000512 in.raw", "m"), 0);
	assert_int_equal(run("timeout 60 qemu-img convert -n -f raw -O raw in.raw %s", "m"), 0);
	assert_int_equal(
		run("timeout 60 qemu-img convert -f raw -O raw %s out.raw && cmp -n 40000512 out.raw in.raw", "m"), 0);
	assert_int_equal(run("timeout 60 qemu-img compare -f raw -F raw out.raw %s", "m"), 0);
}

static void freeze_it(struct nbd_rig *r, void *arg)
{
	*(int *)arg = disk_freeze(r->d, "m", "s", NULL);
}

static void test_io(void **state)
{
	int r = -1;

	(void)state;
	if (!have_tools())
		skip();
	assert_int_equal(run("timeout 20 qemu-io -f raw -c 'write -P 0x11 4096 64k' -c 'write -f -P 0x22 1000 100' "
			     "-c 'write -z 20k 8k' -c 'write -z -u 40k 8k' -c 'discard 64k 1M' -c flush "
			     "-c 'read -P 0x22 1000 100' -c 'read -P 0x11 4096 16k' -c 'read -P 0 20k 8k' "
			     "-c 'read -P 0 40k 8k' -c 'read -P 0x11 48k 16k' -c 'read -P 0 64k 1M' %s",
			     "m"),
			 0);
	assert_null(strstr(said, "verification failed"));
	nbd_rig_call(&rig, freeze_it, &r);
	assert_int_equal(r, 0);
	assert_int_equal(run("timeout 20 qemu-io -f raw -c 'write -P 0x33 5000 3' -c 'read -P 0x11 5003 8k' "
			     "-c 'read -P 0x33 5000 3' -c 'read -P 0x11 4096 904' %s",
			     "m"),
			 0);
	assert_null(strstr(said, "verification failed"));
	nbd_rig_export(&rig, "s", "s", geteuid());
	assert_int_equal(run("timeout 20 qemu-io -r -f raw -c 'read -P 0x11 4096 16k' %s", "s"), 0);
	assert_null(strstr(said, "verification failed"));
	assert_int_not_equal(run("timeout 20 qemu-io -f raw -c 'write 0 4k' %s", "s"), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_info), T(test_convert), T(test_io) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
