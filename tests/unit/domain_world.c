/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
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
#include <cmocka.h>
#include "base/fd.h"
#include "cruciblefs/domain/snapshot_priv.h"
#include "tests/unit/domain_world.h"

const struct cfs_who root_user = { .uid = 0, .gid = 0 }, alice = { .uid = 1001, .gid = 1001 };

/* -- the clock of the domain; the loop's own is not this one ------------------------------------------------- */

#define SHIFT_NS 120000000000ull /* longer than any delay */

static bool without_delays;

uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);

uint64_t __wrap_now_ns(void)
{
	return __real_now_ns() - (without_delays ? SHIFT_NS : 0);
}

void no_delays(bool on)
{
	without_delays = on;
}

uint64_t real_ns(void)
{
	return __real_now_ns();
}

/* -- the world ---------------------------------------------------------------------------------------------- */

void put(struct world *w, const char *path, const char *text)
{
	assert_int_equal(fd_replace(w->store_fd, path, text, strlen(text), 0644, false), 0);
}

void bring_up(struct world *w)
{
	bring_up_with(w, NULL);
}

void bring_up_with(struct world *w, const char *machine)
{
	uint8_t room[64];
	struct buf list = { .data = room, .cap = sizeof(room) - 1, .max = sizeof(room) - 1 };

	struct err e = { 0 };

	assert_int_equal(loop_new(&w->loop), 0);
	assert_int_equal(pool_new(w->loop, 2, 64, &w->pool), 0);
	w->fake.loop = fakes.loop = w->loop;
	w->launcher = fake_launcher_new(&w->fake);
	assert_int_equal(registry_new(w->loop, &w->cfg, w->pool, w->store_fd, &w->engine, &w->reg, &e), 0);
	wire_put_u32(&list, machine != NULL);
	if (machine)
		wire_put_str(&list, machine);
	if (registry_begin(w->reg, w->launcher, list.data, list.len, &e) < 0)
		fail_msg("the daemon's beginning: %s", e.msg);
	for (int i = 0; i < 5; i++)
		loop_once(w->loop, 0);
}

void bring_down(struct world *w)
{
	fd_close(&w->fake.box_fd);
	fd_close(&w->fake.older_box_fd);
	w->launcher = launcher_free(w->launcher);
	w->reg = registry_free(w->reg);
	w->pool = pool_free(w->pool);
	w->loop = loop_free(w->loop);
}

int world_setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e = { 0 };

	no_delays(false);
	ask_deadline_ns = 10 * SHIFT_NS; /* it does not pass by no_delays() */
	fakes_reset(NULL);

	snprintf(w->dir, sizeof(w->dir), "/tmp/crucible-test-domain-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	config_defaults(&w->cfg);
	config_set(&w->cfg, "store", w->dir, &e);
	config_set(&w->cfg, "accel", "tcg", &e);
	config_set(&w->cfg, "max_sandboxes_per_uid", "3", &e);
	config_set(&w->cfg, "memory_floor_mib", "0", &e);
	config_set(&w->cfg, "disk_floor_mib", "0", &e);
	config_set(&w->cfg, "warm_size", "0", &e); /* their own tests switch them on */
	config_set(&w->cfg, "overcommit_percent", "1000", &e);
	config_set(&w->cfg, "prepare", "0", &e);
	config_set(&w->cfg, "pool_size", "0", &e);
	snprintf(w->engine.name, sizeof(w->engine.name), "qemu");
	snprintf(w->engine.version, sizeof(w->engine.version), "7.2.22");
	w->store_fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(w->store_fd >= 0);
	static const char *const dirs[] = { "run",	"state",	 "boot",	 "boot/b1",
					    "profiles", "profiles/base", "profiles/half" };
	for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
		assert_int_equal(mkdirat(w->store_fd, dirs[i], 0755), 0);
	put(w, "boot/b1/vmlinux", "k");
	put(w, "boot/b1/initramfs", "i");
	put(w, "profiles/base/root.img", "image");
	put(w, "profiles/base/info.json", "{\"name\":\"base\",\"bootid\":\"b1\",\"base\":\"base.img\"}");
	put(w, "profiles/half/root.img", "image");
	put(w, "profiles/half/info.json", "{\"name\":\"half\",\"bootid\":\"gone\",\"base\":\"half.img\"}");
	bring_up(w);
	*state = w;
	return 0;
}

int world_teardown(void **state)
{
	struct world *w = *state;
	char cmd[128];

	bring_down(w);
	fakes_reset(NULL);
	close(w->store_fd);
	config_fini(&w->cfg);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", w->dir);
	assert_int_equal(system(cmd), 0);
	free(w);
	return 0;
}

void spin(struct world *w)
{
	for (int i = 0; i < 40; i++) {
		loop_once(w->loop, 0);
		fake_boxes_serve();
	}
}

void boxes_play(struct world *w)
{
	w->fake.on_box = fake_box_add;
	w->fake.on_kill = fake_box_kill;
}

size_t count_entries(struct world *w, const char *path)
{
	int fd = openat(w->store_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;
	size_t n = 0;

	assert_non_null(d);
	while ((ent = readdir(d)))
		n += strcmp(ent->d_name, ".") && strcmp(ent->d_name, "..");
	closedir(d);
	return n;
}
