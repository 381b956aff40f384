/* SPDX-License-Identifier: Apache-2.0 */
/* Rule 7: small control files act inside write(2) and return the errno there. */
#include <errno.h>
#include <stdlib.h>
#include "fusewire.h"

static char buf[262144];

static void cat_is(struct fw *w, const char *path, const char *text)
{
	assert_int_equal(fw_cat(w, path, buf, sizeof(buf)), strlen(text));
	assert_string_equal(buf, text);
}

static void write_acts_at_once(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	struct fuse_entry_out e;
	struct fuse_open_out o;

	assert_int_equal(fw_walk(w, "run/a/ctl", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY | O_TRUNC, &o), 0);
	assert_true(o.open_flags & FOPEN_DIRECT_IO);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 0, "pause\n", 6), 6);
	assert_string_equal(fake_ctl(s), "pause|");				      /* before any close */
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 6, "resume\n", 7), 7); /* the offset means nothing */
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 0, "  signal TERM \t\r\n", 17), 17); /* blanks around */
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 1ull << 40, "kill", 4), 4);
	assert_string_equal(fake_ctl(s), "pause|resume|signal TERM|kill|");
	fw_release(w, e.nodeid, o.fh);
}

static void unknown_word_EINVAL(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	assert_int_equal(fw_put(w, "run/a/ctl", "explode\n"), -EINVAL);
	cat_is(w, "run/a/error", "sandbox a: ctl: \"explode\" is no verb\n");
	assert_int_equal(fw_put(w, "run/a/limits/pids", "many\n"), -EINVAL);
	assert_true(fw_cat(w, "run/a/error", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "pids: \"many\""));
	assert_string_equal(fake_ctl(s), "");
}

static void lines_act_up_to_the_first_error(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	assert_int_equal(fw_put(w, "run/a/ctl", "\npause\n\n  resume\nexplode\nkill\n"), -EINVAL);
	assert_string_equal(fake_ctl(s), "pause|resume|");
	assert_int_equal(fw_put(w, "run/a/limits/pids", "5\n6\n"), 0);
	cat_is(w, "run/a/limits/pids", "6\n");
}

static void blanks_alone_do_nothing(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);

	assert_int_equal(fw_put(w, "run/a/ctl", "\n \t\n"), 0);
	assert_int_equal(fw_put(w, "run/a/ctl", ""), 0);
	assert_int_equal(fw_put(w, "run/a/limits/pids", "\n"), 0);
	assert_int_equal(fw_put(w, "run/a/env", "A=1\n"), 0);
	assert_int_equal(fw_put(w, "run/a/env", " \n"), 0);
	assert_string_equal(fake_ctl(s), "");
	cat_is(w, "run/a/env", "A=1\n");
	cat_is(w, "run/a/error", "");
}

static void nul_EINVAL_and_too_long_EFBIG(void **state)
{
	struct fw *w = *state;
	char *big = calloc(1, 65537);

	assert_non_null(big);
	memset(big, ' ', 65537);
	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_put_bytes(w, "run/a/ctl", O_WRONLY, "kill\0x", 6), -EINVAL);
	assert_true(fw_cat(w, "run/a/error", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "NUL"));
	assert_int_equal(fw_put_bytes(w, "run/a/ctl", O_WRONLY, big, 65537), -EFBIG);
	assert_int_equal(fw_put_bytes(w, "run/a/ctl", O_WRONLY, big, 65536), 0);
	free(big);
}

static void truncation_is_tolerated(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/env", "A=1\n");
	assert_int_equal(fw_walk(w, "run/a/env", &e), 0);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_SIZE, 0, 0, 0, 0), 0); /* truncate(1) */
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_SIZE, 0, 5, 0, 0), -EINVAL);
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_MODE, 0, 0, 0644, 0), 0); /* install -m */
	assert_int_equal(fw_setattr(w, e.nodeid, FATTR_UID, 0, 0, 0, 9), -EPERM);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY | O_TRUNC, &o), 0);
	fw_release(w, e.nodeid, o.fh);
	cat_is(w, "run/a/env", "A=1\n");
}

/* -- lists: env ----------------------------------------------------------------------------------- */

static void open_env(struct fw *w, int flags, uint64_t *ret_node, uint64_t *ret_fh)
{
	struct fuse_entry_out e;
	struct fuse_open_out o;

	assert_int_equal(fw_walk(w, "run/a/env", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, flags, &o), 0);
	*ret_node = e.nodeid;
	*ret_fh = o.fh;
}

