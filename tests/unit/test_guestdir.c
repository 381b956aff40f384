/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a guest's directories, request by request, with honest and with lying agents. */
#include "guestwire.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

struct dent {
	char name[256];
	uint64_t off;
	unsigned type;
};

/* One READDIR; the number of entries, or the error. */
static int read_dir(uint64_t n, uint64_t fh, uint64_t off, uint32_t size, struct dent *ret, size_t cap)
{
	struct fuse_read_in in = { .fh = fh, .offset = off, .size = size };
	const struct fw_answer *a;
	int r = fw_call(gw, FUSE_READDIR, n, &in, sizeof(in), NULL, 0, &a), count = 0;

	for (size_t at = 0; r == 0 && at < a->len; count++) {
		const struct fuse_dirent *d = (const void *)(a->data + at);

		assert_true((size_t)count < cap && d->namelen < sizeof(ret->name));
		snprintf(ret[count].name, sizeof(ret->name), "%.*s", (int)d->namelen, d->name);
		ret[count].off = d->off;
		ret[count].type = d->type;
		at += FUSE_DIRENT_SIZE(d);
	}
	return r < 0 ? r : count;
}

static uint64_t open_dir(uint64_t n)
{
	struct fuse_open_in in = { 0 };
	const struct fw_answer *a;

	assert_int_equal(fw_call(gw, FUSE_OPENDIR, n, &in, sizeof(in), NULL, 0, &a), 0);
	return ((const struct fuse_open_out *)(const void *)a->data)->fh;
}

static void close_dir(uint64_t n, uint64_t fh)
{
	struct fuse_release_in in = { .fh = fh };

	assert_int_equal(fw_call(gw, FUSE_RELEASEDIR, n, &in, sizeof(in), NULL, 0, NULL), 0);
}

static void test_a_directory_is_listed(void **state)
{
	char names[256];

	(void)state;
	gw_put("f", "");
	assert_int_equal(mkdir(gw_path("d"), 0755), 0);
	assert_int_equal(symlink("x", gw_path("l")), 0);
	assert_int_equal(mkfifo(gw_path("p"), 0600), 0);
	assert_int_equal(fw_list(gw, "fs", names, sizeof(names)), 0);
	assert_string_equal(names, ". .. d f l p ");
	assert_int_equal(fw_list(gw, "fs/d", names, sizeof(names)), 0);
	assert_string_equal(names, ". .. ");
}

enum { MANY = 3000 };

static void test_a_large_directory_is_listed_once_and_sought_in(void **state)
{
	static struct dent d[MANY + 2], again[MANY + 2];
	static bool seen[MANY];
	uint64_t n = gw_node(""), fh = open_dir(n), off = 0;
	unsigned total = 0;
	char name[16];
	int got;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%d", i);
		gw_put(name, "");
	}
	while ((got = read_dir(n, fh, off, 4096, d + total, MANY + 2 - total)) > 0) {
		total += (unsigned)got;
		off = d[total - 1].off;
	}
	assert_int_equal(got, 0);
	assert_int_equal(total, MANY + 2);
	for (unsigned i = 0; i < total; i++) {
		assert_int_equal(d[i].off, i + 1); /* positions, not the guest's cookies */
		if (i < 2)
			continue;
		assert_false(seen[atoi(d[i].name)]);
		seen[atoi(d[i].name)] = true;
	}
	assert_true(g->calls[AG_FS_READDIR] > 3 && g->calls[AG_FS_READDIR] < 20);
	/* Back to anywhere. */
	for (unsigned i = 0; i < total; i += 611) {
		got = read_dir(n, fh, i, 512, again, MANY);
		assert_true(got > 0);
		for (int k = 0; k < got; k++)
			assert_string_equal(again[k].name, d[i + (unsigned)k].name);
	}
	/* From the start: what is there now. */
	gw_put("one-more", "");
	off = total = 0;
	while ((got = read_dir(n, fh, off, 65536, d, MANY + 2)) > 0) {
		total += (unsigned)got;
		off = d[got - 1].off;
	}
	assert_int_equal(total, MANY + 3);
	close_dir(n, fh);
}

struct lying_dir {
	unsigned batches; /* how many before the end; 0: for ever */
	unsigned entries; /* of each */
	bool bad;	  /* their names */
	bool cut;	  /* the answer */
	uint64_t cookie;
};

static void lie_dir(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer)
{
	struct lying_dir *l = arg;

	(void)payload;
	(void)len;
	if (op != AG_FS_READDIR)
		return;
	gw_say(answer, 0);
	wire_put_u8(answer, l->batches && g->calls[AG_FS_READDIR] >= l->batches);
	for (unsigned i = 0; i < l->entries; i++) {
		wire_put_u64(answer, l->cookie);
		wire_put_str(answer, l->bad ? "../x" : "same");
		gw_say_attr(answer, S_IFDIR | 0777, 5, 0);
	}
	if (l->cut)
		answer->len -= 3;
}

static void test_EIO_directories_that_lie(void **state)
{
	struct lying_dir l = { .entries = 0 };
	static struct dent d[4096];
	uint64_t n = gw_node(""), fh = open_dir(n), off = 0;
	int got, total = 0;

	(void)state;
	g->twist = lie_dir;
	g->twist_arg = &l;
	assert_int_equal(read_dir(n, fh, 0, 4096, d, 4096), -EIO); /* empty, and more to come */
	l = (struct lying_dir){ .entries = 5, .bad = true };
	assert_int_equal(read_dir(n, fh, 0, 4096, d, 4096), 2);	   /* "." and ".." */
	assert_int_equal(read_dir(n, fh, 2, 4096, d, 4096), -EIO); /* only bad names, for ever */
	l = (struct lying_dir){ .entries = 5, .bad = true, .batches = g->calls[AG_FS_READDIR] + 3 };
	assert_int_equal(read_dir(n, fh, 0, 4096, d, 4096), 2);
	assert_int_equal(read_dir(n, fh, 2, 4096, d, 4096), 0);
	l = (struct lying_dir){ .entries = 5, .cut = true, .batches = 1 };
	assert_int_equal(read_dir(n, fh, 0, 4096, d, 4096), -EIO);
	/* One entry a batch, the same cookie for ever: it does end. */
	l = (struct lying_dir){ .entries = 600, .cookie = 7 };
	do {
		got = read_dir(n, fh, off, 65536, d, 4096);
		if (got > 0) {
			assert_true(d[got - 1].off > off);
			off = d[got - 1].off;
			total += got;
		}
	} while (got > 0 && total < 200000);
	assert_true(got > 0);
	close_dir(n, fh);
}

static void test_EOVERFLOW_a_directory_without_end(void **state)
{
	struct lying_dir l = { .entries = 1 };
	static struct dent d[64];
	uint64_t n = gw_node(""), fh = open_dir(n), off = 0;
	int got;

	(void)state;
	g->twist = lie_dir;
	g->twist_arg = &l;
	while ((got = read_dir(n, fh, off, 4096, d, 64)) > 0)
		off = d[got - 1].off;
	assert_int_equal(got, -EOVERFLOW);
	assert_true(off > 65000 && off < 66000);
	close_dir(n, fh);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, gw_setup, gw_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_a_directory_is_listed),
		TEST(test_a_large_directory_is_listed_once_and_sought_in),
		TEST(test_EIO_directories_that_lie),
		TEST(test_EOVERFLOW_a_directory_without_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
