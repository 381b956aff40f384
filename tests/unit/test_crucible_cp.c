/* SPDX-License-Identifier: Apache-2.0 */
/* Copying: the words of cp, packing, and unpacking what a hostile guest wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "tools/crucible/guestpath.h"
#include "tools/crucible/pack.h"

static void test_operands(void **state)
{
	static const struct {
		const char *word, *id; /* id NULL: local */
		const char *path;
		bool slash;
	} cases[] = {
		{ "file", NULL, "file", false },
		{ "dir/", NULL, "dir/", true },
		{ "/abs/olute", NULL, "/abs/olute", false },
		{ "./a:b", NULL, "./a:b", false },
		{ "dir/a:/b", NULL, "dir/a:/b", false },
		{ ":/x", NULL, ":/x", false },
		{ "a:/etc/passwd", "a", "etc/passwd", false },
		{ "a:/", "a", "", true },
		{ "a:/dir/", "a", "dir", true },
		{ "a://dir//./sub", "a", "dir/sub", false },
		{ "a:/dir/.", "a", "dir", true },
		{ "a:/with:colon", "a", "with:colon", false },
		{ "A.b-c_1:/x", "A.b-c_1", "x", false },
		{ "a:/..x/...", "a", "..x/...", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct cp_operand o;
		struct err e = { 0 };

		if (cp_operand_parse(cases[i].word, &o, &e) < 0)
			fail_msg("%s: %s", cases[i].word, e.msg);
		if (o.guest != (cases[i].id != NULL) || strcmp(o.id, cases[i].id ? cases[i].id : "") != 0 ||
		    strcmp(o.path, cases[i].path) != 0 || o.slash != cases[i].slash)
			fail_msg("%s: %d \"%s\" \"%s\" %d", cases[i].word, o.guest, o.id, o.path, o.slash);
	}
}

static void test_operands_that_are_refused(void **state)
{
	static const char *const words[] = { "",      "a:",    "a:etc",	 "a:/../etc",  "a:/x/..",
					     "a:/..", "-a:/x", "a b:/x", "\xc3\xbc:/x" };
	char longer[PATH_MAX + 64];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(words); i++) {
		struct cp_operand o;
		struct err e = { 0 };

		assert_int_equal(cp_operand_parse(words[i], &o, &e), -EINVAL);
		assert_true(*e.msg);
	}
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(cp_operand_parse(longer, &(struct cp_operand){ 0 }, NULL), -ENAMETOOLONG);
	memcpy(longer, "a:/", 3);
	assert_int_equal(cp_operand_parse(longer, &(struct cp_operand){ 0 }, NULL), -ENAMETOOLONG);
	memset(longer, 'x', 70);
	longer[70] = ':';
	longer[71] = '/';
	longer[72] = '\0';
	assert_int_equal(cp_operand_parse(longer, &(struct cp_operand){ 0 }, NULL), -ENAMETOOLONG);
}

static void test_base_names(void **state)
{
	static const struct {
		const char *path, *name;
	} cases[] = { { "a/b", "b" }, { "a/b//", "b" }, { "b", "b" },	{ "/", "" },
		      { "", "" },     { ".", "" },	{ "a/..", "" }, { "a/.x", ".x" } };
	char path[PATH_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		strcpy(path, cases[i].path);
		assert_string_equal(cp_base_name(path), cases[i].name);
	}
	strcpy(path, "dir");
	assert_int_equal(cp_path_add(path, "x"), 0);
	assert_string_equal(path, "dir/x");
	strcpy(path, "");
	assert_int_equal(cp_path_add(path, "x"), 0);
	assert_string_equal(path, "x");
	strcpy(path, "/");
	assert_int_equal(cp_path_add(path, "x"), 0);
	assert_string_equal(path, "/x");
	memset(path, 'x', PATH_MAX - 2);
	path[PATH_MAX - 2] = '\0';
	assert_int_equal(cp_path_add(path, "x"), -ENAMETOOLONG);
}