static void the_first_write_replaces_later_ones_add(void **state)
{
	struct fw *w = *state;
	uint64_t n, fh;

	fake_sandbox(w->reg, "a", 0);
	fw_put(w, "run/a/env", "OLD=1\n");
	open_env(w, O_WRONLY, &n, &fh);
	assert_int_equal(fw_write(w, n, fh, O_WRONLY, 0, "A=1\nB=2\n", 8), 8);
	cat_is(w, "run/a/env", "A=1\nB=2\n");
	assert_int_equal(fw_write(w, n, fh, O_WRONLY, 8, "C=3", 3), 3); /* no newline: acts all the same */
	cat_is(w, "run/a/env", "A=1\nB=2\nC=3\n");
	fw_release(w, n, fh);
	open_env(w, O_WRONLY | O_APPEND, &n, &fh);
	assert_int_equal(fw_write(w, n, fh, O_WRONLY | O_APPEND, 0, " D=4 \n", 6), 6);
	cat_is(w, "run/a/env", "A=1\nB=2\nC=3\nD=4\n");
	fw_release(w, n, fh);
}

static void a_cut_line_is_completed(void **state)
{
	struct fw *w = *state;
	uint64_t n, fh;
	static const char text[] = "ALPHA=1\nBETA=22\nGAMMA=3\n";

	fake_sandbox(w->reg, "a", 0);
	open_env(w, O_WRONLY, &n, &fh);
	assert_int_equal(fw_write(w, n, fh, O_WRONLY, 0, "A=1\nB=lo", 8), 8);
	cat_is(w, "run/a/env", "A=1\nB=lo\n");
	assert_int_equal(fw_write(w, n, fh, O_WRONLY, 8, "ng\nC", 4), 4);
	cat_is(w, "run/a/env", "A=1\nB=long\n"); /* "C" cannot be a line yet */
	assert_int_equal(fw_write(w, n, fh, O_WRONLY, 12, "=3\n", 3), 3);
	cat_is(w, "run/a/env", "A=1\nB=long\nC=3\n");
	cat_is(w, "run/a/error", "");
	fw_release(w, n, fh);
	/* dd bs=1 */
	open_env(w, O_WRONLY, &n, &fh);
	for (size_t i = 0; i < sizeof(text) - 1; i++)
		assert_int_equal(fw_write(w, n, fh, O_WRONLY, i, text + i, 1), 1);
	cat_is(w, "run/a/env", text);
	cat_is(w, "run/a/error", "");
	fw_release(w, n, fh);
}

static void a_bad_line_EINVAL(void **state)
{
	struct fw *w = *state;
	struct sandbox *s = fake_sandbox(w->reg, "a", 0);
	uint64_t n, fh;

	fw_put(w, "run/a/env", "OLD=1\n");
	assert_int_equal(fw_put(w, "run/a/env", "nonsense\n"), -EINVAL);
	cat_is(w, "run/a/env", "OLD=1\n"); /* nothing acted */
	assert_int_equal(fw_put(w, "run/a/env", "A=1\nB=2\nnonsense\nC=3\n"), -EINVAL);
	cat_is(w, "run/a/env", "A=1\nB=2\n");			  /* in order, up to the first error */
	assert_int_equal(fw_put(w, "run/a/env", "9=x"), -EINVAL); /* whole, without a newline, and wrong */
	/* Never completed: write could not know, `error` says it. */
	fake_status(s, SBX_READY);
	open_env(w, O_WRONLY, &n, &fh);
	assert_int_equal(fw_write(w, n, fh, O_WRONLY, 0, "GOOD=1\nhalf", 11), 11);
	cat_is(w, "run/a/env", "GOOD=1\n");
	fw_release(w, n, fh);
	cat_is(w, "run/a/env", "GOOD=1\n");
	assert_true(fw_cat(w, "run/a/error", buf, sizeof(buf)) > 0);
	assert_non_null(strstr(buf, "half"));
}

/* -- net/allow, net/ports -------------------------------------------------------------------------- */

static void signed_lines_change_what_is_there(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_put(w, "run/a/net/allow", "a.test\nb.test\n"), 0);
	assert_int_equal(fw_put(w, "run/a/net/allow", "+c.test\n"), 0);
	cat_is(w, "run/a/net/allow", "a.test\nb.test\nc.test\n");
	assert_int_equal(fw_put(w, "run/a/net/allow", " -a.test"), 0);
	cat_is(w, "run/a/net/allow", "b.test\nc.test\n");
	assert_int_equal(fw_put(w, "run/a/net/allow", "-a.test\n"), -EINVAL);
	cat_is(w, "run/a/net/allow", "b.test\nc.test\n");
	assert_int_equal(fw_put(w, "run/a/net/allow", "-b.test\n+d.test\n"), 0);
	cat_is(w, "run/a/net/allow", "c.test\nd.test\n");
	/* Later writes of an open file go on from the same beginning. */
	assert_int_equal(fw_walk(w, "run/a/net/allow", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY, &o), 0);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 0, "-c.test\n", 8), 8);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 8, "+e.te", 5), 5);
	cat_is(w, "run/a/net/allow", "d.test\ne.te\n");
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 13, "st\n", 3), 3);
	cat_is(w, "run/a/net/allow", "d.test\ne.test\n");
	fw_release(w, e.nodeid, o.fh);
	assert_int_equal(fw_put(w, "run/a/net/allow", "new.test\n+f.test\n"), 0);
	cat_is(w, "run/a/net/allow", "new.test\nf.test\n");
	assert_int_equal(fw_put(w, "run/a/net/allow", "#\n"), 0);
	cat_is(w, "run/a/net/allow", "");
}

