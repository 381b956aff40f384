/* SPDX-License-Identifier: Apache-2.0 */
#include "guestwire.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/wire.h"
#include "cruciblefs/root.h"

struct fw *gw;
struct sandbox *g, *other;

/* -- what fusewire.c wants of the fake domain, and of the tree: the guests instead --------------- */

struct registry *fake_registry_new(struct loop *l)
{
	g = fake_guest_new(l, 1000, 1000);
	other = fake_guest_new(l, 1000, 1000);
	return (struct registry *)g;
}

struct registry *fake_registry_free(struct registry *r)
{
	/* The session is gone. What was open in the guest was released, though perhaps not carried out: */
	fake_guest_go_on(g);
	fake_guest_go_on(other);
	while (g->first || other->first)
		loop_once(g->loop, 0);
	assert_int_equal(fake_guest_open(g), 0);
	fake_views_free(r);
	assert_int_equal(g->refs, 1);
	assert_int_equal(other->refs, 1);
	fake_guest_free(g);
	fake_guest_free(other);
	return NULL;
}

int cfs_root_install(struct cfs_session *cs, struct err *e)
{
	(void)e;
	fake_guest_install(g, other, cs);
	return 0;
}

int gw_setup(void **state)
{
	(void)state;
	gw = fw_new(NULL);
	gw->uid = 1000;
	return 0;
}

int gw_teardown(void **state)
{
	(void)state;
	gw = fw_free(gw);
	return 0;
}

/* -- the guest's own side ------------------------------------------------------------------------ */

const char *gw_path(const char *name)
{
	static char p[4][512];
	static unsigned i;

	i = (i + 1) % 4;
	snprintf(p[i], sizeof(p[i]), "%s/%s", g->root, name);
	return p[i];
}

void gw_put(const char *name, const char *text)
{
	FILE *f = fopen(gw_path(name), "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

void gw_get(const char *name, char *buf, size_t cap)
{
	FILE *f = fopen(gw_path(name), "re");

	assert_non_null(f);
	buf[fread(buf, 1, cap - 1, f)] = '\0';
	fclose(f);
}

/* -- requests ---------------------------------------------------------------------------------------- */

static int walk(const char *path, struct fuse_entry_out *ret)
{
	char full[600];

	snprintf(full, sizeof(full), "fs%s%s", *path ? "/" : "", path);
	return fw_walk(gw, full, ret);
}

uint64_t gw_node(const char *path)
{
	struct fuse_entry_out e;

	assert_int_equal(walk(path, &e), 0);
	return e.nodeid;
}

int gw_error(const char *path)
{
	struct fuse_entry_out e;

	return walk(path, &e);
}

int gw_readlink(uint64_t node, char *buf, size_t cap)
{
	const struct fw_answer *a;
	int r = fw_call(gw, FUSE_READLINK, node, NULL, 0, NULL, 0, &a);

	if (r == 0)
		snprintf(buf, cap, "%.*s", (int)a->len, a->data);
	return r;
}

uint64_t gw_open(uint64_t node, int flags, unsigned *ret_flags)
{
	struct fuse_open_out o;

	assert_int_equal(fw_open(gw, node, flags, &o), 0);
	if (ret_flags)
		*ret_flags = o.open_flags;
	return o.fh;
}

/* -- lies --------------------------------------------------------------------------------------------- */

void gw_say(struct buf *answer, int code)
{
	answer->len = 0;
	assert_int_equal(wire_put_u32(answer, (uint32_t)code), 0);
}

void gw_say_attr(struct buf *answer, uint32_t mode, uint64_t ino, uint64_t size)
{
	struct ag_attr a = { .mode = mode, .nlink = 1, .ino = ino, .size = size };

	assert_int_equal(ag_attr_put(answer, &a), 0);
}