static void test_which_links_stay_inside(void **state)
{
	static const struct {
		const char *path, *target;
		bool inside;
	} cases[] = {
		{ "link", "file", true },
		{ "./link", "file", true },
		{ "link", "./file", true },
		{ "link", "dir/file", true },
		{ "link", ".", true },
		{ "dir/link", "../file", true },
		{ "./dir/./link", "../file", true },
		{ "a/b/link", "../../file", true },
		{ "link", "../file", false },
		{ "dir/link", "../../file", false },
		{ "./link", "../file", false },
		{ "link", "/etc/passwd", false },
		{ "link", "", false },
		{ "dir/link", "sub/../../../etc", false },
		{ "dir/link", "sub/../file", false }, /* `sub` may be a link itself */
		{ "a//b//link", "../../x", true },
		{ "a//b//link", "../../../x", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		if (unpack_link_stays_inside(cases[i].path, cases[i].target) != cases[i].inside)
			fail_msg("%s -> %s", cases[i].path, cases[i].target);
	}
	assert_true(unpack_path_is_plain("a/b"));
	assert_true(unpack_path_is_plain("./a/..b"));
	assert_false(unpack_path_is_plain("/a"));
	assert_false(unpack_path_is_plain(""));
	assert_false(unpack_path_is_plain("../a"));
	assert_false(unpack_path_is_plain("a/../b"));
	assert_false(unpack_path_is_plain("a/.."));
}

/* -- tar ---------------------------------------------------------------------------------------------------------- */

/* A directory of its own with `src` and `dst` inside, removed at the end. */
struct place {
	char dir[64];
	int src, dst, tar; /* tar: an unlinked file */
};

static int enter(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	strcpy(p->dir, "/tmp/test-crucible-cp.XXXXXX");
	if (!mkdtemp(p->dir) || chdir(p->dir) < 0 || mkdir("src", 0755) < 0 || mkdir("dst", 0755) < 0)
		return -1;
	p->src = open("src", O_RDONLY | O_DIRECTORY);
	p->dst = open("dst", O_RDONLY | O_DIRECTORY);
	p->tar = open(p->dir, O_RDWR | O_TMPFILE, 0600);
	*state = p;
	return p->src < 0 || p->dst < 0 || p->tar < 0 ? -1 : 0;
}

static int leave(void **state)
{
	struct place *p = *state;
	char command[128];

	close(p->src);
	close(p->dst);
	close(p->tar);
	snprintf(command, sizeof(command), "rm -rf %s", p->dir);
	free(p);
	return chdir("/") < 0 ? -1 : system(command);
}

static void put_file(int dir, const char *path, const char *text, mode_t mode)
{
	int fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void assert_file(int dir, const char *path, const char *expected, mode_t mode)
{
	char *text;
	struct stat st;

	if (fd_slurp(dir, path, 1 << 20, &text, NULL) < 0)
		fail_msg("%s cannot be read", path);
	assert_string_equal(text, expected);
	assert_int_equal(fstatat(dir, path, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, mode);
	free(text);
}

static void assert_absent(int dir, const char *path)
{
	assert_int_equal(faccessat(dir, path, F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

static void test_round_trip(void **state)
{
	struct place *p = *state;
	struct pack_count in, out;
	struct err e = { 0 };
	struct stat a, b;
	char target[64];
	ssize_t n;
	int fd;

	put_file(p->src, "plain", "hello\n", 0644);
	put_file(p->src, "tool", "#!/bin/sh\n", 04755);
	put_file(p->src, "gr\xc3\xbc\xc3\x9f", "umlaut", 0600);
	assert_int_equal(mkdirat(p->src, "sub", 0700), 0);
	put_file(p->src, "sub/inner", "inner", 0640);
	assert_int_equal(symlinkat("../plain", p->src, "sub/up"), 0);
	assert_int_equal(linkat(p->src, "plain", p->src, "same", 0), 0);
	assert_int_equal(mkfifoat(p->src, "fifo", 0600), 0);
	fd = openat(p->src, "sparse", O_WRONLY | O_CREAT, 0644);
	assert_int_equal(pwrite(fd, "end", 3, 5 << 20), 3);
	close(fd);

	if (pack_directory("src", ".", p->tar, &in, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(in.skipped, 1);
	assert_int_equal(lseek(p->tar, 0, SEEK_SET), 0);
	if (unpack_directory(p->tar, p->dst, &out, &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(out.skipped, 0);
	assert_int_equal(out.files, in.files);
	assert_file(p->dst, "plain", "hello\n", 0644);
	assert_file(p->dst, "tool", "#!/bin/sh\n", 0755);
	assert_file(p->dst, "gr\xc3\xbc\xc3\x9f", "umlaut", 0600);
	assert_file(p->dst, "sub/inner", "inner", 0640);
	n = readlinkat(p->dst, "sub/up", target, sizeof(target));
	assert_int_equal(n, 8);
	assert_memory_equal(target, "../plain", 8);
	assert_absent(p->dst, "fifo");
	assert_int_equal(fstatat(p->dst, "plain", &a, 0), 0);
	assert_int_equal(fstatat(p->dst, "same", &b, 0), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(fstatat(p->dst, "sparse", &a, 0), 0);
	assert_int_equal(a.st_size, (5 << 20) + 3);
	assert_int_equal(fstatat(p->src, "plain", &a, 0), 0);
	assert_int_equal(fstatat(p->dst, "plain", &b, 0), 0);
	assert_int_equal(a.st_mtime, b.st_mtime);
}

/* All names below the prefix, all root's: read back with libarchive itself. */
static void test_packed_names_and_owners(void **state)
{
	struct place *p = *state;
	struct archive *a = archive_read_new();
	struct archive_entry *entry;
	struct pack_count count;
	struct err e = { 0 };
	unsigned n = 0;

	put_file(p->src, "f", "x", 0644);
	assert_int_equal(pack_directory("src", "home/me", p->tar, &count, &e), 0);
	assert_int_equal(lseek(p->tar, 0, SEEK_SET), 0);
	archive_read_support_format_tar(a);
	assert_int_equal(archive_read_open_fd(a, p->tar, 4096), ARCHIVE_OK);
	while (archive_read_next_header(a, &entry) == ARCHIVE_OK) {
		assert_true(!strncmp(archive_entry_pathname(entry), "home/me/", 8));
		assert_int_equal(archive_entry_uid(entry), 0);
		assert_int_equal(archive_entry_gid(entry), 0);
		n++;
	}
	assert_int_equal(n, 2);
	archive_read_free(a);
}

static void test_packing_fails_in_words(void **state)
{
	struct place *p = *state;
	struct pack_count count;
	struct err e = { 0 };
	int full = open("/dev/full", O_WRONLY);

	put_file(p->src, "f", "x", 0644);
	assert_int_equal(pack_directory("src", "x", full, &count, &e), -ENOSPC);
	assert_non_null(strstr(e.msg, "import"));
	assert_int_equal(pack_directory("nowhere", "x", p->tar, &count, &e), -ENOENT);
	assert_non_null(strstr(e.msg, "nowhere"));
	close(full);
}

/* -- hostile streams -------------------------------------------------------------------------------------------- */

struct hostile {
	const char *path;
	mode_t type;	  /* AE_IF… */
	const char *link; /* symbolic, or hard when type is 0 */
	const char *text;
	mode_t mode;
};

static void write_tar(struct place *p, const struct hostile *entries, size_t n)
{
	struct archive *a = archive_write_new();

	archive_write_set_format_pax_restricted(a);
	archive_write_open_fd(a, p->tar);
	for (size_t i = 0; i < n; i++) {
		struct archive_entry *entry = archive_entry_new();
		size_t len = entries[i].text ? strlen(entries[i].text) : 0;

		archive_entry_set_pathname(entry, entries[i].path);
		archive_entry_set_filetype(entry, entries[i].type);
		archive_entry_set_perm(entry, entries[i].mode ? entries[i].mode : 0644);
		archive_entry_set_size(entry, (int64_t)len);
		archive_entry_set_uid(entry, 12345);
		archive_entry_set_rdev(entry, 0x103);
		if (entries[i].link && entries[i].type)
			archive_entry_set_symlink(entry, entries[i].link);
		else if (entries[i].link)
			archive_entry_set_hardlink(entry, entries[i].link);
		assert_true(archive_write_header(a, entry) >= ARCHIVE_WARN);
		if (len)
			archive_write_data(a, entries[i].text, len);
		archive_entry_free(entry);
	}
	archive_write_close(a);
	archive_write_free(a);
	assert_int_equal(lseek(p->tar, 0, SEEK_SET), 0);
}

static int unpack(struct place *p, const struct hostile *entries, size_t n, struct pack_count *count)
{
	struct err e = { 0 };

	assert_int_equal(ftruncate(p->tar, 0), 0);
	assert_int_equal(lseek(p->tar, 0, SEEK_SET), 0);
	write_tar(p, entries, n);
	*count = (struct pack_count){ 0 };
	return unpack_directory(p->tar, p->dst, count, &e);
}
#define UNPACK(p, count, ...) \
	unpack(p, (const struct hostile[]){ __VA_ARGS__ }, ARRAY_LEN(((const struct hostile[]){ __VA_ARGS__ })), count)

static void test_names_that_lead_out_are_refused(void **state)
{
	struct place *p = *state;
	struct pack_count c;

	assert_int_equal(UNPACK(p, &c, { "../evil", AE_IFREG, NULL, "x", 0 }), -EBADMSG);
	assert_int_equal(UNPACK(p, &c, { "a/../../evil", AE_IFREG, NULL, "x", 0 }), -EBADMSG);
	assert_int_equal(UNPACK(p, &c, { "/tmp/test-crucible-cp-evil", AE_IFREG, NULL, "x", 0 }), -EBADMSG);
	assert_int_equal(UNPACK(p, &c, { "hard", 0, "../src/secret", NULL, 0 }), -EBADMSG);
	assert_int_equal(UNPACK(p, &c, { "hard", 0, "/etc/passwd", NULL, 0 }), -EBADMSG);
	assert_absent(AT_FDCWD, "evil");
	assert_absent(AT_FDCWD, "/tmp/test-crucible-cp-evil");
	assert_absent(p->dst, "hard");
}

static void test_links_are_never_written_through(void **state)
{
	struct place *p = *state;
	struct pack_count c;

	/* A link that stays inside by its text may be there; a file below it must not be made. */
	assert_true(UNPACK(p, &c, { "sub", AE_IFDIR, NULL, NULL, 0755 }, { "sub/link", AE_IFLNK, "../sub", NULL, 0 },
			   { "sub/link/evil", AE_IFREG, NULL, "x", 0 }) < 0);
	assert_absent(p->dst, "sub/evil");
	/* One that the user has there already, too. */
	assert_int_equal(symlinkat("../src", p->dst, "mine"), 0);
	assert_true(UNPACK(p, &c, { "mine/evil", AE_IFREG, NULL, "x", 0 }) < 0);
	assert_absent(p->src, "evil");
}

static void test_links_that_lead_out_are_left_out(void **state)
{
	struct place *p = *state;
	struct pack_count c;

	assert_int_equal(UNPACK(p, &c, { "abs", AE_IFLNK, "/etc/passwd", NULL, 0 },
				{ "up", AE_IFLNK, "../src", NULL, 0 }, { "d/ok", AE_IFLNK, "../x", NULL, 0 },
				{ "f", AE_IFREG, NULL, "f", 0 }),
			 0);
	assert_int_equal(c.skipped, 2);
	assert_int_equal(c.files, 2);
	assert_absent(p->dst, "abs");
	assert_absent(p->dst, "up");
	assert_file(p->dst, "f", "f", 0644);
}

static void test_devices_owners_and_set_user_id_do_not_come_out(void **state)
{
	struct place *p = *state;
	struct pack_count c;
	struct stat st;

	assert_int_equal(UNPACK(p, &c, { "null", AE_IFCHR, NULL, NULL, 0666 }, { "disk", AE_IFBLK, NULL, NULL, 0666 },
				{ "fifo", AE_IFIFO, NULL, NULL, 0666 }, { "su", AE_IFREG, NULL, "x", 06755 },
				{ "t", AE_IFDIR, NULL, NULL, 07777 }),
			 0);
	assert_int_equal(c.skipped, 3);
	assert_absent(p->dst, "null");
	assert_absent(p->dst, "disk");
	assert_absent(p->dst, "fifo");
	assert_file(p->dst, "su", "x", 0755);
	assert_int_equal(fstatat(p->dst, "su", &st, 0), 0);
	assert_int_equal(st.st_uid, geteuid());
	assert_int_equal(fstatat(p->dst, "t", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0777);
}

static void test_existing_files_are_replaced(void **state)
{
	struct place *p = *state;
	struct pack_count c;

	put_file(p->src, "target", "mine", 0644);
	put_file(p->dst, "f", "old", 0600);
	assert_int_equal(symlinkat("../src/target", p->dst, "l"), 0);
	assert_int_equal(UNPACK(p, &c, { "f", AE_IFREG, NULL, "new", 0644 }, { "l", AE_IFREG, NULL, "guest", 0644 }),
			 0);
	assert_file(p->dst, "f", "new", 0644);
	assert_file(p->dst, "l", "guest", 0644);
	assert_file(p->src, "target", "mine", 0644);
}

static void test_what_is_no_tar_is_an_error(void **state)
{
	struct place *p = *state;
	struct pack_count c;
	struct err e = { 0 };
	char junk[4096];

	memset(junk, 'j', sizeof(junk));
	assert_int_equal(fd_write_all(p->tar, junk, sizeof(junk)), 0);
	assert_int_equal(lseek(p->tar, 0, SEEK_SET), 0);
	assert_true(unpack_directory(p->tar, p->dst, &c, &e) < 0);
	assert_non_null(strstr(e.msg, "the guest's tar"));
	/* A real one that is cut off. */
	write_tar(p, &(const struct hostile){ "f", AE_IFREG, NULL, "some text", 0644 }, 1);
	assert_int_equal(ftruncate(p->tar, 516), 0);
	assert_true(unpack_directory(p->tar, p->dst, &c, &e) < 0);
}

/* The working directory is the caller's again. */
static void test_guest_open_stays_beneath(void **state)
{
	struct place *p = *state;
	struct stat st;
	int fd;

	put_file(p->src, "secret", "s", 0600);
	put_file(p->dst, "f", "f", 0600);
	assert_int_equal(mkdirat(p->dst, "d", 0755), 0);
	assert_int_equal(symlinkat("../f", p->dst, "d/inside"), 0);
	assert_int_equal(symlinkat("../src/secret", p->dst, "outside"), 0);
	assert_int_equal(symlinkat("/etc/passwd", p->dst, "absolute"), 0);
	fd = guest_open(p->dst, "d/inside", O_RDONLY, 0);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(guest_open(p->dst, "outside", O_RDONLY, 0), -EXDEV);
	assert_int_equal(guest_open(p->dst, "absolute", O_RDONLY, 0), -EXDEV);
	assert_int_equal(guest_open(p->dst, "../src/secret", O_RDONLY, 0), -EXDEV);
	assert_int_equal(guest_stat(p->dst, "", &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(guest_stat(p->dst, "nothing", &st), -ENOENT);
	fd = guest_open(p->dst, "new", O_WRONLY | O_CREAT, 0640);
	assert_true(fd >= 0);
	close(fd);
}

#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, enter, leave)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_operands_that_are_refused),
		cmocka_unit_test(test_base_names),
		cmocka_unit_test(test_which_links_stay_inside),
		IN_PLACE(test_round_trip),
		IN_PLACE(test_packed_names_and_owners),
		IN_PLACE(test_packing_fails_in_words),
		IN_PLACE(test_names_that_lead_out_are_refused),
		IN_PLACE(test_links_are_never_written_through),
		IN_PLACE(test_links_that_lead_out_are_left_out),
		IN_PLACE(test_devices_owners_and_set_user_id_do_not_come_out),
		IN_PLACE(test_existing_files_are_replaced),
		IN_PLACE(test_what_is_no_tar_is_an_error),
		IN_PLACE(test_guest_open_stays_beneath),
	};

	setlocale(LC_CTYPE, "C.UTF-8");
	umask(022);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