static void a_bad_line_keeps_the_whole_list_EINVAL(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_put(w, "run/a/net/allow", "old.test\n"), 0);
	assert_int_equal(fw_put(w, "run/a/net/allow", "a.test\nbad\nb.test\n"), -EINVAL);
	cat_is(w, "run/a/net/allow", "old.test\n");
	assert_int_equal(fw_put(w, "run/a/net/ports", "8080:80\n"), 0);
	assert_int_equal(fw_put(w, "run/a/net/ports", "8081:80\nbad\n"), -EINVAL);
	cat_is(w, "run/a/net/ports", "8080:80\n");
	assert_int_equal(fw_put(w, "run/a/net/ports", "-8080:80\n"), 0); /* no list that is edited: a line as any */
	cat_is(w, "run/a/net/ports", "-8080:80\n");
}

static void an_editor_writes_beside_and_renames_net(void **state)
{
	struct fw *w = *state;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_put(w, "run/a/net/allow", "a.test\n"), 0);
	assert_int_equal(fw_put(w, "run/a/net/sedX1", "b.test\n"), 0);
	assert_int_equal(fw_rename(w, "run/a/net/sedX1", "run/a/net/allow", 0), 0);
	cat_is(w, "run/a/net/allow", "b.test\n");
	assert_int_equal(fw_put(w, "run/a/net/sedX2", "bad\n"), 0);
	assert_int_equal(fw_rename(w, "run/a/net/sedX2", "run/a/net/allow", 0), -EINVAL);
	cat_is(w, "run/a/net/allow", "b.test\n");
}

static void read_and_write_on_one_descriptor(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_walk(w, "run/a/limits/pids", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_RDWR, &o), 0);
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_RDWR, 0, "77\n", 3), 3);
	assert_int_equal(fw_read(w, e.nodeid, o.fh, O_RDWR, 0, buf, 100), 3); /* as it was when it was opened */
	assert_memory_equal(buf, "11\n", 3);
	fw_release(w, e.nodeid, o.fh);
	cat_is(w, "run/a/limits/pids", "77\n");
}

static void a_removed_sandbox_ESTALE(void **state)
{
	struct fw *w = *state;
	struct fuse_entry_out e;
	struct fuse_open_out o;

	fake_sandbox(w->reg, "a", 0);
	assert_int_equal(fw_walk(w, "run/a/ctl", &e), 0);
	assert_int_equal(fw_open(w, e.nodeid, O_WRONLY, &o), 0);
	fw_rmdir(w, "run/a");
	assert_int_equal(fw_write(w, e.nodeid, o.fh, O_WRONLY, 0, "kill\n", 5), -ESTALE);
	fw_release(w, e.nodeid, o.fh);
}

static void defaults_are_roots_EPERM(void **state)
{
	struct fw *w = *state;

	assert_int_equal(fw_put(w, "defaults/pids", "50\n"), 0);
	cat_is(w, "defaults/pids", "50\n");
	w->uid = 5; /* the kernel says EACCES by the mode; who gets past it is refused here */
	assert_int_equal(fw_put(w, "defaults/pids", "60\n"), -EPERM);
	w->uid = 0;
	fw_mkdir(w, "run/a");
	cat_is(w, "run/a/limits/pids", "50\n");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, fw_setup, fw_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(write_acts_at_once),
		TEST(unknown_word_EINVAL),
		TEST(lines_act_up_to_the_first_error),
		TEST(blanks_alone_do_nothing),
		TEST(nul_EINVAL_and_too_long_EFBIG),
		TEST(truncation_is_tolerated),
		TEST(the_first_write_replaces_later_ones_add),
		TEST(a_cut_line_is_completed),
		TEST(signed_lines_change_what_is_there),
		TEST(a_bad_line_keeps_the_whole_list_EINVAL),
		TEST(an_editor_writes_beside_and_renames_net),
		TEST(a_bad_line_EINVAL),
		TEST(read_and_write_on_one_descriptor),
		TEST(a_removed_sandbox_ESTALE),
		TEST(defaults_are_roots_EPERM),
	};

	return cmocka_run_group_tests_name("cfs_control", tests, NULL, NULL);
}
