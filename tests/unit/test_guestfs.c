/* SPDX-License-Identifier: Apache-2.0 */
/* Names, attributes and links of a guest, request by request, with honest and with lying agents. */
#include "guestwire.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/wire.h"

static unsigned all_calls(void)
{
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_LEN(g->calls); i++)
		n += g->calls[i];
	return n;
}

/* -- the root ---------------------------------------------------------------------------------------- */

static void test_looking_at_the_root_asks_nobody(void **state)
{
	struct fuse_getxattr_in in = { .size = 0 };
	struct fuse_entry_out e;
	struct fuse_attr a;

	(void)state;
	g->status = SBX_CONFIGURED;
	assert_int_equal(fw_walk(gw, "fs", &e), 0);
	assert_int_equal(e.attr.mode, S_IFDIR | 0700);
	assert_int_equal(e.attr.uid, 1000);
	assert_int_equal(e.entry_valid + e.attr_valid + e.entry_valid_nsec + e.attr_valid_nsec, 0);
	assert_int_equal(fw_getattr(gw, e.nodeid, &a), 0);
	assert_int_equal(a.mode, S_IFDIR | 0700);
	assert_int_equal(fw_call(gw, FUSE_LISTXATTR, e.nodeid, &in, sizeof(in), NULL, 0, NULL), 0);
	assert_int_equal(g->started, 0);
	assert_int_equal(all_calls(), 0);
	assert_int_equal(gw_error("x"), -ENOENT);
	assert_int_equal(g->started, 1);
}

static void test_the_root_keeps_its_mode(void **state)
{
	struct stat st;
	uint64_t root = gw_node("");

	(void)state;
	assert_int_equal(fw_setattr(gw, root, FATTR_MODE, 0, 0, S_IFDIR | 0777, 0), 0);
	assert_int_equal(all_calls(), 0);
	assert_int_equal(fw_setattr(gw, root, FATTR_MODE | FATTR_UID, 0, 0, S_IFDIR | 0777, 33), 0);
	assert_int_equal(stat(g->root, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0755);
	assert_int_equal(st.st_uid, 33);
}

/* -- attributes --------------------------------------------------------------------------------------- */

static void test_everything_is_the_owners(void **state)
{
	struct fuse_attr a;
	struct stat st;
	uint64_t f;

	(void)state;
	gw_put("f", "12345");
	assert_int_equal(chmod(gw_path("f"), 04640), 0);
	assert_int_equal(chown(gw_path("f"), 33, 34), 0);
	assert_int_equal(chmod(gw_path("f"), 04640), 0);
	f = gw_node("f");
	assert_int_equal(fw_getattr(gw, f, &a), 0);
	assert_int_equal(a.mode, S_IFREG | 04640);
	assert_int_equal(a.size, 5);
	assert_int_equal(a.uid, 1000);
	assert_int_equal(a.gid, 1000);
	assert_int_equal(fw_setattr(gw, f, FATTR_UID, 0, 0, 0, 1000), 0); /* the owner: root of the guest */
	assert_int_equal(stat(gw_path("f"), &st), 0);
	assert_int_equal(st.st_uid, 0);
	assert_int_equal(st.st_gid, 34);
	assert_int_equal(fw_setattr(gw, f, FATTR_UID, 0, 0, 0, 77), 0); /* another: as it is */
	assert_int_equal(fw_setattr(gw, f, FATTR_MODE, 0, 0, S_IFREG | 0, 0), 0);
	assert_int_equal(fw_setattr(gw, f, FATTR_SIZE, 0, 2, 0, 0), 0);
	assert_int_equal(stat(gw_path("f"), &st), 0);
	assert_int_equal(st.st_uid, 77);
	assert_int_equal(st.st_mode, S_IFREG);
	assert_int_equal(st.st_size, 2);
}

static void test_inode_numbers_show_hard_links_and_no_loops(void **state)
{
	struct fuse_attr a, b;

	(void)state;
	gw_put("f", "");
	assert_int_equal(link(gw_path("f"), gw_path("h")), 0);
	assert_int_equal(mkdir(gw_path("d"), 0755), 0);
	assert_int_equal(fw_getattr(gw, gw_node("f"), &a), 0);
	assert_int_equal(fw_getattr(gw, gw_node("h"), &b), 0);
	assert_true(a.ino == b.ino && a.nlink == 2);
	/* The numbers of two file systems in the guest collide; a directory in itself is what find(1) calls a loop. */
	a.ino = 0;
	for (int i = 0; i < 2; i++) {
		struct fuse_entry_out e;

		assert_int_equal(fw_walk(gw, i ? "other" : "fs", &e), 0);
		assert_int_not_equal(e.attr.ino, a.ino);
		a = e.attr;
	}
}

static void same_ino(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer)
{
	(void)arg;
	(void)payload;
	(void)len;
	if (op != AG_FS_GETATTR)
		return;
	gw_say(answer, 0);
	gw_say_attr(answer, S_IFDIR | 0755, 1, 0);
}

static void test_directories_of_one_inode_number_differ(void **state)
{
	struct fuse_entry_out a, b, c;

	(void)state;
	g->twist = same_ino;
	assert_int_equal(fw_walk(gw, "fs/sys", &a), 0);
	assert_int_equal(fw_walk(gw, "fs/sys/cgroup", &b), 0);
	assert_int_equal(fw_walk(gw, "fs/proc", &c), 0);
	assert_true(a.attr.ino != b.attr.ino && a.attr.ino != c.attr.ino);
	assert_true(a.nodeid != b.nodeid && a.nodeid != c.nodeid);
}

static void test_EPERM_special_files(void **state)
{
	struct fuse_open_out o;
	struct fuse_attr a;
	char buf[8];
	uint64_t n;

	(void)state;
	assert_int_equal(mkfifo(gw_path("fifo"), 0644), 0);
	assert_int_equal(mknod(gw_path("null"), S_IFCHR | 0666, makedev(1, 3)), 0);
	n = gw_node("null");
	assert_int_equal(fw_getattr(gw, n, &a), 0);
	assert_int_equal(a.mode, S_IFREG | 0666);
	assert_int_equal(a.size, 0);
	assert_int_equal(fw_open(gw, n, O_WRONLY, &o), -EPERM);
	assert_int_equal(fw_open(gw, n, O_RDWR, &o), -EPERM);
	assert_int_equal(fw_open(gw, n, O_RDONLY | O_TRUNC, &o), -EPERM);
	assert_int_equal(fw_setattr(gw, n, FATTR_SIZE, 0, 0, 0, 0), -EPERM);
	n = gw_node("fifo");
	o.fh = gw_open(n, O_RDONLY, NULL);
	assert_int_equal(fw_read(gw, n, o.fh, O_RDONLY, 0, buf, 8), 0);
	assert_int_equal(fw_write(gw, n, o.fh, O_RDONLY, 0, "x", 1), -EPERM);
	fw_release(gw, n, o.fh);
	assert_int_equal(g->calls[AG_FS_OPEN] + g->calls[AG_FS_READ], 0);
	assert_int_equal(fw_mknod(gw, "fs/f2", S_IFIFO | 0600), -EPERM);
	assert_int_equal(fw_mknod(gw, "fs/reg", S_IFREG | 0640), 0);
	assert_int_equal(fw_mknod(gw, "fs/reg", S_IFREG | 0640), -EEXIST);
	assert_int_equal(fw_unlink(gw, "fs/fifo"), 0);
}

/* -- names -------------------------------------------------------------------------------------------- */

static void test_names(void **state)
{
	char buf[4096];

	(void)state;
	assert_int_equal(fw_mkdir(gw, "fs/d"), 0);
	assert_int_equal(fw_mkdir(gw, "fs/d"), -EEXIST);
	assert_int_equal(fw_mkdir(gw, "fs/x/y"), -ENOENT);
	assert_int_equal(fw_symlink(gw, "fs/d/l", "/etc/passwd"), 0);
	assert_int_equal(readlink(gw_path("d/l"), buf, sizeof(buf)), 11); /* stored as it was given */
	assert_int_equal(fw_readlink(gw, "fs/d/l", buf, sizeof(buf)), 0);
	assert_string_equal(buf, "../etc/passwd");
	assert_int_equal(fw_rmdir(gw, "fs/d"), -ENOTEMPTY);
	assert_int_equal(fw_rename(gw, "fs/d/l", "fs/d/m", 0), 0);
	assert_int_equal(fw_unlink(gw, "fs/d/l"), -ENOENT);
	assert_int_equal(fw_unlink(gw, "fs/d/m"), 0);
	assert_int_equal(fw_rmdir(gw, "fs/d"), 0);
	assert_int_equal(gw_error("d"), -ENOENT);
}

static void test_EXDEV_another_guest(void **state)
{
	struct fuse_entry_out to;
	struct fuse_link_in in = { 0 };

	(void)state;
	gw_put("f", "");
	assert_int_equal(fw_rename(gw, "fs/f", "other/f", 0), -EXDEV);
	in.oldnodeid = gw_node("f");
	assert_int_equal(fw_walk(gw, "other", &to), 0);
	assert_int_equal(fw_call(gw, FUSE_LINK, to.nodeid, &in, sizeof(in), "f", 2, NULL), -EXDEV);
}

static void test_EXDEV_another_depth(void **state)
{
	(void)state;
	assert_int_equal(fw_mkdir(gw, "fs/a"), 0);
	assert_int_equal(fw_mkdir(gw, "fs/b"), 0);
	assert_int_equal(fw_mkdir(gw, "fs/a/d"), 0);
	gw_node("a/d"); /* as the kernel does, always */
	assert_int_equal(fw_rename(gw, "fs/a/d", "fs/d", 0), -EXDEV);
	assert_int_equal(g->calls[AG_FS_RENAME], 0);
	assert_int_equal(fw_rename(gw, "fs/a/d", "fs/b/d", 0), 0);
}

static void test_a_hard_link_has_a_node_of_its_own(void **state)
{
	uint64_t root = gw_node(""), f;
	struct fuse_link_in in = { 0 };
	const struct fw_answer *a;
	const struct fuse_entry_out *e;

	(void)state;
	gw_put("f", "x");
	in.oldnodeid = f = gw_node("f");
	assert_int_equal(fw_call(gw, FUSE_LINK, root, &in, sizeof(in), "h", 2, &a), 0);
	e = (const void *)a->data;
	assert_int_not_equal(e->nodeid, f);
	assert_int_equal(e->attr.nlink, 2);
}

static void test_a_replaced_file_has_a_node_of_its_own(void **state)
{
	uint64_t before, fh;
	struct fuse_attr a;
	char buf[8];

	(void)state;
	gw_put("f", "old");
	before = gw_node("f");
	fh = gw_open(before, O_RDONLY, NULL);
	gw_put("new", "newer");
	assert_int_equal(rename(gw_path("new"), gw_path("f")), 0);
	assert_int_not_equal(gw_node("f"), before);
	assert_int_equal(fw_getattr(gw, before, &a), 0); /* fstat: by the handle */
	assert_int_equal(a.size, 3);
	assert_int_equal(a.nlink, 0);
	assert_int_equal(fw_read(gw, before, fh, O_RDONLY, 0, buf, 8), 3);
	assert_int_equal(fw_setattr(gw, before, FATTR_MODE, 0, 0, S_IFREG | 0600, 0), 0);
	fw_release(gw, before, fh);
	assert_int_equal(fw_getattr(gw, before, &a), -ESTALE);
}

static void test_ENOENT_in_a_removed_directory(void **state)
{
	struct fuse_entry_out e;
	uint64_t d;

	(void)state;
	assert_int_equal(fw_mkdir(gw, "fs/d"), 0);
	d = gw_node("d");
	assert_int_equal(fw_rmdir(gw, "fs/d"), 0);
	assert_int_equal(fw_lookup(gw, d, "x", &e), -ENOENT);
	/* Also when the guest has made another of that name. */
	assert_int_equal(mkdir(gw_path("d"), 0755), 0);
	gw_put("d/x", "");
	assert_int_not_equal(gw_node("d"), d);
	assert_int_equal(fw_lookup(gw, d, "x", &e), -ENOENT);
	assert_int_equal(gw_error("d/x"), 0);
}

/* -- links --------------------------------------------------------------------------------------------- */

static void test_links_have_the_length_of_their_text(void **state)
{
	static const struct {
		const char *target, *text;
	} t[] = {
		{ "f", "f" },  { "../f", "../f" },     { "/d/f", "../d/f" }, { "../../../f", "../f" },
		{ "/", ".." }, { "/none", "../none" }, { "./f", "../d/f" },  { "/d/self", "self" },
	};
	char text[64];

	(void)state;
	assert_int_equal(mkdir(gw_path("d"), 0755), 0);
	for (size_t i = 0; i < ARRAY_LEN(t); i++) {
		struct fuse_attr a;
		uint64_t l;

		unlink(gw_path("d/self"));
		assert_int_equal(symlink(t[i].target, gw_path("d/self")), 0);
		l = gw_node("d/self");
		assert_int_equal(gw_readlink(l, text, sizeof(text)), 0);
		assert_string_equal(text, t[i].text);
		assert_int_equal(fw_getattr(gw, l, &a), 0);
		assert_int_equal(a.mode & S_IFMT, S_IFLNK);
		assert_int_equal(a.size, strlen(t[i].text));
	}
}

static void test_ESTALE_a_link_that_went_to_another_depth(void **state)
{
	char text[64];
	uint64_t l, d, moved;
	struct fuse_rename2_in in = { 0 };

	(void)state;
	assert_int_equal(fw_mkdir(gw, "fs/d"), 0);
	assert_int_equal(symlink("../f", gw_path("l")), 0);
	l = gw_node("l");
	in.newdir = d = gw_node("d");
	assert_int_equal(gw_readlink(l, text, sizeof(text)), 0);
	assert_string_equal(text, "f");
	assert_int_equal(fw_call(gw, FUSE_RENAME2, gw_node(""), &in, sizeof(in), "l\0l", 4, NULL), 0);
	/* The node of before may be in the hands of a walk that stands at the old place. */
	assert_int_equal(gw_readlink(l, text, sizeof(text)), -ESTALE);
	moved = gw_node("d/l");
	assert_int_not_equal(moved, l);
	assert_int_equal(gw_readlink(moved, text, sizeof(text)), 0);
	assert_string_equal(text, "../f");
	(void)d;
}

static void test_ESTALE_no_link_any_more(void **state)
{
	char text[64];
	struct fuse_attr a;
	uint64_t l;

	(void)state;
	assert_int_equal(symlink("x", gw_path("l")), 0);
	l = gw_node("l");
	assert_int_equal(unlink(gw_path("l")), 0);
	gw_put("l", "a file");
	assert_int_equal(gw_readlink(l, text, sizeof(text)), -ESTALE);
	assert_int_equal(fw_getattr(gw, l, &a), -ESTALE);
	/* A directory of the path has become a link: the agent follows none. */
	assert_int_equal(mkdir(gw_path("d"), 0755), 0);
	l = gw_node("d");
	assert_int_equal(rmdir(gw_path("d")), 0);
	assert_int_equal(symlink("/", gw_path("d")), 0);
	assert_int_equal(fw_lookup(gw, l, "etc", &(struct fuse_entry_out){ 0 }), -ESTALE);
}

/* -- what waits ---------------------------------------------------------------------------------------------- */

static void test_EBUSY_paused_ENOTCONN_stopped(void **state)
{
	struct fuse_entry_out e;

	(void)state;
	gw_put("f", "");
	g->status = SBX_PAUSED;
	assert_int_equal(gw_error("f"), -EBUSY);
	assert_int_equal(fw_walk(gw, "fs", &e), 0);
	g->status = SBX_STOPPED;
	assert_int_equal(gw_error("f"), -ENOTCONN);
	g->gone = true;
	assert_int_equal(gw_error("f"), -ENOENT);
}

static void test_EBUSY_too_much_outstanding(void **state)
{
	uint64_t root = gw_node(""), u[1000];
	unsigned waiting = 0, refused = 0;

	(void)state;
	g->hung = true;
	for (size_t i = 0; i < ARRAY_LEN(u); i++) {
		u[i] = fw_send(gw, FUSE_LOOKUP, root, "f", 2, NULL, 0);
		fw_run(gw);
	}
	for (size_t i = 0; i < ARRAY_LEN(u); i++) {
		if (fw_answered(gw, u[i])) {
			assert_int_equal(fw_take(gw, u[i], NULL), -EBUSY);
			refused++;
		} else {
			waiting++;
		}
	}
	assert_int_equal(waiting, 960);
	assert_int_equal(refused, 40);
	fake_guest_go_on(g);
	while (cfs_session_parked(gw->cs))
		fw_run(gw);
	assert_int_equal(gw_error("f"), -ENOENT);
}

static void test_ETIMEDOUT_and_those_behind_it(void **state)
{
	uint64_t root = gw_node(""), u;

	(void)state;
	gw_put("f", "");
	g->hung = true;
	u = fw_send(gw, FUSE_LOOKUP, root, "f", 2, NULL, 0);
	fw_run(gw);
	assert_false(fw_answered(gw, u));
	fake_guest_fail(g, -ETIMEDOUT, false);
	fw_run(gw);
	assert_int_equal(fw_take(gw, u, NULL), -ETIMEDOUT);
	assert_int_equal(gw_error("f"), -ETIMEDOUT); /* at once */
	usleep(250000);
	u = fw_send(gw, FUSE_LOOKUP, root, "f", 2, NULL, 0);
	fw_run(gw);
	assert_false(fw_answered(gw, u)); /* asked again */
	fake_guest_go_on(g);
	fw_run(gw);
	assert_int_equal(fw_take(gw, u, NULL), 0);
}

static void test_EINTR(void **state)
{
	uint64_t root = gw_node(""), u[3];
	static const uint32_t op[] = { FUSE_LOOKUP, FUSE_UNLINK, FUSE_RMDIR };

	(void)state;
	gw_put("f", "");
	g->hung = true;
	for (size_t i = 0; i < ARRAY_LEN(u); i++)
		u[i] = fw_send(gw, op[i], root, "f", 2, NULL, 0);
	fw_run(gw);
	for (size_t i = 0; i < ARRAY_LEN(u); i++) {
		fw_interrupt(gw, u[i]);
		fw_wait(gw, 100);
		assert_int_equal(fw_take(gw, u[i], NULL), -EINTR);
	}
	/* What was asked for happens; nobody hears of it. */
	fake_guest_go_on(g);
	fw_run(gw);
	assert_int_equal(access(gw_path("f"), F_OK), -1);
	assert_int_equal(cfs_session_parked(gw->cs), 0);
}

/* As on a local disk, a signal does not end what takes a moment only. */
static void test_an_answer_just_behind_the_interrupt_counts(void **state)
{
	uint64_t root = gw_node(""), u;

	(void)state;
	gw_put("f", "");
	g->hung = true;
	u = fw_send(gw, FUSE_UNLINK, root, "f", 2, NULL, 0);
	fw_run(gw);
	fw_interrupt(gw, u);
	assert_false(fw_answered(gw, u));
	fake_guest_go_on(g);
	fw_run(gw);
	assert_int_equal(fw_take(gw, u, NULL), 0);
}

/* A rename that the guest has done already and we have not heard of yet must not make a look-up below it fail. */
static void test_a_rename_overtakes_a_lookup(void **state)
{
	struct fuse_rename2_in in = { 0 };
	uint64_t root = gw_node(""), d, u, v;

	(void)state;
	assert_int_equal(mkdir(gw_path("d"), 0755), 0);
	gw_put("d/f", "");
	d = gw_node("d");
	in.newdir = root;
	g->hung = true;
	u = fw_send(gw, FUSE_RENAME2, root, &in, sizeof(in), "d\0e", 4);
	v = fw_send(gw, FUSE_LOOKUP, d, "f", 2, NULL, 0); /* as d/f */
	fw_run(gw);
	fake_guest_go_on(g);
	fw_run(gw);
	assert_int_equal(fw_take(gw, u, NULL), 0);
	assert_int_equal(fw_take(gw, v, NULL), 0); /* as e/f */
	assert_int_equal(gw_node("e"), d);
}

/* -- lies ----------------------------------------------------------------------------------------------------- */

static void lie_code(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer)
{
	(void)op;
	(void)payload;
	(void)len;
	gw_say(answer, *(int *)arg);
}

static void test_EIO_answers_of_another_kind(void **state)
{
	int code = 0;
	uint64_t f;
	char text[64];

	(void)state;
	gw_put("f", "");
	f = gw_node("f");
	g->twist = lie_code; /* 0 and nothing behind it */
	g->twist_arg = &code;
	assert_int_equal(gw_error("f"), -EIO);
	assert_int_equal(fw_getattr(gw, f, NULL), -EIO);
	assert_int_equal(fw_mkdir(gw, "fs/d"), -EIO);
	assert_int_equal(fw_symlink(gw, "fs/l", "x"), -EIO);
	assert_int_equal(fw_unlink(gw, "fs/f"), 0);
	code = -ENOSYS; /* fusewire sees to it that it is never told */
	assert_int_equal(gw_error("f"), -EOPNOTSUPP);
	code = -516;
	assert_int_equal(gw_error("f"), -EIO);
	g->twist = same_ino; /* directories everywhere */
	assert_int_equal(fw_getattr(gw, f, NULL), -ESTALE);
	g->twist = NULL;
	assert_int_equal(symlink("x", gw_path("l2")), 0);
	f = gw_node("l2");
	g->twist = lie_code;
	code = 0;
	assert_int_equal(gw_readlink(f, text, sizeof(text)), -EIO);
}

static uint64_t rng = 7;

static unsigned rnd(unsigned n)
{
	rng = rng * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(rng >> 33) % n;
}

/* Some answers are spoilt: bytes changed, cut, lengthened, or of another request. */
static void spoil(void *arg, uint8_t op, const void *payload, size_t len, struct buf *answer)
{
	(void)arg;
	(void)op;
	(void)payload;
	(void)len;
	switch (rnd(6)) {
	case 0:
		for (unsigned i = 1 + rnd(4); i; i--)
			answer->data[rnd((unsigned)answer->len)] = (uint8_t)rnd(256);
		break;
	case 1:
		answer->len = rnd((unsigned)answer->len + 1);
		break;
	case 2:
		while (answer->len < 300)
			wire_put_u8(answer, (uint8_t)rnd(256));
		break;
	case 3:
		gw_say(answer, 0);
		gw_say_attr(answer, S_IFREG + (rnd(4) << 13), rnd(5), rnd(100));
		break;
	default:
		break;
	}
}

static void test_spoilt_answers_do_no_harm(void **state)
{
	static const char *const name[] = { "a", "b", "a/b", "b/a", "a/a", "b/b" };
	char path[16], path2[16], text[8192];

	(void)state;
	g->twist = spoil;
	for (int i = 0; i < 3000; i++) {
		struct fuse_entry_out e;
		struct fuse_open_out o;

		snprintf(path, sizeof(path), "fs/%s", name[rnd(ARRAY_LEN(name))]);
		snprintf(path2, sizeof(path2), "fs/%s", name[rnd(ARRAY_LEN(name))]);
		switch (rnd(9)) {
		case 0:
			fw_mkdir(gw, path);
			break;
		case 1:
			fw_symlink(gw, path, rnd(2) ? "/a/b" : "../a");
			break;
		case 2:
			fw_readlink(gw, path, text, sizeof(text));
			break;
		case 3:
			fw_rename(gw, path, path2, rnd(3));
			break;
		case 4:
			rnd(2) ? fw_unlink(gw, path) : fw_rmdir(gw, path);
			break;
		case 5:
			fw_mknod(gw, path, S_IFREG | 0644);
			break;
		case 6:
			if (fw_walk(gw, path, &e) == 0)
				fw_setattr(gw, e.nodeid, rnd(16), 0, rnd(10), rnd(010000), 0);
			break;
		default:
			if (fw_walk(gw, path, &e) < 0 || !S_ISREG(e.attr.mode) || fw_open(gw, e.nodeid, O_RDWR, &o) < 0)
				break;
			fw_write(gw, e.nodeid, o.fh, O_RDWR, rnd(1000), text, rnd(1000));
			fw_read(gw, e.nodeid, o.fh, O_RDWR, 0, text, 4096);
			fw_getattr(gw, e.nodeid, NULL);
			fw_release(gw, e.nodeid, o.fh);
		}
	}
	assert_int_equal(cfs_session_parked(gw->cs), 0);
	fake_guest_restart(g); /* a spoilt OPEN leaves its handle behind: the guest's own loss */
}

/* -- statfs, xattr ---------------------------------------------------------------------------------------------- */

static int get_xattr(uint64_t n, const char *name, uint32_t size, char *buf)
{
	struct fuse_getxattr_in in = { .size = size };
	const struct fw_answer *a;
	int r = fw_call(gw, FUSE_GETXATTR, n, &in, sizeof(in), name, strlen(name) + 1, &a);

	if (r < 0)
		return r;
	if (size == 0)
		return (int)((const struct fuse_getxattr_out *)(const void *)a->data)->size;
	memcpy(buf, a->data ? a->data : "", a->len);
	return (int)a->len;
}

static int set_xattr(uint64_t n, const char *name, const char *value, size_t len)
{
	struct {
		struct fuse_setxattr_in in;
		char rest[70000];
	} m = { .in = { .size = (uint32_t)len } };
	size_t name_len = strlen(name) + 1, head = FUSE_COMPAT_SETXATTR_IN_SIZE;

	memcpy((char *)&m + head, name, name_len);
	memcpy((char *)&m + head + name_len, value, len);
	return fw_call(gw, FUSE_SETXATTR, n, &m, head + name_len + len, NULL, 0, NULL);
}

static void test_EOPNOTSUPP_attributes_of_other_name_spaces(void **state)
{
	static char big[65536];
	char buf[16];
	uint64_t f;

	(void)state;
	gw_put("f", "");
	f = gw_node("f");
	assert_int_equal(set_xattr(f, "user.a", "value", 5), 0);
	assert_int_equal(get_xattr(f, "user.a", 0, NULL), 5);
	assert_int_equal(get_xattr(f, "user.a", 16, buf), 5);
	assert_int_equal(get_xattr(f, "user.a", 3, buf), -ERANGE);
	assert_int_equal(get_xattr(f, "user.b", 16, buf), -ENODATA);
	assert_int_equal(set_xattr(f, "user.big", big, sizeof(big)), -E2BIG);
	assert_int_equal(fw_call(gw, FUSE_REMOVEXATTR, f, "user.a", 7, NULL, 0, NULL), 0);
	g->hung = true; /* the guest is not asked */
	assert_int_equal(get_xattr(f, "security.capability", 0, NULL), -EOPNOTSUPP);
	assert_int_equal(get_xattr(f, "system.posix_acl_access", 0, NULL), -EOPNOTSUPP);
	assert_int_equal(set_xattr(f, "trusted.a", "v", 1), -EOPNOTSUPP);
	assert_int_equal(set_xattr(f, "user.", "v", 1), -EOPNOTSUPP);
	g->hung = false;
}

static void test_statfs(void **state)
{
	const struct fw_answer *a;
	const struct fuse_statfs_out *s;

	(void)state;
	assert_int_equal(fw_call(gw, FUSE_STATFS, gw_node(""), NULL, 0, NULL, 0, &a), 0);
	s = (const void *)a->data;
	assert_true(s->st.bsize >= 512 && s->st.blocks > 0 && s->st.namelen == 255);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, gw_setup, gw_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_looking_at_the_root_asks_nobody),
		TEST(test_the_root_keeps_its_mode),
		TEST(test_everything_is_the_owners),
		TEST(test_inode_numbers_show_hard_links_and_no_loops),
		TEST(test_directories_of_one_inode_number_differ),
		TEST(test_EPERM_special_files),
		TEST(test_names),
		TEST(test_EXDEV_another_guest),
		TEST(test_EXDEV_another_depth),
		TEST(test_a_hard_link_has_a_node_of_its_own),
		TEST(test_a_replaced_file_has_a_node_of_its_own),
		TEST(test_ENOENT_in_a_removed_directory),
		TEST(test_links_have_the_length_of_their_text),
		TEST(test_ESTALE_a_link_that_went_to_another_depth),
		TEST(test_ESTALE_no_link_any_more),
		TEST(test_EBUSY_paused_ENOTCONN_stopped),
		TEST(test_EBUSY_too_much_outstanding),
		TEST(test_ETIMEDOUT_and_those_behind_it),
		TEST(test_EINTR),
		TEST(test_an_answer_just_behind_the_interrupt_counts),
		TEST(test_a_rename_overtakes_a_lookup),
		TEST(test_EIO_answers_of_another_kind),
		TEST(test_spoilt_answers_do_no_harm),
		TEST(test_EOPNOTSUPP_attributes_of_other_name_spaces),
		TEST(test_statfs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
